//! `FlexTree`: a sequence of items as a copy-on-write B+-tree in memory whose inner nodes hold,
//! per child, the sum of the sizes below it.
//!
//! Inserting or removing a range anywhere shifts everything behind it by touching one path from
//! root to leaf: O(log n). The idea of keeping shifts per child instead of absolute positions is
//! from FlexTree (Chen et al., "Building an efficient key-value store in a flexible address
//! space", EuroSys 2022); here the sums themselves are kept, which needs no path to be corrected
//! and gives ranks and aggregates as well.
//!
//! An item is found by its index, by an offset in any dimension of the sizes, or, in a tree that
//! is ordered by key, by key. `Clone` is O(1) and is how versions are made: a node that only one
//! tree holds is edited in place, one that several share is copied, so old versions stay as they
//! are. Nothing here knows files, blocks or transactions, and nothing locks: a version that
//! nobody edits can be read from any thread.
//!
//! Invariants: N1 to N4 in `node.rs`, G1 to G3 in `key_guide.rs`, M1 in `fold.rs`, and
//! - F1  `total` is the sum over all items; `height` counts the inner levels.
//! - F2  A tree of height 0 is one leaf, perhaps empty; else the root has two children or more.
//!
//! What operations cost was measured in `tests/timing.rs`.

mod check;
mod cursor;
mod diff;
mod edit;
mod extent_map;
mod fold;
mod item;
mod join;
mod key_guide;
mod node;
mod rewrite;
mod search;

#[cfg(test)]
mod tests;

use std::fmt;

pub use cursor::{Cursor, Iter, OwnedCursor};
pub use diff::Difference;
pub use extent_map::{Extent, ExtentCursor, ExtentMap, ExtentTree, MapExtent};
pub use fold::{Fold, Memo};
pub use item::{Guide, Item, Keyed, Measure, NoGuide, Size, Total};
pub use key_guide::KeyGuide;

use node::{CAPACITY_MIN, Child, Children, Node, group_children};

/// Items in a leaf, at most. Measured: see `tests/timing.rs`.
pub const LEAF_CAPACITY: usize = 64;
/// Children of an inner node, at most.
pub const FAN_CAPACITY: usize = 64;
/// No tree is higher: an inner node has two children or more, and counts are 64 bits.
const HEIGHT_MAX: usize = 64;

/// A sequence of items that is found by index, by size or by key; see the module.
#[derive(Clone)]
pub struct FlexTree<T: Item, const LEAF: usize = LEAF_CAPACITY, const FAN: usize = FAN_CAPACITY> {
    root: Node<T, LEAF, FAN>,
    total: Total<T::Size>,
    height: usize,
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    const CAPACITIES_HOLD: () = assert!(LEAF >= CAPACITY_MIN && FAN >= CAPACITY_MIN);

    /// A tree without items.
    #[must_use]
    pub fn new() -> Self {
        let () = Self::CAPACITIES_HOLD;
        FlexTree { root: Node::empty(), total: Total::default(), height: 0 }
    }

    /// Items.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.total.count
    }

    /// Whether there is no item.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total.count == 0
    }

    /// The sum of all sizes.
    #[inline]
    #[must_use]
    pub fn size(&self) -> T::Size {
        self.total.size
    }

    /// Levels of inner nodes.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Whether both are one version in memory. A quick test: equal trees may also be apart.
    #[must_use]
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.root.address() == other.root.address()
    }

    /// The tree over nodes of one level, `height` inner levels above the leaves.
    fn over(mut nodes: Children<T, LEAF, FAN>, mut height: usize) -> Self {
        while nodes.len() > 1 {
            nodes = group_children(nodes);
            height += 1;
        }
        let Some(child) = nodes.pop() else {
            return Self::new();
        };
        let mut tree = FlexTree { root: child.node, total: child.total, height };
        tree.lower_root();
        tree
    }

    /// F2: a root with a single child gives way to it; one without anything below is a leaf.
    fn lower_root(&mut self) {
        if self.total.count == 0 {
            *self = Self::new();
        }
        while let Node::Inner(inner) = &self.root {
            if inner.children.len() > 1 {
                break;
            }
            let child = inner.children[0].clone();
            self.root = child;
            self.height -= 1;
        }
        assert!(self.height <= HEIGHT_MAX, "a tree is never higher than {HEIGHT_MAX}");
    }

    /// New nodes follow the root: one more level holds them.
    fn raise_root(&mut self, siblings: Children<T, LEAF, FAN>) {
        let root = std::mem::replace(&mut self.root, Node::empty());
        let total = root.total();
        let mut nodes = vec![Child { node: root, total }];
        nodes.extend(siblings);
        *self = Self::over(nodes, self.height);
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Default for FlexTree<T, LEAF, FAN> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Item + fmt::Debug, const LEAF: usize, const FAN: usize> fmt::Debug
    for FlexTree<T, LEAF, FAN>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> FromIterator<T> for FlexTree<T, LEAF, FAN> {
    /// See [`FlexTree::from_sorted`].
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::from_sorted(items)
    }
}
