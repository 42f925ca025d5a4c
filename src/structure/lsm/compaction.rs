//! A compaction at work: its inputs merged, part by part and slice by slice.
//!
//! What it does is chosen by `pick/`. Parts are ranges of keys, which threads may merge at once;
//! a slice is as much of a part as a thread does before it looks for something more urgent. Nothing
//! of the store changes until all parts are done.

use std::sync::Arc;

use super::index::Run;
use super::merge::{Merged, deletions_of};
use super::output::{KeySpan, Outputs, ranges_within};
use super::pick::Pick;
use super::record::RunPlace;
use super::table::{ReadMode, RunCursor, Table, TableOptions, TablePlace, TableRecord};
use super::version::Reader;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::version_key::by_key_head;
use crate::base::{EntryKind, RangeTombstones, Result, hash_key, is_operands};
use crate::structure::retention::{Retention, Sieve};
use crate::structure::source::{as_of, with_moved_value};
use crate::structure::values_ahead::ValuesAhead;
use crate::value_log::Mover;

/// What is merged, and where it goes: what all parts share.
#[derive(Debug)]
pub(super) struct Plan {
    pub pick: Pick,
    /// The inputs, the newest run first.
    pub runs: Vec<Run>,
    /// What they delete, with their ranks.
    pub deleted: Option<Arc<RangeTombstones>>,
    pub output: RunPlace,
    /// Older tables that overlap the inputs and are none (L6), the newest run first.
    pub older: Vec<Arc<Table>>,
    /// What has expired by then goes.
    pub now: u64,
    /// Of an archive: which versions stay, if not all.
    pub retention: Option<Retention>,
    /// Then all runs, and how many of them are newer than the inputs.
    pub all: Vec<Run>,
    pub newer: usize,
    pub options: TableOptions,
    pub table_size: u64,
}

impl Plan {
    /// Whether something older than the inputs may have `key`: by span, then by filter.
    fn is_in_older(&self, key: &[u8], reader: &Reader) -> Result<bool> {
        if self.older.is_empty() {
            return Ok(false);
        }
        let hash = hash_key(key);
        for table in self.older.iter().filter(|table| table.record.spans(key)) {
            if table.may_contain(&reader.caches, key, hash)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a table that is no input may have older versions of a key: from `first` on to in
    /// front of `end`. By span; of newer runs by filter as well, as many of these lie above each
    /// key. They can have some: versions are keys by themselves, and a table may end between two
    /// of them and sink below the one that goes on. What comes later has none, but where a flush
    /// comes twice (H2): then it has what hides them as well.
    fn has_versions_beside(&self, first: &[u8], end: &[u8], reader: &Reader) -> bool {
        let is_beside = |table: &&Arc<Table>| !self.pick.inputs.contains(&table.record.number);
        let hash = by_key_head(first).map(hash_key);
        let may_have = |table: &Arc<Table>| {
            let found = hash.map(|hash| table.may_contain_head(&reader.caches, (first, end), hash));
            found.is_none_or(|found| found.unwrap_or(true)) // What cannot be read may be there.
        };
        self.all.iter().enumerate().any(|(place, run)| {
            let mut beside = run.overlapping(first, Some(end)).iter().filter(is_beside);
            let asks_newer = !is_seeded(Bug::NewerRunsNotAsked);
            beside.any(|table| place >= self.newer || asks_newer && may_have(table))
        })
    }

    /// What the inputs delete in a part, and hides something older.
    fn ranges_to_keep(&self, span: &KeySpan) -> Vec<KeySpan> {
        if is_seeded(Bug::DeletedRangeDroppedEarly) {
            return Vec::new();
        }
        let Some(deleted) = &self.deleted else { return Vec::new() };
        let hides = |range: &KeySpan| {
            self.older.iter().any(|table| {
                let record = &table.record;
                let begins = range.1.as_ref().is_none_or(|end| record.first < *end);
                begins && !record.ends_by(&range.0)
            })
        };
        ranges_within(deleted, span).into_iter().filter(hides).collect()
    }
}

/// What the deleted ranges of inputs are, with their ranks.
pub(super) fn deletions(runs: &[Run], reader: &Reader) -> Result<Option<Arc<RangeTombstones>>> {
    deletions_of(runs, &reader.caches)
}

/// A part of a compaction, begun.
#[derive(Debug)]
pub(super) struct Merging {
    span: KeySpan,
    merged: Merged,
    outputs: Outputs,
    /// Takes the values that operands make, and moves others.
    mover: Mover,
    /// If values are moved.
    ahead: Option<ValuesAhead<RunCursor>>,
    is_begun: bool,
    sieve: Sieve,
    /// Bytes of keys and values that went past.
    passed: u64,
    moved: Vec<u8>,
}

/// How far a part is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartProgress {
    GoesOn,
    /// It is done: its tables.
    Done(Vec<TableRecord>),
}

impl Merging {
    pub(super) fn new(
        plan: &Plan,
        span: KeySpan,
        place: &Arc<TablePlace>,
        reader: &Reader,
        mover: Mover,
    ) -> Merging {
        let caches = &reader.caches;
        let budget = caches.blocks.budget();
        let mut outputs = Outputs::new(place, &plan.options, plan.table_size, budget);
        outputs.delete_ranges(plan.ranges_to_keep(&span));
        let merged = Merged::new(&plan.runs, plan.deleted.clone(), caches, ReadMode::Passing);
        // Values are moved out of one table at a time.
        let table = plan.runs.first().filter(|_| !mover.victims().is_empty());
        let ahead = table.map(|run| {
            let cursor =
                RunCursor::new(Arc::clone(&run.tables), Arc::clone(caches), ReadMode::Passing);
            ValuesAhead::new(cursor, plan.now)
        });
        let (is_begun, passed, moved) = (false, 0, Vec::new());
        let sieve = Sieve::default();
        Merging { span, merged, outputs, mover, ahead, is_begun, sieve, passed, moved }
    }

