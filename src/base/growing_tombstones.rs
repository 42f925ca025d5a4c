//! Range tombstones that grow, a commit's at a time, without all of them being copied each time.
//!
//! Kept as a few sets, of which each is much larger than the next. What is added is a set of its
//! own; while it is not much smaller than the one in front of it, both become one. So of `n`
//! deletions one by one each is copied O(log n) times, and a key is looked up in O(log n) sets. Who
//! has to see all ranges in order puts the sets together; that is kept until something is added,
//! and is then what grows.
//!
//! Invariants
//! - R1  The sets in front cost [`GROWTH`] times as much as the next, at least; none is empty.
//! - R2  `whole` is what the sets delete together.
//! - R3  `memory` is at least that of the sets, and of all as one set; `cost` is at least half.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::base::range_tombstones::{KeptStamps, RangeTombstones, cost_of};
use crate::base::sync::OnceLock;

/// A set costs so many times as much as the next, at least. More would be fewer sets to look into,
/// and more copying: each deletion is copied about so often for each factor of it in their number.
/// A thousand are in four sets at most.
const GROWTH: usize = 8;

/// Deletions of key ranges, to which more are added. A copy shares what it has.
#[derive(Clone, Debug)]
pub struct GrowingTombstones {
    kept: KeptStamps,
    /// The largest first.
    sets: Vec<CountedSet>,
    whole: OnceLock<Arc<RangeTombstones>>,
    cost: usize,
    memory: usize,
}

/// A set, and what is known of it without going through it.
#[derive(Clone, Debug)]
struct CountedSet {
    set: Arc<RangeTombstones>,
    cost: usize,
    memory: usize,
    fragments: usize,
    stamps: usize,
    depth: usize,
}

impl GrowingTombstones {
    /// None so far, that keep these stamps.
    #[must_use]
    pub fn new(kept: KeptStamps) -> GrowingTombstones {
        GrowingTombstones { kept, sets: Vec::new(), whole: OnceLock::new(), cost: 0, memory: 0 }
    }

    /// Adds the deletions of a commit. O(those, log n times), over many calls.
    pub fn add(&mut self, added: RangeTombstones) {
        if added.is_empty() {
            return;
        }
        if let Some(whole) = self.whole.take() {
            self.sets = vec![CountedSet::of(whole)]; // R2
        }
        let mut last = CountedSet::of(Arc::new(added));
        while let Some(before) = self.sets.pop_if(|before| before.cost < GROWTH * last.cost) {
            last = CountedSet::of(Arc::new(before.set.union(&last.set, self.kept)));
        }
        self.sets.push(last);
        self.count();
    }

    /// R3: each fragment may come to lie under all stamps of each other set.
    fn count(&mut self) {
        let sum = |figure: fn(&CountedSet) -> usize| self.sets.iter().map(figure).sum::<usize>();
        let (fragments, stamps) = (sum(|of| of.fragments), sum(|of| of.stamps));
        let depth = sum(|of| of.depth);
        let crossing: usize = match self.kept {
            KeptStamps::Newest => 0,
            KeptStamps::All => self.sets.iter().map(|of| of.fragments * (depth - of.depth)).sum(),
        };
        let of_sets = sum(|of| of.memory);
        self.cost = sum(|of| of.cost).max(cost_of(fragments, stamps + crossing));
        self.memory = match self.sets.len() {
            0 | 1 => of_sets,
            _ => 3 * of_sets + crossing * size_of::<SeqNo>(),
        };
    }

    /// All of them as one set. O(n) the first time after something was added.
    #[must_use]
    pub fn whole(&self) -> Arc<RangeTombstones> {
        match self.sets.as_slice() {
            [] => Arc::default(),
            [only] => Arc::clone(&only.set),
            sets => {
                if let Some(whole) = self.whole.get() {
                    return Arc::clone(whole);
                }
                let whole = self.put_together(sets); // Nobody waits for it: two may do so.
                Arc::clone(self.whole.get_or_init(|| whole))
            }
        }
    }

    /// The smallest first.
    fn put_together(&self, sets: &[CountedSet]) -> Arc<RangeTombstones> {
        let sets = sets.iter().rev().map(|counted| Arc::clone(&counted.set));
        let union =
            |a: Arc<RangeTombstones>, b: Arc<RangeTombstones>| Arc::new(b.union(&a, self.kept));
        sets.reduce(union).unwrap_or_default()
    }

