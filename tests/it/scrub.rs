//! Scrubbing: everything is verified, a slice at a time, over and over, and what is wrong is told
//! until it is not any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lithe_sim::clock::SimClock;
use lithe_sim::setup::Setup;
use lithedb::base::Clock;
use lithedb::storage::SimStorage;
use lithedb::{
    Background, BackgroundWork, Builder, CheckPosition, Db, HealthState, ScrubOptions, ScrubStatus,
};

use crate::support::{PATH, open_tiny, step_to_rest, tiny, tiny_structures};

const PAUSE: Duration = Duration::from_secs(3600);

/// A database at rest, of each structure, with large values; closed.
fn made(storage: &SimStorage) {
    let db = open_tiny(storage);
    for (number, options) in tiny_structures().into_iter().enumerate() {
        let options = options.value_separation(Some(64));
        let keyspace = db.create_keyspace(&format!("of {number}"), options).unwrap();
        for key in 0..400u32 {
            let len = if key.is_multiple_of(2) { 400 } else { 40 };
            keyspace.put(key.to_be_bytes(), vec![key as u8; len]).unwrap();
        }
        db.flush().unwrap();
    }
    step_to_rest(&db);
    db.close().unwrap();
}

/// Slices of the smallest size.
fn options() -> ScrubOptions {
    ScrubOptions::new().rate(64 << 10).pause(PAUSE)
}

fn scrubbed(storage: &SimStorage, clock: &Arc<SimClock>, options: ScrubOptions) -> Builder {
    let builder = Setup::tiny(1).builder(Arc::new(storage.clone()), Arc::clone(clock), 0);
    builder.scrub(options)
}

fn status(db: &Db) -> ScrubStatus {
    db.health().scrub.unwrap()
}

#[test]
fn a_pass_goes_through_everything_once_and_comes_again_after_a_pause() {
    let (storage, clock) = (SimStorage::new(90), Arc::<SimClock>::default());
    made(&storage);
    let db = scrubbed(&storage, &clock, options()).open(PATH).unwrap();
    step_to_rest(&db);
    let (first, whole) = (status(&db), db.check().unwrap());
    assert_eq!((first.passes, first.entries), (1, whole.entries));
    assert_eq!((first.problem_count, first.position.clone()), (0, None));
    assert_eq!(first.last_pass, Some(clock.wall_millis()));
    assert!(!db.step().unwrap() && status(&db) == first, "it rests");
    clock.sleep(PAUSE);
    assert!(db.step().unwrap());
    assert!(status(&db).position.is_some());
    step_to_rest(&db);
    assert_eq!((status(&db).passes, status(&db).entries), (2, 2 * whole.entries));
    let text = db.stats().to_prometheus();
    assert!(text.contains("lithedb_scrub_passes_total 2\n"), "{text}");
    assert!(db.health().is_good());
}

#[test]
fn a_pass_goes_on_in_the_next_opening_from_where_it_was() {
    let (storage, clock) = (SimStorage::new(91), Arc::<SimClock>::default());
    made(&storage);
    let db = scrubbed(&storage, &clock, options()).open(PATH).unwrap();
    // Behind the number of a store, a place in it.
    let is_within = |status: &ScrubStatus| {
        let position = status.position.as_ref().map(ToString::to_string);
        position.is_some_and(|position| !position.ends_with(':'))
    };
    while !is_within(&status(&db)) {
        assert!(db.step().unwrap());
    }
    let before = status(&db);
    db.close().unwrap();
    let kept: CheckPosition = before.position.unwrap().to_string().parse().unwrap();
    let db = scrubbed(&storage, &clock, options().resume(kept)).open(PATH).unwrap();
    step_to_rest(&db);
    let (after, whole) = (status(&db), db.check().unwrap());
    assert_eq!(after.passes, 1);
    assert_eq!(before.entries + after.entries, whole.entries, "each was looked at once");
}

/// A data file of a keyspace, by the start of its name.
fn file_of(storage: &SimStorage, stem: &str) -> PathBuf {
    let mut paths = storage.files().into_iter().map(|(path, _)| path);
    let is_of = |path: &PathBuf| {
        path.starts_with(PATH)
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(stem))
    };
    paths.find(is_of).unwrap()
}

