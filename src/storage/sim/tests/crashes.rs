//! Each crash mode does what it says, and a crash point strikes where it is set.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::storage::sim::disk::SECTOR_SIZE;

const SECTOR: usize = SECTOR_SIZE as usize;

/// A durable file of ten sectors of zeros and the unsynced writes of sectors 1 to 9, each filled
/// with its number.
fn ten_sectors_rewritten() -> SimStorage {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[0; 10 * SECTOR]);
    for index in 1..10 {
        file.write_all_at(&[index; SECTOR], u64::from(index) * SECTOR_SIZE).unwrap();
    }
    storage
}

/// Which of the nine sectors a crash kept; a sector is kept or lost as a whole.
fn sectors_kept(storage: &SimStorage) -> Vec<usize> {
    let bytes = contents(storage, "/a").unwrap();
    assert_eq!(bytes.len(), 10 * SECTOR);
    let mut kept = Vec::new();
    for index in 1..10 {
        let sector = &bytes[index * SECTOR..(index + 1) * SECTOR];
        assert!(sector.iter().all(|byte| *byte == sector[0]), "sector {index} is split");
        if sector[0] != 0 {
            assert_eq!(usize::from(sector[0]), index);
            kept.push(index);
        }
    }
    kept
}

fn kept_over_seeds(storage: &SimStorage, mode: CrashMode) -> BTreeSet<Vec<usize>> {
    (0..SEED_COUNT).map(|seed| sectors_kept(&storage.crash(mode, seed))).collect()
}

#[test]
fn drop_all_goes_back_to_what_was_synced() {
    let storage = ten_sectors_rewritten();
    create(&storage, "/b").sync().unwrap();
    let after = storage.crash(CrashMode::DropAll, 0);
    assert!(sectors_kept(&after).is_empty());
    assert_eq!(after.files().len(), 1);
}

#[test]
fn of_a_hole_any_sectors_may_be_back() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[7; 10 * SECTOR]);
    file.punch_hole(SECTOR_SIZE, 8 * SECTOR_SIZE).unwrap();
    let back = |after: &SimStorage| -> Vec<usize> {
        let bytes = contents(after, "/a").unwrap();
        assert_eq!(bytes.len(), 10 * SECTOR);
        let sectors = bytes.chunks(SECTOR).enumerate();
        sectors.filter(|(_, sector)| **sector == [7; SECTOR]).map(|(index, _)| index).collect()
    };
    assert_eq!(back(&storage), [0, 9]);
    assert_eq!(back(&storage.crash(CrashMode::DropAll, 0)), Vec::from_iter(0..10));
    let after = |seed| back(&storage.crash(CrashMode::RandomSectors, seed));
    let outcomes: BTreeSet<Vec<usize>> = (0..SEED_COUNT).map(after).collect();
    assert!(outcomes.len() > 20, "{outcomes:?}");
    file.sync().unwrap();
    assert_eq!(back(&storage.crash(CrashMode::DropAll, 0)), [0, 9]);
}

#[test]
fn a_killed_process_loses_nothing_and_makes_nothing_durable() {
    let storage = ten_sectors_rewritten();
    create(&storage, "/b").write_all_at(b"new", 0).unwrap();
    let after = storage.crash(CrashMode::KeepAll, 0);
    assert_eq!(everything(&after), everything(&storage));
    let after_power_cut = after.crash(CrashMode::DropAll, 0);
    assert!(sectors_kept(&after_power_cut).is_empty());
    assert_eq!(contents(&after_power_cut, "/b"), None);
}

#[test]
fn prefix_keeps_everything_up_to_some_moment() {
    let kept = kept_over_seeds(&ten_sectors_rewritten(), CrashMode::Prefix);
    let prefixes = (0..10).map(|count| (1..=count).collect::<Vec<usize>>()).collect();
    assert_eq!(kept, prefixes);
}

