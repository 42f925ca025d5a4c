//! Secondary indexes: what each way of writing makes of them, and what is told when it cannot.
//!
//! | file | what it tests |
//! |---|---|
//! | `model.rs` | random operations against maps |
//! | `faults.rs` | extractors that fail or are missing; faults that the check finds |
//! | `threads.rs` | several threads, also while an index is built |
//! | `crash.rs` | a crash at every write, and what is found then |

mod crash;
mod faults;
mod lessons;
mod model;
mod threads;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use lithedb::base::ManualClock;
use lithedb::storage::{MemoryStorage, SimStorage};
use lithedb::{
    Builder, Db, Error, ExtractError, FeedOptions, Index, IndexIter, IndexKeys, IndexOptions,
    Keyspace, KeyspaceOptions, SeqNo, TransactionIndex, WriteBatch,
};

use crate::support::{PATH, assert_sound, open_tiny, tiny_structures};

const START: u64 = 1_700_000_000_000;

/// An index entry: index key and primary key.
type Pair = (Vec<u8>, Vec<u8>);

/// Words of the value, parted by spaces: none, one or several index keys. What begins with `!`
/// panics, what begins with `?` is an error.
fn words(_key: &[u8], value: &[u8], keys: &mut IndexKeys) -> Result<(), ExtractError> {
    assert!(!value.starts_with(b"!"), "what a word");
    if value.starts_with(b"?") {
        return Err("no word".into());
    }
    let words = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.for_each(|word| keys.push(word));
    Ok(())
}

fn memory() -> Db {
    let storage = Arc::new(MemoryStorage::new());
    Db::builder().index_extractor("words", words).storage(storage).open(PATH).unwrap()
}

/// A keyspace, and an index of its words.
fn with_index(db: &Db, options: KeyspaceOptions) -> (Keyspace, Index) {
    let k = db.create_keyspace("k", options).unwrap();
    let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
    (k, index)
}

fn pair(index_key: &str, primary: &str) -> Pair {
    (index_key.as_bytes().to_vec(), primary.as_bytes().to_vec())
}

fn pairs(iter: IndexIter) -> Vec<Pair> {
    let entries = iter.map(|entry| {
        let entry = entry.unwrap();
        (entry.index_key().to_vec(), entry.primary_key().to_vec())
    });
    entries.collect()
}

fn pairs_within(index: &TransactionIndex<'_>) -> Vec<Pair> {
    let entries = index.iter().unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.index_key().to_vec(), entry.primary_key().to_vec())
    });
    entries.collect()
}

fn builder_at(storage: &SimStorage) -> Builder {
    crate::support::tiny(storage).index_extractor("words", words)
}

#[test]
fn entries_are_found_by_their_index_keys_from_both_ends() {
    for options in tiny_structures().into_iter().chain([KeyspaceOptions::history()]) {
        let db = memory();
        let (k, index) = with_index(&db, options);
        k.put("p1", "red apple").unwrap();
        k.put("p2", "red").unwrap();
        k.put("p3", "green apple red").unwrap();
        k.put("p4", "").unwrap();
        let all = [pair("apple", "p1"), pair("apple", "p3"), pair("green", "p3")];
        let red = [pair("red", "p1"), pair("red", "p2"), pair("red", "p3")];
        assert_eq!(pairs(index.iter()), [&all[..], &red].concat());
        assert_eq!(pairs(index.get("red")), red);
        assert_eq!(pairs(index.get("re")), []);
        assert_eq!(pairs(index.prefix("g")), [pair("green", "p3")]);
        assert_eq!(pairs(index.range("apple"..="green")), all);
        let behind = (Bound::Excluded("apple"), Bound::Unbounded);
        assert_eq!(pairs(index.range::<&str>(behind)).len(), 4);
        let last = index.iter().next_back().unwrap().unwrap();
        assert_eq!(
            (last.primary_key(), &*last.value().unwrap()),
            (&b"p3"[..], &b"green apple red"[..])
        );
        assert_eq!((index.count("a".."h").unwrap(), index.count::<&str>(..).unwrap()), (3, 6));
        assert!(index.contains("green").unwrap() && !index.contains("blue").unwrap());
        db.flush().unwrap();
        k.put("p3", "blue").unwrap();
        k.delete("p1").unwrap();
        assert_eq!(pairs(index.iter()), [pair("blue", "p3"), pair("red", "p2")]);
        assert_sound(&db);
        assert_eq!(db.keyspaces().len(), 1, "what indexes are kept in is hidden");
    }
}

