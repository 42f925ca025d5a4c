//! Large values: outside of memtables and runs, kept by snapshots, not written twice, read when
//! they are wanted, and their room given back.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithe_sim::crash::{CrashRun, STATES};
use lithe_sim::ledger::{Ledger, VALUE_BYTES};
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, MemoryStorage, OpenMode, Operation, SimStorage,
    Storage,
};
use lithedb::{
    Background, Builder, Cleaning, Db, Durability, Error, KeyRange, Keyspace, KeyspaceOptions,
    WriteBatch,
};

use crate::support::assert_sound;

const VALUE_SIZE: usize = 3000;
const FILE_SIZE: u64 = 64 << 10;

fn builder(storage: &Arc<dyn Storage>) -> Builder {
    let builder = Db::builder().storage(Arc::clone(storage)).background(Background::Stepped);
    builder.memory_budget(4 << 20).value_file_size(FILE_SIZE)
}

fn open(storage: &Arc<dyn Storage>) -> (Db, Keyspace) {
    open_with(builder(storage))
}

fn open_with(builder: Builder) -> (Db, Keyspace) {
    let db = builder.open("/db").unwrap();
    let options = KeyspaceOptions::flex().value_separation(Some(1000)).interval_size(512);
    let keyspace = match db.keyspace("k") {
        Ok(keyspace) => keyspace,
        Err(_) => db.create_keyspace("k", options).unwrap(),
    };
    (db, keyspace)
}

fn fresh() -> (Arc<dyn Storage>, Db, Keyspace) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (db, keyspace) = open(&storage);
    (storage, db, keyspace)
}

fn value_of(key: u32, round: u32) -> Vec<u8> {
    let word = (u64::from(key) << 32 | u64::from(round)).to_le_bytes();
    word.iter().copied().cycle().take(VALUE_SIZE + key as usize % 100).collect()
}

fn put_all(db: &Db, keyspace: &Keyspace, keys: impl Iterator<Item = u32>, round: u32) {
    let mut batch = WriteBatch::new();
    for key in keys {
        batch.put(keyspace, key.to_be_bytes(), value_of(key, round));
    }
    db.write_with(batch, Durability::Buffered).unwrap();
}

fn assert_values(keyspace: &Keyspace, count: u32, round_of: impl Fn(u32) -> u32) {
    let mut entries = keyspace.iter();
    for key in 0..count {
        let entry = entries.next().unwrap().unwrap();
        assert_eq!(*entry.key, key.to_be_bytes());
        assert!(*entry.value == *value_of(key, round_of(key)), "the value of {key}");
    }
    assert!(entries.next().is_none());
}

fn settle(db: &Db) {
    while db.step().unwrap() {}
}

/// Value files that are there.
fn files(storage: &Arc<dyn Storage>) -> Vec<PathBuf> {
    let dir = Path::new("/db/values");
    let entries = storage.list_dir(dir).unwrap_or_default();
    entries.iter().map(|entry| dir.join(&entry.name)).collect()
}

#[test]
fn values_are_written_once_and_memtables_and_segments_hold_pointers() {
    let (storage, db, keyspace) = fresh();
    put_all(&db, &keyspace, 0..500, 0);
    let stats = db.stats();
    let data = stats.data_bytes_written;
    assert!(data >= 500 * VALUE_SIZE as u64);
    assert!(stats.keyspaces[0].memtable_bytes < data / 10, "{}", stats.keyspaces[0].memtable_bytes);
    assert!(stats.wal_bytes_written < data / 10);
    db.compact().unwrap();
    let stats = db.stats();
    assert!(stats.keyspaces[0].bytes_on_disk < data / 10);
    assert!(stats.write_amplification() < 1.2, "{}", stats.write_amplification());
    assert_eq!(stats.value_bytes_live() + 40 * stats.value_files.len() as u64, stats.value_bytes());
    assert_values(&keyspace, 500, |_| 0);
    assert_sound(&db);
    assert_eq!(db.check().unwrap().values, 500);
    db.close().unwrap();
    drop((db, keyspace));
    let (db, keyspace) = open(&storage);
    assert_eq!(db.stats().value_files, stats.value_files, "exact when it is opened again");
    assert_values(&keyspace, 500, |_| 0);
}

