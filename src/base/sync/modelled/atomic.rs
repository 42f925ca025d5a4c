//! Atomics: those of the standard library, of the same size, behind a place where somebody else may
//! go on.

pub use std::sync::atomic::{Ordering, fence};

use super::point;

macro_rules! atomic {
    ($name:ident $(<$param:ident>)?, $value:ty) => {
        /// The one of the standard library, as a schedule sees it.
        #[repr(transparent)]
        pub struct $name $(<$param>)? (std::sync::atomic::$name $(<$param>)?);

        impl $(<$param>)? $name $(<$param>)? {
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// One step, as if nobody came between.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                point();
                self.0.fetch_update(set, fetch, change)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }

        impl $(<$param>)? Default for $name $(<$param>)? {
            fn default() -> Self {
                Self(Default::default())
            }
        }

        impl $(<$param>)? std::fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! integer {
    ($($name:ident: $value:ty),*) => {$(
        atomic!($name, $value);

        impl $name {
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                point_unless_relaxed(order);
                self.0.fetch_add(value, order)
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                point_unless_relaxed(order);
                self.0.fetch_sub(value, order)
            }

            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                point_unless_relaxed(order);
                self.0.fetch_max(value, order)
            }

            pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                point_unless_relaxed(order);
                self.0.fetch_min(value, order)
            }

            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_or(value, order)
            }

            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_and(value, order)
            }
        }
    )*};
}

fn point_unless_relaxed(order: Ordering) {
    if order != Ordering::Relaxed {
        point();
    }
}

integer!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);
atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);

impl AtomicBool {
    pub fn fetch_or(&self, value: bool, order: Ordering) -> bool {
        point();
        self.0.fetch_or(value, order)
    }

    pub fn fetch_and(&self, value: bool, order: Ordering) -> bool {
        point();
        self.0.fetch_and(value, order)
    }
}
