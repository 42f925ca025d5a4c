//! What an engine trades between writing, reading and space, over its knob for it (if it has one).
//!
//! For each setting: a fresh store is loaded like W3 and overwritten like W11; fifty times
//! meanwhile the overwrites pause for gets and short scans, so that these meet the store as it is
//! while it is written to, not as it is once it was left alone. Written bytes are those of the
//! overwrites, up to the flush that ends them.

use super::{VERSION_OVERWRITE, stream};
use crate::clock::{Stopwatch, microseconds_each, rate};
use crate::costs::Costs;
use crate::data::{KeyShape, VERSION_LOAD, operation, pick};
use crate::engine::{Engine, Result, View, Walk};
use crate::gets::Gets;
use crate::job::Context;
use crate::load::{VALUE_LEN, Writes};
use crate::measure::DirectorySize;
use crate::report::Row;
use std::fs;
use std::time::Duration;

const STORE: &str = "trade";
const PAUSES: u64 = 50;
/// In each pause.
const GETS: u64 = 1000;
const SCANS: u64 = 100;
const SCAN_LEN: u64 = 50;
const NAME: &str = "Trade";

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    for &setting in E::TRADES {
        run_setting::<E>(context, setting)?;
    }
    Ok(())
}

fn run_setting<E: Engine>(context: &mut Context<'_>, setting: f64) -> Result<()> {
    let keys = context.job.keys;
    let dir = context.store(STORE);
    let engine = E::open_at(&dir, context.job.memory, setting)?;
    let loads = Writes::load(KeyShape::Random16);
    loads.run_in_order(&engine, keys)?;
    engine.flush()?;

    let writes = Writes { version: VERSION_OVERWRITE, ..loads };
    let index_of = |j| pick(operation(stream::OVERWRITES, 0, j), keys);
    let mut costs = Costs::begin(&dir);
    let mut reads = Reads::default();
    let (mut size_max, mut paused) = (0, 0);
    let written = writes.run(&engine, keys, index_of, |done| {
        if (done - paused) * PAUSES >= keys {
            paused = done;
            size_max = size_max.max(DirectorySize::of(&dir)?.allocated);
            reads.run(context, &engine)?;
        }
        Ok(())
    })?;
    engine.flush()?;
    costs.mark("flushed")?;
    engine.close()?;
    fs::remove_dir_all(&dir)?;

    let data = keys * writes.entry_size();
    let named = |what: &str| format!("{what} at {setting}");
    let row = |what: &str, value, unit| Row::new(NAME, &named(what), value, unit);
    context.report(row("overwrites", rate(keys, written.busy), "ops/s"));
    let amplification = costs.rows(NAME, "", data, data);
    context.report_all(amplification.into_iter().filter(|row| row.unit == "x").map(|row| {
        let metric = named(&row.metric);
        Row { metric, ..row }
    }));
    context.report(row("largest directory / data", size_max as f64 / data as f64, "x"));
    context.report(row("get", microseconds_each(reads.gets, reads.get_time), "us"));
    let scans = microseconds_each(reads.scans, reads.scan_watch.total());
    context.report(row("seek + next 50", scans, "us"));
    Ok(())
}

/// Reads in all pauses.
#[derive(Default)]
struct Reads {
    gets: u64,
    get_time: Duration,
    scans: u64,
    scan_watch: Stopwatch,
}

impl Reads {
    fn run<E: Engine>(&mut self, context: &Context<'_>, engine: &E) -> Result<()> {
        let keys = context.job.keys;
        let stream = stream::TRADE_GETS + self.scans; // Other keys in each pause.
        let uniform = Gets::uniform(stream, context.count(GETS), keys, VALUE_LEN);
        let gets = Gets { versions: &[VERSION_LOAD, VERSION_OVERWRITE], ..uniform };
        let read = gets.run(engine)?;
        self.gets += read.count;
        self.get_time += read.busy;
        for _ in 0..context.count(SCANS) {
            let index = pick(operation(stream::TRADE_SCANS, 0, self.scans), keys);
            let key = KeyShape::Random16.key(index);
            let mut sum = 0u64;
            self.scan_watch.time(|| {
                engine.view()?.scan(Walk::From { key: &key, limit: SCAN_LEN }, |key, value| {
                    sum = sum.wrapping_add(crate::data::entry_checksum(key, value));
                })
            })?;
            std::hint::black_box(sum);
            self.scans += 1;
        }
        Ok(())
    }
}
