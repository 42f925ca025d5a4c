//! Walking a keyspace: the cursor that lends what it stands on, and the iterator made of it.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::{Cursor as _, EntryRef, Error, KeyRange, Result, SeqNo, Slice, lost_its_place};
use crate::db::state::KeyspaceState;
use crate::memtable::MemtableCursor;
use crate::merge::{LiveCursor, MergeCursor};
use crate::structure::StructureCursor;

/// A key with its value and the stamp of the commit that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Slice,
    /// The value.
    pub value: Slice,
    /// The commit that wrote it: also the time of the last write, see [`SeqNo::millis`].
    pub seqno: SeqNo,
}

/// A source of a keyspace's entries.
enum Source {
    Memtable(MemtableCursor),
    Structure(Box<dyn StructureCursor>),
}

macro_rules! each_source {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memtable($cursor) => $call,
            Source::Structure($cursor) => $call,
        }
    };
}

impl crate::base::Cursor for Source {
    fn seek_first(&mut self) -> Result<()> {
        each_source!(self, cursor => cursor.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        each_source!(self, cursor => cursor.seek_last())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each_source!(self, cursor => cursor.seek(key))
    }
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        each_source!(self, cursor => cursor.seek_for_prev(key))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each_source!(self, cursor => cursor.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        each_source!(self, cursor => cursor.prev())
    }
    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        each_source!(self, cursor => cursor.entry())
    }

    #[inline]
    fn is_valid(&self) -> bool {
        each_source!(self, cursor => cursor.is_valid())
    }
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        each_source!(self, cursor => cursor.key())
    }
    #[inline]
    fn value(&self) -> Option<&[u8]> {
        each_source!(self, cursor => cursor.value())
    }
    #[inline]
    fn is_tombstone(&self) -> bool {
        each_source!(self, cursor => cursor.is_tombstone())
    }
}

/// Where a [`Cursor`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In front of the first entry of the range.
    Start,
    /// On an entry.
    On,
    /// Behind the last entry of the range.
    End,
    /// A move failed; only a seek helps.
    Lost,
}

/// Walks the entries of a key range, as of one moment, both ways; lends key and value from where
/// they lie. Nothing is allocated or counted from entry to entry.
///
/// A new cursor is in front of the first entry. After a move has failed, [`Cursor::valid`] is
/// `false` and moving on is an error, until a seek succeeds: no entry is skipped silently.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let db = lithedb::Db::builder()
/// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
/// # let words = db.keyspace_or_create("words")?;
/// let mut cursor = words.cursor(lithedb::KeyRange::prefix(b"ab"));
/// cursor.seek_first()?;
/// while cursor.valid() {
///     println!("{:?} = {:?}", cursor.key(), cursor.value());
///     cursor.next()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    inner: LiveCursor<MergeCursor<Source>>,
    range: KeyRange,
    place: Place,
    /// Why it cannot move at all.
    refusal: Option<Error>,
    /// Also keeps the files of a dropped keyspace while it is read.
    keyspace: Option<Arc<KeyspaceState>>,
    at: SeqNo,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Cursor");
        shown.field("range", &self.range).field("place", &self.place).finish_non_exhaustive()
    }
}

impl Cursor {
    pub(super) fn new(keyspace: Arc<KeyspaceState>, at: SeqNo, range: KeyRange) -> Cursor {
        let tables = keyspace.tables().filter(|table| !table.memtable.is_empty());
        let mut sources: Vec<Source> = tables
            .map(|table| Source::Memtable(MemtableCursor::new(Arc::clone(&table.memtable), at)))
            .collect();
        sources.push(Source::Structure(keyspace.version.cursor()));
        Cursor {
            inner: LiveCursor::new(MergeCursor::new(sources)),
            range,
            place: Place::Start,
            refusal: None,
            keyspace: Some(keyspace),
            at,
        }
    }

