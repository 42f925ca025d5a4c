//! The way from the root to the leaf where a bound lies, and the search in that leaf.
//!
//! Works on nodes that the caller holds, reader or writer. Must not change anything.
//!
//! Invariants
//! - T1  A separator is the first entry of the subtree behind it, for ever: entries are never
//!   removed, and a new one that equals it goes before it, into the subtree in front.
//! - T2  The leaf where a bound lies together with the separator behind that leaf (the *fence*)
//!   holds the first entry that is not before the bound, if there is one.
//! - T3  Whatever pointers a reader meets while the writer goes on: the leaf that it reaches
//!   holds all entries between the fences of its path that were inserted before it loaded the
//!   root. A node that was replaced meanwhile is whole, just not the newest.

use super::arena::{Entries, EntryId};
use super::node::{Hold, Inner, Leaf, LeafView, Node, Root};
use super::order::{self, Bound, Fit};
use crate::base::EntryRef;
use crate::base::SeqNo;

/// Where a descent ended.
#[derive(Clone, Copy)]
pub(super) struct Landing<'h> {
    pub(super) leaf: Leaf<'h>,
    /// The first entry behind the leaf (T1); none behind the last leaf.
    pub(super) fence: Option<EntryId>,
    /// Leading bytes that all keys between the fences share, as far as they go.
    pub(super) known: usize,
}

/// Goes to the leaf where `bound` lies. `step` gets each inner node passed and the index of the
/// child taken.
#[inline]
pub(super) fn descend<'h, H: Hold>(
    root: &Root,
    hold: &'h H,
    entries: &Entries,
    bound: &Bound<'_>,
    mut step: impl FnMut(Inner<'h>, usize),
) -> Landing<'h> {
    let mut node = root.load(hold);
    let mut fence = None;
    let mut known = 0;
    loop {
        let inner = match node {
            Node::Leaf(leaf) => return Landing { leaf, fence, known },
            Node::Inner(inner) => inner,
        };
        let keys = inner.keys();
        let index = keys.rank(entries, bound, known);
        node = inner.child(index, hold);
        step(inner, index);
        if index < keys.len() {
            fence = Some(keys.ids[index]);
            if index > 0 {
                let shared = order::shared_head_bytes(keys.heads[index - 1], keys.heads[index]);
                known = known.max(keys.prefix.len() + shared);
            }
        }
    }
}

/// The newest version of `key` with a seqno of at most `at`, given where
/// `Bound::Before(key, at)` lies.
#[inline]
pub(super) fn find<'e>(
    entries: &'e Entries,
    landing: &Landing<'_>,
    key: &[u8],
    at: SeqNo,
) -> Option<EntryRef<'e>> {
    let view = landing.leaf.view();
    let of_key = |id: EntryId| Some(entries.entry(id)).filter(|entry| entry.key == key);
    let head = match view.sorted.fit(entries, key, landing.known) {
        Fit::Head(head) => head,
        Fit::Before => return None,
        Fit::Behind => return landing.fence.and_then(of_key),
    };
    let rank = view.sorted.rank_of_head(entries, &Bound::Before(key, at), head);
    let first = match view.sorted.heads.get(rank) {
        Some(&other) if other != head => None,
        Some(_) => of_key(view.sorted.ids[rank]),
        None => landing.fence.and_then(of_key), // T2
    };
    newest_in_tail(entries, &view, head, (key, at), first)
}

/// The newest of `found` and the tail's versions of the key up to the seqno.
#[inline]
fn newest_in_tail<'e>(
    entries: &'e Entries,
    view: &LeafView<'_>,
    head: u64,
    (key, at): (&[u8], SeqNo),
    mut found: Option<EntryRef<'e>>,
) -> Option<EntryRef<'e>> {
    for (&tail_head, &id) in view.tail_heads.iter().zip(view.tail_ids) {
        if tail_head != head {
            continue;
        }
        let entry = entries.entry(id);
        // O3: of equal seqnos the later insertion counts, and the tail is in that order.
        let newer = found.is_none_or(|found| entry.seqno >= found.seqno);
        if entry.seqno <= at && newer && entry.key == key {
            found = Some(entry);
        }
    }
    found
}
