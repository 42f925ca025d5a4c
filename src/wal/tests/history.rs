//! Reading a log that is open, and what is kept for it.

use super::*;
use crate::wal::record::{MARK_SIZE, RecordKind};
use crate::wal::survey::FoundFile;

fn keeping_place(kept_files: u64) -> WalPlace {
    let mut place = memory_place(SMALL_CAPACITY);
    place.options.kept_bytes_max = kept_files * SMALL_CAPACITY;
    place
}

fn rest_of(mut reader: RecordReader) -> Result<Records> {
    let mut records = Records::new();
    while let Some(record) = reader.next_record()? {
        records.push((record.lsn, record.payload.to_vec()));
    }
    Ok(records)
}

/// All that the log has up to its end.
fn kept(wal: &Wal) -> Records {
    rest_of(wal.reader(wal.end())).unwrap()
}

/// Appends `count` records and syncs and releases behind each.
fn write_on(wal: &mut Wal, written: &mut Records, count: usize) {
    for _ in 0..count {
        let payload = payload_of(written.len(), 8 + written.len() * 13 % 120);
        let appended = append(wal, &payload);
        written.push((appended.start, payload));
        sync(wal);
        wal.release(appended.end);
    }
}

#[test]
fn what_is_kept_is_a_gapless_end_of_the_log_within_its_bytes() {
    let place = keeping_place(4);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    for _ in 0..80 {
        write_on(&mut wal, &mut written, 1);
        let found = kept(&wal);
        assert_eq!(found, written[written.len() - found.len()..]);
        let stats = wal.stats();
        assert!(stats.kept_bytes <= 4 * SMALL_CAPACITY, "{stats:?}");
        let file_count = stats.file_count + stats.kept_count + stats.spare_count;
        assert_eq!(file_count, contents(&place).len());
        assert_eq!(stats.disk_bytes, file_count as u64 * SMALL_CAPACITY);
    }
    assert_eq!(wal.stats().kept_count, 4);
    assert!(kept(&wal).len() > 12 && kept(&wal).len() < 80);
}

#[test]
fn nothing_is_kept_unless_asked_for() {
    let mut wal = Wal::create(memory_place(SMALL_CAPACITY)).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 40);
    assert_eq!(wal.stats().kept_count, 0);
    let found = kept(&wal);
    assert!(found.len() < 12, "what is left is in the last file");
    assert_eq!(found, written[written.len() - found.len()..]);
}

#[test]
fn what_is_kept_survives_reopening_and_goes_when_it_is_not_wanted() {
    let place = keeping_place(4);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 60);
    for _ in 0..6 {
        let (before, end) = (kept(&wal), wal.end());
        drop(wal);
        let (reopened, records) = recover(&place, end).unwrap();
        assert_eq!(records, [], "recovery reads nothing of it");
        wal = reopened;
        let after = kept(&wal);
        assert_eq!(after, written[written.len() - after.len()..]);
        assert!(after.len() + 12 >= before.len(), "one file at most has made room");
        write_on(&mut wal, &mut written, 1);
    }
    let end = wal.end();
    drop(wal);
    let mut place = place;
    place.options.kept_bytes_max = 0;
    let (wal, _) = recover(&place, end).unwrap();
    assert_eq!(wal.stats().kept_count, 0);
    assert!(kept(&wal).len() < 12, "what is left is in the last file with records");
}

#[test]
fn a_gap_ends_what_is_kept() {
    let place = keeping_place(8);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 60);
    assert_eq!(wal.stats().kept_count, 8);
    let end = wal.end();
    drop(wal);
    let numbers = place.numbers().unwrap();
    let lost = wal_numbers_in_use(&place, &numbers)[4];
    place.remove(&place.path_of(lost)).unwrap();
    let (wal, _) = recover(&place, end).unwrap();
    let found = kept(&wal);
    assert!(!found.is_empty() && wal.stats().kept_count < 8);
    assert_eq!(found, written[written.len() - found.len()..]);
    assert!(!place.numbers().unwrap().contains(&lost));
}

/// The files that hold records, lowest first.
fn wal_numbers_in_use(place: &WalPlace, numbers: &[u64]) -> Vec<u64> {
    let has_header =
        |number: &u64| FoundFile::open(place, *number).unwrap().valid_header().is_some();
    numbers.iter().copied().filter(has_header).collect()
}

#[test]
fn files_are_not_overwritten_while_they_are_read() {
    let place = keeping_place(2);
    let mut wal = Wal::create(place).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 30);
    let expected = kept(&wal);
    let reader = wal.reader(wal.end());
    write_on(&mut wal, &mut written, 100);
    assert!(wal.stats().kept_count > 10, "held by the reader");
    assert_eq!(rest_of(reader).unwrap(), expected);
    write_on(&mut wal, &mut written, 1);
    assert!(wal.stats().kept_count <= 2, "let go");
}

