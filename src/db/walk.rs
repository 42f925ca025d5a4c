//! One walk through a keyspace as of one moment: what memtables and structure hold, merged, without
//! tombstones, within a range.
//!
//! The memtables are one side, the structure's blocks the other. Within a block a step costs no
//! call beyond it: while a block's entry is shown, a reach says how far the walk may go there
//! before it has to look at the memtables, the end of the range, or the next block.
//!
//! Invariants
//! - K1  A memtable's entry hides the block's entry of the same key; a tombstone hides both.
//! - K2  While moving forward, the side that is not shown stands at its first entry whose key is
//!   not below the one shown; while moving backward, at its last one not above. Both sides have
//!   the same key only as [`Shown::TableOverBlock`].
//! - K3  Every value of the block that follows the one shown and is within `ahead` is in the range,
//!   and before what the tables stand at; `behind` is that for moving backward. The reach against
//!   the direction of the walk, and both when no entry of the block is shown, are nothing.
//! - K4  After an error nothing is shown, and only a seek helps: nothing is skipped.
//! - K5  The block's side never stands in a range that was deleted: all that the structure has
//!   there is older than the deletion, or in a memtable as well. An entry of the memtables is
//!   hidden if its stamp is below that of a range that it lies in.
//! - K6  An entry that has expired by the walk's now is hidden as a tombstone is; on either side it
//!   is no plain value, so that a step within a reach (K3) comes to none.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::{
    Cursor as _, DeletedRange, EntryKind, EntryRef, KeyRange, RangeTombstones, Result, SeqNo,
    is_expired, lost_its_place,
};
use crate::block::{Block, BlockCursor, Reach};
use crate::memtable::MemtableCursor;
use crate::merge::MergeCursor;
use crate::structure::StructureCursor;

/// What a walk stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The block's entry, which holds its value; the tables do not have its key.
    Block,
    /// The block's entry, which leads to its value by a pointer or is composite; the tables do not
    /// have its key.
    BlockPointer,
    /// The tables' entry; the block does not have its key.
    Table,
    /// The tables' entry; it hides that of the block (K1).
    TableOverBlock,
    /// Nothing: in front of the first entry of the range.
    Start,
    /// Nothing: behind the last entry of the range.
    End,
    /// Nothing: a move failed (K4).
    Lost,
}

impl Shown {
    #[inline]
    pub(super) fn is_entry(self) -> bool {
        !matches!(self, Shown::Start | Shown::End | Shown::Lost)
    }

    /// The same, whatever the block's entry holds.
    #[inline]
    fn side(self) -> Shown {
        if self == Shown::BlockPointer { Shown::Block } else { self }
    }
}

/// Which way the walk moved last: what K2 and K3 hold for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Walks the live entries of a range, both ways. A new walk is in front of the first.
pub(super) struct Walk {
    range: KeyRange,
    sides: Sides,
    shown: Shown,
    direction: Direction,
    /// How far to go on, and how far to go back, without looking (K3).
    ahead: Reach,
    behind: Reach,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Walk");
        shown.field("range", &self.range).field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Walk {
    /// A walk through `tables`, the newest first, and `structure`, which is older, but for what is
    /// older than its deletion with a range, or has expired by `now` (0: nothing expires).
    pub(super) fn new(
        range: KeyRange,
        tables: Vec<MemtableCursor>,
        structure: Option<Box<dyn StructureCursor>>,
        deleted: Option<Arc<RangeTombstones>>,
        now: u64,
    ) -> Walk {
        Walk {
            range,
            sides: Sides { tables: MergeCursor::new(tables), structure, block: None, deleted, now },
            shown: Shown::Start,
            direction: Direction::Forward,
            ahead: Reach::NOTHING,
            behind: Reach::NOTHING,
        }
    }

    pub(super) fn range(&self) -> &KeyRange {
        &self.range
    }

    #[inline]
    pub(super) fn shown(&self) -> Shown {
        self.shown
    }

    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        match self.shown {
            Shown::Block | Shown::BlockPointer => Some(self.sides.block.as_ref()?.key_here()),
            _ => self.table_key(),
        }
    }

    #[inline(never)]
    fn table_key(&self) -> Option<&[u8]> {
        self.sides.tables.key().filter(|_| self.shown.is_entry())
    }

