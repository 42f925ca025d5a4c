//! A handle: a position in a space that moves by bytes or by extents.

use super::extent::{Dimensions, StoredExtent, Tag};
use super::view::View;
use crate::base::Result;
use crate::structure::flex::tree::{ExtentCursor, MapExtent};

/// A position in a space, or behind its last byte. Moving within an extent, or into the next or
/// the one before, is O(1); a jump is O(log n).
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # use lithedb::{flex_space::FlexSpace, storage::MemoryStorage};
/// # let storage = std::sync::Arc::new(MemoryStorage::new());
/// # let mut space = FlexSpace::options().storage(storage).open("/in-memory")?;
/// space.append(b"hello, world")?;
/// space.insert(5, b" there")?;
/// let mut handle = space.handle(6);
/// let mut word = [0; 5];
/// handle.read(&mut word)?;
/// assert_eq!(&word, b"there");
/// handle.backward(11);
/// handle.read(&mut word)?;
/// assert_eq!(&word, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Handle<'a> {
    view: View<'a>,
    /// On the extent, or behind the last.
    cursor: ExtentCursor<'a, StoredExtent>,
    /// Where that extent begins.
    start: u64,
    within: u64,
}

/// A stretch of a space whose bytes lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentInfo {
    /// Where it begins.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The tag of its first byte.
    pub tag: Option<Tag>,
    /// The number of the segment, and the offset among its data; `None` for zeros that are stored
    /// nowhere.
    pub stored_at: Option<(u32, u32)>,
}

impl<'a> Handle<'a> {
    pub(super) fn new(view: View<'a>, offset: u64) -> Handle<'a> {
        let cursor = view.extents.extents().cursor();
        let mut handle = Handle { view, cursor, start: 0, within: 0 };
        handle.seek(offset);
        handle
    }

    /// Where it is.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.start + self.within
    }

    /// Moves to `offset`, or to the end if that is before it.
    pub fn seek(&mut self, offset: u64) {
        let tree = self.view.extents.extents();
        let offset = offset.min(self.view.extents.len());
        match tree.find_by(Dimensions::bytes, offset) {
            Some((index, within, _)) => {
                self.cursor.seek_index(index);
                (self.start, self.within) = (offset - within, within);
            }
            None => {
                self.cursor.seek_index(tree.len());
                (self.start, self.within) = (offset, 0);
            }
        }
    }

    /// Moves `len` bytes on, at most to the end; how many that were.
    pub fn forward(&mut self, len: u64) -> u64 {
        let from = self.offset();
        let len = len.min(self.view.extents.len() - from);
        match self.cursor.item() {
            Some(extent) if self.within + len < extent.len() => self.within += len,
            Some(extent) if self.within + len == extent.len() => {
                self.next_extent();
            }
            _ => self.seek(from + len),
        }
        len
    }

    /// Moves `len` bytes back, at most to the beginning; how many that were.
    pub fn backward(&mut self, len: u64) -> u64 {
        let from = self.offset();
        let len = len.min(from);
        if len <= self.within {
            self.within -= len;
        } else {
            self.seek(from - len);
        }
        len
    }

    /// Moves to the beginning of the next extent, from the last one to the end. Whether there was
    /// an extent to leave.
    pub fn next_extent(&mut self) -> bool {
        let Some(extent) = self.cursor.item() else { return false };
        self.start += extent.len();
        self.within = 0;
        self.cursor.next();
        true
    }

    /// Moves to the beginning of the extent before this one. Whether there is one.
    pub fn prev_extent(&mut self) -> bool {
        let Some(extent) = self.cursor.prev() else { return false };
        self.start -= extent.len();
        self.within = 0;
        true
    }

    /// The extent that it is in; none at the end.
    #[must_use]
    pub fn extent(&self) -> Option<ExtentInfo> {
        let extent = self.cursor.item()?;
        let address = extent.address;
        let stored_at = (!address.is_zeros()).then_some((address.segment, address.offset));
        Some(ExtentInfo { offset: self.start, len: extent.len(), tag: extent.tag, stored_at })
    }

    /// The tag of the byte that it is on.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        self.cursor.item().filter(|_| self.within == 0)?.tag
    }

    /// Fills `buffer` and moves on by as much; how many bytes that were: fewer only at the end.
    ///
    /// # Errors
    /// As [`FlexSpace::read`](super::FlexSpace::read); it stands then on what could not be read.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(extent) = self.cursor.item() else { break };
            let piece = extent.tail(self.within);
            let len = piece.len().min((buffer.len() - done) as u64);
            self.view.read_extent(piece, &mut buffer[done..done + len as usize])?;
            self.forward(len);
            done += len as usize;
        }
        Ok(done)
    }
}
