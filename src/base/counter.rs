//! Counts that many threads add to without sharing a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Lines that threads are spread over.
pub const STRIPE_COUNT: usize = 32;

/// `N` counts. Each thread adds to a line of its own, by a load and a store: an addition that
/// excludes all others takes ten times as long. With more than 32 threads some share a line, and
/// then an addition may be lost now and then, and a total be less than one before: these counts are
/// for people to look at, and for what goes by them roughly.
#[derive(Debug)]
pub struct StripedCounters<const N: usize> {
    stripes: [Stripe<N>; STRIPE_COUNT],
}

#[derive(Debug)]
#[repr(align(64))]
struct Stripe<const N: usize>([AtomicU64; N]);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}
static STRIPE_NEXT: AtomicUsize = AtomicUsize::new(0);

/// The stripe of this thread: the next one in turn when it counts for the first time.
#[inline]
pub fn stripe_of_thread() -> usize {
    // A thread that is ending may have lost its thread-locals: any stripe will do.
    let known = STRIPE.try_with(Cell::get).unwrap_or(0);
    if known < STRIPE_COUNT { known } else { choose_stripe() }
}

#[cold]
fn choose_stripe() -> usize {
    let stripe = STRIPE_NEXT.fetch_add(1, Ordering::Relaxed) % STRIPE_COUNT;
    let _lost_when_the_thread_ends = STRIPE.try_with(|cell| cell.set(stripe));
    stripe
}

impl<const N: usize> Default for StripedCounters<N> {
    fn default() -> StripedCounters<N> {
        let stripe = |_| Stripe(std::array::from_fn(|_| AtomicU64::new(0)));
        StripedCounters { stripes: std::array::from_fn(stripe) }
    }
}

impl<const N: usize> StripedCounters<N> {
    /// Adds one to count `index`.
    #[inline]
    pub fn count(&self, index: usize) {
        self.add(index, 1);
    }

    /// Adds `n` to count `index`.
    #[inline]
    pub fn add(&self, index: usize, n: u64) {
        let count = &self.stripes[stripe_of_thread()].0[index];
        count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// What count `index` is now.
    #[must_use]
    pub fn total(&self, index: usize) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0[index].load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_add_up() {
        let counters = StripedCounters::<2>::default();
        // Fewer threads than stripes; other tests' threads count elsewhere.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| counters.count(1)));
                scope.spawn(|| (0..250).for_each(|_| counters.add(1, 2)));
            }
        });
        assert_eq!(counters.total(0), 0);
        assert!(counters.total(1) <= 4000 && counters.total(1) >= 500);
    }
}
