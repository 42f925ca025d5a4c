//! Ingests into keyspaces that keep their versions: each entry is a version, also while only the
//! present has it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lithedb::storage::{CrashMode, SimStorage, Storage};
use lithedb::{
    Background, Builder, ChangeKind, Conversion, Db, Error, FeedOptions, Keyspace, KeyspaceOptions,
    SeqNo, TableIngestOptions,
};

use crate::support::{assert_sound, step_to_rest};

fn builder(storage: &SimStorage) -> Builder {
    Db::builder()
        .storage(Arc::new(storage.clone()) as Arc<dyn Storage>)
        .background(Background::Stepped)
        .durability(lithedb::Durability::Buffered)
        .memory_budget(8 << 20)
        .disk_reserve(0)
}

fn options() -> KeyspaceOptions {
    let options = KeyspaceOptions::history().interval_size(1024).segment_size(16 << 10);
    options.merge_operator("append").value_separation(Some(300))
}

fn key(number: u32) -> String {
    format!("key{number:05}")
}

/// What each key had, by stamp; `None` where it was deleted.
#[derive(Clone, Default)]
struct Model(BTreeMap<String, BTreeMap<SeqNo, Option<Vec<u8>>>>);

impl Model {
    fn note(&mut self, key: String, at: SeqNo, value: Option<Vec<u8>>) {
        self.0.entry(key).or_default().insert(at, value);
    }

    fn get(&self, key: &str, at: SeqNo) -> Option<Vec<u8>> {
        self.0.get(key)?.range(..=at).next_back()?.1.clone()
    }

    fn rows(&self, at: SeqNo) -> Vec<(String, Vec<u8>)> {
        let rows = self.0.keys().filter_map(|key| Some((key.clone(), self.get(key, at)?)));
        rows.collect()
    }

    /// All ways to ask, but that by stamp, which flushes.
    fn assert(&self, db: &Db, k: &Keyspace) {
        let mut stamps: Vec<SeqNo> =
            self.0.values().flat_map(|versions| versions.keys().copied()).collect();
        stamps.sort_unstable();
        stamps.dedup();
        for at in stamps {
            let past = db.snapshot_at(at).unwrap();
            let rows = past.iter(k).map(|entry| {
                let entry = entry.unwrap();
                (String::from_utf8(entry.key.to_vec()).unwrap(), entry.value.to_vec())
            });
            assert_eq!(rows.collect::<Vec<_>>(), self.rows(at), "as of {at}");
            let count = past.count::<&str>(k, ..).unwrap();
            assert_eq!(count, self.rows(at).len() as u64);
        }
        for (key, versions) in &self.0 {
            let newest_first = k.history(key, ..).unwrap().map(Result::unwrap);
            let mut found: Vec<_> =
                newest_first.map(|of| (of.seqno, of.value.map(|value| value.to_vec()))).collect();
            found.reverse();
            assert!(found.iter().map(|(at, value)| (at, value)).eq(versions), "{key}: {found:?}");
            let back = k.history_from_oldest(key, ..).unwrap().map(|of| of.unwrap().seqno);
            assert!(back.eq(versions.keys().copied()));
            for (at, value) in versions {
                assert_eq!(k.get_at(key, *at).unwrap().as_deref(), value.as_deref());
            }
        }
    }

