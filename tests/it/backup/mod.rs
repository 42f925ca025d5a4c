//! Backups: what was there comes back, nothing is written twice, and nothing that fails or is
//! interrupted takes anything with it.

mod damage;
mod interrupted;
mod model;
mod streams;
mod trail;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lithe_sim::setup::Setup;
use lithedb::base::{Clock, ManualClock};
use lithedb::storage::{
    CrashMode, EntryType, FaultEffect, FaultPlan, FaultRule, MemoryStorage, OpenMode, Operation,
    SimStorage, Storage,
};
use lithedb::{
    Background, BackupOptions, BackupRepository, Builder, Db, Durability, Error, KeyspaceOptions,
    OpenExisting, RestoreOptions, WriteBatch,
};

use crate::support::{PATH, assert_sound, rows, step_to_rest, tiny_structures};

const REPOSITORY: &str = "/backups";
const TARGET: &str = "/restored";

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn contents(db: &Db) -> Contents {
    let infos = db.keyspaces().into_iter();
    infos.map(|info| (info.name.clone(), rows(&db.keyspace(&info.name).unwrap()))).collect()
}

fn builder(storage: &SimStorage) -> Builder {
    static OPENINGS: AtomicU64 = AtomicU64::new(0);
    let nth = OPENINGS.fetch_add(1, Ordering::Relaxed);
    Setup::tiny(1).builder(Arc::new(storage.clone()), Arc::default(), nth)
}

fn open(storage: &SimStorage, path: &str) -> Db {
    builder(storage).existing(OpenExisting::Only).open(path).unwrap()
}

fn repository(storage: &SimStorage) -> BackupRepository {
    let storage = Arc::new(storage.clone());
    BackupRepository::open_in(storage, REPOSITORY, OpenExisting::OrCreate).unwrap()
}

/// Entries of a range of keys in a keyspace of each structure.
fn fill(db: &Db, range: std::ops::Range<u64>, round: u64) {
    let structures = tiny_structures().into_iter().chain([KeyspaceOptions::history()]);
    for (number, options) in structures.enumerate() {
        let name = format!("structure {number}");
        let keyspace = db.keyspace(&name).unwrap_or_else(|_| {
            db.create_keyspace(&name, options.value_separation(Some(600))).unwrap()
        });
        for key in range.clone() {
            let len = if key % 5 == 0 { 700 } else { 80 };
            let mut batch = WriteBatch::new();
            batch.put(&keyspace, format!("{key:04}"), vec![(key + round) as u8; len]);
            db.write_with(batch, Durability::Buffered).unwrap();
        }
    }
    db.flush().unwrap();
    step_to_rest(db);
}

fn is_invalid<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::InvalidArgument { .. }))
}

fn is_locked<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Locked { .. }))
}

/// Names in the root.
fn names(storage: &SimStorage) -> Vec<String> {
    let entries = storage.list_dir(Path::new("/")).unwrap().into_iter();
    entries.map(|entry| entry.name).collect()
}

/// Every file of the repository in `part`.
fn files_of(storage: &SimStorage, part: &str) -> Vec<PathBuf> {
    let dir = Path::new(REPOSITORY).join(part);
    let entries = storage.list_dir(&dir).unwrap().into_iter();
    entries.map(|entry| dir.join(entry.name)).collect()
}

