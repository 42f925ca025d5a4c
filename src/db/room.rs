//! Room for writes: sealing memtables when it is time, and holding writers back meanwhile.
//!
//! What is due follows from [`Pressure`], by the pure functions of `jobs`.

use std::mem;
use std::sync::Arc;

use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result};
use crate::db::batch::WriteBatch;
use crate::db::commit::Applier;
use crate::db::core::Core;
use crate::db::health::BackgroundWork;
use crate::db::options::Background;
use crate::db::state::{KeyspaceState, State, Table};
use crate::jobs::{Pressure, SealReason, Stall, seal_due, stall};

impl Core {
    /// Seals what has to be sealed after a commit.
    pub(super) fn seal_if_due(&self, batch: &WriteBatch, state: &State, applier: &Applier) {
        let mut has_sealed = false;
        for target in batch.targets() {
            let Some(keyspace) = state.find(target.id) else { continue };
            let sealed = match seal_due(&self.pressure(keyspace)) {
                None => continue,
                // Each that is full: the next batch may be as large as one can be.
                Some(SealReason::Size) => Some(keyspace),
                // The state has changed; the next commit looks again.
                Some(_) if has_sealed => continue,
                Some(SealReason::Memory) => largest_active(state, keyspace),
                Some(SealReason::Log) => oldest_active(state),
            };
            if let Some(keyspace) = sealed {
                self.seal(keyspace.runtime.id, applier);
            }
            has_sealed = true;
        }
    }

    /// Inlined, so that what is not asked for is not gathered.
    #[inline(always)]
    fn pressure(&self, keyspace: &KeyspaceState) -> Pressure {
        let values_put = keyspace.tables().map(|table| table.values_unflushed()).sum();
        Pressure {
            active: keyspace.active.memtable.memory_used() as u64,
            active_is_full: keyspace.active.memtable.is_full(),
            active_ranges: keyspace.active.memtable.range_cost(),
            active_value_room: keyspace.active.value_room(),
            active_values: keyspace.active.values_put(),
            value_room: (2 * keyspace.active.values_max()).saturating_sub(values_put),
            memtable_size: keyspace.runtime.memtable_size,
            sealed_count: keyspace.sealed.len(),
            memtables_total: self.meter.in_use(),
            budget: self.sizes.budget,
            log_live: self.log.live_bytes(),
            log_limit: self.log_limit(),
            unflushed: keyspace.sealed.last().map_or(0, |table| table.unflushed()),
            flush_rate: keyspace.runtime.flush_rate.bytes_per_second(),
            fresh_runs: keyspace.runtime.fresh_runs_of_both(),
        }
    }

    /// The log may be as long as it takes to fill the memtables that are allowed, and some files.
    fn log_limit(&self) -> u64 {
        const FILE_COUNT: u64 = 4;
        self.sizes.budget / 2 + FILE_COUNT * self.sizes.wal_file
    }

    /// Seals a keyspace's active memtable, unless it is empty. The applier's lock keeps commits
    /// out, so that the sealed memtable is complete.
    pub(super) fn seal(&self, id: u32, _applier: &Applier) {
        self.published.replace(|state| {
            let Some(keyspace) = state.find(id) else { return state.clone() };
            if keyspace.active.memtable.is_empty() {
                return state.clone();
            }
            let mut next = KeyspaceState::clone(keyspace);
            let fresh = Table::new(&self.meter, &keyspace.runtime);
            next.sealed.insert(0, mem::replace(&mut next.active, fresh));
            state.with(next)
        });
        self.workers.wake();
    }

    /// Back-pressure, before anything changes.
    pub(super) fn make_room(&self, batch: &WriteBatch) -> Result<()> {
        self.make_room_in(&batch.targets().map(|target| target.id), batch.log_size() as u64)
    }

    /// Back-pressure for `bytes` in these keyspaces.
    pub(super) fn make_room_in(
        &self,
        keyspaces: &(impl Iterator<Item = u32> + Clone),
        bytes: u64,
    ) -> Result<()> {
        if self.budget.has_grown(bytes as usize) {
            self.shared.trim(); // By who writes: what is cached gives way as fast as writers fill.
        }
        let mut seen = None;
        let mut has_stopped = false;
        let failures_before = self.failures.total();
        loop {
            // Of one moment: where it is to wait, something of its keyspaces is to be flushed.
            let (worst, may_flush) = self.published.with(|state, _| {
                let targets = keyspaces.clone().filter_map(|id| state.find(id));
                let stalls = targets.map(|keyspace| stall(&self.pressure(keyspace)));
                let worst = stalls.max_by_key(severity).unwrap_or(Stall::None);
                let may_flush = has_stopped && worst == Stall::Stop && self.may_flush_any(state);
                (worst, may_flush)
            });
            match worst {
                Stall::None => return Ok(()),
                Stall::Pace(rate) => {
                    self.keep_pace(bytes, rate)?;
                    return Ok(());
                }
                // Counted before the look that decides to wait, so that no flush is missed.
                Stall::Stop => match seen.replace(self.flush_count()) {
                    None => {}
                    Some(seen) => {
                        if has_stopped {
                            self.check_room(keyspaces, may_flush)?;
                            self.check_flushes(keyspaces, failures_before)?;
                        }
                        self.wait_for_room(seen, mem::replace(&mut has_stopped, true))?;
                    }
                },
            }
        }
    }

