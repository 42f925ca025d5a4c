//! Disks that fill up and empty again: a state, not a death.

use std::sync::Arc;

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Durability, Error};

use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::ops::{Mix, Op, Purpose, draw};
use crate::parallel::survive;
use crate::random::{Random, seed_of};
use crate::readback::{Detail, expect_check_ok, read_all};
use crate::sample::{Key, Value, ValueSizes};
use crate::session::{Session, SharedTimeline, Trouble};
use crate::setup::Setup;
use crate::timeline::Survival;

/// Operations on a full disk, and in the room that is given back.
const OPS_PER_STEP: usize = 40;
/// Steps of filling up and giving room back.
const STEP_COUNT: u64 = 6;
/// Room that is given in each step.
const ROOM_PER_STEP: u64 = 48 << 10;

/// Runs a database on a disk of `room` bytes more than an empty one takes, and gives more room in
/// steps; notes what is wrong.
pub fn run(seed: u64, room: u64, ledger: &Ledger) {
    ledger.count("disk sizes");
    match survive(|| try_run(seed, room)) {
        Ok(refusals) => ledger.count_many("operations refused for want of room", refusals),
        Err(finding) => ledger.note(finding.at(&format!("{room} bytes of room")), || {
            format!("full --run {seed:#x} --room {room}")
        }),
    }
}

fn try_run(seed: u64, room: u64) -> Verdict<u64> {
    let setup = Setup::numbered(seed % 16);
    let storage = SimStorage::new(seed);
    let timeline = SharedTimeline::default();
    let opened = Session::open(&setup, Arc::new(storage.clone()), 0, timeline);
    let mut session = opened.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
    for name in 0..2 {
        session.run(&Op::Create(name, name)).map_err(Trouble::into_finding)?;
    }
    let mut random = Random::new(seed_of(&[seed, room]));
    let mix = Mix { key_count: 300, sizes: ValueSizes::Mixed, purpose: Purpose::Writing };
    let mut refusals = 0;
    let mut capacity = storage.allocated_bytes() + room;
    for step in 0..STEP_COUNT {
        storage.set_capacity(capacity);
        for _ in 0..OPS_PER_STEP {
            refusals += u64::from(run_or_refuse(&mut session, &draw(&mut random, mix))?);
            expect_all_there(&session)?;
        }
        expect_recovery(&setup, &storage, &session, seed ^ step)?;
        capacity = capacity.max(storage.allocated_bytes()) + ROOM_PER_STEP;
    }
    storage.set_capacity(u64::MAX);
    expect_resumption(&mut session)?;
    expect_check_ok(&session.db)?;
    session.close().map_err(|error| Finding::new(Fault::Refused, format!("close: {error}")))?;
    Ok(refusals)
}

/// Whether the operation was refused for want of room; nothing else is a reason.
fn run_or_refuse(session: &mut Session, op: &Op) -> Verdict<bool> {
    match session.run(op) {
        Ok(()) => Ok(false),
        Err(Trouble::Refused(Error::DiskFull { .. })) => Ok(true),
        Err(trouble) => Err(trouble.into_finding().at(&format!("{op:?}"))),
    }
}

/// Reads go on, and show every acknowledged commit and no other.
fn expect_all_there(session: &Session) -> Verdict {
    let found = read_all(&session.db, Detail::Rows);
    let found = found.map_err(|error| Finding::new(Fault::Refused, format!("read: {error}")))?;
    let judged = session.timeline().judge(&found, Survival::Acknowledged);
    judged.map(drop).map_err(|finding| finding.at("read on a full disk"))
}

/// A crash on a full disk; there is room again afterwards.
fn expect_recovery(setup: &Setup, storage: &SimStorage, session: &Session, seed: u64) -> Verdict {
    let modes = [
        (CrashMode::KeepAll, Survival::Acknowledged),
        (CrashMode::RandomSectors, Survival::Durable),
    ];
    for (mode, survival) in modes {
        let left = storage.crash(mode, seed);
        left.set_capacity(u64::MAX);
        let failed = |error: Error| Finding::new(Fault::FailedOpen, format!("{mode:?}: {error}"));
        let db = setup.open(Arc::new(left.clone()), 1).map_err(failed)?;
        let found = read_all(&db, Detail::Rows).map_err(failed)?;
        session.timeline().judge(&found, survival).map_err(|finding| finding.at("opened again"))?;
        left.crash_at(left.mutation_count());
    }
    Ok(())
}

/// With room again, writing goes on by itself.
fn expect_resumption(session: &mut Session) -> Verdict {
    let value = Value { len: 100, fill: 7 };
    let ops = [
        Op::Put(0, Key(1), value, Durability::Sync),
        Op::Put(1, Key(2), value, Durability::Buffered),
        Op::Flush,
        Op::Put(0, Key(3), value, Durability::Sync),
    ];
    for op in ops {
        session.run(&op).map_err(|trouble| trouble.into_finding().at("with room again"))?;
    }
    expect_all_there(session)
}
