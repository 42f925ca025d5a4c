//! Reading parts of a value: a chunk at a time, each verified before any of it is handed out.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::ValueLog;
use super::file::ValueFile;
use super::format::{CHUNK_LEN, RECORD_HEADER_LEN, RecordHeader};
use super::format::{chunk_count, chunk_offset, shortened, u64_at};
use super::read::{Verify, checked_header, layout_within, not_what_was_sealed, read_error};
use super::sealed::{SealedRecord, nonce_in, tag_in};
use crate::base::{Error, Result, ValuePointer, checksum};
use crate::cache::{Charge, Part};
use crate::seal::Tag;
use crate::storage::StorageFile;

/// Reads a value in the value log, from any place on. In memory are one chunk of 64 KiB, and 8
/// bytes for each chunk of the value, or 32 of one that is sealed. Holds the value's file. When the
/// hash is verified, that is so for those who read all chunks in order: they get the last one only
/// if the value has its hash.
pub struct ValueReader {
    file: Arc<ValueFile>,
    handle: Arc<dyn StorageFile>,
    pointer: ValuePointer,
    header: RecordHeader,
    /// Checksums of the chunks.
    sums: Vec<u64>,
    /// If the value is sealed and has several chunks: nonce and tags of these.
    table: Vec<u8>,
    position: u64,
    /// The chunk that is in memory.
    loaded: Option<usize>,
    chunk: Vec<u8>,
    /// Of chunk and checksums.
    _charge: Charge,
    /// If the hash is verified: of the chunks so far, as long as they were read in order.
    hashed: Option<Box<Hashed>>,
}

/// The hash of the first chunks of a value.
struct Hashed {
    hasher: blake3::Hasher,
    chunk_count: usize,
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("pointer", &self.pointer).finish_non_exhaustive()
    }
}

impl ValueReader {
    /// A reader at the start of a value. Reads the record's header and table.
    ///
    /// # Errors
    /// `Corruption` with file and offset, `Io`.
    pub fn open(log: &ValueLog, pointer: &ValuePointer) -> Result<ValueReader> {
        ValueReader::verifying(log, pointer, log.verify)
    }

    /// As [`Self::open`], with something else verified than whoever opened the log asked for.
    pub(super) fn verifying(
        log: &ValueLog,
        pointer: &ValuePointer,
        verify: Verify,
    ) -> Result<ValueReader> {
        let file = log.file_of(pointer)?;
        let layout = layout_within(&file, pointer)?;
        let handle = file.file()?;
        let read = |bytes: &mut [u8], offset| {
            let done = handle.read_exact_at(bytes, offset);
            done.map_err(|error| read_error(&file, pointer.offset, error))
        };
        let mut header = [0; RECORD_HEADER_LEN];
        read(&mut header, pointer.offset)?;
        let header = checked_header(&file, &header, pointer)?;
        let mut table = vec![0; (layout.table_end - layout.value_end) as usize];
        read(&mut table, pointer.offset + layout.value_end)?;
        let is_whole = table.is_empty()
            || checksum(&table, file.tag, pointer.offset + layout.value_end) == header.sum;
        if !is_whole {
            let at = pointer.offset + layout.value_end;
            return Err(file.damaged(at, "the table of the value's checksums does not verify"));
        }
        let sums: Vec<u64> = match table.is_empty() {
            true => vec![header.sum],
            false => {
                let numbers = 0..chunk_count(u64::from(pointer.len));
                numbers.map(|number| u64_at(&table, file.form().sum_at(number))).collect()
            }
        };
        match file.key() {
            None => table = Vec::new(),
            Some(_) if table.is_empty() => {}
            Some(key) => {
                let sealed = SealedRecord::new(key, pointer.offset, &header);
                if !sealed.verifies_table(&pointer.hash, &table, &header.hash) {
                    return Err(not_what_was_sealed(&file, pointer.offset));
                }
            }
        }
        let hashed = (verify == Verify::Hash)
            .then(|| Box::new(Hashed { hasher: blake3::Hasher::new(), chunk_count: 0 }));
        let (pointer, position, loaded, chunk) = (*pointer, 0, None, Vec::new());
        let chunk_len = (pointer.len as usize).min(CHUNK_LEN);
        let memory = chunk_len + sums.len() * size_of::<u64>() + table.len();
        Ok(ValueReader {
            file,
            handle,
            pointer,
            header,
            sums,
            table,
            position,
            loaded,
            chunk,
            _charge: log.budget.charge(Part::Buffer, memory),
            hashed,
        })
    }

