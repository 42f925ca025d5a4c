//! Random operations against maps: the index of a keyspace is always what its extractor says of the
//! entries that are there, whatever was written and done in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use lithe_sim::parallel::run_cases;
use lithe_sim::random::Random;
use lithedb::base::ManualClock;
use lithedb::storage::MemoryStorage;
use lithedb::{
    Background, Builder, Db, Durability, Error, Index, IndexOptions, Keyspace, KeyspaceOptions,
    Snapshot, Transaction, WriteBatch,
};

use super::{Pair, START, pairs, pairs_within, words};
use crate::THREADS;
use crate::support::{PATH, assert_sound, step_to_rest, tiny_structures};

const NEVER: u64 = u64::MAX;
const INDEX: &str = "by_word";

/// Values, and when they expire.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

#[derive(Clone, Debug)]
enum Operation {
    Put(Vec<u8>, Vec<u8>, Option<u64>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    Clear,
}

fn apply(rows: &mut Rows, operation: &Operation, now: u64) {
    match operation {
        Operation::Put(key, value, ttl) => {
            let until = ttl.map_or(NEVER, |ttl| now + ttl);
            rows.insert(key.clone(), (value.clone(), until));
        }
        Operation::Delete(key) => drop(rows.remove(key)),
        Operation::DeleteRange(start, end) => rows.retain(|key, _| key < start || key >= end),
        Operation::Clear => rows.clear(),
    }
}

/// What the index should have.
fn brute_force(rows: &Rows, now: u64) -> Vec<Pair> {
    let mut found = BTreeSet::new();
    for (key, (value, _)) in rows.iter().filter(|(_, (_, until))| now < *until) {
        let words = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        found.extend(words.map(|word| (word.to_vec(), key.clone())));
    }
    found.into_iter().collect()
}

struct Bench {
    random: Random,
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
    db: Db,
    k: Keyspace,
    rows: Rows,
    /// What snapshots should show.
    held: Vec<(Snapshot, Vec<Pair>)>,
}

fn builder(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Builder {
    Db::builder()
        .storage(Arc::new(storage.clone()))
        .clock(Arc::clone(clock) as Arc<_>)
        .background(Background::Stepped)
        .durability(Durability::Buffered)
        .index_extractor("words", words)
        .value_file_size(64 << 10)
        .memory_budget(8 << 20)
}

impl Bench {
    fn new(seed: u64, options: KeyspaceOptions) -> Bench {
        let clock = Arc::new(ManualClock::at_millis(START));
        let storage = MemoryStorage::new();
        let db = builder(&storage, &clock).open(PATH).unwrap();
        let mut options = options.memtable_size(16 << 10).value_separation(Some(200));
        options.merge_operator = None; // Some of what is put expires.
        let k = db.create_keyspace("k", options).unwrap();
        let (random, rows, held) = (Random::new(seed), Rows::new(), Vec::new());
        Bench { random, clock, storage, db, k, rows, held }
    }

    fn now(&self) -> u64 {
        // Stamps are not below what they were given before.
        START.max(
            self.db
                .snapshot()
                .time()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| u64::try_from(d.as_millis()).unwrap()),
        )
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(80);
        let mut key = format!("k{}", number / 4).into_bytes();
        key.extend((0..number % 4).map(|index| u8::from(index == 1)));
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let count = self.random.below(5);
        let mut value = Vec::new();
        for _ in 0..count {
            match self.random.below(8) {
                0 => value.extend_from_slice(&[0, 0]),
                1 => value.extend_from_slice(&[b'w', 0]),
                2 => value.extend(std::iter::repeat_n(b'l', 150)),
                _ => value.extend_from_slice(format!("w{}", self.random.below(12)).as_bytes()),
            }
            value.push(b' ');
        }
        value
    }

    fn operation(&mut self) -> Operation {
        match self.random.below(24) {
            0..4 => Operation::Delete(self.key()),
            4 | 5 => {
                let (start, end) = (self.key(), self.key());
                Operation::DeleteRange(start.clone().min(end.clone()), start.max(end))
            }
            6 if self.random.below(10) == 0 => Operation::Clear,
            _ => {
                let ttl = (self.random.below(6) == 0).then(|| self.random.below(300) + 1);
                Operation::Put(self.key(), self.value(), ttl)
            }
        }
    }

    fn operations(&mut self) -> Vec<Operation> {
        let count = if self.random.below(3) == 0 { 1 + self.random.below(15) } else { 1 };
        (0..count).map(|_| self.operation()).collect()
    }

    fn write_batch(&mut self) {
        let operations = self.operations();
        let mut batch = WriteBatch::new();
        for operation in &operations {
            match operation {
                Operation::Put(key, value, None) => batch.put(&self.k, key, value),
                Operation::Put(key, value, Some(ttl)) => {
                    batch.put_with_ttl(&self.k, key, value, Duration::from_millis(*ttl));
                }
                Operation::Delete(key) => batch.delete(&self.k, key),
                Operation::DeleteRange(start, end) => {
                    batch.delete_range(&self.k, start.as_slice()..end.as_slice());
                }
                Operation::Clear => batch.delete_prefix(&self.k, ""),
            }
        }
        let stamp = self.db.write(batch).unwrap();
        for operation in &operations {
            apply(&mut self.rows, operation, stamp.millis());
        }
    }

    fn run_in(&self, transaction: &mut Transaction, operation: &Operation) {
        match operation {
            Operation::Put(key, value, None) => transaction.put(&self.k, key, value).unwrap(),
            Operation::Put(key, value, Some(ttl)) => {
                let ttl = Duration::from_millis(*ttl);
                transaction.put_with_ttl(&self.k, key, value, ttl).unwrap();
            }
            Operation::Delete(key) => transaction.delete(&self.k, key).unwrap(),
            Operation::DeleteRange(start, end) => {
                transaction.delete_range(&self.k, start.as_slice()..end.as_slice()).unwrap();
            }
            Operation::Clear => transaction.delete_prefix(&self.k, "").unwrap(),
        }
    }

    /// A transaction that goes back to a savepoint, reads its own index entries, and is committed
    /// or not.
    fn write_in_transaction(&mut self) {
        let now = self.now();
        let (kept, undone) = (self.operations(), self.operations());
        let mut transaction = self.db.begin_update();
        let mut rows = self.rows.clone();
        for operation in &kept {
            self.run_in(&mut transaction, operation);
            apply(&mut rows, operation, now);
        }
        if self.random.below(2) == 0 {
            let savepoint = transaction.savepoint().unwrap();
            undone.iter().for_each(|operation| self.run_in(&mut transaction, operation));
            transaction.rollback_to(savepoint).unwrap();
        }
        if let Ok(index) = self.k.index(INDEX)
            && index.info().unwrap().is_ready
        {
            let found = pairs_within(&transaction.index(&index).unwrap());
            assert_eq!(found, brute_force(&rows, now));
        }
        if self.random.below(4) > 0 {
            match transaction.commit() {
                Ok(stamp) => kept
                    .iter()
                    .for_each(|operation| apply(&mut self.rows, operation, stamp.millis())),
                Err(Error::Conflict) => {} // Something that it has seen has expired.
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Creates the index, goes on with building it, builds it anew, or drops it; with writes in
    /// between.
    fn change_index(&mut self) {
        let (k, choice) = (self.k.clone(), self.random.below(4));
        let stop_after = self.random.below(3);
        let mut steps = 0;
        let mut go_on = |_: &lithedb::IndexBuildReport| {
            steps += 1;
            self.write_batch();
            if steps > stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let info = k.index(INDEX).ok().map(|index| index.info().unwrap());
        match (info, choice) {
            (None, 0) => {
                k.create_index_while(INDEX, "words", IndexOptions::new(), &mut go_on).unwrap();
            }
            (None, _) => drop(k.create_index(INDEX, "words", IndexOptions::new()).unwrap()),
            (Some(_), 0) => k.drop_index(INDEX).unwrap(),
            (Some(_), 1) => drop(k.rebuild_index_while(INDEX, &mut go_on).unwrap()),
            (Some(_), _) => drop(k.build_index_while(INDEX, &mut go_on).unwrap()),
        }
    }

    fn reopen(&mut self) {
        self.held.clear();
        self.db.close().unwrap();
        self.db = builder(&self.storage, &self.clock).open(PATH).unwrap();
        self.k = self.db.keyspace("k").unwrap();
    }

    fn ready_index(&self) -> Option<Index> {
        self.k.index(INDEX).ok().filter(|index| index.info().unwrap().is_ready)
    }

    fn check(&mut self) {
        let Some(index) = self.ready_index() else { return };
        let (word, now) = (format!("w{}", self.random.below(12)).into_bytes(), self.now());
        let expected = brute_force(&self.rows, now);
        assert_eq!(pairs(index.iter()), expected);
        let back: Vec<Pair> = index
            .iter()
            .rev()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.index_key().to_vec(), entry.primary_key().to_vec()))
            .collect();
        assert!(back.iter().rev().eq(&expected));
        let of_word: Vec<Pair> =
            expected.iter().filter(|(index_key, _)| *index_key == word).cloned().collect();
        assert_eq!(pairs(index.get(&word)), of_word);
        let above = expected.iter().filter(|(index_key, _)| *index_key >= word).count();
        assert_eq!(index.count(word.as_slice()..).unwrap(), above as u64);
        for entry in index.prefix(&word) {
            let entry = entry.unwrap();
            let (value, _) = &self.rows[entry.primary_key()];
            assert_eq!(&*entry.value().unwrap(), value.as_slice());
        }
        for (snapshot, expected) in &self.held {
            // It may be another index by now, that was not there then.
            if let Ok(view) = index.at(snapshot) {
                assert_eq!(&pairs(view.iter()), expected);
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..55 => self.write_batch(),
            55..68 => self.write_in_transaction(),
            68..73 => self.clock.advance(Duration::from_millis(self.random.below(80))),
            73..76 => self.db.flush().unwrap(),
            76..80 => drop(self.db.step().unwrap()),
            80 => step_to_rest(&self.db),
            81 => self.db.compact().unwrap(),
            82 => drop(self.db.vacuum().unwrap()),
            83 => self.reopen(),
            84..88 => self.change_index(),
            88 if self.ready_index().is_some() => {
                let snapshot = self.db.snapshot();
                let expected = brute_force(&self.rows, self.now());
                self.held.push((snapshot, expected));
                if self.held.len() > 3 {
                    self.held.remove(0);
                }
            }
            89 => assert_sound(&self.db),
            _ => self.check(),
        }
    }
}

#[test]
fn an_index_is_what_its_extractor_says_of_what_is_there() {
    let [flex, leveled, tiered] = tiny_structures();
    let history = KeyspaceOptions::history().interval_size(1024).segment_size(16 << 10);
    let structures = [flex, leveled, tiered, history];
    run_cases(THREADS, 32, |seed| {
        let options = structures[seed as usize % structures.len()].clone();
        let mut bench = Bench::new(seed, options);
        // So that time is looked at from the beginning.
        bench.k.put_with_ttl("first", "", Duration::from_millis(1)).unwrap();
        bench.rows.insert(b"first".to_vec(), (Vec::new(), START + 1));
        for _ in 0..600 {
            bench.step();
        }
        bench.k.index_or_create(INDEX, "words", IndexOptions::new()).unwrap();
        bench.check();
        assert_sound(&bench.db);
        true
    });
}
