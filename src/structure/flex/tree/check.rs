//! Walks a whole tree and compares what its nodes say with what is there.

use super::FlexTree;
use super::item::{Guide, Item, Total};
use super::node::{Node, fill_min};

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// Verifies the sums in inner nodes, the fill and the depth of all nodes and, in a tree that
    /// is ordered by key, that keys ascend strictly and that all nodes can be searched. O(n).
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong, and where.
    pub fn check(&self) -> Result<(), String> {
        if self.root.fill() < 2 && self.height > 0 {
            return Err(format!("F2: the root of height {} has one child", self.height));
        }
        let mut last = None;
        let total = check_node(&self.root, self.height, 0, &mut last)?;
        if total != self.total {
            return Err(format!("F1: {total:?} in the tree, which says {:?}", self.total));
        }
        Ok(())
    }
}

/// What lies below the node, if it is right. `index` is that of its first item; `last` the
/// item before it, if any.
fn check_node<'a, T: Item, const LEAF: usize, const FAN: usize>(
    node: &'a Node<T, LEAF, FAN>,
    height: usize,
    index: usize,
    last: &mut Option<&'a T>,
) -> Result<Total<T::Size>, String> {
    let at = |what: String| format!("node of height {height} at index {index}: {what}");
    match node {
        Node::Leaf(leaf) => {
            if height != 0 {
                return Err(at("N1: a leaf".into()));
            }
            if leaf.items.len() > LEAF {
                return Err(at(format!("N2: {} items", leaf.items.len())));
            }
            leaf.guide.check_leaf(&leaf.items).map_err(|what| at(format!("N4: {what}")))?;
            if let (Some(before), Some(first)) = (*last, leaf.items.first())
                && !T::Guide::ascend(before, first)
            {
                return Err(at("the keys do not ascend from the leaf before".into()));
            }
            *last = leaf.items.last();
            Ok(Total::of(&leaf.items))
        }
        Node::Inner(inner) => {
            if height == 0 {
                return Err(at("N1: an inner node".into()));
            }
            let count = inner.children.len();
            if count > FAN || count < 2 || inner.totals.len() != count {
                return Err(at(format!("N2: {count} children, {} totals", inner.totals.len())));
            }
            let mut sum = Total::default();
            for (child, &total) in inner.children.iter().zip(&inner.totals) {
                if child.has_too_little() {
                    let least = if height == 1 { fill_min(LEAF) } else { fill_min(FAN) };
                    return Err(at(format!("N2: a child with {} of {least}", child.fill())));
                }
                let below = check_node(child, height - 1, index + sum.count, last)?;
                if below != total {
                    return Err(at(format!("N3: {below:?} below a child said to have {total:?}")));
                }
                sum = sum.add(total);
            }
            let leads: Vec<&[u8]> = inner.children.iter().map(Node::lead).collect();
            inner.guide.check_inner(&leads).map_err(|what| at(format!("N4: {what}")))?;
            Ok(sum)
        }
    }
}
