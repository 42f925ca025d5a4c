//! Flushing, keeping the log short, closing.

use std::time::Duration;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::ArcSwap;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{Arc, Mutex, PoisonError, TryLockError};
use crate::base::sync::{Mistake, is_planted};
use crate::base::{Error, Result, SeqNo, StripedCounters};
use crate::cache::MemoryBudget;
use crate::db::background::is_tried_again;
use crate::db::core::Core;
use crate::db::health::{BackgroundWork as Work, may_pass};
use crate::db::history::{Slices, TellKept};
use crate::db::no_room::NoRoom;
use crate::db::options::{Access, Background};
use crate::db::state::{KeyspaceState, Runtime, Table};
use crate::db::stats::Stats;
use crate::db::time::Time;
use crate::jobs::{FlushRate, MergeTurn, MergedSlice, can_give_way, can_wait};
use crate::manifest::{Closing, Edit, KeyspaceRecord};
use crate::memtable::{MemtableCursor, StackedCursor};
use crate::storage::{ReserveUse, waited_for_processor};
use crate::structure::{Compacted, Consolidation, Debt, FlushOrder, FlushProgress, Store, Version};
use crate::value_log::ValueLog;
use crate::wal::Lsn;

/// A flush makes its work durable about this many times.
const SLICES_PER_FLUSH: u64 = 8;
/// ... but not for less than this many bytes,
const SLICE_BYTES_MIN: u64 = 1 << 20;
/// ... or so many with the large values that entries point to: cleaning keeps step by slices.
const SLICE_VALUE_BYTES: u64 = 64 << 20;
/// Bytes that a slice of compaction writes: so long a flush that becomes due may have to wait.
const COMPACTION_SLICE_BYTES: u64 = 4 << 20;
/// Bytes that a slice of consolidation writes: so much room it needs beside what there is, and so
/// long a flush that becomes due may have to wait for it.
const CONSOLIDATION_SLICE_BYTES: u64 = 8 << 20;
/// Between two slices that one thread does the turn is nobody's for so long: a mutex is not fair,
/// and who waits for it would not get it from a thread that takes it again at once.
const TURN_PAUSE: Duration = Duration::from_micros(100);

impl Core {
    /// Flushes a slice of the memtable that waits in the longest queue and that no other thread
    /// is at. Whether there was one. What cannot be read or made for one keyspace, or finds no
    /// room, does not keep the others from being flushed.
    pub(super) fn flush_slice_of_any(&self) -> Result<bool> {
        let (mut failed, mut another_is_at_it) = (None, false);
        for runtime in self.waiting_for_flush() {
            let turn = match runtime.flushing.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    another_is_at_it = true;
                    continue;
                }
            };
            let flushed = self.flush_oldest(runtime.id);
            drop(turn);
            match flushed {
                Ok(true) => {
                    // Writers of keyspaces without large values need not wait for it.
                    if !runtime.store.value_bytes().is_empty() {
                        // Writers are held to what flushes and cleaning come to together.
                        runtime.flush_rate.note_more(self.clean_with_flush());
                    }
                    return Ok(true);
                }
                Ok(false) => {}
                Err(_) if self.is_gone(runtime.id) => {}
                Err(error) if is_tried_again(&error) => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match failed {
            // Who waits for that keyspace is told by its mark. For others it is not known yet.
            Some(Error::DiskFull { .. }) if another_is_at_it => Ok(false),
            failed => failed.map_or(Ok(false), Err),
        }
    }

    /// Keyspaces with sealed memtables, those with most of them first and those last that failed,
    /// and with what was ingested and is to be archived; but where that is not to be tried yet.
    fn waiting_for_flush(&self) -> Vec<Arc<Runtime>> {
        let state = self.published.state();
        let waits = |of: &&Arc<KeyspaceState>| {
            (!of.sealed.is_empty() || of.unarchived.is_some())
                && !self.waits_for_room(of)
                && !of.runtime.conversion().is_some_and(|job| job.flushes_itself()) // O6
        };
        let mut waiting: Vec<&Arc<KeyspaceState>> = state.keyspaces.iter().filter(waits).collect();
        waiting.sort_by_cached_key(|keyspace| {
            let runtime = &keyspace.runtime;
            let has_failed = self.failures.has(Work::Flush, runtime.id);
            (has_failed || runtime.no_room.is_noted(), std::cmp::Reverse(keyspace.sealed.len()))
        });
        waiting.into_iter().map(|keyspace| Arc::clone(&keyspace.runtime)).collect()
    }

