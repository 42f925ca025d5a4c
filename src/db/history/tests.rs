//! Ingests that are not archived, and archives that lack something: what no caller can bring about
//! at will.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, UNIX_EPOCH};

use super::TellKept;
use super::made::{Maker, More};
use crate::base::{
    Clock, EntryKind, EntryRef, Error, ManualClock, MergeBase, Operands, RangeTombstones, SeqNo,
    Slice, SystemClock,
};
use crate::block::BlockCursor;
use crate::cache::Part;
use crate::db::cleaning::Cleaned;
use crate::db::core::lock;
use crate::db::keyspace::Keyspace;
use crate::db::maintain::Found;
use crate::db::{Background, Builder, Db, Durability, WriteBatch};
use crate::jobs::Aim;
use crate::manifest::KeyspaceOptions;
use crate::merge::MergeCursor;
use crate::operator::{MergeError, MergeOperator};
use crate::storage::{CrashMode, SimStorage, Storage};
use crate::structure::{FlushOrder, FlushProgress};

const BEGAN_MILLIS: u64 = 1_700_000_000_000;

fn builder(storage: &SimStorage, clock: &Arc<ManualClock>) -> Builder {
    Builder::default()
        .storage(Arc::new(storage.clone()) as Arc<dyn Storage>)
        .clock(Arc::clone(clock) as Arc<_>)
        .background(Background::Stepped)
        .durability(Durability::Buffered)
        .memory_budget(8 << 20)
        .value_file_size(1 << 20)
        .disk_reserve(0)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_millis(BEGAN_MILLIS))
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::history().interval_size(1024).segment_size(16 << 10)
}

/// Ingests these rows, and leaves it to others to archive them.
fn ingest_unarchived(k: &Keyspace, rows: &[(String, Vec<u8>)]) -> SeqNo {
    let mut ingest = k.begin_ingest().unwrap();
    rows.iter().for_each(|(key, value)| ingest.add(key, value).unwrap());
    ingest.finish_unarchived().unwrap()
}

fn rows(count: u32, len: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|number| (format!("key{number:05}"), vec![number as u8; len])).collect()
}

fn is_unarchived(db: &Db, k: &Keyspace) -> bool {
    db.core().unarchived(&k.runtime()).is_some()
}

#[test]
fn versions_by_stamp_end_where_all_in_front_is_known() {
    let db = builder(&SimStorage::new(1), &clock()).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let first = k.put("a", "1").unwrap();
    let to = db.core().flush_up_to_now(&k.runtime()).unwrap();
    assert_eq!(to, first);
    // What others do before the state is looked at: a commit, and an ingest that overtakes it.
    let late = k.put("x", "2").unwrap();
    let ingested = k.ingest([("m", "3")]).unwrap().seqno;
    let told = |versions: super::VersionsByStamp| -> Vec<SeqNo> {
        versions.map(|version| version.unwrap().seqno).collect()
    };
    assert_eq!(told(k.versions_archived_to(to, &(..)).unwrap()), [first]);
    assert_eq!(told(k.versions_archived_to(to, &(..=ingested)).unwrap()), [first]);
    assert_eq!(told(k.versions_archived_to(to, &(first..ingested)).unwrap()), [first]);
    assert_eq!(told(k.versions_archived_to(to, &(late..)).unwrap()), []);
    let behind = (Bound::Excluded(first), Bound::Unbounded);
    assert_eq!(told(k.versions_by_stamp(behind).unwrap()), [late, ingested]);
    // An ingest that is not archived is, first.
    let another = ingest_unarchived(&k, &rows(3, 9));
    let all_four = [ingested, another, another, another];
    assert_eq!(told(k.versions_by_stamp(ingested..).unwrap()), all_four);
}

