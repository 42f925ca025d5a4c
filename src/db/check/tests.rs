//! Faults, planted one by one, that the check has to name.

use std::path::Path;
use std::sync::Arc;

use super::CommitCheck;
use crate::base::SeqNo;
use crate::db::{Background, Builder, Db, WriteBatch};
use crate::storage::{MemoryStorage, OpenMode, Storage};
use crate::wal::Lsn;

fn open(storage: &Arc<MemoryStorage>) -> Db {
    let builder = Builder::default().storage(Arc::clone(storage) as Arc<dyn Storage>);
    builder.background(Background::Stepped).open("/db").unwrap()
}

#[test]
fn orphans_of_every_folder_are_listed_and_foreign_files_are_not() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let keyspace = db.keyspace_or_create("k").unwrap();
    keyspace.put("large", vec![1; 100_000]).unwrap();
    db.flush().unwrap();
    assert_eq!(db.check().unwrap().orphans, Vec::<std::path::PathBuf>::new());
    storage.create_dir_all(Path::new("/db/keyspaces/00000077")).unwrap();
    let orphans = ["MANIFEST-00000000", "values/val-00000900"];
    let in_keyspace = ["keyspaces/00000001/seg-00000900", "keyspaces/00000001/index-00000000"];
    for name in orphans.iter().chain(&in_keyspace).chain(&["notes", "values/notes"]) {
        storage.open(&Path::new("/db").join(name), OpenMode::CreateNew).unwrap();
    }
    let report = db.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let mut found: Vec<String> =
        report.orphans.iter().map(|path| path.display().to_string()).collect();
    found.sort();
    let mut expected: Vec<String> =
        orphans.iter().chain(&in_keyspace).map(|name| format!("/db/{name}")).collect();
    expected.push("/db/keyspaces/00000077".to_owned());
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn commits_of_the_log_are_counted() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let keyspace = db.keyspace_or_create("k").unwrap();
    for number in 0..10u32 {
        keyspace.put(number.to_be_bytes(), "v").unwrap();
    }
    let report = db.check().unwrap();
    assert_eq!((report.commits, report.problems.len()), (10, 0));
}

#[test]
fn records_that_are_no_commits_are_named_with_their_place() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let keyspace = db.keyspace_or_create("k").unwrap();
    let payload = |seqno: u64, cut: usize| {
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, "key", "value");
        batch.put(&keyspace, "other", "value");
        let mut bytes = Vec::new();
        batch.put_record_head(&mut bytes, SeqNo::from_u64(seqno));
        bytes.extend_from_slice(batch.bytes());
        bytes.truncate(bytes.len() - cut);
        bytes
    };
    let mut check = CommitCheck { dir: "/db/wal".into(), ..CommitCheck::default() };
    check.take(Lsn::from_u64(100), &payload(7, 0));
    assert_eq!(check.problems, Vec::<String>::new());
    check.take(Lsn::from_u64(200), &payload(7, 0));
    check.take(Lsn::from_u64(300), &payload(8, 3));
    check.take(Lsn::from_u64(400), b"bytes");
    let expected = [
        "/db/wal: the record at 200: expected a stamp above 0.7, found 0.7",
        "/db/wal: the record at 300: expected 2 operations, found 1 and 1 malformed",
        "/db/wal: the record at 400: expected a commit, found other bytes",
    ];
    assert_eq!((check.problems, check.count), (expected.map(str::to_owned).to_vec(), 4));
}
