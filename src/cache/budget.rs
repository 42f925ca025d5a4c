//! One budget of memory, and who uses how much of it.
//!
//! Counted are memtables, indexes, also what only older versions hold of them, with what is kept
//! for counts and guides that indexes have left room for, parts of indexes that are read again when
//! they are wanted, other guides, cached blocks, open transactions, and buffers: that of the log,
//! those of flushes and ingests with the records of runs that are in no edit yet, chunks and
//! checksums of values that are read or written in parts. Blocks that only walks, slices and
//! background work hold, and what the heaps have unused, are counted by the heaps. What an
//! allocator keeps beside what lives there is reckoned (decision 0034).
//!
//! Not counted: empty slots for guides of deltas; values that were read whole, and batches, which
//! are their owners'; the buffers of replay; file handles; what an allocator keeps beyond what is
//! reckoned. Resident memory of a process has all of that and the program's own pages beside the
//! budget.
//!
//! Invariant
//! - M1  The usage of a part is the sum of its living [`Charge`]s.

use std::sync::Arc;

use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering;
use crate::memory::Heap;

/// The cache keeps at least the limit over this, however much the other parts take.
const CACHE_FLOOR_FRACTION: usize = 16;
/// Of the limit, memtables may take the one and indexes with what is kept beside them the other,
/// without what the cache keeps: so that all of it fits.
const SIDE_FRACTION: usize = 2;
/// An allocator takes more than it gives out, by this part: pieces come in a few sizes, and lie
/// between what was given back. Measured with jemalloc, in soaks.
const ALLOCATOR_FRACTION: usize = 3;
/// Of what indexes took more than they do, this part counts as given back at a step.
const EASING: usize = 4096;
/// The heap keeps this part of the limit idle in any case, and so much at most.
const IDLE_FRACTION: usize = 64;
const IDLE_MAX: usize = 512 << 10;
/// Guides may take all but this part of what they and blocks have together.
const GUIDE_FRACTION: usize = 8;
/// What is cached gives way each time that what writers fill has grown by this part of the limit,
/// and by so much at most: it is a writer who waits.
const GROWTH_FRACTION: usize = 64;
const GROWTH_MAX: usize = 1 << 20;
const PART_COUNT: usize = 7;

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
    /// What single entries are found by in runs that are not in memory, with what an allocator is
    /// reckoned to take beside it: gives way to all but blocks.
    Guide = 6,
}

/// A limit and the usage below it. Shared; any number of databases may share one.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    used: [PaddedUsage; PART_COUNT],
    /// The most that indexes took, as far as it counts still.
    index_peak: PaddedUsage,
    /// Where the bytes of cached values live.
    heap: Arc<Heap>,
    /// Where those of guides live: apart, as they are small and stay long, and blocks come and go.
    guide_heap: Arc<Heap>,
    /// What writers had filled when what is cached last gave way to it.
    yielded_at: PaddedUsage,
}

/// On a line of its own: parts are counted by different threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedUsage(AtomicUsize);

