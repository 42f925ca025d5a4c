//! The store of one Lsm keyspace: its current version, and the one place that changes it.

mod jobs;
mod rounds;
mod seam;

use std::collections::BTreeSet;

use super::index::{Index, Run};
use super::output::{Outputs, discard, ranges_within};
use super::pick::{CompactionPolicy, TableFigures, VersionFigures, compaction_debt, level0_cuts};
use super::policy::{policy_of, table_options};
use super::record::{Counters, EditRecord, Encoder, LEVEL_COUNT, PlacedTable, RunPlace};
use super::table::{TableCaches, TableOptions, TablePlace, TableRecord};
use super::version::{LsmVersion, Reader};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::ArcSwap;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::base::{
    Coverage, Cursor, EntryKind, Error, RangeTombstones, Result, SeqNo, Slice, StripedCounters,
    is_operands,
};
use crate::manifest::{EditLog, KeyspaceOptions, LogPosition};
use crate::storage::unless_held_back;
use crate::structure::beside::{BesideIndex, IndexCounts};
use crate::structure::fold::Folder;
use crate::structure::retention::Retention;
use crate::structure::source::Source;
use crate::structure::{Debt, FlushOrder, StorePlace};
use crate::value_log::Mover;

use jobs::Jobs;

/// When a store is closed, edits that take more of the index log's file than the rest over this are
/// replaced by a snapshot.
const EDITS_AT_CLOSE_FRACTION: u64 = 4;

/// An Lsm keyspace's structure. One flush at a time, beside any number of compactions.
#[derive(Debug)]
pub struct LsmStore {
    // Constant after opening.
    pub(super) place: Arc<TablePlace>,
    pub(super) reader: Arc<Reader>,
    pub(super) options: KeyspaceOptions,
    pub(super) policy: CompactionPolicy,
    /// What was counted before it was opened.
    counted_before: Counters,
    // Atomic.
    /// Of an archive: see [`crate::structure::Store::keep_from`].
    kept_from: AtomicU64,
    // Replaced whole.
    pub(super) current: ArcSwap<LsmVersion>,
    summary: ArcSwap<Summary>,
    // Guarded by their locks, taken in this order.
    jobs: Mutex<Jobs>,
    /// Signalled when a part of a compaction is put back.
    part_done: crate::base::sync::Condvar,
    writer: Mutex<Writer>,
    /// For who reads it beside its writer. Taken with none of the others.
    beside: Mutex<BesideIndex>,
}

/// What changes the set of tables.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) index: Index,
    log: EditLog,
    written: Written,
    index_bytes_written: u64,
    /// Of edits written since opening, in the file that the index log is in.
    edit_bytes_in_log: u64,
    compactions: u64,
}

/// Bytes written to tables since opening, by what for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub flush: u64,
    pub compaction: u64,
    pub cleaning: u64,
    pub ingest: u64,
}

impl Written {
    fn sum(self) -> u64 {
        self.flush + self.compaction + self.cleaning + self.ingest
    }

    fn plus(self, other: Written) -> Written {
        Written {
            flush: self.flush + other.flush,
            compaction: self.compaction + other.compaction,
            cleaning: self.cleaning + other.cleaning,
            ingest: self.ingest + other.ingest,
        }
    }
}

/// What others ask about the newest version, so that nobody waits for a flush to learn it.
#[derive(Clone, Copy, Debug)]
struct Summary {
    counters: Counters,
    log_position: LogPosition,
    log_capacity: u64,
    table_count: usize,
    table_bytes: u64,
    index_bytes_written: u64,
    compactions: u64,
    written: Written,
    debt: Debt,
}

/// A change that is to be made, but for the counters.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub removed: Vec<u64>,
    pub added: Vec<PlacedTable>,
    /// Bytes written for it.
    pub written: Written,
    pub compactions: u64,
}

