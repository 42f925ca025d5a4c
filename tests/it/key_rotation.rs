//! Another data key, for everything: no file keeps the older one, nothing is lost, wherever it is
//! interrupted.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lithedb::base::SeededEntropy;
use lithedb::storage::{CrashMode, SimStorage, Storage};
use lithedb::{
    Background, Builder, Codec, Db, Encryption, Error, KeyspaceOptions, LossKind, RepairOptions,
};

const KINDS: [&str; 4] = ["flex", "packed", "lsm", "history"];

fn builder(storage: &SimStorage, seed: u64) -> Builder {
    let entropy = Arc::new(SeededEntropy::new(seed << 32));
    Db::builder()
        .storage(Arc::new(storage.clone()))
        .background(Background::Stepped)
        .memory_budget(1 << 20)
        .memtable_size(4 << 10)
        .wal_file_size(16 << 10)
        .value_file_size(16 << 10)
        .encryption(Encryption::key([7; 32]).simulated(entropy))
}

fn open(storage: &SimStorage, seed: u64) -> Db {
    builder(storage, seed).open("/db").unwrap()
}

fn options_of(kind: &str) -> KeyspaceOptions {
    let options = match kind {
        "flex" => KeyspaceOptions::flex().interval_size(512).segment_size(4096),
        "packed" => KeyspaceOptions::flex().codec(Codec::Lz4),
        "lsm" => KeyspaceOptions::lsm().table_size(16 << 10),
        _ => KeyspaceOptions::history(),
    };
    options.value_separation(Some(300))
}

fn value_of(kind: &str, number: usize) -> Vec<u8> {
    let len = if number.is_multiple_of(7) { 400 } else { 20 };
    let mut value = format!("{kind} {number} ").repeat(len).into_bytes();
    value.truncate(len);
    value
}

fn fill(db: &Db, count: usize) {
    for kind in KINDS {
        let keyspace = db.create_keyspace(kind, options_of(kind)).unwrap();
        for number in 0..count {
            keyspace.put(format!("{number:05}"), value_of(kind, number)).unwrap();
        }
    }
}

fn expect_all(db: &Db, count: usize) {
    for kind in KINDS {
        let keyspace = db.keyspace(kind).unwrap();
        assert_eq!(keyspace.count::<&[u8]>(..).unwrap(), count as u64, "{kind}");
        for number in 0..count {
            let value = keyspace.get(format!("{number:05}")).unwrap();
            assert_eq!(value.as_deref(), Some(&value_of(kind, number)[..]), "{kind} {number}");
        }
    }
}

/// How many files have which data key, by their headers.
fn keys_of_files(storage: &SimStorage) -> BTreeMap<u16, Vec<String>> {
    let mut keys: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for (path, size) in storage.files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let at = if name.ends_with(".wal") { 18 } else { 10 };
        if ["LOCK", "KEYRING"].contains(&name.as_str()) || size < 24 {
            continue;
        }
        let header = storage.read_file(&path).unwrap();
        let is_begun = header[..8] != [0; 8];
        if is_begun {
            keys.entry(u16::from_le_bytes([header[at], header[at + 1]])).or_default().push(name);
        }
    }
    keys
}

#[test]
fn behind_a_rotation_no_file_has_the_older_key_and_everything_is_there() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db, 300);
    db.flush().unwrap();
    assert_eq!(keys_of_files(&storage).into_keys().collect::<Vec<_>>(), [1]);
    let mut slices = 0;
    let report = db
        .rotate_data_key_while(|_| {
            slices += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(report.is_complete && report.files_left.is_empty(), "{report:?}");
    assert!(report.key == 2 && report.bytes_written > 0 && report.value_bytes_moved > 0);
    assert!(slices > 3, "{slices}");
    let keys = keys_of_files(&storage);
    assert_eq!(keys.keys().collect::<Vec<_>>(), [&2], "{keys:?}");
    expect_all(&db, 300);
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
    drop(db);
    let db = open(&storage, 2);
    expect_all(&db, 300);
    let again = db.rotate_data_key().unwrap();
    assert!(again.is_complete && again.key == 3, "{again:?}");
    expect_all(&db, 300);
}

/// When a sync of the directory fails, a power cut may bring back the name that a log file had
/// before it was used again; with what was in it, if the disk kept that.
#[test]
fn a_log_file_of_before_that_comes_back_is_in_nobodys_way() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db, 300);
    db.flush().unwrap();
    let paths = storage.files().into_iter().map(|(path, _)| path);
    let log = paths.filter(|path| path.extension().is_some_and(|end| end == "wal"));
    let before: Vec<_> =
        log.map(|path| (path.clone(), storage.snapshot_file(&path).unwrap())).collect();
    assert!(db.rotate_data_key().unwrap().is_complete);
    drop(db);
    assert_eq!(keys_of_files(&storage).into_keys().collect::<Vec<_>>(), [2]);
    for (path, file) in before {
        if !storage.exists(&path).unwrap() {
            storage.restore_file(&path, &file).unwrap();
        }
    }
    assert!(keys_of_files(&storage).contains_key(&1), "none has come back");
    let db = open(&storage, 2);
    expect_all(&db, 300);
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
    assert_eq!(keys_of_files(&storage).into_keys().collect::<Vec<_>>(), [2]);
}

