//! The value log by itself: what is written is read back or refused, files live as long as somebody
//! holds them, and what a power cut takes was not synced.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{CHUNK_LEN, FILE_HEADER_LEN, RECORD_HEADER_LEN, RecordHeader, seal_record};
use super::read::{WHOLE_LEN_MAX, read_record};
use super::{FilesWriter, Mover, StagedValues, ValueFile, ValueLog};
use super::{ValueLogOptions, ValueReader};
use super::{ValueStream, Verify};
use crate::base::{Error, Result, ValuePointer};
use crate::cache::MemoryBudget;
use crate::storage::{
    CrashMode, DirEntry, FaultEffect, FaultPlan, FaultRule, MemoryStorage, OpenMode, Operation,
    SimStorage, Storage, StorageFile, StorageLock,
};

const DIR: &str = "/db/values";
const FILE_SIZE: u64 = 4096;

fn open_in(storage: &Arc<dyn Storage>) -> Arc<ValueLog> {
    open_verifying(storage, Verify::Checksums)
}

fn open_verifying(storage: &Arc<dyn Storage>, verify: Verify) -> Arc<ValueLog> {
    storage.create_dir_all(Path::new("/db")).unwrap();
    let options = ValueLogOptions { file_size: FILE_SIZE, verify, writer: FilesWriter::Own };
    let budget = MemoryBudget::new(1 << 20);
    Arc::new(ValueLog::open(Arc::clone(storage), PathBuf::from(DIR), 7, options, budget).unwrap())
}

fn fresh() -> (Arc<dyn Storage>, Arc<ValueLog>) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let log = open_in(&storage);
    log.finish_opening().unwrap();
    (storage, log)
}

/// A value that says which one it is.
fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (number.wrapping_mul(31) + at * 7 + at / 251) as u8).collect()
}

fn append(log: &ValueLog, values: &[Vec<u8>]) -> Result<(Vec<ValuePointer>, Arc<ValueFile>)> {
    let mut staged = StagedValues::default();
    let pointers: Vec<_> = values.iter().map(|value| staged.push(1, value)).collect();
    let appended = log.append(&mut staged)?;
    let placed = |pointer: ValuePointer| ValuePointer {
        file: appended.file.number(),
        offset: appended.offset + pointer.offset,
        ..pointer
    };
    Ok((pointers.into_iter().map(placed).collect(), appended.file))
}

fn stream(log: &Arc<ValueLog>, value: &[u8], piece: usize) -> (ValuePointer, Arc<ValueFile>) {
    let mut stream = ValueStream::begin(log, 1).unwrap();
    value.chunks(piece).for_each(|piece| stream.push(piece).unwrap());
    assert_eq!(stream.len(), value.len() as u64);
    stream.finish().unwrap()
}

fn path_of(number: u64) -> PathBuf {
    Path::new(DIR).join(format!("val-{number:08}"))
}

#[test]
fn values_of_any_length_are_read_back_whole_and_in_parts() {
    let (_, log) = fresh();
    let lens = [0, 1, 7, 8, 100, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1, 3 * CHUNK_LEN, 200_001];
    let values: Vec<Vec<u8>> = lens.iter().zip(1..).map(|(len, n)| value(n, *len)).collect();
    let (mut pointers, file) = append(&log, &values).unwrap();
    let streamed: Vec<_> = values.iter().map(|value| stream(&log, value, 777)).collect();
    pointers.extend(streamed.iter().map(|(pointer, _)| *pointer));
    for (pointer, value) in pointers.iter().zip(values.iter().chain(&values)) {
        assert_eq!(&*log.read(&pointer.encode()).unwrap(), value.as_slice());
        log.verify(pointer, Verify::Hash).unwrap();
        let mut reader = ValueReader::open(&log, pointer).unwrap();
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(read, *value);
        for at in [0, value.len() / 2, value.len().saturating_sub(3), value.len() + 9] {
            reader.seek(SeekFrom::Start(at as u64)).unwrap();
            read.clear();
            reader.read_to_end(&mut read).unwrap();
            assert_eq!(read, value[at.min(value.len())..]);
        }
        assert!(reader.seek(SeekFrom::End(-(value.len() as i64) - 1)).is_err());
    }
    assert!(pointers[0].file == file.number());
}

