//! What was synced survives every crash, and nothing appears that nobody wrote: an oracle that
//! remembers every state since the last sync, and knows nothing about sectors or modes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;
use crate::base::{Entropy, SeededEntropy};
use crate::storage::sim::{FaultEffect, FaultPlan, FaultRule, Operation};

const NAMES: [&str; 3] = ["x", "y", "z"];
const RUN_COUNT: u64 = 60;
const STEP_COUNT: u64 = 60;
const CRASHES_PER_MODE: u64 = 4;
const SIZE_MAX: u64 = 3000;

/// All that a file was since its last sync; the first one is what that sync saw.
type FileStates = Vec<Vec<u8>>;

#[derive(Default)]
struct Oracle {
    files: BTreeMap<u64, FileStates>,
    names: BTreeMap<&'static str, u64>,
    /// For each name, all that it stood for since the last sync of the directory.
    names_since_sync: BTreeMap<&'static str, BTreeSet<Option<u64>>>,
    created_count: u64,
}

impl Oracle {
    fn note_names(&mut self) {
        for name in NAMES {
            let since_sync = self.names_since_sync.entry(name).or_default();
            since_sync.insert(self.names.get(name).copied());
        }
    }

    fn note_state(&mut self, file: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let states = self.files.get_mut(&file).unwrap();
        let mut next = states.last().unwrap().clone();
        change(&mut next);
        states.push(next);
    }

    fn allows(&self, after: &SimStorage) -> Result<(), String> {
        let mut claimed = BTreeSet::new();
        for name in NAMES {
            let found = contents(after, name);
            let possible = &self.names_since_sync[name];
            let fits = possible.iter().any(|file| match (file, &found) {
                (None, None) => true,
                (Some(file), Some(bytes)) => could_be(bytes, &self.files[file]),
                _ => false,
            });
            if !fits {
                return Err(format!("{name} is {found:?}, of {possible:?}"));
            }
            // A file that only one name can have stood for must not come twice.
            if let (Some(_), [Some(file)]) = (found, &*possible.iter().collect::<Vec<_>>())
                && !claimed.insert(*file)
            {
                return Err(format!("{name} is a second name"));
            }
        }
        Ok(())
    }
}

/// Whether each byte, and the length, is of some state; a byte may be zero if some state was too
/// short to have it.
fn could_be(bytes: &[u8], states: &FileStates) -> bool {
    states.iter().any(|state| state.len() == bytes.len())
        && bytes.iter().enumerate().all(|(index, byte)| {
            states.iter().any(|state| match state.get(index) {
                Some(stored) => stored == byte,
                None => *byte == 0,
            })
        })
}

/// One step on the storage and in the oracle.
fn step(storage: &SimStorage, oracle: &mut Oracle, random: &SeededEntropy) {
    let below = |end: u64| random.next_u64() % end;
    let name = NAMES[below(3) as usize];
    let path = Path::new(name);
    let Some(&file) = oracle.names.get(name) else {
        create(storage, name);
        let file = oracle.created_count;
        oracle.created_count += 1;
        oracle.files.insert(file, vec![Vec::new()]);
        oracle.names.insert(name, file);
        return oracle.note_names();
    };
    match below(10) {
        0..=4 => {
            let offset = below(SIZE_MAX);
            let bytes = vec![below(255) as u8 + 1; below(SIZE_MAX) as usize];
            let handle = storage.open(path, OpenMode::ReadWrite).unwrap();
            handle.write_all_at(&bytes, offset).unwrap();
            let end = offset as usize + bytes.len();
            oracle.note_state(file, |state| {
                if !bytes.is_empty() && state.len() < end {
                    state.resize(end, 0);
                }
                if !bytes.is_empty() {
                    state[offset as usize..end].copy_from_slice(&bytes);
                }
            });
        }
        5 => {
            let len = below(SIZE_MAX);
            storage.open(path, OpenMode::ReadWrite).unwrap().set_len(len).unwrap();
            oracle.note_state(file, |state| state.resize(len as usize, 0));
        }
        6 => {
            storage.open(path, OpenMode::ReadWrite).unwrap().sync().unwrap();
            let states = oracle.files.get_mut(&file).unwrap();
            states.drain(..states.len() - 1);
        }
        7 => {
            storage.sync_dir(Path::new("/")).unwrap();
            oracle.names_since_sync.clear();
            oracle.note_names();
        }
        8 => {
            storage.remove_file(path).unwrap();
            oracle.names.remove(name);
            oracle.note_names();
        }
        _ => {
            let other = NAMES[below(3) as usize];
            storage.rename(path, Path::new(other)).unwrap();
            oracle.names.remove(name);
            oracle.names.insert(other, file);
            oracle.note_names();
        }
    }
}

