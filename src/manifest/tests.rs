//! Tests of the catalogue: what edits do, and what is found again.

use super::Totals;
use super::fields::put_text;
use super::records::{Loader, decode_edit, encode_edit, encode_snapshot};
use super::state::CatalogState;
use super::{
    Closing, ConsumerRecord, Edit, IndexRecord, KeyspaceOptions, KeyspaceRecord, LogPosition,
    Manifest, PendingSegment, Record, RecordRef, TrailEnd, TrailEndReason, TrailRecord,
};
use crate::base::{Codec, Error, Result, SeededEntropy, SeqNo};
use crate::storage::{CrashMode, MemoryStorage, OpenMode, Operation, SimStorage, Storage};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/db";
const NOW_MILLIS: u64 = 1_700_000_000_000;

fn storage() -> Arc<dyn Storage> {
    let storage = MemoryStorage::new();
    storage.create_dir_all(Path::new(DIR)).unwrap();
    Arc::new(storage)
}

fn create(storage: &Arc<dyn Storage>) -> Manifest {
    let entropy = SeededEntropy::new(1);
    Manifest::create(Arc::clone(storage), Path::new(DIR), &entropy, NOW_MILLIS).unwrap()
}

fn reopen(storage: &Arc<dyn Storage>) -> Result<Manifest> {
    Ok(Manifest::open(Arc::clone(storage), Path::new(DIR))?.0)
}

fn keyspace(id: u32, name: &str) -> KeyspaceRecord {
    KeyspaceRecord {
        id,
        store: id,
        name: name.to_owned(),
        options: KeyspaceOptions::flex(),
        created: SeqNo::from_parts(NOW_MILLIS, id as u16),
        journal: Some(LogPosition { number: 1, offset: 4096 }),
    }
}

fn add(id: u32, name: &str) -> Edit {
    Edit::CreateKeyspace(keyspace(id, name))
}

/// A keyspace that keeps its versions, with the id behind `id`, and its archive.
fn add_with_archive(id: u32, name: &str) -> Edit {
    let options = KeyspaceOptions::history();
    let archived = options.of_archive(id + 1, None);
    let archive =
        KeyspaceRecord { options: archived, ..keyspace(id, &format!("archive of {name}")) };
    let keyspace = KeyspaceRecord { options, ..keyspace(id + 1, name) };
    Edit::CreateWithArchive { archive: Box::new(archive), keyspace }
}

/// An index of the keyspace `of`.
fn add_index(id: u32, of: u32, name: &str) -> Edit {
    let (name, extractor) = (name.to_owned(), "value".to_owned());
    let record = IndexRecord { of, name, extractor, is_unique: id == 2, is_ready: false };
    let options = KeyspaceOptions::flex().of_index(record);
    Edit::CreateKeyspace(KeyspaceRecord { options, ..keyspace(id, &format!("index {id}")) })
}

fn advance(log_start: u64, journals: &[(u32, LogPosition)]) -> Edit {
    let last_seqno = SeqNo::from_parts(NOW_MILLIS + log_start, 0);
    Edit::AdvanceLog { log_start, journals: journals.to_vec(), last_seqno }
}

fn closing(log_end: u64) -> Closing {
    let last_seqno = SeqNo::from_parts(NOW_MILLIS + log_end, 0);
    Closing { log_end, last_seqno, newest_commit: SeqNo::from_parts(NOW_MILLIS + 8, 0) }
}

/// A consumer that is done with a stamp, and needs the log from a place on.
fn consumer(name: &str, done: u64, log_position: u64) -> Edit {
    let consumer = ConsumerRecord { done: SeqNo::from_u64(done), log_position, log_max: 1 << 30 };
    Edit::SetConsumer { name: name.to_owned(), consumer }
}

/// A stamp behind all that the other edits have.
fn late(counter: u16) -> SeqNo {
    SeqNo::from_parts(NOW_MILLIS + 800, counter)
}

/// A trail that is done with such a stamp.
fn trail(done: u16) -> TrailRecord {
    TrailRecord {
        id: 77,
        repository: 5,
        done: late(done),
        log_position: 700,
        log_max: u64::MAX,
        token: 9,
        pending: None,
        end: None,
    }
}

fn stamped(counter: u16, edit: Edit) -> Edit {
    Edit::Stamped { seqno: late(counter), edit: Box::new(edit) }
}

fn rename(id: u32, name: &str) -> Edit {
    Edit::RenameKeyspace { id, name: name.to_owned() }
}