    fn assert_by_stamp(&self, k: &Keyspace) {
        let mut expected = Vec::new();
        for (key, versions) in &self.0 {
            expected.extend(versions.iter().map(|(at, value)| (*at, key.clone(), value.clone())));
        }
        expected.sort();
        let found = k.versions_by_stamp(..).unwrap().map(|version| {
            let version = version.unwrap();
            let key = String::from_utf8(version.key.to_vec()).unwrap();
            (version.seqno, key, version.value.map(|value| value.to_vec()))
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

fn ingested(round: u32, step: usize) -> Vec<(String, Vec<u8>)> {
    let value = |number: u32| format!("{round}:{number}").repeat(1 + number as usize % 60);
    (0..120).step_by(step).map(|number| (key(number), value(number).into_bytes())).collect()
}

fn ingest(k: &Keyspace, model: &mut Model, round: u32, step: usize) -> SeqNo {
    let rows = ingested(round, step);
    let stamp = k.ingest(rows.clone()).unwrap().seqno;
    rows.into_iter().for_each(|(key, value)| model.note(key, stamp, Some(value)));
    stamp
}

/// Some writes on top of what there is.
fn write_on_top(k: &Keyspace, model: &mut Model, round: u32) {
    for number in (round % 5..130).step_by(17) {
        let key = key(number);
        let before = model.get(&key, SeqNo::MAX);
        match number % 3 {
            0 => {
                let at = k.merge(&key, "+more").unwrap();
                model.note(key, at, Some([before.unwrap_or_default(), b"+more".to_vec()].concat()));
            }
            1 if before.is_some() => {
                let at = k.delete(&key).unwrap();
                model.note(key, at, None);
            }
            _ => {
                let at = k.put(&key, format!("put {round}")).unwrap();
                model.note(key, at, Some(format!("put {round}").into_bytes()));
            }
        }
    }
}

#[test]
fn every_entry_of_an_ingest_is_a_version() {
    let storage = SimStorage::new(1);
    let mut db = builder(&storage).open("/db").unwrap();
    let mut k = db.create_keyspace("k", options()).unwrap();
    let mut model = Model::default();
    for round in 0..8 {
        write_on_top(&k, &mut model, round);
        let stamp = ingest(&k, &mut model, round, 1 + round as usize % 4);
        assert_eq!(db.snapshot().seqno(), stamp);
        write_on_top(&k, &mut model, round + 1);
        model.assert(&db, &k);
        match round % 4 {
            0 => db.compact().unwrap(),
            1 => model.assert_by_stamp(&k),
            2 => step_to_rest(&db),
            _ => {
                db.close().unwrap();
                db = builder(&storage).open("/db").unwrap();
                k = db.keyspace("k").unwrap();
            }
        }
        model.assert(&db, &k);
    }
    model.assert_by_stamp(&k);
    // Of the feed it is no commit, out of the log and out of versions.
    let feed = db.changes(SeqNo::ZERO, FeedOptions::new().keyspaces([&k])).unwrap();
    let commits = feed.map(|commit| commit.unwrap());
    let ingests = commits.filter(|commit| commit.changes.len() > 1).count();
    assert_eq!(ingests, 0, "a write has one change here, an ingest has many");
    assert_sound(&db);
}

/// Entries that the archive of the only keyspace has.
fn archived(db: &Db) -> u64 {
    let stats = db.stats();
    let archive = stats.keyspaces.iter().find(|of| of.name.contains("versions")).unwrap();
    archive.entries_estimate
}

/// A crash at every point of an ingest: it is there whole or not at all, in the present and in the
/// past, before it is archived and behind that, and whatever is written on top.
#[test]
fn an_ingest_that_a_crash_interrupts_is_there_whole_or_not_at_all() {
    let (mut unarchived, mut point) = (0, 0);
    loop {
        let storage = SimStorage::new(3);
        let open = |storage: &SimStorage| builder(storage).flush_slice_size(900).open("/db");
        let db = open(&storage).unwrap();
        let k = db.create_keyspace("k", options()).unwrap();
        let mut model = Model::default();
        write_on_top(&k, &mut model, 0);
        ingest(&k, &mut model, 1, 3);
        write_on_top(&k, &mut model, 2);
        db.sync().unwrap();
        storage.crash_at(storage.mutation_count() + point);
        let finished = k.ingest(ingested(5, 2));
        let crashed = match point % 3 {
            0 => storage.crash(CrashMode::KeepAll, point),
            _ => storage.crash(CrashMode::DropAll, point),
        };
        drop((db, k));
        let mut db = open(&crashed).unwrap();
        let mut k = db.keyspace("k").unwrap();
        let newest = k.get_entry(key(2)).unwrap().unwrap();
        let is_there = newest.value == ingested(5, 2)[1].1;
        assert!(is_there || finished.is_err(), "acknowledged and gone, point {point}");
        if is_there {
            let rows = ingested(5, 2).into_iter();
            rows.for_each(|(key, value)| model.note(key, newest.seqno, Some(value)));
            // Sixty by key, and as many by stamp.
            unarchived += u32::from(archived(&db) < 120 + 80);
        }
        model.assert(&db, &k);
        write_on_top(&k, &mut model, 7);
        model.assert(&db, &k);
        match point % 4 {
            0 => db.flush().unwrap(),
            1 => step_to_rest(&db),
            2 => {
                ingest(&k, &mut model, 9, 5);
            }
            _ => {
                db.sync().unwrap();
                let again = crashed.crash(CrashMode::KeepAll, point);
                drop((db, k));
                db = open(&again).unwrap();
                k = db.keyspace("k").unwrap();
            }
        }
        model.assert(&db, &k);
        model.assert_by_stamp(&k);
        model.assert(&db, &k);
        assert_sound(&db);
        point += 1;
        if !storage.is_crashed() {
            break;
        }
    }
    assert!(unarchived > 4, "{unarchived} of {point} found it in the present alone");
}

#[test]
fn an_ingest_that_finds_no_room_to_be_archived_is_archived_later() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let mut model = Model::default();
    write_on_top(&k, &mut model, 0);
    db.flush().unwrap();
    let mut seen = 0;
    for room in (16..400).step_by(16) {
        storage.set_capacity(storage.allocated_bytes() + (room << 10));
        let rows: Vec<_> = (0..2000).map(|number| (key(number), vec![room as u8; 90])).collect();
        let before = archived(&db);
        let finished = k.ingest(rows.clone());
        match finished {
            Ok(report) => {
                let note = |(key, value)| model.note(key, report.seqno, Some(value));
                rows.into_iter().for_each(note);
                seen += u32::from(archived(&db) == before);
            }
            Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{error}"),
        }
        let (some, at) = (key(17), db.snapshot().seqno());
        assert_eq!(k.get_at(&some, at).unwrap().map(|v| v.to_vec()), model.get(&some, at));
        let versions = k.history(&some, ..).unwrap().map(|of| of.unwrap().seqno);
        assert!(versions.eq(model.0[&some].keys().rev().copied()));
        if seen == 1 {
            break;
        }
    }
    assert_eq!(seen, 1, "there is room for the present alone at some point");
    assert!(matches!(db.flush(), Err(Error::DiskFull { .. })));
    storage.set_capacity(u64::MAX);
    db.flush().unwrap();
    k.put("later", "1").map(|at| model.note("later".into(), at, Some(b"1".to_vec()))).unwrap();
    model.assert_by_stamp(&k);
    assert_sound(&db);
}

#[test]
fn tables_are_ingested_as_versions() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let mut model = Model::default();
    write_on_top(&k, &mut model, 0);
    let mut writer = k.table_writer("/table").unwrap();
    ingested(4, 3).iter().for_each(|(key, value)| writer.put(key, value).unwrap());
    writer.finish().unwrap();
    let report = k.ingest_tables(["/table"], TableIngestOptions::copying()).unwrap();
    for (key, value) in ingested(4, 3) {
        model.note(key, report.seqno, Some(value));
    }
    model.assert(&db, &k);
    model.assert_by_stamp(&k);
    let mut writer = k.table_writer("/deletes").unwrap();
    writer.delete(key(1)).unwrap();
    writer.finish().unwrap();
    let refused = k.ingest_tables(["/deletes"], TableIngestOptions::copying());
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    let long = k.ingest([(vec![0; 40_000], "1")]);
    assert!(matches!(long, Err(Error::InvalidArgument { .. })), "{long:?}");
    model.assert(&db, &k);
    assert_sound(&db);
}

/// Ingests between the slices of a conversion, which must archive them before it switches.
#[test]
fn ingests_go_on_while_a_keyspace_is_converted() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).flush_slice_size(4 << 10).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let mut model = Model::default();
    ingest(&k, &mut model, 0, 1);
    let mut round = 1;
    let mut between = |k: &Keyspace, model: &mut Model| {
        round += 1;
        if round < 9 {
            ingest(k, model, round, 1 + round as usize % 7);
            write_on_top(k, model, round);
        }
        std::ops::ControlFlow::Continue(())
    };
    k.convert_while(options().interval_size(4096), |_| between(&k, &mut model)).unwrap();
    model.assert(&db, &k);
    model.assert_by_stamp(&k);
    let flex = KeyspaceOptions::flex().merge_operator("append");
    k.convert(Conversion::to(flex.clone()).losing_versions()).unwrap();
    let mut unversioned = Model::default();
    let began = k.convert_while(options(), |so_far| {
        if so_far.slices < 5 {
            ingest(&k, &mut unversioned, 20 + so_far.slices as u32, 2);
        }
        std::ops::ControlFlow::Continue(())
    });
    let began = began.unwrap().begins_at.unwrap();
    for (key, value) in unversioned.rows(SeqNo::MAX) {
        assert_eq!(k.get_at(&key, began).unwrap().as_deref(), Some(&value[..]));
    }
    assert_sound(&db);
}

