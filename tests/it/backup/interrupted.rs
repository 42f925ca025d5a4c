//! Crashes at the mutations of making, removing, restoring and importing, and calls that fail:
//! whatever is there is whole.

use lithedb::{Access, BackupStream};

use super::*;

const MODES: [CrashMode; 4] =
    [CrashMode::RandomSectors, CrashMode::Prefix, CrashMode::KeepAll, CrashMode::DropAll];
/// Restoring everything takes its time: it is done at each so-manieth of the crashes.
const RESTORED_ONE_IN: u64 = 11;

/// A repository with two backups, and the database as it is behind them.
fn prepared() -> (SimStorage, [Contents; 3]) {
    let storage = SimStorage::new(6);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    let mut all = Vec::new();
    for round in 0..3 {
        fill(&db, round * 6..round * 6 + 10, round);
        all.push(contents(&db));
        if round < 2 {
            backups.create(&db).unwrap();
        }
    }
    db.close().unwrap();
    (storage.crash(CrashMode::KeepAll, 0), all.try_into().unwrap())
}

/// Every backup is whole; `expected` says what is in it, by its number.
fn expect_all(storage: &SimStorage, expected: &BTreeMap<u64, &Contents>, place: &str) {
    let backups = repository(storage);
    for info in backups.list().unwrap() {
        let target = format!("/again {}", info.number);
        backups.restore(info.number, &target, RestoreOptions::new()).unwrap();
        let found = contents(&open(storage, &target));
        assert!(found == *expected[&info.number], "backup {} {place}", info.number);
    }
}

fn numbers(storage: &SimStorage) -> Vec<u64> {
    repository(storage).list().unwrap().iter().map(|info| info.number).collect()
}

/// All that is listed is there.
pub(super) fn expect_verified(storage: &SimStorage, place: &str) {
    let check = repository(storage).verify(None, BackupOptions::new()).unwrap();
    assert!(check.is_ok(), "{place}: {check:?}");
}

/// Has `act` crash at each of its mutations, so that all of what is not synced is left, or nothing,
/// or some, and `look` at what is left: it is told at which of how many.
pub(super) fn crash_everywhere(
    storage: &SimStorage,
    act: impl Fn(&SimStorage) -> Result<(), Error>,
    mut look: impl FnMut(&SimStorage, (u64, u64), &str),
) {
    let rehearsal = storage.duplicate();
    let first = rehearsal.mutation_count();
    act(&rehearsal).unwrap();
    let count = rehearsal.mutation_count() - first;
    assert!(count > 5, "{count}");
    let mut crashed = 0;
    for nth in 0..count {
        let storage = storage.duplicate();
        storage.crash_at(storage.mutation_count() + nth);
        let _fails_or_leaves_something = act(&storage);
        // Openings differ in what is drawn: the last few mutations may not come.
        if !storage.is_crashed() {
            continue;
        }
        crashed += 1;
        let some = MODES[(nth % 2) as usize];
        let all_or_some = [some, CrashMode::KeepAll, CrashMode::DropAll];
        let modes = if nth + 6 > count { &MODES[..] } else { &all_or_some };
        for &mode in modes {
            let left = storage.crash(mode, nth);
            look(&left, (nth, count), &format!("{nth} of {count}, {mode:?}"));
        }
    }
    assert!(crashed + 5 >= count, "{crashed} of {count}");
}

#[test]
fn an_interrupted_backup_is_not_there_or_whole_and_the_others_are() {
    let (storage, expected) = prepared();
    let all: BTreeMap<u64, &Contents> = (1..).zip(&expected).collect();
    let create = |storage: &SimStorage| {
        let db = builder(storage).existing(OpenExisting::Only).open(PATH)?;
        repository(storage).create(&db).map(drop)
    };
    let mut made = 0;
    crash_everywhere(&storage, create, |left, (nth, _), place| {
        let found = numbers(left);
        assert!(found == [1, 2] || found == [1, 2, 3], "{found:?} {place}");
        made += u64::from(found.len() == 3);
        expect_verified(left, place);
        if nth % RESTORED_ONE_IN != 0 {
            return;
        }
        expect_all(left, &all, place);
        let db = open(left, PATH);
        assert_eq!(contents(&db), expected[2], "{place}");
        let next = repository(left).create(&db).unwrap();
        assert_eq!(next.number, found.len() as u64 + 1);
        expect_verified(left, place);
        assert!(!names(left).iter().any(|name| name.contains("being-backed-up")), "{place}");
        // What the interrupted one has left is garbage, or part of this one.
        repository(left).remove(next.number).unwrap();
        expect_verified(left, place);
        repository(left).prune(0).unwrap();
        assert!(files_of(left, "files").is_empty(), "{place}");
    });
    assert!(made > 0);
}

