//! Calls that fail: what passes, and what makes a database read-only.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lithe_sim::clock::SimClock;
use lithe_sim::operator::TAIL;
use lithe_sim::setup::Setup;
use lithedb::base::Clock as _;
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage as _,
};
use lithedb::{BackgroundWork, Db, Error, HealthState, Keyspace, KeyspaceOptions};

use super::{Rows, key, put_until_refused, tiny, wait_until, with_threads};
use crate::support::{PATH, assert_sound, create_tiny, open_tiny, rows, tiny_structures};

const EIO: FaultEffect = FaultEffect::OsError(5);

fn lasting(storage: &SimStorage, effect: FaultEffect, on: &[Operation], path: &str) {
    storage.arm(FaultPlan::new().rule(FaultRule::new(effect).on(on).path(path).lasting()));
}

/// A round of overwriting half of the keys, and background work.
fn round(db: &Db, keyspace: &Keyspace, expected: &mut Rows, number: u32) -> Option<Error> {
    for index in (0..120).filter(|index| index % 2 == number % 2) {
        let value = [number as u8; 90];
        if let Err(error) = keyspace.put(key(index), value) {
            return Some(error);
        }
        expected.insert(key(index).to_vec(), value.to_vec());
    }
    let done = db.flush().and_then(|()| {
        while db.step()? {}
        db.compact()
    });
    done.err()
}

#[test]
fn background_work_that_cannot_read_is_told_and_tried_again() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let mut expected = Rows::new();
        {
            let db = open_tiny(&storage);
            let keyspace = db.create_keyspace("k", options).unwrap();
            for number in 0..4 {
                assert!(round(&db, &keyspace, &mut expected, number).is_none());
            }
            db.close().unwrap();
        }
        let db = open_tiny(&storage); // With nothing in memory.
        let keyspace = db.keyspace("k").unwrap();
        lasting(&storage, EIO, &[Operation::Read], "keyspaces");
        let mut errors = Vec::new();
        for number in 4..10 {
            errors.extend(round(&db, &keyspace, &mut expected, number));
        }
        assert!(!errors.is_empty());
        for error in &errors {
            assert!(matches!(error, Error::Io { action: "read", .. }), "{error}");
        }
        let health = db.health();
        assert_eq!(health.state, HealthState::Failing, "{:?}", health.failures);
        assert!(health.reads_failed > 0 && health.reads_retried > health.reads_failed);
        let failure = &health.failures[0];
        assert!(failure.path.as_ref().unwrap().starts_with("/db/keyspaces"), "{failure}");
        storage.disarm();
        assert!(round(&db, &keyspace, &mut expected, 10).is_none());
        while db.step().unwrap() {}
        assert_eq!(rows(&keyspace), expected, "no key was lost");
        let health = db.health();
        assert_eq!(health.state, HealthState::Writable, "{:?}", health.failures);
        assert!(health.failures_total > 0);
        assert_sound(&db);
        db.close().unwrap();
    }
}

#[test]
fn what_cannot_be_read_does_not_keep_the_rest_from_it() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        {
            let db = open_tiny(&storage);
            for name in ["a", "b"] {
                let keyspace = db.create_keyspace(name, options.clone()).unwrap();
                for number in 0..500 {
                    keyspace.put(key(number), [1; 60]).unwrap();
                }
            }
            db.close().unwrap();
        }
        let db = open_tiny(&storage);
        let [a, b] = ["a", "b"].map(|name| db.keyspace(name).unwrap());
        let path = format!("keyspaces/{:08}", a.id());
        lasting(&storage, EIO, &[Operation::Read], &path);
        let mut walk = a.iter();
        assert!(matches!(walk.next(), Some(Err(Error::Io { action: "read", .. }))));
        let mut back = a.iter();
        assert!(matches!(back.next_back(), Some(Err(Error::Io { action: "read", .. }))));
        for _ in 0..3 {
            assert!(matches!(walk.next(), Some(Err(_))), "it is not at its end");
            assert!(matches!(back.next_back(), Some(Err(_))));
        }
        assert!(matches!(a.get(key(7)), Err(Error::Io { action: "read", .. })));
        assert_eq!(rows(&b).len(), 500);
        a.put("new", "written").unwrap();
        assert_eq!(a.get("new").unwrap().as_deref(), Some(&b"written"[..]));
        assert_eq!(db.health().state, HealthState::Writable);
        storage.disarm();
        assert_eq!(a.get(key(7)).unwrap().as_deref(), Some(&[1; 60][..]));
        assert_eq!(rows(&a).len(), 501);
        walk.seek(key(0));
        assert_eq!(walk.map(Result::unwrap).count(), 500, "what it is a snapshot of");
    }
}

