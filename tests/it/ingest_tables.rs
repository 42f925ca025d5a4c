//! Tables that are made outside of the database and ingested whole: over what was there, all or
//! none, whatever fails and whenever the power goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lithe_sim::random::Random;
use lithedb::base::SeededEntropy;
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, OsStorage, SimStorage, Storage,
};
use lithedb::{
    Background, Builder, Codec, Compaction, Db, Durability, Error, Keyspace, KeyspaceOptions,
    Leveled, TableCheck, TableIngestMode, TableIngestOptions, TableSummary, TableWriter, Tiered,
};

use crate::support::assert_sound;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a table says of a key; `None` deletes it.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn builder(storage: &SimStorage) -> Builder {
    Db::builder()
        .storage(Arc::new(storage.clone()))
        .background(Background::Stepped)
        .durability(Durability::Buffered)
        .memory_budget(8 << 20)
}

fn small() -> KeyspaceOptions {
    KeyspaceOptions::lsm().table_size(16 << 10).block_size(1 << 10)
}

fn leveled() -> KeyspaceOptions {
    let leveled = Leveled::new().level0_trigger(2).level_ratio(3.0);
    small().compaction(Compaction::Leveled(leveled)).codec(Codec::Lz4)
}

fn tiered() -> KeyspaceOptions {
    small().compaction(Compaction::Tiered(Tiered::new().threshold(3).run_count_max(6)))
}

fn open_with(storage: &SimStorage, options: KeyspaceOptions) -> (Db, Keyspace) {
    let db = builder(storage).open("/db").unwrap();
    let keyspace = match db.create_keyspace("k", options) {
        Err(Error::KeyspaceExists { .. }) => db.keyspace("k").unwrap(),
        created => created.unwrap(),
    };
    (db, keyspace)
}

fn open(storage: &SimStorage) -> (Db, Keyspace) {
    open_with(storage, leveled())
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn rows(numbers: impl IntoIterator<Item = u64>, round: u64) -> Rows {
    let row = |number: u64| (key(number), format!("{round}/{number:040}").into_bytes());
    numbers.into_iter().map(row).collect()
}

fn changes(rows: &Rows) -> Changes {
    rows.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
}

fn begin(storage: &SimStorage, path: &str, options: &KeyspaceOptions) -> TableWriter {
    storage.create_dir_all(Path::new("/outside")).unwrap();
    // Each file has an identity of its own.
    let entropy = SeededEntropy::new(storage.operation_count());
    TableWriter::create_in(Arc::new(storage.clone()), &entropy, path, options).unwrap()
}

fn write(storage: &SimStorage, path: &str, changes: &Changes) -> TableSummary {
    let mut writer = begin(storage, path, &leveled());
    for (key, value) in changes {
        match value {
            Some(value) => writer.put(key, value).unwrap(),
            None => writer.delete(key).unwrap(),
        }
    }
    writer.finish().unwrap()
}

/// In the year 2100.
fn far_away() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800)
}

fn rows_of(keyspace: &Keyspace) -> Rows {
    let row = |entry: lithedb::Result<lithedb::Entry>| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    };
    keyspace.iter().map(row).collect()
}

fn assert_rows(keyspace: &Keyspace, expected: &Rows) {
    let found = rows_of(keyspace);
    assert!(found == *expected, "{} rows, expected {}", found.len(), expected.len());
    assert_eq!(keyspace.len().unwrap(), expected.len() as u64);
    for (key, value) in expected.iter().step_by(7) {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
}

fn settle(db: &Db) {
    while db.step().unwrap() {}
}

fn names(storage: &dyn Storage, dir: &str) -> Vec<String> {
    let entries = storage.list_dir(Path::new(dir)).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

/// Names of table files.
fn tables(storage: &SimStorage) -> Vec<String> {
    let mut tables = names(storage, "/db/keyspaces/00000001");
    tables.retain(|name| name.starts_with("tbl-"));
    tables
}

fn apply(rows: &mut Rows, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(rows.insert(key.clone(), value.clone())),
            None => drop(rows.remove(key)),
        }
    }
}

