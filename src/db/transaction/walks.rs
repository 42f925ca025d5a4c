//! Walks of a transaction: a cursor and an iterator that note what they read.
//!
//! While a walk is under way, all of its range counts as read; when it is dropped, only what it
//! has gone over. A walk that is never dropped costs conflicts, not isolation.

use std::ops::Bound;

use super::moment_of;
use super::reads::Reads;
use super::writes::told_stamp;
use crate::base::{KeyRange, Result, SeqNo, Slice};
use crate::db::iter::{Cursor, Entry, Iter};

/// Whether what is shown has to be there still at the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiries {
    Noted,
    /// As if it were there: for who comes to the same when it has expired (R5).
    Passed,
}

/// Where a walk notes what it reads.
#[derive(Debug)]
struct Note<'t> {
    reads: &'t Reads,
    keyspace: u32,
    number: u64,
    expiries: Expiries,
}

impl<'t> Note<'t> {
    fn begin(reads: &'t Reads, keyspace: u32, range: KeyRange) -> Note<'t> {
        let number = reads.change(|set| set.begin_walk(keyspace, range));
        Note { reads, keyspace, number, expiries: Expiries::Noted }
    }

    /// What was shown is not there from then on.
    fn add_expiry(&self, until: u64) {
        if self.expiries == Expiries::Noted {
            self.reads.change(|set| set.note_expiry(until));
        }
    }

    fn add(&self, range: &KeyRange) {
        self.reads.change(|set| set.add_range(self.keyspace, range));
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        self.reads.change(|set| set.end_walk(self.number));
    }
}

/// Walks the entries of a key range, as a [`Cursor`] does, with the transaction's own writes. What
/// it goes over counts as read.
///
/// An entry that the transaction itself has written has the stamp [`SeqNo::MAX`]: it has none yet.
#[derive(Debug)]
pub struct TransactionCursor<'t> {
    cursor: Cursor,
    range: KeyRange,
    /// Between which bounds the walk went since it was last sought, but for what it went over
    /// since it last turned.
    low: Option<Bound<Vec<u8>>>,
    high: Option<Bound<Vec<u8>>>,
    way: Way,
    note: Note<'t>,
}

/// Which way a cursor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    On,
    Back,
}

impl<'t> TransactionCursor<'t> {
    pub(super) fn new(
        reads: &'t Reads,
        keyspace: u32,
        range: KeyRange,
        cursor: Cursor,
    ) -> TransactionCursor<'t> {
        let note = Note::begin(reads, keyspace, range.clone());
        TransactionCursor { cursor, range, low: None, high: None, way: Way::On, note }
    }

    /// The same, of which it does not matter whether what it shows has expired by the commit (R5).
    pub(in crate::db) fn passing_expiries(mut self) -> TransactionCursor<'t> {
        self.note.expiries = Expiries::Passed;
        self
    }

    /// Moves to the first entry of the range.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_first(&mut self) -> Result<()> {
        self.begin_at(self.range.start.clone(), Way::On, Cursor::seek_first)
    }

    /// Moves to the last entry of the range.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_last(&mut self) -> Result<()> {
        self.begin_at(self.range.end.clone(), Way::Back, Cursor::seek_last)
    }

    /// Moves to the first entry of the range whose key is at least `key`, or behind the last.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        let from = match self.range.starts_by(key) {
            true => Bound::Included(key.to_vec()),
            false => self.range.start.clone(),
        };
        self.begin_at(from, Way::On, |cursor| cursor.seek(key))
    }

    /// Moves to the last entry of the range whose key is at most `key`, or in front of the first.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        let from = match self.range.ends_after(key) {
            true => Bound::Included(key.to_vec()),
            false => self.range.end.clone(),
        };
        self.begin_at(from, Way::Back, |cursor| cursor.seek_for_prev(key))
    }

    /// Moves one entry on; behind the last it stays.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    #[expect(clippy::should_implement_trait, reason = "a cursor also moves back and seeks")]
    pub fn next(&mut self) -> Result<()> {
        if self.low.is_none() && self.high.is_none() {
            self.low = Some(self.range.start.clone()); // A new cursor is in front of the first.
        }
        self.turn(Way::On);
        let moved = self.cursor.next();
        self.noting_outcome(moved)
    }

    /// Moves one entry back; in front of the first it stays.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn prev(&mut self) -> Result<()> {
        if self.low.is_none() && self.high.is_none() {
            return self.cursor.prev(); // In front of the first it stays, and reads nothing.
        }
        self.turn(Way::Back);
        let moved = self.cursor.prev();
        self.noting_outcome(moved)
    }

    /// Whether it is on an entry.
    #[must_use]
    pub fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// The key at the position.
    ///
    /// # Panics
    /// When it is not [`TransactionCursor::valid`].
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    /// The value at the position.
    ///
    /// # Errors
    /// As [`Cursor::value`].
    ///
    /// # Panics
    /// When it is not [`TransactionCursor::valid`].
    pub fn value(&self) -> Result<&[u8]> {
        self.cursor.value()
    }

    /// The stamp of the entry at the position.
    ///
    /// # Panics
    /// When it is not [`TransactionCursor::valid`].
    #[must_use]
    pub fn seqno(&self) -> SeqNo {
        told_stamp(self.cursor.seqno())
    }

    /// When the entry at the position expires; `None` if it does not.
    pub(in crate::db) fn until(&self) -> Option<u64> {
        self.cursor.until()
    }

    /// What was gone over so far is noted, and a new walk begins at a bound, by a seek.
    fn begin_at(
        &mut self,
        from: Bound<Vec<u8>>,
        way: Way,
        seek: impl FnOnce(&mut Cursor) -> Result<()>,
    ) -> Result<()> {
        self.note_walk();
        match way {
            Way::On => self.low = Some(from),
            Way::Back => self.high = Some(from),
        }
        self.way = way;
        let moved = seek(&mut self.cursor);
        self.noting_outcome(moved)
    }

    /// Where a walk turns it is farthest.
    fn turn(&mut self, way: Way) {
        if self.way != way {
            self.note_position();
            self.way = way;
        }
    }

    fn note_position(&mut self) {
        if !self.cursor.valid() {
            // Off the end that it was going to.
            match self.way {
                Way::On => self.high = Some(self.range.end.clone()),
                Way::Back => self.low = Some(self.range.start.clone()),
            }
            return;
        }
        let key = self.cursor.key();
        let is_below =
            |low: &Bound<Vec<u8>>| matches!(low, Bound::Included(low) if key < low.as_slice());
        let is_above =
            |high: &Bound<Vec<u8>>| matches!(high, Bound::Included(high) if key > high.as_slice());
        if self.low.as_ref().is_none_or(is_below) {
            self.low = Some(Bound::Included(key.to_vec()));
        }
        if self.high.as_ref().is_none_or(is_above) {
            self.high = Some(Bound::Included(key.to_vec()));
        }
    }

    fn note_walk(&mut self) {
        if self.low.is_none() && self.high.is_none() {
            return; // It has not moved.
        }
        self.note_position();
        if let (Some(start), Some(end)) = (self.low.take(), self.high.take()) {
            self.note.add(&KeyRange { start, end });
        }
    }

    /// Notes when what a move has come to expires. What a failed one has looked at is not known.
    fn noting_outcome(&mut self, moved: Result<()>) -> Result<()> {
        if moved.is_ok() && self.cursor.valid() {
            let until = self.cursor.until().filter(|_| self.seqno() != SeqNo::MAX); // Not its own.
            until.into_iter().for_each(|until| self.note.add_expiry(until));
        }
        if moved.is_err() {
            self.note.add(&self.range);
            (self.low, self.high) = (None, None);
        }
        moved
    }
}