#[test]
fn a_read_that_fails_for_a_moment_is_noticed_by_nobody() {
    let storage = SimStorage::new(1);
    {
        let db = open_tiny(&storage);
        create_tiny(&db, "k").put("a", [1; 60]).unwrap();
        db.close().unwrap();
    }
    let db = open_tiny(&storage);
    let moment = FaultRule::new(EIO).on(&[Operation::Read]).path("keyspaces").times(3);
    storage.arm(FaultPlan::new().rule(moment));
    assert!(db.keyspace("k").unwrap().get("a").unwrap().is_some());
    let health = db.health();
    assert!(health.is_good());
    assert_eq!((health.reads_retried, health.reads_failed), (3, 0));
}

#[test]
fn files_that_cannot_be_made_or_opened_are_told_as_they_are() {
    for (effect, code, kind) in [
        (FaultEffect::OsError(24), Some(24), None),
        (FaultEffect::OsError(30), Some(30), Some(ErrorKind::ReadOnlyFilesystem)),
        (FaultEffect::OsError(13), Some(13), Some(ErrorKind::PermissionDenied)),
        (FaultEffect::Error(ErrorKind::PermissionDenied), None, Some(ErrorKind::PermissionDenied)),
    ] {
        for options in tiny_structures() {
            let storage = SimStorage::new(1);
            let db = open_tiny(&storage);
            let keyspace = db.create_keyspace("k", options).unwrap();
            let mut expected = Rows::new();
            lasting(&storage, effect, &[Operation::Create, Operation::Open], "keyspaces");
            let mut failed = None;
            for number in 0..10 {
                failed = failed.or(round(&db, &keyspace, &mut expected, number));
            }
            let Some(Error::Io { source, path, .. }) = failed else { panic!("{failed:?}") };
            assert!(path.starts_with("/db/keyspaces"), "{}", path.display());
            assert_eq!(source.raw_os_error(), code);
            assert!(kind.is_none_or(|kind| source.kind() == kind), "{source}");
            assert_eq!(db.health().state, HealthState::Failing);
            assert!(db.stats().read_only.is_none());
            storage.disarm();
            assert!(round(&db, &keyspace, &mut expected, 11).is_none());
            assert_eq!(rows(&keyspace), expected);
            assert_eq!(db.health().state, HealthState::Writable, "{:?}", db.health().failures);
            assert_sound(&db);
        }
    }
}

/// With threads nobody sees a flush fail but by what follows.
#[test]
fn a_flush_that_fails_in_the_background_is_told_to_those_who_wait_for_it() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = with_threads(tiny(&storage, 0)).open(PATH).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        lasting(&storage, FaultEffect::OsError(13), &[Operation::Create], "keyspaces");
        let mut expected = Rows::new();
        let refused = put_until_refused(&keyspace, &mut expected);
        let Error::Io { source, .. } = &refused else { panic!("{refused}") };
        assert_eq!(source.kind(), ErrorKind::PermissionDenied);
        let health = db.health();
        assert_eq!(health.state, HealthState::Failing);
        let failure = health.failures.iter().find(|of| of.keyspace.as_deref() == Some("k"));
        let failure = failure.expect("it is of a keyspace");
        assert!(failure.count > 0 && failure.last >= failure.first, "{failure}");
        assert_eq!(rows(&keyspace), expected);
        storage.disarm();
        wait_until(|| keyspace.put("again", "written").is_ok());
        wait_until(|| db.health().is_good());
        expected.insert(b"again".to_vec(), b"written".to_vec());
        assert_eq!(rows(&keyspace), expected);
        db.close().unwrap();
    }
}

