//! Parts of a range to work on side by side, entries by number and at random, against all keys in
//! a set.

use std::collections::BTreeSet;
use std::sync::Arc;

use lithe_sim::random::Random;
use lithedb::storage::MemoryStorage;
use lithedb::{Background, Db, Durability, Keyspace, KeyspaceOptions, WriteBatch};

type Keys = BTreeSet<Vec<u8>>;
/// A part may be larger than its share by so much: about what two intervals of 2 KiB hold.
const SLACK: usize = 150;

fn open() -> (Db, Keyspace) {
    let db = Db::builder()
        .storage(Arc::new(MemoryStorage::new()))
        .background(Background::Stepped)
        .durability(Durability::Buffered)
        .memory_budget(8 << 20)
        .open("/db")
        .unwrap();
    let options = KeyspaceOptions::flex().interval_size(2048).segment_size(64 << 10);
    let keyspace = db.create_keyspace("k", options).unwrap();
    (db, keyspace)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// The keys from `from` to in front of `to`.
fn between(keys: &Keys, from: &[u8], to: Option<&[u8]>) -> usize {
    keys.range(from.to_vec()..).take_while(|key| to.is_none_or(|to| key.as_slice() < to)).count()
}

/// The sizes of the parts, which must be the range: in order, without overlap or gap.
fn sizes_of_parts(
    k: &Keyspace,
    keys: &Keys,
    (start, end): (&[u8], Option<&[u8]>),
    count: usize,
) -> Vec<usize> {
    let cuts = match end {
        Some(end) => k.split(start..end, count).unwrap(),
        None => k.split(start.., count).unwrap(),
    };
    assert!(cuts.len() < count.max(1), "{} for {count} parts", cuts.len());
    assert!(cuts.windows(2).all(|pair| pair[0] < pair[1]), "ascending");
    let is_inside = |cut: &Vec<u8>| &**cut > start && end.is_none_or(|end| &**cut < end);
    assert!(cuts.iter().all(is_inside), "no part is empty by its bounds");
    let starts = std::iter::once(start).chain(cuts.iter().map(Vec::as_slice));
    let ends = cuts.iter().map(|cut| Some(cut.as_slice())).chain([end]);
    let mut sizes = Vec::new();
    for (start, end) in starts.zip(ends) {
        let counted = match end {
            Some(end) => k.count(start..end),
            None => k.count(start..),
        };
        sizes.push(between(keys, start, end));
        assert_eq!(counted.unwrap() as usize, sizes[sizes.len() - 1]);
    }
    assert_eq!(sizes.iter().sum::<usize>(), between(keys, start, end), "all of the range");
    sizes
}

/// Parts random ranges; no part of `count` may have more than `most` of its share.
fn assert_parts(k: &Keyspace, keys: &Keys, random: &mut Random, most: f64) {
    for round in 0..30 {
        let count = 1 + random.below(24) as usize;
        let (low, high) = (random.below(22_000), random.below(22_000));
        let (start, end) = match round % 3 {
            0 => (Vec::new(), None),
            1 => (key(low), None),
            _ => (key(low.min(high)), Some(key(low.max(high)))),
        };
        let sizes = sizes_of_parts(k, keys, (&start, end.as_deref()), count);
        let share = sizes.iter().sum::<usize>() / count;
        let most = (share as f64 * most) as usize + SLACK;
        assert!(sizes.iter().all(|size| *size <= most), "{start:?} {end:?} {count}: {sizes:?}");
    }
}

/// Writes every key that passes, in batches.
fn put(db: &Db, k: &Keyspace, keys: &mut Keys, passes: impl Fn(u64) -> bool) {
    for first in (0..20_000).step_by(500) {
        let mut batch = WriteBatch::new();
        for number in (first..first + 500).filter(|number| passes(*number)) {
            batch.put(k, key(number), [b'v'; 60]);
            keys.insert(key(number));
        }
        db.write(batch).unwrap();
    }
}

#[test]
fn parts_cover_the_range_and_are_about_equal() {
    let (mut random, mut keys) = (Random::new(71), Keys::new());
    let (db, k) = open();
    put(&db, &k, &mut keys, |number| number % 2 == 0 || number > 15_000);
    db.compact().unwrap();
    assert_parts(&k, &keys, &mut random, 1.0);
    // Every entry of the first half twice, and its room not yet given back.
    put(&db, &k, &mut keys, |number| number < 10_000 && number % 2 == 0);
    db.flush().unwrap();
    assert_parts(&k, &keys, &mut random, 2.0);
    db.compact().unwrap();
    assert_parts(&k, &keys, &mut random, 1.0);
}

#[test]
fn what_is_not_flushed_is_in_one_of_the_parts() {
    let (mut random, mut keys) = (Random::new(72), Keys::new());
    let (db, k) = open();
    put(&db, &k, &mut keys, |number| number % 2 == 0);
    db.compact().unwrap();
    // Not counted for the parts, so these may be as much larger.
    put(&db, &k, &mut keys, |number| number % 4 == 1);
    for _ in 0..2000 {
        let key = key(random.below(20_000));
        k.delete(&key).unwrap();
        keys.remove(&key);
    }
    assert_parts(&k, &keys, &mut random, 2.5);
    k.delete_range(key(4_000)..key(6_000)).unwrap();
    keys.retain(|other| !(key(4_000)..key(6_000)).contains(other));
    assert_parts(&k, &keys, &mut random, 3.0);
    db.compact().unwrap();
    assert_parts(&k, &keys, &mut random, 1.0);
}

#[test]
fn few_keys_make_few_parts() {
    let (db, k) = open();
    let mut keys = Keys::new();
    for count in [0, 1, 2, 1000] {
        assert_eq!(sizes_of_parts(&k, &keys, (b"", None), count), [0], "there is nothing");
    }
    for number in 0..7 {
        k.put(key(number), "").unwrap();
        keys.insert(key(number));
    }
    assert_eq!(sizes_of_parts(&k, &keys, (b"", None), 100), [7], "all of it in a memtable");
    db.flush().unwrap();
    let sizes = sizes_of_parts(&k, &keys, (b"", None), usize::MAX >> 40);
    assert!(sizes.len() <= 7, "{sizes:?}");
    put(&db, &k, &mut keys, |number| number % 10 == 0);
    db.compact().unwrap();
    let sizes = sizes_of_parts(&k, &keys, (b"", None), 5000);
    assert!(sizes.len() > 10 && sizes.len() <= keys.len(), "{}", sizes.len());
    let backwards = k.split(key(9)..key(3), 4).unwrap();
    assert!(backwards.is_empty(), "an empty range has no parts");
}

#[test]
fn entries_are_skipped_by_their_number() {
    let (db, k) = open();
    let mut keys = Keys::new();
    put(&db, &k, &mut keys, |number| number % 3 == 0);
    db.compact().unwrap();
    k.delete_range(key(3_000)..key(6_000)).unwrap();
    keys.retain(|other| !(key(3_000)..key(6_000)).contains(other));
    k.put(key(6_001), "new").unwrap();
    keys.insert(key(6_001));
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let found = |entry: Option<lithedb::Result<lithedb::Entry>>| {
        entry.map(|entry| entry.unwrap().key.to_vec())
    };
    for skipped in [0, 1, 500, 999, 1000, 2_300, keys.len() - 1, keys.len(), 1 << 40] {
        assert_eq!(found(k.iter().nth(skipped)), keys.get(skipped).cloned(), "{skipped}");
        let mut iter = k.iter();
        let first = found(iter.next());
        assert_eq!(first.as_ref(), keys.first());
        assert_eq!(found(iter.nth(skipped)), keys.get(skipped + 1).cloned(), "{skipped} more");
        assert_eq!(found(iter.next()), keys.get(skipped + 2).cloned(), "and on");
    }
    let from = keys.partition_point(|other| *other < key(1_500));
    let mut within = k.range(key(1_500)..key(9_000));
    assert_eq!(found(within.nth(1_200)), keys.get(from + 1_200).cloned());
    assert_eq!(found(within.nth(1 << 20)), None, "behind the range");
    assert_eq!(found(within.next()), None);
    let mut sought = k.iter();
    sought.seek(key(1_500));
    assert_eq!(found(sought.nth(1_100)), keys.get(from + 1_100).cloned());
    let mut both = k.iter();
    assert_eq!(found(both.next_back()).as_ref(), keys.last());
    assert_eq!(found(both.nth(keys.len() - 2)).as_ref(), keys.get(keys.len() - 2));
    assert_eq!(found(both.next()), None, "the ends have met");
}

#[test]
fn a_sample_is_of_the_range_in_order_and_without_repetition() {
    let (db, k) = open();
    let mut keys = Keys::new();
    put(&db, &k, &mut keys, |number| number % 3 == 0);
    db.compact().unwrap();
    let range = key(1_000)..key(4_000);
    let within: Vec<&Vec<u8>> = keys.range(range.clone()).collect();
    let sample = k.sample(range.clone(), 100).unwrap();
    assert_eq!(sample.len(), 100);
    assert!(sample.windows(2).all(|pair| pair[0].key < pair[1].key));
    assert!(sample.iter().all(|entry| within.contains(&&entry.key.to_vec())));
    let all = k.sample(range, 1 << 20).unwrap();
    assert!(all.iter().map(|entry| &*entry.key).eq(within.iter().map(|key| key.as_slice())));
    assert!(k.sample(key(9)..key(3), 5).unwrap().is_empty());
    assert!(k.sample::<&[u8]>(.., 0).unwrap().is_empty());
}

#[test]
fn counts_are_exact_whatever_memtables_hold() {
    let (db, k) = open();
    let (mut random, mut keys) = (Random::new(73), Keys::new());
    put(&db, &k, &mut keys, |number| number % 3 == 0);
    db.compact().unwrap();
    for round in 0..400 {
        // More than are looked up each time, so that what is found is kept and brought up to date.
        for _ in 0..random.below(60) {
            let key = key(random.below(22_000));
            if random.chance(500) {
                k.put(&key, [b'v'; 40]).unwrap();
                keys.insert(key);
            } else {
                k.delete(&key).unwrap();
                keys.remove(&key);
            }
        }
        match random.below(60) {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2..12 => drop(db.step().unwrap()),
            12 => {
                let rows: Vec<(Vec<u8>, &[u8])> =
                    (0..300).map(|number| (key(number * 50 + round % 50), &b"i"[..])).collect();
                keys.extend(rows.iter().map(|(key, _)| key.clone()));
                k.ingest(rows).unwrap();
            }
            13 => {
                let from = random.below(20_000);
                let range = key(from)..key(from + 300);
                k.delete_range(range.clone()).unwrap();
                keys.retain(|other| !range.contains(other));
            }
            _ => {}
        }
        let snapshot = random.chance(200).then(|| (db.snapshot(), keys.len() as u64));
        assert_eq!(k.len().unwrap(), keys.len() as u64, "round {round}");
        let (low, high) = (random.below(22_000), random.below(22_000));
        let (low, high) = (key(low.min(high)), key(low.max(high)));
        let expected = between(&keys, &low, Some(&high)) as u64;
        assert_eq!(k.count(low.clone()..high).unwrap(), expected, "round {round}");
        let rank = k.rank(&low).unwrap();
        assert_eq!(rank, between(&keys, b"", Some(&low)) as u64, "round {round}");
        let found = k.select(rank).unwrap().map(|entry| entry.key.to_vec());
        assert_eq!(found.as_ref(), keys.range(low..).next(), "round {round}");
        if let Some((snapshot, count)) = snapshot {
            k.put("zz", "").unwrap();
            k.delete("zz").unwrap();
            assert_eq!(k.len().unwrap(), count);
            assert_eq!(snapshot.count::<&[u8]>(&k, ..).unwrap(), count, "as of before");
        }
    }
}

#[test]
fn counts_are_exact_beside_writers() {
    let db = Db::builder()
        .storage(Arc::new(MemoryStorage::new()))
        .durability(Durability::Buffered)
        .memory_budget(8 << 20)
        .open("/db")
        .unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::flex().interval_size(2048)).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    // Keys come and go in pairs, one below and one above the middle.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(74);
            for number in 0..30_000u64 {
                let place = random.below(4000);
                let mut batch = WriteBatch::new();
                for key in [key(place), key(10_000 + place)] {
                    match number % 3 {
                        0 => batch.delete(&k, key),
                        _ => batch.put(&k, key, [b'v'; 80]),
                    }
                }
                db.write(batch).unwrap();
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(k.len().unwrap() % 2, 0, "all of a commit or nothing");
                    let snapshot = db.snapshot();
                    let low = snapshot.count(&k, key(0)..key(9_999)).unwrap();
                    let high = snapshot.rank(&k, key(20_000)).unwrap() - low;
                    assert_eq!(low, high);
                }
            });
        }
    });
    assert_eq!(k.len().unwrap(), k.iter().count() as u64);
}
