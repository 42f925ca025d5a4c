//! Keyspaces of the structure Lsm through the public interface: what compaction, snapshots, deleted
//! ranges, ingests and reopening do to what is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use lithedb::base::{Clock, Entropy, SeededEntropy, SystemClock};
use lithedb::storage::{
    FaultEffect, FaultPlan, FaultRule, MemoryStorage, Operation, SimStorage, Storage,
};
use lithedb::{
    Background, Builder, Compaction, Db, Durability, Error, Keyspace, KeyspaceOptions, Leveled,
    Structure, Tiered, WriteBatch,
};

use crate::support::hints::HintedStorage;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn builder(storage: &Arc<MemoryStorage>) -> Builder {
    Db::builder()
        .storage(Arc::clone(storage) as Arc<dyn Storage>)
        .background(Background::Stepped)
        .memory_budget(1 << 20)
        .memtable_size(32 << 10)
}

fn leveled() -> KeyspaceOptions {
    let leveled = Leveled::new().level0_trigger(2).level_ratio(3.0);
    small(KeyspaceOptions::lsm().compaction(Compaction::Leveled(leveled)))
}

fn tiered() -> KeyspaceOptions {
    let tiered = Tiered::new().threshold(3).run_count_max(6);
    small(KeyspaceOptions::lsm().compaction(Compaction::Tiered(tiered)))
}

fn small(options: KeyspaceOptions) -> KeyspaceOptions {
    options.table_size(16 << 10).block_size(1 << 10)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("value {round} of {number} ").repeat(1 + (number % 5) as usize).into_bytes()
}

/// Does what is left to be done.
fn settle(db: &Db) {
    while db.step().unwrap() {}
}

