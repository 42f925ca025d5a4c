//! Consolidation beside flushes: of what is worth it, and of what points into value files that are
//! to be emptied. Slice by slice, each durable and visible by itself (X4).

use std::collections::BTreeSet;

use super::{FlexStore, SliceDone, Writer};
use crate::base::{Result, Slice};
use crate::structure::RoundProgress;
use crate::structure::flex::flush::{SliceEnd, Slicer};
use crate::structure::flex::interval::Interval;
use crate::structure::flex::sweep::{has_much_expired, is_worthwhile};
use crate::value_log::Mover;

/// A round of consolidation over the key space.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// It goes on with the interval that holds this key.
    from: Slice,
    /// Segments to be emptied, as of when the round began; not known yet at its start.
    sparse: Option<BTreeSet<u64>>,
    /// What an interval is consolidated for on account of what has expired.
    expired: Expired,
}

impl Round {
    /// One in which everything goes that has expired.
    pub(super) fn of_everything() -> Round {
        Round { expired: Expired::Any, ..Round::default() }
    }
}

/// How much of an interval has to have expired for it to be consolidated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expired {
    /// So much that it is worth it.
    #[default]
    Much,
    /// Anything: somebody wants all room back.
    Any,
}

impl Expired {
    fn is_reason_for(self, interval: &Interval, now: u64) -> bool {
        match self {
            Expired::Much => has_much_expired(interval.expired_about(now), interval.entry_count()),
            Expired::Any => interval.first_expiry().is_some_and(|first| first <= now),
        }
    }
}

impl Writer {
    /// The first interval, from where the round is, that is worth consolidating. Looks for segments
    /// to be emptied when the round begins.
    fn next_worthwhile(&mut self, now: u64) -> Option<usize> {
        let open = self.runs.open_segments();
        let (index, round) = (&self.index, &mut self.round);
        let expired = round.expired;
        let is_worth_it = |interval: &Interval, sparse: &BTreeSet<u64>| {
            is_worthwhile_among(interval, sparse) || expired.is_reason_for(interval, now)
        };
        let sparse = round.sparse.get_or_insert_with(|| {
            index.sparse_segments(&open, |interval| is_worth_it(interval, &BTreeSet::new()))
        });
        let from = index.tree.find_key(&round.from).map_or(0, |(index, _)| index);
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
        let end = slicer.consolidate_from(start, slice_bytes, is_affected)?;
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

    /// How far the round is and what was written; `None` if there was nothing to do.
    pub(super) fn consolidate_slice(
        &self,
        writer: &mut Writer,
        mover: &mut Mover,
        slice_bytes: u64,
        now: u64,
    ) -> Result<Option<(RoundProgress, u64)>> {
        let (start, passed_end) = match writer.next_worthwhile(now) {
            Some(start) => (start, RoundProgress::GoesOn),
            None => {
                // What is known about segments may be of before: another look at all of it.
                writer.round = Round::default();
                let Some(start) = writer.next_worthwhile(now) else { return Ok(None) };
                (start, RoundProgress::Over)
            }
        };
        let expired = writer.round.expired;
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
        let sparse = writer.round.sparse.take().unwrap_or_default();
        let end = slicer.consolidate_from(start, slice_bytes, |interval| {
            is_worthwhile_among(interval, &sparse) || expired.is_reason_for(interval, now)
        })?;
        let done = SliceDone {
            changes: slicer.changes,
            consolidations: slicer.consolidations,
            logical_bytes: 0,
            bytes_before,
        };
        self.commit_slice(writer, done, sweep, mover, None)?;
        let progress = match end {
            SliceEnd::Complete => {
                writer.round = Round::default();
                RoundProgress::Over
            }
            SliceEnd::At(key) => {
                let expired = writer.round.expired;
                writer.round = Round { from: key, sparse: Some(sparse), expired };
                passed_end
            }
        };
        Ok(Some((progress, writer.runs.bytes_written() - bytes_before + mover.bytes())))
    }
}

/// Whether an interval has deltas worth consolidating, or runs in one of the `sparse` segments.
fn is_worthwhile_among(interval: &Interval, sparse: &BTreeSet<u64>) -> bool {
    is_worthwhile(interval.base_bytes(), interval.delta_bytes(), interval.deltas.len())
        || interval.may_hide_values()
        || interval.runs().any(|run| sparse.contains(&run.segment.number))
}
