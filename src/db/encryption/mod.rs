//! The keyring of an encrypted database: the file `KEYRING`, made before everything else.
//!
//! The file has two slots with the same keys, each whole by itself (`seal/envelope.rs`). A change
//! is written to the one that does not count, or to the first, and synced; then to the other one.
//!
//! Invariants
//! - R1  There is always a slot that is whole and durable, and the whole one of the highest
//!   generation counts. So after a crash it is the keyring of before the change, or that of behind.
//! - R2  When a change is done, no slot has what was before it: neither a key that was let go, nor
//!   what an earlier master key opens.
//! - R3  A data key is durable before anything is sealed with it: the file is made before the first
//!   manifest, and a new key is used when the change is done.
//! - R4  What has another name is not written to: it may be the keyring of a copy that was made by
//!   links, whose files keep the keys of before.

mod own;
mod rotation;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use own::KeyDestructionReport;
pub(super) use own::{KeyOf, check_owners, let_go_of_unknown_owners, settle_owners};
pub use rotation::KeyRotationReport;

use crate::base::format::KEYRING_VERSION;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::core::{Core, lock};
use crate::db::options::{Access, Builder};
use crate::manifest::Manifest;
use crate::seal::{
    Cipher, Encryption, FileIdentity, FileKey, KEYRING_FILE_SIZE, Keyring, KeyringContents,
    MasterKey, Randomness, SLOT_SIZE, Slot, SlotState,
};
use crate::storage::{OpenMode, SealedStorage, Storage, StorageFile, is_shared};

const FILE_NAME: &str = "KEYRING";
/// While it is made.
const UNFINISHED_NAME: &str = "KEYRING.new";
const SLOTS: [usize; 2] = [0, 1];
const NO_SLOTS: [SlotState; 2] =
    [SlotState::Damaged("the file ends"), SlotState::Damaged("the file ends")];

/// Where the keyring of a database is.
pub(super) fn keyring_path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

/// What the keyring of the database in `dir` is now, byte by byte; `None` if it has none.
///
/// # Errors
/// `Io`.
pub(super) fn keyring_bytes(storage: &dyn Storage, dir: &Path) -> Result<Option<Vec<u8>>> {
    let path = keyring_path(dir);
    let io = |source| Error::io("read", &path, source);
    let file = match storage.open(&path, OpenMode::ReadOnly) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io)?,
    };
    let size = file.size().map_err(io)?.min(KEYRING_FILE_SIZE);
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0).map_err(io)?;
    Ok(Some(bytes))
}

/// Makes the keyring of the database in `from` that of `to` as well, durably. What cannot be read
/// of it is zero there: one slot will do, and the other one is mended when the copy is opened.
///
/// # Errors
/// `DiskFull`, `Io`.
pub(super) fn copy_keyring(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    let path = keyring_path(from);
    let file = storage.open(&path, OpenMode::ReadOnly);
    let file = file.map_err(|error| Error::io("open", &path, error))?;
    let mut bytes = vec![0; KEYRING_FILE_SIZE as usize];
    for (index, slot) in bytes.chunks_exact_mut(SLOT_SIZE).enumerate() {
        if file.read_exact_at(slot, offset_of(index)).is_err() {
            slot.fill(0);
        }
    }
    put_in_place(storage, to, &bytes).map(drop)
}

/// The file, and what its slots are sealed with.
#[derive(Debug)]
pub(super) struct KeyringFile {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    random: Randomness,
    master: MasterKey,
    /// Of the slot that counts.
    generation: u64,
    /// The slot that is written first: it does not count, or both are the same.
    first: usize,
    /// Why it is not written to any more.
    broken: Option<String>,
}

