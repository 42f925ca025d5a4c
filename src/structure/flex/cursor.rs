//! Walking a version in key order, an interval at a time.

use std::fmt;
use std::sync::Arc;

use super::interval::Interval;
use super::load::Loader;
use super::tree::{FlexTree, OwnedCursor};
use crate::base::{Cursor, EntryRef, Result, lost_its_place};
use crate::block::BlockCursor;
use crate::cache::Admission;
use crate::structure::StructureCursor;

/// Where a [`FlexCursor`] is.
#[derive(Debug)]
enum Place {
    /// In front of the first entry.
    Start,
    /// Within an interval's block; its cursor is on an entry.
    On(BlockCursor),
    /// Within an interval whose block was taken.
    Taken,
    /// Behind the last entry.
    End,
    /// Moving forward, at an interval that could not be read; the next move tries again.
    UnreadForward,
    /// The same, moving backward.
    UnreadBackward,
    /// A seek failed; only another one helps.
    Lost,
}

/// A cursor over the entries of one version.
pub(super) struct FlexCursor {
    loader: Arc<Loader>,
    intervals: OwnedCursor<Arc<Interval>>,
    place: Place,
}

impl fmt::Debug for FlexCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = self.intervals.index();
        f.debug_struct("FlexCursor").field("interval", &interval).finish_non_exhaustive()
    }
}

impl FlexCursor {
    pub(super) fn new(loader: Arc<Loader>, tree: FlexTree<Arc<Interval>>) -> FlexCursor {
        FlexCursor { loader, intervals: OwnedCursor::new(tree), place: Place::Start }
    }

    /// A cursor over the block of the interval that the tree's cursor is at. What a seek comes to
    /// is as likely to be wanted again as what a lookup finds; what a walk passes is not.
    fn open_interval(&self, admission: Admission) -> Result<Option<BlockCursor>> {
        let Some(interval) = self.intervals.item() else { return Ok(None) };
        if interval.run_count() == 0 {
            return Ok(None);
        }
        Ok(Some(BlockCursor::new(self.loader.block(interval, admission)?)))
    }

    /// From the interval at hand onward, goes to the first entry there is.
    fn enter_forward(&mut self) -> Result<()> {
        self.place = Place::UnreadForward;
        while self.intervals.item().is_some() {
            if let Some(mut block) = self.open_interval(Admission::OnceRead)? {
                block.seek_first()?;
                if block.is_valid() {
                    self.place = Place::On(block);
                    return Ok(());
                }
            }
            self.intervals.next();
        }
        self.place = Place::End;
        Ok(())
    }

    /// From the interval at hand backward, goes to the last entry there is.
    fn enter_backward(&mut self) -> Result<()> {
        self.place = Place::UnreadBackward;
        loop {
            if let Some(mut block) = self.open_interval(Admission::OnceRead)? {
                block.seek_last()?;
                if block.is_valid() {
                    self.place = Place::On(block);
                    return Ok(());
                }
            }
            if self.intervals.prev().is_none() {
                self.place = Place::Start;
                return Ok(());
            }
        }
    }

    #[cold]
    fn leave_forward(&mut self) -> Result<()> {
        self.intervals.next();
        self.enter_forward()
    }

    #[cold]
    fn leave_backward(&mut self) -> Result<()> {
        if self.intervals.prev().is_none() {
            self.place = Place::Start;
            return Ok(());
        }
        self.enter_backward()
    }
}

impl Cursor for FlexCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.intervals.seek_index(0);
        self.enter_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        match self.intervals.tree().len().checked_sub(1) {
            Some(last) => self.intervals.seek_index(last),
            None => None,
        };
        self.enter_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place = Place::Lost;
        self.intervals.seek_key(key);
        if let Some(mut block) = self.open_interval(Admission::Normal)? {
            block.seek(key)?;
            if block.is_valid() {
                self.place = Place::On(block);
                return Ok(());
            }
        }
        self.leave_forward()
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.place = Place::Lost;
        self.intervals.seek_key(key);
        if let Some(mut block) = self.open_interval(Admission::Normal)? {
            block.seek_for_prev(key)?;
            if block.is_valid() {
                self.place = Place::On(block);
                return Ok(());
            }
        }
        self.leave_backward()
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

impl StructureCursor for FlexCursor {
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
