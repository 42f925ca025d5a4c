//! Which calls are under way, and which of them for long.
//!
//! A call notes itself in one of some words and takes that back: two atomic operations, mostly on a
//! cache line of its thread's own, and no look at the clock. Whoever looks (a thread of the
//! database, now and then) finds by that how long calls have been under way, also those that never
//! come back.
//!
//! Invariants
//! - C1  A word that has not changed from one look to another is one call, that was under way at
//!   both: a word has the number of the last look in front of it.
//! - C2  What a word is marked with as slow is in `Looks::slow` at its place, until its call is
//!   over. Both are changed under that lock.
//!
//! | bits of a word | what |
//! |---|---|
//! | 0..32 | the file's number |
//! | 32..55 | the number of the last look |
//! | 55..63 | the operation, counted from 1; 0 when nothing is under way |
//! | 63 | marked as slow |

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::base::{Clock, THREAD_STRIPES, stripe_of_thread};
use crate::storage::Operation;

/// Calls that can be noted at a time; those beyond are not.
const WORD_COUNT: usize = 2 * THREAD_STRIPES;
/// Words that a call tries.
const PROBE_COUNT: usize = 4;
const LOOK_SHIFT: u32 = 32;
const LOOK_MASK: u64 = (1 << 23) - 1;
const OPERATION_SHIFT: u32 = 55;
const SLOW: u64 = 1 << 63;
/// Calls that were slow and are over, as far as they are kept.
const OVER_KEPT: usize = 16;

/// A call to the storage that took, or takes, longer than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowCall {
    /// What was called.
    pub operation: Operation,
    /// The file or directory.
    pub path: PathBuf,
    /// How long it has been under way, or was: at least. It is looked at a few times a second.
    pub duration: Duration,
    /// Whether it has come back.
    pub is_over: bool,
}

impl fmt::Display for SlowCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlowCall { operation, path, duration, is_over } = self;
        let tense = if *is_over { "took" } else { "has been under way for" };
        let seconds = duration.as_secs_f64();
        write!(f, "{operation:?} of {} {tense} {seconds:.1} s", path.display())
    }
}

/// An open file, or a path that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileNumber(u32);

#[derive(Debug)]
#[repr(align(64))]
struct Word(AtomicU64);

#[derive(Debug)]
pub(super) struct Calls {
    clock: Arc<dyn Clock>,
    slow_after: Duration,
    words: Box<[Word]>,
    /// The number of the last look.
    look: AtomicU64,
    /// Calls that were slow.
    slow_count: AtomicU64,
    /// Those of them that are over.
    over_count: AtomicU64,
    looks: Mutex<Looks>,
    /// Taken behind `looks`.
    paths: Mutex<Paths>,
}

/// What looks have seen.
#[derive(Debug)]
struct Looks {
    /// For each word, what it was at the last look, and at which look it came to be that.
    seen: Vec<(u64, Duration)>,
    /// For each word, the call that is slow, and since when (C2).
    slow: Vec<Option<(SlowCall, Duration)>>,
    /// Those that are over, the newest last.
    over: VecDeque<SlowCall>,
}

#[derive(Debug, Default)]
struct Paths {
    paths: Vec<Option<Arc<Path>>>,
    free: Vec<u32>,
}

/// A call that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Underway<'c> {
    calls: &'c Calls,
    /// Which word; none if all that were tried were taken.
    word: Option<usize>,
}

/// A path that has a number for one call.
#[derive(Debug)]
pub(super) struct Named<'c> {
    calls: &'c Calls,
    number: FileNumber,
}

impl Calls {
    pub(super) fn new(clock: Arc<dyn Clock>, slow_after: Duration) -> Calls {
        let looks = Looks {
            seen: vec![(0, Duration::ZERO); WORD_COUNT],
            slow: (0..WORD_COUNT).map(|_| None).collect(),
            over: VecDeque::new(),
        };
        Calls {
            clock,
            slow_after,
            words: (0..WORD_COUNT).map(|_| Word(AtomicU64::new(0))).collect(),
            look: AtomicU64::new(0),
            slow_count: AtomicU64::new(0),
            over_count: AtomicU64::new(0),
            looks: Mutex::new(looks),
            paths: Mutex::default(),
        }
    }

