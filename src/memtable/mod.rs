//! Memtable: the sorted recent writes of a keyspace, all versions.
//!
//! A B+-tree with wide nodes over an append-only arena. One writer at a time, any number of
//! readers, which are wait-free: a search is one descent over nodes that are whole at any instant,
//! whatever the writer does or however long it is not running. Nothing that was inserted is freed
//! before the memtable is dropped. Must not know the log, flushes or structures.
//!
//! | file | what it owns |
//! |---|---|
//! | `chunk.rs` | memory |
//! | `arena.rs` | bytes of entries |
//! | `order.rs` | the order, heads and prefixes, search in sorted heads |
//! | `node.rs` | memory and publication of nodes |
//! | `readers.rs` | when a replaced node may be reused |
//! | `run.rs` | merging, splitting and re-prefixing of nodes |
//! | `filter.rs` | ruling out absent keys |
//! | `tree.rs` | descent and search |
//! | `writer.rs` | insertion |
//! | `staged.rs` | insertion of many commits together |
//! | `cursor.rs` | walking in order |
//! | `versions.rs` | all that the versions of a key say together |
//!
//! Invariants
//! - M1  Entries are ordered by key ascending, then seqno descending; of two with the same key and
//!   seqno, the one inserted later comes first.
//! - M2  An insert is visible to every reader that begins after it returned.
#[cfg(test)]
mod tests;

mod arena;
mod chunk;
mod cursor;
mod filter;
mod node;
mod order;
mod readers;
mod run;
mod staged;
mod tree;
mod versions;
mod writer;

pub(crate) use self::arena::EntryId;
pub(crate) use self::chunk::SpareChunks;
pub(crate) use self::cursor::{AllVersions, MemtableCursor};
pub(crate) use self::versions::StackedCursor;
pub(crate) use self::writer::Writer;

use self::arena::Entries;
use self::filter::{FilterFill, Filters};
use self::node::{Nodes, Root};
use self::order::Bound;
use self::readers::Readers;
use self::writer::WriterState;

use crate::base::EntryRef;
use crate::base::GrowingTombstones;
use crate::base::KeptStamps;
use crate::base::RangeTombstones;
use crate::base::SeqNo;
use crate::base::hash_key;
use crate::base::sync::ArcSwapOption;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{Arc, Mutex, PoisonError};

/// What a memtable is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemtableConfig {
    /// Bytes of keys and values after which the owner will seal it.
    pub(crate) expected_bytes: usize,
    /// Whether absent keys are told by a filter.
    pub(crate) filtering: Filtering,
    /// Which stamps of deleted ranges somebody may ask for: of those in each other, all stamps take
    /// memory that is quadratic in their number.
    pub(crate) range_stamps: KeptStamps,
}

/// Whether a memtable has a filter of its keys. It costs 1.25 bytes a key and some time for each
/// insert and hit; it takes most of the time off a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filtering {
    /// A blocked Bloom filter, once there are enough keys that it is worth it.
    Bloom,
    /// No filter.
    #[cfg_attr(not(test), expect(dead_code, reason = "measures what the filter costs"))]
    Off,
}

/// The sorted recent writes of a keyspace.
pub(crate) struct Memtable {
    // Constant; what they lead to grows.
    entries: Arc<Entries>,
    config: MemtableConfig,
    // Atomic.
    /// Set before the first entry is linked; on a line that writers leave alone from then on.
    has_entries: AtomicBool,
    /// Set when there are deleted ranges, behind them.
    has_ranges: AtomicBool,
    /// Set when entries may expire, in front of them.
    has_expiring: AtomicBool,
    /// Ranges that were deleted; replaced with each commit that does so, by what shares most of it.
    /// None in most memtables.
    ranges: ArcSwapOption<GrowingTombstones>,
    root: Root,
    filters: Filters,
    readers: Readers,
    totals: Totals,
    // Guarded by the lock that a `Writer` holds.
    writer: Mutex<WriterState>,
}

/// Changed by the writer only; on a line of their own, away from what searches read.
#[repr(align(64))]
struct Totals {
    entry_count: AtomicUsize,
    data_size: AtomicUsize,
    node_memory: AtomicUsize,
    range_memory: AtomicUsize,
    range_cost: AtomicUsize,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable").field("entry_count", &self.entry_count()).finish_non_exhaustive()
    }
}

