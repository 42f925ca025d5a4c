//! Trails: a database comes back as of each moment that its trail has, and what the trail does not
//! have is refused and named.

mod ends;
mod interrupted;
mod model;
mod sealed;

use lithedb::{FollowOptions, RestoredBackup, SeqNo, TrailEndReason, TrailInfo, TrailOptions};

use super::damage::flip;
use super::*;

/// A moment, and what there was.
type Moment = (SeqNo, Contents);

/// Now.
fn moment(db: &Db) -> Moment {
    (db.snapshot().seqno(), contents(db))
}

/// Something is written; now.
fn write(db: &Db, round: u64) -> Moment {
    fill(db, 0..4, round);
    moment(db)
}

fn before(stamp: SeqNo) -> SeqNo {
    SeqNo::from_u64(stamp.as_u64() - 1)
}

fn behind(stamp: SeqNo) -> SeqNo {
    SeqNo::from_u64(stamp.as_u64() + 1)
}

fn begin(backups: &BackupRepository, db: &Db) -> u64 {
    let info = backups.begin_trail(db, TrailOptions::new()).unwrap();
    info.trail.expect("it is on the trail that it begins")
}

/// The only trail that there is.
fn only_trail(backups: &BackupRepository) -> TrailInfo {
    let mut all = backups.trails().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Restores a moment to a directory of its own.
fn restore_to(
    storage: &SimStorage,
    at: SeqNo,
    trail: Option<u64>,
) -> Result<(Db, RestoredBackup), Error> {
    static TARGETS: AtomicU64 = AtomicU64::new(0);
    let target = format!("{TARGET} {}", TARGETS.fetch_add(1, Ordering::Relaxed));
    let options = RestoreOptions::new().go_on_with(builder(storage));
    let options = match trail {
        Some(id) => options.trail(id),
        None => options,
    };
    let restored = repository(storage).restore_at(at, &target, options);
    assert_eq!(storage.exists(Path::new(&target)).unwrap(), restored.is_ok());
    let restored = restored?;
    Ok((open(storage, &target), restored))
}

/// Each of them is what it was.
fn expect_moments(storage: &SimStorage, moments: &[Moment], trail: Option<u64>) {
    for (stamp, expected) in moments {
        let (db, restored) = restore_to(storage, *stamp, trail).unwrap();
        assert_eq!(db.snapshot().seqno(), restored.seqno);
        assert!(restored.seqno <= *stamp);
        assert!(contents(&db) == *expected, "{stamp}");
        assert_sound(&db);
    }
}

/// What is in the directories of trails, as `segment-` or `keyring-`.
fn files_of_trails(storage: &SimStorage, part: &str) -> Vec<PathBuf> {
    let files = storage.files().into_iter().map(|(path, _)| path);
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.starts_with("/backups/trails") && name.starts_with(part)
    };
    let mut found: Vec<PathBuf> = files.filter(is_one).collect();
    found.sort();
    found
}

/// So much comes that the next pass but one begins another segment.
fn fill_segment(db: &Db, round: u64) {
    let keyspace = db.keyspace("structure 0").unwrap();
    for key in 0..20 {
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, format!("{key:04}"), vec![(key + round) as u8; 60_000]);
        db.write_with(batch, Durability::Buffered).unwrap();
    }
}

/// A trail of four segments, with a backup behind the second one; and moments of each of them.
fn in_four_segments() -> (SimStorage, Vec<Moment>) {
    let storage = SimStorage::new(12);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..5, 0);
    begin(&backups, &db);
    let mut moments = Vec::new();
    for round in 1..=4 {
        fill_segment(&db, round);
        moments.push(moment(&db));
        backups.extend_trail(&db).unwrap();
        if round == 2 {
            backups.create(&db).unwrap();
        }
    }
    db.close().unwrap();
    assert_eq!(files_of_trails(&storage, "segment-").len(), 4);
    (storage.crash(CrashMode::KeepAll, 0), moments)
}

