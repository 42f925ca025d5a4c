//! The store of one Flex keyspace: its current version, and the one place that changes it.

mod consolidation;
mod round;
mod seam;

use std::collections::{BTreeMap, BTreeSet};

use super::build::{RunOptions, RunWriter, WrittenFor};
use super::cursor::FlexCursor;
use super::flush::{Ripe, SliceEnd, Slicer};
use super::holes::HoleRule;
use super::index::{FirstExpiry, Index};
use super::interval::Interval;
use super::load::Loader;
use super::record::{ChangeRecord, Counters, Decoder, EditRecord, Encoder};
use super::segment::{SegmentPlace, SharedFiles, missing};
use super::sweep::{Sweep, fan_in_for};
use super::tree::FlexTree;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::ArcSwap;
use crate::base::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use crate::base::{Cursor, Error, ExpirySpan, KeyRange, RangeTombstones, Result, SeqNo, Slice};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::manifest::{EditLog, KeyspaceOptions, LogPosition};
use crate::storage::unless_held_back;
use crate::structure::beside::{BesideIndex, IndexCounts};
use crate::structure::fold::Folder;
use crate::structure::source::Source;
use crate::structure::{
    BegunFlush, CheckWalk, DataCheck, Findings, FlushOrder, FlushProgress, Found, Reduction,
    StorePlace, StructureCursor, Version, Want,
};
use crate::value_log::{Mover, ValueLog};

use consolidation::IdleWalk;

/// When a store is closed, edits that take more of the index log's file than the rest over this are
/// replaced by a snapshot.
const EDITS_AT_CLOSE_FRACTION: u64 = 4;

/// A Flex keyspace's structure. Reads go to versions and lock nothing; one flush at a time.
#[derive(Debug)]
pub struct FlexStore {
    // Constant after opening.
    pub(super) segments: Arc<SegmentPlace>,
    pub(super) loader: Arc<Loader>,
    pub(super) options: KeyspaceOptions,
    /// What was counted before it was opened.
    counted_before: Counters,
    // Replaced whole.
    pub(super) current: ArcSwap<FlexVersion>,
    // Guarded by their locks.
    writer: Mutex<Writer>,
    /// For who reads it beside its writer.
    beside: Mutex<BesideIndex>,
}

/// What a flush changes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) index: Index,
    pub(super) log: EditLog,
    runs: RunWriter,
    sweep: Sweep,
    /// Where the flush at hand goes on; `None` between flushes.
    resume: Option<Slice>,
    /// Where [`FlexStore::consolidate`] is.
    idle_walk: IdleWalk,
    consolidations: u64,
    index_bytes_written: u64,
    /// Bytes of runs that ingests wrote.
    pub(super) ingested_bytes: u64,
    /// Of edits written since opening, in the file that the index log is in.
    edit_bytes_in_log: u64,
    /// The index's share of the memory budget.
    charge: Charge,
}

/// What a slice has done and nobody sees yet.
struct SliceDone {
    changes: Vec<ChangeRecord>,
    consolidations: u64,
    /// Key and value bytes taken from the memtable.
    logical_bytes: u64,
    /// What the writer of runs had written before.
    bytes_before: u64,
}

/// An immutable state of the store.
#[derive(Clone, Debug)]
pub(super) struct FlexVersion {
    pub(super) tree: FlexTree<Arc<Interval>>,
    pub(super) loader: Arc<Loader>,
    /// Of the index (X10).
    pub(super) by_expiry: FlexTree<FirstExpiry>,
    summary: Summary,
    /// Of the index.
    value_bytes: Arc<BTreeMap<u64, u64>>,
    /// Dead entries in front of each interval with deltas; made when many of those are counted.
    pub(super) dead_in_front: OnceLock<Vec<u64>>,
}

