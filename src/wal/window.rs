//! A file read through a window in memory, so that a log of any size is read in few calls and
//! bounded memory: the window, or one record if that is larger.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::storage::StorageFile;

const WINDOW_SIZE: u64 = 256 << 10;

/// A file and the piece of it that is in memory.
#[derive(Debug)]
pub struct FileWindow {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    size: u64,
    /// Bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
    /// Where reading ahead ends at the latest: behind it there may be other bytes by and by.
    ahead_to: u64,
}

impl FileWindow {
    /// A window on `file`, whose size is taken now.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(file: Arc<dyn StorageFile>, path: PathBuf) -> Result<FileWindow> {
        let size = file.size().map_err(|e| Error::io("read", &path, e))?;
        Ok(FileWindow { file, path, size, buffer: Vec::new(), start: 0, ahead_to: size })
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `len` bytes at `offset` lie in the file.
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.size)
    }

    /// Lets nothing be read ahead from `offset` on.
    pub fn read_ahead_to(&mut self, offset: u64) {
        self.ahead_to = offset.min(self.size);
    }

    /// Forgets what is in memory.
    pub fn let_go(&mut self) {
        self.buffer = Vec::new();
    }

    /// `len` bytes at `offset`, which must lie in the file ([`Self::holds`]): memory is never
    /// taken for more than the file holds.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn bytes(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        Ok(self.bytes_of_file(offset, len)?.0)
    }

    /// As [`Self::bytes`], and the path of the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn bytes_of_file(&mut self, offset: u64, len: u64) -> Result<(&[u8], &Path)> {
        assert!(self.holds(offset, len), "a read past the end of the file");
        let in_window =
            offset >= self.start && offset + len <= self.start + self.buffer.len() as u64;
        if !in_window {
            let ahead = WINDOW_SIZE.min(self.ahead_to.saturating_sub(offset));
            let wanted = len.max(ahead) as usize;
            self.buffer.resize(wanted, 0);
            if len <= WINDOW_SIZE {
                self.buffer.shrink_to(WINDOW_SIZE as usize); // After a very long record.
            }
            self.start = offset;
            let mut read = self.file.read_exact_at(&mut self.buffer, offset);
            if read.is_err() && self.buffer.len() as u64 > len {
                // What is behind may be what the disk does not give.
                self.buffer.truncate(len as usize);
                read = self.file.read_exact_at(&mut self.buffer, offset);
            }
            if let Err(error) = read {
                self.buffer.clear(); // What it holds is not what `start` says.
                return Err(Error::io("read", &self.path, error));
            }
        }
        let from = (offset - self.start) as usize;
        Ok((&self.buffer[from..from + len as usize], &self.path))
    }
}
