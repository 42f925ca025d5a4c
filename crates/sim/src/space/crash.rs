//! Crashes of a space: at every mutation of a run copies of the disk are crashed and opened, and
//! what is found is judged (P2); then opened again after a crash within that opening, and after
//! writing on.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lithedb::Error;
use lithedb::storage::{CrashMode, FaultPlan, SimStorage};

use super::compare::{failed, read_all, read_snapshot};
use super::ops::draw;
use super::session::{History, Session, SharedHistory, Trouble, expect_check_ok, look};
use super::{Model, Setup};
use crate::crash::states;
use crate::finding::{Fault, Finding, Verdict, expect_no_misuse};
use crate::ledger::Ledger;
use crate::parallel::survive;
use crate::random::{Random, seed_of};
use crate::watched::{Mutation, WatchedStorage};

/// Count of states that were tried, in the ledger.
pub const STATES: &str = "crash states of spaces";
/// Count of states that were tried within an opening.
pub const STATES_IN_RECOVERY: &str = "crash states of spaces inside recovery";

/// A run and how it is struck.
#[derive(Clone, Debug)]
pub struct SpaceCrashRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: usize,
    /// States at each point.
    pub per_point: u64,
    /// Only every so many points are tried.
    pub stride: u64,
    /// Only this point, if given.
    pub only_point: Option<u64>,
    /// Faults of the storage while the run goes on: planted mistakes.
    pub planted: FaultPlan,
}

impl SpaceCrashRun {
    /// The run of a seed.
    #[must_use]
    pub fn of_seed(seed: u64, per_point: u64) -> SpaceCrashRun {
        let op_count = 60 + (seed % 61) as usize;
        let planted = FaultPlan::new();
        SpaceCrashRun { seed, op_count, per_point, stride: 1, only_point: None, planted }
    }

    /// Runs it, and notes what is tried and what is wrong.
    pub fn run(&self, ledger: &Arc<Ledger>) {
        let storage = SimStorage::new(self.seed);
        storage.arm(self.planted.clone());
        let history = SharedHistory::default();
        let setup = Setup::numbered(self.seed % 64);
        let striker = Striker {
            run: self.clone(),
            setup,
            storage: storage.clone(),
            history: Arc::clone(&history),
            ledger: Arc::clone(ledger),
            point: AtomicU64::new(0),
        };
        let hook = Arc::new(move |mutation: &Mutation<'_>| striker.strike(mutation));
        let watched = WatchedStorage::new(storage.clone(), hook);
        let outcome = survive(|| {
            let mut session = Session::open(setup, Arc::new(watched), &history)?;
            let mut random = Random::new(seed_of(&[self.seed, 1]));
            for _ in 0..self.op_count {
                session.run(&draw(&mut random)).map_err(Trouble::into_finding)?;
            }
            session.expect_all()
        });
        if let Err(finding) = outcome.and_then(|()| expect_no_misuse(&storage)) {
            ledger.note(finding.at("the run itself"), || format!("space --run {:#x}", self.seed));
        }
        ledger.count("runs of spaces");
    }
}

/// Strikes a run at its mutations.
struct Striker {
    // Constant.
    run: SpaceCrashRun,
    setup: Setup,
    storage: SimStorage,
    history: SharedHistory,
    ledger: Arc<Ledger>,
    // Atomic.
    point: AtomicU64,
}

impl Striker {
    fn strike(&self, mutation: &Mutation<'_>) {
        let point = self.point.fetch_add(1, Ordering::Relaxed);
        let is_due = match self.run.only_point {
            Some(only) => point == only,
            None => (point + self.run.seed).is_multiple_of(self.run.stride),
        };
        if !is_due {
            return;
        }
        let history = look(&self.history).clone();
        for index in 0..self.run.per_point {
            let seed = seed_of(&[self.run.seed, point, index]);
            self.ledger.count(STATES);
            let mut what = String::new();
            let verdict = survive(|| {
                let state = states::numbered(&self.storage, Some(mutation), index, seed);
                what.clone_from(&state.what);
                self.examine(&state.storage, &history, &mut Random::new(seed))
            });
            if let Err(finding) = verdict {
                let place = format!("{what} before {:?} {:?}", mutation.operation, mutation.path);
                self.ledger.note(finding.at(&place), || {
                    format!("space --run {:#x} --point {point}", self.run.seed)
                });
            }
        }
    }

