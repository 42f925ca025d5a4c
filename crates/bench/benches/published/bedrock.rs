//! BedrockDB's: its log, memtable, tables, ranges and compactions. Through the whole store, as
//! there is no other way in: where theirs measures a part alone, the name of the row says so.

use std::fs;
use std::thread;

use lithe_bench::{Dice, memory_peak, memory_resident};
use lithedb::{
    Compaction, Db, Durability, Keyspace, KeyspaceOptions, Leveled, TableIngestMode,
    TableIngestOptions,
};

use super::{Asked, Result, Row, Scratch, nanos_each};

const MEMORY: u64 = 256 << 20;
/// Keys of what is small and hot.
const HOT: u64 = 1000;
const OPERATIONS: u64 = 500_000;
const SYNCED_PUTS: u64 = 2000;
const WRITERS: u64 = 16;
/// Entries of a block of 4 KiB, of 12 bytes of key and 36 of value.
const PER_BLOCK: u64 = 75;
/// Keys of what is read from tables.
const TABLE_KEYS: u64 = 1_000_000;
/// Few beside the blocks that there are, so that nearly each reads one that was not read before.
const COLD_GETS: u64 = 2000;
const TABLES: u64 = 4;

fn key_of(number: u64) -> String {
    format!("key-{number:08}")
}

fn value_of(number: u64) -> String {
    format!("value-{number:030}")
}

fn open(scratch: &Scratch) -> Result<Db> {
    let db = Db::builder().memory_budget(MEMORY).durability(Durability::Buffered);
    Ok(db.open(&scratch.0)?)
}

/// Tables that stay side by side.
fn unmerged() -> KeyspaceOptions {
    KeyspaceOptions::lsm().compaction(Compaction::Leveled(Leveled::new().level0_trigger(64)))
}

/// A key must have its value.
fn get(keyspace: &Keyspace, number: u64) -> Result<()> {
    match keyspace.get(key_of(number))?.as_deref() == Some(value_of(number).as_bytes()) {
        true => Ok(()),
        false => Err(format!("{} has another value", key_of(number)).into()),
    }
}

/// As many entries from a key on as are there must be there.
fn walk(keyspace: &Keyspace, first: u64, count: u64) -> Result<()> {
    let mut bytes = 0;
    let mut seen = 0;
    for entry in keyspace.range(key_of(first)..key_of(first + count)) {
        let entry = entry?;
        bytes += entry.key.len() + entry.value.len();
        seen += 1;
    }
    match seen == count && bytes as u64 == count * 48 {
        true => Ok(()),
        false => Err(format!("{seen} entries and {bytes} bytes of {count} entries").into()),
    }
}

/// The log: 13 and 40 bytes.
fn log_rows(asked: &Asked) -> Result<Vec<Row>> {
    const KEY: &str = "benchmark-key";
    const VALUE: &str = "benchmark-value-that-is-reasonably-sized";
    let scratch = Scratch::new(asked, "bedrock")?;
    let db = open(&scratch)?;
    let keyspace = db.create_keyspace("rows", KeyspaceOptions::lsm())?;
    let put = |count: u64, durability: Durability| -> Result<()> {
        (0..count).try_for_each(|_| Ok(keyspace.put_with(KEY, VALUE, durability).map(|_| ())?))
    };
    let buffered = nanos_each(OPERATIONS, || put(OPERATIONS, Durability::Buffered))?;
    let synced = nanos_each(SYNCED_PUTS, || put(SYNCED_PUTS, Durability::Sync))?;
    let shared = nanos_each(SYNCED_PUTS * WRITERS, || {
        thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|_| scope.spawn(|| put(SYNCED_PUTS, Durability::Sync))).collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
        })
    })?;
    db.close()?;
    Ok(vec![
        Row::nanos("put, acknowledged before its sync (theirs: log alone)", 309.0, buffered),
        Row::nanos("put, synced", 964_717.0, synced),
        Row::nanos("put, synced, 16 threads", 964_717.0, shared),
    ])
}