    /// The value, if it lies in the block.
    #[inline]
    pub(super) fn block_value(&self) -> Option<&[u8]> {
        let block = self.sides.block.as_ref().filter(|_| self.shown == Shown::Block)?;
        Some(block.value_here())
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        match self.shown {
            Shown::Block | Shown::BlockPointer => self.sides.block.as_ref()?.entry(),
            Shown::Table | Shown::TableOverBlock => self.sides.tables.entry(),
            Shown::Start | Shown::End | Shown::Lost => None,
        }
    }

    /// The block, while its entry is shown.
    #[inline]
    pub(super) fn shown_block(&self) -> Option<&Block> {
        self.sides
            .block
            .as_ref()
            .filter(|_| self.shown.side() == Shown::Block)
            .map(BlockCursor::block)
    }

    /// To the first entry of the range.
    pub(super) fn seek_first(&mut self) -> Result<()> {
        self.lose_place();
        let Walk { range, sides, .. } = self;
        match &range.start {
            Bound::Unbounded => sides.seek_first()?,
            Bound::Included(key) | Bound::Excluded(key) => sides.seek(key)?,
        }
        self.direction = Direction::Forward;
        self.settle_forward()?;
        match &self.range.start {
            Bound::Excluded(start) if self.key() == Some(start) => self.next(),
            _ => Ok(()),
        }
    }

    /// To the last entry of the range.
    pub(super) fn seek_last(&mut self) -> Result<()> {
        self.lose_place();
        let Walk { range, sides, .. } = self;
        match &range.end {
            Bound::Unbounded => sides.seek_last()?,
            Bound::Included(key) | Bound::Excluded(key) => sides.seek_for_prev(key)?,
        }
        self.direction = Direction::Backward;
        self.settle_backward()?;
        match &self.range.end {
            Bound::Excluded(end) if self.key() == Some(end) => self.prev(),
            _ => Ok(()),
        }
    }

