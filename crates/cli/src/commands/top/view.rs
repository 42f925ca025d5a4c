//! A sample as lines of text, which fit on a terminal of 80 x 24.

use std::time::Duration;

use super::sample::{KeyspaceSample, Sample, ServerSample, Span, per_second};
use crate::commands::stats::hit_rate_text;
use crate::notation::{bytes_text, count_text, duration_text};
use crate::output::Table;

/// Characters of a name that are shown.
const NAME_MAX: usize = 14;
/// Characters of the bar.
const BAR_LEN: usize = 20;
/// Of the labels.
const LABEL_LEN: usize = 14;

/// The lines.
pub fn lines(name: &str, span: Span<'_>, interval: Duration) -> Vec<String> {
    let now = span.now;
    let every = duration_text(interval);
    let troubles = match now.troubles {
        0 => String::new(),
        count => format!(", {count} troubles: see `stats`"),
    };
    let mut lines = vec![
        format!("lithe top  {name}  every {every}, q ends it"),
        labelled("state", &format!("{}{troubles}", now.state)),
        labelled("throughput", &writes(span)),
    ];
    if let Some(server) = &now.server {
        lines.insert(2, labelled("server", &requests(span, server)));
    }
    if now.knows_writer {
        lines.push(labelled("", &reads(span)));
    }
    lines.push(labelled("latency", &latency(span)));
    if now.knows_writer {
        lines.push(labelled("", &waits(span)));
    }
    lines.push(labelled("amplification", &amplification(span)));
    if now.knows_writer {
        lines.push(labelled("memory", &memory(span)));
        lines.extend(memory_parts(span).iter().map(|part| labelled("", part)));
    }
    lines.push(labelled("disk", &disk(span)));
    lines.push(labelled("jobs", &jobs(span)));
    lines.push(labelled("", &work_left(span)));
    if now.knows_writer {
        lines.push(labelled("open", &open(span)));
    }
    lines.push(String::new());
    lines.extend(keyspaces(span).to_string().lines().map(str::to_owned));
    lines
}

fn labelled(label: &str, text: &str) -> String {
    format!("{label:<LABEL_LEN$}{text}")
}

fn requests(span: Span<'_>, server: &ServerSample) -> String {
    let (rate, mean) = span.requests();
    let (rate, mean) = (rate_text(rate), duration_text(mean));
    let connections = count_text(server.connections);
    format!("{rate} requests/s, mean {mean}, {connections} connections")
}

fn writes(span: Span<'_>) -> String {
    let commits = rate_text(span.rate(|sample| sample.commits));
    let data = bytes_rate(span.rate(|sample| sample.data_bytes));
    if !span.now.knows_writer {
        return format!("{commits} commits/s, {data} of log");
    }
    let written = bytes_rate(span.rate(|sample| sample.written_bytes));
    format!("{commits} commits/s, {data}, {written} to disk")
}

fn reads(span: Span<'_>) -> String {
    let gets = rate_text(span.rate(|sample| sample.total(|keyspace| keyspace.gets)));
    let blocks = rate_text(span.rate(|sample| sample.total(|keyspace| keyspace.blocks_read)));
    let conflicts = count_text(span.change(|sample| sample.conflicts));
    format!("{gets} lookups/s, {blocks} blocks read/s, {conflicts} conflicts")
}

fn latency(span: Span<'_>) -> String {
    let probe = span.now.read_probe.map_or_else(|| "-".to_owned(), duration_text);
    if !span.now.knows_writer {
        return format!("read probe {probe}");
    }
    format!("read probe {probe}; {} syncs/s", rate_text(span.rate(|sample| sample.syncs)))
}

fn waits(span: Span<'_>) -> String {
    let slowed = duration_text(span.waits(|sample| sample.slowdown_time));
    let stopped = duration_text(span.waits(|sample| sample.stall_time));
    let times = count_text(span.change(|sample| sample.slowdowns + sample.stalls));
    format!("writers slowed {slowed}/s, stopped {stopped}/s, {times} times")
}

fn amplification(span: Span<'_>) -> String {
    let now = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    format!(
        "write {:.2} ({} now), read {} now, space {:.2}",
        span.now.write_amplification,
        now(span.write_amplification()),
        now(span.read_amplification()),
        span.now.space_amplification,
    )
}

fn memory(span: Span<'_>) -> String {
    let (used, budget) = (span.now.memory_used(), span.now.memory_budget);
    let filled = (BAR_LEN as u64 * used).checked_div(budget).unwrap_or(0);
    let filled = (filled as usize).min(BAR_LEN);
    let bar = "#".repeat(filled) + &".".repeat(BAR_LEN - filled);
    let (hits, misses) =
        (span.change(|sample| sample.cache_hits), span.change(|sample| sample.cache_misses));
    let hits = hit_rate_text(hits, misses);
    format!("[{bar}] {} of {}; cache hits {hits}", bytes_text(used), bytes_text(budget))
}

/// Three on a line.
fn memory_parts(span: Span<'_>) -> Vec<String> {
    let parts = span.now.memory.chunks(3);
    let part = |(name, bytes): &(&str, u64)| format!("{name} {}", bytes_text(*bytes));
    parts.map(|parts| parts.iter().map(part).collect::<Vec<_>>().join(", ")).collect()
}