#[test]
fn what_is_in_memtables_is_kept_however_new_the_structure_is() {
    let clock = clock();
    let db = builder(&SimStorage::new(1), &clock).open("/db").unwrap();
    let k = db.create_keyspace("k", options().keep_for(Duration::from_secs(1))).unwrap();
    let in_memtable = k.put("a", "1").unwrap();
    clock.advance(Duration::from_millis(5));
    let ingested = k.ingest([("x", "1")]).unwrap().seqno;
    clock.advance(Duration::from_secs(60));
    let runtime = k.runtime();
    let archive = runtime.archive.as_ref().unwrap();
    {
        let _turn = lock(&runtime.flushing);
        assert!(runtime.store.last_seqno() == ingested && ingested > in_memtable);
        db.core().note_kept(&runtime, TellKept::Always).unwrap();
    }
    assert!(archive.store.kept_from() < in_memtable, "{}", archive.store.kept_from());
    let unarchived = ingest_unarchived(&k, &rows(3, 9));
    db.core().seal(k.id(), &db.core().log.lock_applier());
    clock.advance(Duration::from_secs(60));
    db.core().note_kept(&runtime, TellKept::Always).unwrap();
    assert!(archive.store.kept_from() < in_memtable, "{}", archive.store.kept_from());
    db.core().flush_all().unwrap();
    db.core().note_kept(&runtime, TellKept::Always).unwrap();
    assert_eq!(archive.store.kept_from(), unarchived);
}

/// Has the structure say that it has commits up to a later stamp.
fn raise_stamp(db: &Db, k: &Keyspace) {
    let runtime = k.runtime();
    let store = &runtime.store;
    let order = FlushOrder {
        memtable_bytes: 0,
        value_bytes: 0,
        log_end: store.log_end(),
        last_seqno: SeqNo::from_u64(store.last_seqno().as_u64() + 1000),
        now: 0,
        slice_bytes: u64::MAX,
    };
    let _turn = lock(&runtime.flushing);
    let mut nothing = MergeCursor::<BlockCursor>::new(Vec::new());
    let flushed = store.flush(&mut nothing, &RangeTombstones::default(), order).unwrap();
    assert_eq!(flushed.progress, FlushProgress::Complete);
    db.core().published.replace(|state| state.with_version(runtime.store_id, &flushed.version));
}

/// A database whose archive lacks what its keyspace has, opened again.
fn with_archive_behind(has_ingests: bool) -> (Db, Keyspace) {
    let storage = SimStorage::new(1);
    let db = builder(&storage, &clock()).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    k.put("a", "1").unwrap();
    db.flush().unwrap();
    if has_ingests {
        db.core().note_ingests(&k.runtime()).unwrap();
    }
    raise_stamp(&db, &k);
    let crashed = storage.crash(CrashMode::KeepAll, 1);
    drop((db, k));
    let db = builder(&crashed, &clock()).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    (db, k)
}

/// Where there were no ingests nothing is taken for one, and nothing is refused.
#[test]
fn an_archive_that_is_behind_is_told_by_a_check() {
    let (db, k) = with_archive_behind(false);
    assert!(!is_unarchived(&db, &k));
    let problems = db.check().unwrap().problems;
    assert!(problems.len() == 1 && problems[0].contains("newest stamp of an archive"));
    k.put("a", "2").unwrap();
    db.flush().unwrap();
    assert_eq!(k.history("a", ..).unwrap().count(), 2);
    assert!(db.check().unwrap().is_ok());
}

