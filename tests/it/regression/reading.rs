//! Whatever the bytes and however little memory there is: what was written is what is read.

use std::sync::Arc;

use lithe_sim::ops::{Mix, Op, Purpose, draw_run};
use lithe_sim::random::Random;
use lithe_sim::readback::{Detail, read_all};
use lithe_sim::sample::{Key, ValueSizes};
use lithe_sim::session::{Session, SharedTimeline};
use lithe_sim::setup::Setup;
use lithedb::storage::{CrashMode, MemoryStorage, SimStorage};
use lithedb::{Db, Durability, KeyspaceOptions};

use crate::support::{assert_sound, create_tiny, open_tiny, rows, step_to_rest, tiny_structures};

/// Lesson 5, small and large: in the memtable, in the structure, and after reopening.
#[test]
fn values_of_any_size_round_trip() {
    round_trip(&KeyspaceOptions::flex());
    round_trip(&KeyspaceOptions::lsm());
}

fn round_trip(options: &KeyspaceOptions) {
    let storage = Arc::new(MemoryStorage::new());
    let open =
        || Db::builder().storage(storage.clone()).memory_budget(64 << 20).open("/db").unwrap();
    let db = open();
    let keyspace = db.create_keyspace("a", options.clone()).unwrap();
    // Around the interval, the segment and the log file; above 16 MiB.
    let sizes =
        [0_usize, 1, 511, 4095, 16_383, 16_384, 16_385, 65_535, 65_536, (4 << 20) - 1, 17 << 20];
    let value = |size: usize| (0..size).map(|index| ((index * 31) >> 3) as u8).collect::<Vec<u8>>();
    let check = |keyspace: &lithedb::Keyspace| {
        for size in sizes {
            let found = keyspace.get(size.to_be_bytes()).unwrap().unwrap();
            assert!(*found == *value(size), "a value of {size} bytes");
        }
        assert_eq!(keyspace.iter().count(), sizes.len());
    };
    for size in sizes {
        keyspace.put(size.to_be_bytes(), value(size)).unwrap();
    }
    check(&keyspace);
    db.flush().unwrap();
    check(&keyspace);
    db.close().unwrap();
    drop((db, keyspace));
    let db = open();
    check(&db.keyspace("a").unwrap());
    assert_sound(&db);
}

/// Lesson 5: a record of each size up to one that fills a log file, killed and read back.
#[test]
fn records_may_end_anywhere_in_a_log_file() {
    const FILE_SIZE: usize = 16 << 10;
    const HEADER_SIZE: usize = 4096;
    for size in FILE_SIZE - HEADER_SIZE - 160..FILE_SIZE - HEADER_SIZE + 40 {
        let storage = SimStorage::new(1);
        let db = open_tiny(&storage);
        let keyspace = create_tiny(&db, "a");
        keyspace.put_with("first", vec![1; size / 2], Durability::Buffered).unwrap();
        keyspace.put_with("second", vec![2; size - size / 2], Durability::Buffered).unwrap();
        keyspace.put_with("alone", vec![3; size], Durability::Buffered).unwrap();
        keyspace.put("last", "4").unwrap();
        for mode in [CrashMode::KeepAll, CrashMode::DropAll] {
            let db = open_tiny(&storage.crash(mode, 0));
            assert_eq!(rows(&db.keyspace("a").unwrap()), rows(&keyspace), "{size}, {mode:?}");
        }
    }
}

/// Lesson 5: entries that fill an interval, or a block of a table, to the byte.
#[test]
fn entries_may_end_anywhere_in_a_block() {
    tiny_structures().into_iter().for_each(fill_blocks);
}

fn fill_blocks(options: KeyspaceOptions) {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = db.create_keyspace("a", options).unwrap();
    for size in 380..620_usize {
        keyspace
            .put_with(size.to_be_bytes(), vec![size as u8; size], Durability::Buffered)
            .unwrap();
        if size % 16 == 0 {
            db.flush().unwrap();
        }
    }
    let before = rows(&keyspace);
    assert_eq!(before.len(), 240);
    db.close().unwrap();
    let db = open_tiny(&storage.duplicate());
    assert_eq!(rows(&db.keyspace("a").unwrap()), before);
    assert_sound(&db);
}

