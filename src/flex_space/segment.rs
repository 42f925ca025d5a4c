//! Segments: the files that the bytes of a space are in.
//!
//! Owns the files `seg-<number>` of a space's directory, and how many of them are open. Must not
//! know extents.
//!
//! A segment is appended to by the one [`SegmentWriter`](super::writer::SegmentWriter) that made
//! it, and read by anyone. It is removed when neither the durable index nor a snapshot needs it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::block::{self, BLOCK_DATA, BLOCK_SIZE, SegmentId};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::base::{Error, Result};
use crate::storage::{
    KeptOpen, NumberedNames, OpenFiles, OpenMode, Storage, StorageFile, StorageLock,
};

const NAMES: NumberedNames = NumberedNames("seg-");
/// Bytes read at once, at most.
const READ_SIZE: u64 = 256 << 10;

/// The directory of a space, and what is shared by all that reads from it.
#[derive(Debug)]
pub(super) struct Place {
    // Constant after open.
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub space: u64,
    /// Held as long as anything can be read: a space that is opened again cuts files. None where
    /// nothing can be written.
    _lock: Option<Box<dyn StorageLock>>,
    // Guarded by their locks.
    pub open: OpenFiles<Segment>,
    /// Files that nothing refers to any more.
    doomed: Mutex<Vec<PathBuf>>,
    /// Numbers of segments that only snapshots refer to.
    kept: Mutex<BTreeSet<u32>>,
}

impl Place {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        dir: PathBuf,
        space: u64,
        open_file_count_max: usize,
        lock: Option<Box<dyn StorageLock>>,
    ) -> Arc<Place> {
        Arc::new(Place {
            storage,
            dir,
            space,
            _lock: lock,
            open: OpenFiles::new(open_file_count_max),
            doomed: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    pub(super) fn path_of(&self, number: u32) -> PathBuf {
        self.dir.join(NAMES.name(number.into()))
    }

    /// Removes files that nothing refers to any more; how many. One that cannot be removed now is
    /// an orphan, which the next opening removes.
    pub(super) fn remove_doomed(&self) -> u64 {
        let doomed = std::mem::take(&mut *lock(&self.doomed));
        let removed = doomed.iter().filter(|path| self.storage.remove_file(path).is_ok());
        removed.count() as u64
    }

    /// Whether a snapshot still needs the segment of that number, or it is about to be removed.
    pub(super) fn is_on_its_way_out(&self, number: u32) -> bool {
        lock(&self.kept).contains(&number) || lock(&self.doomed).contains(&self.path_of(number))
    }

    /// The numbers of the segment files that are there, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u32>> {
        numbers_in(&*self.storage, &self.dir)
    }
}

/// The numbers of the segment files in a directory, ascending.
pub(super) fn numbers_in(storage: &dyn Storage, dir: &Path) -> Result<Vec<u32>> {
    let numbers = NAMES.numbers_in(storage, dir)?.into_iter();
    Ok(numbers.filter_map(|number| number.try_into().ok()).collect())
}

/// A segment, as layouts and snapshots refer to it. The last reference to a retired one dooms its
/// file.
#[derive(Debug)]
pub(super) struct Segment {
    // Constant.
    pub number: u32,
    pub tag: u64,
    pub path: PathBuf,
    place: Arc<Place>,
    // Atomic.
    file: KeptOpen,
    retired: AtomicBool,
}

impl AsRef<KeptOpen> for Segment {
    fn as_ref(&self) -> &KeptOpen {
        &self.file
    }
}

impl Segment {
    /// A segment that exists or is being made. It is looked at when it is first read.
    pub(super) fn new(place: &Arc<Place>, number: u32) -> Arc<Segment> {
        Arc::new(Segment {
            number,
            tag: SegmentId { space: place.space, number }.tag(),
            path: place.path_of(number),
            place: Arc::clone(place),
            file: KeptOpen::default(),
            retired: AtomicBool::new(false),
        })
    }

    pub(super) fn id(&self) -> SegmentId {
        SegmentId { space: self.place.space, number: self.number }
    }

    /// Reads the data at `offset`, and verifies every block that has some of it.
    pub(super) fn read(self: &Arc<Segment>, mut offset: u32, mut out: &mut [u8]) -> Result<()> {
        let file = self.file()?;
        let mut blocks = Vec::new();
        while !out.is_empty() {
            let end = offset + out.len() as u32;
            let range = block::blocks_of(offset..end);
            let size = (range.end - range.start).min(READ_SIZE);
            blocks.resize(size as usize, 0);
            self.read_file(&*file, &mut blocks, range.start)?;
            for (index, sealed) in blocks.chunks_exact(BLOCK_SIZE).enumerate() {
                let at = range.start + (index * BLOCK_SIZE) as u64;
                let data = block::open(sealed, self.tag, at, &self.path)?;
                let data = &data[offset as usize % BLOCK_DATA..];
                let (now, later) = out.split_at_mut(data.len().min(out.len()));
                now.copy_from_slice(&data[..now.len()]);
                offset += now.len() as u32;
                out = later;
            }
        }
        Ok(())
    }

    fn read_file(&self, file: &dyn StorageFile, bytes: &mut [u8], offset: u64) -> Result<()> {
        file.read_exact_at(bytes, offset).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::corruption(&self.path, offset, "the file ends before its last block")
            }
            _ => Error::io("read", &self.path, source),
        })
    }

    /// The file, opened and its header checked if need be.
    fn file(self: &Arc<Segment>) -> Result<Arc<dyn StorageFile>> {
        if let Some(file) = self.file.file() {
            return Ok(file);
        }
        let file = self.open(OpenMode::ReadOnly)?;
        self.place.open.keep(self, &file);
        Ok(file)
    }

    /// Opens the file and checks its header.
    pub(super) fn open(&self, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let opened = self.place.storage.open(&self.path, mode);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::corruption(&self.path, 0, "the segment file is missing")
            }
            _ => Error::io("open", &self.path, error),
        })?;
        let mut header = vec![0; BLOCK_SIZE];
        self.read_file(&*file, &mut header, 0)?;
        block::check_header(&header, self.id(), &self.path)?;
        Ok(file)
    }

    /// Says that the durable index does not need the segment any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        lock(&self.place.kept).insert(self.number);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Acquire) {
            lock(&self.place.doomed).push(std::mem::take(&mut self.path));
            lock(&self.place.kept).remove(&self.number);
        }
    }
}

/// Locks a mutex whose data stays consistent whatever panicked while it was held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
