//! The keyring's file: what a crash at any moment leaves, what damage does, what a wrong key says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::base::SeededEntropy;
use crate::db::{Background, RepairOptions, repair};
use crate::manifest::KeyspaceOptions;
use crate::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, MemoryStorage, Operation, SimStorage,
};
use crate::structure::TableIngestOptions;
use crate::structure::lsm::OutsideReader;

const DIR: &str = "/db";

fn key(byte: u8) -> Encryption {
    // Another sequence for each: what was drawn before a crash is not drawn again.
    static SEEDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let seed = SEEDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Encryption::key([byte; 32]).simulated(Arc::new(SeededEntropy::new(seed << 40)))
}

fn builder(storage: &Arc<dyn Storage>, encryption: Option<Encryption>) -> Builder {
    let builder = Db::builder().storage(Arc::clone(storage)).background(Background::Stepped);
    let builder = builder.memory_budget(1 << 20).wal_file_size(64 << 10);
    match encryption {
        Some(encryption) => builder.encryption(encryption),
        None => builder,
    }
}

fn open(storage: &Arc<dyn Storage>, encryption: Option<Encryption>) -> Result<Db> {
    builder(storage, encryption).open(DIR)
}

fn make(storage: &Arc<dyn Storage>, byte: u8) {
    let db = open(storage, Some(key(byte))).unwrap();
    db.keyspace_or_create("k").unwrap().put("key", "value").unwrap();
    db.close().unwrap();
}

fn expect_value(db: &Db) {
    let value = db.keyspace("k").unwrap().get("key").unwrap();
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
}

fn keyring_bytes(storage: &dyn Storage) -> Vec<u8> {
    let file = storage.open(&keyring_path(Path::new(DIR)), OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn write_keyring(storage: &dyn Storage, bytes: &[u8]) {
    let file = storage.open(&keyring_path(Path::new(DIR)), OpenMode::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

#[test]
fn a_database_opens_with_its_key_only() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let wrong = open(&storage, Some(key(2))).unwrap_err();
    assert!(matches!(wrong, Error::WrongKey { .. }), "{wrong}");
    let needed = open(&storage, None).unwrap_err();
    assert!(matches!(needed, Error::KeyNeeded { .. }), "{needed}");
    let db = open(&storage, Some(key(1))).unwrap();
    assert!(db.is_encrypted());
    expect_value(&db);
}

#[test]
fn a_key_for_what_is_not_encrypted_is_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    open(&storage, None).unwrap().close().unwrap();
    let error = open(&storage, Some(key(1))).unwrap_err();
    assert!(matches!(error, Error::NotEncrypted { .. }), "{error}");
    let db = open(&storage, None).unwrap();
    assert!(!db.is_encrypted());
    let error = db.rekey(&key(1)).unwrap_err();
    assert!(matches!(error, Error::NotEncrypted { .. }), "{error}");
}

#[test]
fn a_keyring_that_is_gone_is_damage_and_no_database_without_a_key() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    storage.remove_file(&keyring_path(Path::new(DIR))).unwrap();
    for encryption in [None, Some(key(1))] {
        let error = open(&storage, encryption).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("KEYRING"), "{error}");
    }
}

#[test]
fn one_damaged_slot_costs_nothing_and_is_written_anew_and_two_are_damage() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let whole = keyring_bytes(&*storage);
    for at in [3, 100, SLOT_SIZE - 1, SLOT_SIZE, SLOT_SIZE + 130, 2 * SLOT_SIZE - 1] {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        write_keyring(&*storage, &flipped);
        expect_value(&open(&storage, Some(key(1))).unwrap());
        let mended = keyring_bytes(&*storage);
        let slots =
            SLOTS.map(|index| Slot::decode(index, &mended[index * SLOT_SIZE..][..SLOT_SIZE]));
        assert!(slots.iter().all(|slot| matches!(slot, SlotState::Whole(_))), "byte {at}");
    }
    let mut both = whole.clone();
    both[50] ^= 1;
    both[SLOT_SIZE + 50] ^= 1;
    write_keyring(&*storage, &both);
    let error = open(&storage, Some(key(1))).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    write_keyring(&*storage, &whole[..SLOT_SIZE / 2]);
    assert!(open(&storage, Some(key(1))).unwrap_err().is_corruption());
    write_keyring(&*storage, &whole);
    expect_value(&open(&storage, Some(key(1))).unwrap());
}

