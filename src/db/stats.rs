//! Figures about an open database.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cache::Part;
use crate::db::core::Core;
use crate::db::state::KeyspaceState;

/// How often and how long writers waited.
#[derive(Debug, Default)]
pub(super) struct StallCounters {
    stops: AtomicU64,
    stop_nanos: AtomicU64,
    slows: AtomicU64,
    slow_nanos: AtomicU64,
}

impl StallCounters {
    pub(super) fn count_stop(&self, waited: Duration) {
        self.stops.fetch_add(1, Ordering::Relaxed);
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
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its storage structure.
    pub structure: &'static str,
    /// Entries, at most: overwritten and deleted ones count until they are consolidated.
    pub entries_estimate: u64,
    /// Intervals of the key space.
    pub intervals: u64,
    /// Runs of entries.
    pub runs: u64,
    /// Segment files.
    pub segments: u64,
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
    /// Memory of its memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait to be flushed.
    pub sealed_memtables: u64,
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
    /// Lookups by key since opening.
    pub gets: u64,
    /// Blocks read from disk since opening.
    pub blocks_read: u64,
    /// Bytes of them.
    pub block_bytes_read: u64,
    /// Blocks found in memory, for all keyspaces, since opening.
    pub cache_hits: u64,
    /// Blocks not found in memory, for all keyspaces, since opening.
    pub cache_misses: u64,
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
    /// Bytes written to value files since opening, cleaning included.
    pub value_bytes_written: u64,
    /// Syncs of value files since opening.
    pub value_syncs: u64,
    /// Bytes of value files in which nothing is live and that snapshots, iterators, readers of
    /// values and the like keep.
    pub value_bytes_pinned: u64,
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
    /// Memory kept for blocks to come, and what is left over between blocks: counted, in use by
    /// nobody.
    pub memory_unused: u64,
    /// Memory of indexes, about.
    pub memory_index: u64,
    /// Memory of what open transactions have read and written, about.
    pub memory_transaction: u64,
    /// How often a writer was stopped to let flushes catch up.
    pub stalls: u64,
    /// How long in all.
    pub stall_time: Duration,
    /// How often a commit was slowed down.
    pub slowdowns: u64,
    /// How long in all.
    pub slowdown_time: Duration,
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
    /// Why nothing is written any more, if so.
    pub read_only: Option<String>,
}

impl Stats {
    /// Bytes written to log, segments, indexes and value files for each byte of key and value
    /// committed, since opening. What is still in memtables has only been written to the log.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        let keyspaces = self.keyspaces.iter();
        let structures: u64 = keyspaces
            .map(|keyspace| keyspace.structure_bytes_since_open + keyspace.index_bytes_written)
            .sum();
        let written = self.wal_bytes_written + structures + self.value_bytes_written;
        ratio(written, self.data_bytes_written)
    }

    /// Memory of all parts, what is unused between blocks included.
    #[must_use]
    pub fn memory_used(&self) -> u64 {
        let counted = self.memory_memtable + self.memory_cache + self.memory_index;
        counted + self.memory_transaction + self.memory_unused
    }

    /// Bytes of keyspace and value files for each byte of current runs and live values. Overwritten
    /// entries that were not consolidated yet count as current.
    #[must_use]
    pub fn space_amplification(&self) -> f64 {
        let on_disk: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_on_disk).sum();
        let live: u64 = self.keyspaces.iter().map(|keyspace| keyspace.bytes_live).sum();
        ratio(on_disk + self.value_bytes(), live + self.value_bytes_live())
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

