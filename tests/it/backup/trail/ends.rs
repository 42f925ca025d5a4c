//! What ends a trail, and what does not: copies of a database and of a repository, what no log has,
//! and a repository that cannot be written to.

use std::sync::mpsc;

use lithe_sim::watched::{Mutation, WatchedStorage};
use lithedb::HealthState;

use super::*;

/// How long somebody else has at a certain place, if he is not held up there.
const CHANCE: Duration = Duration::from_millis(200);
/// Behind this, it has not come to what was waited for.
const LONG: Duration = Duration::from_secs(60);

/// Copies all files in a directory to another one, as programs do that know nothing of databases.
fn copy_tree(storage: &SimStorage, from: &str, to: &str) {
    for (path, _) in storage.files() {
        let Ok(rest) = path.strip_prefix(from) else { continue };
        let target = Path::new(to).join(rest);
        storage.create_dir_all(target.parent().unwrap()).unwrap();
        let bytes = storage.read_file(&path).unwrap();
        let file = storage.open(&target, OpenMode::CreateNew).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync().unwrap();
    }
}

fn reason_of(db: &Db) -> Option<TrailEndReason> {
    db.trail().unwrap().end.map(|end| end.reason)
}

fn is_ended<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::TrailEnded { .. }))
}

/// Q6: both have the catalogue's record, the marker, and what the trail has.
#[test]
fn of_two_copies_of_a_database_one_goes_on_with_its_trail() {
    for copy_adds_first in [false, true] {
        let storage = SimStorage::new(13);
        let db = builder(&storage).open(PATH).unwrap();
        let backups = repository(&storage);
        fill(&db, 0..20, 0);
        let trail = begin(&backups, &db);
        fill(&db, 20..30, 1);
        db.close().unwrap();
        copy_tree(&storage, PATH, "/twin");
        let (first, second) = match copy_adds_first {
            true => ("/twin", PATH),
            false => (PATH, "/twin"),
        };
        let (first, second) = (open(&storage, first), open(&storage, second));
        fill(&first, 30..40, 2);
        fill(&second, 30..40, 77);
        let mut moments = vec![moment(&first)];
        backups.extend_trail(&first).unwrap();
        assert!(is_ended(&backups.extend_trail(&second)));
        assert!(is_ended(&backups.extend_trail(&second)));
        assert_eq!(reason_of(&second), Some(TrailEndReason::Diverged));
        assert_eq!(backups.create(&second).unwrap().trail, None);
        fill(&first, 40..50, 3);
        moments.push(moment(&first));
        assert_eq!(backups.extend_trail(&first).unwrap().end, None);
        // The other one has one of its own.
        let own = begin(&backups, &second);
        assert_ne!(own, trail);
        fill(&second, 40..50, 78);
        let others = [moment(&second)];
        backups.extend_trail(&second).unwrap();
        expect_moments(&storage, &moments, Some(trail));
        expect_moments(&storage, &others, Some(own));
        assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    }
}

#[test]
fn a_repository_that_was_set_back_gets_nothing_more() {
    let storage = SimStorage::new(14);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..20, 0);
    begin(&backups, &db);
    let told = write(&db, 1);
    backups.extend_trail(&db).unwrap();
    copy_tree(&storage, REPOSITORY, "/older");
    fill(&db, 20..30, 1);
    backups.extend_trail(&db).unwrap();
    fill(&db, 30..40, 2);
    drop(backups);
    storage.rename(Path::new(REPOSITORY), Path::new("/newer")).unwrap();
    storage.rename(Path::new("/older"), Path::new(REPOSITORY)).unwrap();
    let backups = repository(&storage);
    assert!(is_ended(&backups.extend_trail(&db)));
    assert_eq!(reason_of(&db), Some(TrailEndReason::Diverged));
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    expect_moments(&storage, &[told], None);
    begin(&backups, &db);
    let told = write(&db, 3);
    backups.extend_trail(&db).unwrap();
    expect_moments(&storage, &[told], None);
    // One that has nothing of the trail at all.
    drop(db);
    let db = open(&storage, PATH);
    let id = db.trail().unwrap().trail;
    storage
        .rename(&Path::new("/backups/trails").join(format!("{id:016x}")), Path::new("/gone"))
        .unwrap();
    assert!(is_ended(&backups.extend_trail(&db)));
    assert_eq!(reason_of(&db), Some(TrailEndReason::Diverged));
}

