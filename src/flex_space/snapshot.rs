//! Snapshots: a version of a space that stays, and what differs between two of them.

use std::ops::Range;
use std::sync::Arc;

use super::extent::{Dimensions, StoredExtent};
use super::layout::{Extents, pieces};
use super::segment::Place;
use super::space::{Files, FlexSpace};
use super::view::View;
use crate::base::{Error, Result};
use crate::structure::flex::tree::{ExtentTree, MapExtent};

/// A version of a space that stays as it is while the space changes. Cheap to make and to clone:
/// it shares what has not changed. Can be read from any thread. Keeps the files that it needs, and
/// the space locked.
#[derive(Clone, Debug)]
pub struct SpaceSnapshot {
    place: Arc<Place>,
    extents: Extents,
    files: Files,
}

/// The bytes at `old` in one version are replaced by those at `new` in the other. One of the two
/// may be empty, not both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceChange {
    /// Offsets in the version that was asked.
    pub old: Range<u64>,
    /// Offsets in the other version.
    pub new: Range<u64>,
}

impl FlexSpace {
    /// A snapshot of this moment. O(1), but for what is not written to its segment yet, which is
    /// written now, and padded to a block of 4 KiB.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn snapshot(&mut self) -> Result<SpaceSnapshot> {
        self.write_segment()?;
        let extents = self.layout.extents.clone();
        Ok(SpaceSnapshot::new(Arc::clone(&self.place), extents, Arc::clone(&self.files)))
    }
}

impl SpaceSnapshot {
    pub(super) fn new(place: Arc<Place>, extents: Extents, files: Files) -> SpaceSnapshot {
        SpaceSnapshot { place, extents, files }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.extents.len()
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn view(&self) -> View<'_> {
        View { extents: &self.extents, files: &self.files, writer: None }
    }

    /// What differs in `newer`, ascending and apart: outside of these ranges both have the same
    /// bytes with the same tags, in the same order. No byte is read: bytes are the same when they
    /// are stored in one place. Costs what is not shared. Bytes that were moved (by a collection
    /// of garbage or [`FlexSpace::defragment`]), or written anew with the same contents, are
    /// reported as well.
    ///
    /// # Errors
    /// `InvalidArgument` when the two are not of one space that has been open since.
    pub fn diff(&self, newer: &SpaceSnapshot) -> Result<Vec<SpaceChange>> {
        if !Arc::ptr_eq(&self.place, &newer.place) {
            return Err(Error::invalid(
                "the snapshots are of different spaces, or openings of one",
            ));
        }
        let (old_tree, new_tree) = (self.extents.extents(), newer.extents.extents());
        let mut changes = Vec::new();
        for difference in old_tree.diff(new_tree) {
            let old = offsets_of(old_tree, difference.old);
            let new = offsets_of(new_tree, difference.new);
            let change = trim(&self.extents, &newer.extents, SpaceChange { old, new });
            if !(change.old.is_empty() && change.new.is_empty()) {
                changes.push(change);
            }
        }
        Ok(changes)
    }
}

/// Where the items at these indices begin and end.
fn offsets_of(tree: &ExtentTree<StoredExtent>, indices: Range<usize>) -> Range<u64> {
    let offset = |index| Dimensions::bytes(&tree.prefix_size(index));
    offset(indices.start)..offset(indices.end)
}

/// Takes off what is stored in one place at both ends: of a split extent the two parts.
fn trim(old: &Extents, new: &Extents, mut change: SpaceChange) -> SpaceChange {
    let head = common_head(old, new, &change);
    change.old.start += head;
    change.new.start += head;
    let tail = common_tail(old, new, &change);
    change.old.end -= tail;
    change.new.end -= tail;
    change
}

/// Bytes at the beginning of a change that both versions have in one place.
fn common_head(old: &Extents, new: &Extents, change: &SpaceChange) -> u64 {
    let mut olds = pieces(old, change.old.clone()).map(|(_, piece)| piece);
    let mut news = pieces(new, change.new.clone()).map(|(_, piece)| piece);
    let (mut a, mut b) = (olds.next(), news.next());
    let mut common = 0;
    while let (Some(one), Some(other)) = (a, b) {
        if one.address != other.address || one.tag != other.tag {
            break;
        }
        let len = one.len().min(other.len());
        common += len;
        a = rest_of(one, len).or_else(|| olds.next());
        b = rest_of(other, len).or_else(|| news.next());
    }
    common
}

fn rest_of(extent: StoredExtent, taken: u64) -> Option<StoredExtent> {
    (taken < extent.len()).then(|| extent.tail(taken))
}

/// Bytes at the end of a change that both versions have in one place.
fn common_tail(old: &Extents, new: &Extents, change: &SpaceChange) -> u64 {
    let mut olds: Vec<StoredExtent> =
        pieces(old, change.old.clone()).map(|(_, piece)| piece).collect();
    let mut news: Vec<StoredExtent> =
        pieces(new, change.new.clone()).map(|(_, piece)| piece).collect();
    let mut common = 0;
    while let (Some(one), Some(other)) = (olds.pop(), news.pop()) {
        let len = one.len().min(other.len());
        let (one_end, other_end) = (one.tail(one.len() - len), other.tail(other.len() - len));
        if one_end != other_end {
            break;
        }
        common += len;
        olds.extend((len < one.len()).then(|| one.head(one.len() - len)));
        news.extend((len < other.len()).then(|| other.head(other.len() - len)));
    }
    common
}
