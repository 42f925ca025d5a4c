//! Room of large values that are overwritten or deleted: when it is given back, how fast, and what
//! is never touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lithe_sim::random::Random;
use lithedb::storage::{
    FaultEffect, FaultPlan, FaultRule, MemoryStorage, OpenMode, Operation, SimStorage, Storage,
};
use lithedb::{
    Background, Builder, Cleaning, Db, Durability, Error, Keyspace, KeyspaceOptions, WriteBatch,
};

use crate::support::assert_sound;
use crate::support::hints::{HintedStorage, Reads};

const VALUE_SIZE: usize = 4096;
const FILE_SIZE: u64 = 256 << 10;

fn builder(storage: &Arc<dyn Storage>, cleaning: Cleaning) -> Builder {
    let builder =
        Db::builder().storage(Arc::clone(storage)).background(Background::Stepped).disk_reserve(0);
    builder.memory_budget(4 << 20).value_file_size(FILE_SIZE).cleaning(cleaning)
}

fn fresh(cleaning: Cleaning) -> (Arc<dyn Storage>, Db, Keyspace) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = builder(&storage, cleaning).open("/db").unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    (storage, db, keyspace)
}

/// A value that says whose it is and which one.
fn value_of(key: u64, round: u64) -> Vec<u8> {
    let word = [key.to_le_bytes(), round.to_le_bytes()].concat();
    word.iter().copied().cycle().take(VALUE_SIZE).collect()
}

fn put(db: &Db, keyspace: &Keyspace, keys: impl IntoIterator<Item = u64>, round: u64) {
    let mut batch = WriteBatch::new();
    for key in keys {
        batch.put(keyspace, key.to_be_bytes(), value_of(key, round));
    }
    db.write_with(batch, Durability::Buffered).unwrap();
}

/// Does what the background would.
fn settle(db: &Db) {
    while db.step().unwrap() {}
}

/// Bytes of all files of the database but those of the log.
fn bytes_on_disk(storage: &Arc<dyn Storage>) -> u64 {
    fn walk(storage: &Arc<dyn Storage>, dir: &Path, sum: &mut u64) {
        for entry in storage.list_dir(dir).unwrap_or_default() {
            let path: PathBuf = dir.join(&entry.name);
            match storage.open(&path, OpenMode::ReadOnly) {
                Ok(file) if entry.name != "LOCK" => *sum += file.size().unwrap_or(0),
                _ if entry.name == "wal" => {}
                _ => walk(storage, &path, sum),
            }
        }
    }
    let mut sum = 0;
    walk(storage, Path::new("/db"), &mut sum);
    sum
}

/// Overwrites at random, and says how large the database became for each byte of values.
fn overwrite(cleaning: Cleaning, between: impl Fn(&Db)) -> (Db, f64) {
    const KEY_COUNT: u64 = 2500;
    const BATCH_LEN: u64 = 25;
    let (storage, db, keyspace) = fresh(cleaning);
    for key in (0..KEY_COUNT).step_by(BATCH_LEN as usize) {
        put(&db, &keyspace, key..key + BATCH_LEN, 0);
    }
    db.compact().unwrap();
    let mut random = Random::new(7);
    let mut newest: BTreeMap<u64, u64> = (0..KEY_COUNT).map(|key| (key, 0)).collect();
    let mut highest = 0;
    for round in 1..=KEY_COUNT * 5 / BATCH_LEN {
        let keys: Vec<u64> = (0..BATCH_LEN).map(|_| random.below(KEY_COUNT)).collect();
        newest.extend(keys.iter().map(|key| (*key, round)));
        put(&db, &keyspace, keys, round);
        between(&db);
        highest = highest.max(bytes_on_disk(&storage));
    }
    for (key, round) in newest {
        let found = keyspace.get(key.to_be_bytes()).unwrap().unwrap();
        assert!(*found == *value_of(key, round), "the value of {key}");
    }
    assert_sound(&db);
    (db, highest as f64 / (KEY_COUNT * VALUE_SIZE as u64) as f64)
}

