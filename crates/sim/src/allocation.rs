//! An allocator that remembers the largest piece anyone on this thread asked for: bytes from a
//! damaged file must not decide how much memory is taken.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::finding::{Fault, Finding, Verdict};

/// More than this at once is an excess: the databases here are some tens of KiB.
pub const PIECE_SIZE_MAX: usize = 64 << 20;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, watched.
#[derive(Debug)]
pub struct WatchedAllocator;

// SAFETY: every call is passed on to `System` unchanged, which keeps the contract of `GlobalAlloc`.
// What is done besides touches a thread-local cell that has no destructor and never allocates.
unsafe impl GlobalAlloc for WatchedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are those of `System`, which gave the pointer out.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's obligations are those of `System`, which gave the pointer out.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn note(size: usize) {
    // During the end of a thread the cell may be gone; then nobody looks any more.
    let _gone = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

/// Runs `case` and finds an excess if it asked for a huge piece. Without the allocator installed
/// it finds none.
///
/// # Errors
/// What the case answers; `Excess`.
pub fn within_reason<T>(case: impl FnOnce() -> Verdict<T>) -> Verdict<T> {
    LARGEST.set(0);
    let outcome = case()?;
    let largest = LARGEST.get();
    if largest > PIECE_SIZE_MAX {
        let what = format!("{largest} bytes were asked for at once");
        return Err(Finding::new(Fault::Excess, what));
    }
    Ok(outcome)
}
