//! One budget of memory, and who uses how much of it.
//!
//! Counted are memtables, indexes with guides and what is kept for counts, parts of indexes that
//! are read again when they are wanted, cached blocks, open transactions, and buffers: that of the
//! log, those of flushes and ingests with the records of runs that are in no edit yet, chunks and
//! checksums of values that are read or written in parts. Blocks that only walks, slices and
//! background work hold, and what the heap has unused, are counted by the heap.
//!
//! Not counted: values that were read whole, and batches, which are their owners'; intervals that
//! only older versions hold, a slice's changes at a time unless something holds these; the buffers
//! of replay; file handles; what the allocator keeps. Resident memory of a process has all of that
//! and the program's own pages beside the budget.
//!
//! Invariant
//! - M1  The usage of a part is the sum of its living [`Charge`]s.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use crate::memory::Heap;

/// The cache keeps at least the limit over this, however much the other parts take.
const CACHE_FLOOR_FRACTION: usize = 16;
/// What is kept beside the indexes, and they, may take the limit over this.
const INDEX_FRACTION: usize = 2;
const PART_COUNT: usize = 6;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Recent writes.
    Memtable = 0,
    /// Blocks kept for later reads: what gives way to the others.
    Cache = 1,
    /// Indexes and filters.
    Index = 2,
    /// What open transactions have read and written.
    Transaction = 3,
    /// Buffers of the log, of flushes and ingests, of values that are read or written in parts.
    Buffer = 4,
    /// Indexes and filters that are read again when they are wanted: what gives way to those that
    /// are not.
    CachedIndex = 5,
}

/// A limit and the usage below it. Shared; any number of databases may share one.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    used: [PaddedUsage; PART_COUNT],
    /// Where the bytes of cached values live.
    heap: Arc<Heap>,
}

/// On a line of its own: parts are counted by different threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedUsage(AtomicUsize);

impl MemoryBudget {
    /// A budget of `limit` bytes, all of it free.
    #[must_use]
    pub fn new(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { limit, used: Default::default(), heap: Heap::new() })
    }

    /// Counts `bytes` as used by `part` until the charge is dropped. Never refused: the budget
    /// counts, and those who fill memory ask it when to stop.
    #[must_use]
    pub fn charge(self: &Arc<MemoryBudget>, part: Part, bytes: usize) -> Charge {
        self.usage_of(part).fetch_add(bytes, Ordering::Relaxed);
        Charge { budget: Arc::clone(self), part, bytes }
    }

    /// Bytes used by one part.
    #[must_use]
    pub fn usage(&self, part: Part) -> usize {
        self.usage_of(part).load(Ordering::Relaxed)
    }

    /// Bytes used by all parts.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        let cached = [Part::Cache, Part::CachedIndex];
        let parts = [Part::Memtable, Part::Index, Part::Transaction, Part::Buffer];
        parts.iter().chain(&cached).map(|&part| self.usage(part)).sum()
    }

    /// Where the bytes of cached values live. What it has and nobody uses counts, too.
    #[inline]
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether `bytes` more that save reads may be kept beside the indexes. They are not evicted,
    /// so their room is bounded: half of the limit, with the indexes.
    #[must_use]
    pub fn admits_beside_index(&self, bytes: usize) -> bool {
        self.usage(Part::Index) + bytes <= self.limit / INDEX_FRACTION
    }

    /// Bytes that the cache may use now.
    #[must_use]
    pub fn cache_target(&self) -> usize {
        let indexes = [Part::Index, Part::CachedIndex];
        let others = [Part::Memtable, Part::Transaction, Part::Buffer];
        let others = others.iter().chain(&indexes);
        let others: usize = others.map(|&part| self.usage(part)).sum();
        cache_target(self.limit, others + self.heap.unused())
    }

    /// Bytes that indexes which are read again when they are wanted may use now: what those that
    /// are not leave of half of the limit.
    #[must_use]
    pub fn index_target(&self) -> usize {
        cache_target(self.limit / INDEX_FRACTION, self.usage(Part::Index))
    }

    fn usage_of(&self, part: Part) -> &AtomicUsize {
        &self.used[part as usize].0
    }
}

/// What the other parts leave to a cache, at least a sixteenth of the limit.
fn cache_target(limit: usize, others: usize) -> usize {
    limit.saturating_sub(others).max(limit / CACHE_FLOOR_FRACTION)
}

/// Bytes in use; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<MemoryBudget>,
    part: Part,
    bytes: usize,
}

impl Charge {
    /// Bytes charged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes what is charged, for something that grows or shrinks.
    pub fn resize(&mut self, bytes: usize) {
        let used = self.budget.usage_of(self.part);
        if bytes >= self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.usage_of(self.part).fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_follows_the_charges() {
        let budget = MemoryBudget::new(1000);
        let mut memtable = budget.charge(Part::Memtable, 100);
        let block = budget.charge(Part::Cache, 50);
        assert_eq!((budget.usage(Part::Memtable), budget.usage(Part::Cache)), (100, 50));
        memtable.resize(300);
        assert_eq!(budget.total(), 350);
        memtable.resize(10);
        drop(block);
        assert_eq!(budget.total(), 10);
        drop(memtable);
        assert_eq!((budget.total(), budget.limit()), (0, 1000));
    }

    #[test]
    fn cached_indexes_get_what_the_others_leave_of_half() {
        let budget = MemoryBudget::new(1600);
        assert_eq!(budget.index_target(), 800);
        let index = budget.charge(Part::Index, 300);
        let cached = budget.charge(Part::CachedIndex, 400);
        assert_eq!((budget.index_target(), budget.cache_target()), (500, 900));
        assert!(budget.admits_beside_index(500), "what is cached gives way");
        drop(index);
        let _index = budget.charge(Part::Index, 2000);
        assert_eq!(budget.index_target(), 50);
        drop(cached);
    }

    #[test]
    fn the_cache_gets_what_is_left_and_never_less_than_its_floor() {
        for (others, expected) in [(0, 1600), (600, 1000), (1500, 100), (1550, 100), (4000, 100)] {
            assert_eq!(cache_target(1600, others), expected, "{others}");
        }
    }
}
