//! A storage that somebody looks at: a hook sees every call that changes the disk, before it is
//! done.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::storage::{
    DirEntry, OpenMode, Operation, SimStorage, Storage, StorageFile, StorageLock,
};

/// A call that is about to change the disk, or what of it is durable.
#[derive(Clone, Copy, Debug)]
pub struct Mutation<'a> {
    /// Its kind.
    pub operation: Operation,
    /// The file or directory; of a rename and a link the old name.
    pub path: &'a Path,
    /// Of a write: offset and bytes.
    pub write: Option<(u64, &'a [u8])>,
}

/// Looks at a mutation before it is done. It may crash copies of the storage, and open databases
/// on them.
pub type Hook = Arc<dyn Fn(&Mutation<'_>) + Send + Sync>;

/// A simulated storage with a hook.
#[derive(Clone)]
pub struct WatchedStorage {
    inner: SimStorage,
    hook: Hook,
}

impl WatchedStorage {
    /// `inner`, with `hook` called before every mutation.
    #[must_use]
    pub fn new(inner: SimStorage, hook: Hook) -> WatchedStorage {
        WatchedStorage { inner, hook }
    }

    fn announce(&self, operation: Operation, path: &Path) {
        (self.hook)(&Mutation { operation, path, write: None });
    }
}

impl fmt::Debug for WatchedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedStorage").field(&self.inner).finish()
    }
}

impl Storage for WatchedStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if mode == OpenMode::CreateNew {
            self.announce(Operation::Create, path);
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(WatchedFile { inner, path: path.to_owned(), hook: Arc::clone(&self.hook) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.announce(Operation::CreateDir, path);
        self.inner.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.announce(Operation::CreateDir, path);
        self.inner.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(Operation::Rename, from);
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(Operation::Rename, from);
        self.inner.rename_new(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.announce(Operation::Rename, one);
        self.inner.exchange(one, other)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(Operation::Link, from);
        self.inner.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.announce(Operation::Remove, path);
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.announce(Operation::RemoveDir, path);
        self.inner.remove_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.announce(Operation::SyncDir, path);
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.inner.lock_shared(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn room(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.room(path)
    }
}

struct WatchedFile {
    inner: Arc<dyn StorageFile>,
    path: PathBuf,
    hook: Hook,
}

impl WatchedFile {
    fn announce(&self, operation: Operation) {
        (self.hook)(&Mutation { operation, path: &self.path, write: None });
    }
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedFile").field(&self.path).finish()
    }
}

impl StorageFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let write = Some((offset, bytes));
        (self.hook)(&Mutation { operation: Operation::Write, path: &self.path, write });
        self.inner.write_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_as_is_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_as_is_at(buffer, offset)
    }

    fn link_count(&self) -> io::Result<u64> {
        self.inner.link_count()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.announce(Operation::SetLen);
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.announce(Operation::Preallocate);
        self.inner.preallocate(len)
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        self.announce(Operation::PunchHole);
        self.inner.punch_hole(offset, size)
    }

    fn sync(&self) -> io::Result<()> {
        self.announce(Operation::Sync);
        self.inner.sync()
    }
}
