//! Who holds the locks of a storage that has no operating system below it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

use super::held_lock_error;
use super::names::NodeId;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// By one holder.
    Alone,
    /// By any number of them, which only read.
    Shared,
}

/// The locks that are held.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    /// Each with the number of its holders.
    held: BTreeMap<NodeId, (Hold, usize)>,
}

impl Locks {
    /// Takes a lock.
    pub(super) fn take(&mut self, id: NodeId, hold: Hold) -> io::Result<()> {
        match self.held.entry(id) {
            Entry::Vacant(free) => {
                free.insert((hold, 1));
                Ok(())
            }
            Entry::Occupied(mut held) if (hold, held.get().0) == (Hold::Shared, Hold::Shared) => {
                held.get_mut().1 += 1;
                Ok(())
            }
            Entry::Occupied(_) => Err(held_lock_error(Some(std::process::id()))),
        }
    }

    /// Gives a lock back, for one of its holders.
    pub(super) fn give_back(&mut self, id: NodeId) {
        if let Entry::Occupied(mut held) = self.held.entry(id) {
            match held.get().1 {
                0 | 1 => drop(held.remove()),
                _ => held.get_mut().1 -= 1,
            }
        }
    }
}
