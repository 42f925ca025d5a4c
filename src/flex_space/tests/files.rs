//! Which files there are, and when they go.

use super::{DIR, bytes, options, segment_count};
use crate::Error;
use crate::flex_space::{FlexSpace, Tag};
use crate::storage::{FaultEffect, FaultPlan, FaultRule, OpenMode, Operation, SimStorage, Storage};
use std::path::Path;

/// A space of segments of which every other page was removed.
fn riddled(storage: &SimStorage) -> FlexSpace {
    let mut space = options(storage).garbage_fraction(None).open(DIR).unwrap();
    for number in 0..60 {
        space.append(&bytes(number, 4000)).unwrap();
    }
    for number in (0..30).rev() {
        space.collapse(number * 8000..number * 8000 + 4000).unwrap();
    }
    space.sync().unwrap();
    space
}

#[test]
fn segments_in_which_nothing_is_live_go_with_the_next_sync() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(&bytes(1, 200_000)).unwrap();
    space.sync().unwrap();
    assert!(segment_count(&storage) > 12);
    space.collapse(1000..199_000).unwrap();
    assert!(segment_count(&storage) > 12, "the durable index still points to them");
    space.sync().unwrap();
    assert!(segment_count(&storage) <= 2);
    assert!(space.stats().segments_removed >= 10);
}

#[test]
fn garbage_is_collected_on_demand() {
    let storage = SimStorage::new(1);
    let mut space = riddled(&storage);
    let all = space.read_range(0..space.len()).unwrap();
    let before = space.stats();
    assert!(before.garbage_fraction() > 0.45, "{before:?}");
    let collected = space.collect_garbage().unwrap();
    let after = space.stats();
    assert_eq!(space.read_range(0..space.len()).unwrap(), all);
    assert!(after.garbage_fraction() < 0.2, "{after:?}");
    assert!(collected.rounds > 1 && collected.bytes_freed > 100_000, "{collected:?}");
    assert_eq!(after.collected_on_demand, collected);
    assert_eq!(segment_count(&storage) as u64, after.segments);
    assert!(after.segments < before.segments * 2 / 3);
    assert!(space.check().unwrap().is_ok());
}

#[test]
fn a_sync_collects_garbage_above_the_fraction() {
    let storage = SimStorage::new(1);
    drop(riddled(&storage));
    let mut space = options(&storage).garbage_fraction(Some(0.3)).open(DIR).unwrap();
    let all = space.read_range(0..space.len()).unwrap();
    for _ in 0..20 {
        space.sync().unwrap();
    }
    assert!(space.stats().garbage_fraction() < 0.35, "{:?}", space.stats());
    assert!(space.stats().collected_with_syncs.bytes_freed > 50_000);
    assert_eq!(space.read_range(0..space.len()).unwrap(), all);
}

#[test]
fn a_space_that_is_overwritten_for_long_stays_small() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(&bytes(1, 100_000)).unwrap();
    for round in 0..400u64 {
        space.overwrite(round * 7919 % 96_000, &bytes(round, 4000)).unwrap();
        if round % 4 == 0 {
            space.sync().unwrap();
        }
        assert!(segment_count(&storage) < 24, "{:?}", space.stats());
    }
    assert!(space.stats().open_files <= 64);
}

#[test]
fn no_more_files_are_open_than_allowed() {
    let storage = SimStorage::new(1);
    drop(riddled(&storage));
    let space = options(&storage).open_files(3).open(DIR).unwrap();
    let all = space.read_range(0..space.len()).unwrap();
    assert_eq!(all.len(), 120_000);
    assert_eq!(space.stats().open_files, 3);
    let segments = storage
        .open_files()
        .iter()
        .filter(|(path, _)| path.to_string_lossy().contains("seg-"))
        .count();
    assert_eq!(segments, 3);
}

#[test]
fn orphans_and_torn_tails_go_when_a_space_is_opened() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(&bytes(1, 3000)).unwrap();
    space.sync().unwrap();
    space.append(&bytes(2, 40_000)).unwrap();
    drop(space); // A part of this is in files, and nothing refers to it.
    assert!(segment_count(&storage) > 1);
    let space = options(&storage).open(DIR).unwrap();
    assert_eq!(space.read_range(0..3000).unwrap(), bytes(1, 3000));
    assert_eq!((space.len(), segment_count(&storage)), (3000, 1));
    assert!(space.recovery().orphans_removed > 0 && space.recovery().bytes_cut > 0);
}

