//! Reading intervals: frames from segments, runs merged into one block, the block kept in its slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::interval::{Interval, Run};
use crate::base::{Cursor, EntryKind, Result};
use crate::block::{Block, BlockBuilder, BlockCursor, FrameKind, FramePlace, RestartPolicy, frame};
use crate::cache::{Admission, Cache};
use crate::merge::MergeCursor;

/// Reads intervals of one keyspace through the cache.
#[derive(Debug)]
pub(super) struct Loader {
    cache: Arc<Cache<Block>>,
    blocks_read: AtomicU64,
    block_bytes_read: AtomicU64,
}

impl Loader {
    pub(super) fn new(cache: Arc<Cache<Block>>) -> Loader {
        Loader { cache, blocks_read: AtomicU64::new(0), block_bytes_read: AtomicU64::new(0) }
    }

    /// Frames and bytes read so far.
    pub(super) fn reads(&self) -> (u64, u64) {
        (self.blocks_read.load(Ordering::Relaxed), self.block_bytes_read.load(Ordering::Relaxed))
    }

    /// Applies `look` to the interval's merged block. When the block is in memory this takes no
    /// reference count, which readers on several cores would contend for.
    pub(super) fn with_block<T>(
        &self,
        interval: &Interval,
        look: impl FnOnce(&Block) -> T,
    ) -> Result<T> {
        if let Some(block) = self.cache.borrow(&interval.slot, Admission::Normal) {
            return Ok(look(&block));
        }
        let block = self.load_and_keep(interval, Admission::Normal)?;
        Ok(look(&block))
    }

    /// The interval's entries, merged.
    pub(super) fn block(&self, interval: &Interval, admission: Admission) -> Result<Arc<Block>> {
        match self.cache.load(&interval.slot, admission) {
            Some(block) => Ok(block),
            None => self.load_and_keep(interval, admission),
        }
    }

    /// As [`Self::block`] for maintenance: uses what is in memory, keeps nothing new there.
    pub(super) fn block_in_passing(&self, interval: &Interval) -> Result<Arc<Block>> {
        match self.cache.load(&interval.slot, Admission::OnceRead) {
            Some(block) => Ok(block),
            None => self.merge_runs(interval),
        }
    }

    fn load_and_keep(&self, interval: &Interval, admission: Admission) -> Result<Arc<Block>> {
        let block = self.merge_runs(interval)?;
        let weight = block.memory_size();
        self.cache.fill(&interval.slot, Arc::clone(&block), weight, admission);
        Ok(block)
    }

    fn merge_runs(&self, interval: &Interval) -> Result<Arc<Block>> {
        if interval.run_count() == 1 {
            let run = interval.runs().next().expect("there is one");
            return self.read_run(run);
        }
        let newest_first = interval.runs().rev();
        let cursors = newest_first
            .map(|run| self.read_run(run).map(BlockCursor::new))
            .collect::<Result<Vec<_>>>()?;
        // All runs of the interval are here, so a tombstone has nothing left to hide.
        let mut builder = BlockBuilder::new(RestartPolicy::Whole);
        let mut merged = MergeCursor::new(cursors);
        merged.seek_first()?;
        while let Some(entry) = merged.entry() {
            if entry.kind != EntryKind::Tombstone {
                builder.add(entry)?;
            }
            merged.next()?;
        }
        Ok(Arc::new(builder.finish_block()))
    }

    /// Reads and checks one run.
    pub(super) fn read_run(&self, run: &Run) -> Result<Arc<Block>> {
        let file = run.segment.file()?;
        let place = FramePlace {
            file: &run.segment.path,
            file_tag: run.segment.file_tag,
            offset: run.offset,
        };
        let payload =
            frame::read(&*file, run.len as usize, FrameKind::Entries, place, run.checksum)?;
        self.blocks_read.fetch_add(1, Ordering::Relaxed);
        self.block_bytes_read.fetch_add(u64::from(run.len), Ordering::Relaxed);
        let frame::Payload { data, range } = payload;
        Ok(Arc::new(Block::parse(data, range, place)?))
    }
}
