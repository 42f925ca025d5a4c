//! The index: the tree of intervals and the segments it refers to, and their durable form.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::interval::{Interval, IntervalMemory, Run, RunRole};
use super::record::{
    ChangeRecord, Counters, Decoder, EditRecord, Encoder, IntervalParts, IntervalRecord, RunRecord,
};
use super::segment::{HEADER_LEN, Segment, SegmentPlace};
use super::sweep::{is_mostly_expired, is_sparse};
use super::tree::{FlexTree, Item, KeyGuide, Keyed};
use crate::base::{Error, Result, Slice};
use crate::manifest::read_edit_log;
use crate::manifest::{EditLog, EditLogId, LogPosition, OpenReport, Record, RecordRef};
use crate::storage::Storage;
use crate::structure::BegunFlush;
use crate::value_log::ValueLog;

/// Tells index logs from the other edit logs.
const LOG_KIND: u32 = 2;
const LOG_STEM: &str = "index";
/// Room for edits behind a snapshot, at least.
const EDIT_ROOM_MIN: u64 = 32 << 10;

/// What is known about a segment that the index refers to.
#[derive(Clone, Debug)]
pub(super) struct SegmentState {
    pub segment: Arc<Segment>,
    /// Where its last frame ends.
    pub end: u64,
    /// Bytes of runs that the newest version points to.
    pub live_bytes: u64,
}

/// The state of a keyspace's structure, as of the last durable edit.
#[derive(Clone, Debug)]
pub(super) struct Index {
    pub tree: FlexTree<Arc<Interval>>,
    pub segments: BTreeMap<u64, SegmentState>,
    pub counters: Counters,
    pub sweep_from: Vec<u8>,
    /// Memtables that are in the structure in part (X8).
    pub begun: Vec<BegunFlush>,
    /// Value files that runs point into, counted once a run.
    pub share_count: usize,
    /// Of all intervals that were ever in it, and are alive.
    pub memory: Arc<IntervalMemory>,
    /// The intervals with entries that expire, in the order in which the first of these do (X10).
    pub by_expiry: FlexTree<FirstExpiry>,
    /// Bytes of records that runs point to, by value file: the sum of what the runs have (X7).
    pub value_bytes: BTreeMap<u64, u64>,
    values: Arc<ValueLog>,
}

/// What an edit takes out of the index. Nothing comes of it if the edit does not become durable.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Segments in which nothing is live any more.
    segments: Vec<Arc<Segment>>,
    runs: Vec<Run>,
}

impl Losses {
    /// Says that the edit is durable: what is lost goes with the last version that holds it.
    pub(super) fn take_effect(self) {
        self.segments.iter().for_each(|segment| segment.retire()); // X5
        // The bytes of the others go with their segments.
        let in_live_segments = self.runs.iter().filter(|run| !run.segment.is_retired());
        in_live_segments.for_each(Run::note_lost); // X6
    }
}

/// The id of a keyspace's index log.
pub(super) fn log_id(place: &SegmentPlace) -> EditLogId {
    EditLogId {
        stem: LOG_STEM,
        kind: LOG_KIND,
        database: place.database,
        owner: u64::from(place.keyspace),
    }
}

impl Index {
    /// The index of an empty keyspace: one interval without runs.
    pub(super) fn empty(place: &SegmentPlace) -> Index {
        let memory = Arc::default();
        let first = Interval::new(Some(&memory), Slice::default(), None, Vec::new());
        let counters = Counters { next_segment: 1, ..Counters::default() };
        Index {
            tree: FlexTree::from_sorted([first]),
            segments: BTreeMap::new(),
            counters,
            sweep_from: Vec::new(),
            begun: Vec::new(),
            share_count: 0,
            memory,
            by_expiry: FlexTree::new(),
            value_bytes: BTreeMap::new(),
            values: Arc::clone(&place.values),
        }
    }

    /// Creates the durable form of an empty index.
    pub(super) fn create_log(storage: Arc<dyn Storage>, place: &SegmentPlace) -> Result<EditLog> {
        let index = Index::empty(place);
        EditLog::create(storage, &place.dir, log_id(place), 1, EDIT_ROOM_MIN, |sink| {
            index.snapshot_parts(|part| sink.part(&part))
        })
    }

    /// Reads the durable form.
    pub(super) fn open(
        place: &Arc<SegmentPlace>,
        required: Option<LogPosition>,
    ) -> Result<(Index, EditLog, OpenReport)> {
        let mut loading = Loading::new(place);
        let (log, report) = EditLog::open(
            Arc::clone(&place.storage),
            &place.dir,
            log_id(place),
            required,
            |record| loading.take(&record),
        )?;
        let index = loading.finish(&report.file)?;
        Ok((index, log, report))
    }

