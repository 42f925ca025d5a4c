//! What is acknowledged stays, what is not acknowledged never comes back.

use std::sync::Arc;

use lithe_sim::crash::CrashRun;
use lithe_sim::ledger::Ledger;
use lithedb::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};
use lithedb::{Durability, Error, KeyspaceOptions, WriteBatch};

use crate::support::{assert_sound, create_tiny, open_tiny, rows, step_to_rest, tiny_structures};

const POWER_CUTS: [CrashMode; 3] =
    [CrashMode::DropAll, CrashMode::Prefix, CrashMode::RandomSectors];

/// Lesson 1: the log's tail is cut off at a torn record, and what is written over it is shorter:
/// what is left of the torn one must not show after the second crash.
#[test]
fn a_commit_that_was_never_acknowledged_does_not_appear_after_a_second_crash() {
    for seed in 0..60 {
        let storage = SimStorage::new(seed);
        let db = open_tiny(&storage);
        let keyspace = create_tiny(&db, "a");
        keyspace.put("kept", "1").unwrap();
        storage.crash_inside(storage.mutation_count());
        let mut batch = WriteBatch::new();
        for index in 0..40 {
            batch.put(&keyspace, format!("torn{index:02}"), vec![b'x'; 40]);
        }
        db.write(batch).unwrap_err();
        for mode in POWER_CUTS {
            let storage = storage.crash(mode, seed);
            let db = open_tiny(&storage);
            let keyspace = db.keyspace("a").unwrap();
            // Behind a power cut the log ends where the torn record began; it is not there.
            assert_eq!(rows(&keyspace).len(), 1, "seed {seed}, {mode:?}");
            keyspace.put_with("later", "2", Durability::Buffered).unwrap();
            for mode in [CrashMode::KeepAll, CrashMode::DropAll] {
                let db = open_tiny(&storage.crash(mode, seed));
                let keys: Vec<_> = rows(&db.keyspace("a").unwrap()).into_keys().collect();
                assert_eq!(keys[0], b"kept");
                assert!(keys.iter().all(|key| !key.starts_with(b"torn")), "{keys:?}");
            }
        }
    }
}

/// Lesson 2.
#[test]
fn a_commit_that_fails_leaves_everything_as_before() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = create_tiny(&db, "a");
    keyspace.put("a", "1").unwrap();
    let before = rows(&keyspace);
    let mut too_long = WriteBatch::new();
    too_long.put(&keyspace, "b", "2");
    too_long.put(&keyspace, vec![0; lithedb::KEY_LEN_MAX + 1], "3");
    assert!(matches!(db.write(too_long), Err(Error::InvalidArgument { .. })));
    storage.set_capacity(0);
    let mut refused = 0;
    for _ in 0..2000 {
        match keyspace.put("b", [2; 100]) {
            Ok(_) => drop(keyspace.delete("b")),
            Err(Error::DiskFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 0);
    storage.set_capacity(u64::MAX);
    keyspace.delete("b").unwrap();
    assert_eq!(rows(&keyspace), before);
    let db = open_tiny(&storage.crash(CrashMode::KeepAll, 1));
    assert_eq!(rows(&db.keyspace("a").unwrap()), before);
    assert_sound(&db);
}

/// Lesson 4.
#[test]
fn writes_during_a_flush_survive_a_crash_right_after_it() {
    tiny_structures().into_iter().for_each(write_during_flushes);
}

fn write_during_flushes(options: KeyspaceOptions) {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = db.create_keyspace("a", options).unwrap();
    for round in 0..30_u32 {
        for index in 0..40_u32 {
            let key = (index * 31 + round).to_be_bytes();
            keyspace.put_with(key, [round as u8; 90], Durability::Buffered).unwrap();
        }
        // A flush is under way; this is not in what it flushes.
        db.step().unwrap();
        keyspace.put("during", round.to_be_bytes()).unwrap();
        step_to_rest(&db);
        for mode in CrashMode::ALL {
            let db = open_tiny(&storage.crash(mode, u64::from(round)));
            let found = db.keyspace("a").unwrap().get("during").unwrap();
            assert_eq!(found.as_deref(), Some(&round.to_be_bytes()[..]), "{mode:?}");
        }
    }
}

/// A commit to two keyspaces of which one was flushed: the structure must not be ahead of the log,
/// or a power cut leaves half of the commit, and the log goes on at positions that the structure
/// believes to have seen.
#[test]
fn a_structure_is_never_ahead_of_the_log() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspaces = [create_tiny(&db, "a"), create_tiny(&db, "b")];
    let mut batch = WriteBatch::new();
    for index in 0..60_u8 {
        batch.put(&keyspaces[0], [index], [0; 100]);
    }
    batch.put(&keyspaces[1], "half", "of it");
    db.write_with(batch, Durability::Buffered).unwrap();
    step_to_rest(&db); // The first memtable is full and flushed, the second is not.
    for mode in CrashMode::ALL {
        let storage = storage.crash(mode, 3);
        let db = open_tiny(&storage);
        let [first, second] = ["a", "b"].map(|name| rows(&db.keyspace(name).unwrap()).len());
        assert!((first, second) == (60, 1) || (first, second) == (0, 0), "{first} and {second}");
        db.keyspace("a").unwrap().put("later", "1").unwrap();
        let db = open_tiny(&storage.crash(CrashMode::DropAll, 4));
        assert!(db.keyspace("a").unwrap().contains("later").unwrap(), "{mode:?}");
    }
}

