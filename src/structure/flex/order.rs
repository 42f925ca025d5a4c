//! Order statistics of a version: how many entries are below a key, and which key is at a place;
//! and what the entries of a range come to.
//!
//! The tree's sizes count the entries of base runs exactly. Of an interval with deltas they are an
//! upper bound: how many of its entries are live is known when its runs were merged once; it is
//! kept with the interval. Entries that expire count among these whatever the time; those that have
//! expired and are still there are taken off, interval by interval (X10 says which have some).

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::interval::{Interval, IntervalSize};
use super::load::Loader;
use super::store::FlexVersion;
use super::tree::Fold;
use crate::base::{Cursor, Result, Slice};
use crate::block::BlockCursor;
use crate::cache::{Charge, Part};
use crate::structure::{Reduction, joined};

/// So many intervals with deltas are looked at one by one.
const MIXED_COUNTED_SINGLY_MAX: u64 = 32;
/// So many intervals with what expires are looked at one by one, whether anything there has expired
/// or not.
const EXPIRING_COUNTED_SINGLY_MAX: usize = 32;

impl FlexVersion {
    /// Number of live entries from `start` to in front of `end`, or to the last, that have not
    /// expired by `now`. O(log n), and the blocks of the two intervals at the ends. Intervals with
    /// deltas in between, and those with what has expired, are read the first time that they are
    /// counted; a version that has many with deltas is gone through once. Each interval with what
    /// has expired costs a search.
    pub(super) fn live_between(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64> {
        let Some((first, interval)) = self.tree.find_key(start) else { return Ok(0) };
        let below_start = live_in_interval_below(&self.loader, interval, start, now)?;
        let (last, below_end) = match end.and_then(|end| Some((end, self.tree.find_key(end)?))) {
            Some((end, (last, interval))) => {
                (last, live_in_interval_below(&self.loader, interval, end, now)?)
            }
            None => (self.tree.len(), 0),
        };
        if last < first {
            return Ok(0);
        }
        let live = self.live_in_intervals(first..last)?;
        let expired = self.expired_in_intervals(first..last, now)?;
        Ok((live + below_end).saturating_sub(below_start + expired))
    }

    /// Number of live entries in intervals that have expired by `now`.
    fn expired_in_intervals(&self, range: Range<usize>, now: u64) -> Result<u64> {
        let first = self.by_expiry.get(0);
        if first.is_none_or(|first| first.until() > now) {
            return Ok(0);
        }
        let places: BTreeSet<usize> = match self.expiring_places(&range) {
            Some(places) => places,
            None => {
                let expired = self.by_expiry.iter().take_while(|first| first.until() <= now);
                let places = expired.filter_map(|first| self.tree.find_key(first.anchor()));
                places.map(|(place, _)| place).filter(|place| range.contains(place)).collect()
            }
        };
        let intervals = places.into_iter().filter_map(|place| self.tree.get(place));
        let with_expired = intervals.filter(|of| of.first_expiry().is_some_and(|at| at <= now));
        with_expired.map(|interval| expired_count(&self.loader, interval, now)).sum()
    }

    /// The intervals of a range with entries that expire, if they are few.
    fn expiring_places(&self, range: &Range<usize>) -> Option<BTreeSet<usize>> {
        let mut offset = self.tree.prefix_size(range.start).expiring;
        let end = self.tree.prefix_size(range.end).expiring;
        let mut places = BTreeSet::new();
        while offset < end {
            if places.len() == EXPIRING_COUNTED_SINGLY_MAX {
                return None;
            }
            let (place, within, interval) = self.tree.find_by(|size| size.expiring, offset)?;
            places.insert(place);
            offset += interval.expiring_count() - within;
        }
        Some(places)
    }

    /// About how many entries have expired by `now` and are still there.
    pub(super) fn expired_about(&self, now: u64) -> u64 {
        let expired = self.by_expiry.iter().take_while(|first| first.until() <= now);
        let intervals = expired.filter_map(|first| self.tree.get_key(first.anchor()));
        intervals.map(|interval| interval.expired_about(now)).sum()
    }

    /// Number of live entries in intervals.
    fn live_in_intervals(&self, range: Range<usize>) -> Result<u64> {
        let (before, all) = (self.tree.prefix_size(range.start), self.tree.prefix_size(range.end));
        let entries = all.entries - before.entries;
        let mixed = before.mixed..all.mixed;
        if mixed.end - mixed.start <= MIXED_COUNTED_SINGLY_MAX {
            let dead = mixed.map(|number| {
                let found = self.tree.find_by(|size| size.mixed, number);
                let (_, _, interval) = found.expect("there are as many");
                dead_count(&self.loader, interval)
            });
            return Ok(entries - dead.sum::<Result<u64>>()?);
        }
        let dead_in_front = self.dead_in_front()?;
        Ok(entries - (dead_in_front[mixed.end as usize] - dead_in_front[mixed.start as usize]))
    }

    /// Dead entries in front of each interval with deltas, and of all of them.
    fn dead_in_front(&self) -> Result<&[u64]> {
        if let Some(sums) = self.dead_in_front.get() {
            return Ok(sums);
        }
        let mut sums = vec![0];
        let mut sum = 0;
        for interval in self.tree.iter().filter(|interval| !interval.deltas.is_empty()) {
            sum += dead_count(&self.loader, interval)?;
            sums.push(sum);
        }
        Ok(self.dead_in_front.get_or_init(|| sums))
    }

    /// What the entries from `start` to in front of `end` come to: the intervals at the ends are
    /// summarized anew, those in between as far as that is not known; see [`FlexTree::fold`].
    ///
    /// [`FlexTree::fold`]: super::tree::FlexTree::fold
    pub(super) fn reduced(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        reduction: &mut dyn Reduction,
    ) -> Result<Option<Slice>> {
        let place_of = |key: &[u8]| self.tree.find_key(key).map(|(place, _)| place);
        let anchor_of = |place| self.tree.get(place).map(|interval| interval.anchor.clone());
        let last = end.and_then(place_of).unwrap_or(self.tree.len());
        let Some(first) = place_of(start).filter(|first| *first < last) else {
            return reduction.summarize(start, end); // All of it is in one interval.
        };
        let (front, whole_from) = match anchor_of(first + 1) {
            _ if anchor_of(first).is_some_and(|anchor| *anchor == *start) => (None, first),
            Some(behind) => (reduction.summarize(start, Some(&behind))?, first + 1),
            None => return reduction.summarize(start, end),
        };
        let mut fold = IntervalFold { version: self, reduction: &mut *reduction };
        let middle = self.tree.fold(whole_from..last, &mut fold)?;
        let back = match anchor_of(last) {
            Some(anchor) => reduction.summarize(&anchor, end)?,
            None => None, // What is in the middle goes to the last.
        };
        let sum = joined(front, middle, reduction)?;
        joined(sum, back, reduction)
    }

    /// Number of entries in the intervals in front of that of `key`, dead ones counted.
    pub(super) fn entries_before_interval_of(&self, key: &[u8]) -> u64 {
        self.tree.find_key(key).map_or(0, |(index, _)| self.tree.prefix_size(index).entries)
    }

    /// The anchor of an interval in front of which there are at most `position` entries, and about
    /// as many, dead ones counted.
    pub(super) fn interval_near(&self, position: u64) -> Slice {
        match self.tree.find_by(|size| size.entries, position) {
            Some((_, _, interval)) => interval.anchor.clone(),
            None => {
                let last = self.tree.len().checked_sub(1).and_then(|last| self.tree.get(last));
                last.map(|interval| interval.anchor.clone()).unwrap_or_default()
            }
        }
    }
}

/// How intervals are folded: by what entries in their ranges of keys come to.
struct IntervalFold<'a> {
    version: &'a FlexVersion,
    reduction: &'a mut dyn Reduction,
}

