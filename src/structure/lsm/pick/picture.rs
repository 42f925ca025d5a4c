//! A version as a sequence of runs, with what compactions have taken of it: what may be merged.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::structure::lsm::pick::figures::size_of;
use crate::structure::lsm::pick::{
    CompactionReason, LAST_LEVEL, LEVEL_COUNT, Pick, Span, TableFigures, VersionFigures,
};

/// A version in the order from new to old.
pub(super) struct Picture<'a> {
    /// By place.
    runs: Vec<&'a [TableFigures]>,
    level0_count: usize,
    /// Inputs of running compactions.
    busy: HashSet<u64>,
    occupied: Vec<Occupied>,
}

/// What a running compaction keeps others from (C3).
struct Occupied {
    /// From its newest input's place to its output's.
    places: Range<usize>,
    span: Span,
}

/// Tables that may be merged.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// Places and, of each, tables side by side; the newest place first.
    pub pieces: Vec<(usize, Range<usize>)>,
    /// Where the outcome belongs.
    pub output_place: usize,
    /// What they span.
    pub span: Span,
}

impl<'a> Picture<'a> {
    pub fn new(version: &'a VersionFigures, running: &[Pick]) -> Picture<'a> {
        let level0 = version.level0.iter().map(Vec::as_slice);
        let runs: Vec<&[TableFigures]> =
            level0.chain(version.levels.iter().map(Vec::as_slice)).collect();
        let mut picture = Picture {
            runs,
            level0_count: version.level0.len(),
            busy: running.iter().flat_map(|pick| pick.inputs.iter().copied()).collect(),
            occupied: Vec::new(),
        };
        if !running.is_empty() {
            let places = picture.places_by_number();
            picture.occupied =
                running.iter().filter_map(|pick| picture.occupied_by(pick, &places)).collect();
        }
        picture
    }

    fn places_by_number(&self) -> HashMap<u64, usize> {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(|(place, run)| run.iter().map(move |table| (table.number, place))).collect()
    }

    /// `None` for one whose inputs are not there: it is installed already.
    fn occupied_by(&self, pick: &Pick, places: &HashMap<u64, usize>) -> Option<Occupied> {
        let inputs = pick.inputs.iter().filter_map(|number| places.get(number));
        let (first, last) = (inputs.clone().min()?, inputs.max()?);
        let last = match pick.output_level {
            0 => *last,
            level => self.place_of(level).max(*last),
        };
        Some(Occupied { places: *first..last + 1, span: pick.span.clone() })
    }

    /// The tables at a place.
    pub fn run(&self, place: usize) -> &'a [TableFigures] {
        self.runs[place]
    }

    /// Runs of level 0.
    pub fn level0_count(&self) -> usize {
        self.level0_count
    }

    /// Number of places.
    pub fn place_count(&self) -> usize {
        self.runs.len()
    }

    /// The place of a level; not 0, which has many.
    pub fn place_of(&self, level: u8) -> usize {
        debug_assert!((1..=LAST_LEVEL).contains(&level));
        self.level0_count + usize::from(level) - 1
    }

    /// The place where everything ends.
    pub fn last_place(&self) -> usize {
        self.level0_count + LEVEL_COUNT - 2
    }

    /// The level that a place belongs to.
    pub fn level_of(&self, place: usize) -> u8 {
        if place < self.level0_count { 0 } else { (place - self.level0_count + 1) as u8 }
    }

    /// Whether a running compaction merges the table.
    pub fn is_busy(&self, table: &TableFigures) -> bool {
        self.busy.contains(&table.number)
    }

    /// Bytes of all tables.
    pub fn size(&self) -> u64 {
        self.runs.iter().map(|run| size_of(run)).sum()
    }

    /// Bytes at a place.
    pub fn size_at(&self, place: usize) -> u64 {
        size_of(self.runs[place])
    }

    /// Bytes at a place that no running compaction takes away.
    pub fn idle_size_at(&self, place: usize) -> u64 {
        self.idle_at(place).map(|table| table.size).sum()
    }