/// A file that ends behind its first slot, or of which the disk does not give a part.
#[test]
fn a_keyring_of_which_one_slot_is_left_opens_a_repair_and_is_whole_in_what_comes_of_it() {
    let disk = SimStorage::new(7);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    make(&storage, 1);
    let whole = keyring_bytes(&*storage);
    for (number, len) in [SLOT_SIZE, SLOT_SIZE + 100, 2 * SLOT_SIZE].into_iter().enumerate() {
        write_keyring(&*storage, &whole[..len]);
        if len == whole.len() {
            let rule = FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::Read]);
            disk.arm(FaultPlan::new().rule(rule.path("/db/KEYRING").lasting()));
            assert!(matches!(open(&storage, Some(key(1))), Err(Error::Io { .. })));
            let refused = repair(DIR, "/none", RepairOptions::new(builder(&storage, Some(key(1)))));
            assert!(refused.unwrap_err().is_corruption());
            disk.disarm();
        }
        let target = format!("/again-{number}");
        let options = RepairOptions::new(builder(&storage, Some(key(1))));
        let report = repair(DIR, &target, options).unwrap();
        assert!(report.is_whole(), "{report:?}");
        let db = builder(&storage, Some(key(1))).open(&target).unwrap();
        expect_value(&db);
        db.close().unwrap();
        let file = storage.open(&keyring_path(Path::new(&target)), OpenMode::ReadOnly).unwrap();
        for index in SLOTS {
            let mut slot = vec![0; SLOT_SIZE];
            file.read_exact_at(&mut slot, offset_of(index)).unwrap();
            assert!(matches!(Slot::decode(index, &slot), SlotState::Whole(_)), "slot {index}");
        }
    }
}

#[test]
fn after_rekeying_only_the_new_key_opens_also_what_is_in_either_slot() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let db = open(&storage, Some(key(1))).unwrap();
    for byte in 2..5 {
        db.rekey(&key(byte)).unwrap();
    }
    db.keyspace("k").unwrap().put("more", "after").unwrap();
    db.close().unwrap();
    let whole = keyring_bytes(&*storage);
    // R2: as if the other slot were lost.
    for lost in SLOTS {
        let mut one = whole.clone();
        one[lost * SLOT_SIZE..][..SLOT_SIZE].fill(0);
        write_keyring(&*storage, &one);
        for byte in 1..4 {
            let error = open(&storage, Some(key(byte))).unwrap_err();
            assert!(matches!(error, Error::WrongKey { .. }), "key {byte}: {error}");
        }
        expect_value(&open(&storage, Some(key(4))).unwrap());
    }
}

/// A crash at each call of the storage, several ways: one of the two keys opens it, the other does
/// not, and so it stays.
#[test]
fn a_crash_while_rekeying_leaves_one_key_or_the_other() {
    let (mut before, mut behind) = (0, 0);
    for at in 0.. {
        let disk = SimStorage::new(7);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        make(&storage, 1);
        let db = open(&storage, Some(key(1))).unwrap();
        disk.crash_at(disk.mutation_count() + at);
        let rekeyed = db.rekey(&key(2));
        drop(db);
        if rekeyed.is_ok() {
            assert!(at > 3, "writes and syncs were crashed at");
            break;
        }
        for (mode, seed) in [(CrashMode::DropAll, 0), (CrashMode::KeepAll, 0)]
            .into_iter()
            .chain((0..8).map(|seed| (CrashMode::RandomSectors, seed)))
        {
            let crashed: Arc<dyn Storage> = Arc::new(disk.crash(mode, seed));
            let opened = [1, 2].map(|byte| {
                open(&crashed, Some(key(byte))).map(|db| {
                    expect_value(&db);
                    drop(db);
                })
            });
            let opens = opened.each_ref().map(Result::is_ok);
            assert!(opens[0] != opens[1], "crash at {at}, {mode:?} {seed}: {opened:?}");
            let failed = opened.iter().find_map(|opened| opened.as_ref().err());
            assert!(matches!(failed, Some(Error::WrongKey { .. })), "{failed:?}");
            if opens[0] { before += 1 } else { behind += 1 }
        }
    }
    assert!(before > 0 && behind > 0, "{before} with the key of before, {behind} with the new one");
}

