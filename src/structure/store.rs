//! The interface of a keyspace's store: what changes the structure, and hands out its versions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Cursor, EntryKind, RangeTombstones, Result, SeqNo, Slice};
use crate::block::{Block, Guide};
use crate::cache::Cache;
use crate::manifest::{EditLogImage, KeyspaceOptions, LogPosition, Structure};
use crate::operator::Merging;
use crate::storage::Storage;
use crate::structure::flex::{FlexStore, OpenSegments};
use crate::structure::lsm::{LsmStore, OpenTables, OutsideTable, Partition};
use crate::structure::{Findings, FlushOrder, FlushOutcome, StructureStats, TableInfo, Version};
use crate::value_log::{Mover, ValueLog};

/// Where a store is and what it shares with others.
#[derive(Clone, Debug)]
pub struct StorePlace {
    /// Where its files are.
    pub storage: Arc<dyn Storage>,
    /// The keyspace's directory.
    pub dir: PathBuf,
    /// The database.
    pub database: u64,
    /// The keyspace.
    pub keyspace: u32,
    /// What the stores of a database share.
    pub shared: SharedStores,
    /// Options of the keyspace.
    pub options: KeyspaceOptions,
    /// Its merge operator.
    pub merging: Arc<Merging>,
}

/// What the stores of a database share.
#[derive(Clone, Debug)]
pub struct SharedStores {
    /// The cache for blocks.
    pub cache: Arc<Cache<Block>>,
    /// The cache for indexes and filters of tables.
    pub partitions: Arc<Cache<Partition>>,
    /// What entries are found by in runs that are not in memory.
    pub guides: Arc<Cache<Guide>>,
    /// Segments that are open.
    pub open_segments: Arc<OpenSegments>,
    /// Tables that are open.
    pub open_tables: Arc<OpenTables>,
    /// Large values.
    pub values: Arc<ValueLog>,
    /// Bytes at which a memtable is sealed, unless a keyspace's options say it.
    pub memtable_size: u64,
}

impl SharedStores {
    /// Has guides and blocks fit what the others leave them.
    pub fn trim(&self) {
        self.guides.trim();
        self.cache.trim();
    }
}

/// Which files are to be written anew.
#[derive(Clone, Copy, Debug)]
pub enum Stale<'a> {
    /// Those that are sealed with a data key of one of these numbers.
    Keys(&'a BTreeSet<u16>),
    /// These.
    Named(&'a BTreeSet<PathBuf>),
}

impl Stale<'_> {
    /// Whether a file is, which is sealed with the data key of this number; 0 for none.
    #[must_use]
    pub fn has(self, path: &Path, key: u16) -> bool {
        match self {
            Stale::Keys(keys) => keys.contains(&key),
            Stale::Named(paths) => paths.contains(path),
        }
    }
}

/// A keyspace's structure: its current version, and the one place that changes it. Reads go to
/// versions and lock nothing.
///
/// *The turn* is the right to flush the keyspace, which the caller has: one at a time has it.
pub trait Store: Send + Sync + fmt::Debug {
    /// The newest version.
    fn version(&self) -> Arc<dyn Version>;

    /// The log in front of this position is in the structure, durably.
    fn log_end(&self) -> u64;

    /// The newest stamp in the structure; of a flush that was begun, that of its memtable.
    fn last_seqno(&self) -> SeqNo;

    /// The keyspace's merge operator.
    fn merging(&self) -> &Arc<Merging>;

    /// Memtables of which a part is in the structure: of a store that was just opened, those whose
    /// flush was interrupted.
    fn begun_flushes(&self) -> Vec<BegunFlush>;

    /// Up to where the index log is durable.
    fn log_position(&self) -> LogPosition;

    /// Of a store that somebody else writes: whether its index, as `storage` has it now, says of an
    /// ingest since it was opened, or may. Everything else that changes what it has, the commit log
    /// tells.
    ///
    /// # Errors
    /// `Corruption`, `Io`.
    fn has_ingest_beside(&self, storage: &dyn Storage) -> Result<bool>;

    /// Of such a store: flushes that were complete since it was opened, when that was last asked.
    fn flushes_beside(&self) -> u64;

