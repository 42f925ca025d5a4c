//! `lithe stats`: sizes, amplifications, memory and work done.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use lithedb::storage::ReserveFigures;
use lithedb::{BytesWritten, Followers, Health, KeyspaceStats, Stats, TrailStatus, ValueFileStats};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::database::open_to_read;
use crate::failure::Outcome;
use crate::notation::{bytes_text, count_text, duration_text, shown};
use crate::output::{StatsFormat, Surface, Table, json_line, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe stats
  lithe --db my.lithe stats --format json
  lithe --db my.lithe stats --format prometheus

Sizes are those of the database. What was written is counted since it was created; reads, waits and
what is called a session since it was opened, here by this command. A crash takes a little of what
is counted: see docs/CLI.md.";

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
    let stats = open_to_read(globals)?.stats();
    let mut out = stdout();
    match args.format {
        StatsFormat::Table => {
            write!(out, "{}\n{}", database_table(&stats), written_table(&stats))?;
            write!(out, "\n{}", keyspace_table(&stats.keyspaces))?;
            write!(out, "\n{}", amplification_table(&stats.keyspaces))?;
        }
        StatsFormat::Json => writeln!(out, "{}", json_line(&stats_json(&stats)))?,
        StatsFormat::Prometheus => write_exposition(&mut out, &stats.to_prometheus())?,
    }
    Ok(out.flush()?)
}

/// As it is for who scrapes it; names of keyspaces in it steer no terminal (O3).
fn write_exposition(out: &mut impl Write, text: &str) -> std::io::Result<()> {
    match Surface::of_stdout() {
        Surface::Terminal => out.write_all(shown(text).as_bytes()),
        Surface::Stream => out.write_all(text.as_bytes()),
    }
}

fn database_table(stats: &Stats) -> Table {
    let used = stats.memory_used();
    let mut table = Table::bare();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("state", stats.health.state.to_string());
    for trouble in troubles(&stats.health) {
        row("trouble", trouble);
    }
    row("disk reserve", reserve_text(stats.health.reserve));
    row("space amplification", format!("{:.2}", stats.space_amplification()));
    let lifetime = stats.lifetime.write_amplification();
    let written = format!("{lifetime:.2} since it was created");
    row("write amplification", written);
    row("on disk", disk_text(stats));
    row("memory", format!("{} of {}", bytes_text(used), bytes_text(stats.memory_budget)));
    row("  memtables", memtables_text(stats));
    row("  cache", bytes_text(stats.memory_cache));
    row("  indexes", bytes_text(stats.memory_index));
    row("  transactions", bytes_text(stats.memory_transaction));
    row("  buffers", bytes_text(stats.memory_buffers));
    row("  readers", bytes_text(stats.memory_readers));
    row("  unused", bytes_text(stats.memory_unused));
    row("commit log", log_text(stats));
    if let Some(trail) = &stats.trail {
        row("trail", trail_text(trail));
    }
    if stats.followers != Followers::default() {
        let Followers { views, files_held, bytes_held, .. } = stats.followers;
        let held = format!("{files_held} removed files ({}) kept", bytes_text(bytes_held));
        row("followers", format!("{views} views, {held}"));
    }
    row("value files", value_files_text(stats));
    row("cleaning", cleaning_text(stats));
    row("commits", format!("{} since it was created", count_text(stats.lifetime_commits)));
    row("slowdowns", events_text(stats.slowdowns, stats.slowdown_time));
    row("stalls", events_text(stats.stalls, stats.stall_time));
    row("to be compacted", bytes_text(debt_of(stats)));
    row("snapshots", snapshots_text(stats));
    table
}

fn debt_of(stats: &Stats) -> u64 {
    stats.keyspaces.iter().map(|keyspace| keyspace.compaction_debt).sum()
}

/// What fails or takes long, a line each.
fn troubles(health: &Health) -> Vec<String> {
    let failures = health.failures.iter().map(ToString::to_string);
    let slow_calls = health.slow_calls.iter().map(ToString::to_string);
    let failed_read = health.last_failed_read.iter().map(|(path, why)| {
        let count = count_text(health.reads_failed);
        format!("{count} reads failed, the last one of {}: {why}", path.display())
    });
    failures.chain(slow_calls).chain(failed_read).collect()
}

