//! The trail that follows the database, as the catalogue has it: how far it is, and the edits that
//! it has not told of yet. Pure, but for the bytes of the record.
//!
//! A trail has the commits of a database in a repository of backups; with the edits of the
//! catalogue among them, it says what the database was at each moment. So while one follows, each
//! edit that changes what there is has a stamp and is noted here, by the edit itself; what a trail
//! cannot tell ends it by the same edit. None can be forgotten: the manifest refuses one without a
//! stamp.
//!
//! Invariant
//! - C9  While a trail follows and has not ended, edits that it tells of have stamps that rise,
//!   each above what the trail is done with; they are noted until it is done with them. How far it
//!   is never goes back. Its end never goes on; but that in front of an ingest is taken back if
//!   that comes to nothing, as long as no segment reaches it, nor one that may be on its way.

use std::fmt;

use crate::base::{Error, Result, SeqNo, varint};
use crate::manifest::fields::{Decoded, Fields, put_optional};
use crate::manifest::options::KeyspaceOptions;
use crate::manifest::state::{CatalogState, Edit, check_forward};

/// Edits that wait to be told, at most: one more ends the trail.
const NOTES_MAX: usize = 4096;

/// A trail that follows the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailRecord {
    /// Its id; not 0.
    pub id: u64,
    /// The id of the repository that it is in; not 0.
    pub repository: u64,
    /// Everything up to this stamp is in it, durably.
    pub done: SeqNo,
    /// Where in the write-ahead log the commits behind that begin, or in front of that.
    pub log_position: u64,
    /// Bytes of the log that are kept for it, at most.
    pub log_max: u64,
    /// The token of its newest segment; 0 as long as it has none.
    pub token: u64,
    /// The segment that is being added, or was when the process ended.
    pub pending: Option<PendingSegment>,
    /// Where and why it ends.
    pub end: Option<TrailEnd>,
}

/// A segment that is there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSegment {
    /// Its token; not 0.
    pub token: u64,
    /// It has nothing above this stamp, and no later commit is below it.
    pub to: SeqNo,
}

/// Where a trail ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailEnd {
    /// What is above this stamp it does not tell.
    pub at: SeqNo,
    /// Why.
    pub reason: TrailEndReason,
}

/// Why a trail ends: moments behind its end are reached from a backup that is made behind it, and
/// the trail that begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailEndReason {
    /// A bulk ingest, which does not go through the log.
    Ingested = 1,
    /// A keyspace was converted, or got other options.
    Converted = 2,
    /// Too many keyspaces came, went or were renamed before it was told of the first of them.
    Crowded = 3,
    /// Commits, or large values of them, were not kept long enough.
    NotKept = 4,
    /// The repository has other segments of it than this database has added: another copy of the
    /// database goes on with it, or the repository is an older one.
    Diverged = 5,
}

impl TrailEndReason {
    const ALL: [TrailEndReason; 5] = [
        TrailEndReason::Ingested,
        TrailEndReason::Converted,
        TrailEndReason::Crowded,
        TrailEndReason::NotKept,
        TrailEndReason::Diverged,
    ];

    /// As files have it.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<TrailEndReason> {
        TrailEndReason::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl fmt::Display for TrailEndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrailEndReason::Ingested => "there was a bulk ingest, which no log has",
            TrailEndReason::Converted => "a keyspace was converted, or got other options",
            TrailEndReason::Crowded => "too many keyspaces came and went before it was told",
            TrailEndReason::NotKept => "it was behind by more than is kept for it",
            TrailEndReason::Diverged => {
                "its repository has other segments of it than this database has added"
            }
        })
    }
}

/// An edit that a trail is to tell of.
#[derive(Clone, Debug, PartialEq)]
pub struct TrailNote {
    /// Commits in front of it have lower stamps, those behind it higher ones.
    pub seqno: SeqNo,
    pub edit: Edit,
}

/// What an edit is to a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// It changes nothing of what a moment of the database is.
    Untold,
    Told,
    EndsTrail,
}

impl TrailRecord {
    /// Whether nothing more will come to it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.done >= end.at)
    }
}

