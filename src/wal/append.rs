//! Writing one record with as few system calls as it takes.

use std::io;

use crate::base::{ChecksumStream, checksum};
use crate::seal::FileKey;
use crate::storage::StorageFile;

use super::record::{CHECKED_FROM, RECORD_HEADER_SIZE, RecordHeader};

/// Records up to this size are assembled in memory and written in one call; of larger ones, only
/// parts that are small are gathered.
const GATHER_SIZE: usize = 256 << 10;
/// Bytes of memory that records are put together in.
pub const RECORD_BUFFER_SIZE: usize = GATHER_SIZE;

/// Writes records; owns the memory that they are assembled in.
#[derive(Debug, Default)]
pub struct RecordWriter {
    buffer: Vec<u8>,
}

impl RecordWriter {
    /// Writes the record with this header and payload to `offset` of the file with the tag
    /// `file_tag`.
    ///
    /// # Errors
    /// Whatever the system says; any part of the record may have been written.
    pub fn write(
        &mut self,
        file: &dyn StorageFile,
        file_tag: u64,
        offset: u64,
        header: &RecordHeader,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        let size = header.size();
        self.buffer.clear();
        self.buffer.extend_from_slice(&header.encode());
        if size <= GATHER_SIZE as u64 {
            for part in parts {
                self.buffer.extend_from_slice(part);
            }
            let sum = checksum(&self.buffer[CHECKED_FROM..], file_tag, offset);
            self.buffer[..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
            self.buffer.resize(size as usize, 0);
            return file.write_all_at(&self.buffer, offset);
        }
        let sum = checksum_of_parts(&self.buffer[CHECKED_FROM..], file_tag, offset, parts);
        self.buffer[..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
        let padding = size - RECORD_HEADER_SIZE - header.length;
        self.gather(file, offset, parts, padding as usize)
    }

    /// As [`Self::write`], with the payload sealed: the header counts nonce and tag. All of it is
    /// put together in memory, which is let go again if it is much.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_sealed(
        &mut self,
        (file, key): (&dyn StorageFile, &FileKey),
        file_tag: u64,
        offset: u64,
        header: &RecordHeader,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.reserve(header.size() as usize);
        self.buffer.extend_from_slice(&header.encode());
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        key.seal_tail(&header.sealed_place(), &mut self.buffer, RECORD_HEADER_SIZE as usize);
        debug_assert_eq!(self.buffer.len() as u64, RECORD_HEADER_SIZE + header.length);
        let sum = checksum(&self.buffer[CHECKED_FROM..], file_tag, offset);
        self.buffer[..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
        self.buffer.resize(header.size() as usize, 0);
        let written = file.write_all_at(&self.buffer, offset);
        self.buffer.truncate(GATHER_SIZE);
        self.buffer.shrink_to(GATHER_SIZE);
        written
    }

    /// Makes sure that no record starts at `offset`.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn erase(&self, file: &dyn StorageFile, offset: u64) -> io::Result<()> {
        file.write_all_at(&[0; RECORD_HEADER_SIZE as usize], offset)
    }

    /// Writes the buffer and then the parts, gathering small ones; large ones are not copied.
    fn gather(
        &mut self,
        file: &dyn StorageFile,
        mut offset: u64,
        parts: &[&[u8]],
        padding: usize,
    ) -> io::Result<()> {
        for part in parts {
            if self.buffer.len() + part.len() > GATHER_SIZE {
                file.write_all_at(&self.buffer, offset)?;
                offset += self.buffer.len() as u64;
                self.buffer.clear();
            }
            if part.len() >= GATHER_SIZE {
                file.write_all_at(part, offset)?;
                offset += part.len() as u64;
            } else {
                self.buffer.extend_from_slice(part);
            }
        }
        self.buffer.resize(self.buffer.len() + padding, 0);
        if self.buffer.is_empty() { Ok(()) } else { file.write_all_at(&self.buffer, offset) }
    }
}

fn checksum_of_parts(header: &[u8], file_tag: u64, offset: u64, parts: &[&[u8]]) -> u64 {
    let mut stream = ChecksumStream::new(file_tag, offset);
    stream.update(header);
    for part in parts {
        stream.update(part);
    }
    stream.finish()
}
