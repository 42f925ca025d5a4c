//! W11: as many uniform random overwrites as the W3 store has keys, in batches of 1000, one sync at
//! the end, inside the time. Sizes: the largest while it runs, after the sync, after a flush, after
//! vacuum or compaction, at close.

use super::{STORE_LARGE, VERSION_OVERWRITE, VERSIONS, stream};
use crate::clock::{milliseconds, rate, timed};
use crate::costs::{Costs, wait_until_still};
use crate::data::{KeyShape, operation, pick};
use crate::engine::{Engine, Offered, Result};
use crate::job::Context;
use crate::load::Writes;
use crate::measure::DirectorySize;
use crate::report::Row;
use crate::verify::check_entries;

/// How often the size is looked at, off the clock.
const SIZE_SAMPLES: u64 = 50;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let (keys, memory) = (context.job.keys, context.job.memory);
    let writes = Writes { version: VERSION_OVERWRITE, ..Writes::load(KeyShape::Random16) };
    let dir = context.store(STORE_LARGE);
    let index_of = |j| pick(operation(stream::OVERWRITES, 0, j), keys);
    let engine = E::open(&dir, memory)?;
    let mut costs = Costs::begin(&dir);
    let (mut size_max, mut sampled) = (0, 0);
    let written = writes.run(&engine, keys, index_of, |done| {
        if (done - sampled) * SIZE_SAMPLES >= keys {
            sampled = done;
            size_max = size_max.max(DirectorySize::of(&dir)?.allocated);
        }
        Ok(())
    })?;
    costs.mark("synced")?;
    let mut row = Row::new("W11", "overwrites", rate(keys, written.busy), "ops/s")
        .with("wall_s", written.wall.as_secs_f64())
        .with("sync_ms", milliseconds(written.sync));
    let (flushed, time) = timed(|| engine.flush());
    if flushed? == Offered::Yes {
        costs.mark("flushed")?;
        row = row.with("flush_ms", milliseconds(time));
    }
    let mut after = Costs::begin(&dir);
    wait_until_still(&dir)?;
    after.mark("left_alone")?;
    let (compacted, time) = timed(|| engine.compact());
    if compacted? == Offered::Yes {
        after.mark("compacted")?;
        row = row.with("compact_ms", milliseconds(time));
    }
    for (name, figure) in engine.figures() {
        row = row.with(name, figure);
    }
    let (closed, time) = timed(|| engine.close());
    closed?;
    after.mark("closed")?;
    row = row.with("close_ms", milliseconds(time));

    let mut overwritten = vec![false; keys as usize];
    (0..keys).for_each(|j| overwritten[index_of(j) as usize] = true);
    let engine = E::open(&dir, memory)?;
    let live = check_entries(&engine, KeyShape::Random16, keys, |index| {
        match overwritten.get(index as usize) {
            Some(true) => &[VERSION_OVERWRITE],
            _ => VERSIONS,
        }
    })?;
    engine.close()?;
    let (written, live) = (keys * writes.entry_size(), live * writes.entry_size());
    context.report(row);
    context.report_all(costs.rows("W11", "", written, live));
    context.report_all(after.rows("W11", "maintenance", written, live));
    context.report(Row::new(
        "W11",
        "largest directory / data while running",
        size_max as f64 / live as f64,
        "x",
    ));
    Ok(())
}
