//! The store of a Flex keyspace as the database sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use super::consolidation::IdleWalk;
use super::round::FlexRound;
use super::{EDITS_AT_CLOSE_FRACTION, FlexStore, IndexCheck, index_counts, index_memory};
use crate::base::{Cursor, RangeTombstones, Result, SeqNo};
use crate::cache::Part;
use crate::manifest::LogPosition;
use crate::operator::Merging;
use crate::seal::id_of;
use crate::storage::Storage;
use crate::structure::flex::build::Purpose;
use crate::structure::flex::check;
use crate::structure::flex::check::IndexLog;
use crate::structure::flex::flush::SliceEnd;
use crate::structure::flex::index::{Index, SegmentState};
use crate::structure::flex::ingest::StagedRuns;
use crate::structure::flex::record::Decoder;
use crate::structure::flex::sweep::has_much_expired;
use crate::structure::{
    BegunFlush, Compacted, Consolidation, DataCheck, Debt, FileImage, Findings, FlushOrder,
    FlushOutcome, KeySpan, Moving, Round, Staged, Stale, Store, StoreImage, StructureStats,
    Version,
};
use crate::value_log::Mover;

impl Store for FlexStore {
    fn version(&self) -> Arc<dyn Version> {
        self.current.load_full()
    }

    fn log_end(&self) -> u64 {
        self.current.load().summary.counters.log_end
    }

    fn last_seqno(&self) -> SeqNo {
        let writer = self.lock_writer();
        let begun = writer.index.begun.iter().map(|flush| flush.last_seqno);
        begun.fold(writer.index.counters.last_seqno, SeqNo::max)
    }

    fn merging(&self) -> &Arc<Merging> {
        self.loader.folder().merging()
    }

    fn begun_flushes(&self) -> Vec<BegunFlush> {
        self.lock_writer().index.begun.clone()
    }

    fn log_position(&self) -> LogPosition {
        self.current.load().summary.log_position
    }

    fn has_ingest_beside(&self, storage: &dyn Storage) -> Result<bool> {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        let counts_of = |edit: &[u8]| Decoder::edit(edit).map(|edit| index_counts(&edit.counters));
        let counts_in =
            |head: &[u8]| Decoder::header(head).map(|head| index_counts(&head.counters));
        beside.has_ingest(storage, counts_of, counts_in)
    }