#[test]
fn a_failed_write_of_the_keyring_leaves_the_database_as_it_is() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let db = open(&storage, Some(key(1))).unwrap();
    let vault = Encryption::vault(Arc::new(Away));
    let error = db.rekey(&vault).unwrap_err();
    assert!(matches!(error, Error::VaultFailed { .. }), "{error}");
    db.close().unwrap();
    expect_value(&open(&storage, Some(key(1))).unwrap());
}

/// What a sync has failed for shows when the database is opened again, and may be in memory alone:
/// as on Linux, where a later sync says that all is well.
#[test]
fn a_slot_whose_sync_failed_is_written_again_before_the_other_one_is_touched() {
    let disk = SimStorage::new(7);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    make(&storage, 1);
    let db = open(&storage, Some(key(1))).unwrap();
    let rule = FaultRule::new(FaultEffect::Error(std::io::ErrorKind::Other));
    disk.arm(FaultPlan::new().rule(rule.on(&[Operation::Sync]).path("KEYRING")));
    let failed = db.rekey(&key(2)).unwrap_err();
    assert!(matches!(failed, Error::Io { .. }) && disk.fault_count() == 1, "{failed}");
    disk.disarm();
    drop(db);
    // A power cut at each call of the opening: one of the two keys opens what there is.
    for at in 0.. {
        let other = disk.duplicate();
        other.crash_at(at);
        let interrupted: Arc<dyn Storage> = Arc::new(other.clone());
        let is_over = open(&interrupted, Some(key(2))).is_ok();
        for mode in [CrashMode::DropAll, CrashMode::RandomSectors, CrashMode::TornLast] {
            let crashed: Arc<dyn Storage> = Arc::new(other.crash(mode, at));
            let opened = [1, 2].map(|byte| open(&crashed, Some(key(byte))).map(drop));
            assert!(opened[0].is_ok() != opened[1].is_ok(), "call {at}, {mode:?}: {opened:?}");
        }
        if is_over {
            break;
        }
    }
    expect_value(&open(&storage, Some(key(2))).unwrap());
    let crashed = disk.crash(CrashMode::DropAll, 0);
    let bytes = keyring_bytes(&crashed);
    let generations = SLOTS.map(|index| {
        let slot = &bytes[index * SLOT_SIZE..][..SLOT_SIZE];
        match Slot::decode(index, slot) {
            SlotState::Whole(slot) => slot.generation,
            other => panic!("slot {index}: {other:?}"),
        }
    });
    assert_eq!(generations[0], generations[1]);
    let crashed: Arc<dyn Storage> = Arc::new(crashed);
    assert!(matches!(open(&crashed, Some(key(1))), Err(Error::WrongKey { .. })));
    expect_value(&open(&crashed, Some(key(2))).unwrap());
}

/// A vault that nobody can reach.
#[derive(Debug)]
struct Away;

impl crate::seal::Vault for Away {
    fn wrap_key(&self, _: &[u8; 32]) -> std::result::Result<Vec<u8>, crate::seal::VaultError> {
        Err(crate::seal::VaultError::Failed("nobody answers".to_owned()))
    }

    fn unwrap_key(&self, _: &[u8]) -> std::result::Result<[u8; 32], crate::seal::VaultError> {
        Err(crate::seal::VaultError::Failed("nobody answers".to_owned()))
    }
}

#[test]
fn what_an_interrupted_creation_left_is_gone_on_with() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dir = PathBuf::from(DIR);
    storage.create_dir_all(&dir).unwrap();
    let file = storage.open(&dir.join(UNFINISHED_NAME), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"torn", 0).unwrap();
    make(&storage, 1);
    // The keyring is there and the manifest is not.
    let other: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    other.create_dir_all(&dir).unwrap();
    let keyring = other.open(&keyring_path(&dir), OpenMode::CreateNew).unwrap();
    keyring.write_all_at(&keyring_bytes(&*storage), 0).unwrap();
    assert!(matches!(open(&other, None), Err(Error::KeyNeeded { .. })));
    assert!(matches!(open(&other, Some(key(2))), Err(Error::WrongKey { .. })));
    open(&other, Some(key(1))).unwrap();
}

