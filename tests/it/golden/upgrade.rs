//! `Db::upgrade`: what it says of the versions, and that writing everything anew loses nothing,
//! wherever it is interrupted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Access, Db, Error, FORMAT_VERSION, Rewrite};

use super::describe::describe;
use super::{
    DATABASES, PATH, all, assert_same, assert_sound, bytes_of, files_of, looking, make,
    storage_with, text_of,
};

fn names(storage: &SimStorage) -> BTreeSet<PathBuf> {
    let paths = storage.files().into_iter().map(|(path, _)| path);
    let is_fixed = |path: &PathBuf| path.ends_with("LOCK") || path.ends_with("KEYRING");
    paths.filter(|path| !is_fixed(path)).collect()
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "wal")
}

#[test]
fn there_is_one_format_and_nothing_is_older() {
    assert_eq!(FORMAT_VERSION, 1);
    for (format, name, files) in all() {
        let storage = storage_with(&files, PATH);
        let db = looking(&storage, name, 40).open(PATH).unwrap();
        let versions = db.file_versions().unwrap();
        let is_sealed = ["sealed", "passphrase"].contains(&name);
        for file in &versions {
            let version = if is_sealed && file.kind != "keyring" { 2 } else { 1 };
            assert_eq!((file.version, file.newest), (version, version), "{file:?}");
            assert_eq!(file.is_sealed, is_sealed, "{file:?}");
        }
        let kinds: BTreeSet<&str> = versions.iter().map(|file| file.kind).collect();
        assert_eq!(kinds.contains("keyring"), is_sealed);
        if name != "passphrase" {
            for kind in ["manifest", "index", "log", "segment", "table", "value file"] {
                assert!(kinds.contains(kind), "format {format}, {name}: no {kind}");
            }
        }
        let before = names(&storage);
        let report = db.upgrade(Rewrite::Older).unwrap();
        assert_eq!((report.due, report.bytes_written, report.files_left.len()), (0, 0, 0));
        assert_eq!(report.before, versions);
        let new: Vec<_> = names(&storage).difference(&before).cloned().collect();
        assert!(new.is_empty(), "nothing is written anew: {new:?}");
    }
}

/// What a database says but for its log, which goes on when the last of it is flushed.
fn without_log(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("commit "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn everything_is_written_anew_and_says_the_same() {
    for (format, name, files) in all() {
        let what = format!("format {format}, {name}");
        let storage = storage_with(&files, PATH);
        let db = looking(&storage, name, 41).open(PATH).unwrap();
        let before = names(&storage);
        let report = db.upgrade(Rewrite::Everything).unwrap();
        assert!(report.due > 0 && !report.is_cancelled, "{what}: {report:?}");
        // The log that is kept to be read, and for a consumer, stays.
        assert!(
            report.files_left.iter().all(|path| is_log(path)),
            "{what}: {:?}",
            report.files_left
        );
        let still_there: Vec<_> = names(&storage).intersection(&before).cloned().collect();
        assert!(still_there.iter().all(|path| is_log(path)), "{what}: {still_there:?}");
        let expected = without_log(&text_of(format, name));
        assert_same(&without_log(&describe(&db)), &expected, &what);
        assert_sound(&db, &what);
        db.close().unwrap();
        let db = looking(&storage, name, 42).access(Access::ReadOnly).open(PATH).unwrap();
        assert_same(&without_log(&describe(&db)), &expected, &what);
        assert_sound(&db, &what);
    }
}

/// At every so many changes of the disk: the power goes, and the next one goes on.
#[test]
fn a_crash_in_the_middle_loses_nothing_and_the_next_one_ends_it() {
    for name in ["killed", "sealed"] {
        let files = files_of(FORMAT_VERSION, name);
        let expected = without_log(&text_of(FORMAT_VERSION, name));
        let whole = storage_with(&files, PATH);
        let db = looking(&whole, name, 43).open(PATH).unwrap();
        let begins = whole.mutation_count();
        db.upgrade(Rewrite::Everything).unwrap();
        let count = whole.mutation_count() - begins;
        assert!(count > 50, "{count} changes");
        drop(db);
        let modes = [CrashMode::DropAll, CrashMode::KeepAll, CrashMode::NewestOnly];
        for (nth, at) in (0..count).step_by(count as usize / 24).enumerate() {
            let what = format!("{name}, a crash at {at} of {count}");
            let storage = storage_with(&files, PATH);
            let db = looking(&storage, name, 43).open(PATH).unwrap();
            storage.crash_at(storage.mutation_count() + at);
            // A call may fail by it, or the crash come behind the last one.
            let _ended_by_the_crash = db.upgrade(Rewrite::Everything);
            let storage = storage.crash(modes[nth % modes.len()], at);
            drop(db);
            let db = looking(&storage, name, 44).open(PATH).unwrap();
            assert_same(&without_log(&describe(&db)), &expected, &what);
            assert_sound(&db, &what);
            let report = db.upgrade(Rewrite::Everything).unwrap();
            assert!(
                report.files_left.iter().all(|path| is_log(path)),
                "{what}: {:?}",
                report.files_left
            );
            assert_same(&without_log(&describe(&db)), &expected, &what);
            assert_sound(&db, &what);
        }
    }
}

#[test]
fn it_is_cancelled_after_a_slice_and_held_files_are_named() {
    let storage = storage_with(&files_of(FORMAT_VERSION, "killed"), PATH);
    let db = looking(&storage, "killed", 45).open(PATH).unwrap();
    let rows = make::rows(&db);
    let report = db.upgrade_while(Rewrite::Everything, |_| ControlFlow::Break(())).unwrap();
    assert!(report.is_cancelled && !report.files_left.is_empty(), "{report:?}");
    assert_eq!(make::rows(&db), rows);
    let snapshot = db.snapshot();
    let report = db.upgrade(Rewrite::Everything).unwrap();
    assert!(report.files_left.iter().any(|path| !is_log(path)), "a snapshot holds them");
    drop(snapshot);
    let report = db.upgrade(Rewrite::Everything).unwrap();
    assert!(report.files_left.iter().all(|path| is_log(path)), "{:?}", report.files_left);
    assert_eq!(make::rows(&db), rows);
    assert_sound(&db, "held, and let go");
}

#[test]
fn what_is_opened_to_be_read_is_not_upgraded() {
    for name in DATABASES {
        let storage = storage_with(&files_of(FORMAT_VERSION, name), PATH);
        let before = bytes_of(&storage);
        let db: Db = looking(&storage, name, 46).access(Access::ReadOnly).open(PATH).unwrap();
        assert!(!db.file_versions().unwrap().is_empty());
        for rewrite in [Rewrite::Older, Rewrite::Everything] {
            assert!(matches!(db.upgrade(rewrite), Err(Error::ReadOnly { .. })));
        }
        drop(db);
        assert!(bytes_of(&storage) == before);
    }
}
