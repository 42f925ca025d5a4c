//! A value file, as those refer to it who need it: runs, memtables, writers. The last one to let go
//! dooms the file.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::format::{FILE_HEADER_LEN, Form, RecordPlace};
use super::format::{check_file_header, file_tag, identity, version_in};
use super::staged::NO_FILE;
use super::{FilesWriter, lock};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, OnceLock, Weak};
use crate::base::{Error, Result, ValuePointer};
use crate::seal::{FileKey, Keyring, id_of};
use crate::storage::{
    KeptOpen, NumberedNames, OpenFiles, OpenMode, Storage, StorageFile, held_names,
};

const NAMES: NumberedNames = NumberedNames("val-");
/// The numbers that files may have.
pub(super) const FILE_NUMBERS: RangeInclusive<u64> = NO_FILE + 1..=ValuePointer::PLACE_MAX;
/// Files that are kept open for reading at most; the rest are opened when read.
const OPEN_FILE_COUNT_MAX: usize = 256;

/// What all value files of a database have in common.
#[derive(Debug)]
pub(super) struct ValuePlace {
    // Constant.
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub database: u64,
    pub writer: FilesWriter,
    // Guarded by their locks.
    /// Files that nothing refers to any more and that are still to be removed.
    doomed: Mutex<Vec<Doomed>>,
    open: OpenFiles<ValueFile>,
}

/// A file that nothing refers to.
#[derive(Clone, Debug)]
pub(super) struct Doomed {
    pub number: u64,
    pub path: PathBuf,
    pub size: u64,
}

impl ValuePlace {
    pub(super) fn new(storage: Arc<dyn Storage>, dir: PathBuf, database: u64) -> ValuePlace {
        let (open, writer) = (OpenFiles::new(OPEN_FILE_COUNT_MAX), FilesWriter::Own);
        ValuePlace { storage, dir, database, writer, doomed: Mutex::default(), open }
    }

    /// Says who writes the files.
    pub(super) fn written_by(self, writer: FilesWriter) -> ValuePlace {
        ValuePlace { writer, ..self }
    }

    /// Whether records of this database are sealed.
    pub(super) fn form(&self) -> Form {
        match self.storage.keyring() {
            Some(_) => Form::Sealed,
            None => Form::Plain,
        }
    }

    /// What a file that is made now, for values of this keyspace, is sealed with.
    ///
    /// # Errors
    /// As [`Keyring::for_new`].
    pub(super) fn key_for_new(&self, number: u64, keyspace: u32) -> Result<Option<Arc<FileKey>>> {
        let (keyring, file) = (self.storage.keyring(), identity(self.database, number));
        Keyring::for_new_of(keyring, keyspace.into(), &file)
    }

    /// The number of the data key that values of a keyspace, or of the keyspace of a store, are
    /// sealed with now; 0 for none.
    pub(super) fn key_number_for(&self, keyspace: u32) -> u16 {
        self.storage.keyring().map_or(0, |keyring| keyring.number_for(keyspace.into()))
    }

    /// Whether files that are made now are sealed with the key of this number; of those that have
    /// none, 0.
    pub(super) fn is_for_new(&self, key: u16) -> bool {
        self.storage.keyring().is_none_or(|keyring| keyring.is_for_new(key))
    }

    /// What a file may be sealed with whose header is damaged, the likely ones first.
    pub(super) fn keys_of_damaged(
        &self,
        number: u64,
        header: &[u8; FILE_HEADER_LEN as usize],
    ) -> Vec<Arc<FileKey>> {
        let keyring = self.storage.keyring();
        Keyring::of_damaged(keyring, [version_in(header)], &identity(self.database, number))
    }

    /// The database's directory.
    pub(super) fn parent(&self) -> &Path {
        self.dir.parent().expect("it is in the database's directory")
    }

    pub(super) fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(NAMES.name(number))
    }

    pub(super) fn take_doomed(&self) -> Vec<Doomed> {
        std::mem::take(&mut *lock(&self.doomed))
    }

    /// Files that could not be removed.
    pub(super) fn put_back(&self, doomed: Vec<Doomed>) {
        lock(&self.doomed).extend(doomed);
    }

    /// The highest number of a file that was removed and is held for who reads beside; 0 for none.
    /// To such a file, what was in a log that is lost may have pointed, and somebody have read
    /// that. 0 also where that cannot be looked at: then nothing could be put there either (FO7).
    pub(super) fn newest_held(&self) -> u64 {
        let names = held_names(&*self.storage, self.parent(), &self.dir).unwrap_or_default();
        let numbers = names.iter().filter_map(|name| NAMES.number_of(name));
        numbers.filter(|number| FILE_NUMBERS.contains(number)).max().unwrap_or(0)
    }

    /// The numbers of the files that are there, rising, without those that no pointer can have,
    /// which are left alone; none if there is no directory yet.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let is_there = self.storage.exists(&self.dir);
        if !is_there.map_err(|error| Error::io("look for", &self.dir, error))? {
            return Ok(Vec::new());
        }
        let numbers = NAMES.numbers_in(&*self.storage, &self.dir)?.into_iter();
        Ok(numbers.filter(|number| FILE_NUMBERS.contains(number)).collect())
    }
}

/// Whether a file is in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Present,
    /// It is referred to by something that may be out of date.
    Absent,
}

/// A value file. Whoever holds it may read what it was told of.
pub struct ValueFile {
    // Constant.
    number: u64,
    pub(super) tag: u64,
    pub(super) path: PathBuf,
    place: Arc<ValuePlace>,
    presence: Presence,
    /// What all that write to it share; one that nobody has written to since opening has none.
    writers: OnceLock<Weak<AtomicU64>>,
    /// What its values are sealed with, if they are: known when the file was opened.
    key: OnceLock<Option<Arc<FileKey>>>,
    // Atomic.
    file: KeptOpen,
    /// Bytes up to the end of the last record.
    size: AtomicU64,
    /// Whether it is about to be emptied: values in it are written anew when they are put again.
    is_shunned: AtomicBool,
    /// Whether something in it did not verify. It is shunned as well, and not emptied: what is
    /// damaged would stay, and with it the file.
    is_damaged: AtomicBool,
}

