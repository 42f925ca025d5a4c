//! Chunks: raw memory that entries and nodes are cut from.
//!
//! Owns how memory is taken from the system, how it grows and when huge pages are asked for. Must
//! not know what lies in a chunk.
//!
//! Invariants
//! - C1  A chunk stays where it is, is aligned to lines, and is freed when it is dropped.

#![expect(unsafe_code, reason = "memory that is shared while it is filled has no safe form")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Chunks start at multiples of this.
pub(super) const LINE_SIZE: usize = 64;
/// The first chunk, and the step in which chunks grow.
pub(super) const CHUNK_SIZE_MIN: usize = 4 << 10;
/// Size and alignment of a huge page of most machines.
pub(super) const HUGE_PAGE_SIZE: usize = 2 << 20;
/// A chunk is at most this fraction of what is allocated already, so that little is unused.
const GROWTH_DIVISOR: usize = 8;

/// Memory of its own.
pub(super) struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
    source: Source,
}

/// Who the memory is given back to.
enum Source {
    System,
    Allocator,
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
    /// Takes `size` bytes, not initialised.
    pub(super) fn allocate(size: usize) -> Chunk {
        assert!(size > 0, "an empty chunk is of no use");
        let align = if size == HUGE_PAGE_SIZE { HUGE_PAGE_SIZE } else { LINE_SIZE };
        let layout = Layout::from_size_align(size, align).expect("far smaller than isize::MAX");
        if let Some(start) = huge_page::map(&layout) {
            return Chunk { start, layout, source: Source::System };
        }
        // SAFETY: the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        Chunk { start, layout, source: Source::Allocator }
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes taken.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match self.source {
            // SAFETY: mapped with this size, and unmapped only here (C1).
            Source::System => unsafe { huge_page::unmap(self.start) },
            // SAFETY: allocated with this layout, and freed only here (C1).
            Source::Allocator => unsafe { dealloc(self.start.as_ptr(), self.layout) },
        }
    }
}

/// Huge pages straight from the system. An allocator gives back memory that it has cut into small
/// pages before; then the advice comes too late.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge_page {
    use std::alloc::Layout;
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::HUGE_PAGE_SIZE;

    /// A huge page, if that is what `layout` asks for and the system has room.
    pub(super) fn map(layout: &Layout) -> Option<NonNull<u8>> {
        if layout.align() != HUGE_PAGE_SIZE || layout.size() != HUGE_PAGE_SIZE {
            return None;
        }
        // Twice the size holds an aligned piece of the size wherever it begins.
        let size = 2 * HUGE_PAGE_SIZE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the system's choice.
        let all = unsafe { mmap_anonymous(ptr::null_mut(), size, protection, MapFlags::PRIVATE) };
        let all = all.ok()?;
        let before = all.cast::<u8>().align_offset(HUGE_PAGE_SIZE);
        let start = all.wrapping_byte_add(before);
        let end = start.wrapping_byte_add(HUGE_PAGE_SIZE);
        for (piece, len) in [(all, before), (end, HUGE_PAGE_SIZE - before)] {
            if len > 0 {
                // SAFETY: a part of the mapping that nobody uses. A refusal wastes addresses only.
                let _ = unsafe { munmap(piece, len) };
            }
        }
        // Without huge pages everything works, only slower, so a refusal is ignored.
        // SAFETY: the advice keeps the contents.
        let _ = unsafe { madvise(start, HUGE_PAGE_SIZE, Advice::LinuxHugepage) };
        NonNull::new(start.cast())
    }

    /// # Safety
    /// `start` must come from `map`, be unmapped once, and be used by nobody any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>) {
        // SAFETY: the whole mapping (caller). It can only fail on addresses that are none.
        let _ = unsafe { munmap(start.as_ptr().cast(), HUGE_PAGE_SIZE) };
    }
}

/// Elsewhere the allocator does.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod huge_page {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    pub(super) fn map(_layout: &Layout) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    /// Never called: `map` gives nothing.
    pub(super) unsafe fn unmap(_start: NonNull<u8>) {}
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
}
