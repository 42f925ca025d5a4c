//! The memtable against a sorted map, and under readers.
//!
//! Those named `small_*`, and the unit tests of the other files, are for miri:
//! `cargo +nightly miri test --lib -- small an_empty memtable::arena memtable::order readers::`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::{Filtering, Memtable, MemtableConfig, MemtableCursor, SpareChunks};
use crate::base::Cursor;
use crate::base::Entropy;
use crate::base::EntryKind;
use crate::base::KeptStamps;
use crate::base::SeededEntropy;
use crate::base::SeqNo;
use crate::cache::MemoryBudget;

mod concurrent;
mod paths;
mod timings;
mod versions;

/// Key, then seqno descending; what was inserted last under both.
type Model = BTreeMap<(Vec<u8>, Reverse<u64>), (EntryKind, Vec<u8>)>;

fn memtable() -> Memtable {
    Memtable::new(
        MemtableConfig {
            expected_bytes: 1 << 17,
            filtering: Filtering::Bloom,
            range_stamps: KeptStamps::All,
        },
        &SpareChunks::new(0, &MemoryBudget::new(0)),
    )
}

/// One way to make keys; `number` is random or counts up.
type MakeKey = fn(random: u64, number: u64) -> Vec<u8>;

const PATTERNS: [(&str, MakeKey); 12] = [
    ("random", |random, _| random.to_be_bytes().repeat(2)),
    ("ascending", |_, number| number.to_be_bytes().to_vec()),
    ("descending", |_, number| (u64::MAX - number).to_be_bytes().to_vec()),
    ("digits", |random, _| format!("{:016}", random % 100_000).into_bytes()),
    ("digits ascending", |_, number| format!("{number:016}").into_bytes()),
    ("shared prefix", |random, _| {
        format!("{:-<100}{:010}", "user", random % 1_000_000_007).into_bytes()
    }),
    ("two tables", |random, _| {
        let table = ["a", "table/of/users/with/a/long/name/"][(random % 2) as usize];
        format!("{table}{:08}", random % 99_991).into_bytes()
    }),
    ("prefixes of each other", |random, _| vec![(random % 2) as u8; (random >> 8) as usize % 300]),
    ("zeros and ones", |random, _| {
        (0..random as usize % 12)
            .map(|bit| [0x00, 0xFF][(random >> (bit + 8)) as usize % 2])
            .collect()
    }),
    ("largest heads", |random, _| [&[0xFF; 9][..], &random.to_be_bytes()[5..]].concat()),
    ("variable length", |random, _| {
        let len = (random >> 40) as usize % 300;
        random.to_le_bytes().into_iter().cycle().take(len).collect()
    }),
    ("few keys", |random, _| vec![b'k', (random % 7) as u8]),
];

fn value_for(seqno: u64, number: u64) -> Vec<u8> {
    let len = if number % 1000 == 999 { 60_000 } else { number % 40 };
    format!("{seqno}/{number}/").into_bytes().into_iter().cycle().take(len as usize).collect()
}

fn kind_for(random: u64) -> EntryKind {
    [EntryKind::Value, EntryKind::Pointer, EntryKind::Tombstone][(random >> 60) as usize % 3]
}

/// A memtable and a model with the same entries: batches of one seqno, single inserts, and what is
/// staged and linked later; keys of `make_key`; in every batch some keys come twice.
fn filled(make_key: MakeKey, seed: u64, count: u64) -> (Memtable, Model) {
    let (memtable, mut model) = (memtable(), Model::new());
    let random = SeededEntropy::new(seed);
    let mut number = 0;
    let mut seqno = 10;
    while number < count {
        let mut batch: Vec<(Vec<u8>, EntryKind, Vec<u8>)> = Vec::new();
        for _ in 0..random.next_u64() % 30 {
            let key = match batch.last() {
                Some((key, ..)) if number % 16 == 15 => key.clone(),
                _ => make_key(random.next_u64(), number),
            };
            batch.push((key, kind_for(random.next_u64()), value_for(seqno, number)));
            number += 1;
        }
        for (key, kind, value) in &batch {
            model.insert((key.clone(), Reverse(seqno)), (*kind, value.clone()));
        }
        let entries = batch.iter().map(|(key, kind, value)| (&key[..], *kind, &value[..]));
        let mut writer = memtable.writer();
        match seqno % 5 {
            0 => {
                for (key, kind, value) in entries {
                    writer.insert(key, SeqNo::from_u64(seqno), kind, value);
                }
            }
            1 | 2 => {
                writer.stage(SeqNo::from_u64(seqno), entries);
                if seqno % 70 == 1 {
                    writer.link_staged();
                }
            }
            _ => writer.insert_batch(SeqNo::from_u64(seqno), entries),
        }
        seqno += 1 + random.next_u64() % 3;
    }
    memtable.writer().link_staged();
    (memtable, model)
}

