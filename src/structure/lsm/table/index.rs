//! Indexes: sorted separators, each with the frame that it leads to.
//!
//! A block payload in the whole form (`block/layout.rs`): its entries are values without stamps.
//! The key of an entry is the separator behind the last key of the frame's entries (U2), so that
//! the frame of a key is that of the first separator that is not below it. The value:
//!
//! | size | field |
//! |---|---|
//! | varint | offset of the frame - the base of the index |
//! | varint | length of the frame, with its header |
//! | 4 | low 32 bits of its checksum |
//! | varint | entries in front of it, below the same index |

use std::ops::Range;

use super::format::FramePointer;
use crate::base::{EntryKind, EntryRef, Result, SeqNo, varint};
use crate::block::{Block, BlockBuilder, FramePlace, RestartPolicy};
use crate::memory::SharedBytes;

/// What an index says of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub pointer: FramePointer,
    /// Entries in front of it, below the same index.
    pub entries_in_front: u64,
}

/// Gathers the entries of an index.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    builder: BlockBuilder,
    /// What offsets are counted from.
    base: u64,
    entry_count: u64,
    value: Vec<u8>,
}

impl IndexBuilder {
    /// An index whose base is the start of the file.
    pub(super) fn new() -> IndexBuilder {
        let builder = BlockBuilder::new(RestartPolicy::Whole);
        IndexBuilder { builder, base: 0, entry_count: 0, value: Vec::new() }
    }

    /// Sets the base of an index without frames: not behind the first of them.
    pub(super) fn set_base(&mut self, base: u64) {
        debug_assert!(self.is_empty());
        self.base = base;
    }

    /// Adds a frame that lies behind those before, and has so many entries in it or below it.
    pub(super) fn add(
        &mut self,
        separator: &[u8],
        pointer: FramePointer,
        entry_count: u64,
    ) -> Result<()> {
        self.value.clear();
        varint::put(&mut self.value, pointer.offset - self.base);
        varint::put(&mut self.value, u64::from(pointer.len));
        self.value.extend_from_slice(&pointer.checksum.to_le_bytes());
        varint::put(&mut self.value, self.entry_count);
        let (seqno, kind) = (SeqNo::ZERO, EntryKind::Value);
        self.builder.add(EntryRef { key: separator, seqno, kind, value: &self.value })?;
        self.entry_count += entry_count;
        Ok(())
    }

    /// Number of frames.
    pub(super) fn len(&self) -> usize {
        self.builder.entry_count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// What offsets are counted from.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Entries below all frames.
    pub(super) fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// Bytes that the index has now.
    pub(super) fn size(&self) -> usize {
        self.builder.estimated_size()
    }

    /// Appends the payload to `out`, and starts the next index.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.builder.finish(out);
        self.entry_count = 0;
    }
}

/// An index in memory.
#[derive(Debug)]
pub(super) struct Index {
    block: Block,
    base: u64,
}

impl Index {
    /// Takes the payload that lies at `payload` of `data`; its base is `base`.
    pub(super) fn parse(
        data: SharedBytes,
        payload: Range<usize>,
        base: u64,
        place: FramePlace<'_>,
    ) -> Result<Index> {
        let block = Block::parse(data, payload, place)?;
        if !block.is_whole() {
            return Err(place.damaged("an index whose keys are not whole"));
        }
        Ok(Index { block, base })
    }

    /// Number of frames.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.block.entry_count()
    }

    /// The frame that has `key` if any has: their number if all are in front of it.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.block.count_below(key)
    }

    /// The separator behind a frame.
    #[inline]
    pub(super) fn separator(&self, index: usize) -> Option<&[u8]> {
        self.block.nth(index).map(|entry| entry.key)
    }

    /// What is known of a frame; `None` behind the last, and if the bytes say nothing that is
    /// possible.
    pub(super) fn target(&self, index: usize) -> Option<Target> {
        let value = self.block.nth(index)?.value;
        let mut position = 0;
        let offset = self.base.checked_add(varint::take(value, &mut position)?)?;
        let len = u32::try_from(varint::take(value, &mut position)?).ok()?;
        let checksum = u32::from_le_bytes(*value.get(position..)?.first_chunk()?);
        position += size_of::<u32>();
        let entries_in_front = varint::take(value, &mut position)?;
        let pointer = FramePointer { offset, len, checksum };
        pointer.end()?;
        (position == value.len()).then_some(Target { pointer, entries_in_front })
    }

    /// Whether both say the same.
    pub(super) fn is_same(&self, other: &Index) -> bool {
        let said = |index: &Index, at: usize| {
            index.separator(at).map(|separator| (separator.to_vec(), index.target(at)))
        };
        self.len() == other.len() && (0..self.len()).all(|at| said(self, at) == said(other, at))
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        self.block.memory_size()
    }

    /// Says where the order of separators is broken, if it is.
    pub(super) fn check_order(&self) -> Option<String> {
        self.block.check_order()
    }
}
