//! Syncs that fail beside the way of commits: whoever asked for one, it was the last.

use std::path::Path;
use std::sync::Arc;

use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage as _,
};
use lithedb::{
    BackupRepository, Db, Encryption, Error, HealthState, KeyspaceOptions, OpenExisting,
    TrailOptions,
};

use super::{Rows, key, tiny};
use crate::support::{PATH, assert_sound, rows, tiny_structures};

fn open(storage: &SimStorage) -> Db {
    tiny(storage, 0).encryption(Encryption::key([7; 32])).open(PATH).unwrap()
}

fn backups(storage: &SimStorage) -> BackupRepository {
    let storage = Arc::new(storage.clone());
    BackupRepository::open_in(storage, "/backups", OpenExisting::OrCreate).unwrap()
}

/// A database with a keyspace that is worth compacting, and another one that has a key of its own.
fn made(options: &KeyspaceOptions) -> (SimStorage, Rows) {
    let storage = SimStorage::new(1);
    let db = open(&storage);
    let keyspace = db.create_keyspace("k", options.clone()).unwrap();
    for number in 0..200 {
        keyspace.put(key(number), [number as u8; 60]).unwrap();
    }
    let own = db.create_keyspace_with_own_key("own", options.clone()).unwrap();
    own.put("a", "1").unwrap();
    db.flush().unwrap();
    let expected = rows(&keyspace);
    drop((keyspace, own));
    db.close().unwrap();
    (storage, expected)
}

const CALL_COUNT: usize = 8;
const BEGIN_TRAIL: usize = 6;

/// What syncs directories of the database, whatever comes of it.
fn sync_some(db: &Db, storage: &SimStorage, which: usize, options: &KeyspaceOptions) {
    match which {
        0 => drop(db.create_keyspace("more", options.clone())),
        1 => drop(db.create_keyspace_with_own_key("more", options.clone())),
        // That destroys a key in passing.
        2 => drop(db.drop_keyspace("own")),
        3 => drop(db.compact()),
        4 => drop(db.vacuum()),
        5 => drop(db.rotate_data_key()),
        BEGIN_TRAIL => drop(backups(storage).begin_trail(db, TrailOptions::new())),
        7 => while db.step().is_ok_and(|was_any| was_any) {},
        _ => panic!("there are {CALL_COUNT}"),
    }
}

/// Each of the first syncs of directories, and some of those behind. What it was to carry over is
/// lost, and the next one would succeed.
#[test]
fn each_sync_of_a_directory_that_fails_makes_the_database_read_only_and_says_why() {
    let mut struck = [0; CALL_COUNT];
    for options in tiny_structures() {
        let (made, expected) = made(&options);
        for (which, struck) in struck.iter_mut().enumerate() {
            for skip in (0..8).chain((8..).step_by(29)) {
                let storage = made.duplicate();
                let db = open(&storage);
                let rule = FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::SyncDir]);
                storage.arm(FaultPlan::new().rule(rule.path(PATH).skip(skip)));
                sync_some(&db, &storage, which, &options);
                // What a backup is made of has directories of its own: those come behind.
                if storage.fault_count() == 0 || (which == BEGIN_TRAIL && skip > 0) {
                    break;
                }
                *struck += 1;
                expect_read_only(&db, &storage);
                drop(db);
                let db = open(&storage.crash(CrashMode::DropAll, skip));
                assert_eq!(rows(&db.keyspace("k").unwrap()), expected, "{which} {skip}");
                assert_sound(&db);
            }
        }
    }
    assert!(struck[..7].iter().all(|count| *count > 0), "{struck:?}");
}

fn expect_read_only(db: &Db, storage: &SimStorage) {
    let keyspace = db.keyspace("k").unwrap();
    let refused = keyspace.put("b", "2");
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    let before = storage.count_of(Operation::SyncDir);
    let HealthState::ReadOnly { why } = db.health().state else { panic!("it is") };
    assert!(why.contains("sync") || why.contains("manifest"), "{why}");
    assert_eq!(db.stats().read_only.as_ref(), Some(&why));
    assert!(matches!(db.flush(), Err(Error::ReadOnly { .. })));
    assert!(matches!(
        db.create_keyspace("c", KeyspaceOptions::flex()),
        Err(Error::ReadOnly { .. })
    ));
    while db.step().is_ok_and(|was_any| was_any) {}
    assert_eq!(storage.count_of(Operation::SyncDir), before, "no other one is believed");
    assert!(keyspace.get(key(1)).unwrap().is_some(), "reads go on");
    assert!(storage.exists(Path::new(PATH)).unwrap());
}