#[test]
fn what_was_there_comes_back_and_nothing_is_written_twice() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    assert_eq!(backups.list().unwrap(), []);
    let mut made = Vec::new();
    for round in 0..4 {
        fill(&db, round * 100..round * 100 + 150, round);
        let info = backups.create(&db).unwrap();
        assert_eq!((info.number, info.seqno), (round + 1, db.snapshot().seqno()));
        assert_eq!(info.written_bytes == info.bytes, round == 0, "{info:?}");
        made.push((info, contents(&db)));
    }
    let same = backups.create(&db).unwrap();
    assert!(same.written_bytes < same.bytes / 3, "{same:?}");
    made.push((same, contents(&db)));
    let infos: Vec<_> = made.iter().map(|(info, _)| *info).collect();
    assert_eq!(backups.list().unwrap(), infos);
    db.close().unwrap();
    for (info, expected) in &made {
        let check = backups.verify(Some(info.number), BackupOptions::new()).unwrap();
        assert!(check.is_ok() && check.files <= info.files && check.bytes <= info.bytes);
        let target = format!("{TARGET} {}", info.number);
        let restored = backups.restore(info.number, &target, RestoreOptions::new()).unwrap();
        assert_eq!((restored.seqno, restored.database), (info.seqno, info.database));
        assert_eq!((restored.files, restored.bytes), (info.files, info.bytes));
        assert_eq!(restored.left_behind, None);
        let db = open(&storage, &target);
        assert_eq!(db.snapshot().seqno(), info.seqno);
        assert_eq!(contents(&db), *expected);
        assert_sound(&db);
        fill(&db, 0..30, 77); // It can be written to, and opened again.
        let expected = contents(&db);
        drop(db);
        assert_eq!(contents(&open(&storage, &target)), expected);
    }
    let left = backups.prune(2).unwrap();
    assert_eq!(left.backups, 3);
    assert!(left.files > 3 && left.bytes > 0, "{left:?}");
    assert_eq!(backups.list().unwrap(), infos[3..]);
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert!(check.is_ok() && check.backups == 2, "{check:?}");
    assert_eq!(check.files, files_of(&storage, "files").len() as u64);
    assert!(is_invalid(&backups.verify(Some(1), BackupOptions::new())));
    assert!(is_invalid(&backups.remove(1)));
    backups.remove(infos[4].number).unwrap();
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    assert_eq!(backups.prune(0).unwrap().backups, 1);
    assert!(files_of(&storage, "files").is_empty());
    assert_eq!(storage.violations(), [""; 0]);
}

/// Each database keeps as many as were asked for: one that is backed up rarely loses none.
#[test]
fn files_whose_lists_are_lost_are_counted() {
    let storage = SimStorage::new(2);
    let backups = repository(&storage);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..60, 0);
    let verify = || backups.verify(None, BackupOptions::new()).unwrap();
    assert_eq!(verify().files_unlisted, 0);
    let info = backups.create(&db).unwrap();
    assert_eq!(verify().files_unlisted, 0);
    files_of(&storage, "backups").iter().for_each(|list| storage.remove_file(list).unwrap());
    let check = verify();
    assert_eq!((check.backups, check.files_unlisted, check.is_ok()), (0, info.files, true));
    backups.prune(usize::MAX).unwrap();
    assert_eq!(verify().files_unlisted, 0);
}

#[test]
fn the_newest_of_each_database_stay() {
    let storage = SimStorage::new(3);
    let backups = repository(&storage);
    let (one, other) = (builder(&storage).open(PATH), builder(&storage).open("/other"));
    let (one, other) = (one.unwrap(), other.unwrap());
    fill(&one, 0..10, 0);
    fill(&other, 0..10, 5);
    let expected = contents(&other);
    let rare = backups.create(&other).unwrap();
    let often: Vec<u64> = (0..4).map(|_| backups.create(&one).unwrap().number).collect();
    assert_eq!(backups.prune(2).unwrap().backups, 2);
    let left: Vec<u64> = backups.list().unwrap().iter().map(|info| info.number).collect();
    assert_eq!(left, [rare.number, often[2], often[3]]);
    backups.restore(rare.number, TARGET, RestoreOptions::new()).unwrap();
    assert_eq!(contents(&open(&storage, TARGET)), expected);
    assert_eq!(backups.prune(0).unwrap().backups, 3);
    assert!(files_of(&storage, "files").is_empty());
}

/// Q3: after a restore, numbers of files are given again, to other files of the same length even.
#[test]
fn files_of_the_same_name_and_length_are_told_apart() {
    let storage = SimStorage::new(2);
    let backups = repository(&storage);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..100, 0);
    let first = backups.create(&db).unwrap();
    let mut made = Vec::new();
    db.close().unwrap();
    for round in 1..5 {
        backups.restore(first.number, PATH, RestoreOptions::new().replace()).unwrap();
        let db = open(&storage, PATH);
        fill(&db, 100..200, round * 7);
        made.push((backups.create(&db).unwrap(), contents(&db)));
        db.close().unwrap();
    }
    for (info, expected) in made {
        let target = format!("{TARGET} {}", info.number);
        backups.restore(info.number, &target, RestoreOptions::new()).unwrap();
        let db = open(&storage, &target);
        assert_eq!(contents(&db), expected);
        assert_sound(&db);
    }
}

