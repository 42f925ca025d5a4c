//! Merges into keyspaces that keep their versions: each is a version, with the value that it made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lithedb::storage::{CrashMode, SimStorage, Storage};
use lithedb::{
    Background, Builder, ChangeKind, Db, Error, FeedOptions, Keyspace, KeyspaceOptions, MergeError,
    MergeOperator, Previous, SeqNo, WriteBatch,
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

fn options(operator: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::history().interval_size(1024).segment_size(16 << 10);
    options.merge_operator(operator).value_separation(Some(300))
}

/// Appends, but for "bad".
#[derive(Debug)]
struct Picky;

impl MergeOperator for Picky {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        if operand == b"bad" {
            return Err("that one is bad".into());
        }
        Ok([existing.unwrap_or_default(), operand.to_vec()].concat())
    }
}

/// Versions of a key, the oldest first: stamp, and value.
type Past = Vec<(SeqNo, Option<Vec<u8>>)>;

/// What `key` was is told alike by every way to ask.
fn assert_past(k: &Keyspace, key: &str, past: &Past) {
    let told = |versions: lithedb::Versions| -> Past {
        let versions = versions.map(Result::unwrap);
        versions.map(|of| (of.seqno, of.value.map(|value| value.to_vec()))).collect()
    };
    assert_eq!(told(k.history_from_oldest(key, ..).unwrap()), *past);
    let mut newest_first = told(k.history(key, ..).unwrap());
    newest_first.reverse();
    assert_eq!(newest_first, *past);
    for (at, value) in past {
        assert_eq!(k.get_at(key, *at).unwrap().as_deref(), value.as_deref());
        let entry = k.get_entry_at(key, *at).unwrap();
        assert_eq!(entry.map(|entry| entry.seqno), value.as_ref().map(|_| *at));
    }
}

fn assert_by_stamp(k: &Keyspace, key: &str, past: &Past) {
    let by_stamp = k.versions_by_stamp(..).unwrap().map(Result::unwrap);
    let of_key = by_stamp.filter(|version| &*version.key == key.as_bytes());
    let found: Past = of_key.map(|of| (of.seqno, of.value.map(|v| v.to_vec()))).collect();
    assert_eq!(found, *past);
}

#[test]
fn every_merge_is_a_version_wherever_it_lies() {
    let mut storage = SimStorage::new(1);
    let mut db = builder(&storage).open("/db").unwrap();
    let mut k = db.create_keyspace("k", options("append")).unwrap();
    let mut past = Past::new();
    let mut value: Option<Vec<u8>> = None;
    for round in 0..120u8 {
        let operand = vec![b'a' + round % 26; usize::from(round % 9) * 4];
        let stamp = match round % 20 {
            7 => k.delete("key").unwrap(),
            11 => k.put("key", vec![round; 350]).unwrap(),
            13 => {
                let mut batch = WriteBatch::new();
                batch.delete_range(&k, "a".."z");
                batch.merge(&k, "key", &operand);
                db.write(batch).unwrap()
            }
            15 => {
                let mut batch = WriteBatch::new();
                batch.put(&k, "key", vec![b'!'; 400]);
                batch.merge(&k, "key", &operand);
                batch.merge(&k, "key", "?");
                db.write(batch).unwrap()
            }
            _ => k.merge("key", &operand).unwrap(),
        };
        value = match round % 20 {
            7 => None,
            11 => Some(vec![round; 350]),
            13 => Some(operand),
            15 => Some([vec![b'!'; 400], operand, b"?".to_vec()].concat()),
            _ => Some([value.unwrap_or_default(), operand].concat()),
        };
        past.push((stamp, value.clone()));
        match round % 10 {
            3 => db.flush().unwrap(),
            4 => step_to_rest(&db),
            5 => db.compact().unwrap(),
            6 => assert_past(&k, "key", &past),
            8 => {
                db.sync().unwrap();
                storage = storage.crash(CrashMode::KeepAll, u64::from(round));
                db = builder(&storage).open("/db").unwrap();
                k = db.keyspace("k").unwrap();
                assert_past(&k, "key", &past);
            }
            9 => drop(db.vacuum().unwrap()),
            _ => {}
        }
    }
    assert_past(&k, "key", &past);
    assert_by_stamp(&k, "key", &past);
    assert_sound(&db);
}