#[test]
fn what_has_rotted_is_told_by_the_health_until_it_is_right_again() {
    for stem in ["seg-", "tbl-", "val-", "index-", "MANIFEST-"] {
        let (storage, clock) = (SimStorage::new(92), Arc::<SimClock>::default());
        made(&storage);
        let db = scrubbed(&storage, &clock, options()).open(PATH).unwrap();
        step_to_rest(&db);
        assert!(db.health().is_good());
        let path = file_of(&storage, stem);
        let sound = storage.read_file(&path).unwrap();
        let rotten: Vec<u8> = sound.iter().map(|byte| !byte).collect();
        storage.overwrite(&path, 0, &rotten).unwrap();
        clock.sleep(PAUSE);
        step_to_rest(&db);
        let health = db.health();
        assert!(!health.is_good(), "{stem}");
        assert_eq!(health.state, HealthState::Writable, "{stem}: it is written to all the same");
        let failure = &health.failures[0];
        assert_eq!(failure.work, BackgroundWork::Scrub);
        assert_eq!(failure.keyspace.is_some(), stem != "MANIFEST-", "{failure}");
        assert!(failure.what.contains(&path.display().to_string()), "{failure}");
        let found = health.scrub.unwrap();
        assert!(found.problem_count > 0 && !found.problems.is_empty());
        storage.overwrite(&path, 0, &sound).unwrap();
        clock.sleep(PAUSE);
        step_to_rest(&db);
        assert!(db.health().is_good(), "{stem}: {:?}", db.health().failures);
        assert_eq!(status(&db).problem_count, found.problem_count);
    }
}

#[test]
fn nothing_is_scrubbed_while_background_work_is_paused_or_unless_it_is_asked_for() {
    let (storage, clock) = (SimStorage::new(93), Arc::<SimClock>::default());
    made(&storage);
    let db = scrubbed(&storage, &clock, options()).open(PATH).unwrap();
    let pause = db.pause_background();
    step_to_rest(&db);
    assert_eq!(status(&db), ScrubStatus::default());
    drop(pause);
    step_to_rest(&db);
    assert_eq!(status(&db).passes, 1);
    db.close().unwrap();
    let db = tiny(&storage).open(PATH).unwrap();
    step_to_rest(&db);
    assert_eq!(db.health().scrub, None);
}

/// Keyspaces come, go and are written to between slices.
#[test]
fn a_pass_goes_on_beside_writers_and_past_keyspaces_that_are_dropped() {
    let (storage, clock) = (SimStorage::new(94), Arc::<SimClock>::default());
    made(&storage);
    let db = scrubbed(&storage, &clock, options()).open(PATH).unwrap();
    let mut round = 0u32;
    while status(&db).passes == 0 {
        round += 1;
        let keyspace = db.keyspace("of 0").unwrap();
        keyspace.put(round.to_be_bytes(), [1; 200]).unwrap();
        match round {
            3 => db.drop_keyspace("of 1").unwrap(),
            5 => drop(db.create_keyspace("new", tiny_structures()[2].clone()).unwrap()),
            _ if round.is_multiple_of(4) => db.flush().unwrap(),
            _ => {}
        }
        assert!(db.step().unwrap());
    }
    assert_eq!(status(&db).problems, Vec::<String>::new());
}

#[test]
fn a_thread_scrubs_and_ends_with_the_database() {
    let (storage, clock) = (SimStorage::new(95), Arc::<SimClock>::default());
    made(&storage);
    let fast = ScrubOptions::new().rate(1 << 30).pause(PAUSE);
    let builder = scrubbed(&storage, &clock, fast).background(Background::Threads);
    let db = builder.open(PATH).unwrap();
    while status(&db).passes == 0 {
        std::thread::yield_now();
    }
    assert_eq!(status(&db).problem_count, 0);
    db.close().unwrap();
    // One that waits for its rate does so as well.
    let slow = ScrubOptions::new().rate(64 << 10).pause(PAUSE);
    let builder = scrubbed(&storage, &clock, slow).background(Background::Threads);
    let db = builder.open(PATH).unwrap();
    while status(&db).position.is_none() {
        std::thread::yield_now();
    }
    db.close().unwrap();
}
