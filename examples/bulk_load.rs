//! A hundred thousand entries in three ways: batches, a sorted ingest, and tables made elsewhere.
//!
//! `cargo run --release --example bulk_load`

#![expect(clippy::disallowed_methods, reason = "a program of its own, and not to be replayed")]

use std::time::Instant;

use lithedb::{Db, Durability, KeyspaceOptions, Result, TableIngestOptions, WriteBatch};

const COUNT: u64 = 100_000;

fn entries(range: std::ops::Range<u64>) -> impl Iterator<Item = ([u8; 8], String)> {
    range.map(|number| (number.to_be_bytes(), format!("entry {number}")))
}

fn timed<T>(what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = run()?;
    println!("{what}: {} entries in {:?}", COUNT, start.elapsed());
    Ok(done)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::open(dir.path().join("loads.lithe"))?;

    // In any order: batches, and one sync.
    let batches = db.keyspace_or_create("batches")?;
    timed("batches of 1000", || {
        let mut batch = WriteBatch::new();
        for (key, value) in entries(0..COUNT) {
            batch.put(&batches, key, value);
            if batch.len() == 1000 {
                db.write_with(std::mem::take(&mut batch), Durability::Buffered)?;
            }
        }
        db.write_with(batch, Durability::Buffered)?;
        db.sync()
    })?;

    // Sorted by key: written once, visible and durable at once.
    let ingested = db.keyspace_or_create("ingested")?;
    let report = timed("an ingest", || ingested.ingest(entries(0..COUNT)))?;
    println!("  all with the stamp {}", report.seqno);

    // Tables, written side by side, by other processes or machines too.
    let tables = db.create_keyspace("tables", KeyspaceOptions::lsm())?;
    timed("two tables", || {
        let mut paths = Vec::new();
        for (part, range) in [0..COUNT / 2, COUNT / 2..COUNT].into_iter().enumerate() {
            let path = dir.path().join(format!("part-{part}.table"));
            let mut writer = tables.table_writer(&path)?;
            for (key, value) in entries(range) {
                writer.put(key, value)?;
            }
            writer.finish()?;
            paths.push(path);
        }
        tables.ingest_tables(&paths, TableIngestOptions::moving())
    })?;

    for keyspace in [&batches, &ingested, &tables] {
        assert_eq!(keyspace.len()?, COUNT);
        assert_eq!(keyspace.get(77_u64.to_be_bytes())?.as_deref(), Some(&b"entry 77"[..]));
    }
    println!("written for each byte of data: {:.2}", db.stats().write_amplification());
    Ok(())
}
