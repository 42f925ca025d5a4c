//! Damage in what was durable.

use super::*;
use crate::wal::survey::FoundFile;

/// What a byte of the log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A record that starts at this offset.
    Record(u64),
    Nothing,
}

/// A log of several files, all of it durable and with a mark at its end.
fn durable_log() -> (WalPlace, Records) {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    for number in 0..14 {
        append(&mut wal, &payload_of(number, 30 + number * 11 % 100));
        if number % 3 == 1 {
            sync(&mut wal);
        }
    }
    sync(&mut wal);
    let records = read(&place).unwrap();
    (place, records)
}

/// The records of file `number`, marks included: offset, end without padding, kind.
fn layout(place: &WalPlace, number: u64) -> Vec<(u64, u64, record::RecordKind)> {
    let mut file = FoundFile::open(place, number).unwrap();
    let start = file.valid_header().unwrap().start;
    let (mut offset, mut found) = (4096, Vec::new());
    while let Some(record) = file.record_at(start, offset).unwrap() {
        found.push((offset, offset + 32 + record.length, record.kind));
        offset += record.size();
    }
    found
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let (place, records) = durable_log();
    let numbers = place.numbers().unwrap();
    assert!(numbers.len() >= 3);
    let newest = *numbers.last().unwrap();
    let mut found_count = 0;
    for number in numbers {
        let layout = layout(&place, number);
        for offset in 0..SMALL_CAPACITY {
            let owner = layout.iter().find(|(start, end, _)| (*start..*end).contains(&offset));
            let last_mark = number == newest && owner == layout.last();
            let owner = owner.map_or(Owner::Nothing, |(start, _, _)| Owner::Record(*start));
            for bit in 0..8 {
                flip(&place, number, offset, bit);
                let outcome = read(&place);
                match owner {
                    Owner::Record(start) if !last_mark => {
                        assert_damaged(outcome, &place, number, start);
                        found_count += 1;
                    }
                    _ => assert_eq!(outcome.unwrap(), records, "file {number}, byte {offset}"),
                }
                flip(&place, number, offset, bit);
            }
        }
    }
    assert!(found_count > 5000);
    assert_eq!(read(&place).unwrap(), records);
}

#[test]
fn a_lost_header_is_found() {
    let (place, _) = durable_log();
    for number in place.numbers().unwrap() {
        for filler in [0x00, 0xDB] {
            let copy = copy_of(&place, &contents(&place));
            overwrite(&copy, number, 0, &[filler; 4096]);
            assert_damaged(read(&copy), &copy, number, 0);
        }
    }
}

#[test]
fn a_lost_file_is_found() {
    let (place, records) = durable_log();
    let numbers = place.numbers().unwrap();
    for number in &numbers[..numbers.len() - 1] {
        let copy = copy_of(&place, &contents(&place));
        copy.remove(&copy.path_of(*number)).unwrap();
        assert_damaged(read(&copy), &copy, *number, 0);
    }
    // What is not needed any more may be missing.
    let copy = copy_of(&place, &contents(&place));
    copy.remove(&copy.path_of(1)).unwrap();
    let second_file = FoundFile::open(&place, 2).unwrap().valid_header().unwrap().start;
    let kept: Records = records.iter().filter(|(lsn, _)| *lsn >= second_file).cloned().collect();
    assert_eq!(read_from(&copy, second_file).unwrap().1, kept);
}

/// W12: of the newest file nothing is left that could say that it was there.
#[test]
fn a_lost_newest_file_is_found() {
    for ending in 0..3 {
        let (place, _) = durable_log();
        if ending > 0 {
            let mut wal = recover(&place, Lsn::ZERO).unwrap().0;
            append(&mut wal, &payload_of(50, 40));
            sync(&mut wal);
            if ending > 1 {
                wal.begin_new_file().unwrap();
            }
        }
        let records = read(&place).unwrap();
        let newest = *place.numbers().unwrap().last().unwrap();
        let copy = copy_of(&place, &contents(&place));
        copy.remove(&copy.path_of(newest)).unwrap();
        assert_damaged(read(&copy), &copy, newest, 0);
        for len in [0, 100, 5000, SMALL_CAPACITY + 1] {
            let copy = copy_of(&place, &contents(&place));
            copy.open(newest, OpenMode::ReadWrite).unwrap().set_len(len).unwrap();
            assert_damaged(read(&copy), &copy, newest, len.min(SMALL_CAPACITY));
        }
        assert_eq!(read(&place).unwrap(), records);
    }
}

