//! A storage that is looked after: what an open database does all its input and output through.
//!
//! Owns what is to be done about calls that fail for a moment, find no room, or take long. Reads
//! that fail as a disk does now and then are tried again, a few times. What may use the reserve of
//! room gets a piece of it when the disk is full, and is tried again. Which calls are under way is
//! noted, so that one that does not come back can be told (`calls`). What is removed is put aside
//! instead for who reads beside (`storage/followers.rs`). Must not know what files mean: whoever
//! works says what its work may use ([`ReserveUse`]).
//!
//! A process that is forked has the same descriptors: there nothing is changed any more.
//!
//! Invariants
//! - U1  Nothing but a read is tried again that has failed, unless it was for want of room: a sync
//!   never.
//! - U2  What is in the file of the reserve means nothing, whatever is in it and however long it
//!   is: a crash may leave anything of it, and its loss loses room alone.
//! - U3  A call is tried again for want of room only behind a piece of the reserve that was given
//!   back, so that it ends with the reserve.
//! - U4  Behind a sync of a directory of the database that has failed, or has not come to its end,
//!   none succeeds: syncs of directories run one after another, and who learns of the failure in
//!   another way, or later, has had no name made durable meanwhile that is not. Whoever works with
//!   the database is to look whether there was one ([`Guard::failed_dir_sync`]).
//!
//! | file | what |
//! |---|---|
//! | `calls` | which calls are under way, and which of them for long |
//! | `reserve` | room that is kept for what makes room |
//! | `dir_syncs` | syncs of directories, up to the first that fails |
//! | `file` | files |

mod calls;
mod dir_syncs;
mod file;
mod reserve;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use calls::SlowCall;
pub use reserve::ReserveFigures;
pub(crate) use reserve::{FullDisk, ReserveUse};

use self::calls::Calls;
use self::dir_syncs::DirSyncs;
use self::file::GuardedFile;
use self::reserve::{May, Reserve};
use super::followers::{followers_of, remove_or_hold};
use super::{DirEntry, OpenMode, Operation, Storage, StorageFile, StorageLock};
use crate::base::Clock;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, PoisonError};
use crate::memory::ProcessMark;
use crate::seal::Keyring;

/// How often a read is tried again that failed as disks do now and then.
const READ_RETRIES: u32 = 3;
/// In front of the first of these tries; twice as long in front of each further one.
const READ_RETRY_WAIT: Duration = Duration::from_millis(1);
/// EIO, on all systems that there are files on.
const EIO: i32 = 5;

/// What is known of a database's calls to its storage.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The database's directory: what is elsewhere has nothing to do with its room.
    root: PathBuf,
    /// The process that has the database open.
    process: ProcessMark,
    clock: Arc<dyn Clock>,
    calls: Calls,
    reserve: Reserve,
    dir_syncs: DirSyncs,
    /// Reads that were tried again.
    read_retries: AtomicU64,
    /// Reads that failed all the same, or could not be expected to do better.
    failed_reads: AtomicU64,
    /// The last of these.
    last_failed_read: Mutex<Option<(PathBuf, String)>>,
}

/// How a database's calls are looked after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardOptions {
    /// A call that takes longer is told.
    pub slow_after: Duration,
    /// Bytes of room that are kept; 0 for none.
    pub reserve: u64,
}

/// Another storage, looked after.
#[derive(Debug)]
pub(crate) struct GuardedStorage {
    below: Arc<dyn Storage>,
    guard: Arc<Guard>,
}

impl Guard {
    /// For the database in the directory `root`.
    pub(crate) fn new(root: &Path, clock: Arc<dyn Clock>, options: GuardOptions) -> Guard {
        Guard {
            root: root.to_owned(),
            process: ProcessMark::new(),
            calls: Calls::new(Arc::clone(&clock), options.slow_after),
            reserve: Reserve::new(root, options.reserve),
            dir_syncs: DirSyncs::default(),
            clock,
            read_retries: AtomicU64::new(0),
            failed_reads: AtomicU64::new(0),
            last_failed_read: Mutex::default(),
        }
    }

