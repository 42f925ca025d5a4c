//! Everything at once for a long time, with its memory and its answers watched: does the process
//! stay within the memory budget and 64 MiB, and does it find what was written?
//!
//!     cargo bench -p lithe-bench --bench soak -- --memory 32MiB --seconds 3600 --dir /data
//!
//! Two threads write, delete, read and scan keys of their own, alone and in transactions, small
//! values and large ones: so each knows what must be there. A third takes snapshots, walks and
//! counts under them while the others write, ingests, deletes ranges, compacts and vacuums. Small
//! and large values are each about the size of the budget. At the end the store is closed, opened,
//! checked, and compared key by key.
//!
//! A line a minute says what the process holds and the store counts. It ends with exit code 1 when
//! an answer was wrong or the memory went above. What the program itself keeps, a byte or two a
//! key, counts as the store's.

#![expect(clippy::disallowed_methods, reason = "a soak lasts for a time, on a real disk")]

mod keeper;
mod owner;
mod watch;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lithe_bench::Memory;
use lithedb::{Db, Error as StoreError, Keyspace, KeyspaceOptions};

use owner::Owner;
use watch::Watch;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Threads that own keys.
const OWNERS: u64 = 2;
/// Bytes of a small key and value.
const SMALL_SIZE: u64 = 16 + 100;
/// Bytes of a large value, on average.
const LARGE_SIZE: u64 = 34 << 10;
/// Values from this size on lie apart.
const APART_FROM: u32 = 2 << 10;
/// What a process may hold beside the budget.
const ALLOWANCE: u64 = 64 << 20;

/// What was asked for.
struct Asked {
    memory: u64,
    duration: Duration,
    dir: PathBuf,
    seed: u64,
}

/// The store, and what all threads share.
struct Store {
    db: Db,
    small: Keyspace,
    large: Keyspace,
    queue: Keyspace,
    ingested: Keyspace,
    small_keys: u64,
    large_keys: u64,
    /// Operations of all threads.
    operations: AtomicU64,
    is_over: AtomicBool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|asked| soak(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked> {
    let dir = std::env::temp_dir();
    let mut asked = Asked { memory: 256 << 20, duration: Duration::from_secs(60), dir, seed: 1 };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--memory" => match value()?.parse()? {
                Memory::Bytes(bytes) => asked.memory = bytes,
                Memory::EngineDefault => return Err("--memory wants a size".into()),
            },
            "--seconds" => asked.duration = Duration::from_secs(value()?.parse()?),
            "--dir" => asked.dir = PathBuf::from(value()?),
            "--seed" => asked.seed = value()?.parse()?,
            "--bench" => {} // Cargo says this to every benchmark.
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    Ok(asked)
}

impl Store {
    fn open(dir: &Path, memory: u64) -> Result<Store> {
        let db = Db::builder().memory_budget(memory).open(dir)?;
        let apart = KeyspaceOptions::default().value_separation(Some(APART_FROM));
        let large = match db.keyspace("large") {
            Ok(large) => large,
            Err(StoreError::KeyspaceNotFound { .. }) => db.create_keyspace("large", apart)?,
            Err(error) => return Err(error.into()),
        };
        Ok(Store {
            small: db.keyspace_or_create("small")?,
            large,
            queue: db.keyspace_or_create("queue")?,
            ingested: db.keyspace_or_create("ingested")?,
            small_keys: memory / SMALL_SIZE,
            large_keys: memory / LARGE_SIZE,
            operations: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            db,
        })
    }

    fn count(&self, operations: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

fn soak(asked: &Asked) -> Result<()> {
    let dir = asked.dir.join(format!("lithe-soak-{}", std::process::id()));
    let outcome = soak_in(&dir, asked);
    if outcome.is_ok() {
        std::fs::remove_dir_all(&dir)?;
    } else {
        eprintln!("soak: the store is left in {}", dir.display());
    }
    outcome
}

fn soak_in(dir: &Path, asked: &Asked) -> Result<()> {
    let store = Store::open(dir, asked.memory)?;
    let mut watch = Watch::begin(dir, asked.memory + ALLOWANCE);
    let owners = thread::scope(|scope| -> Result<Vec<Owner>> {
        let owners: Vec<_> = (0..OWNERS)
            .map(|number| {
                let store = &store;
                scope.spawn(move || ended(store, Owner::new(number, asked.seed, store).run(store)))
            })
            .collect();
        let keeper = scope.spawn(|| ended(&store, keeper::run(&store, asked.seed)));
        let started = Instant::now();
        while started.elapsed() < asked.duration && store.goes_on() {
            thread::sleep(Duration::from_secs(1));
            watch.look(&store)?;
        }
        store.is_over.store(true, Ordering::Relaxed);
        keeper.join().map_err(|_| "the keeper has panicked")??;
        let joined = owners.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|owner| owner.map_err(|_| "an owner has panicked")?).collect()
    })?;
    store.db.close()?;
    drop(store);
    let store = Store::open(dir, asked.memory)?;
    let report = store.db.check()?;
    if !report.is_ok() {
        return Err(format!("check: {}", report.problems.join("; ")).into());
    }
    let found: u64 =
        owners.into_iter().map(|mut owner| owner.verify_all(&store)).sum::<Result<u64>>()?;
    store.db.close()?;
    println!("check: ok; {found} keys found as they were written");
    watch.judge()
}

/// One thread that fails ends all.
fn ended<T>(store: &Store, outcome: Result<T>) -> Result<T> {
    if outcome.is_err() {
        store.is_over.store(true, Ordering::Relaxed);
    }
    outcome
}
