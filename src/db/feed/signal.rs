//! Waking those who wait for a commit.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Condvar, Mutex, PoisonError};
use crate::db::commit::CommitLog;
use crate::db::core::lock;
use crate::wal::Lsn;

/// How many times was signalled; and whether somebody waits for the next time.
#[derive(Debug, Default)]
pub(in crate::db) struct FeedSignal {
    /// Set under the applier's lock, and read under it by who applies.
    is_awaited: AtomicBool,
    count: Mutex<u64>,
    signalled: Condvar,
}

/// The signals that there had been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u64);

impl FeedSignal {
    /// Says that something was committed. The caller has the applier's lock. One load, unless
    /// somebody waits.
    #[inline]
    pub(in crate::db) fn signal_commit(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.signal();
        }
    }

    /// Wakes all who wait, to look for themselves.
    #[cold]
    pub(in crate::db) fn signal(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        *lock(&self.count) += 1;
        self.signalled.notify_all();
    }

    /// Waits for a signal behind the ticket, for so long; whether that is over.
    pub(super) fn wait(&self, Ticket(seen): Ticket, timeout: Duration) -> bool {
        let count = lock(&self.count);
        let waited = self.signalled.wait_timeout_while(count, timeout, |count| *count == seen);
        waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl CommitLog {
    /// What to wait with for a commit behind `end`; `None` when one is there. To be asked before
    /// looking for it.
    pub(super) fn await_commit(&self, end: Lsn) -> Option<Ticket> {
        let applier = self.lock_applier();
        if applier.applied() > end {
            return None;
        }
        self.feeds.is_awaited.store(true, Ordering::Relaxed);
        Some(Ticket(*lock(&self.feeds.count)))
    }
}
