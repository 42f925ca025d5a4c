//! Layers as one sequence of entries.
//!
//! A layer is opened when the walk comes to its first key, and forgotten behind its last. Of the
//! entries of a key the newest counts; operands are put on older ones down to one that is closed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Damage, Gap, Layer, LayerPlan, Order, Piece, SalvagedStore};
use crate::base::{
    Cursor, EntryKind, EntryRef, Operands, RangeTombstones, Result, SeqNo, Slice, is_operands,
};
use crate::block::BlockCursor;

/// What the walk has come to.
#[derive(Debug)]
pub enum Merged<'a> {
    /// An entry; never a tombstone.
    Entry {
        /// It.
        entry: EntryRef<'a>,
        /// Whether something newer may be lost.
        is_doubtful: bool,
        /// Whether something may be lost between the key in front of it and it.
        is_behind_gap: bool,
    },
    /// A key whose value cannot be told from what is left.
    Unknown {
        /// The key.
        key: &'a [u8],
        /// What is missing, if that is one thing.
        damage: Option<&'a Damage>,
    },
}

/// A gap that was met.
#[derive(Clone, Debug)]
pub struct MetGap {
    /// It.
    pub gap: Gap,
    /// Whether there are older entries in its range, or whether that cannot be told.
    pub shows_older: bool,
    rank: u64,
}

/// Merges the layers of a store.
#[derive(Debug)]
pub struct SalvageMerge {
    order: Order,
    plans: VecDeque<LayerPlan>,
    active: Vec<Active>,
    /// In the order in which they were met.
    gaps: Vec<MetGap>,
    /// Places in `gaps` of those that may cover keys to come.
    open_gaps: Vec<usize>,
    /// Whether one lies between the key before and the one at hand.
    is_behind_gap: bool,
}

#[derive(Debug)]
struct Active {
    rank: u64,
    layer: Box<dyn Layer>,
    block: Option<BlockCursor>,
    // What of it is to be looked at.
    first: Slice,
    end: Option<Slice>,
    /// The last key that it has shown: a layer whose keys do not rise is damaged.
    last: Option<Vec<u8>>,
}

/// An entry of the key at hand.
#[derive(Clone, Debug)]
struct Candidate {
    rank: u64,
    seqno: SeqNo,
    kind: EntryKind,
    value: Vec<u8>,
}

impl Active {
    fn key(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(Cursor::key)
    }

    /// Goes to the next entry; gaps on the way are handed over.
    fn advance(&mut self, gaps: &mut Vec<Gap>) {
        if let Some(block) = &mut self.block {
            self.last = block.key().map(<[u8]>::to_vec);
            if block.next().is_err() || block.key().is_none() {
                self.block = None;
            }
        }
        self.settle(gaps);
    }

    /// Goes to the next block if it stands in none.
    fn settle(&mut self, gaps: &mut Vec<Gap>) {
        loop {
            while self.block.is_none() {
                match self.layer.next_piece() {
                    None => return,
                    Some(Piece::Gap(gap)) => gaps.push(gap),
                    Some(Piece::Block(block)) => {
                        let mut cursor = BlockCursor::new(block);
                        let stands = cursor.seek(&self.first).is_ok() && cursor.key().is_some();
                        self.block = stands.then_some(cursor);
                    }
                }
            }
            let Some(key) = self.key() else { return };
            let rises = self.last.as_ref().is_none_or(|last| last.as_slice() < key);
            if rises && self.end.as_ref().is_none_or(|end| key < &**end) {
                return;
            }
            self.block = None; // A block that was made on purpose: it is as if it were not there.
        }
    }
}

impl SalvageMerge {
    /// Of a store that was taken apart.
    #[must_use]
    pub fn new(store: SalvagedStore) -> SalvageMerge {
        let mut plans = store.layers;
        plans.sort_by(|a, b| a.first.cmp(&b.first));
        SalvageMerge {
            order: store.order,
            plans: plans.into(),
            active: Vec::new(),
            gaps: Vec::new(),
            open_gaps: Vec::new(),
            is_behind_gap: false,
        }
    }