#[test]
fn an_opening_that_only_reads_changes_nothing_of_the_keyring() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let mut damaged = keyring_bytes(&*storage);
    damaged[77] ^= 1;
    write_keyring(&*storage, &damaged);
    let open_to_read = |byte| {
        let builder = Db::builder().storage(Arc::clone(&storage)).background(Background::Stepped);
        builder.access(Access::ReadOnly).encryption(key(byte)).open(DIR)
    };
    assert!(matches!(open_to_read(2), Err(Error::WrongKey { .. })));
    let db = open_to_read(1).unwrap();
    expect_value(&db);
    assert!(db.is_encrypted() && db.check().unwrap().is_ok());
    assert!(matches!(db.rekey(&key(2)), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.rotate_data_key(), Err(Error::ReadOnly { .. })));
    db.close().unwrap();
    assert!(keyring_bytes(&*storage) == damaged);
    let plain: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    open(&plain, None).unwrap().close().unwrap();
    let builder = Db::builder().storage(plain).access(Access::ReadOnly).encryption(key(1));
    assert!(matches!(builder.open(DIR), Err(Error::NotEncrypted { .. })));
}

/// R2: what a crash has left of a keyring that was to be put in the place of another would be
/// opened by the key of then.
#[test]
fn a_keyring_that_did_not_get_its_name_goes_when_the_database_is_opened() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let unfinished = Path::new(DIR).join(UNFINISHED_NAME);
    let file = storage.open(&unfinished, OpenMode::CreateNew).unwrap();
    file.write_all_at(&keyring_bytes(&*storage), 0).unwrap();
    assert!(matches!(open(&storage, Some(key(2))), Err(Error::WrongKey { .. })));
    assert!(storage.exists(&unfinished).unwrap(), "nothing changes by a wrong key");
    expect_value(&open(&storage, Some(key(1))).unwrap());
    assert!(!storage.exists(&unfinished).unwrap());
}

/// R4: a copy that was made by links has the keyring as well; what becomes of this database's is
/// nothing to it.
#[test]
fn a_keyring_with_another_name_is_not_written_to() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    make(&storage, 1);
    let (copy, before) = (Path::new("/copy"), keyring_bytes(&*storage));
    let link = || {
        storage.link(&keyring_path(Path::new(DIR)), copy).unwrap();
    };
    let take_copy = || {
        let file = storage.open(copy, OpenMode::ReadOnly).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        storage.remove_file(copy).unwrap();
        bytes
    };
    let db = open(&storage, Some(key(1))).unwrap();
    link();
    db.rekey(&key(2)).unwrap();
    assert!(take_copy() == before);
    let rekeyed = keyring_bytes(&*storage);
    assert!(rekeyed != before);
    link();
    let report = db.rotate_data_key().unwrap();
    assert!(report.is_complete, "{report:?}");
    assert!(take_copy() == rekeyed);
    db.close().unwrap();
    // Nor when a slot is to be mended.
    let mut flipped = keyring_bytes(&*storage);
    flipped[200] ^= 1;
    write_keyring(&*storage, &flipped);
    link();
    expect_value(&open(&storage, Some(key(2))).unwrap());
    assert!(take_copy() == flipped);
    assert!(keyring_bytes(&*storage) != flipped);
    assert!(matches!(open(&storage, Some(key(1))), Err(Error::WrongKey { .. })));
}

/// R6: between opening and adopting a table its key may go.
#[test]
fn a_table_whose_key_went_while_it_was_ingested_is_refused_and_stays() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = open(&storage, Some(key(1))).unwrap();
    let keyspace = db.create_keyspace("tables", KeyspaceOptions::lsm()).unwrap();
    let path = Path::new("/outside");
    let mut table = keyspace.table_writer(path).unwrap();
    table.put("key", "value").unwrap();
    table.finish().unwrap();
    let core = db.core();
    let found = OutsideReader::new(&core.storage, &core.shared).open(path).unwrap();
    let mut ingest = keyspace.begin_ingest().unwrap();
    let report = db.rotate_data_key().unwrap();
    assert!(report.is_complete, "{report:?}");
    for how in [TableIngestOptions::copying(), TableIngestOptions::moving()] {
        let error = ingest.adopt(&found, &how).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("/outside"), "{error}");
    }
    drop(ingest);
    assert!(storage.exists(path).unwrap());
    assert!(keyspace.get("key").unwrap().is_none() && db.check().unwrap().is_ok());
    // One that is made behind it is taken.
    storage.remove_file(path).unwrap();
    let mut table = keyspace.table_writer(path).unwrap();
    table.put("key", "value").unwrap();
    table.finish().unwrap();
    keyspace.ingest_tables([path], TableIngestOptions::moving()).unwrap();
    assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A log file has its header twice, and opens by either one.
