//! Control over compaction, of both structures: ranges, progress, cancelling, pauses and rates.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lithedb::storage::{
    FaultEffect, FaultPlan, FaultRule, MemoryStorage, Operation, SimStorage, Storage,
};
use lithedb::{
    Background, Builder, Codec, Db, Durability, Error, Keyspace, KeyspaceOptions, Stats, WriteBatch,
};

use crate::support::{assert_sound, rows, step_to_rest};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEY_COUNT: u64 = 3000;

fn builder(storage: &Arc<dyn Storage>) -> Builder {
    Db::builder()
        .storage(Arc::clone(storage))
        .background(Background::Stepped)
        .memory_budget(1 << 20)
        .memtable_size(32 << 10)
        .flush_slice_size(4 << 10)
}

fn structures() -> [KeyspaceOptions; 2] {
    // Flushes leave the most to others.
    let flex = KeyspaceOptions::flex().consolidation_pace(8.0).codec(Codec::None);
    let lsm = KeyspaceOptions::lsm().codec(Codec::None);
    [
        flex.interval_size(1 << 10).segment_size(16 << 10),
        lsm.table_size(16 << 10).block_size(1 << 10),
    ]
}

fn in_memory(options: KeyspaceOptions) -> (Db, Keyspace) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", options).unwrap();
    (db, keyspace)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn write(db: &Db, keyspace: &Keyspace, model: &mut Model, round: u64) {
    let mut batch = WriteBatch::new();
    for number in (0..KEY_COUNT).filter(|number| !(number + round).is_multiple_of(3)) {
        let value = format!("{round} of {number} ").repeat(3).into_bytes();
        batch.put(keyspace, key(number), &value);
        model.insert(key(number), value);
    }
    db.write_with(batch, Durability::Buffered).unwrap();
}

fn bytes_live(db: &Db) -> u64 {
    db.stats().bytes_live()
}

