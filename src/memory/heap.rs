//! The heap: spans of any size in regions. Blocks have one, guides another.
//!
//! A span is taken from the first region that has room, there from the smallest free one that is
//! long enough. Blocks come and go all the time, so the first regions become dense and the last
//! ones empty. What was given back is kept for the next, up to a little part of what is in use;
//! beyond that the last regions give their pages back to the system, or go altogether. That takes
//! the system its time, interrupts every thread, and breaks huge pages up: so it is done for much
//! at once, and not under the lock, where whoever reads a block would wait for it.
//!
//! Invariants
//! - H1  Every free span of a region is in its set `free` and in its map, but for those whose pages
//!   are being given back: they are in neither, as if they were used. `largest` has the length of
//!   the longest.
//! - H2  A used span belongs to one [`HeapSpan`]: nobody else has references into it.
//! - H3  `taken - used` bytes are unused: pages that are kept, and parts of pages. `idle` of them
//!   could be given back.

#![expect(unsafe_code, reason = "spans are given out as raw memory")]

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bytes::Buffer;
use super::pages::{PAGE_SIZE, Paging, REGION_SIZE, Region};
use super::region::{RegionMap, Span, UNIT, UNITS};

/// Longer buffers come from the allocator: they are rare, and would break regions up.
const LEN_MAX: usize = REGION_SIZE / 8;
/// Idle bytes that are kept: at most the first part of what is used, and at most two regions and
/// the second part.
const IDLE_FRACTION_SMALL: usize = 8;
const IDLE_FRACTION: usize = 32;
/// The first part, of a heap that keeps little.
const IDLE_FRACTION_LEAN: usize = 64;
/// Once it is more, so much less than that is kept: a part of it. Blocks that are given back one by
/// one become long spans then, and few calls of the system.
const IDLE_SLACK: usize = 4;
/// .. from so many regions at most, for one who gives back: a reader may, while another frees much.
const REGIONS_PER_CALLER: u32 = 2;
/// Lengths are rounded up to about this part of them, so that a span fits the next block.
const ROUNDING: usize = 32;
/// Regions are huge pages once so much is used.
const HUGE_FROM: usize = 4 * REGION_SIZE;

/// Memory for the bytes of blocks, or of guides.
pub struct Heap {
    spans: Mutex<Spans>,
    /// So many idle bytes are kept in any case.
    idle_min: usize,
    /// At most this part of what is used.
    idle_fraction: usize,
    /// What [`Heap::unused`] returns.
    unused: AtomicUsize,
    /// What [`Heap::used`] returns.
    used: AtomicUsize,
    /// What of the unused bytes could be given back.
    idle: AtomicUsize,
}

/// A used span, as whoever has it gives it back.
#[derive(Debug)]
pub(super) struct HeapSpan {
    heap: Arc<Heap>,
    region: u32,
    span: Span,
}

#[derive(Default)]
struct Spans {
    regions: Vec<Option<RegionState>>,
    /// The longest free span of each region; 0 where there is none.
    largest: Vec<u16>,
    used: usize,
    taken: usize,
    idle: usize,
}

struct RegionState {
    region: Arc<Region>,
    map: RegionMap,
    paging: Paging,
    /// Length and start.
    free: BTreeSet<(u16, u16)>,
    /// Pages that take memory and lie whole in free spans.
    idle_pages: usize,
}

impl Heap {
    /// An empty heap. Takes no memory yet, and keeps none when all that it had was given back.
    #[must_use]
    pub fn new() -> Arc<Heap> {
        Heap::keeping(0)
    }

    /// An empty heap that does not give its last `idle_min` idle bytes back to the system. Who
    /// walks through much while nothing is cached takes a block and gives it back, over and over:
    /// without this, each time to the system.
    #[must_use]
    pub fn keeping(idle_min: usize) -> Arc<Heap> {
        Heap::with(idle_min, IDLE_FRACTION_SMALL)
    }

    /// An empty heap that keeps little idle, for what comes and goes less than blocks do.
    #[must_use]
    pub fn lean() -> Arc<Heap> {
        Heap::with(0, IDLE_FRACTION_LEAN)
    }