/// Where there were, it is taken for one, until nothing of it is found.
#[test]
fn an_archive_that_lacks_something_else_than_an_ingest_is_damaged() {
    let (db, k) = with_archive_behind(true);
    let flushed = db.flush();
    assert!(is_unarchived(&db, &k) && db.stats().read_only.is_some());
    let Err(Error::Corruption { what, .. }) = flushed else { panic!("{flushed:?}") };
    assert!(what.contains("behind its keyspace"), "{what}");
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// A database in which archiving what was ingested finds no room.
fn without_room(storage: &SimStorage) -> (Db, Keyspace) {
    let db = builder(storage, &clock()).flush_slice_size(4 << 10).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    k.put("a", "1").unwrap();
    db.flush().unwrap();
    ingest_unarchived(&k, &rows(4000, 90));
    storage.set_capacity(storage.allocated_bytes() + (40 << 10));
    (db, k)
}

#[test]
fn slices_of_archiving_say_nothing_of_room() {
    let storage = SimStorage::new(1);
    let (db, k) = without_room(&storage);
    let core = db.core();
    let full_count = || core.disk_full_count.load(Ordering::Relaxed);
    let mut slices = 0;
    let failed = loop {
        match core.step() {
            Ok(_) => slices += 1,
            Err(error) => break error,
        }
        assert_eq!(full_count(), 0);
    };
    assert!(matches!(failed, Error::DiskFull { .. }) && slices > 5, "{failed} behind {slices}");
    let of = core.unarchived(&k.runtime()).unwrap();
    assert!(of.has_found_no_room() && full_count() == 1);
    // What it wrote is given back, and it begins anew.
    for _ in 0..3 {
        assert!(core.step().unwrap());
        assert_eq!(full_count(), 1, "there was room for a slice, and not for the whole");
    }
    storage.set_capacity(u64::MAX);
    db.flush().unwrap();
    assert!(!is_unarchived(&db, &k) && full_count() == 0);
    assert_eq!(k.history("key00007", ..).unwrap().count(), 1);
}

#[test]
fn archiving_that_found_no_room_waits_the_longer_the_longer_it_took() {
    let storage = SimStorage::new(1);
    let (db, k) = without_room(&storage);
    let of = db.core().unarchived(&k.runtime()).unwrap();
    let at = Duration::from_millis;
    assert!(!of.has_found_no_room() && !of.waits_for_room(Duration::ZERO));
    of.note_no_room((at(1000), at(1001)), 7);
    assert!(of.waits_for_room(at(1100)) && !of.waits_for_room(at(1101)));
    of.note_no_room((at(1000), at(1200)), 7);
    assert!(of.waits_for_room(at(4399)) && !of.waits_for_room(at(4400)));
    of.note_no_room((at(0), at(3_600_000)), 7);
    assert!(of.waits_for_room(at(3_604_999)) && !of.waits_for_room(at(3_605_000)));
    // Who steps, or flushes, does not wait.
    assert!(!db.core().waits_for_room(&db.core().published.state().find(k.id()).unwrap().clone()));
    // One that comes further has found some.
    assert!(!of.note_room(7) && of.has_found_no_room());
    assert!(of.note_room(8) && !of.has_found_no_room() && !of.waits_for_room(Duration::ZERO));
    assert!(!of.note_room(9), "it is no news");
}

/// Else writers would be told that there is no room for as long as archiving takes.
#[test]
fn a_try_that_comes_further_than_the_one_that_found_no_room_says_so() {
    let storage = SimStorage::new(1);
    let (db, k) = without_room(&storage);
    let core = db.core();
    while core.step().is_ok() {}
    storage.set_capacity(u64::MAX);
    let of = core.unarchived(&k.runtime()).unwrap();
    assert!(of.has_found_no_room());
    while of.has_found_no_room() {
        assert!(core.disk_full_count.load(Ordering::Relaxed) > 0);
        assert!(core.step().unwrap());
    }
    assert!(is_unarchived(&db, &k), "it is under way");
    assert_eq!(core.disk_full_count.load(Ordering::Relaxed), 0);
}

/// What cannot be flushed keeps log and memory; that others are flushed for each of their commits
/// would free neither.
#[test]
fn commits_elsewhere_are_not_sealed_one_by_one_beside_an_ingest() {
    for fills_memory in [false, true] {
        let storage = SimStorage::new(1);
        let db = builder(&storage, &clock()).wal_file_size(64 << 10).open("/db").unwrap();
        let k = db.create_keyspace("k", options().memtable_size(16 << 20)).unwrap();
        let other = db.create_keyspace("other", KeyspaceOptions::flex()).unwrap();
        ingest_unarchived(&k, &rows(10, 90));
        let core = db.core();
        let mut batch = WriteBatch::new();
        for number in 0..if fills_memory { core.sizes.budget / 2 / 1000 } else { 1 } {
            batch.put(&k, number.to_be_bytes(), [1; 1000]);
        }
        db.write(batch).unwrap();
        let runtime = k.runtime();
        let turn = lock(&runtime.flushing); // As long as this takes, it is not archived.
        let (mut sealed_count, mut bytes) = (0, 0);
        let mut seen = core.published.state().find(other.id()).unwrap().active.clone();
        while bytes < 24 << 20 {
            let value = [2; 1000];
            bytes += value.len();
            other.put(format!("{bytes:09}"), value).unwrap();
            let state = core.published.state();
            let keyspace = state.find(other.id()).unwrap();
            if !Arc::ptr_eq(&keyspace.active, &seen) {
                (sealed_count, seen) = (sealed_count + 1, keyspace.active.clone());
            }
        }
        assert!(is_unarchived(&db, &k));
        let limit = 32 * bytes as u64 / other.runtime().memtable_size + 2;
        assert!((2..=limit).contains(&sealed_count), "{sealed_count}, not {limit}");
        drop(turn);
        db.flush().unwrap();
        assert!(!is_unarchived(&db, &k));
    }
}

#[test]
fn closing_removes_what_was_written_of_an_archive() {
    let storage = SimStorage::new(1);
    let (db, k) = without_room(&storage);
    let archive = k.runtime().archive.as_ref().unwrap().store_id;
    let dir = crate::db::core::keyspace_dir("/db".as_ref(), archive);
    let files = || {
        let all = storage.files().into_iter().map(|(path, _)| path);
        all.filter(|path| path.starts_with(&dir)).count()
    };
    let before = files();
    while files() == before {
        assert!(db.step().unwrap());
    }
    db.core().set_poison("a test");
    assert!(matches!(db.close(), Err(Error::ReadOnly { .. })));
    assert_eq!(files(), before);
}

/// Values of two keyspaces in the same files: of `f`, which are garbage by now, and those of an
/// ingest into `k`, which expire in a minute and are not archived.
fn with_garbage_around(storage: &SimStorage, clock: &Arc<ManualClock>) -> (Db, Keyspace, SeqNo) {
    let db = builder(storage, clock).open("/db").unwrap();
    let core = Arc::clone(db.core());
    let f = db.create_keyspace("f", KeyspaceOptions::flex()).unwrap();
    let k = db.create_keyspace("k", options().value_separation(Some(300))).unwrap();
    let write = |keys: std::ops::Range<u32>, round: u8| {
        let mut batch = WriteBatch::new();
        keys.for_each(|key| batch.put(&f, key.to_be_bytes(), vec![round; 4096]));
        db.write(batch).unwrap();
    };
    let mut ingest = k.begin_ingest().unwrap();
    let end = UNIX_EPOCH + Duration::from_millis(clock.wall_millis() + 60_000);
    for (number, (key, value)) in (0..).zip(rows(900, 4096)) {
        ingest.add_until(key, value, end).unwrap();
        if number % 16 == 15 {
            write(number..number + 16, 1); // In between, in the same files.
        }
    }
    for round in 2..4 {
        write(0..1000, round);
        core.flush_keyspace(&f.runtime()).unwrap();
        while !matches!(core.consolidate_slice_of_any().unwrap(), Found::Nothing) {}
    }
    let stamp = ingest.finish_unarchived().unwrap();
    (db, k, stamp)
}

fn assert_ingested(db: &Db, k: &Keyspace, stamp: SeqNo) {
    let then = db.snapshot_at(stamp).unwrap();
    for (key, value) in rows(900, 4096).into_iter().step_by(7) {
        let told: Vec<_> = k.history(&key, ..).unwrap().map(|version| version.unwrap()).collect();
        assert_eq!(told.len(), 1, "{key}");
        assert_eq!((told[0].seqno, told[0].value.as_deref()), (stamp, Some(&*value)));
        assert_eq!(then.get(k, &key).unwrap().as_deref(), Some(&*value), "{key}");
        assert_eq!(k.get(&key).unwrap(), None, "it has expired by now");
    }
}

/// What has expired before it is archived is a version, wherever cleaning moves it meanwhile, and
/// what only the ingest held is given back with it.
#[test]
fn what_expires_or_is_moved_before_it_is_archived_is_a_version() {
    let (storage, clock) = (SimStorage::new(1), clock());
    let (db, k, stamp) = with_garbage_around(&storage, &clock);
    db.sync().unwrap();
    let storage = storage.crash(CrashMode::KeepAll, 1);
    drop((db, k));
    clock.advance(Duration::from_secs(3600));
    let db = builder(&storage, &clock).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    assert_ingested(&db, &k, stamp);
    let core = db.core();
    let mut round = core.begin_cleaning(Aim::Thorough).unwrap();
    while core.clean_slice(&mut round).unwrap() != Cleaned::Everything {}
    assert!(round.mover.moved_bytes() > 0);
    drop(round);
    let found = loop {
        match core.consolidate_slice_of_any().unwrap() {
            Found::Work { .. } => {}
            found => break found,
        }
    };
    assert_eq!(found, Found::Busy, "of k nothing goes");
    assert!(is_unarchived(&db, &k));
    assert_ingested(&db, &k, stamp);
    db.sync().unwrap();
    let storage = storage.crash(CrashMode::KeepAll, 2);
    drop((db, k));
    let db = builder(&storage, &clock).open("/db").unwrap();
    let k = db.keyspace("k").unwrap();
    assert!(is_unarchived(&db, &k));
    assert_ingested(&db, &k, stamp);
    db.flush().unwrap();
    assert!(!is_unarchived(&db, &k));
    assert_ingested(&db, &k, stamp);
    assert!(db.check().unwrap().is_ok());
}

#[test]
fn what_only_an_unarchived_ingest_held_is_given_back_with_it() {
    let (storage, clock) = (SimStorage::new(1), clock());
    let (db, k, stamp) = with_garbage_around(&storage, &clock);
    let core = db.core();
    let mut round = core.begin_cleaning(Aim::Thorough).unwrap();
    while core.clean_slice(&mut round).unwrap() != Cleaned::Everything {}
    assert!(round.mover.moved_bytes() > 0);
    drop(round);
    let runtime = k.runtime();
    runtime.store.remove_unreferenced();
    core.settle_ingest(&runtime).unwrap();
    assert!(!is_unarchived(&db, &k));
    // Of what it held nothing is left for others to give back.
    let allocated = storage.allocated_bytes();
    runtime.store.remove_unreferenced();
    assert_eq!(storage.allocated_bytes(), allocated);
    clock.advance(Duration::from_secs(3600));
    assert_ingested(&db, &k, stamp);
}

/// Counts what it merges; fails at an operand that begins with "bad".
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl MergeOperator for Counting {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        if operand.starts_with(b"bad") {
            return Err("that one is bad".into());
        }
        let mut value = existing.unwrap_or_default();
        value.extend(operand);
        Ok(value)
    }
}

