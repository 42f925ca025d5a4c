//! Cleaning value files: the live values of those with much garbage are moved, an interval's at a
//! time, and the files go when the last version that needs them does.
//!
//! In the background a slice at a time, at a pace, when garbage is more than a share of what is
//! live; between flushes, when that does not keep step with what comes; all that is worth it by
//! [`crate::Db::vacuum`]. [`crate::Cleaning`] says which of these.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Mutex, TryLockError};
use crate::base::{Error, Result, Slice};
use crate::db::background::caught;
use crate::db::core::{Core, lock};
use crate::db::health::BackgroundWork as Work;
use crate::db::options::{Cleaning, CleaningPolicy};
use crate::db::state::State;
use crate::jobs::{Aim, GarbageFigures, RoundPace, ValueFileFigures, files_to_clean};
use crate::structure::Moving;
use crate::value_log::Mover;

/// Bytes that a slice writes.
const SLICE_BYTES: u64 = 8 << 20;

/// A flush waits for so many bytes at most for each byte of values that was flushed since one last
/// did: what has to be written for a byte that is given back where a third of a file is garbage.
/// What is behind by more is caught up with over several flushes, and stops nobody for long.
const MOVED_PER_FLUSHED_MAX: u64 = 2;

/// Reading ahead counts as a fraction of writing as much: it comes in large pieces.
const READ_FRACTION: u64 = 4;

/// Rounds that a flush waits for at most: files that some snapshot's entries keep filling up are no
/// reason to stop the writers for ever.
const ROUNDS_WITH_FLUSH_MAX: usize = 8;
/// In which somebody else was found flushing the keyspace at hand so often at most: a flush has
/// some slices.
const BUSY_WITH_FLUSH_MAX: usize = 32;

/// How far cleaning is.
#[derive(Debug)]
pub(super) struct Cleaner {
    // Constant.
    policy: CleaningPolicy,
    // Guarded by their locks, atomic.
    /// Whether garbage may have come to light since it was last looked for.
    may_have_garbage: AtomicBool,
    /// The round that is under way and that nobody is at.
    round: Mutex<Option<CleaningRound>>,
    /// Held by the thread that is at a round: another would begin one beside it.
    turn: Mutex<()>,
    /// What the last round left to the next to make up for.
    owed: AtomicU64,
    /// Bytes of values that were flushed since a flush last waited for cleaning.
    flushed: AtomicU64,
    round_count: AtomicU64,
    /// Of the background.
    bytes_per_second: AtomicU64,
    /// When the next slice in the background may begin.
    not_before: Mutex<Duration>,
}

impl Cleaner {
    pub(super) fn new(policy: CleaningPolicy) -> Cleaner {
        Cleaner {
            bytes_per_second: AtomicU64::new(policy.bytes_per_second),
            policy,
            may_have_garbage: AtomicBool::new(false),
            round: Mutex::default(),
            turn: Mutex::default(),
            owed: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            round_count: AtomicU64::new(0),
            not_before: Mutex::default(),
        }
    }

    /// Whether anything is done when nobody waits for it.
    pub(super) fn is_in_background(&self) -> bool {
        self.policy.mode == Cleaning::Background
    }

