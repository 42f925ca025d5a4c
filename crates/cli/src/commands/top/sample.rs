//! A sample: the figures that are watched, and what two of them say about the time between.

use std::time::Duration;

use lithedb::{KeyspaceStats, Stats};
use serde_json::{Value, json};

/// Figures as of one moment. Counters only go up while it is the same database that is open.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When, by the clock of who watches.
    pub at: Duration,
    /// Whether it is from the process that writes: whether it knows of lookups and waits.
    pub knows_writer: bool,
    pub state: String,
    pub troubles: usize,
    pub commits: u64,
    /// Bytes of keys and values committed; beside a writer those of its log.
    pub data_bytes: u64,
    /// Bytes written to disk for them, of the process.
    pub written_bytes: u64,
    pub syncs: u64,
    pub conflicts: u64,
    pub slowdowns: u64,
    pub slowdown_time: Duration,
    pub stalls: u64,
    pub stall_time: Duration,
    pub read_probe: Option<Duration>,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub write_amplification: f64,
    pub space_amplification: f64,
    pub on_disk_bytes: u64,
    pub live_bytes: u64,
    pub free_bytes: u64,
    pub pinned_bytes: u64,
    pub log_bytes: u64,
    pub memory_budget: u64,
    /// By part.
    pub memory: Vec<(&'static str, u64)>,
    pub snapshots: u64,
    pub oldest_snapshot: Option<Duration>,
    pub transactions: u64,
    pub followers: u64,
    pub pauses: u64,
    pub cleanings: u64,
    pub keyspaces: Vec<KeyspaceSample>,
    /// Of a server.
    pub server: Option<ServerSample>,
}

/// What a server counts of its clients, of both protocols.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerSample {
    pub connections: u64,
    pub requests: u64,
    pub failures: u64,
    /// That all requests took, together.
    pub request_time: Duration,
}

/// The same of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct KeyspaceSample {
    pub name: String,
    pub id: u32,
    pub structure: String,
    pub entries: u64,
    pub on_disk_bytes: u64,
    pub memtable_bytes: u64,
    pub sealed_memtables: u64,
    pub gets: u64,
    pub blocks_read: u64,
    pub block_bytes_read: u64,
    pub data_bytes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub consolidations: u64,
    pub debt_bytes: u64,
    pub write_amplification: f64,
    pub space_amplification: f64,
}

impl Sample {
    /// What a database says of itself.
    pub fn of(stats: &Stats) -> Sample {
        let first = stats.keyspaces.first(); // The cache is one, for all of them.
        Sample {
            at: Duration::ZERO,
            knows_writer: true,
            state: stats.health.state.to_string(),
            troubles: stats.health.failures.len() + stats.health.slow_calls.len(),
            commits: stats.commits,
            data_bytes: stats.data_bytes_written,
            written_bytes: stats.session.total(),
            syncs: stats.wal_syncs,
            conflicts: stats.transaction_conflicts,
            slowdowns: stats.slowdowns,
            slowdown_time: stats.slowdown_time,
            stalls: stats.stalls,
            stall_time: stats.stall_time,
            read_probe: None,
            cache_hits: first.map_or(0, |keyspace| keyspace.cache_hits),
            cache_misses: first.map_or(0, |keyspace| keyspace.cache_misses),
            write_amplification: stats.lifetime.write_amplification(),
            space_amplification: stats.space_amplification(),
            on_disk_bytes: stats.bytes_on_disk(),
            live_bytes: stats.bytes_live(),
            free_bytes: stats.bytes_free(),
            pinned_bytes: stats.bytes_pinned(),
            log_bytes: stats.wal_bytes_on_disk,
            memory_budget: stats.memory_budget,
            memory: vec![
                ("memtables", stats.memory_memtable),
                ("cache", stats.memory_cache),
                ("indexes", stats.memory_index),
                ("transactions", stats.memory_transaction),
                ("buffers", stats.memory_buffers),
                ("readers", stats.memory_readers),
                ("unused", stats.memory_unused),
            ],
            snapshots: stats.snapshots,
            oldest_snapshot: stats.oldest_snapshot_age,
            transactions: stats.transactions_open,
            followers: stats.followers.views,
            pauses: stats.background_pauses,
            cleanings: stats.cleanings,
            keyspaces: stats.keyspaces.iter().map(KeyspaceSample::of).collect(),
            server: None,
        }
    }

    /// Memory of all parts.
    pub fn memory_used(&self) -> u64 {
        self.memory.iter().map(|(_, bytes)| bytes).sum()
    }

