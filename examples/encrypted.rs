//! A database that nobody can read without its passphrase; another passphrase; a keyspace whose
//! own key is destroyed with it.
//!
//! `cargo run --example encrypted`

#![expect(clippy::disallowed_methods, reason = "a program of its own, and not to be replayed")]

use std::path::Path;

use lithedb::{Db, Encryption, Error, KeyspaceOptions, PassphraseCost, Result};

fn by_passphrase(phrase: &str) -> Encryption {
    // Guessing is made cheap here, as this is an example. Leave the default in earnest.
    let mut cost = PassphraseCost::default();
    (cost.memory_kib, cost.passes, cost.lanes) = (64, 1, 1);
    Encryption::passphrase(phrase).passphrase_cost(cost)
}

fn open(path: &Path, phrase: &str) -> Result<Db> {
    Db::builder().encryption(by_passphrase(phrase)).open(path)
}

/// Whether any file of the directory has these bytes.
fn is_in_a_file(dir: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let has = match path.is_dir() {
            true => is_in_a_file(&path, bytes)?,
            false => std::fs::read(&path)?.windows(bytes.len()).any(|window| window == bytes),
        };
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("safe.lithe");

    let db = open(&path, "correct horse battery staple")?;
    let secrets = db.keyspace_or_create("secrets")?;
    secrets.put("door", "four seven one one")?;

    // A keyspace with a key of its own: for what has to be gone when it is dropped.
    let ada = db.create_keyspace_with_own_key("user ada", KeyspaceOptions::flex())?;
    ada.put("mail", "dear diary")?;
    drop(ada);
    db.drop_keyspace("user ada")?; // Its key is destroyed.

    db.rekey(&by_passphrase("another sentence altogether"))?;
    db.close()?;

    let found = is_in_a_file(&path, b"four seven").expect("the files can be read");
    println!("the secret is in a file: {found}");
    assert!(!found);

    for phrase in ["correct horse battery staple", "another sentence altogether"] {
        match open(&path, phrase) {
            Ok(db) => {
                let door = db.keyspace("secrets")?.get("door")?.unwrap_or_default();
                println!("{phrase:?} opens it: {}", String::from_utf8_lossy(&door));
            }
            Err(Error::WrongKey { .. }) => println!("{phrase:?} does not open it"),
            Err(error) => return Err(error),
        }
    }
    assert!(matches!(Db::open(&path), Err(Error::KeyNeeded { .. })));
    Ok(())
}
