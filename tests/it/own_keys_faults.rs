//! Keyspaces with keys of their own on disks that fail or are full: no key is said to be gone that
//! is there, none is given to a file that the keyring may not have, and nothing of what others have
//! is lost.

use std::path::Path;

use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage, Storage,
};
use lithedb::{Db, Error, KeyspaceOptions};

use crate::own_keys::{
    COUNT, expect_all, fill, keyring_of, names, open, options_of, seen_with, value_of,
};

const KEYRING: &str = "/db/KEYRING";
const SLOT_SIZE: usize = 64 << 10;

const FEW: [&str; 3] = ["flex", "flex keeps", "flex goes"];

fn few(which: &[&str]) -> Vec<String> {
    which.iter().map(|name| (*name).to_owned()).collect()
}

/// A database of a keyspace without a key of its own and two with one, closed.
fn made() -> SimStorage {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    db.create_keyspace("flex", options_of("flex")).unwrap();
    for name in &FEW[1..] {
        db.create_keyspace_with_own_key(name, options_of("flex")).unwrap();
    }
    for name in FEW {
        let keyspace = db.keyspace(name).unwrap();
        for number in 0..COUNT {
            keyspace.put(format!("{number:05}"), value_of(name, number)).unwrap();
        }
    }
    db.close().unwrap();
    storage
}

/// Whether any slot of a keyring has the keys with which what a disk has of a keyspace was sealed.
fn is_seen_by_a_slot(disk: &SimStorage, keyring: &[u8], name: &str) -> bool {
    (0..2).any(|slot| {
        let mut alone = keyring.to_vec();
        alone[slot * SLOT_SIZE..][..SLOT_SIZE].fill(0);
        seen_with(disk, &alone).contains(name)
    })
}

/// Each call that writes the keyring fails once, in a drop; also where the keyring has another name
/// and becomes a file of its own first.
#[test]
fn a_key_is_never_said_to_be_destroyed_that_a_slot_of_the_keyring_has() {
    let made = made();
    let operations =
        [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename, Operation::Size];
    let effects =
        [FaultEffect::OsError(5), FaultEffect::ErrorAfterwards(std::io::ErrorKind::Other)];
    let (mut struck, mut refused) = (0, 0);
    for is_linked in [false, true] {
        for (operation, effect) in
            operations.iter().flat_map(|of| effects.map(|effect| (*of, effect)))
        {
            for skip in 0.. {
                let storage = made.duplicate();
                if is_linked {
                    storage.create_dir_all(Path::new("/linked")).unwrap();
                    storage.link(Path::new(KEYRING), Path::new("/linked/KEYRING")).unwrap();
                }
                let db = open(&storage, 2);
                let before = storage.duplicate();
                let rule = FaultRule::new(effect).on(&[operation]).path(KEYRING).skip(skip);
                storage.arm(FaultPlan::new().rule(rule));
                db.drop_keyspace("flex goes").unwrap();
                let is_over = storage.fault_count() == 0;
                storage.disarm();
                struck += u64::from(!is_over);
                match db.destroy_keys() {
                    Ok(report) if report.left == 0 => {
                        let keyring = keyring_of(&storage);
                        assert!(
                            !is_seen_by_a_slot(&before, &keyring, "flex goes"),
                            "{operation:?}"
                        );
                    }
                    Ok(report) => panic!("nothing holds it: {report:?}"),
                    Err(error) => {
                        refused += 1;
                        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
                        // It is used on, and says the same again.
                        db.keyspace("flex").unwrap().put("00000", value_of("flex", 0)).unwrap();
                        assert!(db.destroy_keys().is_err());
                    }
                }
                drop(db);
                let db = open(&storage, 3);
                expect_all(&db, &few(&FEW[..2]));
                assert_eq!(db.destroy_keys().unwrap().left, 0);
                assert!(!is_seen_by_a_slot(&before, &keyring_of(&storage), "flex goes"));
                if is_over {
                    break;
                }
            }
        }
    }
    assert!(struck > 20 && refused > 15, "{struck} {refused}");
}

