//! Layers as one sequence of entries.
//!
//! A layer is opened when the walk comes to its first key, and forgotten behind its last. Of the
//! entries of a key the newest counts; operands are put on older ones down to one that is closed.
//! What cannot be read, and what is not as a layer can have it, is told as a gap.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Damage, Gap, Layer, LayerPlan, Order, Piece, SalvagedStore, is_damage};
use crate::base::{
    Composite, Cursor, EntryKind, EntryRef, Operands, RangeTombstones, Result, SeqNo, Slice,
    ValuePointer, is_operands, successor,
};
use crate::block::{Block, BlockCursor};

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
        /// What is missing or wrong, if that is one thing.
        damage: Option<&'a Damage>,
    },
    /// A gap that the walk has passed.
    Gap(MetGap),
    /// Something that cannot be read, and that costs nothing.
    Harmless(Damage),
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
    /// Gaps that may cover keys to come, in the order in which they were met.
    open_gaps: Vec<MetGap>,
    /// Told with the next key.
    harmless: Vec<Damage>,
    has_gaps: bool,
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

/// What was met on the way to an entry of a layer.
#[derive(Debug, Default)]
struct Met {
    gaps: Vec<Gap>,
    harmless: Vec<Damage>,
}

/// An entry of the key at hand.
#[derive(Clone, Debug)]
struct Candidate {
    rank: u64,
    seqno: SeqNo,
    kind: EntryKind,
    value: Vec<u8>,
    /// What is wrong with it, if it is of no form that there is.
    fault: Option<Damage>,
}

impl Active {
    fn key(&self) -> Option<&[u8]> {
        self.block.as_ref().and_then(Cursor::key)
    }

    /// Goes to the next entry; what is met on the way is handed over.
    fn advance(&mut self, met: &mut Met) {
        if let Some(block) = &mut self.block {
            self.last = block.key().map(<[u8]>::to_vec);
            if block.next().is_err() || block.key().is_none() {
                self.block = None;
            }
        }
        self.settle(met);
    }

    /// Goes to the next block if it stands in none.
    fn settle(&mut self, met: &mut Met) {
        while self.block.is_none() {
            match self.layer.next_piece() {
                None => return,
                Some(Piece::Gap(gap)) => met.gaps.push(gap),
                Some(Piece::Harmless(damage)) => met.harmless.push(damage),
                Some(Piece::Block(block)) => self.enter(block, met),
            }
        }
        let is_over = self.key().zip(self.end.as_ref()).is_some_and(|(key, end)| *key >= **end);
        if is_over {
            self.block = None; // What is behind belongs to another interval.
        }
    }

    /// Goes into a block. One whose keys do not rise was made on purpose, or by a mistake: it is a
    /// gap.
    fn enter(&mut self, block: Arc<Block>, met: &mut Met) {
        let order = block.check_order();
        let mut cursor = BlockCursor::new(block);
        let stands = cursor.seek(&self.first).is_ok() && cursor.key().is_some();
        let falls = || match (&self.last, cursor.key()) {
            (Some(last), Some(key)) if last.as_slice() >= key => {
                Some("its first key is not above those in front of it".to_owned())
            }
            _ => None,
        };
        let Some(what) = order.or_else(falls) else {
            self.block = stands.then_some(cursor);
            return;
        };
        let (file, offset) = self.layer.place();
        let damage = Damage::new(file, offset, format!("expected rising keys, found that {what}"));
        let start = self.last.as_ref().map(|last| Slice::from(successor(last)));
        let start = start.unwrap_or_else(|| self.first.clone());
        met.gaps.push(Gap { start, end: self.end.clone(), damage });
    }