fn disk(span: Span<'_>) -> String {
    let Sample { on_disk_bytes, live_bytes, free_bytes, pinned_bytes, .. } = span.now;
    let [all, live] = [on_disk_bytes, live_bytes].map(|bytes| bytes_text(*bytes));
    let [free, pinned] = [free_bytes, pinned_bytes].map(|bytes| bytes_text(*bytes));
    format!("{all}; live {live}, free {free}, pinned {pinned}")
}

fn jobs(span: Span<'_>) -> String {
    let change =
        |figure: fn(&KeyspaceSample) -> u64| count_text(span.change(|sample| sample.total(figure)));
    let flushes = change(|keyspace| keyspace.flushes);
    let consolidated = change(|keyspace| keyspace.consolidations);
    let cleanings = count_text(span.change(|sample| sample.cleanings));
    let sealed = span.now.total(|keyspace| keyspace.sealed_memtables);
    format!("{flushes} flushes ({sealed} wait), {consolidated} consolidated, {cleanings} cleanings")
}

fn work_left(span: Span<'_>) -> String {
    let debt = bytes_text(span.now.total(|keyspace| keyspace.debt_bytes));
    let log = bytes_text(span.now.log_bytes);
    let paused = if span.now.pauses > 0 { "; paused" } else { "" };
    format!("{debt} to be compacted, log {log}{paused}")
}

fn open(span: Span<'_>) -> String {
    let Sample { snapshots, transactions, followers, .. } = span.now;
    let oldest = span.now.oldest_snapshot.map(|age| format!(" (oldest {})", duration_text(age)));
    let oldest = oldest.unwrap_or_default();
    format!("{snapshots} snapshots{oldest}, {transactions} transactions, {followers} followers")
}

fn keyspaces(span: Span<'_>) -> Table {
    let mut table = Table::new(&[
        "keyspace",
        ">entries <=",
        ">lookups/s",
        ">data/s",
        ">on disk",
        ">write",
        ">space",
    ]);
    // Those at work first.
    let mut list: Vec<(&KeyspaceSample, u64, u64)> = Vec::new();
    for keyspace in &span.now.keyspaces {
        let before = span.keyspace_before(keyspace);
        let data = keyspace.data_bytes.saturating_sub(before.data_bytes);
        list.push((keyspace, keyspace.gets.saturating_sub(before.gets), data));
    }
    list.sort_by_key(|(keyspace, gets, data)| (std::cmp::Reverse(gets + data), keyspace.id));
    for (keyspace, gets, data) in list {
        table.row([
            short(&keyspace.name),
            count_text(keyspace.entries),
            rate_text(per_second(gets, span.time())),
            bytes_text(per_second(data, span.time()) as u64),
            bytes_text(keyspace.on_disk_bytes),
            format!("{:.2}", keyspace.write_amplification),
            format!("{:.2}", keyspace.space_amplification),
        ]);
    }
    table
}

/// The name, so that it steers no terminal and takes little room.
fn short(name: &str) -> String {
    let name = name.escape_debug().to_string();
    match name.chars().count() {
        ..=NAME_MAX => name,
        _ => name.chars().take(NAME_MAX - 2).chain("..".chars()).collect(),
    }
}

fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        rate => count_text(rate.round() as u64),
    }
}

fn bytes_rate(rate: f64) -> String {
    format!("{}/s", bytes_text(rate.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_of_80_columns_shows_it_whole() {
        let gib = 1 << 30;
        let keyspace = |id: u32, name: &str| KeyspaceSample {
            name: name.to_owned(),
            id,
            structure: "flex".to_owned(),
            entries: 123_456_789,
            gets: 1_000_000 * u64::from(id),
            data_bytes: 300 * gib,
            on_disk_bytes: 900 * gib,
            write_amplification: 12.34,
            space_amplification: 1.23,
            debt_bytes: 1000 * gib,
            ..KeyspaceSample::default()
        };
        let before = Sample { knows_writer: true, ..Sample::default() };
        let part = |name| (name, 100 * gib);
        let parts = ["memtables", "cache", "indexes", "transactions", "buffers", "readers"];
        let now = Sample {
            at: Duration::from_secs(1),
            state: "healthy".to_owned(),
            commits: 1_000_000,
            data_bytes: 200 << 20,
            written_bytes: 900 << 20,
            syncs: 10_000,
            slowdown_time: Duration::from_millis(100),
            stall_time: Duration::from_micros(123_400),
            read_probe: Some(Duration::from_nanos(123_456)),
            on_disk_bytes: 900 * gib,
            live_bytes: 800 * gib,
            free_bytes: 100 * gib,
            pinned_bytes: 1,
            log_bytes: 64 << 20,
            memory_budget: 1024 * gib,
            memory: parts.map(part).to_vec(),
            keyspaces: (1..=6).map(|id| keyspace(id, "a-name-that-is-much-too-long\x1b")).collect(),
            ..before.clone()
        };
        let lines = lines("my.lithe", Span { before: &before, now: &now }, Duration::from_secs(1));
        assert!(lines.len() <= 24, "{} lines", lines.len());
        for line in &lines {
            assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
            assert!(!line.contains('\x1b'), "{line}");
        }
        let text = lines.join("\n");
        for shown in ["1,000,000 commits/s", "read probe 123.5 us", "write 0.00 (4.50 now)"] {
            assert!(text.contains(shown), "{shown} is not in\n{text}");
        }
        let first = lines.iter().find(|line| line.contains("a-name")).unwrap();
        assert!(first.contains("6,000,000"), "the one with most to do is first: {first}");
    }
}
