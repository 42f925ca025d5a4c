//! Keyspaces with a data key of their own: all that they have is sealed with it, it is destroyed
//! when they are dropped, and nothing of what others have goes with it, wherever that is
//! interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::base::SeededEntropy;
use lithedb::inspect::{Detail, inspect, unlock};
use lithedb::storage::{CrashMode, OpenMode, SimStorage, Storage};
use lithedb::{
    Access, Background, Builder, Db, Encryption, Error, IndexOptions, KeyDestructionReport,
    KeyspaceOptions, OpenExisting, RepairOptions, WriteBatch, repair,
};

pub(crate) const KINDS: [&str; 3] = ["flex", "lsm", "history"];
pub(crate) const COUNT: usize = 40;

pub(crate) fn key(seed: u64) -> Encryption {
    Encryption::key([7; 32]).simulated(Arc::new(SeededEntropy::new(seed << 32)))
}

pub(crate) fn builder(storage: &SimStorage, seed: u64) -> Builder {
    let builder = Db::builder().storage(Arc::new(storage.clone())).background(Background::Stepped);
    let builder = builder.memory_budget(1 << 20).memtable_size(4 << 10).wal_file_size(16 << 10);
    builder.value_file_size(16 << 10).encryption(key(seed))
}

pub(crate) fn open(storage: &SimStorage, seed: u64) -> Db {
    builder(storage, seed).open("/db").unwrap()
}

pub(crate) fn options_of(kind: &str) -> KeyspaceOptions {
    let options = match kind {
        "flex" => KeyspaceOptions::flex().interval_size(512).segment_size(4096),
        "lsm" => KeyspaceOptions::lsm().table_size(16 << 10),
        _ => KeyspaceOptions::history(),
    };
    options.value_separation(Some(300))
}

pub(crate) fn value_of(name: &str, number: usize) -> Vec<u8> {
    let len = if number.is_multiple_of(5) { 400 } else { 20 };
    let mut value = format!("{name} {number} ").repeat(len).into_bytes();
    value.truncate(len);
    value
}

/// Each kind once without a key of its own, and twice with one: `keeps`, `goes`.
pub(crate) fn fill(db: &Db) {
    for kind in KINDS {
        let plain = db.create_keyspace(kind, options_of(kind)).unwrap();
        assert!(!plain.has_own_key());
        for what in ["keeps", "goes"] {
            let name = format!("{kind} {what}");
            let own = db.create_keyspace_with_own_key(&name, options_of(kind)).unwrap();
            own.create_index("by value", "value_prefix:12", IndexOptions::new()).unwrap();
            assert!(own.has_own_key());
        }
    }
    // All in each commit, so that values of all are written together.
    for number in 0..COUNT {
        let mut batch = WriteBatch::new();
        for info in db.keyspaces() {
            let keyspace = db.keyspace(&info.name).unwrap();
            batch.put(&keyspace, format!("{number:05}"), value_of(&info.name, number));
        }
        db.write(batch).unwrap();
        if number % 16 == 5 {
            db.flush().unwrap();
        }
    }
}

pub(crate) fn expect_all(db: &Db, names: &[String]) {
    let found: Vec<String> = db.keyspaces().into_iter().map(|info| info.name).collect();
    assert_eq!(BTreeSet::from_iter(found), BTreeSet::from_iter(names.to_vec()));
    for name in names {
        let keyspace = db.keyspace(name).unwrap();
        assert_eq!(keyspace.count::<&[u8]>(..).unwrap(), COUNT as u64, "{name}");
        for number in 0..COUNT {
            let value = keyspace.get(format!("{number:05}")).unwrap();
            assert_eq!(value.as_deref(), Some(&value_of(name, number)[..]), "{name} {number}");
        }
    }
    assert!(db.check().unwrap().is_ok());
}

pub(crate) fn names(which: &[&str]) -> Vec<String> {
    let of = |kind: &str| {
        let own = which.iter().map(|what| format!("{kind} {what}").trim_end().to_owned());
        own.collect::<Vec<String>>()
    };
    KINDS.iter().flat_map(|kind| of(kind)).collect()
}

