//! Walking a version in key order, a block at a time.
//!
//! Where one run alone has keys, its blocks are handed out as they are. Where several have, their
//! entries are merged into blocks made for the walk, small at first and larger as it goes on.

use std::fmt;
use std::sync::Arc;

use super::merge::Merged;
use super::table::ReadMode;
use super::version::LsmVersion;
use crate::base::{
    Cursor, EntryKind, EntryRef, KeyRange, Result, SeqNo, is_operands, lost_its_place,
};
use crate::block::{BlockBuilder, BlockCursor, RestartPolicy};
use crate::structure::StructureCursor;

/// Bytes of the first merged block of a walk, about; each further one may have twice as many ..
const CHUNK_BYTES_FIRST: usize = 4 << 10;
/// .. up to this many.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Where a [`LsmCursor`] is.
#[derive(Debug)]
enum Place {
    /// In front of the first entry.
    Start,
    /// Within a block; its cursor is on an entry.
    On(BlockCursor),
    /// Within a block that was taken.
    Taken,
    /// Behind the last entry.
    End,
    /// A move failed; only a seek helps.
    Lost,
}

/// On which side of the block at hand the runs stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Behind,
    Before,
    /// On its last entry, of a block that the run shown has handed out.
    HandedForward,
    /// On its first entry, of such a block.
    HandedBackward,
}

/// A cursor over the entries of one version.
pub(super) struct LsmCursor {
    version: Arc<LsmVersion>,
    /// The first key that is asked for, and the first one behind; `None` if there is no end.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Made by the first seek.
    merged: Option<Merged>,
    place: Place,
    side: Side,
    /// Keys that all of the block at hand, and nothing else, lies between, both included.
    first: Vec<u8>,
    last: Vec<u8>,
    chunk_bytes: usize,
}

impl fmt::Debug for LsmCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LsmCursor").field("place", &self.place).finish_non_exhaustive()
    }
}

impl LsmCursor {
    /// A cursor that is not asked for entries outside of `range`.
    pub(super) fn new(version: Arc<LsmVersion>, range: &KeyRange) -> LsmCursor {
        let (start, end) = range.half_open();
        LsmCursor {
            version,
            start,
            end,
            merged: None,
            place: Place::Start,
            side: Side::Behind,
            first: Vec::new(),
            last: Vec::new(),
            chunk_bytes: CHUNK_BYTES_FIRST,
        }
    }

    /// Does a seek of all runs.
    fn start(&mut self, seek: impl FnOnce(&mut Merged) -> Result<()>) -> Result<&mut Merged> {
        self.place = Place::Lost;
        self.chunk_bytes = CHUNK_BYTES_FIRST;
        let merged = match self.merged.take() {
            Some(merged) => merged,
            None => {
                let end = self.end.as_deref();
                self.version.merged_within(&self.start, end, ReadMode::Normal)?
            }
        };
        let merged = self.merged.insert(merged);
        let extra = merged.run_count().saturating_sub(1) as u64;
        if extra > 0 {
            self.version.reader.extra_seeks.add(0, extra);
        }
        seek(merged)?;
        Ok(merged)
    }

    /// From where the runs stand onward, goes to the first entry there is.
    fn enter_forward(&mut self) -> Result<()> {
        self.place = Place::Lost;
        let Some(merged) = &mut self.merged else { return Ok(()) };
        loop {
            if merged.key().is_none() {
                self.place = Place::End;
                return Ok(());
            }
            if let Some((block, last)) = merged.take_block_forward() {
                replace(&mut self.first, block.block().first_key().unwrap_or_default());
                self.last = last;
                (self.place, self.side) = (Place::On(block), Side::HandedForward);
                return Ok(());
            }
            let chunk = forward_chunk(merged, &self.version, self.chunk_bytes, &mut self.last)?;
            if let Some(mut block) = chunk {
                block.seek_first()?;
                replace(&mut self.first, block.key().unwrap_or_default());
                self.chunk_bytes = (2 * self.chunk_bytes).min(CHUNK_BYTES_MAX);
                (self.place, self.side) = (Place::On(block), Side::Behind);
                return Ok(());
            }
        }
    }

    /// From where the runs stand backward, goes to the last entry there is.
    fn enter_backward(&mut self) -> Result<()> {
        self.place = Place::Lost;
        let Some(merged) = &mut self.merged else { return Ok(()) };
        loop {
            let Some(key) = merged.key() else {
                self.place = Place::Start;
                return Ok(());
            };
            replace(&mut self.last, key);
            if let Some((block, last)) = merged.take_block_backward() {
                replace(&mut self.first, block.block().first_key().unwrap_or_default());
                self.last = last;
                (self.place, self.side) = (Place::On(block), Side::HandedBackward);
                return Ok(());
            }
            let chunk = backward_chunk(merged, &self.version, self.chunk_bytes, &mut self.first)?;
            if let Some(mut block) = chunk {
                block.seek_last()?;
                self.chunk_bytes = (2 * self.chunk_bytes).min(CHUNK_BYTES_MAX);
                (self.place, self.side) = (Place::On(block), Side::Before);
                return Ok(());
            }
        }
    }

    #[cold]
    fn leave_forward(&mut self) -> Result<()> {
        self.place = Place::Lost;
        let Some(merged) = &mut self.merged else { return Ok(()) };
        match self.side {
            Side::Behind => {}
            Side::HandedForward => merged.next_block()?,
            Side::Before | Side::HandedBackward => merged.seek_behind(&self.last)?,
        }
        self.enter_forward()
    }

