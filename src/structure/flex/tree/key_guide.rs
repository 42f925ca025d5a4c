//! The guide of trees that are ordered by key: a node's keys as an array of 8-byte heads.
//!
//! The head of a key is its first 8 bytes after the prefix that all keys of the node share, as a
//! big-endian number, padded with zeros. Heads order like their keys except that different keys
//! may have equal heads (`"a"` and `"a\0"`, or keys that differ only later); then the whole keys
//! decide. A search therefore reads one contiguous array of numbers and, mostly, one key.
//!
//! Invariants, for keys that ascend
//! - G1  `heads[i]` is the head of key `i` after the prefix, for every key.
//! - G2  `prefix` is the common prefix of the first and the last key, and so of all of them.
//! - G3  In an inner node `leads[i]` is the key of the first item below child `i`; in a leaf
//!   `leads` is empty, the keys are in the items.
//!
//! Keys that do not ascend are the caller's mistake: searches then miss, `check` says so, nothing
//! panics.

use std::iter;
use std::ops::Range;

use super::item::{Guide, Keyed};
use crate::base::Slice;

/// Bytes of a key that one comparison of heads decides.
const HEAD_SIZE: usize = size_of::<u64>();

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct KeyGuide {
    heads: Vec<u64>,
    /// A copy, mostly inline: a search touches no key that it need not compare.
    prefix: Slice,
    leads: Vec<Slice>,
}

impl KeyGuide {
    /// The last child whose lead is at most `key`.
    #[inline]
    pub(super) fn child_at_most(&self, key: &[u8]) -> Option<usize> {
        self.last_at_most(key, |position| &self.leads[position])
    }

    /// The last of the leaf's items whose key is at most `key`.
    #[inline]
    pub(super) fn item_at_most<T: Keyed>(&self, items: &[T], key: &[u8]) -> Option<usize> {
        self.last_at_most(key, |position| items[position].key())
    }

    #[inline]
    fn last_at_most<'k>(&self, key: &[u8], key_at: impl Fn(usize) -> &'k [u8]) -> Option<usize> {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            // All keys of the node compare to `key` as their prefix does, and that is not `key`'s:
            // a key that ends within the prefix sorts before it.
            return if *key < *self.prefix { None } else { self.heads.len().checked_sub(1) };
        };
        let head = head_of(rest);
        let behind = self.heads.partition_point(|&other| other <= head);
        let last = behind.checked_sub(1)?;
        if self.heads[last] < head {
            return Some(last);
        }
        if last == 0 || self.heads[last - 1] < head {
            // The usual tie: one key, often the very one.
            return if key_at(last) <= key { Some(last) } else { last.checked_sub(1) };
        }
        let tied = self.heads[..behind].partition_point(|&other| other < head);
        last_of_tied(tied..behind, key, key_at)
    }

    fn head_of(&self, key: &[u8]) -> u64 {
        head_of(key.get(self.prefix.len()..).unwrap_or(&[]))
    }

    fn rebuild<'k>(&mut self, count: usize, key_at: impl Fn(usize) -> &'k [u8]) {
        let mut heads = std::mem::take(&mut self.heads);
        self.prefix = Slice::from(prefix_of_all(count, &key_at));
        heads.clear();
        heads.extend((0..count).map(|position| self.head_of(key_at(position))));
        self.heads = heads;
    }

    /// `added` keys have replaced those at `removed`; there are `count` now.
    fn spliced<'k>(
        &mut self,
        removed: Range<usize>,
        added: usize,
        count: usize,
        key_at: impl Fn(usize) -> &'k [u8],
    ) {
        if *self.prefix != *prefix_of_all(count, &key_at) {
            return self.rebuild(count, key_at);
        }
        let mut heads = std::mem::take(&mut self.heads);
        let fresh = removed.start..removed.start + added;
        if removed.len() == added {
            for position in fresh {
                heads[position] = self.head_of(key_at(position));
            }
        } else {
            heads.splice(removed, fresh.map(|position| self.head_of(key_at(position))));
        }
        self.heads = heads;
    }

    fn check<'k>(&self, count: usize, key_at: impl Fn(usize) -> &'k [u8]) -> Result<(), String> {
        if *self.prefix != *prefix_of_all(count, &key_at) {
            return Err(format!("{:?} is not the keys' common prefix", self.prefix));
        }
        if self.heads.len() != count {
            return Err(format!("{} heads for {count} keys", self.heads.len()));
        }
        for (position, &head) in self.heads.iter().enumerate() {
            if head != self.head_of(key_at(position)) {
                return Err(format!("the head at {position} is not the key's"));
            }
            if position > 0 && key_at(position - 1) >= key_at(position) {
                return Err(format!("the keys do not ascend at {position}"));
            }
        }
        Ok(())
    }
}

