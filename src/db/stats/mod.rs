//! Figures about an open database.

mod gather;
mod prometheus;
mod written;

use std::time::Duration;

pub(in crate::db) use gather::shown_name;
pub use written::BytesWritten;

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::db::follow::Followers;
use crate::db::health::Health;
use crate::db::trail::TrailStatus;

/// How often and how long writers waited.
#[derive(Debug, Default)]
pub(super) struct StallCounters {
    /// Waits that were begun, also for the end of a hold (`db/hold.rs`).
    begun: AtomicU64,
    stops: AtomicU64,
    stop_nanos: AtomicU64,
    slows: AtomicU64,
    slow_nanos: AtomicU64,
}

impl StallCounters {
    fn stop_time(&self) -> Duration {
        Duration::from_nanos(self.stop_nanos.load(Ordering::Relaxed))
    }

    fn slow_time(&self) -> Duration {
        Duration::from_nanos(self.slow_nanos.load(Ordering::Relaxed))
    }

    /// A commit begins to wait, or goes on with it: counted again every few milliseconds.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// One wait; a stop that goes on after it is one stop.
    pub(super) fn count_stop(&self, waited: Duration, goes_on: bool) {
        self.stops.fetch_add(u64::from(!goes_on), Ordering::Relaxed);
        self.stop_nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn count_slow(&self, waited: Duration) {
        self.slows.fetch_add(1, Ordering::Relaxed);
        self.slow_nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Figures of one keyspace. Bytes and counts; "written" and "flushes" since it was created, the
/// rest as of now or since the database was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name; of the versions that a keyspace keeps, and of a store that is being made for one,
    /// that of the keyspace with a word in brackets.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its storage structure.
    pub structure: &'static str,
    /// Entries, at most: overwritten and deleted ones count until they are consolidated.
    pub entries_estimate: u64,
    /// Entries that expire, of those that are flushed; overwritten ones count until they are
    /// consolidated.
    pub entries_expiring: u64,
    /// Those of them that have expired and still take room, about.
    pub entries_expired_estimate: u64,
    /// Intervals of the key space.
    pub intervals: u64,
    /// Runs of entries.
    pub runs: u64,
    /// Segment files.
    pub segments: u64,
    /// Those of them of which so little is live that consolidation when idle empties them.
    pub segments_underused: u64,
    /// Bytes of its files, those that only snapshots need included. Holes are left out, but for
    /// those from before the database was opened, which nobody knows of.
    pub bytes_on_disk: u64,
    /// Bytes of runs that are current.
    pub bytes_live: u64,
    /// Bytes in segments that are not, and take room.
    pub bytes_dead: u64,
    /// Those of them that snapshots, iterators and the like keep: what they show that is no more.
    pub bytes_pinned: u64,
    /// Bytes given back to the file system out of segments that are still there, since opening.
    pub bytes_in_holes: u64,
    /// Bytes in segments that are not current, and would have been given back had their files no
    /// names elsewhere, as in a checkpoint ([`crate::Db::checkpoint`]), one that was interrupted or
    /// forgotten included, and did nobody read them beside ([`crate::Builder::follow`]) who was
    /// there when it died. Since opening, as of when more last died in each segment.
    pub bytes_shared_dead: u64,
    /// Memory of its memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed.
    pub sealed_memtables: u64,
    /// Bytes written since opening, by what for.
    pub session: BytesWritten,
    /// The same since it was created; see [`Stats::lifetime`].
    pub lifetime: BytesWritten,
    /// Key and value bytes flushed.
    pub logical_bytes_written: u64,
    /// Bytes written to segments.
    pub structure_bytes_written: u64,
    /// Bytes written to segments since opening.
    pub structure_bytes_since_open: u64,
    /// Bytes written to the index since opening.
    pub index_bytes_written: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Intervals consolidated since opening.
    pub consolidations: u64,
    /// Bytes that compactions have to read, about, before the keyspace is in shape; 0 with
    /// [`Structure::Flex`](crate::Structure::Flex), whose flushes leave nothing that has to be
    /// done.
    pub compaction_debt: u64,
    /// Runs of new entries that overlap others and wait to be merged, as writers are slowed down by
    /// them; 0 with [`Structure::Flex`](crate::Structure::Flex).
    pub fresh_runs: u64,
    /// Lookups by key since opening.
    pub gets: u64,
    /// Reads of blocks, or of parts of them, from disk since opening: for lookups, walks and
    /// background work.
    pub blocks_read: u64,
    /// Bytes of them.
    pub block_bytes_read: u64,
    /// Blocks found in memory, for all keyspaces, since opening.
    pub cache_hits: u64,
    /// Blocks not found in memory, for all keyspaces, since opening.
    pub cache_misses: u64,
}

impl KeyspaceStats {
    /// Reads from disk for each lookup by key, since opening: those of walks and of background work
    /// included, so that it is right where there are few of these; 0 when nothing was looked up.
    #[must_use]
    pub fn read_amplification(&self) -> f64 {
        ratio(self.blocks_read, self.gets)
    }

    /// Bytes of its files for each byte of current runs; overwritten entries that were not
    /// consolidated yet count as current. 0 when there is none.
    #[must_use]
    pub fn space_amplification(&self) -> f64 {
        ratio(self.bytes_on_disk, self.bytes_live)
    }
}

/// Figures of a value file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueFileStats {
    /// Its number.
    pub number: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Bytes of values that entries point to, overwritten entries that were not consolidated yet
    /// included. The others are garbage, or only snapshots need them.
    pub bytes_live: u64,
}

/// Figures of a database.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Its keyspaces, by number.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Value files, by number, those that only snapshots need included.
    pub value_files: Vec<ValueFileStats>,
    /// Bytes written since opening, by what for.
    pub session: BytesWritten,
    /// Bytes written since the database was created, by what for. Kept in the manifest with edits
    /// that are made anyway; those of segments with each edit of an index. A crash takes what was
    /// counted since the last edit of the manifest, but for commits and the log, which are counted
    /// again; consolidation then has what flushes and cleaning wrote meanwhile.
    pub lifetime: BytesWritten,
    /// Commits since the database was created.
    pub lifetime_commits: u64,
    /// Rounds of cleaning since the database was created, begun.
    pub lifetime_cleanings: u64,
    /// Bytes written to value files since opening, cleaning included.
    pub value_bytes_written: u64,
    /// Syncs of value files since opening.
    pub value_syncs: u64,
    /// Bytes of value files in which nothing is live and that snapshots, iterators, readers of
    /// values and the like keep.
    pub value_bytes_pinned: u64,
    /// Rounds of cleaning begun since opening.
    pub cleanings: u64,
    /// Values that cleaning has moved since opening.
    pub values_moved: u64,
    /// Bytes of them.
    pub value_bytes_moved: u64,
    /// Value files removed since opening.
    pub value_files_removed: u64,
    /// Commits since opening.
    pub commits: u64,
    /// Bytes of keys and values committed since opening.
    pub data_bytes_written: u64,
    /// Bytes appended to the log since opening.
    pub wal_bytes_written: u64,
    /// Bytes that log files take on disk, spare and kept ones included.
    pub wal_bytes_on_disk: u64,
    /// Log files.
    pub wal_files: u64,
    /// Bytes of log files that recovery does not need, kept to be read
    /// ([`crate::Builder::kept_log_size`]).
    pub wal_bytes_kept: u64,
    /// Syncs of the log since opening.
    pub wal_syncs: u64,
    /// The memory budget.
    pub memory_budget: u64,
    /// Memory of memtables, those that only snapshots need included.
    pub memory_memtable: u64,
    /// Memory of memtables that are flushed: snapshots, iterators and open transactions keep them.
    pub memory_pinned: u64,
    /// Memory of cached blocks.
    pub memory_cache: u64,
    /// Memory of blocks that are not cached, or not any more: walks, slices and background work
    /// hold them. About, and without blocks over 256 KiB.
    pub memory_readers: u64,
    /// Memory kept for blocks to come, what is left over between blocks, and what an allocator is
    /// reckoned to take beside what it gives out: counted, in use by nobody.
    pub memory_unused: u64,
    /// Memory of indexes, filters and guides, about.
    pub memory_index: u64,
    /// Memory of what open transactions have read and written, about.
    pub memory_transaction: u64,
    /// Memory of buffers: of the log, of flushes and ingests, of values that are read or written in
    /// parts.
    pub memory_buffers: u64,
    /// How often a writer was stopped to let flushes catch up.
    pub stalls: u64,
    /// How long in all.
    pub stall_time: Duration,
    /// How often a commit was slowed down.
    pub slowdowns: u64,
    /// How long in all.
    pub slowdown_time: Duration,
    /// Pauses of background work that were begun and not ended ([`crate::Db::pause_background`]).
    pub background_pauses: u64,
    /// Bytes a second that compaction in the background writes at most, if there is a limit.
    pub compaction_rate: Option<u64>,
    /// Bytes a second that cleaning in the background writes at most.
    pub cleaning_rate: u64,
    /// Snapshots held.
    pub snapshots: u64,
    /// Age of the oldest.
    pub oldest_snapshot_age: Option<Duration>,
    /// Transactions that are open.
    pub transactions_open: u64,
    /// Transactions committed since opening that wrote something.
    pub transaction_commits: u64,
    /// Commits of transactions that met a conflict, since opening.
    pub transaction_conflicts: u64,
    /// Memory of flushed memtables that are kept to check open transactions against.
    pub transaction_bytes_kept: u64,
    /// The trail that follows the database: see [`crate::Db::trail`].
    pub trail: Option<TrailStatus>,
    /// Who follows the database, and what is kept for them: see [`crate::Db::followers`].
    pub followers: Followers,
    /// Why nothing is written any more, if so.
    pub read_only: Option<String>,
    /// How the database is: see [`crate::Db::health`].
    pub health: Health,
}

