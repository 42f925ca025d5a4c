//! Pointers that are swapped while others read through them.

use std::fmt;
use std::ops::Deref;
use std::sync;

use super::{Arc, PoisonError, point};

/// A pointer to a value.
pub type ArcSwap<T> = ArcSwapAny<Arc<T>>;
/// A pointer to a value, or to none.
pub type ArcSwapOption<T> = ArcSwapAny<Option<Arc<T>>>;

/// A pointer that is taken and replaced in one step.
pub struct ArcSwapAny<P> {
    /// Held for one step, within which nobody else goes on: never waited for.
    pointer: sync::Mutex<P>,
}

/// What was pointed to when it was made.
pub struct Guard<P>(P);

impl<P> Deref for Guard<P> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.0
    }
}

impl<P> Guard<P> {
    pub fn into_inner(guard: Guard<P>) -> P {
        guard.0
    }
}

impl<P: fmt::Debug> fmt::Debug for Guard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<P: fmt::Display> fmt::Display for Guard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<P: Clone> ArcSwapAny<P> {
    pub const fn new(pointer: P) -> ArcSwapAny<P> {
        ArcSwapAny { pointer: sync::Mutex::new(pointer) }
    }

    pub fn load(&self) -> Guard<P> {
        Guard(self.load_full())
    }

    pub fn load_full(&self) -> P {
        point();
        self.now().clone()
    }

    pub fn store(&self, pointer: P) {
        drop(self.swap(pointer));
    }

    pub fn swap(&self, pointer: P) -> P {
        point();
        std::mem::replace(&mut *self.now(), pointer)
    }

    pub fn into_inner(self) -> P {
        self.pointer.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> sync::MutexGuard<'_, P> {
        self.pointer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> ArcSwapAny<Arc<T>> {
    pub fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwapAny::new(Arc::new(value))
    }

    /// Replaces the pointer by what `change` makes of it, again if somebody came between.
    pub fn rcu<R: Into<Arc<T>>>(&self, mut change: impl FnMut(&Arc<T>) -> R) -> Arc<T> {
        loop {
            let seen = self.load_full();
            let next = change(&seen).into();
            point();
            let mut now = self.now();
            if Arc::ptr_eq(&now, &seen) {
                return std::mem::replace(&mut *now, next);
            }
        }
    }
}

impl<T> ArcSwapAny<Option<Arc<T>>> {
    pub const fn empty() -> ArcSwapOption<T> {
        ArcSwapAny { pointer: sync::Mutex::new(None) }
    }
}

impl<T> Default for ArcSwapAny<Option<Arc<T>>> {
    fn default() -> ArcSwapOption<T> {
        ArcSwapAny::empty()
    }
}

impl<P> fmt::Debug for ArcSwapAny<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArcSwapAny").finish_non_exhaustive()
    }
}