#[test]
fn small_what_is_staged_is_found_when_it_is_linked() {
    let memtable = memtable();
    let value = |seqno: u64| seqno.to_be_bytes();
    let at = |seqno| memtable.get(b"b", SeqNo::from_u64(seqno)).map(|entry| entry.seqno.as_u64());
    let mut writer = memtable.writer();
    writer.insert(b"b", SeqNo::from_u64(5), EntryKind::Value, &value(5));
    for seqno in [3, 7, 9] {
        let keys = [&b"a"[..], b"b", b"c", b"b"];
        let value = value(seqno);
        let batch = keys.iter().map(|key| (*key, EntryKind::Value, &value[..]));
        writer.stage(SeqNo::from_u64(seqno), batch);
    }
    writer.stage(SeqNo::from_u64(11), []);
    assert_eq!([9, 5, 4].map(at), [Some(5), Some(5), None]);
    assert!(memtable.get(b"a", SeqNo::MAX).is_none());
    assert_eq!(memtable.entry_count(), 13);
    for _ in 0..2 {
        writer.link_staged(); // The second time there is nothing.
        assert_eq!([9, 8, 6, 4, 2].map(at), [Some(9), Some(7), Some(5), Some(3), None]);
        assert_eq!(memtable.get(b"a", SeqNo::MAX).unwrap().value, value(9));
    }
}

/// The last seqno of a model.
fn last_seqno(model: &Model) -> u64 {
    model.keys().map(|(_, Reverse(seqno))| *seqno).max().unwrap_or(0)
}

type Shown = (Vec<u8>, u64, EntryKind, Vec<u8>);

fn visible(model: &Model, at: u64) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for ((key, Reverse(seqno)), (kind, value)) in model {
        if *seqno <= at && shown.last().is_none_or(|last| last.0 != *key) {
            shown.push((key.clone(), *seqno, *kind, value.clone()));
        }
    }
    shown
}

fn shown(cursor: &MemtableCursor) -> Option<Shown> {
    cursor.entry().map(|e| (e.key.to_vec(), e.seqno.as_u64(), e.kind, e.value.to_vec()))
}

fn check_gets(memtable: &Memtable, model: &Model, random: &SeededEntropy, count: u64) {
    let last = last_seqno(model);
    let keys: Vec<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    for _ in 0..count {
        let mut key = keys[random.next_u64() as usize % keys.len()].clone();
        match random.next_u64() % 8 {
            0 => key.push(0),
            1 => drop(key.pop()),
            2 => key.iter_mut().last().into_iter().for_each(|byte| *byte ^= 1),
            3 => key.iter_mut().take(1).for_each(|byte| *byte ^= 0x80),
            _ => {}
        }
        let at = match random.next_u64() % 4 {
            0 => u64::MAX,
            _ => random.next_u64() % (last + 3),
        };
        let expected = model
            .range((key.clone(), Reverse(at))..=(key.clone(), Reverse(0)))
            .next()
            .map(|((_, Reverse(seqno)), (kind, value))| (*seqno, *kind, &value[..]));
        let found = memtable.get(&key, SeqNo::from_u64(at));
        assert!(found.is_none_or(|found| found.key == key));
        let found = found.map(|found| (found.seqno.as_u64(), found.kind, found.value));
        assert_eq!(found, expected, "key {key:?} at {at}");
    }
}

fn check_walks(memtable: &Arc<Memtable>, model: &Model, at: u64) {
    let expected = visible(model, at);
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), SeqNo::from_u64(at));
    assert!(cursor.entry().is_none());
    for (index, entry) in expected.iter().enumerate() {
        cursor.next().unwrap();
        assert_eq!(shown(&cursor).as_ref(), Some(entry), "at {at}, forth, index {index}");
    }
    for _ in 0..2 {
        cursor.next().unwrap();
        assert!(cursor.entry().is_none());
    }
    for (index, entry) in expected.iter().enumerate().rev() {
        cursor.prev().unwrap();
        assert_eq!(shown(&cursor).as_ref(), Some(entry), "at {at}, back, index {index}");
    }
    for _ in 0..2 {
        cursor.prev().unwrap();
        assert!(cursor.entry().is_none());
    }
    cursor.next().unwrap();
    assert_eq!(shown(&cursor), expected.first().cloned());
    cursor.seek_last().unwrap();
    assert_eq!(shown(&cursor), expected.last().cloned());
    cursor.seek_first().unwrap();
    assert_eq!(shown(&cursor), expected.first().cloned());
}