    /// Bytes written so far, values included.
    pub(super) fn bytes_written(&self) -> u64 {
        self.outputs.bytes_written() + self.mover.bytes()
    }

    /// Bytes of keys and values that went past so far: those that others hide are not counted.
    pub(super) fn bytes_passed(&self) -> u64 {
        self.passed
    }

    /// Goes on until about `slice_bytes` are written, or four times as many went past.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        reader: &Reader,
        slice_bytes: u64,
    ) -> Result<PartProgress> {
        const READ_PER_WRITTEN_MAX: u64 = 4;
        const ENTRIES_PER_LOOK: u32 = 64;
        let mut entries = 0u32;
        let until = self.bytes_written() + slice_bytes;
        let enough = self.passed.saturating_add(slice_bytes.saturating_mul(READ_PER_WRITTEN_MAX));
        if !self.is_begun {
            self.merged.seek(&self.span.0)?;
            self.is_begun = true;
        }
        while let Some(key) = self.merged.key() {
            if self.span.1.as_ref().is_some_and(|end| key >= &**end) {
                break;
            }
            if self.passed >= enough {
                return Ok(PartProgress::GoesOn);
            }
            self.passed += self.take(plan, reader)?;
            self.merged.next()?;
            entries = entries.wrapping_add(1);
            if entries.is_multiple_of(ENTRIES_PER_LOOK) && self.bytes_written() >= until {
                return Ok(PartProgress::GoesOn);
            }
        }
        if self.mover.bytes() > 0 {
            self.mover.finish_slice()?; // L8
        }
        Ok(PartProgress::Done(self.outputs.finish()?))
    }

    /// Takes over what is shown, if anything stays of it. Returns its bytes.
    fn take(&mut self, plan: &Plan, reader: &Reader) -> Result<u64> {
        let Some(entry) = self.merged.entry() else { return Ok(0) };
        let bytes = (entry.key.len() + entry.value.len()) as u64;
        if self.merged.is_hidden() {
            // The range goes on hiding what is older.
            return Ok(bytes);
        }
        if let Some(retention) = &plan.retention {
            let has_older = |end: &[u8]| {
                let is_cut = self.span.1.as_ref().is_some_and(|part_end| **part_end < *end);
                is_cut || plan.has_versions_beside(entry.key, end, reader)
            };
            if !self.sieve.passes(retention, entry, has_older) {
                return Ok(bytes);
            }
        }
        let entry = as_of(entry, plan.now);
        if self.outputs.is_sampled() && plan.is_in_older(entry.key, reader)? {
            self.outputs.note_hidden();
        }
        match entry.kind {
            EntryKind::Value => self.outputs.add(entry)?,
            EntryKind::Tombstone => {
                let is_dropped = is_seeded(Bug::TombstoneDroppedEarly);
                if !is_dropped && plan.is_in_older(entry.key, reader)? {
                    self.outputs.add(entry)?;
                }
            }
            EntryKind::Composite if is_operands(entry.kind, entry.value) => {
                let folder = &reader.folder;
                let stacked = self.merged.stacked(folder)?;
                let folded = match plan.is_in_older(entry.key, reader)? {
                    true => folder.moved_over_older(&mut self.mover, entry.key, &stacked)?,
                    false => folder.fold_into(&mut self.mover, entry.key, &stacked)?, // L9
                };
                self.outputs.add(folded.entry(entry))?;
            }
            EntryKind::Pointer | EntryKind::Composite => {
                self.ahead
                    .iter_mut()
                    .for_each(|ahead| ahead.keep_ahead(entry.key, &mut self.mover));
                let entry = with_moved_value(&mut self.mover, entry, &mut self.moved)?;
                self.outputs.add(entry)?;
            }
        }
        Ok(bytes)
    }

    /// What wrote values, to be kept until the tables are in the index.
    pub(super) fn into_mover(self) -> Mover {
        self.mover
    }

    /// Removes what was written. Returns what wrote values, which has none now.
    pub(super) fn discard(mut self) -> Mover {
        self.mover.take_back();
        self.outputs.discard();
        self.mover
    }
}
