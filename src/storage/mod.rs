//! Storage: files and directories behind one trait, the only place that names `std::fs`.
//!
//! The engine does all its input and output through [`Storage`], so that a test can replace the
//! operating system by memory ([`MemoryStorage`]) or by a simulation that crashes, tears, fails
//! and fills up on purpose ([`SimStorage`]). All calls may come from any thread.
//!
//! What the engine relies on
//! - T1  Bytes written to a file, and its length, survive a power cut once `sync` of that file
//!   returned without error.
//! - T2  A directory entry (a file created, renamed or removed) survives once `sync_dir` of the
//!   directory returned without error.
//! - T3  Nothing else survives for certain, and what is not synced may survive in any part.
//! - T4  A process that is killed loses nothing that was written.

mod beside;
mod content;
mod copying;
mod directory;
mod followers;
mod guard;
mod locks;
mod memory;
mod names;
mod numbered;
mod open_files;
mod os;
mod overlay;
mod sealed;
mod sim;
mod system;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::seal::Keyring;

pub(crate) use beside::BesideStorage;
pub(crate) use copying::{
    CopyShape, Zeros, copy_file, copy_into, is_shared, try_link, write_but_zeros,
};
pub(crate) use directory::{
    clear_directory, clear_directory_for_good, lock_directory, make_directory, share_directory,
};
pub(crate) use followers::{
    HeldFigures, Registration, held_figures, held_names, is_gone, is_held_back, let_go_of_unneeded,
    refuse_followed, unless_held_back,
};
pub(crate) use guard::{FullDisk, Guard, GuardOptions, GuardedStorage, ReserveUse};
pub use guard::{ReserveFigures, SlowCall};
pub use memory::MemoryStorage;
pub(crate) use numbered::NumberedNames;
pub(crate) use open_files::{KeptOpen, OpenFiles};
pub use os::OsStorage;
pub(crate) use overlay::Overlay;
pub(crate) use sealed::SealedStorage;
pub use sim::{CrashMode, FaultEffect, FaultPlan, FaultRule, FileSnapshot, Operation, SimStorage};
pub(crate) use system::{read_small, waited_for_processor};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create it for reading and writing; an error when it exists.
    CreateNew,
    /// Open what exists for reading and writing.
    ReadWrite,
    /// Open what exists for reading.
    ReadOnly,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory. Names that are not UTF-8 are given lossily: they are
    /// foreign files, which the engine leaves alone.
    pub name: String,
    /// What it is.
    pub entry_type: EntryType,
}

