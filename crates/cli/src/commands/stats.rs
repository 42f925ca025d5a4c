//! `lithe stats`: sizes, amplifications, memory and work done.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use lithedb::{KeyspaceStats, Stats, ValueFileStats};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::database::open_existing;
use crate::failure::Outcome;
use crate::notation::{bytes_text, count_text, duration_text};
use crate::output::{StatsFormat, Table, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe stats
  lithe --db my.lithe stats --format json
  lithe --db my.lithe stats --format prometheus

Sizes are those of the database. What was written to segments is counted since the keyspace was
created; commits, log, indexes and reads since the database was opened, here by this command.";

/// Options of `lithe stats`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    /// How the statistics are written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: StatsFormat,
}

/// Prints the statistics.
pub fn run(globals: &Globals, args: &StatsArgs) -> Outcome {
    let stats = open_existing(globals)?.stats();
    let mut out = stdout();
    match args.format {
        StatsFormat::Table => {
            write!(out, "{}\n{}", database_table(&stats), keyspace_table(&stats.keyspaces))?;
        }
        StatsFormat::Json => writeln!(out, "{}", stats_json(&stats))?,
        StatsFormat::Prometheus => write!(out, "{}", stats.to_prometheus())?,
    }
    Ok(out.flush()?)
}

fn database_table(stats: &Stats) -> Table {
    let used = stats.memory_used();
    let mut table = Table::bare();
    table.row(["state", stats.read_only.as_deref().unwrap_or("writable")]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("space amplification", format!("{:.2}", stats.space_amplification()));
    // The log is counted since the database was opened, which was just now.
    let write = format!("{:.2} without the commit log", segment_amplification(stats));
    row("write amplification", write);
    row("memory", format!("{} of {}", bytes_text(used), bytes_text(stats.memory_budget)));
    row("  memtables", memtables_text(stats));
    row("  cache", bytes_text(stats.memory_cache));
    row("  indexes", bytes_text(stats.memory_index));
    row("  transactions", bytes_text(stats.memory_transaction));
    row("  unused", bytes_text(stats.memory_unused));
    row("commit log", log_text(stats));
    row("value files", value_files_text(stats));
    row("commits", count_text(stats.commits));
    row("slowdowns", events_text(stats.slowdowns, stats.slowdown_time));
    row("stalls", events_text(stats.stalls, stats.stall_time));
    row("snapshots", snapshots_text(stats));
    table
}

fn memtables_text(stats: &Stats) -> String {
    let all = bytes_text(stats.memory_memtable);
    match stats.memory_pinned {
        0 => all,
        pinned => format!("{all}, {} of it pinned", bytes_text(pinned)),
    }
}

fn log_text(stats: &Stats) -> String {
    format!(
        "{} in {} files, {} written, {} syncs",
        bytes_text(stats.wal_bytes_on_disk),
        count_text(stats.wal_files),
        bytes_text(stats.wal_bytes_written),
        count_text(stats.wal_syncs)
    )
}

fn value_files_text(stats: &Stats) -> String {
    match stats.value_files.len() as u64 {
        0 => "none".to_owned(),
        count => format!(
            "{} in {}, {} live, {} pinned",
            bytes_text(stats.value_bytes()),
            count_text(count),
            bytes_text(stats.value_bytes_live()),
            bytes_text(stats.value_bytes_pinned)
        ),
    }
}

fn events_text(count: u64, time: Duration) -> String {
    if count == 0 {
        return "none".to_owned();
    }
    format!("{}, {}", count_text(count), duration_text(time))
}

fn snapshots_text(stats: &Stats) -> String {
    match stats.oldest_snapshot_age {
        Some(age) => format!("{}, the oldest {}", count_text(stats.snapshots), duration_text(age)),
        None => count_text(stats.snapshots),
    }
}

fn keyspace_table(keyspaces: &[KeyspaceStats]) -> Table {
    let mut table = Table::new(&[
        "keyspace",
        "structure",
        ">entries <=",
        ">on disk",
        ">live",
        ">dead",
        ">pinned",
        ">memtables",
        ">intervals",
        ">runs",
        ">segments",
        ">cache hits",
    ]);
    for keyspace in keyspaces {
        table.row([
            keyspace.name.escape_debug().to_string(),
            keyspace.structure.to_owned(),
            count_text(keyspace.entries_estimate),
            bytes_text(keyspace.bytes_on_disk),
            bytes_text(keyspace.bytes_live),
            bytes_text(keyspace.bytes_dead),
            bytes_text(keyspace.bytes_pinned),
            bytes_text(keyspace.memtable_bytes),
            count_text(keyspace.intervals),
            count_text(keyspace.runs),
            count_text(keyspace.segments),
            hit_rate_text(keyspace.cache_hits, keyspace.cache_misses),
        ]);
    }
    table
}

/// `98.5%`, or `-` when nothing was asked for.
pub fn hit_rate_text(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".to_owned(),
        lookups => format!("{:.1}%", 100.0 * hits as f64 / lookups as f64),
    }
}