impl Fold<Arc<Interval>> for IntervalFold<'_> {
    fn tag(&self) -> u64 {
        self.reduction.tag()
    }

    /// What expires comes to less later.
    fn is_lasting(&self, size: &IntervalSize) -> bool {
        size.expiring == 0
    }

    fn summarize(&mut self, index: usize, interval: &Arc<Interval>) -> Result<Option<Slice>> {
        let memo = Some(&interval.memo).filter(|_| interval.expiring_count() == 0);
        if let Some(found) = memo.and_then(|memo| memo.find(self.tag())) {
            return Ok(found);
        }
        let end = self.version.tree.get(index + 1).map(|next| next.anchor.clone());
        let summary = self.reduction.summarize(&interval.anchor, end.as_deref())?;
        memo.inspect(|memo| memo.keep(self, summary.as_ref()));
        Ok(summary)
    }

    fn join(&mut self, left: Slice, right: Slice) -> Result<Slice> {
        self.reduction.join(left, right)
    }

    fn charge(&self, bytes: usize) -> Option<Charge> {
        let loader = &self.version.loader;
        let budget = loader.budget();
        let charge = budget.admits_beside_index(bytes).then(|| budget.charge(Part::Index, bytes));
        loader.trim();
        charge
    }
}

/// Entries of an interval that are overwritten, deleted, or deletions.
fn dead_count(loader: &Loader, interval: &Interval) -> Result<u64> {
    let entries: u64 = interval.runs().map(|run| u64::from(run.entry_count)).sum();
    Ok(entries - live_count(loader, interval)?)
}