/// Nor do its writers wait for it, or hear of it.
#[test]
fn a_keyspace_that_cannot_be_flushed_does_not_keep_the_others_from_it() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = with_threads(tiny(&storage, 0)).open(PATH).unwrap();
        let [a, b] = ["a", "b"].map(|name| db.create_keyspace(name, options.clone()).unwrap());
        let path = format!("keyspaces/{:08}", a.id());
        lasting(&storage, FaultEffect::OsError(13), &[Operation::Create], &path);
        let mut expected = Rows::new();
        let refused = put_until_refused(&a, &mut expected);
        assert!(matches!(refused, Error::Io { action: "create", .. }), "{refused}");
        for number in 0..500 {
            b.put(key(number), [1; 90]).unwrap();
        }
        let stats = db.stats();
        let of_b = stats.keyspaces.iter().find(|of| of.name == "b").unwrap();
        assert!(of_b.flushes > 0);
        let failures = db.health().failures;
        assert!(!failures.is_empty());
        for failure in failures {
            assert_eq!(failure.keyspace.as_deref(), Some("a"), "{failure}");
        }
        assert_eq!(rows(&a), expected);
        storage.disarm();
        wait_until(|| db.health().is_good());
        db.close().unwrap();
    }
}

/// What nobody waits for is tried again after a while, though nothing is flushed.
#[test]
fn a_compaction_that_failed_is_tried_again_by_itself() {
    for options in tiny_structures().into_iter().skip(1) {
        let storage = SimStorage::new(1);
        let clock = Arc::new(SimClock::default());
        let files = Arc::new(storage.clone());
        let db = Setup::tiny(1).builder(files, Arc::clone(&clock), 0).open(PATH).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        for round in 0..5_u8 {
            for number in 0..20 {
                keyspace.put(key(number), [round; 60]).unwrap();
            }
            db.flush().unwrap();
        }
        lasting(&storage, EIO, &[Operation::Read], "keyspaces");
        while db.step().unwrap() {}
        let health = db.health();
        assert_eq!(health.state, HealthState::Failing);
        let failure = &health.failures[0];
        assert_eq!(failure.work, BackgroundWork::Compaction, "{failure}");
        assert_eq!(failure.keyspace.as_deref(), Some("k"), "{failure}");
        storage.disarm();
        while db.step().unwrap() {}
        assert_eq!(db.health().state, HealthState::Failing, "it is left alone for a while");
        clock.sleep(Duration::from_secs(2));
        while db.step().unwrap() {}
        assert!(db.health().is_good(), "{:?}", db.health().failures);
        assert_eq!(rows(&keyspace).len(), 20);
        assert_sound(&db);
    }
}

#[test]
fn files_that_cannot_be_removed_are_told_and_removed_later() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    create_tiny(&db, "gone").put("a", [1; 60]).unwrap();
    let keyspace = create_tiny(&db, "k");
    db.flush().unwrap();
    db.drop_keyspace("gone").unwrap();
    lasting(&storage, FaultEffect::OsError(13), &[Operation::Remove], "keyspaces");
    while db.step().unwrap() {}
    let health = db.health();
    assert_eq!(health.state, HealthState::Failing);
    assert_eq!(health.failures[0].work, BackgroundWork::Removal, "{:?}", health.failures);
    keyspace.put("a", "1").unwrap();
    storage.disarm();
    while db.step().unwrap() {}
    assert!(db.health().is_good(), "{:?}", db.health().failures);
    assert_eq!(storage.list_dir(Path::new("/db/keyspaces")).unwrap().len(), 1);
}

