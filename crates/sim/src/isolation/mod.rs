//! Isolation: threads run random transactions against each other, with crashes and reopenings in
//! between, and every read of every one of them is checked.
//!
//! | file | what |
//! |---|---|
//! | `history` | what transactions did and saw, as they tell it |
//! | `client` | one thread, and what it does |
//! | `judge` | whether a history can have come from a serializable store: a pure function |
//! | `appends` | lists that are appended to and read, judged by somebody else |
//! | `planted` | histories with an anomaly put in, which the judge must find |
//!
//! Threads are the system's, so a seed decides what transactions do, not how they interleave.

pub mod appends;
mod client;
pub mod history;
pub mod judge;
pub mod planted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Background, Db, Error};

use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::parallel::survive;
use crate::random::{Random, seed_of};
use crate::readback::expect_check_ok;
use crate::setup::Setup;

use client::{Client, Clients};
use history::{History, Model, Place, Recovered, Ticks, id_of_value, number_of_key};

/// Counts in the ledger.
pub const TRANSACTIONS: &str = "transactions";
const COMMITS: &str = "transactions committed with writes";
const CONFLICTS: &str = "transactions that met a conflict";
const READS: &str = "reads and scans checked";
const CRASHES: &str = "crashes";
const REOPENINGS: &str = "reopenings";

/// Keyspaces that transactions work on.
pub const KEYSPACE_COUNT: u8 = 3;
/// Threads with transactions.
const THREAD_COUNT: u64 = 3;
/// Openings of the database in one run.
const OPENING_COUNT: u64 = 4;

/// One run: a database, opened several times.
#[derive(Clone, Debug)]
pub struct IsolationRun {
    /// Decides what transactions do.
    pub seed: u64,
    /// How many there are, in all openings together.
    pub transaction_count: u64,
}

