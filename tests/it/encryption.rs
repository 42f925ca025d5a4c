//! Encrypted databases: nothing of what is in them can be read from their files, nothing that was
//! changed in these is taken for what was written, and they do what others do.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithe_sim::damage::{
    Ending, Fixture, Thoroughness, flips, misplacements, run, sectors, truncations,
};
use lithe_sim::ledger::Ledger;
use lithe_sim::setup::Setup;
use lithedb::base::SeededEntropy;
use lithedb::inspect::{Detail, inspect, unlock};
use lithedb::storage::{SimStorage, Storage};
use lithedb::{
    Background, BackupOptions, BackupRepository, Builder, Cipher, Codec, Db, Durability,
    Encryption, Error, IndexOptions, KeyspaceOptions, NonceWatch, OpenExisting, RepairOptions,
    RestoreOptions, TableIngestOptions, WriteBatch,
};

use crate::THREADS;

const ENDINGS: [Ending; 2] = [Ending::Closed, Ending::Killed];
const OP_COUNT: usize = 60;
/// What must be in no file. Long enough for no block to have it by chance.
const CANARY: &[u8] = b"canary-5e1f-whom-nobody-may-see";

fn key(seed: u64) -> Encryption {
    Encryption::key([7; 32]).simulated(Arc::new(SeededEntropy::new(seed << 32)))
}

fn builder(storage: &SimStorage, encryption: Option<Encryption>) -> Builder {
    let builder = Db::builder().storage(Arc::new(storage.clone())).background(Background::Stepped);
    let builder = builder.memory_budget(1 << 20).memtable_size(8 << 10).wal_file_size(64 << 10);
    let builder = builder.kept_log_size(128 << 10).disk_reserve(64 << 10);
    match encryption {
        Some(encryption) => builder.encryption(encryption),
        None => builder,
    }
}

fn open(storage: &SimStorage, encryption: Option<Encryption>, path: &str) -> Db {
    builder(storage, encryption).open(path).unwrap()
}

fn canary_with(number: u32) -> Vec<u8> {
    [CANARY, format!("/{number:05}").as_bytes()].concat()
}

/// Whether there is the canary, or what is left of it where keys share what they begin with.
fn has_canary(bytes: &[u8]) -> bool {
    let (start, end) = (&CANARY[..12], &CANARY[CANARY.len() - 12..]);
    bytes.windows(12).any(|window| window == start || window == end)
}

fn files_with_canary(storage: &SimStorage) -> Vec<PathBuf> {
    let paths = storage.files().into_iter().map(|(path, _)| path);
    paths.filter(|path| has_canary(&storage.read_file(path).unwrap())).collect()
}

/// Brings the canary everywhere: as names, keys, values short and long, index keys, payloads of
/// commits, operands, into the log, segments, tables, value files, archives, a table made outside,
/// checkpoints. `look` is called in between.
fn write_canaries(db: &Db, look: &mut dyn FnMut(&str)) {
    let text = String::from_utf8(CANARY.to_vec()).unwrap();
    let name = |kind: &str| format!("{text} {kind}");
    let options = [
        ("flex", KeyspaceOptions::flex().merge_operator("append")),
        ("flex packed", KeyspaceOptions::flex().codec(Codec::Lz4)),
        ("lsm", KeyspaceOptions::lsm().table_size(16 << 10)),
        ("history", KeyspaceOptions::history()),
    ];
    for (kind, options) in options {
        let options = options.value_separation(Some(1000));
        let keyspace = db.create_keyspace(&name(kind), options).unwrap();
        for number in 0..200 {
            keyspace.put(canary_with(number), canary_with(number)).unwrap();
            if number % 20 == 0 {
                keyspace.put(canary_with(number), CANARY.repeat(100)).unwrap();
            }
            if number % 50 == 0 {
                look("while keys are written");
            }
        }
        // So many that indexes have keys, too.
        let mut batch = WriteBatch::new();
        for number in 1000..7000_u32 {
            batch.put(&keyspace, canary_with(number), number.to_be_bytes().repeat(25));
        }
        db.write(batch).unwrap();
        keyspace.put("long", CANARY.repeat(5000)).unwrap();
        let mut writer = keyspace.put_writer("streamed").unwrap();
        for _ in 0..50 {
            std::io::Write::write_all(&mut writer, &CANARY.repeat(100)).unwrap();
        }
        writer.commit().unwrap();
        look("with values of several chunks");
        db.flush().unwrap();
        look("behind a flush");
    }
    let flex = db.keyspace(&name("flex")).unwrap();
    flex.merge("operands", CANARY).unwrap();
    flex.create_index(&name("index"), "value_prefix:40", IndexOptions::new()).unwrap();
    let lsm = db.keyspace(&name("lsm")).unwrap();
    let mut table = lsm.table_writer("/outside").unwrap();
    table.put([CANARY, b"~"].concat(), CANARY).unwrap();
    table.finish().unwrap();
    look("with a table made outside");
    lsm.ingest_tables(["/outside"], TableIngestOptions::copying()).unwrap();
    for number in 0..100 {
        flex.delete(canary_with(number)).unwrap();
    }
    db.checkpoint("/checkpoint").unwrap();
    look("with a checkpoint");
    db.compact().unwrap();
    db.vacuum().unwrap();
    look("behind a vacuum");
    flex.put_with(CANARY, CANARY, Durability::Buffered).unwrap();
}

