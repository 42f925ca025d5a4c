//! Reading whole values.

use std::io;
use std::sync::Arc;

use super::ValueLog;
use super::file::{ValueFile, missing};
use super::format::{CHUNK_LEN, chunk_offset, first_bad_chunk, hash_value, record_len, sum_of};
use super::format::{FILE_HEADER_LEN, Form, RECORD_HEADER_LEN, RecordHeader, RecordLayout};
use super::reader::ValueReader;
use super::sealed::SealedRecord;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result, Slice, ValuePointer};
use crate::memory::{Heap, SharedBytes};
use crate::storage::OpenMode;

/// A record in memory, verified (V4).
pub(super) struct Record {
    pub data: SharedBytes,
    pub layout: RecordLayout,
    pub header: RecordHeader,
}

impl Record {
    pub(super) fn value(&self) -> &[u8] {
        &self.data[RECORD_HEADER_LEN..self.layout.value_end as usize]
    }
}

/// Values up to this length are verified and moved in one piece; longer ones are never held in
/// memory.
pub(super) const WHOLE_LEN_MAX: u32 = 1 << 20;

/// Values with no more than this between them are read in one go.
const READ_THROUGH_MAX: u64 = 16 << 10;

/// How much is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Checksums, and that the hash in record and pointer is the same.
    Checksums,
    /// That, and that the value has this hash.
    Hash,
}

impl ValueLog {
    /// The value that a pointer, as entries have it, leads to. One read of the file.
    ///
    /// # Errors
    /// `Corruption` with file and offset when it is not there as it was written; `Io`.
    pub fn read(&self, pointer: &[u8]) -> Result<Slice> {
        let pointer = self.decode(pointer)?;
        let file = self.file_of(&pointer)?;
        let record = read_record(&file, &pointer, self.budget.heap())?;
        if self.verify == Verify::Hash {
            verify_hash(&record, &file, &pointer)?;
        }
        let len = pointer.len as usize;
        Ok(Slice::shared(&record.data, RECORD_HEADER_LEN..RECORD_HEADER_LEN + len))
    }

    /// Reads the value and verifies it, a long one a piece at a time; returns the bytes that were
    /// read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn verify(&self, pointer: &ValuePointer, verify: Verify) -> Result<u64> {
        if pointer.len > WHOLE_LEN_MAX {
            let mut reader = ValueReader::verifying(self, pointer, verify)?;
            while !reader.next_piece()?.is_empty() {}
            return Ok(record_len(u64::from(pointer.len)));
        }
        let file = self.file_of(pointer)?;
        let record = read_record(&file, pointer, self.budget.heap())?;
        if verify == Verify::Hash {
            verify_hash(&record, &file, pointer)?;
        }
        Ok(record.layout.end)
    }

    /// Has the system begin to read these values, in the order in which they lie there: many reads
    /// at once take a fraction of the time of one after the other. Of long values, which are read
    /// from start to end, the system finds out itself; and what is wrong, who reads them is told.
    pub fn begin_reading(&self, mut pointers: Vec<ValuePointer>) {
        pointers.retain(|pointer| pointer.len <= WHOLE_LEN_MAX);
        pointers.sort_unstable_by_key(|pointer| (pointer.file, pointer.offset));
        let end = |pointer: &ValuePointer| pointer.offset + record_len(u64::from(pointer.len));
        let is_near = |a: &ValuePointer, b: &ValuePointer| {
            a.file == b.file && b.offset.saturating_sub(end(a)) <= READ_THROUGH_MAX
        };
        for near in pointers.chunk_by(is_near) {
            let Some((first, last)) = near.first().zip(near.last()) else { continue };
            let handle = self.find(first.file).and_then(|file| file.file().ok());
            if let Some(handle) = handle {
                handle.begin_read(first.offset, end(last) - first.offset);
            }
        }
    }

    /// The pointer in an entry.
    ///
    /// # Errors
    /// `Corruption`: the entry's bytes verified, so that no file can be named.
    pub fn decode(&self, pointer: &[u8]) -> Result<ValuePointer> {
        ValuePointer::decode(pointer).ok_or_else(|| {
            let what = "an entry holds a pointer that is none";
            Error::corruption(&self.place.dir, 0, what)
        })
    }

    pub(super) fn file_of(&self, pointer: &ValuePointer) -> Result<Arc<ValueFile>> {
        self.find(pointer.file).ok_or_else(|| missing(&self.place.path_of(pointer.file)))
    }

    /// Makes records durable that were read back and may be in the operating system's memory only:
    /// a sync that failed may have left them there, counted as written. So they are written again.
    ///
    /// # Errors
    /// `Io`, `DiskFull`; `Corruption` when they are not there any more.
    pub fn make_durable(&self, pointers: &[ValuePointer]) -> Result<()> {
        const PIECE_LEN: u64 = 256 << 10;
        let mut pointers = pointers.to_vec();
        pointers.sort_unstable_by_key(|pointer| (pointer.file, pointer.offset));
        pointers.dedup();
        let mut buffer = Vec::new();
        for of_file in pointers.chunk_by(|a, b| a.file == b.file) {
            let file = self.file_of(&of_file[0])?;
            let io = |action| {
                let path = &file.path;
                move |error| Error::io(action, path, error)
            };
            let handle = file.open(OpenMode::ReadOnly)?;
            if handle.link_count().map_err(io("stat"))? > 1 {
                // All of it was durable before it got its other name (V1).
                handle.sync().map_err(io("sync"))?;
                continue;
            }
            let handle = file.open(OpenMode::ReadWrite)?;
            let header = std::iter::once((0, FILE_HEADER_LEN));
            let records = of_file.iter().map(|pointer| {
                let layout = RecordLayout::of(u64::from(pointer.len), file.form());
                let layout = layout.expect("it was read");
                (pointer.offset, layout.table_end)
            });
            for (start, len) in header.chain(records) {
                let end = start + len;
                let mut offset = start;
                while offset < end {
                    buffer.resize((end - offset).min(PIECE_LEN) as usize, 0);
                    handle.read_exact_at(&mut buffer, offset).map_err(io("read"))?;
                    handle.write_all_at(&buffer, offset).map_err(io("write"))?;
                    offset += buffer.len() as u64;
                }
            }
            // The length too.
            let size = handle.size().map_err(io("stat"))?;
            handle.set_len(size).map_err(io("write"))?;
            handle.sync().map_err(io("sync"))?;
        }
        if pointers.is_empty() {
            return Ok(());
        }
        for dir in [self.place.parent(), &self.place.dir] {
            self.place.storage.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        }
        Ok(())
    }
}

