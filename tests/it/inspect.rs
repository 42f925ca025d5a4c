//! Files looked into: all kinds, whole and damaged, and always from end to end.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::flex_space::{Journal, SpaceOptions, Tag};
use lithedb::inspect::{Detail, FileKind, Inspection, Piece, PieceState, inspect};
use lithedb::storage::{EntryType, MemoryStorage, OpenMode, Storage};
use lithedb::{Background, Db, KeyspaceOptions, MergeError, MergeOperator, WriteBatch};

/// A database with something in every kind of file, and a space beside it.
fn files() -> (Arc<dyn Storage>, Db, Vec<PathBuf>) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = Db::builder().storage(Arc::clone(&storage)).background(Background::Stepped);
    let db = builder.wal_file_size(64 << 10).open("/db").unwrap();
    let options = KeyspaceOptions::flex().interval_size(512).value_separation(Some(1000));
    let keyspace = db.create_keyspace("k", options.merge_operator("append")).unwrap();
    for number in 0..300u32 {
        keyspace.put(format!("key {number:04}"), [number as u8; 40]).unwrap();
    }
    keyspace.put("large", vec![7; 200_000]).unwrap();
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "in the log", "value");
    batch.delete(&keyspace, "key 0001");
    batch.delete_range(&keyspace, "key 0002".."key 0005");
    batch.merge(&keyspace, "sum", "operand");
    batch.set_payload(&b"note"[..]);
    db.write(batch).unwrap();
    let space = SpaceOptions::default().storage(Arc::clone(&storage)).open("/space");
    let mut space = space.unwrap();
    space.insert(0, &[3; 20_000]).unwrap();
    space.sync().unwrap();
    space.set_tag(7, Tag::new(12).unwrap()).unwrap();
    space.insert_zeros(20_000, 500).unwrap();
    space.collapse(100..300).unwrap();
    space.overwrite(1000, b"others").unwrap();
    space.sync().unwrap();
    drop(space);
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::from("/db"), PathBuf::from("/space")];
    while let Some(folder) = folders.pop() {
        for entry in storage.list_dir(&folder).unwrap() {
            match entry.entry_type {
                EntryType::Directory => folders.push(folder.join(entry.name)),
                _ if entry.name != "LOCK" && entry.name != "RESERVE" => {
                    paths.push(folder.join(entry.name));
                }
                _ => {}
            }
        }
    }
    paths.sort();
    (storage, db, paths)
}

fn pieces(storage: &dyn Storage, path: &Path) -> (Inspection, Vec<Piece>) {
    let mut pieces = Vec::new();
    let report = inspect(storage, path, Detail::Entries, |piece| {
        pieces.push(piece);
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    let mut end = 0;
    for piece in &pieces {
        assert_eq!(piece.offset, end, "without gaps: {path:?}");
        end += piece.len;
    }
    assert_eq!(end, report.size, "to the end: {path:?}");
    assert_eq!(report.pieces, pieces.len() as u64);
    (report, pieces)
}

fn path_with<'p>(paths: &'p [PathBuf], part: &str) -> &'p Path {
    paths.iter().find(|path| path.display().to_string().contains(part)).expect(part)
}

fn flip(storage: &dyn Storage, path: &Path, offset: u64) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn every_file_is_shown_from_end_to_end_and_nothing_is_damaged() {
    let (storage, _db, paths) = files();
    for path in &paths {
        let (report, pieces) = pieces(&*storage, path);
        assert_eq!((report.damaged, report.unknown), (0, 0), "{path:?}: {pieces:#?}");
        let expected = match path.display().to_string() {
            name if name.contains(".wal") => FileKind::Log,
            name if name.contains("val-") => FileKind::Values,
            name if name.starts_with("/space/seg-") => FileKind::SpaceSegment,
            name if name.contains("seg-") => FileKind::Segment,
            _ => FileKind::EditLog,
        };
        assert_eq!(report.kind, expected);
    }
}