/// One edit of each kind, in an order in which they may be applied.
fn edits_of_every_kind() -> Vec<Edit> {
    let options = KeyspaceOptions::flex().codec(Codec::Lz4).memtable_size(1 << 20);
    vec![
        add(1, "one"),
        add(2, "zwölf / \u{0} ..\\"),
        add(3, &"n".repeat(255)),
        Edit::SetOptions { id: 2, options },
        Edit::DropKeyspace { id: 1 },
        Edit::RenameKeyspace { id: 3, name: "one".to_owned() },
        advance(700, &[(2, LogPosition { number: 2, offset: 64 })]),
        Edit::ForgetDropped { id: 1 },
        Edit::DropKeyspace { id: 3 },
        add_with_archive(4, "past"),
        add_index(6, 5, "by value"),
        Edit::FinishIndex { id: 6 },
        add_index(7, 5, "by value"),
        add_index(8, 5, "another"),
        Edit::FinishIndex { id: 7 },
        Edit::DropKeyspace { id: 8 },
        consumer("a follower", 5, 60),
        consumer("another", 7, 700),
        consumer("a follower", 8, 60),
        Edit::RemoveConsumer { name: "another".to_owned() },
        Edit::ReserveStores { first: 9, count: 3 },
        convert(2, 9, KeyspaceOptions::lsm(), None),
        convert(5, 10, KeyspaceOptions::history().codec(Codec::Lz4), Some((4, "archive of past"))),
        Edit::ForgetDropped { id: 2 },
        Edit::ReserveStores { first: 12, count: 2 },
        convert(2, 12, KeyspaceOptions::history(), Some((13, "archive of two"))),
        Edit::ReserveStores { first: 14, count: 1 },
        convert(5, 14, KeyspaceOptions::flex(), None),
        Edit::SetTrail(trail(1)),
        stamped(2, rename(5, "the past")),
        Edit::SetTrail(TrailRecord {
            pending: Some(PendingSegment { token: 10, to: late(3) }),
            ..trail(1)
        }),
        stamped(4, rename(5, "past")),
        Edit::SetTrail(trail(3)),
        Edit::EndTrail(TrailEnd { at: late(5), reason: TrailEndReason::Ingested }),
        Edit::RemoveTrail,
        Edit::CleanClose(closing(900)),
    ]
}

/// A keyspace gets another store and, perhaps, an archive of this id and name.
fn convert(id: u32, store: u32, options: KeyspaceOptions, archive: Option<(u32, &str)>) -> Edit {
    let archive = archive.map(|(archive, name)| {
        let options = options.of_archive(id, None);
        Box::new(KeyspaceRecord { options, ..keyspace(archive, name) })
    });
    let journal = LogPosition { number: 1, offset: u64::from(store) };
    Edit::ConvertKeyspace { id, store, journal, options, archive }
}

#[test]
fn every_edit_is_found_again() {
    let storage = storage();
    assert!(!Manifest::exists(&*storage, Path::new(DIR)).unwrap());
    assert!(!Manifest::exists(&*storage, Path::new("/nowhere")).unwrap());
    let mut manifest = create(&storage);
    assert!(Manifest::exists(&*storage, Path::new(DIR)).unwrap());
    assert_ne!(manifest.state().database(), 0);
    for edit in edits_of_every_kind() {
        manifest.apply(&edit).unwrap();
        let (read, _) = Manifest::read(&*storage, Path::new(DIR)).unwrap();
        assert_eq!(&read, manifest.state(), "{edit:?}");
    }
    let state = reopen(&storage).unwrap().state().clone();
    assert_eq!(&state, manifest.state());
    assert_eq!(state.created_millis(), NOW_MILLIS);
    assert_eq!(state.next_keyspace_id(), 15);
    assert_eq!(state.dropped().collect::<Vec<_>>(), [3, 4, 5, 6, 8, 9, 10, 11]);
    let stores = state.keyspaces().map(|record| (record.id, record.store));
    assert_eq!(stores.collect::<Vec<_>>(), [(2, 12), (5, 14), (7, 7), (13, 13)]);
    assert_eq!(state.archive_of(2).map(|archive| archive.id), Some(13));
    assert_eq!(state.archive_of(5), None);
    assert_eq!(state.log_start(), 700);
    assert_eq!(state.clean_log_end(), Some(900));
    assert_eq!(state.last_seqno().millis(), NOW_MILLIS + 900);
    assert_eq!(state.newest_commit().millis(), NOW_MILLIS + 8);
    let followers: Vec<_> =
        state.consumers().iter().map(|(name, its)| (&**name, its.done)).collect();
    assert_eq!(followers, [("a follower", SeqNo::from_u64(8))]);
    let two = state.find("zwölf / \u{0} ..\\").unwrap();
    assert_eq!(two.options, KeyspaceOptions::history());
    assert_eq!(two.journal, Some(LogPosition { number: 1, offset: 12 }));
}

