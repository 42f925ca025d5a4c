//! Runs of one entry beside runs of a thousand, merged in whatever order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lithe_sim::crash::CrashRun;
use lithe_sim::ledger::Ledger;
use lithe_sim::random::Random;
use lithedb::storage::{CrashMode, MemoryStorage, Operation, SimStorage};
use lithedb::{Background, Db, Durability, Error, Keyspace, KeyspaceOptions, SeqNo, Structure};

use crate::support::{PATH, assert_sound, open_tiny_with_threads, step_to_rest, tiny_structures};

const KEY_COUNT: u64 = 2000;
const ROUND_COUNT: u64 = 24;

/// With memtables that hold any of the runs whole.
fn open(storage: &SimStorage) -> Db {
    let builder = Db::builder().storage(Arc::new(storage.clone()));
    let builder = builder.background(Background::Stepped).memory_budget(8 << 20);
    builder.memtable_size(2 << 20).open(PATH).unwrap()
}

/// Of each key that is there, its value and the commit that wrote it.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, SeqNo)>;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Mostly short, some as long as a block.
fn value(random: &mut Random) -> Vec<u8> {
    let len = random.pick(&[0, 3, 10, 40, 40, 1200]);
    vec![random.draw() as u8; len]
}

fn content(keyspace: &Keyspace) -> Model {
    let entries = keyspace.iter().map(|entry| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), (entry.value.to_vec(), entry.seqno))
    });
    entries.collect()
}

/// Writes and flushes one run: of 1, 4, 16 .. or 1024 changes.
fn write_run(db: &Db, keyspace: &Keyspace, model: &mut Model, random: &mut Random) {
    let first = random.below(KEY_COUNT);
    let step = random.pick(&[1, 1, 7, 61]);
    for change in 0..1 << (2 * random.below(6)) {
        let key = key((first + change * step) % KEY_COUNT);
        if random.chance(250) {
            keyspace.delete_with(&key, Durability::Buffered).unwrap();
            model.remove(&key);
        } else {
            let value = value(random);
            let seqno = keyspace.put_with(&key, &value, Durability::Buffered).unwrap();
            model.insert(key, (value, seqno));
        }
    }
    if random.chance(200) {
        let (start, end) = (key(first), key(first + random.below(200)));
        keyspace.delete_range(start.clone()..end.clone()).unwrap();
        model.retain(|key, _| *key < start || *key >= end);
    }
    db.flush().unwrap();
}

/// Has some of the runs merged: a range of keys, what is due, all, or nothing.
fn merge_some(db: &Db, keyspace: &Keyspace, random: &mut Random) {
    match random.below(5) {
        0 => {
            let first = random.below(KEY_COUNT);
            keyspace.compact(key(first)..key(first + random.below(KEY_COUNT))).unwrap();
        }
        1 => step_to_rest(db),
        2 => (0..random.below(4)).for_each(|_| assert!(db.step().is_ok())),
        3 => keyspace.compact::<&[u8]>(..).unwrap(),
        _ => {}
    }
}

/// Lessons 6 and 7: nothing is resurrected, and each entry keeps its key and its stamp; also for
/// who looks at a moment of before, and behind a crash.
#[test]
fn the_newest_wins_in_whatever_order_unlike_runs_are_merged() {
    for (seed, options) in (0..24).zip(tiny_structures().into_iter().cycle()) {
        let (storage, mut random) = (SimStorage::new(seed), Random::new(seed));
        let db = open(&storage);
        let keyspace = db.create_keyspace("a", options.memtable_size(1 << 20)).unwrap();
        let mut model = Model::new();
        let mut held = Vec::new();
        for round in 0..ROUND_COUNT {
            write_run(&db, &keyspace, &mut model, &mut random);
            if random.chance(250) {
                held.push((db.snapshot(), model.clone()));
            }
            merge_some(&db, &keyspace, &mut random);
            assert!(content(&keyspace) == model, "seed {seed}, round {round}");
            if random.chance(250) {
                let mode = random.pick(&CrashMode::ALL);
                let crashed = open(&storage.crash(mode, round));
                let found = content(&crashed.keyspace("a").unwrap());
                assert!(found == model, "seed {seed}, round {round}, {mode:?}");
            }
        }
        for (snapshot, shown) in held {
            let entries = snapshot.iter(&keyspace).map(Result::unwrap);
            let entries = entries.map(|it| (it.key.to_vec(), (it.value.to_vec(), it.seqno)));
            assert!(entries.eq(shown), "seed {seed}");
        }
        assert_sound(&db);
    }
}

/// Lessons 6 and 21, of tables: at each removal of a file the machine stops.
#[test]
fn the_newest_wins_after_a_crash_at_each_removal_of_a_table() {
    let ledger = Arc::new(Ledger::new());
    for seed in 100..102 {
        let mut run = CrashRun { structure: Some(Structure::Lsm), ..CrashRun::of_seed(seed, 5) };
        run.op_count = 120;
        run.only_operation = Some(Operation::Remove);
        run.run(&ledger);
    }
    ledger.assert_clean();
    assert!(ledger.counted(lithe_sim::crash::POINTS) > 4);
}

/// Each key has the number of the round that wrote it, which only grows; and is there.
fn read_until_closed(keyspace: &Keyspace, is_over: &AtomicBool) -> u64 {
    let mut newest = vec![0; KEY_COUNT as usize];
    let mut passes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut next = 0;
        for entry in keyspace.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Error::Closed) => return passes,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(*entry.key, *key(next as u64));
            let round = u64::from_be_bytes((*entry.value).try_into().unwrap());
            assert!(round >= newest[next], "{next}");
            newest[next] = round;
            next += 1;
        }
        assert_eq!(next as u64, KEY_COUNT);
        passes += 1;
    }
    passes
}

fn write_beside_readers(options: KeyspaceOptions) {
    let db = open_tiny_with_threads(Arc::new(MemoryStorage::new()));
    let keyspace = db.create_keyspace("a", options).unwrap();
    let put = |number, round: u64| {
        keyspace.put_with(key(number), round.to_be_bytes(), Durability::Buffered).unwrap();
    };
    (0..KEY_COUNT).for_each(|number| put(number, 0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || read_until_closed(&keyspace, &is_over);
        let readers = [scope.spawn(read), scope.spawn(read)];
        for round in 1..16_u64 {
            let count = 1 << (2 * (round % 6));
            (0..count).for_each(|change| put((round * 331 + change * 7) % KEY_COUNT, round));
            match round % 4 {
                0 => keyspace.compact::<&[u8]>(..).unwrap(),
                1 => drop(db.vacuum().unwrap()),
                _ => db.flush().unwrap(),
            }
        }
        db.close().unwrap();
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| assert!(reader.join().is_ok()));
    });
}

/// Lesson 11, with threads: while tables are merged, vacuumed and closed.
#[test]
fn readers_beside_merging_vacuum_and_close_see_right_rows() {
    tiny_structures().into_iter().for_each(write_beside_readers);
}
