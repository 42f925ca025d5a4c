//! Chunks: raw memory that entries and nodes are cut from.
//!
//! Owns how memory is taken from the system, how it grows, when huge pages are asked for, and which
//! are kept for the next memtable. Must not know what lies in a chunk.
//!
//! Invariants
//! - C1  A chunk stays where it is, is aligned to lines, and is given back when it is dropped.
//! - C2  What is kept counts as memory of memtables until it is used again or given back.

#![expect(unsafe_code, reason = "memory that is shared while it is filled has no safe form")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::memory::{Paging, REGION_SIZE, Region};

/// Chunks start at multiples of this.
pub(super) const LINE_SIZE: usize = 64;
/// The first chunk, and the step in which chunks grow.
pub(super) const CHUNK_SIZE_MIN: usize = 4 << 10;
/// Size and alignment of a huge page.
pub(super) const HUGE_PAGE_SIZE: usize = REGION_SIZE;
/// A chunk is at most this fraction of what is allocated already, so that little is unused.
const GROWTH_DIVISOR: usize = 8;
/// Pages that are made ready while a memtable grows, so that its writer does not wait for the
/// system to clear them; and the part of what may be kept that they may be.
const AHEAD_COUNT: usize = 4;
const AHEAD_DIVISOR: usize = 8;

/// Memory of its own.
pub(super) struct Chunk {
    start: NonNull<u8>,
    size: usize,
    memory: Memory,
}

/// Whose memory it is.
enum Memory {
    /// Gone when the chunk is dropped.
    Huge(Option<Region>, Arc<SpareChunks>),
    Allocated,
}

// SAFETY: the memory is owned; nothing about it is bound to a thread.
unsafe impl Send for Chunk {}
// SAFETY: a shared chunk gives out its address only.
unsafe impl Sync for Chunk {}

/// Size of the next chunk, given what is allocated so far: a fraction of it, or a huge page once
/// `huge_from` bytes are allocated. A random search touches a page for each node and entry, and a
/// machine remembers the places of a few thousand pages only.
pub(super) fn next_size(allocated: usize, huge_from: usize) -> usize {
    if allocated >= huge_from {
        return HUGE_PAGE_SIZE;
    }
    let fraction = (allocated / GROWTH_DIVISOR).clamp(CHUNK_SIZE_MIN, HUGE_PAGE_SIZE / 2);
    fraction & !(CHUNK_SIZE_MIN - 1)
}

impl Chunk {
    /// Takes `size` bytes, not initialised; a huge page if there is one among `spares`.
    pub(super) fn allocate(size: usize, spares: &Arc<SpareChunks>) -> Chunk {
        assert!(size > 0, "an empty chunk is of no use");
        if size == HUGE_PAGE_SIZE
            && let Some(page) = spares.take().or_else(|| Region::map(Paging::Huge))
        {
            let start = page.start();
            return Chunk { start, size, memory: Memory::Huge(Some(page), Arc::clone(spares)) };
        }
        let layout = layout_of(size);
        // SAFETY: the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        Chunk { start, size, memory: Memory::Allocated }
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes taken.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match &mut self.memory {
            Memory::Huge(page, spares) => spares.keep(page.take()),
            // SAFETY: allocated with this layout, and freed only here (C1).
            Memory::Allocated => unsafe { dealloc(self.start.as_ptr(), layout_of(self.size)) },
        }
    }
}

/// How the allocator is asked for so many bytes.
fn layout_of(size: usize) -> Layout {
    Layout::from_size_align(size, LINE_SIZE).expect("far below isize::MAX")
}

/// Huge pages of memtables that are gone, for those to come. The system clears every page that it
/// gives out, which takes about as long as to fill it with entries.
pub(crate) struct SpareChunks {
    count_max: usize,
    kept: Mutex<Kept>,
    /// What the charge says, without the lock.
    bytes: AtomicUsize,
    /// Pages that are to be made ready.
    wanted: AtomicUsize,
    /// Whether nobody was told so yet.
    is_news: AtomicBool,
}

struct Kept {
    pages: Vec<Region>,
    charge: Charge,
}

