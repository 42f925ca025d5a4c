//! A table as versions refer to it: held, opened when it is first read, searched.
//!
//! A point lookup goes from the top to a partition, asks its filter, and goes by its index to one
//! data block. Where all of that is in memory it allocates nothing and counts no reference.

use super::caches::TableCaches;
use super::format::FramePointer;
use super::open::{Opened, read_properties};
use super::partition::Partition;
use super::place::{TableFile, TablePlace};
use super::properties::Properties;
use super::record::TableRecord;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, OnceLock};
use crate::base::version_key::is_by_key;
use crate::base::{RangeTombstones, Result, SeqNo, prefix_successor};
use crate::block::{Block, Dictionary, FrameKind, frame};
use crate::cache::{Admission, FillOutcome};
use crate::structure::Found;
use crate::structure::retention::Retention;
use crate::value_log::ValueFile;

/// A prefix may go on in the partitions behind: so many are looked at before it is taken to be
/// there.
const PARTITIONS_PER_PREFIX_MAX: usize = 4;

/// An immutable table. The last reference to a retired one dooms its file (U6).
#[derive(Debug)]
pub struct Table {
    // Constant.
    /// What the index says of it.
    pub record: TableRecord,
    file: Arc<TableFile>,
    /// What its entries point into, held.
    _values: Box<[Arc<ValueFile>]>,
    // Set once.
    opened: OnceLock<Box<Opened>>,
    // Atomic.
    /// Whether the newest durable index does not refer to it.
    retired: AtomicBool,
    /// Of an archive: the stamp up to which there is nothing in it that is not kept, with the
    /// tables behind it; `NEVER_SIEVED` if that is not known.
    sieved_to: AtomicU64,
}

const NEVER_SIEVED: u64 = 0;

impl Table {
    /// A table that exists, by the index. It is looked at when it is first read. Holds the value
    /// files that its entries point into.
    #[must_use]
    pub fn existing(place: &Arc<TablePlace>, record: TableRecord) -> Arc<Table> {
        Table::in_file(TableFile::of(place, record.number, record.origin), record)
    }

    /// The same, in this file.
    pub(super) fn in_file(file: Arc<TableFile>, record: TableRecord) -> Arc<Table> {
        let place = file.place();
        place.note_held(record.number);
        let values = record.values.iter().map(|share| place.values.hold(share.file)).collect();
        Arc::new(Table {
            file,
            record,
            _values: values,
            opened: OnceLock::new(),
            retired: AtomicBool::new(false),
            sieved_to: AtomicU64::new(NEVER_SIEVED),
        })
    }

    /// Says that nothing of what is kept no more is left in it.
    pub fn note_sieved(&self, retention: Retention) {
        let to = retention.from.unwrap_or(SeqNo::MAX);
        self.sieved_to.store(to.as_u64(), Ordering::Release);
    }

    /// Whether it may have versions of an archive that are not kept.
    #[must_use]
    pub fn is_unsieved(&self, retention: Retention) -> bool {
        let TableRecord { first, expiring, stamp, .. } = &self.record;
        let (oldest, newest) = match stamp {
            Some(stamp) => (*stamp, *stamp), // Of an ingest, the entries do not say theirs.
            None => (self.record.oldest, self.record.newest),
        };
        let to = self.sieved_to.load(Ordering::Acquire);
        let was_sieved = to != NEVER_SIEVED && newest.as_u64() < to && expiring.is_none();
        let is_old = retention.from.is_none_or(|from| oldest <= from);
        is_by_key(first) && is_old && !was_sieved
    }

