//! W10: 20,000 values of 16 KiB in batches of 16, one sync at the end, inside the time; 20,000
//! random reads, each value copied out.

use super::stream;
use crate::clock::microseconds_each;
use crate::costs::Costs;
use crate::data::{KeyShape, VERSION_LOAD};
use crate::engine::{Engine, Result};
use crate::gets::{Choice, Gets, Source};
use crate::job::Context;
use crate::load::Writes;
use crate::report::Row;
use crate::verify::check_load;

const STORE: &str = "w10";
const VALUES: u64 = 20_000;
const READS: u64 = 20_000;
const VALUE_LEN: usize = 16 << 10;
const BATCH_LEN: u64 = 16;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let (keys, shape) = (context.count(VALUES), KeyShape::Random16);
    let writes = Writes { value_len: VALUE_LEN, batch_len: BATCH_LEN, ..Writes::load(shape) };
    let data = keys * writes.entry_size();
    let dir = context.fresh_store(STORE)?;
    let mut costs = Costs::begin(&dir);
    let engine = E::open(&dir, context.job.memory)?;
    let written = writes.run_in_order(&engine, keys)?;
    costs.mark("synced")?;
    let gets = Gets {
        stream: stream::LARGE_GETS,
        count: context.count(READS),
        threads: 1,
        keys,
        value_len: VALUE_LEN,
        versions: &[VERSION_LOAD],
        choice: Choice::Uniform,
        source: Source::Newest,
    };
    let read = gets.run(&engine)?;
    let seen = check_load(&engine, shape, keys, VALUE_LEN)?;
    engine.close()?;
    costs.mark("closed")?;
    let megabytes = data as f64 / 1e6 / written.busy.as_secs_f64();
    context.report(Row::new("W10", "load", megabytes, "MB/s").with("checksum", seen.checksum));
    context.report(
        Row::new("W10", "random reads", microseconds_each(read.count, read.busy), "us")
            .with("checksum", read.checksum),
    );
    context.report_all(costs.rows("W10", "", data, data));
    context.remove_store(STORE)
}
