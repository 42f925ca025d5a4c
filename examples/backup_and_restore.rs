//! Backups while the database is used, one file restored beside it, and any moment in between.
//!
//! `cargo run --example backup_and_restore`

use lithedb::{BackupOptions, BackupRepository, Db, RestoreOptions, Result, TrailOptions};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("shop.lithe"))?;
    let orders = db.keyspace_or_create("orders")?;
    orders.put("1", "bread")?;

    // In earnest it lies on another disk.
    let backups = BackupRepository::open_or_create(path("backups"))?;
    // The first backup, and from now on every commit.
    let first = backups.begin_trail(&db, TrailOptions::new().log_max(1 << 30))?;
    println!("backup {}: {} files, {} bytes", first.number, first.files, first.bytes);

    orders.put("2", "milk")?;
    let second = backups.create(&db)?; // Whole, but only what is new is written.
    println!(
        "backup {}: {} of {} bytes written",
        second.number, second.written_bytes, second.bytes
    );

    let good = orders.put("3", "tea")?;
    orders.clear()?; // Oh.
    // Usually a thread does this: see `BackupRepository::follow`.
    let added = backups.extend_trail(&db)?;
    println!("the trail has {} commits more", added.commits);

    let check = backups.verify(None, BackupOptions::new())?;
    assert!(check.is_ok());

    // One backup, opened and checked before it gets its name.
    let options = RestoreOptions::new().open_with(Db::builder());
    backups.restore(second.number, path("second.lithe"), options)?;
    let restored = Db::open(path("second.lithe"))?;
    println!("backup {} has {} orders", second.number, restored.keyspace("orders")?.len()?);

    // The moment before the mistake.
    backups.restore_at(good, path("before.lithe"), RestoreOptions::new())?;
    let before = Db::open(path("before.lithe"))?;
    let count = before.keyspace("orders")?.len()?;
    println!("as of {good} there are {count} orders; now there are {}", orders.len()?);
    assert_eq!((count, orders.len()?), (3, 0));

    let pruned = backups.prune(1)?;
    println!("pruned: {pruned:?}");
    assert_eq!(backups.list()?.len(), 1);
    Ok(())
}
