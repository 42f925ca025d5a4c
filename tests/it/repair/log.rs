//! Damage to the log: what is in front of it is taken, what lies behind is listed, or taken if that
//! is asked for.

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{LossKind, SeqNo};

use super::{files_of, overwrite, repair, repair_with};
use crate::support::{create_tiny, open_tiny, rows};

/// A database of twelve commits, the last four of them in its log alone, each with its number as
/// key and a long value, and their stamps.
fn logged(storage: &SimStorage) -> (SimStorage, Vec<SeqNo>) {
    let db = open_tiny(storage);
    let keyspace = create_tiny(&db, "k");
    let stamps = (0..12u8).map(|number| keyspace.put([number], [number; 40]).unwrap());
    let stamps = stamps.collect();
    let killed = storage.crash(CrashMode::KeepAll, 0);
    drop(db);
    (killed, stamps)
}

/// Where the value of a commit lies in the log.
fn damage_commit(storage: &SimStorage, number: u8) {
    let value = [number; 40];
    for path in files_of(storage, "0000") {
        let bytes = storage.read_file(&path).unwrap();
        if let Some(at) = bytes.windows(40).position(|window| window == value) {
            overwrite(storage, &path, at as u64, b"damage");
            return;
        }
    }
    panic!("no commit {number} in the log");
}

#[test]
fn commits_behind_damage_are_listed_and_not_taken() {
    let (storage, stamps) = logged(&SimStorage::new(70));
    damage_commit(&storage, 8);
    let (db, report) = repair(&storage);
    let there = rows(&db.keyspace("k").unwrap());
    assert_eq!(there.len(), 8);
    assert_eq!(report.commits_behind_count, 3);
    let behind: Vec<SeqNo> = report.commits_behind.iter().map(|commit| commit.seqno).collect();
    assert_eq!(behind, stamps[9..]);
    let losses = report.losses.iter().filter(|loss| loss.kind == LossKind::Commits);
    assert_eq!(losses.count(), 1, "{:?}", report.losses);
}

#[test]
fn commits_behind_damage_can_be_taken_with_their_stamps() {
    let (storage, stamps) = logged(&SimStorage::new(71));
    damage_commit(&storage, 8);
    let (db, report) = repair_with(&storage, |options| options.past_log_damage(true));
    let there = rows(&db.keyspace("k").unwrap());
    assert_eq!(there.len(), 11);
    assert!(!there.contains_key(&vec![8]));
    assert_eq!(report.commits_behind_count, 0);
    assert!(report.losses.iter().any(|loss| loss.kind == LossKind::Commits));
    let next = db.keyspace("k").unwrap().put("next", "one").unwrap();
    assert!(next > stamps[11]);
}

#[test]
fn a_log_file_that_is_missing_is_told() {
    let (storage, _) = logged(&SimStorage::new(72));
    let newest = files_of(&storage, "0000").into_iter().rev();
    let newest = newest.filter(|path| path.extension().is_some_and(|end| end == "wal"));
    for path in newest {
        use lithedb::storage::Storage;
        storage.remove_file(&path).unwrap();
    }
    let (db, report) = repair(&storage);
    assert_eq!(rows(&db.keyspace("k").unwrap()).len(), 8);
    assert!(report.losses.iter().any(|loss| loss.kind == LossKind::Commits), "{report:?}");
}
