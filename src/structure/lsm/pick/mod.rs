//! Compaction: which tables of an LSM tree are merged next, and into which level.
//!
//! Pure functions of what a version is made of ([`VersionFigures`]) and of the compactions that
//! run ([`Pick`]s that were handed out and are not installed yet). Whoever asks does the merging.
//!
//! A version is a sequence of runs, from new to old: those of level 0, newest first, then levels
//! 1 to 6. Here a run's position in that sequence is its *place*. What lies at a lower place is
//! newer and wins.
//!
//! Invariants, for every pick
//! - C1  Inputs are closed downwards: of each place from the newest input's to the output's, every
//!   table is an input that overlaps what the inputs at newer places span. So nothing sinks below
//!   something older than itself. A table at a newer place need not be an input: what it overlaps
//!   sinks, which is below it already.
//! - C2  At the output's place every table is an input that overlaps the span of all inputs, so
//!   that the outcome is disjoint from what stays there. Within level 0 that place is the run of
//!   the oldest input.
//! - C3  No table is an input of two compactions. Two that run at once and have a place in common
//!   (between the newest input and the output) have spans that do not overlap. So whichever ends
//!   first, the inputs of the other are where they were, its outcome is disjoint from its
//!   neighbours, and nothing comes to lie below it in its span.
//! - C4  A pick makes the version better by a measure that cannot go on for ever: fewer runs, fewer
//!   bytes in levels that are too large, fewer tables with garbage, or tables that lie deeper.

mod cuts;
mod figures;
mod manual;
mod moves;
mod picture;
mod runs;
mod shape;
mod space;
#[cfg(test)]
mod tests;

pub use cuts::{level0_cuts, output_table_size, split_keys};
pub use figures::{
    CompactionPolicy, CompactionReason, CompactionStyle, LAST_LEVEL, LEVEL_COUNT, LeveledPolicy,
    ManualStep, Pick, Span, TableFigures, TieredPolicy, VersionFigures,
};
pub use manual::DueTables;

use picture::Picture;
use shape::Shape;

/// With so many times the runs that there may be, reads come before space.
const RUNS_FIRST_FACTOR: usize = 2;

/// The compaction that is due most; `None` when the version is in shape, or all that is due waits
/// for the `running` ones. Ask until then, and again when one has ended or a run was flushed.
#[must_use]
pub fn pick(version: &VersionFigures, running: &[Pick], policy: &CompactionPolicy) -> Option<Pick> {
    let picture = Picture::new(version, running);
    let shape = Shape::new(&picture, policy);
    let space = || space::pick_excess(&picture, &shape);
    let reads = || {
        let like = match policy.style {
            CompactionStyle::Leveled(_) => None,
            CompactionStyle::Tiered(tiered) => runs::pick_like(&picture, &tiered),
        };
        like.or_else(|| runs::pick_too_many(&picture, &shape, policy))
    };
    let in_need = || {
        if runs::idle_run_count(&picture) > RUNS_FIRST_FACTOR * shape.run_count_max {
            reads().or_else(space)
        } else {
            space().or_else(reads)
        }
    };
    moves::pick_move(&picture, &shape, policy)
        .or_else(in_need)
        .or_else(|| space::pick_gone(&picture, &shape))
}

/// What may be merged when nothing is due and nobody writes, for the sake of reads.
#[must_use]
pub fn pick_idle(
    version: &VersionFigures,
    running: &[Pick],
    policy: &CompactionPolicy,
) -> Option<Pick> {
    let picture = Picture::new(version, running);
    let shape = Shape::new(&picture, policy);
    runs::pick_idle(&picture, &shape, policy)
}

/// What may be merged when nothing is due, for the sake of seeks, which look into every run: where
/// it takes no more bytes than `paid` comes to for the runs that go.
#[must_use]
pub fn pick_paid(
    version: &VersionFigures,
    running: &[Pick],
    policy: &CompactionPolicy,
    paid: u64,
) -> Option<Pick> {
    let picture = Picture::new(version, running);
    let shape = Shape::new(&picture, policy);
    runs::pick_paid(&picture, &shape, policy, paid)
}

/// Bytes that compactions have to read, about, before there is no more garbage and there are no
/// more runs than there may be: what writers are slowed down by. 0 when the version is in shape.
#[must_use]
pub fn compaction_debt(version: &VersionFigures, policy: &CompactionPolicy) -> u64 {
    let picture = Picture::new(version, &[]);
    let shape = Shape::new(&picture, policy);
    let of_space = (0..LAST_LEVEL).map(|level| {
        // What is behind is about so many times what is merged into it.
        let factor = shape.live() as f64 / shape.limit(level).max(1) as f64;
        (shape.excess(level) as f64 * (1.0 + factor.min(FACTOR_MAX))) as u64
    });
    of_space.sum::<u64>().saturating_add(runs::cost_of_too_many(&picture, &shape))
}

/// However little garbage a level may have, no byte costs more than so many.
const FACTOR_MAX: f64 = 100.0;