/// The number of the data key that each file has by its header; not of those without one.
pub(crate) fn keys_of_files(storage: &SimStorage) -> BTreeMap<PathBuf, u16> {
    let mut keys = BTreeMap::new();
    for (path, size) in storage.files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let at = if name.ends_with(".wal") { 18 } else { 10 };
        if ["LOCK", "KEYRING", "RESERVE"].contains(&name.as_str()) || size < 24 {
            continue;
        }
        let header = storage.read_file(&path).unwrap();
        if header[..8] != [0; 8] {
            keys.insert(path, u16::from_le_bytes([header[at], header[at + 1]]));
        }
    }
    keys
}

pub(crate) fn keyring_of(storage: &SimStorage) -> Vec<u8> {
    storage.read_file(Path::new("/db/KEYRING")).unwrap()
}

/// What can be seen in the files of a disk with the keyring of another one: names of keyspaces
/// that values were put to.
pub(crate) fn seen_with(storage: &SimStorage, keyring: &[u8]) -> BTreeSet<String> {
    let copy = storage.duplicate();
    let file = copy.open(Path::new("/db/KEYRING"), OpenMode::ReadWrite).unwrap();
    file.write_all_at(keyring, 0).unwrap();
    let copy: Arc<dyn Storage> = Arc::new(copy);
    let unlocked = unlock(Arc::clone(&copy), "/db", &key(99)).unwrap();
    let mut text = String::new();
    for (path, _) in storage.files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        // Names are in the manifest, under the key that all have.
        if name.starts_with("MANIFEST") || ["LOCK", "KEYRING", "RESERVE"].contains(&name) {
            continue;
        }
        let shown = inspect(&*unlocked, &path, Detail::Entries, |piece| {
            text += &format!("{piece:?}\n");
            ControlFlow::Continue(())
        });
        assert!(shown.is_ok() || shown.is_err_and(|error| error.is_corruption()), "{path:?}");
    }
    let has = |name: &String| {
        let bytes = value_of(name, 1);
        let listed = bytes.iter().map(u8::to_string).collect::<Vec<String>>().join(", ");
        text.contains(&listed) || text.contains(std::str::from_utf8(&bytes).unwrap())
    };
    let all = names(&["", "keeps", "goes"]);
    all.into_iter().filter(has).collect()
}

#[test]
fn all_that_a_keyspace_has_is_sealed_with_its_own_key() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    db.flush().unwrap();
    db.compact().unwrap();
    let keys = keys_of_files(&storage);
    let folder_of = |path: &PathBuf| path.parent().unwrap().file_name().unwrap().to_owned();
    let mut by_folder: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for (path, key) in keys.iter().filter(|(path, _)| path.starts_with("/db/keyspaces")) {
        by_folder.entry(folder_of(path)).or_default().insert(*key);
    }
    assert!(by_folder.values().all(|keys| keys.len() == 1), "{by_folder:?}");
    let infos = db.keyspaces();
    let key_of = |name: &str| {
        let info = infos.iter().find(|info| info.name == name).unwrap();
        let folder = by_folder.iter().find(|(folder, _)| **folder == *format!("{:08}", info.id));
        *folder.unwrap().1.first().unwrap()
    };
    let own: BTreeSet<u16> = names(&["keeps", "goes"]).iter().map(|name| key_of(name)).collect();
    assert_eq!(own.len(), 6, "{own:?}");
    assert!(KINDS.iter().all(|kind| key_of(kind) == 1 && !own.contains(&1)));
    // Archives and indexes have those as well: there is no other.
    let all: BTreeSet<u16> = by_folder.values().flatten().copied().collect();
    assert_eq!(all.len(), 7, "{all:?}");
    let of_kind = |kind: &str| -> BTreeSet<u16> {
        let is_of_kind = |path: &&PathBuf| path.to_string_lossy().contains(kind);
        keys.keys().filter(is_of_kind).map(|path| keys[path]).collect()
    };
    assert_eq!(of_kind("/val-"), all, "each has value files of its own");
    assert_eq!(of_kind("MANIFEST"), BTreeSet::from([1]));
    assert!(of_kind(".wal").iter().any(|key| !all.contains(key)), "the log has one of its own");
    expect_all(&db, &names(&["", "keeps", "goes"]));
}