    /// As [`Self::read`], if it goes as far as it is known to be durable.
    pub(super) fn read_up_to(
        place: &Arc<SegmentPlace>,
        required: Option<LogPosition>,
    ) -> Result<Index> {
        let mut loading = Loading::new(place);
        let (id, storage) = (log_id(place), &*place.storage);
        let take = |record: RecordRef<'_>| loading.take(&record);
        let report = read_edit_log(storage, &place.dir, &id, required, take)?;
        loading.finish(&report.file)
    }

    /// The index as its durable form says, without opening it for writing.
    pub(super) fn read(place: &Arc<SegmentPlace>) -> Result<(Index, OpenReport)> {
        let mut loading = Loading::new(place);
        let (id, storage) = (log_id(place), &*place.storage);
        let report = read_edit_log(storage, &place.dir, &id, None, |record| loading.take(&record))?;
        Ok((loading.finish(&report.file)?, report))
    }

    /// The segments that hold runs.
    pub(super) fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.values().map(|state| Arc::clone(&state.segment)).collect()
    }

    /// Writes the next file of the log, with room for an edit of `edit_len` bytes at least.
    pub(super) fn rotate(&self, log: &mut EditLog, edit_len: usize) -> Result<()> {
        // Made twice, for its size and to be written: all of it at once would take much memory.
        let mut snapshot_bytes = 0;
        self.snapshot_parts(|part| {
            snapshot_bytes += part.len();
            Ok(())
        })?;
        // As much room as the snapshot takes: then snapshots at most double what edits write.
        let room = EditLog::edit_size(edit_len) + (snapshot_bytes as u64).max(EDIT_ROOM_MIN);
        log.rotate(room, |sink| self.snapshot_parts(|part| sink.part(&part)))
    }

    fn snapshot_parts(&self, mut put: impl FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
        let segments: Vec<(u64, u64)> =
            self.segments.iter().map(|(&number, state)| (number, state.end)).collect();
        put(Encoder::header(&EditRecord {
            counters: self.counters,
            sweep_from: self.sweep_from.clone(),
            begun: self.begun.clone(),
            segments,
            changes: Vec::new(),
        }))?;
        let mut parts = IntervalParts::default();
        for interval in &self.tree {
            if let Some(part) = parts.add(&record_of(interval)) {
                put(part)?;
            }
        }
        put(parts.finish())
    }

    /// Bytes of live runs.
    pub(super) fn live_bytes(&self) -> u64 {
        self.segments.values().map(|state| state.live_bytes).sum()
    }

    /// Segments of which little is live.
    pub(super) fn sparse_segment_count(&self) -> usize {
        self.segments.values().filter(|state| is_sparse(state.live_bytes, state.end)).count()
    }

    /// Segments of which little is live once the intervals that are `leaving` have left them; but
    /// not those in `keep`, which are still written to.
    pub(super) fn sparse_segments(
        &self,
        keep: &[u64],
        leaving: impl Fn(&Interval) -> bool,
    ) -> BTreeSet<u64> {
        let mut staying: BTreeMap<u64, u64> = BTreeMap::new();
        for interval in self.tree.iter().filter(|interval| !leaving(interval)) {
            for run in interval.runs() {
                *staying.entry(run.segment.number).or_default() += u64::from(run.len);
            }
        }
        let sparse = staying.iter().filter(|(number, live_bytes)| {
            let size = self.segments.get(number).map_or(0, |state| state.end);
            is_sparse(**live_bytes, size) && !keep.contains(number)
        });
        sparse.map(|(&number, _)| number).collect()
    }

    /// Intervals from the place `from` on of which most has expired by `now`, rising; of those that
    /// have to be read, `bytes` at most.
    pub(super) fn ripe_from(&self, from: usize, now: u64, bytes: u64) -> Vec<usize> {
        let mut ripe: Vec<(usize, u64)> = Vec::new();
        for first in self.by_expiry.iter().take_while(|first| first.until() <= now) {
            let found = self.tree.find_key(first.anchor());
            let Some((place, interval)) = found.filter(|(place, _)| *place >= from) else {
                continue;
            };
            if interval.has_expired(now) {
                ripe.push((place, 0));
            } else if is_mostly_expired(interval.expired_about(now), interval.entry_count()) {
                ripe.push((place, interval.base_bytes() + interval.delta_bytes()));
            }
        }
        ripe.sort_unstable();
        let mut left = bytes;
        ripe.retain(|(_, bytes)| {
            let is_within = *bytes <= left;
            left -= if is_within { *bytes } else { 0 };
            is_within
        });
        ripe.into_iter().map(|(place, _)| place).collect()
    }

    /// Applies an edit. Returns what it takes out.
    ///
    /// # Errors
    /// A sentence about what in the edit contradicts the index, which is then half changed.
    pub(super) fn apply(
        &mut self,
        edit: &EditRecord,
        place: &Arc<SegmentPlace>,
        keep: &[u64],
    ) -> std::result::Result<Losses, String> {
        for &(number, end) in &edit.segments {
            self.note_segment(place, number, end);
        }
        let mut lost = Vec::new();
        let mut replaced = Vec::with_capacity(edit.changes.len());
        let mut done = 0;
        for change in &edit.changes {
            let range = change.range();
            if range.start < done || range.end > self.tree.len() {
                let len = self.tree.len();
                return Err(format!("a change of intervals {range:?} in a tree of {len}"));
            }
            done = range.end;
            replaced.push((range, self.changed(change, &mut lost)?));
        }
        self.note_expiries(&replaced);
        self.tree.rewrite(replaced);
        self.counters = edit.counters;
        self.sweep_from.clone_from(&edit.sweep_from);
        self.begun.clone_from(&edit.begun);
        Ok(Losses { segments: self.remove_dead(keep), runs: lost })
    }

    /// X10: intervals are about to take the place of others.
    fn note_expiries(&mut self, replaced: &[(Range<usize>, Vec<Arc<Interval>>)]) {
        for (range, intervals) in replaced {
            if !self.by_expiry.is_empty() {
                for interval in self.tree.range(range.clone()) {
                    take_out(&mut self.by_expiry, interval);
                }
            }
            for first in intervals.iter().filter_map(|interval| FirstExpiry::of(interval)) {
                let place = self.by_expiry.find_key(first.key());
                let place = place.map_or(0, |(before, _)| before + 1);
                self.by_expiry.insert(place, first);
            }
        }
    }

    fn note_segment(&mut self, place: &Arc<SegmentPlace>, number: u64, end: u64) {
        let state = self.segments.entry(number).or_insert_with(|| SegmentState {
            segment: Segment::existing(place, number, end),
            end,
            live_bytes: 0,
        });
        state.end = state.end.max(end);
        state.segment.note_size(end);
    }

    /// The intervals that a change makes, with live bytes moved from old runs, which are `lost`, to
    /// new ones.
    fn changed(
        &mut self,
        change: &ChangeRecord,
        lost: &mut Vec<Run>,
    ) -> std::result::Result<Vec<Arc<Interval>>, String> {
        match change {
            ChangeRecord::Delta { index, replaced, run } => {
                let old = Arc::clone(self.tree.get(*index).expect("within the tree"));
                let kept = old.deltas.len().checked_sub(*replaced);
                let kept =
                    kept.ok_or_else(|| format!("{replaced} deltas to replace are too many"))?;
                old.deltas[kept..].iter().try_for_each(|old| self.lose(old, lost))?;
                let mut deltas = Vec::with_capacity(kept + 1);
                deltas.extend_from_slice(&old.deltas[..kept]);
                deltas.push(self.gain(run, RunRole::Delta)?);
                Ok(vec![self.interval(old.anchor.clone(), old.base.clone(), deltas)])
            }
            ChangeRecord::Replace { range, intervals } => {
                self.lose_intervals(range, lost)?;
                self.check_anchors(range, intervals.iter().map(|(anchor, _)| anchor))?;
                intervals
                    .iter()
                    .map(|(anchor, base)| {
                        let base = base.as_ref().map(|run| self.gain(run, RunRole::Base));
                        let base = base.transpose()?;
                        Ok(self.interval(anchor.clone(), base, Vec::new()))
                    })
                    .collect()
            }
            ChangeRecord::Insert { range, intervals } => {
                self.lose_intervals(range, lost)?;
                self.check_anchors(range, intervals.iter().map(|interval| &interval.anchor))?;
                intervals.iter().map(|interval| self.interval_of(interval)).collect()
            }
        }
    }

    fn lose_intervals(
        &mut self,
        range: &Range<usize>,
        lost: &mut Vec<Run>,
    ) -> std::result::Result<(), String> {
        let removed: Vec<Arc<Interval>> = self.tree.range(range.clone()).map(Arc::clone).collect();
        let mut runs = removed.iter().flat_map(|interval| interval.runs());
        runs.try_for_each(|run| self.lose(run, lost))
    }

    /// A new interval with new runs.
    fn interval_of(
        &mut self,
        record: &IntervalRecord,
    ) -> std::result::Result<Arc<Interval>, String> {
        let base = record.base.as_ref().map(|run| self.gain(run, RunRole::Base)).transpose()?;
        let deltas = record.deltas.iter().map(|run| self.gain(run, RunRole::Delta));
        let deltas = deltas.collect::<std::result::Result<_, String>>()?;
        Ok(self.interval(record.anchor.clone(), base, deltas))
    }

    fn interval(&self, anchor: Slice, base: Option<Run>, deltas: Vec<Run>) -> Arc<Interval> {
        Interval::new(Some(&self.memory), anchor, base, deltas)
    }

    /// X1, for intervals that are about to take the place of `range`.
    fn check_anchors<'a>(
        &'a self,
        range: &Range<usize>,
        anchors: impl Iterator<Item = &'a Slice> + Clone,
    ) -> std::result::Result<(), String> {
        let behind = self.tree.get(range.end).map(|interval| &interval.anchor);
        let in_order = anchors.clone().chain(behind).is_sorted_by(|a, b| a < b);
        let mut anchors = anchors;
        let start = match range.start.checked_sub(1) {
            // Without new intervals the interval in front takes over the keys.
            Some(before) => {
                let before = self.tree.get(before).map(|interval| &interval.anchor);
                anchors.next().is_none_or(|first| Some(first) > before)
            }
            None => anchors.next().is_some_and(|first| first.is_empty()),
        };
        if in_order && start {
            return Ok(());
        }
        Err(format!("anchors out of order in place of intervals {range:?}"))
    }

    fn lose(&mut self, run: &Run, lost: &mut Vec<Run>) -> std::result::Result<(), String> {
        lost.push(run.clone());
        self.lose_values(run)?;
        let number = run.segment.number;
        let state = self.segments.get_mut(&number);
        let left = state.and_then(|state| {
            state.live_bytes = state.live_bytes.checked_sub(u64::from(run.len))?;
            Some(())
        });
        left.ok_or_else(|| format!("segment {number} has fewer live bytes than its runs"))
    }

    fn lose_values(&mut self, run: &Run) -> std::result::Result<(), String> {
        for (file, bytes) in run.values() {
            self.share_count -= 1;
            let known = self.value_bytes.get(&file).copied().unwrap_or(0);
            match known.checked_sub(bytes) {
                Some(0) => drop(self.value_bytes.remove(&file)),
                Some(left) => drop(self.value_bytes.insert(file, left)),
                None => return Err(format!("value file {file} has fewer bytes than a run's")),
            }
        }
        Ok(())
    }

    fn gain(&mut self, record: &RunRecord, role: RunRole) -> std::result::Result<Run, String> {
        let state = self.segments.get_mut(&record.segment);
        let state = state.ok_or_else(|| format!("segment {} is not listed", record.segment))?;
        let end = record.offset.saturating_add(u64::from(record.len));
        if record.offset < HEADER_LEN || end > state.end {
            return Err(format!(
                "a run of {} bytes at {} of segment {}, which ends at {}",
                record.len, record.offset, record.segment, state.end
            ));
        }
        state.live_bytes += u64::from(record.len);
        let segment = Arc::clone(&state.segment);
        let mut files = Vec::with_capacity(record.values.len());
        self.share_count += record.values.len();
        for share in &record.values {
            let bytes = self.value_bytes.entry(share.file).or_default();
            *bytes = bytes.saturating_add(share.bytes);
            files.push((self.values.hold(share.file), share.bytes));
        }
        Ok(Run {
            segment,
            offset: record.offset,
            len: record.len,
            checksum: record.checksum,
            entry_count: record.entry_count,
            level: record.level,
            stamp: record.stamp,
            value_files: (!files.is_empty()).then(|| files.into()),
            expiring: record.expiring.map(Arc::new),
            slot: role.slot(),
            memory: Arc::default(),
        })
    }

    /// Takes out the segments in which nothing is live, but for those in `keep`, which are still
    /// written to.
    fn remove_dead(&mut self, keep: &[u64]) -> Vec<Arc<Segment>> {
        let dead: Vec<u64> = self
            .segments
            .iter()
            .filter(|(number, state)| state.live_bytes == 0 && !keep.contains(number))
            .map(|(&number, _)| number)
            .collect();
        let removed = dead.iter().filter_map(|number| self.segments.remove(number));
        removed.map(|state| state.segment).collect()
    }
}

