//! Memory and files: what is kept, what gives way, what is removed when.

use std::io::ErrorKind;

use super::*;
use crate::cache::Part;
use crate::storage::{FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};

fn large_model(dice: &Dice, count: u32) -> Model {
    let key = |number: u32| format!("key{number:07}").into_bytes();
    (0..count).map(|number| (key(number), value(dice.bytes(100)))).collect()
}

#[test]
fn all_is_read_once_where_there_is_room() {
    let (bench, dice) = (Bench::new(), Dice::new(31));
    let model = large_model(&dice, 20_000);
    let table = bench.written(&TableOptions::default(), &model);
    for _ in 0..2 {
        for (key, expected) in &model {
            assert_eq!(bench.find(&table, key).unwrap().as_ref(), Some(expected));
        }
    }
    let (reads, bytes) = bench.caches.reads();
    let properties = table.properties(&bench.caches).unwrap();
    assert_eq!(reads, 1 + properties.partitions + properties.blocks);
    assert!(bytes <= table.record.size);
    let used = bench.budget.usage(Part::Cache) as u64;
    assert!(used >= properties.raw_bytes && used < 2 * properties.raw_bytes);
    assert!(bench.budget.usage(Part::Index) > 0 && bench.budget.usage(Part::CachedIndex) > 0);
    let path = table.path().to_owned();
    drop(table);
    for part in [Part::Cache, Part::Index, Part::CachedIndex, Part::Buffer] {
        assert_eq!(bench.budget.usage(part), 0, "{part:?}");
    }
    assert!(bench.storage.exists(&path).unwrap());
}

#[test]
fn little_memory_holds_and_answers_stay_right() {
    for limit in [0, 10 << 10, 100 << 10, 400 << 10] {
        let (bench, dice) = (Bench::with_memory(limit), Dice::new(32));
        let model = large_model(&dice, 15_000);
        let table = bench.written(&TableOptions::default(), &model);
        let all = entries(&model);
        for step in 0..6000 {
            let (key, expected) = &all[dice.below(all.len() as u64) as usize];
            assert_eq!(bench.find(&table, key).unwrap().as_ref(), Some(expected));
            if step % 500 == 0 {
                let mut cursor = bench.cursor(&table, ReadMode::Normal);
                cursor.seek(key).unwrap();
                for (key, _) in all.iter().skip_while(|(other, _)| other < key).take(200) {
                    assert_eq!(cursor.key(), Some(key.as_slice()));
                    cursor.next().unwrap();
                }
            }
            let cached = bench.budget.usage(Part::CachedIndex);
            assert!(cached <= bench.budget.index_target() + 32 * 1024, "{cached} of {limit}");
        }
        // A partition may have come since a block did.
        let used = bench.budget.usage(Part::Cache);
        assert!(used <= bench.budget.cache_target() + 64 * 1024, "{used} of {limit}");
        assert_eq!(bench.findings(&table).problems, Vec::<String>::new());
    }
}

#[test]
fn blocks_go_with_their_partition() {
    let (bench, dice) = (Bench::with_memory(4 << 20), Dice::new(33));
    let model = large_model(&dice, 5000);
    let options = TableOptions { block_size: 400, ..TableOptions::default() };
    let table = bench.written(&options, &model);
    model.keys().for_each(|key| drop(bench.find(&table, key).unwrap()));
    let usage = || (bench.budget.usage(Part::CachedIndex), bench.budget.usage(Part::Cache));
    let before = usage();
    // Indexes that stay take nearly all the room of those that do not.
    let index = bench.budget.charge(Part::Index, 4 << 20);
    bench.caches.partitions.trim();
    let after = usage();
    assert!(after.0 <= bench.budget.index_target() && after.0 < before.0 * 3 / 4, "{after:?}");
    assert!(after.1 < before.1 * 7 / 8, "{after:?} of {before:?}");
    drop(index);
    bench.assert_holds(&table, &model);
}