#[test]
fn a_value_that_its_key_has_is_not_written_again() {
    let (_, db, keyspace) = fresh();
    put_all(&db, &keyspace, 0..20, 0);
    let written = db.stats().value_bytes_written;
    put_all(&db, &keyspace, 0..20, 0);
    db.flush().unwrap();
    put_all(&db, &keyspace, 0..20, 0);
    assert_eq!(db.stats().value_bytes_written, written);
    let stamp = keyspace.get_entry(5u32.to_be_bytes()).unwrap().unwrap().seqno;
    keyspace.put(5u32.to_be_bytes(), value_of(5, 0)).unwrap();
    let entry = keyspace.get_entry(5u32.to_be_bytes()).unwrap().unwrap();
    assert!(entry.seqno > stamp && *entry.value == *value_of(5, 0));
    put_all(&db, &keyspace, 0..1, 1);
    assert!(db.stats().value_bytes_written > written, "another value is");
    assert_sound(&db);
}

#[test]
fn a_snapshot_keeps_the_values_it_shows_and_their_files_go_with_it() {
    let (storage, db, keyspace) = fresh();
    put_all(&db, &keyspace, 0..100, 0);
    let snapshot = db.snapshot();
    let reader = keyspace.get_reader(7u32.to_be_bytes()).unwrap().unwrap();
    for round in 1..4 {
        put_all(&db, &keyspace, 0..100, round);
        db.vacuum().unwrap();
    }
    for key in 0..100u32 {
        let found = snapshot.get(&keyspace, key.to_be_bytes()).unwrap();
        assert!(found.unwrap() == value_of(key, 0));
    }
    assert_values(&keyspace, 100, |_| 3);
    let beside = files(&storage).len();
    drop(snapshot);
    settle(&db);
    let mut reader = reader;
    let mut value = Vec::new();
    reader.read_to_end(&mut value).unwrap();
    assert!(value == value_of(7, 0), "a reader holds its file");
    drop(reader);
    settle(&db);
    assert!(files(&storage).len() < beside, "{} of {beside}", files(&storage).len());
    assert_sound(&db);
}

#[test]
fn deleted_values_give_their_room_back_however_they_are_deleted() {
    let (storage, db, keyspace) = fresh();
    put_all(&db, &keyspace, 0..300, 0);
    db.flush().unwrap();
    keyspace.delete_range(0u32.to_be_bytes()..100u32.to_be_bytes()).unwrap();
    for key in 100..200u32 {
        keyspace.delete(key.to_be_bytes()).unwrap();
    }
    let before = db.stats().value_bytes();
    let report = db.vacuum().unwrap();
    assert!(report.value_files_removed > 0 && report.bytes_reclaimed > before / 2, "{report:?}");
    assert!(db.stats().value_bytes() < before / 2);
    assert_eq!(keyspace.len().unwrap(), 100);
    db.drop_keyspace("k").unwrap();
    drop(keyspace);
    settle(&db);
    db.vacuum().unwrap();
    assert_eq!(files(&storage), Vec::<PathBuf>::new());
    assert_sound(&db);
}

#[test]
fn vacuum_moves_what_is_live_keeps_stamps_and_ends_when_it_is_told_to() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (db, keyspace) = open_with(builder(&storage).cleaning(Cleaning::OnDemand));
    for round in 0..3 {
        put_all(&db, &keyspace, (0..200).filter(|key| round == 0 || key % 3 == round), round);
        db.flush().unwrap();
    }
    let stamps = || keyspace.iter().map(|entry| entry.unwrap().seqno).collect::<Vec<_>>();
    let before = (stamps(), db.stats().value_bytes());
    let cancelled = db.vacuum_while(|_| ControlFlow::Break(())).unwrap();
    assert!(cancelled.is_cancelled);
    let report = db.vacuum().unwrap();
    assert!(cancelled.values_moved + report.values_moved > 0 && !report.is_cancelled, "{report:?}");
    assert!(db.stats().value_bytes() < before.1 * 2 / 3);
    assert_eq!(stamps(), before.0);
    assert_values(&keyspace, 200, |key| key % 3);
    assert_sound(&db);
    assert_eq!(db.vacuum().unwrap().values_moved, 0, "nothing is left to be done");
}

#[test]
fn garbage_is_cleaned_in_the_background() {
    let (_, db, keyspace) = fresh();
    for round in 0..12 {
        put_all(&db, &keyspace, (0..200).filter(|key| round == 0 || key % 4 == round % 4), round);
        db.flush().unwrap();
        settle(&db);
    }
    let stats = db.stats();
    let (all, live) = (stats.value_bytes(), stats.value_bytes_live());
    assert!(all <= live * 2, "{all} bytes, {live} live");
    assert_sound(&db);
}

