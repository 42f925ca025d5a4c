//! Grace periods: tells the writer when no reader can hold a node any more.
//!
//! A reader pins for the length of one descent: one atomic add and one subtract on a counter that
//! few threads share. It never waits. The writer unlinks a node, then looks at the counters now
//! and then; it never waits either, it takes fresh memory meanwhile. Knows nothing of nodes.
//!
//! Invariants
//! - G1  A reader counts itself before it loads the first node pointer and uncounts itself after
//!   its last use of a node. The count and every load and store of a node pointer are `SeqCst`: a
//!   reader whose count the writer does not see loads the pointers that the writer stored before.
//! - G2  A node unlinked before `Grace::begin` is held by nobody once every counter was seen at
//!   zero at least once after it: who could hold it was counted then and has left since.
//! - G3  New readers count themselves at the current side; the writer turns the side over twice in
//!   a grace period and waits for the side that gets no new readers, so that it makes progress
//!   under any number of readers. G2 does not depend on the side.
//!
//! Source: the two-sided counters of P. McKenney's sleepable RCU (2006).

use std::cell::Cell;

use crate::base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Threads are spread over so many counter lines. Few where all orders are tried (`kernels.rs` of
/// `crates/schedules`).
const STRIPE_COUNT: usize = if cfg!(loom) { 2 } else { 8 };
const SIDE_COUNT: usize = 2;

/// The counters of the readers of one memtable.
#[derive(Default)]
pub(super) struct Readers {
    side: AtomicUsize,
    stripes: [Stripe; STRIPE_COUNT],
}

/// One cache line, so that threads of different stripes do not disturb each other.
#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    counts: [AtomicU32; SIDE_COUNT],
}

/// While it lives, nodes that can be reached stay as they are.
pub(super) struct Pin<'m> {
    count: &'m AtomicU32,
}

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}
// No part of what is shared: any stripe will do. So it is no place for a scheduler.
static STRIPE_NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn stripe_of_thread() -> usize {
    // A thread that is ending may have lost its thread-locals: any stripe will do.
    let known = STRIPE.try_with(Cell::get).unwrap_or(0);
    if known != usize::MAX {
        return known;
    }
    let stripe = STRIPE_NEXT.fetch_add(1, Ordering::Relaxed) % STRIPE_COUNT;
    STRIPE.with(|cell| cell.set(stripe));
    stripe
}

impl Readers {
    /// Counts the calling thread as a reader until the pin is dropped.
    #[inline]
    pub(super) fn pin(&self) -> Pin<'_> {
        let side = self.side.load(Ordering::Relaxed) % SIDE_COUNT;
        let count = &self.stripes[stripe_of_thread()].counts[side];
        count.fetch_add(1, Ordering::SeqCst); // G1
        Pin { count }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was read under the pin happens before the node is written again.
        self.count.fetch_sub(1, Ordering::Release);
    }
}

/// The writer's view of one grace period at a time.
#[derive(Default)]
pub(super) struct Grace {
    /// Bit `stripe` is set while the stripe was not yet seen at zero on the draining side.
    waiting: u32,
    sides_left: usize,
}

impl Grace {
    /// Begins a period for the nodes unlinked so far.
    pub(super) fn begin(&mut self, readers: &Readers) {
        self.sides_left = SIDE_COUNT;
        self.turn(readers);
    }

    /// Whether the period is over: nodes unlinked before `begin` are held by nobody.
    pub(super) fn is_over(&mut self, readers: &Readers) -> bool {
        while self.sides_left > 0 {
            let draining = (readers.side.load(Ordering::Relaxed) + 1) % SIDE_COUNT;
            for (index, stripe) in readers.stripes.iter().enumerate() {
                // G1, G2: acquires what the readers that left did under their pins.
                if stripe.counts[draining].load(Ordering::SeqCst) == 0 {
                    self.waiting &= !(1 << index);
                }
            }
            if self.waiting != 0 {
                return false;
            }
            self.sides_left -= 1;
            if self.sides_left > 0 {
                self.turn(readers);
            }
        }
        true
    }

    fn turn(&mut self, readers: &Readers) {
        self.waiting = (1 << STRIPE_COUNT) - 1;
        // Relaxed: only progress hangs on it (G3). One writer, so no update is lost.
        let side = readers.side.load(Ordering::Relaxed);
        readers.side.store((side + 1) % SIDE_COUNT, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_period_ends_when_the_readers_from_before_it_have_left() {
        let readers = Readers::default();
        let mut grace = Grace::default();
        let early = readers.pin();
        grace.begin(&readers);
        let late = readers.pin();
        assert!(!grace.is_over(&readers));
        drop(early);
        // `late` entered on the new side: that side drains second.
        assert!(!grace.is_over(&readers));
        let later = readers.pin();
        drop(late);
        assert!(grace.is_over(&readers), "`later` came after the second turn");
        drop(later);
        grace.begin(&readers);
        assert!(grace.is_over(&readers));
    }
}
