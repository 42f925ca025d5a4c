//! Block: sorted entries as bytes, the same for every structure.
//!
//! A *payload* is the entries of one block, their stamps and the table that makes them searchable
//! (`layout.rs` has the bytes). A *frame* is what lies on disk: a header with checksum and codec,
//! and the payload behind it, perhaps compressed (`frame.rs`). [`Block`] is a payload in memory:
//! it is searched and walked as it is, without being decoded into objects. A [`Guide`] is what is
//! kept in memory of a frame that is not, to find one entry in it.
//!
//! Knows bytes, files and offsets for the sake of error messages; must not know what a structure
//! stores in which block, nor caches.

mod builder;
mod compression;
mod cursor;
pub mod dictionary;
pub mod frame;
mod guide;
mod layout;
mod resident;
mod sealed;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use builder::common_prefix_len;
pub use builder::{BlockBuilder, RestartPolicy};
pub use compression::packed_len;
pub use cursor::BlockCursor;
pub use dictionary::{Dictionary, PackingDictionary};
pub use frame::{FrameKind, FramePlace, HEADER_LEN as FRAME_HEADER_LEN, Packing};
pub use guide::{FrameReader, Guide, GuideKind};
pub use resident::Block;
pub use sealed::{SEALED as FRAME_SEALED, SealedFrame};
pub use search::Reach;
