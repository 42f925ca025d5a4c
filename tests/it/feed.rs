//! The change feed: every commit once and in order, through flushes, reopenings and crashes, for
//! readers that follow, that come back, and that have a name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lithe_sim::random::Random;
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, MemoryStorage, Operation, SimStorage,
};
use lithedb::{
    Builder, Change, ChangeKind, CommitChanges, Db, Durability, Error, FeedOptions, Keyspace,
    KeyspaceOptions, Previous, SeqNo, WriteBatch,
};

use crate::support::{PATH, assert_sound, step_to_rest, tiny, tiny_structures};

/// Values from here on are in value files.
const LARGE: usize = 100;
/// A wait that is never to come to its end.
const LONG: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
}

impl Op {
    fn touches(&self, key: &[u8]) -> bool {
        match self {
            Op::Put(own, _) | Op::Delete(own) => own == key,
            Op::DeleteRange(start, end) => {
                **start <= *key && end.as_ref().is_none_or(|end| *key < **end)
            }
        }
    }
}

/// A commit as it was written.
#[derive(Clone, Debug, PartialEq)]
struct Written {
    seqno: SeqNo,
    payload: Option<Vec<u8>>,
    ops: Vec<(String, Op)>,
}

/// Whether `change` is what `op` says; a large value may be gone if it was overwritten.
fn is_told(change: &Change, name: &str, op: &Op, later: &[Written]) -> bool {
    let gone = |key: &[u8]| {
        later.iter().flat_map(|commit| &commit.ops).any(|(of, op)| of == name && op.touches(key))
    };
    let told = match (&change.kind, op) {
        (ChangeKind::Put { key, value: Some(value), .. }, Op::Put(own, put)) => {
            **key == **own && **value == **put
        }
        (ChangeKind::Put { key, value: None, .. }, Op::Put(own, put)) => {
            **key == **own && put.len() >= LARGE && gone(key)
        }
        (ChangeKind::Delete { key }, Op::Delete(own)) => **key == **own,
        (ChangeKind::DeleteRange { start, end }, Op::DeleteRange(first, behind)) => {
            **start == **first && end.as_deref() == behind.as_deref()
        }
        _ => false,
    };
    told && change.keyspace.as_deref() == Some(name)
}

/// Compares what a feed has shown with what was written.
fn assert_told(shown: &[CommitChanges], written: &[Written]) {
    let found: Vec<SeqNo> = shown.iter().map(|commit| commit.seqno).collect();
    assert_eq!(found, written.iter().map(|commit| commit.seqno).collect::<Vec<_>>());
    for (position, (found, expected)) in shown.iter().zip(written).enumerate() {
        assert_eq!(found.payload, expected.payload, "{}", found.seqno);
        assert_eq!(found.changes.len(), expected.ops.len(), "{found:?} {expected:?}");
        for (change, (name, op)) in found.changes.iter().zip(&expected.ops) {
            // What the same commit does behind it counts as later.
            assert!(is_told(change, name, op, &written[position..]), "{change:?} {name} {op:?}");
        }
    }
}

fn all(feed: impl Iterator<Item = Result<CommitChanges, Error>>) -> Vec<CommitChanges> {
    feed.map(Result::unwrap).collect()
}

/// Keyspaces of all structures, with large values apart.
fn create_keyspaces(db: &Db) -> Vec<String> {
    let structures = tiny_structures().into_iter().chain([KeyspaceOptions::history()]);
    let options = structures.map(|options| options.value_separation(Some(LARGE as u32)));
    let create = |(number, options)| {
        let name = format!("keyspace {number}");
        db.create_keyspace(&name, options).unwrap();
        name
    };
    options.enumerate().map(create).collect()
}

