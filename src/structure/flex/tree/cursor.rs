//! Walking a version: a cursor that borrows the tree, one that owns the version, and iterators.
//!
//! Both cursors are one [`Path`] from the root to a position in a leaf; they differ in how they
//! hold the nodes on it. A move within a leaf is O(1); into the next leaf it changes, on average,
//! one level of the path.

use std::iter::FusedIterator;
use std::ops::{Bound, Range, RangeBounds};

use super::FlexTree;
use super::item::{Item, Keyed};
use super::node::Node;
use super::search::{ByIndex, Probe};
use super::{FAN_CAPACITY, LEAF_CAPACITY};

/// How a path holds a node: by reference, or by a share of it.
trait Hold: Sized {
    /// The child at `position`, if this is an inner node.
    fn child(&self, position: usize) -> Option<Self>;
    /// The child below which the probe ends, if this is an inner node.
    fn pick_child(&self, probe: &mut ByIndex) -> usize;
    /// Items or children.
    fn fill(&self) -> usize;
}

impl<'a, T: Item, const LEAF: usize, const FAN: usize> Hold for &'a Node<T, LEAF, FAN> {
    #[inline]
    fn child(&self, position: usize) -> Option<&'a Node<T, LEAF, FAN>> {
        match self {
            Node::Inner(inner) => Some(&inner.children[position]),
            Node::Leaf(_) => None,
        }
    }
    fn pick_child(&self, probe: &mut ByIndex) -> usize {
        pick_child(self, probe)
    }
    #[inline]
    fn fill(&self) -> usize {
        Node::fill(self)
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Hold for Node<T, LEAF, FAN> {
    #[inline]
    fn child(&self, position: usize) -> Option<Node<T, LEAF, FAN>> {
        match self {
            Node::Inner(inner) => Some(inner.children[position].clone()),
            Node::Leaf(_) => None,
        }
    }
    fn pick_child(&self, probe: &mut ByIndex) -> usize {
        pick_child(self, probe)
    }
    #[inline]
    fn fill(&self) -> usize {
        Node::fill(self)
    }
}

fn pick_child<T: Item, const LEAF: usize, const FAN: usize>(
    node: &Node<T, LEAF, FAN>,
    probe: &mut ByIndex,
) -> usize {
    match node {
        Node::Inner(inner) => Probe::<T>::pick_child(probe, &inner.totals),
        Node::Leaf(_) => 0,
    }
}

/// A way from the root to a position in a leaf, perhaps behind the last item of the last leaf.
#[derive(Clone)]
struct Path<H> {
    /// The inner nodes from the root down, and the child of each that the path enters.
    above: Vec<(H, usize)>,
    leaf: H,
    /// In the leaf.
    position: usize,
    leaf_len: usize,
    /// In the tree.
    index: usize,
}

impl<H: Hold> Path<H> {
    fn to_index(root: H, height: usize, index: usize) -> Self {
        let mut probe = ByIndex { remaining: index };
        let above = Vec::with_capacity(height);
        let mut path = Path { above, leaf: root, position: 0, leaf_len: 0, index };
        path.descend(|node| node.pick_child(&mut probe));
        path.position = probe.remaining;
        path
    }

    /// From the node in `leaf` down to a leaf.
    #[inline]
    fn descend(&mut self, mut pick: impl FnMut(&H) -> usize) {
        loop {
            let position = pick(&self.leaf);
            let Some(child) = self.leaf.child(position) else {
                break;
            };
            self.above.push((std::mem::replace(&mut self.leaf, child), position));
        }
        self.leaf_len = self.leaf.fill();
    }

    /// One item on; from the last to behind it. Whether it is on an item then.
    #[inline]
    fn next(&mut self) -> bool {
        if self.position + 1 < self.leaf_len {
            self.position += 1;
            self.index += 1;
            return true;
        }
        self.next_leaf()
    }

    fn next_leaf(&mut self) -> bool {
        if self.position == self.leaf_len {
            return false; // Behind the last already, or the tree is empty.
        }
        self.index += 1;
        let right = self.above.iter().rposition(|(inner, at)| at + 1 < inner.fill());
        let Some(level) = right else {
            self.position = self.leaf_len;
            return false;
        };
        let next = self.above[level].1 + 1;
        self.turn(level, next);
        self.descend(|_| 0);
        self.position = 0;
        true
    }

    /// One item back. Whether there was one.
    #[inline]
    fn prev(&mut self) -> bool {
        if self.position > 0 {
            self.position -= 1;
            self.index -= 1;
            return true;
        }
        self.prev_leaf()
    }

    fn prev_leaf(&mut self) -> bool {
        let Some(level) = self.above.iter().rposition(|(_, at)| *at > 0) else {
            return false;
        };
        self.index -= 1;
        let before = self.above[level].1 - 1;
        self.turn(level, before);
        self.descend(|node| node.fill() - 1);
        self.position = self.leaf_len - 1;
        true
    }

    /// Lets the path enter another child of its inner node at `level`.
    fn turn(&mut self, level: usize, position: usize) {
        self.above.truncate(level + 1);
        let (inner, at) = &mut self.above[level];
        *at = position;
        self.leaf = inner.child(position).expect("the nodes above are inner nodes");
    }
}

#[inline]
fn item_at<T: Item, const LEAF: usize, const FAN: usize>(
    leaf: &Node<T, LEAF, FAN>,
    position: usize,
) -> Option<&T> {
    match leaf {
        Node::Leaf(leaf) => leaf.items.get(position),
        Node::Inner(_) => unreachable!("a path ends at a leaf"),
    }
}

/// A position in a tree that it borrows: on an item, or behind the last.
#[derive(Clone)]
pub struct Cursor<'a, T: Item, const LEAF: usize = LEAF_CAPACITY, const FAN: usize = FAN_CAPACITY> {
    tree: &'a FlexTree<T, LEAF, FAN>,
    path: Path<&'a Node<T, LEAF, FAN>>,
}

