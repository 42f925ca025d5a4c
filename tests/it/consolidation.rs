//! What flushes leave in delta runs is consolidated: when asked for, and when nothing is committed.

use std::sync::Arc;
use std::time::Duration;

use lithedb::storage::MemoryStorage;
use lithedb::{Db, Durability, Keyspace, WriteBatch};

use crate::support::{assert_sound, create_tiny, open_tiny_with_threads, rows};

/// Rounds of overwriting, each of which leaves deltas.
const ROUND_COUNT: u32 = 6;
const KEY_COUNT: u32 = 2000;
/// An idle database is looked at this often, and so many times: generous, as machines are busy.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOK_COUNT_MAX: u32 = 3000;

fn overwrite_all(db: &Db, keyspace: &Keyspace) {
    for round in 0..ROUND_COUNT {
        let mut batch = WriteBatch::new();
        for number in 0..KEY_COUNT {
            let number = number.wrapping_mul(2_654_435_761) % KEY_COUNT;
            batch.put(keyspace, number.to_be_bytes(), round.to_be_bytes());
        }
        db.write_with(batch, Durability::Buffered).unwrap();
        db.flush().unwrap();
    }
}

fn assert_newest(keyspace: &Keyspace) {
    let found = rows(keyspace);
    assert!(found.values().all(|value| **value == (ROUND_COUNT - 1).to_be_bytes()));
}

fn is_consolidated(db: &Db) -> bool {
    let stats = db.stats();
    let keyspace = &stats.keyspaces[0];
    // Deltas too small to be worth it may stay, in an interval or two.
    keyspace.runs <= keyspace.intervals + keyspace.intervals / 8 && keyspace.bytes_live > 0
}

#[test]
fn compact_leaves_each_interval_one_run_and_gives_room_back() {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let keyspace = create_tiny(&db, "a");
    overwrite_all(&db, &keyspace);
    db.compact().unwrap();
    let stats = db.stats();
    assert!(is_consolidated(&db), "{:?}", stats.keyspaces[0]);
    let keyspace_stats = &stats.keyspaces[0];
    assert!(
        keyspace_stats.bytes_dead * 4 < keyspace_stats.bytes_live,
        "sparse segments are emptied: {keyspace_stats:?}"
    );
    assert_newest(&keyspace);
    assert_sound(&db);
}

#[test]
fn an_idle_database_consolidates_by_itself_also_after_a_flush_by_a_caller() {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let keyspace = create_tiny(&db, "a");
    for _ in 0..2 {
        overwrite_all(&db, &keyspace);
        let mut looks = 0;
        while !is_consolidated(&db) {
            looks += 1;
            assert!(looks < LOOK_COUNT_MAX, "{:?}", db.stats().keyspaces[0]);
            std::thread::sleep(LOOK_EVERY);
        }
    }
    assert_newest(&keyspace);
    assert_sound(&db);
}

#[test]
fn a_snapshot_reads_on_what_compaction_has_replaced() {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let keyspace = create_tiny(&db, "a");
    overwrite_all(&db, &keyspace);
    let before = db.snapshot();
    for number in 0..KEY_COUNT {
        keyspace.delete_with(number.to_be_bytes(), Durability::Buffered).unwrap();
    }
    db.compact().unwrap();
    assert!(rows(&keyspace).is_empty());
    for number in [0, 7, KEY_COUNT - 1] {
        let value = before.get(&keyspace, number.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&(ROUND_COUNT - 1).to_be_bytes()[..]));
    }
    drop(before);
    assert_sound(&db);
}
