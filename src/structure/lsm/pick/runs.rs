//! Compactions for the sake of reads: fewer runs to look into.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::structure::lsm::pick::picture::{Inputs, Picture};
use crate::structure::lsm::pick::shape::Shape;
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionReason, CompactionStyle, Pick, TieredPolicy,
};

/// A merge takes all of its runs at once when it takes no more than this part of all there is ..
const WHOLE_DIVISOR: u64 = 8;
/// .. or so many flushes, ..
const WHOLE_FLUSHES: u64 = 2;
/// .. and no more than so many times what its runs and what they overlap take.
const WHOLE_BESIDE: u64 = 2;
/// What nobody waits for takes so many flushes at most, ..
const UNHURRIED_FLUSHES: u64 = 16;
/// .. or tables: it is done within seconds, so that little is in the way of what becomes due, and
/// little is lost when the store is closed meanwhile.
const UNHURRIED_TABLES: u64 = 8;
/// Of what is merged when nobody writes, what is there already takes so many times the rest at
/// most.
const OVERLAPPED_MAX: u64 = 3;
/// When running compactions are in the way of so many of the best, it is better to wait for them.
const TRIED_MAX: usize = 8;

/// Neighbouring runs to merge.
#[derive(Clone, Debug)]
struct Window {
    /// The place of the newest, and the one where they come together.
    first: usize,
    output_place: usize,
    /// Runs that there are fewer after it.
    removed: u64,
    /// Bytes that are read.
    cost: u64,
}

impl Window {
    /// Cheaper for each run that goes is better; among equals, the one that removes more. When the
    /// cheapest are always merged first, sizes come to ascend with age, and what was flushed is
    /// rewritten about as rarely as the number of runs allows.
    fn beats(&self, other: &Window) -> bool {
        let left = u128::from(self.cost) * u128::from(other.removed);
        let right = u128::from(other.cost) * u128::from(self.removed);
        left < right || (left == right && self.removed > other.removed)
    }
}

/// When there are too many runs, those whose merging costs least for each that goes.
pub(super) fn pick_too_many(
    picture: &Picture<'_>,
    shape: &Shape,
    policy: &CompactionPolicy,
) -> Option<Pick> {
    if idle_run_count(picture) <= shape.run_count_max {
        return None;
    }
    let windows = windows(picture, shape);
    let whole_max = (picture.size() / WHOLE_DIVISOR).max(WHOLE_FLUSHES * policy.flush_size);
    let inputs = best_inputs(picture, windows, whole_max, |_| true)?;
    Some(picture.pick(&inputs, CompactionReason::RunCount))
}

/// The first step of the best of some that nothing is in the way of, if it `is_worth` it.
fn best_inputs(
    picture: &Picture<'_>,
    mut windows: Vec<Window>,
    whole_max: u64,
    is_worth: impl Fn(&Inputs) -> bool,
) -> Option<Inputs> {
    windows.sort_by(|left, right| right.beats(left).cmp(&left.beats(right)));
    windows.iter().take(TRIED_MAX).find_map(|window| {
        let whole_max = whole_max.min(window.cost.saturating_mul(WHOLE_BESIDE));
        picture
            .whole_runs(window.first..window.output_place + 1)
            .filter(|whole| picture.sizes(whole).sum() <= whole_max && is_worth(whole))
            .or_else(|| sinks(picture, window).find(&is_worth))
    })
}

/// Bytes that a step takes at most which nobody waits for.
fn unhurried_max(policy: &CompactionPolicy) -> u64 {
    let of_tables = UNHURRIED_TABLES * policy.table_size;
    of_tables.max(UNHURRIED_FLUSHES * policy.flush_size)
}