fn operand_of(stamp: u64, bytes: &[u8]) -> EntryRef<'_> {
    let (key, seqno) = (b"key", SeqNo::from_u64(stamp));
    EntryRef { key, seqno, kind: EntryKind::Composite, value: bytes }
}

#[test]
fn what_cannot_be_made_is_not_tried_with_each_memtable() {
    let counting = Counting::default();
    let builder = builder(&SimStorage::new(1), &clock());
    let db = builder.merge_operator("counting", counting.clone()).open("/db").unwrap();
    let k = db.create_keyspace("k", options().merge_operator("counting")).unwrap();
    let runtime = k.runtime();
    let mut maker = Maker::new(&runtime, runtime.archive.as_ref().unwrap(), &db.core().budget);
    let mut archived = Operands::single(MergeBase::Nothing, b"bad");
    for stamp in 2..1000 {
        maker.begin_key();
        let found = crate::structure::Found {
            seqno: Some(SeqNo::from_u64(stamp - 1)),
            kind: EntryKind::Composite,
            value: Slice::from(&*archived),
        };
        let operand = Operands::open(b"operand");
        let known = Ok(Some((SeqNo::from_u64(stamp - 1), Some(found))));
        assert!(maker.take(operand_of(stamp, &operand), MergeBase::Below, || known).unwrap());
        assert!(maker.take_made(SeqNo::from_u64(stamp)).is_none());
        Operands::push(&mut archived, b"operand");
    }
    let tries = counting.0.load(Ordering::Relaxed);
    assert!((4..=12).contains(&tries), "{tries} tries");
}