    /// Refuses what changes anything in a process that was forked from the one that has it open.
    #[inline(always)]
    fn check_process(&self) -> io::Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(forked()) }
    }

    /// Takes the reserve up as it is, and makes it what it should be, as far as there is room.
    pub(crate) fn open_reserve(&self) {
        self.reserve.open();
    }

    /// Says that recovery is over, with what it took of the reserve.
    pub(crate) fn note_recovered(&self) {
        self.reserve.note_recovered();
    }

    /// Removes the reserve: the database is closed.
    pub(crate) fn remove_reserve(&self) {
        self.reserve.remove();
    }

    /// Leaves the reserve to the next opening: the database is closed, and recovery may need it.
    pub(crate) fn let_go_of_reserve(&self) {
        self.reserve.let_go();
    }

    /// Removes the reserve if it was made for an opening, which has come to nothing.
    pub(crate) fn abandon_reserve(&self) {
        self.reserve.abandon();
    }

    /// Whether the disk is full, and only what makes room is to be written.
    #[inline]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.reserve.refuses_writes()
    }

    /// Looks whether there is room again for the reserve, and for what found none; whether writing
    /// goes on.
    pub(crate) fn look_for_room(&self) -> bool {
        self.reserve.restore()
    }

    /// Says that all work is done that may have wanted room and found none.
    pub(crate) fn forget_wanted(&self) {
        self.reserve.forget_wanted();
    }

    /// Says that something that takes room has found some: where there is no reserve to look by,
    /// the disk is not full then.
    pub(crate) fn note_room(&self) {
        self.reserve.note_room();
    }

    /// The same of a call with this path.
    fn note_room_at(&self, path: &Path) {
        if path.starts_with(&self.root) {
            self.reserve.note_room();
        }
    }

    /// Since when the disk has been full, if it is.
    pub(crate) fn full_disk(&self) -> Option<FullDisk> {
        self.reserve.full()
    }

    pub(crate) fn reserve_figures(&self) -> ReserveFigures {
        self.reserve.figures()
    }

    /// Whether a sync of one of the database's directories has failed (U4).
    #[inline]
    pub(crate) fn has_failed_dir_sync(&self) -> bool {
        self.dir_syncs.have_failed()
    }

    /// The same: which, and why.
    pub(crate) fn failed_dir_sync(&self) -> Option<String> {
        self.dir_syncs.why_none()
    }

    /// Looks at what is under way; to be called now and then.
    pub(crate) fn look_at_calls(&self) {
        self.calls.look();
    }

    /// Calls that have taken long: those under way, and the last ones that are over.
    pub(crate) fn slow_calls(&self) -> Vec<SlowCall> {
        self.calls.slow()
    }

    pub(crate) fn slow_call_count(&self) -> u64 {
        self.calls.slow_count()
    }

    /// Reads tried again, and reads that failed.
    pub(crate) fn read_counts(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.read_retries), of(&self.failed_reads))
    }

    /// The last read that failed, and why.
    pub(crate) fn last_failed_read(&self) -> Option<(PathBuf, String)> {
        self.last_failed_read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes whenever something has happened that people may want to be told.
    pub(crate) fn changes(&self) -> u64 {
        self.calls.changes() + self.reserve.changes() + self.failed_reads.load(Ordering::Relaxed)
    }

    /// Does what may need `bytes` of room at `path`, out of the reserve if that is allowed (U3).
    fn in_room<T>(
        &self,
        path: &Path,
        bytes: u64,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let outcome = call();
            let Err(error) = &outcome else {
                self.reserve.note_found(path, bytes);
                return outcome;
            };
            if !is_no_room(error) || !path.starts_with(&self.root) {
                return outcome;
            }
            let may = ReserveUse::of_thread();
            if may == May::Nothing || !self.reserve.give_back(may, bytes) {
                self.reserve.note_full(path, bytes, self.clock.wall_millis());
                return outcome;
            }
            self.reserve.note_full(path, 0, self.clock.wall_millis());
        }
    }

    /// After a read that has failed: tries again what may come right (U1).
    #[cold]
    fn read_again(
        &self,
        path: &Path,
        failed: io::Error,
        mut read: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut outcome = Err(failed);
        let mut wait = READ_RETRY_WAIT;
        for _ in 0..READ_RETRIES {
            match &outcome {
                Err(error) if is_passing(error) => {}
                _ => break,
            }
            self.read_retries.fetch_add(1, Ordering::Relaxed);
            self.clock.sleep(wait);
            wait *= 2;
            outcome = read();
        }
        if let Err(error) = &outcome
            && error.kind() != io::ErrorKind::Interrupted
        {
            let mut last = self.last_failed_read.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((path.to_owned(), error.to_string()));
            self.failed_reads.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

#[cold]
fn forked() -> io::Error {
    io::Error::other("this process is a fork of the one that has it open")
}

/// Whether it says that there is no room.
fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a read that fails so may go well the next time. One that was interrupted is tried again
/// by whoever reads.
fn is_passing(error: &io::Error) -> bool {
    let is_disk = error.raw_os_error() == Some(EIO);
    is_disk || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl GuardedStorage {
    pub(crate) fn new(below: Arc<dyn Storage>, guard: Arc<Guard>) -> GuardedStorage {
        guard.reserve.set_storage(Arc::clone(&below));
        GuardedStorage { below, guard }
    }

    /// Does what a call with a path does, noted as under way.
    fn noted<T>(&self, operation: Operation, path: &Path, call: impl FnOnce() -> T) -> T {
        let named = self.guard.calls.name(path);
        let _underway = self.guard.calls.begin(operation, named.number());
        call()
    }

    /// The same, of what may find no room.
    fn noted_in_room<T>(
        &self,
        operation: Operation,
        path: &Path,
        call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        /// A name, or what is kept about a file, takes a block at most.
        const BLOCK: u64 = 4096;
        self.guard.check_process()?;
        self.noted(operation, path, || self.guard.in_room(path, BLOCK, call))
    }
}

impl Storage for GuardedStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let file = match mode {
            OpenMode::CreateNew => self
                .noted_in_room(Operation::Create, path, || self.below.open(path, mode))
                .inspect(|_| self.guard.note_room_at(path)),
            OpenMode::ReadWrite | OpenMode::ReadOnly => {
                self.noted(Operation::Open, path, || self.below.open(path, mode))
            }
        };
        Ok(Arc::new(GuardedFile::new(file?, path, Arc::clone(&self.guard))))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.noted_in_room(Operation::CreateDir, path, || self.below.create_dir_all(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.noted_in_room(Operation::CreateDir, path, || self.below.create_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.noted_in_room(Operation::Rename, to, || self.below.rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.noted_in_room(Operation::Rename, to, || self.below.rename_new(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.noted_in_room(Operation::Rename, one, || self.below.exchange(one, other))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.noted_in_room(Operation::Link, to, || self.below.link(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        // Putting it aside may want room for a name.
        let remove = || remove_or_hold(&*self.below, &self.guard.root, path);
        self.noted_in_room(Operation::Remove, path, remove)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.guard.check_process()?;
        self.noted(Operation::RemoveDir, path, || self.below.remove_dir(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.noted(Operation::List, path, || self.below.list_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.guard.check_process()?;
        let sync = || self.noted(Operation::SyncDir, path, || self.below.sync_dir(path));
        match path.starts_with(&self.guard.root) {
            true => self.guard.dir_syncs.run(path, sync, || {
                !matches!(self.below.exists(path), Ok(false)) // Where it cannot be told, it may be.
            }),
            false => sync(),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.below.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.below.lock_shared(path)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        self.below.lock_dir(path)
    }

    fn lock_dir_shared(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        self.below.lock_dir_shared(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.noted(Operation::Exists, path, || self.below.exists(path))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.below.resolve(path)
    }

    fn room(&self, path: &Path) -> io::Result<Option<u64>> {
        self.below.room(path)
    }

    fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.below.keyring()
    }

    fn give_owner(&self, path: &Path, of: &Path) -> io::Result<()> {
        self.below.give_owner(path, of)
    }

    fn is_beside(&self) -> bool {
        self.below.is_beside()
    }

    fn followers(&self) -> Option<(u64, u64)> {
        // If it cannot be told, there may be somebody.
        followers_of(&*self.below, &self.guard.root).unwrap_or(Some((0, u64::MAX)))
    }
}
