//! The figures in the text format of Prometheus, version 0.0.4: each metric with its help and type,
//! counters that only rise end in `_total`, sizes are in bytes and times in seconds.

use std::fmt::{Display, Write as _};

use super::{BytesWritten, KeyspaceStats, Stats};
use crate::db::health::HealthState;
use crate::db::scrub::ScrubStatus;

/// What a metric does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Rises, until the database is opened anew.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// Name, kind, value and help of a figure of the database.
type Figure = (&'static str, Kind, fn(&Stats) -> f64, &'static str);

/// Of a keyspace.
type KeyspaceFigure = (&'static str, Kind, fn(&KeyspaceStats) -> f64, &'static str);

/// What a keyspace wrote, over some time.
type WrittenOf = fn(&KeyspaceStats) -> &BytesWritten;

use Kind::{Counter, Gauge};

#[rustfmt::skip] // A table: a line or two each.
const FIGURES: &[Figure] = &[
    ("commits_total", Counter, |s| s.commits as f64, "Commits since opening."),
    ("data_bytes_written_total", Counter, |s| s.session.data as f64,
        "Bytes of keys and values committed since opening."),
    ("commits_lifetime_total", Counter, |s| s.lifetime_commits as f64,
        "Commits since the database was created."),
    ("data_bytes_written_lifetime_total", Counter, |s| s.lifetime.data as f64,
        "Bytes of keys and values committed since the database was created."),
    ("write_amplification", Gauge, |s| s.session.write_amplification(),
        "Bytes written for each byte committed, since opening."),
    ("write_amplification_lifetime", Gauge, |s| s.lifetime.write_amplification(),
        "Bytes written for each byte committed, since the database was created."),
    ("space_amplification", Gauge, Stats::space_amplification,
        "Bytes of keyspace and value files for each live byte."),
    ("disk_bytes", Gauge, |s| s.bytes_on_disk() as f64, "Bytes of all files, the log included."),
    ("live_bytes", Gauge, |s| s.bytes_live() as f64, "Bytes of current runs and live values."),
    ("free_bytes", Gauge, |s| s.bytes_free() as f64,
        "Bytes of keyspace and value files that are not live and that nothing pins."),
    ("pinned_bytes", Gauge, |s| s.bytes_pinned() as f64,
        "Bytes on disk that only snapshots, iterators and the like need."),
    ("wal_bytes_written_total", Counter, |s| s.wal_bytes_written as f64,
        "Bytes of records appended to the log since opening."),
    ("wal_bytes", Gauge, |s| s.wal_bytes_on_disk as f64,
        "Bytes that log files take, spare and kept ones included."),
    ("wal_files", Gauge, |s| s.wal_files as f64, "Log files."),
    ("wal_kept_bytes", Gauge, |s| s.wal_bytes_kept as f64,
        "Bytes of log files that are only kept to be read."),
    ("wal_syncs_total", Counter, |s| s.wal_syncs as f64, "Syncs of the log since opening."),
    ("value_files", Gauge, |s| s.value_files.len() as f64, "Value files."),
    ("value_bytes", Gauge, |s| s.value_bytes() as f64, "Bytes of value files."),
    ("value_live_bytes", Gauge, |s| s.value_bytes_live() as f64,
        "Bytes in value files that entries point to."),
    ("value_pinned_bytes", Gauge, |s| s.value_bytes_pinned as f64,
        "Bytes of value files that only snapshots and the like keep."),
    ("value_bytes_written_total", Counter, |s| s.value_bytes_written as f64,
        "Bytes written to value files since opening, cleaning included."),
    ("value_syncs_total", Counter, |s| s.value_syncs as f64, "Syncs of value files since opening."),
    ("cleanings_total", Counter, |s| s.cleanings as f64,
        "Rounds of cleaning of value files begun since opening."),
    ("values_moved_total", Counter, |s| s.values_moved as f64,
        "Values that cleaning has moved since opening."),
    ("value_bytes_moved_total", Counter, |s| s.value_bytes_moved as f64,
        "Bytes of values that cleaning has moved since opening."),
    ("value_files_removed_total", Counter, |s| s.value_files_removed as f64,
        "Value files removed since opening."),
    ("memory_budget_bytes", Gauge, |s| s.memory_budget as f64, "The memory budget."),
    ("memory_used_bytes", Gauge, |s| s.memory_used() as f64, "Memory of all parts."),
    ("memory_memtable_bytes", Gauge, |s| s.memory_memtable as f64,
        "Memory of memtables, those that only snapshots need included."),
    ("memory_pinned_bytes", Gauge, |s| s.memory_pinned as f64,
        "Memory of flushed memtables that snapshots and the like keep."),
    ("memory_cache_bytes", Gauge, |s| s.memory_cache as f64, "Memory of cached blocks."),
    ("memory_reader_bytes", Gauge, |s| s.memory_readers as f64,
        "Memory of blocks that only readers hold."),
    ("memory_unused_bytes", Gauge, |s| s.memory_unused as f64,
        "Memory of heaps that nobody uses, and what allocators are reckoned to take."),
    ("memory_index_bytes", Gauge, |s| s.memory_index as f64,
        "Memory of indexes, filters, guides and what is kept for counts, about."),
    ("memory_transaction_bytes", Gauge, |s| s.memory_transaction as f64,
        "Memory of open transactions, about."),
    ("memory_buffer_bytes", Gauge, |s| s.memory_buffers as f64,
        "Memory of buffers of the log, of flushes, ingests and value streams."),
    ("stalls_total", Counter, |s| s.stalls as f64,
        "Times that a writer was stopped, since opening."),
    ("stall_seconds_total", Counter, |s| s.stall_time.as_secs_f64(),
        "How long writers were stopped, since opening."),
    ("slowdowns_total", Counter, |s| s.slowdowns as f64,
        "Times that a commit was slowed down, since opening."),
    ("slowdown_seconds_total", Counter, |s| s.slowdown_time.as_secs_f64(),
        "How long commits were slowed down, since opening."),
    ("background_paused", Gauge, |s| f64::from(u8::from(s.background_pauses > 0)),
        "1 while compaction, consolidation and cleaning in the background are paused."),
    ("compaction_rate_bytes", Gauge, |s| s.compaction_rate.unwrap_or(0) as f64,
        "Bytes a second that compaction in the background writes at most; 0 without a limit."),
    ("cleaning_rate_bytes", Gauge, |s| s.cleaning_rate as f64,
        "Bytes a second that cleaning in the background writes at most."),
    ("scrub_bytes_total", Counter, |s| of_scrub(s, |scrub| scrub.bytes),
        "Bytes that scrubbing has read and verified since opening."),
    ("scrub_passes_total", Counter, |s| of_scrub(s, |scrub| scrub.passes),
        "Passes of scrubbing that have come to their end since opening."),
    ("scrub_problems_total", Counter, |s| of_scrub(s, |scrub| scrub.problem_count),
        "How often scrubbing has found something wrong since opening."),
    ("snapshots", Gauge, |s| s.snapshots as f64, "Snapshots held."),
    ("oldest_snapshot_seconds", Gauge, |s| s.oldest_snapshot_age.unwrap_or_default().as_secs_f64(),
        "Age of the oldest snapshot; 0 when there is none."),
    ("transactions_open", Gauge, |s| s.transactions_open as f64, "Transactions that are open."),
    ("transaction_commits_total", Counter, |s| s.transaction_commits as f64,
        "Transactions committed that wrote, since opening."),
    ("transaction_conflicts_total", Counter, |s| s.transaction_conflicts as f64,
        "Transactions that met a conflict, since opening."),
    ("transaction_bytes_kept", Gauge, |s| s.transaction_bytes_kept as f64,
        "Memory of flushed memtables kept for open transactions."),
    ("trail_behind_bytes", Gauge, |s| s.trail.map_or(0.0, |trail| trail.bytes_behind as f64),
        "Bytes of the log that the trail does not have yet."),
    ("trail_kept_value_bytes", Gauge,
        |s| s.trail.map_or(0.0, |trail| trail.value_bytes_kept as f64),
        "Bytes of value files that are kept for the trail alone."),
    ("trail_done_seconds", Gauge, |s| s.trail.map_or(0.0, |trail| trail.done.millis() as f64 / 1e3),
        "The time up to which the trail has everything, since 1970; 0 when none follows."),
    ("trail_ended", Gauge,
        |s| f64::from(u8::from(s.trail.is_some_and(|trail| trail.end.is_some()))),
        "1 when the trail that followed ends, and another one should begin."),
    ("followers", Gauge, |s| s.followers.views as f64,
        "Views that followers have open."),
    ("followers_held_bytes", Gauge, |s| s.followers.bytes_held as f64,
        "Bytes of files that were removed, and are kept for followers."),
    ("read_only", Gauge, |s| f64::from(u8::from(s.read_only.is_some())),
        "1 when nothing is written any more, after a failure."),
    ("disk_full", Gauge,
        |s| f64::from(u8::from(matches!(s.health.state, HealthState::DiskFull { .. }))),
        "1 while there is no room on the disk, and only what makes room is written."),
    ("disk_reserve_bytes", Gauge, |s| s.health.reserve.held as f64,
        "Bytes on the disk that are kept for when it is full."),
    ("background_failures", Gauge, |s| s.health.failures.len() as f64,
        "Kinds of background work that have failed and not succeeded since."),
    ("background_failures_total", Counter, |s| s.health.failures_total as f64,
        "Failures of background work since opening."),
    ("slow_calls", Gauge,
        |s| s.health.slow_calls.iter().filter(|call| !call.is_over).count() as f64,
        "Calls to the storage that have been under way for long."),
    ("slow_calls_total", Counter, |s| s.health.slow_calls_total as f64,
        "Calls to the storage that took long, since opening."),
    ("reads_retried_total", Counter, |s| s.health.reads_retried as f64,
        "Reads that were tried again since opening."),
    ("reads_failed_total", Counter, |s| s.health.reads_failed as f64,
        "Reads that failed since opening."),
];