/// Random seeks, each followed by a few steps that change direction at random.
fn check_seeks(
    memtable: &Arc<Memtable>,
    model: &Model,
    at: u64,
    (random, count): (&SeededEntropy, u64),
) {
    let expected = visible(model, at);
    let keys: Vec<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), SeqNo::from_u64(at));
    for _ in 0..count {
        let mut key = keys[random.next_u64() as usize % keys.len()].clone();
        match random.next_u64() % 8 {
            0 => key.push(0),
            1 => drop(key.pop()),
            2 => key.push(0xFF),
            3 => key = vec![0xFF; 400],
            4 => key.clear(),
            5 => key.iter_mut().last().into_iter().for_each(|byte| *byte = byte.wrapping_add(1)),
            _ => {}
        }
        // Index in `expected` plus one; zero is before the first.
        let mut position = if random.next_u64() % 2 == 0 {
            cursor.seek(&key).unwrap();
            1 + expected.partition_point(|entry| entry.0 < key)
        } else {
            cursor.seek_for_prev(&key).unwrap();
            expected.partition_point(|entry| entry.0 <= key)
        };
        for _ in 0..1 + random.next_u64() % 8 {
            let entry = position.checked_sub(1).and_then(|index| expected.get(index));
            assert_eq!(shown(&cursor).as_ref(), entry, "from {key:?} at {at}");
            if random.next_u64() % 2 == 0 {
                cursor.next().unwrap();
                position = (position + 1).min(expected.len() + 1);
            } else {
                cursor.prev().unwrap();
                position = position.saturating_sub(1);
            }
        }
    }
}

fn check_all(memtable: Memtable, model: &Model, seed: u64, rounds: u64) {
    const EVERY: u64 = u64::MAX;
    let random = SeededEntropy::new(seed);
    check_gets(&memtable, model, &random, rounds * 20);
    let memtable = Arc::new(memtable);
    let last = last_seqno(model);
    let ats = [last / 2, EVERY, last, last / 3, 12, 0];
    // Interpreted, each step takes a thousand times as long.
    for &at in if cfg!(miri) { &ats[..1] } else { &ats[..] } {
        check_walks(&memtable, model, at);
        check_seeks(&memtable, model, at, (&random, rounds));
    }
}

#[test]
fn agrees_with_a_sorted_map_for_keys_of_every_pattern() {
    for (seed, (name, make_key)) in PATTERNS.into_iter().enumerate() {
        for count in [1, 60, 500, 4_000] {
            println!("{name}, {count} entries, seed {seed}");
            let (memtable, model) = filled(make_key, seed as u64, count);
            check_all(memtable, &model, seed as u64, 100);
        }
    }
}

#[test]
fn agrees_with_a_sorted_map_when_patterns_are_mixed() {
    let make_key: MakeKey = |random, number| {
        let pattern = PATTERNS[(random >> 32) as usize % PATTERNS.len()];
        pattern.1(random, number)
    };
    let (memtable, model) = filled(make_key, 77, 12_000);
    check_all(memtable, &model, 77, 400);
}

#[test]
fn small_tables_agree_with_a_sorted_map() {
    // Interpreted, a pattern takes ten seconds: every third one then.
    let (count, rounds, step) = if cfg!(miri) { (90, 1, 3) } else { (300, 5, 1) };
    for (seed, (_, make_key)) in PATTERNS.into_iter().enumerate().step_by(step) {
        let (memtable, model) = filled(make_key, seed as u64, count);
        check_all(memtable, &model, seed as u64, rounds);
    }
}

#[test]
fn an_empty_memtable_shows_nothing() {
    let memtable = Arc::new(memtable());
    assert!(memtable.is_empty() && memtable.seqno_range().is_none());
    assert!(memtable.get(b"", SeqNo::MAX).is_none());
    assert!(memtable.memory_used() <= 1024);
    check_walks(&memtable, &Model::new(), u64::MAX);
    let mut cursor = MemtableCursor::new(memtable, SeqNo::MAX);
    cursor.seek(b"a").unwrap();
    assert!(cursor.entry().is_none());
    cursor.seek_for_prev(b"a").unwrap();
    assert!(cursor.entry().is_none());
}

