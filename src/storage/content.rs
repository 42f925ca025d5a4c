//! The bytes of one file in memory: sparse, in pages that copies share until one of them writes.
//!
//! Owns the pages and the length of a file. Must not know names, locks or durability.
//!
//! Invariants
//! - C1  Bytes of a page past `len` are zero, and no page begins at or past `len`, except between
//!   `write_pages` and `clip` (the simulation applies data and length as separate things).
//! - C2  `loose_count` is the number of pages in `pages` at or past `reserved_count`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Pages are what copies share; the usual page of an operating system.
pub(super) const PAGE_SIZE: usize = 4096;
const PAGE: u64 = PAGE_SIZE as u64;
/// As an operating system has it: offsets are signed.
const LEN_MAX: u64 = i64::MAX as u64;

type Page = [u8; PAGE_SIZE];

/// To compare with: far faster than looking at one byte after the other.
static ZEROS: Page = [0; PAGE_SIZE];

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
    /// Pages `0..reserved_count` count as allocated, written or not.
    reserved_count: u64,
    loose_count: u64,
}

/// Refuses ranges that no file can have.
pub(super) fn check_range(offset: u64, size: u64) -> io::Result<()> {
    match offset.checked_add(size) {
        Some(end) if end <= LEN_MAX => Ok(()),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads what there is of `buffer.len()` bytes at `offset`.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let available = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut rest = &mut buffer[..available];
        let mut at = offset;
        let mut pages = self.pages.range(offset / PAGE..).peekable();
        while !rest.is_empty() {
            let (index, start) = split(at);
            let count = rest.len().min(PAGE_SIZE - start);
            let (here, later) = rest.split_at_mut(count);
            match pages.next_if(|(found, _)| **found == index) {
                Some((_, page)) => here.copy_from_slice(&page[start..start + count]),
                None => here.fill(0),
            }
            rest = later;
            at += count as u64;
        }
        available
    }

    /// Writes at `offset`, extending the file if need be.
    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) {
        self.write_pages(bytes, offset);
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
    }

    /// Writes at `offset` without a change of length.
    pub(super) fn write_pages(&mut self, bytes: &[u8], offset: u64) {
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let (index, start) = split(at);
            let (here, later) = rest.split_at(rest.len().min(PAGE_SIZE - start));
            let page = self.pages.entry(index).or_insert_with(|| {
                self.loose_count += u64::from(index >= self.reserved_count);
                Arc::new([0; PAGE_SIZE])
            });
            Arc::make_mut(page)[start..start + here.len()].copy_from_slice(here);
            rest = later;
            at += here.len() as u64;
        }
    }

    /// Cuts, or extends with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        let shrinks = len < self.len;
        self.len = len;
        if shrinks {
            self.clip();
        }
    }

    /// Forgets what lies past the end.
    pub(super) fn clip(&mut self) {
        let kept = self.len.div_ceil(PAGE);
        drop(self.pages.split_off(&kept));
        let (last, used) = split(self.len);
        if used > 0
            && let Some(page) = self.pages.get_mut(&last)
            && page[used..] != ZEROS[used..]
        {
            Arc::make_mut(page)[used..].fill(0);
        }
        self.reserved_count = self.reserved_count.min(kept);
        self.count_loose();
    }

    /// Whether there is anything for `clip` to do.
    pub(super) fn holds_bytes_past_end(&self) -> bool {
        let (last, used) = split(self.len);
        let kept = self.len.div_ceil(PAGE);
        self.reserved_count > kept
            || self.pages.range(kept..).next().is_some()
            || (used > 0 && self.pages.get(&last).is_some_and(|page| page[used..] != ZEROS[used..]))
    }

    /// Counts the first `len` bytes as allocated and extends the file to at least `len`.
    pub(super) fn reserve(&mut self, len: u64) {
        self.len = self.len.max(len);
        self.reserved_count = self.reserved_count.max(len.div_ceil(PAGE));
        self.count_loose();
    }

    /// Makes `size` bytes at `offset` zeros, without a change of length, and gives whole pages up.
    /// Those that are reserved count as allocated still.
    pub(super) fn punch_hole(&mut self, offset: u64, size: u64) {
        let end = offset + size;
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        for (index, page) in self.pages.range_mut(offset / PAGE..end.div_ceil(PAGE)) {
            if !whole.contains(index) {
                let start = offset.saturating_sub(index * PAGE) as usize;
                let stop = (end - index * PAGE).min(PAGE) as usize;
                Arc::make_mut(page)[start..stop].fill(0);
            }
        }
        if !whole.is_empty() {
            self.pages.retain(|index, _| !whole.contains(index));
            self.count_loose();
        }
    }

    /// Bytes that this file takes on a disk, in whole pages.
    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.reserved_count + self.loose_count) * PAGE
    }

    /// Bytes that a write of `size` bytes at `offset` would allocate.
    pub(super) fn growth_of_write(&self, offset: u64, size: u64) -> u64 {
        if size == 0 {
            return 0;
        }
        let first = (offset / PAGE).max(self.reserved_count);
        let end = (offset + size).div_ceil(PAGE);
        if first >= end {
            return 0;
        }
        (end - first - self.pages.range(first..end).count() as u64) * PAGE
    }

    /// Bytes that reserving the first `len` bytes would allocate.
    pub(super) fn growth_of_reserve(&self, len: u64) -> u64 {
        let end = len.div_ceil(PAGE);
        if end <= self.reserved_count {
            return 0;
        }
        let present = self.pages.range(self.reserved_count..end).count() as u64;
        (end - self.reserved_count - present) * PAGE
    }

    fn count_loose(&mut self) {
        self.loose_count = self.pages.range(self.reserved_count..).count() as u64;
    }
}

