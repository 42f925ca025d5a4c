//! Followers and writers whose storage fails, is full, or is exchanged below them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lithe_sim::clock::SimClock;
use lithe_sim::random::Random;
use lithe_sim::setup::Setup;
use lithedb::storage::{
    CrashMode, FaultEffect, FaultPlan, FaultRule, OpenMode, Operation, SimStorage, Storage,
};
use lithedb::{
    Db, Encryption, Error, FollowUpTo, Follower, IndexOptions, Keyspace, KeyspaceOptions, SeqNo,
};

use super::port::Port;
use super::writer::Writer;
use super::{MODES, folder_is_there, follow};
use crate::support::{PATH, assert_sound, create_tiny, rows, step_to_rest, tiny, tiny_structures};

fn arm(storage: &SimStorage, kind: ErrorKind, operations: &[Operation], path: &str) {
    let rule = FaultRule::new(FaultEffect::Error(kind)).lasting();
    storage.arm(FaultPlan::new().rule(rule.on(operations).path(path)));
}

/// Has the files change that there are, by overwriting what is there.
fn overwrite_all(db: &Db, keyspace: &Keyspace, fill: u8) {
    for number in 0..60_u32 {
        keyspace.put(number.to_be_bytes(), vec![fill; 200]).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    step_to_rest(db);
}

fn files_below(storage: &dyn Storage, dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(PATH).join(dir);
    let names = storage.list_dir(&dir).unwrap_or_default();
    names.into_iter().map(|entry| dir.join(entry.name)).collect()
}

#[test]
fn on_a_full_disk_files_are_put_aside_by_renaming() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let writer = tiny(&storage).open(PATH).unwrap();
        let keyspace = writer.create_keyspace("k", options).unwrap();
        overwrite_all(&writer, &keyspace, b'a');
        let follower = follow(&storage, FollowUpTo::Durable);
        let (shown, db) = (rows(&keyspace), follower.db());
        let operations = [Operation::CreateDir, Operation::Link];
        arm(&storage, ErrorKind::StorageFull, &operations, "followers");
        overwrite_all(&writer, &keyspace, b'b');
        assert!(writer.followers().files_held > 0);
        storage.disarm();
        assert_eq!(rows(&db.keyspace("k").unwrap()), shown);
        drop((follower, db));
        assert!(!folder_is_there(&storage));
    }
}

#[test]
fn what_could_not_be_put_aside_is_tried_again() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let writer = tiny(&storage).open(PATH).unwrap();
        let options = options.value_separation(Some(150));
        let keyspace = writer.create_keyspace("k", options).unwrap();
        overwrite_all(&writer, &keyspace, b'a');
        let follower = follow(&storage, FollowUpTo::Durable);
        let (shown, db) = (rows(&keyspace), follower.db());
        let operations = [Operation::Link, Operation::Rename];
        arm(&storage, ErrorKind::StorageFull, &operations, "held-");
        overwrite_all(&writer, &keyspace, b'b');
        writer.vacuum().unwrap();
        assert_eq!(writer.followers().files_held, 0);
        assert_eq!(rows(&db.keyspace("k").unwrap()), shown);
        storage.disarm();
        let before = files_below(&storage, "keyspaces/00000001").len();
        overwrite_all(&writer, &keyspace, b'c');
        assert!(writer.followers().files_held > 0, "of {before} files");
        assert_eq!(rows(&db.keyspace("k").unwrap()), shown);
        drop((follower, db));
        assert!(writer.check().unwrap().orphans.is_empty(), "nothing was forgotten");
    }
}

#[test]
fn that_nobody_can_look_for_followers_keeps_nobody_from_opening() {
    for options in tiny_structures() {
        let storage = SimStorage::new(1);
        let writer = tiny(&storage).open(PATH).unwrap();
        let keyspace = writer.create_keyspace("k", options).unwrap();
        let follower = follow(&storage, FollowUpTo::Durable);
        arm(&storage, ErrorKind::PermissionDenied, &[Operation::List], "followers");
        overwrite_all(&writer, &keyspace, b'a');
        overwrite_all(&writer, &keyspace, b'b');
        let expected = rows(&keyspace);
        drop((writer, keyspace)); // Killed, with files that nothing refers to.
        let writer = tiny(&storage).open(PATH).unwrap();
        assert_eq!(rows(&writer.keyspace("k").unwrap()), expected);
        storage.disarm();
        drop((follower, writer));
        let writer = tiny(&storage).open(PATH).unwrap();
        assert!(writer.check().unwrap().orphans.is_empty());
        assert!(!folder_is_there(&storage));
    }
}