#[test]
fn tables_take_their_place_over_what_was_there_and_beneath_what_comes() {
    for (seed, options) in [(1, leveled()), (2, tiered())] {
        for how in [TableIngestOptions::copying(), TableIngestOptions::moving()] {
            let storage = SimStorage::new(seed);
            let (db, k) = open_with(&storage, options.clone());
            let (mut expected, mut random) = (Rows::new(), Random::new(seed));
            for round in 0..30 {
                let count = 1 + random.below(3);
                let mut paths = Vec::new();
                let snapshot = db.snapshot();
                let before = expected.clone();
                let mut from = random.below(3000);
                for part in 0..count {
                    let (len, step) = (1 + random.below(300), 1 + random.below(5));
                    let mut changes = changes(&rows((0..len).map(|n| from + n * step), round));
                    for value in changes.values_mut().step_by(5) {
                        *value = None;
                    }
                    from += len * step + random.below(100);
                    let path = format!("/outside/{round}-{part}.tbl");
                    let summary = write(&storage, &path, &changes);
                    assert_eq!(summary.entries, changes.len() as u64);
                    assert_eq!(
                        summary.first_key.as_deref(),
                        Some(&**changes.keys().next().unwrap())
                    );
                    apply(&mut expected, &changes);
                    paths.push(path);
                }
                paths.reverse(); // In any order.
                let report = k.ingest_tables(&paths, how).unwrap();
                let is_moved = how.mode == TableIngestMode::Move;
                assert_eq!((report.tables, report.not_removed.len()), (count, 0));
                assert_eq!(report.linked, if is_moved { count } else { 0 });
                let is_there = |path: &String| storage.exists(Path::new(path)).unwrap();
                assert_eq!(paths.iter().filter(|path| is_there(path)).count() == 0, is_moved);
                let then: Vec<_> = snapshot.iter(&k).map(|e| e.unwrap().key.to_vec()).collect();
                assert!(then.iter().eq(before.keys()), "a snapshot of before is as before");
                assert_rows(&k, &expected);
                let (first, _) = expected.first_key_value().unwrap();
                assert!(k.get_entry(first).unwrap().unwrap().seqno <= report.seqno);
                // What comes later is newer, in memtables and from them.
                for (key, value) in rows((0..50).map(|_| random.below(4000)), round + 100) {
                    assert!(k.put(&key, &value).unwrap() > report.seqno);
                    expected.insert(key, value);
                }
                if random.chance(300) {
                    db.flush().unwrap();
                    settle(&db);
                }
                assert_rows(&k, &expected);
            }
            assert_sound(&db);
            drop((k, db));
            let (db, k) = open_with(&storage, options.clone());
            assert_rows(&k, &expected);
            db.compact().unwrap();
            assert_rows(&k, &expected);
            assert_sound(&db);
            assert_eq!(storage.violations(), Vec::<String>::new());
        }
    }
}

