//! W1: 100,000 x key21 / 21 B. In batches of 1000 with one sync at the end, inside the time; and as
//! single puts without sync. All data is made before the clock starts.

use super::{KEYS_SMALL, STORE_SMALL, VALUE_LEN_SMALL};
use crate::clock::{Stopwatch, milliseconds, rate, timed};
use crate::data::{KeyShape, VERSION_LOAD};
use crate::engine::{Commit, Engine, Result};
use crate::job::Context;
use crate::load::BATCH_LEN;
use crate::records::Records;
use crate::report::Row;
use crate::verify::check_load;

const STORE_SINGLE: &str = "w1-single";
const SHAPE: KeyShape = KeyShape::Random21;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let count = context.count(KEYS_SMALL);
    batches::<E>(context, count)?;
    singles::<E>(context, count)
}

fn batches<E: Engine>(context: &mut Context<'_>, count: u64) -> Result<()> {
    let batches: Vec<Records> = (0..count)
        .step_by(BATCH_LEN as usize)
        .map(|first| {
            let indexes = first..count.min(first + BATCH_LEN);
            Records::generate(SHAPE, indexes, VALUE_LEN_SMALL, VERSION_LOAD)
        })
        .collect();
    let engine = E::open(&context.fresh_store(STORE_SMALL)?, context.job.memory)?;
    let mut watch = Stopwatch::default();
    watch
        .time(|| batches.iter().try_for_each(|batch| engine.put_batch(batch, Commit::Buffered)))?;
    let before_sync = watch.total();
    watch.time(|| engine.sync())?;
    let seen = check_load(&engine, SHAPE, count, VALUE_LEN_SMALL)?;
    engine.close()?;
    context.report(
        Row::new("W1", "batches of 1000, one sync", rate(count, watch.total()), "ops/s")
            .with("sync_ms", milliseconds(watch.total().saturating_sub(before_sync)))
            .with("checksum", seen.checksum),
    );
    Ok(())
}

fn singles<E: Engine>(context: &mut Context<'_>, count: u64) -> Result<()> {
    let records = Records::generate(SHAPE, 0..count, VALUE_LEN_SMALL, VERSION_LOAD);
    let engine = E::open(&context.fresh_store(STORE_SINGLE)?, context.job.memory)?;
    let (result, time) = timed(|| {
        records.iter().try_for_each(|(key, value)| engine.put(key, value, Commit::Buffered))
    });
    result?;
    let (result, sync_time) = timed(|| engine.sync());
    result?;
    let seen = check_load(&engine, SHAPE, count, VALUE_LEN_SMALL)?;
    engine.close()?;
    context.remove_store(STORE_SINGLE)?;
    context.report(
        Row::new("W1", "single puts, no sync", rate(count, time), "ops/s")
            .with("later_sync_ms", milliseconds(sync_time))
            .with("checksum", seen.checksum),
    );
    Ok(())
}
