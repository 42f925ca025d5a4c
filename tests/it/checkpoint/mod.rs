//! Checkpoints: copies of the database as of one moment, that share its files.

mod failures;
mod writers;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use lithe_sim::setup::Setup;
use lithe_sim::watched::{Mutation, WatchedStorage};
use lithedb::base::{Entropy, SeededEntropy};
use lithedb::storage::{
    CrashMode, EntryType, FaultEffect, FaultPlan, FaultRule, MemoryStorage, OpenMode, Operation,
    OsStorage, SimStorage, Storage,
};
use lithedb::{
    Access, Background, Conversion, Db, Durability, Error, IndexOptions, Keyspace, KeyspaceOptions,
    OpenExisting, WriteBatch,
};

use crate::support::hints::HintedStorage;
use crate::support::{PATH, assert_sound, open_tiny, rows, step_to_rest, tiny_structures};

/// Where checkpoints go.
const COPY: &str = "/copy";

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// All keyspaces.
fn contents(db: &Db) -> Contents {
    let infos = db.keyspaces().into_iter();
    infos.map(|info| (info.name.clone(), rows(&db.keyspace(&info.name).unwrap()))).collect()
}

fn open_at(storage: &Arc<dyn Storage>, path: &str) -> Db {
    static OPENINGS: AtomicU64 = AtomicU64::new(500);
    let nth = OPENINGS.fetch_add(1, Ordering::Relaxed);
    let builder = Setup::tiny(1).builder(Arc::clone(storage), Arc::default(), nth);
    builder.existing(OpenExisting::Only).open(path).unwrap()
}

fn of(storage: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

/// A keyspace of each structure, with values small and large, overwritten and deleted ones.
fn fill(db: &Db, round: u64) {
    let mut options: Vec<(String, KeyspaceOptions)> = Vec::new();
    for (number, of_structure) in tiny_structures().into_iter().enumerate() {
        options.push((format!("structure {number}"), of_structure.value_separation(Some(600))));
    }
    options.push(("history".into(), KeyspaceOptions::history().value_separation(Some(600))));
    for (name, options) in options {
        let keyspace =
            db.keyspace(&name).unwrap_or_else(|_| db.create_keyspace(&name, options).unwrap());
        for number in 0..120u64 {
            let key = format!("{:03}", (number * 7 + round) % 150);
            let len = if number % 5 == 0 { 700 } else { 90 };
            let mut batch = WriteBatch::new();
            match (number + round) % 9 {
                0 => batch.delete(&keyspace, key),
                _ => batch.put(&keyspace, key, vec![(number + round) as u8; len]),
            }
            db.write_with(batch, Durability::Buffered).unwrap();
            if number % 16 == 0 {
                db.step().unwrap();
            }
        }
    }
}

/// Overwrites everything, and has all room given back that can be.
fn change_everything(db: &Db) {
    for round in 1..3 {
        fill(db, round * 31);
        db.flush().unwrap();
        step_to_rest(db);
    }
    db.compact().unwrap();
    db.vacuum().unwrap();
    step_to_rest(db);
}

/// Every path below a directory, that of files and directories.
fn names_below(storage: &dyn Storage, dir: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut to_visit = vec![dir.to_path_buf()];
    while let Some(dir) = to_visit.pop() {
        for entry in storage.list_dir(&dir).unwrap() {
            let path = dir.join(entry.name);
            if entry.entry_type == EntryType::Directory {
                to_visit.push(path.clone());
            }
            names.push(path);
        }
    }
    names
}

/// Checkpoints, whole or not, in the root.
fn copies(storage: &dyn Storage) -> Vec<String> {
    let entries = storage.list_dir(Path::new("/")).unwrap().into_iter();
    entries.map(|entry| entry.name).filter(|name| name.starts_with("copy")).collect()
}

#[test]
fn a_checkpoint_shows_its_moment_whatever_the_database_goes_on_to_do() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    fill(&db, 0);
    db.flush().unwrap();
    fill(&db, 5);
    let (before, seqno) = (contents(&db), db.snapshot().seqno());
    let report = db.checkpoint(COPY).unwrap();
    assert_eq!(report.seqno, seqno);
    assert!(report.linked_files > 10 && report.linked_files < report.files, "{report:?}");
    assert!(report.copied_bytes > 0 && report.bytes > report.copied_bytes, "{report:?}");
    change_everything(&db);
    let changed = contents(&db);
    assert_ne!(changed, before);

    let copy = open_at(&of(&storage), COPY);
    assert_eq!(copy.snapshot().seqno(), seqno);
    assert_eq!(contents(&copy), before);
    assert_sound(&copy);
    assert_sound(&db);
    // The other way round: what the checkpoint does is no concern of the database.
    change_everything(&copy);
    assert_sound(&copy);
    copy.close().unwrap();
    assert_eq!(contents(&db), changed);
    assert_sound(&db);
    drop((copy, db)); // With all their files.
    let db = open_at(&of(&storage), PATH);
    assert_eq!(contents(&db), changed);
    assert_sound(&db);
    assert_eq!(storage.violations(), [""; 0]);
}