    /// Does one slice of a flush: takes entries from `memtable` (a cursor over the newest entry
    /// of each key, tombstones included), from where the last slice ended, and deletes what is
    /// older than the memtable in the ranges `deleted`, and what is older than these in it. On
    /// return the slice is durable. To be called with the same memtable until it is complete, under
    /// the turn.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corruption`: nothing changed, unless it was a sync that failed: then the
    /// index accepts no more edits.
    fn flush(
        &self,
        memtable: &mut dyn Cursor,
        deleted: &RangeTombstones,
        order: FlushOrder,
    ) -> Result<FlushOutcome>;

    /// Bytes of records that the newest version points to, by value file.
    fn value_bytes(&self) -> Arc<BTreeMap<u64, u64>>;

    /// Does a slice of the work that the structure needs to stay in shape under writing, until
    /// about `slice_bytes` are written. Without the turn, by any number of threads. Nothing of it
    /// shows before [`Store::install`].
    ///
    /// # Errors
    /// As [`Store::flush`].
    fn compact(&self, slice_bytes: u64, now: u64) -> Result<Compacted>;

    /// Makes durable and hands out what [`Store::compact`] has finished; `None` if that is nothing.
    /// Under the turn.
    ///
    /// # Errors
    /// As [`Store::flush`].
    fn install(&self) -> Result<Option<Arc<dyn Version>>>;

    /// Whether something of that has failed that is left alone until the next flush.
    fn holds_back(&self) -> bool {
        false
    }

    /// Has it be tried again before.
    fn try_again(&self) {}

    /// Bytes to be written before the structure is in shape.
    fn debt(&self) -> Debt;

    /// Consolidates, when there is nothing else to do, what is worth it, until about `slice_bytes`
    /// are written or four times as many read. Durable on return. At the end it goes on from the
    /// start. Under the turn.
    ///
    /// # Errors
    /// As [`Store::flush`].
    fn consolidate(&self, slice_bytes: u64, now: u64) -> Result<Consolidation>;

    /// Begins a round over these keys, for somebody who asks for it: everything goes that is not
    /// needed, and reads become as fast as they can be. Any number at once. Reads nothing; what is
    /// flushed later is no concern of it.
    fn begin_round(self: Arc<Self>, span: KeySpan, now: u64) -> Box<dyn Round>;

    /// Has all that is written from here on go to files that are begun from here on: ends the open
    /// ones, and begins the next file of its index. Under the turn.
    ///
    /// # Errors
    /// As [`Store::flush`].
    fn begin_new_files(&self) -> Result<()>;