#[test]
fn a_store_that_is_overwritten_for_ever_stays_within_its_bounds() {
    // Ten files are what is live, and four are written to or waiting to be flushed.
    let (db, factor) = overwrite(Cleaning::Background, settle);
    assert!(factor < 2.0, "{factor}");
    assert!(db.stats().values_moved > 0);
    let (db, factor) = overwrite(Cleaning::WithFlush, settle);
    assert!(factor < 2.0, "{factor}");
    assert!(db.stats().values_moved > 0);
}

#[test]
fn flushes_clean_when_nobody_does_so_in_the_background() {
    // The caller never steps: writers that need room, and `flush`, are all there is.
    for cleaning in [Cleaning::Background, Cleaning::WithFlush] {
        let rounds = AtomicU64::new(0);
        let (db, factor) = overwrite(cleaning, |db| {
            if rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(8) {
                db.flush().unwrap();
            }
        });
        assert!(factor < 2.0, "{cleaning:?}: {factor}");
        assert!(db.stats().values_moved > 0);
    }
}

/// Moves the values of a keyspace whose every third key was overwritten, of which each has to be
/// announced before it is read; the most bytes that were announced at once, and all there are.
fn announced_at_once(options: KeyspaceOptions, read_first_max: u64) -> (u64, u64) {
    const KEY_COUNT: u64 = 8000;
    let hinted = HintedStorage::watching("val-");
    let storage: Arc<dyn Storage> = Arc::new(hinted.clone());
    let builder = builder(&storage, Cleaning::OnDemand).memory_budget(64 << 20);
    let db = builder.read_first_max(read_first_max).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", options).unwrap();
    put(&db, &keyspace, (0..KEY_COUNT).map(|key| key * 2_654_435_761 % KEY_COUNT), 0);
    put(&db, &keyspace, (0..KEY_COUNT).filter(|key| key % 3 == 0), 1);
    db.compact().unwrap();
    let before = hinted.take_reads();
    let all = db.stats().value_bytes();
    let vacuumed = db.vacuum().unwrap();
    assert_eq!(vacuumed.values_moved, KEY_COUNT - KEY_COUNT.div_ceil(3));
    let reads = hinted.take_reads();
    let moved = vacuumed.values_moved as usize;
    assert_eq!((before.announced, reads), (0, Reads { announced: moved, others: 0 }));
    assert_sound(&db);
    (hinted.announced_at_once_max(), all)
}

#[test]
fn values_that_are_moved_are_announced_before_they_are_read() {
    for options in [KeyspaceOptions::flex(), KeyspaceOptions::lsm()] {
        // A window of 4 MiB, or an interval, with what is read through between two values.
        let (at_once, all) = announced_at_once(options.clone(), 1 << 20);
        assert!((1 << 20..10 << 20).contains(&at_once), "{at_once} of {all}");
        // Their files, but for what was written behind.
        let (at_once, all) = announced_at_once(options, 1 << 30);
        assert!((all * 2 / 3..all + (10 << 20)).contains(&at_once), "{at_once} of {all}");
    }
}

#[test]
fn on_demand_nothing_is_moved_before_it_is_asked_for() {
    let (db, factor) = overwrite(Cleaning::OnDemand, settle);
    let stats = db.stats();
    assert_eq!(stats.values_moved, 0);
    assert!(factor > 2.0, "{factor}");
    let live = 2500 * (VALUE_SIZE as u64 + 48);
    let report = db.vacuum().unwrap();
    assert!(report.values_moved > 0 && report.bytes_reclaimed > live, "{report:?}");
    let stats = db.stats();
    assert_eq!(stats.value_bytes_live(), live);
    assert!(stats.value_bytes() < live + live / 8, "{}", stats.value_bytes());
    assert_eq!(stats.values_moved, report.values_moved);
    assert_sound(&db);
}

#[test]
fn a_few_deletions_among_large_values_are_found_by_vacuum() {
    let (_, db, keyspace) = fresh(Cleaning::OnDemand);
    put(&db, &keyspace, 0..400, 0);
    db.compact().unwrap();
    for key in [5u64, 205, 399] {
        keyspace.delete(key.to_be_bytes()).unwrap();
    }
    put(&db, &keyspace, [17], 1);
    db.vacuum().unwrap();
    assert_eq!(db.stats().value_bytes_live(), 397 * (VALUE_SIZE as u64 + 48));
    assert_sound(&db);
}

