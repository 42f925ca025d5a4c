//! Writing the outcome of a flush or a compaction: tables of a target size, with what ranges are
//! deleted cut where they end.

use std::collections::VecDeque;
use std::sync::Arc;

use super::table::{TableOptions, TablePlace, TableRecord, TableWriter};
use crate::base::{EntryRef, RangeTombstones, Result, Slice};
use crate::cache::MemoryBudget;
pub(super) use crate::structure::KeySpan;

/// One entry in so many is looked for in older tables.
const ENTRIES_PER_SAMPLE: u64 = 64;

/// Writes tables of ascending, disjoint spans. What is dropped before it is finished is an orphan;
/// [`Outputs::discard`] removes it.
#[derive(Debug)]
pub(super) struct Outputs {
    // Constant.
    place: Arc<TablePlace>,
    options: TableOptions,
    /// Bytes at which a table is closed.
    table_size: u64,
    budget: Arc<MemoryBudget>,
    // The state.
    writer: Option<TableWriter>,
    /// Keys in front of which a table ends wherever it is, ascending.
    cuts: VecDeque<Slice>,
    /// Deleted ranges that are not in a table yet, ascending and disjoint.
    deleted: VecDeque<KeySpan>,
    /// Entries of the table at hand.
    entries: u64,
    /// Older entries that those hide, about.
    hidden: u64,
    done: Vec<TableRecord>,
    /// Of tables that [`Outputs::finish`] returned.
    bytes_finished: u64,
}

impl Outputs {
    pub(super) fn new(
        place: &Arc<TablePlace>,
        options: &TableOptions,
        table_size: u64,
        budget: &Arc<MemoryBudget>,
    ) -> Outputs {
        Outputs {
            place: Arc::clone(place),
            options: *options,
            table_size,
            budget: Arc::clone(budget),
            writer: None,
            cuts: VecDeque::new(),
            deleted: VecDeque::new(),
            entries: 0,
            hidden: 0,
            done: Vec::new(),
            bytes_finished: 0,
        }
    }

    /// Has these ranges, ascending and disjoint, be deleted by the tables to come.
    pub(super) fn delete_ranges(&mut self, ranges: impl IntoIterator<Item = KeySpan>) {
        self.deleted.extend(ranges);
    }

    /// Has tables end in front of these keys, ascending.
    pub(super) fn cut_at(&mut self, keys: Vec<Slice>) {
        self.cuts = keys.into();
    }

    /// Bytes written so far.
    pub(super) fn bytes_written(&self) -> u64 {
        let begun = self.writer.as_ref().map_or(0, TableWriter::size);
        self.bytes_finished + bytes_of(&self.done) + begun
    }

    /// Whether it is worth looking whether the next entry hides an older one, and
    /// [`Outputs::note_hidden`], to know about how many do.
    #[inline]
    pub(super) fn is_sampled(&self) -> bool {
        self.entries.is_multiple_of(ENTRIES_PER_SAMPLE)
    }

    /// Says that an entry of the sample hides an older one.
    pub(super) fn note_hidden(&mut self) {
        self.hidden += ENTRIES_PER_SAMPLE;
    }

    /// Adds an entry, above all before it.
    #[inline]
    pub(super) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        self.entries += 1;
        let is_cut = self.is_cut_at(entry.key);
        match &mut self.writer {
            Some(writer) if writer.size() < self.table_size && !is_cut => writer.add(entry),
            _ => self.add_to_next(entry),
        }
    }

    /// Whether adding an entry would end a block or a table, or begin one: else it writes nothing.
    #[inline]
    pub(super) fn is_full_for(&self, key: &[u8], value_len: usize) -> bool {
        match &self.writer {
            Some(writer) if writer.size() < self.table_size && !self.is_cut_at(key) => {
                writer.is_block_full_for(key.len() + value_len)
            }
            _ => true,
        }
    }

    #[inline]
    fn is_cut_at(&self, key: &[u8]) -> bool {
        self.cuts.front().is_some_and(|cut| *key >= **cut)
    }

    #[cold]
    fn add_to_next(&mut self, entry: EntryRef<'_>) -> Result<()> {
        while self.cuts.pop_front_if(|cut| **cut <= *entry.key).is_some() {}
        if self.writer.is_some() {
            self.close(Some(entry.key))?;
        }
        self.open()?.add(entry)
    }

    fn open(&mut self) -> Result<&mut TableWriter> {
        let writer = TableWriter::create(&self.place, &self.options, &self.budget)?;
        Ok(self.writer.insert(writer))
    }

    /// Ends the table at hand, which has everything in front of `end`.
    fn close(&mut self, end: Option<&[u8]>) -> Result<()> {
        let begins_before = |range: &KeySpan| end.is_none_or(|end| &*range.0 < end);
        while let Some((start, its_end)) = self.deleted.pop_front_if(|range| begins_before(range)) {
            let writer = match &mut self.writer {
                Some(writer) => writer,
                None => self.open()?,
            };
            match (end, &its_end) {
                (Some(end), its_end) if its_end.as_ref().is_none_or(|its_end| &**its_end > end) => {
                    writer.delete_range(&start, Some(end));
                    self.deleted.push_front((Slice::from(end), its_end.clone()));
                    break;
                }
                _ => writer.delete_range(&start, its_end.as_deref()),
            }
        }
        if let Some(writer) = self.writer.take() {
            let table = writer.finish()?;
            let hides = self.hidden.min(table.entry_count);
            self.done.push(TableRecord { hides, ..table });
            (self.entries, self.hidden) = (0, 0);
        }
        Ok(())
    }

    /// Ends the last table. All tables are synced then, and their directory is not.
    pub(super) fn finish(&mut self) -> Result<Vec<TableRecord>> {
        self.close(None)?;
        self.bytes_finished += bytes_of(&self.done);
        Ok(std::mem::take(&mut self.done))
    }

    /// Removes what was written.
    pub(super) fn discard(mut self) {
        if let Some(writer) = self.writer.take() {
            writer.discard();
        }
        discard(&self.place, &self.done);
    }
}

fn bytes_of(tables: &[TableRecord]) -> u64 {
    tables.iter().map(|table| table.size).sum()
}

/// Removes tables that nothing refers to. One that cannot be removed is an orphan, which opening
/// removes.
pub(super) fn discard(place: &TablePlace, tables: &[TableRecord]) {
    for table in tables {
        let _orphan_if_it_fails = place.remove_orphan(table.number);
        place.forget_unlisted(&[table.number]);
    }
}

/// What of a set of deleted ranges lies in a span, ascending and disjoint; ranges that touch are
/// one.
pub(super) fn ranges_within(deleted: &RangeTombstones, span: &KeySpan) -> Vec<KeySpan> {
    let (first, end) = span;
    let mut ranges: Vec<KeySpan> = Vec::new();
    let mut from = first.to_vec();
    while let Some(range) = deleted.first_from(&from) {
        let start = range.start.max(&**first);
        if end.as_ref().is_some_and(|end| start >= &**end) {
            break;
        }
        let its_end = match (range.end, end) {
            (Some(its_end), Some(end)) => Some(its_end.min(&**end)),
            (its_end, end) => its_end.or(end.as_deref()),
        };
        match ranges.last_mut() {
            Some((_, last)) if last.as_deref() == Some(start) => *last = its_end.map(Slice::from),
            _ => ranges.push((Slice::from(start), its_end.map(Slice::from))),
        }
        match range.end {
            Some(end) => from = end.to_vec(),
            None => break,
        }
    }
    ranges
}
