//! The store of an Lsm keyspace as the database sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use super::jobs::Zeal;
use super::rounds::LsmRound;
use super::{EDITS_AT_CLOSE_FRACTION, LsmStore, index_counts};
use crate::base::sync::atomic::Ordering;
use crate::base::{Cursor, RangeTombstones, Result, SeqNo, Slice};
use crate::manifest::LogPosition;
use crate::operator::Merging;
use crate::storage::Storage;
use crate::structure::lsm::check;
use crate::structure::lsm::ingest::StagedTables;
use crate::structure::lsm::pick::Span;
use crate::structure::lsm::record::{Decoder, RunPlace};
use crate::structure::lsm::table::{Table, TableRecord};
use crate::structure::{
    BegunFlush, Compacted, Consolidation, DataCheck, Debt, FileImage, Findings, FlushOrder,
    FlushOutcome, FlushProgress, KeySpan, Moving, Round, Staged, Stale, Store, StoreImage,
    StructureStats, TableInfo, Version,
};
use crate::value_log::Mover;

/// What [`Store::move_values`] has come to: tables of numbers below `end` are looked at, those up
/// to `done` were.
struct Visited {
    done: u64,
    end: u64,
}

impl Visited {
    fn decode(place: &[u8]) -> Option<Visited> {
        let (done, rest) = place.split_first_chunk()?;
        let end = rest.first_chunk()?;
        Some(Visited { done: u64::from_be_bytes(*done), end: u64::from_be_bytes(*end) })
    }

    fn encode(&self) -> Slice {
        let bytes = [self.done.to_be_bytes(), self.end.to_be_bytes()].concat();
        Slice::from(bytes)
    }
}

impl Store for LsmStore {
    fn version(&self) -> Arc<dyn Version> {
        self.current.load_full()
    }

    fn log_end(&self) -> u64 {
        self.summary.load().counters.log_end
    }

    fn last_seqno(&self) -> SeqNo {
        self.summary.load().counters.last_seqno
    }

    fn merging(&self) -> &Arc<Merging> {
        self.reader.folder.merging()
    }

    /// A flush is in the structure whole, or not at all.
    fn begun_flushes(&self) -> Vec<BegunFlush> {
        Vec::new()
    }

    fn log_position(&self) -> LogPosition {
        self.summary.load().log_position
    }

    fn has_ingest_beside(&self, storage: &dyn Storage) -> Result<bool> {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        let counts_of = |edit: &[u8]| Decoder::edit(edit).map(|edit| index_counts(&edit.counters));
        let counts_in = |head: &[u8]| Decoder::header(head).map(|counters| index_counts(&counters));
        beside.has_ingest(storage, counts_of, counts_in)
    }

