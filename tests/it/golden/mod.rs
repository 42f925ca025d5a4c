//! Databases as earlier releases have left them, in `tests/golden/format-N/`: each is opened, read
//! back against what it must have, written to, checked, written anew in the newest format.
//!
//! | database | how it was left |
//! |---|---|
//! | `closed` | closed |
//! | `killed` | not closed: a log to be replayed, with commits that no structure has |
//! | `sealed` | as `killed`, encrypted, while the data key was being rotated |
//! | `passphrase` | closed, encrypted with a passphrase |
//! | `space` | a flexible space |
//! | `words.tbl` | a table that was made outside |
//!
//! `NAME.txt` says what is in it, as the program of then has read it (`describe.rs`). The files are
//! packed (`pack.rs`): they are mostly zeros.
//!
//! They are made by `just golden` (`make.rs`), which is run once for each format, by the release
//! that introduces it; from then on they are never changed. Until the first release that is format
//! 1 as it comes to be: what changes a byte on disk makes them anew.

mod describe;
mod make;
mod newer;
mod pack;
mod upgrade;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::base::{ManualClock, SeededEntropy};
use lithedb::flex_space::FlexSpace;
use lithedb::storage::{OpenMode, OsStorage, SimStorage, Storage};
use lithedb::{
    Access, Background, Builder, Db, Encryption, Error, FORMAT_VERSION, OpenExisting,
    PassphraseCost, TableIngestOptions,
};

use describe::describe;
use make::{Files, LOOKED_AT_MILLIS, MADE};

/// Where each is when it is looked at.
const PATH: &str = "/db";
const DATABASES: [&str; 4] = ["closed", "killed", "sealed", "passphrase"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn dir_of(format: u32) -> PathBuf {
    root().join(format!("format-{format}"))
}

/// What is packed in `NAME.pack` of a format.
fn files_of(format: u32, name: &str) -> Files {
    let path = dir_of(format).join(format!("{name}.pack"));
    let file = OsStorage::new().open(&path, OpenMode::ReadOnly);
    let file = file.unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut packed = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut packed, 0).unwrap();
    pack::unpack(&packed)
}

fn text_of(format: u32, name: &str) -> String {
    std::fs::read_to_string(dir_of(format).join(format!("{name}.txt"))).unwrap()
}

/// A storage that has these files in `dir`, all of it durable.
fn storage_with(files: &Files, dir: &str) -> SimStorage {
    let storage = SimStorage::new(1);
    put_files(&storage, files, Path::new(dir));
    storage
}

fn put_files(storage: &dyn Storage, files: &Files, dir: &Path) {
    for (name, bytes) in files {
        let path = dir.join(name);
        let parent = path.parent().unwrap();
        storage.create_dir_all(parent).unwrap();
        let file = storage.open(&path, OpenMode::CreateNew).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync().unwrap();
        for above in parent.ancestors() {
            storage.sync_dir(above).ok();
        }
    }
}

/// The key of a database, for the `nth` opening: nonces are drawn anew each time.
fn encryption_of(name: &str, nth: u64) -> Option<Encryption> {
    let entropy = Arc::new(SeededEntropy::new(0x5EA1 + (nth << 32)));
    let cost = PassphraseCost { memory_kib: 8, passes: 1, lanes: 1 };
    let encryption = match name {
        "sealed" => Encryption::key([0x42; 32]),
        "passphrase" => Encryption::passphrase("correct horse").passphrase_cost(cost),
        _ => return None,
    };
    Some(encryption.simulated(entropy))
}

/// A builder as the databases were made with, whose clock stands at `millis`.
fn builder(storage: Arc<dyn Storage>, name: &str, millis: u64, nth: u64) -> Builder {
    let builder = Db::builder()
        .storage(storage)
        .clock(Arc::new(ManualClock::at_millis(millis)))
        .entropy(Arc::new(SeededEntropy::new(7 + nth)))
        .background(Background::Stepped)
        .memory_budget(2 << 20)
        .memtable_size(8 << 10)
        .wal_file_size(16 << 10)
        .value_file_size(16 << 10)
        .disk_reserve(0);
    match encryption_of(name, nth) {
        Some(encryption) => builder.encryption(encryption),
        None => builder,
    }
}

