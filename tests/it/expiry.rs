//! Expiry: entries are there until their moment, for every way to read, and what has expired goes.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lithe_sim::random::Random;
use lithedb::base::ManualClock;
use lithedb::storage::{CrashMode, MemoryStorage, SimStorage, Storage};
use lithedb::{
    Background, Builder, Db, Entry, Error, Expiry, KeyRange, Keyspace, KeyspaceOptions, Snapshot,
    WriteBatch,
};

use crate::support::{assert_sound, step_to_rest};

const START: u64 = 1_700_000_000_000;

/// Keys, values, and when they expire.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

struct Bench {
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
    db: Db,
    k: Keyspace,
}

fn builder(storage: Arc<dyn Storage>, clock: &Arc<ManualClock>) -> Builder {
    Db::builder()
        .storage(storage)
        .clock(Arc::clone(clock) as Arc<_>)
        .background(Background::Stepped)
        .durability(lithedb::Durability::Buffered)
        .value_file_size(64 << 10)
        .memory_budget(8 << 20)
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::flex().interval_size(1024).segment_size(16 << 10).value_separation(Some(100))
}

fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Bench {
    fn new(options: KeyspaceOptions) -> Bench {
        let clock = Arc::new(ManualClock::at_millis(START));
        let storage = MemoryStorage::new();
        let db = builder(Arc::new(storage.clone()), &clock).open("/db").unwrap();
        let k = db.create_keyspace("k", options).unwrap();
        Bench { clock, storage, db, k }
    }

    fn reopen_at(self, wall_millis: u64) -> Bench {
        let Bench { storage, db, .. } = self;
        db.close().unwrap();
        let clock = Arc::new(ManualClock::at_millis(wall_millis));
        let db = builder(Arc::new(storage.clone()), &clock).open("/db").unwrap();
        let k = db.keyspace("k").unwrap();
        Bench { clock, storage, db, k }
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.k.get(key).unwrap().map(|value| value.to_vec())
    }
}

fn until_of(entry: &Entry) -> Option<u64> {
    let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    entry.expires_at().map(|time| since(time).as_millis() as u64)
}

fn row_of(entry: lithedb::Result<Entry>) -> (Vec<u8>, (Vec<u8>, Option<u64>)) {
    let entry = entry.unwrap();
    let until = until_of(&entry);
    (entry.key.to_vec(), (entry.value.to_vec(), until))
}

fn there(rows: &Rows, now: u64) -> Rows {
    let is_there = |until: &Option<u64>| until.is_none_or(|until| now < until);
    let there = rows.iter().filter(|(_, (_, until))| is_there(until));
    there.map(|(key, row)| (key.clone(), row.clone())).collect()
}

/// What every way to read gives must be these rows, and nothing of the others.
fn assert_rows(k: &Keyspace, rows: &Rows, all: &Rows) {
    assert_eq!(k.iter().map(row_of).collect::<Rows>(), *rows);
    assert_eq!(k.iter().rev().map(row_of).collect::<Rows>(), *rows);
    assert_eq!(k.len().unwrap(), rows.len() as u64);
    assert_eq!(k.is_empty().unwrap(), rows.is_empty());
    assert_eq!(k.first().unwrap().map(|e| e.key.to_vec()), rows.keys().next().cloned());
    assert_eq!(k.last().unwrap().map(|e| e.key.to_vec()), rows.keys().next_back().cloned());
    let keys: Vec<&Vec<u8>> = all.keys().collect();
    let several = k.multi_get(&keys).unwrap();
    let mut rank = 0;
    for (key, got) in keys.into_iter().zip(several) {
        let row = rows.get(key);
        let value = row.map(|(value, _)| value.as_slice());
        assert_eq!(got.as_deref(), value);
        assert_eq!(k.get(key).unwrap().as_deref(), value);
        assert_eq!(k.contains(key).unwrap(), row.is_some());
        assert_eq!(k.rank(key).unwrap(), rank);
        assert_eq!(k.get_entry(key).unwrap().map(|entry| row_of(Ok(entry)).1), row.cloned());
        let expiry = row.map(|(_, until)| until.map_or(Expiry::Never, |until| at(until).into()));
        assert_eq!(k.expiry(key).unwrap(), expiry);
        let whole = k.get_reader(key).unwrap().map(|mut reader| {
            let mut whole = Vec::new();
            reader.read_to_end(&mut whole).unwrap();
            whole
        });
        assert_eq!(whole.as_deref(), value);
        if let Some((value, until)) = row {
            let entry = k.select(rank).unwrap().unwrap();
            assert_eq!((&*entry.key, &*entry.value, until_of(&entry)), (&**key, &**value, *until));
            rank += 1;
        }
    }
    assert_eq!(k.select(rank).unwrap(), None);
    let mut cursor = k.cursor(KeyRange::all());
    for (key, (value, until)) in rows {
        cursor.next().unwrap();
        assert_eq!((cursor.key(), cursor.value().unwrap()), (&**key, &**value));
        assert_eq!(cursor.value_len().unwrap(), value.len() as u64);
        assert_eq!(cursor.value_hash().unwrap()[..], blake3::hash(value).as_bytes()[..16]);
        assert_eq!(cursor.expires_at(), until.map(at));
    }
    cursor.next().unwrap();
    assert!(!cursor.valid());
}

