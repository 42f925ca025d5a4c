//! What is told next: the commits of the log behind what the trail has, up to now, and the edits
//! of the catalogue among them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{Error, Result, SeqNo, ValuePointer};
use crate::db::commits::not_a_commit;
use crate::db::operation::{DecodedCommit, decode_record, decode_stamp};
use crate::db::{Db, Handle};
use crate::manifest::{Edit, PendingSegment, TrailEnd, TrailNote, TrailRecord};
use crate::seal::{FileIdentity, FileKey};
use crate::value_log::{NO_FILE, ValueReader};
use crate::wal::{Lsn, RecordReader};

/// Something that a trail is told.
#[derive(Debug)]
pub(crate) enum TrailItem {
    /// An edit of the catalogue, as bytes.
    Edit {
        seqno: SeqNo,
        edit: Vec<u8>,
    },
    Commit(TrailCommit),
}

/// A commit.
#[derive(Debug)]
pub(crate) struct TrailCommit {
    pub seqno: SeqNo,
    /// Its record in the log; but pointers have the number of the value among those of the commit,
    /// from 0 on, in place of where it lies.
    pub record: Vec<u8>,
    /// Its large values, in this order.
    pub values: Vec<TrailValue>,
    /// Where the log goes on behind it.
    log_end: u64,
}

/// A large value, where it lies in the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrailValue {
    pub keyspace: u32,
    pointer: ValuePointer,
}

/// What a trail does not have yet, as of one moment. Holds the log files that it has not passed.
#[derive(Debug)]
pub(crate) struct TrailCut {
    handle: Arc<Handle>,
    /// Up to here.
    to: SeqNo,
    /// Everything was handed out up to here.
    at: SeqNo,
    /// Where the log goes on behind that, or in front of there.
    log_position: u64,
    /// Where it goes on behind all of it.
    log_end: u64,
    /// Where the trail ends, if that is up to here.
    end: Option<TrailEnd>,
    reader: RecordReader,
    ahead: Option<TrailCommit>,
    notes: VecDeque<TrailNote>,
    /// Value files that no commit behind all of it points into.
    dead: Vec<u64>,
}

fn not_followed() -> Error {
    Error::invalid("no trail follows the database")
}

impl Db {
    /// What the trail does not have yet. The caller has the lock.
    ///
    /// # Errors
    /// `CommitsNotKept` when some of it is gone; `InvalidArgument` when no trail follows; `Io`,
    /// `Corruption`, `ReadOnly`, `Closed`.
    pub(crate) fn cut_trail(&self) -> Result<TrailCut> {
        let core = self.core();
        // In front of the stamp: what is dead by now is needed by no commit behind it.
        let dead = core.values.dead_files();
        let manifest = core.lock_manifest_for_edit()?;
        let record = manifest.state().trail().copied().ok_or_else(not_followed)?;
        let (end, now) = core.log.mark(core.time.wall_for_stamp()); // G2
        let to = record.end.map_or(now, |end| end.at.min(now));
        let notes = manifest.state().trail_notes().iter().filter(|note| note.seqno <= to);
        let notes = notes.cloned().collect();
        drop(manifest);
        core.sync_to(end)?; // G2, G4
        let mut reader = core.log.reader(end);
        if !core.log.has_all_from(Lsn::from_u64(record.log_position)) {
            return Err(Error::CommitsNotKept { oldest: None });
        }
        reader.skip_files(&mut |first| {
            let stamp = decode_stamp(first.payload).ok_or_else(|| not_a_commit(first))?;
            Ok(stamp <= record.done)
        })?;
        Ok(TrailCut {
            handle: Arc::clone(&self.handle),
            to,
            at: record.done,
            log_position: record.log_position,
            log_end: end.as_u64(),
            end: record.end.filter(|end| end.at <= now),
            reader,
            ahead: None,
            notes,
            dead,
        })
    }

    /// Says that a segment with this token is about to be added. Durable on return (G4).
    ///
    /// # Errors
    /// As an edit of the catalogue.
    pub(crate) fn intend_segment(&self, token: u64, to: SeqNo) -> Result<()> {
        self.change_trail(|record| {
            record.pending = Some(PendingSegment { token, to });
            Ok(())
        })
    }

    /// Says that the segment with this token is in the trail, durably: it has everything up to
    /// `done`, and what follows is in the log behind this place.
    ///
    /// # Errors
    /// As an edit of the catalogue: the segment is still to come for all that the database knows.
    /// `CommitsNotKept` when the trail has ended meanwhile, as it was too far behind.
    pub(crate) fn note_segment(&self, token: u64, done: SeqNo, log_position: u64) -> Result<()> {
        self.change_trail(|record| {
            if record.end.is_some_and(|end| end.at < done) {
                return Err(Error::CommitsNotKept { oldest: None });
            }
            record.log_position = record.log_position.max(log_position);
            record.done = record.done.max(done);
            record.token = token;
            record.pending = None;
            Ok(())
        })
    }

