//! Files in memory: for databases that need not outlive the process, and for fast tests.
//!
//! Owns a tree of files that all clones of a [`MemoryStorage`] share. `sync` has nothing to do:
//! whatever is written lives as long as the last clone. Must not know about crashes; the simulation
//! does.
//!
//! Names are guarded by one lock, contents by one lock per file, never both at once.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use super::content::{Content, check_range};
use super::locks::{Hold, Locks};
use super::names::{Names, NodeId};
use super::{DirEntry, OpenMode, Storage, StorageFile, StorageLock, not_writable};

/// Files in memory. Clones share them; they go with the last clone and the last open file.
///
/// ```
/// use lithedb::storage::{MemoryStorage, OpenMode, Storage};
/// use std::path::Path;
///
/// let storage = MemoryStorage::new();
/// let file = storage.open(Path::new("notes"), OpenMode::CreateNew)?;
/// file.write_all_at(b"hello", 0)?;
/// assert_eq!(storage.clone().list_dir(Path::new("/"))?[0].name, "notes");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryStorage {
    tree: Arc<Mutex<MemoryTree>>,
}

struct MemoryTree {
    names: Names,
    contents: BTreeMap<NodeId, Arc<RwLock<Content>>>,
    locks: Locks,
}

impl MemoryStorage {
    /// An empty tree.
    #[must_use]
    pub fn new() -> MemoryStorage {
        let names = Names::new();
        let (contents, locks) = (BTreeMap::new(), Locks::default());
        MemoryStorage { tree: Arc::new(Mutex::new(MemoryTree { names, contents, locks })) }
    }

    fn tree(&self) -> MutexGuard<'_, MemoryTree> {
        // The tree is whole between any two statements that can panic.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_lock(&self, path: &Path, hold: Hold) -> io::Result<Box<dyn StorageLock>> {
        let mut tree = self.tree();
        let id = match tree.names.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => tree.create(path)?,
            found => found?,
        };
        tree.locks.take(id, hold)?;
        Ok(Box::new(MemoryLock { storage: self.clone(), id }))
    }
}

impl Default for MemoryStorage {
    fn default() -> MemoryStorage {
        MemoryStorage::new()
    }
}

impl fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStorage").field("files", &self.tree().contents.len()).finish()
    }
}

impl MemoryTree {
    fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let (node, _) = self.names.create_file(path)?;
        self.contents.insert(node.id, Arc::default());
        Ok(node.id)
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let mut tree = self.tree();
        let id = match mode {
            OpenMode::CreateNew => tree.create(path)?,
            OpenMode::ReadWrite | OpenMode::ReadOnly => tree.names.find_file(path)?,
        };
        let content = tree.contents.get(&id).expect("a named file has contents").clone();
        Ok(Arc::new(MemoryFile { content, mode, id, tree: Arc::downgrade(&self.tree) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.tree().names.create_dir_all(path, &mut Vec::new())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().names.create_dir(path).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.tree();
        if let Some(renamed) = tree.names.rename(from, to)?
            && let Some(replaced) = renamed.replaced
            && !tree.names.is_named(replaced.id)
        {
            tree.contents.remove(&replaced.id);
        }
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree().names.rename_new(from, to).map(drop)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.tree().names.exchange(one, other).map(drop)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree().names.link(from, to).map(drop)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut tree = self.tree();
        let (node, _) = tree.names.remove_file(path)?;
        if !tree.names.is_named(node.id) {
            tree.contents.remove(&node.id);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().names.remove_dir(path).map(|_| ())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.tree().names.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().names.directory_at(path).map(|_| ())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.take_lock(path, Hold::Alone)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.take_lock(path, Hold::Shared)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.tree().names.exists(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.tree().names.resolve(path)
    }
}

/// An open file: it keeps its contents when the name goes.
struct MemoryFile {
    content: Arc<RwLock<Content>>,
    mode: OpenMode,
    id: NodeId,
    /// Where its names are; gone with the last of the clones.
    tree: Weak<Mutex<MemoryTree>>,
}

impl MemoryFile {
    fn change<T>(&self, change: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        if self.mode == OpenMode::ReadOnly {
            return Err(not_writable());
        }
        Ok(change(&mut self.content.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn look<T>(&self, look: impl FnOnce(&Content) -> T) -> T {
        look(&self.content.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.look(Content::len);
        f.debug_struct("MemoryFile").field("size", &size).field("mode", &self.mode).finish()
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        check_range(offset, buffer.len() as u64)?;
        Ok(self.look(|content| content.read_at(buffer, offset)))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        check_range(offset, bytes.len() as u64)?;
        self.change(|content| content.write_at(bytes, offset))?;
        Ok(bytes.len())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.look(Content::len))
    }

    fn link_count(&self) -> io::Result<u64> {
        let Some(tree) = self.tree.upgrade() else { return Ok(0) };
        let tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(tree.names.name_count(self.id))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check_range(0, len)?;
        self.change(|content| content.set_len(len))
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        check_range(0, len)?;
        self.change(|content| content.reserve(len))
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        check_range(offset, size)?;
        self.change(|content| content.punch_hole(offset, size))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryLock {
    storage: MemoryStorage,
    id: NodeId,
}

impl StorageLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.storage.tree().locks.give_back(self.id);
    }
}
