//! Extractors that fail or are missing, keys that are too long, and faults that the check finds.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lithedb::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};
use lithedb::{Db, Error, ExtractError, IndexKeys, IndexOptions, KeyspaceOptions, WriteBatch};

use super::{builder_at, memory, pair, pairs, with_index, words};
use crate::support::{PATH, assert_sound, open_tiny};

/// What `words` says, in capitals: as if it had been changed.
fn capitals(key: &[u8], value: &[u8], keys: &mut IndexKeys) -> Result<(), ExtractError> {
    words(key, &value.to_ascii_uppercase(), keys)
}

#[test]
fn an_extractor_that_fails_fails_the_write_and_nothing_else() {
    let db = memory();
    let (k, index) = with_index(&db, KeyspaceOptions::flex());
    k.put("a", "x").unwrap();
    for value in ["!panic", "?error"] {
        let Err(Error::ExtractorFailed { extractor, why }) = k.put("a", value) else {
            panic!("{value}");
        };
        assert!(extractor == "words" && why.contains("word"), "{why}");
        let mut batch = WriteBatch::new();
        batch.put(&k, "b", "fine");
        batch.put(&k, "c", value);
        assert!(matches!(db.write(batch), Err(Error::ExtractorFailed { .. })));
    }
    let mut transaction = db.begin_update();
    transaction.put(&k, "b", "y").unwrap();
    assert!(transaction.put(&k, "c", "!").is_err());
    transaction.put(&k, "d", "z").unwrap();
    transaction.commit().unwrap();
    assert_eq!(pairs(index.iter()), [pair("x", "a"), pair("y", "b"), pair("z", "d")]);
    assert_eq!(k.len().unwrap(), 3);
    let other = db.create_keyspace("other", KeyspaceOptions::flex()).unwrap();
    other.put("a", "!").unwrap();
    let refused = other.create_index("by_word", "words", IndexOptions::new());
    assert!(matches!(refused, Err(Error::ExtractorFailed { .. })));
    assert_eq!(other.indexes().unwrap(), []);
    assert_sound(&db);
}

#[test]
fn without_the_extractor_all_can_be_read_and_nothing_written() {
    let storage = SimStorage::new(3);
    let db = builder_at(&storage).open(PATH).unwrap();
    let (k, _) = with_index(&db, KeyspaceOptions::flex());
    k.put("a", "x").unwrap();
    drop(k);
    db.close().unwrap();
    let db = open_tiny(&storage);
    let k = db.keyspace("k").unwrap();
    let index = k.index("by_word").unwrap();
    assert!(!index.info().unwrap().has_extractor);
    assert_eq!(pairs(index.iter()), [pair("x", "a")]);
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"x"[..]));
    let is_missing = |error: &Error| {
        matches!(error, Error::ExtractorMissing { name } if name == "words")
            && error.to_string().contains("words")
    };
    assert!(is_missing(&k.put("b", "y").unwrap_err()));
    assert!(is_missing(&k.delete("a").unwrap_err()));
    assert!(is_missing(&k.clear().unwrap_err()));
    assert!(is_missing(&k.rebuild_index("by_word").unwrap_err()));
    assert!(is_missing(&k.create_index("other", "words", IndexOptions::new()).unwrap_err()));
    let report = db.check().unwrap();
    assert!(report.is_ok() && report.unchecked.len() == 1, "{report:?}");
    assert!(report.unchecked[0].contains("words"), "{report:?}");
    k.drop_index("by_word").unwrap();
    k.put("b", "y").unwrap();
    assert_eq!(db.check().unwrap().unchecked, [] as [String; 0]);
}

#[test]
fn names_of_built_in_extractors_are_taken() {
    for name in ["value", "field:,:1", "value_prefix:4", ""] {
        let builder = Db::builder().index_extractor(name, words);
        let opened = builder.storage(std::sync::Arc::new(SimStorage::new(1))).open(PATH);
        assert!(matches!(opened, Err(Error::InvalidArgument { .. })), "{name}");
    }
}

#[test]
fn an_index_key_that_is_too_long_is_refused() {
    let db = memory();
    let k = db.create_keyspace("k", KeyspaceOptions::flex()).unwrap();
    let index = k.create_index("by_value", "value", IndexOptions::new()).unwrap();
    let longest = lithedb::KEY_LEN_MAX - 2 - 1;
    k.put("a", vec![7; longest]).unwrap();
    let refused = k.put("a", vec![7; longest + 1]);
    assert!(matches!(&refused, Err(Error::InvalidArgument { what }) if what.contains("by_value")));
    assert!(k.put("a", vec![0; longest / 2 + 2]).is_err(), "zeros count twice");
    k.put("a", vec![0; longest / 2]).unwrap();
    assert_eq!(pairs(index.iter())[0].0, vec![0; longest / 2]);
    assert_sound(&db);
}

