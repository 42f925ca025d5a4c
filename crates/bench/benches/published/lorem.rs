//! LoremDB's: half a million small puts, lookups of the oldest tenth and of what is not there, with
//! many small tables and few large ones, with filters and without, merged and not.
//!
//! The keys that are not there come after all that are, so that their ranges alone tell. LoremDB
//! never syncs; here each table is synced when it is flushed, the log is not.

use std::thread;

use lithedb::{Compaction, Db, Durability, Keyspace, KeyspaceOptions, Leveled};

use super::{Asked, Result, Row, Scratch, nanos_each};

/// One more than what 50 flushes take, so that one row is left in memory.
const PUT_COUNT: u64 = 500_001;
const LOOKUP_COUNT: u64 = 50_000;
const SMALL: u64 = 10_000;
const LARGE: u64 = 100_000;
const THREADS: u64 = 10;

/// A way of keeping the same rows.
struct Shape {
    name: &'static str,
    /// Puts in front of each flush.
    flush_every: u64,
    has_filter: bool,
    is_merged: bool,
    /// Seconds of all puts, milliseconds of all hits and of all misses.
    published: [f64; 3],
}

const SHAPES: [Shape; 8] = [
    Shape::new("small tables, filter", (SMALL, true, false), [4.19, 135.0, 58.0]),
    Shape::new("small tables, no filter", (SMALL, false, false), [4.16, 112.0, 39.0]),
    Shape::new("large tables, filter", (LARGE, true, false), [4.11, 68.0, 8.5]),
    Shape::new("large tables, no filter", (LARGE, false, false), [3.91, 70.0, 12.0]),
    Shape::new("not merged, filter", (SMALL, true, false), [4.25, 125.0, 52.0]),
    Shape::new("not merged, no filter", (SMALL, false, false), [4.44, 114.0, 34.0]),
    Shape::new("merged, filter", (SMALL, true, true), [15.4, 62.0, 8.3]),
    Shape::new("merged, no filter", (SMALL, false, true), [15.7, 68.0, 9.1]),
];

impl Shape {
    const fn new(
        name: &'static str,
        (flush_every, has_filter, is_merged): (u64, bool, bool),
        published: [f64; 3],
    ) -> Shape {
        Shape { name, flush_every, has_filter, is_merged, published }
    }

    fn options(&self) -> KeyspaceOptions {
        let options = KeyspaceOptions::lsm().filter_bits(if self.has_filter { 10 } else { 0 });
        match self.is_merged {
            true => options,
            false => options.compaction(Compaction::Leveled(Leveled::new().level0_trigger(64))),
        }
    }

    fn rows(&self, asked: &Asked) -> Result<Vec<Row>> {
        let scratch = Scratch::new(asked, "lorem")?;
        let db = Db::builder().durability(Durability::Buffered).open(&scratch.0)?;
        let keyspace = db.create_keyspace("rows", self.options())?;
        let _pause = (!self.is_merged).then(|| db.pause_background());
        let puts = nanos_each(PUT_COUNT, || {
            for number in 0..PUT_COUNT {
                keyspace.put(format!("key-{number}"), format!("value-{number}"))?;
                if (number + 1) % self.flush_every == 0 {
                    db.flush()?;
                }
            }
            Ok(())
        })?;
        let tables = keyspace.tables().len();
        let hits = nanos_each(LOOKUP_COUNT, || hits(&keyspace, LOOKUP_COUNT, LOOKUP_COUNT))?;
        let misses = nanos_each(LOOKUP_COUNT, || misses(&keyspace, "missing-", LOOKUP_COUNT))?;
        db.close()?;
        let [put, hit, miss] = self.published;
        let name = self.name;
        Ok(vec![
            Row::nanos(format!("{name}: put"), put * 1e9 / PUT_COUNT as f64, puts),
            Row::nanos(format!("{name}: hit"), hit * 1e6 / LOOKUP_COUNT as f64, hits),
            Row::nanos(format!("{name}: miss"), miss * 1e6 / LOOKUP_COUNT as f64, misses),
            Row::count(format!("{name}: tables"), tables as f64),
        ])
    }
}

/// Gets `count` times, round and round the first `among` rows.
fn hits(keyspace: &Keyspace, count: u64, among: u64) -> Result<()> {
    for number in 0..count {
        let number = number % among;
        let value = keyspace.get(format!("key-{number}"))?;
        if value.as_deref() != Some(format!("value-{number}").as_bytes()) {
            return Err(format!("key-{number} has another value").into());
        }
    }
    Ok(())
}

fn misses(keyspace: &Keyspace, prefix: &str, count: u64) -> Result<()> {
    for number in 0..count {
        if keyspace.get(format!("{prefix}{number}"))?.is_some() {
            return Err(format!("{prefix}{number} is there").into());
        }
    }
    Ok(())
}

/// Those of its tests: puts alone, lookups in what one table or a few hold, ten threads.
fn test_rows(asked: &Asked, has_filter: bool) -> Result<Vec<Row>> {
    let name = if has_filter { "filter" } else { "no filter" };
    let either = |with: f64, without: f64| if has_filter { with } else { without };
    let mut rows = Vec::new();
    for (count, hit, miss) in [
        (10_000, either(5364.0, 5333.0), either(65.1, 67.4)),
        (100_000, either(5418.0, 5378.0), either(97.5, 110.4)),
    ] {
        let scratch = Scratch::new(asked, "lorem")?;
        let db = Db::builder().durability(Durability::Buffered).open(&scratch.0)?;
        let options = KeyspaceOptions::lsm().filter_bits(if has_filter { 10 } else { 0 });
        let keyspace = db.create_keyspace("rows", options)?;
        let puts = nanos_each(count, || fill(&keyspace, count))?;
        db.flush()?;
        let hits_each = nanos_each(PUT_COUNT, || hits(&keyspace, PUT_COUNT, count))?;
        let misses_each = nanos_each(PUT_COUNT, || misses(&keyspace, "miss-", PUT_COUNT))?;
        let at = format!("test of {count}, {name}");
        if count == 100_000 {
            rows.push(Row::nanos(format!("{at}: put"), either(73_167.0, 80_792.0), puts));
            let puts = each_of_threads(|| fill(&keyspace, count))? / count as f64;
            rows.push(Row::nanos(
                format!("{at}: put, 10 threads"),
                either(18_639.0, 18_889.0),
                puts,
            ));
        } else {
            let gets = each_of_threads(|| hits(&keyspace, PUT_COUNT, count))? / PUT_COUNT as f64;
            rows.push(Row::nanos(format!("{at}: hit, 10 threads"), either(4696.0, 4754.0), gets));
        }
        rows.push(Row::nanos(format!("{at}: hit"), hit, hits_each));
        rows.push(Row::nanos(format!("{at}: miss"), miss, misses_each));
        db.close()?;
    }
    Ok(rows)
}

fn fill(keyspace: &Keyspace, count: u64) -> Result<()> {
    for number in 0..count {
        keyspace.put(format!("key-{number}"), format!("value-{number}"))?;
    }
    Ok(())
}

/// Nanoseconds until all threads have done the same, for each of them.
fn each_of_threads(work: impl Fn() -> Result<()> + Sync) -> Result<f64> {
    nanos_each(THREADS, || {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(&work)).collect();
            let mut outcomes = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            outcomes.try_for_each(|outcome| outcome)
        })
    })
}

pub fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for shape in &SHAPES {
        rows.extend(shape.rows(asked)?);
    }
    for has_filter in [true, false] {
        rows.extend(test_rows(asked, has_filter)?);
    }
    Ok(rows)
}
