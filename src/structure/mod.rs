//! The storage structures: what sealed memtables are flushed into. Everything above this layer
//! does not know which of them it talks to.
//!
//! A structure keeps the newest flushed entry of each key. Older ones that a snapshot still needs
//! are in the memtables and versions that the snapshot holds, so no structure keeps them.
//!
//! Invariants
//! - S1  A version never changes. A flush makes the next one, which shares what it did not touch.
//! - S2  A version is handed out only when everything that it points to is durable.
//! - S3  A file is removed only when no version, and no durable index, refers to it.

mod beside;
pub mod flex;
mod fold;
pub(crate) mod history;
pub mod lsm;
pub(crate) mod retention;
pub(crate) mod salvage;
mod shares;
mod source;
mod store;
mod values_ahead;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{
    Cursor, EntryKind, EntryRef, Error, KeyRange, Result, SeqNo, Slice, prefix_successor,
};
use crate::block::{Block, BlockCursor};
use crate::manifest::OpenReport;

pub use shares::{ShareSums, ValueShare};
pub use store::{
    Adopted, BegunFlush, CheckWalk, Compacted, Consolidation, DataCheck, Debt, FileImage, Held,
    KeySpan, Moving, Round, RoundFigures, RoundSlice, SharedStores, Staged, Stale, Store,
    StoreImage, StorePlace, TableCheck, TableIngestMode, TableIngestOptions, WholeCheck,
    create_store, open_store,
};

/// An entry found by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The commit that wrote it; may be absent when [`Want::Value`] was asked for.
    pub seqno: Option<SeqNo>,
    /// Value or tombstone.
    pub kind: EntryKind,
    /// The value.
    pub value: Slice,
}

impl Found {
    /// The entry of `key` in a block.
    #[inline]
    pub(crate) fn in_block(block: &Block, key: &[u8]) -> Option<Found> {
        block.get(key).map(|EntryRef { seqno, kind, value, .. }| Found {
            seqno: Some(seqno),
            kind,
            value: block.share(value),
        })
    }

    /// As [`Found::in_block`], of a block that was read just now, which a full cache lets go of
    /// before the caller does: a value that is little of it is copied, and does not keep the rest.
    pub(crate) fn copied_from(block: &Block, key: &[u8]) -> Option<Found> {
        const SHARED_FRACTION: usize = 4;
        block.get(key).map(|EntryRef { seqno, kind, value, .. }| {
            let is_much = value.len() >= block.memory_size() / SHARED_FRACTION;
            let value = if is_much { block.share(value) } else { Slice::from(value) };
            Found { seqno: Some(seqno), kind, value }
        })
    }
}

/// What a lookup is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The value alone.
    Value,
    /// The value and the commit that wrote it: may cost another read.
    Stamp,
}

/// What entries come to, taken together in their order: associative, and the same whenever it is
/// asked for.
pub trait Reduction {
    /// Tells it from others.
    fn tag(&self) -> u64;
    /// What the entries from `start` to in front of `end` come to, or to the last; `None` if there
    /// are none.
    ///
    /// # Errors
    /// What reading them failed with, or reducing.
    fn summarize(&mut self, start: &[u8], end: Option<&[u8]>) -> Result<Option<Slice>>;
    /// What both together come to.
    ///
    /// # Errors
    /// What reducing failed with.
    fn join(&mut self, left: Slice, right: Slice) -> Result<Slice>;
}

/// What both come to, if both are anything.
pub(crate) fn joined(
    left: Option<Slice>,
    right: Option<Slice>,
    reduction: &mut dyn Reduction,
) -> Result<Option<Slice>> {
    match (left, right) {
        (Some(left), Some(right)) => reduction.join(left, right).map(Some),
        (left, right) => Ok(left.or(right)),
    }
}

/// An immutable state of a structure (S1).
pub trait Version: Send + Sync + fmt::Debug {
    /// The entry of `key`, if there is one; may be a tombstone.
    ///
    /// # Errors
    /// `Io` or `Corruption` when what should hold it cannot be read.
    fn find(&self, key: &[u8], want: Want) -> Result<Option<Found>>;

    /// As [`Version::find`] of what is one moment of an archive, with the stamp up to which it has
    /// everything of the key: what memtables have that is not newer is in it already. Of others
    /// that is none of what memtables have.
    ///
    /// # Errors
    /// As [`Version::find`].
    fn find_known(&self, key: &[u8]) -> Result<Option<(SeqNo, Option<Found>)>> {
        Ok(Some((SeqNo::ZERO, self.find(key, Want::Value)?)))
    }