/// Out of the log and out of versions, in one go and resumed, a feed tells every commit on both
/// sides of an ingest, and nothing of that.
#[test]
fn a_feed_goes_past_an_ingest() {
    let storage = SimStorage::new(1);
    let small = builder(&storage).wal_file_size(64 << 10).kept_log_size(0);
    let db = small.open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let other = db.keyspace_or_create("other").unwrap();
    let mut written = Vec::new();
    let put = |written: &mut Vec<(SeqNo, String)>, key: &str| {
        written.push((k.put(key, "1").unwrap(), key.to_owned()));
    };
    put(&mut written, "before");
    put(&mut written, "key00003");
    k.ingest(ingested(1, 3)).unwrap();
    put(&mut written, "between");
    put(&mut written, "key00006");
    k.ingest(ingested(2, 2)).unwrap();
    put(&mut written, "behind");
    for number in 0..300u32 {
        other.put(number.to_be_bytes(), [7; 1000]).unwrap();
    }
    db.flush().unwrap();
    put(&mut written, "in the log");
    let told = |since: SeqNo, count: usize| -> Vec<(SeqNo, String)> {
        let feed = db.changes(since, FeedOptions::new().keyspaces([&k])).unwrap();
        let told = feed.take(count).map(|commit| {
            let commit = commit.unwrap();
            assert_eq!(commit.changes.len(), 1);
            let ChangeKind::Put { key, .. } = &commit.changes[0].kind else { panic!() };
            (commit.seqno, String::from_utf8(key.to_vec()).unwrap())
        });
        told.collect()
    };
    assert_eq!(told(SeqNo::ZERO, usize::MAX), written);
    let (mut one_by_one, mut since) = (Vec::new(), SeqNo::ZERO);
    while let Some(next) = told(since, 1).pop() {
        since = next.0;
        one_by_one.push(next);
    }
    assert_eq!(one_by_one, written);
}

