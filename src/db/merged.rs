//! Reading what was merged: the operands of a key from everywhere, newest first, down to what they
//! are merged into. Only keys whose newest entry holds operands come here.
//!
//! As of a past moment the archive counts for all that it has: of memtables that are in it already,
//! as that of a flush which is under way, nothing is merged twice.

use std::ops::ControlFlow;

use crate::base::{EntryKind, EntryRef, MergeBase, Operands, Result, SeqNo, Slice};
use crate::db::state::{KeyspaceState, Table};
use crate::memtable::Memtable;
use crate::operator::Merging;
use crate::structure::{Found, Want};

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
        if self.is_past {
            return self.merged_in_past(key, at);
        }
        let own = own.map(|own| (own, SeqNo::MAX));
        let tables = self.tables_to_merge(key).map(|table| (&*table.memtable, at));
        let mut deleted: Option<SeqNo> = None;
        let mut bytes: Option<Vec<u8>> = None;
        for (memtable, at) in own.into_iter().chain(tables) {
            deleted = deleted.max(memtable.range_deletion_of(key, at));
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

    /// The same of a past moment.
    fn merged_in_past(&self, key: &[u8], at: SeqNo) -> Result<Slice> {
        let mut recent = self.recent_operands(key, at)?;
        let below = match recent.base {
            Some(_) if !recent.parts.is_empty() => None,
            _ => self.version.find_known(key)?,
        };
        if let Some((known_to, found)) = below {
            recent.parts.retain(|(stamp, _)| *stamp > known_to);
            if recent.parts.is_empty() {
                let found = found.ok_or_else(|| self.merging().malformed())?;
                return self.value_of_found(key, found);
            }
            let open = joined(&recent.parts, MergeBase::Below);
            let found = found.filter(|found| found.kind != EntryKind::Tombstone);
            let stacked = match found {
                Some(found) => self.over(&open, found.kind, &found.value)?,
                None => joined(&recent.parts, MergeBase::Nothing),
            };
            return self.value_of_operands(key, &stacked);
        }
        let base = recent.base.unwrap_or(MergeBase::Nothing);
        self.value_of_operands(key, &joined(&recent.parts, base))
    }

    /// What memtables have of a key up to a stamp, down to what needs nothing older.
    fn recent_operands(&self, key: &[u8], at: SeqNo) -> Result<Recent<'_>> {
        let mut recent = Recent { parts: Vec::new(), base: None };
        let (mut deleted, mut failure) = (None, None);
        for table in self.tables() {
            deleted = deleted.max(table.memtable.range_deletion_of(key, at));
            table.memtable.visit_each_version(key, at, |version| {
                if deleted.is_some_and(|by| by > version.seqno) {
                    return ControlFlow::Break(());
                }
                match self.take_operands(&mut recent, version) {
                    Ok(true) => ControlFlow::Continue(()),
                    Ok(false) => ControlFlow::Break(()),
                    Err(error) => {
                        failure = Some(error);
                        ControlFlow::Break(())
                    }
                }
            });
            if recent.base.is_some() || failure.is_some() {
                break;
            }
        }
        if recent.base.is_none() && deleted.is_some() {
            recent.base = Some(MergeBase::Nothing);
        }
        failure.map_or(Ok(recent), Err)
    }

    /// Takes what a version has; whether older ones have a say.
    fn take_operands<'m>(&self, recent: &mut Recent<'m>, version: EntryRef<'m>) -> Result<bool> {
        recent.base = match version.kind {
            EntryKind::Value => Some(MergeBase::Value(version.value)),
            EntryKind::Pointer => Some(MergeBase::Pointer(version.value)),
            EntryKind::Tombstone => Some(MergeBase::Nothing),
            EntryKind::Composite => {
                let operands = self.merging().decode(version.value)?;
                recent.parts.push((version.seqno, operands));
                (!operands.is_open()).then_some(operands.base)
            }
        };
        Ok(recent.base.is_none())
    }

    fn value_of_found(&self, key: &[u8], found: Found) -> Result<Slice> {
        match found.kind {
            EntryKind::Value => Ok(found.value),
            EntryKind::Pointer => self.runtime.values.read(&found.value),
            EntryKind::Composite => self.value_of_operands(key, &found.value),
            EntryKind::Tombstone => Err(self.merging().malformed()),
        }
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
            (None, Some(found)) => self.value_of_found(key, found),
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
        let made = match self.is_past {
            true => self.merging().value_of_version(key, existing, &operands),
            false => self.merging().value(key, existing, &operands),
        };
        made.map(Slice::from)
    }

    fn merging(&self) -> &Merging {
        self.runtime.store.merging()
    }
}

/// What memtables have of a key.
struct Recent<'m> {
    /// Operands, the newest first, and their stamps.
    parts: Vec<(SeqNo, Operands<'m>)>,
    /// What they are merged into, if that is in memtables.
    base: Option<MergeBase<'m>>,
}

fn joined(parts: &[(SeqNo, Operands<'_>)], base: MergeBase<'_>) -> Vec<u8> {
    Operands::joined(base, parts.iter().rev().map(|(_, operands)| *operands))
}
