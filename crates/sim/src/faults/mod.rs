//! Faults of the storage: calls that fail, once or from then on, at every place of a run; disks
//! that are full.
//!
//! What must hold whatever fails
//! - F1  Every acknowledged commit is there after the next opening; none that was taken back is.
//! - F2  After a commit whose fate is unknown, none is acknowledged until the next opening.
//! - F3  What can be read is right. Reads that need no failing call go on.
//! - F4  Somebody is told: of a failed sync at the latest by `close`.
//! - F5  With the fault gone, the database opens.
//! - F6  A checkpoint that was made is whole, one that failed is not there, or is whole.
//! - F7  That something cannot be opened or read leaves the database writable.
//!
//! | file | what |
//! |---|---|
//! | `case` | one fault in one run |
//! | `full` | disks that fill up and empty again |

mod case;
pub mod full;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lithedb::storage::{FaultEffect, Operation, SimStorage};

use crate::diet::Diet;
use crate::ledger::Ledger;
use crate::ops::{Mix, Op, Purpose};
use crate::parallel::{run_cases, survive};
use crate::random::{Random, seed_of};
use crate::sample::ValueSizes;
use crate::session::{Session, SharedTimeline};
use crate::setup::Setup;
use crate::watched::{Mutation, WatchedStorage};

pub use case::{FaultCase, Frequency};

/// What fails with which error. `Short` is no error, and must go unnoticed.
pub const EFFECTS: [FaultEffect; 9] = [
    FaultEffect::OsError(5),
    FaultEffect::OsError(28),
    FaultEffect::Error(std::io::ErrorKind::Interrupted),
    FaultEffect::Short,
    FaultEffect::ErrorAfterwards(std::io::ErrorKind::Other),
    FaultEffect::Error(std::io::ErrorKind::PermissionDenied),
    FaultEffect::Error(std::io::ErrorKind::WouldBlock),
    FaultEffect::OsError(TOO_MANY_FILES),
    FaultEffect::OsError(READ_ONLY_FILE_SYSTEM),
];

const TOO_MANY_FILES: i32 = 24;
const READ_ONLY_FILE_SYSTEM: i32 = 30;

/// A run with a fault at each of its calls.
#[derive(Clone, Debug)]
pub struct FaultRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: usize,
    /// Only every so many calls are struck.
    pub stride: u64,
    /// Which operations it has.
    pub diet: Diet,
}

impl FaultRun {
    /// The run of a seed, with so many operations of every kind, struck at each call.
    #[must_use]
    pub fn new(seed: u64, op_count: usize) -> FaultRun {
        FaultRun { seed, op_count, stride: 1, diet: Diet::Everything }
    }

    /// How the database is opened.
    #[must_use]
    pub fn setup(&self) -> Setup {
        self.diet.setup(Setup::numbered(self.seed % 16))
    }

    /// What it does.
    #[must_use]
    pub fn ops(&self) -> Vec<Op> {
        let mut random = Random::new(seed_of(&[self.seed, 3]));
        let mix = Mix { key_count: 40, sizes: ValueSizes::Mixed, purpose: Purpose::Writing };
        self.diet.draw(&mut random, mix, self.op_count)
    }

    /// Every case of the run, in order.
    #[must_use]
    pub fn cases(&self) -> Vec<FaultCase> {
        let (storage, paths) = self.run_calmly();
        let mut cases = Vec::new();
        for operation in Operation::ALL {
            let first = self.seed % self.stride;
            let paths = paths.get(&operation);
            for skip in (first..storage.count_of(operation)).step_by(self.stride as usize) {
                let target = paths.and_then(|paths| paths.get(skip as usize));
                let target = target.cloned().unwrap_or_default();
                for effect in EFFECTS {
                    for frequency in [Frequency::Once, Frequency::Lasting] {
                        let target = target.clone();
                        cases.push(FaultCase {
                            seed: self.seed,
                            operation,
                            skip,
                            target,
                            effect,
                            frequency,
                        });
                    }
                }
            }
        }
        cases
    }

    /// Runs every case, and notes what is wrong.
    pub fn run(&self, threads: usize, ledger: &Arc<Ledger>) {
        let cases = self.cases();
        run_cases(threads, cases.len() as u64, |number| {
            self.run_case(&cases[number as usize], number, ledger);
            true
        });
    }

    /// Runs one case, and notes what is wrong.
    pub fn run_case(&self, case: &FaultCase, number: u64, ledger: &Ledger) {
        ledger.count("faults");
        let verdict = survive(|| case.run(&self.setup(), &self.ops()));
        match verdict {
            Ok(outcome) => ledger.count(outcome.name()),
            Err(finding) => ledger.note(finding.at(&format!("{case:?}")), || {
                format!("{} --case {number}", self.command())
            }),
        }
    }

    /// What the program is to be called with for this run.
    #[must_use]
    pub fn command(&self) -> String {
        let (seed, op_count, stride) = (self.seed, self.op_count, self.stride);
        let (diet, ops) = (self.diet.argument(), format!("--operations {op_count}"));
        format!("errors --run {seed:#x} {ops} --stride {stride}{diet}")
    }

    /// The storage after a run in which nothing fails, which has counted the calls, and the paths
    /// of those that change the disk.
    fn run_calmly(&self) -> (SimStorage, Targets) {
        let storage = SimStorage::new(self.seed);
        let paths = Arc::new(Mutex::new(Noted::default()));
        let noted = Arc::clone(&paths);
        let hook = Arc::new(move |mutation: &Mutation<'_>| {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.add(mutation);
        });
        let watched = WatchedStorage::new(storage.clone(), hook);
        let session = Session::open(&self.setup(), Arc::new(watched), 0, SharedTimeline::default());
        if let Ok(mut session) = session {
            let _refused = self.ops().iter().try_for_each(|op| session.run(op));
        }
        let paths = std::mem::take(&mut *paths.lock().unwrap_or_else(PoisonError::into_inner));
        (storage, paths.targets)
    }
}

/// What calls are about, by their kind.
type Targets = BTreeMap<Operation, Vec<Target>>;

/// What a call that changes the disk is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The file or directory.
    pub path: PathBuf,
    /// Whether it only makes a file ready that holds nothing yet, or nothing any more: if that
    /// fails, another one will do, and nobody needs to know.
    pub is_preparation: bool,
}

/// Notes mutations in their order.
#[derive(Default)]
struct Noted {
    targets: Targets,
    last: Option<(Operation, PathBuf)>,
}

impl Noted {
    fn add(&mut self, mutation: &Mutation<'_>) {
        let path = mutation.path.to_owned();
        let follows = |kind| self.last.as_ref().is_some_and(|last| *last == (kind, path.clone()));
        // A new log file is synced when it has its size; an old one before it is renamed.
        // The directory of the log is synced when a file in it is ready.
        let is_preparation = match mutation.operation {
            Operation::Sync => follows(Operation::Preallocate),
            Operation::SyncDir => path.ends_with("wal"),
            _ => false,
        };
        // An open file keeps the path that it was opened by, so that the names differ.
        let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "wal");
        if mutation.operation == Operation::Rename
            && is_log(&path)
            && self.last.as_ref().is_some_and(|(last, of)| *last == Operation::Sync && is_log(of))
            && let Some(synced) = self.targets.entry(Operation::Sync).or_default().last_mut()
        {
            synced.is_preparation = true;
        }
        self.last = Some((mutation.operation, path.clone()));
        let targets = self.targets.entry(mutation.operation).or_default();
        targets.push(Target { path, is_preparation });
    }
}
