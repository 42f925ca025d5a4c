//! What a load feels of conversions, and what a kill in the middle of each leaves: a process that
//! reads and updates is killed, and what it has told of its updates is looked for by another one.
//! The figures of `docs/decisions/0039-conversion-into-a-second-store.md`.
//!
//!     cargo test --release --test it figures_of_converting -- --ignored --nocapture
//!
//! `LITHEDB_KEYS` (default 5,000,000), `LITHEDB_SECONDS` of load before each conversion (30),
//! `LITHEDB_LOAD_THREADS` (1), and `LITHEDB_RATE`, operations a second of all threads: with it,
//! what an operation takes counts from when it was due (default: as fast as may be).

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lithedb::base::{Clock, Entropy, SeededEntropy, SystemClock};
use lithedb::{Conversion, Db, Durability, Keyspace, KeyspaceOptions, Structure, WriteBatch};

const NAME: &str = "conversion_timings::figures_of_converting_under_load";
/// What a process that was started by the test is to do; else it is the test.
const TASK: &str = "LITHEDB_TASK";
const DIR: &str = "LITHEDB_DIR";
/// Which process it is, counted from 1: the upper part of the versions that it writes.
const GENERATION: &str = "LITHEDB_GENERATION";
const VALUE_SIZE: usize = 100;
const BATCH_LEN: u64 = 1000;
/// The line behind which records follow.
const BEGIN: &[u8] = b"records:\n";
/// A record is a key's number and a version.
const RECORD_SIZE: usize = 16;
/// Updates that are told at once.
const TOLD_AT_ONCE: usize = 32;
/// In place of a key's number: a conversion is half done.
const HALF: u64 = u64::MAX;
/// The kill comes at most so late behind that.
const KILL_AFTER_MAX: Duration = Duration::from_millis(60);

fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

fn key_count() -> u64 {
    number_of("LITHEDB_KEYS", 5_000_000)
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// It says whose it is, and which version, and every byte follows from that.
fn value(number: u64, version: u64) -> [u8; VALUE_SIZE] {
    let mut value = [(number ^ version ^ version >> 40) as u8; VALUE_SIZE];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value[8..16].copy_from_slice(&version.to_be_bytes());
    value
}

/// The number and the version of a value, which has to be whole.
fn taken_apart(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    let (number, version) = (word(0), word(8));
    assert_eq!(bytes, value(number, version), "a value is as it was put");
    (number, version)
}

/// How long operations took, in steps of a 32nd.
#[derive(Clone)]
struct Times {
    counts: Vec<u64>,
    longest: Duration,
}

impl Times {
    const PER_DOUBLING: u64 = 32;

    fn new() -> Times {
        Times { counts: vec![0; 64 * Times::PER_DOUBLING as usize], longest: Duration::ZERO }
    }

    fn place(nanos: u64) -> usize {
        let nanos = nanos.max(Times::PER_DOUBLING);
        let doublings = u64::from(nanos.ilog2() - Times::PER_DOUBLING.ilog2());
        (doublings * Times::PER_DOUBLING + (nanos >> doublings) - Times::PER_DOUBLING) as usize
    }

    fn note(&mut self, took: Duration) {
        self.counts[Times::place(took.as_nanos() as u64)] += 1;
        self.longest = self.longest.max(took);
    }

    fn add(&mut self, other: &Times) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.longest = self.longest.max(other.longest);
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// In microseconds: so many of a thousand took no longer.
    fn quantile(&self, per_mille: f64) -> f64 {
        let rank = (self.count() as f64 * per_mille / 1000.0).ceil() as u64;
        let mut passed = 0;
        let place = self.counts.iter().position(|count| {
            passed += count;
            passed >= rank
        });
        let place = place.unwrap_or(0) as u64;
        let (doublings, rest) = (place / Times::PER_DOUBLING, place % Times::PER_DOUBLING);
        ((rest + Times::PER_DOUBLING + 1) << doublings) as f64 / 1000.0
    }

    fn told(&self, seconds: f64) -> String {
        format!(
            "{:.0} operations/s, p50 {:.1} us, p99 {:.1}, p99.9 {:.1}, longest {:.1} ms",
            self.count() as f64 / seconds,
            self.quantile(500.0),
            self.quantile(990.0),
            self.quantile(999.0),
            self.longest.as_secs_f64() * 1e3
        )
    }
}

#[test]
fn times_are_told_to_a_32nd() {
    let mut times = Times::new();
    for micros in 1..=1000 {
        times.note(Duration::from_micros(micros));
    }
    for (per_mille, expected) in [(500.0, 500.0), (990.0, 990.0), (999.0, 999.0)] {
        let told = times.quantile(per_mille);
        assert!((expected..expected * 1.04).contains(&told), "{told} for {expected}");
    }
    assert_eq!((times.count(), times.longest), (1000, Duration::from_millis(1)));
}

/// What a load is at.
const BEFORE: usize = 0;
const DURING: usize = 1;
const BESIDE: usize = 2;

/// Tells the parent. It is one call of the system, so that records of threads stay apart.
fn tell(records: &[u8]) {
    let mut out = std::io::stdout().lock();
    out.write_all(records).and_then(|()| out.flush()).unwrap();
}

fn record(number: u64, version: u64) -> [u8; RECORD_SIZE] {
    let mut record = [0; RECORD_SIZE];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record[8..].copy_from_slice(&version.to_le_bytes());
    record
}

/// The load: half reads, half updates, of keys at random, each thread its own ones.
struct Load<'a> {
    keyspace: &'a Keyspace,
    clock: &'a SystemClock,
    phase: &'a AtomicUsize,
    is_over: &'a AtomicBool,
    threads: u64,
}

