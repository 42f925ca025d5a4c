//! `check` finds planted damage.

use std::sync::Arc;

use super::{Anchor, FlexTree};
use crate::structure::flex::tree::node::{Inner, Leaf, Node};

type Tree = FlexTree<Anchor, 4, 4>;

fn sound_tree() -> Tree {
    let tree: Tree = (0..200u32).map(|number| Anchor::new(&number.to_be_bytes())).collect();
    tree.check().unwrap();
    tree
}

fn root(tree: &mut Tree) -> &mut Inner<Anchor, 4, 4> {
    match &mut tree.root {
        Node::Inner(inner) => Arc::make_mut(inner),
        Node::Leaf(_) => panic!("the tree has inner nodes"),
    }
}

/// The leaf that holds the item at 100 or so: not the first below any inner node but the lowest.
fn some_leaf(tree: &mut Tree) -> &mut Leaf<Anchor, 4> {
    let mut node = &mut tree.root;
    loop {
        match node {
            Node::Inner(inner) => node = &mut Arc::make_mut(inner).children[1],
            Node::Leaf(leaf) => return Arc::make_mut(leaf),
        }
    }
}

fn assert_found(plant: impl FnOnce(&mut Tree), expected: &str) {
    let mut tree = sound_tree();
    plant(&mut tree);
    let what = tree.check().unwrap_err();
    assert!(what.contains(expected), "found {what:?}, not {expected:?}");
}

#[test]
fn wrong_sums_are_found() {
    assert_found(|tree| root(tree).totals[1].size += 1, "N3");
    assert_found(|tree| root(tree).totals[1].count -= 1, "N3");
    assert_found(|tree| tree.total.size += 1, "F1");
    assert_found(|tree| some_leaf(tree).items[1].bytes += 1, "N3");
}

#[test]
fn wrong_shape_is_found() {
    assert_found(|tree| tree.height += 1, "N1");
    assert_found(
        |tree| {
            let leaf = some_leaf(tree).clone();
            root(tree).children[0] = Node::Leaf(Arc::new(leaf));
        },
        "N1",
    );
    assert_found(
        |tree| {
            let leaf = some_leaf(tree);
            leaf.items.truncate(1);
            *leaf = Leaf::of(leaf.items.clone());
        },
        "N2",
    );
    assert_found(
        |tree| {
            let leaf = some_leaf(tree);
            let mut items = leaf.items.clone();
            items.extend((0..4).map(|_| Anchor::new(b"x")));
            *leaf = Leaf::of(items);
        },
        "N2",
    );
    assert_found(|tree| root(tree).totals.truncate(1), "N2");
}

#[test]
fn wrong_keys_are_found() {
    // The head no longer fits the item's key.
    assert_found(|tree| some_leaf(tree).items[1].key = Anchor::new(b"zzzz").key, "N4");
    // The guide fits, the order does not.
    assert_found(
        |tree| {
            let leaf = some_leaf(tree);
            leaf.items.swap(0, 1);
            *leaf = Leaf::of(leaf.items.clone());
        },
        "ascend",
    );
    // Every leaf is right by itself, but one reaches into the next.
    assert_found(
        |tree| {
            let leaf = some_leaf(tree);
            leaf.items.last_mut().unwrap().key = Anchor::new(b"zzzz").key;
            *leaf = Leaf::of(leaf.items.clone());
        },
        "ascend from the leaf before",
    );
    // The leads of an inner node do not say what is below.
    assert_found(
        |tree| {
            let inner = root(tree);
            let leads = vec![Anchor::new(&[0, 0, 0, 9]).key];
            <_ as crate::structure::flex::tree::Guide<Anchor>>::inner_spliced(
                &mut inner.guide,
                1..2,
                leads,
            );
        },
        "lead at 1",
    );
}
