//! Repair of databases that have keyspaces with keys of their own: keyrings of another time,
//! headers that do not say any more which key their files have, and keys that several come to have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lithedb::storage::{CrashMode, OpenMode, SimStorage, Storage};
use lithedb::{Db, IndexOptions, RepairOptions, RepairReport, repair};

use crate::own_keys::{
    COUNT, builder, expect_all, fill, keyring_of, keys_of_files, names, open, options_of, value_of,
};

const OWN: [&str; 2] = ["flex goes", "lsm goes"];

fn overwrite(storage: &SimStorage, path: &Path, bytes: &[u8]) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

fn repaired(storage: &SimStorage, seed: u64) -> (RepairReport, Db) {
    let report = repair("/db", "/repaired", RepairOptions::new(builder(storage, seed))).unwrap();
    (report, builder(storage, seed + 1).open("/repaired").unwrap())
}

/// What a repair with a keyring of before an index, or a conversion, makes of a keyspace: it is all
/// there, and nothing of it says that it has a key that a part of it does not have.
#[test]
fn a_keyring_of_before_an_index_or_a_conversion_gives_a_repair_that_can_be_opened() {
    for what in ["index", "conversion"] {
        let storage = SimStorage::new(1);
        let db = open(&storage, 1);
        fill(&db);
        let older = keyring_of(&storage);
        let keyspace = db.keyspace("flex goes").unwrap();
        match what {
            "index" => {
                keyspace.create_index("later", "value_prefix:12", IndexOptions::new()).unwrap();
            }
            _ => drop(keyspace.convert(options_of("lsm")).unwrap()),
        }
        db.close().unwrap();
        drop((keyspace, db));
        overwrite(&storage, Path::new("/db/KEYRING"), &older);
        let refused = builder(&storage, 2).open("/db").unwrap_err();
        assert!(refused.is_corruption(), "{refused}");
        let (report, db) = repaired(&storage, 3);
        let told = report.losses.iter().filter(|loss| loss.what.contains("another time"));
        let told: Vec<_> = told.map(|loss| loss.keyspace.clone()).collect();
        assert_eq!(told, [Some("flex goes".to_owned())], "{what}: {report:?}");
        assert!(report.problems.is_empty() && report.not_rebuilt.is_empty(), "{report:?}");
        for name in names(&["keeps", "goes"]) {
            assert_eq!(db.keyspace(&name).unwrap().has_own_key(), name != "flex goes", "{name}");
        }
        expect_all(&db, &names(&["", "keeps", "goes"]));
        if what == "index" {
            let indexes = db.keyspace("flex goes").unwrap().indexes().unwrap();
            assert_eq!(indexes.len(), 2);
        }
        // The key that it had is no one's any more; what is left with it is written anew.
        assert!(db.rotate_data_key().unwrap().is_complete);
        assert_eq!(db.destroy_keys().unwrap().left, 0);
        expect_all(&db, &names(&["", "keeps", "goes"]));
        drop(db);
        let db = builder(&storage, 5).open("/repaired").unwrap();
        expect_all(&db, &names(&["", "keeps", "goes"]));
    }
}

/// Without a manifest an index of a keyspace becomes another one, with the same key: it goes with
/// the last of them.
#[test]
fn a_key_that_several_keyspaces_have_behind_a_repair_goes_with_the_last_of_them() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    let own = db.create_keyspace_with_own_key("own", options_of("flex")).unwrap();
    assert!(!own.is_own_key_shared().unwrap());
    for number in 0..COUNT {
        own.put(format!("{number:05}"), value_of("own", number)).unwrap();
    }
    own.create_index("by value", "value_prefix:12", IndexOptions::new()).unwrap();
    assert!(!own.is_own_key_shared().unwrap());
    db.close().unwrap();
    drop((own, db));
    for (path, _) in storage.files() {
        if path.to_string_lossy().contains("/db/MANIFEST") {
            storage.remove_file(&path).unwrap();
        }
    }
    let (report, db) = repaired(&storage, 2);
    assert!(report.problems.is_empty(), "{report:?}");
    let found: Vec<String> = db.keyspaces().into_iter().map(|info| info.name).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    for name in &found {
        let keyspace = db.keyspace(name).unwrap();
        assert!(keyspace.has_own_key() && keyspace.is_own_key_shared().unwrap(), "{name}");
    }
    db.drop_keyspace(&found[0]).unwrap();
    assert_eq!(db.destroy_keys().unwrap().destroyed, 0);
    let last = db.keyspace(&found[1]).unwrap();
    assert!(last.has_own_key() && !last.is_own_key_shared().unwrap());
    assert!(last.count::<&[u8]>(..).unwrap() > 0);
    drop(last);
    let before: BTreeSet<u16> = keys_of_files(&storage).into_values().collect();
    db.drop_keyspace(&found[1]).unwrap();
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    let files = keys_of_files(&storage).into_iter();
    let after = files.filter(|(path, _)| path.starts_with("/repaired")).map(|(_, key)| key);
    assert!(after.collect::<BTreeSet<u16>>().len() < before.len());
    assert!(db.check().unwrap().is_ok());
}

