//! Replays: the same seed does the same, call by call of the disk.
//!
//! Whatever a campaign finds is worth as much as it can be shown again, and that takes that nothing
//! but the seed decides: no clock of the system, no address, no order of a hash map, no thread. So
//! each run is done twice, on two threads, and what came of it compared after every opening: a hash
//! over all calls of the disk and what they answered, a hash of the disk, what was read, and each
//! error. Runs are lives with crashes, in recoveries too, and with calls that fail.
//!
//! All runs of a command come to one number, so that two processes, or machines, can be compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lithedb::Structure;
use lithedb::base::hash_key;
use lithedb::storage::{FaultPlan, FaultRule, Operation, SimStorage};

use crate::crash::states;
use crate::diet::Diet;
use crate::faults::EFFECTS;
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::ops::{Mix, Op, Purpose};
use crate::parallel::survive;
use crate::random::{Random, mix, seed_of};
use crate::readback::{Detail, read_all};
use crate::sample::ValueSizes;
use crate::session::{Session, SharedTimeline, Trouble};
use crate::setup::Setup;

/// Count of seeds that were run twice, in the ledger.
pub const REPLAYED: &str = "seeds replayed";
/// Count of calls of the disk in them, each time.
pub const CALLS: &str = "calls of the disk";
const CRASHES: &str = "crashes";
const FAULTS: &str = "calls that failed";
const REFUSALS: &str = "errors";
/// Numbers of option sets that runs choose from.
const SETUP_COUNT: u64 = 64;
/// Openings of the database in one run.
const OPENING_COUNT: u64 = 3;
/// Operations of an opening at most.
const OPS_MAX: u64 = 48;
/// Within this many mutations of an opening the crash comes, if it does.
const MUTATIONS_MAX: u64 = 900;
/// Within this many calls of a kind one fails, if one does.
const CALLS_MAX: u64 = 60;
/// One opening of so many has a call that fails.
const FAULTY_ONE_IN: u64 = 3;

/// One run.
#[derive(Clone, Debug)]
pub struct ReplayRun {
    /// Decides everything.
    pub seed: u64,
}

/// What came of an opening of the database, or of a whole life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stage {
    /// A hash over all calls, since the disk was found, and their outcomes.
    trace: u64,
    calls: u64,
    /// A hash of the disk.
    disk: u64,
    /// What was read when it was opened and at the end: as texts, so that both can be shown.
    read: Vec<String>,
    /// Each error.
    errors: Vec<String>,
    crashed: bool,
    faults: u64,
}

impl ReplayRun {
    /// What the program is to be called with for it.
    #[must_use]
    pub fn command(&self) -> String {
        format!("replay --run {:#x}", self.seed)
    }

    /// Runs it twice. The number that it comes to, if both times the same.
    pub fn run(&self, ledger: &Arc<Ledger>) -> u64 {
        let outcome = survive(|| {
            let lives = [self.live_elsewhere()?, self.live_elsewhere()?];
            expect_same(&lives)?;
            Ok(lives)
        });
        ledger.count(REPLAYED);
        match outcome {
            Err(finding) => {
                ledger.note(finding, || self.command());
                0
            }
            Ok([life, _]) => {
                for stage in &life {
                    ledger.count_many(CALLS, stage.calls);
                    ledger.count_many(CRASHES, stage.crashed.into());
                    ledger.count_many(FAULTS, stage.faults);
                    ledger.count_many(REFUSALS, stage.errors.len() as u64);
                }
                life.iter().fold(self.seed, |sum, stage| mix(sum ^ stage.number()))
            }
        }
    }

    /// Lives on a thread of its own: none of what threads have for themselves is left from before.
    fn live_elsewhere(&self) -> Verdict<Vec<Stage>> {
        std::thread::scope(|scope| {
            let life = scope.spawn(|| survive(|| self.live()));
            life.join().unwrap_or_else(|_| Err(Finding::new(Fault::Panic, "a life's thread")))
        })
    }

    fn setup(&self, diet: Diet, random: &mut Random) -> Setup {
        let setup = diet.setup(Setup::numbered(random.below(SETUP_COUNT)));
        // Half of the time some of each.
        match Structure::from_u8(random.below(6) as u8) {
            Some(structure) => setup.all_of(structure),
            None => setup,
        }
    }

    /// All openings, each on what the one before has left.
    fn live(&self) -> Verdict<Vec<Stage>> {
        let mut random = Random::new(seed_of(&[self.seed, 0x4E9]));
        let diet = random.pick(&Diet::ALL);
        let setup = self.setup(diet, &mut random);
        let mut storage = SimStorage::new(self.seed);
        let mut life = Vec::new();
        for nth in 0..OPENING_COUNT {
            let key_count = random.pick(&[12, 60, 160]);
            let mix = Mix { key_count, sizes: ValueSizes::Mixed, purpose: Purpose::Writing };
            let count = 1 + random.index(OPS_MAX as usize);
            let ops = diet.draw(&mut random, mix, count);
            if random.below(FAULTY_ONE_IN) == 0 {
                storage.arm(draw_fault(&mut random));
            }
            storage.crash_at(storage.mutation_count() + random.below(MUTATIONS_MAX));
            let mut stage = Stage::default();
            open_and_run(&setup, &storage, (nth, &ops), &mut stage)?;
            stage.trace = storage.trace_hash();
            stage.calls = storage.operation_count();
            stage.disk = storage.fingerprint();
            stage.crashed = storage.is_crashed();
            stage.faults = storage.fault_count();
            life.push(stage);
            let (number, seed) = (random.below(1 << 20), random.draw());
            storage = states::numbered(&storage, None, number, seed).storage;
        }
        Ok(life)
    }
}

