//! Frames on their way into a table file: sealed into a buffer, written in large pieces.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{FramePointer, TableIdentity};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::block::{FrameKind, FramePlace, Packing, frame};
use crate::seal::{FileKey, Keyring, id_of};
use crate::storage::{OpenMode, Storage, StorageFile};

/// Bytes gathered before they are written.
const WRITE_SIZE: usize = 256 << 10;

/// Writes a table file from its start to its end.
#[derive(Debug)]
pub(super) struct FrameWriter {
    path: PathBuf,
    tag: u64,
    /// What frames are sealed with.
    key: Option<Arc<FileKey>>,
    file: Arc<dyn StorageFile>,
    /// Bytes that are still to be written; they belong at `written`.
    buffer: Vec<u8>,
    written: u64,
}

impl FrameWriter {
    /// Creates the file, with its header. Its name is durable once the directory is synced.
    pub(super) fn create(
        storage: &dyn Storage,
        path: PathBuf,
        identity: TableIdentity,
    ) -> Result<FrameWriter> {
        let opened = storage.open(&path, OpenMode::CreateNew);
        let file = opened.map_err(|error| Error::io("create", &path, error))?;
        let key = Keyring::for_new(storage.keyring(), &identity.file())?;
        let buffer = identity.encode_header(id_of(key.as_deref())).to_vec();
        Ok(FrameWriter { path, tag: identity.tag(), key, file, buffer, written: 0 })
    }

    /// What the checksums of the file are bound to.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next frame will lie.
    pub(super) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The place of the next frame, for messages.
    pub(super) fn next_place(&self) -> FramePlace<'_> {
        let (offset, key) = (self.position(), self.key.as_deref());
        FramePlace { file: &self.path, file_tag: self.tag, offset, key }
    }

    /// Bytes of memory of the buffer.
    pub(super) fn buffer_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Appends the frame of a payload.
    pub(super) fn append(
        &mut self,
        payload: &[u8],
        packing: Packing<'_>,
        kind: FrameKind,
    ) -> Result<FramePointer> {
        let offset = self.position();
        let key = self.key.as_deref();
        let place = FramePlace { file: &self.path, file_tag: self.tag, offset, key };
        let sum = frame::seal_packed(payload, packing, kind, place, &mut self.buffer)?;
        let len = u32::try_from(self.position() - offset).map_err(|_| {
            Error::invalid(format!("a table cannot hold a block of {} bytes", payload.len()))
        })?;
        if self.buffer.len() >= WRITE_SIZE {
            let from = self.written;
            self.write_out()?;
            // The disk works while the next blocks are built.
            self.file.begin_writeback(from, self.written - from);
        }
        Ok(FramePointer { offset, len, checksum: sum as u32 })
    }

    /// Appends bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes what was gathered.
    fn write_out(&mut self) -> Result<()> {
        let wrote = self.file.write_all_at(&self.buffer, self.written);
        wrote.map_err(|error| Error::io("write", &self.path, error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes everything durable (the name needs the directory synced).
    pub(super) fn finish(&mut self) -> Result<()> {
        self.write_out()?;
        if is_seeded(Bug::TablesNotSynced) {
            return Ok(());
        }
        self.file.sync().map_err(|error| Error::io("sync", &self.path, error))
    }
}
