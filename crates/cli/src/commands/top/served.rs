//! A server that is watched, by the figures that it gives out.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use lithe_server::{ClientFiles, Probe, ProbeError};
use lithedb::base::SystemClock;
use serde_json::Value;

use super::TopArgs;
use super::sample::{KeyspaceSample, Sample, ServerSample};
use super::source::Source;
use crate::args::{Globals, Origin};
use crate::failure::Failure;
use crate::notation::shown;

/// What has not come by then is not waited for: no key that is pressed is seen meanwhile.
const PATIENCE: Duration = Duration::from_secs(3);
/// A file of more is no token.
const TOKEN_SIZE_MAX: u64 = 4 << 10;
/// No figure of a server is larger, nor are there more keyspaces, so that no sum of them
/// overflows, whoever it is that answers.
const FIGURE_MAX: u64 = 1 << 52;
const KEYSPACES_MAX: usize = 1000;
/// A hundred years.
const SECONDS_MAX: f64 = 3.2e9;
/// Characters of a sentence that are shown.
const SENTENCE_MAX: usize = 200;

struct Served {
    probe: Probe,
    token: Option<String>,
}

/// That of the command line.
pub fn open(globals: &Globals, url: &str, args: &TopArgs) -> Result<Box<dyn Source>, Failure> {
    if globals.db_origin == Origin::CommandLine && globals.held.is_none() {
        return Err(Failure::usage("a database or a server is watched: leave --db or --url out"));
    }
    let client = args.tls_cert.clone().zip(args.tls_key.clone());
    let probe = Probe {
        url: url.to_owned(),
        roots: args.tls_roots.clone(),
        name: args.tls_name.clone(),
        client: client.map(|(certificates, key)| ClientFiles { certificates, key }),
        patience: PATIENCE,
    };
    let token = args.token_file.as_deref().map(token_in).transpose()?;
    Ok(Box::new(Served { probe, token }))
}

fn token_in(path: &Path) -> Result<String, Failure> {
    let wrong = |what: &str| Failure::usage(format!("{}: {what}", shown(&path.to_string_lossy())));
    let failed = |error: std::io::Error| wrong(&error.to_string());
    if lithe_server::is_exposed(path).map_err(failed)? {
        return Err(wrong("others than its owner can read or write it: chmod 600"));
    }
    let file = std::fs::OpenOptions::new().read(true).open(path).map_err(failed)?;
    let mut text = String::new();
    let size = file.take(TOKEN_SIZE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if size as u64 > TOKEN_SIZE_MAX {
        return Err(wrong("it is too large for a token"));
    }
    let token = text.lines().next().unwrap_or_default().trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(wrong("its first line is no token")),
    }
}

impl Source for Served {
    fn name(&self) -> String {
        shown(&self.probe.url).into_owned()
    }

    fn sample(&mut self, _clock: &SystemClock) -> Result<Sample, Failure> {
        let failed = |what: String| Failure::Other(format!("{}: {what}", self.name()).into());
        let answer = self.probe.get("/v1/stats", self.token.as_deref());
        let (status, body) = answer.map_err(|error| match error {
            ProbeError::Url { .. } | ProbeError::Roots { .. } => {
                Failure::usage(shown(&error.to_string()))
            }
            error => failed(error.to_string()),
        })?;
        let said: Value = serde_json::from_slice(&body)
            .map_err(|_| failed("what answers there is no such server".to_owned()))?;
        match status {
            200 => Ok(sample_of(&said)),
            status => {
                let why = said["error"]["message"].as_str().unwrap_or_default();
                Err(failed(format!("{status} {}", sentence(why))))
            }
        }
    }
}

/// What a server says, as one line.
fn sentence(text: &str) -> String {
    shown(&text.replace('\n', " ")).chars().take(SENTENCE_MAX).collect()
}

fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_default().min(FIGURE_MAX)
}

fn share(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or(f64::INFINITY)
}

fn time(of: &Value, name: &str) -> Option<Duration> {
    let seconds = of[name].as_f64().map(|seconds| seconds.min(SECONDS_MAX));
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn list<'v>(of: &'v Value, name: &str) -> &'v [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

/// Bytes written to disk, of all parts.
fn written(of: &Value) -> u64 {
    let parts = of["written"].as_object().into_iter().flatten();
    let parts = parts.filter(|(part, _)| *part != "data").filter_map(|(_, bytes)| bytes.as_u64());
    parts.fold(0, u64::saturating_add).min(FIGURE_MAX)
}