    fn with(idle_min: usize, idle_fraction: usize) -> Arc<Heap> {
        let [unused, used, idle] = std::array::from_fn(|_| AtomicUsize::new(0));
        Arc::new(Heap { spans: Mutex::default(), idle_min, idle_fraction, unused, used, idle })
    }

    /// Idle bytes that are kept at most while so many are used.
    fn idle_max(&self, used: usize) -> usize {
        let by_used = (used / self.idle_fraction).min(2 * REGION_SIZE + used / IDLE_FRACTION);
        by_used.max(self.idle_min)
    }

    /// A buffer of `len` bytes or a little more, with anything in it.
    #[must_use]
    pub fn take(self: &Arc<Heap>, len: usize) -> Buffer {
        if len == 0 || len > LEN_MAX {
            return Buffer::allocate(len);
        }
        let units = units_for(len);
        let mut spans = self.lock();
        let Some((region, span, start)) = spans.take(units) else {
            return Buffer::allocate(len); // the system has no regions
        };
        self.note_unused(&spans);
        drop(spans);
        let owner = HeapSpan { heap: Arc::clone(self), region, span };
        // SAFETY: the span's memory, which only this owner has (H2).
        unsafe { Buffer::of_span(start, usize::from(span.len) * UNIT, owner) }
    }

    /// Bytes of memory that the heap has and nobody uses: spans kept for later, and what is left
    /// over beside spans.
    #[inline]
    #[must_use]
    pub fn unused(&self) -> usize {
        self.unused.load(Ordering::Relaxed)
    }

    /// Bytes of spans that somebody has; longer buffers are not counted.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that are set aside for [`Heap::unused`]: as if as much were idle as may be kept beside
    /// what is used.
    #[must_use]
    pub fn set_aside(&self) -> usize {
        let (used, idle) = (self.used(), self.idle.load(Ordering::Relaxed));
        let idle_max = self.idle_max(used).min(used);
        self.unused() + idle_max.saturating_sub(idle)
    }

    /// Bytes by which [`Heap::unused`] goes up and down by itself, at most: what is kept idle, and
    /// a region that is taken.
    #[must_use]
    pub fn slack(&self) -> usize {
        let used = self.used();
        let region = if used >= HUGE_FROM { REGION_SIZE } else { 0 };
        self.idle_max(used) + region
    }

    /// Gives memory back to the system until there is room for more.
    fn leave(&self, first: Surplus) {
        let mut surplus = Some(first);
        let mut regions_left = REGIONS_PER_CALLER;
        while let Some(some) = surplus.take() {
            regions_left = regions_left.saturating_sub(1);
            let left = match some {
                Surplus::Region(region) => {
                    drop(region);
                    None
                }
                Surplus::Pages(pages) => {
                    pages.leave();
                    Some(pages)
                }
            };
            let mut spans = self.lock();
            let gone = left.and_then(|pages| spans.put_back(&pages));
            let idle_max = self.idle_max(spans.used);
            let slack = if regions_left > 0 { idle_max / IDLE_SLACK } else { 0 };
            surplus = spans.surplus(idle_max - slack);
            self.note_unused(&spans);
            drop(spans);
            drop(gone);
        }
    }

    fn note_unused(&self, spans: &Spans) {
        self.unused.store(spans.taken - spans.used, Ordering::Relaxed); // H3
        self.used.store(spans.used, Ordering::Relaxed);
        self.idle.store(spans.idle, Ordering::Relaxed);
    }

    /// Nothing panics half-way.
    fn lock(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("unused", &self.unused()).finish_non_exhaustive()
    }
}

impl Drop for HeapSpan {
    fn drop(&mut self) {
        let mut spans = self.heap.lock();
        spans.give_back(self.region, self.span);
        let idle_max = self.heap.idle_max(spans.used);
        let surplus = spans.surplus(idle_max);
        self.heap.note_unused(&spans);
        drop(spans);
        if let Some(surplus) = surplus {
            self.heap.leave(surplus);
        }
    }
}

/// What is given back to the system.
enum Surplus {
    /// Nothing of it is in use.
    Region(RegionState),
    Pages(Leaving),
}

