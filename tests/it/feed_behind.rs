//! Who follows the changes and is behind: what the log, the versions or a value file have no more
//! than in part, what is not durable yet, and what a crash takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lithedb::base::{ManualClock, SeededEntropy};
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, MemoryStorage, Operation, SimStorage, Storage,
};
use lithedb::{
    Background, Builder, ChangeKind, CommitChanges, Db, Durability, Encryption, Error, FeedOptions,
    Keyspace, KeyspaceOptions, SeqNo,
};

use crate::support::{PATH, assert_sound, step_to_rest};

const LOG_FILE: u64 = 64 << 10;

/// Small log files, of which none is kept that is not needed.
fn small_log(storage: impl Storage + 'static) -> Builder {
    let builder = Db::builder().storage(Arc::new(storage)).background(Background::Stepped);
    builder.wal_file_size(LOG_FILE).kept_log_size(0)
}

/// Commits so many records of about 1000 bytes, and has the log given up that is not needed.
fn fill_log(db: &Db, keyspace: &Keyspace, count: u32) -> Vec<SeqNo> {
    let put = |number: u32| keyspace.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
    let stamps = (0..count).map(put).collect();
    db.flush().unwrap();
    stamps
}

fn stamps_of(feed: impl Iterator<Item = Result<CommitChanges, Error>>) -> Vec<SeqNo> {
    feed.map(|commit| commit.unwrap().seqno).collect()
}

/// Puts of 20 000 bytes, of which most are overwritten, so that `Db::vacuum` moves the others.
fn put_large(keyspace: &Keyspace) {
    let put = |key: u32, round: u8| {
        keyspace.put(key.to_be_bytes(), vec![round; 20_000]).unwrap();
    };
    (0..100).for_each(|key| put(key, 1));
    (0..100).filter(|key| key % 4 != 0).for_each(|key| put(key, 2));
}

/// The last value of each key that a feed tells.
fn last_told(
    feed: impl Iterator<Item = Result<CommitChanges, Error>>,
) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let told = feed.flat_map(|commit| commit.unwrap().changes).map(|change| match change.kind {
        ChangeKind::Put { key, value, .. } => (key.to_vec(), value.map(|value| value.to_vec())),
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn a_large_value_that_is_current_is_told_also_where_its_moment_is_not_kept() {
    let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
    let builder = small_log(MemoryStorage::new()).kept_log_size(u64::MAX).value_file_size(1 << 20);
    let db = builder.clock(Arc::clone(&clock) as Arc<_>).open(PATH).unwrap();
    let options = KeyspaceOptions::history().keep_for(Duration::from_secs(1));
    let keyspace = db.create_keyspace("k", options).unwrap();
    put_large(&keyspace);
    clock.advance(Duration::from_secs(60));
    keyspace.put("last", "one").unwrap();
    db.compact().unwrap();
    let moved = db.vacuum().unwrap();
    assert!(moved.value_bytes_moved > 0, "{moved:?}");
    step_to_rest(&db);
    let first = db.commits(..).unwrap().next().unwrap().unwrap().seqno;
    assert!(matches!(
        keyspace.get_at(0u32.to_be_bytes(), first),
        Err(Error::BeyondRetention { .. })
    ));
    let told = last_told(db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap());
    assert_eq!(told.len(), 101);
    for (key, value) in told {
        assert_eq!(value.as_deref(), keyspace.get(&key).unwrap().as_deref(), "{key:?}");
    }
    assert_sound(&db);
}

#[test]
fn a_value_whose_place_cannot_be_read_is_not_said_to_be_gone() {
    let storage = SimStorage::new(1);
    let open = || {
        let builder = small_log(storage.clone()).kept_log_size(u64::MAX);
        builder.value_file_size(1 << 20).open(PATH).unwrap()
    };
    let db = open();
    let keyspace = db.keyspace_or_create("k").unwrap();
    put_large(&keyspace);
    let moved = db.vacuum().unwrap();
    assert!(moved.value_bytes_moved > 0, "{moved:?}");
    step_to_rest(&db);
    drop(keyspace);
    db.close().unwrap();
    drop(db);
    let db = open(); // With nothing of it in memory.
    let mut feed = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let eio =
        FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::Read]).path("keyspaces").lasting();
    storage.arm(FaultPlan::new().rule(eio));
    assert!(matches!(feed.next(), Some(Err(Error::Io { .. }))));
    storage.arm(FaultPlan::new());
    let told = last_told(feed);
    assert_eq!(told.len(), 100);
    let keyspace = db.keyspace("k").unwrap();
    for (key, value) in told {
        assert_eq!(value.as_deref(), keyspace.get(&key).unwrap().as_deref(), "{key:?}");
    }
}

