//! A full disk: a state, that ends by itself.

use std::path::Path;
use std::sync::Arc;

use lithedb::storage::{CrashMode, OpenMode, Operation, SimStorage, Storage};
use lithedb::{
    Access, BackupRepository, Db, Encryption, Error, HealthState, OpenExisting, RestoreOptions,
    WriteBatch,
};

use super::{Rows, Told, is_full, key, put_until_refused, tiny, wait_until, with_threads};
use crate::support::{PATH, assert_sound, rows, tiny_structures};

const RESERVE: u64 = 4 << 20;

/// Room that is left when it begins.
const ROOM: u64 = 384 << 10;

fn reserve_of(storage: &SimStorage) -> Option<u64> {
    let file = storage.open(Path::new("/db/RESERVE"), OpenMode::ReadOnly);
    file.ok().map(|file| file.size().unwrap())
}

#[test]
fn what_makes_room_goes_on_and_writing_resumes_by_itself() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let told = Told::default();
        let builder = with_threads(tiny(&storage, RESERVE)).on_health(told.listener());
        let db = builder.open(PATH).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        storage.set_capacity(storage.allocated_bytes() + ROOM);
        let mut expected = Rows::new();
        let refused = put_until_refused(&keyspace, &mut expected);
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        assert_eq!(rows(&keyspace), expected, "reads go on");
        // Flushes may make room again before that is told, but not each time.
        let full = |state: &HealthState| matches!(state, HealthState::DiskFull { .. });
        wait_until(|| {
            put_until_refused(&keyspace, &mut expected);
            told.states().iter().any(full)
        });
        let mut batch = WriteBatch::new();
        batch.delete(&keyspace, key(1));
        batch.put(&keyspace, key(2), [0; 50]);
        match db.write(batch) {
            Err(Error::DiskFull { .. }) => {}
            // Background work may have found some room by now.
            Ok(_) => {
                expected.remove(&key(1)[..]);
                expected.insert(key(2).to_vec(), vec![0; 50]);
            }
            Err(error) => panic!("{error}"),
        }
        for number in 0..50 {
            keyspace.delete(key(number)).unwrap();
            expected.remove(&key(number)[..]);
        }
        db.flush().unwrap();
        assert_eq!(rows(&keyspace), expected);
        assert_sound(&db);
        storage.set_capacity(u64::MAX);
        wait_until(|| !is_full(&db));
        keyspace.put("again", "written").unwrap();
        wait_until(|| {
            let states = told.states();
            let first = states.iter().position(full);
            first.is_some_and(|first| states[first..].contains(&HealthState::Writable))
        });
        let reserve = db.health().reserve;
        assert_eq!((reserve.size, reserve.held), (RESERVE, RESERVE), "it is whole again");
        db.close().unwrap();
    }
}

/// Whoever is refused looks, and threads do ten times a second.
#[test]
fn room_is_not_looked_for_by_allocating_where_the_system_tells() {
    let storage = SimStorage::new(1);
    let db = tiny(&storage, RESERVE).open(PATH).unwrap();
    let keyspace = db.create_keyspace("k", tiny_structures()[0].clone()).unwrap();
    storage.set_capacity(storage.allocated_bytes() + ROOM);
    put_until_refused(&keyspace, &mut Rows::new());
    storage.set_capacity(storage.allocated_bytes());
    let before = storage.count_of(Operation::Preallocate);
    for _ in 0..10 {
        let refused = keyspace.put("a", "1").unwrap_err();
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    }
    assert_eq!(storage.count_of(Operation::Preallocate), before);
    storage.set_capacity(u64::MAX);
    keyspace.put("a", "1").unwrap();
    assert!(!is_full(&db));
    db.close().unwrap();
}

#[test]
fn what_is_deleted_makes_the_room_that_writing_resumes_in() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = tiny(&storage, RESERVE).open(PATH).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        storage.set_capacity(storage.allocated_bytes() + ROOM);
        for _ in 0..3 {
            let refused = put_until_refused(&keyspace, &mut Rows::new());
            assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
            assert!(is_full(&db));
            keyspace.clear().unwrap();
            db.flush().unwrap();
            db.compact().unwrap();
            while db.step().unwrap() {}
            assert!(rows(&keyspace).is_empty());
            keyspace.put("room", "again").unwrap();
            assert!(!is_full(&db));
            keyspace.delete("room").unwrap();
        }
        assert_sound(&db);
        db.close().unwrap();
    }
}

/// Nobody flushes, compacts or vacuums. Memtables are not full of what is deleted, and garbage is
/// less than what is otherwise worth cleaning. (Merging tables of an `Lsm` may need more room than
/// is left of such a small disk.)
#[test]
fn what_is_deleted_is_given_back_without_being_asked_for() {
    let storage = SimStorage::new(1);
    let db = with_threads(tiny(&storage, RESERVE)).open(PATH).unwrap();
    let [options, ..] = tiny_structures();
    let keyspace = db.create_keyspace("k", options.memtable_size(256 << 10)).unwrap();
    keyspace.put("kept", [7; 100]).unwrap();
    storage.set_capacity(storage.allocated_bytes() + (6 << 20));
    for value_size in [40, 900, 20_000] {
        let written = (0..1_000_000_u32)
            .take_while(|number| {
                // Not all alike: the same values are stored once.
                let value = [&key(*number)[..], &vec![1; value_size]].concat();
                keyspace.put(key(*number), value).is_ok()
            })
            .count();
        assert!(written < 1_000_000, "nothing is refused");
        for number in 0..=written as u32 {
            keyspace.delete(key(number)).unwrap();
        }
        wait_until(|| keyspace.put("kept", [7; 100]).is_ok());
        assert_eq!(rows(&keyspace).len(), 1, "values of {value_size}");
    }
    assert_sound(&db);
    db.close().unwrap();
    assert!(storage.violations().is_empty(), "{:?}", storage.violations());
}