#[test]
fn an_interrupted_removal_leaves_what_is_listed_whole() {
    let (storage, expected) = prepared();
    let db = open(&storage, PATH);
    repository(&storage).create(&db).unwrap();
    drop(db);
    let storage = storage.crash(CrashMode::KeepAll, 1);
    let all: BTreeMap<u64, &Contents> = (1..).zip(&expected).collect();
    let look = |left: &SimStorage, (nth, _): (u64, u64), place: &str| {
        expect_verified(left, place);
        if nth % 3 == 0 {
            expect_all(left, &all, place);
        }
        repository(left).prune(usize::MAX).unwrap();
        let files = repository(left).verify(None, BackupOptions::new()).unwrap().files;
        assert_eq!(files, files_of(left, "files").len() as u64, "{place}");
    };
    let prune = |storage: &SimStorage| repository(storage).prune(1).map(drop);
    crash_everywhere(&storage, prune, look);
    let remove = |storage: &SimStorage| repository(storage).remove(2).map(drop);
    crash_everywhere(&storage, remove, |left, at, place| {
        assert!([&[1, 3][..], &[1, 2, 3]].contains(&&*numbers(left)), "{place}");
        look(left, at, place);
    });
}

#[test]
fn an_interrupted_creation_of_a_repository_is_done_again() {
    let (storage, _) = prepared();
    let made_in = |storage: &SimStorage, existing| {
        BackupRepository::open_in(Arc::new(storage.clone()), "/a/backups", existing)
    };
    let create = |storage: &SimStorage| made_in(storage, OpenExisting::OrCreate).map(drop);
    crash_everywhere(&storage, create, |left, _, place| {
        create(left).unwrap_or_else(|error| panic!("{place}: {error}"));
        let backups = made_in(left, OpenExisting::Only).unwrap();
        assert_eq!(backups.list().unwrap(), [], "{place}");
        // All that belongs to one is there, and as durable as what it has.
        backups.create(&open(left, PATH)).unwrap();
        let later = made_in(&left.crash(CrashMode::DropAll, 1), OpenExisting::Only).unwrap();
        let check = later.verify(None, BackupOptions::new()).unwrap();
        assert!(check.is_ok() && check.backups == 1, "{place}: {check:?}");
    });
    // One whose name may never be durable is made again.
    let failing = FaultRule::new(FaultEffect::Error(ErrorKind::Other));
    let failing = failing.on(&[Operation::SyncDir]).path("/a/backups").skip(1);
    storage.arm(FaultPlan::new().rule(failing));
    create(&storage).unwrap_err();
    storage.disarm();
    create(&storage).unwrap();
    made_in(&storage.crash(CrashMode::DropAll, 1), OpenExisting::Only).unwrap();
}

#[test]
fn an_interrupted_restore_leaves_nothing_that_opens_or_all_of_it() {
    let (storage, expected) = prepared();
    let restore = |storage: &SimStorage| {
        repository(storage).restore(1, TARGET, RestoreOptions::new()).map(drop)
    };
    let mut made = 0;
    crash_everywhere(&storage, restore, |left, (nth, _), place| {
        // Under the name that was asked for there is all of it, or nothing.
        match left.exists(Path::new(TARGET)).unwrap() {
            true => {
                made += 1;
                assert_eq!(contents(&open(left, TARGET)), expected[0], "{place}");
            }
            false if nth % 5 == 0 => {
                restore(left).unwrap();
                assert_eq!(contents(&open(left, TARGET)), expected[0], "{place}");
            }
            false => {}
        }
        for name in names(left).iter().filter(|name| name.contains("unfinished-restore")) {
            let opened = builder(left).existing(OpenExisting::Only).open(format!("/{name}"));
            if let Ok(db) = opened {
                assert_eq!(contents(&db), expected[0], "{place}");
            }
        }
    });
    assert!(made > 0);
}