/// Brings it into the name of a consumer, a store that a keyspace is converted to, files that get
/// another key, a repository of backups, what is restored of it, and a stream, which is given back.
fn bring_elsewhere(storage: &SimStorage, db: &Db, look: &mut dyn FnMut(&str)) -> Vec<u8> {
    let text = String::from_utf8(CANARY.to_vec()).unwrap();
    db.create_consumer(&text, 1 << 20).unwrap();
    let packed = db.keyspace(&format!("{text} flex packed")).unwrap();
    let options = KeyspaceOptions::lsm().value_separation(Some(1000));
    let converted = packed.convert_while(options, |_| {
        look("while it is converted");
        ControlFlow::Continue(())
    });
    converted.unwrap();
    if db.is_encrypted() {
        let rotated = db.rotate_data_key_while(|_| {
            look("while it gets another key");
            ControlFlow::Continue(())
        });
        rotated.unwrap();
    }
    let of_backups = Arc::new(storage.clone());
    let backups = BackupRepository::open_in(of_backups, "/backups", OpenExisting::OrCreate);
    let backups = backups.unwrap();
    backups.create(db).unwrap();
    look("with a backup");
    backups.restore(1, "/restored", RestoreOptions::new()).unwrap();
    look("with what was restored");
    let mut sent = Vec::new();
    db.backup_to(&mut sent, BackupOptions::new()).unwrap();
    sent
}

#[test]
fn nothing_that_is_in_a_database_can_be_read_from_its_files() {
    let storage = SimStorage::new(1);
    let db = open(&storage, Some(key(1)), "/db");
    let mut look = |when: &str| {
        let found = files_with_canary(&storage);
        assert!(found.is_empty(), "{when}: {found:?}");
    };
    write_canaries(&db, &mut look);
    assert!(!has_canary(&bring_elsewhere(&storage, &db, &mut look)));
    db.close().unwrap();
    drop(db);
    look("when it is closed");
    let options = RepairOptions::new(builder(&storage, Some(key(4))));
    let report = lithedb::repair("/db", "/again", options).unwrap();
    assert!(report.is_whole(), "{report:?}");
    look("with what a repair has made");
    expect_canaries(&open(&storage, Some(key(5)), "/again"));
    let db = open(&storage, Some(key(2)), "/db");
    assert!(db.check().unwrap().is_ok());
    expect_canaries(&db);
    let copy = open(&storage, Some(key(3)), "/checkpoint");
    assert!(copy.is_encrypted() && copy.check().unwrap().is_ok());
    drop((db, copy));
    assert_eq!(files_with_canary(&storage), Vec::<PathBuf>::new());
}

fn expect_canaries(db: &Db) {
    let text = String::from_utf8(CANARY.to_vec()).unwrap();
    for kind in ["flex", "flex packed", "lsm", "history"] {
        let keyspace = db.keyspace(&format!("{text} {kind}")).unwrap();
        for number in 100..200 {
            let value = keyspace.get(canary_with(number)).unwrap().unwrap();
            let expected = match number % 20 {
                0 => CANARY.repeat(100),
                _ => canary_with(number),
            };
            assert!(*value == *expected, "{kind} {number}");
        }
        assert!(*keyspace.get("long").unwrap().unwrap() == *CANARY.repeat(5000));
        assert!(*keyspace.get("streamed").unwrap().unwrap() == *CANARY.repeat(5000));
    }
}

/// The test above finds what there is to be found.
#[test]
fn the_canary_is_seen_in_each_kind_of_file_that_is_not_encrypted() {
    let storage = SimStorage::new(1);
    let db = open(&storage, None, "/db");
    let mut found = Vec::new();
    let mut look = |_: &str| found.extend(files_with_canary(&storage));
    write_canaries(&db, &mut look);
    assert!(has_canary(&bring_elsewhere(&storage, &db, &mut look)));
    let files = ["/wal/", "MANIFEST-", "index-", "seg-", "tables-", "tbl-", "val-", "/outside"];
    for part in files.into_iter().chain(["/checkpoint/", "/backups/files/", "/restored/"]) {
        let has_part = |path: &PathBuf| path.to_string_lossy().contains(part);
        assert!(found.iter().any(has_part), "{part}: {found:?}");
    }
}

