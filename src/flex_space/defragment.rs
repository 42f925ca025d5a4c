//! Putting scattered bytes side by side.

use std::ops::Range;

use super::space::FlexSpace;
use crate::base::Result;
use crate::structure::flex::tree::MapExtent;

/// Bytes that are looked at, and written, as one.
const WINDOW: u64 = 1 << 20;

/// What [`FlexSpace::defragment`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defragmentation {
    /// Extents of the range before.
    pub extents_before: u64,
    /// Extents of the range after.
    pub extents_after: u64,
    /// Bytes that were written anew.
    pub bytes_moved: u64,
}

impl FlexSpace {
    /// Writes the bytes of a range side by side, so that reading them in order takes few reads:
    /// each mebibyte of it that is in more extents than its tags, and the size of segments, demand;
    /// zeros that are stored nowhere stay so. The bytes stay the same. Durable with the next sync.
    ///
    /// # Errors
    /// As [`FlexSpace::insert`]; `InvalidArgument` when `range` is not within the space;
    /// `Corruption` when what has to be moved is damaged. What was moved until then stays so.
    pub fn defragment(&mut self, range: Range<u64>) -> Result<Defragmentation> {
        self.check_range(&range)?;
        let extents_before = self.extent_count(range.clone());
        let mut bytes_moved = 0;
        let mut offset = range.start;
        while offset < range.end {
            let (end, zeros_end) = self.stored_stretch(offset, range.end);
            // A tag begins an extent, and so does a segment: the first may have little room left.
            let segment_count = (end - offset) / u64::from(self.tuning.data_size_max()) + 2;
            let needed = self.tags(offset + 1..end).count() as u64 + segment_count;
            if self.extent_count(offset..end) > needed {
                self.move_bytes(offset, end - offset)?;
                bytes_moved += end - offset;
            }
            offset = zeros_end;
        }
        self.tally.defragmented_bytes += bytes_moved;
        let extents_after = self.extent_count(range);
        Ok(Defragmentation { extents_before, extents_after, bytes_moved })
    }

    /// Where the bytes from `offset` on that are stored somewhere end, a window at most, and where
    /// the zeros end that follow.
    fn stored_stretch(&self, offset: u64, end: u64) -> (u64, u64) {
        let window_end = end.min(offset + WINDOW);
        let mut stored_end = offset;
        for (at, piece) in self.layout.pieces(offset..end) {
            if piece.address.is_zeros() {
                return (stored_end, at + piece.len());
            }
            stored_end = window_end.min(at + piece.len());
            if stored_end == window_end {
                break;
            }
        }
        (stored_end, stored_end)
    }
}