    /// The tables at a place that no running compaction merges.
    pub fn idle_at(&self, place: usize) -> impl Iterator<Item = &'a TableFigures> {
        self.runs[place].iter().filter(|table| !self.is_busy(table))
    }

    fn has_busy(&self, place: usize, tables: &Range<usize>) -> bool {
        let mut tables = self.runs[place][tables.clone()].iter();
        !self.busy.is_empty() && tables.any(|table| self.is_busy(table))
    }

    /// The tables at `place` that overlap `span`.
    pub fn overlapping(&self, place: usize, span: &Span) -> Range<usize> {
        let run = self.runs[place];
        let start =
            run.partition_point(|table| table.end.as_ref().is_some_and(|end| *end <= span.first));
        let end = match &span.end {
            Some(end) => run.partition_point(|table| table.first < *end),
            None => run.len(),
        };
        start..end.max(start)
    }

    /// All that must be merged so that `tables` of `place` come to lie at `output_place` (C1, C2);
    /// `None` when a running compaction is in the way (C3).
    pub fn sink(&self, place: usize, tables: Range<usize>, output_place: usize) -> Option<Inputs> {
        debug_assert!(!tables.is_empty() && place <= output_place);
        if self.has_busy(place, &tables) {
            return None;
        }
        let mut span = span_of(&self.runs[place][tables.clone()])?;
        let mut pieces = vec![(place, tables)];
        for behind in place + 1..=output_place {
            let overlapping = self.overlapping(behind, &span);
            if self.has_busy(behind, &overlapping) {
                return None;
            }
            // C1: what overlaps anything that is newer and sinks past it goes along.
            if let Some(added) = span_of(&self.runs[behind][overlapping.clone()]) {
                span = span.hull(&added);
                pieces.push((behind, overlapping));
            }
        }
        if output_place < self.level0_count && pieces.iter().all(|(at, _)| *at < output_place) {
            // C2: what says which run of level 0 it is, is an input that is there: a neighbour.
            let behind = self.overlapping(output_place, &span).start;
            let neighbour = behind.min(self.runs[output_place].len().checked_sub(1)?);
            span = span.hull(&self.runs[output_place][neighbour].span());
            pieces.push((output_place, neighbour..neighbour + 1));
        }
        let inputs = Inputs { pieces, output_place, span };
        self.may_run(&inputs).then_some(inputs)
    }

    /// All tables of the runs at `places`, to become one run (C2); `None` when there are none, or a
    /// running compaction is in the way (C3).
    pub fn whole_runs(&self, places: Range<usize>) -> Option<Inputs> {
        let output_place = places.end.checked_sub(1)?;
        let filled = places.filter(|place| !self.runs[*place].is_empty());
        let pieces: Vec<_> = filled.map(|place| (place, 0..self.runs[place].len())).collect();
        let spans = pieces.iter().filter_map(|(place, _)| span_of(self.runs[*place]));
        let span = spans.reduce(|span, other| span.hull(&other))?;
        let inputs = Inputs { pieces, output_place, span };
        self.may_run(&inputs).then_some(inputs)
    }

    /// C3.
    fn may_run(&self, inputs: &Inputs) -> bool {
        let first_place = inputs.pieces[0].0;
        let is_free = |other: &Occupied| {
            other.places.end <= first_place
                || inputs.output_place < other.places.start
                || !other.span.overlaps(&inputs.span)
        };
        self.occupied.iter().all(is_free) && !self.tables(inputs).any(|table| self.is_busy(table))
    }

    /// The tables of `inputs`, newer ones first.
    pub fn tables(&self, inputs: &Inputs) -> impl Iterator<Item = &'a TableFigures> {
        inputs.pieces.iter().flat_map(|(place, tables)| &self.runs[*place][tables.clone()])
    }

    /// Bytes of the inputs that are at the output's place already, and of the others.
    pub fn sizes(&self, inputs: &Inputs) -> InputSizes {
        let mut sizes = InputSizes::default();
        for (place, tables) in &inputs.pieces {
            let bytes = size_of(&self.runs[*place][tables.clone()]);
            if *place == inputs.output_place {
                sizes.there += bytes;
            } else {
                sizes.sinking += bytes;
            }
        }
        sizes
    }

    /// Tables behind the outcome that overlap it.
    pub fn older(&self, inputs: &Inputs) -> impl Iterator<Item = &'a TableFigures> {
        (inputs.output_place + 1..self.runs.len())
            .flat_map(|place| &self.runs[place][self.overlapping(place, &inputs.span)])
    }

    /// The pick that these inputs are.
    pub fn pick(&self, inputs: &Inputs, reason: CompactionReason) -> Pick {
        let sizes = self.sizes(inputs);
        Pick {
            reason,
            inputs: self.tables(inputs).map(|table| table.number).collect(),
            input_size: sizes.sinking + sizes.there,
            output_level: self.level_of(inputs.output_place),
            span: inputs.span.clone(),
            is_move: reason == CompactionReason::Move,
            older: self.older(inputs).map(|table| table.number).collect(),
        }
    }
}

/// Bytes of inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputSizes {
    /// At newer places than the output.
    pub sinking: u64,
    /// At the output's place.
    pub there: u64,
}

impl InputSizes {
    /// All of them.
    pub fn sum(self) -> u64 {
        self.sinking + self.there
    }
}

/// What tables that ascend span; `None` when there are none.
fn span_of(tables: &[TableFigures]) -> Option<Span> {
    let (first, last) = (tables.first()?, tables.last()?);
    Some(Span { first: first.first.clone(), end: last.end.clone() })
}