    /// Begins a round that writes everything anew that is in stale files. Looks at the headers of
    /// all files. What is being written meanwhile is no concern of it.
    ///
    /// # Errors
    /// `Io`, `Corruption`, `FormatVersion`.
    fn begin_rewriting(self: Arc<Self>, stale: Stale<'_>, now: u64) -> Result<Box<dyn Round>>;

    /// Moves values out of the mover's files, from the place `from` on, until about `slice_bytes`
    /// are written. No stamp changes, and no version that exists. Durable on return. Under the
    /// turn.
    ///
    /// # Errors
    /// As [`Store::flush`].
    fn move_values(&self, mover: &mut Mover, from: &[u8], order: (u64, u64)) -> Result<Moving>;

    /// Whether so much of a part has expired by `now` that it is worth consolidating.
    fn has_much_expired(&self, now: u64) -> bool;

    /// Makes the mark of the last index edit durable: for a clean close. Edits that are many are
    /// replaced by a snapshot, which the next opening reads faster.
    ///
    /// # Errors
    /// `Io`, `ReadOnly` after an earlier failure.
    fn settle(&self) -> Result<()>;

    /// Gives up what is under way and in no edit: files that it has made go. For closing, whatever
    /// else of that fails: the directory may be another's afterwards.
    fn give_up(&self) {}

    /// Gives back the room of what no version refers to any more.
    fn remove_unreferenced(&self);

    /// Checks the index, against its durable form too. No flush may be under way;
    /// [`DataCheck::check_data`] needs no such care.
    fn check_index(&self, findings: &mut Findings) -> Box<dyn DataCheck>;

    /// The same of the index as it is, unchecked: costs a copy of its lists of files. What it has
    /// is kept until it is dropped.
    fn begin_check(&self) -> Box<dyn DataCheck>;

    /// All that makes this store elsewhere, as of its newest durable state. Waits for a slice that
    /// is being made durable.
    fn image(&self) -> StoreImage;

    /// Figures, as of `now` where they are about what has expired.
    fn stats(&self, now: u64) -> StructureStats;

    /// Its tables, the newest run first; none in a structure that has no tables.
    fn tables(&self) -> Vec<TableInfo> {
        Vec::new()
    }

    /// Of an archive of versions: says that it need not be whole as of moments in front of this one
    /// any more, as is known durably. Compactions that begin later leave out what it is not asked
    /// for.
    fn keep_from(&self, _stamp: SeqNo) {}

    /// What [`Store::keep_from`] was last told.
    fn kept_from(&self) -> SeqNo {
        SeqNo::ZERO
    }

    /// Begins an ingest. Costs nothing.
    fn stage(self: Arc<Self>) -> Box<dyn Staged>;
}

/// Makes the durable form of an empty store in an existing, empty directory.
///
/// # Errors
/// `Io`, `DiskFull`.
pub fn create_store(place: &StorePlace) -> Result<()> {
    match place.options.structure {
        Structure::Flex | Structure::History => FlexStore::create(place),
        Structure::Lsm => LsmStore::create(place),
    }
}

/// Opens a store. Reads the index, never the data; removes files that nothing refers to.
/// `required` is how far its index log is known to be durable.
///
/// # Errors
/// `Corruption` when the index is damaged or a file is missing, `FormatVersion`, `Io`.
pub fn open_store(place: &StorePlace, required: Option<LogPosition>) -> Result<Arc<dyn Store>> {
    Ok(match place.options.structure {
        Structure::Flex | Structure::History => Arc::new(FlexStore::open(place, required)?),
        Structure::Lsm => Arc::new(LsmStore::open(place, required)?),
    })
}

/// A memtable of which a part is in the structure, or was when the database was last open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunFlush {
    /// What it has of keys below this one is in the structure.
    pub to: Slice,
    /// Its newest stamp.
    pub last_seqno: SeqNo,
}

/// Sorted entries on their way into a structure, that nothing refers to yet.
pub trait Staged: Send + fmt::Debug {
    /// Whether the part at hand has to be ended ([`Staged::end_part`]) before this entry. If not,
    /// adding it writes nothing to files, and makes none.
    fn is_full_for(&self, key: &[u8], value_len: usize) -> bool;

    /// Ends the part at hand, and begins one with `next_key`.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: the ingest is to be discarded.
    fn end_part(&mut self, next_key: &[u8]) -> Result<()>;

    /// Adds an entry, for which the part at hand is not full, or was ended. Its key must be above
    /// all before it.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not fit; `DiskFull`, `Io`: the ingest is to be discarded.
    fn add(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()>;

    /// Takes a table that was made outside of the database as it is, above all that was added or
    /// adopted before: it is durable then, but for its name. A structure without tables does
    /// nothing: its entries are to be added.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `InvalidArgument` when it is not what it was when it was
    /// opened; `DiskFull`, `Io`: the ingest is to be discarded.
    fn adopt(&mut self, _table: &OutsideTable, _how: &TableIngestOptions) -> Result<Adopted> {
        Ok(Adopted::NotHere)
    }

    /// Finds the place of everything in the structure as it is, and makes it durable. May be called
    /// again when the structure has changed since. Under the turn.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corruption` of what had to be read: the ingest is to be discarded.
    fn fit(&mut self) -> Result<()>;

    /// Where what was fitted is, ascending: there, and nowhere else, the structure has entries of
    /// its stamp when it was committed.
    fn spans(&self) -> Vec<KeySpan> {
        vec![(Slice::default(), None)]
    }

    /// Makes everything part of the structure, with the stamp `seqno`, by one durable edit. What it
    /// points to in the value log must be durable. Nothing may have changed the structure since
    /// [`Staged::fit`]: the caller has the turn.
    ///
    /// # Errors
    /// `DiskFull`: nothing has changed. Any other: it is not known whether the edit is durable.
    fn commit(&mut self, seqno: SeqNo) -> Result<Arc<dyn Version>>;

    /// Removes the files. One that cannot be removed now is an orphan, which opening removes.
    fn discard(self: Box<Self>);
}

/// Keys from the first on to in front of the second, or without end.
pub type KeySpan = (Slice, Option<Slice>);

/// A round of consolidation over a part of the key space. When it is dropped, what it has begun and
/// not made durable is taken back.
pub trait Round: Send + fmt::Debug {
    /// Does a slice of it, until about `slice_bytes` are written or four times as many read. What
    /// it has finished is durable on return. Under the turn.
    ///
    /// # Errors
    /// As [`Store::flush`].
    fn slice(&mut self, slice_bytes: u64, now: u64) -> Result<RoundSlice>;

