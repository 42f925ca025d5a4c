//! Holding writers and background work to a rate, and measuring the rate of flushes.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, PoisonError};

/// Who was slower than the rate may be faster for so long, and no longer.
const BURST: Duration = Duration::from_millis(5);
/// Shorter waits are put together: a thread wakes up about 60 us late.
const WAIT_MIN: Duration = Duration::from_micros(250);
/// Nobody waits longer than this in one go, so that whoever waits sees a change soon.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// What was written too fast is forgotten beyond this: the rate of that moment says little about
/// the next second.
const DEBT_MAX: Duration = Duration::from_secs(1);
/// What older slices still count, with each new one. A flush is slow where the sweep is and fast
/// elsewhere, so it takes the slices of a whole memtable to know.
const MEMORY: f64 = 0.95;

/// Holds any number of writers together to a rate.
///
/// Each commit moves the moment on at which the next one is due (the generic cell rate algorithm of
/// ITU-T I.371: a leaky bucket that keeps one number).
#[derive(Debug, Default)]
pub struct Pacer {
    /// In nanoseconds of the monotonic clock.
    due: AtomicU64,
}

impl Pacer {
    /// How long to wait before `bytes` are written at `rate` bytes a second.
    pub fn wait_for(&self, bytes: u64, rate: u64, now: Duration) -> Duration {
        let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let (now, cost) = (nanos(now), nanos(cost));
        let (earliest, latest) = (now.saturating_sub(nanos(BURST)), now + nanos(DEBT_MAX));
        let next = |due: u64| due.max(earliest).saturating_add(cost).min(latest);
        let order = Ordering::Relaxed; // Only a number.
        let before = self.due.fetch_update(order, order, |due| Some(next(due)));
        let due = next(before.unwrap_or_else(|due| due));
        let wait = Duration::from_nanos(due.saturating_sub(now)).min(WAIT_MAX);
        if wait < WAIT_MIN { Duration::ZERO } else { wait }
    }
}

/// Slices of work under a rate take this part of a second, where that is not too short.
const SLICES_PER_SECOND: u64 = 8;
/// Shorter slices are not worth being one.
const SLICE_BYTES_MIN: u64 = 64 << 10;

/// Holds background work to a rate, or to none: a slice may begin when the ones before it have
/// taken the time that the rate gives them. Threads that begin at once are all let go.
#[derive(Debug)]
pub struct RateLimit {
    /// Bytes a second; `u64::MAX` for none.
    rate: AtomicU64,
    /// When the next slice may begin, in nanoseconds of the monotonic clock.
    due: AtomicU64,
}

impl RateLimit {
    /// One of so many bytes a second, or none.
    #[must_use]
    pub fn new(rate: Option<u64>) -> RateLimit {
        RateLimit { rate: AtomicU64::new(rate.unwrap_or(u64::MAX)), due: AtomicU64::new(0) }
    }

    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate != u64::MAX)
    }

    /// Sets it. What was written before counts no more.
    pub fn set(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.due.store(0, Ordering::Relaxed);
    }

    /// How long until the next slice may begin.
    #[must_use]
    pub fn wait(&self, now: Duration) -> Duration {
        if self.rate().is_none() {
            return Duration::ZERO; // Whatever was noted meanwhile.
        }
        Duration::from_nanos(self.due.load(Ordering::Relaxed).saturating_sub(nanos(now)))
    }

    /// A slice that began then has written `bytes`.
    pub fn note(&self, bytes: u64, began: Duration) {
        let Some(rate) = self.rate() else { return };
        let cost = nanos(Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64));
        let order = Ordering::Relaxed; // Only a number.
        let next = |due: u64| Some(due.max(nanos(began)).saturating_add(cost));
        let _before = self.due.fetch_update(order, order, next);
    }

    /// Bytes of a slice, `most` at most: the lower the rate, the shorter, so that what is written
    /// does not come in bursts.
    #[must_use]
    pub fn slice_bytes(&self, most: u64) -> u64 {
        match self.rate() {
            Some(rate) => most.min((rate / SLICES_PER_SECOND).max(SLICE_BYTES_MIN)),
            None => most,
        }
    }
}

/// How fast memtables of a keyspace are flushed, by the last twenty slices or so.
#[derive(Debug, Default)]
pub struct FlushRate {
    /// Bytes and seconds, older ones counting less.
    sums: Mutex<(f64, f64)>,
    rate: AtomicU64,
}

