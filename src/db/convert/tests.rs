//! That a conversion comes to its end beside others who never rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::switch::Underway;
use super::{Conversion, Step};
use crate::db::keyspace::Keyspace;
use crate::db::options::{Background, Durability};
use crate::db::{Builder, Db};
use crate::manifest::KeyspaceOptions;
use crate::storage::MemoryStorage;

const MEMTABLE_SIZE: u64 = 64 << 10;
/// A slice is much less than what a memtable brings.
const SLICE_BYTES: u64 = 8 << 10;
const VALUE: [u8; 100] = [7; 100];
const KEY_COUNT: u64 = 5000;
const KEY_SIZE: u64 = size_of::<u64>() as u64;
/// Of all that there is at first.
const BYTES: u64 = KEY_COUNT * (KEY_SIZE + VALUE.len() as u64);

fn open(background: Background) -> (Db, Keyspace) {
    let builder = Builder::default().storage(Arc::new(MemoryStorage::new()));
    let builder = builder.durability(Durability::Buffered).background(background);
    let db = builder.memory_budget(16 << 20).flush_slice_size(SLICE_BYTES).open("/db").unwrap();
    let options = KeyspaceOptions::flex().memtable_size(MEMTABLE_SIZE);
    let k = db.create_keyspace("k", options).unwrap();
    k.ingest((0..KEY_COUNT).map(|number| (number.to_be_bytes(), VALUE))).unwrap();
    (db, k)
}

fn to_lsm() -> Conversion {
    Conversion::to(KeyspaceOptions::lsm().memtable_size(MEMTABLE_SIZE))
}

/// Goes through a conversion; `between` does what others do between two slices, while one is at
/// work. How many slices it took, and bytes that it copied.
fn convert(db: &Db, k: &Keyspace, mut between: impl FnMut(&Underway<'_>)) -> (u64, u64) {
    let mut underway = db.core().begin_conversion(k, &to_lsm()).unwrap();
    underway.job.at_work.begin();
    for slice_count in 1..50_000 {
        if db.core().conversion_slice(&mut underway).unwrap() == Step::Over {
            return (slice_count, underway.report.bytes);
        }
        between(&underway);
    }
    panic!("it does not come to its end: {:?}", underway.report);
}

/// The story: others who got at the turn between two slices flushed as much as there was. Where
/// writers filled memtables faster than slices were copied, that was more each time.
#[test]
fn a_conversion_ends_beside_a_writer_and_flushes_that_never_rest() {
    let (db, k) = open(Background::Stepped);
    let sealed_count = || db.core().published.state().find(k.id()).unwrap().sealed.len();
    let mut next = KEY_COUNT;
    let (slice_count, bytes) = convert(&db, &k, |_| {
        while db.core().flush_slice_of_any().unwrap() {}
        while sealed_count() < 3 {
            k.put(next.to_be_bytes(), VALUE).unwrap(); // All of it is still to be copied.
            next += 1;
        }
    });
    // What comes meanwhile is half of what is copied; and what memtables had at the end.
    assert!((BYTES..4 * BYTES).contains(&bytes), "{bytes}");
    assert!(slice_count < 8 * BYTES / SLICE_BYTES, "{slice_count}");
    assert!(next > KEY_COUNT + KEY_COUNT / 2, "it went on: {next}");
    assert_eq!(k.count(0u64.to_be_bytes()..).unwrap(), next);
    assert!(db.check().unwrap().is_ok());
}

/// The story: what ingests changed was copied again in front of the rest, and each again.
#[test]
fn a_conversion_ends_beside_ingests_that_never_rest() {
    let (db, k) = open(Background::Stepped);
    let (mut ingest_count, mut next, mut has_waited) = (0u64, KEY_COUNT, false);
    let (_, bytes) = convert(&db, &k, |underway| {
        has_waited |= underway.job.holds_ingests();
        if !underway.job.holds_ingests() {
            // Of all keys, so that everything is to be copied again.
            k.ingest([(0u64.to_be_bytes(), VALUE), (next.to_be_bytes(), VALUE)]).unwrap();
            (ingest_count, next) = (ingest_count + 1, next + 1);
        }
    });
    assert!(has_waited && ingest_count > 10, "{ingest_count}");
    assert!((3 * BYTES..5 * BYTES).contains(&bytes), "{bytes}");
    assert_eq!(k.count(0u64.to_be_bytes()..).unwrap(), next);
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn an_ingest_lets_four_times_what_it_brought_be_copied_before_the_next() {
    let (db, k) = open(Background::Stepped);
    let (mut next, mut bytes_then) = (KEY_COUNT, 0);
    const AT_ONCE: u64 = 300;
    let brought = AT_ONCE * (KEY_SIZE + VALUE.len() as u64);
    convert(&db, &k, |underway| {
        let copied = underway.report.bytes;
        assert_eq!(underway.job.holds_ingests(), copied < bytes_then);
        if !underway.job.holds_ingests() {
            k.ingest((next..next + AT_ONCE).map(|number| (number.to_be_bytes(), VALUE))).unwrap();
            (next, bytes_then) = (next + AT_ONCE, copied + 4 * brought);
        }
    });
    assert!((2..100).contains(&((next - KEY_COUNT) / AT_ONCE)), "{next}");
    assert_eq!(k.count(0u64.to_be_bytes()..).unwrap(), next);
}

/// With threads: nobody waits for ever, whoever is asked to flush.
#[test]
fn a_conversion_beside_threads_that_write_flush_and_ingest_ends_and_so_do_they() {
    let (db, k) = open(Background::Threads);
    let is_over = AtomicBool::new(false);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in (KEY_COUNT..).take_while(|_| goes_on()) {
                k.put(number.to_be_bytes(), VALUE).unwrap();
            }
        });
        scope.spawn(|| {
            while goes_on() {
                db.flush().unwrap();
            }
        });
        scope.spawn(|| {
            while goes_on() {
                match k.ingest([(0u64.to_be_bytes(), VALUE), (9u64.to_be_bytes(), VALUE)]) {
                    Ok(_) | Err(crate::Error::Conflict) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for to in [to_lsm().options, KeyspaceOptions::flex().memtable_size(MEMTABLE_SIZE)] {
            k.convert(to).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(k.count(0u64.to_be_bytes()..).unwrap() >= KEY_COUNT);
    assert!(db.check().unwrap().is_ok());
}