#[test]
fn commits_entries_edits_and_values_are_told_in_words() {
    let (storage, _db, paths) = files();
    let all = |part: &str| pieces(&*storage, path_with(&paths, part)).1;
    let log = paths.iter().filter(|path| path.display().to_string().contains("/wal/"));
    let commits: Vec<Piece> = log.flat_map(|path| pieces(&*storage, path).1).collect();
    let last = commits.iter().rfind(|piece| piece.kind == "commit").unwrap();
    let kinds: Vec<&str> = last.entries.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["put", "delete", "delete of a range", "merge"]);
    let merge = &last.entries[3];
    assert_eq!((&merge.key[..], &merge.value[..]), (&b"sum"[..], &b"operand"[..]));
    assert_eq!((&last.entries[0].key[..], last.entries[0].keyspace), (&b"in the log"[..], Some(1)));
    assert!(last.fields.contains(&("kept with it", "note".to_owned())));

    let segment = all("/seg-0000");
    let entries: Vec<&[u8]> = segment
        .iter()
        .flat_map(|piece| &piece.entries)
        .filter(|entry| entry.kind == "value")
        .map(|entry| entry.key.as_slice())
        .collect();
    assert_eq!(entries.len(), 300);
    assert_eq!(entries[7], b"key 0007");
    assert!(segment.iter().flat_map(|p| &p.entries).any(|entry| entry.kind == "pointer"));

    let values = all("/val-");
    let value = values.iter().find(|piece| piece.kind == "value").unwrap();
    assert!(value.fields.contains(&("length", "200000".to_owned())));
    let manifest = all("/MANIFEST-");
    let text = format!("{manifest:?}");
    assert!(text.contains("CreateKeyspace") && text.contains("totals"), "{text}");
    let index = all("/index-");
    assert!(index.iter().flat_map(|p| &p.entries).any(|entry| entry.kind == "replace"));
}

/// Adds up numbers; fails at everything else.
struct Picky;

impl MergeOperator for Picky {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        let parse = |bytes: &[u8]| Ok::<u64, MergeError>(std::str::from_utf8(bytes)?.parse()?);
        let sum = existing.map_or(Ok(0), |bytes| parse(&bytes))? + parse(operand)?;
        Ok(sum.to_string().into_bytes())
    }
}

#[test]
fn operands_are_told_with_what_they_are_merged_into_and_so_are_begun_flushes() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let builder = Db::builder().storage(Arc::clone(&storage)).background(Background::Stepped);
    let builder = builder.merge_operator("picky", Picky).flush_slice_size(1);
    let db = builder.open("/db").unwrap();
    let options = KeyspaceOptions::flex().interval_size(512).value_separation(Some(100));
    let keyspace = db.create_keyspace("k", options.merge_operator("picky")).unwrap();
    for number in 0..100u32 {
        keyspace.put(format!("key {number:04}"), [b'x'; 40]).unwrap();
    }
    keyspace.put("large", vec![b'x'; 300]).unwrap();
    db.flush().unwrap();
    for key in ["key 0001", "large", "none"] {
        keyspace.merge(key, "1").unwrap();
    }
    keyspace.put("put", "word").unwrap();
    keyspace.merge("put", "1").unwrap();
    keyspace.merge("none", "word").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    let file = |prefix: &str| {
        let dir = Path::new("/db/keyspaces/00000001");
        let entries = storage.list_dir(dir).unwrap().into_iter();
        entries
            .map(|entry| dir.join(entry.name))
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
            .collect::<Vec<_>>()
    };
    let mut kinds = BTreeSet::new();
    for path in file("seg-") {
        let (report, pieces) = pieces(&*storage, &path);
        assert_eq!((report.damaged, report.unknown), (0, 0), "{pieces:#?}");
        kinds.extend(pieces.into_iter().flat_map(|piece| piece.entries).map(|entry| entry.kind));
    }
    for base in ["older entries", "nothing", "a value", "a pointer"] {
        assert!(kinds.contains(&format!("operands on {base}")), "{kinds:?}");
    }
    let index = file("index-").pop().unwrap();
    let fields = pieces(&*storage, &index).1.into_iter().flat_map(|piece| piece.fields);
    let mut begun = fields.filter(|(name, _)| *name == "begun flushes").map(|(_, text)| text);
    assert!(begun.any(|text| text.contains("below ") && text.contains(" up to ")));
}