/// When there is nothing else to do, fewer runs than there may be: if what is merged anew for it is
/// little beside what has come since. Not of tiered ones, which are to be of different sizes.
pub(super) fn pick_idle(
    picture: &Picture<'_>,
    shape: &Shape,
    policy: &CompactionPolicy,
) -> Option<Pick> {
    if matches!(policy.style, CompactionStyle::Tiered(_)) {
        return None;
    }
    let mut windows = windows(picture, shape);
    windows.retain(|window| is_worth_trying(picture, window));
    let max = unhurried_max(policy);
    let inputs = best_inputs(picture, windows, max, |inputs| {
        picture.sizes(inputs).sum() <= max && is_worth_idling(picture, inputs)
    })?;
    Some(picture.pick(&inputs, CompactionReason::Idle))
}

/// Fewer runs than there may be, where that costs no more than what has been paid for looking into
/// them: for a part of them, a part of it. Not of tiered ones.
pub(super) fn pick_paid(
    picture: &Picture<'_>,
    shape: &Shape,
    policy: &CompactionPolicy,
    paid: u64,
) -> Option<Pick> {
    if matches!(policy.style, CompactionStyle::Tiered(_)) {
        return None;
    }
    let extra = picture.level0_count() as u64;
    let mut windows = windows(picture, shape);
    windows.retain(|window| {
        let share = u128::from(paid) * u128::from(window.removed);
        u128::from(window.cost) * u128::from(extra) <= share
    });
    let fits = |inputs: &Inputs| picture.sizes(inputs).sum() <= paid;
    let inputs = best_inputs(picture, windows, unhurried_max(policy), fits)?;
    Some(picture.pick(&inputs, CompactionReason::Seeks))
}

/// Whether each byte is merged a bounded number of times, however often somebody writes a little
/// and then pauses: what is merged into a level is a part of what it overlaps there; of pieces of
/// runs of level 0, none is larger than the others together, so that it doubles at least.
fn is_worth_idling(picture: &Picture<'_>, inputs: &Inputs) -> bool {
    let sizes = picture.sizes(inputs);
    if inputs.output_place >= picture.level0_count() {
        return sizes.sinking > 0 && sizes.there <= sizes.sinking.saturating_mul(OVERLAPPED_MAX);
    }
    let mut pieces: BTreeMap<usize, u64> = BTreeMap::new();
    for (place, tables) in &inputs.pieces {
        let size: u64 = picture.run(*place)[tables.clone()].iter().map(|table| table.size).sum();
        *pieces.entry(*place).or_default() += size;
    }
    let largest = pieces.values().copied().max().unwrap_or(0);
    largest <= sizes.sum() - largest
}

/// Whether a window as a whole would be worth it: then some step of it may be, too.
fn is_worth_trying(picture: &Picture<'_>, window: &Window) -> bool {
    let places = window.first..window.output_place.min(picture.level0_count());
    let sizes = || places.clone().map(|place| picture.size_at(place));
    let level0: u64 = sizes().sum();
    if window.output_place < picture.level0_count() {
        let largest = sizes().chain([picture.size_at(window.output_place)]).max().unwrap_or(0);
        return largest <= window.cost.saturating_sub(largest);
    }
    level0 > 0 && window.cost.saturating_sub(level0) <= level0.saturating_mul(OVERLAPPED_MAX)
}

/// Runs of level 0 that are there when the compactions that run are done, about: of each run that
/// is being merged with others, nothing is left in its own place.
pub(super) fn idle_run_count(picture: &Picture<'_>) -> usize {
    (0..picture.level0_count()).filter(|place| picture.idle_size_at(*place) > 0).count()
}

/// All runs of level 0 that lie side by side, and those from one on with the base level. The last
/// run costs only as much of it as the others overlap: what they have merged already does not count
/// again, so that a merge that was begun is gone on with.
fn windows(picture: &Picture<'_>, shape: &Shape) -> Vec<Window> {
    let count = picture.level0_count();
    let mut windows = Vec::new();
    for output_place in (1..count).chain([picture.place_of(shape.base_level)]) {
        let mut overlapped = overlapped_by(picture, output_place);
        let mut cost = 0;
        for first in (0..output_place.min(count)).rev() {
            cost += picture.size_at(first) + std::mem::take(&mut overlapped[first]);
            let removed = (output_place.min(count) - first) as u64;
            windows.push(Window { first, output_place, removed, cost });
        }
    }
    windows
}