/// A crash at every point of a flush, and what is read then, before and behind the next flush.
#[test]
fn a_flush_that_a_crash_interrupts_makes_each_version_once() {
    for point in 0.. {
        let storage = SimStorage::new(7);
        let open = |storage: &SimStorage| builder(storage).flush_slice_size(600).open("/db");
        let db = open(&storage).unwrap();
        let k = db.create_keyspace("k", options("append").keep_versions(2)).unwrap();
        let key = |number: u32| format!("key{number:03}");
        for number in 0..60 {
            k.merge(key(number), "a").unwrap();
        }
        db.flush().unwrap();
        let mut stamps = Vec::new();
        for operand in ["b", "cc"] {
            for number in 0..60 {
                stamps.push((number, k.merge(key(number), operand).unwrap()));
            }
        }
        db.sync().unwrap();
        storage.crash_at(storage.mutation_count() + point);
        let flushed = db.flush();
        let crashed = storage.crash(CrashMode::DropAll, point);
        drop((db, k));
        let db = open(&crashed).unwrap();
        let k = db.keyspace("k").unwrap();
        for round in 0..3 {
            for (position, (number, stamp)) in stamps.iter().enumerate() {
                let expected = if position < 60 { "ab" } else { "abcc" };
                let found = k.get_at(key(*number), *stamp).unwrap();
                assert_eq!(found.as_deref(), Some(expected.as_bytes()), "{point} {round}");
            }
            match round {
                0 => db.compact().unwrap(),
                _ => db.flush().unwrap(),
            }
        }
        assert_eq!(k.get(key(5)).unwrap().as_deref(), Some(&b"abcc"[..]));
        assert_sound(&db);
        if flushed.is_ok() {
            break;
        }
    }
}

