//! One fault in one run.

use std::io::ErrorKind;
use std::sync::Arc;

use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage,
};
use lithedb::{Db, Error};

use crate::checkpoints::{Beside, Use};
use crate::faults::Target;
use crate::finding::{Fault, Finding, Verdict};
use crate::ops::Op;
use crate::random::{Random, seed_of};
use crate::readback::{Detail, expect_check_ok, read_all};
use crate::session::{Session, SharedTimeline, Trouble, look};
use crate::setup::Setup;
use crate::timeline::{Found, Survival, Timeline};

/// How often a call is interrupted in a row.
const INTERRUPTIONS: u64 = 20;

/// How often a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// Once.
    Once,
    /// From then on.
    Lasting,
}

/// One fault.
#[derive(Clone, Debug)]
pub struct FaultCase {
    /// Of the run.
    pub seed: u64,
    /// The kind of call that fails.
    pub operation: Operation,
    /// How many of these calls go well before.
    pub skip: u64,
    /// What it is about, for those that change the disk.
    pub target: Target,
    /// How it fails.
    pub effect: FaultEffect,
    /// How often.
    pub frequency: Frequency,
}

/// What came of a fault, where it was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call was tried again, or did not matter.
    Unnoticed,
    /// The database did not open.
    RefusedToOpen,
    /// An operation failed, and later ones did not.
    Passing,
    /// The database became read-only.
    ReadOnly,
}

impl Outcome {
    /// As the ledger counts it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Unnoticed => "faults that no operation noticed",
            Outcome::RefusedToOpen => "faults that opening reported",
            Outcome::Passing => "faults that an operation reported, and the next ones went well",
            Outcome::ReadOnly => "faults that made the database read-only",
        }
    }
}