/// `16.0 MiB`, or `4.0 MiB of 16.0 MiB`.
fn reserve_text(reserve: ReserveFigures) -> String {
    let (held, size) = (bytes_text(reserve.held), bytes_text(reserve.size));
    if held == size { size } else { format!("{held} of {size}") }
}

/// `4.0 MiB behind, with 64.0 KiB of values kept for it; it ends: ..`
fn trail_text(trail: &TrailStatus) -> String {
    let (behind, kept) = (bytes_text(trail.bytes_behind), bytes_text(trail.value_bytes_kept));
    let end = trail.end.map(|end| format!("; it ends at {}: {}", end.at, end.reason));
    format!("{behind} behind, {kept} of values kept for it{}", end.unwrap_or_default())
}

fn disk_text(stats: &Stats) -> String {
    format!(
        "{}, {} live, {} free, {} pinned",
        bytes_text(stats.bytes_on_disk()),
        bytes_text(stats.bytes_live()),
        bytes_text(stats.bytes_free()),
        bytes_text(stats.bytes_pinned())
    )
}

fn cleaning_text(stats: &Stats) -> String {
    match stats.lifetime_cleanings {
        0 => "none".to_owned(),
        count => format!("{} rounds since it was created", count_text(count)),
    }
}

/// Bytes written by what for, of the database and of each keyspace.
fn written_table(stats: &Stats) -> Table {
    let mut titles = vec!["written for", "data"];
    let parts = stats.lifetime.parts();
    titles.extend(parts.iter().map(|(name, _)| *name));
    let titles: Vec<String> = titles.iter().map(|title| format!(">{title}")).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = Table::new(&titles);
    let mut row = |name: String, written: &BytesWritten| {
        let parts = written.parts();
        let parts = parts.iter().map(|(_, bytes)| bytes_text(*bytes));
        table.row([name, bytes_text(written.data)].into_iter().chain(parts));
    };
    row("database".to_owned(), &stats.lifetime);
    for keyspace in &stats.keyspaces {
        row(keyspace.name.escape_debug().to_string(), &keyspace.lifetime);
    }
    table
}

fn amplification_table(keyspaces: &[KeyspaceStats]) -> Table {
    let mut table = Table::new(&["keyspace", ">write", ">space", ">read", ">underused segments"]);
    for keyspace in keyspaces {
        table.row([
            keyspace.name.escape_debug().to_string(),
            format!("{:.2}", keyspace.lifetime.write_amplification()),
            format!("{:.2}", keyspace.space_amplification()),
            format!("{:.2}", keyspace.read_amplification()),
            count_text(keyspace.segments_underused),
        ]);
    }
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
        ">expiring",
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
            expiring_text(keyspace),
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

/// How many entries expire, and about how many have and still take room: `1,000, 20 gone`.
fn expiring_text(keyspace: &KeyspaceStats) -> String {
    let expiring = count_text(keyspace.entries_expiring);
    match keyspace.entries_expired_estimate {
        0 => expiring,
        expired => format!("{expiring}, {} gone", count_text(expired)),
    }
}

/// `98.5%`, or `-` when nothing was asked for.
pub fn hit_rate_text(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".to_owned(),
        lookups => format!("{:.1}%", 100.0 * hits as f64 / lookups as f64),
    }
}

fn health_json(health: &Health) -> Value {
    let under_way = health.slow_calls.iter().filter(|call| !call.is_over).count();
    json!({
        "state": health.state.to_string(),
        "is_good": health.is_good(),
        "troubles": troubles(health),
        "failures": health.failures.len(),
        "failures_total": health.failures_total,
        "slow_calls": under_way,
        "slow_calls_total": health.slow_calls_total,
        "reads_retried": health.reads_retried,
        "reads_failed": health.reads_failed,
        "reserve_bytes": health.reserve.size,
        "reserve_held_bytes": health.reserve.held,
    })
}

/// Durations are in seconds; names end in their unit.
fn trail_json(trail: &TrailStatus) -> Value {
    json!({
        "trail": format!("{:016x}", trail.trail),
        "repository": format!("{:016x}", trail.repository),
        "done": trail.done.as_u64(),
        "behind_bytes": trail.bytes_behind,
        "kept_value_bytes": trail.value_bytes_kept,
        "ends_at": trail.end.map(|end| end.at.as_u64()),
        "ends_because": trail.end.map(|end| end.reason.to_string()),
    })
}