/// What others ask about the newest version, so that nobody waits for a flush to learn it.
#[derive(Clone, Copy, Debug)]
struct Summary {
    counters: Counters,
    log_position: LogPosition,
    log_capacity: u64,
    segment_count: usize,
    /// Bytes of segments that the index refers to.
    segment_bytes: u64,
    live_bytes: u64,
    consolidations: u64,
    index_bytes_written: u64,
    ingested_bytes: u64,
    /// Bytes written to segments since opening, by ingests not.
    written_for: WrittenFor,
    /// Segments of which little is live.
    sparse_segment_count: usize,
}

impl Writer {
    /// Has the index charged as what it takes now.
    fn note_memory(&mut self) {
        self.charge.resize(index_memory(&self.index));
    }

    /// Goes on in a new file of the index log, with room for an edit of `edit_len` bytes.
    fn rotate_log(&mut self, edit_len: usize) -> Result<()> {
        self.index.rotate(&mut self.log, edit_len)?;
        self.edit_bytes_in_log = 0;
        self.index_bytes_written += self.log.position().offset;
        let _removed_by_the_next_one = self.log.remove_older();
        Ok(())
    }

    fn summary(&self) -> Summary {
        Summary {
            counters: self.index.counters,
            log_position: self.log.position(),
            log_capacity: self.log.capacity(),
            segment_count: self.index.segments.len(),
            segment_bytes: self.index.segments.values().map(|state| state.end).sum(),
            live_bytes: self.index.live_bytes(),
            consolidations: self.consolidations,
            index_bytes_written: self.index_bytes_written,
            ingested_bytes: self.ingested_bytes,
            written_for: self.runs.written_for(),
            sparse_segment_count: self.index.sparse_segment_count(),
        }
    }
}

