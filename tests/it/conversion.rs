//! Keyspaces that are converted while they are used.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lithe_sim::crash::{CrashRun, Diet, STATES};
use lithe_sim::ledger::Ledger;
use lithe_sim::parallel::run_cases;
use lithe_sim::random::Random;
use lithedb::base::ManualClock;
use lithedb::storage::{CrashMode, SimStorage, Storage};
use lithedb::{
    Background, Builder, Conversion, Db, Durability, Entry, Error, Keyspace, KeyspaceOptions,
    Snapshot, WriteBatch,
};

use crate::THREADS;
use crate::support::{PATH, assert_sound, rows, step_to_rest, tiny};

const START: u64 = 1_700_000_000_000;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The smallest of everything, of each structure, and of each once more with other options.
pub fn targets() -> [KeyspaceOptions; 6] {
    let lsm = KeyspaceOptions::lsm().table_size(8 << 10).block_size(512);
    let flex = KeyspaceOptions::flex().interval_size(512).segment_size(4096);
    let history = KeyspaceOptions::history().interval_size(1024).segment_size(4096);
    [
        flex.clone().value_separation(Some(200)),
        lsm.clone().value_separation(Some(100)),
        history.clone().value_separation(Some(300)),
        flex.interval_size(2048).delta_fan_in(2),
        lsm.block_size(2048).filter_bits(4).value_separation(None),
        history.interval_size(4096),
    ]
}