fn assert_equal(keyspace: &Keyspace, model: &Model) {
    let found: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
    let found: Vec<_> =
        found.iter().map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert!(found == expected, "{} entries, expected {}", found.len(), expected.len());
    let backward: Vec<_> = keyspace.iter().rev().map(|entry| entry.unwrap().key.to_vec()).collect();
    assert!(backward.iter().eq(model.keys().rev()));
    assert_eq!(keyspace.len().unwrap(), model.len() as u64);
    for number in (0..4000).step_by(37) {
        let key = key(number);
        assert_eq!(keyspace.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
    }
    let (start, end) = (key(500), key(1500));
    let in_range = model.range(start.clone()..end.clone()).count() as u64;
    assert_eq!(keyspace.count(start..end).unwrap(), in_range);
}

/// Overwrites and deletes at random, in batches, with work in between.
fn churn(db: &Db, keyspace: &Keyspace, model: &mut Model, rounds: std::ops::Range<u64>) {
    for round in rounds {
        let mut batch = WriteBatch::new();
        for step in 0..300u64 {
            let number = (round * 7919 + step * step * 31 + step) % 4000;
            if (round + step) % 5 == 0 {
                batch.delete(keyspace, key(number));
                model.remove(&key(number));
            } else {
                batch.put(keyspace, key(number), value(number, round));
                model.insert(key(number), value(number, round));
            }
        }
        db.write_with(batch, Durability::Buffered).unwrap();
        if round % 3 == 0 {
            settle(db);
        }
    }
}

#[test]
fn what_is_read_equals_a_map_whatever_the_shape_and_after_reopening() {
    for options in [leveled(), tiered(), leveled().filter_bits(0), tiered().restart_interval(16)] {
        let storage = Arc::new(MemoryStorage::new());
        let mut model = Model::new();
        for opening in 0..3 {
            let db = builder(&storage).open("/db").unwrap();
            let keyspace = match opening {
                0 => db.create_keyspace("k", options.clone()).unwrap(),
                _ => db.keyspace("k").unwrap(),
            };
            churn(&db, &keyspace, &mut model, opening * 40..opening * 40 + 40);
            assert_equal(&keyspace, &model);
            settle(&db);
            assert_equal(&keyspace, &model);
            assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
            if opening < 2 {
                db.close().unwrap();
            }
        }
    }
}

#[test]
fn compacting_everything_leaves_one_run_without_garbage() {
    for options in [leveled(), tiered()] {
        let storage = Arc::new(MemoryStorage::new());
        let db = builder(&storage).open("/db").unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        let mut model = Model::new();
        churn(&db, &keyspace, &mut model, 0..60);
        db.compact().unwrap();
        let tables = keyspace.tables();
        assert!(!tables.is_empty());
        let runs: std::collections::BTreeSet<_> =
            tables.iter().map(|table| (table.level, table.run)).collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        assert_eq!(tables.iter().map(|table| table.tombstones).sum::<u64>(), 0);
        let entries: u64 = tables.iter().map(|table| table.entries).sum();
        assert_eq!(entries, model.len() as u64);
        assert_equal(&keyspace, &model);
    }
}

#[test]
fn a_snapshot_shows_what_it_showed_whatever_is_compacted() {
    let storage = Arc::new(MemoryStorage::new());
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", leveled()).unwrap();
    let mut model = Model::new();
    churn(&db, &keyspace, &mut model, 0..30);
    let (before, snapshot) = (model.clone(), db.snapshot());
    churn(&db, &keyspace, &mut model, 30..90);
    keyspace.delete_range(key(0)..key(2000)).unwrap();
    model.retain(|found, _| *found >= key(2000));
    db.compact().unwrap();
    let found: Vec<_> = snapshot.iter(&keyspace).map(|entry| entry.unwrap().key.to_vec()).collect();
    assert!(found.iter().eq(before.keys()));
    for number in (0..4000).step_by(41) {
        let key = key(number);
        assert_eq!(
            snapshot.get(&keyspace, &key).unwrap().as_deref(),
            before.get(&key).map(Vec::as_slice)
        );
    }
    let pinned = db.stats().keyspaces[0].bytes_pinned;
    assert!(pinned > 0);
    drop(snapshot);
    settle(&db);
    assert_eq!(db.stats().keyspaces[0].bytes_pinned, 0);
    assert_equal(&keyspace, &model);
}

#[test]
fn deleted_ranges_hide_what_is_older_until_nothing_older_is_left() {
    let storage = Arc::new(MemoryStorage::new());
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", leveled()).unwrap();
    let mut model = Model::new();
    churn(&db, &keyspace, &mut model, 0..40);
    for (start, end) in [(100, 200), (150, 900), (3000, 3001), (2500, 2400)] {
        keyspace.delete_range(key(start)..key(end)).unwrap();
        model.retain(|found, _| *found < key(start) || *found >= key(end));
        keyspace.put(key(start + 10), b"again").unwrap();
        model.insert(key(start + 10), b"again".to_vec());
        db.flush().unwrap();
        assert_equal(&keyspace, &model);
    }
    keyspace.delete_range(key(3500)..).unwrap();
    model.retain(|found, _| *found < key(3500));
    db.flush().unwrap();
    assert_equal(&keyspace, &model);
    assert!(keyspace.tables().iter().any(|table| table.deleted_ranges > 0));
    db.compact().unwrap();
    assert!(keyspace.tables().iter().all(|table| table.deleted_ranges == 0));
    assert_equal(&keyspace, &model);
    keyspace.clear().unwrap();
    db.compact().unwrap();
    assert_eq!(keyspace.tables(), Vec::new());
    assert!(keyspace.is_empty().unwrap());
}

#[test]
fn an_ingest_goes_as_deep_as_nothing_is_in_the_way() {
    let storage = Arc::new(MemoryStorage::new());
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", leveled()).unwrap();
    let mut model: Model = (0..2000).map(|number| (key(2 * number), value(number, 0))).collect();
    keyspace.ingest(model.iter()).unwrap();
    assert!(keyspace.tables().iter().all(|table| table.level == 6));
    // Between two keys that are there, and in place of one.
    let over: Model = (100..300).map(|number| (key(number), value(number, 1))).collect();
    keyspace.ingest(over.iter()).unwrap();
    assert!(keyspace.tables().iter().any(|table| table.level < 6));
    model.extend(over);
    assert_equal(&keyspace, &model);
    settle(&db);
    db.compact().unwrap();
    assert_equal(&keyspace, &model);
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn structures_share_transactions_and_differ_in_nothing_that_is_read() {
    let storage = Arc::new(MemoryStorage::new());
    let db = builder(&storage).open("/db").unwrap();
    let lsm = db.create_keyspace("lsm", leveled()).unwrap();
    let flex = db.create_keyspace("flex", KeyspaceOptions::flex().interval_size(1024)).unwrap();
    for round in 0..200u64 {
        db.update(|tx| {
            for step in 0..40 {
                let number = (round * 97 + step * 13) % 1000;
                for keyspace in [&lsm, &flex] {
                    match (round + step) % 7 {
                        0 => tx.delete(keyspace, key(number))?,
                        _ => tx.put(keyspace, key(number), value(number, round))?,
                    }
                }
            }
            Ok::<_, lithedb::Error>(())
        })
        .unwrap();
        if round % 20 == 0 {
            settle(&db);
        }
    }
    let entries = |keyspace: &Keyspace| -> Vec<_> {
        let entries = keyspace.iter().map(Result::unwrap);
        entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec(), entry.seqno)).collect()
    };
    assert!(entries(&lsm) == entries(&flex));
    let count = |keyspace: &Keyspace| keyspace.prefix(b"key 0001").count();
    assert_eq!(count(&lsm), count(&flex));
    let structures: Vec<_> = db.keyspaces().iter().map(|info| info.structure).collect();
    assert_eq!(structures, [Structure::Flex.name(), Structure::Lsm.name()]);
}