    /// As [`Core::flush_oldest`], which says how it went.
    pub(super) fn flush_next_slice(&self, id: u32) -> Result<bool> {
        self.check_writable()?; // Under the turn, which closing waits for.
        // Not the state, which would keep what other threads flush meanwhile of other keyspaces.
        let found = self.published.state().find(id).map(Arc::clone);
        let Some(keyspace) = found else { return Ok(false) };
        // H5: in front of all flushes.
        match self.archive_ingested(&keyspace)? {
            None => {}
            Some(Slices::GoOn) => {
                // It says nothing of room before it is over, or further than the last try.
                self.signal_flushed();
                self.shared.trim();
                return Ok(true);
            }
            Some(Slices::Over) => {
                let runtime = Arc::clone(&keyspace.runtime);
                drop(keyspace); // With what only the ingest needed.
                self.give_back_unreferenced(&runtime);
                self.note_slice_flushed(&runtime);
                return Ok(true);
            }
        }
        let Some(table) = keyspace.sealed.last() else { return Ok(false) };
        let (bytes, value_bytes) = (table.memtable.data_size() as u64, table.value_bytes());
        let of_values = bytes / (value_bytes / SLICE_VALUE_BYTES).max(1);
        let slice_bytes = (bytes / SLICES_PER_FLUSH).max(SLICE_BYTES_MIN).min(of_values.max(1));
        let order = FlushOrder {
            memtable_bytes: bytes,
            value_bytes,
            log_end: table.log_end(),
            last_seqno: table.newest(),
            now: self.time.now_if_used(),
            slice_bytes: self.flush_slice_size.unwrap_or(slice_bytes),
        };
        let started = self.clock.monotonic();
        // D5: else a power cut could leave the commits in this structure and not in the log, from
        // which the other keyspaces have to learn of them.
        if !is_seeded(Bug::FlushAheadOfLog) {
            self.sync_to(Lsn::from_u64(table.log_end()))?;
        }
        self.bring_to_conversion(&keyspace, table, order);
        self.archive(&keyspace, table, order)?; // H2: in front of the structure.
        let cursor = MemtableCursor::new(Arc::clone(&table.memtable), SeqNo::MAX);
        let mut cursor = StackedCursor::new(cursor);
        let deleted = table.memtable.ranges().unwrap_or_default();
        let outcome = keyspace.runtime.store.flush(&mut cursor, &deleted, order)?;
        let time = self.clock.monotonic().saturating_sub(started);
        keyspace.runtime.flush_rate.note(table.note_slice(outcome.taken_bytes), time);
        keyspace.runtime.note_version();
        self.cleaning.note_flushed(table.value_bytes_of(outcome.taken_bytes));
        self.workers.note_leftovers();
        if outcome.progress == FlushProgress::Complete {
            self.transactions.note_flushed(id, table);
        }
        self.published.replace(|state| {
            let Some(keyspace) = state.find(id) else { return state.clone() };
            let mut next = KeyspaceState::clone(keyspace);
            next.version = Arc::clone(&outcome.version);
            next.flushed_to = outcome.next.clone();
            if outcome.progress == FlushProgress::Complete {
                next.sealed.retain(|other| !Arc::ptr_eq(other, table));
            }
            state.with(next)
        });
        if outcome.progress == FlushProgress::Complete {
            table.note_flushed();
            keyspace.runtime.conversion().iter().for_each(|job| job.note_flushed(bytes));
        }
        let (runtime, progress) = (Arc::clone(&keyspace.runtime), outcome.progress);
        // The memory of the memtable comes back in front of the signal, or who waits for it looks
        // too early and waits for the next one.
        drop((cursor, deleted, outcome, keyspace));
        self.note_slice_flushed(&runtime);
        runtime.store.remove_unreferenced();
        self.cleaning.note_garbage();
        self.remove_unreferenced_values();
        if progress == FlushProgress::Complete {
            let given_back = self.advance_log(AdvanceLog::WhenWorthwhile);
            let given_back =
                given_back.and_then(|()| self.note_kept(&runtime, TellKept::WhenWorthwhile));
            self.put_off_log(given_back)?;
        }
        Ok(true)
    }

