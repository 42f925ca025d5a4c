//! Panics in code of the application's: operators, reducers, extractors, listeners, closures; and
//! in a storage of its own, which no error can be made of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lithe_sim::setup::Setup;
use lithe_sim::watched::{Mutation, WatchedStorage};
use lithedb::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};
use lithedb::{BackgroundWork, Builder, Error, HealthState, MergeError, MergeOperator, Reducer};

use super::{Rows, key, put_until_refused, tiny, wait_until, with_threads};
use crate::support::{PATH, assert_sound, create_tiny, open_tiny, rows, tiny_structures};

/// Panics, whatever it is asked.
struct Panics;

impl MergeOperator for Panics {
    fn merge(
        &self,
        key: &[u8],
        _existing: Option<Vec<u8>>,
        _operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        panic!("no merging of {}", key.escape_ascii());
    }

    fn combine(&self, _: &[u8], _: Vec<u8>, _: &[u8]) -> Result<Vec<u8>, MergeError> {
        panic!("no combining");
    }
}

impl Reducer for Panics {
    fn add(
        &self,
        _summary: Option<Vec<u8>>,
        _key: &[u8],
        _value: &[u8],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        panic!("no adding");
    }

    fn join(&self, _left: Vec<u8>, _right: &[u8]) -> Result<Vec<u8>, MergeError> {
        panic!("no joining");
    }
}

fn panicking(builder: Builder) -> Builder {
    builder.merge_operator("panics", Panics).reducer("panics", Panics)
}

/// In flushes, compaction and recovery, with threads and without.
#[test]
fn an_operator_that_panics_fails_reads_of_its_keys_and_nothing_else() {
    for options in tiny_structures() {
        for has_threads in [false, true] {
            let storage = SimStorage::new(1);
            let open = |storage: &SimStorage| {
                let builder = panicking(tiny(storage, 0));
                let builder = if has_threads { with_threads(builder) } else { builder };
                builder.open(PATH).unwrap()
            };
            let db = open(&storage);
            let options = options.clone().merge_operator("panics");
            let keyspace = db.create_keyspace("k", options).unwrap();
            for number in 0..300 {
                keyspace.put(key(number), [1; 90]).unwrap();
            }
            for round in 0..6_u8 {
                for number in (0..300).step_by(100) {
                    keyspace.merge(key(number), "more").unwrap();
                    keyspace.put(key(number + 1), [round; 90]).unwrap();
                }
                db.flush().unwrap();
            }
            db.compact().unwrap();
            let expect = |db: &lithedb::Db| {
                let keyspace = db.keyspace("k").unwrap();
                for number in (0..300).step_by(100) {
                    let Err(Error::MergeFailed { operator, why }) = keyspace.get(key(number))
                    else {
                        panic!("it cannot be read")
                    };
                    assert!(operator == "panics" && why.contains("no merging of"), "{why}");
                    let other = keyspace.get(key(number + 1)).unwrap();
                    assert_eq!(other.as_deref(), Some(&[5; 90][..]));
                }
                assert!(db.health().is_good(), "{:?}", db.health());
                assert_sound(db);
            };
            expect(&db);
            db.sync().unwrap();
            expect(&open(&storage.crash(CrashMode::DropAll, 1)));
            keyspace.put(key(0), "healed").unwrap();
            assert_eq!(keyspace.get(key(0)).unwrap().as_deref(), Some(&b"healed"[..]));
            db.close().unwrap();
        }
    }
}

#[test]
fn a_reducer_that_panics_fails_its_call() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let db = panicking(tiny(&storage, 0)).open(PATH).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        for number in 0..200 {
            keyspace.put(key(number), [1; 90]).unwrap();
        }
        for _ in 0..2 {
            for _ in 0..2 {
                let reduced = keyspace.reduce::<&[u8]>("panics", ..);
                let Err(Error::ReduceFailed { reducer, why }) = reduced else {
                    panic!("{reduced:?}")
                };
                assert!(reducer == "panics" && why.contains("no "), "{why}");
            }
            db.flush().unwrap();
        }
        assert_eq!(keyspace.count::<&[u8]>(..).unwrap(), 200);
        keyspace.put("new", "written").unwrap();
        assert!(db.health().is_good());
    }
}

/// A transaction's closure runs on the caller's thread, with nothing locked.
#[test]
fn a_closure_that_panics_leaves_nothing_behind() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = create_tiny(&db, "k");
    keyspace.put("a", "1").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let outcome: lithedb::Result<()> = db.update(|transaction| {
            transaction.put(&keyspace, "a", "2")?;
            panic!("in the middle");
        });
        outcome
    }));
    assert!(panicked.is_err());
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    db.update(|transaction| transaction.put(&keyspace, "a", "3").map(drop)).unwrap();
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(db.stats().transactions_open, 0);
    assert!(db.health().is_good());
}

