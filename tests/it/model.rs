//! Whatever can be read agrees with `BTreeMap`s. The long version: `lithe-sim model`.

use std::sync::Arc;

use lithe_sim::diet::Diet;
use lithe_sim::ledger::Ledger;
use lithe_sim::model::canary::INDEX_CANARIES;
use lithe_sim::model::{ModelRun, run_ops};
use lithe_sim::parallel::run_cases;
use lithe_sim::setup::Setup;
use lithe_sim::twins::TwinRun;
use lithedb::storage::{OsStorage, SimStorage};
use lithedb::{Background, Structure};

use crate::THREADS;

#[test]
fn random_operations_agree_with_the_model() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 48, |seed| {
        ModelRun::new(seed, 700).run(&ledger);
        true
    });
    ledger.assert_clean();
}

#[test]
fn random_operations_on_indexes_agree_with_the_model() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 24, |seed| {
        let structure = Structure::from_u8((seed % 4) as u8); // The fourth is none: some of each.
        ModelRun { diet: Diet::Indexes, structure, ..ModelRun::new(seed, 400) }.run(&ledger);
        true
    });
    ledger.assert_clean();
}

#[test]
fn random_operations_while_keys_change_agree_with_the_model() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 16, |seed| {
        let structure = Structure::from_u8((seed % 4) as u8); // The fourth is none: some of each.
        ModelRun { diet: Diet::Encryption, structure, ..ModelRun::new(seed, 300) }.run(&ledger);
        true
    });
    ledger.assert_clean();
}

#[test]
fn versions_in_many_runs_and_tables_agree_with_the_model() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 24, |seed| {
        let structure = Some(Structure::History);
        ModelRun { diet: Diet::Pasts, structure, ..ModelRun::new(seed, 400) }.run(&ledger);
        true
    });
    ledger.assert_clean();
}

#[test]
fn planted_mistakes_of_indexes_are_found() {
    for canary in INDEX_CANARIES {
        assert!(canary.runs_until_found(1, 12).is_some(), "not found: {canary:?}");
    }
}

#[test]
fn random_operations_agree_with_the_model_on_files_and_with_threads() {
    run_cases(THREADS, 8, |seed| {
        let dir = tempfile::tempdir().unwrap();
        let mut setup = Setup::numbered(seed);
        setup.path = dir.path().join("db");
        setup.background = Background::Threads;
        let ops = ModelRun::new(seed, 400).ops();
        if let Err(finding) = run_ops(&setup, Arc::new(OsStorage::new()), &ops) {
            panic!("seed {seed}: {finding}");
        }
        true
    });
}

#[test]
fn the_same_operations_on_two_structures_have_the_same_results() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 32, |seed| {
        TwinRun { seed, op_count: 3000 }.run(&ledger);
        true
    });
    ledger.assert_clean();
}

#[test]
fn stepped_runs_repeat_exactly() {
    let trace = |seed| {
        let run = ModelRun::new(seed, 500);
        let storage = SimStorage::new(seed);
        run_ops(&run.setup(), Arc::new(storage.clone()), &run.ops()).unwrap();
        storage.trace_hash()
    };
    for seed in 0..4 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}