impl Memtable {
    /// An empty memtable. It takes memory as it grows, from about 1 KiB; what is large, of `spares`
    /// first, and gives it back to them.
    pub(crate) fn new(config: MemtableConfig, spares: &Arc<SpareChunks>) -> Memtable {
        let (entries, appender) = arena::arena(spares);
        let (nodes, root) = Nodes::with_root(spares);
        let totals = Totals {
            entry_count: AtomicUsize::new(0),
            data_size: AtomicUsize::new(0),
            node_memory: AtomicUsize::new(nodes.allocated()),
            range_memory: AtomicUsize::new(0),
            range_cost: AtomicUsize::new(0),
            seqno_min: AtomicU64::new(u64::MAX),
            seqno_max: AtomicU64::new(0),
        };
        let fill = match config.filtering {
            Filtering::Bloom => FilterFill::sampling(),
            Filtering::Off => FilterFill::off(),
        };
        let writer = Mutex::new(WriterState::new(appender, nodes, fill));
        Memtable {
            entries,
            config,
            has_entries: AtomicBool::new(false),
            has_ranges: AtomicBool::new(false),
            has_expiring: AtomicBool::new(false),
            ranges: ArcSwapOption::empty(),
            root,
            filters: Filters::default(),
            readers: Readers::default(),
            totals,
            writer,
        }
    }

    /// The right to write, until it is dropped. Waits while another thread has it.
    pub(crate) fn writer(&self) -> Writer<'_> {
        // A panic of a caller's iterator leaves the tree whole: entries are linked one by one.
        let state = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        Writer { memtable: self, state }
    }

    /// The newest version of `key` with a seqno of at most `at`; it may be a tombstone.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: SeqNo) -> Option<EntryRef<'_>> {
        if !self.has_entries.load(Ordering::Acquire) {
            return None; // Often so after a flush, and no call.
        }
        self.look_up(key, at)
    }

    #[inline]
    fn look_up(&self, key: &[u8], at: SeqNo) -> Option<EntryRef<'_>> {
        if self.filters.rule_out(|| hash_key(key)) {
            return None;
        }
        let pin = self.readers.pin();
        let bound = Bound::Before(key, at);
        let landing = tree::descend(&self.root, &pin, &self.entries, &bound, |_, _| ());
        tree::find(&self.entries, &landing, key, at)
    }

    /// Says that entries will be inserted that expire.
    pub(crate) fn note_expiring(&self) {
        self.has_expiring.store(true, Ordering::Release);
    }

    /// An entry that [`AllVersions`] has stood on.
    pub(crate) fn entry(&self, id: EntryId) -> EntryRef<'_> {
        self.entries.entry(id)
    }

    /// Whether there may be entries that expire.
    #[inline]
    pub(crate) fn has_expiring(&self) -> bool {
        self.has_expiring.load(Ordering::Acquire)
    }

    /// Whether ranges were deleted.
    #[inline]
    pub(crate) fn deletes_ranges(&self) -> bool {
        self.has_ranges.load(Ordering::Acquire)
    }

    /// The newest deletion of a range with `key` in it, up to the stamp `at`. It says nothing about
    /// entries with the same or a later stamp.
    #[inline]
    pub(crate) fn range_deletion_of(&self, key: &[u8], at: SeqNo) -> Option<SeqNo> {
        if self.deletes_ranges() { self.look_up_deletion(key, at) } else { None }
    }

    #[cold]
    fn look_up_deletion(&self, key: &[u8], at: SeqNo) -> Option<SeqNo> {
        self.ranges.load().as_ref()?.newest_of(key, at)
    }

    /// The ranges that were deleted; `None` in most memtables. O(their number) the first time after
    /// a commit has deleted some.
    #[inline]
    pub(crate) fn ranges(&self) -> Option<Arc<RangeTombstones>> {
        if self.deletes_ranges() { self.ranges_in_use() } else { None }
    }

    #[cold]
    fn ranges_in_use(&self) -> Option<Arc<RangeTombstones>> {
        self.ranges.load().as_ref().map(|ranges| ranges.whole())
    }

    /// What deleted ranges cost a walk, in ranges; see [`RangeTombstones::cost`].
    #[inline]
    pub(crate) fn range_cost(&self) -> usize {
        self.totals.range_cost.load(Ordering::Relaxed)
    }

    /// Bytes of memory taken for entries, nodes, filter and deleted ranges.
    pub(crate) fn memory_used(&self) -> usize {
        self.entries.allocated()
            + self.filters.allocated()
            + self.totals.node_memory.load(Ordering::Relaxed)
            + self.totals.range_memory.load(Ordering::Relaxed)
    }

    /// Whether it has room for one batch more and no longer for two, however large. It is larger
    /// than any is to be by then.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.entries.is_full()
    }

    /// Bytes of all keys and values.
    pub(crate) fn data_size(&self) -> usize {
        self.totals.data_size.load(Ordering::Relaxed)
    }

    /// Count of versions of keys.
    pub(crate) fn entry_count(&self) -> usize {
        self.totals.entry_count.load(Ordering::Acquire)
    }

    /// Whether nothing was inserted, and no range deleted.
    pub(crate) fn is_empty(&self) -> bool {
        self.entry_count() == 0 && !self.deletes_ranges()
    }

    /// The smallest and the largest seqno; none while it is empty.
    pub(crate) fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        let load = |total: &AtomicU64| SeqNo::from_u64(total.load(Ordering::Relaxed));
        (!self.is_empty()).then(|| (load(&self.totals.seqno_min), load(&self.totals.seqno_max)))
    }
}
