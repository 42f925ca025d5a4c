//! Keeping to a rate, for work that goes in pieces.

use std::time::Duration;

use lithedb::base::{Clock, SystemClock};

use crate::interrupt::Interrupt;

/// How long somebody who presses Ctrl-C waits at most.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// So many bytes a second, on average since it was begun.
pub struct Pace {
    rate: u64,
    clock: SystemClock,
    began: Duration,
}

impl Pace {
    /// Begins now. The rate is not 0.
    pub fn start(rate: u64) -> Pace {
        let clock = SystemClock::new();
        let began = clock.monotonic();
        Pace { rate, clock, began }
    }

    /// Waits until so many bytes may have been written since the beginning, or for Ctrl-C.
    pub fn keep(&self, bytes: u64, interrupt: &Interrupt) {
        let end = self.began + time_for(bytes, self.rate);
        while !interrupt.is_raised() {
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// How long so many bytes take at a rate.
fn time_for(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_takes_its_time() {
        assert_eq!(time_for(0, 1), Duration::ZERO);
        assert_eq!(time_for(1 << 20, 1 << 20), Duration::from_secs(1));
        assert_eq!(
            time_for(u64::MAX, 1 << 40),
            Duration::from_secs(1 << 24) - Duration::from_nanos(1)
        );
        assert_eq!(time_for(u64::MAX, 1), Duration::from_nanos(u64::MAX));
    }
}