fn stats_json(stats: &Stats) -> Value {
    let mut figures = figures_json(stats);
    figures["trail"] = stats.trail.as_ref().map_or(Value::Null, trail_json);
    let Followers { views, files_held, bytes_held, .. } = stats.followers;
    figures["followers"] =
        json!({ "views": views, "held_files": files_held, "held_bytes": bytes_held });
    figures
}

fn figures_json(stats: &Stats) -> Value {
    json!({
        "read_only": stats.read_only,
        "health": health_json(&stats.health),
        "space_amplification": finite(stats.space_amplification()),
        "write_amplification": finite(stats.lifetime.write_amplification()),
        "session_write_amplification": finite(stats.session.write_amplification()),
        "on_disk_bytes": stats.bytes_on_disk(),
        "live_bytes": stats.bytes_live(),
        "free_bytes": stats.bytes_free(),
        "pinned_bytes": stats.bytes_pinned(),
        "written": written_json(&stats.lifetime),
        "session_written": written_json(&stats.session),
        "memory": {
            "budget_bytes": stats.memory_budget,
            "memtable_bytes": stats.memory_memtable,
            "pinned_bytes": stats.memory_pinned,
            "cache_bytes": stats.memory_cache,
            "index_bytes": stats.memory_index,
            "transaction_bytes": stats.memory_transaction,
            "buffer_bytes": stats.memory_buffers,
            "reader_bytes": stats.memory_readers,
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
            "cleanings": stats.lifetime_cleanings,
            "session_cleanings": stats.cleanings,
            "moved": stats.values_moved,
            "moved_bytes": stats.value_bytes_moved,
            "files_removed": stats.value_files_removed,
        },
        "commits": stats.lifetime_commits,
        "session_commits": stats.commits,
        "slowdowns": stats.slowdowns,
        "slowdown_seconds": stats.slowdown_time.as_secs_f64(),
        "stalls": stats.stalls,
        "stall_seconds": stats.stall_time.as_secs_f64(),
        "background_pauses": stats.background_pauses,
        "compaction_rate_bytes": stats.compaction_rate,
        "cleaning_rate_bytes": stats.cleaning_rate,
        "snapshots": stats.snapshots,
        "oldest_snapshot_seconds": stats.oldest_snapshot_age.map(|age| age.as_secs_f64()),
        "keyspaces": stats.keyspaces.iter().map(keyspace_json).collect::<Vec<Value>>(),
    })
}

fn written_json(written: &BytesWritten) -> Value {
    let parts = written.parts();
    let parts = parts.iter().map(|(name, bytes)| (format!("{name}_bytes"), json!(bytes)));
    let mut object: serde_json::Map<String, Value> = parts.collect();
    object.insert("data_bytes".to_owned(), json!(written.data));
    Value::Object(object)
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
        "expiring_entries": keyspace.entries_expiring,
        "expired_entries_estimate": keyspace.entries_expired_estimate,
        "intervals": keyspace.intervals,
        "runs": keyspace.runs,
        "segments": keyspace.segments,
        "underused_segments": keyspace.segments_underused,
        "write_amplification": finite(keyspace.lifetime.write_amplification()),
        "space_amplification": finite(keyspace.space_amplification()),
        "read_amplification": finite(keyspace.read_amplification()),
        "written": written_json(&keyspace.lifetime),
        "session_written": written_json(&keyspace.session),
        "on_disk_bytes": keyspace.bytes_on_disk,
        "live_bytes": keyspace.bytes_live,
        "dead_bytes": keyspace.bytes_dead,
        "pinned_bytes": keyspace.bytes_pinned,
        "hole_bytes": keyspace.bytes_in_holes,
        "shared_dead_bytes": keyspace.bytes_shared_dead,
        "memtable_bytes": keyspace.memtable_bytes,
        "sealed_memtables": keyspace.sealed_memtables,
        "logical_written_bytes": keyspace.logical_bytes_written,
        "structure_written_bytes": keyspace.structure_bytes_written,
        "index_written_bytes": keyspace.index_bytes_written,
        "compaction_debt_bytes": keyspace.compaction_debt,
        "fresh_runs": keyspace.fresh_runs,
        "flushes": keyspace.flushes,
        "consolidations": keyspace.consolidations,
        "gets": keyspace.gets,
        "blocks_read": keyspace.blocks_read,
        "block_read_bytes": keyspace.block_bytes_read,
        "cache_hits": keyspace.cache_hits,
        "cache_misses": keyspace.cache_misses,
    })
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