/// Whoever goes on from the last stamp that it was told misses nothing, while others write, ingest,
/// flush and clean.
#[test]
fn versions_are_followed_while_others_ingest() {
    const ROUNDS: u32 = 60;
    let storage = SimStorage::new(5);
    let builder = builder(&storage).background(Background::Threads).memtable_size(32 << 10);
    let db = builder.flush_slice_size(2 << 10).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let is_over = AtomicBool::new(false);
    let ingests = || {
        for round in 0..ROUNDS {
            let rows = (0..40).map(|number| (format!("m{number:03}"), format!("{round}")));
            k.ingest(rows).unwrap();
            if round % 8 == 0 {
                db.flush().unwrap();
            }
        }
        is_over.store(true, Ordering::Release);
    };
    let writes = |name: &str| {
        let mut number = 0u32;
        while !is_over.load(Ordering::Acquire) {
            let large = vec![number as u8; if number.is_multiple_of(7) { 400 } else { 20 }];
            match number % 3 {
                0 => k.put(format!("{name}{}", number % 50), large).unwrap(),
                1 => k.merge(format!("{name}{}", number % 9), "+").unwrap(),
                // In the range of the ingests.
                _ => k.put(format!("m{:03}", number % 40), large).unwrap(),
            };
            number += 1;
        }
    };
    let (mut followed, mut last) = (Vec::new(), SeqNo::ZERO);
    let mut go_on = || {
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        for version in k.versions_by_stamp(behind).unwrap() {
            let version = version.unwrap();
            last = version.seqno;
            followed.push((version.seqno, version.key, version.value));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(ingests);
        scope.spawn(|| writes("a"));
        scope.spawn(|| writes("z"));
        while !is_over.load(Ordering::Acquire) {
            go_on();
        }
    });
    go_on();
    let all = k.versions_by_stamp(..).unwrap().map(|version| {
        let version = version.unwrap();
        (version.seqno, version.key, version.value)
    });
    let all: Vec<_> = all.collect();
    assert!(all.len() > 40 * ROUNDS as usize);
    let missed = all.iter().zip(&followed).find(|(all, followed)| all != followed);
    assert!(missed.is_none() && all.len() == followed.len(), "{missed:?}");
    for (at, key, value) in all.iter().step_by(97) {
        assert_eq!(k.get_at(key, *at).unwrap(), *value);
    }
    db.vacuum().unwrap();
    assert_sound(&db);
}

