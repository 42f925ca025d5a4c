//! `INFO`: what clients and monitors look for, in the words of Redis, as far as it is so here.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::collection::expiring;
use crate::config::Durability;
use crate::metrics::{Kind, Protocol};
use crate::server::Shared;

/// The version of Redis whose commands and replies these are.
pub const REDIS_VERSION: &str = "7.2.0";

/// How much somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What kind of server it is.
    Little,
    All,
}

const SECTIONS: [&str; 8] =
    ["server", "clients", "memory", "persistence", "stats", "replication", "cluster", "keyspace"];

/// The sections that are asked for, or all.
pub fn text(shared: &Shared, asked: &[String], told: Told) -> String {
    let is_all = asked.is_empty()
        || asked.iter().any(|word| matches!(&**word, "all" | "default" | "everything"));
    let mut text = String::new();
    for section in SECTIONS {
        let is_asked = is_all || asked.iter().any(|word| word == section);
        let is_told = told == Told::All || matches!(section, "server" | "replication" | "cluster");
        if is_asked && is_told {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let mut title = section.to_owned();
            title[..1].make_ascii_uppercase();
            line(&mut text, format_args!("# {title}"));
            add_section(&mut text, section, shared);
        }
    }
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _to_a_string = write!(text, "{what}\r\n");
}

fn add_section(text: &mut String, section: &str, shared: &Shared) {
    let uptime = shared.store.began().elapsed().as_secs();
    match section {
        "server" => {
            line(text, format_args!("redis_version:{REDIS_VERSION}"));
            line(text, format_args!("redis_mode:standalone"));
            line(text, format_args!("lithedb_version:{}", env!("CARGO_PKG_VERSION")));
            line(text, format_args!("os:{}", std::env::consts::OS));
            line(text, format_args!("arch_bits:{}", usize::BITS));
            line(text, format_args!("multiplexing_api:tokio"));
            line(text, format_args!("process_id:{}", std::process::id()));
            let port = shared.redis_address.map_or(0, |address| address.port());
            line(text, format_args!("tcp_port:{port}"));
            line(text, format_args!("uptime_in_seconds:{uptime}"));
            line(text, format_args!("uptime_in_days:{}", uptime / 86_400));
        }
        "clients" => {
            let count = shared.metrics.connections(Protocol::Redis);
            line(text, format_args!("connected_clients:{count}"));
            line(text, format_args!("maxclients:{}", shared.limits.connections));
            line(text, format_args!("blocked_clients:0"));
        }
        "memory" => {
            let used = resident_bytes();
            line(text, format_args!("used_memory:{used}"));
            line(text, format_args!("used_memory_rss:{used}"));
            line(text, format_args!("mem_clients_normal:{}", shared.redis.room.taken()));
            line(text, format_args!("maxmemory:0"));
            line(text, format_args!("maxmemory_policy:noeviction"));
        }
        "persistence" => {
            line(text, format_args!("loading:0"));
            line(text, format_args!("async_loading:0"));
            line(text, format_args!("rdb_bgsave_in_progress:0"));
            line(text, format_args!("rdb_last_bgsave_status:ok"));
            let is_logged = i32::from(shared.config.durability != Durability::Buffered);
            line(text, format_args!("aof_enabled:{is_logged}"));
            line(text, format_args!("aof_rewrite_in_progress:0"));
            line(text, format_args!("aof_last_write_status:ok"));
        }
        "stats" => add_stats(text, shared),
        "replication" => {
            line(text, format_args!("role:master"));
            line(text, format_args!("connected_slaves:0"));
            line(text, format_args!("master_repl_offset:0"));
        }
        "cluster" => line(text, format_args!("cluster_enabled:0")),
        _ => add_keyspaces(text, shared),
    }
}

/// Commands that were done since the server began.
pub fn commands_done(shared: &Shared) -> u64 {
    let times = |(kind, _): &(Kind, _)| shared.metrics.times(Protocol::Redis, *kind);
    Kind::ALL.iter().map(|kind| times(kind).count()).sum()
}

fn add_stats(text: &mut String, shared: &Shared) {
    let metrics = &shared.metrics;
    line(text, format_args!("total_connections_received:{}", metrics.accepted(Protocol::Redis)));
    line(text, format_args!("total_commands_processed:{}", commands_done(shared)));
    let pace = shared.redis.pace.load(Ordering::Relaxed);
    line(text, format_args!("instantaneous_ops_per_sec:{pace}"));
    let looks = &shared.redis.looks;
    line(text, format_args!("keyspace_hits:{}", looks.hits.load(Ordering::Relaxed)));
    line(text, format_args!("keyspace_misses:{}", looks.misses.load(Ordering::Relaxed)));
    let (received, sent) = metrics.bytes(Protocol::Redis);
    line(text, format_args!("total_net_input_bytes:{received}"));
    line(text, format_args!("total_net_output_bytes:{sent}"));
    let refused = metrics.refusals(crate::metrics::Refusal::Connections);
    line(text, format_args!("rejected_connections:{refused}"));
    line(text, format_args!("pubsub_channels:0"));
    line(text, format_args!("pubsub_patterns:0"));
}

/// Databases with something in them.
fn add_keyspaces(text: &mut String, shared: &Shared) {
    for (number, database) in shared.redis.databases.iter().enumerate() {
        let handles = database.handles();
        let strings = handles.strings.map_or(0, |strings| strings.len().unwrap_or(0));
        let count = |range: Range<Vec<u8>>| {
            let second = handles.second.as_ref();
            second.map_or(0, |second| second.count(range).unwrap_or(0))
        };
        let now = shared.store.db().snapshot().time();
        let (keys, expires) = (strings + count(b"r".to_vec()..b"s".to_vec()), count(expiring(now)));
        if keys > 0 {
            line(text, format_args!("db{number}:keys={keys},expires={expires},avg_ttl=0"));
        }
    }
}

/// As most systems have it.
#[cfg(target_os = "linux")]
const PAGE_SIZE: u64 = 4096;

/// What the process has in memory, as far as the system says.
#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_SIZE
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> u64 {
    0
}
