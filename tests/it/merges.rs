//! Merge operators: operands on top of whatever there was, seen by every way to read, before and
//! behind flushes, consolidation, crashes and reopening, and merged once.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lithe_sim::random::Random;
use lithedb::storage::{CrashMode, MemoryStorage, SimStorage, Storage};
use lithedb::{
    Background, Builder, Db, Error, KeyRange, Keyspace, KeyspaceOptions, MergeError, MergeOperator,
    Snapshot, WriteBatch,
};

use crate::support::{assert_sound, step_to_rest};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn builder(storage: Arc<dyn Storage>) -> Builder {
    Db::builder()
        .storage(storage)
        .background(Background::Stepped)
        .durability(lithedb::Durability::Buffered)
        .memory_budget(8 << 20)
        .disk_reserve(0)
}

fn options(operator: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::flex().interval_size(1024).segment_size(16 << 10);
    options.merge_operator(operator).value_separation(Some(100))
}

fn number(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

/// What every way to read gives must be these rows.
fn assert_rows(keyspace: &Keyspace, rows: &Rows) {
    let taken = |entry: lithedb::Result<lithedb::Entry>| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    };
    let forward: Rows = keyspace.iter().map(taken).collect();
    assert_eq!(forward, *rows);
    let backward: Rows = keyspace.iter().rev().map(taken).collect();
    assert_eq!(backward, *rows);
    assert_eq!(keyspace.len().unwrap(), rows.len() as u64);
    let mut cursor = keyspace.cursor(KeyRange::all());
    for (rank, (key, value)) in rows.iter().enumerate() {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
        assert_eq!(keyspace.rank(key).unwrap(), rank as u64);
        assert_eq!(&*keyspace.select(rank as u64).unwrap().unwrap().value, &value[..]);
        cursor.next().unwrap();
        assert_eq!((cursor.key(), cursor.value().unwrap()), (&key[..], &value[..]));
        let entry = keyspace.get_entry(key).unwrap().unwrap();
        assert_eq!((entry.seqno, &*entry.value), (cursor.seqno(), &value[..]));
        let mut whole = Vec::new();
        let mut reader = keyspace.get_reader(key).unwrap().unwrap();
        std::io::Read::read_to_end(&mut reader, &mut whole).unwrap();
        assert_eq!(whole, *value);
    }
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    let several = keyspace.multi_get(&keys).unwrap();
    assert!(several.iter().zip(rows.values()).all(|(got, row)| got.as_deref() == Some(&row[..])));
}

fn assert_shows(snapshot: &Snapshot, keyspace: &Keyspace, rows: &Rows) {
    let shown = snapshot.iter(keyspace).map(|entry| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    });
    assert_eq!(shown.collect::<Rows>(), *rows);
}

#[test]
fn counters_are_counted_through_flushes_and_reopening() {
    let storage = MemoryStorage::new();
    let db = builder(Arc::new(storage.clone())).open("/db").unwrap();
    let k = db.create_keyspace("k", options("counter")).unwrap();
    k.put("known", number(40)).unwrap();
    let mut last = k.merge("known", number(2)).unwrap();
    for _ in 0..100 {
        last = k.merge("new", number(-3)).unwrap();
    }
    let read = |k: &Keyspace, key| k.get(key).unwrap().map(|value| value.to_vec());
    for round in 0..4 {
        assert_eq!(read(&k, "known"), Some(number(42).to_vec()), "{round}");
        assert_eq!(read(&k, "new"), Some(number(-300).to_vec()), "{round}");
        assert_eq!(k.get_entry("new").unwrap().unwrap().seqno, last, "that of the newest operand");
        match round {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            _ => assert_sound(&db),
        }
    }
    assert_eq!(k.increment("known", 1).unwrap(), 43, "of the same form");
    assert!(matches!(k.merge("known", b"three"), Err(Error::InvalidArgument { .. })));
    k.delete("new").unwrap();
    k.merge("new", number(1)).unwrap();
    db.close().unwrap();
    drop((db, k));
    let db = builder(Arc::new(storage)).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    assert_eq!(read(&k, "known"), Some(number(43).to_vec()));
    assert_eq!(read(&k, "new"), Some(number(1).to_vec()));
    assert_sound(&db);
}