/// Free spans of a region that nobody takes while their pages are given back.
struct Leaving {
    index: usize,
    region: Arc<Region>,
    spans: Vec<Span>,
    pages: Vec<Range<usize>>,
    was_huge: bool,
}

impl Leaving {
    fn leave(&self) {
        if self.was_huge {
            // Else the system may put a huge page together again, unasked.
            self.region.set_paging(Paging::Small);
        }
        for pages in &self.pages {
            // SAFETY: pages of free spans that nobody takes: nobody has references into them (H2).
            unsafe { self.region.give_back(pages.clone()) };
        }
    }
}

impl Spans {
    /// Takes `units` from a free span, or from a new region.
    fn take(&mut self, units: u16) -> Option<(u32, Span, NonNull<u8>)> {
        let index = match self.largest.iter().position(|&largest| largest >= units) {
            Some(index) => index,
            None => self.add_region()?,
        };
        let state = self.regions[index].as_mut()?;
        let (len, start) = *state.free.range((units, 0)..).next()?;
        let idle_before = state.idle_pages;
        state.remove_free(Span { start, len });
        let span = Span { start, len: units };
        if len > units {
            state.add_free(Span { start: span.end(), len: len - units });
        }
        self.taken += state.map.take_pages(span) * PAGE_SIZE;
        self.used += usize::from(units) * UNIT;
        self.idle -= (idle_before - state.idle_pages) * PAGE_SIZE;
        self.largest[index] = state.largest();
        // SAFETY: the span lies in the region.
        let start = unsafe { state.region.start().add(usize::from(start) * UNIT) };
        Some((index as u32, span, start))
    }

    /// Takes a used span back.
    fn give_back(&mut self, number: u32, span: Span) {
        let index = number as usize;
        let state = self.regions[index].as_mut().expect("it has a used span");
        let idle_before = state.idle_pages;
        state.join_free(span);
        self.used -= usize::from(span.len) * UNIT;
        self.idle += (state.idle_pages - idle_before) * PAGE_SIZE;
        self.largest[index] = state.largest();
    }

    /// What to give back to the system if more than `idle_max` bytes are idle: the last region that
    /// is idle, if nothing of it is in use, or its idle pages.
    fn surplus(&mut self, idle_max: usize) -> Option<Surplus> {
        if self.idle <= idle_max {
            return None;
        }
        let idle =
            |state: &Option<RegionState>| state.as_ref().is_some_and(|state| state.idle_pages > 0);
        let index = self.regions.iter().rposition(idle).expect("some region is idle");
        let state = self.regions[index].as_mut()?;
        self.idle -= state.idle_pages * PAGE_SIZE;
        if self.largest[index] == UNITS {
            return self.remove(index).map(Surplus::Region);
        }
        self.taken -= state.idle_pages * PAGE_SIZE;
        let leaving = state.take_idle_pages(index);
        self.largest[index] = state.largest();
        Some(Surplus::Pages(leaving))
    }

    /// Makes spans free again whose pages were given back. The region, if nobody uses any of it by
    /// now.
    fn put_back(&mut self, left: &Leaving) -> Option<RegionState> {
        let state = self.regions[left.index].as_mut().expect("it has spans that are not free");
        let idle_before = state.idle_pages;
        left.spans.iter().for_each(|&span| state.join_free(span));
        self.idle += (state.idle_pages - idle_before) * PAGE_SIZE;
        self.largest[left.index] = state.largest();
        let is_empty = state.largest() == UNITS && state.idle_pages == 0;
        if is_empty { self.remove(left.index) } else { None }
    }

    /// Takes a region out that is free from end to end.
    fn remove(&mut self, index: usize) -> Option<RegionState> {
        let state = self.regions[index].take()?;
        self.taken -= state.map.taken_count() * PAGE_SIZE;
        self.largest[index] = 0;
        Some(state)
    }

    fn add_region(&mut self) -> Option<usize> {
        let paging = if self.used >= HUGE_FROM { Paging::Huge } else { Paging::Small };
        let state = RegionState::new(Region::map(paging)?, paging);
        self.taken += state.map.taken_count() * PAGE_SIZE;
        self.idle += state.idle_pages * PAGE_SIZE;
        let index = match self.regions.iter().position(Option::is_none) {
            Some(vacant) => vacant,
            None => {
                self.regions.push(None);
                self.largest.push(0);
                self.regions.len() - 1
            }
        };
        self.largest[index] = state.largest();
        self.regions[index] = Some(state);
        Some(index)
    }
}

