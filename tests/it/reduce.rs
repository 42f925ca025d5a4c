//! Reductions against going through everything.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lithe_sim::random::Random;
use lithedb::base::ManualClock;
use lithedb::storage::MemoryStorage;
use lithedb::{
    Background, Builder, Db, Entry, Error, Keyspace, KeyspaceOptions, MergeError, Reducer,
    WriteBatch,
};

use crate::support::{assert_sound, step_to_rest};

/// Keys of the first and the last entry: in another order it comes to something else.
struct Ends;

impl Reducer for Ends {
    fn add(
        &self,
        summary: Option<Vec<u8>>,
        key: &[u8],
        _value: &[u8],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let alone = [key, b"|", key].concat();
        match summary {
            Some(summary) => self.join(summary, &alone).map(Some),
            None => Ok(Some(alone)),
        }
    }

    fn join(&self, left: Vec<u8>, right: &[u8]) -> Result<Vec<u8>, MergeError> {
        let middle = |ends: &[u8]| ends.iter().position(|byte| *byte == b'|').unwrap();
        let (left_end, right_end) = (middle(&left), middle(right));
        Ok([&left[..left_end], &right[right_end..]].concat())
    }
}

/// Counts entries, and how often it is asked to.
struct Asked(Arc<AtomicU64>);

impl Reducer for Asked {
    fn add(
        &self,
        summary: Option<Vec<u8>>,
        _key: &[u8],
        _value: &[u8],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.join(summary.unwrap_or_else(|| vec![0; 8]), &1u64.to_le_bytes()).map(Some)
    }

