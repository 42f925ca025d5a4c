//! W17: what the tables of Roots read, beside W8. On stores of 1k, 100k and 1M entries that were
//! opened anew: gets, as many once more, drawn anew, gets of 1000 keys at a time, scans of the
//! square root and of a sixteenth of the entries. And large values: each put durably, then each
//! read out of a store that was opened anew.
//!
//! The first gets meet an engine that has read nothing yet, and may be at work still on what the
//! load has left; those that follow show what it settles at.
//!
//! To have a cache that holds little of what is read, the engine is given little memory.

use super::stream;
use crate::clock::{Stopwatch, microseconds_each, nanoseconds_each, timed};
use crate::data::{KeyShape, VERSION_LOAD, ValueChecker, append_value, entry_checksum};
use crate::data::{operation, pick};
use crate::engine::{Commit, Engine, Result, View, Walk, wrong};
use crate::gets::Gets;
use crate::job::Context;
use crate::load::{VALUE_LEN, Writes};
use crate::report::Row;
use crate::verify::{Seen, check_load};
use std::path::Path;

const STORE: &str = "w17";
const SHAPE: KeyShape = KeyShape::Random16;
const TABLES: [(&str, u64); 3] = [("1k", 1000), ("100k", 100_000), ("1M", 1_000_000)];
const GETS: u64 = 200_000;
/// Keys that are read at a time, and how often.
const TOGETHER: u64 = 1000;
const MULTI_GETS: u64 = 200;
/// Entries that the scans of one length visit together, and how many scans that may be.
const SCANNED: u64 = 1_000_000;
const SCANS_MAX: u64 = 2000;
const SCANS_MIN: u64 = 16;
/// Large values: bytes of each, and how many.
const LARGE: [(&str, usize, u64); 3] =
    [("1 KiB", 1 << 10, 1000), ("1 MiB", 1 << 20, 64), ("64 MiB", 64 << 20, 4)];

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    for (name, full) in TABLES {
        let keys = context.count(full).max(16);
        let dir = context.fresh_store(STORE)?;
        let engine = E::open(&dir, context.job.memory)?;
        Writes::load(SHAPE).run_in_order(&engine, keys)?;
        check_load(&engine, SHAPE, keys, VALUE_LEN)?;
        engine.close()?;
        let engine = E::open(&dir, context.job.memory)?;
        read_table(context, &engine, name, keys)?;
        engine.close()?;
    }
    for (name, len, count) in LARGE {
        put_and_get_large::<E>(context, name, len, context.count(count))?;
    }
    context.remove_store(STORE)
}

fn read_table<E: Engine>(context: &Context<'_>, engine: &E, name: &str, keys: u64) -> Result<()> {
    for (pass, what) in (0..).zip(["gets", "further gets"]) {
        let stream = stream::ROOTS_GETS + 0x10 * pass;
        let read = Gets::uniform(stream, context.count(GETS), keys, VALUE_LEN).run(engine)?;
        let each = nanoseconds_each(read.count, read.busy);
        let row = Row::new("W17", &format!("{what} of {name}"), each, "ns");
        context.report(row.with("checksum", read.checksum));
    }
    let (checksum, each) = multi_gets(context, engine, keys)?;
    let row = Row::new("W17", &format!("gets of 1000 at a time of {name}"), each, "ns/key");
    context.report(row.with("checksum", checksum));
    let order = Order::of(keys);
    for (scan, len) in [("square-root scans", keys.isqrt()), ("sixteenth scans", keys / 16)] {
        let (checksum, each) = order.scan(context, engine, len.max(1))?;
        let row = Row::new("W17", &format!("{scan} of {name}"), each, "ns/key");
        context.report(row.with("checksum", checksum));
    }
    Ok(())
}

