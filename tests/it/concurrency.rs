//! Many threads at once: nobody sees half a batch, waits for ever, or panics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lithe_sim::random::Random;
use lithedb::storage::{CrashMode, MemoryStorage, OsStorage, SimStorage};
use lithedb::{Db, Durability, Error, Keyspace, WriteBatch};

use crate::support::{
    PATH, assert_sound, create_tiny, open_tiny, open_tiny_with_threads, rows, tiny,
};

const KEY_COUNT: u64 = 50;
const COMMIT_COUNT: u64 = 1500;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

/// Sets every key of both keyspaces to `number`, in one batch.
fn write_everywhere(db: &Db, keyspaces: &[Keyspace; 2], number: u64) {
    let mut batch = WriteBatch::new();
    for keyspace in keyspaces {
        for index in 0..KEY_COUNT {
            batch.put(keyspace, key(index), number.to_le_bytes());
        }
    }
    db.write_with(batch, Durability::Buffered).unwrap();
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let keyspaces = [create_tiny(&db, "a"), create_tiny(&db, "b")];
    write_everywhere(&db, &keyspaces, 0);
    let is_done = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot();
                    let entries = keyspaces.iter().flat_map(|keyspace| snapshot.iter(keyspace));
                    let values: Vec<Vec<u8>> =
                        entries.map(|entry| entry.unwrap().value.to_vec()).collect();
                    assert_eq!(values.len() as u64, 2 * KEY_COUNT);
                    assert!(values.iter().all(|value| *value == values[0]), "half a batch");
                    let number = u64::from_le_bytes(values[0].as_slice().try_into().unwrap());
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 1..400 {
            write_everywhere(&db, &keyspaces, number);
        }
        while seen.load(Ordering::Relaxed) < 20 {
            thread::yield_now();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_sound(&db);
    db.close().unwrap();
}

#[test]
fn writers_readers_and_flushes_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .storage(Arc::new(OsStorage::new()))
        .memory_budget(256 << 10)
        .memtable_size(8 << 10)
        .wal_file_size(32 << 10)
        .open(dir.path().join("db"))
        .unwrap();
    let names = ["a", "b", "c"];
    let is_done = AtomicBool::new(false);
    let models: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|index| {
                let keyspace = create_tiny(&db, names[index]);
                scope.spawn(move || write_own_keyspace(&keyspace, index as u64))
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.flush().unwrap();
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                for name in names {
                    walk_in_order(&db.keyspace(name).unwrap());
                }
            }
        });
        let models = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        is_done.store(true, Ordering::Relaxed);
        models
    });
    for (name, model) in names.iter().zip(&models) {
        assert_eq!(rows(&db.keyspace(name).unwrap()), *model);
    }
    assert_sound(&db);
    db.close().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    for (name, model) in names.iter().zip(&models) {
        assert_eq!(rows(&db.keyspace(name).unwrap()), *model, "after reopening");
    }
}

/// Writes at random and reads its own writes; what must be there in the end.
fn write_own_keyspace(keyspace: &Keyspace, seed: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = Random::new(seed);
    let mut model = BTreeMap::new();
    for number in 0..COMMIT_COUNT {
        let key = key(random.below(300));
        if random.chance(250) {
            keyspace.delete_with(&key, Durability::Buffered).unwrap();
            model.remove(&key);
        } else {
            let value = vec![number as u8; random.index(200)];
            keyspace.put_with(&key, &value, Durability::Buffered).unwrap();
            model.insert(key.clone(), value);
        }
        assert_eq!(keyspace.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
    }
    model
}

fn walk_in_order(keyspace: &Keyspace) {
    let mut last: Option<Vec<u8>> = None;
    for entry in keyspace.iter() {
        let key = entry.unwrap().key.to_vec();
        assert!(last.is_none_or(|last| last < key));
        last = Some(key);
    }
}

#[test]
fn the_winner_of_concurrent_puts_is_the_winner_after_recovery() {
    let storage = SimStorage::new(1);
    let db = open_tiny_with_threads(Arc::new(storage.clone()));
    let keyspace = create_tiny(&db, "a");
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for number in 0..200 {
                    let value = format!("{thread}/{number}");
                    let durability =
                        if number % 50 == 49 { Durability::Sync } else { Durability::Buffered };
                    keyspace.put_with(key(number % 7), value, durability).unwrap();
                }
            });
        }
    });
    let before: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
    let after = open_tiny(&storage.crash(CrashMode::KeepAll, 0));
    let after: Vec<_> = after.keyspace("a").unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(before, after);
}