#[test]
fn walks_over_keys_read_no_values_and_a_damaged_value_is_never_skipped() {
    let (storage, db, keyspace) = fresh();
    put_all(&db, &keyspace, 0..50, 0);
    db.flush().unwrap();
    let path = &files(&storage)[0];
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"damage", 40 + 48 + 500).unwrap(); // in the first value
    assert_eq!(keyspace.keys::<&[u8]>(..).map(Result::unwrap).count(), 50);
    assert_eq!(keyspace.keys::<&[u8]>(..).rev().map(Result::unwrap).count(), 50);
    assert!(keyspace.contains(0u32.to_be_bytes()).unwrap());
    let mut entries = keyspace.iter();
    for _ in 0..3 {
        let error = entries.next().unwrap().unwrap_err();
        let Error::Corruption { file, offset, .. } = &error else { panic!("{error}") };
        assert_eq!((file, *offset), (path, 40));
    }
    assert_eq!(entries.by_ref().rev().map_while(Result::ok).count(), 49);
    assert!(entries.next_back().unwrap().is_err());
    let mut cursor = keyspace.cursor(lithedb::KeyRange::all());
    cursor.seek_first().unwrap();
    assert!(cursor.value().is_err() && cursor.value().is_err() && cursor.valid());
    cursor.next().unwrap();
    assert!(*cursor.value().unwrap() == *value_of(1, 0));
    let problems = db.check().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("val-00000001 at offset 40: ")));
    // A value that is put again is written again where there was damage.
    put_all(&db, &keyspace, 0..1, 0);
    assert!(*keyspace.get(0u32.to_be_bytes()).unwrap().unwrap() == *value_of(0, 0));
    db.vacuum().unwrap();
    assert_sound(&db);
}

#[test]
fn an_interrupted_write_of_a_streamed_value_is_told_as_what_it_is() {
    let sim = SimStorage::new(8);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let (db, keyspace) = open(&storage);
    let rule = FaultRule::new(FaultEffect::Error(ErrorKind::Interrupted));
    sim.arm(FaultPlan::new().rule(rule.on(&[Operation::Create]).path("val-").lasting()));
    let mut writer = keyspace.put_writer("film").unwrap();
    let refused = writer.write_all(&[7; 5000]).unwrap_err();
    let refused = refused.downcast::<Error>().unwrap();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    drop(writer);
    sim.arm(FaultPlan::new());
    assert_eq!(keyspace.get("film").unwrap(), None);
    assert_sound(&db);
}

#[test]
fn values_are_streamed_in_and_out() {
    let (_, db, keyspace) = fresh();
    let long: Vec<u8> = (0..400_000u32).map(|at| (at / 7) as u8).collect();
    let mut writer = keyspace.put_writer("film").unwrap();
    for piece in long.chunks(1234) {
        writer.write_all(piece).unwrap();
    }
    assert_eq!((writer.len(), keyspace.get("film").unwrap()), (long.len() as u64, None));
    writer.commit().unwrap();
    keyspace.put_reader("short", &mut &b"inline"[..]).unwrap();
    drop(keyspace.put_writer("never").unwrap());
    let mut aborted = keyspace.put_writer("never").unwrap();
    aborted.write_all(&long).unwrap();
    drop(aborted);
    assert!(!keyspace.contains("never").unwrap());
    let mut reader = keyspace.get_reader("film").unwrap().unwrap();
    reader.seek(SeekFrom::Start(300_001)).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest == long[300_001..]);
    let mut reader = db.snapshot().get_reader(&keyspace, "short").unwrap().unwrap();
    rest.clear();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!((rest.as_slice(), reader.len()), (&b"inline"[..], 6));
    assert!(*keyspace.get("film").unwrap().unwrap() == *long);
    settle(&db);
    assert_sound(&db);
}

#[test]
fn a_commit_whose_values_a_power_cut_took_ends_the_log_in_front_of_it() {
    for mode in CrashMode::ALL {
        for seed in 0..20 {
            let sim = SimStorage::new(seed);
            let storage: Arc<dyn Storage> = Arc::new(sim.clone());
            let (db, keyspace) = open(&storage);
            put_all(&db, &keyspace, 0..10, 0);
            db.sync().unwrap();
            for key in 10..20 {
                put_all(&db, &keyspace, key..key + 1, 0);
            }
            let left: Arc<dyn Storage> = Arc::new(sim.crash(mode, seed));
            let (opened, found) = open(&left);
            let count = found.len().unwrap() as u32;
            assert!((10..=20).contains(&count), "{mode:?} {seed}: {count}");
            assert_values(&found, count, |_| 0);
            assert_sound(&opened);
            sim.crash_at(sim.mutation_count());
        }
    }
}