    /// The gaps that were met, when all has been walked.
    #[must_use]
    pub fn into_gaps(self) -> Vec<MetGap> {
        self.gaps
    }

    /// Whether anything was met that cannot be read, up to where the walk is.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty() || self.order == Order::Stamps
    }

    /// Walks on, up to in front of `end` if there is one.
    ///
    /// # Errors
    /// What `take` says.
    pub fn run_to(
        &mut self,
        end: Option<&[u8]>,
        take: &mut dyn FnMut(Merged<'_>) -> Result<()>,
    ) -> Result<()> {
        while let Some(key) = self.next_key() {
            if end.is_some_and(|end| *key >= *end) {
                break;
            }
            // Of those that end in front of the key: they do not, of the one before it.
            let gaps = &self.gaps;
            self.is_behind_gap = self.open_gaps.iter().any(|index| *gaps[*index].gap.start <= *key);
            let candidates = self.candidates_of(&key);
            self.forget_behind(&key);
            self.resolve(&key, &candidates, take)?;
        }
        Ok(())
    }

    /// The smallest key that any layer stands on, with all layers opened that may have it.
    fn next_key(&mut self) -> Option<Vec<u8>> {
        loop {
            let smallest = self.active.iter().filter_map(Active::key).min();
            let opens = self
                .plans
                .front()
                .is_some_and(|plan| smallest.is_none_or(|smallest| *plan.first <= *smallest));
            if !opens {
                return smallest.map(<[u8]>::to_vec);
            }
            self.open_next();
        }
    }

    fn open_next(&mut self) {
        let Some(plan) = self.plans.pop_front() else { return };
        let LayerPlan { first, end, rank, open } = plan;
        let mut active = Active { rank, layer: open(), block: None, first, end, last: None };
        let mut gaps = Vec::new();
        active.settle(&mut gaps);
        self.note_gaps(rank, gaps);
        self.active.push(active);
    }

    fn note_gaps(&mut self, rank: u64, gaps: Vec<Gap>) {
        for gap in gaps {
            self.open_gaps.push(self.gaps.len());
            self.gaps.push(MetGap { gap, shows_older: false, rank });
        }
    }

    /// Takes the entries of a key, the newest first.
    fn candidates_of(&mut self, key: &[u8]) -> Vec<Candidate> {
        let (mut found, mut met) = (Vec::new(), Vec::new());
        for active in &mut self.active {
            let Some(entry) = active.block.as_ref().and_then(Cursor::entry) else { continue };
            if entry.key != key {
                continue;
            }
            found.push(Candidate {
                rank: active.rank,
                seqno: entry.seqno,
                kind: entry.kind,
                value: entry.value.to_vec(),
            });
            let mut gaps = Vec::new();
            active.advance(&mut gaps);
            met.push((active.rank, gaps));
        }
        met.into_iter().for_each(|(rank, gaps)| self.note_gaps(rank, gaps));
        match self.order {
            Order::Ranks => found.sort_by_key(|found| found.rank),
            // What is closed tells more than what is not, and is of the same stamp.
            Order::Stamps => found.sort_by_key(|found| {
                (std::cmp::Reverse(found.seqno), is_open(found.kind, &found.value))
            }),
        }
        if self.order == Order::Ranks {
            let hiding = self.active.iter().filter(|active| {
                let covering =
                    |deleted: &RangeTombstones| deleted.covering(key, SeqNo::MAX).is_some();
                active.layer.deleted().is_some_and(covering)
            });
            if let Some(newest) = hiding.map(|active| active.rank).min() {
                found.retain(|candidate| candidate.rank <= newest);
            }
        }
        found
    }

    /// Lets go of layers and gaps that have nothing from the key on.
    fn forget_behind(&mut self, key: &[u8]) {
        self.active.retain(|active| {
            let deletes_on =
                active.layer.deleted().is_some_and(|deleted| deleted.first_from(key).is_some());
            active.block.is_some() || deletes_on
        });
        let gaps = &self.gaps;
        self.open_gaps.retain(|index| !gaps[*index].gap.is_behind(key));
    }

    fn resolve(
        &mut self,
        key: &[u8],
        candidates: &[Candidate],
        take: &mut dyn FnMut(Merged<'_>) -> Result<()>,
    ) -> Result<()> {
        // The newest gap that the key lies in.
        let gaps = &self.gaps;
        let covering = self.open_gaps.iter().copied().filter(|index| gaps[*index].gap.covers(key));
        let newest_gap = covering.min_by_key(|index| gaps[*index].rank);
        let gap_rank = newest_gap.map_or(u64::MAX, |index| gaps[index].rank);
        let Some(newest) = candidates.first() else { return Ok(()) };
        let stacked = match self.order {
            Order::Ranks => stack(candidates, gap_rank),
            Order::Stamps => stack_by_stamp(candidates),
        };
        let is_doubtful = self.order == Order::Stamps || newest.rank > gap_rank;
        if is_doubtful && let Some(index) = newest_gap {
            self.gaps[index].shows_older = true;
        }
        let Some((kind, value)) = stacked else {
            let damage = newest_gap.map(|index| &self.gaps[index].gap.damage);
            return take(Merged::Unknown { key, damage });
        };
        if kind == EntryKind::Tombstone {
            return Ok(());
        }
        let entry = EntryRef { key, seqno: newest.seqno, kind, value: &value };
        let is_behind_gap = self.is_behind_gap || self.order == Order::Stamps;
        take(Merged::Entry { entry, is_doubtful, is_behind_gap })
    }
}

fn is_open(kind: EntryKind, value: &[u8]) -> bool {
    is_operands(kind, value) && Operands::decode(value).is_none_or(|operands| operands.is_open())
}

/// What the newest entry says, with what it needs of the older ones; `None` where something of that
/// may be lost: a gap of `gap_rank` that lies between.
fn stack(candidates: &[Candidate], gap_rank: u64) -> Option<(EntryKind, Vec<u8>)> {
    let (newest, older) = candidates.split_first()?;
    let (mut kind, mut value) = (newest.kind, newest.value.clone());
    // A gap that is newer than all of it makes it doubtful; one in between makes it unknown.
    let is_below = newest.rank < gap_rank && gap_rank != u64::MAX;
    for candidate in older {
        if !is_open(kind, &value) {
            return Some((kind, value));
        }
        if is_below && candidate.rank > gap_rank {
            return None;
        }
        value = Operands::decode(&value)?.over(candidate.kind, &candidate.value)?;
        kind = EntryKind::Composite;
    }
    (!is_open(kind, &value) || !is_below).then_some((kind, value))
}

/// The same where stamps alone tell which entry is newer. A run may have operands of which others
/// have a part: what is open is not told from that, and unknown.
fn stack_by_stamp(candidates: &[Candidate]) -> Option<(EntryKind, Vec<u8>)> {
    let newest = candidates.first()?;
    (!is_open(newest.kind, &newest.value)).then(|| (newest.kind, newest.value.clone()))
}

/// A layer of one block, which was read, or could not be.
#[derive(Debug)]
pub(in crate::structure) struct OnePiece(Option<Piece>);

impl OnePiece {
    /// Of a block that was read, or else of a gap in this range.
    pub(in crate::structure) fn of(
        read: Result<crate::block::Block>,
        (start, end): (Slice, Option<Slice>),
        otherwise: &std::path::Path,
    ) -> Box<dyn Layer> {
        Box::new(OnePiece(Some(match read {
            Ok(block) => Piece::Block(Arc::new(block)),
            Err(error) => {
                let damage = Damage::of(&error, otherwise);
                Piece::Gap(Gap { start, end, damage })
            }
        })))
    }
}

impl Layer for OnePiece {
    fn next_piece(&mut self) -> Option<Piece> {
        self.0.take()
    }
}