/// Commits something, durably or not.
fn commit_something(db: &Db, names: &[String], random: &mut Random) -> Written {
    let mut batch = WriteBatch::new();
    let mut ops = Vec::new();
    for _ in 0..=random.below(4) {
        let name = &names[random.below(names.len() as u64) as usize];
        let keyspace = db.keyspace(name).unwrap();
        let key = random.below(60).to_be_bytes().to_vec();
        let op = match random.below(8) {
            0 => Op::Delete(key),
            1 => {
                let end =
                    (random.below(2) > 0).then(|| random.below(1 << 8).to_be_bytes().to_vec());
                Op::DeleteRange(key.clone(), end.filter(|end| *end > key))
            }
            _ => {
                let len = [0, 9, 50, LARGE as u64, 700][random.below(5) as usize];
                let byte = random.below(256) as u8;
                Op::Put(key, vec![byte; len as usize])
            }
        };
        match &op {
            Op::Put(key, value) => batch.put(&keyspace, key, value),
            Op::Delete(key) => batch.delete(&keyspace, key),
            Op::DeleteRange(start, Some(end)) => {
                batch.delete_range(&keyspace, start.clone()..end.clone());
            }
            Op::DeleteRange(start, None) => batch.delete_range(&keyspace, start.clone()..),
        }
        ops.push((name.clone(), op));
    }
    let payload = (random.below(3) == 0).then(|| vec![random.below(256) as u8; 5]);
    if let Some(payload) = &payload {
        batch.set_payload(payload.as_slice());
    }
    let durability = [Durability::Buffered, Durability::Sync][random.below(2) as usize];
    let seqno = db.write_with(batch, durability).unwrap();
    Written { seqno, payload, ops }
}

fn open(storage: &SimStorage, kept: u64) -> Db {
    tiny(storage).kept_log_size(kept).open(PATH).unwrap()
}

/// Something that goes on beside commits.
fn something_else(db: &Db, random: &mut Random) {
    match random.below(30) {
        0 => db.flush().unwrap(),
        1 => step_to_rest(db),
        2 => drop(db.vacuum().unwrap()),
        3 => assert_sound(db),
        _ => {
            db.step().unwrap();
        }
    }
}

#[test]
fn every_commit_is_shown_once_and_in_order_through_reopenings_and_crashes() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut storage = SimStorage::new(seed);
        let mut db = open(&storage, u64::MAX);
        let names = create_keyspaces(&db);
        db.create_consumer("follower", u64::MAX).unwrap();
        let mut written: Vec<Written> = Vec::new();
        // What the follower has worked off, and stored somewhere safe.
        let mut stored: Vec<CommitChanges> = Vec::new();
        for _ in 0..6 {
            let mut feed = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
            let mut follower =
                db.consumer("follower", FeedOptions::new().durable_only(true)).unwrap();
            if let Some(last) = stored.last() {
                follower.acknowledge(last.seqno).unwrap();
            }
            let mut shown = Vec::new();
            for _ in 0..random.below(120) {
                written.push(commit_something(&db, &names, &mut random));
                something_else(&db, &mut random);
                if random.below(4) == 0 {
                    shown.extend(all(&mut feed));
                    assert_eq!(feed.position(), written.last().unwrap().seqno);
                }
                if random.below(6) == 0 {
                    stored.extend(all(follower.by_ref().take(random.below(20) as usize)));
                    let done = stored.last().map_or(SeqNo::ZERO, |last| last.seqno);
                    follower.acknowledge(done).unwrap();
                }
            }
            shown.extend(all(&mut feed));
            assert_told(&shown, &written);
            // One that begins in the middle.
            if !written.is_empty() {
                let from = random.below(written.len() as u64) as usize;
                let later = db.changes(written[from].seqno, FeedOptions::new()).unwrap();
                assert_told(&all(later), &written[from + 1..]);
            }
            drop((feed, follower));
            if random.below(3) == 0 {
                db.close().unwrap();
            } else {
                let modes = [
                    CrashMode::KeepAll,
                    CrashMode::DropAll,
                    CrashMode::Prefix,
                    CrashMode::RandomSectors,
                    CrashMode::TornLast,
                ];
                storage = storage.crash(random.pick(&modes), random.draw());
            };
            drop(db);
            db = open(&storage, u64::MAX);
            let newest = db.snapshot().seqno();
            written.retain(|commit| commit.seqno <= newest);
            let told: BTreeSet<SeqNo> = written.iter().map(|commit| commit.seqno).collect();
            // What was durable when it was shown is there.
            assert!(stored.iter().all(|commit| told.contains(&commit.seqno)));
        }
        let mut follower = db.consumer("follower", FeedOptions::new()).unwrap();
        follower.acknowledge(stored.last().map_or(SeqNo::ZERO, |last| last.seqno)).unwrap();
        stored.extend(all(&mut follower));
        assert_told(&stored, &written);
    }
}