#[test]
fn the_example_of_the_format_page_is_what_is_written() {
    let (storage, log) = fresh();
    let (pointers, _held) = append(&log, &[b"hello".to_vec()]).unwrap();
    let mut record = [0; 56];
    let file = storage.open(&path_of(1), OpenMode::ReadOnly).unwrap();
    file.read_exact_at(&mut record, 40).unwrap();
    let page = include_str!("../../docs/format/values.md");
    let example = page.split("## Example").nth(1).unwrap();
    let lines = example.lines().filter_map(|line| line.strip_prefix("    "));
    let bytes: Vec<u8> = lines
        .flat_map(|line| line.split("    ").next().unwrap_or("").split_whitespace())
        .map_while(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    let written = [&record[..], &pointers[0].encode()].concat();
    assert!(bytes == written, "{written:02x?}");
}

#[test]
fn streamed_and_staged_records_are_the_same_but_for_their_place() {
    let (_, log) = fresh();
    let value = value(9, 2 * CHUNK_LEN + 5);
    let (staged, _held) = append(&log, std::slice::from_ref(&value)).unwrap();
    let (streamed, _also_held) = stream(&log, &value, CHUNK_LEN);
    assert_eq!((streamed.len, streamed.hash), (staged[0].len, staged[0].hash));
    let record = |at| read_record(&log.file_of(at).unwrap(), at, log.budget.heap()).unwrap();
    let (one, other) = (record(&staged[0]), record(&streamed));
    assert_eq!((one.layout, one.value()), (other.layout, other.value()));
}

#[test]
fn a_file_goes_when_nobody_holds_it_and_its_number_does_not_come_back() {
    let (storage, log) = fresh();
    let (_, first) = append(&log, &[value(1, 5000)]).unwrap();
    let (pointers, second) = append(&log, &[value(2, 5000)]).unwrap();
    assert_ne!(first.number(), second.number(), "a full file is not appended to");
    log.sync().unwrap(); // What is to be synced is held.
    log.close_files();
    let number = first.number();
    drop(first);
    assert_eq!(log.remove_unreferenced(|| false).files, 0);
    assert!(storage.exists(&path_of(number)).unwrap(), "not while it is in doubt");
    drop(second);
    assert_eq!(log.remove_unreferenced(|| true).files, 1);
    assert!(!storage.exists(&path_of(pointers[0].file)).unwrap());
    let error = log.read(&pointers[0].encode()).unwrap_err();
    assert!(error.to_string().contains("val-00000002 is damaged at offset 0: the value file is"));
    let (_, third) = append(&log, &[value(3, 10)]).unwrap();
    assert_eq!(third.number(), 3);
}

#[test]
fn opening_removes_what_nobody_refers_to_and_refuses_what_is_missing() {
    let (storage, log) = fresh();
    let (kept, _a) = append(&log, &[value(1, 5000)]).unwrap();
    let (orphan, _b) = append(&log, &[value(2, 5000)]).unwrap();
    let log = open_in(&storage);
    let _held = log.hold(kept[0].file);
    assert_eq!(log.finish_opening().unwrap().files, 1);
    assert!(!storage.exists(&path_of(orphan[0].file)).unwrap());
    assert_eq!(&*log.read(&kept[0].encode()).unwrap(), value(1, 5000).as_slice());

    let log = open_in(&storage);
    let _absent = log.hold(orphan[0].file);
    assert!(log.finish_opening().unwrap_err().is_corruption());
    let log = open_in(&storage);
    drop(log.hold(77));
    log.finish_opening().unwrap();
    let (next, _c) = append(&log, &[value(3, 10)]).unwrap();
    assert_eq!(next[0].file, 78, "a number that was referred to is not given again");
}

#[test]
fn every_flipped_bit_of_a_record_is_refused_with_file_and_offset() {
    let (storage, log) = fresh();
    let (pointers, _held) = append(&log, &[value(1, 150), value(2, 150)]).unwrap();
    let file = storage.open(&path_of(1), OpenMode::ReadWrite).unwrap();
    let start = pointers[1].offset;
    for bit in 0..(RECORD_HEADER_LEN as u64 + 150) * 8 {
        let (offset, mask) = (start + bit / 8, 1 << (bit % 8));
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ mask], offset).unwrap();
        let error = log.read(&pointers[1].encode()).unwrap_err();
        let Error::Corruption { file: path, offset: told, .. } = &error else { panic!("{error}") };
        assert_eq!((path.as_path(), *told), (path_of(1).as_path(), start));
        assert!(ValueReader::open(&log, &pointers[1]).map_or(true, |mut reader| {
            let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
            error.kind() == ErrorKind::InvalidData
        }));
        file.write_all_at(&byte, offset).unwrap();
    }
    assert_eq!(&*log.read(&pointers[1].encode()).unwrap(), value(2, 150).as_slice());
    assert_eq!(&*log.read(&pointers[0].encode()).unwrap(), value(1, 150).as_slice());
}