#[test]
fn the_later_of_two_inserts_of_one_version_wins() {
    for copies in [2u32, 9, 40, 500] {
        let memtable = memtable();
        let values: Vec<[u8; 4]> = (0..copies).map(u32::to_be_bytes).collect();
        let batch = values.iter().map(|value| (&b"key"[..], EntryKind::Value, &value[..]));
        memtable.writer().insert_batch(SeqNo::from_u64(5), batch);
        let found = memtable.get(b"key", SeqNo::MAX).unwrap();
        assert_eq!(found.value, (copies - 1).to_be_bytes());
        let mut cursor = MemtableCursor::new(Arc::new(memtable), SeqNo::MAX);
        for forth in [true, false] {
            let _ = if forth { cursor.seek_first() } else { cursor.seek_last() };
            assert_eq!(cursor.entry().unwrap().value, (copies - 1).to_be_bytes());
            let _ = if forth { cursor.next() } else { cursor.prev() };
            assert!(cursor.entry().is_none());
        }
    }
}

/// The first leaf is the root. In the fourth group of this batch, a key without the leaf's prefix
/// has it replaced; what follows in the group used to be linked to the leaf that was replaced.
#[test]
fn small_batches_stay_whole_when_a_group_replaces_the_root_leaf() {
    let crossing = |numbers: std::ops::RangeInclusive<u32>| {
        numbers.rev().map(|number| format!("usr/lib/gcc-cross/{number}"))
    };
    let other = ["usr/lib/gcc-aaa".to_owned()];
    let keys: Vec<String> = crossing(37..=60)
        .chain(other)
        .chain(crossing(30..=36))
        .chain(["usr/z".to_owned()])
        .collect();
    let memtable = memtable();
    let batch = keys.iter().map(|key| (key.as_bytes(), EntryKind::Value, &b""[..]));
    memtable.writer().insert_batch(SeqNo::from_u64(7), batch);
    for key in &keys {
        assert!(memtable.get(key.as_bytes(), SeqNo::MAX).is_some(), "{key}");
    }
}

#[test]
fn ten_thousand_versions_of_a_key_are_found_each() {
    let memtable = memtable();
    for seqno in 1..=10_000u64 {
        let mut writer = memtable.writer();
        writer.insert(b"hot", SeqNo::from_u64(seqno * 2), EntryKind::Value, &seqno.to_be_bytes());
        if seqno % 1000 == 0 {
            writer.insert(&seqno.to_be_bytes(), SeqNo::from_u64(seqno), EntryKind::Value, b"");
        }
    }
    for seqno in 1..=10_000u64 {
        for at in [seqno * 2, seqno * 2 + 1] {
            let found = memtable.get(b"hot", SeqNo::from_u64(at)).unwrap();
            assert_eq!(found.value, seqno.to_be_bytes());
        }
    }
    assert!(memtable.get(b"hot", SeqNo::from_u64(1)).is_none());
    assert_eq!(memtable.entry_count(), 10_010);
    assert_eq!(memtable.data_size(), 10_000 * 11 + 10 * 8);
    let range = (SeqNo::from_u64(2), SeqNo::from_u64(20_000));
    assert_eq!(memtable.seqno_range(), Some(range));
    let mut cursor = MemtableCursor::new(Arc::new(memtable), SeqNo::from_u64(9_001));
    let mut keys = 0;
    cursor.seek_first().unwrap();
    while let Some(entry) = cursor.entry() {
        keys += 1;
        assert!(entry.key != b"hot" || entry.seqno == SeqNo::from_u64(9_000));
        cursor.next().unwrap();
    }
    assert_eq!(keys, 10, "hot, and those of 1000, 2000 .. 9000");
}

#[test]
fn memory_stays_near_the_data() {
    // Header 16, slots 12 by how full leaves are, and what the last chunk has left.
    let cases: [(MakeKey, u64, usize); 3] =
        [(PATTERNS[0].1, 300_000, 45), (PATTERNS[1].1, 300_000, 40), (PATTERNS[0].1, 40, 160)];
    for (make_key, count, overhead_max) in cases {
        let memtable = memtable();
        let random = SeededEntropy::new(3);
        for number in 0..count {
            let key = make_key(random.next_u64(), number);
            memtable.writer().insert(&key, SeqNo::from_u64(1), EntryKind::Value, &[7; 100]);
        }
        let overhead = (memtable.memory_used() - memtable.data_size()) / count as usize;
        assert!(overhead <= overhead_max, "{overhead} bytes an entry, {count} entries");
    }
}
