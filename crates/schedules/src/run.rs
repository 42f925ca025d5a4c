//! Running schedules, and saying what they have found.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use lithedb::base::sync::{Mistake, plant, point, thread, time};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::arguments::Arguments;
use crate::scenarios::{PATIENT, SCENARIOS, Scenario};
use crate::scheduler::Seeded;

/// Of a modelled thread: the engine goes deep.
const STACK_SIZE: usize = 1 << 20;
/// A schedule that takes more steps goes in circles.
const STEPS_MAX: usize = 4_000_000;
/// So many schedules are reported together.
const ROUND: u64 = 1000;

thread_local! {
    /// Of the schedule that this thread is at.
    pub static SEED: Cell<u64> = const { Cell::new(0) };
    /// What the first panic of this schedule said: others follow from it.
    static CAUSE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Steps of all schedules.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Runs what was asked for; whether nothing was found.
pub fn all(arguments: &Arguments) -> bool {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        eprintln!("in the schedule of seed {}:", SEED.get()); // Should it not end well.
        note_cause(panic);
        told(panic);
    }));
    let scenarios = chosen(arguments);
    let count_each = arguments.count.div_ceil(scenarios.len().max(1) as u64);
    let mut finding_count = 0;
    let mut done = 0;
    while done < count_each {
        let round = ROUND.min(count_each - done);
        for scenario in &scenarios {
            let mut seed = arguments.seed + done;
            let end = seed + round;
            while seed < end {
                let Some((at, what)) = run(scenario, None, (seed, end - seed)) else { break };
                finding_count += 1;
                println!("FOUND --scenario {} --seed {at} --count 1: {what}", scenario.name);
                seed = at + 1;
            }
        }
        done += round;
        let steps = STEPS.load(Ordering::Relaxed);
        let total = done * scenarios.len() as u64;
        println!("{total} schedules, {steps} steps, {finding_count} findings");
    }
    !scenarios.is_empty() && finding_count == 0
}

/// Builds each mistake in; whether every one was found.
pub fn mistakes(arguments: &Arguments) -> bool {
    std::panic::set_hook(Box::new(note_cause));
    let mut all_found = true;
    for (mistake, name) in [
        (Mistake::PublishBeforeInsert, "snapshots"),
        (Mistake::StateBeforeStamp, "snapshots"),
        (Mistake::ReleaseLogEarly, "crashes"),
        (Mistake::CallsSeenLate, "seals"),
        (Mistake::PremiseCheckedOnce, "transactions"),
        (Mistake::ConflictUnseen, "transactions"),
        (Mistake::TrailBeginsBesideIngest, "trails"),
    ] {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
        let Some(scenario) = scenario else { return false };
        let found = run(scenario, Some(mistake), (arguments.seed, arguments.count));
        match found {
            Some((seed, what)) => {
                let schedules = seed - arguments.seed + 1;
                let what = what.lines().next().unwrap_or_default();
                println!("{mistake:?} ({name}): found by schedule {schedules}: {what}");
            }
            None => {
                all_found = false;
                println!("{mistake:?} ({name}): NOT FOUND by {} schedules", arguments.count);
            }
        }
    }
    all_found
}

fn chosen(arguments: &Arguments) -> Vec<&'static Scenario> {
    let wanted = |scenario: &&Scenario| match &arguments.scenario {
        Some(name) => name == scenario.name,
        None => true,
    };
    SCENARIOS.iter().filter(wanted).collect()
}

/// Runs so many schedules of a scenario; the seed of the first that has found something, and what.
///
/// They have a thread to themselves. A schedule that finds something is broken off in the midst of
/// panics, and its thread counts as panicking from then on, so that nothing more can be run on it;
/// nor can it end, since what it has would be dropped.
fn run(
    scenario: &'static Scenario,
    mistake: Option<Mistake>,
    (seed, count): (u64, u64),
) -> Option<(u64, String)> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        plant(mistake);
        let found = run_here(scenario, seed, count);
        let is_to_stay = found.is_some();
        let _heard = tell.send(found);
        if is_to_stay {
            loop {
                std::thread::park();
            }
        }
    });
    told.recv().unwrap_or_else(|_| Some((seed, "the thread of these schedules is gone".to_owned())))
}

fn run_here(scenario: &'static Scenario, seed: u64, count: u64) -> Option<(u64, String)> {
    let mut config = Config::new();
    config.stack_size = STACK_SIZE;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let runner = Runner::new(Seeded::new(seed, count), config);
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(|| schedule(scenario))));
    let cause = CAUSE.take();
    ran.err().map(|_| (SEED.get(), cause.unwrap_or_default()))
}

fn note_cause(panic: &PanicHookInfo<'_>) {
    let text = panic.payload_as_str().unwrap_or("a panic");
    let text = match panic.location() {
        Some(place) => format!("{place}: {text}"),
        None => text.to_owned(),
    };
    CAUSE.with_borrow_mut(|cause| {
        cause.get_or_insert(text);
    });
}

/// One schedule.
fn schedule(scenario: &Scenario) {
    CAUSE.set(None);
    time::restart(&[PATIENT, scenario.patient].concat());
    let is_over = Arc::new(AtomicBool::new(false));
    let clock = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                time::move_on();
                point();
            }
        })
    };
    (scenario.run)(SEED.get());
    STEPS.fetch_add(shuttle::current::context_switches() as u64, Ordering::Relaxed);
    is_over.store(true, Ordering::Relaxed);
    assert!(clock.join().is_ok(), "the clock");
}
