//! Reading a log that somebody else writes.

use std::time::Duration;

use super::*;
use crate::base::SystemClock;
use crate::storage::{Guard, GuardOptions, GuardedStorage, Registration};
use crate::wal::record::MARK_SIZE;

/// What is there and what is durable of it, as a follower takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Everything,
    WhatIsDurable,
}

fn take(follower: &mut LogFollower, taking: Taking) -> Result<(Records, FollowedLog)> {
    let mut records = Records::new();
    let read = follower.read_on(Lsn::MAX, &mut |record| {
        if taking == Taking::WhatIsDurable && record.end > record.durable_up_to {
            return Ok(Offered::Left);
        }
        records.push((record.lsn, record.payload.to_vec()));
        Ok(Offered::Taken)
    })?;
    assert_eq!(read.records, records.len() as u64);
    Ok((records, read))
}

fn follower_of(place: &WalPlace) -> LogFollower {
    LogFollower::new(place.clone(), Lsn::ZERO)
}

#[test]
fn what_is_not_durable_is_told_from_what_is() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut follower = follower_of(&place);
    let one = append(&mut wal, &payload_of(1, 40));
    let (records, read) = take(&mut follower, Taking::WhatIsDurable).unwrap();
    assert_eq!((records.len(), read.bytes_left), (0, one.end.bytes_since(Lsn::ZERO)));
    // Synced, and nothing says so yet.
    let synced = wal.sync_target().run().unwrap();
    assert_eq!(take(&mut follower, Taking::WhatIsDurable).unwrap().0.len(), 0);
    wal.complete_sync(synced);
    let (records, read) = take(&mut follower, Taking::WhatIsDurable).unwrap();
    assert_eq!((payloads(&records), read.bytes_left), (vec![payload_of(1, 40)], 0));
    assert_eq!(follower.position(), one.end);
    let two = append(&mut wal, &payload_of(2, 40));
    assert_eq!(two.start, one.end.plus(MARK_SIZE));
    assert_eq!(take(&mut follower, Taking::WhatIsDurable).unwrap().0.len(), 0);
    let (records, read) = take(&mut follower, Taking::Everything).unwrap();
    assert_eq!((payloads(&records), read.bytes_left), (vec![payload_of(2, 40)], 0));
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().1, FollowedLog::default());
}

/// A commit was appended while the sync ran, and nothing comes behind it.
#[test]
fn that_a_commit_is_durable_is_told_though_the_next_one_is_not() {
    for is_followed in [false, true] {
        let below: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let clock = Arc::new(SystemClock::new());
        let options = GuardOptions { slow_after: Duration::from_secs(1), reserve: 0 };
        let guard = Arc::new(Guard::new(Path::new("/"), clock.clone(), options));
        let place =
            place_in(Arc::new(GuardedStorage::new(Arc::clone(&below), guard)), SMALL_CAPACITY);
        let register = || Registration::new(&below, Path::new("/"), &*clock).unwrap();
        let _registration = is_followed.then(register);
        let mut wal = Wal::create(place.clone()).unwrap();
        let mut follower = follower_of(&place);
        append(&mut wal, &payload_of(1, 40));
        let ticket = wal.sync_target();
        append(&mut wal, &payload_of(2, 40));
        let synced = ticket.run().unwrap();
        wal.complete_sync(synced);
        let (records, read) = take(&mut follower, Taking::WhatIsDurable).unwrap();
        let expected = if is_followed { vec![payload_of(1, 40)] } else { vec![] };
        assert_eq!(payloads(&records), expected);
        assert!(read.bytes_left > 0);
        // There is room for the mark of the last one, however full the file is.
        for number in 3..60 {
            append(&mut wal, &payload_of(number, 8 + number % 7 * 8));
            let ticket = wal.sync_target();
            append(&mut wal, &payload_of(number, 40));
            let synced = ticket.run().unwrap();
            wal.complete_sync(synced);
            sync(&mut wal);
            let read = take(&mut follower, Taking::WhatIsDurable).unwrap().1;
            assert_eq!(read.bytes_left, 0, "{number}");
        }
        drop(wal);
        assert_eq!(recover(&place, Lsn::ZERO).unwrap().1.len(), 2 + 2 * 57);
    }
}

#[test]
fn a_log_is_followed_over_files_and_recoveries() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let (mut all, mut durable) = (follower_of(&place), follower_of(&place));
    let (mut written, mut seen, mut seen_durable) = (Vec::new(), Vec::new(), Vec::new());
    let mut synced_count = 0;
    for step in 0..300 {
        let payload = payload_of(step, 8 + step * 37 % 300);
        append(&mut wal, &payload);
        written.push(payload);
        if step % 3 == 1 {
            sync(&mut wal);
            synced_count = written.len();
        }
        if step % 17 == 11 {
            drop(wal);
            wal = recover(&place, Lsn::ZERO).unwrap().0; // All of it is durable then.
            synced_count = written.len();
        }
        if step % 5 == 2 {
            seen.extend(payloads(&take(&mut all, Taking::Everything).unwrap().0));
            assert_eq!(seen, written, "step {step}");
        }
        if step % 7 == 3 {
            seen_durable.extend(payloads(&take(&mut durable, Taking::WhatIsDurable).unwrap().0));
            assert_eq!(seen_durable, written[..synced_count], "step {step}");
        }
    }
}

