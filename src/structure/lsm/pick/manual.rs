//! Compactions that somebody asks for: a part of the key space, or all of it, to the last level.

use crate::structure::lsm::pick::moves::may_move;
use crate::structure::lsm::pick::picture::{Inputs, Picture};
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionReason, ManualStep, Pick, Span, VersionFigures,
};

/// The next step of bringing all that lies in `span` to the last level, without garbage. Tables of
/// numbers from `before` on were written since this was begun, and count as clean once they lie at
/// the last level.
///
/// What is newer is taken along with what it overlaps on its way down, so that no table is written
/// twice when runs are cut alike.
#[must_use]
pub fn pick_span(
    version: &VersionFigures,
    running: &[Pick],
    policy: &CompactionPolicy,
    span: &Span,
    before: u64,
) -> ManualStep {
    let picture = Picture::new(version, running);
    let last = picture.last_place();
    let mut is_done = true;
    for place in 0..=last {
        for index in picture.overlapping(place, span) {
            let table = &picture.run(place)[index];
            if place == last && (table.number >= before || !table.has_garbage()) {
                continue;
            }
            is_done = false;
            if let Some(inputs) = picture.sink(place, index..index + 1, last) {
                return ManualStep::Compact(
                    picture.pick(&inputs, reason_for(&picture, &inputs, policy)),
                );
            }
        }
    }
    if is_done { ManualStep::Done } else { ManualStep::Wait }
}

fn reason_for(
    picture: &Picture<'_>,
    inputs: &Inputs,
    policy: &CompactionPolicy,
) -> CompactionReason {
    let level = picture.level_of(inputs.output_place);
    let mut tables = picture.tables(inputs);
    match (tables.next(), tables.next()) {
        (Some(table), None) if !table.has_garbage() && may_move(table, level, policy) => {
            CompactionReason::Move
        }
        _ => CompactionReason::Manual,
    }
}