    /// Says that the newest durable index does not refer to the table any more.
    pub fn retire(&self) {
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.file.place().note_pinned(self.record.size);
        }
    }

    /// Whether the newest durable index does not refer to it.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.file.path
    }

    /// The entry of `key`, whose hash (`base::hash_key`) is `hash`; may be a tombstone. Knows
    /// nothing of deleted ranges: these hide what is older.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    #[inline]
    pub fn find(&self, caches: &TableCaches, key: &[u8], hash: u64) -> Result<Option<Found>> {
        let opened = self.opened(caches)?;
        let index = opened.find(key);
        let Some(slot) = opened.slot(index) else { return Ok(None) };
        let Some(partition) = caches.partitions.borrow(slot, Admission::Normal) else {
            return self.find_in_partition(caches, opened, index, key, hash);
        };
        if !partition.may_contain(hash) {
            return Ok(None);
        }
        let block_index = partition.find(key);
        let Some(slot) = partition.slot(block_index) else { return Ok(None) };
        if let Some(block) = caches.blocks.borrow(slot, Admission::Normal) {
            return Ok(Found::in_block(&block, key));
        }
        // Kept while the block is read, for which a loan would be long.
        let kept = Arc::clone(&partition);
        drop(partition);
        let block = self.read_block(caches, &kept, block_index, Admission::Normal)?;
        Ok(Found::in_block(&block, key))
    }

    /// The same, of a key whose partition is not in memory.
    #[cold]
    fn find_in_partition(
        &self,
        caches: &TableCaches,
        opened: &Opened,
        index: usize,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<Found>> {
        let partition = self.read_partition(caches, opened, index, Admission::Normal)?;
        let block_index = partition.find(key);
        if !partition.may_contain(hash) || block_index >= partition.block_count() {
            return Ok(None);
        }
        let block = self.block(caches, &partition, block_index, Admission::Normal)?;
        Ok(Found::in_block(&block, key))
    }

    /// Whether the table deletes `key` in what is older.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    #[inline]
    #[cfg(test)]
    pub fn deletes(&self, caches: &TableCaches, key: &[u8]) -> Result<bool> {
        if self.record.deleted_ranges == 0 {
            return Ok(false);
        }
        let deleted = self.opened(caches)?.deleted.as_ref();
        Ok(deleted.is_some_and(|ranges| ranges.covering(key, crate::base::SeqNo::MAX).is_some()))
    }

    /// The ranges that the table deletes in what is older, if any; their stamps say nothing.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn deleted(&self, caches: &TableCaches) -> Result<Option<Arc<RangeTombstones>>> {
        if self.record.deleted_ranges == 0 {
            return Ok(None);
        }
        Ok(self.opened(caches)?.deleted.clone())
    }

    /// Whether there may be an entry of `key`, by the filter: without reading data blocks.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn may_contain(&self, caches: &TableCaches, key: &[u8], hash: u64) -> Result<bool> {
        let opened = self.opened(caches)?;
        let index = opened.find(key);
        let Some(slot) = opened.slot(index) else { return Ok(false) };
        if let Some(partition) = caches.partitions.borrow(slot, Admission::OnceRead) {
            return Ok(partition.may_contain(hash));
        }
        let partition = self.read_partition(caches, opened, index, Admission::OnceRead)?;
        Ok(partition.may_contain(hash))
    }

    /// Whether there may be an entry whose key starts with `prefix`, by the filters. Only tables
    /// whose filters know prefixes that are not longer deny it within their span.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn may_contain_prefix(&self, caches: &TableCaches, prefix: &[u8]) -> Result<bool> {
        let opened = self.opened(caches)?;
        let behind = prefix_successor(prefix);
        let first = opened.find(prefix);
        for index in first..opened.partition_count() {
            let partition = self.partition(caches, opened, index, Admission::OnceRead)?;
            if partition.may_contain_prefix(prefix) || index - first >= PARTITIONS_PER_PREFIX_MAX {
                return Ok(true);
            }
            let separator = opened.top().separator(index);
            let is_last = behind.as_deref().zip(separator).is_some_and(|(behind, it)| behind <= it);
            if is_last {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Whether there may be an entry from `from` on whose key is this head, hashed as `hash`, and
    /// an end that the filters leave out. `behind` is above all of them.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn may_contain_head(
        &self,
        caches: &TableCaches,
        (from, behind): (&[u8], &[u8]),
        hash: u64,
    ) -> Result<bool> {
        let opened = self.opened(caches)?;
        let first = opened.find(from);
        for index in first..opened.partition_count() {
            let Some(slot) = opened.slot(index) else { return Ok(false) };
            let may_contain = match caches.partitions.borrow(slot, Admission::Normal) {
                Some(partition) => partition.may_contain_head(hash),
                None => self
                    .read_partition(caches, opened, index, Admission::Normal)?
                    .may_contain_head(hash),
            };
            if may_contain || index - first >= PARTITIONS_PER_PREFIX_MAX {
                return Ok(true);
            }
            if opened.top().separator(index).is_some_and(|separator| behind <= separator) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Figures of the table. Read each time.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn properties(&self, caches: &TableCaches) -> Result<Properties> {
        read_properties(&self.file, self.opened(caches)?.footer.properties, caches)
    }

    pub(super) fn file(&self) -> &Arc<TableFile> {
        &self.file
    }

    /// The number of the data key that it is sealed with, or 0. Opens its file.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn key_id(&self) -> Result<u16> {
        self.file.key_id()
    }

    /// What its data blocks may be packed with.
    pub(super) fn dictionary(&self, caches: &TableCaches) -> Result<Option<&Dictionary>> {
        Ok(self.opened(caches)?.dictionary.as_ref())
    }

    /// What is in memory of it, read if need be.
    #[inline]
    pub(super) fn opened(&self, caches: &TableCaches) -> Result<&Opened> {
        match self.opened.get() {
            Some(opened) => Ok(opened),
            None => self.open(caches),
        }
    }

    /// The same, if it was read.
    pub(super) fn opened_if_read(&self) -> Option<&Opened> {
        self.opened.get().map(|opened| &**opened)
    }

    #[cold]
    fn open(&self, caches: &TableCaches) -> Result<&Opened> {
        // Two at once may both read it; one is kept.
        let opened = Opened::read(&self.file, &self.record, caches)?;
        Ok(self.opened.get_or_init(|| Box::new(opened)))
    }

    /// A partition, from memory if it is there.
    pub(super) fn partition(
        &self,
        caches: &TableCaches,
        opened: &Opened,
        index: usize,
        admission: Admission,
    ) -> Result<Arc<Partition>> {
        let slot = opened.slot(index).expect("the search stays within the table");
        match caches.partitions.load(slot, admission) {
            Some(partition) => Ok(partition),
            None => self.read_partition(caches, opened, index, admission),
        }
    }

    #[cold]
    fn read_partition(
        &self,
        caches: &TableCaches,
        opened: &Opened,
        index: usize,
        admission: Admission,
    ) -> Result<Arc<Partition>> {
        let partition = match opened.pinned(index) {
            Some(pinned) => Arc::clone(pinned),
            None => {
                let pointer = self.partition_pointer(opened, index)?;
                let payload = caches.read_frame(&self.file, pointer, FrameKind::Partition)?;
                Arc::new(self.parse_partition(payload, opened, index, pointer)?)
            }
        };
        let slot = opened.slot(index).expect("the search stays within the table");
        let is_charged = opened.pin(index, &partition, caches);
        let weight = if is_charged { 0 } else { partition.memory_size() };
        match caches.partitions.fill(slot, Arc::clone(&partition), weight, admission) {
            // Another was faster: its slots are those that others fill.
            FillOutcome::WasFilled => self.partition(caches, opened, index, admission),
            FillOutcome::Filled | FillOutcome::TooLarge => {
                caches.guides.trim(); // They give way to it.
                Ok(partition)
            }
        }
    }

    pub(super) fn partition_pointer(&self, opened: &Opened, index: usize) -> Result<FramePointer> {
        let target = opened.target(index).map(|target| target.pointer);
        let top = opened.footer.top.offset;
        target.ok_or_else(|| self.file.damaged(top, "the top points nowhere"))
    }

    /// The partition in a frame, if it is the one that the top leads to (U2).
    pub(super) fn parse_partition(
        &self,
        payload: frame::Payload,
        opened: &Opened,
        index: usize,
        pointer: FramePointer,
    ) -> Result<Partition> {
        let place = self.file.place_at(pointer.offset);
        let partition = Partition::parse(payload, place)?;
        let last = partition.block_count().checked_sub(1);
        let separator = last.and_then(|last| partition.index().separator(last));
        if separator.is_none() || separator != opened.top().separator(index) {
            return Err(place.damaged("the last separator is not that in the top"));
        }
        Ok(partition)
    }

    /// A data block, from memory if it is there.
    pub(super) fn block(
        &self,
        caches: &TableCaches,
        partition: &Partition,
        index: usize,
        admission: Admission,
    ) -> Result<Arc<Block>> {
        let slot = partition.slot(index).expect("the search stays within the partition");
        match caches.blocks.load(slot, admission) {
            Some(block) => Ok(block),
            None => self.read_block(caches, partition, index, admission),
        }
    }

    #[cold]
    fn read_block(
        &self,
        caches: &TableCaches,
        partition: &Partition,
        index: usize,
        admission: Admission,
    ) -> Result<Arc<Block>> {
        let pointer = self.block_pointer(partition, index)?;
        let dictionary = self.dictionary(caches)?;
        let payload = caches.read_packed(&self.file, pointer, FrameKind::Entries, dictionary)?;
        let block = Arc::new(self.parse_block(payload, pointer)?);
        let slot = partition.slot(index).expect("the search stays within the partition");
        caches.blocks.fill(slot, Arc::clone(&block), block.memory_size(), admission);
        Ok(block)
    }

    pub(super) fn block_pointer(
        &self,
        partition: &Partition,
        index: usize,
    ) -> Result<FramePointer> {
        let target = partition.target(index).map(|target| target.pointer);
        target.ok_or_else(|| self.file.damaged(partition.offset(), "a partition points nowhere"))
    }

    /// The block in a frame, with the stamp that its entries have.
    pub(super) fn parse_block(
        &self,
        payload: frame::Payload,
        pointer: FramePointer,
    ) -> Result<Block> {
        let place = self.file.place_at(pointer.offset);
        let block = Block::parse(payload.data, payload.range, place)?;
        Ok(match self.record.stamp {
            Some(stamp) => block.stamped(stamp),
            None => block,
        })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let place = self.file.place();
        if self.is_retired() {
            place.doom(self.file.path.clone(), self.record.size, self.opened.take());
        }
        place.note_let_go(self.record.number);
    }
}
