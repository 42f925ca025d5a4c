//! The same rows in keyspaces of all three structures: what they cost, and converting one.
//!
//! `cargo run --release --example choosing_structures`

use lithedb::{Codec, Conversion, Db, Durability, Keyspace, KeyspaceOptions, Result};

const ROWS: u32 = 20_000;
const ROUNDS: u32 = 3;

/// Overwrites all rows some times, in an order that is not theirs.
fn fill(keyspace: &Keyspace) -> Result<()> {
    for round in 0..ROUNDS {
        for number in 0..ROWS {
            let row = number.wrapping_mul(7919) % ROWS;
            let value = format!("row {row:08} of round {round}, and some words that rows share");
            keyspace.put_with(row.to_be_bytes(), value, Durability::Buffered)?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::builder().memory_budget(32 << 20).open(dir.path().join("rows.lithe"))?;
    let choices = [
        ("flex", KeyspaceOptions::flex()),
        ("lsm", KeyspaceOptions::lsm()),
        ("lsm, lz4", KeyspaceOptions::lsm().codec(Codec::Lz4)),
        ("history", KeyspaceOptions::history()),
    ];
    let mut keyspaces = Vec::new();
    for (name, options) in choices {
        let keyspace = db.create_keyspace(name, options)?;
        fill(&keyspace)?;
        keyspaces.push(keyspace);
    }
    db.compact()?; // Flushed, and in its best shape.

    println!("{:<20} {:>10} {:>12}", "keyspace", "entries", "bytes");
    for keyspace in &db.stats().keyspaces {
        let entries = keyspace.entries_estimate;
        println!("{:<20} {entries:>10} {:>12}", keyspace.name, keyspace.bytes_on_disk);
    }

    // All answer alike; one knows more.
    let key = 77_u32.to_be_bytes();
    for keyspace in &keyspaces {
        assert_eq!(keyspace.len()?, u64::from(ROWS));
        assert_eq!(keyspace.get(key)?, keyspaces[0].get(key)?);
    }
    println!("versions of a row in history: {}", keyspaces[3].history(key, ..)?.count());

    // Changing one's mind, while it may be read and written.
    let report = keyspaces[0].convert(KeyspaceOptions::lsm().codec(Codec::Lz4))?;
    println!("converted: {report:?}");
    // From history to another structure the old versions go, which has to be said.
    keyspaces[3].convert(Conversion::to(KeyspaceOptions::flex()).losing_versions())?;
    assert_eq!(keyspaces[0].len()?, u64::from(ROWS));
    assert!(!keyspaces[3].keeps_history());
    Ok(())
}
