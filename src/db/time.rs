//! Time as reads judge it: by when has an entry expired?
//!
//! An entry that expires is there as long as *now* is before that. Now is the largest of: the
//! clock, the newest stamp, and every now that was judged by since the database was opened. So it
//! never goes back, and nothing that was found to have expired is there again, whatever the clock
//! does.
//!
//! Invariants
//! - E1  No stamp is below a now that was judged by before it was given. So what a transaction
//!   found to have expired has expired at its place among the commits, too.
//! - E2  A snapshot, a walk and a transaction judge by one now, which is not before the stamp that
//!   they are as of. What flushes and consolidation have left out in the state that they read had
//!   expired by that now; where nothing expires any more and no now was taken, before the
//!   database was opened (unless it crashed and the clock was then set back).

use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Clock, MOMENT_MAX, SeqNo};
use crate::db::core::Core;
use crate::db::state::{KeyspaceState, State};

/// No now was taken yet. Nothing has expired by then.
const NOT_YET: u64 = 0;

/// The clock, and the newest now.
#[derive(Debug)]
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    /// What it showed when the database was opened, or the newest stamp of before, if that is
    /// later. Closing keeps the newest now as one.
    began: AtomicU64,
    newest: AtomicU64,
    /// Whether anything expires in the database; set before it is visible, and never taken back.
    is_used: AtomicBool,
}

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Time> {
        let (newest, is_used) = (AtomicU64::new(NOT_YET), AtomicBool::new(false));
        let began = AtomicU64::new(clock.wall_millis() & MOMENT_MAX);
        Arc::new(Time { clock, began, newest, is_used })
    }

    /// When the database was opened, not before what earlier openings have given or judged by, but
    /// for what a crash has lost of that where the clock was set back. What they have left out had
    /// expired by then.
    pub(super) fn began(&self) -> u64 {
        self.began.load(Ordering::Relaxed)
    }

    /// Recovery has found this as the newest stamp of earlier openings.
    pub(super) fn note_opened(&self, newest: SeqNo) {
        self.began.fetch_max(newest.millis(), Ordering::Relaxed);
        self.note_stamp(newest);
    }

    /// A stamp was given, by this opening of the database or an earlier one: it is past that.
    pub(super) fn note_stamp(&self, stamp: SeqNo) {
        self.now_at_least(stamp.millis());
    }

    /// Something that expires is about to come, or is there.
    pub(super) fn note_used(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Now; 0 where nothing expires, and nobody has to look at the clock.
    pub(super) fn now_if_used(&self) -> u64 {
        if self.is_used() { self.now() } else { NOT_YET }
    }

    /// Now. In milliseconds since 1970, at least 1.
    pub(super) fn now(&self) -> u64 {
        self.now_at_least(self.wall().max(NOT_YET + 1))
    }

    /// The last moment that is not in the future: now, but not before the opening, which snapshots
    /// may say that they show.
    pub(super) fn latest(&self) -> u64 {
        self.now().max(self.began())
    }

    /// What the clock shows, within what a stamp can say.
    fn wall(&self) -> u64 {
        self.clock.wall_millis() & MOMENT_MAX
    }

    /// The newest now that was taken, or this, which then is it.
    fn now_at_least(&self, moment: u64) -> u64 {
        let newest = self.newest();
        if newest >= moment {
            return newest; // And nothing is written: who reads all the time does so often.
        }
        self.newest.fetch_max(moment, Ordering::AcqRel).max(moment)
    }

    /// The newest now that was taken.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// What stamps are made from: the clock, but not before any now (E1).
    pub(super) fn wall_for_stamp(&self) -> u64 {
        self.wall().max(self.newest())
    }
}

/// What reads are as of: a stamp, and a now, if that was taken. It was, if what is read may show
/// anything that expires, but for reads of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsOf {
    pub at: SeqNo,
    now: u64,
}

impl AsOf {
    /// Now is taken when something is found that expires: for reads of one key.
    #[inline]
    pub(super) fn newest(at: SeqNo) -> AsOf {
        AsOf { at, now: NOT_YET }
    }

