//! A process that is forked from one with a database open: it has its memory, and nothing to do
//! with its files.

#![expect(unsafe_code, reason = "forking is a call of the system's library")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lithedb::{
    Background, BackupRepository, Builder, Db, Durability, Error, FollowOptions, FollowUpTo,
    KeyspaceOptions, TableIngestOptions, TableWriter, TrailOptions, WriteBatch,
};

use crate::support::{assert_sound, rows};

const CHILD_DIR: &str = "LITHE_FORKED_DIR";
const NAME: &str = "fork::what_is_forked_leaves_a_database_alone_and_opens_others";
/// What the forked process ends with when all was as it should be.
const WELL: i32 = 0;
/// .. and within which time it has to.
const SECONDS_MAX: u32 = 30;

fn builder() -> Builder {
    Db::builder().memory_budget(4 << 20).memtable_size(128 << 10).wal_file_size(64 << 10)
}

fn is_forked<T>(outcome: Result<T, Error>, opener: u32) -> bool {
    matches!(outcome.err(), Some(Error::Forked { opener: found }) if found == opener)
}

/// What the forked process does with everything that it has from the other.
fn look_around(path: &Path, db: Db, opener: u32) {
    let keyspace = || db.keyspace("k");
    assert!(is_forked(keyspace(), opener));
    assert!(is_forked(db.create_keyspace("l", KeyspaceOptions::lsm()), opener));
    assert!(is_forked(db.drop_keyspace("k"), opener));
    assert!(is_forked(db.flush(), opener));
    assert!(is_forked(db.compact(), opener));
    assert!(is_forked(db.check(), opener));
    assert!(is_forked(db.close(), opener));
    assert!(is_forked(db.close(), opener), "closing it again");
    drop(db);
    // Somebody has that one, and another one is as good as any.
    assert!(matches!(builder().open(path), Err(Error::Locked { .. })));
    // Without threads: one that was being started when this process was forked keeps the lock that
    // any other one needs, in the standard library.
    let own = builder().background(Background::Stepped).open(path.with_extension("own")).unwrap();
    let its = own.keyspace_or_create("k").unwrap();
    its.put("a", "1").unwrap();
    assert_eq!(its.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    own.close().unwrap();
}

/// Forks with handles of all kinds, and uses and drops them in what was forked.
fn use_handles(path: &Path, db: &Db, opener: u32) -> Result<(), Error> {
    let keyspace = db.keyspace("k")?;
    let tables = db.keyspace_or_create("tables")?;
    let snapshot = db.snapshot();
    let mut ingest = db.keyspace("ingested")?.begin_ingest()?;
    ingest.add("y", [1; 40_000])?;
    let outside = path.with_extension("table");
    let mut writer = TableWriter::create(&outside, &KeyspaceOptions::lsm())?;
    writer.put("a", "1")?;
    let mut stream = keyspace.put_writer("streamed")?;
    stream.write_all(&[2; 200_000]).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "batch", "1");
    let transaction = db.begin_update();
    let iter = keyspace.iter();
    let pause = db.pause_background();
    let follower = builder().follow(path, FollowUpTo::Written)?;
    let following = follower.keep_up(Duration::from_millis(1))?;
    let backups = BackupRepository::open_or_create(path.with_extension("backups"))?;
    backups.begin_trail(db, TrailOptions::new())?;
    let trail = backups.follow(db, FollowOptions::new())?;
    let own = db.clone();
    let pid = fork();
    if pid > 0 {
        wait_for(pid);
        drop((pause, iter, transaction, snapshot));
        ingest.add("z", "ingested")?;
        ingest.finish()?;
        writer.put("b", "2")?;
        writer.finish()?;
        tables.ingest_tables(&[outside], TableIngestOptions::moving())?;
        stream.write_all(&[3; 200_000]).unwrap();
        stream.commit()?;
        drop((following, trail));
        assert!(follower.catch_up().is_ok());
        return follower.close();
    }
    end_forked(move || {
        assert!(is_forked(keyspace.put("a", "2"), opener));
        assert!(is_forked(keyspace.put_with("a", "2", Durability::Buffered), opener));
        assert!(is_forked(keyspace.delete("a"), opener));
        assert!(is_forked(keyspace.get("a"), opener));
        assert!(is_forked(keyspace.iter().next().unwrap(), opener));
        assert!(is_forked(own.write(batch), opener));
        assert!(is_forked(ingest.add("z", "more"), opener));
        assert!(is_forked(writer.put("b", "more"), opener));
        assert!(stream.write_all(&[4; 100_000]).is_err());
        assert!(is_forked(transaction.get(&keyspace, "a"), opener));
        assert!(is_forked(snapshot.get(&keyspace, "a"), opener));
        assert!(is_forked(follower.catch_up(), opener));
        assert!(is_forked(follower.close(), opener));
        drop((ingest, writer, stream, transaction, snapshot, iter, pause, keyspace, tables));
        drop((following, follower, trail));
        look_around(path, own, opener);
    })
}

/// Forks; the number of the other process, in that one zero.
fn fork() -> i32 {
    // SAFETY: the other process has this thread alone. Locks that others held stay so there; those
    // of the allocator do not, and what waits for another ends by the alarm.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "there is no other process");
    if pid == 0 {
        // SAFETY: it has no conditions.
        unsafe { libc::alarm(SECONDS_MAX) };
    }
    pid
}

/// Ends the forked process, without anything of the test program's.
fn end_forked(work: impl FnOnce()) -> ! {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    let code = if done.is_ok() { WELL } else { 1 };
    // SAFETY: it has no conditions.
    unsafe { libc::_exit(code) }
}

/// Sees that the forked process has ended well.
fn wait_for(pid: i32) {
    let mut status = 0;
    // SAFETY: it is a child of this process, and what it ended with has a place.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, WELL), "the forked process");
}

/// The program that forks: with threads in the background, and more commits while the other looks.
fn run(path: &Path) {
    let opener = std::process::id();
    let db = builder().open(path).unwrap();
    let options = KeyspaceOptions::lsm().value_separation(Some(4096));
    let keyspace = db.create_keyspace("k", options.clone()).unwrap();
    db.create_keyspace("ingested", options).unwrap();
    for number in 0..2000_u32 {
        keyspace.put_with(number.to_be_bytes(), [7; 100], Durability::Buffered).unwrap();
    }
    use_handles(path, &db, opener).unwrap();
    for number in 2000..4000_u32 {
        keyspace.put(number.to_be_bytes(), [7; 10]).unwrap();
    }
    assert_sound(&db);
    db.close().unwrap();
}

#[test]
fn what_is_forked_leaves_a_database_alone_and_opens_others() {
    if let Some(path) = std::env::var_os(CHILD_DIR).map(PathBuf::from) {
        return run(&path);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", NAME, "--test-threads", "1"]).env(CHILD_DIR, &path);
    let mut child = program.stdout(Stdio::null()).spawn().unwrap();
    let mut waits = 0;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if waits == 6000 => {
                child.kill().unwrap();
                panic!("it hangs");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
        waits += 1;
    };
    assert!(status.success(), "{status}");
    let db = builder().open(&path).unwrap();
    let counts = ["k", "ingested", "tables"].map(|name| rows(&db.keyspace(name).unwrap()).len());
    assert_eq!(counts, [4001, 2, 2], "all that the one has written, and nothing of the other");
    let streamed = db.keyspace("k").unwrap().get("streamed").unwrap().unwrap();
    assert_eq!(*streamed, *[[2; 200_000], [3; 200_000]].concat());
    assert_sound(&db);
}
