//! The operating system's files.
//!
//! Owns every call of `std::fs` in the library. Files are for the owner alone (0600, directories
//! 0700) and are not inherited by child processes (the standard library opens with `O_CLOEXEC`).
//! What is opened is a file, and the one of that name: no symbolic link, which could lead to
//! somebody else's (`O_NOFOLLOW`), and no pipe or device, on which an opening would wait for ever
//! (`O_NONBLOCK`, which means nothing for files). Links on the way to the directory are followed:
//! where a database lies is its owner's choice. So are those that [`Storage::resolve`] is asked
//! for, of files that a caller names.
//!
//! What holds T1 to T3 of the module up
//! - `sync` is fdatasync: it covers the length, which is needed to read the data back, and leaves
//!   out times, which nobody reads.
//! - `sync_dir` is fsync of the opened directory.
//! - Failures are handed on as they are: nothing here tries a second time.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_os = "linux")]
use rustix::fs::{Advice, CWD, RenameFlags, renameat_with};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::{DirEntry, EntryType, OpenMode};
use super::{Storage, StorageFile, StorageLock, held_lock_error, not_writable};

const FILE_PERMISSIONS: u32 = 0o600;
const DIRECTORY_PERMISSIONS: u32 = 0o700;
/// How often a lock file may be replaced while it is being locked.
const LOCK_ATTEMPTS_MAX: u32 = 16;
/// More than the decimal digits of any process number.
const PID_SIZE_MAX: usize = 20;

/// The operating system's files.
///
/// ```
/// use lithedb::storage::{OpenMode, OsStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let storage = OsStorage::new();
/// let file = storage.open(&directory.path().join("notes"), OpenMode::CreateNew)?;
/// file.write_all_at(b"hello", 0)?;
/// file.sync()?;
/// storage.sync_dir(directory.path())?; // Only now does the name survive a power cut too.
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OsStorage;

impl OsStorage {
    /// The operating system's files.
    #[must_use]
    pub fn new() -> OsStorage {
        OsStorage
    }
}

