//! Runs of all kinds by seed, one after the other on several threads. Each has a ledger of its own,
//! of which the journal gets a line when the run is over, and one each minute until then.

use std::sync::Arc;
use std::time::Duration;

use lithedb::Structure;
use lithedb::base::{Clock as _, SystemClock};

use crate::crash::CrashRun;
use crate::damage::{DamageKind, DamageRun};
use crate::diet::Diet;
use crate::faults::{FaultRun, full};
use crate::finding::Verdict;
use crate::isolation::IsolationRun;
use crate::isolation::appends::AppendRun;
use crate::journal::{Entry, Journal};
use crate::ledger::Ledger;
use crate::model::ModelRun;
use crate::parallel::{run_cases, survive};
use crate::random::{Random, seed_of};
use crate::replay::ReplayRun;
use crate::space::damage::SpaceFixture;
use crate::space::faults::{SpaceFaultRun, fill_all};
use crate::space::{SpaceCrashRun, SpaceModelRun};
use crate::twins::TwinRun;

/// Count of runs, in the ledger.
pub const RUNS: &str = "runs of all kinds";
/// What a run is called with.
const PROGRAM: &str = "lithe-sim";

/// States at each point of a run that is struck by crashes.
const STATES_PER_POINT: u64 = 8;
/// Operations of a run against maps; of one that has some of them densely.
const MODEL_OPS: usize = 3000;
const MODEL_OPS_OF_DIET: usize = 1200;
const TWIN_OPS: u64 = 50_000;
const TRANSACTIONS: u64 = 3000;
/// Operations of a run whose calls fail, and which of these calls.
const FAULT_OPS: usize = 40;
const FAULT_STRIDE: u64 = 7;
/// Operations behind a database that is damaged, and at which of its bytes that is.
const DAMAGE_OPS: usize = 120;
const FLIPS_STRIDE: u64 = 499;
const TRUNCATIONS_STRIDE: u64 = 61;
const REPAIRS_STRIDE: u64 = 997;
/// The same of a flexible space.
const SPACE_MODEL_OPS: usize = 600;
const SPACE_DAMAGE_OPS: usize = 24;
const SPACE_FAULT_OPS: usize = 30;
const SPACE_FLIPS_STRIDE: u64 = 13;

/// A kind of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Power cuts and kills at every mutation.
    Crash,
    /// Random operations against maps.
    Model,
    /// The same operations on two structures.
    Twins,
    /// Transactions of several threads.
    Isolation,
    /// Lists that several threads append to.
    Appends,
    /// Calls that fail.
    Errors,
    /// Disks that fill up.
    Full,
    /// Files that are damaged.
    Damage(DamageKind),
    /// Seeds that are run twice.
    Replay,
    /// Crashes of a flexible space.
    SpaceCrash,
    /// A flexible space against a vector.
    SpaceModel,
    /// Rot in a flexible space.
    SpaceFlips,
    /// Calls that fail under a flexible space.
    SpaceErrors,
    /// Disks that fill up under a flexible space.
    SpaceFull,
}

/// In this order, again and again: what finds most comes most often.
const ROUND: [Runner; 25] = [
    Runner::Crash,
    Runner::Model,
    Runner::Twins,
    Runner::Crash,
    Runner::Isolation,
    Runner::Model,
    Runner::Crash,
    Runner::Errors,
    Runner::Damage(DamageKind::Flips),
    Runner::Crash,
    Runner::Model,
    Runner::Appends,
    Runner::Crash,
    Runner::Full,
    Runner::SpaceCrash,
    Runner::Crash,
    Runner::Damage(DamageKind::Truncations),
    Runner::SpaceModel,
    Runner::Damage(DamageKind::Sectors),
    Runner::SpaceErrors,
    Runner::Damage(DamageKind::Files),
    Runner::SpaceFlips,
    Runner::Damage(DamageKind::Repairs),
    Runner::SpaceFull,
    Runner::Replay,
];

