//! Flex against a map: flushes of every shape, reopening, cursors, damage.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::FlexStore;
use crate::base::{
    Codec, Cursor, Entropy, EntryKind, EntryRef, Error, KeyRange, Operands, RangeTombstones,
    Result, SeededEntropy, SeqNo,
};
use crate::cache::{Cache, MemoryBudget};
use crate::manifest::KeyspaceOptions;
use crate::operator::{MergeLimits, Merging, Operators};
use crate::storage::Storage;
use crate::storage::{FaultEffect, FaultPlan, FaultRule, MemoryStorage, Operation, SimStorage};
use crate::structure::{
    Findings, FlushOrder, FlushProgress, SharedStores, Store, StorePlace, Want, WholeCheck,
};
use crate::value_log::{FilesWriter, ValueLog, ValueLogOptions, Verify};

/// A memtable for tests: the newest entry of each key.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What a test's memtable has of a key.
pub(super) type NewEntry = (Vec<u8>, EntryKind, Vec<u8>);

struct ChangeCursor {
    entries: Vec<NewEntry>,
    place: usize,
    seqno: SeqNo,
}

impl Cursor for ChangeCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.place = 0;
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        unreachable!("a flush only goes forward")
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place = self.entries.partition_point(|entry| entry.0.as_slice() < key);
        Ok(())
    }
    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        unreachable!("a flush only goes forward")
    }
    fn next(&mut self) -> Result<()> {
        self.place += 1;
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("a flush only goes forward")
    }
    fn entry(&self) -> Option<EntryRef<'_>> {
        let (key, kind, value) = self.entries.get(self.place)?;
        Some(EntryRef { key, seqno: self.seqno, kind: *kind, value })
    }
}

fn value_log(storage: &Arc<dyn Storage>) -> Arc<ValueLog> {
    let (verify, writer) = (Verify::Checksums, FilesWriter::Own);
    let options = ValueLogOptions { file_size: 1 << 20, verify, writer };
    let budget = MemoryBudget::new(1 << 20);
    let log = ValueLog::open(Arc::clone(storage), "/values".into(), 7, options, budget);
    Arc::new(log.unwrap())
}

pub(super) struct Bench {
    pub place: StorePlace,
    pub store: Arc<FlexStore>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    flush_count: u64,
    /// By when flushes judge what has expired.
    pub now: u64,
}

pub(super) fn small_options() -> KeyspaceOptions {
    KeyspaceOptions::flex().interval_size(512).segment_size(4096)
}

impl Bench {
    pub fn new(options: KeyspaceOptions) -> Bench {
        Bench::in_storage(Arc::new(MemoryStorage::new()), options)
    }

    fn in_storage(storage: Arc<dyn Storage>, options: KeyspaceOptions) -> Bench {
        let dir = PathBuf::from("/keyspace");
        storage.create_dir_all(&dir).unwrap();
        let cache = Arc::new(Cache::new(MemoryBudget::new(64 << 10)));
        let values = value_log(&storage);
        let limits = MergeLimits { value_len: 1 << 20, stuck_size: 1 << 20 };
        let operator = options.merge_operator.as_deref();
        let merging = Arc::new(Merging::new(operator, &Operators::builtin(), limits, &dir));
        let place = StorePlace {
            storage,
            dir,
            database: 7,
            keyspace: 1,
            shared: SharedStores {
                partitions: Arc::new(Cache::for_indexes(Arc::clone(cache.budget()))),
                guides: Arc::new(Cache::for_guides(Arc::clone(cache.budget()))),
                cache,
                open_segments: Arc::default(),
                open_tables: Arc::default(),
                values,
                memtable_size: 64 << 10,
            },
            options,
            merging,
        };
        FlexStore::create(&place).unwrap();
        let store = Arc::new(FlexStore::open(&place, None).unwrap());
        Bench { place, store, model: BTreeMap::new(), flush_count: 0, now: 0 }
    }

