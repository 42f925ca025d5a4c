//! How many instructions the hot paths take, beside a recorded baseline: a regression shows without
//! a clock, on a busy machine too.
//!
//!     cargo bench -p lithe-bench --bench instructions              # compare
//!     cargo bench -p lithe-bench --bench instructions -- --record  # write the baseline
//!
//! Each path runs in a process of its own below `valgrind --tool=callgrind`, which counts only
//! within [`counted`]. Storage is memory, and no thread works in the background: what is counted is
//! the store's own code, with what it calls of the allocator and of `memcpy`, and is the same in
//! every run but for a few instructions in ten thousand. Code elsewhere, though, moves what the
//! compiler inlines: two in a hundred, in paths that nothing has touched. So a path may take three
//! in a hundred more than the baseline says; one that takes as much less asks for a new baseline,
//! and is no failure.
//!
//! The baseline (`instructions.txt`) belongs to the toolchain that is pinned and to x86-64.

#![expect(clippy::disallowed_methods, reason = "the baseline is a file of the source tree")]

use lithe_bench::KeyShape;
use lithedb::storage::MemoryStorage;
use lithedb::{Background, Db, Durability, KeyRange, Keyspace, WriteBatch};
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Entries of the store: 16 and 100 bytes each, all of it fits the memory budget.
const KEYS: u64 = 40_000;
const VALUE: [u8; 100] = [0xA5; 100];
const MEMORY_BUDGET: u64 = 64 << 20;
const BATCH_LEN: u64 = 1000;
/// Entries that a seek is followed by.
const SCAN_LEN: usize = 50;
/// Keys that are in no store.
const ABSENT_FIRST: u64 = 1 << 40;
/// How much more than recorded a path may take, in parts of it.
const TOLERANCE: f64 = 0.03;
/// Only what happens in this function is counted; a wildcard, for the hash behind its name.
const COUNTED: &str = "*instructions*counted*";
/// Callgrind's word for the total, on its standard error.
const TOTAL: &str = "Collected :";

/// What is prepared, and what is counted: it returns how many operations it was.
struct HotPath {
    name: &'static str,
    run: fn(&Store) -> Result<u64>,
}

const PATHS: [HotPath; 10] = [
    HotPath { name: "get, hit", run: get_hit },
    HotPath { name: "get, miss", run: get_miss },
    HotPath { name: "get, hit in a memtable", run: get_hit_in_memtable },
    HotPath { name: "put in a batch of 1000", run: put_in_batch },
    HotPath { name: "commit of one put", run: commit },
    HotPath { name: "flush, per entry", run: flush },
    HotPath { name: "next", run: next },
    HotPath { name: "prev", run: prev },
    HotPath { name: "seek", run: seek },
    HotPath { name: "snapshot, seek, 50 times next", run: short_scan },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().position(|argument| argument == "--path") {
        Some(at) => run_path(arguments.get(at + 1).map_or("", String::as_str)),
        None => compare(arguments.iter().any(|argument| argument == "--record")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts all paths, and compares or records.
fn compare(record: bool) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    let baseline = if record { Vec::new() } else { read_baseline(&file)? };
    let mut text = String::from("# Instructions per operation; see instructions.rs.\n");
    let mut slower = Vec::new();
    println!("{:<32} {:>10} {:>10} {:>8}", "instructions per operation", "now", "baseline", "");
    for path in &PATHS {
        let now = count(path.name)?;
        text += &format!("{now:.1}\t{}\n", path.name);
        let known = baseline.iter().find(|(name, _)| name == path.name).map(|(_, count)| *count);
        let Some(before) = known else {
            println!("{:<32} {now:>10.1} {:>10}", path.name, "-");
            if !record {
                slower.push(format!("{} is not in the baseline", path.name));
            }
            continue;
        };
        let change = now / before - 1.0;
        println!("{:<32} {now:>10.1} {before:>10.1} {:>+7.1}%", path.name, change * 100.0);
        if change > TOLERANCE {
            slower.push(format!("{} takes {now:.1} instead of {before:.1}", path.name));
        } else if change < -TOLERANCE {
            println!("  better than the baseline: record it with --record");
        }
    }
    if record {
        fs::write(&file, text)?;
    }
    if slower.is_empty() { Ok(()) } else { Err(slower.join("; ").into()) }
}

/// Lines of a count, a tab and a name.
fn read_baseline(file: &Path) -> Result<Vec<(String, f64)>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (count, name) = line.split_once('\t').ok_or_else(|| format!("`{line}`"))?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect()
}

/// Instructions per operation of one path, from a process below callgrind.
fn count(name: &str) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(std::env::current_exe()?)
        .args(["--path", name])
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let operations: Option<f64> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    let total = complaints.lines().find_map(|line| line.split_once(TOTAL)?.1.trim().parse().ok());
    match (operations, total) {
        (Some(operations), Some(total)) if output.status.success() => {
            let total: f64 = total;
            Ok(total / operations)
        }
        _ => Err(format!("{name}: {complaints}").into()),
    }
}

