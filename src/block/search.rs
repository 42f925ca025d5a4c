//! Finding a key in the bytes of a block.
//!
//! Two ways. By order: binary search over the restarts, comparing eight bytes at a time, and a
//! walk from the restart when keys share prefixes. By fingerprint: one byte of each key's hash,
//! eight of them compared at once, so that a point lookup in a block that is read often touches
//! one key or none.
//!
//! All keys of a sorted block start with what its first and last key have in common, so the eight
//! bytes that are compared start behind that.

use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ops::Range;

use crate::base::hash_key;
use crate::base::sync::OnceLock;
use crate::base::sync::atomic;
use crate::base::sync::atomic::AtomicU8;
use crate::block::common_prefix_len;
use crate::block::layout::Layout;

/// Lookups by order before fingerprints are made: making them costs as much as about ten lookups
/// gain, and most blocks of a random read are looked into once.
const LOOKUPS_BEFORE_PRINTS: u8 = 4;
/// Up to this many entries a search by order is as fast.
const ENTRIES_WITHOUT_PRINTS: usize = 8;

const LOWEST_BITS: u64 = u64::from_le_bytes([0x01; 8]);
const HIGHEST_BITS: u64 = u64::from_le_bytes([0x80; 8]);
const WORD_LEN: usize = 8;

/// Number of restarts whose key is below `key` (`bound` `Less`), or not above it (`Equal`), given
/// the place of what all keys have in common.
#[inline]
pub(super) fn restarts_below(
    layout: &Layout,
    data: &[u8],
    common: Range<usize>,
    key: &[u8],
    bound: Bound,
) -> usize {
    if layout.restart_count == 0 {
        return 0;
    }
    match order_of_start(key, &data[common.clone()]) {
        Ordering::Less => return 0,
        Ordering::Greater => return layout.restart_count,
        Ordering::Equal => {}
    }
    let common_len = common.len();
    let head = head_at(key, common_len);
    let is_below = |index: usize| {
        let other_head = head_of_restart(layout, data, common_len, index);
        // Equal heads decide nothing: keys may go on, and short ones were padded with zeros
        // ("a" and "a\0" have the same head).
        if other_head == head {
            return bound.admits(layout.restart_key(data, index).cmp(key));
        }
        other_head < head
    };
    let mut base = 0;
    let mut len = layout.restart_count;
    // Three keys at a time: in a block that is not in the processor's cache each look is a wait,
    // and these waits run side by side.
    while len >= 4 {
        let quarter = len / 4;
        // (Spelled out: mapped over an array, each look is a call.)
        let first = usize::from(is_below(base + quarter - 1));
        let second = usize::from(is_below(base + 2 * quarter - 1));
        let third = usize::from(is_below(base + 3 * quarter - 1));
        base += (first + second + third) * quarter;
        len -= 3 * quarter;
    }
    while len > 1 {
        let half = len / 2;
        // Which way it goes cannot be predicted: no branch.
        base = select_unpredictable(is_below(base + half - 1), base + half, base);
        len -= half;
    }
    base + usize::from(is_below(base))
}

/// How the start of `key` compares with `common`. A key that ends within that is before it.
#[inline]
pub(super) fn order_of_start(key: &[u8], common: &[u8]) -> Ordering {
    // Often there is nothing or little in common: not worth a call.
    match (common, key) {
        ([], _) => Ordering::Equal,
        ([only], [first, ..]) => first.cmp(only),
        _ => key[..key.len().min(common.len())].cmp(common),
    }
}

/// Which restarts count as below a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Those with a smaller key.
    Below,
    /// Those with a smaller key or the same.
    UpTo,
}

impl Bound {
    #[inline]
    fn admits(self, ordering: Ordering) -> bool {
        match self {
            Bound::Below => ordering == Ordering::Less,
            Bound::UpTo => ordering != Ordering::Greater,
        }
    }
}

/// The eight bytes of `key` behind `start` as a number that orders as they do; zeros where the
/// key has ended.
#[inline]
pub(super) fn head_at(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or_default();
    if let Some(head) = rest.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; WORD_LEN];
    head[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(head)
}

/// [`head_at`] of a restart key, read from the block without looking at where the key ends first.
#[inline(always)]
fn head_of_restart(layout: &Layout, data: &[u8], common_len: usize, index: usize) -> u64 {
    let (key_start, key_len) = layout.restart_key_place(data, index);
    let head_start = key_start + common_len;
    // The trailer is behind every key, so there are eight bytes, but not all need be the key's.
    // (A key that lacks the common prefix is possible only in a block that no builder made.)
    let Some(head) = data.get(head_start..).and_then(<[u8]>::first_chunk) else {
        return 0;
    };
    let own_bits = key_len.saturating_sub(common_len).min(WORD_LEN) as u32 * 8;
    let own = u64::MAX.checked_shl(u64::BITS - own_bits).unwrap_or(0);
    u64::from_be_bytes(*head) & own
}

/// How far a walk through a block may go without comparing keys. Made for one direction, of the
/// key that is not to be passed; holds for the block that made it.
///
/// The *head* of a key is the eight bytes behind what all keys of the block have in common: a key
/// with a smaller head is smaller. Keys of equal heads are left out, so that a reach is a little
/// less than it could be, never more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach {
    /// Entries whose head (moving back: its complement) is less than this are within.
    end: u64,
}

