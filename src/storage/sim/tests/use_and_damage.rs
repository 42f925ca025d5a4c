//! Suspicious use is seen, runs repeat, copies are independent, damage stays.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::*;
use crate::storage::sim::{FaultEffect, FaultPlan, FaultRule, Operation};

fn only_violation(storage: &SimStorage) -> String {
    let violations = storage.violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    violations[0].clone()
}

#[test]
fn reading_what_nobody_wrote_is_seen() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    file.write_all_at(b"far", 1000).unwrap();
    file.write_all_at(&[1; 400], 0).unwrap();
    let mut bytes = [0; 400];
    file.read_exact_at(&mut bytes, 0).unwrap();
    file.read_exact_at(&mut bytes[..3], 1000).unwrap();
    assert!(storage.violations().is_empty());
    file.read_exact_at(&mut bytes, 300).unwrap();
    assert_eq!(only_violation(&storage), "/a: read of 400..700, never written");
}

#[test]
fn reading_a_hole_is_seen_until_it_is_written_to() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    file.write_all_at(&[1; 4 * 4096], 0).unwrap();
    file.punch_hole(4096, 2 * 4096).unwrap();
    assert_eq!((file.size().unwrap(), storage.allocated_bytes()), (4 * 4096, 2 * 4096));
    file.write_all_at(&[2; 4096], 4096).unwrap();
    let mut bytes = [9; 4096];
    file.read_exact_at(&mut bytes, 4096).unwrap();
    file.read_exact_at(&mut bytes, 3 * 4096).unwrap();
    assert!(storage.violations().is_empty());
    file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
    assert_eq!(bytes, [0; 4096]);
    assert_eq!(only_violation(&storage), "/a: read of 8192..12288, never written");
}

#[test]
fn zeros_that_were_asked_for_may_be_read() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    file.set_len(100).unwrap();
    file.preallocate(200).unwrap();
    file.write_all_at(b"far", 300).unwrap();
    file.set_len(150).unwrap();
    file.set_len(400).unwrap();
    file.read_exact_at(&mut [0; 400], 0).unwrap();
    file.write_all_at(b"farther", 500).unwrap();
    file.preallocate(500).unwrap();
    file.read_exact_at(&mut [0; 507], 0).unwrap();
    assert!(storage.violations().is_empty());
}

#[test]
fn renaming_before_the_sync_is_seen() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    file.write_all_at(b"bytes", 0).unwrap();
    file.sync().unwrap();
    storage.rename(Path::new("/a"), Path::new("/b")).unwrap();
    assert!(storage.violations().is_empty());
    file.write_all_at(b"x", 0).unwrap();
    storage.rename(Path::new("/b"), Path::new("/c")).unwrap();
    assert_eq!(only_violation(&storage), "/b was renamed to /c with data that is not synced");
}

#[test]
fn a_second_writer_is_seen() {
    let storage = SimStorage::new(1);
    let first = create(&storage, "/a");
    let reader = storage.open(Path::new("/a"), OpenMode::ReadOnly).unwrap();
    assert_eq!(storage.open_files(), [(PathBuf::from("/a"), 2)]);
    let second = storage.open(Path::new("/a"), OpenMode::ReadWrite).unwrap();
    assert_eq!(only_violation(&storage), "/a was opened for writing while it already is");
    drop((first, second, reader));
    storage.open(Path::new("/a"), OpenMode::ReadWrite).unwrap();
    assert_eq!(storage.violations().len(), 1);
    assert!(storage.open_files().is_empty());
}

#[test]
fn a_write_to_a_removed_file_is_seen_and_can_panic() {
    let storage = SimStorage::new(1);
    storage.panic_on_violation();
    let file = create(&storage, "/a");
    storage.remove_file(Path::new("/a")).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| file.write_all_at(b"x", 0))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("after its removal"));
    assert_eq!(storage.violations().len(), 1); // The storage is still usable.
}

fn varied_workload(storage: &SimStorage) {
    let rule = |effect| FaultRule::new(effect).lasting();
    storage.arm(FaultPlan::new().rule(rule(FaultEffect::Short).path("a")));
    for name in ["/a", "/b"] {
        let file = create(storage, name);
        file.write_all_at(&[1; 5000], 0).unwrap();
        file.read_exact_at(&mut [0; 5000], 0).unwrap();
        file.sync().unwrap();
    }
    storage.open(Path::new("/c"), OpenMode::ReadOnly).unwrap_err();
    storage.rename(Path::new("/a"), Path::new("/c")).unwrap();
}

