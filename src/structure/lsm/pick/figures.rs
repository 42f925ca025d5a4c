//! What the choice of a compaction depends on, as plain structs.

use std::cmp::Ordering;

use crate::base::Codec;
use crate::base::Slice;

/// Levels there are: 0, of any number of runs, and 1 to 6, of one run each at most.
pub const LEVEL_COUNT: usize = 7;
/// The level where everything ends.
pub const LAST_LEVEL: u8 = 6;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFigures {
    /// Its number. Of two tables, the one with the lower number was written first.
    pub number: u64,
    /// In front of everything in it.
    pub first: Slice,
    /// Behind everything in it; `None`: it has no end.
    pub end: Option<Slice>,
    /// Bytes of the file.
    pub size: u64,
    /// Entries, tombstones among them.
    pub entry_count: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Deleted ranges.
    pub deleted_ranges: u32,
    /// Entries that have expired, about.
    pub expired: u64,
    /// Entries at older places that it hides, about: those of its keys, and those in its deleted
    /// ranges. `entry_count` where nothing is known: at worst all are overwritten.
    pub hides: u64,
    /// Of an archive that does not keep all: whether there may be versions in it that go. Only
    /// reading tells.
    pub is_unsieved: bool,
}

impl TableFigures {
    /// Where it lies.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { first: self.first.clone(), end: self.end.clone() }
    }

    /// Entries that say only that something is gone, about.
    pub(super) fn gone(&self) -> u64 {
        (self.tombstones + self.expired).min(self.entry_count)
    }

    /// Bytes that `count` of its entries take, about.
    pub(super) fn size_of_entries(&self, count: u64) -> u64 {
        let product = u128::from(self.size) * u128::from(count.min(self.entry_count));
        (product / u128::from(self.entry_count.max(1))) as u64
    }

    /// Whether nothing in it would be left out if nothing older lay behind it.
    pub(super) fn is_clean(&self) -> bool {
        !self.has_garbage() && !self.is_unsieved
    }

    /// Whether anything in it is known to be left out if nothing older lay behind it.
    pub(super) fn has_garbage(&self) -> bool {
        self.tombstones > 0 || self.expired > 0 || self.deleted_ranges > 0
    }
}

/// All tables of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionFigures {
    /// The runs of level 0, newest first. The tables of a run are disjoint, and ascend.
    pub level0: Vec<Vec<TableFigures>>,
    /// Levels 1 to 6: a run each, or empty.
    pub levels: [Vec<TableFigures>; LEVEL_COUNT - 1],
}

impl VersionFigures {
    /// Bytes of a level.
    #[must_use]
    pub fn level_size(&self, level: u8) -> u64 {
        match level {
            0 => self.level0.iter().map(|run| size_of(run)).sum(),
            level => size_of(&self.levels[usize::from(level) - 1]),
        }
    }

    /// Bytes of all levels.
    #[must_use]
    pub fn size(&self) -> u64 {
        (0..=LAST_LEVEL).map(|level| self.level_size(level)).sum()
    }

    /// Every table.
    pub fn tables(&self) -> impl Iterator<Item = &TableFigures> {
        self.level0.iter().chain(&self.levels).flatten()
    }
}

/// Bytes of tables.
pub(super) fn size_of(tables: &[TableFigures]) -> u64 {
    tables.iter().map(|table| table.size).sum()
}

/// A part of the key space: from `first` on to in front of `end`, or without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first key that may be in it.
    pub first: Slice,
    /// The first key behind it.
    pub end: Option<Slice>,
}

impl Span {
    /// All keys.
    #[cfg(test)]
    #[must_use]
    pub fn all() -> Span {
        Span { first: Slice::default(), end: None }
    }

