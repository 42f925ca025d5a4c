//! Crashes: a run is struck by power cuts and kills at every mutation of the disk, the database is
//! opened on what is left, and the prefix oracle judges what it finds.
//!
//! A run goes on while it is struck: at each mutation, before it is done, copies of the simulated
//! disk are crashed and recovered on the spot. So a run of `n` mutations costs `n` recoveries for
//! each state that is tried at a point, and not `n` runs.
//!
//! | file | what |
//! |---|---|
//! | `states` | what a crash leaves: two generators, written independently |
//! | `examine` | opening on what is left, judging it, going on and crashing again |
//! | `known` | disks that were met before, and are judged by what was found on them |
//! | `smaller` | cutting a run down that goes wrong |
//! | `canary` | planted mistakes that must be found |
//!
//! Everything follows from the seed of the run, the number of the point and the number of the
//! state, so that a finding can be repeated by itself.

pub mod canary;
mod examine;
mod known;
mod smaller;
pub(crate) mod states;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lithedb::Structure;
use lithedb::storage::{FaultPlan, Operation, SimStorage};

use crate::finding::{Fault, Finding, Verdict, expect_no_misuse};
use crate::ledger::{HOLES, Ledger, VALUE_BYTES, VALUE_FILES_REMOVED, VALUES_MOVED};
use crate::ops::{Mix, Op, Purpose};
use crate::parallel::survive;
use crate::random::{Random, seed_of};
use crate::sample::ValueSizes;
use crate::session::{Session, SharedTimeline, look};
use crate::setup::Setup;
use crate::shrink::{keep_argument, pick};
use crate::watched::{Mutation, WatchedStorage};

use examine::Examiner;
use smaller::Struck;

pub use crate::diet::Diet;

/// Count of states that were tried, in the ledger.
pub const STATES: &str = "crash states";
/// Count of states that were tried while an earlier crash was being recovered from.
pub const STATES_IN_RECOVERY: &str = "crash states inside recovery";
/// Count of states that were tried after writing went on behind a recovery.
pub const STATES_AFTER_RECOVERY: &str = "crash states after writing on behind a recovery";
/// Count of states, of all of these, whose disk was met before: they are judged by what was found.
pub const STATES_MET_BEFORE: &str = "crash states met before";
/// Count of states that were opened to be read first.
pub const STATES_READ_FIRST: &str = "crash states opened to be read first";
/// Count of indexes that were built on behind a crash.
pub const BUILT_ON: &str = "indexes built on behind a crash";
/// Count of checkpoints that were opened behind a crash.
pub const CHECKPOINTS_OPENED: &str = "checkpoints opened behind crashes";
/// Count of checkpoints that a crash had interrupted, and that were not there.
pub const CHECKPOINTS_NOT_MADE: &str = "checkpoints that crashes had interrupted";
/// Count of checkpoints that were open and written to beside the database when it crashed.
pub const BESIDE_RECOVERED: &str = "checkpoints that crashed beside their database";
/// Count of mutations at which states were tried.
pub const POINTS: &str = "crash points";
/// Crashes within recoveries within recoveries.
const DEPTH: u32 = 3;
/// Numbers of option sets that runs choose from.
const SETUP_COUNT: u64 = 48;

/// A run and how it is struck.
#[derive(Clone, Debug)]
pub struct CrashRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: usize,
    /// Only every so many points are tried.
    pub stride: u64,
    /// Only this point, if given.
    pub only_point: Option<u64>,
    /// Only at calls of this kind, if given.
    pub only_operation: Option<Operation>,
    /// Which states are tried at each point.
    pub states: Range<u64>,
    /// Which operations it has.
    pub diet: Diet,
    /// The structure of all keyspaces, if it is to be one.
    pub structure: Option<Structure>,
    /// Faults of the storage while the run goes on: planted mistakes.
    pub planted: FaultPlan,
    /// What becomes of it when something is found.
    pub when_found: WhenFound,
    /// The numbers of the operations that are left, if it was cut down.
    pub kept: Option<Vec<usize>>,
}

/// What becomes of a run in which something is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFound {
    /// It goes on to its end, and is cut down behind that: to fewer operations of which the same
    /// kind of thing comes.
    CutDown,
    /// It goes on to its end.
    GoOn,
    /// Nothing more is tried.
    End,
}

impl CrashRun {
    /// The run of a seed, struck by `states` states at every point; one in five runs is long, so
    /// that intervals split and segments die, and is struck at every fifth point.
    #[must_use]
    pub fn of_seed(seed: u64, states: u64) -> CrashRun {
        let is_long = seed.is_multiple_of(5);
        CrashRun {
            seed,
            op_count: if is_long { 400 } else { 40 + (seed % 41) as usize },
            stride: if is_long { 5 } else { 1 },
            only_point: None,
            only_operation: None,
            states: 0..states,
            diet: Diet::Everything,
            structure: None,
            planted: FaultPlan::new(),
            when_found: WhenFound::CutDown,
            kept: None,
        }
    }

