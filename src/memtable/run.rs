//! A run: sorted entries outside of a node, while they are merged, split or walked.
//!
//! Owns how a leaf's tail is merged into its sorted part, where a full node is split, and which
//! prefix its keys are stored under. Must not know how nodes are linked.
//!
//! Invariants: O1-O3 of `order.rs` hold for a run as for a node.

use std::hint::select_unpredictable;

use super::arena::{Entries, EntryId};
use super::node::{LeafView, WIDTH};
use super::order::{self, Fit, Keys, Prefix};

/// A full inner node and one more separator.
const CAPACITY: usize = WIDTH + 1;

/// When this many leading bytes of all heads agree, the heads are made anew behind a longer
/// prefix: what is left of them would soon tell too few keys apart. Each entry is looked at for
/// that, so it must be rare; the keys of a node come closer together only as the tree grows.
const SHARED_HEAD_BYTES_MAX: usize = 4;
/// So many bytes that all keys share today stay outside of the prefix: a key that comes tomorrow
/// and differs there does not need shorter heads again.
const PREFIX_MARGIN: usize = 1;

/// Sorted entries, at most a full node and one more.
pub(super) struct Run {
    prefix: Prefix,
    heads: [u64; CAPACITY],
    ids: [EntryId; CAPACITY],
    len: usize,
}

/// Where the entries of a leaf's tail went when it was merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailPlace {
    /// Before all that were sorted already.
    Front,
    /// Behind them.
    Back,
    /// Between them.
    Spread,
}

impl Run {
    /// No entries.
    pub(super) fn empty() -> Run {
        Run {
            prefix: Prefix::EMPTY,
            heads: [0; CAPACITY],
            ids: [EntryId::UNUSED; CAPACITY],
            len: 0,
        }
    }

