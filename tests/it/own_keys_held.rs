//! What holds the key of a keyspace that was dropped, and that it goes by itself when that is gone:
//! consumers, logs that are needed, commits and work that are under way.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Barrier;

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{
    Background, Db, Durability, Error, FeedOptions, IndexOptions, KeyDestructionReport,
    TableIngestOptions, WriteBatch,
};

use crate::own_keys::{
    COUNT, KINDS, builder, expect_all, fill, keyring_of, keys_of_files, names, open, options_of,
    seen_with, value_of,
};

fn left() -> BTreeSet<String> {
    names(&["", "keeps"]).into_iter().collect()
}

fn step_to_the_end(db: &Db) {
    while db.step().unwrap() {}
}

/// Has the log of the others go on for two files.
fn write_on(db: &Db) {
    let others = db.keyspace("flex").unwrap();
    for number in 0..COUNT * 4 {
        others.put(format!("{:05}", number % COUNT), value_of("flex", number % COUNT)).unwrap();
    }
}

#[test]
fn a_consumer_that_moves_on_lets_the_key_of_the_log_go_with_no_further_call() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    db.create_consumer("slow", u64::MAX).unwrap();
    fill(&db);
    let before = storage.duplicate();
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    let held = db.destroy_keys().unwrap();
    assert!(held.left > 0, "{held:?}");
    assert!(
        held.files_left.iter().any(|path| path.to_string_lossy().ends_with(".wal")),
        "{held:?}"
    );
    write_on(&db);
    step_to_the_end(&db);
    let mut consumer = db.consumer("slow", FeedOptions::new()).unwrap();
    let newest = consumer.by_ref().map(|commit| commit.unwrap().seqno).last().unwrap();
    consumer.acknowledge(newest).unwrap();
    drop(consumer);
    step_to_the_end(&db);
    let seen = seen_with(&before, &keyring_of(&storage));
    assert!(seen.is_subset(&left()), "{seen:?}");
    assert_eq!(db.destroy_keys().unwrap(), KeyDestructionReport::default(), "it is done");
    expect_all(&db, &names(&["", "keeps"]));
}

/// Behind a crash nobody calls for it: the log that has what was dropped is needed until what
/// others have in it is flushed.
#[test]
fn what_a_crash_has_left_of_a_drop_goes_with_the_first_flushes_behind_it() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    // Much is in the log alone.
    let made = storage.crash(CrashMode::KeepAll, 1);
    let before = made.duplicate();
    let mut dropped = 0;
    for at in (0..).step_by(7) {
        let storage = made.duplicate();
        let db = open(&storage, 2);
        storage.crash_inside(storage.mutation_count() + at);
        let _it_crashes = db.drop_keyspace("history goes");
        let is_over = !storage.is_crashed();
        drop(db);
        let crashed = storage.crash(CrashMode::KeepAll, at);
        let db = open(&crashed, 3);
        if db.keyspaces().iter().all(|info| info.name != "history goes") {
            dropped += 1;
            db.flush().unwrap();
            step_to_the_end(&db);
            let seen = seen_with(&before, &keyring_of(&crashed));
            assert!(!seen.contains("history goes"), "call {at}: {seen:?}");
            assert_eq!(db.destroy_keys().unwrap(), KeyDestructionReport::default());
        }
        if is_over {
            break;
        }
    }
    assert!(dropped > 3, "{dropped}");
}

/// A commit that is on its way when the log goes on in another file would keep the older one.
#[test]
fn commits_of_others_do_not_keep_the_key_of_what_is_dropped_beside_them() {
    for seed in 1..4 {
        let storage = SimStorage::new(seed);
        let db = open(&storage, seed);
        fill(&db);
        let before = storage.duplicate();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for kind in KINDS {
                let (db, start) = (&db, &start);
                scope.spawn(move || {
                    let keyspace = db.keyspace(kind).unwrap();
                    start.wait();
                    for number in (0..COUNT).chain(0..COUNT) {
                        let mut batch = WriteBatch::new();
                        batch.put(&keyspace, format!("{number:05}"), value_of(kind, number));
                        let durability = match number % 3 {
                            0 => Durability::Sync,
                            _ => Durability::Buffered,
                        };
                        db.write_with(batch, durability).unwrap();
                    }
                });
            }
            start.wait();
            for name in names(&["goes"]) {
                db.drop_keyspace(&name).unwrap();
            }
        });
        step_to_the_end(&db);
        let seen = seen_with(&before, &keyring_of(&storage));
        assert!(seen.is_subset(&left()), "{seen:?}");
        expect_all(&db, &names(&["", "keeps"]));
    }
}