impl FlushRate {
    /// A slice has taken `bytes` of the memtable in that time.
    pub fn note(&self, bytes: u64, time: Duration) {
        // Plain numbers: whatever panicked, they are as good as any.
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        *sums = (sums.0 * MEMORY + bytes as f64, sums.1 * MEMORY + time.as_secs_f64());
        self.publish(*sums);
    }

    /// What has to be done beside took that time, on account of the slice noted last.
    pub fn note_more(&self, time: Duration) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.1 += time.as_secs_f64();
        self.publish(*sums);
    }

    fn publish(&self, (bytes, seconds): (f64, f64)) {
        let rate = if seconds > 0.0 { bytes / seconds } else { 0.0 };
        self.rate.store(rate as u64, Ordering::Relaxed);
    }

    /// Bytes a second; 0 if nothing is known yet.
    pub fn bytes_per_second(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_held_to_the_rate_and_short_waits_are_put_together() {
        let pacer = Pacer::default();
        let mut now = Duration::from_secs(10);
        let (mut waits, mut waited) = (0, Duration::ZERO);
        for _ in 0..10_000 {
            let wait = pacer.wait_for(1000, 10_000_000, now); // 100 us each
            assert!(wait.is_zero() || (WAIT_MIN..=WAIT_MAX).contains(&wait));
            waits += u32::from(!wait.is_zero());
            waited += wait;
            now += wait;
        }
        assert!(waited >= Duration::from_secs(1) - BURST - WAIT_MIN, "{waited:?}");
        assert!(waited <= Duration::from_secs(1), "{waited:?}");
        assert!(waits < 10_000 / 2, "{waits}");
    }

    #[test]
    fn who_is_slower_than_the_rate_never_waits() {
        let pacer = Pacer::default();
        let mut now = Duration::from_secs(10);
        for _ in 0..1000 {
            now += Duration::from_micros(150);
            assert_eq!(pacer.wait_for(1000, 10_000_000, now), Duration::ZERO);
        }
    }

    #[test]
    fn a_large_batch_at_a_low_rate_is_forgotten_after_a_second() {
        let pacer = Pacer::default();
        let mut now = Duration::from_secs(10);
        assert_eq!(pacer.wait_for(1 << 30, 1000, now), WAIT_MAX);
        now += DEBT_MAX + WAIT_MAX;
        assert_eq!(pacer.wait_for(1000, 10_000_000, now), Duration::ZERO);
    }

    #[test]
    fn slices_keep_to_a_rate_that_may_change_at_any_time() {
        let limit = RateLimit::new(Some(1 << 20));
        assert_eq!(limit.slice_bytes(4 << 20), 1 << 17);
        let began = Duration::from_secs(5);
        assert_eq!(limit.wait(began), Duration::ZERO);
        limit.note(1 << 20, began);
        limit.note(1 << 19, began); // of another thread
        assert_eq!(limit.wait(began), Duration::from_millis(1500));
        assert_eq!(limit.wait(began + Duration::from_secs(2)), Duration::ZERO);
        limit.set(Some(1 << 30));
        assert_eq!(limit.wait(began), Duration::ZERO);
        assert_eq!((limit.rate(), limit.slice_bytes(4 << 20)), (Some(1 << 30), 4 << 20));
        limit.set(None);
        limit.note(1 << 40, began);
        assert_eq!((limit.rate(), limit.wait(began)), (None, Duration::ZERO));
        assert_eq!(RateLimit::new(Some(1)).slice_bytes(4 << 20), SLICE_BYTES_MIN);
    }

    #[test]
    fn the_rate_follows_the_last_slices() {
        let rate = FlushRate::default();
        assert_eq!(rate.bytes_per_second(), 0);
        rate.note(1000, Duration::ZERO);
        assert_eq!(rate.bytes_per_second(), 0);
        for _ in 0..100 {
            rate.note(1_000_000, Duration::from_millis(10));
        }
        let fast = rate.bytes_per_second();
        assert!((99_000_000..=101_000_000).contains(&fast), "{fast}");
        for _ in 0..100 {
            rate.note(1_000_000, Duration::from_millis(100));
        }
        let slow = rate.bytes_per_second();
        assert!((9_900_000..=10_500_000).contains(&slow), "{slow}");
        for _ in 0..100 {
            rate.note(1_000_000, Duration::from_millis(100));
            rate.note_more(Duration::from_millis(300));
        }
        let slower = rate.bytes_per_second();
        assert!((2_400_000..=2_600_000).contains(&slower), "{slower}");
    }
}