#[test]
fn deleting_everything_gives_everything_back() {
    let by_key = |db: &Db, keyspace: &Keyspace| {
        let mut batch = WriteBatch::new();
        (0..3000u64).for_each(|key| batch.delete(keyspace, key.to_be_bytes()));
        db.write(batch).unwrap();
    };
    let by_range = |_: &Db, keyspace: &Keyspace| {
        keyspace.clear().unwrap();
    };
    for delete in [&by_key as &dyn Fn(&Db, &Keyspace), &by_range] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        // Defaults, but for who works.
        let builder = Db::builder().storage(Arc::clone(&storage)).background(Background::Stepped);
        let builder = builder.disk_reserve(0);
        let db = builder.open("/db").unwrap();
        let keyspace = db.keyspace_or_create("k").unwrap();
        for key in (0..3000).step_by(100) {
            put(&db, &keyspace, key..key + 100, 0);
        }
        for key in 0..3000u64 {
            keyspace.put_with(key.to_le_bytes(), "small", Durability::Buffered).unwrap();
        }
        db.flush().unwrap();
        assert!(bytes_on_disk(&storage) > 12 << 20);
        delete(&db, &keyspace);
        keyspace.clear().unwrap();
        db.vacuum().unwrap();
        let left = bytes_on_disk(&storage);
        assert!(left < 1 << 20, "{left} bytes are left");
        assert_eq!(db.stats().value_files, []);
        assert_sound(&db);
    }
}

#[test]
fn what_a_snapshot_pins_is_shown_never_touched_and_given_back_with_it() {
    let (storage, db, keyspace) = fresh(Cleaning::Background);
    let small = db.create_keyspace("small", KeyspaceOptions::flex().interval_size(512)).unwrap();
    for round in 0..4 {
        put(&db, &keyspace, 0..500, round);
        for key in 0..500u64 {
            let value = [round as u8; 100];
            small.put_with(key.to_be_bytes(), value, Durability::Buffered).unwrap();
        }
    }
    db.vacuum().unwrap();
    let stats = db.stats();
    let pinned = |stats: &lithedb::Stats| {
        stats.keyspaces.iter().map(|keyspace| keyspace.bytes_pinned).sum::<u64>()
    };
    assert_eq!((stats.value_bytes_pinned, pinned(&stats), stats.memory_pinned), (0, 0, 0));
    put(&db, &keyspace, 0..5, 4);
    let snapshot = db.snapshot();
    for round in 5..9 {
        put(&db, &keyspace, 0..500, round);
        for key in 0..500u64 {
            small.put_with(key.to_be_bytes(), "new", Durability::Buffered).unwrap();
        }
        db.vacuum().unwrap();
    }
    let stats = db.stats();
    let values = 500 * VALUE_SIZE as u64;
    assert!(stats.value_bytes_pinned >= values, "{}", stats.value_bytes_pinned);
    assert!(stats.value_bytes() >= stats.value_bytes_live() + stats.value_bytes_pinned);
    assert!(stats.value_bytes_live() < values + values / 8);
    assert!(pinned(&stats) >= 500 * 100, "{}", pinned(&stats));
    assert!(stats.memory_pinned > 0);
    assert_eq!(stats.snapshots, 1);
    for key in 0..500u64 {
        let round = if key < 5 { 4 } else { 3 };
        let found = snapshot.get(&keyspace, key.to_be_bytes()).unwrap().unwrap();
        assert!(*found == *value_of(key, round));
        assert_eq!(*snapshot.get(&small, key.to_be_bytes()).unwrap().unwrap(), [3; 100]);
    }
    let before = bytes_on_disk(&storage);
    drop(snapshot);
    settle(&db);
    let stats = db.stats();
    assert_eq!((stats.value_bytes_pinned, pinned(&stats), stats.memory_pinned), (0, 0, 0));
    assert!(bytes_on_disk(&storage) + values <= before);
    assert_sound(&db);
}