    /// The entries as a node has them.
    #[inline]
    pub(super) fn keys(&self) -> Keys<'_> {
        self.part(0, self.len)
    }

    /// The entries `start..end` as a node has them.
    #[inline]
    fn part(&self, start: usize, end: usize) -> Keys<'_> {
        Keys { prefix: &self.prefix, heads: &self.heads[start..end], ids: &self.ids[start..end] }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// One entry, under the prefix of `neighbour` (not empty) as far as its key has it.
    pub(super) fn beside(neighbour: &Run, entries: &Entries, id: EntryId) -> Run {
        let mut run = Run::empty();
        let key = entries.key(id);
        let shared = order::shared_bytes(entries.key(neighbour.first()), key);
        run.prefix = Prefix::of(key, shared.min(neighbour.prefix.len()));
        run.insert(0, key, id);
        run
    }

    /// Becomes a copy of `keys`.
    pub(super) fn copy_from(&mut self, keys: &Keys<'_>) {
        self.prefix = *keys.prefix;
        self.len = 0;
        self.extend(keys.heads, keys.ids);
    }

    #[inline]
    fn extend(&mut self, heads: &[u64], ids: &[EntryId]) {
        let end = self.len + heads.len();
        self.heads[self.len..end].copy_from_slice(heads);
        self.ids[self.len..end].copy_from_slice(ids);
        self.len = end;
    }

    /// Becomes the entries of a leaf, all sorted.
    ///
    /// The rank of each of the tail's entries is counted, not found by moving them about: with so
    /// few, comparing all heads with all costs less than the branches of a sort.
    pub(super) fn merge_from(&mut self, entries: &Entries, leaf: &LeafView<'_>) -> TailPlace {
        let sorted = &leaf.sorted;
        self.prefix = *sorted.prefix;
        self.len = sorted.len() + leaf.tail_heads.len();
        let mut taken_by_tail = 0u64;
        let (mut rank_min, mut rank_max) = (sorted.len(), 0);
        for (index, (&head, &id)) in leaf.tail_heads.iter().zip(leaf.tail_ids).enumerate() {
            // O3: what is in the tail was inserted after what is sorted, so it comes before equals.
            let rank = sorted.rank_of_entry(entries, id, head);
            (rank_min, rank_max) = (rank_min.min(rank), rank_max.max(rank));
            let place = rank + rank_in_tail(entries, leaf, index);
            self.heads[place] = head;
            self.ids[place] = id;
            taken_by_tail |= 1 << place;
        }
        let mut from = 0;
        for place in 0..self.len {
            let is_taken = taken_by_tail >> place & 1 == 1;
            // Behind the last sorted entry, all places are taken.
            let head = sorted.heads.get(from).copied().unwrap_or(0);
            let id = sorted.ids.get(from).copied().unwrap_or(EntryId::UNUSED);
            self.heads[place] = select_unpredictable(is_taken, self.heads[place], head);
            self.ids[place] = select_unpredictable(is_taken, self.ids[place], id);
            from += usize::from(!is_taken);
        }
        match (rank_min, rank_max) {
            _ if leaf.tail_heads.is_empty() => TailPlace::Spread,
            (_, 0) => TailPlace::Front,
            (min, _) if min == sorted.len() => TailPlace::Back,
            _ => TailPlace::Spread,
        }
    }

    /// Inserts an entry. Its key has the prefix ([`Run::admit`]).
    pub(super) fn insert(&mut self, index: usize, key: &[u8], id: EntryId) {
        self.heads.copy_within(index..self.len, index + 1);
        self.ids.copy_within(index..self.len, index + 1);
        self.heads[index] = order::head_of(key, self.prefix.len());
        self.ids[index] = id;
        self.len += 1;
    }

    /// Shortens the prefix to what it shares with `key`, if it must.
    pub(super) fn admit(&mut self, entries: &Entries, key: &[u8]) {
        if matches!(self.keys().fit(entries, key, 0), Fit::Head(_)) {
            return;
        }
        let any_key = entries.key(self.ids[0]);
        let old = self.prefix.len();
        let new = order::shared_bytes(&any_key[..old], key);
        // The bytes that leave the prefix are the same for all: no entry need be looked at.
        let entering = order::head_of(&any_key[..old], new);
        let shift = 8 * (old - new) as u32;
        for head in &mut self.heads[..self.len] {
            *head = entering | head.checked_shr(shift).unwrap_or(0);
        }
        self.prefix = Prefix::of(any_key, new);
    }

    /// Removes and returns the entries from `index` on.
    pub(super) fn split_off(&mut self, index: usize) -> Run {
        let mut right = Run::empty();
        right.copy_from(&self.part(index, self.len));
        self.len = index;
        right
    }

    /// The id of the first entry, which must exist.
    pub(super) fn first(&self) -> EntryId {
        self.keys().ids[0]
    }

    /// Removes and returns the first entry, which must exist.
    pub(super) fn pop_first(&mut self) -> EntryId {
        let first = self.first();
        self.heads.copy_within(1..self.len, 0);
        self.ids.copy_within(1..self.len, 0);
        self.len -= 1;
        first
    }

    /// Lengthens the prefix if the heads have come to share too much.
    pub(super) fn sharpen(&mut self, entries: &Entries) {
        let (Some(first), Some(last)) = (self.keys().heads.first(), self.keys().heads.last())
        else {
            return;
        };
        if order::shared_head_bytes(*first, *last) < SHARED_HEAD_BYTES_MAX {
            return;
        }
        let (first, last) = (entries.key(self.ids[0]), entries.key(self.ids[self.len - 1]));
        // The keys between share what the first and the last share.
        let shared = order::shared_bytes(first, last).min(Prefix::LEN_MAX);
        let new = shared.saturating_sub(PREFIX_MARGIN);
        if new < self.prefix.len() + SHARED_HEAD_BYTES_MAX - PREFIX_MARGIN {
            return; // Versions of one key, or keys with zeros: nothing to win.
        }
        self.prefix = Prefix::of(first, new);
        for index in 0..self.len {
            self.heads[index] = order::head_of(entries.key(self.ids[index]), new);
        }
    }
}

/// Count of the entries of a leaf's tail that come before the one at `index` of it.
#[inline]
fn rank_in_tail(entries: &Entries, leaf: &LeafView<'_>, index: usize) -> usize {
    let head = leaf.tail_heads[index];
    let (mut below, mut equal) = (0, 0);
    for &other in leaf.tail_heads {
        below += usize::from(other < head);
        equal += usize::from(other == head);
    }
    if equal == 1 {
        return below;
    }
    below + rank_among_equal_heads(entries, leaf, index)
}

/// As [`rank_in_tail`], among those with the same head.
fn rank_among_equal_heads(entries: &Entries, leaf: &LeafView<'_>, index: usize) -> usize {
    let skipped = leaf.sorted.prefix.len();
    let comes_before = |other: usize| {
        order::entry_order(entries, leaf.tail_ids[other], leaf.tail_ids[index], skipped)
            .then(index.cmp(&other)) // O3
            .is_lt()
    };
    let equal_heads = (0..leaf.tail_heads.len())
        .filter(|&other| other != index && leaf.tail_heads[other] == leaf.tail_heads[index]);
    equal_heads.filter(|&other| comes_before(other)).count()
}