#[test]
fn what_cannot_be_merged_stays_and_the_rest_goes_on() {
    let storage = SimStorage::new(1);
    let known = |storage: &SimStorage| builder(storage).merge_operator("picky", Picky).open("/db");
    let db = known(&storage).unwrap();
    let k = db.create_keyspace("k", options("picky")).unwrap();
    let good = k.merge("key", "good").unwrap();
    let bad = k.merge("key", "bad").unwrap();
    let behind = k.merge("key", "x").unwrap();
    let put = k.put("key", "new").unwrap();
    let last = k.merge("key", "er").unwrap();
    let check = |db: &Db| {
        let k = db.keyspace("k").unwrap();
        assert_eq!(k.get_at("key", good).unwrap().as_deref(), Some(&b"good"[..]));
        for at in [bad, behind] {
            let refused = k.get_at("key", at);
            assert!(matches!(refused, Err(Error::MergeFailed { .. })), "{refused:?}");
            let shown = db.snapshot_at(at).unwrap();
            assert!(shown.contains(&k, "key").unwrap());
            assert!(matches!(shown.iter(&k).next(), Some(Err(Error::MergeFailed { .. }))));
        }
        assert_eq!(k.get_at("key", put).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(k.get_at("key", last).unwrap().as_deref(), Some(&b"newer"[..]));
        let newest = k.history("key", put..).unwrap().map(Result::unwrap).count();
        assert_eq!(newest, 2);
        assert!(matches!(k.history("key", ..).unwrap().nth(2), Some(Err(_))));
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    let open = k.merge("other", "1").unwrap();
    db.sync().unwrap();
    let storage = storage.crash(CrashMode::KeepAll, 1);
    drop((db, k));
    // Without the operator, nothing is lost either.
    let db = builder(&storage).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    for _ in 0..2 {
        let missing = k.get_at("other", open);
        assert!(matches!(missing, Err(Error::MergeOperatorMissing { .. })), "{missing:?}");
        assert_eq!(k.get_at("key", last).unwrap().as_deref(), Some(&b"newer"[..]), "it was made");
        db.flush().unwrap();
    }
    db.close().unwrap();
    drop((db, k));
    let db = known(&storage).unwrap();
    check(&db);
    let k = db.keyspace("k").unwrap();
    assert_eq!(k.get_at("other", open).unwrap().as_deref(), Some(&b"1"[..]));
    assert_sound(&db);
}

/// Values of versions would take the square of what is appended; operands that cannot be merged
/// would too, if each version had all in front of it.
#[test]
fn long_chains_take_some_times_what_was_merged() {
    const COUNT: u32 = 20_000;
    for fails in [false, true] {
        let storage = SimStorage::new(1);
        let db = builder(&storage).merge_operator("picky", Picky).open("/db").unwrap();
        let k = db.create_keyspace("k", options("picky")).unwrap();
        if fails {
            k.merge("key", "bad").unwrap();
        }
        let mut stamps = Vec::new();
        for number in 0..COUNT {
            stamps.push(k.merge("key", format!("{number:08}")).unwrap());
            if number % 5000 == 0 {
                db.flush().unwrap();
            }
        }
        db.flush().unwrap();
        let disk = storage.allocated_bytes();
        assert!(disk < 40 << 20, "{disk} bytes for {COUNT} operands of 8");
        for number in (0..COUNT).step_by(997) {
            let found = k.get_at("key", stamps[number as usize]);
            match fails {
                true => assert!(matches!(found, Err(Error::MergeFailed { .. })), "{found:?}"),
                false => {
                    let value = found.unwrap().unwrap();
                    assert_eq!(value.len(), 8 * (number as usize + 1));
                    assert!(value.ends_with(format!("{number:08}").as_bytes()));
                }
            }
        }
        assert_eq!(db.stats().read_only, None);
    }
}

#[test]
fn a_feed_tells_what_a_merge_found() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).merge_operator("picky", Picky).open("/db").unwrap();
    let k = db.create_keyspace("k", options("picky")).unwrap();
    k.merge("a", "1").unwrap();
    k.merge("a", "2").unwrap();
    k.merge("a", "bad").unwrap();
    k.merge("a", "3").unwrap();
    let options = FeedOptions::new().keyspaces([&k]).previous_values(true);
    let feed = db.changes(SeqNo::ZERO, options).unwrap();
    let mut told = Vec::new();
    for commit in feed {
        let change = commit.unwrap().changes.remove(0);
        let ChangeKind::Merge { operand, .. } = change.kind else { panic!("{:?}", change.kind) };
        told.push((operand.to_vec(), change.previous));
    }
    let value = |bytes: &[u8]| Previous::Value(bytes.into());
    let expected = [
        (b"1".to_vec(), Previous::Absent),
        (b"2".to_vec(), value(b"1")),
        (b"bad".to_vec(), value(b"12")),
        (b"3".to_vec(), Previous::Unknown),
    ];
    assert_eq!(told, expected);
}