impl FlexStore {
    /// Makes the durable form of an empty store in an existing, empty directory.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub fn create(place: &StorePlace) -> Result<()> {
        let storage = Arc::clone(&place.storage);
        Index::create_log(storage, &segment_place(place)).map(drop)
    }

    /// Opens a store. Reads the index, never the data; removes files that nothing refers to.
    /// `required` is how far its index log is known to be durable.
    ///
    /// # Errors
    /// `Corruption` when the index is damaged or a segment is missing, `FormatVersion`, `Io`.
    pub fn open(place: &StorePlace, required: Option<LogPosition>) -> Result<FlexStore> {
        let segments = segment_place(place);
        let (index, log, _) = Index::open(&segments, required)?;
        let orphans = orphans_of(&segments, &index)?;
        unless_held_back(log.remove_older())?;
        for &number in &orphans {
            unless_held_back(segments.remove_orphan(number))?;
        }
        let folder = Folder::new(place);
        let loader = Arc::new(Loader::new(&place.shared, folder));
        // A file that was created and never referred to has used its number up.
        let newest_orphan = orphans.last().copied().unwrap_or(0);
        segments.skip_to(index.counters.next_segment.max(newest_orphan + 1));
        let sweep = Sweep { from: index.sweep_from.clone(), ..Sweep::default() };
        let budget: &Arc<MemoryBudget> = place.shared.cache.budget();
        let charge = budget.charge(Part::Index, index_memory(&index));
        let options = run_options(&place.options);
        let runs = RunWriter::new(Arc::clone(&segments), options, budget);
        let beside = BesideIndex::new(log.found().cloned(), index_counts(&index.counters));
        let writer = Writer {
            index,
            log,
            runs,
            sweep,
            resume: None,
            idle_walk: IdleWalk::default(),
            consolidations: 0,
            index_bytes_written: 0,
            ingested_bytes: 0,
            edit_bytes_in_log: 0,
            charge,
        };
        Ok(FlexStore {
            segments,
            current: ArcSwap::from_pointee(version_of(&writer, &loader)),
            loader,
            options: place.options.clone(),
            counted_before: writer.index.counters,
            writer: Mutex::new(writer),
            beside: Mutex::new(beside),
        })
    }

    /// Decodes index records, for fuzzers.
    pub(crate) fn fuzz_records(bytes: &[u8]) {
        if let Some(edit) = Decoder::edit(bytes) {
            let again = Decoder::edit(&Encoder::edit(&edit));
            assert_eq!(again.as_ref(), Some(&edit), "what was decoded encodes to the same");
        }
        let _ = (Decoder::header(bytes), Decoder::intervals(bytes));
    }

    fn flush_slice(
        &self,
        writer: &mut Writer,
        mover: &mut Mover,
        memtable: &mut dyn Cursor,
        deleted: &RangeTombstones,
        order: FlushOrder,
    ) -> Result<(FlushProgress, u64)> {
        let mut sweep = writer.sweep.clone();
        let position = match &writer.resume {
            Some(key) => {
                memtable.seek(key)?;
                writer.index.tree.find_key(key).map_or(0, |(index, _)| index)
            }
            None => {
                memtable.seek_first()?;
                let bytes = (order.memtable_bytes, order.value_bytes);
                sweep.begin_flush(bytes, self.options.consolidation_pace);
                0
            }
        };
        let bytes_before = writer.runs.bytes_written();
        let budget = self.loader.budget();
        let index_bytes = budget.usage(Part::Index);
        let ripe = Ripe::new(writer.index.ripe_from(position, order.now, order.slice_bytes));
        // As values were moved, the first interval may begin in front of where this goes on: what
        // it has there is newer than the deletions.
        let rest = writer.resume.as_ref().map(|key| deleted.behind(key));
        let mut source = Source::new(memtable, rest.as_ref().unwrap_or(deleted), order.now)?;
        let mut slicer = Slicer::new(
            &writer.index.tree,
            &self.loader,
            &mut writer.runs,
            &mut sweep,
            mover,
            (fan_in_for(self.options.delta_fan_in, index_bytes, budget.limit()), order.now),
        );
        let end = slicer.run(&mut source, position, ripe, order.slice_bytes)?;
        let done = SliceDone {
            changes: slicer.changes,
            consolidations: slicer.consolidations,
            logical_bytes: source.logical_bytes,
            bytes_before,
        };
        let taken_bytes = source.logical_bytes;
        self.commit_slice(writer, done, sweep, mover, Some((&end, order)))?;
        let (resume, progress) = match end {
            SliceEnd::Complete => (None, FlushProgress::Complete),
            SliceEnd::At(key) => (Some(key), FlushProgress::Partial),
        };
        writer.resume = resume;
        Ok((progress, taken_bytes))
    }

    /// Makes durable and applies what a slice has done (X4). `flush` is the order of the flush that
    /// it is of, and how far that has come.
    fn commit_slice(
        &self,
        writer: &mut Writer,
        done: SliceDone,
        sweep: Sweep,
        mover: &mut Mover,
        flush: Option<(&SliceEnd, FlushOrder)>,
    ) -> Result<()> {
        if mover.bytes() > 0 {
            mover.finish_slice()?; // X7
        }
        let segments = writer.runs.sync()?; // X4
        let counters = writer.index.counters;
        let written = writer.runs.bytes_written() - done.bytes_before;
        let mut edit = EditRecord {
            counters: Counters {
                logical_bytes: counters.logical_bytes + done.logical_bytes,
                segment_bytes: counters.segment_bytes + written,
                next_segment: self.segments.next_number(),
                ..counters
            },
            sweep_from: sweep.from.clone(),
            begun: writer.index.begun.clone(),
            segments,
            changes: done.changes,
        };
        if let Some((end, order)) = flush {
            note_begun(&mut edit.begun, end, order.last_seqno);
        }
        if let Some((SliceEnd::Complete, order)) = flush {
            edit.counters.flush_count += 1;
            edit.counters.log_end = order.log_end;
            edit.counters.last_seqno = counters.last_seqno.max(order.last_seqno);
        }
        self.commit(writer, &edit)?;
        mover.note_held();
        writer.sweep = sweep;
        writer.consolidations += done.consolidations;
        Ok(())
    }

    /// Makes the writer's state the newest version.
    pub(super) fn publish(&self, writer: &mut Writer) -> Arc<dyn Version> {
        writer.note_memory();
        self.loader.make_room();
        let version = Arc::new(version_of(writer, &self.loader));
        self.current.store(Arc::clone(&version));
        version
    }

    /// After a failed slice: gives back the room of the runs and values that it wrote, or a full
    /// disk would stay full however often it is tried again.
    fn give_up(&self, writer: &mut Writer, mover: &mut Mover) {
        let unlisted = writer.runs.abandon();
        if writer.log.failure().is_some() {
            return; // S3, V3: the edit that refers to them may be durable.
        }
        mover.take_back();
        for number in unlisted {
            let _orphan_if_it_fails = self.segments.remove_orphan(number);
        }
    }

    /// Makes an edit durable and applies it.
    pub(super) fn commit(&self, writer: &mut Writer, edit: &EditRecord) -> Result<()> {
        let bytes = Encoder::edit(edit);
        if bytes.len() > EditLog::EDIT_LEN_MAX {
            return self.commit_in_snapshot(writer, edit);
        }
        let is_rotated = !writer.log.fits(bytes.len());
        if is_rotated {
            writer.rotate_log(bytes.len())?;
        }
        if !is_rotated || !is_seeded(Bug::EditLostAtRotation) {
            writer.log.append(&bytes)?;
        }
        writer.edit_bytes_in_log += EditLog::edit_size(bytes.len());
        writer.index_bytes_written += EditLog::edit_size(bytes.len());
        writer.runs.note_listed();
        let keep = writer.runs.open_segments();
        let losses = writer.index.apply(edit, &self.segments, &keep);
        losses.expect("the edit was made from this very index").take_effect();
        Ok(())
    }

    /// Makes an edit durable that is too long for the log, as one with many long anchors is: as
    /// part of a new snapshot, whose parts are short.
    fn commit_in_snapshot(&self, writer: &mut Writer, edit: &EditRecord) -> Result<()> {
        let mut next = writer.index.clone();
        let losses = next.apply(edit, &self.segments, &writer.runs.open_segments());
        let losses = losses.expect("the edit was made from this very index");
        std::mem::swap(&mut writer.index, &mut next);
        if let Err(error) = writer.rotate_log(0) {
            writer.index = next;
            return Err(error);
        }
        writer.runs.note_listed();
        losses.take_effect(); // Only now is the edit durable.
        Ok(())
    }

    pub(super) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        // A panic in a flush leaves the index as it was: changes are applied last, at once.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index_counts(counters: &Counters) -> IndexCounts {
    IndexCounts { flush_count: counters.flush_count, last_seqno: counters.last_seqno }
}