/// Prepares a path, runs it, and says how many operations it was.
fn run_path(name: &str) -> Result<()> {
    let path = PATHS.iter().find(|path| path.name == name);
    let path = path.ok_or_else(|| format!("there is no path `{name}`"))?;
    let store = Store::create()?;
    println!("{}", (path.run)(&store)?);
    Ok(store.db.close().map(drop)?)
}

/// Callgrind counts from the call to the return of this function.
#[inline(never)]
fn counted(work: &mut dyn FnMut() -> Result<u64>) -> Result<u64> {
    black_box(work())
}

/// A store in memory whose background work is done by the caller.
struct Store {
    db: Db,
    keyspace: Keyspace,
}

impl Store {
    fn create() -> Result<Store> {
        let db = Db::builder()
            .storage(Arc::new(MemoryStorage::new()))
            .background(Background::Stepped)
            .memory_budget(MEMORY_BUDGET)
            .open(PathBuf::from("/store"))?;
        let keyspace = db.keyspace_or_create("counted")?;
        Ok(Store { db, keyspace })
    }

    /// Writes all keys, in batches.
    fn fill(&self) -> Result<()> {
        for first in (0..KEYS).step_by(BATCH_LEN as usize) {
            self.write(first)?;
        }
        Ok(())
    }

    fn write(&self, first: u64) -> Result<()> {
        let mut batch = WriteBatch::new();
        let mut key = Vec::new();
        for index in first..first + BATCH_LEN {
            key.clear();
            KeyShape::Random16.append(index, &mut key);
            batch.put(&self.keyspace, &key, VALUE);
        }
        self.db.write_with(batch, Durability::Buffered)?;
        Ok(())
    }

    /// All keys, flushed, and all of them in the cache: each was read often enough.
    fn fill_and_warm(&self) -> Result<()> {
        self.fill()?;
        self.db.flush()?;
        for key in &keys(0) {
            black_box(self.keyspace.get(key)?);
        }
        Ok(())
    }

    fn get_all(&self, keys: &[Vec<u8>]) -> Result<u64> {
        counted(&mut || {
            for key in keys {
                black_box(self.keyspace.get(key)?);
            }
            Ok(keys.len() as u64)
        })
    }
}

/// As many keys as the store has, from `first` on.
fn keys(first: u64) -> Vec<Vec<u8>> {
    (first..first + KEYS).map(|index| KeyShape::Random16.key(index)).collect()
}

fn get_hit(store: &Store) -> Result<u64> {
    store.fill_and_warm()?;
    store.get_all(&keys(0))
}

fn get_miss(store: &Store) -> Result<u64> {
    store.fill_and_warm()?;
    store.get_all(&keys(ABSENT_FIRST))
}

fn get_hit_in_memtable(store: &Store) -> Result<u64> {
    store.fill()?;
    store.get_all(&keys(0))
}

fn put_in_batch(store: &Store) -> Result<u64> {
    store.write(KEYS)?;
    counted(&mut || {
        store.fill()?;
        Ok(KEYS)
    })
}

fn commit(store: &Store) -> Result<u64> {
    store.fill()?;
    let keys = keys(KEYS);
    let keys = &keys[..keys.len() / 10];
    counted(&mut || {
        for key in keys {
            store.keyspace.put(key, VALUE)?;
        }
        Ok(keys.len() as u64)
    })
}

fn flush(store: &Store) -> Result<u64> {
    store.fill()?;
    counted(&mut || {
        store.db.flush()?;
        Ok(KEYS)
    })
}

fn next(store: &Store) -> Result<u64> {
    store.fill_and_warm()?;
    let mut cursor = store.db.snapshot().cursor(&store.keyspace, KeyRange::all());
    cursor.seek_first()?;
    counted(&mut || {
        let mut count = 0;
        while cursor.valid() {
            black_box((cursor.key(), cursor.value()?));
            cursor.next()?;
            count += 1;
        }
        Ok(count)
    })
}

fn prev(store: &Store) -> Result<u64> {
    store.fill_and_warm()?;
    let mut cursor = store.db.snapshot().cursor(&store.keyspace, KeyRange::all());
    cursor.seek_last()?;
    counted(&mut || {
        let mut count = 0;
        while cursor.valid() {
            black_box((cursor.key(), cursor.value()?));
            cursor.prev()?;
            count += 1;
        }
        Ok(count)
    })
}

fn seek(store: &Store) -> Result<u64> {
    store.fill_and_warm()?;
    let (keys, mut cursor) =
        (keys(0), store.db.snapshot().cursor(&store.keyspace, KeyRange::all()));
    counted(&mut || {
        for key in &keys {
            cursor.seek(key)?;
            black_box(cursor.value()?);
        }
        Ok(keys.len() as u64)
    })
}

fn short_scan(store: &Store) -> Result<u64> {
    store.fill_and_warm()?;
    let keys = keys(0);
    let keys = &keys[..keys.len() / 10];
    counted(&mut || {
        for key in keys {
            let mut cursor = store.db.snapshot().cursor(&store.keyspace, KeyRange::all());
            cursor.seek(key)?;
            for _ in 0..SCAN_LEN {
                if cursor.valid() {
                    black_box((cursor.key(), cursor.value()?));
                    cursor.next()?;
                }
            }
        }
        Ok(keys.len() as u64)
    })
}
