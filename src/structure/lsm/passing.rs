//! Walking a version an entry at a time, for walks that go past the most of them: nothing is copied
//! of what is not looked at.

use std::fmt;
use std::sync::Arc;

use super::merge::Merged;
use super::version::LsmVersion;
use crate::base::{Cursor, EntryRef, KeyRange, Result, SeqNo, lost_its_place};

/// Where a [`PassingCursor`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In front of the first entry.
    Start,
    /// On the one that the runs show.
    On,
    /// Behind the last entry.
    End,
    /// A move failed; only a seek helps.
    Lost,
}

/// Which way it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// A cursor over the entries of one version that merges nothing, deletions left out. Turning round
/// is a seek.
pub(super) struct PassingCursor {
    version: Arc<LsmVersion>,
    /// The first key that is asked for, and the first one behind; `None` if there is no end.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Entries that are newer may be left out.
    newest: SeqNo,
    /// Made by the first seek.
    merged: Option<Merged>,
    place: Place,
    /// Which way it has moved last.
    way: Way,
}

impl fmt::Debug for PassingCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassingCursor").field("place", &self.place).finish_non_exhaustive()
    }
}

impl PassingCursor {
    /// A cursor that is not asked for entries outside of `range`, or newer than `newest`.
    pub(super) fn new(version: Arc<LsmVersion>, range: &KeyRange, newest: SeqNo) -> PassingCursor {
        let (start, end) = range.half_open();
        let (merged, place, way) = (None, Place::Start, Way::Forward);
        PassingCursor { version, start, end, newest, merged, place, way }
    }

    /// Moves the runs, and from there on to an entry that is shown.
    fn go(&mut self, way: Way, step: impl FnOnce(&mut Merged) -> Result<()>) -> Result<()> {
        self.place = Place::Lost;
        let merged = match &mut self.merged {
            Some(merged) => merged,
            none => {
                let end = self.end.as_deref();
                let merged = self.version.merged_up_to(&self.start, end, self.newest)?;
                none.insert(merged)
            }
        };
        step(merged)?;
        while let Some(is_tombstone) = merged.shows_tombstone() {
            if !is_tombstone && !merged.is_hidden() {
                (self.place, self.way) = (Place::On, way);
                return Ok(());
            }
            match way {
                Way::Forward => merged.next()?,
                Way::Backward => merged.prev()?,
            }
        }
        self.place = match way {
            Way::Forward => Place::End,
            Way::Backward => Place::Start,
        };
        Ok(())
    }

    /// The key that it is on, for a seek from there.
    fn own_key(&self) -> Vec<u8> {
        self.key().unwrap_or_default().to_vec()
    }
}

impl Cursor for PassingCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.go(Way::Forward, Merged::seek_first)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.go(Way::Backward, Merged::seek_last)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.go(Way::Forward, |merged| merged.seek(key))
    }

    fn leap(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        match (self.place, self.way) {
            (Place::On, Way::Forward) => self.go(Way::Forward, |merged| merged.leap(key, newest)),
            (Place::End, _) => Ok(()),
            _ => self.seek(key),
        }
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.go(Way::Backward, |merged| merged.seek_for_prev(key))
    }

    fn next(&mut self) -> Result<()> {
        match (self.place, self.way) {
            (Place::On, Way::Forward) => self.go(Way::Forward, Merged::next),
            (Place::On, Way::Backward) => {
                let key = self.own_key();
                self.go(Way::Forward, |merged| merged.seek_behind(&key))
            }
            (Place::Start, _) => self.seek_first(),
            (Place::End, _) => Ok(()),
            (Place::Lost, _) => Err(lost_its_place()),
        }
    }

    fn prev(&mut self) -> Result<()> {
        match (self.place, self.way) {
            (Place::On, Way::Backward) => self.go(Way::Backward, Merged::prev),
            (Place::On, Way::Forward) => {
                let key = self.own_key();
                self.go(Way::Backward, |merged| merged.seek_before(&key))
            }
            (Place::Start, _) => Ok(()),
            (Place::End, _) => self.seek_last(),
            (Place::Lost, _) => Err(lost_its_place()),
        }
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        match self.place {
            Place::On => self.merged.as_ref()?.entry(),
            _ => None,
        }
    }

    fn key(&self) -> Option<&[u8]> {
        match self.place {
            Place::On => self.merged.as_ref()?.key(),
            _ => None,
        }
    }
}