/// Operands that come while a keyspace is converted, of keys that are copied and of others.
#[test]
fn merges_go_on_while_a_keyspace_comes_to_keep_versions() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).memtable_size(16 << 10).open("/db").unwrap();
    let flex = KeyspaceOptions::flex().interval_size(1024).segment_size(16 << 10);
    let k = db.create_keyspace("k", flex.merge_operator("append")).unwrap();
    let key = |number: u32| format!("key{number:05}");
    let mut values = vec![Vec::new(); 3000];
    let merge = |values: &mut Vec<Vec<u8>>, number: usize, operand: &[u8]| {
        values[number].extend(operand);
        k.merge(key(number as u32), operand).unwrap()
    };
    for number in 0..3000 {
        merge(&mut values, number, b"first");
    }
    db.flush().unwrap();
    for number in (0..3000).step_by(3) {
        merge(&mut values, number, b"|open");
    }
    let mut slices = 0;
    let report = k.convert_while(options("append"), |_| {
        slices += 1;
        for number in (slices % 7..3000).step_by(40) {
            merge(&mut values, number, b"|beside");
            merge(&mut values, number, b"+");
        }
        if slices % 3 == 0 {
            db.flush().unwrap();
        }
        std::ops::ControlFlow::Continue(())
    });
    let began = report.unwrap().begins_at.unwrap();
    let then = values.clone();
    let later = merge(&mut values, 5, b"|later");
    for _ in 0..2 {
        for (number, value) in then.iter().enumerate() {
            let found = k.get_at(key(number as u32), began).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]), "{number}");
            let oldest = k.history_from_oldest(key(number as u32), ..).unwrap();
            for version in oldest.map(Result::unwrap) {
                let value = version.value.unwrap();
                assert!(values[number].starts_with(&value), "{number} as of {}", version.seqno);
            }
        }
        assert_eq!(k.get_at(key(5), later).unwrap().as_deref(), Some(&values[5][..]));
        db.compact().unwrap();
    }
    assert_sound(&db);
}

/// Of a key that was copied in front of an ingest over it, what is merged behind a deletion has
/// nothing to do with what the copy knows of it.
#[test]
fn what_is_merged_behind_a_deletion_is_on_nothing_while_a_key_is_copied_anew() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).memtable_size(16 << 10).flush_slice_size(4 << 10).open("/db");
    let db = db.unwrap();
    let flex = KeyspaceOptions::flex().interval_size(1024).segment_size(16 << 10);
    let k = db.create_keyspace("k", flex.merge_operator("append")).unwrap();
    let key = |number: u32| format!("key{number:05}");
    for number in 0..3000 {
        k.put(key(number), "old").unwrap();
    }
    db.flush().unwrap();
    let mut is_ingested = false;
    let report = k.convert_while(options("append"), |so_far| {
        if so_far.entries > 1500 && !is_ingested {
            is_ingested = true;
            k.ingest([(key(7), "new")]).unwrap();
            k.merge(key(7), "+").unwrap();
            k.delete(key(7)).unwrap();
            k.merge(key(7), "d").unwrap();
            db.flush().unwrap();
            k.merge(key(7), "e").unwrap();
            db.flush().unwrap();
        }
        std::ops::ControlFlow::Continue(())
    });
    report.unwrap();
    assert!(is_ingested);
    for _ in 0..2 {
        let versions = k.history(key(7), ..).unwrap().map(Result::unwrap);
        let mut found: Vec<_> = versions.filter_map(|version| version.value).collect();
        assert_eq!(found.remove(0), b"de");
        let known: [&[u8]; 4] = [b"d", b"new+", b"new", b"old"];
        assert!(found.iter().all(|value| known.contains(&&**value)), "{found:?}");
        db.compact().unwrap();
    }
    assert_sound(&db);
}

/// Appends, and counts how often.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl Counting {
    /// How often since the last time.
    fn count(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl MergeOperator for Counting {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let mut value = existing.unwrap_or_default();
        value.extend(operand);
        Ok(value)
    }
}