#[test]
fn prefix_follows_the_order_of_calls_over_all_files() {
    let storage = SimStorage::new(1);
    let files = ["/a", "/b"].map(|path| create_durable(&storage, path, &[0]));
    for round in 1..=5 {
        for file in &files {
            file.write_all_at(&[round], 0).unwrap();
        }
    }
    let found: BTreeSet<[u8; 2]> = (0..SEED_COUNT)
        .map(|seed| {
            let after = storage.crash(CrashMode::Prefix, seed);
            ["/a", "/b"].map(|path| contents(&after, path).unwrap()[0])
        })
        .collect();
    let prefixes = (0..5).flat_map(|round| [[round, round], [round + 1, round]]);
    assert_eq!(found, prefixes.chain([[5, 5]]).collect());
}

#[test]
fn data_whose_length_was_lost_never_shows() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[1; 10]);
    file.write_all_at(&[2; 10], 10).unwrap();
    let after = storage.crash_keeping(|index| index == 0);
    assert_eq!(contents(&after, "/a").unwrap(), [1; 10]);
    let file = after.open(Path::new("/a"), OpenMode::ReadWrite).unwrap();
    file.set_len(20).unwrap();
    let mut bytes = [9; 10];
    file.read_exact_at(&mut bytes, 10).unwrap();
    assert_eq!(bytes, [0; 10]);
}

#[test]
fn random_sectors_leave_holes() {
    let kept = kept_over_seeds(&ten_sectors_rewritten(), CrashMode::RandomSectors);
    assert!(kept.len() > 50, "only {} outcomes", kept.len());
    assert!(kept.iter().any(|kept| kept.contains(&9) && !kept.contains(&1)));
}

#[test]
fn a_sector_is_as_some_moment_saw_it() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[0; 4]);
    for index in 0..4 {
        file.write_all_at(&[1], index).unwrap();
    }
    for mode in POWER_CUTS.into_iter().filter(|mode| *mode != CrashMode::TornLast) {
        let found: BTreeSet<Vec<u8>> = (0..SEED_COUNT)
            .map(|seed| contents(&storage.crash(mode, seed), "/a").unwrap())
            .collect();
        for bytes in &found {
            assert!(bytes.is_sorted_by(|a, b| a >= b), "{mode:?} left {bytes:?}");
        }
        if matches!(mode, CrashMode::Prefix | CrashMode::RandomSectors) {
            assert_eq!(found.len(), 5, "{mode:?} left only {found:?}");
        }
    }
}

#[test]
fn torn_last_tears_the_last_write_and_no_other() {
    let storage = ten_sectors_rewritten();
    let file = storage.open(Path::new("/a"), OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[77; 4 * SECTOR], 100).unwrap();
    let mut cuts = BTreeSet::new();
    for seed in 0..SEED_COUNT {
        let bytes = contents(&storage.crash(CrashMode::TornLast, seed), "/a").unwrap();
        let cut = bytes.iter().filter(|byte| **byte == 77).count();
        assert!(bytes[100..100 + cut].iter().all(|byte| *byte == 77));
        assert!(cut < 4 * SECTOR);
        assert_eq!(bytes[9 * SECTOR], 9);
        cuts.insert(cut);
    }
    assert!(cuts.iter().any(|cut| (100 + cut) % SECTOR != 0), "never within a sector");
    assert!((1..=4).all(|sector| cuts.contains(&(sector * SECTOR - 100))), "{cuts:?}");
}

#[test]
fn metadata_first_keeps_names_and_lengths_and_reads_zeros() {
    let storage = SimStorage::new(1);
    create(&storage, "/a").write_all_at(&[7; 8 * SECTOR], 0).unwrap();
    let mut counts = BTreeSet::new();
    for seed in 0..SEED_COUNT {
        let bytes = contents(&storage.crash(CrashMode::MetadataFirst, seed), "/a").unwrap();
        assert_eq!(bytes.len(), 8 * SECTOR);
        counts.insert(bytes.iter().filter(|byte| **byte == 7).count() / SECTOR);
        assert!(bytes.iter().all(|byte| *byte == 7 || *byte == 0));
    }
    assert!(counts.contains(&0) && counts.len() > 3, "{counts:?}");
}

