//! Reading one item: by index, by an offset in a dimension of the sizes, by key.

use super::FlexTree;
use super::item::{Item, Keyed, Measure, Size, Total};
use super::node::{Leaf, Node};

/// Sizes that are summed before one comparison. Measured at 10^5 extents: one by one an insert
/// takes 190 ns instead of 110; 4 and 16 are like 8.
const SKIP_BLOCK: usize = 8;

/// Walks down to one position of a leaf. A position on the border of two children belongs to the
/// right one, so only the last leaf is ever entered behind its last item.
pub(super) trait Probe<T: Item> {
    /// About which of `count` children it will be, if they are about equal.
    fn guess_child(&self, count: usize) -> usize;
    /// The child to enter; what lies before it is subtracted from what is sought.
    fn pick_child(&mut self, totals: &[Total<T::Size>]) -> usize;
    /// The item to stop at; what lies before it is subtracted from what is sought.
    fn pick_item(&mut self, items: &[T]) -> usize;
}

/// Seeks the item at an index.
pub(super) struct ByIndex {
    pub(super) remaining: usize,
}

impl<T: Item> Probe<T> for ByIndex {
    /// None is guessed.
    #[inline]
    fn guess_child(&self, _: usize) -> usize {
        0
    }

    #[inline(always)] // A call for each level costs a seek a fiftieth.
    fn pick_child(&mut self, totals: &[Total<T::Size>]) -> usize {
        let mut remaining = self.remaining as u64;
        let position = skip(but_last(totals), |total| total.count as u64, &mut remaining);
        self.remaining = remaining as usize;
        position
    }

    #[inline]
    fn pick_item(&mut self, _: &[T]) -> usize {
        std::mem::take(&mut self.remaining)
    }
}

/// Seeks the item that holds an offset; `remaining` becomes the offset within the item.
pub(super) struct ByOffset<M> {
    pub(super) measure: M,
    pub(super) remaining: u64,
    /// The size of what is searched.
    pub(super) span: u64,
}

impl<T: Item, M: Measure<T::Size>> Probe<T> for ByOffset<M> {
    #[inline]
    fn guess_child(&self, count: usize) -> usize {
        (self.remaining as f64 / self.span as f64 * count as f64) as usize
    }

    #[inline]
    fn pick_child(&mut self, totals: &[Total<T::Size>]) -> usize {
        let position =
            skip(but_last(totals), |total| (self.measure)(&total.size), &mut self.remaining);
        self.span = totals.get(position).map_or(0, |total| (self.measure)(&total.size));
        position
    }

    #[inline]
    fn pick_item(&mut self, items: &[T]) -> usize {
        skip(items, |item| (self.measure)(&item.size()), &mut self.remaining)
    }
}

/// What does not lie before the last child lies in it.
#[inline]
fn but_last<S>(totals: &[Total<S>]) -> &[Total<S>] {
    totals.split_last().map_or(&[], |(_, others)| others)
}

/// How many of `all` lie before `remaining`, which is reduced by their sizes. Whole blocks first:
/// the sums within a block do not wait for each other, and one jump is guessed for all of it. In
/// the block where it ends nothing is guessed.
#[inline]
fn skip<E>(all: &[E], size_of: impl Fn(&E) -> u64, remaining: &mut u64) -> usize {
    let mut position = 0;
    for block in all.chunks_exact(SKIP_BLOCK) {
        let size = block.iter().map(&size_of).sum();
        if *remaining < size {
            break;
        }
        *remaining -= size;
        position += SKIP_BLOCK;
    }
    let (mut end, mut passed) = (0, 0);
    for element in all[position..].iter().take(SKIP_BLOCK) {
        end += size_of(element);
        let is_before = end <= *remaining;
        passed = if is_before { end } else { passed };
        position += usize::from(is_before);
    }
    *remaining -= passed;
    position
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// The item at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index >= self.len() {
            return None;
        }
        let mut probe = ByIndex { remaining: index };
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => {
                    node = inner.enter(Probe::<T>::pick_child(&mut probe, &inner.totals));
                }
                Node::Leaf(leaf) => return leaf.items.get(probe.remaining),
            }
        }
    }

    /// The item that holds `offset` in the dimension that `measure` reads: its index, the offset
    /// within it, and the item. Items of measure 0 hold nothing.
    #[must_use]
    pub fn find_by(&self, measure: impl Measure<T::Size>, offset: u64) -> Option<(usize, u64, &T)> {
        let span = measure(&self.total.size);
        let mut probe = ByOffset { measure, remaining: offset, span };
        let (leaf, position, index) = self.descend(&mut probe);
        leaf.items.get(position).map(|item| (index, probe.remaining, item))
    }

    /// The sum of the sizes of the items before `index` (all of them if it is behind the last).
    #[must_use]
    pub fn prefix_size(&self, index: usize) -> T::Size {
        let mut before = T::Size::default();
        let mut probe = ByIndex { remaining: index.min(self.len()) };
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => {
                    let position = Probe::<T>::pick_child(&mut probe, &inner.totals);
                    node = inner.enter(position);
                    before = before.add(Total::sum(&inner.totals[..position]).size);
                }
                Node::Leaf(leaf) => {
                    return before.add(Total::of(&leaf.items[..probe.remaining]).size);
                }
            }
        }
    }

    /// The leaf that `probe` ends in, the position in it, and the index in the tree.
    pub(super) fn descend(&self, probe: &mut impl Probe<T>) -> (&Leaf<T, LEAF>, usize, usize) {
        let mut index = 0;
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => {
                    inner.expect(probe.guess_child(inner.totals.len()));
                    let position = probe.pick_child(&inner.totals);
                    node = inner.enter(position);
                    index += count_of(&inner.totals[..position]);
                }
                Node::Leaf(leaf) => {
                    let position = probe.pick_item(&leaf.items);
                    return (leaf, position, index + position);
                }
            }
        }
    }
}

impl<T: Keyed, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// The last item whose key is at most `key`, and its index.
    #[must_use]
    pub fn find_key(&self, key: &[u8]) -> Option<(usize, &T)> {
        let mut index = 0;
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => {
                    let position = inner.guide.child_at_most(key)?;
                    index += count_of(&inner.totals[..position]);
                    node = &inner.children[position];
                }
                Node::Leaf(leaf) => {
                    let position = leaf.guide.item_at_most(&leaf.items, key)?;
                    return Some((index + position, &leaf.items[position]));
                }
            }
        }
    }

    /// As [`FlexTree::find_key`], without the index, which costs a sum at every level.
    #[must_use]
    pub fn get_key(&self, key: &[u8]) -> Option<&T> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => node = &inner.children[inner.guide.child_at_most(key)?],
                Node::Leaf(leaf) => {
                    return Some(&leaf.items[leaf.guide.item_at_most(&leaf.items, key)?]);
                }
            }
        }
    }
}

#[inline]
fn count_of<S>(totals: &[Total<S>]) -> usize {
    totals.iter().map(|total| total.count).sum()
}
