//! Keyspaces that keep every version, against a list of all that ever happened.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lithe_sim::random::Random;
use lithedb::base::{Clock as _, ManualClock};
use lithedb::storage::MemoryStorage;
use lithedb::{
    Background, Builder, Db, Entry, Error, Expiry, KeyVersion, Keyspace, KeyspaceOptions, SeqNo,
    Snapshot, WriteBatch,
};

use crate::support::{assert_sound, step_to_rest};

const START: u64 = 1_700_000_000_000;
const NEVER: u64 = u64::MAX;

/// A value, and when it expires.
pub type Value = (Vec<u8>, u64);

/// All that happened: by key and stamp, what was put, or that it was deleted.
#[derive(Clone, Default)]
pub struct Model {
    pub versions: BTreeMap<Vec<u8>, BTreeMap<SeqNo, Option<Value>>>,
    /// Every commit.
    pub stamps: Vec<SeqNo>,
}

impl Model {
    /// What `key` had behind the commit of that stamp, if it had not expired by `now`.
    pub fn get(&self, key: &[u8], at: SeqNo, now: u64) -> Option<(SeqNo, &Value)> {
        let (stamp, value) = self.versions.get(key)?.range(..=at).next_back()?;
        let value = value.as_ref().filter(|(_, until)| now < *until)?;
        Some((*stamp, value))
    }

    pub fn rows(&self, at: SeqNo, now: u64) -> Vec<(Vec<u8>, Vec<u8>, SeqNo)> {
        let keys = self.versions.keys();
        let rows = keys.filter_map(|key| {
            let (stamp, (value, _)) = self.get(key, at, now)?;
            Some((key.clone(), value.clone(), stamp))
        });
        rows.collect()
    }

    fn apply(&mut self, stamp: SeqNo, operations: &[Operation]) {
        self.stamps.push(stamp);
        // What the commit makes of each key; of two operations the later counts.
        let mut own: BTreeMap<Vec<u8>, Option<Value>> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Put(key, value, ttl) => {
                    let until = ttl.map_or(NEVER, |ttl| stamp.millis() + ttl);
                    own.insert(key.clone(), Some((value.clone(), until)));
                }
                Operation::Delete(key) => {
                    own.insert(key.clone(), None);
                }
                Operation::Merge(key, operand) => {
                    let before = SeqNo::from_u64(stamp.as_u64() - 1);
                    let existing = match own.get(key) {
                        Some(own) => own.as_ref(),
                        None => self.get(key, before, 1).map(|(_, value)| value),
                    };
                    let mut value = existing.map(|(value, _)| value.clone()).unwrap_or_default();
                    value.extend(operand);
                    own.insert(key.clone(), Some((value, NEVER)));
                }
                Operation::DeleteRange(start, end) => {
                    let known: Vec<_> = self.versions.keys().chain(own.keys()).cloned().collect();
                    let bounds = (Bound::Included(start), Bound::Excluded(end));
                    for key in known.into_iter().filter(|key| within(key, bounds)) {
                        own.insert(key, None);
                    }
                }
            }
        }
        let before = SeqNo::from_u64(stamp.as_u64() - 1);
        for (key, value) in own {
            if value.is_some() || self.get(&key, before, stamp.millis()).is_some() {
                self.versions.entry(key).or_default().insert(stamp, value);
            }
        }
    }
}

fn within(key: &[u8], (start, end): (Bound<&Vec<u8>>, Bound<&Vec<u8>>)) -> bool {
    use std::ops::RangeBounds;
    (start.map(Vec::as_slice), end.map(Vec::as_slice)).contains(key)
}

