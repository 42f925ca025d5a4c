//! Repair: what can be read comes to a new database as it was, and what cannot is told. The long
//! version: `lithe-sim repairs`.

mod log;
mod losses;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lithe_sim::damage::{
    Ending, Fixture, Injury, RepairMistake, Thoroughness, flips, misplacements, repaired,
    run_repairs, sectors, truncations,
};
use lithe_sim::ledger::Ledger;
use lithedb::storage::{SimStorage, Storage};
use lithedb::{Builder, Db, Error, Keyspace, KeyspaceOptions, RepairOptions, RepairReport, Slice};

use crate::THREADS;
use crate::support::{PATH, assert_sound, open_tiny, rows, step_to_rest, tiny, tiny_structures};

const TARGET: &str = "/repaired";
/// Operations behind a fixture.
const OP_COUNT: usize = 60;

/// All files of the database, with their bytes.
fn contents(storage: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = storage.files().into_iter().map(|(path, _)| path);
    let of_database = paths.filter(|path| path.starts_with(PATH));
    of_database.map(|path| (path.clone(), storage.read_file(&path).unwrap())).collect()
}

/// The files of the database whose names begin so, in order.
fn files_of(storage: &SimStorage, stem: &str) -> Vec<PathBuf> {
    let is_of = |path: &Path| {
        path.starts_with(PATH)
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(stem))
    };
    contents(storage).into_keys().filter(|path| is_of(path)).collect()
}

/// Repairs, and opens what was made; the source stays as it was.
fn repair_with(
    storage: &SimStorage,
    options: impl FnOnce(RepairOptions) -> RepairOptions,
) -> (Db, RepairReport) {
    let before = contents(storage);
    let report = lithedb::repair(PATH, TARGET, options(RepairOptions::new(tiny(storage)))).unwrap();
    assert!(contents(storage) == before, "the source was changed");
    assert_eq!(report.problems, Vec::<String>::new());
    let db = tiny(storage).open(TARGET).unwrap();
    assert_sound(&db);
    (db, report)
}

fn repair(storage: &SimStorage) -> (Db, RepairReport) {
    repair_with(storage, |options| options)
}

/// Keys and values that are worth several blocks and runs.
fn fill(keyspace: &Keyspace, round: u32) {
    for number in (0..300u32).filter(|number| round == 0 || number.is_multiple_of(7)) {
        let value = format!("{number} in round {round}").repeat(4);
        keyspace.put(number.to_be_bytes(), value).unwrap();
    }
}

#[test]
fn what_is_sound_comes_whole_with_stamps_versions_values_and_indexes() {
    let storage = SimStorage::new(1);
    let db = open_tiny(&storage);
    let mut expected = BTreeMap::new();
    let options = tiny_structures().into_iter().chain([KeyspaceOptions::history()]);
    for (number, options) in options.enumerate() {
        let name = format!("of {number}");
        let keyspace = db.create_keyspace(&name, options.value_separation(Some(64))).unwrap();
        for round in 0..3 {
            fill(&keyspace, round);
            keyspace.delete((round * 5).to_be_bytes()).unwrap();
            db.flush().unwrap();
        }
        step_to_rest(&db);
        keyspace.put("large", vec![7; 100_000]).unwrap();
        if number > 0 {
            // The first one merges, and nothing expires there.
            keyspace.put_with_ttl("expires", "later", Duration::from_secs(1 << 30)).unwrap();
        }
        expected.insert(name, rows(&keyspace));
    }
    let versions = |db: &Db| -> Vec<_> {
        let keyspace = db.keyspace("of 3").unwrap();
        let versions = keyspace.history(35u32.to_be_bytes(), ..).unwrap();
        versions.map(|version| version.unwrap()).map(|v| (v.seqno, v.value)).collect()
    };
    let kept: Vec<(_, Option<Slice>)> = versions(&db);
    assert!(kept.len() > 2);
    drop(db);
    let (db, report) = repair(&storage);
    assert!(report.is_whole() && report.losses.is_empty(), "{:?}", report.losses);
    assert_eq!(report.keyspaces, 4);
    for (name, expected) in expected {
        let keyspace = db.keyspace(&name).unwrap();
        assert!(rows(&keyspace) == expected, "{name}");
    }
    assert_eq!(versions(&db), kept);
    db.keyspace("of 0").unwrap().put("more", "can be written").unwrap();
}