    /// The newest deletion up to the stamp `at` that covers `key`.
    #[must_use]
    pub fn newest_of(&self, key: &[u8], at: SeqNo) -> Option<SeqNo> {
        if let Some(whole) = self.whole.get() {
            return whole.covering(key, at).map(|range| range.seqno);
        }
        let mut newest = None;
        for CountedSet { set, .. } in self.sets.iter().rev() {
            if newest.is_none_or(|newest| newest < set.newest()) {
                newest = newest.max(set.covering(key, at).map(|range| range.seqno));
            }
        }
        newest
    }

    /// What each walk costs; see [`RangeTombstones::cost`].
    #[must_use]
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Bytes of memory taken, about; with those that all as one set take, whether anybody has asked
    /// for it or not.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.memory
    }
}

impl CountedSet {
    fn of(set: Arc<RangeTombstones>) -> CountedSet {
        let (fragments, stamps) = (set.fragment_count(), set.stamp_count());
        CountedSet {
            cost: cost_of(fragments, stamps),
            memory: set.memory_size(),
            fragments,
            stamps,
            depth: set.depth(),
            set,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Coverage, Entropy, SeededEntropy};

    type Deletion = (Vec<u8>, Option<Vec<u8>>, SeqNo);

    fn stamp(number: u64) -> SeqNo {
        SeqNo::from_u64(number)
    }

    fn as_range((start, end, _): &Deletion) -> (&[u8], Option<&[u8]>) {
        (start, end.as_deref())
    }

    fn covers((start, end, _): &Deletion, key: &[u8]) -> bool {
        start.as_slice() <= key && end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// Stamps of a list's deletions of a key, descending, each once.
    fn stamps_in(list: &[Deletion], key: &[u8]) -> Vec<SeqNo> {
        let mut stamps: Vec<SeqNo> =
            list.iter().filter(|of| covers(of, key)).map(|(.., seqno)| *seqno).collect();
        stamps.sort_unstable_by(|a, b| b.cmp(a));
        stamps.dedup();
        stamps
    }

    /// Against a list: batches whole, their ranges one by one, and where only the newest counts.
    #[test]
    fn batches_equal_their_ranges_one_by_one() {
        let random = SeededEntropy::new(6);
        let draw = |end: u64| random.next_u64() % end;
        for _ in 0..300 {
            let mut whole = GrowingTombstones::new(KeptStamps::All);
            let mut single = GrowingTombstones::new(KeptStamps::All);
            let mut newest = GrowingTombstones::new(KeptStamps::Newest);
            let mut list: Vec<Deletion> = Vec::new();
            for number in 0..draw(20) {
                let seqno = stamp(if draw(4) == 0 { draw(20) } else { number });
                let batch = (0..draw(6)).map(|_| {
                    let end = (draw(12) > 0).then(|| vec![b'a' + draw(24) as u8]);
                    (vec![b'a' + draw(22) as u8], end, seqno)
                });
                let batch: Vec<Deletion> = batch.collect();
                let before = (whole.clone(), whole.whole());
                whole.add(RangeTombstones::of(batch.iter().map(as_range), seqno));
                assert_eq!(before.0.whole(), before.1, "a copy stays as it is");
                for deletion in &batch {
                    single.add(RangeTombstones::of([as_range(deletion)], seqno));
                }
                newest.add(RangeTombstones::of(batch.iter().map(as_range), seqno));
                list.extend(batch);
                if draw(3) == 0 {
                    let _ = single.whole(); // It grows on from there.
                }
                for set in [&whole, &single, &newest] {
                    let costs = set.sets.windows(2).map(|pair| (pair[0].cost, pair[1].cost));
                    assert!(costs.into_iter().all(|(a, b)| a >= GROWTH * b), "R1");
                }
            }
            let at = stamp(draw(22));
            for key in b'a'..=b'z' {
                let expected = stamps_in(&list, &[key]);
                assert_eq!(whole.whole().stamps_of(&[key]), expected, "{list:?} {key}");
                let up_to = expected.iter().copied().find(|stamp| *stamp <= at);
                assert_eq!(whole.newest_of(&[key], at), up_to, "{list:?} {key} {at:?}");
                assert_eq!(single.newest_of(&[key], at), up_to, "{list:?} {key} {at:?}");
                let first = expected.first().copied();
                assert_eq!(newest.newest_of(&[key], SeqNo::MAX), first, "{list:?} {key}");
                let of_whole = newest.whole().stamps_of(&[key]);
                assert_eq!(of_whole, first.into_iter().collect::<Vec<_>>(), "{list:?} {key}");
            }
            assert_eq!(whole.whole(), single.whole(), "{list:?}");
        }
    }

    /// Copying all of them for each would be two thousand million fragments.
    #[test]
    fn many_ranges_one_by_one_are_few_copies_and_few_sets() {
        const COUNT: u32 = 1 << 16;
        let mut growing = GrowingTombstones::new(KeptStamps::All);
        let (mut copied, mut sets) = (0, 0);
        for number in 0..COUNT {
            let place = number.wrapping_mul(0x9E37_79B1) >> 1 << 1; // Even, and in no order.
            let (start, end) = (place.to_be_bytes(), (place + 1).to_be_bytes());
            let before: Vec<_> =
                growing.sets.iter().map(|counted| Arc::clone(&counted.set)).collect();
            let seqno = stamp(u64::from(number));
            growing.add(RangeTombstones::of([(&start[..], Some(&end[..]))], seqno));
            let is_new = |set: &&CountedSet| before.iter().all(|old| !Arc::ptr_eq(old, &set.set));
            copied += growing.sets.iter().filter(is_new).map(|counted| counted.cost).sum::<usize>();
            sets = sets.max(growing.sets.len());
        }
        assert_eq!(growing.whole().coverage(&[], None), Coverage::Part);
        assert!(growing.whole().fragment_count() > COUNT as usize / 3);
        assert!(copied < 40 * COUNT as usize, "{copied} fragments were copied");
        assert!(sets <= 6, "{sets} sets");
    }

    /// Each lies in all before it: with all stamps that would be two thousand million of them.
    #[test]
    fn ranges_in_each_other_take_no_more_memory_than_others() {
        const COUNT: u32 = 1 << 16;
        let mut growing = GrowingTombstones::new(KeptStamps::Newest);
        for number in 0..COUNT {
            let (start, end) = (number.to_be_bytes(), (u32::MAX - number).to_be_bytes());
            let seqno = stamp(u64::from(number));
            growing.add(RangeTombstones::of([(&start[..], Some(&end[..]))], seqno));
        }
        assert!(growing.cost() <= 2 * COUNT as usize);
        let newest = growing.newest_of(&(1u32 << 30).to_be_bytes(), SeqNo::MAX);
        assert_eq!(newest, Some(stamp(u64::from(COUNT - 1))));
        assert_eq!(growing.newest_of(&7u32.to_be_bytes(), SeqNo::MAX), Some(stamp(7)));
    }

    /// Ranges, a commit each, as one set; and deletions of all of them, which stay beside: each of
    /// the former comes to have all of these stamps, when somebody asks.
    #[test]
    fn what_asking_for_the_whole_comes_to_is_counted_before() {
        let mut growing = GrowingTombstones::new(KeptStamps::All);
        let places: Vec<[u8; 4]> = (0..1800u32).map(u32::to_be_bytes).collect();
        for (number, pair) in (0..).zip(places.chunks(2)) {
            growing.add(RangeTombstones::of([(&pair[0][..], Some(&pair[1][..]))], stamp(number)));
        }
        let _ = growing.whole();
        for number in 900..1340 {
            growing.add(RangeTombstones::of([(&[][..], None)], stamp(number)));
            let counted = (growing.cost(), growing.memory_size());
            if number % 40 == 0 {
                let whole = growing.clone().whole();
                assert!(2 * counted.0 >= whole.cost(), "{number} {counted:?} {}", whole.cost());
                assert!(counted.1 >= whole.memory_size(), "{number} {counted:?}");
            }
        }
    }

    /// A thousand deletions of everything, and then many of parts: each part has two stamps of its
    /// own in memory, and not a thousand.
    #[test]
    fn pieces_of_a_divided_range_share_their_stamps() {
        let mut growing = GrowingTombstones::new(KeptStamps::All);
        for number in 0..1000 {
            growing.add(RangeTombstones::of([(&[][..], None)], stamp(number)));
        }
        let places: Vec<[u8; 4]> = (0..20_000u32).map(u32::to_be_bytes).collect();
        let parts = places.chunks(2).map(|pair| (&pair[0][..], Some(&pair[1][..])));
        growing.add(RangeTombstones::of(parts, stamp(1000)));
        let whole = growing.whole();
        assert_eq!(whole.stamps_of(&places[2]).len(), 1001);
        assert_eq!(whole.stamps_of(&places[3]).len(), 1000);
        assert!(whole.memory_size() < 20_000 * 200, "{}", whole.memory_size());
    }
}