impl CatalogState {
    /// The trail that follows the database, if one does or did.
    #[must_use]
    pub fn trail(&self) -> Option<&TrailRecord> {
        self.trail.as_ref()
    }

    /// The edits that the trail has to tell of, by rising stamps.
    #[must_use]
    pub fn trail_notes(&self) -> &[TrailNote] {
        &self.trail_notes
    }

    /// Whether the edit is to have a stamp ([`Edit::Stamped`]), for the trail to tell of it.
    #[must_use]
    pub fn wants_stamp(&self, edit: &Edit) -> bool {
        let follows = self.trail.is_some_and(|trail| trail.end.is_none());
        follows && self.telling(edit) != Telling::Untold
    }

    fn telling(&self, edit: &Edit) -> Telling {
        match edit {
            Edit::CreateKeyspace(_)
            | Edit::CreateWithArchive { .. }
            | Edit::DropKeyspace { .. }
            | Edit::FinishIndex { .. }
            | Edit::RenameKeyspace { .. } => Telling::Told,
            Edit::ConvertKeyspace { .. } => Telling::EndsTrail,
            Edit::SetOptions { id, options } => {
                let before = self.keyspaces.get(id).map(|record| &record.options);
                match before.is_some_and(|before| differs_in_what_is_kept(before, options)) {
                    true => Telling::Untold,
                    false => Telling::EndsTrail,
                }
            }
            Edit::ForgetDropped { .. }
            | Edit::ReserveStores { .. }
            | Edit::AdvanceLog { .. }
            | Edit::KeepLog { .. }
            | Edit::SetConsumer { .. }
            | Edit::RemoveConsumer { .. }
            | Edit::SetTrail(_)
            | Edit::EndTrail(_)
            | Edit::RemoveTrail
            | Edit::Stamped { .. }
            | Edit::CleanClose(_) => Telling::Untold,
        }
    }

    /// C9.
    pub(super) fn check_trail(&self, next: &TrailRecord) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid(format!("the trail: {what}")));
        if next.id == 0 || next.repository == 0 {
            return refuse("its id or that of its repository is 0");
        }
        if next.pending.is_some_and(|pending| pending.token == 0 || pending.to < next.done) {
            return refuse("a segment that it cannot get");
        }
        if next.end.is_some_and(|end| end.at < next.done) {
            return refuse("it ends in front of what it has");
        }
        match &self.trail {
            None => Ok(()),
            Some(now) if now.id != next.id => match now.end {
                Some(_) => Ok(()),
                None => refuse("another one follows the database"),
            },
            Some(now) => {
                check_forward("stamp of the trail", &now.done, &next.done)?;
                check_forward("place of the trail", &now.log_position, &next.log_position)?;
                let is_taken_back = |end: TrailEnd| {
                    let is_pending = |pending: PendingSegment| pending.to >= end.at;
                    let is_told = now.done >= end.at || now.pending.is_some_and(is_pending);
                    next.end.is_none() && end.reason == TrailEndReason::Ingested && !is_told
                };
                match now.end.is_none_or(|end| next.end == Some(end) || is_taken_back(end)) {
                    true => Ok(()),
                    false => refuse("its end does not change"),
                }
            }
        }
    }

    /// C9.
    pub(super) fn check_trail_end(&self, end: &TrailEnd) -> Result<()> {
        match &self.trail {
            Some(trail) if end.at >= trail.done && trail.end.is_none_or(|now| end.at < now.at) => {
                Ok(())
            }
            _ => Err(Error::invalid("there is no trail that can end there")),
        }
    }

    /// C9.
    pub(super) fn check_stamped(&self, seqno: SeqNo, edit: &Edit) -> Result<()> {
        if !self.wants_stamp(edit) {
            return Err(Error::invalid("an edit with a stamp that no trail tells of"));
        }
        let told = self.trail.map_or(SeqNo::ZERO, |trail| trail.done);
        let last = self.trail_notes.last().map_or(told, |note| note.seqno.max(told));
        if seqno <= last {
            return Err(Error::invalid(format!("an edit with the stamp {seqno} behind {last}")));
        }
        self.check(edit)
    }

    /// The edit without its stamp, which is noted.
    pub(super) fn take_stamp(&mut self, edit: Edit) -> Edit {
        let (seqno, edit) = match edit {
            Edit::Stamped { seqno, edit } => (seqno, edit),
            edit => return edit,
        };
        let end_because = match self.telling(&edit) {
            Telling::EndsTrail => Some(TrailEndReason::Converted),
            _ if self.trail_notes.len() >= NOTES_MAX => Some(TrailEndReason::Crowded),
            _ => None,
        };
        match (end_because, &mut self.trail) {
            (Some(reason), Some(trail)) => {
                // In front of the edit itself.
                let at = SeqNo::from_u64(seqno.as_u64().saturating_sub(1));
                trail.end = Some(TrailEnd { at, reason });
            }
            _ => self.trail_notes.push(TrailNote { seqno, edit: Edit::clone(&edit) }),
        }
        self.last_seqno = self.last_seqno.max(seqno);
        *edit
    }

    pub(super) fn set_trail(&mut self, record: TrailRecord) {
        if self.trail.is_none_or(|now| now.id != record.id) {
            self.trail_notes.clear();
        }
        self.trail_notes.retain(|note| note.seqno > record.done);
        let given = record.pending.map_or(record.done, |pending| pending.to);
        self.last_seqno = self.last_seqno.max(given); // No later stamp is below.
        self.trail = Some(record);
    }

    pub(super) fn end_trail(&mut self, end: TrailEnd) {
        if let Some(trail) = &mut self.trail {
            trail.end = Some(end);
            self.trail_notes.retain(|note| note.seqno <= end.at);
            self.last_seqno = self.last_seqno.max(end.at);
        }
    }

    pub(super) fn remove_trail(&mut self) {
        self.trail = None;
        self.trail_notes.clear();
    }
}

