//! Disks that fill up and empty again: a state, not a death.

use std::sync::Arc;

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Durability, Error, HealthState};

use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::ops::{Extent, Mix, Op, Purpose, draw};
use crate::parallel::{run_cases, survive};
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
/// Sizes of disks that all of a seed have: one page more each time.
const SIZE_COUNT: u64 = 100;
const PAGE_SIZE: u64 = 4096;
/// Room that is given in each step.
const ROOM_PER_STEP: u64 = 48 << 10;

/// Reserves that databases have, by the seed: with the last one there is room for whatever makes
/// room.
const RESERVES: [u64; 3] = [0, 64 << 10, AMPLE_RESERVE];
const AMPLE_RESERVE: u64 = 8 << 20;
/// Keys that are deleted on a full disk, each time it is.
const DELETIONS: u64 = 12;

/// What a run has met.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    refusals: u64,
    reliefs: u64,
}

/// Whether the reserve is there that a run counts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    NoReserve,
}

/// Runs the databases of a seed on disks of all sizes.
pub fn run_all(seed: u64, threads: usize, ledger: &Ledger) {
    run_cases(threads, SIZE_COUNT, |number| {
        run(seed, number * PAGE_SIZE, ledger);
        true
    });
}

/// Runs a database on a disk of `room` bytes more than an empty one takes, and gives more room in
/// steps; notes what is wrong.
pub fn run(seed: u64, room: u64, ledger: &Ledger) {
    ledger.count("disk sizes");
    match survive(|| try_run(seed, room, Planted::Nothing)) {
        Ok(met) => {
            ledger.count_many("operations refused for want of room", met.refusals);
            ledger.count_many("times that a full disk was relieved by the reserve", met.reliefs);
        }
        Err(finding) => ledger.note(finding.at(&format!("{room} bytes of room")), || {
            format!("full --run {seed:#x} --room {room}")
        }),
    }
}

/// A canary: whether it is found within so many runs that the reserve is not there which they count
/// on; after how many.
#[must_use]
pub fn missing_reserve_is_found(seed: u64, run_count_max: u64) -> Option<u64> {
    let ample = RESERVES.len() as u64 - 1;
    (1..=run_count_max).find(|number| {
        let seed =
            seed_of(&[seed, *number]) / RESERVES.len() as u64 * RESERVES.len() as u64 + ample;
        survive(|| try_run(seed, *number * 4096, Planted::NoReserve)).is_err()
    })
}

fn try_run(seed: u64, room: u64, planted: Planted) -> Verdict<Met> {
    let reserve = RESERVES[(seed % RESERVES.len() as u64) as usize];
    let disk_reserve = if planted == Planted::NoReserve { 0 } else { reserve };
    let setup = Setup { disk_reserve, ..Setup::numbered(seed % 16) };
    let storage = SimStorage::new(seed);
    let timeline = SharedTimeline::default();
    let opened = Session::open(&setup, Arc::new(storage.clone()), 0, timeline);
    let mut session = opened.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
    for name in 0..2 {
        session.run(&Op::Create(name, name)).map_err(Trouble::into_finding)?;
    }
    let mut random = Random::new(seed_of(&[seed, room]));
    let mix = Mix { key_count: 300, sizes: ValueSizes::Mixed, purpose: Purpose::Writing };
    let mut met = Met::default();
    let mut capacity = storage.allocated_bytes() + room;
    for step in 0..STEP_COUNT {
        storage.set_capacity(capacity);
        for _ in 0..OPS_PER_STEP {
            met.refusals += u64::from(run_or_refuse(&mut session, &draw(&mut random, mix))?);
            expect_all_there(&session)?;
        }
        let is_full = matches!(session.db.health().state, HealthState::DiskFull { .. });
        if is_full && reserve == AMPLE_RESERVE {
            expect_relief(&mut session, &mut random)?;
            met.reliefs += 1;
        }
        expect_recovery(&setup, &storage, &session, seed ^ step)?;
        capacity = capacity.max(storage.allocated_bytes()) + ROOM_PER_STEP;
    }
    storage.set_capacity(u64::MAX);
    expect_resumption(&mut session)?;
    expect_check_ok(&session.db)?;
    session.close().map_err(|error| Finding::new(Fault::Refused, format!("close: {error}")))?;
    Ok(met)
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

/// On a full disk, with a reserve, whatever makes room goes well.
fn expect_relief(session: &mut Session, random: &mut Random) -> Verdict {
    let key = |random: &mut Random| Key(random.below(300) as u16);
    let mut ops: Vec<Op> = (0..DELETIONS)
        .map(|number| {
            let durability = if number % 2 == 0 { Durability::Sync } else { Durability::Buffered };
            Op::Delete(number as u8 % 2, key(random), durability)
        })
        .collect();
    ops.extend([Op::Flush, Op::Step(20), Op::Compact(0, Extent::All, u8::MAX)]);
    ops.extend([Op::Vacuum(u8::MAX), Op::Delete(0, key(random), Durability::Sync), Op::Flush]);
    for op in ops {
        let done = session.run(&op).map_err(Trouble::into_finding);
        done.map_err(|finding| finding.at(&format!("{op:?} on a full disk with a reserve")))?;
        expect_all_there(session)?;
    }
    Ok(())
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
    let health = session.db.health();
    if health.state != HealthState::Writable || !health.failures.is_empty() {
        let what = format!("with room again it is {}: {:?}", health.state, health.failures);
        return Err(Finding::new(Fault::Refused, what));
    }
    expect_all_there(session)
}
