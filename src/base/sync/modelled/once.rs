//! A cell that is written once.

use std::fmt;
use std::sync;

use shuttle::sync::Mutex;

use super::{PoisonError, point};

/// That of the standard library, as a schedule sees it.
pub struct OnceLock<T> {
    /// Written in one step, so that nobody ever waits for this one.
    value: sync::OnceLock<T>,
    /// Held while the value is made.
    making: Mutex<()>,
}

impl<T> OnceLock<T> {
    pub const fn new() -> OnceLock<T> {
        OnceLock { value: sync::OnceLock::new(), making: Mutex::new(()) }
    }

    pub fn get(&self) -> Option<&T> {
        point();
        self.value.get()
    }

    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.value.set(value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(known) = self.get() {
            return known;
        }
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        match self.value.get() {
            Some(known) => known,
            None => {
                let made = make();
                self.value.get_or_init(|| made)
            }
        }
    }

    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        OnceLock { value: sync::OnceLock::from(value), making: Mutex::new(()) }
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        OnceLock { value: self.value.clone(), making: Mutex::new(()) }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