#[test]
fn the_past_the_log_and_indexes_are_in_a_checkpoint() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = || Setup::tiny(1).builder(Arc::clone(&storage), Arc::default(), 1);
    let db = builder().kept_log_size(1 << 20).open(PATH).unwrap();
    let history = db.create_keyspace("history", KeyspaceOptions::history()).unwrap();
    let plain = db.create_keyspace("plain", KeyspaceOptions::lsm()).unwrap();
    plain.create_index("by value", "value", IndexOptions::new()).unwrap();
    let mut moments = Vec::new();
    for number in 0..300u64 {
        history.put(format!("{}", number % 7), vec![number as u8; 100]).unwrap();
        moments.push(plain.put(format!("{number}"), format!("{}", number % 3)).unwrap());
        if number % 40 == 0 {
            db.flush().unwrap();
        }
    }
    db.create_consumer("reader", 1 << 20).unwrap();
    db.checkpoint(COPY).unwrap();
    let copy = builder().open(COPY).unwrap();
    let copied = copy.keyspace("history").unwrap();
    for at in moments.into_iter().step_by(9) {
        let at_source: Vec<_> = db.snapshot_at(at).unwrap().iter(&history).collect();
        let in_copy: Vec<_> = copy.snapshot_at(at).unwrap().iter(&copied).collect();
        let unwrapped = |entries: Vec<Result<_, Error>>| {
            entries.into_iter().map(Result::unwrap).collect::<Vec<lithedb::Entry>>()
        };
        assert_eq!(unwrapped(in_copy), unwrapped(at_source));
    }
    let stamps = |db: &Db| {
        let commits = db.commits(..).unwrap();
        commits.map(|commit| commit.unwrap().seqno).collect::<Vec<_>>()
    };
    assert!(stamps(&db).len() > 100);
    assert_eq!(stamps(&copy), stamps(&db));
    let keyspace = copy.keyspace("plain").unwrap();
    let index = keyspace.index("by value").unwrap();
    assert_eq!(index.view().unwrap().get("1").count(), 100);
    assert_eq!(copy.consumers().unwrap().len(), 1);
    assert_sound(&copy);
}

#[test]
fn without_links_or_without_their_number_everything_is_copied() {
    let no_links = SimStorage::new(2);
    let unsupported = FaultRule::new(FaultEffect::Error(ErrorKind::Unsupported));
    no_links.arm(FaultPlan::new().rule(unsupported.on(&[Operation::Link]).lasting()));
    // This one makes links, and does not say how many names a file has.
    let unaccounted = HintedStorage::watching("nothing");
    for storage in [of(&no_links), Arc::new(unaccounted) as Arc<dyn Storage>] {
        let db = Setup::tiny(1).builder(Arc::clone(&storage), Arc::default(), 0);
        let db = db.open(PATH).unwrap();
        fill(&db, 0);
        db.flush().unwrap();
        let before = contents(&db);
        let report = db.checkpoint(COPY).unwrap();
        assert_eq!(report.linked_files, 0);
        change_everything(&db);
        let changed = contents(&db);
        let copy = open_at(&storage, COPY);
        assert_eq!(contents(&copy), before);
        change_everything(&copy);
        assert_sound(&copy);
        assert_eq!(contents(&db), changed);
        assert_sound(&db);
    }
}