fn conversion_to(options: &KeyspaceOptions) -> Conversion {
    Conversion::to(options.clone()).losing_versions()
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn value(random: &mut Random) -> Vec<u8> {
    let len = random.below(400) as usize;
    vec![random.below(256) as u8; len]
}

/// A write, to the database and to the model.
fn write(random: &mut Random, (db, keyspace): (&Db, &Keyspace), model: &mut Rows) {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + random.below(12) {
        let number = random.below(400);
        match random.below(12) {
            0 => {
                let end = number + random.below(60);
                batch.delete_range(keyspace, key(number)..key(end));
                model.retain(|other, _| !(key(number)..key(end)).contains(other));
            }
            1..4 => {
                batch.delete(keyspace, key(number));
                model.remove(&key(number));
            }
            _ => {
                let value = value(random);
                batch.put(keyspace, key(number), &value);
                model.insert(key(number), value);
            }
        }
    }
    db.write(batch).unwrap();
}

pub fn rows_in(snapshot: &Snapshot, keyspace: &Keyspace) -> Rows {
    let entries = snapshot.iter(keyspace).map(|entry| entry.unwrap());
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

/// Something that happens beside a conversion.
fn act(random: &mut Random, (db, keyspace): (&Db, &Keyspace), model: &mut Rows) {
    for _ in 0..random.below(3) {
        match random.below(24) {
            0 => drop(db.step().unwrap()),
            1 => db.flush().unwrap(),
            2 if !keyspace.keeps_history() => {
                let first = random.below(400);
                let entries: Rows =
                    (0..random.below(30)).map(|n| (key(first + n), value(random))).collect();
                keyspace.ingest(&entries).unwrap();
                model.extend(entries);
            }
            3 => drop(db.vacuum().unwrap()),
            4 => keyspace.compact::<&[u8]>(..).unwrap(),
            5 => assert_eq!(keyspace.len().unwrap(), model.len() as u64),
            6 => assert!(db.check().unwrap().problems.is_empty()),
            _ => write(random, (db, keyspace), model),
        }
    }
}

#[test]
fn every_structure_becomes_every_other_while_it_is_used() {
    run_cases(THREADS, 24, |seed| {
        let mut random = Random::new(seed);
        let storage = SimStorage::new(seed);
        let open = || {
            let builder = tiny(&storage).flush_slice_size(512 << (seed % 4));
            builder.open(PATH).unwrap()
        };
        let mut db = open();
        let mut model = Rows::new();
        let first = &targets()[(seed % 6) as usize];
        db.create_keyspace("k", first.clone()).unwrap();
        for round in 0..8 {
            let keyspace = db.keyspace("k").unwrap();
            for _ in 0..random.below(60) {
                write(&mut random, (&db, &keyspace), &mut model);
            }
            let (before, frozen) = (db.snapshot(), model.clone());
            let mut iter = keyspace.iter();
            let mut seen: Rows = Rows::new();
            let target = &targets()[random.below(6) as usize];
            let cancel_at = if random.below(4) == 0 { random.below(12) } else { u64::MAX };
            let mut is_cancelled = false;
            let report = keyspace.convert_while(conversion_to(target), |so_far| {
                act(&mut random, (&db, &keyspace), &mut model);
                assert_eq!(rows(&keyspace), model, "{seed} {round} {so_far:?}");
                seen.extend(
                    iter.next()
                        .map(|entry| entry.unwrap())
                        .map(|entry| (entry.key.to_vec(), entry.value.to_vec())),
                );
                is_cancelled = so_far.slices >= cancel_at;
                if is_cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let report = report.unwrap();
            let info = db.keyspaces().pop().unwrap();
            assert_eq!(info.id, keyspace.id());
            assert_eq!(report.is_cancelled, is_cancelled);
            assert!(report.is_cancelled || info.options == *target);
            assert_eq!(rows(&keyspace), model, "{seed} {round} {report:?}");
            assert_eq!(keyspace.len().unwrap(), model.len() as u64);
            act(&mut random, (&db, &keyspace), &mut model);
            assert_eq!(rows(&keyspace), model);
            assert_eq!(rows_in(&before, &keyspace), frozen, "the snapshot shows what it showed");
            let rest = iter.map(|entry| entry.unwrap());
            seen.extend(rest.map(|entry| (entry.key.to_vec(), entry.value.to_vec())));
            assert_eq!(seen, frozen, "the iterator goes on");
            drop(before);
            if random.below(2) == 0 {
                step_to_rest(&db);
            }
            assert_sound(&db);
            if random.below(2) == 0 {
                db.close().unwrap();
                drop((keyspace, db));
                db = open();
                let keyspace = db.keyspace("k").unwrap();
                assert_eq!(rows(&keyspace), model);
                assert_sound(&db);
            }
        }
        true
    });
}

#[test]
fn after_a_crash_within_a_conversion_a_moment_that_had_to_survive_is_found() {
    let ledger = Arc::new(Ledger::new());
    run_cases(THREADS, 8, |seed| {
        let mut run = CrashRun::of_seed(seed + 1, 2);
        (run.diet, run.op_count, run.stride) = (Diet::Conversions, 30, 19);
        run.run(&ledger);
        true
    });
    ledger.assert_clean();
    assert!(ledger.counted(STATES) > 120, "{}", ledger.counted(STATES));
}

/// A database whose clock stands, in memory; nothing happens but what is asked for.
pub fn open_in(storage: &SimStorage, clock: &Arc<ManualClock>) -> Db {
    open_with_slices(storage, clock, 4 << 10)
}

fn open_with_slices(storage: &SimStorage, clock: &Arc<ManualClock>, bytes: u64) -> Db {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let builder = Builder::default().storage(storage).clock(Arc::clone(clock) as Arc<_>);
    let builder = builder.background(Background::Stepped).value_file_size(64 << 10);
    builder.flush_slice_size(bytes).open(PATH).unwrap()
}

pub fn opened() -> (SimStorage, Arc<ManualClock>, Db) {
    let (storage, clock) = (SimStorage::new(1), Arc::new(ManualClock::at_millis(START)));
    let db = open_in(&storage, &clock);
    (storage, clock, db)
}

/// Folders of stores.
fn folders(storage: &SimStorage) -> Vec<String> {
    let entries = storage.list_dir(&Path::new(PATH).join("keyspaces")).unwrap();
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

pub fn fill(keyspace: &Keyspace, count: u64, len: usize) -> Rows {
    let rows: Rows = (0..count).map(|n| (key(n), vec![n as u8; len])).collect();
    for (key, value) in &rows {
        keyspace.put_with(key, value, Durability::Buffered).unwrap();
    }
    rows
}

#[test]
fn what_comes_to_nothing_leaves_nothing() {
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let (storage, clock, db) = opened();
        let keyspace = db.create_keyspace("k", targets()[from].clone()).unwrap();
        let model = fill(&keyspace, 3000, 20);
        db.flush().unwrap();
        let before = folders(&storage);
        let mut most = 0;
        let report = keyspace.convert_while(conversion_to(&targets()[to]), |so_far| {
            most = most.max(folders(&storage).len());
            assert!(so_far.slices < 2 || so_far.entries > 0 && so_far.entries_left > 0);
            let is_half = so_far.entries > 1500;
            if is_half { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let report = report.unwrap();
        assert!(report.is_cancelled && report.bytes_written > 0, "{report:?}");
        assert!(most > before.len());
        assert_eq!(folders(&storage), before, "at once");
        assert_eq!(rows(&keyspace), model);
        assert_eq!(db.keyspaces()[0].options, targets()[from]);
        assert_sound(&db);
        // Without a farewell: what was made is found, and removed.
        let _ = keyspace.convert_while(conversion_to(&targets()[to]), |so_far| {
            if so_far.entries > 1500 {
                let left = storage.crash(CrashMode::RandomSectors, so_far.slices);
                let crashed = open_in(&left, &clock);
                assert!(crashed.recovery().orphans_removed > 0);
                assert_eq!(folders(&left), before);
                assert_eq!(rows(&crashed.keyspace("k").unwrap()), model);
                assert_sound(&crashed);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let report = keyspace.convert(conversion_to(&targets()[to])).unwrap();
        assert_eq!((report.entries, report.entries_left, report.is_cancelled), (3000, 0, false));
        assert_eq!(rows(&keyspace), model);
        assert_eq!(folders(&storage).len(), if to == 2 { 2 } else { 1 }, "the old one goes");
    }
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        let (storage, _, db) = opened();
        let keyspace = db.create_keyspace("k", targets()[from].clone()).unwrap();
        let model = fill(&keyspace, 4000, 60);
        db.flush().unwrap();
        let before = folders(&storage);
        let mut refusals = 0;
        for room in [1, 10 << 10, 100 << 10, 200 << 10] {
            storage.set_capacity(storage.allocated_bytes() + room);
            match keyspace.convert(conversion_to(&targets()[to])) {
                Err(Error::DiskFull { .. }) => refusals += 1,
                other => panic!("{room}: {other:?}"),
            }
            storage.set_capacity(u64::MAX);
            keyspace.put(key(1), model[&key(1)].clone()).unwrap();
            assert_eq!(rows(&keyspace), model);
            assert_eq!(db.keyspaces()[0].options, targets()[from]);
            step_to_rest(&db);
            assert_eq!(folders(&storage), before);
            assert_sound(&db);
        }
        assert_eq!(refusals, 4);
        keyspace.convert(conversion_to(&targets()[to])).unwrap();
        assert_eq!(rows(&keyspace), model);
        assert_sound(&db);
    }
}

#[test]
fn large_values_stay_where_they_are_and_are_cleaned_meanwhile() {
    for (from, to) in [(0, 1), (1, 0), (0, 2)] {
        let (_, _, db) = opened();
        let keyspace = db.create_keyspace("k", targets()[from].clone()).unwrap();
        let mut model = fill(&keyspace, 600, 2000);
        db.flush().unwrap();
        let written = || db.stats().value_bytes_written;
        let before = written();
        keyspace.convert(conversion_to(&targets()[to])).unwrap();
        assert_eq!(written(), before, "no value is written again");
        assert_eq!(rows(&keyspace), model);
        // Values that are overwritten while it goes on, and files that are emptied.
        let mut slices = 0;
        keyspace
            .convert_while(conversion_to(&targets()[from]), |_| {
                slices += 1;
                for n in (slices..600).step_by(7) {
                    let value = vec![slices as u8; 1500];
                    keyspace.put_with(key(n), &value, Durability::Buffered).unwrap();
                    model.insert(key(n), value);
                }
                db.vacuum().unwrap();
                assert_eq!(rows(&keyspace), model);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(slices > 3, "{slices}");
        assert_eq!(rows(&keyspace), model);
        db.vacuum().unwrap();
        let live: u64 = db.stats().value_files.iter().map(|file| file.bytes).sum();
        assert!(live < 3 * 600 * 2000, "{live}");
        assert_eq!(rows(&keyspace), model);
        assert_sound(&db);
    }
}

#[test]
fn stamps_expiry_and_operands_are_copied_as_they_are() {
    for (from, to) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let (storage, clock, db) = opened();
        let ttl = |index: usize| targets()[index].clone().ttl(Duration::from_secs(100));
        let sessions = db.create_keyspace("sessions", ttl(from)).unwrap();
        for n in 0..500 {
            let lives = Duration::from_millis(1 + n * 10);
            sessions.put_with_ttl(key(n), "x", lives).unwrap();
            sessions.put(key(1000 + n), "y").unwrap();
        }
        let counting = |index: usize| targets()[index].clone().merge_operator("counter");
        let counters = db.create_keyspace("counters", counting(from)).unwrap();
        let add = |counters: &Keyspace, n: u64| {
            counters.merge_with(key(n), 1u64.to_le_bytes(), Durability::Buffered).unwrap();
        };
        (0..1500).for_each(|n| add(&counters, n % 500));
        db.flush().unwrap();
        (0..500).for_each(|n| add(&counters, n));
        let entries = |keyspace: &Keyspace| -> Vec<Entry> {
            keyspace.iter().map(|entry| entry.unwrap()).collect()
        };
        let before = entries(&sessions);
        sessions.convert(ttl(to)).unwrap();
        assert_eq!(entries(&sessions), before);
        clock.advance(Duration::from_millis(2500));
        assert_eq!(sessions.len().unwrap(), 750);
        let mut added = 4;
        let report = counters.convert_while(counting(to), |so_far| {
            if added < 12 {
                (0..500).for_each(|n| add(&counters, n));
                added += 1;
            }
            match so_far.slices % 3 {
                0 => db.flush().unwrap(),
                _ => drop(db.step().unwrap()),
            }
            ControlFlow::Continue(())
        });
        assert!(report.unwrap().slices > 3 && added > 6, "{added}");
        let check = |counters: &Keyspace| {
            for n in 0..500 {
                let found = counters.get(key(n)).unwrap().unwrap();
                assert_eq!(*found, u64::to_le_bytes(added), "{n}");
            }
        };
        check(&counters);
        assert_sound(&db);
        db.close().unwrap();
        drop((sessions, counters, db));
        let db = open_in(&storage, &clock);
        check(&db.keyspace("counters").unwrap());
        assert_eq!(db.keyspace("sessions").unwrap().len().unwrap(), 750);
        assert_sound(&db);
    }
}

#[test]
fn the_past_begins_with_the_conversion() {
    let keeping = [
        KeyspaceOptions::history(),
        KeyspaceOptions::history().keep_for(Duration::from_secs(3600)),
        KeyspaceOptions::history().keep_versions(3),
    ];
    for options in keeping {
        let (storage, clock, db) = opened();
        let k = db.keyspace_or_create("k").unwrap();
        let old = k.put("old", "1").unwrap();
        k.put("gone", "1").unwrap();
        k.put("short", "1").unwrap();
        k.put_with_ttl("short", "2", Duration::from_millis(500)).unwrap();
        clock.advance(Duration::from_secs(1));
        k.put("old", "2").unwrap();
        let before = k.delete("gone").unwrap();
        db.flush().unwrap();
        k.put("fresh", "1").unwrap();
        assert_eq!(k.kept_from(), None);
        let report = k.convert(options.clone()).unwrap();
        let began = report.begins_at.unwrap();
        assert!(began > before && k.keeps_history());
        assert_eq!(db.snapshot().seqno(), began);
        let check = |db: &Db, k: &Keyspace| {
            for moment in [old, before] {
                let refused = k.get_at("old", moment);
                assert!(matches!(refused, Err(Error::BeyondRetention { .. })), "{refused:?}");
                let past = db.snapshot_at(moment).unwrap();
                let refused = past.iter(k).next().unwrap();
                assert!(matches!(refused, Err(Error::BeyondRetention { .. })), "{refused:?}");
            }
            assert_eq!(k.get_at("old", began).unwrap().as_deref(), Some(&b"2"[..]));
            assert_eq!(k.get_at("gone", began).unwrap(), None);
            assert_eq!(k.get_at("short", began).unwrap(), None);
            assert_eq!(k.get_at("fresh", began).unwrap().as_deref(), Some(&b"1"[..]));
            let past = db.snapshot_at(began).unwrap();
            assert_eq!(rows_in(&past, k).len(), 2);
        };
        check(&db, &k);
        let later = k.delete("fresh").unwrap();
        let last = k.put("fresh", "2").unwrap();
        db.flush().unwrap();
        check(&db, &k);
        assert_eq!(k.get_at("fresh", later).unwrap(), None);
        let told = k.history("fresh", ..).unwrap().map(|version| version.unwrap().value);
        assert_eq!(told.filter(Option::is_none).count(), 1);
        if options.keep_versions.is_none() {
            assert_eq!(k.kept_from(), Some(began));
            let stamps = k.versions_by_stamp(began..).unwrap();
            let stamps: Vec<_> = stamps.map(|version| version.unwrap().seqno).collect();
            assert_eq!(stamps, [later, last]);
            assert!(k.versions_by_stamp(old..).is_err());
        }
        db.close().unwrap();
        drop((k, db));
        let db = open_in(&storage, &clock);
        let k = db.keyspace("k").unwrap();
        check(&db, &k);
        // Other options leave the past as it is.
        k.convert(options.clone().interval_size(4096)).unwrap();
        check(&db, &k);
        assert_eq!(k.get_at("fresh", later).unwrap(), None);
        let refused = k.convert(KeyspaceOptions::lsm());
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        let refused = k.convert(options.keep_for(Duration::from_secs(7)));
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
        let past = db.snapshot_at(later).unwrap();
        k.convert(Conversion::to(KeyspaceOptions::lsm()).losing_versions()).unwrap();
        assert_eq!(rows_in(&past, &k), Rows::from([(b"old".to_vec(), b"2".to_vec())]));
        assert!(!k.keeps_history() && k.get_at("old", began).is_err());
        assert_sound(&db);
    }
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let (_, _, db) = opened();
    let k = db.create_keyspace("k", KeyspaceOptions::flex().merge_operator("append")).unwrap();
    let refused = |k: &Keyspace, options: KeyspaceOptions, why: &str| {
        let error = k.convert(options).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&k, KeyspaceOptions::lsm(), "merge operator");
    refused(&k, KeyspaceOptions::flex().interval_size(1), "interval_size");
    let long = db.keyspace_or_create("long").unwrap();
    let too_long = vec![7; lithedb::KEY_LEN_MAX];
    long.put(&too_long, "x").unwrap();
    refused(&long, KeyspaceOptions::history(), "where versions are kept");
    long.put(&too_long, "y").unwrap(); // It may still have them.
    long.delete(&too_long).unwrap();
    // A batch of before, that comes behind it.
    let mut batch = WriteBatch::new();
    batch.put(&long, &too_long, "x");
    let mut inner = None;
    long.convert_while(KeyspaceOptions::history(), |_| {
        inner = inner.take().or_else(|| Some(long.convert(KeyspaceOptions::lsm())));
        let put = long.put(&too_long, "x");
        assert!(matches!(put, Err(Error::InvalidArgument { .. })), "{put:?}");
        ControlFlow::Continue(())
    })
    .unwrap();
    let inner = inner.unwrap().unwrap_err().to_string();
    assert!(inner.contains("being converted"), "{inner}");
    let late = db.write(batch);
    assert!(matches!(late, Err(Error::InvalidArgument { .. })), "{late:?}");
    db.flush().unwrap();
    db.drop_keyspace("long").unwrap();
    assert!(matches!(long.convert(KeyspaceOptions::lsm()), Err(Error::KeyspaceNotFound { .. })));
    assert_sound(&db);
}

#[test]
fn operands_that_are_copied_again_count_once() {
    let (storage, clock) = (SimStorage::new(1), Arc::new(ManualClock::at_millis(START)));
    // Larger than what a walk merges at first: behind that it hands out blocks as they are.
    let db = open_with_slices(&storage, &clock, 32 << 10);
    let one = 1u64.to_le_bytes();
    let from = targets()[1].clone().merge_operator("counter");
    let counters = db.create_keyspace("counters", from).unwrap();
    for n in 0..6000 {
        counters.merge_with(key(n), one, Durability::Buffered).unwrap();
    }
    db.flush().unwrap(); // One run: its operands are on nothing.
    let to = targets()[0].clone().interval_size(4096).merge_operator("counter");
    let mut ingests = 0;
    counters
        .convert_while(to, |so_far| {
            if ingests < 3 && so_far.entries > 3000 {
                // All that lies between the keys of an ingest is copied again, operands too.
                ingests += 1;
                counters.ingest([(key(10), one), (key(2500 + ingests), one)]).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(ingests, 3);
    let found = rows(&counters);
    let wrong: Vec<_> = found.iter().filter(|(_, value)| value[..] != one).collect();
    assert!(wrong.is_empty(), "{} are wrong: {:?}", wrong.len(), wrong.first());
    assert_eq!(found.len(), 6000);
    assert_sound(&db);
}

/// What is merged into a key that is not copied yet comes to the archive with the copy, and with it
/// what is behind it. If that deletes the key, nothing is copied: the archive must not go on with
/// what it had of the key before.
#[test]
fn what_goes_before_it_is_copied_has_no_past_behind_the_conversion() {
    let (storage, clock) = (SimStorage::new(1), Arc::new(ManualClock::at_millis(START)));
    let db = open_with_slices(&storage, &clock, 4 << 10);
    let one = 1u64.to_le_bytes();
    for from in [targets()[0].clone(), targets()[1].clone()] {
        let counters = db.create_keyspace("counters", from.merge_operator("counter")).unwrap();
        for n in 0..600 {
            counters.put_with(key(n), one, Durability::Buffered).unwrap();
        }
        let to = targets()[2].clone().merge_operator("counter");
        let mut is_done = false;
        let mut goes_on = |so_far: &lithedb::ConversionReport| {
            if is_done || so_far.entries == 0 {
                return ControlFlow::Continue(());
            }
            is_done = true;
            counters.ingest([(key(580), one), (key(589), one)]).unwrap();
            let (merged, ranged, ingested) = (key(599), key(598), key(585));
            for known in [&merged, &ranged, &ingested] {
                counters.put(known, one).unwrap();
            }
            db.flush().unwrap(); // The archive has these, in front of the copy.
            for known in [&merged, &ranged, &ingested] {
                counters.merge(known, one).unwrap();
            }
            counters.delete(&merged).unwrap();
            counters.delete(&ingested).unwrap();
            counters.delete_range(ranged.clone()..merged.clone()).unwrap();
            db.flush().unwrap();
            ControlFlow::Continue(())
        };
        let report = counters.convert_while(to, &mut goes_on).unwrap();
        assert!(is_done && rows(&counters).len() == 597);
        let past = db.snapshot_at(report.begins_at.unwrap()).unwrap();
        assert_eq!(rows_in(&past, &counters), rows(&counters));
        assert_sound(&db);
        db.drop_keyspace("counters").unwrap();
    }
}

#[test]
fn what_a_snapshot_shows_stays_behind_several_conversions() {
    let (storage, _, db) = opened();
    let k = db.create_keyspace("k", targets()[2].clone()).unwrap();
    let model = fill(&k, 500, 50);
    db.flush().unwrap();
    let past = db.snapshot_at(db.snapshot().seqno()).unwrap();
    fill(&k, 500, 60);
    db.flush().unwrap();
    // With its archive, which goes with the second one: the snapshot has what it was before.
    k.convert(targets()[5].clone()).unwrap();
    k.convert(conversion_to(&targets()[0])).unwrap();
    step_to_rest(&db);
    assert_eq!(folders(&storage).len(), 3, "the first store, its archive, and what there is now");
    assert_eq!(rows_in(&past, &k), model);
    drop(past);
    step_to_rest(&db);
    assert_eq!(folders(&storage).len(), 1);
    assert_sound(&db);
}

#[test]
fn keys_are_limited_to_what_archives_take_however_a_batch_was_made() {
    let (_, _, db) = opened();
    let k = db.keyspace_or_create("k").unwrap();
    let model = fill(&k, 100, 20);
    let mut batch = WriteBatch::new();
    let report = k.convert_while(KeyspaceOptions::history(), |_| {
        batch.put(&k, "short", "x");
        ControlFlow::Break(())
    });
    assert!(report.unwrap().is_cancelled);
    // Begun while they were limited, gone on with when they were not.
    batch.put(&k, vec![7; lithedb::KEY_LEN_MAX], "x");
    let mut batch = Some(batch);
    k.convert_while(KeyspaceOptions::history(), |_| {
        if let Some(batch) = batch.take() {
            let late = db.write(batch);
            assert!(matches!(late, Err(Error::InvalidArgument { .. })), "{late:?}");
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(batch.is_none() && k.keeps_history());
    db.flush().unwrap();
    assert_eq!(rows(&k), model);
    assert_sound(&db);
}

#[test]
fn what_writers_wait_for_is_flushed_in_between() {
    let (_, _, db) = opened();
    let with_memtables = |options: &KeyspaceOptions| options.clone().memtable_size(32 << 10);
    let k = db.create_keyspace("k", with_memtables(&targets()[0])).unwrap();
    let mut model = fill(&k, 3000, 20);
    db.flush().unwrap();
    let sealed = || db.stats().keyspaces.iter().find(|of| of.name == "k").unwrap().sealed_memtables;
    let (mut is_written, mut flushed_at) = (false, None);
    // Nobody steps: all that is done is what the conversion does.
    let report = k.convert_while(with_memtables(&targets()[1]), |so_far| {
        if !is_written && so_far.entries > 500 {
            is_written = true;
            let mut batch = WriteBatch::new();
            for n in 0..600 {
                batch.put(&k, key(n), [9u8; 60]);
                model.insert(key(n), vec![9; 60]);
            }
            db.write_with(batch, Durability::Buffered).unwrap();
            assert_eq!(sealed(), 1);
        } else if is_written && flushed_at.is_none() && sealed() == 0 {
            flushed_at = Some(so_far.entries);
        }
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(flushed_at.is_some_and(|at| at < report.entries), "{flushed_at:?} of {report:?}");
    assert_eq!(rows(&k), model);
    assert_sound(&db);
}

#[test]
fn keyspaces_are_renamed_and_dropped_and_closed_meanwhile() {
    let (storage, clock, db) = opened();
    let k = db.keyspace_or_create("k").unwrap();
    let model = fill(&k, 2000, 20);
    let mut names = ["a", "b", "c"].into_iter();
    k.convert_while(KeyspaceOptions::lsm(), |_| {
        if let Some(name) = names.next() {
            db.rename_keyspace(&k.name(), name).unwrap();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((k.name().as_str(), db.keyspaces()[0].structure), ("c", "lsm"));
    assert_eq!(rows(&k), model);
    // An ingest of before cannot be finished.
    let mut ingest = k.begin_ingest().unwrap();
    ingest.add("x", "y").unwrap();
    k.convert(KeyspaceOptions::flex()).unwrap();
    assert!(matches!(ingest.finish(), Err(Error::Conflict)));
    k.ingest([("x", "y")]).unwrap();
    k.delete("x").unwrap();
    // Transactions go on.
    let mut transaction = db.begin_update();
    assert!(transaction.get(&k, key(1)).unwrap().is_some());
    transaction.put(&k, key(2), "changed").unwrap();
    k.convert(KeyspaceOptions::lsm()).unwrap();
    transaction.commit().unwrap();
    assert_eq!(k.get(key(2)).unwrap().as_deref(), Some(&b"changed"[..]));
    let other = db.keyspace_or_create("other").unwrap();
    fill(&other, 2000, 20);
    let dropped = other.convert_while(KeyspaceOptions::history(), |so_far| {
        if so_far.entries > 500 && db.keyspaces().len() == 2 {
            db.drop_keyspace("other").unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(dropped, Err(Error::KeyspaceNotFound { .. })), "{dropped:?}");
    drop(other);
    step_to_rest(&db);
    assert_eq!(folders(&storage).len(), 1);
    assert_sound(&db);
    let closed = k.convert_while(KeyspaceOptions::flex(), |so_far| {
        if so_far.entries > 500 {
            db.close().unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    drop((k, db));
    let db = open_in(&storage, &clock);
    assert_eq!(folders(&storage).len(), 1);
    assert_eq!(rows(&db.keyspace("c").unwrap()).len(), 2000);
    assert_sound(&db);
}

#[test]
fn threads_write_and_read_while_structures_change() {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
    let builder = Builder::default().storage(storage).memory_budget(4 << 20);
    let db = builder.open(PATH).unwrap();
    let k = db.create_keyspace("k", targets()[0].clone()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (k, is_over) = (&k, &is_over);
                scope.spawn(move || {
                    let mut rounds = 0u64;
                    while !is_over.load(Ordering::Relaxed) || rounds < 5 {
                        rounds += 1;
                        for n in (writer..2000).step_by(2) {
                            let value = rounds.to_le_bytes().repeat(5);
                            k.put_with(key(n), value, Durability::Buffered).unwrap();
                        }
                        let found = k.get(key(writer)).unwrap().unwrap();
                        assert_eq!(found[..8], rounds.to_le_bytes());
                    }
                    rounds
                })
            })
            .collect();
        for round in 0..12 {
            k.convert(conversion_to(&targets()[round % 6])).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        for (writer, rounds) in writers.into_iter().enumerate() {
            let rounds = rounds.join().unwrap();
            for n in (writer as u64..2000).step_by(2) {
                assert_eq!(k.get(key(n)).unwrap().unwrap()[..8], rounds.to_le_bytes());
            }
        }
    });
    assert_eq!(k.len().unwrap(), 2000);
    assert_sound(&db);
    db.close().unwrap();
}