/// Files and directories.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Opens a file. The name is the file's own: what is a symbolic link, a pipe or a device is
    /// refused, but for directories on the way to it.
    ///
    /// # Errors
    /// `AlreadyExists` or `NotFound` by mode; whatever the system says.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>>;

    /// Creates a directory and its missing parents; existing ones are fine. Not durable until the
    /// parents are synced.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory in one that is there; what has the name already stays as it is. Not
    /// durable until the parent is synced. A storage that does not say how looks for the name
    /// first.
    ///
    /// # Errors
    /// `AlreadyExists` when there is anything at `path`, `NotFound`; whatever the system says.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if self.exists(path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.create_dir_all(path)
    }

    /// Renames a file, replacing a file of the new name. Not durable until the directories are
    /// synced.
    ///
    /// # Errors
    /// Whatever the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file or a directory to a name that nothing has; what has it already stays as it
    /// is. Not durable until the directories are synced. A storage that does not say how looks for
    /// the name first.
    ///
    /// # Errors
    /// `AlreadyExists` when there is anything at `to`; whatever the system says.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.exists(to)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }

    /// Has two names in one directory change what they stand for, as one step: at every moment, and
    /// after a power cut, each stands for one of the two. Not durable until the directory is
    /// synced. A storage that does not say how refuses.
    ///
    /// # Errors
    /// `Unsupported` where that cannot be, `NotFound`; whatever the system says. Nothing has
    /// changed.
    fn exchange(&self, _one: &Path, _other: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives the file `from` the name `to` as well, which nothing may have: one file with two
    /// names, each as good as the other. Not durable until the directory of `to` is synced. A
    /// storage that does not say how refuses. One that does has its files say
    /// [how many names](StorageFile::link_count) they have.
    ///
    /// # Errors
    /// `Unsupported` and `CrossesDevices` where that cannot be, `Unsupported` for a symbolic link;
    /// `AlreadyExists`, `NotFound`; whatever the system says.
    fn link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a name of a file; the file goes with its last one. Open handles stay usable.
    /// Not durable until the directory is synced.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// Whatever the system says.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Whatever the system says; the names are then durable or not.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates the lock file if need be and locks it until the returned value is dropped. One
    /// holder at a time, in this process or any other.
    ///
    /// # Errors
    /// `WouldBlock` when somebody holds it; whatever the system says.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>>;

    /// Locks the lock file for one that only reads, until the returned value is dropped: beside
    /// others of that kind, and not beside a holder of [`Storage::lock`]. Where there is no lock
    /// file and none can be made, as on what is mounted for reading, nothing is locked. A storage
    /// that does not say how lets one in at a time.
    ///
    /// # Errors
    /// `WouldBlock` when somebody holds it alone; whatever the system says.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.lock(path)
    }

    /// Locks a directory itself until the returned value is dropped, as [`Storage::lock`] does a
    /// file: a lock file can be removed and made anew while somebody holds it. None where the
    /// system cannot, and from a storage that does not say how.
    ///
    /// # Errors
    /// `WouldBlock` when somebody holds it; whatever the system says.
    fn lock_dir(&self, _path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        Ok(None)
    }

    /// The same for one that only reads, as [`Storage::lock_shared`].
    ///
    /// # Errors
    /// `WouldBlock` when somebody holds it alone; whatever the system says.
    fn lock_dir_shared(&self, _path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        Ok(None)
    }

    /// Whether there is anything at `path`.
    ///
    /// # Errors
    /// Whatever the system says.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The path from the root on, without symbolic links and `..`, of what is at `path`: whatever
    /// it is in is in front of it. A storage that does not say how gives the path as it is.
    ///
    /// # Errors
    /// `NotFound`, also for a link that leads nowhere; whatever the system says.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// Bytes that can be had at most beside what is in use, where `path` is; `None` where that is
    /// not known, as by a storage that does not say how. That there are so many does not say that
    /// who asks may have them: there are quotas.
    ///
    /// # Errors
    /// Whatever the system says.
    fn room(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// What the contents of files are sealed with, by those who write and read them, if they are.
    /// The database puts it there; a storage knows nothing of it.
    #[doc(hidden)]
    fn keyring(&self) -> Option<&Arc<Keyring>> {
        None
    }

    /// Gives what is at `path` to the owner of what is at `of`, if it is not that one's. A storage
    /// that does not say how has no owners.
    ///
    /// # Errors
    /// `PermissionDenied` where that is not allowed; whatever the system says.
    fn give_owner(&self, _path: &Path, _of: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Whether somebody else may be writing the files of the database: what they have not said is
    /// durable may not be. The database knows; a storage does not.
    #[doc(hidden)]
    fn is_beside(&self) -> bool {
        false
    }

    /// The lowest and the highest number of those who may be reading the files of the database
    /// beside its writer, so that nothing that they may need is to be destroyed in place; numbers
    /// rise, and are 0 and [`u64::MAX`] where they cannot be told. The database knows; a storage
    /// does not.
    #[doc(hidden)]
    fn followers(&self) -> Option<(u64, u64)> {
        None
    }
}

/// An open file.
pub trait StorageFile: Send + Sync + fmt::Debug {
    /// Reads at `offset`; fewer bytes than asked for only at the end of the file or when
    /// interrupted.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`Self::read_at`], by who takes a file as it is without knowing what is in it, and so
    /// reads holes, which are zeros. A storage that finds fault with reading these has to be told.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    fn read_as_is_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    /// Writes at `offset`; may write fewer bytes than given.
    ///
    /// # Errors
    /// Whatever the system says; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Size in bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn size(&self) -> io::Result<u64>;

    /// How many names the file has: see [`Storage::link`]. What is destroyed in one that has
    /// several is destroyed under all of them. To be said by storages whose files can have more
    /// than one.
    ///
    /// # Errors
    /// Whatever the system says.
    fn link_count(&self) -> io::Result<u64> {
        Ok(1)
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves room on the disk for `len` bytes and extends the file to at least that length, so
    /// that later writes within it cannot run out of space. Falls back to [`Self::set_len`] where
    /// the file system cannot reserve.
    ///
    /// # Errors
    /// `StorageFull` when there is no room; whatever the system says.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Gives the room of `size` bytes at `offset` back, as far as whole blocks of the file system
    /// lie in them. They read as zeros afterwards; the length stays. Until a sync, and without one,
    /// any of the blocks may be back as they were after a power cut.
    ///
    /// # Errors
    /// `Unsupported` where the system or the file system cannot; whatever the system says. Some of
    /// the bytes may then read as zeros.
    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()>;

    /// Asks the system to begin writing what was written to a range of the file, so that a sync
    /// that comes later has less to wait for. Nothing is durable by it; what goes wrong, the sync
    /// says.
    fn begin_writeback(&self, _offset: u64, _size: u64) {}

    /// Asks the system to begin reading a range of the file, so that a read of it that comes later
    /// has less to wait for. What goes wrong, that read says.
    fn begin_read(&self, _offset: u64, _size: u64) {}

    /// Makes contents and length durable.
    ///
    /// # Errors
    /// Whatever the system says. The contents are then lost or not, and a later success says
    /// nothing about them: never try again.
    fn sync(&self) -> io::Result<()>;

    /// Of a file that somebody else is appending to, and that is changed in memory alone: has it be
    /// as it is in front of `len`, with zeros behind that up to its present length. Any other file
    /// is that already, or will be when it is written to.
    ///
    /// # Errors
    /// Whatever the system says.
    #[doc(hidden)]
    fn keep_front(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Reads exactly `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends first; whatever the system says.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// `WriteZero` when the system takes no more; whatever it says. Some of the bytes may have
    /// been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Holds a lock until dropped.
pub trait StorageLock: Send + Sync + fmt::Debug {}

/// What an error says in front of whoever holds the lock.
const HELD_BY: &str = "the lock is held by ";

/// Opens a file that a caller has named, for reading: it may be a link to one. Also by which name
/// it was opened, without links.
pub(crate) fn open_named(
    storage: &dyn Storage,
    path: &Path,
) -> io::Result<(Arc<dyn StorageFile>, PathBuf)> {
    let refused = match storage.open(path, OpenMode::ReadOnly) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => error,
        opened => return opened.map(|file| (file, path.to_owned())),
    };
    match storage.resolve(path) {
        Ok(found) if found != path => Ok((storage.open(&found, OpenMode::ReadOnly)?, found)),
        _ => Err(refused),
    }
}

/// Every lock refuses in these words, so that messages can name the owner.
fn held_lock_error(owner: Option<u32>) -> io::Error {
    let owner = owner.map_or("another process".to_string(), |pid| format!("process {pid}"));
    io::Error::new(io::ErrorKind::WouldBlock, format!("{HELD_BY}{owner}"))
}

/// Every file that was opened for reading refuses changes in these words.
fn not_writable() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the file was opened for reading")
}
