//! The log as it is written: appends, file changes, release of files.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::seal::{FileKey, SEAL_LEN, id_of};
use crate::storage::{StorageFile, is_shared};

use super::append::RecordWriter;
use super::directory::{PreparedFile, Spare, WalPlace};
use super::header::{FileHeader, Next, Previous};
use super::lsn::Lsn;
use super::prepare::{PrepareOrder, PrepareOutcome};
use super::record::{
    MARK_SIZE, PAYLOAD_LENGTH_MAX, RecordHeader, RecordKind, capacity_for, file_tag, record_size,
};
use super::sync::{SyncTicket, UnsyncedFile, Watermark};

/// Where an appended record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub start: Lsn,
    /// The record is durable when the log is durable up to here.
    pub end: Lsn,
}

/// Counts for `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Bytes of records appended since open, marks included.
    pub bytes_appended: u64,
    /// Bytes of zeros written ahead since open.
    pub zero_bytes: u64,
    /// Bytes of the log that are not released yet.
    pub live_bytes: u64,
    /// Files of the log.
    pub file_count: usize,
    /// Files kept to be overwritten, and the one that is ready for use.
    pub spare_count: usize,
    /// Files that recovery does not need, kept to be read.
    pub kept_count: usize,
    /// Bytes that these take on disk.
    pub kept_bytes: u64,
    /// Bytes that all files take on disk.
    pub disk_bytes: u64,
    /// Syncs since open.
    pub sync_count: u64,
}

/// Whether a file's header is known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// It was synced when the file was made.
    Durable,
    /// It is durable when the log is durable past the file's start.
    WithRecords,
}

/// A file of the log.
#[derive(Debug)]
pub(super) struct LiveFile {
    pub header: FileHeader,
    pub header_state: HeaderState,
    pub file: Arc<dyn StorageFile>,
    pub path: Arc<Path>,
    pub tag: u64,
    /// What payloads are sealed with.
    pub key: Option<Arc<FileKey>>,
    /// All blocks up to here were written, or may have been, and want no zeros.
    pub written_up_to: u64,
    /// Shared with those who read the file, which must not be overwritten then.
    pub readers: Arc<()>,
    /// Whether it may be used again, once nothing needs it.
    pub reuse: Reuse,
    /// Whether its note (W12) stays as it is.
    pub is_note_final: bool,
    /// Behind the end of a commit at this place, or further on, no commit is in front of the file,
    /// however many marks there are.
    pub commits_before: Lsn,
}

/// Whether a file may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    Possible,
    /// It was opened to be read: it had a name elsewhere (W10).
    Never,
}

impl LiveFile {
    pub(super) fn new(
        header: FileHeader,
        prepared: PreparedFile,
        state: HeaderState,
        key: Option<Arc<FileKey>>,
    ) -> LiveFile {
        LiveFile {
            header,
            header_state: state,
            file: prepared.file,
            path: prepared.path.into(),
            tag: file_tag(header.database_id, header.number),
            key,
            written_up_to: prepared.blocks.written_up_to(prepared.capacity),
            readers: Arc::default(),
            reuse: Reuse::Possible,
            is_note_final: false,
            // For all that is known: no commit is as short as a mark.
            commits_before: header.start.minus(MARK_SIZE),
        }
    }

    /// W12: notes where the log goes on behind this file, and whether anything there is durable.
    pub(super) fn write_next(&self, next: &FileHeader, is_durable: bool) -> io::Result<()> {
        let FileHeader { number, start, capacity, .. } = *next;
        let note = Next { number, start, capacity, is_durable }.encode(self.tag);
        self.file.write_all_at(&note, Next::OFFSET)
    }

    fn header_is_durable(&self, durable_up_to: Lsn) -> bool {
        self.header_state == HeaderState::Durable || durable_up_to > self.header.start
    }
}

/// The log, open for appending. One thread at a time, under the caller's lock; only
/// [`SyncTicket::run`] and [`PrepareOrder::run`] work without it.
#[derive(Debug)]
pub struct Wal {
    // Constant after open.
    pub(super) place: WalPlace,
    pub(super) watermark: Arc<Watermark>,

