//! W2: full scans of the W1 and the W3 store, key and value touched: cold (a new process, page
//! cache dropped), the second pass, warm passes, reverse, and with 10,000 unflushed writes.
//!
//! The unflushed writes repeat what the store holds, so that every pass has the same checksum.

use super::{KEYS_SMALL, STORE_LARGE, STORE_SMALL, VALUE_LEN_SMALL, stream};
use crate::clock::{milliseconds, nanoseconds_each, timed};
use crate::data::{KeyShape, VERSION_LOAD, operation, pick};
use crate::engine::{Commit, Engine, Offered, Result, Walk};
use crate::job::Context;
use crate::load::VALUE_LEN;
use crate::measure::drop_page_cache;
use crate::records::Records;
use crate::report::{Row, median};
use crate::verify::Seen;

const PASSES: usize = 3;
const UNFLUSHED_WRITES: u64 = 10_000;

struct Store {
    name: &'static str,
    shape: KeyShape,
    keys: u64,
    value_len: usize,
    /// What stands before the names of its figures.
    prefix: &'static str,
}

pub fn run_small<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let keys = context.count(KEYS_SMALL);
    let (shape, value_len) = (KeyShape::Random21, VALUE_LEN_SMALL);
    scan_store::<E>(context, &Store { name: STORE_SMALL, shape, keys, value_len, prefix: "small" })
}

pub fn run_large<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let keys = context.job.keys;
    let (shape, value_len) = (KeyShape::Random16, VALUE_LEN);
    scan_store::<E>(context, &Store { name: STORE_LARGE, shape, keys, value_len, prefix: "large" })
}

fn scan_store<E: Engine>(context: &mut Context<'_>, store: &Store) -> Result<()> {
    let expected = Seen::of_load(store.shape, store.keys, store.value_len);
    let dir = context.store(store.name);
    let cold = drop_page_cache(&dir);
    let (engine, open_time) = timed(|| E::open(&dir, context.job.memory));
    let engine = engine?;

    let report = |metric: &str, value: f64| {
        Row::new("W2", &format!("{} {metric}", store.prefix), value, "ns/key")
            .with("checksum", expected.checksum)
    };
    let mut rows = vec![
        report("cold", pass(&engine, Walk::Forward, expected)?)
            .with("page_cache", cold.name())
            .with("open_ms", milliseconds(open_time)),
        report("second pass", pass(&engine, Walk::Forward, expected)?),
        report("warm", passes(&engine, Walk::Forward, expected)?),
    ];
    if E::SCANS_BACK == Offered::Yes {
        rows.push(report("reverse", passes(&engine, Walk::Reverse, expected)?));
    }
    let count = context.count(UNFLUSHED_WRITES);
    let indexes = (0..count).map(|j| pick(operation(stream::UNFLUSHED, 0, j), store.keys));
    let records = Records::generate(store.shape, indexes, store.value_len, VERSION_LOAD);
    engine.put_batch(&records, Commit::Buffered)?;
    rows.push(
        report("with unflushed writes", passes(&engine, Walk::Forward, expected)?)
            .with("unflushed", count),
    );
    engine.close()?;
    context.report_all(rows);
    Ok(())
}

/// Nanoseconds per entry of the median pass.
fn passes<E: Engine>(engine: &E, walk: Walk<'_>, expected: Seen) -> Result<f64> {
    let times = (0..PASSES).map(|_| pass(engine, walk, expected)).collect::<Result<Vec<f64>>>()?;
    Ok(median(&times))
}

/// Nanoseconds per entry of one pass, from taking the view on.
fn pass<E: Engine>(engine: &E, walk: Walk<'_>, expected: Seen) -> Result<f64> {
    let (seen, time) = timed(|| Seen::scan(&mut engine.view()?, walk));
    let seen = seen?;
    seen.must_be(expected, "W2")?;
    Ok(nanoseconds_each(seen.count, time))
}
