//! A storage whose files somebody else writes and removes, for who reads beside that one.
//!
//! Owns the registration by which the writer knows of it, for as long as anybody reads by this. A
//! file that has lost its name is found where it was put aside. Nothing can be changed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::followers::Registration;
use super::{DirEntry, OpenMode, Storage, StorageFile, StorageLock, not_writable};

/// Another storage, read beside a writer.
#[derive(Debug)]
pub(crate) struct BesideStorage {
    below: Arc<dyn Storage>,
    registration: Registration,
}

impl BesideStorage {
    pub(crate) fn new(below: Arc<dyn Storage>, registration: Registration) -> BesideStorage {
        BesideStorage { below, registration }
    }

    /// Whether the writer sees that somebody reads by this.
    pub(crate) fn is_registered(&self) -> io::Result<bool> {
        self.registration.is_in_place()
    }

    /// How many files were put aside since it was registered, and their bytes: these are looked at
    /// when there are others than `files`, which had `bytes`.
    pub(crate) fn held_since(&self, files: u64, bytes: u64) -> (u64, u64) {
        match self.registration.held_count() {
            count if count == files => (files, bytes),
            count => (count, self.registration.held_bytes()),
        }
    }
}

impl Storage for BesideStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if mode != OpenMode::ReadOnly {
            return Err(not_writable());
        }
        match self.below.open(path, mode) {
            // In this order: a file that is put aside has that name first.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match self.registration.find_held(path)? {
                    Some(held) => self.below.open(&held, mode),
                    None => Err(error),
                }
            }
            opened => opened,
        }
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Err(not_writable())
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(not_writable())
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Err(not_writable())
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Err(not_writable())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        // In this order, as for opening.
        let listed = self.below.list_dir(path);
        let held = self.registration.held_in(path)?;
        let entries = match listed {
            Err(error) if error.kind() == ErrorKind::NotFound && !held.is_empty() => Vec::new(),
            listed => listed?,
        };
        if held.is_empty() {
            return Ok(entries);
        }
        let both = held.into_iter().chain(entries);
        let by_name: BTreeMap<_, _> = both.map(|entry| (entry.name, entry.entry_type)).collect();
        let entry = |(name, entry_type)| DirEntry { name, entry_type };
        Ok(by_name.into_iter().map(entry).collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Err(not_writable())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn StorageLock>> {
        Err(not_writable())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.below.exists(path)? || self.registration.find_held(path)?.is_some())
    }

    fn is_beside(&self) -> bool {
        true
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.below.resolve(path)
    }
}