fn assert_shows(snapshot: &Snapshot, k: &Keyspace, rows: &Rows) {
    assert_eq!(snapshot.iter(k).map(row_of).collect::<Rows>(), *rows);
    let none = (std::ops::Bound::<Vec<u8>>::Unbounded, std::ops::Bound::Unbounded);
    assert_eq!(snapshot.count(k, none).unwrap(), rows.len() as u64);
    for (rank, (key, (value, _))) in rows.iter().enumerate() {
        assert_eq!(snapshot.get(k, key).unwrap().as_deref(), Some(&**value));
        assert_eq!(snapshot.rank(k, key).unwrap(), rank as u64);
    }
}

#[test]
fn an_entry_is_there_until_its_moment_and_hides_what_was_before() {
    let bench = Bench::new(options());
    let Bench { db, k, clock, .. } = &bench;
    k.put("a", "old").unwrap();
    db.flush().unwrap();
    let stamp = k.put_with_ttl("a", "new", millis(10)).unwrap();
    let end = stamp.millis() + 10;
    assert_eq!(k.expiry("a").unwrap(), Some(Expiry::At(at(end))));
    assert_eq!(k.expiry("b").unwrap(), None);
    clock.set_millis(end - 1);
    assert_eq!(bench.get("a"), Some(b"new".to_vec()));
    clock.set_millis(end);
    assert_eq!(bench.get("a"), None, "not what was before it either");
    assert_eq!((k.len().unwrap(), k.first().unwrap()), (0, None));
    // Written again, it is there again.
    k.put("a", "again").unwrap();
    assert_eq!(k.expiry("a").unwrap(), Some(Expiry::Never));
    for ttl in [Duration::ZERO, millis(5)] {
        let stamp = k.put_with_ttl("b", "x", ttl).unwrap();
        assert!(stamp > db.snapshot().seqno() || stamp == db.snapshot().seqno());
        assert_eq!(bench.get("b").is_some(), ttl > Duration::ZERO);
    }
    k.put_until("b", "x", at(5)).unwrap();
    assert_eq!(bench.get("b"), None, "a time that is past");
    k.put_until("b", "x", SystemTime::UNIX_EPOCH - millis(1)).unwrap();
    assert_eq!(bench.get("b"), None, "before there were times");
    k.put_with_ttl("b", "x", Duration::MAX).unwrap();
    assert!(k.expiry("b").unwrap().unwrap().time().unwrap() > at(START * 100));
    db.flush().unwrap();
    assert_eq!((bench.get("a"), bench.get("b")), (Some(b"again".to_vec()), Some(b"x".to_vec())));
    assert_sound(db);
}

