//! Reading what was merged: the operands of a key from everywhere, newest first, down to what they
//! are merged into. Only keys whose newest entry holds operands come here.

use crate::base::{EntryKind, MergeBase, Result, SeqNo, Slice};
use crate::db::state::{KeyspaceState, Table};
use crate::memtable::Memtable;
use crate::operator::Merging;
use crate::structure::Want;

impl KeyspaceState {
    /// The value of `key` as of the stamp `at`, whose newest entry, in `own` or the keyspace, holds
    /// operands. Costs a lookup in everything that may have older ones.
    ///
    /// # Errors
    /// `MergeOperatorMissing`, `MergeFailed`; `Io` or `Corruption` when an older entry cannot be
    /// read.
    #[cold]
    pub(super) fn merged_value(
        &self,
        key: &[u8],
        at: SeqNo,
        own: Option<&Memtable>,
    ) -> Result<Slice> {
        let own = own.map(|own| (own, SeqNo::MAX));
        let tables = self.tables_to_merge(key).map(|table| (&*table.memtable, at));
        let mut deleted: Option<SeqNo> = None;
        let mut bytes: Option<Vec<u8>> = None;
        for (memtable, at) in own.into_iter().chain(tables) {
            let ranges = memtable.ranges();
            let by_range = ranges.and_then(|ranges| Some(ranges.covering(key, at)?.seqno));
            deleted = deleted.max(by_range);
            let newest = memtable.get(key, at);
            let Some(newest) = newest.filter(|newest| deleted.is_none_or(|by| by <= newest.seqno))
            else {
                continue;
            };
            let so_far = match (&bytes, newest.kind) {
                (Some(newer), EntryKind::Composite) => {
                    self.over(newer, newest.kind, &memtable.stacked(newest))?
                }
                (Some(newer), kind) => self.over(newer, kind, newest.value)?,
                (None, EntryKind::Composite) => memtable.stacked(newest),
                (None, _) => return Err(self.merging().malformed()), // Nobody asks for that.
            };
            let is_open = self.merging().decode(&so_far)?.is_open();
            bytes = Some(so_far);
            if !is_open {
                break;
            }
        }
        self.value_with_structure(key, bytes, deleted.is_some())
    }

    /// The memtables whose entries of `key` are not in the structure: what is in both must not be
    /// merged twice.
    fn tables_to_merge(&self, key: &[u8]) -> impl Iterator<Item = &Table> {
        let oldest = self.sealed.last().filter(|_| key < &*self.flushed_to);
        let is_flushed =
            move |table: &Table| oldest.is_some_and(|oldest| std::ptr::eq(&**oldest, table));
        self.tables().map(|table| &**table).filter(move |table| !is_flushed(table))
    }

    /// The value that operands of memtables make, if there are any, with what the structure has
    /// below them, unless that is deleted with a range.
    fn value_with_structure(
        &self,
        key: &[u8],
        bytes: Option<Vec<u8>>,
        is_deleted: bool,
    ) -> Result<Slice> {
        if let Some(bytes) = &bytes
            && (is_deleted || !self.merging().decode(bytes)?.is_open())
        {
            return self.value_of_operands(key, bytes);
        }
        match (bytes, self.version.find(key, Want::Value)?) {
            (Some(bytes), None) => self.value_of_operands(key, &bytes),
            (Some(bytes), Some(found)) => {
                let stacked = self.over(&bytes, found.kind, &found.value)?;
                self.value_of_operands(key, &stacked)
            }
            // A flush that is under way has brought it.
            (None, Some(found)) => match found.kind {
                EntryKind::Value => Ok(found.value),
                EntryKind::Pointer => self.runtime.values.read(&found.value),
                EntryKind::Composite => self.value_of_operands(key, &found.value),
                EntryKind::Tombstone => Err(self.merging().malformed()),
            },
            (None, None) => Err(self.merging().malformed()),
        }
    }

    /// Operands on top of an older entry.
    fn over(&self, newer: &[u8], kind: EntryKind, older: &[u8]) -> Result<Vec<u8>> {
        let merging = self.merging();
        let stacked = merging.decode(newer)?.over(kind, older);
        stacked.ok_or_else(|| merging.malformed())
    }

    /// The value that these operands make where nothing is below them.
    pub(super) fn value_of_operands(&self, key: &[u8], bytes: &[u8]) -> Result<Slice> {
        let operands = self.merging().decode(bytes)?;
        let existing = match operands.base {
            MergeBase::Below | MergeBase::Nothing => None,
            MergeBase::Value(value) => Some(value.to_vec()),
            MergeBase::Pointer(pointer) => Some(self.runtime.values.read(pointer)?.to_vec()),
        };
        self.merging().value(key, existing, &operands).map(Slice::from)
    }

    fn merging(&self) -> &Merging {
        self.runtime.store.merging()
    }
}
