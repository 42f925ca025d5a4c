//! W15: the tail. One thread reads zipf keys of the W3 store at a fixed rate, while another loads
//! new random keys in batches of 1000 as fast as it can.
//!
//! The latency of a read counts from when it was due, not from when it began: reads that had to
//! wait behind a slow one show it (coordinated omission corrected). Batches follow one another, so
//! each counts from when it began.

use super::{STORE_LARGE, VERSIONS, stream};
use crate::clock::{now, rate, timed};
use crate::data::{KeyShape, VERSION_LOAD, ValueChecker, operation};
use crate::engine::{Commit, Engine, Result, wrong};
use crate::job::Context;
use crate::latency::Latency;
use crate::load::{BATCH_LEN, VALUE_LEN};
use crate::records::Records;
use crate::report::Row;
use crate::zipf::Zipf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const READS: u64 = 100_000;
const READS_PER_SECOND: u64 = 5000;
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / READS_PER_SECOND);
/// A sleeping thread wakes up late by about this much: the rest is waited for awake.
const WAKE_UP_MARGIN: Duration = Duration::from_micros(100);
/// The load takes its keys from here on.
const LOAD_FIRST: u64 = 1 << 36;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let (keys, reads) = (context.job.keys, context.count(READS));
    let zipf = Zipf::new(keys);
    let engine = E::open(&context.store(STORE_LARGE), context.job.memory)?;
    let stop = AtomicBool::new(false);
    let (latency, loaded) = thread::scope(|scope| {
        let loader = scope.spawn(|| load_until(&engine, &stop));
        let latency = read_at_rate(&engine, &zipf, reads);
        stop.store(true, Ordering::Relaxed);
        let loaded = loader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (latency, loaded)
    });
    let (latency, load) = (latency?, loaded?);
    engine.close()?;
    let load_rate = rate(load.entries, load.time);
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
        let name = format!("read {name} under load");
        context.report(
            Row::new("W15", &name, latency.quantile_us(quantile), "us")
                .with("reads_per_s", READS_PER_SECOND)
                .with("load_ops_per_s", load_rate),
        );
    }
    context.report(Row::new("W15", "longest stall of a read", latency.max_us() / 1e3, "ms"));
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let name = format!("write of {BATCH_LEN} {name} under load");
        context.report(Row::new("W15", &name, load.batches.quantile_us(quantile), "us"));
    }
    context.report(Row::new("W15", "longest stall of a write", load.batches.max_us() / 1e3, "ms"));
    context.report(Row::new("W15", "load beside the reads", load_rate, "ops/s"));
    Ok(())
}

/// What the loading thread did.
struct Load {
    entries: u64,
    /// With making the entries.
    time: Duration,
    /// Latencies of batches.
    batches: Latency,
}

fn load_until<E: Engine>(engine: &E, stop: &AtomicBool) -> Result<Load> {
    let (start, mut records, mut loaded) = (now(), Records::default(), 0);
    let mut batches = Latency::default();
    while !stop.load(Ordering::Relaxed) {
        let first = LOAD_FIRST + loaded;
        let indexes = first..first + BATCH_LEN;
        records.refill(KeyShape::Random16, indexes, VALUE_LEN, VERSION_LOAD);
        let (written, time) = timed(|| engine.put_batch(&records, Commit::Buffered));
        written?;
        batches.record(time);
        loaded += BATCH_LEN;
    }
    Ok(Load { entries: loaded, time: start.elapsed(), batches })
}

fn read_at_rate<E: Engine>(engine: &E, zipf: &Zipf, reads: u64) -> Result<Latency> {
    let (mut latency, mut checker) = (Latency::default(), ValueChecker::default());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut due = now();
    for j in 0..reads {
        let index = zipf.index(operation(stream::TAIL_GETS, 0, j));
        key.clear();
        KeyShape::Random16.append(index, &mut key);
        value.clear();
        wait_until(due);
        let found = engine.get(&key, &mut value)?;
        latency.record(now().saturating_duration_since(due));
        if !found || checker.version_of(index, &value, VERSIONS).is_none() {
            return wrong(format!("W15: key {index} found: {found}, or a wrong value"));
        }
        due += INTERVAL;
    }
    Ok(latency)
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(now());
    if left > WAKE_UP_MARGIN {
        thread::sleep(left - WAKE_UP_MARGIN);
    }
    while now() < due {
        std::hint::spin_loop();
    }
}
