//! The cache: fills slots and empties others, so that the budget holds.
//!
//! Invariants
//! - K1  What the cache uses exceeds its target by at most one value a filling thread, and only
//!   while that thread makes room; or after the other parts have grown, until the next fill or
//!   [`Cache::trim`]. Fills of guides trim blocks, those of blocks that lookups have read trim
//!   guides; commits trim both, once memtables and transactions have grown by a 64th of the budget
//!   and 1 MiB at most (what one commit or transaction adds is above that until the next).
//! - K2  A slot is filled and emptied under the lock of one and the same shard.
//! - K3  No two shards are locked at once, and no evicted value is dropped under a lock.

use std::sync::Arc;
use std::sync::PoisonError;

use crate::base::sync::Mutex;
use crate::base::sync::MutexGuard;
use crate::base::sync::atomic::AtomicU64;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering;
use crate::cache::budget::MemoryBudget;
use crate::cache::budget::Part;
use crate::cache::counters::CacheCounts;
use crate::cache::counters::LookupCounters;
use crate::cache::counters::LookupOutcome;
use crate::cache::eviction::Shard;
use crate::cache::slot::Borrowed;
use crate::cache::slot::Slot;

/// Shards, so that threads that fill rarely wait for each other.
const SHARD_COUNT: usize = 8;
/// A value above the target over this is not cached: it would displace too much.
const WEIGHT_FRACTION: usize = 2;
/// Room that may go again by itself is reckoned with up to this part of the target.
const SLACK_FRACTION: usize = 8;
/// Bytes that a filled slot costs beyond its value: itself, reference counts, its place in a
/// queue.
const SLOT_OVERHEAD: usize = 160;
/// The same of a guide's, whose slot is counted with the index.
const GUIDE_SLOT_OVERHEAD: usize = 96;

/// How a value came to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may well be wanted again.
    Normal,
    /// In passing, by a long scan: it should not displace what is wanted again.
    OnceRead,
}

/// What became of a value that a slot was to be filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillOutcome {
    /// It is in the slot.
    Filled,
    /// The slot has a value already, and keeps it.
    WasFilled,
    /// It is too large for the cache.
    TooLarge,
}

/// What a shard that is evicted from keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    /// Its share of the target, and one value at least.
    Share,
    /// Nothing.
    Nothing,
}

/// Whether the cache fits its target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    StillMissing,
}

/// Keeps slots filled, as far as the budget goes.
#[derive(Debug)]
pub struct Cache<T> {
    budget: Arc<MemoryBudget>,
    /// What its values are charged to, and with it how much they may take.
    part: Part,
    shards: [Mutex<Shard<T>>; SHARD_COUNT],
    /// The shard of the next new slot.
    next_shard: AtomicUsize,
    lookups: LookupCounters,
    fills: AtomicU64,
    evictions: AtomicU64,
}

impl<T> Cache<T> {
    /// An empty cache that may use what the other parts leave of `budget`.
    #[must_use]
    pub fn new(budget: Arc<MemoryBudget>) -> Cache<T> {
        Cache::charged_to(Part::Cache, budget)
    }

    /// An empty cache for parts of indexes, which may use half of `budget` with what is kept of
    /// indexes anyhow.
    #[must_use]
    pub fn for_indexes(budget: Arc<MemoryBudget>) -> Cache<T> {
        Cache::charged_to(Part::CachedIndex, budget)
    }

    /// An empty cache for guides: see [`MemoryBudget::guide_target`].
    #[must_use]
    pub fn for_guides(budget: Arc<MemoryBudget>) -> Cache<T> {
        Cache::charged_to(Part::Guide, budget)
    }

