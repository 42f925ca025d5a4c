//! How many entries of a table lie in front of a key. Tombstones count: these are positions in the
//! table, not in the keyspace.

use super::caches::TableCaches;
use super::handle::Table;
use super::index::{Index, Target};
use crate::base::{Result, Slice};
use crate::cache::Admission;

impl Table {
    /// Number of entries whose keys are below `key`. Costs a look into one data block.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn rank(&self, caches: &TableCaches, key: &[u8]) -> Result<u64> {
        let opened = self.opened(caches)?;
        let index = opened.find(key);
        if index >= opened.partition_count() {
            return Ok(self.record.entry_count);
        }
        let in_front = opened.target(index).map_or(0, |target| target.entries_in_front);
        let partition = self.partition(caches, opened, index, Admission::Normal)?;
        let block_index = partition.find(key);
        if block_index >= partition.block_count() {
            return Ok(in_front.saturating_add(partition.entry_count()));
        }
        let in_partition = partition.target(block_index).map_or(0, |block| block.entries_in_front);
        let block = self.block(caches, &partition, block_index, Admission::Normal)?;
        let in_block = block.count_below(key) as u64;
        Ok(in_front.saturating_add(in_partition).saturating_add(in_block))
    }

    /// How many entries are in front of the partition that `key` lies in. Reads nothing: of a
    /// table that was not read yet, all or none by its span.
    #[must_use]
    pub fn entries_in_front(&self, key: &[u8]) -> u64 {
        if self.record.ends_by(key) {
            return self.record.entry_count;
        }
        let Some(opened) = self.opened_if_read() else { return 0 };
        let target = opened.target(opened.find(key));
        target.map_or(self.record.entry_count, |target| target.entries_in_front)
    }

    /// A key in front of `key`, not necessarily one that is there, with up to so many blocks
    /// between them; the table begins in front of it. Reads no data block.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn key_in_front(&self, caches: &TableCaches, key: &[u8], blocks: usize) -> Result<Slice> {
        let (opened, first) = (self.opened(caches)?, &self.record.first);
        let Some(last) = opened.partition_count().checked_sub(1) else { return Ok(first.clone()) };
        let index = opened.find(key).min(last);
        let partition = self.partition(caches, opened, index, Admission::OnceRead)?;
        let block = partition.find(key).checked_sub(blocks.max(1));
        let found = match (block, index.checked_sub(1)) {
            (Some(block), _) => partition.index().separator(block),
            (None, Some(before)) => opened.top().separator(before),
            (None, None) => None,
        };
        Ok(found.map_or_else(|| first.clone(), Slice::from))
    }

    /// A key in front of which there are `position` entries or somewhat fewer. Reads nothing: of a
    /// table that was not read yet, the start of its span. Ascends with `position`.
    #[must_use]
    pub fn anchor_near(&self, position: u64) -> Slice {
        let first = self.record.first.clone();
        let Some(opened) = self.opened_if_read() else { return first };
        let top = opened.top();
        // The last partition with no more entries in front of it.
        let behind = partition_point(top, |target| target.entries_in_front <= position);
        let before = behind.checked_sub(2).and_then(|before| top.separator(before));
        before.map_or(first, Slice::from)
    }
}

/// Number of frames for which `is_before` holds, which are the first ones.
fn partition_point(index: &Index, is_before: impl Fn(Target) -> bool) -> usize {
    let (mut low, mut high) = (0, index.len());
    while low < high {
        let middle = low.midpoint(high);
        if index.target(middle).is_some_and(&is_before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