#[test]
fn what_was_dropped_cannot_be_read_from_any_copy_with_the_keyring_that_is_left() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    let before = storage.duplicate();
    db.flush().unwrap();
    let flushed = storage.duplicate();
    let everything = BTreeSet::from_iter(names(&["", "keeps", "goes"]));
    for disk in [&before, &flushed] {
        assert_eq!(seen_with(disk, &keyring_of(&storage)), everything);
    }
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    let report = db.destroy_keys().unwrap();
    assert_eq!((report.left, report.files_left.len()), (0, 0), "{report:?}");
    let left = BTreeSet::from_iter(names(&["", "keeps"]));
    for disk in [&before, &flushed] {
        let seen = seen_with(disk, &keyring_of(&storage));
        assert!(seen.is_subset(&left), "{seen:?}");
    }
    // What was in the log alone had the key that is gone with it; segments and tables have theirs.
    assert_eq!(seen_with(&flushed, &keyring_of(&storage)), left);
    assert_eq!(seen_with(&flushed, &keyring_of(&flushed)), everything);
    expect_all(&db, &names(&["", "keeps"]));
    db.close().unwrap();
    drop(db);
    let db = open(&storage, 2);
    assert!(!db.is_data_key_rotating());
    expect_all(&db, &names(&["", "keeps"]));
}

#[test]
fn what_holds_a_dropped_keyspace_keeps_its_key_until_it_is_let_go() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    db.flush().unwrap();
    let (snapshot, keyspace) = (db.snapshot(), db.keyspace("flex goes").unwrap());
    db.drop_keyspace("flex goes").unwrap();
    let held = db.destroy_keys().unwrap();
    assert!(held.left > 0 && !held.files_left.is_empty(), "{held:?}");
    let value = snapshot.get(&keyspace, "00005").unwrap();
    assert_eq!(value.as_deref(), Some(&value_of("flex goes", 5)[..]));
    let refused = keyspace.put("more", vec![1; 1000]).unwrap_err();
    assert!(matches!(refused, Error::KeyspaceNotFound { .. }), "{refused}");
    drop((snapshot, keyspace));
    let done = db.destroy_keys().unwrap();
    assert!(done.left == 0 && done.destroyed > 0, "{done:?}");
    assert_eq!(db.destroy_keys().unwrap(), KeyDestructionReport::default());
}

#[test]
fn a_rotation_gives_each_another_key_and_what_is_dropped_behind_it_loses_that() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    let older: BTreeSet<u16> = keys_of_files(&storage).into_values().collect();
    let report = db.rotate_data_key().unwrap();
    assert!(report.is_complete, "{report:?}");
    let newer: BTreeSet<u16> = keys_of_files(&storage).into_values().collect();
    assert!(older.is_disjoint(&newer) && newer.len() >= 8, "{older:?} {newer:?}");
    expect_all(&db, &names(&["", "keeps", "goes"]));
    db.drop_keyspace("lsm goes").unwrap();
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    let report = db.rotate_data_key().unwrap();
    assert!(report.is_complete, "{report:?}");
    let left: Vec<String> =
        names(&["", "keeps", "goes"]).into_iter().filter(|name| name != "lsm goes").collect();
    expect_all(&db, &left);
    drop(db);
    expect_all(&open(&storage, 2), &left);
}

#[test]
fn a_conversion_keeps_the_key_and_what_is_converted_is_destroyed_like_others() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    let goes = db.keyspace("flex goes").unwrap();
    goes.convert(options_of("history")).unwrap();
    goes.convert(options_of("lsm")).unwrap_err(); // Versions would be lost.
    db.keyspace("lsm keeps").unwrap().convert(options_of("flex")).unwrap();
    expect_all(&db, &names(&["", "keeps", "goes"]));
    drop((goes, db));
    let db = open(&storage, 2);
    assert!(db.keyspace("lsm keeps").unwrap().has_own_key());
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    expect_all(&db, &names(&["", "keeps"]));
    drop(db);
    expect_all(&open(&storage, 3), &names(&["", "keeps"]));
}