impl<'a, T: Item, const LEAF: usize, const FAN: usize> Cursor<'a, T, LEAF, FAN> {
    fn new(tree: &'a FlexTree<T, LEAF, FAN>) -> Self {
        Cursor { tree, path: Path::to_index(&tree.root, tree.height, 0) }
    }

    /// The index of the position; the number of items if it is behind the last.
    #[inline]
    #[must_use]
    pub fn index(&self) -> usize {
        self.path.index
    }

    /// The item at the position.
    #[inline]
    #[must_use]
    pub fn item(&self) -> Option<&'a T> {
        item_at(self.path.leaf, self.path.position)
    }

    /// Moves one item on, from the last behind it; the item then at the position.
    #[expect(clippy::should_implement_trait, reason = "a cursor also moves back and seeks")]
    #[inline]
    pub fn next(&mut self) -> Option<&'a T> {
        if self.path.next() { self.item() } else { None }
    }

    /// Moves one item back and returns that item; `None` without a move at the first.
    #[inline]
    pub fn prev(&mut self) -> Option<&'a T> {
        if self.path.prev() { self.item() } else { None }
    }

    /// Moves to the item at `index`, or behind the last if there is none; the item there.
    pub fn seek_index(&mut self, index: usize) -> Option<&'a T> {
        let index = index.min(self.tree.len());
        self.path = Path::to_index(&self.tree.root, self.tree.height, index);
        self.item()
    }
}

impl<'a, T: Keyed, const LEAF: usize, const FAN: usize> Cursor<'a, T, LEAF, FAN> {
    /// Moves to the last item whose key is at most `key` and returns it; if there is none, to the
    /// first item, and returns `None`.
    pub fn seek_key(&mut self, key: &[u8]) -> Option<&'a T> {
        let found = self.tree.find_key(key).map(|(index, _)| index);
        let item = self.seek_index(found.unwrap_or(0));
        found.and(item)
    }
}

/// A position in a version that it holds: on an item, or behind the last.
#[derive(Clone)]
pub struct OwnedCursor<T: Item, const LEAF: usize = LEAF_CAPACITY, const FAN: usize = FAN_CAPACITY>
{
    tree: FlexTree<T, LEAF, FAN>,
    path: Path<Node<T, LEAF, FAN>>,
}

impl<T: Item, const LEAF: usize, const FAN: usize> OwnedCursor<T, LEAF, FAN> {
    /// A cursor on the first item of `tree`.
    #[must_use]
    pub fn new(tree: FlexTree<T, LEAF, FAN>) -> Self {
        let path = Path::to_index(tree.root.clone(), tree.height, 0);
        OwnedCursor { tree, path }
    }

