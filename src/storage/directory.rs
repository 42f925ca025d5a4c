//! The directory of a database, or of a flexible space: made durably, and locked; and that of a
//! store, cleared away.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};

use super::{EntryType, HELD_BY, Storage, StorageLock};

/// Makes `dir` and what is missing above it, all of it durable, also what a creation that was
/// interrupted has left: of a directory that is there it is not known whether it is durable.
///
/// # Errors
/// [`Error::Io`], [`Error::DiskFull`].
pub(crate) fn make_directory(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let mut missing_count = 0;
    for path in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if storage.exists(path).map_err(|error| Error::io("look for", path, error))? {
            break;
        }
        missing_count += 1;
    }
    storage.create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
    for (index, parent) in dir.ancestors().skip(1).enumerate() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match storage.sync_dir(parent) {
            // Above what was made now, rights may be missing; then it is not ours to make durable.
            Err(error) if index < missing_count => return Err(Error::io("sync", parent, error)),
            _ => {}
        }
    }
    Ok(())
}

/// The lock file, which says whose it is, and the directory, which nobody removes by mistake: with
/// another lock file in the place of one that is held, two would write.
#[derive(Debug)]
struct DirectoryLock {
    _file: Box<dyn StorageLock>,
    _dir: Option<Box<dyn StorageLock>>,
}

impl StorageLock for DirectoryLock {}

/// Locks `dir` for this opening, until the lock is dropped.
///
/// # Errors
/// [`Error::Locked`] when it is locked, [`Error::Io`].
pub(crate) fn lock_directory(storage: &dyn Storage, dir: &Path) -> Result<Box<dyn StorageLock>> {
    locked(storage, dir, storage.lock_dir(dir), |path| storage.lock(path))
}

/// As [`lock_directory`], beside others who only read.
///
/// # Errors
/// [`Error::Locked`] when somebody has it alone, [`Error::Io`].
pub(crate) fn share_directory(storage: &dyn Storage, dir: &Path) -> Result<Box<dyn StorageLock>> {
    locked(storage, dir, storage.lock_dir_shared(dir), |path| storage.lock_shared(path))
}

/// Both locks, of which the directory's has been asked for.
fn locked(
    storage: &dyn Storage,
    dir: &Path,
    of_dir: io::Result<Option<Box<dyn StorageLock>>>,
    lock_file: impl FnOnce(&Path) -> io::Result<Box<dyn StorageLock>>,
) -> Result<Box<dyn StorageLock>> {
    let path = lock_in(dir);
    let both = match of_dir {
        Ok(_dir) => lock_file(&path).map(|_file| DirectoryLock { _file, _dir }),
        // Its file says who that is, if it is still the one that is held.
        Err(held) => Err(storage.lock_shared(&path).err().unwrap_or(held)),
    };
    match both {
        Ok(lock) => Ok(Box::new(lock)),
        Err(error) => Err(not_locked(path, error)),
    }
}

/// Removes a directory with the files in it, if it is there. What else is in it was not put there
/// by the store, and is left alone, with the directory. So is what a link in its place leads to:
/// all files would go there, be they of the store or not.
///
/// # Errors
/// [`Error::Io`]; some of the files are gone then.
pub(crate) fn clear_directory(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let io = |action, error| Error::io(action, dir, error);
    if !storage.exists(dir).map_err(|error| io("look for", error))? || is_link(storage, dir)? {
        return Ok(());
    }
    for entry in storage.list_dir(dir).map_err(|error| io("list", error))? {
        if entry.entry_type == EntryType::File {
            let path = dir.join(entry.name);
            storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
    }
    match storage.remove_dir(dir) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(io("remove", error)),
        _ => Ok(()),
    }
}

/// As [`clear_directory`]; on return no power cut brings back what has gone.
///
/// # Errors
/// [`Error::Io`]; some of the files are gone then.
pub(crate) fn clear_directory_for_good(storage: &dyn Storage, dir: &Path) -> Result<()> {
    clear_directory(storage, dir)?;
    // What others have put there keeps the directory.
    for path in [Some(dir), dir.parent()].into_iter().flatten() {
        if storage.exists(path).map_err(|error| Error::io("look for", path, error))? {
            storage.sync_dir(path).map_err(|error| Error::io("sync", path, error))?;
        }
    }
    Ok(())
}

/// Whether a directory that is there has its name by a link.
fn is_link(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(false) };
    let entries = storage.list_dir(parent).map_err(|error| Error::io("list", parent, error))?;
    let found = entries.iter().find(|entry| OsStr::new(&entry.name) == name);
    Ok(found.is_some_and(|entry| entry.entry_type == EntryType::Other))
}

fn lock_in(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

fn not_locked(path: PathBuf, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => {
            let what = error.to_string();
            let owner = what.strip_prefix(HELD_BY).unwrap_or(&what).to_owned();
            Error::Locked { path, owner }
        }
        _ => Error::io("lock", &path, error),
    }
}
