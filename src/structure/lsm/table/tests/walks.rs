//! Cursors over tables and runs, both ways, against a map.

use std::ops::Bound;

use super::*;
use crate::block::BlockCursor;

/// The entry where a cursor must be.
fn shown(entry: Option<(&Vec<u8>, &Said)>) -> Option<(Vec<u8>, Said)> {
    entry.map(|(key, said)| (key.clone(), said.clone()))
}

fn at(cursor: &impl Cursor) -> Option<(Vec<u8>, Said)> {
    let entry = cursor.entry().map(said);
    assert_eq!(cursor.key().map(<[u8]>::to_vec), entry.as_ref().map(|(key, _)| key.clone()));
    assert_eq!(cursor.value(), entry.as_ref().map(|(_, said)| said.value.as_slice()));
    assert_eq!(cursor.is_valid(), entry.is_some());
    let tombstone = entry.as_ref().is_some_and(|(_, said)| said.kind == EntryKind::Tombstone);
    assert_eq!(cursor.is_tombstone(), tombstone);
    entry
}

/// Seeks to, before and behind every key, and goes on from there in both directions.
fn seek_everywhere(cursor: &mut impl Cursor, model: &Model) {
    let keys = model.keys().flat_map(|key| [vec![key.clone()], neighbours(key)].concat());
    for key in keys.chain([Vec::new(), vec![0xFF; 70]]) {
        let from = |key: &[u8]| (Bound::Included(key.to_vec()), Bound::Unbounded);
        let to = |key: &[u8]| (Bound::Unbounded, Bound::Included(key.to_vec()));
        let mut on = model.range(from(&key));
        cursor.seek(&key).unwrap();
        for _ in 0..3 {
            assert_eq!(at(cursor), shown(on.next()), "from {key:?} on");
            cursor.next().unwrap();
        }
        let mut back = model.range(to(&key)).rev();
        cursor.seek_for_prev(&key).unwrap();
        for _ in 0..3 {
            assert_eq!(at(cursor), shown(back.next()), "from {key:?} back");
            cursor.prev().unwrap();
        }
    }
}

/// Leaps on by short and long ways, with steps in between, to keys that are there or not.
fn leap_on(cursor: &mut impl Cursor, model: &Model, dice: &Dice) {
    let all = entries(model);
    for length in [1, 2, 5, 20, 100] {
        cursor.seek_first().unwrap();
        let mut position = 0;
        while position < all.len() {
            let aim = (position + dice.below(length + 1) as usize).min(all.len() - 1);
            let beside = neighbours(&all[aim].0);
            let behind = |key: &&Vec<u8>| **key >= all[position].0;
            let aims: Vec<_> = beside.iter().chain([&all[aim].0]).filter(behind).collect();
            let key = aims[dice.below(aims.len() as u64) as usize];
            cursor.leap(key, SeqNo::from_u64(dice.below(u64::MAX))).unwrap();
            position = all.partition_point(|(other, _)| other < key);
            assert_eq!(at(cursor).as_ref(), all.get(position), "to {key:?}");
            if dice.below(2) == 0 {
                cursor.next().unwrap();
                position += 1;
                assert_eq!(at(cursor).as_ref(), all.get(position), "behind {key:?}");
            }
        }
    }
    cursor.leap(&[0xFF; 90], SeqNo::ZERO).unwrap();
    assert_eq!(at(cursor), None);
}

/// Moves at random; where `take` says so, goes on from where a block was taken.
fn wander<C: Cursor>(
    cursor: &mut C,
    model: &Model,
    dice: &Dice,
    take: impl Fn(&mut C) -> Option<(Vec<u8>, Vec<u8>)>,
) {
    let all = entries(model);
    let count = all.len() as i64;
    let mut position: i64 = -1;
    for step in 0..4000 {
        match dice.below(20) {
            0 => {
                cursor.seek_first().unwrap();
                position = 0.min(count - 1);
            }
            1 => {
                cursor.seek_last().unwrap();
                position = count - 1;
            }
            2 => {
                let key = &all[dice.below(count as u64) as usize].0;
                cursor.seek(key).unwrap();
                position = all.partition_point(|(other, _)| other < key) as i64;
            }
            3..=10 => {
                cursor.next().unwrap();
                position = (position + 1).min(count);
            }
            11 if (0..count).contains(&position) => {
                let (first, last) = take(cursor).expect("it is on an entry");
                assert!(!cursor.is_valid());
                if dice.below(2) == 0 {
                    cursor.next().unwrap();
                    position = all.partition_point(|(other, _)| *other <= last) as i64;
                } else {
                    cursor.prev().unwrap();
                    position = all.partition_point(|(other, _)| *other < first) as i64 - 1;
                }
            }
            _ => {
                cursor.prev().unwrap();
                position = (position - 1).max(-1);
            }
        }
        let expected = usize::try_from(position).ok().and_then(|index| all.get(index));
        assert_eq!(at(cursor).as_ref(), expected, "step {step}");
    }
}

