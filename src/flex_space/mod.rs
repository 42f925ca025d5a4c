//! `FlexSpace`: a file whose bytes can be inserted and removed in the middle.
//!
//! What a file system does by moving everything behind it, or not at all, takes O(log n) here,
//! wherever it is: the bytes lie in *segments*, files that are only appended to, and a tree of
//! *extents* in memory says which of them the space consists of, in which order. A segment in which
//! nothing is live any more is removed; what is left of one that is mostly garbage is moved.
//!
//! After `FlexSpace` of Chen et al., "Building an efficient key-value store in a flexible address
//! space", EuroSys 2022, with checksums on all data, syncs that are there as a whole or not at all,
//! snapshots, and nothing written in place.
//!
//! ```
//! # fn main() -> lithedb::Result<()> {
//! use lithedb::flex_space::{FlexSpace, Tag};
//! use lithedb::storage::MemoryStorage;
//!
//! let storage = std::sync::Arc::new(MemoryStorage::new());
//! let mut space = FlexSpace::options().storage(storage.clone()).open("/text")?;
//! space.append(b"a file can be edited")?;
//! space.insert(19, b"in the middle, ")?;
//! space.collapse(0..2)?;
//! space.update(5..8, b"may")?;
//! space.set_tag(5, Tag::new(7).unwrap())?;
//! space.sync()?; // until here or not at all
//!
//! let before = space.snapshot()?;
//! space.insert(0, b"every ")?;
//! assert_eq!(space.tag(11), Tag::new(7)); // a tag moves with its byte
//! assert_eq!(before.diff(&space.snapshot()?)?.len(), 1);
//! assert_eq!(before.read_range(0..11)?, b"file may be");
//! drop(before);
//! drop(space); // not synced: as if the machine had stopped
//!
//! let space = FlexSpace::options().storage(storage).open("/text")?;
//! assert_eq!(space.read_range(0..8)?, b"file may");
//! # Ok(())
//! # }
//! ```
//!
//! # What is durable
//! The state of the last [`FlexSpace::sync`] that returned. If one was under way when the machine
//! stopped, the state before it or the one that it was to make durable, as a whole. Operations sync
//! by themselves when there are about a million in the [journal](Journal) since the last sync: then
//! it is the state after one of them, and never one within an operation. Without a journal they
//! never do, and a sync writes the whole index.
//!
//! # What is verified
//! Data is in blocks of 4 KiB with a checksum of 64 bits that is bound to space, segment and place.
//! Every read verifies every block of which it returns a byte, also when an extent is a small part
//! of what was written at once. The index is verified as a whole when the space is opened.
//!
//! Invariants
//! - S1  Data and names of segments are durable before an index that points to them is written.
//! - S2  A segment is removed only after an index that does not point to it is durable, and when
//!   the last snapshot that does is gone.
//! - S3  After a failed sync of the storage nothing is written any more, until reopened.
//! - S4  A place in a segment is written once (W1), and the number of a segment is not used again.

mod block;
mod check;
mod commit;
mod defragment;
mod extent;
mod garbage;
mod handle;
mod index;
mod inspect;
mod layout;
mod op;
mod open;
mod options;
mod segment;
mod snapshot;
mod space;
mod stats;
#[cfg(test)]
mod tests;
mod view;
mod writer;

pub use check::SpaceCheck;
pub use defragment::Defragmentation;
pub use extent::Tag;
pub use garbage::Collection;
pub use handle::{ExtentInfo, Handle};
pub(crate) use inspect::{explain_space_index, inspect_space_segment};
pub use open::SpaceRecovery;
pub use options::{Journal, SpaceOptions};
pub use snapshot::{SpaceChange, SpaceSnapshot};
pub use space::FlexSpace;
pub use stats::SpaceStats;
pub use view::Tags;

/// The most bytes that a space can have: 256 TiB.
pub const LEN_MAX: u64 = 1 << 48;