    /// How long `bytes` take at the pace of the background.
    pub(super) fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate() as f64)
    }

    /// Bytes a second that the background writes at most.
    pub(super) fn rate(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Sets the rate; what is waited for on account of the one before is not waited for any more.
    pub(super) fn set_rate(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
        *lock(&self.not_before) = Duration::ZERO;
    }

    /// The share of garbage from which on flushes wait for cleaning.
    fn share_with_flush(&self) -> Option<f64> {
        match self.policy.mode {
            Cleaning::Background | Cleaning::WithFlush => Some(self.policy.garbage_share),
            Cleaning::OnDemand => None,
        }
    }

    fn aim(&self) -> Aim {
        Aim::Bounded(self.policy.garbage_share)
    }

    /// Rounds begun since opening.
    pub(super) fn round_count(&self) -> u64 {
        self.round_count.load(Ordering::Relaxed)
    }

    /// Says that something may have become garbage.
    pub(super) fn note_garbage(&self) {
        self.may_have_garbage.store(true, Ordering::Relaxed);
    }

    /// Says that entries were flushed which point to so many bytes.
    pub(super) fn note_flushed(&self, value_bytes: u64) {
        self.flushed.fetch_add(value_bytes, Ordering::Relaxed);
    }

    /// Bytes that may be waited for on account of what was flushed since this was last asked.
    fn take_allowance(&self) -> u64 {
        let flushed = self.flushed.swap(0, Ordering::Relaxed);
        flushed.saturating_mul(MOVED_PER_FLUSHED_MAX).max(SLICE_BYTES)
    }

    /// Ends the round that is under way.
    pub(super) fn give_up(&self) {
        drop(lock(&self.round).take());
    }

    /// How long a thread without work may wait, if it may wait for `longest`.
    pub(super) fn wait_at_most(&self, longest: Duration, now: Duration) -> Duration {
        if !self.is_in_background() || lock(&self.round).is_none() {
            return longest;
        }
        // Not at all would be a loop while a flush is in the way.
        const SHORTEST: Duration = Duration::from_millis(10);
        longest.min(lock(&self.not_before).saturating_sub(now).max(SHORTEST))
    }
}

/// A walk through all keyspaces that moves values out of some files.
#[derive(Debug)]
pub(super) struct CleaningRound {
    pub mover: Mover,
    /// How far it has to be for flushes to go on.
    pace: RoundPace,
    /// Numbers of stores that are still to be gone through, the one at hand last. They are not
    /// held: one that is dropped must be able to go.
    left: Vec<u32>,
    /// Where that one goes on.
    from: Slice,
}

/// What a slice of a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleaned {
    /// What is to be moved is being read; that is as good as so many bytes written.
    ReadOn { bytes: u64 },
    /// So many bytes were written.
    Slice { bytes: u64 },
    /// Another thread is at the keyspace at hand.
    Busy,
    /// The round is over.
    Everything,
}

