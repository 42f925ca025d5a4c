//! What `check` says of marks of edit logs, which nothing else depends on.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::flex_space::{FlexSpace, SpaceOptions};
use lithedb::inspect::{Detail, PieceState, inspect};
use lithedb::storage::{MemoryStorage, OpenMode, SimStorage, Storage};
use lithedb::{Background, CheckOptions, CheckPosition, Db};

use crate::support::{open_tiny, tiny_structures};

fn open(storage: &Arc<dyn Storage>) -> Db {
    let builder = Db::builder().storage(Arc::clone(storage));
    builder.background(Background::Stepped).open("/db").unwrap()
}

fn open_space(storage: &Arc<dyn Storage>) -> FlexSpace {
    SpaceOptions::default().storage(Arc::clone(storage)).open("/space").unwrap()
}

/// The newest file of the log in a folder.
fn newest(storage: &dyn Storage, folder: &str, stem: &str) -> PathBuf {
    let names = storage.list_dir(Path::new(folder)).unwrap().into_iter().map(|entry| entry.name);
    Path::new(folder).join(names.filter(|name| name.starts_with(stem)).max().unwrap())
}

/// Where the marks of a log are.
fn marks(storage: &dyn Storage, path: &Path) -> Vec<u64> {
    let mut offsets = Vec::new();
    let shown = inspect(storage, path, Detail::Fields, |piece| {
        if piece.kind == "mark" && piece.state == PieceState::Sound {
            offsets.push(piece.offset);
        }
        ControlFlow::Continue(())
    });
    shown.unwrap();
    offsets
}

fn flip(storage: &dyn Storage, path: &Path, offset: u64) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Damages each mark in turn; `check` must tell it with its place and nothing else.
fn expect_each_told(
    storage: &dyn Storage,
    path: &Path,
    prefix: &str,
    check: &mut dyn FnMut() -> Vec<String>,
) {
    let marks = marks(storage, path);
    assert!(marks.len() > 1, "{path:?}");
    for offset in marks {
        flip(storage, path, offset + 17);
        let found = "a mark: expected that of the record before it, found other bytes";
        let expected = format!("{prefix}{} at offset {offset}: {found}", path.display());
        assert_eq!(check(), [expected]);
        flip(storage, path, offset + 17);
        assert_eq!(check(), Vec::<String>::new());
    }
}

#[test]
fn a_damaged_mark_of_any_edit_log_is_a_problem() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    let keyspace = db.keyspace_or_create("k").unwrap();
    for number in 0..3u32 {
        keyspace.put(number.to_be_bytes(), "value").unwrap();
        db.flush().unwrap();
    }
    let mut check = || db.check().unwrap().problems;
    let manifest = newest(&*storage, "/db", "MANIFEST-");
    expect_each_told(&*storage, &manifest, "", &mut check);
    let index = newest(&*storage, "/db/keyspaces/00000001", "index-");
    expect_each_told(&*storage, &index, "keyspace 1 (\"k\"): ", &mut check);

    let mut space = open_space(&storage);
    for _ in 0..3 {
        space.append(b"bytes").unwrap();
        space.sync().unwrap();
    }
    let index = newest(&*storage, "/space", "space-");
    expect_each_told(&*storage, &index, "", &mut || space.check().unwrap().problems);
}

#[test]
fn a_mark_that_opening_has_mended_is_told_once() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let db = open(&storage);
    db.keyspace_or_create("k").unwrap().put("key", "value").unwrap();
    db.close().unwrap();
    let path = newest(&*storage, "/db", "MANIFEST-");
    let last = marks(&*storage, &path).pop().unwrap();
    flip(&*storage, &path, last + 17);
    let problems = open(&storage).check().unwrap().problems;
    let place = format!("{} at offset {last}: a mark: expected ", path.display());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with(&place) && problems[0].ends_with("on opening"), "{problems:?}");
    assert_eq!(open(&storage).check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_check_that_is_broken_off_goes_on_from_where_it_was() {
    let storage = SimStorage::new(5);
    let db = open_tiny(&storage);
    for (number, options) in tiny_structures().into_iter().enumerate() {
        let keyspace = db.create_keyspace(&format!("of {number}"), options).unwrap();
        for key in 0..600u32 {
            keyspace.put(key.to_be_bytes(), [7; 40]).unwrap();
        }
        db.flush().unwrap();
    }
    let whole = db.check().unwrap();
    let (mut options, mut entries, mut pieces) = (CheckOptions::new(), 0, 0);
    loop {
        let mut is_first = true;
        let report = db.check_with(&options, |_| match std::mem::take(&mut is_first) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        let report = report.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        entries += report.entries;
        pieces += 1;
        let Some(position) = report.stopped_at else { break };
        let kept: CheckPosition = position.to_string().parse().unwrap();
        assert_eq!(kept, position);
        options = CheckOptions::new().resume(kept);
    }
    assert!(pieces > 3, "{pieces} pieces");
    assert_eq!(entries, whole.entries, "each is looked at once");
    assert!("no position".parse::<CheckPosition>().is_err());
    for unknown in ["7000:", "7000:6f74"] {
        let options = CheckOptions::new().resume(unknown.parse().unwrap());
        let refused = db.check_with(&options, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(refused.to_string().contains("is behind all keyspaces"), "{refused}");
    }
    assert!(db.check_with(&CheckOptions::new().rate(1), |_| ControlFlow::Continue(())).is_err());
    let at_a_rate = CheckOptions::new().rate(1 << 30);
    let report = db.check_with(&at_a_rate, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.entries, report.stopped_at), (whole.entries, None));
}
