//! A consumer with a name follows the commits of one database, and copies them into another one;
//! it is stopped in between, and misses nothing.
//!
//! `cargo run --example change_feed_consumer`

use std::time::Duration;

use lithedb::{ChangeKind, Consumer, Db, FeedOptions, Keyspace, Result, WriteBatch};

const LOG_MAX: u64 = 64 << 20;

/// Copies what there is to be copied. Doing a commit twice does no harm, as puts and deletions
/// say what there is to be and not how to come there.
fn copy(consumer: &mut Consumer, db: &Db, copy: &Keyspace) -> Result<usize> {
    let mut commits = 0;
    while let Some(commit) = consumer.wait(Duration::from_millis(20))? {
        let mut batch = WriteBatch::new();
        for change in &commit.changes {
            match &change.kind {
                ChangeKind::Put { key, value: Some(value), .. } => batch.put(copy, key, value),
                ChangeKind::Put { value: None, .. } => {} // Gone since: a later change says so.
                ChangeKind::Delete { key } => batch.delete(copy, key),
                ChangeKind::DeleteRange { start, end: Some(end) } => {
                    batch.delete_range(copy, &**start..&**end);
                }
                ChangeKind::DeleteRange { start, end: None } => {
                    batch.delete_range(copy, &**start..);
                }
                other => panic!("nothing else is written here: {other:?}"),
            }
        }
        db.write(batch)?; // Durable in the copy ..
        consumer.acknowledge(commit.seqno)?; // .. and only then said to be done.
        commits += 1;
    }
    Ok(commits)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let db = Db::open(dir.path().join("shop.lithe"))?;
    let orders = db.keyspace_or_create("orders")?;
    let other = Db::open(dir.path().join("copy.lithe"))?;
    let copied = other.keyspace_or_create("orders")?;

    // The log is kept for it from now on: up to 64 MiB, if it does not come for long.
    db.create_consumer("copier", LOG_MAX)?;
    // What a power cut can take back is not copied.
    let options = || FeedOptions::new().keyspaces([&orders]).durable_only(true);

    orders.put("1", "bread")?;
    orders.put("2", "milk")?;
    let mut consumer = db.consumer("copier", options())?;
    println!("{} commits copied", copy(&mut consumer, &other, &copied)?);
    drop(consumer); // The process ends here ..

    orders.delete("1")?;
    orders.put("3", "tea")?;
    orders.delete_range("4"..)?;
    db.flush()?;

    let mut consumer = db.consumer("copier", options())?; // .. and goes on.
    println!("{} commits copied", copy(&mut consumer, &other, &copied)?);

    let keys = |keyspace: &Keyspace| keyspace.keys::<&str>(..).collect::<Result<Vec<_>>>();
    assert_eq!(keys(&orders)?, keys(&copied)?);
    println!("both have {} orders", copied.len()?);
    Ok(())
}