fn sample_of(said: &Value) -> Sample {
    let health = &said["health"];
    let first = list(said, "keyspaces").first().unwrap_or(&Value::Null);
    let memory = |name: &'static str, figure: &str| (name, count(said, figure));
    Sample {
        at: Duration::ZERO,
        knows_writer: true,
        state: sentence(health["message"].as_str().unwrap_or("unknown")),
        troubles: list(health, "failures").len() + list(health, "slow_calls").len(),
        commits: count(said, "commits"),
        data_bytes: count(said, "data_bytes_written"),
        written_bytes: written(said),
        syncs: count(said, "wal_syncs"),
        conflicts: count(said, "transaction_conflicts"),
        slowdowns: count(said, "slowdowns"),
        slowdown_time: time(said, "slowdown_seconds").unwrap_or_default(),
        stalls: count(said, "stalls"),
        stall_time: time(said, "stall_seconds").unwrap_or_default(),
        read_probe: None,
        cache_hits: count(first, "cache_hits"),
        cache_misses: count(first, "cache_misses"),
        write_amplification: share(said, "lifetime_write_amplification"),
        space_amplification: share(said, "space_amplification"),
        on_disk_bytes: count(said, "bytes_on_disk"),
        live_bytes: count(said, "bytes_live"),
        free_bytes: count(said, "bytes_free"),
        pinned_bytes: count(said, "bytes_pinned"),
        log_bytes: count(said, "wal_bytes_on_disk"),
        memory_budget: count(said, "memory_budget"),
        memory: vec![
            memory("memtables", "memory_memtable"),
            memory("cache", "memory_cache"),
            memory("indexes", "memory_index"),
            memory("transactions", "memory_transaction"),
            memory("buffers", "memory_buffers"),
            memory("readers", "memory_readers"),
            memory("unused", "memory_unused"),
        ],
        snapshots: count(said, "snapshots"),
        oldest_snapshot: time(said, "oldest_snapshot_age_seconds"),
        transactions: count(said, "transactions_open"),
        followers: count(&said["followers"], "views"),
        pauses: count(said, "background_pauses"),
        cleanings: count(said, "cleanings"),
        keyspaces: list(said, "keyspaces").iter().take(KEYSPACES_MAX).map(keyspace_of).collect(),
        server: Some(server_of(&said["server"])),
    }
}

fn keyspace_of(said: &Value) -> KeyspaceSample {
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    KeyspaceSample {
        name: text("name"),
        id: u32::try_from(count(said, "id")).unwrap_or_default(),
        structure: sentence(&text("structure")),
        entries: count(said, "entries_estimate"),
        on_disk_bytes: count(said, "bytes_on_disk"),
        memtable_bytes: count(said, "memtable_bytes"),
        sealed_memtables: count(said, "sealed_memtables"),
        gets: count(said, "gets"),
        blocks_read: count(said, "blocks_read"),
        block_bytes_read: count(said, "block_bytes_read"),
        data_bytes: count(&said["written"], "data"),
        written_bytes: written(said),
        flushes: count(said, "flushes"),
        consolidations: count(said, "consolidations"),
        debt_bytes: count(said, "compaction_debt"),
        write_amplification: share(said, "lifetime_write_amplification"),
        space_amplification: share(said, "space_amplification"),
    }
}

fn server_of(said: &Value) -> ServerSample {
    let objects = |of: &Value| of.as_object().cloned().unwrap_or_default();
    let connections = objects(&said["connections"]);
    let mut server = ServerSample {
        connections: connections
            .values()
            .filter_map(Value::as_u64)
            .fold(0, u64::saturating_add)
            .min(FIGURE_MAX),
        ..ServerSample::default()
    };
    for (_, kinds) in objects(&said["requests"]) {
        for (_, kind) in objects(&kinds) {
            server.requests = server.requests.saturating_add(count(&kind, "count"));
            server.failures = server.failures.saturating_add(count(&kind, "failures"));
            let time = time(&kind, "seconds").unwrap_or_default();
            server.request_time = server.request_time.saturating_add(time);
        }
    }
    server
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::top::sample::{Span, json_of};
    use crate::commands::top::view;

    #[test]
    fn whatever_a_server_says_is_shown_or_left_out() {
        let many = |value: Value| {
            let kinds = json!({ "get": { "count": value, "failures": value, "seconds": value } });
            let keyspace = json!({
                "name": "a\u{1b}[2J\n", "id": value, "structure": "\n", "gets": value,
                "entries_estimate": value, "written": { "data": value, "a": value, "b": value },
            });
            let keyspaces = vec![keyspace; 3];
            json!({
                "health": { "message": "x\nforged\u{1b}[2J", "failures": 3, "slow_calls": [1] },
                "commits": value, "data_bytes_written": value, "stall_seconds": value,
                "slowdown_seconds": value, "memory_budget": value, "memory_cache": value,
                "memory_memtable": value, "bytes_on_disk": value, "keyspaces": keyspaces,
                "oldest_snapshot_age_seconds": value, "space_amplification": value,
                "server": {
                    "connections": { "http": value, "redis": value },
                    "requests": { "http": kinds, "redis": kinds },
                },
            })
        };
        let values = [
            json!(u64::MAX),
            json!(-1),
            json!(1e300),
            json!("x"),
            json!([]),
            Value::Null,
            json!(7),
        ];
        let first = sample_of(&many(json!(0)));
        for value in values {
            let mut now = sample_of(&many(value));
            now.at = Duration::from_millis(1);
            let span = Span { before: &first, now: &now };
            let lines = view::lines("x", span, Duration::from_secs(1));
            assert!(lines.iter().all(|line| !line.contains(['\n', '\u{1b}'])), "{lines:?}");
            assert!(json_of("x", span)["server"]["connections"].is_u64());
        }
        sample_of(&Value::Null);
        sample_of(&json!([{ "server": [] }]));
    }
}