impl Runner {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Runner::Crash => "crash",
            Runner::Model => "model",
            Runner::Twins => "twins",
            Runner::Isolation => "isolation",
            Runner::Appends => "appends",
            Runner::Errors => "errors",
            Runner::Full => "full",
            Runner::Damage(kind) => kind.name(),
            Runner::Replay => "replay",
            Runner::SpaceCrash => "space-crash",
            Runner::SpaceModel => "space-model",
            Runner::SpaceFlips => "space-flips",
            Runner::SpaceErrors => "space-errors",
            Runner::SpaceFull => "space-full",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn named(name: &str) -> Option<Runner> {
        ROUND.into_iter().find(|runner| runner.name() == name)
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Decides everything but how far it comes.
    pub seed: u64,
    /// So many runs at a time.
    pub threads: usize,
    /// No run is begun behind so many.
    pub run_count_max: Option<u64>,
    /// Nor is one later than this.
    pub time_max: Option<Duration>,
    /// Only runs of this kind, if given.
    pub only: Option<Runner>,
}

impl Campaign {
    /// Runs it. What runs find is told to the journal, and to `say`, when it is found; `total` has
    /// all of it at the end.
    pub fn run(&self, total: &Ledger, journal: &Arc<Journal>, say: fn(&str)) {
        let clock = SystemClock::new();
        let is_wanted = |runner: &Runner| self.only.is_none_or(|only| only == *runner);
        let runners: Vec<Runner> = ROUND.into_iter().filter(is_wanted).collect();
        run_cases(self.threads, self.run_count_max.unwrap_or(u64::MAX), |number| {
            let began = clock.monotonic();
            if self.time_max.is_some_and(|max| began >= max) {
                return false;
            }
            let runner = runners[(number % runners.len() as u64) as usize];
            let run = Run::draw(runner, seed_of(&[self.seed, number]));
            let command = run.command();
            let ledger = Arc::new(journal.ledger(PROGRAM, &command, say));
            let done = survive(|| -> Verdict {
                run.run(&ledger);
                Ok(())
            });
            if let Err(finding) = done {
                ledger.note(finding.at("the tool itself"), || command.clone());
            }
            let seconds = (clock.monotonic() - began).as_secs_f64();
            let line = format!("{PROGRAM} {command}: {}; {seconds:.1} s", ledger.line());
            journal.add(Entry::Ran, &line);
            total.take_in(&ledger);
            total.count(RUNS);
            true
        });
    }
}

/// One run.
enum Run {
    Crash(CrashRun),
    Model(ModelRun),
    Twins(TwinRun),
    Isolation(IsolationRun),
    Appends(AppendRun),
    Errors(FaultRun),
    Full { seed: u64 },
    Damage(DamageRun),
    Replay(ReplayRun),
    SpaceCrash(SpaceCrashRun),
    SpaceModel(SpaceModelRun),
    SpaceFlips { seed: u64 },
    SpaceErrors { seed: u64 },
    SpaceFull { seed: u64 },
}

impl Run {
    fn draw(runner: Runner, seed: u64) -> Run {
        let mut random = Random::new(seed_of(&[seed, 0xCA4]));
        let diet = random.pick(&Diet::ALL);
        // Half of the time some of each.
        let structure = Structure::from_u8(random.below(6) as u8);
        match runner {
            Runner::Crash => {
                let of_seed = CrashRun::of_seed(seed, STATES_PER_POINT);
                Run::Crash(CrashRun { structure, diet, ..of_seed })
            }
            Runner::Model => {
                let is_mixed = diet == Diet::Everything;
                let op_count = if is_mixed { MODEL_OPS } else { MODEL_OPS_OF_DIET };
                Run::Model(ModelRun { structure, diet, ..ModelRun::new(seed, op_count) })
            }
            Runner::Twins => Run::Twins(TwinRun { seed, op_count: TWIN_OPS }),
            Runner::Isolation => {
                Run::Isolation(IsolationRun { seed, transaction_count: TRANSACTIONS })
            }
            Runner::Appends => Run::Appends(AppendRun { seed, transaction_count: TRANSACTIONS }),
            Runner::Errors => {
                let all = FaultRun::new(seed, FAULT_OPS);
                Run::Errors(FaultRun { stride: FAULT_STRIDE, diet, ..all })
            }
            Runner::Full => Run::Full { seed },
            Runner::Damage(kind) => Run::Damage(DamageRun {
                kind,
                seed,
                op_count: DAMAGE_OPS,
                stride: match kind {
                    DamageKind::Flips => FLIPS_STRIDE,
                    DamageKind::Truncations => TRUNCATIONS_STRIDE,
                    DamageKind::Repairs => REPAIRS_STRIDE,
                    DamageKind::Sectors | DamageKind::Files => kind.usual_stride(),
                },
                is_encrypted: random.chance(250),
                structure,
                ending: None,
                case: None,
            }),
            Runner::Replay => Run::Replay(ReplayRun { seed }),
            Runner::SpaceCrash => Run::SpaceCrash(SpaceCrashRun::of_seed(seed, STATES_PER_POINT)),
            Runner::SpaceModel => {
                Run::SpaceModel(SpaceModelRun { seed, op_count: SPACE_MODEL_OPS })
            }
            Runner::SpaceFlips => Run::SpaceFlips { seed },
            Runner::SpaceErrors => Run::SpaceErrors { seed },
            Runner::SpaceFull => Run::SpaceFull { seed },
        }
    }

