//! Integration tests, one binary. The long versions of the simulations are commands of
//! `lithe-sim`; what a test here prints when it fails is the command that shows it again.
#![allow(clippy::unwrap_used, reason = "a test that fails should panic where it fails")]

mod backup;
mod budget;
mod check;
mod checkpoint;
mod cleaning;
mod commits;
mod compaction;
mod concurrency;
mod consolidation;
mod conversion;
mod conversion_past;
mod conversion_timings;
mod corruption;
mod crash;
#[cfg(feature = "zstd")]
mod dictionaries;
mod encryption;
mod errors;
mod expiry;
mod feed;
mod feed_behind;
mod feed_timings;
mod follow;
#[cfg(unix)]
mod fork;
mod fuzz_smoke;
mod golden;
mod health;
mod history;
mod history_ingest;
mod history_merges;
mod history_timings;
mod history_walks;
mod holes;
mod indexes;
mod ingest;
mod ingest_tables;
mod ingest_timings;
mod inspect;
mod key_rotation;
mod links;
mod log_parts;
mod lsm;
mod merges;
mod model;
mod order;
mod own_keys;
mod own_keys_faults;
mod own_keys_held;
mod own_keys_repair;
mod ranges;
mod read_only;
mod reduce;
mod regression;
mod repair;
mod retention;
mod scrub;
mod space;
mod stats;
mod support;
mod tidy;
mod value_timings;
mod values;
mod walks;

use lithe_sim::allocation::WatchedAllocator;

/// So that a huge allocation on account of damaged bytes is found.
#[global_allocator]
static ALLOCATOR: WatchedAllocator = WatchedAllocator;

/// Cases run on this many threads.
const THREADS: usize = 2;