impl LsmStore {
    /// Makes the durable form of an empty store in an existing, empty directory.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub fn create(place: &StorePlace) -> Result<()> {
        Index::create_log(Arc::clone(&place.storage), &table_place(place)).map(drop)
    }

    /// Opens a store. Reads the index, never the data; removes files that nothing refers to.
    /// `required` is how far its index log is known to be durable.
    ///
    /// # Errors
    /// `Corruption` when the index is damaged or a table is missing, `FormatVersion`, `Io`.
    pub fn open(place: &StorePlace, required: Option<LogPosition>) -> Result<LsmStore> {
        let tables = table_place(place);
        if place.options.lsm.pin_indexes {
            tables.pin_indexes();
        }
        let (index, log, _) = Index::open(&tables, required)?;
        let present: BTreeSet<u64> = tables.numbers()?.into_iter().collect();
        let named: BTreeSet<u64> = index.tables().map(|(_, table)| table.record.number).collect();
        if let Some(number) = named.difference(&present).next() {
            let path = tables.path_of(*number);
            return Err(Error::corruption(&path, 0, "the table file is missing"));
        }
        unless_held_back(log.remove_older())?;
        for &number in present.difference(&named) {
            unless_held_back(tables.remove_orphan(number))?;
        }
        // A file that was created and never referred to has used its number up.
        let newest = present.last().copied().unwrap_or(0);
        tables.skip_to(index.counters.next_table.max(newest + 1));
        let caches = TableCaches::new(&place.shared);
        let reader = Arc::new(Reader {
            caches: Arc::new(caches),
            folder: Folder::new(place),
            filter_prefix_len: usize::from(place.options.lsm.filter_prefix_len),
            filters_know_heads: place.options.archive_of.is_some(),
            extra_seeks: StripedCounters::default(),
        });
        let memtable_size = place.options.memtable_size.unwrap_or(place.shared.memtable_size);
        let policy = policy_of(&place.options, memtable_size);
        let beside = BesideIndex::new(log.found().cloned(), index_counts(&index.counters));
        let writer = Writer {
            index,
            log,
            written: Written::default(),
            index_bytes_written: 0,
            edit_bytes_in_log: 0,
            compactions: 0,
        };
        Ok(LsmStore {
            place: tables,
            current: ArcSwap::new(LsmVersion::new(&writer.index, &reader)),
            summary: ArcSwap::from_pointee(summary_of(&writer, &policy)),
            reader,
            options: place.options.clone(),
            policy,
            counted_before: writer.index.counters,
            kept_from: AtomicU64::new(place.options.kept_from.as_u64()),
            jobs: Mutex::default(),
            part_done: crate::base::sync::Condvar::new(),
            writer: Mutex::new(writer),
            beside: Mutex::new(beside),
        })
    }

    /// Decodes index records, for fuzzers.
    pub(crate) fn fuzz_records(bytes: &[u8]) {
        use super::record::Decoder;
        if let Some(edit) = Decoder::edit(bytes) {
            let again = Decoder::edit(&Encoder::edit(&edit));
            assert_eq!(again.as_ref(), Some(&edit), "what was decoded encodes to the same");
        }
        let _ = (Decoder::header(bytes), Decoder::tables(bytes));
    }

    /// Writes what a memtable has as a run of level 0. Returns its tables, the numbers of those
    /// that it deletes whole, and the key and value bytes taken.
    fn write_run(
        &self,
        memtable: &mut dyn Cursor,
        deleted: &RangeTombstones,
        FlushOrder { now, memtable_bytes, .. }: FlushOrder,
    ) -> Result<(Vec<TableRecord>, Vec<u64>, u64)> {
        let version = self.current.load_full();
        memtable.seek_first()?;
        let mut source = Source::new(memtable, deleted, now)?;
        let mut outputs = self.outputs_of(0, self.policy.table_size);
        let everything = (Slice::default(), None);
        let overlapping = |(start, end): &(Slice, Option<Slice>)| {
            version.runs.iter().any(|run| !run.overlapping(start, end.as_deref()).is_empty())
        };
        outputs.cut_at(level0_cuts(
            &figures_of(&version.runs, now, None),
            &self.policy,
            memtable_bytes,
        ));
        outputs.delete_ranges(ranges_within(deleted, &everything).into_iter().filter(overlapping));
        let is_older = |key: &[u8]| version.runs.iter().any(|run| run.table_of(key).is_some());
        let written = (|| {
            while let Some(entry) = source.below(None) {
                if outputs.is_sampled() && version.may_have(entry.key)? {
                    outputs.note_hidden();
                }
                match entry.kind {
                    EntryKind::Tombstone if !is_older(entry.key) => {} // L6
                    EntryKind::Composite if is_operands(entry.kind, entry.value) => {
                        let folder = &self.reader.folder;
                        let folded = folder.folded_over_older(entry.key, entry.value)?;
                        outputs.add(folded.entry(entry))?;
                    }
                    _ => outputs.add(entry)?,
                }
                source.advance()?;
            }
            outputs.finish()
        })();
        let tables = match written {
            Ok(tables) => tables,
            Err(error) => {
                outputs.discard();
                return Err(error);
            }
        };
        let busy = self.lock_jobs().inputs();
        let covered = version.runs.iter().flat_map(|run| run.tables.iter()).filter(|table| {
            let (first, end) = (&table.record.first, table.record.end.as_deref());
            !busy.contains(&table.record.number) && deleted.coverage(first, end) == Coverage::Whole
        });
        let removed = covered.map(|table| table.record.number).collect();
        Ok((tables, removed, source.logical_bytes))
    }

    /// Writes a run and makes it part of the structure; how many bytes of the memtable it took.
    fn flush_run(
        &self,
        memtable: &mut dyn Cursor,
        deleted: &RangeTombstones,
        order: FlushOrder,
    ) -> Result<u64> {
        let (tables, removed, taken) = self.write_run(memtable, deleted, order)?;
        let mut jobs = self.lock_jobs();
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        let removed = still_removable(removed, &writer.index, &jobs.inputs());
        let mut counters = writer.index.counters;
        let run = RunPlace { level: 0, id: counters.next_run };
        counters.next_run += 1;
        counters.flush_count += 1;
        // An archive may get once more what it has (H2).
        counters.log_end = counters.log_end.max(order.log_end);
        counters.last_seqno = counters.last_seqno.max(order.last_seqno);
        counters.logical_bytes += taken;
        let flush = tables.iter().map(|table| table.size).sum();
        let written = Written { flush, ..Written::default() };
        let added = tables.iter().map(|table| PlacedTable { run, table: table.clone() }).collect();
        let change = Change { removed: removed.clone(), added, written, compactions: 0 };
        let committed = self.commit(writer, change, counters);
        if committed.is_err() && writer.log.failure().is_none() {
            discard(&self.place, &tables);
        }
        committed?;
        jobs.try_again();
        jobs.rounds.note_removed(&removed);
        self.publish(writer);
        Ok(taken)
    }

    /// Which versions an archive keeps, if not all.
    pub(super) fn retention(&self) -> Option<Retention> {
        let kept_from = SeqNo::from_u64(self.kept_from.load(Ordering::Acquire));
        self.options.archive_of.and_then(|_| Retention::of(&self.options, kept_from))
    }

    /// What has expired is judged by this, if it is `now`: in an archive of versions nothing does.
    pub(super) fn judged_by(&self, now: u64) -> u64 {
        if self.options.archive_of.is_some() { 0 } else { now }
    }

    /// What writes tables of a level.
    pub(super) fn outputs_of(&self, level: u8, table_size: u64) -> Outputs {
        let budget = self.reader.caches.blocks.budget();
        Outputs::new(&self.place, &self.table_options(level), table_size, budget)
    }

    /// How tables of a level are written.
    pub(super) fn table_options(&self, level: u8) -> TableOptions {
        table_options(&self.options, level)
    }

    /// Makes a change durable and applies it (L4). Tables it brings are synced, their directory is
    /// not. After an error nothing has changed, unless the log of the index has failed.
    pub(super) fn commit(
        &self,
        writer: &mut Writer,
        change: Change,
        counters: Counters,
    ) -> Result<()> {
        if !change.added.is_empty() {
            self.place.sync_dir()?;
        }
        let counters = Counters {
            next_table: self.place.next_number(),
            table_bytes: counters.table_bytes + change.written.sum(),
            ..counters
        };
        let edit = EditRecord { counters, removed: change.removed, added: change.added };
        let mut next = writer.index.clone();
        let lost = next.apply(&edit, &self.place);
        let lost = lost.expect("the edit was made from this very index");
        if is_seeded(Bug::TablesRemovedBeforeEdit) {
            for table in &lost {
                let _removed = self.place.remove_orphan(table.record.number);
            }
        }
        self.make_durable(writer, &edit, next)?;
        let listed: Vec<u64> = edit.added.iter().map(|added| added.table.number).collect();
        self.place.forget_unlisted(&listed);
        lost.iter().for_each(|table| table.retire()); // L7
        writer.written = writer.written.plus(change.written);
        writer.compactions += change.compactions;
        Ok(())
    }

    fn make_durable(&self, writer: &mut Writer, edit: &EditRecord, next: Index) -> Result<()> {
        let bytes = Encoder::edit(edit);
        if bytes.len() > EditLog::EDIT_LEN_MAX {
            // As part of a new snapshot, whose parts are short.
            self.rotate_log(writer, &next, 0)?;
            writer.index = next;
            return Ok(());
        }
        if !writer.log.fits(bytes.len()) {
            let index = writer.index.clone();
            self.rotate_log(writer, &index, bytes.len())?;
        }
        writer.log.append(&bytes)?;
        writer.edit_bytes_in_log += EditLog::edit_size(bytes.len());
        writer.index_bytes_written += EditLog::edit_size(bytes.len());
        writer.index = next;
        Ok(())
    }

    /// Goes on in a new file of the index log, with room for an edit of `edit_len` bytes.
    fn rotate_log(&self, writer: &mut Writer, index: &Index, edit_len: usize) -> Result<()> {
        index.rotate(&mut writer.log, edit_len)?;
        writer.edit_bytes_in_log = 0;
        writer.index_bytes_written += writer.log.position().offset;
        let _removed_by_the_next_one = writer.log.remove_older();
        Ok(())
    }

    /// Makes the writer's state the newest version.
    pub(super) fn publish(&self, writer: &Writer) {
        self.summary.store(Arc::new(summary_of(writer, &self.policy)));
        self.current.store(LsmVersion::new(&writer.index, &self.reader));
        self.reader.caches.budget().ease();
    }

    pub(super) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        // A panic leaves the index as it was: changes are applied last, at once.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What writes the values that operands make.
    fn mover(&self) -> Mover {
        Mover::new(self.place.values(), BTreeSet::new())
    }
}