#[test]
fn a_log_file_has_an_older_key_if_either_header_says_so() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = open(&storage, Some(key(1))).unwrap();
    let header = [&b"LitheWAL"[..], &[0; 8], &2u16.to_le_bytes(), &1u16.to_le_bytes()].concat();
    let named = |path: &Path, key: u16| {
        let dir = path.parent().unwrap();
        let (named, _) = db.core().keys_named(dir, path, &[key, 9].into()).unwrap();
        named.into_iter().collect::<Vec<u16>>()
    };
    for (at, name) in [(0, "/first.wal"), (2048, "/second.wal")] {
        let path = Path::new(name);
        let file = storage.open(path, OpenMode::CreateNew).unwrap();
        file.write_all_at(&[0; 4096], 0).unwrap();
        assert_eq!(named(path, 1), [0; 0], "{name}: it has none yet");
        file.write_all_at(&header, at).unwrap();
        assert_eq!(named(path, 1), [1], "{name}");
        assert_eq!(named(path, 2), [0; 0], "{name}");
    }
    assert_eq!(named(Path::new("/gone.wal"), 1), [0; 0]);
}

/// A slice of a flush holds the store, and makes a file behind the drop; no file has the newest key
/// of the keyspace by then.
#[test]
fn a_store_that_was_dropped_in_a_rotation_can_be_written_to_as_long_as_it_is_held() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = open(&storage, Some(key(1))).unwrap();
    let own = db.create_keyspace_with_own_key("own", KeyspaceOptions::flex()).unwrap();
    own.put("key", "value").unwrap();
    db.flush().unwrap();
    let begun = db.rotate_data_key_while(|_| std::ops::ControlFlow::Break(())).unwrap();
    assert!(begun.is_cancelled || begun.is_complete, "{begun:?}");
    let core = db.core();
    core.change_keys(|keyring| keyring.with_new_keys().map(Some)).unwrap();
    let store = Arc::clone(&own.runtime().store);
    let id = own.runtime().store_id;
    drop(own);
    let number = core.storage.keyring().unwrap().number_for(id.into());
    let is_there = || core.storage.keyring().unwrap().contents().numbers().contains(&number);
    let named = core.files_with_keys(&[number].into()).unwrap();
    assert!(named.paths.is_empty(), "{named:?}");
    db.drop_keyspace("own").unwrap();
    assert!(is_there() && db.destroy_keys().unwrap().left > 0);
    let file =
        FileIdentity { kind: *b"seg ", database: core.database, owner: id.into(), number: 9 };
    assert_eq!(core.storage.keyring().unwrap().key_for_new(&file).unwrap().id(), number);
    store.begin_new_files().unwrap();
    drop(store);
    while db.step().unwrap() {}
    assert!(!is_there(), "it goes by itself");
    core.check_writable().unwrap();
    assert!(core.storage.keyring().unwrap().key_for_new(&file).is_err());
}

/// What fails for a keyspace that is gone leaves the database as it is.
#[test]
fn a_flush_that_fails_for_what_was_dropped_meanwhile_is_of_no_consequence() {
    let disk = SimStorage::new(3);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let db = open(&storage, Some(key(1))).unwrap();
    let own = db.create_keyspace_with_own_key("own", KeyspaceOptions::flex()).unwrap();
    let other = db.create_keyspace("other", KeyspaceOptions::flex()).unwrap();
    own.put("key", "value").unwrap();
    let (core, runtime) = (db.core(), own.runtime());
    drop(own);
    db.drop_keyspace("own").unwrap();
    let error = Error::invalid("its key is destroyed");
    core.note_failed(crate::db::health::BackgroundWork::Flush, Some(runtime.id), &error);
    assert!(db.health().failures.is_empty(), "nothing would ever take it back");
    core.flush_keyspace(&runtime).unwrap();
    drop(runtime);
    other.put("key", "value").unwrap();
    db.flush().unwrap();
    assert_eq!(db.destroy_keys().unwrap().left, 0);
}