/// First and last key of the block that is taken; checks that the cursor was on the same entry.
fn ends_of(taken: Option<BlockCursor>, key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut block = taken?;
    assert_eq!(block.key(), Some(key));
    block.seek_first().unwrap();
    let first = block.key().unwrap().to_vec();
    block.seek_last().unwrap();
    Some((first, block.key().unwrap().to_vec()))
}

#[test]
fn a_table_is_sought_everywhere_and_walked_to_and_fro() {
    let dice = Dice::new(11);
    for count in [1, 7, 400] {
        let bench = Bench::new();
        let model = dice.model(count);
        let options = TableOptions { block_size: 60, ..TableOptions::default() };
        let table = bench.written(&options, &model);
        for mode in [ReadMode::Passing, ReadMode::Ahead, ReadMode::Normal] {
            let mut cursor = bench.cursor(&table, mode);
            cursor.prev().unwrap();
            assert_eq!(at(&cursor), None);
            cursor.next().unwrap();
            assert_eq!(at(&cursor), shown(model.iter().next()), "the first move goes to the first");
            seek_everywhere(&mut cursor, &model);
            leap_on(&mut cursor, &model, &dice);
            let mut cursor = bench.cursor(&table, mode);
            wander(&mut cursor, &model, &dice, |cursor| {
                let key = cursor.key()?.to_vec();
                ends_of(cursor.take_block(), &key)
            });
        }
    }
}

