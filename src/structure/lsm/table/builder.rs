//! Putting a table together: entries into blocks, blocks into partitions, all into one new file,
//! wherever that is.
//!
//! In memory are the block and the partition at hand, and what was gathered to be written: some
//! hundred kilobytes, and the largest entry a few times. With a dictionary, the first blocks as
//! well until it is made of them.

use std::path::PathBuf;
use std::sync::Arc;

use super::append::FrameWriter;
use super::dictionary::{Gathering, Trained};
use super::format::{FOOTER_LEN, Footer, FramePointer, TableIdentity};
use super::index::IndexBuilder;
use super::partition::PartitionBuilder;
use super::properties::Properties;
use super::ranges::{self, RANGE_STAMP};
use super::record::{TableOptions, TableRecord, span};
use super::separator::separate;
use crate::base::{Codec, EntryKind, EntryRef, Error, ExpirySpan, RangeTombstones, Result, SeqNo};
use crate::base::{Cursor as _, Slice, is_operands};
use crate::block::{Block, BlockBuilder, BlockCursor, FrameKind, Packing, PackingDictionary};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::memory::SharedBytes;
use crate::storage::Storage;
use crate::structure::ShareSums;

/// Puts one table together. Whoever makes it removes the file, if it is not finished.
#[derive(Debug)]
pub(super) struct TableBuilder {
    identity: TableIdentity,
    options: TableOptions,
    frames: FrameWriter,
    block: BlockBuilder,
    partition: PartitionBuilder,
    top: IndexBuilder,
    payload: Vec<u8>,
    /// Behind the last block.
    separator: Vec<u8>,
    first_key: Slice,
    last_key: Slice,
    ranges: RangeTombstones,
    /// What is known of them yet.
    properties: Properties,
    values: ShareSums,
    charge: Charge,
    budget: Arc<MemoryBudget>,
    /// Blocks that wait for a dictionary; `None` once it is there, or none is wanted.
    gathering: Option<Gathering>,
    dictionary: Option<(PackingDictionary, FramePointer)>,
}

impl TableBuilder {
    /// Creates the file.
    pub(super) fn create(
        storage: &dyn Storage,
        path: PathBuf,
        identity: TableIdentity,
        options: &TableOptions,
        budget: &Arc<MemoryBudget>,
    ) -> Result<TableBuilder> {
        Ok(TableBuilder {
            identity,
            options: *options,
            frames: FrameWriter::create(storage, path, identity)?,
            block: BlockBuilder::new(options.restarts),
            partition: PartitionBuilder::new(options),
            top: IndexBuilder::new(),
            payload: Vec::new(),
            separator: Vec::new(),
            first_key: Slice::default(),
            last_key: Slice::default(),
            ranges: RangeTombstones::default(),
            properties: empty_properties(options),
            values: ShareSums::default(),
            charge: budget.charge(Part::Buffer, 0),
            budget: Arc::clone(budget),
            gathering: Gathering::begin(options.codec, options.dictionary_size),
            dictionary: None,
        })
    }