/// Gives the storage of the builder its keys, if the database in `dir`, which is locked, is
/// encrypted, or is to be created so.
///
/// # Errors
/// `KeyNeeded`, `WrongKey`, `NotEncrypted`, `VaultFailed`; `Corruption`, `FormatVersion`, `Io`,
/// `DiskFull`.
pub(super) fn take_keys(
    builder: Builder,
    dir: &Path,
    is_there: bool,
) -> Result<(Builder, Option<KeyringFile>)> {
    let (storage, path) = (Arc::clone(&builder.storage), keyring_path(dir));
    let has_keyring = storage.exists(&path).map_err(|error| Error::io("look for", &path, error))?;
    if is_there && !has_keyring && Manifest::is_sealed(&*storage, dir)? {
        return Err(Error::corruption(&path, 0, "the keyring is missing"));
    }
    let Some(encryption) = builder.encryption.clone() else {
        return match has_keyring {
            true => Err(Error::KeyNeeded { file: path }),
            false => Ok((builder, None)),
        };
    };
    if is_there && !has_keyring {
        return Err(Error::NotEncrypted { path: dir.to_owned() });
    }
    let (file, contents) = match has_keyring {
        true => KeyringFile::open(Arc::clone(&storage), path, &encryption, builder.access)?,
        false => KeyringFile::create(Arc::clone(&storage), dir, &encryption)?,
    };
    let keyring = Arc::new(encryption.keyring(contents));
    let storage = Arc::new(SealedStorage::new(storage, keyring));
    Ok((Builder { storage, encryption: None, ..builder }, Some(file)))
}

/// The storage with the keys of the encrypted database in `dir`, for
/// showing pieces of its files: these are opened then. Nothing is written,
/// and the database may be in use.
///
/// # Errors
/// `NotEncrypted`, `WrongKey`, `VaultFailed`; `Corruption`, `FormatVersion`, `Io`.
pub fn unlock(
    storage: Arc<dyn Storage>,
    dir: impl AsRef<Path>,
    encryption: &Encryption,
) -> Result<Arc<dyn Storage>> {
    let path = keyring_path(dir.as_ref());
    if !storage.exists(&path).map_err(|error| Error::io("look for", &path, error))? {
        return Err(Error::NotEncrypted { path: dir.as_ref().to_owned() });
    }
    let reading = Arc::clone(&storage);
    let (_, contents) = KeyringFile::open(reading, path, encryption, Access::ReadOnly)?;
    Ok(Arc::new(SealedStorage::new(storage, Arc::new(encryption.keyring(contents)))))
}

/// The keys in the bytes of a keyring's file, which is at `path`.
///
/// # Errors
/// `WrongKey`, `VaultFailed`; `Corruption`, `FormatVersion`.
pub(super) fn keys_in(bytes: &[u8], path: &Path, encryption: &Encryption) -> Result<Arc<Keyring>> {
    let mut slots = NO_SLOTS;
    for (index, part) in bytes.chunks_exact(SLOT_SIZE).enumerate().take(SLOTS.len()) {
        slots[index] = Slot::decode(index, part);
    }
    let whole = slots.iter().filter_map(|slot| match slot {
        SlotState::Whole(slot) => Some(slot),
        SlotState::Unknown(_) | SlotState::Damaged(_) => None,
    });
    let Some(newest) = whole.max_by_key(|slot| slot.generation) else {
        return Err(none_is_whole(&slots, path.to_owned()));
    };
    let (_, contents) = newest.open(encryption, path)?;
    Ok(Arc::new(encryption.keyring(contents)))
}

impl KeyringFile {
    /// Makes the file, durably.
    fn create(
        storage: Arc<dyn Storage>,
        dir: &Path,
        encryption: &Encryption,
    ) -> Result<(KeyringFile, KeyringContents)> {
        let random = encryption.randomness().clone();
        let (master, contents) = (MasterKey::new(encryption, &random)?, encryption.new_contents());
        let (generation, first, broken) = (1, 0, None);
        let mut bytes = Vec::with_capacity(KEYRING_FILE_SIZE as usize);
        for index in SLOTS {
            bytes.extend(Slot::encode(index, generation, &master, &contents, &random)?);
        }
        let file = put_in_place(&*storage, dir, &bytes)?;
        let path = keyring_path(dir);
        Ok((
            KeyringFile { storage, path, file, random, master, generation, first, broken },
            contents,
        ))
    }