/// A database of few files, of each kind one with a key of its own.
fn small() -> SimStorage {
    let storage = SimStorage::new(1);
    let db = builder(&storage, 1).value_file_size(1 << 20).open("/db").unwrap();
    for name in OWN {
        let kind = name.split(' ').next().unwrap();
        let own = db.create_keyspace_with_own_key(name, options_of(kind)).unwrap();
        for number in 0..COUNT {
            own.put(format!("{number:05}"), value_of(name, number)).unwrap();
        }
        // One of several chunks, whose table says the key.
        own.put("long", value_of(name, 5).repeat(400)).unwrap();
    }
    db.flush().unwrap();
    // In the log alone.
    for name in OWN {
        db.keyspace(name).unwrap().put("late", value_of(name, 1)).unwrap();
    }
    storage.crash(CrashMode::KeepAll, 1)
}

fn expect_small(db: &Db) {
    for name in OWN {
        let keyspace = db.keyspace(name).unwrap();
        assert_eq!(keyspace.count::<&[u8]>(..).unwrap(), COUNT as u64 + 2, "{name}");
        for number in 0..COUNT {
            let value = keyspace.get(format!("{number:05}")).unwrap();
            assert_eq!(value.as_deref(), Some(&value_of(name, number)[..]), "{name} {number}");
        }
        let long = keyspace.get("long").unwrap();
        assert_eq!(long.as_deref(), Some(&value_of(name, 5).repeat(400)[..]), "{name}");
        let late = keyspace.get("late").unwrap();
        assert_eq!(late.as_deref(), Some(&value_of(name, 1)[..]), "{name}");
    }
    assert!(db.check().unwrap().is_ok());
}

/// Files of a kind, and where in them their headers are.
fn files_of(storage: &SimStorage, stem: &str) -> Vec<PathBuf> {
    let with_keys = keys_of_files(storage).into_keys();
    with_keys.filter(|path| path.to_string_lossy().contains(stem)).collect()
}

/// Each bit of the number of the key in a header is another key's by now, or nobody's; or there is
/// no header at all. What lies behind it is sealed with one of the keys that there are.
#[test]
fn a_repair_finds_the_key_of_a_file_whose_header_says_another_one_or_none() {
    let made = small();
    let numbers: BTreeSet<u16> = keys_of_files(&made).into_values().collect();
    let mut is_anothers = 0;
    for (stem, is_log) in [("/val-", false), ("/seg-", false), ("/tbl-", false), (".wal", true)] {
        let files = files_of(&made, stem);
        // Of the log that which is written to.
        let path = if is_log { files.last() } else { files.first() }.unwrap();
        for bit in 0..=16_u8 {
            let storage = made.duplicate();
            let mut bytes = storage.read_file(path).unwrap();
            let (places, at): (&[usize], usize) = match is_log {
                true => (&[0, 2 << 10], 18), // It has its header twice.
                false => (&[0], 10),
            };
            for place in places {
                match bit {
                    16 => bytes[*place..place + 40].fill(if is_log { 0xFF } else { 0 }),
                    _ => bytes[place + at + usize::from(bit / 8)] ^= 1 << (bit % 8),
                }
            }
            let said = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            is_anothers += u64::from(numbers.contains(&said));
            overwrite(&storage, path, &bytes);
            let (report, db) = repaired(&storage, 2);
            assert!(report.problems.is_empty(), "{path:?} {bit}: {report:?}");
            expect_small(&db);
        }
    }
    assert!(is_anothers > 4, "{is_anothers}: a flipped bit is another's number");
}