/// One that opens what is there, to look at it.
fn looking(storage: &SimStorage, name: &str, nth: u64) -> Builder {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    builder(storage, name, LOOKED_AT_MILLIS, nth).existing(OpenExisting::Only)
}

/// Every database of every format, by format and name.
fn all() -> impl Iterator<Item = (u32, &'static str, Files)> {
    let of_format = |format| DATABASES.map(|name| (format, name, files_of(format, name)));
    (1..=FORMAT_VERSION).flat_map(of_format)
}

#[track_caller]
fn assert_same(found: &str, expected: &str, what: &str) {
    if found != expected {
        let lines = found.lines().zip(expected.lines());
        let first = lines.enumerate().find(|(_, (found, expected))| found != expected);
        panic!("{what}: what is found is not what was written: {first:?}");
    }
}

#[track_caller]
fn assert_sound(db: &Db, what: &str) {
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    assert!(report.unchecked.is_empty(), "{what}: {:?}", report.unchecked);
}

fn bytes_of(storage: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = storage.files().into_iter();
    files.map(|(path, _)| (path.clone(), storage.read_file(&path).unwrap())).collect()
}

#[test]
fn a_database_of_every_format_is_read_and_nothing_of_it_changes() {
    for (format, name, files) in all() {
        let what = format!("format {format}, {name}");
        let storage = storage_with(&files, PATH);
        let before = bytes_of(&storage);
        let db = looking(&storage, name, 20).access(Access::ReadOnly).open(PATH).unwrap();
        assert_same(&describe(&db), &text_of(format, name), &what);
        assert_sound(&db, &what);
        drop(db);
        assert!(bytes_of(&storage) == before, "{what}: it was written to");
    }
}

#[test]
fn a_database_of_every_format_is_recovered_written_to_and_opened_again() {
    for (format, name, files) in all() {
        let what = format!("format {format}, {name}");
        let storage = storage_with(&files, PATH);
        let db = looking(&storage, name, 21).open(PATH).unwrap();
        assert_same(&describe(&db), &text_of(format, name), &what);
        assert_sound(&db, &what);
        let before = make::rows(&db);
        make::write_more(&db);
        db.compact().unwrap();
        db.vacuum().unwrap();
        assert_sound(&db, &what);
        db.close().unwrap();
        let db = looking(&storage, name, 22).open(PATH).unwrap();
        assert_eq!(make::rows(&db), make::with_more(before, &db), "{what}");
        assert_sound(&db, &what);
    }
}

/// In files of the system, as whoever upgrades has them.
#[test]
fn a_database_of_every_format_is_opened_on_the_disk() {
    for (format, name, files) in all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        put_files(&OsStorage::new(), &files, &path);
        let builder =
            builder(Arc::new(OsStorage::new()), name, LOOKED_AT_MILLIS, 23).open(&path).unwrap();
        let what = format!("format {format}, {name}");
        assert_same(&describe(&builder), &text_of(format, name), &what);
        assert_sound(&builder, &what);
        builder.close().unwrap();
    }
}

#[test]
fn a_space_of_every_format_is_read_and_written_to() {
    for format in 1..=FORMAT_VERSION {
        let storage = storage_with(&files_of(format, "space"), make::SPACE);
        let open = || {
            let storage: Arc<dyn Storage> = Arc::new(storage.clone());
            FlexSpace::options().storage(storage).open(make::SPACE).unwrap()
        };
        let mut space = open();
        assert_same(&describe::space(&space), &text_of(format, "space"), "the space");
        assert!(space.check().unwrap().is_ok());
        let len = space.len();
        space.insert(3, b"more").unwrap();
        space.sync().unwrap();
        drop(space);
        let mut space = open();
        assert_eq!(space.len(), len + 4);
        space.collapse(3..7).unwrap();
        assert_same(&describe::space(&space), &text_of(format, "space"), "the space again");
    }
}

