//! Files that are opened when they are first read and kept open, so many at most.
//!
//! Owns who is open, in which order they were opened. Must not know what the files hold: their
//! owners open them, and look at what is in them.

use std::collections::VecDeque;

use super::StorageFile;
use crate::base::sync::ArcSwapOption;
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An owner's file, if it is open. Looked at without a lock.
#[derive(Debug, Default)]
pub(crate) struct KeptOpen(ArcSwapOption<OpenFile>);

/// Sized, as what is swapped has to be.
#[derive(Debug)]
struct OpenFile(Arc<dyn StorageFile>);

impl KeptOpen {
    pub(crate) fn file(&self) -> Option<Arc<dyn StorageFile>> {
        self.0.load().as_ref().map(|open| Arc::clone(&open.0))
    }
}

/// The owners of open files, the one that was opened longest ago first.
#[derive(Debug)]
pub(crate) struct OpenFiles<T> {
    // Constant.
    count_max: usize,
    // Guarded by the lock.
    owners: Mutex<VecDeque<Weak<T>>>,
}

impl<T: AsRef<KeptOpen>> OpenFiles<T> {
    pub(crate) fn new(count_max: usize) -> OpenFiles<T> {
        OpenFiles { count_max, owners: Mutex::default() }
    }

    /// Keeps the owner's file open, and lets go of those opened longest ago if there are too many.
    /// Whoever reads one of these at the moment holds it on.
    pub(crate) fn keep(&self, owner: &Arc<T>, file: &Arc<dyn StorageFile>) {
        (**owner).as_ref().0.store(Some(Arc::new(OpenFile(Arc::clone(file)))));
        let mut owners = self.lock();
        owners.push_back(Arc::downgrade(owner));
        while owners.len() > self.count_max {
            if let Some(oldest) = owners.pop_front().and_then(|oldest| oldest.upgrade()) {
                (*oldest).as_ref().0.store(None);
            }
        }
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        let owners = self.lock();
        let there = owners.iter().filter_map(Weak::upgrade);
        there.filter(|owner| (**owner).as_ref().0.load().is_some()).count()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Weak<T>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::storage::{MemoryStorage, OpenMode, Storage};

    #[derive(Debug, Default)]
    struct Owner(KeptOpen);

    impl AsRef<KeptOpen> for Owner {
        fn as_ref(&self) -> &KeptOpen {
            &self.0
        }
    }

    #[test]
    fn the_file_that_was_opened_longest_ago_is_let_go_of() {
        let storage = MemoryStorage::new();
        let file = storage.open(Path::new("file"), OpenMode::CreateNew).unwrap();
        let open = OpenFiles::new(2);
        let owners: Vec<Arc<Owner>> = (0..3).map(|_| Arc::default()).collect();
        owners.iter().for_each(|owner| open.keep(owner, &file));
        let is_open: Vec<bool> = owners.iter().map(|owner| owner.0.file().is_some()).collect();
        assert_eq!(is_open, [false, true, true]);
        assert_eq!(open.count(), 2);
        drop(owners);
        assert_eq!(open.count(), 0);
    }
}