/// What is merged into a large value, bit by bit, would be read operand by operand for as long as
/// it takes less than the value.
#[test]
fn operands_on_a_large_value_are_made_now_and_then() {
    const LEN: usize = 2 << 20;
    const COUNT: u64 = 12_000;
    let (storage, counting) = (SimStorage::new(1), Counting::default());
    let builder = builder(&storage).merge_operator("counting", counting.clone());
    let db = builder.open("/db").unwrap();
    let k = db.create_keyspace("k", options("counting")).unwrap();
    k.put("key", vec![7; LEN]).unwrap();
    let mut stamps = Vec::new();
    for number in 0..COUNT {
        stamps.push(k.merge("key", format!("{number:08}")).unwrap());
        if number % 1500 == 0 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    counting.count();
    let mut most = 0;
    for number in (0..COUNT).rev().step_by(499) {
        let value = k.get_at("key", stamps[number as usize]).unwrap().unwrap();
        assert_eq!(value.len(), LEN + 8 * (number as usize + 1));
        assert!(value.ends_with(format!("{number:08}").as_bytes()));
        most = most.max(counting.count());
    }
    // A sixteenth of the value, with what an operand takes beside its bytes.
    assert!(most > 100 && most < LEN as u64 / 16 / (8 + 16) + 10, "{most} operands");
    let disk = storage.allocated_bytes();
    assert!(disk < 40 << 20, "{disk} bytes");
}

#[test]
fn what_a_key_was_is_made_version_by_version_from_the_oldest_on() {
    const COUNT: usize = 1500;
    let (storage, counting) = (SimStorage::new(1), Counting::default());
    let builder = builder(&storage).merge_operator("counting", counting.clone());
    let db = builder.open("/db").unwrap();
    let k = db.create_keyspace("k", options("counting")).unwrap();
    let mut past = vec![(k.put("key", vec![7; 20_000]).unwrap(), vec![7; 20_000])];
    for number in 0..COUNT {
        let mut value = past.last().unwrap().1.clone();
        let stamp = match number {
            700 => {
                value.clear();
                k.delete("key").unwrap()
            }
            _ => {
                value.extend(b"operand");
                k.merge("key", "operand").unwrap()
            }
        };
        past.push((stamp, value));
    }
    db.flush().unwrap();
    counting.count();
    let mut told = k.history_from_oldest("key", ..).unwrap();
    for (at, value) in &past {
        let version = told.next().unwrap().unwrap();
        assert_eq!((version.seqno, version.value.unwrap_or_default()), (*at, (&**value).into()));
    }
    assert!(told.next().is_none());
    let count = counting.count();
    assert!(count < 3 * COUNT as u64, "{count} merges for {COUNT} versions");
    // From somewhere on, it is as ever.
    let (from, value) = &past[300];
    let first = k.history_from_oldest("key", *from..).unwrap().next().unwrap().unwrap();
    assert_eq!((first.seqno, first.value.as_deref()), (*from, Some(&**value)));
}

/// Behind a version that cannot be made the others are told, in every order.
#[test]
fn versions_that_cannot_be_made_stand_in_the_way_of_none() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).merge_operator("picky", Picky).open("/db").unwrap();
    let k = db.create_keyspace("k", options("picky")).unwrap();
    for operand in ["good", "bad", "x"] {
        k.merge("key", operand).unwrap();
    }
    k.put("key", "new").unwrap();
    k.merge("key", "er").unwrap();
    let told = |of: &mut dyn Iterator<Item = lithedb::Result<lithedb::KeyVersion>>| {
        let value = |version: lithedb::Result<lithedb::KeyVersion>| match version {
            Ok(version) => String::from_utf8(version.value.unwrap().to_vec()).unwrap(),
            Err(Error::MergeFailed { .. }) => "?".to_owned(),
            Err(error) => panic!("{error}"),
        };
        of.map(value).collect::<Vec<_>>()
    };
    let mut expected = vec!["good", "?", "?", "new", "newer"];
    for _ in 0..2 {
        assert_eq!(told(&mut k.history_from_oldest("key", ..).unwrap()), expected);
        expected.reverse();
        assert_eq!(told(&mut k.history("key", ..).unwrap()), expected);
        expected.reverse();
        assert_eq!(told(&mut k.versions_by_stamp(..).unwrap()), expected);
    }
}