#[rustfmt::skip]
const KEYSPACE_FIGURES: &[KeyspaceFigure] = &[
    ("entries_estimate", Gauge, |s| s.entries_estimate as f64, "Entries, at most."),
    ("entries_expiring", Gauge, |s| s.entries_expiring as f64, "Flushed entries that expire."),
    ("entries_expired_estimate", Gauge, |s| s.entries_expired_estimate as f64,
        "Flushed entries that have expired and still take room, about."),
    ("intervals", Gauge, |s| s.intervals as f64, "Intervals of the key space."),
    ("runs", Gauge, |s| s.runs as f64, "Runs of entries."),
    ("segments", Gauge, |s| s.segments as f64, "Segment files."),
    ("segments_underused", Gauge, |s| s.segments_underused as f64,
        "Segment files of which little is live."),
    ("disk_bytes", Gauge, |s| s.bytes_on_disk as f64, "Bytes of segment and index files."),
    ("live_bytes", Gauge, |s| s.bytes_live as f64, "Bytes of current runs."),
    ("dead_bytes", Gauge, |s| s.bytes_dead as f64,
        "Bytes in segments that are not of current runs and take room."),
    ("pinned_bytes", Gauge, |s| s.bytes_pinned as f64,
        "Those of them that only snapshots and the like need."),
    ("hole_bytes", Gauge, |s| s.bytes_in_holes as f64,
        "Bytes given back out of segments that are there."),
    ("shared_dead_bytes", Gauge, |s| s.bytes_shared_dead as f64,
        "Bytes that are not given back, for checkpoints have the files as well."),
    ("memtable_bytes", Gauge, |s| s.memtable_bytes as f64, "Memory of memtables."),
    ("sealed_memtables", Gauge, |s| s.sealed_memtables as f64,
        "Memtables that wait to be flushed."),
    ("write_amplification", Gauge, |s| s.session.write_amplification(),
        "Bytes written for each byte flushed, since opening, without the log."),
    ("write_amplification_lifetime", Gauge, |s| s.lifetime.write_amplification(),
        "The same, since the keyspace was created."),
    ("read_amplification", Gauge, KeyspaceStats::read_amplification,
        "Reads of blocks for each lookup, since opening."),
    ("space_amplification", Gauge, KeyspaceStats::space_amplification,
        "Bytes on disk for each live byte."),
    ("logical_bytes_written_total", Counter, |s| s.logical_bytes_written as f64,
        "Bytes of keys and values flushed or ingested since the keyspace was created."),
    ("structure_bytes_written_total", Counter, |s| s.structure_bytes_written as f64,
        "Bytes written to segments since the keyspace was created."),
    ("flushes_total", Counter, |s| s.flushes as f64,
        "Memtables flushed since the keyspace was created."),
    ("consolidations_total", Counter, |s| s.consolidations as f64,
        "Intervals consolidated since opening."),
    ("compaction_debt_bytes", Gauge, |s| s.compaction_debt as f64,
        "Bytes that compactions have to read before the keyspace is in shape, about."),
    ("fresh_runs", Gauge, |s| s.fresh_runs as f64, "Runs of new entries that wait to be merged."),
    ("gets_total", Counter, |s| s.gets as f64, "Lookups by key since opening."),
    ("blocks_read_total", Counter, |s| s.blocks_read as f64,
        "Reads of blocks or parts of them since opening."),
    ("block_bytes_read_total", Counter, |s| s.block_bytes_read as f64, "Bytes of them."),
    ("cache_hits_total", Counter, |s| s.cache_hits as f64,
        "Blocks found in memory, for all keyspaces, since opening."),
    ("cache_misses_total", Counter, |s| s.cache_misses as f64,
        "Blocks not found in memory, for all keyspaces, since opening."),
];