#[test]
fn holes_come_again_when_the_checkpoint_is_gone() {
    let storage = SimStorage::new(3);
    let db = open_tiny(&storage);
    let options = KeyspaceOptions::flex().interval_size(512).segment_size(64 << 10);
    let keyspace = db.create_keyspace("holes", options.consolidation_pace(1.0)).unwrap();
    let random = SeededEntropy::new(5);
    let overwrite = |rounds: u64| {
        let holes = storage.count_of(Operation::PunchHole);
        for _ in 0..rounds {
            let mut batch = WriteBatch::new();
            for _ in 0..300 {
                batch.put(&keyspace, (random.next_u64() % 12_000).to_be_bytes(), [7; 60]);
            }
            db.write(batch).unwrap();
            db.flush().unwrap();
        }
        storage.count_of(Operation::PunchHole) - holes
    };
    overwrite(60);
    assert!(overwrite(20) > 0);
    let before = contents(&db);
    db.checkpoint(COPY).unwrap();
    let is_segment = |path: &PathBuf| path.to_string_lossy().contains("seg-");
    let segments: Vec<PathBuf> =
        names_below(&storage, Path::new(COPY)).into_iter().filter(is_segment).collect();
    let bytes = || -> Vec<Vec<u8>> {
        segments.iter().map(|path| storage.read_file(path).unwrap()).collect()
    };
    let shared = bytes();
    assert!(shared.len() > 5);
    overwrite(60);
    assert!(bytes() == shared, "what died in shared segments is still there");
    let copy = open_at(&of(&storage), COPY);
    assert_eq!(contents(&copy), before);
    drop(copy);
    lithe_sim::checkpoints::remove(&storage, Path::new(COPY)).unwrap();
    assert!(overwrite(20) > 0);
    assert_sound(&db);
}

#[test]
fn what_cannot_be_a_place_is_refused_and_left_alone() {
    let storage = SimStorage::new(4);
    let db = open_tiny(&storage);
    fill(&db, 0);
    storage.create_dir_all(Path::new("/taken")).unwrap();
    storage.open(Path::new("/file"), OpenMode::CreateNew).unwrap();
    let inside = format!("{PATH}/copy");
    let by_way_of = format!("/taken/..{PATH}/copy");
    let deeper = format!("{PATH}/not/there/yet");
    // That leads nowhere until it is made, and then into the database.
    let in_future = format!("/not-there/..{PATH}/copy");
    let before = names_below(&storage, Path::new(PATH));
    for place in ["/taken", "/file", PATH, &*inside, &*by_way_of, &*deeper, &*in_future, "/", ".."]
    {
        let refused = db.checkpoint(place).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{place}: {refused}");
    }
    assert!(storage.list_dir(Path::new("/taken")).unwrap().is_empty());
    assert_eq!(names_below(&storage, Path::new(PATH)), before);
    // Within nothing, for all that it looks like.
    db.checkpoint(format!("{PATH}/../beside")).unwrap();
    assert!(storage.exists(Path::new("/beside")).unwrap());
    let in_another = db.checkpoint("/beside/keyspaces/00000009").unwrap_err();
    assert!(matches!(in_another, Error::InvalidArgument { .. }), "{in_another}");
    db.checkpoint("/below/much/more").unwrap();
    let again = db.checkpoint("/below/much/more").unwrap_err();
    assert!(matches!(again, Error::InvalidArgument { .. }), "{again}");
    assert_eq!(storage.list_dir(Path::new("/below/much")).unwrap().len(), 1);
    db.close().unwrap();
    assert!(matches!(db.checkpoint(COPY), Err(Error::Closed)));
    let reading = Setup::tiny(1).builder(of(&storage), Arc::default(), 1);
    let reading = reading.access(Access::ReadOnly).open(PATH).unwrap();
    assert!(matches!(reading.checkpoint(COPY), Err(Error::ReadOnly { .. })));
    assert_eq!(copies(&storage), [""; 0]);
}

