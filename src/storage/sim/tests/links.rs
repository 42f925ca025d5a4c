//! A file with two names: each is durable with its directory, and the contents go with the last.

use std::path::Path;

use crate::storage::sim::{CrashMode, SimStorage};
use crate::storage::{OpenMode, Storage};

fn linked(storage: &SimStorage) {
    storage.create_dir_all(Path::new("/from")).unwrap();
    storage.create_dir_all(Path::new("/to")).unwrap();
    storage.sync_dir(Path::new("/")).unwrap();
    let file = storage.open(Path::new("/from/a"), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"hello", 0).unwrap();
    file.sync().unwrap();
    storage.sync_dir(Path::new("/from")).unwrap();
    storage.link(Path::new("/from/a"), Path::new("/to/b")).unwrap();
}

fn has(storage: &SimStorage, path: &str) -> bool {
    let Ok(file) = storage.open(Path::new(path), OpenMode::ReadOnly) else { return false };
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"hello");
    true
}

#[test]
fn a_link_is_durable_once_its_directory_is_synced_and_never_takes_the_other_name() {
    for mode in CrashMode::ALL {
        for seed in 0..8 {
            let storage = SimStorage::new(seed);
            linked(&storage);
            assert!(has(&storage.crash(mode, seed), "/from/a"), "{mode:?}");
            storage.sync_dir(Path::new("/to")).unwrap();
            assert!(has(&storage.crash(mode, seed), "/to/b"), "{mode:?}");
            storage.remove_file(Path::new("/from/a")).unwrap();
            let after = storage.crash(mode, seed);
            assert!(has(&after, "/to/b"), "{mode:?}");
            storage.sync_dir(Path::new("/from")).unwrap();
            let after = storage.crash(mode, seed);
            assert!(has(&after, "/to/b") && !has(&after, "/from/a"), "{mode:?}");
        }
    }
}

#[test]
fn the_room_comes_back_with_the_last_name() {
    let storage = SimStorage::new(1);
    linked(&storage);
    let room = storage.allocated_bytes();
    storage.remove_file(Path::new("/from/a")).unwrap();
    assert_eq!(storage.allocated_bytes(), room);
    let again = storage.link(Path::new("/to/b"), Path::new("/to/b")).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    storage.remove_file(Path::new("/to/b")).unwrap();
    assert!(storage.allocated_bytes() < room);
    let gone = storage.link(Path::new("/to/b"), Path::new("/to/c")).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn changing_what_has_two_names_is_reported() {
    let storage = SimStorage::new(1);
    linked(&storage);
    let file = storage.open(Path::new("/to/b"), OpenMode::ReadWrite).unwrap();
    file.sync().unwrap();
    assert_eq!(storage.violations(), [""; 0]);
    file.write_all_at(b"h", 0).unwrap();
    file.set_len(5).unwrap();
    file.preallocate(5).unwrap();
    file.punch_hole(0, 0).unwrap();
    assert_eq!(storage.violations().len(), 4);
    storage.remove_file(Path::new("/from/a")).unwrap();
    file.write_all_at(b"h", 0).unwrap();
    assert_eq!(storage.violations().len(), 4, "it has one name by now");
}
