//! Walking a table in key order, a data block at a time.

use std::sync::Arc;

use super::caches::TableCaches;
use super::handle::Table;
use super::partition::Partition;
use super::read_ahead::{ReadAhead, Reuse};
use crate::base::{Cursor, EntryRef, Result, SeqNo, lost_its_place, prefetch};
use crate::block::{Block, BlockCursor, FrameKind};
use crate::cache::Admission;

/// How a walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Through the caches: what is read is kept there.
    Normal,
    /// The same, of what goes on for long and looks at little of it: reads more at once as it goes
    /// on, and keeps of that what there is room for, so that nothing else has to go.
    Ahead,
    /// In passing, for compaction: uses what is in the caches, keeps nothing there, and reads ahead
    /// when it moves on.
    Passing,
}

/// The last of the partitions, or of the blocks of one, of which it is not known yet how many there
/// are.
const LAST: usize = usize::MAX;

/// Where a [`TableCursor`] is.
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
    /// Moving forward, at a block that could not be read; the next move tries again.
    UnreadForward,
    /// The same, moving backward.
    UnreadBackward,
    /// A seek failed; only another one helps.
    Lost,
}

/// A cursor over the entries of a table, tombstones among them.
#[derive(Debug)]
pub struct TableCursor {
    // Constant.
    table: Arc<Table>,
    caches: Arc<TableCaches>,
    mode: ReadMode,
    place: Place,
    // The block that it is at.
    partition_index: usize,
    block_index: usize,
    /// The partition of that number, once it was read.
    partition: Option<Arc<Partition>>,
    ahead: ReadAhead,
}

impl TableCursor {
    /// A cursor in front of the first entry. Reads nothing yet.
    #[must_use]
    pub fn new(table: Arc<Table>, caches: Arc<TableCaches>, mode: ReadMode) -> TableCursor {
        TableCursor {
            table,
            caches,
            mode,
            place: Place::Start,
            partition_index: 0,
            block_index: 0,
            partition: None,
            ahead: ReadAhead::default(),
        }
    }

    /// The block that the cursor is in, on the same entry.
    #[inline]
    #[must_use]
    pub fn block(&self) -> Option<&BlockCursor> {
        match &self.place {
            Place::On(block) => Some(block),
            _ => None,
        }
    }

    /// Takes the block that the cursor is in, on the same entry; `None` when it is on none. After
    /// that it stands between the entries before and behind that block: [`Cursor::next`] goes to
    /// the first one behind, [`Cursor::prev`] to the last one before it.
    pub fn take_block(&mut self) -> Option<BlockCursor> {
        match std::mem::replace(&mut self.place, Place::Taken) {
            Place::On(block) => Some(block),
            other => {
                self.place = other;
                None
            }
        }
    }

    /// No key of the block that the cursor is in, or that was taken last, is above this one; and
    /// all keys behind that block are.
    #[must_use]
    pub fn last_key_bound(&self) -> Option<&[u8]> {
        match self.place {
            Place::On(_) | Place::Taken => {
                self.partition.as_ref()?.index().separator(self.block_index)
            }
            _ => None,
        }
    }

    fn partition_count(&self) -> Result<usize> {
        Ok(self.table.opened(&self.caches)?.partition_count())
    }

    fn go_to_partition(&mut self, index: usize, block_index: usize) {
        if self.partition_index != index {
            self.partition_index = index;
            self.partition = None;
        }
        self.block_index = block_index;
    }

    /// The partition that the cursor is at, of those that there are.
    fn load_partition(&mut self, admission: Admission) -> Result<Arc<Partition>> {
        if let Some(partition) = &self.partition {
            return Ok(Arc::clone(partition));
        }
        let (table, index) = (&self.table, self.partition_index);
        let opened = table.opened(&self.caches)?;
        let partition = match self.mode {
            ReadMode::Normal | ReadMode::Ahead => {
                table.partition(&self.caches, opened, index, admission)?
            }
            ReadMode::Passing => {
                let slot = opened.slot(index).expect("there is such a partition");
                match self.caches.partitions.load(slot, Admission::OnceRead) {
                    Some(partition) => partition,
                    None => {
                        let pointer = table.partition_pointer(opened, index)?;
                        let kind = FrameKind::Partition;
                        let payload = self.caches.read_frame(table.file(), pointer, kind)?;
                        Arc::new(table.parse_partition(payload, opened, index, pointer)?)
                    }
                }
            }
        };
        self.partition = Some(Arc::clone(&partition));
        Ok(partition)
    }

