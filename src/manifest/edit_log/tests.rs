//! Tests of the edit log: what is found again after truncation, bit flips, torn edits.

use super::format::{FileHeader, MARK_SLOT_LEN, RECORD_HEADER_LEN};
use super::{EditLog, EditLogId, GoesOn, LogPosition, OpenReport, Record, RecordRef, read};
use crate::base::{Error, Result};
use crate::storage::{MemoryStorage, OpenMode, Storage};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/log";
const ID: EditLogId = EditLogId { stem: "index", kind: 2, database: 0xD0D0, owner: 5 };
/// So little that a handful of edits fills a file of one capacity unit.
const ROOM: u64 = 1000;

/// The parts of the snapshot and the edits, as a reader gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    parts: Vec<Vec<u8>>,
    edits: Vec<Vec<u8>>,
    snapshot_ends: usize,
}

impl Contents {
    fn take(&mut self, record: RecordRef<'_>) -> Result<()> {
        match record.record {
            Record::SnapshotPart(part) => self.parts.push(part.to_vec()),
            Record::SnapshotEnd => self.snapshot_ends += 1,
            Record::Edit(edit) => self.edits.push(edit.to_vec()),
        }
        Ok(())
    }
}

fn storage() -> Arc<dyn Storage> {
    let storage = MemoryStorage::new();
    storage.create_dir_all(Path::new(DIR)).unwrap();
    Arc::new(storage)
}

fn create(storage: &Arc<dyn Storage>, parts: &[&[u8]]) -> EditLog {
    EditLog::create(Arc::clone(storage), Path::new(DIR), ID, 1, ROOM, |sink| {
        parts.iter().try_for_each(|part| sink.part(part))
    })
    .unwrap()
}

fn open_at(
    storage: &Arc<dyn Storage>,
    required: Option<LogPosition>,
) -> Result<(EditLog, OpenReport, Contents)> {
    let mut contents = Contents::default();
    let visit = |record: RecordRef<'_>| contents.take(record);
    let (log, report) = EditLog::open(Arc::clone(storage), Path::new(DIR), ID, required, visit)?;
    Ok((log, report, contents))
}

fn open(storage: &Arc<dyn Storage>) -> Result<(EditLog, OpenReport, Contents)> {
    open_at(storage, None)
}

