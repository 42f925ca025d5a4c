//! Flexible spaces under the simulation. The long version: `lithe-sim space`.

use std::sync::Arc;

use lithe_sim::ledger::Ledger;
use lithe_sim::parallel::run_cases;
use lithe_sim::space::canary::SPACE_CANARIES;
use lithe_sim::space::crash::{STATES, STATES_IN_RECOVERY};
use lithe_sim::space::damage::SpaceFixture;
use lithe_sim::space::faults::{SpaceFaultRun, fill_up};
use lithe_sim::space::{SpaceCrashRun, SpaceModelRun};

use crate::THREADS;

#[test]
fn a_space_is_what_a_vector_of_bytes_and_tags_is() {
    let ledger = Ledger::new();
    run_cases(THREADS, 12, |seed| {
        SpaceModelRun { seed, op_count: 400 }.run(&ledger);
        true
    });
    ledger.assert_clean();
}

#[test]
fn a_crash_anywhere_leaves_the_last_sync_of_a_space_or_the_one_under_way() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 10, |seed| {
        SpaceCrashRun::of_seed(seed, 5).run(&ledger);
        true
    });
    ledger.assert_clean();
    assert!(ledger.counted(STATES) > 2000 && ledger.counted(STATES_IN_RECOVERY) > 300, "{ledger}");
}

#[test]
fn forgotten_syncs_of_a_space_are_found() {
    for canary in SPACE_CANARIES {
        assert!(canary.runs_until_found(1, 12).is_some(), "not found: {canary:?}");
    }
}

#[test]
fn rot_in_a_space_is_reported_or_harmless() {
    let ledger = Ledger::new();
    SpaceFixture::build(1, 24).unwrap().run(53, THREADS, &ledger);
    ledger.assert_clean();
    assert!(ledger.counted("reported") > 100, "{ledger}");
}

#[test]
fn a_failing_call_leaves_a_space_as_it_was_or_says_so() {
    let ledger = Ledger::new();
    for seed in 0..3 {
        SpaceFaultRun { seed, op_count: 30, stride: 5 }.run(THREADS, &ledger);
    }
    run_cases(THREADS, 40, |number| {
        fill_up(number / 10, number % 10 * 16384, &ledger);
        true
    });
    ledger.assert_clean();
    assert!(ledger.counted("operations refused for want of room") > 50, "{ledger}");
}