    pub fn flush(&mut self, changes: Changes) {
        for (key, value) in &changes {
            match value {
                Some(value) => self.model.insert(key.clone(), value.clone()),
                None => self.model.remove(key),
            };
        }
        let entries = changes.into_iter().map(|(key, value)| match value {
            Some(value) => (key, EntryKind::Value, value),
            None => (key, EntryKind::Tombstone, Vec::new()),
        });
        self.flush_entries(entries.collect());
    }

    /// Flushes entries in the order of their keys, which the model does not learn of.
    pub fn flush_entries(&mut self, entries: Vec<NewEntry>) {
        self.flush_count += 1;
        let bytes = entries.iter().map(|(key, _, value)| (key.len() + value.len()) as u64).sum();
        let seqno = SeqNo::from_u64(self.flush_count);
        let mut cursor = ChangeCursor { entries, place: 0, seqno };
        let order = FlushOrder {
            memtable_bytes: bytes,
            value_bytes: 0,
            log_end: self.flush_count * 100,
            last_seqno: seqno,
            now: self.now,
            slice_bytes: 6000,
        };
        let none = RangeTombstones::default();
        while self.store.flush(&mut cursor, &none, order).unwrap().progress
            == FlushProgress::Partial
        {
            cursor.place = 0;
        }
        assert_eq!(self.store.log_end(), self.flush_count * 100);
    }

    fn reopen(&mut self) {
        let position = self.store.log_position();
        self.store = Arc::new(FlexStore::open(&self.place, Some(position)).unwrap());
    }

    pub fn problems(&self) -> Vec<String> {
        let mut findings = Findings::default();
        self.store.check_index(&mut findings).check_data(&mut findings, &mut WholeCheck);
        findings.problems
    }

    fn assert_equals_model(&self) {
        assert_eq!(self.problems(), Vec::<String>::new());
        let version = self.store.version();
        let mut cursor = version.cursor(&KeyRange::all());
        let mut seen = Vec::new();
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            if entry.kind == EntryKind::Value {
                seen.push((entry.key.to_vec(), entry.value.to_vec()));
            }
            cursor.next().unwrap();
        }
        let expected: Vec<_> = self.model.clone().into_iter().collect();
        assert!(seen == expected, "{} entries, expected {}", seen.len(), expected.len());
        let mut backward = Vec::new();
        cursor.seek_last().unwrap();
        while let Some(entry) = cursor.entry() {
            if entry.kind == EntryKind::Value {
                backward.push(entry.key.to_vec());
            }
            cursor.prev().unwrap();
        }
        assert!(backward.iter().eq(self.model.keys().rev()));
        for (key, value) in self.model.iter().step_by(3) {
            let found = version.find(key, Want::Stamp).unwrap().expect("in the model");
            assert_eq!((found.kind, &*found.value), (EntryKind::Value, value.as_slice()));
        }
    }
}

pub(super) fn random_changes(random: &SeededEntropy, count: u64, key_space: u64) -> Changes {
    let mut changes = Changes::new();
    for _ in 0..count {
        let key = format!("key-{:06}", random.next_u64() % key_space).into_bytes();
        let len = match random.next_u64() % 50 {
            0 => 3000,
            1 => 0,
            _ => random.next_u64() % 60,
        };
        let value = vec![random.next_u64() as u8; len as usize];
        let value = (!random.next_u64().is_multiple_of(4)).then_some(value);
        changes.insert(key, value);
    }
    changes
}

#[test]
fn random_flushes_equal_a_map_also_after_reopening() {
    for (seed, options) in [
        (1, small_options()),
        (2, small_options().consolidation_pace(8.0).delta_fan_in(2)),
        (3, small_options().consolidation_pace(0.1).delta_fan_in(0)),
        (4, small_options().codec(Codec::Lz4).delta_fan_in(3)),
    ] {
        let mut bench = Bench::new(options);
        let random = SeededEntropy::new(seed);
        for round in 0..60 {
            let (count, key_space) = (1 + random.next_u64() % 300, 4000);
            bench.flush(random_changes(&random, count, key_space));
            if round % 7 == 0 {
                bench.reopen();
            }
            if round % 3 == 0 {
                bench.assert_equals_model();
            }
        }
        assert!(bench.store.stats(0).consolidations > 0);
        bench.reopen();
        bench.assert_equals_model();
    }
}

