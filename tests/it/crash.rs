//! Crashes at every kind of moment, judged by the prefix oracle. The long version:
//! `lithe-sim crash`.

use std::sync::Arc;

use lithe_sim::crash::canary::CANARIES;
use lithe_sim::crash::{
    BESIDE_RECOVERED, BUILT_ON, CHECKPOINTS_NOT_MADE, CHECKPOINTS_OPENED, CrashRun, Diet, STATES,
    STATES_AFTER_RECOVERY, STATES_IN_RECOVERY,
};
use lithe_sim::ledger::Ledger;
use lithe_sim::parallel::run_cases;
use lithedb::Structure;

use crate::THREADS;

#[test]
fn after_a_crash_anywhere_a_moment_that_had_to_survive_is_found() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 6, |seed| {
        let mut run = CrashRun::of_seed(seed, 4);
        run.stride = 53;
        run.run(&ledger);
        true
    });
    ledger.assert_clean();
    for (what, least) in [(STATES, 100), (STATES_IN_RECOVERY, 30), (STATES_AFTER_RECOVERY, 50)] {
        assert!(ledger.counted(what) > least, "{} {what}", ledger.counted(what));
    }
}

#[test]
fn after_a_crash_within_an_ingest_of_tables_a_moment_that_had_to_survive_is_found() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 8, |seed| {
        let mut run = CrashRun::of_seed(seed, 3);
        (run.diet, run.op_count, run.stride) = (Diet::Tables, 8, 2);
        run.structure = Some(if seed % 4 == 0 { Structure::Flex } else { Structure::Lsm });
        run.run(&ledger);
        true
    });
    ledger.assert_clean();
    assert!(ledger.counted(STATES) > 500, "{}", ledger.counted(STATES));
}

/// Checkpoints that were made are there and show their moment, those that were interrupted are not
/// there or do the same; and the database is as it must be beside them, also beside one that is
/// open, written to and crashes with it.
#[test]
fn after_a_crash_within_or_behind_checkpoints_both_are_what_they_must_be() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 12, |seed| {
        let mut run = CrashRun::of_seed(seed, 2);
        (run.diet, run.op_count, run.stride) = (Diet::Checkpoints, 48, 31);
        run.run(&ledger);
        true
    });
    ledger.assert_clean();
    let least = [(CHECKPOINTS_OPENED, 25), (CHECKPOINTS_NOT_MADE, 25), (BESIDE_RECOVERED, 60)];
    for (what, least) in least {
        assert!(ledger.counted(what) > least, "{} {what}", ledger.counted(what));
    }
}

#[test]
fn after_a_crash_beside_what_is_done_with_indexes_a_moment_that_had_to_survive_is_found() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 8, |seed| {
        let mut run = CrashRun::of_seed(seed, 4);
        (run.diet, run.op_count, run.stride) = (Diet::Indexes, 60, 41);
        run.structure = Structure::from_u8((seed % 4) as u8); // The fourth is none: some of each.
        run.run(&ledger);
        true
    });
    ledger.assert_clean();
    for (what, least) in [(STATES, 200), (BUILT_ON, 5)] {
        assert!(ledger.counted(what) > least, "{} {what}", ledger.counted(what));
    }
}

/// The key or passphrase is the one that it got last, or was to get, the data is there with
/// whatever data keys, and no nonce comes twice for two messages.
#[test]
fn after_a_crash_while_keys_change_a_moment_that_had_to_survive_is_found() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 8, |seed| {
        let mut run = CrashRun::of_seed(seed, 3);
        (run.diet, run.op_count, run.stride) = (Diet::Encryption, 40, 41);
        run.structure = Structure::from_u8((seed % 4) as u8); // The fourth is none: some of each.
        run.run(&ledger);
        true
    });
    ledger.assert_clean();
    for (what, least) in [(STATES, 90), (STATES_AFTER_RECOVERY, 20), (CHECKPOINTS_OPENED, 0)] {
        assert!(ledger.counted(what) > least, "{} {what}", ledger.counted(what));
    }
}

#[test]
fn planted_mistakes_are_found() {
    run_cases(THREADS, CANARIES.len() as u64, |number| {
        let canary = CANARIES[number as usize];
        assert!(canary.runs_until_found(1, 12).is_some(), "not found: {canary:?}");
        true
    });
}
