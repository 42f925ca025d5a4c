//! Compactions for the sake of space: where most is gained for what is written.

use std::ops::Range;

use crate::structure::lsm::pick::picture::{Inputs, Picture};
use crate::structure::lsm::pick::shape::Shape;
use crate::structure::lsm::pick::{CompactionReason, LAST_LEVEL, Pick, TableFigures};

/// A table at the last level is rewritten when this part of it is gone.
const GONE_SHARE: (u64, u64) = (1, 4);
/// So many bytes may be written for one that deletions and expiry give back.
const WRITTEN_PER_BYTE_GONE: u64 = 3;

/// What there may be to gain, and what it costs.
#[derive(Clone, Debug)]
struct Candidate {
    inputs: Inputs,
    /// Bytes that are given back, about.
    gain: u64,
    /// Bytes that are read, most of them written again.
    cost: u64,
    /// The oldest table goes first among equals.
    number: u64,
}

impl Candidate {
    /// More is better. Without division: `gain / cost`.
    fn beats(&self, other: &Candidate) -> bool {
        let left = u128::from(self.gain) * u128::from(other.cost);
        let right = u128::from(other.gain) * u128::from(self.cost);
        left > right || (left == right && self.number < other.number)
    }
}

fn best(candidates: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    candidates.reduce(|best, other| if other.beats(&best) { other } else { best })
}

/// From a level with more garbage than it may have, whatever gives most back.
pub(super) fn pick_excess(picture: &Picture<'_>, shape: &Shape) -> Option<Pick> {
    // The level that is furthest beyond its limit comes first.
    let mut levels: Vec<u8> = (0..LAST_LEVEL).filter(|level| shape.excess(*level) > 0).collect();
    levels.sort_by_key(|level| {
        let limit = u128::from(shape.limit(*level)).max(1);
        std::cmp::Reverse((u128::from(shape.excess(*level)) << u32::BITS) / limit)
    });
    levels.into_iter().find_map(|level| {
        let found = best(sinks_from(picture, level, shape))?;
        let reason = match level {
            0 => CompactionReason::Space,
            _ => CompactionReason::LevelSize,
        };
        Some(picture.pick(&found.inputs, reason))
    })
}

/// All ways to sink a table of a level.
fn sinks_from<'a>(
    picture: &'a Picture<'_>,
    level: u8,
    shape: &'a Shape,
) -> impl Iterator<Item = Candidate> + 'a {
    places_of(picture, level).flat_map(move |place| {
        let tables = 0..picture.run(place).len();
        tables.filter_map(move |index| {
            let output_place = picture.place_of(next_level(level, shape));
            let inputs = picture.sink(place, index..index + 1, output_place)?;
            let gain = sinking(picture, &inputs).map(|table| shape.garbage_under(table)).sum();
            (gain > 0).then(|| candidate(picture, inputs, gain))
        })
    })
}

/// Where level 0 is compacted to, and every other level.
pub(super) fn next_level(level: u8, shape: &Shape) -> u8 {
    (level + 1).max(shape.base_level)
}

fn places_of(picture: &Picture<'_>, level: u8) -> Range<usize> {
    match level {
        0 => 0..picture.level0_count(),
        level => picture.place_of(level)..picture.place_of(level) + 1,
    }
}

/// The inputs that come from newer places than the output's.
fn sinking<'a>(
    picture: &'a Picture<'_>,
    inputs: &'a Inputs,
) -> impl Iterator<Item = &'a TableFigures> {
    let pieces = inputs.pieces.iter().filter(|(place, _)| *place < inputs.output_place);
    pieces.flat_map(|(place, tables)| &picture.run(*place)[tables.clone()])
}

fn candidate(picture: &Picture<'_>, inputs: Inputs, gain: u64) -> Candidate {
    let number = picture.tables(&inputs).map(|table| table.number).min().unwrap_or(u64::MAX);
    let cost = picture.sizes(&inputs).sum().max(1);
    Candidate { inputs, gain, cost, number }
}

/// What is deleted or has expired, where it is worth what it costs to have the room back.
pub(super) fn pick_gone(picture: &Picture<'_>, shape: &Shape) -> Option<Pick> {
    let found = best((0..picture.place_count()).flat_map(|place| {
        let tables = 0..picture.run(place).len();
        tables.filter_map(move |index| gone_at(picture, place, index, shape))
    }))?;
    let newest = &picture.run(found.inputs.pieces[0].0)[found.inputs.pieces[0].1.start];
    let reason = if newest.deleted_ranges > 0 {
        CompactionReason::DeletedRanges
    } else if newest.expired >= newest.tombstones {
        CompactionReason::Expired
    } else {
        CompactionReason::Tombstones
    };
    Some(picture.pick(&found.inputs, reason))
}

fn gone_at(picture: &Picture<'_>, place: usize, index: usize, shape: &Shape) -> Option<Candidate> {
    let table = &picture.run(place)[index];
    if !table.has_garbage() {
        return None;
    }
    // Where nothing older lies behind it, all that only says that something is gone can go.
    let is_oldest = is_alone_from(picture, place, table);
    let is_worth = if is_oldest {
        let (numerator, denominator) = GONE_SHARE;
        table.deleted_ranges > 0 || table.gone() * denominator >= table.entry_count * numerator
    } else {
        shape.gone_by(table) > 0
    };
    if !is_worth {
        return None;
    }
    if is_oldest {
        let inputs = picture.sink(place, index..index + 1, place_to_rewrite(picture, place))?;
        let gain = table.size_of_entries(table.gone()).max(1);
        return Some(candidate(picture, inputs, gain));
    }
    let output_place = picture.place_of(next_level(picture.level_of(place), shape));
    let inputs = picture.sink(place, index..index + 1, output_place)?;
    let gain = sinking(picture, &inputs).map(|table| shape.gone_by(table)).sum();
    let found = candidate(picture, inputs, gain);
    (found.gain.saturating_mul(WRITTEN_PER_BYTE_GONE) >= found.cost).then_some(found)
}

/// Whether no table behind `place` overlaps this one.
pub(super) fn is_alone_from(picture: &Picture<'_>, place: usize, table: &TableFigures) -> bool {
    let span = table.span();
    (place + 1..picture.place_count()).all(|behind| picture.overlapping(behind, &span).is_empty())
}

/// A table of a level that nothing lies behind is rewritten where it is; one of level 0, which
/// takes whole runs only, at the last level.
fn place_to_rewrite(picture: &Picture<'_>, place: usize) -> usize {
    if picture.level_of(place) == 0 { picture.last_place() } else { place }
}
