//! A storage as one process has it: it can be shut, as by a kill, while others go on using what is
//! below; and something can happen in front of each of its calls.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lithedb::storage::{DirEntry, OpenMode, Storage, StorageFile, StorageLock};

type Hook = Box<dyn FnMut() + Send>;

#[derive(Default)]
struct Shared {
    is_shut: AtomicBool,
    hook: Mutex<Option<Hook>>,
}

/// The storage of one process.
#[derive(Clone)]
pub struct Port {
    below: Arc<dyn Storage>,
    shared: Arc<Shared>,
}

impl Port {
    pub fn new(below: Arc<dyn Storage>) -> Port {
        Port { below, shared: Arc::default() }
    }

    /// From now on every call fails and does nothing, but that locks are given back.
    pub fn shut(&self) {
        self.shared.is_shut.store(true, Ordering::SeqCst);
    }

    /// Has this happen in front of each call.
    pub fn in_front_of_calls(&self, hook: impl FnMut() + Send + 'static) {
        *self.shared.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Nothing happens in front of calls any more.
    pub fn undisturbed(&self) {
        *self.shared.hook.lock().unwrap() = None;
    }
}

impl Shared {
    fn begin(&self) -> io::Result<()> {
        // Taken out, so that what it does may come by here.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
            self.hook.lock().unwrap().get_or_insert(hook);
        }
        match self.is_shut.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the process was killed")),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").finish_non_exhaustive()
    }
}

impl Storage for Port {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.begin()?;
        let below = self.below.open(path, mode)?;
        Ok(Arc::new(PortFile { below, shared: Arc::clone(&self.shared) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.rename_new(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.exchange(one, other)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.remove_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.shared.begin()?;
        self.below.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.begin()?;
        self.below.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.shared.begin()?;
        self.below.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.shared.begin()?;
        self.below.lock_shared(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.shared.begin()?;
        self.below.exists(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.shared.begin()?;
        self.below.resolve(path)
    }
}

struct PortFile {
    below: Arc<dyn StorageFile>,
    shared: Arc<Shared>,
}

impl fmt::Debug for PortFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortFile").finish_non_exhaustive()
    }
}

impl StorageFile for PortFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.shared.begin()?;
        self.below.read_at(buffer, offset)
    }

    fn read_as_is_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.shared.begin()?;
        self.below.read_as_is_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.shared.begin()?;
        self.below.write_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.shared.begin()?;
        self.below.size()
    }

    fn link_count(&self) -> io::Result<u64> {
        self.shared.begin()?;
        self.below.link_count()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.begin()?;
        self.below.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.shared.begin()?;
        self.below.preallocate(len)
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        self.shared.begin()?;
        self.below.punch_hole(offset, size)
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.begin()?;
        self.below.sync()
    }
}
