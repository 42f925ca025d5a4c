//! Reading a log that is open, and what is kept for it.

use super::*;
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
