//! Cleaning value files: the live values of those with much garbage are moved, an interval's at a
//! time, and the files go when the last version that needs them does.
//!
//! In the background a slice at a time, at a pace, when garbage is more than a share of what is
//! live; all that is worth it by [`crate::Db::vacuum`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use crate::base::{Result, Slice};
use crate::db::background::caught;
use crate::db::core::{Core, lock};
use crate::db::state::Runtime;
use crate::jobs::{Aim, ValueFileFigures, files_to_clean};
use crate::structure::flex::Moving;
use crate::value_log::Mover;

/// Bytes that a slice writes.
const SLICE_BYTES: u64 = 8 << 20;
/// Bytes a second that cleaning in the background writes at most.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// What a slice takes at that pace.
const SLICE_TIME: Duration = Duration::from_millis(1000 * SLICE_BYTES / BYTES_PER_SECOND);

/// Cleaning in the background.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    /// Whether garbage may have come to light since it was last looked for.
    may_have_garbage: AtomicBool,
    round: Mutex<Option<CleaningRound>>,
    /// When the next slice may begin.
    not_before: Mutex<Duration>,
}

impl Cleaning {
    /// Says that something may have become garbage.
    pub(super) fn note_garbage(&self) {
        self.may_have_garbage.store(true, Ordering::Relaxed);
    }

    /// Ends the round that is under way.
    pub(super) fn give_up(&self) {
        drop(lock(&self.round).take());
    }

    /// How long a thread without work may wait, if it may wait for `longest`.
    pub(super) fn wait_at_most(&self, longest: Duration) -> Duration {
        if lock(&self.round).is_some() { longest.min(SLICE_TIME) } else { longest }
    }
}

/// A walk through all keyspaces that moves values out of some files.
#[derive(Debug)]
pub(super) struct CleaningRound {
    pub mover: Mover,
    /// Keyspaces that are still to be gone through, the one at hand last.
    left: Vec<Arc<Runtime>>,
    /// Where that one goes on.
    from: Slice,
}

impl CleaningRound {
    /// The keyspace at hand.
    pub(super) fn at_hand(&self) -> Option<&Arc<Runtime>> {
        self.left.last()
    }
}

/// What a slice of a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleaned {
    Slice,
    /// A flush of the keyspace at hand is under way.
    Busy,
    /// The round is over.
    Everything,
}

impl Core {
    /// Bytes that entries point to, by value file.
    pub(super) fn value_bytes(&self) -> BTreeMap<u64, u64> {
        let mut sums = BTreeMap::new();
        for keyspace in &self.published.state().keyspaces {
            for (file, bytes) in &*keyspace.runtime.store.value_bytes() {
                *sums.entry(*file).or_default() += bytes;
            }
            keyspace.tables().for_each(|table| table.add_value_bytes(&mut sums));
        }
        sums
    }

    /// A round for the files that are worth it; `None` if there are none.
    pub(super) fn begin_cleaning(&self, aim: Aim) -> Option<CleaningRound> {
        let live = self.value_bytes();
        let written_to = self.values.written_to();
        let files = self.values.files();
        let figures: Vec<ValueFileFigures> = files
            .iter()
            .filter(|file| !written_to.contains(&file.number()) && !file.is_damaged())
            .map(|file| {
                let number = file.number();
                let live = live.get(&number).copied().unwrap_or(0);
                ValueFileFigures { number, size: file.size(), live }
            })
            .collect();
        let victims = files_to_clean(&figures, aim);
        if victims.is_empty() {
            return None;
        }
        // A value that is put again meanwhile must not keep its file.
        files.iter().filter(|file| victims.contains(&file.number())).for_each(|file| file.shun());
        let mover = Mover::new(&self.values, victims);
        Some(CleaningRound { mover, left: self.runtimes(), from: Slice::default() })
    }

    /// Does a slice of a round, if nobody flushes the keyspace at hand.
    pub(super) fn clean_slice(&self, round: &mut CleaningRound) -> Result<Cleaned> {
        while let Some(runtime) = round.left.last().map(Arc::clone) {
            let _turn = match runtime.flushing.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(Cleaned::Busy),
            };
            self.check_open()?; // Under the turn, which closing waits for.
            if runtime.dropped.load(Ordering::Acquire) {
                round.left.pop();
                continue;
            }
            let moved = runtime.store.move_values(&mut round.mover, &round.from, SLICE_BYTES);
            let next = match moved.inspect_err(|error| self.note_idle_failure(error))? {
                Moving::FlushUnderWay => return Ok(Cleaned::Busy),
                Moving::Nothing => None,
                Moving::Slice { version, next } => {
                    self.publish_version(&runtime, &version);
                    Some(next)
                }
            };
            match &next {
                Some(Some(from)) => round.from = from.clone(),
                Some(None) | None => {
                    round.left.pop();
                    round.from = Slice::default();
                }
            }
            if next.is_some() {
                return Ok(Cleaned::Slice);
            }
        }
        Ok(Cleaned::Everything)
    }

    /// A slice of cleaning in the background; `false` when none is due.
    pub(super) fn clean_in_background(&self) -> Result<bool> {
        if self.poison().is_some() {
            return Ok(false);
        }
        let Some(mut round) = self.take_round() else { return Ok(false) };
        // What fails ends the round; the mover goes after the failure was noted, for what it has
        // written may be referred to.
        match self.clean_slice(&mut round)? {
            Cleaned::Everything => Ok(false),
            outcome => {
                *lock(&self.cleaning.round) = Some(round);
                Ok(outcome == Cleaned::Slice)
            }
        }
    }

    fn take_round(&self) -> Option<CleaningRound> {
        if let Some(round) = lock(&self.cleaning.round).take() {
            return Some(round);
        }
        // Taken back first: what comes to light meanwhile is looked for again.
        if !self.cleaning.may_have_garbage.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.begin_cleaning(Aim::Bounded)
    }

    /// As [`Core::clean_in_background`], not faster than it may; whether something was done.
    pub(super) fn clean_at_a_pace(&self) -> bool {
        let now = self.clock.monotonic();
        if now < *lock(&self.cleaning.not_before) {
            return false;
        }
        let before = self.values.bytes_written();
        let done = caught(self, || self.clean_in_background());
        let bytes = self.values.bytes_written().saturating_sub(before);
        let pause = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND as f64);
        *lock(&self.cleaning.not_before) = now + pause;
        matches!(done, Ok(true))
    }
}