#[test]
fn what_is_held_keeps_the_older_key_until_it_is_let_go() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db, 200);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    let held = db.rotate_data_key().unwrap();
    assert!(!held.is_complete && !held.files_left.is_empty(), "{held:?}");
    let flex = db.keyspace("flex").unwrap();
    let value = snapshot.get(&flex, "00007").unwrap();
    assert_eq!(value.as_deref(), Some(&value_of("flex", 7)[..]));
    drop(snapshot);
    let done = db.rotate_data_key().unwrap();
    assert!(done.is_complete && done.key == held.key, "{done:?}");
    expect_all(&db, 200);
}

#[test]
fn a_rotation_that_is_cancelled_is_gone_on_with_also_after_reopening() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db, 200);
    let cancelled = db.rotate_data_key_while(|_| ControlFlow::Break(())).unwrap();
    assert!(cancelled.is_cancelled && !cancelled.is_complete);
    expect_all(&db, 200);
    drop(db);
    let db = open(&storage, 2);
    assert!(db.is_data_key_rotating());
    expect_all(&db, 200);
    let done = db.rotate_data_key().unwrap();
    assert!(done.is_complete && done.key == cancelled.key, "{done:?}");
    assert!(!db.is_data_key_rotating());
    expect_all(&db, 200);
}

#[test]
fn what_is_not_encrypted_has_no_key_to_rotate() {
    let storage = SimStorage::new(1);
    let db = Db::builder().storage(Arc::new(storage)).background(Background::Stepped);
    let error = db.open("/db").unwrap().rotate_data_key().unwrap_err();
    assert!(matches!(error, Error::NotEncrypted { .. }), "{error}");
}

/// A store that a crash has left half made, of a keyspace that there is not, had the older key for
/// good, and no rotation came to its end.
#[test]
fn a_creation_that_came_to_nothing_is_not_in_the_way_of_a_rotation() {
    let made = SimStorage::new(1);
    let db = open(&made, 1);
    fill(&db, 20);
    db.close().unwrap();
    drop(db);
    for at in 0.. {
        let storage = made.duplicate();
        let db = open(&storage, 2);
        storage.crash_at(storage.mutation_count() + at);
        let created = db.create_keyspace("more", KeyspaceOptions::history()).map(drop);
        drop(db);
        let db = open(&storage.crash(CrashMode::KeepAll, 0), 3);
        let report = db.rotate_data_key().unwrap();
        assert!(report.is_complete, "call {at}: {report:?}");
        expect_all(&db, 20);
        if created.is_ok() {
            assert!(at > 3, "it was interrupted");
            break;
        }
    }
}

/// Between a rotation's beginning and its end, files have two keys, and a header that is damaged
/// elsewhere says which.
#[test]
fn a_repair_goes_by_what_is_left_of_headers() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db, 200);
    db.flush().unwrap();
    let mut slices = 0;
    let cancelled = db.rotate_data_key_while(|_| {
        slices += 1;
        if slices < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(cancelled.unwrap().is_cancelled);
    db.close().unwrap();
    drop(db);
    let keys = keys_of_files(&storage);
    let has_values = |key: u16| keys[&key].iter().any(|name| name.starts_with("val-"));
    assert!(keys.len() == 2 && has_values(1), "{keys:?}");
    for (path, size) in storage.files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if size > 40 && ["seg-", "tbl-", "val-"].iter().any(|kind| name.starts_with(kind)) {
            let number = storage.read_file(&path).unwrap()[24];
            storage.overwrite(&path, 24, &[!number]).unwrap();
        }
    }
    let options = RepairOptions::new(builder(&storage, 2));
    let report = lithedb::repair("/db", "/again", options).unwrap();
    let told = |kind: LossKind| report.losses.iter().filter(|loss| loss.kind == kind).count();
    assert_eq!(told(LossKind::Nothing), report.losses.len(), "{report:?}");
    assert!(told(LossKind::Nothing) > 3, "{report:?}");
    expect_all(&builder(&storage, 3).open("/again").unwrap(), 200);
}

/// Crashes at calls all along a rotation, in ways that lose or tear what was not synced. Everything
/// is there then, and the rotation comes to its end.
#[test]
fn a_crash_anywhere_in_a_rotation_loses_nothing() {
    const COUNT: usize = 60;
    const POINTS: u64 = 40;
    let made = SimStorage::new(1);
    let db = open(&made, 1);
    fill(&db, COUNT);
    db.close().unwrap();
    drop(db);
    let calls = {
        let storage = made.duplicate();
        let db = open(&storage, 2);
        let before = storage.mutation_count();
        assert!(db.rotate_data_key().unwrap().is_complete);
        storage.mutation_count() - before
    };
    let modes = [CrashMode::DropAll, CrashMode::RandomSectors, CrashMode::TornLast];
    let mut interrupted = 0;
    for point in 0..POINTS {
        let storage = made.duplicate();
        let db = open(&storage, 2);
        storage.crash_inside(storage.mutation_count() + calls * point / POINTS);
        let rotated = db.rotate_data_key();
        interrupted += u64::from(rotated.is_err());
        drop(db);
        for (seed, mode) in modes.into_iter().enumerate() {
            let crashed = storage.crash(mode, point * 3 + seed as u64);
            let db = open(&crashed, 3);
            expect_all(&db, COUNT);
            assert!(db.check().unwrap().is_ok(), "point {point}, {mode:?}");
            let report = db.rotate_data_key().unwrap();
            assert!(report.is_complete, "point {point}, {mode:?}: {report:?}");
            let keys = keys_of_files(&crashed);
            assert_eq!(keys.keys().collect::<Vec<_>>(), [&report.key], "{keys:?}");
            expect_all(&db, COUNT);
        }
    }
    assert!(interrupted > POINTS / 2, "{interrupted} of {POINTS}");
}