fn take_out(by_expiry: &mut FlexTree<FirstExpiry>, interval: &Interval) {
    let Some(first) = FirstExpiry::of(interval) else { return };
    if let Some((place, found)) = by_expiry.find_key(first.key())
        && found.key() == first.key()
    {
        by_expiry.remove(place);
    }
}

/// That an interval has entries that expire, and when the first of them does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstExpiry {
    /// That moment (8 bytes, big-endian) and the anchor.
    key: Slice,
}

impl FirstExpiry {
    pub(super) fn of(interval: &Interval) -> Option<FirstExpiry> {
        let until = interval.first_expiry()?;
        let key = [&until.to_be_bytes()[..], &interval.anchor].concat();
        Some(FirstExpiry { key: Slice::from(key) })
    }

    pub(super) fn until(&self) -> u64 {
        let (until, _) = self.key.split_first_chunk().expect("it begins with eight bytes");
        u64::from_be_bytes(*until)
    }

    pub(super) fn anchor(&self) -> &[u8] {
        &self.key[size_of::<u64>()..]
    }
}

impl Item for FirstExpiry {
    type Size = ();
    type Guide = KeyGuide;

    fn size(&self) {}
}

impl Keyed for FirstExpiry {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

fn record_of(interval: &Arc<Interval>) -> IntervalRecord {
    IntervalRecord {
        anchor: interval.anchor.clone(),
        base: interval.base.as_ref().map(RunRecord::from),
        deltas: interval.deltas.iter().map(RunRecord::from).collect(),
    }
}

/// An index that is being read back.
struct Loading<'a> {
    place: &'a Arc<SegmentPlace>,
    index: Index,
    intervals: Vec<Arc<Interval>>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Intervals,
    Edits,
}