/// Whatever was under way is neither done nor not: nothing is written behind it, and nobody waits.
#[test]
fn a_panic_of_the_storage_makes_it_read_only() {
    struct Case {
        operation: Operation,
        path: &'static str,
        does: fn(&lithedb::Db, &lithedb::Keyspace),
    }
    let cases = [
        Case {
            operation: Operation::Write,
            path: ".wal",
            does: |_, keyspace| drop(keyspace.put("b", "2")),
        },
        Case {
            operation: Operation::Sync,
            path: ".wal",
            does: |_, keyspace| drop(keyspace.put("b", "2")),
        },
        Case { operation: Operation::Write, path: "keyspaces", does: |db, _| drop(db.flush()) },
        Case {
            operation: Operation::Sync,
            path: "MANIFEST",
            does: |db, _| drop(db.drop_keyspace("other")),
        },
    ];
    for Case { operation, path, does } in cases {
        let armed = Arc::new(AtomicU64::new(0));
        let is_armed = Arc::clone(&armed);
        let hook = Arc::new(move |mutation: &Mutation<'_>| {
            let is_it = mutation.operation == operation
                && mutation.path.display().to_string().contains(path);
            assert!(!is_it || is_armed.load(Ordering::Acquire) == 0, "a storage of one's own");
        });
        let sim = SimStorage::new(1);
        let storage = WatchedStorage::new(sim.clone(), hook);
        let builder = Setup::tiny(1).builder(Arc::new(storage), Arc::default(), 0);
        let db = builder.open(PATH).unwrap();
        let (keyspace, _) = (create_tiny(&db, "k"), create_tiny(&db, "other"));
        keyspace.put("a", "1").unwrap();
        armed.store(1, Ordering::Release);
        let panicked = catch_unwind(AssertUnwindSafe(|| does(&db, &keyspace)));
        assert!(panicked.is_err(), "{operation:?} of {path}");
        armed.store(0, Ordering::Release);
        let HealthState::ReadOnly { why } = db.health().state else {
            panic!("{operation:?} of {path}: {}", db.health().state)
        };
        assert!(why.contains("panicked"), "{why}");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| keyspace.put("c", "3"));
            assert!(matches!(writer.join().unwrap(), Err(Error::ReadOnly { .. })));
        });
        assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(db.close().is_err());
        let db = open_tiny(&sim.crash(CrashMode::DropAll, 1));
        assert!(db.keyspace("k").unwrap().get("a").unwrap().is_some());
        assert_sound(&db);
    }
}

/// With threads nobody sees it but by what every write says from then on.
#[test]
fn a_panic_of_background_work_is_told_with_what_it_said() {
    for options in tiny_structures() {
        let armed = Arc::new(AtomicU64::new(0));
        let is_armed = Arc::clone(&armed);
        let hook = Arc::new(move |mutation: &Mutation<'_>| {
            let is_it = mutation.operation == Operation::Create
                && mutation.path.starts_with("/db/keyspaces");
            assert!(!is_it || is_armed.load(Ordering::Acquire) == 0, "a storage of one's own");
        });
        let sim = SimStorage::new(1);
        let storage = WatchedStorage::new(sim.clone(), hook);
        let builder = Setup::tiny(1).builder(Arc::new(storage), Arc::default(), 0);
        let db = with_threads(builder).open(PATH).unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        armed.store(1, Ordering::Release);
        let mut expected = Rows::new();
        let refused = put_until_refused(&keyspace, &mut expected);
        let Error::ReadOnly { why } = &refused else { panic!("{refused}") };
        assert!(why.contains("a flush panicked: a storage of one's own"), "{why}");
        assert!(db.close().is_err());
        armed.store(0, Ordering::Release);
        let db = open_tiny(&sim.crash(CrashMode::KeepAll, 1));
        let found = rows(&db.keyspace("k").unwrap());
        assert!(expected.iter().all(|(key, value)| found.get(key) == Some(value)));
        assert_sound(&db);
    }
}

#[test]
fn a_listener_that_panics_is_told_on() {
    let storage = SimStorage::new(1);
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let builder = with_threads(tiny(&storage, 0)).on_health(move |_| {
        counted.fetch_add(1, Ordering::AcqRel);
        panic!("no news");
    });
    let db = builder.open(PATH).unwrap();
    for round in 0..2_u64 {
        // Another one each time: the first flush has to make a file.
        let keyspace = create_tiny(&db, &round.to_string());
        let fails = FaultRule::new(FaultEffect::OsError(13)).on(&[Operation::Create]).lasting();
        storage.arm(FaultPlan::new().rule(fails.path("keyspaces")));
        // A memtable is so small that a thread may flush it at once.
        keyspace.put("a", "1").unwrap();
        assert!(db.flush().is_err());
        wait_until(|| calls.load(Ordering::Acquire) > round);
        storage.disarm();
        db.flush().unwrap();
    }
    let is_listener = |failure: &lithedb::BackgroundFailure| {
        failure.work == BackgroundWork::Listener && failure.what.contains("no news")
    };
    wait_until(|| db.health().failures.iter().any(is_listener));
    db.close().unwrap();
}