#[test]
fn a_second_manifest_is_not_made_over_the_first() {
    let storage = storage();
    let first = create(&storage);
    let entropy = SeededEntropy::new(2);
    let again = Manifest::create(Arc::clone(&storage), Path::new(DIR), &entropy, 1).unwrap_err();
    assert!(matches!(again, Error::InvalidArgument { .. }), "{again}");
    assert_eq!(reopen(&storage).unwrap().state(), first.state());
}

#[test]
fn an_archive_does_not_get_the_number_of_a_keyspace_whose_first_store_is_gone() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "one")).unwrap();
    manifest.apply(&add(2, "two")).unwrap();
    manifest.apply(&Edit::ReserveStores { first: 3, count: 2 }).unwrap();
    manifest.apply(&convert(2, 3, KeyspaceOptions::lsm(), None)).unwrap();
    let before = manifest.state().clone();
    assert_eq!(before.dropped().collect::<Vec<_>>(), [2, 4]);
    let edit = convert(1, 4, KeyspaceOptions::history(), Some((2, "archive of one")));
    assert!(matches!(manifest.apply(&edit), Err(Error::InvalidArgument { .. })));
    assert_eq!(manifest.state(), &before);
}

#[test]
fn edits_that_break_a_rule_change_nothing() {
    let storage = storage();
    let mut manifest = create(&storage);
    let place = |number, offset| LogPosition { number, offset };
    manifest.apply(&add(1, "one")).unwrap();
    manifest.apply(&add(2, "two")).unwrap();
    manifest.apply(&advance(100, &[(1, place(2, 64))])).unwrap();
    manifest.apply(&consumer("c", 9, 90)).unwrap();
    let before = manifest.state().clone();
    let wild = KeyspaceOptions::flex().interval_size(1);
    let refused = [
        add(2, "again"),
        add(4, "gap"),
        add(3, ""),
        add(3, &"n".repeat(256)),
        Edit::CreateKeyspace(KeyspaceRecord { options: wild.clone(), ..keyspace(3, "wild") }),
        Edit::SetOptions { id: 1, options: wild },
        Edit::CreateKeyspace(KeyspaceRecord {
            options: KeyspaceOptions::history(),
            ..keyspace(3, "without an archive")
        }),
        Edit::CreateKeyspace(KeyspaceRecord {
            options: KeyspaceOptions::history().of_archive(4, None),
            ..keyspace(3, "an archive alone")
        }),
        add_with_archive(4, "gap"),
        add_with_archive(2, "again"),
        Edit::ForgetDropped { id: 1 },
        Edit::ReserveStores { first: 4, count: 1 },
        Edit::ReserveStores { first: 3, count: 0 },
        Edit::ReserveStores { first: 3, count: u32::MAX - 3 },
        convert(1, 3, KeyspaceOptions::lsm(), None),
        convert(1, 2, KeyspaceOptions::lsm(), None),
        consumer("c", 8, 90),
        consumer("c", 9, 89),
        consumer("", 9, 90),
        consumer(&"n".repeat(256), 9, 90),
        advance(99, &[]),
        advance(101, &[(1, place(1, 9999))]),
        advance(101, &[(1, place(2, 63))]),
        Edit::AdvanceLog { log_start: 100, journals: Vec::new(), last_seqno: SeqNo::ZERO },
        Edit::CleanClose(closing(99)),
        Edit::CleanClose(Closing { newest_commit: SeqNo::MAX, ..closing(101) }),
    ];
    for edit in refused {
        let error = manifest.apply(&edit).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{edit:?}: {error}");
    }
    for edit in [add(3, "one"), Edit::RenameKeyspace { id: 2, name: "one".to_owned() }] {
        let error = manifest.apply(&edit).unwrap_err();
        assert!(matches!(error, Error::KeyspaceExists { ref name } if name == "one"), "{error}");
    }
    let nobody = "nobody".to_owned();
    for edit in [
        Edit::DropKeyspace { id: 3 },
        Edit::RenameKeyspace { id: 3, name: nobody },
        Edit::SetOptions { id: 3, options: KeyspaceOptions::flex() },
        advance(101, &[(3, place(1, 64))]),
    ] {
        let error = manifest.apply(&edit).unwrap_err();
        assert!(matches!(error, Error::KeyspaceNotFound { .. }), "{edit:?}: {error}");
    }
    assert_eq!(manifest.state(), &before);
    assert_eq!(reopen(&storage).unwrap().state(), &before);
}