fn of_scrub(stats: &Stats, figure: fn(&ScrubStatus) -> u64) -> f64 {
    stats.health.scrub.as_ref().map_or(0.0, |scrub| figure(scrub) as f64)
}

impl Stats {
    /// The figures in the text format of Prometheus. Names begin with `lithedb_`. Bytes written by
    /// part are `lithedb_bytes_written_total{part=".."}` since opening, and
    /// `lithedb_bytes_written_lifetime_total` since the database was created. Figures of keyspaces
    /// have the label `keyspace`.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        for (name, kind, figure, help) in FIGURES {
            head(&mut out, name, *kind, help);
            line(&mut out, name, &[], figure(self));
        }
        let written: [(&str, &str, &BytesWritten); 2] = [
            ("bytes_written_total", "Bytes written since opening, by part.", &self.session),
            (
                "bytes_written_lifetime_total",
                "Bytes written since the database was created, by part.",
                &self.lifetime,
            ),
        ];
        for (name, help, bytes) in written {
            head(&mut out, name, Counter, help);
            for (part, bytes) in bytes.parts() {
                line(&mut out, name, &[("part", part)], bytes);
            }
        }
        for (name, kind, figure, help) in KEYSPACE_FIGURES {
            let name = format!("keyspace_{name}");
            head(&mut out, &name, *kind, help);
            for keyspace in &self.keyspaces {
                line(&mut out, &name, &[("keyspace", &keyspace.name)], figure(keyspace));
            }
        }
        let written: [(&str, &str, WrittenOf); 2] = [
            ("keyspace_bytes_written_total", "Bytes written since opening, by part.", |keyspace| {
                &keyspace.session
            }),
            (
                "keyspace_bytes_written_lifetime_total",
                "Bytes written since the keyspace was created, by part.",
                |keyspace| &keyspace.lifetime,
            ),
        ];
        for (name, help, bytes) in written {
            head(&mut out, name, Counter, help);
            for keyspace in &self.keyspaces {
                for (part, bytes) in bytes(keyspace).parts() {
                    line(&mut out, name, &[("keyspace", &keyspace.name), ("part", part)], bytes);
                }
            }
        }
        out
    }
}

