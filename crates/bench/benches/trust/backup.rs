//! A backup while the store is read and written to: what it does to the answers, whether what is
//! restored is the store as of its stamp, and how much the next one writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lithedb::{BackupInfo, BackupRepository, Db, RestoreOptions, SeqNo};

use super::load::{SHAPE, Store, value_of};
use super::{Asked, MIB, Result};

/// How long the answers are measured without a backup.
const ALONE: Duration = Duration::from_secs(10);
/// One key in so many is changed before the second backup.
const CHANGED: u64 = 100;

pub fn run(dir: &Path, asked: &Asked) -> Result<()> {
    let (mut store, _) = Store::fill(&dir.join("db"), Db::builder(), asked)?;
    store.rest()?;
    let (mut ratios, mut newest) = (Vec::new(), None);
    for round in 0..asked.rounds {
        let repository = BackupRepository::open_or_create(dir.join(format!("backups-{round}")))?;
        let start = Instant::now();
        let alone = store.run_mixed(|_| start.elapsed() < ALONE)?;
        let (beside, info, time) = beside_backup(&mut store, &repository)?;
        ratios.push(beside.at(0.99) / alone.at(0.99));
        println!(
            "  W6 A: {:.0} operations/s, p99 {:.1} us, p99.9 {:.1}; beside a backup of {} MiB \
             in {:.1} s {:.0}, p99 {:.1} us, p99.9 {:.1}",
            alone.rate(),
            alone.at(0.99),
            alone.at(0.999),
            info.bytes / MIB,
            time.as_secs_f64(),
            beside.rate(),
            beside.at(0.99),
            beside.at(0.999),
        );
        newest = Some((repository, info));
    }
    println!("  p99 beside a backup: {:.2} times", super::median(ratios));
    let (repository, info) = newest.ok_or("no round")?;
    let (restored, time) = restore(&repository, &info, &dir.join("restored"))?;
    compare(&store, &restored, info.seqno)?;
    println!("  restored in {:.1} s; all {} keys as of its stamp", time.as_secs_f64(), store.keys);
    drop(restored);
    changed_a_little(&mut store, &repository)
}

/// The load, until a backup beside it is made.
fn beside_backup(
    store: &mut Store,
    repository: &BackupRepository,
) -> Result<(super::load::Ran, BackupInfo, Duration)> {
    let (db, is_made) = (store.db.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let backup = scope.spawn(|| {
            let start = Instant::now();
            let made = repository.create(&db);
            is_made.store(true, Ordering::Relaxed);
            made.map(|info| (info, start.elapsed()))
        });
        let ran = store.run_mixed(|_| !is_made.load(Ordering::Relaxed))?;
        let (info, time) = backup.join().expect("no panic")?;
        Ok((ran, info, time))
    })
}

fn restore(
    repository: &BackupRepository,
    info: &BackupInfo,
    target: &Path,
) -> Result<(Db, Duration)> {
    let start = Instant::now();
    repository.restore(info.number, target, RestoreOptions::new())?;
    let time = start.elapsed();
    Ok((Db::builder().open(target)?, time))
}

/// Every key, as it was as of the stamp.
fn compare(store: &Store, restored: &Db, stamp: SeqNo) -> Result<()> {
    let rounds = store.rounds_at(stamp);
    let mut count = 0;
    for entry in restored.keyspace("keys")?.iter() {
        let entry = entry?;
        let number = SHAPE.index_of(&entry.key).ok_or("a key that was never put")?;
        if *entry.value != *value_of(number, u64::from(rounds[number as usize])) {
            return Err(format!("key {number} is not as of the stamp of the backup").into());
        }
        count += 1;
    }
    if count == store.keys { Ok(()) } else { Err(format!("{count} keys").into()) }
}

/// A backup of a store at rest, then of one in which a hundredth of the keys, here and there, has
/// another value.
fn changed_a_little(store: &mut Store, repository: &BackupRepository) -> Result<()> {
    store.rest()?;
    repository.create(&store.db)?;
    for _ in 0..store.keys / CHANGED {
        let number = store.draw();
        store.overwrite(number)?;
    }
    store.db.flush()?;
    let next = repository.create(&store.db)?;
    println!(
        "  behind changes to a hundredth of the keys: {:.1} MiB of {:.1} are written, {:.2} %",
        next.written_bytes as f64 / MIB as f64,
        next.bytes as f64 / MIB as f64,
        100.0 * next.written_bytes as f64 / next.bytes as f64,
    );
    Ok(())
}