#[test]
fn a_damaged_piece_of_a_long_value_leaves_the_others_readable() {
    let (storage, log) = fresh();
    let long = value(1, 4 * CHUNK_LEN);
    let (pointers, _held) = append(&log, std::slice::from_ref(&long)).unwrap();
    let file = storage.open(&path_of(1), OpenMode::ReadWrite).unwrap();
    let value_at = pointers[0].offset + RECORD_HEADER_LEN as u64;
    file.write_all_at(b"damage", value_at + 2 * CHUNK_LEN as u64 + 10).unwrap();
    assert!(log.read(&pointers[0].encode()).unwrap_err().is_corruption());
    let mut reader = ValueReader::open(&log, &pointers[0]).unwrap();
    let mut half = vec![0; 2 * CHUNK_LEN];
    reader.read_exact(&mut half).unwrap();
    assert_eq!(half, long[..2 * CHUNK_LEN]);
    assert_eq!(reader.read(&mut half).unwrap_err().kind(), ErrorKind::InvalidData);
    reader.seek(SeekFrom::Start(3 * CHUNK_LEN as u64)).unwrap();
    reader.read_exact(&mut half[..CHUNK_LEN]).unwrap();
    assert_eq!(half[..CHUNK_LEN], long[3 * CHUNK_LEN..]);
}

#[test]
fn another_value_another_place_or_too_long_a_value_is_refused_before_memory_is_taken() {
    let (storage, log) = fresh();
    let (pointers, _held) = append(&log, &[value(1, 200), value(2, 200)]).unwrap();
    let (one, other) = (pointers[0], pointers[1]);
    for wrong in [
        ValuePointer { offset: other.offset, ..one },
        ValuePointer { hash: other.hash, ..one },
        ValuePointer { len: 199, ..one },
        ValuePointer { len: u32::MAX, ..one },
        ValuePointer { offset: ValuePointer::PLACE_MAX, ..one },
        ValuePointer { file: 9, ..one },
    ] {
        assert!(log.read(&wrong.encode()).unwrap_err().is_corruption(), "{wrong:?}");
        assert!(ValueReader::open(&log, &wrong).is_err());
    }
    assert!(log.read(b"no pointer").unwrap_err().is_corruption());
    // The record moved to another offset, as by a misdirected write.
    let file = storage.open(&path_of(1), OpenMode::ReadWrite).unwrap();
    let mut record = vec![0; (other.offset - one.offset) as usize];
    file.read_exact_at(&mut record, one.offset).unwrap();
    file.write_all_at(&record, other.offset).unwrap();
    assert!(log.read(&other.encode()).unwrap_err().is_corruption());
}

