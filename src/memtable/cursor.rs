//! A cursor over a memtable: for each key its newest version up to a seqno.
//!
//! The cursor copies the ids of a whole leaf at once and walks the copy; between leaves it
//! descends again from the key where it stands. So it holds no node while it rests, and nothing
//! that the writer does can make it loop or miss an entry. Must not know how leaves are linked.
//!
//! Invariants
//! - K1  The copy has all entries from its first one to its fence that were inserted before it was
//!   taken, in order.
//! - K2  The place is a rank in the copy; the rank behind the last means the fence.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::Memtable;
use super::arena::EntryId;
use super::order::Bound;
use super::run::Run;
use super::tree;
use crate::base::Cursor;
use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::Result;
use crate::base::SeqNo;

/// Entries that are brought in before the cursor comes to them: in order of keys they lie
/// anywhere, and the processor does not guess where.
const AHEAD: usize = 8;

/// Walks the newest versions up to a seqno, tombstones included. It sees every entry up to the
/// seqno that was inserted before the cursor was made, and none above the seqno. Never fails.
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    at: SeqNo,
    leaf: Box<LeafCopy>,
    place: Place,
}

/// The entries of a leaf, sorted, and the first entry behind it.
struct LeafCopy {
    run: Run,
    fence: Option<EntryId>,
}

#[derive(Clone, Copy)]
enum Place {
    BeforeFirst,
    On { id: EntryId, rank: usize },
    BehindLast,
}

impl LeafCopy {
    /// Copies the leaf where `bound` lies and returns the bound's rank.
    fn load(&mut self, memtable: &Memtable, bound: &Bound<'_>) -> usize {
        let Memtable { root, entries, readers, .. } = memtable;
        let pin = readers.pin();
        let landing = tree::descend(root, &pin, entries, bound, |inner, index| {
            inner.prefetch_next_leaf(index);
        });
        self.run.merge_from(entries, &landing.leaf.view());
        self.fence = landing.fence;
        self.fence.inspect(|&fence| entries.prefetch(fence));
        let keys = self.run.keys();
        let first = keys.rank_by_heads(bound);
        self.prefetch(memtable, first..first + AHEAD);
        keys.rank(entries, bound, landing.known)
    }

    /// Brings in the entries at these ranks, as far as there are so many.
    fn prefetch(&self, memtable: &Memtable, ranks: Range<usize>) {
        let ids = self.run.keys().ids;
        for &id in &ids[ranks.start.min(ids.len())..ranks.end.min(ids.len())] {
            memtable.entries.prefetch(id);
        }
    }

    /// The entry at a rank; the fence behind the last.
    #[inline]
    fn entry_at(&self, rank: usize) -> Option<EntryId> {
        self.run.keys().ids.get(rank).copied().or(self.fence)
    }

    /// The rank of the next entry with another key than the one at `rank`, or the rank behind the
    /// last if the copy has no more of them.
    #[inline]
    fn rank_of_next_key(&self, memtable: &Memtable, rank: usize) -> usize {
        let keys = self.run.keys();
        let mut next = rank + 1;
        while next < keys.len() {
            let same_key = keys.heads[next] == keys.heads[rank]
                && memtable.entries.key(keys.ids[next]) == memtable.entries.key(keys.ids[rank]);
            if !same_key {
                break;
            }
            next += 1;
        }
        next
    }

    /// The rank of the newest version in the copy of the key that stands at `rank`; `rank` may be
    /// the one behind the last, where the fence is.
    #[inline]
    fn rank_of_first_version(&self, memtable: &Memtable, rank: usize, key: &[u8]) -> usize {
        let keys = self.run.keys();
        let head = keys.heads.get(rank);
        let mut first = rank;
        while first > 0 {
            // Different heads mean different keys; most entries need not be looked at.
            let may_be_of_key = head.is_none_or(|head| *head == keys.heads[first - 1]);
            if !may_be_of_key || memtable.entries.key(keys.ids[first - 1]) != key {
                break;
            }
            first -= 1;
        }
        first
    }

    /// Brings in the entry that a walk back from `rank` comes to in [`AHEAD`] steps.
    #[inline]
    fn prefetch_before(&self, memtable: &Memtable, rank: usize) {
        if let Some(ahead) = rank.checked_sub(1 + AHEAD) {
            memtable.entries.prefetch(self.run.keys().ids[ahead]);
        }
    }
}

