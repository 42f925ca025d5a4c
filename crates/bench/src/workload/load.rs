//! W3: load 5M x key16 / 100 B in batches of 1000, no sync until one at the end, inside the time.
//!
//! What it costs is looked at after the sync, after a flush (where the engine has one), and after
//! the store was closed. Each batch is made off the clock; the wall time with that is a detail.

use super::STORE_LARGE;
use crate::clock::{milliseconds, rate, timed};
use crate::costs::Costs;
use crate::data::KeyShape;
use crate::engine::{Engine, Offered, Result};
use crate::job::Context;
use crate::load::Writes;
use crate::report::Row;
use crate::verify::check_load;

const STORE_ASCENDING: &str = "w3-ascending";

pub fn run_random<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    run::<E>(context, STORE_LARGE, KeyShape::Random16, "random")
}

pub fn run_ascending<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    run::<E>(context, STORE_ASCENDING, KeyShape::Ascending16, "ascending")?;
    context.remove_store(STORE_ASCENDING)
}

fn run<E: Engine>(
    context: &mut Context<'_>,
    store: &str,
    shape: KeyShape,
    prefix: &str,
) -> Result<()> {
    let (keys, memory) = (context.job.keys, context.job.memory);
    let writes = Writes::load(shape);
    let dir = context.fresh_store(store)?;
    let mut costs = Costs::begin(&dir);
    let engine = E::open(&dir, memory)?;
    let written = writes.run_in_order(&engine, keys)?;
    costs.mark("synced")?;
    let (flushed, flush_time) = timed(|| engine.flush());
    let flushed = flushed?;
    if flushed == Offered::Yes {
        costs.mark("flushed")?;
    }
    let figures = engine.figures();
    let (closed, close_time) = timed(|| engine.close());
    closed?;
    costs.mark("closed")?;

    let mut row = Row::new("W3", prefix, rate(keys, written.busy), "ops/s")
        .with("wall_s", written.wall.as_secs_f64())
        .with("sync_ms", milliseconds(written.sync))
        .with("close_ms", milliseconds(close_time));
    if flushed == Offered::Yes {
        row = row.with("flush_ms", milliseconds(flush_time));
    }
    for (name, figure) in figures {
        row = row.with(name, figure);
    }
    let data = keys * writes.entry_size();
    let cost_rows = costs.rows("W3", prefix, data, data);

    let engine = E::open(&dir, memory)?;
    let seen = check_load(&engine, shape, keys, writes.value_len)?;
    engine.close()?;
    context.report(row.with("checksum", seen.checksum));
    context.report_all(cost_rows);
    Ok(())
}
