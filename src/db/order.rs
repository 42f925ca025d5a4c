//! Order statistics of a keyspace as of one moment: counts of ranges, the rank of a key, the entry
//! at a rank. Exact, with what is in memtables.
//!
//! The structure counts what it has by the sums in its tree. What memtables change about that is
//! gathered once: each key that they add or take away, in order.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::{Cursor as _, Entropy, EntryKind, EntryRef, KeyRange, RangeTombstones};
use crate::base::{Result, SeqNo};
use crate::db::iter::{Cursor, Entry};
use crate::db::state::KeyspaceState;
use crate::memtable::MemtableCursor;
use crate::merge::MergeCursor;
use crate::structure::Want;

/// What memtables change about the number of entries: keys in order, each with the sum of the
/// changes up to it.
struct Changes {
    sums: Vec<(Vec<u8>, i64)>,
    deleted: Arc<RangeTombstones>,
}

impl KeyspaceState {
    /// Number of entries with keys in `range`.
    pub(super) fn count(&self, range: &KeyRange, at: SeqNo) -> Result<u64> {
        let (start, end) = range.half_open();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(0);
        }
        let changes = self.changes_between(&start, end.as_deref(), at)?;
        let of_structure = self.structure_count(&start, end.as_deref(), &changes.deleted)?;
        Ok(of_structure.saturating_add_signed(changes.total()))
    }

    /// Number of entries with keys below `key`.
    pub(super) fn rank(&self, key: &[u8], at: SeqNo) -> Result<u64> {
        let range = KeyRange { start: Bound::Unbounded, end: Bound::Excluded(key.to_vec()) };
        self.count(&range, at)
    }

    /// The entry in front of which there are `rank` others.
    pub(super) fn select(self: &Arc<Self>, rank: u64, at: SeqNo) -> Result<Option<Entry>> {
        let changes = self.changes_between(b"", None, at)?;
        // The last interval that begins with at most so many entries in front of it.
        let (mut low, mut high) = (0, self.version.entries_at_most());
        let (mut from, mut before) = (Vec::new(), 0);
        while low <= high {
            let middle = low + (high - low) / 2;
            let anchor = self.version.anchor_near(middle);
            let of_structure = self.structure_count(b"", Some(&anchor), &changes.deleted)?;
            let in_front = of_structure.saturating_add_signed(changes.below(&anchor));
            if in_front <= rank {
                (from, before) = (anchor.to_vec(), in_front);
                low = middle + 1;
            } else if middle == 0 {
                break;
            } else {
                high = middle - 1;
            }
        }
        let mut cursor = Cursor::new(Arc::clone(self), at, KeyRange::all());
        cursor.seek(&from)?;
        for _ in before..rank {
            if !cursor.valid() {
                break;
            }
            cursor.next()?;
        }
        cursor.valid().then(|| cursor.take_entry()).transpose()
    }

    /// Up to `count` different entries of `range`, drawn at random, in order.
    pub(super) fn sample(
        self: &Arc<Self>,
        range: &KeyRange,
        count: usize,
        entropy: &dyn Entropy,
        at: SeqNo,
    ) -> Result<Vec<Entry>> {
        let entries = self.count(range, at)?;
        let first = self.rank(&range.half_open().0, at)?;
        let ranks = draw(entries, count as u64, entropy);
        let entries = ranks.into_iter().map(|rank| self.select(first + rank, at));
        entries.filter_map(Result::transpose).collect()
    }

    /// Keys that part `range` into up to `count` ranges of about as many entries each, ascending.
    /// By the structure alone: memtables are small against it. Entries that are overwritten or
    /// deleted count until they are consolidated, on both sides of every comparison.
    pub(super) fn split_keys(&self, range: &KeyRange, count: usize) -> Vec<Vec<u8>> {
        let (start, end) = range.half_open();
        let first = self.version.entries_in_front(&start);
        let last = match &end {
            Some(end) => self.version.entries_in_front(end),
            None => self.version.entries_at_most(),
        };
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let entries = u128::from(last.saturating_sub(first));
        for number in 1..count {
            let position = first + (entries * number as u128 / count as u128) as u64;
            let key = self.version.anchor_near(position).to_vec();
            let is_inside = key > start && end.as_ref().is_none_or(|end| key < *end);
            if is_inside && keys.last().is_none_or(|before| *before < key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Number of entries of the structure from `start` to in front of `end` that no deleted range
    /// hides.
    fn structure_count(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        deleted: &RangeTombstones,
    ) -> Result<u64> {
        let below = |key: Option<&[u8]>| match key {
            Some(key) => self.version.count_below(key),
            None => self.version.count(),
        };
        let mut count = below(end)?.saturating_sub(self.version.count_below(start)?);
        let mut from = start.to_vec();
        while let Some(range) = deleted.first_from(&from) {
            let hidden_from = range.start.max(start);
            if end.is_some_and(|end| hidden_from >= end) {
                break;
            }
            let hidden_to = match (range.end, end) {
                (Some(its_end), Some(end)) => Some(its_end.min(end)),
                (its_end, end) => its_end.or(end),
            };
            let hidden = below(hidden_to)?.saturating_sub(self.version.count_below(hidden_from)?);
            count = count.saturating_sub(hidden);
            match range.end {
                Some(end) => from = end.to_vec(),
                None => break,
            }
        }
        Ok(count)
    }

    /// What memtables change from `start` to in front of `end`. Costs a lookup in the structure for
    /// each key that they hold there.
    fn changes_between(&self, start: &[u8], end: Option<&[u8]>, at: SeqNo) -> Result<Changes> {
        let deleted = self.deleted_ranges(at, None).unwrap_or_default();
        let tables = self.tables().filter(|table| !table.memtable.is_empty());
        let cursors = tables.map(|table| MemtableCursor::new(Arc::clone(&table.memtable), at));
        let mut merged = MergeCursor::new(cursors.collect());
        merged.seek(start)?;
        let (mut sums, mut sum) = (Vec::new(), 0);
        while let Some(EntryRef { key, seqno, kind, .. }) = merged.entry() {
            if end.is_some_and(|end| key >= end) {
                break;
            }
            let deletion = deleted.covering(key, SeqNo::MAX);
            let is_hidden = deletion.is_some_and(|range| range.seqno > seqno);
            let is_there = kind != EntryKind::Tombstone && !is_hidden;
            // A deleted range hides what the structure has, whether there is something newer or
            // not; that is counted with the range.
            let was_there = deletion.is_none() && self.is_in_structure(key)?;
            let change = i64::from(is_there) - i64::from(was_there);
            if change != 0 {
                sum += change;
                sums.push((key.to_vec(), sum));
            }
            merged.next()?;
        }
        Ok(Changes { sums, deleted })
    }

    fn is_in_structure(&self, key: &[u8]) -> Result<bool> {
        let found = self.version.find(key, Want::Value)?;
        Ok(found.is_some_and(|found| found.kind != EntryKind::Tombstone))
    }
}

/// `count` different numbers below `end`, or all of them, each set with the same chance, in order
/// (R. Floyd: "A sample of brilliance", Communications of the ACM, 1987).
fn draw(end: u64, count: u64, entropy: &dyn Entropy) -> BTreeSet<u64> {
    let mut drawn = BTreeSet::new();
    for last in end.saturating_sub(count)..end {
        let number = entropy.next_u64() % (last + 1);
        if !drawn.insert(number) {
            drawn.insert(last);
        }
    }
    drawn
}

impl Changes {
    fn total(&self) -> i64 {
        self.sums.last().map_or(0, |(_, sum)| *sum)
    }

    fn below(&self, key: &[u8]) -> i64 {
        let place = self.sums.partition_point(|(other, _)| other.as_slice() < key);
        place.checked_sub(1).map_or(0, |last| self.sums[last].1)
    }
}