impl FaultCase {
    /// Runs `ops` with the fault, looks, crashes, opens again, and looks again.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(&self, setup: &Setup, ops: &[Op]) -> Verdict<Outcome> {
        let storage = SimStorage::new(self.seed);
        let rule = FaultRule::new(self.effect).on(&[self.operation]).skip(self.skip);
        let rule = match self.frequency {
            Frequency::Once => rule,
            // A call that is interrupted is tried again, for ever.
            Frequency::Lasting if self.effect == FaultEffect::Error(ErrorKind::Interrupted) => {
                rule.times(INTERRUPTIONS)
            }
            Frequency::Lasting => rule.lasting(),
        };
        storage.arm(FaultPlan::new().rule(rule));
        let timeline = SharedTimeline::default();
        let opened = Session::open(setup, Arc::new(storage.clone()), 0, Arc::clone(&timeline));
        let mut session = match opened {
            Ok(session) => session,
            Err(error) => {
                self.expect_plausible(&error)?;
                self.expect_recovery(setup, &storage, &look(&timeline).clone())?;
                return Ok(Outcome::RefusedToOpen);
            }
        };
        let refusals = self.drive(&mut session, ops)?;
        let outcome = outcome_of(&session.db, refusals);
        self.expect_writable(&session.db, outcome)?;
        self.expect_told(&storage, &session, outcome)?;
        let timeline = look(&timeline).clone();
        expect_reads_right(&session.db, &timeline)?;
        storage.disarm();
        expect_reads_right(&session.db, &timeline)?;
        self.expect_recovery(setup, &storage, &timeline)?;
        let files: Arc<dyn Storage> = Arc::new(storage.clone());
        for checkpoint in &timeline.checkpoints {
            let how = (Use::Read, &mut Random::new(self.seed));
            checkpoint.expect_ok((setup, &files), &timeline, how)?; // F6
        }
        storage.crash_at(storage.mutation_count());
        Ok(outcome)
    }

    /// F1, F5: after a kill and after a power cut; also what was open beside the database.
    fn expect_recovery(&self, setup: &Setup, storage: &SimStorage, timeline: &Timeline) -> Verdict {
        let modes = [
            (CrashMode::KeepAll, Survival::Acknowledged),
            (CrashMode::DropAll, Survival::Durable),
            (CrashMode::RandomSectors, Survival::Durable),
        ];
        for (mode, survival) in modes {
            let left = storage.crash(mode, seed_of(&[self.seed, self.skip]));
            if let Some(Beside { path, timeline }) = &timeline.beside {
                let place = format!("{} behind {mode:?}", path.display());
                let found = self.reopen(&setup.at(path), &left.duplicate(), Beside::OPENING);
                let judged = found.and_then(|found| look(timeline).judge(&found, survival));
                judged.map_err(|finding| finding.at(&place))?;
            }
            let found =
                self.reopen(setup, &left, 1).map_err(|finding| finding.at(&format!("{mode:?}")))?;
            if let Err(finding) = timeline.judge(&found, survival) {
                return Err(finding.at(&format!("opened again after {mode:?}")));
            }
        }
        Ok(())
    }

    fn reopen(&self, setup: &Setup, storage: &SimStorage, nth: u64) -> Verdict<Found> {
        let failed = |error: Error| Finding::new(Fault::FailedOpen, error.to_string());
        let db = setup.open(Arc::new(storage.clone()), nth).map_err(failed)?;
        let found = read_all(&db, Detail::Rows).map_err(failed)?;
        expect_check_ok(&db)?;
        storage.crash_at(storage.mutation_count());
        Ok(found)
    }

    /// Runs all operations, whatever fails; how many were refused.
    fn drive(&self, session: &mut Session, ops: &[Op]) -> Verdict<u64> {
        let mut refusals = 0;
        for op in ops {
            match session.run(op) {
                Ok(()) => {}
                Err(Trouble::Refused(error)) => {
                    self.expect_plausible(&error)?;
                    refusals += 1;
                }
                Err(Trouble::Absurd(finding)) => return Err(finding.at(&format!("{op:?}"))),
            }
        }
        Ok(refusals)
    }

    /// As [`expect_plausible`]; a lock that would block is taken for one that somebody has.
    fn expect_plausible(&self, error: &Error) -> Verdict {
        let is_taken = self.effect == FaultEffect::Error(ErrorKind::WouldBlock);
        match error {
            Error::Locked { .. } if is_taken && self.operation == Operation::Lock => Ok(()),
            other => expect_plausible(other),
        }
    }

    /// F7.
    fn expect_writable(&self, db: &Db, outcome: Outcome) -> Verdict {
        let is_look = matches!(self.operation, Operation::Open | Operation::Read | Operation::Size);
        if !is_look || outcome != Outcome::ReadOnly {
            return Ok(());
        }
        let state = db.health().state;
        Err(Finding::new(Fault::Refused, format!("it could not read, and is {state}")))
    }

    /// F4: a sync that failed is no secret.
    fn expect_told(&self, storage: &SimStorage, session: &Session, outcome: Outcome) -> Verdict {
        let is_sync = matches!(self.operation, Operation::Sync | Operation::SyncDir)
            && !self.target.is_preparation;
        let is_struck = storage.fault_count() > 0 && self.effect != FaultEffect::Short;
        let is_told = outcome != Outcome::Unnoticed || session.has_told();
        if is_told || !is_sync || !is_struck || session.db.close().is_err() {
            return Ok(());
        }
        if session.close_beside().is_err() {
            return Ok(());
        }
        let what = "a sync failed, and neither an operation nor close said so";
        Err(Finding::new(Fault::Swallowed, what))
    }
}

fn outcome_of(db: &Db, refusals: u64) -> Outcome {
    match (db.stats().read_only.is_some(), refusals) {
        (true, _) => Outcome::ReadOnly,
        (false, 0) => Outcome::Unnoticed,
        (false, _) => Outcome::Passing,
    }
}

/// A storage that fails is no damage: nothing may be called so.
fn expect_plausible(error: &Error) -> Verdict {
    match error {
        Error::Io { .. }
        | Error::DiskFull { .. }
        | Error::ReadOnly { .. }
        | Error::KeyspaceNotFound { .. }
        | Error::KeyspaceExists { .. } => Ok(()),
        other => Err(Finding::new(Fault::BadError, other.to_string())),
    }
}

/// F3: what is read now, if it can be read, is a moment from the last acknowledged commit on.
fn expect_reads_right(db: &Db, timeline: &Timeline) -> Verdict {
    let found = match read_all(db, Detail::Rows) {
        Ok(found) => found,
        Err(error) => return expect_plausible(&error),
    };
    let judged = timeline.judge(&found, Survival::Acknowledged);
    judged.map(drop).map_err(|finding| finding.at("read beside the fault"))
}