    /// Gives others a chance to get the turn that the caller has had and will take again.
    pub(super) fn let_others_have_the_turn(&self) {
        if self.background == Background::Threads {
            self.clock.sleep(TURN_PAUSE);
        }
    }

    /// Says that there was room for a slice of a keyspace's flush, and that it is done.
    fn note_slice_flushed(&self, runtime: &Runtime) {
        runtime.no_room.forget();
        self.disk_full_count.store(0, Ordering::Relaxed);
        self.guard.note_room();
        self.signal_flushed();
        self.shared.trim();
    }

    /// Does a slice of what keeps structures in shape while they are written to, and hands out what
    /// is finished, also by others. Whether there was any.
    pub(super) fn compact_slice_of_any(&self, keeping: Keeping) -> Result<bool> {
        let turn = self.merge_threads.join(self.clock.monotonic());
        let before = self.moment_of_thread();
        for runtime in self.runtimes() {
            let began = self.clock.monotonic();
            let is_held = keeping == Keeping::ToRate;
            let is_early = is_held && !self.compaction_rate.wait(began).is_zero();
            let gives_way = is_held && turn.is_none() && can_give_way_now(&runtime);
            let working = match gives_way || (is_early && can_wait_for_rate(&runtime)) {
                true => None,
                false => self.pauses.begin_work(),
            };
            let compacted = match working {
                Some(_working) => {
                    let more = turn.is_none().then(|| self.merge_threads.join_anyway());
                    let slice_bytes = self.flush_slice_size.unwrap_or(COMPACTION_SLICE_BYTES);
                    let slice_bytes = self.compaction_rate.slice_bytes(slice_bytes);
                    let compact = || runtime.store.compact(slice_bytes, self.time.now_if_used());
                    let compacted = self.in_work("compaction", compact);
                    let turn = turn.as_ref().or(more.as_ref());
                    if let (Some(turn), Ok(Compacted::Slice { .. })) = (turn, &compacted) {
                        self.note_merged(turn, before);
                    }
                    compacted
                }
                None => Ok(Compacted::Ready),
            };
            // What is not merged is as good as it was, and it is tried again behind the next flush.
            let compacted = compacted.inspect_err(|error| match self.is_gone(runtime.id) {
                true => {}
                false => self.note_idle_failure(Work::Compaction, runtime.id, error),
            });
            let (has_worked, is_ready) = match compacted {
                Ok(Compacted::Slice { bytes, is_ready }) => {
                    if is_held && !is_early {
                        self.compaction_rate.note(bytes, began); // Else it gave way.
                    }
                    (true, is_ready)
                }
                Ok(Compacted::Ready) => (false, true),
                Ok(Compacted::Nothing) | Err(_) => continue,
            };
            let installed = is_ready && self.install_compactions(&runtime)?;
            if has_worked || installed {
                self.failures.solved(Work::Compaction, runtime.id);
                // There may be parts for other threads.
                self.workers.wake();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// When it is, and how long the calling thread has waited for a processor until then; `None`
    /// where that is not known, or nobody is to go by it.
    pub(super) fn moment_of_thread(&self) -> Option<(Duration, Duration)> {
        match self.background {
            Background::Threads => Some((self.clock.monotonic(), waited_for_processor()?)),
            Background::Stepped => None,
        }
    }

    /// Says that the calling thread has merged a slice since a moment.
    pub(super) fn note_merged(&self, turn: &MergeTurn<'_>, since: Option<(Duration, Duration)>) {
        let (before, after) = (since, self.moment_of_thread());
        if let Some(((began, waited_then), (now, waited))) = before.zip(after) {
            let (took, waited) = (now.saturating_sub(began), waited.saturating_sub(waited_then));
            turn.note(MergedSlice { end: now, took, waited });
        }
    }

    /// Hands out what compactions of a keyspace have finished, unless another thread has its turn
    /// to flush: then that thread does, or the next flush.
    fn install_compactions(&self, runtime: &Arc<Runtime>) -> Result<bool> {
        let _turn = match runtime.flushing.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        self.check_writable()?; // Under the turn, which closing waits for.
        let installed = self.in_work("compaction", || runtime.store.install());
        let installed = installed
            .inspect_err(|error| self.note_failed(Work::Compaction, Some(runtime.id), error));
        let version = match installed {
            Ok(Some(version)) => version,
            Ok(None) => return Ok(false),
            Err(_) if self.is_gone(runtime.id) => return Ok(false),
            Err(error) if may_pass(&error) => return Ok(false), // It waits, and is tried again.
            Err(error) => return Err(error),
        };
        self.publish_version(runtime, &version);
        self.workers.note_leftovers();
        Ok(true)
    }

    /// Consolidates a slice of a keyspace that has nothing to flush and that no other thread is at.
    /// One that is damaged, or cannot be read, does not keep the others from it.
    pub(super) fn consolidate_slice_of_any(&self) -> Result<Found> {
        let mut found = Found::Nothing;
        let mut failed = None;
        for runtime in self.runtimes() {
            let turn = match runtime.flushing.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    found = Found::Busy;
                    continue;
                }
            };
            if self.newest_sealed(runtime.id).is_some() || self.unarchived(&runtime).is_some() {
                found = Found::Busy; // H5, for one
                continue;
            }
            let consolidated = self.consolidate_slice(&runtime);
            drop(turn);
            match &consolidated {
                Ok(Consolidation::FlushUnderWay) => {}
                Ok(Consolidation::Nothing) if runtime.store.holds_back() => {}
                Ok(_) => self.failures.solved(Work::Consolidation, runtime.id),
                Err(error) => self.note_failed(Work::Consolidation, Some(runtime.id), error),
            }
            match consolidated {
                Ok(Consolidation::Slice { bytes, .. }) => return Ok(Found::Work { bytes }),
                Ok(Consolidation::FlushUnderWay) => found = Found::Busy,
                Ok(Consolidation::Nothing) => {}
                Err(_) if self.is_gone(runtime.id) => {}
                Err(error) if error.is_corruption() || may_pass(&error) => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        failed.map_or(Ok(found), Err)
    }

    /// Consolidates a slice of a keyspace. The caller has its turn to flush.
    fn consolidate_slice(&self, runtime: &Arc<Runtime>) -> Result<Consolidation> {
        self.check_writable()?; // Under the turn, which closing waits for.
        let now = self.time.now_if_used();
        let consolidate = || runtime.store.consolidate(CONSOLIDATION_SLICE_BYTES, now);
        let consolidated = self.in_work("consolidation", consolidate)?;
        let Consolidation::Slice { version, .. } = &consolidated else { return Ok(consolidated) };
        self.publish_version(runtime, version);
        Ok(consolidated)
    }

    /// Makes a version of a keyspace the one that new reads see, and gives back what only the one
    /// before needed.
    pub(super) fn publish_version(&self, runtime: &Arc<Runtime>, version: &Arc<dyn Version>) {
        self.published.replace(|state| state.with_version(runtime.store_id, version));
        // Of the keyspace that has the store by now, which writers look at.
        if let Some(newest) = self.runtime_with_store(runtime.store_id) {
            newest.note_version();
        }
        self.give_back_unreferenced(runtime);
    }

    /// The keyspace that has this store; `None` when it is nobody's any more.
    pub(super) fn runtime_with_store(&self, store_id: u32) -> Option<Arc<Runtime>> {
        let state = self.published.state();
        state.with_store(store_id).map(|found| Arc::clone(&found.runtime))
    }

    /// Gives back what only the version before the newest needed.
    pub(super) fn give_back_unreferenced(&self, runtime: &Runtime) {
        self.shared.trim();
        runtime.store.remove_unreferenced();
        self.cleaning.note_garbage();
        self.remove_unreferenced_values();
    }

    /// Bytes that a slice of a round writes.
    pub(super) fn round_slice_bytes(&self) -> u64 {
        self.flush_slice_size.unwrap_or(CONSOLIDATION_SLICE_BYTES)
    }

    /// Gives back the part of the log that no memtable needs any more (D3).
    fn advance_log(&self, when: AdvanceLog) -> Result<()> {
        let mut manifest = self.lock_manifest_for_edit()?;
        let needed = self.needed_log_start();
        let gained = needed.saturating_sub(self.log.released());
        let is_worthwhile = gained >= self.sizes.wal_file / 2 || self.has_keys_to_destroy();
        if gained == 0 || (when == AdvanceLog::WhenWorthwhile && !is_worthwhile) {
            return Ok(());
        }
        // W9: what is kept to be read is durable, also what concerned keyspaces that are gone.
        self.sync_to(Lsn::from_u64(needed))?;
        let known = |id| manifest.state().keyspace(id).is_some();
        let runtimes = self.runtimes();
        let runtimes = runtimes.iter().filter(|runtime| known(runtime.id));
        let journals = runtimes.map(|runtime| (runtime.id, runtime.store.log_position())).collect();
        // After a crash, the stamps of commits that it took are above the visible one.
        let last_seqno = self.visible().max(manifest.state().last_seqno());
        let edit = Edit::AdvanceLog { log_start: needed, journals, last_seqno };
        if is_seeded(Bug::LogGivenBackBeforeEdit) {
            self.log.release(needed);
        }
        self.apply_edit(&mut manifest, &edit)?;
        self.end_trail_far_behind(&mut manifest)?;
        self.hold_log(manifest.state());
        drop(manifest);
        self.log.release(needed);
        self.note_keys_due();
        Ok(())
    }

    /// What follows from giving the log back, behind a flush that is done: where that has failed
    /// and may be tried again, it is, and the keyspace has nothing to do with it.
    fn put_off_log(&self, given_back: Result<()>) -> Result<()> {
        match given_back {
            Ok(()) => {
                self.note_log_given_back();
                Ok(())
            }
            Err(error) if is_tried_again(&error) => {
                self.note_failed(Work::Flush, None, &error);
                self.log_due.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn note_log_given_back(&self) {
        self.log_due.store(false, Ordering::Release);
        self.failures.solved_for_all(Work::Flush);
    }

    /// Gives the log back where that has failed behind the last flush. Whether it was due and has
    /// succeeded.
    pub(super) fn give_back_log_again(&self) -> Result<bool> {
        if !self.log_due.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.put_off_log(self.advance_log(AdvanceLog::WhenWorthwhile))?;
        Ok(!self.log_due.load(Ordering::Acquire))
    }

    /// Where the log is needed from: the first commit of the oldest memtable, or where commits
    /// that are not applied yet start. The applier's lock keeps both still.
    fn needed_log_start(&self) -> u64 {
        let applier = self.log.lock_applier();
        let state = self.published.state();
        let tables = state.keyspaces.iter().flat_map(|keyspace| keyspace.tables());
        let oldest = tables.filter_map(|table| table.log_start()).min();
        let oldest = oldest.filter(|_| !is_seeded(Bug::LogGivenBackEarly));
        let oldest = oldest.filter(|_| !is_planted(Mistake::ReleaseLogEarly));
        let applied = applier.applied().as_u64();
        oldest.map_or(applied, |oldest| oldest.min(applied))
    }

    /// As [`Core::flush_all`], with the cleaning that is due then.
    pub(super) fn flush_and_clean(&self) -> Result<()> {
        self.flush_all()?;
        self.clean_with_flush();
        Ok(())
    }

    /// Seals and flushes everything that is in memtables now.
    pub(super) fn flush_all(&self) -> Result<()> {
        self.check_writable()?;
        self.flush_everything()
    }

    /// What fails for one keyspace does not keep the others from it; it is said in the end.
    fn flush_everything(&self) -> Result<()> {
        let mut failed = None;
        for runtime in self.runtimes() {
            let is_full = matches!(failed, Some(Error::DiskFull { .. }));
            if is_full && matches!(self.has_room_to_seal(&runtime), Ok(false)) {
                continue; // FD1
            }
            failed = failed.or(self.flush_keyspace(&runtime).err());
        }
        let given_back = self.advance_log(AdvanceLog::Always);
        let given_back = given_back.inspect(|()| self.note_log_given_back());
        let given_back = given_back.inspect_err(|error| self.note_work_failure(error));
        failed.map_or(given_back, Err)
    }

    /// Seals and flushes everything that a keyspace has in memtables now; what was ingested until
    /// now is archived.
    pub(super) fn flush_keyspace(&self, runtime: &Runtime) -> Result<()> {
        self.flush_up_to_now(runtime).map(drop)
    }

    /// As [`Core::flush_keyspace`]; the stamp up to which everything is flushed and archived then.
    /// Something above it may be, too, while something in front of that is not: an ingest that came
    /// meanwhile.
    pub(super) fn flush_up_to_now(&self, runtime: &Runtime) -> Result<SeqNo> {
        let id = runtime.id;
        let now = {
            // What it keeps out comes later: what is visible is sealed, or was ingested.
            let applier = self.log.lock_applier();
            self.seal(id, &applier);
            self.published.load().1 // With the state that has what was ingested.
        };
        self.settle_ingest(runtime)?;
        // Tables sealed from here on are not waited for.
        let Some(until) = self.newest_sealed(id) else { return Ok(now) };
        while self.is_sealed(id, &until) {
            if self.leaves_flush_to_conversion(runtime) {
                self.check_writable()?;
                continue;
            }
            let turn = crate::db::core::lock(&runtime.flushing);
            let flushed = self.flush_oldest(id);
            drop(turn);
            match flushed {
                Err(_) if self.is_gone(runtime.id) => break, // Nobody needs it any more.
                flushed => flushed.inspect_err(|error| self.note_work_failure(error))?,
            };
        }
        Ok(now)
    }

    /// The keyspaces that there are. Long work holds these and not the state, which would keep the
    /// files that the work makes unnecessary.
    pub(super) fn runtimes(&self) -> Vec<Arc<Runtime>> {
        let state = self.published.state();
        state.keyspaces.iter().map(|keyspace| Arc::clone(&keyspace.runtime)).collect()
    }

    pub(super) fn newest_sealed(&self, id: u32) -> Option<Arc<Table>> {
        self.published.state().find(id)?.sealed.first().cloned()
    }

    /// Whether a keyspace has this memtable among those that wait to be flushed.
    pub(super) fn is_sealed(&self, id: u32, table: &Arc<Table>) -> bool {
        let state = self.published.state();
        state
            .find(id)
            .is_some_and(|keyspace| keyspace.sealed.iter().any(|other| Arc::ptr_eq(other, table)))
    }

    /// Closes; see [`crate::Db::close`].
    pub(super) fn close(&self) -> Result<Stats> {
        if self.is_closed() {
            return match self.why_closed() {
                Error::Closed => Ok(self.stats()),
                forked => Err(forked), // All is the other process's.
            };
        }
        let _closing_may_use_it = ReserveUse::of_all();
        self.heed_failed_sync();
        let flushed = match (self.access, self.poison()) {
            (Access::ReadOnly, _) => Ok(()),
            (Access::ReadWrite, Some(why)) => Err(Error::ReadOnly { why: why.clone() }),
            (Access::ReadWrite, None) => self.flush_everything(),
        };
        if !self.set_closed() {
            return Ok(self.stats()); // Another thread was faster.
        }
        let watched = self.watcher.until_dropped();
        self.log.wake_waiting();
        self.workers.join();
        self.scrubber.end();
        self.cleaning.give_up();
        self.log.wait_for_writers();
        drop(self.staging.write().unwrap_or_else(PoisonError::into_inner));
        // Flushes that other threads are at; those that have not begun find the database closed.
        for keyspace in &self.published.state().keyspaces {
            drop(crate::db::core::lock(&keyspace.runtime.flushing));
        }
        drop(self.lock_manifest());
        self.values.close();
        self.heed_failed_sync();
        let finished = match (self.access, self.poison()) {
            (Access::ReadOnly, _) => Ok(()),
            (Access::ReadWrite, Some(why)) => {
                flushed.and_then(|()| Err(Error::ReadOnly { why: why.clone() }))
            }
            // What could not be flushed is in the log, which is made durable all the same.
            (Access::ReadWrite, None) => {
                let finished = self.finish_files();
                flushed.and(finished)
            }
        };
        // Whoever still has a round must find nothing to take back in what may be another's.
        for keyspace in &self.published.state().keyspaces {
            keyspace.runtime.store.give_up();
            keyspace.unarchived.iter().for_each(|of| of.give_up());
        }
        let stats = self.stats();
        match finished {
            Ok(()) => self.guard.remove_reserve(),
            Err(_) => self.guard.let_go_of_reserve(), // Recovery may need it.
        }
        drop(watched);
        self.let_go_of_keyring();
        self.unlock_directory();
        finished.map(|()| stats)
    }

    /// The last writes: everything was flushed, but for what could not be, and commits that came in
    /// between: those are in the log.
    fn finish_files(&self) -> Result<()> {
        let mut settled = Ok(());
        for keyspace in &self.published.state().keyspaces {
            let own = keyspace.runtime.store.settle();
            if own.is_ok() {
                keyspace.runtime.store.remove_unreferenced();
            }
            settled = settled.and(own);
        }
        self.values.remove_unreferenced(|| true);
        self.values.sync()?; // V2: before the log
        let end = self.log.sync_for_close()?;
        settled?;
        // Beside stamps that were given, moments that were judged by.
        let judged_by = SeqNo::from_parts(self.time.newest(), 0);
        let last_seqno = self.log.last_stamp().max(judged_by);
        let newest_commit = self.log.newest_appended().unwrap_or_else(|| self.visible());
        let closing = Closing { log_end: end, last_seqno, newest_commit };
        let mut manifest = self.lock_manifest();
        manifest.note_totals(self.lifetime_totals());
        self.write_all_acknowledged(&mut manifest)?;
        let closed = manifest.close(closing);
        self.manifest_bytes.store(manifest.bytes_written(), Ordering::Relaxed);
        closed?;
        self.log.give_up_spares();
        Ok(())
    }
}

/// Whether a keyspace's compaction can be left to other threads.
fn can_give_way_now(runtime: &Runtime) -> bool {
    let Debt { bytes, fresh_runs, size } = runtime.store.debt();
    can_give_way(fresh_runs.max(runtime.fresh_runs_of_both()), bytes, size)
}

/// Whether a keyspace's compaction can wait until the rate allows it.
fn can_wait_for_rate(runtime: &Runtime) -> bool {
    let Debt { bytes, fresh_runs, size } = runtime.store.debt();
    can_wait(fresh_runs, bytes, size)
}

/// Whether a thread keeps to the rate of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    ToRate,
    /// Time passes as the caller says; work is what it takes.
    ToNone,
}

/// What a look for something to consolidate has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Something, and it was done: so many bytes were written.
    Work { bytes: u64 },
    /// Nothing, in any keyspace.
    Nothing,
    /// Nothing in those that could be looked at.
    Busy,
}

/// When the log is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdvanceLog {
    /// When it frees half a log file or more: each time costs an edit of the manifest.
    WhenWorthwhile,
    Always,
}

/// What is kept about an open keyspace.
pub(super) fn runtime_of(
    record: &KeyspaceRecord,
    store: Arc<dyn Store>,
    values: &Arc<ValueLog>,
    budget: &Arc<MemoryBudget>,
    (default_memtable_size, time): (u64, &Arc<Time>),
    archive: Option<Arc<Runtime>>,
) -> Arc<Runtime> {
    let sizes = (default_memtable_size, time);
    Arc::new(new_runtime(record, store, values, budget, sizes, archive))
}

/// As [`runtime_of`], on its own.
pub(super) fn new_runtime(
    record: &KeyspaceRecord,
    store: Arc<dyn Store>,
    values: &Arc<ValueLog>,
    budget: &Arc<MemoryBudget>,
    (default_memtable_size, time): (u64, &Arc<Time>),
    archive: Option<Arc<Runtime>>,
) -> Runtime {
    let plain_below = match (record.options.ttl, record.options.value_separation) {
        (Some(_), _) => 0,
        (None, separated_from) => separated_from.map_or(usize::MAX, |from| from as usize),
    };
    let fresh_runs = store.debt().fresh_runs;
    Runtime {
        id: record.id,
        store_id: record.store,
        archive,
        name: Arc::new(ArcSwap::from_pointee(record.name.clone())),
        options: record.options.clone(),
        memtable_size: record.options.memtable_size.unwrap_or(default_memtable_size),
        store,
        values: Arc::clone(values),
        time: Arc::clone(time),
        budget: Arc::clone(budget),
        plain_below,
        dropped: AtomicBool::new(false),
        flushing: Arc::default(),
        conversion: Mutex::default(),
        gets_before: 0,
        gets: StripedCounters::default(),
        flush_rate: FlushRate::default(),
        no_room: NoRoom::default(),
        fresh_runs: AtomicUsize::new(fresh_runs),
        stamps_gone_to: AtomicU64::new(0),
    }
}
