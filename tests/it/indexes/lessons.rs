//! What a reading of the code found, each as a test.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use lithedb::base::{Clock, ManualClock};
use lithedb::storage::MemoryStorage;
use lithedb::{Background, Db, Durability, Error, Expiry, IndexOptions};

use crate::support::{PATH, assert_sound};

fn open() -> Db {
    let builder = Db::builder().durability(Durability::Buffered);
    builder.storage(Arc::new(MemoryStorage::new())).open(PATH).unwrap()
}

#[test]
fn an_index_that_two_threads_create_at_once_is_there() {
    for _ in 0..8 {
        let db = open();
        let k = db.keyspace_or_create("k").unwrap();
        for number in 0..3000 {
            k.put(format!("{number:05}"), "v").unwrap();
        }
        let begin = Barrier::new(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    begin.wait();
                    let index = k.index_or_create("i", "value", IndexOptions::new()).unwrap();
                    assert!(index.info().unwrap().is_ready);
                    assert_eq!(index.count::<&[u8]>(..).unwrap(), 3000);
                });
            }
        });
        assert_sound(&db);
    }
}

#[test]
fn an_index_that_is_begun_again_beside_a_builder_is_whole_when_it_is_ready() {
    for _ in 0..8 {
        let db = open();
        let k = db.keyspace_or_create("k").unwrap();
        for number in 0..2500 {
            k.put(format!("{number:05}"), "v").unwrap();
        }
        k.create_index("i", "value", IndexOptions::new()).unwrap();
        k.rebuild_index_while("i", |_| ControlFlow::Break(())).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| match k.rebuild_index("i") {
                    Ok(_) | Err(Error::IndexNotFound { .. } | Error::IndexExists { .. }) => {}
                    Err(error) => panic!("{error}"),
                });
                scope.spawn(|| match k.build_index("i") {
                    Ok(_) | Err(Error::IndexNotFound { .. }) => {}
                    Err(error) => panic!("{error}"),
                });
            }
        });
        let index = k.index("i").unwrap();
        assert!(index.info().unwrap().is_ready);
        assert_eq!(index.count::<&[u8]>(..).unwrap(), 2500);
        assert_sound(&db);
    }
}

#[test]
fn who_builds_an_index_is_refused_to_build_it_within() {
    let db = open();
    let k = db.keyspace_or_create("k").unwrap();
    for number in 0..3000 {
        k.put(format!("{number:05}"), "v").unwrap();
    }
    let mut was_refused = false;
    k.create_index_while("i", "value", IndexOptions::new(), |_| {
        was_refused |= matches!(k.build_index("i"), Err(Error::InvalidArgument { .. }));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(was_refused);
    assert_eq!(k.index("i").unwrap().count::<&[u8]>(..).unwrap(), 3000);
}

#[test]
fn building_comes_to_an_end_while_keys_are_appended() {
    let db = open();
    let k = db.keyspace_or_create("k").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (k, is_over) = (&k, &is_over);
            scope.spawn(move || {
                for number in 0u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    k.put(format!("{number:012} {writer}"), "v").unwrap();
                }
            });
        }
        for _ in 0..5 {
            k.index_or_create("i", "value", IndexOptions::new()).unwrap();
            k.rebuild_index("i").unwrap();
            k.drop_index("i").unwrap();
        }
        k.create_index("i", "value", IndexOptions::new()).unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(k.index("i").unwrap().count::<&[u8]>(..).unwrap(), k.len().unwrap());
    assert_sound(&db);
}

#[test]
fn entries_that_are_written_twice_in_a_transaction_expire_with_their_index_entries() {
    let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
    let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    let db = builder.clock(Arc::clone(&clock) as Arc<_>).open(PATH).unwrap();
    let k = db.keyspace_or_create("k").unwrap();
    let index = k.create_index("i", "field:,:1", IndexOptions::new().unique()).unwrap();
    let mut transaction = db.begin_update();
    transaction.put_with_ttl(&k, "a", "x,1", Duration::from_secs(10)).unwrap();
    let until = transaction.expiry(&k, "a").unwrap().unwrap().time().unwrap();
    transaction.put_until(&k, "a", "x,2", until).unwrap();
    clock.advance(Duration::from_secs(5));
    transaction.commit().unwrap();
    assert_sound(&db);
    clock.advance(Duration::from_secs(6));
    assert_eq!(k.get("a").unwrap(), None);
    assert!(index.find("x").unwrap().is_none());
    k.put("b", "x,3").unwrap();
    assert_sound(&db);
}

