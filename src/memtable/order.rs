//! The order of entries (key ascending, seqno descending) and the fast search in it.
//!
//! A node keeps for each entry a *head*: the eight bytes of its key that follow the prefix that
//! all keys of the node share. Heads decide most comparisons without looking at an entry.
//! Must not know nodes' memory or the tree.
//!
//! Invariants
//! - O1  Every key in a list of keys starts with the list's prefix.
//! - O2  Heads are big-endian and padded with zeros, so a smaller head means a smaller key. Equal
//!   heads mean nothing: "ab" and "ab\0" have one head; then the keys are compared.
//! - O3  Of two entries with the same key and seqno, the one inserted later comes first.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use super::arena::{Entries, EntryId};
use crate::base::SeqNo;

const HEAD_SIZE: usize = size_of::<u64>();
/// Bytes of the prefix that a node holds itself, the last ones: with the node's counts they fill
/// one cache line.
pub(super) const PREFIX_TAIL_SIZE: usize = 56;

/// A place between entries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound<'k> {
    /// Before the newest version of the key whose seqno is at most this.
    Before(&'k [u8], SeqNo),
    /// Behind all versions of the key.
    After(&'k [u8]),
    /// Behind everything.
    End,
}

/// The eight bytes of `key` from `from` on, as a number that orders like them (O2).
#[inline]
pub(super) fn head_of(key: &[u8], from: usize) -> u64 {
    let rest = key.get(from..).unwrap_or(&[]);
    if let Some(bytes) = rest.first_chunk::<HEAD_SIZE>() {
        return u64::from_be_bytes(*bytes);
    }
    rest.iter()
        .enumerate()
        .fold(0, |head, (index, &byte)| head | u64::from(byte) << (56 - 8 * index))
}

/// Leading bytes that two heads share.
#[inline]
pub(super) fn shared_head_bytes(a: u64, b: u64) -> usize {
    (a ^ b).leading_zeros() as usize / 8
}

/// Leading bytes that two keys share.
pub(super) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The bytes that all keys of a node start with. Of a long one only the tail is here; the rest is
/// in the key of any entry of the node.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    len: u16,
    tail: [u8; PREFIX_TAIL_SIZE],
}

impl Prefix {
    pub(super) const EMPTY: Prefix = Prefix { len: 0, tail: [0; PREFIX_TAIL_SIZE] };
    pub(super) const LEN_MAX: usize = u16::MAX as usize;

    /// The first `len` bytes of `key`.
    pub(super) fn of(key: &[u8], len: usize) -> Prefix {
        let mut tail = [0; PREFIX_TAIL_SIZE];
        let kept = &key[len.saturating_sub(PREFIX_TAIL_SIZE)..len];
        tail[..kept.len()].copy_from_slice(kept);
        Prefix { len: u16::try_from(len).expect("callers stay within LEN_MAX"), tail }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// How `key` compares to the prefix: `Equal` if it starts with it. Of the first `known` bytes
    /// the caller knows that they agree, as far as `key` goes. `any_key` gives a key with the
    /// prefix.
    #[inline]
    fn order<'e>(&self, key: &[u8], known: usize, any_key: impl Fn() -> &'e [u8]) -> Ordering {
        let len = self.len();
        if known >= len && key.len() >= len {
            return Ordering::Equal;
        }
        let tail_start = len.saturating_sub(PREFIX_TAIL_SIZE);
        let end = len.min(key.len());
        let known = known.min(end);
        let rest = if known >= tail_start {
            key[known..end].cmp(&self.tail[known - tail_start..end - tail_start])
        } else {
            key[known..end].cmp(&any_key()[known..end])
        };
        // A key that ends inside the prefix is before all that have the whole prefix.
        rest.then(key.len().cmp(&len).min(Ordering::Equal))
    }
}

/// Sorted entries of a node: prefix, heads and ids, the last two of equal length.
#[derive(Clone, Copy)]
pub(super) struct Keys<'n> {
    pub(super) prefix: &'n Prefix,
    pub(super) heads: &'n [u64],
    pub(super) ids: &'n [EntryId],
}

/// How a key relates to the prefix of a node.
pub(super) enum Fit {
    /// It is before all keys of the node.
    Before,
    /// It has the prefix; this is its head.
    Head(u64),
    /// It is behind all keys of the node.
    Behind,
}

