//! Trails: the commits of a database behind the moment when its trail began, in a repository of
//! backups, so that it can be restored as of any moment that the trail has.
//!
//! ```text
//! trails/<id>/LOCK ............. held by who adds to it or removes of it
//! trails/<id>/segment-<number> . commits and edits of the catalogue, by rising stamps
//! trails/<id>/keyring-<hash> ... of an encrypted database: the keyring that has the keys of
//!                                segments
//! ```
//!
//! A segment has everything behind one stamp up to another, where the next one goes on; commits are
//! whole in it, with their large values. Each pass adds what has come since, to a small segment by
//! writing that anew. A backup that is on the trail is as of a stamp that the trail has: from there
//! on its commits are done again.
//!
//! | file | what it owns |
//! |---|---|
//! | `format.rs` | the bytes of a segment |
//! | `write.rs`, `read.rs` | one segment |
//! | `directory.rs` | the segments of a trail, and their order |
//! | `pass.rs` | beginning a trail, and adding to it |
//! | `follower.rs` | a thread that does so |
//! | `restore.rs` | restoring a moment |
//! | `upkeep.rs` | listing, verifying, removing |
//!
//! Invariants
//! - Q5  A segment has its name when it is whole and durable: so what is there of a trail is a
//!   prefix of it, whatever is interrupted. Its number is one above that of the segment in front,
//!   it goes on where that ends, and names its token.
//! - Q6  Who adds to a trail has the token of its newest segment in the catalogue, durably, or that
//!   of one that was being added (G4). Each segment has another one. So of two copies of a database
//!   one can add, and the other one is refused.
//! - Q7  A backup is on a trail only if its database has added to that behind the backup's moment:
//!   so both have the same history up to there.
//! - Q8  A segment goes only when no backup needs it; the newest one stays, as the next is to name
//!   its token, unless the trail ends with it.

mod directory;
mod follower;
mod format;
mod pass;
mod read;
mod restore;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

pub use follower::{FollowOptions, FollowStatus, TrailFollower};
pub use pass::{TrailOptions, TrailReport};
pub(crate) use read::fuzz_segment;
pub(super) use upkeep::{RemovedSegments, remove_segments};
pub use upkeep::{TrailInfo, TrailProblem};
