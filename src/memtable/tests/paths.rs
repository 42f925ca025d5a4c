//! Small memtables of keys that share prefixes of every length, filled by batches of every size:
//! leaves and their prefixes change in the middle of groups all the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::memtable;
use crate::base::{Cursor, Entropy, EntryKind, SeededEntropy, SeqNo};
use crate::memtable::{Memtable, MemtableCursor};

/// A path of up to five parts from small vocabularies, so that prefixes of all lengths are shared;
/// all but one in `others` below one directory, so that a leaf's prefix is long until one comes.
fn path(random: &SeededEntropy, others: u64) -> Vec<u8> {
    const PARTS: [&str; 8] =
        ["usr", "lib", "gcc-cross", "gcc", "a", "", "share/doc/package-", "\u{ff}"];
    let mut key = Vec::new();
    if !random.next_u64().is_multiple_of(others) {
        key.extend_from_slice(b"usr/lib/gcc-cross/");
    }
    for _ in 0..random.next_u64() % 5 {
        key.extend_from_slice(PARTS[(random.next_u64() % 8) as usize].as_bytes());
        key.push(b'/');
    }
    key.extend_from_slice((random.next_u64() % 300).to_string().as_bytes());
    key
}

#[test]
fn small_memtables_of_paths_in_batches_equal_a_map() {
    let rounds = if cfg!(miri) { 3 } else { 1500 };
    for seed in 0..rounds {
        let random = SeededEntropy::new(seed);
        let others = 1 + random.next_u64() % 100;
        let memtable = Arc::new(memtable());
        let mut model = BTreeMap::new();
        for commit in 1..1 + random.next_u64() % 6 {
            let size = 1 + random.next_u64() % if commit % 2 == 0 { 20 } else { 400 };
            let batch: Vec<(Vec<u8>, Vec<u8>)> = (0..size)
                .map(|_| (path(&random, others), random.next_u64().to_le_bytes().to_vec()))
                .collect();
            let entries = batch.iter().map(|(key, value)| (&key[..], EntryKind::Value, &value[..]));
            memtable.writer().insert_batch(SeqNo::from_u64(commit), entries);
            model.extend(batch);
        }
        assert_equal(&memtable, &model, seed);
    }
}

#[test]
fn entries_that_come_almost_in_order_equal_a_map() {
    let rounds = if cfg!(miri) { 2 } else { 200 };
    for seed in 0..rounds {
        let random = SeededEntropy::new(seed);
        // One in so many is not behind all others: an earlier key, or the last one once more.
        let astray = 2 + random.next_u64() % 200;
        let memtable = Arc::new(memtable());
        let mut model = BTreeMap::new();
        let mut next = 0;
        for commit in 1..40 {
            let size =
                if random.next_u64().is_multiple_of(2) { 1 } else { 1 + random.next_u64() % 150 };
            let batch: Vec<(Vec<u8>, Vec<u8>)> = (0..size)
                .map(|_| {
                    let number = match random.next_u64() % astray {
                        0 => random.next_u64() % (next + 1),
                        _ => next + 1,
                    };
                    next = next.max(number);
                    let key = format!("{:0width$}", number, width = 3 + (seed % 9) as usize);
                    (key.into_bytes(), random.next_u64().to_le_bytes().to_vec())
                })
                .collect();
            let entries = batch.iter().map(|(key, value)| (&key[..], EntryKind::Value, &value[..]));
            memtable.writer().insert_batch(SeqNo::from_u64(commit), entries);
            model.extend(batch);
        }
        assert_equal(&memtable, &model, seed);
    }
}

/// The newest versions, got one by one and walked over.
fn assert_equal(memtable: &Arc<Memtable>, model: &BTreeMap<Vec<u8>, Vec<u8>>, seed: u64) {
    for (key, value) in model {
        let found = memtable.get(key, SeqNo::MAX).map(|entry| entry.value);
        assert_eq!(found, Some(&value[..]), "seed {seed}: {}", key.escape_ascii());
    }
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), SeqNo::MAX);
    cursor.seek_first().unwrap();
    for (key, value) in model {
        let entry = cursor.entry().map(|entry| (entry.key, entry.value));
        assert_eq!(entry, Some((&key[..], &value[..])), "seed {seed}");
        cursor.next().unwrap();
    }
    assert!(cursor.entry().is_none());
}