#[test]
fn moments_between_backups_come_back() {
    let storage = SimStorage::new(11);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..40, 0);
    assert_eq!(db.trail(), None);
    assert!(is_invalid(&backups.extend_trail(&db)));
    let earlier = backups.create(&db).unwrap();
    assert_eq!((earlier.trail, earlier.as_of), (None, earlier.seqno));
    let first = backups.begin_trail(&db, TrailOptions::new()).unwrap();
    assert!(is_invalid(&backups.begin_trail(&db, TrailOptions::new())), "one follows");
    let status = db.trail().unwrap();
    assert_eq!((first.trail, status.end), (Some(status.trail), None));
    assert!(first.as_of > first.seqno && status.done >= first.as_of);
    let mut moments = vec![(first.as_of, contents(&db))];
    for round in 1..6 {
        fill(&db, round * 20..round * 20 + 40, round);
        moments.push(moment(&db));
        assert!(db.trail().unwrap().bytes_behind > 0);
        let report = backups.extend_trail(&db).unwrap();
        assert!(report.to >= moments[round as usize].0 && report.end.is_none(), "{report:?}");
        assert!(report.commits >= 40 && report.written_bytes > 0, "{report:?}");
        let status = db.trail().unwrap();
        assert_eq!((status.done, status.bytes_behind), (report.to, 0));
        assert_eq!(db.stats().trail, Some(status));
        if round == 3 {
            assert_eq!(backups.create(&db).unwrap().trail, first.trail);
        }
    }
    let nothing = backups.extend_trail(&db).unwrap();
    assert_eq!(nothing.commits, 0);
    let info = only_trail(&backups);
    assert_eq!((Some(info.trail), info.to, info.end), (first.trail, nothing.to, None));
    assert_eq!((info.restorable_from, &info.backups[..]), (Some(first.as_of), &[2, 3][..]));
    assert!(info.behind <= first.as_of && info.database == first.database);
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert!(check.is_ok(), "{check:?}");
    assert_eq!((check.segments, check.segment_bytes), (info.segments, info.bytes));
    db.close().unwrap();
    expect_moments(&storage, &moments, None);
    // A restored database is one of its own, and goes on.
    let (stamp, expected) = &moments[2];
    let (db, restored) = restore_to(&storage, *stamp, first.trail).unwrap();
    assert_eq!((restored.seqno, restored.backup), (*stamp, Some(2)));
    assert!(restored.commits >= 80, "{restored:?}");
    assert_eq!((db.trail(), contents(&db) == *expected), (None, true));
    fill(&db, 0..30, 77);
    assert_sound(&db);
    // In front of the first backup, behind what was told, on no such trail, of no such database.
    let options = || RestoreOptions::new().go_on_with(builder(&storage));
    let refused = |at: SeqNo, options| is_invalid(&backups.restore_at(at, TARGET, options));
    assert!(refused(before(first.as_of), options()));
    assert!(refused(behind(info.to), options()));
    assert!(refused(*stamp, options().trail(1)));
    assert!(refused(*stamp, options().database(1)));
    assert!(!storage.exists(Path::new(TARGET)).unwrap());
    assert_eq!(storage.violations(), [""; 0]);
}

/// By the clock of the database; what keyspaces there were as well.
#[test]
fn what_was_dropped_by_mistake_comes_back_by_time() {
    let storage = SimStorage::new(12);
    let clock = Arc::new(lithe_sim::clock::SimClock::default());
    let opened = Setup::tiny(1).builder(Arc::new(storage.clone()), Arc::clone(&clock), 1000);
    let db = opened.open(PATH).unwrap();
    let backups = repository(&storage);
    let keyspace = db.create_keyspace("animals", KeyspaceOptions::history()).unwrap();
    keyspace.put("otter", "swims").unwrap();
    begin(&backups, &db);
    let mut past = Vec::new();
    let mut note = |db: &Db| {
        let millis = clock.wall_millis();
        past.push((std::time::UNIX_EPOCH + Duration::from_millis(millis), contents(db)));
        clock.jump(1000);
    };
    clock.jump(1000);
    keyspace.put("otter", "flies").unwrap();
    note(&db);
    db.rename_keyspace("animals", "birds").unwrap();
    note(&db);
    db.create_keyspace("animals", KeyspaceOptions::lsm()).unwrap();
    note(&db);
    db.drop_keyspace("birds").unwrap();
    note(&db);
    db.drop_keyspace("animals").unwrap();
    note(&db);
    db.create_keyspace("birds", KeyspaceOptions::flex()).unwrap().put("wren", "sings").unwrap();
    note(&db);
    backups.extend_trail(&db).unwrap();
    for (number, (time, expected)) in past.iter().enumerate() {
        // At it, and up to the next change.
        for (later, time) in [(0, *time), (1, *time + Duration::from_millis(900))] {
            let target = format!("{TARGET} {number} {later}");
            let options = RestoreOptions::new().go_on_with(builder(&storage));
            backups.restore_at(time, &target, options).unwrap();
            let found = contents(&open(&storage, &target));
            assert_eq!(found, *expected, "{number} {later}");
        }
    }
}

