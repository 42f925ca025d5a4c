//! Threads that do background work, and the one step that they, or the caller, take.
//!
//! Work that somebody may wait for (log files, flushes) comes first. Consolidation of what flushes
//! left in delta runs is done when nothing was committed for a moment, and stops when something
//! is: it makes reads faster and gives room back, at the price of writing. Of tables in levels a
//! step that was begun is finished first, beside who writes.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Condvar, Mutex, PoisonError};
use crate::base::sync::{Mistake, is_planted};
use crate::base::{Error, Result, SeqNo};
use crate::db::commit::Preparing;
use crate::db::core::{Core, lock};
use crate::db::health::{BackgroundWork as Work, may_pass};
use crate::db::maintain::{Found, Keeping};
use crate::db::options::Background;

/// Two: so that one keyspace's long flush does not hold up another's.
const THREAD_COUNT: usize = 2;
/// A thread looks for work by itself this often, should a signal have been missed.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Without commits for this long, the database is taken to be idle.
const IDLE_AFTER: Duration = Duration::from_millis(200);
/// How often it is looked whether so much has expired that it is worth consolidating, which nothing
/// that is done to the database tells.
const EXPIRED_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// After a flush that found no room, or failed with what may pass: how long until the next try.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Counts calls for work.
    calls: Mutex<u64>,
    called: Condvar,
    /// Whether it is known that no interval is worth consolidating.
    nothing_left: AtomicBool,
    /// When it is next looked for what has expired.
    look_for_expired_at: Mutex<Duration>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts the threads, if the database wants any.
    pub(super) fn start(core: &Arc<Core>) -> Result<()> {
        if core.background == Background::Stepped {
            return Ok(());
        }
        for index in 0..THREAD_COUNT {
            let its_core = Arc::clone(core);
            let name = format!("lithedb-{index}");
            // One of them is enough for what nobody waits for.
            let role = if index == 0 { Role::AllWork } else { Role::UrgentWork };
            let spawned = crate::base::sync::thread::Builder::new()
                .name(name)
                .spawn(move || work(&its_core, role));
            let thread =
                spawned.map_err(|error| Error::io("start a thread for", &core.dir, error))?;
            lock(&core.workers.threads).push(thread);
        }
        Ok(())
    }

    /// Says that there may be work.
    pub(super) fn wake(&self) {
        *lock(&self.calls) += 1;
        self.called.notify_all();
    }

    /// Waits until the threads are gone; they end when the database is closed.
    pub(super) fn join(&self) {
        self.wake();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _its_panic_was_noted = thread.join();
        }
    }

    /// Says that something was flushed: it may have left intervals worth consolidating.
    pub(super) fn note_leftovers(&self) {
        self.nothing_left.store(false, Ordering::Relaxed);
    }

    /// Whether it is time to look for what has expired; not again for a while, then.
    fn is_time_to_look(&self, now: Duration) -> bool {
        let mut at = lock(&self.look_for_expired_at);
        let is_time = now >= *at;
        if is_time {
            *at = now + EXPIRED_LOOK_INTERVAL;
        }
        is_time
    }

    fn may_have_leftovers(&self) -> bool {
        !self.nothing_left.load(Ordering::Relaxed)
    }

    fn calls(&self) -> u64 {
        *lock(&self.calls)
    }

    pub(super) fn wait_for_call(&self, seen: u64, longest: Duration) {
        let guard = lock(&self.calls);
        let waited =
            self.called.wait_timeout_while(guard, longest, |calls: &mut u64| *calls == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Flushes and log files.
    UrgentWork,
    /// Consolidation as well, when the database is idle.
    AllWork,
}

/// What a thread does until the database is closed.
fn work(core: &Arc<Core>, role: Role) {
    loop {
        // In this order: closing is followed by a call.
        let seen = core.workers.calls();
        if core.is_closed() {
            return;
        }
        match caught(core, || core.step_in_background()) {
            Ok(true) => {}
            Ok(false) if is_planted(Mistake::CallsSeenLate) => {
                core.workers.wait_for_call(core.workers.calls(), core.idle_wait());
            }
            Ok(false) if role == Role::AllWork && core.makes_room_if_full() => {}
            Ok(false) if role == Role::AllWork && core.clean_at_a_pace() => {}
            Ok(false) if role == Role::AllWork && core.has_idle_work() => {
                let before = core.visible();
                core.workers.wait_for_call(seen, IDLE_AFTER);
                core.work_while_idle(seen, before);
            }
            Err(error) if is_tried_again(&error) => core.workers.wait_for_call(seen, RETRY_WAIT),
            // After a failure the database is poisoned, and says so on every write.
            Ok(false) | Err(_) => {
                core.workers.wait_for_call(seen, core.idle_wait());
            }
        }
    }
}

/// Whether background work goes on behind this by itself.
pub(super) fn is_tried_again(error: &Error) -> bool {
    matches!(error, Error::DiskFull { .. }) || may_pass(error)
}

/// Runs a piece of work; a panic in it poisons the database.
pub(super) fn caught(core: &Core, work: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.unwrap_or_else(|panic| {
        core.set_poison(&format!("a background thread panicked: {}", text_of(&*panic)));
        Ok(false)
    })
}

/// What a panic says.
pub(super) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

impl Core {
    /// Ends the threads of an opening that comes to nothing, and takes back what they look after.
    pub(super) fn give_up_opening(&self) {
        self.set_closed();
        self.workers.join();
        self.scrubber.end();
        self.watcher.end();
        self.guard.abandon_reserve();
    }

    /// One piece of background work, for the caller's thread.
    pub(super) fn step(&self) -> Result<bool> {
        self.check_open()?;
        self.look_after_health();
        self.step_in_background()
    }

    /// One piece of background work, be it only consolidation, for the caller's thread.
    pub(super) fn step_or_consolidate(&self) -> Result<bool> {
        if self.step()? || self.make_room_if_full()? || self.clean_in_background()?.is_some() {
            return Ok(true);
        }
        if matches!(self.consolidate_in_background()?, Found::Work { .. }) {
            return Ok(true);
        }
        Ok(self.scrub_step())
    }

    fn has_idle_work(&self) -> bool {
        self.look_for_expired();
        self.may_have_leftovers() || self.meter.spares.bytes() > 0
    }

    /// Sees to it that what has expired is consolidated, where that is worth it.
    fn look_for_expired(&self) {
        let now = self.time.now_if_used();
        if now == 0 || !self.workers.is_time_to_look(self.clock.monotonic()) {
            return;
        }
        let state = self.published.state();
        let mut stores = state.keyspaces.iter().map(|keyspace| &keyspace.runtime.store);
        if stores.any(|store| store.has_much_expired(now)) {
            self.workers.note_leftovers();
        }
    }

    /// Whether there may be something to consolidate that is not left to who asks for it.
    fn may_have_leftovers(&self) -> bool {
        self.cleaning.is_in_background()
            && !self.pauses.is_paused()
            && self.workers.may_have_leftovers()
    }

    /// How long a thread waits that has found nothing to do.
    fn idle_wait(&self) -> Duration {
        // Writing resumes soon behind room that comes back.
        let longest = if self.guard.refuses_writes() { RETRY_WAIT } else { IDLE_WAIT };
        if self.pauses.is_paused() {
            return longest; // The end of the pause is a call.
        }
        let now = self.clock.monotonic();
        let longest = self.cleaning.wait_at_most(longest, now);
        match self.compaction_rate.wait(now) {
            Duration::ZERO => longest,
            wait => longest.min(wait),
        }
    }

    fn compact_in_background(&self) -> Result<bool> {
        self.compact_slice_of_any(match self.background {
            Background::Threads => Keeping::ToRate,
            Background::Stepped => Keeping::ToNone,
        })
    }

    /// Gives memory back, and consolidates at the pace of cleaning, until something is committed or
    /// called for.
    fn work_while_idle(&self, seen: u64, before: SeqNo) {
        let is_idle =
            || !self.is_closed() && self.workers.calls() == seen && self.visible() == before;
        if is_idle() {
            self.meter.spares.give_back();
        }
        while is_idle() && self.may_have_leftovers() {
            // Set first: a flush that comes meanwhile takes it back.
            self.workers.nothing_left.store(true, Ordering::Relaxed);
            let mut found = Found::Nothing;
            let began = self.clock.monotonic();
            let early = self.compaction_rate.wait(began);
            if !early.is_zero() {
                self.workers.note_leftovers();
                self.workers.wait_for_call(seen, early);
                continue;
            }
            let done = caught(self, || {
                found = self.consolidate_in_background()?;
                Ok(matches!(found, Found::Work { .. }))
            });
            if self.pauses.is_paused() {
                self.workers.note_leftovers();
                return;
            }
            if done.is_err() || found == Found::Nothing {
                return; // After a failure: until something is flushed again.
            }
            self.workers.note_leftovers();
            let Found::Work { bytes } = found else { return };
            self.compaction_rate.note(bytes, began);
            let next = began + self.cleaning.time_for(bytes);
            self.workers.wait_for_call(seen, next.saturating_sub(self.clock.monotonic()));
        }
    }

    fn consolidate_in_background(&self) -> Result<Found> {
        if self.poison().is_some() || !self.cleaning.is_in_background() {
            return Ok(Found::Nothing);
        }
        let Some(_working) = self.pauses.begin_work() else { return Ok(Found::Busy) };
        self.consolidate_slice_of_any().inspect_err(|error| self.follow_idle_failure(error))
    }

    /// Looks for the most urgent piece of work and does it; `false` when none is due.
    fn step_in_background(&self) -> Result<bool> {
        self.heed_failed_sync();
        if self.poison().is_some() {
            return Ok(false);
        }
        let done = self.try_step();
        if let Err(error) = &done {
            self.note_work_failure(error);
        }
        done
    }

    fn try_step(&self) -> Result<bool> {
        if self.guard.refuses_writes() && self.guard.look_for_room() {
            self.runtimes().iter().for_each(|runtime| runtime.no_room.forget());
        }
        self.retry_what_failed();
        match self.log.prepare_file() {
            Ok(Preparing::Done) => {
                self.failures.all_solved(Work::LogFile);
                return Ok(true);
            }
            Ok(Preparing::NotDue) => self.failures.all_solved(Work::LogFile),
            Ok(Preparing::Elsewhere) => {}
            // One that cannot be made ready now is made by the append that needs it, which then
            // says why it cannot.
            Err(error) => self.note_failed(Work::LogFile, None, &error),
        }
        if self.background == Background::Threads && self.meter.spares.prepare() {
            return Ok(true);
        }
        match self.flush_slice_of_any() {
            Ok(true) => Ok(true),
            Ok(false) => self.step_beside_flushes(),
            // It waits for room, which may be found here.
            Err(full @ Error::DiskFull { .. }) => match self.give_back_rest()? {
                true => Ok(true),
                false => Err(full),
            },
            // What one keyspace fails with is not to keep the others from what they need.
            Err(passing) if may_pass(&passing) => match self.step_beside_flushes()? {
                true => Ok(true),
                false => Err(passing),
            },
            Err(error) => Err(error),
        }
    }

    /// What is less urgent than flushes.
    fn step_beside_flushes(&self) -> Result<bool> {
        if self.give_back_log_again()? || self.sync_ahead()? || self.compact_in_background()? {
            return Ok(true);
        }
        self.give_back_rest()
    }

    /// Has work that can be done without be tried again, some time after it has failed, where that
    /// may pass: nothing need be flushed before that is known.
    fn retry_what_failed(&self) {
        if self.failures.is_time_to_retry(self.clock.monotonic()) {
            self.runtimes().iter().for_each(|runtime| runtime.store.try_again());
            self.workers.note_leftovers();
            self.cleaning.note_garbage();
        }
    }

    /// Removes files that nothing refers to any more, and those of a keyspace that was dropped;
    /// then its key, if it had one of its own. Whether there was one. What cannot be removed now is
    /// tried again, and nobody waits for it.
    fn give_back_rest(&self) -> Result<bool> {
        self.runtimes().iter().for_each(|runtime| runtime.store.remove_unreferenced());
        self.remove_unreferenced_values();
        if !self.give_back_dropped()? {
            return Ok(self.destroy_keys_in_passing());
        }
        self.note_keys_due();
        self.destroy_keys_in_passing();
        Ok(true)
    }

    /// As [`Core::remove_dropped`]; what cannot be removed now is told, and tried again.
    ///
    /// # Errors
    /// As there, where what has gone may come back or the manifest be in doubt: a sync or an edit
    /// failed.
    fn give_back_dropped(&self) -> Result<bool> {
        match self.remove_dropped() {
            Ok(was_one) => {
                if was_one {
                    self.failures.all_solved(Work::Removal);
                }
                Ok(was_one)
            }
            Err(error) => {
                self.note_failed(Work::Removal, None, &error);
                if is_tried_again(&error) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Removes the files of stores that were given up or replaced, if nobody needs them; else the
    /// background does when nobody does, or opening. A failure is the background's.
    pub(super) fn remove_loose_stores(&self) {
        let _open = self.staging.read().unwrap_or_else(PoisonError::into_inner);
        if self.check_writable().is_err() {
            return;
        }
        let removed = loop {
            match self.give_back_dropped() {
                Ok(true) => {}
                other => break other,
            }
        };
        if let Err(error) = removed {
            self.note_failure(&error);
        }
    }

    /// Consolidation can be done without: no writer waits for it, so that one that found no room or
    /// met damage has no consequences. Damage is told to those who read it. A disk that fails is
    /// another matter.
    pub(super) fn note_idle_failure(&self, work: Work, keyspace_id: u32, error: &Error) {
        self.note_failed(work, Some(keyspace_id), error);
        self.follow_idle_failure(error);
    }

    /// What follows from a failure of work that can be done without.
    pub(super) fn follow_idle_failure(&self, error: &Error) {
        if matches!(error, Error::Io { .. } | Error::ReadOnly { .. }) {
            self.note_work_failure(error);
        }
    }

    /// A failure for want of room passes; any other leaves the database read-only, so that it is
    /// not only seen in the background.
    pub(super) fn note_failure(&self, error: &Error) {
        match error {
            Error::DiskFull { .. } => {
                self.disk_full_count.fetch_add(1, Ordering::Relaxed);
                self.signal_flushed();
            }
            Error::Closed => {}
            other => self.set_poison(&format!("background work failed: {other}")),
        }
    }
}