/// Durations are in seconds; names end in their unit.
fn stats_json(stats: &Stats) -> Value {
    json!({
        "read_only": stats.read_only,
        "space_amplification": finite(stats.space_amplification()),
        "segment_write_amplification": finite(segment_amplification(stats)),
        "memory": {
            "budget_bytes": stats.memory_budget,
            "memtable_bytes": stats.memory_memtable,
            "pinned_bytes": stats.memory_pinned,
            "cache_bytes": stats.memory_cache,
            "index_bytes": stats.memory_index,
            "transaction_bytes": stats.memory_transaction,
            "unused_bytes": stats.memory_unused,
        },
        "wal": {
            "files": stats.wal_files,
            "on_disk_bytes": stats.wal_bytes_on_disk,
            "written_bytes": stats.wal_bytes_written,
            "syncs": stats.wal_syncs,
        },
        "values": {
            "files": stats.value_files.iter().map(value_file_json).collect::<Vec<Value>>(),
            "on_disk_bytes": stats.value_bytes(),
            "live_bytes": stats.value_bytes_live(),
            "pinned_bytes": stats.value_bytes_pinned,
            "written_bytes": stats.value_bytes_written,
            "syncs": stats.value_syncs,
            "moved": stats.values_moved,
            "moved_bytes": stats.value_bytes_moved,
            "files_removed": stats.value_files_removed,
        },
        "commits": stats.commits,
        "slowdowns": stats.slowdowns,
        "slowdown_seconds": stats.slowdown_time.as_secs_f64(),
        "stalls": stats.stalls,
        "stall_seconds": stats.stall_time.as_secs_f64(),
        "snapshots": stats.snapshots,
        "oldest_snapshot_seconds": stats.oldest_snapshot_age.map(|age| age.as_secs_f64()),
        "keyspaces": stats.keyspaces.iter().map(keyspace_json).collect::<Vec<Value>>(),
    })
}

fn value_file_json(file: &ValueFileStats) -> Value {
    json!({ "number": file.number, "bytes": file.bytes, "live_bytes": file.bytes_live })
}

/// JSON has no infinity: an amplification of nothing is null.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn keyspace_json(keyspace: &KeyspaceStats) -> Value {
    json!({
        "name": keyspace.name,
        "id": keyspace.id,
        "structure": keyspace.structure,
        "entries_estimate": keyspace.entries_estimate,
        "intervals": keyspace.intervals,
        "runs": keyspace.runs,
        "segments": keyspace.segments,
        "on_disk_bytes": keyspace.bytes_on_disk,
        "live_bytes": keyspace.bytes_live,
        "dead_bytes": keyspace.bytes_dead,
        "pinned_bytes": keyspace.bytes_pinned,
        "hole_bytes": keyspace.bytes_in_holes,
        "memtable_bytes": keyspace.memtable_bytes,
        "sealed_memtables": keyspace.sealed_memtables,
        "logical_written_bytes": keyspace.logical_bytes_written,
        "structure_written_bytes": keyspace.structure_bytes_written,
        "index_written_bytes": keyspace.index_bytes_written,
        "flushes": keyspace.flushes,
        "consolidations": keyspace.consolidations,
        "gets": keyspace.gets,
        "blocks_read": keyspace.blocks_read,
        "block_read_bytes": keyspace.block_bytes_read,
        "cache_hits": keyspace.cache_hits,
        "cache_misses": keyspace.cache_misses,
    })
}

/// Bytes written to segments for each byte flushed, since the keyspaces were created: what the
/// library counts since opening says nothing in a program that has just opened the database.
fn segment_amplification(stats: &Stats) -> f64 {
    let sum = |of: fn(&KeyspaceStats) -> u64| stats.keyspaces.iter().map(of).sum::<u64>();
    let flushed = sum(|keyspace| keyspace.logical_bytes_written);
    if flushed == 0 {
        return 0.0;
    }
    sum(|keyspace| keyspace.structure_bytes_written) as f64 / flushed as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyspace_is_a_row() {
        let mut keyspace = KeyspaceStats::default();
        (keyspace.structure, keyspace.bytes_live) = ("flex", 3 << 20);
        keyspace.name = "users".to_owned();
        let text = keyspace_table(&[keyspace.clone(), keyspace]).to_string();
        assert_eq!(text.lines().filter(|line| line.contains("users")).count(), 2, "{text}");
        assert!(text.contains("3.0 MiB"), "{text}");
    }

    #[test]
    fn what_cannot_be_divided_is_not_shown_as_a_number() {
        assert_eq!(hit_rate_text(0, 0), "-");
        assert_eq!(hit_rate_text(3, 1), "75.0%");
        assert_eq!(finite(f64::INFINITY), None);
        assert_eq!(finite(1.5), Some(1.5));
    }
}
