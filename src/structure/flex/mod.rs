//! Flex: the key space cut into intervals, each with its runs, in a copy-on-write tree.
//!
//! An interval holds the keys from its anchor up to the next interval's. Its entries lie in runs:
//! at most one *base* run, and *delta* runs written by later flushes, newest last. A flush appends
//! one delta run to each interval that it has entries for, without reading anything; at a pace it
//! also *consolidates* intervals, reading all their runs and writing base runs of the target size.
//! Runs lie in segments, which are only appended to, get holes where enough is dead, and are
//! deleted whole when nothing in them is live. The index (anchors, runs, counts) is in memory, and
//! durable as an edit log.
//!
//! After FlexTree / FlexSpace / FlexDB (Chen et al., EuroSys 2022), with one tree in place of its
//! two. The policy of consolidating contiguous ranges at a pace is from simulation; see
//! `docs/decisions/`.
//!
//! Invariants
//! - X1  Anchors ascend strictly; the first is the empty key. Every key of an interval's runs is
//!   at least its anchor and below the next one's.
//! - X2  Of two runs of an interval the later one is newer, entry by entry, for the same key.
//! - X3  The base run is the oldest and holds no tombstones.
//! - X4  Segments are synced before the index edit that refers to them is written; the edit is
//!   durable before the version is handed out (S2).
//! - X5  A segment whose live bytes reach zero is removed only after the edit that made them zero
//!   is durable, and when the last version that refers to it is gone (S3).
//! - X6  A hole is made of the bytes of a run only after the edit that loses the run is durable,
//!   and when the last version that holds it is gone: nothing ever reads a hole.
//! - X7  A run holds the value files that its entries point into, and says how many bytes of each;
//!   the index has the sums. What a run points to is durable before the edit that brings the run.
//! - X8  The index says how far the memtable has come that is being flushed: a commit goes to the
//!   structure once, also when the log is replayed after a crash in the middle. What it merges
//!   would be merged twice. It goes on from a key: intervals may be others between its slices, and
//!   in front of the key nothing of the memtable is applied again.
//! - X9  Operands are on what older runs have. In the lowest run of an interval they are on what
//!   their entry says, or on nothing.
//! - X10 A run says how many of its entries expire, and when the first and the last do; the index
//!   has the intervals with such entries in the order of that. What has expired is as if it were
//!   deleted: what writes runs leaves it out, or a tombstone in its place.

mod build;
mod check;
mod cursor;
#[cfg(test)]
mod expiry_tests;
mod flush;
mod holes;
mod index;
mod ingest;
mod inspect;
mod interval;
mod load;
mod many;
mod order;
mod record;
mod salvage;
mod segment;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
pub mod tree;

pub(in crate::structure) use inspect::frame_at;
pub(crate) use inspect::{explain_index, inspect_segment};
pub(in crate::structure) use salvage::salvage;
pub(in crate::structure) use segment::key_in_header;
pub use segment::{OpenSegments, SegmentIdentity, is_segment_name};
pub use store::FlexStore;