    /// As [`Version::find`] for the values of several keys that ascend, each put in its place of
    /// `found`, which is as long and holds nothing yet.
    ///
    /// # Errors
    /// As [`Version::find`]; some may have been found.
    fn find_many(&self, keys: &[&[u8]], found: &mut [Option<Found>]) -> Result<()> {
        for (key, found) in keys.iter().zip(found) {
            *found = self.find(key, Want::Value)?;
        }
        Ok(())
    }

    /// The first entry at or above `from` whose key begins with the first `prefix_len` bytes of
    /// that: key and entry. Of a structure that merges nothing.
    ///
    /// # Errors
    /// As [`Version::find`].
    fn first_with_prefix(&self, from: &[u8], prefix_len: usize) -> Result<Option<(Slice, Found)>> {
        let (prefix, start) = (&from[..prefix_len], Bound::Included(from.to_vec()));
        let end = prefix_successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let mut cursor = self.cursor(&KeyRange { start, end });
        cursor.seek(from)?;
        while cursor.is_tombstone() {
            cursor.next()?;
        }
        let entry = cursor.entry().filter(|entry| entry.key.starts_with(prefix));
        Ok(entry.map(|EntryRef { key, seqno, kind, value }| {
            (Slice::from(key), Found { seqno: Some(seqno), kind, value: Slice::from(value) })
        }))
    }

    /// A cursor over the entries in `range`, tombstones among them. It may show others as well.
    fn cursor(&self, range: &KeyRange) -> Box<dyn StructureCursor>;

    /// A cursor over the same entries, for walks that go past the most of them, of a structure that
    /// merges nothing. Tombstones and entries newer than `newest` may be left out.
    fn passing_cursor(&self, range: &KeyRange, newest: SeqNo) -> Box<dyn WalkCursor> {
        let _all_are_shown = newest;
        self.cursor(range)
    }

    /// A key in front of `key`, not necessarily one that is there, that has few entries which are
    /// not newer than `newest` between them: up to so many blocks of each run. The first of all if
    /// nothing else is known.
    ///
    /// # Errors
    /// As [`Version::find`].
    fn key_in_front(&self, key: &[u8], newest: SeqNo, blocks: usize) -> Result<Slice> {
        let _unknown = (key, newest, blocks);
        Ok(Slice::default())
    }

    /// Number of keys from `start` to in front of `end`, or to the last, that have a value which
    /// has not expired by `now`, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Version::find`].
    fn count(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64>;

    /// What the entries from `start` to in front of `end` come to. By asking for all of them at
    /// once, unless the structure keeps what parts come to.
    ///
    /// # Errors
    /// Those of `reduction`.
    fn reduced(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        reduction: &mut dyn Reduction,
    ) -> Result<Option<Slice>> {
        reduction.summarize(start, end)
    }

    /// The smallest part around `key` that the structure keeps something of: from where to in front
    /// of where. All keys, unless it keeps anything.
    fn part_around(&self, key: &[u8]) -> (Slice, Option<Slice>) {
        let _anywhere = key;
        (Slice::default(), None)
    }

    /// How many entries expire, overwritten ones included.
    fn expiring_count(&self) -> u64;

    /// At least [`Version::count`] of everything, without reading anything.
    fn entries_at_most(&self) -> u64;

    /// How many of [`Version::entries_at_most`] are in front of the interval that `key` lies in.
    fn entries_in_front(&self, key: &[u8]) -> u64;

    /// A key, not necessarily one that is there, in front of which there are `position` of
    /// [`Version::entries_at_most`] entries or somewhat fewer. Ascends with `position`.
    fn anchor_near(&self, position: u64) -> Slice;
}

/// A cursor over a version.
pub trait WalkCursor: Cursor + Send + fmt::Debug {}

impl<C: Cursor + Send + fmt::Debug> WalkCursor for C {}

/// A cursor over a version. Its entries lie in blocks, which it hands out, so that a walk pays for
/// the structure once a block.
pub trait StructureCursor: WalkCursor {
    /// Takes the block that the cursor is in, on the same entry; `None` when it is on none. After
    /// that it stands between the entries before and behind that block: [`Cursor::next`] goes to
    /// the first one behind, [`Cursor::prev`] to the last one before it.
    fn take_block(&mut self) -> Option<BlockCursor>;
}

/// What a flush is to do next, and how far it may go.
#[derive(Clone, Copy, Debug)]
pub struct FlushOrder {
    /// Key and value bytes in the memtable that is flushed: what maintenance is paced by.
    pub memtable_bytes: u64,
    /// Bytes of the values in value files that its entries point to.
    pub value_bytes: u64,
    /// The log position that a complete flush of this memtable makes unnecessary.
    pub log_end: u64,
    /// The newest stamp in it.
    pub last_seqno: SeqNo,
    /// Now, in milliseconds since 1970: what has expired by then is not kept.
    pub now: u64,
    /// Bytes to write before the state is made durable and handed out.
    pub slice_bytes: u64,
}

/// What a slice of a flush came to.
#[derive(Debug)]
pub struct FlushOutcome {
    /// The next version.
    pub version: Arc<dyn Version>,
    /// Whether the memtable is in the structure whole.
    pub progress: FlushProgress,
    /// Key and value bytes of the memtable that the slice has taken.
    pub taken_bytes: u64,
    /// Up to in front of this key the memtable is in the structure; empty when it is whole.
    pub next: Slice,
}

/// Whether a flush is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushProgress {
    /// Call again with the same memtable.
    Partial,
    /// The memtable, and the log up to the order's `log_end`, are not needed any more.
    Complete,
}