#[test]
fn data_first_keeps_data_and_not_lengths_or_names() {
    let storage = ten_sectors_rewritten();
    let file = storage.open(Path::new("/a"), OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[10; SECTOR], 10 * SECTOR_SIZE).unwrap();
    create(&storage, "/b").sync().unwrap();
    let (mut lens, mut file_counts) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..SEED_COUNT {
        let after = storage.crash(CrashMode::DataFirst, seed);
        let bytes = contents(&after, "/a").unwrap();
        assert!((1..bytes.len() / SECTOR).all(|index| usize::from(bytes[index * SECTOR]) == index));
        lens.insert(bytes.len() / SECTOR);
        file_counts.insert(after.files().len());
    }
    assert_eq!(lens, BTreeSet::from([10, 11]));
    assert_eq!(file_counts, BTreeSet::from([1, 2]));
}

#[test]
fn newest_only_keeps_the_newest_writes() {
    let kept = kept_over_seeds(&ten_sectors_rewritten(), CrashMode::NewestOnly);
    let suffixes = (1..=4).map(|count| (10 - count..10).collect::<Vec<usize>>()).collect();
    assert_eq!(kept, suffixes);
}

#[test]
fn every_subset_can_be_asked_for() {
    let storage = ten_sectors_rewritten();
    assert_eq!(storage.unsynced_count(), 9);
    let mut seen = BTreeSet::new();
    for subset in 0..1_u32 << 9 {
        let after = storage.crash_keeping(|index| subset >> index & 1 == 1);
        let kept = sectors_kept(&after);
        let asked: Vec<usize> = (1..10).filter(|index| subset >> (index - 1) & 1 == 1).collect();
        assert_eq!(kept, asked);
        seen.insert(kept);
    }
    assert_eq!(seen.len(), 1 << 9);
}

#[test]
fn a_lost_extension_can_come_back_only_as_zeros() {
    let storage = SimStorage::new(1);
    let file = create_durable(&storage, "/a", &[5; 100]);
    file.set_len(10).unwrap();
    file.set_len(100).unwrap();
    file.sync().unwrap();
    let bytes = contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap();
    assert_eq!(bytes, [vec![5; 10], vec![0; 90]].concat());
}

#[test]
fn after_the_crash_point_every_call_fails_and_changes_nothing() {
    for point in 0..4 {
        let storage = SimStorage::new(1);
        storage.crash_at(point);
        let result = (|| {
            let file = storage.open(Path::new("/a"), OpenMode::CreateNew)?;
            file.write_all_at(b"bytes", 0)?;
            file.sync()?;
            storage.sync_dir(Path::new("/"))
        })();
        assert!(SimStorage::is_simulated_crash(&result.unwrap_err()));
        assert!(storage.is_crashed());
        let before = everything(&storage);
        let error = storage.exists(Path::new("/a")).unwrap_err();
        assert!(SimStorage::is_simulated_crash(&error));
        storage.create_dir_all(Path::new("/d")).unwrap_err();
        assert_eq!(storage.mutation_count(), point + 1);
        let after = storage.crash(CrashMode::KeepAll, 0);
        assert_eq!(everything(&after), before);
        assert!(!after.exists(Path::new("/d")).unwrap());
        // The name came first, the bytes second.
        let expected = [None, Some(&b""[..]), Some(b"bytes"), Some(b"bytes")][point as usize];
        assert_eq!(contents(&after, "/a").as_deref(), expected);
    }
}

#[test]
fn a_crash_inside_a_write_leaves_a_part_of_it() {
    let mut lens = BTreeSet::new();
    for seed in 0..SEED_COUNT {
        let storage = SimStorage::new(seed);
        let file = create(&storage, "/a");
        storage.crash_inside(1);
        let error = file.write_all_at(b"abcd", 0).unwrap_err();
        assert!(SimStorage::is_simulated_crash(&error));
        let bytes = contents(&storage.crash(CrashMode::KeepAll, 0), "/a").unwrap();
        assert!(b"abcd".starts_with(&bytes));
        lens.insert(bytes.len());
    }
    assert_eq!(lens, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn a_crash_inside_a_sync_leaves_it_done_or_not() {
    let mut durable = BTreeSet::new();
    for seed in 0..SEED_COUNT {
        let storage = SimStorage::new(seed);
        let file = create_durable(&storage, "/a", b"old");
        file.write_all_at(b"new", 0).unwrap();
        storage.crash_inside(storage.mutation_count());
        file.sync().unwrap_err();
        durable.insert(contents(&storage.crash(CrashMode::DropAll, 0), "/a").unwrap());
    }
    assert_eq!(durable, BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
}
