//! Databases that are read beside their writer.

mod changes;
mod faults;
mod port;
mod process;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lithe_sim::parallel::run_cases;
use lithe_sim::random::Random;
use lithe_sim::setup::Setup;
use lithedb::storage::{
    FaultEffect, FaultPlan, FaultRule, MemoryStorage, OpenMode, Operation, SimStorage, Storage,
};
use lithedb::{
    Access, BackupRepository, Db, Durability, Encryption, Error, FeedOptions, FollowUpTo, Follower,
    KeyspaceOptions, OpenExisting, RestoreOptions, SeqNo, TrailOptions,
};

use self::port::Port;
use self::writer::Writer;
use crate::THREADS;
use crate::support::{PATH, assert_sound, create_tiny, rows, step_to_rest, tiny, tiny_structures};

const MODES: [FollowUpTo; 2] = [FollowUpTo::Durable, FollowUpTo::Written];

fn follow(storage: &SimStorage, up_to: FollowUpTo) -> Follower {
    tiny(storage).follow(PATH, up_to).unwrap()
}

fn folder_is_there(storage: &dyn Storage) -> bool {
    storage.exists(&Path::new(PATH).join("followers")).unwrap()
}

#[test]
fn a_follower_shows_what_was_committed_when_it_catches_up() {
    for up_to in MODES {
        let storage = SimStorage::new(1);
        storage.panic_on_violation();
        let writer = tiny(&storage).open(PATH).unwrap();
        let keyspace = create_tiny(&writer, "k");
        let first = keyspace.put("a", "1").unwrap();
        let follower = follow(&storage, up_to);
        let position = follower.position();
        assert!(position.opened_anew && position.stamp == first);
        let read = follower.keyspace("k").unwrap();
        let before = follower.snapshot();
        let second = keyspace.put("a", "2").unwrap();
        assert_eq!(read.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        let caught_up = follower.catch_up().unwrap();
        assert_eq!((caught_up.stamp, caught_up.commits), (second, 1));
        assert!(caught_up.log_bytes > 0 && !caught_up.opened_anew);
        assert_eq!(follower.keyspace("k").unwrap().get("a").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(before.get(&read, "a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(follower.catch_up().unwrap().commits, 0);
        assert_sound(&follower.db());
        follower.close().unwrap();
        assert!(matches!(follower.catch_up(), Err(Error::Closed)));
        assert!(matches!(read.get("a"), Err(Error::Closed)));
        drop((follower, read, before));
        assert!(!folder_is_there(&storage), "nothing is left of it");
    }
}

#[test]
fn what_is_not_durable_shows_to_who_wants_it_alone() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let keyspace = create_tiny(&writer, "k");
    let durable = keyspace.put_with("a", "1", Durability::Sync).unwrap();
    let [careful, eager] = MODES.map(|up_to| follow(&storage, up_to));
    let buffered = keyspace.put_with("b", "2", Durability::Buffered).unwrap();
    let position = careful.catch_up().unwrap();
    assert_eq!((position.stamp, position.commits), (durable, 0));
    assert!(position.log_bytes_behind > 0);
    let position = eager.catch_up().unwrap();
    assert_eq!((position.stamp, position.log_bytes_behind), (buffered, 0));
    assert!(careful.keyspace("k").unwrap().get("b").unwrap().is_none());
    assert!(eager.keyspace("k").unwrap().get("b").unwrap().is_some());
    writer.sync().unwrap();
    let position = careful.catch_up().unwrap();
    assert_eq!((position.stamp, position.log_bytes_behind), (buffered, 0));
}

/// A writer of a database that is encrypted now and then, and what else is drawn.
fn begin(seed: u64) -> (SimStorage, Writer, Random) {
    let storage = SimStorage::new(seed);
    storage.panic_on_violation();
    let setup = if seed % 4 == 3 { Setup::tiny(1).encrypted() } else { Setup::tiny(1) };
    let writer = Writer::new(&storage, setup, seed);
    (storage, writer, Random::new(seed))
}

#[test]
fn a_follower_always_shows_some_commit_and_all_before_it() {
    run_cases(THREADS, 60, |seed| {
        let (storage, mut writer, mut random) = begin(seed);
        let followers: Vec<Follower> = (0..2)
            .map(|index| {
                let builder = writer.builder_in(Arc::new(storage.clone()));
                builder.follow(PATH, MODES[index]).unwrap()
            })
            .collect();
        let mut stamps = [SeqNo::ZERO; 2];
        for _ in 0..120 {
            writer.act();
            for (index, follower) in followers.iter().enumerate() {
                if random.below(4) != 0 {
                    continue;
                }
                let stamp = follower.catch_up().unwrap().stamp;
                assert!(stamp >= stamps[index], "seed {seed}: stamps only go up");
                stamps[index] = stamp;
                let newest = writer.oracle.newest();
                // Or one above it that was drawn for something else than a commit.
                if MODES[index] == FollowUpTo::Written {
                    assert!(stamp >= newest, "seed {seed}: {stamp} with {newest}");
                }
                writer.oracle.assert_shows(follower, &mut random);
            }
        }
        writer.db().sync().unwrap();
        for follower in &followers {
            assert!(follower.catch_up().unwrap().stamp >= writer.oracle.newest(), "seed {seed}");
            writer.oracle.assert_shows(follower, &mut random);
            let names = |db: &Db| db.keyspaces().into_iter().map(|it| it.name).collect::<Vec<_>>();
            assert_eq!(names(&follower.db()), names(writer.db()));
            assert_sound(&follower.db());
        }
        assert_sound(writer.db());
        drop(followers);
        assert!(!folder_is_there(&storage));
        true
    });
}

/// The writer does things between any two calls of a follower to its storage.
#[test]
fn a_follower_reads_while_everything_changes() {
    run_cases(THREADS, 80, |seed| {
        let storage = SimStorage::new(seed);
        storage.panic_on_violation();
        let writer = Arc::new(Mutex::new(Writer::new(&storage, Setup::tiny(1), seed)));
        for _ in 0..30 {
            writer.lock().unwrap().act();
        }
        let port = Port::new(Arc::new(storage.clone()));
        let builder = writer.lock().unwrap().builder_in(Arc::new(port.clone()));
        let mut random = Random::new(seed);
        let disturb = |random: &mut Random| {
            let (writer, mut random) = (Arc::clone(&writer), Random::new(random.draw()));
            let mut left = 1 + random.below(12);
            port.in_front_of_calls(move || {
                if left > 0 && random.below(20) == 0 {
                    left -= 1;
                    writer.lock().unwrap().act();
                }
            });
        };
        disturb(&mut random);
        let follower = builder.follow(PATH, MODES[(seed % 2) as usize]).unwrap();
        let mut before = SeqNo::ZERO;
        for _ in 0..25 {
            port.undisturbed();
            writer.lock().unwrap().oracle.assert_shows(&follower, &mut random);
            writer.lock().unwrap().act();
            disturb(&mut random);
            let stamp = follower.catch_up().unwrap().stamp;
            assert!(stamp >= before, "seed {seed}: stamps only go up");
            before = stamp;
            // What was read into is still there, whatever becomes of it.
            let db = follower.db();
            let infos = db.keyspaces();
            let held = infos.iter().map(|info| db.keyspace(&info.name).unwrap());
            let first: Vec<_> = held.clone().map(|keyspace| rows(&keyspace)).collect();
            let second: Vec<_> = held.map(|keyspace| rows(&keyspace)).collect();
            assert!(first == second, "seed {seed}");
        }
        port.undisturbed();
        writer.lock().unwrap().db().sync().unwrap();
        let newest = writer.lock().unwrap().oracle.newest();
        assert!(follower.catch_up().unwrap().stamp >= newest, "seed {seed}");
        writer.lock().unwrap().oracle.assert_shows(&follower, &mut random);
        assert_sound(&follower.db());
        true
    });
}

#[test]
fn a_snapshot_of_a_follower_outlives_all_that_the_writer_does() {
    let storage = SimStorage::new(1);
    storage.panic_on_violation();
    let mut writer = Writer::new(&storage, Setup::tiny(1), 7);
    for _ in 0..60 {
        writer.act();
    }
    let follower = follow(&storage, FollowUpTo::Written);
    let (db, snapshot) = (follower.db(), follower.snapshot());
    let shown = |name: &str| {
        let keyspace = db.keyspace(name).unwrap();
        let entries = snapshot.iter(&keyspace).map(|entry| entry.map(|it| (it.key, it.value)));
        entries.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let names: Vec<String> = db.keyspaces().into_iter().map(|info| info.name).collect();
    let before: Vec<_> = names.iter().map(|name| shown(name)).collect();
    for round in 0..6 {
        for _ in 0..60 {
            writer.act();
        }
        writer.db().compact().unwrap();
        writer.db().vacuum().unwrap();
        if round % 2 == 0 {
            follower.catch_up().unwrap();
        }
        assert!(names.iter().map(|name| shown(name)).eq(before.iter().cloned()), "round {round}");
    }
    assert!(writer.db().followers().files_held > 0);
    drop((follower, snapshot, db));
    assert_eq!(writer.db().followers().views, 0);
    assert_eq!(writer.db().followers().bytes_held, 0, "the last one to go has cleared away");
}

#[test]
fn what_a_killed_follower_has_left_goes() {
    let storage = SimStorage::new(1);
    let mut writer = Writer::new(&storage, Setup::tiny(1), 3);
    let port = Port::new(Arc::new(storage.clone()));
    let builder = writer.builder_in(Arc::new(port.clone()));
    let follower = builder.follow(PATH, FollowUpTo::Durable).unwrap();
    for _ in 0..150 {
        writer.act();
    }
    assert!(writer.db().followers().files_held > 0);
    port.shut();
    drop(follower);
    let figures = writer.db().followers();
    assert!(figures.views == 0 && figures.files_held > 0, "it could not clear away");
    writer.be_killed();
    assert_eq!(writer.db().followers().files_held, 0);
    assert!(!folder_is_there(&storage));
}

#[test]
fn a_database_without_a_writer_is_followed_and_taken_up_by_one() {
    let storage = SimStorage::new(1);
    let absent = tiny(&storage).follow(PATH, FollowUpTo::Durable);
    assert!(matches!(absent, Err(Error::Io { .. })));
    assert!(!storage.exists(Path::new(PATH)).unwrap(), "nothing is made");
    let writer = tiny(&storage).open(PATH).unwrap();
    create_tiny(&writer, "k").put("a", "1").unwrap();
    writer.close().unwrap();
    drop(writer);
    let follower = follow(&storage, FollowUpTo::Durable);
    let reader = tiny(&storage).access(Access::ReadOnly).open(PATH).unwrap();
    assert_eq!(rows(&reader.keyspace("k").unwrap()), rows(&follower.keyspace("k").unwrap()));
    drop(reader);
    let writer = tiny(&storage).open(PATH).unwrap();
    let stamp = writer.keyspace("k").unwrap().put("a", "2").unwrap();
    assert_eq!(follower.catch_up().unwrap().stamp, stamp);
    assert_eq!(follower.keyspace("k").unwrap().get("a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn what_a_follower_cannot_do_is_refused() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    create_tiny(&writer, "k").put("a", "1").unwrap();
    let follower = follow(&storage, FollowUpTo::Durable);
    let (db, keyspace) = (follower.db(), follower.keyspace("k").unwrap());
    let refusals = [
        keyspace.put("b", "2").map(drop),
        db.create_keyspace("other", KeyspaceOptions::lsm()).map(drop),
        db.update(|transaction| transaction.put(&keyspace, "b", "2")).map(drop),
        db.flush(),
        db.vacuum().map(drop),
        db.checkpoint("/copy").map(drop),
        keyspace.begin_ingest().map(drop),
    ];
    for (number, refused) in refusals.into_iter().enumerate() {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{number}: {refused:?}");
    }
    let feed = db.changes(SeqNo::ZERO, FeedOptions::new()).map(drop);
    for refused in [db.commits(..).map(drop), feed] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    assert!(!db.step().unwrap_or(false));
}

#[test]
fn a_restore_does_not_take_the_place_of_what_is_followed() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = || Db::builder().storage(Arc::clone(&storage));
    let writer = builder().open(PATH).unwrap();
    writer.keyspace_or_create("k").unwrap().put("a", "1").unwrap();
    let create = OpenExisting::OrCreate;
    let repository = BackupRepository::open_in(Arc::clone(&storage), "/backups", create).unwrap();
    let info = repository.create(&writer).unwrap();
    writer.close().unwrap();
    drop(writer);
    let follower = builder().follow(PATH, FollowUpTo::Durable).unwrap();
    let restore = || repository.restore(info.number, PATH, RestoreOptions::new().replace());
    assert!(matches!(restore(), Err(Error::Locked { .. })));
    assert_eq!(follower.catch_up().unwrap().stamp, follower.position().stamp);
    drop(follower);
    restore().unwrap();
}

#[test]
fn a_follower_in_whose_place_another_database_is_says_so() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    create_tiny(&writer, "k").put("a", "1").unwrap();
    let follower = follow(&storage, FollowUpTo::Durable);
    drop(writer);
    storage.rename(Path::new(PATH), Path::new("/elsewhere")).unwrap();
    assert!(follower.catch_up().is_err());
    let other = Setup::tiny(2).builder(Arc::new(storage.clone()), Arc::default(), 9);
    let other = other.open(PATH).unwrap();
    other.create_keyspace("k", tiny_structures()[1].clone()).unwrap();
    assert!(matches!(follower.catch_up(), Err(Error::InvalidArgument { .. })));
}

#[test]
fn a_key_that_the_writer_changes_is_followed() {
    let storage = SimStorage::new(1);
    let encryption = || Encryption::key([7; 32]);
    let writer = tiny(&storage).encryption(encryption()).open(PATH).unwrap();
    let keyspace = create_tiny(&writer, "k");
    keyspace.put("a", "1").unwrap();
    let wrong = tiny(&storage).follow(PATH, FollowUpTo::Durable);
    assert!(matches!(wrong, Err(Error::KeyNeeded { .. })));
    let builder = tiny(&storage).encryption(encryption());
    let follower = builder.follow(PATH, FollowUpTo::Durable).unwrap();
    writer.rotate_data_key().unwrap();
    for number in 0..40_u32 {
        keyspace.put(number.to_be_bytes(), vec![b'v'; 300]).unwrap();
        step_to_rest(&writer);
    }
    follower.catch_up().unwrap();
    assert_eq!(rows(&follower.keyspace("k").unwrap()), rows(&keyspace));
}

#[test]
fn a_follower_keeps_up_by_itself() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = || Db::builder().storage(Arc::clone(&storage)).memory_budget(8 << 20);
    let writer = builder().open(PATH).unwrap();
    let keyspace = writer.keyspace_or_create("k").unwrap();
    let follower = builder().follow(PATH, FollowUpTo::Durable).unwrap();
    let keeping_up = follower.keep_up(Duration::from_millis(1)).unwrap();
    let mut newest = SeqNo::ZERO;
    for number in 0..200_u32 {
        newest = keyspace.put(number.to_be_bytes(), "v").unwrap();
    }
    while follower.position().stamp < newest {
        std::thread::yield_now();
    }
    assert_eq!(rows(&follower.keyspace("k").unwrap()), rows(&keyspace));
    assert!(keeping_up.take_error().is_none());
    drop(keeping_up);
    let newer = keyspace.put("newer", "v").unwrap();
    assert!(follower.position().stamp < newer, "nobody brings it on any more");
}

#[test]
fn damage_that_stays_is_told() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let keyspace = create_tiny(&writer, "k");
    keyspace.put("a", "1").unwrap();
    let follower = follow(&storage, FollowUpTo::Durable);
    let log = Path::new(PATH).join("wal/00000001.wal");
    let file = storage.open(&log, OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; 8192];
    let end = file.read_at(&mut bytes, 0).unwrap();
    let used = bytes[..end].iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    keyspace.put("b", "2").unwrap();
    keyspace.put("c", "3").unwrap();
    // In the first of the two: the second one says that it was durable.
    storage.flip_bit(&log, used.next_multiple_of(8) + 40, 1).unwrap();
    let refused = follower.catch_up();
    assert!(matches!(refused, Err(Error::Corruption { .. })), "{refused:?}");
    assert_eq!(follower.keyspace("k").unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Where the file of the log ends that was never used again, and with it the last record.
fn used_end(storage: &SimStorage, log: &Path) -> u64 {
    let bytes = storage.read_file(log).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1
}

#[test]
fn what_a_failed_sync_has_lost_is_told_to_who_has_shown_it() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let keyspace = create_tiny(&writer, "k");
    let durable = keyspace.put("a", "1").unwrap();
    let log = Path::new(PATH).join("wal/00000001.wal");
    let durable_end = used_end(&storage, &log);
    let [careful, eager] = MODES.map(|up_to| follow(&storage, up_to));
    let lost = keyspace.put_with("b", "2", Durability::Buffered).unwrap();
    assert_eq!(careful.catch_up().unwrap().stamp, durable);
    assert_eq!(eager.catch_up().unwrap().stamp, lost);
    let failing = FaultRule::new(FaultEffect::Error(std::io::ErrorKind::Other)).lasting();
    storage.arm(FaultPlan::new().rule(failing.on(&[Operation::Sync]).path("wal")));
    assert!(writer.sync().is_err());
    drop((writer, keyspace));
    storage.disarm();
    // What the system does then with what it could not write.
    let zeros = vec![0; (used_end(&storage, &log) - durable_end) as usize];
    storage.overwrite(&log, durable_end, &zeros).unwrap();
    let writer = tiny(&storage).open(PATH).unwrap();
    let keyspace = writer.keyspace("k").unwrap();
    assert!(keyspace.get("b").unwrap().is_none());
    for _ in 0..2 {
        let stamp = keyspace.put("c", "3").unwrap();
        assert_eq!(careful.catch_up().unwrap().stamp, stamp);
        assert_eq!(rows(&careful.keyspace("k").unwrap()), rows(&keyspace));
        let told = eager.catch_up();
        assert!(matches!(told, Err(Error::WentBack { .. })), "{told:?}");
        let shown = eager.keyspace("k").unwrap();
        assert_eq!(shown.get("b").unwrap().as_deref(), Some(&b"2"[..]), "it stays as it is");
    }
}

#[test]
fn who_looks_seldom_does_not_take_all_of_the_log_into_memory() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let keyspace = create_tiny(&writer, "k");
    keyspace.put("a", "1").unwrap();
    let follower = follow(&storage, FollowUpTo::Durable);
    let commits = 400;
    for number in 0..commits {
        keyspace.put(format!("key {number:04}"), vec![b'v'; 500]).unwrap();
        step_to_rest(&writer);
    }
    let caught_up = follower.catch_up().unwrap();
    assert!(caught_up.opened_anew && caught_up.commits < commits / 4, "{caught_up:?}");
    assert_eq!(rows(&follower.keyspace("k").unwrap()), rows(&keyspace));
}

#[test]
fn a_writer_that_a_trail_follows_is_followed_as_any_other() {
    let storage = SimStorage::new(1);
    storage.panic_on_violation();
    let writer = tiny(&storage).open(PATH).unwrap();
    let options = tiny_structures()[0].clone().value_separation(Some(300));
    let keyspace = writer.create_keyspace("k", options).unwrap();
    let place: Arc<dyn Storage> = Arc::new(storage.clone());
    let create = OpenExisting::OrCreate;
    let repository = BackupRepository::open_in(place, "/backups", create).unwrap();
    repository.begin_trail(&writer, TrailOptions::new()).unwrap();
    let followers = MODES.map(|up_to| follow(&storage, up_to));
    for round in 0..12_u32 {
        let value = vec![b'a' + round as u8; 400];
        let name = format!("k{round}");
        writer.rename_keyspace(&keyspace.name(), &name).unwrap();
        for number in 0..20_u32 {
            keyspace.put((number % (round + 3)).to_be_bytes(), &value).unwrap();
        }
        if round % 3 == 0 {
            repository.extend_trail(&writer).unwrap();
        }
        step_to_rest(&writer);
        for follower in &followers {
            follower.catch_up().unwrap();
            assert_eq!(rows(&follower.keyspace(&name).unwrap()), rows(&keyspace));
        }
    }
    let refused = repository.extend_trail(&followers[0].db());
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
}
