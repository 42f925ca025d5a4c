//! Manifest: which keyspaces there are, with which options, and where the logs start.
//!
//! Owns the files `MANIFEST-<number>` of the database's directory, and the form of every edit log:
//! the journals of the structures are edit logs too, with payloads of their own. Must not know
//! what a keyspace's data looks like, nor the write-ahead log's form: a place in it is a number.
mod catalog;
mod difference;
mod edit_log;
mod fields;
mod indexes;
mod options;
mod records;
mod state;
#[cfg(test)]
mod tests;
mod totals;
mod trail;

pub use catalog::{FollowedEdit, Manifest};
pub(crate) use edit_log::inspect_edit_log;
pub use edit_log::{
    EditLog, EditLogId, EditLogImage, GoesOn, LogPosition, LogTail, OpenReport, Record, RecordRef,
    SnapshotSink, exists as edit_log_exists, is_log_name, newest_database, read as read_edit_log,
};
pub use options::{
    Compaction, IndexRecord, KeyspaceOptions, Leveled, LsmOptions, Structure, Tiered,
    check_index_name,
};
pub(crate) use records::explain_manifest;
pub use state::{CatalogState, Closing, ConsumerRecord, Edit, KeyspaceRecord};
pub use totals::{KeyspaceTotals, Totals};
pub use trail::{PendingSegment, TrailEnd, TrailEndReason, TrailNote, TrailRecord};
