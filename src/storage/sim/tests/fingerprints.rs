//! Fingerprints: equal for the same disk, and for no other.

use std::path::Path;

use super::{create, create_durable};
use crate::storage::{CrashMode, OpenMode, SimStorage, Storage};

/// A disk with a bit of everything.
fn some_disk() -> SimStorage {
    let storage = SimStorage::new(1);
    storage.create_dir_all(Path::new("/d/e")).unwrap();
    create_durable(&storage, "/d/one", &[7; 10_000]);
    create(&storage, "/d/two").write_all_at(b"not synced", 0).unwrap();
    storage
}

#[test]
fn a_disk_that_nothing_is_done_to_keeps_its_fingerprint() {
    let storage = some_disk();
    let before = storage.fingerprint();
    storage.list_dir(Path::new("/d")).unwrap();
    let file = storage.open(Path::new("/d/one"), OpenMode::ReadOnly).unwrap();
    file.read_exact_at(&mut [0; 100], 50).unwrap();
    assert_eq!(storage.fingerprint(), before);
    assert_eq!(storage.duplicate().fingerprint(), before);
    assert_eq!(storage.crash(CrashMode::KeepAll, 9).fingerprint(), before);
    assert_eq!(some_disk().fingerprint(), before, "what is done alike is alike");
}

#[test]
fn what_a_crash_leaves_is_told_apart_and_comes_again() {
    let storage = some_disk();
    let none = storage.crash(CrashMode::DropAll, 1).fingerprint();
    assert_eq!(storage.crash_keeping(|_| false).fingerprint(), none);
    let count = storage.unsynced_count();
    let all = storage.crash_keeping(|_| true).fingerprint();
    let without_bytes = storage.crash_keeping(|index| index + 2 != count).fingerprint();
    assert_ne!(storage.fingerprint(), all, "what is not synced may be lost yet");
    assert!(none != all && none != without_bytes && all != without_bytes);
}

#[test]
fn every_change_makes_another_fingerprint() {
    type Change = fn(&SimStorage);
    let changes: [(&str, Change); 11] = [
        ("bytes", |storage| storage.overwrite(Path::new("/d/one"), 5000, b"x").unwrap()),
        ("a bit", |storage| storage.flip_bit(Path::new("/d/one"), 9999, 7).unwrap()),
        ("a cut", |storage| storage.truncate(Path::new("/d/one"), 9999).unwrap()),
        ("zeros", |storage| storage.truncate(Path::new("/d/one"), 10_001).unwrap()),
        ("a name", |storage| {
            storage.rename(Path::new("/d/one"), Path::new("/d/none")).unwrap();
        }),
        ("a link", |storage| storage.link(Path::new("/d/one"), Path::new("/d/three")).unwrap()),
        ("a removal", |storage| storage.remove_file(Path::new("/d/one")).unwrap()),
        ("a directory", |storage| storage.create_dir(Path::new("/d/f")).unwrap()),
        ("a lost directory", |storage| storage.remove_dir(Path::new("/d/e")).unwrap()),
        ("a sync", |storage| {
            storage.open(Path::new("/d/two"), OpenMode::ReadWrite).unwrap().sync().unwrap();
        }),
        ("room", |storage| {
            let file = storage.open(Path::new("/d/one"), OpenMode::ReadWrite).unwrap();
            file.preallocate(40_000).unwrap();
        }),
    ];
    let before = some_disk().fingerprint();
    for (what, change) in changes {
        let storage = some_disk();
        assert_eq!(storage.fingerprint(), before); // It is kept from here on, and must not be.
        change(&storage);
        assert_ne!(storage.fingerprint(), before, "{what}");
    }
}
