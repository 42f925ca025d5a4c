//! Where flushes and consolidations take entries from, and what becomes of these on the way.

use crate::base::{
    Cursor, EntryKind, EntryRef, Expiring, RangeTombstones, Result, SeqNo, ValuePointer,
    expiring_in, is_expired, pointer_in,
};
use crate::value_log::Mover;

/// Walks the memtable that is flushed, and counts. Stands on no entry that is older than its
/// deletion with a range.
pub(super) struct Source<'a> {
    cursor: &'a mut dyn Cursor,
    /// Ranges that the memtable deletes.
    deleted: &'a RangeTombstones,
    /// What has expired by then is a tombstone.
    now: u64,
    /// Key and value bytes that went past.
    pub logical_bytes: u64,
}

impl<'a> Source<'a> {
    /// Goes on from where `cursor` stands.
    pub(super) fn new(
        cursor: &'a mut dyn Cursor,
        deleted: &'a RangeTombstones,
        now: u64,
    ) -> Result<Source<'a>> {
        let mut source = Source { cursor, deleted, now, logical_bytes: 0 };
        source.skip_deleted()?;
        Ok(source)
    }

    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key)?;
        self.skip_deleted()
    }

    /// Ranges that the memtable deletes.
    pub(super) fn deleted(&self) -> &'a RangeTombstones {
        self.deleted
    }

    fn skip_deleted(&mut self) -> Result<()> {
        if self.deleted.is_empty() {
            return Ok(());
        }
        while let Some(entry) = self.cursor.entry() {
            let range = self.deleted.covering(entry.key, SeqNo::MAX);
            if range.is_none_or(|range| range.seqno <= entry.seqno) {
                break;
            }
            self.cursor.next()?;
        }
        Ok(())
    }

    /// The first key from `key` on that the memtable deletes with a range.
    pub(super) fn first_deleted<'k>(&'k self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.deleted.first_from(key).map(|range| range.start.max(key))
    }

    /// The entry at hand, if its key is below `limit`.
    pub(super) fn below(&self, limit: Option<&[u8]>) -> Option<EntryRef<'_>> {
        let entry = self.cursor.entry()?;
        let entry = limit.is_none_or(|limit| entry.key < limit).then_some(entry)?;
        Some(as_of(entry, self.now))
    }

    #[inline]
    pub(super) fn advance(&mut self) -> Result<()> {
        if let Some(entry) = self.cursor.entry() {
            self.logical_bytes += (entry.key.len() + entry.value.len()) as u64;
        }
        self.cursor.next()?;
        self.skip_deleted()
    }
}

/// An entry as it is by `now`: one that has expired is a tombstone.
#[inline]
pub(super) fn as_of(entry: EntryRef<'_>, now: u64) -> EntryRef<'_> {
    match is_expired(entry.kind, entry.value, now) {
        true => EntryRef { kind: EntryKind::Tombstone, value: &[], ..entry },
        false => entry,
    }
}

/// The entry of a pointer, or of what expires, with the pointer to where its value lies once it was
/// moved, if it is to be.
#[cold]
pub(super) fn with_moved_value<'e>(
    mover: &mut Mover,
    entry: EntryRef<'e>,
    bytes: &'e mut Vec<u8>,
) -> Result<EntryRef<'e>> {
    let pointer = pointer_in(entry.kind, entry.value).and_then(ValuePointer::decode);
    let Some(old) = pointer else { return Ok(entry) };
    match mover.moved(&old)? {
        None => Ok(entry),
        Some(moved) => {
            *bytes = match expiring_in(entry.kind, entry.value) {
                Some(expiring) => Expiring { value: &moved.encode(), ..expiring }.encode(),
                None => moved.encode().to_vec(),
            };
            Ok(EntryRef { value: bytes, ..entry })
        }
    }
}