/// Runs that are not worth merging for those who write are, once seeks have looked into them often.
#[test]
fn seeks_pay_for_fewer_runs() {
    let runs_after = |seeks: u64| {
        let leveled = Leveled::new().level0_trigger(8);
        let storage = Arc::new(MemoryStorage::new());
        let db =
            builder(&storage).memory_budget(8 << 20).memtable_size(1 << 20).open("/db").unwrap();
        let options = small(KeyspaceOptions::lsm().compaction(Compaction::Leveled(leveled)));
        let keyspace = db.create_keyspace("runs", options).unwrap();
        let mut model = Model::new();
        // Each run is larger than those before it, and the first than all.
        for (round, step) in [(0, 1), (1, 200), (1, 66), (1, 20)] {
            for number in (0..4000).step_by(step) {
                keyspace.put(key(2 * number + round), value(number, round)).unwrap();
                model.insert(key(2 * number + round), value(number, round));
            }
            db.flush().unwrap();
        }
        settle(&db);
        let before = db.stats().keyspaces[0].runs;
        for number in 0..seeks {
            let first = keyspace.range(key(2 * number)..).next().unwrap().unwrap();
            assert_eq!(*first.key, key(2 * number));
            keyspace.put("zz", "somebody writes").unwrap();
        }
        model.insert(b"zz".to_vec(), b"somebody writes".to_vec());
        settle(&db);
        assert_equal(&keyspace, &model);
        assert!(db.check().unwrap().is_ok());
        (before, db.stats().keyspaces[0].runs)
    };
    let (before, few) = runs_after(5);
    assert!(before >= 2 && few == before, "{before} runs, {few}");
    let (before, many) = runs_after(400);
    assert!(before >= 2 && many < before, "{before} runs, {many}");
}

/// What can be done without and has failed is not tried over and over.
#[test]
fn idle_compaction_that_found_no_room_waits_for_the_next_flush() {
    let sim = SimStorage::new(7);
    let builder = Db::builder().storage(Arc::new(sim.clone())).background(Background::Stepped);
    let db = builder.memory_budget(8 << 20).memtable_size(1 << 20).open("/db").unwrap();
    let leveled = Leveled::new().level0_trigger(8);
    let options = small(KeyspaceOptions::lsm().compaction(Compaction::Leveled(leveled)));
    let keyspace = db.create_keyspace("runs", options).unwrap();
    let mut model = Model::new();
    let mut flush = |round| {
        for number in 0..2000 {
            keyspace.put(key(number), value(number, round)).unwrap();
            model.insert(key(number), value(number, round));
        }
        db.flush().unwrap();
    };
    (0..3).for_each(&mut flush);
    let runs = || db.stats().keyspaces[0].runs;
    let before = runs();
    assert!(before > 1);
    let rule = FaultRule::new(FaultEffect::OsError(28)).path("keyspaces");
    let rule = rule.on(&[Operation::Create]).lasting();
    sim.arm(FaultPlan::new().rule(rule));
    // Tables that only move down find room.
    let refused = (0..20).map(|_| db.step()).find(Result::is_err).unwrap_or(Ok(false));
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    (0..10).for_each(|_| assert!(!db.step().unwrap(), "tried again"));
    sim.disarm();
    assert!(!db.step().unwrap() && runs() == before, "nothing was flushed");
    flush(3);
    settle(&db);
    assert!(runs() < before, "{} runs", runs());
    assert_equal(&keyspace, &model);
    assert!(db.check().unwrap().is_ok());
}