impl MemoryBudget {
    /// A budget of `limit` bytes, all of it free.
    #[must_use]
    pub fn new(limit: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget {
            limit,
            used: Default::default(),
            index_peak: Default::default(),
            heap: Heap::keeping((limit / IDLE_FRACTION).min(IDLE_MAX)),
            guide_heap: Heap::lean(),
            yielded_at: Default::default(),
        })
    }

    /// Counts `bytes` as used by `part` until the charge is dropped. Never refused: the budget
    /// counts, and those who fill memory ask it when to stop.
    #[must_use]
    pub fn charge(self: &Arc<MemoryBudget>, part: Part, bytes: usize) -> Charge {
        self.add(part, bytes);
        Charge { budget: Arc::clone(self), part, bytes }
    }

    fn add(&self, part: Part, bytes: usize) {
        let before = self.usage_of(part).fetch_add(bytes, Ordering::Relaxed);
        if part == Part::Index {
            self.index_peak.0.fetch_max(before + bytes, Ordering::Relaxed);
        }
    }

    /// Bytes used by one part.
    #[must_use]
    pub fn usage(&self, part: Part) -> usize {
        self.usage_of(part).load(Ordering::Relaxed)
    }

    /// Bytes used by all parts.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        let cached = [Part::Cache, Part::CachedIndex, Part::Guide];
        let parts = [Part::Memtable, Part::Index, Part::Transaction, Part::Buffer];
        parts.iter().chain(&cached).map(|&part| self.usage(part)).sum()
    }

    /// Where the bytes of cached values live. What it has and nobody uses counts, too.
    #[inline]
    #[must_use]
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Where the bytes of guides live. What it has and nobody uses counts, too.
    #[inline]
    #[must_use]
    pub fn guide_heap(&self) -> &Arc<Heap> {
        &self.guide_heap
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// By so many bytes at most what is left to blocks and guides goes up and down by itself, as
    /// the heaps get memory and give it back. More than it is, as what they keep idle is set aside
    /// already, but for moments in which it is more.
    #[must_use]
    pub fn slack(&self) -> usize {
        self.heap.slack() + self.guide_heap.slack()
    }

    /// Whether memtables and transactions have grown so much since this last said so, or will have
    /// with `coming` bytes, that what is cached is to give way.
    #[inline]
    #[must_use]
    pub fn has_grown(&self, coming: usize) -> bool {
        let used = self.usage(Part::Memtable) + self.usage(Part::Transaction);
        let before = self.yielded_at.0.load(Ordering::Relaxed);
        let step = (self.limit / GROWTH_FRACTION).min(GROWTH_MAX);
        let has_grown = used.saturating_add(coming) > before.saturating_add(step);
        if has_grown || used < before {
            // Two at once may both say so.
            self.yielded_at.0.store(used, Ordering::Relaxed);
        }
        has_grown
    }

    /// Whether `bytes` more that save reads may be kept beside the indexes. They are not evicted,
    /// so their room is bounded, with the indexes.
    #[must_use]
    pub fn admits_beside_index(&self, bytes: usize) -> bool {
        with_unused(self.usage(Part::Index) + bytes) <= self.index_room()
    }

    /// Whether `bytes` more fit into what an allocator is reckoned to hold of indexes that took
    /// more once: memory that nothing else gets.
    #[must_use]
    pub fn admits_in_reserve(&self, bytes: usize) -> bool {
        let peak = self.index_peak.0.load(Ordering::Relaxed);
        self.usage(Part::Index) + bytes <= peak && self.admits_beside_index(bytes)
    }

    /// Bytes that the cache may use now.
    #[must_use]
    pub fn cache_target(&self) -> usize {
        cache_target(self.limit, self.before_guides() + self.usage(Part::Guide))
    }

    /// Bytes that guides may use now: what all but blocks leave, less an eighth of it for blocks,
    /// or the least that they have.
    #[must_use]
    pub fn guide_target(&self) -> usize {
        let left = self.limit.saturating_sub(self.before_guides());
        left.saturating_sub((left / GUIDE_FRACTION).max(self.limit / CACHE_FLOOR_FRACTION))
    }

    /// Bytes that are taken by what guides and blocks give way to.
    fn before_guides(&self) -> usize {
        let indexes = [Part::Index, Part::CachedIndex];
        let others = [Part::Memtable, Part::Transaction, Part::Buffer];
        let others = others.iter().chain(&indexes);
        let of_heaps = self.heap.set_aside() + self.guide_heap.set_aside();
        others.map(|&part| self.usage(part)).sum::<usize>() + self.unused_beside(of_heaps)
    }

    /// Bytes that are taken and in use by nobody: of the heap, and what an allocator is reckoned
    /// to take beside what lives there. (Memtables and cached blocks do not.) What indexes took
    /// more than now is among it: their pieces are small and live long, and what one gives back
    /// lies between others, for the next.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.unused_beside(self.heap.unused() + self.guide_heap.unused())
    }

    fn unused_beside(&self, of_heaps: usize) -> usize {
        let index = self.usage(Part::Index);
        let peak = self.index_peak.0.load(Ordering::Relaxed).max(index);
        let others = self.usage(Part::Transaction) + self.usage(Part::Buffer);
        of_heaps + with_unused(peak + others) - (index + others)
    }

    /// A step of new data in an index: what indexes took before counts a little less.
    pub fn ease(&self) {
        let peak = self.index_peak.0.load(Ordering::Relaxed);
        let eased = peak - peak.saturating_sub(self.usage(Part::Index)) / EASING;
        let eases = (Ordering::Relaxed, Ordering::Relaxed);
        // Whoever was faster has raised it, or eased it.
        let _ = self.index_peak.0.compare_exchange(peak, eased, eases.0, eases.1);
    }

    /// Bytes that indexes which are read again when they are wanted may use now: what those that
    /// are not leave of the room for both.
    #[must_use]
    pub fn index_target(&self) -> usize {
        cache_target(self.index_room(), with_unused(self.usage(Part::Index)))
    }

    fn index_room(&self) -> usize {
        self.limit / SIDE_FRACTION - self.limit / CACHE_FLOOR_FRACTION
    }

    fn usage_of(&self, part: Part) -> &AtomicUsize {
        &self.used[part as usize].0
    }
}