#[test]
fn a_reader_ends_where_it_was_told_and_begins_where_it_is_sent() {
    let place = keeping_place(100);
    let mut wal = Wal::create(place).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 50);
    for (index, (start, payload)) in written.iter().enumerate() {
        assert_eq!(rest_of(wal.reader(*start)).unwrap(), written[..index]);
        let mut reader = wal.reader(wal.end());
        let number = payload[..8].to_vec();
        // Numbers are little-endian and below 256.
        reader.skip_files(&mut |first| Ok(first.payload[..8] <= number[..])).unwrap();
        let found = rest_of(reader).unwrap();
        assert!(found.len() >= written.len() - index, "it is not behind the record");
        assert!(found.len() <= written.len() - index + 12, "nor more than a file in front");
        assert_eq!(found, written[written.len() - found.len()..]);
    }
}

#[test]
fn damage_in_what_is_kept_is_found_by_reading_and_not_by_recovery() {
    let place = keeping_place(100);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 30);
    flip(&place, 1, 4096 + 33, 3);
    match rest_of(wal.reader(wal.end())) {
        Err(Error::Corruption { file, offset, .. }) => {
            assert_eq!((file, offset), (place.path_of(1), 4096));
        }
        other => panic!("expected damage, not {other:?}"),
    }
    let end = wal.end();
    drop(wal);
    recover(&place, end).unwrap();
}

/// Two marks behind a commit, as there are when somebody reads beside: of a sync in front of it,
/// that was done when it was appended already, and of its own.
fn append_with_two_marks(wal: &mut Wal, number: usize) -> Appended {
    let appended = append(wal, &payload_of(number, 8));
    wal.write_record(RecordKind::Mark, 0, &[]).unwrap();
    sync(wal);
    assert_eq!(wal.end().bytes_since(appended.end), 2 * MARK_SIZE);
    appended
}

/// Reads what is behind `reader`, up to `end`; how many records it is.
fn read_on(wal: &Wal, reader: &mut RecordReader, end: Lsn) -> usize {
    assert!(wal.extend(reader, end), "what is behind it is kept");
    let mut count = 0;
    while reader.next_record().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn marks_in_front_of_what_is_kept_are_not_taken_for_commits() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut reader = wal.reader(Lsn::ZERO);
    let last = append_with_two_marks(&mut wal, 0);
    assert_eq!(read_on(&wal, &mut reader, last.end), 1);
    // More than is left in the file: the next one begins behind the marks.
    let next = append(&mut wal, &payload_of(1, 440));
    sync(&mut wal);
    wal.release(next.start);
    assert_eq!((wal.stats().file_count, wal.stats().kept_count), (1, 0));
    assert!(wal.has_all_from(last.end) && !wal.has_all_from(last.start));
    assert_eq!(read_on(&wal, &mut reader, next.end), 1);
    // A commit is missing, however short it is.
    let mut behind = reader.start_of_file();
    let short = append_with_two_marks(&mut wal, 2);
    let next = append(&mut wal, &payload_of(3, 440));
    sync(&mut wal);
    wal.release(next.start);
    assert!(!wal.extend(&mut behind, next.end));
    assert_eq!(read_on(&wal, &mut wal.reader(next.end), next.end), 1);
    assert!(wal.has_all_from(short.end));

    // What recovery finds at the end are marks as well.
    let last = append_with_two_marks(&mut wal, 4);
    drop(wal);
    let (mut wal, _) = recover(&place, next.start).unwrap();
    let next = append(&mut wal, &payload_of(5, 8));
    sync(&mut wal);
    wal.release(next.start);
    assert_eq!(wal.stats().file_count, 1);
    assert!(wal.has_all_from(last.end) && !wal.has_all_from(last.start));
}

#[test]
fn new_files_without_commits_are_not_taken_for_commits() {
    let mut wal = Wal::create(memory_place(SMALL_CAPACITY)).unwrap();
    let mut reader = wal.reader(Lsn::ZERO);
    let last = append(&mut wal, &payload_of(0, 8));
    sync(&mut wal);
    assert_eq!(read_on(&wal, &mut reader, last.end), 1);
    for _ in 0..5 {
        let (_, start) = wal.begin_new_file().unwrap();
        sync(&mut wal);
        wal.release(start);
        assert_eq!(wal.stats().file_count, 1);
        assert!(wal.has_all_from(last.end) && !wal.has_all_from(last.start));
    }
    let next = append(&mut wal, &payload_of(1, 8));
    assert_eq!(read_on(&wal, &mut reader, next.end), 1);
}
