//! Lsm: sorted runs of immutable tables in levels, merged by compaction.
//!
//! A flush makes one sorted run of a memtable, in level 0. Compaction merges runs into larger ones,
//! further down. A lookup goes through the runs, the newest first; a walk merges them.
//!
//! | level | runs |
//! |---|---|
//! | 0 | any number, each of one flush, ingest or compaction; the higher its id, the newer |
//! | 1 to 6 | one at most |
//!
//! A *table* is a file (`table/`); the *span* of one is what its keys and the ranges that it
//! deletes lie in. A run is tables whose spans do not overlap.
//!
//! After the log-structured merge-tree (O'Neil et al., Acta Informatica 33, 1996) as LevelDB,
//! RocksDB and Pebble have it. What is different here: versions of the database hold what snapshots
//! need, so that compaction knows nothing of snapshots, and keeps one entry a key.
//!
//! Invariants
//! - L1  The spans of a run's tables ascend and do not overlap.
//! - L2  Of two runs, that of the lower level, or in level 0 that of the higher id, is newer, entry
//!   by entry for the same key.
//! - L3  A range that a table deletes hides what older runs have in it, and nothing of its own run.
//! - L4  Tables and their directory are synced before the edit of the index that names them is
//!   written; the edit is durable before the version is handed out (S2).
//! - L5  One edit takes the inputs of a compaction out and puts its outputs in.
//! - L6  A deletion is left out only when no older run has anything that it would hide. Nothing
//!   can come to be there meanwhile: what moves down to older runs at its keys would have to pass
//!   the compaction's inputs, which are busy.
//! - L7  The file of a table is removed after the edit that takes it out is durable, when the last
//!   version that has it is gone (S3).
//! - L8  What a table points to in the value log is durable before the edit that names the table;
//!   a table holds those value files.
//! - L9  Operands are on what older runs have. Where nothing older has the key they are on what
//!   their entry says, or on nothing.

mod check;
mod compaction;
mod cursor;
mod index;
mod ingest;
mod inspect;
mod merge;
mod order;
mod output;
mod outside;
mod passing;
mod pick;
mod policy;
mod record;
mod salvage;
mod store;
mod table;
mod tournament;
mod version;

pub use index::is_index_name;
pub(crate) use inspect::{explain_tables, inspect_table};
pub use outside::OutsideReader;
pub use pick::LAST_LEVEL as DEEPEST_LEVEL;
pub use policy::table_options;
pub(in crate::structure) use salvage::salvage;
pub use store::LsmStore;
pub use table::{
    OpenTables, OutsideTable, OutsideWriter, Partition, TableIdentity, TableRecord, is_table_name,
};
pub(crate) use table::{fuzz_parts, put_right};
