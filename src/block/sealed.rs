//! Frames in files that have a key: how what a frame stores is encrypted, in pages.
//!
//! The *plain frame* is the frame as it would be in another file: header and what is stored. Of it
//! the file has the header, then each page encrypted, with its tag behind it, and a nonce behind
//! the last one. What is authenticated with a page: where the frame lies, the header from its byte
//! 8 on, the page's number and how many there are.
//!
//! Invariants
//! - S1  A page opens only as the one that it is, of the frame that was sealed for this place of
//!   this file, with all of its pages.
//! - S2  Nonces of pages are made of one that is drawn for the frame, and the page's number.

use std::ops::Range;

use super::frame::HEADER_LEN;
use crate::seal::{FileKey, NONCE_LEN, Nonce, TAG_LEN};

/// Of a header's kind: what is stored is sealed.
pub const SEALED: u8 = 0x80;
/// A page of those that can be read without the others ends at each multiple of this, in the plain
/// frame.
pub(super) const PAGE_LEN: usize = 1 << 10;
/// The same in the file.
const SEALED_PAGE_LEN: usize = PAGE_LEN + TAG_LEN;
/// What of the header is authenticated.
const HEAD: Range<usize> = 8..HEADER_LEN;

/// How a frame is parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paging {
    /// One page.
    Whole,
    /// Pages that can be read without the others.
    Fixed,
}

/// A sealed frame, as far as it takes to open a part of it.
#[derive(Clone, Debug)]
pub struct SealedFrame {
    head: [u8; HEADER_LEN - 8],
    nonce: Nonce,
    pages: Pages,
}

/// Where the pages of a frame lie.
#[derive(Clone, Copy, Debug)]
struct Pages {
    paging: Paging,
    /// Bytes of the plain frame.
    plain_len: usize,
}

impl Pages {
    fn count(self) -> usize {
        match self.paging {
            Paging::Whole => 1,
            Paging::Fixed => self.plain_len.div_ceil(PAGE_LEN),
        }
    }

    /// Where the page is in the plain frame. The first one begins behind the header.
    fn plain(self, page: usize) -> Range<usize> {
        match self.paging {
            Paging::Whole => HEADER_LEN..self.plain_len,
            Paging::Fixed => {
                let start = (page * PAGE_LEN).max(HEADER_LEN);
                start..((page + 1) * PAGE_LEN).min(self.plain_len)
            }
        }
    }

    /// Where it is in the file's frame, with its tag behind it.
    fn sealed(self, page: usize) -> Range<usize> {
        let Range { start, end } = self.plain(page);
        start + page * TAG_LEN..end + page * TAG_LEN
    }

    /// Bytes of the frame in the file.
    fn sealed_len(self) -> usize {
        self.plain_len + self.count() * TAG_LEN + NONCE_LEN
    }

    /// Of a frame of so many bytes in the file; `None` if there is no such.
    fn of_sealed_len(sealed_len: usize, paging: Paging) -> Option<Pages> {
        let pages_end = sealed_len.checked_sub(NONCE_LEN)?;
        let count = match paging {
            Paging::Whole => 1,
            Paging::Fixed => pages_end.div_ceil(SEALED_PAGE_LEN),
        };
        let plain_len = pages_end.checked_sub(count * TAG_LEN)?;
        let pages = Pages { paging, plain_len };
        (plain_len >= HEADER_LEN && pages.count() == count).then_some(pages)
    }

    fn place(self, head: &[u8], offset: u64, page: usize) -> [u8; 24] {
        let mut place = [0; 24];
        place[..8].copy_from_slice(&offset.to_le_bytes());
        place[8..16].copy_from_slice(head);
        place[16..20].copy_from_slice(&(page as u32).to_le_bytes());
        place[20..].copy_from_slice(&(self.count() as u32).to_le_bytes());
        place
    }
}

/// Bytes that a sealed frame stores behind its header, of one that stores `stored_len` bytes plain.
pub(super) fn stored_len_of(stored_len: usize, paging: Paging) -> usize {
    Pages { paging, plain_len: HEADER_LEN + stored_len }.sealed_len() - HEADER_LEN
}

