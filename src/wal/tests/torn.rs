//! Tails that were never durable.

use super::*;

/// Three durable records and two that are not; returns also where the latter start.
fn log_with_unsynced_tail() -> (WalPlace, Records, Vec<Lsn>) {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut starts = Vec::new();
    for number in 0..3 {
        append(&mut wal, &payload_of(number, 40));
    }
    sync(&mut wal);
    for number in 3..5 {
        starts.push(append(&mut wal, &payload_of(number, 50)).start);
    }
    starts.push(wal.end());
    let records = read(&place).unwrap();
    (place, records, starts)
}

#[test]
fn a_tail_cut_at_any_byte_is_cut_off_and_the_log_goes_on() {
    let (place, records, starts) = log_with_unsynced_tail();
    let files = contents(&place);
    let (first, end) = (starts[0].as_u64(), starts[2].as_u64());
    for (cut, filler) in (first..end).flat_map(|cut| [(cut, 0x00), (cut, 0xFF)]) {
        let torn = copy_of(&place, &files);
        let tail = vec![filler; (end - cut) as usize];
        overwrite(&torn, 1, 4096 + cut, &tail);
        let (replay, found) = read_from(&torn, Lsn::ZERO).unwrap();
        // Six bytes of padding at the end carry nothing.
        let whole = starts[1..].iter().filter(|end| cut + 6 >= end.as_u64()).count();
        assert_eq!(found, records[..3 + whole], "cut at {cut}");
        let recovered = replay.recovered().clone();
        assert_eq!(recovered.end, starts[whole]);
        assert_eq!(recovered.end_place, (place.path_of(1), 4096 + starts[whole].as_u64()));

        let mut wal = Wal::resume(torn.clone(), &replay).unwrap();
        let more = append(&mut wal, b"more");
        drop(wal);
        let mut expected = found;
        expected.push((more.start, b"more".to_vec()));
        assert_eq!(read(&torn).unwrap(), expected);
    }
}

#[test]
fn truncated_bytes_count_what_was_written_behind_the_cut() {
    let (place, _, starts) = log_with_unsynced_tail();
    assert_eq!(read_from(&place, Lsn::ZERO).unwrap().0.recovered().truncated_bytes, 0);
    flip(&place, 1, 4096 + starts[0].as_u64() + 40, 3);
    let (replay, _) = read_from(&place, Lsn::ZERO).unwrap();
    let recovered = replay.recovered();
    assert_eq!(recovered.truncated_bytes, starts[2].bytes_since(starts[0]));
    assert_eq!(recovered.end_place, (place.path_of(1), 4096 + starts[0].as_u64()));
}

#[test]
fn what_was_cut_off_never_comes_back() {
    let (place, records, starts) = log_with_unsynced_tail();
    // The fourth record is torn, the fifth is whole.
    flip(&place, 1, 4096 + starts[0].as_u64() + 40, 3);
    for round in 0..5 {
        let (wal, found) = recover(&place, Lsn::ZERO).unwrap();
        assert_eq!(found, records[..3], "round {round}");
        drop(wal);
    }
    // A record of the same length puts the old fifth record where the log would go on.
    let (mut wal, _) = recover(&place, Lsn::ZERO).unwrap();
    let other = append(&mut wal, &payload_of(77, 50));
    assert_eq!(other.end, starts[1]);
    sync(&mut wal);
    drop(wal);
    let (_, found) = recover(&place, Lsn::ZERO).unwrap();
    assert_eq!(found.len(), 4);
    assert_eq!(found[3], (starts[0], payload_of(77, 50)));
}

#[test]
fn whole_files_above_a_torn_one_are_cut_off_and_do_not_come_back() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(0, 100));
    sync(&mut wal);
    let torn = append(&mut wal, &payload_of(1, 100));
    for number in 2..20 {
        append(&mut wal, &payload_of(number, 100));
    }
    drop(wal);
    let count = place.numbers().unwrap().len();
    assert!(count > 4);
    flip(&place, 1, 4096 + torn.start.as_u64() + 50, 0);
    let expected = [(Lsn::ZERO, payload_of(0, 100))];
    for _ in 0..3 {
        let (wal, records) = recover(&place, Lsn::ZERO).unwrap();
        assert_eq!(records, expected);
        assert_eq!(wal.end(), torn.start);
        assert_eq!(wal.stats().file_count, 2);
    }
    // Even if the newest header is lost, which nothing durable depends on.
    let newest = place.numbers().unwrap().pop().unwrap();
    overwrite(&place, newest, 0, &[0xAA; 4096]);
    assert_eq!(read(&place).unwrap(), expected);
}

#[test]
fn a_torn_header_below_a_whole_one_cuts_off_both() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    for number in 0..3 {
        append(&mut wal, &payload_of(number, 100));
    }
    sync(&mut wal);
    let kept = read(&place).unwrap();
    for number in 3..12 {
        append(&mut wal, &payload_of(number, 100));
    }
    drop(wal);
    assert!(place.numbers().unwrap().len() >= 4);
    for filler in [0x00, 0xAB] {
        let torn = copy_of(&place, &contents(&place));
        overwrite(&torn, 2, 0, &[filler; 4096]);
        for _ in 0..3 {
            let (wal, records) = recover(&torn, Lsn::ZERO).unwrap();
            assert_eq!(records, kept);
            drop(wal);
        }
    }
}

#[test]
fn a_newest_file_that_was_never_finished_is_ignored() {
    let (place, records, _) = log_with_unsynced_tail();
    let files = contents(&place);
    let leftovers: [Vec<u8>; 5] =
        [vec![], vec![0; 100], vec![0; 4096], vec![0; SMALL_CAPACITY as usize], vec![0xEE; 4608]];
    for leftover in leftovers {
        let copy = copy_of(&place, &files);
        write_file(&copy, &copy.path_of(2), &leftover);
        let (wal, found) = recover(&copy, Lsn::ZERO).unwrap();
        assert_eq!(found, records);
        drop(wal);
        assert_eq!(read(&copy).unwrap(), records);
    }
}
