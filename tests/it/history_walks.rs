//! Walks through a past of many blocks: keys with few versions beside keys with very many, by runs
//! that have some of them each, and merged into one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lithe_sim::random::Random;
use lithedb::storage::MemoryStorage;
use lithedb::{Background, Codec, Db, Durability, Keyspace, KeyspaceOptions};
use lithedb::{SeqNo, Snapshot, WriteBatch};

use crate::support::{assert_sound, step_to_rest};

const KEYS: u64 = 1500;
const COMMITS: u64 = 700;

/// What there was behind each commit that is looked at.
type Moments = Vec<(SeqNo, BTreeMap<Vec<u8>, Vec<u8>>)>;

fn key(number: u64) -> Vec<u8> {
    // With zeros, some as prefixes of others.
    let mut key = (number / 3).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    key.extend(std::iter::repeat_n(0, (number % 3) as usize));
    key
}

/// Writes to a key the more often the lower its number is; one is in every commit.
fn fill(db: &Db, k: &Keyspace, random: &mut Random) -> Moments {
    let (mut now, mut moments) = (BTreeMap::new(), Vec::new());
    for commit in 0..COMMITS {
        let mut batch = WriteBatch::new();
        for _ in 0..random.below(60) {
            let number = random.below(KEYS) * random.below(KEYS) / KEYS;
            if random.below(6) == 0 {
                batch.delete(k, key(number));
                now.remove(&key(number));
            } else {
                let value = vec![commit as u8; random.below(120) as usize];
                batch.put(k, key(number), &value);
                now.insert(key(number), value);
            }
        }
        batch.put(k, key(40), commit.to_be_bytes());
        now.insert(key(40), commit.to_be_bytes().to_vec());
        let stamp = db.write_with(batch, Durability::Buffered).unwrap();
        step_to_rest(db);
        if commit % 100 == 3 || commit + 1 == COMMITS {
            moments.push((stamp, now.clone()));
        }
    }
    moments
}

fn check(k: &Keyspace, past: &Snapshot, rows: &BTreeMap<Vec<u8>, Vec<u8>>, random: &mut Random) {
    let row = |entry: Result<lithedb::Entry, lithedb::Error>| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    };
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    assert!(past.iter(k).map(row).eq(rows.iter().map(owned)));
    assert!(past.iter(k).rev().map(row).eq(rows.iter().rev().map(owned)));
    for _ in 0..40 {
        let number = random.below(KEYS);
        assert_eq!(
            past.get(k, key(number)).unwrap().as_deref(),
            rows.get(&key(number)).map(|v| &**v)
        );
        let (one, other) = (key(number), key(random.below(KEYS)));
        let (start, end) = (one.clone().min(other.clone()), one.max(other));
        let range = (Bound::Included(&start), Bound::Excluded(&end));
        let expected = rows.range::<Vec<u8>, _>(range);
        let found = past.range(k, start.as_slice()..end.as_slice());
        if random.below(2) == 0 {
            assert!(found.map(row).eq(expected.map(owned)));
        } else {
            assert!(found.rev().map(row).eq(expected.rev().map(owned)));
        }
    }
    // Turning round now and then, with long ways in between.
    let all: Vec<_> = rows.iter().collect();
    let mut cursor = past.cursor(k, lithedb::KeyRange::all());
    let mut place = 0;
    for _ in 0..30 {
        let ahead = random.below(2) == 0;
        for _ in 0..random.below(150) {
            if ahead {
                cursor.next().unwrap();
                place = (place + 1).min(all.len() + 1);
            } else {
                cursor.prev().unwrap();
                place = usize::saturating_sub(place, 1);
            }
            let expected = usize::checked_sub(place, 1).and_then(|index| all.get(index));
            let shown = cursor.valid().then(|| cursor.key());
            assert_eq!(shown, expected.map(|(key, _)| key.as_slice()));
        }
    }
}

#[test]
fn walks_of_a_past_of_many_blocks_show_what_there_was() {
    for (seed, budget, codec) in [(1, 32 << 20, Codec::None), (2, 2 << 20, Codec::Lz4)] {
        let mut random = Random::new(seed);
        let db = Db::builder()
            .storage(Arc::new(MemoryStorage::new()))
            .background(Background::Stepped)
            .memory_budget(budget)
            .open("/db")
            .unwrap();
        let options = KeyspaceOptions::history().codec(codec).memtable_size(64 << 10);
        let k = db.create_keyspace("k", options).unwrap();
        let moments = fill(&db, &k, &mut random);
        for (at, rows) in &moments {
            check(&k, &db.snapshot_at(*at).unwrap(), rows, &mut random);
        }
        db.compact().unwrap();
        for (at, rows) in &moments {
            check(&k, &db.snapshot_at(*at).unwrap(), rows, &mut random);
        }
        assert_sound(&db);
    }
}

#[test]
fn walks_of_the_past_backward_take_no_more_memory_for_large_values() {
    let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    let builder = builder.background(Background::Stepped).disk_reserve(0);
    let db = builder.open("/db").unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::history().value_separation(None)).unwrap();
    for key in 0..60_u8 {
        k.put([key], vec![key; 300 << 10]).unwrap();
    }
    db.flush().unwrap();
    let at = db.snapshot().seqno();
    k.clear().unwrap();
    let past = db.snapshot_at(at).unwrap();
    let entries = past.iter(&k).rev().map(Result::unwrap).inspect(|entry| {
        assert!(entry.value.iter().all(|byte| *byte == entry.key[0]));
    });
    let backward: Vec<_> = entries.map(|entry| (entry.key[0], entry.value.len())).collect();
    let expected: Vec<_> = (0..60_u8).rev().map(|key| (key, 300 << 10)).collect();
    assert_eq!(backward, expected);
}