/// With threads: who writes on while an ingest finds no room to be archived is told so, and not
/// left waiting, and nothing of what was acknowledged is lost.
#[test]
fn writers_are_told_of_an_ingest_that_finds_no_room_to_be_archived() {
    let storage = SimStorage::new(1);
    let open = || {
        let builder = builder(&storage).background(Background::Threads);
        builder.memtable_size(16 << 10).wal_file_size(64 << 10).open("/db").unwrap()
    };
    let db = open();
    let k = db.create_keyspace("k", options()).unwrap();
    k.put("a", "1").unwrap();
    db.flush().unwrap();
    let rows: Vec<_> = (0..4000).map(|number| (key(number), vec![7; 90])).collect();
    let mut room = 256 << 10;
    let ingested = loop {
        storage.set_capacity(storage.allocated_bytes() + room);
        let before = archived(&db);
        match k.ingest(rows.clone()) {
            Ok(report) if archived(&db) == before => break report.seqno,
            Ok(_) => panic!("there was room for the archive, too"),
            Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{error}"),
        }
        room += 32 << 10;
    };
    let mut written = Vec::new();
    let refused = loop {
        match k.put(key(9000 + written.len() as u32), [7; 100]) {
            Ok(stamp) => written.push(stamp),
            Err(error) => break error,
        }
        assert!(written.len() < 100_000, "nothing is flushed, and all is taken");
    };
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    storage.set_capacity(u64::MAX);
    db.flush().unwrap();
    k.put("later", "1").unwrap();
    for (number, (key, value)) in rows.iter().enumerate().step_by(371) {
        assert_eq!(k.get_at(key, ingested).unwrap().as_deref(), Some(&**value), "{number}");
        assert_eq!(k.history(key, ..).unwrap().count(), 1);
    }
    for (number, stamp) in written.iter().enumerate() {
        let told = k.history(key(9000 + number as u32), ..).unwrap().next().unwrap().unwrap();
        assert_eq!(told.seqno, *stamp);
    }
    assert_sound(&db);
}