fn index_counts(counters: &Counters) -> IndexCounts {
    IndexCounts { flush_count: counters.flush_count, last_seqno: counters.last_seqno }
}

fn summary_of(writer: &Writer, policy: &CompactionPolicy) -> Summary {
    let figures = figures_of(&writer.index.runs, 0, None);
    Summary {
        counters: writer.index.counters,
        log_position: writer.log.position(),
        log_capacity: writer.log.capacity(),
        table_count: writer.index.table_count(),
        table_bytes: writer.index.size(),
        index_bytes_written: writer.index_bytes_written,
        compactions: writer.compactions,
        written: writer.written,
        debt: Debt {
            bytes: compaction_debt(&figures, policy),
            fresh_runs: fresh_run_count(&writer.index),
            size: writer.index.size(),
        },
    }
}

/// Of the tables that a flush finds covered, those that no compaction has taken since. Those stay
/// until it is done with them: the deleted ranges of the flush hide them.
fn still_removable(covered: Vec<u64>, index: &Index, busy: &BTreeSet<u64>) -> Vec<u64> {
    if covered.is_empty() {
        return covered;
    }
    let listed: BTreeSet<u64> = index.tables().map(|(_, table)| table.record.number).collect();
    let is_removable = |number: &u64| listed.contains(number) && !busy.contains(number);
    covered.into_iter().filter(is_removable).collect()
}

