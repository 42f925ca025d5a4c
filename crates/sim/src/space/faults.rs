//! Calls of the storage that fail under a space, and disks that are full (P3).

use std::io::ErrorKind;
use std::sync::Arc;

use lithedb::Error;
use lithedb::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};

use super::compare::read_all;
use super::ops::draw;
use super::session::{Session, SharedHistory, Trouble, look};
use super::{Setup, SpaceOp};
use crate::faults::EFFECTS;
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::parallel::{run_cases, survive};
use crate::random::{Random, seed_of};

/// How often in a row a call is interrupted.
const INTERRUPTIONS: u64 = 20;
/// Sizes of disks that a space is run on.
const SIZE_COUNT: u64 = 40;
const PAGE_SIZE: u64 = 4096;

/// A run with a fault at each of its calls.
#[derive(Clone, Copy, Debug)]
pub struct SpaceFaultRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: usize,
    /// Only every so many calls are struck.
    pub stride: u64,
}

impl SpaceFaultRun {
    /// Runs every case, and notes what is wrong.
    pub fn run(&self, threads: usize, ledger: &Ledger) {
        let calm = SimStorage::new(self.seed);
        drop(self.drive(&calm));
        let mut cases = Vec::new();
        for operation in Operation::ALL {
            let count = calm.count_of(operation);
            for skip in (self.seed % self.stride..count).step_by(self.stride as usize) {
                for effect in EFFECTS {
                    cases.push((operation, skip, effect, false));
                    cases.push((operation, skip, effect, true));
                }
            }
        }
        run_cases(threads, cases.len() as u64, |number| {
            let (operation, skip, effect, is_lasting) = cases[number as usize];
            let rule = FaultRule::new(effect).on(&[operation]).skip(skip);
            let rule = match is_lasting {
                // A call that is interrupted is tried again, for ever.
                true if effect == FaultEffect::Error(ErrorKind::Interrupted) => {
                    rule.times(INTERRUPTIONS)
                }
                true => rule.lasting(),
                false => rule,
            };
            ledger.count("faults under a space");
            if let Err(finding) = survive(|| self.strike(rule)) {
                let case = format!("{operation:?} {skip} {effect:?}, lasting: {is_lasting}");
                ledger.note(finding.at(&case), || format!("space --faults {:#x}", self.seed));
            }
            true
        });
    }

    fn strike(&self, rule: FaultRule) -> Verdict {
        let storage = SimStorage::new(self.seed);
        storage.arm(FaultPlan::new().rule(rule));
        let history = self.drive(&storage)?;
        storage.disarm();
        self.expect_recovery(&storage, &history)
    }

    /// Runs until the end, or until the space says that it is over. After each refusal everything
    /// is as before.
    fn drive(&self, storage: &SimStorage) -> Verdict<SharedHistory> {
        let history = SharedHistory::default();
        let setup = Setup::numbered(self.seed % 64);
        let opened = Session::open(setup, Arc::new(storage.clone()), &history);
        let Ok(mut session) = opened else { return Ok(history) };
        let mut random = Random::new(seed_of(&[self.seed, 3]));
        for number in 0..self.op_count {
            let op = draw(&mut random);
            match session.run(&op) {
                Ok(()) => {}
                Err(Trouble::Wrong(finding)) => {
                    return Err(finding.at(&format!("{number}: {op:?}")));
                }
                Err(Trouble::Refused(error)) => {
                    if matches!(error, Error::Corruption { .. } | Error::InvalidArgument { .. }) {
                        return Err(Finding::new(Fault::BadError, error.to_string()));
                    }
                    if matches!(op, SpaceOp::Close | SpaceOp::Abandon) {
                        return Ok(history);
                    }
                    storage.disarm();
                    session.expect_all().map_err(|finding| {
                        finding.at(&format!("after {number}, {op:?}, was refused: {error}"))
                    })?;
                }
            }
        }
        Ok(history)
    }

    fn expect_recovery(&self, storage: &SimStorage, history: &SharedHistory) -> Verdict {
        let setup = Setup::numbered(self.seed % 64);
        for mode in CrashMode::ALL {
            let left = storage.crash(mode, self.seed);
            let space = setup.open(Arc::new(left));
            let found = space.and_then(|space| read_all(&space));
            let found = found
                .map_err(|error| Finding::new(Fault::FailedOpen, format!("{mode:?}: {error}")))?;
            if !look(history).allows(&found) {
                return Err(Finding::new(Fault::Lost, format!("{mode:?}: another state")));
            }
        }
        Ok(())
    }
}

/// Runs a space on disks of some sizes: one page more each time.
pub fn fill_all(seed: u64, ledger: &Ledger) {
    (0..SIZE_COUNT).for_each(|number| fill_up(seed, number * PAGE_SIZE, ledger));
}

/// Runs a space on a disk of `room` bytes, which grows whenever something is refused.
pub fn fill_up(seed: u64, room: u64, ledger: &Ledger) {
    ledger.count("disk sizes under a space");
    match survive(|| try_fill_up(seed, room)) {
        Ok(refusals) => ledger.count_many("operations refused for want of room", refusals),
        Err(finding) => ledger.note(finding.at(&format!("{room} bytes of room")), || {
            format!("space --full {seed:#x}")
        }),
    }
}

fn try_fill_up(seed: u64, room: u64) -> Verdict<u64> {
    const ROOM_PER_REFUSAL: u64 = 64 << 10;
    let storage = SimStorage::new(seed);
    let history = SharedHistory::default();
    let setup = Setup::numbered(seed % 64);
    let mut session = Session::open(setup, Arc::new(storage.clone()), &history)?;
    let mut random = Random::new(seed_of(&[seed, room]));
    storage.set_capacity(storage.allocated_bytes() + room);
    let mut refusals = 0;
    for number in 0..150 {
        let op = draw(&mut random);
        if matches!(op, SpaceOp::Close | SpaceOp::Abandon) {
            continue;
        }
        match session.run(&op) {
            Ok(()) => {}
            Err(Trouble::Refused(Error::DiskFull { .. })) => {
                refusals += 1;
                session.expect_all()?;
                let left = storage.crash(CrashMode::RandomSectors, number);
                left.set_capacity(u64::MAX);
                let found = setup.open(Arc::new(left)).and_then(|space| read_all(&space));
                let found = found.map_err(|e| Finding::new(Fault::FailedOpen, e.to_string()))?;
                if !look(&history).allows(&found) {
                    return Err(Finding::new(Fault::Lost, "another state after a full disk"));
                }
                if refusals % 3 == 0 {
                    storage.set_capacity(storage.allocated_bytes() + ROOM_PER_REFUSAL);
                }
            }
            Err(trouble) => return Err(trouble.into_finding().at(&format!("{number}: {op:?}"))),
        }
    }
    storage.set_capacity(u64::MAX);
    for op in [SpaceOp::Sync, SpaceOp::Collect, SpaceOp::Close] {
        session.run(&op).map_err(|trouble| trouble.into_finding().at("with room again"))?;
    }
    session.expect_check_ok()?;
    Ok(refusals)
}
