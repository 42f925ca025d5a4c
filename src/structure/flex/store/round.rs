//! A round: consolidation of a part of the key space, or all of it, that somebody asks for.
//!
//! Goes through the intervals once, in the order of keys, so that it ends however much is written
//! meanwhile. Several at once know nothing of each other: where one has been, another finds nothing
//! to do. Nothing of it outlasts a slice but the place where the next one begins.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::FlexStore;
use super::consolidation::IdleWalk;
use crate::base::{Result, Slice};
use crate::structure::flex::flush::SliceEnd;
use crate::structure::flex::interval::Interval;
use crate::structure::flex::tree::FlexTree;
use crate::structure::{KeySpan, Round, RoundFigures, RoundSlice};
use crate::value_log::Mover;

#[derive(Debug)]
pub(super) struct FlexRound {
    store: Arc<FlexStore>,
    /// It goes on with the interval that holds this key.
    from: Slice,
    end: Option<Slice>,
    /// Segments to be emptied, as of when the round began; only where all keys take part, as runs
    /// of other keys would keep them.
    sparse: BTreeSet<u64>,
    /// Bytes of the intervals that were wanted when it began.
    bytes_wanted: u64,
    figures: RoundFigures,
    is_over: bool,
}

impl FlexRound {
    pub(super) fn begin(store: Arc<FlexStore>, (from, end): KeySpan, now: u64) -> FlexRound {
        let mut sparse = BTreeSet::new();
        if from.is_empty() && end.is_none() {
            let writer = store.lock_writer();
            let leaving = |interval: &Interval| is_wanted(interval, &sparse, now);
            sparse = writer.index.sparse_segments(&writer.runs.open_segments(), leaving);
        }
        FlexRound::over(store, (from, end), sparse, now)
    }

    /// Empties these segments.
    pub(super) fn emptying(store: Arc<FlexStore>, sparse: BTreeSet<u64>, now: u64) -> FlexRound {
        FlexRound::over(store, (Slice::default(), None), sparse, now)
    }

    fn over(
        store: Arc<FlexStore>,
        (from, end): KeySpan,
        sparse: BTreeSet<u64>,
        now: u64,
    ) -> FlexRound {
        let version = store.current.load_full();
        let places = places_of(&version.tree, &from, end.as_deref());
        let wanted =
            version.tree.range(places).filter(|interval| is_wanted(interval, &sparse, now));
        let bytes_wanted =
            wanted.map(|interval| interval.base_bytes() + interval.delta_bytes()).sum();
        let figures = RoundFigures { bytes_left: bytes_wanted, ..RoundFigures::default() };
        FlexRound { store, from, end, sparse, bytes_wanted, figures, is_over: false }
    }
}

impl Round for FlexRound {
    fn slice(&mut self, slice_bytes: u64, now: u64) -> Result<RoundSlice> {
        if self.is_over {
            return Ok(RoundSlice::Over);
        }
        let mut guard = self.store.lock_writer();
        let writer = &mut *guard;
        if writer.resume.is_some() {
            return Ok(RoundSlice::FlushUnderWay);
        }
        let places = places_of(&writer.index.tree, &self.from, self.end.as_deref());
        let is_wanted = |interval: &Interval| is_wanted(interval, &self.sparse, now);
        let first = writer.index.tree.range(places.clone()).position(|found| is_wanted(found));
        let Some(first) = first else {
            self.is_over = true;
            self.figures.bytes_left = 0;
            return Ok(RoundSlice::Over);
        };
        let mut mover = Mover::new(&self.store.segments.values, BTreeSet::new());
        let (places, order) = (places.start + first..places.end, (slice_bytes, now));
        let done = self.store.consolidate_among((writer, &mut mover), places, order, is_wanted);
        if done.is_err() {
            self.store.give_up(writer, &mut mover);
            writer.idle_walk = IdleWalk::default();
        }
        let done = done?;
        let version = self.store.publish(writer);
        drop(guard);
        self.figures.bytes_read += done.bytes_read;
        self.figures.bytes_written += done.bytes_written;
        self.figures.bytes_left = self.bytes_wanted.saturating_sub(self.figures.bytes_read);
        match done.end {
            SliceEnd::At(key) => self.from = key,
            SliceEnd::Complete => {
                self.is_over = true;
                self.figures.bytes_left = 0;
            }
        }
        Ok(RoundSlice::Done { version })
    }

    fn figures(&self) -> RoundFigures {
        self.figures
    }
}

/// Whether an interval has deltas, or runs in one of the `sparse` segments, or anything in it has
/// expired.
fn is_wanted(interval: &Interval, sparse: &BTreeSet<u64>, now: u64) -> bool {
    !interval.deltas.is_empty()
        || interval.runs().any(|run| sparse.contains(&run.segment.number))
        || interval.first_expiry().is_some_and(|first| first <= now)
}

/// The intervals that hold keys from `from` on to in front of `end`.
fn places_of(tree: &FlexTree<Arc<Interval>>, from: &[u8], end: Option<&[u8]>) -> Range<usize> {
    let start = tree.find_key(from).map_or(0, |(place, _)| place);
    let end = end.and_then(|end| {
        let (place, interval) = tree.find_key(end)?;
        Some(if *interval.anchor == *end { place } else { place + 1 })
    });
    start..end.unwrap_or(tree.len()).max(start)
}