fn bytes_of(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A storage with one file in the log's directory.
fn storage_with(path: &Path, bytes: &[u8]) -> Arc<dyn Storage> {
    let storage = storage();
    put_file(&*storage, path, bytes);
    storage
}

fn put_file(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let file = storage.open(path, OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// A small log: two parts, three edits; its bytes and contents.
fn fixture() -> (EditLog, Vec<u8>, Contents) {
    let storage = storage();
    let mut log = create(&storage, &[b"part one", b"two"]);
    for edit in [&b"first"[..], b"", b"the third edit"] {
        log.append(edit).unwrap();
    }
    let bytes = bytes_of(&*storage, log.path());
    let (_, report, contents) = open(&storage).unwrap();
    assert_eq!((report.edit_count, report.torn), (3, None));
    (log, bytes, contents)
}

#[test]
fn snapshot_and_edits_come_back_in_order() {
    let (log, _, contents) = fixture();
    assert_eq!(contents.parts, [b"part one".to_vec(), b"two".to_vec()]);
    assert_eq!(contents.edits, [b"first".to_vec(), b"".to_vec(), b"the third edit".to_vec()]);
    assert_eq!(contents.snapshot_ends, 1);
    assert_eq!(log.capacity() % 4096, 0);
}

#[test]
fn reading_alone_gives_the_same_and_changes_nothing() {
    let (log, mut bytes, expected) = fixture();
    let end = log.position().offset as usize;
    bytes[end + 3] = 1; // as if torn
    let storage = storage_with(log.path(), &bytes);
    let mut contents = Contents::default();
    let report = read(&*storage, Path::new(DIR), &ID, None, |record| contents.take(record));
    assert_eq!(contents, expected);
    assert_eq!(report.unwrap().position, log.position());
    assert_eq!(bytes_of(&*storage, log.path()), bytes);
}

#[test]
fn a_snapshot_larger_than_the_buffers_comes_back() {
    let storage = storage();
    let parts: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i + 1; 33_333]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let log = create(&storage, &parts);
    let (reopened, _, contents) = open(&storage).unwrap();
    assert_eq!(contents.parts, parts);
    assert_eq!(reopened.position(), log.position());
}

#[test]
fn edits_go_on_until_the_room_is_used_up_and_after_rotation() {
    let storage = storage();
    let mut log = create(&storage, &[b"start"]);
    let mut edits = 0u64;
    while log.fits(8) {
        log.append(&edits.to_le_bytes()).unwrap();
        edits += 1;
    }
    assert!(edits >= ROOM / EditLog::edit_size(8));
    let refused = log.append(&[0; 8]).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    assert_eq!(open(&storage).unwrap().1.edit_count, edits);

    log.rotate(ROOM, |sink| sink.part(b"next")).unwrap();
    log.append(b"behind").unwrap();
    let (reopened, report, contents) = open(&storage).unwrap();
    assert_eq!(contents.parts, [b"next".to_vec()]);
    assert_eq!(contents.edits, [b"behind".to_vec()]);
    assert_eq!((report.position, reopened.position()), (log.position(), log.position()));

    put_file(&*storage, &Path::new(DIR).join("index-1"), b"foreign");
    reopened.remove_older().unwrap();
    let names = storage.list_dir(Path::new(DIR)).unwrap();
    let names: Vec<&str> = names.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["index-00000002", "index-1"]);
}

#[test]
fn every_truncation_and_every_extension_is_found() {
    let (log, bytes, _) = fixture();
    for len in 0..bytes.len() {
        let error = open(&storage_with(log.path(), &bytes[..len])).unwrap_err();
        assert_damage(&error, log.path(), &format!("cut to {len}"));
    }
    for extra in [1, 512, 4096] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + extra, 0);
        let error = open(&storage_with(log.path(), &longer)).unwrap_err();
        assert_damage(&error, log.path(), "extended");
    }
}

#[test]
fn every_flipped_bit_is_found_or_lies_in_unused_bytes() {
    let (log, bytes, expected) = fixture();
    let used_end = (log.position().offset - MARK_SLOT_LEN) as usize;
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << bit;
            let storage = storage_with(log.path(), &flipped);
            match open(&storage) {
                Err(error) => {
                    assert_damage(&error, log.path(), &format!("bit {bit} of byte {index}"));
                    assert_eq!(bytes_of(&*storage, log.path()), flipped, "left as found");
                }
                Ok((_, _, contents)) => {
                    assert_eq!(contents, expected, "bit {bit} of byte {index}");
                    let in_mark = index >= used_end || is_mark(&log, index);
                    assert!(in_mark, "bit {bit} of byte {index} is used");
                    assert_eq!(bytes_of(&*storage, log.path())[used_end..], bytes[used_end..]);
                }
            }
        }
    }
}

/// Whether the byte lies in a mark of the fixture, whose edits have 5, 0 and 14 bytes.
fn is_mark(log: &EditLog, index: usize) -> bool {
    let mut end = log.position().offset as usize;
    for len in [14, 0, 5] {
        if (end - MARK_SLOT_LEN as usize..end).contains(&index) {
            return true;
        }
        end -= EditLog::edit_size(len) as usize;
    }
    (end - MARK_SLOT_LEN as usize..end).contains(&index) // the snapshot's
}

