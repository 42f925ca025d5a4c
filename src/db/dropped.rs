//! Stores that are nobody's any more, and whose files are still there.

use crate::base::sync::{Mutex, Weak};
use crate::db::core::lock;
use crate::db::state::Runtime;
use crate::structure::Store;

/// Stores of keyspaces that were dropped, or have another one by now, whose files are still there.
#[derive(Debug, Default)]
pub(super) struct DroppedRegister {
    /// With their numbers. Stores and not runtimes: of one store there may be several, as options
    /// change, and snapshots hold those of their moment.
    waiting: Mutex<Vec<(u32, Weak<dyn Store>)>>,
    /// Numbers of those that nobody holds, and whose files could not be removed.
    left: Mutex<Vec<u32>>,
}

impl DroppedRegister {
    pub(super) fn note(&self, runtime: &Runtime) {
        lock(&self.waiting).push((runtime.store_id, std::sync::Arc::downgrade(&runtime.store)));
    }

    /// The numbers of those that somebody holds.
    pub(super) fn in_use(&self) -> Vec<u32> {
        let waiting = lock(&self.waiting);
        let held = waiting.iter().filter(|(_, store)| store.strong_count() > 0);
        held.map(|(store_id, _)| *store_id).collect()
    }

    /// One that no snapshot, iterator or handle holds any more; what was put back is the last.
    pub(super) fn take_unreferenced(&self) -> Option<u32> {
        let mut waiting = lock(&self.waiting);
        match waiting.iter().position(|(_, store)| store.strong_count() == 0) {
            Some(index) => Some(waiting.swap_remove(index).0),
            None => lock(&self.left).pop(),
        }
    }

    /// Takes one back whose files could not be removed.
    pub(super) fn put_back(&self, store_id: u32) {
        lock(&self.left).push(store_id);
    }
}
