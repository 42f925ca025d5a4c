//! Counters and sets that are added to without being read: merge operators, built in and own.
//!
//! `cargo run --example merge_counter`

use std::thread;

use lithedb::{Db, Durability, Error, KeyspaceOptions, MergeError, MergeOperator, Result};

const THREADS: usize = 4;
const EACH: usize = 1000;

/// A set of bytes, sorted; operands are sets as well, so that they can be combined.
struct Union;

impl MergeOperator for Union {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, MergeError> {
        let mut set = existing.unwrap_or_default();
        set.extend_from_slice(operand);
        set.sort_unstable();
        set.dedup();
        Ok(set)
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("hits.lithe");
    // Registered at every opening: the database knows its name alone.
    let db = Db::builder().merge_operator("union", Union).open(&path)?;

    let options = KeyspaceOptions::flex().merge_operator("counter");
    let hits = db.create_keyspace("hits", options)?;
    thread::scope(|scope| {
        let count = || {
            for _ in 0..EACH {
                // Nothing is read, so nothing conflicts.
                hits.merge_with("/index.html", 1_i64.to_le_bytes(), Durability::Buffered)?;
            }
            Ok::<_, Error>(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    let count = hits.get("/index.html")?.expect("it was counted");
    let count = count[..].try_into().map_or(0, i64::from_le_bytes);
    println!("{count} hits by {THREADS} threads");
    assert_eq!(count as usize, THREADS * EACH);

    let tags = db.create_keyspace("tags", KeyspaceOptions::flex().merge_operator("union"))?;
    tags.merge("page", "b")?;
    tags.merge("page", "ac")?;
    tags.merge("page", "b")?;
    println!("tags: {}", String::from_utf8_lossy(&tags.get("page")?.unwrap_or_default()));
    db.close()?;

    // Without the operator everything works but merging, and reading what was merged.
    let db = Db::open(&path)?;
    let missing = db.keyspace("tags")?.merge("page", "d");
    assert!(matches!(missing, Err(Error::MergeOperatorMissing { .. })));
    println!("without it: {}", missing.expect_err("as was just seen"));
    Ok(())
}