fn verify_hash(record: &Record, file: &ValueFile, pointer: &ValuePointer) -> Result<()> {
    if hash_value(record.value()) == pointer.hash {
        return Ok(());
    }
    Err(file.damaged(pointer.offset, "the value does not have its hash"))
}

/// Reads a record in one piece, verifies its checksums, and decrypts it if it is sealed.
pub(super) fn read_record(
    file: &Arc<ValueFile>,
    pointer: &ValuePointer,
    heap: &Arc<Heap>,
) -> Result<Record> {
    let ValuePointer { offset, len, .. } = *pointer;
    let layout = layout_within(file, pointer)?;
    let handle = file.file()?;
    // Handed out as it is. Memory of the heap needs no zeros.
    let mut data = heap.take(layout.table_end as usize);
    let record = &mut data[..layout.table_end as usize];
    handle.read_exact_at(record, offset).map_err(|error| read_error(file, offset, error))?;
    let header = checked_header(file, record, pointer)?;
    let value_offset = offset + RECORD_HEADER_LEN as u64;
    let (value, table) = layout.parts_of(record);
    debug_assert_eq!(value.len(), len as usize);
    if is_seeded(Bug::ValueUnverified) {
        let header = RecordHeader { hash: pointer.hash, ..header };
        return Ok(Record { data: data.freeze(), layout, header });
    }
    if sum_of(value, table, file.tag, value_offset) != header.sum {
        return Err(file.damaged(offset, "the value does not verify"));
    }
    if let Some(number) = first_bad_chunk(value, table, file.form(), file.tag, value_offset) {
        let at = chunk_offset(value_offset, number);
        return Err(file.damaged(at, format!("a piece of {CHUNK_LEN} bytes does not verify")));
    }
    if let Some(key) = file.key() {
        let sealed = SealedRecord::new(key, offset, &header);
        if !sealed.open_record(&layout, record, &pointer.hash, &header.hash) {
            return Err(not_what_was_sealed(file, offset));
        }
    }
    let header = RecordHeader { hash: pointer.hash, ..header };
    Ok(Record { data: data.freeze(), layout, header })
}

pub(super) fn not_what_was_sealed(file: &ValueFile, offset: u64) -> Error {
    file.damaged(offset, "the value verifies, and is not what was sealed for this place")
}

/// Where the parts of a record lie, if the file has room for it: only then is memory taken for it.
pub(super) fn layout_within(file: &ValueFile, pointer: &ValuePointer) -> Result<RecordLayout> {
    let layout = RecordLayout::of(u64::from(pointer.len), file.form()).filter(|layout| {
        let end = pointer.offset.checked_add(layout.table_end);
        end.is_some_and(|end| file.goes_to(end))
    });
    layout.ok_or_else(|| {
        let (len, size) = (pointer.len, file.size());
        file.damaged(pointer.offset, format!("a value of {len} bytes in a file of {size}"))
    })
}

/// The header at the start of `record`, if it is that of the value that is pointed to.
pub(super) fn checked_header(
    file: &ValueFile,
    record: &[u8],
    pointer: &ValuePointer,
) -> Result<RecordHeader> {
    let bytes = record.first_chunk().expect("a record is longer than its header");
    let header = RecordHeader::decode(bytes, file.tag, pointer.offset);
    let header = header.ok_or_else(|| {
        file.damaged(pointer.offset, "the header of the value's record does not verify")
    })?;
    // Of one that is sealed, opening it says whether it has the hash.
    let is_other = file.form() == Form::Plain && header.hash != pointer.hash;
    if header.len != u64::from(pointer.len) || is_other {
        return Err(file.damaged(pointer.offset, "another value lies there than was written"));
    }
    Ok(header)
}

pub(super) fn read_error(file: &ValueFile, offset: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => file.damaged(offset, "the file ends within the value"),
        _ => Error::io("read", &file.path, error),
    }
}
