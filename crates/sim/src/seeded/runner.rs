//! The runners that look for seeded bugs: the campaigns of this program, in small pieces.

use std::sync::Arc;

use lithedb::Structure;
use lithedb::storage::Operation;

use crate::crash::{CrashRun, WhenFound};
use crate::damage::{self, Ending, Fixture, Thoroughness};
use crate::diet::Diet;
use crate::faults::{FaultRun, full};
use crate::finding::Fault;
use crate::isolation::IsolationRun;
use crate::ledger::{Ledger, Story};
use crate::model::ModelRun;
use crate::random::seed_of;
use crate::twins::TwinRun;

/// States of a crash run at each point, and at which of its points.
const CRASH_STATES: u64 = 6;
const CRASH_STRIDE: u64 = 5;
/// Operations of a run against the model; from the try of this number on, of a longer one.
const MODEL_OPERATIONS: usize = 800;
const LONG_FROM: u64 = 8;
const LONG_MODEL_OPERATIONS: usize = 3000;
/// Operations on twins.
const TWIN_OPERATIONS: u64 = 30_000;
/// Transactions of a run.
const TRANSACTIONS: u64 = 6000;
/// Operations of a fixture that is damaged, and of a run in which calls fail: those of the
/// campaigns, so that the commands are theirs.
const FIXTURE_OPERATIONS: usize = 120;
const FAULT_OPERATIONS: usize = 40;
/// Every so many bytes have their bits flipped.
const FLIP_STRIDE: u64 = 7;
/// Cases of a try, at most.
const CASES_MAX: usize = 3000;

/// A campaign, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// `crash`.
    Crash(Diet, Option<Structure>),
    /// `model`.
    Model(Diet, Option<Structure>),
    /// `twins`.
    Twins,
    /// `isolation`.
    Isolation,
    /// `flips`, in files whose paths have this in them.
    Flips(&'static str),
    /// `errors`, of calls of this kind that are about files whose paths have this in them.
    Errors(Operation, &'static str),
    /// `full`.
    Full,
}

impl Runner {
    /// What is tried when the runner that was expected to has not found it.
    pub const OTHERS: [Runner; 12] = [
        Runner::Model(Diet::Everything, None),
        Runner::Crash(Diet::Everything, None),
        Runner::Model(Diet::Everything, Some(Structure::Flex)),
        Runner::Model(Diet::Everything, Some(Structure::Lsm)),
        Runner::Model(Diet::Everything, Some(Structure::History)),
        Runner::Twins,
        Runner::Isolation,
        Runner::Flips(""),
        Runner::Errors(Operation::Sync, ""),
        Runner::Errors(Operation::Write, ""),
        Runner::Errors(Operation::Read, ""),
        Runner::Full,
    ];

    /// The command of the campaign.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Runner::Crash(..) => "crash",
            Runner::Model(..) => "model",
            Runner::Twins => "twins",
            Runner::Isolation => "isolation",
            Runner::Flips(_) => "flips",
            Runner::Errors(..) => "errors",
            Runner::Full => "full",
        }
    }

    /// So many tries it is worth.
    #[must_use]
    pub fn try_count(self) -> u64 {
        match self {
            // One in seventy of these runs comes to what it is expected to find; they are short.
            Runner::Model(Diet::Pasts, _) => 300,
            // Pasts take long to become such that a version more or less is seen.
            Runner::Model(_, Some(Structure::History)) => 60,
            Runner::Crash(..) | Runner::Model(..) => 20,
            Runner::Twins | Runner::Isolation | Runner::Flips(_) => 10,
            Runner::Errors(..) => 4,
            Runner::Full => 40,
        }
    }

    /// The first thing that a try finds.
    #[must_use]
    pub fn run(self, seed: u64, number: u64) -> Option<Story> {
        let ledger = Arc::new(Ledger::new());
        let seed = seed_of(&[seed, number]);
        match self {
            Runner::Crash(diet, structure) => {
                let stride = if number < LONG_FROM { CRASH_STRIDE } else { 1 };
                let when_found = WhenFound::End;
                let run = CrashRun::of_seed(seed, CRASH_STATES);
                CrashRun { stride, diet, structure, when_found, ..run }.run(&ledger);
            }
            Runner::Model(diet, structure) => {
                let is_short = number < LONG_FROM || diet == Diet::Pasts;
                let op_count = if is_short { MODEL_OPERATIONS } else { LONG_MODEL_OPERATIONS };
                let run = ModelRun { diet, structure, ..ModelRun::new(seed, op_count) };
                // Not `run`, which cuts what it finds down, and takes its time for that.
                if let Err(finding) = run.run_once(&run.setup(), &ledger) {
                    ledger.note(finding, || run.command());
                }
            }
            Runner::Twins => TwinRun { seed, op_count: TWIN_OPERATIONS }.run(&ledger),
            Runner::Isolation => {
                IsolationRun { seed, transaction_count: TRANSACTIONS }.run(&ledger);
            }
            Runner::Flips(part) => flip(seed % 64, part, &ledger),
            Runner::Errors(operation, part) => fail(seed, (operation, part), &ledger),
            // Of the three reserves that runs have in turn, the ample one in every other try.
            Runner::Full => {
                let seed = if number.is_multiple_of(2) { seed / 3 * 3 + 2 } else { seed };
                full::run(seed, number * 4096, &ledger);
            }
        }
        ledger.stories().into_iter().next()
    }
}