/// X8: what a flush of a memtable with this newest stamp has come to.
fn note_begun(begun: &mut Vec<BegunFlush>, end: &SliceEnd, last_seqno: SeqNo) {
    match end {
        SliceEnd::Complete => begun.retain(|flush| flush.last_seqno > last_seqno),
        SliceEnd::At(to) => {
            begun.retain(|flush| flush.last_seqno > last_seqno || flush.to > *to);
            begun.push(BegunFlush { to: to.clone(), last_seqno });
        }
    }
}

fn version_of(writer: &Writer, loader: &Arc<Loader>) -> FlexVersion {
    let (tree, loader) = (writer.index.tree.clone(), Arc::clone(loader));
    let value_bytes = Arc::new(writer.index.value_bytes.clone());
    let by_expiry = writer.index.by_expiry.clone();
    let (summary, dead_in_front) = (writer.summary(), OnceLock::new());
    FlexVersion { tree, loader, by_expiry, summary, value_bytes, dead_in_front }
}

/// An index that was checked; its data is still to be.
#[derive(Debug)]
pub struct IndexCheck {
    index: Index,
    keyspace: u32,
    loader: Arc<Loader>,
    values: Arc<ValueLog>,
}

impl DataCheck for IndexCheck {
    /// Reads and verifies every run; places are keys.
    fn check_data(&self, findings: &mut Findings, walk: &mut dyn CheckWalk) {
        let IndexCheck { index, keyspace, loader, values } = self;
        super::check::check_data(index, *keyspace, (loader, values), findings, walk);
    }
}