/// G5: nothing is kept there for a trail that goes on elsewhere.
#[test]
fn checkpoints_and_restored_databases_are_followed_by_no_trail() {
    let storage = SimStorage::new(15);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..20, 0);
    let trail = begin(&backups, &db);
    fill(&db, 20..40, 1);
    db.checkpoint("/checkpoint").unwrap();
    let number = backups.create(&db).unwrap().number;
    backups.restore(number, TARGET, RestoreOptions::new()).unwrap();
    for path in ["/checkpoint", TARGET] {
        let copy = open(&storage, path);
        assert_eq!(copy.trail(), None, "{path}");
        assert!(is_invalid(&backups.extend_trail(&copy)));
        let own = begin(&backups, &copy);
        let told = write(&copy, 9);
        backups.extend_trail(&copy).unwrap();
        expect_moments(&storage, &[told], Some(own));
    }
    fill(&db, 40..60, 2);
    let told = moment(&db);
    backups.extend_trail(&db).unwrap();
    assert_eq!(db.trail().unwrap().trail, trail);
    expect_moments(&storage, &[told], Some(trail));
    // In the place of the database itself as well.
    db.close().unwrap();
    backups.restore(number, PATH, RestoreOptions::new().replace()).unwrap();
    assert_eq!(open(&storage, PATH).trail(), None);
}

type Change = fn(&Db) -> TrailEndReason;

/// G3.
#[test]
fn what_no_log_has_ends_the_trail_in_front_of_it() {
    let changes: [Change; 3] = [
        |db| {
            db.keyspace("structure 1").unwrap().ingest([("otter", "swims")]).unwrap();
            TrailEndReason::Ingested
        },
        |db| {
            let [_, _, tiered] = tiny_structures();
            let options = tiered.value_separation(Some(600));
            db.keyspace("structure 1").unwrap().convert(options).unwrap();
            TrailEndReason::Converted
        },
        |db| {
            for number in 0..4100 {
                let (name, other) = match number % 2 {
                    0 => ("structure 0", "renamed"),
                    _ => ("renamed", "structure 0"),
                };
                db.rename_keyspace(name, other).unwrap();
            }
            TrailEndReason::Crowded
        },
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let storage = SimStorage::new(16 + nth as u64);
        let db = builder(&storage).open(PATH).unwrap();
        let backups = repository(&storage);
        fill(&db, 0..20, 0);
        let first = begin(&backups, &db);
        fill(&db, 10..30, 1);
        let in_front = moment(&db);
        let reason = change(&db);
        let end = db.trail().unwrap().end.unwrap();
        assert!(end.reason == reason && end.at >= in_front.0, "{end:?}");
        fill(&db, 30..40, 2);
        let later = moment(&db);
        drop(db);
        let db = open(&storage, PATH);
        assert_eq!(db.trail().unwrap().end, Some(end));
        let report = backups.extend_trail(&db).unwrap();
        assert_eq!((report.end, report.to), (Some(end), end.at));
        assert!(is_ended(&backups.extend_trail(&db)));
        let info = only_trail(&backups);
        assert_eq!((info.end, info.to), (Some(reason), end.at));
        assert_eq!(db.trail().unwrap().bytes_behind, 0);
        assert!(is_invalid(&restore_to(&storage, later.0, None)));
        expect_moments(&storage, &[in_front], None);
        // Another one begins where that is asked for.
        let second = begin(&backups, &db);
        assert_ne!(first, second);
        fill(&db, 40..50, 3);
        let told = moment(&db);
        backups.extend_trail(&db).unwrap();
        expect_moments(&storage, &[told], None);
        assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
        assert_eq!(storage.violations(), [""; 0]);
    }
}