impl Core {
    /// Bytes that entries point to, by value file: those of runs, and those of memtables.
    pub(super) fn value_bytes(&self) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
        let (mut of_runs, mut of_tables) = (BTreeMap::new(), BTreeMap::new());
        for keyspace in &self.published.state().keyspaces {
            for (file, bytes) in &*keyspace.runtime.store.value_bytes() {
                *of_runs.entry(*file).or_default() += bytes;
            }
            keyspace.tables().for_each(|table| table.add_value_bytes(&mut of_tables));
        }
        (of_runs, of_tables)
    }

    /// The files that may be emptied.
    fn value_file_figures(&self) -> Vec<ValueFileFigures> {
        let (of_runs, of_tables) = self.value_bytes();
        let bytes_in = |sums: &BTreeMap<u64, u64>, number| sums.get(&number).copied().unwrap_or(0);
        let written_to = self.values.written_to();
        let files = self.values.files();
        let files = files
            .iter()
            .filter(|file| !written_to.contains(&file.number()) && !file.is_damaged())
            .map(|file| {
                let number = file.number();
                let movable = bytes_in(&of_runs, number);
                let live = movable + bytes_in(&of_tables, number);
                ValueFileFigures { number, size: file.size(), live, movable }
            });
        files.collect()
    }

    /// A round for the files that are worth it; `None` if there are none.
    pub(super) fn begin_cleaning(&self, aim: Aim) -> Option<CleaningRound> {
        let figures = self.value_file_figures();
        let victims = files_to_clean(&figures, aim);
        self.begin_emptying(victims, aim)
    }

    /// A round that empties these files; `None` if there are none.
    pub(super) fn begin_emptying(&self, victims: BTreeSet<u64>, aim: Aim) -> Option<CleaningRound> {
        let figures = self.value_file_figures();
        if victims.is_empty() {
            return None;
        }
        self.cleaning.round_count.fetch_add(1, Ordering::Relaxed);
        let files = self.values.files();
        // A value that is put again meanwhile must not keep its file.
        files.iter().filter(|file| victims.contains(&file.number())).for_each(|file| file.shun());
        let owed = match aim {
            Aim::Bounded(_) => self.cleaning.owed.swap(0, Ordering::Relaxed),
            Aim::Thorough => 0,
        };
        let pace = RoundPace::of(&figures, &victims, owed);
        let mut mover = Mover::new(&self.values, victims);
        mover.read_first(self.cleaning.policy.read_first_max);
        let left = self.runtimes().iter().map(|runtime| runtime.store_id).collect();
        Some(CleaningRound { mover, pace, left, from: Slice::default() })
    }

    /// Does a slice of a round, if nobody flushes the keyspace at hand.
    pub(super) fn clean_slice(&self, round: &mut CleaningRound) -> Result<Cleaned> {
        let read = round.mover.read_on(SLICE_BYTES);
        if read > 0 {
            return Ok(Cleaned::ReadOn { bytes: read / READ_FRACTION });
        }
        while let Some(store_id) = round.left.last() {
            let Some(runtime) = self.runtime_with_store(*store_id) else {
                round.left.pop();
                round.from = Slice::default();
                continue;
            };
            let _turn = match runtime.flushing.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => match self.put_off_archiving(round) {
                    true => continue,
                    false => return Ok(Cleaned::Busy),
                },
            };
            self.check_open()?; // Under the turn, which closing waits for.
            let order = (SLICE_BYTES, self.now_for(&runtime));
            let (mover, from) = (&mut round.mover, &round.from);
            let moved = self.in_work("cleaning", || runtime.store.move_values(mover, from, order));
            let (next, bytes) = match moved.inspect_err(|error| self.follow_idle_failure(error))? {
                Moving::Busy => return Ok(Cleaned::Busy),
                Moving::Nothing => (None, None),
                Moving::Slice { version, next, bytes } => {
                    self.failures.solved(Work::Cleaning, runtime.id);
                    self.publish_version(&runtime, &version);
                    (next, Some(bytes))
                }
            };
            match next {
                Some(from) => round.from = from,
                None => {
                    round.left.pop();
                    round.from = Slice::default();
                }
            }
            if let Some(bytes) = bytes {
                return Ok(Cleaned::Slice { bytes });
            }
        }
        Ok(Cleaned::Everything)
    }

    /// A slice of cleaning in the background; the bytes that it wrote, `None` when none is due.
    pub(super) fn clean_in_background(&self) -> Result<Option<u64>> {
        if self.poison().is_some() || !self.cleaning.is_in_background() {
            return Ok(None);
        }
        let Some(_working) = self.pauses.begin_work() else { return Ok(None) };
        let _turn = match self.cleaning.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let Some(mut round) = self.take_round() else { return Ok(None) };
        // What fails ends the round.
        let cleaned = self.clean_slice(&mut round);
        let cleaned = cleaned.inspect_err(|error| self.note_cleaning_failed(&round, error))?;
        match cleaned {
            Cleaned::Everything => self.note_round_over(&round),
            _ => *lock(&self.cleaning.round) = Some(round),
        }
        match cleaned {
            Cleaned::ReadOn { bytes } | Cleaned::Slice { bytes } => Ok(Some(bytes)),
            Cleaned::Busy | Cleaned::Everything => Ok(None),
        }
    }

    /// Cleans until there is not too much garbage for flushes to go on, or cleaning keeps step with
    /// what comes, or as much was moved as this flush should wait for. Room can be done without:
    /// what fails here fails nothing else, unless the disk does. Returns how long cleaning took,
    /// without what it waited for.
    pub(super) fn clean_with_flush(&self) -> Duration {
        let mut took = Duration::ZERO;
        let mut allowance = self.cleaning.take_allowance();
        let Some(share) = self.cleaning.share_with_flush() else { return took };
        let garbage = || GarbageFigures::of(&self.value_file_figures());
        let is_of_use = || !self.values.is_empty() && !self.pauses.is_paused();
        if !is_of_use() || self.check_writable().is_err() {
            return took;
        }
        if !garbage().exceed(share) {
            self.failures.all_solved(Work::Cleaning); // It is not wanted.
            return took;
        }
        let _turn = lock(&self.cleaning.turn);
        let mut begun = lock(&self.cleaning.round).take();
        let mut needs_slice = garbage().exceed_by_far(share);
        let mut busy_left = BUSY_WITH_FLUSH_MAX;
        for _ in 0..ROUNDS_WITH_FLUSH_MAX {
            let next = begun.take().or_else(|| self.begin_cleaning(self.cleaning.aim()));
            let Some(mut round) = next else {
                self.failures.all_solved(Work::Cleaning);
                break;
            };
            loop {
                let beside = self.garbage_beside(&round);
                let is_kept = round.pace.is_kept(beside, round.mover.moved_bytes(), share);
                let working = self.pauses.begin_work();
                if (is_kept && !needs_slice) || allowance == 0 || working.is_none() {
                    // It goes on in the background, or with the next flush.
                    *lock(&self.cleaning.round) = Some(round);
                    return took;
                }
                let began = self.clock.monotonic();
                let cleaned = self.clean_slice(&mut round);
                took += self.clock.monotonic().saturating_sub(began);
                needs_slice &= matches!(cleaned, Ok(Cleaned::ReadOn { .. }));
                let cleaned = cleaned.inspect_err(|error| self.note_cleaning_failed(&round, error));
                match cleaned {
                    Ok(Cleaned::ReadOn { bytes } | Cleaned::Slice { bytes }) => {
                        allowance = allowance.saturating_sub(bytes);
                    }
                    Ok(Cleaned::Everything) => break self.note_round_over(&round),
                    // Of other keyspaces' flushes none is to wait for an ingest to be archived, nor
                    // for ever for one that is written to all the time.
                    Ok(Cleaned::Busy) if busy_left == 0 || self.is_archiving(&round) => {
                        *lock(&self.cleaning.round) = Some(round);
                        return took;
                    }
                    Ok(Cleaned::Busy) if self.finish_flush(&round).is_ok() => busy_left -= 1,
                    // What is left of it is no reason to stop the writers.
                    Ok(Cleaned::Busy) | Err(_) => return took,
                }
            }
        }
        took
    }

    /// Notes for people that cleaning has failed that nobody has asked for.
    #[cold]
    fn note_cleaning_failed(&self, round: &CleaningRound, error: &Error) {
        let runtime = round.left.last().and_then(|store_id| self.runtime_with_store(*store_id));
        self.note_failed(Work::Cleaning, runtime.map(|runtime| runtime.id), error);
    }

    /// Garbage beside that of the files which the round empties.
    fn garbage_beside(&self, round: &CleaningRound) -> GarbageFigures {
        GarbageFigures::beside(&self.value_file_figures(), round.mover.victims())
    }

    fn note_round_over(&self, round: &CleaningRound) {
        let share = self.cleaning.policy.garbage_share;
        let owed = round.pace.owed_to_the_next(self.garbage_beside(round), share);
        self.cleaning.owed.store(owed, Ordering::Relaxed);
    }

    /// Whether the keyspace that a round is at has something to be archived, which may take long.
    fn is_archiving(&self, round: &CleaningRound) -> bool {
        let state = self.published.state();
        round.left.last().is_some_and(|store_id| has_unarchived(&state, *store_id))
    }

    /// Has a round go on with another keyspace first, if what it is at has something to be archived
    /// and there is one that has not; it begins again there later. Whether it has.
    fn put_off_archiving(&self, round: &mut CleaningRound) -> bool {
        let state = self.published.state();
        let is_free = |store_id: &u32| !has_unarchived(&state, *store_id);
        let Some(free) = round.left.iter().rposition(is_free) else { return false };
        if !self.is_archiving(round) {
            return false;
        }
        let next = round.left.remove(free);
        round.left.push(next);
        round.from = Slice::default();
        true
    }

    /// Does a slice of the flush that is in the way of a round.
    pub(super) fn finish_flush(&self, round: &CleaningRound) -> Result<()> {
        let runtime = round.left.last().and_then(|store_id| self.runtime_with_store(*store_id));
        let Some(runtime) = runtime else { return Ok(()) };
        if self.leaves_flush_to_conversion(&runtime) {
            return Ok(());
        }
        let _turn = lock(&runtime.flushing);
        let flushed = self.flush_oldest(runtime.id);
        flushed.map(drop).inspect_err(|error| self.note_work_failure(error))
    }

    fn take_round(&self) -> Option<CleaningRound> {
        if let Some(round) = lock(&self.cleaning.round).take() {
            return Some(round);
        }
        // Taken back first: what comes to light meanwhile is looked for again.
        if !self.cleaning.may_have_garbage.swap(false, Ordering::Relaxed) {
            return None;
        }
        let round = self.begin_cleaning(self.cleaning.aim());
        if round.is_none() {
            self.failures.all_solved(Work::Cleaning); // It is not wanted any more.
        }
        round
    }

    /// As [`Core::clean_in_background`], not faster than it may; whether something was done.
    pub(super) fn clean_at_a_pace(&self) -> bool {
        let now = self.clock.monotonic();
        if now < *lock(&self.cleaning.not_before) {
            return false;
        }
        let mut bytes = None;
        let done = caught(self, || {
            bytes = self.clean_in_background()?;
            Ok(bytes.is_some())
        });
        *lock(&self.cleaning.not_before) = now + self.cleaning.time_for(bytes.unwrap_or(0));
        matches!(done, Ok(true))
    }
}

