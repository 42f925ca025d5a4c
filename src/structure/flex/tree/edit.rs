//! Edits of one place: down one path, in place where nobody shares it, and up again with the
//! change of the sums, new siblings of split nodes, and mending of nodes that hold too little.

use std::ops::Range;
use std::sync::Arc;

use super::FlexTree;
use super::item::{Guide, Item, Measure, Total};
use super::node::{Children, Grown, Inner, Leaf, Node};
use super::search::{ByIndex, ByOffset, Probe};

/// What an edit did to the items of one leaf: `added.count` items are where `removed` was.
struct LeafEdit<S> {
    range: Range<usize>,
    removed: Total<S>,
    added: Total<S>,
}

/// What an edit did below a node.
struct Edited<T: Item, const LEAF: usize, const FAN: usize> {
    removed: Total<T::Size>,
    added: Total<T::Size>,
    /// Nodes that now follow this one.
    siblings: Children<T, LEAF, FAN>,
}

impl<T: Item, const LEAF: usize, const FAN: usize> FlexTree<T, LEAF, FAN> {
    /// Puts `item` before the one at `index`, or at the end.
    ///
    /// # Panics
    /// When `index` is beyond the end.
    pub fn insert(&mut self, index: usize, item: T) {
        assert!(index <= self.len(), "index {index} is beyond the end at {}", self.len());
        self.edit(ByIndex { remaining: index }, |items, position, _| {
            let added = Total { count: 1, size: item.size() };
            items.insert(position, item);
            LeafEdit { range: position..position, removed: Total::default(), added }
        });
    }

    /// Takes out the item at `index`.
    ///
    /// # Panics
    /// When there is no item at `index`.
    pub fn remove(&mut self, index: usize) -> T {
        assert!(index < self.len(), "index {index} is not before the end at {}", self.len());
        let mut taken = None;
        self.edit(ByIndex { remaining: index }, |items, position, _| {
            let item = items.remove(position);
            let removed = Total { count: 1, size: item.size() };
            taken = Some(item);
            LeafEdit { range: position..position + 1, removed, added: Total::default() }
        });
        taken.expect("the edit of the one leaf takes the item")
    }

    /// Puts `item` in the place of the one at `index`, and returns that.
    ///
    /// # Panics
    /// When there is no item at `index`.
    pub fn replace(&mut self, index: usize, item: T) -> T {
        self.update(index, |old| std::mem::replace(old, item))
    }

    /// Edits the item at `index` in place. If `change` panics, the tree is unusable.
    ///
    /// # Panics
    /// When there is no item at `index`.
    pub fn update<R>(&mut self, index: usize, change: impl FnOnce(&mut T) -> R) -> R {
        assert!(index < self.len(), "index {index} is not before the end at {}", self.len());
        let mut result = None;
        self.edit(ByIndex { remaining: index }, |items, position, _| {
            let removed = Total { count: 1, size: items[position].size() };
            result = Some(change(&mut items[position]));
            let added = Total { count: 1, size: items[position].size() };
            LeafEdit { range: position..position + 1, removed, added }
        });
        result.expect("the edit of the one leaf changes the item")
    }

    /// Edits around an offset, in one descent. `plan` sees the items of one leaf, the position
    /// among them of the item that holds `offset` (behind the last, if `offset` is the end of the
    /// tree), and the offset within that item. It answers with a range of these items and what
    /// takes their place; or with `None`, when what it must know is in another leaf: then nothing
    /// changes, the result is `false`, and the caller goes the longer way.
    ///
    /// # Panics
    /// When `offset` is beyond the end of the tree.
    pub fn edit_around<R: IntoIterator<Item = T>>(
        &mut self,
        measure: impl Measure<T::Size>,
        offset: u64,
        plan: impl FnOnce(&[T], usize, u64) -> Option<(Range<usize>, R)>,
    ) -> bool {
        assert!(offset <= measure(&self.total.size), "offset {offset} is beyond the end");
        let mut done = false;
        self.edit(
            ByOffset { span: measure(&self.total.size), measure, remaining: offset },
            |items, position, probe| {
                let Some((range, fresh)) = plan(items, position, probe.remaining) else {
                    let none = Total::default();
                    return LeafEdit { range: position..position, removed: none, added: none };
                };
                done = true;
                let removed = Total::of(&items[range.clone()]);
                let len = items.len();
                items.splice(range.clone(), fresh);
                let added_count = items.len() + range.len() - len;
                let added = Total::of(&items[range.start..range.start + added_count]);
                LeafEdit { range, removed, added }
            },
        );
        done
    }

    fn edit<P: Probe<T>>(
        &mut self,
        probe: P,
        change: impl FnOnce(&mut Vec<T>, usize, &P) -> LeafEdit<T::Size>,
    ) {
        let edited = edit_node(&mut self.root, probe, change);
        self.total = self.total.sub(edited.removed).add(edited.added);
        if !edited.siblings.is_empty() {
            self.raise_root(edited.siblings);
        } else if self.height > 0 && self.root.fill() < 2 {
            self.lower_root();
        }
    }
}

fn edit_node<T: Item, P: Probe<T>, const LEAF: usize, const FAN: usize>(
    node: &mut Node<T, LEAF, FAN>,
    mut probe: P,
    change: impl FnOnce(&mut Vec<T>, usize, &P) -> LeafEdit<T::Size>,
) -> Edited<T, LEAF, FAN> {
    match node {
        Node::Leaf(leaf) => edit_leaf(Arc::make_mut(leaf), probe, change),
        Node::Inner(inner) => {
            let inner = Arc::make_mut(inner);
            inner.memo.forget();
            inner.expect(probe.guess_child(inner.totals.len()));
            let position = probe.pick_child(&inner.totals);
            let edited = edit_node(inner.enter_mut(position), probe, change);
            inner.note_moved(position);
            absorb(inner, position, edited)
        }
    }
}

fn edit_leaf<T: Item, P: Probe<T>, const LEAF: usize, const FAN: usize>(
    leaf: &mut Leaf<T, LEAF>,
    mut probe: P,
    change: impl FnOnce(&mut Vec<T>, usize, &P) -> LeafEdit<T::Size>,
) -> Edited<T, LEAF, FAN> {
    leaf.memo.forget();
    let position = probe.pick_item(&leaf.items);
    let len = leaf.items.len();
    leaf.make_room();
    let LeafEdit { range, removed, added } = change(&mut leaf.items, position, &probe);
    let grown = if range == (len..len) { Grown::AtEnd } else { Grown::Inside };
    leaf.guide.leaf_spliced(&leaf.items, range, added.count);
    Edited { removed, added, siblings: leaf.split_overflow(grown) }
}

/// Takes what happened below the child at `position` into its parent.
fn absorb<T: Item, const LEAF: usize, const FAN: usize>(
    inner: &mut Inner<T, LEAF, FAN>,
    position: usize,
    edited: Edited<T, LEAF, FAN>,
) -> Edited<T, LEAF, FAN> {
    let Edited { removed, added, siblings } = edited;
    let grown = if position + 1 == inner.children.len() { Grown::AtEnd } else { Grown::Inside };
    inner.guide.lead_changed(position, inner.children[position].lead());
    if siblings.is_empty() {
        inner.totals[position] = inner.totals[position].sub(removed).add(added);
        inner.mend_child(position);
    } else {
        inner.totals[position] = inner.children[position].total();
        inner.insert_after(position, siblings);
    }
    Edited { removed, added, siblings: inner.split_overflow(grown) }
}