/// Wherever there is no room for it: a trail ends for an ingest that is made, and for no other.
#[test]
fn an_ingest_that_finds_no_room_ends_no_trail() {
    for options in tiny_structures() {
        let (mut refused, mut made, mut in_doubt) = (0, 0, 0);
        for skip in 0..40 {
            let storage = SimStorage::new(22);
            let db = builder(&storage).open(PATH).unwrap();
            let backups = repository(&storage);
            let keyspace = db.create_keyspace("animals", options.clone()).unwrap();
            begin(&backups, &db);
            let full = FaultEffect::Error(std::io::ErrorKind::StorageFull);
            let full = FaultRule::new(full).on(&[Operation::Create, Operation::Write]);
            storage.arm(FaultPlan::new().rule(full.path("keyspaces").skip(skip).lasting()));
            let ingested = keyspace.ingest([("otter", "swims"), ("owl", "flies")]);
            storage.disarm();
            let end = db.trail().unwrap().end;
            match ingested {
                Ok(_) => {
                    made += 1;
                    assert_eq!(end.unwrap().reason, TrailEndReason::Ingested);
                }
                // A part of the edit may be written.
                Err(Error::Io { .. }) => {
                    in_doubt += 1;
                    assert!(matches!(db.health().state, HealthState::ReadOnly { .. }));
                }
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
                    assert_eq!(end, None, "behind {skip}");
                    keyspace.put("lynx", "climbs").unwrap();
                    let moments = [moment(&db)];
                    drop((keyspace, db));
                    let db = open(&storage, PATH);
                    backups.extend_trail(&db).unwrap();
                    expect_moments(&storage, &moments, None);
                }
            }
        }
        assert!(refused > 1 && made > 2 && in_doubt < 3, "{refused} {made} {in_doubt}");
    }
}

#[test]
fn an_ended_trail_is_told_of_until_the_next_one_has_begun() {
    let storage = SimStorage::new(23);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..20, 0);
    begin(&backups, &db);
    db.keyspace("structure 1").unwrap().ingest([("otter", "swims")]).unwrap();
    let end = db.trail().unwrap().end;
    let full = FaultEffect::Error(std::io::ErrorKind::StorageFull);
    let full = FaultRule::new(full).on(&[Operation::Create]).path("TRAIL");
    storage.arm(FaultPlan::new().rule(full.lasting()));
    let refused = backups.begin_trail(&db, TrailOptions::new());
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    storage.disarm();
    drop(db);
    let db = open(&storage, PATH);
    assert_eq!(db.trail().unwrap().end, end);
    begin(&backups, &db);
    let told = write(&db, 1);
    drop(db);
    let db = open(&storage, PATH);
    backups.extend_trail(&db).unwrap();
    expect_moments(&storage, &[told], None);
}

/// What is kept for it is bounded; what it has is restored, and it says that it has no more.
#[test]
fn a_trail_that_is_too_far_behind_ends() {
    let storage = SimStorage::new(19);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    fill(&db, 0..20, 0);
    let options = TrailOptions::new().log_max(64 << 10);
    let told = (backups.begin_trail(&db, options).unwrap().as_of, contents(&db));
    assert_eq!(db.trail().unwrap().log_max, 64 << 10);
    for round in 1..8 {
        fill(&db, 0..100, round);
    }
    assert_eq!(reason_of(&db), Some(TrailEndReason::NotKept), "it says so at once");
    let status = db.trail().unwrap();
    assert!(status.is_over() && status.value_bytes_kept == 0, "{status:?}");
    assert!(is_ended(&backups.extend_trail(&db)));
    assert_eq!(only_trail(&backups).to, status.done);
    expect_moments(&storage, &[told], None);
    assert!(is_invalid(&restore_to(&storage, db.snapshot().seqno(), None)));
    begin(&backups, &db);
    let told = write(&db, 9);
    backups.extend_trail(&db).unwrap();
    expect_moments(&storage, &[told], None);
}

