//! The layout of a space: which bytes of which segments it consists of, with tags, and how much of
//! each segment that is.
//!
//! Changed by [`Op`]s alone, so that replaying the journal leads to what was in memory.
//!
//! Invariants
//! - L1  `live` of a segment is the sum of the extents in it.
//! - L2  No two extents have a byte of a segment in common.

use std::collections::BTreeMap;
use std::ops::Range;

use super::LEN_MAX;
use super::extent::{Address, Dimensions, StoredExtent, Tag};
use super::op::Op;
use crate::structure::flex::tree::{ExtentMap, MapExtent};

/// The extents of a space.
pub(super) type Extents = ExtentMap<StoredExtent>;

/// How much of a segment is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Bytes that extents point to.
    pub live: u64,
    /// Bytes of data in it, as far as is known to be written.
    pub size: u32,
}

impl Usage {
    pub(super) fn garbage(self) -> u64 {
        u64::from(self.size).saturating_sub(self.live)
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub extents: Extents,
    /// Of every segment that was written to, until it is forgotten.
    pub segments: BTreeMap<u32, Usage>,
}

impl Layout {
    /// What is wrong with a step, if anything: those of callers are checked before, those from the
    /// disk are not.
    pub(super) fn refusal(&self, op: &Op) -> Option<&'static str> {
        let len = self.extents.len();
        let ends_within = |offset: u64, more: u64, end: u64| {
            more > 0 && offset.checked_add(more).is_some_and(|at| at <= end)
        };
        let address_ends = |address: Address, len: u32| {
            len > 0 && (address.is_zeros() || address.offset.checked_add(len).is_some())
        };
        let is_sound = match *op {
            Op::Insert { offset, address, len: more } => {
                offset <= len
                    && ends_within(len, u64::from(more), LEN_MAX)
                    && address_ends(address, more)
            }
            Op::Collapse { offset, len: less } => ends_within(offset, less, len),
            Op::Overwrite { offset, address, len: part } => {
                ends_within(offset, u64::from(part), len) && address_ends(address, part)
            }
            Op::SetTag { offset, .. } => offset < len,
            Op::Extend { segment, .. } => segment != Address::ZEROS.segment,
            Op::Count { .. } => true,
        };
        (!is_sound).then_some("a step of the journal does not fit the space")
    }

    /// Does a step that [`Layout::refusal`] has nothing against.
    pub(super) fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert { offset, address, len } => {
                self.insert(offset, StoredExtent { address, len, tag: None });
            }
            Op::Collapse { offset, len } => self.collapse(offset, len),
            Op::Overwrite { offset, address, len } => self.overwrite(offset, address, len),
            Op::SetTag { offset, tag } => self.set_tag(offset, tag),
            Op::Extend { segment, size } => {
                let usage = self.segments.entry(segment).or_default();
                usage.size = usage.size.max(size);
            }
            Op::Count { .. } => {}
        }
    }

    /// The extents of a range, cut to it, each with where it begins.
    pub(super) fn pieces(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (u64, StoredExtent)> + use<'_> {
        pieces(&self.extents, range)
    }

    fn insert(&mut self, offset: u64, extent: StoredExtent) {
        if !extent.address.is_zeros() {
            self.segments.entry(extent.address.segment).or_default().live += extent.len();
        }
        self.extents.insert(offset, extent);
    }

    fn collapse(&mut self, offset: u64, len: u64) {
        for (_, piece) in pieces(&self.extents, offset..offset + len) {
            if !piece.address.is_zeros() {
                let usage = self.segments.get_mut(&piece.address.segment);
                usage.expect("L1: extents are in segments that are known").live -= piece.len();
            }
        }
        self.extents.collapse(offset, len);
    }

    fn overwrite(&mut self, offset: u64, address: Address, len: u32) {
        let range = offset..offset + u64::from(len);
        let tags: Vec<(u64, Tag)> =
            self.pieces(range).filter_map(|(at, piece)| Some((at, piece.tag?))).collect();
        self.collapse(offset, u64::from(len));
        self.insert(offset, StoredExtent { address, len, tag: None });
        for (at, tag) in tags {
            self.set_tag(at, Some(tag));
        }
    }

    fn set_tag(&mut self, offset: u64, tag: Option<Tag>) {
        if tag.is_some() {
            self.extents.change_at(offset, |extent| StoredExtent { tag, ..extent });
            return;
        }
        let tagged = self.extents.lookup(offset).expect("the offset is within the space");
        if tagged.tag.is_some() {
            // What the tag kept apart joins again.
            self.extents.collapse(offset, tagged.len());
            self.extents.insert(offset, StoredExtent { tag: None, ..tagged });
        }
    }

    /// Forgets the segments that no extent is in, and that `keep` is not; their numbers.
    pub(super) fn forget_dead(&mut self, keep: Option<u32>) -> Vec<u32> {
        let is_dead = |number: &u32, usage: &mut Usage| usage.live == 0 && Some(*number) != keep;
        self.segments.extract_if(.., is_dead).map(|(number, _)| number).collect()
    }

    /// The sum of all live bytes, and that of all garbage.
    pub(super) fn live_and_garbage(&self) -> (u64, u64) {
        self.segments
            .values()
            .fold((0, 0), |(live, garbage), usage| (live + usage.live, garbage + usage.garbage()))
    }
}

/// The extents of a range, cut to it, each with where it begins.
pub(super) fn pieces(
    extents: &Extents,
    range: Range<u64>,
) -> impl Iterator<Item = (u64, StoredExtent)> + use<'_> {
    let found = extents.extents().find_by(Dimensions::bytes, range.start);
    let (index, within) = found.map_or((usize::MAX, 0), |(index, within, _)| (index, within));
    let mut at = range.start;
    let mut skipped = within;
    extents.extents().range(index..).map_while(move |extent| {
        let left = range.end.checked_sub(at).filter(|&left| left > 0)?;
        let piece = extent.tail(std::mem::take(&mut skipped));
        let piece = piece.head(piece.len().min(left));
        let start = at;
        at += piece.len();
        Some((start, piece))
    })
}