impl RegionState {
    /// Free from end to end.
    fn new(region: Region, paging: Paging) -> RegionState {
        let map = RegionMap::new(paging == Paging::Huge);
        let (region, free) = (Arc::new(region), BTreeSet::new());
        let mut state = RegionState { region, map, paging, free, idle_pages: 0 };
        state.add_free(Span::ALL);
        state
    }

    /// H1.
    fn add_free(&mut self, span: Span) {
        self.map.set_free(span);
        self.free.insert((span.len, span.start));
        self.idle_pages += self.map.taken_in(span);
    }

    /// H1.
    fn remove_free(&mut self, span: Span) {
        self.map.clear_free(span);
        self.free.remove(&(span.len, span.start));
        self.idle_pages -= self.map.taken_in(span);
    }

    /// Length of the longest free span, or 0.
    fn largest(&self) -> u16 {
        self.free.last().map_or(0, |&(len, _)| len)
    }

    /// Makes a span free, and one with the free ones beside it.
    fn join_free(&mut self, span: Span) {
        let mut joined = span;
        for neighbour in self.map.neighbours(span).into_iter().flatten() {
            self.remove_free(neighbour);
            let start = joined.start.min(neighbour.start);
            joined = Span { start, len: joined.len + neighbour.len };
        }
        self.add_free(joined);
    }

    /// Takes the free spans out in which pages lie whole that take memory, to give these back.
    fn take_idle_pages(&mut self, index: usize) -> Leaving {
        let was_huge = std::mem::replace(&mut self.paging, Paging::Small) == Paging::Huge;
        let mut pages = Vec::new();
        let all = self.free.iter().map(|&(len, start)| Span { start, len });
        let spans: Vec<Span> = all.filter(|&span| self.map.taken_in(span) > 0).collect();
        for &span in &spans {
            self.remove_free(span);
            self.map.leave_pages(span, |run| pages.push(run));
        }
        Leaving { index, region: Arc::clone(&self.region), spans, pages, was_huge }
    }
}

