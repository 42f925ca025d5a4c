//! Appending: the values of commits go to one file, at its end; whoever writes for long, as streams
//! and cleaning do, has a file of its own. Values of keyspaces that are sealed with different keys
//! go to different files.
//!
//! A place is reserved under the lock and written without it. Nothing is durable before
//! [`ValueLog::sync`], which who makes the commit log durable calls in front of that (V2).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::{FILE_NUMBERS, Presence, ValueFile};
use super::format::{FILE_HEADER_LEN, Form, encode_file_header};
use super::staged::StagedValues;
use super::{SYNCING, UNSYNCED, ValueLog, lock};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{Error, Result};
use crate::seal::id_of;
use crate::storage::{OpenMode, StorageFile};

/// Files between two writers that are kept, of those that are sealed with one key ..
const IDLE_COUNT_MAX: usize = 4;
/// .. and in all: keyspaces with keys of their own have files of their own.
const IDLE_COUNT_MAX_OF_ALL: usize = 64;

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
    /// One for each data key that values are sealed with, by its number; 0 for none.
    current: BTreeMap<u16, OwnFile>,
    /// The number of the next file.
    next_number: u64,
    /// Since opening.
    has_created_files: bool,
}

impl Head {
    pub(super) fn behind(newest: u64) -> Head {
        let (current, has_created_files) = (BTreeMap::new(), false);
        Head { current, next_number: newest + 1, has_created_files }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.current.values().map(OwnFile::number)
    }

    pub(super) fn newest_number(&self) -> u64 {
        self.next_number - 1
    }

    /// A number that something refers to is not given to a new file.
    pub(super) fn skip(&mut self, number: u64) {
        self.next_number = self.next_number.max(number.saturating_add(1));
    }
}

/// A file with one writer, or that which commits append to.
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

    /// The number of the data key that it is sealed with, or 0.
    pub(super) fn key_id(&self) -> u16 {
        id_of(self.writable.file.key())
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
    /// Writes staged values one behind the other; they are of keyspaces with one data key
    /// ([`StagedValues::parted`]). They are durable after the next [`Self::sync`].
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
        let (writable, offset) = self.reserve(staged.first_keyspace(), size)?;
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
            // Should it panic: what it was to sync is not on the list any more.
            *turn = Some("a sync of values did not come to its end".to_owned());
            let synced = self.sync_files();
            *turn = synced.as_ref().err().map(ToString::to_string);
            synced?; // It stays `SYNCING`, so that everybody comes here and is told.
        }
        self.sync_state.fetch_and(!SYNCING, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a sync has failed: of no file is it known then that all of it is durable (V5).
    #[must_use]
    pub fn has_failed(&self) -> bool {
        lock(&self.syncing).is_some()
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

    /// A place for `size` bytes in the file that commits append values of this keyspace to.
    fn reserve(&self, keyspace: u32, size: u64) -> Result<(WritableFile, u64)> {
        let mut head = lock(&self.head);
        // Under the lock: who closes files, as there is another key, closes those with this one.
        let key = self.key_of(keyspace);
        if head.current.get(&key).is_none_or(|current| current.end >= self.file_size) {
            head.current.remove(&key); // Whoever needs it holds it.
            let writable = self.create_file(&mut head, keyspace)?;
            let end = FILE_HEADER_LEN + size;
            let made = OwnFile { writable: writable.clone(), end };
            // There may be another key by now.
            head.current.insert(made.key_id(), made);
            return Ok((writable, FILE_HEADER_LEN));
        }
        let current = head.current.get_mut(&key).expect("it was looked for");
        let offset = current.end;
        current.end += size;
        Ok((current.writable.clone(), offset))
    }

    /// The number of the data key that values of a keyspace are sealed with now; 0 for none.
    #[must_use]
    pub fn key_of(&self, keyspace: u32) -> u16 {
        self.place.key_number_for(keyspace)
    }

    /// Whether values of some keyspaces are sealed with another key than others'.
    #[must_use]
    pub fn has_own_keys(&self) -> bool {
        self.place.storage.keyring().is_some_and(|keyring| keyring.has_owners())
    }

    /// After a write that failed: want of room leaves the file as it is; of any other failure
    /// nobody knows what it has done to the file.
    fn give_back(&self, writable: &WritableFile, offset: u64, size: u64, error: &Error) {
        let mut head = lock(&self.head);
        let number = writable.file.number();
        let mut current = head.current.iter_mut();
        let Some((key, current)) = current.find(|(_, own)| own.number() == number) else { return };
        let key = *key;
        match error {
            Error::DiskFull { .. } if current.end == offset + size => current.end = offset,
            Error::DiskFull { .. } => {}
            _ => drop(head.current.remove(&key)),
        }
    }

    /// Makes the next file, with its header. Its name is durable after the next sync.
    fn create_file(&self, head: &mut Head, keyspace: u32) -> Result<WritableFile> {
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
        let begun = self.place.key_for_new(number, keyspace).and_then(|key| {
            let header = encode_file_header(self.place.database, number, id_of(key.as_deref()));
            let written = handle.write_all_at(&header, 0);
            written.map(|()| key).map_err(|error| Error::io("write", &path, error))
        });
        let key = begun.inspect_err(|_| {
            let _orphan_if_it_fails = self.place.storage.remove_file(&path);
        })?;
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

    /// A file for one writer of values of a keyspace, until it is given back or dropped.
    pub(super) fn take_own_file(&self, keyspace: u32) -> Result<OwnFile> {
        {
            let mut idle = lock(&self.idle);
            let key = self.key_of(keyspace);
            if let Some(index) = idle.iter().rposition(|own| own.key_id() == key) {
                return Ok(idle.remove(index));
            }
        }
        let writable = self.create_file(&mut lock(&self.head), keyspace)?;
        Ok(OwnFile { writable, end: FILE_HEADER_LEN })
    }

    /// Keeps the file for the next writer, unless it is full, or of a keyspace that was dropped. In
    /// its place that goes which was given back first. One that is not kept is not written to
    /// again.
    pub(super) fn give_back_own_file(&self, own: OwnFile) {
        let key = own.key_id();
        if own.end >= self.file_size || !self.place.is_for_new(key) {
            return;
        }
        let mut idle = lock(&self.idle);
        let of_key = idle.iter().filter(|other| other.key_id() == key).count();
        let first = match of_key >= IDLE_COUNT_MAX {
            true => idle.iter().position(|other| other.key_id() == key),
            false => (idle.len() >= IDLE_COUNT_MAX_OF_ALL).then_some(0),
        };
        let gone = first.map(|index| idle.remove(index));
        idle.push(own);
        drop(idle);
        drop(gone); // Whoever needs it holds it.
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
        self.close_such(|own| own.end >= size);
    }

    /// As [`Self::close_files`], in place of files whose key is for no new ones any more: of
    /// keyspaces that were dropped, which somebody may have written for meanwhile.
    pub fn close_without_owner(&self) {
        self.close_such(|own| !self.place.is_for_new(own.key_id()));
    }

    fn close_such(&self, is_closed: impl Fn(&OwnFile) -> bool) {
        let mut head = lock(&self.head);
        let (closed, left) = std::mem::take(&mut head.current)
            .into_iter()
            .partition::<BTreeMap<u16, OwnFile>, _>(|(_, own)| is_closed(own));
        head.current = left;
        drop(head);
        let mut idle = lock(&self.idle);
        let (closed_idle, left) =
            std::mem::take(&mut *idle).into_iter().partition::<Vec<OwnFile>, _>(is_closed);
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