#[test]
fn links_to_directories_and_files_of_the_database_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new());
    let open = |name: &str| {
        let builder = Setup::tiny(1).builder(Arc::clone(&storage), Arc::default(), 0);
        builder.open(path(name)).unwrap()
    };
    let db = open("db");
    fill(&db, 0);
    db.close().unwrap();
    storage.rename(&path("db/values"), &path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(path("elsewhere"), path("db/values")).unwrap();
    let db = open("db");
    fill(&db, 3);
    let before = contents(&db);
    // Whatever leads into the directory of a database: its own, and another one's.
    std::os::unix::fs::symlink(path("db"), path("to-db")).unwrap();
    std::os::unix::fs::symlink(path("db/keyspaces"), path("to-keyspaces")).unwrap();
    drop(open("other"));
    let here = std::env::current_dir().unwrap();
    let to_root = "../".repeat(here.components().count() - 1);
    let relative = Path::new(&to_root).join(path("db").strip_prefix("/").unwrap());
    let names = names_below(&*storage, dir.path());
    for place in [
        path("to-db/copy"),
        path("to-keyspaces/00000009"),
        path("to-keyspaces/../copy"),
        path("other/../db/keyspaces/00000009"),
        path("other/keyspaces/00000009"),
        path("nowhere-yet/../db/wal/copy"),
        relative.join("copy"),
    ] {
        let refused = db.checkpoint(&place).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{place:?}: {refused}");
    }
    std::fs::remove_dir(path("nowhere-yet")).unwrap();
    assert_eq!(names_below(&*storage, dir.path()), names);
    // Also one that leads nowhere is something that is there.
    std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
    assert!(matches!(db.checkpoint(path("dangling")), Err(Error::InvalidArgument { .. })));
    std::os::unix::fs::symlink(path("."), path("here")).unwrap();
    db.checkpoint(path("here/copy")).unwrap();
    assert!(!std::fs::symlink_metadata(path("copy/values")).unwrap().is_symlink());
    change_everything(&db);
    db.close().unwrap();
    std::fs::remove_dir_all(path("db")).unwrap();
    std::fs::remove_dir_all(path("elsewhere")).unwrap();
    let copy = open("copy");
    assert_eq!(contents(&copy), before);
    assert_sound(&copy);
    // Of one that has its files to itself by now.
    copy.checkpoint(path("third")).unwrap();
    change_everything(&copy);
    let third = open("third");
    assert_eq!(contents(&third), before);
    assert_sound(&third);
}

