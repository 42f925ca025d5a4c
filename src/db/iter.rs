//! Walking a keyspace: the cursor that lends what it stands on, and the iterator made of it.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::{EntryKind, EntryRef, Error, Expiring, Expiry, KeyRange, Result, SeqNo, Slice};
use crate::base::{expiring_in, is_operands, pointer_in};
use crate::db::order::{OtherMoment, looked_up};
use crate::db::state::KeyspaceState;
use crate::db::time::AsOf;
use crate::db::walk::{Shown, Walk};
use crate::memtable::{Memtable, MemtableCursor};

const NOT_ON_AN_ENTRY: &str = "the cursor is not on an entry";
/// Fewer entries than these are passed over one by one, more by their number.
const STEPS_MAX: usize = 1000;
/// What an entry in a memtable adds to the cost of finding an entry by its number, in steps.
const STEPS_PER_MEMTABLE_ENTRY: usize = 32;

/// A key with its value, the stamp of the commit that wrote it, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Slice,
    /// The value.
    pub value: Slice,
    /// The commit that wrote it: also the time of the last write, see [`SeqNo::millis`].
    pub seqno: SeqNo,
    /// When it expires.
    pub expiry: Expiry,
}

impl Entry {
    /// When it expires; `None` if it does not. It may have by now: it was there as of what was
    /// read.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expiry.time()
    }
}

/// Walks the entries of a key range, as of one moment, both ways; lends key and value from where
/// they lie. Nothing is allocated or counted from entry to entry.
///
/// A value that lies in the value log is read when it is asked for, and not when the cursor comes
/// to it: a walk over keys reads no values.
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
///     println!("{:?} = {:?}", cursor.key(), cursor.value()?);
///     cursor.next()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    walk: Walk,
    /// Why it cannot move at all.
    refusal: Option<Error>,
    /// Also keeps the files of a dropped keyspace while it is read.
    keyspace: Option<Arc<KeyspaceState>>,
    as_of: AsOf,
    /// What the transaction that reads has written itself.
    own: Option<Arc<Memtable>>,
    /// The value at the position, if it was read from the value log.
    loaded: OnceCell<Slice>,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("walk", &self.walk).finish_non_exhaustive()
    }
}

impl Cursor {
    pub(super) fn new(keyspace: Arc<KeyspaceState>, as_of: AsOf, range: KeyRange) -> Cursor {
        Cursor::over(keyspace, as_of, range, None)
    }

    /// A cursor that shows `own` entries, newer than all others, as well.
    pub(super) fn over(
        keyspace: Arc<KeyspaceState>,
        as_of: AsOf,
        range: KeyRange,
        own: Option<Arc<Memtable>>,
    ) -> Cursor {
        let at = as_of.at;
        let now = match own.as_ref().is_some_and(|own| own.has_expiring()) {
            true => as_of.now(&keyspace.runtime.time),
            false => keyspace.now_if_any_expires(as_of),
        };
        let tables = keyspace.tables().filter(|table| !table.memtable.is_empty());
        let tables = tables.map(|table| MemtableCursor::new(Arc::clone(&table.memtable), at));
        let first = own.iter().map(|own| MemtableCursor::new(Arc::clone(own), SeqNo::MAX));
        let tables = first.chain(tables).collect();
        let deleted = keyspace.deleted_ranges(at, own.as_deref());
        let structure = keyspace.version.cursor(&range);
        let walk = Walk::new(range, tables, Some(structure), deleted, now);
        let (as_of, loaded) = (AsOf::of(at, now), OnceCell::new());
        Cursor { walk, refusal: None, keyspace: Some(keyspace), as_of, own, loaded }
    }

    /// A cursor whose first move fails with `error`.
    pub(super) fn refusing(error: Error) -> Cursor {
        let walk = Walk::new(KeyRange::all(), Vec::new(), None, None, 0);
        let (as_of, loaded) = (AsOf::newest(SeqNo::ZERO), OnceCell::new());
        Cursor { walk, refusal: Some(error), keyspace: None, as_of, own: None, loaded }
    }