#[test]
fn an_archive_comes_and_goes_with_its_keyspace() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "one")).unwrap();
    manifest.apply(&add_with_archive(2, "past")).unwrap();
    let state = reopen(&storage).unwrap().state().clone();
    assert_eq!(state.archive_of(3).map(|archive| archive.id), Some(2));
    assert_eq!((state.archive_of(1), state.archive_of(2)), (None, None));
    assert_eq!(state.next_keyspace_id(), 4);
    manifest.apply(&Edit::DropKeyspace { id: 3 }).unwrap();
    let state = reopen(&storage).unwrap().state().clone();
    assert_eq!(state.keyspaces().map(|record| record.id).collect::<Vec<_>>(), [1]);
    assert_eq!(state.dropped().collect::<Vec<_>>(), [2, 3]);
    assert!(manifest.apply(&add_with_archive(4, "one")).is_err(), "the name is another's");
    manifest.apply(&add_with_archive(4, "past")).unwrap();
}

#[test]
fn of_a_keyspace_and_a_name_one_index_is_ready_and_one_is_not() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "one")).unwrap();
    assert!(manifest.apply(&add_index(2, 7, "i")).is_err(), "of nothing");
    manifest.apply(&add_index(2, 1, "i")).unwrap();
    assert!(matches!(manifest.apply(&add_index(3, 1, "i")), Err(Error::IndexExists { .. })));
    assert!(manifest.apply(&add_index(3, 2, "i")).is_err(), "an index has none");
    manifest.apply(&add_index(3, 1, "j")).unwrap();
    manifest.apply(&Edit::FinishIndex { id: 2 }).unwrap();
    assert!(manifest.apply(&Edit::FinishIndex { id: 2 }).is_err(), "it is finished");
    assert!(manifest.apply(&Edit::FinishIndex { id: 1 }).is_err(), "it is no index");
    manifest.apply(&add_index(4, 1, "i")).unwrap();
    let options = manifest.state().keyspace(4).unwrap().options.clone();
    let other = KeyspaceOptions { index: None, ..options };
    assert!(manifest.apply(&Edit::SetOptions { id: 4, options: other }).is_err());
    assert_eq!(manifest.state().replaced_by(4), Some(2));
    manifest.apply(&Edit::FinishIndex { id: 4 }).unwrap();
    let state = reopen(&storage).unwrap().state().clone();
    let indexes = state.indexes_of(1).map(|(record, index)| (record.id, index.is_ready));
    assert_eq!(indexes.collect::<Vec<_>>(), [(3, false), (4, true)]);
    assert!(state.is_gone_index(2) && !state.is_gone_index(4));
    manifest.apply(&Edit::DropKeyspace { id: 1 }).unwrap();
    let state = reopen(&storage).unwrap().state().clone();
    assert_eq!(
        (state.keyspaces().len(), state.dropped().collect::<Vec<_>>()),
        (0, vec![1, 2, 3, 4])
    );
    assert!([2, 3, 4].iter().all(|id| state.is_gone_index(*id)) && !state.is_gone_index(1));
}

#[test]
fn a_name_is_free_after_a_drop_or_a_rename_but_an_id_is_never_used_again() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "name")).unwrap();
    manifest.apply(&Edit::DropKeyspace { id: 1 }).unwrap();
    assert!(manifest.state().find("name").is_none());
    manifest.apply(&add(2, "name")).unwrap();
    manifest.apply(&Edit::RenameKeyspace { id: 2, name: "other".to_owned() }).unwrap();
    manifest.apply(&Edit::RenameKeyspace { id: 2, name: "other".to_owned() }).unwrap();
    manifest.apply(&add(3, "name")).unwrap();
    manifest.apply(&Edit::ForgetDropped { id: 1 }).unwrap();
    assert!(manifest.apply(&add(1, "first")).is_err());
    let state = reopen(&storage).unwrap().state().clone();
    let ids = ["name", "other"].map(|name| state.find(name).unwrap().id);
    assert_eq!((ids, state.next_keyspace_id()), ([3, 2], 4));
}