    /// Notes that a call begins.
    #[inline]
    pub(super) fn begin(&self, operation: Operation, file: FileNumber) -> Underway<'_> {
        let look = self.look.load(Ordering::Relaxed) & LOOK_MASK;
        let word =
            ((operation as u64 + 1) << OPERATION_SHIFT) | (look << LOOK_SHIFT) | u64::from(file.0);
        let first = stripe_of_thread() * (WORD_COUNT / THREAD_STRIPES);
        for probe in 0..PROBE_COUNT {
            let index = (first + probe) % WORD_COUNT;
            let place = &self.words[index].0;
            if place.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Underway { calls: self, word: Some(index) };
            }
        }
        Underway { calls: self, word: None }
    }

    /// Gives a file a number, until it is [removed](Self::remove).
    pub(super) fn add(&self, path: Arc<Path>) -> FileNumber {
        let mut paths = lock(&self.paths);
        let number = match paths.free.pop() {
            Some(number) => {
                paths.paths[number as usize] = Some(path);
                number
            }
            None => {
                paths.paths.push(Some(path));
                paths.paths.len() as u32 - 1 // Nobody has so many files open.
            }
        };
        FileNumber(number)
    }

    pub(super) fn remove(&self, number: FileNumber) {
        let mut paths = lock(&self.paths);
        paths.paths[number.0 as usize] = None;
        paths.free.push(number.0);
    }

    /// Gives a path a number for one call.
    pub(super) fn name(&self, path: &Path) -> Named<'_> {
        Named { calls: self, number: self.add(Arc::from(path)) }
    }

    /// Looks at all that is under way: what has not changed for longer than it should is slow.
    pub(super) fn look(&self) {
        let now = self.clock.monotonic();
        let mut looks = lock(&self.looks);
        for (index, word) in self.words.iter().enumerate() {
            let word = &word.0;
            let value = word.load(Ordering::Acquire);
            let (seen, since) = looks.seen[index];
            if value != seen {
                looks.seen[index] = (value, now);
                continue;
            }
            let is_slow = now.saturating_sub(since) >= self.slow_after; // C1
            if value == 0 || value & SLOW != 0 || !is_slow {
                continue;
            }
            // C2. A path has its number as long as the call is under way, and that of one that is
            // over by now is not wanted.
            let path = lock(&self.paths).paths[value as u32 as usize].clone();
            let marked =
                word.compare_exchange(value, value | SLOW, Ordering::AcqRel, Ordering::Relaxed);
            if let (Ok(_), Some(path)) = (marked, path) {
                looks.seen[index] = (value | SLOW, since);
                let (operation, path) = (operation_of(value), path.to_path_buf());
                let call = SlowCall { operation, path, duration: Duration::ZERO, is_over: false };
                looks.slow[index] = Some((call, since));
                self.slow_count.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Behind the look: a call that begins meanwhile, and is not seen, has another number then.
        self.look.fetch_add(1, Ordering::Relaxed);
    }

    /// Those under way, and the last ones that are over.
    pub(super) fn slow(&self) -> Vec<SlowCall> {
        let now = self.clock.monotonic();
        let looks = lock(&self.looks);
        let underway = looks.slow.iter().flatten();
        let underway = underway
            .map(|(call, since)| SlowCall { duration: now.saturating_sub(*since), ..call.clone() });
        underway.chain(looks.over.iter().rev().cloned()).collect()
    }

    pub(super) fn slow_count(&self) -> u64 {
        self.slow_count.load(Ordering::Relaxed)
    }

    pub(super) fn changes(&self) -> u64 {
        self.slow_count() + self.over_count.load(Ordering::Relaxed)
    }

    #[cold]
    fn note_over(&self, index: usize) {
        let now = self.clock.monotonic();
        let mut looks = lock(&self.looks);
        let Some((call, since)) = looks.slow[index].take() else { return };
        if looks.over.len() == OVER_KEPT {
            looks.over.pop_front();
        }
        let duration = now.saturating_sub(since);
        looks.over.push_back(SlowCall { duration, is_over: true, ..call });
        self.over_count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Underway<'_> {
    #[inline]
    fn drop(&mut self) {
        let Some(index) = self.word else { return };
        if self.calls.words[index].0.swap(0, Ordering::AcqRel) & SLOW != 0 {
            self.calls.note_over(index);
        }
    }
}

impl Named<'_> {
    pub(super) fn number(&self) -> FileNumber {
        self.number
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.calls.remove(self.number);
    }
}

fn operation_of(word: u64) -> Operation {
    let number = (word & !SLOW) >> OPERATION_SHIFT;
    Operation::ALL[number as usize - 1]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements that can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ManualClock;

    #[test]
    fn operations_have_their_numbers() {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, number);
            assert_eq!(operation_of(((number as u64 + 1) << OPERATION_SHIFT) | SLOW), operation);
        }
    }

    #[test]
    fn a_call_is_slow_while_it_is_under_way_and_over_behind_it() {
        let clock = Arc::new(ManualClock::default());
        let calls = Calls::new(clock.clone(), Duration::from_secs(1));
        let named = calls.name(Path::new("/db/file"));
        let underway = calls.begin(Operation::Sync, named.number());
        calls.look();
        assert!(calls.slow().is_empty(), "nobody knows how long it has been under way");
        clock.advance(Duration::from_secs(2));
        calls.look();
        clock.advance(Duration::from_secs(1));
        let slow = calls.slow();
        assert_eq!(slow.len(), 1);
        assert_eq!((slow[0].operation, slow[0].is_over), (Operation::Sync, false));
        assert_eq!((slow[0].path.as_path(), calls.slow_count()), (Path::new("/db/file"), 1));
        assert_eq!(slow[0].duration, Duration::from_secs(3));
        calls.look();
        assert_eq!(calls.slow_count(), 1, "it is told once");
        clock.advance(Duration::from_secs(4));
        drop(underway);
        let slow = calls.slow();
        assert_eq!(slow.len(), 1);
        assert!(slow[0].is_over && slow[0].duration == Duration::from_secs(7));
        assert_eq!(calls.changes(), 2);
    }

    #[test]
    fn calls_one_after_the_other_are_not_one_that_is_slow() {
        let clock = Arc::new(ManualClock::default());
        let calls = Calls::new(clock.clone(), Duration::from_secs(1));
        let named = calls.name(Path::new("/db/file"));
        for _ in 0..10 {
            // The same file, operation and word: whenever it is looked, one is under way.
            let underway = calls.begin(Operation::Read, named.number());
            calls.look();
            drop(underway);
            clock.advance(Duration::from_millis(900));
        }
        assert_eq!(calls.slow_count(), 0);
    }

    #[test]
    fn more_calls_than_words_are_done_all_the_same() {
        let clock = Arc::new(ManualClock::default());
        let calls = Calls::new(clock, Duration::from_secs(1));
        let named = calls.name(Path::new("/db/file"));
        let begin = || calls.begin(Operation::Read, named.number());
        let underway: Vec<_> = (0..2 * PROBE_COUNT).map(|_| begin()).collect();
        assert!(underway.iter().filter(|call| call.word.is_some()).count() >= PROBE_COUNT);
        drop(underway);
        assert!(calls.words.iter().all(|word| word.0.load(Ordering::Relaxed) == 0));
    }
}
