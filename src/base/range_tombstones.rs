//! Range tombstones: deletions of whole key ranges, with the stamps of their commits.
//!
//! Kept as fragments: disjoint ranges, each with the stamps of all deletions that cover it. So a
//! key's deletions are found by one binary search, however ranges overlap.
//!
//! Invariants
//! - G1  Fragments ascend and do not overlap; none is empty, and no two that touch have the same
//!   stamps.
//! - G2  The stamps of a fragment descend, each once.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::SeqNo;

/// The two counts in front of shared stamps.
const STAMPS_HEAD_SIZE: usize = 2 * size_of::<usize>();

/// Stamps of deletions; those of a fragment that was divided are shared by its pieces.
type Stamps = Arc<[SeqNo]>;

/// Deletions of key ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    fragments: Vec<Fragment>,
    /// At least the stamp of each.
    newest: SeqNo,
}

/// A range that is covered by the same deletions everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fragment {
    start: Vec<u8>,
    /// The first key behind; none if there is no end.
    end: Option<Vec<u8>>,
    seqnos: Stamps,
}

/// A range of keys that was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedRange<'a> {
    /// Its first key.
    pub start: &'a [u8],
    /// The first key behind it; none if there is no end.
    pub end: Option<&'a [u8]>,
    /// The newest deletion.
    pub seqno: SeqNo,
}

impl RangeTombstones {
    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The newest stamp that any has, or a later one.
    pub(super) fn newest(&self) -> SeqNo {
        self.newest
    }

    /// Number of fragments: up to twice that of deletions.
    #[must_use]
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// What putting them together with others costs, and each walk: fragments, or a quarter of all
    /// stamps in them.
    #[must_use]
    pub fn cost(&self) -> usize {
        cost_of(self.fragments.len(), self.stamp_count())
    }

    /// Stamps of all fragments.
    pub(super) fn stamp_count(&self) -> usize {
        self.fragments.iter().map(|fragment| fragment.seqnos.len()).sum()
    }

    /// Stamps of the fragment that has most of them.
    pub(super) fn depth(&self) -> usize {
        self.fragments.iter().map(|fragment| fragment.seqnos.len()).max().unwrap_or(0)
    }