    /// A figure of all keyspaces together.
    pub fn total(&self, figure: impl Fn(&KeyspaceSample) -> u64) -> u64 {
        self.keyspaces.iter().map(figure).sum()
    }
}

impl KeyspaceSample {
    fn of(stats: &KeyspaceStats) -> KeyspaceSample {
        KeyspaceSample {
            name: stats.name.clone(),
            id: stats.id,
            structure: stats.structure.to_owned(),
            entries: stats.entries_estimate,
            on_disk_bytes: stats.bytes_on_disk,
            memtable_bytes: stats.memtable_bytes,
            sealed_memtables: stats.sealed_memtables,
            gets: stats.gets,
            blocks_read: stats.blocks_read,
            block_bytes_read: stats.block_bytes_read,
            data_bytes: stats.session.data,
            written_bytes: stats.session.total(),
            flushes: stats.flushes,
            consolidations: stats.consolidations,
            debt_bytes: stats.compaction_debt,
            write_amplification: stats.lifetime.write_amplification(),
            space_amplification: stats.space_amplification(),
        }
    }
}

/// The time between two samples.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    pub before: &'a Sample,
    pub now: &'a Sample,
}

impl<'a> Span<'a> {
    /// How long it is.
    pub fn time(&self) -> Duration {
        self.now.at.saturating_sub(self.before.at)
    }

    /// How far a counter has gone up; 0 where it began anew.
    pub fn change(&self, counter: impl Fn(&Sample) -> u64) -> u64 {
        counter(self.now).saturating_sub(counter(self.before))
    }

    /// How much a second.
    pub fn rate(&self, counter: impl Fn(&Sample) -> u64) -> f64 {
        per_second(self.change(counter), self.time())
    }

    /// How long writers waited in each second, all together.
    pub fn waits(&self, waited: impl Fn(&Sample) -> Duration) -> Duration {
        let seconds = self.time().as_secs_f64();
        let change = waited(self.now).saturating_sub(waited(self.before));
        if seconds > 0.0 { change.div_f64(seconds) } else { Duration::ZERO }
    }

    /// How many requests a server has answered in each second, and what one took on average.
    pub fn requests(&self) -> (f64, Duration) {
        let server = |sample: &Sample| sample.server.unwrap_or_default();
        let count = self.change(|sample| server(sample).requests);
        let (now, before) = (server(self.now).request_time, server(self.before).request_time);
        let time = now.saturating_sub(before);
        let mean = if count > 0 { time.div_f64(count as f64) } else { Duration::ZERO };
        (per_second(count, self.time()), mean)
    }

    /// Bytes written to disk for each byte committed, in this time.
    pub fn write_amplification(&self) -> Option<f64> {
        let data = self.change(|sample| sample.data_bytes);
        let written = self.change(|sample| sample.written_bytes);
        (data > 0 && self.now.knows_writer).then(|| written as f64 / data as f64)
    }

    /// Blocks read for each lookup, in this time.
    pub fn read_amplification(&self) -> Option<f64> {
        let gets = self.change(|sample| sample.total(|keyspace| keyspace.gets));
        let blocks = self.change(|sample| sample.total(|keyspace| keyspace.blocks_read));
        (gets > 0 && self.now.knows_writer).then(|| blocks as f64 / gets as f64)
    }

    /// The same keyspace at its beginning.
    pub fn keyspace_before(&self, keyspace: &KeyspaceSample) -> &'a KeyspaceSample {
        let same = self.before.keyspaces.iter().find(|before| before.id == keyspace.id);
        same.unwrap_or(const { &KeyspaceSample::NEW })
    }
}

impl KeyspaceSample {
    const NEW: KeyspaceSample = KeyspaceSample {
        name: String::new(),
        id: 0,
        structure: String::new(),
        entries: 0,
        on_disk_bytes: 0,
        memtable_bytes: 0,
        sealed_memtables: 0,
        gets: 0,
        blocks_read: 0,
        block_bytes_read: 0,
        data_bytes: 0,
        written_bytes: 0,
        flushes: 0,
        consolidations: 0,
        debt_bytes: 0,
        write_amplification: 0.0,
        space_amplification: 0.0,
    };
}