    #[cold]
    fn leave_backward(&mut self) -> Result<()> {
        self.place = Place::Lost;
        let Some(merged) = &mut self.merged else { return Ok(()) };
        match self.side {
            Side::Before => {}
            Side::HandedBackward => merged.prev_block()?,
            Side::Behind | Side::HandedForward => merged.seek_before(&self.first)?,
        }
        self.enter_backward()
    }
}

fn replace(key: &mut Vec<u8>, with: &[u8]) {
    key.clear();
    key.extend_from_slice(with);
}

/// The entries from where the runs stand onward that are not hidden, merged, until they take about
/// `bytes`; `last` becomes the last key that was gone past. `None` if all of these were hidden or
/// deleted. The runs stand behind them then.
fn forward_chunk(
    merged: &mut Merged,
    version: &LsmVersion,
    bytes: usize,
    last: &mut Vec<u8>,
) -> Result<Option<BlockCursor>> {
    let mut builder = BlockBuilder::new(RestartPolicy::Whole);
    // Of what is hidden, a bounded number: the walk may have come to its end.
    let mut passed = 0;
    while let Some(key) = merged.key() {
        if builder.estimated_size() >= bytes || passed >= bytes {
            break;
        }
        passed += key.len() + 1;
        replace(last, key);
        add_shown(merged, version, |entry| builder.add(entry))?;
        merged.next()?;
    }
    Ok(finished(builder, version))
}

/// As [`forward_chunk`], from where the runs stand backward; `first` becomes the last key that was
/// gone past.
fn backward_chunk(
    merged: &mut Merged,
    version: &LsmVersion,
    bytes: usize,
    first: &mut Vec<u8>,
) -> Result<Option<BlockCursor>> {
    let mut entries: Vec<OwnEntry> = Vec::new();
    let (mut taken, mut passed) = (0, 0);
    while let Some(key) = merged.key() {
        if taken >= bytes || passed >= bytes {
            break;
        }
        passed += key.len() + 1;
        replace(first, key);
        add_shown(merged, version, |entry| {
            taken += entry.key.len() + entry.value.len();
            entries.push(OwnEntry::of(entry));
            Ok(())
        })?;
        merged.prev()?;
    }
    let mut builder = BlockBuilder::new(RestartPolicy::Whole);
    entries.iter().rev().try_for_each(|entry| builder.add(entry.borrowed()))?;
    Ok(finished(builder, version))
}

fn finished(mut builder: BlockBuilder, version: &LsmVersion) -> Option<BlockCursor> {
    if builder.is_empty() {
        return None;
    }
    Some(BlockCursor::new(Arc::new(builder.finish_block(version.heap()))))
}

/// Hands on what the runs show, unless it is hidden or a deletion; operands as the value that they
/// make.
fn add_shown(
    merged: &Merged,
    version: &LsmVersion,
    mut add: impl FnMut(EntryRef<'_>) -> Result<()>,
) -> Result<()> {
    let Some(entry) = merged.entry() else { return Ok(()) };
    if entry.kind == EntryKind::Tombstone || merged.is_hidden() {
        return Ok(());
    }
    if is_operands(entry.kind, entry.value) {
        let folder = version.folder();
        let stacked = merged.stacked(folder)?;
        return add(folder.fold_in_memory(entry.key, &stacked)?.entry(entry));
    }
    add(entry)
}

/// An entry of which nothing is borrowed.
struct OwnEntry {
    key: Vec<u8>,
    value: Vec<u8>,
    seqno: SeqNo,
    kind: EntryKind,
}

impl OwnEntry {
    fn of(entry: EntryRef<'_>) -> OwnEntry {
        let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
        OwnEntry { key, value, seqno: entry.seqno, kind: entry.kind }
    }

    fn borrowed(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, value: &self.value, seqno: self.seqno, kind: self.kind }
    }
}

impl Cursor for LsmCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.start(Merged::seek_first)?;
        self.enter_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.start(Merged::seek_last)?;
        self.enter_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(|merged| merged.seek(key))?;
        self.enter_forward()
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.start(|merged| merged.seek_for_prev(key))?;
        self.enter_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match &mut self.place {
            Place::On(block) => {
                block.next()?;
                if block.is_valid() {
                    return Ok(());
                }
                self.leave_forward()
            }
            Place::Taken => self.leave_forward(),
            Place::Start => self.seek_first(),
            Place::End => Ok(()),
            Place::Lost => Err(lost_its_place()),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match &mut self.place {
            Place::On(block) => {
                block.prev()?;
                if block.is_valid() {
                    return Ok(());
                }
                self.leave_backward()
            }
            Place::Taken => self.leave_backward(),
            Place::Start => Ok(()),
            Place::End => self.seek_last(),
            Place::Lost => Err(lost_its_place()),
        }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        match &self.place {
            Place::On(block) => block.entry(),
            _ => None,
        }
    }

    #[inline]
    fn is_valid(&self) -> bool {
        matches!(self.place, Place::On(_))
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match &self.place {
            Place::On(block) => block.key(),
            _ => None,
        }
    }

    #[inline]
    fn value(&self) -> Option<&[u8]> {
        match &self.place {
            Place::On(block) => block.value(),
            _ => None,
        }
    }

    #[inline]
    fn is_tombstone(&self) -> bool {
        matches!(&self.place, Place::On(block) if block.is_tombstone())
    }
}

impl StructureCursor for LsmCursor {
    fn take_block(&mut self) -> Option<BlockCursor> {
        match std::mem::replace(&mut self.place, Place::Taken) {
            Place::On(block) => Some(block),
            other => {
                self.place = other;
                None
            }
        }
    }
}
