//! Reading in parts, beside reading one after the other: whatever the tests read is read in both
//! ways.

use std::cell::Cell;
use std::ops::Range;

use super::*;

/// Room for a few small records.
const PART_SIZE: u64 = 512;

/// Remembers the records of its part.
#[derive(Default)]
struct Taker {
    records: Records,
    has_ended: bool,
    refused: Vec<Lsn>,
}

impl RecordVisitor for Taker {
    fn take(&mut self, record: &RecordRef<'_>) -> Result<()> {
        if self.refused.contains(&record.lsn) {
            let what = format!("refused at {}", record.lsn);
            return Err(Error::corruption(record.file, record.offset, what));
        }
        self.records.push((record.lsn, record.payload.to_vec()));
        Ok(())
    }

    fn end(&mut self) {
        assert!(!self.has_ended);
        self.has_ended = true;
    }
}

/// Reads in parts, and refuses some records.
fn read_in_parts(
    place: &WalPlace,
    records: Range<Lsn>,
    parting: Parting,
    refused: &[Lsn],
) -> Result<(Replay, Vec<Records>)> {
    let (made, bytes) = (Cell::new(0), Cell::new(0));
    let last = Cell::new(false);
    let visitor = |part: PartPlace| {
        assert!(!last.replace(part.is_last));
        made.set(made.get() + 1);
        bytes.set(bytes.get() + part.bytes);
        Taker { refused: refused.to_vec(), ..Taker::default() }
    };
    let (replay, takers) = replay_in_parts(place, records.clone(), parting, &visitor)?;
    assert!(last.get() && takers.len() <= made.get());
    assert!(bytes.get() >= replay.recovered().end.bytes_since(records.start), "of the last more");
    assert!(takers.iter().all(|taker| taker.has_ended));
    Ok((replay, takers.into_iter().map(|taker| taker.records).collect()))
}

/// As many parts as there may be.
fn many(threads: usize) -> Parting {
    Parting { part_size: PART_SIZE, parts_max: 20, threads }
}

/// What reading has come to, if reading in parts comes to the same: with that it can be gone on. Of
/// calls that fail once the one that failed in either.
pub(super) fn is_the_same(
    place: &WalPlace,
    from: Lsn,
    read: Result<Replay>,
    records: &Records,
) -> Result<Replay> {
    let a_call_failed = |error: &Error| matches!(error, Error::Io { .. } | Error::DiskFull { .. });
    if read.as_ref().is_err_and(a_call_failed) {
        return read;
    }
    match (read, read_in_parts(place, from..Lsn::MAX, many(1), &[])) {
        (_, Err(error)) if a_call_failed(&error) => Err(error),
        (Ok(replay), Ok((in_parts, parts))) => {
            // How calls follow each other does not matter then.
            match read_in_parts(place, from..Lsn::MAX, many(3), &[]) {
                Ok((by_threads, _)) => assert_eq!(by_threads.recovered(), in_parts.recovered()),
                Err(error) => assert!(a_call_failed(&error), "{error}"),
            }
            assert_eq!(in_parts.recovered(), replay.recovered());
            assert_eq!(in_parts.durable_up_to, replay.durable_up_to);
            assert_eq!(in_parts.chain, replay.chain);
            assert_eq!(parts.concat(), *records);
            Ok(in_parts)
        }
        (Err(error), Err(in_parts)) => {
            assert_eq!(in_parts.to_string(), error.to_string());
            Err(in_parts)
        }
        (one, other) => {
            let (one, other) = (one.map(drop), other.map(drop));
            panic!("{one:?}, and in parts {other:?}");
        }
    }
}

/// A log of many files, all durable, and its records.
fn long_log() -> (WalPlace, Records) {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    for number in 0..200 {
        append(&mut wal, &payload_of(number, 8 + number * 13 % 120));
    }
    sync(&mut wal);
    drop(wal);
    let records = read(&place).unwrap();
    assert_eq!(records.len(), 200);
    (place, records)
}

#[test]
fn parts_are_about_equally_long_and_read_by_threads_or_one_after_the_other() {
    let (place, records) = long_log();
    for (threads, parts_max) in [(1, 1), (1, 3), (3, 3), (2, 8), (9, 5)] {
        let parting = Parting { part_size: PART_SIZE, parts_max, threads };
        let (_, parts) = read_in_parts(&place, Lsn::ZERO..Lsn::MAX, parting, &[]).unwrap();
        assert_eq!(parts.concat(), records);
        assert_eq!(parts.len(), parts_max);
        let fair = records.len() / parts_max;
        assert!(parts.iter().all(|part| (fair / 2..2 * fair).contains(&part.len())));
    }
    let parting = Parting { part_size: 1 << 20, parts_max: 2, threads: 2 };
    let (_, parts) = read_in_parts(&place, Lsn::ZERO..Lsn::MAX, parting, &[]).unwrap();
    assert_eq!(parts, [records], "it is too short to be parted");
}

#[test]
fn behind_a_large_file_no_part_is_small() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(0, 100_000));
    for number in 1..40 {
        append(&mut wal, &payload_of(number, 100));
    }
    drop(wal);
    let parting = Parting { part_size: 10_000, parts_max: 20, threads: 1 };
    let (_, parts) = read_in_parts(&place, Lsn::ZERO..Lsn::MAX, parting, &[]).unwrap();
    // Of the large file there may be some room for others.
    assert!(parts.len() == 2 && parts[1].len() > 20, "{:?}", parts.iter().map(Vec::len));
}

#[test]
fn a_refusal_is_told_in_whatever_part_it_is_and_a_log_is_read_from_anywhere() {
    let (place, records) = long_log();
    for (index, (lsn, _)) in records.iter().enumerate() {
        for threads in [1, 3] {
            let whole = Lsn::ZERO..Lsn::MAX;
            let refused = read_in_parts(&place, whole, many(threads), &[*lsn]).unwrap_err();
            assert!(refused.to_string().ends_with(&format!("refused at {lsn}")), "{refused}");
            let behind = read_in_parts(&place, *lsn..Lsn::MAX, many(threads), &[]).unwrap();
            assert_eq!(behind.1.concat(), records[index..]);
        }
    }
    // Of two the first, whichever is met first.
    let both = [records[40].0, records[160].0];
    for _ in 0..20 {
        let error = read_in_parts(&place, Lsn::ZERO..Lsn::MAX, many(4), &both).unwrap_err();
        assert!(error.to_string().ends_with(&format!("refused at {}", both[0])), "{error}");
    }
}

#[test]
fn a_limit_in_what_was_durable_is_damage_and_in_other_parts_takes_all_behind_it() {
    let (place, records) = long_log();
    for (lsn, _) in records.iter().step_by(7) {
        let error = read_in_parts(&place, Lsn::ZERO..*lsn, many(2), &[]).unwrap_err();
        let what = format!("no valid record at {lsn}, but the log was durable up to");
        assert!(error.is_corruption() && error.to_string().contains(&what), "{error}");
    }
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let starts: Vec<Lsn> =
        (0..60).map(|number| append(&mut wal, &payload_of(number, 100)).start).collect();
    drop(wal);
    // As if a value that the record points to were not there, of which nobody says it was durable.
    for (index, lost) in starts.iter().enumerate().skip(1) {
        for threads in [1, 3] {
            let read = read_in_parts(&place, Lsn::ZERO..*lost, many(threads), &[]);
            let (replay, parts) = read.unwrap();
            assert_eq!(parts.concat().len(), index);
            assert_eq!(replay.recovered().end, *lost);
        }
    }
}