/// Q4: whatever a crash leaves at the target is whole, as it was or as it was to be.
#[test]
fn an_interrupted_restore_over_a_database_leaves_one_of_the_two() {
    let (storage, expected) = prepared();
    let restore = |storage: &SimStorage| {
        let options = RestoreOptions::new().replace();
        repository(storage).restore(1, PATH, options).map(drop)
    };
    let mut found = [0, 0];
    crash_everywhere(&storage, restore, |left, _, place| {
        let at_target = contents(&open(left, PATH));
        assert!(at_target == expected[2] || at_target == expected[0], "{place}");
        found[usize::from(at_target == expected[0])] += 1;
        // What lies beside it is one of them whole, or does not open.
        for name in names(left).iter().filter(|name| name.contains("unfinished-restore")) {
            let opened = builder(left).existing(OpenExisting::Only).open(format!("/{name}"));
            if let Ok(db) = opened {
                let beside = contents(&db);
                assert!(beside == expected[2] || beside == expected[0], "{place}");
            }
        }
    });
    assert!(found[0] > 20 && found[1] > 5, "{found:?}");
}

/// Where names cannot be exchanged there is a moment without a database: opening says so.
#[test]
fn an_interrupted_restore_in_two_steps_loses_neither_database() {
    let (storage, expected) = prepared();
    let restore = |storage: &SimStorage| {
        let unsupported = FaultRule::new(FaultEffect::Error(ErrorKind::Unsupported));
        let backups = repository(storage);
        storage.arm(FaultPlan::new().rule(unsupported.on(&[Operation::Rename]).skip(1)));
        let restored = backups.restore(1, PATH, RestoreOptions::new().replace());
        storage.disarm();
        restored.map(drop)
    };
    let mut between = 0;
    crash_everywhere(&storage, restore, |left, _, place| {
        if left.exists(Path::new(PATH)).unwrap() {
            let found = contents(&open(left, PATH));
            assert!(found == expected[2] || found == expected[0], "{place}");
            return;
        }
        between += 1;
        let only = OpenExisting::Only;
        for (existing, access) in [
            (OpenExisting::OrCreate, Access::ReadWrite),
            (only, Access::ReadWrite),
            (only, Access::ReadOnly),
        ] {
            let opened = builder(left).existing(existing).access(access).open(PATH);
            let said = opened.unwrap_err().to_string();
            assert!(said.contains("/db.before-restore"), "{said}");
        }
        assert_eq!(contents(&open(left, "/db.before-restore")), expected[2], "{place}");
        let names = names(left);
        let new = names.iter().find(|name| name.contains("unfinished-restore"));
        let new = format!("/{}", new.expect("the new one is there"));
        assert_eq!(contents(&open(left, &new)), expected[0], "{place}");
    });
    assert!(between > 0);
}

#[test]
fn an_interrupted_import_is_not_there_or_whole() {
    let (storage, expected) = prepared();
    let all: BTreeMap<u64, &Contents> = (1..).zip(&expected).collect();
    let db = open(&storage, PATH);
    let mut sent = Vec::new();
    db.backup_to(&mut sent, BackupOptions::new()).unwrap();
    drop(db);
    let import = |storage: &SimStorage| {
        let stream = BackupStream::open(&*sent)?;
        repository(storage).import(stream, BackupOptions::new()).map(drop)
    };
    crash_everywhere(&storage, import, |left, (nth, _), place| {
        assert!([&[1, 2][..], &[1, 2, 3]].contains(&&*numbers(left)), "{place}");
        expect_verified(left, place);
        if nth % RESTORED_ONE_IN == 0 {
            expect_all(left, &all, place);
            import(left).unwrap();
            expect_verified(left, place);
        }
    });
}