    /// Whether there may be a key that is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Span) -> bool {
        self.begins_before(other.end.as_ref()) && other.begins_before(self.end.as_ref())
    }

    /// What holds both, and what is between them.
    #[must_use]
    pub fn hull(self, other: &Span) -> Span {
        let end = match order_of_ends(self.end.as_ref(), other.end.as_ref()) {
            Ordering::Less => other.end.clone(),
            _ => self.end,
        };
        let first = if other.first < self.first { other.first.clone() } else { self.first };
        Span { first, end }
    }

    fn begins_before(&self, end: Option<&Slice>) -> bool {
        end.is_none_or(|end| self.first < *end)
    }
}

/// No end is behind all others.
pub(super) fn order_of_ends(left: Option<&Slice>, right: Option<&Slice>) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => left.cmp(right),
        (left, right) => left.is_none().cmp(&right.is_none()),
    }
}

/// How a keyspace is compacted.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionPolicy {
    /// The shape that is aimed at.
    pub style: CompactionStyle,
    /// Bytes that a flush of a full memtable writes, about.
    pub flush_size: u64,
    /// Bytes at which a table is closed.
    pub table_size: u64,
    /// With which codec the tables of each level are written.
    pub codecs: [Codec; LEVEL_COUNT],
}

/// The shape that compactions aim at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CompactionStyle {
    /// One run a level, each level larger than the one in front of it.
    Leveled(LeveledPolicy),
    /// Runs of like size are merged into one.
    Tiered(TieredPolicy),
}

/// Parameters of [`CompactionStyle::Leveled`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeveledPolicy {
    /// How many runs level 0 may have.
    pub level0_trigger: usize,
    /// How many times larger than what is in front of it a level is to be.
    pub level_ratio: f64,
}

/// Parameters of [`CompactionStyle::Tiered`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TieredPolicy {
    /// Runs are of like size when each is at least this part of their mean,
    pub bucket_low: f64,
    /// and at most this many times their mean.
    pub bucket_high: f64,
    /// So many runs of like size are merged.
    pub threshold: usize,
    /// More runs than this are merged whatever their sizes.
    pub run_count_max: usize,
    /// When everything in front of the oldest run takes this many times its bytes, all is merged.
    pub garbage_max: f64,
}

/// Why tables are compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// They lie alone where they are, and may lie deeper as well: nothing is written.
    Move,
    /// There are too many runs for reads.
    RunCount,
    /// There is nothing else to do, and reads get by with fewer runs.
    Idle,
    /// Seeks have taken as long as it takes to have fewer runs.
    Seeks,
    /// Runs of like size have come together.
    LikeSize,
    /// A level is larger than it is to be.
    LevelSize,
    /// What is overwritten may take too much room.
    Space,
    /// Many entries of a table are tombstones.
    Tombstones,
    /// Ranges are deleted in a table.
    DeletedRanges,
    /// Many entries of a table have expired.
    Expired,
    /// Somebody asked for it.
    Manual,
}

/// A compaction: what is to be merged, and to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Why.
    pub reason: CompactionReason,
    /// Numbers of the tables to merge: newer ones win over those behind them.
    pub inputs: Vec<u64>,
    /// Bytes of them.
    pub input_size: u64,
    /// The level that the outcome belongs to, in place of the inputs that are there. 0: it becomes
    /// part of the run that the last of the inputs is in; runs that are empty then go.
    pub output_level: u8,
    /// Where the inputs lie: the outcome lies within.
    pub span: Span,
    /// The inputs do not overlap, nor do they anything at the output level: they become part of it
    /// as they are.
    pub is_move: bool,
    /// Numbers of the tables behind the output level that overlap it, newest first. A tombstone, or
    /// a deleted range, that nothing in them can lie under is dropped. Stays true while the
    /// compaction runs (C3).
    pub older: Vec<u64>,
}

/// What a compaction that somebody asked for comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManualStep {
    /// Do this, and ask again.
    Compact(Pick),
    /// What is left waits for compactions that run: ask again when one has ended.
    Wait,
    /// There is nothing left to do.
    Done,
}