impl std::fmt::Debug for SpareChunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpareChunks").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl SpareChunks {
    /// Keeps up to `bytes_max`, counted in `budget`.
    pub(crate) fn new(bytes_max: u64, budget: &Arc<MemoryBudget>) -> Arc<SpareChunks> {
        let charge = budget.charge(Part::Memtable, 0);
        let kept = Mutex::new(Kept { pages: Vec::new(), charge });
        let count_max = bytes_max as usize / HUGE_PAGE_SIZE;
        let (bytes, wanted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(SpareChunks { count_max, kept, bytes, wanted, is_news: AtomicBool::new(false) })
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Gives everything back to the system: nobody has needed it for a while.
    pub(crate) fn give_back(&self) {
        let pages = {
            let mut kept = self.lock();
            let pages = std::mem::take(&mut kept.pages);
            self.note_size(&mut kept);
            self.wanted.store(0, Ordering::Relaxed);
            pages
        };
        drop(pages); // Not under the lock: it takes the system some time.
    }

    /// Whether pages came to be wanted, since this was last asked.
    #[inline]
    pub(crate) fn has_run_short(&self) -> bool {
        self.is_news.load(Ordering::Relaxed) && self.is_news.swap(false, Ordering::Relaxed)
    }

    /// Makes a page ready if one is wanted. Whether it did. Takes the system about a millisecond.
    pub(crate) fn prepare(&self) -> bool {
        let order = Ordering::Relaxed; // Only a number.
        if self.wanted.fetch_update(order, order, |wanted| wanted.checked_sub(1)).is_err() {
            return false;
        }
        let Some(mut page) = Region::map(Paging::Huge) else { return false };
        page.touch();
        self.keep(Some(page));
        true
    }

    /// Takes a page that is kept. A writer that empties the store will need more before it gets
    /// any back.
    fn take(&self) -> Option<Region> {
        let mut kept = self.lock();
        let page = kept.pages.pop();
        self.note_size(&mut kept);
        let ahead_count = AHEAD_COUNT.min(self.count_max / AHEAD_DIVISOR);
        if kept.pages.len() < ahead_count {
            self.wanted.store(ahead_count - kept.pages.len(), Ordering::Relaxed);
            self.is_news.store(true, Ordering::Relaxed);
        }
        page
    }

    fn keep(&self, page: Option<Region>) {
        let mut kept = self.lock();
        if kept.pages.len() < self.count_max {
            kept.pages.extend(page);
            self.note_size(&mut kept);
            return;
        }
        drop(kept); // The page goes after it, not under the lock.
    }

    /// C2.
    fn note_size(&self, kept: &mut Kept) {
        let bytes = kept.pages.len() * HUGE_PAGE_SIZE;
        kept.charge.resize(bytes);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_with_what_is_allocated() {
        let huge_from = 4 << 20;
        assert_eq!(next_size(0, huge_from), CHUNK_SIZE_MIN);
        assert_eq!(next_size(100_000, huge_from), 12_288);
        assert_eq!(next_size(huge_from - 1, huge_from), (512 << 10) - CHUNK_SIZE_MIN);
        assert_eq!(next_size(huge_from, huge_from), HUGE_PAGE_SIZE);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_huge_page_is_kept_for_the_next_chunk_and_counted() {
        let budget = MemoryBudget::new(1 << 30);
        let spares = SpareChunks::new(HUGE_PAGE_SIZE as u64, &budget);
        let (first, second) =
            (Chunk::allocate(HUGE_PAGE_SIZE, &spares), Chunk::allocate(HUGE_PAGE_SIZE, &spares));
        let place = first.start();
        assert_eq!((spares.bytes(), budget.usage(Part::Memtable)), (0, 0));
        drop((first, second));
        assert_eq!(spares.bytes(), HUGE_PAGE_SIZE, "one is kept");
        assert_eq!(budget.usage(Part::Memtable), HUGE_PAGE_SIZE);
        let again = Chunk::allocate(HUGE_PAGE_SIZE, &spares);
        assert_eq!((again.start(), spares.bytes()), (place, 0));
        drop(again);
        spares.give_back();
        assert_eq!((spares.bytes(), budget.usage(Part::Memtable)), (0, 0));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pages_are_made_ready_for_a_memtable_that_takes_them() {
        let budget = MemoryBudget::new(1 << 30);
        let spares = SpareChunks::new((2 * AHEAD_DIVISOR * HUGE_PAGE_SIZE) as u64, &budget);
        assert!(!spares.prepare() && !spares.has_run_short(), "nobody took any yet");
        let taken = Chunk::allocate(HUGE_PAGE_SIZE, &spares);
        assert!(spares.has_run_short() && !spares.has_run_short(), "said once");
        assert!(spares.prepare() && spares.prepare() && !spares.prepare());
        assert_eq!(budget.usage(Part::Memtable), 2 * HUGE_PAGE_SIZE, "counted");
        let next = Chunk::allocate(HUGE_PAGE_SIZE, &spares);
        assert_eq!(spares.bytes(), HUGE_PAGE_SIZE, "the next chunk is one of them");
        assert!(spares.prepare() && !spares.prepare(), "and is made up for");
        spares.give_back();
        assert!(!spares.prepare(), "what was given back is not wanted any more");
        drop((taken, next));
    }
}