    /// How the database is opened.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let setup = Setup::numbered(self.seed % SETUP_COUNT);
        self.diet.setup(match self.structure {
            Some(structure) => setup.all_of(structure),
            None => setup,
        })
    }

    /// What the program is to be called with for this run, but for the number of states.
    #[must_use]
    pub fn command(&self) -> String {
        let structure = self.structure.map(Structure::to_u8);
        let structure = structure.map(|number| format!(" --structure {number}"));
        let (diet, keep) = (self.diet.argument(), keep_argument(self.kept.as_deref()));
        format!("crash --run {:#x}{}{diet}{keep}", self.seed, structure.unwrap_or_default())
    }

    /// What it does.
    #[must_use]
    pub fn ops(&self) -> Vec<Op> {
        pick(&self.drawn(), self.kept.as_deref())
    }

    /// What it would do if nothing were left out.
    fn drawn(&self) -> Vec<Op> {
        let mut random = Random::new(seed_of(&[self.seed, 1]));
        let key_count = random.pick(&[12, 60, 160]);
        let sizes = random.pick(&[ValueSizes::Mixed, ValueSizes::Mixed, ValueSizes::Small]);
        let mix = Mix { key_count, sizes, purpose: Purpose::Writing };
        self.diet.draw(&mut random, mix, self.op_count)
    }

    /// Runs it, and notes what is tried and what is wrong.
    pub fn run(&self, ledger: &Arc<Ledger>) {
        let storage = SimStorage::new(self.seed);
        storage.arm(self.planted.clone());
        let setup = Arc::new(self.setup()); // One: it watches the nonces of all openings.
        let striker = Arc::new(Striker {
            run: self.clone(),
            storage: storage.clone(),
            timeline: SharedTimeline::default(),
            examiner: Examiner {
                setup: Arc::clone(&setup),
                ledger: Arc::clone(ledger),
                known: Arc::default(),
            },
            first: Mutex::new(None),
            point: AtomicU64::new(0),
            operation: AtomicUsize::new(0),
        });
        let watcher = Arc::clone(&striker);
        let hook = Arc::new(move |mutation: &Mutation<'_>| watcher.strike(mutation));
        let watched = WatchedStorage::new(storage.clone(), hook);
        let outcome = survive(|| self.drive(&setup, watched, &striker));
        if let Err(finding) = outcome.and_then(|()| expect_no_misuse(&storage)) {
            let finding = finding.at("the run itself");
            ledger.note(finding.clone(), || self.command());
            striker.note_first(None, finding);
        }
        ledger.count_many(HOLES, storage.count_of(Operation::PunchHole));
        ledger.count("runs");
        let first = striker.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(struck) = first.filter(|_| self.when_found == WhenFound::CutDown) {
            self.cut_down(struck, ledger);
        }
    }

    fn drive(&self, setup: &Setup, storage: WatchedStorage, striker: &Striker) -> Verdict {
        let (timeline, ledger) = (Arc::clone(&striker.timeline), &striker.examiner.ledger);
        let session = Session::open(setup, Arc::new(storage), 0, timeline);
        let mut session =
            session.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
        for (number, op) in self.ops().iter().enumerate() {
            striker.operation.store(number, Ordering::Relaxed);
            let done = session.run(op);
            done.map_err(|trouble| trouble.into_finding().at(&format!("operation {number}")))?;
        }
        let stats = session.db.stats();
        ledger.count_many("commits", stats.commits);
        ledger.count_many(VALUE_BYTES, stats.value_bytes_written);
        ledger.count_many(VALUES_MOVED, stats.values_moved);
        ledger.count_many(VALUE_FILES_REMOVED, stats.value_files_removed);
        for keyspace in &stats.keyspaces {
            ledger.count_many("flushes", keyspace.flushes);
            ledger.count_many("intervals consolidated", keyspace.consolidations);
        }
        session.close().map_err(|error| Finding::new(Fault::Refused, format!("close: {error}")))
    }
}

/// Strikes a run at its mutations.
struct Striker {
    // Constant.
    run: CrashRun,
    storage: SimStorage,
    timeline: SharedTimeline,
    examiner: Examiner,
    // Guarded by itself.
    /// What was found first.
    first: Mutex<Option<Struck>>,
    // Atomic.
    point: AtomicU64,
    /// Which operation is under way: its place among those that there are.
    operation: AtomicUsize,
}

impl Striker {
    fn strike(&self, mutation: &Mutation<'_>) {
        let point = self.point.fetch_add(1, Ordering::Relaxed);
        let is_due = match self.run.only_point {
            Some(only) => point == only,
            None => (point + self.run.seed).is_multiple_of(self.run.stride),
        };
        let is_of_kind = self.run.only_operation.is_none_or(|only| mutation.operation == only);
        let ledger = &self.examiner.ledger;
        let is_over = self.run.when_found == WhenFound::End && ledger.finding_count() > 0;
        if !is_due || !is_of_kind || is_over {
            return;
        }
        ledger.count(POINTS);
        let timeline = Arc::new(look(&self.timeline).still());
        for index in self.run.states.clone() {
            let seed = seed_of(&[self.run.seed, point, index]);
            ledger.count(STATES);
            let mut what = String::new();
            let verdict = survive(|| {
                let state = states::numbered(&self.storage, Some(mutation), index, seed);
                what.clone_from(&state.what);
                let examiner = self.examiner.forked(seed);
                examiner.examine(&state, &timeline, seed, DEPTH)
            });
            if let Err(finding) = verdict {
                let place = format!("{what} before {:?} {:?}", mutation.operation, mutation.path);
                let finding = finding.at(&place);
                ledger.note(finding.clone(), || {
                    let run = self.run.command();
                    format!("{run} --point {point} --state {index}")
                });
                self.note_first(Some(index), finding);
            }
        }
    }

    /// Something was found, with the state of this number.
    fn note_first(&self, state: Option<u64>, finding: Finding) {
        let operation = self.operation.load(Ordering::Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(Struck { finding, operation, state });
    }
}