    fn join(&self, left: Vec<u8>, right: &[u8]) -> Result<Vec<u8>, MergeError> {
        let sum = number(&left) + number(right);
        Ok(sum.to_le_bytes().to_vec())
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

const NAMES: [&str; 6] = ["count", "bytes", "sum", "min", "max", "ends"];

/// What entries come to, by the reducer of this name.
fn brute(name: &str, entries: &[Entry]) -> Option<Vec<u8>> {
    let sum = |of: &dyn Fn(&Entry) -> u64| {
        let sum = entries.iter().map(of).fold(0, u64::wrapping_add);
        (!entries.is_empty()).then(|| sum.to_le_bytes().to_vec())
    };
    match name {
        "count" => sum(&|_| 1),
        "bytes" => sum(&|entry| (entry.key.len() + entry.value.len()) as u64),
        "sum" => sum(&|entry| number(&entry.value)),
        "min" => entries.iter().map(|entry| entry.value.to_vec()).min(),
        "max" => entries.iter().map(|entry| entry.value.to_vec()).max(),
        _ => {
            let (first, last) = (entries.first()?, entries.last()?);
            Some([&*first.key, b"|", &*last.key].concat())
        }
    }
}

struct Bench {
    random: Random,
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
    db: Db,
    k: Keyspace,
}

fn builder(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Builder {
    Db::builder()
        .reducer("ends", Ends)
        .storage(Arc::new(storage.clone()))
        .clock(Arc::clone(clock) as Arc<_>)
        .background(Background::Stepped)
        .memory_budget(4 << 20)
        .flush_slice_size(1 << 10)
}

impl Bench {
    fn new(seed: u64, options: KeyspaceOptions) -> Bench {
        let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
        let storage = MemoryStorage::new();
        let db = builder(&storage, &clock).open("/db").unwrap();
        let k = db.create_keyspace("k", options.memtable_size(8 << 10)).unwrap();
        Bench { random: Random::new(seed), clock, storage, db, k }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{:04}", self.random.below(900)).into_bytes()
    }

    fn value(&mut self) -> [u8; 8] {
        self.random.below(u64::MAX).to_le_bytes()
    }

    fn step(&mut self, expire: bool) {
        match self.random.below(100) {
            0..60 => {
                let mut batch = WriteBatch::new();
                for _ in 0..=self.random.below(8) {
                    let (key, value) = (self.key(), self.value());
                    batch.put(&self.k, key, value);
                }
                self.db.write(batch).unwrap();
            }
            60..68 => {
                let key = self.key();
                self.k.delete(key).unwrap();
            }
            68..71 => {
                let (from, len) = (self.random.below(900), self.random.below(120));
                let (from, to) = (format!("{from:04}"), format!("{:04}", from + len));
                self.k.delete_range(from..to).unwrap();
            }
            71..73 if expire => {
                let (key, value) = (self.key(), self.value());
                let life = Duration::from_millis(1 + self.random.below(500));
                self.k.put_with_ttl(key, value, life).unwrap();
            }
            73..76 => self.clock.advance(Duration::from_millis(self.random.below(50))),
            76..80 => drop(self.db.step().unwrap()),
            80..83 => self.db.flush().unwrap(),
            83 => step_to_rest(&self.db),
            84 => self.db.compact().unwrap(),
            85 => {
                self.db.close().unwrap();
                self.db = builder(&self.storage, &self.clock).open("/db").unwrap();
                self.k = self.db.keyspace("k").unwrap();
            }
            _ => self.check(),
        }
    }

    fn check(&mut self) {
        let (a, b) = (self.key(), self.key());
        let bounds = match self.random.below(4) {
            0 => (Bound::Unbounded, Bound::Unbounded),
            1 => (Bound::Included(a.clone().min(b.clone())), Bound::Excluded(a.max(b))),
            2 => (Bound::Excluded(a.clone().min(b.clone())), Bound::Included(a.max(b))),
            _ => (Bound::Unbounded, Bound::Excluded(b)),
        };
        let snapshot = self.db.snapshot();
        let entries: Vec<Entry> =
            snapshot.range(&self.k, bounds.clone()).collect::<Result<_, _>>().unwrap();
        for name in NAMES {
            let expected = brute(name, &entries);
            let found = self.k.reduce(name, bounds.clone()).unwrap();
            assert_eq!(found.as_deref(), expected.as_deref(), "{name} {bounds:?}");
            let found = snapshot.reduce(&self.k, name, bounds.clone()).unwrap();
            assert_eq!(found.as_deref(), expected.as_deref(), "{name} {bounds:?}");
        }
        if self.k.keeps_history() {
            self.check_past(bounds);
        }
    }

    fn check_past(&mut self, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)) {
        let versions: Vec<_> = self.k.versions_by_stamp(..).unwrap().collect();
        if versions.is_empty() {
            return;
        }
        let index = self.random.below(versions.len() as u64) as usize;
        let at = versions[index].as_ref().unwrap().seqno;
        let past = self.db.snapshot_at(at).unwrap();
        let entries: Vec<Entry> =
            past.range(&self.k, bounds.clone()).collect::<Result<_, _>>().unwrap();
        for name in ["count", "ends"] {
            let expected = brute(name, &entries);
            let found = self.k.reduce_at(name, bounds.clone(), at).unwrap();
            assert_eq!(found.as_deref(), expected.as_deref(), "{name} {bounds:?} {at}");
            let found = past.reduce(&self.k, name, bounds.clone()).unwrap();
            assert_eq!(found.as_deref(), expected.as_deref(), "{name} {bounds:?} {at}");
        }
    }
}

fn run(options: &KeyspaceOptions, expire: bool) {
    for seed in 0..8 {
        let mut bench = Bench::new(seed, options.clone());
        for _ in 0..1200 {
            bench.step(expire);
        }
        bench.check();
        assert_sound(&bench.db);
    }
}

fn small(options: KeyspaceOptions) -> KeyspaceOptions {
    options.interval_size(512).segment_size(8 << 10)
}

#[test]
fn ranges_of_flex_come_to_what_their_entries_come_to() {
    run(&small(KeyspaceOptions::flex()), false);
    run(&small(KeyspaceOptions::flex().value_separation(Some(64))), true);
}

#[test]
fn ranges_of_lsm_and_history_come_to_what_their_entries_come_to() {
    run(&KeyspaceOptions::lsm(), true);
    run(&small(KeyspaceOptions::history()), true);
}

#[test]
fn operands_count_by_what_they_make() {
    let options = small(KeyspaceOptions::flex().merge_operator("counter"));
    let bench = Bench::new(1, options);
    for round in 0..4u64 {
        for key in 0..500u64 {
            bench.k.merge(key.to_be_bytes(), (key + round).to_le_bytes()).unwrap();
        }
        bench.db.flush().unwrap();
        let expected: u64 = (0..500).map(|key| (0..=round).map(|of| key + of).sum::<u64>()).sum();
        let found = bench.k.reduce::<&[u8]>("sum", ..).unwrap();
        assert_eq!(number(&found.unwrap()), expected);
    }
}

/// Entries that a reducer is asked about while this is done.
fn asked_for(asked: &AtomicU64, work: impl FnOnce()) -> u64 {
    let before = asked.load(Ordering::Relaxed);
    work();
    asked.load(Ordering::Relaxed) - before
}

#[test]
fn what_parts_come_to_is_kept_and_made_anew_where_something_changed() {
    const COUNT: u64 = 20_000;
    let asked = Arc::new(AtomicU64::new(0));
    let db = Db::builder()
        .storage(Arc::new(MemoryStorage::new()))
        .background(Background::Stepped)
        .reducer("asked", Asked(Arc::clone(&asked)));
    let db = db.open("/db").unwrap();
    let k = db.create_keyspace("k", KeyspaceOptions::flex().interval_size(1 << 10)).unwrap();
    for key in 0..COUNT {
        k.put(key.to_be_bytes(), [7; 20]).unwrap();
    }
    db.compact().unwrap();
    let count = |from: u64, to: u64| {
        let found = k.reduce("asked", from.to_be_bytes()..to.to_be_bytes()).unwrap();
        assert_eq!(number(&found.unwrap()), to - from);
    };
    let first = asked_for(&asked, || count(0, COUNT));
    assert!((COUNT..COUNT + 200).contains(&first), "{first}");
    // Two intervals at the ends, of some 30 entries each.
    for (from, to) in [(0, COUNT), (1, COUNT - 1), (5000, 15_000), (777, 19_001)] {
        let again = asked_for(&asked, || count(from, to));
        assert!(again < 200, "{again} from {from} to {to}");
    }
    // A change in a memtable: its interval. In the structure: its interval, once.
    k.put(9999u64.to_be_bytes(), [8; 20]).unwrap();
    let pending = asked_for(&asked, || count(0, COUNT));
    assert!(pending < 300, "{pending}");
    db.flush().unwrap();
    let changed = asked_for(&asked, || count(0, COUNT));
    assert!(changed < 3000, "{changed}: flushes consolidate some others");
    let again = asked_for(&asked, || count(0, COUNT));
    assert!(again < 200, "{again}");
}

/// Fails in two ways.
struct Broken;

impl Reducer for Broken {
    fn add(
        &self,
        _summary: Option<Vec<u8>>,
        key: &[u8],
        _value: &[u8],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        assert!(key != b"panic", "a key that is not to be");
        Err("no such thing".into())
    }

    fn join(&self, left: Vec<u8>, _right: &[u8]) -> Result<Vec<u8>, MergeError> {
        Ok(left)
    }
}

#[test]
fn a_reducer_that_fails_or_is_not_there_is_an_error_and_changes_nothing() {
    let db = Db::builder()
        .storage(Arc::new(MemoryStorage::new()))
        .background(Background::Stepped)
        .reducer("broken", Broken);
    let db = db.open("/db").unwrap();
    let k = db.keyspace_or_create("k").unwrap();
    assert_eq!(k.reduce::<&[u8]>("broken", ..).unwrap(), None, "of nothing");
    k.put("a", "not a number").unwrap();
    k.put("panic", "v").unwrap();
    let failed = |name: &str, from: &str, why: &str| match k.reduce(name, from..) {
        Err(Error::ReduceFailed { reducer, why: said }) => {
            assert_eq!(reducer, name);
            assert!(said.contains(why), "{said}");
        }
        other => panic!("{other:?}"),
    };
    failed("broken", "a", "no such thing");
    failed("broken", "b", "a key that is not to be");
    failed("sum", "a", "12 bytes");
    assert!(matches!(k.reduce::<&[u8]>("none", ..), Err(Error::InvalidArgument { .. })));
    assert!(k.reduce_at::<&[u8]>("count", .., db.snapshot().seqno()).is_err());
    assert_eq!(k.reduce::<&[u8]>("count", ..).unwrap().unwrap()[0], 2);
}