#[test]
fn the_index_of_a_space_is_told_in_words() {
    let (storage, _db, paths) = files();
    let path = path_with(&paths, "/space/space-").to_owned();
    let told = |path: &Path, kind: &str| -> Vec<(String, String, String)> {
        let (_, pieces) = pieces(&*storage, path);
        let entries = pieces.into_iter().filter(|piece| piece.kind == kind);
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let entries = entries.flat_map(|piece| piece.entries);
        entries.map(|entry| (entry.kind, text(&entry.key), text(&entry.value))).collect()
    };
    let has = |told: &[(String, String, String)], kind: &str, key: &str, value: &str| {
        let is = |entry: &&(String, String, String)| {
            entry.0 == kind && entry.1 == key && entry.2 == value
        };
        assert!(told.iter().any(|entry| is(&entry)), "{kind} {key} {value}: {told:#?}");
    };
    let steps = told(&path, "edit");
    has(&steps, "insert", "at 0", "20000 bytes at 0 of segment 1");
    has(&steps, "extend", "segment 1", "20440 bytes of data");
    has(&steps, "set tag", "at 7", "12");
    has(&steps, "insert", "at 20000", "500 bytes of zeros");
    has(&steps, "collapse", "at 100", "200 bytes");
    has(&steps, "overwrite", "at 1000", "6 bytes at 20440 of segment 1");

    // Without a journal each sync writes the whole.
    let options = SpaceOptions::default().storage(Arc::clone(&storage)).journal(Journal::Off);
    let mut space = options.open("/space").unwrap();
    space.append(b"more").unwrap();
    space.close().unwrap();
    let path = path.with_file_name("space-00000002");
    let parts = told(&path, "snapshot part");
    has(&parts, "segment", "1", "24528 bytes of data");
    has(&parts, "extent", "93 bytes", "at 7 of segment 1, tag 12");
    has(&parts, "extent", "500 bytes", "of zeros");
    let (_, pieces) = pieces(&*storage, &path);
    let fields: Vec<(&str, String)> = pieces.into_iter().flat_map(|piece| piece.fields).collect();
    for (name, value) in [("version", "1"), ("next segment", "3"), ("tags", "1")] {
        assert!(fields.contains(&(name, value.to_owned())), "{name}: {fields:?}");
    }
}

#[test]
fn damage_is_shown_with_its_place_and_passed_over() {
    let parts = ["/seg-00000001", "/val-00000001", "/index-", "/wal/00000001"];
    for part in parts.into_iter().chain(["/space/seg-", "/space/space-"]) {
        let (storage, _db, paths) = files();
        let path = path_with(&paths, part);
        let (_, before) = pieces(&*storage, path);
        let is_record = |piece: &&Piece| {
            piece.state == PieceState::Sound && piece.kind != "file header" && piece.kind != "mark"
        };
        let victim = before.iter().find(is_record).unwrap();
        let sound = before.iter().filter(is_record).count();
        flip(&*storage, path, victim.offset + victim.len - 9);
        let (report, after) = pieces(&*storage, path);
        assert!(report.damaged > 0, "{part}: {after:#?}");
        let damaged = after.iter().find(|p| matches!(p.state, PieceState::Damaged(_))).unwrap();
        assert_eq!(damaged.offset, victim.offset, "{part}");
        assert_eq!(after.iter().filter(is_record).count(), sound - 1, "{part}: the rest is there");
    }
}

#[test]
fn a_damaged_header_is_made_up_for_by_names_and_manifest() {
    for part in ["/seg-00000001", "/val-00000001", "/wal/00000001"] {
        let (storage, _db, paths) = files();
        let path = path_with(&paths, part).to_owned();
        if path.starts_with("/space") {
            continue;
        }
        let (_, before) = pieces(&*storage, &path);
        let records = |pieces: &[Piece]| {
            let records = pieces.iter().filter(|piece| piece.kind != "file header");
            records.filter(|piece| piece.state == PieceState::Sound).count()
        };
        for offset in [0, 9, 2048 + 9] {
            if part.contains("wal") || offset < 40 {
                flip(&*storage, &path, offset);
            }
        }
        let (report, after) = pieces(&*storage, &path);
        assert!(report.damaged > 0, "{part}");
        assert_eq!(records(&after), records(&before), "{part}: {after:#?}");
    }
}

#[test]
fn any_bytes_are_gone_through_to_the_end() {
    let (storage, _db, paths) = files();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for path in &paths {
        let file = storage.open(path, OpenMode::ReadWrite).unwrap();
        let size = file.size().unwrap();
        for _ in 0..40 {
            let offset = random() % size.max(1);
            let noise: Vec<u8> = (0..random() % 60).map(|_| random() as u8).collect();
            let len = (noise.len() as u64).min(size - offset) as usize;
            file.write_all_at(&noise[..len], offset).unwrap();
        }
        pieces(&*storage, path);
    }
    let foreign = Path::new("/db/notes");
    storage.open(foreign, OpenMode::CreateNew).unwrap();
    let refused = inspect(&*storage, foreign, Detail::Fields, |_| ControlFlow::Continue(()));
    assert!(refused.unwrap_err().to_string().contains("no file of a database"));
}