#[test]
fn who_is_done_with_everything_has_its_place_behind_a_crash_however_little_is_kept() {
    let modes = [CrashMode::KeepAll, CrashMode::DropAll, CrashMode::Prefix];
    for (seed, mode) in modes.into_iter().enumerate() {
        let storage = SimStorage::new(seed as u64);
        let db = small_log(storage.clone()).open(PATH).unwrap();
        let keyspace = db.keyspace_or_create("k").unwrap();
        fill_log(&db, &keyspace, 30);
        // Far less than a log file, and in the middle of one.
        db.create_consumer("tight", 4 << 10).unwrap();
        let mut tight = db.consumer("tight", FeedOptions::new()).unwrap();
        for number in 0..50u32 {
            let stamp = keyspace.put(number.to_be_bytes(), [7; 1000]).unwrap();
            assert_eq!(tight.next().unwrap().unwrap().seqno, stamp);
            tight.acknowledge(stamp).unwrap();
        }
        // What it has said is not durable yet, and the log could begin in the next file.
        db.flush().unwrap();
        let newest = db.snapshot().seqno();
        let told = &db.consumers().unwrap()[0];
        assert_eq!((told.done, told.is_lost), (newest, false));
        let storage = storage.crash(mode, 1);
        drop((tight, keyspace, db));

        // Whatever size of files is asked for from now on.
        let db = small_log(storage).wal_file_size(16 << 10).open(PATH).unwrap();
        db.flush().unwrap();
        let told = &db.consumers().unwrap()[0];
        assert!(!told.is_lost && told.done < newest, "{told:?}");
        let mut tight = db.consumer("tight", FeedOptions::new()).unwrap();
        // It says part of it again, and is not left behind for that.
        let again = tight.next().unwrap().unwrap().seqno;
        tight.acknowledge(again).unwrap();
        db.flush().unwrap();
        assert!(!db.consumers().unwrap()[0].is_lost);
        tight.acknowledge(newest).unwrap();
        let keyspace = db.keyspace("k").unwrap();
        let stamp = keyspace.put("behind", "it").unwrap();
        assert_eq!(stamps_of(tight), [stamp]);
        assert_sound(&db);
    }
}

#[test]
fn who_asks_for_durable_commits_is_shown_none_that_a_crash_takes() {
    let storage = SimStorage::new(1);
    let db = small_log(storage.clone()).open(PATH).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let history = db.create_keyspace("history", KeyspaceOptions::history()).unwrap();
    let durable = || FeedOptions::new().durable_only(true);
    db.create_consumer("named", u64::MAX).unwrap();
    let first = keyspace.put_with("a", "1", Durability::Buffered).unwrap();
    let mut feed = db.changes(SeqNo::ZERO, durable()).unwrap();
    let mut named = db.consumer("named", durable()).unwrap();
    assert!(feed.next().is_none() && named.next().is_none());
    assert!(feed.wait(Duration::ZERO).unwrap().is_none());
    db.sync().unwrap();
    assert_eq!(stamps_of(&mut feed), [first]);
    assert_eq!(stamps_of(&mut named), [first]);
    // The same, where what is durable ends in a file of before.
    for number in 0..100u32 {
        keyspace.put_with(number.to_be_bytes(), [1; 1000], Durability::Buffered).unwrap();
    }
    let mut later = db.changes(first, durable()).unwrap();
    assert!(later.next().is_none() && feed.next().is_none());
    db.sync().unwrap();
    let shown = stamps_of(&mut later);
    assert_eq!(shown.len(), 100);
    assert_eq!(stamps_of(&mut feed), shown);
    // What versions tell, and up to where nothing that is asked for has come.
    history.put("h", "1").unwrap();
    named.acknowledge(first).unwrap();
    db.remove_consumer("named").unwrap();
    drop((feed, named, later));
    fill_log(&db, &keyspace, 200);
    keyspace.put_with("z", "1", Durability::Buffered).unwrap();
    let options = durable().keyspaces([&history]);
    let mut of_history = db.changes(SeqNo::ZERO, options.clone()).unwrap();
    assert_eq!(stamps_of(&mut of_history).len(), 1);
    let position = of_history.position();
    assert!(position > shown[99], "{position}");
    let lost = history.put_with("h", "2", Durability::Buffered).unwrap();
    let behind = db.changes(position, options.clone()).unwrap();
    assert_eq!(stamps_of(behind), []);
    let storage = storage.crash(CrashMode::DropAll, 1);
    drop((of_history, keyspace, history, db));
    let db = small_log(storage).open(PATH).unwrap();
    let history = db.keyspace("history").unwrap();
    assert!(db.snapshot().seqno() < lost);
    // It goes on where it was.
    let options = durable().keyspaces([&history]);
    let mut goes_on = db.changes(position, options).unwrap();
    let stamp = history.put_with("h", "3", Durability::Sync).unwrap();
    assert_eq!(stamps_of(&mut goes_on), [stamp]);
}