/// Out of versions, a merge that cannot be made is told as what was merged, and what follows is
/// told too.
#[test]
fn a_feed_out_of_versions_goes_past_merges_that_cannot_be_made() {
    let storage = SimStorage::new(1);
    let small = |storage: &SimStorage| builder(storage).wal_file_size(64 << 10).kept_log_size(0);
    let db = small(&storage).merge_operator("picky", Picky).open("/db").unwrap();
    let k = db.create_keyspace("k", options("picky")).unwrap();
    let other = db.keyspace_or_create("other").unwrap();
    k.merge("a", "1").unwrap();
    k.merge("a", "bad").unwrap();
    k.merge("a", "2").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&k, "a", "new");
    batch.merge(&k, "a", "bad");
    batch.merge(&k, "a", "3");
    batch.put(&k, "b", "beside");
    db.write(batch).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete(&k, "a");
    batch.merge(&k, "a", "bad");
    db.write(batch).unwrap();
    k.put("c", "behind").unwrap();
    for number in 0..300u32 {
        other.put(number.to_be_bytes(), [7; 1000]).unwrap();
    }
    db.flush().unwrap();
    let told = |db: &Db| {
        let k = db.keyspace("k").unwrap();
        let options = FeedOptions::new().keyspaces([&k]).previous_values(true);
        let shown = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let told = |change: lithedb::Change| {
            let what = match change.kind {
                ChangeKind::Put { key, value, .. } => {
                    format!("{} = {}", shown(&key), shown(&value.unwrap()))
                }
                ChangeKind::Merge { key, operand } => {
                    format!("{} + {}", shown(&key), shown(&operand))
                }
                ChangeKind::Delete { key } => format!("{} -", shown(&key)),
                other => panic!("{other:?}"),
            };
            match change.previous {
                Previous::Value(value) => format!("{what}, was {}", shown(&value)),
                Previous::Absent => format!("{what}, was none"),
                Previous::Unknown => what,
            }
        };
        let commits = db.changes(SeqNo::ZERO, options).unwrap();
        let changes = commits.flat_map(|commit| commit.unwrap().changes);
        changes.map(told).collect::<Vec<_>>()
    };
    let expected = [
        "a = 1, was none",
        "a + bad, was 1",
        "a + 2",
        "a = new",
        "a + bad",
        "a + 3",
        "b = beside, was none",
        "a -",
        "a + bad",
        "c = behind, was none",
    ];
    assert_eq!(told(&db), expected);
    // Nor does a program without the operator stand still: what was made it knows.
    db.close().unwrap();
    drop((db, k, other));
    let db = small(&storage).open("/db").unwrap();
    assert_eq!(told(&db), expected);
}

/// Else the flush would be refused that is to archive it, now and at each opening.
#[test]
fn keys_that_archives_do_not_take_are_refused_of_merges_too() {
    let storage = SimStorage::new(3);
    let mut db = builder(&storage).open("/db").unwrap();
    let is_refused = |error: Error| matches!(error, Error::InvalidArgument { .. });
    for (round, long) in [vec![7; lithedb::KEY_LEN_MAX], vec![0; 40_000]].into_iter().enumerate() {
        let k = db
            .keyspace("k")
            .ok()
            .unwrap_or_else(|| db.create_keyspace("k", options("append")).unwrap());
        assert!(is_refused(k.merge(&long, "x").unwrap_err()));
        let mut batch = WriteBatch::new();
        batch.merge(&k, &long, "x");
        assert!(is_refused(db.write(batch).unwrap_err()));
        let mut transaction = db.begin_update();
        let savepoint = transaction.savepoint().unwrap();
        assert!(is_refused(transaction.merge(&k, &long, "x").unwrap_err()));
        assert!(is_refused(transaction.put(&k, &long, "x").unwrap_err()));
        assert!(is_refused(transaction.delete(&k, &long).unwrap_err()));
        transaction.rollback_to(savepoint).unwrap();
        transaction.merge(&k, "key", "x").unwrap();
        transaction.commit().unwrap();
        db.flush().unwrap();
        drop((transaction, k, db));
        db = builder(&storage).open("/db").unwrap();
        let k = db.keyspace("k").unwrap();
        assert_eq!(k.get("key").unwrap().unwrap().len(), round + 1);
        assert_eq!(k.count::<&[u8]>(..).unwrap(), 1);
    }
    assert_sound(&db);
}
