//! What has expired in runs: when it goes, what it costs, and how it is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tests::{Bench, NewEntry, small_options};
use crate::base::{Entropy, EntryKind, Expiring, SeededEntropy, Slice};
use crate::structure::Want;
use crate::structure::{Consolidation, RoundSlice, Store};

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn entry(number: u64, until: Option<u64>) -> NewEntry {
    let value = vec![b'v'; 20];
    match until {
        None => (key(number), EntryKind::Value, value),
        Some(until) => {
            let held = Expiring { until, kind: EntryKind::Value, value: &value };
            (key(number), EntryKind::Composite, held.encode())
        }
    }
}

/// Consolidates until nothing is worth it.
fn consolidate(bench: &Bench, now: u64) {
    loop {
        match bench.store.consolidate(1 << 20, now).unwrap() {
            Consolidation::Slice { .. } => {}
            _ => return,
        }
    }
}

fn stats_of(bench: &Bench, now: u64) -> (u64, u64) {
    let stats = bench.store.stats(now);
    (stats.expiring, stats.expired)
}

#[test]
fn what_has_expired_is_a_tombstone_in_deltas_and_nothing_in_bases() {
    let mut bench = Bench::new(small_options());
    bench.flush_entries((0..100).map(|number| entry(number, None)).collect());
    // They hide what is older, and are gone before they are flushed.
    bench.now = 50;
    bench.flush_entries((0..5).map(|number| entry(number, Some(40 + number))).collect());
    let version = bench.store.version();
    for number in 0..5 {
        let found = version.find(&key(number), Want::Value).unwrap();
        assert!(found.is_none_or(|found| found.kind == EntryKind::Tombstone), "{number}");
    }
    assert_eq!(version.count(b"", None, 50).unwrap(), 95);
    assert_eq!(stats_of(&bench, 50), (0, 0));
    consolidate(&bench, 50);
    assert_eq!(bench.store.version().find(&key(0), Want::Value).unwrap(), None);
    assert_eq!(bench.problems(), Vec::<String>::new());
}

#[test]
fn intervals_of_which_all_has_expired_go_unread() {
    let mut bench = Bench::new(small_options());
    bench.flush_entries((0..2000).map(|number| entry(number, Some(100 + number % 7))).collect());
    let full = bench.store.stats(0);
    assert_eq!(stats_of(&bench, 103).0, 2000);
    assert!((500..1500).contains(&stats_of(&bench, 103).1), "{:?}", stats_of(&bench, 103));
    let blocks_read = full.blocks_read;
    let old = bench.store.version();
    // A flush of one entry, at the other end, sees to all of them.
    bench.now = 200;
    for round in 0..20 {
        bench.flush_entries(vec![entry(90_000 + round, None)]);
    }
    let stats = bench.store.stats(200);
    assert!(stats.blocks_read <= blocks_read + 20, "nothing but what was flushed to");
    assert_eq!((stats.expiring, stats.entry_count_max), (0, 20));
    assert!(stats.bytes_live < full.bytes_live / 20, "{stats:?}");
    // A version of before shows what it showed.
    assert_eq!(old.count(b"", None, 99).unwrap(), 2000);
    assert_eq!(old.count(b"", None, 103).unwrap(), 2000 - 4 * 286);
    drop(old);
    bench.store.remove_unreferenced();
    assert_eq!(bench.problems(), Vec::<String>::new());
}

#[test]
fn consolidation_leaves_alone_what_is_not_worth_it_unless_all_is_wanted() {
    let mut bench = Bench::new(small_options());
    let until = |number| Some(if number % 10 == 0 { 100 } else { 1_000_000 });
    bench.flush_entries((0..2000).map(|number| entry(number, until(number))).collect());
    consolidate(&bench, 0);
    let before = bench.store.stats(0).consolidations;
    assert!(!bench.store.has_much_expired(150));
    consolidate(&bench, 150);
    assert_eq!(bench.store.stats(0).consolidations, before, "a tenth is not worth it");
    let mut round = Arc::clone(&bench.store).begin_round((Slice::default(), None), 150);
    while !matches!(round.slice(1 << 20, 150).unwrap(), RoundSlice::Over) {}
    drop(round);
    assert_eq!(bench.store.stats(0).expiring, 1800, "all that has expired");
    assert!(bench.store.has_much_expired(1_000_000));
    consolidate(&bench, 1_000_000);
    assert_eq!(bench.store.stats(0).expiring, 0);
    assert_eq!(bench.problems(), Vec::<String>::new());
}

#[test]
fn counts_are_exact_at_every_moment() {
    for seed in 0..6 {
        let random = SeededEntropy::new(seed);
        let mut bench = Bench::new(small_options().consolidation_pace(8.0));
        let mut model: BTreeMap<Vec<u8>, Option<u64>> = BTreeMap::new();
        let mut now = 1000;
        for round in 0..12 {
            let mut entries = BTreeMap::new();
            for _ in 0..150 {
                let number = random.next_u64() % 900;
                let until = match random.next_u64() % 3 {
                    0 => None,
                    1 => Some(now + random.next_u64() % 300),
                    _ => Some(now + random.next_u64() % 5000),
                };
                let new = match random.next_u64() % 8 {
                    0 => (key(number), EntryKind::Tombstone, Vec::new()),
                    _ => entry(number, until),
                };
                entries.insert(key(number), (new, until));
            }
            for (key, ((_, kind, _), until)) in &entries {
                match kind {
                    EntryKind::Tombstone => drop(model.remove(key)),
                    _ => drop(model.insert(key.clone(), *until)),
                }
            }
            bench.now = now;
            bench.flush_entries(entries.into_values().map(|(new, _)| new).collect());
            now += random.next_u64() % 200;
            if round % 4 == 3 {
                bench.store.consolidate(4000, now).unwrap();
            }
            assert_eq!(bench.problems(), Vec::<String>::new());
            let version = bench.store.version();
            for later in [0, 1, 77, 300, 4000] {
                let at = now + later;
                let is_there = |until: &Option<u64>| until.is_none_or(|until| at < until);
                let (low, high) = (key(random.next_u64() % 900), key(random.next_u64() % 900));
                for (start, end) in [(Vec::new(), None), (low.clone(), None), (low, Some(high))] {
                    let expected = model.iter().filter(|(key, until)| {
                        **key >= start
                            && end.as_ref().is_none_or(|end| *key < end)
                            && is_there(until)
                    });
                    let counted = version.count(&start, end.as_deref(), at).unwrap();
                    assert_eq!(
                        counted,
                        expected.count() as u64,
                        "seed {seed}, round {round}, {at}"
                    );
                }
            }
        }
    }
}