#[test]
fn a_checkpoint_has_the_key_that_its_database_has_destroyed() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    db.checkpoint("/copy").unwrap();
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    let copy = builder(&storage, 2).existing(OpenExisting::Only).open("/copy").unwrap();
    expect_all(&copy, &names(&["", "keeps", "goes"]));
    expect_all(&db, &names(&["", "keeps"]));
}

#[test]
fn a_key_goes_by_itself_when_nothing_holds_its_files_any_more() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    let before = storage.duplicate();
    let snapshot = db.snapshot();
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    assert!(db.destroy_keys().unwrap().left > 0);
    drop(snapshot);
    while db.step().unwrap() {}
    assert_eq!(db.destroy_keys().unwrap(), KeyDestructionReport::default(), "it is done");
    let seen = seen_with(&before, &keyring_of(&storage));
    assert!(seen.is_subset(&names(&["", "keeps"]).into_iter().collect()), "{seen:?}");
    expect_all(&db, &names(&["", "keeps"]));
}

/// Else the key of before the rotation would stay, and with it what copies of older files have.
#[test]
fn what_is_dropped_while_a_rotation_is_not_over_loses_the_older_key_as_well() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    db.flush().unwrap();
    let before = storage.duplicate();
    let report = db.rotate_data_key_while(|_| ControlFlow::Break(())).unwrap();
    assert!(report.is_cancelled && db.is_data_key_rotating(), "{report:?}");
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    let left = db.destroy_keys().unwrap();
    assert!(left.left > 0 && db.is_data_key_rotating(), "others have older ones: {left:?}");
    let seen = seen_with(&before, &keyring_of(&storage));
    assert_eq!(seen, names(&["", "keeps"]).into_iter().collect());
    assert!(db.rotate_data_key().unwrap().is_complete);
    assert_eq!(db.destroy_keys().unwrap(), KeyDestructionReport::default());
    expect_all(&db, &names(&["", "keeps"]));
    drop(db);
    expect_all(&open(&storage, 2), &names(&["", "keeps"]));
}

#[test]
fn a_keyring_of_another_time_is_told_and_not_used() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    let plain = db.create_keyspace("plain", options_of("flex")).unwrap();
    plain.put("k", "v").unwrap();
    let older = keyring_of(&storage);
    let own = db.create_keyspace_with_own_key("own", options_of("flex")).unwrap();
    own.put("k", "v").unwrap();
    db.close().unwrap();
    drop((plain, own, db));
    let keyring = storage.open(Path::new("/db/KEYRING"), OpenMode::ReadWrite).unwrap();
    let newer = keyring_of(&storage);
    keyring.write_all_at(&older, 0).unwrap();
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let refused = builder(&storage, 2).access(access).open("/db").unwrap_err();
        let Error::Corruption { file, what, .. } = &refused else { panic!("{refused}") };
        assert!(file.ends_with("KEYRING") && what.contains("another time"), "{refused}");
    }
    assert_eq!(keyring_of(&storage), older, "nothing was changed");
    let options = RepairOptions::new(builder(&storage, 3));
    let report = repair("/db", "/repaired", options).unwrap();
    assert!(report.losses.iter().any(|loss| loss.what.contains("another time")), "{report:?}");
    let repaired = builder(&storage, 4).open("/repaired").unwrap();
    assert!(!repaired.keyspace("own").unwrap().has_own_key());
    let value = repaired.keyspace("plain").unwrap().get("k").unwrap();
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    keyring.write_all_at(&newer, 0).unwrap();
    assert!(open(&storage, 5).keyspace("own").unwrap().has_own_key());
}

#[test]
fn a_repaired_database_has_the_keys_of_its_keyspaces() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    drop(db);
    let options = RepairOptions::new(builder(&storage, 2));
    let report = repair("/db", "/repaired", options).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let db = builder(&storage, 3).open("/repaired").unwrap();
    expect_all(&db, &names(&["", "keeps", "goes"]));
    for name in names(&["goes"]) {
        assert!(db.keyspace(&name).unwrap().has_own_key());
        db.drop_keyspace(&name).unwrap();
    }
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    expect_all(&db, &names(&["", "keeps"]));
}

