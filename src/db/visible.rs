//! Up to which stamp commits are visible, and in which state: two atomics, and the orders in which
//! they are written and read. Knows neither states nor stamps, but their numbers, so that it can be
//! tried in every order that the memory model allows (`crates/schedules/tests/kernels.rs`).
//!
//! D2: a reader takes a state and a stamp so that they belong together. A commit goes to the
//! memtables of the state that is current, and is then published; a state is replaced only between
//! commits, and its generation is there before anything goes to its memtables. So who sees the
//! stamp of a commit that a state does not hold sees a generation above that state's.

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mistake, is_planted};

/// The newest generation and the newest stamp.
#[derive(Debug)]
pub(super) struct Visible {
    /// That of the state, or of the one before or behind it while it is being replaced.
    generation: AtomicU64,
    stamp: AtomicU64,
}

impl Visible {
    pub(super) fn new(generation: u64, stamp: u64) -> Visible {
        Visible { generation: AtomicU64::new(generation), stamp: AtomicU64::new(stamp) }
    }

    /// The stamp up to which a state of this generation, which was loaded before, holds every
    /// commit; `None` if a flush or a seal has replaced it, which is rare.
    #[inline]
    pub(super) fn in_state(&self, generation: u64) -> Option<u64> {
        if is_planted(Mistake::StateBeforeStamp) {
            let is_newest = self.generation.load(Ordering::Acquire) <= generation;
            return is_newest.then(|| self.stamp());
        }
        let stamp = self.stamp.load(Ordering::Acquire);
        let is_newest = self.generation.load(Ordering::Acquire) <= generation;
        is_newest.then_some(stamp)
    }

    #[inline]
    pub(super) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// Makes commits up to `stamp` visible.
    pub(super) fn publish(&self, stamp: u64) {
        self.stamp.store(stamp, Ordering::Release);
    }

    /// Says that the state was replaced by one of this generation. Behind that: who sees the
    /// generation finds the state.
    pub(super) fn note_replaced(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// Says that the state is about to be replaced by one of this generation, whose versions hold
    /// the commit of this stamp. In front of that: who finds the state sees the stamp; and who sees
    /// the stamp sees the generation, and does not take the state of before.
    pub(super) fn announce(&self, generation: u64, stamp: u64) {
        self.generation.store(generation, Ordering::Release);
        self.stamp.store(stamp, Ordering::Release);
    }
}
