//! Canaries of indexes: an extractor with a mistake stands for a database that loses, or leaves
//! behind, entries of indexes.

use std::sync::Arc;

use crate::diet::Diet;
use crate::extractors::Planted;
use crate::ledger::Ledger;
use crate::model::ModelRun;
use crate::random::seed_of;

/// Operations of a run.
const OP_COUNT: usize = 300;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexCanary {
    /// What is wrong.
    pub name: &'static str,
    planted: Planted,
}

/// Every planted mistake.
pub const INDEX_CANARIES: [IndexCanary; 2] = [
    IndexCanary { name: "index keys of some values", planted: Planted::Lacking },
    IndexCanary { name: "index entries, now and then", planted: Planted::Forgetting },
];

impl IndexCanary {
    /// Runs with the mistake until it is found; the number of runs that took, or `None` when
    /// `run_count_max` were not enough.
    #[must_use]
    pub fn runs_until_found(self, seed: u64, run_count_max: u64) -> Option<u64> {
        (1..=run_count_max).find(|number| {
            let ledger = Arc::new(Ledger::new());
            let seed = seed_of(&[seed, *number]);
            let run = ModelRun { diet: Diet::Indexes, ..ModelRun::new(seed, OP_COUNT) };
            let mut setup = run.setup();
            setup.planted = self.planted;
            run.run_once(&setup, &ledger).is_err()
        })
    }
}
