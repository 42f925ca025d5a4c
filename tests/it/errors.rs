//! Calls of the storage that fail, and disks that fill up. The long versions: `lithe-sim errors`
//! and `full`.

use std::sync::Arc;

use lithe_sim::diet::Diet;
use lithe_sim::faults::{FaultRun, full};
use lithe_sim::ledger::Ledger;
use lithe_sim::parallel::run_cases;

use crate::THREADS;

#[test]
fn a_call_that_fails_loses_nothing_and_is_told() {
    let ledger = Arc::new(Ledger::new());
    for seed in 0..3 {
        FaultRun { stride: 17, ..FaultRun::new(seed, 30) }.run(THREADS, &ledger);
    }
    ledger.assert_clean();
    assert!(ledger.counted("faults that made the database read-only") > 8);
    assert!(ledger.counted("faults that opening reported") > 8);
}

#[test]
fn a_call_that_fails_while_keys_change_loses_nothing_and_is_told() {
    let ledger = Arc::new(Ledger::new());
    for seed in 0..2 {
        let run = FaultRun { stride: 23, diet: Diet::Encryption, ..FaultRun::new(seed, 24) };
        run.run(THREADS, &ledger);
    }
    ledger.assert_clean();
    assert!(ledger.counted("faults that an operation reported, and the next ones went well") > 5);
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_until_there_is_room() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 60, |number| {
        full::run(number % 4, number * 4096, &ledger);
        true
    });
    ledger.assert_clean();
    assert!(ledger.counted("operations refused for want of room") > 100);
    assert!(ledger.counted("times that a full disk was relieved by the reserve") > 10);
}

#[test]
fn a_reserve_that_is_not_there_is_found() {
    assert!(full::missing_reserve_is_found(1, 12).is_some());
}