impl Reach {
    /// The whole block.
    pub const EVERYTHING: Reach = Reach { end: u64::MAX };
    /// Nothing.
    pub const NOTHING: Reach = Reach { end: 0 };
    /// Less than [`Reach::EVERYTHING`], of which the heads are not looked at.
    const END_MAX: u64 = u64::MAX - 1;

    #[inline]
    pub(super) fn below(head: u64) -> Reach {
        Reach { end: head.min(Reach::END_MAX) }
    }

    #[inline]
    pub(super) fn above(head: u64) -> Reach {
        Reach::below(!head)
    }

    #[inline]
    pub(super) fn is_everything(self) -> bool {
        self == Reach::EVERYTHING
    }

    /// Whether a key with this head, or one that is too high, is within; moving on.
    #[inline]
    pub(super) fn holds_below(self, head: u64) -> bool {
        self.is_everything() || head < self.end
    }

    /// Whether a key with this head, or one that is too low, is within; moving back.
    #[inline]
    pub(super) fn holds_above(self, head: u64) -> bool {
        self.is_everything() || !head < self.end
    }
}

/// Compares the keys of a block in the shared form with one key, entry by entry from a restart,
/// without putting them together: it is enough to know how much of the key the last entry had.
#[derive(Debug)]
pub(super) struct KeyMatch<'a> {
    key: &'a [u8],
    /// Leading bytes that the last entry's key had in common with `key`.
    matched: usize,
    /// How the last entry's key compared with `key`.
    ordering: Ordering,
}

impl<'a> KeyMatch<'a> {
    pub(super) fn new(key: &'a [u8]) -> KeyMatch<'a> {
        KeyMatch { key, matched: 0, ordering: Ordering::Less }
    }

    /// From behind an entry that is below `key`, and has so many leading bytes in common with it.
    pub(super) fn from_below(key: &'a [u8], matched: usize) -> KeyMatch<'a> {
        KeyMatch { key, matched, ordering: Ordering::Less }
    }

    /// Leading bytes that the last entry's key had in common with the key.
    pub(super) fn matched(&self) -> usize {
        self.matched
    }

    /// How the key of the next entry, `shared` bytes of the last one's and `suffix`, compares.
    ///
    /// Example: searching "bcd" after "bca" (2 matched). "bcaa" shares 3 bytes: as it agrees with
    /// "bca" where that differs from "bcd", nothing changes. "bcz" shares 2: its "z" decides.
    #[inline]
    pub(super) fn compare(&mut self, shared: usize, suffix: &[u8]) -> Ordering {
        if shared > self.matched {
            return self.ordering;
        }
        let rest = &self.key[shared..];
        let common = common_prefix_len(suffix, rest);
        self.matched = shared + common;
        self.ordering = suffix.get(common).cmp(&rest.get(common));
        self.ordering
    }
}

/// One byte of each key's hash, made when lookups have shown that the block is worth it.
#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    prints: OnceLock<Box<[u8]>>,
    lookups: AtomicU8,
}

impl Fingerprints {
    /// The prints, unless it is too early for them.
    #[inline]
    pub(super) fn when_worthwhile(
        &self,
        entry_count: usize,
        for_each_key: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> Option<&[u8]> {
        if let Some(prints) = self.prints.get() {
            return Some(prints);
        }
        if entry_count <= ENTRIES_WITHOUT_PRINTS {
            return None;
        }
        // Two threads may count as one: it is a guess anyhow.
        let lookups = self.lookups.load(atomic::Ordering::Relaxed);
        if lookups < LOOKUPS_BEFORE_PRINTS {
            self.lookups.store(lookups + 1, atomic::Ordering::Relaxed);
            return None;
        }
        Some(self.prints.get_or_init(|| {
            let mut prints = Vec::with_capacity(entry_count);
            for_each_key(&mut |key| prints.push(fingerprint(key)));
            prints.into_boxed_slice()
        }))
    }
}

/// The fingerprint of a key.
#[inline]
pub(super) fn fingerprint(key: &[u8]) -> u8 {
    (hash_key(key) >> 56) as u8
}

/// Hands each index whose print is `print` to `accept`, in ascending order, until that returns
/// something. An index without that print may be handed out now and then: `accept` compares keys.
#[inline]
pub(super) fn find_print<T>(
    prints: &[u8],
    print: u8,
    mut accept: impl FnMut(usize) -> Option<T>,
) -> Option<T> {
    let pattern = u64::from(print) * LOWEST_BITS;
    let (words, rest) = prints.as_chunks::<WORD_LEN>();
    for (word_index, word) in words.iter().enumerate() {
        // Bytes of `differing` that are zero get their highest bit (and, through the borrow,
        // perhaps a byte of value 1 above one of them).
        let differing = u64::from_le_bytes(*word) ^ pattern;
        let mut hits = differing.wrapping_sub(LOWEST_BITS) & !differing & HIGHEST_BITS;
        while hits != 0 {
            let index = word_index * WORD_LEN + hits.trailing_zeros() as usize / 8;
            if let Some(found) = accept(index) {
                return Some(found);
            }
            hits &= hits - 1;
        }
    }
    let rest_start = words.len() * WORD_LEN;
    let mut hits = rest.iter().enumerate().filter(|(_, other)| **other == print);
    hits.find_map(|(index, _)| accept(rest_start + index))
}
