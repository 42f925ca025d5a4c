//! Which of many sorted runs has the smallest key, or the largest, by a tree of matches.
//!
//! A move of one run costs a comparison for each level of the tree, and most of these are of eight
//! bytes: the first of each key behind the prefix that all keys share. (A tree of winners, not of
//! losers, Knuth, volume 3, 5.4.1: runs that have the same key move together, and with losers only
//! the overall winner can be replaced.)
//!
//! Invariants
//! - T1  Each node names the run that comes first of all below it; of runs that stand at the same
//!   key the one in front, and those that stand at none come last.
//! - T2  All keys begin with the same `prefix_len` bytes.

use std::cmp::Ordering;

/// Which key comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// See the module. Knows runs by their positions, and asks for their keys.
#[derive(Debug)]
pub(super) struct Tournament {
    /// Of each run: a number that is below those of runs whose keys come behind its own, or equal,
    /// which then says nothing. [`AT_NO_KEY`] if it stands at none, but not only then.
    heads: Box<[u64]>,
    /// The node `n` has the children `2n` and `2n + 1`, and 1 is above all. The last half are the
    /// runs.
    nodes: Box<[u32]>,
    prefix_len: usize,
    order: Order,
}

const AT_NO_KEY: u64 = u64::MAX;

impl Tournament {
    /// For so many runs, which stand at no key yet.
    pub(super) fn new(count: usize, prefix_len: usize) -> Tournament {
        let leaves = 0..count as u32;
        Tournament {
            heads: vec![AT_NO_KEY; count].into(),
            nodes: std::iter::repeat_n(0, count).chain(leaves).collect(),
            prefix_len,
            order: Order::Ascending,
        }
    }

    /// Plays anew: all runs have moved.
    pub(super) fn play<'a>(&mut self, order: Order, key_of: impl Fn(usize) -> Option<&'a [u8]>) {
        self.order = order;
        for run in 0..self.heads.len() {
            self.heads[run] = self.head_of(key_of(run));
        }
        for node in (1..self.heads.len()).rev() {
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            let heads = (self.heads[left as usize], self.heads[right as usize]);
            self.nodes[node] = match heads.0.cmp(&heads.1) {
                Ordering::Less => left,
                Ordering::Greater => right,
                Ordering::Equal => self.first_of(left, right, &key_of),
            };
        }
    }

    /// Plays those matches anew that a run takes part in: it has moved.
    #[inline]
    pub(super) fn replay<'a>(&mut self, run: usize, key_of: impl Fn(usize) -> Option<&'a [u8]>) {
        let (mut first, mut head) = (run as u32, self.head_of(key_of(run)));
        self.heads[run] = head;
        let mut node = self.heads.len() + run;
        while node > 1 {
            let other = self.nodes[node ^ 1];
            let other_head = self.heads[other as usize];
            if other_head == head {
                first = self.first_of(first, other, &key_of);
            } else {
                // Without a branch, which would be guessed wrong half of the time.
                let is_first = other_head < head;
                first = if is_first { other } else { first };
                head = if is_first { other_head } else { head };
            }
            node /= 2;
            self.nodes[node] = first;
        }
    }

    /// The run that comes first, unless it stands at no key: then all do.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        self.nodes.get(1).map(|&first| first as usize)
    }

    /// The runs behind the first that stand at the same key as it.
    #[inline]
    pub(super) fn tied<'a>(
        &self,
        first: usize,
        key_of: impl Fn(usize) -> Option<&'a [u8]>,
        tied: &mut Vec<usize>,
    ) {
        let head = self.heads[first];
        let is_tied = |run: usize| self.heads[run] == head && key_of(run) == key_of(first);
        self.tied_beside(self.heads.len() + first, 1, &is_tied, tied);
    }

    /// Those that are, of what lies beside the way from a run's leaf up to `top`.
    #[inline]
    fn tied_beside(
        &self,
        leaf: usize,
        top: usize,
        is_tied: &impl Fn(usize) -> bool,
        tied: &mut Vec<usize>,
    ) {
        let mut node = leaf;
        while node > top {
            let beside = node ^ 1;
            let run = self.nodes[beside] as usize;
            if is_tied(run) {
                tied.push(run);
                self.tied_below(run, beside, is_tied, tied);
            }
            node /= 2;
        }
    }

    #[cold]
    fn tied_below(
        &self,
        run: usize,
        top: usize,
        is_tied: &impl Fn(usize) -> bool,
        tied: &mut Vec<usize>,
    ) {
        self.tied_beside(self.heads.len() + run, top, is_tied, tied);
    }

    /// What a key begins with behind the prefix (T2), turned round where the largest comes first.
    #[inline]
    fn head_of(&self, key: Option<&[u8]>) -> u64 {
        let Some(key) = key else { return AT_NO_KEY };
        let rest = key.get(self.prefix_len..).unwrap_or_default();
        let head = match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => head_of_short(rest),
        };
        match self.order {
            Order::Ascending => head,
            Order::Descending => !head,
        }
    }

    /// Of two runs whose heads are the same.
    #[cold]
    fn first_of<'a>(
        &self,
        left: u32,
        right: u32,
        key_of: &impl Fn(usize) -> Option<&'a [u8]>,
    ) -> u32 {
        let (left_key, right_key) = (key_of(left as usize), key_of(right as usize));
        let by_key = match (left_key, right_key, self.order) {
            (None, ..) => return right,
            (_, None, _) => return left,
            (_, _, Order::Ascending) => left_key.cmp(&right_key),
            (_, _, Order::Descending) => right_key.cmp(&left_key),
        };
        match by_key {
            Ordering::Less => left,
            Ordering::Greater => right,
            Ordering::Equal => left.min(right),
        }
    }
}

