//! Time, as far as somebody waits for it.
//!
//! Owns the modelled clock and the waits that it ends. All of a schedule is on one thread of the
//! system, so that this is a thread-local.
//!
//! While threads of the scenario are at work ([`foreground`]), a wait of [`SAFETY_NET`] or more
//! that has to be ended by the clock, because nobody could go on, and nobody sleeps or waits for
//! less, is a signal that was lost: panics.
//! The engine has such ends only in case of what it does not know; threads would stand still for
//! so long.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::time::Duration;

use shuttle::sync::Condvar;

use super::Arc;

/// From here on the end of a wait is there for what should not happen.
const SAFETY_NET: Duration = Duration::from_millis(10);
/// How often the clock may end one wait, without the thread going on: it waits for a lock then.
const ENDED_MAX: u32 = 3;

/// Why somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For somebody else, but not for ever.
    Wait,
    /// For the time itself.
    Sleep,
}

#[derive(Debug)]
struct Timer {
    id: u64,
    condvar: Arc<Condvar>,
    longest: Duration,
    until: Duration,
    kind: Kind,
    place: &'static Location<'static>,
    ended: u32,
}

#[derive(Debug, Default)]
struct Time {
    now: Duration,
    next_id: u64,
    timers: Vec<Timer>,
    foreground: usize,
    /// Where waits may be ended by the clock, whoever is at work.
    patient: Vec<&'static str>,
}

thread_local! {
    static TIME: RefCell<Time> = RefCell::default();
    /// Set by the scheduler when nobody but the clock can go on.
    static NOBODY_ELSE: Cell<bool> = const { Cell::new(false) };
}

/// Begins a schedule: it is the moment 0. In files whose paths end with one of `patient` the clock
/// may end waits while threads of the scenario are at work.
pub fn restart(patient: &[&'static str]) {
    let before = TIME.take();
    drop(before);
    TIME.with_borrow_mut(|time| time.patient = patient.to_vec());
    NOBODY_ELSE.set(false);
}

/// The moment.
#[must_use]
pub fn now() -> Duration {
    TIME.with_borrow(|time| time.now)
}

/// Moves the clock on a little, as reading it takes.
pub fn pass(duration: Duration) -> Duration {
    TIME.with_borrow_mut(|time| {
        time.now += duration;
        time.now
    })
}

/// For the scheduler: that nobody but the clock can go on, or that somebody can.
pub fn note_nobody_else(nobody_else: bool) {
    NOBODY_ELSE.set(nobody_else);
}

/// Runs something that the scenario is not to wait for because a signal was lost.
pub fn foreground<T>(run: impl FnOnce() -> T) -> T {
    TIME.with_borrow_mut(|time| time.foreground += 1);
    let done = run();
    TIME.with_borrow_mut(|time| time.foreground -= 1);
    done
}

/// For the clock's thread, again and again: ends the wait that is over next.
///
/// # Panics
/// When nobody else can go on, and there is no such wait, or only one that should not be needed.
pub fn move_on() {
    let nobody_else = NOBODY_ELSE.get();
    let ended = TIME.with_borrow_mut(|time| time.end_next(nobody_else));
    match ended {
        Ok(Some(condvar)) => condvar.notify_all(),
        Ok(None) => {}
        Err(finding) => panic!("{finding}"),
    }
}

impl Time {
    fn end_next(&mut self, nobody_else: bool) -> Result<Option<Arc<Condvar>>, String> {
        let foreground = self.foreground;
        // Who sleeps, or waits for a moment, goes on by itself: it may be what others wait for, and
        // theirs may be over before when the clock was moved on while they waited.
        let goes_on = |timer: &Timer| timer.kind == Kind::Sleep || timer.longest < SAFETY_NET;
        let somebody_goes_on = self.timers.iter().any(goes_on);
        let Some(timer) = self.timers.iter_mut().min_by_key(|timer| (timer.until, timer.id)) else {
            return if nobody_else { Err("nobody can go on".to_owned()) } else { Ok(None) };
        };
        self.now = self.now.max(timer.until);
        let condvar = Arc::clone(&timer.condvar);
        if !nobody_else {
            return Ok(Some(condvar));
        }
        timer.ended += 1;
        let (longest, place) = (timer.longest, timer.place);
        if timer.ended > ENDED_MAX {
            return Err(format!("nobody can go on: a wait at {place} is over, and does not end"));
        }
        let is_patient = self.patient.iter().any(|file| place.file().ends_with(file));
        if foreground > 0 && !somebody_goes_on && !is_patient {
            let others: Vec<String> =
                self.timers.iter().map(|timer| timer.place.to_string()).collect();
            return Err(format!(
                "a signal was lost: nobody goes on until a wait of {longest:?} at {place} is over \
                 (all waits with an end: {others:?})"
            ));
        }
        Ok(Some(condvar))
    }
}

/// A wait begins.
pub(super) fn begin(
    condvar: &Arc<Condvar>,
    longest: Duration,
    kind: Kind,
    place: &'static Location<'static>,
) -> u64 {
    TIME.with_borrow_mut(|time| {
        let id = time.next_id;
        time.next_id += 1;
        let (condvar, until) = (Arc::clone(condvar), time.now.saturating_add(longest));
        time.timers.push(Timer { id, condvar, longest, until, kind, place, ended: 0 });
        id
    })
}

/// A wait is over; whether by the clock.
pub(super) fn end(id: u64) -> bool {
    TIME.with_borrow_mut(|time| {
        let index = time.timers.iter().position(|timer| timer.id == id);
        let timer = index.map(|index| time.timers.swap_remove(index));
        timer.is_some_and(|timer| time.now >= timer.until)
    })
}
