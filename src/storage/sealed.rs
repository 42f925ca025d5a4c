//! A storage, and the keys that what is in its files is sealed with.
//!
//! Whoever writes files of a database has its storage; so that is how keys come to all of them, and
//! no part can forget to ask for them. Files are those of the storage below, as they are.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DirEntry, OpenMode, Storage, StorageFile, StorageLock};
use crate::seal::Keyring;

/// Another storage with a keyring.
#[derive(Debug)]
pub(crate) struct SealedStorage {
    below: Arc<dyn Storage>,
    keyring: Arc<Keyring>,
}

impl SealedStorage {
    pub(crate) fn new(below: Arc<dyn Storage>, keyring: Arc<Keyring>) -> SealedStorage {
        SealedStorage { below, keyring }
    }
}

impl Storage for SealedStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.below.open(path, mode)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename_new(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.below.exchange(one, other)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.below.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.below.remove_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.below.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.below.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.below.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.below.lock_shared(path)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        self.below.lock_dir(path)
    }

    fn lock_dir_shared(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        self.below.lock_dir_shared(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below.exists(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.below.resolve(path)
    }

    fn room(&self, path: &Path) -> io::Result<Option<u64>> {
        self.below.room(path)
    }

    fn keyring(&self) -> Option<&Arc<Keyring>> {
        Some(&self.keyring)
    }

    fn give_owner(&self, path: &Path, of: &Path) -> io::Result<()> {
        self.below.give_owner(path, of)
    }

    fn is_beside(&self) -> bool {
        self.below.is_beside()
    }

    fn followers(&self) -> Option<(u64, u64)> {
        self.below.followers()
    }
}