#[test]
fn a_clean_end_holds_until_the_next_edit() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.close(closing(500)).unwrap();
    let mut manifest = reopen(&storage).unwrap();
    assert_eq!(manifest.state().clean_log_end(), Some(500));
    manifest.apply(&add(1, "one")).unwrap();
    assert_eq!(reopen(&storage).unwrap().state().clean_log_end(), None);
}

/// C9: what is to be told is noted with its edit, and found again; what cannot be told ends it.
#[test]
fn while_a_trail_follows_no_edit_that_it_tells_of_is_without_a_stamp() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "one")).unwrap();
    manifest.apply(&Edit::SetTrail(trail(1))).unwrap();
    let refused = [
        add(2, "two"),
        add_with_archive(2, "two"),
        rename(1, "uno"),
        Edit::DropKeyspace { id: 1 },
        Edit::SetOptions { id: 1, options: KeyspaceOptions::flex().memtable_size(1 << 20) },
        stamped(1, rename(1, "uno")), // It is done with that.
        stamped(5, Edit::KeepLog { bytes: 1 }),
        stamped(5, stamped(6, rename(1, "uno"))),
        Edit::SetTrail(TrailRecord { id: 78, ..trail(2) }),
        Edit::SetTrail(trail(0)),
        Edit::SetTrail(TrailRecord { log_position: 699, ..trail(1) }),
        Edit::EndTrail(TrailEnd { at: late(0), reason: TrailEndReason::Ingested }),
    ];
    let before = manifest.state().clone();
    for edit in refused {
        assert!(matches!(manifest.apply(&edit), Err(Error::InvalidArgument { .. })), "{edit:?}");
        assert_eq!(manifest.state(), &before);
    }
    let told = [rename(1, "uno"), add(2, "two"), Edit::DropKeyspace { id: 2 }];
    for (counter, edit) in (10..).zip(&told) {
        manifest.apply(&stamped(counter, edit.clone())).unwrap();
        assert_eq!(manifest.state().last_seqno(), late(counter), "no later stamp is below");
    }
    manifest.begin_new_file().unwrap(); // What waits is in snapshots, too.
    let found = reopen(&storage).unwrap().state().clone();
    assert_eq!(&found, manifest.state());
    let waiting: Vec<_> = found.trail_notes().iter().map(|note| note.edit.clone()).collect();
    assert_eq!(waiting, told);
    manifest.apply(&Edit::SetTrail(trail(10))).unwrap();
    assert_eq!(manifest.state().trail_notes().len(), 2, "it is done with the first");
    manifest.apply(&Edit::ReserveStores { first: 3, count: 1 }).unwrap();
    manifest.apply(&stamped(20, convert(1, 3, KeyspaceOptions::lsm(), None))).unwrap();
    let end = manifest.state().trail().unwrap().end.unwrap();
    assert_eq!((end.at, end.reason), (late(19), TrailEndReason::Converted));
    // It has what is in front of that still to come, and is told of nothing more.
    assert!(!manifest.state().trail().unwrap().is_over());
    assert_eq!(manifest.state().held_log(), Some(700));
    manifest.apply(&add(4, "untold")).unwrap();
    assert!(manifest.apply(&stamped(30, add(5, "no"))).is_err());
    manifest.apply(&Edit::SetTrail(TrailRecord { end: Some(end), ..trail(19) })).unwrap();
    assert!(manifest.state().trail().unwrap().is_over());
    assert_eq!((manifest.state().held_log(), manifest.state().trail_notes()), (None, &[][..]));
    manifest.apply(&Edit::SetTrail(TrailRecord { id: 78, ..trail(40) })).unwrap();
    assert_eq!(&reopen(&storage).unwrap().state().clone(), manifest.state());
}