#[test]
fn threads_read_what_is_there_while_it_is_evicted() {
    let (bench, dice) = (Bench::with_memory(300 << 10), Dice::new(34));
    let model = large_model(&dice, 8000);
    let table = bench.written(&TableOptions::default(), &model);
    let all = entries(&model);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (bench, table, all) = (&bench, &table, &all);
            scope.spawn(move || {
                let dice = Dice::new(seed);
                for _ in 0..3000 {
                    let (key, expected) = &all[dice.below(all.len() as u64) as usize];
                    assert_eq!(bench.find(table, key).unwrap().as_ref(), Some(expected));
                }
            });
        }
    });
    assert!(bench.caches.blocks.counts().evictions > 0);
}

#[test]
fn a_retired_table_is_removed_when_nobody_holds_it() {
    let (bench, dice) = (Bench::new(), Dice::new(35));
    let model = large_model(&dice, 500);
    let record = bench.write(&TableOptions::default(), &model);
    let table = bench.table(&record);
    let path = table.path().to_owned();
    let held = Arc::clone(&table);
    assert!(bench.place.is_known(record.number));
    table.retire();
    table.retire();
    assert_eq!(bench.place.pinned_bytes(), record.size);
    drop(table);
    bench.place.remove_doomed();
    bench.assert_holds(&held, &model);
    let used =
        || [Part::Cache, Part::Index, Part::CachedIndex].map(|part| bench.budget.usage(part));
    let before = used();
    assert!(before.iter().all(|&bytes| bytes > 0), "{before:?}");
    drop(held);
    assert_eq!(bench.place.pinned_bytes(), 0);
    assert!(bench.storage.exists(&path).unwrap() && bench.place.is_known(record.number));
    // Who lets go last, a reader perhaps, does not free what may be much.
    assert_eq!(used(), before);
    bench.place.remove_doomed();
    assert!(!bench.storage.exists(&path).unwrap());
    assert_eq!(used(), [0; 3]);
    assert_eq!(bench.place.numbers().unwrap(), Vec::<u64>::new());
}

#[test]
fn numbers_are_used_once_and_files_of_nobody_are_found() {
    let (bench, dice) = (Bench::new(), Dice::new(36));
    bench.place.skip_to(5);
    let model = large_model(&dice, 10);
    let listed = bench.write(&TableOptions::default(), &model);
    let table = bench.table(&listed);
    let mut unfinished =
        TableWriter::create(&bench.place, &TableOptions::default(), &bench.budget).unwrap();
    let said = value("v");
    let (seqno, kind) = (said.seqno, said.kind);
    unfinished.add(EntryRef { key: b"k", seqno, kind, value: b"v" }).unwrap();
    let number = unfinished.number();
    assert_eq!((listed.number, number, bench.place.next_number()), (5, 6, 7));
    assert!(bench.place.is_known(5) && bench.place.is_known(6));
    drop(unfinished);
    assert_eq!(bench.place.numbers().unwrap(), [5, 6]);
    assert!(!bench.place.is_known(6), "an orphan");
    bench.place.remove_orphan(6).unwrap();
    drop(table);
    assert!(!bench.place.is_known(5));
}

#[test]
fn a_table_that_cannot_be_written_leaves_no_file() {
    for operation in [Operation::Write, Operation::Sync] {
        let storage = SimStorage::new(3);
        let bench = Bench::at(Arc::new(storage.clone()), Path::new(DIR), 1 << 20);
        let dice = Dice::new(37);
        let mut writer =
            TableWriter::create(&bench.place, &TableOptions::default(), &bench.budget).unwrap();
        for (key, Said { seqno, kind, value }) in &large_model(&dice, 100) {
            writer.add(EntryRef { key, seqno: *seqno, kind: *kind, value }).unwrap();
        }
        let fault = FaultRule::new(FaultEffect::Error(ErrorKind::Other)).on(&[operation]);
        storage.arm(FaultPlan::new().rule(fault));
        writer.finish().unwrap_err();
        assert_eq!(bench.place.numbers().unwrap(), Vec::<u64>::new());
        assert_eq!(bench.budget.usage(Part::Buffer), 0);
    }
}
