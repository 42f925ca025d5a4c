//! Figures of engine and server as JSON, once or again and again; how the database is; who asks.
//!
//! What the engine counts has the names that it has there: of counters since it was opened, clients
//! derive rates. Times are in seconds.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use lithedb::base::{Clock as _, SystemClock};
use lithedb::{BytesWritten, Followers, Health, HealthState, KeyspaceStats, Stats};
use serde_json::{Map, Value, json};

use super::ask::{Ask, Outcome, json_answer, ok_json};
use super::body::{Body, in_room};
use super::events::{Stream, push_event, stream_answer};
use super::failure::{Code, Failure};
use super::moment::stamp_json;
use super::standing::{LOOK_EVERY, Standing, gone};
use crate::auth::Verb;
use crate::metrics::{Kind, Protocol, Refusal, Summary};
use crate::moment::millis_text;
use crate::server::Shared;

const INTERVAL_RANGE: std::ops::RangeInclusive<f64> = 0.25..=60.0;

macro_rules! members {
    ($of:expr; $($name:ident),* $(,)?) => {{
        let mut object = Map::new();
        $(object.insert(stringify!($name).to_owned(), json!($of.$name));)*
        object
    }};
}

/// `GET /v1/stats`
pub fn show(ask: &mut Ask) -> Outcome {
    ok_json(&stats_json(&ask.shared))
}

/// `GET /v1/stats/stream`
pub fn stream(ask: &mut Ask) -> Outcome {
    let interval = ask.query.number("interval", INTERVAL_RANGE)?.unwrap_or(1.0);
    let (stream, receiver) = Stream::open(ask)?;
    let (shared, standing) = (Arc::clone(&ask.shared), Standing::of(ask));
    tokio::spawn(async move {
        let stream = stream; // With its place, which is not mentioned below.
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut turns = tokio::time::interval(Duration::from_secs_f64(interval));
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut earlier = None;
        let why = loop {
            tokio::select! {
                () = shared.draining() => break Failure::new(Code::Closing, "the server ends"),
                () = stream.pieces.closed() => return,
                _look = looks.tick() => match standing.holds() {
                    true => continue,
                    false => break gone(),
                },
                _turn = turns.tick() => {}
            }
            let mut out = Vec::new();
            let mut stats = stats_json(&shared);
            let times = Times::of(&shared);
            if let Some(earlier) = earlier.replace(times.clone()) {
                stats["server"]["recent"] = times.since_json(&earlier);
            }
            push_event(&mut out, "stats", None, stats.to_string().as_bytes());
            let Ok(room) = shared.http.room.take(out.len()) else { break Failure::busy() };
            if stream.pieces.send(Ok(in_room(Bytes::from(out), room))).await.is_err() {
                return;
            }
        };
        let mut out = Vec::new();
        push_event(&mut out, "end", None, why.to_json()["error"].to_string().as_bytes());
        let _nobody_waits_if_it_fails = stream.pieces.send(Ok(Bytes::from(out))).await;
    });
    stream_answer(receiver)
}

fn stats_json(shared: &Shared) -> Value {
    let stats = shared.store.db().stats();
    let mut object = database_json(&stats);
    object.insert("server".to_owned(), server_json(shared));
    Value::Object(object)
}

fn database_json(stats: &Stats) -> Map<String, Value> {
    let mut object = members!(stats;
        lifetime_commits, lifetime_cleanings, value_bytes_written, value_syncs, value_bytes_pinned,
        cleanings, values_moved, value_bytes_moved, value_files_removed, commits,
        data_bytes_written, wal_bytes_written, wal_bytes_on_disk, wal_files, wal_bytes_kept,
        wal_syncs, memory_budget, memory_memtable, memory_pinned, memory_cache, memory_readers,
        memory_unused, memory_index, memory_transaction, memory_buffers, stalls, slowdowns,
        background_pauses, compaction_rate, cleaning_rate, snapshots, transactions_open,
        transaction_commits, transaction_conflicts, transaction_bytes_kept, read_only,
    );
    let mut add = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    add("stall_seconds", seconds(stats.stall_time));
    add("slowdown_seconds", seconds(stats.slowdown_time));
    let age = stats.oldest_snapshot_age.map(|age| age.as_secs_f64());
    add("oldest_snapshot_age_seconds", json!(age));
    add("memory_used", json!(stats.memory_used()));
    add("write_amplification", finite(stats.write_amplification()));
    add("lifetime_write_amplification", finite(stats.lifetime.write_amplification()));
    add("space_amplification", finite(stats.space_amplification()));
    add("read_amplification", finite(read_amplification(stats)));
    add("bytes_on_disk", json!(stats.bytes_on_disk()));
    add("bytes_live", json!(stats.bytes_live()));
    add("bytes_free", json!(stats.bytes_free()));
    add("bytes_pinned", json!(stats.bytes_pinned()));
    add("value_bytes", json!(stats.value_bytes()));
    add("value_bytes_live", json!(stats.value_bytes_live()));
    add("written", written_json(&stats.session));
    add("lifetime_written", written_json(&stats.lifetime));
    let value_files = stats.value_files.iter();
    let value_files = value_files.map(|file| members!(file; number, bytes, bytes_live));
    add("value_files", json!(value_files.collect::<Vec<_>>()));
    let Followers { views, files_held, bytes_held, .. } = stats.followers;
    let followers = json!({ "views": views, "files_held": files_held, "bytes_held": bytes_held });
    add("followers", followers);
    add(
        "trail",
        stats.trail.as_ref().map_or(Value::Null, |trail| {
            json!({
                "done": stamp_json(trail.done),
                "bytes_behind": trail.bytes_behind,
                "value_bytes_kept": trail.value_bytes_kept,
                "ends_because": trail.end.map(|end| end.reason.to_string()),
            })
        }),
    );
    add("health", health_json(&stats.health));
    add("keyspaces", stats.keyspaces.iter().map(keyspace_json).collect());
    object
}