/// Of fewer than eight bytes: as if zeros came behind.
#[cold]
fn head_of_short(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Entropy, SeededEntropy};

    /// Walks runs by a tournament: the keys in the order shown, each with the runs that have it.
    fn walk(runs: &[Vec<Vec<u8>>], order: Order, prefix_len: usize) -> Vec<(Vec<u8>, Vec<usize>)> {
        let mut places: Vec<usize> = vec![0; runs.len()];
        let key_at = |places: &[usize], run: usize| -> Option<&[u8]> {
            let keys = &runs[run];
            let place = places[run];
            match order {
                Order::Ascending => keys.get(place),
                Order::Descending => keys.len().checked_sub(place + 1).map(|place| &keys[place]),
            }
            .map(Vec::as_slice)
        };
        let mut tournament = Tournament::new(runs.len(), prefix_len);
        tournament.play(order, |run| key_at(&places, run));
        let mut shown = Vec::new();
        while let Some(first) = tournament.first().filter(|run| key_at(&places, *run).is_some()) {
            let mut with_key = Vec::new();
            tournament.tied(first, |run| key_at(&places, run), &mut with_key);
            with_key.push(first);
            with_key.sort_unstable();
            assert_eq!(with_key[0], first, "the newest is shown");
            shown.push((key_at(&places, first).unwrap().to_vec(), with_key.clone()));
            for run in with_key {
                places[run] += 1;
                tournament.replay(run, |run| key_at(&places, run));
            }
        }
        shown
    }

    #[test]
    fn walks_equal_a_sorted_map_of_all_runs() {
        let random = SeededEntropy::new(5);
        let below = |end: u64| random.next_u64() % end;
        for round in 0..600 {
            let prefix: &[u8] = if round % 2 == 0 { b"" } else { b"the same prefix" };
            let key_range = 1 + below(60);
            let mut all = std::collections::BTreeMap::<Vec<u8>, Vec<usize>>::new();
            let runs: Vec<Vec<Vec<u8>>> = (0..below(20) as usize)
                .map(|run| {
                    let keys = (0..below(30)).map(|_| {
                        // Also keys that end within the eight bytes, and one that is the prefix.
                        let number = below(key_range).to_be_bytes();
                        let rest = &number[8 - below(9) as usize..];
                        [prefix, rest, if below(2) == 0 { b"" } else { b"behind" }].concat()
                    });
                    let keys: std::collections::BTreeSet<_> = keys.collect();
                    keys.iter().for_each(|key| all.entry(key.clone()).or_default().push(run));
                    keys.into_iter().collect()
                })
                .collect();
            let mut expected: Vec<_> = all.into_iter().collect();
            let known = below(prefix.len() as u64 + 1) as usize;
            assert!(walk(&runs, Order::Ascending, known) == expected, "round {round}");
            expected.reverse();
            assert!(walk(&runs, Order::Descending, known) == expected, "round {round}");
        }
    }

    /// One step of a merge of so many runs, by the tournament and by looking at each run's key.
    #[test]
    #[ignore = "timing, run by hand"]
    fn timings() {
        use crate::base::{Clock, SystemClock};
        let (random, clock) = (SeededEntropy::new(7), SystemClock::new());
        let entry_count = 1 << 20;
        for count in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] {
            let mut runs: Vec<Vec<[u8; 8]>> = vec![Vec::new(); count];
            for _ in 0..entry_count {
                let run = random.next_u64() as usize % count;
                runs[run].push(random.next_u64().to_be_bytes());
            }
            runs.iter_mut().for_each(|run| run.sort_unstable());
            let mut places = vec![0; count];
            let key_at = |places: &[usize], run: usize| -> Option<&[u8]> {
                runs[run].get(places[run]).map(<[u8; 8]>::as_slice)
            };
            let began = clock.monotonic();
            let mut tournament = Tournament::new(count, 0);
            tournament.play(Order::Ascending, |run| key_at(&places, run));
            let mut tied = Vec::new();
            while let Some(first) = tournament.first() {
                if key_at(&places, first).is_none() {
                    break;
                }
                tied.clear();
                tournament.tied(first, |run| key_at(&places, run), &mut tied);
                for run in tied.iter().copied().chain([first]) {
                    places[run] += 1;
                    tournament.replay(run, |run| key_at(&places, run));
                }
            }
            let by_tournament = clock.monotonic() - began;
            places.fill(0);
            let began = clock.monotonic();
            loop {
                let standing = (0..count).filter_map(|run| Some((key_at(&places, run)?, run)));
                let Some((key, first)) = standing.min() else { break };
                for run in first + 1..count {
                    if key_at(&places, run) == Some(key) {
                        places[run] += 1;
                    }
                }
                places[first] += 1;
            }
            let each = |time: std::time::Duration| time.as_nanos() as f64 / f64::from(entry_count);
            let (one, other) = (each(by_tournament), each(clock.monotonic() - began));
            println!("{count:>2} runs: {one:.1} ns, by all keys {other:.1} ns");
        }
    }
}
