//! Garbage: bytes in segments that the space has no use for any more.
//!
//! A segment goes when nothing in it is live. What is left in one that is mostly garbage is moved,
//! and so are segments that were never filled, as each opening leaves one, when there are many.
//! Which segments that pays for is [`choose`], a pure function.

use std::collections::{BTreeMap, BTreeSet};

use super::block::BLOCK_DATA;
use super::extent::StoredExtent;
use super::layout::Usage;
use super::space::FlexSpace;
use crate::base::{Error, Result};
use crate::structure::flex::tree::MapExtent;

/// The least share of garbage in a segment that is emptied on demand.
const FRACTION_ON_DEMAND: f64 = 0.125;
/// Live bytes that are moved between two syncs, in segments (or those of one that is larger): what
/// a collection needs of the disk before it gives anything back.
const ROUND_SEGMENTS: u64 = 4;
/// Extents that are moved in a round, at most: they are noted in memory.
const MOVES_MAX: usize = 1 << 20;
/// Segments that were never filled, and that are tolerated.
const SMALL_SEGMENT_COUNT_MAX: usize = 32;

/// What collections did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collection {
    /// Rounds, each of one walk over the index.
    pub rounds: u64,
    /// Segments that were emptied.
    pub segments: u64,
    /// Live bytes that were moved out of them.
    pub bytes_moved: u64,
    /// Bytes of garbage in them: what is given back once it is synced, and no snapshot needs it.
    pub bytes_freed: u64,
}

impl Collection {
    fn add(&mut self, other: Collection) {
        self.rounds += other.rounds;
        self.segments += other.segments;
        self.bytes_moved += other.bytes_moved;
        self.bytes_freed += other.bytes_freed;
    }
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    /// Bytes of data in a full segment.
    full_size: u32,
    /// Those that are left alone.
    damaged: &'a BTreeSet<u32>,
    /// The least share of a segment that is not live.
    fraction_min: f64,
    /// Live bytes to move, at most.
    live_max: u64,
    /// Segments from this number on are left alone.
    end: u32,
}

/// Bytes below which a segment is as bad as a larger one with garbage.
fn size_min(full_size: u32) -> u32 {
    full_size / 4
}

/// The segments to empty: those of which the least is live first.
fn choose(segments: &BTreeMap<u32, Usage>, wanted: Wanted<'_>) -> Vec<(u32, Usage)> {
    let share = |usage: &Usage| {
        1.0 - usage.live as f64 / f64::from(usage.size.max(size_min(wanted.full_size)))
    };
    let mut candidates: Vec<(u32, Usage)> = segments
        .range(..wanted.end)
        .map(|(&number, &usage)| (number, usage))
        .filter(|(number, usage)| usage.live > 0 && !wanted.damaged.contains(number))
        .filter(|(_, usage)| share(usage) >= wanted.fraction_min)
        .collect();
    candidates.sort_by(|(_, a), (_, b)| share(b).total_cmp(&share(a)));
    // One at least, whatever its size: segments may have been larger in earlier sessions.
    let first = candidates.first().map_or(0, |(_, usage)| usage.live);
    let mut left = wanted.live_max.max(first);
    candidates.retain(|(_, usage)| {
        let fits = usage.live <= left;
        left -= if fits { usage.live } else { 0 };
        fits
    });
    // One that is small, and nothing else, would become another one that is; the padding of a block
    // stays as well.
    let gives_back = |(_, usage): &(u32, Usage)| usage.garbage() >= BLOCK_DATA as u64;
    let pays = candidates.len() > 1 || candidates.iter().any(gives_back);
    if pays { candidates } else { Vec::new() }
}

impl FlexSpace {
    /// Gives back what garbage takes, where an eighth of a segment or more is garbage: moves what
    /// is live, syncs, and removes the files. In rounds, each of which needs little room of the
    /// disk before it gives some back. What a snapshot needs goes when the snapshot does.
    ///
    /// # Errors
    /// As [`FlexSpace::sync`]; `Corruption` when what has to be moved is damaged. The bytes of the
    /// space are the same after an error.
    pub fn collect_garbage(&mut self) -> Result<Collection> {
        self.check_usable()?;
        self.commit()?;
        self.finish_segment()?;
        self.damaged.clear();
        let end = self.next_segment;
        let mut all = Collection::default();
        loop {
            let chosen = self.choose(FRACTION_ON_DEMAND, end);
            if chosen.is_empty() {
                break;
            }
            let round = self.empty(&chosen)?;
            self.commit()?;
            all.add(round);
            self.tally.on_demand.add(round);
        }
        self.commit()?;
        Ok(all)
    }

    fn choose(&self, fraction_min: f64, end: u32) -> Vec<(u32, Usage)> {
        let live_max = ROUND_SEGMENTS * self.tuning.segment_size;
        let full_size = self.tuning.data_size_max();
        let damaged = &self.damaged;
        let wanted = Wanted { full_size, damaged, fraction_min, live_max, end };
        choose(&self.layout.segments, wanted)
    }

