//! Holes: the room of dead runs is given back while the rest of their segment is live. Pure policy.
//!
//! Runs die one by one, mostly beside runs that are dead already or die soon. So their bytes are
//! gathered, joined with their neighbours, and punched out of the file in few large pieces.
//!
//! Invariants
//! - H1  Dead ranges of a segment neither overlap nor touch: neighbours are one.
//! - H2  A piece lies in dead ranges, on blocks, and is handed out once.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::seeded::{Bug, is_seeded};

/// Blocks of the usual file systems. Where they are larger, the rest of a block stays taken.
pub(super) const BLOCK_SIZE: u64 = 4096;
/// A hole costs a call of some microseconds, an entry in the journal of the file system and an
/// extent more in its tree: as much as writing some kilobytes. At 64 KiB that is little beside the
/// room, and a segment of 4 MiB has 63 holes at most.
const PIECE_SIZE_MAX: u64 = 64 << 10;
/// Small segments have holes too: pieces of a sixteenth of the segment.
const PIECES_PER_SEGMENT: u64 = 16;
/// Pieces are punched when together they are this part of the segment: eight times at most in its
/// life. Many segments die whole before long, and have cost nothing then.
const ROUND_FRACTION: u64 = 8;

/// When holes are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoleRule {
    /// Bytes of a piece, at least.
    piece_size_min: u64,
    /// Bytes of all pieces that are punched together, at least.
    round_size_min: u64,
}

impl HoleRule {
    /// The rule for segments that are closed at `size` bytes.
    pub(super) fn for_segments_of(size: u64) -> HoleRule {
        HoleRule {
            piece_size_min: (size / PIECES_PER_SEGMENT).clamp(BLOCK_SIZE, PIECE_SIZE_MAX),
            round_size_min: size / ROUND_FRACTION,
        }
    }
}

/// Bytes of one segment that are dead and still take room.
#[derive(Debug, Default)]
pub(super) struct DeadSpace {
    /// Ends by starts (H1).
    ranges: BTreeMap<u64, u64>,
}

impl DeadSpace {
    /// Adds the bytes of a dead run.
    pub(super) fn add(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if let Some((&before, &touching)) = self.ranges.range(..start).next_back()
            && touching == start
        {
            start = before;
        }
        if let Some(behind) = self.ranges.remove(&end) {
            end = behind;
        }
        self.ranges.insert(start, end); // H1
    }

    /// Takes out what is to be punched now: nothing, until it is enough (H2).
    pub(super) fn take_pieces(&mut self, rule: HoleRule) -> Vec<Range<u64>> {
        let ranges = self.ranges.iter().map(|(&start, &end)| (start..end, blocks_in(start..end)));
        let large = ranges.filter(|(_, piece)| size_of_range(piece) >= rule.piece_size_min);
        let large: Vec<_> = large.collect();
        let total: u64 = large.iter().map(|(_, piece)| size_of_range(piece)).sum();
        if total < rule.round_size_min {
            return Vec::new();
        }
        let mut pieces = Vec::with_capacity(large.len());
        for (range, piece) in large {
            self.ranges.remove(&range.start);
            // Parts of blocks may yet be joined with a neighbour's.
            for rest in [range.start..piece.start, piece.end..range.end] {
                if !rest.is_empty() {
                    self.ranges.insert(rest.start, rest.end);
                }
            }
            pieces.push(piece);
        }
        pieces
    }
}

/// The whole blocks in a range.
fn blocks_in(range: Range<u64>) -> Range<u64> {
    if is_seeded(Bug::HoleTooLarge) {
        return range.start / BLOCK_SIZE * BLOCK_SIZE..range.end.next_multiple_of(BLOCK_SIZE);
    }
    let start = range.start.next_multiple_of(BLOCK_SIZE);
    start..(range.end / BLOCK_SIZE * BLOCK_SIZE).max(start)
}

fn size_of_range(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn space(ranges: &[Range<u64>]) -> DeadSpace {
        let mut space = DeadSpace::default();
        ranges.iter().for_each(|range| space.add(range.clone()));
        space
    }

    fn left(space: &DeadSpace) -> Vec<(u64, u64)> {
        space.ranges.iter().map(|(&start, &end)| (start, end)).collect()
    }

    fn take(space: &mut DeadSpace, rule: HoleRule) -> Vec<(u64, u64)> {
        space.take_pieces(rule).into_iter().map(|piece| (piece.start, piece.end)).collect()
    }

    #[test]
    fn neighbours_become_one_in_whatever_order_they_die() {
        assert_eq!(left(&space(&[10..20, 20..30, 30..35])), [(10, 35)]);
        assert_eq!(left(&space(&[30..35, 20..30, 10..20])), [(10, 35)]);
        assert_eq!(left(&space(&[10..20, 30..35, 20..30])), [(10, 35)]);
        assert_eq!(left(&space(&[10..20, 31..35, 20..30])), [(10, 30), (31, 35)]);
    }

    #[test]
    fn pieces_are_whole_blocks_and_what_is_left_of_blocks_is_joined_later() {
        let rule = HoleRule { piece_size_min: 8 * KIB, round_size_min: 8 * KIB };
        let mut dead = space(&[4000..8000, 8000..12287]);
        assert_eq!(take(&mut dead, rule), [], "one block and two parts");
        dead.add(12287..13000);
        assert_eq!(take(&mut dead, rule), [(4096, 12288)]);
        assert_eq!(left(&dead), [(4000, 4096), (12288, 13000)]);
        assert_eq!(take(&mut dead, rule), []);
        dead.add(13000..20500);
        assert_eq!(take(&mut dead, rule), [(12288, 20480)]);
        assert_eq!(left(&dead), [(4000, 4096), (20480, 20500)]);
    }

    #[test]
    fn pieces_that_are_not_punched_can_be_put_back() {
        let rule = HoleRule { piece_size_min: 8 * KIB, round_size_min: 8 * KIB };
        let mut dead = space(&[4000..20_500, 50_000..60_000]);
        let before = left(&dead);
        let pieces = dead.take_pieces(rule);
        assert_eq!(pieces.len(), 1);
        pieces.into_iter().for_each(|piece| dead.add(piece));
        assert_eq!(left(&dead), before);
    }

    #[test]
    fn small_pieces_stay_and_large_ones_wait_for_each_other() {
        let rule = HoleRule::for_segments_of(4 << 20);
        assert_eq!((rule.piece_size_min, rule.round_size_min), (64 * KIB, 512 * KIB));
        let mut dead = space(&[0..256 * KIB, 300 * KIB..363 * KIB]);
        assert_eq!(take(&mut dead, rule), []);
        dead.add(1024 * KIB..1279 * KIB);
        assert_eq!(take(&mut dead, rule), [], "511 KiB in pieces, beside one of 63");
        dead.add(1279 * KIB..1280 * KIB);
        assert_eq!(take(&mut dead, rule), [(0, 256 * KIB), (1024 * KIB, 1280 * KIB)]);
        assert_eq!(left(&dead), [(300 * KIB, 363 * KIB)]);
    }

    #[test]
    fn small_segments_have_holes_of_a_block() {
        for (segment_size, piece, round) in [
            (4 * KIB, 4 * KIB, KIB / 2),
            (64 * KIB, 4 * KIB, 8 * KIB),
            (256 * KIB, 16 * KIB, 32 * KIB),
            (256 << 20, 64 * KIB, 32 << 20),
        ] {
            let rule = HoleRule::for_segments_of(segment_size);
            assert_eq!((rule.piece_size_min, rule.round_size_min), (piece, round));
        }
    }
}
