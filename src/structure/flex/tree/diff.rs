//! What differs between two versions, found without looking into the subtrees they share.
//!
//! Level by level, from the top: nodes that both have, in the same order, cut the two sequences
//! into stretches that differ; only their nodes are opened. At the items the caller's comparison
//! trims what is equal. The cost is the nodes that are not shared.
//!
//! Everything outside the reported ranges is the same in both, in the same order. The reverse does
//! not hold: of shared nodes that have changed places some are reported.

use std::collections::HashMap;
use std::ops::Range;

use super::FlexTree;
use super::item::Item;
use super::node::Node;

/// How far apart, both sides summed, equal items behind a difference are looked for. A flush
/// replaces items by one or two; what moves further is reported as one range.
const MATCH_DISTANCE_MAX: usize = 8;

/// The items at `old` in one version are replaced by those at `new` in the other. One of the two
/// may be empty, not both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Indices in the version that was asked.
    pub old: Range<usize>,
    /// Indices in the other version.
    pub new: Range<usize>,
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// The ranges in which `newer` differs from this version, ascending and apart. `is_same` says
    /// whether two items are the same; items of shared nodes are not compared.
    pub fn diff_by(&self, newer: &Self, is_same: impl Fn(&T, &T) -> bool) -> Vec<Difference> {
        let mut old = Stretch::over(self);
        let mut new = Stretch::over(newer);
        for _ in newer.height..self.height {
            old = old.open();
        }
        for _ in self.height..newer.height {
            new = new.open();
        }
        let mut differences = Vec::new();
        compare(&old, &new, self.height.min(newer.height), &mut |old, new| {
            compare_items(old, new, &is_same, &mut differences);
        });
        differences
    }

    /// As [`FlexTree::diff_by`], with items that know when they are equal.
    pub fn diff(&self, newer: &Self) -> Vec<Difference>
    where
        T: PartialEq,
    {
        self.diff_by(newer, T::eq)
    }
}

/// Neighbouring nodes of one level of one version.
struct Stretch<'a, T: Item, const LEAF: usize, const FAN: usize> {
    /// Each with the index of its first item.
    nodes: Vec<(usize, &'a Node<T, LEAF, FAN>)>,
    /// The indices of all their items.
    indices: Range<usize>,
}

impl<'a, T: Item, const LEAF: usize, const FAN: usize> Stretch<'a, T, LEAF, FAN> {
    fn over(tree: &'a FlexTree<T, LEAF, FAN>) -> Self {
        Stretch { nodes: vec![(0, &tree.root)], indices: 0..tree.len() }
    }

    /// The nodes one level down.
    fn open(&self) -> Self {
        let mut nodes = Vec::new();
        for &(mut start, node) in &self.nodes {
            if let Node::Inner(inner) = node {
                for (child, total) in inner.children.iter().zip(&inner.totals) {
                    nodes.push((start, child));
                    start += total.count;
                }
            }
        }
        Stretch { nodes, indices: self.indices.clone() }
    }

    fn part(&self, positions: Range<usize>) -> Self {
        let start_of =
            |position| self.nodes.get(position).map_or(self.indices.end, |&(start, _)| start);
        let indices = start_of(positions.start)..start_of(positions.end);
        Stretch { nodes: self.nodes[positions].to_vec(), indices }
    }

    fn items(&self) -> Vec<&'a T> {
        let leaves = self.nodes.iter().map(|&(_, node)| match node {
            Node::Leaf(leaf) => leaf.items.as_slice(),
            Node::Inner(_) => unreachable!("N1: stretches are opened down to the leaves"),
        });
        leaves.flatten().collect()
    }
}

