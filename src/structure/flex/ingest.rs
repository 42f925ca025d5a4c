//! Bulk ingest: sorted entries become runs in segments of their own, and then part of the index by
//! one edit.
//!
//! While entries come, runs are cut where intervals that have entries end, so that each will fit
//! into one interval, and at the size of an interval elsewhere. [`Staged::fit`] finds the place
//! of each run in the index as it is by then:
//!
//! | interval | what comes of the runs in it |
//! |---|---|
//! | has no entries | each is the base of an interval of its own |
//! | has entries, one small run | its newest delta; nothing is read |
//! | has entries, all in front of the runs | stays; the runs are bases of intervals behind it |
//! | has entries, otherwise | is cut at the runs |
//!
//! Where an interval is cut, what it has from one run to the next is written anew: as the base
//! below the run that it overlaps, or else as one of its own.
//!
//! A run over the end of an interval, which was split meanwhile, is cut and written anew. New
//! entries are never merged with older ones here: their stamp is not known before the edit is
//! made, and is said in it (I1).
//!
//! Invariants
//! - I1  All entries of a run of an ingest have one stamp, which the index has.
//! - I2  Until the edit, nothing refers to the runs; their segments are nobody else's.

use std::sync::Arc;

use super::build::{BaseCutter, RunWriter, Stream};
use super::index::Index;
use super::interval::{Interval, Run, separator};
use super::load::Loader;
use super::record::{ChangeRecord, Counters, EditRecord, IntervalRecord, RunRecord};
use super::segment::{Segment, SegmentPlace};
use super::store::{FlexStore, run_options};
use super::sweep::{DELTA_COUNT_MAX, DELTA_TO_BASE_MAX, MERGE_BYTES_MAX};
use super::tree::FlexTree;
use crate::base::{Cursor, EntryKind, EntryRef, Error, Result, SeqNo, Slice, successor};
use crate::block::{Block, BlockBuilder, BlockCursor, RestartPolicy};
use crate::structure::{KeySpan, Staged, Version};

/// Full segments of an ingest that the system is still writing.
const UNSYNCED_SEGMENTS_MAX: usize = 4;
/// The stamp of runs whose stamp is not known yet.
const STAMP_TO_COME: SeqNo = SeqNo::MAX;

/// Runs of sorted entries that nothing refers to (I2).
#[derive(Debug)]
pub(super) struct StagedRuns {
    store: Arc<FlexStore>,
    writer: RunWriter,
    /// Of the run at hand.
    builder: BlockBuilder,
    first_key: Vec<u8>,
    /// Where the interval ends that the run at hand is to fit into.
    limit: Option<Slice>,
    runs: Vec<StagedRun>,
    /// Segments that are durable and closed, and where they end.
    segments: Vec<(u64, u64)>,
    logical_bytes: u64,
    target: usize,
    /// Where the runs belong, as long as the index does not change.
    fitted: Option<Fitted>,
}

/// A run, or what of one lies in an interval.
#[derive(Clone, Debug)]
struct StagedRun {
    first: Slice,
    last: Slice,
    record: RunRecord,
}

/// Where staged runs belong, as long as the index does not change.
#[derive(Debug)]
struct Fitted {
    tree: FlexTree<Arc<Interval>>,
    changes: Vec<ChangeRecord>,
}

impl StagedRuns {
    /// An ingest into the store.
    pub(super) fn new(store: Arc<FlexStore>) -> StagedRuns {
        let options = run_options(&store.options);
        let writer = RunWriter::new(Arc::clone(&store.segments), options, store.loader.budget());
        StagedRuns {
            store,
            writer,
            builder: BlockBuilder::new(RestartPolicy::Adaptive),
            first_key: Vec::new(),
            limit: None,
            runs: Vec::new(),
            segments: Vec::new(),
            logical_bytes: 0,
            target: options.interval_size,
            fitted: None,
        }
    }

    /// Makes what was written durable; what comes goes to new segments.
    fn sync(&mut self) -> Result<()> {
        self.writer.close();
        self.segments.extend(self.writer.sync()?);
        Ok(())
    }

    /// Ends the run at hand.
    fn cut(&mut self) -> Result<()> {
        if self.builder.is_empty() {
            return Ok(());
        }
        let last = Slice::from(self.builder.last_key());
        let record = write_staged(&mut self.writer, &mut self.builder)?;
        self.runs.push(StagedRun { first: Slice::from(self.first_key.as_slice()), last, record });
        self.writer.sync_full(UNSYNCED_SEGMENTS_MAX)
    }
}