#[test]
fn what_was_synced_survives_every_crash_and_nothing_else_appears() {
    for seed in 0..RUN_COUNT {
        let random = SeededEntropy::new(seed);
        let storage = SimStorage::new(seed);
        let mut oracle = Oracle::default();
        oracle.note_names();
        for step_index in 0..STEP_COUNT {
            step(&storage, &mut oracle, &random);
            for mode in CrashMode::ALL {
                for crash_seed in 0..CRASHES_PER_MODE {
                    let after = storage.crash(mode, crash_seed << 32 | step_index);
                    if let Err(problem) = oracle.allows(&after) {
                        panic!("seed {seed}, step {step_index}, {mode:?} {crash_seed}: {problem}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_a_crash_left_is_durable_from_then_on() {
    for seed in 0..RUN_COUNT {
        let random = SeededEntropy::new(seed);
        let storage = SimStorage::new(seed);
        let mut oracle = Oracle::default();
        for _ in 0..STEP_COUNT {
            step(&storage, &mut oracle, &random);
        }
        for mode in POWER_CUTS {
            let after = storage.crash(mode, seed);
            assert_eq!(after.unsynced_count(), 0);
            for second in CrashMode::ALL {
                assert_eq!(everything(&after.crash(second, seed)), everything(&after));
            }
        }
    }
}

#[test]
fn a_name_is_durable_only_with_its_directory() {
    let storage = SimStorage::new(1);
    storage.create_dir_all(Path::new("/d/e")).unwrap();
    let file = create(&storage, "/d/e/a");
    file.write_all_at(b"bytes", 0).unwrap();
    file.sync().unwrap();
    for directory in ["/d/e", "/d", "/"] {
        assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/d/e/a"), None);
        storage.sync_dir(Path::new(directory)).unwrap();
    }
    assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/d/e/a").unwrap(), b"bytes");
}

#[test]
fn a_removal_is_durable_only_with_its_directory() {
    let storage = SimStorage::new(1);
    drop(create_durable(&storage, "/a", b"bytes"));
    storage.remove_file(Path::new("/a")).unwrap();
    assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap(), b"bytes");
    assert_eq!(contents(&storage.crash(CrashMode::KeepAll, 0), "/a"), None);
    storage.sync_dir(Path::new("/")).unwrap();
    for mode in CrashMode::ALL {
        assert_eq!(contents(&storage.crash(mode, 0), "/a"), None);
    }
}

#[test]
fn a_failed_sync_drops_its_data_and_the_next_one_claims_success() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", b"old");
    file.write_all_at(b"new", 0).unwrap();
    storage
        .arm(FaultPlan::new().rule(FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::Sync])));
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().unwrap();
    assert_eq!(contents(&storage, "/a").unwrap(), b"new");
    for mode in POWER_CUTS {
        for seed in 0..SEED_COUNT {
            assert_eq!(contents(&storage.crash(mode, seed), "/a").unwrap(), b"old");
        }
    }
    file.write_all_at(b"!", 2).unwrap();
    file.sync().unwrap();
    assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap(), b"ol!");
}

#[test]
fn a_failed_sync_of_a_directory_drops_its_names() {
    let storage = SimStorage::new(1);
    create(&storage, "/a").sync().unwrap();
    storage.arm(
        FaultPlan::new().rule(FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::SyncDir])),
    );
    storage.sync_dir(Path::new("/")).unwrap_err();
    storage.sync_dir(Path::new("/")).unwrap();
    assert!(storage.exists(Path::new("/a")).unwrap());
    assert_eq!(contents(&storage.crash(CrashMode::Prefix, 0), "/a"), None);
}

#[test]
fn a_sync_that_lies_leaves_the_data_for_an_honest_one() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", b"old");
    file.write_all_at(b"new", 0).unwrap();
    storage.arm(FaultPlan::new().rule(FaultRule::new(FaultEffect::LieSync)));
    file.sync().unwrap();
    assert_eq!(storage.fault_count(), 1);
    assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap(), b"old");
    file.sync().unwrap();
    assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap(), b"new");
}
