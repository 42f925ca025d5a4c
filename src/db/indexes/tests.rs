//! Faults that are planted in what an index is kept in, which nobody else can write to; and what is
//! left of a build on the way.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::IndexOptions;
use crate::base::{Result, SeqNo, index_key};
use crate::db::Db;
use crate::db::keyspace::Keyspace;
use crate::storage::MemoryStorage;

const INDEX: &str = "by_field";

fn open() -> (Db, Keyspace) {
    let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
    let k = db.keyspace_or_create("k").unwrap();
    for number in 0..50 {
        k.put(format!("p{number:02}"), format!("{},x", number % 5)).unwrap();
    }
    (db, k)
}

/// The keyspaces that indexes are kept in.
fn kept_in(k: &Keyspace) -> Vec<Keyspace> {
    let state = k.core().published.state();
    let indexes = state.indexes_of(k.id()).iter();
    indexes.map(|index| Keyspace::of_index(Arc::clone(k.handle()), index)).collect()
}

/// Plants a fault.
type Plant<'a> = &'a dyn Fn(&Keyspace) -> Result<SeqNo>;

/// The problems that are found when one fault is planted.
fn problems(options: IndexOptions, extractor: &str, plant: Plant<'_>) -> Vec<String> {
    let (db, k) = open();
    k.create_index(INDEX, extractor, options).unwrap();
    assert!(db.check().unwrap().is_ok());
    plant(&kept_in(&k)[0]).unwrap();
    let problems = db.check().unwrap().problems;
    k.rebuild_index(INDEX).unwrap();
    assert!(db.check().unwrap().is_ok(), "it is mended");
    problems
}

#[test]
fn each_fault_is_found_once_and_mended_by_building_anew() {
    let entry =
        |index_key: &str, key: &str| index_key::encode(index_key.as_bytes(), key.as_bytes());
    let any = IndexOptions::new();
    let in_field = |plant: Plant<'_>| problems(any, "field:,:1", plant);
    let found = in_field(&|index| index.delete(entry("3", "p03")));
    assert!(found.len() == 1 && found[0].contains("3 for the key p03"), "{found:?}");
    assert!(found[0].contains("by_field") && found[0].contains("nothing"), "{found:?}");
    let found = in_field(&|index| index.put(entry("4", "p03"), ""));
    assert!(found.len() == 1 && found[0].contains("4 for the key p03"), "{found:?}");
    let found = in_field(&|index| index.put(entry("4", "nobody"), ""));
    assert!(found.len() == 1 && found[0].contains("nobody"), "{found:?}");
    let ttl = Duration::from_secs(3600);
    let found = in_field(&|index| index.put_with_ttl(entry("3", "p03"), "", ttl));
    assert!(found.len() == 1 && found[0].contains("expires"), "{found:?}");
    let found = in_field(&|index| index.put("no key", ""));
    assert!(found.len() == 1 && found[0].contains("another"), "{found:?}");
    let unique = IndexOptions::new().unique();
    let (db, k) = open();
    assert!(k.create_index(INDEX, "field:,:1", unique).is_err(), "they are there ten times");
    k.delete_range("p05"..).unwrap();
    k.create_index(INDEX, "field:,:1", unique).unwrap();
    kept_in(&k)[0].put(entry("3", "p02"), "").unwrap();
    let problems = db.check().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("one entry")), "{problems:?}");
}

#[test]
fn what_a_build_notes_is_gone_when_it_is_ready_and_nothing_it_has_is_wrong_before() {
    let (db, k) = open();
    for number in 50..3000 {
        k.put(format!("p{number:04}"), format!("{},x", number % 5)).unwrap();
    }
    let mut steps = 0;
    k.create_index_while(INDEX, "field:,:1", IndexOptions::new(), |report| {
        steps += 1;
        let index = &kept_in(&k)[0];
        assert!(index.get(index_key::PROGRESS).unwrap().is_some());
        assert_eq!(index.len().unwrap(), report.entries_put + 1);
        assert!(db.check().unwrap().is_ok());
        assert!(k.index(INDEX).unwrap().view().is_err(), "it is not ready");
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(steps > 1);
    let index = &kept_in(&k)[0];
    assert_eq!((index.get(index_key::PROGRESS).unwrap(), index.len().unwrap()), (None, 3000));
}

#[test]
fn a_plain_keyspace_with_an_index_dropped_again_is_written_to_as_before() {
    let (db, k) = open();
    k.create_index(INDEX, "value", IndexOptions::new()).unwrap();
    let before = db.stats().transaction_commits;
    k.put("p00", "y").unwrap();
    assert_eq!(db.stats().transaction_commits, before + 1);
    k.drop_index(INDEX).unwrap();
    k.put("p00", "z").unwrap();
    assert_eq!(db.stats().transaction_commits, before + 1, "it was none");
    assert_eq!(kept_in(&k).len(), 0);
}

/// The story: who found that another was at creating the index waited for it, and was told that
/// there is none when that one took it back.
#[test]
fn who_waits_for_an_index_that_is_taken_back_creates_it() {
    let (db, k) = open();
    for number in 0..3000 {
        k.put(format!("q{number:04}"), "x").unwrap(); // More than a step.
    }
    thread::scope(|scope| {
        let mut waits = None;
        let report = k.create_index_while(INDEX, "value", IndexOptions::new(), |_| {
            let index = Arc::clone(&k.core().published.state().indexes_of(k.id())[0]);
            let held = Arc::strong_count(&index);
            let k = &k;
            waits =
                Some(scope.spawn(move || k.index_or_create(INDEX, "value", IndexOptions::new())));
            while Arc::strong_count(&index) == held {
                thread::yield_now(); // Until it has found this one.
            }
            ControlFlow::Break(())
        });
        assert!(report.unwrap().is_cancelled);
        let index = waits.unwrap().join().unwrap().unwrap();
        assert!(index.info().unwrap().is_ready);
        assert_eq!(index.count::<&[u8]>(..).unwrap(), 3050);
    });
    assert!(db.check().unwrap().is_ok());
}