    fn flushes_beside(&self) -> u64 {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner).flushes()
    }

    /// Costs about the bytes written: those of the entries, and of the intervals consolidated.
    fn flush(
        &self,
        memtable: &mut dyn Cursor,
        deleted: &RangeTombstones,
        order: FlushOrder,
    ) -> Result<FlushOutcome> {
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        let mut mover = Mover::new(&self.segments.values, BTreeSet::new());
        let result = self.flush_slice(writer, &mut mover, memtable, deleted, order);
        if result.is_err() {
            self.give_up(writer, &mut mover);
        }
        let (progress, taken_bytes) = result?;
        let version = self.publish(writer);
        let next = writer.resume.clone().unwrap_or_default();
        Ok(FlushOutcome { version, progress, taken_bytes, next })
    }

    fn value_bytes(&self) -> Arc<BTreeMap<u64, u64>> {
        Arc::clone(&self.current.load().value_bytes)
    }

    /// Flushes do all that has to be done.
    fn compact(&self, _: u64, _: u64) -> Result<Compacted> {
        Ok(Compacted::Nothing)
    }

    fn install(&self) -> Result<Option<Arc<dyn Version>>> {
        Ok(None)
    }

    fn debt(&self) -> Debt {
        Debt::default()
    }

    /// In key order from where the last call ended: intervals that have deltas, or runs in segments
    /// of which little is live, or of which enough has expired.
    fn consolidate(&self, slice_bytes: u64, now: u64) -> Result<Consolidation> {
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        if writer.resume.is_some() {
            return Ok(Consolidation::FlushUnderWay);
        }
        let mut mover = Mover::new(&self.segments.values, BTreeSet::new());
        let result = self.consolidate_slice(writer, &mut mover, slice_bytes, now);
        if result.is_err() {
            self.give_up(writer, &mut mover);
            writer.idle_walk = IdleWalk::default();
        }
        Ok(match result? {
            None => Consolidation::Nothing,
            Some(bytes) => Consolidation::Slice { version: self.publish(writer), bytes },
        })
    }

    /// Consolidates the intervals that point into the files, in key order; also between two slices
    /// of a flush, which goes on from a key and not from an interval.
    fn move_values(
        &self,
        mover: &mut Mover,
        from: &[u8],
        (slice_bytes, now): (u64, u64),
    ) -> Result<Moving> {
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        mover.work_for(self.segments.keyspace);
        let result = self.move_slice(writer, mover, from, (slice_bytes, now));
        if result.is_err() {
            self.give_up(writer, mover);
            writer.idle_walk = IdleWalk::default();
        }
        let Some((end, bytes)) = result? else { return Ok(Moving::Nothing) };
        let next = match end {
            SliceEnd::Complete => None,
            SliceEnd::At(key) => Some(key),
        };
        Ok(Moving::Slice { version: self.publish(writer), next, bytes })
    }

    /// Consolidates every interval that has deltas, or of which anything has expired.
    fn begin_round(self: Arc<Self>, span: KeySpan, now: u64) -> Box<dyn Round> {
        Box::new(FlexRound::begin(self, span, now))
    }

    fn begin_new_files(&self) -> Result<()> {
        let mut writer = self.lock_writer();
        writer.runs.close();
        writer.rotate_log(0)
    }

    fn begin_rewriting(self: Arc<Self>, stale: Stale<'_>, now: u64) -> Result<Box<dyn Round>> {
        let segments = self.lock_writer().index.segments();
        let mut old = BTreeSet::new();
        for segment in segments {
            segment.file()?;
            if stale.has(&segment.path, id_of(segment.key())) {
                old.insert(segment.number);
            }
        }
        Ok(Box::new(FlexRound::emptying(self, old, now)))
    }

    fn has_much_expired(&self, now: u64) -> bool {
        let version = self.current.load();
        let first = version.by_expiry.iter().take_while(|first| first.until() <= now);
        first
            .filter_map(|first| version.tree.get_key(first.anchor()))
            .any(|interval| has_much_expired(interval.expired_about(now), interval.entry_count()))
    }

    fn settle(&self) -> Result<()> {
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        if writer.edit_bytes_in_log > writer.log.position().offset / EDITS_AT_CLOSE_FRACTION {
            match writer.rotate_log(0) {
                // Without room for a snapshot the edits are as good.
                Err(error) if writer.log.failure().is_some() => return Err(error),
                _ => {}
            }
        }
        writer.log.settle()
    }

    /// Removes files, and makes holes in those that are partly live.
    fn remove_unreferenced(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.note_memory(); // Intervals of the versions that are gone.
        }
        self.segments.punch_holes();
        self.segments.remove_doomed();
    }

    fn check_index(&self, findings: &mut Findings) -> Box<dyn DataCheck> {
        let (index, log) = {
            let writer = self.lock_writer();
            (writer.index.clone(), IndexLog::of(&writer.log))
        };
        // It is read once more, from disk. What that takes stays with the allocator for a while.
        let second = self.loader.budget().charge(Part::Index, index_memory(&index));
        self.loader.make_room();
        check::check_index(&index, &log, &self.segments, findings);
        drop(second);
        check::find_orphans(&index, &log, &self.segments, findings);
        Box::new(self.check_of(index))
    }

    fn begin_check(&self) -> Box<dyn DataCheck> {
        Box::new(self.check_of(self.lock_writer().index.clone()))
    }

    /// The tree holds the runs, and these what they point to.
    fn image(&self) -> StoreImage {
        let writer = self.lock_writer();
        let index = &writer.index;
        let file_of = |state: &SegmentState| FileImage {
            path: state.segment.path.clone(),
            size: state.end,
            is_written_to: state.segment.is_written_to(),
        };
        let segments: Vec<_> = index.segments.values().map(|of| Arc::clone(&of.segment)).collect();
        let files = index.segments.values().map(file_of).collect();
        let values = index.value_bytes.keys().copied().collect();
        StoreImage::new(writer.log.image(), files, values, (index.tree.clone(), segments))
    }

    fn stats(&self, now: u64) -> StructureStats {
        let version = self.current.load();
        let (size, summary) = (version.tree.size(), version.summary);
        // A retired segment may count in both until the next version is handed out, and its holes
        // may be gone already.
        let segment_bytes = summary.segment_bytes + self.segments.pinned_bytes();
        let hole_bytes = self.segments.hole_bytes().min(segment_bytes);
        let taken = segment_bytes - hole_bytes;
        let (blocks_read, block_bytes_read) = self.loader.reads();
        StructureStats {
            entry_count_max: size.entries,
            expiring: size.expiring,
            expired: version.expired_about(now),
            intervals: version.tree.len() as u64,
            runs: size.runs,
            segments: summary.segment_count as u64,
            segments_underused: summary.sparse_segment_count as u64,
            bytes_on_disk: taken + summary.log_capacity,
            bytes_live: summary.live_bytes,
            bytes_dead: taken.saturating_sub(summary.live_bytes),
            bytes_pinned: self.segments.pinned_run_bytes(),
            bytes_in_holes: hole_bytes,
            bytes_shared_dead: self.segments.shared_dead_bytes(),
            logical_bytes: summary.counters.logical_bytes,
            logical_bytes_before: self.counted_before.logical_bytes,
            segment_bytes_written: summary.counters.segment_bytes,
            segment_bytes_since_open: summary.counters.segment_bytes
                - self.counted_before.segment_bytes,
            index_bytes_written: summary.index_bytes_written,
            flush_bytes: summary.written_for.bytes(Purpose::Flush),
            consolidation_bytes: summary.written_for.bytes(Purpose::Consolidation),
            cleaning_bytes: summary.written_for.bytes(Purpose::Cleaning),
            ingest_bytes: summary.ingested_bytes,
            flushes: summary.counters.flush_count,
            consolidations: summary.consolidations,
            blocks_read,
            block_bytes_read,
        }
    }

    fn stage(self: Arc<Self>) -> Box<dyn Staged> {
        Box::new(StagedRuns::new(self))
    }
}

impl FlexStore {
    /// What checks the data of an index.
    fn check_of(&self, index: Index) -> IndexCheck {
        let (keyspace, loader) = (self.segments.keyspace, Arc::clone(&self.loader));
        IndexCheck { index, keyspace, loader, values: Arc::clone(&self.segments.values) }
    }
}