    fn change_trail(&self, change: impl FnOnce(&mut TrailRecord) -> Result<()>) -> Result<()> {
        let core = self.core();
        let mut manifest = core.lock_manifest_for_edit()?;
        let mut record = manifest.state().trail().copied().ok_or_else(not_followed)?;
        change(&mut record)?;
        core.apply_edit(&mut manifest, &Edit::SetTrail(record))?;
        core.hold_log(manifest.state());
        Ok(())
    }

    /// What a segment is sealed with, and the bytes of the keyring that has its key; `None` if the
    /// database is not encrypted.
    ///
    /// # Errors
    /// `Io`, `Closed`.
    pub(crate) fn key_for_trail(
        &self,
        file: &FileIdentity,
    ) -> Result<Option<(Arc<FileKey>, Vec<u8>)>> {
        self.core().key_and_keyring(file)
    }
}

impl TrailCut {
    /// All of it is up to here.
    pub(crate) fn to(&self) -> SeqNo {
        self.to
    }

    /// Where the trail ends, if it ends with this.
    pub(crate) fn trail_end(&self) -> Option<TrailEnd> {
        self.end
    }

    /// What was handed out is everything up to this stamp; what follows is in the log behind this
    /// place.
    pub(crate) fn position(&self) -> (SeqNo, u64) {
        (self.at, self.log_position)
    }

    /// The next that is told; `None` when all was.
    ///
    /// # Errors
    /// `Corruption`, `Io`, `Closed`.
    pub(crate) fn next_item(&mut self) -> Result<Option<TrailItem>> {
        if self.ahead.is_none() {
            self.ahead = self.read()?;
        }
        let is_first =
            |note: &TrailNote| self.ahead.as_ref().is_none_or(|commit| note.seqno < commit.seqno);
        if self.notes.front().is_some_and(is_first)
            && let Some(TrailNote { seqno, edit }) = self.notes.pop_front()
        {
            self.at = seqno;
            return Ok(Some(TrailItem::Edit { seqno, edit: edit.encode() }));
        }
        let Some(commit) = self.ahead.take() else {
            self.at = self.to;
            if self.end.is_none() {
                self.log_position = self.log_end; // Else there may be more that it does not tell.
            }
            return Ok(None);
        };
        (self.at, self.log_position) = (commit.seqno, commit.log_end);
        Ok(Some(TrailItem::Commit(commit)))
    }

    /// Opens a large value of a commit.
    ///
    /// # Errors
    /// `CommitsNotKept` when it is gone; `Corruption`, `Io`, `Closed`.
    pub(crate) fn open_value(&self, value: &TrailValue) -> Result<ValueReader> {
        let values = &self.handle.core.values;
        self.handle.core.check_open()?;
        match values.find(value.pointer.file).filter(|file| file.is_there()) {
            Some(_held) => ValueReader::open(values, &value.pointer),
            None => Err(Error::CommitsNotKept { oldest: None }),
        }
    }

    /// Lets go what was kept for this. All of it must have been handed out, and be durable in the
    /// trail.
    pub(crate) fn let_go(self) {
        let core = &self.handle.core;
        core.values.let_go(&self.dead);
        core.remove_unreferenced_values();
    }

    /// The next commit of the log, if it is up to where this goes.
    fn read(&mut self) -> Result<Option<TrailCommit>> {
        let core = Arc::clone(&self.handle.core);
        loop {
            core.check_open()?; // Else the files may be another opening's.
            let record = self.reader.next_record();
            let record = record.or_else(|error| core.check_open().and(Err(error)))?;
            let Some(record) = record else { return Ok(None) };
            let log_end = record.end.as_u64();
            let damaged = || not_a_commit(&record);
            let seqno = decode_stamp(record.payload).ok_or_else(damaged)?;
            if seqno > self.to {
                return Ok(None);
            }
            if seqno > self.at {
                return whole_commit(record.payload, log_end).map(Some).ok_or_else(damaged);
            }
        }
    }
}

/// A commit out of its record, where its large values have numbers; `None` of what is none.
fn whole_commit(payload: &[u8], log_end: u64) -> Option<TrailCommit> {
    let DecodedCommit { seqno, operations, .. } = decode_record(payload)?;
    let mut record = payload.to_vec();
    let mut values = Vec::new();
    for operation in operations {
        let operation = operation?;
        let Some(found) = operation.pointer() else { continue };
        let pointer = ValuePointer::decode(found)?;
        let number = ValuePointer { file: NO_FILE, offset: values.len() as u64, ..pointer };
        let start = found.as_ptr().addr() - payload.as_ptr().addr();
        record.get_mut(start..start + found.len())?.copy_from_slice(&number.encode());
        values.push(TrailValue { keyspace: operation.keyspace, pointer });
    }
    Some(TrailCommit { seqno, record, values, log_end })
}
