//! What a tree holds: items, the sizes they contribute, and the measures that search by size.
//!
//! Invariants
//! - I1  Sizes are sums: the size of a range is the `add` of the sizes of its items, in any order.
//! - I2  An item's size depends on nothing but the item.

use std::fmt::Debug;
use std::ops::Range;

use crate::base::Slice;

/// What lies below a node, summed element by element. Overflow is a caller's mistake and panics:
/// whoever builds items bounds their sum first.
pub trait Size: Copy + Default + PartialEq + Debug {
    /// The sum.
    #[must_use]
    fn add(self, other: Self) -> Self;
    /// The difference; `other` is a part of `self`.
    #[must_use]
    fn sub(self, other: Self) -> Self;
}

impl Size for () {
    #[inline]
    fn add(self, (): ()) {}
    #[inline]
    fn sub(self, (): ()) {}
}

impl Size for u64 {
    #[inline]
    fn add(self, other: u64) -> u64 {
        self.checked_add(other).expect("the caller keeps sums of sizes within 64 bits")
    }
    #[inline]
    fn sub(self, other: u64) -> u64 {
        self.checked_sub(other).expect("a part is never larger than the whole")
    }
}

impl<A: Size, B: Size> Size for (A, B) {
    #[inline]
    fn add(self, other: (A, B)) -> (A, B) {
        (self.0.add(other.0), self.1.add(other.1))
    }
    #[inline]
    fn sub(self, other: (A, B)) -> (A, B) {
        (self.0.sub(other.0), self.1.sub(other.1))
    }
}

impl<A: Size, B: Size, C: Size> Size for (A, B, C) {
    #[inline]
    fn add(self, other: (A, B, C)) -> (A, B, C) {
        (self.0.add(other.0), self.1.add(other.1), self.2.add(other.2))
    }
    #[inline]
    fn sub(self, other: (A, B, C)) -> (A, B, C) {
        (self.0.sub(other.0), self.1.sub(other.1), self.2.sub(other.2))
    }
}

/// One dimension of a size, to search by: bytes, entries, live bytes.
pub trait Measure<S>: Fn(&S) -> u64 {}

impl<S, F: Fn(&S) -> u64> Measure<S> for F {}

/// What a tree holds. Cloning must be cheap: a leaf that versions share is copied when edited.
pub trait Item: Clone {
    /// What an item contributes to the sums in inner nodes.
    type Size: Size;
    /// How nodes find an item by key: [`NoGuide`] or [`super::KeyGuide`].
    type Guide: Guide<Self>;

    /// What this item contributes.
    fn size(&self) -> Self::Size;
}

/// An item of a tree that is ordered by key, strictly ascending.
pub trait Keyed: Item<Guide = super::KeyGuide> {
    /// The smallest key that belongs to this item: its anchor.
    fn key(&self) -> &[u8];
}

/// What a node keeps to be searched by key. A leaf finds the keys in its items; an inner node
/// keeps the *lead* of each child: the key of the first item below it.
pub trait Guide<T>: Clone + Default {
    /// The guide of a leaf with these items.
    fn of_leaf(items: &[T]) -> Self;
    /// `added` items have replaced the ones that were at `removed`; `items` is the result.
    fn leaf_spliced(&mut self, items: &[T], removed: Range<usize>, added: usize);
    /// The key of an item.
    fn key_of(item: &T) -> &[u8];
    /// Whether the two may follow each other.
    fn ascend(before: &T, behind: &T) -> bool;

    /// The guide of an inner node whose children have these leads.
    fn of_inner(leads: Vec<Slice>) -> Self;
    /// The children with these leads have replaced the ones that were at `removed`.
    fn inner_spliced(&mut self, removed: Range<usize>, leads: Vec<Slice>);
    /// The lead of the child at `position` may have become `lead`.
    fn lead_changed(&mut self, position: usize, lead: &[u8]);
    /// The lead of an inner node.
    fn lead_of_inner(&self) -> &[u8];

    /// A lead to keep, or nothing if guides of this kind keep none.
    fn keep(lead: &[u8]) -> Slice;

    /// What is wrong with this guide of a leaf, if anything.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    fn check_leaf(&self, items: &[T]) -> Result<(), String>;
    /// What is wrong with this guide of an inner node whose children have these leads.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    fn check_inner(&self, leads: &[&[u8]]) -> Result<(), String>;
}

/// The guide of trees that are not searched by key. Costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGuide;

impl<T> Guide<T> for NoGuide {
    #[inline]
    fn of_leaf(_: &[T]) -> NoGuide {
        NoGuide
    }
    #[inline]
    fn leaf_spliced(&mut self, _: &[T], _: Range<usize>, _: usize) {}
    #[inline]
    fn key_of(_: &T) -> &[u8] {
        &[]
    }
    #[inline]
    fn ascend(_: &T, _: &T) -> bool {
        true
    }
    #[inline]
    fn of_inner(_: Vec<Slice>) -> NoGuide {
        NoGuide
    }
    #[inline]
    fn inner_spliced(&mut self, _: Range<usize>, _: Vec<Slice>) {}
    #[inline]
    fn lead_changed(&mut self, _: usize, _: &[u8]) {}
    #[inline]
    fn lead_of_inner(&self) -> &[u8] {
        &[]
    }
    #[inline]
    fn keep(_: &[u8]) -> Slice {
        Slice::default()
    }
    fn check_leaf(&self, _: &[T]) -> Result<(), String> {
        Ok(())
    }
    fn check_inner(&self, _: &[&[u8]]) -> Result<(), String> {
        Ok(())
    }
}

/// How many items lie below a node, and how large they are together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total<S> {
    /// Items.
    pub count: usize,
    /// The sum of their sizes.
    pub size: S,
}

impl<S: Size> Total<S> {
    #[inline]
    pub(super) fn of<T: Item<Size = S>>(items: &[T]) -> Total<S> {
        let size = items.iter().fold(S::default(), |sum, item| sum.add(item.size()));
        Total { count: items.len(), size }
    }

    #[inline]
    pub(super) fn add(self, other: Total<S>) -> Total<S> {
        Total { count: self.count + other.count, size: self.size.add(other.size) }
    }

    #[inline]
    pub(super) fn sub(self, other: Total<S>) -> Total<S> {
        Total { count: self.count - other.count, size: self.size.sub(other.size) }
    }

    pub(super) fn sum(totals: &[Total<S>]) -> Total<S> {
        totals.iter().fold(Total::default(), |sum, &total| sum.add(total))
    }
}