impl Load<'_> {
    /// Works until it is over; how long operations took, by phase.
    fn run(&self, thread: u64) -> [Times; 3] {
        let (keys, generation) = (key_count(), number_of(GENERATION, 0));
        let random = SeededEntropy::new(generation << 8 | thread);
        let pause = match number_of("LITHEDB_RATE", 0) {
            0 => None,
            rate => Some(Duration::from_secs(self.threads) / rate as u32),
        };
        let mut times = [Times::new(), Times::new(), Times::new()];
        let (mut told, mut version) = (Vec::new(), generation << 40);
        let mut due = self.clock.monotonic();
        while !self.is_over.load(Ordering::Relaxed) {
            let began = match pause {
                Some(pause) => {
                    due += pause;
                    let early = due.saturating_sub(self.clock.monotonic());
                    if early > Duration::ZERO {
                        std::thread::sleep(early);
                    }
                    due
                }
                None => self.clock.monotonic(),
            };
            let phase = self.phase.load(Ordering::Relaxed);
            let drawn = random.next_u64();
            let number = (drawn >> 8) % keys;
            if drawn.is_multiple_of(2) {
                let found = self.keyspace.get(key(number)).unwrap().expect("each key is there");
                assert_eq!(taken_apart(&found).0, number);
            } else {
                let own = number - number % self.threads + thread;
                let number = if own < keys { own } else { thread };
                version += 1;
                let value = value(number, version);
                self.keyspace.put_with(key(number), value, Durability::Buffered).unwrap();
                told.extend_from_slice(&record(number, version));
            }
            times[phase].note(self.clock.monotonic() - began);
            if told.len() == TOLD_AT_ONCE * RECORD_SIZE {
                tell(&told);
                told.clear();
            }
        }
        tell(&told);
        times
    }
}

fn open(dir: &Path) -> (Db, Keyspace) {
    let db = Db::builder().memory_budget(256 << 20).open(dir).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    (db, keyspace)
}

fn fill(dir: &Path) {
    let (db, keyspace) = open(dir);
    let (keys, version) = (key_count(), number_of(GENERATION, 0) << 40);
    for first in (0..keys).step_by(BATCH_LEN as usize) {
        let mut batch = WriteBatch::new();
        let numbers = first..keys.min(first + BATCH_LEN);
        for number in numbers.clone() {
            batch.put(&keyspace, key(number), value(number, version));
        }
        db.write_with(batch, Durability::Buffered).unwrap();
        let records: Vec<_> = numbers.flat_map(|number| record(number, version)).collect();
        tell(&records);
    }
    db.close().unwrap();
}

