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
