//! Appending to a segment.
//!
//! Invariants
//! - W1  A block is sealed once and then never changes: what follows goes into the next one. So
//!   what a snapshot or a durable index points to is never written again.
//! - W2  Blocks in front of `written` are in the file, those behind are in `buffer`; a write that
//!   failed leaves them there, to be written to the same place again.

use std::sync::Arc;

use super::block::{self, BLOCK_DATA, BLOCK_SIZE};
use super::segment::{Place, Segment};
use crate::base::{Error, Result};
use crate::storage::{OpenMode, StorageFile};

/// Bytes gathered before they are written.
const WRITE_SIZE: usize = 256 << 10;

/// Appends to one segment.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    // Constant.
    pub segment: Arc<Segment>,
    file: Arc<dyn StorageFile>,
    // The state.
    /// W2: blocks, of which the last may have neither all of its data nor its checksum.
    buffer: Vec<u8>,
    written: u64,
    /// Bytes of data, padding included.
    size: u32,
    /// Bytes of data in front of `buffer`.
    flushed: u32,
    synced: u64,
}

impl SegmentWriter {
    /// Creates the file. Its name is durable once the directory is synced.
    pub(super) fn create(place: &Arc<Place>, number: u32) -> Result<SegmentWriter> {
        let segment = Segment::new(place, number);
        let opened = place.storage.open(&segment.path, OpenMode::CreateNew);
        let file = opened.map_err(|error| Error::io("create", &segment.path, error))?;
        place.open.keep(&segment, &file);
        let mut buffer = Vec::with_capacity(WRITE_SIZE + 2 * BLOCK_SIZE);
        buffer.extend(block::encode_header(segment.id()));
        Ok(SegmentWriter { segment, file, buffer, written: 0, size: 0, flushed: 0, synced: 0 })
    }

    /// Bytes of data, padding included: where the next byte goes.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Bytes that were written to the file.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Makes room in the buffer. What fails here can be tried again.
    pub(super) fn make_room(&mut self) -> Result<()> {
        if self.buffer.len() >= WRITE_SIZE { self.write_out() } else { Ok(()) }
    }

    /// Appends as much of `bytes` as goes into the buffer and into `room` bytes of the segment;
    /// how much that was.
    pub(super) fn append(&mut self, bytes: &[u8], room: u32) -> u32 {
        let mut left = &bytes[..bytes.len().min(room as usize)];
        let all = left.len();
        while !left.is_empty() && self.buffer.len() < WRITE_SIZE {
            let within = self.size as usize % BLOCK_DATA;
            let (now, later) = left.split_at(left.len().min(BLOCK_DATA - within));
            self.buffer.extend_from_slice(now);
            self.size += now.len() as u32;
            left = later;
            if within + now.len() == BLOCK_DATA {
                self.seal_last();
            }
        }
        (all - left.len()) as u32
    }

    /// Pads the last block if it is not whole (W1).
    pub(super) fn finish_block(&mut self) {
        let within = self.size as usize % BLOCK_DATA;
        if within > 0 {
            let padding = BLOCK_DATA - within;
            self.buffer.resize(self.buffer.len() + padding, 0);
            self.size += padding as u32;
            self.seal_last();
        }
    }

    fn seal_last(&mut self) {
        let start = self.buffer.len() - BLOCK_DATA;
        self.buffer.resize(start + BLOCK_SIZE, 0);
        let offset = self.written + start as u64;
        block::seal(&mut self.buffer[start..], self.segment.tag, offset);
    }

    /// Writes the whole blocks.
    pub(super) fn write_out(&mut self) -> Result<()> {
        let whole = self.buffer.len() / BLOCK_SIZE * BLOCK_SIZE;
        if whole == 0 {
            return Ok(());
        }
        let wrote = self.file.write_all_at(&self.buffer[..whole], self.written);
        wrote.map_err(|error| Error::io("write", &self.segment.path, error))?;
        if whole >= WRITE_SIZE {
            // The disk works while more is gathered.
            self.file.begin_writeback(self.written, whole as u64);
        }
        self.written += whole as u64;
        self.buffer.drain(..whole);
        self.flushed = self.size - self.buffer.len() as u32;
        Ok(())
    }

    /// Whether something was written that is not synced.
    pub(super) fn is_unsynced(&self) -> bool {
        self.synced < self.written
    }

    /// Makes what was written durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|error| Error::io("sync", &self.segment.path, error))?;
        self.synced = self.written;
        Ok(())
    }

    /// Reads the data at `offset`, from the file and from what is still to be written.
    pub(super) fn read(&self, offset: u32, out: &mut [u8]) -> Result<()> {
        let in_file = self.flushed.saturating_sub(offset).min(out.len() as u32);
        let (from_file, from_buffer) = out.split_at_mut(in_file as usize);
        if !from_file.is_empty() {
            self.segment.read(offset, from_file)?;
        }
        self.read_buffer(offset + in_file, from_buffer);
        Ok(())
    }

    fn read_buffer(&self, mut offset: u32, mut out: &mut [u8]) {
        while !out.is_empty() {
            let within = offset as usize % BLOCK_DATA;
            let start = (block::block_offset(offset) - self.written) as usize + within;
            let (now, later) = out.split_at_mut(out.len().min(BLOCK_DATA - within));
            now.copy_from_slice(&self.buffer[start..start + now.len()]);
            offset += now.len() as u32;
            out = later;
        }
    }
}
