//! Writing tables outside of any database, to be ingested: see [`Keyspace::ingest_tables`].
//!
//! [`Keyspace::ingest_tables`]: crate::Keyspace::ingest_tables

use std::fmt;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Entropy, EntryKind, Error, Expiring, Expiry, KeyRange, Lifetime, Result, Slice};
use crate::base::{SystemEntropy, expiring_in};
use crate::cache::MemoryBudget;
use crate::db::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::manifest::{KeyspaceOptions, Structure};
use crate::storage::{OsStorage, Storage};
use crate::structure::lsm::{DEEPEST_LEVEL, OutsideWriter, table_options};

/// The largest table file that is written and ingested, in bytes: 64 GiB. A table is what a
/// compaction reads and writes anew as a whole.
pub const TABLE_FILE_SIZE_MAX: u64 = 64 << 30;
/// What finishing may add: the index over the indexes, deleted ranges, properties.
const END_ROOM: u64 = 256 << 20;
/// Keys of deleted ranges in a table, in bytes, with a few for each range: all are in memory while
/// the table is in use.
const RANGE_BYTES_MAX: usize = 16 << 20;
/// What a deleted range takes beside its keys, about.
const RANGE_OVERHEAD: usize = 64;
/// The writer's memory is its caller's: nothing asks this for more.
const BUDGET_SIZE: usize = 64 << 20;

/// Writes a table outside of any database: a file of sorted entries that
/// [`Keyspace::ingest_tables`] makes part of a keyspace. For loads that are prepared elsewhere, or
/// by several processes side by side, each of which writes a part of the keys.
///
/// Keys must ascend. In memory are a block, an index of up to 128 blocks with its filter, 256 KiB
/// that are written at once, and the deleted ranges: about half a megabyte, a byte for each 10 KB
/// of the file, and the largest entry a few times; with a dictionary also what that is made of, see
/// [`KeyspaceOptions::dictionary_size`]. It is for one thread. A writer that is dropped before
/// [`TableWriter::finish`] removes its file; a process that dies leaves a part of one, which is
/// refused when it is ingested.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use lithedb::{Codec, Db, KeyspaceOptions, TableIngestOptions, TableWriter};
/// let path = dir.path().join("squares.tbl");
/// let options = KeyspaceOptions::lsm().codec(Codec::Lz4);
/// let mut writer = TableWriter::create(&path, &options)?;
/// for number in 0..1000u64 {
///     writer.put(number.to_be_bytes(), (number * number).to_string())?;
/// }
/// let summary = writer.finish()?;
/// assert_eq!(summary.entries, 1000);
///
/// let db = Db::open(dir.path().join("numbers.lithe"))?;
/// let squares = db.create_keyspace("squares", KeyspaceOptions::lsm())?;
/// squares.ingest_tables([&path], TableIngestOptions::moving())?;
/// assert_eq!(squares.get(30u64.to_be_bytes())?.as_deref(), Some(&b"900"[..]));
/// # Ok(())
/// # }
/// ```
///
/// [`Keyspace::ingest_tables`]: crate::Keyspace::ingest_tables
pub struct TableWriter {
    writer: OutsideWriter,
    path: PathBuf,
    summary: TableSummary,
    /// The last key, once there is one.
    last_key: Vec<u8>,
    range_bytes: usize,
    has_failed: bool,
}

