//! Nodes, and the two things that keep a tree balanced: grouping many into nodes of a good fill,
//! and mending neighbours of which one has too little.
//!
//! Invariants of a whole tree (`check` verifies them)
//! - N1  All leaves are equally deep.
//! - N2  A leaf holds at most `LEAF` items, an inner node at most `FAN` children; except for the
//!   root at least `fill_min` of that; an inner root has at least 2 children.
//! - N3  `totals[i]` is the sum over the items below `children[i]`.
//! - N4  The guide fits the items or the children's leads.
//!
//! While a tree is being rebuilt a list of nodes of one level may hold *frail* ones: with too
//! little in them and, if it is a single child, that child frail too. A frail node never has two
//! children of which one is frail. [`mend`] makes every node of a list of two or more sound.

use std::ops::Range;
use std::sync::Arc;

use super::fold::Memo;
use super::item::{Guide, Item, Total};
use crate::base::{Slice, prefetch};

/// Items that a leaf has room for beyond its capacity while an edit is under way: the usual edit
/// turns one item into three.
const LEAF_SLACK: usize = 2;
/// The share of its capacity that a node must hold, as a divisor.
const FILL_MIN_DIVISOR: usize = 4;
/// The smallest capacity: 5 items then make nodes of 2 and 3, neither with too little.
pub(super) const CAPACITY_MIN: usize = 4;

/// The least that a node of this capacity holds, unless it is the root.
pub(super) const fn fill_min(capacity: usize) -> usize {
    if capacity / FILL_MIN_DIVISOR < 2 { 2 } else { capacity / FILL_MIN_DIVISOR }
}

/// What a bulk build puts into a node: about 90 %, so that the next edits find room.
const fn fill_bulk(capacity: usize) -> usize {
    capacity - capacity / 10
}

#[derive(Clone)]
pub(super) enum Node<T: Item, const LEAF: usize, const FAN: usize> {
    Leaf(Arc<Leaf<T, LEAF>>),
    Inner(Arc<Inner<T, LEAF, FAN>>),
}

pub(super) struct Leaf<T: Item, const LEAF: usize> {
    pub(super) items: Vec<T>,
    pub(super) guide: T::Guide,
    pub(super) memo: Memo,
}

pub(super) struct Inner<T: Item, const LEAF: usize, const FAN: usize> {
    pub(super) totals: Vec<Total<T::Size>>,
    pub(super) children: Vec<Node<T, LEAF, FAN>>,
    /// Of each child.
    hints: Vec<Hint>,
    pub(super) guide: T::Guide,
    pub(super) memo: Memo,
}

/// Where the items or totals of a node lie, which a search goes through: so they can be fetched
/// while the node itself is, in which it says where they are. It may be out of date, and is useless
/// then. At 10^7 extents both are in memory only, one waiting for the other.
///
/// An address, and in its lowest bits how many lines are fetched from there.
#[derive(Clone, Copy)]
struct Hint(usize);

impl Hint {
    const LINE_SIZE: usize = 64;
    /// Lines that are fetched, at most. It is one less than what allocations are aligned to.
    const LINES_MAX: usize = 15;

    #[inline]
    fn of<T: Item, const LEAF: usize, const FAN: usize>(node: &Node<T, LEAF, FAN>) -> Hint {
        match node {
            Node::Leaf(leaf) => Hint::of_slice(&leaf.items),
            Node::Inner(inner) => Hint::of_slice(&inner.totals),
        }
    }

    #[inline]
    fn of_slice<E>(elements: &[E]) -> Hint {
        let lines = size_of_val(elements).div_ceil(Hint::LINE_SIZE).min(Hint::LINES_MAX);
        Hint(elements.as_ptr().addr() & !Hint::LINES_MAX | lines)
    }

    #[inline]
    fn follow(self) {
        let start = self.0 & !Hint::LINES_MAX;
        for line in 0..self.0 & Hint::LINES_MAX {
            let address = start.wrapping_add(line * Hint::LINE_SIZE);
            prefetch(std::ptr::without_provenance(address));
        }
    }
}

/// By how much a guessed position is usually wrong, at most.
const GUESS_ERROR: usize = 2;

/// A node on its way into a parent.
#[derive(Clone)]
pub(super) struct Child<T: Item, const LEAF: usize, const FAN: usize> {
    pub(super) node: Node<T, LEAF, FAN>,
    pub(super) total: Total<T::Size>,
}