#[test]
fn a_restore_takes_the_place_of_a_database_only_where_it_is_asked_to() {
    let storage = SimStorage::new(4);
    let backups = repository(&storage);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..60, 0);
    let expected = contents(&db);
    backups.create(&db).unwrap();
    fill(&db, 0..60, 9);
    let newer = contents(&db);
    let restore = |target: &str, options| backups.restore(1, target, options);
    assert!(is_invalid(&restore(PATH, RestoreOptions::new())));
    assert!(is_locked(&restore(PATH, RestoreOptions::new().replace())));
    storage.create_dir_all(Path::new("/other")).unwrap();
    storage.open(Path::new("/other/file"), OpenMode::CreateNew).unwrap();
    assert!(is_invalid(&restore("/other", RestoreOptions::new())));
    assert!(is_invalid(&restore("/other", RestoreOptions::new().replace())));
    assert!(is_invalid(&restore("/db/inner", RestoreOptions::new())));
    assert!(is_invalid(&restore("/db/wal/inner", RestoreOptions::new())));
    for inner in ["inner", "files/inner", "a/b/inner"] {
        let inner = backups.path().join(inner);
        assert!(is_invalid(&restore(inner.to_str().unwrap(), RestoreOptions::new())));
    }
    assert!(is_invalid(&backups.restore(2, TARGET, RestoreOptions::new())));
    assert_eq!(contents(&db), newer);
    db.close().unwrap();
    let checked = RestoreOptions::new().replace().open_with(builder(&storage));
    assert_eq!(restore(PATH, checked).unwrap().left_behind, None);
    assert_eq!(contents(&open(&storage, PATH)), expected);
    // What is in its directory and none of its own stays.
    fill(&open(&storage, PATH), 0..60, 9);
    storage.open(Path::new("/db/notes"), OpenMode::CreateNew).unwrap();
    let rest = restore(PATH, RestoreOptions::new().replace()).unwrap().left_behind.unwrap();
    let left = storage.list_dir(&rest).unwrap();
    assert_eq!((left.len(), &*left[0].name), (1, "notes"));
    assert_eq!(contents(&open(&storage, PATH)), expected);
    // Parents are made; where there was nothing, that can be asked for as well.
    restore("/a/b/c", RestoreOptions::new().replace()).unwrap();
    assert_eq!(contents(&open(&storage, "/a/b/c")), expected);
    assert_eq!(storage.violations(), [""; 0]);
}

#[test]
fn where_names_cannot_be_exchanged_there_are_two_steps() {
    let storage = SimStorage::new(5);
    let backups = repository(&storage);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..30, 0);
    let expected = contents(&db);
    backups.create(&db).unwrap();
    fill(&db, 0..30, 9);
    db.close().unwrap();
    let unsupported = FaultRule::new(FaultEffect::Error(ErrorKind::Unsupported));
    // The first rename of all is that of the manifest.
    storage.arm(FaultPlan::new().rule(unsupported.on(&[Operation::Rename]).skip(1)));
    let restored = backups.restore(1, PATH, RestoreOptions::new().replace()).unwrap();
    storage.disarm();
    assert_eq!(restored.left_behind, None);
    assert_eq!(contents(&open(&storage, PATH)), expected);
    assert_eq!(names(&storage), ["backups", "db"]);
}