/// Marks of the fixture, and how each is changed.
fn fixture_with_mark(index: usize, change: impl Fn(&mut [u8])) -> (Arc<dyn Storage>, EditLog, u64) {
    let (log, mut bytes, _) = fixture();
    let ends = [14, 0, 5].iter().scan(log.position().offset, |end, &len| {
        *end -= EditLog::edit_size(len);
        Some(*end)
    });
    let ends: Vec<u64> = std::iter::once(log.position().offset).chain(ends).collect();
    let slot = ends[index] - MARK_SLOT_LEN;
    change(&mut bytes[slot as usize..][..MARK_SLOT_LEN as usize]);
    (storage_with(log.path(), &bytes), log, slot)
}

#[test]
fn a_damaged_mark_is_told_and_nothing_is_lost() {
    for index in 0..4 {
        let (storage, log, slot) = fixture_with_mark(index, |mark| mark[9] ^= 4);
        let report = read(&*storage, Path::new(DIR), &ID, None, |_| Ok(())).unwrap();
        assert_eq!((report.damaged_marks, report.edit_count), (vec![slot], 3));
        let (opened, report, _) = open(&storage).unwrap();
        assert_eq!((report.damaged_marks, report.edit_count), (vec![slot], 3));
        // The last one is written anew, and that is told too.
        let is_last = index == 0;
        let mended = is_last.then(|| (log.path().to_owned(), slot));
        assert_eq!(opened.mended_mark(), mended.as_ref());
        let report = read(&*storage, Path::new(DIR), &ID, None, |_| Ok(())).unwrap();
        assert_eq!(report.damaged_marks.is_empty(), is_last);
    }
}

#[test]
fn a_mark_that_was_not_written_whole_is_no_damage() {
    for index in 0..4 {
        for cut in 0..MARK_SLOT_LEN as usize {
            let (storage, ..) = fixture_with_mark(index, |mark| mark[cut..].fill(0));
            let (opened, report, _) = open(&storage).unwrap();
            assert_eq!((report.damaged_marks, report.edit_count), (vec![], 3));
            assert_eq!(opened.mended_mark(), None);
        }
    }
}

fn assert_damage(error: &Error, path: &Path, context: &str) {
    match error {
        Error::Corruption { file, .. } | Error::FormatVersion { file, .. } => {
            assert_eq!(file, path, "{context}");
        }
        other => panic!("{context}: {other}"),
    }
}

#[test]
fn an_edit_lost_with_its_mark_is_missed_only_if_nobody_else_knows_of_it() {
    let (log, mut bytes, _) = fixture();
    let last = (log.position().offset - EditLog::edit_size(14)) as usize;
    bytes[last..last + 512].fill(0); // a lost sector that took the mark along: nothing to see
    let (_, report, contents) = open(&storage_with(log.path(), &bytes)).unwrap();
    assert_eq!(contents.edits.len(), 2);
    // Unless somebody else knows that the edit was there.
    let required = Some(log.position());
    let error = open_at(&storage_with(log.path(), &bytes), required).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert_eq!(report.position.offset, last as u64);
}

#[test]
fn a_position_that_another_part_knows_must_be_reached() {
    let storage = storage();
    let mut log = create(&storage, &[]);
    log.append(b"one").unwrap();
    let one = log.position();
    log.append(b"two").unwrap();
    let two = log.position();
    for required in [one, two, LogPosition { number: 0, offset: u64::MAX }] {
        assert_eq!(open_at(&storage, Some(required)).unwrap().2.edits.len(), 2);
    }
    let later = LogPosition { offset: two.offset + 8, ..two };
    let between = LogPosition { offset: one.offset + 8, ..two };
    let next_file = LogPosition { number: 2, offset: 0 };
    for required in [later, between, next_file] {
        let error = open_at(&storage, Some(required)).unwrap_err();
        assert_damage(&error, log.path(), &format!("{required:?}"));
    }
}

/// Every way in which a prefix, or all but one of the sectors, of the last edit reached the disk.
fn torn_variants(before: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
    let differing = |index: &usize| before[*index] != after[*index];
    let first = (0..before.len()).find(differing).unwrap();
    let last = (0..before.len()).rev().find(differing).unwrap();
    let mut variants = Vec::new();
    for cut in first..=last + 1 {
        let prefix = [&after[..cut], &before[cut..]].concat();
        let suffix = [&before[..cut], &after[cut..]].concat();
        variants.extend([prefix, suffix]);
    }
    variants
}

