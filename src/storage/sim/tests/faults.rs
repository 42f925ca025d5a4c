//! Faults strike the calls they are meant for, and do what they say; a full disk is full.

use std::io::ErrorKind;
use std::path::Path;

use super::*;
use crate::storage::content::PAGE_SIZE;
use crate::storage::sim::{FaultEffect, FaultPlan, FaultRule, Operation};

fn arm(storage: &SimStorage, rule: FaultRule) {
    storage.arm(FaultPlan::new().rule(rule));
}

#[test]
fn a_rule_strikes_its_operation_its_path_and_its_turn() {
    let storage = SimStorage::new(1);
    let wal = create(&storage, "/wal-1");
    let other = create(&storage, "/other");
    let rule = FaultRule::new(FaultEffect::Error(ErrorKind::Other)).on(&[Operation::Write]);
    arm(&storage, rule.clone().path("wal").skip(1));
    other.write_at(b"x", 0).unwrap();
    wal.sync().unwrap();
    wal.write_at(b"x", 0).unwrap();
    other.write_at(b"x", 0).unwrap();
    wal.write_at(b"y", 0).unwrap_err();
    wal.write_at(b"z", 0).unwrap();
    assert_eq!(storage.fault_count(), 1);

    arm(&storage, rule.clone().times(2));
    wal.write_at(b"x", 0).unwrap_err();
    other.write_at(b"x", 0).unwrap_err();
    wal.write_at(b"x", 0).unwrap();

    arm(&storage, rule.lasting());
    for _ in 0..10 {
        wal.write_at(b"x", 0).unwrap_err();
    }
    storage.disarm();
    wal.write_at(b"x", 0).unwrap();
}

#[test]
fn every_operation_can_fail_and_then_does_nothing() {
    for operation in Operation::ALL {
        let storage = SimStorage::new(1);
        storage.create_dir_all(Path::new("/d")).unwrap();
        let file = create_durable(&storage, "/a", b"bytes");
        let before = everything(&storage);
        arm(&storage, FaultRule::new(FaultEffect::Error(ErrorKind::Other)).on(&[operation]));
        let result = perform(operation, &storage, &*file);
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Other, "{operation:?}");
        assert_eq!(everything(&storage), before, "{operation:?}");
        assert!(storage.exists(Path::new("/d")).unwrap());
        perform(operation, &storage, &*file).unwrap();
    }
}

fn perform(
    operation: Operation,
    storage: &SimStorage,
    file: &dyn StorageFile,
) -> std::io::Result<()> {
    match operation {
        Operation::Open => storage.open(Path::new("/a"), OpenMode::ReadOnly).map(drop),
        Operation::Create => storage.open(Path::new("/new"), OpenMode::CreateNew).map(drop),
        Operation::Read => file.read_at(&mut [0; 3], 0).map(drop),
        Operation::Write => file.write_at(b"other", 0).map(drop),
        Operation::Size => file.size().map(drop),
        Operation::SetLen => file.set_len(2),
        Operation::Preallocate => file.preallocate(100),
        Operation::Sync => file.sync(),
        Operation::SyncDir => storage.sync_dir(Path::new("/")),
        Operation::CreateDir => storage.create_dir_all(Path::new("/e")),
        Operation::Rename => storage.rename(Path::new("/a"), Path::new("/b")),
        Operation::Remove => storage.remove_file(Path::new("/a")),
        Operation::RemoveDir => storage.remove_dir(Path::new("/d")),
        Operation::List => storage.list_dir(Path::new("/")).map(drop),
        Operation::Lock => storage.lock(Path::new("/LOCK")).map(drop),
        Operation::Exists => storage.exists(Path::new("/a")).map(drop),
        Operation::PunchHole => file.punch_hole(0, 1),
        Operation::Link => storage.link(Path::new("/a"), Path::new("/b")),
    }
}