/// Live entries of an interval that have expired by `now`.
fn expired_count(loader: &Loader, interval: &Interval, now: u64) -> Result<u64> {
    if interval.has_expired(now) && interval.only_base().is_some() {
        return Ok(interval.entry_count());
    }
    if interval.expiries.get().is_none() {
        let mut expiries = Vec::new();
        let mut cursor = BlockCursor::new(loader.block_in_passing(interval)?);
        cursor.seek_first()?;
        while cursor.is_valid() {
            expiries.extend(cursor.expiring().map(|expiring| expiring.until));
            cursor.next()?;
        }
        expiries.sort_unstable();
        let bytes = expiries.len() * size_of::<u64>();
        let charge = loader.budget().charge(Part::Index, bytes);
        loader.trim();
        interval.expiries.get_or_init(|| Box::new((expiries, charge)));
    }
    let (expiries, _) = &**interval.expiries.get().expect("they were noted above");
    Ok(expiries.partition_point(|until| *until <= now) as u64)
}

fn live_count(loader: &Loader, interval: &Interval) -> Result<u64> {
    if let Some(base) = interval.only_base() {
        return Ok(u64::from(base.entry_count));
    }
    if interval.run_count() == 0 {
        return Ok(0);
    }
    if let Some(count) = interval.live_count.get() {
        return Ok(u64::from(*count));
    }
    let count = count_while(loader, interval, 0, |_| true)?;
    Ok(u64::from(*interval.live_count.get_or_init(|| count as u32)))
}

fn live_in_interval_below(
    loader: &Loader,
    interval: &Interval,
    key: &[u8],
    now: u64,
) -> Result<u64> {
    if interval.run_count() == 0 {
        return Ok(0);
    }
    if key <= &*interval.anchor || interval.has_expired(now) {
        return Ok(0);
    }
    let has_expired = interval.first_expiry().is_some_and(|first| first <= now);
    if interval.only_base().is_some() && !has_expired {
        let block = loader.block(interval, crate::cache::Admission::Normal)?;
        return Ok(block.count_below(key) as u64);
    }
    count_while(loader, interval, now, |other| other < key)
}

/// Number of live entries of an interval, from the first on, whose keys pass, and that have not
/// expired by `now`.
fn count_while(
    loader: &Loader,
    interval: &Interval,
    now: u64,
    mut passes: impl FnMut(&[u8]) -> bool,
) -> Result<u64> {
    let mut cursor = BlockCursor::new(loader.block_in_passing(interval)?);
    cursor.seek_first()?;
    let mut count = 0;
    while let Some(key) = cursor.key() {
        if !passes(key) {
            break;
        }
        let is_gone = cursor.expiring().is_some_and(|expiring| expiring.until <= now);
        count += u64::from(!cursor.is_tombstone() && !is_gone);
        cursor.next()?;
    }
    Ok(count)
}