#[test]
fn deleted_ranges_delete_what_was_there_and_nothing_of_the_table() {
    let storage = SimStorage::new(3);
    let (db, k) = open(&storage);
    let mut expected = rows(0..2000, 0);
    k.ingest(&expected).unwrap();
    for (key, value) in rows(900..1100, 1) {
        k.put(&key, &value).unwrap(); // In a memtable.
        expected.insert(key, value);
    }
    let mut writer = begin(&storage, "/outside/a", &leveled());
    writer.put(key(100), "before").unwrap();
    writer.put(key(450), "within").unwrap();
    writer.delete_range(key(200)..key(500)).unwrap();
    writer.delete_range(key(500)..key(1000)).unwrap(); // Continues it.
    writer.delete_range(key(700)..key(700)).unwrap(); // Empty.
    let refused = writer.delete_range(key(999)..key(1001)).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    writer.delete_range(key(1500)..).unwrap();
    writer.delete_range::<&[u8]>(..).unwrap_err();
    let summary = writer.finish().unwrap();
    assert_eq!((summary.entries, summary.deleted_ranges), (2, 2));
    let mut open = db.begin_update();
    assert!(open.get(&k, b"zzz").unwrap().is_none());
    let snapshot = db.snapshot();
    let report = k.ingest_tables(["/outside/a"], TableIngestOptions::moving()).unwrap();
    assert_eq!(snapshot.iter(&k).count(), expected.len());
    expected.retain(|other, _| {
        !(key(200)..key(1000)).contains(other) && *other < key(1500) || *other == key(100)
    });
    expected.insert(key(100), b"before".to_vec());
    expected.insert(key(450), b"within".to_vec());
    assert_rows(&k, &expected);
    assert_eq!(k.get_entry(key(450)).unwrap().unwrap().seqno, report.seqno);
    open.put(&k, "x", "y").unwrap();
    assert!(matches!(open.commit(), Err(Error::Conflict)), "a range without end was deleted");
    k.put("zz", "newer").unwrap();
    expected.insert(b"zz".to_vec(), b"newer".to_vec());
    assert_rows(&k, &expected);
    drop((open, snapshot, k, db));
    let (db, k) = self::open(&storage);
    assert_rows(&k, &expected);
    db.compact().unwrap();
    assert_rows(&k, &expected);
    assert_sound(&db);
    // Over nothing at all there is nothing to delete.
    let mut writer = begin(&storage, "/outside/b", &leveled());
    writer.delete_range::<&[u8]>(..).unwrap();
    writer.finish().unwrap();
    k.ingest_tables(["/outside/b"], TableIngestOptions::moving()).unwrap();
    assert!(k.is_empty().unwrap());
    k.ingest_tables(Vec::<PathBuf>::new(), TableIngestOptions::moving()).unwrap();
    db.compact().unwrap();
    assert!(k.is_empty().unwrap() && k.tables().is_empty());
    assert_sound(&db);
}

#[test]
fn a_keyspace_of_the_structure_flex_reads_the_entries() {
    let storage = SimStorage::new(4);
    let options = KeyspaceOptions::flex().interval_size(2048).value_separation(Some(600));
    let (db, k) = open_with(&storage, options.clone());
    let mut expected = rows(0..100, 0);
    k.ingest(&expected).unwrap();
    let (mut first, second) = (rows(50..400, 1), rows(400..500, 2));
    first.insert(key(60), vec![b'v'; 5000]);
    write(&storage, "/outside/a", &changes(&first));
    write(&storage, "/outside/b", &changes(&second));
    let paths = ["/outside/b", "/outside/a"];
    let report = k.ingest_tables(paths, TableIngestOptions::moving()).unwrap();
    assert_eq!((report.entries, report.linked), (450, 0));
    assert_eq!(names(&storage, "/outside"), Vec::<String>::new());
    expected.extend(first);
    expected.extend(second);
    assert_rows(&k, &expected);
    assert_eq!(db.stats().value_files.len(), 1, "a large value is separated");
    let deletion = Changes::from([(key(1), None)]);
    write(&storage, "/outside/c", &deletion);
    let refused = k.ingest_tables(["/outside/c"], TableIngestOptions::moving()).unwrap_err();
    assert!(refused.to_string().contains("flex"), "{refused}");
    assert_eq!(names(&storage, "/outside"), ["c"]);
    assert_rows(&k, &expected);
    drop((k, db));
    let (db, k) = open_with(&storage, options);
    assert_rows(&k, &expected);
    assert_sound(&db);
}