#[test]
fn each_sync_of_a_directory_that_fails_in_a_conversion_is_told() {
    let mut was_behind_it = false;
    for skip in 0.. {
        let storage = SimStorage::new(1);
        let db = open_tiny(&storage);
        let keyspace = db.create_keyspace("k", KeyspaceOptions::flex()).unwrap();
        keyspace.put("a", "1").unwrap();
        db.flush().unwrap();
        let rule = FaultRule::new(EIO).on(&[Operation::SyncDir]).path("keyspaces");
        storage.arm(FaultPlan::new().rule(rule.skip(skip)));
        let converted = keyspace.convert(KeyspaceOptions::lsm());
        assert!(matches!(converted, Ok(_) | Err(Error::Io { .. })), "{converted:?}");
        drop(keyspace);
        while db.step().is_ok_and(|was_any| was_any) {}
        if storage.fault_count() == 0 {
            assert!(was_behind_it, "none of {skip} was in the removal of the old store");
            assert!(db.health().is_good());
            return;
        }
        let state = db.health().state;
        let is_told = converted.is_err() || matches!(state, HealthState::ReadOnly { .. });
        assert!(is_told, "sync {skip}: {state}");
        was_behind_it |= converted.is_ok();
    }
}

/// Retries take the room of one try, also where values are made on the way to an archive.
#[test]
fn an_archive_that_cannot_be_written_keeps_nothing_of_what_was_made_for_it() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let options = KeyspaceOptions::history().merge_operator(TAIL).value_separation(Some(64));
    let keyspace = db.create_keyspace("k", options).unwrap();
    for number in 0..20 {
        keyspace.merge(key(number), [b'x'; 100]).unwrap();
    }
    // Of a table, which comes behind the values that its entries point to.
    lasting(&storage, FaultEffect::OsError(13), &[Operation::Create], "tbl-");
    assert!(matches!(db.flush(), Err(Error::Io { action: "create", .. })));
    let before = storage.allocated_bytes();
    for _ in 0..50 {
        assert!(matches!(db.flush(), Err(Error::Io { action: "create", .. })));
    }
    let taken = storage.allocated_bytes().saturating_sub(before);
    assert!(taken <= 64 << 10, "{taken} bytes of garbage");
    storage.disarm();
    db.flush().unwrap();
    assert_eq!(rows(&keyspace).len(), 20);
    assert!(db.health().is_good(), "{:?}", db.health().failures);
    assert_sound(&db);
}

#[test]
fn a_sync_that_fails_makes_it_read_only_and_the_health_says_why() {
    for (effect, code) in
        [(EIO, 5), (FaultEffect::OsError(28), 28), (FaultEffect::OsError(122), 122)]
    {
        let storage = SimStorage::new(1);
        let db = open_tiny(&storage);
        let keyspace = create_tiny(&db, "k");
        keyspace.put("a", "1").unwrap();
        storage.arm(FaultPlan::new().rule(FaultRule::new(effect).on(&[Operation::Sync])));
        let Err(Error::Io { action: "sync", source, .. }) = keyspace.put("b", "2") else {
            panic!("it is not durable")
        };
        assert_eq!(source.raw_os_error(), Some(code));
        // The next sync would go well, and say nothing of what the first one lost.
        for _ in 0..3 {
            assert!(matches!(keyspace.put("c", "3"), Err(Error::ReadOnly { .. })));
            assert!(matches!(keyspace.delete("a"), Err(Error::ReadOnly { .. })));
            assert!(matches!(db.flush(), Err(Error::ReadOnly { .. })));
        }
        let HealthState::ReadOnly { why } = db.health().state else { panic!("it is") };
        assert!(why.contains("sync"), "{why}");
        assert!(!db.health().is_good());
        assert!(keyspace.get("a").unwrap().is_some(), "reads go on");
        assert!(matches!(db.close(), Err(Error::ReadOnly { .. })));
        let db = open_tiny(&storage.crash(CrashMode::DropAll, 1));
        let keyspace = db.keyspace("k").unwrap();
        assert!(keyspace.get("a").unwrap().is_some() && keyspace.get("c").unwrap().is_none());
        keyspace.put("c", "3").unwrap();
    }
}