/// Does something, once, at the first call of a kind.
struct AtFirst {
    is_done: AtomicBool,
    work: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

fn watched(
    storage: &SimStorage,
    operation: Operation,
    part: &'static str,
) -> (Arc<dyn Storage>, Arc<AtFirst>) {
    watched_for(storage, move |mutation| {
        mutation.operation == operation && mutation.path.to_string_lossy().contains(part)
    })
}

fn watched_for(
    storage: &SimStorage,
    is_due: impl Fn(&Mutation<'_>) -> bool + Send + Sync + 'static,
) -> (Arc<dyn Storage>, Arc<AtFirst>) {
    let (is_done, work) = (AtomicBool::new(false), OnceLock::new());
    let first = Arc::new(AtFirst { is_done, work });
    let hook = Arc::clone(&first);
    let hook = Arc::new(move |mutation: &Mutation<'_>| {
        let Some(work) = hook.work.get().filter(|_| is_due(mutation)) else { return };
        if !hook.is_done.swap(true, Ordering::SeqCst) {
            work();
        }
    });
    (Arc::new(WatchedStorage::new(storage.clone(), hook)), first)
}

/// Whatever happens between the cut and the last file, the checkpoint has what the cut had.
#[test]
fn keyspaces_that_go_while_a_checkpoint_is_made_are_in_it() {
    for (operation, part) in
        [(Operation::CreateDir, "wal"), (Operation::Link, ""), (Operation::Create, "MANIFEST")]
    {
        let storage = SimStorage::new(5);
        let (files, first) = watched(&storage, operation, part);
        let builder = Setup::tiny(1).builder(Arc::clone(&files), Arc::default(), 0);
        let db = builder.open(PATH).unwrap();
        fill(&db, 0);
        db.flush().unwrap();
        fill(&db, 2);
        let before = contents(&db);
        let beside = db.clone();
        let _only_once = first.work.set(Box::new(move || {
            change_everything(&beside);
            let names: Vec<String> = beside.keyspaces().into_iter().map(|info| info.name).collect();
            for name in names {
                beside.drop_keyspace(&name).unwrap();
            }
            step_to_rest(&beside);
            beside.keyspace_or_create("another").unwrap().put("key", "value").unwrap();
            beside.flush().unwrap();
            beside.vacuum().unwrap();
        }));
        db.checkpoint(COPY).unwrap();
        assert!(first.is_done.load(Ordering::SeqCst));
        assert_eq!(db.keyspaces().len(), 1);
        let copy = open_at(&of(&storage), COPY);
        assert_eq!(contents(&copy), before, "{operation:?}");
        assert_sound(&copy);
        assert_sound(&db);
    }
}

/// Paths of value files, segments and tables of the database.
fn data_files(storage: &SimStorage) -> Vec<PathBuf> {
    let is_data = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        ["seg-", "val-", "tbl-"].iter().any(|start| name.starts_with(start))
    };
    names_below(storage, Path::new(PATH)).into_iter().filter(is_data).collect()
}

/// While a checkpoint copies what may take hours, the log goes on as if there were none.
#[test]
fn the_log_is_given_back_while_stores_are_copied() {
    let storage = SimStorage::new(10);
    let (files, first) = watched(&storage, Operation::Create, "keyspaces");
    let builder = Setup::tiny(1).builder(Arc::clone(&files), Arc::default(), 0);
    let db = builder.kept_log_size(0).open(PATH).unwrap();
    fill(&db, 0);
    let before = contents(&db);
    let beside = db.clone();
    let _only_once = first.work.set(Box::new(move || {
        let keyspace = beside.keyspace("structure 0").unwrap();
        let mut most = 0;
        for number in 0..600u64 {
            keyspace.put(number.to_be_bytes(), vec![number as u8; 500]).unwrap();
            if number % 10 == 0 {
                beside.flush().unwrap();
                step_to_rest(&beside);
            }
            most = most.max(beside.stats().wal_files);
        }
        assert!(beside.stats().wal_bytes_written > 10 * (16 << 10));
        assert!(most < 8, "{most} log files");
        assert_eq!(beside.stats().wal_bytes_kept, 0);
    }));
    db.checkpoint(COPY).unwrap();
    assert!(first.is_done.load(Ordering::SeqCst));
    let copy = open_at(&of(&storage), COPY);
    assert_eq!(contents(&copy), before);
    assert_sound(&copy);
}

