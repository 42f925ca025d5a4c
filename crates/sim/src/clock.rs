//! A clock whose wall jumps both ways while its monotonic time only goes on, as real ones do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lithedb::base::Clock;

/// A simulated clock; it moves when told, and on every wait.
#[derive(Debug)]
pub struct SimClock {
    wall_micros: AtomicU64,
    monotonic_micros: AtomicU64,
}

impl SimClock {
    /// A clock whose wall shows `millis` since 1970.
    #[must_use]
    pub fn at_millis(millis: u64) -> SimClock {
        SimClock { wall_micros: AtomicU64::new(millis * 1000), monotonic_micros: AtomicU64::new(0) }
    }

    /// Sets the wall this much forth, or back; time itself passes either way.
    pub fn jump(&self, millis: i16) {
        let micros = u64::from(millis.unsigned_abs()) * 1000;
        self.monotonic_micros.fetch_add(micros, Ordering::Relaxed);
        if millis >= 0 {
            self.wall_micros.fetch_add(micros, Ordering::Relaxed);
        } else {
            self.wall_micros.fetch_sub(micros, Ordering::Relaxed);
        }
    }
}

impl Default for SimClock {
    fn default() -> SimClock {
        SimClock::at_millis(crate::setup::START_MILLIS)
    }
}

impl Clock for SimClock {
    fn wall_millis(&self) -> u64 {
        self.wall_micros.load(Ordering::Relaxed) / 1000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) {
        let micros = duration.as_micros() as u64;
        self.wall_micros.fetch_add(micros, Ordering::Relaxed);
        self.monotonic_micros.fetch_add(micros, Ordering::Relaxed);
    }
}