    fn charged_to(part: Part, budget: Arc<MemoryBudget>) -> Cache<T> {
        Cache {
            budget,
            part,
            shards: std::array::from_fn(|_| Mutex::new(Shard::new())),
            next_shard: AtomicUsize::new(0),
            lookups: LookupCounters::default(),
            fills: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The value in `slot`, to be kept for any time. Takes no lock.
    #[inline]
    #[must_use]
    pub fn load(&self, slot: &Slot<T>, admission: Admission) -> Option<Arc<T>> {
        self.borrow(slot, admission).map(|value| Arc::clone(&value))
    }

    /// The value in `slot`, to be looked into and let go. Takes no lock and counts no reference,
    /// so that threads which look into one slot do not slow each other down. A lookup in passing
    /// does not count as a use.
    #[inline]
    #[must_use]
    pub fn borrow(&self, slot: &Slot<T>, admission: Admission) -> Option<Borrowed<T>> {
        let Some(value) = slot.borrow() else {
            self.lookups.count(LookupOutcome::Miss);
            return None;
        };
        self.lookups.count(LookupOutcome::Hit);
        if admission == Admission::Normal {
            slot.note_use();
        }
        Some(value)
    }

    /// The value in `slot`, if there is one; that somebody has looked makes no difference.
    #[inline]
    #[must_use]
    pub fn glance(&self, slot: &Slot<T>) -> Option<Borrowed<T>> {
        slot.borrow()
    }

    /// As [`Cache::borrow`] for a look into a slot that need not be filled: finding it empty is no
    /// miss.
    #[inline]
    #[must_use]
    pub fn borrow_if_filled(&self, slot: &Slot<T>) -> Option<Borrowed<T>> {
        let value = slot.borrow()?;
        self.lookups.count(LookupOutcome::Hit);
        slot.note_use();
        Some(value)
    }

    /// Puts `value`, which takes `weight` bytes, into `slot`, and makes room for it. A slot is
    /// filled by one cache only.
    pub fn fill(
        &self,
        slot: &Arc<Slot<T>>,
        value: Arc<T>,
        weight: usize,
        admission: Admission,
    ) -> FillOutcome {
        let weight = weight.saturating_add(self.slot_overhead());
        if weight > self.target() / WEIGHT_FRACTION {
            return FillOutcome::TooLarge;
        }
        let shard_index =
            slot.shard_or(|| (self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT) as u8);
        {
            let mut shard = self.lock_shard(shard_index); // K2
            if slot.is_filled() {
                return FillOutcome::WasFilled;
            }
            // Charged before there is room: two threads cannot both take the same room (K1).
            slot.put(value, self.budget.charge(self.part, weight));
            shard.enter(slot, weight, admission);
        }
        self.fills.fetch_add(1, Ordering::Relaxed);
        self.make_room(shard_index);
        FillOutcome::Filled
    }

    /// Whether a value of `weight` bytes fits without anything being evicted.
    #[must_use]
    pub fn has_room(&self, weight: usize) -> bool {
        let weight = weight.saturating_add(self.slot_overhead());
        let target = self.target();
        weight <= target / WEIGHT_FRACTION && self.usage().saturating_add(weight) <= target
    }

    /// Whether a value of `weight` bytes fits into one part of `parts` of what the cache may use,
    /// without anything being evicted, and not because the heaps have just given something back:
    /// else a full cache would take a value at each fill or so.
    #[must_use]
    pub fn has_lasting_room(&self, weight: usize, parts: usize) -> bool {
        let weight = weight.saturating_add(self.slot_overhead());
        let target = self.target();
        let slack = self.budget.slack().min(target / SLACK_FRACTION);
        let used = self.usage().saturating_add(weight).saturating_add(slack);
        weight <= target / WEIGHT_FRACTION && used <= target / parts
    }

    /// Whether a value of `weight` bytes could be cached at all.
    #[must_use]
    pub fn admits(&self, weight: usize) -> bool {
        weight.saturating_add(self.slot_overhead()) <= self.target() / WEIGHT_FRACTION
    }

    /// Makes the cache fit its target after the other parts have grown.
    pub fn trim(&self) {
        if self.usage() > self.target() {
            self.make_room(self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT);
        }
    }

    /// Bytes that cached values take.
    #[must_use]
    pub fn usage(&self) -> usize {
        self.budget.usage(self.part)
    }

    fn slot_overhead(&self) -> usize {
        match self.part {
            Part::Guide => GUIDE_SLOT_OVERHEAD,
            _ => SLOT_OVERHEAD,
        }
    }

    /// Bytes that they may take now.
    fn target(&self) -> usize {
        match self.part {
            Part::CachedIndex => self.budget.index_target(),
            Part::Guide => self.budget.guide_target(),
            _ => self.budget.cache_target(),
        }
    }

    /// The budget that the cache lives in.
    #[must_use]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// What the cache has done so far.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let (hits, misses) = self.lookups.totals();
        let fills = self.fills.load(Ordering::Relaxed);
        let evictions = self.evictions.load(Ordering::Relaxed);
        CacheCounts { hits, misses, fills, evictions }
    }

    /// Evicts until the cache fits its target: from shards that hold more than their share,
    /// `filled` before the others. If there is none (few large values, or other threads evict as
    /// well) then from any, `filled` last, as its only value may be the one that was just put in.
    fn make_room(&self, filled: usize) {
        let mut evictions = None;
        // The target falls as values go whose memory a heap has not given back yet: again, then.
        while evictions != Some(self.evictions.load(Ordering::Relaxed)) {
            evictions = Some(self.evictions.load(Ordering::Relaxed));
            if self.evict_from_all(filled, Least::Share) == Room::Enough {
                return;
            }
        }
        self.evict_from_all(filled + 1, Least::Nothing);
    }

    /// Evicts from all shards in turn until the cache fits its target.
    fn evict_from_all(&self, first: usize, least: Least) -> Room {
        for step in 0..SHARD_COUNT {
            if self.evict_from((first + step) % SHARD_COUNT, least) == Room::Enough {
                return Room::Enough;
            }
        }
        Room::StillMissing
    }

    /// Evicts from one shard until the cache fits its target or the shard has no more to give.
    fn evict_from(&self, shard_index: usize, least: Least) -> Room {
        loop {
            let target = self.target();
            if self.usage() <= target {
                return Room::Enough;
            }
            let evicted = {
                let mut shard = self.lock_shard(shard_index);
                if least == Least::Share && !shard.exceeds(target / SHARD_COUNT) {
                    return Room::StillMissing;
                }
                shard.evict_one()
            };
            let Some(value) = evicted else {
                return Room::StillMissing;
            };
            drop(value); // K3: the lock is released
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A shard is consistent between any two calls, so a panic elsewhere does not spoil it.
    fn lock_shard(&self, index: usize) -> MutexGuard<'_, Shard<T>> {
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
