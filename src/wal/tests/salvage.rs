//! Reading logs that are damaged.

use super::*;
use crate::wal::header::{FileHeader, HEADER_BLOCK_SIZE};

/// Payloads with where they are told to be, and what was told of the log.
fn salvaged(place: &WalPlace, from: Option<Lsn>) -> (Vec<(Vec<u8>, RecordPlace)>, SalvagedLog) {
    let mut found = Vec::new();
    let log = salvage_log(place, from, &mut |record, at| {
        found.push((record.payload.to_vec(), at));
        Ok(())
    });
    (found, log.unwrap())
}

/// Thirty durable records over some files.
fn log_of_thirty() -> (WalPlace, Vec<Vec<u8>>) {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let all: Vec<Vec<u8>> = (1..31).map(|number| payload_of(number, 60)).collect();
    for payload in &all {
        append(&mut wal, payload);
    }
    sync(&mut wal);
    assert!(wal.stats().file_count > 3);
    (place, all)
}

fn in_order(payloads: &[Vec<u8>]) -> Vec<(Vec<u8>, RecordPlace)> {
    payloads.iter().map(|payload| (payload.clone(), RecordPlace::InOrder)).collect()
}

fn behind(payloads: &[Vec<u8>]) -> Vec<(Vec<u8>, RecordPlace)> {
    payloads.iter().map(|payload| (payload.clone(), RecordPlace::BehindDamage)).collect()
}

#[test]
fn a_sound_log_is_read_as_ever() {
    let (place, all) = log_of_thirty();
    for from in [Some(Lsn::ZERO), None] {
        let (found, log) = salvaged(&place, from);
        assert_eq!(found, in_order(&all));
        assert_eq!(log.damage, Vec::new());
    }
}

#[test]
fn records_behind_a_damaged_one_are_told_to_be() {
    for number in [0, 11, 24] {
        let (place, all) = log_of_thirty();
        for (path, bytes) in contents(&place) {
            let at = bytes.windows(60).position(|window| window == all[number].as_slice());
            let Some(at) = at else { continue };
            let file = place.storage.open(&path, OpenMode::ReadWrite).unwrap();
            file.write_all_at(b"damage", at as u64 + 20).unwrap();
        }
        let (found, log) = salvaged(&place, Some(Lsn::ZERO));
        assert_eq!(found, [in_order(&all[..number]), behind(&all[number + 1..])].concat());
        let breaks = log.damage.iter().filter(|damage| damage.breaks).count();
        assert_eq!(breaks, 1, "{number}: {:?}", log.damage);
    }
}

#[test]
fn a_missing_file_is_told_and_what_follows_is_behind_it_if_it_is_needed() {
    let (place, all) = log_of_thirty();
    let files = contents(&place);
    for (number, (missing, _)) in files.iter().enumerate() {
        let copy = copy_of(&place, &files);
        copy.storage.remove_file(missing).unwrap();
        for from in [Some(Lsn::ZERO), None] {
            let (found, log) = salvaged(&copy, from);
            let whole: Vec<&Vec<u8>> = found.iter().map(|(payload, _)| payload).collect();
            assert!(whole.is_sorted() && whole.iter().all(|payload| all.contains(payload)));
            assert!(found.len() < all.len(), "file {number}");
            let breaks = log.damage.iter().any(|damage| damage.breaks);
            // Nothing says that there was a last file, nor where the log is needed from.
            let first_known = usize::from(from.is_none());
            let is_known = (first_known..files.len() - 1).contains(&number);
            assert!(breaks || !is_known, "file {number}, from {from:?}");
            if from.is_none() {
                assert!(found.iter().all(|(_, at)| *at == RecordPlace::InOrder), "file {number}");
            }
        }
    }
}

/// A recovery that was interrupted has cut a file off and not removed it yet.
#[test]
fn a_file_that_was_cut_off_is_none_of_the_log() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let kept: Vec<Vec<u8>> = (0..3).map(|number| payload_of(number, 40)).collect();
    for payload in &kept {
        append(&mut wal, payload);
    }
    sync(&mut wal);
    drop(wal);
    let files = contents(&place);
    let dead = copy_of(&place, &files);
    let (mut wal, _) = recover(&dead, Lsn::ZERO).unwrap();
    append(&mut wal, b"cut off");
    drop(wal);
    let dead = contents(&dead).into_iter().find(|(path, _)| *path == place.path_of(2)).unwrap();

    write_file(&place, &place.path_of(2), &vec![0; SMALL_CAPACITY as usize]);
    let (mut wal, _) = recover(&place, Lsn::ZERO).unwrap();
    append(&mut wal, b"instead");
    sync(&mut wal);
    drop(wal);
    write_file(&place, &dead.0, &dead.1);
    let expected = [kept, vec![b"instead".to_vec()]].concat();
    let (found, log) = salvaged(&place, None);
    assert_eq!(found, in_order(&expected));
    assert_eq!(log.damage, Vec::new());
}

/// Everything in front was given back, and the last file says by its header how far the log was.
#[test]
fn a_log_without_records_ends_where_its_last_file_starts() {
    let (place, _) = log_of_thirty();
    let start_of = |bytes: &[u8]| {
        let header = FileHeader::copies(&bytes[..HEADER_BLOCK_SIZE as usize]).remove(0).header;
        header.map(|header| header.start)
    };
    let files = contents(&place);
    let started = files.into_iter().filter_map(|(path, bytes)| {
        let start = start_of(&bytes)?;
        Some((start, path, bytes))
    });
    let (start, path, mut bytes) = started.max_by_key(|(start, ..)| *start).unwrap();
    assert!(start > Lsn::ZERO);
    bytes[HEADER_BLOCK_SIZE as usize..].fill(0);
    let place = copy_of(&place, &[(path, bytes)]);
    let (found, log) = salvaged(&place, None);
    assert!(found.is_empty() && log.damage.is_empty(), "{:?}", log.damage);
    assert_eq!(log.end, start);
}

#[test]
fn a_log_of_which_nothing_is_there_is_damage() {
    let place = memory_place(SMALL_CAPACITY);
    for from in [Some(Lsn::ZERO), None] {
        let (found, log) = salvaged(&place, from);
        assert!(found.is_empty() && log.damage.iter().any(|damage| damage.breaks));
    }
}

#[test]
fn files_say_whose_the_log_is() {
    let (place, _) = log_of_thirty();
    let files = contents(&place).len();
    assert_eq!(databases_of(&place), vec![DATABASE_ID; files]);
}