#[test]
fn what_was_acknowledged_to_any_thread_survives_a_power_cut() {
    for seed in 0..40 {
        let storage = SimStorage::new(seed);
        let db = open_tiny_with_threads(Arc::new(storage.clone()));
        let keyspaces = ["a", "b"].map(|name| create_tiny(&db, name));
        storage.crash_inside(storage.mutation_count() + 20 + seed * 7);
        let acknowledged: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let keyspace = &keyspaces[thread % 2];
                scope.spawn(move || {
                    for number in 1..1000_u64 {
                        let written = keyspace.put(key(thread as u64), number.to_le_bytes());
                        if written.is_err() {
                            break;
                        }
                        acknowledged.store(number, Ordering::Relaxed);
                    }
                });
            }
        });
        for mode in CrashMode::ALL {
            let db = open_tiny(&storage.crash(mode, seed));
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let keyspace = db.keyspace(["a", "b"][thread % 2]).unwrap();
                let found = keyspace.get(key(thread as u64)).unwrap();
                let found =
                    found.map_or(0, |found| u64::from_le_bytes(found.to_vec().try_into().unwrap()));
                let acknowledged = acknowledged.load(Ordering::Relaxed);
                assert!(
                    found == acknowledged || found == acknowledged + 1,
                    "seed {seed}, {mode:?}: {found} found, {acknowledged} acknowledged"
                );
            }
            assert_sound(&db);
        }
    }
}

#[test]
fn readers_of_a_dropped_keyspace_are_told_and_its_successor_is_another() {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let is_done = AtomicBool::new(false);
    create_tiny(&db, "a");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let Ok(keyspace) = db.keyspace("a") else { continue };
                    for number in 0..50 {
                        let put = keyspace.put_with(key(number), b"x", Durability::Buffered);
                        assert_gone_or(&put.map(drop));
                        assert_gone_or(&keyspace.get(key(number)).map(drop));
                        assert_gone_or(&keyspace.iter().try_for_each(|entry| entry.map(drop)));
                    }
                }
            });
        }
        for _ in 0..60 {
            db.drop_keyspace("a").unwrap();
            let fresh = create_tiny(&db, "a");
            // Writers find it soon; until then it is empty.
            assert!(fresh.id() > 0);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_sound(&db);
    db.close().unwrap();
}

fn assert_gone_or(result: &Result<(), Error>) {
    assert!(matches!(result, Ok(()) | Err(Error::KeyspaceNotFound { .. })), "{result:?}");
}

#[test]
fn readers_and_writers_are_told_of_a_close_and_held_snapshots_read_on() {
    for round in (0..20).step_by(3) {
        let storage = SimStorage::new(round);
        let db = open_tiny_with_threads(Arc::new(storage.clone()));
        let keyspaces = [create_tiny(&db, "a"), create_tiny(&db, "b")];
        write_everywhere(&db, &keyspaces, 7);
        let put_count = AtomicU64::new(0);
        thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| {
                let (db, keyspaces, put_count) = (&db, &keyspaces, &put_count);
                scope.spawn(move || {
                    let snapshot = db.snapshot();
                    let before: Vec<_> = snapshot.iter(&keyspaces[0]).map(Result::unwrap).collect();
                    for number in 0.. {
                        let done = match thread {
                            0 => keyspaces[0].put(key(number), b"more").map(|_| {
                                put_count.fetch_add(1, Ordering::Relaxed);
                            }),
                            1 => keyspaces[0].get(key(number % KEY_COUNT)).map(drop),
                            _ => keyspaces[1].iter().try_for_each(|entry| entry.map(drop)),
                        };
                        if let Err(error) = done {
                            assert!(matches!(error, Error::Closed), "{error}");
                            break;
                        }
                    }
                    let after: Vec<_> = snapshot.iter(&keyspaces[0]).map(Result::unwrap).collect();
                    assert_eq!(before, after);
                })
            });
            // By what was done, not by turns: those are long where all processors are busy.
            let has_failed = || threads[0].is_finished();
            while put_count.load(Ordering::Relaxed) < round * 100 && !has_failed() {
                thread::yield_now();
            }
            db.close().unwrap();
        });
        db.close().unwrap();
        drop((db, keyspaces));
        let again = tiny(&storage).open(PATH).unwrap();
        assert!(again.keyspace("a").unwrap().get(key(0)).unwrap().is_some());
    }
}