#[test]
fn who_is_at_a_repository_has_it_alone_and_what_is_none_is_left_alone() {
    let storage = SimStorage::new(5);
    let backups = repository(&storage);
    let db = builder(&storage).open(PATH).unwrap();
    backups.create(&db).unwrap();
    let lock = storage.lock_shared(&Path::new(REPOSITORY).join("LOCK")).unwrap();
    assert_eq!(backups.list().unwrap().len(), 1);
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    backups.restore(1, TARGET, RestoreOptions::new()).unwrap();
    assert!(is_locked(&backups.create(&db)));
    assert!(is_locked(&backups.prune(0)));
    drop(lock);
    let _lock = storage.lock(&Path::new(REPOSITORY).join("LOCK")).unwrap();
    assert!(is_locked(&backups.list()));
    assert!(is_locked(&backups.remove(1)));
    let files: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open_in = |path, existing| BackupRepository::open_in(Arc::clone(&files), path, existing);
    assert!(is_invalid(&open_in("/none", OpenExisting::Only)));
    files.create_dir_all(Path::new("/some/thing")).unwrap();
    assert!(is_invalid(&open_in("/some", OpenExisting::OrCreate)));
    assert_eq!(files.list_dir(Path::new("/some")).unwrap().len(), 1);
    let _db = Db::builder().storage(Arc::clone(&files)).open("/db").unwrap();
    for place in ["/db", "/db/backups", "/db/wal/backups"] {
        assert!(is_invalid(&open_in(place, OpenExisting::OrCreate)), "{place}");
    }
    assert!(!files.exists(Path::new("/db/backups")).unwrap());
}

/// What it has no file in is there as well, durably: what is made in it later has to last.
#[test]
fn a_database_without_keyspaces_is_restored_and_gets_some() {
    let storage = SimStorage::new(8);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    backups.create(&db).unwrap();
    backups.restore(1, TARGET, RestoreOptions::new()).unwrap();
    let left = storage.crash(CrashMode::DropAll, 1);
    let below = |path: &str| {
        let entries = left.list_dir(Path::new(path)).unwrap().into_iter();
        entries.map(|entry| entry.name).filter(|name| name != "LOCK").collect::<Vec<_>>()
    };
    assert_eq!(below(TARGET), ["MANIFEST-00000001", "keyspaces", "wal"]);
    let restored = open(&left, TARGET);
    let keyspace = restored.create_keyspace("first", KeyspaceOptions::flex()).unwrap();
    keyspace.put("otter", "swims").unwrap();
    drop(restored);
    let left = left.crash(CrashMode::DropAll, 2);
    let found = open(&left, TARGET).keyspace("first").unwrap().get("otter").unwrap();
    assert_eq!(found.as_deref(), Some(&b"swims"[..]));
}

/// The process may end while a checkpoint for a backup is there; nobody else would remove it.
#[test]
fn what_an_interrupted_backup_has_left_is_cleared_away_and_nothing_else() {
    let storage = SimStorage::new(6);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..30, 0);
    let number = "0123456789abcdef";
    let left = [
        format!("/db.being-backed-up-{number}"),
        format!("/db.being-backed-up-{number}.unfinished-checkpoint-{number}"),
    ];
    let others = [
        format!("/other.db.being-backed-up-{number}"),
        format!("/db.being-backed-up-{number}.kept"),
        "/db.being-backed-up-monday".to_owned(),
    ];
    for path in left.iter().chain(&others) {
        db.checkpoint(path).unwrap();
    }
    repository(&storage).create(&db).unwrap();
    let exists = |path: &String| storage.exists(Path::new(path)).unwrap();
    assert!(!left.iter().any(exists));
    assert!(others.iter().all(exists));
    assert_eq!(names(&storage).len(), 2 + others.len());
    assert_eq!(storage.violations(), [""; 0]);
}

fn limited(clock: &Arc<ManualClock>) -> BackupOptions<'static> {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    BackupOptions::new().bytes_per_second(1 << 20).clock(clock)
}