#[test]
fn what_was_synced_survives_a_power_cut_and_its_name_too() {
    for mode in CrashMode::ALL {
        let sim = SimStorage::new(3);
        let storage: Arc<dyn Storage> = Arc::new(sim.clone());
        let log = open_in(&storage);
        sim.sync_dir(Path::new("/")).unwrap();
        let (synced, _a) = append(&log, &[value(1, 3000)]).unwrap();
        let (streamed, _b) = stream(&log, &value(2, 100_000), 5000);
        log.sync().unwrap();
        let (lost, _c) = append(&log, &[value(3, 3000)]).unwrap();
        let left: Arc<dyn Storage> = Arc::new(sim.crash(mode, 5));
        let log = open_in(&left);
        let _held = [log.hold(synced[0].file), log.hold(streamed.file)];
        log.verify(&synced[0], Verify::Hash).unwrap();
        log.verify(&streamed, Verify::Hash).unwrap();
        match log.read(&lost[0].encode()) {
            Ok(read) => assert_eq!(*read, *value(3, 3000)),
            Err(error) => assert!(error.is_corruption(), "{error}"),
        }
    }
}

/// A disk whose directories cannot be synced without a panic.
#[derive(Debug)]
struct Panicking(SimStorage);

impl Storage for Panicking {
    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<Arc<dyn StorageFile>> {
        self.0.open(path, mode)
    }

    fn create_dir_all(&self, path: &Path) -> std::io::Result<()> {
        self.0.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        self.0.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> std::io::Result<()> {
        self.0.remove_dir(path)
    }

    fn list_dir(&self, path: &Path) -> std::io::Result<Vec<DirEntry>> {
        self.0.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        panic!("{} is not synced", path.display())
    }

    fn lock(&self, path: &Path) -> std::io::Result<Box<dyn StorageLock>> {
        self.0.lock(path)
    }

    fn exists(&self, path: &Path) -> std::io::Result<bool> {
        self.0.exists(path)
    }
}

/// V5: nor is one tried again that did not come to its end.
#[test]
fn behind_a_sync_that_has_panicked_nothing_is_taken_for_durable() {
    let storage: Arc<dyn Storage> = Arc::new(Panicking(SimStorage::new(3)));
    let log = open_in(&storage);
    let (_pointers, _held) = append(&log, &[value(1, 3000)]).unwrap();
    let sync = || log.sync();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(sync)).unwrap_err();
    assert!(log.has_failed());
    for _ in 0..2 {
        assert!(matches!(log.sync(), Err(Error::ReadOnly { .. })));
    }
}

#[test]
fn values_that_were_read_back_are_made_durable_by_writing_them_again() {
    let sim = SimStorage::new(4);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let log = open_in(&storage);
    sim.sync_dir(Path::new("/")).unwrap();
    let (pointers, _a) = append(&log, &[value(1, 9000), value(2, 70_000)]).unwrap();
    let rule = FaultRule::new(FaultEffect::Error(ErrorKind::Other)).on(&[Operation::Sync]);
    sim.arm(FaultPlan::new().rule(rule));
    assert!(log.sync().is_err(), "the data is lost, and the disk says nothing the next time");
    sim.disarm();
    assert!(matches!(log.sync(), Err(Error::ReadOnly { .. })));
    let killed = sim.crash(CrashMode::KeepAll, 0);
    let left: Arc<dyn Storage> = Arc::new(killed.clone());
    let log = open_in(&left);
    log.make_durable(&pointers).unwrap();
    let left: Arc<dyn Storage> = Arc::new(killed.crash(CrashMode::DropAll, 0));
    let log = open_in(&left);
    for pointer in &pointers {
        log.verify(pointer, Verify::Hash).unwrap();
    }
}