#[test]
fn what_is_held_to_make_versions_is_charged() {
    const LEN: usize = 1 << 20;
    let builder = builder(&SimStorage::new(1), &clock());
    let db = builder.open("/db").unwrap();
    let k = db.create_keyspace("k", options().merge_operator("append")).unwrap();
    let (runtime, budget) = (k.runtime(), &db.core().budget);
    let archive = runtime.archive.as_ref().unwrap();
    let mut maker = Maker::new(&runtime, archive, budget);
    let before = budget.usage(Part::Buffer);
    let held = || budget.usage(Part::Buffer) - before;
    let (value, operand) = (vec![7; LEN], Operands::open(b"x"));
    let put = EntryRef { kind: EntryKind::Value, ..operand_of(1, &value) };
    maker.begin_key();
    maker.note_put(put, More::Versions);
    assert!(held() >= LEN, "{}", held());
    maker.take(operand_of(2, &operand), MergeBase::Below, || panic!("it was put")).unwrap();
    assert!(held() >= LEN, "{}", held());
    maker.begin_key();
    let found = crate::structure::Found {
        seqno: Some(SeqNo::from_u64(1)),
        kind: EntryKind::Composite,
        value: Slice::from(Operands::single(MergeBase::Value(&value), b"y")),
    };
    let known = Ok(Some((SeqNo::from_u64(1), Some(found))));
    maker.take(operand_of(2, &operand), MergeBase::Below, || known).unwrap();
    assert!(held() >= LEN, "{}", held());
    maker.finish().unwrap();
    assert_eq!(held(), 0);
}

