//! Value log: large values, outside of commit log and structures.
//!
//! Owns the files in `values/`. Commits append the values of a batch before its record goes to the
//! commit log; entries then hold pointers. Must not know keys, nor who refers to what: a file lives
//! as long as somebody holds it.
//!
//! | file | what it owns |
//! |---|---|
//! | `format.rs` | the bytes of files and records |
//! | `file.rs` | a file's life: held, opened, doomed |
//! | `staged.rs` | the values of a batch before they are written |
//! | `append.rs` | writing, and making durable what was written |
//! | `read.rs` | reading whole values, verified |
//! | `reader.rs` | reading parts of a value, verified |
//! | `stream.rs` | writing a value piece by piece |
//! | `kept.rs` | keeping files that nobody needs any more for who reads the log |
//! | `moving.rs` | moving values out of files that are to be emptied |
//! | `salvage.rs` | copying files of which some records are damaged |
//!
//! Invariants
//! - V1  A record is written once, in a file that nobody has appended to before the database was
//!   opened. (Recovery may write the same bytes to the same place again; what no pointer was given
//!   out to, or none that anybody has, may be written over.) A file that has a name elsewhere, as
//!   in a checkpoint, is not written to at all: it got that when it was durable, and nobody was
//!   writing to it any more.
//! - V2  A pointer is durable somewhere only if its record, and the name of its file, are; or it is
//!   in the part of the commit log that is not known to be durable, and is verified there.
//! - V3  A file is removed only when nobody holds it. Who refers to a value in memory, or durably,
//!   holds its file; a pointer that is only in parts of the commit log that are never applied again
//!   does not count, unless files are kept for who still has to read that (`kept.rs`).
//! - V4  Every byte that is read is verified: against its place by checksums, against the pointer
//!   by length and hash.
//! - V5  A sync that failed is never tried again: what it was to carry over may be lost, and
//!   whoever syncs after it is told.

mod append;
mod file;
mod format;
mod fuzz;
mod inspect;
mod kept;
mod moving;
mod read;
mod reader;
mod salvage;
mod sealed;
mod staged;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use self::append::{Head, OwnFile, Unsynced};
use self::file::{Presence, ValuePlace, missing};
use crate::base::sync::ArcSwap;
use crate::base::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use crate::base::{Error, Result};
use crate::cache::MemoryBudget;
use crate::storage::{Storage, is_gone};

pub use file::ValueFile;
pub use format::{hash_value, record_len};
pub(crate) use fuzz::put_right;
pub(crate) use inspect::inspect_values;
pub use moving::Mover;
pub use read::Verify;
pub use reader::ValueReader;
pub(crate) use reader::{io_error, sought};
pub use salvage::{KeysInDoubt, copy_value_files};
pub use staged::{NO_FILE, StagedMark, StagedValues};
pub use stream::ValueStream;

/// The value files of one database.
#[derive(Debug)]
pub struct ValueLog {
    // Constant.
    place: Arc<ValuePlace>,
    /// Bytes at which a file is not appended to any more.
    file_size: u64,
    /// What readers verify.
    verify: Verify,
    budget: Arc<MemoryBudget>,
    // Replaced whole.
    /// Every file that anybody holds.
    files: ArcSwap<BTreeMap<u64, Weak<ValueFile>>>,
    // Guarded by their locks.
    /// What commits append to.
    head: Mutex<Head>,
    /// Files that are written by one writer each, between two of these.
    idle: Mutex<Vec<OwnFile>>,
    unsynced: Mutex<Unsynced>,
    /// Held while a sync runs: who finds nothing to sync must not overtake. Why one failed.
    syncing: Mutex<Option<String>>,
    /// `None` once it is known what is referred to.
    opening: Mutex<Option<Opening>>,
    /// Files that are kept whoever else needs them; `None` while none are.
    kept: Mutex<Option<BTreeMap<u64, Arc<ValueFile>>>>,
    /// Held, shared, while something is written.
    writing: RwLock<Writing>,
    // Atomic.
    /// [`UNSYNCED`] and [`SYNCING`]; nothing while there is nothing to wait for.
    sync_state: AtomicU8,
    bytes_written: AtomicU64,
    moved: MoveCounters,
    sync_count: AtomicU64,
    removed_count: AtomicU64,
}

/// There are records that no sync has begun with.
const UNSYNCED: u8 = 1;
/// There are records that a sync has begun with and not ended, or has failed with.
const SYNCING: u8 = 2;