/// The pointers of commits that were not told yet lead to files that nothing else needs.
#[test]
fn large_values_outlive_cleaning_until_they_were_told() {
    let storage = SimStorage::new(13);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..10, 0);
    begin(&backups, &db);
    let values = || {
        let is_value = |path: &PathBuf| path.starts_with("/db/values");
        storage.files().into_iter().map(|(path, _)| path).filter(is_value).count()
    };
    let mut moments = Vec::new();
    for round in 0..12 {
        for info in db.keyspaces() {
            let keyspace = db.keyspace(&info.name).unwrap();
            for key in 0..6 {
                let value = vec![(key + round) as u8; 700 + (round as usize * 3000) % 70_000];
                keyspace.put(format!("large {key}"), value).unwrap();
            }
        }
        moments.push(moment(&db));
        db.flush().unwrap();
        step_to_rest(&db);
    }
    db.keyspace("structure 1").unwrap().delete_range("large 0".."large 9").unwrap();
    moments.push(moment(&db));
    // One that is in many pieces, and is gone before the pass as well.
    let huge = db.keyspace("structure 2").unwrap();
    huge.put("huge", (0..300_000u32).map(|at| (at / 7) as u8).collect::<Vec<_>>()).unwrap();
    moments.push(moment(&db));
    huge.delete("huge").unwrap();
    for _ in 0..3 {
        db.flush().unwrap();
        db.vacuum().unwrap();
        step_to_rest(&db);
    }
    let kept = db.trail().unwrap().value_bytes_kept;
    assert!(kept > 300_000, "{kept}");
    db.close().unwrap();
    drop((huge, db));
    let (db, count) = (open(&storage, PATH), values());
    assert!(db.trail().unwrap().value_bytes_kept >= 300_000, "also by the next opening");
    backups.extend_trail(&db).unwrap();
    let left = db.trail().unwrap().value_bytes_kept;
    assert!(left < kept / 10, "{left} of {kept}");
    step_to_rest(&db);
    assert!(values() < count, "{} of {count}", values());
    expect_moments(&storage, &moments, None);
    assert_sound(&db);
    assert_eq!(storage.violations(), [""; 0]);
}

/// A process that ends leaves values in the system's memory. Recovery makes durable what is to be
/// told, also of a keyspace that is gone, before the log that points there is.
#[test]
fn values_of_dropped_keyspaces_are_told_after_two_crashes() {
    let storage = SimStorage::new(18);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..4, 0);
    let options = Setup::tiny(1).keyspace_options(0);
    let late = db.create_keyspace("late", options).unwrap();
    begin(&repository(&storage), &db);
    for key in 0..3 {
        let mut batch = WriteBatch::new();
        batch.put(&late, format!("{key}"), vec![key; 1500]);
        db.write_with(batch, Durability::Buffered).unwrap();
    }
    let told = moment(&db);
    db.drop_keyspace("late").unwrap();
    let storage = storage.crash(CrashMode::KeepAll, 1);
    let recovered = open(&storage, PATH);
    let storage = storage.crash(CrashMode::DropAll, 2);
    drop(recovered);
    let db = open(&storage, PATH);
    assert!(repository(&storage).extend_trail(&db).unwrap().end.is_none());
    expect_moments(&storage, &[told], None);
}