/// Lesson 15.
#[test]
fn no_byte_has_a_meaning_in_keys_values_or_names() {
    let odd: [&[u8]; 12] = [
        b"",
        b"\0",
        b"\0\0",
        b"\xFF",
        b"\xFF\xFF\xFF\xFF",
        b"a,b;c\t\"d\"\r\n",
        b"a\0b",
        b"__TOMBSTONE__",
        b"tombstone",
        b"\x80\xFE not UTF-8",
        b"../../etc/passwd",
        b"%s %00 ' OR 1=1",
    ];
    let names = ["a/b", "..", "a\0b", "\u{1F9A6}", "MANIFEST", " "];
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    for name in names {
        let keyspace = create_tiny(&db, name);
        for (index, key) in odd.iter().enumerate() {
            keyspace.put_with(key, odd[odd.len() - 1 - index], Durability::Buffered).unwrap();
        }
    }
    let check = |db: &Db| {
        for name in names {
            let keyspace = db.keyspace(name).unwrap();
            for (index, key) in odd.iter().enumerate() {
                let value = keyspace.get(key).unwrap();
                assert_eq!(value.as_deref(), Some(odd[odd.len() - 1 - index]));
            }
            assert_eq!(keyspace.iter().count(), odd.len());
            assert_eq!(keyspace.get(b"absent").unwrap(), None);
            // An empty value is there; a deleted key is not.
            assert!(keyspace.contains(odd[odd.len() - 1]).unwrap());
        }
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.close().unwrap();
    check(&open_tiny(&storage.duplicate()));
    // Names are data: nothing was made outside the directories of the database.
    for (path, _) in storage.files() {
        let path = path.to_str().unwrap();
        assert!(path.starts_with("/db/") && !path.contains(".."), "{path}");
    }
}

/// Lesson 19: cached blocks are shared, and nobody changes them.
#[test]
fn a_scan_never_changes_what_a_later_get_returns() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let keyspace = create_tiny(&db, "a");
    for index in 0..300_u32 {
        keyspace.put_with(index.to_be_bytes(), index.to_string(), Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    let held = keyspace.get(7_u32.to_be_bytes()).unwrap().unwrap();
    let entries: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
    let mut cursor = keyspace.cursor(lithedb::KeyRange::all());
    for _ in 0..2 {
        cursor.seek_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
        for index in (0..300_u32).rev() {
            let found = keyspace.get(index.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(index.to_string().as_bytes()));
        }
        for index in 0..300_u32 {
            keyspace
                .put_with(index.to_be_bytes(), index.to_string(), Durability::Buffered)
                .unwrap();
        }
        step_to_rest(&db);
        db.flush().unwrap();
    }
    assert_eq!(&*held, b"7");
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(*entry.value, *index.to_string().as_bytes());
    }
}

/// Lesson 22: the same run with little and with much memory shows the same, stamps included.
#[test]
fn a_database_larger_than_the_cache_behaves_as_one_smaller_than_it() {
    let found = |memory_budget: u64| {
        let mut setup = Setup::tiny(9);
        setup.memory_budget = memory_budget;
        let storage = Arc::new(SimStorage::new(1));
        let mut session = Session::open(&setup, storage, 0, SharedTimeline::default()).unwrap();
        let mix = Mix { key_count: 2000, sizes: ValueSizes::Mixed, purpose: Purpose::Writing };
        for op in draw_run(&mut Random::new(5), mix, 2500) {
            session.run(&op).unwrap();
            if let (Op::Put(_, key, ..), Some(keyspace)) = (&op, session.keyspace(0)) {
                let rows = session.timeline().rows(keyspace.id());
                for key in [*key, Key(key.0 / 2)].map(Key::bytes) {
                    let value = keyspace.get(&key).unwrap();
                    assert_eq!(value.as_deref(), rows.get(&key).map(|row| &*row.value));
                }
            }
        }
        let found = read_all(&session.db, Detail::Digests).unwrap();
        let size: u64 = session.db.stats().keyspaces.iter().map(|it| it.bytes_on_disk).sum();
        (found.catalog, found.digests, size)
    };
    let (catalog, digests, size) = found(64 << 10);
    assert!(size > 2 * (64 << 10), "only {size} bytes");
    let (large_catalog, large_digests, _) = found(64 << 20);
    assert_eq!((catalog, digests), (large_catalog, large_digests));
}