/// How a value log is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueLogOptions {
    /// Bytes at which a file is not appended to any more.
    pub file_size: u64,
    /// What readers verify.
    pub verify: Verify,
    /// Whose files they are.
    pub writer: FilesWriter,
}

/// Who writes value files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilesWriter {
    /// This log, if anybody.
    #[default]
    Own,
    /// Somebody else, meanwhile: files come and grow. None is removed here.
    Other,
}

/// Whether anything may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Allowed,
    /// The directory may be somebody else's.
    Over,
}

/// What only opening knows.
#[derive(Debug, Default)]
struct Opening {
    /// Every file that is there, held until it is known which ones are referred to.
    _held: Vec<Arc<ValueFile>>,
    /// Files that are not there and were referred to, perhaps by something out of date.
    absent: Vec<Weak<ValueFile>>,
}

/// What was moved since opening.
#[derive(Debug, Default)]
struct MoveCounters {
    values: AtomicU64,
    bytes: AtomicU64,
}

/// Files that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl ValueLog {
    /// Opens the log in `dir`, which need not be there. No file goes before
    /// [`Self::finish_opening`]. The memory of readers and streams is charged to the `budget`.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: PathBuf,
        database: u64,
        options: ValueLogOptions,
        budget: Arc<MemoryBudget>,
    ) -> Result<ValueLog> {
        let place = ValuePlace::new(storage, dir, database).written_by(options.writer);
        let place = Arc::new(place);
        let mut held = Vec::new();
        for number in place.numbers()? {
            let path = place.path_of(number);
            let mode = crate::storage::OpenMode::ReadOnly;
            let size = place.storage.open(&path, mode).and_then(|file| file.size());
            let size = size.map_err(|error| Error::io("open", &path, error))?;
            held.push(ValueFile::new(&place, number, size, Presence::Present));
        }
        let newest = held.last().map_or(0, |file| file.number());
        let newest = match options.writer {
            FilesWriter::Own => newest.max(place.newest_held()), // FO3
            FilesWriter::Other => newest,
        };
        let files = held.iter().map(|file| (file.number(), Arc::downgrade(file))).collect();
        let ValueLogOptions { file_size, verify, .. } = options;
        Ok(ValueLog {
            place,
            file_size,
            verify,
            budget,
            files: ArcSwap::from_pointee(files),
            head: Mutex::new(Head::behind(newest)),
            idle: Mutex::default(),
            unsynced: Mutex::default(),
            syncing: Mutex::default(),
            opening: Mutex::new(Some(Opening { _held: held, absent: Vec::new() })),
            kept: Mutex::default(),
            writing: RwLock::new(Writing::Allowed),
            sync_state: AtomicU8::new(0),
            bytes_written: AtomicU64::new(0),
            moved: MoveCounters::default(),
            sync_count: AtomicU64::new(0),
            removed_count: AtomicU64::new(0),
        })
    }

    /// The highest number that a file was given.
    pub fn newest_number(&self) -> u64 {
        lock(&self.head).newest_number()
    }

    /// Gives no file this number or a lower one.
    pub fn skip(&self, number: u64) {
        lock(&self.head).skip(number);
    }

    /// Holds a file that something refers to; perhaps something out of date, and the file is gone.
    pub fn hold(&self, number: u64) -> Arc<ValueFile> {
        if let Some(file) = self.find(number).or_else(|| self.find_new(number)) {
            return file;
        }
        let absent = ValueFile::new(&self.place, number, 0, Presence::Absent);
        if let Some(opening) = &mut *lock(&self.opening) {
            opening.absent.push(Arc::downgrade(&absent));
            lock(&self.head).skip(number);
        }
        absent
    }

    /// The file, if somebody else has made it, who writes beside.
    fn find_new(&self, number: u64) -> Option<Arc<ValueFile>> {
        if self.place.writer == FilesWriter::Own {
            return None;
        }
        let (path, mode) = (self.place.path_of(number), crate::storage::OpenMode::ReadOnly);
        let opened = self.place.storage.open(&path, mode);
        let size = opened.and_then(|file| file.size()).ok()?;
        let file = ValueFile::new(&self.place, number, size, Presence::Present);
        self.register(&file);
        Some(file)
    }

    /// The file, if anybody holds it.
    pub fn find(&self, number: u64) -> Option<Arc<ValueFile>> {
        self.files.load().get(&number)?.upgrade()
    }

    /// Everything that refers to files holds them now: they must be there.
    ///
    /// # Errors
    /// `Corruption` that names one that is not.
    pub fn check_held(&self) -> Result<()> {
        let opening = lock(&self.opening);
        let absent = opening.iter().flat_map(|opening| &opening.absent).find_map(Weak::upgrade);
        absent.map_or(Ok(()), |file| Err(missing(&file.path)))
    }

    /// As [`Self::check_held`]; then removes the files that nobody holds.
    ///
    /// # Errors
    /// As [`Self::check_held`].
    pub fn finish_opening(&self) -> Result<Removed> {
        self.check_held()?;
        drop(lock(&self.opening).take());
        Ok(self.remove_unreferenced(|| true))
    }

    /// Removes the files that nobody holds any more, if `may_remove` says so. One that cannot be
    /// removed now is tried again the next time; in the end it is an orphan, which opening removes.
    pub fn remove_unreferenced(&self, may_remove: impl FnOnce() -> bool) -> Removed {
        let mut doomed = self.place.take_doomed();
        let mut removed = Removed::default();
        // In this order: what was doomed by a failure is not taken for what is not needed.
        if doomed.is_empty() || !may_remove() {
            return removed;
        }
        let (mut again, storage) = (Vec::new(), &self.place.storage);
        for file in std::mem::take(&mut doomed) {
            if is_gone(&storage.remove_file(&file.path)) {
                removed.files += 1;
                removed.bytes += file.size;
                doomed.push(file);
            } else {
                again.push(file);
            }
        }
        self.place.put_back(again);
        self.removed_count.fetch_add(removed.files, Ordering::Relaxed);
        self.change_files(|files| {
            for file in &doomed {
                files.remove(&file.number);
            }
        });
        removed
    }

    /// Files removed since opening.
    #[must_use]
    pub fn removed_count(&self) -> u64 {
        self.removed_count.load(Ordering::Relaxed)
    }

    /// Values moved since opening, and bytes of their records.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        (self.moved.values.load(Ordering::Relaxed), self.moved.bytes.load(Ordering::Relaxed))
    }

    fn note_moved(&self, size: u64) {
        self.moved.values.fetch_add(1, Ordering::Relaxed);
        self.moved.bytes.fetch_add(size, Ordering::Relaxed);
    }

    /// Files that nothing refers to, nor is about to be removed, ascending.
    ///
    /// # Errors
    /// `Io`.
    pub fn orphans(&self) -> Result<Vec<PathBuf>> {
        // In this order: what is made or removed meanwhile is none.
        let numbers = self.place.numbers()?;
        let known = self.files.load();
        let unknown = numbers.into_iter().filter(|number| !known.contains_key(number));
        let paths = unknown.map(|number| self.place.path_of(number));
        Ok(paths.filter(|path| matches!(self.place.storage.exists(path), Ok(true))).collect())
    }

    /// The files that are held, but for those that are only kept.
    #[must_use]
    pub fn files(&self) -> Vec<Arc<ValueFile>> {
        let mut files = self.all_files();
        self.leave_out_kept(&mut files);
        files
    }

    fn all_files(&self) -> Vec<Arc<ValueFile>> {
        self.files.load().values().filter_map(Weak::upgrade).collect()
    }

    /// Bytes at which a file is not appended to any more.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Whether no file is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.load().is_empty()
    }

    /// Numbers of files that may still be appended to.
    #[must_use]
    pub fn written_to(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = lock(&self.head).numbers().collect();
        numbers.extend(lock(&self.idle).iter().map(OwnFile::number));
        numbers
    }

    /// Ends writing: waits for whoever is at it; who comes later is told that the log is closed.
    /// What is there can be read on.
    pub fn close(&self) {
        *self.writing.write().unwrap_or_else(PoisonError::into_inner) = Writing::Over;
    }

    /// Held while something is written.
    fn writing(&self) -> Result<RwLockReadGuard<'_, Writing>> {
        let writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        match *writing {
            Writing::Allowed => Ok(writing),
            Writing::Over => Err(Error::Closed),
        }
    }

    fn register(&self, file: &Arc<ValueFile>) {
        self.change_files(|files| {
            files.insert(file.number(), Arc::downgrade(file));
        });
        self.keep_new(file);
    }

    fn change_files(&self, change: impl Fn(&mut BTreeMap<u64, Weak<ValueFile>>)) {
        self.files.rcu(|files| {
            let mut next = BTreeMap::clone(files);
            change(&mut next);
            next
        });
    }
}

/// Locks a mutex whose data stays consistent whatever panicked while it was held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