#[test]
fn foreign_files_are_left_alone() {
    let storage = SimStorage::new(1);
    storage.create_dir_all(Path::new(DIR)).unwrap();
    let foreign = ["seg-1", "seg-00000001~", "notes", "space-1"];
    for name in foreign {
        storage.open(&Path::new(DIR).join(name), OpenMode::CreateNew).unwrap();
    }
    options(&storage).open(DIR).unwrap().close().unwrap();
    drop(options(&storage).open(DIR).unwrap());
    assert!(foreign.iter().all(|name| storage.exists(&Path::new(DIR).join(name)).unwrap()));
}

#[test]
fn a_missing_index_or_segment_is_damage() {
    let storage = SimStorage::new(1);
    drop(riddled(&storage));
    for name in ["space-00000001", "seg-00000002"] {
        let broken = storage.duplicate();
        broken.remove_file(&Path::new(DIR).join(name)).unwrap();
        let error = options(&broken).open(DIR).unwrap_err();
        assert!(
            matches!(&error, Error::Corruption { file, .. } if file.ends_with(name)),
            "{error}"
        );
    }
}

#[test]
fn a_newer_format_is_refused() {
    let storage = SimStorage::new(1);
    drop(riddled(&storage));
    let segment = Path::new(DIR).join("seg-00000003");
    storage.overwrite(&segment, 8, &2u32.to_le_bytes()).unwrap();
    let space = options(&storage).open(DIR).unwrap();
    let error = space.read_range(0..space.len()).unwrap_err();
    assert!(matches!(error, Error::FormatVersion { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_space_is_open_once() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(b"x").unwrap();
    assert!(matches!(options(&storage).open(DIR), Err(Error::Locked { .. })));
    let snapshot = space.snapshot().unwrap();
    space.close().unwrap();
    assert!(matches!(options(&storage).open(DIR), Err(Error::Locked { .. })));
    assert_eq!(snapshot.read_range(0..1).unwrap(), b"x");
    drop(snapshot);
    options(&storage).open(DIR).unwrap();
}

#[test]
fn a_space_that_was_not_closed_is_read_without_changing_it() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(&bytes(1, 30_000)).unwrap();
    space.set_tag(77, Tag::new(5).unwrap()).unwrap();
    space.sync().unwrap();
    space.append(&bytes(2, 40_000)).unwrap();
    assert!(matches!(options(&storage).open_read_only(DIR), Err(Error::Locked { .. })));
    drop(space);
    // As a file system that is mounted for reading only.
    let refused = FaultEffect::Error(std::io::ErrorKind::ReadOnlyFilesystem);
    let changes = Operation::ALL.into_iter().filter(|operation| {
        use Operation::{Exists, List, Open, Read, Size};
        !matches!(operation, Open | Read | Size | List | Exists)
    });
    let rule = FaultRule::new(refused).on(&changes.collect::<Vec<_>>()).lasting();
    storage.arm(FaultPlan::new().rule(rule));
    let before = storage.mutation_count();
    let snapshot = options(&storage).open_read_only(DIR).unwrap();
    assert_eq!(snapshot.read_range(0..snapshot.len()).unwrap(), bytes(1, 30_000));
    assert_eq!(snapshot.tag(77), Tag::new(5));
    drop(snapshot);
    storage.disarm();
    let snapshot = options(&storage).open_read_only(DIR).unwrap();
    assert_eq!(snapshot.len(), 30_000);
    assert!(matches!(options(&storage).open(DIR), Err(Error::Locked { .. })));
    drop(snapshot);
    assert_eq!(storage.mutation_count(), before);
    assert!(options(&storage).open(DIR).unwrap().recovery().orphans_removed > 0);
}

#[test]
fn reading_only_makes_no_space_and_tells_damage() {
    let storage = SimStorage::new(1);
    let absent = options(&storage).open_read_only(DIR).unwrap_err();
    assert!(
        matches!(&absent, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    );
    assert!(!storage.exists(Path::new(DIR)).unwrap());
    drop(riddled(&storage));
    for name in ["seg-00000002", "space-00000001"] {
        storage.remove_file(&Path::new(DIR).join(name)).unwrap();
        let missing = options(&storage).open_read_only(DIR).unwrap_err();
        assert!(missing.is_corruption(), "{missing}");
    }
}

#[test]
fn small_segments_of_many_openings_are_put_together() {
    let storage = SimStorage::new(1);
    let options = || options(&storage).segment_size(1 << 20);
    for number in 0..60 {
        let mut space = options().open(DIR).unwrap();
        space.append(&bytes(number, 100)).unwrap();
        space.close().unwrap();
    }
    assert!(segment_count(&storage) < 36, "{}", segment_count(&storage));
    let mut space = options().open(DIR).unwrap();
    space.collect_garbage().unwrap();
    assert_eq!(segment_count(&storage), 1);
    let expected: Vec<u8> = (0..60).flat_map(|number| bytes(number, 100)).collect();
    assert_eq!(space.read_range(0..6000).unwrap(), expected);
    assert_eq!(space.collect_garbage().unwrap().rounds, 0);
}

#[test]
fn a_damaged_segment_does_not_keep_others_from_being_collected() {
    let storage = SimStorage::new(1);
    drop(riddled(&storage));
    storage.flip_bit(&Path::new(DIR).join("seg-00000003"), 9000, 1).unwrap();
    let mut space = options(&storage).garbage_fraction(Some(0.3)).open(DIR).unwrap();
    for _ in 0..20 {
        space.sync().unwrap();
    }
    assert!(space.collect_garbage().unwrap_err().is_corruption());
    let stats = space.stats();
    assert!(stats.failed_collections < 3 && stats.garbage_fraction() < 0.4, "{stats:?}");
    let report = space.check().unwrap();
    assert!(!report.is_ok() && report.problems.iter().all(|what| what.contains("seg-00000003")));
}

#[test]
fn the_number_of_a_segment_is_not_used_again_when_its_file_is_gone() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(&bytes(1, 12_000)).unwrap();
    space.close().unwrap();
    let mut space = options(&storage).open(DIR).unwrap();
    space.truncate(0).unwrap();
    space.close().unwrap();
    assert_eq!(segment_count(&storage), 0);
    // The journal still says that the first segment had three blocks.
    let mut space = options(&storage).open(DIR).unwrap();
    space.append(&bytes(2, 10)).unwrap();
    space.close().unwrap();
    assert!(!storage.exists(&Path::new(DIR).join("seg-00000001")).unwrap());
    let space = options(&storage).open(DIR).unwrap();
    assert_eq!(space.read_range(0..10).unwrap(), bytes(2, 10));
}

#[test]
fn garbage_in_segments_larger_than_those_of_today_is_collected() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).segment_size(1 << 20).open(DIR).unwrap();
    space.append(&bytes(1, 900_000)).unwrap();
    space.collapse(0..400_000).unwrap();
    space.close().unwrap();
    let mut space = options(&storage).open(DIR).unwrap();
    let collected = space.collect_garbage().unwrap();
    assert!(collected.bytes_freed >= 400_000, "{collected:?}");
    assert!(space.stats().garbage_fraction() < 0.1, "{:?}", space.stats());
    assert_eq!(space.read_range(0..500_000).unwrap(), bytes(1, 900_000)[400_000..]);
}

#[test]
fn a_write_that_fails_in_a_long_segment_is_made_again() {
    let mut failures = 0;
    for skip in 0..9 {
        let storage = SimStorage::new(skip);
        let mut space = options(&storage).segment_size(4 << 20).open(DIR).unwrap();
        let full = FaultEffect::Error(std::io::ErrorKind::StorageFull);
        let rule = FaultRule::new(full).on(&[Operation::Write]).path("seg-").skip(skip);
        storage.arm(FaultPlan::new().rule(rule));
        let mut expected = Vec::new();
        for number in 0..30 {
            let more = bytes(number as u64, 90_000 + number * 7);
            let at = number * 37_123 % (expected.len() + 1);
            match space.insert(at as u64, &more) {
                Ok(()) => drop(expected.splice(at..at, more)),
                Err(error) => {
                    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
                    failures += 1;
                }
            }
            assert!(space.read_range(0..space.len()).unwrap() == expected);
        }
        if space.sync().is_err() {
            failures += 1;
            space.sync().unwrap();
        }
        assert!(space.check().unwrap().is_ok());
        drop(space);
        let space = options(&storage).open(DIR).unwrap();
        assert!(space.read_range(0..space.len()).unwrap() == expected);
    }
    assert_eq!(failures, 9);
}