/// Keyspace, key and value.
type Put = (u32, Vec<u8>, Vec<u8>);

#[test]
fn who_follows_while_others_write_misses_nothing() {
    let db = Db::builder().storage(Arc::new(MemoryStorage::new())).memory_budget(8 << 20);
    let db = db.wal_file_size(64 << 10).open(PATH).unwrap();
    let keyspaces: Vec<Keyspace> = tiny_structures()
        .into_iter()
        .enumerate()
        .map(|(number, options)| db.create_keyspace(&format!("{number}"), options).unwrap())
        .collect();
    db.create_consumer("follower", u64::MAX).unwrap();
    let is_over = AtomicBool::new(false);
    let (mut written, shown) = std::thread::scope(|scope| {
        let follow = || {
            let mut follower = db.consumer("follower", FeedOptions::new()).unwrap();
            let mut shown: Vec<(SeqNo, Vec<Put>)> = Vec::new();
            loop {
                // What was committed before that is there when it is said that all is over.
                let ends = is_over.load(Ordering::Acquire);
                let timeout = if ends { Duration::ZERO } else { Duration::from_millis(20) };
                let Some(commit) = follower.wait(timeout).unwrap() else {
                    if ends {
                        return shown;
                    }
                    continue;
                };
                let puts = commit.changes.iter().map(|change| match &change.kind {
                    ChangeKind::Put { key, value: Some(value), .. } => {
                        (change.keyspace_id, key.to_vec(), value.to_vec())
                    }
                    other => panic!("{other:?}"),
                });
                shown.push((commit.seqno, puts.collect()));
                if shown.len().is_multiple_of(100) {
                    follower.acknowledge(commit.seqno).unwrap();
                }
            }
        };
        let follower = scope.spawn(follow);
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (db, keyspaces) = (&db, &keyspaces);
                scope.spawn(move || {
                    let mut written = Vec::new();
                    for number in 0..1500u64 {
                        let mut batch = WriteBatch::new();
                        let mut puts = Vec::new();
                        for part in 0..1 + number % 3 {
                            let keyspace = &keyspaces[(number + part) as usize % keyspaces.len()];
                            let key = (number * 7 % 50 + part).to_be_bytes().to_vec();
                            let value = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                            batch.put(keyspace, &key, &value);
                            puts.push((keyspace.id(), key, value));
                        }
                        let durability = match number % 10 {
                            0 => Durability::Sync,
                            _ => Durability::Buffered,
                        };
                        written.push((db.write_with(batch, durability).unwrap(), puts));
                    }
                    written
                })
            })
            .collect();
        let written: Vec<_> =
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        is_over.store(true, Ordering::Release);
        (written, follower.join().unwrap())
    });
    written.sort_by_key(|(seqno, _)| *seqno);
    assert_eq!(shown.len(), written.len());
    assert!(shown == written);
    let [told] = &db.consumers().unwrap()[..] else { panic!("there is one") };
    assert!(told.done > SeqNo::ZERO && !told.is_lost, "{told:?}");
    assert_sound(&db);
}

#[test]
fn a_wait_ends_with_a_commit_with_its_time_or_with_the_database() {
    let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open(PATH).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let other = db.keyspace_or_create("other").unwrap();
    let options = FeedOptions::new().keyspaces([&keyspace]);
    let mut feed = db.changes(SeqNo::ZERO, options).unwrap();
    assert!(feed.wait(Duration::from_millis(1)).unwrap().is_none());
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || {
            while let Some(commit) = feed.wait(LONG).transpose() {
                let is_over = commit.is_err();
                sender.send(commit).unwrap();
                if is_over {
                    break;
                }
            }
        });
        for round in 0..50u32 {
            other.put("not asked for", round.to_be_bytes()).unwrap();
            let stamp = keyspace.put("k", round.to_be_bytes()).unwrap();
            assert_eq!(receiver.recv().unwrap().unwrap().seqno, stamp);
        }
        db.close().unwrap();
        assert!(matches!(receiver.recv().unwrap(), Err(Error::Closed)));
    });
}