    /// A cursor over the block that the cursor is at, of those that there are.
    fn open_block(&mut self, partition: &Partition, admission: Admission) -> Result<BlockCursor> {
        let (table, index) = (&self.table, self.block_index);
        match self.mode {
            ReadMode::Passing => {}
            ReadMode::Normal => {
                let block = table.block(&self.caches, partition, index, admission)?;
                return Ok(BlockCursor::new(block));
            }
            ReadMode::Ahead => return self.block_ahead(partition).map(BlockCursor::new),
        }
        // No slot is made for it that is not there.
        if let Some(slot) = partition.slot_if_used(index)
            && let Some(block) = self.caches.blocks.load(slot, Admission::OnceRead)
        {
            return Ok(BlockCursor::new(block));
        }
        let pointer = table.block_pointer(partition, index)?;
        let kind = (FrameKind::Entries, table.dictionary(&self.caches)?);
        let end = (table.record.size, Reuse::InPassing);
        let payload = self.ahead.frame(table.file(), pointer, kind, end, &self.caches)?;
        Ok(BlockCursor::new(Arc::new(table.parse_block(payload, pointer)?)))
    }

    /// The block that the cursor is at; if it is not in memory, read with those behind it.
    fn block_ahead(&mut self, partition: &Partition) -> Result<Arc<Block>> {
        let (table, index, caches) = (&self.table, self.block_index, &self.caches);
        let slot = partition.slot(index).expect("the search stays within the partition");
        prefetch_behind(caches, partition, index);
        if let Some(block) = caches.blocks.load(slot, Admission::OnceRead) {
            return Ok(block);
        }
        let pointer = table.block_pointer(partition, index)?;
        let mut end = pointer.offset + u64::from(pointer.len);
        if !self.ahead.has(pointer) {
            let most = pointer.offset + self.ahead.grow() as u64;
            end = partition.end_of_unread(index, most).max(end);
        }
        let reuse = match caches.blocks.has_room(pointer.len as usize) {
            true => Reuse::Kept,
            false => Reuse::InPassing,
        };
        let kind = (FrameKind::Entries, table.dictionary(caches)?);
        let payload = self.ahead.frame(table.file(), pointer, kind, (end, reuse), caches)?;
        let block = Arc::new(table.parse_block(payload, pointer)?);
        if reuse == Reuse::Kept {
            let (block, weight) = (Arc::clone(&block), block.memory_size());
            caches.blocks.fill(slot, block, weight, Admission::OnceRead);
        }
        Ok(block)
    }

    fn seek_anew(&mut self, key: &[u8]) -> Result<()> {
        self.place = Place::Lost;
        if let Some(mut block) = self.seek_block(key)? {
            block.seek(key)?;
            if block.is_valid() {
                self.place = Place::On(block);
                return Ok(());
            }
            self.block_index += 1;
        }
        self.enter_forward()
    }

    /// As [`Cursor::leap`], of what is not in the block at hand.
    fn leap_off_block(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        let Some(partition) = self.partition.clone() else { return self.seek_anew(key) };
        // Most often it is in the next one.
        let next = self.block_index + 1;
        let is_next = partition.index().separator(next).is_some_and(|last| key <= last);
        let index = if is_next { next } else { partition.find(key) };
        if index >= partition.block_count() {
            return self.seek_anew(key);
        }
        (self.place, self.block_index) = (Place::Lost, index);
        let mut block = self.open_block(&partition, Admission::OnceRead)?;
        if is_next {
            block.seek_first()?;
            block.leap(key, newest)?;
        } else {
            block.seek(key)?;
        }
        if !block.is_valid() {
            return self.leave_forward();
        }
        self.place = Place::On(block);
        Ok(())
    }

    /// From the block at hand onward, goes to the first entry there is.
    fn enter_forward(&mut self) -> Result<()> {
        self.place = Place::UnreadForward;
        while self.partition_index < self.partition_count()? {
            let partition = self.load_partition(Admission::OnceRead)?;
            if self.block_index >= partition.block_count() {
                self.go_to_partition(self.partition_index + 1, 0);
                continue;
            }
            let mut block = self.open_block(&partition, Admission::OnceRead)?;
            block.seek_first()?;
            if block.is_valid() {
                self.place = Place::On(block);
                return Ok(());
            }
            self.block_index += 1;
        }
        self.place = Place::End;
        Ok(())
    }