/// Hands the versions of `key` up to a seqno to `visit`, the newest first, until it breaks off.
pub(super) fn visit_versions<'m>(
    memtable: &'m Memtable,
    key: &[u8],
    at: SeqNo,
    mut visit: impl FnMut(EntryRef<'m>) -> ControlFlow<()>,
) {
    let mut leaf = Box::new(LeafCopy { run: Run::empty(), fence: None });
    let mut rank = leaf.load(memtable, &Bound::Before(key, at));
    while let Some(id) = leaf.entry_at(rank) {
        let entry = memtable.entries.entry(id);
        if entry.key != key || visit(entry).is_break() {
            break;
        }
        rank += 1;
        if rank >= leaf.run.len() {
            let Some(below) = entry.seqno.as_u64().checked_sub(1) else { break };
            rank = leaf.load(memtable, &Bound::Before(key, SeqNo::from_u64(below)));
        }
    }
}

/// Walks all versions of all keys: by key, the newest first. Of those of one commit for a key, the
/// one that counts (M1).
pub(crate) struct AllVersions {
    memtable: Arc<Memtable>,
    leaf: Box<LeafCopy>,
    rank: usize,
}

impl fmt::Debug for AllVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllVersions").field("on", &self.entry()).finish_non_exhaustive()
    }
}

impl AllVersions {
    /// In front of everything that is in the memtable now: a memtable that nobody writes to.
    pub(crate) fn new(memtable: &Arc<Memtable>) -> AllVersions {
        let leaf = Box::new(LeafCopy { run: Run::empty(), fence: None });
        let mut versions = AllVersions { memtable: Arc::clone(memtable), leaf, rank: 0 };
        versions.seek(&[]);
        versions
    }

    /// Goes to the newest version of the first key from `key` on.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.rank = self.leaf.load(&self.memtable, &Bound::Before(key, SeqNo::MAX));
    }

    /// Goes one version on; behind the last it stays.
    pub(crate) fn next(&mut self) {
        let Some(id) = self.id() else { return };
        let entries = &self.memtable.entries;
        let (key, seqno) = (entries.key(id), entries.seqno(id));
        self.rank += 1;
        while self.rank < self.leaf.run.len() {
            let next = self.leaf.run.keys().ids[self.rank];
            if entries.seqno(next) != seqno || entries.key(next) != key {
                return;
            }
            self.rank += 1;
        }
        let bound = match seqno.as_u64().checked_sub(1) {
            Some(below) => Bound::Before(key, SeqNo::from_u64(below)),
            None => Bound::After(key),
        };
        self.rank = self.leaf.load(&self.memtable, &bound);
    }

    /// The entry that it stands on; none behind the last.
    pub(crate) fn id(&self) -> Option<EntryId> {
        self.leaf.entry_at(self.rank)
    }

    /// What is at [`AllVersions::id`].
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        self.id().map(|id| self.memtable.entries.entry(id))
    }
}

impl MemtableCursor {
    /// A cursor that shows the memtable as of `at`.
    pub(crate) fn new(memtable: Arc<Memtable>, at: SeqNo) -> MemtableCursor {
        let leaf = Box::new(LeafCopy { run: Run::empty(), fence: None });
        MemtableCursor { memtable, at, leaf, place: Place::BeforeFirst }
    }

    pub(super) fn memtable(&self) -> &Memtable {
        &self.memtable
    }

    /// Whether the entry at the position is composite.
    #[inline]
    pub(super) fn is_on_composite(&self) -> bool {
        self.is_on(EntryKind::Composite)
    }

    #[inline]
    fn is_on(&self, kind: EntryKind) -> bool {
        match self.place {
            Place::On { id, .. } => self.memtable.entries.kind(id) == kind,
            Place::BeforeFirst | Place::BehindLast => false,
        }
    }

    /// Goes to the first visible entry that is not before `bound`.
    fn seek_forward(&mut self, bound: &Bound<'_>) {
        let rank = self.leaf.load(&self.memtable, bound);
        self.settle_forward(rank);
    }

    /// Goes to the first visible entry from `rank` on. No key before `rank` has versions at or
    /// behind it that would be visible.
    fn settle_forward(&mut self, rank: usize) {
        let MemtableCursor { memtable, at, leaf, .. } = self;
        let mut rank = rank;
        self.place = loop {
            let Some(id) = leaf.entry_at(rank) else {
                break Place::BehindLast;
            };
            if let Some(&ahead) = leaf.run.keys().ids.get(rank + AHEAD) {
                memtable.entries.prefetch(ahead);
            }
            let seqno = memtable.entries.seqno(id);
            if seqno <= *at {
                break Place::On { id, rank };
            }
            // Too new. In a copy the next one is near; thousands of versions are jumped over.
            rank += 1;
            if rank >= leaf.run.len() {
                rank = leaf.load(memtable, &Bound::Before(memtable.entries.key(id), *at));
            }
        };
    }

