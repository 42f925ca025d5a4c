//! An open file of a storage that is looked after.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Guard;
use super::calls::FileNumber;
use crate::storage::{Operation, StorageFile};

/// Another storage's file, looked after.
#[derive(Debug)]
pub(super) struct GuardedFile {
    below: Arc<dyn StorageFile>,
    path: Arc<Path>,
    number: FileNumber,
    guard: Arc<Guard>,
}

impl GuardedFile {
    pub(super) fn new(below: Arc<dyn StorageFile>, path: &Path, guard: Arc<Guard>) -> GuardedFile {
        let path: Arc<Path> = Arc::from(path);
        let number = guard.calls.add(Arc::clone(&path));
        GuardedFile { below, path, number, guard }
    }

    #[inline]
    fn noted<T>(&self, operation: Operation, call: impl FnOnce() -> T) -> T {
        let _underway = self.guard.calls.begin(operation, self.number);
        call()
    }

    /// Reads; again if that has failed and may come right.
    #[inline]
    fn read(
        &self,
        mut read: impl FnMut(&dyn StorageFile) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.noted(Operation::Read, || match read(&*self.below) {
            Ok(count) => Ok(count),
            Err(error) => self.guard.read_again(&self.path, error, || read(&*self.below)),
        })
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        self.guard.calls.remove(self.number);
    }
}

impl StorageFile for GuardedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(|file| file.read_at(buffer, offset))
    }

    fn read_as_is_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(|file| file.read_as_is_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.guard.check_process()?;
        let write = || self.below.write_at(bytes, offset);
        self.noted(Operation::Write, || self.guard.in_room(&self.path, bytes.len() as u64, write))
    }

    fn size(&self) -> io::Result<u64> {
        self.noted(Operation::Size, || self.below.size())
    }

    fn link_count(&self) -> io::Result<u64> {
        self.noted(Operation::Size, || self.below.link_count())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.guard.check_process()?;
        let set = || self.below.set_len(len);
        self.noted(Operation::SetLen, || self.guard.in_room(&self.path, 0, set))
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.guard.check_process()?;
        let allocate = || self.below.preallocate(len);
        let done =
            self.noted(Operation::Preallocate, || self.guard.in_room(&self.path, len, allocate));
        done.inspect(|()| self.guard.note_room_at(&self.path))
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        self.guard.check_process()?;
        self.noted(Operation::PunchHole, || self.below.punch_hole(offset, size))
    }

    fn begin_writeback(&self, offset: u64, size: u64) {
        self.below.begin_writeback(offset, size);
    }

    fn begin_read(&self, offset: u64, size: u64) {
        self.below.begin_read(offset, size);
    }

    fn sync(&self) -> io::Result<()> {
        self.guard.check_process()?;
        self.noted(Operation::Sync, || self.below.sync())
    }
}
