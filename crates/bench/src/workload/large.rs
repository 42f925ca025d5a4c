//! W10: 20,000 values of 16 KiB in batches of 16, one sync at the end, inside the time; 20,000
//! random reads, each value copied out. By default, and once more with values apart from their keys
//! where the engine can do that.

use super::stream;
use crate::clock::microseconds_each;
use crate::costs::Costs;
use crate::data::KeyShape;
use crate::engine::{Engine, Memory, Offered, Result};
use crate::gets::Gets;
use crate::job::Context;
use crate::load::Writes;
use crate::report::Row;
use crate::verify::check_load;
use std::path::Path;

const STORE: &str = "w10";
const VALUES: u64 = 20_000;
const READS: u64 = 20_000;
const VALUE_LEN: usize = 16 << 10;
const BATCH_LEN: u64 = 16;
/// Values of so many bytes lie apart.
const APART_FROM: u32 = 4 << 10;
const APART: &str = "values apart";

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    load_and_read(context, "", E::open)?;
    if E::VALUES_APART == Offered::Yes {
        load_and_read(context, APART, |dir, memory| E::open_apart(dir, memory, APART_FROM))?;
    }
    Ok(())
}

/// Names of figures get `which` in front.
fn load_and_read<E: Engine>(
    context: &mut Context<'_>,
    which: &str,
    open: impl FnOnce(&Path, Memory) -> Result<E>,
) -> Result<()> {
    let (keys, shape) = (context.count(VALUES), KeyShape::Random16);
    let writes = Writes { value_len: VALUE_LEN, batch_len: BATCH_LEN, ..Writes::load(shape) };
    let data = keys * writes.entry_size();
    let dir = context.fresh_store(STORE)?;
    let mut costs = Costs::begin(&dir);
    let engine = open(&dir, context.job.memory)?;
    let written = writes.run_in_order(&engine, keys)?;
    costs.mark("synced")?;
    let gets = Gets::uniform(stream::LARGE_GETS, context.count(READS), keys, VALUE_LEN);
    let read = gets.run(&engine)?;
    let seen = check_load(&engine, shape, keys, VALUE_LEN)?;
    engine.close()?;
    costs.mark("closed")?;
    let megabytes = data as f64 / 1e6 / written.busy.as_secs_f64();
    let load = Row::new("W10", &named(which, "load"), megabytes, "MB/s");
    context.report(load.with("checksum", seen.checksum));
    let each = microseconds_each(read.count, read.busy);
    let reads = Row::new("W10", &named(which, "random reads"), each, "us");
    context.report(reads.with("checksum", read.checksum));
    context.report_all(costs.rows("W10", which, data, data));
    context.remove_store(STORE)
}

fn named(which: &str, figure: &str) -> String {
    format!("{which} {figure}").trim().to_owned()
}
