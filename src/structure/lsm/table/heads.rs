//! The first of the entries whose keys are one head and an end, from somewhere on: the newest
//! version of a key up to a stamp, in an archive.

use std::sync::Arc;

use super::caches::TableCaches;
use super::cursor::{ReadMode, TableCursor};
use super::handle::Table;
use super::partition::Partition;
use crate::base::{Cursor, EntryRef, Result, Slice};
use crate::block::Block;
use crate::cache::Admission;
use crate::structure::Found;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct SoughtHead<'a> {
    /// The head, and behind it from where on.
    pub from: &'a [u8],
    /// Bytes of the head.
    pub head_len: usize,
    /// Its hash.
    pub hash: u64,
    /// Above all keys that begin with it.
    pub behind: &'a [u8],
}

impl SoughtHead<'_> {
    fn head(&self) -> &[u8] {
        &self.from[..self.head_len]
    }
}

/// What looking into one block has told.
enum Told {
    Found(Slice, Found),
    /// There is none in the table.
    Nothing,
    /// It may be in another block.
    Unknown,
}

impl Table {
    /// The first entry from there on whose key begins with the head; it may be a tombstone. The
    /// filters know heads.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn first_of_head(
        self: &Arc<Table>,
        caches: &Arc<TableCaches>,
        sought: SoughtHead<'_>,
    ) -> Result<Option<(Slice, Found)>> {
        let opened = self.opened(caches)?;
        let index = opened.find(sought.from);
        let Some(slot) = opened.slot(index) else { return Ok(None) };
        let told = match caches.partitions.borrow(slot, Admission::Normal) {
            Some(partition) if !partition.may_contain_head(sought.hash) => {
                let last = opened.top().separator(index);
                match last.is_some_and(|last| sought.behind <= last) {
                    true => Told::Nothing,
                    false => Told::Unknown,
                }
            }
            Some(partition) => {
                let block_index = partition.find(sought.from);
                let Some(slot) = partition.slot(block_index) else { return Ok(None) };
                match caches.blocks.borrow(slot, Admission::Normal) {
                    Some(block) => told_by(&block, sought),
                    None => {
                        // Kept while the block is read, for which a loan would be long.
                        let kept = Arc::clone(&partition);
                        drop(partition);
                        self.told_by_unread(caches, &kept, block_index, sought)?
                    }
                }
            }
            None => Told::Unknown,
        };
        match told {
            Told::Found(key, found) => Ok(Some((key, found))),
            Told::Nothing => Ok(None),
            Told::Unknown => self.first_by_seeking(caches, sought),
        }
    }

    fn told_by_unread(
        &self,
        caches: &TableCaches,
        partition: &Partition,
        block_index: usize,
        sought: SoughtHead<'_>,
    ) -> Result<Told> {
        let block = self.block(caches, partition, block_index, Admission::Normal)?;
        Ok(told_by(&block, sought))
    }

    #[cold]
    fn first_by_seeking(
        self: &Arc<Table>,
        caches: &Arc<TableCaches>,
        sought: SoughtHead<'_>,
    ) -> Result<Option<(Slice, Found)>> {
        if !self.may_contain_head(caches, (sought.from, sought.behind), sought.hash)? {
            return Ok(None);
        }
        let mut cursor = TableCursor::new(Arc::clone(self), Arc::clone(caches), ReadMode::Normal);
        cursor.seek(sought.from)?;
        let entry = cursor.entry().filter(|entry| entry.key.starts_with(sought.head()));
        Ok(cursor.block().zip(entry).map(|(block, entry)| found_in(block.block(), entry)))
    }
}

fn told_by(block: &Block, sought: SoughtHead<'_>) -> Told {
    let mut buffer = Vec::new();
    match block.first_from(sought.from, &mut buffer) {
        None => Told::Unknown,
        Some(entry) if !entry.key.starts_with(sought.head()) => Told::Nothing,
        Some(entry) => {
            let (key, found) = found_in(block, entry);
            Told::Found(key, found)
        }
    }
}

fn found_in(block: &Block, entry: EntryRef<'_>) -> (Slice, Found) {
    let EntryRef { key, seqno, kind, value } = entry;
    (Slice::from(key), Found { seqno: Some(seqno), kind, value: block.share(value) })
}
