//! Consolidation beside flushes: of what is worth it, and of what points into value files that are
//! to be emptied. Slice by slice, each durable and visible by itself (X4).

use std::collections::BTreeSet;
use std::ops::Range;

use super::{FlexStore, SliceDone, Writer};
use crate::base::{Result, Slice};
use crate::structure::flex::flush::{SliceEnd, Slicer};
use crate::structure::flex::interval::Interval;
use crate::structure::flex::sweep::{has_much_expired, is_worthwhile};
use crate::value_log::Mover;

/// A walk through the key space when there is nothing else to do.
#[derive(Debug, Default)]
pub(super) struct IdleWalk {
    /// It goes on with the interval that holds this key.
    from: Slice,
    /// Segments to be emptied, as of when the walk began; not known yet at its start.
    sparse: Option<BTreeSet<u64>>,
}

/// What a slice has done.
pub(super) struct Consolidated {
    pub end: SliceEnd,
    pub bytes_read: u64,
    /// To segments and to value files.
    pub bytes_written: u64,
}

impl Writer {
    /// The first interval, from where the walk is, that is worth consolidating. Looks for segments
    /// to be emptied when the walk begins.
    fn next_worthwhile(&mut self, now: u64) -> Option<usize> {
        let open = self.runs.open_segments();
        let (index, walk) = (&self.index, &mut self.idle_walk);
        let is_worth_it =
            |interval: &Interval, sparse: &BTreeSet<u64>| is_worth_it(interval, sparse, now);
        let sparse = walk.sparse.get_or_insert_with(|| {
            index.sparse_segments(&open, |interval| is_worth_it(interval, &BTreeSet::new()))
        });
        let from = index.tree.find_key(&walk.from).map_or(0, |(index, _)| index);
        let mut rest = index.tree.range(from..index.tree.len());
        rest.position(|interval| is_worth_it(interval, sparse)).map(|at| from + at)
    }
}

impl FlexStore {
    /// How far it came and what was written; `None` if there was nothing to do.
    pub(super) fn move_slice(
        &self,
        writer: &mut Writer,
        mover: &mut Mover,
        from: &[u8],
        (slice_bytes, now): (u64, u64),
    ) -> Result<Option<(SliceEnd, u64)>> {
        let tree = &writer.index.tree;
        let first = tree.find_key(from).map_or(0, |(index, _)| index);
        let victims = mover.victims().clone();
        let is_affected = |interval: &Interval| {
            interval.runs().any(|run| run.values().any(|(file, _)| victims.contains(&file)))
        };
        let start = tree.range(first..tree.len()).position(|interval| is_affected(interval));
        let Some(start) = start.map(|start| first + start) else { return Ok(None) };
        let (bytes_before, moved_before) = (writer.runs.bytes_written(), mover.bytes());
        let mut sweep = writer.sweep.clone();
        let mut slicer = Slicer::new(
            &writer.index.tree,
            &self.loader,
            &mut writer.runs,
            &mut sweep,
            mover,
            (self.options.delta_fan_in, now),
        );
        let behind = tree.len();
        let end = slicer.consolidate_among(start..behind, slice_bytes, is_affected)?;
        let done = SliceDone {
            changes: slicer.changes,
            consolidations: slicer.consolidations,
            logical_bytes: 0,
            bytes_before,
        };
        self.commit_slice(writer, done, sweep, mover, None)?;
        let of_runs = writer.runs.bytes_written() - bytes_before;
        Ok(Some((end, of_runs + mover.bytes() - moved_before)))
    }

    /// Goes on with the walk; the bytes written, `None` if there was nothing to do.
    pub(super) fn consolidate_slice(
        &self,
        writer: &mut Writer,
        mover: &mut Mover,
        slice_bytes: u64,
        now: u64,
    ) -> Result<Option<u64>> {
        let start = match writer.next_worthwhile(now) {
            Some(start) => start,
            None => {
                // What is known about segments may be of before: another look at all of it.
                writer.idle_walk = IdleWalk::default();
                let Some(start) = writer.next_worthwhile(now) else { return Ok(None) };
                start
            }
        };
        let range = start..writer.index.tree.len();
        let sparse = writer.idle_walk.sparse.take().unwrap_or_default();
        let is_worth_it = |interval: &Interval| is_worth_it(interval, &sparse, now);
        let done =
            self.consolidate_among((writer, mover), range, (slice_bytes, now), is_worth_it)?;
        writer.idle_walk = match done.end {
            SliceEnd::Complete => IdleWalk::default(),
            SliceEnd::At(from) => IdleWalk { from, sparse: Some(sparse) },
        };
        Ok(Some(done.bytes_written))
    }

    /// Consolidates those of the intervals in these places that are `wanted`, for a slice, and
    /// makes that durable.
    pub(super) fn consolidate_among(
        &self,
        (writer, mover): (&mut Writer, &mut Mover),
        places: Range<usize>,
        (slice_bytes, now): (u64, u64),
        wanted: impl Fn(&Interval) -> bool,
    ) -> Result<Consolidated> {
        let bytes_before = writer.runs.bytes_written();
        let mut sweep = writer.sweep.clone();
        let mut slicer = Slicer::new(
            &writer.index.tree,
            &self.loader,
            &mut writer.runs,
            &mut sweep,
            mover,
            (self.options.delta_fan_in, now),
        );
        let end = slicer.consolidate_among(places, slice_bytes, wanted)?;
        let bytes_read = slicer.bytes_read;
        let done = SliceDone {
            changes: slicer.changes,
            consolidations: slicer.consolidations,
            logical_bytes: 0,
            bytes_before,
        };
        self.commit_slice(writer, done, sweep, mover, None)?;
        let bytes_written = writer.runs.bytes_written() - bytes_before + mover.bytes();
        Ok(Consolidated { end, bytes_read, bytes_written })
    }
}

/// Whether an interval has deltas worth consolidating, or runs in one of the `sparse` segments, or
/// enough of it has expired.
fn is_worth_it(interval: &Interval, sparse: &BTreeSet<u64>, now: u64) -> bool {
    is_worthwhile(interval.base_bytes(), interval.delta_bytes(), interval.deltas.len())
        || interval.may_hide_values()
        || interval.runs().any(|run| sparse.contains(&run.segment.number))
        || has_much_expired(interval.expired_about(now), interval.entry_count())
}