/// Reads of uniform keys, many at a time: the checksum and nanoseconds for each key.
fn multi_gets<E: Engine>(context: &Context<'_>, engine: &E, keys: u64) -> Result<(u64, f64)> {
    let (mut watch, mut checker, mut checksum) =
        (Stopwatch::default(), ValueChecker::default(), 0u64);
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    let (rounds, together) = (context.count(MULTI_GETS), context.count(TOGETHER));
    for round in 0..rounds {
        let x = |j| operation(stream::ROOTS_MULTI_GETS, round, j);
        let indexes: Vec<u64> = (0..together).map(|j| pick(x(j), keys)).collect();
        let wanted: Vec<Vec<u8>> = indexes.iter().map(|&index| SHAPE.key(index)).collect();
        values.clear();
        ends.clear();
        watch.time(|| engine.view()?.get_many(&wanted, &mut values, &mut ends))?;
        let mut start = 0;
        for (position, &index) in indexes.iter().enumerate() {
            let Some(Some(end)) = ends.get(position).copied() else {
                return wrong(format!("W17: key {index} of many: not found"));
            };
            let value = &values[start..end];
            let version = checker.version_of(index, value, &[VERSION_LOAD]);
            if value.len() != VALUE_LEN || version.is_none() {
                return wrong(format!("W17: key {index} of many: wrong value"));
            }
            checksum = checksum.wrapping_add(u64::from(value.last().copied().unwrap_or(0)));
            start = end;
        }
    }
    Ok((checksum, nanoseconds_each(rounds * together, watch.total())))
}

/// The entries of a table in the order of their keys.
struct Order {
    keys: Vec<Vec<u8>>,
    /// Checksums of all entries in front of each, and of all.
    sums: Vec<u64>,
}

impl Order {
    fn of(count: u64) -> Order {
        let mut keyed: Vec<(Vec<u8>, u64)> =
            (0..count).map(|index| (SHAPE.key(index), index)).collect();
        keyed.sort_unstable();
        let (mut sums, mut value, mut sum) = (vec![0], Vec::new(), 0u64);
        for (key, index) in &keyed {
            value.clear();
            append_value(*index, VERSION_LOAD, VALUE_LEN, &mut value);
            sum = sum.wrapping_add(entry_checksum(key, &value));
            sums.push(sum);
        }
        Order { keys: keyed.into_iter().map(|(key, _)| key).collect(), sums }
    }

    /// Scans of `len` entries, each on a view of its own from a random entry on: the checksum and
    /// nanoseconds for each entry.
    fn scan<E: Engine>(&self, context: &Context<'_>, engine: &E, len: u64) -> Result<(u64, f64)> {
        let rounds = context.count(SCANNED / len).clamp(SCANS_MIN, SCANS_MAX);
        let (mut watch, mut checksum) = (Stopwatch::default(), 0u64);
        for round in 0..rounds {
            let starts = self.keys.len() as u64 - len + 1;
            let first = pick(operation(stream::ROOTS_SCANS, len, round), starts) as usize;
            let walk = Walk::From { key: &self.keys[first], limit: len };
            let seen = watch.time(|| Seen::scan(&mut engine.view()?, walk))?;
            let sum = self.sums[first + len as usize].wrapping_sub(self.sums[first]);
            seen.must_be(Seen { count: len, checksum: sum }, "W17")?;
            checksum = checksum.wrapping_add(sum);
        }
        Ok((checksum, nanoseconds_each(rounds * len, watch.total())))
    }
}

fn put_and_get_large<E: Engine>(
    context: &Context<'_>,
    name: &str,
    len: usize,
    count: u64,
) -> Result<()> {
    let dir = context.fresh_store(STORE)?;
    let engine = E::open(&dir, context.job.memory)?;
    let (mut watch, mut value) = (Stopwatch::default(), Vec::with_capacity(len));
    for index in 0..count {
        value.clear();
        append_value(index, VERSION_LOAD, len, &mut value);
        watch.time(|| engine.put(&SHAPE.key(index), &value, Commit::Durable))?;
    }
    engine.close()?;
    let each = microseconds_each(count, watch.total());
    context.report(Row::new("W17", &format!("durable puts of {name}"), each, "us"));
    let each = get_large::<E>(context, &dir, len, count)?;
    context.report(Row::new("W17", &format!("gets of {name} values"), each, "us"));
    Ok(())
}

/// Reads each value once, and says how many microseconds that took for each.
fn get_large<E: Engine>(context: &Context<'_>, dir: &Path, len: usize, count: u64) -> Result<f64> {
    let engine = E::open(dir, context.job.memory)?;
    let (mut busy, mut checker) = (std::time::Duration::ZERO, ValueChecker::default());
    let mut value = Vec::with_capacity(len);
    for j in 0..count {
        let index = count - 1 - j;
        value.clear();
        let (found, time) = timed(|| engine.get(&SHAPE.key(index), &mut value));
        busy += time;
        let version = checker.version_of(index, &value, &[VERSION_LOAD]);
        if !found? || value.len() != len || version.is_none() {
            return wrong(format!("W17: the value of {len} bytes of key {index} is wrong"));
        }
    }
    engine.close()?;
    Ok(microseconds_each(count, busy))
}