#[test]
fn a_full_disk_refuses_a_value_and_takes_the_next_one() {
    let sim = SimStorage::new(5);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let log = open_in(&storage);
    let (first, _a) = append(&log, &[value(1, 1000)]).unwrap();
    sim.set_capacity(sim.allocated_bytes());
    let refused = append(&log, &[value(2, 100_000)]).unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    sim.set_capacity(u64::MAX);
    let (second, _b) = append(&log, &[value(3, 1000)]).unwrap();
    assert_eq!(second[0].file, first[0].file);
    assert_eq!(&*log.read(&first[0].encode()).unwrap(), value(1, 1000).as_slice());
    assert_eq!(&*log.read(&second[0].encode()).unwrap(), value(3, 1000).as_slice());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn a_mover_takes_values_out_of_its_files_and_leaves_what_is_damaged() {
    let (storage, log) = fresh();
    let values: Vec<Vec<u8>> = (0..4).map(|number| value(number, 2000)).collect();
    let (pointers, victim) = append(&log, &values).unwrap();
    let (elsewhere, _other) = append(&log, &[value(9, 50)]).unwrap();
    let file = storage.open(&path_of(1), OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"damage", pointers[2].offset + 100).unwrap();
    let mut mover = Mover::new(&log, [victim.number()].into());
    assert_eq!(mover.moved(&elsewhere[0]).unwrap(), None);
    assert_eq!(mover.moved(&pointers[2]).unwrap(), None);
    let moved = mover.moved(&pointers[1]).unwrap().unwrap();
    mover.finish_slice().unwrap();
    assert_ne!(moved.file, victim.number());
    assert_eq!((moved.len, moved.hash), (pointers[1].len, pointers[1].hash));
    assert_eq!(&*log.read(&moved.encode()).unwrap(), values[1].as_slice());
    assert_eq!((mover.values(), mover.bytes()), (1, 2048));
}

#[test]
fn an_aborted_stream_leaves_nothing_that_is_read() {
    let (_, log) = fresh();
    let mut aborted = ValueStream::begin(&log, 1).unwrap();
    aborted.push(&value(1, 300_000)).unwrap();
    drop(aborted);
    assert_eq!(log.remove_unreferenced(|| true).files, 1);
    let (pointer, file) = stream(&log, &value(2, 10), 3);
    assert_eq!(pointer.offset, FILE_HEADER_LEN);
    assert_eq!(file.size(), FILE_HEADER_LEN + 64);
}

#[test]
fn files_of_others_in_the_directory_are_left_alone() {
    let (storage, log) = fresh();
    let (_, held) = append(&log, &[value(1, 10)]).unwrap();
    let names = ["val-00000000", "val-18446744073709551615", "val-1099511627776", "val-7", "notes"];
    for name in names {
        let path = Path::new(DIR).join(name);
        storage.open(&path, OpenMode::CreateNew).unwrap().write_all_at(b"mine", 0).unwrap();
    }
    storage.create_dir_all(&Path::new(DIR).join("val-00000009")).unwrap();
    drop((log, held));
    let log = open_in(&storage);
    assert_eq!(log.finish_opening().unwrap().files, 1, "the one that is ours");
    assert_eq!(append(&log, &[value(2, 10)]).unwrap().0[0].file, 2);
    for name in names {
        assert!(storage.exists(&Path::new(DIR).join(name)).unwrap(), "{name}");
    }
}

#[test]
fn when_the_numbers_are_used_up_no_value_is_written_any_more() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let log = open_in(&storage);
    drop(log.hold(ValuePointer::PLACE_MAX - 1)); // something out of date
    log.finish_opening().unwrap();
    let (last, _held) = append(&log, &[value(1, 5000)]).unwrap();
    assert_eq!(last[0].file, ValuePointer::PLACE_MAX);
    assert_eq!(&*log.read(&last[0].encode()).unwrap(), value(1, 5000).as_slice());
    for _ in 0..2 {
        let error = append(&log, &[value(2, 5000)]).unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    }
}

/// A value with the checksums of its own bytes, and the hash of others.
fn with_wrong_hash(
    storage: &Arc<dyn Storage>,
    log: &ValueLog,
    len: usize,
) -> (ValuePointer, Arc<ValueFile>) {
    let mut staged = StagedValues::default();
    let pointer = staged.push(1, &value(1, len));
    let appended = log.append(&mut staged).unwrap();
    let file = storage.open(&path_of(appended.file.number()), OpenMode::ReadWrite).unwrap();
    let mut record = vec![0; super::record_len(len as u64) as usize];
    file.read_exact_at(&mut record, appended.offset).unwrap();
    record[RECORD_HEADER_LEN + len / 2] ^= 1;
    let header = RecordHeader { len: len as u64, hash: pointer.hash, sum: 0, keyspace: 1 };
    seal_record(&mut record, appended.file.place_at(appended.offset), header);
    file.write_all_at(&record, appended.offset).unwrap();
    let (file, offset) = (appended.file.number(), appended.offset);
    (ValuePointer { file, offset, ..pointer }, appended.file)
}