#[test]
fn two_drops_at_once_destroy_both_keys() {
    for background in [Background::Stepped, Background::Threads] {
        let storage = SimStorage::new(1);
        let db = builder(&storage, 1).background(background).open("/db").unwrap();
        fill(&db);
        let before = storage.duplicate();
        let start = Barrier::new(KINDS.len());
        std::thread::scope(|scope| {
            for name in names(&["goes"]) {
                let (db, start) = (&db, &start);
                scope.spawn(move || {
                    start.wait();
                    db.drop_keyspace(&name).unwrap();
                });
            }
        });
        // A thread of the database may have held a store for a moment.
        while db.destroy_keys().unwrap().left > 0 {
            std::thread::yield_now();
        }
        let seen = seen_with(&before, &keyring_of(&storage));
        assert!(seen.is_subset(&left()), "{seen:?}");
        expect_all(&db, &names(&["", "keeps"]));
        db.close().unwrap();
        drop(db);
        expect_all(&open(&storage, 2), &names(&["", "keeps"]));
    }
}

#[test]
fn a_drop_in_the_middle_of_a_conversion_or_of_building_an_index_ends_it_and_destroys_the_key() {
    for what in ["conversion", "index"] {
        let storage = SimStorage::new(1);
        let db = builder(&storage, 1).index_step_entries(5).open("/db").unwrap();
        fill(&db);
        db.flush().unwrap();
        let before = storage.duplicate();
        let mut drops = 0;
        let drop_once = || {
            drops += 1;
            if drops == 1 {
                db.drop_keyspace("flex goes").unwrap();
            }
            ControlFlow::Continue(())
        };
        let keyspace = db.keyspace("flex goes").unwrap();
        let ended = work_on(&keyspace, what, drop_once);
        let ended = ended.unwrap_err();
        assert!(matches!(ended, Error::KeyspaceNotFound { .. } | Error::Conflict), "{ended}");
        assert!(drops >= 1, "{what}");
        drop(keyspace);
        step_to_the_end(&db);
        assert_eq!(db.destroy_keys().unwrap().left, 0, "{what}");
        let seen = seen_with(&before, &keyring_of(&storage));
        assert!(!seen.contains("flex goes"), "{what}: {seen:?}");
        let mut expected = names(&["", "keeps", "goes"]);
        expected.retain(|name| name != "flex goes");
        expect_all(&db, &expected);
        drop(db);
        expect_all(&open(&storage, 2), &expected);
    }
}

fn work_on(
    keyspace: &lithedb::Keyspace,
    what: &str,
    mut meanwhile: impl FnMut() -> ControlFlow<()>,
) -> lithedb::Result<()> {
    match what {
        "conversion" => {
            let options = options_of("lsm");
            keyspace.convert_while(options, |_| meanwhile()).map(drop)
        }
        _ => {
            let options = IndexOptions::new();
            let built = keyspace.create_index_while("more", "value", options, |_| meanwhile());
            built.map(drop)
        }
    }
}