    /// Bytes of memory taken, about; stamps that fragments share count once.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let mut counted = HashSet::new();
        let mut size = 0;
        for fragment in &self.fragments {
            size += size_of::<Fragment>()
                + fragment.start.len()
                + fragment.end.as_ref().map_or(0, Vec::len);
            if counted.insert(fragment.seqnos.as_ptr()) {
                size += STAMPS_HEAD_SIZE + fragment.seqnos.len() * size_of::<SeqNo>();
            }
        }
        size
    }

    /// Deletions of ranges by one commit, in any order, as ranges that do not touch. Empty ones are
    /// nothing. O(n log n).
    #[must_use]
    pub fn of<'k>(
        ranges: impl IntoIterator<Item = (&'k [u8], Option<&'k [u8]>)>,
        seqno: SeqNo,
    ) -> RangeTombstones {
        let is_some = |(start, end): &(&[u8], Option<&[u8]>)| end.is_none_or(|end| *start < end);
        let mut ranges: Vec<_> = ranges.into_iter().filter(is_some).collect();
        ranges.sort_unstable_by_key(|(start, _)| *start);
        let mut union = RangeTombstones::default();
        let mut ranges = ranges.into_iter();
        let Some((mut from, mut reached)) = ranges.next() else { return union };
        for (start, end) in ranges {
            if reached.is_some_and(|reached| reached < start) {
                union.append(from, reached, seqno);
                (from, reached) = (start, end);
            } else {
                reached = reached.zip(end).map(|(reached, end)| reached.max(end));
            }
        }
        union.append(from, reached, seqno);
        union
    }

    /// What both delete. O(fragments of both, and their stamps).
    #[must_use]
    pub fn union(&self, other: &RangeTombstones, kept: KeptStamps) -> RangeTombstones {
        let mut union = RangeTombstones::default();
        let mut together = TogetherStamps { kept, made: HashMap::new() };
        sweep(vec![&self.fragments, &other.fragments], |start, end, covering| {
            let stamps = match covering {
                [(_, a), (_, b)] => together.of(&a.seqnos, &b.seqnos),
                [(_, only)] => Arc::clone(&only.seqnos),
                _ => return,
            };
            union.push(start, end, stamps);
        });
        union
    }

    /// What `sets` delete together, each up to a stamp: of each range the newest deletion. `None`
    /// if that is nothing. A single set of which everything counts is shared; else all fragments
    /// are gone through once, and copied.
    #[must_use]
    pub fn together(mut sets: Vec<(Arc<RangeTombstones>, SeqNo)>) -> Option<Arc<RangeTombstones>> {
        if let [(set, at)] = sets.as_slice()
            && set.newest <= *at
        {
            return sets.pop().map(|(set, _)| set).filter(|set| !set.is_empty());
        }
        let merged = RangeTombstones::merged(&sets);
        (!merged.is_empty()).then(|| Arc::new(merged))
    }

    fn merged(sets: &[(Arc<RangeTombstones>, SeqNo)]) -> RangeTombstones {
        let fragments = sets.iter().map(|(set, _)| set.fragments.as_slice()).collect();
        let mut merged = RangeTombstones::default();
        sweep(fragments, |start, end, covering| {
            let newest = covering.iter().filter_map(|(set, of_set)| of_set.newest(sets[*set].1));
            if let Some(seqno) = newest.max() {
                merged.append(start, end, seqno);
            }
        });
        merged
    }

    /// What of them deletes keys from `start` on. O(fragments).
    #[must_use]
    pub fn behind(&self, start: &[u8]) -> RangeTombstones {
        let first = self.fragments.partition_point(|fragment| fragment.ends_by(start));
        let mut fragments = self.fragments[first..].to_vec();
        if let Some(first) = fragments.first_mut()
            && *first.start < *start
        {
            first.start = start.to_vec();
        }
        RangeTombstones { fragments, newest: self.newest }
    }

    /// What of them deletes keys in front of `end`. O(fragments).
    #[must_use]
    pub fn in_front_of(&self, end: &[u8]) -> RangeTombstones {
        let count = self.fragments.partition_point(|fragment| *fragment.start < *end);
        let mut fragments = self.fragments[..count].to_vec();
        if let Some(last) = fragments.last_mut()
            && last.end.as_ref().is_none_or(|last| **last > *end)
        {
            last.end = Some(end.to_vec());
        }
        RangeTombstones { fragments, newest: self.newest }
    }

    /// The ranges, ascending, each with the newest deletion in it.
    pub fn iter(&self) -> impl Iterator<Item = DeletedRange<'_>> {
        self.fragments.iter().map(Fragment::range)
    }

    /// The ranges, ascending, each with the stamps of all deletions that cover it, descending.
    pub fn all(&self) -> impl ExactSizeIterator<Item = (DeletedRange<'_>, &[SeqNo])> {
        self.fragments.iter().map(|fragment| (fragment.range(), &*fragment.seqnos))
    }

    /// Adds a deletion behind all others; as one with the last, if it is its continuation. The
    /// range is not empty, and does not begin before the last one ends.
    pub fn append(&mut self, start: &[u8], end: Option<&[u8]>, seqno: SeqNo) {
        let stamps = match self.fragments.last() {
            Some(last) if *last.seqnos == [seqno] => Arc::clone(&last.seqnos),
            _ => Arc::from([seqno]),
        };
        self.push(start, end, stamps);
    }

    fn push(&mut self, start: &[u8], end: Option<&[u8]>, seqnos: Stamps) {
        self.newest = self.newest.max(seqnos[0]);
        let end = end.map(<[u8]>::to_vec);
        match self.fragments.last_mut() {
            Some(last) if last.end.as_deref() == Some(start) && last.seqnos == seqnos => {
                last.end = end;
            }
            _ => self.fragments.push(Fragment { start: start.to_vec(), end, seqnos }),
        }
    }

    /// The range that `key` was deleted with, by the newest deletion up to the stamp `at`.
    #[must_use]
    pub fn covering(&self, key: &[u8], at: SeqNo) -> Option<DeletedRange<'_>> {
        let fragment = self.fragments[..self.starting_by(key)].last()?;
        if fragment.ends_by(key) {
            return None;
        }
        let seqno = fragment.newest(at)?;
        Some(DeletedRange { start: &fragment.start, end: fragment.end.as_deref(), seqno })
    }

    /// The stamps of all deletions that cover `key`, descending.
    #[must_use]
    pub fn stamps_of(&self, key: &[u8]) -> Vec<SeqNo> {
        let fragment = self.fragments[..self.starting_by(key)].last();
        let fragment = fragment.filter(|fragment| !fragment.ends_by(key));
        fragment.map_or_else(Vec::new, |fragment| fragment.seqnos.to_vec())
    }

    /// The first range, with the newest deletion in it, that has keys from `from` on.
    #[must_use]
    pub fn first_from(&self, from: &[u8]) -> Option<DeletedRange<'_>> {
        let place = self.fragments.partition_point(|fragment| fragment.ends_by(from));
        self.fragments.get(place).map(Fragment::range)
    }

    /// The last range, with the newest deletion in it, that has keys in front of `key`.
    #[must_use]
    pub fn last_before(&self, key: &[u8]) -> Option<DeletedRange<'_>> {
        let place = self.fragments.partition_point(|fragment| *fragment.start < *key);
        self.fragments[..place].last().map(Fragment::range)
    }

    /// Whether anything from `start` to in front of `end` was deleted by a commit above `since`.
    #[must_use]
    pub fn has_newer(&self, start: &[u8], end: Option<&[u8]>, since: SeqNo) -> bool {
        let first = self.fragments.partition_point(|fragment| fragment.ends_by(start));
        let overlapping = self.fragments[first..].iter();
        let mut overlapping = overlapping.take_while(|fragment| fragment.starts_before_end(end));
        overlapping.any(|fragment| fragment.seqnos[0] > since)
    }

    /// How the keys from `start` to in front of `end` are covered.
    #[must_use]
    pub fn coverage(&self, start: &[u8], end: Option<&[u8]>) -> Coverage {
        let first = self.fragments.partition_point(|fragment| fragment.ends_by(start));
        let mut reached = start;
        let mut coverage = Coverage::Nothing;
        for fragment in &self.fragments[first..] {
            if !fragment.starts_before_end(end) {
                break;
            }
            coverage = Coverage::Part;
            if *fragment.start > *reached {
                return Coverage::Part;
            }
            match (&fragment.end, end) {
                (None, _) => return Coverage::Whole,
                (Some(its_end), Some(end)) if **its_end >= *end => return Coverage::Whole,
                (Some(its_end), _) => reached = its_end,
            }
        }
        coverage
    }

    /// Whether all of them end in front of `key`, or there.
    #[must_use]
    pub fn ends_by(&self, key: &[u8]) -> bool {
        self.fragments.last().is_none_or(|last| last.ends_by(key))
    }

    /// Number of fragments that start at `key` or before.
    fn starting_by(&self, key: &[u8]) -> usize {
        self.fragments.partition_point(|fragment| *fragment.start <= *key)
    }
}