    /// To the first entry of the range at or above `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !self.range.starts_by(key) {
            return self.seek_first();
        }
        self.lose_place();
        self.sides.seek(key)?;
        self.direction = Direction::Forward;
        self.settle_forward()
    }

    /// To the last entry of the range at or below `key`.
    pub(super) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if !self.range.ends_after(key) {
            return self.seek_last();
        }
        self.lose_place();
        self.sides.seek_for_prev(key)?;
        self.direction = Direction::Backward;
        self.settle_backward()
    }

    /// As [`Walk::next`], if it is but a step within the block; else `false`, and nothing is done.
    #[inline]
    pub(super) fn slide_on(&mut self) -> bool {
        self.sides.block.as_mut().is_some_and(|block| block.slide_on(self.ahead)) // K3
    }

    /// As [`Walk::prev`], if it is but a step within the block; else `false`, and nothing is done.
    #[inline]
    pub(super) fn slide_back(&mut self) -> bool {
        self.sides.block.as_mut().is_some_and(|block| block.slide_back(self.behind)) // K3
    }

    /// One entry on; behind the last it stays.
    #[inline(never)]
    pub(super) fn next(&mut self) -> Result<()> {
        let (shown, ahead) = (self.shown.side(), self.ahead);
        match (shown, self.direction) {
            (Shown::Start, _) => return self.seek_first(),
            (Shown::End, _) => return Ok(()),
            (Shown::Lost, _) => return Err(lost_its_place()),
            (Shown::Block, Direction::Forward) => {
                if self.sides.block.as_mut().is_some_and(|block| block.next_within(ahead)) {
                    self.shown = Shown::Block; // K3: a value
                    return Ok(());
                }
                self.lose_place();
                if self.sides.is_off_block() {
                    self.sides.move_structure(|structure| structure.next())?;
                } else if self.sides.deleted.is_none() && self.show_first(ahead)? {
                    return Ok(());
                }
                self.sides.leave_deleted_forward()?;
                return self.settle_forward();
            }
            _ => self.lose_place(),
        }
        // K2 for the other way: the side that is not shown is at most one entry off.
        match (shown, self.direction) {
            (Shown::Block, Direction::Backward) => self.sides.tables.next()?,
            (Shown::Table, Direction::Backward) => self.sides.block_forward()?,
            _ => {}
        }
        self.direction = Direction::Forward;
        self.sides.leave_forward(shown)?;
        self.settle_forward()
    }

    /// One entry back; in front of the first it stays.
    #[inline(never)]
    pub(super) fn prev(&mut self) -> Result<()> {
        let (shown, behind) = (self.shown.side(), self.behind);
        match (shown, self.direction) {
            (Shown::Start, _) => return Ok(()),
            (Shown::End, _) => return self.seek_last(),
            (Shown::Lost, _) => return Err(lost_its_place()),
            (Shown::Block, Direction::Backward) => {
                if self.sides.block.as_mut().is_some_and(|block| block.prev_within(behind)) {
                    self.shown = Shown::Block; // K3: a value
                    return Ok(());
                }
                self.lose_place();
                if self.sides.is_off_block() {
                    self.sides.move_structure(|structure| structure.prev())?;
                } else if self.sides.deleted.is_none() && self.show_last(behind)? {
                    return Ok(());
                }
                self.sides.leave_deleted_backward()?;
                return self.settle_backward();
            }
            _ => self.lose_place(),
        }
        match (shown, self.direction) {
            (Shown::Block, Direction::Forward) => self.sides.tables.prev()?,
            (Shown::Table, Direction::Forward) => self.sides.block_backward()?,
            _ => {}
        }
        self.direction = Direction::Backward;
        self.sides.leave_backward(shown)?;
        self.settle_backward()
    }

    /// Until the move that begins now has succeeded (K4).
    #[inline]
    fn lose_place(&mut self) {
        self.shown = Shown::Lost;
        (self.ahead, self.behind) = (Reach::NOTHING, Reach::NOTHING);
    }

    /// Shows the first live entry at or behind where both sides stand, if the range has it.
    fn settle_forward(&mut self) -> Result<()> {
        loop {
            let end = match &self.range.end {
                Bound::Unbounded => None,
                Bound::Included(end) | Bound::Excluded(end) => Some(end.as_slice()),
            };
            let reach = self.sides.reach_forward(end);
            let block = self.sides.block.as_ref();
            if block.is_some_and(|block| block.is_within_ahead(reach)) {
                // What K3 says of the entries that follow holds of this one.
                (self.shown, self.ahead) = (Shown::Block, reach);
                return Ok(());
            }
            if self.show_first(reach)? {
                return Ok(());
            }
        }
    }

    /// Compares what both sides stand at, and shows the first or, off the range, nothing. `false`
    /// if that is a tombstone: it moves off it and shows nothing yet. `reach` is the block's.
    fn show_first(&mut self, reach: Reach) -> Result<bool> {
        let shown = match self.sides.first_shown() {
            Some((shown, key)) if self.range.ends_after(key) => shown,
            _ => Shown::End,
        };
        if self.sides.is_hidden(shown) {
            self.sides.leave_forward(shown)?;
            return Ok(false);
        }
        self.shown = shown;
        if shown == Shown::Block {
            self.ahead = reach;
            self.tell_pointer();
        }
        Ok(true)
    }

    /// Shows the last live entry at or before where both sides stand, if the range has it.
    fn settle_backward(&mut self) -> Result<()> {
        loop {
            let start = match &self.range.start {
                Bound::Unbounded => None,
                Bound::Included(start) | Bound::Excluded(start) => Some(start.as_slice()),
            };
            let reach = self.sides.reach_backward(start);
            let block = self.sides.block.as_ref();
            if block.is_some_and(|block| block.is_within_behind(reach)) {
                (self.shown, self.behind) = (Shown::Block, reach);
                return Ok(());
            }
            if self.show_last(reach)? {
                return Ok(());
            }
        }
    }

    /// As [`Walk::show_first`], the last.
    fn show_last(&mut self, reach: Reach) -> Result<bool> {
        let shown = match self.sides.last_shown() {
            Some((shown, key)) if self.range.starts_by(key) => shown,
            _ => Shown::Start,
        };
        if self.sides.is_hidden(shown) {
            self.sides.leave_backward(shown)?;
            return Ok(false);
        }
        self.shown = shown;
        if shown == Shown::Block {
            self.behind = reach;
            self.tell_pointer();
        }
        Ok(true)
    }

    /// The block's entry is shown: it may be no plain value. K3 is of values, so that a step within
    /// the reach comes to none.
    fn tell_pointer(&mut self) {
        if self.sides.block.as_ref().is_some_and(BlockCursor::leads_to_value) {
            self.shown = Shown::BlockPointer;
        }
    }
}