    /// From the block at hand backward, goes to the last entry there is.
    fn enter_backward(&mut self) -> Result<()> {
        self.place = Place::UnreadBackward;
        let Some(last) = self.partition_count()?.checked_sub(1) else {
            self.place = Place::Start;
            return Ok(());
        };
        if self.partition_index > last {
            self.go_to_partition(last, LAST);
        }
        loop {
            let partition = self.load_partition(Admission::OnceRead)?;
            self.block_index = self.block_index.min(partition.block_count().saturating_sub(1));
            if self.block_index < partition.block_count() {
                let mut block = self.open_block(&partition, Admission::OnceRead)?;
                block.seek_last()?;
                if block.is_valid() {
                    self.place = Place::On(block);
                    return Ok(());
                }
            }
            if !self.step_back() {
                self.place = Place::Start;
                return Ok(());
            }
        }
    }

    /// To the block before the one at hand; whether there is one.
    fn step_back(&mut self) -> bool {
        if self.block_index > 0 {
            self.block_index -= 1;
            return true;
        }
        match self.partition_index.checked_sub(1) {
            Some(before) => {
                self.go_to_partition(before, LAST);
                true
            }
            None => false,
        }
    }

    #[cold]
    fn leave_forward(&mut self) -> Result<()> {
        self.block_index += 1;
        self.enter_forward()
    }

    #[cold]
    fn leave_backward(&mut self) -> Result<()> {
        if !self.step_back() {
            self.place = Place::Start;
            return Ok(());
        }
        self.enter_backward()
    }

    /// Goes to the block that has `key` if any has; it is not behind the last. `None` if all
    /// blocks are in front of it.
    fn seek_block(&mut self, key: &[u8]) -> Result<Option<BlockCursor>> {
        let opened = self.table.opened(&self.caches)?;
        let (index, count) = (opened.find(key), opened.partition_count());
        self.go_to_partition(index, 0);
        if index >= count {
            return Ok(None);
        }
        let partition = self.load_partition(Admission::Normal)?;
        self.block_index = partition.find(key);
        if self.block_index >= partition.block_count() {
            return Ok(None);
        }
        self.open_block(&partition, Admission::Normal).map(Some)
    }
}

/// Has what leads to the cached blocks behind this one brought in: of each a step further, so that
/// none is waited for.
fn prefetch_behind(caches: &TableCaches, partition: &Partition, index: usize) {
    if let Some(slot) = partition.slot_if_used(index + 3) {
        prefetch(Arc::as_ptr(slot).cast());
    }
    let behind = |distance: usize| caches.blocks.glance(partition.slot_if_used(index + distance)?);
    if let Some(block) = behind(2) {
        let address = Arc::as_ptr(&block).cast::<u8>();
        for line in (0..size_of::<Block>()).step_by(64) {
            prefetch(address.wrapping_add(line));
        }
    }
    if let Some(block) = behind(1) {
        block.prefetch();
    }
}

impl Cursor for TableCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.go_to_partition(0, 0);
        self.enter_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.go_to_partition(LAST, LAST);
        self.enter_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.ahead.turn();
        self.seek_anew(key)
    }

    fn leap(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        let Place::On(block) = &mut self.place else { return self.seek(key) };
        block.leap(key, newest)?;
        if block.is_valid() { Ok(()) } else { self.leap_off_block(key, newest) }
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.place = Place::Lost;
        match self.seek_block(key)? {
            Some(mut block) => {
                block.seek_for_prev(key)?;
                if block.is_valid() {
                    self.place = Place::On(block);
                    return Ok(());
                }
                self.leave_backward()
            }
            None => self.seek_last(),
        }
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
            Place::UnreadForward => self.enter_forward(),
            Place::UnreadBackward => self.enter_backward(),
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
            Place::UnreadForward => self.enter_forward(),
            Place::UnreadBackward => self.enter_backward(),
            Place::Lost => Err(lost_its_place()),
        }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.block()?.entry()
    }

    #[inline]
    fn is_valid(&self) -> bool {
        matches!(self.place, Place::On(_))
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.block()?.key()
    }

    #[inline]
    fn value(&self) -> Option<&[u8]> {
        self.block()?.value()
    }

    #[inline]
    fn is_tombstone(&self) -> bool {
        matches!(&self.place, Place::On(block) if block.is_tombstone())
    }
}