#[test]
fn what_expires_in_a_table_expires() {
    let storage = SimStorage::new(5);
    for structure in [leveled(), KeyspaceOptions::flex()] {
        let path = "/outside/expiring";
        let mut writer = begin(&storage, path, &leveled());
        let far = far_away();
        writer.put_until("a", "gone", SystemTime::UNIX_EPOCH).unwrap();
        writer.put_until("b", "there", far).unwrap();
        writer.put_until("c", "always", lithedb::Expiry::Never).unwrap();
        assert_eq!(writer.finish().unwrap().expiring, 2);
        let db = builder(&storage).open(format!("/{}", structure.structure.name())).unwrap();
        let merging = structure.clone().merge_operator("counter");
        let m = db.create_keyspace("m", merging).unwrap();
        let refused = m.ingest_tables([path], TableIngestOptions::moving()).unwrap_err();
        assert!(refused.to_string().contains("expire"), "{refused}");
        let ttl = structure.clone().ttl(Duration::from_secs(5));
        let k = db.create_keyspace("k", ttl).unwrap();
        k.ingest_tables([path], TableIngestOptions::moving()).unwrap();
        assert_eq!(k.get("a").unwrap(), None);
        assert_eq!(k.len().unwrap(), 2);
        assert_eq!(k.get("b").unwrap().as_deref(), Some(&b"there"[..]));
        let never = k.get_entry("c").unwrap().unwrap();
        assert_eq!(never.expires_at(), None, "whatever the keyspace's time to live");
        db.compact().unwrap();
        assert_eq!(k.len().unwrap(), 2);
        assert_sound(&db);
    }
}

#[test]
fn what_cannot_be_ingested_is_refused_by_name_and_changes_nothing() {
    let storage = SimStorage::new(6);
    let (db, k) = open(&storage);
    let expected = rows(0..300, 0);
    k.ingest(&expected).unwrap();
    k.put(key(5), "in a memtable").unwrap();
    let before = rows_of(&k);
    write(&storage, "/outside/good", &changes(&rows(0..100, 1)));
    write(&storage, "/outside/touching", &changes(&rows(100..200, 1)));
    write(&storage, "/outside/overlapping", &changes(&rows(99..150, 1)));
    write(&storage, "/outside/cut", &changes(&rows(300..400, 1)));
    let len = storage.read_file(Path::new("/outside/cut")).unwrap().len() as u64;
    storage.truncate(Path::new("/outside/cut"), len - 1).unwrap();
    storage.open(Path::new("/outside/empty"), lithedb::storage::OpenMode::CreateNew).unwrap();
    let own = format!("/db/keyspaces/00000001/{}", tables(&storage)[0]);
    let (files, seqno) = (tables(&storage), db.snapshot().seqno());
    for how in
        [TableIngestOptions::moving(), TableIngestOptions::copying().check(TableCheck::Metadata)]
    {
        for (path, words) in [
            ("/outside/overlapping", "overlaps /outside/good"),
            ("/outside/good", "overlaps /outside/good"),
            ("/outside/cut", "does not verify"),
            ("/outside/empty", "is no table: it has 0 bytes"),
            ("/outside/absent", "/outside/absent"),
            (own.as_str(), "is a table of a database"),
        ] {
            let refused = k.ingest_tables(["/outside/good", path], how).unwrap_err();
            assert!(refused.to_string().contains(words), "{path}: {refused}");
            assert_eq!((tables(&storage), db.snapshot().seqno()), (files.clone(), seqno), "{path}");
            assert!(rows_of(&k) == before, "{path}");
            assert!(storage.exists(Path::new("/outside/good")).unwrap(), "{path}");
        }
    }
    // The same again, as after an interruption, is nothing new.
    k.ingest_tables(["/outside/good"], TableIngestOptions::copying()).unwrap();
    k.ingest_tables(["/outside/good"], TableIngestOptions::copying()).unwrap();
    // One that was ingested has an identity of its own and lies among a keyspace's files.
    let both = ["/outside/good", "/outside/touching"];
    k.ingest_tables(both, TableIngestOptions::copying()).unwrap();
    let ingested: Vec<String> =
        tables(&storage).into_iter().filter(|name| !files.contains(name)).collect();
    let inside = format!("/db/keyspaces/00000001/{}", ingested[0]);
    let refused = k.ingest_tables([&inside], TableIngestOptions::moving()).unwrap_err();
    assert!(refused.to_string().contains("is in the directory of a keyspace"), "{refused}");
    assert!(storage.exists(Path::new(&inside)).unwrap());
    assert_sound(&db);
    db.close().unwrap();
    assert!(matches!(k.ingest_tables(both, TableIngestOptions::moving()), Err(Error::Closed)));
    let flex = KeyspaceOptions::flex();
    let refused = TableWriter::create("/nowhere/x", &flex).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
}

