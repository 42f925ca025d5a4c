//! A partition: some neighbouring data blocks of a table, as an index and a filter of their keys.
//!
//! Layout of the payload (little-endian):
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | lines | lines of the filter, 64 bytes each; 0 for none (`filter.rs`) |
//! | 4 | 1 | probes | bits that are set for a key |
//! | 5 | 1 | prefix length | of the prefixes that the filter knows besides; 0 for none |
//! | 6 | 2 | reserved | 0 |
//! | 8 | 8 | base | of the index: where the first data block starts |
//! | 16 | 8 | entries | of all blocks |
//! | 24 | 24 | reserved | 0 |
//! | 48 | | filter | |
//! | | | index | of the blocks (`index.rs`) |
//!
//! A frame's header has 16 bytes, and memory for one starts at a multiple of 256: so each line of
//! the filter is one of the processor's cache. Partitions are not compressed: filters do not become
//! smaller.
//!
//! A partition ends after [`PARTITION_BLOCK_COUNT_MAX`] blocks or about [`PARTITION_SIZE_MAX`]
//! bytes. What a lookup has to read that finds it not in memory is small beside what it finds.

use std::fmt;
use std::ops::Range;

use super::filter;
use super::format::FramePointer;
use super::index::{Index, IndexBuilder, Target};
use super::record::TableOptions;
use crate::base::sync::{Arc, OnceLock};
use crate::base::{Result, hash_key};
use crate::block::{Block, FramePlace, frame};
use crate::cache::Slot;
use crate::memory::SharedBytes;

/// Data blocks of a partition, at most.
pub(super) const PARTITION_BLOCK_COUNT_MAX: usize = 128;
/// Bytes of a partition after which it has no more blocks.
pub(super) const PARTITION_SIZE_MAX: usize = 64 << 10;

const PROBES_AT: usize = 4;
const PREFIX_LEN_AT: usize = 5;
const TAIL_LEN_AT: usize = 6;
const BASE_AT: usize = 8;
const ENTRIES_AT: usize = 16;
const RESERVED_AT: usize = 24;
const HEAD_LEN: usize = 48;
const _: () = assert!((frame::HEADER_LEN + HEAD_LEN).is_multiple_of(filter::LINE_LEN));

/// What a slot takes that was used: itself, its counts, and its place.
const SLOT_SIZE: usize = size_of::<OnceLock<Arc<Slot<Block>>>>() + size_of::<Slot<Block>>() + 16;

/// Gathers a partition.
#[derive(Debug)]
pub(super) struct PartitionBuilder {
    index: IndexBuilder,
    /// Of keys and prefixes.
    hashes: Vec<u64>,
    filter_bits: u8,
    prefix_len: u8,
    tail_len: u8,
    /// The prefix that was added last.
    last_prefix: Vec<u8>,
}

impl PartitionBuilder {
    pub(super) fn new(options: &TableOptions) -> PartitionBuilder {
        PartitionBuilder {
            index: IndexBuilder::new(),
            hashes: Vec::new(),
            filter_bits: options.filter_bits,
            prefix_len: options.filter_prefix_len,
            tail_len: options.filter_tail_len,
            last_prefix: Vec::new(),
        }
    }

    /// Has the filter know a key (U3).
    #[inline]
    pub(super) fn add_key(&mut self, key: &[u8]) {
        if self.filter_bits == 0 {
            return;
        }
        if self.tail_len > 0 {
            return self.add_prefix(key, key.len().checked_sub(usize::from(self.tail_len)));
        }
        self.hashes.push(hash_key(key));
        if self.prefix_len > 0 {
            self.add_prefix(key, Some(usize::from(self.prefix_len)));
        }
    }