/// What a check of a structure found. Counts what was looked at.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Files.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Intervals, or blocks in other structures.
    pub intervals: u64,
    /// Runs.
    pub runs: u64,
    /// Entries, overwritten ones included.
    pub entries: u64,
    /// Values in value files.
    pub values: u64,
    /// Commits in the log.
    pub commits: u64,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
    /// Files that nothing refers to: they take room, and opening removes them.
    pub orphans: Vec<PathBuf>,
    /// What keyspaces are called that problems may be of, by their numbers and those of their
    /// stores.
    pub names: BTreeMap<u32, String>,
}

/// Where something wrong was found: as much of it as there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Site<'a> {
    /// The keyspace, if it is of one.
    pub keyspace: Option<u32>,
    /// The file, if it is in one.
    pub file: Option<&'a Path>,
    /// Where in the file, if that can be said.
    pub offset: Option<u64>,
}

impl<'a> Site<'a> {
    /// A place in a file.
    #[must_use]
    pub fn at(self, file: &'a Path, offset: u64) -> Site<'a> {
        Site { file: Some(file), offset: Some(offset), ..self }
    }

    /// A file, and nowhere in particular in it.
    #[must_use]
    pub fn in_file(self, file: &'a Path) -> Site<'a> {
        Site { file: Some(file), offset: None, ..self }
    }

    /// Something of a keyspace.
    #[must_use]
    pub fn of_keyspace(keyspace: u32) -> Site<'a> {
        Site { keyspace: Some(keyspace), ..Site::default() }
    }
}

impl fmt::Display for Site<'_> {
    /// Without its keyspace, whose name it does not know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.map(Path::display), self.offset) {
            (Some(file), Some(offset)) => write!(f, "{file} at offset {offset}: "),
            (Some(file), None) => write!(f, "{file}: "),
            (None, _) => Ok(()),
        }
    }
}

/// Problems listed at most: a store that is damaged all over need not fill the memory.
const PROBLEM_COUNT_MAX: usize = 1000;

impl Findings {
    /// Notes that something is not what it was expected to be.
    pub fn note_at(
        &mut self,
        site: Site<'_>,
        what: &str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        if self.problems.len() < PROBLEM_COUNT_MAX {
            let keyspace = self.shown(site.keyspace);
            self.problems
                .push(format!("{keyspace}{site}{what}: expected {expected}, found {found}"));
        }
    }

    /// `keyspace 3 ("orders"): `, as far as that is known.
    fn shown(&self, keyspace: Option<u32>) -> String {
        let Some(number) = keyspace else { return String::new() };
        match self.names.get(&number) {
            Some(name) => format!("keyspace {number} ({name:?}): "),
            None => format!("keyspace {number}: "),
        }
    }

