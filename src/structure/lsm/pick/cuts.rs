//! Where runs are cut into tables, and compactions into parts.
//!
//! A compaction takes whole tables. If the tables of one run began and ended anywhere against those
//! of the next, each run that a compaction passes on its way down would widen it. So runs of level
//! 0 are cut at the same keys: the key space falls into *columns*, and one is compacted after the
//! other, each with its part of every run. So a compaction takes little room beside what is there,
//! several can run at once, and at any moment some columns are full of garbage and others free of
//! it, which halves what is written for the same garbage.

use std::ops::RangeInclusive;

use crate::base::Slice;
use crate::structure::lsm::pick::{CompactionPolicy, TableFigures, VersionFigures};

/// Columns that data falls into, about. More make jobs smaller, and more files.
const COLUMN_COUNTS: RangeInclusive<u64> = 8..=32;
/// There are more of them when one would be larger than so many tables.
const TABLES_PER_COLUMN_MAX: u64 = 16;
/// The run that the others are cut after should have as many tables as this for each column.
const TABLES_PER_COLUMN: u64 = 2;
/// A table of an outcome is not made smaller than this part of a full one for the sake of columns.
const SMALL_DIVISOR: u64 = 16;
/// Nor what a run of level 0 has of a column: it is merged soon.
const PIECE_DIVISOR: u64 = 64;

/// Keys at which a run of level 0 of about `size` bytes is cut: its tables end in front of them,
/// and wherever else they are full. Ascending.
#[must_use]
pub fn level0_cuts(version: &VersionFigures, policy: &CompactionPolicy, size: u64) -> Vec<Slice> {
    let piece = (policy.table_size / PIECE_DIVISOR).max(1);
    let column_count = column_count(version, policy).min(size / piece);
    if column_count < 2 {
        return Vec::new();
    }
    let borders = borders_of(version);
    let whole = version.size();
    let width = whole / column_count;
    let mut cuts: Vec<Slice> = Vec::new();
    let (mut from, mut passed) = (0, 0);
    while let Some(chosen) = next_border(&borders[from..], passed, whole, width) {
        let border = &borders[from + chosen];
        cuts.push(border.key.clone());
        (from, passed) = (from + chosen + 1, border.passed);
    }
    cuts
}

fn column_count(version: &VersionFigures, policy: &CompactionPolicy) -> u64 {
    let large = TABLES_PER_COLUMN_MAX * policy.table_size.max(1);
    (version.size() / large).clamp(*COLUMN_COUNTS.start(), *COLUMN_COUNTS.end())
}

/// Where a table begins: a key that is there, and that is still there when what lies over it has
/// been merged into it. So columns stay what they are, to the key.
#[derive(Debug)]
struct Border<'a> {
    key: &'a Slice,
    /// Bytes of tables that begin in front of it.
    passed: u64,
    /// Tables that begin in front of it and end behind it. That of a run that was cut there begins
    /// at the key, or somewhat behind it.
    across: usize,
}

/// Ascending.
fn borders_of(version: &VersionFigures) -> Vec<Border<'_>> {
    let mut begins: Vec<(&Slice, u64)> =
        version.tables().map(|table| (&table.first, table.size)).collect();
    begins.sort_unstable_by_key(|(first, _)| *first);
    let mut ends: Vec<&Slice> = version.tables().filter_map(|table| table.end.as_ref()).collect();
    ends.sort_unstable();
    let mut borders: Vec<Border<'_>> = Vec::with_capacity(begins.len());
    let (mut ended, mut passed) = (0, 0);
    for (begun, (key, size)) in begins.into_iter().enumerate() {
        if borders.last().is_none_or(|last| last.key != key) {
            while ends.get(ended).is_some_and(|end| *end <= key) {
                ended += 1;
            }
            borders.push(Border { key, passed, across: begun.saturating_sub(ended) });
        }
        passed += size;
    }
    borders
}

/// Of the borders of a column that begins behind `passed` bytes, the one that fewest tables lie
/// across: columns are from half of to one and a half times `width`.
fn next_border(borders: &[Border<'_>], passed: u64, whole: u64, width: u64) -> Option<usize> {
    let is_far = |border: &Border<'_>| (border.passed - passed) * 2 >= width.max(1);
    let is_near = |border: &Border<'_>| (border.passed - passed) * 2 <= width * 3;
    let leaves_one = |border: &Border<'_>| (whole - border.passed) * 2 >= width;
    if (whole - passed) * 2 <= width * 3 {
        return None; // The rest is one.
    }
    let mut far =
        (0..borders.len()).filter(|at| is_far(&borders[*at]) && leaves_one(&borders[*at]));
    let first = far.clone().next()?;
    let best = far.by_ref().take_while(|at| is_near(&borders[*at])).min_by_key(|at| {
        let border = &borders[*at];
        (border.across, (border.passed - passed).abs_diff(width))
    });
    Some(best.unwrap_or(first))
}

/// Bytes at which the tables of a flush or an outcome of about `size` bytes are closed: about equal
/// ones, none much larger than [`CompactionPolicy::table_size`], and smaller ones as long as there
/// is so little data that it would not fall into columns.
#[must_use]
pub fn output_table_size(version: &VersionFigures, policy: &CompactionPolicy, size: u64) -> u64 {
    let full = policy.table_size.max(1);
    let of_columns = version.size() / (column_count(version, policy) * TABLES_PER_COLUMN);
    let target = of_columns.clamp((full / SMALL_DIVISOR).max(1), full);
    size.max(1).div_ceil(size.max(1).div_ceil(target))
}

/// Keys at which a compaction of these tables falls into at most `count` parts of about the same
/// size: ascending, strictly within their span; `count - 1` at most.
#[must_use]
pub fn split_keys(tables: &[&TableFigures], count: usize) -> Vec<Slice> {
    // A table's bytes count where it begins and where it ends, half and half: all that is known.
    let mut weights: Vec<(&Slice, u64)> = Vec::new();
    for table in tables {
        let half = table.size / 2;
        weights.push((&table.first, table.size - half));
        match &table.end {
            Some(end) => weights.push((end, half)),
            None => weights.push((&table.first, half)),
        }
    }
    weights.sort_by_key(|(key, _)| *key);
    let (Some((first, _)), Some((last, _))) = (weights.first(), weights.last()) else {
        return Vec::new();
    };
    let whole: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let part = (whole / count.max(1) as u64).max(1);
    let mut keys: Vec<Slice> = Vec::new();
    let mut passed = 0;
    for (key, weight) in &weights {
        let parts_begun = keys.len() as u64 + 1;
        let is_within = *first < *key && *key < *last && keys.last() != Some(*key);
        if is_within && passed >= part * parts_begun && keys.len() + 1 < count {
            keys.push((*key).clone());
        }
        passed += weight;
    }
    keys
}
