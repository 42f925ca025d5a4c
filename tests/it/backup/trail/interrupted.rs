//! Crashes at the mutations of beginning a trail, of adding to it, and of restoring a moment, and
//! calls that fail: what is there of a trail is a prefix of it, and the next pass goes on.

use std::cell::Cell;

use crate::backup::interrupted::{crash_everywhere, expect_verified};

use super::*;

/// Restoring takes its time: it is done at each so-manieth of the crashes.
const RESTORED_ONE_IN: u64 = 13;

/// A database with something that its trail has not been told, and the moments of all of it.
fn prepared() -> (SimStorage, Vec<Moment>) {
    let storage = SimStorage::new(41);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..6, 0);
    begin(&backups, &db);
    let mut moments = Vec::new();
    for round in 1..4 {
        moments.push(write(&db, round));
        if round < 3 {
            backups.extend_trail(&db).unwrap();
        }
    }
    db.create_keyspace("late", KeyspaceOptions::lsm()).unwrap().put("otter", "swims").unwrap();
    moments.push(moment(&db));
    db.drop_keyspace("structure 1").unwrap();
    db.rename_keyspace("late", "later").unwrap();
    db.keyspace("later").unwrap().put("otter", vec![7; 100_000]).unwrap();
    moments.push(moment(&db));
    db.close().unwrap();
    (storage.crash(CrashMode::KeepAll, 0), moments)
}

/// What it has is restored; the next pass adds the rest.
fn expect_prefix(left: &SimStorage, moments: &[Moment], is_restored: bool, place: &str) {
    expect_verified(left, place);
    let backups = repository(left);
    let to = only_trail(&backups).to;
    assert!(to >= moments[1].0, "{place}: it had that before");
    let told = moments.iter().filter(|(stamp, _)| *stamp <= to);
    if is_restored {
        let told: Vec<Moment> = told.cloned().collect();
        expect_moments(left, &told, None);
    }
    let db = open(left, PATH);
    assert_eq!(contents(&db), moments[4].1, "{place}");
    let passed = backups.extend_trail(&db);
    let report = passed.unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(report.to >= moments[4].0 && report.to >= to && report.end.is_none(), "{place}");
    expect_verified(left, place);
    if is_restored {
        expect_moments(left, moments, None);
        let later = write(&db, 9);
        backups.extend_trail(&db).unwrap();
        expect_moments(left, &[later], None);
    }
}

fn extend(storage: &SimStorage) -> Result<(), Error> {
    let db = builder(storage).existing(OpenExisting::Only).open(PATH)?;
    repository(storage).extend_trail(&db).map(drop)
}

#[test]
fn an_interrupted_pass_leaves_a_prefix_and_the_next_one_goes_on() {
    let (storage, moments) = prepared();
    let mut told = [0, 0];
    crash_everywhere(&storage, extend, |left, (nth, _), place| {
        let to = only_trail(&repository(left)).to;
        told[usize::from(to >= moments[4].0)] += 1;
        expect_prefix(left, &moments, nth % RESTORED_ONE_IN == 0, place);
    });
    assert!(told[0] > 5 && told[1] > 5, "{told:?}");
}

/// One pass fails where its segment gets its name, and the power is cut in the next one: what the
/// first one has done may be there then, or not.
#[test]
fn a_segment_whose_name_may_not_be_durable_is_put_there_again() {
    let (storage, moments) = prepared();
    for effect in
        [FaultEffect::Error(ErrorKind::Other), FaultEffect::ErrorAfterwards(ErrorKind::Other)]
    {
        for operation in [Operation::SyncDir, Operation::Rename] {
            let failed = Cell::new(0);
            let extend_twice = |storage: &SimStorage| {
                let db = builder(storage).existing(OpenExisting::Only).open(PATH)?;
                let backups = repository(storage);
                let rule = FaultRule::new(effect).on(&[operation]).path("/backups/trails");
                storage.arm(FaultPlan::new().rule(rule));
                let passed = backups.extend_trail(&db);
                storage.disarm();
                failed.set(failed.get() + u64::from(passed.is_err()));
                backups.extend_trail(&db).map(drop)
            };
            crash_everywhere(&storage, extend_twice, |left, (nth, _), place| {
                let place = format!("{operation:?} {effect:?} {place}");
                expect_prefix(left, &moments, nth % (3 * RESTORED_ONE_IN) == 0, &place);
            });
            assert!(failed.get() > 5, "{operation:?} {effect:?}: {}", failed.get());
        }
    }
}