impl Stats {
    /// Bytes written for each byte of key and value committed, since opening: that of
    /// [`Stats::session`].
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.session.write_amplification()
    }

    /// Memory of all parts, what is unused between blocks included.
    #[must_use]
    pub fn memory_used(&self) -> u64 {
        let counted = self.memory_memtable + self.memory_cache + self.memory_index;
        let beside = self.memory_transaction + self.memory_buffers;
        counted + beside + self.memory_readers + self.memory_unused
    }

    /// Bytes of keyspace and value files for each byte of current runs and live values. Overwritten
    /// entries that were not consolidated yet count as current.
    #[must_use]
    pub fn space_amplification(&self) -> f64 {
        let on_disk: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_on_disk).sum();
        let live: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_live).sum();
        ratio(on_disk + self.value_bytes(), live + self.value_bytes_live())
    }

    /// Bytes of the files of keyspaces, of value files and of the log.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        let keyspaces: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_on_disk).sum();
        keyspaces + self.value_bytes() + self.wal_bytes_on_disk
    }

    /// Bytes of current runs, and of values that entries point to.
    #[must_use]
    pub fn bytes_live(&self) -> u64 {
        let keyspaces: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_live).sum();
        keyspaces + self.value_bytes_live()
    }

    /// Bytes on disk that only snapshots, iterators and the like need.
    #[must_use]
    pub fn bytes_pinned(&self) -> u64 {
        let keyspaces: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_pinned).sum();
        keyspaces + self.value_bytes_pinned
    }

    /// Bytes in segments and value files that are not live, and that nothing pins: consolidation
    /// and cleaning give them back.
    #[must_use]
    pub fn bytes_free(&self) -> u64 {
        let dead: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_dead).sum();
        let garbage = self.value_bytes().saturating_sub(self.value_bytes_live());
        (dead + garbage).saturating_sub(self.bytes_pinned())
    }

    /// Bytes of all value files.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.value_files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes in value files that entries point to.
    #[must_use]
    pub fn value_bytes_live(&self) -> u64 {
        self.value_files.iter().map(|file| file.bytes_live).sum()
    }
}

fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 / of as f64 }
}