/// Tells of everything that is there.
fn verify(dir: &Path) {
    let (db, keyspace) = open(dir);
    let mut records = Vec::new();
    for entry in keyspace.iter() {
        let entry = entry.unwrap();
        let (number, version) = taken_apart(&entry.value);
        assert_eq!(*entry.key, key(number));
        records.extend_from_slice(&record(number, version));
        if records.len() == TOLD_AT_ONCE * RECORD_SIZE {
            tell(&records);
            records.clear();
        }
    }
    tell(&records);
    assert_eq!(keyspace.len().unwrap(), key_count());
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    db.close().unwrap();
}

fn options_of(structure: Structure) -> KeyspaceOptions {
    match structure {
        Structure::Lsm => KeyspaceOptions::lsm(),
        Structure::History => KeyspaceOptions::history(),
        _ => KeyspaceOptions::flex(),
    }
}

fn structure_of(db: &Db) -> Structure {
    db.keyspaces()[0].options.structure
}

/// Converts beside a load. To be killed, it stops in front of the end.
fn convert(dir: &Path, to: Structure, is_to_be_killed: bool) {
    let (db, keyspace) = open(dir);
    let (from, clock, keys) = (structure_of(&db), SystemClock::new(), key_count());
    assert_ne!(from, to, "a conversion that was killed has not been");
    let before = if is_to_be_killed { 1 } else { number_of("LITHEDB_SECONDS", 30) };
    let (phase, is_over) = (AtomicUsize::new(BESIDE), AtomicBool::new(false));
    let threads = number_of("LITHEDB_LOAD_THREADS", 1);
    let (phase, is_over) = (&phase, &is_over);
    let load = Load { keyspace: &keyspace, clock: &clock, phase, is_over, threads };
    let (times, took, report) = std::thread::scope(|scope| {
        let load = &load;
        let workers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || load.run(thread))).collect();
        std::thread::sleep(Duration::from_secs(1)); // What is cached first is of neither.
        phase.store(BEFORE, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(before));
        phase.store(DURING, Ordering::Relaxed);
        let began = clock.monotonic();
        let mut has_told = false;
        let conversion = Conversion::to(options_of(to)).losing_versions();
        let report = keyspace.convert_while(conversion, |so_far| {
            if is_to_be_killed && so_far.entries >= keys / 2 && !has_told {
                tell(&record(HALF, 0));
                has_told = true;
            }
            if is_to_be_killed && so_far.entries >= keys / 10 * 9 {
                loop {
                    std::thread::sleep(KILL_AFTER_MAX); // The load goes on.
                }
            }
            ControlFlow::Continue(())
        });
        let took = clock.monotonic() - began;
        phase.store(BESIDE, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        let mut times = [Times::new(), Times::new(), Times::new()];
        for worker in workers {
            let of_worker = worker.join().unwrap();
            times.iter_mut().zip(&of_worker).for_each(|(times, more)| times.add(more));
        }
        (times, took, report.unwrap())
    });
    assert_eq!(structure_of(&db), to);
    let (from, to, took) = (from.name(), to.name(), took.as_secs_f64());
    eprintln!("{from} -> {to}: {keys} keys in {took:.1} s, {report:?}");
    print_effect((&times[BEFORE], before as f64), (&times[DURING], took));
    db.close().unwrap();
}

/// What a load felt: times, and the seconds that they are of.
fn print_effect((before, of): (&Times, f64), (during, took): (&Times, f64)) {
    eprintln!("  before: {}\n  during: {}", before.told(of), during.told(took));
    let quantiles = [500.0, 990.0, 999.0].map(|at| during.quantile(at) / before.quantile(at));
    let rate = (during.count() as f64 / took) / (before.count() as f64 / of);
    let [p50, p99, p999] = quantiles;
    eprintln!("  p50 {p50:.2} times, p99 {p99:.2}, p99.9 {p999:.2}; operations/s {rate:.2} times");
}

