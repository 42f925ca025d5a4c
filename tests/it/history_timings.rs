//! What reading the past costs, beside the present; what forgetting it does. Prints figures; run by
//! hand.

use std::io::Write;

use lithedb::base::{Clock, Entropy, SeededEntropy, SystemClock};
use lithedb::{Db, Durability, Keyspace, KeyspaceOptions, SeqNo, WriteBatch};

const KEYS: u64 = 1_000_000;
const VERSIONS: u64 = 20;
const VALUE_SIZE: usize = 100;
const READS: u64 = 200_000;
const RANGE: usize = 1000;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Each key so many times, in another order each time; stamps in between.
fn fill(db: &Db, keyspace: &Keyspace, keys: u64, versions: u64) -> Vec<SeqNo> {
    let mut stamps = Vec::new();
    for version in 0..versions {
        let mut batch = WriteBatch::new();
        for number in 0..keys {
            let number = (number + version * 0x5555) % keys;
            let value = [version as u8 ^ number as u8; VALUE_SIZE];
            batch.put(keyspace, key(number), value);
            if batch.len() == 100 {
                db.write_with(std::mem::take(&mut batch), Durability::Buffered).unwrap();
            }
        }
        stamps.push(db.write_with(batch, Durability::Buffered).unwrap());
    }
    stamps
}

/// Microseconds an operation.
fn timed(clock: &SystemClock, count: u64, mut operation: impl FnMut(u64)) -> f64 {
    let start = clock.monotonic();
    (0..count).for_each(&mut operation);
    (clock.monotonic() - start).as_secs_f64() * 1e6 / count as f64
}

fn size_of(path: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let size = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => size_of(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    entries.map(size).sum()
}

#[test]
#[ignore = "prints figures; takes minutes and 5 GB"]
fn figures_of_the_past() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().memory_budget(1 << 30).open(dir.path().join("db")).unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::history()).unwrap();
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let stamps = fill(&db, &k, KEYS, VERSIONS);
    db.flush().unwrap();
    let filled = (clock.monotonic() - start).as_secs_f64();
    let data = KEYS * VERSIONS * (8 + VALUE_SIZE as u64);
    println!("{} MB written in {filled:.1} s", data / 1_000_000);
    let report = |what: &str| {
        let random = SeededEntropy::new(1);
        let draw = || key(random.next_u64() % KEYS);
        let middle = stamps[stamps.len() / 2];
        let get = timed(&clock, READS, |_| drop(k.get(draw()).unwrap().unwrap()));
        let at: Vec<f64> = [0, VERSIONS as usize / 2, VERSIONS as usize - 1]
            .map(|version| {
                let stamp = stamps[version];
                timed(&clock, READS, |_| drop(k.get_at(draw(), stamp).unwrap().unwrap()))
            })
            .to_vec();
        println!("{what}: get {get:.2} us, get_at {at:.2?} us: {:.1} times", at[1] / get);
        let now = db.snapshot();
        let past = db.snapshot_at(middle).unwrap();
        let range = timed(&clock, 500, |_| {
            assert_eq!(now.range(&k, draw()..).keys().take(RANGE).count().min(1), 1);
        });
        let range_at = timed(&clock, 500, |_| {
            assert_eq!(past.range(&k, draw()..).keys().take(RANGE).count().min(1), 1);
        });
        println!(
            "{what}: {RANGE} keys {range:.0} us, in the past {range_at:.0} us: {:.1} times",
            range_at / range
        );
        let history = timed(&clock, 20_000, |_| {
            assert_eq!(k.history(draw(), ..).unwrap().count() as u64, VERSIONS);
        });
        println!("{what}: {VERSIONS} versions of a key {history:.1} us");
    };
    report("as written");
    let size = size_of(dir.path());
    println!(
        "directory {} MB, {:.2} of what was written",
        size / 1_000_000,
        size as f64 / data as f64
    );
    let start = clock.monotonic();
    db.compact().unwrap();
    println!("compacted in {:.1} s", (clock.monotonic() - start).as_secs_f64());
    report("compacted");
    let size = size_of(dir.path());
    println!(
        "directory {} MB, {:.2} of what was written",
        size / 1_000_000,
        size as f64 / data as f64
    );
    println!("peak memory {} MB", peak_memory());
}

/// What the process had in memory at most, in MB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u64>().unwrap_or(0) / 1000
}

/// Forgets what the process had in memory at most, where the system lets it.
fn forget_peak_memory() {
    let file = std::fs::OpenOptions::new().write(true).open("/proc/self/clear_refs");
    let _kept_where_it_cannot = file.and_then(|mut file| file.write_all(b"5"));
}

#[test]
#[ignore = "prints figures; takes minutes and 6 GB"]
fn figures_of_retention() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().memory_budget(256 << 20).open(dir.path().join("db")).unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::history().keep_versions(2)).unwrap();
    let clock = SystemClock::new();
    // Else most of what is not kept goes with merges beside the load.
    let pause = db.pause_background();
    let stamps = fill(&db, &k, KEYS, VERSIONS);
    db.flush().unwrap();
    let megabytes = || size_of(dir.path()) / 1_000_000;
    println!("{VERSIONS} versions of {KEYS} keys: {} MB", megabytes());
    forget_peak_memory();
    let start = clock.monotonic();
    k.compact::<&[u8]>(..).unwrap();
    let took = (clock.monotonic() - start).as_secs_f64();
    println!("to the last 2: {took:.1} s, peak memory {} MB", peak_memory());
    drop(pause);
    db.vacuum().unwrap();
    println!("behind it: {} MB", megabytes());
    let random = SeededEntropy::new(1);
    for _ in 0..READS / 100 {
        let key = key(random.next_u64() % KEYS);
        assert_eq!(k.history(key, ..).unwrap().count(), 2);
        assert!(k.get_at(key, stamps[VERSIONS as usize - 2]).unwrap().is_some());
    }
}