/// Opens, does what is to be done until the machine crashes, and closes if it does not. What was
/// read, and each error, goes to `stage`.
fn open_and_run(
    setup: &Setup,
    storage: &SimStorage,
    (nth, ops): (u64, &[Op]),
    stage: &mut Stage,
) -> Verdict {
    let opened = Session::open(setup, Arc::new(storage.clone()), nth, SharedTimeline::default());
    let mut session = match opened {
        Ok(session) => session,
        Err(error) => {
            stage.errors.push(error.to_string());
            return Ok(());
        }
    };
    read_into(&session, stage);
    for op in ops {
        match session.run(op) {
            Ok(()) => {}
            Err(Trouble::Refused(error)) => stage.errors.push(error.to_string()),
            Err(Trouble::Absurd(finding)) => return Err(finding),
        }
        if storage.is_crashed() {
            return Ok(());
        }
    }
    read_into(&session, stage);
    stage.errors.extend(session.close().err().map(|error| error.to_string()));
    Ok(())
}

fn read_into(session: &Session, stage: &mut Stage) {
    match read_all(&session.db, Detail::Digests) {
        Ok(found) => stage.read.push(format!("{found:?}")),
        Err(error) => stage.errors.push(error.to_string()),
    }
}

impl Stage {
    /// All of it.
    fn number(&self) -> u64 {
        let told = self.read.iter().chain(&self.errors).map(|text| hash_key(text.as_bytes()));
        let parts = [self.trace, self.calls, self.disk, self.crashed.into(), self.faults];
        parts.into_iter().chain(told).fold(0, |sum, part| mix(sum ^ part))
    }
}

/// One call, or several, that fail.
fn draw_fault(random: &mut Random) -> FaultPlan {
    let rule = FaultRule::new(random.pick(&EFFECTS)).on(&[random.pick(&Operation::ALL)]);
    let rule = rule.skip(random.below(CALLS_MAX));
    FaultPlan::new().rule(if random.chance(500) { rule } else { rule.times(3) })
}

/// Sees that both came to the same.
fn expect_same([one, other]: &[Vec<Stage>; 2]) -> Verdict {
    for (nth, (one, other)) in one.iter().zip(other).enumerate() {
        if one == other {
            continue;
        }
        let texts = |stage: &Stage| [&stage.read[..], &stage.errors].concat();
        let (of_one, of_other) = (texts(one), texts(other));
        let told = of_one.iter().zip(&of_other).find(|(one, other)| one != other);
        let what = told.map_or_else(
            || format!("{one:?} and {other:?}"),
            |(one, other)| format!("{one:?} and {other:?}"),
        );
        let what = format!("opening {nth} of two runs differs: {what}");
        return Err(Finding::new(Fault::NotReplayed, what));
    }
    Ok(())
}

/// The numbers of many runs in one, whatever order they come in.
#[derive(Debug, Default)]
pub struct Sum(AtomicU64);

impl Sum {
    /// One more.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// All of them.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_come_to_the_same_and_others_to_something_else() {
        let ledger = Arc::new(Ledger::new());
        let of_all = |range: std::ops::Range<u64>| -> Vec<u64> {
            range.map(|seed| ReplayRun { seed }.run(&ledger)).collect()
        };
        let (first, again, others) = (of_all(0..12), of_all(0..12), of_all(12..24));
        ledger.assert_clean();
        assert_eq!(first, again);
        assert!(first.iter().all(|number| !others.contains(number)));
        for what in [CALLS, CRASHES, FAULTS, REFUSALS] {
            assert!(ledger.counted(what) > 0, "no {what}");
        }
    }

    #[test]
    fn what_differs_is_found_wherever_it_is() {
        let run = ReplayRun { seed: 3 };
        let life = run.live().unwrap();
        assert_eq!(expect_same(&[life.clone(), life.clone()]), Ok(()));
        let mistakes: [fn(&mut Stage); 4] = [
            |stage| stage.trace ^= 1,
            |stage| stage.disk ^= 1,
            |stage| stage.errors.push("an error".to_owned()),
            |stage| stage.crashed = !stage.crashed,
        ];
        for mistake in mistakes {
            let mut other = life.clone();
            mistake(other.last_mut().unwrap());
            let finding = expect_same(&[life.clone(), other.clone()]).unwrap_err();
            assert_eq!(finding.fault, Fault::NotReplayed);
            assert!(finding.what.contains("opening 2 "), "{finding}");
            let numbers = [&life, &other].map(|life| life.last().unwrap().number());
            assert_ne!(numbers[0], numbers[1]);
        }
    }
}