#[test]
fn an_interrupted_beginning_leaves_no_trail_or_one_that_goes_on() {
    let storage = SimStorage::new(42);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..6, 0);
    let expected = contents(&db);
    db.close().unwrap();
    drop(backups);
    let storage = storage.crash(CrashMode::KeepAll, 0);
    let begin = |storage: &SimStorage| {
        let db = builder(storage).existing(OpenExisting::Only).open(PATH)?;
        repository(storage).begin_trail(&db, TrailOptions::new()).map(drop)
    };
    let mut found = [0, 0];
    crash_everywhere(&storage, begin, |left, (nth, _), place| {
        expect_verified(left, place);
        let backups = repository(left);
        let db = open(left, PATH);
        assert_eq!(contents(&db), expected, "{place}");
        let follows = db.trail().is_some();
        found[usize::from(follows)] += 1;
        if follows {
            let passed = backups.extend_trail(&db);
            passed.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(backups.create(&db).unwrap().trail.is_some(), "{place}");
        } else {
            super::begin(&backups, &db);
        }
        if nth % RESTORED_ONE_IN == 0 {
            let told = write(&db, 1);
            backups.extend_trail(&db).unwrap();
            expect_moments(left, &[told], None);
        }
        expect_verified(left, place);
        // Markers of trails that came to nothing are gone.
        let entries = left.list_dir(Path::new(PATH)).unwrap();
        let is_marker = |name: &str| name.starts_with("TRAIL-");
        assert_eq!(entries.iter().filter(|entry| is_marker(&entry.name)).count(), 1, "{place}");
    });
    assert!(found[0] > 5 && found[1] > 5, "{found:?}");
}

#[test]
fn an_interrupted_restore_of_a_moment_leaves_nothing_or_all_of_it() {
    let (storage, moments) = prepared();
    extend(&storage).unwrap();
    let storage = storage.crash(CrashMode::KeepAll, 1);
    let (stamp, expected) = &moments[3];
    let restore = |storage: &SimStorage| {
        let options = RestoreOptions::new().replace().go_on_with(builder(storage));
        repository(storage).restore_at(*stamp, PATH, options).map(drop)
    };
    let mut found = [0, 0];
    crash_everywhere(&storage, restore, |left, (nth, _), place| {
        let db = open(left, PATH);
        let at_target = contents(&db);
        assert!(at_target == moments[4].1 || at_target == *expected, "{place}");
        found[usize::from(at_target == *expected)] += 1;
        assert_eq!(db.trail().is_none(), at_target == *expected, "{place}");
        drop(db);
        if nth % RESTORED_ONE_IN == 0 {
            expect_verified(left, place);
            expect_moments(left, &moments, None);
        }
    });
    assert!(found[0] > 20 && found[1] > 2, "{found:?}");
}

#[test]
fn an_interrupted_pruning_leaves_no_gap() {
    let (storage, moments) = in_four_segments();
    let prune = |storage: &SimStorage| repository(storage).prune(1).map(drop);
    let mut left_over = Vec::new();
    crash_everywhere(&storage, prune, |left, (nth, _), place| {
        expect_verified(left, place);
        left_over.push(only_trail(&repository(left)).segments);
        repository(left).prune(1).unwrap();
        assert_eq!(only_trail(&repository(left)).segments, 2, "{place}");
        if nth % 3 == 0 {
            expect_moments(left, &moments[2..], None);
            extend(left).unwrap_or_else(|error| panic!("{place}: {error}"));
        }
    });
    assert!([2, 3, 4].iter().all(|count| left_over.contains(count)), "{left_over:?}");
}

/// Calls that fail, one at a time, in the repository: the database goes on, and so does the trail.
#[test]
fn a_pass_whose_calls_fail_is_gone_on_with() {
    let (storage, moments) = prepared();
    let mut failed = 0;
    for operation in Operation::ALL {
        for effect in [
            FaultEffect::Error(ErrorKind::Other),
            FaultEffect::ErrorAfterwards(ErrorKind::Other),
            FaultEffect::Error(ErrorKind::StorageFull),
        ] {
            for skip in 0..6 {
                let storage = storage.duplicate();
                let db = open(&storage, PATH);
                let backups = repository(&storage);
                let place = format!("{operation:?} {effect:?} {skip}");
                let rule = FaultRule::new(effect).on(&[operation]).skip(skip);
                storage.arm(FaultPlan::new().rule(rule.path("/backups/trails")));
                let passed = backups.extend_trail(&db);
                let was_struck = storage.fault_count() > 0;
                storage.disarm();
                assert!(passed.is_ok() || was_struck, "{place}: {passed:?}");
                failed += u64::from(passed.is_err());
                assert!(db.trail().unwrap().end.is_none(), "{place}: {passed:?}");
                assert_eq!(contents(&db), moments[4].1, "{place}");
                drop(db);
                expect_prefix(&storage, &moments, passed.is_err() && skip % 3 == 0, &place);
            }
        }
    }
    assert!(failed > 20, "{failed}");
}