/// The next one is created and written to behind the failure, and all is opened again.
#[test]
fn a_creation_that_fails_costs_nothing_and_gives_no_file_a_key_that_may_be_gone() {
    let made = made();
    let full = FaultEffect::Error(std::io::ErrorKind::StorageFull);
    let failing = FaultEffect::OsError(5);
    let kinds = [
        (full, Operation::Write, 1),
        (full, Operation::Create, u64::MAX),
        (failing, Operation::Sync, 1),
        (failing, Operation::SyncDir, 1),
        (failing, Operation::Create, u64::MAX),
    ];
    let mut failed = 0;
    for (effect, operation, times) in kinds {
        for skip in 0.. {
            let storage = made.duplicate();
            let db = open(&storage, 2);
            let rule = FaultRule::new(effect).on(&[operation]).skip(skip).times(times);
            storage.arm(FaultPlan::new().rule(rule));
            let created = db.create_keyspace_with_own_key("more", options_of("history"));
            let is_over = storage.fault_count() == 0;
            storage.disarm();
            failed += u64::from(created.is_err());
            drop(created);
            let mut expected = few(&FEW);
            go_on_if_it_is_written_to(&db, &mut expected);
            drop(db);
            // Also what was not synced is lost.
            for (seed, mode) in [CrashMode::DropAll, CrashMode::KeepAll].into_iter().enumerate() {
                let db = open(&storage.crash(mode, seed as u64), 3);
                let is_there = |name: &str| db.keyspaces().iter().any(|info| info.name == name);
                assert!(expected.iter().all(|name| is_there(name)), "{operation:?} {skip}");
                if is_there("more") {
                    assert!(db.keyspace("more").unwrap().is_empty().unwrap());
                    db.drop_keyspace("more").unwrap();
                }
                expect_all(&db, &expected);
                assert_eq!(db.destroy_keys().unwrap().left, 0);
                assert!(db.rotate_data_key().unwrap().is_complete);
            }
            if is_over {
                break;
            }
        }
    }
    assert!(failed > 10, "{failed}");
}

/// What was to have a key has come to nothing, and that cannot be written either. The log goes on
/// with the key that it had, which is in the file.
#[test]
fn what_cannot_be_taken_back_gives_the_log_no_key_that_the_keyring_may_not_have() {
    let storage = made();
    let db = open(&storage, 2);
    let failing = |operation| FaultRule::new(FaultEffect::OsError(5)).on(&[operation]).lasting();
    let plan = FaultPlan::new().rule(failing(Operation::Create).path("/db/keyspaces"));
    storage.arm(plan.rule(failing(Operation::Write).path(KEYRING).skip(2)));
    db.create_keyspace_with_own_key("more", options_of("flex")).unwrap_err();
    assert!(storage.fault_count() >= 2, "{}", storage.fault_count());
    storage.disarm();
    // It would begin a file of the log with the newest key.
    let refused = db.create_keyspace_with_own_key("again", options_of("flex")).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    let mut expected = few(&FEW);
    go_on_if_it_is_written_to(&db, &mut expected);
    assert_eq!(expected.len(), 3, "it was: {expected:?}");
    for crashed in [CrashMode::DropAll, CrashMode::KeepAll].map(|mode| storage.crash(mode, 1)) {
        let db = open(&crashed, 3);
        expect_all(&db, &expected);
        assert_eq!(db.destroy_keys().unwrap().left, 0);
    }
    drop(db);
    expect_all(&open(&storage, 4), &expected);
}

/// Creates a plain keyspace, whose number may be that of what has come to nothing, and drops one
/// with a key, for which the log goes on in a new file.
fn go_on_if_it_is_written_to(db: &Db, expected: &mut Vec<String>) {
    let Ok(plain) = db.create_keyspace("plain", KeyspaceOptions::flex()) else { return };
    assert!(!plain.has_own_key());
    for number in 0..COUNT {
        plain.put(format!("{number:05}"), value_of("plain", number)).unwrap();
    }
    expected.push("plain".to_owned());
    if db.drop_keyspace("flex goes").is_ok() {
        expected.retain(|name| name != "flex goes");
    }
    let more = db.keyspace("flex keeps").unwrap();
    more.put("00001", value_of("flex keeps", 1)).unwrap();
}

#[test]
fn what_is_checked_first_changes_nothing() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    db.create_keyspace("there", options_of("flex")).unwrap();
    let before = keyring_of(&storage);
    let refuse = |name: &str, options: KeyspaceOptions| {
        db.create_keyspace_with_own_key(name, options).unwrap_err()
    };
    let exists = refuse("there", options_of("flex"));
    assert!(matches!(exists, Error::KeyspaceExists { .. }), "{exists}");
    for refused in [
        refuse("\0hidden", options_of("flex")),
        refuse("out of range", options_of("flex").interval_size(1)),
    ] {
        assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    }
    assert_eq!(keyring_of(&storage), before, "the log has no key of its own for nothing");
}

/// A disk that has no room for what a drop writes: nothing is said to be destroyed, and it is when
/// there is room.
#[test]
fn a_drop_on_a_full_disk_is_gone_on_with_when_there_is_room() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    let before = storage.duplicate();
    for skip in 0..6 {
        let full = FaultRule::new(FaultEffect::Error(std::io::ErrorKind::StorageFull));
        let full = full.on(&[Operation::Create]).skip(skip).lasting();
        storage.arm(FaultPlan::new().rule(full));
        let name = names(&["goes"]).remove(skip as usize % 3);
        if db.keyspaces().iter().any(|info| info.name == name) {
            db.drop_keyspace(&name).unwrap();
        }
        storage.disarm();
    }
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    let seen = seen_with(&before, &keyring_of(&storage));
    assert!(seen.is_subset(&names(&["", "keeps"]).into_iter().collect()), "{seen:?}");
    expect_all(&db, &names(&["", "keeps"]));
    drop(db);
    expect_all(&open(&storage, 2), &names(&["", "keeps"]));
}
