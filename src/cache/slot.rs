//! The place of one cached value.
//!
//! Read without a lock. Filled and emptied only under the lock of the cache's shard that the slot
//! belongs to, or when it is dropped.
//!
//! Invariant
//! - S1  A slot holds a charge exactly while it holds a value; both go when the slot is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::PoisonError;

use crate::base::sync::ArcSwapOption;
use crate::base::sync::Guard;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicU8;
use crate::base::sync::atomic::AtomicU32;
use crate::base::sync::atomic::Ordering;
use crate::cache::budget::Charge;

/// Uses are counted up to this; more tell nothing new, and hot slots are then only read.
const USES_MAX: u8 = 3;
/// The slot was never filled.
const NO_SHARD: u8 = u8::MAX;
/// No eviction is remembered.
const NEVER: u32 = 0;

/// The place of one cached value of type `T`. Whoever owns the slot (by `Arc`) can look into it;
/// when the last owner drops it, its value and the memory it was charged go at once.
#[derive(Debug)]
pub struct Slot<T> {
    value: ArcSwapOption<T>,
    /// Locked under the shard's lock only, so never waited for.
    charge: Mutex<Option<Charge>>,
    /// Lookups since the value was put in or last passed over, up to [`USES_MAX`].
    uses: AtomicU8,
    /// The shard of the cache that fills it, once there is one. Not by address: a run must replay.
    shard: AtomicU8,
    /// When the value was evicted after one normal use, on the shard's clock; or [`NEVER`].
    evicted_at: AtomicU32,
}

/// A value in a slot, borrowed: cheaper than taking a reference count, but to be kept briefly (a
/// thread has few such loans).
pub struct Borrowed<T>(Guard<Option<Arc<T>>>);

impl<T> Deref for Borrowed<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("made of a full slot only")
    }
}

impl<T> Slot<T> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Arc<Slot<T>> {
        Arc::new(Slot {
            value: ArcSwapOption::empty(),
            charge: Mutex::new(None),
            uses: AtomicU8::new(0),
            shard: AtomicU8::new(NO_SHARD),
            evicted_at: AtomicU32::new(NEVER),
        })
    }

    /// Whether there is a value now. Counts as no use.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.value.load().is_some()
    }

    #[inline]
    pub(super) fn borrow(&self) -> Option<Borrowed<T>> {
        let guard = self.value.load();
        guard.is_some().then(|| Borrowed(guard))
    }

    /// The slot's shard: the one it got first, or else `next`.
    pub(super) fn shard_or(&self, next: impl FnOnce() -> u8) -> usize {
        let known = self.shard.load(Ordering::Relaxed);
        if known != NO_SHARD {
            return usize::from(known);
        }
        let ours = next();
        let order = Ordering::Relaxed;
        let shard = match self.shard.compare_exchange(NO_SHARD, ours, order, order) {
            Ok(_) => ours,
            Err(theirs) => theirs,
        };
        usize::from(shard)
    }

    /// Counts a use. Two at once may count as one.
    #[inline]
    pub(super) fn note_use(&self) {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Uses since the last call that took some; `take` of them are forgotten.
    pub(super) fn take_uses(&self, take: u8) -> u8 {
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses.saturating_sub(take), Ordering::Relaxed);
        uses
    }

    /// When it was evicted, if that is remembered; forgets it.
    pub(super) fn take_eviction(&self) -> Option<u32> {
        match self.evicted_at.swap(NEVER, Ordering::Relaxed) {
            NEVER => None,
            at => Some(at),
        }
    }

    /// Remembers an eviction at `now` on the shard's clock.
    pub(super) fn note_eviction(&self, now: u32) {
        self.evicted_at.store(now.max(NEVER + 1), Ordering::Relaxed);
    }

    /// Fills an empty slot. Under the shard's lock.
    pub(super) fn put(&self, value: Arc<T>, charge: Charge) {
        self.uses.store(0, Ordering::Relaxed);
        *self.charge.lock().unwrap_or_else(PoisonError::into_inner) = Some(charge); // S1
        self.value.store(Some(value));
    }

    /// Empties the slot; the value is to be dropped outside of the lock. Under the shard's lock.
    pub(super) fn take(&self) -> Option<Arc<T>> {
        let value = self.value.swap(None);
        *self.charge.lock().unwrap_or_else(PoisonError::into_inner) = None; // S1
        value
    }
}