    /// A cursor whose first move fails with `error`.
    pub(super) fn refusing(error: Error) -> Cursor {
        Cursor {
            inner: LiveCursor::new(MergeCursor::new(Vec::new())),
            range: KeyRange::all(),
            place: Place::Start,
            refusal: Some(error),
            keyspace: None,
            at: SeqNo::ZERO,
        }
    }

    fn check(&mut self) -> Result<()> {
        if self.refusal.is_none() {
            return Ok(());
        }
        let next_time = match self.refusal.as_ref() {
            Some(Error::KeyspaceNotFound { name }) => {
                Error::KeyspaceNotFound { name: name.clone() }
            }
            _ => Error::Closed,
        };
        Err(self.refusal.replace(next_time).expect("it was just looked at"))
    }

    /// Runs a move of the inner cursor and looks where it came to.
    #[inline]
    fn moved(&mut self, result: Result<()>, beyond: Place) -> Result<()> {
        if let Err(error) = result {
            self.place = Place::Lost;
            return Err(error);
        }
        let inside = self.inner.key().is_some_and(|key| match beyond {
            Place::End => self.range.ends_after(key),
            _ => self.range.starts_by(key),
        });
        self.place = if inside { Place::On } else { beyond };
        Ok(())
    }

    /// Moves to the first entry of the range.
    ///
    /// # Errors
    /// `Io` or `Corruption` when it cannot be read; `KeyspaceNotFound`, `Closed`.
    pub fn seek_first(&mut self) -> Result<()> {
        self.check()?;
        let result = match &self.range.start {
            Bound::Unbounded => self.inner.seek_first(),
            Bound::Included(key) => self.inner.seek(key),
            Bound::Excluded(key) => match self.inner.seek(key) {
                Ok(()) if self.inner.entry().is_some_and(|entry| entry.key == key) => {
                    self.inner.next()
                }
                other => other,
            },
        };
        self.moved(result, Place::End)
    }

    /// Moves to the last entry of the range.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_last(&mut self) -> Result<()> {
        self.check()?;
        let result = match &self.range.end {
            Bound::Unbounded => self.inner.seek_last(),
            Bound::Included(key) => self.inner.seek_for_prev(key),
            Bound::Excluded(key) => match self.inner.seek_for_prev(key) {
                Ok(()) if self.inner.entry().is_some_and(|entry| entry.key == key) => {
                    self.inner.prev()
                }
                other => other,
            },
        };
        self.moved(result, Place::Start)
    }

    /// Moves to the first entry of the range whose key is at least `key`, or behind the last.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if !self.range.starts_by(key) {
            return self.seek_first();
        }
        self.check()?;
        let result = self.inner.seek(key);
        self.moved(result, Place::End)
    }

    /// Moves to the last entry of the range whose key is at most `key`, or in front of the first.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if !self.range.ends_after(key) {
            return self.seek_last();
        }
        self.check()?;
        let result = self.inner.seek_for_prev(key);
        self.moved(result, Place::Start)
    }

    /// Moves one entry on; behind the last it stays.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`]; `InvalidArgument` after a failed move.
    #[expect(clippy::should_implement_trait, reason = "a cursor also moves back and seeks")]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        match self.place {
            Place::On => {
                let result = self.inner.next();
                self.moved(result, Place::End)
            }
            Place::Start => self.seek_first(),
            Place::End => Ok(()),
            Place::Lost => Err(lost_its_place()),
        }
    }

    /// Moves one entry back; in front of the first it stays.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        match self.place {
            Place::On => {
                let result = self.inner.prev();
                self.moved(result, Place::Start)
            }
            Place::Start => Ok(()),
            Place::End => self.seek_last(),
            Place::Lost => Err(lost_its_place()),
        }
    }

    /// Whether it is on an entry.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.place == Place::On
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        assert!(self.valid(), "the cursor is not on an entry");
        self.inner.entry().expect("a valid cursor is on an entry")
    }

    /// The key at the position.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "the cursor is not on an entry");
        self.inner.key().expect("a valid cursor is on an entry")
    }

    /// The value at the position.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        assert!(self.valid(), "the cursor is not on an entry");
        self.inner.value().expect("a valid cursor is on an entry")
    }

    /// The stamp of the entry at the position.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[must_use]
    pub fn seqno(&self) -> SeqNo {
        self.entry().seqno
    }

    /// The entry at the position, as slices of its own. Sharing the block that they lie in where
    /// that saves a copy.
    fn take_entry(&self) -> Entry {
        let entry = self.entry();
        let (key, value) = match self.inner.inner().current() {
            Some(Source::Structure(cursor)) => (cursor.key_slice(), cursor.value_slice()),
            _ => (None, None),
        };
        Entry {
            key: key.unwrap_or_else(|| Slice::from(entry.key)),
            value: value.unwrap_or_else(|| Slice::from(entry.value)),
            seqno: entry.seqno,
        }
    }

    /// Another cursor over the same entries, in front of the first.
    fn again(&self) -> Cursor {
        match &self.keyspace {
            Some(keyspace) => Cursor::new(Arc::clone(keyspace), self.at, self.range.clone()),
            None => Cursor::refusing(Error::Closed),
        }
    }
}

