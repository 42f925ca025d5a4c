//! Removing backups: the lists first, durably, and then the files that no other list names (Q2).

use std::collections::{BTreeMap, BTreeSet};

use super::trail::{RemovedSegments, remove_segments};
use super::{BackupRepository, LISTS_DIR};
use crate::base::{Error, Result};

/// What [`BackupRepository::prune`] and [`BackupRepository::remove`] have removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// Backups.
    pub backups: u64,
    /// Files that no other backup has, and that interrupted backups have left.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Segments of trails that no other backup needs.
    pub segments: u64,
    /// Bytes of them.
    pub segment_bytes: u64,
}

impl BackupRepository {
    /// Removes all backups but the newest `keep` of each database, and what no other one needs:
    /// files, and of trails what is in front of the first backup on them that stays. With
    /// `usize::MAX` only what interrupted backups and removals have left. In memory are 100 bytes a
    /// file that stays.
    ///
    /// # Errors
    /// `Corruption` of a list, of which it is not known whose it is and what it names: nothing is
    /// removed then, and it can be by its number. `Io`: some may be gone, and what is listed is
    /// whole; the next one goes on. (After a sync that failed a power cut may bring back the list
    /// of a backup that was removed, and whose files go with the next one: verifying says so, and
    /// it can be removed again.) `Locked`, also while somebody adds to a trail: nothing happened.
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        let _lock = self.lock()?;
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for number in self.numbers()?.into_iter().rev() {
            let count = counts.entry(self.read_list(number)?.head().database).or_default();
            match *count < keep {
                true => kept.push(number),
                false => gone.push(number),
            }
            *count = count.saturating_add(1);
        }
        gone.reverse(); // The oldest first.
        self.remove_all(&gone, &kept)
    }

    /// Removes one backup, also a damaged one, and the files that only it has.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such backup; `Corruption` of the list of another one;
    /// else as [`BackupRepository::prune`].
    pub fn remove(&self, number: u64) -> Result<PruneReport> {
        let _lock = self.lock()?;
        let numbers = self.numbers()?;
        if !numbers.contains(&number) {
            return Err(self.no_such(number));
        }
        let kept: Vec<u64> = numbers.into_iter().filter(|other| *other != number).collect();
        self.remove_all(&[number], &kept)
    }

    /// Q2.
    fn remove_all(&self, gone: &[u64], kept: &[u64]) -> Result<PruneReport> {
        let trails = self.lock_trails()?;
        let (mut needed, mut heads) = (BTreeSet::new(), Vec::new());
        for number in kept {
            let list = self.read_list(*number)?;
            needed.extend(list.entries().map(|entry| entry.content));
            heads.push(*list.head());
        }
        for number in gone {
            let path = self.list_path(*number);
            let removed = self.storage.remove_file(&path);
            removed.map_err(|error| Error::io("remove", &path, error))?;
        }
        // Also those that an interrupted removal has taken away, and perhaps not durably.
        let lists = self.dir.join(LISTS_DIR);
        self.storage.sync_dir(&lists).map_err(|error| Error::io("sync", &lists, error))?;
        self.clear_unfinished()?;
        let (files, bytes) = self.files().remove_all_but(&needed)?;
        let RemovedSegments { segments, bytes: segment_bytes } = remove_segments(&trails, &heads)?;
        let backups = gone.len() as u64;
        Ok(PruneReport { backups, files, bytes, segments, segment_bytes })
    }
}
