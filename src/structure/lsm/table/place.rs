//! Where the tables of one keyspace are: their numbers, which files are open, which are to go.
//!
//! A file that nothing refers to any more is *doomed*: it is removed when maintenance comes round,
//! not by whoever lets go of it, a reader even. So is what is in memory of the table: its cached
//! blocks may be hundreds of MiB, and to free them takes as many milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::format::{HEADER_LEN, TableIdentity};
use super::open::Opened;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use crate::base::{Error, Result};
use crate::block::FramePlace;
use crate::seal::{FileKey, Keyring, id_of};
use crate::storage::{KeptOpen, NumberedNames, OpenFiles, OpenMode, Storage, StorageFile, is_gone};
use crate::value_log::ValueLog;

const NAMES: NumberedNames = NumberedNames("tbl-");

/// Whether it is how a keyspace's tables are called.
#[must_use]
pub fn is_table_name(name: &str) -> bool {
    NAMES.number_of(name).is_some()
}

/// Files of a database that are kept open for reading at most; the rest are opened when read. A
/// process may often have no more than 1024 open, of which each keyspace needs some for writing.
const OPEN_FILE_COUNT_MAX: usize = 256;

/// Tables of all keyspaces whose files are open.
#[derive(Debug)]
pub struct OpenTables(OpenFiles<TableFile>);

impl Default for OpenTables {
    fn default() -> OpenTables {
        OpenTables(OpenFiles::new(OPEN_FILE_COUNT_MAX))
    }
}

/// A table that nothing refers to any more.
#[derive(Debug)]
struct Doomed {
    path: PathBuf,
    /// What is in memory of it; can be evicted as before.
    _memory: Option<Box<Opened>>,
}

/// Where the tables of one keyspace are, and what they have in common.
#[derive(Debug)]
pub struct TablePlace {
    // Constant.
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: PathBuf,
    pub(super) database: u64,
    pub(super) keyspace: u32,
    /// Shared with the other keyspaces.
    open: Arc<OpenTables>,
    /// Where large values are.
    pub(super) values: Arc<ValueLog>,
    // Guarded by their locks.
    /// What nothing refers to any more and is still to be removed.
    doomed: Mutex<Vec<Doomed>>,
    /// Tables that anybody holds, by number, and how often.
    held: Mutex<BTreeMap<u64, usize>>,
    /// Numbers of tables that are being written, or were and are in no edit yet.
    unlisted: Mutex<BTreeSet<u64>>,
    // Atomic.
    /// The number of the next table. Never used twice, even when the creation fails (U5).
    next_number: AtomicU64,
    /// Bytes of tables that only old versions refer to.
    pinned_bytes: AtomicU64,
    /// Whether indexes and filters stay in memory.
    pins_indexes: AtomicBool,
}

