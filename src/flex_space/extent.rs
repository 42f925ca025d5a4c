//! Extents: which bytes of a segment belong to a stretch of the space.

use std::num::NonZeroU32;

use crate::structure::flex::tree::{Item, MapExtent, NoGuide};

/// A mark on one byte of a space. It moves with the byte and goes when the byte is removed.
pub type Tag = NonZeroU32;

/// The segment of bytes that are zero and stored nowhere.
const ZEROS: u32 = 0;

/// Where a byte is: at which offset among the data of which segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub segment: u32,
    pub offset: u32,
}

impl Address {
    /// Bytes that are zero and stored nowhere.
    pub(super) const ZEROS: Address = Address { segment: ZEROS, offset: 0 };

    pub(super) fn is_zeros(self) -> bool {
        self.segment == ZEROS
    }

    #[inline]
    fn plus(self, len: u32) -> Address {
        if self.is_zeros() { self } else { Address { offset: self.offset + len, ..self } }
    }
}

/// A stretch of the space whose bytes lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredExtent {
    pub address: Address,
    pub len: u32,
    /// Of the first byte.
    pub tag: Option<Tag>,
}

/// The sums that are kept of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dimensions;

impl Dimensions {
    pub(super) fn bytes(&(bytes, _): &(u64, u64)) -> u64 {
        bytes
    }

    pub(super) fn tags(&(_, tags): &(u64, u64)) -> u64 {
        tags
    }
}

impl Item for StoredExtent {
    /// Bytes, and tags.
    type Size = (u64, u64);
    type Guide = NoGuide;

    #[inline]
    fn size(&self) -> (u64, u64) {
        (u64::from(self.len), u64::from(self.tag.is_some()))
    }
}

impl MapExtent for StoredExtent {
    #[inline]
    fn len(&self) -> u64 {
        u64::from(self.len)
    }

    #[inline]
    fn len_in(size: &(u64, u64)) -> u64 {
        Dimensions::bytes(size)
    }

    #[inline]
    fn head(self, len: u64) -> StoredExtent {
        StoredExtent { len: len as u32, ..self }
    }

    #[inline]
    fn tail(self, len: u64) -> StoredExtent {
        if len == 0 {
            return self;
        }
        let cut = len as u32;
        StoredExtent { address: self.address.plus(cut), len: self.len - cut, tag: None }
    }

    #[inline]
    fn joined(self, next: StoredExtent) -> Option<StoredExtent> {
        let len = self.len.checked_add(next.len)?;
        let is_followed = next.tag.is_none() && self.address.plus(self.len) == next.address;
        is_followed.then_some(StoredExtent { len, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(segment: u32, offset: u32, len: u32) -> StoredExtent {
        StoredExtent { address: Address { segment, offset }, len, tag: None }
    }

    #[test]
    fn an_extent_is_small() {
        assert_eq!(size_of::<StoredExtent>(), 16);
    }

    #[test]
    fn what_is_cut_joins_again() {
        for whole in [extent(3, 100, 50), extent(0, 0, 50)] {
            let (head, tail) = (whole.head(20), whole.tail(20));
            assert_eq!(head.joined(tail), Some(whole));
            assert_eq!(whole.tail(0), whole);
        }
    }

    #[test]
    fn a_tag_stays_with_its_byte_and_keeps_extents_apart() {
        let tagged = StoredExtent { tag: Tag::new(7), ..extent(3, 100, 50) };
        assert_eq!(tagged.head(20).tag, Tag::new(7));
        assert_eq!(tagged.tail(20).tag, None);
        assert_eq!(extent(3, 90, 10).joined(tagged), None);
        assert_eq!(extent(3, 90, 10).joined(extent(4, 100, 1)), None);
        assert_eq!(extent(0, 0, u32::MAX).joined(extent(0, 0, 1)), None);
    }
}