    /// Collects some garbage if there is more than is allowed. The sync that it is a part of does
    /// not fail because of it, unless nothing can be written any more.
    pub(super) fn collect_if_due(&mut self) {
        let Some(allowed) = self.tuning.garbage_fraction else { return };
        let (live, garbage) = self.layout.live_and_garbage();
        let has_garbage = garbage >= self.tuning.segment_size
            && garbage as f64 >= allowed * (live + garbage) as f64;
        let small = size_min(self.tuning.data_size_max());
        let small = self.layout.segments.values().filter(|usage| usage.size < small).count();
        if !has_garbage && small <= SMALL_SEGMENT_COUNT_MAX {
            return;
        }
        let current = self.writer.as_ref().map(|writer| writer.segment.number);
        let chosen = self.choose(allowed, current.unwrap_or(self.next_segment));
        if chosen.is_empty() {
            return;
        }
        match self.empty(&chosen) {
            Ok(round) => self.tally.with_syncs.add(round),
            Err(_) => self.tally.failed_collection_count += 1,
        }
    }

    /// Moves what is live in these segments, as far as one walk over the index notes it.
    fn empty(&mut self, chosen: &[(u32, Usage)]) -> Result<Collection> {
        let numbers: BTreeSet<u32> = chosen.iter().map(|&(number, _)| number).collect();
        let mut at = 0;
        let mut to_move: Vec<(u64, StoredExtent)> = Vec::new();
        for extent in self.layout.extents.extents() {
            if numbers.contains(&extent.address.segment) {
                to_move.push((at, *extent));
            }
            at += extent.len();
            if to_move.len() == MOVES_MAX {
                break;
            }
        }
        let mut bytes_moved = 0;
        for (offset, extent) in to_move {
            let moved = self.move_bytes(offset, extent.len());
            if moved.as_ref().is_err_and(Error::is_corruption) {
                // Not again with every sync.
                self.damaged.insert(extent.address.segment);
            }
            moved?;
            bytes_moved += extent.len();
        }
        let mut done = Collection { rounds: 1, bytes_moved, ..Collection::default() };
        for (number, usage) in chosen {
            if self.layout.segments.get(number).is_none_or(|left| left.live == 0) {
                done.segments += 1;
                done.bytes_freed += usage.garbage();
            }
        }
        Ok(done)
    }

    /// Stores the bytes of a stretch anew, a window at a time.
    pub(super) fn move_bytes(&mut self, mut offset: u64, len: u64) -> Result<()> {
        const WINDOW: u64 = 1 << 20;
        let end = offset + len;
        while offset < end {
            let window = self.read_range(offset..end.min(offset + WINDOW))?;
            for piece in self.store_again(&window)? {
                self.overwrite_stored(offset, piece);
                offset += piece.len();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_segments_are_chosen_as_far_as_they_fit() {
        let usage = |live: u64, size: u32| Usage { live: live * 1000, size: size * 1000 };
        let segments: BTreeMap<u32, Usage> = [
            (1, usage(90, 100)),
            (2, usage(10, 100)),
            (3, usage(50, 100)),
            (4, usage(0, 100)), // Goes by itself.
            (5, usage(20, 100)),
            (7, usage(1, 100)), // Damaged.
            (8, usage(1, 100)), // Too new.
        ]
        .into();
        let numbers = |fraction_min, live_max: u64| {
            let live_max = live_max * 1000;
            let wanted =
                Wanted { full_size: 100_000, damaged: &[7].into(), fraction_min, live_max, end: 8 };
            let chosen = choose(&segments, wanted);
            chosen.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(0.125, 1000), [2, 5, 3]);
        assert_eq!(numbers(0.6, 1000), [2, 5]);
        assert_eq!(numbers(0.125, 60), [2, 5]);
        assert_eq!(numbers(0.125, 15), [2]);
        assert_eq!(numbers(0.125, 5), [2]);
    }

    #[test]
    fn small_segments_are_chosen_when_there_are_several() {
        let usage = |live: u64, size: u32| Usage { live: live * 1000, size: size * 1000 };
        let none = BTreeSet::new();
        let numbers = |segments: &[(u32, Usage)]| {
            let segments = segments.iter().copied().collect();
            let wanted = Wanted {
                full_size: 400_000,
                damaged: &none,
                fraction_min: 0.5,
                live_max: 1_000_000,
                end: 9,
            };
            let chosen = choose(&segments, wanted);
            chosen.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert!(numbers(&[(1, usage(400, 400)), (2, usage(10, 10))]).is_empty());
        assert_eq!(numbers(&[(1, usage(10, 10)), (2, usage(20, 20))]), [1, 2]);
        assert_eq!(numbers(&[(1, usage(10, 20))]), [1]);
    }
}
