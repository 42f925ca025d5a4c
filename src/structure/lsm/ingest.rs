//! Bulk ingest: sorted entries become tables of their own, and then part of the index by one edit.
//!
//! They are newer than all that is there, so they go to level 0 as a run; or, where neither a
//! table of a level in front nor of the level itself overlaps them, as deep as that holds, where no
//! compaction has to write them again.
//!
//! Tables that were made outside of the database are taken as they are.
//!
//! Invariant
//! - N1  All entries of a table of an ingest have one stamp, which the index has. Until the edit
//!   nothing refers to the tables.

use std::sync::Arc;

use super::output::{Outputs, discard};
use super::outside::adopt;
use super::pick::{CompactionStyle, LAST_LEVEL, Span};
use super::record::{PlacedTable, RunPlace};
use super::store::{Change, LsmStore, Written};
use super::table::{OutsideTable, TableRecord};
use crate::base::{EntryKind, EntryRef, Result, SeqNo, Slice};
use crate::structure::{Adopted, Staged, TableIngestOptions, Version};

/// Tables of sorted entries that nothing refers to (N1).
#[derive(Debug)]
pub(super) struct StagedTables {
    store: Arc<LsmStore>,
    /// `None` once all entries are written.
    outputs: Option<Outputs>,
    tables: Vec<TableRecord>,
    logical_bytes: u64,
    /// Bytes of tables that were not written for this.
    linked_bytes: u64,
}

impl StagedTables {
    pub(super) fn new(store: Arc<LsmStore>) -> StagedTables {
        let outputs = store.outputs_of(LAST_LEVEL, store.policy.table_size);
        let tables = Vec::new();
        StagedTables { store, outputs: Some(outputs), tables, logical_bytes: 0, linked_bytes: 0 }
    }
}

impl Staged for StagedTables {
    /// A part is a block. Tables are ended on the way.
    #[inline]
    fn is_full_for(&self, key: &[u8], value_len: usize) -> bool {
        self.outputs.as_ref().is_none_or(|outputs| outputs.is_full_for(key, value_len))
    }

    /// The next entry does it.
    fn end_part(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn add(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        self.logical_bytes += (key.len() + value.len()) as u64;
        let outputs = self.outputs.as_mut().expect("nothing is added to what was fitted");
        outputs.add(EntryRef { key, seqno: SeqNo::ZERO, kind, value })
    }

    fn adopt(&mut self, table: &OutsideTable, how: &TableIngestOptions) -> Result<Adopted> {
        let (place, caches) = (&self.store.place, &self.store.reader.caches);
        if place.has_own_key() {
            return Ok(Adopted::NotHere); // It is sealed with the key that others have (B4).
        }
        let number = place.take_number();
        place.note_unlisted(number);
        // From here on, giving up removes it.
        self.tables.push(TableRecord { number, ..table.record.clone() });
        let adopted = adopt((place, caches), table, &place.path_of(number), how)?;
        self.logical_bytes = self.logical_bytes.saturating_add(table.record.logical_bytes);
        if adopted == Adopted::Linked {
            self.linked_bytes += table.record.size;
        }
        Ok(adopted)
    }

    fn fit(&mut self) -> Result<()> {
        if let Some(outputs) = &mut self.outputs {
            self.tables.extend(outputs.finish()?);
            self.outputs = None;
        }
        Ok(())
    }

    fn commit(&mut self, seqno: SeqNo) -> Result<Arc<dyn Version>> {
        for table in &mut self.tables {
            table.stamp = Some(seqno); // N1
        }
        let store = Arc::clone(&self.store);
        let bytes: u64 = self.tables.iter().map(|table| table.size).sum();
        let written = bytes - self.linked_bytes;
        store.ingest(&self.tables, (written, self.logical_bytes), seqno)?;
        self.tables.clear();
        Ok(store.current.load_full())
    }

    fn discard(self: Box<Self>) {
        let StagedTables { store, outputs, tables, .. } = *self;
        discard(&store.place, &tables);
        if let Some(outputs) = outputs {
            outputs.discard();
        }
    }
}

impl LsmStore {
    /// Makes tables of one run part of the index.
    fn ingest(
        &self,
        tables: &[TableRecord],
        (ingest, logical_bytes): (u64, u64),
        seqno: SeqNo,
    ) -> Result<()> {
        let Some((first, last)) = tables.first().zip(tables.last()) else { return Ok(()) };
        let span = Span { first: first.first.clone(), end: last.end.clone() };
        let jobs = self.lock_jobs();
        let is_busy = jobs.spans().any(|other| other.overlaps(&span));
        let mut guard = self.lock_writer();
        let mut counters = guard.index.counters;
        let is_tiered = matches!(self.policy.style, CompactionStyle::Tiered(_));
        let run = match is_busy || is_tiered {
            true => RunPlace { level: 0, id: counters.next_run },
            false => deepest_free(&guard.index.runs, &span, counters.next_run),
        };
        counters.next_run += 1;
        counters.logical_bytes = counters.logical_bytes.saturating_add(logical_bytes);
        counters.last_seqno = counters.last_seqno.max(seqno);
        let added = tables.iter().map(|table| PlacedTable { run, table: table.clone() }).collect();
        let written = Written { ingest, ..Written::default() };
        let change = Change { removed: Vec::new(), added, written, compactions: 0 };
        self.commit(&mut guard, change, counters)?;
        self.publish(&guard);
        Ok(())
    }
}

/// The deepest place that nothing overlaps, neither there nor in front of it (L2).
fn deepest_free(runs: &[super::index::Run], span: &Span, next_run: u64) -> RunPlace {
    let end: Option<&Slice> = span.end.as_ref();
    let overlaps =
        |run: &super::index::Run| !run.overlapping(&span.first, end.map(|end| &**end)).is_empty();
    let first_met = runs.iter().find(|run| overlaps(run)).map(|run| run.place.level);
    match first_met {
        None => RunPlace::of_level(LAST_LEVEL),
        Some(0 | 1) => RunPlace { level: 0, id: next_run },
        Some(level) => RunPlace::of_level(level - 1),
    }
}
