//! The first program: open a database, write, read, walk, close, open again.
//!
//! `cargo run --example hello`

use lithedb::{Db, Result};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("zoo.lithe");

    // A database is a directory; it is created if it is not there.
    let db = Db::open(&path)?;
    let animals = db.keyspace_or_create("animals")?;

    // On return it is on the disk. The stamp is the commit's number and time.
    let stamp = animals.put("otter", "swims")?;
    println!("written at {stamp}");
    animals.put("owl", "flies")?;
    animals.put("cat", "sleeps")?;

    match animals.get("otter")? {
        Some(value) => println!("the otter {}", String::from_utf8_lossy(&value)),
        None => println!("there is no otter"),
    }

    // In the order of keys, from either end.
    for entry in animals.prefix("o").rev() {
        let entry = entry?;
        let (key, value) = (&entry.key, &entry.value);
        println!("{} {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    }

    animals.delete("cat")?;
    db.close()?;

    // Everything is there again.
    let db = Db::open(&path)?;
    let animals = db.keyspace("animals")?;
    println!("{} animals after reopening", animals.len()?);
    assert!(!animals.contains("cat")?);
    Ok(())
}
