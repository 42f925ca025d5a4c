//! What bulk ingest, deleted ranges and counts take, on 5 million entries of 100 bytes: the figures
//! of `docs/decisions/0026-bulk-ingest.md` and `0027-counts-kept-with-memtables.md`.
//!
//!     cargo test --release --test it ingest_timings -- --ignored --nocapture

use std::time::Duration;

use lithe_sim::random::Random;
use lithedb::base::{Clock, SystemClock};
use lithedb::{Db, Durability, Keyspace, WriteBatch};

const COUNT: u64 = 5_000_000;
const BATCH_LEN: u64 = 1000;
const VALUE: [u8; 84] = [b'v'; 84];

/// 16 bytes.
fn key(number: u64) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

struct Stopwatch {
    clock: SystemClock,
    began: Duration,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        let clock = SystemClock::new();
        Stopwatch { began: clock.monotonic(), clock }
    }

    /// Prints what was done since the last call.
    fn lap(&mut self, what: &str, count: u64) {
        let took = self.clock.monotonic() - self.began;
        let each = took.as_secs_f64() * 1e6 / count as f64;
        println!("{what}: {:.3} s, {each:.3} us each", took.as_secs_f64());
        self.began = self.clock.monotonic();
    }
}

fn open(dir: &std::path::Path) -> (Db, Keyspace) {
    let builder = Db::builder().memory_budget(256 << 20).durability(Durability::Buffered);
    let db = builder.open(dir).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    (db, keyspace)
}

fn put_ascending(db: &Db, k: &Keyspace) {
    for first in (0..COUNT).step_by(BATCH_LEN as usize) {
        let mut batch = WriteBatch::new();
        for number in first..first + BATCH_LEN {
            batch.put(k, key(number), VALUE);
        }
        db.write(batch).unwrap();
    }
    db.sync().unwrap();
}

fn ingest(k: &Keyspace, numbers: impl Iterator<Item = u64>) {
    k.ingest(numbers.map(|number| (key(number), VALUE))).unwrap();
}

fn print_amplification(db: &Db) {
    let stats = db.stats();
    let on_disk: u64 = stats.keyspaces.iter().map(|stats| stats.bytes_on_disk).sum();
    let megabytes = on_disk as f64 / 1e6;
    println!("write amplification {:.2}, {megabytes:.0} MB on disk", stats.write_amplification());
}

#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_of_ingests() {
    for round in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let (db, k) = open(dir.path());
        let mut watch = Stopwatch::start();
        put_ascending(&db, &k);
        watch.lap(&format!("{round}: put in batches, ascending"), COUNT);
        db.flush().unwrap();
        watch.lap("flush", COUNT);
        print_amplification(&db);
        drop((k, db));
        let dir = tempfile::tempdir().unwrap();
        let (db, k) = open(dir.path());
        let mut watch = Stopwatch::start();
        let keys = (0..COUNT).map(key).fold(0, |sum, key| sum + key.len());
        watch.lap(&format!("{round}: making {keys} bytes of keys"), COUNT);
        ingest(&k, 0..COUNT);
        watch.lap("ingest into nothing", COUNT);
        print_amplification(&db);
        ingest(&k, (0..COUNT).step_by(5));
        watch.lap("ingest of every fifth over it", COUNT / 5);
        ingest(&k, (0..COUNT / 5).map(|number| COUNT + number));
        watch.lap("ingest behind it", COUNT / 5);
        print_amplification(&db);
        for number in 0..1000 {
            ingest(&k, std::iter::once(number * 5003));
        }
        watch.lap("ingests of one entry", 1000);
        assert_eq!(k.len().unwrap(), COUNT + COUNT / 5);
    }
}

