//! W4: a million gets on the W3 store, each value copied out (on the clock) and checked (off it):
//! uniform and zipf on one and two threads, on one snapshot, and misses.
//!
//! A pass of as many uniform gets, not counted, goes before: caches are then as full as they get.

use super::{STORE_LARGE, stream};
use crate::clock::{nanoseconds_each, rate};
use crate::costs::{Reads, peak_memory_row};
use crate::engine::{Engine, Result};
use crate::gets::{Choice, Gets, Source};
use crate::job::Context;
use crate::load::VALUE_LEN;
use crate::report::Row;
use crate::zipf::Zipf;

const GETS: u64 = 1_000_000;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let keys = context.job.keys;
    let zipf = Zipf::new(keys);
    let engine = E::open(&context.store(STORE_LARGE), context.job.memory)?;
    let uniform = Gets::uniform(stream::GETS, context.count(GETS), keys, VALUE_LEN);
    Gets { stream: stream::WARM_UP, ..uniform }.run(&engine)?;

    let zipf = Gets { choice: Choice::Zipf(&zipf), ..uniform };
    let one_view = Gets { source: Source::OneView, ..uniform };
    let misses = Gets { stream: stream::MISSES, choice: Choice::Misses, ..uniform };
    for (name, gets) in
        [("uniform", uniform), ("zipf", zipf), ("one snapshot", one_view), ("misses", misses)]
    {
        let reads = Reads::begin();
        let read = gets.run(&engine)?;
        let row = Row::new("W4", name, nanoseconds_each(read.count, read.busy), "ns");
        context.report(reads.add_to(row, read.count).with("checksum", read.checksum));
    }
    for (name, gets) in [("uniform, 2 threads", uniform), ("zipf, 2 threads", zipf)] {
        let read = Gets { threads: 2, ..gets }.run(&engine)?;
        context.report(
            Row::new("W4", name, rate(read.count, read.busy), "ops/s")
                .with("checksum", read.checksum),
        );
    }
    engine.close()?;
    context.report_all(peak_memory_row("W4", "peak memory"));
    Ok(())
}
