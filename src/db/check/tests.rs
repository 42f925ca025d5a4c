//! Faults, planted one by one, that the check has to name.

use std::path::Path;
use std::sync::Arc;

use super::TableOf;
use super::log::CommitCheck;
use crate::base::{Cursor, EntryKind, EntryRef, Result, SeqNo};
use crate::db::{Background, Builder, Db, Durability, Keyspace, WriteBatch};
use crate::manifest::{Edit, Manifest};
use crate::storage::{MemoryStorage, OpenMode, Storage};
use crate::structure::Findings;
use crate::wal::{Lsn, RecordRef};

fn open(storage: &Arc<MemoryStorage>) -> Db {
    let builder = Builder::default().storage(Arc::clone(storage) as Arc<dyn Storage>);
    builder.background(Background::Stepped).open("/db").unwrap()
}

fn flip(storage: &MemoryStorage, path: &str, offset: u64) {
    let file = storage.open(Path::new(path), OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

/// Every problem has these parts, in this order.
#[track_caller]
fn expect_problems(db: &Db, parts: &[&str]) {
    let problems = db.check().unwrap().problems;
    assert!(!problems.is_empty());
    for problem in &problems {
        let mut rest = problem.as_str();
        for part in parts {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part:?}: {problem}"));
            rest = &rest[at + part.len()..];
        }
    }
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

/// The moment between the manifest's word that the start of the log is not needed and when it is
/// given back, with its files gone a moment later (D3).
#[test]
fn what_the_manifest_does_not_need_of_the_log_is_not_missed() {
    let storage = Arc::new(MemoryStorage::new());
    let builder = Builder::default().storage(Arc::clone(&storage) as Arc<dyn Storage>);
    let builder = builder.background(Background::Stepped).wal_file_size(16 << 10);
    let db = builder.kept_log_size(0).open("/db").unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    for number in 0..20u32 {
        keyspace.put(number.to_be_bytes(), [7; 2000]).unwrap();
    }
    let (core, newest) = (db.core(), db.snapshot().seqno());
    let log_start = core.log.mark(0).0.as_u64();
    assert!(core.log.released() + (16 << 10) < log_start);
    let edit = Edit::AdvanceLog { log_start, journals: Vec::new(), last_seqno: newest };
    core.apply_edit(&mut core.lock_manifest(), &edit).unwrap();
    storage.remove_file(Path::new("/db/wal/00000001.wal")).unwrap();
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn records_that_are_no_commits_are_named_with_their_place() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let (one, two) = (db.keyspace_or_create("1").unwrap(), db.keyspace_or_create("2").unwrap());
    let payload = |keyspace: &Keyspace, seqno: u64, cut: usize| {
        let mut batch = WriteBatch::new();
        batch.put(keyspace, "key", "value");
        batch.put(keyspace, "other", "value");
        let mut bytes = Vec::new();
        batch.put_record_head(&mut bytes, SeqNo::from_u64(seqno));
        bytes.extend_from_slice(batch.bytes());
        bytes.truncate(bytes.len() - cut);
        bytes
    };
    let mut findings = Findings::default();
    let mut check = CommitCheck { newest: SeqNo::ZERO, next_keyspace: 2, findings: &mut findings };
    let mut take = |lsn: u64, payload: &[u8]| {
        let (end, durable_up_to) = (Lsn::from_u64(lsn + 100), Lsn::ZERO);
        let (lsn, offset, file) = (Lsn::from_u64(lsn), 4096 + lsn, Path::new("/db/wal/1.wal"));
        check.take(&RecordRef { lsn, end, file, offset, durable_up_to, payload });
    };
    take(100, &payload(&one, 7, 0));
    take(200, &payload(&one, 7, 0));
    take(300, &payload(&one, 8, 3));
    take(400, b"bytes");
    take(500, &payload(&two, 9, 0));
    let expected = [
        "/db/wal/1.wal at offset 4296: the stamp of the commit at position 200: expected one above \
         0.7, found 0.7",
        "/db/wal/1.wal at offset 4396: operations of the commit at position 300: expected 2, found \
         1 and 1 malformed",
        "/db/wal/1.wal at offset 4496: the record at position 400: expected a commit, found 5 \
         other bytes",
        "keyspace 2: /db/wal/1.wal at offset 4596: the keyspace of the commit at position 500: \
         expected one that was created, below 2, found 2",
    ];
    assert_eq!(findings.problems, expected);
    assert_eq!(findings.commits, 5);
}

#[test]
fn a_log_that_ends_too_early_is_named_with_its_end() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let keyspace = db.keyspace_or_create("k").unwrap();
    let put = |key: &str| {
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, key, "value");
        db.write_with(batch, Durability::Buffered).unwrap();
    };
    put("first");
    let before = db.stats().wal_bytes_written;
    put("second");
    let (path, offset) = ("/db/wal/00000001.wal", 4096 + before);
    flip(&storage, path, offset + 40);
    let place = format!("{path} at offset {offset}: the end of the log");
    let expected = format!("expected {}, found {before}", db.stats().wal_bytes_written);
    expect_problems(&db, &[&place, &expected]);
}