impl Storage for OsStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_PERMISSIONS).custom_flags(only_a_file());
        match mode {
            OpenMode::CreateNew => options.write(true).create_new(true),
            OpenMode::ReadWrite => options.write(true),
            OpenMode::ReadOnly => &mut options,
        };
        let file = options.open(path)?;
        check_is_file(&file)?;
        Ok(Arc::new(OsFile { file, mode }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_PERMISSIONS).create(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(DIRECTORY_PERMISSIONS).create(path)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the storage that others go through")]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not every kernel and file system can.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            renamed => return renamed.map_err(io::Error::from),
        }
        if self.exists(to)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }

    #[cfg(target_os = "linux")]
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            // Not every kernel and file system can. So says one, too, when one is within the other.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let (one, other) = (self.resolve(one)?, self.resolve(other)?);
                match one.starts_with(&other) || other.starts_with(&one) {
                    true => Err(io::ErrorKind::InvalidInput.into()),
                    false => Err(io::ErrorKind::Unsupported.into()),
                }
            }
            exchanged => exchanged.map_err(io::Error::from),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        // It would be the symbolic link that gets another name.
        if fs::symlink_metadata(from)?.is_symlink() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let file_type = entry.file_type()?;
            entries.push(DirEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                entry_type: if file_type.is_file() {
                    EntryType::File
                } else if file_type.is_dir() {
                    EntryType::Directory
                } else {
                    EntryType::Other
                },
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let must_be_directory = OFlags::DIRECTORY.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(must_be_directory).open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        for _ in 0..LOCK_ATTEMPTS_MAX {
            let file = open_lock_file(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(held_lock_error(holder_of(&file))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Somebody may have removed or replaced the file between the two calls: then this
            // locks a file that nobody else will ever see.
            if is_at(&file, path)? {
                // The number only serves a message; a full disk must not keep anybody out.
                let _ = write_owner(&file);
                return Ok(Box::new(OsLock::of(file)));
            }
        }
        Err(held_lock_error(None))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        for _ in 0..LOCK_ATTEMPTS_MAX {
            let Some(file) = open_lock_file_to_share(path)? else {
                return Ok(Box::new(NoLock));
            };
            match file.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(held_lock_error(owner_of(&file))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if is_at(&file, path)? {
                return Ok(Box::new(OsLock::of(file)));
            }
        }
        Err(held_lock_error(None))
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        lock_opened_dir(path, File::try_lock)
    }

    fn lock_dir_shared(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        lock_opened_dir(path, File::try_lock_shared)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn give_owner(&self, path: &Path, of: &Path) -> io::Result<()> {
        let (own, other) = (fs::symlink_metadata(path)?, fs::metadata(of)?);
        match own.uid() == other.uid() {
            true => Ok(()),
            false => std::os::unix::fs::lchown(path, Some(other.uid()), Some(other.gid())),
        }
    }

    /// All that is free, also what is kept for some users: this may be one of them.
    fn room(&self, path: &Path) -> io::Result<Option<u64>> {
        let found = rustix::fs::statvfs(path)?;
        // Some file systems say nothing, which is zeros.
        let is_known = found.f_blocks > 0 && found.f_frsize > 0;
        Ok(is_known.then(|| found.f_bfree.saturating_mul(found.f_frsize)))
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    // A link in the place of the lock file could make this empty somebody else's file.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_PERMISSIONS)
        .custom_flags(only_a_file())
        .open(path)?;
    check_is_file(&file).map(|()| file)
}

/// The lock file, for reading; made if it can be made, none if there is none.
fn open_lock_file_to_share(path: &Path) -> io::Result<Option<File>> {
    let opened = OpenOptions::new().read(true).custom_flags(only_a_file()).open(path);
    match opened.and_then(|file| check_is_file(&file).map(|()| file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match open_lock_file(path) {
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::StorageFull => Ok(None),
                _ => Err(error),
            },
            made => made.map(Some),
        },
        opened => opened.map(Some),
    }
}

/// A directory, opened and locked; none where it cannot be opened, or the file system locks only
/// what is opened for writing, as NFS does.
fn lock_opened_dir(
    path: &Path,
    try_lock: fn(&File) -> Result<(), TryLockError>,
) -> io::Result<Option<Box<dyn StorageLock>>> {
    let must_be_directory = OFlags::DIRECTORY.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(must_be_directory).open(path);
    let Ok(dir) = opened else { return Ok(None) };
    match try_lock(&dir) {
        Ok(()) => Ok(Some(Box::new(OsLock::of(dir)))),
        Err(TryLockError::WouldBlock) => Err(held_lock_error(None)),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Flags to open a file with, and nothing else.
fn only_a_file() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// Refuses what was opened and is no regular file. (Linux opens a directory for reading and only
/// fails the reads.)
fn check_is_file(file: &File) -> io::Result<()> {
    let file_type = file.metadata()?.file_type();
    if file_type.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match file_type.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let locked = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((locked.dev(), locked.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_owner(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
}

/// The process that holds a lock alone. Those who share it write nothing: the file then names
/// whoever held it last.
fn holder_of(file: &File) -> Option<u32> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().ok().and(None),
        Err(_) => owner_of(file),
    }
}

/// The process that a lock file names; `None` while its owner has not written it yet.
fn owner_of(file: &File) -> Option<u32> {
    let mut text = [0; PID_SIZE_MAX];
    let size = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..size]).ok()?.trim().parse().ok()
}

#[derive(Debug)]
struct OsFile {
    file: File,
    mode: OpenMode,
}

impl OsFile {
    fn for_writing(&self) -> io::Result<&File> {
        match self.mode {
            OpenMode::CreateNew | OpenMode::ReadWrite => Ok(&self.file),
            OpenMode::ReadOnly => Err(not_writable()),
        }
    }
}

impl StorageFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.for_writing()?.write_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    fn link_count(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.nlink())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.for_writing()?.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let file = self.for_writing()?;
        if len == 0 {
            return Ok(()); // The system call refuses an empty range.
        }
        loop {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.size()? < len { file.set_len(len) } else { Ok(()) }
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        let file = self.for_writing()?;
        if size == 0 {
            return Ok(()); // The system call refuses an empty range.
        }
        punch_hole(file, offset, size)
    }

    #[cfg(target_os = "linux")]
    fn begin_writeback(&self, offset: u64, size: u64) {
        // Linux begins to write what is dirty in a range that is said not to be needed, without
        // waiting; and what is being written stays in its cache.
        let size = std::num::NonZeroU64::new(size);
        let _only_a_hint = rustix::fs::fadvise(&self.file, offset, size, Advice::DontNeed);
    }

    #[cfg(target_os = "linux")]
    fn begin_read(&self, offset: u64, size: u64) {
        // Linux begins no more of a range than it reads ahead of a scan.
        const PIECE: u64 = 128 << 10;
        let end = offset.saturating_add(size);
        for from in (offset..end).step_by(PIECE as usize) {
            let size = std::num::NonZeroU64::new(PIECE.min(end - from));
            let _only_a_hint = rustix::fs::fadvise(&self.file, from, size, Advice::WillNeed);
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(target_os = "linux")]
fn punch_hole(file: &File, offset: u64, size: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match rustix::fs::fallocate(file, flags, offset, size) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            // Which of these says it depends on the file system.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn punch_hole(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The system releases the lock when the last descriptor of this opening is closed. That may be a
/// while: a process that is about to be another program has them all until it is.
#[derive(Debug)]
struct OsLock {
    file: File,
    /// Who has it. What was forked has the lock as well, and must not release it for both.
    process: u32,
}

impl OsLock {
    fn of(file: File) -> OsLock {
        OsLock { file, process: std::process::id() }
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            // Where this fails, closing the file does it.
            let _ = self.file.unlock();
        }
    }
}

/// In the place of a lock that nobody could have either.
#[derive(Debug)]
struct NoLock;

impl StorageLock for NoLock {}

impl StorageLock for OsLock {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_and_directories_are_for_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("a/b");
        OsStorage.create_dir_all(&inner).unwrap();
        OsStorage.open(&inner.join("file"), OpenMode::CreateNew).unwrap();
        let _lock = OsStorage.lock(&inner.join("LOCK")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&inner), DIRECTORY_PERMISSIONS);
        assert_eq!(mode(&inner.join("file")), FILE_PERMISSIONS);
        assert_eq!(mode(&inner.join("LOCK")), FILE_PERMISSIONS);
    }

    #[test]
    fn a_refused_lock_names_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let lock = OsStorage.lock(&path).unwrap();
        let error = OsStorage.lock(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())));
        drop(lock);
        OsStorage.lock(&path).unwrap();
    }

    #[test]
    fn a_lock_that_is_shared_is_not_said_to_be_of_who_held_it_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        drop(OsStorage.lock(&path).unwrap());
        let _shared = OsStorage.lock_shared(&path).unwrap();
        let error = OsStorage.lock(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().ends_with("another process"), "{error}");
        OsStorage.lock_shared(&path).unwrap();
    }

    #[test]
    fn a_lock_is_released_beside_copies_of_its_descriptor_by_whoever_took_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        // Such as a process has that was forked.
        let locked = || {
            let file = open_lock_file(&path).unwrap();
            file.try_lock().unwrap();
            (file.try_clone().unwrap(), OsLock::of(file))
        };
        let (_copy, lock) = locked();
        drop(lock);
        OsStorage.lock(&path).unwrap();

        let (copy, mut lock) = locked();
        lock.process = 0; // Another one.
        drop(lock);
        assert_eq!(OsStorage.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(copy);
        OsStorage.lock(&path).unwrap();
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        OsStorage.open(&victim, OpenMode::CreateNew).unwrap().write_all_at(b"kept", 0).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join("LOCK")).unwrap();
        OsStorage.lock(&directory.path().join("LOCK")).unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }

    #[test]
    fn a_link_is_not_opened_and_what_it_leads_to_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        OsStorage.open(&victim, OpenMode::CreateNew).unwrap().write_all_at(b"kept", 0).unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        for mode in [OpenMode::CreateNew, OpenMode::ReadWrite, OpenMode::ReadOnly] {
            OsStorage.open(&link, mode).unwrap_err();
        }
        OsStorage.lock_shared(&link).unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        // A name that its owner gives may be a link, and is followed when it is resolved.
        let found = OsStorage.resolve(&link).unwrap();
        OsStorage.open(&found, OpenMode::ReadOnly).unwrap();
        // So is a directory on the way.
        let to_directory = directory.path().join("to-directory");
        std::os::unix::fs::symlink(directory.path(), &to_directory).unwrap();
        OsStorage.open(&to_directory.join("victim"), OpenMode::ReadWrite).unwrap();
    }

    /// An opening for reading waits for a writer otherwise.
    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/null")] {
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                let error = OsStorage.open(path, mode).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}: {error}");
            }
            let error = OsStorage.lock_shared(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}: {error}");
            OsStorage.lock(path).unwrap_err();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_are_not_handed_on_to_other_programs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a-file-of-the-store");
        let _file = OsStorage.open(&path, OpenMode::CreateNew).unwrap();
        let _lock = OsStorage.lock(&directory.path().join("LOCK")).unwrap();
        let shown = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output();
        let Ok(shown) = shown else { return };
        let shown = String::from_utf8(shown.stdout).unwrap();
        let name = directory.path().to_str().unwrap();
        assert!(!shown.contains(name), "{shown}");
    }

    #[test]
    fn the_room_is_that_of_the_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let storage = OsStorage::new();
        if let Some(room) = storage.room(directory.path()).unwrap() {
            let found = rustix::fs::statvfs(directory.path()).unwrap();
            assert!(room <= found.f_blocks.saturating_mul(found.f_frsize));
        }
        let absent = storage.room(&directory.path().join("absent"));
        assert_eq!(absent.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn preallocation_reserves_blocks_and_never_shrinks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = OsStorage.open(&path, OpenMode::CreateNew).unwrap();
        file.preallocate(0).unwrap();
        file.preallocate(1 << 20).unwrap();
        file.preallocate(1 << 10).unwrap();
        assert_eq!(file.size().unwrap(), 1 << 20);
        let mut bytes = [1; 64];
        file.read_exact_at(&mut bytes, (1 << 20) - 64).unwrap();
        assert_eq!(bytes, [0; 64]);
    }

    #[test]
    fn a_hole_gives_its_blocks_back_and_keeps_the_length() {
        const MIB: u64 = 1 << 20;
        const BLOCK_SIZE_OF_STAT: u64 = 512;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = OsStorage.open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(&vec![7; 2 * MIB as usize], 0).unwrap();
        file.sync().unwrap();
        file.punch_hole(0, 0).unwrap();
        match file.punch_hole(MIB / 2, MIB) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            punched => punched.unwrap(),
        }
        assert_eq!(file.size().unwrap(), 2 * MIB);
        assert!(fs::metadata(&path).unwrap().blocks() * BLOCK_SIZE_OF_STAT < MIB + MIB / 2);
        let mut bytes = [1; 4];
        file.read_exact_at(&mut bytes, MIB / 2 - 2).unwrap();
        assert_eq!(bytes, [7, 7, 0, 0]);
        file.read_exact_at(&mut bytes, MIB / 2 + MIB - 2).unwrap();
        assert_eq!(bytes, [0, 0, 7, 7]);
    }
}