#[test]
fn a_feed_that_the_log_has_left_behind_goes_on_from_versions() {
    let db = small_log(MemoryStorage::new()).open(PATH).unwrap();
    let history = db.create_keyspace("history", KeyspaceOptions::history()).unwrap();
    let plain = db.keyspace_or_create("plain").unwrap();
    let of_history = || FeedOptions::new().keyspaces([&history]);
    let mut feed = db.changes(SeqNo::ZERO, of_history()).unwrap();
    let mut of_both = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let first = history.put("a", "0").unwrap();
    assert_eq!(stamps_of(&mut feed), [first]);
    assert_eq!(stamps_of(&mut of_both), [first]);
    for round in 1..4 {
        let stamps: Vec<SeqNo> =
            (0..3u8).map(|number| history.put([b'a' + number], [round]).unwrap()).collect();
        fill_log(&db, &plain, 300);
        let live = history.put("live", [round]).unwrap();
        let mut expected = stamps.clone();
        expected.push(live);
        let shown = match round {
            1 => stamps_of(&mut feed),
            // It waits, and is told the same.
            _ => std::iter::from_fn(|| feed.wait(Duration::ZERO).unwrap())
                .map(|commit| commit.seqno)
                .collect(),
        };
        assert_eq!(shown, expected, "round {round}");
        assert_eq!(feed.position(), live);
    }
    // Who asks for more than versions is told, and where it can go on; as often as it asks.
    for _ in 0..2 {
        let Some(Err(Error::CommitsNotKept { oldest: Some(oldest) })) = of_both.next() else {
            panic!("it is behind")
        };
        assert!(oldest > first);
        let goes_on = stamps_of(db.changes(oldest, FeedOptions::new()).unwrap());
        assert!(!goes_on.is_empty() && goes_on[0] > oldest);
    }
    // So is who asks for what is not there any more; then nothing is left out without a word.
    history.put("last", "one").unwrap();
    fill_log(&db, &plain, 300);
    db.drop_keyspace("history").unwrap();
    assert!(matches!(feed.next(), Some(Err(Error::CommitsNotKept { .. }))));
}

#[test]
fn a_consumer_that_the_log_has_left_behind_is_lost_also_where_versions_are_kept() {
    let db = small_log(MemoryStorage::new()).open(PATH).unwrap();
    let history = db.create_keyspace("history", KeyspaceOptions::history()).unwrap();
    db.create_consumer("named", 4 << 10).unwrap();
    let mut named = db.consumer("named", FeedOptions::new().keyspaces([&history])).unwrap();
    let first = history.put("a", "0").unwrap();
    assert_eq!(stamps_of(&mut named), [first]);
    fill_log(&db, &history, 500);
    // Its place is one in the log: what it says it is done with there says nothing of versions.
    assert!(matches!(named.next(), Some(Err(Error::CommitsNotKept { oldest: Some(_) }))));
    assert!(db.consumers().unwrap()[0].is_lost);
}

#[test]
fn that_the_log_goes_on_in_new_files_without_commits_leaves_nobody_behind() {
    let entropy = Arc::new(SeededEntropy::new(1));
    let db = small_log(SimStorage::new(1))
        .encryption(Encryption::key([7; 32]).simulated(entropy))
        .open(PATH)
        .unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    let mut feed = db.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let mut expected = fill_log(&db, &keyspace, 30);
    assert_eq!(stamps_of(&mut feed), expected);
    for number in 0..3u32 {
        // Each begins a file, and has those of before go; syncs between leave marks.
        for _ in 0..=number {
            assert!(db.rotate_data_key().unwrap().is_complete);
            db.sync().unwrap();
        }
        let newest = *expected.last().unwrap();
        assert_eq!(stamps_of(&mut feed), []);
        assert_eq!(stamps_of(db.changes(newest, FeedOptions::new()).unwrap()), []);
        expected.push(keyspace.put("k", number.to_be_bytes()).unwrap());
        assert_eq!(stamps_of(&mut feed), expected[expected.len() - 1..]);
    }
}