#[test]
fn who_begins_in_the_middle_sees_the_rest() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut expected = Records::new();
    for number in 0..40 {
        let payload = payload_of(number, 8 + number * 13 % 120);
        expected.push((append(&mut wal, &payload).start, payload));
    }
    sync(&mut wal);
    for from in 0..40 {
        let mut follower = LogFollower::new(place.clone(), expected[from].0);
        let (records, _) = take(&mut follower, Taking::WhatIsDurable).unwrap();
        assert_eq!(records, expected[from..]);
    }
}

#[test]
fn what_was_taken_and_is_lost_is_told() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(1, 40));
    sync(&mut wal);
    let lost = append(&mut wal, &payload_of(2, 40));
    let mut follower = follower_of(&place);
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().0.len(), 2);
    let mut careful = follower_of(&place);
    assert_eq!(take(&mut careful, Taking::WhatIsDurable).unwrap().0.len(), 1);
    drop(wal);
    // As if a sync had failed, and the system dropped what it was to carry over.
    overwrite(&place, 1, 4096 + lost.start.as_u64(), &[0; 72]);
    let (mut wal, records) = recover(&place, Lsn::ZERO).unwrap();
    assert_eq!(records.len(), 1);
    append(&mut wal, &payload_of(3, 200));
    sync(&mut wal);
    assert!(matches!(take(&mut follower, Taking::Everything), Err(Error::WentBack { .. })));
    let (records, _) = take(&mut careful, Taking::WhatIsDurable).unwrap();
    assert_eq!(payloads(&records), [payload_of(3, 200)]);
}

#[test]
fn damage_shows_when_the_log_goes_on_behind_it() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut follower = follower_of(&place);
    append(&mut wal, &payload_of(1, 100));
    let damaged = append(&mut wal, &payload_of(2, 100));
    flip(&place, 1, 4096 + damaged.start.as_u64() + 50, 3);
    let (records, _) = take(&mut follower, Taking::Everything).unwrap();
    assert_eq!(records.len(), 1, "it may be about to be written");
    for number in 3..8 {
        append(&mut wal, &payload_of(number, 100));
    }
    let taken = take(&mut follower, Taking::Everything).map(|(records, _)| records);
    assert_damaged(taken, &place, 1, 4096 + damaged.start.as_u64());
}

#[test]
fn damage_shows_when_the_log_says_that_it_was_durable() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(1, 40));
    sync(&mut wal);
    let mut follower = follower_of(&place);
    assert_eq!(take(&mut follower, Taking::WhatIsDurable).unwrap().0.len(), 1);
    let damaged = append(&mut wal, &payload_of(2, 40));
    append(&mut wal, &payload_of(3, 40));
    flip(&place, 1, 4096 + damaged.start.as_u64() + 40, 3);
    assert_eq!(take(&mut follower, Taking::WhatIsDurable).unwrap().0.len(), 0);
    sync(&mut wal);
    append(&mut wal, &payload_of(4, 40));
    for mut follower in [follower, follower_of(&place)] {
        let taken = take(&mut follower, Taking::WhatIsDurable).map(|(records, _)| records);
        assert_damaged(taken, &place, 1, 4096 + damaged.start.as_u64());
    }
}

#[test]
fn a_log_whose_files_went_is_told_from_one_that_has_not_gone_on() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut follower = follower_of(&place);
    append(&mut wal, &payload_of(0, 100));
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().0.len(), 1);
    for number in 1..40 {
        append(&mut wal, &payload_of(number, 100));
        sync(&mut wal);
        wal.release(wal.end());
    }
    assert!(take(&mut follower, Taking::Everything).is_err());
}

#[test]
fn files_without_records_are_passed() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut follower = follower_of(&place);
    append(&mut wal, &payload_of(1, 40));
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().0.len(), 1);
    drop(wal);
    let mut wal = recover(&place, Lsn::ZERO).unwrap().0;
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().0.len(), 0);
    // It does not fit into the file that the recovery has begun.
    append(&mut wal, &payload_of(2, 4000));
    let (records, _) = take(&mut follower, Taking::Everything).unwrap();
    assert_eq!(payloads(&records), [payload_of(2, 4000)]);
    append(&mut wal, &payload_of(3, 40));
    sync(&mut wal);
    let (records, _) = take(&mut follower, Taking::WhatIsDurable).unwrap();
    assert_eq!(payloads(&records), [payload_of(3, 40)]);
}

#[test]
fn a_damaged_header_in_the_middle_is_not_taken_for_the_end() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut follower = follower_of(&place);
    append(&mut wal, &payload_of(0, 100));
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().0.len(), 1);
    for number in 1..20 {
        append(&mut wal, &payload_of(number, 100));
        sync(&mut wal);
    }
    let header = overwrite_header(&place, 2);
    let taken = take(&mut follower, Taking::Everything).map(|(records, _)| records);
    assert_damaged(taken, &place, 2, 0);
    overwrite(&place, 2, 0, &header);
    assert_eq!(take(&mut follower, Taking::Everything).unwrap().0.len(), 19);
}

/// Wipes the header of a file, and gives back what it was.
fn overwrite_header(place: &WalPlace, number: u64) -> Vec<u8> {
    let mut header = vec![0; 4096];
    let file = place.open(number, OpenMode::ReadOnly).unwrap();
    file.read_exact_at(&mut header, 0).unwrap();
    overwrite(place, number, 0, &[0; 4096]);
    header
}