#[test]
fn a_keyspace_is_dropped_on_a_full_disk() {
    let storage = SimStorage::new(1);
    let db = tiny(&storage, RESERVE).open(PATH).unwrap();
    for (number, options) in tiny_structures().into_iter().enumerate() {
        let name = number.to_string();
        let keyspace = db.create_keyspace(&name, options).unwrap();
        storage.set_capacity(storage.allocated_bytes() + ROOM);
        put_until_refused(&keyspace, &mut Rows::new());
        drop(keyspace);
        db.drop_keyspace(&name).unwrap();
        while db.step().unwrap() {}
        storage.set_capacity(u64::MAX);
        while db.step().unwrap() {}
        assert!(!is_full(&db));
    }
}

/// What a kill leaves of the reserve lets a full disk be recovered on.
#[test]
fn a_full_disk_is_recovered_on_behind_a_kill() {
    let storage = SimStorage::new(1);
    let db = tiny(&storage, RESERVE).open(PATH).unwrap();
    let keyspace = db.create_keyspace("k", tiny_structures()[0].clone()).unwrap();
    storage.set_capacity(storage.allocated_bytes() + ROOM);
    let mut expected = Rows::new();
    put_until_refused(&keyspace, &mut expected);
    for mode in CrashMode::ALL {
        let left = storage.crash(mode, 1);
        left.set_capacity(left.allocated_bytes());
        let Ok(db) = tiny(&left, RESERVE).open(PATH) else {
            // What was synced of the reserve is nothing: all of it may be gone.
            assert_ne!(mode, CrashMode::KeepAll);
            continue;
        };
        let keyspace = db.keyspace("k").unwrap();
        assert_eq!(rows(&keyspace), expected, "{mode:?}");
        let deleted = keyspace.delete(key(1));
        assert!(deleted.is_ok() || mode != CrashMode::KeepAll, "{deleted:?}");
        assert_sound(&db);
    }
}

#[test]
fn the_reserve_is_there_while_the_database_is_open() {
    let storage = SimStorage::new(1);
    let db = tiny(&storage, 100 << 10).open(PATH).unwrap();
    assert_eq!(reserve_of(&storage), Some(100 << 10));
    db.close().unwrap();
    assert_eq!(reserve_of(&storage), None);
    let db = tiny(&storage, 100 << 10).access(Access::ReadOnly).open(PATH).unwrap();
    assert_eq!(reserve_of(&storage), None, "nothing is changed by reading");
    assert_eq!(db.health().state, HealthState::OpenedForReading);
    assert!(db.health().is_good());
    db.close().unwrap();
    assert_eq!(db.health().state, HealthState::Closed);
    // Of two log files, if nothing is said.
    let db = Db::builder().storage(Arc::new(storage.clone())).open(PATH).unwrap();
    assert_eq!(db.health().reserve.held, 16 << 20);
    drop(db);
}

#[test]
fn an_opening_that_fails_leaves_no_reserve_behind() {
    let storage = SimStorage::new(1);
    tiny(&storage, RESERVE).open(PATH).unwrap().close().unwrap();
    let with_key = tiny(&storage, RESERVE).encryption(Encryption::key([1; 32]));
    assert!(matches!(with_key.open(PATH), Err(Error::NotEncrypted { .. })));
    assert_eq!(reserve_of(&storage), None);
    drop(tiny(&storage, RESERVE).open(PATH).unwrap());
}

/// Where the disk is too small for the reserve and anything else, recovery takes of it, and the
/// rest is the reserve.
#[test]
fn a_database_is_made_on_a_disk_as_large_as_its_reserve() {
    let storage = SimStorage::new(1);
    storage.set_capacity(RESERVE + (8 << 10));
    let db = tiny(&storage, RESERVE).open(PATH).unwrap();
    assert!(!is_full(&db) && db.health().reserve.held < RESERVE);
    let keyspace = db.create_keyspace("k", tiny_structures()[0].clone()).unwrap();
    keyspace.put("a", "1").unwrap();
    db.flush().unwrap();
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_sound(&db);
    db.close().unwrap();
}

/// What a kill leaves of it goes with the database that it is of.
#[test]
fn a_restore_over_a_killed_database_leaves_nothing_of_its_reserve() {
    let storage = SimStorage::new(1);
    let db = tiny(&storage, RESERVE).open(PATH).unwrap();
    let keyspace = db.create_keyspace("k", tiny_structures()[0].clone()).unwrap();
    keyspace.put("a", "1").unwrap();
    let backups = |storage: &SimStorage| {
        let storage = Arc::new(storage.clone());
        BackupRepository::open_in(storage, "/backups", OpenExisting::OrCreate).unwrap()
    };
    backups(&storage).create(&db).unwrap();
    let left = storage.crash(CrashMode::KeepAll, 1);
    assert_eq!(reserve_of(&left), Some(RESERVE));
    let restored = backups(&left).restore(1, PATH, RestoreOptions::new().replace()).unwrap();
    assert_eq!(restored.left_behind, None);
    let names = left.list_dir(Path::new("/")).unwrap().into_iter().map(|entry| entry.name);
    assert_eq!(names.collect::<Vec<_>>(), ["backups", "db"]);
    let db = tiny(&left, RESERVE).open(PATH).unwrap();
    assert!(db.keyspace("k").unwrap().get("a").unwrap().is_some());
}
