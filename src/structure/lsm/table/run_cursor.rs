//! Walking a run: tables of disjoint spans, ascending, as one sorted sequence. A table is opened
//! when the walk comes to it.

use std::sync::Arc;

use super::caches::TableCaches;
use super::cursor::{ReadMode, TableCursor};
use super::handle::Table;
use crate::base::{Cursor, EntryRef, Result, SeqNo};
use crate::block::BlockCursor;

/// Where a [`RunCursor`] is.
#[derive(Debug)]
enum Place {
    /// In front of the first entry.
    Start,
    /// In the table of this number: on an entry, or where it could not go on.
    In(usize, Box<TableCursor>),
    /// Behind the last entry.
    End,
}

/// A cursor over the entries of a run, tombstones among them.
#[derive(Debug)]
pub struct RunCursor {
    tables: Arc<[Arc<Table>]>,
    caches: Arc<TableCaches>,
    mode: ReadMode,
    place: Place,
}

impl RunCursor {
    /// A cursor in front of the first entry. Reads nothing yet.
    #[must_use]
    pub fn new(tables: Arc<[Arc<Table>]>, caches: Arc<TableCaches>, mode: ReadMode) -> RunCursor {
        RunCursor { tables, caches, mode, place: Place::Start }
    }

    /// The block that the cursor is in, on the same entry.
    #[inline]
    #[must_use]
    pub fn block(&self) -> Option<&BlockCursor> {
        self.table_cursor()?.block()
    }

    /// Takes the block that the cursor is in, on the same entry; `None` when it is on none. After
    /// that it stands between the entries before and behind that block: [`Cursor::next`] goes to
    /// the first one behind, [`Cursor::prev`] to the last one before it.
    pub fn take_block(&mut self) -> Option<BlockCursor> {
        match &mut self.place {
            Place::In(_, cursor) => cursor.take_block(),
            Place::Start | Place::End => None,
        }
    }

    /// No key of the block that the cursor is in, or that was taken last, is above this one; and
    /// all keys behind that block are.
    #[must_use]
    pub fn last_key_bound(&self) -> Option<&[u8]> {
        self.table_cursor()?.last_key_bound()
    }

    #[inline]
    fn table_cursor(&self) -> Option<&TableCursor> {
        match &self.place {
            Place::In(_, cursor) => Some(cursor),
            Place::Start | Place::End => None,
        }
    }

    /// A cursor over the table of this number: the one at hand, or a new one.
    fn enter(&mut self, index: usize) -> &mut TableCursor {
        if !matches!(&self.place, Place::In(at, _) if *at == index) {
            let (table, caches) = (Arc::clone(&self.tables[index]), Arc::clone(&self.caches));
            self.place = Place::In(index, Box::new(TableCursor::new(table, caches, self.mode)));
        }
        match &mut self.place {
            Place::In(_, cursor) => cursor,
            Place::Start | Place::End => unreachable!("it was entered"),
        }
    }

    /// From the start of the table of this number onward, goes to the first entry there is.
    #[cold]
    fn enter_forward(&mut self, from: usize) -> Result<()> {
        for index in from..self.tables.len() {
            let cursor = self.enter(index);
            cursor.seek_first()?;
            if cursor.is_valid() {
                return Ok(());
            }
        }
        self.place = Place::End;
        Ok(())
    }

    /// From the end of the table in front of this number backward, goes to the last entry there
    /// is.
    #[cold]
    fn enter_backward(&mut self, behind: usize) -> Result<()> {
        for index in (0..behind).rev() {
            let cursor = self.enter(index);
            cursor.seek_last()?;
            if cursor.is_valid() {
                return Ok(());
            }
        }
        self.place = Place::Start;
        Ok(())
    }
}

impl Cursor for RunCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.enter_forward(0)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.enter_backward(self.tables.len())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let index = self.tables.partition_point(|table| table.record.ends_by(key));
        if index == self.tables.len() {
            self.place = Place::End;
            return Ok(());
        }
        let cursor = self.enter(index);
        cursor.seek(key)?;
        if cursor.is_valid() { Ok(()) } else { self.enter_forward(index + 1) }
    }

    fn leap(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        match &mut self.place {
            Place::In(index, cursor) if !self.tables[*index].record.ends_by(key) => {
                cursor.leap(key, newest)?;
                if cursor.is_valid() {
                    return Ok(());
                }
                let behind = *index + 1;
                self.enter_forward(behind)
            }
            _ => self.seek(key),
        }
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let behind = self.tables.partition_point(|table| *table.record.first <= *key);
        let Some(index) = behind.checked_sub(1) else {
            self.place = Place::Start;
            return Ok(());
        };
        let cursor = self.enter(index);
        cursor.seek_for_prev(key)?;
        if cursor.is_valid() { Ok(()) } else { self.enter_backward(index) }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match &mut self.place {
            Place::In(index, cursor) => {
                cursor.next()?;
                if cursor.is_valid() {
                    return Ok(());
                }
                let behind = *index + 1;
                self.enter_forward(behind)
            }
            Place::Start => self.enter_forward(0),
            Place::End => Ok(()),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        match &mut self.place {
            Place::In(index, cursor) => {
                cursor.prev()?;
                if cursor.is_valid() {
                    return Ok(());
                }
                let before = *index;
                self.enter_backward(before)
            }
            Place::Start => Ok(()),
            Place::End => self.enter_backward(self.tables.len()),
        }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.block()?.entry()
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.block().is_some()
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
        self.block().is_some_and(Cursor::is_tombstone)
    }
}