    /// See [`super::TableWriter::add`].
    #[inline]
    pub(super) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        if self.is_block_full_for(entry.key.len() + entry.value.len()) {
            self.end_block(Some(entry.key))?;
        }
        self.block.add(entry)?;
        if self.gathering.is_none() {
            self.partition.add_key(entry.key);
        }
        let properties = &mut self.properties;
        if properties.entry_count == 0 {
            self.first_key = Slice::from(entry.key);
        }
        properties.entry_count += 1;
        properties.key_bytes += entry.key.len() as u64;
        properties.value_bytes += entry.value.len() as u64;
        properties.oldest = properties.oldest.min(entry.seqno);
        properties.newest = properties.newest.max(entry.seqno);
        match entry.kind {
            EntryKind::Value | EntryKind::Pointer => {}
            EntryKind::Tombstone => properties.tombstones += 1,
            EntryKind::Composite => {
                properties.operands += u64::from(is_operands(entry.kind, entry.value));
            }
        }
        Ok(())
    }

    /// See [`super::TableWriter::is_block_full_for`].
    #[inline]
    pub(super) fn is_block_full_for(&self, entry_size: usize) -> bool {
        let size = self.block.estimated_size() + entry_size;
        !self.block.is_empty() && size > self.options.block_size
    }

    /// See [`super::TableWriter::delete_range`].
    pub(super) fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        assert!(self.ranges.first_from(start).is_none(), "ranges ascend and are disjoint");
        self.ranges.append(start, end, RANGE_STAMP);
    }

    /// The ranges that it deletes.
    pub(super) fn ranges(&self) -> &RangeTombstones {
        &self.ranges
    }

    /// Bytes of the file so far, with what is still to be written of entries.
    pub(super) fn size(&self) -> u64 {
        let block = if self.block.is_empty() { 0 } else { self.block.estimated_size() };
        let waiting = self.gathering.as_ref().map_or(0, Gathering::size);
        self.frames.position() + (block + waiting + self.partition.size()) as u64 + FOOTER_LEN
    }

    /// Entries added.
    #[cfg(test)]
    pub(super) fn entry_count(&self) -> u64 {
        self.properties.entry_count
    }

    /// Whether it has neither entries nor ranges.
    pub(super) fn is_empty(&self) -> bool {
        self.properties.entry_count == 0 && self.ranges.is_empty()
    }

    /// Writes the block at hand. `next` is the key that comes behind it.
    fn end_block(&mut self, next: Option<&[u8]>) -> Result<()> {
        let last = self.block.last_key();
        match next {
            Some(next) if last < next => separate(last, next, &mut self.separator),
            // What is merged comes from files, of which some were never verified as a whole.
            Some(_) => {
                let what = "keys that do not ascend in what this is made from";
                return Err(Error::corruption(self.frames.path(), self.frames.position(), what));
            }
            None => {
                self.separator.clear();
                self.separator.extend_from_slice(last);
                self.last_key = Slice::from(last);
            }
        }
        let entry_count = self.block.entry_count() as u64;
        self.values.add_block(&self.block);
        let properties = &mut self.properties;
        properties.expiring = ExpirySpan::joined(properties.expiring, self.block.expiry_span());
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        self.block.finish(&mut payload);
        let ended = self.place_block(&payload, entry_count);
        self.payload = payload;
        ended
    }

    /// Writes the payload of a block, whose separator is at hand, or has it wait.
    fn place_block(&mut self, payload: &[u8], entry_count: u64) -> Result<()> {
        let Some(gathering) = &mut self.gathering else {
            return self.write_block(payload, entry_count);
        };
        gathering.add(payload, &self.separator, entry_count);
        let is_full = gathering.is_full();
        self.note_memory();
        if is_full { self.end_gathering() } else { Ok(()) }
    }

    /// Writes the payload of a block, whose keys the partition has.
    fn write_block(&mut self, payload: &[u8], entry_count: u64) -> Result<()> {
        let dictionary = self.dictionary.as_ref().map(|(dictionary, _)| dictionary);
        let packing = Packing { codec: self.options.codec, dictionary };
        let pointer = self.frames.append(payload, packing, FrameKind::Entries)?;
        let properties = &mut self.properties;
        properties.blocks += 1;
        properties.raw_bytes += payload.len() as u64;
        properties.block_bytes += u64::from(pointer.len);
        self.partition.add_block(&self.separator, pointer, entry_count)?;
        self.note_memory();
        if self.partition.is_full() {
            self.end_partition()?;
        }
        Ok(())
    }

    /// Makes a dictionary of the blocks that wait, if it pays, and writes them.
    #[cold]
    fn end_gathering(&mut self) -> Result<()> {
        let Some(gathering) = self.gathering.take() else { return Ok(()) };
        self.note_memory();
        // What waits, and for a moment what training takes.
        let waiting = gathering.memory_size();
        let mut charge = self.budget.charge(Part::Buffer, gathering.training_size());
        let trained = gathering.train();
        charge.resize(waiting);
        if let Some(Trained { bytes, packing }) = trained {
            let pointer = self.append(&bytes, FrameKind::Dictionary)?;
            self.dictionary = Some((packing, pointer));
        }
        for (block, payload) in gathering.blocks() {
            let place = self.frames.next_place();
            let entries = Block::parse(SharedBytes::from(payload), 0..payload.len(), place)?;
            let mut cursor = BlockCursor::new(Arc::new(entries));
            cursor.seek_first()?;
            while let Some(entry) = cursor.entry() {
                self.partition.add_key(entry.key);
                cursor.next()?;
            }
            self.separator.clone_from(&block.separator);
            self.write_block(payload, block.entry_count)?;
        }
        Ok(())
    }

    /// Writes the partition at hand, whose last block was written last.
    fn end_partition(&mut self) -> Result<()> {
        let entry_count = self.partition.entry_count();
        self.payload.clear();
        self.partition.finish(&mut self.payload);
        let packing = Codec::None.into();
        let pointer = self.frames.append(&self.payload, packing, FrameKind::Partition)?;
        self.properties.partitions += 1;
        self.top.add(&self.separator, pointer, entry_count)
    }

    /// Writes the rest, and makes the file durable; its name is so once the directory is synced.
    pub(super) fn finish(&mut self) -> Result<TableRecord> {
        if !self.block.is_empty() {
            self.end_block(None)?;
        }
        self.end_gathering()?;
        if !self.partition.is_empty() {
            self.end_partition()?;
        }
        self.payload.clear();
        self.top.finish(&mut self.payload);
        let top = self.frames.append(&self.payload, Codec::None.into(), FrameKind::Top)?;
        let ranges = match self.ranges.is_empty() {
            true => None,
            false => Some(self.append(&ranges::encode(&self.ranges), FrameKind::DeletedRanges)?),
        };
        let has_entries = self.properties.entry_count > 0;
        self.properties.keys = has_entries.then(|| (self.first_key.clone(), self.last_key.clone()));
        self.properties.deleted_ranges = self.ranges.fragment_count() as u64;
        self.properties.values = self.values.shares();
        let properties = self.append(&self.properties.encode(), FrameKind::Properties)?;
        let dictionary = self.dictionary.as_ref().map(|(_, pointer)| *pointer);
        let footer = Footer { top, ranges, properties, dictionary };
        let (footer, checksum) = footer.encode(self.frames.tag(), self.frames.position());
        self.frames.put(&footer);
        let size = self.frames.position();
        self.frames.finish()?;
        Ok(self.record(size, checksum))
    }

    fn append(&mut self, payload: &[u8], kind: FrameKind) -> Result<FramePointer> {
        self.frames.append(payload, Codec::None.into(), kind)
    }

    /// What is to be said of the table in the index.
    fn record(&self, size: u64, checksum: u32) -> TableRecord {
        let properties = &self.properties;
        let (first, end) = span(properties.keys.as_ref(), &self.ranges);
        TableRecord {
            number: self.identity.number,
            size,
            checksum,
            first,
            end,
            entry_count: properties.entry_count,
            tombstones: properties.tombstones,
            deleted_ranges: u32::try_from(properties.deleted_ranges).unwrap_or(u32::MAX),
            hides: 0,
            logical_bytes: properties.key_bytes + properties.value_bytes,
            origin: self.identity.origin(),
            stamp: None,
            oldest: properties.oldest,
            newest: properties.newest,
            expiring: properties.expiring,
            values: properties.values.clone(),
        }
    }

    /// Charges what the buffers take, about.
    fn note_memory(&mut self) {
        // The entries of a payload are gathered by a builder of the same size.
        let payload = 2 * self.payload.capacity();
        let indexes = self.partition.buffer_size() + self.top.size();
        let ranges = self.ranges.memory_size();
        let waiting = self.gathering.as_ref().map_or(0, Gathering::memory_size);
        let dictionary = self.dictionary.as_ref();
        let dictionary = dictionary.map_or(0, |(dictionary, _)| dictionary.memory_size());
        let tables = indexes + ranges + waiting + dictionary;
        self.charge.resize(self.frames.buffer_capacity() + payload + tables);
    }
}

fn empty_properties(options: &TableOptions) -> Properties {
    Properties {
        entry_count: 0,
        tombstones: 0,
        operands: 0,
        key_bytes: 0,
        value_bytes: 0,
        keys: None,
        oldest: SeqNo::MAX,
        newest: SeqNo::ZERO,
        expiring: None,
        deleted_ranges: 0,
        blocks: 0,
        raw_bytes: 0,
        block_bytes: 0,
        partitions: 0,
        codec: options.codec,
        block_size: options.block_size as u64,
        filter_bits: options.filter_bits,
        filter_prefix_len: options.filter_prefix_len,
        values: Vec::new(),
    }
}