    /// Opens the slot that counts. The other one is written anew unless it is the same (R2).
    fn open(
        storage: Arc<dyn Storage>,
        path: PathBuf,
        encryption: &Encryption,
        access: Access,
    ) -> Result<(KeyringFile, KeyringContents)> {
        let mode = match access {
            Access::ReadWrite => OpenMode::ReadWrite,
            Access::ReadOnly => OpenMode::ReadOnly,
        };
        let file = storage.open(&path, mode).map_err(|error| Error::io("open", &path, error))?;
        let slots = read_slots(&*file, &path, access)?;
        let generations = slots.each_ref().map(|slot| match slot {
            SlotState::Whole(slot) => Some(slot.generation),
            SlotState::Unknown(_) | SlotState::Damaged(_) => None,
        });
        let counts = if generations[1] > generations[0] { 1 } else { 0 };
        let (slot, generation) = match &slots[counts] {
            SlotState::Whole(slot) => (slot, slot.generation),
            _ => return Err(none_is_whole(&slots, path)),
        };
        let (master, contents) = slot.open(encryption, &path)?;
        let broken = None;
        let first = 1 - counts;
        let random = encryption.randomness().clone();
        let mut opened =
            KeyringFile { storage, path, file, random, master, generation, first, broken };
        if access == Access::ReadWrite {
            remove_unfinished(&*opened.storage, opened.dir())?; // R2
        }
        if generations[0] != generations[1] && access == Access::ReadWrite {
            opened.unshare()?;
            opened.write_again(counts)?;
            opened.write_slot(first, generation, &contents)?;
        }
        Ok((opened, contents))
    }