    /// While the disk is full, refuses what does not make room; but not where there is room again.
    #[cold]
    pub(super) fn check_disk(&self, batch: &WriteBatch) -> Result<()> {
        if batch.only_deletes() || self.guard.look_for_room() {
            return Ok(());
        }
        let full = self.guard.full_disk();
        Err(Error::DiskFull { path: full.map_or_else(|| self.dir.clone(), |full| full.path) })
    }

    /// Fails where one of these keyspaces has found no room for its flush, or to archive what was
    /// ingested, until when nothing of it is flushed (H5): whatever else is. And where none has.
    fn check_room(
        &self,
        keyspaces: &(impl Iterator<Item = u32> + Clone),
        may_flush: bool,
    ) -> Result<()> {
        if self.background == Background::Stepped {
            return Ok(()); // A step by the caller has told its own failure.
        }
        let state = self.published.state();
        let mut theirs = keyspaces.clone().filter_map(|id| state.find(id));
        let is_full = !may_flush && self.disk_full_count.load(Ordering::Relaxed) > 0;
        match is_full || theirs.any(|keyspace| has_found_no_room(keyspace)) {
            true => Err(Error::DiskFull { path: self.dir.clone() }),
            false => Ok(()),
        }
    }

    /// Whether a flush is due that may find room, although others have not.
    fn may_flush_any(&self, state: &State) -> bool {
        state.keyspaces.iter().any(|keyspace| {
            let has_failed = || self.failures.has(BackgroundWork::Flush, keyspace.runtime.id);
            !keyspace.sealed.is_empty() && !has_found_no_room(keyspace) && !has_failed()
        })
    }

    /// Fails with what a flush of one of these keyspaces has failed with since there were so many
    /// failures: it is tried again, and nobody knows when that will do.
    fn check_flushes(
        &self,
        keyspaces: &(impl Iterator<Item = u32> + Clone),
        failures_before: u64,
    ) -> Result<()> {
        if self.background == Background::Stepped {
            return Ok(()); // A step by the caller has told its own failure.
        }
        let is_theirs = |id: u32| keyspaces.clone().any(|of| of == id);
        self.failures.of_flush(is_theirs, failures_before).map_or(Ok(()), Err)
    }

    /// Holds the writers together to `rate` bytes a second.
    fn keep_pace(&self, bytes: u64, rate: u64) -> Result<()> {
        if self.background == Background::Stepped {
            self.step()?; // Time passes as the caller says; work is what it takes.
            return Ok(());
        }
        let wait = self.pacer.wait_for(bytes, rate, self.clock.monotonic());
        if !wait.is_zero() {
            self.stalls.begin();
            self.stalls.count_slow(wait);
            self.clock.sleep(wait);
        }
        Ok(())
    }

    /// Waits for a flush behind the ones that were `seen`; `goes_on` if the same writer has before.
    fn wait_for_room(&self, seen: u64, goes_on: bool) -> Result<()> {
        let since = self.clock.monotonic();
        self.stalls.begin();
        if self.background == Background::Stepped {
            if !self.step()? {
                // Another thread is at it.
                crate::base::sync::thread::yield_now();
            }
        } else {
            self.workers.wake();
            self.wait_for_flush(seen);
        }
        self.stalls.count_stop(self.clock.monotonic().saturating_sub(since), goes_on);
        self.check_writable()
    }
}

/// Whether nothing of a keyspace is flushed, as the last try has found no room.
fn has_found_no_room(keyspace: &KeyspaceState) -> bool {
    match &keyspace.unarchived {
        Some(of) => of.has_found_no_room(),
        None => keyspace.runtime.no_room.is_noted(),
    }
}

fn severity(stall: &Stall) -> u64 {
    match stall {
        Stall::None => 0,
        Stall::Pace(rate) => u64::MAX - rate,
        Stall::Stop => u64::MAX,
    }
}