/// What a process that was started by the test does.
fn work(task: &str) -> ! {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("set by the parent")).join("db");
    println!();
    tell(BEGIN);
    let to = |name: &str| match name {
        "lsm" => Structure::Lsm,
        "history" => Structure::History,
        _ => Structure::Flex,
    };
    match task.split_once(' ') {
        Some(("kill", name)) => convert(&dir, to(name), true),
        Some(("convert", name)) => convert(&dir, to(name), false),
        _ if task == "fill" => fill(&dir),
        _ => verify(&dir),
    }
    std::process::exit(0); // What the test harness would print is no record.
}

/// A process that ends with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _it_has_ended = self.0.kill();
    }
}

/// What has been told, by the number of the key: the newest version.
struct Told {
    dir: tempfile::TempDir,
    newest: Vec<u64>,
    generation: u64,
}

impl Told {
    fn start(&mut self, task: &str) -> (Worker, BufReader<ChildStdout>) {
        self.generation += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(TASK, task).env(DIR, self.dir.path());
        command.env(GENERATION, self.generation.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut records = BufReader::with_capacity(64 << 10, child.stdout.take().unwrap());
        let mut line = Vec::new();
        while line != BEGIN {
            line.clear();
            assert!(records.read_until(b'\n', &mut line).unwrap() > 0, "{task} has not begun");
        }
        (Worker(child), records)
    }

    /// Calls `note` with each record of a process, until there are no more.
    fn follow(records: &mut impl Read, mut note: impl FnMut(u64, u64)) {
        let mut record = [0; RECORD_SIZE];
        while records.read_exact(&mut record).is_ok() {
            let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
            note(word(0), word(8));
        }
    }

    /// Has a process do something to its end, or kills it when it says that it is in the middle.
    fn run(&mut self, task: &str) {
        let is_to_be_killed = task.starts_with("kill");
        let (mut child, mut records) = self.start(task);
        let (mut count, mut is_killed) = (0_u64, false);
        let wait = self.generation * 7919 % KILL_AFTER_MAX.as_millis() as u64;
        let wait = Duration::from_millis(wait);
        Told::follow(&mut records, |number, version| match number {
            HALF => {
                std::thread::sleep(wait);
                child.0.kill().unwrap();
                is_killed = true;
            }
            number => {
                let newest = &mut self.newest[number as usize];
                assert!(version >= *newest, "a key's versions ascend");
                *newest = version;
                count += 1;
            }
        });
        let status = child.0.wait().unwrap();
        assert_eq!((status.success(), is_killed), (!is_to_be_killed, is_to_be_killed), "{task}");
        eprintln!("{task}: {count} updates told{}", if is_killed { ", killed" } else { "" });
    }

    /// Everything that was told is there, or something newer, and each key once.
    fn verify(&mut self) {
        let (mut child, mut records) = self.start("verify");
        let (mut seen, mut newer) = (vec![false; self.newest.len()], 0_u64);
        Told::follow(&mut records, |number, version| {
            let (newest, seen) = (&mut self.newest[number as usize], &mut seen[number as usize]);
            assert!(!*seen, "the key {number} is there twice");
            assert!(version >= *newest, "the key {number} has lost what was acknowledged");
            newer += u64::from(version > *newest);
            (*newest, *seen) = (version, true);
        });
        assert!(child.0.wait().unwrap().success());
        let missing = seen.iter().filter(|seen| !**seen).count();
        assert_eq!(missing, 0, "keys are missing");
        eprintln!("  verified: {} keys, {newer} newer than told, none lost", seen.len());
    }
}

#[test]
#[ignore = "prints figures; takes minutes and 4 GB"]
fn figures_of_converting_under_load() {
    if let Ok(task) = std::env::var(TASK) {
        work(&task);
    }
    let newest = vec![0; key_count() as usize];
    let mut told = Told { dir: tempfile::tempdir().unwrap(), newest, generation: 0 };
    told.run("fill");
    told.verify();
    for structure in ["lsm", "history", "flex"] {
        told.run(&format!("kill {structure}"));
        told.verify();
        told.run(&format!("convert {structure}"));
        told.verify();
    }
}
