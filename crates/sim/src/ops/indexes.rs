//! Operations on indexes, and transactions, which read them as well.

use lithedb::Durability;

use super::{
    Extent, KeyEdit, Mix, Move, Op, Purpose, Slot, draw, draw_durability, draw_edit, draw_extent,
    draw_moves,
};
use crate::extractors::{EXTRACTORS, SPARSE_EXTRACTORS};
use crate::random::Random;
use crate::sample::Key;

/// Names of the indexes of a keyspace: more it does not have.
pub const INDEX_NAMES: [&str; 2] = ["by this", "by that"];
/// Operations beside what is done with an index at most.
const BESIDE_MAX: u64 = 12;
/// Edits of a transaction at most.
const EDITS_MAX: u64 = 8;

/// An index, by the place of its name.
pub type Which = u8;

/// Something that is done with an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexOp {
    /// Its keyspace.
    pub slot: Slot,
    /// Its name.
    pub which: Which,
    /// What is done.
    pub action: IndexAction,
    /// What is done meanwhile, one behind each step.
    pub beside: Vec<Op>,
    /// Whether it is ended behind these.
    pub is_cancelled: bool,
}

/// What is done with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexAction {
    /// It is created, with an extractor by number.
    Create(u8, Uniqueness),
    /// The same, with an ingest that is begun before and must not finish.
    CreateBesideIngest(u8, Uniqueness),
    /// It is built on.
    Build,
    /// It is built anew.
    Rebuild,
    /// It is dropped.
    Drop,
}

/// How often an index may have an index key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniqueness {
    /// Once.
    Unique,
    /// As often as may be.
    Free,
}

impl Uniqueness {
    /// Extractors that indexes of this kind have.
    #[must_use]
    pub fn extractor(self, number: u8) -> &'static str {
        match self {
            Uniqueness::Unique => SPARSE_EXTRACTORS[usize::from(number) % SPARSE_EXTRACTORS.len()],
            Uniqueness::Free => EXTRACTORS[usize::from(number) % EXTRACTORS.len()],
        }
    }
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionOp {
    /// What it changes.
    pub edits: Vec<KeyEdit>,
    /// The range that it deletes behind that.
    pub range: Option<(Slot, Extent)>,
    /// What it takes back before it is committed.
    pub undone: Vec<KeyEdit>,
    /// What it reads then.
    pub reads: Vec<(Slot, Which, IndexReading)>,
    /// Whether it is committed, and how; else it is rolled back.
    pub commit: Option<Durability>,
}

/// An index key, by its place in thousandths among those there are, or one right behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot(pub u16);

/// One way to read an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexReading {
    /// `get`, `find` and `contains`.
    Point(Spot),
    /// `count` of a range.
    Count((u8, Spot), (u8, Spot)),
    /// The entries of a range, moved over from both ends.
    Walk((u8, Spot), (u8, Spot), Vec<Move>),
    /// The entries whose index keys begin with the first bytes of one.
    Prefix(Spot, u8, Vec<Move>),
    /// What each leads to.
    Values,
}

/// Something that is done with an index, and what goes on meanwhile: nothing that reads.
pub fn draw_index_op(random: &mut Random, mix: Mix) -> Op {
    let mix = Mix { purpose: Purpose::Writing, ..mix };
    let (slot, which) = (random.below(8) as Slot, random.below(2) as Which);
    let uniqueness = if random.chance(350) { Uniqueness::Unique } else { Uniqueness::Free };
    let number = random.below(8) as u8;
    let action = match random.below(20) {
        0..8 => IndexAction::Create(number, uniqueness),
        8 => IndexAction::CreateBesideIngest(number, uniqueness),
        9..12 => IndexAction::Build,
        12..15 => IndexAction::Rebuild,
        _ => IndexAction::Drop,
    };
    let mut beside = Vec::new();
    if !matches!(action, IndexAction::Drop) {
        for _ in 0..random.below(BESIDE_MAX) {
            beside.push(draw(random, mix));
        }
    }
    let is_cancelled = random.chance(200);
    Op::Index(IndexOp { slot, which, action, beside, is_cancelled })
}

/// A transaction.
pub fn draw_transaction(random: &mut Random, mix: Mix) -> Op {
    let edits = |random: &mut Random| {
        let len = random.below(EDITS_MAX);
        let edit = |_| {
            let slot = random.below(8) as Slot;
            (slot, Key::choose(random, mix.key_count), draw_edit(random, mix))
        };
        (0..len).map(edit).collect()
    };
    let (edits, undone) = (edits(random), edits(random));
    let undone = if random.chance(500) { undone } else { Vec::new() };
    let has_range = random.chance(200);
    let range = has_range.then(|| (random.below(8) as Slot, draw_extent(random, mix.key_count)));
    let reads = (0..random.below(3)).map(|_| {
        let (slot, which) = (random.below(8) as Slot, random.below(2) as Which);
        (slot, which, draw_index_reading(random, mix.key_count))
    });
    let reads = reads.collect();
    let commit = random.chance(850).then(|| draw_durability(random));
    Op::Transact(TransactionOp { edits, range, undone, reads, commit })
}

/// One way to read an index.
pub fn draw_index_reading(random: &mut Random, key_count: u16) -> IndexReading {
    let spot = |random: &mut Random| Spot(random.below(1000) as u16);
    let bound = |random: &mut Random| (random.below(3) as u8, spot(random));
    match random.below(10) {
        0..3 => IndexReading::Point(spot(random)),
        3..5 => IndexReading::Count(bound(random), bound(random)),
        5..7 => IndexReading::Walk(bound(random), bound(random), draw_moves(random, key_count)),
        7..9 => {
            let (spot, len) = (spot(random), random.below(4) as u8);
            IndexReading::Prefix(spot, len, draw_moves(random, key_count))
        }
        _ => IndexReading::Values,
    }
}