    /// Now was taken, or nothing expires.
    #[inline]
    pub(super) fn of(at: SeqNo, now: u64) -> AsOf {
        AsOf { at, now }
    }

    /// The now that was taken; 0 if nothing expires.
    pub(super) fn judged_now(&self) -> u64 {
        self.now
    }

    /// The now that is judged by.
    pub(super) fn now(&self, time: &Time) -> u64 {
        match self.now {
            NOT_YET => time.now().max(self.at.millis()),
            now => now,
        }
    }
}

impl KeyspaceState {
    /// Whether there may be entries that expire.
    #[inline]
    pub(super) fn may_expire(&self) -> bool {
        self.tables().any(|table| table.memtable.has_expiring())
            || self.version.expiring_count() > 0
    }

    /// The now that all of a walk judges by; 0 when nothing expires.
    pub(super) fn now_if_any_expires(&self, as_of: AsOf) -> u64 {
        if self.may_expire() { as_of.now(&self.runtime.time) } else { NOT_YET }
    }

    /// The now that all of a count judges by; 0 when nothing in the database ever expired. That
    /// nothing does any more is no reason: what is kept of counts before is as of a now (P4).
    pub(super) fn now_of_count(&self, as_of: AsOf) -> u64 {
        let time = &self.runtime.time;
        if time.is_used() { as_of.now(time) } else { NOT_YET }
    }
}

impl Core {
    /// The state, and what a snapshot of it is as of.
    ///
    /// The now is taken first: then no commit that is not in the state, and returned before, has a
    /// stamp below it. If another was judged by meanwhile, what had expired by that may be gone
    /// from the state: so it is that one, and the state is taken again (E2).
    pub(super) fn moment(&self) -> (Arc<State>, AsOf) {
        let mut now = self.time.now_if_used();
        loop {
            let (state, at) = self.published.load();
            if !self.time.is_used() {
                return (state, AsOf::newest(at)); // Nothing that it shows expires.
            }
            let newest = self.time.now_at_least(at.millis());
            if newest <= now {
                return (state, AsOf::of(at, now));
            }
            now = self.time.now().max(newest);
        }
    }

    /// The same for a keyspace, and without a look at the clock when nothing in it expires. `None`
    /// when it is gone.
    pub(super) fn moment_of(&self, keyspace: u32) -> Option<(Arc<KeyspaceState>, AsOf)> {
        let (state, at) = self.published.load();
        let found = state.find(keyspace)?;
        if !found.may_expire() {
            return Some((Arc::clone(found), AsOf::newest(at)));
        }
        let (state, as_of) = self.moment();
        Some((Arc::clone(state.find(keyspace)?), as_of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ManualClock;

    #[test]
    fn now_never_goes_back_and_stamps_are_not_before_it() {
        let clock = Arc::new(ManualClock::at_millis(1000));
        let time = Time::new(Arc::clone(&clock) as Arc<_>);
        assert_eq!((time.now_if_used(), time.newest()), (0, 0), "nobody has looked");
        time.note_used();
        assert_eq!((time.now_if_used(), time.newest()), (1000, 1000));
        clock.set_millis(10);
        assert_eq!((time.now(), time.wall_for_stamp()), (1000, 1000));
        time.note_stamp(SeqNo::from_parts(2000, 5));
        assert_eq!((time.now(), time.newest()), (2000, 2000));
        clock.set_millis(3000);
        assert_eq!((time.wall_for_stamp(), time.newest()), (3000, 2000), "a stamp judges nothing");
        let as_of = AsOf::newest(SeqNo::from_parts(5000, 0));
        assert_eq!(as_of.now(&time), 5000, "stamps may be ahead of the clock");
        assert_eq!(AsOf::of(SeqNo::ZERO, 7).now(&time), 7);
    }

    #[test]
    fn a_clock_beyond_what_stamps_can_say_does_not_use_them_up() {
        let clock = Arc::new(ManualClock::at_millis(MOMENT_MAX + 1000));
        let time = Time::new(Arc::clone(&clock) as Arc<_>);
        assert_eq!((time.now(), time.wall_for_stamp()), (999, 999));
    }
}
