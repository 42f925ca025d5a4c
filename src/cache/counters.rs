//! Counts of hits and misses.

use crate::base::StripedCounters;

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
pub(super) struct LookupCounters(StripedCounters<2>);

impl LookupCounters {
    /// Counts one lookup.
    #[inline]
    pub(super) fn count(&self, outcome: LookupOutcome) {
        self.0.count(outcome as usize);
    }

    /// Hits and misses so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        let total = |outcome| self.0.total(outcome as usize);
        (total(LookupOutcome::Hit), total(LookupOutcome::Miss))
    }
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupOutcome {
    Hit = 0,
    Miss = 1,
}