#[test]
fn what_is_as_of_one_moment_does_not_change() {
    let bench = Bench::new(options());
    let Bench { db, k, clock, .. } = &bench;
    let mut rows = Rows::new();
    for number in 0..300u64 {
        let (key, until) = (format!("k{number:04}").into_bytes(), START + 1000 + number);
        // Large values too.
        let value = vec![number as u8; if number % 5 == 0 { 150 } else { 9 }];
        k.put_until(&key, &value, at(until)).unwrap();
        rows.insert(key, (value, Some(until)));
        if number == 150 {
            db.flush().unwrap();
        }
    }
    clock.set_millis(START + 1050);
    let shown = there(&rows, START + 1050);
    let snapshot = db.snapshot();
    assert_eq!(snapshot.time(), at(START + 1050));
    let mut iter = k.iter();
    let first = row_of(iter.next().unwrap());
    let mut transaction = db.begin_update();
    clock.set_millis(START + 5000);
    assert_eq!(k.len().unwrap(), 0);
    let walked = std::iter::once(first).chain(iter.by_ref().take(40).map(row_of));
    let walked: Rows = walked.collect();
    // From the other end, what was made later shows the same moment.
    let rest: Rows = iter.rev().map(row_of).collect();
    assert_eq!(walked.into_iter().chain(rest).collect::<Rows>(), shown);
    // Whatever becomes of it meanwhile.
    db.vacuum().unwrap();
    step_to_rest(db);
    assert_eq!(db.stats().keyspaces[0].entries_expiring, 0);
    assert_shows(&snapshot, k, &shown);
    let (key, (value, _)) = shown.iter().next().unwrap();
    assert_eq!(transaction.get(k, key).unwrap().as_deref(), Some(&**value));
    transaction.put(k, "other", "x").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict)), "it has seen what is gone");
    drop(snapshot);
    assert_sound(db);
}

#[test]
fn a_transaction_conflicts_with_time() {
    let bench = Bench::new(options());
    let Bench { db, k, clock, .. } = &bench;
    let see: [fn(&mut lithedb::Transaction, &Keyspace) -> bool; 6] = [
        |t, k| t.get(k, "a").unwrap().is_some(),
        |t, k| t.contains(k, "a").unwrap(),
        |t, k| t.get_entry(k, "a").unwrap().is_some(),
        |t, k| t.expiry(k, "a").unwrap().is_some(),
        |t, k| t.iter(k).unwrap().next().is_some(),
        |t, k| {
            let mut cursor = t.cursor(k, KeyRange::all()).unwrap();
            cursor.seek_last().unwrap();
            cursor.valid()
        },
    ];
    for (number, see) in see.into_iter().enumerate() {
        for wait in [9, 10] {
            k.clear().unwrap();
            k.put_with_ttl("a", "x", millis(10)).unwrap();
            let mut transaction = db.begin_update();
            assert!(see(&mut transaction, k), "{number}");
            transaction.put(k, "b", "y").unwrap();
            clock.advance(millis(wait));
            let committed = transaction.commit();
            assert_eq!(committed.is_ok(), wait < 10, "{number}: {committed:?}");
            // What it found to be gone stays gone.
            clock.advance(millis(10));
            let mut transaction = db.begin_update();
            assert_eq!(transaction.get(k, "a").unwrap(), None);
            transaction.put(k, "b", "z").unwrap();
            clock.advance(millis(10));
            transaction.commit().unwrap();
        }
    }
    // Its own writes count from its commit, and are shown as if that were at once.
    let mut transaction = db.begin_update();
    transaction.put_with_ttl(k, "own", "x", millis(10)).unwrap();
    transaction.put_until(k, "gone", "x", at(1)).unwrap();
    assert_eq!(transaction.get(k, "own").unwrap().as_deref(), Some(&b"x"[..]));
    assert!(transaction.expiry(k, "own").unwrap().unwrap().time().is_some());
    assert!(!transaction.contains(k, "gone").unwrap());
    assert_eq!(transaction.iter(k).unwrap().count(), 2, "own, and b");
    clock.advance(millis(1000));
    let stamp = transaction.commit().unwrap();
    assert_eq!(k.expiry("own").unwrap(), Some(at(stamp.millis() + 10).into()));
    // After a savepoint that is gone back to, they are as before.
    let mut transaction = db.begin_update();
    transaction.put_with_ttl(k, "one", vec![7; 300], millis(10)).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.put(k, "one", "other").unwrap();
    transaction.rollback_to(savepoint).unwrap();
    assert_eq!(transaction.get(k, "one").unwrap().as_deref(), Some(&[7; 300][..]));
    assert!(transaction.expiry(k, "one").unwrap().unwrap().time().is_some());
    transaction.commit().unwrap();
    assert!(k.expiry("one").unwrap().unwrap().time().is_some());
}