/// The database goes on, and keeps what the trail does not have until it can have it.
#[test]
fn a_full_repository_is_gone_on_with_when_there_is_room() {
    let (storage, elsewhere) = (SimStorage::new(20), SimStorage::new(21));
    let db = builder(&storage).open(PATH).unwrap();
    let in_storage = Arc::new(elsewhere.clone());
    let backups = BackupRepository::open_in(in_storage, REPOSITORY, OpenExisting::OrCreate);
    let backups = backups.unwrap();
    fill(&db, 0..20, 0);
    begin(&backups, &db);
    let mut moments = Vec::new();
    for round in 1..6 {
        let room = elsewhere.allocated_bytes() + (round - 1) * 8192;
        elsewhere.set_capacity(room);
        fill(&db, round * 20..round * 20 + 60, round);
        fill_segment(&db, round);
        moments.push(moment(&db));
        let refused = backups.extend_trail(&db).unwrap_err();
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        assert!(db.trail().unwrap().bytes_behind > 0);
        assert_sound(&db);
    }
    elsewhere.set_capacity(u64::MAX);
    let report = backups.extend_trail(&db).unwrap();
    assert!(report.to >= moments[4].0);
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    for (nth, (stamp, expected)) in moments.iter().enumerate() {
        let target = format!("{TARGET} {nth}");
        let options = RestoreOptions::new().go_on_with(builder(&storage));
        let options = options.storage(Arc::new(storage.clone()));
        backups.restore_at(*stamp, &target, options).unwrap();
        let restored = open(&storage, &target);
        assert!(contents(&restored) == *expected, "{stamp}");
        assert_sound(&restored);
    }
    assert_eq!(storage.violations(), [""; 0]);
    assert_eq!(elsewhere.violations(), [""; 0]);
}

/// G3: between where an ingest ends the trail and where it is there, no other one begins.
#[test]
fn no_trail_begins_while_an_ingest_is_under_way() {
    for options in tiny_structures().into_iter().chain([KeyspaceOptions::history()]) {
        let sim = SimStorage::new(21);
        let (ask, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (is_armed, told) = (Arc::new(AtomicBool::new(false)), std::sync::Mutex::new(told));
        let armed = Arc::clone(&is_armed);
        // Runs are made durable behind the end of the trail, and in front of being there.
        let hook = Arc::new(move |mutation: &Mutation<'_>| {
            let is_run = mutation.path.starts_with("/db/keyspaces");
            let is_it = mutation.operation == Operation::Sync && is_run;
            if is_it && armed.swap(false, Ordering::AcqRel) {
                ask.send(()).unwrap();
                let _it_has_begun = told.lock().unwrap().recv_timeout(CHANCE);
            }
        });
        let watched = Arc::new(WatchedStorage::new(sim.clone(), hook));
        let db = builder(&sim).storage(watched).open(PATH).unwrap();
        let backups = repository(&sim);
        let keyspace = db.create_keyspace("animals", options).unwrap();
        let other = db.create_keyspace("others", KeyspaceOptions::lsm()).unwrap();
        let first = begin(&backups, &db);
        other.put_with("wren", "sings", Durability::Buffered).unwrap();
        is_armed.store(true, Ordering::Release);
        let second = std::thread::scope(|scope| {
            let (backups, db) = (&backups, &db);
            let beginner = scope.spawn(move || {
                asked.recv_timeout(LONG).expect("an ingest syncs its runs");
                let begun = begin(backups, db);
                let _nobody_waits = tell.send(());
                begun
            });
            keyspace.ingest([("otter", "swims"), ("owl", "flies")]).unwrap();
            beginner.join().unwrap()
        });
        assert!(second != first && !is_armed.load(Ordering::Acquire));
        other.put("lynx", "climbs").unwrap();
        let moments = [moment(&db)];
        backups.extend_trail(&db).unwrap();
        assert_eq!(reason_of(&db), None);
        drop((keyspace, other));
        db.close().unwrap();
        expect_moments(&sim, &moments, Some(second));
    }
}