#[test]
fn what_is_not_durable_is_not_shown_to_who_asks_for_that() {
    let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open(PATH).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let mut durable = db.changes(SeqNo::ZERO, FeedOptions::new().durable_only(true)).unwrap();
    let mut visible = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let first = keyspace.put_with("a", "1", Durability::Buffered).unwrap();
    assert_eq!(all(&mut visible).len(), 1);
    assert!(durable.next().is_none());
    db.sync().unwrap();
    assert_eq!(durable.wait(LONG).unwrap().map(|commit| commit.seqno), Some(first));
    let second = keyspace.put_with("a", "2", Durability::Sync).unwrap();
    assert_eq!(all(&mut durable).iter().map(|commit| commit.seqno).collect::<Vec<_>>(), [second]);
}

/// Small log files, of which none is kept that is not needed.
fn small_log(storage: &MemoryStorage) -> Builder {
    let builder = Db::builder().storage(Arc::new(storage.clone()));
    builder.background(lithedb::Background::Stepped).wal_file_size(64 << 10).kept_log_size(0)
}

/// Commits so many bytes, and has the log given up that is not needed.
fn fill_log(db: &Db, keyspace: &Keyspace, bytes: usize) -> Vec<SeqNo> {
    let put = |number: usize| keyspace.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
    let stamps = (0..bytes / 1000).map(put).collect();
    db.flush().unwrap();
    stamps
}

#[test]
fn the_log_is_kept_for_a_consumer_within_its_bound_and_no_longer() {
    let storage = MemoryStorage::new();
    let mut db = small_log(&storage).open(PATH).unwrap();
    let mut keyspace = db.keyspace_or_create("k").unwrap();
    fill_log(&db, &keyspace, 300_000);
    assert!(matches!(
        db.changes(SeqNo::ZERO, FeedOptions::new()),
        Err(Error::CommitsNotKept { .. })
    ));
    db.create_consumer("slow", 1 << 20).unwrap();
    db.create_consumer("lost", 256 << 10).unwrap();
    let again = db.create_consumer("slow", 1);
    assert!(matches!(again, Err(Error::ConsumerExists { .. })));
    let stamps = fill_log(&db, &keyspace, 700_000);
    assert!(db.stats().wal_bytes_kept >= 600_000, "{}", db.stats().wal_bytes_kept);
    let told = db.consumers().unwrap();
    assert_eq!(told.iter().map(|told| &*told.name).collect::<Vec<_>>(), ["lost", "slow"]);
    assert!(told.iter().all(|told| (700_000..1 << 20).contains(&told.bytes_behind)), "{told:?}");
    // Both have what they need as long as one holds it; then one of them not any more.
    let mut slow = db.consumer("slow", FeedOptions::new()).unwrap();
    let shown: Vec<SeqNo> = all(&mut slow).iter().map(|commit| commit.seqno).collect();
    assert_eq!(shown, stamps);
    slow.acknowledge(stamps[650]).unwrap();
    fill_log(&db, &keyspace, 100_000);
    let [lost, other] = &db.consumers().unwrap()[..] else { panic!("two") };
    assert!(lost.is_lost && !other.is_lost && other.done >= stamps[600], "{lost:?} {other:?}");
    let refused = db.consumer("lost", FeedOptions::new());
    assert!(matches!(refused, Err(Error::CommitsNotKept { oldest: Some(_) })), "{refused:?}");
    // It is known behind a reopening, and goes on behind what it was done with.
    let done = other.done;
    drop((slow, keyspace));
    db.close().unwrap();
    db = small_log(&storage).open(PATH).unwrap();
    keyspace = db.keyspace("k").unwrap();
    let slow = db.consumer("slow", FeedOptions::new()).unwrap();
    let shown = all(slow);
    let behind: Vec<SeqNo> = stamps.iter().copied().filter(|stamp| *stamp > done).collect();
    assert_eq!(shown[..behind.len()].iter().map(|commit| commit.seqno).collect::<Vec<_>>(), behind);
    assert_eq!(shown.len(), behind.len() + 100);
    db.remove_consumer("slow").unwrap();
    assert!(matches!(db.remove_consumer("slow"), Err(Error::ConsumerNotFound { .. })));
    assert!(matches!(db.consumer("slow", FeedOptions::new()), Err(Error::ConsumerNotFound { .. })));
    fill_log(&db, &keyspace, 1_500_000);
    assert_eq!(db.stats().wal_bytes_kept, 0, "nobody is waited for any more");
    assert_sound(&db);
}