/// Units of a span for `len` bytes.
fn units_for(len: usize) -> u16 {
    let step = (len / ROUNDING).next_power_of_two().max(UNIT);
    (len.next_multiple_of(step) / UNIT) as u16
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::memory::SharedBytes;

    /// A random number (splitmix64, G. Steele et al. 2014).
    fn mix64(step: u64) -> u64 {
        let z = step.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn filled(heap: &Arc<Heap>, len: usize, with: u8) -> SharedBytes {
        let mut buffer = heap.take(len);
        assert!(buffer.len() >= len && buffer.len() <= len + len / 16 + UNIT);
        buffer.fill(with);
        buffer.freeze()
    }

    #[test]
    fn bytes_stay_as_they_are_while_others_come_and_go() {
        let heap = Heap::new();
        let mut kept: VecDeque<(SharedBytes, u8)> = VecDeque::new();
        let (mut used, mut used_max) = (0, 0);
        for step in 0..60_000u64 {
            let random = mix64(step);
            let len = match random % 50 {
                0 => 1 + (random >> 8) as usize % LEN_MAX,
                _ => 10_000 + (random >> 8) as usize % 10_000,
            };
            let with = (random >> 40) as u8;
            let bytes = filled(&heap, len, with);
            used += bytes.len();
            kept.push_back((bytes, with));
            // Grows to 60 MiB, shrinks to 10, and so on.
            let room = if step / 10_000 % 2 == 0 { 60 << 20 } else { 10 << 20 };
            while used > room {
                let index = (mix64(used as u64) % kept.len() as u64) as usize;
                let (bytes, with) = kept.swap_remove_back(index).unwrap();
                used -= bytes.len();
                assert!(bytes.iter().all(|&byte| byte == with), "step {step}");
            }
            used_max = used_max.max(used);
            assert_eq!(heap.lock().used, used);
        }
        assert!(used_max > 59 << 20);
        drop(kept);
        assert_eq!(heap.unused(), 0, "an empty heap has no memory");
        assert!(heap.lock().regions.iter().all(Option::is_none));
    }

    #[test]
    fn what_is_unused_stays_small_when_use_shrinks() {
        let heap = Heap::new();
        let mut kept: Vec<SharedBytes> =
            (0..6_000).map(|number| filled(&heap, 12_000 + number % 9_000, 1)).collect();
        let before: usize = kept.iter().map(|bytes| bytes.len()).sum();
        assert!(heap.unused() < before / 10, "{} beside {before}", heap.unused());
        let mut number = 0;
        kept.retain(|_| {
            number += 1;
            mix64(number).is_multiple_of(3)
        });
        let after: usize = kept.iter().map(|bytes| bytes.len()).sum();
        let idle = heap.lock().idle;
        assert!(idle <= 2 * REGION_SIZE + after / IDLE_FRACTION, "{idle} idle beside {after}");
        // A page at either end of a span is left over at most.
        assert!(heap.unused() <= idle + kept.len() * 2 * PAGE_SIZE, "{}", heap.unused());
    }

    #[test]
    fn a_little_is_kept_for_who_takes_and_gives_back_over_and_over() {
        let heap = Heap::keeping(64 << 10);
        for number in 0..100 {
            drop(filled(&heap, 10_000 + number * 100, 1));
            let spans = heap.lock();
            let regions = spans.regions.iter().flatten().count();
            assert_eq!((spans.used, regions), (0, 1), "it stays mapped");
            assert!(spans.idle >= 8 << 10 && spans.idle <= 64 << 10, "{}", spans.idle);
        }
        drop((0..100).map(|_| filled(&heap, 10_000, 2)).collect::<Vec<_>>());
        assert!(heap.unused() <= 64 << 10, "{}", heap.unused());
    }

    #[test]
    fn a_slice_keeps_its_span() {
        let heap = Heap::new();
        let bytes = filled(&heap, 10_000, 7);
        let slice = bytes.slice(100..200);
        drop(bytes);
        let other = filled(&heap, 10_000, 8);
        assert!(slice.iter().all(|&byte| byte == 7) && slice.len() == 100);
        drop((slice, other));
        assert_eq!(heap.unused(), 0);
    }

    #[test]
    fn empty_and_long_buffers_are_not_of_the_heap() {
        let heap = Heap::new();
        for len in [0, LEN_MAX + 1, 5 * REGION_SIZE] {
            assert_eq!(heap.take(len).len(), len);
        }
        assert_eq!(heap.lock().regions.len(), 0);
        assert_eq!(heap.take(LEN_MAX).freeze().len(), LEN_MAX);
    }

    #[test]
    fn what_is_given_back_to_the_system_is_nobody_s_meanwhile() {
        let heap = Heap::new();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let heap = &heap;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for step in 0..12_000u64 {
                        let random = mix64(thread << 32 | step);
                        // Grows to some 20 MiB, and lets nearly all of it go.
                        let with = random as u8;
                        kept.push((filled(heap, 4_000 + random as usize % 9_000, with), with));
                        if kept.len() > 2_500 {
                            let mut number = 0;
                            kept.retain(|(bytes, with)| {
                                assert!(bytes.iter().all(|byte| byte == with));
                                number += 1;
                                mix64(number ^ random).is_multiple_of(16)
                            });
                        }
                    }
                });
            }
        });
        let spans = heap.lock();
        assert_eq!((spans.used, spans.taken, spans.idle), (0, 0, 0));
        assert!(spans.regions.iter().all(Option::is_none));
    }

    #[test]
    fn threads_share_a_heap() {
        let heap = Heap::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let heap = &heap;
                scope.spawn(move || {
                    let mut kept = VecDeque::new();
                    for step in 0..5_000 {
                        let random = mix64(thread << 32 | step);
                        kept.push_back(filled(heap, random as usize % 30_000, thread as u8));
                        if kept.len() > 200 {
                            let bytes = kept.pop_front().unwrap();
                            assert!(bytes.iter().all(|&byte| byte == thread as u8));
                        }
                    }
                });
            }
        });
        assert_eq!(heap.unused(), 0);
    }
}
