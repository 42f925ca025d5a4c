//! Mistakes planted on purpose, as for databases: syncs of the storage that do nothing.

use std::sync::Arc;

use lithedb::storage::{FaultEffect, FaultPlan, FaultRule, Operation};

use super::crash::SpaceCrashRun;
use crate::ledger::Ledger;
use crate::random::seed_of;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceCanary {
    /// What is forgotten.
    pub name: &'static str,
    operation: Operation,
    path_part: &'static str,
}

/// Every planted mistake.
pub const SPACE_CANARIES: [SpaceCanary; 3] = [
    SpaceCanary {
        name: "sync of a space's segments",
        operation: Operation::Sync,
        path_part: "seg-",
    },
    SpaceCanary {
        name: "sync of a space's index",
        operation: Operation::Sync,
        path_part: "space-",
    },
    SpaceCanary {
        name: "sync of a space's directory",
        operation: Operation::SyncDir,
        path_part: "space",
    },
];

impl SpaceCanary {
    /// Runs with the mistake until it is found; the number of runs that took, or `None` when
    /// `run_count_max` were not enough.
    #[must_use]
    pub fn runs_until_found(self, seed: u64, run_count_max: u64) -> Option<u64> {
        (1..=run_count_max).find(|number| {
            let ledger = Arc::new(Ledger::new());
            let mut run = SpaceCrashRun::of_seed(seed_of(&[seed, *number]), 6);
            run.stride = 3;
            let rule = FaultRule::new(FaultEffect::LieSync).on(&[self.operation]);
            run.planted = FaultPlan::new().rule(rule.path(self.path_part).lasting());
            run.run(&ledger);
            ledger.finding_count() > 0
        })
    }
}
