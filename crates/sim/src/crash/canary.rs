//! Canaries: mistakes planted on purpose. A harness that does not find them finds nothing.
//!
//! Each is a lie of the storage that looks, from outside, like an engine that forgot a sync: the
//! call succeeds and does nothing. The lie is told to the run, and not to those who recover.

use std::sync::Arc;

use lithedb::Structure;
use lithedb::storage::{FaultEffect, FaultPlan, FaultRule, Operation};

use crate::crash::{CrashRun, Diet, WhenFound};
use crate::ledger::Ledger;
use crate::random::seed_of;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// What is forgotten.
    pub name: &'static str,
    operation: Operation,
    path_part: &'static str,
    diet: Diet,
    structure: Option<Structure>,
}

/// Every planted mistake.
pub const CANARIES: [Canary; 21] = [
    Canary {
        name: "sync of the log",
        operation: Operation::Sync,
        path_part: ".wal",
        structure: None,
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of segments",
        operation: Operation::Sync,
        path_part: "seg-",
        structure: Some(Structure::Flex),
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of value files",
        operation: Operation::Sync,
        path_part: "val-",
        structure: None,
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of the value files' directory",
        operation: Operation::SyncDir,
        path_part: "values",
        structure: None,
        diet: Diet::Everything,
    },
    // An ingest that is made visible before its segments are synced: nothing else writes any.
    Canary {
        name: "sync of ingested segments",
        operation: Operation::Sync,
        path_part: "seg-",
        structure: Some(Structure::Flex),
        diet: Diet::Ingests,
    },
    Canary {
        name: "sync of indexes",
        operation: Operation::Sync,
        path_part: "index-",
        structure: Some(Structure::Flex),
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of the manifest",
        operation: Operation::Sync,
        path_part: "MANIFEST",
        structure: None,
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of the log's directory",
        operation: Operation::SyncDir,
        path_part: "wal",
        structure: None,
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of directories",
        operation: Operation::SyncDir,
        path_part: "",
        structure: None,
        diet: Diet::Everything,
    },
    Canary {
        name: "sync of tables",
        operation: Operation::Sync,
        path_part: "tbl-",
        structure: Some(Structure::Lsm),
        diet: Diet::Everything,
    },
    // Nor does anything else write a table.
    Canary {
        name: "sync of ingested tables",
        operation: Operation::Sync,
        path_part: "tbl-",
        structure: Some(Structure::Lsm),
        diet: Diet::Ingests,
    },
    Canary {
        name: "sync of table indexes",
        operation: Operation::Sync,
        path_part: "tables-",
        structure: Some(Structure::Lsm),
        diet: Diet::Everything,
    },
    // An archive that is behind its keyspace, though no ingest is to be archived.
    Canary {
        name: "sync of archives' indexes",
        operation: Operation::Sync,
        path_part: "tables-",
        structure: Some(Structure::History),
        diet: Diet::Everything,
    },
    // An index that is said to be ready before its entries are: nothing else syncs the log.
    Canary {
        name: "sync of the log before an index is ready",
        operation: Operation::Sync,
        path_part: ".wal",
        structure: None,
        diet: Diet::Builds,
    },
    // What makes the database durable goes well: only the copies are forgotten ..
    Canary {
        name: "sync of what checkpoints copy",
        operation: Operation::Sync,
        path_part: "unfinished-checkpoint",
        structure: None,
        diet: Diet::Checkpoints,
    },
    // .. or the names of all that is in them.
    Canary {
        name: "sync of the directories of checkpoints",
        operation: Operation::SyncDir,
        path_part: "unfinished-checkpoint",
        structure: None,
        diet: Diet::Checkpoints,
    },
    // What a restore writes is read back, and not durable all the same.
    Canary {
        name: "sync of what is restored",
        operation: Operation::Sync,
        path_part: "unfinished-restore",
        structure: None,
        diet: Diet::Checkpoints,
    },
    // A list that names files whose contents or names are lost.
    Canary {
        name: "sync of files of backups",
        operation: Operation::Sync,
        path_part: "backups/files",
        structure: None,
        diet: Diet::Checkpoints,
    },
    Canary {
        name: "sync of the directory of files of backups",
        operation: Operation::SyncDir,
        path_part: "backups/files",
        structure: None,
        diet: Diet::Checkpoints,
    },
    // The key that is got last is lost, or, when a database is made, all that there are.
    Canary {
        name: "sync of the keyring",
        operation: Operation::Sync,
        path_part: "KEYRING",
        structure: None,
        diet: Diet::Encryption,
    },
    Canary {
        name: "any sync",
        operation: Operation::Sync,
        path_part: "",
        structure: None,
        diet: Diet::Everything,
    },
];

impl Canary {
    /// The lie.
    pub fn plan(self) -> FaultPlan {
        let rule = FaultRule::new(FaultEffect::LieSync).on(&[self.operation]);
        FaultPlan::new().rule(rule.path(self.path_part).lasting())
    }

    /// Runs with the mistake until it is found; the number of runs that took, or `None` when
    /// `run_count_max` were not enough.
    #[must_use]
    pub fn runs_until_found(self, seed: u64, run_count_max: u64) -> Option<u64> {
        (1..=run_count_max).find(|number| {
            let ledger = Arc::new(Ledger::new());
            let mut run = CrashRun::of_seed(seed_of(&[seed, *number]), 6);
            run.stride = 5;
            run.planted = self.plan();
            run.diet = self.diet;
            run.structure = self.structure;
            run.when_found = WhenFound::End;
            run.run(&ledger);
            ledger.finding_count() > 0
        })
    }
}
