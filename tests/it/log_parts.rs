//! A log that is replayed in parts: what is opened is what it would be in one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lithedb::base::{Entropy, ManualClock, SeededEntropy};
use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Background, Builder, Db, Durability, KeyspaceOptions, SeqNo, WriteBatch};

use crate::support::{PATH, assert_sound, rows, step_to_rest};

/// Long ago, so that nothing that expires is there any more, or far from it.
const START: u64 = 1_000_000;

/// A builder whose memtables are never full, so that everything is in the log.
fn builder(storage: &SimStorage) -> Builder {
    let clock = Arc::new(ManualClock::at_millis(START));
    let builder = Db::builder().storage(Arc::new(storage.clone())).clock(clock);
    let builder = builder.memory_budget(64 << 20).memtable_size(8 << 20).wal_file_size(16 << 10);
    builder.value_file_size(64 << 10).background(Background::Stepped)
}

fn options() -> [(&'static str, KeyspaceOptions); 4] {
    [
        ("flex", KeyspaceOptions::flex().value_separation(Some(500))),
        ("lsm", KeyspaceOptions::lsm().memtable_size(24 << 10)),
        ("history", KeyspaceOptions::history()),
        ("counters", KeyspaceOptions::flex().merge_operator("counter")),
    ]
}

/// Commits of all kinds of writes, from number `from` on; those in the middle go to one keyspace
/// alone, so that others have something in some parts only.
fn write(db: &Db, from: u64, count: u64) {
    let random = SeededEntropy::new(from);
    let keyspaces = options().map(|(name, options)| match db.keyspace(name) {
        Ok(keyspace) => keyspace,
        Err(_) => db.create_keyspace(name, options).unwrap(),
    });
    for number in from..from + count {
        let mut batch = WriteBatch::new();
        let in_middle = (from + count / 3..from + count / 2).contains(&number);
        for keyspace in keyspaces.iter().take(if in_middle { 1 } else { 3 }) {
            let key = format!("{:03}", random.next_u64() % 300);
            let len = if random.next_u64().is_multiple_of(20) { 700 } else { 40 };
            match random.next_u64() % 12 {
                0 => batch.delete(keyspace, key),
                1 => batch.delete_range(keyspace, key.clone()..format!("{key}9")),
                2 => batch.put_with_ttl(keyspace, key, "1 h", Duration::from_secs(3600)),
                _ => batch.put(keyspace, key, [number as u8].repeat(len)),
            };
        }
        if !in_middle {
            let key = format!("{:02}", random.next_u64() % 30);
            batch.merge(&keyspaces[3], key, 1i64.to_le_bytes());
        }
        let durability = if number % 50 == 0 { Durability::Sync } else { Durability::Buffered };
        db.write_with(batch, durability).unwrap();
    }
}

/// What can be seen: rows, what happened to some keys, and the changes in the log.
#[derive(Debug, PartialEq)]
struct Shown {
    rows: BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>,
    counts: Vec<u64>,
    histories: Vec<String>,
    newest: SeqNo,
    commits: u64,
}

fn shown(db: &Db) -> Shown {
    let of_each = |(name, _): (&'static str, _)| (name, rows(&db.keyspace(name).unwrap()));
    let rows = options().map(of_each).into_iter().collect();
    let count = |(name, _): (&str, _)| db.keyspace(name).unwrap().count::<&[u8]>(..).unwrap();
    let history = db.keyspace("history").unwrap();
    let of_key = |number: u32| {
        let versions = history.history(format!("{number:03}"), ..).unwrap();
        format!("{:?}", versions.map(Result::unwrap).collect::<Vec<_>>())
    };
    Shown {
        rows,
        counts: options().map(count).to_vec(),
        histories: (0..300).step_by(7).map(of_key).collect(),
        newest: db.snapshot().seqno(),
        commits: db.stats().lifetime_commits,
    }
}

/// What memtables take, all of which is accounted for; and with it an archive's, which is empty.
fn memory_of_memtables(db: &Db) -> u64 {
    let stats = db.stats();
    let taken = stats.keyspaces.iter().map(|keyspace| keyspace.memtable_bytes).sum();
    assert!((taken..taken + 4096).contains(&stats.memory_memtable), "{taken}: {stats:?}");
    taken
}

/// Opens what a killed process has left, in parts of that size if it is said.
fn reopened(left: &SimStorage, part_size: Option<u64>, background: Background) -> Db {
    let builder = builder(left).background(background);
    let builder = match part_size {
        Some(bytes) => builder.replay_part_size(bytes),
        None => builder,
    };
    builder.open(PATH).unwrap()
}

#[test]
fn what_is_replayed_in_parts_is_what_it_is_in_one() {
    for seed in 0..4 {
        let storage = SimStorage::new(seed);
        let db = builder(&storage).open(PATH).unwrap();
        write(&db, 1000 * seed, 150);
        if seed % 2 == 1 {
            db.step().unwrap(); // One keyspace has less in the log than the others.
        }
        write(&db, 1000 * seed + 500, 700);
        let expected = shown(&db);
        let left = storage.crash(CrashMode::KeepAll, seed);
        drop(db);
        let whole = reopened(&left.duplicate(), None, Background::Stepped);
        assert_eq!(whole.recovery().wal_parts, 1);
        assert_eq!(shown(&whole), expected, "seed {seed}");
        let memtables = memory_of_memtables(&whole);
        let cases = [(1, Background::Stepped), (50 << 10, Background::Stepped)];
        for (part_size, background) in cases.into_iter().chain([(1, Background::Threads)]) {
            let left = left.duplicate();
            let db = reopened(&left, Some(part_size), background);
            if std::thread::available_parallelism().map_or(1, usize::from) > 1 {
                assert_eq!(db.recovery().wal_parts, 2);
            }
            assert_eq!(db.recovery().wal_records, whole.recovery().wal_records);
            assert_eq!(shown(&db), expected, "seed {seed}, {part_size}, {background:?}");
            if background == Background::Stepped {
                let taken = memory_of_memtables(&db);
                assert!(taken < 2 * memtables, "{taken}, and in one part {memtables}");
                step_to_rest(&db);
            }
            assert_sound(&db);
            write(&db, 9000, 50);
            let expected = shown(&db);
            // What is flushed of the parts does not come back, nor is anything of them lost.
            db.step().unwrap();
            let left = left.crash(CrashMode::KeepAll, 7);
            drop(db);
            let again = reopened(&left, Some(part_size), Background::Stepped);
            assert_eq!(shown(&again), expected);
            again.close().unwrap();
            drop(again);
            let closed = reopened(&left, Some(1), Background::Stepped);
            assert_eq!(shown(&closed), expected);
            assert_sound(&closed);
        }
    }
}

/// The power goes while nothing is durable but what was said to be: whichever part the end of the
/// log is in, the newest commits go, and none in front of them.
#[test]
fn what_a_power_cut_takes_is_the_end_in_whatever_part_it_lies() {
    let storage = SimStorage::new(11);
    let db = builder(&storage).open(PATH).unwrap();
    write(&db, 0, 600);
    let mut ends = Vec::new();
    for (number, mode) in [CrashMode::DropAll, CrashMode::Prefix, CrashMode::RandomSectors]
        .into_iter()
        .flat_map(|mode| (0..6).map(move |number| (number, mode)))
    {
        let left = storage.crash(mode, number);
        let whole = reopened(&left.duplicate(), None, Background::Stepped);
        let parted = reopened(&left.duplicate(), Some(1), Background::Threads);
        assert_eq!(shown(&parted), shown(&whole), "{mode:?} {number}");
        assert_eq!(parted.recovery().wal_bytes_cut, whole.recovery().wal_bytes_cut);
        ends.push(shown(&whole).newest);
    }
    drop(db);
    ends.sort_unstable();
    ends.dedup();
    assert!(ends.len() > 2, "{ends:?}");
}
