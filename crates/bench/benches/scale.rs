//! Many times the memory: keys at random are loaded, a fifth of them overwritten, all compacted,
//! walked and checked, with the memory, the pauses of writers and the answers watched.
//!
//!     cargo bench -p lithe-bench --bench scale -- --structure lsm --keys 50000000 --dir /data
//!
//! `--memory` (256 MiB) is the budget. Commits are of `--batch` puts (100) and not synced; the
//! longest one is the longest that any put waits. Reads are timed one by one on a store that is
//! idle, then while the compaction runs. It ends with exit code 1 when an answer was wrong, the
//! check found something, or more memory was taken than the budget and 64 MiB.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, on a real disk")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lithe_bench::{
    Dice, KeyShape, Memory, append_value, directory_size, memory_peak, memory_resident,
};
use lithedb::{Db, Durability, Keyspace, KeyspaceOptions, WriteBatch};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SHAPE: KeyShape = KeyShape::Random16;
const VALUE_LEN: usize = 100;
/// One key in so many is overwritten.
const OVERWRITTEN: u64 = 5;
/// What a process may hold beside the budget.
const ALLOWANCE: u64 = 64 << 20;
/// Reads in idleness, and at least so many while the compaction runs.
const READS: u64 = 500_000;
const MIB: u64 = 1 << 20;

struct Asked {
    options: KeyspaceOptions,
    keys: u64,
    batch: u64,
    memory: u64,
    dir: PathBuf,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|asked| run(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked> {
    let (dir, options) = (std::env::temp_dir(), KeyspaceOptions::flex());
    let mut asked = Asked { options, keys: 5_000_000, batch: 100, memory: 256 << 20, dir };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--structure" => match value()?.as_str() {
                "flex" => asked.options = KeyspaceOptions::flex(),
                "lsm" => asked.options = KeyspaceOptions::lsm(),
                other => return Err(format!("no structure {other}").into()),
            },
            "--keys" => asked.keys = value()?.parse::<u64>()?.max(1),
            "--batch" => asked.batch = value()?.parse::<u64>()?.max(1),
            "--memory" => match value()?.parse()? {
                Memory::Bytes(bytes) => asked.memory = bytes,
                Memory::EngineDefault => return Err("--memory wants a size".into()),
            },
            "--dir" => asked.dir = PathBuf::from(value()?),
            "--bench" => {} // Cargo says this to every benchmark.
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    Ok(asked)
}

/// What a key has after so many rounds of writing; does not compress.
fn value_of(number: u64, round: u64) -> Vec<u8> {
    let mut value = Vec::with_capacity(VALUE_LEN);
    append_value(number, round, VALUE_LEN, &mut value);
    value
}

fn final_value(number: u64) -> Vec<u8> {
    value_of(number, u64::from(number.is_multiple_of(OVERWRITTEN)))
}

/// Says how a phase went.
struct Phases<'a> {
    db: &'a Db,
    dir: &'a Path,
    live: u64,
}

impl Phases<'_> {
    fn run<T>(&self, name: &str, count: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let outcome = work()?;
        let seconds = start.elapsed().as_secs_f64();
        let stats = self.db.stats();
        println!(
            "{name:<22} {seconds:>7.1} s {:>10.0} keys/s; resident {} MiB, at most {}; directory \
             {:.2} of the data; write amplification {:.2}; stalls {} of {:.1?}",
            count as f64 / seconds,
            memory_resident()? / MIB,
            memory_peak()? / MIB,
            directory_size(self.dir)? as f64 / self.live as f64,
            stats.write_amplification(),
            stats.stalls,
            stats.stall_time,
        );
        Ok(outcome)
    }
}

/// Writes the numbers from 0 on, in batches.
fn write(db: &Db, keyspace: &Keyspace, asked: &Asked, round: u64) -> Result<Histogram<u64>> {
    let mut pauses = Histogram::<u64>::new(3)?;
    let step = if round == 0 { 1 } else { OVERWRITTEN };
    let mut numbers = (0..asked.keys).step_by(step as usize);
    loop {
        let mut batch = WriteBatch::new();
        for number in numbers.by_ref().take(asked.batch as usize) {
            batch.put(keyspace, SHAPE.key(number), value_of(number, round));
        }
        if batch.is_empty() {
            return Ok(pauses);
        }
        let start = Instant::now();
        db.write_with(batch, Durability::Buffered)?;
        pauses.record(start.elapsed().as_nanos() as u64)?;
    }
}