/// What is in memory.
fn memory_rows(asked: &Asked) -> Result<Vec<Row>> {
    let scratch = Scratch::new(asked, "bedrock")?;
    let db = open(&scratch)?;
    let keyspace = db.create_keyspace("rows", KeyspaceOptions::lsm())?;
    let keys: Vec<(String, String)> = (0..HOT).map(|n| (key_of(n), value_of(n))).collect();
    let pair = |number: u64| &keys[(number % HOT) as usize];
    let put = nanos_each(OPERATIONS, || {
        (0..OPERATIONS)
            .map(pair)
            .try_for_each(|(key, value)| Ok(keyspace.put(key, value).map(|_| ())?))
    })?;
    let found = |number: u64| -> Result<()> {
        let (key, value) = pair(number);
        match keyspace.get(key)?.as_deref() == Some(value.as_bytes()) {
            true => Ok(()),
            false => Err(format!("{key} has another value").into()),
        }
    };
    let get = nanos_each(OPERATIONS, || (0..OPERATIONS).try_for_each(found))?;
    let mixed = nanos_each(OPERATIONS, || {
        (0..OPERATIONS).try_for_each(|number| match number % 5 {
            0 => Ok(keyspace.put(&pair(number).0, &pair(number).1).map(|_| ())?),
            _ => found(number),
        })
    })?;
    let hundred = nanos_each(1000, || (0..1000).try_for_each(|n| walk(&keyspace, n % 900, 100)))?;
    let many = nanos_each(1000, || (0..1000).try_for_each(|n| walk(&keyspace, n % 200, 800)))?;
    db.close()?;
    Ok(vec![
        Row::nanos("put, all of the store", 725.0, put),
        Row::nanos("put, all of the store (theirs: memtable alone)", 83.0, put),
        Row::nanos("get from memory, all of the store", 52.0, get),
        Row::nanos("get from memory (theirs: memtable alone)", 37.0, get),
        Row::nanos("4 gets, 1 put", 770.0, mixed),
        Row::nanos("range of 100 in memory", 11_250.0, hundred),
        Row::nanos("range of 800 in memory", 81_000.0, many),
    ])
}

/// One table: written, walked, looked into.
fn table_rows(asked: &Asked) -> Result<Vec<Row>> {
    let scratch = Scratch::new(asked, "bedrock")?;
    let db = open(&scratch)?;
    let keyspace = db.create_keyspace("rows", KeyspaceOptions::lsm())?;
    let blocks = TABLE_KEYS / PER_BLOCK;
    let file = scratch.0.join("made");
    let encode = nanos_each(blocks, || {
        let mut writer = keyspace.table_writer(&file)?;
        (0..TABLE_KEYS).try_for_each(|n| writer.put(key_of(n), value_of(n)))?;
        writer.finish()?;
        Ok(())
    })?;
    ingest(&keyspace, &[file])?;
    db.close()?;

    let db = open(&scratch)?;
    let keyspace = db.keyspace("rows")?;
    let mut dice = Dice(1);
    let cold = nanos_each(COLD_GETS, || {
        (0..COLD_GETS).try_for_each(|_| get(&keyspace, dice.below(TABLE_KEYS)))
    })?;
    db.close()?;
    let db = open(&scratch)?;
    let keyspace = db.keyspace("rows")?;
    let decode = nanos_each(blocks, || walk(&keyspace, 0, TABLE_KEYS))?;
    let warm_up = || (0..TABLE_KEYS).step_by(20).try_for_each(|n| get(&keyspace, n));
    warm_up()?;
    let warm = nanos_each(OPERATIONS, || {
        (0..OPERATIONS).try_for_each(|_| get(&keyspace, dice.below(TABLE_KEYS)))
    })?;
    let absent = nanos_each(OPERATIONS, || {
        (0..OPERATIONS).try_for_each(|_| {
            let key = format!("{}-", key_of(dice.below(TABLE_KEYS)));
            match keyspace.get(&key)? {
                None => Ok(()),
                Some(_) => Err(format!("{key} is there").into()),
            }
        })
    })?;
    let hundred = nanos_each(10_000, || {
        (0..10_000).try_for_each(|_| walk(&keyspace, dice.below(TABLE_KEYS - 100), 100))
    })?;
    db.close()?;
    Ok(vec![
        Row::nanos("block written, with its checksum and filter (theirs: copied)", 502.0, encode),
        Row::nanos("block read from the file and walked (theirs: decoded)", 2961.0, decode),
        Row::nanos("get from a table, block cached", 550.0, warm),
        Row::nanos("get from a table, block read", 4600.0, cold),
        Row::nanos("get of an absent key", 98.0, absent),
        Row::nanos("range of 100 from a table, blocks cached", 10_900.0, hundred),
    ])
}