#[test]
fn a_table_of_every_format_is_ingested() {
    for format in 1..=FORMAT_VERSION {
        let storage = storage_with(&files_of(format, "closed"), PATH);
        put_files(&storage, &files_of(format, "table"), Path::new("/outside"));
        let db = looking(&storage, "closed", 24).open(PATH).unwrap();
        let keyspace = db.keyspace("lsm").unwrap();
        let before = keyspace.len().unwrap();
        let table = Path::new("/outside").join(make::TABLE);
        keyspace.ingest_tables([table], TableIngestOptions::copying()).unwrap();
        for (key, value) in make::table_rows() {
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_bytes()));
        }
        assert_eq!(keyspace.len().unwrap(), before + make::table_rows().count() as u64);
        assert_sound(&db, "with the table");
    }
}

/// What is read back is what this program would have written: the texts are no accident of what
/// then was a mistake.
#[test]
fn what_is_made_today_says_the_same() {
    for name in DATABASES {
        let storage = storage_with(&make::database(name), PATH);
        let db = looking(&storage, name, 25).access(Access::ReadOnly).open(PATH).unwrap();
        assert_same(&describe(&db), &text_of(FORMAT_VERSION, name), name);
    }
}

#[test]
fn what_is_made_is_the_same_each_time() {
    for name in MADE {
        assert!(make::files(name) == make::files(name), "{name}");
    }
}

#[test]
fn packed_files_are_unpacked_as_they_were() {
    let mut files = Files::new();
    for (name, len) in [("empty", 0), ("a/zeros", 5000), ("a/b/odd", 1537), ("full", 1024)] {
        let byte = |at: usize| if name == "a/zeros" || at / 512 == 1 { 0 } else { at as u8 };
        files.insert(name.to_owned(), (0..len).map(byte).collect());
    }
    let packed = pack::pack(&files);
    assert!(pack::unpack(&packed) == files);
    assert!(packed.len() < 4000, "zeros take no room");
}

/// A wrong key is that, and no damage, also where an earlier release has sealed.
#[test]
fn the_wrong_key_of_a_sealed_one_is_told() {
    for format in 1..=FORMAT_VERSION {
        for name in ["sealed", "passphrase"] {
            let storage = storage_with(&files_of(format, name), PATH);
            let builder = looking(&storage, name, 26).encryption(Encryption::key([9; 32]));
            assert!(matches!(builder.open(PATH), Err(Error::WrongKey { .. })), "{name}");
            let without = looking(&storage, "closed", 27).open(PATH);
            assert!(matches!(without, Err(Error::KeyNeeded { .. })), "{name}");
        }
    }
}

/// `just golden`. Refuses to change what is there, unless `GOLDEN=anew`.
#[test]
#[ignore = "makes the files that are committed"]
fn golden_databases_are_made() {
    let dir = dir_of(FORMAT_VERSION);
    let is_asked_for = std::env::var("GOLDEN").is_ok_and(|value| value == "anew");
    assert!(is_asked_for || !dir.exists(), "{dir:?} is there: GOLDEN=anew makes it anew");
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: String, bytes: &[u8]| {
        use std::io::Write;
        std::fs::File::create(dir.join(&name)).unwrap().write_all(bytes).unwrap();
        println!("{name}: {} bytes", bytes.len());
    };
    for name in MADE {
        let files = make::files(name);
        write(format!("{name}.pack"), &pack::pack(&files));
        if DATABASES.contains(&name) {
            let storage = storage_with(&files, PATH);
            let db = looking(&storage, name, 25).access(Access::ReadOnly).open(PATH).unwrap();
            write(format!("{name}.txt"), describe(&db).as_bytes());
        } else if name == "space" {
            let storage = storage_with(&files, make::SPACE);
            let space = FlexSpace::options().storage(Arc::new(storage)).open(make::SPACE);
            write("space.txt".to_owned(), describe::space(&space.unwrap()).as_bytes());
        }
    }
}
