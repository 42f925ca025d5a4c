//! Several threads at once, also while an index is built, rebuilt and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lithe_sim::random::Random;
use lithedb::storage::MemoryStorage;
use lithedb::{Db, Durability, Error, IndexOptions, KeyspaceOptions, WriteBatch};

use super::{pairs, words};
use crate::support::{PATH, assert_sound};

const WRITERS: u64 = 3;

/// Ends the writers, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn open() -> Db {
    let builder = Db::builder().index_extractor("words", words).memory_budget(8 << 20);
    let builder = builder.durability(Durability::Buffered);
    builder.storage(Arc::new(MemoryStorage::new())).open(PATH).unwrap()
}

#[test]
fn what_writers_do_while_an_index_is_built_is_in_it() {
    for options in [
        KeyspaceOptions::flex().memtable_size(64 << 10),
        KeyspaceOptions::lsm().memtable_size(64 << 10),
    ] {
        let db = open();
        let k = db.create_keyspace("k", options).unwrap();
        for number in 0..3000 {
            k.put(format!("p{number:04}"), format!("w{} old", number % 10)).unwrap();
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = EndOnDrop(&is_over);
            for writer in 0..WRITERS {
                let (db, k, is_over) = (db.clone(), k.clone(), &is_over);
                scope.spawn(move || {
                    let mut random = Random::new(writer);
                    while !is_over.load(Ordering::Relaxed) {
                        let key = format!("p{:04}", random.below(4000));
                        match random.below(10) {
                            0 => drop(k.delete(&key).unwrap()),
                            1 => {
                                let mut batch = WriteBatch::new();
                                let end = format!("{key}z");
                                batch.delete_range(&k, key.as_str()..end.as_str());
                                batch.put(&k, &key, "again");
                                db.write(batch).unwrap();
                            }
                            _ => drop(k.put(&key, format!("w{} new", random.below(10))).unwrap()),
                        }
                    }
                });
            }
            for round in 0..4 {
                let index = k.create_index("by_word", "words", IndexOptions::new()).unwrap();
                k.rebuild_index("by_word").unwrap();
                // Index and keyspace are of one moment.
                let (snapshot, mut count) = (db.snapshot(), 0);
                for entry in index.at(&snapshot).unwrap().iter() {
                    let entry = entry.unwrap();
                    let value = entry.value().unwrap();
                    let has_word = value.split(|b| *b == b' ').any(|w| w == entry.index_key());
                    assert!(has_word, "{entry:?}");
                    count += 1;
                }
                let words = snapshot
                    .iter(&k)
                    .map(|entry| entry.unwrap().value.split(|byte| *byte == b' ').count());
                assert_eq!(words.sum::<usize>(), count);
                let report = db.check().unwrap();
                assert!(report.is_ok(), "{:?}", report.problems);
                if round < 3 {
                    k.drop_index("by_word").unwrap();
                }
            }
            drop(end);
        });
        assert_sound(&db);
    }
}

#[test]
fn of_those_who_want_one_key_of_a_unique_index_one_gets_it() {
    let db = open();
    let k = db.keyspace_or_create("k").unwrap();
    let index = k.create_index("by_word", "words", IndexOptions::new().unique()).unwrap();
    let won: u64 = thread::scope(|scope| {
        let claims = (0..WRITERS).map(|writer| {
            let k = k.clone();
            scope.spawn(move || {
                let claim = |word: &u64| match k.put(format!("{writer}-{word}"), format!("w{word}"))
                {
                    Ok(_) => true,
                    Err(Error::UniqueViolation { .. }) => false,
                    Err(error) => panic!("{error}"),
                };
                (0..300).filter(claim).count() as u64
            })
        });
        let claims: Vec<_> = claims.collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).sum()
    });
    assert_eq!((won, index.count::<&str>(..).unwrap(), k.len().unwrap()), (300, 300, 300));
    assert_eq!(pairs(index.iter()).len(), 300);
    assert_sound(&db);
}