/// W12: both have their size, and neither has a header of its own, as one that was never used.
#[test]
fn a_newest_file_that_has_changed_names_with_an_older_one_is_found() {
    let (place, _) = durable_log();
    let numbers = place.numbers().unwrap();
    let (newest, in_front) = (numbers[numbers.len() - 1], numbers[numbers.len() - 2]);
    let required_from = FoundFile::open(&place, in_front).unwrap().valid_header().unwrap().start;
    let files = contents(&place);
    let bytes_of = |number| &files.iter().find(|file| file.0 == place.path_of(number)).unwrap().1;
    for older in &numbers[..numbers.len() - 2] {
        let copy = copy_of(&place, &files);
        overwrite(&copy, newest, 0, bytes_of(*older));
        overwrite(&copy, *older, 0, bytes_of(newest));
        let outcome = read_from(&copy, required_from).map(|read| read.1);
        assert_damaged(outcome, &copy, newest, 0);
    }
}

/// A recovery that is interrupted before its header is durable does not take the name away from the
/// file that the log was to go on in.
#[test]
fn a_file_that_never_had_a_header_is_not_taken_for_a_lost_one() {
    let (place, _) = durable_log();
    let count = place.numbers().unwrap().len() + 1; // Recovery begins one.
    let mut wal = recover(&place, Lsn::ZERO).unwrap().0;
    while place.numbers().unwrap().len() == count {
        append(&mut wal, &payload_of(60, 40)); // Not synced.
    }
    drop(wal);
    let records = read(&place).unwrap();
    let newest = *place.numbers().unwrap().last().unwrap();
    let kept: Records = {
        let start = FoundFile::open(&place, newest).unwrap().valid_header().unwrap().start;
        records.iter().filter(|(lsn, _)| *lsn < start).cloned().collect()
    };
    for filler in 0..3 {
        let copy = copy_of(&place, &contents(&place));
        overwrite(&copy, newest, 0, &vec![0; SMALL_CAPACITY as usize]);
        for _ in 0..=filler {
            let (wal, read) = recover(&copy, Lsn::ZERO).unwrap();
            assert_eq!(read, kept);
            drop(wal);
        }
        let replaced = *copy.numbers().unwrap().last().unwrap();
        assert!(replaced > newest);
        copy.remove(&copy.path_of(replaced)).unwrap();
        assert_damaged(super::read(&copy), &copy, replaced, 0);
    }
}

#[test]
fn a_file_of_the_wrong_size_is_found() {
    let (place, _) = durable_log();
    for len in [5000, SMALL_CAPACITY - 1, SMALL_CAPACITY + 1, 10_000] {
        let copy = copy_of(&place, &contents(&place));
        let file = copy.open(2, OpenMode::ReadWrite).unwrap();
        file.set_len(len).unwrap();
        assert_damaged(read(&copy), &copy, 2, len.min(SMALL_CAPACITY));
    }
}

#[test]
fn records_in_the_wrong_place_are_found() {
    let (place, _) = durable_log();
    let files = contents(&place);
    // Two files exchanged, and one file's records in the place of another's.
    let copy = copy_of(&place, &[]);
    write_file(&copy, &files[0].0, &files[1].1);
    write_file(&copy, &files[1].0, &files[0].1);
    write_file(&copy, &files[2].0, &files[2].1);
    assert!(read(&copy).unwrap_err().is_corruption());

    let copy = copy_of(&place, &files);
    overwrite(&copy, 2, 4096, &files[0].1[4096..]);
    assert_damaged(read(&copy), &copy, 2, 4096);
}

#[test]
fn a_log_of_another_database_is_refused() {
    let (place, _) = durable_log();
    let other = WalPlace { database_id: 9, ..place };
    let error = read(&other).unwrap_err();
    assert!(error.to_string().contains("belongs to the database"), "{error}");
}

#[test]
fn an_empty_directory_is_no_log() {
    let place = memory_place(SMALL_CAPACITY);
    assert!(read(&place).unwrap_err().is_corruption());
    write_file(&place, &place.path_of(3), &[0; 4608]);
    assert!(read(&place).unwrap_err().is_corruption());
}

#[test]
fn damage_before_what_is_needed_does_not_matter() {
    let (place, records) = durable_log();
    let fifth = records[5].0;
    flip(&place, 1, 4096 + 40, 1);
    assert!(read(&place).is_err());
    assert_eq!(read_from(&place, fifth).unwrap().1, records[5..]);
}

#[test]
fn after_a_recovery_all_that_it_kept_counts_as_durable() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, b"never synced by the writer");
    drop(wal);
    drop(recover(&place, Lsn::ZERO).unwrap());
    flip(&place, 1, 4096 + 40, 1);
    assert_damaged(read(&place), &place, 1, 4096);
}

#[test]
fn recycled_files_do_not_show_their_old_records() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    // Equal records, so that old and new ones lie at the same offsets.
    for _ in 0..40 {
        let appended = append(&mut wal, &payload_of(1, 64));
        sync(&mut wal);
        wal.release(appended.start);
    }
    let last = append(&mut wal, &payload_of(2, 64));
    drop(wal);
    let (replay, records) = read_from(&place, last.start).unwrap();
    assert_eq!(records, [(last.start, payload_of(2, 64))]);
    assert_eq!(replay.recovered().truncated_bytes, 0);
}
