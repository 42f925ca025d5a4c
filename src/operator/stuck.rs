//! Keys whose operands cannot be merged, and are many: they take no more of them.
//!
//! Operands that an operator fails at stay, one beside the other (O2), and nothing else would
//! bound them: a merge does not read what is there. So who reads such a key, be it a flush, notes
//! it here, and who would merge into it looks here first.

use std::collections::BTreeSet;

use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};

/// The keys of a keyspace; none, nearly always.
#[derive(Debug, Default)]
pub(super) struct StuckKeys {
    /// How many there are, for those who look for one.
    count: AtomicUsize,
    keys: Mutex<BTreeSet<Vec<u8>>>,
}

impl StuckKeys {
    #[inline]
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.lock().contains(key)
    }

    #[cold]
    pub(super) fn add(&self, key: &[u8]) {
        let mut keys = self.lock();
        keys.insert(key.to_vec());
        self.count.store(keys.len(), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, key: &[u8]) {
        if self.has(key) {
            let mut keys = self.lock();
            keys.remove(key);
            self.count.store(keys.len(), Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
