//! Table: one immutable file of sorted entries, with what it takes to find one of them.
//!
//! Entries lie in *data blocks* of some kilobytes. Up to [`PARTITION_BLOCK_COUNT_MAX`] neighbouring
//! blocks are a *partition*: an index of them and the filter of their keys, which are read, cached
//! and evicted as one. The *top* is the index of the partitions; it stays in memory once the table
//! was read. A table may delete *ranges* of keys in everything that is older than it.
//!
//! | file | what it owns |
//! |---|---|
//! | `format.rs` | the bytes of header and footer, pointers to frames |
//! | `record.rs` | what the index of a keyspace says of a table, and how tables are written |
//! | `properties.rs` | figures of a table, in the table |
//! | `ranges.rs` | the bytes of deleted ranges |
//! | `separator.rs` | the key that parts two neighbouring blocks |
//! | `index.rs` | indexes: of the blocks of a partition, of the partitions of a table |
//! | `filter.rs` | which keys a partition does not have |
//! | `partition.rs` | a partition, written and in memory, with the slots of its blocks |
//! | `place.rs` | where the tables of a keyspace are; which files are open, which are to go |
//! | `append.rs` | frames on their way into a file |
//! | `builder.rs` | putting a table together in a new file |
//! | `dictionary.rs` | blocks that wait for a dictionary, which is trained from them |
//! | `writer.rs` | writing a table of a keyspace |
//! | `fuzz.rs` | its parts, for fuzzing |
//! | `outside.rs` | tables that are made outside of any database |
//! | `caches.rs` | the caches of blocks and partitions |
//! | `open.rs` | what is in memory of a table that was read: the top, the deleted ranges |
//! | `handle.rs` | a table as versions refer to it: finding entries in it |
//! | `many.rs` | finding several keys at once |
//! | `heads.rs` | finding the first entry of those whose keys begin alike |
//! | `order.rs` | how many entries lie in front of a key |
//! | `cursor.rs`, `run_cursor.rs` | walking a table, and a run of tables |
//! | `read_ahead.rs` | reading many blocks at once, for walks that pass or go on for long |
//! | `check.rs` | every byte of a table against every other |
//!
//! Invariants
//! - U1  Keys ascend strictly through the data blocks. No block is empty.
//! - U2  The separator of a block is not below any key in it, and below every key of the next. The
//!   top has the separator of each partition's last block.
//! - U3  The filter of a partition knows every key of its blocks.
//! - U4  Frames lie one behind the other from header to footer without gaps: the blocks of a
//!   partition, that partition, the next one's blocks, .., top, deleted ranges, properties.
//! - U5  A number is used once. A table is whole and synced before the index refers to it, and
//!   never changed after.
//! - U6  A file is removed only when the durable index does not refer to its table and nobody holds
//!   that any more (S3).
//! - U7  Cached blocks belong to the partition that leads to them, and go with it.

mod append;
mod builder;
mod caches;
mod check;
mod cursor;
mod dictionary;
mod filter;
mod format;
mod fuzz;
mod handle;
mod heads;
mod index;
mod many;
mod open;
mod order;
mod outside;
mod partition;
mod place;
mod properties;
mod ranges;
mod read_ahead;
mod record;
mod run_cursor;
mod separator;
#[cfg(test)]
mod tests;
mod writer;

pub use caches::TableCaches;
pub use cursor::ReadMode;
pub use dictionary::GATHERED_PER_BYTE;
pub use format::{EXTENSION_LEN, FOOTER_LEN, FooterView, HEADER_LEN, TableIdentity};
pub(crate) use fuzz::{fuzz_parts, put_right};
pub use handle::Table;
pub use heads::SoughtHead;
pub use many::Sought;
pub use outside::{OutsideTable, OutsideWriter};
pub use partition::Partition;
pub use place::{OpenTables, TablePlace, is_table_name};
pub(in crate::structure::lsm) use properties::counts_in as decode_properties;
pub(in crate::structure::lsm) use ranges::decode as decode_ranges;
pub use record::{TableOptions, TableRecord};
pub use run_cursor::RunCursor;
pub use writer::TableWriter;
