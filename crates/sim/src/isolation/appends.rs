//! Isolation as somebody else judges it: threads append to lists (by what they have read, or by
//! merging what they have not) and read them, with crashes and reopenings in between, and what they
//! saw goes to the checker `adya`, which knows nothing of stamps and infers from the lists who came
//! before whom.
//!
//! Source of the workload: K. Kingsbury, P. Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations" (VLDB 2020).

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adya::{History, Opts, Valid, Workload};
use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Background, Db, Durability, Error, Keyspace, Transaction};

use super::history::Ticks;
use super::{join, keyspace_name, refused, upkeep};
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::parallel::survive;
use crate::random::{Random, seed_of};
use crate::setup::Setup;

/// Counts in the ledger.
pub const APPEND_TRANSACTIONS: &str = "transactions judged by adya";
const THREAD_COUNT: u64 = 3;
const OPENING_COUNT: u64 = 4;
const KEYSPACE_COUNT: u64 = 2;
/// Lists that are appended to at one time.
const LIST_COUNT: u64 = 6;
/// After so many appends, the lists of that time are left alone: they are read whole.
const APPENDS_PER_TIME: u64 = 200;
const MODEL: &str = "strict-serializable";
/// The checker gives up on a tangle after this long.
const SEARCH_TIME: Duration = Duration::from_secs(60);

/// One run: a database, opened several times.
#[derive(Clone, Debug)]
pub struct AppendRun {
    /// Decides what transactions do.
    pub seed: u64,
    /// How many there are, in all openings together.
    pub transaction_count: u64,
}

/// One thing that a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Append(u64, u64),
    Read(u64, Vec<u64>),
}

/// A transaction, as its thread tells it.
#[derive(Clone, Debug)]
struct Told {
    thread: u64,
    began: u64,
    ended: u64,
    end: End,
    steps: Vec<Step>,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed,
    /// Nothing of it happened.
    Failed,
    /// The crash came first.
    Unknown,
}

/// What all threads of an opening share.
struct Shared<'d> {
    db: &'d Db,
    keyspaces: &'d [Keyspace],
    ticks: Ticks,
    /// Elements that were given, in all openings.
    elements: &'d AtomicU64,
}

impl AppendRun {
    /// Runs it.
    pub fn run(&self, ledger: &Arc<Ledger>) {
        ledger.count("runs of appends");
        let judged = survive(|| {
            let openings = self.openings()?;
            let told: usize = openings.iter().map(Vec::len).sum();
            ledger.count_many(APPEND_TRANSACTIONS, told as u64);
            judge(&openings)
        });
        if let Err(finding) = judged {
            ledger.note(finding, || self.command());
        }
    }

    /// What the program is to be called with for this run, as far as threads can be repeated.
    #[must_use]
    pub fn command(&self) -> String {
        let AppendRun { seed, transaction_count } = self;
        format!("appends --run {seed:#x} --transactions {transaction_count}")
    }

    fn setup(&self) -> Setup {
        let mut setup = Setup::numbered(self.seed % 64);
        if self.seed.is_multiple_of(2) {
            setup.background = Background::Threads;
        }
        setup
    }

    /// What was done in each opening, and at last a read of every list.
    fn openings(&self) -> Verdict<Vec<Vec<Told>>> {
        let mut random = Random::new(seed_of(&[self.seed, 11]));
        let mut storage = SimStorage::new(self.seed);
        let elements = AtomicU64::new(1);
        let mut openings = Vec::new();
        for opening in 0..OPENING_COUNT {
            let (told, next) = self.run_opening(&storage, opening, &elements, &mut random)?;
            openings.push(told);
            storage = next;
        }
        openings.push(vec![self.read_all(&storage, elements.load(Ordering::SeqCst))?]);
        Ok(openings)
    }

    fn open(&self, storage: &SimStorage, nth: u64) -> Verdict<(Db, Vec<Keyspace>)> {
        let setup = self.setup();
        let db = setup.open(Arc::new(storage.clone()), nth);
        let db = db.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
        let mut keyspaces = Vec::new();
        for number in 0..KEYSPACE_COUNT as u8 {
            let name = keyspace_name(number);
            let keyspace = match db.keyspace(&name) {
                Err(Error::KeyspaceNotFound { .. }) => {
                    let mut options = setup.keyspace_options(usize::from(number));
                    options.ttl = None; // What merges does not expire.
                    db.create_keyspace(&name, options.merge_operator("append"))
                }
                other => other,
            };
            keyspaces.push(keyspace.map_err(refused)?);
        }
        Ok((db, keyspaces))
    }

