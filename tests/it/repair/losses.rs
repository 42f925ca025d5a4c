//! What is lost of a structure, and how exactly that is told.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lithedb::base::SeededEntropy;
use lithedb::inspect::{Detail, PieceState, inspect};
use lithedb::storage::{CrashMode, SimStorage, Storage};
use lithedb::{Db, Keyspace, KeyspaceOptions, Loss, LossKind, RepairReport};

use super::{files_of, fill, overwrite, repair, repair_with};
use crate::support::{PATH, open_tiny, rows, step_to_rest, tiny, tiny_structures};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database of one keyspace, all of it in its structure.
fn flushed(storage: &SimStorage, options: KeyspaceOptions) -> Rows {
    let db = open_tiny(storage);
    let keyspace = db.create_keyspace("k", options).unwrap();
    for round in 0..3 {
        fill(&keyspace, round);
        db.flush().unwrap();
    }
    step_to_rest(&db);
    let rows = rows(&keyspace);
    db.close().unwrap();
    rows
}

/// What is not there any more, or is something else.
fn differing(keyspace: &Keyspace, expected: &Rows) -> Vec<Vec<u8>> {
    let there = rows(keyspace);
    assert!(there.keys().all(|key| expected.contains_key(key)), "nothing is invented");
    expected
        .iter()
        .filter(|(key, value)| there.get(*key) != Some(value))
        .map(|of| of.0.clone())
        .collect()
}

fn covered(report: &RepairReport, key: &[u8]) -> bool {
    let mut losses = report.losses.iter().filter(|loss| loss.kind != LossKind::Nothing);
    losses.any(|loss| loss.covers("k", key))
}

