//! Links in a database that somebody else may have made: what they lead to is not the store's.

use std::path::Path;
use std::sync::Arc;

use lithedb::storage::{OpenMode, OsStorage, Storage};
use lithedb::{Access, Background, Db, FollowUpTo, KeyspaceOptions, RepairOptions};

use crate::support::{assert_sound, rows};

fn open(path: &Path) -> Db {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new());
    Db::builder().storage(storage).background(Background::Stepped).open(path).unwrap()
}

fn copy_below(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_below(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The folder of a keyspace that was dropped is emptied when it is opened, whatever is in it.
#[test]
fn what_a_link_in_the_place_of_a_dropped_store_leads_to_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = open(&path("db"));
    let kept = db.create_keyspace("kept", KeyspaceOptions::flex()).unwrap();
    kept.put("key", "value").unwrap();
    let dropped = db.create_keyspace("dropped", KeyspaceOptions::flex()).unwrap();
    dropped.put("key", "value").unwrap();
    let folder = format!("keyspaces/{:08}", dropped.id());
    db.flush().unwrap();
    db.drop_keyspace("dropped").unwrap();
    // As after a kill: nothing of it was removed yet.
    copy_below(&path("db"), &path("copy"));
    drop((kept, dropped, db));
    assert!(path("copy").join(&folder).is_dir());
    std::fs::remove_dir_all(path("copy").join(&folder)).unwrap();
    std::fs::create_dir(path("victim")).unwrap();
    let storage = OsStorage::new();
    let file = storage.open(&path("victim/letters"), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"dear", 0).unwrap();
    std::os::unix::fs::symlink(path("victim"), path("copy").join(&folder)).unwrap();
    let db = open(&path("copy"));
    assert_eq!(db.keyspace("kept").unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_sound(&db);
    db.close().unwrap();
    assert_eq!(std::fs::read_to_string(path("victim/letters")).unwrap(), "dear");
    drop(open(&path("copy")));
    assert!(path("victim/letters").exists());
}

/// Parts of a database that lie elsewhere are read by whoever reads it: in place, beside its
/// writer, and for a repair.
#[test]
fn directories_that_lie_elsewhere_are_read_by_all_who_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = open(&path("db"));
    let options = KeyspaceOptions::flex().value_separation(Some(100));
    let keyspace = db.create_keyspace("k", options).unwrap();
    for number in 0..50_u32 {
        let len = if number % 2 == 0 { 1000 } else { 10 };
        keyspace.put(number.to_be_bytes(), [number as u8].repeat(len)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    drop((keyspace, db));
    for name in ["values", "wal", "keyspaces"] {
        OsStorage::new().rename(&path("db").join(name), &path(name)).unwrap();
        std::os::unix::fs::symlink(path(name), path("db").join(name)).unwrap();
    }
    // What is none of the database's, and leads round in a circle.
    std::os::unix::fs::symlink(path("."), path("values/up")).unwrap();
    std::os::unix::fs::symlink("/", path("db/root")).unwrap();
    let db = open(&path("db"));
    let keyspace = db.keyspace("k").unwrap();
    keyspace.put("in the log", [7; 500]).unwrap();
    let expected = rows(&keyspace);
    let builder = || Db::builder().storage(Arc::new(OsStorage::new()));
    let follower = builder().follow(path("db"), FollowUpTo::Written).unwrap();
    assert_eq!(rows(&follower.db().keyspace("k").unwrap()), expected);
    drop((follower, keyspace, db));
    let db = builder().access(Access::ReadOnly).open(path("db")).unwrap();
    assert_eq!(rows(&db.keyspace("k").unwrap()), expected);
    assert_sound(&db);
    drop(db);
    let report = lithedb::repair(path("db"), path("new"), RepairOptions::new(builder())).unwrap();
    assert!(report.losses.is_empty(), "{report:?}");
    let db = open(&path("new"));
    assert_eq!(rows(&db.keyspace("k").unwrap()), expected);
    assert_sound(&db);
}