/// Segment files that the index does not refer to, ascending.
///
/// # Errors
/// `Corruption` when a segment that it refers to is not there; `Io`.
fn orphans_of(segments: &SegmentPlace, index: &Index) -> Result<Vec<u64>> {
    let present: BTreeSet<u64> = segments.numbers()?.into_iter().collect();
    let absent = index.segments.keys().find(|number| !present.contains(number));
    if let Some(&number) = absent {
        return Err(missing(&segments.dir, number));
    }
    Ok(present.into_iter().filter(|number| !index.segments.contains_key(number)).collect())
}

/// How runs of a keyspace with these options are written.
pub(super) fn run_options(options: &KeyspaceOptions) -> RunOptions {
    RunOptions {
        codec: options.codec,
        segment_size: u64::from(options.segment_size),
        interval_size: options.interval_size as usize,
    }
}

pub(super) fn segment_place(place: &StorePlace) -> Arc<SegmentPlace> {
    let storage = Arc::clone(&place.storage);
    let open = Arc::clone(&place.shared.open_segments);
    let rule = HoleRule::for_segments_of(u64::from(place.options.segment_size));
    let shared = SharedFiles { open, values: Arc::clone(&place.shared.values) };
    SegmentPlace::new(storage, place.dir.clone(), place.database, place.keyspace, rule, shared)
}

/// Bytes of memory of an index, about, with the intervals that only older versions hold; without
/// the guides of runs, which are charged one by one.
fn index_memory(index: &Index) -> usize {
    const SHARE_BYTES: usize = size_of::<(Arc<()>, u64)>();
    const EXPIRY_BYTES: usize = 2 * size_of::<FirstExpiry>() + size_of::<ExpirySpan>();
    let expiries = index.by_expiry.len() * EXPIRY_BYTES;
    index.memory.bytes() + index.share_count * SHARE_BYTES + expiries
}

impl Version for FlexVersion {
    fn find(&self, key: &[u8], want: Want) -> Result<Option<Found>> {
        let interval = self.tree.get_key(key).ok_or_else(no_first_interval)?;
        self.loader.find(interval, key, want)
    }

    fn find_many(&self, keys: &[&[u8]], found: &mut [Option<Found>]) -> Result<()> {
        self.find_ascending(keys, found)
    }

    fn cursor(&self, _: &KeyRange) -> Box<dyn StructureCursor> {
        Box::new(FlexCursor::new(Arc::clone(&self.loader), self.tree.clone()))
    }

    fn count(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64> {
        self.live_between(start, end, now)
    }

    fn reduced(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        reduction: &mut dyn Reduction,
    ) -> Result<Option<Slice>> {
        FlexVersion::reduced(self, start, end, reduction)
    }

    fn part_around(&self, key: &[u8]) -> (Slice, Option<Slice>) {
        let Some((place, interval)) = self.tree.find_key(key) else {
            return (Slice::default(), None);
        };
        let end = self.tree.get(place + 1).map(|next| next.anchor.clone());
        (interval.anchor.clone(), end)
    }

    fn expiring_count(&self) -> u64 {
        self.tree.size().expiring
    }

    fn entries_at_most(&self) -> u64 {
        self.tree.size().entries
    }

    fn entries_in_front(&self, key: &[u8]) -> u64 {
        self.entries_before_interval_of(key)
    }

    fn anchor_near(&self, position: u64) -> Slice {
        self.interval_near(position)
    }
}

/// X1 says that the first anchor is the empty key, so every key has an interval.
#[cold]
pub(super) fn no_first_interval() -> Error {
    Error::invalid("the index has no interval for the key")
}