/// What was linked is not held any more when the rest is copied, and what was copied when the next
/// is: what is replaced meanwhile goes.
#[test]
fn what_is_replaced_goes_while_a_checkpoint_is_still_being_made() {
    let storage = SimStorage::new(11);
    let (files, first) = watched(&storage, Operation::Create, "MANIFEST");
    let builder = Setup::tiny(1).builder(Arc::clone(&files), Arc::default(), 0);
    let db = builder.open(PATH).unwrap();
    fill(&db, 0);
    db.flush().unwrap();
    fill(&db, 2);
    let (before, beside) = (contents(&db), db.clone());
    let (then, looked_at) = (data_files(&storage), storage.clone());
    assert!(then.len() > 20, "{then:?}");
    let _only_once = first.work.set(Box::new(move || {
        change_everything(&beside);
        let now = data_files(&looked_at);
        let left: Vec<&PathBuf> = then.iter().filter(|path| now.contains(path)).collect();
        assert!(left.len() * 4 < then.len(), "{left:?} of {}", then.len());
    }));
    db.checkpoint(COPY).unwrap();
    assert!(first.is_done.load(Ordering::SeqCst));
    let copy = open_at(&of(&storage), COPY);
    assert_eq!(contents(&copy), before);
    assert_sound(&copy);
    assert_sound(&db);
}

/// P5: what comes to be at the target while the checkpoint is made, a directory with nothing in it
/// even, is somebody else's.
#[test]
fn what_takes_the_name_meanwhile_keeps_it() {
    for takes in ["directory", "file", "database"] {
        let storage = SimStorage::new(12);
        let (files, first) = watched_for(&storage, |mutation| {
            mutation.operation == Operation::Rename
                && mutation.path.parent() == Some(Path::new("/"))
        });
        let builder = Setup::tiny(1).builder(Arc::clone(&files), Arc::default(), 0);
        let db = builder.open(PATH).unwrap();
        fill(&db, 0);
        let (before, beside) = (contents(&db), storage.clone());
        let _only_once = first.work.set(Box::new(move || match takes {
            "directory" => beside.create_dir_all(Path::new(COPY)).unwrap(),
            "file" => drop(beside.open(Path::new(COPY), OpenMode::CreateNew).unwrap()),
            _ => drop(Setup::tiny(2).builder(of(&beside), Arc::default(), 7).open(COPY).unwrap()),
        }));
        let refused = db.checkpoint(COPY).unwrap_err();
        assert!(first.is_done.load(Ordering::SeqCst));
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{takes}: {refused}");
        assert_eq!(copies(&storage), ["copy"], "{takes}");
        match takes {
            "directory" => assert!(storage.list_dir(Path::new(COPY)).unwrap().is_empty()),
            "file" => assert!(storage.read_file(Path::new(COPY)).unwrap().is_empty()),
            _ => assert!(open_at(&of(&storage), COPY).keyspaces().is_empty()),
        }
        assert_eq!(contents(&db), before);
        assert_sound(&db);
    }
}

/// P5: names that others have made where a checkpoint was about to are left to them.
#[test]
fn what_others_have_made_in_its_place_is_left_alone() {
    for (operation, part) in [
        (Operation::Create, "unfinished-checkpoint"),
        (Operation::Create, "MANIFEST"),
        (Operation::CreateDir, "/values"),
    ] {
        let storage = SimStorage::new(13);
        let made = Arc::new(Mutex::new(PathBuf::new()));
        let (is_armed, others) = (Arc::new(AtomicBool::new(false)), storage.clone());
        let (is_due, noted) = (Arc::clone(&is_armed), Arc::clone(&made));
        let hook = Arc::new(move |mutation: &Mutation<'_>| {
            let path = mutation.path;
            let is_here = mutation.operation == operation
                && path.starts_with("/")
                && path.to_string_lossy().contains("unfinished-checkpoint")
                && path.to_string_lossy().contains(part);
            if is_here && is_due.swap(false, Ordering::SeqCst) {
                let file = match operation {
                    Operation::Create => path.to_owned(),
                    _ => path.join("theirs"),
                };
                others.create_dir_all(file.parent().unwrap()).unwrap();
                others.open(&file, OpenMode::CreateNew).unwrap().write_all_at(b"x", 0).unwrap();
                *noted.lock().unwrap() = file;
            }
        });
        let files: Arc<dyn Storage> = Arc::new(WatchedStorage::new(storage.clone(), hook));
        let db = Setup::tiny(1).builder(files, Arc::default(), 0).open(PATH).unwrap();
        fill(&db, 0);
        is_armed.store(true, Ordering::SeqCst);
        let error = db.checkpoint(COPY).unwrap_err();
        assert!(!is_armed.load(Ordering::SeqCst));
        assert!(matches!(error, Error::Io { .. }), "{part}: {error}");
        let theirs = made.lock().unwrap().clone();
        assert_eq!(storage.read_file(&theirs).unwrap(), b"x", "{part}");
        let name = copies(&storage).pop().unwrap();
        let root = PathBuf::from(format!("/{name}"));
        // And nothing else: the directories that it is in.
        let files =
            names_below(&storage, &root).into_iter().filter(|path| storage.list_dir(path).is_err());
        assert_eq!(files.collect::<Vec<_>>(), [theirs]);
        db.checkpoint(COPY).unwrap();
        assert_eq!(contents(&open_at(&of(&storage), COPY)), contents(&db));
    }
}