#[test]
fn a_feed_that_holds_nothing_is_told_when_the_log_has_gone_on_without_it() {
    let storage = MemoryStorage::new();
    let db = small_log(&storage).open(PATH).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let mut feed = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let first = keyspace.put("a", "1").unwrap();
    assert_eq!(feed.next().unwrap().unwrap().seqno, first);
    // Until it has come to its end, it holds what it reads.
    fill_log(&db, &keyspace, 200_000);
    assert_eq!(all(feed.by_ref()).len(), 200);
    fill_log(&db, &keyspace, 500_000);
    let shown: Vec<_> = feed.by_ref().take(600).collect();
    let Some(Err(Error::CommitsNotKept { oldest: Some(oldest) })) = shown.last() else {
        panic!("{:?}", shown.last())
    };
    assert!(*oldest > first);
}

#[test]
fn what_the_log_has_no_more_versions_tell() {
    let storage = MemoryStorage::new();
    let db = small_log(&storage).open(PATH).unwrap();
    let history = db.create_keyspace("history", KeyspaceOptions::history()).unwrap();
    let second = db.create_keyspace("second", KeyspaceOptions::history()).unwrap();
    let plain = db.keyspace_or_create("plain").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&history, "a", "1");
    batch.put(&history, "b", "1");
    batch.put(&second, "s", "1");
    batch.put(&plain, "p", "1");
    let first = db.write(batch).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete(&history, "absent");
    batch.delete_range(&history, "a".."z");
    let deleted = db.write(batch).unwrap();
    let only_plain = plain.put("p", "2").unwrap();
    let again =
        history.put_until("a", "2", std::time::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    fill_log(&db, &plain, 300_000);
    let options = || FeedOptions::new().keyspaces([&history, &second]).previous_values(true);
    for gone in [FeedOptions::new(), FeedOptions::new().keyspaces([&history, &plain])] {
        let refused = db.changes(SeqNo::ZERO, gone);
        assert!(matches!(refused, Err(Error::CommitsNotKept { .. })), "{refused:?}");
    }
    let mut batch = WriteBatch::new();
    batch.put(&second, "s", "2");
    batch.set_payload(*b"why");
    let in_log = db.write(batch).unwrap();
    let mut feed = db.changes(SeqNo::ZERO, options()).unwrap();
    let value = |value: &str| Previous::Value(value.as_bytes().into());
    let told = |commit: CommitChanges| {
        let change = |change: Change| {
            let (key, value) = match change.kind {
                ChangeKind::Put { key, value, .. } => (key, value),
                ChangeKind::Delete { key } => (key, None),
                other => panic!("{other:?}"),
            };
            let key = String::from_utf8(key.to_vec()).unwrap();
            let value = value.map(|value| String::from_utf8(value.to_vec()).unwrap());
            (change.keyspace.unwrap().to_string(), key, value, change.previous)
        };
        (commit.seqno, commit.changes.into_iter().map(change).collect::<Vec<_>>())
    };
    let of = |name: &str, key: &str, value: Option<&str>, previous| {
        (name.to_owned(), key.to_owned(), value.map(str::to_owned), previous)
    };
    let expected = [
        (
            first,
            vec![
                of("history", "a", Some("1"), Previous::Absent),
                of("history", "b", Some("1"), Previous::Absent),
                of("second", "s", Some("1"), Previous::Absent),
            ],
        ),
        (deleted, vec![of("history", "a", None, value("1")), of("history", "b", None, value("1"))]),
        (again, vec![of("history", "a", Some("2"), Previous::Absent)]),
        // The log has this one, with what was kept with it.
        (in_log, vec![of("second", "s", Some("2"), value("1"))]),
    ];
    let shown = all(feed.by_ref());
    let payloads: Vec<_> = shown.iter().map(|commit| commit.payload.as_deref()).collect();
    assert_eq!(payloads, [None, None, None, Some(&b"why"[..])]);
    assert_eq!(shown.into_iter().map(told).collect::<Vec<_>>(), expected);
    // From here on it is the log again.
    let live = history.put("b", "3").unwrap();
    let found = told(feed.next().unwrap().unwrap());
    assert_eq!(found, (live, vec![of("history", "b", Some("3"), Previous::Absent)]));
    let later = db.changes(deleted, options()).unwrap();
    assert_eq!(
        all(later).iter().map(|commit| commit.seqno).collect::<Vec<_>>(),
        [again, in_log, live]
    );
    assert!(only_plain > deleted);
}