/// A stamp that was given in vain may be ahead of everything that time is judged by.
#[test]
fn a_transaction_that_is_run_again_knows_what_has_expired_by_its_stamp() {
    let bench = Bench::new(options());
    let Bench { db, k, clock, .. } = &bench;
    k.put_until("n", 7i64.to_le_bytes(), at(START + 1000)).unwrap();
    clock.set_millis(START + 5000);
    db.create_keyspace("other", options()).unwrap(); // Takes a stamp, and judges nothing.
    clock.set_millis(START);
    let mut tries = 0;
    let was_there = db.update(|transaction| {
        tries += 1;
        let was_there = transaction.get(k, "n")?.is_some();
        transaction.put(k, "m", "x")?;
        Ok::<_, Error>(was_there)
    });
    assert!(!was_there.unwrap(), "by the stamp of the commit it has expired");
    assert_eq!(tries, 2);
    assert_eq!(k.increment("n", 1).unwrap(), 1);
    assert_eq!(bench.get("n"), Some(1i64.to_le_bytes().to_vec()));
}

#[test]
fn a_keyspace_may_say_how_long_everything_is_there() {
    let bench = Bench::new(options().ttl(millis(100)));
    let Bench { db, k, clock, .. } = &bench;
    let ends_after = |stamp: lithedb::SeqNo, key: &str| {
        assert_eq!(k.expiry(key).unwrap(), Some(at(stamp.millis() + 100).into()), "{key}");
    };
    ends_after(k.put("put", "x").unwrap(), "put");
    ends_after(k.put("large", vec![1; 5000]).unwrap(), "large");
    let mut batch = WriteBatch::new();
    batch.put(k, "batch", "x");
    batch.put_until(k, "never", "x", Expiry::Never);
    batch.put_with_ttl(k, "longer", "x", millis(500));
    let stamp = db.write(batch).unwrap();
    ends_after(stamp, "batch");
    assert_eq!(k.expiry("never").unwrap(), Some(Expiry::Never));
    assert_eq!(k.expiry("longer").unwrap(), Some(at(stamp.millis() + 500).into()));
    let stamp = db.update(|t| t.put(k, "transaction", "x").and_then(|()| t.seqno())).unwrap();
    assert!(k.expiry("transaction").unwrap().unwrap().time() >= Some(at(stamp.millis() + 100)));
    for len in [10, 5000] {
        let stamp = k.put_reader("stream", &mut &vec![3; len][..]).unwrap();
        ends_after(stamp, "stream");
    }
    let mut writer = k.put_writer("written").unwrap();
    std::io::Write::write_all(&mut writer, &[3; 5000]).unwrap();
    writer.set_expiry(Expiry::Never);
    writer.commit().unwrap();
    assert_eq!(k.expiry("written").unwrap(), Some(Expiry::Never));
    // Counted from when it is added.
    let mut ingest = k.begin_ingest().unwrap();
    ingest.add("x1", "x").unwrap();
    ingest.add("x2", vec![2; 5000]).unwrap();
    ingest.add_until("x3", "x", at(START + 77)).unwrap();
    ingest.add_until("x4", "x", Expiry::Never).unwrap();
    ingest.finish().unwrap();
    assert_eq!(k.expiry("x1").unwrap(), Some(at(START + 100).into()));
    assert_eq!(k.expiry("x2").unwrap(), Some(at(START + 100).into()));
    assert_eq!(k.expiry("x3").unwrap(), Some(at(START + 77).into()));
    assert_eq!(k.expiry("x4").unwrap(), Some(Expiry::Never));
    // A counter expires when it began to count.
    assert_eq!(k.increment("count", 1).unwrap(), 1);
    let ends = k.expiry("count").unwrap();
    clock.advance(millis(50));
    assert_eq!(k.increment("count", 1).unwrap(), 2);
    assert_eq!(k.expiry("count").unwrap(), ends);
    let before = k.replace("put", "y").unwrap();
    assert_eq!(before.as_deref(), Some(&b"x"[..]));
    assert!(![None, ends].contains(&k.expiry("put").unwrap()));
    clock.advance(millis(50));
    assert_eq!(k.increment("count", 1).unwrap(), 1, "it was gone");
    clock.advance(millis(1000));
    let keys: Vec<Vec<u8>> = k.keys::<&[u8]>(..).map(|key| key.unwrap().to_vec()).collect();
    assert_eq!(keys, [&b"never"[..], b"written", b"x4"]);
    let bench = bench.reopen_at(START + 10_000);
    assert_eq!(bench.k.len().unwrap(), 3);
    let info = bench.db.keyspaces().pop().unwrap();
    assert_eq!(info.options.ttl, Some(millis(100)));
    assert_sound(&bench.db);
}

