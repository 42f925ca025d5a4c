//! What a transaction has read: for each keyspace a set of key ranges.
//!
//! Invariants
//! - R1  The ranges of a keyspace are disjoint, do not touch, and cover every key that was read or
//!   looked for. They may cover more: that costs conflicts, not isolation.
//! - R2  What a walk may still read counts as read until the walk says what it was.
//! - R3  The set takes no more than [`BYTES_MAX`], and what one range is longer than that.
//! - R4  What was seen was there before it expires: a commit from then on conflicts. What was found
//!   to have expired stays so.
//! - R5  What is seen for the upkeep of indexes alone is no such thing: an index entry expires at
//!   the moment at which the entry does that it is of, so that deleting it, or leaving it as it is,
//!   comes to the same when both have expired by the commit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::{KeyRange, successor};
use crate::cache::Charge;

/// Bytes of keys, and about what each range costs beside them, above which ranges are put together.
const BYTES_MAX: usize = 16 << 20;
const RANGE_OVERHEAD: usize = 96;

/// What is charged changes by so many bytes: most reads leave the budget alone.
const CHARGE_STEP: usize = 4 << 10;

/// What a transaction has read, charged to the memory budget; the transaction and its walks add to
/// it.
#[derive(Debug)]
pub(super) struct Reads(RefCell<ChargedSet>);

#[derive(Debug)]
struct ChargedSet {
    set: ReadSet,
    charge: Charge,
}

impl Reads {
    /// Nothing so far.
    pub(super) fn new(charge: Charge) -> Reads {
        Reads(RefCell::new(ChargedSet { set: ReadSet::default(), charge }))
    }

    /// Changes the set, and what is charged for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ReadSet) -> T) -> T {
        let ChargedSet { set, charge } = &mut *self.0.borrow_mut();
        let changed = change(set);
        let bytes = set.bytes().next_multiple_of(CHARGE_STEP);
        if bytes != charge.bytes() {
            charge.resize(bytes);
        }
        changed
    }

    /// All of it, now that nobody reads any more, and what is charged for it.
    pub(super) fn into_set(self) -> (ReadSet, Charge) {
        let ChargedSet { mut set, charge } = self.0.into_inner();
        set.settle();
        (set, charge)
    }
}

/// The ranges that were read.
#[derive(Debug, Default)]
pub(in crate::db) struct ReadSet {
    keyspaces: BTreeMap<u32, Ranges>,
    /// Walks that are under way, by number (R2).
    walks: BTreeMap<u64, (u32, KeyRange)>,
    walk_count: u64,
    /// The sum over the keyspaces.
    bytes: usize,
    /// When the first of the entries that were seen expires (R4).
    first_expiry: Option<u64>,
}