#[test]
fn every_way_of_writing_keeps_an_index() {
    let db = memory();
    let (k, index) = with_index(&db, KeyspaceOptions::flex().value_separation(Some(64)));
    let words_now = || -> Vec<String> {
        let text = |(key, primary): Pair| [key, primary].map(|b| String::from_utf8(b).unwrap());
        pairs(index.iter()).into_iter().map(text).map(|parts| parts.join("/")).collect()
    };
    let mut batch = WriteBatch::new();
    batch.put(&k, "a", "x");
    batch.put(&k, "a", "y"); // of two the later counts
    batch.put(&k, "b", "x");
    batch.delete(&k, "b");
    batch.put(&k, "c", "z");
    db.write(batch).unwrap();
    assert_eq!(words_now(), ["y/a", "z/c"]);
    assert!(k.compare_and_swap("a", Some(b"y"), Some(b"w")).unwrap().is_done());
    assert_eq!(k.fetch_update("c", |_| Some(b"v".to_vec())).unwrap().as_deref(), Some(&b"z"[..]));
    assert_eq!(words_now(), ["v/c", "w/a"]);
    assert_eq!(&*k.pop_first().unwrap().unwrap().key, b"a");
    k.delete_range("c".."d").unwrap();
    assert_eq!(words_now(), [] as [&str; 0]);
    let long = format!("long {}", "s".repeat(500));
    k.put("l", &long).unwrap();
    k.put_reader("m", &mut long.as_bytes()).unwrap();
    assert_eq!(index.count("long"..="long").unwrap(), 2);
    let entry = index.find("long").unwrap().unwrap();
    assert_eq!(&*entry.value().unwrap(), long.as_bytes());
    assert_eq!(k.get("m").unwrap().as_deref(), Some(long.as_bytes()));
    let mut batch = WriteBatch::new();
    batch.delete_range(&k, "l".."m");
    batch.put(&k, "n", "late");
    db.write(batch).unwrap();
    assert_eq!(index.count("late".."m").unwrap(), 2);
    assert_sound(&db);
    k.clear().unwrap();
    assert_eq!(words_now(), [] as [&str; 0]);
    assert_eq!(k.increment("n", 1).unwrap(), 1);
    assert_eq!(index.count::<&str>(..).unwrap(), 1);
    assert_sound(&db);
}

#[test]
fn operands_are_merged_before_they_are_looked_at() {
    let db = memory();
    let (k, index) = with_index(&db, KeyspaceOptions::flex().merge_operator("append"));
    k.merge("a", "one").unwrap();
    k.merge("a", " two").unwrap();
    assert_eq!(pairs(index.iter()), [pair("one", "a"), pair("two", "a")]);
    let mut batch = WriteBatch::new();
    batch.merge(&k, "a", "s");
    batch.merge(&k, "b", "x");
    batch.put(&k, "b", "y");
    batch.merge(&k, "b", "z");
    db.write(batch).unwrap();
    assert_eq!(pairs(index.iter()), [pair("one", "a"), pair("twos", "a"), pair("yz", "b")]);
    db.flush().unwrap();
    assert_sound(&db);
}

#[test]
fn entries_expire_with_what_they_lead_to() {
    let clock = Arc::new(ManualClock::at_millis(START));
    let storage = Arc::new(MemoryStorage::new());
    let builder = Db::builder().index_extractor("words", words).storage(storage);
    let db = builder.clock(Arc::clone(&clock) as Arc<_>).open(PATH).unwrap();
    let (k, index) = with_index(&db, KeyspaceOptions::flex().ttl(Duration::from_millis(100)));
    k.put("a", "x").unwrap();
    k.put_until("b", "x", lithedb::Expiry::Never).unwrap();
    k.put_with_ttl("c", "x", Duration::from_millis(50)).unwrap();
    let found = || pairs(index.get("x")).into_iter().map(|(_, key)| key[0]).collect::<Vec<_>>();
    assert_eq!(found(), *b"abc");
    clock.advance(Duration::from_millis(50));
    assert_eq!((found(), index.count("x"..="x").unwrap()), (b"ab".to_vec(), 2));
    assert!(k.set_expiry("a", lithedb::Expiry::Never).unwrap());
    k.put("c", "y").unwrap();
    clock.advance(Duration::from_millis(60));
    assert_eq!(found(), *b"ab", "it never expires by now");
    assert_sound(&db);
    db.compact().unwrap();
    clock.advance(Duration::from_millis(60));
    assert_eq!(pairs(index.iter()).len(), 2);
    assert_sound(&db);
}

