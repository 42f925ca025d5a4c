//! An entry: one version of one key; and the cursor that walks entries in key order.

use crate::base::{Error, Result, SeqNo};

/// What an entry says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has this value.
    Value = 0,
    /// The key was deleted.
    Tombstone = 1,
    /// The key has a value that lies in the value log; the entry holds the pointer.
    Pointer = 2,
    /// The entry holds more than a value or the way to one: what was merged into the key, or when
    /// it expires. See [`Composite`](crate::base::Composite).
    Composite = 3,
}

impl EntryKind {
    /// The kind with this number on disk.
    #[inline]
    #[must_use]
    pub fn from_u8(number: u8) -> Option<EntryKind> {
        match number {
            0 => Some(EntryKind::Value),
            1 => Some(EntryKind::Tombstone),
            2 => Some(EntryKind::Pointer),
            3 => Some(EntryKind::Composite),
            _ => None,
        }
    }
}

/// One version of one key, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The commit that wrote it.
    pub seqno: SeqNo,
    /// What it says.
    pub kind: EntryKind,
    /// The value (empty for a tombstone), the pointer to it, or what a composite entry holds.
    pub value: &'a [u8],
}

/// Walks entries in ascending key order, at most one entry a key. Positions are: before the
/// first entry, on an entry, or behind the last. A new cursor is before the first.
///
/// After an error the position is unspecified until the next `seek*`; the cursor never skips the
/// entries that it could not read: it returns the error again.
pub trait Cursor {
    /// Moves to the first entry.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn seek_first(&mut self) -> Result<()>;

    /// Moves to the last entry.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn seek_last(&mut self) -> Result<()>;

    /// Moves to the first entry whose key is at least `key`; behind the last if there is none.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the last entry whose key is at most `key`; before the first if there is none.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()>;

    /// As [`Cursor::seek`], from a position that moving forward has led to, and that is not behind
    /// `key`: for less where that is near, and least where the entries in front of it are newer
    /// than `newest`, each than the next.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn leap(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        let _no_matter = newest;
        self.seek(key)
    }

    /// Moves one entry on; from before the first entry to the first.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn next(&mut self) -> Result<()>;

    /// Moves one entry back; from behind the last entry to the last.
    ///
    /// # Errors
    /// When the entries cannot be read.
    fn prev(&mut self) -> Result<()>;

    /// The entry at the position, if it is on one. Valid until the cursor moves.
    fn entry(&self) -> Option<EntryRef<'_>>;

    // Parts of the entry, for walks that are counted in nanoseconds an entry: a cursor that
    // unpacks entries gives them for less.

    /// Whether the position is on an entry.
    #[inline]
    fn is_valid(&self) -> bool {
        self.entry().is_some()
    }

    /// The key at the position.
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.entry().map(|entry| entry.key)
    }

    /// The value at the position.
    #[inline]
    fn value(&self) -> Option<&[u8]> {
        self.entry().map(|entry| entry.value)
    }

    /// Whether the position is on a tombstone.
    #[inline]
    fn is_tombstone(&self) -> bool {
        self.entry().is_some_and(|entry| entry.kind == EntryKind::Tombstone)
    }
}

/// What a cursor answers when it is moved after a failed seek.
#[must_use]
pub fn lost_its_place() -> Error {
    Error::invalid("the cursor lost its place at an error: seek again")
}
