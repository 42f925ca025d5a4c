//! Links in a database that somebody else may have made: what they lead to is not the store's.

use std::path::Path;
use std::sync::Arc;

use lithedb::storage::{OpenMode, OsStorage, Storage};
use lithedb::{Background, Db, KeyspaceOptions};

use crate::support::assert_sound;

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