/// Finds the nodes that both stretches have, and goes on below those between them; calls `visit`
/// with leaves. Recursion is bounded by the height.
fn compare<'a, T: Item, const LEAF: usize, const FAN: usize>(
    old: &Stretch<'a, T, LEAF, FAN>,
    new: &Stretch<'a, T, LEAF, FAN>,
    height: usize,
    visit: &mut impl FnMut(&Stretch<'a, T, LEAF, FAN>, &Stretch<'a, T, LEAF, FAN>),
) {
    let mut descend = |old_part: Range<usize>, new_part: Range<usize>| {
        if old_part.is_empty() && new_part.is_empty() {
            return;
        }
        let (old, new) = (old.part(old_part), new.part(new_part));
        // A stretch against nothing needs no closer look, only its indices.
        if height == 0 || old.nodes.is_empty() || new.nodes.is_empty() {
            visit(&old, &new);
        } else {
            compare(&old.open(), &new.open(), height - 1, visit);
        }
    };
    let by_address: HashMap<*const (), usize> =
        old.nodes.iter().enumerate().map(|(at, (_, node))| (node.address(), at)).collect();
    let (mut old_done, mut new_done) = (0, 0);
    for (new_at, (_, node)) in new.nodes.iter().enumerate() {
        if let Some(&old_at) = by_address.get(&node.address())
            && old_at >= old_done
        {
            descend(old_done..old_at, new_done..new_at);
            (old_done, new_done) = (old_at + 1, new_at + 1);
        }
    }
    descend(old_done..old.nodes.len(), new_done..new.nodes.len());
}

/// Reports what differs between the items of two stretches, without what is equal at their ends
/// and, as far as it is found near by, between.
fn compare_items<T: Item, const LEAF: usize, const FAN: usize>(
    old: &Stretch<'_, T, LEAF, FAN>,
    new: &Stretch<'_, T, LEAF, FAN>,
    is_same: &impl Fn(&T, &T) -> bool,
    differences: &mut Vec<Difference>,
) {
    let mut report = |old: Range<usize>, new: Range<usize>| {
        if old.is_empty() && new.is_empty() {
            return;
        }
        match differences.last_mut() {
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                last.old.end = old.end;
                last.new.end = new.end;
            }
            _ => differences.push(Difference { old, new }),
        }
    };
    if old.nodes.is_empty() || new.nodes.is_empty() {
        return report(old.indices.clone(), new.indices.clone());
    }
    let (old_items, new_items) = (old.items(), new.items());
    let head = old_items.iter().zip(&new_items).take_while(|(a, b)| is_same(a, b)).count();
    let behind = old_items[head..].iter().rev().zip(new_items[head..].iter().rev());
    let tail = behind.take_while(|(a, b)| is_same(a, b)).count();
    let (old_end, new_end) = (old_items.len() - tail, new_items.len() - tail);
    let (mut a, mut b) = (head, head);
    while a < old_end || b < new_end {
        let (old_len, new_len) =
            next_match(&old_items[a..old_end], &new_items[b..new_end], is_same);
        let (old_at, new_at) = (old.indices.start + a, new.indices.start + b);
        report(old_at..old_at + old_len, new_at..new_at + new_len);
        (a, b) = (a + old_len, b + new_len);
        let rest = old_items[a..old_end].iter().zip(&new_items[b..new_end]);
        let same = rest.take_while(|(one, other)| is_same(one, other)).count();
        (a, b) = (a + same, b + same);
    }
}

/// How many items of either side lie before the nearest two that are the same; all that are looked
/// at if there are none.
fn next_match<T>(old: &[&T], new: &[&T], is_same: &impl Fn(&T, &T) -> bool) -> (usize, usize) {
    if old.is_empty() || new.is_empty() {
        return (old.len(), new.len());
    }
    for distance in 0..MATCH_DISTANCE_MAX {
        for (skipped, item) in old.iter().take(distance + 1).enumerate() {
            let by = distance - skipped;
            if by < new.len() && is_same(item, new[by]) {
                return (skipped, by);
            }
        }
    }
    (old.len().min(MATCH_DISTANCE_MAX), new.len().min(MATCH_DISTANCE_MAX))
}