    fn run_opening(
        &self,
        storage: &SimStorage,
        opening: u64,
        elements: &AtomicU64,
        random: &mut Random,
    ) -> Verdict<(Vec<Told>, SimStorage)> {
        let (db, keyspaces) = self.open(storage, opening)?;
        let shared = Shared { db: &db, keyspaces: &keyspaces, ticks: Ticks::default(), elements };
        let each = (self.transaction_count / OPENING_COUNT / THREAD_COUNT).max(1);
        let over = AtomicBool::new(false);
        let (told, crashed) = std::thread::scope(|scope| {
            let shared = &shared;
            let threads: Vec<_> = (0..THREAD_COUNT)
                .map(|thread| {
                    let random = Random::new(seed_of(&[self.seed, opening, thread, 5]));
                    scope.spawn(move || survive(|| run_thread(shared, thread, random, each)))
                })
                .collect();
            let upkeep = {
                let (db, over) = (&db, &over);
                scope.spawn(move || survive(|| upkeep(db, over, seed_of(&[self.seed, opening]))))
            };
            let crashed = random.chance(700).then(|| {
                shared.ticks.wait_for(random.below(each * THREAD_COUNT + 1));
                let at = shared.ticks.next();
                (storage.crash(random.pick(&CrashMode::ALL), random.draw()), at)
            });
            let told: Vec<_> = threads.into_iter().map(join).collect();
            over.store(true, Ordering::Relaxed);
            join(upkeep)?;
            Ok::<_, Finding>((told.into_iter().collect::<Verdict<Vec<_>>>()?.concat(), crashed))
        })?;
        drop(keyspaces);
        db.close().map_err(refused)?;
        Ok(match crashed {
            Some((next, at)) => (cut_off(told, at), next),
            None => (told, storage.duplicate()),
        })
    }

    /// One transaction that reads every list.
    fn read_all(&self, storage: &SimStorage, elements: u64) -> Verdict<Told> {
        let (db, keyspaces) = self.open(storage, OPENING_COUNT)?;
        let transaction = db.begin_update();
        let mut steps = Vec::new();
        for list in 0..(elements / APPENDS_PER_TIME + 1) * LIST_COUNT {
            steps.push(Step::Read(list, read(&transaction, &keyspaces, list)?));
        }
        drop(transaction);
        db.close().map_err(refused)?;
        Ok(Told { thread: 0, began: 0, ended: 1, end: End::Committed, steps })
    }
}

/// What a crash at a tick leaves of what was told: what was over before has happened, what had
/// begun may have, and of the rest nobody knows.
fn cut_off(told: Vec<Told>, at: u64) -> Vec<Told> {
    let begun = told.into_iter().filter(|transaction| transaction.began < at);
    let cut = |mut transaction: Told| {
        if transaction.ended > at {
            transaction.ended = at;
            if transaction.end == End::Committed {
                transaction.end = End::Unknown;
            }
        }
        transaction
    };
    begun.map(cut).collect()
}

fn run_thread(
    shared: &Shared<'_>,
    thread: u64,
    mut random: Random,
    count: u64,
) -> Verdict<Vec<Told>> {
    (0..count).map(|_| transact(shared, thread, &mut random)).collect()
}

fn transact(shared: &Shared<'_>, thread: u64, random: &mut Random) -> Verdict<Told> {
    let began = shared.ticks.next();
    let mut transaction = shared.db.begin_update();
    let mut steps = Vec::new();
    for _ in 0..1 + random.below(5) {
        let list = draw_list(shared, random);
        if random.chance(500) {
            steps.push(Step::Read(list, read(&transaction, shared.keyspaces, list)?));
            continue;
        }
        let element = shared.elements.fetch_add(1, Ordering::SeqCst);
        let (keyspace, key) = (keyspace_of(shared.keyspaces, list), key_of(list));
        let appended = if random.chance(500) {
            transaction.merge(keyspace, key, element.to_le_bytes())
        } else {
            let seen = read(&transaction, shared.keyspaces, list)?;
            let elements = seen.iter().chain([&element]);
            let value: Vec<u8> = elements.flat_map(|element| element.to_le_bytes()).collect();
            transaction.put(keyspace, key, value)
        };
        appended.map_err(refused)?;
        steps.push(Step::Append(list, element));
    }
    let end = if random.chance(50) {
        transaction.rollback();
        End::Failed
    } else {
        // Durable: what a reader has seen, no crash takes back.
        match transaction.commit_with(Durability::Sync) {
            Ok(_) => End::Committed,
            Err(Error::Conflict) => End::Failed,
            Err(error) => return Err(refused(error)),
        }
    };
    Ok(Told { thread, began, ended: shared.ticks.next(), end, steps })
}

/// Mostly one of the lists of now, seldom one of before.
fn draw_list(shared: &Shared<'_>, random: &mut Random) -> u64 {
    let now = shared.elements.load(Ordering::SeqCst) / APPENDS_PER_TIME;
    let time = if random.chance(20) { random.below(now + 1) } else { now };
    time * LIST_COUNT + random.below(LIST_COUNT)
}

