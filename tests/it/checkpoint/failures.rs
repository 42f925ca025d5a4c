//! Checkpoints that fail, are closed away, are interrupted by crashes, or come back behind one.

use super::*;

#[test]
fn closing_ends_a_checkpoint_that_is_being_made() {
    let storage = SimStorage::new(6);
    let (files, first) = watched(&storage, Operation::Link, "");
    let builder = Setup::tiny(1).builder(Arc::clone(&files), Arc::default(), 0);
    let db = builder.open(PATH).unwrap();
    fill(&db, 0);
    db.flush().unwrap();
    let (before, beside) = (contents(&db), db.clone());
    let _only_once = first.work.set(Box::new(move || {
        beside.close().unwrap();
    }));
    assert!(matches!(db.checkpoint(COPY), Err(Error::Closed)));
    assert_eq!(copies(&storage), [""; 0]);
    let db = open_at(&of(&storage), PATH);
    assert_eq!(contents(&db), before);
    assert_sound(&db);
}

/// A database as it is before each of many tries.
fn prepared(seed: u64) -> (SimStorage, Contents) {
    let storage = SimStorage::new(seed);
    let db = open_tiny(&storage);
    fill(&db, 0);
    db.flush().unwrap();
    fill(&db, 2);
    (storage.crash(CrashMode::KeepAll, 0), contents(&db)) // With a log to be replayed.
}

#[test]
fn what_fails_leaves_nothing_behind_and_does_no_harm() {
    let (storage, before) = prepared(7);
    let rehearsal = storage.duplicate();
    let db = open_at(&of(&rehearsal), PATH);
    let counts = || Operation::ALL.map(|operation| rehearsal.count_of(operation));
    let first = counts();
    db.checkpoint(COPY).unwrap();
    let calls = counts();
    drop(db);
    let effects = [FaultEffect::Error, FaultEffect::ErrorAfterwards];
    let mut failed = 0;
    for (kind, operation) in Operation::ALL.into_iter().enumerate() {
        let count = calls[kind] - first[kind];
        let each = effects.into_iter().enumerate().flat_map(|(offset, effect)| {
            let tried = (0..count).skip(if count < 8 { 0 } else { offset * 5 });
            tried.step_by(if count < 8 { 1 } else { 10 }).map(move |skip| (skip, effect))
        });
        for (skip, effect) in each {
            let storage = storage.duplicate();
            let db = open_at(&of(&storage), PATH);
            let effect = effect(ErrorKind::Other);
            storage.arm(FaultPlan::new().rule(FaultRule::new(effect).on(&[operation]).skip(skip)));
            let made = db.checkpoint(COPY);
            storage.disarm();
            let place = format!("{operation:?} {skip}: {made:?}");
            if db.stats().read_only.is_some() {
                continue; // A sync of the database's own files.
            }
            match made {
                Ok(_) => assert_eq!(contents(&open_at(&of(&storage), COPY)), before, "{place}"),
                // Of a directory whose name could not be made durable.
                Err(_) if storage.exists(Path::new(COPY)).unwrap() => {
                    assert_eq!(operation, Operation::SyncDir, "{place}");
                }
                Err(_) => {
                    failed += 1;
                    let is_removal = [Operation::Remove, Operation::RemoveDir];
                    assert!(copies(&storage).is_empty() || is_removal.contains(&operation));
                    db.checkpoint(COPY).unwrap();
                    let copy = open_at(&of(&storage), COPY);
                    assert_eq!(contents(&copy), before, "{place}");
                    assert_sound(&copy);
                }
            }
            assert_eq!(contents(&db), before, "{place}");
            assert_sound(&db);
        }
    }
    assert!(failed > 15, "{failed} failures");
}

#[test]
fn a_full_disk_leaves_nothing_behind_and_the_database_goes_on() {
    let (storage, before) = prepared(8);
    let mut failed = 0;
    for room in [0, 4 << 10, 16 << 10, 40 << 10, 90 << 10, 200 << 10] {
        let storage = storage.duplicate();
        let db = open_at(&of(&storage), PATH);
        db.sync().unwrap();
        storage.set_capacity(storage.allocated_bytes() + room);
        let made = db.checkpoint(COPY);
        storage.set_capacity(u64::MAX);
        if let Err(error) = made {
            assert!(matches!(error, Error::DiskFull { .. }), "{room}: {error}");
            assert_eq!(copies(&storage), [""; 0], "{room}");
            failed += 1;
            db.checkpoint(COPY).unwrap();
        }
        assert_eq!(contents(&open_at(&of(&storage), COPY)), before, "{room}");
        assert_eq!(db.stats().read_only, None);
        change_everything(&db);
        assert_sound(&db);
    }
    assert!(failed > 1);
}