    /// The entry at hand, if it is one of this key.
    fn candidate(&self, key: &[u8]) -> Option<Candidate> {
        let entry = self.block.as_ref().and_then(Cursor::entry).filter(|entry| entry.key == key)?;
        let fault = (!is_sound(entry.kind, entry.value)).then(|| {
            let (file, offset) = self.layer.place();
            let what = "expected an entry of a known form, found one of none";
            Damage::new(file, offset, what)
        });
        Some(Candidate {
            rank: self.rank,
            seqno: entry.seqno,
            kind: entry.kind,
            value: entry.value.to_vec(),
            fault,
        })
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
            open_gaps: Vec::new(),
            harmless: Vec::new(),
            has_gaps: false,
        }
    }

    /// Whether anything was met that cannot be read, up to where the walk is.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        self.has_gaps || self.order == Order::Stamps
    }

    /// Whether something may be lost behind the last key that was walked, in front of this one, to
    /// which the walk has come.
    #[must_use]
    pub fn may_lack_up_to(&self, key: &[u8]) -> bool {
        let begins = |met: &MetGap| *met.gap.start < *key;
        self.order == Order::Stamps || self.open_gaps.iter().any(begins)
    }

    /// Walks on, up to in front of `end` if there is one; at the end, all gaps that were met have
    /// been handed out.
    ///
    /// # Errors
    /// What `take` says; `InvalidArgument` when this program was built without a codec.
    pub fn run_to(
        &mut self,
        end: Option<&[u8]>,
        take: &mut dyn FnMut(Merged<'_>) -> Result<()>,
    ) -> Result<()> {
        while let Some(key) = self.next_key()? {
            if end.is_some_and(|end| *key >= *end) {
                return Ok(());
            }
            self.harmless.drain(..).try_for_each(|damage| take(Merged::Harmless(damage)))?;
            // Of those that end in front of the key: they do not, of the one before it.
            let is_behind_gap = self.order == Order::Stamps
                || self.open_gaps.iter().any(|met| *met.gap.start <= *key);
            let candidates = self.candidates_of(&key);
            for met in self.forget_behind(&key) {
                take(Merged::Gap(met))?;
            }
            self.resolve(&key, &candidates, is_behind_gap, take)?;
        }
        self.harmless.drain(..).try_for_each(|damage| take(Merged::Harmless(damage)))?;
        if end.is_none() {
            self.open_gaps.drain(..).try_for_each(|met| take(Merged::Gap(met)))?;
        }
        Ok(())
    }

    /// The smallest key that any layer stands on, with all layers opened that may have it.
    fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let smallest = self.active.iter().filter_map(Active::key).min();
            let opens = self
                .plans
                .front()
                .is_some_and(|plan| smallest.is_none_or(|smallest| *plan.first <= *smallest));
            if !opens {
                return Ok(smallest.map(<[u8]>::to_vec));
            }
            self.open_next()?;
        }
    }

    fn open_next(&mut self) -> Result<()> {
        let Some(plan) = self.plans.pop_front() else { return Ok(()) };
        let LayerPlan { first, end, rank, open } = plan;
        let mut active = Active { rank, layer: open()?, block: None, first, end, last: None };
        let mut met = Met::default();
        active.settle(&mut met);
        self.note(rank, met);
        self.active.push(active);
        Ok(())
    }

    fn note(&mut self, rank: u64, met: Met) {
        self.has_gaps |= !met.gaps.is_empty();
        let gaps = met.gaps.into_iter();
        self.open_gaps.extend(gaps.map(|gap| MetGap { gap, shows_older: false, rank }));
        self.harmless.extend(met.harmless);
    }

    /// Takes the entries of a key, the newest first.
    fn candidates_of(&mut self, key: &[u8]) -> Vec<Candidate> {
        let (mut found, mut all_met) = (Vec::new(), Vec::new());
        for active in &mut self.active {
            let Some(candidate) = active.candidate(key) else { continue };
            found.push(candidate);
            let mut met = Met::default();
            active.advance(&mut met);
            all_met.push((active.rank, met));
        }
        all_met.into_iter().for_each(|(rank, met)| self.note(rank, met));
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

    /// Lets go of layers and gaps that have nothing from the key on; the gaps are returned.
    fn forget_behind(&mut self, key: &[u8]) -> Vec<MetGap> {
        self.active.retain(|active| {
            let deletes_on =
                active.layer.deleted().is_some_and(|deleted| deleted.first_from(key).is_some());
            active.block.is_some() || deletes_on
        });
        self.open_gaps.extract_if(.., |met| met.gap.is_behind(key)).collect()
    }

    fn resolve(
        &mut self,
        key: &[u8],
        candidates: &[Candidate],
        is_behind_gap: bool,
        take: &mut dyn FnMut(Merged<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(newest) = candidates.first() else { return Ok(()) };
        let covering = self.open_gaps.iter().enumerate().filter(|(_, met)| met.gap.covers(key));
        let ranks: Vec<(u64, usize)> = covering.map(|(index, met)| (met.rank, index)).collect();
        let newest_gap = ranks.iter().min().copied();
        let stacked = match self.order {
            _ if newest.fault.is_some() => None,
            Order::Ranks => stack(candidates, &ranks),
            Order::Stamps => stack_by_stamp(newest),
        };
        let is_doubtful =
            self.order == Order::Stamps || newest_gap.is_some_and(|(rank, _)| newest.rank > rank);
        if is_doubtful && let Some((_, index)) = newest_gap {
            self.open_gaps[index].shows_older = true;
        }
        let Some((kind, value)) = stacked else {
            let of_gap = newest_gap.map(|(_, index)| &self.open_gaps[index].gap.damage);
            let of_entry = candidates.iter().find_map(|candidate| candidate.fault.as_ref());
            return take(Merged::Unknown { key, damage: of_entry.or(of_gap) });
        };
        if kind == EntryKind::Tombstone {
            return Ok(());
        }
        let entry = EntryRef { key, seqno: newest.seqno, kind, value: &value };
        take(Merged::Entry { entry, is_doubtful, is_behind_gap })
    }
}

/// Whether an entry is of a form that there is. Bytes that verify may be anybody's.
fn is_sound(kind: EntryKind, value: &[u8]) -> bool {
    match kind {
        EntryKind::Value | EntryKind::Tombstone => true,
        EntryKind::Pointer => ValuePointer::decode(value).is_some(),
        EntryKind::Composite => Composite::decode(value).is_some(),
    }
}

fn is_open(kind: EntryKind, value: &[u8]) -> bool {
    is_operands(kind, value) && Operands::decode(value).is_none_or(|operands| operands.is_open())
}

/// What the newest entry says, with what it needs of the older ones; `None` where something of that
/// may be lost. `gaps` are those that the key lies in, by their ranks: one in the layer of an entry
/// itself is of ranges that it deletes in older ones.
fn stack(candidates: &[Candidate], gaps: &[(u64, usize)]) -> Option<(EntryKind, Vec<u8>)> {
    let may_lack = |from: u64, to: u64| gaps.iter().any(|(rank, _)| (from..to).contains(rank));
    let (newest, older) = candidates.split_first()?;
    let (mut kind, mut value, mut rank) = (newest.kind, newest.value.clone(), newest.rank);
    for candidate in older {
        if !is_open(kind, &value) {
            return Some((kind, value));
        }
        if may_lack(rank, candidate.rank) || candidate.fault.is_some() {
            return None;
        }
        value = Operands::decode(&value)?.over(candidate.kind, &candidate.value)?;
        (kind, rank) = (EntryKind::Composite, candidate.rank);
    }
    (!is_open(kind, &value) || !may_lack(rank, u64::MAX)).then_some((kind, value))
}

/// The same where stamps alone tell which entry is newer. A run may have operands of which others
/// have a part: what is open is not told from that, and unknown.
fn stack_by_stamp(newest: &Candidate) -> Option<(EntryKind, Vec<u8>)> {
    (!is_open(newest.kind, &newest.value)).then(|| (newest.kind, newest.value.clone()))
}

/// A layer of one block, which was read, or could not be.
#[derive(Debug)]
pub(in crate::structure) struct OnePiece {
    piece: Option<Piece>,
    file: PathBuf,
    offset: u64,
}

impl OnePiece {
    /// Of a block of this place that was read, or else of a gap in this range.
    ///
    /// # Errors
    /// What reading it met that is no damage.
    pub(in crate::structure) fn of(
        read: Result<Block>,
        (start, end): (Slice, Option<Slice>),
        (file, offset): (PathBuf, u64),
    ) -> Result<Box<dyn Layer>> {
        let piece = Some(match read {
            Ok(block) => Piece::Block(Arc::new(block)),
            Err(error) if is_damage(&error) => {
                let damage = Damage::of(&error, &file);
                Piece::Gap(Gap { start, end, damage })
            }
            Err(error) => return Err(error),
        });
        Ok(Box::new(OnePiece { piece, file, offset }))
    }
}

impl Layer for OnePiece {
    fn next_piece(&mut self) -> Option<Piece> {
        self.piece.take()
    }

    fn place(&self) -> (&Path, u64) {
        (&self.file, self.offset)
    }
}
