//! A few runs, and the judge itself.

use super::planted::PLANTED;
use super::*;

#[test]
fn transactions_of_some_runs_are_serializable() {
    let ledger = Arc::new(Ledger::new());
    for seed in 0..8 {
        IsolationRun { seed, transaction_count: 1200 }.run(&ledger);
    }
    assert_eq!(ledger.finding_count(), 0, "{ledger}");
    assert!(ledger.counted(TRANSACTIONS) > 6000 && ledger.counted(CONFLICTS) > 0, "{ledger}");
    assert!(ledger.counted(CRASHES) > 0 && ledger.counted(REOPENINGS) == 32);
}

#[test]
fn every_planted_anomaly_is_found() {
    for planted in PLANTED {
        assert_eq!(planted.is_found(1, 20), Some(true), "{}", planted.name);
    }
}
