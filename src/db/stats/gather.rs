//! Gathering the figures from the parts that have them.

use super::{BytesWritten, KeyspaceStats, Stats, ValueFileStats};
use crate::base::sync::atomic::Ordering;
use crate::cache::Part;
use crate::db::core::Core;
use crate::db::state::{KeyspaceState, Runtime, State};
use crate::manifest::{KeyspaceTotals, Totals};
use crate::structure::StructureStats;

impl Core {
    pub(in crate::db) fn stats(&self) -> Stats {
        self.heed_failed_sync();
        let wal = self.log.wal_stats();
        let (snapshots, oldest_snapshot_age) = self.snapshots.summary(self.clock.monotonic());
        let transactions = self.transactions.summary();
        let state = self.published.state();
        let value_files = self.value_file_stats();
        let (values_moved, value_bytes_moved) = self.values.moved();
        let (session, lifetime) = (self.session_totals(), self.lifetime_totals());
        let keyspaces = state.keyspaces.iter();
        let memory_cache = self.budget.usage(Part::Cache) as u64;
        let guides = self.budget.usage(Part::Guide) as u64;
        let cached_index = self.budget.usage(Part::CachedIndex) as u64;
        Stats {
            keyspaces: keyspaces.map(|of| self.keyspace_stats(&state, of, &lifetime)).collect(),
            session: BytesWritten::of_database(&session),
            lifetime: BytesWritten::of_database(&lifetime),
            lifetime_commits: lifetime.commits,
            lifetime_cleanings: lifetime.cleanings,
            cleanings: session.cleanings,
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
            memory_cache,
            memory_readers: (self.budget.heap().used() as u64)
                .saturating_sub(memory_cache + cached_index),
            memory_buffers: self.budget.usage(Part::Buffer) as u64,
            memory_unused: self.budget.unused() as u64,
            memory_index: self.budget.usage(Part::Index) as u64 + cached_index + guides,
            stalls: self.stalls.stops.load(Ordering::Relaxed),
            stall_time: self.stalls.stop_time(),
            slowdowns: self.stalls.slows.load(Ordering::Relaxed),
            slowdown_time: self.stalls.slow_time(),
            memory_transaction: self.budget.usage(Part::Transaction) as u64,
            background_pauses: self.pauses.count(),
            compaction_rate: self.compaction_rate.rate(),
            cleaning_rate: self.cleaning.rate(),
            snapshots,
            oldest_snapshot_age,
            transactions_open: transactions.open,
            transaction_commits: transactions.commits,
            transaction_conflicts: transactions.conflicts,
            transaction_bytes_kept: transactions.kept_bytes,
            trail: self.trail_status(),
            followers: self.followers(),
            read_only: self.poison().cloned(),
            health: self.health(),
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

    /// What was written since opening. `log_end` says which commits are counted.
    pub(in crate::db) fn session_totals(&self) -> Totals {
        let wal = self.log.wal_stats();
        // Commits are counted as they are applied: under the lock, those in front of its end.
        let applier = self.log.lock_applier();
        let log_end = applier.applied().as_u64();
        let (commits, data) = (self.log.commit_count(), self.log.data_bytes());
        drop(applier);
        let moved = self.values.moved().1;
        let state = self.published.state();
        let of = |state: &KeyspaceState| session_of(&state.runtime.store.stats(0));
        Totals {
            log_end,
            commits,
            data,
            wal: wal.bytes_appended + wal.zero_bytes,
            values: self.values.bytes_written().saturating_sub(moved),
            moved,
            manifest: self.manifest_bytes.load(Ordering::Relaxed),
            gone: 0,
            cleanings: self.cleaning.round_count(),
            value_files: self.values.newest_number(),
            keyspaces: state
                .keyspaces
                .iter()
                .map(|state| (state.runtime.store_id, of(state)))
                .collect(),
        }
    }

    /// What was written since the database was created.
    pub(in crate::db) fn lifetime_totals(&self) -> Totals {
        let mut totals = self.session_totals();
        let before = &self.totals_before;
        totals.commits += before.commits;
        totals.data += before.data;
        totals.wal += before.wal;
        totals.values += before.values;
        totals.moved += before.moved;
        totals.manifest += before.manifest;
        totals.cleanings += before.cleanings;
        totals.gone = before.gone + self.gone_bytes.load(Ordering::Relaxed);
        let state = self.published.state();
        for (id, of) in &mut totals.keyspaces {
            *of = of.plus(&before.keyspaces.get(id).copied().unwrap_or_default());
            // The index knows the sum, and loses nothing of it: what has no other name is
            // consolidation.
            if let Some(keyspace) = state.with_store(*id) {
                let written = keyspace.runtime.store.stats(0).segment_bytes_written;
                let named = of.flush + of.cleaning + of.ingest;
                of.consolidation = written.saturating_sub(named);
            }
        }
        totals
    }

    /// Has what a keyspace wrote counted on when it is dropped, or its store replaced.
    pub(in crate::db) fn note_gone(&self, store_id: u32) {
        let written =
            self.lifetime_totals().keyspaces.get(&store_id).map_or(0, KeyspaceTotals::sum);
        self.gone_bytes.fetch_add(written, Ordering::Relaxed);
    }

    fn keyspace_stats(
        &self,
        state: &State,
        keyspace: &KeyspaceState,
        lifetime: &Totals,
    ) -> KeyspaceStats {
        let runtime = &keyspace.runtime;
        let structure = runtime.store.stats(self.time.now_if_used());
        let debt = runtime.store.debt();
        let since_open = structure.logical_bytes.saturating_sub(structure.logical_bytes_before);
        let lifetime = lifetime.keyspaces.get(&runtime.store_id).copied().unwrap_or_default();
        let cache = self.cache.counts();
        let memtable_bytes = keyspace.tables().map(|table| table.memtable.memory_used() as u64);
        let memtable_entries = keyspace.tables().map(|table| table.memtable.entry_count() as u64);
        KeyspaceStats {
            name: shown_name(state, runtime),
            id: runtime.id,
            structure: runtime.options.structure.name(),
            entries_estimate: structure.entry_count_max + memtable_entries.sum::<u64>(),
            entries_expiring: structure.expiring,
            entries_expired_estimate: structure.expired,
            intervals: structure.intervals,
            runs: structure.runs,
            segments: structure.segments,
            segments_underused: structure.segments_underused,
            session: BytesWritten::of_keyspace(&session_of(&structure), since_open),
            lifetime: BytesWritten::of_keyspace(&lifetime, structure.logical_bytes),
            bytes_on_disk: structure.bytes_on_disk,
            bytes_live: structure.bytes_live,
            bytes_dead: structure.bytes_dead,
            bytes_pinned: structure.bytes_pinned,
            bytes_in_holes: structure.bytes_in_holes,
            bytes_shared_dead: structure.bytes_shared_dead,
            memtable_bytes: memtable_bytes.sum(),
            sealed_memtables: keyspace.sealed.len() as u64,
            logical_bytes_written: structure.logical_bytes,
            structure_bytes_written: structure.segment_bytes_written,
            structure_bytes_since_open: structure.segment_bytes_since_open,
            index_bytes_written: structure.index_bytes_written,
            flushes: structure.flushes,
            consolidations: structure.consolidations,
            compaction_debt: debt.bytes,
            fresh_runs: debt.fresh_runs as u64,
            gets: runtime.gets_before + runtime.gets.total(0),
            blocks_read: structure.blocks_read,
            block_bytes_read: structure.block_bytes_read,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
        }
    }
}

/// The name of a keyspace; that of a hidden one says whose it is.
pub(in crate::db) fn shown_name(state: &State, runtime: &Runtime) -> String {
    if let Some(index) = &runtime.options.index {
        let parent = state.find(index.of).map(|parent| parent.runtime.name.load().to_string());
        return format!("{} (index {})", parent.unwrap_or_default(), index.name);
    }
    if !runtime.is_hidden() {
        return runtime.name.load().to_string();
    }
    let parent = runtime.options.archive_of.and_then(|parent| state.find(parent));
    match parent {
        Some(parent) => format!("{} (versions)", parent.runtime.name.load()),
        None => match state.keyspaces.iter().find(|parent| parent.is_converted_to(runtime)) {
            Some(parent) => format!("{} (conversion)", parent.runtime.name.load()),
            None => runtime.name.load().to_string(),
        },
    }
}

fn session_of(structure: &StructureStats) -> KeyspaceTotals {
    KeyspaceTotals {
        flush: structure.flush_bytes,
        consolidation: structure.consolidation_bytes,
        cleaning: structure.cleaning_bytes,
        ingest: structure.ingest_bytes,
        index: structure.index_bytes_written,
    }
}
