//! Holes in segments: room comes back while writing goes on, nothing reads what is gone, and no
//! crash and no failing call at a hole does harm.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use lithe_sim::crash::{CrashRun, STATES};
use lithe_sim::faults::FaultRun;
use lithe_sim::ledger::{HOLES, Ledger};
use lithedb::base::{Entropy, SeededEntropy};
use lithedb::storage::{MemoryStorage, OpenMode, Operation, OsStorage, Storage};
use lithedb::{Background, Builder, Db, Durability, Keyspace, KeyspaceOptions, WriteBatch};

use crate::support::assert_sound;

const KEY_COUNT: u64 = 100_000;
const VALUE_SIZE: usize = 100;
/// What a snapshot of all of them keeps, at least.
const KEPT: u64 = KEY_COUNT * VALUE_SIZE as u64;
/// As `stat` counts blocks.
const STAT_BLOCK_SIZE: u64 = 512;

fn builder() -> Builder {
    Db::builder().background(Background::Stepped).memory_budget(4 << 20).memtable_size(256 << 10)
}

/// Segments of which each flush kills a part.
fn options() -> KeyspaceOptions {
    KeyspaceOptions::flex().interval_size(4096).segment_size(1 << 20)
}

fn value_of(key: u64, round: u64) -> Vec<u8> {
    let mut value = vec![(key % 251) as u8; VALUE_SIZE];
    value[..8].copy_from_slice(&round.to_le_bytes());
    value
}

/// Overwrites `count` random keys in batches. Nothing is done in the background: writers flush when
/// they would have to wait.
fn overwrite(db: &Db, keyspace: &Keyspace, count: u64, round: u64) {
    let random = SeededEntropy::new(round);
    for _ in 0..count / 100 {
        let mut batch = WriteBatch::new();
        for _ in 0..100 {
            let key = random.next_u64() % KEY_COUNT;
            batch.put(keyspace, key.to_be_bytes(), value_of(key, round));
        }
        db.write_with(batch, Durability::Buffered).unwrap();
    }
}

fn fill(db: &Db, keyspace: &Keyspace) {
    for first in (0..KEY_COUNT).step_by(1000) {
        let mut batch = WriteBatch::new();
        for key in first..first + 1000 {
            batch.put(keyspace, key.to_be_bytes(), value_of(key, 0));
        }
        db.write_with(batch, Durability::Buffered).unwrap();
    }
}

fn holes_of(db: &Db) -> u64 {
    db.stats().keyspaces[0].bytes_in_holes
}

/// Lengths of the segment files below `path`, and what they take.
fn segment_sizes(path: &Path) -> (u64, u64) {
    let (mut size, mut taken) = (0, 0);
    for entry in path.read_dir().unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            let below = segment_sizes(&entry.path());
            (size, taken) = (size + below.0, taken + below.1);
        } else if entry.file_name().to_string_lossy().starts_with("seg-") {
            size += metadata.len();
            taken += metadata.blocks() * STAT_BLOCK_SIZE;
        }
    }
    (size, taken)
}

fn makes_holes(directory: &Path) -> bool {
    let file = OsStorage.open(&directory.join("probe"), OpenMode::CreateNew).unwrap();
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    file.punch_hole(0, 64 << 10).is_ok()
}

#[test]
fn files_take_less_than_their_length_while_keys_are_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let with_holes = makes_holes(directory.path());
    let path = directory.path().join("db");
    let db = builder().open(&path).unwrap();
    let keyspace = db.create_keyspace("a", options()).unwrap();
    fill(&db, &keyspace);
    let mut holes_max = 0;
    for round in 1..=12 {
        overwrite(&db, &keyspace, 20_000, round);
        let holes = holes_of(&db);
        let (size, taken) = segment_sizes(&path);
        // Parts of blocks, and what the file system keeps of its own.
        assert!(taken <= size - holes + size / 16, "{taken} taken of {size}, {holes} in holes");
        holes_max = holes_max.max(holes);
    }
    assert_eq!(holes_max > 1 << 20, with_holes, "{holes_max}");
    assert_sound(&db);
    drop(keyspace);
    db.close().unwrap();
    let db = builder().open(&path).unwrap();
    assert_eq!(db.keyspace("a").unwrap().iter().map(Result::unwrap).count() as u64, KEY_COUNT);
    assert_sound(&db);
}

#[test]
fn a_snapshot_keeps_what_it_reads_out_of_holes() {
    let db = builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
    let keyspace = db.create_keyspace("a", options()).unwrap();
    fill(&db, &keyspace);
    db.flush().unwrap();
    let before = db.snapshot();
    for round in 1..=8 {
        overwrite(&db, &keyspace, 20_000, round);
    }
    for key in 0..KEY_COUNT {
        let found = before.get(&keyspace, key.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value_of(key, 0)[..]));
    }
    assert!(holes_of(&db) > 0, "what it does not read gets holes beside it");
    let taken = || db.stats().keyspaces[0].bytes_on_disk;
    let beside = taken();
    drop(before);
    // Of what the snapshot held, segments that are dead whole go, and others get holes.
    overwrite(&db, &keyspace, 20_000, 9);
    let after = taken();
    assert!(after + KEPT / 2 < beside, "{beside} bytes beside the snapshot, {after} after it");
    assert_sound(&db);
}

#[test]
fn a_crash_at_a_hole_loses_nothing() {
    let ledger = Arc::new(Ledger::new());
    for seed in 0..6 {
        let mut run = CrashRun::of_seed(seed, 5);
        run.op_count = 1000;
        run.stride = 1;
        run.only_operation = Some(Operation::PunchHole);
        run.run(&ledger);
    }
    ledger.assert_clean();
    for (what, least) in [(HOLES, 10), (STATES, 50)] {
        assert!(ledger.counted(what) > least, "{} {what}", ledger.counted(what));
    }
}

#[test]
fn a_hole_that_fails_does_no_harm() {
    let ledger = Arc::new(Ledger::new());
    let mut case_count = 0;
    for seed in 0..3 {
        let run = FaultRun::new(seed, 400);
        let cases = run.cases().into_iter().enumerate();
        let holes = cases.filter(|(_, case)| case.operation == Operation::PunchHole);
        for (number, case) in holes.step_by(2) {
            run.run_case(&case, number as u64, &ledger);
            case_count += 1;
        }
    }
    ledger.assert_clean();
    assert!(case_count > 5, "{case_count} cases");
}