    /// What a crash left is opened, judged, and written on.
    fn examine(&self, left: &SimStorage, history: &History, random: &mut Random) -> Verdict {
        if random.chance(300) {
            self.crash_recovery(left, history, random)?;
        }
        let seen = self.look_only(left)?;
        let mut space = self.setup.open(Arc::new(left.clone())).map_err(|error| failed(&error))?;
        let found = read_all(&space).map_err(|error| failed(&error))?;
        if seen.is_some_and(|seen| seen != found) {
            return Err(Finding::new(Fault::Wrong, "opened for reading only it is another state"));
        }
        if !history.allows(&found) {
            let what = format!("{} bytes, of a state that was not synced", found.len());
            return Err(Finding::new(Fault::Lost, what));
        }
        expect_check_ok(&mut space)?;
        // What was found is durable, and so is what is written on it.
        expect_found(&self.setup, &left.crash(CrashMode::DropAll, 0), &found)?;
        let mut after = found.clone();
        let bytes = random.draw().to_le_bytes();
        let at = random.index(after.len() + 1);
        let refused = |error: lithedb::Error| Finding::new(Fault::Refused, error.to_string());
        space.insert(at as u64, &bytes).map_err(refused)?;
        after.insert(at, &bytes);
        space.sync().map_err(refused)?;
        drop(space);
        let mode = random.pick(&[CrashMode::DropAll, CrashMode::KeepAll, CrashMode::TornLast]);
        expect_found(&self.setup, &left.crash(mode, random.draw()), &after)
    }

    /// What is seen by opening it for reading only, which changes nothing; `None` if there is no
    /// space yet.
    fn look_only(&self, left: &SimStorage) -> Verdict<Option<Model>> {
        let mutations = left.mutation_count();
        let snapshot = match self.setup.open_read_only(Arc::new(left.clone())) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened.map_err(|error| failed(&error))?,
        };
        let seen = read_snapshot(&snapshot).map_err(|error| failed(&error))?;
        if left.mutation_count() > mutations {
            return Err(Finding::new(Fault::Wrong, "opening for reading only changed something"));
        }
        Ok(Some(seen))
    }

    /// The opening is struck by a crash as well.
    fn crash_recovery(&self, left: &SimStorage, history: &History, random: &mut Random) -> Verdict {
        let rehearsal = left.duplicate();
        drop(self.setup.open(Arc::new(rehearsal.clone())).map_err(|error| failed(&error))?);
        let count = rehearsal.mutation_count();
        if count == 0 {
            return Ok(());
        }
        self.ledger.count(STATES_IN_RECOVERY);
        let struck = left.duplicate();
        struck.crash_inside(random.below(count));
        drop(self.setup.open(Arc::new(struck.clone())));
        let again = struck.crash(random.pick(&CrashMode::ALL), random.draw());
        let space = self.setup.open(Arc::new(again)).map_err(|error| failed(&error))?;
        let found = read_all(&space).map_err(|error| failed(&error))?;
        if history.allows(&found) {
            return Ok(());
        }
        Err(Finding::new(Fault::Lost, "a state that was not synced, after two crashes"))
    }
}

fn expect_found(setup: &Setup, storage: &SimStorage, expected: &Model) -> Verdict {
    let space = setup.open(Arc::new(storage.clone())).map_err(|error| failed(&error))?;
    let found = read_all(&space).map_err(|error| failed(&error))?;
    if found == *expected {
        return Ok(());
    }
    Err(Finding::new(Fault::Lost, "what was found, or synced on top of it, is gone"))
}
