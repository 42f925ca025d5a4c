//! Counts of hits and misses that many threads add to without sharing a cache line.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// Lines that threads are spread over.
const STRIPE_COUNT: usize = 32;

/// What a cache has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Values put into a slot.
    pub fills: u64,
    /// Values taken out to make room.
    pub evictions: u64,
}

/// Hits and misses.
#[derive(Debug, Default)]
pub(super) struct LookupCounters {
    stripes: [Stripe; STRIPE_COUNT],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl LookupCounters {
    /// Counts one lookup.
    #[inline]
    pub(super) fn count(&self, outcome: LookupOutcome) {
        let stripe = &self.stripes[STRIPE.with(|&stripe| stripe)];
        let counter = match outcome {
            LookupOutcome::Hit => &stripe.hits,
            LookupOutcome::Miss => &stripe.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits and misses so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        let sum = |of: fn(&Stripe) -> &AtomicU64| {
            self.stripes.iter().map(|stripe| of(stripe).load(Ordering::Relaxed)).sum()
        };
        (sum(|stripe| &stripe.hits), sum(|stripe| &stripe.misses))
    }
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupOutcome {
    Hit,
    Miss,
}

thread_local! {
    /// The stripe of this thread: the next one in turn when it counts for the first time.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPE_COUNT
    };
}