    /// The figures in the text format of Prometheus.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        let per_database: [(&str, &str, f64); 31] = [
            ("commits_total", "counter", self.commits as f64),
            ("wal_bytes_written_total", "counter", self.wal_bytes_written as f64),
            ("value_files", "gauge", self.value_files.len() as f64),
            ("value_bytes", "gauge", self.value_bytes() as f64),
            ("value_live_bytes", "gauge", self.value_bytes_live() as f64),
            ("value_bytes_written_total", "counter", self.value_bytes_written as f64),
            ("value_syncs_total", "counter", self.value_syncs as f64),
            ("value_pinned_bytes", "gauge", self.value_bytes_pinned as f64),
            ("values_moved_total", "counter", self.values_moved as f64),
            ("value_bytes_moved_total", "counter", self.value_bytes_moved as f64),
            ("value_files_removed_total", "counter", self.value_files_removed as f64),
            ("memory_pinned_bytes", "gauge", self.memory_pinned as f64),
            ("wal_bytes", "gauge", self.wal_bytes_on_disk as f64),
            ("wal_files", "gauge", self.wal_files as f64),
            ("wal_kept_bytes", "gauge", self.wal_bytes_kept as f64),
            ("wal_syncs_total", "counter", self.wal_syncs as f64),
            ("memory_budget_bytes", "gauge", self.memory_budget as f64),
            ("memory_memtable_bytes", "gauge", self.memory_memtable as f64),
            ("memory_cache_bytes", "gauge", self.memory_cache as f64),
            ("memory_unused_bytes", "gauge", self.memory_unused as f64),
            ("memory_index_bytes", "gauge", self.memory_index as f64),
            ("memory_transaction_bytes", "gauge", self.memory_transaction as f64),
            ("stalls_total", "counter", self.stalls as f64),
            ("stall_seconds_total", "counter", self.stall_time.as_secs_f64()),
            ("slowdowns_total", "counter", self.slowdowns as f64),
            ("slowdown_seconds_total", "counter", self.slowdown_time.as_secs_f64()),
            ("snapshots", "gauge", self.snapshots as f64),
            ("transactions_open", "gauge", self.transactions_open as f64),
            ("transaction_commits_total", "counter", self.transaction_commits as f64),
            ("transaction_conflicts_total", "counter", self.transaction_conflicts as f64),
            ("transaction_bytes_kept", "gauge", self.transaction_bytes_kept as f64),
        ];
        for (name, kind, value) in per_database {
            let _ = writeln!(out, "# TYPE lithedb_{name} {kind}\nlithedb_{name} {value}");
        }
        for (name, kind, figure) in KEYSPACE_FIGURES {
            let _ = writeln!(out, "# TYPE lithedb_keyspace_{name} {kind}");
            for keyspace in &self.keyspaces {
                let label = escape_label(&keyspace.name);
                let value = figure(keyspace);
                let _ = writeln!(out, "lithedb_keyspace_{name}{{keyspace=\"{label}\"}} {value}");
            }
        }
        out
    }
}

/// Name, kind and value of a keyspace's figure.
type KeyspaceFigure = (&'static str, &'static str, fn(&KeyspaceStats) -> u64);

const KEYSPACE_FIGURES: [KeyspaceFigure; 15] = [
    ("entries_estimate", "gauge", |stats| stats.entries_estimate),
    ("intervals", "gauge", |stats| stats.intervals),
    ("runs", "gauge", |stats| stats.runs),
    ("segments", "gauge", |stats| stats.segments),
    ("disk_bytes", "gauge", |stats| stats.bytes_on_disk),
    ("live_bytes", "gauge", |stats| stats.bytes_live),
    ("dead_bytes", "gauge", |stats| stats.bytes_dead),
    ("pinned_bytes", "gauge", |stats| stats.bytes_pinned),
    ("hole_bytes", "gauge", |stats| stats.bytes_in_holes),
    ("memtable_bytes", "gauge", |stats| stats.memtable_bytes),
    ("logical_bytes_written_total", "counter", |stats| stats.logical_bytes_written),
    ("structure_bytes_written_total", "counter", |stats| stats.structure_bytes_written),
    ("flushes_total", "counter", |stats| stats.flushes),
    ("gets_total", "counter", |stats| stats.gets),
    ("blocks_read_total", "counter", |stats| stats.blocks_read),
];

/// A label's value: backslash, quote and line feed are escaped.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 / of as f64 }
}