    fn flushes_beside(&self) -> u64 {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner).flushes()
    }

    /// Writes all of the memtable as one run of level 0, whatever the size of a slice.
    fn flush(
        &self,
        memtable: &mut dyn Cursor,
        deleted: &RangeTombstones,
        order: FlushOrder,
    ) -> Result<FlushOutcome> {
        self.install_ready()?;
        let order = FlushOrder { now: self.judged_by(order.now), ..order };
        let taken_bytes = self.flush_run(memtable, deleted, order)?;
        let (version, progress) = (self.version(), FlushProgress::Complete);
        Ok(FlushOutcome { version, progress, taken_bytes, next: Slice::default() })
    }

    fn value_bytes(&self) -> Arc<BTreeMap<u64, u64>> {
        Arc::clone(&self.current.load().value_bytes)
    }

    fn compact(&self, slice_bytes: u64, now: u64) -> Result<Compacted> {
        self.compact_slice(slice_bytes, (self.judged_by(now), Zeal::Due))
    }

    fn install(&self) -> Result<Option<Arc<dyn Version>>> {
        Ok(self.install_ready()?.then(|| self.version()))
    }

    fn holds_back(&self) -> bool {
        self.lock_jobs().holds_back()
    }

    fn try_again(&self) {
        self.lock_jobs().try_again();
    }

    fn debt(&self) -> Debt {
        self.summary.load().debt
    }

    /// Goes on with compactions, and installs them.
    fn consolidate(&self, slice_bytes: u64, now: u64) -> Result<Consolidation> {
        let now = self.judged_by(now);
        let bytes = match self.compact_slice(slice_bytes, (now, Zeal::Idle))? {
            Compacted::Nothing => return Ok(Consolidation::Nothing),
            Compacted::Ready => 0,
            Compacted::Slice { bytes, .. } => bytes,
        };
        self.install_ready()?;
        Ok(Consolidation::Slice { version: self.version(), bytes })
    }

    /// Brings the tables that overlap the keys to the last level, whole.
    fn begin_round(self: Arc<Self>, (first, end): KeySpan, now: u64) -> Box<dyn Round> {
        let now = self.judged_by(now);
        Box::new(LsmRound::begin(self, &Span { first, end }, now))
    }

    fn begin_new_files(&self) -> Result<()> {
        let mut writer = self.lock_writer();
        let index = writer.index.clone();
        self.rotate_log(&mut writer, &index, 0)
    }

    fn begin_rewriting(self: Arc<Self>, stale: Stale<'_>, _now: u64) -> Result<Box<dyn Round>> {
        let tables: Vec<Arc<Table>> = {
            let writer = self.lock_writer();
            writer.index.tables().map(|(_, table)| Arc::clone(table)).collect()
        };
        let mut old = BTreeSet::new();
        for table in tables {
            if stale.has(table.path(), table.key_id()?) {
                old.insert(table.record.number);
            }
        }
        Ok(Box::new(LsmRound::rewriting(self, old)))
    }

    /// Rewrites the next table that points into the files.
    fn move_values(
        &self,
        mover: &mut Mover,
        from: &[u8],
        (slice_bytes, now): (u64, u64),
    ) -> Result<Moving> {
        self.install_ready()?;
        mover.work_for(self.place.keyspace());
        let now = self.judged_by(now);
        let visited = Visited::decode(from)
            .unwrap_or_else(|| Visited { done: 0, end: self.place.next_number() });
        let version = self.current.load_full();
        let tables = version.runs.iter().flat_map(|run| run.tables.iter());
        let next = tables
            .map(|table| &table.record)
            .filter(|record| (visited.done + 1..visited.end).contains(&record.number))
            .filter(|record| {
                record.values.iter().any(|share| mover.victims().contains(&share.file))
            })
            .map(|record| record.number)
            .min();
        let Some(number) = next else { return Ok(Moving::Nothing) };
        let (next, bytes) = match self.rewrite(number, mover, now)? {
            Some(bytes) => (Visited { done: number, ..visited }, bytes),
            // Its compaction comes first; what that writes is looked at as well.
            None => {
                let bytes = match self.compact_slice(slice_bytes, (now, Zeal::Due))? {
                    Compacted::Slice { bytes, .. } => bytes,
                    Compacted::Ready => 0,
                    Compacted::Nothing => {
                        self.wait_for_part();
                        return Ok(Moving::Busy);
                    }
                };
                self.install_ready()?;
                (Visited { end: self.place.next_number(), ..visited }, bytes)
            }
        };
        Ok(Moving::Slice { version: self.version(), next: Some(next.encode()), bytes })
    }

    /// Compactions that are due for it are due at any time.
    fn has_much_expired(&self, now: u64) -> bool {
        let now = self.judged_by(now);
        let version = self.current.load();
        let mut tables = version.runs.iter().flat_map(|run| run.tables.iter());
        tables.any(|table| table.record.expiring.is_some_and(|span| span.first <= now))
    }

    fn keep_from(&self, stamp: SeqNo) {
        self.kept_from.fetch_max(stamp.as_u64(), Ordering::AcqRel);
    }

    fn kept_from(&self) -> SeqNo {
        SeqNo::from_u64(self.kept_from.load(Ordering::Acquire))
    }

    fn give_up(&self) {
        let is_in_doubt = self.lock_writer().log.failure().is_some();
        if !is_in_doubt {
            self.lock_jobs().give_up(self);
        } // Else what an edit refers to that may be durable has to stay.
    }

    fn settle(&self) -> Result<()> {
        self.install_ready()?;
        self.lock_jobs().give_up(self);
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        if writer.edit_bytes_in_log > writer.log.position().offset / EDITS_AT_CLOSE_FRACTION {
            let index = writer.index.clone();
            match self.rotate_log(writer, &index, 0) {
                // Without room for a snapshot the edits are as good.
                Err(error) if writer.log.failure().is_some() => return Err(error),
                _ => {}
            }
        }
        writer.log.settle()
    }

    fn remove_unreferenced(&self) {
        self.place.remove_doomed();
    }

    fn check_index(&self, findings: &mut Findings) -> Box<dyn DataCheck> {
        let (index, log) = {
            let writer = self.lock_writer();
            (writer.index.clone(), check::IndexLog::of(&writer.log))
        };
        check::check_index(&index, &log, &self.place, findings);
        check::find_orphans(&index, &log, &self.place, findings);
        Box::new(check::TableCheck::new(&index, &self.place, &self.reader))
    }

    fn begin_check(&self) -> Box<dyn DataCheck> {
        let index = self.lock_writer().index.clone();
        Box::new(check::TableCheck::new(&index, &self.place, &self.reader))
    }

    /// Tables hold what they point to.
    fn image(&self) -> StoreImage {
        let writer = self.lock_writer();
        let index = &writer.index;
        let file_of = |table: &Arc<Table>| FileImage {
            path: table.path().to_owned(),
            size: table.record.size,
            is_written_to: false, // U5
        };
        let files = index.tables().map(|(_, table)| file_of(table)).collect();
        let values = index.value_bytes.keys().copied().collect();
        StoreImage::new(writer.log.image(), files, values, index.runs.clone())
    }

    fn stats(&self, now: u64) -> StructureStats {
        let now = self.judged_by(now);
        let (version, summary) = (self.current.load(), self.summary.load());
        let tables = || version.runs.iter().flat_map(|run| run.tables.iter());
        let spans = || tables().filter_map(|table| table.record.expiring.as_ref());
        let (blocks_read, block_bytes_read) = self.reader.caches.reads();
        let pinned = self.place.pinned_bytes();
        StructureStats {
            entry_count_max: tables().map(|table| table.record.entry_count).sum(),
            expiring: spans().map(|span| u64::from(span.count)).sum(),
            expired: spans().map(|span| span.expired_about(now)).sum(),
            intervals: 0,
            runs: version.runs.len() as u64,
            segments: summary.table_count as u64,
            segments_underused: 0,
            bytes_on_disk: summary.table_bytes + pinned + summary.log_capacity,
            bytes_live: summary.table_bytes,
            bytes_dead: pinned,
            bytes_pinned: pinned,
            bytes_in_holes: 0,
            bytes_shared_dead: 0,
            logical_bytes: summary.counters.logical_bytes,
            logical_bytes_before: self.counted_before.logical_bytes,
            segment_bytes_written: summary.counters.table_bytes,
            segment_bytes_since_open: summary.counters.table_bytes
                - self.counted_before.table_bytes,
            index_bytes_written: summary.index_bytes_written,
            flush_bytes: summary.written.flush,
            consolidation_bytes: summary.written.compaction,
            cleaning_bytes: summary.written.cleaning,
            ingest_bytes: summary.written.ingest,
            flushes: summary.counters.flush_count,
            consolidations: summary.compactions,
            blocks_read,
            block_bytes_read,
        }
    }

    fn tables(&self) -> Vec<TableInfo> {
        let version = self.current.load();
        let tables = version.runs.iter().flat_map(|run| {
            let place = run.place;
            run.tables.iter().map(move |table| (place, &table.record))
        });
        let info = |(place, record): (RunPlace, &TableRecord)| TableInfo {
            level: place.level,
            run: place.id,
            number: record.number,
            bytes: record.size,
            first: record.first.clone(),
            end: record.end.clone(),
            entries: record.entry_count,
            tombstones: record.tombstones,
            deleted_ranges: record.deleted_ranges,
            expiring: record.expiring.map_or(0, |span| span.count),
            logical_bytes: record.logical_bytes,
        };
        tables.map(info).collect()
    }

    fn stage(self: Arc<Self>) -> Box<dyn Staged> {
        Box::new(StagedTables::new(self))
    }
}