/// A directory that is there by chance, with the number that was drawn, is not the one to make it
/// in.
#[test]
fn a_directory_that_has_the_number_is_left_alone() {
    let storage = SimStorage::new(14);
    let seen = Arc::new(Mutex::new(Vec::<PathBuf>::new()));
    let (others, noted) = (storage.clone(), Arc::clone(&seen));
    let hook = Arc::new(move |mutation: &Mutation<'_>| {
        let name = mutation.path.file_name().unwrap_or_default().to_string_lossy();
        let is_root = name.contains("unfinished-checkpoint");
        let mut noted = noted.lock().unwrap();
        if mutation.operation == Operation::CreateDir && is_root && noted.len() < 3 {
            noted.push(mutation.path.to_owned());
            others.create_dir(mutation.path).unwrap();
        }
    });
    let files: Arc<dyn Storage> = Arc::new(WatchedStorage::new(storage.clone(), hook));
    let db = Setup::tiny(1).builder(files, Arc::default(), 0).open(PATH).unwrap();
    fill(&db, 0);
    db.checkpoint(COPY).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    for path in &*seen {
        assert!(storage.list_dir(path).unwrap().is_empty());
    }
    assert_eq!(copies(&storage).len(), 4);
    assert_eq!(contents(&open_at(&of(&storage), COPY)), contents(&db));
}

#[test]
fn names_of_any_length_can_be_given() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    db.keyspace_or_create("animals").unwrap().put("otter", "swims").unwrap();
    for name in ["x".repeat(255), "\u{20ac}".repeat(85), "y".repeat(217)] {
        let path = dir.path().join(name);
        db.checkpoint(&path).unwrap();
        assert_eq!(contents(&Db::open(&path).unwrap()), contents(&db));
    }
}

/// One beside a trickle of large values does not leave a file of values each time.
#[test]
fn checkpoints_do_not_cut_value_files_to_pieces() {
    let storage = SimStorage::new(15);
    let builder = Setup::tiny(1).builder(of(&storage), Arc::default(), 0);
    let db = builder.value_file_size(256 << 10).open(PATH).unwrap();
    let options = KeyspaceOptions::flex().value_separation(Some(600));
    let keyspace = db.create_keyspace("values", options).unwrap();
    for number in 0..20u8 {
        keyspace.put([number], vec![number; 2000]).unwrap();
        let path = format!("{COPY} {number}");
        db.checkpoint(&path).unwrap();
        let copy = open_at(&of(&storage), &path);
        assert_eq!(contents(&copy), contents(&db));
    }
    let values = data_files(&storage).into_iter();
    let values = values.filter(|path| path.starts_with(format!("{PATH}/values")));
    assert_eq!(values.count(), 1);
    // One of some size is closed, so that it is linked from then on.
    for number in 20..80u8 {
        keyspace.put([number], vec![number; 2000]).unwrap();
    }
    db.checkpoint(format!("{COPY} closed")).unwrap();
    keyspace.put("more", vec![7; 2000]).unwrap();
    let report = db.checkpoint(COPY).unwrap();
    assert!(report.copied_bytes < 100 << 10, "{report:?}");
    assert_eq!(contents(&open_at(&of(&storage), COPY)), contents(&db));
    assert_eq!(storage.violations(), [""; 0]);
}

