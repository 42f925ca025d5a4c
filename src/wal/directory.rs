//! The `wal/` directory: names of log files, and files made ready before they are needed.
//!
//! Invariant
//! - W1 (see the module): a file's name is durable before a byte is written under it, so that a
//!   number under which anything was ever written is never given to another file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::seal::{FileIdentity, FileKey, Keyring};
use crate::storage::{EntryType, OpenMode, Storage, StorageFile};

use super::header::{FileHeader, HEADER_BLOCK_SIZE};
use super::lsn::Lsn;
use super::record::MARK_SIZE;
use super::zeros::Blocks;

const SUFFIX: &str = ".wal";
const DIGITS_MIN: usize = 8;

/// What can be chosen about a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Size of a log file in bytes. A record that is larger gets a file of its own size.
    pub file_capacity: u64,
    /// How many files that are no longer needed are kept for reuse.
    pub spare_files_max: usize,
    /// Bytes of files that recovery no longer needs, kept to be read: whole files, at most this.
    pub kept_bytes_max: u64,
    /// Files with records from here on are kept to be read, whatever their bytes.
    pub held_from: Lsn,
}

impl Default for WalOptions {
    fn default() -> WalOptions {
        WalOptions {
            file_capacity: 64 << 20,
            spare_files_max: 2,
            kept_bytes_max: 0,
            held_from: Lsn::MAX,
        }
    }
}

/// Where a log lives and whose it is.
#[derive(Clone, Debug)]
pub struct WalPlace {
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub database_id: u64,
    pub options: WalOptions,
}

/// A file that nothing needs, kept to be overwritten.
#[derive(Debug)]
pub struct Spare {
    pub path: PathBuf,
    pub file: Arc<dyn StorageFile>,
    pub capacity: u64,
}

/// A file that bears its number durably and has its full size, but no header yet.
#[derive(Debug)]
pub struct PreparedFile {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<dyn StorageFile>,
    pub capacity: u64,
    pub blocks: Blocks,
}

impl WalPlace {
    /// The path of file `number`.
    pub fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:0DIGITS_MIN$}{SUFFIX}"))
    }

    /// What file `number`, which is begun now, is sealed with.
    ///
    /// # Errors
    /// As [`Keyring::for_new`].
    pub fn key_for_new(&self, number: u64) -> Result<Option<Arc<FileKey>>> {
        Keyring::for_new(self.storage.keyring(), &self.identity(number))
    }

    /// What the file with this header is sealed with.
    ///
    /// # Errors
    /// [`Error::KeyNeeded`]; [`Error::Corruption`] when there is no such key, or it is not sealed
    /// where all others are.
    pub fn key_of(&self, header: &FileHeader) -> Result<Option<Arc<FileKey>>> {
        let (keyring, identity) = (self.storage.keyring(), self.identity(header.number));
        Keyring::of_found(keyring, header.key, &identity, &self.path_of(header.number))
    }

    /// What file `number` may be sealed with, the likely keys first, of whose header no more than
    /// these version fields is left.
    pub fn keys_of_damaged(&self, number: u64, left: Vec<u32>) -> Vec<Arc<FileKey>> {
        Keyring::of_damaged(self.storage.keyring(), left, &self.identity(number))
    }

    fn identity(&self, number: u64) -> FileIdentity {
        identity(self.database_id, number)
    }

    /// The numbers of all log files, rising. Other names are left alone.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn numbers(&self) -> Result<Vec<u64>> {
        let entries =
            self.storage.list_dir(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
        let mut numbers: Vec<u64> = files.filter_map(|entry| number_of(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens file `number`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(&self, number: u64, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let path = self.path_of(number);
        self.storage.open(&path, mode).map_err(|e| Error::io("open", &path, e))
    }

    /// Opens file `number` to be written to, unless it has a name elsewhere (W10).
    ///
    /// # Errors
    /// [`Error::Io`], also when the storage does not say how many names it has.
    pub fn open_unless_shared(&self, number: u64) -> Result<Option<Arc<dyn StorageFile>>> {
        // Not opened for writing even: the other name may be that of an open database's file.
        let found = self.open(number, OpenMode::ReadOnly)?;
        let names = found.link_count();
        match names.map_err(|e| Error::io("read", &self.path_of(number), e))? {
            0 | 1 => self.open(number, OpenMode::ReadWrite).map(Some),
            _ => Ok(None),
        }
    }

    /// Removes a file; whether its name is gone for good shows at the next sync of the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.storage.remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_dir(&self) -> Result<()> {
        self.storage.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))
    }

    /// Whether the options can work.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`].
    pub fn validate(&self) -> Result<()> {
        let least = HEADER_BLOCK_SIZE + 2 * MARK_SIZE;
        let capacity = self.options.file_capacity;
        if capacity < least || !capacity.is_multiple_of(8) || capacity > 1 << 48 {
            return Err(Error::invalid(format!(
                "a log file of {capacity} bytes: at least {least}, and a multiple of 8, is needed"
            )));
        }
        Ok(())
    }

    /// Makes file `number` ready, out of `spare` if there is one of that size. On an error the
    /// file is given up; the number must not be tried again.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]. The log is unchanged.
    pub fn prepare(
        &self,
        number: u64,
        capacity: u64,
        spare: Option<Spare>,
    ) -> Result<PreparedFile> {
        let path = self.path_of(number);
        let blocks = if spare.is_some() { Blocks::Written } else { Blocks::Blank };
        let outcome = match spare {
            Some(spare) => self.rename_spare(spare, &path),
            None => self.create_file(&path, capacity),
        };
        // W1: the name is durable before anything is written.
        let synced = outcome.and_then(|file| {
            self.sync_dir()?;
            Ok(file)
        });
        match synced {
            Ok(file) => Ok(PreparedFile { number, path, file, capacity, blocks }),
            Err(error) => {
                // What is left over is unused and taken up by the next recovery.
                let _ = self.remove(&path);
                Err(error)
            }
        }
    }

    fn rename_spare(&self, spare: Spare, path: &Path) -> Result<Arc<dyn StorageFile>> {
        // So that what was not needed does not trickle to the disk under the new name.
        spare.file.sync().map_err(|e| Error::io("sync", &spare.path, e))?;
        let renamed = self.storage.rename(&spare.path, path);
        renamed.map_err(|e| Error::io("rename", &spare.path, e))?;
        Ok(spare.file)
    }

    fn create_file(&self, path: &Path, capacity: u64) -> Result<Arc<dyn StorageFile>> {
        let opened = self.storage.open(path, OpenMode::CreateNew);
        let file = opened.map_err(|e| Error::io("create", path, e))?;
        file.preallocate(capacity).map_err(|e| Error::io("allocate", path, e))?;
        // W2: so is the size. Also takes the cost of allocation out of the first commits.
        file.sync().map_err(|e| Error::io("sync", path, e))?;
        Ok(file)
    }
}

/// Which file it is, for its key.
pub(super) fn identity(database: u64, number: u64) -> FileIdentity {
    FileIdentity { kind: *b"wal ", database, owner: 0, number }
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let canonical = digits.len() >= DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = if canonical { digits.parse().ok()? } else { return None };
    (number > 0 && number < u64::MAX && format!("{number:0DIGITS_MIN$}") == digits)
        .then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_log_files() {
        assert_eq!(number_of("00000007.wal"), Some(7));
        assert_eq!(number_of("123456789.wal"), Some(123_456_789));
        for name in ["7.wal", "00000000.wal", "000000007.wal", "+0000007.wal", "00000007.wal~"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