/// Options that were read from one are no way to say that another one has a key.
#[test]
fn options_of_a_keyspace_say_nothing_of_its_key() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    let own = db.create_keyspace_with_own_key("own", options_of("history")).unwrap();
    let info = db.keyspaces().remove(0);
    assert!(info.has_own_key);
    let plain = db.create_keyspace("plain", info.options.clone()).unwrap();
    assert!(!plain.has_own_key());
    let again = db.create_keyspace_with_own_key("again", info.options).unwrap();
    assert!(again.has_own_key() && own.has_own_key());
    own.convert(options_of("history")).unwrap();
    assert!(own.has_own_key() && db.check().unwrap().is_ok());
}

#[test]
fn what_is_not_encrypted_has_no_keys() {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(1));
    let db = Db::builder().storage(storage).background(Background::Stepped).open("/db").unwrap();
    let refused = db.create_keyspace_with_own_key("k", KeyspaceOptions::flex()).unwrap_err();
    assert!(matches!(refused, Error::NotEncrypted { .. }), "{refused}");
    assert!(matches!(db.destroy_keys(), Err(Error::NotEncrypted { .. })));
    let plain = db.create_keyspace("k", KeyspaceOptions::flex()).unwrap();
    assert!(!plain.has_own_key() && !db.keyspaces()[0].has_own_key);
}

/// Crashes at each call of a creation and of a drop, in ways that lose or tear what was not synced.
/// Nothing of what others have is lost; what is there has its key; and what is not loses it.
#[test]
fn a_crash_anywhere_in_a_creation_or_a_drop_costs_nobody_else_anything() {
    let made = SimStorage::new(1);
    let db = open(&made, 1);
    fill(&db);
    db.close().unwrap();
    drop(db);
    let modes = [CrashMode::DropAll, CrashMode::RandomSectors, CrashMode::KeepAll];
    // A drop has many calls, most of them of flushes.
    for (is_creation, step) in [(true, 1), (false, 4)] {
        let mut outcomes = BTreeSet::new();
        for at in (0_u64..).step_by(step) {
            let storage = made.duplicate();
            let db = open(&storage, 2);
            storage.crash_inside(storage.mutation_count() + at);
            let done = match is_creation {
                true => {
                    let options = options_of("history");
                    db.create_keyspace_with_own_key("history more", options).map(drop)
                }
                false => db.drop_keyspace("history goes"),
            };
            let is_over = !storage.is_crashed();
            drop(db);
            for (seed, mode) in modes.into_iter().enumerate() {
                let crashed = storage.crash(mode, at * 3 + seed as u64);
                let is_there = expect_sound_behind(&crashed, is_creation);
                assert!(!is_over || done.is_err() || is_there == is_creation, "call {at}");
                outcomes.insert(is_there);
            }
            if is_over {
                assert!(at > 10, "it was interrupted");
                break;
            }
        }
        assert_eq!(outcomes.len(), 2, "it is there behind some crashes, and not behind others");
    }
}

/// Whether the keyspace is there that was being created or dropped.
fn expect_sound_behind(storage: &SimStorage, is_created: bool) -> bool {
    let name = if is_created { "history more" } else { "history goes" };
    let db = open(storage, 3);
    let is_there = db.keyspaces().iter().any(|info| info.name == name);
    let mut expected = names(&["", "keeps", "goes"]);
    if is_created && is_there {
        let keyspace = db.keyspace(name).unwrap();
        assert!(keyspace.has_own_key());
        for number in 0..COUNT {
            keyspace.put(format!("{number:05}"), value_of(name, number)).unwrap();
        }
        expected.push(name.to_owned());
    }
    expected.retain(|other| is_there || other != name);
    expect_all(&db, &expected);
    // The next one has no key that was to be another's.
    let plain = db.create_keyspace("plain", KeyspaceOptions::flex()).unwrap();
    assert!(!plain.has_own_key());
    drop(plain);
    db.drop_keyspace("plain").unwrap();
    let report = db.destroy_keys().unwrap();
    assert_eq!((report.left, report.files_left.len()), (0, 0), "{report:?}");
    let report = db.rotate_data_key().unwrap();
    assert!(report.is_complete, "{report:?}");
    drop(db);
    expect_all(&open(storage, 4), &expected);
    is_there
}