#[test]
fn a_keyspace_without_an_operator_refuses() {
    let db = builder(Arc::new(MemoryStorage::new())).open("/db").unwrap();
    let k = db.keyspace_or_create("k").unwrap();
    let Err(Error::InvalidArgument { what }) = k.merge("a", "b") else { panic!("it has none") };
    assert!(what.contains("no merge operator"), "{what}");
    let mut batch = WriteBatch::new();
    batch.put(&k, "a", "1");
    batch.merge(&k, "a", "2");
    assert!(db.write(batch).is_err());
    let mut transaction = db.begin_update();
    assert!(matches!(transaction.merge(&k, "a", "1"), Err(Error::InvalidArgument { .. })));
    assert!(k.is_empty().unwrap(), "nothing has changed");
    let taken =
        Db::builder().merge_operator("append", Fails).storage(Arc::new(MemoryStorage::new()));
    assert!(matches!(taken.open("/db"), Err(Error::InvalidArgument { .. })), "it is built in");
}

/// What an append-only log of operands says is compared with what is read, while everything that
/// moves entries happens.
#[test]
fn random_merges_are_what_a_map_says() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut storage = SimStorage::new(seed);
        let mut db =
            builder(Arc::new(storage.clone())).memtable_size(16 << 10).open("/db").unwrap();
        let mut k = db.create_keyspace("k", options("append")).unwrap();
        let mut rows = Rows::new();
        let mut snapshots: Vec<(Snapshot, Rows)> = Vec::new();
        for step in 0..900 {
            change(&db, &k, &mut rows, &mut random);
            match random.below(40) {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                2..6 => drop(db.step().unwrap()),
                6 => snapshots.push((db.snapshot(), rows.clone())),
                7 if !snapshots.is_empty() => {
                    let (snapshot, then) = snapshots.remove(random.index(snapshots.len()));
                    assert_shows(&snapshot, &k, &then);
                }
                8 => {
                    snapshots.clear();
                    let close = random.chance(500);
                    if close {
                        db.close().unwrap();
                    } else {
                        db.sync().unwrap();
                    }
                    storage = storage.crash(CrashMode::KeepAll, seed);
                    db = builder(Arc::new(storage.clone()))
                        .memtable_size(16 << 10)
                        .open("/db")
                        .unwrap();
                    k = db.keyspace("k").unwrap();
                }
                9 => {
                    assert_rows(&k, &rows);
                    assert_sound(&db);
                }
                _ => {}
            }
            if step % 7 == 0 {
                let key = draw_key(&mut random);
                let found = k.get(&key).unwrap().map(|value| value.to_vec());
                assert_eq!(found.as_ref(), rows.get(&key), "seed {seed}, step {step}");
            }
        }
        step_to_rest(&db);
        assert_rows(&k, &rows);
        assert_sound(&db);
    }
}

fn draw_key(random: &mut Random) -> Vec<u8> {
    format!("key{:03}", random.below(120)).into_bytes()
}

fn draw_bytes(random: &mut Random) -> Vec<u8> {
    let len = if random.chance(100) { 90 + random.below(60) } else { random.below(12) };
    (0..len).map(|_| b'a' + random.below(26) as u8).collect()
}

