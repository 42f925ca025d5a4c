//! Files that are kept although nothing refers to their values any more: for who reads the commit
//! log behind the commits, and needs what its pointers led to.
//!
//! While files are kept, all are: one that nobody else holds is dead, and goes when the reader has
//! gone past what pointed there. Nobody can refer to a dead file again: whoever would has to hold
//! it, and values that are put again are taken from files that entries hold.

use std::sync::Arc;

use super::file::ValueFile;
use super::{ValueLog, lock};

/// Holders of a file that is dead: what keeps it ..
const KEPT_ONLY: usize = 1;
/// .. and who looks.
const KEPT_AND_LOOKED_AT: usize = 2;

impl ValueLog {
    /// From now on no file goes; nor those that nobody is known to hold while it is being opened.
    pub fn keep_files(&self) {
        // First: what is made from here on is kept by who makes it.
        lock(&self.kept).get_or_insert_default();
        let all = self.all_files();
        if let Some(kept) = &mut *lock(&self.kept) {
            kept.extend(all.into_iter().map(|file| (file.number(), file)));
        }
    }

    /// No file is kept any more.
    pub fn stop_keeping(&self) {
        // Dropped without the lock.
        let kept = lock(&self.kept).take();
        drop(kept);
    }

    /// Numbers of the kept files that nobody else holds: no commit that is still to come points
    /// into one of them.
    #[must_use]
    pub fn dead_files(&self) -> Vec<u64> {
        let kept = lock(&self.kept);
        let dead = kept.iter().flatten().filter(|(_, file)| is_dead(file));
        dead.map(|(number, _)| *number).collect()
    }

    /// Bytes of them.
    #[must_use]
    pub fn dead_bytes(&self) -> u64 {
        let kept = lock(&self.kept);
        let dead = kept.iter().flatten().filter(|(_, file)| is_dead(file));
        dead.map(|(_, file)| file.size()).sum()
    }

    /// Lets these go, which were dead when whoever they were kept for began with what it has read
    /// by now.
    pub fn let_go(&self, numbers: &[u64]) {
        let mut gone = Vec::new();
        if let Some(kept) = &mut *lock(&self.kept) {
            gone.extend(numbers.iter().filter_map(|number| kept.remove(number)));
        }
        drop(gone);
    }

    /// A new file is kept, if all are.
    pub(super) fn keep_new(&self, file: &Arc<ValueFile>) {
        if let Some(kept) = &mut *lock(&self.kept) {
            kept.insert(file.number(), Arc::clone(file));
        }
    }

    /// Takes those out that nobody else holds.
    pub(super) fn leave_out_kept(&self, files: &mut Vec<Arc<ValueFile>>) {
        let kept = lock(&self.kept);
        let Some(kept) = &*kept else { return };
        let is_only_kept = |file: &Arc<ValueFile>| {
            kept.contains_key(&file.number()) && Arc::strong_count(file) <= KEPT_AND_LOOKED_AT
        };
        files.retain(|file| !is_only_kept(file));
    }
}

fn is_dead(file: &Arc<ValueFile>) -> bool {
    Arc::strong_count(file) == KEPT_ONLY
}