/// Writes entries whose stamp is to come.
fn write_staged(writer: &mut RunWriter, builder: &mut BlockBuilder) -> Result<RunRecord> {
    let record = writer.write(Stream::Base, builder, 0)?;
    Ok(RunRecord { stamp: Some(STAMP_TO_COME), ..record })
}

impl Staged for StagedRuns {
    #[inline]
    fn is_full_for(&self, key: &[u8], value_len: usize) -> bool {
        if self.builder.is_empty() {
            return true; // It is not known yet where its interval ends.
        }
        self.builder.estimated_size() + key.len() + value_len > self.target
            || self.limit.as_ref().is_some_and(|limit| key >= &**limit)
    }

    fn end_part(&mut self, next_key: &[u8]) -> Result<()> {
        self.cut()?;
        let is_inside = self.limit.as_ref().is_some_and(|limit| next_key < &**limit);
        if is_inside {
            return Ok(());
        }
        let version = self.store.current.load();
        let tree = &version.tree;
        // An interval without entries takes any number of runs, and so may its neighbour.
        self.limit = match tree.find_key(next_key) {
            Some((index, _)) => tree.get(index + 1).map(|next| next.anchor.clone()),
            None => None,
        };
        Ok(())
    }

    #[inline]
    fn add(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        debug_assert!(kind != EntryKind::Tombstone, "X3");
        if self.builder.is_empty() {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.logical_bytes += (key.len() + value.len()) as u64;
        self.builder.add(EntryRef { key, seqno: SeqNo::ZERO, kind, value })
    }

    /// Cuts and reads what the table above says; cheap where the key space was empty.
    fn fit(&mut self) -> Result<()> {
        self.cut()?;
        let tree = self.store.lock_writer().index.tree.clone();
        self.sync()?; // What is cut is read.
        let fitting = Fitting {
            tree: &tree,
            loader: &self.store.loader,
            place: &self.store.segments,
            writer: &mut self.writer,
            changes: Vec::new(),
        };
        let changes = fitting.run(&self.runs)?;
        self.sync()?; // X4
        self.fitted = Some(Fitted { tree, changes });
        Ok(())
    }

    fn spans(&self) -> Vec<KeySpan> {
        let span = |run: &StagedRun| (run.first.clone(), Some(Slice::from(successor(&run.last))));
        self.runs.iter().map(span).collect()
    }

    fn commit(&mut self, seqno: SeqNo) -> Result<Arc<dyn Version>> {
        let Some(Fitted { tree, mut changes }) = self.fitted.take() else {
            return Err(Error::invalid("an ingest is fitted before it is committed"));
        };
        let store = Arc::clone(&self.store);
        let mut guard = store.lock_writer();
        let writer = &mut *guard;
        assert!(tree.is_same_version(&writer.index.tree), "the caller has the turn to flush");
        drop(tree); // Shared, it would be copied.
        let new_runs = changes.iter_mut().flat_map(ChangeRecord::runs_mut);
        for run in new_runs.filter(|run| run.stamp == Some(STAMP_TO_COME)) {
            run.stamp = Some(seqno); // I1
        }
        let counters = counters_with(&writer.index, self, store.segments.next_number(), seqno);
        let sweep_from = writer.index.sweep_from.clone();
        let segments = self.segments.clone();
        let begun = writer.index.begun.clone();
        let edit = EditRecord { counters, sweep_from, begun, segments, changes };
        let committed = store.commit(writer, &edit);
        if committed.is_err() && writer.log.failure().is_some() {
            self.writer.note_listed(); // S3: the edit that refers to them may be durable.
        }
        committed?;
        self.writer.note_listed();
        writer.ingested_bytes += self.writer.bytes_written();
        self.runs = Vec::new();
        Ok(store.publish(writer))
    }

    fn discard(mut self: Box<Self>) {
        for number in self.writer.abandon() {
            let _orphan_if_it_fails = self.store.segments.remove_orphan(number);
        }
    }
}

fn counters_with(index: &Index, staged: &StagedRuns, next_segment: u64, seqno: SeqNo) -> Counters {
    let counters = index.counters;
    Counters {
        logical_bytes: counters.logical_bytes + staged.logical_bytes,
        segment_bytes: counters.segment_bytes + staged.writer.bytes_written(),
        next_segment,
        last_seqno: counters.last_seqno.max(seqno),
        ..counters
    }
}

/// Staged runs on their way into the index. Nothing of the store changes here.
struct Fitting<'a> {
    tree: &'a FlexTree<Arc<Interval>>,
    loader: &'a Loader,
    place: &'a Arc<SegmentPlace>,
    writer: &'a mut RunWriter,
    changes: Vec<ChangeRecord>,
}