const START: u64 = 1_700_000_000_000;

fn expiry_in(millis: u64) -> Expiry {
    let moment = std::time::UNIX_EPOCH + Duration::from_millis(START + millis);
    Expiry::from(moment)
}

/// A clock on which a millisecond passes with each look.
#[derive(Debug)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn wall_millis(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    }
}

/// The story: what was read to be deleted from an index was to be there still at the commit. Where
/// something of the range expired within each try, none came to its end.
#[test]
fn a_range_in_which_something_always_expires_is_deleted_at_the_first_try() {
    let clock = Arc::new(Ticking(AtomicU64::new(START)));
    let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    let builder = builder.background(Background::Stepped).clock(clock);
    let db = builder.open(PATH).unwrap();
    let k = db.keyspace_or_create("k").unwrap();
    const COUNT: u64 = 20_000;
    let mut batch = lithedb::WriteBatch::new();
    for number in 0..COUNT {
        batch.put_until(&k, format!("{number:05}"), "v", expiry_in(number));
    }
    db.write(batch).unwrap();
    let index = k.create_index("i", "value", IndexOptions::new()).unwrap();
    let conflicts = || db.stats().transaction_conflicts;
    assert_eq!(conflicts(), 0, "as it is built");
    let left = index.count::<&[u8]>(..).unwrap();
    assert!((COUNT / 2..COUNT).contains(&left), "{left} are there still");
    k.put("19999", "w").unwrap();
    assert_eq!(conflicts(), 0, "as an entry is overwritten");
    k.delete_range("0".."19990").unwrap();
    assert_eq!(conflicts(), 0, "as they are deleted");
    assert!((1..=10).contains(&index.count::<&[u8]>(..).unwrap()));
    assert_sound(&db);
    let mut transaction = db.begin_update();
    transaction.delete_range(&k, "0"..).unwrap();
    transaction.put(&k, "a", "v").unwrap();
    transaction.commit().unwrap();
    assert_eq!((k.len().unwrap(), index.count::<&[u8]>(..).unwrap()), (1, 1));
    assert_sound(&db);
}

#[test]
fn what_expires_before_a_transaction_is_over_matters_if_that_has_read_it_itself() {
    let clock = Arc::new(ManualClock::at_millis(START));
    let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    let db = builder.clock(Arc::clone(&clock) as Arc<_>).open(PATH).unwrap();
    let k = db.keyspace_or_create("k").unwrap();
    let index = k.create_index("i", "value", IndexOptions::new().unique()).unwrap();
    k.put_until("a", "x", expiry_in(10)).unwrap();
    k.put_until("b", "y", expiry_in(20)).unwrap();
    k.put_until("c", "z", expiry_in(90)).unwrap();
    let mut transaction = db.begin_update();
    transaction.delete_range(&k, "a".."b").unwrap();
    transaction.put_until(&k, "b", "x", expiry_in(90)).unwrap();
    let mut reader = db.begin_update();
    assert!(reader.get(&k, "b").unwrap().is_some());
    reader.put(&k, "d", "w").unwrap();
    clock.advance(Duration::from_millis(30));
    transaction.commit().unwrap();
    assert!(matches!(reader.commit(), Err(Error::Conflict)));
    let keys = || -> Vec<_> {
        let entries = index.iter().map(|entry| entry.unwrap());
        entries.map(|e| [e.index_key(), e.primary_key()].concat()).collect()
    };
    assert_eq!(keys(), [b"xb", b"zc"]);
    assert_sound(&db);
    clock.advance(Duration::from_millis(60));
    assert!(keys().is_empty());
    db.compact().unwrap();
    assert_sound(&db);
}