#[test]
fn work_can_be_limited_watched_and_ended() {
    let storage = SimStorage::new(7);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..60, 0);
    let backups = repository(&storage);
    let clock = Arc::new(ManualClock::default());
    let mut told = Vec::new();
    let watched = limited(&clock).go_on_while(|progress| {
        told.push(*progress);
        ControlFlow::Continue(())
    });
    let info = backups.create_with(&db, watched).unwrap();
    // Everything was new: read twice.
    let least = Duration::from_micros(2 * info.bytes * 1_000_000 / (1 << 20));
    assert!(clock.monotonic() >= least - Duration::from_millis(1), "{:?}", clock.monotonic());
    let last = told.last().unwrap();
    assert_eq!((last.files, last.bytes), (info.files, info.bytes));
    assert_eq!((last.all_files, last.all_bytes), (info.files, info.bytes));
    assert!(told.is_sorted_by_key(|progress| (progress.bytes, progress.files)));
    let ends = |at: u64| {
        BackupOptions::new().go_on_while(move |progress| match progress.files {
            files if files < at => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        })
    };
    let is_ended = |error: Error| match error {
        Error::Io { source, .. } => source.kind() == ErrorKind::Interrupted,
        _ => false,
    };
    for at in [0, 3, info.files / 2, info.files] {
        assert!(is_ended(backups.create_with(&db, ends(at)).unwrap_err()));
        assert!(is_ended(backups.verify(None, ends(at.min(3))).unwrap_err()));
        let restored = backups.restore(1, TARGET, RestoreOptions::new().options(ends(at)));
        assert!(is_ended(restored.unwrap_err()));
        assert!(is_ended(db.backup_to(Vec::new(), ends(at)).unwrap_err()));
        assert!(is_ended(backups.export(1, Vec::new(), ends(at)).unwrap_err()));
        assert_eq!(names(&storage), ["backups", "db"]);
    }
    assert_eq!(backups.list().unwrap().len(), 1);
    let before = clock.monotonic();
    let check = backups.verify(None, limited(&clock)).unwrap();
    let least = Duration::from_micros(check.bytes * 1_000_000 / (1 << 20));
    assert!(clock.monotonic() - before >= least - Duration::from_millis(1));
}

/// What is restored is all that was committed up to its stamp, and nothing behind it.
#[test]
fn backups_beside_writers_are_of_one_moment() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = || Setup::tiny(1).builder(Arc::clone(&storage), Arc::default(), 3);
    let db = builder().background(Background::Threads).open(PATH).unwrap();
    let names = ["flex", "lsm", "history"];
    let options = [KeyspaceOptions::flex(), KeyspaceOptions::lsm(), KeyspaceOptions::history()];
    for (name, options) in names.iter().zip(options) {
        db.create_keyspace(name, options.value_separation(Some(600))).unwrap();
    }
    let backups =
        BackupRepository::open_in(Arc::clone(&storage), REPOSITORY, OpenExisting::OrCreate);
    let backups = backups.unwrap();
    let is_over = AtomicBool::new(false);
    let (made, stamps) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut stamps = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let mut batch = WriteBatch::new();
                let number = stamps.len() as u64;
                for name in names {
                    let len = if number.is_multiple_of(7) { 700 } else { 60 };
                    let keyspace = db.keyspace(name).unwrap();
                    batch.put(&keyspace, format!("{:04}", number % 500), vec![number as u8; len]);
                    batch.put(&keyspace, "count", format!("{number}"));
                }
                stamps.push(db.write_with(batch, Durability::Buffered).unwrap());
            }
            stamps
        });
        let made: Vec<_> = (0..4).map(|_| backups.create(&db).unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        (made, writer.join().unwrap())
    });
    for info in made {
        let target = format!("{TARGET} {}", info.number);
        backups.restore(info.number, &target, RestoreOptions::new()).unwrap();
        let restored = builder().existing(OpenExisting::Only).open(&target).unwrap();
        let count = stamps.partition_point(|stamp| *stamp <= info.seqno) as u64;
        let mut expected = BTreeMap::new();
        for number in 0..count {
            let len = if number % 7 == 0 { 700 } else { 60 };
            expected.insert(format!("{:04}", number % 500).into_bytes(), vec![number as u8; len]);
            expected.insert(b"count".to_vec(), format!("{number}").into_bytes());
        }
        for name in names {
            assert!(rows(&restored.keyspace(name).unwrap()) == expected, "{name} of {count}");
        }
        assert_sound(&restored);
    }
    let entries = storage.list_dir(Path::new("/")).unwrap();
    assert!(entries.iter().all(|entry| entry.entry_type == EntryType::Directory));
    assert!(!entries.iter().any(|entry| entry.name.contains("being-backed-up")));
}