/// Which entry one end of an [`Iter`] gives next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The one behind the cursor's position.
    Following,
    /// The one that the cursor was moved to.
    Sought,
}

/// The entries of a key range, as of one moment, from either end. Reads lazily and holds what it
/// reads; later writes do not change what it gives.
///
/// After an error it gives errors: an entry that cannot be read is never skipped. [`Iter::seek`]
/// may lead past the damage.
#[derive(Debug)]
pub struct Iter {
    front: Cursor,
    front_turn: Turn,
    /// Made when entries are first asked for from the back.
    back: Option<Cursor>,
    is_done: bool,
}

impl Iter {
    pub(super) fn new(front: Cursor) -> Iter {
        Iter { front, front_turn: Turn::Following, back: None, is_done: false }
    }

    /// Moves the front to the first entry whose key is at least `key`; it may go back, too. The
    /// back stays where it is. An error is given by the next [`Iterator::next`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.is_done = false;
        self.front_turn = match self.front.seek(key) {
            Ok(()) => Turn::Sought,
            Err(_) => Turn::Following, // The cursor has lost its place, and says so when moved.
        };
    }

    fn advance(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.front_turn, Turn::Following) {
            Turn::Following => self.front.next(),
            Turn::Sought => Ok(()),
        }
    }

    /// Whether the ends have met: what one end has given, the other does not give again.
    fn have_met(&self) -> bool {
        let Some(back) = &self.back else { return false };
        match (self.front.place, self.front_turn) {
            _ if back.place == Place::Start => true, // the back has given everything
            (Place::End, _) => true,
            (Place::On, Turn::Following) => back.valid() && self.front.key() >= back.key(),
            // What the front was moved to is still to be given by one of the two.
            (Place::On, Turn::Sought) => back.valid() && self.front.key() > back.key(),
            _ => false,
        }
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.is_done {
            return None;
        }
        if let Err(error) = self.advance() {
            return Some(Err(error));
        }
        if !self.front.valid() || self.have_met() {
            self.is_done = true;
            return None;
        }
        Some(Ok(self.front.take_entry()))
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        if self.is_done {
            return None;
        }
        let moved = match &mut self.back {
            Some(back) => back.prev(),
            None => {
                // The front may have a reason to refuse; it is told here.
                if let Err(error) = self.front.check() {
                    return Some(Err(error));
                }
                let back = self.back.insert(self.front.again());
                back.seek_last()
            }
        };
        if let Err(error) = moved {
            return Some(Err(error));
        }
        let back = self.back.as_ref().expect("it was made above");
        if !back.valid() || self.have_met() {
            self.is_done = true;
            return None;
        }
        Some(Ok(back.take_entry()))
    }
}