/// A copy has the same keys, and numbers its files on as the database does: so both have files with
/// the same key. What they write there, they have no nonce in common for.
#[test]
fn copies_that_go_separate_ways_use_no_nonce_for_two_messages() {
    let watch = Arc::new(NonceWatch::default());
    let key = |seed| key(seed).watched(Arc::clone(&watch));
    let storage = SimStorage::new(1);
    let db = open(&storage, Some(key(1)), "/db");
    for (name, options) in [("flex", KeyspaceOptions::flex()), ("lsm", KeyspaceOptions::lsm())] {
        let keyspace = db.create_keyspace(name, options.value_separation(Some(1000))).unwrap();
        keyspace.put("both", "the same").unwrap();
    }
    db.close().unwrap();
    drop(db);
    let copy = storage.duplicate();
    let value_of = |side: u8, number: u32| {
        // Some are the same, and come to the same place: those may have the same nonce.
        let of = if number.is_multiple_of(3) { 0 } else { side };
        vec![of ^ number as u8; 700 + number as usize % 2 * 900]
    };
    for (side, storage) in [(1, &storage), (2, &copy)] {
        let db = open(storage, Some(key(u64::from(side) + 1)), "/db");
        for name in ["flex", "lsm"] {
            let keyspace = db.keyspace(name).unwrap();
            for number in 0..90 {
                keyspace.put(canary_with(number), value_of(side, number)).unwrap();
            }
            keyspace.put("long", vec![side; 200_000]).unwrap();
        }
        db.compact().unwrap();
        db.close().unwrap();
    }
    for (side, storage) in [(1, &storage), (2, &copy)] {
        let db = open(storage, Some(key(u64::from(side) + 3)), "/db");
        for name in ["flex", "lsm"] {
            let keyspace = db.keyspace(name).unwrap();
            for number in 0..90 {
                let value = keyspace.get(canary_with(number)).unwrap();
                assert_eq!(value.as_deref(), Some(&*value_of(side, number)), "{name} {number}");
            }
        }
        assert!(db.check().unwrap().is_ok());
    }
}

fn inflict(list: impl Fn(&Fixture) -> Vec<lithe_sim::damage::Injury>) -> Arc<Ledger> {
    let ledger = Arc::new(Ledger::new());
    for ending in ENDINGS {
        let fixture = Fixture::encrypted(1, ending, OP_COUNT).unwrap();
        let injuries = list(&fixture);
        run(&fixture, &injuries, THREADS, &ledger, "(an injury of a test)");
    }
    ledger.assert_clean();
    ledger
}

#[test]
fn a_flipped_bit_in_an_encrypted_database_is_reported_or_harmless() {
    let ledger = inflict(|fixture| flips(fixture, 149, Thoroughness::OneBit));
    for outcome in ["refused to open", "refused to read", "harmless"] {
        assert!(ledger.counted(outcome) > 0, "no {outcome}:\n{ledger}");
    }
}

#[test]
fn truncations_and_lost_sectors_of_an_encrypted_database_are_reported_or_harmless() {
    inflict(|fixture| truncations(fixture, 523));
    inflict(sectors);
}

#[test]
fn files_of_another_database_with_the_same_key_are_refused() {
    let encrypted = Fixture::encrypted(1 << 32 | 1, Ending::Closed, OP_COUNT).unwrap();
    inflict(|fixture| misplacements(fixture, &encrypted));
    let plain = Fixture::build(3 << 32, Ending::Closed, OP_COUNT).unwrap();
    assert!(!plain.setup.encrypted);
    inflict(|fixture| misplacements(fixture, &plain));
}

/// The kinds of pieces that all files consist of, which are all sound.
fn kinds_of_pieces(storage: &SimStorage) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    for (path, _) in storage.files() {
        if path.ends_with("LOCK") {
            continue;
        }
        let take = |piece: lithedb::inspect::Piece| {
            kinds.insert(piece.kind);
            ControlFlow::Continue(())
        };
        let report = inspect(storage, &path, Detail::Fields, take).unwrap();
        assert_eq!(report.damaged, 0, "{}", path.display());
    }
    kinds
}

