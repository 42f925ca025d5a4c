//! Damage: what happens to bytes at rest, for tests of whatever reads them back.
//!
//! Damage is on the disk and seen by the process at once; it is not a call, so it is neither
//! counted nor traced, and no crash takes it back: with it, all of the file's contents become
//! durable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SimStorage;
use super::disk::Stored;
use super::machine::Machine;
use crate::storage::content::{Content, check_range};
use crate::storage::names::NodeId;

/// A file's contents at some moment, to be put back later: a lost write, or yesterday's copy.
///
/// ```
/// use lithedb::storage::{OpenMode, SimStorage, Storage};
/// use std::path::Path;
///
/// let storage = SimStorage::new(1);
/// let path = Path::new("notes");
/// let file = storage.open(path, OpenMode::CreateNew)?;
/// file.write_all_at(b"old", 0)?;
/// let old = storage.snapshot_file(path)?;
/// file.write_all_at(b"new", 0)?;
/// storage.restore_file(path, &old)?;
/// let mut bytes = [0; 3];
/// file.read_exact_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"old");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSnapshot {
    content: Arc<Stored>,
}

impl SimStorage {
    /// Every file, by path, with its length.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let machine = self.machine();
        let files = machine.live.names.files().into_iter();
        files.map(|(path, file)| (path, machine.live_content(file).len())).collect()
    }

    /// The whole contents of a file.
    ///
    /// # Errors
    /// `NotFound` and the like; `OutOfMemory` when a sparse file is too long.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let machine = self.machine();
        let content = machine.live_content(machine.live.names.find_file(path)?);
        let mut bytes = Vec::new();
        let size = usize::try_from(content.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(size, 0);
        content.read_at(&mut bytes, 0);
        Ok(bytes)
    }

    /// Flips one bit; `bit` counts from the least significant one and is below 8.
    ///
    /// # Errors
    /// `InvalidInput` past the end or for another bit; `NotFound` and the like.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut machine = self.machine();
        let file = machine.live.names.find_file(path)?;
        if bit >= u8::BITS as u8 || offset >= machine.live_content(file).len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        machine.damage(file, |content| {
            let mut byte = [0];
            content.read_at(&mut byte, offset);
            content.write_pages(&[byte[0] ^ (1 << bit)], offset);
        });
        Ok(())
    }

    /// Cuts a file off, or extends it with zeros.
    ///
    /// # Errors
    /// `InvalidInput` for a length that no file can have; `NotFound` and the like.
    pub fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        check_range(0, len)?;
        let mut machine = self.machine();
        let file = machine.live.names.find_file(path)?;
        machine.damage(file, |content| content.set_len(len));
        Ok(())
    }

    /// Puts other bytes in, extending the file if need be.
    ///
    /// # Errors
    /// `InvalidInput` for a range that no file can have; `NotFound` and the like.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_range(offset, bytes.len() as u64)?;
        let mut machine = self.machine();
        let file = machine.live.names.find_file(path)?;
        machine.damage(file, |content| content.write_at(bytes, offset));
        Ok(())
    }

    /// Remembers a file's contents. Cheap: they are shared until somebody writes.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn snapshot_file(&self, path: &Path) -> io::Result<FileSnapshot> {
        let machine = self.machine();
        let content = machine.live_content(machine.live.names.find_file(path)?).clone();
        Ok(FileSnapshot { content })
    }

    /// Puts remembered contents in the place of a file's contents; creates the file, durably, if
    /// there is none. The snapshot may be of another file, also of another storage.
    ///
    /// # Errors
    /// `NotFound` when there is no such directory, and the like.
    pub fn restore_file(&self, path: &Path, snapshot: &FileSnapshot) -> io::Result<()> {
        let mut machine = self.machine();
        let file = match machine.live.names.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (node, place) = machine.live.names.create_file(path)?;
                machine.durable.names.add(node, place);
                node.id
            }
            found => found?,
        };
        machine.damage(file, |content| content.clone_from(&snapshot.content));
        Ok(())
    }
}

impl Machine {
    fn damage(&mut self, file: NodeId, damage: impl FnOnce(&mut Content)) {
        self.change_live(file, damage);
        self.checks.fill(file, &(0..u64::MAX)); // Whatever is there now was put there.
        // Unsynced changes would cover the damage up again.
        self.unsynced.forget_file(file);
        let damaged = self.live_content(file).clone();
        self.durable.contents.insert(file, damaged);
    }
}