#[test]
fn large_values_that_are_gone_are_said_to_be_and_those_that_moved_are_found() {
    let db = small_log(&MemoryStorage::new()).kept_log_size(u64::MAX);
    let db = db.value_file_size(1 << 20).open(PATH).unwrap();
    for options in [KeyspaceOptions::flex(), KeyspaceOptions::lsm(), KeyspaceOptions::history()] {
        let name = options.structure.name();
        let keeps = options.structure == lithedb::Structure::History;
        let keyspace = db.create_keyspace(name, options).unwrap();
        let put = |key: u32, round: u8| {
            keyspace.put(key.to_be_bytes(), vec![round; 20_000]).unwrap();
        };
        let since = db.snapshot().seqno();
        (0..200).for_each(|key| put(key, 1));
        (0..200).filter(|key| key % 4 != 0).for_each(|key| put(key, 2));
        db.flush().unwrap();
        db.vacuum().unwrap();
        step_to_rest(&db);
        let feed = db.changes(since, FeedOptions::new().keyspaces([&keyspace])).unwrap();
        let mut gone = 0;
        let mut latest: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for commit in all(feed) {
            let ChangeKind::Put { key, value, .. } = &commit.changes[0].kind else { panic!() };
            gone += usize::from(value.is_none());
            latest.insert(key.to_vec(), value.as_ref().map(|value| value.to_vec()));
        }
        assert_eq!(gone > 0, !keeps, "{name}: {gone} are gone");
        for (key, value) in &latest {
            let expected = keyspace.get(key).unwrap().unwrap();
            assert_eq!(value.as_deref(), Some(&*expected), "{name}");
        }
        assert_eq!(latest.len(), 200);
    }
}

#[test]
fn what_could_not_be_read_is_shown_by_the_next_try() {
    let storage = SimStorage::new(1);
    let db = open(&storage, u64::MAX);
    let options = KeyspaceOptions::flex().value_separation(Some(LARGE as u32));
    let keyspace = db.create_keyspace("k", options).unwrap();
    let stamps = [keyspace.put("a", [1; 700]).unwrap(), keyspace.put("b", "small").unwrap()];
    let mut feed = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let eio =
        FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::Read]).path("values").lasting();
    storage.arm(FaultPlan::new().rule(eio));
    assert!(matches!(feed.next(), Some(Err(Error::Io { .. }))));
    assert!(matches!(feed.next(), Some(Err(Error::Io { .. }))));
    storage.arm(FaultPlan::new());
    assert_eq!(all(feed).iter().map(|commit| commit.seqno).collect::<Vec<_>>(), stamps);
}

#[test]
fn a_value_file_that_is_gone_is_not_taken_for_a_later_one() {
    let storage = MemoryStorage::new();
    let open = || {
        let builder = Db::builder().storage(Arc::new(storage.clone()));
        builder.kept_log_size(u64::MAX).open(PATH).unwrap()
    };
    let db = open();
    let keyspace = db.keyspace_or_create("k").unwrap();
    keyspace.put("a", vec![1; 9000]).unwrap();
    keyspace.delete("a").unwrap();
    db.vacuum().unwrap();
    db.close().unwrap();
    drop((keyspace, db));
    open().close().unwrap();
    let db = open();
    db.keyspace("k").unwrap().put("b", vec![2; 9000]).unwrap();
    let shown = all(db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap());
    let value_of = |commit: &CommitChanges| match &commit.changes[0].kind {
        ChangeKind::Put { value, .. } => value.as_ref().map(|value| value.len()),
        _ => None,
    };
    assert_eq!(shown.iter().map(value_of).collect::<Vec<_>>(), [None, None, Some(9000)]);
}

