//! Tests of the log as a whole.

mod append;
mod crash;
mod damage;
mod faults;
mod files;
mod follow;
mod history;
mod image;
mod in_parts;
mod salvage;
mod torn;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::storage::{MemoryStorage, OpenMode, Storage};

use super::*;

const DATABASE_ID: u64 = 0x00D1_5EA5;
/// Header block and a few small records.
const SMALL_CAPACITY: u64 = 4096 + 512;

type Records = Vec<(Lsn, Vec<u8>)>;

fn place_in(storage: Arc<dyn Storage>, file_capacity: u64) -> WalPlace {
    let dir = PathBuf::from("/wal");
    storage.create_dir_all(&dir).unwrap();
    let options =
        WalOptions { file_capacity, spare_files_max: 2, kept_bytes_max: 0, held_from: Lsn::MAX };
    WalPlace { storage, dir, database_id: DATABASE_ID, options }
}

fn memory_place(file_capacity: u64) -> WalPlace {
    place_in(Arc::new(MemoryStorage::new()), file_capacity)
}

/// Reads the log, and hands out what the visitor saw; in parts it is the same.
fn read_from(place: &WalPlace, from: Lsn) -> Result<(Replay, Records)> {
    let mut records = Records::new();
    let replay = replay(place, from, &mut |record| {
        records.push((record.lsn, record.payload.to_vec()));
        Ok(())
    });
    let replay = in_parts::is_the_same(place, from, replay, &records)?;
    assert_eq!(replay.recovered().record_count, records.len() as u64);
    Ok((replay, records))
}

fn read(place: &WalPlace) -> Result<Records> {
    Ok(read_from(place, Lsn::ZERO)?.1)
}

/// Reads the log and resumes it.
fn recover(place: &WalPlace, from: Lsn) -> Result<(Wal, Records)> {
    let (replay, records) = read_from(place, from)?;
    Ok((Wal::resume(place.clone(), &replay)?, records))
}

fn append(wal: &mut Wal, payload: &[u8]) -> Appended {
    wal.append(&[payload]).unwrap()
}

fn sync(wal: &mut Wal) {
    let ticket = wal.sync_target();
    let synced = ticket.run().unwrap();
    wal.complete_sync(synced);
}

/// A payload that tells its number.
fn payload_of(number: usize, len: usize) -> Vec<u8> {
    let mut payload = (number as u64).to_le_bytes().to_vec();
    payload.resize(len.max(8), number as u8);
    payload
}

fn payloads(records: &Records) -> Vec<Vec<u8>> {
    records.iter().map(|(_, payload)| payload.clone()).collect()
}

/// Every file of the directory with its bytes.
fn contents(place: &WalPlace) -> Vec<(PathBuf, Vec<u8>)> {
    let names = place.storage.list_dir(&place.dir).unwrap();
    let read = |name: &str| {
        let path = place.dir.join(name);
        let file = place.storage.open(&path, OpenMode::ReadOnly).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (path, bytes)
    };
    names.iter().map(|entry| read(&entry.name)).collect()
}

/// The same log in another storage.
fn copy_of(place: &WalPlace, files: &[(PathBuf, Vec<u8>)]) -> WalPlace {
    let copy = memory_place(place.options.file_capacity);
    for (path, bytes) in files {
        write_file(&copy, path, bytes);
    }
    copy
}

fn write_file(place: &WalPlace, path: &Path, bytes: &[u8]) {
    let file = place.storage.open(path, OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// Overwrites bytes of file `number`.
fn overwrite(place: &WalPlace, number: u64, offset: u64, bytes: &[u8]) {
    let file = place.open(number, OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn flip(place: &WalPlace, number: u64, offset: u64, bit: u32) {
    let file = place.open(number, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, offset).unwrap();
}

/// Asserts that reading fails because `file` is damaged at `offset`.
fn assert_damaged(outcome: Result<Records>, place: &WalPlace, number: u64, offset: u64) {
    match outcome {
        Err(Error::Corruption { file, offset: found, .. }) => {
            assert_eq!((file, found), (place.path_of(number), offset));
        }
        other => panic!("expected damage in file {number} at {offset}, not {other:?}"),
    }
}
