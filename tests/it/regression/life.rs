//! Keyspaces that come and go, processes that meet, memory that is bounded.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use lithe_sim::setup::Setup;
use lithedb::storage::{CrashMode, MemoryStorage, SimStorage};
use lithedb::{Access, Background, Db, Durability, Error, KeyspaceOptions, WriteBatch};

use crate::support::{
    create_tiny, open_tiny, open_tiny_with_threads, rows, step_to_rest, tiny_structures,
};

/// Lesson 9: a memtable of one keyspace that waits to be flushed, and an iterator that stands in
/// the middle of it, do not hold up another keyspace's commits, flushes or drops.
#[test]
fn what_stalls_in_one_keyspace_does_not_delay_another() {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let (busy, quiet) = (create_tiny(&db, "busy"), create_tiny(&db, "quiet"));
    for index in 0..200_u32 {
        busy.put_with(index.to_be_bytes(), [1; 100], Durability::Buffered).unwrap();
    }
    let snapshot = db.snapshot();
    let mut standing = busy.iter();
    standing.next().unwrap().unwrap();
    for index in 0..2000_u32 {
        quiet.put_with(index.to_be_bytes(), [2; 100], Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    db.drop_keyspace("quiet").unwrap();
    assert_eq!(standing.count(), 199);
    assert_eq!(snapshot.iter(&quiet).count(), 0);
}

/// Files that are still to be removed when a flush finds no room are what it waits for.
#[test]
fn a_keyspace_that_is_dropped_makes_room_for_a_flush_that_found_none() {
    let storage = SimStorage::new(1);
    let db = Db::builder()
        .storage(Arc::new(storage.clone()))
        .background(Background::Stepped)
        .durability(Durability::Buffered)
        .memory_budget(16 << 20)
        .disk_reserve(0)
        .open("/db")
        .unwrap();
    let old = db.create_keyspace("old", KeyspaceOptions::flex()).unwrap();
    for index in 0..1000_u32 {
        old.put(index.to_be_bytes(), [1; 1000]).unwrap();
    }
    db.flush().unwrap();
    let options = KeyspaceOptions::flex().memtable_size(256 << 10);
    let keyspace = db.create_keyspace("new", options).unwrap();
    step_to_rest(&db);
    for index in 0..400_u32 {
        keyspace.put(index.to_be_bytes(), [2; 1000]).unwrap();
    }
    storage.set_capacity(storage.allocated_bytes() + (64 << 10));
    for _ in 0..3 {
        assert!(matches!(db.step(), Err(Error::DiskFull { .. })));
    }
    drop(old);
    db.drop_keyspace("old").unwrap();
    step_to_rest(&db);
    db.flush().unwrap();
    assert_eq!(keyspace.len().unwrap(), 400);
}

/// Lesson 10.
#[test]
fn handles_to_a_dropped_or_recreated_keyspace_fail_cleanly() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let old = create_tiny(&db, "a");
    old.put("k", "old").unwrap();
    let snapshot = db.snapshot();
    let mut walk = old.iter();
    db.drop_keyspace("a").unwrap();
    let new = create_tiny(&db, "a");
    assert_ne!(old.id(), new.id());
    new.put("k", "new").unwrap();
    let gone = |error: Error| assert!(matches!(error, Error::KeyspaceNotFound { .. }), "{error}");
    gone(old.get("k").unwrap_err());
    gone(old.put("k", "x").unwrap_err());
    gone(old.delete("k").unwrap_err());
    gone(old.first().unwrap_err());
    gone(old.iter().next().unwrap().unwrap_err());
    let mut both = WriteBatch::new();
    both.put(&new, "k", "half");
    both.put(&old, "k", "half");
    gone(db.write(both).unwrap_err());
    // Who read before reads on.
    assert_eq!(&*walk.next().unwrap().unwrap().value, b"old");
    assert_eq!(snapshot.get(&old, "k").unwrap().as_deref(), Some(&b"old"[..]));
    assert!(snapshot.get(&new, "k").is_err());
    assert_eq!(new.get("k").unwrap().as_deref(), Some(&b"new"[..]));
    drop((snapshot, walk, old));
    step_to_rest(&db);
    let db = open_tiny(&storage.crash(CrashMode::DropAll, 0));
    assert_eq!(rows(&db.keyspace("a").unwrap())[&b"k"[..]], b"new");
    gone(db.keyspace("b").unwrap_err());
    gone(db.drop_keyspace("b").unwrap_err());
    gone(db.rename_keyspace("b", "c").unwrap_err());
}

#[test]
fn a_handle_of_another_database_or_opening_is_refused() {
    let [one, other] = [1, 2].map(|seed| {
        let setup = Setup::tiny(seed);
        setup.open(Arc::new(SimStorage::new(seed)), 0).unwrap()
    });
    let (mine, theirs) = (create_tiny(&one, "a"), create_tiny(&other, "a"));
    let mut batch = WriteBatch::new();
    batch.put(&mine, "k", "1");
    batch.put(&theirs, "k", "1");
    assert!(matches!(one.write(batch), Err(Error::InvalidArgument { .. })));
    assert!(one.snapshot().get(&theirs, "k").is_err());
    assert!(rows(&mine).is_empty());
}

/// Lesson 11: segments, tables and log files are removed while somebody reads them.
#[test]
fn a_held_snapshot_reads_the_same_through_flush_consolidation_and_removal() {
    tiny_structures().into_iter().for_each(read_what_is_removed);
}

fn read_what_is_removed(options: KeyspaceOptions) {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = db.create_keyspace("a", options).unwrap();
    let mut held = Vec::new();
    for round in 0..12_u32 {
        for index in 0..120_u32 {
            let key = (index * 7 % 100).to_be_bytes();
            keyspace.put_with(key, [round as u8; 60], Durability::Buffered).unwrap();
        }
        held.push((db.snapshot(), rows(&keyspace), keyspace.iter()));
        step_to_rest(&db);
    }
    let segments = |storage: &SimStorage| {
        let is_one = |path: &str| path.contains("seg-") || path.contains("tbl-");
        storage.files().iter().filter(|(path, _)| is_one(&path.to_string_lossy())).count()
    };
    let before = segments(&storage);
    for (snapshot, rows, walk) in held {
        let read: Vec<_> = snapshot.iter(&keyspace).map(Result::unwrap).collect();
        assert!(
            read.iter()
                .map(|entry| (&*entry.key, &*entry.value))
                .eq(rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice())))
        );
        assert!(walk.map(|entry| entry.unwrap().value.to_vec()).eq(rows.into_values()));
    }
    db.flush().unwrap();
    db.close().unwrap();
    assert!(segments(&storage) < before, "nothing was given back");
    assert!(storage.violations().is_empty(), "{:?}", storage.violations());
}

