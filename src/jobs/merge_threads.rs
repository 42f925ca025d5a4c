//! How many threads merge at once where processors are short.
//!
//! What is to be merged can wait, who reads cannot: with more threads than processors each of them
//! is put off now and then for a time slice of the system's, milliseconds where a read takes
//! microseconds. A thread that merges knows from the system how long it has waited for a processor.
//! Where that was long one fewer merges from then on; one more is tried after a pause, which
//! doubles with each try that fails. One merges always.

use std::time::Duration;

use crate::base::sync::{Mutex, MutexGuard, PoisonError};

/// Processors are short where a thread has waited for one for longer than this part of the time.
const SHORT_DIVISOR: u32 = 8;
/// Shorter slices say nothing: one late awakening is too much of them.
const TOOK_MIN: Duration = Duration::from_millis(10);
/// The first pause before one more thread is tried, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The threads of a database that merge.
#[derive(Debug)]
pub struct MergeThreads(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Turns that are out.
    at_it: usize,
    /// So many may be at it.
    allowed: usize,
    /// When one more is tried.
    next_try: Duration,
    /// How long it is until the try behind that.
    pause: Duration,
    /// When fewer were allowed last: slices that began before say nothing of how it is since.
    fewer_since: Duration,
}

/// How a slice went.
#[derive(Clone, Copy, Debug)]
pub struct MergedSlice {
    /// When it ended.
    pub end: Duration,
    pub took: Duration,
    /// How much of that the thread waited for a processor.
    pub waited: Duration,
}

/// A thread that merges a slice; it does no longer when this is dropped.
#[derive(Debug)]
pub struct MergeTurn<'a> {
    threads: &'a MergeThreads,
    /// How many were at it when it began, with this one.
    beside: usize,
    /// One more than was allowed.
    is_try: bool,
}

impl Default for MergeThreads {
    fn default() -> MergeThreads {
        let (at_it, allowed) = (0, usize::MAX);
        MergeThreads(Mutex::new(State {
            at_it,
            allowed,
            next_try: Duration::ZERO,
            pause: PAUSE_MIN,
            fewer_since: Duration::ZERO,
        }))
    }
}

impl MergeThreads {
    /// A turn of a thread that gives way to others; `None` when it is to.
    pub fn join(&self, now: Duration) -> Option<MergeTurn<'_>> {
        let mut state = self.lock();
        let is_try = state.at_it >= state.allowed;
        if is_try {
            if now < state.next_try {
                return None;
            }
            state.allowed += 1;
            state.next_try = now + state.pause;
        }
        Some(self.count(&mut state, is_try))
    }

    /// A turn of a thread that gives way to nobody.
    pub fn join_anyway(&self) -> MergeTurn<'_> {
        let mut state = self.lock();
        self.count(&mut state, false)
    }

    fn count(&self, state: &mut State, is_try: bool) -> MergeTurn<'_> {
        state.at_it += 1;
        MergeTurn { threads: self, beside: state.at_it, is_try }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MergeTurn<'_> {
    /// Says how the slice went.
    pub fn note(&self, slice: MergedSlice) {
        if slice.took < TOOK_MIN {
            return;
        }
        let mut state = self.threads.lock();
        if slice.end.saturating_sub(slice.took) < state.fewer_since {
            return;
        }
        if slice.waited > slice.took / SHORT_DIVISOR {
            let count = self.beside.max(state.at_it);
            if count > 1 {
                state.allowed = state.allowed.min(count - 1);
                state.fewer_since = slice.end;
                state.next_try = slice.end + state.pause;
                state.pause = (state.pause * 2).min(PAUSE_MAX);
            }
        } else if self.is_try {
            state.pause = PAUSE_MIN;
            state.next_try = slice.end;
        }
    }
}

impl Drop for MergeTurn<'_> {
    fn drop(&mut self) {
        self.threads.lock().at_it -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(40);

    /// A machine on which `free` processors are free: threads that merge, each a slice, until
    /// `end`. Returns how many were at it, a slice each.
    fn counts(threads: &MergeThreads, free: u32, asked: usize, end: Duration) -> Vec<usize> {
        let mut now = Duration::ZERO;
        let mut counts = Vec::new();
        while now < end {
            let turns: Vec<_> = (0..asked).filter_map(|_| threads.join(now)).collect();
            let busy = turns.len() as u32;
            counts.push(turns.len());
            // What they do takes as much longer as there are too few processors.
            let took = SLICE * busy.max(free) / free.max(1);
            now += took;
            let waited = took.saturating_sub(SLICE);
            turns.iter().for_each(|turn| turn.note(MergedSlice { end: now, took, waited }));
        }
        counts
    }

    fn share_of(counts: &[usize], count: usize) -> f64 {
        counts.iter().filter(|&&other| other == count).count() as f64 / counts.len() as f64
    }

    #[test]
    fn as_many_merge_as_processors_are_free() {
        for (free, asked) in [(1, 3), (2, 3), (3, 4)] {
            let counts = counts(&MergeThreads::default(), free, asked, Duration::from_secs(60));
            assert!(share_of(&counts, free as usize) > 0.95, "{free} of {asked}: {counts:?}");
        }
        let counts = counts(&MergeThreads::default(), 4, 3, Duration::from_secs(10));
        assert_eq!(share_of(&counts, 3), 1.0);
    }

    #[test]
    fn one_merges_always_and_more_again_when_there_is_room() {
        let threads = MergeThreads::default();
        // Others have taken all there is, and more: even one waits half of the time.
        for second in 0..20 {
            let now = Duration::from_secs(second);
            let slice = MergedSlice { end: now, took: SLICE, waited: SLICE / 2 };
            let turn = threads.join(now).unwrap();
            turn.note(slice);
            let other = threads.join(now);
            other.iter().for_each(|other| other.note(slice));
        }
        let now = Duration::from_secs(19);
        let first = threads.join(now).unwrap();
        assert!(threads.join(now).is_none());
        assert!(threads.join(now + PAUSE_MAX).is_some());
        drop(first);
        let counts = counts(&threads, 2, 2, Duration::from_secs(60));
        assert!(share_of(&counts, 2) > 0.8, "{counts:?}");
    }

    #[test]
    fn short_slices_and_those_of_one_alone_say_nothing() {
        let threads = MergeThreads::default();
        let now = Duration::from_secs(1);
        let first = threads.join(now).unwrap();
        first.note(MergedSlice { end: now, took: SLICE, waited: SLICE });
        let second = threads.join(now).unwrap();
        let took = TOOK_MIN - Duration::from_nanos(1);
        second.note(MergedSlice { end: now, took, waited: took });
        assert!(threads.join(now).is_some(), "nobody gives way");
    }

    #[test]
    fn who_was_asked_gives_way_to_nobody_and_counts() {
        let threads = MergeThreads::default();
        let now = Duration::from_secs(1);
        let (asked, helper) = (threads.join_anyway(), threads.join(now).unwrap());
        helper.note(MergedSlice { end: now, took: SLICE, waited: SLICE });
        drop(helper);
        assert!(threads.join(now).is_none());
        let another = threads.join_anyway();
        drop((asked, another));
        assert!(threads.join(now).is_some());
    }
}
