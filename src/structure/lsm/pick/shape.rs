//! The shape that a version is to have, and how far it is from it.
//!
//! What decides is *garbage*: bytes of older entries that newer ones hide, about. Of data that is
//! only inserted there is none, and nothing has to be merged for its sake.

use crate::structure::lsm::pick::picture::Picture;
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionStyle, LAST_LEVEL, LEVEL_COUNT, LeveledPolicy, TableFigures,
};

/// Level 0 may hold garbage of so many flushes, however small the data: merging it with each flush
/// would write the data once a flush.
const GARBAGE_FLUSHES_MIN: u64 = 3;
/// With `n` runs, merging them so that the number is kept rewrites what was flushed `c` times as
/// long as there are at most `(n + c)! / (n! c!)` flushes of it. For more than three times a level
/// is put between.
const REWRITES_MAX: u64 = 3;

/// Limits and figures of a version.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Bytes of an entry, about.
    entry_size: f64,
    /// Garbage that the tables at a level hide at places behind it; of level 0 all runs together.
    garbage: [u64; LEVEL_COUNT],
    /// How much of it there may be.
    limits: [u64; LEVEL_COUNT],
    /// The level that level 0 is compacted into.
    pub base_level: u8,
    /// How many runs level 0 may have.
    pub run_count_max: usize,
    /// Bytes that are not hidden, about.
    live: u64,
}

impl Shape {
    pub fn new(picture: &Picture<'_>, policy: &CompactionPolicy) -> Shape {
        let tables = || (0..picture.place_count()).flat_map(|place| picture.run(place));
        let size: u64 = tables().map(|table| table.size).sum();
        let entries: u64 = tables().map(|table| table.entry_count - table.gone()).sum();
        let mut shape = Shape {
            entry_size: size as f64 / entries.max(1) as f64,
            garbage: [0; LEVEL_COUNT],
            limits: [u64::MAX; LEVEL_COUNT],
            base_level: LAST_LEVEL,
            run_count_max: 0,
            live: 0,
        };
        let mut behind = size;
        for place in 0..picture.last_place() {
            // More than there is behind them cannot be hidden.
            behind -= picture.size_at(place);
            let hidden: u64 = picture.idle_at(place).map(|table| shape.garbage_under(table)).sum();
            shape.garbage[usize::from(picture.level_of(place))] += hidden.min(behind);
        }
        shape.live = size - shape.garbage.iter().sum::<u64>().min(size);
        match policy.style {
            CompactionStyle::Leveled(leveled) => shape.limit_levels(picture, &leveled, policy),
            CompactionStyle::Tiered(tiered) => {
                let flushed = GARBAGE_FLUSHES_MIN * policy.flush_size;
                let limit = (shape.live as f64 * tiered.garbage_max) as u64;
                shape.limits[0] = limit.max(flushed);
                shape.run_count_max = tiered.run_count_max;
            }
        }
        shape
    }

    /// From the last level upwards, each is as much smaller as the ratio says; the first that level
    /// 0 can hold the runs for is the one that level 0 is compacted into.
    fn limit_levels(
        &mut self,
        picture: &Picture<'_>,
        leveled: &LeveledPolicy,
        policy: &CompactionPolicy,
    ) {
        let held = runs_held(leveled.level0_trigger) * policy.flush_size;
        let mut target = self.live as f64 / leveled.level_ratio;
        while self.base_level > 1 {
            let above = self.base_level - 1;
            // A level that is there stays until half of what brought it is left.
            let is_there = picture.size_at(picture.place_of(above)) > 0;
            if target <= if is_there { held as f64 / 2.0 } else { held as f64 } {
                break;
            }
            self.limits[usize::from(above)] = target as u64;
            self.base_level = above;
            target /= leveled.level_ratio;
        }
        // What lies above the base level has no business there.
        self.limits[1..usize::from(self.base_level)].fill(0);
        self.limits[0] = (target as u64).max(GARBAGE_FLUSHES_MIN * policy.flush_size);
        self.run_count_max = leveled.level0_trigger;
    }

    /// Bytes of older entries that a table hides, about.
    pub fn garbage_under(&self, table: &TableFigures) -> u64 {
        (table.hides as f64 * self.entry_size) as u64
    }

    /// As [`Shape::garbage_under`], only of what is deleted and not put anew, and with what has
    /// expired in the table itself.
    pub fn gone_by(&self, table: &TableFigures) -> u64 {
        let puts = table.entry_count - table.tombstones.min(table.entry_count);
        let deleted = table.hides.saturating_sub(puts);
        (deleted as f64 * self.entry_size) as u64 + table.size_of_entries(table.expired)
    }

    /// By how much the garbage of a level is above its limit.
    pub fn excess(&self, level: u8) -> u64 {
        let level = usize::from(level);
        self.garbage[level].saturating_sub(self.limits[level])
    }

    /// How much garbage a level may have.
    pub fn limit(&self, level: u8) -> u64 {
        self.limits[usize::from(level)]
    }

    /// Bytes that are not hidden, about.
    pub fn live(&self) -> u64 {
        self.live
    }
}

/// How many flushes can be kept as so many runs without rewriting any more than [`REWRITES_MAX`]
/// times.
fn runs_held(run_count: usize) -> u64 {
    let run_count = run_count as u64;
    (1..=REWRITES_MAX).fold(1, |count, rewrites| count * (run_count + rewrites) / rewrites)
}
