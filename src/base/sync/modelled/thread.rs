//! Threads: those of the scheduler, with what it does not say of them.

use std::num::NonZeroUsize;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

pub use shuttle::thread::{Scope, ScopedJoinHandle, Thread, ThreadId, current, scope, yield_now};
pub use std::thread::panicking;

use super::time::{self, Kind};
use super::{Arc, Condvar, Mutex, PoisonError, point};

/// A thread that can be waited for.
pub struct JoinHandle<T> {
    handle: shuttle::thread::JoinHandle<T>,
    is_over: Arc<AtomicBool>,
}

impl<T> JoinHandle<T> {
    pub fn join(self) -> std::thread::Result<T> {
        self.handle.join()
    }

    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }

    pub fn is_finished(&self) -> bool {
        point();
        self.is_over.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// The same on every machine.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    Ok(NonZeroUsize::new(2).expect("two"))
}

/// What a thread is to be like.
#[derive(Debug, Default)]
pub struct Builder(shuttle::thread::Builder);

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    pub fn name(self, name: String) -> Builder {
        Builder(self.0.name(name))
    }

    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let is_over = Arc::new(AtomicBool::new(false));
        let its_end = End(Arc::clone(&is_over));
        let handle = self.0.spawn(move || {
            let _at_the_end = its_end;
            work()
        })?;
        Ok(JoinHandle { handle, is_over })
    }

    /// Without its name.
    pub fn spawn_scoped<'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        Ok(scope.spawn(work))
    }
}

/// Says that a thread is over, also by a panic.
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread without a name.
///
/// # Panics
/// If none can be started.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(work).expect("a modelled thread can be started")
}

/// Waits until the modelled clock has moved on by `duration`.
#[track_caller]
pub fn sleep(duration: Duration) {
    let (place, end) = (Location::caller(), time::now().saturating_add(duration));
    let (nothing, nobody) = (Mutex::new(()), Condvar::new());
    let mut guard = nothing.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = end.saturating_sub(time::now());
        if left.is_zero() {
            return;
        }
        let waited = nobody.wait_as(guard, left, Kind::Sleep, place);
        guard = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