#[test]
fn a_segment_that_is_missing_is_named() {
    let (whole, moments) = in_four_segments();
    let segments = files_of_trails(&whole, "segment-");
    for (index, path) in segments.iter().enumerate() {
        let storage = whole.duplicate();
        let backups = repository(&storage);
        storage.remove_file(path).unwrap();
        let check = backups.verify(None, BackupOptions::new()).unwrap();
        match &check.trail_problems[..] {
            [] => assert_eq!(index, 3, "nobody can tell that there was more"),
            [problem] => {
                assert_eq!(problem.file, *path);
                assert!(index == 0 || problem.behind >= moments[index - 1].0, "{problem:?}");
                assert!(problem.behind < moments[index].0, "{problem:?}");
            }
            _ => panic!("{check:?}"),
        }
        let is_between = index == 1 || index == 2;
        assert_eq!(backups.trails().is_err_and(|error| error.is_corruption()), is_between);
        for (number, (stamp, expected)) in moments.iter().enumerate() {
            // From the backup behind the second one on, what is in front does not matter.
            let needs = if number < 2 { 0..=number } else { 2..=number };
            match restore_to(&storage, *stamp, None) {
                Ok((db, _)) => {
                    assert!(!needs.contains(&index), "{number} without {path:?}");
                    assert!(contents(&db) == *expected);
                }
                Err(Error::InvalidArgument { .. }) => assert_eq!((index, number), (3, 3)),
                Err(error) => {
                    assert!(needs.contains(&index), "{number} without {path:?}: {error}");
                    let Error::Corruption { file, .. } = error else { panic!("{error}") };
                    assert_eq!(file, *path);
                }
            }
        }
    }
}

#[test]
fn damage_in_a_segment_costs_the_moments_that_need_it_alone() {
    let (whole, moments) = in_four_segments();
    for (index, path) in files_of_trails(&whole, "segment-").iter().enumerate() {
        for offset in [3, 100_000] {
            let storage = whole.duplicate();
            flip(&storage, path, offset, 0x10);
            for (number, (stamp, expected)) in moments.iter().enumerate() {
                let needs = if number < 2 { 0..=number } else { 2..=number };
                match restore_to(&storage, *stamp, None) {
                    Ok((db, _)) => {
                        assert!(!needs.contains(&index), "{number} with damage in {path:?}");
                        assert!(contents(&db) == *expected);
                    }
                    Err(error) => {
                        assert!(needs.contains(&index), "{number} with damage in {path:?}");
                        assert!(error.is_corruption(), "{error}");
                    }
                }
            }
        }
    }
    // Nor does it matter which other backups there are.
    let storage = whole.duplicate();
    let lists = files_of(&storage, "backups");
    let [first, second] = &lists[..] else { panic!("{lists:?}") };
    flip(&storage, second, 90, 1);
    expect_moments(&storage, &moments, None);
    flip(&storage, second, 90, 1);
    flip(&storage, first, 90, 1);
    expect_moments(&storage, &moments[2..], None);
    assert!(restore_to(&storage, moments[0].0, None).is_err_and(|error| error.is_corruption()));
}

#[test]
fn damage_is_found_named_and_never_restored() {
    let storage = SimStorage::new(14);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    let keyspace = db.create_keyspace("animals", Setup::tiny(1).keyspace_options(0)).unwrap();
    begin(&backups, &db);
    keyspace.put("otter", "swims").unwrap();
    keyspace.put("large", vec![7; 900]).unwrap();
    let to = backups.extend_trail(&db).unwrap().to;
    let segments = files_of_trails(&storage, "segment-");
    let [path] = &segments[..] else { panic!("{segments:?}") };
    let bytes = storage.read_file(path).unwrap();
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let expect = |place: &str| {
        let check = backups.verify(None, BackupOptions::new()).unwrap();
        let [problem] = &check.trail_problems[..] else { panic!("{place}: {check:?}") };
        assert_eq!(problem.file, *path, "{place}");
        let options = RestoreOptions::new().go_on_with(builder(&storage));
        let refused = backups.restore_at(to, TARGET, options).unwrap_err();
        assert!(refused.is_corruption(), "{place}: {refused}");
        assert!(!storage.exists(Path::new(TARGET)).unwrap());
    };
    for offset in (0..bytes.len()).step_by(13) {
        file.write_all_at(&[bytes[offset] ^ 0x20], offset as u64).unwrap();
        expect(&format!("byte {offset}"));
        file.write_all_at(&[bytes[offset]], offset as u64).unwrap();
    }
    for len in [0, 159, 160, bytes.len() - 1, bytes.len() + 1] {
        file.set_len(len as u64).unwrap();
        expect(&format!("cut to {len}"));
        file.write_all_at(&bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
    }
    drop(file);
    // Where the disk does not give what was written, it is not taken for that either.
    let struck = FaultRule::new(FaultEffect::CorruptRead).path("segment-");
    storage.arm(FaultPlan::new().rule(struck.lasting()));
    assert!(restore_to(&storage, to, None).is_err());
    storage.disarm();
    // A pass writes a small segment anew: not with damage.
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[bytes[200] ^ 1], 200).unwrap();
    keyspace.put("wren", "sings").unwrap();
    assert!(backups.extend_trail(&db).unwrap_err().is_corruption());
    file.write_all_at(&[bytes[200]], 200).unwrap();
    drop(file);
    let told = moment(&db);
    backups.extend_trail(&db).unwrap();
    expect_moments(&storage, &[told], None);
}