#[test]
fn a_ttl_is_kept_in_milliseconds_from_the_beginning() {
    let bench = Bench::new(options().ttl(Duration::from_micros(1500)));
    let kept = |bench: &Bench| {
        let stamp = bench.k.put("a", "x").unwrap();
        let entry = bench.k.get_entry("a").unwrap().unwrap();
        let ttl = bench.db.keyspaces()[0].options.ttl;
        (until_of(&entry).unwrap() - stamp.millis(), ttl)
    };
    assert_eq!(kept(&bench), (2, Some(millis(2))));
    assert_eq!(kept(&bench.reopen_at(START + 10)), (2, Some(millis(2))));
}

#[test]
fn what_is_ingested_expires_counted_from_when_it_was_added() {
    let bench = Bench::new(options().ttl(millis(100)));
    let Bench { k, clock, .. } = &bench;
    let mut ingest = k.begin_ingest().unwrap();
    ingest.add("a", "x").unwrap();
    clock.advance(millis(60));
    ingest.add("b", vec![1; 5000]).unwrap();
    clock.advance(millis(30));
    ingest.finish().unwrap();
    assert_eq!(k.expiry("a").unwrap(), Some(at(START + 100).into()));
    assert_eq!(k.expiry("b").unwrap(), Some(at(START + 160).into()));
}

#[test]
fn single_steps_see_time_pass() {
    let bench = Bench::new(options());
    let Bench { k, clock, .. } = &bench;
    assert!(!k.set_expiry("a", at(START + 10)).unwrap(), "it is not there");
    k.put("a", "1").unwrap();
    assert!(k.set_expiry("a", at(START + 10)).unwrap());
    assert_eq!(bench.get("a"), Some(b"1".to_vec()));
    assert!(k.set_expiry("a", None).unwrap());
    assert_eq!(k.expiry("a").unwrap(), Some(Expiry::Never));
    assert!(k.set_expiry("a", at(START + 20)).unwrap());
    clock.set_millis(START + 20);
    assert!(!k.set_expiry("a", None).unwrap(), "it is gone");
    assert!(k.insert_if_absent("a", "2").unwrap().is_done());
    k.set_expiry("a", at(START + 30)).unwrap();
    clock.set_millis(START + 30);
    assert!(
        k.compare_and_swap("a", Some(b"2"), Some(b"3")).unwrap() == lithedb::Swap::Differs(None)
    );
    assert_eq!((k.take("a").unwrap(), k.pop_first().unwrap()), (None, None));
    k.put_until("a", "x", at(START + 31)).unwrap();
    k.put("b", "y").unwrap();
    clock.set_millis(START + 31);
    assert_eq!(&*k.pop_first().unwrap().unwrap().key, b"b");
}

#[test]
fn what_expires_and_what_merges_do_not_meet() {
    let bench = Bench::new(options().merge_operator("counter"));
    let Bench { db, k, .. } = &bench;
    let refused = |result: lithedb::Result<()>| {
        let Err(Error::InvalidArgument { what }) = result else { panic!("{result:?}") };
        assert!(what.contains("\"k\" has the merge operator \"counter\""), "{what}");
    };
    refused(k.put_with_ttl("a", "x", millis(1)).map(drop));
    refused(k.put_until("a", "x", at(1)).map(drop));
    refused(k.set_expiry("a", at(1)).map(drop));
    let mut batch = WriteBatch::new();
    batch.put(k, "b", "x");
    batch.put_with_ttl(k, "a", vec![1; 5000], millis(1));
    refused(db.write(batch).map(drop));
    refused(db.update(|t| t.put_with_ttl(k, "a", "x", millis(1))));
    let mut ingest = k.begin_ingest().unwrap();
    refused(ingest.add_until("a", "x", at(1)));
    assert!(k.is_empty().unwrap(), "nothing has changed");
    k.put_until("a", 1i64.to_le_bytes(), Expiry::Never).unwrap();
    k.merge("a", 1i64.to_le_bytes()).unwrap();
    assert_eq!(bench.get("a"), Some(2i64.to_le_bytes().to_vec()));
    let both = KeyspaceOptions::flex().merge_operator("counter").ttl(millis(1));
    assert!(matches!(db.create_keyspace("both", both), Err(Error::InvalidArgument { .. })));
}