impl Fitting<'_> {
    fn run(mut self, runs: &[StagedRun]) -> Result<Vec<ChangeRecord>> {
        let tree = self.tree;
        let find = |key: &[u8]| tree.find_key(key).map_or(0, |(index, _)| index);
        let limit_of = |index: usize| tree.get(index + 1).map(|next| &next.anchor);
        let mut at = 0;
        let mut pieces: Vec<StagedRun> = Vec::new();
        for run in runs {
            let index = find(&run.first);
            if index != at {
                self.put(at, std::mem::take(&mut pieces))?;
                at = index;
            }
            if limit_of(at).is_none_or(|limit| run.last < *limit) {
                pieces.push(run.clone());
                continue;
            }
            let mut cursor = BlockCursor::new(self.read(run)?);
            cursor.seek_first()?;
            while let Some(key) = cursor.key() {
                let index = find(key);
                if index != at {
                    self.put(at, std::mem::take(&mut pieces))?;
                    at = index;
                }
                pieces.push(self.cut_piece(&mut cursor, limit_of(at).map(|limit| &**limit))?);
            }
        }
        self.put(at, pieces)?;
        Ok(self.changes)
    }

    fn read(&self, run: &StagedRun) -> Result<Arc<Block>> {
        let record = &run.record;
        let end = record.offset + u64::from(record.len);
        self.loader.read_run(&Run {
            segment: Segment::existing(self.place, record.segment, end),
            offset: record.offset,
            len: record.len,
            checksum: record.checksum,
            entry_count: record.entry_count,
            level: record.level,
            stamp: None,
            value_files: None,
            expiring: None,
            slot: None,
            memory: Arc::default(),
        })
    }

    /// Writes the entries from the cursor on that are below `limit`; there are some.
    fn cut_piece(&mut self, cursor: &mut BlockCursor, limit: Option<&[u8]>) -> Result<StagedRun> {
        let mut builder = BlockBuilder::new(RestartPolicy::Adaptive);
        let first = Slice::from(cursor.key().expect("the cursor is on an entry"));
        while let Some(entry) = cursor.entry() {
            if limit.is_some_and(|limit| entry.key >= limit) {
                break;
            }
            builder.add(entry)?;
            cursor.next()?;
        }
        let last = Slice::from(builder.last_key());
        Ok(StagedRun { first, last, record: write_staged(self.writer, &mut builder)? })
    }

    /// Puts runs, all of whose keys are of the interval at `index`, into the index.
    fn put(&mut self, index: usize, pieces: Vec<StagedRun>) -> Result<()> {
        let Some(first) = pieces.first() else { return Ok(()) };
        let interval = self.tree.get(index).expect("the search stays within the tree");
        if interval.run_count() == 0 {
            let mut woven = Woven::new(interval.anchor.clone());
            pieces.into_iter().for_each(|piece| woven.push(piece, None));
            self.changes.push(woven.in_place_of(index..index + 1));
            return Ok(());
        }
        if pieces.len() == 1 && is_delta(interval, &first.record) {
            let run = first.record.clone();
            self.changes.push(ChangeRecord::Delta { index, replaced: 0, run });
            return Ok(());
        }
        let mut old = BlockCursor::new(self.loader.block_in_passing(interval)?);
        // A base run has no tombstones; deltas may have some beyond its last entry.
        if interval.only_base().is_some() {
            old.seek_last()?;
            if let Some(last) = old.key().filter(|last| *last < &*first.first) {
                let mut woven = Woven::new(separator(last, &first.first));
                pieces.into_iter().for_each(|piece| woven.push(piece, None));
                self.changes.push(woven.in_place_of(index + 1..index + 1));
                return Ok(());
            }
        }
        let woven = self.weave(interval, old, pieces)?;
        self.changes.push(woven.in_place_of(index..index + 1));
        Ok(())
    }

    /// Cuts an interval at the runs that come into it.
    fn weave(
        &mut self,
        interval: &Interval,
        mut old: BlockCursor,
        pieces: Vec<StagedRun>,
    ) -> Result<Woven> {
        let mut woven = Woven::new(interval.anchor.clone());
        old.seek_first()?;
        skip_tombstones(&mut old)?;
        self.write_old(&mut old, &mut woven, pieces.first().map(|piece| &*piece.first))?;
        let mut pieces = pieces.into_iter().peekable();
        while let Some(piece) = pieces.next() {
            let limit = pieces.peek().map(|next| &*next.first);
            if old.key().is_none_or(|key| key > &*piece.last) {
                woven.push(piece, None);
                self.write_old(&mut old, &mut woven, limit)?;
                continue;
            }
            let mut below = BlockBuilder::new(RestartPolicy::Adaptive);
            while let Some(entry) = old.entry() {
                if limit.is_some_and(|limit| entry.key >= limit) {
                    break;
                }
                below.add(entry)?;
                old.next()?;
                skip_tombstones(&mut old)?;
            }
            let last = Slice::from(below.last_key());
            let base = self.writer.write(Stream::Base, &mut below, 0)?;
            woven.push(piece, Some((base, last)));
        }
        Ok(woven)
    }

    /// Writes what an interval has below `limit` as base runs.
    fn write_old(
        &mut self,
        old: &mut BlockCursor,
        woven: &mut Woven,
        limit: Option<&[u8]>,
    ) -> Result<()> {
        let is_below = |key: &[u8]| limit.is_none_or(|limit| key < limit);
        let Some(first) = old.key().filter(|key| is_below(key)) else { return Ok(()) };
        let target = self.writer.options().interval_size;
        let mut cutter = BaseCutter::new(woven.next_anchor(first), target);
        while let Some(entry) = old.entry().filter(|entry| is_below(entry.key)) {
            woven.last_key.clear();
            woven.last_key.extend_from_slice(entry.key);
            cutter.add(entry, self.writer)?;
            old.next()?;
            skip_tombstones(old)?;
        }
        for (anchor, base) in cutter.finish(self.writer)? {
            woven.intervals.push(IntervalRecord { anchor, base, deltas: Vec::new() });
        }
        Ok(())
    }
}