#[test]
fn short_reads_and_writes_are_made_good_by_trying_on() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    arm(&storage, FaultRule::new(FaultEffect::Short).lasting());
    let count = file.write_at(b"0123456789", 0).unwrap();
    assert!((1..10).contains(&count));
    file.write_all_at(b"0123456789", 0).unwrap();
    let mut bytes = [0; 10];
    assert!((1..10).contains(&file.read_at(&mut bytes, 0).unwrap()));
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"0123456789");
}

#[test]
fn interrupted_calls_are_made_good_by_trying_again() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    arm(&storage, FaultRule::new(FaultEffect::Error(ErrorKind::Interrupted)).times(3));
    file.write_all_at(b"bytes", 0).unwrap();
    assert_eq!(storage.fault_count(), 3);
    assert_eq!(contents(&storage, "/a").unwrap(), b"bytes");
}

#[test]
fn a_corrupt_read_has_one_wrong_bit_once() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[0; 64]);
    arm(&storage, FaultRule::new(FaultEffect::CorruptRead));
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 64]);
}

#[test]
fn an_error_afterwards_leaves_the_work_done() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", b"old");
    arm(&storage, FaultRule::new(FaultEffect::ErrorAfterwards(ErrorKind::Other)));
    storage.rename(Path::new("/a"), Path::new("/b")).unwrap_err();
    assert_eq!(contents(&storage, "/b").unwrap(), b"old");
    arm(&storage, FaultRule::new(FaultEffect::ErrorAfterwards(ErrorKind::Other)));
    file.write_at(b"newest", 0).unwrap_err();
    let bytes = contents(&storage, "/b").unwrap();
    let part = bytes.iter().zip(b"newest").take_while(|(a, b)| a == b).count();
    assert!(part < 6 && bytes[part..] == b"old"[part.min(3)..], "{bytes:?}");
}

#[test]
fn a_full_disk_refuses_growth_and_nothing_else() {
    const PAGE: u64 = PAGE_SIZE as u64;
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[1; 3 * PAGE_SIZE]);
    let spare = create_durable(&storage, "/spare", &[1; PAGE_SIZE]);
    assert_eq!(storage.allocated_bytes(), 4 * PAGE);
    storage.set_capacity(4 * PAGE);
    let is_full = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
    };
    is_full(file.write_all_at(b"x", 3 * PAGE));
    is_full(file.preallocate(4 * PAGE));
    is_full(storage.open(Path::new("/b"), OpenMode::CreateNew).map(drop));
    is_full(storage.create_dir_all(Path::new("/d")));
    file.write_all_at(&[2; 3 * PAGE_SIZE], 0).unwrap();
    file.set_len(10 * PAGE).unwrap();
    file.sync().unwrap();
    storage.rename(Path::new("/a"), Path::new("/c")).unwrap();

    // Space comes back with the last handle of a removed file, and writing goes on.
    storage.remove_file(Path::new("/spare")).unwrap();
    is_full(file.write_all_at(b"x", 3 * PAGE));
    drop(spare);
    assert_eq!(storage.allocated_bytes(), 3 * PAGE);
    file.write_all_at(b"x", 3 * PAGE).unwrap();

    // A write that fits in part writes that part, and fails when it is tried on.
    storage.set_capacity(5 * PAGE);
    assert_eq!(file.write_at(&[3; 3 * PAGE_SIZE], 3 * PAGE).unwrap() as u64, 2 * PAGE);
    is_full(file.write_all_at(b"x", 5 * PAGE));
    storage.set_capacity(u64::MAX);
    file.write_all_at(b"x", 5 * PAGE).unwrap();
    assert_eq!(storage.crash(CrashMode::KeepAll, 0).allocated_bytes(), 6 * PAGE);
}

#[test]
fn preallocated_room_never_runs_out() {
    let storage = SimStorage::new(1);
    let file = create(&storage, "/a");
    file.preallocate(1 << 20).unwrap();
    storage.set_capacity(0);
    file.write_all_at(&[7; 1 << 20], 0).unwrap();
    assert_eq!(storage.allocated_bytes(), 1 << 20);
}