#[test]
fn transactions_see_their_own_entries_and_conflict_over_what_they_have_read() {
    let db = memory();
    let (k, index) = with_index(&db, KeyspaceOptions::flex());
    k.put("a", "x").unwrap();
    let mut transaction = db.begin_update();
    transaction.put(&k, "b", "x y").unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.delete(&k, "a").unwrap();
    let expected = [pair("x", "b"), pair("y", "b")];
    assert_eq!(pairs_within(&transaction.index(&index).unwrap()), expected);
    let entry = transaction.index(&index).unwrap().find("y").unwrap().unwrap();
    assert_eq!(entry.value().unwrap().as_deref(), Some(&b"x y"[..]));
    drop(entry);
    transaction.rollback_to(savepoint).unwrap();
    assert_eq!(pairs_within(&transaction.index(&index).unwrap()).len(), 3);
    assert_eq!(pairs(index.iter()), [pair("x", "a")], "nobody else sees any of it");
    k.put("c", "x").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    let mut transaction = db.begin_update();
    transaction.put(&k, "b", "z").unwrap();
    transaction.delete_range(&k, "a".."b").unwrap();
    k.put("d", "elsewhere").unwrap();
    transaction.commit().unwrap();
    let expected = [pair("elsewhere", "d"), pair("x", "c"), pair("z", "b")];
    assert_eq!(pairs(index.iter()), expected);
    assert_sound(&db);
}

#[test]
fn a_snapshot_keeps_its_indexes() {
    let db = memory();
    let k = db.keyspace_or_create("k").unwrap();
    k.put("a", "x").unwrap();
    let before = db.snapshot();
    let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
    assert!(matches!(index.at(&before), Err(Error::IndexNotFound { .. })));
    let snapshot = db.snapshot();
    k.put("a", "y").unwrap();
    let view = index.at(&snapshot).unwrap();
    assert_eq!(pairs(view.iter()), [pair("x", "a")]);
    assert_eq!(&*view.find("x").unwrap().unwrap().value().unwrap(), b"x");
    k.rebuild_index("by_word").unwrap();
    assert_eq!(pairs(index.at(&snapshot).unwrap().iter()), [pair("x", "a")]);
    assert_eq!(index.at(&snapshot).unwrap().count::<&str>(..).unwrap(), 1);
    k.drop_index("by_word").unwrap();
    assert_eq!(pairs(index.at(&snapshot).unwrap().iter()), [pair("x", "a")]);
    assert!(matches!(index.iter().next(), Some(Err(Error::IndexNotFound { .. }))));
    assert!(matches!(index.count::<&str>(..), Err(Error::IndexNotFound { .. })));
    k.put("b", "z").unwrap();
    assert_sound(&db);
}

#[test]
fn a_unique_index_has_each_key_once_behind_each_commit() {
    let db = memory();
    let k = db.keyspace_or_create("k").unwrap();
    let unique = IndexOptions::new().unique();
    let index = k.create_index("by_word", "words", unique).unwrap();
    k.put("a", "x").unwrap();
    let Err(Error::UniqueViolation { index: name, key }) = k.put("b", "y x") else {
        panic!("x is there");
    };
    assert_eq!((name.as_str(), key.as_slice()), ("by_word", &b"x"[..]));
    assert_eq!((k.get("b").unwrap(), index.count("y"..="y").unwrap()), (None, 0));
    k.put("a", "x x z").unwrap();
    k.put("b", "y").unwrap();
    let mut batch = WriteBatch::new(); // They change places.
    batch.put(&k, "a", "y");
    batch.put(&k, "b", "x z");
    db.write(batch).unwrap();
    let mut transaction = db.begin_update();
    transaction.put(&k, "c", "x").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::UniqueViolation { .. })));
    assert!(!transaction.is_open());
    let (mut one, mut other) = (db.begin_update(), db.begin_update());
    one.put(&k, "c", "new").unwrap();
    other.put(&k, "d", "new").unwrap();
    one.commit().unwrap();
    assert!(matches!(other.commit(), Err(Error::Conflict)), "it would be there twice");
    let other = db.create_keyspace("other", KeyspaceOptions::flex()).unwrap();
    other.put("a", "x").unwrap();
    other.put("b", "x").unwrap();
    let refused = other.create_index("by_word", "words", unique);
    assert!(matches!(refused, Err(Error::UniqueViolation { .. })));
    assert_eq!(other.indexes().unwrap(), []);
    other.put("c", "x").unwrap();
    assert_sound(&db);
}