/// Disjoint ranges from a key (included) to a key (excluded) or the end (R1).
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ends: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl ReadSet {
    pub(super) fn is_empty(&self) -> bool {
        self.keyspaces.is_empty() && self.walks.is_empty()
    }

    /// Bytes of memory taken, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// `key` was looked up.
    pub(super) fn add_key(&mut self, keyspace: u32, key: &[u8]) {
        if !self.covers(keyspace, key) {
            self.add(keyspace, key.to_vec(), Some(successor(key)));
        }
    }

    /// An entry was seen that expires then.
    pub(super) fn note_expiry(&mut self, until: u64) {
        self.first_expiry = Some(self.first_expiry.map_or(until, |first| first.min(until)));
    }

    /// The first moment at which something that was seen is not there any more.
    pub(super) fn first_expiry(&self) -> u64 {
        self.first_expiry.unwrap_or(u64::MAX)
    }

    /// Everything in `range` was looked at.
    pub(super) fn add_range(&mut self, keyspace: u32, range: &KeyRange) {
        let (start, end) = range.half_open();
        if end.as_ref().is_none_or(|end| *end > start) {
            self.add(keyspace, start, end);
        }
    }

    fn add(&mut self, keyspace: u32, start: Vec<u8>, end: Option<Vec<u8>>) {
        let ranges = self.keyspaces.entry(keyspace).or_default();
        self.bytes -= ranges.bytes;
        ranges.add(start, end);
        self.bytes += ranges.bytes;
    }

    /// A walk through `range` begins (R2); its number.
    pub(super) fn begin_walk(&mut self, keyspace: u32, range: KeyRange) -> u64 {
        self.walk_count += 1;
        self.walks.insert(self.walk_count, (keyspace, range));
        self.walk_count
    }

    /// A walk is over; what it read was added.
    pub(super) fn end_walk(&mut self, number: u64) {
        self.walks.remove(&number);
    }

    /// Counts walks that nobody will end as having read everything they could.
    fn settle(&mut self) {
        for (keyspace, range) in std::mem::take(&mut self.walks).into_values() {
            self.add_range(keyspace, &range);
        }
    }

    /// Whether `key` was read.
    pub(super) fn covers(&self, keyspace: u32, key: &[u8]) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|ranges| ranges.contains(key))
    }

    /// Whether any key from `start` to in front of `end` was read.
    pub(super) fn overlaps(&self, keyspace: u32, start: &[u8], end: Option<&[u8]>) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|ranges| ranges.overlap(start, end))
    }

    /// The ranges of each keyspace.
    pub(super) fn keyspaces(&self) -> impl Iterator<Item = (u32, &Ranges)> {
        self.keyspaces.iter().map(|(id, ranges)| (*id, ranges))
    }
}

impl Ranges {
    /// The ranges in order: first key, and the first key behind.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.ends.iter().map(|(start, end)| (start.as_slice(), end.as_deref()))
    }

    fn contains(&self, key: &[u8]) -> bool {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let before = self.ends.range::<[u8], _>(up_to).next_back();
        before.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }

    pub(super) fn overlap(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        let first_behind = end.map_or(Bound::Unbounded, Bound::Excluded);
        let before = self.ends.range::<[u8], _>((Bound::Unbounded, first_behind)).next_back();
        before.is_some_and(|(_, its_end)| its_end.as_deref().is_none_or(|its_end| start < its_end))
    }

    fn add(&mut self, mut start: Vec<u8>, mut end: Option<Vec<u8>>) {
        // What overlaps or touches lies from the last range that starts by `start` on.
        let up_to = (Bound::Unbounded, Bound::Included(start.as_slice()));
        if let Some((first, its_end)) = self.ends.range::<[u8], _>(up_to).next_back()
            && its_end.as_ref().is_none_or(|its_end| *its_end >= start)
        {
            start = first.clone();
        }
        while let Some((first, its_end)) = self.next_touching(&start, end.as_deref()) {
            self.remove(&first);
            end = end.zip(its_end).map(|(end, its_end)| end.max(its_end));
        }
        self.bytes += size_of_range(&start, end.as_deref());
        self.ends.insert(start, end);
        if self.bytes > BYTES_MAX {
            self.coarsen();
        }
    }

    /// The first range that starts from `start` to `end`, both included.
    fn next_touching(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let end = end.map_or(Bound::Unbounded, Bound::Included);
        let (first, its_end) = self.ends.range::<[u8], _>((Bound::Included(start), end)).next()?;
        Some((first.clone(), its_end.clone()))
    }

    fn remove(&mut self, start: &[u8]) {
        if let Some(end) = self.ends.remove(start) {
            self.bytes -= size_of_range(start, end.as_deref());
        }
    }

    /// Puts every two neighbours together (R3): more is covered than was read, by half the ranges.
    fn coarsen(&mut self) {
        let mut ranges = std::mem::take(&mut self.ends).into_iter();
        self.bytes = 0;
        while let Some((start, end)) = ranges.next() {
            let end = ranges.next().map_or(end, |(_, end)| end);
            self.bytes += size_of_range(&start, end.as_deref());
            self.ends.insert(start, end);
        }
    }
}