#[test]
fn a_disk_without_room_for_cleaning_stops_neither_writers_nor_flushes() {
    let sim = SimStorage::new(1);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let db = builder(&storage, Cleaning::WithFlush).garbage_share(0.05).open("/db").unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    put(&db, &keyspace, 0..1000, 0);
    db.compact().unwrap();
    put(&db, &keyspace, (0..1000u64).filter(|key| key.is_multiple_of(3)), 1);
    // New value files cannot be made; commits need none.
    let rule = FaultRule::new(FaultEffect::OsError(28)).on(&[Operation::Create]);
    sim.arm(FaultPlan::new().rule(rule.path("val-").lasting()));
    db.flush().unwrap();
    db.compact().unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().values_moved, 0);
    let refused = db.vacuum().unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    keyspace.put("small", "value").unwrap();
    sim.disarm();
    db.flush().unwrap();
    assert!(db.stats().values_moved > 0);
    for key in 0..1000u64 {
        let round = u64::from(key.is_multiple_of(3));
        assert!(*keyspace.get(key.to_be_bytes()).unwrap().unwrap() == *value_of(key, round));
    }
    assert_sound(&db);
}

/// Keys whose values say whose they are: a reader that is given another one's, or a piece of one,
/// sees it.
fn assert_is_own(key: &[u8], value: &[u8]) {
    let number = u64::from_be_bytes(key.try_into().unwrap());
    let round = u64::from_le_bytes(value[8..16].try_into().unwrap());
    assert!(*value == *value_of(number, round), "the value of {number}, round {round}");
}

fn read_along(db: &Db, keyspace: &Keyspace, is_done: &AtomicBool, seed: u64) {
    let mut random = Random::new(seed);
    let mut held = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        let key = random.below(300).to_be_bytes();
        if let Some(found) = keyspace.get(key).unwrap() {
            assert_is_own(&key, &found);
        }
        for entry in keyspace.range(key.to_vec()..).take(5) {
            let entry = entry.unwrap();
            assert_is_own(&entry.key, &entry.value);
        }
        if let Some(mut reader) = keyspace.get_reader(key).unwrap() {
            let mut value = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut value).unwrap();
            assert_is_own(&key, &value);
        }
        if held.len() > 3 {
            let snapshot: lithedb::Snapshot = held.swap_remove(random.index(held.len()));
            for entry in snapshot.iter(keyspace).take(100) {
                let entry = entry.unwrap();
                assert_is_own(&entry.key, &entry.value);
            }
        }
        held.push(db.snapshot());
    }
}

#[test]
fn readers_writers_vacuum_and_drops_at_once_never_meet_a_missing_or_wrong_value() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = builder(&storage, Cleaning::Background)
        .background(Background::Threads)
        .value_file_size(32 << 10)
        .memtable_size(8 << 10)
        .garbage_share(0.05)
        .open("/db")
        .unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (db, keyspace, is_done) = (&db, &keyspace, &is_done);
            scope.spawn(move || read_along(db, keyspace, is_done, seed));
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.vacuum().unwrap();
            }
        });
        scope.spawn(|| {
            for round in 0..40 {
                let other = db.keyspace_or_create("other").unwrap();
                put(&db, &other, 0..50, round);
                drop(other);
                db.drop_keyspace("other").unwrap();
            }
        });
        let mut random = Random::new(9);
        for round in 0..400 {
            put(&db, &keyspace, (0..10).map(|_| random.below(300)), round);
            let same = random.below(300);
            if let Some(value) = keyspace.get(same.to_be_bytes()).unwrap() {
                keyspace.put_with(same.to_be_bytes(), value, Durability::Buffered).unwrap();
            }
            let from = random.below(300);
            let range = from.to_be_bytes()..(from + random.below(20)).to_be_bytes();
            keyspace.delete_range(range).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let stats = db.stats();
    assert!(stats.values_moved > 0 && stats.value_files_removed > 0);
    assert_sound(&db);
    db.vacuum().unwrap();
    let stats = db.stats();
    assert!(
        stats.value_bytes() <= stats.value_bytes_live() * 17 / 16 + (32 << 10) + VALUE_SIZE as u64
    );
    let rows = keyspace.iter().map(|entry| entry.unwrap().value).collect::<Vec<_>>();
    db.close().unwrap();
    drop((db, keyspace));
    let db = builder(&storage, Cleaning::OnDemand).open("/db").unwrap();
    let found = db.keyspace("k").unwrap().iter().map(|entry| entry.unwrap().value);
    assert!(found.eq(rows));
}
