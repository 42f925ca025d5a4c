//! Folding the items of a range into one summary, which nodes keep.
//!
//! A node that was folded whole remembers what came of it, so that folding a range looks at the
//! children of two paths and at what has changed since. (Aggregates in inner nodes, as B-trees of
//! CouchDB and Nebari keep them, but made when they are first asked for.)
//!
//! - M1  What a node keeps is of the items below it: edited in place it forgets, a copy is without.

use std::ops::Range;

use super::FlexTree;
use super::item::{Item, Total};
use super::node::Node;
use crate::base::sync::{Mutex, MutexGuard, PoisonError};
use crate::base::{Result, Slice};
use crate::cache::Charge;

/// Longer summaries are not kept, in bytes.
const KEPT_LEN_MAX: usize = 1 << 10;

/// What folding came to, of a node or an item, for each kind of fold.
#[derive(Debug, Default)]
pub struct Memo(Mutex<Option<Box<Kept>>>);

#[derive(Debug)]
struct Kept {
    tag: u64,
    summary: Option<Slice>,
    _charge: Charge,
    next: Option<Box<Kept>>,
}

impl Clone for Memo {
    /// M1
    fn clone(&self) -> Memo {
        Memo::default()
    }
}

impl Memo {
    /// What the fold of this tag came to, if that is known.
    pub fn find(&self, tag: u64) -> Option<Option<Slice>> {
        let first = self.lock();
        kept(first.as_deref(), tag).map(|kept| kept.summary.clone())
    }

    /// Keeps what it came to, if there is room.
    pub fn keep<T: Item>(&self, fold: &impl Fold<T>, summary: Option<&Slice>) {
        let len = summary.map_or(0, |summary| summary.len());
        let charged = (len <= KEPT_LEN_MAX).then(|| fold.charge(size_of::<Kept>() + len)).flatten();
        let Some(charge) = charged else { return };
        let (tag, summary) = (fold.tag(), summary.cloned());
        let mut first = self.lock();
        if kept(first.as_deref(), tag).is_some() {
            return; // Another thread was faster.
        }
        let next = first.take();
        *first = Some(Box::new(Kept { tag, summary, _charge: charge, next }));
    }

    /// M1
    pub(super) fn forget(&mut self) {
        *self.0.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Kept>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept for a tag, in a list of what is kept.
fn kept(first: Option<&Kept>, tag: u64) -> Option<&Kept> {
    let mut list = std::iter::successors(first, |kept| kept.next.as_deref());
    list.find(|kept| kept.tag == tag)
}

/// A way to fold items: associative, in their order.
pub trait Fold<T: Item> {
    /// Tells it from others that trees of these items are folded by.
    fn tag(&self) -> u64;
    /// Whether what items of these sizes come to stays so.
    fn is_lasting(&self, size: &T::Size) -> bool;
    /// What the item at this index comes to; `None` if that is nothing.
    ///
    /// # Errors
    /// Those of the caller.
    fn summarize(&mut self, index: usize, item: &T) -> Result<Option<Slice>>;
    /// What both together come to.
    ///
    /// # Errors
    /// Those of the caller.
    fn join(&mut self, left: Slice, right: Slice) -> Result<Slice>;
    /// For so many bytes that are to be kept; `None` if there is no room.
    fn charge(&self, bytes: usize) -> Option<Charge>;
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// What the items at `range` come to. O(log n) joins once that was asked before, and what is
    /// new since.
    ///
    /// # Errors
    /// Those of `fold`.
    pub fn fold(&self, range: Range<usize>, fold: &mut impl Fold<T>) -> Result<Option<Slice>> {
        match range.is_empty() {
            true => Ok(None),
            false => fold_node(&self.root, (0, &self.total), &range, fold),
        }
    }
}

/// What the items of `range` below a node come to, whose first item has the index `first`.
fn fold_node<T: Item, const LEAF: usize, const FAN: usize>(
    node: &Node<T, LEAF, FAN>,
    (first, total): (usize, &Total<T::Size>),
    range: &Range<usize>,
    fold: &mut impl Fold<T>,
) -> Result<Option<Slice>> {
    let end = first + total.count;
    let is_whole = range.start <= first && end <= range.end;
    let memo = match node {
        Node::Leaf(leaf) => &leaf.memo,
        Node::Inner(inner) => &inner.memo,
    };
    let memo = Some(memo).filter(|_| is_whole && fold.is_lasting(&total.size));
    if let Some(found) = memo.and_then(|memo| memo.find(fold.tag())) {
        return Ok(found);
    }
    let mut sum = None;
    match node {
        Node::Leaf(leaf) => {
            for (index, item) in (first..).zip(&leaf.items) {
                if range.contains(&index) {
                    let summary = fold.summarize(index, item)?;
                    sum = joined(sum, summary, fold)?;
                }
            }
        }
        Node::Inner(inner) => {
            let mut child_first = first;
            for (child, total) in inner.children.iter().zip(&inner.totals) {
                let child_end = child_first + total.count;
                if child_first < range.end && range.start < child_end {
                    let summary = fold_node(child, (child_first, total), range, fold)?;
                    sum = joined(sum, summary, fold)?;
                }
                child_first = child_end;
            }
        }
    }
    memo.inspect(|memo| memo.keep(fold, sum.as_ref()));
    Ok(sum)
}

fn joined<T: Item>(
    left: Option<Slice>,
    right: Option<Slice>,
    fold: &mut impl Fold<T>,
) -> Result<Option<Slice>> {
    match (left, right) {
        (Some(left), Some(right)) => fold.join(left, right).map(Some),
        (left, right) => Ok(left.or(right)),
    }
}
