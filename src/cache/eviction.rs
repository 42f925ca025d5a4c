//! Which slots stay filled: two queues and the uses counted in the slots.
//!
//! A value enters the *young* queue, a tenth of the cache. One that has been used again by the
//! time it gets to the front moves to the *proven* queue, others are evicted. A slot that is
//! filled again soon after such an eviction goes straight to the proven queue. That queue is a
//! clock: a value at its front that was used since it was last there goes round again.
//!
//! What is read once in passing (a long scan) enters the young queue, is not remembered when it
//! is evicted, and so can displace at most the young tenth.
//!
//! After S3-FIFO (J. Yang et al., SOSP 2023); as slots outlive their values, they take the place
//! of its ghost queue.
//!
//! Invariants
//! - V1  Every filled slot of the shard is in exactly one queue, once.
//! - V2  A queue is at most twice as long as it had living slots when it was last swept, or
//!   [`SWEEP_LEN_MIN`]: places of dropped slots do not pile up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;

use crate::cache::slot::Slot;
use crate::cache::store::Admission;

/// The young queue gives way first while it holds more than the weight of both over this.
const YOUNG_FRACTION: usize = 10;
/// Uses since it was put in that move a value from young to proven.
const USES_TO_PROVE: u8 = 2;
/// Values that one search may pass over; then the next is evicted, used or not.
const PASSES_MAX: usize = 64;
/// Queues up to this length are not swept.
const SWEEP_LEN_MIN: usize = 64;

/// One value in a queue.
#[derive(Debug)]
struct Place<T> {
    slot: Weak<Slot<T>>,
    weight: usize,
    admission: Admission,
}

#[derive(Debug)]
struct Queue<T> {
    places: VecDeque<Place<T>>,
    /// Weight of all places, those of dropped slots included.
    weight: usize,
    /// Length at which places of dropped slots are swept out.
    sweep_at: usize,
}

/// The filled slots of one shard.
#[derive(Debug)]
pub(super) struct Shard<T> {
    young: Queue<T>,
    proven: Queue<T>,
    /// Evictions from the young queue so far, wrapping: the clock that tells how long ago one was.
    clock: u32,
}

impl<T> Shard<T> {
    pub(super) fn new() -> Shard<T> {
        Shard { young: Queue::new(), proven: Queue::new(), clock: 1 }
    }

    /// Enters a slot that has just been filled.
    pub(super) fn enter(&mut self, slot: &Arc<Slot<T>>, weight: usize, admission: Admission) {
        let place = Place { slot: Arc::downgrade(slot), weight, admission };
        let missed = match admission {
            Admission::Normal => slot.take_eviction(),
            Admission::OnceRead => None,
        };
        // As long ago as the proven queue is long, a larger young queue could have kept it.
        let came_back_soon = missed
            .is_some_and(|at| (self.clock.wrapping_sub(at) as usize) <= self.proven.places.len());
        if came_back_soon {
            self.proven.push(place);
        } else {
            self.young.push(place);
        }
    }

    /// Whether its values, of which there are several, weigh more than `share`.
    pub(super) fn exceeds(&self, share: usize) -> bool {
        self.weight() > share && self.young.places.len() + self.proven.places.len() > 1
    }

    /// Weight of all values, and of dropped ones that are still to be swept out.
    fn weight(&self) -> usize {
        self.young.weight + self.proven.weight
    }

    /// Empties one slot and returns its value; `None` when no slot is filled.
    pub(super) fn evict_one(&mut self) -> Option<Arc<T>> {
        let mut passes = 0;
        loop {
            let value = if self.is_young_due() {
                self.evict_young(&mut passes)
            } else {
                self.evict_proven(&mut passes)
            };
            if value.is_some() {
                return value;
            }
            if self.young.places.is_empty() && self.proven.places.is_empty() {
                return None;
            }
        }
    }

    fn is_young_due(&self) -> bool {
        // A single young value is the one that room is made for.
        let share = self.weight() / YOUNG_FRACTION;
        self.proven.places.is_empty() || (self.young.places.len() > 1 && self.young.weight > share)
    }

    /// Takes the first of the young queue: evicts it, or moves it on.
    fn evict_young(&mut self, passes: &mut usize) -> Option<Arc<T>> {
        let place = self.young.pop()?;
        let slot = place.slot.upgrade()?; // else dropped with its value
        if slot.take_uses(u8::MAX) >= USES_TO_PROVE && *passes < PASSES_MAX {
            *passes += 1;
            self.proven.push(place);
            return None;
        }
        self.clock = self.clock.wrapping_add(1);
        if place.admission == Admission::Normal {
            slot.note_eviction(self.clock);
        }
        slot.take()
    }

    /// Takes the first of the proven queue: evicts it, or sends it round again.
    fn evict_proven(&mut self, passes: &mut usize) -> Option<Arc<T>> {
        let place = self.proven.pop()?;
        let slot = place.slot.upgrade()?; // else dropped with its value
        if slot.take_uses(1) > 0 && *passes < PASSES_MAX {
            *passes += 1;
            self.proven.push(place);
            return None;
        }
        slot.take()
    }
}

impl<T> Queue<T> {
    fn new() -> Queue<T> {
        Queue { places: VecDeque::new(), weight: 0, sweep_at: SWEEP_LEN_MIN }
    }

    fn push(&mut self, place: Place<T>) {
        if self.places.len() >= self.sweep_at {
            self.sweep();
        }
        self.weight += place.weight;
        self.places.push_back(place);
    }

    fn pop(&mut self) -> Option<Place<T>> {
        let place = self.places.pop_front()?;
        self.weight -= place.weight;
        Some(place)
    }

    /// Takes out the places of dropped slots. As the next sweep waits until the queue has doubled
    /// (V2), it costs constant time for each place pushed.
    fn sweep(&mut self) {
        self.places.retain(|place| place.slot.strong_count() > 0);
        self.weight = self.places.iter().map(|place| place.weight).sum();
        self.sweep_at = (self.places.len() * 2).max(SWEEP_LEN_MIN);
    }
}