fn names(db: &Db) -> Vec<String> {
    db.keyspaces().into_iter().map(|info| info.name).collect()
}

#[test]
fn an_ingest_whose_sync_fails_does_not_show() {
    for (structure, options) in tiny_structures().into_iter().enumerate() {
        let storage = SimStorage::new(1);
        let writer = tiny(&storage).open(PATH).unwrap();
        let keyspace = writer.create_keyspace("k", options).unwrap();
        keyspace.put("a", "1").unwrap();
        writer.flush().unwrap();
        let followers = MODES.map(|up_to| follow(&storage, up_to));
        let before = rows(&keyspace);
        let mut ingest = keyspace.begin_ingest().unwrap();
        ingest.add("b", "2").unwrap();
        let index = if structure == 0 { "/index-" } else { "/tables-" };
        arm(&storage, ErrorKind::Other, &[Operation::Sync], index);
        assert!(ingest.finish().is_err());
        let late = MODES.map(|up_to| follow(&storage, up_to));
        for follower in followers.iter().chain(&late) {
            follower.catch_up().unwrap();
            assert_eq!(rows(&follower.keyspace("k").unwrap()), before, "structure {structure}");
        }
        storage.disarm();
        drop((writer, keyspace));
        // Who opens it next decides.
        let writer = tiny(&storage).open(PATH).unwrap();
        writer.keyspace("k").unwrap().put("c", "3").unwrap();
        for follower in followers.iter().chain(&late) {
            follower.catch_up().unwrap();
            let found = rows(&follower.keyspace("k").unwrap());
            assert_eq!(found, rows(&writer.keyspace("k").unwrap()), "structure {structure}");
        }
    }
}

#[test]
fn a_keyspace_whose_sync_fails_does_not_show() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    create_tiny(&writer, "k");
    let followers = MODES.map(|up_to| follow(&storage, up_to));
    arm(&storage, ErrorKind::Other, &[Operation::Sync], "MANIFEST-");
    assert!(writer.create_keyspace("other", KeyspaceOptions::lsm()).is_err());
    let late = MODES.map(|up_to| follow(&storage, up_to));
    for follower in followers.iter().chain(&late) {
        follower.catch_up().unwrap();
        assert_eq!(names(&follower.db()), ["k"]);
    }
    storage.disarm();
    drop(writer);
    let writer = tiny(&storage).open(PATH).unwrap();
    for follower in followers.iter().chain(&late) {
        follower.catch_up().unwrap();
        assert_eq!(names(&follower.db()), names(&writer));
    }
}

#[test]
fn a_view_that_cannot_give_way_goes_on_and_says_why() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::PermissionDenied] {
        let storage = SimStorage::new(1);
        let writer = tiny(&storage).open(PATH).unwrap();
        let keyspace = create_tiny(&writer, "k");
        keyspace.put("a", "1").unwrap();
        let follower = follow(&storage, FollowUpTo::Durable);
        follower.catch_up().unwrap();
        arm(&storage, kind, &[Operation::CreateDir], "held-");
        let mut overdue = 0;
        for number in 0..60_u32 {
            let stamp = keyspace.put(number.to_be_bytes(), vec![b'v'; 200]).unwrap();
            step_to_rest(&writer);
            let caught_up = follower.catch_up().unwrap();
            assert_eq!((caught_up.stamp, follower.position().stamp), (stamp, stamp));
            assert_eq!(follower.take_overdue().is_some(), caught_up.is_overdue);
            overdue += u32::from(caught_up.is_overdue);
            if overdue > 3 {
                break;
            }
        }
        assert!(overdue > 3, "{kind}");
        storage.disarm();
        let caught_up = follower.catch_up().unwrap();
        assert!(
            caught_up.opened_anew && !caught_up.is_overdue && follower.take_overdue().is_none()
        );
        assert_eq!(rows(&follower.keyspace("k").unwrap()), rows(&keyspace));
    }
}