/// Whether a run is to be a delta of an interval that has entries: few enough bytes, which are
/// consolidated in their time.
fn is_delta(interval: &Interval, run: &RunRecord) -> bool {
    let deltas = interval.delta_bytes() + u64::from(run.len);
    interval.deltas.len() < DELTA_COUNT_MAX
        && deltas <= interval.base_bytes() * DELTA_TO_BASE_MAX
        && interval.base_bytes() + deltas < MERGE_BYTES_MAX
}

/// A block may be one run of an interval, with its tombstones.
fn skip_tombstones(cursor: &mut BlockCursor) -> Result<()> {
    while cursor.key().is_some() && cursor.is_tombstone() {
        cursor.next()?;
    }
    Ok(())
}

/// Intervals in place of one.
struct Woven {
    intervals: Vec<IntervalRecord>,
    anchor: Slice,
    /// The last key so far.
    last_key: Vec<u8>,
}

impl Woven {
    /// The first of them begins at `anchor`.
    fn new(anchor: Slice) -> Woven {
        Woven { intervals: Vec::new(), anchor, last_key: Vec::new() }
    }

    fn next_anchor(&self, first_key: &[u8]) -> Slice {
        match self.intervals.is_empty() {
            true => self.anchor.clone(),
            false => separator(&self.last_key, first_key),
        }
    }

    /// Adds an interval of a staged run, above a base of older entries if there is one (X2).
    fn push(&mut self, piece: StagedRun, below: Option<(RunRecord, Slice)>) {
        let anchor = self.next_anchor(&piece.first);
        let last = below.as_ref().map_or(&piece.last, |(_, last)| last.max(&piece.last));
        self.last_key.clear();
        self.last_key.extend_from_slice(last);
        self.intervals.push(match below {
            Some((base, _)) => {
                IntervalRecord { anchor, base: Some(base), deltas: vec![piece.record] }
            }
            None => IntervalRecord { anchor, base: Some(piece.record), deltas: Vec::new() },
        });
    }

    fn in_place_of(self, range: std::ops::Range<usize>) -> ChangeRecord {
        ChangeRecord::Insert { range, intervals: self.intervals }
    }
}
