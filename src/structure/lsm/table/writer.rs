//! Writing a table of a keyspace.

use std::sync::Arc;

use super::builder::TableBuilder;
use super::place::TablePlace;
use super::record::{TableOptions, TableRecord};
use crate::base::{EntryRef, Result};
use crate::cache::MemoryBudget;

/// Writes one table. What is not finished is given up: [`TableWriter::discard`] removes the file
/// at once, opening the database does otherwise.
#[derive(Debug)]
pub struct TableWriter {
    place: Arc<TablePlace>,
    number: u64,
    builder: TableBuilder,
    state: WriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterState {
    Writing,
    Finished,
}

impl TableWriter {
    /// Creates the file of a new table, which is known as one that no edit names yet.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub fn create(
        place: &Arc<TablePlace>,
        options: &TableOptions,
        budget: &Arc<MemoryBudget>,
    ) -> Result<TableWriter> {
        let number = place.take_number();
        place.note_unlisted(number);
        let (path, identity) = (place.path_of(number), place.identity_of(number));
        let created = TableBuilder::create(&*place.storage, path, identity, options, budget);
        let builder = created.inspect_err(|_| place.forget_unlisted(&[number]))?;
        let (place, state) = (Arc::clone(place), WriterState::Writing);
        Ok(TableWriter { place, number, builder, state })
    }

    /// The table's number.
    #[cfg(test)]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Adds an entry, whose key must be above all before it.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not fit into a block: nothing was added. `Io`, `DiskFull`:
    /// the table is to be discarded.
    #[inline]
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        self.builder.add(entry)
    }

    /// Whether adding an entry of so many bytes ends the block at hand: else it writes nothing.
    #[inline]
    #[must_use]
    pub fn is_block_full_for(&self, entry_size: usize) -> bool {
        self.builder.is_block_full_for(entry_size)
    }

    /// Deletes the keys from `start` to in front of `end`, or to the last, in all that is older
    /// than this table. Must begin behind the ranges before it, or where the last one ends; an
    /// empty range is none.
    ///
    /// # Panics
    /// When it begins in front of the end of the range before it.
    pub fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        self.builder.delete_range(start, end);
    }

    /// Bytes of the file so far, with what is still to be written of entries.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.builder.size()
    }

    /// Entries added.
    #[cfg(test)]
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.builder.entry_count()
    }

    /// Whether it has neither entries nor ranges.
    #[cfg(test)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Writes the rest, and makes the file durable; its name is so once the directory is synced.
    /// The table stays known as unlisted.
    ///
    /// # Errors
    /// `Io`, `DiskFull`: the file was removed, if that was possible.
    pub fn finish(mut self) -> Result<TableRecord> {
        match self.builder.finish() {
            Ok(record) => {
                self.state = WriterState::Finished;
                Ok(record)
            }
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Removes the file. If that is not possible now it is an orphan, which opening removes.
    pub fn discard(self) {
        let _orphan_if_it_fails = self.place.remove_orphan(self.number);
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.state == WriterState::Writing {
            self.place.forget_unlisted(&[self.number]);
        }
    }
}
