//! What tables are read through.

use std::sync::Arc;

use super::format::FramePointer;
use super::partition::Partition;
use super::place::TableFile;
use crate::base::Result;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::block::{Block, Dictionary, FrameKind, Guide, frame};
use crate::cache::{Cache, MemoryBudget};
use crate::memory::Heap;
use crate::structure::SharedStores;

/// The caches of data blocks and of partitions, and what was read for them.
#[derive(Debug)]
pub struct TableCaches {
    /// Data blocks.
    pub blocks: Arc<Cache<Block>>,
    /// Partitions: a cache for indexes.
    pub partitions: Arc<Cache<Partition>>,
    /// Of keyspaces that are no tables: they give way to partitions.
    pub guides: Arc<Cache<Guide>>,
    reads: AtomicU64,
    bytes_read: AtomicU64,
}

impl TableCaches {
    /// Those that all keyspaces share.
    #[must_use]
    pub fn new(shared: &SharedStores) -> TableCaches {
        let SharedStores { cache, partitions, guides, .. } = shared;
        TableCaches::of(Arc::clone(cache), Arc::clone(partitions), Arc::clone(guides))
    }

    /// These caches.
    #[must_use]
    pub fn of(
        blocks: Arc<Cache<Block>>,
        partitions: Arc<Cache<Partition>>,
        guides: Arc<Cache<Guide>>,
    ) -> TableCaches {
        let (reads, bytes_read) = (AtomicU64::new(0), AtomicU64::new(0));
        TableCaches { blocks, partitions, guides, reads, bytes_read }
    }

    /// Reads of frames, and bytes read, since they were made. What walks that pass read at once is
    /// one.
    #[must_use]
    pub fn reads(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.bytes_read.load(Ordering::Relaxed))
    }

    /// Reads and checks one frame, which is not a data block.
    pub(super) fn read_frame(
        &self,
        file: &Arc<TableFile>,
        pointer: FramePointer,
        kind: FrameKind,
    ) -> Result<frame::Payload> {
        self.read_packed(file, pointer, kind, None)
    }

    /// Reads and checks one frame, which may be packed with the file's dictionary.
    pub(super) fn read_packed(
        &self,
        file: &Arc<TableFile>,
        pointer: FramePointer,
        kind: FrameKind,
        dictionary: Option<&Dictionary>,
    ) -> Result<frame::Payload> {
        let open = file.open()?;
        let (place, len) = (file.place_at(pointer.offset), pointer.len as usize);
        let payload =
            frame::read(&*open, len, kind, place, pointer.checksum, (dictionary, self.heap()))?;
        self.note_read(len);
        Ok(payload)
    }

    pub(super) fn note_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What memory is charged to.
    pub(in crate::structure::lsm) fn budget(&self) -> &Arc<MemoryBudget> {
        self.blocks.budget()
    }

    /// Where blocks live.
    pub(super) fn heap(&self) -> &Arc<Heap> {
        self.budget().heap()
    }
}