fn seconds(time: Duration) -> Value {
    json!(time.as_secs_f64())
}

/// JSON has no infinity: a share of nothing is null.
fn finite(value: f64) -> Value {
    json!(value.is_finite().then_some(value))
}

/// Reads from disk for each lookup, of all keyspaces.
fn read_amplification(stats: &Stats) -> f64 {
    let sum = |figure: fn(&KeyspaceStats) -> u64| stats.keyspaces.iter().map(figure).sum::<u64>();
    match sum(|keyspace| keyspace.gets) {
        0 => 0.0,
        gets => sum(|keyspace| keyspace.blocks_read) as f64 / gets as f64,
    }
}

fn written_json(written: &BytesWritten) -> Value {
    let mut object = Map::new();
    object.insert("data".to_owned(), written.data.into());
    for (part, bytes) in written.parts() {
        object.insert(part.to_owned(), bytes.into());
    }
    Value::Object(object)
}

/// The figures of a keyspace.
pub fn keyspace_json(stats: &KeyspaceStats) -> Value {
    let mut object = members!(stats;
        name, id, structure, entries_estimate, entries_expiring, entries_expired_estimate,
        intervals, runs, segments, segments_underused, bytes_on_disk, bytes_live, bytes_dead,
        bytes_pinned, bytes_in_holes, bytes_shared_dead, memtable_bytes, sealed_memtables,
        logical_bytes_written, structure_bytes_written, structure_bytes_since_open,
        index_bytes_written, flushes, consolidations, compaction_debt, fresh_runs, gets,
        blocks_read, block_bytes_read, cache_hits, cache_misses,
    );
    let mut add = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    add("write_amplification", finite(stats.session.write_amplification()));
    add("lifetime_write_amplification", finite(stats.lifetime.write_amplification()));
    add("read_amplification", finite(stats.read_amplification()));
    add("space_amplification", finite(stats.space_amplification()));
    add("written", written_json(&stats.session));
    add("lifetime_written", written_json(&stats.lifetime));
    Value::Object(object)
}

/// Of each protocol its requests by kind: how many, how many failed, and what so many of them took
/// at most.
fn server_json(shared: &Shared) -> Value {
    let metrics = &shared.metrics;
    let of_protocols = |figure: &dyn Fn(Protocol) -> Value| -> Value {
        let protocols = Protocol::ALL.iter();
        protocols.map(|(protocol, name)| ((*name).to_owned(), figure(*protocol))).collect()
    };
    let requests = of_protocols(&|protocol| {
        let kinds = Kind::ALL.iter();
        kinds
            .map(|(kind, name)| ((*name).to_owned(), requests_json(shared, protocol, *kind)))
            .collect()
    });
    let refusals = Refusal::ALL.iter();
    let refusals: Value =
        refusals.map(|(why, name)| ((*name).to_owned(), json!(metrics.refusals(*why)))).collect();
    let feeds = shared.limits.feeds - shared.http.feeds.available_permits();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": shared.store.began().elapsed().as_secs_f64(),
        "time": millis_text(SystemClock::new().wall_millis()),
        "draining": !shared.is_serving(),
        "connections": of_protocols(&|protocol| json!(metrics.connections(protocol))),
        "connections_accepted": of_protocols(&|protocol| json!(metrics.accepted(protocol))),
        "bytes_received": of_protocols(&|protocol| json!(metrics.bytes(protocol).0)),
        "bytes_sent": of_protocols(&|protocol| json!(metrics.bytes(protocol).1)),
        "requests": requests,
        "refusals": refusals,
        "slow_http": shared.limits.blocking_requests - shared.store.permits_left(),
        "slow_redis": shared.limits.slow_commands - shared.redis.turns_left(),
        "memory_http": shared.http.room.taken(),
        "memory_redis": shared.redis.room_taken(),
        "snapshots": shared.http.snapshots.count(),
        "feeds": feeds,
        "jobs_running": shared.http.jobs.running(),
    })
}