/// What a table holds that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSummary {
    /// Entries, deletions of single keys included.
    pub entries: u64,
    /// Deletions of single keys.
    pub deletions: u64,
    /// Deleted ranges; those that touch are one.
    pub deleted_ranges: u64,
    /// Entries that expire.
    pub expiring: u64,
    /// Bytes of keys and values.
    pub data_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The first key, if there is an entry.
    pub first_key: Option<Slice>,
    /// The last key.
    pub last_key: Option<Slice>,
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TableWriter");
        shown.field("path", &self.path).field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl TableWriter {
    /// Creates the file `path`, which must not exist; its blocks are as those of the deepest level
    /// of a keyspace with these options: codec, block size, restart interval, filter bits, prefix
    /// length. They need not be those of the keyspace that the table goes to.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range, of another structure than
    /// [`Structure::Lsm`], or with a codec that this program does not have; `Io`, `DiskFull`.
    pub fn create(path: impl AsRef<Path>, options: &KeyspaceOptions) -> Result<TableWriter> {
        let entropy = SystemEntropy::default();
        TableWriter::create_in(Arc::new(OsStorage::new()), &entropy, path, options)
    }

    /// As [`TableWriter::create`], in another storage than the operating system's; the number that
    /// tells the table from all others is drawn from `entropy`.
    ///
    /// # Errors
    /// As [`TableWriter::create`].
    pub fn create_in(
        storage: Arc<dyn Storage>,
        entropy: &dyn Entropy,
        path: impl AsRef<Path>,
        options: &KeyspaceOptions,
    ) -> Result<TableWriter> {
        options.validate()?;
        if options.structure != Structure::Lsm {
            return Err(Error::invalid("a table is written with options of the structure lsm"));
        }
        let (path, budget) = (path.as_ref(), MemoryBudget::new(BUDGET_SIZE));
        let (drawn, options) = (entropy.next_u64(), table_options(options, DEEPEST_LEVEL));
        Ok(TableWriter {
            writer: OutsideWriter::create(storage, path, drawn, &options, &budget)?,
            path: path.to_owned(),
            summary: TableSummary::default(),
            last_key: Vec::new(),
            range_bytes: 0,
            has_failed: false,
        })
    }

    /// Adds an entry. Its key must be above that of the entry before it.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is not, a key or value over the limits, and a file that has
    /// grown to [`TABLE_FILE_SIZE_MAX`], but for what finishing adds: nothing was added, and the
    /// writer can go on. `Io`, `DiskFull`: the table cannot be finished any more.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), EntryKind::Value, value.as_ref())
    }

    /// Adds an entry that expires then, or never. It can be ingested into keyspaces without a merge
    /// operator.
    ///
    /// # Errors
    /// As [`TableWriter::put`].
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let Some(until) = Lifetime::from(expiry.into()).end_from(0) else {
            return self.add(key, EntryKind::Value, value);
        };
        check_len("a value", value.len(), VALUE_LEN_MAX)?;
        let expiring = Expiring { until, kind: EntryKind::Value, value };
        self.add(key, EntryKind::Composite, &expiring.encode())
    }

    /// Adds the deletion of a key: whatever the keyspace has of it is gone with the ingest. Its key
    /// must be above that of the entry before it.
    ///
    /// # Errors
    /// As [`TableWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), EntryKind::Tombstone, &[])
    }

    /// Deletes a range of keys of what the keyspace has by the time of the ingest. Entries of the
    /// table are not touched, whether they come before this call or behind it. Ranges must ascend:
    /// each begins where the one before it ends, or behind that; an empty one is none.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that begins in front of the end of the one before it, a bound
    /// over the limits, and when ranges take more than 16 MiB: nothing was added.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> Result<()> {
        let (start, end) = KeyRange::new(&range).half_open();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(());
        }
        let end_len = end.as_ref().map_or(0, Vec::len);
        // What is behind a key is longer by a byte.
        check_len("a bound", start.len().max(end_len), KEY_LEN_MAX + 1)?;
        let before = self.writer.ranges().and_then(|ranges| ranges.first_from(&start));
        if let Some(before) = before {
            let (start, end) = (start.escape_ascii(), before.end.map(<[u8]>::escape_ascii));
            let end = end.map_or_else(|| "the end of all keys".to_owned(), |end| end.to_string());
            let what = format!("the range from {start} begins in front of {end}, the last one's");
            return Err(Error::invalid(what));
        }
        let bytes = self.range_bytes + start.len() + end_len + RANGE_OVERHEAD;
        if bytes > RANGE_BYTES_MAX {
            let what = format!("deleted ranges of a table take {RANGE_BYTES_MAX} bytes at most");
            return Err(Error::invalid(what));
        }
        self.range_bytes = bytes;
        self.writer.delete_range(&start, end.as_deref());
        Ok(())
    }

    /// Entries added.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.summary.entries
    }

    /// Whether there is neither an entry nor a deleted range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Bytes of the file so far, about: to begin another one when it is as large as wanted.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Writes the rest. On return the file, and its name, are durable.
    ///
    /// # Errors
    /// `InvalidArgument` for a table without anything in it, or to which something could not be
    /// added for want of room or an error of the system; `Io`, `DiskFull`. The file was removed
    /// then, if that was possible.
    pub fn finish(self) -> Result<TableSummary> {
        let path = self.path.display();
        if self.has_failed {
            return Err(Error::invalid(format!("an entry could not be added to the table {path}")));
        }
        if self.writer.is_empty() {
            return Err(Error::invalid(format!("there is nothing in the table {path}")));
        }
        let record = self.writer.finish()?;
        let last_key = self.summary.first_key.is_some().then(|| Slice::from(&*self.last_key));
        Ok(TableSummary {
            deleted_ranges: u64::from(record.deleted_ranges),
            file_bytes: record.size,
            last_key,
            ..self.summary
        })
    }

    fn add(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid(what));
        if self.has_failed {
            return refuse("an entry could not be added to the table before".to_owned());
        }
        if self.summary.entries > 0 && *key <= *self.last_key {
            let (key, before) = (key.escape_ascii(), self.last_key.escape_ascii());
            return refuse(format!("the key {key} is not above the one before it, {before}"));
        }
        check_len("a key", key.len(), KEY_LEN_MAX)?;
        if kind == EntryKind::Value {
            check_len("a value", value.len(), VALUE_LEN_MAX)?;
        }
        let size = self.writer.size() + (key.len() + value.len()) as u64;
        if size > TABLE_FILE_SIZE_MAX - END_ROOM {
            return refuse(format!("a table file has {TABLE_FILE_SIZE_MAX} bytes at most"));
        }
        self.writer.add(key, kind, value).inspect_err(|error| {
            self.has_failed = !matches!(error, Error::InvalidArgument { .. });
        })?;
        if self.summary.entries == 0 {
            self.summary.first_key = Some(Slice::from(key));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.summary.entries += 1;
        self.summary.deletions += u64::from(kind == EntryKind::Tombstone);
        let expiring = expiring_in(kind, value);
        self.summary.expiring += u64::from(expiring.is_some());
        let value_len = expiring.map_or(value.len(), |expiring| expiring.value.len());
        self.summary.data_bytes += (key.len() + value_len) as u64;
        Ok(())
    }
}

fn check_len(what: &str, len: usize, max: usize) -> Result<()> {
    if len <= max {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} of {len} bytes: {max} are the most")))
}
