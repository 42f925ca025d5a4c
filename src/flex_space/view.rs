//! Reading: the bytes, tags and extents of a layout, wherever they are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::extent::{Dimensions, StoredExtent, Tag};
use super::handle::Handle;
use super::layout::{Extents, pieces};
use super::segment::Segment;
use super::space::FlexSpace;
use super::writer::SegmentWriter;
use crate::base::{Error, Result};

/// Bytes that are returned at once.
const RANGE_LEN_MAX: u64 = 1 << 30;

/// Extents, and the files that they are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub extents: &'a Extents,
    pub files: &'a BTreeMap<u32, Arc<Segment>>,
    /// The segment of which some may not be written yet.
    pub writer: Option<&'a SegmentWriter>,
}

impl<'a> View<'a> {
    pub(super) fn read(self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let len = self.extents.len().saturating_sub(offset).min(buffer.len() as u64);
        if len == 0 {
            return Ok(0);
        }
        let mut left = &mut buffer[..len as usize];
        for (_, piece) in pieces(self.extents, offset..offset + len) {
            let (now, later) = left.split_at_mut(piece.len as usize);
            self.read_extent(piece, now)?;
            left = later;
        }
        Ok(len as usize)
    }

    /// The bytes of an extent, or of its beginning.
    pub(super) fn read_extent(self, extent: StoredExtent, out: &mut [u8]) -> Result<()> {
        let address = extent.address;
        if address.is_zeros() {
            out.fill(0);
            return Ok(());
        }
        match self.writer.filter(|writer| writer.segment.number == address.segment) {
            Some(writer) => writer.read(address.offset, out),
            None => self.files[&address.segment].read(address.offset, out),
        }
    }

    pub(super) fn tag(self, offset: u64) -> Option<Tag> {
        let (_, within, extent) = self.extents.extents().find_by(Dimensions::bytes, offset)?;
        extent.tag.filter(|_| within == 0)
    }

    pub(super) fn tags(self, range: Range<u64>) -> Tags<'a> {
        let tree = self.extents.extents();
        let next = match tree.find_by(Dimensions::bytes, range.start) {
            Some((index, within, _)) => tree.prefix_size(index + usize::from(within > 0)).1,
            None => tree.size().1,
        };
        Tags { extents: self.extents, next, end: range.end }
    }

    pub(super) fn extent_count(self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let tree = self.extents.extents();
        let index_of = |offset| tree.find_by(Dimensions::bytes, offset).map(|(index, _, _)| index);
        match (index_of(range.start), index_of(range.end - 1)) {
            (Some(first), Some(last)) => (last - first + 1) as u64,
            (Some(first), None) => (tree.len() - first) as u64,
            (None, _) => 0,
        }
    }
}

/// The tags of a range with their offsets, ascending. Each step is O(log n), however far apart
/// they are.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    extents: &'a Extents,
    /// Tags before the next one.
    next: u64,
    end: u64,
}

impl Iterator for Tags<'_> {
    type Item = (u64, Tag);

    fn next(&mut self) -> Option<(u64, Tag)> {
        let tree = self.extents.extents();
        let (index, _, extent) = tree.find_by(Dimensions::tags, self.next)?;
        let (offset, _) = tree.prefix_size(index);
        self.next += 1;
        extent.tag.filter(|_| offset < self.end).map(|tag| (offset, tag))
    }
}

/// What can be read of a space: the same for one that is open and for a snapshot.
macro_rules! reading {
    ($type:ty) => {
        impl $type {
            /// Fills `buffer` with the bytes at `offset`; how many that were: fewer than asked for
            /// only at the end. Every block that has some of them is verified. O(log n), and a
            /// read of the storage for each extent.
            ///
            /// # Errors
            /// `Corruption` with file and offset, `Io`; what is in `buffer` is then undefined.
            pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
                self.view().read(offset, buffer)
            }

            /// The bytes of a range of at most 1 GiB.
            ///
            /// # Errors
            /// `InvalidArgument` when it is longer or not within the space; else as `read`.
            pub fn read_range(&self, range: Range<u64>) -> Result<Vec<u8>> {
                let len = self.len();
                if range.start > range.end || range.end > len {
                    return Err(Error::invalid(format!("{range:?} is not within {len} bytes")));
                }
                if range.end - range.start > RANGE_LEN_MAX {
                    return Err(Error::invalid(format!("{range:?} is more than {RANGE_LEN_MAX}")));
                }
                let mut bytes = vec![0; (range.end - range.start) as usize];
                self.view().read(range.start, &mut bytes)?;
                Ok(bytes)
            }

            /// The tag of the byte at `offset`.
            #[must_use]
            pub fn tag(&self, offset: u64) -> Option<Tag> {
                self.view().tag(offset)
            }

            /// The tags in a range, with their offsets.
            #[must_use]
            pub fn tags(&self, range: Range<u64>) -> Tags<'_> {
                self.view().tags(range)
            }

            /// Extents that a range lies in: 1 when it can be read at once. O(log n).
            #[must_use]
            pub fn extent_count(&self, range: Range<u64>) -> u64 {
                self.view().extent_count(range)
            }

            /// A handle at `offset`, or at the end if that is before it: for reading one piece
            /// after the other, forward and backward.
            #[must_use]
            pub fn handle(&self, offset: u64) -> Handle<'_> {
                Handle::new(self.view(), offset)
            }
        }
    };
}

reading!(FlexSpace);
reading!(super::snapshot::SpaceSnapshot);
