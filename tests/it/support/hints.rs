//! A storage that knows which parts of some files were announced before they were read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lithedb::storage::{DirEntry, MemoryStorage, OpenMode, Storage, StorageFile, StorageLock};

/// What was announced, by file, and how the reads compare.
#[derive(Debug, Default)]
struct Announced {
    ranges: BTreeMap<PathBuf, Vec<Range<u64>>>,
    /// Bytes that were announced since the last read, and the most of them at any time.
    at_once: u64,
    at_once_max: u64,
    reads: Reads,
}

/// Reads of the files that are watched, without those of their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    pub announced: usize,
    pub others: usize,
}

/// Files in memory.
#[derive(Clone, Debug)]
pub struct HintedStorage {
    inner: MemoryStorage,
    /// What the names of the files that are watched start with.
    watched: &'static str,
    announced: Arc<Mutex<Announced>>,
}

impl HintedStorage {
    /// Watches files whose names start so.
    pub fn watching(watched: &'static str) -> HintedStorage {
        HintedStorage { inner: MemoryStorage::new(), watched, announced: Arc::default() }
    }

    /// Reads since the last call.
    pub fn take_reads(&self) -> Reads {
        std::mem::take(&mut self.announced.lock().unwrap().reads)
    }

    /// The most bytes that were announced between two reads.
    pub fn announced_at_once_max(&self) -> u64 {
        self.announced.lock().unwrap().at_once_max
    }
}

impl Storage for HintedStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(path, mode)?;
        let name = path.file_name().and_then(OsStr::to_str);
        let is_watched = name.is_some_and(|name| name.starts_with(self.watched));
        let path = is_watched.then(|| path.to_owned());
        Ok(Arc::new(HintedFile { inner, path, announced: Arc::clone(&self.announced) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    /// And its files do not say how many names they have.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
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
}

#[derive(Debug)]
struct HintedFile {
    inner: Arc<dyn StorageFile>,
    /// If it is watched.
    path: Option<PathBuf>,
    announced: Arc<Mutex<Announced>>,
}

impl StorageFile for HintedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(path) = &self.path
            && offset > 0
        {
            let mut announced = self.announced.lock().unwrap();
            announced.at_once = 0;
            let ranges = announced.ranges.entry(path.clone()).or_default();
            let end = offset + buffer.len() as u64;
            let found = ranges.iter().position(|range| range.start <= offset && end <= range.end);
            if let Some(position) = found {
                let range = ranges.swap_remove(position);
                ranges.extend([range.start..offset, end..range.end]);
                ranges.retain(|range| !range.is_empty());
                announced.reads.announced += 1;
            } else {
                announced.reads.others += 1;
            }
        }
        self.inner.read_at(buffer, offset)
    }

    fn begin_read(&self, offset: u64, size: u64) {
        let Some(path) = self.path.clone() else { return };
        let mut announced = self.announced.lock().unwrap();
        let ranges = announced.ranges.entry(path).or_default();
        match ranges.iter_mut().find(|range| range.end == offset) {
            Some(range) => range.end += size, // A file may be announced part by part.
            None => ranges.push(offset..offset + size),
        }
        announced.at_once += size;
        announced.at_once_max = announced.at_once_max.max(announced.at_once);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.inner.preallocate(len)
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        self.inner.punch_hole(offset, size)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}