#[test]
fn a_range_is_compacted_beside_a_reader_and_a_snapshot() {
    for options in structures() {
        let (db, keyspace) = in_memory(options);
        let mut model = Model::new();
        write(&db, &keyspace, &mut model, 0);
        db.compact().unwrap();
        let before = model.clone();
        let snapshot = db.snapshot();
        let mut reader = keyspace.iter();
        let first = reader.next().unwrap().unwrap().key.to_vec();
        for round in 1..4 {
            write(&db, &keyspace, &mut model, round);
        }
        for range in [0..1000u64, 2000..2500] {
            let mut batch = WriteBatch::new();
            for number in range.step_by(3) {
                batch.delete(&keyspace, key(number));
                model.remove(&key(number));
            }
            db.write(batch).unwrap();
        }
        db.flush().unwrap();
        let mut reports = Vec::new();
        let live_before = bytes_live(&db);
        let report = keyspace.compact_while(key(0)..key(1000), |so_far| {
            reports.push(*so_far);
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert!(reports.len() > 2 && report.slices == reports.len() as u64, "{report:?}");
        assert!(reports.is_sorted_by_key(|report| (report.bytes_read, report.bytes_written)));
        assert!(reports[0].bytes_left > 0 && report.bytes_left == 0, "{reports:?}");
        assert!(report.bytes_read > 0 && !report.is_cancelled);
        let live_between = bytes_live(&db);
        assert!(live_between < live_before, "room comes back: {live_before} {live_between}");
        assert!(rows(&keyspace) == model);
        let shown = snapshot.iter(&keyspace).map(|entry| entry.unwrap().key.to_vec());
        assert!(shown.eq(before.keys().cloned()));
        let read: Vec<_> = reader.map(|entry| entry.unwrap().key.to_vec()).collect();
        assert_eq!((read.len() + 1, &first), (before.len(), &key(1)));
        // What was deleted elsewhere still takes room.
        keyspace.compact(key(2000)..key(2500)).unwrap();
        assert!(bytes_live(&db) < live_between, "{live_between}");
        db.compact().unwrap();
        assert!(rows(&keyspace) == model);
        assert_sound(&db);
    }
}

#[test]
fn ranges_without_anything_are_nothing_to_do() {
    for options in structures() {
        let (db, keyspace) = in_memory(options);
        let mut never = |_: &lithedb::CompactionReport| panic!("nothing is done");
        let nothing = keyspace.compact_while::<&[u8]>(.., &mut never).unwrap();
        assert_eq!(nothing, lithedb::CompactionReport::default());
        let mut model = Model::new();
        write(&db, &keyspace, &mut model, 0);
        db.compact().unwrap();
        write(&db, &keyspace, &mut model, 1);
        let flushes = db.stats().keyspaces[0].flushes;
        for (from, to) in [("b", "b"), ("z", "a")] {
            let report = keyspace.compact_while(from..to, &mut never).unwrap();
            assert_eq!(report, nothing);
        }
        assert_eq!(db.stats().keyspaces[0].flushes, flushes, "not even flushed");
        db.flush().unwrap();
        let written = db.stats().keyspaces[0].structure_bytes_written;
        keyspace.compact("a".."b").unwrap();
        let so_little = db.stats().keyspaces[0].structure_bytes_written - written;
        assert!(so_little <= 4 << 10, "an interval at most: {so_little}");
        keyspace.compact::<&str>("z"..).unwrap();
        assert!(rows(&keyspace) == model);
        assert_sound(&db);
    }
}

#[test]
fn a_cancelled_compaction_leaves_nothing_behind_and_can_be_done_again() {
    for options in structures() {
        for slices in [1, 2] {
            let (db, keyspace) = in_memory(options.clone());
            let mut model = Model::new();
            for round in 0..5 {
                write(&db, &keyspace, &mut model, round);
                db.flush().unwrap();
            }
            let stop_at = |count: u64| {
                move |so_far: &lithedb::CompactionReport| match so_far.slices >= count {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            let all = keyspace.compact_while::<&[u8]>(.., stop_at(slices)).unwrap();
            assert!(all.is_cancelled && all.slices == slices && all.bytes_left > 0, "{all:?}");
            let everything = db.compact_while(stop_at(1)).unwrap();
            assert!(everything.is_cancelled, "{everything:?}");
            let report = db.check().unwrap();
            assert!(report.is_ok() && report.orphans.is_empty(), "{report:?}");
            assert!(rows(&keyspace) == model);
            step_to_rest(&db);
            db.compact().unwrap();
            let again = db.compact_while(stop_at(1)).unwrap();
            assert!(!again.is_cancelled && again.bytes_read == 0, "{again:?}");
            assert!(rows(&keyspace) == model);
            assert_sound(&db);
        }
    }
}

#[test]
fn ranges_are_compacted_by_several_threads_beside_a_writer() {
    for options in structures() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let db = builder(&storage).background(Background::Threads).open("/db").unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        let mut model = Model::new();
        (0..3).for_each(|round| write(&db, &keyspace, &mut model, round));
        let is_over = AtomicBool::new(false);
        let before = model;
        let model = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut model = before.clone();
                let mut round = 3;
                while !is_over.load(Ordering::Relaxed) {
                    write(&db, &keyspace, &mut model, round);
                    round += 1;
                }
                model
            });
            let compactors: Vec<_> = [(0, 3000), (0, 1600), (1400, 3000), (700, 701)]
                .map(|(from, to)| {
                    let keyspace = keyspace.clone();
                    scope.spawn(move || {
                        for _ in 0..2 {
                            keyspace.compact(key(from)..key(to)).unwrap();
                        }
                    })
                })
                .into();
            compactors.into_iter().for_each(|compactor| compactor.join().unwrap());
            let pause = db.pause_background();
            keyspace.compact(key(5)..).unwrap();
            db.compact().unwrap();
            drop(pause);
            is_over.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert!(rows(&keyspace) == model);
        db.compact().unwrap();
        assert!(rows(&keyspace) == model);
        assert_sound(&db);
        db.close().unwrap();
    }
}

#[test]
fn while_the_background_is_paused_flushes_go_on_and_compaction_does_not() {
    let [_, lsm] = structures();
    let (db, keyspace) = in_memory(lsm);
    let mut model = Model::new();
    let compacted = |stats: &Stats| stats.keyspaces[0].session.consolidation;
    let (outer, inner) = (db.pause_background(), db.pause_background());
    assert_eq!(db.stats().background_pauses, 2);
    for round in 0..20 {
        write(&db, &keyspace, &mut model, round);
        step_to_rest(&db);
    }
    let stats = db.stats();
    assert!(stats.keyspaces[0].flushes >= 20 && compacted(&stats) == 0, "{stats:?}");
    assert!(stats.keyspaces[0].fresh_runs > 12 && stats.keyspaces[0].compaction_debt > 0);
    assert!(stats.to_prometheus().contains("lithedb_background_paused 1\n"));
    drop(outer);
    step_to_rest(&db);
    assert_eq!(compacted(&db.stats()), 0, "the other pause goes on");
    // What somebody asks for is done.
    keyspace.compact(key(0)..key(10)).unwrap();
    assert!(compacted(&db.stats()) > 0);
    for round in 20..40 {
        write(&db, &keyspace, &mut model, round);
        step_to_rest(&db);
    }
    let behind = compacted(&db.stats());
    drop(inner);
    assert_eq!(db.stats().background_pauses, 0);
    step_to_rest(&db);
    let stats = db.stats();
    assert!(compacted(&stats) > behind && stats.keyspaces[0].compaction_debt == 0, "{stats:?}");
    assert!(rows(&keyspace) == model);
    assert_sound(&db);
}

#[test]
fn cleaning_and_consolidation_are_paused_too_and_closing_is_not() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = builder(&storage).value_file_size(64 << 10).open("/db").unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let pause = db.pause_background();
    for round in 0..6u64 {
        for number in (0..300u64).filter(|number| round == 0 || number % 2 == 0) {
            let value = (number + round * 1000).to_le_bytes().repeat(700);
            keyspace.put_with(key(number), value, Durability::Buffered).unwrap();
        }
        db.flush().unwrap();
        step_to_rest(&db);
    }
    assert_eq!(db.stats().values_moved, 0);
    let other = db.pause_background();
    drop(other);
    db.vacuum().unwrap();
    assert!(db.stats().values_moved > 0, "what somebody asks for");
    db.close().unwrap();
    drop(pause);
    let db = builder(&storage).open("/db").unwrap();
    assert_eq!(db.stats().background_pauses, 0);
    assert_eq!(db.keyspace("k").unwrap().len().unwrap(), 300);
    assert_sound(&db);
}