    /// How far it is.
    fn figures(&self) -> RoundFigures;
}

/// What a slice of a round came to.
#[derive(Debug)]
pub enum RoundSlice {
    /// A flush is between two of its slices: not now.
    FlushUnderWay,
    /// Something was done, or waited for.
    Done {
        /// The next version.
        version: Arc<dyn Version>,
    },
    /// Nothing was left to do.
    Over,
}

/// How far a round is. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundFigures {
    /// Read from the structure's files, about.
    pub bytes_read: u64,
    /// Written to the structure's files and to value files.
    pub bytes_written: u64,
    /// Still to be read, about.
    pub bytes_left: u64,
}

impl RoundFigures {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: RoundFigures) -> RoundFigures {
        RoundFigures {
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            bytes_left: self.bytes_left + other.bytes_left,
        }
    }
}

/// What became of a table that was to be adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// Its file is in the keyspace's directory too.
    Linked,
    /// A copy is.
    Copied,
    /// The structure has no tables.
    NotHere,
}

/// What becomes of the file of a table that is ingested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableIngestMode {
    /// It stays, and is copied.
    #[default]
    Copy,
    /// It becomes the keyspace's own: it gets a second name in the keyspace's directory, and loses
    /// the one that was given when the ingest is durable. Costs the same however large it is.
    /// Where that cannot be, as on another file system, it is copied and then removed.
    Move,
}

/// What is verified of a table before it is ingested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableCheck {
    /// Every byte: checksums, order of keys, indexes, filters, sums. Costs reading the file.
    #[default]
    Everything,
    /// Header, footer, and what the table says of itself, by their checksums; of entries nothing.
    /// For files of which it is known that they are as [`TableWriter`](crate::TableWriter) made
    /// them. Damage in a block is found by its checksum when it is read, or by
    /// [`Db::check`](crate::Db::check), and never taken for data; but by then what was there is
    /// lost, and so is the source, if it was moved.
    Metadata,
}

/// How tables are ingested: see [`Keyspace::ingest_tables`](crate::Keyspace::ingest_tables).
///
/// ```
/// use lithedb::{TableCheck, TableIngestOptions, TableIngestMode};
/// let how = TableIngestOptions::moving().check(TableCheck::Metadata);
/// assert_eq!((how.mode, how.check), (TableIngestMode::Move, TableCheck::Metadata));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableIngestOptions {
    /// What becomes of the files.
    pub mode: TableIngestMode,
    /// What is verified first.
    pub check: TableCheck,
}

impl TableIngestOptions {
    /// The files stay where they are; everything is verified.
    #[must_use]
    pub const fn copying() -> TableIngestOptions {
        TableIngestOptions { mode: TableIngestMode::Copy, check: TableCheck::Everything }
    }

    /// The files become the keyspace's own; everything is verified.
    #[must_use]
    pub const fn moving() -> TableIngestOptions {
        TableIngestOptions { mode: TableIngestMode::Move, check: TableCheck::Everything }
    }

    /// What becomes of the files.
    #[must_use]
    pub const fn mode(mut self, mode: TableIngestMode) -> TableIngestOptions {
        self.mode = mode;
        self
    }