impl<'a> Loading<'a> {
    fn new(place: &'a Arc<SegmentPlace>) -> Loading<'a> {
        let index = Index { tree: FlexTree::new(), ..Index::empty(place) };
        Loading { place, index, intervals: Vec::new(), phase: Phase::Header }
    }

    fn take(&mut self, record: &RecordRef<'_>) -> Result<()> {
        let refuse = |what: String| Error::corruption(record.file, record.offset, what);
        let malformed = || refuse("the index record is malformed".to_owned());
        match record.record {
            Record::SnapshotPart(bytes) if self.phase == Phase::Header => {
                let header = Decoder::header(bytes).ok_or_else(malformed)?;
                for &(number, end) in &header.segments {
                    self.index.note_segment(self.place, number, end);
                }
                self.index.counters = header.counters;
                self.index.sweep_from = header.sweep_from;
                self.index.begun = header.begun;
                self.phase = Phase::Intervals;
                Ok(())
            }
            Record::SnapshotPart(bytes) => {
                let records = Decoder::intervals(bytes).ok_or_else(malformed)?;
                records.iter().try_for_each(|record| self.add(record)).map_err(refuse)
            }
            Record::SnapshotEnd => self.build_tree().map_err(refuse),
            Record::Edit(bytes) => {
                self.build_tree().map_err(refuse)?;
                let edit = Decoder::edit(bytes).ok_or_else(malformed)?;
                // Dead segments leave the index; their files are orphans, removed after opening.
                self.index.apply(&edit, self.place, &[]).map_err(refuse)?;
                Ok(())
            }
        }
    }

    fn add(&mut self, record: &IntervalRecord) -> std::result::Result<(), String> {
        let ascends = match self.intervals.last() {
            Some(before) => before.anchor < record.anchor,
            None => record.anchor.is_empty(),
        };
        if !ascends {
            return Err("anchors out of order in the snapshot".to_owned());
        }
        let interval = self.index.interval_of(record)?;
        self.intervals.push(interval);
        Ok(())
    }

    fn build_tree(&mut self) -> std::result::Result<(), String> {
        if self.phase == Phase::Edits {
            return Ok(());
        }
        if self.intervals.is_empty() {
            return Err("the snapshot holds no intervals".to_owned());
        }
        let mut by_expiry: Vec<FirstExpiry> =
            self.intervals.iter().filter_map(|interval| FirstExpiry::of(interval)).collect();
        by_expiry.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        self.index.by_expiry = FlexTree::from_sorted(by_expiry);
        self.index.tree = FlexTree::from_sorted(std::mem::take(&mut self.intervals));
        self.phase = Phase::Edits;
        Ok(())
    }

    fn finish(mut self, file: &Path) -> Result<Index> {
        self.build_tree().map_err(|what| Error::corruption(file, 0, what))?;
        self.index.remove_dead(&[]);
        Ok(self.index)
    }
}
