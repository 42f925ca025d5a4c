//! Intervals: what the tree holds. Immutable; a change makes a new one.

use std::ops::Range;

use super::segment::{LostBytes, Segment};
use super::tree::{Item, KeyGuide, Keyed, Memo};
use crate::base::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::base::sync::{Arc, OnceLock};
use crate::base::{ExpirySpan, SeqNo, Slice};
use crate::block::{Block, Guide};
use crate::cache::{Charge, Slot};
use crate::value_log::ValueFile;

/// Entries written at once: one frame in a segment.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub segment: Arc<Segment>,
    /// Where the frame starts in the segment.
    pub offset: u64,
    /// Bytes of the frame.
    pub len: u32,
    /// Low 32 bits of the frame's checksum: a lost or misdirected write does not match it.
    pub checksum: u32,
    pub entry_count: u32,
    /// 0 for a run that a flush wrote; one more each time runs are merged into a larger delta.
    pub level: u8,
    /// The stamp of every entry, of a run that an ingest wrote.
    pub stamp: Option<SeqNo>,
    /// Value files that entries point into; `None` for most runs.
    pub value_files: Option<ValueFiles>,
    /// How many entries expire, and when; `None` for most runs.
    pub expiring: Option<Arc<ExpirySpan>>,
    /// The whole run as a block, when it is in memory. Not for deltas: they are small, and read
    /// through their guides. Shared, as `memory` is, by all intervals that the run is part of.
    pub slot: Option<Arc<Slot<Block>>>,
    pub memory: Arc<RunMemory>,
}

/// Value files, held, rising, each with the bytes of records that are pointed to.
pub(super) type ValueFiles = Arc<[(Arc<ValueFile>, u64)]>;

/// What a run is in its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunRole {
    Base,
    Delta,
}

impl RunRole {
    /// The slot of a new run.
    pub(super) fn slot(self) -> Option<Arc<Slot<Block>>> {
        (self == RunRole::Base).then(Slot::new)
    }
}

/// What else is in memory of a run.
#[derive(Debug, Default)]
pub(super) struct RunMemory {
    /// Made when the run is read, if there is room, as most runs of a large keyspace are not read
    /// before they are consolidated.
    pub guide: OnceLock<RunGuide>,
    /// Uses that went to the file since the run was last to be put into the slot.
    pub misses: AtomicU8,
    /// Reads of the whole run since it was last to get a guide.
    pub unguided: AtomicU8,
    /// Made when the run is lost. All clones of the run share this, so it goes with the last one;
    /// boxed, as most runs are not lost.
    lost: OnceLock<Box<LostBytes>>,
}

/// How the guide of a run is kept.
#[derive(Debug)]
pub(super) enum RunGuide {
    /// As long as the run: in memory that would be of no use otherwise.
    Kept(Box<(Guide, Charge)>),
    /// In a slot, and given up for what needs the room more.
    Cached(Arc<Slot<Guide>>),
}

impl Run {
    /// Whether its block is in the cache. That of a delta never is.
    pub(super) fn is_in_memory(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.is_filled())
    }

    /// Where it lies in its segment.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.len)
    }

    /// Says that the newest durable index does not refer to the run any more (X6). When the last
    /// version that holds it is gone, its bytes are dead.
    pub(super) fn note_lost(&self) {
        let lost = || Box::new(LostBytes::new(&self.segment, self.range()));
        self.memory.lost.get_or_init(lost);
    }

    /// Numbers of the value files that entries point into, with the bytes of the records there.
    pub(super) fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let files = self.value_files.iter().flat_map(|files| files.iter());
        files.map(|(file, bytes)| (file.number(), *bytes))
    }

    pub(super) fn is_same_run(&self, other: &Run) -> bool {
        let place = |run: &Run| (run.segment.number, run.offset, run.checksum);
        (place(self), self.stamp, &self.expiring) == (place(other), other.stamp, &other.expiring)
    }

    /// About how many entries have expired by `now`.
    fn expired_about(&self, now: u64) -> u64 {
        self.expiring.as_ref().map_or(0, |span| span.expired_about(now))
    }

    /// Whether every entry has expired by `now`.
    fn has_expired(&self, now: u64) -> bool {
        self.expiring
            .as_ref()
            .is_some_and(|span| span.count == self.entry_count && span.last <= now)
    }
}