impl Drop for TransactionCursor<'_> {
    fn drop(&mut self) {
        self.note_walk();
    }
}

/// The entries of a key range with the transaction's own writes, from either end. What it gives
/// counts as read, and what it finds to lie between; after [`TransactionIter::seek`], all of the
/// range.
#[derive(Debug)]
pub struct TransactionIter<'t> {
    iter: Iter,
    range: KeyRange,
    /// The last keys that were given.
    front: Option<Slice>,
    back: Option<Slice>,
    has_read_all: bool,
    note: Note<'t>,
}

impl<'t> TransactionIter<'t> {
    pub(super) fn new(
        reads: &'t Reads,
        keyspace: u32,
        range: KeyRange,
        cursor: Cursor,
    ) -> TransactionIter<'t> {
        let note = Note::begin(reads, keyspace, range.clone());
        let iter = Iter::new(cursor);
        TransactionIter { iter, range, front: None, back: None, has_read_all: false, note }
    }

    /// As [`Iter::seek`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.has_read_all = true;
        self.iter.seek(key);
    }
}

impl TransactionIter<'_> {
    fn note_expiry(&self, entry: &Entry) {
        let is_own = entry.seqno == SeqNo::MAX;
        if let Some(until) = moment_of(entry.expiry).filter(|_| !is_own) {
            self.note.add_expiry(until);
        }
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let given = self.iter.next().map(|given| given.map(told));
        match &given {
            Some(Ok(entry)) => {
                self.note_expiry(entry);
                self.front = Some(entry.key.clone());
            }
            Some(Err(_)) | None => self.has_read_all = true,
        }
        given
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        let given = self.iter.next_back().map(|given| given.map(told));
        match &given {
            Some(Ok(entry)) => {
                self.note_expiry(entry);
                self.back = Some(entry.key.clone());
            }
            Some(Err(_)) | None => self.has_read_all = true,
        }
        given
    }
}

fn told(mut entry: Entry) -> Entry {
    entry.seqno = told_stamp(entry.seqno);
    entry
}

impl Drop for TransactionIter<'_> {
    fn drop(&mut self) {
        if self.has_read_all {
            self.note.add(&self.range);
            return;
        }
        if let Some(front) = &self.front {
            let end = Bound::Included(front.to_vec());
            self.note.add(&KeyRange { start: self.range.start.clone(), end });
        }
        if let Some(back) = &self.back {
            let start = Bound::Included(back.to_vec());
            self.note.add(&KeyRange { start, end: self.range.end.clone() });
        }
    }
}