fn keyspace_of(keyspaces: &[Keyspace], list: u64) -> &Keyspace {
    &keyspaces[(list % KEYSPACE_COUNT) as usize]
}

fn key_of(list: u64) -> [u8; 8] {
    list.to_be_bytes()
}

fn read(transaction: &Transaction, keyspaces: &[Keyspace], list: u64) -> Verdict<Vec<u64>> {
    let value = transaction.get(keyspace_of(keyspaces, list), key_of(list)).map_err(refused)?;
    let elements = value.as_deref().unwrap_or_default().chunks_exact(8);
    Ok(elements.map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight"))).collect())
}

/// Whether the checker finds nothing.
fn judge(openings: &[Vec<Told>]) -> Verdict {
    let history = History::from_json(&history_text(openings))
        .map_err(|error| Finding::new(Fault::Wrong, error.to_string()))?;
    let options = Opts { models: vec![MODEL.to_owned()], timeout: SEARCH_TIME, ..Opts::default() };
    let report = adya::check(&history, Workload::ListAppend, &options);
    if report.valid == Valid::True {
        return Ok(());
    }
    let shown = report.anomalies.values().flatten().next();
    let shown = shown.map_or("", |anomaly| anomaly.explanation.as_str());
    let what = format!("adya says {:?}, {:?}: {shown}", report.valid, report.anomaly_types);
    Err(Finding::new(Fault::Wrong, what))
}

/// The history in the form of Jepsen: a line for each beginning and end, in their order.
fn history_text(openings: &[Vec<Told>]) -> String {
    let mut text = String::new();
    for (told, opening) in openings.iter().zip(0..) {
        let ends = told.iter().map(|transaction| (transaction.ended, transaction, false));
        let beginnings = told.iter().map(|transaction| (transaction.began, transaction, true));
        let mut events: Vec<(u64, &Told, bool)> = beginnings.chain(ends).collect();
        events.sort_by_key(|(tick, ..)| *tick);
        for (_, transaction, is_beginning) in events {
            // One whose fate is unknown is heard of no more: other openings have other processes.
            let process = opening * THREAD_COUNT + transaction.thread;
            let kind = match (is_beginning, transaction.end) {
                (true, _) => "invoke",
                (false, End::Committed) => "ok",
                (false, End::Failed) => "fail",
                (false, End::Unknown) => "info",
            };
            let _ = write!(text, "{{\"type\":\"{kind}\",\"process\":{process},\"value\":[");
            for (step, number) in transaction.steps.iter().zip(0..) {
                text.push_str(if number == 0 { "" } else { "," });
                let _ = match step {
                    Step::Append(list, element) => write!(text, "[\"append\",{list},{element}]"),
                    Step::Read(list, _) if kind != "ok" => write!(text, "[\"r\",{list},null]"),
                    Step::Read(list, seen) => write!(text, "[\"r\",{list},{seen:?}]"),
                };
            }
            text.push_str("]}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openings() -> Vec<Vec<Told>> {
        AppendRun { seed: 3, transaction_count: 600 }.openings().unwrap()
    }

    #[test]
    fn somebody_else_finds_nothing_in_some_runs() {
        let ledger = Arc::new(Ledger::new());
        for seed in 0..6 {
            AppendRun { seed, transaction_count: 900 }.run(&ledger);
        }
        ledger.assert_clean();
        assert!(ledger.counted(APPEND_TRANSACTIONS) > 2500, "{ledger}");
    }

    /// Changes the first long enough read of the last opening with threads.
    fn spoil(openings: &mut [Vec<Told>], spoil: impl Fn(&mut Vec<u64>)) {
        let committed = openings.iter_mut().flatten().filter(|told| told.end == End::Committed);
        let read = committed.flat_map(|told| &mut told.steps).find_map(|step| match step {
            Step::Read(_, seen) if seen.len() > 4 => Some(seen),
            _ => None,
        });
        spoil(read.expect("some list has become long"));
    }

    #[test]
    fn a_history_that_cannot_be_is_found_out() {
        let whole = openings();
        judge(&whole).unwrap();
        for wrong in [
            |seen: &mut Vec<u64>| seen.swap(1, 2), // Two orders of the same appends.
            |seen: &mut Vec<u64>| seen.truncate(1), // A moment long gone.
            |seen: &mut Vec<u64>| seen.push(u64::from(u32::MAX)), // Nobody appended it.
            |seen: &mut Vec<u64>| {
                seen.remove(1); // A lost update.
            },
        ] {
            let mut openings = whole.clone();
            spoil(&mut openings, wrong);
            assert!(judge(&openings).is_err());
        }
    }
}
