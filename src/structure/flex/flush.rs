//! A flush slice: part of a memtable goes into the structure, beside some maintenance.
//!
//! Walks the memtable and the tree side by side. Each interval that has new entries, or that the
//! sweep has come to, is left, given a delta run, or consolidated (`sweep.rs` decides). Nothing of
//! the store changes here: the result is an edit record, to be made durable and then applied.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::build::{BaseCutter, Purpose, RunWriter, Stream};
use super::interval::Interval;
use super::load::Loader;
use super::record::ChangeRecord;
use super::sweep::{Candidate, Choice, DELTA_TO_BASE_MAX, MERGE_BYTES_MAX, Sweep, Swept};
use super::sweep::{choose, deltas_to_merge};
use super::tree::FlexTree;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Coverage, Cursor, EntryKind, EntryRef, RangeTombstones, Result};
use crate::base::{SeqNo, Slice, is_operands};
use crate::block::{BlockBuilder, BlockCursor, RestartPolicy};
use crate::merge::MergeCursor;
use crate::structure::source::{Source, as_of, with_moved_value};
use crate::structure::values_ahead::ValuesAhead;
use crate::value_log::Mover;

/// A slice that only consolidates ends when it has read so many times what it was to write.
const READ_PER_WRITTEN_MAX: u64 = 4;

/// What an interval is consolidated for although nothing new comes to it.
#[derive(Debug)]
pub(super) struct Ripe {
    /// Intervals, by their places, rising.
    places: VecDeque<usize>,
}

impl Ripe {
    pub(super) fn new(places: impl Into<VecDeque<usize>>) -> Ripe {
        Ripe { places: places.into() }
    }

    /// The first of them at `position` or behind.
    fn next_from(&mut self, position: usize) -> Option<usize> {
        while self.places.pop_front_if(|place| *place < position).is_some() {}
        self.places.front().copied()
    }
}

/// One slice at work.
pub(super) struct Slicer<'a> {
    pub tree: &'a FlexTree<Arc<Interval>>,
    pub loader: &'a Loader,
    pub writer: &'a mut RunWriter,
    pub sweep: &'a mut Sweep,
    pub fan_in: u8,
    pub changes: Vec<ChangeRecord>,
    pub consolidations: u64,
    /// By [`Slicer::consolidate_among`].
    pub bytes_read: u64,
    /// What has expired by then goes.
    now: u64,
    /// Moves values on the way, and takes those that operands make.
    mover: &'a mut Mover,
    /// Neighbouring intervals that are consolidated in one stream.
    range: Option<(Range<usize>, BaseCutter)>,
    delta: BlockBuilder,
}

/// How a slice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SliceEnd {
    /// Nothing is left to do for this memtable.
    Complete,
    /// The next slice starts with the interval that holds this key.
    At(Slice),
}

/// What was gathered of an interval's new entries.
struct Gathered {
    first_key: Slice,
    /// Bytes of the entries; when there are too many for a delta, so many that this shows.
    bytes: u64,
    /// Bytes of those that the source has gone past.
    taken: u64,
    tombstones: u64,
}