#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_of_deleted_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let (db, k) = open(dir.path());
    ingest(&k, 0..COUNT);
    print_amplification(&db);
    let before = db.snapshot();
    let mut watch = Stopwatch::start();
    k.delete_range(key(COUNT / 10)..key(COUNT / 10 * 9)).unwrap();
    watch.lap("deleting a range of 80 %", 1);
    assert_eq!(k.len().unwrap(), COUNT / 5);
    watch.lap("counting what is left", 1);
    db.flush().unwrap();
    watch.lap("flush", 1);
    print_amplification(&db);
    assert_eq!(before.count::<&[u8]>(&k, ..).unwrap(), COUNT);
    watch.lap("counting in a snapshot of before", 1);
    assert_eq!(before.iter(&k).count() as u64, COUNT);
    watch.lap("walking in a snapshot of before", COUNT);
    drop(before);
    db.flush().unwrap();
    k.put("a", "b").unwrap();
    db.flush().unwrap();
    watch.lap("letting it go, and a flush", 1);
    print_amplification(&db);
    assert_eq!(k.iter().count() as u64, COUNT / 5 + 1);
}

#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_of_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (db, k) = open(dir.path());
    ingest(&k, (0..COUNT).map(|number| number * 2));
    let mut random = Random::new(1);
    let mut watch = Stopwatch::start();
    let mut measure = |what: &str, watch: &mut Stopwatch| {
        assert!(k.len().unwrap() > 0);
        watch.lap(&format!("{what}: the first count"), 1);
        for _ in 0..10_000 {
            let (from, to) = (random.below(COUNT * 2), random.below(COUNT * 2));
            k.count(key(from.min(to))..key(from.max(to))).unwrap();
        }
        watch.lap("count of a random range", 10_000);
        for _ in 0..10_000 {
            k.rank(key(random.below(COUNT * 2))).unwrap();
        }
        watch.lap("rank", 10_000);
    };
    measure("nothing in memtables", &mut watch);
    let mut write = Random::new(2);
    let mut change = |count: u64| {
        for _ in 0..count / BATCH_LEN {
            let mut batch = WriteBatch::new();
            for _ in 0..BATCH_LEN {
                let key = key(write.below(COUNT * 2));
                if write.chance(300) {
                    batch.delete(&k, key);
                } else {
                    batch.put(&k, key, VALUE);
                }
            }
            db.write(batch).unwrap();
        }
    };
    change(200_000);
    watch.lap("200,000 changes", 200_000);
    measure("200,000 keys in memtables", &mut watch);
    change(10_000);
    watch.lap("10,000 changes, noted", 10_000);
    measure("10,000 more", &mut watch);
    db.flush().unwrap();
    watch.lap("flush", 1);
    measure("intervals with deltas", &mut watch);
    measure("the same again", &mut watch);
    assert_eq!(k.len().unwrap(), k.iter().count() as u64);
}

#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_of_reductions() {
    let dir = tempfile::tempdir().unwrap();
    let (db, k) = open(dir.path());
    ingest(&k, (0..COUNT).map(|number| number * 2));
    let mut random = Random::new(1);
    let mut watch = Stopwatch::start();
    let mut measure = |what: &str, ranges: u64, watch: &mut Stopwatch| {
        assert!(k.reduce::<&[u8]>("bytes", ..).unwrap().is_some());
        watch.lap(&format!("{what}: bytes of everything"), 1);
        for _ in 0..ranges {
            let (from, to) = (random.below(COUNT * 2), random.below(COUNT * 2));
            k.reduce("bytes", key(from.min(to))..key(from.max(to))).unwrap();
        }
        watch.lap("bytes of a random range", ranges);
    };
    measure("the first time", 10_000, &mut watch);
    measure("the same again", 10_000, &mut watch);
    for number in 0..20u64 {
        k.put(key(number * COUNT / 10), VALUE).unwrap();
    }
    measure("20 keys in memtables", 1000, &mut watch);
    db.flush().unwrap();
    watch.lap("flush", 1);
    measure("these flushed", 10_000, &mut watch);
}