impl AsRef<KeptOpen> for ValueFile {
    fn as_ref(&self) -> &KeptOpen {
        &self.file
    }
}

impl fmt::Debug for ValueFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueFile").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ValueFile {
    pub(super) fn new(
        place: &Arc<ValuePlace>,
        number: u64,
        size: u64,
        presence: Presence,
    ) -> Arc<ValueFile> {
        Arc::new(ValueFile {
            number,
            tag: file_tag(place.database, number),
            path: place.path_of(number),
            place: Arc::clone(place),
            presence,
            writers: OnceLock::new(),
            key: OnceLock::new(),
            file: KeptOpen::default(),
            size: AtomicU64::new(size),
            is_shunned: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
        })
    }

    /// Says what it is sealed with, when it is made.
    pub(super) fn note_key(&self, key: Option<Arc<FileKey>>) {
        let _only_once = self.key.set(key);
    }

    /// What its values are sealed with, if they are. To be asked when the file is, or was, open.
    pub(super) fn key(&self) -> Option<&FileKey> {
        self.key.get()?.as_deref()
    }

    /// Whether its records are sealed.
    pub(super) fn form(&self) -> Form {
        self.place.form()
    }

    /// A place in it, for a record that is written.
    pub(super) fn place_at(&self, offset: u64) -> RecordPlace<'_> {
        RecordPlace { tag: self.tag, key: self.key(), offset }
    }

    /// Finds the key of this number. A file never has another one.
    fn take_key(&self, number: u16) -> Result<()> {
        if self.key.get().is_some_and(|key| id_of(key.as_deref()) == number) {
            return Ok(());
        }
        let file = identity(self.place.database, self.number);
        let keyring = self.place.storage.keyring();
        let key = Keyring::of_found(keyring, number, &file, &self.path)?;
        match self.key.set(key) {
            Ok(()) => Ok(()),
            Err(_) if id_of(self.key()) == number => Ok(()),
            Err(_) => Err(self.damaged(0, "the header has changed")),
        }
    }

    /// Says who writes to it, from when it is made on (V1).
    pub(super) fn note_writers(&self, writers: Weak<AtomicU64>) {
        let _only_once = self.writers.set(writers);
    }

    /// Whether anybody may still write to it, or cut it. If not, nobody ever will (V1).
    #[must_use]
    pub fn is_written_to(&self) -> bool {
        self.writers.get().is_some_and(|writers| writers.strong_count() > 0)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its number, as pointers have it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether the file goes up to `end`; what somebody else has appended to it meanwhile counts.
    pub(super) fn goes_to(&self, end: u64) -> bool {
        if end <= self.size() {
            return true;
        }
        if self.place.writer == FilesWriter::Own {
            return false;
        }
        let opened = self.place.storage.open(&self.path, OpenMode::ReadOnly);
        self.note_size(opened.and_then(|file| file.size()).unwrap_or(0));
        end <= self.size()
    }

    /// Whether there is such a file: something out of date may hold one that is gone.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.presence == Presence::Present
    }

    /// Says that records go up to here, or further.
    pub(super) fn note_size(&self, size: u64) {
        self.size.fetch_max(size, Ordering::AcqRel);
    }

    /// Says that nothing is behind this any more. To be called by its only writer.
    pub(super) fn note_cut(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Has nobody refer to its values again who does not yet.
    pub fn shun(&self) {
        self.is_shunned.store(true, Ordering::Relaxed);
    }

    /// Whether nobody is to refer to its values again.
    #[must_use]
    pub fn is_shunned(&self) -> bool {
        self.is_shunned.load(Ordering::Relaxed)
    }

    /// Whether something in it was found damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Damage in this file.
    pub(super) fn damaged(&self, offset: u64, what: impl Into<String>) -> Error {
        self.shun();
        self.is_damaged.store(true, Ordering::Relaxed);
        Error::corruption(&self.path, offset, what)
    }

    /// The file, opened and its header checked if need be.
    pub(super) fn file(self: &Arc<ValueFile>) -> Result<Arc<dyn StorageFile>> {
        if let Some(file) = self.file.file() {
            return Ok(file);
        }
        let file = self.open(OpenMode::ReadOnly)?;
        self.place.open.keep(self, &file);
        Ok(file)
    }

    /// Opens the file and checks its header.
    pub(super) fn open(&self, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let opened = self.place.storage.open(&self.path, mode);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(&self.path),
            _ => Error::io("open", &self.path, error),
        })?;
        let mut header = [0; FILE_HEADER_LEN as usize];
        file.read_exact_at(&mut header, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(0, "the file ends within its header"),
            _ => Error::io("read", &self.path, error),
        })?;
        let key = check_file_header(&header, self.place.database, self.number, &self.path)?;
        self.take_key(key)?;
        Ok(file)
    }
}

pub(super) fn missing(path: &Path) -> Error {
    Error::corruption(path, 0, "the value file is missing")
}

impl Drop for ValueFile {
    fn drop(&mut self) {
        // What somebody else writes is not removed here, and may be pointed to again.
        let is_own = self.place.writer == FilesWriter::Own;
        if self.presence == Presence::Present && is_own {
            let (number, size) = (self.number, self.size());
            let path = std::mem::take(&mut self.path);
            lock(&self.place.doomed).push(Doomed { number, path, size });
        }
    }
}