#[test]
fn deleting_everything_gives_everything_back() {
    let mut bench = Bench::new(small_options());
    let random = SeededEntropy::new(5);
    for _ in 0..10 {
        bench.flush(random_changes(&random, 300, 3000));
    }
    bench.assert_equals_model();
    let live_before = bench.store.stats(0).bytes_live;
    let all: Changes = bench.model.keys().map(|key| (key.clone(), None)).collect();
    bench.flush(all);
    // The sweep comes round.
    for _ in 0..20 {
        bench.flush(Changes::from([(b"a".to_vec(), None)]));
    }
    bench.assert_equals_model();
    let stats = bench.store.stats(0);
    // What is left are large overwritten values, where the sweep has not come yet.
    assert!(stats.bytes_live < live_before / 5, "{live_before} before: {stats:?}");
    assert!(stats.entry_count_max < 50, "{stats:?}");
    bench.store.remove_unreferenced();
    let files = bench.place.storage.list_dir(&bench.place.dir).unwrap();
    assert_eq!(files.len() as u64, stats.segments + 1, "{files:?}");
}

#[test]
fn ascending_loads_write_each_entry_once() {
    let mut bench = Bench::new(KeyspaceOptions::flex().interval_size(4096).segment_size(64 << 10));
    for round in 0..20u64 {
        let key = |index: u64| format!("{:012}", round * 1000 + index).into_bytes();
        bench.flush((0..1000).map(|index| (key(index), Some(vec![7; 100]))).collect());
    }
    bench.assert_equals_model();
    let stats = bench.store.stats(0);
    let amplification = stats.segment_bytes_written as f64 / stats.logical_bytes as f64;
    assert!(amplification < 1.15, "{amplification}");
}

#[test]
fn old_versions_stay_as_they_are_and_hold_their_files() {
    let mut bench = Bench::new(small_options());
    let random = SeededEntropy::new(9);
    for _ in 0..5 {
        bench.flush(random_changes(&random, 200, 1000));
    }
    let (old_version, old_model) = (bench.store.version(), bench.model.clone());
    for _ in 0..30 {
        bench.flush(random_changes(&random, 200, 1000));
    }
    let mut cursor = old_version.cursor(&KeyRange::all());
    cursor.seek_first().unwrap();
    let mut seen = BTreeMap::new();
    while let Some(entry) = cursor.entry() {
        if entry.kind == EntryKind::Value {
            seen.insert(entry.key.to_vec(), entry.value.to_vec());
        }
        cursor.next().unwrap();
    }
    assert!(seen == old_model);
    let pinned = bench.store.stats(0).bytes_dead;
    drop((cursor, old_version));
    bench.store.remove_unreferenced();
    assert!(bench.store.stats(0).bytes_dead < pinned);
    bench.assert_equals_model();
}

/// Segments with room for holes, and too small a pace for them to die whole soon.
fn options_with_holes() -> KeyspaceOptions {
    KeyspaceOptions::flex().interval_size(512).segment_size(64 << 10).consolidation_pace(1.0)
}

