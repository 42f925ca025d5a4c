//! How long a client is waited for that is to send or take something at a rate.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Limits;

/// Time for waiting, which bytes pay for. What was sent at once buys no long silence behind it: at
/// most as much is saved up as there is in the beginning.
#[derive(Debug)]
pub struct Credit {
    left: Duration,
    most: Duration,
    /// Bytes a second that are enough.
    rate: f64,
}

impl Credit {
    pub fn new(limits: &Limits) -> Credit {
        let (most, rate) = (limits.first_byte, limits.rate_min.max(1) as f64);
        Credit { left: most, most, rate }
    }

    /// What may still be waited.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// So long it was waited.
    pub fn spend(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }

    /// So many bytes have come, or were taken.
    pub fn earn(&mut self, bytes: usize) {
        let earned = Duration::from_secs_f64(bytes as f64 / self.rate);
        self.left = self.left.saturating_add(earned).min(self.most);
    }
}

/// Waiting all the time.
#[derive(Debug)]
pub struct Patience {
    /// From `since` on.
    credit: Credit,
    since: Instant,
}

impl Patience {
    pub fn new(limits: &Limits) -> Patience {
        Patience { credit: Credit::new(limits), since: Instant::now() }
    }

    /// Until when the client is waited for.
    pub fn end(&self) -> Instant {
        self.since + self.credit.left()
    }

    /// So many bytes have come, or were taken.
    pub fn note(&mut self, bytes: usize) {
        self.note_at(bytes, Instant::now());
    }

    fn note_at(&mut self, bytes: usize, now: Instant) {
        self.credit.spend(now.saturating_duration_since(self.since));
        self.credit.earn(bytes);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paid_at_once_buys_no_more_than_there_was_at_first() {
        let first_byte = Duration::from_secs(10);
        let limits = Limits { first_byte, rate_min: 1024, ..Limits::default() };
        let mut patience = Patience::new(&limits);
        let mut now = patience.since;
        let mut later = |patience: &mut Patience, seconds: u64, bytes: usize| {
            now += Duration::from_secs(seconds);
            patience.note_at(bytes, now);
            patience.end().duration_since(now).as_secs()
        };
        assert_eq!(later(&mut patience, 0, 0), 10);
        assert_eq!(later(&mut patience, 0, 64 << 20), 10);
        assert_eq!(later(&mut patience, 4, 0), 6);
        assert_eq!(later(&mut patience, 0, 2048), 8);
        // At the rate it goes on for as long as there is something.
        for _ in 0..100 {
            assert_eq!(later(&mut patience, 5, 5 * 1024), 8);
        }
        assert_eq!(later(&mut patience, 9, 0), 0);
    }
}