fn size_of_range(start: &[u8], end: Option<&[u8]>) -> usize {
    RANGE_OVERHEAD + start.len() + end.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Entropy, SeededEntropy};

    fn ranges_of(set: &ReadSet) -> Vec<(String, Option<String>)> {
        let text = |key: &[u8]| key.escape_ascii().to_string();
        let all = set.keyspaces().flat_map(|(_, ranges)| ranges.iter());
        all.map(|(start, end)| (text(start), end.map(text))).collect()
    }

    #[test]
    fn ranges_that_overlap_or_touch_become_one() {
        let mut set = ReadSet::default();
        set.add_range(1, &KeyRange::new(&("b".."d")));
        set.add_range(1, &KeyRange::new(&("f".."h")));
        set.add_key(1, b"d"); // touches the first
        assert_eq!(ranges_of(&set).len(), 2);
        set.add_range(1, &KeyRange::new(&("c"..="f")));
        assert_eq!(ranges_of(&set), [("b".into(), Some("h".into()))]);
        set.add_range(1, &KeyRange::new(&("g"..)));
        assert_eq!(ranges_of(&set), [("b".into(), None)]);
        set.add_range(1, &KeyRange::new::<&str>(&(..)));
        assert_eq!(ranges_of(&set), [(String::new(), None)]);
        assert!(set.covers(1, b"anything") && !set.covers(2, b"anything"));
    }

    #[test]
    fn an_empty_range_covers_nothing() {
        let mut set = ReadSet::default();
        set.add_range(1, &KeyRange::new(&("b".."b")));
        set.add_range(
            1,
            &KeyRange {
                start: Bound::Excluded(b"b".to_vec()),
                end: Bound::Excluded(b"b\0".to_vec()),
            },
        );
        assert!(ranges_of(&set).is_empty() && set.is_empty());
    }

    #[test]
    fn a_walk_under_way_counts_as_far_as_it_may_go() {
        let mut set = ReadSet::default();
        let first = set.begin_walk(1, KeyRange::new(&("a".."c")));
        let _forgotten = set.begin_walk(1, KeyRange::new(&("x".."z")));
        set.add_key(1, b"a");
        set.end_walk(first);
        set.settle();
        assert!(set.covers(1, b"a") && !set.covers(1, b"b") && set.covers(1, b"y"));
    }

    #[test]
    fn random_ranges_cover_what_a_list_of_them_covers() {
        let random = SeededEntropy::new(7);
        for _ in 0..300 {
            let (mut set, mut list) = (ReadSet::default(), Vec::new());
            let key = || vec![b'a' + (random.next_u64() % 20) as u8];
            for _ in 0..random.next_u64() % 12 {
                let (start, end) = (key(), key());
                let range = match random.next_u64() % 4 {
                    0 => KeyRange::new(&(start.clone()..=start)),
                    1 => KeyRange::new(&(start..)),
                    2 => KeyRange::new(&(..=end)),
                    _ => KeyRange::new(&(start..end)),
                };
                set.add_range(1, &range);
                list.push(range);
            }
            for byte in b'a'..=b'u' {
                for key in [vec![byte], vec![byte, 0]] {
                    let expected = list.iter().any(|range| range.contains(&key));
                    assert_eq!(set.covers(1, &key), expected, "{list:?} {key:?}");
                }
            }
            let ranges: Vec<_> = set.keyspaces().flat_map(|(_, ranges)| ranges.iter()).collect();
            assert!(ranges.windows(2).all(|pair| pair[0].1.is_some_and(|end| end < pair[1].0)));
        }
    }

    #[test]
    fn a_large_set_covers_more_instead_of_growing() {
        let mut set = ReadSet::default();
        for number in 0..200_000u32 {
            set.add_key(1, &number.to_be_bytes());
            set.add_key(1, &[&number.to_be_bytes()[..], &[7; 40]].concat());
        }
        assert!(set.bytes() <= BYTES_MAX);
        assert!((0..200_000u32).all(|number| set.covers(1, &number.to_be_bytes())));
    }
}