/// The keys from `anchor` up to the next interval's anchor.
#[derive(Debug)]
pub(super) struct Interval {
    pub anchor: Slice,
    pub base: Option<Run>,
    /// Oldest first (X2).
    pub deltas: Vec<Run>,
    /// All runs as one block, when it is in memory. Not used when the base is all there is: that
    /// has a slot, which outlives the interval. Made when it is first wanted.
    merged: OnceLock<Arc<Slot<Block>>>,
    /// Entries that are neither overwritten nor deleted, once they were counted; those that expire
    /// count, whatever the time.
    pub live_count: OnceLock<u32>,
    /// When those of them expire that do, rising, once that was asked for; boxed, as few intervals
    /// have what has expired and is still there.
    pub expiries: OnceLock<Box<(Vec<u64>, Charge)>>,
    /// What reductions of its entries came to.
    pub memo: Memo,
    memory: Option<Arc<IntervalMemory>>,
}

/// Bytes of memory of the intervals of an index that are alive, about: also of those that only
/// older versions hold.
#[derive(Debug, Default)]
pub(super) struct IntervalMemory(AtomicUsize);

impl IntervalMemory {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Interval {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.0.fetch_sub(self.memory_size(), Ordering::Relaxed);
        }
    }
}

impl Interval {
    /// One that counts in `memory`, if there is any, for as long as it lives.
    pub(super) fn new(
        memory: Option<&Arc<IntervalMemory>>,
        anchor: Slice,
        base: Option<Run>,
        deltas: Vec<Run>,
    ) -> Arc<Interval> {
        let interval = Interval {
            anchor,
            base,
            deltas,
            merged: OnceLock::new(),
            live_count: OnceLock::new(),
            expiries: OnceLock::new(),
            memo: Memo::default(),
            memory: memory.cloned(),
        };
        if let Some(memory) = memory {
            memory.0.fetch_add(interval.memory_size(), Ordering::Relaxed);
        }
        Arc::new(interval)
    }

    /// Bytes of memory, about: with its share of nodes, and the slots of its base for a block and
    /// for a guide; and its runs, without their guides, which are charged one by one.
    fn memory_size(&self) -> usize {
        const INTERVAL_BYTES: usize = 460;
        const RUN_BYTES: usize = size_of::<Run>() + size_of::<RunMemory>() + 2 * size_of::<usize>();
        let is_inline = self.anchor.len() <= Slice::INLINE_LEN_MAX;
        let anchor_bytes = if is_inline { 0 } else { self.anchor.len() };
        INTERVAL_BYTES + anchor_bytes + self.run_count() * RUN_BYTES
    }

    /// The slot of all the interval's entries as one block.
    pub(super) fn slot(&self) -> &Arc<Slot<Block>> {
        self.base_slot().unwrap_or_else(|| self.merged.get_or_init(Slot::new))
    }

    /// As [`Self::slot`], if anybody has wanted it yet.
    pub(super) fn slot_if_used(&self) -> Option<&Arc<Slot<Block>>> {
        self.base_slot().or_else(|| self.merged.get())
    }

    /// The slot of the base, if that is all there is.
    fn base_slot(&self) -> Option<&Arc<Slot<Block>>> {
        self.only_base()?.slot.as_ref()
    }

    /// The base, if that is all there is.
    #[inline]
    pub(super) fn only_base(&self) -> Option<&Run> {
        self.base.as_ref().filter(|_| self.deltas.is_empty())
    }

    /// All runs, oldest first.
    pub(super) fn runs(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.base.iter().chain(&self.deltas)
    }

    /// Whether an entry may be overwritten or deleted that points into a value file. One of these
    /// hides more bytes than it costs to consolidate the interval.
    pub(super) fn may_hide_values(&self) -> bool {
        self.runs().rev().skip(1).any(|older| older.value_files.is_some())
    }