#[test]
fn a_writer_refuses_disorder_and_goes_on_and_leaves_no_file_behind() {
    let storage = SimStorage::new(7);
    let mut writer = begin(&storage, "/outside/a", &leveled());
    assert!(writer.is_empty());
    writer.put("b", "1").unwrap();
    for refused in [
        writer.put("b", "again"),
        writer.put("a", "below"),
        writer.delete("b"),
        writer.put_until("a", "below", lithedb::Expiry::Never),
        writer.put(vec![b'z'; lithedb::KEY_LEN_MAX + 1], ""),
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    writer.put("c", "2").unwrap();
    let summary = writer.finish().unwrap();
    assert_eq!((summary.entries, summary.data_bytes), (2, 4));
    assert_eq!(summary.last_key.as_deref(), Some(&b"c"[..]));
    let mut dropped = begin(&storage, "/outside/b", &leveled());
    dropped.put("x", "y").unwrap();
    drop(dropped);
    begin(&storage, "/outside/c", &leveled()).finish().unwrap_err();
    assert_eq!(names(&storage, "/outside"), ["a"]);
    let entropy = SeededEntropy::new(1);
    let there = TableWriter::create_in(Arc::new(storage.clone()), &entropy, "/outside/a", &small());
    assert!(matches!(there, Err(Error::Io { .. })), "what is there is not overwritten");
}

#[test]
fn every_flipped_byte_of_a_table_is_refused_and_nothing_has_changed() {
    let storage = SimStorage::new(8);
    let (db, k) = open(&storage);
    let before = rows(0..20, 0);
    k.ingest(&before).unwrap();
    let path = Path::new("/outside/a");
    let mut writer = begin(&storage, "/outside/a", &leveled());
    for (key, value) in rows(10..40, 1) {
        writer.put(key, value).unwrap();
    }
    writer.delete(key(50)).unwrap();
    writer.put_until(key(60), "v", far_away()).unwrap();
    writer.delete_range(key(70)..key(80)).unwrap();
    let size = writer.finish().unwrap().file_bytes;
    let files = tables(&storage);
    let (mut corrupt, mut wrong) = (0, 0);
    for offset in 0..size {
        storage.flip_bit(path, offset, (offset % 8) as u8).unwrap();
        let how = if offset % 2 == 0 {
            TableIngestOptions::moving()
        } else {
            TableIngestOptions::copying()
        };
        match k.ingest_tables([path], how) {
            Err(Error::Corruption { file, .. }) => {
                assert_eq!(file, path, "it is said where it was given");
                corrupt += 1;
            }
            Err(Error::InvalidArgument { .. }) => wrong += 1,
            other => panic!("byte {offset}: {other:?}"),
        }
        assert_eq!(tables(&storage), files, "byte {offset}");
        storage.flip_bit(path, offset, (offset % 8) as u8).unwrap();
    }
    assert!(corrupt > size - 9 && wrong == 8, "{corrupt} {wrong}: those of the magic");
    assert_rows(&k, &before);
    assert_sound(&db);
    k.ingest_tables([path], TableIngestOptions::moving()).unwrap();
    assert_sound(&db);
}

#[test]
fn wherever_the_power_goes_all_is_there_or_nothing_and_then_the_files_are() {
    let (first, second) = (rows(50..90, 1), rows(90..130, 2));
    let before = rows(0..100, 0);
    let mut after = before.clone();
    after.extend(first.clone());
    after.extend(second.clone());
    after.remove(&key(40));
    for how in [TableIngestOptions::copying(), TableIngestOptions::moving()] {
        let prepared = || {
            let storage = SimStorage::new(9);
            let (db, k) = open(&storage);
            k.ingest(&before).unwrap();
            k.put(key(60), "in a memtable").unwrap();
            k.put(key(60), &before[&key(60)]).unwrap();
            db.sync().unwrap();
            let mut first = changes(&first);
            first.insert(key(40), None);
            write(&storage, "/outside/a", &first);
            write(&storage, "/outside/b", &changes(&second));
            storage.sync_dir(Path::new("/")).unwrap();
            (storage, db, k)
        };
        let paths = ["/outside/a", "/outside/b"];
        let (storage, db, k) = prepared();
        let start = storage.mutation_count();
        k.ingest_tables(paths, how).unwrap();
        let end = storage.mutation_count();
        drop((k, db));
        let (mut without, mut with) = (0, 0);
        for point in start..=end {
            let (storage, db, k) = prepared();
            if point % 2 == 0 {
                storage.crash_at(point);
            } else {
                storage.crash_inside(point);
            }
            let report = k.ingest_tables(paths, how);
            let acknowledged = report.is_ok();
            let is_moved = report.is_ok_and(|report| report.not_removed.is_empty())
                && how.mode == TableIngestMode::Move;
            for (seed, mode) in CrashMode::ALL.into_iter().enumerate() {
                let recovered = storage.crash(mode, seed as u64 * 1000 + point);
                let (db, k) = open(&recovered);
                let found = rows_of(&k);
                let is_there = |path: &&str| recovered.exists(Path::new(path)).unwrap();
                if found == before {
                    without += 1;
                    assert!(!acknowledged, "{how:?} {point} {mode:?}");
                    assert!(paths.iter().all(is_there), "{how:?} {point} {mode:?}");
                    assert_eq!(tables(&recovered).len(), k.tables().len(), "no orphan stays");
                    k.ingest_tables(paths, how).unwrap();
                } else {
                    with += 1;
                    assert!(!(is_moved && paths.iter().any(is_there)), "{how:?} {point} {mode:?}");
                }
                assert!(rows_of(&k) == after, "{how:?} {point} {mode:?}");
                assert_eq!(tables(&recovered).len(), k.tables().len(), "no orphan stays");
                assert_sound(&db);
            }
            drop((k, db));
        }
        assert!(without > 20 && with > 7, "{without} {with}");
    }
}

#[test]
fn what_fails_on_the_way_leaves_all_as_it_was() {
    let storage = SimStorage::new(10);
    let (db, k) = open(&storage);
    let mut expected = rows(0..300, 0);
    k.ingest(&expected).unwrap();
    let ingested = rows(200..500, 1);
    write(&storage, "/outside/a", &changes(&ingested));
    let files = tables(&storage);
    let refusing = |operation, kind| {
        let rule = FaultRule::new(FaultEffect::Error(kind)).on(&[operation]);
        FaultPlan::new().rule(rule.path("tbl-").lasting())
    };
    let full = std::io::ErrorKind::StorageFull;
    for (plan, how) in [
        (refusing(Operation::Write, full), TableIngestOptions::copying()),
        (refusing(Operation::Create, full), TableIngestOptions::copying()),
        (refusing(Operation::Sync, std::io::ErrorKind::Other), TableIngestOptions::copying()),
        (refusing(Operation::Read, std::io::ErrorKind::Other), TableIngestOptions::copying()),
        (refusing(Operation::Sync, std::io::ErrorKind::Other), TableIngestOptions::moving()),
    ] {
        storage.arm(plan);
        let refused = k.ingest_tables(["/outside/a"], how).unwrap_err();
        storage.disarm();
        assert!(matches!(refused, Error::DiskFull { .. } | Error::Io { .. }), "{refused}");
        assert_eq!(tables(&storage), files);
        assert_rows(&k, &expected);
        k.put("still", "writable").unwrap();
        k.delete("still").unwrap();
    }
    // So it is with a link that fails otherwise than for being one.
    storage.arm(refusing(Operation::Link, std::io::ErrorKind::Other));
    let refused = k.ingest_tables(["/outside/a"], TableIngestOptions::moving()).unwrap_err();
    storage.disarm();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    assert_rows(&k, &expected);
    // Where a file cannot be linked it is copied, and then removed.
    storage.arm(refusing(Operation::Link, std::io::ErrorKind::CrossesDevices));
    let report = k.ingest_tables(["/outside/a"], TableIngestOptions::moving()).unwrap();
    storage.disarm();
    assert_eq!((report.linked, names(&storage, "/outside").len()), (0, 0));
    expected.extend(ingested);
    assert_rows(&k, &expected);
    // One that cannot be removed is named.
    write(&storage, "/outside/b", &changes(&rows(600..700, 1)));
    let rule = FaultRule::new(FaultEffect::Error(std::io::ErrorKind::PermissionDenied));
    storage.arm(FaultPlan::new().rule(rule.on(&[Operation::Remove]).path("outside").lasting()));
    let report = k.ingest_tables(["/outside/b"], TableIngestOptions::moving()).unwrap();
    storage.disarm();
    assert_eq!(report.not_removed, [PathBuf::from("/outside/b")]);
    expected.extend(rows(600..700, 1));
    // So is one whose name may come back, for want of a sync.
    write(&storage, "/outside/tables-of-c", &changes(&rows(700..800, 1)));
    let rule = FaultRule::new(FaultEffect::Error(std::io::ErrorKind::Other));
    storage.arm(FaultPlan::new().rule(rule.on(&[Operation::SyncDir]).path("outside").lasting()));
    let report = k.ingest_tables(["/outside/tables-of-c"], TableIngestOptions::moving()).unwrap();
    storage.disarm();
    assert_eq!(report.not_removed, [PathBuf::from("/outside/tables-of-c")]);
    expected.extend(rows(700..800, 1));
    assert_rows(&k, &expected);
    assert_sound(&db);
}

#[test]
fn others_write_and_read_beside_an_ingest_of_tables() {
    let storage = SimStorage::new(11);
    let db = builder(&storage).background(Background::Threads).open("/db").unwrap();
    let k = db.create_keyspace("k", leveled()).unwrap();
    let rounds = 12;
    for round in 0..rounds {
        write(&storage, &format!("/outside/{round}"), &changes(&rows(0..600, round)));
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0u64;
            while !is_over() {
                number += 1;
                k.put(key(number % 300 * 2), format!("put {number}")).unwrap();
            }
        });
        scope.spawn(|| {
            while !is_over() {
                let snapshot = db.snapshot();
                // All of a table or nothing: odd keys are written by nobody else.
                let stamp = |number: u64| {
                    snapshot.get_entry(&k, key(number)).unwrap().map(|entry| entry.seqno)
                };
                assert_eq!(stamp(1), stamp(599));
            }
        });
        for round in 0..rounds {
            let path = format!("/outside/{round}");
            let report = k.ingest_tables([path], TableIngestOptions::moving()).unwrap();
            assert_eq!(k.get_entry(key(301)).unwrap().unwrap().seqno, report.seqno);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(k.len().unwrap(), 600);
    assert_sound(&db);
}

#[test]
fn files_of_the_system_are_linked_and_a_symbolic_link_is_copied() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let write = |name: &str, numbers: std::ops::Range<u64>| {
        let mut writer = TableWriter::create(at(name), &leveled()).unwrap();
        for (key, value) in rows(numbers, 0) {
            writer.put(key, value).unwrap();
        }
        writer.finish().unwrap();
    };
    write("a", 0..100);
    write("target", 100..200);
    std::os::unix::fs::symlink(at("target"), at("b")).unwrap();
    let db = Db::open(at("db")).unwrap();
    let k = db.create_keyspace("k", leveled()).unwrap();
    let report = k.ingest_tables([at("a"), at("b")], TableIngestOptions::moving()).unwrap();
    assert_eq!((report.linked, report.not_removed.len()), (1, 0));
    let left = names(&OsStorage::new(), directory.path().to_str().unwrap());
    assert_eq!(left, ["db", "target"]);
    assert_rows(&k, &rows(0..200, 0));
    db.close().unwrap();
    let db = Db::open(at("db")).unwrap();
    assert_rows(&db.keyspace("k").unwrap(), &rows(0..200, 0));
    assert_sound(&db);
}
