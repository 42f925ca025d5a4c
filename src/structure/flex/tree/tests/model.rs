//! Every operation against a vector.

use super::{Dice, Piece, SmallTree, assert_holds};
use crate::structure::flex::tree::{FlexTree, OwnedCursor, Size};

/// A tree, and what it must hold.
struct Pair<const LEAF: usize, const FAN: usize> {
    dice: Dice,
    tree: FlexTree<Piece, LEAF, FAN>,
    model: Vec<Piece>,
}

impl<const LEAF: usize, const FAN: usize> Pair<LEAF, FAN> {
    /// Random operations; each result is compared with the vector's. The tree grows and shrinks
    /// in turns.
    fn run(seed: u64, steps: usize, turn: usize) {
        let (dice, tree, model) = (Dice::new(seed), FlexTree::new(), Vec::new());
        let mut pair: Pair<LEAF, FAN> = Pair { dice, tree, model };
        let mut kept = (pair.tree.clone(), pair.model.clone());
        for step in 0..steps {
            let weight = if (step / turn).is_multiple_of(2) { 7 } else { 3 };
            if pair.dice.below(10) < weight {
                pair.grow();
            } else {
                pair.shrink();
            }
            pair.change();
            pair.search();
            if pair.dice.below(20) == 0 {
                assert_holds(&pair.tree, &pair.model);
            }
            // Between two of these no node is shared that was edited before.
            if pair.dice.below(100) == 0 {
                assert_holds(&kept.0, &kept.1);
                kept = (pair.tree.clone(), pair.model.clone());
            }
        }
        assert_holds(&pair.tree, &pair.model);
    }

    fn grow(&mut self) {
        let index = self.dice.below(self.model.len() + 1);
        match self.dice.below(8) {
            0 => {
                let pieces = self.dice.pieces(30);
                self.tree.splice(index..index, pieces.clone());
                self.model.splice(index..index, pieces);
            }
            1 => {
                let pieces = self.dice.pieces(self.dice.below(40));
                self.tree.append(FlexTree::from_sorted(pieces.clone()));
                self.model.extend(pieces);
            }
            2 => {
                let pieces = self.dice.pieces(self.dice.below(40));
                let mut front = FlexTree::from_sorted(pieces.clone());
                front.append(self.tree.clone());
                self.tree = front;
                self.model.splice(0..0, pieces);
            }
            _ => {
                let piece = self.dice.piece();
                self.tree.insert(index, piece);
                self.model.insert(index, piece);
            }
        }
    }

    fn shrink(&mut self) {
        if self.model.is_empty() {
            return;
        }
        match self.dice.below(8) {
            0 => {
                let range = self.dice.range(self.model.len());
                self.tree.splice(range.clone(), []);
                self.model.drain(range);
            }
            1 => {
                let at = self.dice.below(self.model.len() + 1);
                let rest = self.tree.split_off(at);
                assert_holds(&self.tree, &self.model[..at]);
                assert_holds(&rest, &self.model[at..]);
                let keep = rest.len().min(60);
                let mut kept = rest;
                drop(kept.split_off(keep));
                self.tree.append(kept);
                self.model.truncate(at + keep);
            }
            _ => {
                let index = self.dice.below(self.model.len());
                assert_eq!(self.tree.remove(index), self.model.remove(index));
            }
        }
    }

    /// Operations that keep about as many items.
    fn change(&mut self) {
        if self.model.is_empty() {
            return;
        }
        let index = self.dice.below(self.model.len());
        match self.dice.below(4) {
            0 => {
                let piece = self.dice.piece();
                let old = std::mem::replace(&mut self.model[index], piece);
                assert_eq!(self.tree.replace(index, piece), old);
            }
            1 => {
                self.model[index].bytes += 7;
                let bytes = self.tree.update(index, |piece| {
                    piece.bytes += 7;
                    piece.bytes
                });
                assert_eq!(bytes, self.model[index].bytes);
            }
            2 => {
                let range = self.dice.range(self.model.len());
                let pieces = self.dice.pieces(range.len());
                self.tree.splice(range.clone(), pieces.clone());
                self.model.splice(range, pieces);
            }
            _ => self.edit_around(),
        }
    }