#[test]
fn who_is_done_with_everything_is_not_behind_and_nobody_is_done_with_the_future() {
    let storage = MemoryStorage::new();
    let db = small_log(&storage).open(PATH).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    // Less than a log file: what it holds follows from what it has said, not from the manifest.
    db.create_consumer("tight", 16 << 10).unwrap();
    let mut tight = db.consumer("tight", FeedOptions::new()).unwrap();
    for number in 0..500u32 {
        let stamp = keyspace.put(number.to_be_bytes(), [7; 1000]).unwrap();
        assert_eq!(tight.next().unwrap().unwrap().seqno, stamp);
        tight.acknowledge(stamp).unwrap();
        if number % 50 == 0 {
            db.flush().unwrap();
        }
        let [told] = &db.consumers().unwrap()[..] else { panic!("one") };
        assert_eq!((told.done, told.bytes_behind, told.is_lost), (stamp, 0, false));
    }
    let future = SeqNo::from_u64(tight.position().as_u64() + 1);
    assert!(matches!(tight.acknowledge(future), Err(Error::InvalidArgument { .. })));
    let refused = db.changes(future, FeedOptions::new());
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    let stamp = keyspace.put("k", "v").unwrap();
    assert_eq!(tight.next().unwrap().unwrap().seqno, stamp);
    tight.acknowledge(stamp).unwrap();
    drop((tight, keyspace));
    db.close().unwrap();
    drop(db);
    let db = small_log(&storage).open(PATH).unwrap();
    let [told] = &db.consumers().unwrap()[..] else { panic!("one") };
    assert_eq!((told.done, told.bytes_behind, told.is_lost), (stamp, 0, false), "closed since");
}

/// Where a child finds what it is to do.
const CHILD_DIR: &str = "LITHE_FEED_TEST_DIR";

/// What a child writes: batches of puts of random keys, and some deletions.
struct Load {
    batch_len: u64,
    /// Keys are numbers below this.
    keys: u64,
    key_len: usize,
    value_len: usize,
    /// One of so many operations deletes.
    deletion_every: u64,
}

const SMALL_LOAD: Load =
    Load { batch_len: 8, keys: 5000, key_len: 8, value_len: 8, deletion_every: 10 };
/// As W3 of the benchmarks: 16 and 100 bytes, 1000 at a time.
const W3_LOAD: Load =
    Load { batch_len: 1000, keys: 500_000, key_len: 16, value_len: 100, deletion_every: 1000 };

impl Load {
    fn batch(&self, keyspace: &Keyspace, random: &mut Random) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for _ in 0..self.batch_len {
            let (number, drawn) = (random.below(self.keys), random.draw());
            let mut key = number.to_be_bytes().to_vec();
            key.resize(self.key_len, number as u8);
            if drawn.is_multiple_of(self.deletion_every) {
                batch.delete(keyspace, key);
            } else {
                let mut value = drawn.to_be_bytes().repeat(self.value_len.div_ceil(8));
                value.truncate(self.value_len);
                batch.put(keyspace, key, value);
            }
        }
        batch
    }
}
/// What its load is drawn from.
const CHILD_SEED: &str = "LITHE_FEED_TEST_SEED";
/// What it ends with when it has found something wrong, in any thread.
const PANICKED: i32 = 101;
/// Where a mirror has the stamp that it has come to.
const STAMP: &[u8] = b"stamp";

fn open_pair(dir: &std::path::Path) -> (Db, Db) {
    let open = |name: &str| {
        let builder = Db::builder().memory_budget(8 << 20).wal_file_size(256 << 10);
        builder.open(dir.join(name)).unwrap()
    };
    (open("source"), open("mirror"))
}

/// Stamps are 8 bytes, most significant first.
fn stored_stamp(mirror: &Db) -> SeqNo {
    let own = mirror.keyspace_or_create("own").unwrap();
    let stored = own.get(STAMP).unwrap().map(|stamp| (*stamp).try_into().unwrap());
    SeqNo::from_u64(stored.map_or(0, u64::from_be_bytes))
}

