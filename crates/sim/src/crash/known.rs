//! Disks that were met before in a run.
//!
//! Of the states of neighbouring points many are the same disk: what is durable does not change
//! between two syncs, and whatever leaves none of the other changes leaves the same. What a
//! database shows that is opened on a disk follows from the disk, the time and the options alone:
//! so a disk that was opened, read, checked and found in order has no other story to tell. What
//! does depend on the moment is what it had to show, and that is judged each time.
//!
//! That the same disk shows the same is believed, and seen to: some are examined again in full.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lithedb::storage::SimStorage;

use crate::setup::Setup;
use crate::timeline::{Found, Timeline};

/// A disk, and what else decides what is found on it and what is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    disk: u64,
    /// It decides the time and what is drawn.
    depth: u32,
    /// How many checkpoints there are, and whether the last one is in doubt.
    checkpoints: (usize, bool),
}

impl Key {
    /// None where more than that decides: what watches nonces through all openings, what is open
    /// beside the database, the keys that it may have.
    pub(super) fn of(
        (setup, storage): (&Setup, &SimStorage),
        timeline: &Timeline,
        depth: u32,
    ) -> Option<Key> {
        if setup.nonces.is_some() || setup.key_count > 1 || timeline.beside.is_some() {
            return None;
        }
        let is_in_doubt = timeline.checkpoints.last().is_some_and(|last| !last.is_made);
        let checkpoints = (timeline.checkpoints.len(), is_in_doubt);
        Some(Key { disk: storage.fingerprint(), depth, checkpoints })
    }
}

/// What was found on disks that were found in order.
#[derive(Debug, Default)]
pub(super) struct Known {
    found: Mutex<HashMap<Key, Arc<Found>>>,
}

impl Known {
    pub(super) fn get(&self, key: Key) -> Option<Arc<Found>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(&key).map(Arc::clone)
    }

    /// A disk was found in order.
    pub(super) fn note(&self, key: Key, shown: &Found) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(key).or_insert_with(|| Arc::new(shown.clone()));
    }
}