    /// Before every move but one within plain values of a block: one that holds a pointer, or is
    /// composite, is none.
    fn begin_move(&mut self) -> Result<()> {
        self.loaded.take();
        if self.refusal.is_none() {
            return Ok(());
        }
        let next_time = match self.refusal.as_ref() {
            Some(Error::KeyspaceNotFound { name }) => {
                Error::KeyspaceNotFound { name: name.clone() }
            }
            Some(Error::Forked { opener }) => Error::Forked { opener: *opener },
            _ => Error::Closed,
        };
        Err(self.refusal.replace(next_time).expect("it was just looked at"))
    }

    /// Moves to the first entry of the range.
    ///
    /// # Errors
    /// `Io` or `Corruption` when it cannot be read; `KeyspaceNotFound`, `Closed`.
    pub fn seek_first(&mut self) -> Result<()> {
        self.begin_move()?;
        self.walk.seek_first()
    }

    /// Moves to the last entry of the range.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_last(&mut self) -> Result<()> {
        self.begin_move()?;
        self.walk.seek_last()
    }

    /// Moves to the first entry of the range whose key is at least `key`, or behind the last.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.begin_move()?;
        self.walk.seek(key.as_ref())
    }

    /// Moves to the last entry of the range whose key is at most `key`, or in front of the first.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.begin_move()?;
        self.walk.seek_for_prev(key.as_ref())
    }

    /// Moves one entry on; behind the last it stays.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`]; `InvalidArgument` after a failed move.
    #[expect(clippy::should_implement_trait, reason = "a cursor also moves back and seeks")]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.walk.slide_on() {
            return Ok(());
        }
        self.next_elsewhere()
    }

    /// Out of line, so that a step within a block is small.
    #[inline(never)]
    fn next_elsewhere(&mut self) -> Result<()> {
        self.begin_move()?;
        self.walk.next()
    }

    /// Moves one entry back; in front of the first it stays.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.walk.slide_back() {
            return Ok(());
        }
        self.prev_elsewhere()
    }

    /// Out of line, so that a step within a block is small.
    #[inline(never)]
    fn prev_elsewhere(&mut self) -> Result<()> {
        self.begin_move()?;
        self.walk.prev()
    }

    /// Whether it is on an entry.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.walk.shown().is_entry()
    }

    /// The key at the position.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.walk.key().expect(NOT_ON_AN_ENTRY)
    }

    /// The value at the position. One that lies in the value log is read now, and kept until the
    /// cursor moves.
    ///
    /// # Errors
    /// `Io`, or `Corruption` with file and offset, when it has to be read and cannot be: asking
    /// again reads again. `MergeOperatorMissing`, `MergeFailed` when something was merged into it.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[inline]
    pub fn value(&self) -> Result<&[u8]> {
        match self.walk.block_value() {
            Some(value) => Ok(value),
            None => self.value_elsewhere(),
        }
    }

    /// Out of line, so that walking through a block is small.
    #[inline(never)]
    fn value_elsewhere(&self) -> Result<&[u8]> {
        let entry = self.walk.entry().expect(NOT_ON_AN_ENTRY);
        match (expiring_in(entry.kind, entry.value), entry.kind) {
            (Some(Expiring { kind: EntryKind::Value, value, .. }), _) => Ok(value),
            (_, EntryKind::Pointer | EntryKind::Composite) => self.load_value(entry),
            (_, EntryKind::Value | EntryKind::Tombstone) => Ok(entry.value),
        }
    }

    #[cold]
    fn load_value(&self, entry: EntryRef<'_>) -> Result<&[u8]> {
        if self.loaded.get().is_none() {
            let value = self.value_led_to(entry)?;
            return Ok(self.loaded.get_or_init(|| value));
        }
        Ok(self.loaded.get().expect("it was just there"))
    }

    /// The value of an entry that does not hold it.
    #[cold]
    fn value_led_to(&self, EntryRef { key, kind, value, .. }: EntryRef<'_>) -> Result<Slice> {
        let keyspace = self.keyspace();
        if let Some(expiring) = expiring_in(kind, value) {
            return match expiring.kind {
                EntryKind::Pointer => keyspace.runtime.values.read(expiring.value),
                _ => Ok(self.shared(expiring.value)),
            };
        }
        match kind {
            // K1: the memtables have nothing of its key; a block is all that the structure has.
            EntryKind::Composite if self.walk.shown_block().is_some() => {
                keyspace.value_of_operands(key, value)
            }
            EntryKind::Composite => keyspace.merged_value(key, self.as_of.at, self.own.as_deref()),
            _ => keyspace.runtime.values.read(value),
        }
    }

    fn keyspace(&self) -> &KeyspaceState {
        self.keyspace.as_ref().expect("a cursor on an entry has a keyspace")
    }

    /// If the value at the position lies in the value log: the pointer to it, and the keyspace.
    pub(super) fn pointer(&self) -> Option<(&[u8], &KeyspaceState)> {
        let EntryRef { kind, value, .. } = self.walk.entry().expect(NOT_ON_AN_ENTRY);
        if is_operands(kind, value) {
            return None;
        }
        Some((pointer_in(kind, value)?, self.keyspace()))
    }

    /// When the entry at the position expires; `None` if it does not.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        Expiry::from_moment(self.until()).time()
    }

    pub(super) fn until(&self) -> Option<u64> {
        if self.walk.shown() == Shown::Block {
            return None; // A plain value.
        }
        let EntryRef { kind, value, .. } = self.walk.entry().expect(NOT_ON_AN_ENTRY);
        expiring_in(kind, value).map(|expiring| expiring.until)
    }

    /// The stamp of the entry at the position.
    ///
    /// # Panics
    /// When it is not [`Cursor::valid`].
    #[must_use]
    pub fn seqno(&self) -> SeqNo {
        self.walk.entry().expect(NOT_ON_AN_ENTRY).seqno
    }

    /// The entry at the position, as slices of its own. Sharing the block that they lie in where
    /// that saves a copy.
    ///
    /// # Errors
    /// As [`Cursor::value`].
    pub(super) fn take_entry(&self) -> Result<Entry> {
        let entry = self.walk.entry().expect(NOT_ON_AN_ENTRY);
        let EntryRef { key, value, seqno, kind } = entry;
        let (key, shared) = match self.walk.shown_block() {
            Some(block) => (block.share(key), block.share(value)),
            None => (Slice::from(key), Slice::from(value)),
        };
        let (value, expiry) = match kind {
            EntryKind::Pointer | EntryKind::Composite => {
                (self.value_led_to(entry)?, Expiry::from_moment(self.until()))
            }
            EntryKind::Value | EntryKind::Tombstone => (shared, Expiry::Never),
        };
        Ok(Entry { key, value, seqno, expiry })
    }

    fn shared(&self, bytes: &[u8]) -> Slice {
        self.walk.shown_block().map_or_else(|| Slice::from(bytes), |block| block.share(bytes))
    }

    /// The key at the position, as [`Cursor::take_entry`].
    fn take_key(&self) -> Slice {
        let key = self.walk.key().expect(NOT_ON_AN_ENTRY);
        self.walk.shown_block().map_or_else(|| Slice::from(key), |block| block.share(key))
    }

    /// Another cursor over the same entries, in front of the first.
    fn again(&self) -> Cursor {
        match &self.keyspace {
            Some(keyspace) => {
                let (range, own) = (self.walk.range().clone(), self.own.clone());
                Cursor::over(Arc::clone(keyspace), self.as_of, range, own)
            }
            None => Cursor::refusing(Error::Closed),
        }
    }
}