impl TablePlace {
    /// The tables in `dir`, which need not be any.
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        dir: PathBuf,
        database: u64,
        keyspace: u32,
        open: Arc<OpenTables>,
        values: Arc<ValueLog>,
    ) -> Arc<TablePlace> {
        Arc::new(TablePlace {
            storage,
            dir,
            database,
            keyspace,
            open,
            values,
            doomed: Mutex::default(),
            held: Mutex::default(),
            unlisted: Mutex::default(),
            next_number: AtomicU64::new(1),
            pinned_bytes: AtomicU64::new(0),
            pins_indexes: AtomicBool::new(false),
        })
    }

    /// Has indexes and filters of tables that are read from now on stay in memory.
    pub fn pin_indexes(&self) {
        self.pins_indexes.store(true, Ordering::Relaxed);
    }

    pub(super) fn pins_indexes(&self) -> bool {
        self.pins_indexes.load(Ordering::Relaxed)
    }

    /// The keyspace's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> u32 {
        self.keyspace
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> u64 {
        self.database
    }

    /// Where the files are.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Where large values are.
    #[must_use]
    pub fn values(&self) -> &Arc<ValueLog> {
        &self.values
    }

    /// Whether the keyspace has a data key of its own.
    #[must_use]
    pub fn has_own_key(&self) -> bool {
        let keyring = self.storage.keyring();
        keyring.is_some_and(|keyring| keyring.is_owner(self.keyspace.into()))
    }

    /// A number for a new table. Flushes, compactions and ingests run beside one another.
    #[must_use]
    pub fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Numbers from this one on were not given to anybody.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// Says that tables up to in front of `number` are, or were, there.
    pub fn skip_to(&self, number: u64) {
        self.next_number.fetch_max(number, Ordering::Relaxed);
    }

    /// The file of a table.
    #[must_use]
    pub fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(NAMES.name(number))
    }

    /// The numbers of the table files that are there, ascending.
    ///
    /// # Errors
    /// `Io`.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        NAMES.numbers_in(&*self.storage, &self.dir)
    }

    /// Makes the names of new files durable, and that others are gone.
    ///
    /// # Errors
    /// `Io`.
    pub fn sync_dir(&self) -> Result<()> {
        let synced = self.storage.sync_dir(&self.dir);
        synced.map_err(|error| Error::io("sync", &self.dir, error))
    }

    /// Says that a table is made that no edit names yet. [`super::TableWriter::create`] does.
    pub fn note_unlisted(&self, number: u64) {
        lock(&self.unlisted).insert(number);
    }

    /// Says that these tables are in an edit, or given up.
    pub fn forget_unlisted(&self, numbers: &[u64]) {
        lock(&self.unlisted).retain(|number| !numbers.contains(number));
    }

    /// Whether anybody holds the table, writes it, or its file is about to be removed or gone.
    #[must_use]
    pub fn is_known(&self, number: u64) -> bool {
        let path = self.path_of(number);
        lock(&self.held).contains_key(&number)
            || lock(&self.unlisted).contains(&number)
            || lock(&self.doomed).iter().any(|doomed| doomed.path == path)
            || !matches!(self.storage.exists(&path), Ok(true))
    }

    /// Removes the files of tables that are gone, and frees what is in memory of them. A file that
    /// cannot be removed now is tried again the next time; in the end it is an orphan, which
    /// opening removes.
    pub fn remove_doomed(&self) {
        let doomed = std::mem::take(&mut *lock(&self.doomed));
        let is_there = |table: &&Doomed| !is_gone(&self.storage.remove_file(&table.path));
        let again = doomed.iter().filter(is_there).map(|table| table.path.clone());
        let again: Vec<PathBuf> = again.collect();
        drop(doomed); // Memory takes longer than files.
        lock(&self.doomed).extend(again.into_iter().map(|path| Doomed { path, _memory: None }));
    }

    /// Removes the file of a table that nothing refers to.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_orphan(&self, number: u64) -> Result<()> {
        let path = self.path_of(number);
        self.storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))
    }

    /// Bytes of tables that only old versions refer to.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// Of a table that is written here.
    pub(super) fn identity_of(&self, number: u64) -> TableIdentity {
        TableIdentity { database: self.database, keyspace: self.keyspace, number }
    }

    /// Says that somebody holds the table.
    pub(super) fn note_held(&self, number: u64) {
        *lock(&self.held).entry(number).or_default() += 1;
    }

    /// Says that one who held the table does not any more.
    pub(super) fn note_let_go(&self, number: u64) {
        let mut held = lock(&self.held);
        match held.get_mut(&number) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&number)),
        }
    }

    /// Says that a table of `size` bytes is only held by old versions.
    pub(super) fn note_pinned(&self, size: u64) {
        self.pinned_bytes.fetch_add(size, Ordering::Relaxed);
    }

    /// Says that such a table is gone: its file is to be removed, its memory to be freed.
    pub(super) fn doom(&self, path: PathBuf, size: u64, memory: Option<Box<Opened>>) {
        self.pinned_bytes.fetch_sub(size, Ordering::Relaxed);
        lock(&self.doomed).push(Doomed { path, _memory: memory });
    }
}