/// The page an offset is in, and where in it.
fn split(offset: u64) -> (u64, usize) {
    (offset / PAGE, (offset % PAGE) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_pages_and_holes_read_zero() {
        let mut content = Content::default();
        let bytes: Vec<u8> = (0..3 * PAGE_SIZE).map(|i| (i % 251) as u8 + 1).collect();
        content.write_at(&bytes, PAGE + 100);
        let mut all = vec![9; 5 * PAGE_SIZE];
        let count = content.read_at(&mut all, 0);
        assert_eq!(count, PAGE_SIZE + 100 + bytes.len());
        assert!(all[..PAGE_SIZE + 100].iter().all(|byte| *byte == 0));
        assert_eq!(&all[PAGE_SIZE + 100..count], &bytes[..]);
        assert_eq!(content.read_at(&mut all, content.len()), 0);
        assert_eq!(content.read_at(&mut all, u64::MAX), 0);
    }

    #[test]
    fn shrinking_then_extending_reads_zero() {
        let mut content = Content::default();
        content.write_at(&[7; 2 * PAGE_SIZE], 0);
        content.set_len(10);
        content.set_len(2 * PAGE);
        let mut all = vec![9; 2 * PAGE_SIZE];
        assert_eq!(content.read_at(&mut all, 0), 2 * PAGE_SIZE);
        assert!(all[..10].iter().all(|byte| *byte == 7));
        assert!(all[10..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn allocation_counts_pages_once() {
        let mut content = Content::default();
        assert_eq!(content.growth_of_write(10 * PAGE, 1), PAGE);
        content.write_at(&[1], 10 * PAGE);
        assert_eq!(content.allocated_bytes(), PAGE);
        assert_eq!(content.growth_of_reserve(20 * PAGE), 19 * PAGE);
        content.reserve(20 * PAGE);
        assert_eq!(content.allocated_bytes(), 20 * PAGE);
        assert_eq!(content.growth_of_write(0, 20 * PAGE), 0);
        assert_eq!(content.growth_of_write(19 * PAGE + 1, PAGE), PAGE);
        content.set_len(PAGE + 1);
        assert_eq!(content.allocated_bytes(), 2 * PAGE);
    }

    #[test]
    fn a_hole_reads_zero_and_frees_whole_pages() {
        let mut content = Content::default();
        content.write_at(&[7; 4 * PAGE_SIZE], 0);
        let copy = content.clone();
        content.punch_hole(PAGE - 1, PAGE + 2);
        content.punch_hole(3 * PAGE + 5, PAGE - 5);
        assert_eq!((content.len(), content.allocated_bytes()), (4 * PAGE, 3 * PAGE));
        let mut all = vec![9; 4 * PAGE_SIZE];
        assert_eq!(content.read_at(&mut all, 0), 4 * PAGE_SIZE);
        let is_hole =
            |at: usize| (PAGE_SIZE - 1..=2 * PAGE_SIZE).contains(&at) || at >= 3 * PAGE_SIZE + 5;
        assert!(all.iter().enumerate().all(|(at, byte)| *byte == if is_hole(at) { 0 } else { 7 }));
        content.punch_hole(10, 20);
        content.punch_hole(4 * PAGE, PAGE);
        content.read_at(&mut all, 0);
        assert_eq!((all[9], all[10], all[29], all[30]), (7, 0, 0, 7));
        copy.read_at(&mut all, 0);
        assert!(all.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn copies_do_not_see_each_other() {
        let mut content = Content::default();
        content.write_at(b"old", 0);
        let copy = content.clone();
        content.write_at(b"new", 0);
        let mut bytes = [0; 3];
        copy.read_at(&mut bytes, 0);
        assert_eq!(&bytes, b"old");
    }
}