    /// The bytes of the file: a keyring of its own, elsewhere.
    pub(super) fn image(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; KEYRING_FILE_SIZE as usize];
        let read = self.file.read_exact_at(&mut bytes, 0);
        read.map_err(|error| Error::io("read", &self.path, error))?;
        Ok(bytes)
    }

    /// Whether it can be written to: no more, when a change has failed.
    fn check(&self) -> Result<()> {
        match &self.broken {
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Makes these the contents of both slots, sealed under `master` (R1, R2).
    fn change(&mut self, master: MasterKey, contents: &KeyringContents) -> Result<()> {
        self.check()?;
        let (generation, first) = (self.generation + 1, self.first);
        let encode = |index| Slot::encode(index, generation, &master, contents, &self.random);
        let (first_slot, other_slot) = (encode(first)?, encode(1 - first)?); // There is room.
        self.unshare()?;
        if let Err(error) = self.write_bytes(first, &first_slot) {
            // It may count from now on or not: the next opening shows.
            self.broken = Some(why_broken(&error));
            return Err(error);
        }
        (self.master, self.generation) = (master, generation);
        if let Err(error) = self.write_bytes(1 - first, &other_slot) {
            self.broken = Some(why_broken(&error));
            return Err(error);
        }
        Ok(())
    }

    /// Makes it a file of its own, if it may have another name (R4). When that fails, what it says
    /// has not changed, but which file has its name is not known.
    fn unshare(&mut self) -> Result<()> {
        if !is_shared(&*self.file) {
            return Ok(());
        }
        let placed =
            self.image().and_then(|bytes| put_in_place(&*self.storage, self.dir(), &bytes));
        self.file = placed.inspect_err(|error| self.broken = Some(why_broken(error)))?;
        Ok(())
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("it is in the database's directory")
    }

    /// Writes a slot, durably.
    fn write_slot(&self, index: usize, generation: u64, contents: &KeyringContents) -> Result<()> {
        let slot = Slot::encode(index, generation, &self.master, contents, &self.random)?;
        self.write_bytes(index, &slot)
    }

    /// Writes the slot that counts once more as it is, durably, before the other one is touched
    /// (R1): what a sync has failed for may be in the system's memory alone, from where no later
    /// sync brings it to the disk.
    fn write_again(&self, index: usize) -> Result<()> {
        let mut slot = vec![0; SLOT_SIZE];
        let read = self.file.read_exact_at(&mut slot, offset_of(index));
        read.map_err(|error| Error::io("read", &self.path, error))?;
        self.write_bytes(index, &slot)
    }

    fn write_bytes(&self, index: usize, slot: &[u8]) -> Result<()> {
        let io = |action| {
            let path = &self.path;
            move |source| Error::Io { action, path: path.clone(), source }
        };
        self.file.write_all_at(slot, offset_of(index)).map_err(io("write"))?;
        if is_seeded(Bug::KeyringNotSynced) {
            return Ok(());
        }
        self.file.sync().map_err(io("sync"))
    }
}

fn why_broken(error: &Error) -> String {
    format!("an earlier write of the keyring failed: {error}")
}

/// Makes a file with these bytes the keyring of `dir`, durably: it gets its name when it is whole.
fn put_in_place(storage: &dyn Storage, dir: &Path, bytes: &[u8]) -> Result<Arc<dyn StorageFile>> {
    let (path, unfinished) = (keyring_path(dir), dir.join(UNFINISHED_NAME));
    let io = |action| {
        let unfinished = &unfinished;
        move |error| Error::io(action, unfinished, error)
    };
    remove_unfinished(storage, dir)?;
    let file = storage.open(&unfinished, OpenMode::CreateNew).map_err(io("create"))?;
    let written = file.write_all_at(bytes, 0).map_err(io("write"));
    let synced = written.and_then(|()| file.sync().map_err(io("sync")));
    let named = synced.and_then(|()| storage.rename(&unfinished, &path).map_err(io("rename")));
    if named.is_err() {
        let _next_opening_does_it_else = storage.remove_file(&unfinished);
    }
    named?;
    storage.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
    Ok(file)
}

/// Removes a keyring that did not get its name: it is opened by what opened the one of before.
fn remove_unfinished(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let unfinished = dir.join(UNFINISHED_NAME);
    let exists = storage.exists(&unfinished);
    if !exists.map_err(|error| Error::io("look for", &unfinished, error))? {
        return Ok(());
    }
    let removed = storage.remove_file(&unfinished);
    removed.map_err(|error| Error::io("remove", &unfinished, error))?;
    storage.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))
}

fn offset_of(slot: usize) -> u64 {
    (slot * SLOT_SIZE) as u64
}

/// What is in the slots. A file that ends early has damaged ones. To read by, one that the disk
/// does not give is as good as damaged; not to write by, as it may be the newer one, which would be
/// written over with the other.
fn read_slots(file: &dyn StorageFile, path: &Path, access: Access) -> Result<[SlotState; 2]> {
    let io = |error| Error::io("read", path, error);
    let size = file.size().map_err(io)?;
    let mut slots = NO_SLOTS;
    for (index, slot) in slots.iter_mut().enumerate() {
        if offset_of(index + 1) <= size {
            let mut bytes = vec![0; SLOT_SIZE];
            *slot = match file.read_exact_at(&mut bytes, offset_of(index)) {
                Ok(()) => Slot::decode(index, &bytes),
                Err(_) if access == Access::ReadOnly => SlotState::Damaged("it cannot be read"),
                Err(error) => return Err(io(error)),
            };
        }
    }
    Ok(slots)
}

fn none_is_whole(slots: &[SlotState; 2], path: PathBuf) -> Error {
    let unknown = slots.iter().find_map(|slot| match slot {
        SlotState::Unknown(version) => Some(*version),
        _ => None,
    });
    match (unknown, &slots[0]) {
        (Some(found), _) => Error::FormatVersion { file: path, found, known: KEYRING_VERSION },
        (None, SlotState::Damaged(what)) => Error::corruption(&path, 0, *what),
        (None, _) => Error::corruption(&path, 0, "no slot is whole"),
    }
}

