//! A file that is written from its beginning to its end, and hashed on the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::list::Content;
use crate::base::{Error, Result};
use crate::storage::{OpenMode, Storage, StorageFile, Zeros, write_but_zeros};

/// Zeros that are hashed at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file that is being written.
#[derive(Debug)]
pub(super) struct HashedWriter {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    len: u64,
    zeros: Zeros,
    at: u64,
    hasher: blake3::Hasher,
}

impl HashedWriter {
    /// Makes a file that must not be there, of so many bytes.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: it may be there.
    pub(super) fn create(
        storage: &dyn Storage,
        path: PathBuf,
        len: u64,
        zeros: Zeros,
    ) -> Result<HashedWriter> {
        let io = |action| {
            let path = &path;
            move |error| Error::io(action, path, error)
        };
        let file = storage.open(&path, OpenMode::CreateNew).map_err(io("create"))?;
        match zeros {
            Zeros::LeftOut => file.set_len(len).map_err(io("extend"))?,
            Zeros::Written if len == 0 => {}
            Zeros::Written => file.preallocate(len).map_err(io("allocate"))?,
        }
        Ok(HashedWriter { file, path, len, zeros, at: 0, hasher: blake3::Hasher::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that it does not have yet.
    pub(super) fn left(&self) -> u64 {
        self.len - self.at
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    ///
    /// # Panics
    /// For more than are left.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= self.left(), "more bytes than the file was to have");
        let wrote = match self.zeros {
            Zeros::LeftOut => write_but_zeros(&*self.file, bytes, self.at),
            Zeros::Written => self.file.write_all_at(bytes, self.at),
        };
        wrote.map_err(|error| Error::io("write", &self.path, error))?;
        self.hasher.update(bytes);
        self.file.begin_writeback(self.at, bytes.len() as u64);
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds zeros.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    ///
    /// # Panics
    /// For more than are left.
    pub(super) fn write_zeros(&mut self, count: u64) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let len = left.min(ZEROS.len() as u64);
            self.write(&ZEROS[..len as usize])?;
            left -= len;
        }
        Ok(())
    }

    /// What it has come to. Durable on return, but for its name.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn finish(self) -> Result<Content> {
        assert_eq!(self.left(), 0, "a file is written whole");
        self.file.sync().map_err(|error| Error::io("sync", &self.path, error))?;
        // What is durable leaves the system's memory by that: who reads it back reads the disk.
        self.file.begin_writeback(0, self.len);
        Ok(Content { len: self.len, hash: *self.hasher.finalize().as_bytes() })
    }
}
