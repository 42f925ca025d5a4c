//! Time: the only place here that reads the clock.
//!
//! Invariants
//! - T1  A stopwatch runs only while an engine works. Making keys and values, and checking what was
//!   read, happen while it stands.

use std::time::{Duration, Instant};

/// This moment.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Adds up the time of what it is given to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopwatch {
    total: Duration,
}

impl Stopwatch {
    /// Runs `work` with the watch on.
    #[inline]
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = now();
        let result = work();
        self.total += start.elapsed();
        result
    }

    /// All time so far.
    pub fn total(&self) -> Duration {
        self.total
    }
}

/// The result of `work` and how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let mut watch = Stopwatch::default();
    let result = watch.time(work);
    (result, watch.total())
}

/// Operations per second.
pub fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Nanoseconds per operation.
pub fn nanoseconds_each(count: u64, time: Duration) -> f64 {
    time.as_nanos() as f64 / count.max(1) as f64
}

/// Microseconds per operation.
pub fn microseconds_each(count: u64, time: Duration) -> f64 {
    nanoseconds_each(count, time) / 1e3
}

/// Milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_the_unit_that_they_name() {
        let time = Duration::from_millis(2);
        assert!((rate(1000, time) - 500_000.0).abs() < 1e-6);
        assert!((nanoseconds_each(1000, time) - 2000.0).abs() < 1e-9);
        assert!((microseconds_each(1000, time) - 2.0).abs() < 1e-9);
        assert!((milliseconds(time) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_stopwatch_adds_up_what_it_ran_and_hands_the_result_on() {
        let mut watch = Stopwatch::default();
        assert_eq!(watch.time(|| 7), 7);
        let first = watch.total();
        watch.time(|| std::thread::sleep(Duration::from_millis(2)));
        assert!(watch.total() >= first + Duration::from_millis(2));
    }
}