fn without_links(seed: u64) -> SimStorage {
    let storage = SimStorage::new(seed);
    let unsupported = FaultRule::new(FaultEffect::Error(ErrorKind::Unsupported));
    storage.arm(FaultPlan::new().rule(unsupported.on(&[Operation::Link]).lasting()));
    storage
}

/// Copies of files with holes have them as well.
#[test]
fn a_copied_checkpoint_takes_no_more_room_than_the_database() {
    let storage = without_links(16);
    let db = open_tiny(&storage);
    let options = KeyspaceOptions::flex().interval_size(512).segment_size(64 << 10);
    let keyspace = db.create_keyspace("holes", options.consolidation_pace(1.0)).unwrap();
    let random = SeededEntropy::new(5);
    for _ in 0..80 {
        let mut batch = WriteBatch::new();
        for _ in 0..300 {
            batch.put(&keyspace, (random.next_u64() % 12_000).to_be_bytes(), [7; 60]);
        }
        db.write(batch).unwrap();
        db.flush().unwrap();
    }
    let in_holes = db.stats().keyspaces[0].bytes_in_holes;
    assert!(in_holes > 100 << 10, "{in_holes}");
    let before = storage.allocated_bytes();
    let report = db.checkpoint(COPY).unwrap();
    let taken = storage.allocated_bytes() - before;
    assert_eq!(report.linked_files, 0);
    assert!(taken + in_holes / 2 < report.bytes, "{taken} bytes, {in_holes} in holes: {report:?}");
    assert_eq!(contents(&open_at(&of(&storage), COPY)), contents(&db));
}

/// A copy that is shorter than what it was made of is none.
#[test]
fn a_value_file_that_has_lost_its_end_is_told() {
    let storage = without_links(17);
    let db = open_tiny(&storage);
    fill(&db, 0);
    db.flush().unwrap();
    let in_values = format!("{PATH}/values");
    let values = data_files(&storage).into_iter().find(|path| path.starts_with(&in_values));
    let path = values.unwrap();
    let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
    file.set_len(file.size().unwrap() / 2).unwrap();
    let error = db.checkpoint(COPY).unwrap_err();
    assert!(matches!(&error, Error::Io { path: named, .. } if *named == path), "{path:?}: {error}");
    assert_eq!(copies(&storage), [""; 0]);
}

/// What was acknowledged as durable by a checkpoint is not cut off as a torn tail.
#[test]
fn damage_to_the_last_commits_of_a_checkpoint_is_told() {
    let storage = SimStorage::new(18);
    let db = open_tiny(&storage);
    fill(&db, 0);
    let before = contents(&db);
    db.checkpoint(COPY).unwrap();
    let logs = names_below(&storage, &Path::new(COPY).join("wal"));
    let newest = logs.into_iter().max().unwrap();
    let len = storage.read_file(&newest).unwrap().len() as u64;
    let mut told = 0;
    for offset in (len.saturating_sub(600)..len).step_by(7) {
        let storage = storage.duplicate();
        let file = storage.open(&newest, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
        drop(file);
        let builder = Setup::tiny(1).builder(of(&storage), Arc::default(), 3);
        match builder.existing(OpenExisting::Only).open(COPY) {
            Ok(copy) => assert_eq!(contents(&copy), before, "{offset} of {len}"),
            Err(error) => {
                assert!(error.is_corruption(), "{offset} of {len}: {error}");
                told += 1;
            }
        }
    }
    assert!(told > 50, "{told}");
}