#[test]
fn a_run_is_sought_everywhere_and_walked_to_and_fro() {
    let (bench, dice) = (Bench::new(), Dice::new(12));
    let all = entries(&dice.model(300));
    let options = TableOptions { block_size: 60, ..TableOptions::default() };
    let mut tables = Vec::new();
    for part in all.chunks(70) {
        tables.push(bench.written(&options, &part.iter().cloned().collect()));
    }
    // One that only deletes, behind all.
    let range: &[Range<'_>] = &[(&[0xFF; 80], None)];
    let ranges = bench.write_with(&options, &Model::new(), range);
    tables.push(bench.table(&ranges));
    let model: Model = all.into_iter().collect();
    for mode in [ReadMode::Passing, ReadMode::Ahead, ReadMode::Normal] {
        let mut cursor = bench.run(&tables, mode);
        assert_eq!(forward(&mut cursor), entries(&model));
        seek_everywhere(&mut cursor, &model);
        leap_on(&mut cursor, &model, &dice);
        let mut cursor = bench.run(&tables, mode);
        wander(&mut cursor, &model, &dice, |cursor| {
            let key = cursor.key()?.to_vec();
            ends_of(cursor.take_block(), &key)
        });
    }
    let mut none = bench.run(&[], ReadMode::Normal);
    none.seek(b"a").unwrap();
    none.seek_for_prev(b"a").unwrap();
    none.next().unwrap();
    none.prev().unwrap();
    assert!(forward(&mut none).is_empty() && backward(&mut none).is_empty());
}

#[test]
fn the_bound_of_a_block_parts_it_from_the_next() {
    let (bench, dice) = (Bench::new(), Dice::new(13));
    let model = dice.model(300);
    let table = bench.written(&small_blocks(), &model);
    let mut cursor = bench.cursor(&table, ReadMode::Normal);
    assert_eq!(cursor.last_key_bound(), None);
    cursor.seek_first().unwrap();
    let mut blocks = 0;
    while let Some(mut block) = cursor.take_block() {
        let bound = cursor.last_key_bound().unwrap().to_vec();
        block.seek_last().unwrap();
        assert!(block.key().unwrap() <= bound.as_slice());
        cursor.next().unwrap();
        assert!(cursor.key().is_none_or(|key| key > bound.as_slice()));
        blocks += 1;
    }
    assert_eq!(cursor.last_key_bound(), None);
    assert_eq!(blocks, table.properties(&bench.caches).unwrap().blocks);
}

#[test]
fn walks_that_pass_read_much_at_once_and_keep_nothing() {
    let (bench, dice) = (Bench::new(), Dice::new(14));
    let model: Model = (0..20_000u32)
        .map(|number| (format!("key{number:06}").into_bytes(), value(dice.bytes(100))))
        .collect();
    let table = bench.written(&TableOptions::default(), &model);
    let mut cursor = bench.cursor(&table, ReadMode::Passing);
    assert_eq!(forward(&mut cursor), entries(&model));
    let (reads, bytes) = bench.caches.reads();
    let size = table.record.size;
    assert!(bytes < size + size / 5, "{bytes} of {size}");
    assert!(reads < 30, "{reads}");
    assert_eq!((bench.caches.blocks.usage(), bench.caches.partitions.usage()), (0, 0));
    // What is there is used.
    assert_eq!(forward(&mut bench.cursor(&table, ReadMode::Normal)), entries(&model));
    let before = bench.caches.reads();
    assert_eq!(forward(&mut bench.cursor(&table, ReadMode::Passing)), entries(&model));
    assert_eq!(bench.caches.reads(), before);
}

#[test]
fn walks_that_go_on_read_the_more_at_once_and_keep_what_there_is_room_for() {
    let dice = Dice::new(15);
    let model: Model = (0..20_000u32)
        .map(|number| (format!("key{number:06}").into_bytes(), value(dice.bytes(100))))
        .collect();
    for memory in [64 << 20, 1 << 20] {
        let bench = Bench::with_memory(memory);
        let table = bench.written(&TableOptions::default(), &model);
        let mut cursor = bench.cursor(&table, ReadMode::Ahead);
        cursor.seek(b"key010000").unwrap();
        let (reads, _) = bench.caches.reads();
        assert!(reads <= 3, "top, partition, and a block: {reads}");
        assert_eq!(forward(&mut cursor), entries(&model));
        let (reads, bytes) = bench.caches.reads();
        let size = table.record.size;
        assert!(bytes < size + size / 5, "{bytes} of {size}");
        assert!(reads < 80, "{reads}");
        let evicted = bench.caches.blocks.counts().evictions;
        assert_eq!(evicted, 0, "nothing has to go");
        assert!(bench.caches.blocks.usage() <= memory);
        assert_eq!(forward(&mut bench.cursor(&table, ReadMode::Ahead)), entries(&model));
        if memory > 2 * size as usize {
            assert_eq!(bench.caches.reads().0, reads, "all was kept");
        }
    }
}

#[test]
fn a_piece_in_front_of_a_key_ends_there_and_has_so_many_blocks() {
    let (bench, dice) = (Bench::new(), Dice::new(16));
    let model = dice.model(2000);
    let table = bench.written(&small_blocks(), &model);
    let blocks = table.properties(&bench.caches).unwrap().blocks as usize;
    let all = entries(&model);
    for count in [1, 3, 20] {
        let (mut behind, mut pieces) = (vec![0xFF; 90], 0);
        let mut seen = Vec::new();
        while *behind > *table.record.first {
            let from = table.key_in_front(&bench.caches, &behind, count).unwrap();
            assert!(*from < *behind, "it goes on");
            let piece = model.range(from.to_vec()..behind).map(|(key, _)| key.clone());
            seen.extend(piece.rev());
            (behind, pieces) = (from.to_vec(), pieces + 1);
        }
        seen.reverse();
        assert!(seen.iter().eq(all.iter().map(|(key, _)| key)));
        assert!(pieces >= blocks / count, "{pieces} of {blocks} blocks by {count}");
        assert!(pieces <= blocks / count + blocks / 10 + 2, "{pieces} of {blocks} by {count}");
    }
}