#[test]
fn tables_made_outside_come_into_a_keyspace_with_its_own_key_entry_by_entry() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    let own = db.create_keyspace_with_own_key("own", options_of("lsm")).unwrap();
    let name = "lsm goes"; // As `seen_with` looks for it.
    let mut writer = own.table_writer("/outside").unwrap();
    for number in 0..COUNT {
        writer.put(format!("{number:05}"), value_of(name, number)).unwrap();
    }
    writer.finish().unwrap();
    let report = own.ingest_tables(["/outside"], TableIngestOptions::moving()).unwrap();
    assert_eq!((report.entries, report.linked), (COUNT as u64, 0), "{report:?}");
    for number in 0..COUNT {
        let value = own.get(format!("{number:05}")).unwrap();
        assert_eq!(value.as_deref(), Some(&value_of(name, number)[..]));
    }
    let folder = format!("/keyspaces/{:08}/", db.keyspaces()[0].id);
    let all = keys_of_files(&storage);
    let own_files = all.iter().filter(|(path, _)| path.to_string_lossy().contains(&folder));
    let keys: BTreeSet<u16> = own_files.map(|(_, key)| *key).collect();
    assert_eq!(keys.len(), 1, "{all:?}");
    assert!(!keys.contains(&1), "{all:?}");
    assert!(db.check().unwrap().is_ok());
    let before = storage.duplicate();
    drop(own);
    db.drop_keyspace("own").unwrap();
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    let seen = seen_with(&before, &keyring_of(&storage));
    assert!(!seen.contains(name), "{seen:?}");
}

/// Values that are moved come to files with the key of the keyspace that refers to them.
#[test]
fn values_of_several_keyspaces_with_keys_of_their_own_are_moved_and_vacuumed() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1);
    fill(&db);
    // Three of four large values are garbage then.
    for round in 0..3 {
        for name in names(&["", "keeps", "goes"]) {
            let keyspace = db.keyspace(&name).unwrap();
            for number in (0..COUNT).filter(|number| number % 5 == 0 && number % 20 != 0) {
                let value = match round {
                    2 => value_of(&name, number),
                    _ => value_of("something else", number + round),
                };
                keyspace.put(format!("{number:05}"), value).unwrap();
            }
        }
        db.flush().unwrap();
    }
    let report = db.vacuum().unwrap();
    assert!(report.values_moved > 0, "{report:?}");
    expect_all(&db, &names(&["", "keeps", "goes"]));
    let values = || {
        let files = keys_of_files(&storage).into_iter();
        let of_values = files.filter(|(path, _)| path.starts_with("/db/values"));
        of_values.map(|(_, key)| key).collect::<BTreeSet<u16>>()
    };
    assert_eq!(values().len(), 7, "each has files of its own: {:?}", values());
    let before = storage.duplicate();
    for name in names(&["goes"]) {
        db.drop_keyspace(&name).unwrap();
    }
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    assert_eq!(values().len(), 4, "{:?}", values());
    let seen = seen_with(&before, &keyring_of(&storage));
    assert!(seen.is_subset(&left()), "{seen:?}");
    db.vacuum().unwrap();
    expect_all(&db, &names(&["", "keeps"]));
    drop(db);
    expect_all(&open(&storage, 2), &names(&["", "keeps"]));
}

/// Streams of many keyspaces take turns; none has a file for each value.
#[test]
fn what_is_streamed_to_many_keyspaces_with_keys_of_their_own_takes_a_file_for_each() {
    let storage = SimStorage::new(1);
    let db = builder(&storage, 1).value_file_size(1 << 20).open("/db").unwrap();
    let names: Vec<String> = (0..9).map(|number| format!("own {number}")).collect();
    let create = |name: &String| db.create_keyspace_with_own_key(name, options_of("flex")).unwrap();
    let all: Vec<lithedb::Keyspace> = names.iter().map(create).collect();
    for round in 0..5 {
        for (name, keyspace) in names.iter().zip(&all) {
            let value = value_of(name, round).repeat(40);
            keyspace.put_reader(format!("{round}"), &mut &value[..]).unwrap();
        }
    }
    let files = || {
        let all = storage.files().into_iter();
        all.filter(|(path, _)| path.starts_with("/db/values")).count()
    };
    assert_eq!(files(), names.len());
    for (name, keyspace) in names.iter().zip(&all) {
        for round in 0..5 {
            let value = keyspace.get(format!("{round}")).unwrap();
            assert_eq!(value.as_deref(), Some(&value_of(name, round).repeat(40)[..]));
        }
    }
    // One is dropped while something is streamed to it: its file is not kept for others.
    drop(all);
    db.drop_keyspace(&names[0]).unwrap();
    assert_eq!(db.destroy_keys().unwrap().left, 0);
    assert_eq!(files(), names.len() - 1);
    assert!(db.check().unwrap().is_ok());
}
