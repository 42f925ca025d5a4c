//! A thread that brings a follower on again and again.

use std::time::Duration;

use super::Follower;
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Condvar, Mutex, PoisonError};
use crate::base::{Error, Result};
use crate::db::core::lock;
use crate::memory::ProcessMark;

/// In front of each look at least: one behind the other would keep a processor busy.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Brings a follower on by itself, until it is dropped; made by [`Follower::keep_up`].
#[derive(Debug)]
pub struct KeepingUp {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Where the thread is.
    process: ProcessMark,
}

/// What the thread shares with who has started it.
#[derive(Debug, Default)]
struct Shared {
    is_over: Mutex<bool>,
    ended: Condvar,
    /// Why the last look failed.
    error: Mutex<Option<Error>>,
}

impl Follower {
    /// Catches up now, and then in a thread of its own whenever `interval` has passed, a
    /// millisecond at least, until what this returns is dropped, which waits for a catching-up
    /// under way. One that fails is tried again as any other: [`KeepingUp::take_error`] tells, and
    /// [`Follower::position`] how far it is. What does not come right ends it: [`Error::WentBack`],
    /// and that the follower is closed.
    ///
    /// # Errors
    /// As [`Follower::catch_up`]; `Io` when no thread can be started.
    pub fn keep_up(&self, interval: Duration) -> Result<KeepingUp> {
        self.catch_up()?;
        let (shared, follower) = (Arc::<Shared>::default(), self.clone());
        let its_own = Arc::clone(&shared);
        let interval = interval.max(INTERVAL_MIN);
        let work = move || {
            while !its_own.wait_for_end(interval) {
                let error = follower.catch_up().err();
                let is_over = matches!(error, Some(Error::Closed | Error::WentBack { .. }));
                if error.is_some() {
                    *lock(&its_own.error) = error; // Until it is told.
                }
                if is_over {
                    return;
                }
            }
        };
        let spawned =
            crate::base::sync::thread::Builder::new().name("lithedb-follow".to_owned()).spawn(work);
        let dir = &self.shared.order.dir;
        let thread = spawned.map_err(|error| Error::io("start a thread for", dir, error))?;
        Ok(KeepingUp { shared, thread: Some(thread), process: ProcessMark::new() })
    }
}

impl KeepingUp {
    /// Why a catching-up failed, the last one that did: told once.
    #[must_use]
    pub fn take_error(&self) -> Option<Error> {
        lock(&self.shared.error).take()
    }
}

impl Drop for KeepingUp {
    fn drop(&mut self) {
        if !self.process.is_here() {
            return; // There is no such thread in a fork.
        }
        *lock(&self.shared.is_over) = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _it_does_not_panic = thread.join();
        }
    }
}

impl Shared {
    /// Waits until it is over, or for a while; whether it is.
    fn wait_for_end(&self, longest: Duration) -> bool {
        let guard = lock(&self.is_over);
        let waited = self.ended.wait_timeout_while(guard, longest, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