    /// The version that it walks.
    #[must_use]
    pub fn tree(&self) -> &FlexTree<T, LEAF, FAN> {
        &self.tree
    }

    /// The index of the position; the number of items if it is behind the last.
    #[inline]
    #[must_use]
    pub fn index(&self) -> usize {
        self.path.index
    }

    /// The item at the position.
    #[inline]
    #[must_use]
    pub fn item(&self) -> Option<&T> {
        item_at(&self.path.leaf, self.path.position)
    }

    /// Moves one item on, from the last behind it; the item then at the position.
    #[expect(clippy::should_implement_trait, reason = "a cursor also moves back and seeks")]
    #[inline]
    pub fn next(&mut self) -> Option<&T> {
        if self.path.next() { self.item() } else { None }
    }

    /// Moves one item back and returns that item; `None` without a move at the first.
    #[inline]
    pub fn prev(&mut self) -> Option<&T> {
        if self.path.prev() { self.item() } else { None }
    }

    /// Moves to the item at `index`, or behind the last if there is none; the item there.
    pub fn seek_index(&mut self, index: usize) -> Option<&T> {
        let index = index.min(self.tree.len());
        self.path = Path::to_index(self.tree.root.clone(), self.tree.height, index);
        self.item()
    }
}

impl<T: Keyed, const LEAF: usize, const FAN: usize> OwnedCursor<T, LEAF, FAN> {
    /// Moves to the last item whose key is at most `key` and returns it; if there is none, to the
    /// first item, and returns `None`.
    #[inline]
    pub fn seek_key(&mut self, key: &[u8]) -> Option<&T> {
        let found = self.tree.find_key(key).map(|(index, _)| index);
        let item = self.seek_index(found.unwrap_or(0));
        found.and(item)
    }
}

/// The items of a range of indices, from either end.
#[derive(Clone)]
pub struct Iter<'a, T: Item, const LEAF: usize = LEAF_CAPACITY, const FAN: usize = FAN_CAPACITY> {
    /// On the next item.
    front: Cursor<'a, T, LEAF, FAN>,
    /// Behind the last item that is left; made when the first is asked for.
    back: Option<Cursor<'a, T, LEAF, FAN>>,
    /// The indices that are left.
    left: Range<usize>,
}

impl<'a, T: Item, const LEAF: usize, const FAN: usize> Iterator for Iter<'a, T, LEAF, FAN> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        self.left.next()?;
        let item = self.front.item();
        self.front.next();
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }

    fn nth(&mut self, count: usize) -> Option<&'a T> {
        let skipped = self.left.nth(count);
        self.front.seek_index(skipped.unwrap_or(self.left.end));
        let item = skipped.and(self.front.item());
        self.front.next();
        item
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> DoubleEndedIterator for Iter<'_, T, LEAF, FAN> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.left.next_back()?;
        let tree = self.front.tree;
        let back = self.back.get_or_insert_with(|| {
            let path = Path::to_index(&tree.root, tree.height, index + 1);
            Cursor { tree, path }
        });
        back.prev()
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> ExactSizeIterator for Iter<'_, T, LEAF, FAN> {}
impl<T: Item, const LEAF: usize, const FAN: usize> FusedIterator for Iter<'_, T, LEAF, FAN> {}

impl<'a, T: Item, const LEAF: usize, const FAN: usize> IntoIterator for &'a FlexTree<T, LEAF, FAN> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T, LEAF, FAN>;

    fn into_iter(self) -> Iter<'a, T, LEAF, FAN> {
        self.iter()
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// A cursor on the first item.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_, T, LEAF, FAN> {
        Cursor::new(self)
    }

    /// All items.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T, LEAF, FAN> {
        self.range(..)
    }

    /// The items at these indices, as far as there are any.
    #[must_use]
    pub fn range(&self, indices: impl RangeBounds<usize>) -> Iter<'_, T, LEAF, FAN> {
        let start = match indices.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match indices.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => usize::MAX,
        };
        let end = end.min(self.len());
        let left = start.min(end)..end;
        let path = Path::to_index(&self.root, self.height, left.start);
        Iter { front: Cursor { tree: self, path }, back: None, left }
    }
}