#[test]
fn transactions_see_and_undo_their_large_values() {
    let (_, db, keyspace) = fresh();
    let (one, other) = (value_of(1, 1), value_of(2, 2));
    let mut transaction = db.begin_update();
    transaction.put(&keyspace, "a", &one).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.put(&keyspace, "a", &other).unwrap();
    transaction.put(&keyspace, "b", &other).unwrap();
    assert!(*transaction.get(&keyspace, "a").unwrap().unwrap() == *other);
    transaction.rollback_to(savepoint).unwrap();
    assert!(*transaction.get(&keyspace, "a").unwrap().unwrap() == *one);
    assert!(transaction.get(&keyspace, "b").unwrap().is_none());
    transaction.put(&keyspace, "c", &other).unwrap();
    transaction.commit().unwrap();
    assert!(*keyspace.get("a").unwrap().unwrap() == *one);
    assert!(*keyspace.get("c").unwrap().unwrap() == *other);
    assert!(db.stats().value_bytes_live() < 3 * VALUE_SIZE as u64, "what was undone is not there");
}

#[test]
fn a_crash_while_files_are_made_synced_and_removed_loses_no_value() {
    let ledger = Arc::new(Ledger::new());
    let operations = [Operation::Remove, Operation::Create, Operation::Sync, Operation::SyncDir];
    for (seed, operation) in (0..8).zip(operations.into_iter().cycle()) {
        let mut run = CrashRun::of_seed(seed, 4);
        run.op_count = 100;
        run.stride = 9;
        run.only_operation = Some(operation);
        run.run(&ledger);
    }
    ledger.assert_clean();
    assert!(ledger.counted(VALUE_BYTES) > 60_000 && ledger.counted(STATES) > 130, "{ledger}");
}

#[test]
fn a_batch_is_as_large_as_what_was_put_into_it() {
    let (_, db, keyspace) = fresh();
    let mut batch = WriteBatch::new();
    // With a table of checksums behind it, the record is some bytes longer than the value.
    for _ in 0..3 {
        batch.put(&keyspace, "key", vec![7; 1 << 20]);
    }
    assert!((3 << 20..(3 << 20) + 300).contains(&batch.size()), "{}", batch.size());
    batch.clear();
    assert_eq!(batch.size(), 0);
    // What is refused refuses the batch, and not the program.
    batch.put(&keyspace, vec![1; lithedb::KEY_LEN_MAX + 1], vec![7; 5000]);
    batch.put(&keyspace, "key", vec![7; 5000]);
    let refused = db.write(batch).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    assert_eq!(keyspace.len().unwrap(), 0);
}

#[test]
#[ignore = "takes 13 GiB of memory and half a minute"]
fn the_longest_value_round_trips() {
    let dir = std::env::temp_dir().join(format!("lithedb-longest-{}", std::process::id()));
    let db = Db::open(&dir).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let mut value = vec![0; lithedb::VALUE_LEN_MAX];
    for (at, byte) in value.iter_mut().enumerate().step_by(997) {
        *byte = at as u8;
    }
    keyspace.put("put", &value).unwrap();
    keyspace.put_reader("streamed", &mut &value[..]).unwrap();
    let mut longer = keyspace.put_writer("longer").unwrap();
    longer.write_all(&value).unwrap();
    assert!(longer.write_all(b"x").is_err());
    for key in ["put", "streamed"] {
        assert!(*keyspace.get(key).unwrap().unwrap() == *value, "{key}");
    }
    db.close().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_cursor_knows_length_and_hash_of_values_and_reads_them_in_parts() {
    let storage = Arc::new(MemoryStorage::new());
    let db = Db::builder().storage(storage).open("/db").unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let values: [Vec<u8>; 3] = [Vec::new(), b"short".to_vec(), vec![7; 200_000]];
    for (number, value) in values.iter().enumerate() {
        keyspace.put([number as u8], value).unwrap();
    }
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let mut cursor = keyspace.cursor(KeyRange::all());
        cursor.seek_first().unwrap();
        for value in &values {
            assert_eq!(cursor.value_len().unwrap(), value.len() as u64);
            let hash = blake3::hash(value);
            assert_eq!(cursor.value_hash().unwrap()[..], hash.as_bytes()[..16]);
            let mut reader = cursor.value_reader().unwrap();
            cursor.next().unwrap();
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert_eq!(&read, value);
        }
        assert!(!cursor.valid());
    }
}
