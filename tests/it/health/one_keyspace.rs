//! A keyspace that finds no room for its flush, beside others that do; and what is done in the end
//! where not everything can be.

use std::path::Path;
use std::sync::Arc;

use lithe_sim::clock::SimClock;
use lithe_sim::setup::Setup;
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage as _,
};
use lithedb::{BackgroundWork, Db, Durability, Error, HealthState, Keyspace, KeyspaceOptions};

use super::{Rows, key, put_until_refused, tiny, wait_until, with_threads};
use crate::support::{PATH, assert_sound, create_tiny, open_tiny, rows, tiny_structures};

const FULL: FaultEffect = FaultEffect::Error(std::io::ErrorKind::StorageFull);

/// There is no room for any file of this keyspace from now on.
fn leave_no_room(storage: &SimStorage, keyspace: &Keyspace) {
    let path = format!("keyspaces/{:08}", keyspace.id());
    let rule = FaultRule::new(FULL).on(&[Operation::Create, Operation::Write]).path(&path);
    storage.arm(FaultPlan::new().rule(rule.lasting()));
}

fn put(keyspace: &Keyspace, expected: &mut Rows, count: u32, byte: u8) {
    for number in 0..count {
        keyspace.put_with(key(number), [byte; 90], Durability::Buffered).unwrap();
        expected.insert(key(number).to_vec(), vec![byte; 90]);
    }
}

/// Two keyspaces, `a` and `b`, and what is in them.
fn two_with_rows(db: &Db, options: &KeyspaceOptions) -> ([Keyspace; 2], [Rows; 2]) {
    let keyspaces = ["a", "b"].map(|name| db.create_keyspace(name, options.clone()).unwrap());
    let filled = |keyspace| {
        let mut rows = Rows::new();
        put(keyspace, &mut rows, 20, 1);
        rows
    };
    let rows = keyspaces.each_ref().map(filled);
    (keyspaces, rows)
}

fn flushes_of(db: &Db, name: &str) -> u64 {
    db.stats().keyspaces.iter().find(|of| of.name == name).unwrap().flushes
}

#[test]
fn a_flush_of_all_that_finds_no_room_for_one_keyspace_flushes_the_others() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = open_tiny(&storage);
        let ([a, b], [of_a, of_b]) = two_with_rows(&db, &options);
        let before = [flushes_of(&db, "a"), flushes_of(&db, "b")];
        leave_no_room(&storage, &a);
        let refused = db.flush();
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        assert!(flushes_of(&db, "a") == before[0] && flushes_of(&db, "b") > before[1]);
        storage.disarm();
        db.flush().unwrap();
        assert!(flushes_of(&db, "a") > before[0]);
        assert_eq!((rows(&a), rows(&b)), (of_a, of_b));
        assert_sound(&db);
    }
}

/// By steps, also where the one that finds none has most to be flushed.
#[test]
fn steps_flush_what_there_is_room_for_in_front_of_what_finds_none() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let [a, b] = ["a", "b"].map(|name| create_tiny(&db, name));
    leave_no_room(&storage, &a);
    let refused = put_until_refused(&a, &mut Rows::new());
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    for round in 1..4 {
        put(&b, &mut Rows::new(), 400, round);
    }
    assert!(flushes_of(&db, "b") > 1);
    storage.disarm();
    while db.step().unwrap() {}
    assert!(flushes_of(&db, "a") > 0 && db.health().is_good());
}

/// Nor do its writers hear of it.
#[test]
fn a_keyspace_without_room_for_its_flush_does_not_keep_the_others_from_it() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = with_threads(tiny(&storage, 0)).open(PATH).unwrap();
        let [a, b] = ["a", "b"].map(|name| db.create_keyspace(name, options.clone()).unwrap());
        leave_no_room(&storage, &a);
        let (mut of_a, mut of_b) = (Rows::new(), Rows::new());
        let refused = put_until_refused(&a, &mut of_a);
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        put(&b, &mut of_b, 2000, 1);
        assert!(flushes_of(&db, "b") > 0);
        assert_eq!((rows(&a), rows(&b)), (of_a, of_b));
        storage.disarm();
        wait_until(|| a.put("again", "written").is_ok());
        wait_until(|| db.health().is_good());
        db.close().unwrap();
    }
}

/// Also what comes behind the keyspaces: files of values, the log, the manifest.
#[test]
fn closing_makes_everything_durable_although_a_flush_finds_no_room() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = open_tiny(&storage);
        let ([a, b], [of_a, of_b]) = two_with_rows(&db, &options);
        leave_no_room(&storage, &a);
        let closed = db.close();
        assert!(matches!(closed, Err(Error::DiskFull { .. })), "{closed:?}");
        drop((a, b, db));
        let db = open_tiny(&storage.crash(CrashMode::DropAll, 1));
        assert!(db.recovery().clean, "it was closed, and the log ends where it did then");
        assert!(db.recovery().wal_records > 0);
        let [a, b] = ["a", "b"].map(|name| db.keyspace(name).unwrap());
        assert_eq!((rows(&a), rows(&b)), (of_a, of_b));
        assert_sound(&db);
        db.close().unwrap();
    }
}

/// What the manifest could not be told behind a flush has nothing to do with the keyspace, which
/// need not be written to again for it.
#[test]
fn a_flush_that_is_done_does_not_fail_for_the_log_that_could_not_be_given_back() {
    let storage = SimStorage::new(1);
    let db = Setup::tiny(1).builder(Arc::new(storage.clone()), Arc::<SimClock>::default(), 0);
    let db = db.open(PATH).unwrap();
    let keyspace = create_tiny(&db, "k");
    // Too many files are open for the manifest to go over to the next one.
    let rule = FaultRule::new(FaultEffect::OsError(24)).on(&[Operation::Create]);
    storage.arm(FaultPlan::new().rule(rule.path("MANIFEST").lasting()));
    let mut expected = Rows::new();
    for round in 0..4000_u32 {
        put(&keyspace, &mut expected, 60, round as u8);
        while db.step().unwrap() {}
        if db.health().state != HealthState::Writable {
            break;
        }
    }
    let health = db.health();
    assert_eq!(health.state, HealthState::Failing);
    let [failure] = &health.failures[..] else { panic!("{:?}", health.failures) };
    assert_eq!((failure.work, &failure.keyspace), (BackgroundWork::Flush, &None), "{failure}");
    assert!(failure.path.as_ref().unwrap().starts_with(Path::new(PATH)), "{failure}");
    storage.disarm();
    while db.step().unwrap() {}
    assert!(db.health().is_good(), "{:?}", db.health().failures);
    assert_eq!(rows(&keyspace), expected);
    assert!(storage.exists(Path::new(PATH)).unwrap());
    assert_sound(&db);
    db.close().unwrap();
}