/// A file whose commits are lost has been read, and is held: its number does not come again.
#[test]
fn the_number_of_a_value_file_that_is_held_is_not_given_again() {
    let storage = SimStorage::new(1);
    let options = || tiny_structures()[0].clone().value_separation(Some(100));
    let writer = tiny(&storage).open(PATH).unwrap();
    let keyspace = writer.create_keyspace("k", options()).unwrap();
    keyspace.put("a", vec![b'a'; 500]).unwrap();
    let follower = follow(&storage, FollowUpTo::Durable);
    drop((writer, keyspace));
    // As by a commit whose values were written, and the log not.
    let lost = Path::new(PATH).join("values/val-00000041");
    let file = storage.open(&lost, OpenMode::CreateNew).unwrap();
    file.write_all_at(&[b'x'; 5000], 0).unwrap();
    drop(tiny(&storage).open(PATH).unwrap());
    assert!(!storage.exists(&lost).unwrap(), "nothing points to it");
    let writer = tiny(&storage).open(PATH).unwrap();
    writer.keyspace("k").unwrap().put("b", vec![b'b'; 500]).unwrap();
    let newest = files_below(&storage, "values").pop().unwrap();
    assert!(newest > lost, "{}", newest.display());
    follower.catch_up().unwrap();
    assert_eq!(rows(&follower.keyspace("k").unwrap()), rows(&writer.keyspace("k").unwrap()));
}

/// As a restore does it: the follower ends where the database is that has the name.
#[test]
fn a_follower_that_registers_with_a_directory_that_gives_way_registers_again() {
    let mut moved = 0;
    for call in 0..400 {
        let storage = SimStorage::new(1);
        let writer = tiny(&storage).open(PATH).unwrap();
        create_tiny(&writer, "k").put("a", "1").unwrap();
        writer.checkpoint("/copy").unwrap();
        writer.close().unwrap();
        drop(writer);
        let port = Port::new(Arc::new(storage.clone()));
        let (mut left, below, is_done) = (call, storage.clone(), Arc::new(AtomicBool::new(false)));
        let done = Arc::clone(&is_done);
        port.in_front_of_calls(move || {
            if left == 0 {
                below.rename(Path::new(PATH), Path::new("/before")).unwrap();
                below.rename(Path::new("/copy"), Path::new(PATH)).unwrap();
                done.store(true, Ordering::SeqCst);
            }
            left -= 1;
        });
        let builder = Setup::tiny(1).builder(Arc::new(port.clone()), Arc::default(), 3);
        let followed = builder.follow(PATH, FollowUpTo::Durable);
        port.undisturbed();
        if !is_done.load(Ordering::SeqCst) {
            assert!(followed.is_ok());
            break;
        }
        moved += 1;
        let Ok(follower) = followed else { continue };
        let writer = tiny(&storage).open(PATH).unwrap();
        assert_eq!(writer.followers().views, 1, "exchanged in front of call {call}");
        let stamp = writer.keyspace("k").unwrap().put("a", "2").unwrap();
        assert_eq!(follower.catch_up().unwrap().stamp, stamp);
    }
    assert!(moved > 30);
}