    // The log.
    /// Lowest first; the last one is appended to.
    pub(super) files: VecDeque<LiveFile>,
    /// The files in front of them that are kept to be read, lowest first.
    pub(super) history: VecDeque<LiveFile>,
    pub(super) end: Lsn,
    /// The end of the last record that is not a mark, or the start of a file behind that: what
    /// there is to be made durable.
    pub(super) commits_end: Lsn,
    /// Where the last commit ends, whatever is behind that; or further on, while none was appended.
    pub(super) last_commit_end: Lsn,
    /// How far the last header or record says that the log was durable.
    pub(super) last_claim: Lsn,
    pub(super) released_up_to: Lsn,
    pub(super) bytes_appended: u64,
    pub(super) zero_bytes: u64,

    // Files to come.
    pub(super) next_number: u64,
    pub(super) next: Option<PreparedFile>,
    pub(super) order_is_out: bool,
    pub(super) spares: Vec<Spare>,

    pub(super) record_writer: RecordWriter,
}

impl Wal {
    /// Appends a record whose payload is `parts` one after the other. On return it has reached
    /// the operating system; a [`SyncTicket`] makes it durable. One system call for records up to
    /// 256 KiB; larger parts are not copied.
    ///
    /// # Errors
    /// [`Error::DiskFull`], and [`Error::Io`] while a file is made ready: nothing has changed, and
    /// the same append may be tried again. [`Error::Io`] for the record itself: the log is
    /// poisoned. [`Error::ReadOnly`] when it was before. [`Error::InvalidArgument`] for more than
    /// 2^48 bytes.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Appended> {
        self.watermark.check()?;
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        // All files that are begun are sealed, or none.
        let seal_len = if self.current().key.is_some() { SEAL_LEN } else { 0 };
        let length = length + seal_len as u64;
        if length > PAYLOAD_LENGTH_MAX {
            return Err(Error::invalid(format!("a log record of {length} bytes is too long")));
        }
        let size = record_size(length);
        if self.room() < size {
            self.switch_file(size)?;
        }
        let start = self.end;
        self.write_record(RecordKind::Commit, length, parts)?;
        self.commits_end = self.end;
        self.last_commit_end = self.end;
        Ok(Appended { start, end: self.end })
    }

    /// Up to where the log is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.watermark.durable_lsn()
    }

    /// Where the next record will start.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// What to sync to make durable all that has been appended so far. Cheap; the work is done by
    /// [`SyncTicket::run`].
    pub fn sync_target(&self) -> SyncTicket {
        let durable = self.durable_lsn();
        let nothing_to_do = durable >= self.commits_end;
        let unsynced = self.files.iter().enumerate().filter(|(index, file)| {
            // W12: the note in a file is durable with the first record of the next one.
            let is_current = index + 1 == self.files.len();
            let end = self.end_of(*index);
            let is_unsynced = end > durable || (end == durable && !is_current);
            !nothing_to_do && (is_unsynced || !file.header_is_durable(durable))
        });
        let files = unsynced.map(|(_, file)| UnsyncedFile {
            file: Arc::clone(&file.file),
            path: Arc::clone(&file.path),
        });
        SyncTicket {
            watermark: Arc::clone(&self.watermark),
            files: files.collect(),
            target: self.commits_end,
        }
    }

    /// To be called after [`SyncTicket::run`] returned `synced`. When nothing has been appended
    /// since, this leaves a mark in the log that says so, not synced itself: it lets damage to
    /// the last durable record be told from a torn tail. So it does when something has been that
    /// does not say it and somebody reads beside, who would not learn of it until more comes.
    pub fn complete_sync(&mut self, synced: Lsn) {
        let is_told = synced <= self.last_claim;
        let mark_is_due = !is_told && (synced == self.commits_end || self.has_room_and_reader());
        if mark_is_due && self.watermark.check().is_ok() {
            // A failure is no failure of the sync. If it poisons the log, the next append says so.
            let _ = self.write_record(RecordKind::Mark, 0, &[]);
        }
        self.note_what_is_durable();
        self.release_files();
    }

    /// W12: once anything in the newest file is durable, the file in front of it says so; not
    /// synced itself, as marks are not.
    pub(super) fn note_what_is_durable(&mut self) {
        let durable = self.durable_lsn();
        let mut from_newest = self.files.iter_mut().rev();
        let Some((newest, previous)) = from_newest.next().zip(from_newest.next()) else { return };
        let is_due = !previous.is_note_final && previous.reuse == Reuse::Possible;
        if is_due && durable > newest.header.start {
            previous.is_note_final = true;
            let _ = previous.write_next(&newest.header, true); // As in `switch_file`.
        }
    }

    /// Declares that recovery needs nothing before `up_to` any more: files wholly before it are
    /// kept to be read, for reuse, or removed, as soon as the file after them is durable. The
    /// caller must have made durable the log up to there, and that the next [`super::replay`] will
    /// start at `up_to` or later.
    pub fn release(&mut self, up_to: Lsn) {
        self.released_up_to = self.released_up_to.max(up_to);
        self.release_files();
    }

    /// Whether [`Self::order_next`] would answer with an order.
    pub fn wants_next(&self) -> bool {
        let half = self.place.options.file_capacity / 2;
        self.next.is_none() && !self.order_is_out && self.room() <= half
    }

    /// An order to make the next file ready, when there is none and the current file is more than
    /// half full. [`PrepareOrder::run`] works without the lock; its outcome goes to
    /// [`Self::finish_order`]. If nobody does this, the append that needs the file makes it.
    pub fn order_next(&mut self) -> Option<PrepareOrder> {
        if !self.wants_next() {
            return None;
        }
        self.order_is_out = true;
        let number = self.take_number();
        Some(PrepareOrder { place: self.place.clone(), number, spare: self.spares.pop() })
    }

    /// Takes the file that was made ready.
    ///
    /// # Errors
    /// Why it could not be made. The log is unchanged and not poisoned.
    pub fn finish_order(&mut self, outcome: PrepareOutcome) -> Result<()> {
        self.order_is_out = false;
        let prepared = outcome.prepared?;
        // W3: numbers rise along the log. The appender may have gone ahead meanwhile.
        if prepared.number > self.current().header.number {
            self.next = Some(prepared);
        } else {
            self.keep_or_remove(prepared.into());
        }
        Ok(())
    }

    /// Goes on in a new file, which takes none that was used before; files that are kept to be used
    /// again go. On return the file and its header are durable. Returns where the last commit
    /// ended, and where the next one will start. Under the lock, and while no file is being made
    /// ready.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn begin_new_file(&mut self) -> Result<(Lsn, Lsn)> {
        self.watermark.check()?;
        let end = self.commits_end;
        self.give_up_spares();
        if self.end == self.current().header.start {
            self.write_record(RecordKind::Mark, 0, &[])?; // W3. Room for one is always kept.
        }
        self.switch_file(0)?;
        // With the note of the new one (W12) the old one again.
        for file in self.files.range(self.files.len() - 2..) {
            if let Err(source) = file.file.sync() {
                let error = Error::io("sync", &file.path, source);
                self.watermark.poison(error.to_string());
                return Err(error);
            }
        }
        let current = self.files.back_mut().expect("a log has a current file");
        current.header_state = HeaderState::Durable;
        // There is no commit between the two; the log may end here, and be needed from here on.
        self.commits_end = self.end;
        self.release_files();
        Ok((end, self.end))
    }

    /// The number of the data key that the file which is appended to is sealed with, or 0.
    pub fn key_id(&self) -> u16 {
        self.current().header.key
    }

    /// Counts.
    pub fn stats(&self) -> WalStats {
        let start = self.files[0].header.start.max(self.released_up_to.min(self.end));
        let live: u64 = self.files.iter().map(|file| file.header.capacity).sum();
        let kept = self.kept_bytes();
        let spare: u64 = self.spares.iter().map(|spare| spare.capacity).sum();
        WalStats {
            bytes_appended: self.bytes_appended,
            zero_bytes: self.zero_bytes,
            live_bytes: self.end.bytes_since(start),
            file_count: self.files.len(),
            spare_count: self.spares.len() + usize::from(self.next.is_some()),
            kept_count: self.history.len(),
            kept_bytes: kept,
            disk_bytes: live + kept + spare + self.next.as_ref().map_or(0, |next| next.capacity),
            sync_count: self.watermark.sync_count(),
        }
    }

    /// Whether there is room for two marks, as that for the last one has to stay, and somebody who
    /// reads beside.
    fn has_room_and_reader(&self) -> bool {
        self.room() >= MARK_SIZE && self.place.storage.followers().is_some()
    }

    fn current(&self) -> &LiveFile {
        self.files.back().expect("a log has a current file")
    }

    /// Bytes that a record may take in the current file; room for a mark behind it is kept.
    fn room(&self) -> u64 {
        self.current().header.limit().bytes_since(self.end).saturating_sub(MARK_SIZE)
    }

    /// Where the records of the file at `index` end.
    fn end_of(&self, index: usize) -> Lsn {
        self.files.get(index + 1).map_or(self.end, |next| next.header.start)
    }

    /// Writes a record to the current file, where there is room for it.
    pub(super) fn write_record(
        &mut self,
        kind: RecordKind,
        length: u64,
        parts: &[&[u8]],
    ) -> Result<()> {
        let durable_up_to = match is_seeded(Bug::LogClaimsTooMuch) {
            true => self.end,
            false => self.durable_lsn(),
        };
        let header = RecordHeader { lsn: self.end, durable_up_to, length, kind };
        let current = self.files.back().expect("a log has a current file");
        let offset = current.header.offset_of(self.end);
        let (file, tag) = (&*current.file, current.tag);
        let written = match current.key.as_deref().filter(|_| kind == RecordKind::Commit) {
            None => self.record_writer.write(file, tag, offset, &header, parts),
            Some(key) => self.record_writer.write_sealed((file, key), tag, offset, &header, parts),
        };
        if let Err(source) = written
            && !is_seeded(Bug::LogWriteErrorSwallowed)
        {
            let error = Error::io("write", &current.path, source);
            // Without room, the same place is written again later. Until then nothing valid may
            // be there, also if only padding was missing.
            let no_room = matches!(error, Error::DiskFull { .. });
            if no_room && self.record_writer.erase(&*current.file, offset).is_ok() {
                return Err(error);
            }
            self.watermark.poison(error.to_string());
            // `DiskFull` would say that nothing has changed.
            return if no_room { self.watermark.check() } else { Err(error) };
        }
        self.end = header.end();
        self.last_claim = durable_up_to;
        self.bytes_appended += header.size();
        Ok(())
    }

    /// Goes on in a new file that has room for a record of `size` bytes. Nothing is synced: the
    /// next ticket covers the old file and the new one, in this order.
    fn switch_file(&mut self, size: u64) -> Result<()> {
        let capacity = capacity_for(size, self.place.options.file_capacity);
        let prepared = self.take_prepared(capacity)?;
        let from = self.current().header;
        let key = self.place.key_for_new(prepared.number)?;
        let header = FileHeader {
            database_id: self.place.database_id,
            number: prepared.number,
            start: self.end,
            capacity,
            previous: Some(Previous { number: from.number, start: from.start }),
            durable_up_to: self.durable_lsn(),
            key: id_of(key.as_deref()),
        };
        if let Err(source) = write_header(&header, &*prepared.file) {
            let error = Error::io("write", &prepared.path, source);
            // Whatever is left of it is an empty file that says nothing new.
            let _ = self.place.remove(&prepared.path);
            return Err(error);
        }
        // Without it, less damage is told: no reason not to go on.
        let _ = self.current().write_next(&header, false);
        self.last_claim = header.durable_up_to;
        let file = LiveFile::new(header, prepared, HeaderState::WithRecords, key);
        self.files.push_back(LiveFile { commits_before: self.last_commit_end, ..file });
        Ok(())
    }

    fn take_prepared(&mut self, capacity: u64) -> Result<PreparedFile> {
        match self.next.take() {
            Some(next) if next.capacity == capacity => return Ok(next),
            // W3: a file of its own size overtakes it, so its number cannot be used any more.
            Some(next) => self.keep_or_remove(next.into()),
            None => {}
        }
        let number = self.take_number();
        let fits = self.spares.iter().position(|spare| spare.capacity == capacity);
        let spare = fits.map(|index| self.spares.swap_remove(index));
        self.place.prepare(number, capacity, spare)
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    fn release_files(&mut self) {
        if self.watermark.check().is_err() {
            return; // W7: a log that has failed is left as it is.
        }
        let durable = self.durable_lsn();
        while let Some(second) = self.files.get(1) {
            // W7: there is always a file with a durable header at or before what is required.
            let not_needed = second.header.start <= self.released_up_to;
            if !not_needed || !second.header_is_durable(durable) {
                break;
            }
            self.history.extend(self.files.pop_front());
        }
        self.trim_history();
    }

    /// From here on, files are kept to be read, whatever their bytes; [`Lsn::MAX`] for none. Those
    /// in front that are too many go.
    pub fn hold_from(&mut self, from: Lsn) {
        self.place.options.held_from = from;
        self.trim_history();
    }

    /// Whether all commits behind this place, where a commit ends, are kept. Between that and the
    /// first file there may be marks: one when a sync is done and nothing comes behind it, another
    /// when what came meanwhile is synced, or when the log goes on in a new file without a commit.
    pub fn has_all_from(&self, place: Lsn) -> bool {
        self.history.front().unwrap_or(&self.files[0]).commits_before <= place
    }

    /// Bytes of the largest file that is part of the log, or kept to be read.
    pub fn largest_file(&self) -> u64 {
        let files = self.history.iter().chain(&self.files);
        files.map(|file| file.header.capacity).max().unwrap_or(0)
    }

    /// W9: gives up the oldest of the files that are kept to be read, while there are too many,
    /// nobody reads it and none of its records is held.
    pub(super) fn trim_history(&mut self) {
        let mut kept = self.kept_bytes();
        while kept > self.place.options.kept_bytes_max
            && self.first_ends_at() <= self.place.options.held_from
            && let Some(first) =
                self.history.pop_front_if(|first| Arc::strong_count(&first.readers) == 1)
        {
            let capacity = first.header.capacity;
            kept -= capacity;
            let path = first.path.to_path_buf();
            match first.reuse {
                Reuse::Possible => self.keep_or_remove(Spare { path, file: first.file, capacity }),
                Reuse::Never => {
                    let _taken_up_by_recovery = self.place.remove(&path);
                }
            }
        }
    }

    /// Where the file behind the first of those begins that are kept to be read.
    fn first_ends_at(&self) -> Lsn {
        self.history.get(1).unwrap_or(&self.files[0]).header.start
    }

    fn kept_bytes(&self) -> u64 {
        self.history.iter().map(|file| file.header.capacity).sum()
    }

    /// Keeps a file that nothing needs for reuse, if it has the usual size and few are kept; but
    /// not one that has a name elsewhere (W10), nor while anybody reads beside (W11).
    pub(super) fn keep_or_remove(&mut self, spare: Spare) {
        let usual = spare.capacity == self.place.options.file_capacity;
        let few = self.spares.len() < self.place.options.spare_files_max;
        let is_read = || is_shared(&*spare.file) || self.place.storage.followers().is_some();
        if usual && few && !is_read() {
            self.spares.push(spare);
        } else {
            // One that stays is taken up by the next recovery.
            let _ = self.place.remove(&spare.path);
        }
    }

    /// Gives the files up that nothing needs: those that are kept to be used again, and one that is
    /// ready for use.
    pub fn give_up_spares(&mut self) {
        if self.watermark.check().is_err() {
            return; // W7: a log that has failed is left as it is.
        }
        let next = self.next.take().map(Spare::from);
        for spare in self.spares.drain(..).chain(next) {
            let _taken_up_by_recovery = self.place.remove(&spare.path);
        }
    }
}

/// Writes the header block.
pub(super) fn write_header(header: &FileHeader, file: &dyn StorageFile) -> io::Result<()> {
    file.write_all_at(&header.encode(), 0)
}

impl From<PreparedFile> for Spare {
    fn from(prepared: PreparedFile) -> Spare {
        Spare { path: prepared.path, file: prepared.file, capacity: prepared.capacity }
    }
}
