//! What a crash leaves, by number: even numbers ask the simulation for one of its modes, odd ones
//! choose among the unsynced changes here.
//!
//! Two generators, because one that has a blind spot hides the same mistakes from every test that
//! uses it. The one here knows nothing of sectors or of the difference between data and metadata:
//! it takes all subsets in turn while there are few, and else biased random ones; and it may let
//! the write at hand be done in part.

use std::collections::BTreeSet;

use lithedb::storage::{CrashMode, OpenMode, Operation, SimStorage, Storage};

use crate::random::Random;
use crate::timeline::Survival;
use crate::watched::Mutation;

/// All subsets of up to this many changes are taken in turn.
const EXHAUSTIVE_CHANGES_MAX: usize = 12;

/// A disk after a crash.
pub(crate) struct CrashState {
    /// How it came about.
    pub what: String,
    /// What must be there.
    pub survival: Survival,
    /// The disk.
    pub storage: SimStorage,
}

/// The state with this number at this moment, before `mutation` is done.
pub(crate) fn numbered(
    storage: &SimStorage,
    mutation: Option<&Mutation<'_>>,
    number: u64,
    seed: u64,
) -> CrashState {
    let mut random = Random::new(seed);
    if number.is_multiple_of(2) {
        return by_mode(storage, number / 2, random.draw());
    }
    let torn = mutation.filter(|_| random.chance(400)).and_then(|mutation| {
        let copy = storage.duplicate();
        do_in_part(&copy, mutation, &mut random).map(|done| (copy, done))
    });
    match torn {
        Some((copy, done)) => {
            let mut state = by_choice(&copy, number / 2, &mut random);
            state.what = format!("{} with {done}", state.what);
            state
        }
        None => by_choice(storage, number / 2, &mut random),
    }
}

fn by_mode(storage: &SimStorage, number: u64, seed: u64) -> CrashState {
    let mode = CrashMode::ALL[(number % CrashMode::ALL.len() as u64) as usize];
    let survival =
        if mode == CrashMode::KeepAll { Survival::Acknowledged } else { Survival::Durable };
    CrashState { what: format!("{mode:?}"), survival, storage: storage.crash(mode, seed) }
}

fn by_choice(storage: &SimStorage, number: u64, random: &mut Random) -> CrashState {
    let count = storage.unsynced_count();
    let kept: BTreeSet<usize> = if count <= EXHAUSTIVE_CHANGES_MAX && number < 1 << count {
        (0..count).filter(|index| number >> index & 1 == 1).collect()
    } else {
        choose(count, random)
    };
    let storage = storage.crash_keeping(|index| kept.contains(&index));
    let what = format!("only {} of {count} changes, {kept:?}", kept.len());
    CrashState { what, survival: Survival::Durable, storage }
}

fn choose(count: usize, random: &mut Random) -> BTreeSet<usize> {
    if count == 0 {
        return BTreeSet::new();
    }
    let one = random.index(count);
    match random.below(6) {
        0 => (0..count).filter(|index| *index != one).collect(),
        1 => BTreeSet::from([one]),
        2 => (one..count).collect(),
        // A window that never made it.
        3 => {
            let end = one + 1 + random.index(count - one);
            (0..count).filter(|index| !(one..end).contains(index)).collect()
        }
        4 => (0..count).filter(|_| random.chance(900)).collect(),
        _ => {
            let odds = random.pick(&[100, 500]);
            (0..count).filter(|_| random.chance(odds)).collect()
        }
    }
}

/// Does a part of a write, or all of another mutation, on a copy. `None` when it cannot be done
/// by name.
fn do_in_part(copy: &SimStorage, mutation: &Mutation<'_>, random: &mut Random) -> Option<String> {
    match (mutation.operation, mutation.write) {
        (Operation::Write, Some((offset, bytes))) if !bytes.is_empty() => {
            let count = 1 + random.index(bytes.len());
            let file = copy.open(mutation.path, OpenMode::ReadWrite).ok()?;
            file.write_all_at(&bytes[..count], offset).ok()?;
            Some(format!("{count} of {} bytes at {offset}", bytes.len()))
        }
        (Operation::Remove, _) => {
            copy.remove_file(mutation.path).ok()?;
            Some("the removal".to_string())
        }
        (Operation::Sync, _) => {
            copy.open(mutation.path, OpenMode::ReadWrite).ok()?.sync().ok()?;
            Some("the sync".to_string())
        }
        (Operation::SyncDir, _) => {
            copy.sync_dir(mutation.path).ok()?;
            Some("the sync of the directory".to_string())
        }
        _ => None,
    }
}
