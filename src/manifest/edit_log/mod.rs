//! Edit log: a snapshot of some state followed by edits to it, in one file.
//!
//! The manifest and each keyspace's index journal are edit logs. The log does not know what the
//! payloads mean; it owns the files `<stem>-<number>` of one directory and leaves all others alone.
//!
//! A file is made under a name of its own, synced, and only then given its final name. Edits go
//! behind the snapshot until the room is used up; then the caller makes the next file from a new
//! snapshot ([`EditLog::rotate`]) and removes the older ones.
//!
//! Invariants
//! - E1  A file under its final name has a durable header, snapshot and size. So anything wrong
//!   with one of these is damage, never an interrupted write.
//! - E2  The file of the highest number is the state. It is never given up for a lower one.
//! - E3  An edit is synced before the next one, or its own mark, is written. So only the last edit
//!   can be torn, and any record behind an invalid place proves that place to be damage.
//! - E4  Behind the last edit there are only zeros (and that edit's mark) before a new one is
//!   written: a torn edit is wiped, durably, when the log is opened. So no byte of it can come
//!   back, whatever is written in front of it later; the chain of `previous` says the same again.
//! - E5  What was read back is durable before `open` returns. A sync that failed earlier may have
//!   left it in the operating system's memory only, there counted as written, so that syncing
//!   again does nothing. Whatever has no mark is therefore written again: an edit in its place; a
//!   snapshot, whose file's name is in doubt, into the next file.
//! - E6  After any failed write or sync the log accepts nothing more.
//!
//! Why marks: an edit that does not verify and has nothing behind it looks torn. The mark is
//! written, unsynced, once the edit is durable, so that damage to the last edit is told from a torn
//! one as well, as soon as the mark reached the disk (at the next sync, or with `settle`). The
//! snapshot's mark says that the file's name is durable.
//!
//! A slot without a mark is no damage: the machine may have stopped before the mark was written, or
//! with a part of it, also in front of an edit that is whole. Anything else in it is, and is told;
//! but nothing is lost, and nobody is kept from reading on. The mark of the last record is written
//! anew on opening, those in front of it have nothing to say any more.

#[cfg(test)]
mod crash_tests;
mod format;
mod inspect;
mod log;
mod read;
mod tail;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use self::format::UNFINISHED_SUFFIX;
use crate::storage::StorageFile;

pub use format::{EditLogId, is_log_name};
pub(crate) use inspect::inspect_edit_log;
pub use log::{EditLog, SnapshotSink};
pub use read::{Record, RecordRef, exists, is_sealed, newest_database, read};
pub use tail::{GoesOn, LogTail};

/// A place in a log: everything in front of it is durable. Comparable: later places are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the file.
    pub number: u64,
    /// Bytes from the start of that file.
    pub offset: u64,
}

/// A log as of one edit: what makes the same log elsewhere. The file is there for as long as this
/// is, whatever becomes of its name.
#[derive(Clone, Debug)]
pub struct EditLogImage {
    /// The file.
    pub file: Arc<dyn StorageFile>,
    /// Its path.
    pub path: PathBuf,
    /// Bytes of it up to the end of the edit and its mark: they do not change any more.
    pub size: u64,
    /// Bytes that it has, with zeros for the rest.
    pub capacity: u64,
}

impl EditLogImage {
    /// Whether the other one is of the same edit of the same log.
    #[must_use]
    pub fn is_as_of(&self, other: &EditLogImage) -> bool {
        (&self.path, self.size) == (&other.path, other.size)
    }

    /// What the file is called while it is made elsewhere: then it counts for nothing (E1).
    #[must_use]
    pub fn unfinished_name(&self) -> OsString {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(UNFINISHED_SUFFIX);
        name
    }
}

/// What was found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// The file.
    pub file: PathBuf,
    /// End of the last valid edit, in that file. The log that was opened may have gone over to a
    /// copy of it: see [`EditLog::position`].
    pub position: LogPosition,
    /// Number of edits behind the snapshot.
    pub edit_count: u64,
    /// A torn edit that was cut off, if any.
    pub torn: Option<TornTail>,
    /// Offsets of damaged marks, of a hundred at most. All that they say is known without them.
    pub damaged_marks: Vec<u64>,
}

/// Bytes that were being written when the machine stopped, and were never acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Where they begin.
    pub offset: u64,
    /// Bytes up to the last one that is not zero.
    pub len: u64,
}