#[test]
fn a_seed_repeats_the_run_and_the_crash() {
    let run = |seed| {
        let storage = SimStorage::new(seed);
        varied_workload(&storage);
        storage
    };
    let mut traces = BTreeSet::new();
    for seed in 0..20 {
        let (one, two) = (run(seed), run(seed));
        assert_eq!(one.trace_hash(), two.trace_hash());
        assert_eq!(one.operation_count(), two.operation_count());
        for mode in CrashMode::ALL {
            let (one, two) = (one.crash(mode, seed), two.crash(mode, seed));
            assert_eq!(everything(&one), everything(&two));
        }
        traces.insert(one.trace_hash());
    }
    assert_eq!(traces.len(), 20);
    let counts = Operation::ALL.map(|operation| run(0).count_of(operation));
    assert_eq!(counts.iter().sum::<u64>(), run(0).operation_count());
    assert_eq!(run(0).count_of(Operation::Open), 1);
}

#[test]
fn the_trace_tells_one_byte_and_one_outcome_apart() {
    let trace = |bytes: &[u8], fails: Option<FaultEffect>| {
        let storage = SimStorage::new(1);
        let file = create(&storage, "/a");
        if let Some(effect) = fails {
            storage.arm(FaultPlan::new().rule(FaultRule::new(effect)));
        }
        let _ = file.write_at(bytes, 0);
        storage.trace_hash()
    };
    let other = FaultEffect::Error(std::io::ErrorKind::Other);
    let full = FaultEffect::Error(std::io::ErrorKind::StorageFull);
    let traces = [trace(b"a", None), trace(b"b", None), trace(b"a", Some(other))];
    assert_eq!(BTreeSet::from(traces).len(), 3);
    assert_ne!(trace(b"a", Some(other)), trace(b"a", Some(full)));
}

#[test]
fn copies_are_independent() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", b"old");
    file.write_all_at(b"new", 0).unwrap();
    let lock = storage.lock(Path::new("/LOCK")).unwrap();
    let copy = storage.duplicate();
    copy.lock(Path::new("/LOCK")).unwrap();
    copy.remove_file(Path::new("/a")).unwrap();
    copy.sync_dir(Path::new("/")).unwrap();
    assert_eq!(contents(&storage, "/a").unwrap(), b"new");
    assert_eq!(contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap(), b"old");
    file.sync().unwrap();
    assert_eq!(storage.duplicate().unsynced_count(), 1); // The name of the lock file.
    assert_eq!(copy.files().len(), 1);
    drop(lock);
}

#[test]
fn damage_is_on_the_disk_at_once() {
    let storage = SimStorage::new(1);
    let path = Path::new("/a");
    create_durable(&storage, "/a", &[0; 100]).write_all_at(&[0; 100], 0).unwrap();
    let old = storage.snapshot_file(path).unwrap();
    let is_everywhere = |expected: &[u8]| {
        for mode in CrashMode::ALL {
            assert_eq!(storage.crash(mode, 0).read_file(path).unwrap(), expected, "{mode:?}");
        }
    };
    storage.flip_bit(path, 10, 3).unwrap();
    let mut expected = vec![0; 100];
    expected[10] = 8;
    is_everywhere(&expected);
    storage.overwrite(path, 98, &[7; 4]).unwrap();
    expected.truncate(98);
    expected.extend([7; 4]);
    is_everywhere(&expected);
    storage.truncate(path, 50).unwrap();
    is_everywhere(&expected[..50]);
    storage.restore_file(path, &old).unwrap();
    is_everywhere(&[0; 100]);
    storage.flip_bit(path, 100, 0).unwrap_err();
    storage.flip_bit(path, 0, 8).unwrap_err();

    storage.remove_file(path).unwrap();
    storage.sync_dir(Path::new("/")).unwrap();
    storage.restore_file(path, &old).unwrap();
    is_everywhere(&[0; 100]);
}

#[test]
fn a_crash_does_not_copy_what_did_not_change() {
    let storage = SimStorage::new(1);
    create_durable(&storage, "/a", &[1; 1 << 20]);
    let crashed = storage.crash(CrashMode::RandomSectors, 0);
    let pages_of = |storage: &SimStorage| {
        let machine = storage.machine();
        let (_, content) = machine.durable.contents.first_key_value().unwrap();
        Arc::as_ptr(content)
    };
    assert_eq!(pages_of(&storage), pages_of(&crashed));
}

#[test]
fn removed_files_are_forgotten_once_nothing_can_bring_them_back() {
    let storage = SimStorage::new(1);
    for index in 0..10 {
        let file = create_durable(&storage, "/a", &[index; 100]);
        file.write_all_at(&[index; 200], 0).unwrap();
        storage.remove_file(Path::new("/a")).unwrap();
        storage.sync_dir(Path::new("/")).unwrap();
        file.write_all_at(&[index; 300], 0).unwrap();
    }
    let machine = storage.machine();
    assert!(machine.live.contents.is_empty());
    assert!(machine.durable.contents.is_empty());
    assert_eq!((machine.unsynced.count(), machine.allocated), (0, 0));
}