/// Which entry one end of an [`Iter`] gives next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The next one from the cursor's position.
    Following,
    /// The one that the cursor is on.
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
    back_turn: Turn,
    is_done: bool,
}

impl Iter {
    pub(super) fn new(front: Cursor) -> Iter {
        let turn = Turn::Following;
        Iter { front, front_turn: turn, back: None, back_turn: turn, is_done: false }
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

    /// Passes over `count` entries by their number, where that is cheaper than step by step; says
    /// whether it was.
    fn jump(&mut self, count: usize) -> Result<bool> {
        let front = &self.front;
        let (Some(keyspace), None) = (&front.keyspace, &front.own) else { return Ok(false) };
        if keyspace.is_past {
            return Ok(false); // Its counts walk.
        }
        let in_memtables: usize = keyspace.tables().map(|table| table.memtable.entry_count()).sum();
        if count < STEPS_MAX.saturating_add(in_memtables.saturating_mul(STEPS_PER_MEMTABLE_ENTRY)) {
            return Ok(false);
        }
        let other = OtherMoment::LookUp;
        let rank_of = |key: &[u8]| looked_up(keyspace.rank(key, front.as_of, other));
        let given = match (front.walk.shown(), front.walk.key(), self.front_turn) {
            (Shown::Start, ..) => rank_of(&front.walk.range().half_open().0)?,
            (_, Some(key), Turn::Following) => rank_of(key)? + 1,
            (_, Some(key), Turn::Sought) => rank_of(key)?,
            _ => return Ok(false), // At the end, or it has lost its place: the next step tells.
        };
        let rank = given.saturating_add(count as u64);
        match looked_up(keyspace.select(rank, front.as_of, other))?.0 {
            Some(entry) => {
                self.front.seek(&entry.key)?;
                self.front_turn = Turn::Sought;
            }
            None => {
                self.front.seek_last()?;
                self.front_turn = Turn::Following;
            }
        }
        Ok(true)
    }

    /// The keys alone: no value is read from the value log.
    #[must_use]
    pub fn keys(self) -> Keys {
        Keys { iter: self }
    }

    /// Moves the front on; `None` at the end, and where it meets the back.
    fn step_front(&mut self) -> Option<Result<()>> {
        if self.is_done {
            return None;
        }
        let moved = match std::mem::replace(&mut self.front_turn, Turn::Following) {
            Turn::Following => self.front.next(),
            Turn::Sought => Ok(()),
        };
        if moved.is_ok() && (!self.front.valid() || self.have_met(self.back_turn)) {
            self.is_done = true;
            return None;
        }
        Some(moved)
    }

    /// Moves the back on; `None` at the start, and where it meets the front.
    fn step_back(&mut self) -> Option<Result<()>> {
        if self.is_done {
            return None;
        }
        let turn = std::mem::replace(&mut self.back_turn, Turn::Following);
        let moved = match (&mut self.back, turn) {
            (Some(_), Turn::Sought) => Ok(()),
            (Some(back), Turn::Following) => back.prev(),
            (None, _) => {
                // The front may have a reason to refuse; it is told here.
                if let Err(error) = self.front.begin_move() {
                    return Some(Err(error));
                }
                let back = self.back.insert(self.front.again());
                back.seek_last()
            }
        };
        let back = self.back.as_ref().expect("it was made above");
        if moved.is_ok() && (!back.valid() || self.have_met(self.front_turn)) {
            self.is_done = true;
            return None;
        }
        Some(moved)
    }

    /// Whether the ends have met: what one end has given, the other does not give again. One of
    /// them was just moved; `turn` is that of the other.
    fn have_met(&self, turn: Turn) -> bool {
        let Some(back) = &self.back else { return false };
        let (front, back) = (&self.front.walk, &back.walk);
        if back.shown() == Shown::Start || front.shown() == Shown::End {
            return true; // one of them has given everything
        }
        let (Some(front), Some(back)) = (front.key(), back.key()) else { return false };
        match turn {
            Turn::Following => front >= back,
            // What the other is on is still to be given by one of the two.
            Turn::Sought => front > back,
        }
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let entry = self.step_front()?.and_then(|()| self.front.take_entry());
        if entry.is_err() && self.front.valid() {
            self.front_turn = Turn::Sought; // Its value could not be read: it is not skipped.
        }
        Some(entry)
    }

    /// Also behind [`Iterator::skip`]. Many entries are passed over without being read, in about
    /// the time of [`Keyspace::select`](crate::db::Keyspace::select).
    fn nth(&mut self, count: usize) -> Option<Result<Entry>> {
        if self.is_done {
            return None;
        }
        match self.jump(count) {
            Ok(true) => self.next(),
            Ok(false) => {
                for _ in 0..count {
                    if let Err(error) = self.step_front()? {
                        return Some(Err(error));
                    }
                }
                self.next()
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        let moved = self.step_back()?;
        let Some(back) = &self.back else { return moved.err().map(Err) };
        let entry = moved.and_then(|()| back.take_entry());
        if entry.is_err() && back.valid() {
            self.back_turn = Turn::Sought;
        }
        Some(entry)
    }
}

/// The keys of an [`Iter`], from either end. Reads no value from the value log.
#[derive(Debug)]
pub struct Keys {
    iter: Iter,
}

impl Iterator for Keys {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Result<Slice>> {
        let moved = self.iter.step_front()?;
        Some(moved.map(|()| self.iter.front.take_key()))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Result<Slice>> {
        let moved = self.iter.step_back()?;
        let Some(back) = &self.iter.back else { return moved.err().map(Err) };
        Some(moved.map(|()| back.take_key()))
    }
}