#[test]
fn time_does_not_go_back() {
    let bench = Bench::new(options());
    let Bench { k, clock, .. } = &bench;
    k.put_with_ttl("a", "x", millis(1000)).unwrap();
    clock.set_millis(START + 1000);
    assert_eq!(bench.get("a"), None);
    clock.set_millis(START - 1_000_000);
    assert_eq!(bench.get("a"), None, "it was seen to be gone");
    // What is put now is there as long as it should be, by the time that was.
    let stamp = k.put_with_ttl("b", "x", millis(1000)).unwrap();
    assert!(stamp.millis() >= START + 1000);
    assert!(bench.get("b").is_some());
    // Also when the database is opened again.
    let bench = bench.reopen_at(START - 2_000_000);
    assert_eq!(bench.get("a"), None);
    assert!(bench.get("b").is_some());
    bench.clock.set_millis(START + 1999);
    assert!(bench.get("b").is_some());
    bench.clock.set_millis(START + 2000);
    assert!(bench.get("b").is_none());
    // Judged by, and closed: it stays so.
    let bench = bench.reopen_at(START);
    assert!(bench.get("b").is_none());
    // A clock that is far ahead makes everything expire, for good.
    bench.k.put_with_ttl("c", "x", millis(1 << 30)).unwrap();
    bench.clock.set_millis(START * 2);
    assert!(bench.get("c").is_none());
    bench.clock.set_millis(START + 3000);
    assert!(bench.get("c").is_none());
    let stamp = bench.k.put_with_ttl("d", "x", millis(10)).unwrap();
    assert!(stamp.millis() >= START * 2);
    assert!(bench.get("d").is_some());
    let bench = bench.reopen_at(START + 4000);
    assert!(bench.get("d").is_some() && bench.get("c").is_none());
    assert_sound(&bench.db);
}

#[test]
fn who_has_seen_all_commits_is_told_so_whatever_time_was_judged_by() {
    let mut bench = Bench::new(options());
    bench.k.put_until("a", "x", at(START * 2)).unwrap();
    let last = bench.k.put("b", "x").unwrap();
    for round in 1..4 {
        // Without commits in between: the log gives up the file that has the last one.
        bench = bench.reopen_at(START + round * 1000);
        assert!(bench.k.contains("a").unwrap(), "time was judged by");
        assert_eq!(bench.db.snapshot().seqno(), last, "round {round}");
        let behind = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
        let commits = bench.db.commits(behind).map(Iterator::count);
        assert_eq!(commits.unwrap(), 0, "round {round}");
    }
    // And time does not go back for it.
    let stamp = bench.k.put("c", "x").unwrap();
    assert!(stamp.millis() >= START + 3000);
}

#[test]
fn after_a_power_cut_the_log_says_the_same_moments() {
    let storage = SimStorage::new(5);
    let clock = Arc::new(ManualClock::at_millis(START));
    let db = builder(Arc::new(storage.clone()), &clock).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let mut rows = Rows::new();
    for number in 0..100u64 {
        let key = format!("{number:03}").into_bytes();
        let value = vec![number as u8; if number % 7 == 0 { 200 } else { 3 }];
        let stamp = k.put_with_ttl(&key, &value, millis(10 * number)).unwrap();
        rows.insert(key, (value, Some(stamp.millis() + 10 * number)));
        clock.advance(millis(3));
        if number == 50 {
            db.flush().unwrap();
        }
    }
    db.sync().unwrap();
    let left = storage.crash(CrashMode::DropAll, 1);
    for wall in [START - 5_000_000, START + 300, START + 777] {
        let clock = Arc::new(ManualClock::at_millis(wall));
        let left = left.duplicate();
        let db = builder(Arc::new(left.clone()), &clock).open("/db").unwrap();
        let now = db.snapshot().time().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = now.as_millis() as u64;
        assert!(now >= START + 297, "not before the newest stamp");
        let shown = there(&rows, now);
        assert_rows(&db.keyspace("k").unwrap(), &shown, &rows);
        assert_sound(&db);
    }
}

