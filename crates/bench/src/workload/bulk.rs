//! W14: a load of a million sorted entries (batches of 1000, one sync), the count of the 10 % in
//! the middle by a scan, and their removal: in one operation where the engine has that, else key by
//! key.

use crate::clock::{nanoseconds_each, rate, timed};
use crate::data::KeyShape;
use crate::engine::{Commit, Engine, Offered, Result, View, Walk, wrong};
use crate::job::Context;
use crate::load::Writes;
use crate::report::Row;
use crate::verify::check_load;
use std::ops::Range;

const STORE: &str = "w14";
const KEYS: u64 = 1_000_000;
const SHAPE: KeyShape = KeyShape::Ascending16;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let keys = context.count(KEYS).max(10);
    let middle = keys * 45 / 100..keys * 55 / 100;
    let middle_len = middle.end - middle.start;
    let engine = E::open(&context.fresh_store(STORE)?, context.job.memory)?;
    let writes = Writes::load(SHAPE);
    let written = writes.run_in_order(&engine, keys)?;
    let seen = check_load(&engine, SHAPE, keys, writes.value_len)?;
    context.report(
        Row::new("W14", "sorted load", rate(keys, written.busy), "ops/s")
            .with("checksum", seen.checksum),
    );

    let (count, time) = timed(|| count_range(&engine, &middle));
    if count? != middle_len {
        return wrong(format!("W14: the count of the range is not {middle_len}"));
    }
    context.report(Row::new(
        "W14",
        "count of a range by scan",
        nanoseconds_each(middle_len, time),
        "ns/key",
    ));

    let (offered, time) = timed(|| remove_range(&engine, &middle));
    let how = match offered? {
        Offered::Yes => "one operation",
        Offered::No => "key by key",
    };
    if count_range(&engine, &middle)? != 0 {
        return wrong("W14: entries are left in the removed range");
    }
    let left = engine.view()?.scan(Walk::Forward, |_, _| {})?;
    if left != keys - middle_len {
        return wrong(format!("W14: {left} entries are left after the removal"));
    }
    engine.close()?;
    context.report(
        Row::new("W14", "range delete", nanoseconds_each(middle_len, time), "ns/key")
            .with("how", how),
    );
    context.remove_store(STORE)
}

/// Entries from `range.start` to the last key below `range.end`, counted by walking over them.
fn count_range<E: Engine>(engine: &E, range: &Range<u64>) -> Result<u64> {
    let (start, end) = (SHAPE.key(range.start), SHAPE.key(range.end));
    let (limit, mut inside) = (range.end - range.start, 0);
    engine.view()?.scan(Walk::From { key: &start, limit }, |key, _| {
        inside += u64::from(*key < *end);
    })?;
    Ok(inside)
}

fn remove_range<E: Engine>(engine: &E, range: &Range<u64>) -> Result<Offered> {
    let (start, end) = (SHAPE.key(range.start), SHAPE.key(range.end));
    let offered = engine.delete_range(&start, &end, Commit::Buffered)?;
    if offered == Offered::No {
        let mut key = Vec::new();
        for index in range.clone() {
            key.clear();
            SHAPE.append(index, &mut key);
            engine.delete(&key, Commit::Buffered)?;
        }
    }
    engine.sync()?;
    Ok(offered)
}