/// 30,000 keys of five tables, none of whose blocks were read.
fn cold_range(asked: &Asked) -> Result<Row> {
    let scratch = Scratch::new(asked, "bedrock")?;
    let db = open(&scratch)?;
    let keyspace = db.create_keyspace("rows", unmerged())?;
    for table in 0..5 {
        for number in (table..50_000).step_by(5) {
            keyspace.put(key_of(number), value_of(number))?;
        }
        db.flush()?;
    }
    db.close()?;
    let db = open(&scratch)?;
    let _pause = db.pause_background();
    let keyspace = db.keyspace("rows")?;
    let range = nanos_each(1, || walk(&keyspace, 10_000, 30_000))?;
    let tables = keyspace.tables().len();
    db.close()?;
    let work = format!("range of 30,000 from {tables} tables, blocks read");
    Ok(Row::nanos(work, 5_500_000.0, range))
}

fn ingest(keyspace: &Keyspace, files: &[std::path::PathBuf]) -> Result<()> {
    let options = TableIngestOptions::default().mode(TableIngestMode::Move);
    keyspace.ingest_tables(files, options)?;
    Ok(())
}

/// A compaction of tables whose keys alternate.
struct Merging {
    name: &'static str,
    keys_each: u64,
    value_len: usize,
    /// Every second key is deleted by the last table instead.
    deletes: bool,
    published: f64,
}

impl Merging {
    fn rows(&self, asked: &Asked) -> Result<Vec<Row>> {
        let scratch = Scratch::new(asked, "bedrock")?;
        let db = open(&scratch)?;
        let keyspace = db.create_keyspace("rows", unmerged())?;
        let pause = db.pause_background();
        let mut dice = Dice(7);
        let bytes: Vec<u8> = (0..1 << 20).map(|_| dice.below(256) as u8).collect();
        let mut input = 0;
        for table in 0..TABLES {
            let file = scratch.0.join(format!("made-{table}"));
            let mut writer = keyspace.table_writer(&file)?;
            for number in 0..self.keys_each {
                let key = key_of(number * TABLES + table);
                if self.deletes && number % 2 == 1 {
                    writer.delete(key)?;
                    continue;
                }
                let start = dice.below((bytes.len() - self.value_len) as u64) as usize;
                writer.put(key, &bytes[start..start + self.value_len])?;
            }
            input += writer.finish()?.file_bytes;
            ingest(&keyspace, &[file])?;
        }
        drop(pause);
        let live = self.keys_each * TABLES / if self.deletes { 2 } else { 1 };
        fs::write("/proc/self/clear_refs", "5")?; // The most that was resident, from now on.
        let before = memory_resident()?;
        let took = nanos_each(1, || Ok(keyspace.compact::<&[u8]>(..)?))?;
        let peak = memory_peak()?.saturating_sub(before);
        let count = keyspace.count::<&[u8]>(..)?;
        let levels = keyspace.tables().iter().map(|table| table.level).min();
        db.close()?;
        if count != live || levels == Some(0) {
            return Err(format!("{}: {count} keys of {live}, level {levels:?}", self.name).into());
        }
        let name = self.name;
        Ok(vec![
            Row::nanos(format!("compaction of {name}"), self.published, took),
            Row::bytes(format!("compaction of {name}: input"), input as f64),
            Row::bytes(format!("compaction of {name}: memory for it"), peak as f64),
        ])
    }
}

pub fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let merging = |name, keys_each, value_len, deletes, published| Merging {
        name,
        keys_each,
        value_len,
        deletes,
        published,
    };
    let mut mergings = vec![
        merging("4 x 500 keys", 500, 36, false, 1_783_560.0),
        merging("4 x 5000 keys", 5000, 36, false, 5_587_839.0),
        merging("4 x 500 keys, half deletions", 500, 36, true, 1_920_463.0),
        merging("4 x 71 MB", 640_000, 100, false, 4.1e9),
    ];
    if asked.large {
        mergings.push(merging("4 x 284 MB", 2_560_000, 100, false, 16.5e9));
    }
    let mut rows = log_rows(asked)?;
    rows.extend(memory_rows(asked)?);
    rows.extend(table_rows(asked)?);
    rows.push(cold_range(asked)?);
    for merging in &mergings {
        rows.extend(merging.rows(asked)?);
    }
    Ok(rows)
}