    fn edit_around(&mut self) {
        let total: u64 = self.model.iter().map(|piece| piece.bytes).sum();
        let offset = self.dice.below(total as usize + 1) as u64;
        let fresh = self.dice.pieces(self.dice.below(9));
        let found =
            self.tree.find_by(|size| size.0, offset).map(|(index, within, _)| (index, within));
        let mut seen = None;
        let done = self.tree.edit_around(
            |size| size.0,
            offset,
            |near, position, within| {
                let range = position.saturating_sub(1)..near.len().min(position + 2);
                seen = Some((position - range.start, range.len(), within));
                (self.dice.below(3) > 0).then(|| (range, fresh.clone()))
            },
        );
        let (before, len, within) = seen.unwrap();
        let index = found.map_or(self.model.len(), |(index, _)| index);
        assert_eq!(found.map_or(0, |(_, within)| within), within);
        if done {
            self.model.splice(index - before..index - before + len, fresh);
        }
    }

    fn search(&self) {
        let index = self.dice.below(self.model.len() + 2);
        assert_eq!(self.tree.get(index), self.model.get(index));
        let before = &self.model[..index.min(self.model.len())];
        let size = before.iter().fold((0, 0), |sum, piece| sum.add((piece.bytes, piece.entries)));
        assert_eq!(self.tree.prefix_size(index), size);
        if let Some(piece) = self.model.get(index) {
            for (offset, measured) in [(size.0, piece.bytes), (size.0 + 3, piece.bytes)] {
                if offset - size.0 < measured {
                    let found = self.tree.find_by(|size| size.0, offset);
                    assert_eq!(found, Some((index, offset - size.0, piece)));
                }
            }
            if piece.entries > 0 {
                assert_eq!(self.tree.find_by(|size| size.1, size.1), Some((index, 0, piece)));
            }
        }
        let all = self.tree.size();
        assert_eq!(self.tree.find_by(|size| size.0, all.0), None);
        assert_eq!(self.tree.find_by(|size| size.1, all.1), None);
    }
}

#[test]
fn operations_on_the_smallest_nodes_match_a_vector() {
    for seed in 0..6 {
        Pair::<4, 4>::run(seed, 3000, 500);
    }
}

#[test]
fn operations_on_uneven_nodes_match_a_vector() {
    Pair::<5, 7>::run(100, 4000, 800);
    Pair::<16, 4>::run(101, 4000, 800);
    Pair::<4, 16>::run(102, 4000, 800);
}

#[test]
fn operations_on_real_nodes_match_a_vector() {
    Pair::<64, 64>::run(200, 5000, 2500);
}

#[test]
fn one_pass_of_edits_matches_edits_one_by_one() {
    let dice = Dice::new(7);
    for round in 0..400 {
        let model = dice.pieces(dice.below(if round % 2 == 0 { 60 } else { 1500 }));
        let tree: SmallTree<Piece> = model.iter().copied().collect();
        let real: FlexTree<Piece> = model.iter().copied().collect();
        let mut edits = Vec::new();
        let mut start = dice.below(4);
        while start <= model.len() {
            let longest = if dice.below(12) == 0 { model.len() - start } else { 3 };
            let end = (start + dice.below(longest + 1)).min(model.len());
            let fresh = if dice.below(15) == 0 { 50 } else { 4 };
            edits.push((start..end, dice.pieces(dice.below(fresh))));
            start = end + dice.below(if round % 3 == 0 { 100 } else { 3 });
            if edits.len() > 2000 {
                break;
            }
        }
        let mut expected = model.clone();
        for (range, pieces) in edits.iter().rev() {
            expected.splice(range.clone(), pieces.iter().copied());
        }
        let (mut owned, mut shared, mut wide) = (tree.clone(), tree.clone(), real);
        drop(tree);
        // First on nodes that the two share, then on nodes that one has for itself.
        shared.rewrite(edits.iter().cloned());
        assert_holds(&owned, &model);
        owned.rewrite(edits.iter().cloned());
        wide.rewrite(edits);
        assert_holds(&shared, &expected);
        assert_holds(&owned, &expected);
        assert_holds(&wide, &expected);
    }
}