/// Found by crashing at random: a flush had left out all that expires, and the next opening said
/// that it showed the moment of the last commit, before that.
#[test]
fn what_an_earlier_opening_has_left_out_had_expired_by_the_time_that_is_shown() {
    let storage = SimStorage::new(6);
    let clock = Arc::new(ManualClock::at_millis(START));
    let db = builder(Arc::new(storage.clone()), &clock).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    k.put_until("a", "x", at(START + 500)).unwrap();
    clock.set_millis(START + 900);
    db.compact().unwrap();
    let left = storage.crash(CrashMode::DropAll, 1);
    let clock = Arc::new(ManualClock::at_millis(START + 2000));
    let db = builder(Arc::new(left), &clock).open("/db").unwrap();
    assert!(!db.keyspace("k").unwrap().contains("a").unwrap());
    let shown = db.snapshot().time();
    assert!(shown >= at(START + 500), "{shown:?}");
}

/// The same of one that was closed, though the clock was then set back.
#[test]
fn what_was_left_out_before_a_close_had_expired_though_the_clock_was_set_back() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let clock = Arc::new(ManualClock::at_millis(START));
    let db = builder(Arc::clone(&storage), &clock).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    k.put_until("a", "x", at(START + 500)).unwrap();
    clock.set_millis(START + 900);
    db.compact().unwrap();
    db.close().unwrap();
    let clock = Arc::new(ManualClock::at_millis(START + 100));
    let db = builder(storage, &clock).open("/db").unwrap();
    assert!(!db.keyspace("k").unwrap().contains("a").unwrap());
    let shown = db.snapshot().time();
    assert!(shown >= at(START + 500), "{shown:?}");
}

#[test]
fn everything_that_is_read_is_as_of_the_time() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let ttl = [None, Some(millis(700))][seed as usize % 2];
        let options = match ttl {
            Some(ttl) => options().ttl(ttl),
            None => options(),
        };
        let mut bench = Bench::new(options.memtable_size(16 << 10));
        // So that time is judged by all the while.
        bench.k.put_until("forever", "x", at(START * 2)).unwrap();
        let mut rows = Rows::from([(b"forever".to_vec(), (b"x".to_vec(), Some(START * 2)))]);
        let mut now = START;
        for round in 0..60 {
            for _ in 0..random.below(60) {
                let key = format!("key{:03}", random.below(400)).into_bytes();
                let value = vec![random.below(256) as u8; random.pick(&[0, 5, 40, 130, 700])];
                let Bench { k, db, .. } = &bench;
                let (stamp, until) = match random.below(7) {
                    0 => (k.delete(&key).unwrap(), None),
                    1 => (k.put_until(&key, &value, Expiry::Never).unwrap(), Some(None)),
                    2 | 3 => {
                        let until = now + random.below(3000) - 100.min(now);
                        (k.put_until(&key, &value, at(until)).unwrap(), Some(Some(until)))
                    }
                    4 => {
                        let ttl = random.below(2000);
                        let stamp = k.put_with_ttl(&key, &value, millis(ttl)).unwrap();
                        (stamp, Some(Some(stamp.millis() + ttl)))
                    }
                    _ => {
                        let mut batch = WriteBatch::new();
                        batch.put(k, &key, &value);
                        let stamp = db.write(batch).unwrap();
                        let until = ttl.map(|ttl| stamp.millis() + ttl.as_millis() as u64);
                        (stamp, Some(until))
                    }
                };
                now = now.max(stamp.millis());
                match until {
                    Some(until) => rows.insert(key, (value, until)),
                    None => rows.remove(&key),
                };
            }
            match random.below(12) {
                0 => bench.db.flush().unwrap(),
                1 => bench.db.compact().unwrap(),
                2 => drop(bench.db.vacuum().unwrap()),
                3 => step_to_rest(&bench.db),
                4 => bench = bench.reopen_at(now),
                _ => {
                    bench.db.step().unwrap();
                }
            }
            assert_rows(&bench.k, &there(&rows, now), &rows);
            let (low, high) = (random.below(400), random.below(400));
            let (low, high) = (format!("key{low:03}"), format!("key{high:03}"));
            let between = |key: &Vec<u8>| **key >= *low.as_bytes() && **key < *high.as_bytes();
            let expected = there(&rows, now).keys().filter(|key| between(key)).count();
            assert_eq!(bench.k.count(&*low..&*high).unwrap(), expected as u64);
            now += random.below(400);
            bench.clock.set_millis(now);
            bench.k.contains("forever").unwrap();
            if random.chance(250) {
                bench.clock.set_millis(START); // What was judged by counts.
            }
            if round % 6 == 0 {
                assert_sound(&bench.db);
            }
        }
        assert_sound(&bench.db);
    }
}