impl Core {
    /// Makes what `change` says the contents of the keyring, durably (R1 to R3); nothing changes
    /// when it says nothing. Whether there was something.
    fn change_keys(
        &self,
        change: impl FnOnce(&Keyring) -> Result<Option<KeyringContents>>,
    ) -> Result<bool> {
        let keyring = self.keyring_in_use()?;
        let mut file = lock(&self.keyring);
        let file = file.as_mut().ok_or(Error::Closed)?;
        let Some(contents) = change(keyring)? else { return Ok(false) };
        file.change(file.master.clone(), &contents)?;
        keyring.replace(contents); // R3
        Ok(true)
    }

    fn keyring_in_use(&self) -> Result<&Arc<Keyring>> {
        let not_encrypted = || Error::NotEncrypted { path: self.dir.clone() };
        self.storage.keyring().ok_or_else(not_encrypted)
    }

    /// The bytes of the keyring's file, if there is one.
    pub(super) fn image_keyring(&self) -> Result<Option<Vec<u8>>> {
        if self.storage.keyring().is_none() {
            return Ok(None);
        }
        lock(&self.keyring).as_ref().ok_or(Error::Closed)?.image().map(Some)
    }

    /// The key of a file that is made now elsewhere than in the database, and the bytes of the
    /// keyring's file, which has it; `None` if there is none.
    pub(super) fn key_and_keyring(
        &self,
        file: &FileIdentity,
    ) -> Result<Option<(Arc<FileKey>, Vec<u8>)>> {
        let Some(keyring) = self.storage.keyring() else { return Ok(None) };
        let own = lock(&self.keyring); // It does not change meanwhile.
        let bytes = own.as_ref().ok_or(Error::Closed)?.image()?;
        Ok(Some((keyring.key_for_new(file)?, bytes)))
    }

    /// From here on the file may be another opening's.
    pub(super) fn let_go_of_keyring(&self) {
        drop(lock(&self.keyring).take());
    }
}

impl Db {
    /// Whether the database is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.core().storage.keyring().is_some()
    }

    /// With what the database is encrypted; `None` if it is not.
    #[must_use]
    pub fn cipher(&self) -> Option<Cipher> {
        self.core().storage.keyring().map(|keyring| keyring.cipher())
    }

    /// Has the database be opened with another key or passphrase from now on, and not with the one
    /// of before. What is stored is not written anew: its keys are, in one small file. So who has
    /// seen these, with a copy of the database's keyring and the key of before, can go on reading.
    /// Checkpoints that were made before are opened with the key of before.
    ///
    /// Durable on return. A crash in between leaves the database to be opened with either one of
    /// the two, and not the other. It takes two syncs, and with a passphrase the time and memory of
    /// [`PassphraseCost`](crate::PassphraseCost); everything else goes on meanwhile.
    ///
    /// # Errors
    /// `NotEncrypted`; `ReadOnly` for one that was opened to be read; `InvalidArgument` for a cost
    /// of the passphrase that is out of range; `VaultFailed`, `Closed`: nothing changed. `Io`: the
    /// database is to be opened with one of the two, and this one is used on as it was; it refuses
    /// to be rekeyed again until it is reopened.
    pub fn rekey(&self, encryption: &Encryption) -> Result<()> {
        let core = self.core();
        core.check_writable()?;
        let keyring = core.keyring_in_use()?;
        let random = lock(&core.keyring).as_ref().ok_or(Error::Closed)?.random.clone();
        // Takes its time, for which a checkpoint, and commits with it, would wait.
        let master = MasterKey::new(encryption, &random)?;
        let mut file = lock(&core.keyring);
        let file = file.as_mut().ok_or(Error::Closed)?;
        file.change(master, &keyring.contents())
    }
}
