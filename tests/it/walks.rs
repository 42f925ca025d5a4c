//! Cursors and iterators against a map: every move, wherever the entries lie.

use std::collections::BTreeMap;
use std::ops::Bound;

use lithe_sim::random::Random;
use lithedb::storage::SimStorage;
use lithedb::{Cursor, Db, KeyRange, Keyspace, Snapshot, WriteBatch};

use crate::support::{create_tiny, open_tiny, step_to_rest};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that share long prefixes, that are prefixes of each other, and that are all ones.
fn key(random: &mut Random, keys: u64) -> Vec<u8> {
    let number = random.below(keys);
    match number % 4 {
        0 => format!("a-rather-long-prefix/{number:05}").into_bytes(),
        1 => vec![0xFF; 1 + number as usize % 40],
        2 => number.to_be_bytes().repeat(2),
        _ => vec![b'p'; number as usize % 30],
    }
}

fn range(random: &mut Random, keys: u64) -> KeyRange {
    let mut bound = || {
        let key = key(random, keys);
        match random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    };
    KeyRange { start: bound(), end: bound() }
}

/// Writes and deletes some keys, whole stretches among them.
fn change(random: &mut Random, keyspace: &Keyspace, db: &Db, map: &mut Map, keys: u64) {
    let mut batch = WriteBatch::new();
    for _ in 0..random.below(150) {
        let key = key(random, keys);
        if random.chance(350) {
            batch.delete(keyspace, &key);
            map.remove(&key);
        } else {
            let value = vec![random.below(256) as u8; random.index(60)];
            batch.put(keyspace, &key, &value);
            map.insert(key, value);
        }
    }
    if random.chance(200) {
        let from = key(random, keys);
        let doomed: Vec<_> = map.range(from..).take(100).map(|(key, _)| key.clone()).collect();
        for key in doomed {
            batch.delete(keyspace, &key);
            map.remove(&key);
        }
    }
    db.write(batch).unwrap();
}

/// The rows of `map` in `range`.
fn rows_in(map: &Map, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = map.iter().filter(|(key, _)| range.contains(key));
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Random moves; `place` is an index into the rows, -1 and their number being off the ends.
fn wander(random: &mut Random, cursor: &mut Cursor, rows: &[(Vec<u8>, Vec<u8>)], keys: u64) {
    let len = rows.len() as i64;
    let (mut place, mut move_count) = (-1, 0);
    for _ in 0..60 {
        let sought = key(random, keys);
        let (what, times) = (random.below(7), 1 + random.below(12));
        for _ in 0..times {
            match what {
                0 => (cursor.seek_first().unwrap(), place = 0).1,
                1 => (cursor.seek_last().unwrap(), place = len - 1).1,
                2 => {
                    cursor.seek(&sought).unwrap();
                    place = rows.partition_point(|(key, _)| *key < sought) as i64;
                }
                3 => {
                    cursor.seek_for_prev(&sought).unwrap();
                    place = rows.partition_point(|(key, _)| *key <= sought) as i64 - 1;
                }
                4 => {
                    cursor.next().unwrap();
                    place = (place + 1).min(len);
                }
                5 => {
                    cursor.prev().unwrap();
                    place = (place - 1).max(-1);
                }
                _ => break,
            }
            move_count += 1;
            let expected = usize::try_from(place).ok().and_then(|place| rows.get(place));
            let shown = cursor.valid().then(|| (cursor.key(), cursor.value().unwrap()));
            let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
            assert_eq!(shown, expected, "after {move_count} moves, at {place} of {len}");
        }
    }
}

/// Both ends of an iterator in turns.
fn iterate(
    random: &mut Random,
    snapshot: &Snapshot,
    keyspace: &Keyspace,
    range: &KeyRange,
    map: &Map,
) {
    let rows = rows_in(map, range);
    let mut left = rows.iter();
    let mut entries = snapshot.range(keyspace, (range.start.clone(), range.end.clone()));
    loop {
        let (entry, row) = match random.below(3) {
            0 => (entries.next_back(), left.next_back()),
            _ => (entries.next(), left.next()),
        };
        let entry = entry.map(|entry| entry.unwrap());
        let shown = entry.as_ref().map(|entry| (entry.key.to_vec(), entry.value.to_vec()));
        assert_eq!(shown.as_ref(), row);
        if row.is_none() {
            break;
        }
    }
}

#[test]
fn walks_agree_with_a_map_wherever_the_entries_lie() {
    for seed in 0..40 {
        eprintln!("seed {seed}");
        let mut random = Random::new(seed);
        let keys = [30, 300, 3000][random.index(3)];
        let db = open_tiny(&SimStorage::new(seed));
        let keyspace = create_tiny(&db, "walked");
        let mut map = Map::new();
        let mut held: Vec<(Snapshot, Map)> = Vec::new();
        for _ in 0..25 {
            match random.below(6) {
                0 => db.flush().unwrap(),
                1 => step_to_rest(&db),
                _ => change(&mut random, &keyspace, &db, &mut map, keys),
            }
            if random.chance(300) {
                held.push((db.snapshot(), map.clone()));
            }
            let now = (db.snapshot(), map.clone());
            let (snapshot, map) = match held.get(random.index(2 * held.len() + 1)) {
                Some(older) => older,
                None => &now,
            };
            let range = match random.below(3) {
                0 => KeyRange::all(),
                _ => range(&mut random, keys),
            };
            let rows = rows_in(map, &range);
            let mut cursor = snapshot.cursor(&keyspace, range.clone());
            wander(&mut random, &mut cursor, &rows, keys);
            let starts_first = match (&range.start, &range.end) {
                (
                    Bound::Included(start) | Bound::Excluded(start),
                    Bound::Included(end) | Bound::Excluded(end),
                ) => start < end,
                _ => true,
            };
            if starts_first {
                iterate(&mut random, snapshot, &keyspace, &range, map);
            }
        }
    }
}