    /// How many entries of its runs expire, overwritten ones included.
    pub(super) fn expiring_count(&self) -> u64 {
        let spans = self.runs().filter_map(|run| run.expiring.as_ref());
        spans.map(|span| u64::from(span.count)).sum()
    }

    /// When the first entry of its runs expires that does.
    pub(super) fn first_expiry(&self) -> Option<u64> {
        self.runs().filter_map(|run| Some(run.expiring.as_ref()?.first)).min()
    }

    /// About how many entries of its runs have expired by `now`.
    pub(super) fn expired_about(&self, now: u64) -> u64 {
        self.runs().map(|run| run.expired_about(now)).sum()
    }

    /// Whether every entry of every run has expired by `now`: nothing has to be read to know that
    /// nothing is left.
    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.run_count() > 0 && self.runs().all(|run| run.has_expired(now))
    }

    /// Entries of its runs, overwritten ones and deletions included.
    pub(super) fn entry_count(&self) -> u64 {
        self.runs().map(|run| u64::from(run.entry_count)).sum()
    }

    pub(super) fn run_count(&self) -> usize {
        usize::from(self.base.is_some()) + self.deltas.len()
    }

    pub(super) fn base_bytes(&self) -> u64 {
        self.base.as_ref().map_or(0, |run| u64::from(run.len))
    }

    pub(super) fn delta_bytes(&self) -> u64 {
        self.deltas.iter().map(|run| u64::from(run.len)).sum()
    }
}

/// Sums below a node of the tree: bytes of all runs, bytes of base runs, entries (an upper bound:
/// overwritten ones count), runs, intervals with deltas, for which that bound is not exact, and
/// those of the entries that expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IntervalSize {
    pub bytes: u64,
    pub base_bytes: u64,
    pub entries: u64,
    pub runs: u64,
    pub mixed: u64,
    pub expiring: u64,
}

impl super::tree::Size for IntervalSize {
    fn add(self, other: IntervalSize) -> IntervalSize {
        IntervalSize {
            bytes: self.bytes + other.bytes,
            base_bytes: self.base_bytes + other.base_bytes,
            entries: self.entries + other.entries,
            runs: self.runs + other.runs,
            mixed: self.mixed + other.mixed,
            expiring: self.expiring + other.expiring,
        }
    }

    fn sub(self, other: IntervalSize) -> IntervalSize {
        IntervalSize {
            bytes: self.bytes - other.bytes,
            base_bytes: self.base_bytes - other.base_bytes,
            entries: self.entries - other.entries,
            runs: self.runs - other.runs,
            mixed: self.mixed - other.mixed,
            expiring: self.expiring - other.expiring,
        }
    }
}

impl Item for Arc<Interval> {
    type Size = IntervalSize;
    type Guide = KeyGuide;

    fn size(&self) -> IntervalSize {
        let base_bytes = self.base_bytes();
        IntervalSize {
            bytes: base_bytes + self.delta_bytes(),
            base_bytes,
            entries: self.entry_count(),
            runs: self.run_count() as u64,
            mixed: u64::from(!self.deltas.is_empty()),
            expiring: self.expiring_count(),
        }
    }
}

impl Keyed for Arc<Interval> {
    fn key(&self) -> &[u8] {
        &self.anchor
    }
}

/// The shortest key that is above `before` and not above `first`: the anchor that parts two
/// neighbouring runs. `before` must be below `first`.
///
/// For instance `separator(b"apple", b"apricot")` is `apr`.
pub(super) fn separator(before: &[u8], first: &[u8]) -> Slice {
    debug_assert!(before < first);
    let shared = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    Slice::from(&first[..=shared])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_lies_between_and_is_short() {
        for (before, first, expected) in [
            (&b"apple"[..], &b"apricot"[..], &b"apr"[..]),
            (b"", b"a", b"a"),
            (b"a", b"ab", b"ab"),
            (b"a\xFF", b"b", b"b"),
            (b"", b"\0", b"\0"),
        ] {
            let between = separator(before, first);
            assert_eq!(&*between, expected);
            assert!(before < &*between && &*between <= first);
        }
    }
}