#[test]
fn overwriting_leaves_holes_that_nothing_reads_and_that_count_as_room() {
    let storage = SimStorage::new(1);
    let mut bench = Bench::in_storage(Arc::new(storage.clone()), options_with_holes());
    let random = SeededEntropy::new(13);
    let mut hole_bytes_max = 0;
    for round in 0..120 {
        bench.flush(random_changes(&random, 300, 12_000));
        bench.store.remove_unreferenced();
        let hole_bytes = bench.store.stats(0).bytes_in_holes;
        hole_bytes_max = hole_bytes_max.max(hole_bytes);
        let sizes = storage.files().into_iter().map(|(_, size)| size.next_multiple_of(4096));
        assert_eq!(sizes.sum::<u64>() - storage.allocated_bytes(), hole_bytes);
        if round % 10 == 0 {
            bench.assert_equals_model();
        }
    }
    assert!(hole_bytes_max > 100 << 10, "{hole_bytes_max}");
    assert!(storage.count_of(Operation::PunchHole) > 10);
    assert_eq!(storage.violations(), Vec::<String>::new());
    bench.reopen();
    bench.assert_equals_model();
}

#[test]
fn a_version_keeps_what_it_holds_out_of_holes() {
    let mut bench = Bench::new(options_with_holes());
    let random = SeededEntropy::new(17);
    for _ in 0..20 {
        bench.flush(random_changes(&random, 300, 12_000));
    }
    let (old_version, old_model) = (bench.store.version(), bench.model.clone());
    bench.store.remove_unreferenced();
    let before = bench.store.stats(0).bytes_in_holes;
    // Runs that die are of the version that is held, or younger than it.
    for _ in 0..40 {
        bench.flush(random_changes(&random, 300, 12_000));
        bench.store.remove_unreferenced();
    }
    let with_old = bench.store.stats(0).bytes_in_holes;
    for (key, value) in &old_model {
        let found = old_version.find(key, Want::Value).unwrap().expect("in the model");
        assert_eq!(&*found.value, value.as_slice());
    }
    drop(old_version);
    assert_eq!(bench.store.stats(0).bytes_in_holes, with_old, "no calls while dropping");
    bench.store.remove_unreferenced();
    let without = bench.store.stats(0).bytes_in_holes;
    assert!(without > with_old, "{before} before, {with_old} beside it, {without} after it");
    bench.assert_equals_model();
}

/// G4: what is in a segment's file stays for as long as it has another name, also runs that die
/// while it gets that name.
#[test]
fn no_holes_are_made_in_segments_that_have_another_name() {
    let storage = SimStorage::new(1);
    let mut bench = Bench::in_storage(Arc::new(storage.clone()), options_with_holes());
    let random = SeededEntropy::new(23);
    let overwrite = |bench: &mut Bench, rounds: u64| {
        for _ in 0..rounds {
            bench.flush(random_changes(&random, 300, 12_000));
            bench.store.remove_unreferenced();
        }
    };
    overwrite(&mut bench, 20);
    let other = PathBuf::from("/other");
    storage.create_dir_all(&other).unwrap();
    let image = bench.store.image();
    overwrite(&mut bench, 10);
    let mut linked = Vec::new();
    for file in image.files.iter().filter(|file| !file.is_written_to) {
        let to = other.join(file.path.file_name().unwrap());
        storage.link(&file.path, &to).unwrap();
        let bytes = storage.read_file(&to).unwrap();
        linked.push((to, bytes));
    }
    assert!(linked.len() > 5 && linked.len() < image.files.len());
    drop(image);
    let mut shared_dead_max = 0;
    for _ in 0..40 {
        overwrite(&mut bench, 1);
        shared_dead_max = shared_dead_max.max(bench.store.stats(0).bytes_shared_dead);
    }
    assert!(shared_dead_max > 8 << 10, "{shared_dead_max}");
    for (path, bytes) in &linked {
        assert!(storage.read_file(path).unwrap() == *bytes, "{}", path.display());
        storage.remove_file(path).unwrap();
    }
    bench.assert_equals_model();
    let before = bench.store.stats(0).bytes_in_holes;
    overwrite(&mut bench, 2);
    assert!(bench.store.stats(0).bytes_in_holes > before, "they were put back");
    assert_eq!(storage.violations(), [""; 0]);
    bench.reopen();
    bench.assert_equals_model();
}