    fn add_prefix(&mut self, key: &[u8], len: Option<usize>) {
        let Some(prefix) = len.and_then(|len| key.get(..len)) else { return };
        // Keys ascend: those with one prefix are neighbours. The first may be empty.
        if self.last_prefix != prefix || self.hashes.is_empty() {
            self.hashes.push(hash_key(prefix));
            self.last_prefix.clear();
            self.last_prefix.extend_from_slice(prefix);
        }
    }

    /// Adds a data block.
    pub(super) fn add_block(
        &mut self,
        separator: &[u8],
        pointer: FramePointer,
        entry_count: u64,
    ) -> Result<()> {
        if self.index.is_empty() {
            self.index.set_base(pointer.offset);
        }
        self.index.add(separator, pointer, entry_count)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.index.len() >= PARTITION_BLOCK_COUNT_MAX || self.size() >= PARTITION_SIZE_MAX
    }

    /// Entries of its blocks.
    pub(super) fn entry_count(&self) -> u64 {
        self.index.entry_count()
    }

    /// Bytes that the payload has now.
    pub(super) fn size(&self) -> usize {
        HEAD_LEN + self.index.size() + self.lines() as usize * filter::LINE_LEN
    }

    /// Bytes of memory beside that.
    pub(super) fn buffer_size(&self) -> usize {
        self.index.size() + self.hashes.capacity() * size_of::<u64>()
    }

    fn lines(&self) -> u32 {
        filter::line_count(self.hashes.len(), self.filter_bits)
    }

    /// Appends the payload to `out`, and starts the next partition.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let (lines, probes) = (self.lines(), filter::probes_for(self.filter_bits));
        let mut head = [0; HEAD_LEN];
        head[..PROBES_AT].copy_from_slice(&lines.to_le_bytes());
        head[PROBES_AT] = probes;
        head[PREFIX_LEN_AT] = self.prefix_len;
        head[TAIL_LEN_AT] = self.tail_len;
        head[BASE_AT..ENTRIES_AT].copy_from_slice(&self.index.base().to_le_bytes());
        head[ENTRIES_AT..RESERVED_AT].copy_from_slice(&self.index.entry_count().to_le_bytes());
        out.extend_from_slice(&head);
        filter::put(&self.hashes, lines, probes, out);
        self.index.finish(out);
        self.hashes.clear();
        self.last_prefix.clear();
    }
}

/// A partition in memory, with the slots of its blocks (U7).
pub struct Partition {
    /// Where its frame starts.
    offset: u64,
    index: Index,
    data: SharedBytes,
    /// Where the filter lies in `data`.
    filter: Range<usize>,
    probes: u8,
    prefix_len: u8,
    tail_len: u8,
    entry_count: u64,
    /// Made when they are first wanted.
    slots: Box<[OnceLock<Arc<Slot<Block>>>]>,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("blocks", &self.slots.len())
            .field("entries", &self.entry_count)
            .finish_non_exhaustive()
    }
}

