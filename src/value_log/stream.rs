//! Writing a value piece by piece: what is in memory is one chunk and the table so far.
//!
//! The record's header is written last, in front of the value: before that the bytes are no record.

use std::mem;
use std::sync::Arc;

use super::ValueLog;
use super::append::OwnFile;
use super::file::ValueFile;
use super::format::{CHUNK_LEN, RECORD_HEADER_LEN, RecordHeader, RecordLayout};
use super::format::{chunk_offset, shortened, sum_of};
use super::sealed::{SealedRecord, nonce_in};
use crate::base::{Result, ValuePointer, checksum};
use crate::cache::{Charge, Part};
use crate::seal::FileKey;

/// A value that is being written. Dropped before it is finished, nothing refers to what was
/// written.
#[derive(Debug)]
pub struct ValueStream {
    log: Arc<ValueLog>,
    out: OwnFile,
    keyspace: u32,
    hasher: blake3::Hasher,
    /// Bytes that are written; whole chunks.
    written: u64,
    chunk: Vec<u8>,
    table: Vec<u8>,
    /// Of these two.
    charge: Charge,
}

impl ValueStream {
    /// Begins a value.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Closed`.
    pub fn begin(log: &Arc<ValueLog>, keyspace: u32) -> Result<ValueStream> {
        let _not_closed_meanwhile = log.writing()?;
        Ok(ValueStream::into_file(log, log.take_own_file(keyspace)?, keyspace))
    }

    /// Begins a value at the end of a file that the caller has for itself.
    pub(super) fn into_file(log: &Arc<ValueLog>, out: OwnFile, keyspace: u32) -> ValueStream {
        ValueStream {
            out,
            log: Arc::clone(log),
            keyspace,
            hasher: blake3::Hasher::new(),
            written: 0,
            chunk: Vec::with_capacity(CHUNK_LEN),
            table: Vec::new(),
            charge: log.budget.charge(Part::Buffer, CHUNK_LEN),
        }
    }

    /// Bytes of the value so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.written + self.chunk.len() as u64
    }

    /// Adds the next piece.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Closed`: the value cannot be finished.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        let log = Arc::clone(&self.log);
        let _not_closed_meanwhile = log.writing()?;
        self.hasher.update(bytes);
        while !bytes.is_empty() {
            if self.chunk.len() == CHUNK_LEN {
                self.write_chunk()?;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(CHUNK_LEN - self.chunk.len()));
            self.chunk.extend_from_slice(piece);
            bytes = rest;
        }
        Ok(())
    }

    /// Ends the value; it is durable after the next sync of the log. Returns the pointer to it, and
    /// its file, held.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Closed`: nothing refers to what was written.
    pub fn finish(self) -> Result<(ValuePointer, Arc<ValueFile>)> {
        let log = Arc::clone(&self.log);
        let _not_closed_meanwhile = log.writing()?;
        let (pointer, out) = self.finish_in_file()?;
        let file = Arc::clone(&out.writable.file);
        log.give_back_own_file(out);
        Ok((pointer, file))
    }

    /// The file, as if the value had not been begun: what was written of it is overwritten by the
    /// next one, or garbage.
    pub(super) fn give_up(self) -> OwnFile {
        self.out
    }

    /// As [`Self::finish`]; the file goes to the caller.
    pub(super) fn finish_in_file(mut self) -> Result<(ValuePointer, OwnFile)> {
        let (file, start) = (Arc::clone(&self.out.writable.file), self.out.end);
        let len = self.len();
        let value_offset = self.value_offset();
        let mut hash = shortened(&self.hasher.finalize());
        let pointer_hash = hash;
        if self.written > 0 {
            self.write_chunk()?;
            if let Some(key) = file.key() {
                hash = self.sealed(key, start, len).seal_table(&hash, &self.table);
            }
            self.out.writable.write(&self.table, value_offset + len)?;
        } else {
            if let Some(key) = file.key() {
                hash = self.sealed(key, start, len).seal_value(&hash, &mut self.chunk);
            }
            self.out.writable.write(&self.chunk, value_offset)?;
        }
        let sum = match self.table.is_empty() {
            true => checksum(&self.chunk, file.tag, value_offset),
            false => sum_of_table(&self.table, file.tag, value_offset + len),
        };
        let layout = RecordLayout::of(len, file.form()).expect("the file has room for it");
        let padding = [0; 8];
        let padding = &padding[..(layout.end - layout.table_end) as usize];
        self.out.writable.write(padding, start + layout.table_end)?;
        let header = RecordHeader { len, hash, sum, keyspace: self.keyspace };
        self.out.writable.write(&header.encode(file.tag, start), start)?;
        file.note_size(start + layout.end);
        self.log.note_written(&self.out.writable, layout.end);
        self.out.end = start + layout.end;
        let len = u32::try_from(len).expect("the caller limits values");
        let (file, hash) = (file.number(), pointer_hash);
        Ok((ValuePointer { file, offset: start, len, hash }, self.out))
    }

    fn value_offset(&self) -> u64 {
        self.out.end + RECORD_HEADER_LEN as u64
    }

    /// The record, in a file with this key.
    fn sealed<'k>(&self, key: &'k FileKey, offset: u64, len: u64) -> SealedRecord<'k> {
        SealedRecord { key, offset, len, keyspace: self.keyspace }
    }

    fn write_chunk(&mut self) -> Result<()> {
        let mut chunk = mem::take(&mut self.chunk);
        let offset = self.value_offset() + self.written;
        let number = (self.written / CHUNK_LEN as u64) as usize;
        debug_assert_eq!(offset, chunk_offset(self.value_offset(), number));
        let file = Arc::clone(&self.out.writable.file);
        let tag = file.key().map(|key| {
            if self.table.is_empty() {
                self.table.extend_from_slice(&key.draw_nonce());
            }
            // How long the value will be, the table says.
            let sealed = self.sealed(key, self.out.end, 0);
            sealed.seal_chunk(&nonce_in(&self.table), number, &mut chunk)
        });
        self.out.writable.write(&chunk, offset)?;
        let sum = checksum(&chunk, file.tag, offset);
        self.table.extend_from_slice(&sum.to_le_bytes());
        self.table.extend_from_slice(tag.as_ref().map_or(&[], |tag| &tag[..]));
        self.charge.resize(CHUNK_LEN + self.table.capacity());
        self.written += chunk.len() as u64;
        self.out.writable.begin_writeback(self.value_offset() + self.written);
        self.chunk = chunk;
        self.chunk.clear();
        Ok(())
    }
}

fn sum_of_table(table: &[u8], tag: u64, offset: u64) -> u64 {
    sum_of(&[], table, tag, offset)
}