    /// The keyspace that the value was written to.
    pub(super) fn keyspace(&self) -> u32 {
        self.header.keyspace
    }

    /// The next bytes, as many as are at hand; empty at the end.
    ///
    /// # Errors
    /// `Corruption` with file and offset, `Io`.
    pub fn next_piece(&mut self) -> Result<&[u8]> {
        let len = self.rest_of_chunk()?.len();
        self.position += len as u64;
        Ok(&self.chunk[self.chunk.len() - len..])
    }

    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> u64 {
        u64::from(self.pointer.len)
    }

    /// What is left of the chunk at the position; empty at the end.
    ///
    /// # Errors
    /// `Corruption` with file and offset, `Io`.
    fn rest_of_chunk(&mut self) -> Result<&[u8]> {
        if self.position >= self.len() {
            return Ok(&[]);
        }
        let number = (self.position / CHUNK_LEN as u64) as usize;
        if self.loaded != Some(number) {
            self.load(number)?;
        }
        Ok(&self.chunk[(self.position % CHUNK_LEN as u64) as usize..])
    }

    fn load(&mut self, number: usize) -> Result<()> {
        self.loaded = None;
        let offset = chunk_offset(self.pointer.offset + RECORD_HEADER_LEN as u64, number);
        let left = self.len() - (number * CHUNK_LEN) as u64;
        self.chunk.resize(left.min(CHUNK_LEN as u64) as usize, 0);
        let read = self.handle.read_exact_at(&mut self.chunk, offset);
        read.map_err(|error| read_error(&self.file, offset, error))?;
        if checksum(&self.chunk, self.file.tag, offset) != self.sums[number] {
            return Err(self.file.damaged(offset, "a piece of the value does not verify"));
        }
        if !self.open_chunk(number) {
            return Err(not_what_was_sealed(&self.file, offset));
        }
        self.verify_hash(number)?;
        self.loaded = Some(number);
        Ok(())
    }

    /// Decrypts the chunk if the value is sealed; whether it is what was.
    fn open_chunk(&mut self, number: usize) -> bool {
        let Some(key) = self.file.key() else { return true };
        let sealed = SealedRecord::new(key, self.pointer.offset, &self.header);
        if self.table.is_empty() {
            let tag: &Tag = &self.header.hash;
            return sealed.open_value(&self.pointer.hash, &mut self.chunk, tag);
        }
        let (nonce, tag) = (nonce_in(&self.table), tag_in(&self.table, number));
        sealed.open_chunk(&nonce, number, &mut self.chunk, &tag)
    }

    /// Hashes a chunk if it is the next one; the last one says whether the value has its hash.
    fn verify_hash(&mut self, number: usize) -> Result<()> {
        let next = self.hashed.as_deref_mut().filter(|hashed| hashed.chunk_count == number);
        let Some(Hashed { hasher, chunk_count }) = next else { return Ok(()) };
        hasher.update(&self.chunk);
        *chunk_count += 1;
        if *chunk_count == self.sums.len() && shortened(&hasher.finalize()) != self.pointer.hash {
            *chunk_count = 0;
            hasher.reset();
            return Err(self.file.damaged(self.pointer.offset, "the value does not have its hash"));
        }
        Ok(())
    }
}

impl Read for ValueReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let rest = self.rest_of_chunk().map_err(io_error)?;
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(to, self.position, self.len())?;
        Ok(self.position)
    }
}

/// Where a seek leads to; it may be behind the end, but not in front of the start.
pub(crate) fn sought(to: SeekFrom, position: u64, len: u64) -> io::Result<u64> {
    let found = match to {
        SeekFrom::Start(offset) => Some(offset),
        SeekFrom::End(offset) => len.checked_add_signed(offset),
        SeekFrom::Current(offset) => position.checked_add_signed(offset),
    };
    found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "a seek to in front of the value")
    })
}

/// An error of the store, for those who know only those of the system. Never one of the kind
/// `Interrupted`: `write_all` and the like would try again, and hear only of what failed before.
pub(crate) fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } if source.kind() != io::ErrorKind::Interrupted => source,
        other if other.is_corruption() => io::Error::new(io::ErrorKind::InvalidData, other),
        other => io::Error::other(other),
    }
}
