//! Tables that come to lie deeper without being written: nothing older lies in their way.

use crate::base::Codec;
use crate::structure::lsm::pick::picture::Picture;
use crate::structure::lsm::pick::shape::Shape;
use crate::structure::lsm::pick::{CompactionPolicy, CompactionReason, Pick, TableFigures};

/// A table below a full one's (or a flush's) size over this is not moved: many small tables at the
/// last level would stay small. They are merged with others first.
const SMALL_DIVISOR: u64 = 8;

/// A table of level 0 that may lie at a level.
pub(super) fn pick_move(
    picture: &Picture<'_>,
    shape: &Shape,
    policy: &CompactionPolicy,
) -> Option<Pick> {
    // The oldest first: what lies over it may follow.
    (0..picture.level0_count()).rev().find_map(|place| {
        let run = picture.run(place);
        (0..run.len()).find_map(|index| {
            let output_place = deepest_place(picture, place, &run[index]);
            let level = picture.level_of(output_place);
            let is_moved = level >= shape.base_level && may_move(&run[index], level, policy);
            let inputs =
                picture.sink(place, index..index + 1, is_moved.then_some(output_place)?)?;
            Some(picture.pick(&inputs, CompactionReason::Move))
        })
    })
}

/// The oldest place that the table can lie at without overlapping anything there or on the way.
pub(super) fn deepest_place(picture: &Picture<'_>, place: usize, table: &TableFigures) -> usize {
    let span = table.span();
    let behind = place + 1..picture.place_count();
    let is_free = |place: &usize| picture.overlapping(*place, &span).is_empty();
    behind.take_while(is_free).last().unwrap_or(place)
}

/// Whether the table is at the level what a merge would have put there, about.
pub(super) fn may_move(table: &TableFigures, level: u8, policy: &CompactionPolicy) -> bool {
    let codec: Codec = policy.codecs[usize::from(level)];
    let full = policy.table_size.min(policy.flush_size);
    codec == policy.codecs[0]
        && table.size >= full / SMALL_DIVISOR
        && table.deleted_ranges == 0
        && table.gone() * 4 < table.entry_count
}