/// C9: in front of an ingest that came to nothing; never one that a segment may have told of.
#[test]
fn the_end_of_a_trail_is_taken_back_while_nothing_reaches_it() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "one")).unwrap();
    manifest.apply(&Edit::SetTrail(trail(1))).unwrap();
    manifest.apply(&stamped(5, rename(1, "uno"))).unwrap();
    let before = manifest.state().clone();
    let end = |at, reason| Edit::EndTrail(TrailEnd { at: late(at), reason });
    manifest.apply(&end(9, TrailEndReason::Ingested)).unwrap();
    manifest.apply(&Edit::SetTrail(trail(1))).unwrap();
    assert_eq!(manifest.state().trail(), before.trail());
    assert_eq!(manifest.state().trail_notes(), before.trail_notes());
    assert_eq!(&reopen(&storage).unwrap().state().clone(), manifest.state());
    let pending = |to| Some(PendingSegment { token: 3, to: late(to) });
    manifest.apply(&Edit::SetTrail(TrailRecord { pending: pending(9), ..trail(1) })).unwrap();
    manifest.apply(&end(9, TrailEndReason::Ingested)).unwrap();
    let refused = |manifest: &mut Manifest, record| {
        let refused = manifest.apply(&Edit::SetTrail(record));
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    };
    refused(&mut manifest, trail(1));
    let reached = TrailEnd { at: late(9), reason: TrailEndReason::Ingested };
    manifest.apply(&Edit::SetTrail(TrailRecord { end: Some(reached), ..trail(9) })).unwrap();
    refused(&mut manifest, trail(9));
    manifest.apply(&Edit::SetTrail(TrailRecord { id: 78, ..trail(40) })).unwrap();
    manifest.apply(&end(50, TrailEndReason::NotKept)).unwrap();
    refused(&mut manifest, TrailRecord { id: 78, ..trail(40) });
}

/// However much comes before it is told of, the catalogue does not grow without a bound.
#[test]
fn a_trail_that_is_told_of_nothing_for_too_long_ends() {
    let storage = storage();
    let mut manifest = create(&storage);
    manifest.apply(&add(1, "one")).unwrap();
    manifest.apply(&Edit::SetTrail(trail(0))).unwrap();
    let mut counter = 1;
    while manifest.state().trail().unwrap().end.is_none() {
        manifest.apply(&stamped(counter, rename(1, &format!("{counter}")))).unwrap();
        counter += 1;
    }
    let end = manifest.state().trail().unwrap().end.unwrap();
    assert_eq!((end.at, end.reason), (late(counter - 2), TrailEndReason::Crowded));
    assert_eq!(manifest.state().trail_notes().len(), 4096);
    assert_eq!(reopen(&storage).unwrap().state(), manifest.state());
}

#[test]
fn a_full_file_gives_way_to_the_next_one() {
    let storage = storage();
    let mut manifest = create(&storage);
    let first = manifest.path().to_owned();
    manifest.apply(&add(1, "one")).unwrap();
    for log_start in 0..3000 {
        manifest.apply(&advance(log_start, &[])).unwrap();
    }
    assert_ne!(manifest.path(), first);
    let state = manifest.state().clone();
    assert_eq!(reopen(&storage).unwrap().state(), &state);
    assert_eq!(storage.list_dir(Path::new(DIR)).unwrap().len(), 1, "older files are removed");
}

#[test]
fn an_edit_larger_than_the_usual_room_fits_into_a_new_file() {
    let storage = storage();
    let mut manifest = create(&storage);
    let count = 9000;
    for id in 1..=count {
        manifest.apply(&add(id, &format!("keyspace {id}"))).unwrap();
    }
    let journals: Vec<_> =
        (1..=count).map(|id| (id, LogPosition { number: 1 << 50, offset: 1 << 50 })).collect();
    manifest.apply(&advance(1, &journals)).unwrap();
    assert_eq!(reopen(&storage).unwrap().state(), manifest.state());
}