#[test]
fn a_target_that_is_not_empty_or_within_the_source_is_refused() {
    let storage = SimStorage::new(2);
    drop(open_tiny(&storage));
    let refused = |source: &str, target: &str| {
        lithedb::repair(source, target, RepairOptions::new(tiny(&storage))).unwrap_err()
    };
    drop(tiny(&storage).open("/other").unwrap());
    storage.create_dir_all(Path::new("/some")).unwrap();
    let within = ["/db/inside", "/some/../db/inside"];
    for target in [PATH, "/other", "/other/keyspaces/00000099"].into_iter().chain(within) {
        assert!(matches!(refused(PATH, target), Error::InvalidArgument { .. }), "{target}");
    }
    assert!(matches!(refused("/nothing", TARGET), Error::Io { .. }));
    let db = open_tiny(&storage);
    assert!(matches!(refused(PATH, TARGET), Error::Locked { .. }));
    drop(db);
}

#[test]
fn a_wrong_key_is_told_and_the_right_one_opens_what_is_left() {
    let fixture = Fixture::encrypted(11, Ending::Closed, OP_COUNT).unwrap();
    let storage = fixture.storage.duplicate();
    let with = |key: u8| -> Builder {
        let builder = Db::builder().storage(Arc::new(storage.clone()));
        builder.encryption(lithedb::Encryption::key([key; 32]))
    };
    let wrong = lithedb::repair(&fixture.setup.path, TARGET, RepairOptions::new(with(99)));
    assert!(matches!(wrong, Err(Error::WrongKey { .. })), "{wrong:?}");
    let none = Db::builder().storage(Arc::new(storage.clone()));
    let none = lithedb::repair(&fixture.setup.path, TARGET, RepairOptions::new(none));
    assert!(matches!(none, Err(Error::KeyNeeded { .. })), "{none:?}");
    for (path, size) in fixture.files().into_iter().filter(|(_, size)| *size > 100) {
        let injury = Injury::Flipped(path, size / 2, 3);
        repaired(&fixture, &injury, RepairMistake::None).unwrap();
    }
}

fn repaired_all(list: impl Fn(&Fixture) -> Vec<Injury>) -> Arc<Ledger> {
    let ledger = Arc::new(Ledger::new());
    for (seed, ending) in [(1, Ending::Closed), (2, Ending::Killed), (3, Ending::Closed)] {
        let fixture = Fixture::build(seed, ending, OP_COUNT).unwrap();
        let injuries = list(&fixture);
        run_repairs(&fixture, &injuries, THREADS, &ledger, "(an injury of a test)");
    }
    ledger.assert_clean();
    ledger
}

#[test]
fn flipped_bits_cost_no_more_than_is_told() {
    let ledger = repaired_all(|fixture| flips(fixture, 4001, Thoroughness::OneBit));
    assert!(ledger.counted("what is missing is told") > 0, "{ledger}");
    assert!(ledger.counted("whole") > 0, "{ledger}");
}

#[test]
fn cut_files_and_sectors_cost_no_more_than_is_told() {
    let ledger = repaired_all(|fixture| {
        let mut all = truncations(fixture, 30_011);
        all.extend(sectors(fixture).into_iter().step_by(61));
        all
    });
    assert!(ledger.counted("what is missing is told") > 0, "{ledger}");
}

#[test]
fn missing_old_swapped_and_foreign_files_cost_no_more_than_is_told() {
    let other = Fixture::build(4 << 32 | 1, Ending::Closed, OP_COUNT).unwrap();
    let ledger = repaired_all(|fixture| misplacements(fixture, &other));
    assert!(ledger.counted("what is missing is told") > 0, "{ledger}");
}

#[test]
fn planted_mistakes_of_a_repair_are_found() {
    for mistake in RepairMistake::PLANTED {
        assert!((1..4).any(|seed| mistake.is_found(seed, OP_COUNT) == Ok(true)), "{mistake:?}");
    }
}

/// Files that a test damages are there.
fn overwrite(storage: &SimStorage, path: &Path, offset: u64, bytes: &[u8]) {
    assert!(storage.exists(path).unwrap(), "{path:?}");
    storage.overwrite(path, offset, bytes).unwrap();
}
