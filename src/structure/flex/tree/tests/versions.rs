//! Versions stay as they are, and what differs between them is found.

use std::cell::Cell;

use super::{Anchor, Dice, Piece, SmallTree, assert_holds};
use crate::structure::flex::tree::{Difference, FlexTree, OwnedCursor};

#[test]
fn old_versions_survive_thousands_of_edits() {
    let dice = Dice::new(1);
    let mut tree: SmallTree<Piece> = dice.pieces(500).into_iter().collect();
    let mut versions = Vec::new();
    for step in 0..5000 {
        if step % 250 == 0 {
            versions.push((tree.clone(), tree.iter().copied().collect::<Vec<_>>()));
        }
        let index = dice.below(tree.len());
        match dice.below(4) {
            0 => tree.insert(index, dice.piece()),
            1 => drop(tree.remove(index)),
            2 => tree.update(index, |piece| piece.bytes += 1),
            _ => {
                let range = dice.range(tree.len());
                let fresh = dice.pieces(range.len());
                tree.splice(range, fresh);
            }
        }
    }
    tree.check().unwrap();
    for (version, items) in &versions {
        assert_holds(version, items);
    }
}

#[test]
fn an_owned_cursor_walks_its_version_while_the_tree_goes_on() {
    let dice = Dice::new(2);
    let items = dice.pieces(400);
    let mut tree: SmallTree<Piece> = items.iter().copied().collect();
    let mut cursor = OwnedCursor::new(tree.clone());
    for (index, item) in items.iter().enumerate() {
        assert_eq!(cursor.item(), Some(item));
        tree.remove(dice.below(tree.len()));
        assert_eq!(cursor.next(), items.get(index + 1));
    }
    assert!(tree.is_empty());
    assert_eq!(cursor.tree().len(), 400);
}

#[test]
fn versions_of_a_tree_are_shared_between_threads() {
    let tree: FlexTree<Anchor> =
        (0..2000u32).map(|number| Anchor::new(&number.to_be_bytes())).collect();
    let mut newer = tree.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(tree.iter().count(), 2000));
        newer.remove(7);
    });
    assert_eq!((tree.len(), newer.len()), (2000, 1999));
}

/// Replays differences on the old items.
fn assert_leads_to(old: &[Piece], differences: &[Difference], new: &[Piece]) {
    let (mut old_at, mut new_at) = (0, 0);
    for Difference { old: replaced, new: by } in differences {
        assert!(!replaced.is_empty() || !by.is_empty());
        assert!(old_at <= replaced.start && new_at <= by.start);
        assert_eq!(old[old_at..replaced.start], new[new_at..by.start]);
        (old_at, new_at) = (replaced.end, by.end);
    }
    assert_eq!(old[old_at..], new[new_at..]);
}

#[test]
fn differences_lead_from_one_version_to_another() {
    let dice = Dice::new(3);
    for round in 0..200 {
        let old: SmallTree<Piece> = dice.pieces(dice.below(800)).into_iter().collect();
        let mut new = old.clone();
        for _ in 0..dice.below(6) {
            let range = dice.range(new.len());
            new.splice(range, dice.pieces(dice.below(if round % 5 == 0 { 300 } else { 4 })));
        }
        if round % 7 == 0 {
            // The halves change places.
            let mut right = new.split_off(new.len() / 2);
            right.append(new);
            new = right;
        }
        let old_items: Vec<Piece> = old.iter().copied().collect();
        let new_items: Vec<Piece> = new.iter().copied().collect();
        assert_leads_to(&old_items, &old.diff(&new), &new_items);
        assert_leads_to(&new_items, &new.diff(&old), &old_items);
        assert_eq!(old.diff(&old.clone()), []);
    }
}

#[test]
fn a_small_change_makes_a_small_difference() {
    let old: FlexTree<Piece> = Dice::new(4).pieces(100_000).into_iter().collect();
    let mut new = old.clone();
    new.update(70_000, |piece| piece.bytes += 1);
    new.remove(20_000);
    new.insert(5, Dice::new(5).piece());
    let compared = Cell::new(0);
    let differences = old.diff_by(&new, |a, b| {
        compared.set(compared.get() + 1);
        a == b
    });
    let expected =
        [(5..5, 5..6), (20_000..20_001, 20_001..20_001), (70_000..70_001, 70_000..70_001)];
    assert_eq!(differences, expected.map(|(old, new)| Difference { old, new }));
    assert!(compared.get() < 3 * 2 * 64, "{} items compared", compared.get());
}

#[test]
fn a_version_shares_what_an_edit_does_not_touch() {
    let old: FlexTree<Piece> = Dice::new(6).pieces(100_000).into_iter().collect();
    let mut new = old.clone();
    assert!(new.is_same_version(&old));
    new.insert(50_000, Dice::new(7).piece());
    assert!(!new.is_same_version(&old));
    // One path of three nodes is new.
    assert_eq!(new.nodes_not_in(&old), 3);
    let edits = [(10..11, vec![]), (99_000..99_001, vec![])];
    new.rewrite(edits);
    // The two leaves, the inner nodes above them and the root, besides the path of the insert.
    assert_eq!(new.nodes_not_in(&old), 3 + 2 * 2);
}