fn requests_json(shared: &Shared, protocol: Protocol, kind: Kind) -> Value {
    let mut object = times_json(&shared.metrics.times(protocol, kind));
    object["failures"] = shared.metrics.failures(protocol, kind).into();
    object
}

fn times_json(times: &Summary) -> Value {
    let percentile = |share: f64| seconds(times.percentile(share));
    json!({
        "count": times.count(),
        "seconds": seconds(times.sum()),
        "p50": percentile(0.5),
        "p90": percentile(0.9),
        "p99": percentile(0.99),
        "p999": percentile(0.999),
    })
}

/// How long requests of each protocol and kind took, so that a stream can say it of each interval:
/// percentiles since the start would hardly move.
#[derive(Clone, Debug)]
struct Times(Vec<Vec<Summary>>);

impl Times {
    fn of(shared: &Shared) -> Times {
        let of_protocol = |protocol: Protocol| {
            Kind::ALL.iter().map(|(kind, _)| shared.metrics.times(protocol, *kind)).collect()
        };
        Times(Protocol::ALL.iter().map(|(protocol, _)| of_protocol(*protocol)).collect())
    }

    fn since_json(&self, earlier: &Times) -> Value {
        let mut recent = Map::new();
        for (index, (_, protocol)) in Protocol::ALL.iter().enumerate() {
            let pairs = Kind::ALL.iter().zip(self.0[index].iter().zip(&earlier.0[index]));
            let kinds = pairs.map(|((_, kind), (now, before))| {
                ((*kind).to_owned(), times_json(&now.since(before)))
            });
            recent.insert((*protocol).to_owned(), kinds.collect());
        }
        Value::Object(recent)
    }
}

fn health_json(health: &Health) -> Value {
    let failures = health.failures.iter().map(|failure| {
        json!({
            "task": failure.work.to_string(),
            "keyspace": failure.keyspace,
            "message": failure.what,
            "first": millis_text(failure.first),
            "last": millis_text(failure.last),
            "count": failure.count,
        })
    });
    let slow_calls = health.slow_calls.iter().map(|call| {
        json!({
            "action": format!("{:?}", call.operation).to_lowercase(),
            "path": call.path.display().to_string(),
            "seconds": call.duration.as_secs_f64(),
            "is_over": call.is_over,
        })
    });
    let scrub = health.scrub.as_ref().map(|scrub| {
        json!({
            "passes": scrub.passes,
            "last_pass": scrub.last_pass.map(millis_text),
            "bytes": scrub.bytes,
            "problems": scrub.problem_count,
        })
    });
    let last_failed = health.last_failed_read.as_ref();
    json!({
        "state": state_name(&health.state),
        "message": health.state.to_string(),
        "is_good": health.is_good(),
        "failures": failures.collect::<Vec<_>>(),
        "failures_total": health.failures_total,
        "slow_calls": slow_calls.collect::<Vec<_>>(),
        "slow_calls_total": health.slow_calls_total,
        "reads_retried": health.reads_retried,
        "reads_failed": health.reads_failed,
        "last_failed_read": last_failed.map(|(path, why)| format!("{}: {why}", path.display())),
        "reserve": { "size": health.reserve.size, "held": health.reserve.held },
        "scrub": scrub,
    })
}

fn state_name(state: &HealthState) -> &'static str {
    match state {
        HealthState::Writable => "writable",
        HealthState::Failing => "failing",
        HealthState::DiskFull { .. } => "disk_full",
        HealthState::ReadOnly { .. } => "read_only",
        HealthState::OpenedForReading => "opened_for_reading",
        HealthState::Closed => "closed",
        _ => "other",
    }
}

/// `GET /v1/health`
pub fn health(ask: &mut Ask) -> Outcome {
    ok_json(&health_json(&ask.shared.store.db().health()))
}

/// `GET /health`
pub fn alive() -> Response<Body> {
    json_answer(StatusCode::OK, &json!({ "status": "ok" }))
}

/// `GET /ready`
pub fn ready(ask: &mut Ask) -> Response<Body> {
    let state = ask.shared.store.db().health().state;
    let said = match state {
        _ if !ask.shared.is_serving() => "draining",
        HealthState::ReadOnly { .. } => "read_only",
        HealthState::Closed => "closed",
        _ => return json_answer(StatusCode::OK, &json!({ "status": "ready" })),
    };
    json_answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": said }))
}

/// `GET /v1/whoami`
pub fn who_am_i(ask: &mut Ask) -> Outcome {
    let grants = ask.principal.grants().iter().map(ToString::to_string);
    let verbs = [Verb::Read, Verb::Write, Verb::Admin, Verb::Backup, Verb::Stats].into_iter();
    let with_all = verbs.filter(|verb| ask.principal.may_with_all(*verb)).map(Verb::name);
    ok_json(&json!({
        "name": ask.principal.name(),
        "grants": grants.collect::<Vec<_>>(),
        "with_all": with_all.collect::<Vec<_>>(),
        "tokens": ask.shared.config.tokens.is_some(),
    }))
}