#[test]
fn an_extractor_that_has_changed_is_found_and_mended_by_building_anew() {
    let storage = SimStorage::new(4);
    let db = builder_at(&storage).open(PATH).unwrap();
    let (k, _) = with_index(&db, KeyspaceOptions::flex());
    for number in 0..100 {
        k.put(format!("p{number:02}"), format!("w{number} all")).unwrap();
    }
    drop(k);
    db.close().unwrap();
    let builder = crate::support::tiny(&storage).index_extractor("words", capitals);
    let db = builder.open(PATH).unwrap();
    let k = db.keyspace("k").unwrap();
    let index = k.index("by_word").unwrap();
    let problems = db.check().unwrap().problems;
    // Twenty are told, and how many there are beside: 200 that are missing, 200 too many.
    assert_eq!(problems.len(), 21, "{problems:?}");
    assert!(problems[0].contains("by_word") && problems[0].contains("ALL"), "{problems:?}");
    assert!(problems[20].contains("380"), "{problems:?}");
    k.delete("p00").unwrap(); // What the old one said of it stays.
    assert!(!db.check().unwrap().is_ok());
    k.rebuild_index("by_word").unwrap();
    assert_eq!(index.count("ALL"..="ALL").unwrap(), 99);
    assert_eq!(index.count("a"..).unwrap(), 0);
    assert_sound(&db);
}

/// The story: a build was refused, or found no room, and dropping what it had begun failed as well.
/// What was told was the first, which promises that there is no index, of a database that had
/// become read-only and had one.
#[test]
fn an_index_that_cannot_be_dropped_again_is_told() {
    let storage = SimStorage::new(5);
    let db = builder_at(&storage).open(PATH).unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::flex()).unwrap();
    for number in 0..10 {
        k.put(format!("p{number}"), format!("v{}", number.min(8))).unwrap();
    }
    let options = IndexOptions::new().unique();
    let refused = k.create_index_while("i", "value", options, |_| {
        let no_room = FaultRule::new(FaultEffect::OsError(28)).on(&[Operation::Write]);
        storage.arm(FaultPlan::new().rule(no_room.path("MANIFEST").lasting()));
        ControlFlow::Continue(())
    });
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    assert!(db.stats().read_only.is_some());
    let left = storage.crash(CrashMode::KeepAll, 0);
    let db = builder_at(&left).open(PATH).unwrap();
    assert_sound(&db);
    let k = db.keyspace("k").unwrap();
    assert!(!k.index("i").unwrap().info().unwrap().is_ready);
    assert!(matches!(k.build_index("i"), Err(Error::UniqueViolation { .. })));
    k.delete("p9").unwrap();
    k.build_index("i").unwrap();
    assert_sound(&db);
}

/// The story: the closure that is asked whether to go on panicked. The index stayed, not ready and
/// kept up by every write, as none does that could not be created.
#[test]
fn a_closure_that_panics_leaves_no_index() {
    let storage = SimStorage::new(6);
    let db = builder_at(&storage).open(PATH).unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::flex()).unwrap();
    for number in 0..3000 {
        k.put(format!("p{number:04}"), format!("w{}", number % 10)).unwrap();
    }
    let panics = |run: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    let options = IndexOptions::new();
    panics(&|| drop(k.create_index_while("i", "words", options, |_| panic!("no more"))));
    assert_eq!(k.indexes().unwrap(), []);
    assert!(matches!(k.drop_index("i"), Err(Error::IndexNotFound { .. })));
    k.put("p0000", "w0").unwrap();
    assert_sound(&db);
    let index = k.create_index("i", "words", options).unwrap();
    assert_eq!(index.count("w1"..="w1").unwrap(), 300);
    panics(&|| drop(k.rebuild_index_while("i", |_| panic!("no more"))));
    let is_as_it_was = |k: &lithedb::Keyspace| {
        let info = k.index("i").unwrap().info().unwrap();
        assert!(info.is_ready && !info.is_building, "{info:?}");
        assert_eq!(k.index("i").unwrap().count("w1"..="w1").unwrap(), 300);
    };
    is_as_it_was(&k);
    assert_sound(&db);
    drop((k, index));
    db.close().unwrap();
    let db = builder_at(&storage).open(PATH).unwrap();
    let k = db.keyspace("k").unwrap();
    is_as_it_was(&k);
    k.rebuild_index("i").unwrap();
    is_as_it_was(&k);
    assert_sound(&db);
}