/// Bytes at a place (and at the levels in front of it, if it is one), by the oldest run of level 0
/// in front of them that overlaps them.
fn overlapped_by(picture: &Picture<'_>, output_place: usize) -> Vec<u64> {
    let count = picture.level0_count();
    let mut overlapped = vec![0; count];
    for place in output_place.min(count)..=output_place {
        for table in picture.run(place) {
            let span = table.span();
            let overlaps = |run: &usize| !picture.overlapping(*run, &span).is_empty();
            if let Some(above) = (0..output_place.min(count)).rev().find(overlaps) {
                overlapped[above] += table.size;
            }
        }
    }
    overlapped
}

/// The steps of a window that nothing is in the way of: a table of its newest run each, with what
/// goes with it.
fn sinks(picture: &Picture<'_>, window: &Window) -> impl Iterator<Item = Inputs> {
    let tables = 0..picture.run(window.first).len();
    tables.filter_map(|index| picture.sink(window.first, index..index + 1, window.output_place))
}

/// Bytes that are read until there are no more runs than there may be, about.
pub(super) fn cost_of_too_many(picture: &Picture<'_>, shape: &Shape) -> u64 {
    let count = idle_run_count(picture);
    let Some(excess) = count.checked_sub(shape.run_count_max).filter(|excess| *excess > 0) else {
        return 0;
    };
    let windows = windows(picture, shape).into_iter();
    let cheapest = windows.reduce(|best, other| if other.beats(&best) { other } else { best });
    cheapest.map_or(0, |window| {
        // A window may remove more runs than must go.
        let steps = (excess as u64).div_ceil(window.removed);
        (window.cost.saturating_mul(steps)).max(1)
    })
}

/// Neighbouring runs of like size, the cheapest.
pub(super) fn pick_like(picture: &Picture<'_>, tiered: &TieredPolicy) -> Option<Pick> {
    let windows = like_windows(picture, tiered);
    windows.into_iter().take(TRIED_MAX).find_map(|places| {
        let inputs = picture.whole_runs(places)?;
        Some(picture.pick(&inputs, CompactionReason::LikeSize))
    })
}

/// Places of runs of like size, those with the least bytes first. In time that grows with the
/// square of the runs, of which there may be hundreds when flushes were faster.
pub(super) fn like_windows(picture: &Picture<'_>, tiered: &TieredPolicy) -> Vec<Range<usize>> {
    let sizes = (0..picture.place_count()).map(|place| (place, picture.size_at(place)));
    let runs: Vec<(usize, u64)> = sizes.filter(|(_, size)| *size > 0).collect();
    let mut windows: Vec<(u64, Range<usize>)> = Vec::new();
    for start in 0..runs.len() {
        // The longest from here on: a longer one costs no more a run.
        let mut longest = None;
        let (mut cost, mut sum, mut smallest, mut largest) = (0, 0.0, u64::MAX, 0);
        for (behind, (place, size)) in (1..).zip(&runs[start..]) {
            cost += size;
            sum += *size as f64;
            (smallest, largest) = (smallest.min(*size), largest.max(*size));
            let mean = sum / f64::from(behind);
            let is_like = smallest as f64 >= tiered.bucket_low * mean
                && largest as f64 <= tiered.bucket_high * mean;
            if behind as usize >= tiered.threshold && is_like {
                longest = Some((cost, runs[start].0..place + 1));
            }
        }
        windows.extend(longest);
    }
    windows.sort_by_key(|(cost, places)| (*cost, places.start));
    windows.into_iter().map(|(_, places)| places).collect()
}