impl Core {
    pub(super) fn stats(&self) -> Stats {
        let wal = self.log.wal_stats();
        let (snapshots, oldest_snapshot_age) = self.snapshots.summary(self.clock.monotonic());
        let transactions = self.transactions.summary();
        let state = self.published.state();
        let nanos = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let value_files = self.value_file_stats();
        let (values_moved, value_bytes_moved) = self.values.moved();
        Stats {
            keyspaces: state.keyspaces.iter().map(|state| self.keyspace_stats(state)).collect(),
            value_bytes_pinned: self.value_bytes_pinned(&value_files),
            value_files,
            values_moved,
            value_bytes_moved,
            value_files_removed: self.values.removed_count(),
            value_bytes_written: self.values.bytes_written(),
            value_syncs: self.values.sync_count(),
            commits: self.log.commit_count(),
            data_bytes_written: self.log.data_bytes(),
            wal_bytes_written: wal.bytes_appended,
            wal_bytes_on_disk: wal.disk_bytes,
            wal_files: (wal.file_count + wal.spare_count + wal.kept_count) as u64,
            wal_bytes_kept: wal.kept_bytes,
            wal_syncs: wal.sync_count,
            memory_budget: self.sizes.budget,
            memory_memtable: self.budget.usage(Part::Memtable) as u64,
            memory_pinned: self.meter.pinned(),
            memory_cache: self.budget.usage(Part::Cache) as u64,
            memory_unused: self.budget.heap().unused() as u64,
            memory_index: self.budget.usage(Part::Index) as u64,
            stalls: self.stalls.stops.load(Ordering::Relaxed),
            stall_time: nanos(&self.stalls.stop_nanos),
            slowdowns: self.stalls.slows.load(Ordering::Relaxed),
            slowdown_time: nanos(&self.stalls.slow_nanos),
            memory_transaction: self.budget.usage(Part::Transaction) as u64,
            snapshots,
            oldest_snapshot_age,
            transactions_open: transactions.open,
            transaction_commits: transactions.commits,
            transaction_conflicts: transactions.conflicts,
            transaction_bytes_kept: transactions.kept_bytes,
            read_only: self.poison().cloned(),
        }
    }

    fn value_file_stats(&self) -> Vec<ValueFileStats> {
        let (of_runs, of_tables) = self.value_bytes();
        let stats_of = |file: &crate::value_log::ValueFile| {
            let (number, bytes) = (file.number(), file.size());
            let live = [&of_runs, &of_tables].map(|sums| sums.get(&number).copied().unwrap_or(0));
            ValueFileStats { number, bytes, bytes_live: live.iter().sum::<u64>().min(bytes) }
        };
        self.values.files().iter().map(|file| stats_of(file)).collect()
    }

    fn value_bytes_pinned(&self, files: &[ValueFileStats]) -> u64 {
        let written_to = self.values.written_to();
        let pinned = files.iter().filter(|file| file.bytes_live == 0);
        pinned.filter(|file| !written_to.contains(&file.number)).map(|file| file.bytes).sum()
    }

    fn keyspace_stats(&self, keyspace: &KeyspaceState) -> KeyspaceStats {
        let runtime = &keyspace.runtime;
        let structure = runtime.store.stats();
        let cache = self.cache.counts();
        let memtable_bytes = keyspace.tables().map(|table| table.memtable.memory_used() as u64);
        let memtable_entries = keyspace.tables().map(|table| table.memtable.entry_count() as u64);
        KeyspaceStats {
            name: runtime.name.load().to_string(),
            id: runtime.id,
            structure: "flex",
            entries_estimate: structure.entry_count_max + memtable_entries.sum::<u64>(),
            intervals: structure.intervals,
            runs: structure.runs,
            segments: structure.segments,
            bytes_on_disk: structure.bytes_on_disk,
            bytes_live: structure.bytes_live,
            bytes_dead: structure.bytes_dead,
            bytes_pinned: structure.bytes_pinned,
            bytes_in_holes: structure.bytes_in_holes,
            memtable_bytes: memtable_bytes.sum(),
            sealed_memtables: keyspace.sealed.len() as u64,
            logical_bytes_written: structure.logical_bytes,
            structure_bytes_written: structure.segment_bytes_written,
            structure_bytes_since_open: structure.segment_bytes_since_open,
            index_bytes_written: structure.index_bytes_written,
            flushes: structure.flushes,
            consolidations: structure.consolidations,
            gets: runtime.gets.total(0),
            blocks_read: structure.blocks_read,
            block_bytes_read: structure.block_bytes_read,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
        }
    }
}