/// What an allocator takes for so many bytes.
fn with_unused(allocated: usize) -> usize {
    allocated + allocated / ALLOCATOR_FRACTION
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
        if bytes >= self.bytes {
            self.budget.add(self.part, bytes - self.bytes);
        } else {
            let used = self.budget.usage_of(self.part);
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
    fn cached_indexes_get_what_the_others_leave_of_their_room() {
        let budget = MemoryBudget::new(1600);
        assert_eq!(budget.index_target(), 700);
        let index = budget.charge(Part::Index, 200);
        let cached = budget.charge(Part::CachedIndex, 400);
        assert_eq!((budget.index_target(), budget.cache_target()), (434, 934));
        assert!(budget.admits_beside_index(325), "what is cached gives way");
        assert!(!budget.admits_beside_index(326));
        drop(index);
        let _index = budget.charge(Part::Index, 2000);
        assert_eq!(budget.index_target(), 43);
        drop(cached);
    }

    #[test]
    fn guides_get_most_of_what_blocks_would_have_and_leave_them_their_least() {
        let budget = MemoryBudget::new(1600);
        assert_eq!(budget.guide_target(), 1400);
        let memtable = budget.charge(Part::Memtable, 850);
        assert_eq!(budget.guide_target(), 650, "a sixteenth of all is more than an eighth");
        let indexes = [(Part::Index, 150), (Part::CachedIndex, 100)];
        let _indexes = indexes.map(|(part, bytes)| budget.charge(part, bytes));
        assert_eq!(budget.guide_target(), 350);
        let _guides = budget.charge(Part::Guide, 350);
        assert_eq!(budget.guide_target(), 350, "they do not count against themselves");
        assert_eq!((budget.cache_target(), budget.index_target()), (100, 500));
        let transaction = budget.charge(Part::Transaction, 600);
        assert_eq!((budget.guide_target(), budget.cache_target()), (0, 100));
        drop((memtable, transaction));
        assert_eq!((budget.guide_target(), budget.cache_target()), (1300 - 162, 950));
    }

    #[test]
    fn the_reserve_is_what_indexes_took_once() {
        let budget = MemoryBudget::new(1600);
        let mut index = budget.charge(Part::Index, 300);
        assert!(!budget.admits_in_reserve(1));
        index.resize(100);
        let target = budget.guide_target();
        assert!(budget.admits_in_reserve(200) && !budget.admits_in_reserve(201));
        let _kept = budget.charge(Part::Index, 200);
        assert_eq!(budget.guide_target(), target, "it takes nobody's room");
        index.resize(600);
        index.resize(350);
        assert!(!budget.admits_in_reserve(1), "more than what indexes may take");
    }

    #[test]
    fn growth_is_told_once_for_each_part_of_the_limit() {
        let budget = MemoryBudget::new(6400);
        assert!(!budget.has_grown(0));
        let mut memtable = budget.charge(Part::Memtable, 100);
        assert!(!budget.has_grown(0));
        let transaction = budget.charge(Part::Transaction, 1);
        assert!(budget.has_grown(0) && !budget.has_grown(0));
        memtable.resize(200);
        assert!(!budget.has_grown(0), "a hundred since then");
        memtable.resize(201);
        assert!(budget.has_grown(0));
        drop(transaction);
        memtable.resize(50);
        assert!(!budget.has_grown(0), "from here on it counts anew");
        memtable.resize(151);
        assert!(budget.has_grown(0));
        assert!(!budget.has_grown(100) && budget.has_grown(101), "what is coming counts");
    }

    #[test]
    fn what_an_allocator_takes_beside_what_lives_there_is_counted() {
        let budget = MemoryBudget::new(1600);
        let before = budget.unused();
        let parts = [Part::Index, Part::Transaction, Part::Buffer, Part::Memtable, Part::Cache];
        let charges = parts.map(|part| budget.charge(part, 100));
        assert_eq!(budget.unused() - before, 100, "memtables and blocks lie elsewhere");
        assert_eq!(budget.cache_target(), 1600 - 400 - 100);
        drop(charges);
        assert_eq!(budget.unused() - before, 100 + 33, "what an index gave back is kept for it");
    }

    #[test]
    fn what_indexes_took_before_counts_less_and_less() {
        let budget = MemoryBudget::new(1 << 30);
        let before = budget.unused();
        let _kept = budget.charge(Part::Index, 300 << 10);
        drop(budget.charge(Part::Index, 600 << 10));
        let (kept, peak) = (300usize << 10, 900usize << 10);
        assert_eq!(budget.unused() - before, peak + peak / 3 - kept);
        let mut unused = budget.unused();
        for _ in 0..40_000 {
            budget.ease();
            assert!(budget.unused() <= unused);
            unused = budget.unused();
        }
        assert!((kept / 3..kept / 3 + 8192).contains(&(unused - before)), "{unused}");
    }

    #[test]
    fn the_cache_gets_what_is_left_and_never_less_than_its_floor() {
        for (others, expected) in [(0, 1600), (600, 1000), (1500, 100), (1550, 100), (4000, 100)] {
            assert_eq!(cache_target(1600, others), expected, "{others}");
        }
    }
}