/// Lesson 14, within the process.
#[test]
fn a_second_opening_is_refused_while_the_first_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    let refused = Db::open(&path).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }));
    let owner = format!("LOCK is locked by process {}", std::process::id());
    assert!(refused.to_string().ends_with(&owner), "{refused}");
    db.close().unwrap();
    Db::open(&path).unwrap().close().unwrap();
}

/// The lock file may be cleared away by somebody who takes it for a leftover.
#[test]
fn a_second_opening_is_refused_also_without_the_lock_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    std::fs::remove_file(path.join("LOCK")).unwrap();
    for _ in 0..2 {
        assert!(matches!(Db::open(&path), Err(Error::Locked { .. })));
        let to_read = Db::builder().access(Access::ReadOnly).open(&path);
        assert!(matches!(to_read, Err(Error::Locked { .. })));
    }
    assert!(!opens_in_another_process(&path), "two processes have it open");
    db.keyspace_or_create("k").unwrap().put("a", "1").unwrap();
    db.close().unwrap();
    let reader = Db::builder().access(Access::ReadOnly).open(&path).unwrap();
    std::fs::remove_file(path.join("LOCK")).unwrap();
    assert!(matches!(Db::open(&path), Err(Error::Locked { .. })));
    assert!(Db::builder().access(Access::ReadOnly).open(&path).is_ok());
    drop(reader);
    let db = Db::open(&path).unwrap();
    assert_eq!(db.keyspace("k").unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Where [`a_second_process_opens`] finds the database.
const PATH_VARIABLE: &str = "LITHEDB_TEST_PATH";

/// Lesson 14, between processes.
#[test]
fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    assert!(!opens_in_another_process(&path), "two processes have it open");
    db.close().unwrap();
    assert!(opens_in_another_process(&path), "it stays locked after close");
}

fn opens_in_another_process(path: &Path) -> bool {
    let name = "regression::life::a_second_process_opens";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--quiet"])
        .env(PATH_VARIABLE, path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("1 test"), "{text}");
    let refused = text.contains("Locked");
    assert_ne!(refused, status.status.success(), "{text}");
    !refused
}

#[test]
#[ignore = "run by `a_second_process_is_refused`"]
fn a_second_process_opens() {
    let path = std::env::var_os(PATH_VARIABLE).expect("set by the first process");
    Db::open(path).unwrap().close().unwrap();
}

/// Lesson 18: writers wait for flushes instead of taking more memory.
#[test]
fn memory_stays_within_the_budget_when_writers_are_faster_than_flushes() {
    const BUDGET: u64 = 1 << 20;
    for background in [lithedb::Background::Stepped, lithedb::Background::Threads] {
        let db = Db::builder()
            .storage(Arc::new(MemoryStorage::new()))
            .memory_budget(BUDGET)
            .memtable_size(64 << 10)
            .wal_file_size(64 << 10)
            .background(background)
            .open("/db")
            .unwrap();
        let names = ["a", "b", "c", "d"];
        let keyspaces = names.map(|name| {
            db.create_keyspace(name, KeyspaceOptions::flex().segment_size(64 << 10)).unwrap()
        });
        for index in 0..40_000_u32 {
            let keyspace = &keyspaces[index as usize % names.len()];
            let key = index.wrapping_mul(0x9E37_79B9).to_be_bytes();
            keyspace.put_with(key, [7; 100], Durability::Buffered).unwrap();
            if index % 512 == 0 {
                let _ = keyspace.get(key).unwrap();
                let stats = db.stats();
                let used = stats.memory_memtable + stats.memory_cache + stats.memory_index;
                assert!(used <= BUDGET, "{background:?}: {used} bytes after {index} puts");
            }
        }
        db.close().unwrap();
    }
}