/// Nodes of one level, in order.
pub(super) type Children<T, const LEAF: usize, const FAN: usize> = Vec<Child<T, LEAF, FAN>>;

impl<T: Item, const LEAF: usize> Clone for Leaf<T, LEAF> {
    /// A copy with room for edits: it is made because one is coming.
    fn clone(&self) -> Self {
        let mut items = Vec::with_capacity(LEAF + LEAF_SLACK);
        items.extend_from_slice(&self.items);
        Leaf { items, guide: self.guide.clone(), memo: Memo::default() }
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Clone for Inner<T, LEAF, FAN> {
    fn clone(&self) -> Self {
        let mut totals = Vec::with_capacity(FAN + 1);
        totals.extend_from_slice(&self.totals);
        let mut children = Vec::with_capacity(FAN + 1);
        children.extend_from_slice(&self.children);
        let mut hints = Vec::with_capacity(FAN + 1);
        hints.extend_from_slice(&self.hints);
        Inner { totals, children, hints, guide: self.guide.clone(), memo: Memo::default() }
    }
}

impl<T: Item, const LEAF: usize> Leaf<T, LEAF> {
    pub(super) fn of(items: Vec<T>) -> Self {
        let guide = T::Guide::of_leaf(&items);
        Leaf { items, guide, memo: Memo::default() }
    }

    /// Lets the usual edit fit without growing: to double what a bulk build packed would waste.
    pub(super) fn make_room(&mut self) {
        if self.items.capacity() < self.items.len() + LEAF_SLACK {
            let room = (LEAF + LEAF_SLACK).saturating_sub(self.items.len());
            self.items.reserve_exact(room);
        }
    }

    /// Keeps the items before `position`; a new leaf gets the rest.
    fn split_off(&mut self, position: usize) -> Self {
        let mut rest = Vec::with_capacity(LEAF + LEAF_SLACK);
        rest.extend(self.items.drain(position..));
        self.items.shrink_to(LEAF + LEAF_SLACK);
        self.guide = T::Guide::of_leaf(&self.items);
        Leaf::of(rest)
    }

    /// Makes the leaf fit its capacity; the leaves that then follow it.
    pub(super) fn split_overflow<const FAN: usize>(
        &mut self,
        grown: Grown,
    ) -> Children<T, LEAF, FAN> {
        let len = self.items.len();
        if len <= LEAF {
            return Vec::new();
        }
        if len <= LEAF + fill_min(LEAF) {
            return vec![Child::leaf(self.split_off(split_position(len, LEAF, grown)))];
        }
        let mut leaves = group_items(std::mem::take(&mut self.items)).into_iter();
        if let Some(Child { node: Node::Leaf(first), .. }) = leaves.next() {
            *self = Arc::unwrap_or_clone(first);
        }
        leaves.collect()
    }
}

/// Where a node was when it grew beyond its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grown {
    Inside,
    /// At its end, as ascending loads do: the next will come there too.
    AtEnd,
}

/// Where to split `len` that are a few too many. Ascending loads leave nodes three quarters full.
fn split_position(len: usize, capacity: usize, grown: Grown) -> usize {
    match grown {
        Grown::Inside => len / 2,
        Grown::AtEnd => len - fill_min(capacity),
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Inner<T, LEAF, FAN> {
    pub(super) fn of(children: impl IntoIterator<Item = Child<T, LEAF, FAN>>) -> Self {
        let mut totals = Vec::with_capacity(FAN + 1);
        let mut nodes = Vec::with_capacity(FAN + 1);
        let mut hints = Vec::with_capacity(FAN + 1);
        for child in children {
            totals.push(child.total);
            hints.push(Hint::of(&child.node));
            nodes.push(child.node);
        }
        let guide = T::Guide::of_inner(nodes.iter().map(Node::kept_lead).collect());
        Inner { totals, children: nodes, hints, guide, memo: Memo::default() }
    }

    /// A child at about `position` will be entered: what is known of it is fetched while the search
    /// goes through the totals.
    #[inline]
    pub(super) fn expect(&self, position: usize) {
        let hint = self.hints.as_ptr().wrapping_add(position);
        let child = self.children.as_ptr().wrapping_add(position);
        prefetch(hint.wrapping_sub(GUESS_ERROR).cast());
        prefetch(hint.wrapping_add(GUESS_ERROR).cast());
        prefetch(child.wrapping_sub(GUESS_ERROR).cast());
        prefetch(child.cast());
        prefetch(child.wrapping_add(GUESS_ERROR).cast());
    }

    /// The child at `position`, which is about to be searched.
    #[inline]
    pub(super) fn enter(&self, position: usize) -> &Node<T, LEAF, FAN> {
        self.hints[position].follow();
        &self.children[position]
    }

    /// As [`Inner::enter`], to edit it.
    #[inline]
    pub(super) fn enter_mut(&mut self, position: usize) -> &mut Node<T, LEAF, FAN> {
        self.hints[position].follow();
        &mut self.children[position]
    }

    /// The child at `position` may have moved what it holds.
    #[inline]
    pub(super) fn note_moved(&mut self, position: usize) {
        self.hints[position] = Hint::of(&self.children[position]);
    }

    pub(super) fn into_children(self) -> impl ExactSizeIterator<Item = Child<T, LEAF, FAN>> {
        let totals = self.totals.into_iter();
        totals.zip(self.children).map(|(total, node)| Child { node, total })
    }

    /// Replaces the children at `range`.
    fn splice(&mut self, range: Range<usize>, fresh: Children<T, LEAF, FAN>) {
        let leads = fresh.iter().map(|child| child.node.kept_lead()).collect();
        self.guide.inner_spliced(range.clone(), leads);
        self.totals.splice(range.clone(), fresh.iter().map(|child| child.total));
        self.hints.splice(range.clone(), fresh.iter().map(|child| Hint::of(&child.node)));
        self.children.splice(range, fresh.into_iter().map(|child| child.node));
    }

    /// `fresh` nodes now follow the child at `position`, whose total has been set.
    pub(super) fn insert_after(&mut self, position: usize, fresh: Children<T, LEAF, FAN>) {
        self.splice(position + 1..position + 1, fresh);
    }

    /// Takes out the children at `range`.
    fn take(&mut self, range: Range<usize>) -> Children<T, LEAF, FAN> {
        self.guide.inner_spliced(range.clone(), Vec::new());
        self.hints.drain(range.clone());
        let totals = self.totals.drain(range.clone());
        totals.zip(self.children.drain(range)).map(|(total, node)| Child { node, total }).collect()
    }

    /// Mends the child at `position` with a neighbour, if it holds too little and has one.
    pub(super) fn mend_child(&mut self, position: usize) {
        if self.children.len() < 2 || !self.children[position].has_too_little() {
            return;
        }
        let first = position.saturating_sub(1);
        let pair = self.take(first..first + 2);
        self.splice(first..first, mend(pair));
    }

    /// Makes the node fit its capacity; the nodes that then follow it.
    pub(super) fn split_overflow(&mut self, grown: Grown) -> Children<T, LEAF, FAN> {
        let len = self.children.len();
        if len <= FAN {
            return Vec::new();
        }
        if len <= FAN + fill_min(FAN) {
            let rest = self.take(split_position(len, FAN, grown)..len);
            return vec![Child::inner(Inner::of(rest))];
        }
        let all = self.take(0..len);
        let mut nodes = group_children(all).into_iter();
        if let Some(Child { node: Node::Inner(first), .. }) = nodes.next() {
            *self = Arc::unwrap_or_clone(first);
        }
        nodes.collect()
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Node<T, LEAF, FAN> {
    pub(super) fn empty() -> Self {
        Node::Leaf(Arc::new(Leaf::of(Vec::new())))
    }

    /// The key of the first item below; empty in trees without keys.
    #[inline]
    pub(super) fn lead(&self) -> &[u8] {
        match self {
            Node::Leaf(leaf) => leaf.items.first().map_or(&[], T::Guide::key_of),
            Node::Inner(inner) => inner.guide.lead_of_inner(),
        }
    }

    fn kept_lead(&self) -> Slice {
        T::Guide::keep(self.lead())
    }

    /// Items of a leaf, children of an inner node.
    #[inline]
    pub(super) fn fill(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.items.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    #[inline]
    pub(super) fn has_too_little(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.items.len() < fill_min(LEAF),
            Node::Inner(inner) => inner.children.len() < fill_min(FAN),
        }
    }

    pub(super) fn total(&self) -> Total<T::Size> {
        match self {
            Node::Leaf(leaf) => Total::of(&leaf.items),
            Node::Inner(inner) => Total::sum(&inner.totals),
        }
    }

    /// Where the node is in memory: nodes at one address hold the same.
    pub(super) fn address(&self) -> *const () {
        match self {
            Node::Leaf(leaf) => Arc::as_ptr(leaf).cast(),
            Node::Inner(inner) => Arc::as_ptr(inner).cast(),
        }
    }
}

impl<T: Item, const LEAF: usize, const FAN: usize> Child<T, LEAF, FAN> {
    pub(super) fn leaf(leaf: Leaf<T, LEAF>) -> Self {
        let total = Total::of(&leaf.items);
        Child { node: Node::Leaf(Arc::new(leaf)), total }
    }

    pub(super) fn inner(inner: Inner<T, LEAF, FAN>) -> Self {
        let total = Total::sum(&inner.totals);
        Child { node: Node::Inner(Arc::new(inner)), total }
    }
}

/// The sizes of groups into which `len` are spread evenly: one if they fit one node, two if they
/// fit two, else as many as a bulk build makes.
fn group_sizes(len: usize, capacity: usize) -> impl Iterator<Item = usize> {
    let groups = match len {
        0 => 0,
        _ if len <= 2 * capacity => len.div_ceil(capacity),
        _ => len.div_ceil(fill_bulk(capacity)),
    };
    (0..groups).map(move |group| (group + 1) * len / groups - group * len / groups)
}

/// Leaves of these items: none for none, one (perhaps with too little) if they fit.
pub(super) fn group_items<T: Item, const LEAF: usize, const FAN: usize>(
    items: Vec<T>,
) -> Children<T, LEAF, FAN> {
    if (1..=LEAF).contains(&items.len()) && items.capacity() <= LEAF + LEAF_SLACK {
        return vec![Child::leaf(Leaf::of(items))];
    }
    let mut sizes = group_sizes(items.len(), LEAF);
    let mut items = items.into_iter();
    let mut leaves = Vec::with_capacity(sizes.size_hint().0);
    for size in sizes.by_ref() {
        // Exactly as large: most leaves of a bulk build are never edited one by one.
        let mut group = Vec::with_capacity(size);
        group.extend(items.by_ref().take(size));
        leaves.push(Child::leaf(Leaf::of(group)));
    }
    leaves
}

/// Inner nodes over these children: none for none, one (perhaps with too little) if they fit.
pub(super) fn group_children<T: Item, const LEAF: usize, const FAN: usize>(
    children: Children<T, LEAF, FAN>,
) -> Children<T, LEAF, FAN> {
    let sizes = group_sizes(children.len(), FAN);
    let mut children = children.into_iter();
    sizes.map(|size| Child::inner(Inner::of(children.by_ref().take(size)))).collect()
}

/// Joins frail nodes of a list with their neighbours, until all are sound or one is left. Bounded
/// by the depth: what two inner nodes hold is mended one level down.
pub(super) fn mend<T: Item, const LEAF: usize, const FAN: usize>(
    nodes: Children<T, LEAF, FAN>,
) -> Children<T, LEAF, FAN> {
    if !nodes.iter().any(|child| child.node.has_too_little()) {
        return nodes;
    }
    let mut sound: Children<T, LEAF, FAN> = Vec::with_capacity(nodes.len());
    for child in nodes {
        match sound.pop() {
            None => sound.push(child),
            Some(before) if before.node.has_too_little() || child.node.has_too_little() => {
                sound.extend(join_pair(before.node, child.node));
            }
            Some(before) => sound.extend([before, child]),
        }
    }
    sound
}

/// One or two nodes with all that two neighbours of one level hold.
fn join_pair<T: Item, const LEAF: usize, const FAN: usize>(
    left: Node<T, LEAF, FAN>,
    right: Node<T, LEAF, FAN>,
) -> Children<T, LEAF, FAN> {
    match (left, right) {
        (Node::Leaf(left), Node::Leaf(right)) => {
            let mut items = Arc::unwrap_or_clone(left).items;
            items.append(&mut Arc::unwrap_or_clone(right).items);
            group_items(items)
        }
        (Node::Inner(left), Node::Inner(right)) => {
            let mut children: Children<T, LEAF, FAN> =
                Arc::unwrap_or_clone(left).into_children().collect();
            children.extend(Arc::unwrap_or_clone(right).into_children());
            group_children(mend(children))
        }
        _ => unreachable!("N1: neighbours are of one level"),
    }
}