/// Some of these, evenly, if there are too many.
fn some<T>(all: Vec<T>) -> impl Iterator<Item = T> {
    let step = all.len().div_ceil(CASES_MAX).max(1);
    all.into_iter().step_by(step)
}

fn flip(seed: u64, part: &str, ledger: &Arc<Ledger>) {
    for (number, ending) in [Ending::Closed, Ending::Killed].into_iter().enumerate() {
        let stride = FLIP_STRIDE;
        let sizes = format!("--operations {FIXTURE_OPERATIONS} --stride {stride}");
        let repeat = format!("flips --seed {seed} {sizes} --ending {number}");
        let fixture = match Fixture::build(seed, ending, FIXTURE_OPERATIONS) {
            Ok(fixture) => fixture,
            Err(finding) => return ledger.note(finding.at("the fixture"), || repeat),
        };
        let injuries = damage::flips(&fixture, stride, Thoroughness::AllBits);
        let in_files = injuries.iter().enumerate();
        let in_files =
            in_files.filter(|(_, injury)| injury.path().to_string_lossy().contains(part));
        for (case, injury) in some(in_files.collect()) {
            damage::run_one(&fixture, injury, ledger, &format!("{repeat} --case {case}"));
            if ledger.finding_count() > 0 {
                return;
            }
        }
    }
}

fn fail(seed: u64, (operation, part): (Operation, &str), ledger: &Arc<Ledger>) {
    let run = FaultRun::new(seed, FAULT_OPERATIONS);
    let cases = run.cases();
    let of_kind = cases.iter().enumerate().filter(|(_, case)| {
        case.operation == operation && case.target.path.to_string_lossy().contains(part)
    });
    for (number, case) in some(of_kind.collect()) {
        run.run_case(case, number as u64, ledger);
        if ledger.finding_count() > 0 {
            return;
        }
    }
}

/// What was found, in a few words.
#[must_use]
pub fn word_of(fault: Fault) -> &'static str {
    match fault {
        Fault::Lost => "lost",
        Fault::Hole => "a hole",
        Fault::Wrong => "wrong data",
        Fault::FailedOpen => "does not open or read",
        Fault::CheckFailed => "its own check",
        Fault::Panic => "a panic",
        Fault::Silent => "silent damage",
        Fault::BadError => "an error that says too little",
        Fault::Swallowed => "nobody was told",
        Fault::Refused => "refused without reason",
        Fault::AcknowledgedAfterFailure => "acknowledged behind a failure",
        Fault::Excess => "too long or too large",
        Fault::Misuse => "use of the disk",
        Fault::NotReplayed => "not the same again",
    }
}