fn rested() -> (Manifest, Vec<u8>) {
    let storage = storage();
    let mut manifest = create(&storage);
    for edit in edits_of_every_kind() {
        manifest.apply(&edit).unwrap();
    }
    manifest.close(closing(900)).unwrap();
    let file = storage.open(manifest.path(), OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    (manifest, bytes)
}

fn read_bytes(manifest: &Manifest, bytes: &[u8]) -> Result<CatalogState> {
    let storage = storage();
    let file = storage.open(manifest.path(), OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    Ok(Manifest::read(&*storage, Path::new(DIR))?.0)
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
fn every_truncation_of_a_manifest_at_rest_is_found() {
    let (manifest, bytes) = rested();
    // Behind the edits only the length matters; a sample of it is enough.
    for len in (0..bytes.len()).filter(|len| *len < 4096 || len % 997 == 0) {
        let error = read_bytes(&manifest, &bytes[..len]).unwrap_err();
        assert_damage(&error, manifest.path(), &format!("cut to {len}"));
    }
}

#[test]
fn every_flipped_bit_of_a_manifest_at_rest_is_found_or_changes_nothing() {
    let (manifest, bytes) = rested();
    let used_end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let (mut found, mut unused) = (0, 0);
    for index in (0..bytes.len()).filter(|index| *index < used_end + 600 || index % 997 == 0) {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << bit;
            let context = format!("bit {bit} of byte {index}");
            match read_bytes(&manifest, &flipped) {
                Err(error) => {
                    assert_damage(&error, manifest.path(), &context);
                    found += 1;
                }
                Ok(state) => {
                    assert_eq!(&state, manifest.state(), "{context}");
                    unused += 1;
                }
            }
        }
    }
    // The marks of snapshot and edits, of 32 bytes each, and the zeros behind the last.
    let marks = (1 + edits_of_every_kind().len() + 1) * 32;
    assert!(found >= (used_end - marks) * 8, "{found} found, {unused} unused");
}

#[test]
fn every_cut_of_every_edit_is_refused_by_the_decoder() {
    for edit in edits_of_every_kind() {
        let bytes = encode_edit(&edit, &Totals::default());
        assert_eq!(decode_edit(&bytes).unwrap(), (edit.clone(), Totals::default()));
        for cut in 0..bytes.len() {
            assert!(decode_edit(&bytes[..cut]).is_err(), "{edit:?} cut to {cut}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode_edit(&longer).is_err(), "{edit:?} with a byte more");
    }
    assert!(decode_edit(&[99]).unwrap_err().what.contains("unknown kind of edit 99"));
}

/// Loads records whose checksums would hold: only the rules of the catalogue are left.
fn load(records: &[Record<'_>]) -> Result<CatalogState> {
    let mut loader = Loader::new(7);
    for &record in records {
        loader.take(RecordRef { record, file: Path::new("/db/MANIFEST-00000001"), offset: 64 })?;
    }
    Ok(loader.finish())
}

#[test]
fn records_that_contradict_each_other_are_damage() {
    let mut state = CatalogState::new(7, NOW_MILLIS);
    for id in 1..=2 {
        state.apply(add(id, &format!("{id}")), Totals::default());
    }
    let good = encode_snapshot(&state);
    let mut twin = keyspace(2, "1");
    let mut named_twice = good.clone();
    let mut other = CatalogState::new(7, NOW_MILLIS);
    other.next_keyspace_id = 3;
    other.insert(twin.clone());
    named_twice[2] = encode_snapshot(&other)[1].clone();
    twin.id = 3;
    other.keyspaces.clear();
    other.insert(twin);
    let beyond_next = encode_snapshot(&other)[1].clone();
    let edit = encode_edit(&Edit::ForgetDropped { id: 9 }, &Totals::default());

    let part = |index: usize| Record::SnapshotPart(&good[index]);
    let end = Record::SnapshotEnd;
    assert_eq!(load(&[part(0), part(1), part(2), end]).unwrap(), state);
    let wrong: [&[Record<'_>]; 9] = [
        &[end],
        &[part(1)],
        &[part(0), part(0)],
        &[part(0), part(1), end],
        &[part(0), part(1), part(1)],
        &[part(0), part(2), part(1)],
        &[part(0), part(1), Record::SnapshotPart(&named_twice[2])],
        &[part(0), part(1), Record::SnapshotPart(&beyond_next)],
        &[part(0), part(1), part(2), end, Record::Edit(&edit)],
    ];
    for records in wrong {
        let error = load(records).unwrap_err();
        assert!(matches!(error, Error::Corruption { offset: 64.., .. }), "{records:?}: {error}");
    }
    let mut loader = Loader::new(8);
    let head = RecordRef { record: part(0), file: Path::new("f"), offset: 64 };
    assert!(loader.take(head).unwrap_err().to_string().contains("0x7 in a file of 0x8"));
}

#[test]
fn an_unknown_option_is_named_with_its_place() {
    let edit = Edit::SetOptions { id: 1, options: KeyspaceOptions::flex() };
    let mut payload = encode_edit(&edit, &Totals::default());
    payload.truncate(3); // kind, id, structure
    payload.push(1);
    put_text(&mut payload, "colour");
    payload.push(5);
    let mut state = CatalogState::new(7, NOW_MILLIS);
    state.apply(add(1, "one"), Totals::default());
    let parts = encode_snapshot(&state);
    let parts: Vec<_> = parts.iter().map(|part| Record::SnapshotPart(part)).collect();
    let records = [&parts[..], &[Record::SnapshotEnd, Record::Edit(&payload)]].concat();
    let error = load(&records).unwrap_err().to_string();
    assert!(error.contains("offset 76") && error.contains("\"colour\" is unknown"), "{error}");
}

fn open_simulated(storage: &SimStorage) -> Result<Manifest> {
    reopen(&(Arc::new(storage.clone()) as Arc<dyn Storage>))
}

/// Applies the edits until one fails; how many succeeded.
fn apply_all(storage: &SimStorage, edits: &[Edit]) -> usize {
    let Ok(mut manifest) = open_simulated(storage) else { return 0 };
    edits.iter().take_while(|edit| manifest.apply(edit).is_ok()).count()
}

/// A manifest whose file is so full that the third of the edits from then on begins a new one.
fn nearly_full() -> (SimStorage, CatalogState) {
    let build = |advances: u64| {
        let storage = SimStorage::new(1);
        storage.panic_on_violation();
        storage.create_dir_all(Path::new(DIR)).unwrap();
        storage.sync_dir(Path::new("/")).unwrap();
        let mut manifest = create(&(Arc::new(storage.clone()) as Arc<dyn Storage>));
        let first = manifest.path().to_owned();
        let full = (0..advances).find(|&log_start| {
            manifest.apply(&advance(log_start, &[])).unwrap();
            manifest.path() != first
        });
        (storage, manifest.state().clone(), full)
    };
    let full = build(u64::MAX).2.unwrap();
    let (storage, state, _) = build(full - 2);
    (storage, state)
}

#[test]
fn every_crash_around_a_new_file_leaves_the_catalogue_before_or_behind_the_edit_in_flight() {
    let (full, start_state) = nearly_full();
    let edits = [
        advance(5000, &[]),
        add(1, "one"),
        add(2, "two"),
        Edit::RenameKeyspace { id: 1, name: "uno".to_owned() },
        Edit::DropKeyspace { id: 2 },
        Edit::CleanClose(closing(9000)),
    ];
    let mut states = vec![start_state];
    for edit in &edits {
        let mut next = states[states.len() - 1].clone();
        next.apply(edit.clone(), Totals::default());
        states.push(next);
    }
    let rehearsal = full.duplicate();
    assert_eq!(apply_all(&rehearsal, &edits), edits.len());
    assert!(rehearsal.count_of(Operation::Rename) > 0, "a new file was begun");
    for point in 0..rehearsal.mutation_count() {
        let storage = full.duplicate();
        storage.crash_inside(point);
        let acknowledged = apply_all(&storage, &edits);
        for mode in CrashMode::ALL {
            for seed in 0..4 {
                let after = storage.crash(mode, seed);
                let found = open_simulated(&after).unwrap().state().clone();
                let allowed = &states[acknowledged..states.len().min(acknowledged + 2)];
                assert!(allowed.contains(&found), "{point}, {mode:?}, seed {seed}: {found:?}");
                // What was shown once stays.
                let again = open_simulated(&after.crash(CrashMode::DropAll, seed)).unwrap();
                assert_eq!(again.state(), &found, "{point}, {mode:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn every_crash_while_a_manifest_is_made_leaves_none_or_a_new_one() {
    let empty = SimStorage::new(3);
    empty.create_dir_all(Path::new(DIR)).unwrap();
    empty.sync_dir(Path::new("/")).unwrap();
    let make = |storage: &SimStorage| {
        let entropy = SeededEntropy::new(1);
        Manifest::create(Arc::new(storage.clone()), Path::new(DIR), &entropy, NOW_MILLIS)
    };
    let rehearsal = empty.duplicate();
    let made = make(&rehearsal).unwrap().state().clone();
    for point in 0..rehearsal.mutation_count() {
        let storage = empty.duplicate();
        storage.crash_inside(point);
        let acknowledged = make(&storage).is_ok();
        for mode in CrashMode::ALL {
            let after = storage.crash(mode, point);
            if Manifest::exists(&after, Path::new(DIR)).unwrap() {
                assert_eq!(open_simulated(&after).unwrap().state(), &made, "{point}, {mode:?}");
            } else {
                assert!(!acknowledged, "{point}, {mode:?}");
                make(&after).unwrap();
            }
        }
    }
}
