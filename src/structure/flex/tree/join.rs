//! Building from items, cutting in two and joining: along one path each.

use std::sync::Arc;

use super::FlexTree;
use super::item::Item;
use super::node::{Child, Children, Leaf, Node, group_children, group_items, mend};

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// A tree of these items in this order (ascending, if it is to be searched by key), its nodes
    /// about 90 % full.
    #[must_use]
    pub fn from_sorted(items: impl IntoIterator<Item = T>) -> Self {
        let () = Self::CAPACITIES_HOLD;
        Self::over(group_items(items.into_iter().collect()), 0)
    }

    /// Keeps the items before `index` and returns a tree of the others: O(log n).
    ///
    /// # Panics
    /// When `index` is beyond the end.
    #[must_use]
    pub fn split_off(&mut self, index: usize) -> Self {
        assert!(index <= self.len(), "index {index} is beyond the end at {}", self.len());
        let FlexTree { root, height, .. } = std::mem::take(self);
        let (left, right) = split_node(root, index);
        *self = Self::over(left.into_iter().collect(), height);
        Self::over(right.into_iter().collect(), height)
    }

    /// Puts all items of `other` behind those of this tree: O(log n).
    pub fn append(&mut self, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        let FlexTree { root, total, height } = std::mem::take(self);
        let left = Child { node: root, total };
        let right = Child { node: other.root, total: other.total };
        let nodes = if height >= other.height {
            join_right(left, right, height - other.height)
        } else {
            join_left(left, right, other.height - height)
        };
        *self = Self::over(nodes, height.max(other.height));
    }
}

/// The node cut before its item `index`: what holds nothing is left out, both may be frail.
fn split_node<T: Item, const LEAF: usize, const FAN: usize>(
    node: Node<T, LEAF, FAN>,
    index: usize,
) -> (Option<Child<T, LEAF, FAN>>, Option<Child<T, LEAF, FAN>>) {
    match node {
        Node::Leaf(leaf) => {
            let mut items = Arc::unwrap_or_clone(leaf).items;
            let rest = items.split_off(index);
            let leaf_of = |items: Vec<T>| (!items.is_empty()).then(|| Child::leaf(Leaf::of(items)));
            (leaf_of(items), leaf_of(rest))
        }
        Node::Inner(inner) => {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let mut start = 0;
            for child in Arc::unwrap_or_clone(inner).into_children() {
                let end = start + child.total.count;
                if end <= index {
                    left.push(child);
                } else if start >= index {
                    right.push(child);
                } else {
                    let (before, behind) = split_node(child.node, index - start);
                    left.extend(before);
                    right.extend(behind);
                }
                start = end;
            }
            (group_children(mend(left)).pop(), group_children(mend(right)).pop())
        }
    }
}

/// `left`, which is `levels` higher, and `right` behind it: one or two nodes of `left`'s level.
fn join_right<T: Item, const LEAF: usize, const FAN: usize>(
    left: Child<T, LEAF, FAN>,
    right: Child<T, LEAF, FAN>,
    levels: usize,
) -> Children<T, LEAF, FAN> {
    if levels == 0 {
        return mend(vec![left, right]);
    }
    let mut children = children_of(left.node);
    let last = children.pop().expect("F2: an inner node has children");
    children.extend(join_right(last, right, levels - 1));
    group_children(children)
}

/// `right`, which is `levels` higher, and `left` before it: one or two nodes of `right`'s level.
fn join_left<T: Item, const LEAF: usize, const FAN: usize>(
    left: Child<T, LEAF, FAN>,
    right: Child<T, LEAF, FAN>,
    levels: usize,
) -> Children<T, LEAF, FAN> {
    if levels == 0 {
        return mend(vec![left, right]);
    }
    let mut behind = children_of(right.node).into_iter();
    let first = behind.next().expect("F2: an inner node has children");
    let mut children = join_left(left, first, levels - 1);
    children.extend(behind);
    group_children(children)
}

fn children_of<T: Item, const LEAF: usize, const FAN: usize>(
    node: Node<T, LEAF, FAN>,
) -> Children<T, LEAF, FAN> {
    match node {
        Node::Inner(inner) => Arc::unwrap_or_clone(inner).into_children().collect(),
        Node::Leaf(_) => unreachable!("N1: the higher of two trees has inner nodes there"),
    }
}