impl IsolationRun {
    /// How the database is opened: every other run without background threads.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let mut setup = Setup::numbered(self.seed % 64);
        if self.seed.is_multiple_of(2) {
            setup.background = Background::Threads;
        }
        setup
    }

    /// Runs it.
    pub fn run(&self, ledger: &Arc<Ledger>) {
        ledger.count("runs");
        if let Err(finding) = survive(|| self.try_run(ledger)) {
            ledger.note(finding, || self.command());
        }
    }

    /// What the program is to be called with for this run, as far as threads can be repeated.
    #[must_use]
    pub fn command(&self) -> String {
        let IsolationRun { seed, transaction_count } = self;
        format!("isolation --run {seed:#x} --transactions {transaction_count}")
    }

    /// Runs it and hands each history to `look` before it is judged.
    ///
    /// # Errors
    /// What `look` returns, or running finds.
    pub fn histories(&self, mut look: impl FnMut(&History) -> Verdict) -> Verdict {
        let mut random = Random::new(seed_of(&[self.seed, 7]));
        let mut storage = SimStorage::new(self.seed);
        let mut start = Model::new();
        for opening in 0..OPENING_COUNT {
            let (history, next) = self.run_opening(&storage, opening, start, &mut random)?;
            look(&history)?;
            start = history.recovered.found;
            storage = next;
        }
        Ok(())
    }

    fn try_run(&self, ledger: &Arc<Ledger>) -> Verdict {
        self.histories(|history| {
            let seen = judge::judge(history)?;
            ledger.count_many(TRANSACTIONS, history.attempts.len() as u64);
            ledger.count_many(COMMITS, seen.commits);
            ledger.count_many(CONFLICTS, seen.conflicts);
            ledger.count_many(READS, seen.reads);
            ledger.count_many(CRASHES, u64::from(history.recovered.crashed_at.is_some()));
            ledger.count(REOPENINGS);
            Ok(())
        })
    }

    /// One opening; and the disk after it.
    fn run_opening(
        &self,
        storage: &SimStorage,
        opening: u64,
        start: Model,
        random: &mut Random,
    ) -> Verdict<(History, SimStorage)> {
        let setup = self.setup();
        let db = setup.open(Arc::new(storage.clone()), opening).map_err(refused)?;
        let keyspaces = (0..KEYSPACE_COUNT).map(|number| {
            let name = keyspace_name(number);
            match db.keyspace(&name) {
                Err(Error::KeyspaceNotFound { .. }) => {
                    db.create_keyspace(&name, setup.lasting_options(usize::from(number)))
                }
                other => other,
            }
        });
        let keyspaces = keyspaces.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let each = (self.transaction_count / OPENING_COUNT / THREAD_COUNT).max(1);
        let key_count = random.pick(&[4, 30, 30, 300]);
        let clients =
            Clients { db: &db, keyspaces: &keyspaces, ticks: Ticks::default(), key_count };
        let crash = random.chance(700);
        let over = AtomicBool::new(false);
        let (attempts, crashed) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREAD_COUNT)
                .map(|thread| {
                    let seed = seed_of(&[self.seed, opening, thread]);
                    let client = Client::new(&clients, seed, opening * THREAD_COUNT + thread);
                    scope.spawn(move || survive(|| client.run(each)))
                })
                .collect();
            let over = &over;
            let upkeep =
                scope.spawn(|| survive(|| upkeep(&db, over, seed_of(&[self.seed, opening]))));
            // Somewhere in the middle, as far as the threads' pace allows.
            let crashed = crash.then(|| {
                clients.ticks.wait_for(random.below(each * THREAD_COUNT + 1));
                let at = clients.ticks.next();
                let mode = random.pick(&CrashMode::ALL);
                (storage.crash(mode, random.draw()), at, mode)
            });
            let done: Vec<_> = threads.into_iter().map(join).collect();
            over.store(true, Ordering::Relaxed);
            join(upkeep)?;
            let attempts = done.into_iter().collect::<Verdict<Vec<_>>>()?.concat();
            Ok::<_, Finding>((attempts, crashed))
        })?;
        drop(keyspaces);
        db.close().map_err(refused)?;
        drop(db);
        let (next, crashed_at) = match crashed {
            Some((next, at, mode)) => (next, Some((at, mode != CrashMode::KeepAll))),
            None => (storage.duplicate(), None),
        };
        let recovered = self.read_back(&next, opening, crashed_at)?;
        Ok((History { start, attempts, recovered }, next))
    }

    /// Opens what is there after an opening, reads it, and closes it again.
    fn read_back(
        &self,
        storage: &SimStorage,
        opening: u64,
        crashed_at: Option<(u64, bool)>,
    ) -> Verdict<Recovered> {
        let db = self.setup().open(Arc::new(storage.clone()), OPENING_COUNT + opening);
        let db = db.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
        let up_to = db.snapshot().seqno();
        let found = read_all(&db).map_err(refused)?;
        expect_check_ok(&db)?;
        db.close().map_err(refused)?;
        Ok(Recovered { up_to, crashed_at, found })
    }
}

/// What keeps the database busy beside the transactions.
fn upkeep(db: &Db, over: &AtomicBool, seed: u64) -> Verdict {
    let mut random = Random::new(seed);
    while !over.load(Ordering::Relaxed) {
        match random.below(100) {
            0..=2 => db.flush().map_err(refused)?,
            3 => db.compact().map_err(refused)?,
            4..=30 => drop(db.step().map_err(refused)?),
            31..=35 => db.sync().map_err(refused)?,
            _ => std::thread::sleep(std::time::Duration::from_micros(random.below(300))),
        }
    }
    Ok(())
}

fn read_all(db: &Db) -> Result<Model, Error> {
    let mut model = BTreeMap::new();
    for number in 0..KEYSPACE_COUNT {
        let keyspace = db.keyspace(&keyspace_name(number))?;
        for entry in keyspace.iter() {
            let entry = entry?;
            let place = Place { keyspace: number, key: number_of_key(&entry.key) };
            model.insert(place, id_of_value(&entry.value));
        }
    }
    Ok(model)
}

fn keyspace_name(number: u8) -> String {
    format!("k{number}")
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Verdict<T>>) -> Verdict<T> {
    thread.join().unwrap_or_else(|_| Err(Finding::new(Fault::Panic, "outside of a transaction")))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: Error) -> Finding {
    Finding::new(Fault::Refused, error.to_string())
}
