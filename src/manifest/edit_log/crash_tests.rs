//! Tests of the edit log on a storage that crashes and fails at every call: the state found again
//! is the one before or behind the edit in flight, and everything acknowledged is in it.

use super::{EditLog, EditLogId, Record, RecordRef};
use crate::base::{Error, Result};
use crate::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage,
};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/log";
const ID: EditLogId = EditLogId { stem: "index", kind: 2, database: 0xD0D0, owner: 5 };
const ROOM: u64 = 1500;
const SEEDS: u64 = 6;

/// All that was ever appended: the snapshot of a file repeats what the files before it held.
type State = Vec<Vec<u8>>;

/// What a run was told.
#[derive(Clone, Debug, Default)]
struct Told {
    /// Whether the log was made.
    created: bool,
    acknowledged: State,
    /// An edit whose append failed: it is there or not.
    in_doubt: Option<Vec<u8>>,
}

impl Told {
    fn allows(&self, state: &State) -> bool {
        let with = || [&self.acknowledged[..], self.in_doubt.as_slice()].concat();
        *state == self.acknowledged || (self.in_doubt.is_some() && *state == with())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    Rotate,
    RemoveOlder,
}

/// Edits that lie within a sector, that span sectors, and that are empty, and two rotations.
const STEPS: &[Step] = &[
    Step::Append(3),
    Step::Append(700),
    Step::Append(0),
    Step::Rotate,
    Step::Append(40),
    Step::RemoveOlder,
    Step::Append(1200),
    Step::Rotate,
    Step::RemoveOlder,
    Step::Append(5),
];

fn disk(seed: u64) -> SimStorage {
    let storage = SimStorage::new(seed);
    storage.panic_on_violation();
    storage.create_dir_all(Path::new(DIR)).unwrap();
    storage.sync_dir(Path::new("/")).unwrap();
    storage
}

fn shared(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

fn put_state(log: &mut EditLog, state: &State) -> Result<()> {
    log.rotate(ROOM, |sink| state.iter().try_for_each(|edit| sink.part(edit)))
}

fn run(storage: &SimStorage) -> Told {
    let mut told = Told::default();
    let made = EditLog::create(shared(storage), Path::new(DIR), ID, 1, ROOM, |_| Ok(()));
    let Ok(mut log) = made else { return told };
    told.created = true;
    for (index, step) in STEPS.iter().enumerate() {
        match *step {
            Step::Append(len) => {
                let edit = vec![index as u8 + 1; len];
                match log.append(&edit) {
                    Ok(()) => told.acknowledged.push(edit),
                    // Refused because of an earlier failure, or for want of a rotation.
                    Err(Error::ReadOnly { .. } | Error::InvalidArgument { .. }) => {}
                    Err(_) => {
                        assert_eq!(told.in_doubt, None, "nothing is tried after a failure");
                        told.in_doubt = Some(edit);
                    }
                }
            }
            Step::Rotate => drop(put_state(&mut log, &told.acknowledged)),
            Step::RemoveOlder => drop(log.remove_older()),
        }
    }
    told
}

fn reopen(storage: &SimStorage) -> Result<(EditLog, State)> {
    let mut state = State::new();
    let visit = |record: RecordRef<'_>| {
        if let Record::SnapshotPart(bytes) | Record::Edit(bytes) = record.record {
            state.push(bytes.to_vec());
        }
        Ok(())
    };
    let (log, _) = EditLog::open(shared(storage), Path::new(DIR), ID, None, visit)?;
    Ok((log, state))
}

/// Opens what a crash left, and sees that what was found stays.
fn check_recovery(storage: &SimStorage, told: &Told, context: &str) {
    let found = reopen(storage);
    if !told.created && found.is_err() {
        let names = storage.list_dir(Path::new(DIR)).unwrap();
        let named = names.iter().any(|entry| !entry.name.ends_with(".new"));
        assert!(!named, "{context}: {:?}", found.err());
        return;
    }
    let (mut log, state) = found.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(told.allows(&state), "{context}: {told:?} but {state:?}");

    // What was read is durable, and so is what is appended to it (E5).
    let (_, again) = reopen(&storage.crash(CrashMode::DropAll, 0)).unwrap();
    assert_eq!(again, state, "{context}");
    if !log.fits(9) {
        put_state(&mut log, &state).unwrap();
    }
    log.append(b"afterlife").unwrap();
    drop(log);
    let expected = [&state[..], &[b"afterlife".to_vec()]].concat();
    for mode in [CrashMode::KeepAll, CrashMode::DropAll] {
        let (_, again) = reopen(&storage.crash(mode, 1)).unwrap();
        assert_eq!(again, expected, "{context}, then {mode:?}");
    }
}

/// Runs up to the crash point, and tries everything that such a crash can leave.
fn crash_everywhere(crash: impl Fn(&SimStorage, u64), name: &str) -> u64 {
    let rehearsal = disk(1);
    let start = rehearsal.mutation_count();
    assert_eq!(run(&rehearsal).acknowledged.len(), 6);
    let mut states = 0;
    for point in start..rehearsal.mutation_count() {
        let storage = disk(point);
        crash(&storage, point);
        let told = run(&storage);
        for mode in CrashMode::ALL {
            for seed in 0..SEEDS {
                let context = format!("{name} {point}, {mode:?}, seed {seed}");
                check_recovery(&storage.crash(mode, seed), &told, &context);
                states += 1;
            }
        }
    }
    states
}

#[test]
fn every_crash_leaves_the_state_before_or_behind_the_edit_in_flight() {
    let before = crash_everywhere(SimStorage::crash_at, "before");
    let inside = crash_everywhere(SimStorage::crash_inside, "inside");
    assert!(before > 1000 && inside > 1000, "{before} and {inside} crashes");
}

#[test]
fn a_crash_while_a_crash_is_recovered_from_changes_nothing() {
    let rehearsal = disk(1);
    let start = rehearsal.mutation_count();
    run(&rehearsal);
    for point in start..rehearsal.mutation_count() {
        let storage = disk(point);
        storage.crash_inside(point);
        let told = run(&storage);
        if !told.created {
            continue;
        }
        for mode in [CrashMode::KeepAll, CrashMode::RandomSectors, CrashMode::TornLast] {
            let left = storage.crash(mode, point);
            let recovery = left.duplicate();
            drop(reopen(&recovery).unwrap());
            for inner in 0..recovery.mutation_count() {
                let struck = left.crash(CrashMode::KeepAll, inner);
                struck.crash_inside(inner);
                drop(reopen(&struck));
                for seed in 0..SEEDS {
                    let context = format!("{point}, {mode:?}, then {inner}, seed {seed}");
                    let again = struck.crash(CrashMode::RandomSectors, seed);
                    check_recovery(&again, &told, &context);
                }
            }
        }
    }
}

#[test]
fn every_failing_call_loses_nothing_that_was_acknowledged() {
    const CALLS: &[Operation] = &[
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::SyncDir,
        Operation::Preallocate,
        Operation::Rename,
        Operation::Remove,
        Operation::List,
        Operation::Exists,
    ];
    let rehearsal = disk(1);
    let start: Vec<u64> = CALLS.iter().map(|call| rehearsal.count_of(*call)).collect();
    run(&rehearsal);
    let effects = [
        FaultEffect::Error(ErrorKind::Other),
        FaultEffect::Error(ErrorKind::StorageFull),
        FaultEffect::ErrorAfterwards(ErrorKind::Other),
        FaultEffect::Short,
    ];
    let mut struck = 0;
    for (call, start) in CALLS.iter().zip(start) {
        for skip in 0..rehearsal.count_of(*call) - start {
            for effect in effects {
                let storage = disk(skip);
                storage.arm(FaultPlan::new().rule(FaultRule::new(effect).on(&[*call]).skip(skip)));
                let told = run(&storage);
                struck += storage.fault_count();
                storage.disarm();
                for mode in CrashMode::ALL {
                    let context = format!("{call:?} {skip} {effect:?}, then {mode:?}");
                    check_recovery(&storage.crash(mode, skip), &told, &context);
                }
            }
        }
    }
    assert!(struck > 100, "{struck} faults");
}

#[test]
fn a_failed_sync_ends_writing_until_the_log_is_reopened() {
    let storage = disk(1);
    let made = EditLog::create(shared(&storage), Path::new(DIR), ID, 1, ROOM, |_| Ok(()));
    let mut log = made.unwrap();
    log.append(b"one").unwrap();
    let fault = FaultRule::new(FaultEffect::Error(ErrorKind::Other)).on(&[Operation::Sync]);
    storage.arm(FaultPlan::new().rule(fault));
    assert!(matches!(log.append(b"two").unwrap_err(), Error::Io { action: "sync", .. }));
    for refused in [log.append(b"three"), log.rotate(ROOM, |_| Ok(())), log.settle()] {
        assert!(matches!(refused.unwrap_err(), Error::ReadOnly { .. }));
    }
    drop(log);
    let (mut log, state) = reopen(&storage).unwrap();
    assert_eq!(state, [b"one".to_vec(), b"two".to_vec()], "as the operating system shows it");
    log.append(b"three").unwrap();
    drop(log);
    let (_, state) = reopen(&storage.crash(CrashMode::DropAll, 1)).unwrap();
    assert_eq!(state, [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
}

#[test]
fn a_full_disk_stops_a_rotation_and_nothing_else() {
    let storage = disk(1);
    let made = EditLog::create(shared(&storage), Path::new(DIR), ID, 1, ROOM, |_| Ok(()));
    let mut log = made.unwrap();
    storage.set_capacity(storage.allocated_bytes());
    log.append(b"one").unwrap();
    let full = log.rotate(ROOM, |_| Ok(())).unwrap_err();
    assert!(matches!(full, Error::DiskFull { .. }), "{full}");
    log.append(b"two").unwrap();
    storage.set_capacity(u64::MAX);
    log.rotate(ROOM, |sink| sink.part(b"both")).unwrap();
    drop(log);
    assert_eq!(reopen(&storage).unwrap().1, [b"both".to_vec()]);
}
