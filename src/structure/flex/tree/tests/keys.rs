//! Search by key, for keys that are hard to tell apart by their heads.

use std::collections::BTreeSet;

use super::{Anchor, Dice, SmallTree};
use crate::structure::flex::tree::{FlexTree, OwnedCursor};

/// A random key of a family: `shape` picks the prefix and the alphabet.
fn random_key(dice: &Dice, shape: usize) -> Vec<u8> {
    let alphabet: &[u8] = match shape % 3 {
        0 => &[0, 1, 0xFF],
        1 => b"ab",
        _ => &[0x7F, 0x80, 0xFE, 0xFF],
    };
    let prefix: &[u8] = match shape {
        0..3 => b"",
        3..6 => b"tenant/000000000000000000/",
        6..9 => &[0xFF; 12],
        _ => [&[0; 20][..], &b"tenant"[..]][dice.below(2)],
    };
    let mut key = prefix[..prefix.len() - dice.below(3).min(prefix.len())].to_vec();
    for _ in 0..dice.below(14) {
        key.push(alphabet[dice.below(alphabet.len())]);
    }
    key
}

fn assert_finds<const LEAF: usize, const FAN: usize>(
    tree: &FlexTree<Anchor, LEAF, FAN>,
    keys: &[Vec<u8>],
    sought: &[u8],
) {
    let expected = keys.partition_point(|key| key.as_slice() <= sought).checked_sub(1);
    let found = tree.find_key(sought);
    assert_eq!(found.map(|(index, _)| index), expected, "seeking {sought:?}");
    assert_eq!(found.map(|(_, anchor)| &*anchor.key), expected.map(|at| &*keys[at]));
    assert_eq!(tree.get_key(sought).map(|anchor| &anchor.key), found.map(|(_, found)| &found.key));
}

fn edits_keep_keys_findable<const LEAF: usize, const FAN: usize>(shape: usize) {
    let dice = Dice::new(shape as u64);
    let mut tree = FlexTree::<Anchor, LEAF, FAN>::new();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut kept = (tree.clone(), keys.clone());
    for step in 0..2500 {
        let key = random_key(&dice, shape);
        match (keys.binary_search(&key), dice.below(5)) {
            (Err(index), 0..4) => {
                tree.insert(index, Anchor::new(&key));
                keys.insert(index, key);
            }
            (Ok(index), _) if (step / 600) % 2 == 1 => {
                assert_eq!(&*tree.remove(index).key, &*keys.remove(index));
            }
            (Ok(index) | Err(index), _) if index < keys.len() => {
                // Another key that keeps the order: the leads above may change.
                let mut next = keys[index].clone();
                next.push(0);
                if keys.get(index + 1).is_none_or(|behind| *behind > next) && next.len() < 60 {
                    tree.replace(index, Anchor::new(&next));
                    keys[index] = next;
                }
            }
            _ => {}
        }
        if step % 200 == 0 {
            let range = dice.range(keys.len());
            tree.splice(range.clone(), []);
            keys.drain(range);
        }
        if step % 100 == 0 {
            tree.check().unwrap();
            kept.0.check().unwrap();
            assert!(kept.0.iter().map(|anchor| anchor.key.to_vec()).eq(kept.1));
            kept = (tree.clone(), keys.clone());
        }
        for sought in [random_key(&dice, shape), random_key(&dice, shape + 1), vec![], vec![255; 9]]
        {
            assert_finds(&tree, &keys, &sought);
        }
    }
    tree.check().unwrap();
    for key in &keys {
        assert_finds(&tree, &keys, key);
        assert_finds(&tree, &keys, &[key, &b"\0"[..]].concat());
        assert_finds(&tree, &keys, &key[..key.len().saturating_sub(1)]);
    }
}

#[test]
fn keys_of_every_shape_are_found_in_the_smallest_nodes() {
    for shape in 0..10 {
        edits_keep_keys_findable::<4, 4>(shape);
    }
}