/// A sync that fails leaves names that a later one may not make durable, also such as an
/// interrupted backup had left.
#[test]
fn names_of_which_a_sync_has_failed_are_not_relied_on() {
    let (storage, expected) = prepared();
    let all: BTreeMap<u64, &Contents> = (1..).zip(&expected).collect();
    let db = open(&storage, PATH);
    let backups = repository(&storage);
    let listed = files_of(&storage, "files").len();
    let ended = BackupOptions::new().go_on_while(|progress| match progress.files {
        files if files + 3 < progress.all_files => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    backups.create_with(&db, ended).unwrap_err();
    let left = files_of(&storage, "files").len();
    assert!(left > listed + 1, "{left} of {listed}");
    let failing = FaultRule::new(FaultEffect::Error(ErrorKind::Other));
    let failing = failing.on(&[Operation::SyncDir]).path("/backups/files");
    storage.arm(FaultPlan::new().rule(failing));
    backups.create(&db).unwrap_err();
    storage.disarm();
    assert_eq!(files_of(&storage, "files").len(), listed);
    assert_eq!(backups.create(&db).unwrap().number, 3);
    drop(db);
    let left = storage.crash(CrashMode::DropAll, 1);
    expect_verified(&left, "after the power cut");
    expect_all(&left, &all, "after the power cut");
}

/// If neither gets the name, both stay, and opening says so.
#[test]
fn two_steps_of_which_the_second_fails_and_the_way_back_too_lose_neither_database() {
    let (storage, expected) = prepared();
    let backups = repository(&storage);
    let rule = |kind| FaultRule::new(FaultEffect::Error(kind)).on(&[Operation::Rename]);
    let failing = FaultPlan::new().rule(rule(ErrorKind::Unsupported).skip(1));
    // Of the manifest, the exchange, the first step; then the second, and the way back.
    storage.arm(failing.rule(rule(ErrorKind::Other).skip(3).times(2)));
    backups.restore(1, PATH, RestoreOptions::new().replace()).unwrap_err();
    storage.disarm();
    assert!(is_invalid(&builder(&storage).open(PATH)));
    assert_eq!(contents(&open(&storage, "/db.before-restore")), expected[2]);
    let found = names(&storage);
    let new = found.iter().find(|name| name.contains("unfinished-restore")).unwrap();
    assert_eq!(contents(&open(&storage, &format!("/{new}"))), expected[0]);
    // What has kept the name of one from being another's for certain has changed nothing.
    let (storage, expected) = prepared();
    storage.arm(FaultPlan::new().rule(rule(ErrorKind::ResourceBusy).skip(1)));
    repository(&storage).restore(1, PATH, RestoreOptions::new().replace()).unwrap_err();
    storage.disarm();
    assert_eq!(names(&storage), ["backups", "db"]);
    assert_eq!(contents(&open(&storage, PATH)), expected[2]);
}

/// Calls that fail, one at a time: what was not made is not there, and can be made again.
#[test]
fn a_call_that_fails_takes_nothing_with_it() {
    let (storage, expected) = prepared();
    let all: BTreeMap<u64, &Contents> = (1..).zip(&expected).collect();
    for operation in Operation::ALL {
        for (nth, effect) in [
            FaultEffect::Error(ErrorKind::Other),
            FaultEffect::ErrorAfterwards(ErrorKind::Other),
            FaultEffect::Error(ErrorKind::StorageFull),
        ]
        .into_iter()
        .enumerate()
        {
            for skip in (nth as u64..50).step_by(7) {
                let storage = storage.duplicate();
                let db = open(&storage, PATH);
                let backups = repository(&storage);
                let place = format!("{operation:?} {effect:?} {skip}");
                let rule = |part: &str| {
                    FaultPlan::new()
                        .rule(FaultRule::new(effect).on(&[operation]).skip(skip).path(part))
                };
                storage.arm(rule("/backups"));
                let made = backups.create(&db);
                storage.disarm();
                let found = numbers(&storage);
                if made.is_ok() {
                    assert_eq!(found, [1, 2, 3], "{place}");
                }
                expect_verified(&storage, &place);
                assert_eq!(contents(&db), expected[2], "{place}");
                drop(db);
                storage.arm(rule("/db.unfinished-restore"));
                let restored = backups.restore(1, PATH, RestoreOptions::new().replace());
                storage.disarm();
                let at_target = contents(&open(&storage, PATH));
                match restored {
                    Ok(_) => assert!(at_target == expected[0], "{place}"),
                    Err(_) => {
                        assert!(at_target == expected[2] || at_target == expected[0], "{place}");
                    }
                }
                if skip == nth as u64 {
                    expect_all(&storage, &all, &place);
                }
            }
        }
    }
}

#[test]
fn a_full_disk_makes_no_backup_and_no_restore_and_harms_none() {
    let (storage, expected) = prepared();
    let all: BTreeMap<u64, &Contents> = (1..).zip(&expected).collect();
    let used = storage.allocated_bytes();
    for room in (0..200u64).step_by(7) {
        let storage = storage.duplicate();
        let db = open(&storage, PATH);
        storage.set_capacity(used.max(storage.allocated_bytes()) + room * 4096);
        let made = repository(&storage).create(&db);
        assert!(made.is_ok() || matches!(made, Err(Error::DiskFull { .. })), "{made:?}");
        drop(db);
        let restored = repository(&storage).restore(1, TARGET, RestoreOptions::new());
        assert!(restored.is_ok() || matches!(restored, Err(Error::DiskFull { .. })));
        assert_eq!(storage.exists(Path::new(TARGET)).unwrap(), restored.is_ok());
        storage.set_capacity(u64::MAX);
        expect_verified(&storage, "full");
        if room % 5 == 0 {
            expect_all(&storage, &all, "full");
        }
        assert_eq!(contents(&open(&storage, PATH)), expected[2]);
    }
}