/// Of several keys, what has to come from the disk is asked for at once: blocks of each table, runs
/// of intervals, and large values.
#[test]
fn several_keys_are_read_at_once() {
    const COUNT: u64 = 4000;
    let (lsm, flex) = (KeyspaceOptions::lsm, KeyspaceOptions::flex);
    for (options, watched, value_len, least) in [
        (lsm(), "tbl-", 100, 90),
        (lsm(), "val-", 5000, 90),
        (flex(), "seg-", 100, 28),
        (flex(), "val-", 5000, 90),
    ] {
        let hinted = HintedStorage::watching(watched);
        let storage: Arc<dyn Storage> = Arc::new(hinted.clone());
        let open = || {
            let builder = Db::builder().storage(Arc::clone(&storage));
            builder.memory_budget(64 << 20).background(Background::Stepped).open("/db").unwrap()
        };
        let large = |number: u64| format!("{number:0value_len$}").into_bytes();
        let db = open();
        let options = options.value_separation(Some(4000));
        let keyspace = db.create_keyspace("k", options).unwrap();
        for part in [0, COUNT / 2] {
            for number in part..part + COUNT / 2 {
                keyspace.put_with(key(number), large(number), Durability::Buffered).unwrap();
            }
            db.flush().unwrap();
        }
        keyspace.delete(key(7)).unwrap();
        drop((keyspace, db));
        let db = open(); // With nothing in memory.
        let keyspace = db.keyspace("k").unwrap();
        let _before = hinted.take_reads();
        let mixed: Vec<u64> = (0..400).map(|number| number * 2_654_435_761 % (COUNT + 9)).collect();
        let numbers: Vec<u64> = [7, 7].into_iter().chain(mixed).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
        let values = keyspace.multi_get(&keys).unwrap();
        for (number, value) in numbers.iter().zip(&values) {
            let expected = (*number < COUNT && *number != 7).then(|| large(*number));
            assert_eq!(value.as_deref(), expected.as_deref(), "{number}");
        }
        let reads = hinted.take_reads();
        // Beside blocks: what tables are opened by, and their partitions.
        assert!(reads.announced > least && reads.others < reads.announced / 3, "{reads:?}");
    }
}

/// Prints what several keys at once cost, beside one after the other.
///
///     cargo test --release --test it figures_of_several_keys -- --ignored --nocapture
#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_of_several_keys_at_once() {
    const COUNT: u64 = 2_000_000;
    const AT_ONCE: usize = 200;
    let clock = SystemClock::new();
    for (options, name) in [(KeyspaceOptions::lsm(), "Lsm"), (KeyspaceOptions::flex(), "Flex")] {
        let dir = tempfile::tempdir().unwrap();
        let random = SeededEntropy::new(1);
        let keys = || (0..AT_ONCE).map(|_| key(random.next_u64() % COUNT)).collect::<Vec<_>>();
        for (memory, advised) in [(1 << 30, false), (64 << 20, false), (64 << 20, true)] {
            let db = Db::builder().memory_budget(memory).open(dir.path()).unwrap();
            if db.keyspaces().is_empty() {
                let keyspace = db.create_keyspace("k", options.clone()).unwrap();
                for first in (0..COUNT).step_by(1000) {
                    let mut batch = WriteBatch::new();
                    for number in first..first + 1000 {
                        batch.put(&keyspace, key(number), [number as u8; 100]);
                    }
                    db.write_with(batch, Durability::Buffered).unwrap();
                }
                db.compact().unwrap();
            }
            let keyspace = db.keyspace("k").unwrap();
            let (mut together, mut apart) = (0.0, 0.0);
            for round in 0..400 {
                if advised {
                    forget_files(dir.path());
                }
                let keys = keys();
                let began = clock.monotonic();
                match round % 2 {
                    0 => assert!(keyspace.multi_get(&keys).unwrap().iter().all(Option::is_some)),
                    _ => assert!(keys.iter().all(|key| keyspace.get(key).unwrap().is_some())),
                }
                let took = (clock.monotonic() - began).as_secs_f64() * 1e9 / AT_ONCE as f64;
                *(if round % 2 == 0 { &mut together } else { &mut apart }) += took / 200.0;
            }
            let cold = if advised { ", the system's cache emptied" } else { "" };
            let mib = memory >> 20;
            println!("{name}, {mib} MiB{cold}: {together:.0} ns a key together, {apart:.0} apart");
        }
    }
}

/// Has the system forget what it holds of the files in a directory.
fn forget_files(dir: &std::path::Path) {
    let status = std::process::Command::new("find")
        .arg(dir)
        .args(["-type", "f", "-exec", "dd", "if={}", "iflag=nocache", "count=0", ";"])
        .stderr(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}