fn head(out: &mut String, name: &str, kind: Kind, help: &str) {
    let kind = match kind {
        Counter => "counter",
        Gauge => "gauge",
    };
    // A string takes any text.
    let _ = writeln!(out, "# HELP lithedb_{name} {help}\n# TYPE lithedb_{name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    let labels: Vec<String> =
        labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escape_label(text))).collect();
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    };
    let _ = writeln!(out, "lithedb_{name}{labels} {value}");
}

/// A label's value: backslash, quote and line feed are escaped.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_help_and_type_and_every_name_is_there_once() {
        let keyspace = KeyspaceStats { name: "a\"b\\c\nd".to_owned(), ..KeyspaceStats::default() };
        let stats = Stats { keyspaces: vec![keyspace], ..Stats::default() };
        let text = stats.to_prometheus();
        let mut described: Vec<&str> = Vec::new();
        let mut typed = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!described.contains(&name) && help.ends_with('.'), "{line}");
                described.push(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(described.last(), Some(&name));
                assert!(["counter", "gauge"].contains(&kind));
                typed = name;
            } else {
                let end = line.find(['{', ' ']).unwrap();
                assert_eq!(&line[..end], typed, "{line}");
                let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
                assert!(value.is_finite(), "{line}");
            }
        }
        assert!(text.contains("lithedb_keyspace_runs{keyspace=\"a\\\"b\\\\c\\nd\"} 0\n"), "{text}");
        assert!(text.contains("lithedb_bytes_written_lifetime_total{part=\"manifest\"} 0\n"));
    }
}
