//! Ranges deleted at once: seen by every way to read, before and behind flushes and reopening, and
//! not by snapshots taken before; their room comes back without being read.

use std::sync::Arc;

use lithedb::storage::{MemoryStorage, SimStorage};
use lithedb::{Background, Builder, Db, KeyRange, Keyspace, KeyspaceOptions, Snapshot, WriteBatch};

use crate::support::assert_sound;

const KEY_COUNT: u32 = 20_000;

fn builder() -> Builder {
    Db::builder()
        .background(Background::Stepped)
        .durability(lithedb::Durability::Buffered)
        .memory_budget(8 << 20)
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn fill(db: &Db, keyspace: &Keyspace) {
    for first in (0..KEY_COUNT).step_by(500) {
        let mut batch = WriteBatch::new();
        for number in first..first + 500 {
            batch.put(keyspace, key(number), [b'v'; 60]);
        }
        db.write(batch).unwrap();
    }
}

fn open(storage: &MemoryStorage) -> (Db, Keyspace) {
    let db = builder().storage(Arc::new(storage.clone())).open("/db").unwrap();
    let options = KeyspaceOptions::flex().interval_size(2048).segment_size(64 << 10);
    let keyspace = match db.create_keyspace("k", options) {
        Err(lithedb::Error::KeyspaceExists { .. }) => db.keyspace("k").unwrap(),
        created => created.unwrap(),
    };
    (db, keyspace)
}

/// Every way to read must agree that these keys are there, and no others.
fn assert_keys(keyspace: &Keyspace, expected: &[u32]) {
    let expected: Vec<_> = expected.iter().map(|&number| key(number)).collect();
    let forward: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().key.to_vec()).collect();
    assert!(forward == expected, "{} and not {}", forward.len(), expected.len());
    let mut backward: Vec<_> =
        keyspace.iter().rev().map(|entry| entry.unwrap().key.to_vec()).collect();
    backward.reverse();
    assert!(backward == expected);
    let mut cursor = keyspace.cursor(KeyRange::all());
    for number in (0..KEY_COUNT).step_by(97) {
        let key = key(number);
        let place = expected.partition_point(|other| *other < key);
        let is_there = expected.get(place) == Some(&key);
        assert_eq!(keyspace.get(&key).unwrap().is_some(), is_there, "{number}");
        cursor.seek(&key).unwrap();
        assert_eq!(cursor.valid().then(|| cursor.key().to_vec()).as_ref(), expected.get(place));
        cursor.prev().unwrap();
        let before = place.checked_sub(1).map(|before| &expected[before]);
        assert_eq!(cursor.valid().then(|| cursor.key().to_vec()).as_ref(), before, "{number}");
        cursor.seek_for_prev(&key).unwrap();
        let at_most = if is_there { Some(&key) } else { before };
        assert_eq!(cursor.valid().then(|| cursor.key().to_vec()).as_ref(), at_most, "{number}");
        cursor.next().unwrap();
        let behind = expected.get(place + usize::from(is_there));
        assert_eq!(cursor.valid().then(|| cursor.key().to_vec()).as_ref(), behind, "{number}");
    }
}

fn count(snapshot: &Snapshot, keyspace: &Keyspace) -> usize {
    snapshot.iter(keyspace).inspect(|entry| assert!(entry.is_ok())).count()
}

#[test]
fn a_deleted_range_is_gone_for_every_reader_but_earlier_snapshots() {
    let storage = MemoryStorage::new();
    let (db, k) = open(&storage);
    fill(&db, &k);
    db.flush().unwrap();
    for number in (0..KEY_COUNT).step_by(3) {
        k.put(key(number), "newer, in the memtable").unwrap();
    }
    let before = db.snapshot();
    k.delete_range(key(1_000)..key(17_000)).unwrap();
    k.delete_range(key(500)..key(2_000)).unwrap();
    k.put(key(9_000), "behind it").unwrap();
    let mut expected: Vec<u32> = (0..500).chain([9_000]).chain(17_000..KEY_COUNT).collect();
    assert_keys(&k, &expected);
    // While the flush goes on in slices, and when it is over.
    drop(before.clone());
    while db.step().unwrap() {
        assert_keys(&k, &expected);
    }
    let second = db.snapshot();
    db.flush().unwrap();
    assert_keys(&k, &expected);
    assert_eq!(count(&before, &k), KEY_COUNT as usize);
    k.put(key(9_001), "later").unwrap();
    k.delete_prefix("key00").unwrap();
    k.delete_range(key(18_000)..).unwrap();
    assert_eq!(count(&second, &k), expected.len());
    expected.retain(|&number| (10_000..18_000).contains(&number));
    assert_keys(&k, &expected);
    drop((before, second));
    db.close().unwrap();
    drop((db, k));
    let (db, k) = open(&storage);
    assert_keys(&k, &expected);
    assert_sound(&db);
    k.clear().unwrap();
    assert_keys(&k, &[]);
    db.flush().unwrap();
    assert_keys(&k, &[]);
    db.close().unwrap();
}

