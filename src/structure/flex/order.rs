//! Order statistics of a version: how many entries are below a key, and which key is at a place.
//!
//! The tree's sizes count the entries of base runs exactly. Of an interval with deltas they are an
//! upper bound: how many of its entries are live is known when its runs were merged once; it is
//! kept with the interval.

use super::interval::Interval;
use super::load::Loader;
use super::store::FlexVersion;
use crate::base::{Cursor, Result, Slice};
use crate::block::BlockCursor;

impl FlexVersion {
    /// Number of live entries below `key`. O(log n), and for each interval in front with deltas as
    /// much again; the first time, that interval is read.
    pub(super) fn live_below(&self, key: &[u8]) -> Result<u64> {
        let Some((index, interval)) = self.tree.find_key(key) else { return Ok(0) };
        Ok(self.live_before(index)? + live_in_interval_below(&self.loader, interval, key)?)
    }

    /// Number of live entries in the intervals before `index`.
    fn live_before(&self, index: usize) -> Result<u64> {
        let before = self.tree.prefix_size(index);
        let mut live = before.entries;
        for number in 0..before.mixed {
            let found = self.tree.find_by(|size| size.mixed, number);
            let (_, _, interval) = found.expect("there are as many");
            live -= entries_at_most(interval) - live_count(&self.loader, interval)?;
        }
        Ok(live)
    }

    /// Number of live entries.
    pub(super) fn live_total(&self) -> Result<u64> {
        self.live_before(self.tree.len())
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

fn entries_at_most(interval: &Interval) -> u64 {
    interval.runs().map(|run| u64::from(run.entry_count)).sum()
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
    let count = count_while(loader, interval, |_| true)?;
    Ok(u64::from(*interval.live_count.get_or_init(|| count as u32)))
}

fn live_in_interval_below(loader: &Loader, interval: &Interval, key: &[u8]) -> Result<u64> {
    if interval.run_count() == 0 {
        return Ok(0);
    }
    if interval.only_base().is_some() {
        let block = loader.block(interval, crate::cache::Admission::Normal)?;
        return Ok(block.count_below(key) as u64);
    }
    count_while(loader, interval, |other| other < key)
}

/// Number of live entries of an interval, from the first on, whose keys pass.
fn count_while(
    loader: &Loader,
    interval: &Interval,
    mut passes: impl FnMut(&[u8]) -> bool,
) -> Result<u64> {
    let mut cursor = BlockCursor::new(loader.block_in_passing(interval)?);
    cursor.seek_first()?;
    let mut count = 0;
    while let Some(key) = cursor.key() {
        if !passes(key) {
            break;
        }
        count += u64::from(!cursor.is_tombstone());
        cursor.next()?;
    }
    Ok(count)
}