/// The keyspace with the largest active memtable, when one is to go for a commit to `target`. Where
/// others keep memory that no flush frees (H5), tiny ones stay: each commit would be sealed then.
fn largest_active<'s>(state: &'s State, target: &KeyspaceState) -> Option<&'s Arc<KeyspaceState>> {
    const LEAST_DIVISOR: u64 = 16;
    let used = |of: &Arc<KeyspaceState>| of.active.memtable.memory_used() as u64;
    let active = || state.keyspaces.iter().filter(|of| !of.active.memtable.is_empty());
    if !can_be_flushed(target) || state.keyspaces.iter().all(|of| can_be_flushed(of)) {
        return active().max_by_key(|of| used(of));
    }
    let flushable = || active().filter(|of| can_be_flushed(of));
    let are_tiny =
        flushable().map(used).sum::<u64>() < target.runtime.memtable_size / LEAST_DIVISOR;
    flushable().max_by_key(|of| used(of)).filter(|_| !are_tiny)
}

/// The keyspace whose active memtable keeps the start of the log; none if something older is kept
/// that no flush frees (H5): each commit would be sealed then, and the log be no shorter.
fn oldest_active(state: &State) -> Option<&Arc<KeyspaceState>> {
    let of_active = |keyspace: &Arc<KeyspaceState>| keyspace.active.log_start();
    let started = state.keyspaces.iter().filter(|keyspace| of_active(keyspace).is_some());
    let oldest = started.min_by_key(|keyspace| of_active(keyspace))?;
    let held = state.keyspaces.iter().filter(|keyspace| !can_be_flushed(keyspace));
    let kept =
        held.flat_map(|keyspace| keyspace.tables().filter_map(|table| table.log_start())).min();
    let is_oldest = kept.is_none_or(|kept| of_active(oldest).is_some_and(|start| start < kept));
    is_oldest.then_some(oldest)
}

/// Whether sealed memtables of it are flushed: not while an ingest waits to be archived (H5).
fn can_be_flushed(keyspace: &KeyspaceState) -> bool {
    keyspace.unarchived.is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::{hint, thread};

    use super::*;
    use crate::Durability;
    use crate::db::Builder;
    use crate::manifest::KeyspaceOptions;
    use crate::storage::MemoryStorage;

    /// Else who has waited for the flush sees no room, and waits for one that does not come.
    #[test]
    fn when_a_flush_is_signalled_its_memory_has_come_back() {
        const SIZE: u64 = 512 << 10;
        let storage = Arc::new(MemoryStorage::new());
        let db = Builder::default().storage(storage).background(Background::Stepped);
        let db = db.open("/db").unwrap();
        let options = KeyspaceOptions::flex().memtable_size(SIZE);
        let keyspace = db.create_keyspace("a", options).unwrap();
        let core = db.core();
        let is_flushed = || core.published.state().keyspaces[0].sealed.is_empty();
        for round in 0..50_u32 {
            let mut key = 0_u32;
            while is_flushed() {
                keyspace.put_with(key.to_be_bytes(), [1; 300], Durability::Buffered).unwrap();
                key += 1;
            }
            let before = core.meter.in_use();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let watcher = scope.spawn(|| {
                    while !is_flushed() {
                        hint::spin_loop();
                    }
                    let seen = core.flush_count();
                    while core.flush_count() == seen && !is_over.load(Ordering::Acquire) {
                        hint::spin_loop();
                    }
                    core.meter.in_use()
                });
                while !is_flushed() {
                    db.step().unwrap();
                }
                is_over.store(true, Ordering::Release);
                let after = watcher.join().unwrap();
                assert!(after + SIZE / 2 < before, "round {round}: {after} of {before}");
            });
        }
    }

    #[test]
    fn who_waits_for_flushes_is_counted_when_the_wait_begins() {
        let storage = Arc::new(MemoryStorage::new());
        let db = Builder::default().storage(storage).background(Background::Stepped);
        let db = db.open("/db").unwrap();
        let options = KeyspaceOptions::flex().memtable_size(64 << 10);
        let keyspace = db.create_keyspace("a", options).unwrap();
        for key in 0_u32.. {
            let (before, stops) = (db.writes_held_back(), db.stats().stalls);
            keyspace.put_with(key.to_be_bytes(), [1; 300], Durability::Buffered).unwrap();
            let waits = db.writes_held_back() - before;
            assert_eq!(waits > 0, db.stats().stalls > stops, "at {key}: {waits}");
            if waits > 0 {
                return;
            }
        }
    }
}