#[test]
fn pieces_are_shown_with_the_key_and_verified_without() {
    let storage = SimStorage::new(1);
    let db = open(&storage, Some(key(1)), "/db");
    write_canaries(&db, &mut |_| {});
    db.close().unwrap();
    drop(db);
    let kinds = kinds_of_pieces(&storage);
    for kind in ["commit", "edit", "snapshot part", "run", "block", "value", "slot of a keyring"] {
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
    let locked: Arc<dyn Storage> = Arc::new(storage.clone());
    let wrong = unlock(Arc::clone(&locked), "/db", &Encryption::key([8; 32])).unwrap_err();
    assert!(matches!(wrong, Error::WrongKey { .. }), "{wrong}");
    let unlocked = unlock(Arc::clone(&locked), "/db", &key(9)).unwrap();
    let shown = |storage: &dyn Storage, path: &Path| {
        let mut text = String::new();
        inspect(storage, path, Detail::Entries, |piece| {
            text += &format!("{piece:?}");
            ControlFlow::Continue(())
        })
        .map(|report| assert_eq!((report.damaged, report.unknown), (0, 0), "{path:?}"))
        .unwrap();
        text
    };
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, _) in storage.files().iter().filter(|(path, _)| path.starts_with("/db")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if ["LOCK", "KEYRING"].contains(&name) || name.starts_with("val-") {
            continue;
        }
        // As entries are printed: bytes, or escaped.
        let has_it =
            |text: &str| text.contains("99, 97, 110, 97, 114, 121") || text.contains("canary");
        assert!(!has_it(&shown(&*locked, path)), "{path:?}");
        let stem = ["MANIFEST", "index", "seg", "tables", "tbl"].into_iter();
        let kind = stem.into_iter().find(|stem| name.starts_with(stem)).unwrap_or("wal");
        *seen.entry(kind).or_default() += usize::from(has_it(&shown(&*unlocked, path)));
    }
    assert!(seen.len() == 6 && seen.values().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn a_table_that_is_not_encrypted_is_not_ingested() {
    let storage = SimStorage::new(1);
    let plain = open(&storage, None, "/plain");
    let keyspace = plain.create_keyspace("k", KeyspaceOptions::lsm()).unwrap();
    let mut table = keyspace.table_writer("/outside").unwrap();
    table.put("key", "value").unwrap();
    table.finish().unwrap();
    let db = open(&storage, Some(key(1)), "/db");
    let keyspace = db.create_keyspace("k", KeyspaceOptions::lsm()).unwrap();
    let error = keyspace.ingest_tables(["/outside"], TableIngestOptions::copying()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let mut table = keyspace.table_writer("/inside").unwrap();
    table.put("key", "value").unwrap();
    table.finish().unwrap();
    let other = plain.keyspace("k").unwrap();
    let error = other.ingest_tables(["/inside"], TableIngestOptions::copying()).unwrap_err();
    assert!(matches!(error, Error::KeyNeeded { .. }), "{error}");
}

/// That a share of the option sets is encrypted, so that all campaigns have some.
#[test]
fn one_of_some_option_sets_is_encrypted() {
    let count = (0..400).filter(|number| Setup::numbered(*number).encrypted).count();
    assert!((60..140).contains(&count), "{count}");
    assert!(!Setup::numbered(0).encrypted);
    let encrypted = (0..400).map(Setup::numbered).filter(|setup| setup.encrypted);
    let with_aes = encrypted.filter(|setup| setup.cipher() == Cipher::XAes256Gcm).count();
    assert!((20..count - 20).contains(&with_aes), "{with_aes} of {count}");
}

#[test]
fn a_database_keeps_the_cipher_that_it_was_made_with() {
    for (cipher, other) in [
        (Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm),
        (Cipher::XAes256Gcm, Cipher::XChaCha20Poly1305),
    ] {
        let storage = SimStorage::new(1);
        let value_of = |number: u32| vec![number as u8; (number as usize * 37) % 3000];
        let db = open(&storage, Some(key(1).cipher(cipher)), "/db");
        assert_eq!(db.cipher(), Some(cipher));
        let k = db.create_keyspace("k", KeyspaceOptions::lsm()).unwrap();
        for number in 0..300 {
            k.put(canary_with(number), value_of(number)).unwrap();
        }
        db.close().unwrap();
        drop((k, db));
        // Whoever opens it may say what is to be for new ones.
        let db = open(&storage, Some(key(2).cipher(other)), "/db");
        assert_eq!(db.cipher(), Some(cipher));
        db.rotate_data_key().unwrap();
        db.rekey(&key(3).cipher(other)).unwrap();
        let copy = db.checkpoint("/copy").map(|_| open(&storage, Some(key(4)), "/copy")).unwrap();
        for db in [&db, &copy] {
            let k = db.keyspace("k").unwrap();
            for number in 0..300 {
                let found = k.get(canary_with(number)).unwrap();
                assert_eq!(found.as_deref(), Some(&value_of(number)[..]), "{cipher}");
            }
            assert_eq!(db.cipher(), Some(cipher));
            assert!(db.check().unwrap().is_ok());
        }
        assert_eq!(files_with_canary(&storage), Vec::<PathBuf>::new());
    }
    let storage = SimStorage::new(2);
    assert_eq!(open(&storage, None, "/db").cipher(), None);
}