#[test]
fn a_database_with_threads_is_closed_while_it_is_paused() {
    for options in structures() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let db = builder(&storage).background(Background::Threads).open("/db").unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        let mut model = Model::new();
        (0..4).for_each(|round| write(&db, &keyspace, &mut model, round));
        let pause = db.pause_background();
        (4..8).for_each(|round| write(&db, &keyspace, &mut model, round));
        drop((db, keyspace)); // The guard does not keep it open.
        let db = builder(&storage).open("/db").unwrap();
        drop(pause);
        assert!(rows(&db.keyspace("k").unwrap()) == model);
        assert_sound(&db);
    }
}

#[test]
fn a_disk_that_is_full_ends_a_compaction_and_nothing_else() {
    for options in structures() {
        (0..6).for_each(|slices| compact_until_full(options.clone(), slices));
    }
}

/// Compacts on a disk that has no room from behind so many slices on.
fn compact_until_full(options: KeyspaceOptions, slices: u64) {
    let sim = SimStorage::new(5);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", options).unwrap();
    let mut model = Model::new();
    for round in 0..4 {
        write(&db, &keyspace, &mut model, round);
        db.flush().unwrap();
    }
    let rule = FaultRule::new(FaultEffect::OsError(28)).path("keyspaces");
    let rule = rule.on(&[Operation::Create, Operation::Write]).lasting();
    let arm_behind = |done: u64| {
        if done == slices {
            sim.arm(FaultPlan::new().rule(rule.clone()));
        }
    };
    arm_behind(0);
    let refused = keyspace.compact_while(key(0)..key(2500), |so_far| {
        arm_behind(so_far.slices);
        ControlFlow::Continue(())
    });
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{slices}: {refused:?}");
    assert!(db.stats().read_only.is_none());
    assert!(rows(&keyspace) == model);
    sim.disarm();
    let report = db.check().unwrap();
    assert!(report.is_ok() && report.orphans.is_empty(), "{report:?}");
    db.compact().unwrap();
    assert!(rows(&keyspace) == model);
    assert_sound(&db);
}

#[test]
fn who_compacts_what_is_closed_or_gone_is_told() {
    for options in structures() {
        let (db, keyspace) = in_memory(options.clone());
        let other = db.create_keyspace("other", options).unwrap();
        let mut model = Model::new();
        for round in 0..4 {
            write(&db, &keyspace, &mut model, round);
            db.flush().unwrap();
        }
        let mut is_dropped = false;
        let gone = keyspace.compact_while::<&[u8]>(.., |_| {
            if !std::mem::replace(&mut is_dropped, true) {
                db.drop_keyspace("k").unwrap();
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(gone, Err(Error::KeyspaceNotFound { .. })), "{gone:?}");
        let gone = keyspace.compact::<&[u8]>(..);
        assert!(matches!(gone, Err(Error::KeyspaceNotFound { .. })), "{gone:?}");
        drop(keyspace);
        step_to_rest(&db);
        let mut model = Model::new();
        for round in 0..4 {
            write(&db, &other, &mut model, round);
            db.flush().unwrap();
        }
        let closed = db.compact_while(|_| {
            db.close().unwrap();
            ControlFlow::Continue(())
        });
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        assert!(matches!(other.compact::<&[u8]>(..), Err(Error::Closed)));
        assert!(matches!(db.set_compaction_rate(None), Err(Error::Closed)));
        drop(db.pause_background());
    }
}

#[test]
fn rates_are_set_while_it_is_open() {
    let (db, _) = in_memory(KeyspaceOptions::lsm());
    assert_eq!(db.stats().compaction_rate, None);
    db.set_compaction_rate(Some(1 << 20)).unwrap();
    db.set_cleaning_rate(2 << 20).unwrap();
    for refused in [db.set_compaction_rate(Some(1)), db.set_cleaning_rate(1)] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    let stats = db.stats();
    assert_eq!((stats.compaction_rate, stats.cleaning_rate), (Some(1 << 20), 2 << 20));
    let text = stats.to_prometheus();
    assert!(text.contains("lithedb_compaction_rate_bytes 1048576\n"), "{text}");
    db.set_compaction_rate(None).unwrap();
    assert_eq!(db.stats().compaction_rate, None);
}