/// What is merged.
struct Sides {
    /// All memtables as one.
    tables: MergeCursor<MemtableCursor>,
    structure: Option<Box<dyn StructureCursor>>,
    /// The block that `structure` is in, taken from it; `None` off either end.
    block: Option<BlockCursor>,
    /// Ranges that are deleted and still in the structure, or in older memtables; most often none.
    deleted: Option<Arc<RangeTombstones>>,
    /// What has expired by then is hidden (K6); 0 when nothing expires.
    now: u64,
}

impl Sides {
    /// Moves the structure's cursor and takes the block that it comes to.
    fn move_structure(
        &mut self,
        go: impl FnOnce(&mut dyn StructureCursor) -> Result<()>,
    ) -> Result<()> {
        self.block = None;
        if let Some(structure) = &mut self.structure {
            go(structure.as_mut())?;
            self.block = structure.take_block();
        }
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.tables.seek_first()?;
        self.move_structure(|structure| structure.seek_first())?;
        self.leave_deleted_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.tables.seek_last()?;
        self.move_structure(|structure| structure.seek_last())?;
        self.leave_deleted_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.tables.seek(key)?;
        self.move_structure(|structure| structure.seek(key))?;
        self.leave_deleted_forward()
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.tables.seek_for_prev(key)?;
        self.move_structure(|structure| structure.seek_for_prev(key))?;
        self.leave_deleted_backward()
    }

    /// Moves the block's side on until it is in no deleted range (K5).
    #[inline]
    fn leave_deleted_forward(&mut self) -> Result<()> {
        if self.deleted.is_none() { Ok(()) } else { self.skip_deleted_forward() }
    }

    /// Moves the block's side back until it is in no deleted range (K5).
    #[inline]
    fn leave_deleted_backward(&mut self) -> Result<()> {
        if self.deleted.is_none() { Ok(()) } else { self.skip_deleted_backward() }
    }

