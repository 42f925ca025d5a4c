//! Failing calls, one story each.

use std::io::ErrorKind;

use super::*;
use crate::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};

fn sim() -> (SimStorage, WalPlace) {
    let storage = SimStorage::new(1);
    let place = place_in(Arc::new(storage.clone()), SMALL_CAPACITY);
    storage.sync_dir(Path::new("/")).unwrap();
    (storage, place)
}

fn fail_once(storage: &SimStorage, operation: Operation, kind: ErrorKind) {
    let rule = FaultRule::new(FaultEffect::Error(kind)).on(&[operation]);
    storage.arm(FaultPlan::new().rule(rule));
}

#[test]
fn a_failed_sync_poisons_the_log_whatever_the_reason() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let (storage, place) = sim();
        let mut wal = Wal::create(place.clone()).unwrap();
        append(&mut wal, b"kept");
        sync(&mut wal);
        let kept_up_to = wal.durable_lsn();
        append(&mut wal, b"unsure");
        let (first, second) = (wal.sync_target(), wal.sync_target());
        fail_once(&storage, Operation::Sync, kind);
        assert!(matches!(first.run(), Err(Error::Io { action: "sync", .. })));
        // The system would now say that all is well.
        assert!(matches!(second.run(), Err(Error::ReadOnly { .. })));
        assert_eq!(wal.durable_lsn(), kept_up_to);
        assert!(matches!(wal.append(&[b"late"]), Err(Error::ReadOnly { .. })));
        let end = wal.end();
        wal.release(end);
        assert_eq!(wal.stats().file_count, 1);
        drop(wal);

        // The cache still shows the record. If a recovery counts it, it has to be on the disk.
        let (mut wal, records) = recover(&place, Lsn::ZERO).unwrap();
        append(&mut wal, b"after");
        sync(&mut wal);
        let cut = storage.crash(CrashMode::DropAll, 1);
        let place = WalPlace { storage: Arc::new(cut), ..place };
        let mut expected = payloads(&records);
        expected.push(b"after".to_vec());
        assert_eq!(payloads(&read(&place).unwrap()), expected);
    }
}

#[test]
fn a_full_disk_leaves_the_log_as_it_is_until_there_is_room() {
    let (storage, place) = sim();
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(1, 300));
    sync(&mut wal);
    let end = wal.end();
    storage.set_capacity(storage.allocated_bytes());
    for _ in 0..3 {
        let outcome = wal.append(&[&payload_of(2, 300)]);
        assert!(matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
        assert_eq!((wal.end(), wal.stats().file_count), (end, 1));
        assert_eq!(payloads(&read(&place).unwrap()), [payload_of(1, 300)]);
    }
    append(&mut wal, &payload_of(3, 8)); // It still fits the file.
    sync(&mut wal);
    storage.set_capacity(1 << 20);
    append(&mut wal, &payload_of(2, 300));
    sync(&mut wal);
    let cut = storage.crash(CrashMode::DropAll, 1);
    let place = WalPlace { storage: Arc::new(cut), ..place };
    let expected = [(1, 300), (3, 8), (2, 300)].map(|(number, len)| payload_of(number, len));
    assert_eq!(payloads(&read(&place).unwrap()), expected);
}

#[test]
fn a_file_that_cannot_be_made_changes_nothing() {
    let steps = [
        Operation::Create,
        Operation::Preallocate,
        Operation::Sync,
        Operation::SyncDir,
        Operation::Write,
    ];
    for (operation, kind) in steps.into_iter().map(|step| (step, ErrorKind::Other)) {
        let (storage, place) = sim();
        let mut wal = Wal::create(place.clone()).unwrap();
        append(&mut wal, &payload_of(1, 300));
        fail_once(&storage, operation, kind);
        let outcome = wal.append(&[&payload_of(2, 300)]);
        assert!(matches!(outcome, Err(Error::Io { .. })), "{operation:?}: {outcome:?}");
        append(&mut wal, &payload_of(2, 300));
        sync(&mut wal);
        let cut = storage.crash(CrashMode::DropAll, 1);
        let place = WalPlace { storage: Arc::new(cut), ..place };
        let expected = [payload_of(1, 300), payload_of(2, 300)];
        assert_eq!(payloads(&read(&place).unwrap()), expected);
    }
}

#[test]
fn a_record_that_cannot_be_written_poisons_the_log() {
    let (storage, place) = sim();
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, b"first");
    fail_once(&storage, Operation::Write, ErrorKind::Other);
    assert!(matches!(wal.append(&[b"second"]), Err(Error::Io { action: "write", .. })));
    assert!(matches!(wal.append(&[b"third"]), Err(Error::ReadOnly { .. })));
    assert!(matches!(wal.sync_target().run(), Err(Error::ReadOnly { .. })));
    drop(wal);
    assert_eq!(payloads(&read(&place).unwrap()), [b"first"]);
}

#[test]
fn a_record_without_room_is_undone_even_if_all_of_it_was_written() {
    let (storage, place) = sim();
    let mut wal = Wal::create(place.clone()).unwrap();
    let effect = FaultEffect::ErrorAfterwards(ErrorKind::StorageFull);
    let rule = FaultRule::new(effect).on(&[Operation::Write]).times(1);
    for _ in 0..50 {
        storage.arm(FaultPlan::new().rule(rule.clone()));
        let outcome = wal.append(&[b"refused"]);
        assert!(matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
        assert!(read(&place).unwrap().is_empty());
    }
    append(&mut wal, b"taken");
    assert_eq!(payloads(&read(&place).unwrap()), [b"taken"]);
}

#[test]
fn a_recovery_on_a_full_disk_can_be_resumed_later() {
    let (storage, place) = sim();
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, b"kept");
    drop(wal);
    let (replay, records) = read_from(&place, Lsn::ZERO).unwrap();
    storage.set_capacity(storage.allocated_bytes());
    for _ in 0..3 {
        let outcome = Wal::resume(place.clone(), &replay);
        assert!(matches!(outcome, Err(Error::DiskFull { .. })));
    }
    storage.set_capacity(1 << 20);
    let mut wal = Wal::resume(place.clone(), &replay).unwrap();
    append(&mut wal, b"more");
    assert_eq!(read(&place).unwrap()[..1], records);
}

#[test]
fn a_file_left_empty_is_as_durable_as_what_follows_it() {
    let (storage, place) = sim();
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(1, 300));
    // No mark: the new file starts exactly where the log is durable.
    assert_eq!(wal.sync_target().run().unwrap(), wal.end());
    // The new file's header is written, and the note of it (W12); the record is not.
    let effect = FaultEffect::Error(ErrorKind::StorageFull);
    let rule = FaultRule::new(effect).on(&[Operation::Write]).skip(2);
    storage.arm(FaultPlan::new().rule(rule));
    assert!(matches!(wal.append(&[&payload_of(2, 300)]), Err(Error::DiskFull { .. })));
    assert_eq!(wal.stats().file_count, 2);
    // It is too small for this one, which goes to a third file.
    append(&mut wal, &payload_of(3, 3000));
    sync(&mut wal);
    let cut = storage.crash(CrashMode::DropAll, 1);
    let place = WalPlace { storage: Arc::new(cut), ..place };
    let expected = [payload_of(1, 300), payload_of(3, 3000)];
    assert_eq!(payloads(&read(&place).unwrap()), expected);
}