/// Goes from one bound of any fragment of these lists to the next, between which the same fragments
/// hold, and hands each such range that has some to `visit`: with the fragments, and the lists that
/// they are of. O(bounds of all, for each list).
fn sweep<'f>(
    mut lists: Vec<&'f [Fragment]>,
    mut visit: impl FnMut(&'f [u8], Option<&'f [u8]>, &[(usize, &'f Fragment)]),
) {
    let mut covering = Vec::with_capacity(lists.len());
    let mut from = Some(&[][..]);
    while let Some(start) = from {
        covering.clear();
        let mut next: Option<&[u8]> = None;
        for (list, fragments) in lists.iter_mut().enumerate() {
            while let [first, behind @ ..] = *fragments
                && first.ends_by(start)
            {
                *fragments = behind;
            }
            let Some(first) = fragments.first() else { continue };
            let bound = if *first.start <= *start {
                covering.push((list, first));
                first.end.as_deref()
            } else {
                Some(first.start.as_slice())
            };
            next = bound.into_iter().chain(next).min();
        }
        if !covering.is_empty() {
            visit(start, next, &covering);
        }
        from = next;
    }
}

/// See [`RangeTombstones::cost`].
pub(super) fn cost_of(fragment_count: usize, stamp_count: usize) -> usize {
    fragment_count.max(stamp_count / 4)
}

/// Which stamps are kept of a range that was deleted more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptStamps {
    /// Of each deletion: for who reads as of earlier moments, too.
    All,
    /// Of the newest. So ranges that lie in each other, each in the one before, take no more memory
    /// than others.
    Newest,
}

/// Stamps of two sets together: of the same of both the same in memory, as a batch of many ranges
/// divides one of before into very many pieces.
struct TogetherStamps {
    kept: KeptStamps,
    /// Of those that were put together so far, which are there meanwhile, by their addresses.
    made: HashMap<[*const SeqNo; 2], Stamps>,
}

impl TogetherStamps {
    fn of(&mut self, a: &Stamps, b: &Stamps) -> Stamps {
        if self.kept == KeptStamps::Newest {
            return Arc::clone(if a[0] < b[0] { b } else { a });
        }
        let together = || {
            let mut all = [&**a, &**b].concat();
            all.sort_by(|a, b| b.cmp(a)); // Two runs, which it knows to merge.
            all.dedup();
            all.into()
        };
        Arc::clone(self.made.entry([a.as_ptr(), b.as_ptr()]).or_insert_with(together))
    }
}

/// How much of a range was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// No key in it.
    Nothing,
    /// Some.
    Part,
    /// Every key in it.
    Whole,
}

