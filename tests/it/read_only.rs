//! Databases that are opened to be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithe_sim::parallel::run_cases;
use lithe_sim::random::Random;
use lithedb::storage::{
    CrashMode, EntryType, MemoryStorage, OpenMode, Operation, OsStorage, SimStorage, Storage,
};
use lithedb::{
    Access, Background, Db, Error, IndexOptions, Keyspace, KeyspaceOptions, OpenExisting,
    WriteBatch,
};

use crate::THREADS;
use crate::support::{PATH, assert_sound, rows, tiny, tiny_structures};

/// Every file below a directory, with its bytes.
fn files_of(storage: &dyn Storage, root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut to_visit = vec![root.to_path_buf()];
    while let Some(directory) = to_visit.pop() {
        for entry in storage.list_dir(&directory).unwrap() {
            let path = directory.join(&entry.name);
            if entry.entry_type == EntryType::Directory {
                to_visit.push(path);
                continue;
            }
            let file = storage.open(&path, OpenMode::ReadOnly).unwrap();
            let mut bytes = vec![0; file.size().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            files.insert(path, bytes);
        }
    }
    files
}

fn open_to_read(storage: &SimStorage) -> Db {
    tiny(storage).access(Access::ReadOnly).open(PATH).unwrap()
}

fn write_some(random: &mut Random, db: &Db, keyspaces: &[Keyspace]) {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + random.below(8) {
        let keyspace = &keyspaces[random.below(keyspaces.len() as u64) as usize];
        let key = format!("key {:03}", random.below(200));
        match random.below(5) {
            0 => batch.delete(keyspace, key),
            _ => batch.put(keyspace, key, vec![b'v'; random.below(900) as usize]),
        }
    }
    db.write(batch).unwrap();
}

#[test]
fn what_a_crash_left_is_read_and_stays_as_it_is() {
    run_cases(THREADS, 40, |seed| {
        let mut random = Random::new(seed);
        let storage = SimStorage::new(seed);
        let db = tiny(&storage).flush_slice_size(512).open(PATH).unwrap();
        let history = KeyspaceOptions::history().interval_size(1024).segment_size(4096);
        let options = tiny_structures().into_iter().chain([history]);
        let keyspaces: Vec<Keyspace> = options
            .enumerate()
            .map(|(number, options)| {
                let options = options.value_separation(Some(400));
                db.create_keyspace(&format!("k{number}"), options).unwrap()
            })
            .collect();
        keyspaces[0].create_index("by value", "value_prefix:4", IndexOptions::new()).unwrap();
        for _ in 0..random.below(300) {
            write_some(&mut random, &db, &keyspaces);
            if random.below(6) == 0 {
                db.step().unwrap();
            }
        }
        let mode = [CrashMode::DropAll, CrashMode::KeepAll][random.below(2) as usize];
        let crashed = storage.crash(mode, seed);
        crashed.panic_on_violation();
        let before = files_of(&crashed, Path::new(PATH));
        let (mutations, first) = (crashed.mutation_count(), open_to_read(&crashed));
        let second = open_to_read(&crashed);
        for (number, keyspace) in keyspaces.iter().enumerate() {
            let expected = rows(keyspace);
            for reader in [&first, &second] {
                let read = reader.keyspace(&format!("k{number}")).unwrap();
                assert_eq!(rows(&read), expected, "{seed}, keyspace {number}");
                assert_eq!(read.len().unwrap(), expected.len() as u64);
            }
        }
        assert_sound(&first);
        for reader in [first, second] {
            let stats = reader.close().unwrap();
            assert!(stats.read_only.is_some());
        }
        assert_eq!(crashed.mutation_count(), mutations, "{seed}: the disk was changed");
        assert_eq!(files_of(&crashed, Path::new(PATH)), before);
        assert_sound(&tiny(&crashed).open(PATH).unwrap());
        true
    });
}

#[test]
fn every_write_is_refused() {
    let storage = SimStorage::new(1);
    let db = tiny(&storage).open(PATH).unwrap();
    db.create_keyspace("k", tiny_structures()[0].clone()).unwrap().put("a", "1").unwrap();
    db.close().unwrap();
    let db = open_to_read(&storage);
    let keyspace = db.keyspace("k").unwrap();
    let refusals: Vec<lithedb::Result<()>> = vec![
        keyspace.put("b", "2").map(drop),
        keyspace.delete("a").map(drop),
        db.update(|transaction| transaction.put(&keyspace, "b", "2")).map(drop),
        keyspace.begin_ingest().map(drop),
        keyspace.compact::<&[u8]>(..).map(drop),
        db.create_keyspace("other", KeyspaceOptions::lsm()).map(drop),
        db.drop_keyspace("k"),
        db.rename_keyspace("k", "l"),
        db.vacuum().map(drop),
        db.sync().map(drop),
        db.flush(),
        db.create_consumer("c", 1 << 20).map(drop),
        keyspace.create_index("i", "value", IndexOptions::new()).map(drop),
    ];
    for (number, refused) in refusals.into_iter().enumerate() {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{number}: {refused:?}");
    }
    assert!(!db.step().unwrap_or(false));
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(keyspace.get("b").unwrap(), None);
}

#[test]
fn who_is_refused_has_looked_at_nothing_yet() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let looks =
        || [Operation::List, Operation::Open, Operation::Read].map(|kind| storage.count_of(kind));
    let [lists, opens, reads] = looks();
    let refused = tiny(&storage).access(Access::ReadOnly).open(PATH);
    assert!(matches!(refused, Err(Error::Locked { .. })));
    // One list at most, for whether there is a database: not those of all of its directories.
    let [lists_then, opens_then, reads_then] = looks();
    assert!(lists_then <= lists + 1);
    assert_eq!((opens_then, reads_then), (opens, reads));
    drop(writer);
    // What the writer has done last is there: names are listed under the lock.
    assert!(open_to_read(&storage).recovery().clean);
}

#[test]
fn readers_share_a_database_and_a_writer_has_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let on_disk: Arc<dyn Storage> = Arc::new(OsStorage::new());
    let path = directory.path().join("db");
    for (storage, path) in [
        (on_disk, path.as_path()),
        (Arc::new(MemoryStorage::new()) as _, Path::new(PATH)),
        (Arc::new(SimStorage::new(1)) as _, Path::new(PATH)),
    ] {
        let builder = || Db::builder().storage(Arc::clone(&storage));
        let to_read = || builder().access(Access::ReadOnly).open(path);
        // Nothing is created.
        assert!(matches!(to_read(), Err(Error::Io { .. })));
        assert!(!storage.exists(path).unwrap());
        let writer = builder().open(path).unwrap();
        writer.keyspace_or_create("k").unwrap().put("a", "1").unwrap();
        assert!(matches!(to_read(), Err(Error::Locked { .. })));
        drop(writer);
        let readers = [to_read().unwrap(), to_read().unwrap()];
        let writing = builder().existing(OpenExisting::Only).background(Background::Threads);
        assert!(matches!(writing.clone().open(path), Err(Error::Locked { .. })));
        for reader in readers {
            let keyspace = reader.keyspace("k").unwrap();
            assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
            reader.close().unwrap();
            assert!(matches!(keyspace.get("a"), Err(Error::Closed)));
        }
        writing.open(path).unwrap().keyspace("k").unwrap().put("a", "2").unwrap();
    }
}
