//! Range tombstones: deletions of whole key ranges, with the stamps of their commits.
//!
//! Kept as fragments: disjoint ranges, each with the stamps of all deletions that cover it. So a
//! key's deletions are found by one binary search, however ranges overlap.
//!
//! Invariants
//! - G1  Fragments ascend and do not overlap; none is empty.
//! - G2  The stamps of a fragment descend, each once.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::base::SeqNo;

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
    seqnos: Vec<SeqNo>,
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

    /// Number of fragments: up to twice that of deletions.
    #[must_use]
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// What each further one costs, and each walk: fragments, or a quarter of all stamps in them.
    #[must_use]
    pub fn cost(&self) -> usize {
        let stamps: usize = self.fragments.iter().map(|fragment| fragment.seqnos.len()).sum();
        self.fragments.len().max(stamps / 4)
    }

    /// Bytes of memory taken, about.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let size = |fragment: &Fragment| {
            size_of::<Fragment>()
                + fragment.start.len()
                + fragment.end.as_ref().map_or(0, Vec::len)
                + fragment.seqnos.len() * size_of::<SeqNo>()
        };
        self.fragments.iter().map(size).sum()
    }

    /// Adds a deletion of the keys from `start` to in front of `end`. O(fragments).
    pub fn add(&mut self, start: &[u8], end: Option<&[u8]>, seqno: SeqNo) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        self.newest = self.newest.max(seqno);
        let old = std::mem::take(&mut self.fragments);
        // Of the range, what no fragment has covered yet starts here; none when all of it has.
        let mut uncovered = Some(start.to_vec());
        for fragment in old {
            if fragment.ends_by(start) || !fragment.starts_before_end(end) {
                if !fragment.starts_before_end(end) {
                    self.fill_up_to(&mut uncovered, end, seqno);
                }
                self.fragments.push(fragment);
                continue;
            }
            if let Some(from) = uncovered.take()
                && from < fragment.start
            {
                let end = Some(fragment.start.clone());
                self.fragments.push(Fragment { start: from, end, seqnos: vec![seqno] });
            }
            uncovered.clone_from(&fragment.end);
            self.push_divided(fragment, start, end, seqno);
        }
        self.fill_up_to(&mut uncovered, end, seqno);
    }

    /// The rest of a range that is being added, from where nothing has covered it yet.
    fn fill_up_to(&mut self, uncovered: &mut Option<Vec<u8>>, end: Option<&[u8]>, seqno: SeqNo) {
        if let Some(start) = uncovered.take()
            && end.is_none_or(|end| *start < *end)
        {
            let end = end.map(<[u8]>::to_vec);
            self.fragments.push(Fragment { start, end, seqnos: vec![seqno] });
        }
    }

    /// Divides a fragment where a range that overlaps it starts and ends.
    fn push_divided(
        &mut self,
        mut fragment: Fragment,
        start: &[u8],
        end: Option<&[u8]>,
        seqno: SeqNo,
    ) {
        if *fragment.start < *start {
            let before = Fragment {
                start: std::mem::replace(&mut fragment.start, start.to_vec()),
                end: Some(start.to_vec()),
                seqnos: fragment.seqnos.clone(),
            };
            self.fragments.push(before);
        }
        let behind = match end {
            Some(end) if fragment.end.as_ref().is_none_or(|its_end| *end < **its_end) => {
                let its_end = fragment.end.replace(end.to_vec());
                let seqnos = fragment.seqnos.clone();
                Some(Fragment { start: end.to_vec(), end: its_end, seqnos })
            }
            _ => None,
        };
        if let Err(place) = fragment.seqnos.binary_search_by(|other| seqno.cmp(other)) {
            fragment.seqnos.insert(place, seqno);
        }
        self.fragments.push(fragment);
        self.fragments.extend(behind);
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
        let mut rest: Vec<(&[Fragment], SeqNo)> =
            sets.iter().map(|(set, at)| (set.fragments.as_slice(), *at)).collect();
        let mut merged = RangeTombstones::default();
        // From one bound of any fragment to the next, the same deletions hold.
        let mut from = Some(&[][..]);
        while let Some(start) = from {
            let mut newest = None;
            let mut next: Option<&[u8]> = None;
            for (fragments, at) in &mut rest {
                while let [first, behind @ ..] = *fragments
                    && first.ends_by(start)
                {
                    *fragments = behind;
                }
                let Some(first) = fragments.first() else { continue };
                let bound = if *first.start <= *start {
                    newest = newest.max(first.newest(*at));
                    first.end.as_deref()
                } else {
                    Some(first.start.as_slice())
                };
                next = bound.into_iter().chain(next).min();
            }
            if let Some(seqno) = newest {
                merged.append(start, next, seqno);
            }
            from = next;
        }
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
        self.fragments.iter().map(|fragment| (fragment.range(), fragment.seqnos.as_slice()))
    }

    /// Adds a deletion behind all others; as one with the last, if it is its continuation. The
    /// range is not empty, and does not begin before the last one ends.
    pub fn append(&mut self, start: &[u8], end: Option<&[u8]>, seqno: SeqNo) {
        self.newest = self.newest.max(seqno);
        let end = end.map(<[u8]>::to_vec);
        match self.fragments.last_mut() {
            Some(last) if last.end.as_deref() == Some(start) && last.seqnos == [seqno] => {
                last.end = end;
            }
            _ => self.fragments.push(Fragment { start: start.to_vec(), end, seqnos: vec![seqno] }),
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
        fragment.map_or_else(Vec::new, |fragment| fragment.seqnos.clone())
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

    /// Number of fragments that start at `key` or before.
    fn starting_by(&self, key: &[u8]) -> usize {
        self.fragments.partition_point(|fragment| *fragment.start <= *key)
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
                tombstones.add(&start, end.as_deref(), seqno);
                list.push((start, end, seqno));
            }
            let fragments = &tombstones.fragments;
            assert!(fragments.windows(2).all(|pair| pair[0].ends_by(&pair[1].start)), "G1");
            for fragment in fragments {
                assert!(!fragment.ends_by(&fragment.start), "G1");
                assert!(fragment.seqnos.windows(2).all(|pair| pair[0] > pair[1]), "G2");
            }
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
        tombstones.add(b"b", Some(b"d"), stamp(1));
        tombstones.add(b"c", Some(b"f"), stamp(2));
        tombstones.add(b"x", None, stamp(3));
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
                    set.add(&start, end.as_deref(), stamp(1 + draw(12)));
                }
                sets.push((Arc::new(set), if draw(2) == 0 { SeqNo::MAX } else { stamp(draw(12)) }));
            }
            let together = RangeTombstones::together(sets.clone());
            assert!(together.as_ref().is_none_or(|together| !together.is_empty()));
            let together = together.unwrap_or_default();
            let fragments = &together.fragments;
            assert!(fragments.windows(2).all(|pair| pair[0].ends_by(&pair[1].start)), "G1");
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
        set.add(b"a", Some(b"m"), stamp(1));
        set.add(b"f", Some(b"z"), stamp(5));
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