    #[cold]
    fn skip_deleted_forward(&mut self) -> Result<()> {
        while let Some(range) = self.deleted_at_block() {
            match range.end.map(<[u8]>::to_vec) {
                Some(end) => self.move_structure(|structure| structure.seek(&end))?,
                None => {
                    // Behind the last entry, from where it can be walked back.
                    self.move_structure(|structure| structure.seek_last())?;
                    return self.move_structure(|structure| structure.next());
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn skip_deleted_backward(&mut self) -> Result<()> {
        while let Some(range) = self.deleted_at_block() {
            let start = range.start.to_vec();
            self.move_structure(|structure| structure.seek_for_prev(&start))?;
            if self.block.as_ref().is_some_and(|block| block.key() == Some(&start)) {
                if let Some(block) = &mut self.block {
                    block.prev()?;
                }
                if self.is_off_block() {
                    self.move_structure(|structure| structure.prev())?;
                }
            }
        }
        Ok(())
    }

    fn deleted_at_block(&self) -> Option<DeletedRange<'_>> {
        self.deleted.as_ref()?.covering(self.block_key()?, SeqNo::MAX)
    }

    /// Moves the block's side one entry on.
    fn block_forward(&mut self) -> Result<()> {
        if let Some(block) = &mut self.block {
            block.next()?;
        }
        if self.is_off_block() {
            self.move_structure(|structure| structure.next())?;
        }
        self.leave_deleted_forward()
    }

    /// Moves the block's side one entry back.
    fn block_backward(&mut self) -> Result<()> {
        if let Some(block) = &mut self.block {
            block.prev()?;
        }
        if self.is_off_block() {
            self.move_structure(|structure| structure.prev())?;
        }
        self.leave_deleted_backward()
    }

    /// Whether the block's cursor has come off its ends: the structure has to be moved.
    #[inline]
    fn is_off_block(&self) -> bool {
        !self.block.as_ref().is_some_and(BlockCursor::is_valid)
    }

    /// Moves off the key that is shown.
    fn leave_forward(&mut self, shown: Shown) -> Result<()> {
        if shown != Shown::Block {
            self.tables.next()?;
        }
        if shown != Shown::Table {
            self.block_forward()?;
        }
        Ok(())
    }

    /// Moves off the key that is shown.
    fn leave_backward(&mut self, shown: Shown) -> Result<()> {
        if shown != Shown::Block {
            self.tables.prev()?;
        }
        if shown != Shown::Table {
            self.block_backward()?;
        }
        Ok(())
    }

    /// Which side has the smaller key, and that.
    #[inline]
    fn first_shown(&self) -> Option<(Shown, &[u8])> {
        self.pick(<[u8]>::cmp)
    }

    /// Which side has the larger key, and that.
    #[inline]
    fn last_shown(&self) -> Option<(Shown, &[u8])> {
        self.pick(|block, table| table.cmp(block))
    }

    #[inline]
    fn pick(&self, order: impl FnOnce(&[u8], &[u8]) -> Ordering) -> Option<(Shown, &[u8])> {
        let block = self.block.as_ref().and_then(BlockCursor::key);
        match (block, self.tables.key()) {
            (None, None) => None,
            (Some(block), None) => Some((Shown::Block, block)),
            (None, Some(table)) => Some((Shown::Table, table)),
            (Some(block), Some(table)) => Some(match order(block, table) {
                Ordering::Less => (Shown::Block, block),
                Ordering::Equal => (Shown::TableOverBlock, table), // K1
                Ordering::Greater => (Shown::Table, table),
            }),
        }
    }

    #[inline]
    fn is_hidden(&self, shown: Shown) -> bool {
        self.is_deleted(shown) || (self.now > 0 && self.has_expired(shown))
    }

    /// K6
    #[cold]
    fn has_expired(&self, shown: Shown) -> bool {
        match shown {
            Shown::Block | Shown::BlockPointer => {
                let expiring = self.block.as_ref().and_then(BlockCursor::expiring);
                expiring.is_some_and(|expiring| expiring.until <= self.now)
            }
            Shown::Table | Shown::TableOverBlock => {
                let entry = self.tables.entry();
                entry.is_some_and(|entry| is_expired(entry.kind, entry.value, self.now))
            }
            Shown::Start | Shown::End | Shown::Lost => false,
        }
    }

    #[inline]
    fn is_deleted(&self, shown: Shown) -> bool {
        match shown {
            Shown::Block | Shown::BlockPointer => {
                self.block.as_ref().is_some_and(BlockCursor::is_tombstone)
            }
            Shown::Table | Shown::TableOverBlock => match &self.deleted {
                None => self.tables.is_tombstone(),
                Some(deleted) => self.tables.entry().is_some_and(|entry| {
                    let deletion = deleted.covering(entry.key, SeqNo::MAX);
                    entry.kind == EntryKind::Tombstone
                        || deletion.is_some_and(|range| range.seqno > entry.seqno) // K5
                }),
            },
            Shown::Start | Shown::End | Shown::Lost => false,
        }
    }

    /// How far the block may be walked forward (K3) to `end`.
    #[inline]
    fn reach_forward(&self, end: Option<&[u8]>) -> Reach {
        let reach = self.reach(end, BlockCursor::reach_below);
        if self.deleted.is_none() { reach } else { reach.min(self.reach_to_next_deleted()) }
    }

    /// How far the block may be walked back (K3) to `start`.
    #[inline]
    fn reach_backward(&self, start: Option<&[u8]>) -> Reach {
        let reach = self.reach(start, BlockCursor::reach_above);
        if self.deleted.is_none() { reach } else { reach.min(self.reach_to_deleted_before()) }
    }

    #[cold]
    fn reach_to_next_deleted(&self) -> Reach {
        let next = self.block_key().zip(self.deleted.as_ref());
        let next = next.and_then(|(key, deleted)| deleted.first_from(key));
        let limit = self.block.as_ref().zip(next);
        limit.map_or(Reach::EVERYTHING, |(block, range)| block.reach_below(range.start))
    }

    #[cold]
    fn reach_to_deleted_before(&self) -> Reach {
        let before = self.block_key().zip(self.deleted.as_ref());
        let before = before.and_then(|(key, deleted)| deleted.last_before(key)?.end);
        let limit = self.block.as_ref().zip(before);
        limit.map_or(Reach::EVERYTHING, |(block, end)| block.reach_above(end))
    }

    fn block_key(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(BlockCursor::key)
    }

    /// How far the block may be walked (K3), given how `limit` cuts it.
    #[inline]
    fn reach(&self, end: Option<&[u8]>, limit: impl Fn(&BlockCursor, &[u8]) -> Reach) -> Reach {
        let Some(block) = &self.block else { return Reach::NOTHING };
        let to_end = end.map_or(Reach::EVERYTHING, |end| limit(block, end));
        self.tables.key().map_or(to_end, |key| limit(block, key).min(to_end))
    }
}
