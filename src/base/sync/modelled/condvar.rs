//! Condition variables whose waits may have an end.

use std::panic::Location;
use std::sync::LockResult;
use std::time::Duration;

use super::time::{self, Kind};
use super::{Arc, MutexGuard, PoisonError};

/// That of the standard library, as a schedule sees it. When the modelled clock ends a wait, others
/// who wait for the same thing wake up as well, for nothing, as they may.
#[derive(Debug)]
pub struct Condvar(Arc<shuttle::sync::Condvar>);

/// Whether a wait was over because of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

type Waited<'a, T> = LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>;

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(Arc::new(shuttle::sync::Condvar::new()))
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait_while(guard, condition)
    }

    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
    ) -> Waited<'a, T> {
        self.wait_as(guard, longest, Kind::Wait, Location::caller())
    }

    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Waited<'a, T> {
        let (place, end) = (Location::caller(), time::now().saturating_add(longest));
        let mut guard = guard;
        while condition(&mut guard) {
            let left = end.saturating_sub(time::now());
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_as(guard, left, Kind::Wait, place)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// Waits for a signal, or until the modelled clock has moved on by `longest`.
    pub(super) fn wait_as<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
        kind: Kind,
        place: &'static Location<'static>,
    ) -> Waited<'a, T> {
        let timer = time::begin(&self.0, longest, kind, place);
        let waited = self.0.wait(guard);
        let result = WaitTimeoutResult(time::end(timer));
        match waited {
            Ok(guard) => Ok((guard, result)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
        }
    }
}