enum Operation {
    Put(Vec<u8>, Vec<u8>, Option<u64>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    /// To be appended, in a keyspace that merges.
    Merge(Vec<u8>, Vec<u8>),
}

pub struct Bench {
    pub random: Random,
    pub clock: Arc<ManualClock>,
    storage: MemoryStorage,
    pub db: Db,
    pub k: Keyspace,
    pub model: Model,
    /// Whether it merges; else some entries expire.
    merges: bool,
    /// Moments that snapshots show, and these.
    pub held: Vec<(SeqNo, u64, Snapshot)>,
}

fn builder(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Builder {
    Db::builder()
        .storage(Arc::new(storage.clone()))
        .clock(Arc::clone(clock) as Arc<_>)
        .background(Background::Stepped)
        .durability(lithedb::Durability::Buffered)
        .value_file_size(64 << 10)
        .memory_budget(8 << 20)
}

pub fn options() -> KeyspaceOptions {
    let options = KeyspaceOptions::history().interval_size(1024).segment_size(16 << 10);
    options.value_separation(Some(200)).memtable_size(16 << 10)
}

fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

impl Bench {
    fn new(seed: u64) -> Bench {
        Bench::with(seed, options())
    }

    pub fn with(seed: u64, options: KeyspaceOptions) -> Bench {
        let clock = Arc::new(ManualClock::at_millis(START));
        let storage = MemoryStorage::new();
        let db = builder(&storage, &clock).open("/db").unwrap();
        let merges = options.merge_operator.is_some();
        let k = db.create_keyspace("k", options).unwrap();
        let (random, model, held) = (Random::new(seed), Model::default(), Vec::new());
        Bench { random, clock, storage, db, k, model, merges, held }
    }

    pub fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(60);
        // With zeros, and some that are prefixes of others.
        let mut key = format!("k{}", number / 6).into_bytes();
        key.extend((0..number % 6).map(|index| u8::from(index == 3)));
        key
    }

    fn operation(&mut self) -> Operation {
        match self.random.below(20) {
            0..4 => Operation::Delete(self.key()),
            4 => {
                let (start, end) = (self.key(), self.key());
                Operation::DeleteRange(start.clone().min(end.clone()), start.max(end))
            }
            5..16 if self.merges => {
                let len = [0, 3, 3, 20, 90][self.random.below(5) as usize];
                Operation::Merge(self.key(), vec![self.random.below(256) as u8; len])
            }
            _ => {
                let len = [3, 20, 90, 300, 900][self.random.below(5) as usize];
                let ttl =
                    (self.random.below(8) == 0 && !self.merges).then(|| self.random.below(400) + 1);
                let byte = self.random.below(256) as u8;
                Operation::Put(self.key(), vec![byte; len], ttl)
            }
        }
    }

    pub fn write(&mut self) {
        let count = if self.random.below(4) == 0 { 1 + self.random.below(12) } else { 1 };
        let operations: Vec<Operation> = (0..count).map(|_| self.operation()).collect();
        let mut batch = WriteBatch::new();
        for operation in &operations {
            match operation {
                Operation::Put(key, value, None) => batch.put(&self.k, key, value),
                Operation::Put(key, value, Some(ttl)) => {
                    batch.put_with_ttl(&self.k, key, value, Duration::from_millis(*ttl));
                }
                Operation::Delete(key) => batch.delete(&self.k, key),
                Operation::Merge(key, operand) => batch.merge(&self.k, key, operand),
                Operation::DeleteRange(start, end) => {
                    batch.delete_range(&self.k, start.as_slice()..end.as_slice());
                }
            }
        }
        let stamp = self.db.write(batch).unwrap();
        self.model.apply(stamp, &operations);
    }

    /// Brings some keys, of which some expire, by one ingest.
    pub fn ingest(&mut self) {
        let keys: std::collections::BTreeSet<_> =
            (0..1 + self.random.below(30)).map(|_| self.key()).collect();
        let now = self.clock.wall_millis();
        let (mut ingest, mut operations) = (self.k.begin_ingest().unwrap(), Vec::new());
        for key in keys {
            let len = [3, 20, 90, 300, 900][self.random.below(5) as usize];
            let value = vec![self.random.below(256) as u8; len];
            let expires = self.random.below(8) == 0 && !self.merges;
            let until = expires.then(|| now + 1 + self.random.below(400));
            match until {
                Some(until) => ingest.add_until(&key, &value, time(until)).unwrap(),
                None => ingest.add(&key, &value).unwrap(),
            }
            operations.push((key, value, until));
        }
        let stamp = ingest.finish().unwrap().seqno;
        let ttl = |until: u64| until.saturating_sub(stamp.millis());
        let puts = operations
            .into_iter()
            .map(|(key, value, until)| Operation::Put(key, value, until.map(ttl)));
        self.model.apply(stamp, &puts.collect::<Vec<_>>());
    }

    pub fn stamp(&mut self) -> SeqNo {
        match self.model.stamps.len() as u64 {
            0 => SeqNo::ZERO,
            count => self.model.stamps[self.random.below(count) as usize],
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..68 => self.write(),
            68..70 => self.ingest(),
            70..76 => self.clock.advance(Duration::from_millis(self.random.below(100))),
            76..80 => self.db.flush().unwrap(),
            80..84 => drop(self.db.step().unwrap()),
            84 => step_to_rest(&self.db),
            85 => self.db.compact().unwrap(),
            86 => drop(self.db.vacuum().unwrap()),
            87 => self.reopen(),
            88 | 89 => self.hold(),
            90 => self.restore(),
            91..94 => self.check_gets(),
            94..96 => self.check_history(),
            96..98 => self.check_by_stamp(),
            _ => self.check_scans(),
        }
    }

    pub fn reopen(&mut self) {
        self.held.clear();
        self.db.close().unwrap();
        self.db = builder(&self.storage, &self.clock).open("/db").unwrap();
        self.k = self.db.keyspace("k").unwrap();
    }

    fn hold(&mut self) {
        let at = self.stamp();
        let past = self.db.snapshot_at(at).unwrap();
        self.held.push((at, at.millis(), past));
        if self.held.len() > 4 {
            self.held.remove(0);
        }
    }

    fn restore(&mut self) {
        let (at, before) = (self.stamp(), self.model.clone());
        let (start, end) = (self.key(), self.key());
        let (start, end) = (start.clone().min(end.clone()), start.max(end));
        let report = self.k.restore_range(start.as_slice()..end.as_slice(), at).unwrap();
        let now = self.model.stamps.last().map_or(START, |last| last.millis());
        let mut operations = Vec::new();
        for key in before.versions.keys().filter(|key| (&start..&end).contains(key)) {
            let then = before.get(key, at, at.millis());
            let is = self.k.get_entry(key).unwrap();
            match then {
                Some((_, (value, until))) => {
                    let is_there = report.seqno.millis().max(now) < *until;
                    assert_eq!(is.is_some(), is_there || self.time_of(&is) < *until);
                    operations.push((key.clone(), Some((value.clone(), *until))));
                }
                None => assert_eq!(is, None),
            }
        }
        // What was different is a version of that commit now.
        if report.put + report.deleted > 0 {
            self.model.stamps.push(report.seqno);
        }
        for key in before.versions.keys() {
            let versions = self.k.history(key, report.seqno..=report.seqno).unwrap();
            let versions: Vec<KeyVersion> = versions.collect::<Result<_, _>>().unwrap();
            for version in versions.into_iter().filter(|_| report.put + report.deleted > 0) {
                let wanted = operations.iter().find(|(of, _)| of == key);
                // What has expired since is deleted.
                let is_there = |(_, until): &Value| report.seqno.millis() < *until;
                let wanted = wanted.and_then(|(_, value)| value.clone()).filter(is_there);
                let value = version.value.map(|value| (value.to_vec(), until_of(version.expiry)));
                assert_eq!(value, wanted);
                self.model.versions.entry(key.clone()).or_default().insert(report.seqno, value);
            }
        }
    }

    fn time_of(&self, entry: &Option<Entry>) -> u64 {
        entry.as_ref().map_or(NEVER, |entry| entry.seqno.millis())
    }

    fn check_gets(&mut self) {
        for _ in 0..20 {
            let (key, at) = (self.key(), self.stamp());
            let expected = self.model.get(&key, at, at.millis().max(1));
            let found = self.k.get_at(&key, at).unwrap();
            assert_eq!(found.as_deref(), expected.map(|(_, value)| value.0.as_slice()));
            let entry = self.k.get_entry_at(&key, at).unwrap();
            assert_eq!(entry.as_ref().map(|entry| entry.seqno), expected.map(|(stamp, _)| stamp));
            let until = entry.map(|entry| until_of(entry.expiry));
            assert_eq!(until, expected.map(|(_, value)| value.1));
            // By time: behind all commits of that millisecond.
            let found = self.k.get_at(&key, time(at.millis())).unwrap();
            let last = SeqNo::from_parts(at.millis(), u16::MAX);
            let expected = self.model.get(&key, last, at.millis().max(1));
            assert_eq!(found.as_deref(), expected.map(|(_, value)| value.0.as_slice()));
        }
    }

    fn check_history(&mut self) {
        for _ in 0..8 {
            let (key, a, b) = (self.key(), self.stamp(), self.stamp());
            let (from, to) = match self.random.below(3) {
                0 => (Bound::Unbounded, Bound::Unbounded),
                1 => (Bound::Included(a.min(b)), Bound::Included(a.max(b))),
                _ => (Bound::Excluded(a.min(b)), Bound::Excluded(a.max(b).max(next(a.min(b))))),
            };
            let mut expected: Vec<(SeqNo, Option<Value>)> = Vec::new();
            if let Some(versions) = self.model.versions.get(&key) {
                expected.extend(versions.range((from, to)).map(|(s, v)| (*s, v.clone())));
            }
            let found = self.k.history_from_oldest(&key, (from, to)).unwrap();
            assert_eq!(told(found), expected, "{key:?} {from:?} {to:?}");
            expected.reverse();
            assert_eq!(told(self.k.history(&key, (from, to)).unwrap()), expected);
        }
    }

    fn check_by_stamp(&mut self) {
        let (a, b) = (self.stamp(), self.stamp());
        let (from, to) = (a.min(b), a.max(b));
        let mut expected = Vec::new();
        for (key, versions) in &self.model.versions {
            let versions = versions.range(from..=to);
            expected.extend(versions.map(|(stamp, value)| (*stamp, key.clone(), value.clone())));
        }
        expected.sort();
        let found = self.k.versions_by_stamp(from..=to).unwrap();
        let found: Vec<_> = found
            .map(|version| {
                let version = version.unwrap();
                let value = version.value.map(|value| (value.to_vec(), until_of(version.expiry)));
                (version.seqno, version.key.to_vec(), value)
            })
            .collect();
        assert_eq!(found, expected);
        // Those of some keys.
        let is_of = |key: &[u8]| key.first() == Some(&b'k') && key.get(1) == Some(&b'3');
        let some = self.k.versions_by_stamp(from..=to).unwrap().of_keys(is_of);
        let some: Vec<_> = some.map(|version| version.unwrap().seqno).collect();
        let wanted = expected.iter().filter(|(_, key, _)| is_of(key));
        assert_eq!(some, wanted.map(|(stamp, _, _)| *stamp).collect::<Vec<_>>());
        // And what is different between the two.
        let was = self.model.rows(from, from.millis());
        let is = self.model.rows(to, to.millis());
        let differences = self.k.differences::<&[u8]>(.., from, to).unwrap();
        for difference in differences {
            let difference = difference.unwrap();
            let of = |rows: &[(Vec<u8>, Vec<u8>, SeqNo)]| {
                rows.iter().find(|row| *row.0 == *difference.key).map(|row| (row.1.clone(), row.2))
            };
            let row = |entry: Option<Entry>| entry.map(|entry| (entry.value.to_vec(), entry.seqno));
            assert_eq!((row(difference.before), row(difference.after)), (of(&was), of(&is)));
        }
        let count = was.iter().filter(|row| !is.contains(row)).map(|row| &row.0);
        let count = count.chain(is.iter().filter(|row| !was.contains(row)).map(|row| &row.0));
        let keys: std::collections::BTreeSet<_> = count.collect();
        assert_eq!(self.k.differences::<&[u8]>(.., from, to).unwrap().count(), keys.len());
    }

    fn check_scans(&mut self) {
        let at = self.stamp();
        let past = self.db.snapshot_at(at).unwrap();
        self.check_moment(at, at.millis().max(1), &past);
        for (at, now, past) in self.held.clone() {
            self.check_moment(at, now.max(1), &past);
        }
    }

    pub fn check_moment(&mut self, at: SeqNo, now: u64, past: &Snapshot) {
        let rows = self.model.rows(at, now);
        let row = |entry: Result<Entry, Error>| {
            let entry = entry.unwrap();
            (entry.key.to_vec(), entry.value.to_vec(), entry.seqno)
        };
        assert_eq!(past.iter(&self.k).map(row).collect::<Vec<_>>(), rows);
        let backward: Vec<_> = past.iter(&self.k).rev().map(row).collect();
        assert!(backward.iter().eq(rows.iter().rev()));
        let (start, end) = (self.key(), self.key());
        let (start, end) = (start.clone().min(end.clone()), start.max(end));
        let inside = rows.iter().filter(|row| (&start..&end).contains(&&row.0));
        let found: Vec<_> =
            past.range(&self.k, start.as_slice()..end.as_slice()).map(row).collect();
        assert!(found.iter().eq(inside.clone()));
        let count = past.count(&self.k, start.as_slice()..end.as_slice()).unwrap();
        assert_eq!(count, inside.count() as u64);
        self.check_moves(&rows, past);
        if let Some(last) = rows.len().checked_sub(1) {
            let rank = self.random.below(last as u64 + 1);
            assert_eq!(past.rank(&self.k, &rows[rank as usize].0).unwrap(), rank);
            let selected = past.select(&self.k, rank).unwrap().unwrap();
            assert_eq!(*selected.key, *rows[rank as usize].0);
        }
    }

    /// A cursor that turns and seeks.
    fn check_moves(&mut self, rows: &[(Vec<u8>, Vec<u8>, SeqNo)], past: &Snapshot) {
        let mut cursor = past.cursor(&self.k, lithedb::KeyRange::all());
        cursor.seek_first().unwrap();
        let mut place = 0usize; // One above the index; 0 in front of the first.
        place += 1;
        for _ in 0..30 {
            match self.random.below(4) {
                0 => {
                    let key = self.key();
                    cursor.seek(&key).unwrap();
                    place = 1 + rows.partition_point(|row| row.0 < key);
                }
                1 => {
                    let key = self.key();
                    cursor.seek_for_prev(&key).unwrap();
                    place = rows.partition_point(|row| row.0 <= key);
                }
                2 => {
                    cursor.next().unwrap();
                    place = (place + 1).min(rows.len() + 1);
                }
                _ => {
                    cursor.prev().unwrap();
                    place = place.saturating_sub(1);
                }
            }
            let expected = place.checked_sub(1).and_then(|index| rows.get(index));
            let shown = cursor.valid().then(|| (cursor.key().to_vec(), cursor.seqno()));
            assert_eq!(shown, expected.map(|row| (row.0.clone(), row.2)));
        }
    }
}

fn next(stamp: SeqNo) -> SeqNo {
    SeqNo::from_u64(stamp.as_u64() + 1)
}

pub fn until_of(expiry: Expiry) -> u64 {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    match expiry {
        Expiry::Never => NEVER,
        Expiry::At(time) => since(time).as_millis() as u64,
    }
}

pub fn told(
    versions: impl Iterator<Item = Result<KeyVersion, Error>>,
) -> Vec<(SeqNo, Option<Value>)> {
    let versions = versions.map(|version| {
        let KeyVersion { seqno, value, expiry, .. } = version.unwrap();
        (seqno, value.map(|value| (value.to_vec(), until_of(expiry))))
    });
    versions.collect()
}

#[test]
fn a_range_may_be_deleted_as_often_as_one_likes() {
    let mut bench = Bench::new(77);
    bench.db.create_keyspace("other", KeyspaceOptions::flex()).unwrap();
    for round in 0..400u64 {
        let prefix = if round % 3 == 0 { "a" } else { "ab" };
        let mut operations = vec![Operation::DeleteRange(prefix.into(), b"b".to_vec())];
        for number in 0..3 {
            let key = format!("a{}{}", if number == 1 { "b" } else { "" }, round % 7 + number);
            operations.push(Operation::Put(key.into_bytes(), vec![round as u8; 5], None));
        }
        let mut batch = WriteBatch::new();
        for operation in &operations {
            match operation {
                Operation::Put(key, value, _) => batch.put(&bench.k, key, value),
                Operation::DeleteRange(start, end) => {
                    batch.delete_range(&bench.k, start.as_slice()..end.as_slice());
                }
                Operation::Delete(_) | Operation::Merge(..) => {}
            }
        }
        let stamp = bench.db.write(batch).unwrap();
        bench.model.apply(stamp, &operations);
        if round % 150 == 149 {
            bench.db.flush().unwrap();
        }
    }
    for _ in 0..4 {
        bench.check_by_stamp();
        bench.check_scans();
    }
    assert_sound(&bench.db);
    let at = bench.stamp();
    let past = bench.db.snapshot_at(at).unwrap();
    let other = bench.db.keyspace("other").unwrap();
    let refused = past.get(&other, "k").unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    assert!(past.iter(&bench.k).nth(5000).is_none());
}

#[test]
fn more_deletions_of_one_commit_than_fit_into_a_window_are_versions_too() {
    let bench = Bench::new(78);
    let key = |number: u32| number.to_be_bytes();
    let fill = |value: &str| {
        let mut batch = WriteBatch::new();
        (0..150_000).for_each(|number| batch.put(&bench.k, key(number), value));
        bench.db.write(batch).unwrap()
    };
    fill("a");
    bench.db.flush().unwrap();
    let first = bench.k.delete_range(key(0)..key(120_000)).unwrap();
    let second = bench.k.delete_range(key(10)..).unwrap();
    let third = bench.k.put(key(5), "b").unwrap();
    let deleted = |at: SeqNo| {
        let versions = bench.k.versions_by_stamp(at..=at).unwrap().map(Result::unwrap);
        let keys: Vec<_> = versions.map(|version| (version.key.to_vec(), version.value)).collect();
        assert!(keys.is_sorted_by(|a, b| a.0 < b.0));
        assert!(at == third || keys.iter().all(|(_, value)| value.is_none()));
        keys.len()
    };
    assert_eq!((deleted(first), deleted(second), deleted(third)), (120_000, 30_000, 1));
    assert_eq!(bench.k.len().unwrap(), 1);
    assert_eq!(bench.db.snapshot_at(first).unwrap().count::<&[u8]>(&bench.k, ..).unwrap(), 30_000);
}

#[test]
fn everything_that_ever_happened_can_be_read() {
    for seed in 0..24 {
        let mut bench = match seed % 3 {
            0 => Bench::with(seed, options().merge_operator("append")),
            _ => Bench::new(seed),
        };
        for _ in 0..600 {
            bench.step();
        }
        bench.check_scans();
        bench.check_by_stamp();
        bench.reopen();
        bench.check_scans();
        bench.check_history();
        assert_sound(&bench.db);
        assert_eq!(bench.db.check().unwrap().keyspaces, 1, "its archive is no keyspace of its own");
    }
}

/// A database that was opened shows at least the time of its opening: no moment of the future, also
/// where the clock was set back since.
#[test]
fn the_time_that_a_snapshot_shows_can_be_asked_for_though_the_clock_was_set_back() {
    let (storage, clock) = (MemoryStorage::new(), Arc::new(ManualClock::at_millis(START)));
    let db = builder(&storage, &clock).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    k.put("a", "1").unwrap();
    db.close().unwrap();
    clock.set_millis(START + 1000);
    let db = builder(&storage, &clock).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    clock.set_millis(START + 10);
    let shown = db.snapshot().time();
    assert_eq!(shown, time(START + 1000));
    assert_eq!(db.snapshot_at(shown).unwrap().get(&k, "a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(k.get_at("a", shown).unwrap().as_deref(), Some(&b"1"[..]));
    let refused = db.snapshot_at(time(START + 1001)).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
}

#[test]
fn what_is_as_it_was_is_not_written_again() {
    let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
    let keyspace = db.create_keyspace("k", KeyspaceOptions::history()).unwrap();
    let then = keyspace.put("a", "1").unwrap();
    keyspace.put("a", "2").unwrap();
    keyspace.put("b", "2").unwrap();
    let restored = keyspace.restore_range(.."z", then).unwrap();
    assert_eq!((restored.put, restored.deleted), (1, 1));
    let again = keyspace.restore_range(.."z", then).unwrap();
    assert_eq!((again.put, again.deleted, again.seqno), (0, 0, restored.seqno));
    assert_eq!(keyspace.history("a", ..).unwrap().count(), 3);
    // With another expiry it is not the same.
    let expiry = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    keyspace.put_until("a", "1", expiry).unwrap();
    assert_eq!(keyspace.restore("a", then).unwrap().put, 1);
    assert_eq!(keyspace.get_entry("a").unwrap().unwrap().expiry, Expiry::Never);
}