#[test]
fn what_has_expired_gives_its_room_back() {
    let bench = Bench::new(options().memtable_size(64 << 10));
    let Bench { db, k, clock, .. } = &bench;
    for number in 0..4000u64 {
        let value = vec![7; if number % 10 == 0 { 3000 } else { 60 }];
        k.put_until(format!("{number:05}"), value, at(START + 1000 + number)).unwrap();
    }
    db.flush().unwrap();
    step_to_rest(db);
    let full = db.stats();
    assert_eq!(full.keyspaces[0].entries_expiring, 4000);
    assert_eq!(full.keyspaces[0].entries_expired_estimate, 0);
    clock.set_millis(START + 3000);
    assert_eq!(k.len().unwrap(), 2000 - 1);
    let estimate = db.stats().keyspaces[0].entries_expired_estimate;
    assert!((1900..2100).contains(&estimate), "{estimate}");
    // Idle, it is done by itself; of the interval in the middle more or less is left.
    step_to_rest(db);
    let half = db.stats();
    assert!(half.keyspaces[0].entries_expired_estimate < 50);
    assert!(
        half.bytes_live() < full.bytes_live() * 6 / 10,
        "{} of {}",
        half.bytes_live(),
        full.bytes_live()
    );
    assert!(half.value_bytes() < full.value_bytes() * 7 / 10, "value files too");
    assert_eq!(k.len().unwrap(), 2000 - 1);
    clock.set_millis(START + 9000);
    db.vacuum().unwrap();
    let none = db.stats();
    assert_eq!((none.keyspaces[0].entries_expiring, none.keyspaces[0].bytes_live), (0, 0));
    assert_eq!(none.value_bytes_live(), 0);
    assert!(k.is_empty().unwrap());
    assert_sound(db);
}

#[test]
fn a_database_in_which_nothing_expires_does_not_look_at_the_clock_for_it() {
    let bench = Bench::new(options());
    let Bench { db, k, clock, .. } = &bench;
    k.put("a", "x").unwrap();
    clock.set_millis(START + 1_000_000);
    // All of these would take note of the time.
    drop((db.snapshot(), db.begin_update(), k.iter().next(), k.len().unwrap()));
    db.flush().unwrap();
    db.vacuum().unwrap();
    clock.set_millis(START + 500);
    let stamp = k.put("b", "x").unwrap();
    assert_eq!(stamp.millis(), START + 500);
}

#[test]
fn readers_beside_everything_see_one_moment() {
    let db = Db::builder()
        .storage(Arc::new(MemoryStorage::new()))
        .durability(lithedb::Durability::Buffered)
        .memory_budget(4 << 20)
        .open("/db")
        .unwrap();
    let k = db.create_keyspace("k", options().memtable_size(16 << 10)).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let go_on = || !is_over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(3);
            while go_on() {
                let mut batch = WriteBatch::new();
                for _ in 0..20 {
                    let key = format!("{:04}", random.below(3000));
                    let ttl = millis(random.below(120));
                    batch.put_with_ttl(&k, key, vec![1; random.pick(&[3, 30, 200])], ttl);
                }
                db.write(batch).unwrap();
            }
        });
        scope.spawn(|| {
            while go_on() {
                db.compact().unwrap();
                k.len().unwrap();
            }
        });
        for _ in 0..150 {
            let snapshot = db.snapshot();
            let all = (std::ops::Bound::<Vec<u8>>::Unbounded, std::ops::Bound::Unbounded);
            let walked = snapshot.iter(&k).count() as u64;
            assert_eq!(snapshot.count(&k, all).unwrap(), walked);
            std::thread::sleep(millis(2));
            assert_eq!(snapshot.iter(&k).rev().count() as u64, walked);
            let now = snapshot.time();
            for entry in snapshot.iter(&k) {
                assert!(entry.unwrap().expires_at().unwrap() > now);
            }
            k.len().unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_sound(&db);
}
