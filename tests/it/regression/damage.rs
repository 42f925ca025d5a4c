//! Damaged bytes are an error with file and offset.

use std::path::PathBuf;

use lithedb::storage::SimStorage;
use lithedb::{Durability, Error};

use crate::support::{create_tiny, open_tiny, rows};

/// Lesson 20: what cannot be read is not empty.
#[test]
fn a_damaged_block_is_an_error_and_never_empty() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = create_tiny(&db, "a");
    for index in 0..400_u32 {
        keyspace.put_with(index.to_be_bytes(), [5; 80], Durability::Buffered).unwrap();
    }
    db.close().unwrap();
    drop((db, keyspace));
    let segments: Vec<(PathBuf, u64)> = storage
        .files()
        .into_iter()
        .filter(|(path, _)| path.file_name().unwrap().to_string_lossy().starts_with("seg-"))
        .collect();
    assert!(segments.len() > 2);
    for (path, size) in segments {
        let storage = storage.duplicate();
        // The header stays, so that the file opens.
        storage.overwrite(&path, 40, &vec![0; size as usize - 40]).unwrap();
        let db = open_tiny(&storage);
        let keyspace = db.keyspace("a").unwrap();
        let error = keyspace.iter().find_map(Result::err).expect("a walk meets the damage");
        let Error::Corruption { file, offset, .. } = error else { panic!("{error}") };
        assert_eq!(file, path);
        assert!((40..size).contains(&offset));
        let mut found = 0;
        for index in 0..400_u32 {
            match keyspace.get(index.to_be_bytes()) {
                Ok(value) => {
                    assert_eq!(value.as_deref(), Some(&[5; 80][..]));
                    found += 1;
                }
                Err(error) => assert!(error.is_corruption(), "{error}"),
            }
        }
        assert!(found < 400);
        let report = db.check().unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(path.to_str().unwrap())));
        // An iterator does not step over what it could not read.
        let mut walk = keyspace.iter();
        while walk.next().is_some_and(|entry| entry.is_ok()) {}
        assert!(walk.next().is_some_and(|entry| entry.is_err()));
    }
}

/// Lesson 3, its worst case: every length that is stored is made as large as it can be.
#[test]
fn no_length_is_believed() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = create_tiny(&db, "a");
    for index in 0..60_u32 {
        keyspace.put_with(index.to_be_bytes(), [5; 80], Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    keyspace.put("in the log", "1").unwrap();
    let expected = rows(&keyspace);
    let storage = storage.crash(lithedb::storage::CrashMode::KeepAll, 0);
    for (path, size) in storage.files() {
        for offset in (0..size.min(6000)).step_by(4) {
            let storage = storage.duplicate();
            storage.overwrite(&path, offset, &[0xFF; 4]).unwrap();
            storage.truncate(&path, size).unwrap();
            let outcome = lithe_sim::allocation::within_reason(|| {
                let db = crate::support::tiny(&storage).open(crate::support::PATH);
                let found = db.and_then(|db| {
                    db.keyspace("a")?.iter().map(|entry| entry.map(|e| e.key)).collect()
                });
                Ok::<lithedb::Result<Vec<_>>, _>(found)
            });
            if let Ok(keys) = outcome.unwrap() {
                assert_eq!(keys.len(), expected.len(), "{} at {offset}", path.display());
            }
        }
    }
}
