//! Whether something that a transaction has read was changed since.
//!
//! The transaction's place among the commits is decided under the log's lock, where this runs: all
//! commits in front of it are in the queue, or in memtables. So a transaction that passes could
//! have run at once at its place, and the log holds only such.

use std::sync::Arc;

use super::reads::{Ranges, ReadSet};
use super::register::TransactionRegister;
use crate::base::{Cursor as _, EntryRef, Result, SeqNo, successor};
use crate::db::operation::{Operation, Write};
use crate::db::state::{Published, Table};
use crate::memtable::{Memtable, MemtableCursor};

/// What a commit depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::db) struct Premise<'t> {
    /// What was read,
    pub(super) reads: &'t ReadSet,
    /// as of when.
    pub(super) at: SeqNo,
}

/// Whether a premise still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum Verdict {
    Holds,
    Changed,
}

impl Premise<'_> {
    /// Whether it holds against a commit that was not inserted into memtables yet.
    pub(in crate::db) fn against_commit<'k>(
        &self,
        mut operations: impl Iterator<Item = Operation<'k>>,
    ) -> Verdict {
        let touches = |Operation { keyspace, write, .. }: Operation<'_>| match write {
            Write::DeleteRange { start, end } => self.reads.overlaps(keyspace, start, end),
            other => other.key().is_some_and(|key| self.reads.covers(keyspace, key)),
        };
        verdict(operations.any(touches))
    }

    /// Whether it holds at the place of a commit with this stamp, as far as time is concerned: what
    /// was seen there must not have expired by then.
    pub(in crate::db) fn holds_at(&self, seqno: SeqNo) -> bool {
        self.reads.first_expiry() > seqno.millis()
    }

    /// Whether it holds against everything in memtables, also those that were flushed since.
    ///
    /// # Errors
    /// None that a memtable has; what a cursor may answer.
    pub(in crate::db) fn against_memtables(
        &self,
        published: &Published,
        register: &TransactionRegister,
    ) -> Result<Verdict> {
        for (id, ranges) in self.reads.keyspaces() {
            // In this order (T2).
            let state = published.state();
            let Some(keyspace) = state.find(id) else { return Ok(Verdict::Changed) }; // dropped
            let Some(kept) = register.kept(id, self.at) else { return Ok(Verdict::Changed) };
            for table in keyspace.tables().chain(&kept) {
                if self.against_table(table, ranges)? == Verdict::Changed {
                    return Ok(Verdict::Changed);
                }
            }
            let was_read = |first: &[u8], end: Option<&[u8]>| ranges.overlap(first, end);
            if register.has_ingest(id, self.at, was_read) {
                return Ok(Verdict::Changed);
            }
        }
        Ok(Verdict::Holds)
    }

    fn against_table(&self, table: &Table, ranges: &Ranges) -> Result<Verdict> {
        if table.newest() <= self.at {
            return Ok(Verdict::Holds);
        }
        let deleted = table.memtable.ranges();
        for (start, end) in ranges.iter() {
            if deleted.as_ref().is_some_and(|deleted| deleted.has_newer(start, end, self.at)) {
                return Ok(Verdict::Changed);
            }
            let is_one_key = end.is_some_and(|end| end == successor(start));
            let changed = if is_one_key {
                table.memtable.get(start, SeqNo::MAX).is_some_and(|entry| entry.seqno > self.at)
            } else {
                self.is_changed_between(&table.memtable, start, end)?
            };
            if changed {
                return Ok(Verdict::Changed);
            }
        }
        Ok(Verdict::Holds)
    }

    fn is_changed_between(
        &self,
        memtable: &Arc<Memtable>,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<bool> {
        let mut cursor = MemtableCursor::new(Arc::clone(memtable), SeqNo::MAX);
        cursor.seek(start)?;
        while let Some(EntryRef { key, seqno, .. }) = cursor.entry() {
            if end.is_some_and(|end| key >= end) {
                break;
            }
            if seqno > self.at {
                return Ok(true);
            }
            cursor.next()?;
        }
        Ok(false)
    }
}

fn verdict(changed: bool) -> Verdict {
    if changed { Verdict::Changed } else { Verdict::Holds }
}
