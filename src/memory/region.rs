//! What is free in a region, and which of its pages take memory. Only numbers; the memory itself is
//! the heap's.
//!
//! Invariants
//! - N1  A span is free or used. Free spans do not touch: neighbours are joined.
//! - N2  `ends` holds the length of each free span at its first and at its last unit, and 0
//!   everywhere else.
//! - N3  Every page that a used span touches is marked as taken.

use std::ops::Range;

use super::pages::{PAGE_SIZE, REGION_SIZE};

/// Spans are of so many bytes, times a number.
pub(super) const UNIT: usize = 256;
/// Units of a region.
pub(super) const UNITS: u16 = (REGION_SIZE / UNIT) as u16;
const UNITS_PER_PAGE: u16 = (PAGE_SIZE / UNIT) as u16;
const PAGES: usize = REGION_SIZE / PAGE_SIZE;
const WORD_BITS: usize = u64::BITS as usize;

/// Units that lie behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub len: u16,
    pub start: u16,
}

impl Span {
    /// A whole region.
    pub(super) const ALL: Span = Span { start: 0, len: UNITS };

    pub(super) fn end(self) -> u16 {
        self.start + self.len
    }

    /// The pages that lie in it whole.
    fn whole_pages(self) -> Range<usize> {
        let first = self.start.div_ceil(UNITS_PER_PAGE);
        usize::from(first)..usize::from((self.end() / UNITS_PER_PAGE).max(first))
    }

    /// The pages that it touches.
    fn touched_pages(self) -> Range<usize> {
        usize::from(self.start / UNITS_PER_PAGE)..usize::from(self.end().div_ceil(UNITS_PER_PAGE))
    }
}

/// The map of one region.
#[derive(Debug)]
pub(super) struct RegionMap {
    ends: Box<[u16]>,
    /// A bit for each page: whether it takes memory.
    taken: [u64; PAGES / WORD_BITS],
}

impl RegionMap {
    /// Of a region that is free from end to end.
    pub(super) fn new(is_taken: bool) -> RegionMap {
        let mut map = RegionMap {
            ends: vec![0; usize::from(UNITS)].into_boxed_slice(),
            taken: [if is_taken { u64::MAX } else { 0 }; PAGES / WORD_BITS],
        };
        map.set_free(Span::ALL);
        map
    }

    /// Enters a free span. Its neighbours must be used.
    pub(super) fn set_free(&mut self, span: Span) {
        self.ends[usize::from(span.start)] = span.len;
        self.ends[usize::from(span.end() - 1)] = span.len;
    }

    /// Takes a free span out.
    pub(super) fn clear_free(&mut self, span: Span) {
        debug_assert_eq!(self.ends[usize::from(span.start)], span.len);
        self.ends[usize::from(span.start)] = 0;
        self.ends[usize::from(span.end() - 1)] = 0;
    }

    /// The free spans before and behind a used one (N1, N2).
    pub(super) fn neighbours(&self, span: Span) -> [Option<Span>; 2] {
        let before = match span.start {
            0 => 0,
            start => self.ends[usize::from(start - 1)],
        };
        let behind = self.ends.get(usize::from(span.end())).copied().unwrap_or(0);
        [
            (before > 0).then(|| Span { start: span.start - before, len: before }),
            (behind > 0).then(|| Span { start: span.end(), len: behind }),
        ]
    }

    /// Marks the pages that a span touches as taken; returns how many were not (N3).
    pub(super) fn take_pages(&mut self, span: Span) -> usize {
        let mut added = 0;
        for page in span.touched_pages() {
            let (word, bit) = place_of(page);
            added += usize::from(self.taken[word] & bit == 0);
            self.taken[word] |= bit;
        }
        added
    }

    /// Marks the pages that lie whole in a free span as not taken, and hands those that were to
    /// `each`, by ranges.
    pub(super) fn leave_pages(&mut self, span: Span, mut each: impl FnMut(Range<usize>)) {
        let mut run = 0..0;
        for page in span.whole_pages() {
            let (word, bit) = place_of(page);
            if self.taken[word] & bit == 0 {
                continue;
            }
            self.taken[word] &= !bit;
            if run.end != page {
                if !run.is_empty() {
                    each(run.clone());
                }
                run = page..page;
            }
            run.end = page + 1;
        }
        if !run.is_empty() {
            each(run);
        }
    }

    /// How many of the pages that lie whole in a span are taken.
    pub(super) fn taken_in(&self, span: Span) -> usize {
        let pages = span.whole_pages();
        let words = pages.start / WORD_BITS..pages.end.div_ceil(WORD_BITS);
        words
            .map(|word| {
                let first = pages.start.saturating_sub(word * WORD_BITS);
                let end = (pages.end - word * WORD_BITS).min(WORD_BITS);
                let mask = u64::MAX >> (WORD_BITS - end) & u64::MAX << first;
                (self.taken[word] & mask).count_ones() as usize
            })
            .sum()
    }

    /// How many pages are taken.
    pub(super) fn taken_count(&self) -> usize {
        self.taken.iter().map(|word| word.count_ones() as usize).sum()
    }
}

fn place_of(page: usize) -> (usize, u64) {
    (page / WORD_BITS, 1 << (page % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_know_their_pages() {
        let per_page = UNITS_PER_PAGE;
        let span = Span { start: 1, len: 3 * per_page };
        assert_eq!((span.whole_pages(), span.touched_pages()), (1..3, 0..4));
        let within = Span { start: 1, len: 2 };
        assert!(within.whole_pages().is_empty());
        assert_eq!(within.touched_pages(), 0..1);
        assert_eq!(Span::ALL.whole_pages(), 0..PAGES);
    }

    #[test]
    fn pages_are_taken_once_and_left_by_ranges() {
        let mut map = RegionMap::new(false);
        let page = |number: usize, count: u16| Span {
            start: number as u16 * UNITS_PER_PAGE,
            len: count * UNITS_PER_PAGE,
        };
        assert_eq!(map.take_pages(page(62, 4)), 4);
        assert_eq!(map.take_pages(page(64, 4)), 2, "two were taken before");
        assert_eq!(map.take_pages(page(100, 1)), 1);
        assert_eq!(map.taken_in(page(60, 50)), 7);
        assert_eq!(map.taken_in(page(63, 3)), 3);
        assert_eq!((map.taken_in(Span::ALL), map.taken_count()), (7, 7));
        let mut left = Vec::new();
        map.leave_pages(page(63, 50), |pages| left.push(pages));
        assert_eq!(left, [63..68, 100..101]);
        assert_eq!((map.taken_in(Span::ALL), map.taken_count()), (1, 1));
    }

    #[test]
    fn neighbours_are_found_on_both_sides() {
        let mut map = RegionMap::new(true);
        map.clear_free(Span::ALL);
        let (first, second) = (Span { start: 0, len: 10 }, Span { start: 20, len: UNITS - 20 });
        map.set_free(first);
        map.set_free(second);
        let between = Span { start: 10, len: 10 };
        assert_eq!(map.neighbours(between), [Some(first), Some(second)]);
        assert_eq!(map.neighbours(Span { start: 12, len: 3 }), [None, None]);
    }
}