    /// What the program is to be called with for it.
    fn command(&self) -> String {
        match self {
            Run::Crash(run) => format!("{} --per-point {STATES_PER_POINT}", run.command()),
            Run::Model(run) => run.command(),
            Run::Twins(run) => run.command(),
            Run::Isolation(run) => run.command(),
            Run::Appends(run) => run.command(),
            Run::Errors(run) => run.command(),
            Run::Full { seed } => format!("full --run {seed:#x}"),
            Run::Damage(run) => run.command(),
            Run::Replay(run) => run.command(),
            Run::SpaceCrash(SpaceCrashRun { seed, per_point, .. }) => {
                format!("space --run {seed:#x} --per-point {per_point}")
            }
            Run::SpaceModel(SpaceModelRun { seed, op_count }) => {
                format!("space --model {seed:#x} --operations {op_count}")
            }
            Run::SpaceFlips { seed } => {
                format!("space --flips {seed:#x} --stride {SPACE_FLIPS_STRIDE}")
            }
            Run::SpaceErrors { seed } => format!("space --faults {seed:#x}"),
            Run::SpaceFull { seed } => format!("space --full {seed:#x}"),
        }
    }

    /// Runs it, on this thread as far as it has none of its own.
    fn run(&self, ledger: &Arc<Ledger>) {
        match self {
            Run::Crash(run) => run.run(ledger),
            Run::Model(run) => run.run(ledger),
            Run::Twins(run) => run.run(ledger),
            Run::Isolation(run) => run.run(ledger),
            Run::Appends(run) => run.run(ledger),
            Run::Errors(run) => run.run(1, ledger),
            Run::Full { seed } => full::run_all(*seed, 1, ledger),
            Run::Damage(run) => run.run(1, ledger),
            Run::Replay(run) => {
                run.run(ledger);
            }
            Run::SpaceCrash(run) => run.run(ledger),
            Run::SpaceModel(run) => run.run(ledger),
            Run::SpaceFlips { seed } => match SpaceFixture::build(*seed, SPACE_DAMAGE_OPS) {
                Ok(fixture) => fixture.run(SPACE_FLIPS_STRIDE, 1, ledger),
                Err(finding) => ledger.note(finding, || self.command()),
            },
            Run::SpaceErrors { seed } => {
                SpaceFaultRun { seed: *seed, op_count: SPACE_FAULT_OPS, stride: 1 }.run(1, ledger);
            }
            Run::SpaceFull { seed } => fill_all(*seed, ledger),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_and_a_command_with_its_seed() {
        for runner in ROUND {
            assert_eq!(Runner::named(runner.name()), Some(runner));
            let command = Run::draw(runner, 0xABCD).command();
            assert!(command.contains("0xabcd") || command.contains("43981"), "{command}");
            let first = command.split(' ').next().unwrap();
            assert!(runner.name().starts_with(first), "{command}");
        }
        assert_eq!(Runner::named("spaces"), None);
    }

    #[test]
    fn runs_are_as_many_as_are_wanted_and_each_has_a_line() {
        let name = format!("lithe-sim-campaign-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let journal = Arc::new(Journal::append_to(&path).unwrap());
        let (seed, threads, only) = (1, 2, Some(Runner::SpaceModel));
        let campaign = Campaign { seed, threads, run_count_max: Some(3), time_max: None, only };
        let total = Ledger::new();
        campaign.run(&total, &journal, |_| {});
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        journal.finish().unwrap();
        total.assert_clean();
        assert_eq!(total.counted(RUNS), 3);
        assert_eq!(total.counted("runs of a space against a vector"), 3);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for line in lines {
            assert!(line.contains(" ran lithe-sim space --model 0x"), "{line}");
            assert!(line.contains(" 1 runs of a space against a vector, "), "{line}");
            assert!(line.contains(" 0 findings; "), "{line}");
        }
        let late = Campaign { time_max: Some(Duration::ZERO), ..campaign };
        late.run(&total, &journal, |_| {});
        assert_eq!(total.counted(RUNS), 3);
    }
}