/// P5: what a crash leaves is the whole checkpoint, or a directory that says that it is none.
#[test]
fn a_crash_leaves_all_of_it_or_what_says_that_it_is_unfinished() {
    let (storage, before) = prepared(9);
    let rehearsal = storage.duplicate();
    let db = open_at(&of(&rehearsal), PATH);
    let first = rehearsal.mutation_count();
    db.checkpoint(COPY).unwrap();
    let last = rehearsal.mutation_count();
    drop(db);
    let (mut whole, mut unfinished, mut openable) = (0, 0, 0);
    for point in (first..=last).step_by(211).chain(last.saturating_sub(12)..=last) {
        let storage = storage.duplicate();
        let db = open_at(&of(&storage), PATH);
        storage.crash_at(point);
        let made = db.checkpoint(COPY);
        assert_eq!(made.is_ok(), point >= last, "{point} of {last}: {made:?}");
        let modes = [CrashMode::KeepAll, CrashMode::DropAll, CrashMode::RandomSectors];
        let by_mode = modes.map(|mode| (format!("{mode:?}"), storage.crash(mode, point)));
        // Most of what is not durable, but not all: a directory's names are a matter of chance.
        let by_chance = (0..if point + 12 < last { 1 } else { 6 }).map(|number| {
            let random = SeededEntropy::new(point << 8 | number);
            let left = storage.crash_keeping(|_| !random.next_u64().is_multiple_of(8));
            (format!("chance {number}"), left)
        });
        for (mode, left) in by_mode.into_iter().chain(by_chance) {
            let db = open_at(&of(&left), PATH);
            assert_eq!(contents(&db), before, "{point} {mode}");
            assert_sound(&db);
            assert!(made.is_err() || left.exists(Path::new(COPY)).unwrap());
            for name in copies(&left) {
                let path = format!("/{name}");
                if path == COPY {
                    let copy = open_at(&of(&left), COPY);
                    assert_eq!(contents(&copy), before, "{point} {mode}");
                    assert_sound(&copy);
                    whole += 1;
                } else {
                    assert!(name.starts_with("copy.unfinished-checkpoint-"), "{name}");
                    unfinished += 1;
                    openable += u64::from(expect_whole_or_none(&left, &path, &before));
                }
            }
            // What is left of one is in nobody's way.
            if mode == "KeepAll" {
                change_everything(&db);
                assert_sound(&db);
            }
            if !left.exists(Path::new(COPY)).unwrap() {
                db.checkpoint(COPY).unwrap();
            }
        }
        drop(db);
    }
    assert!(whole > 2 && unfinished > 3, "{whole} whole, {unfinished} not");
    assert!(openable > 2, "{openable} unfinished ones with a manifest");
}

/// P6: an unfinished one that can be opened is whole. Whether it can be.
fn expect_whole_or_none(left: &SimStorage, path: &str, before: &Contents) -> bool {
    let builder = Setup::tiny(1).builder(of(left), Arc::default(), 900);
    match builder.existing(OpenExisting::Only).open(path) {
        Ok(copy) => {
            assert_eq!(contents(&copy), *before, "{path}");
            assert_sound(&copy);
            true
        }
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{path}: {error}"),
    }
}

/// A checkpoint that was removed, not durably, is back after a power cut, with files that the
/// database has punched and used again since.
#[test]
fn a_removed_checkpoint_that_comes_back_does_no_harm() {
    let storage = SimStorage::new(19);
    let db = open_tiny(&storage);
    fill(&db, 0);
    db.flush().unwrap();
    fill(&db, 2);
    let before = contents(&db);
    db.checkpoint(COPY).unwrap();
    lithe_sim::checkpoints::remove(&storage, Path::new(COPY)).unwrap();
    change_everything(&db);
    db.sync().unwrap();
    let now = contents(&db);
    let (mut back, mut told) = (0, 0);
    for number in 0..16u64 {
        let random = SeededEntropy::new(number);
        // All of it, or most.
        let left = match number {
            0 | 1 => storage.crash(CrashMode::DropAll, number),
            _ => storage.crash_keeping(|_| random.next_u64().is_multiple_of(8)),
        };
        let builder = || Setup::tiny(1).builder(of(&left), Arc::default(), 900 + number);
        let open_copy = || builder().existing(OpenExisting::Only).open(COPY);
        let first = (number % 2 == 0).then(open_copy);
        let db = open_at(&of(&left), PATH);
        assert_eq!(contents(&db), now, "{number}");
        assert_sound(&db);
        match first.unwrap_or_else(open_copy) {
            Ok(copy) => {
                back += 1;
                let is_whole = copy.check().unwrap().is_ok();
                told += u64::from(!is_whole);
                assert!(number > 1 || !is_whole || contents(&copy) == before);
            }
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                assert!(error.is_corruption(), "{number}: {error}");
                told += 1;
            }
        }
        change_everything(&db);
        assert_sound(&db);
        // But for the holes that the copy was read in.
        let violations = left.violations().into_iter().filter(|what| what.contains(" names"));
        assert_eq!(violations.collect::<Vec<_>>(), [""; 0], "{number}");
    }
    assert!(back + told > 1, "{back} opened, {told} damaged");
}