#[test]
fn pruning_takes_what_no_backup_needs_and_leaves_what_the_next_one_goes_on_from() {
    let (storage, mut moments) = in_four_segments();
    let backups = repository(&storage);
    let all = backups.trails().unwrap();
    let last = *backups.list().unwrap().last().unwrap();
    let report = backups.prune(1).unwrap();
    assert_eq!((report.backups, report.segments), (1, 2), "{report:?}");
    assert!(report.segment_bytes > 2 << 20);
    let info = only_trail(&backups);
    assert_eq!(info.restorable_from, Some(last.as_of));
    assert!(info.behind > all[0].behind && info.behind <= last.as_of && info.to == all[0].to);
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    for (stamp, _) in moments.drain(..2) {
        assert!(is_invalid(&restore_to(&storage, stamp, None)));
    }
    let db = open(&storage, PATH);
    fill(&db, 0..5, 9);
    moments.push(moment(&db));
    backups.extend_trail(&db).unwrap();
    expect_moments(&storage, &moments, None);
    // Without any backup the newest segment stays; the next backup is on the trail.
    assert_eq!(backups.prune(0).unwrap().backups, 1);
    let info = only_trail(&backups);
    assert_eq!((info.segments, info.restorable_from), (1, None));
    assert!(is_invalid(&restore_to(&storage, moments[0].0, None)));
    let next = backups.create(&db).unwrap();
    assert_eq!(next.trail, Some(info.trail));
    fill(&db, 0..5, 10);
    let told = moment(&db);
    backups.extend_trail(&db).unwrap();
    expect_moments(&storage, &[told], None);
    // One that ended goes with its last backup.
    db.keyspace("structure 0").unwrap().ingest([("zebra", "runs")]).unwrap();
    assert!(backups.extend_trail(&db).unwrap().end.is_some());
    backups.prune(0).unwrap();
    assert_eq!(backups.trails().unwrap(), []);
    assert!(files_of_trails(&storage, "").is_empty());
    assert_eq!(storage.violations(), [""; 0]);
}

#[test]
fn a_trail_can_be_removed_and_its_backups_stay() {
    let (storage, moments) = in_four_segments();
    let backups = repository(&storage);
    let id = backups.trails().unwrap()[0].trail;
    let db = open(&storage, PATH);
    db.end_trail().unwrap();
    assert_eq!(db.trail(), None);
    assert!(is_invalid(&backups.extend_trail(&db)));
    expect_moments(&storage, &moments[3..], None);
    assert!(is_invalid(&backups.remove_trail(id + 1)));
    backups.remove_trail(id).unwrap();
    assert_eq!(backups.trails().unwrap(), []);
    assert!(is_invalid(&restore_to(&storage, moments[3].0, None)));
    backups.restore(2, TARGET, RestoreOptions::new()).unwrap();
    assert_eq!(contents(&open(&storage, TARGET)), moments[1].1);
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    assert_ne!(begin(&backups, &db), id);
}

