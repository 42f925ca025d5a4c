//! Compactions that somebody asks for: a part of the key space, or all of it, to the last level.

use std::collections::BTreeSet;

use crate::structure::lsm::pick::moves::may_move;
use crate::structure::lsm::pick::picture::{Inputs, Picture};
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionReason, LAST_LEVEL, ManualStep, Pick, Span, TableFigures,
    VersionFigures,
};

/// The tables that are still to be brought to the last level, without garbage.
///
/// Those that are flushed later never are among them, so that it comes to an end however much is
/// written meanwhile. What a compaction makes of some of them is in their place until it lies at
/// the last level: each step brings them deeper, or makes them fewer runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueTables {
    numbers: BTreeSet<u64>,
    what: Due,
}

/// What is to become of due tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Due {
    /// Clean, at the last level.
    #[default]
    Clean,
    /// Written anew, also if they are.
    Rewritten,
}

impl DueTables {
    /// All tables that overlap `span` and are not clean at the last level already.
    #[must_use]
    pub fn of_span(version: &VersionFigures, span: &Span) -> DueTables {
        let picture = Picture::new(version, &[]);
        let last = picture.last_place();
        let overlapping = |place| {
            let tables = &picture.run(place)[picture.overlapping(place, span)];
            tables.iter().filter(move |table| place != last || !table.is_clean())
        };
        let tables = (0..=last).flat_map(overlapping);
        DueTables { numbers: tables.map(|table| table.number).collect(), what: Due::Clean }
    }

    /// These tables, to be written anew even where they are clean at the last level.
    #[must_use]
    pub fn whatever_they_are(numbers: BTreeSet<u64>) -> DueTables {
        DueTables { numbers, what: Due::Rewritten }
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Says that a compaction was installed: `outputs`, of this level, are in the place of
    /// `inputs`. Not for moves: what is moved is not read, and may not be clean.
    pub fn note_installed(&mut self, inputs: &[u64], level: u8, outputs: &[u64]) {
        let mut is_affected = false;
        for input in inputs {
            is_affected |= self.numbers.remove(input);
        }
        // What is written anew is in a new file, wherever that lies.
        if is_affected && level != LAST_LEVEL && self.what == Due::Clean {
            self.numbers.extend(outputs);
        }
    }

    /// The next step. What is newer is taken along with what it overlaps on its way down, so that
    /// no table is written twice when runs are cut alike.
    #[must_use]
    pub fn pick(
        &self,
        version: &VersionFigures,
        running: &[Pick],
        policy: &CompactionPolicy,
    ) -> ManualStep {
        if self.is_empty() {
            return ManualStep::Done;
        }
        let picture = Picture::new(version, running);
        let last = picture.last_place();
        let mut is_done = true;
        for place in 0..=last {
            for (index, table) in picture.run(place).iter().enumerate() {
                if !self.owes(table, place == last) {
                    continue;
                }
                is_done = false;
                if let Some(inputs) = picture.sink(place, index..index + 1, last) {
                    return ManualStep::Compact(
                        picture.pick(&inputs, self.reason_for(&picture, &inputs, policy)),
                    );
                }
            }
        }
        if is_done { ManualStep::Done } else { ManualStep::Wait }
    }

    /// Whether a table is to be compacted still.
    fn owes(&self, table: &TableFigures, is_last: bool) -> bool {
        let is_done = is_last && table.is_clean() && self.what == Due::Clean;
        self.numbers.contains(&table.number) && !is_done
    }

    fn reason_for(
        &self,
        picture: &Picture<'_>,
        inputs: &Inputs,
        policy: &CompactionPolicy,
    ) -> CompactionReason {
        match self.what {
            Due::Clean => reason_for(picture, inputs, policy),
            Due::Rewritten => CompactionReason::Manual,
        }
    }

    /// Bytes of tables that are to be read for it, about: of these, and of those at the last level
    /// that they overlap.
    #[must_use]
    pub fn bytes_left(&self, version: &VersionFigures) -> u64 {
        let picture = Picture::new(version, &[]);
        let last = picture.last_place();
        let mut is_read = vec![false; picture.run(last).len()];
        let mut bytes = 0;
        for place in 0..=last {
            for (index, table) in picture.run(place).iter().enumerate() {
                if !self.owes(table, place == last) {
                    continue;
                }
                if place == last {
                    is_read[index] = true;
                } else {
                    bytes += table.size;
                    is_read[picture.overlapping(last, &table.span())].fill(true);
                }
            }
        }
        let of_last = picture.run(last).iter().zip(is_read).filter(|(_, is_read)| *is_read);
        bytes + of_last.map(|(table, _)| table.size).sum::<u64>()
    }
}

fn reason_for(
    picture: &Picture<'_>,
    inputs: &Inputs,
    policy: &CompactionPolicy,
) -> CompactionReason {
    let level = picture.level_of(inputs.output_place);
    let mut tables = picture.tables(inputs);
    match (tables.next(), tables.next()) {
        (Some(table), None) if table.is_clean() && may_move(table, level, policy) => {
            CompactionReason::Move
        }
        _ => CompactionReason::Manual,
    }
}
