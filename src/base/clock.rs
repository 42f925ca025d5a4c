//! Time and randomness as values that the caller hands in, so that a run can be replayed.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Where the engine reads time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970-01-01 UTC; may jump either way.
    fn wall_millis(&self) -> u64;
    /// Time since an arbitrary start; never goes back.
    fn monotonic(&self) -> Duration;
    /// Waits for `duration`. A simulated clock moves on instead of waiting.
    fn sleep(&self, duration: Duration);
}

/// The clock of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    pub fn new() -> SystemClock {
        SystemClock { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    fn wall_millis(&self) -> u64 {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_1970.map_or(0, |elapsed| elapsed.as_millis() as u64)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        crate::base::sync::thread::sleep(duration);
    }
}

/// A clock that moves only when told: for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `millis` since 1970.
    #[must_use]
    pub fn at_millis(millis: u64) -> ManualClock {
        ManualClock { micros: AtomicU64::new(millis * 1000) }
    }

    /// Moves the clock on.
    pub fn advance(&self, duration: Duration) {
        self.micros.fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }

    /// Sets the wall clock, back or forth.
    pub fn set_millis(&self, millis: u64) {
        self.micros.store(millis * 1000, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn wall_millis(&self) -> u64 {
        self.micros.load(Ordering::Relaxed) / 1000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// Where the engine takes unpredictable numbers (identities of databases and files; no secrets).
pub trait Entropy: Send + Sync + fmt::Debug {
    /// 64 bits.
    fn next_u64(&self) -> u64;
}

/// Numbers from the keys that the standard library draws from the operating system.
#[derive(Debug, Default)]
pub struct SystemEntropy {
    counter: AtomicU64,
}

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        RandomState::new().hash_one(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

/// A reproducible sequence (`SplitMix64`, S. Vigna).
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> SeededEntropy {
        SeededEntropy { state: AtomicU64::new(seed) }
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