/// The bytes of a log file in front of and behind a last edit, without its mark.
fn around_edit(edit: &[u8]) -> (EditLog, Vec<u8>, Vec<u8>) {
    let storage = storage();
    let mut log = create(&storage, &[b"part"]);
    log.append(b"kept").unwrap();
    let before = bytes_of(&*storage, log.path());
    log.append(edit).unwrap();
    let mut after = bytes_of(&*storage, log.path());
    let end = log.position().offset as usize;
    after[end - MARK_SLOT_LEN as usize..end].fill(0);
    (log, before, after)
}

#[test]
fn a_torn_edit_is_there_wholly_or_not_at_all_and_never_comes_back() {
    let edit: Vec<u8> = (0..200u8).map(|i| i | 1).collect();
    let (log, before, after) = around_edit(&edit);
    let kept = vec![b"kept".to_vec()];
    for torn in torn_variants(&before, &after) {
        let storage = storage_with(log.path(), &torn);
        let (mut reopened, report, contents) = open(&storage).unwrap();
        if torn == after {
            assert_eq!(contents.edits, [b"kept".to_vec(), edit.clone()]);
            continue;
        }
        assert_eq!(contents.edits, kept);
        assert_eq!(report.torn.is_some(), torn != before);
        // E4: edits of any length in its place leave nothing of it behind.
        let start = reopened.position().offset as usize;
        let wiped = bytes_of(&*storage, log.path());
        assert!(wiped[start..].iter().all(|&byte| byte == 0));
        reopened.append(b"other").unwrap();
        assert_eq!(open(&storage).unwrap().2.edits, [b"kept".to_vec(), b"other".to_vec()]);
    }
}

/// An edit whose payload is itself a valid record for the place where a shorter edit would end.
#[test]
fn a_record_inside_a_torn_edit_does_not_come_to_life() {
    let storage = storage();
    let mut log = create(&storage, &[b"part"]);
    let start = log.position().offset;
    // A log of the same identity with the edits "short" and "ghost" holds a ghost for this place.
    let (short, ghost) = (b"short", b"ghost");
    log.append(short).unwrap();
    log.append(ghost).unwrap();
    let donor = bytes_of(&*storage, log.path());
    let payload_start = (start + RECORD_HEADER_LEN) as usize;
    let payload = &donor[payload_start..log.position().offset as usize];

    let storage = storage_with(Path::new("/log/elsewhere"), b"");
    let mut log = create(&storage, &[b"part"]);
    log.append(payload).unwrap();
    let mut bytes = bytes_of(&*storage, log.path());
    bytes[start as usize] ^= 1; // the outer header is torn, the inner ones are not
    let end = log.position().offset as usize;
    bytes[end - MARK_SLOT_LEN as usize..end].fill(0);
    // Refused rather than guessed: only somebody who knows the database's id can make such a thing.
    let error = open(&storage_with(log.path(), &bytes)).unwrap_err();
    assert_damage(&error, log.path(), "ghost");
}

#[test]
fn files_of_other_logs_are_refused_by_name() {
    let (log, bytes, _) = fixture();
    let storage = storage_with(log.path(), &bytes);
    let others = [
        (EditLogId { database: 1, ..ID }, "a file of database"),
        (EditLogId { owner: 6, ..ID }, "a file of owner"),
        (EditLogId { kind: 1, ..ID }, "a log of kind"),
    ];
    for (id, what) in others {
        let opened = EditLog::open(Arc::clone(&storage), Path::new(DIR), id, None, |_| Ok(()));
        let error = opened.unwrap_err();
        assert_damage(&error, log.path(), what);
        assert!(error.to_string().contains(what), "{error}");
    }
    let renamed = storage_with(&Path::new(DIR).join("index-00000002"), &bytes);
    let error = open(&renamed).unwrap_err();
    assert!(error.to_string().contains("file number"), "{error}");
}