#[test]
fn readers_that_verify_the_hash_find_what_checksums_cannot() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let log = open_verifying(&storage, Verify::Hash);
    for len in [100, CHUNK_LEN, 3 * CHUNK_LEN + 9, WHOLE_LEN_MAX as usize + 1] {
        let good = value(1, len);
        let (pointer, _held) = stream(&log, &good, 9999);
        assert_eq!(&*log.read(&pointer.encode()).unwrap(), good.as_slice());
        let mut read = Vec::new();
        ValueReader::open(&log, &pointer).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == good);

        let (wrong, _also_held) = with_wrong_hash(&storage, &log, len);
        log.verify(&wrong, Verify::Checksums).unwrap();
        assert!(log.verify(&wrong, Verify::Hash).unwrap_err().is_corruption());
        let error = log.read(&wrong.encode()).unwrap_err();
        assert!(error.to_string().contains("does not have its hash"), "{error}");
        let mut reader = ValueReader::open(&log, &wrong).unwrap();
        read.clear();
        assert_eq!(reader.read_to_end(&mut read).unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(read.len() < len, "the last piece was not given out");
        reader.rewind().unwrap();
        assert!(reader.read_to_end(&mut read).is_err(), "nor the second time");
    }
}

#[test]
fn a_long_value_is_moved_in_pieces_and_a_damaged_one_leaves_no_trace() {
    let (storage, log) = fresh();
    let long = value(1, 2 * WHOLE_LEN_MAX as usize + 77);
    let (sound, _a) = stream(&log, &long, 50_000);
    let (damaged, _b) = stream(&log, &long, 50_000);
    let file = storage.open(&path_of(damaged.file), OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"damage", damaged.offset + 1_500_000).unwrap();
    let mut mover = Mover::new(&log, [sound.file, damaged.file].into());
    assert_eq!(mover.moved(&damaged).unwrap(), None);
    let moved = mover.moved(&sound).unwrap().unwrap();
    assert_eq!(moved.offset, FILE_HEADER_LEN, "what the damaged one left is written over");
    assert_eq!((moved.len, moved.hash), (sound.len, sound.hash));
    assert!(*log.read(&moved.encode()).unwrap() == *long);
    assert_eq!(log.verify(&moved, Verify::Hash).unwrap(), super::record_len(long.len() as u64));
    assert_eq!(mover.values(), 1);
}