impl Keys<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// How `key` relates to the prefix; `known` as in a descent: bytes that all keys between the
    /// fences of the node share.
    #[inline]
    pub(super) fn fit(&self, entries: &Entries, key: &[u8], known: usize) -> Fit {
        match self.prefix.order(key, known, || entries.key(self.ids[0])) {
            Ordering::Less => Fit::Before,
            Ordering::Equal => Fit::Head(head_of(key, self.prefix.len())),
            Ordering::Greater => Fit::Behind,
        }
    }

    /// Count of entries before `bound`.
    #[inline(always)] // A call for each level costs a lookup a twenty-fifth.
    pub(super) fn rank(&self, entries: &Entries, bound: &Bound<'_>, known: usize) -> usize {
        let (Bound::Before(key, _) | Bound::After(key)) = bound else {
            return self.len();
        };
        match self.fit(entries, key, known) {
            Fit::Before => 0,
            Fit::Head(head) => self.rank_of_head(entries, bound, head),
            Fit::Behind => self.len(),
        }
    }

    /// As [`Keys::rank`], for a bound whose key has the prefix and this head.
    #[inline]
    pub(super) fn rank_of_head(&self, entries: &Entries, bound: &Bound<'_>, head: u64) -> usize {
        let low = count_below(self.heads, head);
        if self.heads.get(low) == Some(&head) {
            return self.rank_among_equal_heads(entries, bound, low);
        }
        low
    }

    /// A rank at or a little before that of `bound`, found without looking at entries.
    #[inline]
    pub(super) fn rank_by_heads(&self, bound: &Bound<'_>) -> usize {
        match bound {
            Bound::Before(key, _) | Bound::After(key) => {
                count_below(self.heads, head_of(key, self.prefix.len()))
            }
            Bound::End => self.len(),
        }
    }

    /// As [`Keys::rank`], for the place before the entry `id` that has the prefix and this head.
    pub(super) fn rank_of_entry(&self, entries: &Entries, id: EntryId, head: u64) -> usize {
        let low = count_below(self.heads, head);
        if self.heads.get(low) == Some(&head) {
            let entry = entries.entry(id);
            let bound = Bound::Before(entry.key, entry.seqno);
            return self.rank_among_equal_heads(entries, &bound, low);
        }
        low
    }

    /// Goes on with whole keys among the entries from `low` on that have the head of the one at
    /// `low`. A key with thousands of versions fills whole nodes with one head: binary search.
    fn rank_among_equal_heads(&self, entries: &Entries, bound: &Bound<'_>, low: usize) -> usize {
        let head = self.heads[low];
        let run = match self.heads.get(low + 1) {
            Some(&next) if next == head => self.heads[low..].partition_point(|&h| h == head),
            _ => 1,
        };
        let skipped = self.prefix.len();
        let before = |&id: &EntryId| is_before(entries, id, bound, skipped);
        low + self.ids[low..low + run].partition_point(before)
    }
}

/// Whether the entry comes before `bound`; both keys share their first `skipped` bytes.
fn is_before(entries: &Entries, id: EntryId, bound: &Bound<'_>, skipped: usize) -> bool {
    let entry = entries.entry(id);
    let (key, newer) = match bound {
        Bound::Before(key, seqno) => (key, entry.seqno > *seqno),
        Bound::After(key) => (key, true),
        Bound::End => return true,
    };
    match entry.key[skipped..].cmp(&key[skipped..]) {
        Ordering::Less => true,
        Ordering::Equal => newer,
        Ordering::Greater => false,
    }
}

/// The order of two entries whose keys share their first `skipped` bytes. `Equal` leaves O3 to
/// the caller, who knows which was inserted later.
pub(super) fn entry_order(entries: &Entries, a: EntryId, b: EntryId, skipped: usize) -> Ordering {
    let (a, b) = (entries.entry(a), entries.entry(b));
    a.key[skipped..].cmp(&b.key[skipped..]).then(b.seqno.cmp(&a.seqno))
}

/// Count of the sorted `heads` below `head`: binary search without branches on the data, because
/// the processor would guess every second one wrong.
#[inline]
fn count_below(heads: &[u64], head: u64) -> usize {
    let mut rest = heads;
    let mut base = 0;
    while rest.len() > 1 {
        let half = rest.len() / 2;
        let below = rest[half - 1] < head;
        base = select_unpredictable(below, base + half, base);
        rest = &heads[base..base + rest.len() - half];
    }
    base + rest.first().map_or(0, |&last| usize::from(last < head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_like_the_keys_they_are_made_of() {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi", b"\xFF\xFF"];
        for pair in keys.windows(2) {
            assert!(head_of(pair[0], 0) <= head_of(pair[1], 0), "{pair:?}");
        }
        assert_eq!(head_of(b"abc", 1), 0x6263_0000_0000_0000);
        assert_eq!(head_of(b"abc", 9), 0);
    }

    #[test]
    fn count_below_agrees_with_a_linear_count() {
        for len in 0..70u64 {
            let heads: Vec<u64> = (0..len).map(|index| index / 3 * 2).collect();
            for head in 0..len + 2 {
                let expected = heads.iter().filter(|&&h| h < head).count();
                assert_eq!(count_below(&heads, head), expected);
            }
        }
    }

    #[test]
    fn a_prefix_orders_keys_that_lack_it() {
        let long: Vec<u8> = (0..100).collect();
        for len in [1, 3, PREFIX_TAIL_SIZE, 70] {
            let prefix = Prefix::of(&long, len);
            let order = |key: &[u8], known| prefix.order(key, known, || long.as_slice());
            for known in [0, 1, len] {
                assert_eq!(order(&long, known), Ordering::Equal);
                assert_eq!(order(&long[..len], known), Ordering::Equal);
                assert_eq!(order(&long[..len - 1], known), Ordering::Less);
            }
            let mut other = long.clone();
            other[len - 1] += 1;
            assert_eq!(order(&other, len - 1), Ordering::Greater);
            assert_eq!(order(&other, 0), Ordering::Greater);
        }
    }
}