    /// What is verified.
    #[must_use]
    pub const fn check(mut self, check: TableCheck) -> TableIngestOptions {
        self.check = check;
        self
    }
}

/// A store as of one durable state. What is in it is there, and as it is now, for as long as this
/// is.
#[derive(Debug)]
pub struct StoreImage {
    /// Its index.
    pub index: EditLogImage,
    /// The files that the index refers to.
    pub files: Vec<FileImage>,
    /// The numbers of the value files that entries point into.
    pub values: Vec<u64>,
    /// What keeps them.
    pub held: Box<dyn Held>,
}

impl StoreImage {
    /// The state of an index that refers to these; `held` keeps them.
    pub fn new(
        index: EditLogImage,
        files: Vec<FileImage>,
        values: Vec<u64>,
        held: impl Held + 'static,
    ) -> StoreImage {
        StoreImage { index, files, values, held: Box::new(held) }
    }
}

/// What keeps something from being removed or destroyed.
pub trait Held: Send + Sync + fmt::Debug {}

impl<T: Send + Sync + fmt::Debug> Held for T {}

/// A file of a [`StoreImage`].
#[derive(Clone, Debug)]
pub struct FileImage {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of it that the index refers to; there may be more.
    pub size: u64,
    /// Whether it may still be appended to. If not, it never will be.
    pub is_written_to: bool,
}

/// An index that was checked; its data is still to be.
pub trait DataCheck: fmt::Debug {
    /// Reads and verifies the data, as of when the index was checked, from where the walk begins.
    /// Flushes may go on.
    fn check_data(&self, findings: &mut Findings, walk: &mut dyn CheckWalk);
}

/// Somebody who goes through a check, and may leave it and come again.
pub trait CheckWalk {
    /// Where it begins, as [`CheckWalk::reached`] was told it; empty for the beginning.
    fn start(&self) -> &[u8];

    /// What is in front of this place was checked. Whether to go on.
    fn reached(&mut self, findings: &Findings, place: &[u8]) -> ControlFlow<()>;

    /// Some of what lies behind the place was read. Whether to go on: if not, what is there is
    /// begun anew another time.
    fn passed(&mut self, findings: &Findings) -> ControlFlow<()>;
}

/// All of it, at once.
#[derive(Clone, Copy, Debug)]
pub struct WholeCheck;

impl CheckWalk for WholeCheck {
    fn start(&self) -> &[u8] {
        &[]
    }

    fn reached(&mut self, _findings: &Findings, _place: &[u8]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn passed(&mut self, _findings: &Findings) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// What a slice of compaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// Nothing is due, or others do all of it.
    Nothing,
    /// Nothing but that something is to be installed.
    Ready,
    /// Something was done.
    Slice {
        /// Bytes written; 0 where it only went past what is dropped.
        bytes: u64,
        /// Whether something is to be installed.
        is_ready: bool,
    },
}

/// How far a structure is out of shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt {
    /// Bytes to be written before it is in shape.
    pub bytes: u64,
    /// Sorted runs of new entries, which a read has to look into one by one.
    pub fresh_runs: usize,
    /// Bytes that there are.
    pub size: u64,
}

/// What a slice of consolidation came to.
#[derive(Debug)]
pub enum Consolidation {
    /// Nothing is worth it.
    Nothing,
    /// A flush is between two of its slices: not now.
    FlushUnderWay,
    /// Something was consolidated.
    Slice {
        /// The next version.
        version: Arc<dyn Version>,
        /// Bytes written to the structure's files, and to value files.
        bytes: u64,
    },
}

/// What a slice of moving values came to.
#[derive(Debug)]
pub enum Moving {
    /// Something else is at what is to be moved: not now.
    Busy,
    /// Nothing from where the slice began points into the files.
    Nothing,
    /// Some values were moved.
    Slice {
        /// The next version.
        version: Arc<dyn Version>,
        /// Where the next slice begins; `None` at the end.
        next: Option<Slice>,
        /// Bytes written to the structure's files and to value files.
        bytes: u64,
    },
}