/// Runs of level 0 whose tables overlap those of others: runs that lie apart, as of a load in
/// order, cost a read nothing.
fn fresh_run_count(index: &Index) -> usize {
    let level0 = || index.runs.iter().filter(|run| run.place.level == 0);
    let overlaps = |run: &&Run| {
        level0().any(|other| {
            other.place.id != run.place.id
                && run.tables.iter().any(|table| {
                    let record = &table.record;
                    !other.overlapping(&record.first, record.end.as_deref()).is_empty()
                })
        })
    };
    level0().filter(overlaps).count()
}

/// What the choice of a compaction depends on.
pub(super) fn figures_of(runs: &[Run], now: u64, retention: Option<Retention>) -> VersionFigures {
    let mut figures = VersionFigures::default();
    for Run { place, tables } in runs {
        let tables = tables.iter().map(|table| {
            let record = &table.record;
            TableFigures {
                number: record.number,
                first: record.first.clone(),
                end: record.end.clone(),
                size: record.size,
                entry_count: record.entry_count,
                tombstones: record.tombstones,
                deleted_ranges: record.deleted_ranges,
                expired: record.expiring.as_ref().map_or(0, |span| span.expired_about(now)),
                hides: record.hides,
                is_unsieved: retention.is_some_and(|kept| table.is_unsieved(kept)),
            }
        });
        match usize::from(place.level) {
            0 => figures.level0.push(tables.collect()),
            level => figures.levels[level - 1] = tables.collect(),
        }
    }
    figures
}

const _: () = assert!(LEVEL_COUNT == super::pick::LEVEL_COUNT);

pub(super) fn table_place(place: &StorePlace) -> Arc<TablePlace> {
    TablePlace::new(
        Arc::clone(&place.storage),
        place.dir.clone(),
        place.database,
        place.keyspace,
        Arc::clone(&place.shared.open_tables),
        Arc::clone(&place.shared.values),
    )
}