/// The file of a table: opened when it is first read.
pub(super) struct TableFile {
    // Constant.
    pub identity: TableIdentity,
    pub tag: u64,
    pub path: PathBuf,
    place: Arc<TablePlace>,
    // Set once.
    /// What its frames are sealed with, if they are: known when the file was opened.
    key: OnceLock<Option<Arc<FileKey>>>,
    // Atomic.
    file: KeptOpen,
}

impl AsRef<KeptOpen> for TableFile {
    fn as_ref(&self) -> &KeptOpen {
        &self.file
    }
}

impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TableFile {
    /// The file of a table of the keyspace. `origin` is its own, if it was made elsewhere.
    pub(super) fn of(place: &Arc<TablePlace>, number: u64, origin: Option<u64>) -> Arc<TableFile> {
        let identity = match origin {
            Some(drawn) => TableIdentity::outside(drawn),
            None => place.identity_of(number),
        };
        TableFile::at(place, place.path_of(number), identity)
    }

    /// A file that need not be in the keyspace's directory.
    pub(super) fn at(
        place: &Arc<TablePlace>,
        path: PathBuf,
        identity: TableIdentity,
    ) -> Arc<TableFile> {
        let (place, file, key) = (Arc::clone(place), KeptOpen::default(), OnceLock::new());
        Arc::new(TableFile { identity, tag: identity.tag(), path, place, key, file })
    }

    pub(super) fn place(&self) -> &Arc<TablePlace> {
        &self.place
    }

    /// The file, opened and its header checked if need be.
    pub(super) fn open(self: &Arc<TableFile>) -> Result<Arc<dyn StorageFile>> {
        if let Some(file) = self.file.file() {
            return Ok(file);
        }
        let file = self.open_anew()?;
        self.place.open.0.keep(self, &file);
        Ok(file)
    }

    /// Opens the file and checks its header.
    pub(super) fn open_anew(&self) -> Result<Arc<dyn StorageFile>> {
        let opened = self.place.storage.open(&self.path, OpenMode::ReadOnly);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(&self.path),
            _ => Error::io("open", &self.path, error),
        })?;
        let mut header = [0; HEADER_LEN as usize];
        self.read_exact(&*file, &mut header, 0)?;
        let key = self.identity.check_header(&header, &self.path)?;
        self.take_key(key)?;
        Ok(file)
    }

    /// The number of the data key that it is sealed with, or 0.
    pub(super) fn key_id(self: &Arc<TableFile>) -> Result<u16> {
        self.open()?;
        Ok(id_of(self.key()))
    }

    /// Finds the key of this number. A file never has another one.
    fn take_key(&self, number: u16) -> Result<()> {
        if self.key.get().is_some_and(|key| id_of(key.as_deref()) == number) {
            return Ok(());
        }
        let keyring = self.place.storage.keyring();
        let key = Keyring::of_found(keyring, number, &self.identity.file(), &self.path)?;
        match self.key.set(key) {
            Ok(()) => Ok(()),
            Err(_) if id_of(self.key()) == number => Ok(()),
            Err(_) => Err(self.damaged(0, "the header has changed")),
        }
    }

    /// What its frames are sealed with, if they are. To be asked when the file is, or was, open.
    fn key(&self) -> Option<&FileKey> {
        self.key.get()?.as_deref()
    }

    /// Reads what must be there.
    pub(super) fn read_exact(
        &self,
        file: &dyn StorageFile,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<()> {
        file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(offset, "the file ends early"),
            _ => Error::io("read", &self.path, error),
        })
    }

    /// Where a frame belongs.
    pub(super) fn place_at(&self, offset: u64) -> FramePlace<'_> {
        FramePlace { file: &self.path, file_tag: self.tag, offset, key: self.key() }
    }

    /// Damage in this file.
    pub(super) fn damaged(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }
}

pub(super) fn missing(path: &Path) -> Error {
    Error::corruption(path, 0, "the table file is missing")
}

/// Locks a mutex whose data stays consistent whatever panicked while it was held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