/// Lessons 6 and 21: files of the log, segments and indexes are removed while keys are overwritten
/// and deleted; at each removal the machine stops.
#[test]
fn the_newest_wins_after_a_crash_at_each_removal() {
    let ledger = Arc::new(Ledger::new());
    for seed in 0..2 {
        let mut run = CrashRun::of_seed(seed, 6);
        run.op_count = 150;
        run.only_operation = Some(Operation::Remove);
        run.run(&ledger);
    }
    ledger.assert_clean();
    assert!(ledger.counted(lithe_sim::crash::POINTS) > 20);
}

/// Lesson 13.
#[test]
fn what_is_appended_behind_a_torn_tail_survives_the_next_crash() {
    for seed in 0..40 {
        let mut storage = SimStorage::new(seed);
        let db = open_tiny(&storage);
        create_tiny(&db, "a");
        drop(db);
        for round in 0..6_u64 {
            let db = open_tiny(&storage);
            let keyspace = db.keyspace("a").unwrap();
            assert_eq!(rows(&keyspace).len() as u64, round, "seed {seed}");
            keyspace.put(round.to_be_bytes(), "acknowledged").unwrap();
            storage.crash_inside(storage.mutation_count());
            keyspace.put("torn", vec![7; 3000]).unwrap_err();
            storage = storage.crash(CrashMode::DropAll, seed ^ round);
        }
    }
}

/// Lesson 16.
#[test]
fn everything_is_there_after_a_close_and_after_a_kill() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = create_tiny(&db, "a");
    for index in 0..500_u32 {
        keyspace.put_with(index.to_be_bytes(), [1; 60], Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    keyspace.put_with("unflushed", "2", Durability::Buffered).unwrap();
    let expected = rows(&keyspace);
    let killed = open_tiny(&storage.crash(CrashMode::KeepAll, 1));
    assert_eq!(rows(&killed.keyspace("a").unwrap()), expected);
    assert!(!killed.recovery().clean);
    db.close().unwrap();
    let closed = open_tiny(&storage.crash(CrashMode::DropAll, 1));
    assert_eq!(rows(&closed.keyspace("a").unwrap()), expected);
    assert!(closed.recovery().clean);
}

/// Lesson 17: the storage forgets what it failed to sync, and says yes to the next sync.
#[test]
fn after_a_failed_sync_no_commit_is_acknowledged_until_reopening() {
    for path in [".wal", "seg-", "index-", "MANIFEST"] {
        let storage = SimStorage::new(1);
        let db = open_tiny(&storage);
        let keyspace = create_tiny(&db, "a");
        let eio = FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::Sync]).path(path);
        storage.arm(FaultPlan::new().rule(eio));
        let mut acknowledged = 0_u32;
        let mut failed_at = None;
        for number in 0..600_u32 {
            let put = keyspace.put(number.to_be_bytes(), [1; 50]);
            let stepped = db.step();
            let flushed = if number % 100 == 99 { db.flush() } else { Ok(()) };
            let created = if number == 300 && path == "MANIFEST" {
                db.create_keyspace("b", lithedb::KeyspaceOptions::flex()).map(drop)
            } else {
                Ok(())
            };
            match (failed_at, &put) {
                (None, Ok(_)) => acknowledged = number + 1,
                (Some(at), Ok(_)) => {
                    panic!("{path}: {number} was acknowledged after the failure at {at}")
                }
                _ => {}
            }
            if put.is_err() || stepped.is_err() || flushed.is_err() || created.is_err() {
                failed_at = failed_at.or(Some(number));
            }
        }
        assert!(failed_at.is_some(), "{path}: nobody was told");
        assert!(db.stats().read_only.is_some(), "{path}");
        for mode in [CrashMode::KeepAll, CrashMode::DropAll] {
            let db = open_tiny(&storage.crash(mode, 1));
            let found = rows(&db.keyspace("a").unwrap()).len() as u32;
            assert!(found >= acknowledged, "{path}, {mode:?}: {found} of {acknowledged}");
            db.keyspace("a").unwrap().put("on", "again").unwrap();
        }
    }
}

/// Directories that the store makes are as durable as what it puts in them.
#[test]
fn a_database_in_new_directories_survives_a_power_cut() {
    let storage = SimStorage::new(1);
    let path = "/new/and/newer/db";
    let open = |storage: &SimStorage| crate::support::tiny(storage).open(path).unwrap();
    let db = open(&storage);
    create_tiny(&db, "a").put("k", "1").unwrap();
    let after = storage.crash(CrashMode::DropAll, 0);
    assert_eq!(rows(&open(&after).keyspace("a").unwrap()).len(), 1);
}

/// A kill between making the database's directory and syncing the one above it; what comes after
/// finds the directory there and must not take it for durable.
#[test]
fn a_creation_that_was_interrupted_anywhere_is_made_durable_by_the_next_one() {
    let mutation_count = {
        let storage = SimStorage::new(1);
        drop(open_tiny(&storage));
        storage.mutation_count()
    };
    for point in 0..mutation_count {
        let storage = SimStorage::new(1);
        storage.crash_at(point);
        let opened = crate::support::tiny(&storage).open(crate::support::PATH);
        drop(opened);
        let storage = storage.crash(CrashMode::KeepAll, 0);
        let db = open_tiny(&storage);
        create_tiny(&db, "a").put("k", "1").unwrap();
        let after = open_tiny(&storage.crash(CrashMode::DropAll, 0));
        let found = after.keyspace("a").map(|keyspace| rows(&keyspace).len());
        assert!(matches!(found, Ok(1)), "killed before mutation {point}: {found:?}");
    }
}