#[test]
fn a_range_cut_out_of_one_tree_moves_into_another() {
    let dice = Dice::new(8);
    let model = dice.pieces(5000);
    let mut tree: SmallTree<Piece> = model.iter().copied().collect();
    for _ in 0..50 {
        let range = dice.below(2500)..2500 + dice.below(2500);
        let mut middle = tree.split_off(range.start);
        let mut right = middle.split_off(range.len());
        assert_holds(&middle, &model[range.clone()]);
        right.check().unwrap();
        middle.append(std::mem::take(&mut right));
        tree.append(middle);
        assert_holds(&tree, &model);
    }
}

#[test]
fn cursors_and_iterators_walk_both_ways() {
    let dice = Dice::new(9);
    for len in [0, 1, 2, 5, 64, 65, 1000] {
        let model = dice.pieces(len);
        let tree: SmallTree<Piece> = model.iter().copied().collect();
        assert!(tree.iter().rev().eq(model.iter().rev()));
        let mut cursor = tree.cursor();
        let mut owned = OwnedCursor::new(tree.clone());
        let mut index = 0;
        for _ in 0..2000 {
            let (item, owned_item) = match dice.below(20) {
                0 => {
                    index = dice.below(len + 3).min(len);
                    (cursor.seek_index(index), owned.seek_index(index))
                }
                step if (step + index / 50) % 2 == 0 => {
                    index = (index + 1).min(len);
                    (cursor.next(), owned.next())
                }
                _ if index == 0 => {
                    assert_eq!((cursor.prev(), owned.prev()), (None, None));
                    (cursor.item(), owned.item())
                }
                _ => {
                    index -= 1;
                    (cursor.prev(), owned.prev())
                }
            };
            assert_eq!(item, model.get(index));
            assert_eq!(owned_item, model.get(index));
            assert_eq!((cursor.index(), owned.index()), (index, index));
        }
    }
}

#[test]
fn ranges_are_taken_from_either_end() {
    let dice = Dice::new(10);
    let model = dice.pieces(300);
    let tree: SmallTree<Piece> = model.iter().copied().collect();
    for _ in 0..300 {
        let range = dice.range(model.len());
        let (mut found, mut expected) = (tree.range(range.clone()), model[range].iter());
        loop {
            assert_eq!(found.len(), expected.len());
            let pair = match dice.below(5) {
                0 => (found.nth(2), expected.nth(2)),
                1 | 2 => (found.next(), expected.next()),
                _ => (found.next_back(), expected.next_back()),
            };
            assert_eq!(pair.0, pair.1);
            if pair.1.is_none() {
                break;
            }
        }
    }
    assert!(tree.range(290..=500).eq(&model[290..]));
    assert_eq!(tree.range(300..).count(), 0);
}

#[test]
fn bulk_build_fills_nodes_by_nine_tenths() {
    let tree: FlexTree<Piece> = Dice::new(11).pieces(100_000).into_iter().collect();
    tree.check().unwrap();
    let leaves = tree.leaf_count();
    assert!((100_000 / 59..100_000 / 57).contains(&leaves), "{leaves} leaves");
    assert_eq!(tree.height(), 2);
}

#[test]
fn ascending_inserts_leave_nodes_mostly_full() {
    let mut tree: FlexTree<Piece> = FlexTree::new();
    for piece in Dice::new(12).pieces(50_000) {
        tree.insert(tree.len(), piece);
    }
    tree.check().unwrap();
    let fill = 50_000 * 100 / (tree.leaf_count() * 64);
    assert!(fill >= 70, "{fill} %");
}

#[test]
#[should_panic(expected = "is not within")]
fn edits_that_overlap_are_refused() {
    let mut tree: SmallTree<Piece> = Dice::new(13).pieces(100).into_iter().collect();
    tree.rewrite([(5..9, vec![]), (8..10, vec![])]);
}

#[test]
#[should_panic(expected = "keeps sums of sizes within 64 bits")]
fn sums_beyond_64_bits_are_refused() {
    let mut tree: SmallTree<Piece> = Dice::new(14).pieces(9).into_iter().collect();
    tree.insert(3, Piece { name: 0, bytes: u64::MAX, entries: 0 });
}