/// Seals the plain frame that `out` has from `start` on, whose header says already what it is to
/// say, for this place.
pub(super) fn seal_frame(
    key: &FileKey,
    paging: Paging,
    offset: u64,
    out: &mut Vec<u8>,
    start: usize,
) {
    let pages = Pages { paging, plain_len: out.len() - start };
    out.resize(start + pages.sealed_len(), 0);
    let frame = &mut out[start..];
    let nonce = key.draw_nonce();
    let pieces = key.pieces(&nonce);
    // From the last one on: none is written over before it has moved.
    for page in (0..pages.count()).rev() {
        let sealed = pages.sealed(page);
        frame.copy_within(pages.plain(page), sealed.start);
        let place = pages.place(&frame[HEAD], offset, page);
        let tag = pieces.seal(page as u32, &place, &mut frame[sealed.clone()]);
        frame[sealed.end..sealed.end + TAG_LEN].copy_from_slice(&tag);
    }
    let end = frame.len() - NONCE_LEN;
    frame[end..].copy_from_slice(&nonce);
}

/// Opens a sealed frame where it is: makes the plain frame of it; how long that is. `None` if it is
/// not what was sealed for this place.
pub(super) fn open_frame(
    key: &FileKey,
    paging: Paging,
    offset: u64,
    frame: &mut [u8],
) -> Option<usize> {
    let pages = Pages::of_sealed_len(frame.len(), paging)?;
    let pieces = key.pieces(frame.last_chunk()?);
    for page in 0..pages.count() {
        let sealed = pages.sealed(page);
        let place = pages.place(&frame[HEAD], offset, page);
        let (message, behind) = frame[sealed.start..].split_at_mut(sealed.len());
        if !pieces.open(page as u32, &place, message, behind.first_chunk()?) {
            return None;
        }
        frame.copy_within(sealed, pages.plain(page).start);
    }
    Some(pages.plain_len)
}

impl SealedFrame {
    /// Whether there is no sealed frame in `data`, or all that is needed to open parts of it.
    pub(super) fn is_not_or_whole(data: &[u8], plain_len: usize) -> bool {
        data[13] & SEALED == 0 || SealedFrame::found(data, plain_len).is_some()
    }

    /// Of what [`open_frame`] made of one in pages of a fixed length, with what it left behind the
    /// plain frame; `None` if the frame was not sealed.
    pub(super) fn found(data: &[u8], plain_len: usize) -> Option<SealedFrame> {
        if data[13] & SEALED == 0 {
            return None;
        }
        let pages = Pages { paging: Paging::Fixed, plain_len };
        let nonce = *data.get(..pages.sealed_len())?.last_chunk()?;
        Some(SealedFrame { head: data[HEAD].try_into().expect("eight bytes"), nonce, pages })
    }

    /// About where pages of a plain frame lie in the one that is in the file.
    #[must_use]
    pub fn place_of_pages(plain: Range<usize>) -> Range<usize> {
        let (first, end) = (plain.start / PAGE_LEN, plain.end.div_ceil(PAGE_LEN));
        first * SEALED_PAGE_LEN..end * SEALED_PAGE_LEN
    }

    /// Reads a part of the plain frame, which lies at `offset` of its file: from a multiple of
    /// [`PAGE_LEN`] up to one or the frame's end. `read` reads from the frame as it is in the file.
    /// Whether it is what was sealed.
    ///
    /// # Errors
    /// What `read` gives.
    pub fn read<E>(
        &self,
        key: &FileKey,
        offset: u64,
        from: usize,
        out: &mut [u8],
        read: impl FnOnce(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if out.is_empty() {
            return Ok(true); // Where all stamps of a block are the same, there is nothing of one.
        }
        let mut small = [0; 2 * SEALED_PAGE_LEN];
        let mut large = Vec::new();
        let first = from / PAGE_LEN;
        let last = (from + out.len()).div_ceil(PAGE_LEN).max(first + 1) - 1;
        let (start, end) = (first * SEALED_PAGE_LEN, self.pages.sealed(last).end + TAG_LEN);
        let bytes = match small.get_mut(..end - start) {
            Some(bytes) => bytes,
            None => {
                large.resize(end - start, 0);
                large.as_mut_slice()
            }
        };
        read(start, bytes)?;
        if first == 0 {
            // The header is not sealed. What of it matters is authenticated with the pages.
            out[..HEADER_LEN].copy_from_slice(&bytes[..HEADER_LEN]);
        }
        let pieces = key.pieces(&self.nonce);
        for page in first..=last {
            let (sealed, plain) = (self.pages.sealed(page), self.pages.plain(page));
            let place = self.pages.place(&self.head, offset, page);
            let (message, behind) = bytes[sealed.start - start..].split_at_mut(sealed.len());
            let tag = behind.first_chunk().expect("it was read with the page");
            if !pieces.open(page as u32, &place, message, tag) {
                return Ok(false);
            }
            out[plain.start - from..plain.end - from].copy_from_slice(message);
        }
        Ok(true)
    }
}