/// One write to keyspace and rows.
fn change(db: &Db, k: &Keyspace, rows: &mut Rows, random: &mut Random) {
    let key = draw_key(random);
    let bytes = draw_bytes(random);
    match random.below(20) {
        0..8 => {
            k.merge(&key, &bytes).unwrap();
            rows.entry(key).or_default().extend(&bytes);
        }
        8..11 => {
            k.put(&key, &bytes).unwrap();
            rows.insert(key, bytes);
        }
        11..13 => {
            k.delete(&key).unwrap();
            rows.remove(&key);
        }
        13 => {
            let end = draw_key(random);
            k.delete_range(&key[..]..&end[..]).unwrap();
            rows.retain(|row, _| *row < key || *row >= end);
        }
        14 => {
            let before = k.take(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(before, rows.remove(&key));
        }
        15 => {
            let expected = rows.get(&key).cloned();
            let swap = k.compare_and_swap(&key, expected.as_deref(), Some(&bytes)).unwrap();
            assert!(swap.is_done());
            rows.insert(key, bytes);
        }
        16 => {
            let popped = k.pop_first().unwrap().map(|entry| entry.value.to_vec());
            assert_eq!(popped, rows.pop_first().map(|(_, value)| value));
        }
        17 => change_in_transaction(db, k, rows, random),
        18 => {
            let entries: BTreeMap<_, _> =
                (0..random.below(9)).map(|_| (draw_key(random), draw_bytes(random))).collect();
            if !entries.is_empty() {
                k.ingest(&entries).unwrap();
            }
            rows.extend(entries);
        }
        _ => change_in_batch(db, k, rows, random),
    }
}

fn change_in_batch(db: &Db, k: &Keyspace, rows: &mut Rows, random: &mut Random) {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + random.below(12) {
        // Few keys, so that several are on one.
        let key = format!("key{:03}", random.below(6)).into_bytes();
        let bytes = draw_bytes(random);
        match random.below(8) {
            0..4 => {
                batch.merge(k, &key, &bytes);
                rows.entry(key).or_default().extend(&bytes);
            }
            4..6 => {
                batch.put(k, &key, &bytes);
                rows.insert(key, bytes);
            }
            6 => {
                batch.delete(k, &key);
                rows.remove(&key);
            }
            _ => {
                batch.delete_range(k, &key[..]..&b"key004"[..]);
                rows.retain(|row, _| *row < key || &**row >= b"key004");
            }
        }
    }
    db.write(batch).unwrap();
}

fn change_in_transaction(db: &Db, k: &Keyspace, rows: &mut Rows, random: &mut Random) {
    let mut transaction = db.begin_update();
    let mut own = rows.clone();
    let mut savepoint = None;
    for _ in 0..1 + random.below(10) {
        let key = format!("key{:03}", random.below(6)).into_bytes();
        let bytes = draw_bytes(random);
        match random.below(10) {
            0..4 => {
                transaction.merge(k, &key, &bytes).unwrap();
                own.entry(key.clone()).or_default().extend(&bytes);
            }
            4 => {
                transaction.put(k, &key, &bytes).unwrap();
                own.insert(key.clone(), bytes);
            }
            5 => {
                transaction.delete(k, &key).unwrap();
                own.remove(&key);
            }
            6 => {
                transaction.delete_range(k, &key[..]..&b"key004"[..]).unwrap();
                own.retain(|row, _| *row < key || &**row >= b"key004");
            }
            7 => savepoint = Some((transaction.savepoint().unwrap(), own.clone())),
            8 => {
                if let Some((savepoint, then)) = savepoint.take() {
                    transaction.rollback_to(savepoint).unwrap();
                    own = then;
                }
            }
            _ => {
                let range = (Bound::Included(&key[..]), Bound::<&[u8]>::Unbounded);
                let walked = transaction.range::<&[u8]>(k, range).unwrap().map(|entry| {
                    let entry = entry.unwrap();
                    (entry.key.to_vec(), entry.value.to_vec())
                });
                let expected: Rows =
                    own.range(key.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(walked.collect::<Rows>(), expected);
            }
        }
        let found = transaction.get(k, &key).unwrap().map(|value| value.to_vec());
        assert_eq!(found.as_ref(), own.get(&key));
        assert_eq!(transaction.contains(k, &key).unwrap(), own.contains_key(&key));
    }
    transaction.commit().unwrap();
    *rows = own;
}

#[test]
fn a_merge_alone_does_not_conflict_and_a_read_of_it_does() {
    let db = builder(Arc::new(MemoryStorage::new())).open("/db").unwrap();
    let k = db.create_keyspace("k", options("counter")).unwrap();
    let mut blind = db.begin_update();
    blind.merge(&k, "n", number(1)).unwrap();
    let mut reading = db.begin_update();
    reading.merge(&k, "n", number(1)).unwrap();
    assert_eq!(reading.get(&k, "n").unwrap().as_deref(), Some(&number(1)[..]));
    let mut closed = db.begin_update();
    closed.put(&k, "m", number(5)).unwrap();
    closed.merge(&k, "m", number(1)).unwrap();
    assert_eq!(closed.get(&k, "m").unwrap().as_deref(), Some(&number(6)[..]));
    k.merge("n", number(10)).unwrap();
    k.merge("m", number(10)).unwrap();
    blind.commit().unwrap();
    assert!(matches!(reading.commit(), Err(Error::Conflict)));
    closed.commit().unwrap();
    assert_eq!(k.get("n").unwrap().as_deref(), Some(&number(11)[..]));
    assert_eq!(k.get("m").unwrap().as_deref(), Some(&number(6)[..]), "what it put, and merged");
    let mut reader = db.begin_update();
    reader.get(&k, "n").unwrap();
    reader.put(&k, "other", "").unwrap();
    k.merge("n", number(1)).unwrap();
    assert!(matches!(reader.commit(), Err(Error::Conflict)), "a merge is a write");
}

/// Appends, unless the operand is a word that it does not like.
struct Fails;

impl MergeOperator for Fails {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        match operand {
            b"error" => Err("it was told to".into()),
            b"panic" => panic!("it was told to"),
            _ => Ok([existing.unwrap_or_default(), operand.to_vec()].concat()),
        }
    }

    fn combine(&self, key: &[u8], older: Vec<u8>, newer: &[u8]) -> Result<Vec<u8>, MergeError> {
        let older = self.merge(key, None, &older)?;
        self.merge(key, Some(older), newer)
    }

    fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        if operand == b"never" { Err("not this".into()) } else { Ok(()) }
    }
}