#[test]
fn an_unknown_version_is_named() {
    let (log, mut bytes, _) = fixture();
    bytes[8] = 9;
    let error = open(&storage_with(log.path(), &bytes)).unwrap_err();
    assert!(matches!(error, Error::FormatVersion { found: 9, known: 2, .. }), "{error}");
}

#[test]
fn a_missing_log_is_damage() {
    assert!(open(&storage()).unwrap_err().is_corruption());
}

#[test]
fn a_damaged_newest_file_is_never_given_up_for_an_older_one() {
    let storage = storage();
    let mut log = create(&storage, &[b"old"]);
    log.rotate(ROOM, |sink| sink.part(b"new")).unwrap();
    let mut bytes = bytes_of(&*storage, log.path());
    bytes[100] ^= 1;
    storage.remove_file(log.path()).unwrap();
    put_file(&*storage, log.path(), &bytes);
    assert_damage(&open(&storage).unwrap_err(), log.path(), "newest");
}

#[test]
fn unfinished_files_are_removed_when_the_log_is_opened() {
    let storage = storage();
    drop(create(&storage, &[b"part"]));
    let unfinished = Path::new(DIR).join("index-00000002.new");
    put_file(&*storage, &unfinished, b"half");
    let (mut log, ..) = open(&storage).unwrap();
    assert!(!storage.exists(&unfinished).unwrap());
    put_file(&*storage, &unfinished, b"half");
    log.rotate(ROOM, |_| Ok(())).unwrap();
    assert_eq!(open(&storage).unwrap().0.position().number, 2);
}

#[test]
fn a_snapshot_that_fails_leaves_the_log_usable() {
    let storage = storage();
    let mut log = create(&storage, &[b"part"]);
    let failed = log.rotate(ROOM, |_| Err(Error::Conflict)).unwrap_err();
    assert!(matches!(failed, Error::Conflict));
    log.append(b"edit").unwrap();
    let (_, _, contents) = open(&storage).unwrap();
    assert_eq!(contents.edits, [b"edit".to_vec()]);
    assert_eq!(storage.list_dir(Path::new(DIR)).unwrap().len(), 1);
}

#[test]
fn headers_round_trip() {
    let header = FileHeader { kind: 1, database: 2, owner: 3, number: 4, capacity: 5, key: 0 };
    let path = Path::new("f");
    assert_eq!(FileHeader::decode(&header.encode(), path).unwrap(), header);
}

#[test]
fn an_edit_of_another_history_is_refused_although_it_lies_in_its_own_place() {
    let logs = [[b"aaaa", b"bbbb"], [b"cccc", b"dddd"]].map(|edits| {
        let storage = storage();
        let mut log = create(&storage, &[b"part"]);
        for edit in edits {
            log.append(edit).unwrap();
        }
        (log.position(), bytes_of(&*storage, log.path()), log)
    });
    let [(end, today, log), (_, yesterday, _)] = logs;
    let border = (end.offset - EditLog::edit_size(4)) as usize;
    let mixed = [&yesterday[..border], &today[border..]].concat();
    let error = open(&storage_with(log.path(), &mixed)).unwrap_err();
    assert!(
        matches!(&error, Error::Corruption { file, offset, .. }
        if file == log.path() && *offset == border as u64),
        "{error}"
    );
}

