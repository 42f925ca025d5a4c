//! The stamp of a commit: a hybrid logical clock reading.
//!
//! Invariants
//! - Q1  Stamps handed out by one [`StampClock`] rise strictly, whatever the wall clock does.
//! - Q2  A stamp is never behind the wall clock reading that it was made from.
//!
//! Source: S. Kulkarni et al., "Logical Physical Clocks" (2014): a physical part that never goes
//! back and a counter that breaks ties.

use std::fmt;

/// Bits of a [`SeqNo`] that count commits within one millisecond.
const COUNTER_BITS: u32 = 16;

/// The stamp of a commit: 48 bits of milliseconds since 1970 and 16 bits of counter.
///
/// It is the sequence number, the version number and the last-written time in one; stamps of one
/// database rise strictly, also across reopening and when the wall clock jumps back.
///
/// ```
/// use lithedb::base::SeqNo;
/// let stamp = SeqNo::from_parts(1_700_000_000_000, 3);
/// assert_eq!(stamp.millis(), 1_700_000_000_000);
/// assert_eq!(stamp.counter(), 3);
/// assert!(stamp < SeqNo::from_parts(1_700_000_000_001, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqNo(u64);

impl SeqNo {
    /// Before every commit.
    pub const ZERO: SeqNo = SeqNo(0);
    /// After every commit.
    pub const MAX: SeqNo = SeqNo(u64::MAX);

    /// The stamp with this 64-bit value.
    #[must_use]
    pub const fn from_u64(value: u64) -> SeqNo {
        SeqNo(value)
    }

    /// The 64-bit value: milliseconds in the upper 48 bits, the counter in the lower 16.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The stamp of the `counter`-th commit in the millisecond `millis` since 1970.
    #[must_use]
    pub const fn from_parts(millis: u64, counter: u16) -> SeqNo {
        SeqNo((millis << COUNTER_BITS) | counter as u64)
    }

    /// Milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The number of this commit within its millisecond.
    #[must_use]
    pub const fn counter(self) -> u16 {
        (self.0 & 0xFFFF) as u16
    }
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.millis(), self.counter())
    }
}

/// Hands out stamps that rise strictly (Q1).
#[derive(Debug)]
pub struct StampClock {
    last: SeqNo,
}

impl StampClock {
    /// A clock whose next stamp is above `last`.
    #[must_use]
    pub fn after(last: SeqNo) -> StampClock {
        StampClock { last }
    }

    /// The next stamp, given the wall clock in milliseconds since 1970.
    ///
    /// More than 65,536 commits in one millisecond carry into the millisecond part: the stamp runs
    /// ahead of the wall clock until that catches up.
    ///
    /// # Panics
    /// When 2^64 stamps have been used.
    pub fn next(&mut self, wall_millis: u64) -> SeqNo {
        let wall = SeqNo::from_parts(wall_millis & ((1 << 48) - 1), 0);
        let after_last = SeqNo(self.last.0.checked_add(1).expect("2^64 stamps are not used up"));
        self.last = wall.max(after_last);
        self.last
    }

    /// Hands out no stamp up to this one any more.
    pub fn skip_to(&mut self, stamp: SeqNo) {
        self.last = self.last.max(stamp);
    }

    /// The last stamp handed out.
    #[must_use]
    pub fn last(&self) -> SeqNo {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_when_the_wall_clock_jumps_back() {
        let mut clock = StampClock::after(SeqNo::ZERO);
        let first = clock.next(1000);
        let second = clock.next(10);
        let third = clock.next(2000);
        assert!(first < second && second < third);
        assert_eq!(first, SeqNo::from_parts(1000, 0));
        assert_eq!(second, SeqNo::from_parts(1000, 1));
        assert_eq!(third, SeqNo::from_parts(2000, 0));
    }

    #[test]
    fn stamps_can_be_passed_over_and_never_come_back() {
        let mut clock = StampClock::after(SeqNo::from_parts(5, 3));
        clock.skip_to(SeqNo::from_parts(7, 8));
        assert_eq!(clock.next(7), SeqNo::from_parts(7, 9));
        clock.skip_to(SeqNo::from_parts(6, 0));
        assert_eq!(clock.next(7), SeqNo::from_parts(7, 10));
    }

    #[test]
    fn a_full_counter_carries_into_the_millisecond() {
        let mut clock = StampClock::after(SeqNo::from_parts(5, u16::MAX));
        assert_eq!(clock.next(5), SeqNo::from_parts(6, 0));
    }
}