/// What a restored database must be behind a commit: everything up to it, and nothing behind.
#[test]
fn a_follower_adds_what_writers_do_meanwhile() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = || Setup::tiny(1).builder(Arc::clone(&storage), Arc::default(), 3);
    let db = builder().background(Background::Threads).open(PATH).unwrap();
    let names = ["flex", "lsm", "history"];
    let options = [KeyspaceOptions::flex(), KeyspaceOptions::lsm(), KeyspaceOptions::history()];
    for (name, options) in names.iter().zip(options) {
        db.create_keyspace(name, options.value_separation(Some(600))).unwrap();
    }
    let backups =
        BackupRepository::open_in(Arc::clone(&storage), REPOSITORY, OpenExisting::OrCreate);
    let backups = backups.unwrap();
    begin(&backups, &db);
    let often = FollowOptions::new().every(Duration::from_millis(5)).bytes(4 << 10);
    let follower = backups.follow(&db, often).unwrap();
    let write = |number: u64| {
        let mut batch = WriteBatch::new();
        for name in names {
            let len = if number.is_multiple_of(7) { 700 } else { 60 };
            let keyspace = db.keyspace(name).unwrap();
            batch.put(&keyspace, format!("{:04}", number % 500), vec![number as u8; len]);
            batch.put(&keyspace, "count", format!("{number}"));
        }
        db.write_with(batch, Durability::Buffered).unwrap()
    };
    let mut stamps = Vec::new();
    while follower.status().passes < 8 || stamps.len() < 300 {
        stamps.push(write(stamps.len() as u64));
        if stamps.len() == 200 {
            assert!(backups.create(&db).unwrap().trail.is_some());
        }
    }
    let status = follower.status();
    assert!(status.is_running && status.last.is_some(), "{status:?}");
    drop(follower);
    let to = backups.extend_trail(&db).unwrap().to;
    assert!(stamps.last().is_some_and(|last| *last <= to));
    for (nth, at) in [1, 150, 199, 201, stamps.len()].into_iter().enumerate() {
        let target = format!("{TARGET} {nth}");
        let options = RestoreOptions::new().go_on_with(builder());
        backups.restore_at(stamps[at - 1], &target, options).unwrap();
        let restored = builder().existing(OpenExisting::Only).open(&target).unwrap();
        let mut expected = BTreeMap::new();
        for number in 0..at as u64 {
            let len = if number.is_multiple_of(7) { 700 } else { 60 };
            expected.insert(format!("{:04}", number % 500).into_bytes(), vec![number as u8; len]);
            expected.insert(b"count".to_vec(), format!("{number}").into_bytes());
        }
        for name in names {
            assert!(rows(&restored.keyspace(name).unwrap()) == expected, "{name} of {at}");
        }
        assert_sound(&restored);
    }
}

/// A follower tries again what fails, begins another trail where one ends, and does not keep the
/// database open.
#[test]
fn a_follower_goes_on_after_failures_and_ends_and_ends_with_its_database() {
    let storage = SimStorage::new(17);
    let db = builder(&storage).background(Background::Threads).open(PATH).unwrap();
    let backups = repository(&storage);
    let keyspace = db.create_keyspace("animals", KeyspaceOptions::lsm()).unwrap();
    let first = begin(&backups, &db);
    let often = FollowOptions::new().every(Duration::from_millis(1)).begin_anew(1 << 30);
    let follower = backups.follow(&db, often).unwrap();
    let wait_until = |is_so: &dyn Fn(&lithedb::FollowStatus) -> bool| {
        while !is_so(&follower.status()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_until(&|status| status.passes > 0);
    let fails = FaultRule::new(FaultEffect::Error(ErrorKind::Other)).path("/backups/trails");
    storage.arm(FaultPlan::new().rule(fails.lasting()));
    wait_until(&|status| status.failures > 2 && status.failure.is_some());
    storage.disarm();
    wait_until(&|status| status.failure.is_none());
    keyspace.ingest([("otter", "swims")]).unwrap();
    wait_until(&|status| status.begun == 1);
    let second = db.trail().unwrap();
    assert!(second.trail != first && second.end.is_none() && second.log_max == 1 << 30);
    keyspace.put("wren", "sings").unwrap();
    let told = moment(&db);
    wait_until(&|status| status.last.is_some_and(|last| last.to >= told.0));
    db.close().unwrap();
    wait_until(&|status| !status.is_running);
    drop((db, follower));
    expect_moments(&storage, &[told], Some(second.trail));
}