fn has_unarchived(state: &State, store_id: u32) -> bool {
    state.with_store(store_id).is_some_and(|keyspace| keyspace.unarchived.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::{Clock, ManualClock};
    use crate::db::maintain::Found;
    use crate::db::{Background, Builder, Db, Durability, WriteBatch};
    use crate::manifest::KeyspaceOptions;
    use crate::storage::MemoryStorage;

    const RATE: u64 = 1 << 20;

    /// A database with garbage that the background has not looked for yet.
    fn with_garbage(clock: &Arc<ManualClock>, cleaning: Cleaning) -> Db {
        let builder = Builder::default()
            .storage(Arc::new(MemoryStorage::new()))
            .clock(Arc::clone(clock) as Arc<_>)
            .background(Background::Stepped)
            .value_file_size(1 << 20)
            .cleaning(cleaning)
            .cleaning_rate(RATE);
        let db = builder.open("/db").unwrap();
        let keyspace = db.keyspace_or_create("k").unwrap();
        for round in 0..2u32 {
            let mut batch = WriteBatch::new();
            // Every second key stays as it is, so that every file has something to move.
            for key in (0..8000u32).filter(|key| round == 0 || key % 2 == 1) {
                let value = (key ^ round << 16).to_le_bytes().repeat(1024);
                batch.put(&keyspace, key.to_be_bytes(), value);
            }
            db.write_with(batch, Durability::Buffered).unwrap();
            db.core().flush_all().unwrap();
            while !matches!(db.core().consolidate_slice_of_any().unwrap(), Found::Nothing) {}
        }
        db
    }

    #[test]
    fn the_background_keeps_to_its_rate() {
        let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
        let db = with_garbage(&clock, Cleaning::Background);
        let core = db.core();
        let (mut slices, mut moved) = (0, 0);
        let began = clock.monotonic();
        loop {
            let done = core.clean_at_a_pace();
            let now_moved = core.values.moved().1;
            if !done {
                break;
            }
            slices += 1;
            assert!(!core.clean_at_a_pace(), "not before it is time");
            assert_eq!(core.values.moved().1, now_moved);
            let wait = core.cleaning.wait_at_most(Duration::MAX, clock.monotonic());
            assert!(wait >= core.cleaning.time_for(now_moved - moved), "{wait:?}");
            moved = now_moved;
            clock.advance(wait + Duration::from_micros(1));
        }
        let took = clock.monotonic().saturating_sub(began);
        assert!(moved >= 4000 << 12 && slices > 1, "{slices} slices, {moved} bytes");
        assert!(took.as_secs_f64() >= moved as f64 / RATE as f64, "{moved} bytes in {took:?}");
    }

    #[test]
    fn what_is_behind_is_caught_up_with_over_several_flushes() {
        let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
        let db = with_garbage(&clock, Cleaning::WithFlush);
        let core = db.core();
        let moved = || core.values.moved().1;
        let is_too_much = || GarbageFigures::of(&core.value_file_figures()).exceed(0.16);
        core.cleaning.take_allowance(); // What was flushed so far has been waited for.
        let (mut calls, mut most) = (0, 0);
        while is_too_much() && calls < 100 {
            let before = moved();
            // As if the rounds before had been far behind.
            core.cleaning.owed.store(1 << 40, Ordering::Relaxed);
            core.clean_with_flush();
            core.remove_unreferenced_values();
            (calls, most) = (calls + 1, most.max(moved() - before));
        }
        assert!(!is_too_much() && calls > 1, "{calls} calls");
        assert!(most > 0 && most <= SLICE_BYTES + SLICE_BYTES / 2, "{most} bytes at once");
        // Who brings more waits for more.
        core.cleaning.note_flushed(SLICE_BYTES);
        assert_eq!(core.cleaning.take_allowance(), MOVED_PER_FLUSHED_MAX * SLICE_BYTES);
        assert_eq!(core.cleaning.take_allowance(), SLICE_BYTES);
    }

    #[test]
    fn values_are_moved_between_the_slices_of_a_flush() {
        use crate::base::{Entropy, SeededEntropy};
        let random = SeededEntropy::new(17);
        let draw = |end: u64| (random.next_u64() % end) as u32;
        let builder = Builder::default()
            .storage(Arc::new(MemoryStorage::new()))
            .background(Background::Stepped)
            .value_file_size(1 << 20)
            .flush_slice_size(2 << 10)
            .cleaning(Cleaning::OnDemand);
        let db = builder.open("/db").unwrap();
        let keyspace = db.keyspace_or_create("k").unwrap();
        let core = db.core();
        let mut model = BTreeMap::new();
        let (mut between, mut moved_between) = (0, 0);
        for round in 0..60u32 {
            let mut batch = WriteBatch::new();
            let put = |batch: &mut WriteBatch, model: &mut BTreeMap<_, _>, key: u32| {
                let len = if draw(3) == 0 { 8 } else { 2048 };
                let value = (key ^ round << 16).to_le_bytes().repeat(len);
                batch.put(&keyspace, key.to_be_bytes(), &value);
                model.insert(key, value);
            };
            (0..150).for_each(|_| put(&mut batch, &mut model, draw(2000)));
            // Of what is deleted some is put again, newer than the deletion.
            for _ in 0..draw(3) {
                let start = draw(2000);
                let end = start + 1 + draw(700);
                batch.delete_range(&keyspace, start.to_be_bytes()..end.to_be_bytes());
                model.retain(|key, _| !(start..end).contains(key));
                (0..20).for_each(|_| put(&mut batch, &mut model, start + draw(700)));
            }
            db.write_with(batch, Durability::Buffered).unwrap();
            core.seal(keyspace.id(), &core.log.lock_applier());
            loop {
                let flushed = core.flush_slice_of_any().unwrap();
                let is_between = !core.published.state().keyspaces[0].sealed.is_empty();
                if let Some(mut round) = core.begin_cleaning(Aim::Thorough) {
                    while core.clean_slice(&mut round).unwrap() != Cleaned::Everything {}
                    between += u32::from(is_between);
                    moved_between += if is_between { round.mover.moved_bytes() } else { 0 };
                }
                core.remove_unreferenced_values();
                if !flushed {
                    break;
                }
            }
            let entries = keyspace.iter().map(|entry| entry.unwrap());
            let entries = entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec()));
            let expected =
                model.iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value.clone()));
            assert!(entries.eq(expected), "in round {round}");
        }
        assert!(between > 10 && moved_between > 1 << 20, "{between}, {moved_between} bytes");
        assert!(db.check().unwrap().is_ok());
    }

    #[test]
    fn who_cleans_follows_from_the_mode() {
        for (mode, background, flush) in [
            (Cleaning::Background, true, Some(0.2)),
            (Cleaning::WithFlush, false, Some(0.2)),
            (Cleaning::OnDemand, false, None),
        ] {
            let builder = Builder::default().cleaning(mode).garbage_share(0.2);
            let cleaner = Cleaner::new(builder.cleaning_policy());
            assert_eq!(cleaner.is_in_background(), background);
            let share = cleaner.share_with_flush();
            assert_eq!(share.map(|share| (share * 1000.0).round() / 1000.0), flush);
        }
    }

    #[test]
    fn a_flush_that_cleans_does_not_wait_for_an_ingest_to_be_archived() {
        let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
        let db = with_garbage(&clock, Cleaning::WithFlush);
        let core = db.core();
        let history = db.create_keyspace("h", KeyspaceOptions::history()).unwrap();
        let mut ingest = history.begin_ingest().unwrap();
        ingest.add("a", "1").unwrap();
        ingest.finish_unarchived().unwrap();
        let runtime = history.runtime();
        // Far behind, and so that reading first does not end it.
        core.cleaning.owed.store(1 << 40, Ordering::Relaxed);
        core.cleaning.note_flushed(64 << 20);
        let (release, is_released) = std::sync::mpsc::channel();
        let (hold, is_held) = std::sync::mpsc::channel();
        let turn = Arc::clone(&runtime.flushing);
        let holder = std::thread::spawn(move || {
            let _turn = lock(&turn);
            hold.send(()).unwrap();
            // Who waits for the turn, which it must not, gets it at last.
            let _released_or_not = is_released.recv_timeout(Duration::from_secs(9)).ok();
        });
        is_held.recv().unwrap();
        let moved = core.values.moved().1;
        core.clean_with_flush();
        assert!(core.unarchived(&runtime).is_some(), "it was archived here");
        assert!(core.values.moved().1 > moved, "what others have is moved meanwhile");
        let left = lock(&core.cleaning.round).as_ref().and_then(|round| round.left.last().copied());
        assert_eq!(left, Some(runtime.store_id), "it goes on there");
        release.send(()).unwrap();
        holder.join().unwrap();
        core.flush_all().unwrap();
        core.clean_with_flush();
        assert!(core.unarchived(&runtime).is_none() && core.values.moved().1 > 0);
    }

    /// Their tables would be rewritten for it again and again.
    #[test]
    fn a_value_below_operands_is_moved_though_an_older_table_may_have_its_key() {
        let builder = Builder::default()
            .storage(Arc::new(MemoryStorage::new()))
            .background(Background::Stepped)
            .value_file_size(64 << 10)
            .cleaning(Cleaning::OnDemand);
        let db = builder.open("/db").unwrap();
        let options = KeyspaceOptions::lsm().merge_operator("append").value_separation(Some(1024));
        let merged = db.create_keyspace("merged", options.clone()).unwrap();
        let other = db.create_keyspace("other", options).unwrap();
        let keys = || (0..60_u32).map(u32::to_be_bytes);
        for key in keys() {
            merged.put(key, "old").unwrap();
        }
        db.compact().unwrap();
        for key in keys() {
            let mut batch = WriteBatch::new();
            batch.put(&merged, key, [b'v'; 4000]);
            batch.put(&other, key, [b'w'; 4000]);
            batch.merge(&merged, key, "x");
            db.write(batch).unwrap();
        }
        db.flush().unwrap();
        other.clear().unwrap();
        db.flush().unwrap();
        other.compact::<&[u8]>(..).unwrap();
        let core = db.core();
        let mut rounds = 0;
        while let Some(mut round) = core.begin_cleaning(Aim::Thorough) {
            while core.clean_slice(&mut round).unwrap() != Cleaned::Everything {}
            core.remove_unreferenced_values();
            rounds += 1;
            assert!(rounds < 10, "the same again: {} bytes were moved", core.values.moved().1);
        }
        assert!(rounds > 0);
        let value = [vec![b'v'; 4000], b"x".to_vec()].concat();
        for key in keys() {
            assert_eq!(merged.get(key).unwrap().as_deref(), Some(&*value));
        }
        assert!(db.check().unwrap().is_ok());
    }
}
