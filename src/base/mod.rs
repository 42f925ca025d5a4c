//! Base: the words that every other part speaks. Knows nothing above it.

mod bounds;
mod checksum;
mod clock;
mod codec;
mod composite;
mod contained;
mod counter;
mod entry;
mod error;
mod expiry;
pub mod format;
mod growing_tombstones;
pub mod index_key;
pub mod limits;
mod operands;
mod prefetch;
mod range_tombstones;
#[cfg(not(seeded_bugs))]
pub(crate) mod seeded;
#[cfg(seeded_bugs)]
#[doc(hidden)]
pub mod seeded;
mod seqno;
mod slice;
#[cfg(shuttle)]
#[doc(hidden)]
pub mod sync;
#[cfg(not(shuttle))]
pub(crate) mod sync;
mod value_pointer;
pub mod varint;
pub mod version_key;

pub use bounds::{KeyRange, prefix_successor, successor};
pub use checksum::{ChecksumStream, checksum, checksum_seeded, hash_key};
pub use clock::{Clock, Entropy, ManualClock, SeededEntropy, SystemClock, SystemEntropy};
pub use codec::{Codec, DICTIONARY_SIZE_MAX};
pub use composite::{
    Composite, expiring_in, is_expired, is_operands, pointer_in, version_operands,
};
pub use contained::contained;
pub use counter::StripedCounters;
pub(crate) use counter::{STRIPE_COUNT as THREAD_STRIPES, stripe_of_thread};
pub use entry::{Cursor, EntryKind, EntryRef, lost_its_place};
pub(crate) use error::BACKUP_STREAM;
pub use error::{Error, Result};
pub use expiry::{Expiring, Expiry, ExpirySpan, Lifetime, MOMENT_MAX};
pub(crate) use growing_tombstones::GrowingTombstones;
pub use operands::{MergeBase, Operands};
pub(crate) use prefetch::prefetch;
pub use range_tombstones::{Coverage, DeletedRange, KeptStamps, RangeTombstones};
pub use seqno::{SeqNo, StampClock};
pub use slice::Slice;
pub use value_pointer::{ValueHash, ValuePointer};