#[test]
fn a_damaged_block_costs_its_own_keys_and_no_others() {
    for (number, options) in tiny_structures().into_iter().enumerate() {
        let storage = SimStorage::new(10 + number as u64);
        let expected = flushed(&storage, options);
        let data = if number == 0 { "seg-" } else { "tbl-" };
        let mut damaged = 0;
        for path in files_of(&storage, data) {
            let mut block = None;
            inspect(&storage, &path, Detail::Fields, |piece| {
                let is_data = matches!(piece.kind, "run" | "block");
                if is_data && piece.state == PieceState::Sound {
                    block = Some(piece.offset);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            let Some(offset) = block else { continue };
            let copy = storage.duplicate();
            overwrite(&copy, &path, offset + 20, b"damage");
            let (db, report) = repair(&copy);
            let lost = differing(&db.keyspace("k").unwrap(), &expected);
            assert!(lost.iter().all(|key| covered(&report, key)), "{:?}", report.losses);
            assert!(lost.len() < expected.len() / 2, "{} of {}", lost.len(), expected.len());
            if !lost.is_empty() {
                damaged += 1;
                let told = report.losses.iter().find(|loss| loss.file == path);
                assert_eq!(told.unwrap().offset, offset, "{:?}", report.losses);
                let spared = expected.keys().filter(|key| !covered(&report, key)).count();
                assert!(spared > 0, "not all keys are suspected: {:?}", report.losses);
            }
        }
        assert!(damaged > 0, "structure {number}");
    }
}

#[test]
fn without_its_index_a_keyspace_has_its_newest_entries_and_is_doubtful() {
    for (number, options) in tiny_structures().into_iter().enumerate() {
        let storage = SimStorage::new(20 + number as u64);
        let expected = flushed(&storage, options);
        let index = if number == 0 { "index-" } else { "tables-" };
        for path in files_of(&storage, index) {
            storage.remove_file(&path).unwrap();
        }
        let (db, report) = repair(&storage);
        assert_eq!(differing(&db.keyspace("k").unwrap(), &expected), Vec::<Vec<u8>>::new());
        let doubtful = report.losses.iter().filter(|loss| loss.kind == LossKind::Doubtful);
        assert_eq!(doubtful.count(), 1, "{:?}", report.losses);
    }
}

#[test]
fn without_the_manifest_folders_become_keyspaces() {
    let storage = SimStorage::new(30);
    let expected = flushed(&storage, tiny_structures()[0].clone());
    for path in files_of(&storage, "MANIFEST-") {
        storage.remove_file(&path).unwrap();
    }
    let (db, report) = repair(&storage);
    let names: Vec<String> = db.keyspaces().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["recovered-1"]);
    assert!(rows(&db.keyspace("recovered-1").unwrap()) == expected);
    assert!(report.losses.iter().any(|loss| loss.kind == LossKind::Catalogue));
    let is_of_log = |loss: &&Loss| loss.kind == LossKind::Commits;
    assert_eq!(report.losses.iter().find(is_of_log), None, "the log was whole");
}

#[test]
fn a_lost_value_leaves_its_key_out_and_nothing_older_takes_its_place() {
    let storage = SimStorage::new(40);
    let db = open_tiny(&storage);
    let options = KeyspaceOptions::default().value_separation(Some(64));
    let keyspace = db.create_keyspace("k", options).unwrap();
    keyspace.put("a", "short").unwrap();
    db.flush().unwrap();
    keyspace.put("a", vec![1; 5000]).unwrap();
    keyspace.put("b", vec![2; 50]).unwrap();
    db.close().unwrap();
    let values = files_of(&storage, "val-");
    overwrite(&storage, &values[0], 1000, b"damage");
    let (db, report) = repair(&storage);
    let keyspace = db.keyspace("k").unwrap();
    assert_eq!(keyspace.get("a").unwrap(), None);
    assert_eq!(keyspace.get("b").unwrap().as_deref(), Some(&[2; 50][..]));
    let loss = report.losses.iter().find(|loss| loss.kind == LossKind::Lost).unwrap();
    assert!(loss.covers("k", b"a") && !loss.covers("k", b"b"), "{loss}");
    assert_eq!(loss.file, values[0]);
}

/// In a keyspace that merges all of it stays doubtful: what the log merges into what was left out
/// makes other values.
#[test]
fn doubtful_entries_can_be_left_out() {
    let storage = SimStorage::new(50);
    let expected = flushed(&storage, KeyspaceOptions::default());
    for path in files_of(&storage, "index-") {
        storage.remove_file(&path).unwrap();
    }
    let (db, report) = repair_with(&storage, |options| options.leave_doubtful(true));
    assert_eq!(differing(&db.keyspace("k").unwrap(), &expected).len(), expected.len());
    assert!(report.losses.iter().all(|loss| loss.kind != LossKind::Doubtful));
}

/// Versions of a key, the newest first.
fn versions(db: &Db, key: u32) -> Vec<Option<Vec<u8>>> {
    let keyspace = db.keyspace("k").unwrap();
    let versions = keyspace.history(key.to_be_bytes(), ..).unwrap();
    versions.map(|version| version.unwrap().value.map(|value| value.to_vec())).collect()
}

#[test]
fn versions_that_can_be_read_stay_versions() {
    let storage = SimStorage::new(60);
    let expected = flushed(&storage, KeyspaceOptions::history());
    let tables = files_of(&storage, "tbl-");
    let size = storage.read_file(&tables[0]).unwrap().len() as u64;
    overwrite(&storage, &tables[0], size / 3, b"damage");
    let (db, report) = repair(&storage);
    assert!(rows(&db.keyspace("k").unwrap()) == expected, "what is now is not damaged");
    let of_versions = report.losses.iter().filter(|loss| loss.is_of_versions);
    assert!(of_versions.count() > 0, "{:?}", report.losses);
    let whole = (0..300).filter(|key| !covered(&report, &u32::to_be_bytes(*key)));
    let mut looked_at = 0;
    for key in whole {
        let count = if key.is_multiple_of(7) { 3 } else { 1 };
        assert_eq!(versions(&db, key).len(), count, "{key}");
        looked_at += 1;
    }
    assert!(looked_at > 0);
}

/// As an index has each of them by number, a manifest that was brought back from a backup is not
/// believed when it says that there are fewer.
#[test]
fn a_manifest_that_is_older_costs_names_and_no_rows() {
    for is_flushed in [false, true] {
        let storage = SimStorage::new(80);
        let db = open_tiny(&storage);
        fill(&db.create_keyspace("a", tiny_structures()[0].clone()).unwrap(), 0);
        db.close().unwrap();
        let manifest = files_of(&storage, "MANIFEST-").pop().unwrap();
        let older = storage.snapshot_file(&manifest).unwrap();
        let db = open_tiny(&storage);
        let later = db.create_keyspace("later", tiny_structures()[1].clone()).unwrap();
        for number in 0..5u8 {
            later.put([number], "row").unwrap();
        }
        if is_flushed {
            db.flush().unwrap();
        }
        let expected = rows(&later);
        let storage = storage.crash(CrashMode::KeepAll, 0);
        drop((later, db));
        storage.restore_file(&manifest, &older).unwrap();
        let (db, report) = repair(&storage);
        assert_eq!(rows(&db.keyspace("a").unwrap()).len(), 300);
        assert!(rows(&db.keyspace("recovered-2").unwrap()) == expected, "{is_flushed}");
        assert!(report.losses.iter().any(|loss| loss.kind == LossKind::Catalogue));
    }
}

#[test]
fn a_manifest_of_another_database_is_not_believed() {
    let storage = SimStorage::new(81);
    let expected = flushed(&storage, tiny_structures()[0].clone());
    let other = SimStorage::new(82);
    let entropy = Arc::new(SeededEntropy::new(0xFEED));
    drop(tiny(&other).entropy(entropy).open(PATH).unwrap());
    let manifest = files_of(&storage, "MANIFEST-").pop().unwrap();
    let foreign = files_of(&other, "MANIFEST-").pop().unwrap();
    storage.restore_file(&manifest, &other.snapshot_file(&foreign).unwrap()).unwrap();
    let (db, report) = repair(&storage);
    assert!(rows(&db.keyspace("recovered-1").unwrap()) == expected);
    let loss = report.losses.iter().find(|loss| loss.kind == LossKind::Catalogue).unwrap();
    assert_eq!(loss.file, manifest, "{loss}");
}

/// Two databases that have gone on from one copy have tables of one number: all checksums of the
/// one verify in the other.
#[test]
fn a_table_of_another_life_of_the_database_is_none_of_its_tables() {
    let table = |name: &str, storage: &SimStorage| {
        let db = open_tiny(storage);
        let keyspace = db.create_keyspace("k", tiny_structures()[1].clone()).unwrap();
        keyspace.put("a", name).unwrap();
        db.close().unwrap();
        files_of(storage, "tbl-").pop().unwrap()
    };
    let (storage, other) = (SimStorage::new(83), SimStorage::new(84));
    let (path, of_other) = (table("this", &storage), table("other", &other));
    assert_eq!(path, of_other);
    storage.restore_file(&path, &other.snapshot_file(&path).unwrap()).unwrap();
    let (db, report) = repair(&storage);
    assert_eq!(rows(&db.keyspace("k").unwrap()), Rows::new());
    let loss = report.losses.iter().find(|loss| loss.kind == LossKind::Lost).unwrap();
    assert!(loss.covers("k", b"a"), "{loss}");
    assert!(loss.what.contains("another one of its number"), "{loss}");
}