#[test]
fn edits_that_somebody_else_writes_are_read_on() {
    let storage = storage();
    let mut log = create(&storage, &[b"part"]);
    log.append(b"known").unwrap();
    let (opened, _, contents) = open(&storage).unwrap();
    assert_eq!(contents.edits, [b"known".to_vec()]);
    let mut tail = opened.found().unwrap().clone();
    let mut read_on = || {
        let mut edits = Vec::new();
        let goes_on = tail.read_on(&*storage, &mut |edit| {
            edits.push(edit.to_vec());
            Ok(())
        });
        (edits, goes_on.unwrap())
    };
    assert_eq!(read_on(), (vec![], GoesOn::Here));
    log.append(b"one").unwrap();
    log.append(b"").unwrap();
    assert_eq!(read_on(), (vec![b"one".to_vec(), vec![]], GoesOn::Here));
    // The last one is there in part.
    let end = log.position().offset;
    log.append(b"three").unwrap();
    let file = storage.open(log.path(), OpenMode::ReadWrite).unwrap();
    let mut whole = [0; 8];
    file.read_exact_at(&mut whole, end + RECORD_HEADER_LEN).unwrap();
    file.write_all_at(&[0; 8], end + RECORD_HEADER_LEN).unwrap();
    assert_eq!(read_on(), (vec![], GoesOn::Here));
    file.write_all_at(&whole, end + RECORD_HEADER_LEN).unwrap();
    assert_eq!(read_on(), (vec![b"three".to_vec()], GoesOn::Here));
    // It was never durable, and whoever opens the log next wipes it.
    let mut head = [0; RECORD_HEADER_LEN as usize];
    file.read_exact_at(&mut head, end).unwrap();
    file.write_all_at(&[0; RECORD_HEADER_LEN as usize], end).unwrap();
    assert_eq!(read_on(), (vec![], GoesOn::Otherwise));
    file.write_all_at(&head, end).unwrap();
    assert_eq!(read_on(), (vec![], GoesOn::Here));
    log.rotate(ROOM, |sink| sink.part(b"part")).unwrap();
    log.append(b"elsewhere").unwrap();
    assert_eq!(read_on(), (vec![], GoesOn::InNextFile));
    let mut found = Vec::new();
    tail.go_over(&*storage, |record| {
        found.extend(match record.record {
            Record::Edit(edit) | Record::SnapshotPart(edit) => Some(edit.to_vec()),
            Record::SnapshotEnd => None,
        });
        Ok(())
    })
    .unwrap();
    assert_eq!(found, [b"part".to_vec(), b"elsewhere".to_vec()]);
    log.append(b"behind").unwrap();
    let mut behind = Vec::new();
    let goes_on = tail.read_on(&*storage, &mut |edit| {
        behind.push(edit.to_vec());
        Ok(())
    });
    assert_eq!((goes_on.unwrap(), behind), (GoesOn::Here, vec![b"behind".to_vec()]));
}

/// An edit whose sync is under way, or has failed, has no mark.
#[test]
fn an_edit_is_handed_out_when_it_is_known_to_be_durable() {
    let storage = storage();
    let mut log = create(&storage, &[b"part"]);
    log.append(b"known").unwrap();
    let mut tail = open(&storage).unwrap().0.found().unwrap().clone();
    let mut read_on = || {
        let mut edits = Vec::new();
        let goes_on = tail.read_on(&*storage, &mut |edit| {
            edits.push(edit.to_vec());
            Ok(())
        });
        assert_eq!(goes_on.unwrap(), GoesOn::Here);
        edits
    };
    log.append(b"one").unwrap();
    let slot = log.position().offset - MARK_SLOT_LEN;
    let file = storage.open(log.path(), OpenMode::ReadWrite).unwrap();
    let mut mark = [0; MARK_SLOT_LEN as usize];
    file.read_exact_at(&mut mark, slot).unwrap();
    file.write_all_at(&[0; MARK_SLOT_LEN as usize], slot).unwrap();
    assert!(read_on().is_empty());
    file.write_all_at(&mark, slot).unwrap();
    assert_eq!(read_on(), [b"one".to_vec()]);
    // One that has another behind it was synced before that was written (E3).
    log.append(b"two").unwrap();
    let slot = log.position().offset - MARK_SLOT_LEN;
    log.append(b"three").unwrap();
    file.write_all_at(&[0; MARK_SLOT_LEN as usize], slot).unwrap();
    assert_eq!(read_on(), [b"two".to_vec(), b"three".to_vec()]);
}