/// A follower looks between any two calls of the writer to its storage.
#[test]
fn a_writer_works_while_a_follower_looks_all_the_time() {
    for seed in 0..24 {
        let storage = SimStorage::new(seed);
        storage.panic_on_violation();
        let setup = if seed % 3 == 2 { Setup::tiny(1).encrypted() } else { Setup::tiny(1) };
        let mut writer = Writer::new(&storage, setup, seed);
        for _ in 0..20 {
            writer.act();
        }
        let followers = MODES
            .map(|up_to| writer.builder_in(Arc::new(storage.clone())).follow(PATH, up_to).unwrap());
        let followers: Arc<[Follower]> = followers.into();
        let looks = Arc::new(AtomicU64::new(0));
        for _ in 0..60 {
            let (looking, counted) = (Arc::clone(&followers), Arc::clone(&looks));
            let mut random = Random::new(seed);
            let mut stamps = [SeqNo::ZERO; 2];
            writer.in_front_of_calls(move || {
                if random.below(6) == 0 {
                    let index = random.index(2);
                    match looking[index].catch_up().map(|caught_up| caught_up.stamp) {
                        // The writer clears away just now, and goes on behind this.
                        Err(Error::Locked { .. }) => {}
                        Err(error) => panic!("seed {seed}: {error}"),
                        Ok(stamp) => {
                            assert!(stamp >= stamps[index], "seed {seed}: stamps only go up");
                            stamps[index] = stamp;
                        }
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            writer.act();
            writer.undisturbed();
            let mut random = Random::new(seed);
            for follower in &*followers {
                follower.catch_up().unwrap();
                writer.oracle.assert_shows(follower, &mut random);
            }
        }
        assert!(looks.load(Ordering::Relaxed) > 20);
        assert_sound(writer.db());
    }
}

/// The follower looks in front of each call that a rotation makes, and while large values are
/// written behind it.
#[test]
fn a_key_is_rotated_between_any_two_looks_of_a_follower() {
    let storage = SimStorage::new(1);
    let encryption = || Encryption::key([7; 32]);
    let port = Port::new(Arc::new(storage.clone()));
    let builder = Setup::tiny(1).builder(Arc::new(port.clone()), Arc::default(), 0);
    let writer = builder.encryption(encryption()).open(PATH).unwrap();
    let options = tiny_structures()[0].clone().value_separation(Some(100));
    let keyspace = writer.create_keyspace("k", options).unwrap();
    keyspace.put("a", vec![b'a'; 300]).unwrap();
    let followers =
        MODES.map(|up_to| tiny(&storage).encryption(encryption()).follow(PATH, up_to).unwrap());
    let looking = followers.clone();
    port.in_front_of_calls(move || {
        for follower in &looking {
            follower.catch_up().unwrap();
        }
    });
    for round in 0..3_u32 {
        writer.rotate_data_key().unwrap();
        for number in 0..12_u32 {
            keyspace.put(number.to_be_bytes(), vec![round as u8; 300]).unwrap();
        }
    }
    port.undisturbed();
    writer.sync().unwrap();
    for follower in followers {
        follower.catch_up().unwrap();
        assert_eq!(rows(&follower.keyspace("k").unwrap()), rows(&keyspace));
    }
}

#[test]
fn errors_of_followers_name_what_there_is() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    create_tiny(&writer, "k").put("a", "1").unwrap();
    let folder = Path::new(PATH).join("followers");
    storage.create_dir(&folder).unwrap();
    let highest = folder.join(format!("f-{}", u64::MAX));
    storage.open(&highest, OpenMode::CreateNew).unwrap();
    drop(tiny(&storage).follow(PATH, FollowUpTo::Durable).unwrap());
    let held = folder.join(format!("held-{}", u64::MAX));
    storage.create_dir_all(&held).unwrap();
    let lock = storage.lock(&highest).unwrap();
    let refused = tiny(&storage).follow(PATH, FollowUpTo::Durable);
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    drop(lock);
    storage.remove_file(&highest).unwrap();
    storage.remove_dir(&held).unwrap();
    drop(tiny(&storage).follow(PATH, FollowUpTo::Durable).unwrap());
    assert!(!folder_is_there(&storage));
    // What else has the name is in nobody's way but followers'.
    storage.open(&folder, OpenMode::CreateNew).unwrap();
    assert!(tiny(&storage).follow(PATH, FollowUpTo::Durable).is_err());
    overwrite_all(&writer, &writer.keyspace("k").unwrap(), b'x');
    assert!(writer.check().unwrap().orphans.is_empty());
}

/// The writer dies, or the power is cut, between a name in `followers/` and the end of the other,
/// and at any other call of a removal.
#[test]
fn a_crash_while_files_are_put_aside_loses_nothing() {
    for (seed, options) in tiny_structures().into_iter().enumerate() {
        let storage = SimStorage::new(seed as u64);
        let port = Port::new(Arc::new(storage.clone()));
        let builder = Setup::tiny(1).builder(Arc::new(port.clone()), Arc::default(), 0);
        let writer = builder.open(PATH).unwrap();
        let keyspace = writer.create_keyspace("k", options.value_separation(Some(150))).unwrap();
        overwrite_all(&writer, &keyspace, b'a');
        let follower = follow(&storage, FollowUpTo::Durable);
        let (shown, db) = (rows(&keyspace), follower.db());
        for number in 0..60_u32 {
            keyspace.put(number.to_be_bytes(), vec![b'b'; 200]).unwrap();
        }
        writer.flush().unwrap();
        let expected = rows(&keyspace);
        let below = storage.clone();
        let (calls, crashes) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&crashes);
        port.in_front_of_calls(move || {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call % 7 != 0 {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
            for mode in [CrashMode::KeepAll, CrashMode::DropAll, CrashMode::RandomSectors] {
                let found = below.crash(mode, call);
                let writer = tiny(&found).open(PATH).unwrap();
                assert_eq!(rows(&writer.keyspace("k").unwrap()), expected, "{mode:?} at {call}");
                let report = writer.check().unwrap();
                assert!(report.is_ok(), "{mode:?} at {call}: {:?}", report.problems);
                assert!(report.orphans.is_empty(), "{mode:?} at {call}: {:?}", report.orphans);
                assert!(!folder_is_there(&found), "nobody survives a crash");
            }
        });
        writer.compact().unwrap();
        writer.vacuum().unwrap();
        step_to_rest(&writer);
        port.undisturbed();
        assert!(crashes.load(Ordering::Relaxed) > 2);
        assert!(writer.followers().files_held > 0);
        assert_eq!(rows(&db.keyspace("k").unwrap()), shown);
    }
}

#[test]
fn indexes_expiry_and_a_kept_log_are_followed() {
    let storage = SimStorage::new(1);
    let clock: Arc<SimClock> = Arc::default();
    let builder = |nth| Setup::tiny(1).builder(Arc::new(storage.clone()), Arc::clone(&clock), nth);
    let writer = builder(0).kept_log_size(64 << 10).open(PATH).unwrap();
    let options = KeyspaceOptions::flex().interval_size(1024).segment_size(4096);
    let keyspace = writer.create_keyspace("k", options).unwrap();
    keyspace.create_index("by_value", "value_prefix:4", IndexOptions::new()).unwrap();
    let followers = MODES.map(|up_to| builder(1).follow(PATH, up_to).unwrap());
    let keys = |keyspace: &Keyspace| {
        let index = keyspace.index("by_value").unwrap();
        let found = index.iter().map(|entry| entry.unwrap().primary_key().to_vec());
        found.collect::<Vec<_>>()
    };
    for round in 0..30_u32 {
        for number in 0..8_u32 {
            let key = (number * 7 + round).to_be_bytes();
            let value = format!("{:04}{}", (number + round) % 5, "v".repeat(40));
            match number {
                0 | 1 => {
                    let ttl = Duration::from_millis(1 + u64::from(round % 3));
                    keyspace.put_with_ttl(key, value, ttl).unwrap();
                }
                2 => {
                    keyspace.delete(key).unwrap();
                }
                _ => {
                    keyspace.put(key, value).unwrap();
                }
            }
        }
        if round % 4 == 1 {
            step_to_rest(&writer);
        }
        writer.sync().unwrap();
        for follower in &followers {
            follower.catch_up().unwrap();
            let shown = follower.keyspace("k").unwrap();
            assert_eq!(keys(&shown), keys(&keyspace), "round {round}");
            assert_eq!(rows(&shown), rows(&keyspace), "round {round}");
        }
    }
    assert_sound(&followers[0].db());
}

/// One keyspace is hardly written to, and keeps the log from where it is needed.
#[test]
fn a_view_gives_way_though_one_keyspace_is_far_behind() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let [small, large] = ["small", "large"].map(|name| create_tiny(&writer, name));
    small.put("a", "1").unwrap();
    let follower = follow(&storage, FollowUpTo::Durable);
    let mut opened = 0;
    for number in 0..300_u32 {
        large.put((number % 50).to_be_bytes(), vec![b'v'; 200]).unwrap();
        step_to_rest(&writer);
        opened += u32::from(follower.catch_up().unwrap().opened_anew);
        assert_eq!(rows(&follower.keyspace("large").unwrap()), rows(&large));
    }
    assert!((2..60).contains(&opened), "{opened}");
    assert_eq!(rows(&follower.keyspace("small").unwrap()), rows(&small));
}

/// What a view shows is read on though the key of the keyspace is destroyed.
#[test]
fn a_dropped_keyspace_with_its_own_key_stays_in_the_views_that_show_it() {
    let storage = SimStorage::new(1);
    let builder = || tiny(&storage).encryption(Encryption::key([7; 32]));
    let writer = builder().open(PATH).unwrap();
    create_tiny(&writer, "others").put("a", "1").unwrap();
    let options = tiny_structures()[1].clone().value_separation(Some(150));
    let keyspace = writer.create_keyspace_with_own_key("own", options).unwrap();
    overwrite_all(&writer, &keyspace, b'a');
    let expected = rows(&keyspace);
    let follower = builder().follow(PATH, FollowUpTo::Durable).unwrap();
    let shown = follower.keyspace("own").unwrap();
    drop(keyspace);
    writer.drop_keyspace("own").unwrap();
    step_to_rest(&writer);
    assert_eq!(writer.destroy_keys().unwrap().left, 0);
    assert!(writer.followers().files_held > 0);
    assert_eq!(rows(&shown), expected);
    follower.catch_up().unwrap();
    assert!(follower.keyspace("own").is_err());
    assert_eq!(rows(&shown), expected, "who holds it reads on");
    drop((shown, follower));
    assert_eq!(writer.followers().files_held, 0);
    assert_sound(&writer);
}