impl Partition {
    /// Takes the payload of a frame.
    pub(super) fn parse(payload: frame::Payload, place: FramePlace<'_>) -> Result<Partition> {
        let frame::Payload { data, range } = payload;
        let bytes = &data[range.clone()];
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
            return Err(place.damaged("a partition that is shorter than its head"));
        };
        let number =
            |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("in the head"));
        let lines = u32::from_le_bytes(*head.first_chunk().expect("in the head"));
        let (probes, prefix_len) = (head[PROBES_AT], head[PREFIX_LEN_AT]);
        let tail_len = head[TAIL_LEN_AT];
        if head[TAIL_LEN_AT + 1..BASE_AT] != [0] || head[RESERVED_AT..] != [0; 24] {
            return Err(place.damaged("reserved bytes of a partition are used"));
        }
        let filter_len = u64::from(lines) * filter::LINE_LEN as u64;
        if filter_len > rest.len() as u64 || !(1..=filter::PROBES_MAX).contains(&probes) {
            return Err(place.damaged("a filter that is longer than its partition"));
        }
        let filter_start = range.start + HEAD_LEN;
        let filter = filter_start..filter_start + filter_len as usize;
        let (base, entry_count) = (number(BASE_AT), number(ENTRIES_AT));
        let index = Index::parse(data.clone(), filter.end..range.end, base, place)?;
        let slots = (0..index.len()).map(|_| OnceLock::new()).collect();
        let offset = place.offset;
        Ok(Partition {
            offset,
            index,
            data,
            filter,
            probes,
            prefix_len,
            tail_len,
            entry_count,
            slots,
        })
    }

    /// Where its frame starts.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of blocks.
    #[inline]
    pub(super) fn block_count(&self) -> usize {
        self.slots.len()
    }

    /// Entries of all blocks.
    pub(super) fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// The block that has `key` if any has: their number if all are in front of it.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.index.find(key)
    }

    /// Whether there may be a key with this hash. Where the filter leaves out the ends of keys it
    /// cannot say.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        filter::may_contain(self.filter_bytes(), self.probes, hash) || self.tail_len > 0
    }

    /// Whether there may be a key with this hash, without the end that the filter leaves out.
    #[inline]
    pub(super) fn may_contain_head(&self, hash: u64) -> bool {
        filter::may_contain(self.filter_bytes(), self.probes, hash)
    }

    /// Whether the filter knows this key, which is there.
    pub(super) fn knows(&self, key: &[u8]) -> bool {
        let head = &key[..key.len().saturating_sub(usize::from(self.tail_len))];
        self.may_contain_head(hash_key(head)) && self.may_contain_prefix(key)
    }

    /// Whether there may be keys with this prefix. Those with a longer one are asked for by what
    /// the filter knows of it; of a shorter one it knows nothing.
    pub(super) fn may_contain_prefix(&self, prefix: &[u8]) -> bool {
        match prefix.get(..usize::from(self.prefix_len)) {
            Some(known) if !known.is_empty() => self.may_contain(hash_key(known)),
            _ => true,
        }
    }

    #[inline]
    fn filter_bytes(&self) -> &[u8] {
        &self.data[self.filter.clone()]
    }

    /// The slot of a block; `None` behind the last.
    #[inline]
    pub(super) fn slot(&self, block: usize) -> Option<&Arc<Slot<Block>>> {
        self.slots.get(block).map(|slot| slot.get_or_init(Slot::new))
    }

    /// The same, if anybody has wanted it yet.
    pub(super) fn slot_if_used(&self, block: usize) -> Option<&Arc<Slot<Block>>> {
        self.slots.get(block)?.get()
    }

    /// Where the blocks from this one on end that lie one behind the other and are not in memory,
    /// as far as `most`; the offset 0 if that is in front of all.
    pub(super) fn end_of_unread(&self, block: usize, most: u64) -> u64 {
        let mut end = 0;
        for index in block..self.slots.len() {
            let Some(FramePointer { offset, len, .. }) = self.target(index).map(|it| it.pointer)
            else {
                break;
            };
            let is_there = self.slot_if_used(index).is_some_and(|slot| slot.is_filled());
            let behind = offset.saturating_add(u64::from(len));
            if is_there || (index > block && offset != end) || behind > most {
                break;
            }
            end = behind;
        }
        end
    }

    /// Where a block lies.
    pub(super) fn target(&self, block: usize) -> Option<Target> {
        self.index.target(block)
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// Whether both say the same.
    pub(super) fn is_same(&self, other: &Partition) -> bool {
        let head = |it: &Partition| (it.probes, it.prefix_len, it.tail_len, it.entry_count);
        head(self) == head(other)
            && self.filter_bytes() == other.filter_bytes()
            && self.index.is_same(&other.index)
    }

    /// Bytes of memory, with all slots.
    pub(super) fn memory_size(&self) -> usize {
        size_of::<Partition>() + self.index.memory_size() + self.slots.len() * SLOT_SIZE
    }
}