impl<'a> Slicer<'a> {
    pub(super) fn new(
        tree: &'a FlexTree<Arc<Interval>>,
        loader: &'a Loader,
        writer: &'a mut RunWriter,
        sweep: &'a mut Sweep,
        mover: &'a mut Mover,
        (fan_in, now): (u8, u64),
    ) -> Slicer<'a> {
        Slicer {
            tree,
            loader,
            writer,
            sweep,
            fan_in,
            changes: Vec::new(),
            consolidations: 0,
            bytes_read: 0,
            now,
            mover,
            range: None,
            delta: BlockBuilder::new(RestartPolicy::Adaptive),
        }
    }

    /// Goes on from interval `position` until nothing is left or `slice_bytes` are written. Of the
    /// intervals without new entries those are looked at that the sweep comes to, or that are ripe.
    pub(super) fn run(
        &mut self,
        source: &mut Source<'_>,
        position: usize,
        mut ripe: Ripe,
        slice_bytes: u64,
    ) -> Result<SliceEnd> {
        let tree = self.tree;
        let started = self.bytes_written();
        let mut position = position;
        loop {
            let next = self.next_interval(source, position).into_iter();
            let Some(next) = next.chain(ripe.next_from(position)).min() else { break };
            let interval = tree.get(next).expect("the search stays within the tree");
            if self.bytes_written() - started >= slice_bytes {
                self.finish_range()?;
                return Ok(SliceEnd::At(interval.anchor.clone()));
            }
            let limit = tree.get(next + 1).map(|interval| interval.anchor.clone());
            self.visit(next, interval, source, limit.as_deref())?;
            position = next + 1;
        }
        self.finish_range()?;
        Ok(SliceEnd::Complete)
    }

    /// Consolidates those of the intervals in these places that are `worthwhile`, until
    /// `slice_bytes` are written. No memtable takes part.
    pub(super) fn consolidate_among(
        &mut self,
        places: Range<usize>,
        slice_bytes: u64,
        worthwhile: impl Fn(&Interval) -> bool,
    ) -> Result<SliceEnd> {
        let tree = self.tree;
        let started = self.bytes_written();
        let mut nothing = MergeCursor::<BlockCursor>::new(Vec::new());
        let none = RangeTombstones::default();
        let mut source = Source::new(&mut nothing, &none, self.now)?;
        for (index, interval) in (places.start..).zip(tree.range(places)) {
            if !worthwhile(interval) {
                self.finish_range()?;
                continue;
            }
            // Where most was deleted, much is read and little written.
            let is_enough = self.bytes_written() - started >= slice_bytes
                || self.bytes_read >= slice_bytes.saturating_mul(READ_PER_WRITTEN_MAX);
            if is_enough {
                self.finish_range()?;
                return Ok(SliceEnd::At(interval.anchor.clone()));
            }
            self.bytes_read += interval.base_bytes() + interval.delta_bytes();
            self.consolidate(index, interval, &mut source, None)?;
        }
        self.finish_range()?;
        Ok(SliceEnd::Complete)
    }

    /// Bytes of runs, and of values that were moved or made.
    fn bytes_written(&self) -> u64 {
        self.writer.bytes_written() + self.mover.bytes()
    }

    /// The next interval, at `position` or behind, that has new entries or deleted ranges, or is
    /// swept.
    fn next_interval(&mut self, source: &Source<'_>, position: usize) -> Option<usize> {
        let tree = self.tree;
        let find = |key: &[u8]| tree.find_key(key).map_or(0, |(index, _)| index);
        let with_entries = source.below(None).map(|entry| find(entry.key).max(position));
        let deleted =
            tree.get(position).and_then(|interval| source.first_deleted(&interval.anchor));
        let with_entries = match (with_entries, deleted.map(|key| find(key).max(position))) {
            (Some(index), Some(other)) => Some(index.min(other)),
            (index, other) => index.or(other),
        };
        if self.sweep.credit == 0 {
            return with_entries;
        }
        let swept = find(&self.sweep.from).max(position);
        if swept >= tree.len() {
            // Round the end: the next flush goes on from the start.
            if position >= tree.len() {
                self.sweep.from.clear();
            }
            return with_entries;
        }
        Some(with_entries.map_or(swept, |index| index.min(swept)))
    }

    fn visit(
        &mut self,
        index: usize,
        interval: &Arc<Interval>,
        source: &mut Source<'_>,
        limit: Option<&[u8]>,
    ) -> Result<()> {
        let swept = self.sweep_over(interval, limit);
        if source.deleted().coverage(&interval.anchor, limit) != Coverage::Nothing {
            return self.consolidate(index, interval, source, limit);
        }
        let gathered = self.gather(interval, source, limit)?;
        let choice = choose(Candidate {
            base_bytes: interval.base_bytes(),
            delta_bytes: interval.delta_bytes(),
            delta_count: interval.deltas.len(),
            // An empty key with an empty value counts as well.
            new_bytes: gathered.as_ref().map_or(0, |gathered| gathered.bytes.max(1)),
            new_tombstones: gathered.as_ref().map_or(0, |gathered| gathered.tombstones),
            entry_count: interval.entry_count(),
            expired: interval.expired_about(self.now),
            swept,
            before: match &self.range {
                Some((range, _)) if range.end == index => Choice::Consolidate,
                _ => Choice::Leave,
            },
        });
        match choice {
            Choice::Leave => self.finish_range(),
            Choice::Append => {
                self.finish_range()?;
                self.append_delta(index, interval)
            }
            Choice::Consolidate => {
                if let Some(gathered) = &gathered {
                    // The entries are taken again, in one stream with the older ones.
                    source.seek(&gathered.first_key)?;
                    source.logical_bytes -= gathered.taken;
                    self.delta.clear();
                }
                self.consolidate(index, interval, source, limit)
            }
        }
    }

    /// Whether the sweep takes this interval along; it then moves past it.
    fn sweep_over(&mut self, interval: &Interval, limit: Option<&[u8]>) -> Swept {
        let is_reached = limit.is_none_or(|limit| self.sweep.from.as_slice() < limit);
        if self.sweep.credit == 0 || !is_reached {
            return Swept::No;
        }
        self.sweep.pay(interval.base_bytes());
        self.sweep.from.clear();
        self.sweep.from.extend_from_slice(limit.unwrap_or_default());
        if limit.is_none() {
            self.sweep.credit = 0; // Round the end: the rest of the way is the next flush's.
        }
        Swept::Yes
    }

    /// Gathers the interval's new entries as a delta. Stops at as many as are kept as one: beyond
    /// that the choice is to consolidate, whatever else there is.
    fn gather(
        &mut self,
        interval: &Interval,
        source: &mut Source<'_>,
        limit: Option<&[u8]>,
    ) -> Result<Option<Gathered>> {
        let Some(first) = source.below(limit) else { return Ok(None) };
        let first_key = Slice::from(first.key);
        let enough = (DELTA_TO_BASE_MAX * interval.base_bytes()).min(MERGE_BYTES_MAX);
        let before = source.logical_bytes;
        let (mut bytes, mut tombstones) = (0, 0);
        while let Some(entry) = source.below(limit) {
            bytes += (entry.key.len() + entry.value.len()) as u64;
            if bytes >= enough {
                break;
            }
            tombstones += u64::from(entry.kind == EntryKind::Tombstone);
            match is_operands(entry.kind, entry.value) {
                true => self.loader.folder().add_to_delta(&mut self.delta, entry)?,
                false => self.delta.add(entry)?,
            }
            source.advance()?;
        }
        let taken = source.logical_bytes - before;
        Ok(Some(Gathered { first_key, bytes, taken, tombstones }))
    }

    /// Writes the gathered entries as a delta, merged with older ones when a level is full.
    fn append_delta(&mut self, index: usize, interval: &Interval) -> Result<()> {
        let levels: Vec<u8> = interval.deltas.iter().map(|run| run.level).collect();
        let (replaced, level) = deltas_to_merge(&levels, self.fan_in);
        self.writer.purpose = Purpose::Flush;
        if replaced > 0 {
            self.writer.purpose = Purpose::Consolidation;
            self.merge_into_delta(&interval.deltas[interval.deltas.len() - replaced..])?;
        }
        let run = self.writer.write(Stream::Delta, &mut self.delta, level)?;
        self.changes.push(ChangeRecord::Delta { index, replaced, run });
        Ok(())
    }

    /// Merges runs, oldest first, below what was gathered. Tombstones stay: the base is older.
    fn merge_into_delta(&mut self, runs: &[super::interval::Run]) -> Result<()> {
        let mut cursors =
            vec![BlockCursor::new(Arc::new(self.delta.finish_block(self.loader.heap())))];
        for run in runs.iter().rev() {
            cursors.push(BlockCursor::new(self.loader.read_run(run)?));
        }
        let mut merged = MergeCursor::new(cursors);
        merged.seek_first()?;
        let folder = self.loader.folder();
        while let Some(entry) = merged.entry() {
            if entry.kind == EntryKind::Tombstone && is_seeded(Bug::TombstoneLostInDeltas) {
                merged.next()?;
                continue;
            }
            match is_operands(entry.kind, entry.value) {
                true => {
                    let value = &folder.stacked(entry, merged.shadowed())?;
                    folder.add_to_delta(&mut self.delta, EntryRef { value, ..entry })?;
                }
                false => self.delta.add(as_of(entry, self.now))?,
            }
            merged.next()?;
        }
        Ok(())
    }

    /// Streams the interval's old and new entries into base runs; old ones in ranges that the
    /// memtable deletes are left out, and what has expired. An interval of which nothing stays is
    /// not read.
    fn consolidate(
        &mut self,
        index: usize,
        interval: &Interval,
        source: &mut Source<'_>,
        limit: Option<&[u8]>,
    ) -> Result<()> {
        self.extend_range(index, interval)?;
        let (_, cutter) = self.range.as_mut().expect("it was just extended");
        let deleted = source.deleted();
        let coverage = deleted.coverage(&interval.anchor, limit);
        let mut old = match coverage {
            Coverage::Whole => None,
            Coverage::Part | Coverage::Nothing => old_entries(self.loader, interval, self.now)?,
        };
        let mut ahead = old
            .as_ref()
            .filter(|_| !self.mover.victims().is_empty())
            .map(|old| ValuesAhead::new(old.afresh(), self.now));
        let (mut taken, mut gone) = (0, 0);
        let mut moved = Vec::new();
        loop {
            let old_entry = old.as_ref().and_then(BlockCursor::entry);
            let old_entry = old_entry.map(|old| as_of(old, self.now));
            let new_entry = source.below(limit);
            let (entry, from) = match (old_entry, new_entry) {
                (None, None) => break,
                (Some(old), None) => (old, From::Old),
                (None, Some(new)) => (new, From::New),
                (Some(old), Some(new)) => match old.key.cmp(new.key) {
                    std::cmp::Ordering::Less => (old, From::Old),
                    std::cmp::Ordering::Equal if is_seeded(Bug::OlderEntryKept) => {
                        (old, From::Both)
                    }
                    std::cmp::Ordering::Equal => (new, From::Both), // X2: the memtable is newer
                    std::cmp::Ordering::Greater => (new, From::New),
                },
            };
            let is_erased = from == From::Old
                && coverage == Coverage::Part
                && !is_seeded(Bug::DeletedRangeForgotten)
                && deleted.covering(entry.key, SeqNo::MAX).is_some();
            match entry.kind {
                _ if is_erased => {}
                EntryKind::Value => cutter.add(entry, self.writer)?,
                EntryKind::Tombstone => {}
                EntryKind::Composite if is_operands(entry.kind, entry.value) => {
                    let older = old_entry.filter(|_| from == From::Both);
                    let bytes = self.loader.folder().stacked(entry, older.into_iter())?;
                    let folded = self.loader.folder().fold_into(self.mover, entry.key, &bytes)?;
                    cutter.add(folded.entry(entry), self.writer)?;
                }
                EntryKind::Pointer | EntryKind::Composite => {
                    ahead.iter_mut().for_each(|ahead| ahead.keep_ahead(entry.key, self.mover));
                    let entry = with_moved_value(self.mover, entry, &mut moved)?;
                    cutter.add(entry, self.writer)?;
                }
            }
            let is_deletion = entry.kind == EntryKind::Tombstone;
            if let (From::Old | From::Both, Some(old)) = (from, &mut old) {
                old.next()?;
            }
            if let From::New | From::Both = from {
                source.advance()?;
                taken += 1;
                gone += u64::from(from == From::Both || is_deletion);
            }
        }
        self.sweep.overwrites.note(taken, gone);
        Ok(())
    }

    /// Adds an interval to the range of those that are consolidated in one stream, or begins one if
    /// it does not follow.
    fn extend_range(&mut self, index: usize, interval: &Interval) -> Result<()> {
        if self.range.as_ref().is_none_or(|(range, _)| range.end != index) {
            self.finish_range()?;
            let target = self.writer.options().interval_size;
            self.range = Some((index..index, BaseCutter::new(interval.anchor.clone(), target)));
        }
        let (range, _) = self.range.as_mut().expect("there is one now");
        range.end = index + 1;
        self.consolidations += 1;
        self.writer.purpose = match (self.mover.victims().is_empty(), interval.run_count()) {
            (false, _) => Purpose::Cleaning,
            (true, 0) => Purpose::Flush,
            (true, _) => Purpose::Consolidation,
        };
        Ok(())
    }

    /// Ends the range of intervals that were consolidated in one stream.
    fn finish_range(&mut self) -> Result<()> {
        let Some((range, cutter)) = self.range.take() else { return Ok(()) };
        let mut intervals = cutter.finish(self.writer)?;
        if range.start == 0 && intervals.is_empty() {
            // X1: the first interval stays, if only as a place for keys to come.
            intervals.push((Slice::default(), None));
        }
        self.changes.push(ChangeRecord::Replace { range, intervals });
        Ok(())
    }
}

/// The entries of an interval, from the first on; `None` if it has none that stay.
fn old_entries(loader: &Loader, interval: &Interval, now: u64) -> Result<Option<BlockCursor>> {
    if interval.run_count() == 0 || interval.has_expired(now) {
        return Ok(None);
    }
    let mut old = BlockCursor::new(loader.block_in_passing(interval)?);
    old.seek_first()?;
    Ok(Some(old))
}

/// Where the entry at hand came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Old,
    New,
    Both,
}