    /// Notes an error that looking has met. `site` is where it looked; the error may know better.
    pub fn note_error(&mut self, site: Site<'_>, error: &Error) {
        match error {
            Error::Corruption { file, offset, what } => {
                let site = site.at(file, *offset);
                self.note_at(site, "bytes", "what was written", format!("damage: {what}"));
            }
            Error::FormatVersion { file, found, known } => {
                let expected = format!("{known} at most");
                self.note_at(site.in_file(file), "the format version", expected, found);
            }
            Error::Io { action, path, source } => {
                let found = format!("an error: {source}");
                self.note_at(site.in_file(path), action, "it to be done", found);
            }
            other => self.note_at(site, "the check", "to go through", format!("an error: {other}")),
        }
    }

    /// Notes damaged marks of an edit log: those that reading it has `found`, and the one that
    /// opening it wrote anew.
    pub fn note_marks(
        &mut self,
        site: Site<'_>,
        found: &OpenReport,
        mended: Option<&(PathBuf, u64)>,
    ) {
        let there = found.damaged_marks.iter().map(|offset| (&found.file, *offset, "other bytes"));
        let mended = mended.map(|(file, offset)| (file, *offset, "other bytes, on opening"));
        for (file, offset, found) in there.chain(mended) {
            self.note_at(site.at(file, offset), "a mark", "that of the record before it", found);
        }
    }
}

/// Figures of one structure.
#[derive(Clone, Copy, Debug, Default)]
pub struct StructureStats {
    /// Upper bound of the number of entries.
    pub entry_count_max: u64,
    /// Entries that expire, overwritten ones included.
    pub expiring: u64,
    /// Those of them that have expired and are still there, about.
    pub expired: u64,
    /// Intervals.
    pub intervals: u64,
    /// Runs.
    pub runs: u64,
    /// Segment files, those that only old versions need included.
    pub segments: u64,
    /// Those of them of which so little is live that consolidation when idle empties them.
    pub segments_underused: u64,
    /// Bytes of segment and index files, without holes.
    pub bytes_on_disk: u64,
    /// Bytes of runs that the newest version points to.
    pub bytes_live: u64,
    /// Bytes in segments that the newest version does not point to, without holes.
    pub bytes_dead: u64,
    /// Those of them that are in runs which versions in use point to.
    pub bytes_pinned: u64,
    /// Bytes given back out of segments that are still there, since opening.
    pub bytes_in_holes: u64,
    /// Bytes of dead runs that take room for as long as their files have names elsewhere, or
    /// somebody reads them beside who was there when they died.
    pub bytes_shared_dead: u64,
    /// Key and value bytes flushed, since the keyspace was created.
    pub logical_bytes: u64,
    /// Those of them from before opening.
    pub logical_bytes_before: u64,
    /// Bytes written to segments, since the keyspace was created.
    pub segment_bytes_written: u64,
    /// Bytes written to segments since opening.
    pub segment_bytes_since_open: u64,
    /// Bytes written to the index since opening.
    pub index_bytes_written: u64,
    /// Bytes of runs of new entries, since opening.
    pub flush_bytes: u64,
    /// Bytes of runs of entries that were in runs before, since opening.
    pub consolidation_bytes: u64,
    /// Bytes of runs whose pointers cleaning has changed, since opening.
    pub cleaning_bytes: u64,
    /// Bytes of runs of ingests, since opening.
    pub ingest_bytes: u64,
    /// Memtables flushed, since the keyspace was created.
    pub flushes: u64,
    /// Intervals consolidated since opening.
    pub consolidations: u64,
    /// Frames read since opening.
    pub blocks_read: u64,
    /// Bytes of frames read since opening.
    pub block_bytes_read: u64,
}

/// A table of a keyspace of [`Structure::Lsm`](crate::Structure::Lsm).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// Its level: 0 is the newest.
    pub level: u8,
    /// Tells the sorted runs of level 0 apart: the higher, the newer. 0 in other levels.
    pub run: u64,
    /// Its number, which its file has in its name.
    pub number: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Its first key, or the start of the first range that it deletes.
    pub first: Slice,
    /// Above its last key and the ranges that it deletes; `None` if these have no end.
    pub end: Option<Slice>,
    /// Entries, deletions included.
    pub entries: u64,
    /// Deletions of single keys.
    pub tombstones: u64,
    /// Deleted ranges.
    pub deleted_ranges: u32,
    /// Entries that expire.
    pub expiring: u32,
    /// Bytes of keys and values, before they were compressed.
    pub logical_bytes: u64,
}
