//! A rename is whole: after a crash a file has its old name or its new one, never both, never
//! none, and what it replaces is there until then.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

#[test]
fn a_replaced_file_is_the_old_one_or_the_new_one() {
    let storage = SimStorage::new(1);
    create_durable(&storage, "/current", b"old");
    create_durable(&storage, "/next", b"new");
    storage.rename(Path::new("/next"), Path::new("/current")).unwrap();
    let before = vec![("/current".into(), b"old".to_vec()), ("/next".into(), b"new".to_vec())];
    let after = vec![("/current".into(), b"new".to_vec())];
    let mut found = BTreeSet::new();
    for mode in CrashMode::ALL {
        for seed in 0..SEED_COUNT {
            found.insert(everything(&storage.crash(mode, seed)));
        }
    }
    assert_eq!(found, BTreeSet::from([before, after.clone()]));
    storage.sync_dir(Path::new("/")).unwrap();
    assert_eq!(everything(&storage.crash(CrashMode::DropAll, 0)), after);
}

#[test]
fn a_file_renamed_several_times_has_one_name() {
    let storage = SimStorage::new(1);
    create_durable(&storage, "/a", b"bytes");
    storage.rename(Path::new("/a"), Path::new("/b")).unwrap();
    storage.rename(Path::new("/b"), Path::new("/c")).unwrap();
    storage.rename(Path::new("/c"), Path::new("/d")).unwrap();
    let mut names = BTreeSet::new();
    for mode in POWER_CUTS {
        for seed in 0..SEED_COUNT {
            let files = everything(&storage.crash(mode, seed));
            assert_eq!(files.len(), 1, "{mode:?} {seed}: {files:?}");
            assert_eq!(files[0].1, b"bytes");
            names.insert(files[0].0.clone());
        }
    }
    assert_eq!(names, BTreeSet::from(["/a", "/b", "/c", "/d"].map(String::from)));
}

#[test]
fn a_rename_between_directories_is_durable_with_either() {
    for synced in ["/from", "/to"] {
        let storage = SimStorage::new(1);
        storage.create_dir_all(Path::new("/from")).unwrap();
        storage.create_dir_all(Path::new("/to")).unwrap();
        storage.sync_dir(Path::new("/")).unwrap();
        create(&storage, "/from/a").sync().unwrap();
        storage.rename(Path::new("/from/a"), Path::new("/to/b")).unwrap();
        storage.sync_dir(Path::new(synced)).unwrap();
        for mode in CrashMode::ALL {
            for seed in 0..SEED_COUNT {
                let files = everything(&storage.crash(mode, seed));
                assert_eq!(files, [("/to/b".to_string(), Vec::new())], "{synced} {mode:?}");
            }
        }
    }
}

#[test]
fn a_renamed_directory_takes_its_files_along() {
    let storage = SimStorage::new(1);
    storage.create_dir_all(Path::new("/building")).unwrap();
    create_durable(&storage, "/building/a", b"bytes");
    storage.sync_dir(Path::new("/")).unwrap();
    storage.rename(Path::new("/building"), Path::new("/ready")).unwrap();
    let mut paths = BTreeSet::new();
    for mode in POWER_CUTS {
        for seed in 0..SEED_COUNT {
            let files = everything(&storage.crash(mode, seed));
            assert_eq!(files.len(), 1);
            paths.insert(files[0].0.clone());
        }
    }
    assert_eq!(paths, BTreeSet::from(["/building/a", "/ready/a"].map(String::from)));
}