/// Counts how often the thread that made it sleeps.
#[derive(Debug)]
struct CountingSleeps {
    clock: SystemClock,
    of: ThreadId,
    count: AtomicU64,
}

impl Clock for CountingSleeps {
    fn wall_millis(&self) -> u64 {
        self.clock.wall_millis()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        if std::thread::current().id() == self.of {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.clock.sleep(duration);
    }
}

/// Else those who only try the turn would never get it, and those who wait for it hardly.
#[test]
fn whoever_archives_lets_others_have_the_turn() {
    let of = std::thread::current().id();
    let clock = CountingSleeps { clock: SystemClock::new(), of, count: AtomicU64::new(0) };
    let clock = Arc::new(clock);
    let builder = Builder::default().storage(Arc::new(SimStorage::new(1)) as Arc<dyn Storage>);
    let builder = builder.clock(Arc::clone(&clock) as Arc<_>).background(Background::Threads);
    let db = builder.flush_slice_size(1 << 10).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let _it_is_the_only_one = db.pause_background();
    k.ingest(rows(5000, 20)).unwrap();
    assert!(!is_unarchived(&db, &k));
    assert!(clock.count.load(Ordering::Relaxed) > 0);
}

/// Who has the turn of an archive, and makes its next version, never publishes it behind another's:
/// what the store has is published whenever nobody has the turn.
#[test]
fn versions_of_an_archive_are_published_in_turn() {
    let db = builder(&SimStorage::new(1), &clock()).open("/db").unwrap();
    let k = db.create_keyspace("k", options()).unwrap();
    let runtime = k.runtime();
    let archive = runtime.archive.as_ref().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut stale = 0;
            while !is_over.load(Ordering::Acquire) {
                {
                    let _turn = lock(&archive.flushing);
                    let state = db.core().published.state();
                    let published = Arc::as_ptr(&state.find(archive.id).unwrap().version);
                    let newest = archive.store.version();
                    stale += u32::from(!std::ptr::addr_eq(published, Arc::as_ptr(&newest)));
                }
                std::thread::yield_now();
            }
            stale
        });
        for _ in 0..300 {
            k.ingest(rows(2, 20)).unwrap();
        }
        is_over.store(true, Ordering::Release);
        assert_eq!(looks.join().unwrap(), 0);
    });
}
