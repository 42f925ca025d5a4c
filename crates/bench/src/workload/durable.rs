//! Durable writes. W7: single puts, each synced, on one and on eight threads. W8: the tables of
//! Roots: transactions of 1 to 10,000 entries, each synced, a fresh store for each size; then
//! uniform gets on stores of 1k, 100k and 1M entries.

use super::stream;
use crate::clock::{microseconds_each, nanoseconds_each, rate, timed};
use crate::data::{KeyShape, VERSION_LOAD, append_value};
use crate::engine::{Commit, Engine, Result};
use crate::gets::Gets;
use crate::job::Context;
use crate::latency::Latency;
use crate::load::{VALUE_LEN, Writes};
use crate::records::Records;
use crate::report::Row;
use crate::threads::on_threads;
use crate::verify::check_load;

const STORE: &str = "durable";
const SHAPE: KeyShape = KeyShape::Random16;
/// W7: threads, puts of each.
const PUTS: [(u64, u64); 2] = [(1, 2000), (8, 2500)];
/// W8: transactions, entries of each.
const TRANSACTIONS: [(u64, u64); 4] = [(10_000, 1), (1000, 100), (100, 1000), (10, 10_000)];
const TABLE_KEYS: [(&str, u64); 3] = [("1k", 1000), ("100k", 100_000), ("1M", 1_000_000)];
const TABLE_GETS: u64 = 1_000_000;

pub fn run_puts<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    for (threads, puts) in PUTS {
        let puts = context.count(puts);
        let engine = E::open(&context.fresh_store(STORE)?, context.job.memory)?;
        let (latencies, wall) = on_threads(threads, |thread| {
            let (mut latency, mut key, mut value) = (Latency::default(), Vec::new(), Vec::new());
            for index in thread * puts..(thread + 1) * puts {
                key.clear();
                SHAPE.append(index, &mut key);
                value.clear();
                append_value(index, VERSION_LOAD, VALUE_LEN, &mut value);
                let (done, time) = timed(|| engine.put(&key, &value, Commit::Durable));
                done?;
                latency.record(time);
            }
            Ok(latency)
        })?;
        check_load(&engine, SHAPE, threads * puts, VALUE_LEN)?;
        engine.close()?;
        let mut latency = Latency::default();
        latencies.iter().for_each(|thread| latency.merge(thread));
        let name =
            format!("durable puts, {threads} {}", if threads == 1 { "thread" } else { "threads" });
        context.report(Row::new("W7", &name, rate(threads * puts, wall), "ops/s"));
        context.report_all(latency.rows("W7", &name));
    }
    context.remove_store(STORE)
}

pub fn run_tables<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    for (transactions, entries) in TRANSACTIONS {
        transactions_of::<E>(context, context.count(transactions), entries)?;
    }
    for (name, keys) in TABLE_KEYS {
        let keys = context.count(keys);
        let engine = E::open(&context.fresh_store(STORE)?, context.job.memory)?;
        Writes::load(SHAPE).run_in_order(&engine, keys)?;
        let gets = Gets::uniform(stream::TABLE_GETS, context.count(TABLE_GETS), keys, VALUE_LEN);
        let read = gets.run(&engine)?;
        engine.close()?;
        let time = nanoseconds_each(read.count, read.busy);
        context.report(
            Row::new("W8", &format!("gets of {name}"), time, "ns").with("checksum", read.checksum),
        );
    }
    context.remove_store(STORE)
}

fn transactions_of<E: Engine>(
    context: &mut Context<'_>,
    transactions: u64,
    entries: u64,
) -> Result<()> {
    let engine = E::open(&context.fresh_store(STORE)?, context.job.memory)?;
    let (mut latency, mut records) = (Latency::default(), Records::default());
    let mut busy = std::time::Duration::ZERO;
    for transaction in 0..transactions {
        let first = transaction * entries;
        records.refill(SHAPE, first..first + entries, VALUE_LEN, VERSION_LOAD);
        let (done, time) = timed(|| engine.put_batch(&records, Commit::Durable));
        done?;
        busy += time;
        latency.record(time);
    }
    let seen = check_load(&engine, SHAPE, transactions * entries, VALUE_LEN)?;
    engine.close()?;
    let name = format!("transactions of {entries}");
    context.report(
        Row::new("W8", &name, microseconds_each(transactions, busy), "us")
            .with("transactions", transactions)
            .with("p50_us", latency.quantile_us(0.5))
            .with("p99_us", latency.quantile_us(0.99))
            .with("checksum", seen.checksum),
    );
    Ok(())
}