/// Reads at random until so many were read and `goes_on` says no more.
fn read(keyspace: &Keyspace, keys: u64, goes_on: impl Fn() -> bool) -> Result<Histogram<u64>> {
    let mut times = Histogram::<u64>::new(3)?;
    let mut dice = Dice(0x5EED);
    while times.len() < READS || goes_on() {
        let number = dice.below(keys);
        let key = SHAPE.key(number);
        let start = Instant::now();
        let value = keyspace.get(key)?;
        times.record(start.elapsed().as_nanos() as u64)?;
        if value.as_deref() != Some(&final_value(number)[..]) {
            return Err(format!("key {number} has another value").into());
        }
    }
    Ok(times)
}

fn print_times(name: &str, times: &Histogram<u64>) {
    let at = |quantile| Duration::from_nanos(times.value_at_quantile(quantile));
    println!(
        "  {name}: p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, p99.99 {:.1?}, longest {:.1?}, of {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        Duration::from_nanos(times.max()),
        times.len()
    );
}

/// Every key once, each with what it was last given.
fn walk(keyspace: &Keyspace, keys: u64) -> Result<()> {
    let mut count = 0;
    for entry in keyspace.iter() {
        let entry = entry?;
        let number = SHAPE.index_of(&entry.key).ok_or("a key that was never put")?;
        if number >= keys || *entry.value != *final_value(number) {
            return Err(format!("key {number} has another value").into());
        }
        count += 1;
    }
    if count == keys { Ok(()) } else { Err(format!("{count} keys of {keys}").into()) }
}

fn run(asked: &Asked) -> Result<()> {
    let dir = asked.dir.join(format!("lithe-scale-{}", std::process::id()));
    let outcome = run_in(&dir, asked);
    if outcome.is_ok() {
        std::fs::remove_dir_all(&dir)?;
    } else {
        eprintln!("scale: the store is left in {}", dir.display());
    }
    outcome
}

fn run_in(dir: &Path, asked: &Asked) -> Result<()> {
    let db = Db::builder().memory_budget(asked.memory).open(dir)?;
    let keyspace = db.create_keyspace("keys", asked.options.clone())?;
    let live = asked.keys * (SHAPE.key_len() + VALUE_LEN) as u64;
    let phases = Phases { db: &db, dir, live };
    let loaded = phases.run("load", asked.keys, || write(&db, &keyspace, asked, 0))?;
    print_times("commits", &loaded);
    let overwritten = asked.keys.div_ceil(OVERWRITTEN);
    let written = phases.run("overwrite of a fifth", overwritten, || {
        let pauses = write(&db, &keyspace, asked, 1)?;
        db.flush()?;
        Ok(pauses)
    })?;
    print_times("commits", &written);
    let pause = db.pause_background();
    let idle = phases.run("reads, idle", READS, || read(&keyspace, asked.keys, || false))?;
    print_times("reads", &idle);
    drop(pause);
    let busy = phases.run("compaction, reads", asked.keys, || {
        let is_compacting = AtomicBool::new(true);
        thread::scope(|scope| {
            let reader = scope
                .spawn(|| read(&keyspace, asked.keys, || is_compacting.load(Ordering::Relaxed)));
            let compacted = keyspace.compact::<&[u8]>(..);
            is_compacting.store(false, Ordering::Relaxed);
            compacted?;
            reader.join().expect("no panic")
        })
    })?;
    print_times("reads", &busy);
    phases.run("walk", asked.keys, || walk(&keyspace, asked.keys))?;
    let report = phases.run("check", asked.keys, || Ok(db.check()?))?;
    db.close()?;
    let peak = memory_peak()?;
    let allowed = asked.memory + ALLOWANCE;
    println!("memory: {} MiB at most, {} MiB allowed", peak / MIB, allowed / MIB);
    if !report.is_ok() {
        return Err(format!("check: {report:?}").into());
    }
    if peak > allowed { Err("more memory than allowed".into()) } else { Ok(()) }
}
