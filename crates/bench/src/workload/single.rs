//! W9: the benchmark of LoremDB. 500,001 single puts `key-<i>` = `value-<i>` without sync, then
//! 50,000 hits (the oldest keys, ascending) and 50,000 misses `missing-<i>`. Keys are made before.

use crate::clock::{nanoseconds_each, rate, timed};
use crate::engine::{Commit, Engine, Result, wrong};
use crate::job::Context;
use crate::records::Records;
use crate::report::Row;

const STORE: &str = "w9";
const PUTS: u64 = 500_001;
const READS: u64 = 50_000;
const VALUE_LEN_MAX: usize = "value-500000".len();

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let (puts, reads) = (context.count(PUTS), context.count(READS));
    let mut records = Records::default();
    for i in 0..puts {
        records.push(format!("key-{i}").as_bytes(), format!("value-{i}").as_bytes());
    }
    let engine = E::open(&context.fresh_store(STORE)?, context.job.memory)?;
    let (result, time) = timed(|| {
        records.iter().try_for_each(|(key, value)| engine.put(key, value, Commit::Buffered))
    });
    result?;
    context.report(Row::new("W9", "single puts, no sync", rate(puts, time), "ops/s"));

    let mut values = Vec::with_capacity(reads as usize * VALUE_LEN_MAX);
    let hits: Vec<&[u8]> = records.iter().take(reads as usize).map(|(key, _)| key).collect();
    let (found, time) = timed(|| read_all(&engine, &hits, &mut values));
    let expected: Vec<u8> =
        records.iter().take(reads as usize).flat_map(|(_, value)| value).copied().collect();
    if found? != reads || values != expected {
        return wrong("W9: a hit was missed, or has a wrong value");
    }
    context.report(Row::new("W9", "hits", nanoseconds_each(reads, time), "ns"));

    let misses: Vec<Vec<u8>> = (0..reads).map(|i| format!("missing-{i}").into_bytes()).collect();
    let (found, time) = timed(|| read_all(&engine, &misses, &mut values));
    if found? != 0 {
        return wrong("W9: found a key that was never written");
    }
    context.report(Row::new("W9", "misses", nanoseconds_each(reads, time), "ns"));
    engine.close()?;
    context.remove_store(STORE)
}

fn read_all<E: Engine>(engine: &E, keys: &[impl AsRef<[u8]>], out: &mut Vec<u8>) -> Result<u64> {
    keys.iter().try_fold(0, |found, key| Ok(found + u64::from(engine.get(key.as_ref(), out)?)))
}