impl Fragment {
    fn range(&self) -> DeletedRange<'_> {
        DeletedRange { start: &self.start, end: self.end.as_deref(), seqno: self.seqnos[0] }
    }

    /// Whether all of it is in front of `key`.
    fn ends_by(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| (**end).cmp(key) != Ordering::Greater)
    }

    fn starts_before_end(&self, end: Option<&[u8]>) -> bool {
        end.is_none_or(|end| *self.start < *end)
    }

    fn newest(&self, at: SeqNo) -> Option<SeqNo> {
        self.seqnos.iter().copied().find(|seqno| *seqno <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Entropy, SeededEntropy};

    fn stamp(number: u64) -> SeqNo {
        SeqNo::from_u64(number)
    }

    fn add(set: &mut RangeTombstones, start: &[u8], end: Option<&[u8]>, seqno: SeqNo) {
        *set = set.union(&RangeTombstones::of([(start, end)], seqno), KeptStamps::All);
    }

    fn assert_invariants(set: &RangeTombstones) {
        for pair in set.fragments.windows(2) {
            assert!(pair[0].ends_by(&pair[1].start), "G1");
            let touch = pair[0].end.as_ref() == Some(&pair[1].start);
            assert!(!touch || pair[0].seqnos != pair[1].seqnos, "G1");
        }
        for fragment in &set.fragments {
            assert!(!fragment.ends_by(&fragment.start), "G1");
            assert!(!fragment.seqnos.is_empty());
            assert!(fragment.seqnos.windows(2).all(|pair| pair[0] > pair[1]), "G2");
            assert!(fragment.seqnos[0] <= set.newest);
        }
    }

    #[test]
    fn fragments_equal_a_list_of_deletions() {
        let random = SeededEntropy::new(3);
        let draw = |end: u64| random.next_u64() % end;
        for _ in 0..400 {
            let (mut tombstones, mut list) = (RangeTombstones::default(), Vec::new());
            for number in 0..draw(12) {
                let start = vec![b'a' + draw(20) as u8];
                let end = (draw(8) > 0).then(|| vec![b'a' + draw(22) as u8]);
                let seqno = stamp(if draw(3) == 0 { draw(12) } else { number });
                add(&mut tombstones, &start, end.as_deref(), seqno);
                list.push((start, end, seqno));
            }
            assert_invariants(&tombstones);
            for key in b'a'..=b'w' {
                for at in [stamp(3), SeqNo::MAX] {
                    let covers = |(start, end, seqno): &&(Vec<u8>, Option<Vec<u8>>, SeqNo)| {
                        start.as_slice() <= &[key][..]
                            && end.as_ref().is_none_or(|end| &[key][..] < end.as_slice())
                            && *seqno <= at
                    };
                    let expected = list.iter().filter(covers).map(|(.., seqno)| *seqno).max();
                    let found = tombstones.covering(&[key], at);
                    assert_eq!(found.map(|range| range.seqno), expected, "{list:?} {key}");
                    if let Some(DeletedRange { start, end, .. }) = found {
                        assert!(start <= &[key][..] && end.is_none_or(|end| end > &[key][..]));
                    }
                }
            }
            let from = [b'a' + draw(24) as u8];
            let (behind, in_front) = (tombstones.behind(&from), tombstones.in_front_of(&from));
            for key in b'a'..=b'w' {
                let stamps = tombstones.stamps_of(&[key]);
                let (front, back) = match [key] < from {
                    true => (stamps, Vec::new()),
                    false => (Vec::new(), stamps),
                };
                assert_eq!(behind.stamps_of(&[key]), back, "{list:?} {key}");
                assert_eq!(in_front.stamps_of(&[key]), front, "{list:?} {key}");
            }
            let starts = behind.iter().map(|range| range.start);
            assert!(starts.into_iter().all(|start| *start >= from[..]), "{list:?}");
        }
    }

    #[test]
    fn coverage_sees_through_fragments_that_touch() {
        let mut tombstones = RangeTombstones::default();
        add(&mut tombstones, b"b", Some(b"d"), stamp(1));
        add(&mut tombstones, b"c", Some(b"f"), stamp(2));
        add(&mut tombstones, b"x", None, stamp(3));
        for (start, end, expected) in [
            ("b", Some("f"), Coverage::Whole),
            ("c", Some("d"), Coverage::Whole),
            ("a", Some("c"), Coverage::Part),
            ("e", Some("g"), Coverage::Part),
            ("f", Some("x"), Coverage::Nothing),
            ("f", None, Coverage::Part),
            ("y", None, Coverage::Whole),
            ("a", Some("b"), Coverage::Nothing),
        ] {
            let found = tombstones.coverage(start.as_bytes(), end.map(str::as_bytes));
            assert_eq!(found, expected, "{start}..{end:?}");
        }
        assert!(tombstones.has_newer(b"a", Some(b"c"), stamp(0)));
        assert!(!tombstones.has_newer(b"a", Some(b"c"), stamp(1)));
        assert!(!tombstones.has_newer(b"g", Some(b"x"), stamp(0)));
        assert_eq!(tombstones.first_from(b"d").map(|range| range.start), Some(&b"d"[..]));
        assert_eq!(tombstones.last_before(b"x").map(|range| range.start), Some(&b"d"[..]));
        assert!(tombstones.last_before(b"b").is_none() && tombstones.first_from(b"zz").is_some());
    }

    #[test]
    fn several_sets_delete_together_what_each_deletes() {
        let random = SeededEntropy::new(4);
        let draw = |end: u64| random.next_u64() % end;
        for _ in 0..600 {
            let mut sets = Vec::new();
            for _ in 0..draw(5) {
                let mut set = RangeTombstones::default();
                for _ in 0..draw(6) {
                    let start = vec![b'a' + draw(20) as u8];
                    let end = (draw(8) > 0).then(|| vec![b'a' + draw(22) as u8]);
                    add(&mut set, &start, end.as_deref(), stamp(1 + draw(12)));
                }
                sets.push((Arc::new(set), if draw(2) == 0 { SeqNo::MAX } else { stamp(draw(12)) }));
            }
            let together = RangeTombstones::together(sets.clone());
            assert!(together.as_ref().is_none_or(|together| !together.is_empty()));
            let together = together.unwrap_or_default();
            assert_invariants(&together);
            for key in b'a'..=b'w' {
                let of_sets = sets.iter().filter_map(|(set, at)| set.covering(&[key], *at));
                let expected = of_sets.map(|range| range.seqno).max();
                let found = together.covering(&[key], SeqNo::MAX);
                assert_eq!(found.map(|range| range.seqno), expected, "{sets:?} {key}");
            }
        }
    }

    #[test]
    fn one_set_is_shared_if_all_of_it_counts() {
        let mut set = RangeTombstones::default();
        add(&mut set, b"a", Some(b"m"), stamp(1));
        add(&mut set, b"f", Some(b"z"), stamp(5));
        let set = Arc::new(set);
        for (at, is_shared) in [(SeqNo::MAX, true), (stamp(5), true), (stamp(4), false)] {
            let found = RangeTombstones::together(vec![(Arc::clone(&set), at)]).unwrap();
            assert_eq!(Arc::ptr_eq(&found, &set), is_shared);
            assert_eq!(found.covering(b"n", SeqNo::MAX).is_some(), is_shared);
        }
        assert!(RangeTombstones::together(vec![(Arc::clone(&set), stamp(0))]).is_none());
        assert!(RangeTombstones::together(Vec::new()).is_none());
    }

    /// Adding the ranges one by one copied 20,000 fragments 20,000 times.
    #[test]
    fn sets_of_many_ranges_interleave() {
        let sets = (0..4_u32).map(|number| {
            let mut set = RangeTombstones::default();
            for place in (0..5000_u32).map(|place| place * 4 + number) {
                let (start, end) = (place.to_be_bytes(), (place + 1).to_be_bytes());
                set.append(&start, Some(&end), stamp(u64::from(place)));
            }
            (Arc::new(set), SeqNo::MAX)
        });
        let together = RangeTombstones::together(sets.collect()).unwrap();
        assert_eq!(together.fragment_count(), 20_000);
    }
}