#[test]
fn an_operator_that_fails_or_panics_is_told_and_loses_nothing() {
    let storage = MemoryStorage::new();
    let open = || builder(Arc::new(storage.clone())).merge_operator("fails", Fails).open("/db");
    let db = open().unwrap();
    let k = db.create_keyspace("k", options("fails")).unwrap();
    assert!(matches!(k.merge("a", "never"), Err(Error::InvalidArgument { .. })));
    k.put("big", vec![b'x'; 300]).unwrap();
    for (key, operand) in [("e", "error"), ("p", "panic"), ("big", "error"), ("well", "so")] {
        k.merge(key, operand).unwrap();
        k.merge(key, "on").unwrap();
    }
    let failing = |k: &Keyspace, key: &str| match k.get(key) {
        Err(Error::MergeFailed { operator, why }) => {
            assert_eq!(operator, "fails");
            assert!(why.contains("it was told to"), "{why}");
        }
        other => panic!("{other:?}"),
    };
    for round in 0..4 {
        for key in ["e", "p", "big"] {
            failing(&k, key);
        }
        assert_eq!(k.get("well").unwrap().as_deref(), Some(&b"soon"[..]));
        assert_eq!(k.len().unwrap(), 4, "they are there");
        assert_eq!(k.keys::<&str>(..).count(), 4);
        assert!(!k.is_empty().unwrap(), "the first key is one of them");
        assert!(matches!(k.iter().next(), Some(Err(Error::MergeFailed { .. }))), "not skipped");
        match round {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            _ => assert_sound(&db),
        }
    }
    k.put("e", "new").unwrap();
    k.merge("e", "er").unwrap();
    assert_eq!(k.get("e").unwrap().as_deref(), Some(&b"newer"[..]));
    db.close().unwrap();
}