#[test]
fn damage_in_the_log_is_named_with_its_place() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let keyspace = db.keyspace_or_create("k").unwrap();
    for _ in 0..3 {
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, "key", "value");
        db.write_with(batch, Durability::Sync).unwrap();
    }
    let path = "/db/wal/00000001.wal";
    flip(&storage, path, 4096 + 40);
    expect_problems(
        &db,
        &[path, " at offset 4096: bytes: expected what was written, found damage: "],
    );
}

#[test]
fn damage_in_the_manifest_is_named_with_its_place() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    flip(&storage, "/db/MANIFEST-00000001", 70);
    let place = "/db/MANIFEST-00000001 at offset 64: bytes: ";
    expect_problems(&db, &[place, "expected what was written, found damage: "]);
}

#[test]
fn a_catalogue_that_is_another_on_disk_is_named_with_its_keyspace() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    db.keyspace_or_create("one").unwrap();
    db.keyspace_or_create("two").unwrap();
    // Behind the back of the open database.
    let opened = Manifest::open(Arc::clone(&storage) as Arc<dyn Storage>, Path::new("/db"));
    let (mut manifest, _) = opened.unwrap();
    manifest.apply(&Edit::RenameKeyspace { id: 2, name: "other".to_owned() }).unwrap();
    let place = "keyspace 2 (\"two\"): /db/MANIFEST-00000001: the catalogue: expected ";
    expect_problems(&db, &[place, "two", ", found ", "other"]);
}

#[test]
fn a_damaged_value_of_a_memtable_is_named_with_keyspace_and_place() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    db.keyspace_or_create("one").unwrap();
    db.keyspace_or_create("two").unwrap().put("large", vec![1; 100_000]).unwrap();
    flip(&storage, "/db/values/val-00000001", 500);
    let place = "keyspace 2 (\"two\"): /db/values/val-00000001 at offset ";
    expect_problems(&db, &[place, ": bytes: expected what was written, found damage: "]);
}

/// A memtable as it cannot be.
struct Planted(Vec<(&'static [u8], EntryKind, &'static [u8])>, usize);

impl Cursor for Planted {
    fn seek_first(&mut self) -> Result<()> {
        self.1 = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.1 += 1;
        Ok(())
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        let (key, kind, value) = *self.0.get(self.1)?;
        Some(EntryRef { key, seqno: SeqNo::from_u64(1), kind, value })
    }

    fn seek_last(&mut self) -> Result<()> {
        unreachable!("a check goes forwards")
    }

    fn seek(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a check begins at the first one")
    }

    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a check begins at the first one")
    }

    fn prev(&mut self) -> Result<()> {
        unreachable!("a check goes forwards")
    }
}

#[test]
fn memtables_out_of_order_and_malformed_pointers_are_named_with_their_keyspace() {
    let entries: Vec<(&[u8], EntryKind, &[u8])> = vec![
        (b"b", EntryKind::Value, b"value"),
        (b"a", EntryKind::Tombstone, b""),
        (b"c", EntryKind::Pointer, b"short"),
    ];
    let table = TableOf { keyspace: 7, name: "sealed memtable 2".to_owned() };
    let mut findings = Findings::default();
    table.check(&mut Planted(entries, 0), |_| Ok(0), &mut findings).unwrap();
    let expected = [
        "keyspace 7: sealed memtable 2: a key: expected one above b, found a",
        "keyspace 7: sealed memtable 2: the pointer of c: expected one of 30 bytes, found 5 bytes",
    ];
    assert_eq!(findings.problems, expected);
}
