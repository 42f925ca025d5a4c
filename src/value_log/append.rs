//! Appending: the values of commits go to one file, at its end; whoever writes for long, as streams
//! and cleaning do, has a file of its own.
//!
//! A place is reserved under the lock and written without it. Nothing is durable before
//! [`ValueLog::sync`], which who makes the commit log durable calls in front of that (V2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::{FILE_NUMBERS, Presence, ValueFile};
use super::format::{FILE_HEADER_LEN, Form, encode_file_header};
use super::staged::StagedValues;
use super::{SYNCING, UNSYNCED, ValueLog, lock};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::seal::id_of;
use crate::storage::{OpenMode, StorageFile};

/// Files between two writers that are kept.
const IDLE_COUNT_MAX: usize = 4;

/// The system is asked to begin with what was written when it is so much: a disk does few large
/// writes in a fraction of the time of many small ones ..
const WRITEBACK_LEN: u64 = 256 << 10;
/// .. and in whole pages, so that it writes none twice.
const PAGE_LEN: u64 = 4 << 10;

/// A file that is written to.
#[derive(Clone, Debug)]
pub(super) struct WritableFile {
    pub file: Arc<ValueFile>,
    pub handle: Arc<dyn StorageFile>,
    /// The system was asked to begin with what is in front of here. Shared by all that write to the
    /// file: as long as it is there, somebody does.
    begun: Arc<AtomicU64>,
}

impl WritableFile {
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let wrote = self.handle.write_all_at(bytes, offset);
        wrote.map_err(|error| Error::io("write", &self.file.path, error))
    }

    /// Has the system begin with what was written up to `end`, if that is worth it.
    pub(super) fn begin_writeback(&self, end: u64) {
        let order = Ordering::Relaxed; // Only a hint.
        let (begun, whole) = (self.begun.load(order), end / PAGE_LEN * PAGE_LEN);
        if whole < begun.saturating_add(WRITEBACK_LEN) {
            return;
        }
        if self.begun.compare_exchange(begun, whole, order, order).is_ok() {
            self.handle.begin_writeback(begun, whole - begun);
        }
    }
}

/// What commits append to.
#[derive(Debug)]
pub(super) struct Head {
    current: Option<WritableFile>,
    /// Where the next record goes.
    end: u64,
    /// The number of the next file.
    next_number: u64,
    /// Since opening.
    has_created_files: bool,
}

impl Head {
    pub(super) fn behind(newest: u64) -> Head {
        Head { current: None, end: 0, next_number: newest + 1, has_created_files: false }
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.file.number())
    }

    pub(super) fn newest_number(&self) -> u64 {
        self.next_number - 1
    }

    /// A number that something refers to is not given to a new file.
    pub(super) fn skip(&mut self, number: u64) {
        self.next_number = self.next_number.max(number.saturating_add(1));
    }
}

/// A file with one writer.
#[derive(Debug)]
pub(super) struct OwnFile {
    pub writable: WritableFile,
    /// Where the next record goes.
    pub end: u64,
}

impl OwnFile {
    pub(super) fn number(&self) -> u64 {
        self.writable.file.number()
    }

    /// The same, to go back to: see [`ValueLog::cut_back`].
    pub(super) fn as_it_is(&self) -> OwnFile {
        OwnFile { writable: self.writable.clone(), end: self.end }
    }
}

/// What is written and not known to be durable.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    files: Vec<WritableFile>,
    bytes: u64,
    /// Whether a file was created.
    directory: bool,
    /// Whether the directory may have been: nobody knows of one that is there when the database is
    /// opened.
    parent: bool,
}

/// Where staged values were written.
#[derive(Clone, Debug)]
pub struct Appended {
    /// The file, held.
    pub file: Arc<ValueFile>,
    /// Where the first record starts.
    pub offset: u64,
}