#[test]
fn holes_that_fail_are_done_without_and_refused_ones_not_asked_for_again() {
    for (error, asked_again) in [(ErrorKind::Unsupported, false), (ErrorKind::Other, true)] {
        let storage = SimStorage::new(1);
        let fails = FaultRule::new(FaultEffect::Error(error)).on(&[Operation::PunchHole]);
        storage.arm(FaultPlan::new().rule(fails.lasting()));
        let mut bench = Bench::in_storage(Arc::new(storage.clone()), options_with_holes());
        let random = SeededEntropy::new(19);
        for _ in 0..60 {
            bench.flush(random_changes(&random, 300, 12_000));
            bench.store.remove_unreferenced();
        }
        bench.assert_equals_model();
        assert_eq!(bench.store.stats(0).bytes_in_holes, 0);
        assert_eq!(storage.count_of(Operation::PunchHole) > 1, asked_again);
    }
}

/// The edit that points into them may be durable, and others still remove what nobody holds: that
/// the database is read-only comes later.
#[test]
fn value_files_stay_when_a_flush_has_left_its_edit_in_doubt() {
    let storage = SimStorage::new(1);
    let options = small_options().merge_operator("append").value_separation(Some(100));
    let bench = Bench::in_storage(Arc::new(storage.clone()), options);
    let fails = FaultEffect::ErrorAfterwards(ErrorKind::Other);
    let rule = FaultRule::new(fails).on(&[Operation::Sync]).path("index-");
    storage.arm(FaultPlan::new().rule(rule));
    let operand = Operands::open(&[7; 700 << 10]);
    let entries = (b'a'..=b'd').map(|key| (vec![key], EntryKind::Composite, operand.clone()));
    let seqno = SeqNo::from_u64(1);
    let mut cursor = ChangeCursor { entries: entries.collect(), place: 0, seqno };
    let order = FlushOrder {
        memtable_bytes: 4 * (700 << 10),
        value_bytes: 0,
        log_end: 100,
        last_seqno: seqno,
        now: 0,
        slice_bytes: u64::MAX,
    };
    let failed = bench.store.flush(&mut cursor, &RangeTombstones::default(), order).unwrap_err();
    assert!(matches!(failed, Error::Io { .. }), "{failed}");
    bench.place.shared.values.remove_unreferenced(|| true);
    let store = FlexStore::open(&bench.place, None).unwrap();
    for key in b'a'..=b'd' {
        let found = store.version().find(&[key], Want::Value).unwrap().expect("it was flushed");
        assert_eq!(found.kind, EntryKind::Pointer);
        assert_eq!(&*bench.place.shared.values.read(&found.value).unwrap(), &[7; 700 << 10]);
    }
}

#[test]
fn a_missing_or_damaged_segment_is_an_error_that_names_it() {
    let mut bench = Bench::new(small_options());
    let random = SeededEntropy::new(11);
    bench.flush(random_changes(&random, 300, 3000));
    let segments: Vec<PathBuf> = bench
        .place
        .storage
        .list_dir(&bench.place.dir)
        .unwrap()
        .into_iter()
        .filter(|entry| entry.name.starts_with("seg-"))
        .map(|entry| bench.place.dir.join(entry.name))
        .collect();
    let storage = Arc::clone(&bench.place.storage);
    let file = storage.open(&segments[0], crate::storage::OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 100).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 100).unwrap();
    bench.reopen();
    let problems = bench.problems();
    let name = segments[0].display().to_string();
    assert!(problems.iter().any(|problem| problem.contains(&name)), "{problems:?}");
    let mut cursor = bench.store.version().cursor(&KeyRange::all());
    let refused = cursor.seek_first().unwrap_err();
    assert!(matches!(refused, Error::Corruption { file, .. } if file == segments[0]));
    storage.remove_file(&segments[1]).unwrap();
    let refused = FlexStore::open(&bench.place, None).unwrap_err();
    assert!(matches!(refused, Error::Corruption { file, .. } if file == segments[1]));
}