/// Copies a commit, and notes its stamp with it: all of it or nothing.
fn mirror_commit(mirror: &Db, commit: &CommitChanges) {
    let (own, copy) =
        (mirror.keyspace_or_create("own").unwrap(), mirror.keyspace_or_create("copy").unwrap());
    let mut batch = WriteBatch::new();
    for change in &commit.changes {
        match &change.kind {
            ChangeKind::Put { key, value: Some(value), .. } => batch.put(&copy, key, value),
            ChangeKind::Delete { key } => batch.delete(&copy, key),
            other => panic!("{other:?}"),
        }
    }
    assert!(commit.seqno > stored_stamp(mirror), "{} is shown again or too late", commit.seqno);
    let stamp = commit.seqno.as_u64().to_be_bytes();
    batch.put(&own, stamp, "");
    batch.put(&own, STAMP, stamp);
    mirror.write_with(batch, Durability::Buffered).unwrap();
}

/// Writes as fast as it can, and follows that, until it is killed.
fn write_and_follow(dir: &std::path::Path, load: &Load) -> ! {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::exit(PANICKED); // The other thread has no end.
    }));
    let seed = std::env::var(CHILD_SEED).unwrap().parse().unwrap();
    let (source, mirror) = open_pair(dir);
    let data = source.keyspace_or_create("data").unwrap();
    if source.consumers().unwrap().is_empty() {
        source.create_consumer("mirror", 1 << 30).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed);
            loop {
                let batch = load.batch(&data, &mut random);
                source.write_with(batch, Durability::Buffered).unwrap();
            }
        });
        let mut follower = source.consumer("mirror", FeedOptions::new()).unwrap();
        follower.acknowledge(stored_stamp(&mirror)).unwrap();
        loop {
            if let Some(commit) = follower.wait(LONG).unwrap() {
                mirror_commit(&mirror, &commit);
                follower.acknowledge(commit.seqno).unwrap();
            }
        }
    })
}

/// Kills a process that writes and follows again and again, then compares both sides.
fn kill_and_compare(test: &str, load: &Load, rounds: u64) {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        write_and_follow(dir.as_ref(), load);
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args([test, "--exact", "--include-ignored", "--nocapture"]);
        let child = child.env(CHILD_DIR, dir.path()).env(CHILD_SEED, round.to_string());
        let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300 + 70 * (round % 8)));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_ne!(ended.code(), Some(PANICKED), "round {round}");
    }
    let (source, mirror) = open_pair(dir.path());
    let before = stored_stamp(&mirror);
    assert!(before > SeqNo::ZERO, "the mirror has followed");
    let mut follower = source.consumer("mirror", FeedOptions::new()).unwrap();
    follower.acknowledge(before).unwrap();
    let rest = all(&mut follower);
    rest.iter().for_each(|commit| mirror_commit(&mirror, commit));
    let (data, copy) = (source.keyspace("data").unwrap(), mirror.keyspace("copy").unwrap());
    let mut copied = copy.iter();
    for entry in data.iter() {
        let (entry, copied) = (entry.unwrap(), copied.next().expect("as many").unwrap());
        assert_eq!((entry.key, entry.value), (copied.key, copied.value));
    }
    assert!(copied.next().is_none(), "no more than there is");
    let (commits, entries) = (mirror.keyspace("own").unwrap().len().unwrap() - 1, copy.len());
    println!(
        "{rounds} kills: {commits} commits mirrored, {} of them behind the last kill; {} entries",
        rest.len(),
        entries.unwrap()
    );
    assert_sound(&source);
    assert_sound(&mirror);
}

#[test]
fn a_mirror_has_each_commit_once_however_often_both_sides_are_killed() {
    let name = "feed::a_mirror_has_each_commit_once_however_often_both_sides_are_killed";
    kill_and_compare(name, &SMALL_LOAD, 6);
}

/// `LITHE_ROUNDS` kills (default 100) under a load as that of W3.
#[test]
#[ignore = "takes minutes: just feed-kills"]
fn a_mirror_of_a_load_as_fast_as_it_goes_has_each_commit_once() {
    let rounds = std::env::var("LITHE_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap());
    let name = "feed::a_mirror_of_a_load_as_fast_as_it_goes_has_each_commit_once";
    kill_and_compare(name, &W3_LOAD, rounds);
}