#[test]
fn keys_of_every_shape_are_found_in_real_nodes() {
    for shape in 0..10 {
        edits_keep_keys_findable::<64, 64>(shape);
    }
}

#[test]
fn keys_are_found_after_rewrites_joins_and_cuts() {
    let dice = Dice::new(77);
    for shape in 0..10 {
        let all: BTreeSet<Vec<u8>> = (0..600).map(|_| random_key(&dice, shape)).collect();
        let all: Vec<Vec<u8>> = all.into_iter().collect();
        let (mut keys, mut absent) = (Vec::new(), Vec::new());
        for key in all {
            if dice.below(2) == 0 { keys.push(key) } else { absent.push(key) }
        }
        let mut tree: SmallTree<Anchor> = keys.iter().map(|key| Anchor::new(key)).collect();
        let old = tree.clone();
        // Every absent key goes in; of the present ones every seventh goes.
        let mut edits = Vec::new();
        for at in 0..=keys.len() {
            let low = at.checked_sub(1).map(|before| &keys[before]);
            let fresh: Vec<Anchor> = absent
                .iter()
                .filter(|key| low.is_none_or(|low| *key > low))
                .filter(|key| keys.get(at).is_none_or(|high| *key < high))
                .map(|key| Anchor::new(key))
                .collect();
            let removed = usize::from(at % 7 == 0 && at < keys.len());
            edits.push((at..at + removed, fresh));
        }
        tree.rewrite(edits);
        let mut expected: Vec<Vec<u8>> = absent.clone();
        expected.extend(
            keys.iter().enumerate().filter(|(at, _)| at % 7 != 0).map(|(_, key)| key.clone()),
        );
        expected.sort();
        tree.check().unwrap();
        old.check().unwrap();
        let right = tree.split_off(dice.below(tree.len()));
        tree.check().unwrap();
        right.check().unwrap();
        tree.append(right);
        tree.check().unwrap();
        for key in keys.iter().chain(&absent) {
            assert_finds(&tree, &expected, key);
            assert_finds(&old, &keys, key);
        }
    }
}

#[test]
fn a_key_cursor_stands_on_the_last_key_not_beyond_the_sought() {
    let keys: [&[u8]; 5] = [b"b", b"bb", b"c", b"c\xFF", b"d"];
    let tree: SmallTree<Anchor> = keys.iter().map(|key| Anchor::new(key)).collect();
    let mut cursor = tree.cursor();
    assert_eq!(cursor.seek_key(b"bz").map(|anchor| anchor.key.to_vec()), Some(b"bb".to_vec()));
    assert_eq!(cursor.next().map(|anchor| anchor.key.to_vec()), Some(b"c".to_vec()));
    assert_eq!(cursor.seek_key(b"a"), None);
    assert_eq!(cursor.index(), 0);
    let mut owned = OwnedCursor::new(tree);
    assert_eq!(owned.seek_key(b"zz").map(|anchor| anchor.key.to_vec()), Some(b"d".to_vec()));
    assert_eq!(owned.index(), 4);
    assert_eq!(owned.next(), None);
    assert_eq!(owned.prev().map(|anchor| anchor.key.to_vec()), Some(b"d".to_vec()));
}

#[test]
fn the_empty_key_is_a_key() {
    let mut tree: SmallTree<Anchor> = FlexTree::new();
    assert_eq!(tree.find_key(b""), None);
    tree.insert(0, Anchor::new(b"a"));
    assert_eq!(tree.find_key(b""), None);
    tree.insert(0, Anchor::new(b""));
    assert_eq!(tree.find_key(b"").map(|(index, _)| index), Some(0));
    assert_eq!(tree.find_key(b"Z").map(|(index, _)| index), Some(0));
    assert_eq!(tree.find_key(b"a").map(|(index, _)| index), Some(1));
}