impl ValueLog {
    /// Writes staged values one behind the other. They are durable after the next [`Self::sync`].
    ///
    /// # Errors
    /// `DiskFull`, `Io`: nothing refers to what was written. `ReadOnly` when no file can be made
    /// any more: their numbers have 40 bits. `Closed`.
    pub fn append(&self, staged: &mut StagedValues) -> Result<Appended> {
        let _not_closed_meanwhile = self.writing()?;
        let form = self.place.form();
        let size = match form {
            Form::Plain => staged.size() as u64,
            Form::Sealed => staged.sealed_size(),
        };
        let (writable, offset) = self.reserve(size)?;
        let sealed;
        let records = match form {
            Form::Plain => staged.seal(writable.file.tag, offset),
            Form::Sealed => {
                sealed = staged.sealed_for(writable.file.place_at(offset));
                &sealed[..]
            }
        };
        if let Err(error) = writable.write(records, offset) {
            self.give_back(&writable, offset, size, &error);
            return Err(error);
        }
        writable.begin_writeback(offset + size);
        writable.file.note_size(offset + size);
        self.note_written(&writable, size);
        Ok(Appended { file: writable.file, offset })
    }

    /// Makes everything that was appended before the call durable, the names of files too.
    ///
    /// # Errors
    /// `Io`: what was written may be lost. `ReadOnly` from then on (V5).
    #[inline]
    pub fn sync(&self) -> Result<()> {
        // `UNSYNCED` is set behind what is to be synced, and `SYNCING` with what takes it back: who
        // sees neither misses nothing of before.
        match self.sync_state.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => self.sync_in_turn(),
        }
    }

    #[cold]
    fn sync_in_turn(&self) -> Result<()> {
        let mut turn = lock(&self.syncing);
        if let Some(why) = &*turn {
            return Err(Error::ReadOnly { why: why.clone() });
        }
        if self.sync_state.swap(SYNCING, Ordering::AcqRel) & UNSYNCED != 0 {
            let synced = self.sync_files();
            *turn = synced.as_ref().err().map(ToString::to_string);
            synced?; // It stays `SYNCING`, so that everybody comes here and is told.
        }
        self.sync_state.fetch_and(!SYNCING, Ordering::AcqRel);
        Ok(())
    }

    fn sync_files(&self) -> Result<()> {
        let unsynced = std::mem::take(&mut *lock(&self.unsynced));
        let Unsynced { files, directory, parent, .. } = unsynced;
        let io = |path, source| Error::Io { action: "sync", path, source };
        if parent {
            let parent = self.place.parent();
            self.place.storage.sync_dir(parent).map_err(|error| io(parent.to_owned(), error))?;
        }
        if directory && !is_seeded(Bug::ValueNamesNotSynced) {
            let dir = &self.place.dir;
            self.place.storage.sync_dir(dir).map_err(|error| io(dir.clone(), error))?;
        }
        for WritableFile { file, handle, .. } in &files {
            handle.sync().map_err(|error| io(file.path.clone(), error))?;
            self.sync_count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Bytes written since opening.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Bytes written and not synced.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        lock(&self.unsynced).bytes
    }

    /// Syncs of value files since opening.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        self.sync_count.load(Ordering::Relaxed)
    }

    /// A place for `size` bytes in the file that commits append to.
    fn reserve(&self, size: u64) -> Result<(WritableFile, u64)> {
        let mut head = lock(&self.head);
        if head.current.is_none() || head.end >= self.file_size {
            head.current = None; // Whoever needs it holds it.
            head.current = Some(self.create_file(&mut head)?);
            head.end = FILE_HEADER_LEN;
        }
        let offset = head.end;
        head.end += size;
        Ok((head.current.clone().expect("it was made above"), offset))
    }

    /// After a write that failed: want of room leaves the file as it is; of any other failure
    /// nobody knows what it has done to the file.
    fn give_back(&self, writable: &WritableFile, offset: u64, size: u64, error: &Error) {
        let mut head = lock(&self.head);
        if head.number() != Some(writable.file.number()) {
            return;
        }
        match error {
            Error::DiskFull { .. } if head.end == offset + size => head.end = offset,
            Error::DiskFull { .. } => {}
            _ => head.current = None,
        }
    }

    /// Makes the next file, with its header. Its name is durable after the next sync.
    fn create_file(&self, head: &mut Head) -> Result<WritableFile> {
        let number = head.next_number;
        if !FILE_NUMBERS.contains(&number) {
            let why = format!("there are no numbers left for value files: the last is {number}");
            return Err(Error::ReadOnly { why });
        }
        head.next_number += 1; // Never used twice, even when the creation fails.
        self.make_directory()?;
        let path = self.place.path_of(number);
        let opened = self.place.storage.open(&path, OpenMode::CreateNew);
        let handle = opened.map_err(|error| Error::io("create", &path, error))?;
        let key = self.place.key_for_new(number);
        let header = encode_file_header(self.place.database, number, id_of(key.as_deref()));
        if let Err(error) = handle.write_all_at(&header, 0) {
            let _orphan_if_it_fails = self.place.storage.remove_file(&path);
            return Err(Error::io("write", &path, error));
        }
        let mut unsynced = lock(&self.unsynced);
        unsynced.directory = true;
        unsynced.parent |= !head.has_created_files;
        head.has_created_files = true;
        drop(unsynced);
        let file = ValueFile::new(&self.place, number, FILE_HEADER_LEN, Presence::Present);
        file.note_key(key);
        self.register(&file);
        let begun = Arc::default();
        file.note_writers(Arc::downgrade(&begun));
        Ok(WritableFile { file, handle, begun })
    }

    fn make_directory(&self) -> Result<()> {
        let (storage, dir) = (&self.place.storage, &self.place.dir);
        let io = |action| move |error| Error::io(action, dir, error);
        if storage.exists(dir).map_err(io("look for"))? {
            return Ok(());
        }
        storage.create_dir_all(dir).map_err(io("create"))
    }

    /// A file for one writer, until it is given back or dropped.
    pub(super) fn take_own_file(&self) -> Result<OwnFile> {
        if let Some(idle) = lock(&self.idle).pop() {
            return Ok(idle);
        }
        let writable = self.create_file(&mut lock(&self.head))?;
        Ok(OwnFile { writable, end: FILE_HEADER_LEN })
    }

    /// Keeps the file for the next writer, unless it is full. One that is not given back is not
    /// written to again.
    pub(super) fn give_back_own_file(&self, own: OwnFile) {
        let mut idle = lock(&self.idle);
        if own.end < self.file_size && idle.len() < IDLE_COUNT_MAX {
            idle.push(own);
        }
    }

    /// Has a file be as it was when its writer had it like this: nobody refers to what was written
    /// behind that, whose room is given back. It is kept for the next writer.
    pub(super) fn cut_back(&self, before: OwnFile) {
        let Ok(_not_closed_meanwhile) = self.writing() else { return };
        // First: whoever copies the file meanwhile misses nothing of what is in front of that.
        let size = before.writable.file.size();
        before.writable.file.note_cut(before.end);
        // Where that fails, the garbage stays for as long as the file does.
        if before.writable.handle.set_len(before.end).is_err() {
            before.writable.file.note_size(size);
        } else {
            before.writable.begun.fetch_min(before.end / PAGE_LEN * PAGE_LEN, Ordering::Relaxed);
            self.give_back_own_file(before);
        }
    }

    /// Has whatever is written from now on go to new files, but for who has one to itself.
    pub fn close_files(&self) {
        self.close_larger(0);
    }

    /// As [`Self::close_files`], in place of files that have so many bytes by now.
    pub fn close_larger(&self, size: u64) {
        let mut head = lock(&self.head);
        let is_large = head.end >= size;
        let closed = head.current.take_if(|_| is_large);
        drop(head);
        let mut idle = lock(&self.idle);
        let (closed_idle, left) = std::mem::take(&mut *idle)
            .into_iter()
            .partition::<Vec<OwnFile>, _>(|own| own.end >= size);
        *idle = left;
        drop(idle);
        drop((closed, closed_idle)); // Whoever needs them holds them.
    }

    /// Says that `size` bytes of the file are written whole and to be synced.
    pub(super) fn note_written(&self, writable: &WritableFile, size: u64) {
        self.bytes_written.fetch_add(size, Ordering::Relaxed);
        let mut unsynced = lock(&self.unsynced);
        unsynced.bytes += size;
        let number = writable.file.number();
        if !unsynced.files.iter().any(|other| other.file.number() == number) {
            unsynced.files.push(writable.clone());
        }
        self.sync_state.fetch_or(UNSYNCED, Ordering::Release);
    }
}
