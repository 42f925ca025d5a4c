//! Tests of the tree against plain vectors, with the smallest nodes and with the real ones.

mod damage;
mod extents;
mod keys;
mod model;
mod timing;
mod versions;

use std::collections::HashSet;

use super::node::Node;
use super::{FlexTree, Item, KeyGuide, Keyed, NoGuide};
use crate::base::{Entropy, SeededEntropy, Slice};

/// Nodes so small that a hundred items make a deep tree.
type SmallTree<T> = FlexTree<T, 4, 4>;

/// An item of two dimensions, without a key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    name: u64,
    bytes: u64,
    entries: u64,
}

impl Item for Piece {
    type Size = (u64, u64);
    type Guide = NoGuide;

    fn size(&self) -> (u64, u64) {
        (self.bytes, self.entries)
    }
}

/// An item with a key.
#[derive(Clone, Debug, PartialEq)]
struct Anchor {
    key: Slice,
    bytes: u64,
}

impl Anchor {
    fn new(key: &[u8]) -> Anchor {
        Anchor { key: Slice::from(key), bytes: key.len() as u64 }
    }
}

impl Item for Anchor {
    type Size = u64;
    type Guide = KeyGuide;

    fn size(&self) -> u64 {
        self.bytes
    }
}

impl Keyed for Anchor {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Reproducible choices.
struct Dice(SeededEntropy);

impl Dice {
    fn new(seed: u64) -> Dice {
        println!("seed {seed}");
        Dice(SeededEntropy::new(seed))
    }

    fn below(&self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    fn piece(&self) -> Piece {
        let name = self.0.next_u64();
        // Items of size 0 exist: nothing is at an offset within them.
        Piece { name, bytes: name % 5 * 10, entries: name % 3 }
    }

    fn pieces(&self, count: usize) -> Vec<Piece> {
        (0..count).map(|_| self.piece()).collect()
    }

    /// A range within `0..=len`, mostly short.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let longest = if self.below(10) == 0 { len - start } else { (len - start).min(9) };
        start..start + self.below(longest + 1)
    }
}

fn assert_holds<T: Item + PartialEq + std::fmt::Debug, const LEAF: usize, const FAN: usize>(
    tree: &FlexTree<T, LEAF, FAN>,
    items: &[T],
) {
    tree.check().unwrap();
    assert_eq!(tree.len(), items.len());
    assert!(tree.iter().eq(items), "the tree holds {tree:?}\nnot {items:?}");
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    fn addresses(&self) -> HashSet<*const ()> {
        fn visit<T: Item, const LEAF: usize, const FAN: usize>(
            node: &Node<T, LEAF, FAN>,
            found: &mut HashSet<*const ()>,
        ) {
            found.insert(node.address());
            if let Node::Inner(inner) = node {
                inner.children.iter().for_each(|child| visit(child, found));
            }
        }
        let mut found = HashSet::new();
        visit(&self.root, &mut found);
        found
    }

    fn nodes_not_in(&self, other: &Self) -> usize {
        self.addresses().difference(&other.addresses()).count()
    }

    fn leaf_count(&self) -> usize {
        let mut nodes = vec![&self.root];
        while let Some(Node::Inner(_)) = nodes.first() {
            nodes = nodes
                .into_iter()
                .flat_map(|node| match node {
                    Node::Inner(inner) => inner.children.iter().collect(),
                    Node::Leaf(_) => Vec::new(),
                })
                .collect();
        }
        nodes.len()
    }
}