#[test]
fn a_key_with_many_operands_that_fail_takes_no_more_until_it_can_be_read() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = || {
        let builder = builder(Arc::clone(&storage)).memory_budget(1 << 30);
        builder.merge_operator("fails", Fails).open("/db").unwrap()
    };
    let takes_no_more = |k: &Keyspace| match k.merge("k", "more") {
        Err(Error::InvalidArgument { what }) => {
            assert!(what.contains("takes no more operands") && what.contains("told to"), "{what}");
        }
        other => panic!("{other:?}"),
    };
    let db = open();
    let k = db.create_keyspace("k", options("fails")).unwrap();
    k.merge("k", "error").unwrap();
    k.merge("k", vec![b'x'; 65 << 20]).unwrap();
    assert!(matches!(k.get("k"), Err(Error::MergeFailed { .. })));
    takes_no_more(&k);
    assert!(db.begin_update().merge(&k, "k", "more").is_err());
    k.merge("other", "fine").unwrap();
    db.flush().unwrap();
    takes_no_more(&k);
    db.close().unwrap();
    drop((db, k));

    let db = open();
    let k = db.keyspace("k").unwrap();
    k.merge("k", "not known yet").unwrap();
    db.flush().unwrap();
    takes_no_more(&k);
    assert_sound(&db);
    k.put("k", "new").unwrap();
    k.merge("k", "er").unwrap();
    assert_eq!(k.get("k").unwrap().as_deref(), Some(&b"newer"[..]));
    db.compact().unwrap();
    assert_eq!(k.get("k").unwrap().as_deref(), Some(&b"newer"[..]));
}

/// Two values near the limit have no room in a block beside each other.
#[test]
fn a_large_value_that_nothing_can_be_merged_into_goes_to_the_value_log() {
    let builder = builder(Arc::new(MemoryStorage::new())).memory_budget(1 << 30);
    let db = builder.merge_operator("fails", Fails).open("/db").unwrap();
    let k = db.create_keyspace("k", options("fails").value_separation(None)).unwrap();
    k.put("k", vec![b'x'; 64 << 20]).unwrap();
    k.merge("k", "error").unwrap();
    db.compact().unwrap();
    assert!(db.stats().value_bytes_live() >= 64 << 20);
    assert!(db.stats().keyspaces[0].bytes_live < 1000);
    assert!(matches!(k.get("k"), Err(Error::MergeFailed { .. })));
    assert_sound(&db);
}

/// What a flush has written of values before it found no room is garbage, and takes the very room
/// that the next try needs.
#[test]
fn a_flush_that_finds_no_room_gives_back_the_values_that_it_has_made() {
    const KEYS: u64 = 40;
    let storage = SimStorage::new(1);
    let db = builder(Arc::new(storage.clone())).open("/db").unwrap();
    let k = db.create_keyspace("k", options("append")).unwrap();
    // A value file with something in it, to which the next values would be added.
    k.merge("before", vec![b'x'; 20_000]).unwrap();
    db.flush().unwrap();
    let key = |index: u64| format!("key{index:05}");
    for index in 0..KEYS {
        k.merge(key(index), vec![b'x'; 20_000]).unwrap(); // 800 KB that the flush makes values of
    }
    let before = storage.allocated_bytes();
    storage.set_capacity(before + (600 << 10));
    for _ in 0..5 {
        assert!(matches!(db.flush(), Err(Error::DiskFull { .. })));
        assert!(matches!(db.step(), Err(Error::DiskFull { .. })));
    }
    let left = storage.allocated_bytes() - before;
    assert!(left < 20 << 10, "{left} bytes of garbage");
    assert_eq!(k.get(key(7)).unwrap().unwrap().len(), 20_000, "reads go on");
    // Enough for all values once.
    storage.set_capacity(before + (900 << 10));
    db.flush().unwrap();
    storage.set_capacity(u64::MAX);
    for key in (0..KEYS).map(key).chain(["before".to_owned()]) {
        assert_eq!(k.get(key).unwrap().unwrap().len(), 20_000);
    }
    assert_sound(&db);
}

