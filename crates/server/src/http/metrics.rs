//! Figures in the text format of Prometheus, version 0.0.4: those of the engine, and the server's
//! own, whose names begin with `lithedb_server_`.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;

use super::ask::{Ask, Outcome, answer};
use super::body::Body;
use crate::metrics::{Kind, Protocol, Refusal};
use crate::server::Shared;

/// Bounds of the histogram, in microseconds.
const BOUNDS_MICROS: [u64; 18] = [
    25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Name, kind, help and value of a figure that each protocol has.
type Figure<'f> = (&'f str, &'f str, &'f str, &'f dyn Fn(Protocol) -> f64);

/// `GET /metrics`
pub fn show(ask: &mut Ask) -> Outcome {
    let mut out = ask.shared.store.db().stats().to_prometheus();
    push_server(&mut out, &ask.shared);
    let body = Body::whole(Bytes::from(out));
    Ok(answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", body))
}

fn push_server(out: &mut String, shared: &Shared) {
    let metrics = &shared.metrics;
    let served = Protocol::ALL.into_iter().filter(|(protocol, _)| shared.config.serves(*protocol));
    let served: Vec<(Protocol, &str)> = served.collect();
    let uptime = shared.store.began().elapsed().as_secs_f64();
    head(out, "uptime_seconds", "gauge", "Since the server was started.");
    line(out, "uptime_seconds", "", uptime);
    let by_protocol: [Figure<'_>; 4] = [
        ("connections", "gauge", "Connections that are open.", &|protocol| {
            metrics.connections(protocol) as f64
        }),
        ("connections_total", "counter", "Connections since the start.", &|protocol| {
            metrics.accepted(protocol) as f64
        }),
        ("received_bytes_total", "counter", "Bytes of requests, about.", &|protocol| {
            metrics.bytes(protocol).0 as f64
        }),
        ("sent_bytes_total", "counter", "Bytes of answers, about.", &|protocol| {
            metrics.bytes(protocol).1 as f64
        }),
    ];
    for (name, kind, help, figure) in by_protocol {
        head(out, name, kind, help);
        for (protocol, protocol_name) in &served {
            let labels = format!("protocol=\"{protocol_name}\"");
            line(out, name, &labels, figure(*protocol));
        }
    }
    push_requests(out, shared, &served);
    head(out, "refusals_total", "counter", "Clients and requests that were refused, by why.");
    for (why, name) in Refusal::ALL {
        line(out, "refusals_total", &format!("reason=\"{name}\""), metrics.refusals(why));
    }
    let feeds = shared.limits.feeds - shared.http.feeds.available_permits();
    let name = "slow_requests";
    head(out, name, "gauge", "Requests at work that may take long.");
    let http = shared.limits.blocking_requests - shared.store.permits_left();
    line(out, name, "protocol=\"http\"", http);
    let redis = shared.limits.slow_commands - shared.redis.turns_left();
    line(out, name, "protocol=\"redis\"", redis);
    let name = "held_bytes";
    head(out, name, "gauge", "Memory for what is on its way from and to clients, where large.");
    line(out, name, "protocol=\"http\"", shared.http.room.taken());
    line(out, name, "protocol=\"redis\"", shared.redis.room_taken());
    for (name, help, value) in [
        ("snapshots", "Snapshots that clients hold over HTTP.", shared.http.snapshots.count()),
        ("feeds", "Streams of events that are being followed.", feeds),
        ("jobs", "Jobs under way.", shared.http.jobs.running()),
    ] {
        head(out, name, "gauge", help);
        line(out, name, "", value);
    }
}

fn push_requests(out: &mut String, shared: &Shared, served: &[(Protocol, &str)]) {
    let metrics = &shared.metrics;
    let each = |push: &mut dyn FnMut(Protocol, Kind, String)| {
        for (protocol, protocol_name) in served {
            for (kind, name) in Kind::ALL {
                push(*protocol, kind, format!("protocol=\"{protocol_name}\",kind=\"{name}\""));
            }
        }
    };
    let name = "request_failures_total";
    head(out, name, "counter", "Requests that failed, and not by what was asked for.");
    each(&mut |protocol, kind, labels| {
        line(out, name, &labels, metrics.failures(protocol, kind));
    });
    let name = "request_duration_seconds";
    head(out, name, "histogram", "How long requests took, until the last of the answer.");
    each(&mut |protocol, kind, labels| {
        let times = metrics.times(protocol, kind);
        for micros in BOUNDS_MICROS {
            let bound = Duration::from_micros(micros);
            let labels = format!("{labels},le=\"{}\"", bound.as_secs_f64());
            line(out, "request_duration_seconds_bucket", &labels, times.count_below(bound));
        }
        let all = format!("{labels},le=\"+Inf\"");
        line(out, "request_duration_seconds_bucket", &all, times.count());
        line(out, "request_duration_seconds_sum", &labels, times.sum().as_secs_f64());
        line(out, "request_duration_seconds_count", &labels, times.count());
    });
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let name = format!("lithedb_server_{name}");
    // A string takes any text.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl Display) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(out, "lithedb_server_{name}{labels} {value}");
}