#[test]
fn deletions_are_replayed_in_their_order() {
    let storage = SimStorage::new(1);
    let open =
        |storage: &SimStorage| builder().storage(Arc::new(storage.clone())).open("/db").unwrap();
    let db = open(&storage);
    let k = db.keyspace_or_create("k").unwrap();
    let mut batch = WriteBatch::new();
    for name in ["a", "b", "c", "d"] {
        batch.put(&k, name, "1");
    }
    batch.delete_range(&k, "b".."d");
    batch.put(&k, "c", "2");
    db.write(batch).unwrap();
    let mut empty = WriteBatch::new();
    empty.delete_range(&k, "x".."x");
    assert!(empty.is_empty(), "an empty range is nothing");
    db.sync().unwrap();
    let crashed = storage.crash(lithedb::storage::CrashMode::DropAll, 1);
    for keyspace in [k.clone(), open(&crashed).keyspace("k").unwrap()] {
        let keys: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().key.to_vec()).collect();
        assert_eq!(keys, [b"a", b"c", b"d"]);
        assert_eq!(keyspace.get("c").unwrap().as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn the_room_of_a_deleted_range_comes_back_without_reading_it() {
    let storage = MemoryStorage::new();
    let (db, k) = open(&storage);
    fill(&db, &k);
    db.flush().unwrap();
    db.compact().unwrap();
    let full = db.stats();
    k.delete_range(key(2_000)..key(18_000)).unwrap();
    db.flush().unwrap();
    let emptied = db.stats();
    let read = emptied.keyspaces[0].block_bytes_read - full.keyspaces[0].block_bytes_read;
    assert!(read < 16 << 10, "two intervals at the ends: {read} bytes");
    assert!(emptied.keyspaces[0].bytes_live < full.keyspaces[0].bytes_live / 4);
    assert!(emptied.keyspaces[0].intervals < full.keyspaces[0].intervals / 4);
    while db.step().unwrap() {}
    let settled = db.stats();
    assert!(settled.keyspaces[0].bytes_on_disk < full.keyspaces[0].bytes_on_disk / 2);
    assert_sound(&db);
    db.close().unwrap();
}

/// Ranges that a test deletes in one batch, or in commits of their own.
const RANGE_COUNT: u32 = 100_000;
/// Every fifth number up to here is a key.
const NUMBER_COUNT: u32 = 400_000;

/// Has the keys, all in the structure, and those that are left with the test.
fn filled_with_every_fifth(db: &Db, options: KeyspaceOptions) -> (Keyspace, Vec<u32>) {
    let keyspace = db.create_keyspace("k", options).unwrap();
    let numbers: Vec<u32> = (0..NUMBER_COUNT).step_by(5).collect();
    for numbers in numbers.chunks(1000) {
        let mut batch = WriteBatch::new();
        numbers.iter().for_each(|&number| batch.put(&keyspace, key(number), number.to_be_bytes()));
        db.write(batch).unwrap();
    }
    db.flush().unwrap();
    (keyspace, numbers)
}

fn assert_left(keyspace: &Keyspace, expected: &[u32]) {
    let found: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().key.to_vec()).collect();
    let expected_keys = expected.iter().map(|&number| key(number));
    assert!(expected_keys.eq(found), "other keys than {} of them", expected.len());
    assert!(keyspace.iter().rev().count() == expected.len());
    assert_eq!(keyspace.len().unwrap(), expected.len() as u64);
    for number in (0..NUMBER_COUNT).step_by(95) {
        let is_there = expected.binary_search(&number).is_ok();
        assert_eq!(keyspace.get(key(number)).unwrap().is_some(), is_there, "{number}");
    }
}

/// Each range was put into the list of all before it by a copy of that: for one batch, five
/// thousand million ranges, and as many again when it was replayed, read back from tables, and
/// where the batch asks which of its own entries it has deleted.
#[test]
fn a_batch_deletes_very_many_ranges() {
    for options in [KeyspaceOptions::flex(), KeyspaceOptions::lsm(), KeyspaceOptions::history()] {
        let storage = MemoryStorage::new();
        let open = || {
            let storage = Arc::new(storage.clone());
            builder().memory_budget(256 << 20).storage(storage).open("/db").unwrap()
        };
        let db = open();
        let (k, mut expected) = filled_with_every_fifth(&db, options.clone());
        let before = db.snapshot();
        let mut batch = WriteBatch::new();
        batch.put(&k, key(2), "deleted by the batch itself");
        // The even ones, apart from each other; then some that overlap, and lie in each other.
        for number in (0..2 * RANGE_COUNT).step_by(2) {
            batch.delete_range(&k, key(number)..key(number + 1));
        }
        for number in 0..RANGE_COUNT / 2 {
            let start = 250_000 + number / 2;
            batch.delete_range(&k, key(start)..key(start + 20 + number % 7));
            batch.delete_range(&k, key(300_000 + number)..key(399_999 - number));
        }
        batch.put(&k, key(4), "put behind it");
        db.write(batch).unwrap();
        let is_left = |&number: &u32| match number {
            0..200_000 => number % 2 == 1,
            250_000..275_024 | 300_000..399_999 => false,
            _ => true,
        };
        expected.retain(is_left);
        expected.insert(0, 4);
        assert_left(&k, &expected);
        assert_eq!(count(&before, &k), (NUMBER_COUNT / 5) as usize);
        drop((before, k));
        drop(db); // Not closed: the batch is replayed.
        let db = open();
        let k = db.keyspace("k").unwrap();
        assert_left(&k, &expected);
        db.flush().unwrap();
        assert_left(&k, &expected);
        // Ranges of several tables of Lsm at once.
        let mut batch = WriteBatch::new();
        for number in (0..2 * RANGE_COUNT).step_by(2) {
            batch.delete_range(&k, key(200_000 + number)..key(200_002 + number - number % 4 / 2));
        }
        db.write(batch).unwrap();
        expected.retain(|&number| number < 200_000 || number % 4 == 3);
        db.flush().unwrap();
        assert_left(&k, &expected);
        while db.step().unwrap() {}
        db.close().unwrap();
        drop((db, k));
        let db = open();
        assert_left(&db.keyspace("k").unwrap(), &expected);
        assert_sound(&db);
        db.close().unwrap();
    }
}

/// Each took a copy of all before it, and each that lay in others a list of the stamps of these.
#[test]
fn a_transaction_deletes_very_many_ranges() {
    let db = builder().memory_budget(256 << 20).storage(Arc::new(MemoryStorage::new()));
    let db = db.open("/db").unwrap();
    let (k, mut expected) = filled_with_every_fifth(&db, KeyspaceOptions::flex());
    let mut transaction = db.begin_update();
    for number in 0..RANGE_COUNT / 2 {
        let place = 2 * number;
        transaction.delete_range(&k, key(place)..key(place + 1)).unwrap();
        transaction.delete_range(&k, key(200_000 + number)..key(399_999 - number)).unwrap();
        if number % 5000 == 0 {
            assert!(transaction.get(&k, key(place)).unwrap().is_none());
            assert!(transaction.get(&k, key(200_000)).unwrap().is_none());
        }
    }
    transaction.put(&k, key(300_000), "behind its deletion").unwrap();
    let is_left = |&number: &u32| match number {
        0..100_000 => number % 2 == 1,
        200_000..399_999 => number == 300_000,
        _ => true,
    };
    expected.retain(is_left);
    assert_eq!(transaction.iter(&k).unwrap().count(), expected.len());
    transaction.commit().unwrap();
    assert_left(&k, &expected);
    db.flush().unwrap();
    assert_left(&k, &expected);
    db.close().unwrap();
}
