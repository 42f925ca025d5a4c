//! Damage to any file is reported with the file's name, or does not matter. The long versions:
//! `lithe-sim flips`, `truncations`, `sectors`, `files`.

use std::sync::Arc;

use lithe_sim::damage::{
    Ending, Fixture, Injury, Thoroughness, flips, misplacements, run, sectors, truncations,
};
use lithe_sim::ledger::Ledger;

use crate::THREADS;

const ENDINGS: [Ending; 2] = [Ending::Closed, Ending::Killed];
/// Operations behind a fixture: few, so that every byte can be damaged in turn.
const OP_COUNT: usize = 60;

fn inflict_on_both(list: impl Fn(&Fixture) -> Vec<Injury>) -> Arc<Ledger> {
    let ledger = Arc::new(Ledger::new());
    for ending in ENDINGS {
        let fixture = Fixture::build(1, ending, OP_COUNT).unwrap();
        let injuries = list(&fixture);
        run(&fixture, &injuries, THREADS, &ledger, "(an injury of a test)");
    }
    ledger.assert_clean();
    ledger
}

#[test]
fn a_flipped_bit_is_reported_or_harmless() {
    let ledger = inflict_on_both(|fixture| flips(fixture, 127, Thoroughness::OneBit));
    for outcome in ["refused to open", "refused to read", "harmless"] {
        assert!(ledger.counted(outcome) > 0, "no {outcome}:\n{ledger}");
    }
}

#[test]
fn a_file_cut_anywhere_is_reported() {
    let ledger = inflict_on_both(|fixture| truncations(fixture, 53));
    assert!(ledger.counted("refused to open") > 200);
}

#[test]
fn lost_sectors_are_reported_or_harmless() {
    inflict_on_both(sectors);
}

#[test]
fn missing_old_swapped_and_foreign_files_are_reported_or_harmless() {
    let other = Fixture::build(4 << 32 | 1, Ending::Closed, OP_COUNT).unwrap();
    assert!(!other.setup.encrypted, "that is for other tests");
    inflict_on_both(|fixture| misplacements(fixture, &other));
}
