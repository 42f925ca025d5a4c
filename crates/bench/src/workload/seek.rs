//! W5: 100,000 x (seek to a key that is there, and the next 50), key and value touched. Once with a
//! fresh view for each seek, as an application would, and once on one view.
//!
//! A pass of as many other seeks, not counted, goes before: caches are then as full as they get. Of
//! some of them every entry is checked: that keys ascend from the one sought, and that each belongs
//! to the store and has its value.

use super::{STORE_LARGE, VERSIONS, stream};
use crate::clock::{microseconds_each, timed};
use crate::costs::Reads;
use crate::data::{KeyShape, ValueChecker, entry_checksum, operation, pick};
use crate::engine::{Engine, Result, View, Walk, wrong};
use crate::job::Context;
use crate::report::Row;

const SEEKS: u64 = 100_000;
const SEEKS_CHECKED: u64 = 1000;
const ENTRIES: u64 = 50;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let (keys, seeks) = (context.job.keys, context.count(SEEKS));
    let engine = E::open(&context.store(STORE_LARGE), context.job.memory)?;
    let targets_of = |stream| -> Vec<Vec<u8>> {
        let index = |j| pick(operation(stream, 0, j), keys);
        (0..seeks).map(|j| KeyShape::Random16.key(index(j))).collect()
    };
    let (warm_up, targets) = (targets_of(stream::WARM_UP_SEEKS), targets_of(stream::SEEKS));
    let last_key = (0..keys).map(|index| KeyShape::Random16.key(index)).max().unwrap_or_default();
    for target in warm_up.iter().take(SEEKS_CHECKED as usize) {
        check(&mut engine.view()?, target, &last_key)?;
    }
    for target in &warm_up {
        touch(&mut engine.view()?, target, (0, 0))?;
    }

    let reads = Reads::begin();
    let (seen, time) = timed(|| {
        targets.iter().try_fold((0, 0u64), |sum, target| touch(&mut engine.view()?, target, sum))
    });
    let fresh = seen?;
    let name = "seek + next 50";
    let row = Row::new("W5", name, microseconds_each(seeks, time), "us");
    let row = reads.add_to(row, seeks);
    context.report(row.with("entries", fresh.0).with("checksum", fresh.1));

    let mut view = engine.view()?;
    let reads = Reads::begin();
    let (seen, time) =
        timed(|| targets.iter().try_fold((0, 0u64), |sum, target| touch(&mut view, target, sum)));
    drop(view);
    if seen? != fresh {
        return wrong("W5: one view and fresh views see different entries");
    }
    let name = "seek + next 50, one view";
    let row = Row::new("W5", name, microseconds_each(seeks, time), "us");
    context.report(reads.add_to(row, seeks));
    engine.close()
}

/// Adds the entries of one seek to a count and a checksum.
fn touch(view: &mut impl View, key: &[u8], seen: (u64, u64)) -> Result<(u64, u64)> {
    let (count, mut checksum) = seen;
    let visited = view.scan(Walk::From { key, limit: ENTRIES }, |key, value| {
        checksum = checksum.wrapping_add(entry_checksum(key, value));
    })?;
    Ok((count + visited, checksum))
}

fn check(view: &mut impl View, target: &[u8], last_key: &[u8]) -> Result<()> {
    let (mut checker, mut last, mut good) = (ValueChecker::default(), Vec::new(), true);
    let mut count = 0;
    view.scan(Walk::From { key: target, limit: ENTRIES }, |key, value| {
        let in_order = if count == 0 { key == target } else { *last < *key };
        let index = KeyShape::Random16.index_of(key);
        let known = index.is_some_and(|index| checker.version_of(index, value, VERSIONS).is_some());
        good &= in_order && known;
        count += 1;
        last = key.to_vec();
    })?;
    // Only seeks near the last key may see fewer than asked for.
    if !good || (count < ENTRIES && last != last_key) {
        return wrong(format!(
            "W5: {count} entries after {target:02x?}, in order and whole: {good}"
        ));
    }
    Ok(())
}