#[test]
fn many_operands_of_one_commit_are_put_together() {
    const COUNT: usize = 50_000;
    let db = builder(Arc::new(MemoryStorage::new())).open("/db").unwrap();
    let k = db.create_keyspace("k", options("append")).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&k, "list", "start");
    let mut expected = b"start".to_vec();
    for number in 0..COUNT {
        batch.merge(&k, "list", number.to_le_bytes());
        expected.extend(number.to_le_bytes());
    }
    db.write(batch).unwrap();
    assert_rows(&k, &Rows::from([(b"list".to_vec(), expected)]));
}

#[test]
fn without_its_operator_a_keyspace_works_but_for_what_was_merged() {
    let storage = SimStorage::new(1);
    let known =
        |storage: &SimStorage| builder(Arc::new(storage.clone())).merge_operator("mine", Fails);
    let db = known(&storage).open("/db").unwrap();
    let k = db.create_keyspace("k", options("mine")).unwrap();
    k.put("plain", "1").unwrap();
    k.put("big", vec![b'x'; 300]).unwrap();
    db.flush().unwrap();
    for key in ["plain", "big", "new"] {
        k.merge(key, "2").unwrap();
        k.merge(key, "3").unwrap();
    }
    k.put("other", "4").unwrap();
    db.sync().unwrap();
    let storage = storage.crash(CrashMode::DropAll, 1); // Closing would merge.
    drop((db, k));

    let db = builder(Arc::new(storage.clone())).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    for round in 0..4 {
        assert_eq!(k.get("other").unwrap().as_deref(), Some(&b"4"[..]));
        for key in ["plain", "big", "new"] {
            match k.get(key) {
                Err(Error::MergeOperatorMissing { name }) => assert_eq!(name, "mine"),
                other => panic!("{other:?}"),
            }
            assert!(k.contains(key).unwrap());
        }
        assert_eq!(k.len().unwrap(), 4);
        let refused = k.merge("plain", "4");
        assert!(matches!(refused, Err(Error::MergeOperatorMissing { .. })), "{refused:?}");
        match round {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => drop(db.vacuum().unwrap()),
            _ => assert_sound(&db),
        }
    }
    db.close().unwrap();
    drop((db, k));

    let db = known(&storage).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    assert_eq!(k.get("plain").unwrap().as_deref(), Some(&b"123"[..]));
    assert_eq!(k.get("new").unwrap().as_deref(), Some(&b"23"[..]));
    assert_eq!(k.get("big").unwrap().unwrap().len(), 302);
    assert_sound(&db);
}

