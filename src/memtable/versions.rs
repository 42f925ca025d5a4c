//! Operands in a memtable: each merge into a key is a version of its own, on top of older ones.
//! Here is what the versions of a key say together.
//!
//! Invariant
//! - V1  Of one commit a key has one entry that counts: who inserts puts together what the commit
//!   merges into a key. So the next older entry has a lower stamp.

use std::ops::ControlFlow;

use super::cursor::visit_versions;
use super::{Memtable, MemtableCursor};
use crate::base::{Composite, Cursor, EntryKind, EntryRef, Expiring, MergeBase, Operands};
use crate::base::{Result, SeqNo, is_operands};

/// What inserts composite entries encodes them.
const ENCODED: &str = "what composite entries of a memtable hold was encoded for them";

impl Memtable {
    /// Hands the versions of `key` up to a stamp to `see`, the newest first, until that breaks. Of
    /// one commit, the one that counts.
    pub(crate) fn visit_each_version<'m>(
        &'m self,
        key: &[u8],
        at: SeqNo,
        mut see: impl FnMut(EntryRef<'m>) -> ControlFlow<()>,
    ) {
        let mut below = None;
        visit_versions(self, key, at, |version| {
            match below.replace(version.seqno) == Some(version.seqno) {
                true => ControlFlow::Continue(()), // V1
                false => see(version),
            }
        });
    }

    /// The operands of the entry `newest`, on top of what the memtable has of its key beside. O(n)
    /// in the versions, down to one that says it all.
    #[cold]
    pub(crate) fn stacked(&self, newest: EntryRef<'_>) -> Vec<u8> {
        let EntryRef { key, seqno: at, .. } = newest;
        let deleted = self.range_deletion_of(key, at);
        let mut base = if deleted.is_some() { MergeBase::Nothing } else { MergeBase::Below };
        let mut parts = Vec::new();
        let mut below = SeqNo::MAX;
        visit_versions(self, key, at, |version| {
            if deleted.is_some_and(|deleted| deleted > version.seqno) {
                return ControlFlow::Break(());
            }
            if version.seqno == std::mem::replace(&mut below, version.seqno) {
                return ControlFlow::Continue(()); // V1: one that does not count.
            }
            base = match version.kind {
                EntryKind::Value => MergeBase::Value(version.value),
                EntryKind::Pointer => MergeBase::Pointer(version.value),
                EntryKind::Tombstone => MergeBase::Nothing,
                EntryKind::Composite => match Composite::decode(version.value).expect(ENCODED) {
                    Composite::Operands(operands) | Composite::OnOlderVersion(operands) => {
                        parts.push(operands);
                        if operands.is_open() {
                            return ControlFlow::Continue(());
                        }
                        operands.base
                    }
                    // Not in a keyspace that merges.
                    Composite::Expiring(Expiring { kind: EntryKind::Pointer, value, .. }) => {
                        MergeBase::Pointer(value)
                    }
                    Composite::Expiring(expiring) => MergeBase::Value(expiring.value),
                },
            };
            ControlFlow::Break(())
        });
        Operands::joined(base, parts.iter().rev().copied())
    }
}

/// Walks a memtable as [`MemtableCursor`] does; an entry of operands comes with all that the
/// memtable has of its key.
#[derive(Debug)]
pub(crate) struct StackedCursor {
    cursor: MemtableCursor,
    /// Of the entry at the position, if it is one of operands.
    operands: Option<Vec<u8>>,
}

impl StackedCursor {
    /// A cursor over the entries that `cursor` shows.
    pub(crate) fn new(cursor: MemtableCursor) -> StackedCursor {
        StackedCursor { cursor, operands: None }
    }

    #[inline]
    fn settle(&mut self, moved: Result<()>) -> Result<()> {
        if self.cursor.is_on_composite() || self.operands.is_some() {
            self.stack();
        }
        moved
    }

    #[cold]
    fn stack(&mut self) {
        let newest = self.cursor.entry().filter(|entry| is_operands(entry.kind, entry.value));
        self.operands = newest.map(|newest| self.cursor.memtable().stacked(newest));
    }
}

impl Cursor for StackedCursor {
    fn seek_first(&mut self) -> Result<()> {
        let moved = self.cursor.seek_first();
        self.settle(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = self.cursor.seek_last();
        self.settle(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.cursor.seek(key);
        self.settle(moved)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.cursor.seek_for_prev(key);
        self.settle(moved)
    }

    fn next(&mut self) -> Result<()> {
        let moved = self.cursor.next();
        self.settle(moved)
    }

    fn prev(&mut self) -> Result<()> {
        let moved = self.cursor.prev();
        self.settle(moved)
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.cursor.entry()?;
        Some(match &self.operands {
            Some(operands) => EntryRef { value: operands, ..entry },
            None => entry,
        })
    }
}
