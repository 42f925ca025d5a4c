//! That a keyspace has found no room for its flush, where that of others may fit.

use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::db::core::lock;

/// A flush that found no room is not begun anew by itself before so many times what it took: each
/// try writes until there is none, and takes it from others meanwhile.
const RETRY_FACTOR: u32 = 4;
/// .. nor before so long,
const RETRY_WAIT_MIN: Duration = Duration::from_millis(100);
/// .. but then: writers may be told that there is no room for so long, although there is again.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Whether the last try of a keyspace's flush found no room.
#[derive(Debug, Default)]
pub(super) struct NoRoom {
    is_noted: AtomicBool,
    /// When it is to be tried again, of the clock that only rises.
    retry_at: Mutex<Duration>,
}

impl NoRoom {
    /// A try that began then has found none by now.
    #[cold]
    pub(super) fn note(&self, began: Duration, now: Duration) {
        let wait = now.saturating_sub(began).saturating_mul(RETRY_FACTOR);
        *lock(&self.retry_at) = now + wait.clamp(RETRY_WAIT_MIN, RETRY_WAIT_MAX);
        self.is_noted.store(true, Ordering::Release);
    }

    /// There was some, or may be some again.
    pub(super) fn forget(&self) {
        self.is_noted.store(false, Ordering::Release);
    }

    pub(super) fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Acquire)
    }

    /// Whether it is too early, at that time, for another try that nobody asks for.
    pub(super) fn is_waited_for(&self, now: Duration) -> bool {
        self.is_noted() && now < *lock(&self.retry_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_try_waits_the_longer_the_longer_the_last_one_took() {
        let at = Duration::from_millis;
        let no_room = NoRoom::default();
        assert!(!no_room.is_noted() && !no_room.is_waited_for(at(0)));
        for (took, wait) in [(1, 100), (60, 240), (3_600_000, 1000)] {
            no_room.note(at(0), at(took));
            assert!(no_room.is_waited_for(at(took + wait - 1)));
            assert!(!no_room.is_waited_for(at(took + wait)) && no_room.is_noted());
        }
        no_room.note(at(0), at(1));
        no_room.forget();
        assert!(!no_room.is_waited_for(at(2)));
    }
}