    /// Goes to the newest visible version of the last key that has one, of the keys that end
    /// before `rank`.
    fn settle_backward(&mut self, rank: usize) {
        let MemtableCursor { memtable, at, leaf, .. } = self;
        let entries = &memtable.entries;
        let mut rank = rank;
        self.place = loop {
            if rank == 0 {
                let Some(first) = leaf.entry_at(0) else {
                    break Place::BeforeFirst; // An empty memtable.
                };
                rank = leaf.load(memtable, &Bound::Before(entries.key(first), SeqNo::MAX));
                if rank == 0 {
                    break Place::BeforeFirst;
                }
                leaf.prefetch(memtable, rank.saturating_sub(AHEAD)..rank);
            }
            leaf.prefetch_before(memtable, rank);
            let keys = leaf.run.keys();
            let (head, key) = (keys.heads[rank - 1], entries.key(keys.ids[rank - 1]));
            // From the oldest version of the key to the newest visible one.
            let mut visible = None;
            while rank > 0 && keys.heads[rank - 1] == head {
                let id = keys.ids[rank - 1];
                let entry = entries.entry(id);
                if entry.seqno > *at || entry.key != key {
                    break;
                }
                rank -= 1;
                visible = Some(Place::On { id, rank });
            }
            match visible {
                Some(place) if rank > 0 => break place,
                Some(_) => {
                    // Newer versions may be in the leaf before.
                    let rank = leaf.load(memtable, &Bound::Before(key, *at));
                    let id = leaf.entry_at(rank).expect("a visible version was just seen");
                    break Place::On { id, rank };
                }
                None => {
                    rank = leaf.load(memtable, &Bound::Before(key, SeqNo::MAX));
                    if rank == 0 {
                        break Place::BeforeFirst;
                    }
                }
            }
        };
    }
}

impl Cursor for MemtableCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.seek_forward(&Bound::Before(&[], SeqNo::MAX));
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        let rank = self.leaf.load(&self.memtable, &Bound::End);
        self.settle_backward(rank);
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_forward(&Bound::Before(key, self.at));
        Ok(())
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let rank = self.leaf.load(&self.memtable, &Bound::Before(key, self.at));
        match self.leaf.entry_at(rank) {
            Some(id) if self.memtable.entries.key(id) == key => {
                self.place = Place::On { id, rank };
            }
            _ => self.settle_backward(rank),
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        match self.place {
            Place::BeforeFirst => return self.seek_first(),
            Place::BehindLast => {}
            Place::On { id, rank } => {
                let mut next = self.leaf.rank_of_next_key(&self.memtable, rank);
                let copy_len = self.leaf.run.len();
                if next >= copy_len {
                    let key = self.memtable.entries.key(id);
                    // The fence may be where the cursor stands, or a further version of the key.
                    let of_key = |id: EntryId| self.memtable.entries.key(id) == key;
                    if rank == copy_len || self.leaf.fence.is_some_and(of_key) {
                        next = self.leaf.load(&self.memtable, &Bound::After(key));
                    }
                }
                self.settle_forward(next);
            }
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        match self.place {
            Place::BeforeFirst => {}
            Place::BehindLast => return self.seek_last(),
            Place::On { id, rank } => {
                let key = self.memtable.entries.key(id);
                let rank = self.leaf.rank_of_first_version(&self.memtable, rank, key);
                self.settle_backward(rank);
            }
        }
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        match self.place {
            Place::On { id, .. } => Some(self.memtable.entries.entry(id)),
            Place::BeforeFirst | Place::BehindLast => None,
        }
    }

    #[inline]
    fn is_valid(&self) -> bool {
        matches!(self.place, Place::On { .. })
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self.place {
            Place::On { id, .. } => Some(self.memtable.entries.key(id)),
            Place::BeforeFirst | Place::BehindLast => None,
        }
    }

    #[inline]
    fn is_tombstone(&self) -> bool {
        self.is_on(EntryKind::Tombstone)
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor").field("at", &self.at).field("on", &self.entry()).finish()
    }
}
