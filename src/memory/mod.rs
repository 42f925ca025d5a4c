//! Memory: pages from the system, and heaps for the bytes of blocks and of guides.
//!
//! Cached blocks come and go by the hundred megabyte while memtables grow and shrink beside them.
//! An allocator keeps what they leave, in pieces, for whoever comes next: half as much again as the
//! cache holds. The [`Heap`] has memory of its own for them, knows how much of it is unused, and
//! gives that back to the system by the page. Which process memory was made in is told by a page,
//! too (`process`).

mod bytes;
mod heap;
mod pages;
mod process;
mod region;

pub use bytes::{Buffer, SharedBytes};
pub use heap::Heap;
pub(crate) use pages::{Paging, REGION_SIZE, Region};
pub(crate) use process::ProcessMark;