impl<T: Keyed> Guide<T> for KeyGuide {
    fn of_leaf(items: &[T]) -> KeyGuide {
        let mut guide = KeyGuide { heads: Vec::with_capacity(items.len()), ..KeyGuide::default() };
        guide.rebuild(items.len(), |position| items[position].key());
        guide
    }

    fn leaf_spliced(&mut self, items: &[T], removed: Range<usize>, added: usize) {
        self.spliced(removed, added, items.len(), |position| items[position].key());
    }

    fn key_of(item: &T) -> &[u8] {
        item.key()
    }

    fn ascend(before: &T, behind: &T) -> bool {
        before.key() < behind.key()
    }

    fn of_inner(leads: Vec<Slice>) -> KeyGuide {
        let mut guide = KeyGuide { heads: Vec::with_capacity(leads.len()), ..KeyGuide::default() };
        guide.rebuild(leads.len(), |position| &leads[position]);
        guide.leads = leads;
        guide
    }

    fn inner_spliced(&mut self, removed: Range<usize>, leads: Vec<Slice>) {
        let added = leads.len();
        let mut all = std::mem::take(&mut self.leads);
        all.splice(removed.clone(), leads);
        self.spliced(removed, added, all.len(), |position| &all[position]);
        self.leads = all;
    }

    fn lead_changed(&mut self, position: usize, lead: &[u8]) {
        if *self.leads[position] != *lead {
            <KeyGuide as Guide<T>>::inner_spliced(
                self,
                position..position + 1,
                vec![Slice::from(lead)],
            );
        }
    }

    fn lead_of_inner(&self) -> &[u8] {
        self.leads.first().map_or(&[], |lead| lead)
    }

    fn keep(lead: &[u8]) -> Slice {
        Slice::from(lead)
    }

    fn check_leaf(&self, items: &[T]) -> Result<(), String> {
        self.check(items.len(), |position| items[position].key())
    }

    fn check_inner(&self, leads: &[&[u8]]) -> Result<(), String> {
        if let Some(position) = (0..leads.len().max(self.leads.len()))
            .find(|&at| self.leads.get(at).map(|lead| &**lead) != leads.get(at).copied())
        {
            return Err(format!("the lead at {position} is not the child's first key"));
        }
        self.check(leads.len(), |position| leads[position])
    }
}

/// Among keys of equal heads, the last that is at most `key`; else the one before them.
fn last_of_tied<'k>(
    tied: Range<usize>,
    key: &[u8],
    key_at: impl Fn(usize) -> &'k [u8],
) -> Option<usize> {
    let (mut low, mut high) = (tied.start, tied.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if key_at(middle) <= key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

#[inline]
fn head_of(rest: &[u8]) -> u64 {
    if let Some(head) = rest.first_chunk::<HEAD_SIZE>() {
        return u64::from_be_bytes(*head);
    }
    let mut padded = [0; HEAD_SIZE];
    padded[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(padded)
}

/// G2: what the first and the last of `count` ascending keys share, all of them share.
fn prefix_of_all<'k>(count: usize, key_at: impl Fn(usize) -> &'k [u8]) -> &'k [u8] {
    let Some(last) = count.checked_sub(1) else {
        return &[];
    };
    let (first, last) = (key_at(0), key_at(last));
    let shared = iter::zip(first, last).take_while(|(one, other)| one == other).count();
    &first[..shared]
}