#[test]
fn values_are_moved_together_in_few_writes_over_several_files() {
    let sim = SimStorage::new(7);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let log = open_in(&storage);
    let values: Vec<Vec<u8>> = (0..600).map(|number| value(number, 1000)).collect();
    let (pointers, victim) = append(&log, &values).unwrap();
    let mut mover = Mover::new(&log, [victim.number()].into());
    let before = sim.count_of(Operation::Write);
    let mut moved: Vec<ValuePointer> = Vec::new();
    for (number, pointer) in pointers.iter().enumerate() {
        moved.push(mover.moved(pointer).unwrap().unwrap());
        if number == 300 {
            // What is written in between goes behind what was gathered.
            moved.push(mover.place(1, &value(1000, 500)).unwrap());
        }
    }
    mover.finish_slice().unwrap();
    let files: BTreeSet<u64> = moved.iter().map(|pointer| pointer.file).collect();
    assert!(files.len() > 2 && !files.contains(&victim.number()), "{files:?}");
    let writes = sim.count_of(Operation::Write) - before;
    // A header and what was gathered, for each file; and those of the one in between.
    assert!(writes <= 2 * files.len() as u64 + 5, "{writes} writes, {} files", files.len());
    let in_between = moved.remove(301);
    assert_eq!(&*log.read(&in_between.encode()).unwrap(), value(1000, 500).as_slice());
    for (moved, value) in moved.iter().zip(&values) {
        assert_eq!(&*log.read(&moved.encode()).unwrap(), value.as_slice());
    }
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn moving_to_a_full_disk_changes_nothing_and_goes_on_when_there_is_room() {
    for len in [3000, 2 * WHOLE_LEN_MAX as usize] {
        let sim = SimStorage::new(6);
        let storage: Arc<dyn Storage> = Arc::new(sim.clone());
        let log = open_in(&storage);
        let (pointers, _a) = append(&log, &[value(1, len), value(2, len)]).unwrap();
        let mut mover = Mover::new(&log, [pointers[0].file].into());
        let first = mover.moved(&pointers[0]).unwrap().unwrap();
        sim.set_capacity(sim.allocated_bytes());
        // Short ones are gathered.
        let moved = mover.moved(&pointers[1]);
        let refused = moved.and_then(|_| mover.finish_slice()).unwrap_err();
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        sim.set_capacity(u64::MAX);
        let second = mover.moved(&pointers[1]).unwrap().unwrap();
        mover.finish_slice().unwrap();
        for (moved, number) in [(first, 1), (second, 2)] {
            assert!(*log.read(&moved.encode()).unwrap() == *value(number, len));
        }
        for (pointer, number) in pointers.iter().zip([1, 2]) {
            assert!(*log.read(&pointer.encode()).unwrap() == *value(number, len));
        }
        assert_eq!(sim.violations(), Vec::<String>::new());
    }
}

#[test]
fn what_a_mover_takes_back_gives_its_room_back_and_what_was_held_stays() {
    let sim = SimStorage::new(8);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let log = open_in(&storage);
    let mut mover = Mover::new(&log, [].into());
    let kept = mover.place(1, &value(1, 500)).unwrap();
    let held = log.find(kept.file).unwrap();
    mover.note_held();
    let (before, size) = (sim.allocated_bytes(), held.size());
    for (number, len) in [(2, 3800), (3, 5000), (4, 100)] {
        mover.place(1, &value(number, len)).unwrap();
    }
    sim.set_capacity(sim.allocated_bytes() + CHUNK_LEN as u64);
    let refused = mover.place(1, &value(5, 3 * CHUNK_LEN)).unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    assert!(sim.allocated_bytes() > before + 5000);
    mover.take_back();
    // Two files more were begun, and have a header.
    assert_eq!(sim.allocated_bytes(), before + 2 * 4096);
    assert_eq!(held.size(), size);
    drop(mover);
    sim.set_capacity(u64::MAX);
    let mut next = Mover::new(&log, [].into());
    let written: Vec<_> =
        (6..12).map(|number| (next.place(1, &value(number, 900)).unwrap(), number)).collect();
    next.finish_slice().unwrap();
    for (pointer, number) in written {
        assert_eq!(&*log.read(&pointer.encode()).unwrap(), value(number, 900).as_slice());
        assert!(pointer.file <= kept.file + 2, "no other file was made");
    }
    assert_eq!(&*log.read(&kept.encode()).unwrap(), value(1, 500).as_slice());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn files_stay_while_it_was_not_said_what_became_of_the_pointers() {
    let (storage, log) = fresh();
    let mut mover = Mover::new(&log, [].into());
    for number in 0..4 {
        mover.place(1, &value(number, 3000)).unwrap();
    }
    mover.finish_slice().unwrap();
    drop(mover);
    assert_eq!(log.remove_unreferenced(|| true).files, 0);
    assert_eq!(storage.list_dir(Path::new(DIR)).unwrap().len(), 2);
    assert_eq!(log.written_to(), Vec::<u64>::new(), "nor is more written to them");
}

#[test]
fn what_is_closed_is_not_written_to_any_more_and_can_be_read() {
    let (storage, log) = fresh();
    let (pointers, _held) = append(&log, &[value(1, 100)]).unwrap();
    let mut begun = ValueStream::begin(&log, 1).unwrap();
    begun.push(&value(2, 10)).unwrap();
    log.close();
    assert!(matches!(append(&log, &[value(3, 100)]), Err(Error::Closed)));
    assert!(matches!(ValueStream::begin(&log, 1), Err(Error::Closed)));
    assert!(matches!(begun.push(&value(2, 10)), Err(Error::Closed)));
    assert!(matches!(begun.finish(), Err(Error::Closed)));
    assert_eq!(&*log.read(&pointers[0].encode()).unwrap(), value(1, 100).as_slice());
    assert_eq!(storage.list_dir(Path::new(DIR)).unwrap().len(), 2);
}

#[test]
fn a_file_is_written_to_until_its_last_writer_is_gone_and_never_again() {
    let (storage, log) = fresh();
    let (_, appended) = append(&log, &[value(1, 100)]).unwrap();
    let mut begun = ValueStream::begin(&log, 1).unwrap();
    begun.push(&value(2, 10)).unwrap();
    let mut mover = Mover::new(&log, [].into());
    let placed = mover.place(1, &value(3, 100)).unwrap();
    let placed = log.find(placed.file).unwrap();
    log.close_files();
    assert!(appended.is_written_to(), "a sync is to come");
    log.sync().unwrap();
    assert!(!appended.is_written_to());
    let (_, another) = append(&log, &[value(4, 100)]).unwrap();
    assert_ne!(another.number(), appended.number());
    assert!(another.is_written_to() && placed.is_written_to());
    let (_, streamed) = begun.finish().unwrap();
    assert!(streamed.is_written_to(), "the next one may go there");
    mover.finish_slice().unwrap();
    mover.note_held();
    drop(mover);
    log.close_files();
    log.sync().unwrap();
    for file in [&appended, &another, &placed, &streamed] {
        assert!(!file.is_written_to());
    }
    drop((appended, another, placed, streamed, log));
    let log = open_in(&storage);
    assert!(log.hold(1).is_there() && !log.hold(1).is_written_to());
}

#[test]
fn only_what_is_large_enough_is_closed() {
    let (_storage, log) = fresh();
    let (_, small) = append(&log, &[value(1, 100)]).unwrap();
    let (_, idle) = stream(&log, &value(2, 100), 50);
    log.close_larger(FILE_SIZE / 4);
    log.sync().unwrap();
    assert!(small.is_written_to() && idle.is_written_to());
    let (_, again) = append(&log, &[value(3, 1000)]).unwrap();
    let (_, idle_again) = stream(&log, &value(4, 1000), 500);
    assert_eq!((again.number(), idle_again.number()), (small.number(), idle.number()));
    log.close_larger(FILE_SIZE / 4);
    log.sync().unwrap();
    assert!(!small.is_written_to() && !idle.is_written_to());
    let (_, new) = append(&log, &[value(5, 10)]).unwrap();
    assert_ne!(new.number(), small.number());
}

/// What recovery makes durable is read and synced only, in a file that a checkpoint has as well.
#[test]
fn making_values_durable_does_not_write_to_a_file_that_has_another_name() {
    let sim = SimStorage::new(6);
    let storage: Arc<dyn Storage> = Arc::new(sim.clone());
    let log = open_in(&storage);
    let (pointers, file) = append(&log, &[value(1, 1000), value(2, 10)]).unwrap();
    log.close_files();
    log.sync().unwrap();
    let other = Path::new("/other");
    sim.link(file.path(), other).unwrap();
    drop((file, log));
    let log = open_in(&storage);
    let changes = || [Operation::Write, Operation::SetLen].map(|operation| sim.count_of(operation));
    let before = changes();
    log.make_durable(&pointers).unwrap();
    assert_eq!(changes(), before);
    assert_eq!(sim.violations(), [""; 0]);
    sim.remove_file(other).unwrap();
    log.make_durable(&pointers).unwrap();
    assert!(changes() > before, "it is its own again");
    for pointer in &pointers {
        log.verify(pointer, Verify::Hash).unwrap();
    }
}
