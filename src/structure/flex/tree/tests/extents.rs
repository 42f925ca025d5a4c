//! The extent map against an array of addresses, one for each byte.

use super::Dice;
use crate::structure::flex::tree::{Extent, ExtentMap};

fn assert_maps(map: &ExtentMap, bytes: &[u64]) {
    map.check().unwrap();
    assert_eq!(map.len(), bytes.len() as u64);
    let mapped =
        map.extents().iter().flat_map(|extent| extent.address..extent.address + extent.len);
    assert!(mapped.eq(bytes.iter().copied()));
}

fn random_edits_match_an_array(seed: u64, len_max: usize, steps: usize) {
    let dice = Dice::new(seed);
    let (mut map, mut bytes) = (ExtentMap::new(), Vec::<u64>::new());
    let mut next_address = 1000;
    for step in 0..steps {
        let offset = dice.below(bytes.len() + 1);
        let len = 1 + dice.below(12);
        let goal = if (step / 1000) % 2 == 0 { len_max } else { len_max / 20 };
        if dice.below(10) < if bytes.len() < goal { 8 } else { 2 } {
            // Often what continues a neighbour, or what was cut out, comes back.
            let address = match dice.below(4) {
                0 if offset > 0 => bytes[offset - 1] + 1,
                1 if offset < bytes.len() => bytes[offset].saturating_sub(len as u64),
                _ => next_address,
            };
            next_address += len as u64 + dice.below(2) as u64;
            map.insert(offset as u64, Extent { address, len: len as u64 });
            bytes.splice(offset..offset, address..address + len as u64);
        } else {
            let len = if dice.below(30) == 0 { len * 40 } else { len }.min(bytes.len() - offset);
            map.collapse(offset as u64, len as u64);
            bytes.drain(offset..offset + len);
        }
        let sought = dice.below(bytes.len() + 1);
        let run = map.lookup(sought as u64);
        assert_eq!(run.map(|extent| extent.address), bytes.get(sought).copied());
        if let Some(run) = run {
            let end = sought + run.len as usize;
            assert!(bytes[sought..end].iter().copied().eq(run.address..run.address + run.len));
            assert_ne!(bytes.get(end), Some(&(run.address + run.len)), "not merged");
        }
        if step % 50 == 0 || bytes.len() < 60 {
            assert_maps(&map, &bytes);
        }
    }
    assert_maps(&map, &bytes);
}

#[test]
fn inserts_and_collapses_match_an_array_of_bytes() {
    random_edits_match_an_array(1, 200, 4000);
    random_edits_match_an_array(2, 5000, 8000);
    random_edits_match_an_array(3, 20_000, 8000);
}

#[test]
fn neighbours_merge_across_leaves() {
    let mut map = ExtentMap::new();
    for number in 0..10_000 {
        map.insert(number * 10, Extent { address: number * 100, len: 10 });
    }
    let extents = map.extents().len();
    // Between any two comes what the first is continued by: the count stays.
    for number in (0..10_000).rev() {
        map.insert(number * 10 + 10, Extent { address: number * 100 + 10, len: 5 });
    }
    assert_eq!(map.extents().len(), extents);
    // The same again, in front of the second: the gap between addresses closes.
    for number in (1..10_000).rev() {
        map.insert(number * 15, Extent { address: number * 100 - 85, len: 85 });
    }
    map.check().unwrap();
    assert_eq!(map.extents().len(), 1);
}

#[test]
fn what_is_cut_out_and_put_back_leaves_no_trace() {
    let mut map = ExtentMap::new();
    map.insert(0, Extent { address: 7, len: 1_000_000 });
    let dice = Dice::new(4);
    for _ in 0..2000 {
        let offset = dice.below(990_000) as u64;
        map.insert(offset, Extent { address: 5_000_000, len: 10 });
        map.collapse(offset, 10);
        assert_eq!(map.extents().len(), 1);
    }
    map.collapse(0, 1_000_000);
    assert!(map.is_empty());
    assert_eq!(map.lookup(0), None);
}

#[test]
#[should_panic(expected = "are not within")]
fn collapsing_beyond_the_end_is_refused() {
    let mut map = ExtentMap::new();
    map.insert(0, Extent { address: 7, len: 10 });
    map.collapse(5, u64::MAX);
}

#[test]
#[should_panic(expected = "beyond the end")]
fn inserting_beyond_the_end_is_refused() {
    ExtentMap::new().insert(1, Extent { address: 7, len: 10 });
}