/// Whether options differ at most in what an archive keeps by now, which its own work says.
fn differs_in_what_is_kept(before: &KeyspaceOptions, next: &KeyspaceOptions) -> bool {
    let mut as_before = next.clone();
    as_before.kept_from = before.kept_from;
    as_before.has_ingests = before.has_ingests;
    as_before == *before
}

pub(super) fn put_trail(out: &mut Vec<u8>, record: &TrailRecord) {
    let TrailRecord { id, repository, done, log_position, log_max, token, pending, end } = *record;
    for number in [id, repository, done.as_u64(), log_position, log_max, token] {
        varint::put(out, number);
    }
    put_optional(out, pending, |out, PendingSegment { token, to }| {
        varint::put(out, token);
        varint::put(out, to.as_u64());
    });
    put_optional(out, end, |out, end| put_trail_end(out, &end));
}

pub(super) fn take_trail(fields: &mut Fields<'_>) -> Decoded<TrailRecord> {
    Ok(TrailRecord {
        id: fields.u64("id of the trail")?,
        repository: fields.u64("repository of the trail")?,
        done: SeqNo::from_u64(fields.u64("stamp of the trail")?),
        log_position: fields.u64("place of the trail in the log")?,
        log_max: fields.u64("bytes of the log for the trail")?,
        token: fields.u64("token of the trail")?,
        pending: fields.optional("pending segment", |fields| {
            let token = fields.u64("token of a pending segment")?;
            let to = SeqNo::from_u64(fields.u64("stamp of a pending segment")?);
            Ok(PendingSegment { token, to })
        })?,
        end: fields.optional("end of the trail", take_trail_end)?,
    })
}

pub(super) fn put_trail_end(out: &mut Vec<u8>, end: &TrailEnd) {
    varint::put(out, end.at.as_u64());
    out.push(end.reason.code());
}

pub(super) fn take_trail_end(fields: &mut Fields<'_>) -> Decoded<TrailEnd> {
    let at = SeqNo::from_u64(fields.u64("stamp of the trail's end")?);
    match TrailEndReason::from_code(fields.byte("reason of the trail's end")?) {
        Some(reason) => Ok(TrailEnd { at, reason }),
        None => fields.malformed("a trail ends for a reason that is not known"),
    }
}