/// A flush that a crash interrupts between two of its slices has part of the memtable in the
/// structure. What is replayed must not be merged into that once more.
#[test]
fn what_an_interrupted_flush_has_brought_is_merged_once() {
    const KEYS: u64 = 400;
    let mut storage = SimStorage::new(1);
    let open = |storage: &SimStorage, memtable: u64| {
        let builder = builder(Arc::new(storage.clone())).flush_slice_size(3 << 10);
        builder.memtable_size(memtable).open("/db").unwrap()
    };
    let db = open(&storage, 4 << 20);
    let k = db.create_keyspace("k", options("append")).unwrap();
    let key = |index: u64| format!("key{index:05}").into_bytes();
    let mut rows = Rows::new();
    for index in 0..KEYS {
        k.put(key(index), "first").unwrap();
        rows.insert(key(index), b"first".to_vec());
    }
    db.flush().unwrap();
    for round in 0..3 {
        let mut batch = WriteBatch::new();
        for index in 0..KEYS {
            let operand = format!("{round}").repeat(60);
            batch.merge(&k, key(index), &operand);
            rows.entry(key(index)).or_default().extend(operand.bytes());
        }
        let (from, to) = (key(100 * round), key(100 * round + 30));
        batch.delete_range(&k, &from[..]..&to[..]);
        rows.retain(|row, _| *row < from || *row >= to);
        batch.merge(&k, &from, "behind");
        rows.insert(from, b"behind".to_vec());
        db.write(batch).unwrap();
    }
    db.sync().unwrap();
    storage = storage.crash(CrashMode::KeepAll, 1);
    let (mut interrupted, mut flushes, mut flushed) = (0, 0, u64::MAX);
    // What is replayed is sealed in other places, and flushed up to others.
    for round in 0..24_u64 {
        let db = open(&storage, [20 << 10, 36 << 10, 4 << 20][round as usize % 3]);
        let k = db.keyspace("k").unwrap();
        for step in 0..=round % 7 {
            if round % 3 == 2 && step == 0 {
                continue;
            }
            db.step().unwrap();
            assert_all(&k, &rows);
        }
        let stats = &db.stats().keyspaces[0];
        // Bytes were flushed, and no memtable whole.
        interrupted += u64::from(stats.flushes == flushes && stats.logical_bytes_written > flushed);
        (flushes, flushed) = (stats.flushes, stats.logical_bytes_written);
        assert_sound(&db);
        let operand = format!("{round:02}").repeat(20);
        for index in (round % 5..KEYS).step_by(5) {
            k.merge(key(index), &operand).unwrap();
            rows.entry(key(index)).or_default().extend(operand.bytes());
        }
        let (from, to) = (key(round * 9), key(round * 9 + 4));
        k.delete_range(&from[..]..&to[..]).unwrap();
        rows.retain(|row, _| *row < from || *row >= to);
        db.sync().unwrap();
        storage = storage.crash(CrashMode::DropAll, round);
    }
    assert!(interrupted >= 3, "{interrupted}");
}

/// The newest commits may all be in that part of a memtable that an interrupted flush has brought.
#[test]
fn the_newest_stamp_is_known_after_an_interrupted_flush() {
    const KEYS: u64 = 400;
    let open = |storage: &SimStorage| {
        let builder = builder(Arc::new(storage.clone())).flush_slice_size(3 << 10);
        builder.memtable_size(1 << 20).open("/db").unwrap()
    };
    let key = |index: u64| format!("key{index:05}").into_bytes();
    let storage = SimStorage::new(1);
    let db = open(&storage);
    let k = db.create_keyspace("k", options("append")).unwrap();
    for index in 0..KEYS {
        k.put(key(index), "first").unwrap();
    }
    db.flush().unwrap();
    // From the last key to the first: the newest commits are where a flush begins.
    for index in (0..KEYS).rev() {
        k.merge(key(index), "x".repeat(30)).unwrap();
    }
    let last = k.merge(key(0), vec![b'y'; 2 << 20]).unwrap(); // It is sealed.
    let figures = |db: &Db| {
        let stats = &db.stats().keyspaces[0];
        (stats.flushes, stats.logical_bytes_written)
    };
    let (flushes, written) = figures(&db);
    while figures(&db).1 == written {
        db.step().unwrap();
    }
    assert_eq!(figures(&db).0, flushes, "it is between two slices");
    let storage = storage.crash(CrashMode::KeepAll, 1);
    let db = open(&storage);
    db.flush().unwrap(); // The rest; the log is not needed any more.
    let storage = storage.crash(CrashMode::KeepAll, 2);
    let db = open(&storage);
    let k = db.keyspace("k").unwrap();
    assert_eq!(k.get_entry(key(0)).unwrap().unwrap().seqno, last);
    assert!(db.snapshot().seqno() >= last, "{} < {last}", db.snapshot().seqno());
    assert!(k.put("later", "x").unwrap() > last);
    assert_sound(&db);
}

fn assert_all(keyspace: &Keyspace, rows: &Rows) {
    let mut count = 0;
    for (entry, (key, value)) in keyspace.iter().zip(rows) {
        let entry = entry.unwrap();
        assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
        count += 1;
    }
    assert_eq!(count, rows.len());
    assert_eq!(keyspace.len().unwrap(), rows.len() as u64);
}
