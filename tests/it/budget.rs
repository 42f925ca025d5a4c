//! Memory keeps to its budget while what is read and what is written change places.

use std::sync::Arc;

use lithedb::storage::{MemoryStorage, Storage};
use lithedb::{Background, Db, Durability, Keyspace, KeyspaceOptions, WriteBatch};

const BUDGET: u64 = 16 << 20;
const MEMTABLE_SIZE: u64 = 512 << 10;
const ROW_COUNT: u64 = 350_000;
/// A block that is on its way into the cache, the step in which memtables grow, and the part of the
/// budget by which they may have grown before what is cached gives way.
const TOLERANCE: u64 = (32 << 10) + MEMTABLE_SIZE / 8 + BUDGET / 64;

fn key_of(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[..8].copy_from_slice(&scattered.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The numbers of all rows in the order of their keys.
fn numbers_by_key() -> Vec<u64> {
    let mut sorted: Vec<u64> = (0..ROW_COUNT).collect();
    sorted.sort_unstable_by_key(|&number| key_of(number));
    sorted
}

fn value_of(number: u64, round: u8) -> [u8; 100] {
    let mut value = [round; 100];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// Nearly three times the budget, consolidated, and opened anew: what indexes took while it was
/// filled does not count any more. Nothing happens behind its back.
fn filled(options: KeyspaceOptions) -> (Db, Keyspace) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = || {
        let builder = Db::builder().storage(Arc::clone(&storage)).durability(Durability::Buffered);
        let builder = builder.background(Background::Stepped).wal_file_size(256 << 10);
        builder.memory_budget(BUDGET).memtable_size(MEMTABLE_SIZE).open("/db").unwrap()
    };
    let db = open();
    let keyspace = db.create_keyspace("rows", options).unwrap();
    let numbers: Vec<u64> = (0..ROW_COUNT).collect();
    for some in numbers.chunks(500) {
        let mut batch = WriteBatch::new();
        for &number in some {
            batch.put(&keyspace, key_of(number), value_of(number, 0));
        }
        db.write(batch).unwrap();
    }
    db.flush().unwrap();
    while db.step().unwrap() {}
    drop(keyspace);
    db.close().unwrap();
    let db = open();
    let keyspace = db.keyspace("rows").unwrap();
    (db, keyspace)
}

fn assert_within(db: &Db, when: &str) {
    let stats = db.stats();
    let used = stats.memory_used();
    assert!(used <= BUDGET + TOLERANCE, "{when}: {used} of {BUDGET}\n{stats:#?}");
}

/// Numbers as if drawn, each below `below`.
fn drawn(below: u64) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % below
    }
}

fn reads_and_writes_in_turn(options: KeyspaceOptions) {
    let (db, keyspace) = filled(options);
    let mut draw = drawn(ROW_COUNT);
    let mut newest = vec![0; ROW_COUNT as usize];
    for round in 1..4 {
        for count in 0..30_000 {
            let number = draw();
            let expected = value_of(number, newest[number as usize]);
            assert_eq!(&*keyspace.get(key_of(number)).unwrap().unwrap(), expected);
            let mut absent = key_of(number);
            absent[15] ^= 0x80; // Another number's, whose scattered part is another.
            assert_eq!(keyspace.get(absent).unwrap(), None);
            if count % 100 == 0 {
                assert_within(&db, "reading");
            }
        }
        // As much as a memtable takes and more; what is sealed waits, as nobody flushes yet.
        for count in 0..8000 {
            let number = draw();
            newest[number as usize] = round;
            keyspace.put(key_of(number), value_of(number, round)).unwrap();
            if count % 10 == 0 {
                assert_within(&db, "writing");
            }
        }
        db.flush().unwrap();
        assert_within(&db, "flushed");
        while db.step().unwrap() {
            assert_within(&db, "consolidating");
        }
    }
}

#[test]
fn flex_keeps_to_it() {
    reads_and_writes_in_turn(KeyspaceOptions::flex());
}

#[test]
fn lsm_keeps_to_it() {
    reads_and_writes_in_turn(KeyspaceOptions::lsm());
}

#[test]
fn history_keeps_to_it() {
    reads_and_writes_in_turn(KeyspaceOptions::history());
}

/// What single entries are found by comes back after it had to give way, and follows a working set
/// that moves: in the end, few lookups read more than some pages.
#[test]
fn guides_follow_what_is_read() {
    let (db, keyspace) = filled(KeyspaceOptions::flex());
    let sorted = numbers_by_key();
    let stats_of = |db: &Db| {
        let stats = db.stats();
        let of = stats.keyspaces.iter().find(|of| of.name == "rows").unwrap();
        (of.blocks_read, of.block_bytes_read)
    };
    let half = sorted.len() / 2;
    for part in [&sorted[..half], &sorted[half..], &sorted[..half]] {
        let mut draw = drawn(part.len() as u64);
        for _ in 0..20_000 {
            keyspace.get(key_of(part[draw() as usize])).unwrap().unwrap();
        }
        let before = stats_of(&db);
        for _ in 0..5000 {
            keyspace.get(key_of(part[draw() as usize])).unwrap().unwrap();
        }
        let after = stats_of(&db);
        let (reads, bytes) = (after.0 - before.0, after.1 - before.1);
        assert!(bytes / reads.max(1) < 4 << 10, "{bytes} bytes in {reads} reads");
    }
}

/// Of the values of many keys that somebody holds, those that had to be read keep no blocks: each
/// would be as much as a hundred of them. And all are what single gets say.
fn values_of_many_keys(options: KeyspaceOptions) {
    let (db, keyspace) = filled(options);
    let sorted = numbers_by_key();
    let mut draw = drawn(ROW_COUNT);
    for round in 0..8 {
        // Far apart; side by side, with one between each two that is not there.
        let mut keys: Vec<[u8; 16]> = (0..3000).map(|_| key_of(draw())).collect();
        let first = draw() as usize % (sorted.len() - 400);
        for &number in &sorted[first..first + 400] {
            let mut absent = key_of(number);
            absent[15] ^= 0x80;
            keys.extend([key_of(number), absent]);
        }
        let values = keyspace.multi_get(&keys).unwrap();
        assert_within(&db, "holding values");
        for (key, value) in keys.iter().zip(&values) {
            assert_eq!(*value, keyspace.get(key).unwrap(), "{key:?} in round {round}");
        }
        assert!(values[..3000].iter().all(Option::is_some));
        assert!(values[3000..].chunks(2).all(|two| two[0].is_some() && two[1].is_none()));
    }
}

#[test]
fn values_of_many_keys_keep_no_blocks_of_flex() {
    values_of_many_keys(KeyspaceOptions::flex());
}

#[test]
fn values_of_many_keys_keep_no_blocks_of_lsm() {
    values_of_many_keys(KeyspaceOptions::lsm());
}