#[test]
fn indexes_are_listed_dropped_and_go_with_their_keyspace() {
    let storage = SimStorage::new(1);
    let db = builder_at(&storage).open(PATH).unwrap();
    let (k, index) = with_index(&db, KeyspaceOptions::flex());
    k.create_index("by_value", "value", IndexOptions::new().unique()).unwrap();
    let exists = k.create_index("by_word", "value", IndexOptions::new());
    assert!(matches!(exists, Err(Error::IndexExists { .. })));
    k.put("a", "x y").unwrap();
    db.rename_keyspace("k", "renamed").unwrap();
    let infos = k.indexes().unwrap();
    let names: Vec<_> = infos.iter().map(|info| (info.name.as_str(), info.is_unique)).collect();
    assert_eq!(names, [("by_value", true), ("by_word", false)]);
    assert!(infos.iter().all(|info| info.is_ready && !info.is_building && info.has_extractor));
    k.drop_index("by_value").unwrap();
    k.put("b", "x y").unwrap();
    assert!(matches!(k.index("by_value"), Err(Error::IndexNotFound { .. })));
    drop(k.index_or_create("by_word", "words", IndexOptions::new()).unwrap());
    assert!(k.index_or_create("by_word", "value", IndexOptions::new()).is_err());
    assert_eq!(pairs(index.get("x")).len(), 2);
    db.drop_keyspace("renamed").unwrap();
    assert!(matches!(index.view(), Err(Error::KeyspaceNotFound { .. })));
    assert!(matches!(k.put("c", "z"), Err(Error::KeyspaceNotFound { .. })));
    let k = db.keyspace_or_create("k").unwrap();
    assert_eq!(k.indexes().unwrap(), []);
    assert_sound(&db);
    drop((k, index));
    db.close().unwrap();
    let db = open_tiny(&storage);
    assert_eq!(db.keyspaces().len(), 1);
    assert_sound(&db);
}

#[test]
fn an_index_is_built_by_steps_that_can_be_stopped_and_gone_on_with() {
    let storage = SimStorage::new(2);
    let db = builder_at(&storage).open(PATH).unwrap();
    let k = db.create_keyspace("k", tiny_structures()[0].clone()).unwrap();
    for number in 0..5000 {
        k.put(format!("p{number:04}"), format!("w{} all", number % 7)).unwrap();
    }
    let stop = |_: &_| ControlFlow::Break(());
    let report = k.create_index_while("by_word", "words", IndexOptions::new(), stop).unwrap();
    assert!(report.is_cancelled && report.entries_left > 0 && report.steps == 1, "{report:?}");
    assert_eq!(k.indexes().unwrap(), [], "it was taken back");
    let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
    assert_eq!(index.count::<&str>(..).unwrap(), 10_000);
    let report = k.rebuild_index_while("by_word", stop).unwrap();
    assert!(report.is_cancelled);
    assert_eq!(index.count("w1"..="w1").unwrap(), 715, "it is as it was");
    let report = k.rebuild_index("by_word").unwrap();
    assert_eq!((report.entries_read, report.entries_put), (5000, 10_000));
    assert_eq!(index.count("w1"..="w1").unwrap(), 715);
    assert_eq!(k.build_index("by_word").unwrap().steps, 0, "there is nothing to do");
    assert_sound(&db);
}

#[test]
fn changes_do_not_tell_of_indexes() {
    let db = memory();
    let k = db.keyspace_or_create("k").unwrap();
    k.put("a", "x").unwrap();
    let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
    k.put("a", "y").unwrap();
    k.rebuild_index("by_word").unwrap();
    k.put("b", "z").unwrap();
    k.drop_index(index.name()).unwrap();
    let feed = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let commits: Vec<_> = feed.map(|commit| commit.unwrap().changes).collect();
    assert_eq!(commits.len(), 3, "{commits:?}");
    let mut changes = commits.iter().flatten();
    assert!(changes.all(|change| change.keyspace_id == k.id()), "{commits:?}");
}

#[test]
fn a_keyspace_with_an_index_takes_no_ingest() {
    let db = memory();
    let k = db.keyspace_or_create("k").unwrap();
    let mut ingest = k.begin_ingest().unwrap();
    ingest.add("a", "x").unwrap();
    let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
    assert!(matches!(ingest.finish(), Err(Error::InvalidArgument { .. })));
    let refused = k.ingest([("a", "x")]);
    assert!(matches!(&refused, Err(Error::InvalidArgument { what }) if what.contains("indexes")));
    assert_eq!((k.len().unwrap(), index.count::<&str>(..).unwrap()), (0, 0));
    k.drop_index("by_word").unwrap();
    k.ingest([("a", "x")]).unwrap();
    let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
    assert_eq!(pairs(index.iter()), [pair("x", "a")]);
    assert_sound(&db);
}

#[test]
fn what_is_restored_is_indexed() {
    let db = memory();
    let (k, index) = with_index(&db, KeyspaceOptions::history());
    let first = k.put("a", "x").unwrap();
    k.put("a", "y").unwrap();
    k.put("b", "z").unwrap();
    k.restore_range::<&str>(.., first).unwrap();
    assert_eq!(pairs(index.iter()), [pair("x", "a")]);
    let past = db.snapshot_at(first).unwrap();
    assert!(matches!(index.at(&past), Err(Error::InvalidArgument { .. })));
    assert_sound(&db);
}
