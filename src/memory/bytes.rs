//! Byte strings that are written once and then shared.
//!
//! Invariant
//! - O1  `start` and `len` stay valid, and the bytes unchanged, as long as `owner` lives.

#![expect(unsafe_code, reason = "bytes live in memory that the heap owns")]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use super::heap::HeapSpan;

/// Memory that nobody else has yet.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

/// Immutable bytes with any number of owners, and a range of them. Cloning is cheap.
#[derive(Clone)]
pub struct SharedBytes {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

/// Keeps the bytes where they are.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "to be dropped is all that is wanted of it")]
enum Owner {
    Span(Arc<HeapSpan>),
    Allocated(Arc<[u8]>),
}

// SAFETY: owned memory that nobody else has; nothing about it is bound to a thread.
unsafe impl Send for Buffer {}
// SAFETY: through a shared buffer it can only be read.
unsafe impl Sync for Buffer {}
// SAFETY: the bytes do not change (O1), and the owner may be dropped by any thread.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl Buffer {
    /// A span of the heap.
    ///
    /// # Safety
    /// `len` bytes at `start` are initialised, belong to `owner` alone, and stay as long as it.
    pub(super) unsafe fn of_span(start: NonNull<u8>, len: usize, owner: HeapSpan) -> Buffer {
        Buffer { start, len, owner: Owner::Span(Arc::new(owner)) }
    }

    /// Zeros from the allocator.
    #[must_use]
    pub fn allocate(len: usize) -> Buffer {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let start = NonNull::from(Arc::get_mut(&mut bytes).expect("nobody else has it yet"));
        Buffer { start: start.cast(), len, owner: Owner::Allocated(bytes) }
    }

    /// The bytes, from now on shared and unchanging.
    #[must_use]
    pub fn freeze(self) -> SharedBytes {
        SharedBytes { start: self.start, len: self.len, owner: self.owner }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised, and owned as long as `self` (`of_span`, `allocate`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else has it: a buffer cannot be cloned.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl SharedBytes {
    /// The bytes of `range`, not copied.
    ///
    /// # Panics
    /// When the range is outside.
    #[inline]
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> SharedBytes {
        let bytes = &self[range];
        SharedBytes {
            start: NonNull::from(bytes).cast(),
            len: bytes.len(),
            owner: self.owner.clone(),
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: O1.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl From<Arc<[u8]>> for SharedBytes {
    #[inline]
    fn from(bytes: Arc<[u8]>) -> SharedBytes {
        let (start, len) = (NonNull::from(&*bytes).cast(), bytes.len());
        SharedBytes { start, len, owner: Owner::Allocated(bytes) }
    }
}

impl From<&[u8]> for SharedBytes {
    #[inline]
    fn from(bytes: &[u8]) -> SharedBytes {
        SharedBytes::from(Arc::from(bytes))
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}