/// How much a second, if it is so much in this time.
pub fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The sample and the rates, as an object; durations in seconds.
pub fn json_of(name: &str, span: Span<'_>) -> Value {
    let now = span.now;
    let memory: serde_json::Map<String, Value> =
        now.memory.iter().map(|(part, bytes)| (format!("{part}_bytes"), json!(bytes))).collect();
    let known = |figure: Value| if now.knows_writer { figure } else { Value::Null };
    let gets = span.rate(|sample| sample.total(|keyspace| keyspace.gets));
    let (requests, mean) = span.requests();
    let of_server = now.server.map(|server| {
        json!({
            "connections": server.connections,
            "requests_per_second": requests,
            "request_seconds_mean": mean.as_secs_f64(),
            "failures": server.failures,
        })
    });
    json!({
        "database": name,
        "seconds": span.time().as_secs_f64(),
        "state": now.state,
        "troubles": now.troubles,
        "commits_per_second": span.rate(|sample| sample.commits),
        "data_bytes_per_second": span.rate(|sample| sample.data_bytes),
        "written_bytes_per_second": known(json!(span.rate(|sample| sample.written_bytes))),
        "gets_per_second": known(json!(gets)),
        "syncs_per_second": known(json!(span.rate(|sample| sample.syncs))),
        "slowdown_seconds_per_second":
            known(json!(span.waits(|sample| sample.slowdown_time).as_secs_f64())),
        "stall_seconds_per_second":
            known(json!(span.waits(|sample| sample.stall_time).as_secs_f64())),
        "read_probe_seconds": now.read_probe.map(|probe| probe.as_secs_f64()),
        "conflicts": known(json!(now.conflicts)),
        "write_amplification": finite(now.write_amplification),
        "space_amplification": finite(now.space_amplification),
        "write_amplification_now": span.write_amplification(),
        "read_amplification_now": span.read_amplification(),
        "on_disk_bytes": now.on_disk_bytes,
        "live_bytes": now.live_bytes,
        "free_bytes": now.free_bytes,
        "pinned_bytes": now.pinned_bytes,
        "log_bytes": now.log_bytes,
        "memory_used_bytes": known(json!(now.memory_used())),
        "memory_budget_bytes": known(json!(now.memory_budget)),
        "memory": known(Value::Object(memory)),
        "snapshots": known(json!(now.snapshots)),
        "transactions": known(json!(now.transactions)),
        "followers": now.followers,
        "cleanings": now.cleanings,
        "background_pauses": now.pauses,
        "server": of_server,
        "keyspaces": now.keyspaces.iter().map(|it| keyspace_json(it, span)).collect::<Vec<_>>(),
    })
}

fn keyspace_json(keyspace: &KeyspaceSample, span: Span<'_>) -> Value {
    let before = span.keyspace_before(keyspace);
    let rate = |now: u64, before: u64| per_second(now.saturating_sub(before), span.time());
    json!({
        "name": keyspace.name,
        "structure": keyspace.structure,
        "entries_estimate": keyspace.entries,
        "gets_per_second": rate(keyspace.gets, before.gets),
        "data_bytes_per_second": rate(keyspace.data_bytes, before.data_bytes),
        "written_bytes_per_second": rate(keyspace.written_bytes, before.written_bytes),
        "block_bytes_read_per_second": rate(keyspace.block_bytes_read, before.block_bytes_read),
        "on_disk_bytes": keyspace.on_disk_bytes,
        "memtable_bytes": keyspace.memtable_bytes,
        "sealed_memtables": keyspace.sealed_memtables,
        "flushes": keyspace.flushes,
        "consolidations": keyspace.consolidations,
        "to_be_compacted_bytes": keyspace.debt_bytes,
        "write_amplification": finite(keyspace.write_amplification),
        "space_amplification": finite(keyspace.space_amplification),
    })
}

/// JSON has no infinity: an amplification of nothing is null.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_and_never_negative() {
        let before = Sample {
            at: Duration::from_secs(10),
            knows_writer: true,
            commits: 100,
            data_bytes: 1000,
            written_bytes: 3000,
            stall_time: Duration::from_millis(100),
            ..Sample::default()
        };
        let now = Sample {
            at: Duration::from_secs(12),
            commits: 300,
            data_bytes: 2000,
            written_bytes: 5500,
            stall_time: Duration::from_millis(600),
            ..before.clone()
        };
        let span = Span { before: &before, now: &now };
        assert_eq!(span.rate(|sample| sample.commits), 100.0);
        assert_eq!(span.waits(|sample| sample.stall_time), Duration::from_millis(250));
        assert_eq!(span.write_amplification(), Some(2.5));
        assert_eq!(span.read_amplification(), None);
        let back = Span { before: &now, now: &before };
        assert_eq!(back.rate(|sample| sample.commits), 0.0);
        let json = json_of("x", span);
        assert_eq!(json["commits_per_second"], 100.0);
        assert_eq!(json["read_probe_seconds"], Value::Null);
    }
}
