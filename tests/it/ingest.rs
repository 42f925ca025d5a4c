//! Bulk ingest: sorted entries that become visible at once, over what was there and beside those
//! who read and write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lithe_sim::random::Random;
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage,
};
use lithedb::{Background, Builder, Db, Durability, Error, Keyspace, KeyspaceOptions};

use crate::support::{assert_sound, create_tiny, open_tiny};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn builder(storage: &SimStorage) -> Builder {
    Db::builder()
        .storage(Arc::new(storage.clone()))
        .background(Background::Stepped)
        .durability(Durability::Buffered)
        .memory_budget(8 << 20)
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::flex().interval_size(2048).segment_size(64 << 10).value_separation(Some(600))
}

fn open(storage: &SimStorage) -> (Db, Keyspace) {
    let db = builder(storage).open("/db").unwrap();
    let keyspace = match db.create_keyspace("k", options()) {
        Err(Error::KeyspaceExists { .. }) => db.keyspace("k").unwrap(),
        created => created.unwrap(),
    };
    (db, keyspace)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn rows_of(keyspace: &Keyspace) -> Rows {
    let row = |entry: lithedb::Result<lithedb::Entry>| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    };
    keyspace.iter().map(row).collect()
}

fn assert_rows(keyspace: &Keyspace, expected: &Rows) {
    let found = rows_of(keyspace);
    assert!(found == *expected, "{} rows, expected {}", found.len(), expected.len());
    assert_eq!(keyspace.len().unwrap(), expected.len() as u64);
    for (key, value) in expected.iter().step_by(7) {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
}

/// Entries with these numbers, and values that name the round.
fn entries(numbers: impl IntoIterator<Item = u64>, round: u64, len: usize) -> Rows {
    let entry = |number: u64| (key(number), format!("{round}/{number:0len$}").into_bytes());
    numbers.into_iter().map(entry).collect()
}

/// Names of segment files.
fn segments(storage: &SimStorage) -> Vec<String> {
    let dir = storage.list_dir("/db/keyspaces/00000001".as_ref()).unwrap();
    dir.into_iter().map(|entry| entry.name).filter(|name| name.starts_with("seg-")).collect()
}

#[test]
fn what_is_ingested_takes_its_place_whatever_was_there() {
    let storage = SimStorage::new(1);
    let (db, k) = open(&storage);
    let (mut expected, mut random) = (Rows::new(), Random::new(5));
    // Into nothing, behind, in front, into a gap, over all, sparsely, densely over a part.
    let shapes: Vec<Rows> = vec![
        entries(4000..6000, 0, 60),
        entries(8000..9000, 1, 60),
        entries(1000..2000, 2, 60),
        entries(7000..7400, 3, 60),
        entries((0..10_000).step_by(2), 4, 60),
        entries((0..10_000).step_by(331), 5, 60),
        entries(3000..3500, 6, 700),
        entries([9_999_999], 7, 60),
        entries(4990..5010, 8, 60),
    ];
    for (round, rows) in shapes.into_iter().enumerate() {
        let snapshot = db.snapshot();
        let report = k.ingest(&rows).unwrap();
        assert_eq!(report.entries, rows.len() as u64, "{round}");
        let then: Vec<Vec<u8>> =
            snapshot.iter(&k).keys().map(|key| key.unwrap().to_vec()).collect();
        assert!(then.iter().eq(expected.keys()), "{round}: a snapshot of before is as before");
        let (first, value) = rows.first_key_value().unwrap();
        let entry = k.get_entry(first).unwrap().unwrap();
        assert_eq!((&*entry.value, entry.seqno), (value.as_slice(), report.seqno), "{round}");
        expected.extend(rows);
        assert_rows(&k, &expected);
        if random.chance(300) {
            k.delete_range(key(100)..key(700)).unwrap();
            expected.retain(|other, _| !(key(100)..key(700)).contains(other));
            assert_rows(&k, &expected);
        }
        assert_sound(&db);
    }
    db.compact().unwrap();
    assert_rows(&k, &expected);
    drop((k, db));
    let (db, k) = open(&storage);
    assert_rows(&k, &expected);
    assert_sound(&db);
}

#[test]
fn older_writes_in_memtables_are_hidden_and_later_ones_are_not() {
    let storage = SimStorage::new(2);
    let (db, k) = open(&storage);
    k.put(key(5), "older").unwrap();
    k.delete(key(6)).unwrap();
    k.delete_range(key(7)..key(9)).unwrap();
    k.put(key(50), "outside").unwrap();
    let report = k.ingest(entries(0..10, 0, 1)).unwrap();
    let mut expected = entries(0..10, 0, 1);
    expected.insert(key(50), b"outside".to_vec());
    assert_rows(&k, &expected);
    assert!(k.put(key(5), "newer").unwrap() > report.seqno);
    k.delete(key(6)).unwrap();
    k.delete_range(key(8)..key(9)).unwrap();
    expected.insert(key(5), b"newer".to_vec());
    expected.remove(&key(6));
    expected.remove(&key(8));
    assert_rows(&k, &expected);
    drop((k, db));
    let (db, k) = open(&storage);
    assert_rows(&k, &expected);
    db.compact().unwrap();
    assert_rows(&k, &expected);
}

#[test]
fn random_ingests_and_writes_agree_with_a_map() {
    for seed in 0..6 {
        let storage = SimStorage::new(seed);
        let (mut db, mut k) = open(&storage);
        let (mut expected, mut random) = (Rows::new(), Random::new(seed));
        for round in 0..80 {
            let (from, step) = (random.below(3000), 1 + random.below(20));
            let count = 1 + random.below(300);
            match random.below(10) {
                0..5 => {
                    let len = random.pick(&[5, 40, 40, 800]);
                    let rows = entries((0..count).map(|n| from + n * step), round, len);
                    k.ingest(&rows).unwrap();
                    expected.extend(rows);
                }
                5..7 => {
                    for number in (0..count).map(|n| from + n * step) {
                        k.put(key(number), [b'p'; 30]).unwrap();
                        expected.insert(key(number), vec![b'p'; 30]);
                    }
                }
                7 => {
                    let range = key(from)..key(from + count * 3);
                    k.delete_range(range.clone()).unwrap();
                    expected.retain(|other, _| !range.contains(other));
                }
                8 => drop(db.step().unwrap()),
                _ => {
                    drop((k, db));
                    (db, k) = open(&storage);
                }
            }
            assert_eq!(k.len().unwrap(), expected.len() as u64, "seed {seed}, round {round}");
        }
        assert_rows(&k, &expected);
        assert_sound(&db);
        assert_eq!(storage.violations(), Vec::<String>::new());
    }
}

#[test]
fn bad_input_changes_nothing_and_leaves_nothing() {
    let storage = SimStorage::new(3);
    let (db, k) = open(&storage);
    k.ingest(entries(0..100, 0, 60)).unwrap();
    let (before, files) = (rows_of(&k), segments(&storage));
    let refuse = |rows: Vec<(Vec<u8>, Vec<u8>)>| {
        let refused = k.ingest(rows).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
        assert_eq!(segments(&storage), files, "the room is given back");
    };
    let long: Vec<(Vec<u8>, Vec<u8>)> = entries(1000..5000, 1, 60).into_iter().collect();
    let with = |last: (Vec<u8>, Vec<u8>)| long.iter().cloned().chain([last]).collect();
    refuse(with((key(4999), b"again".to_vec())));
    refuse(with((key(1), b"below".to_vec())));
    refuse(with((vec![b'z'; lithedb::KEY_LEN_MAX + 1], Vec::new())));
    // An iterator that fails, with an error of the caller's.
    #[derive(Debug)]
    enum Failure {
        Source,
        Database(#[expect(dead_code, reason = "shown")] Error),
    }
    impl From<Error> for Failure {
        fn from(error: Error) -> Failure {
            Failure::Database(error)
        }
    }
    let failing = long.iter().cloned().map(Ok).chain([Err(Failure::Source)]);
    let failed = k.try_ingest(failing).unwrap_err();
    assert!(matches!(failed, Failure::Source), "{failed:?}");
    let mut dropped = k.begin_ingest().unwrap();
    for (key, value) in &long {
        dropped.add(key, value).unwrap();
    }
    assert!(segments(&storage).len() > files.len(), "it has written something");
    drop(dropped);
    assert_eq!(segments(&storage), files);
    let seqno = db.snapshot().seqno();
    let nothing = k.ingest(Rows::new()).unwrap();
    assert_eq!((nothing.entries, nothing.seqno), (0, seqno));
    assert!(rows_of(&k) == before);
    assert_sound(&db);
    let orphan = k.begin_ingest().unwrap();
    db.close().unwrap();
    drop(orphan);
    let mut late = match k.begin_ingest() {
        Err(Error::Closed) => return,
        other => other.unwrap(),
    };
    late.add("a", "b").unwrap_err();
}

#[test]
fn what_is_under_way_when_the_database_closes_or_the_keyspace_goes_is_nothing() {
    let storage = SimStorage::new(4);
    let (db, k) = open(&storage);
    let mut ingest = k.begin_ingest().unwrap();
    for (key, value) in entries(0..3000, 0, 60) {
        ingest.add(key, value).unwrap();
    }
    db.close().unwrap();
    let refused = (3000..9000).find_map(|number| ingest.add(key(number), [b'v'; 60]).err());
    assert!(matches!(refused, Some(Error::Closed)), "{refused:?}");
    assert!(ingest.finish().is_err());
    drop((k, db));
    let (db, k) = open(&storage);
    assert!(k.is_empty().unwrap() && segments(&storage).is_empty(), "orphans are removed");
    let mut ingest = k.begin_ingest().unwrap();
    ingest.add("a", "b").unwrap();
    db.drop_keyspace("k").unwrap();
    let refused = ingest.finish().unwrap_err();
    assert!(matches!(refused, Error::KeyspaceNotFound { .. }), "{refused}");
    assert_sound(&db);
}

#[test]
fn a_full_disk_refuses_an_ingest_and_nothing_has_changed() {
    let storage = SimStorage::new(5);
    let (_db, k) = open(&storage);
    k.ingest(entries(0..500, 0, 60)).unwrap();
    let (before, files) = (rows_of(&k), segments(&storage));
    let rows = entries(200..4000, 1, 100);
    let mut refusals = 0;
    for nth in 0..20 {
        let full = FaultRule::new(FaultEffect::Error(std::io::ErrorKind::StorageFull));
        let full = full.on(&[Operation::Write, Operation::Create]).path("seg-");
        storage.arm(FaultPlan::new().rule(full.skip(nth).lasting()));
        match k.ingest(&rows) {
            Err(Error::DiskFull { .. }) => refusals += 1,
            Ok(_) => break,
            Err(other) => panic!("{other}"),
        }
        storage.arm(FaultPlan::new());
        assert!(rows_of(&k) == before, "{nth}");
        assert_eq!(segments(&storage), files, "{nth}");
    }
    storage.arm(FaultPlan::new());
    assert!(refusals > 2, "{refusals}");
    k.ingest(&rows).unwrap();
    let mut expected = before;
    expected.extend(rows);
    assert_rows(&k, &expected);
}

#[test]
fn transactions_that_have_read_the_range_conflict() {
    let storage = SimStorage::new(6);
    let (db, k) = open(&storage);
    k.put(key(50), "v").unwrap();
    let begin = |reads: std::ops::Range<u64>| {
        let transaction = db.begin_update();
        let rows = transaction.range(&k, key(reads.start)..key(reads.end)).unwrap().count();
        (transaction, rows)
    };
    let (mut inside, _) = begin(10..20);
    let (mut outside, _) = begin(200..300);
    let mut blind = db.begin_update();
    k.ingest(entries([0, 15, 60], 1, 10)).unwrap();
    let (mut later, rows) = begin(10..20);
    assert_eq!(rows, 1);
    for transaction in [&mut inside, &mut outside, &mut blind, &mut later] {
        transaction.put(&k, "x", "y").unwrap();
    }
    assert!(matches!(inside.commit(), Err(Error::Conflict)));
    outside.commit().unwrap();
    blind.commit().unwrap();
    later.commit().unwrap();
}

#[test]
fn writers_and_readers_go_on_beside_an_ingest() {
    let storage = SimStorage::new(7);
    let db = builder(&storage).background(Background::Threads).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let (over, rounds) = (AtomicBool::new(false), 30);
    std::thread::scope(|scope| {
        // A key that is ingested is written as well: the newest counts, and stamps only rise.
        scope.spawn(|| {
            let mut number = 0u64;
            while !over.load(Ordering::Relaxed) {
                number += 1;
                k.put(key(number % 500 * 2), format!("put {number}")).unwrap();
            }
        });
        scope.spawn(|| {
            let mut newest = lithedb::SeqNo::ZERO;
            while !over.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                // All of an ingest or nothing: its odd keys are written by nobody else.
                let odd = |number: u64| snapshot.get_entry(&k, key(number)).unwrap();
                let (first, last) = (odd(1), odd(1999));
                let stamp =
                    |entry: &Option<lithedb::Entry>| entry.as_ref().map(|entry| entry.seqno);
                assert_eq!(stamp(&first), stamp(&last));
                if let Some(entry) = first {
                    assert!(entry.seqno <= snapshot.seqno() && entry.seqno >= newest);
                    newest = entry.seqno;
                }
            }
        });
        for round in 0..rounds {
            let report = k.ingest(entries(0..2000, round, 40)).unwrap();
            let entry = k.get_entry(key(999)).unwrap().unwrap();
            assert_eq!(entry.seqno, report.seqno);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(k.len().unwrap(), 2000);
    assert_sound(&db);
}

#[test]
fn the_stamp_of_an_ingest_is_not_given_again_when_its_keyspace_has_gone() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let kept = create_tiny(&db, "kept");
    let mut ingest = create_tiny(&db, "gone").begin_ingest().unwrap();
    ingest.add("a", "1").unwrap();
    let stamp = ingest.finish().unwrap().seqno;
    db.drop_keyspace("gone").unwrap();
    let after = open_tiny(&storage.crash(CrashMode::KeepAll, 0));
    let next = after.keyspace("kept").unwrap().put("a", "2").unwrap();
    assert!(next > stamp, "{next} behind {stamp}");
    assert!(kept.put("a", "2").unwrap() > stamp);
}
