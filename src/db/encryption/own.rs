//! Keys of single keyspaces: who gets one, and how it is destroyed when the keyspace is dropped.
//!
//! ```text
//! creation .... a key for the numbers of the keyspace and its archive in the keyring, durable
//!               (R3), before their first file is made; indexes, and stores that it is converted
//!               to, get the same. The log has what all commit, and so from the first such keyspace
//!               on a key of its own, with which a new file of it is begun before that is made
//! dropping .... the edit of the manifest; who has not seen that does not come to the log any more
//!               (`db/gate.rs`); then the keyring says that the key, and that of the log, are to be
//!               destroyed, and the log goes on in a new file with another one, when no commit is
//!               on its way
//! destroying .. memtables are flushed, so that nothing needs the older log; files that are gone
//!               are gone durably, and the header of every other one is looked at; keys that none
//!               names, and no store that is held, go from the keyring, in both slots (R2)
//! later ....... when something has gone that may have kept one: a part of the log, a value file,
//!               a store; looked at by the background, once for all of it
//! ```
//!
//! What a crash interrupts is gone on with when the database is opened next: owners that the
//! catalogue does not have are let go then, and keys that no file has any more are destroyed.
//!
//! Invariants
//! - R7  A key is destroyed when nobody has it for new files, also not who still writes for what
//!   was dropped, and the header of no file names it, names that went included. So nothing that
//!   anybody may ever read is lost by it. It is said to be destroyed when both slots are durable.
//! - R8  Whatever is written for a keyspace that has a key of its own is sealed with that, or with
//!   the log's (B4); values lie in files of their own. What is still written for one that was
//!   dropped is so, too, or refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::{KeyringFile, keyring_path};
use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::core::{Core, lock};
use crate::db::keyspace::Keyspace;
use crate::manifest::{CatalogState, KeyspaceOptions, KeyspaceRecord};
use crate::seal::{Keyring, LOG_OWNER};

/// What destroying keys of keyspaces that were dropped has come to; see [`Db::destroy_keys`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyDestructionReport {
    /// Keys that were destroyed: of a keyspace one, and one of the log; and of both those of before
    /// a rotation that is not over.
    pub destroyed: u64,
    /// Keys that are to be destroyed, and are not yet.
    pub left: u64,
    /// Files that are sealed with these.
    pub files_left: Vec<PathBuf>,
}

impl Db {
    /// Creates a keyspace with a data key of its own, in an encrypted database: when it is dropped,
    /// that is destroyed, and with it what the keyspace had, wherever its files have been copied to
    /// without the keyring. Its archive and its indexes have the same key. Durable on return; takes
    /// three or four syncs more than [`Db::create_keyspace`].
    ///
    /// Its large values go to files of their own. The commit log has a key of its own from the
    /// first such keyspace on, for which everything is flushed once. There is room for some 500 of
    /// them at a time; and a database gives 65,535 keys in all, of which the creation of one takes
    /// one, and its drop another one.
    ///
    /// What the key does not protect: the keyspace's name and options, which the manifest has; what
    /// was in memory, or a swap file; backups and checkpoints, which have keyrings of their own;
    /// what a follower ([`Builder::follow`](crate::Builder::follow)) shows, until it goes on;
    /// tables that were made outside, which are sealed with the key that all have, and which it
    /// ingests entry by entry. And nothing of it from whoever can open the database, until it is
    /// dropped.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use std::sync::Arc;
    /// # use lithedb::{Background, Db, Encryption, KeyspaceOptions, storage::MemoryStorage};
    /// # let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    /// # let builder = builder.background(Background::Stepped);
    /// let db = builder.encryption(Encryption::key([7; 32])).open("/safe")?;
    /// let customer = db.create_keyspace_with_own_key("customer 17", KeyspaceOptions::flex())?;
    /// customer.put("name", "Ada")?;
    /// drop(customer);
    /// db.drop_keyspace("customer 17")?;
    /// assert_eq!(db.destroy_keys()?.left, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotEncrypted`; `InvalidArgument` also when the keyring is full, or 65,535 keys were used;
    /// else as [`Db::create_keyspace`].
    pub fn create_keyspace_with_own_key(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Keyspace> {
        let core = self.core();
        core.check_writable()?;
        core.keyring_in_use()?;
        core.check_new(name, &options)?; // In front of what cannot be taken back.
        core.give_own_key_to_log()?;
        let created = core.create_keyspace_as(name, options, KeyOf::Keyspace)?;
        Ok(Keyspace::new(Arc::clone(&self.handle), &created))
    }

    /// Destroys the keys of keyspaces that were dropped and had one of their own, as far as nothing
    /// needs them any more. [`Db::drop_keyspace`] does it, too; this says what is left, and goes on
    /// with it. Durable on return: the keyring does not have them, in either of its slots.
    ///
    /// Has commits wait for a sync, flushes what is in memory, and reads the headers of all files.
    /// What is left is held by a snapshot, an iterator or a handle; or in log and value files that
    /// are kept to be read, by [`Builder::kept_log_size`](crate::Builder::kept_log_size), for a
    /// consumer, or for a trail that was not told of them. It is looked at again in the background
    /// when any of these goes. Files that are kept for followers do not count: a key goes although
    /// one names it, and is in the memory of who follows until that goes on. A key that another
    /// keyspace has as well ([`Keyspace::is_own_key_shared`]) stays.
    ///
    /// As long as a rotation of the data key is not over, the older keys are to be destroyed as
    /// well: whose they were is not known. Those with files are left; when none has any, the
    /// rotation is over, and tables of [`Keyspace::table_writer`] from before it that were not
    /// ingested cannot be any more.
    ///
    /// # Errors
    /// `NotEncrypted`, `ReadOnly`, `DiskFull`, `Io`, `Closed`; as a flush else. Keys that are to be
    /// destroyed stay so, and are looked at when the database is opened as well. Behind an error of
    /// writing the keyring it is not known whether it has them: this gives `ReadOnly` from then on,
    /// until the database is opened again.
    pub fn destroy_keys(&self) -> Result<KeyDestructionReport> {
        let core = self.core();
        core.check_writable()?;
        core.destroy_keys()
    }
}

impl Keyspace {
    /// Whether it has a data key of its own; see [`Db::create_keyspace_with_own_key`].
    #[must_use]
    pub fn has_own_key(&self) -> bool {
        self.runtime().options.own_key
    }

    /// Whether it has a data key of its own that another keyspace has as well: then that is not
    /// destroyed before both are dropped. So it is behind a [`repair`](crate::repair) for which the
    /// manifest was lost: its archive and its indexes become keyspaces then.
    ///
    /// # Errors
    /// `Closed`.
    pub fn is_own_key_shared(&self) -> Result<bool> {
        let core = self.core();
        core.check_open()?;
        let runtime = self.runtime();
        let Some(keyring) = core.storage.keyring().filter(|_| runtime.options.own_key) else {
            return Ok(false);
        };
        let own = keyring.own_number(runtime.id.into());
        let manifest = core.lock_manifest();
        let mut others = manifest.state().keyspaces().filter(|record| {
            let of = keyspace_of(record);
            of != runtime.id && record.options.own_key
        });
        Ok(others.any(|other| own.is_some() && keyring.own_number(other.id.into()) == own))
    }
}

/// The number of the keyspace that this one is, or is a part of.
fn keyspace_of(record: &KeyspaceRecord) -> u32 {
    let index_of = record.options.index.as_ref().map(|index| index.of);
    record.options.archive_of.or(index_of).unwrap_or(record.id)
}

/// Whose key a keyspace that is created gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum KeyOf {
    /// That which all have who have none of their own.
    Database,
    /// Its own.
    Keyspace,
}

impl Core {
    /// Whether a keyspace, or a store, has a key of its own.
    pub(in crate::db) fn has_own_key(&self, number: u32) -> bool {
        self.storage.keyring().is_some_and(|keyring| keyring.is_owner(number.into()))
    }

    /// Has the log go on with a key of its own, if it does not yet.
    ///
    /// # Errors
    /// `NotEncrypted`; `InvalidArgument` when there are no numbers left, or no room; as a flush.
    pub(in crate::db) fn give_own_key_to_log(&self) -> Result<()> {
        self.change_keys(Keyring::with_key_of_log)?;
        if self.log.key_id() != self.keyring_in_use()?.number_for(LOG_OWNER) {
            self.begin_new_log_file()?;
            // From then on the manifest says that it was there, should it be lost.
            self.flush_all()?;
        }
        Ok(())
    }

    /// Gives a keyspace that is about to be made a key of its own, by these numbers, and the log
    /// one as well, if it has none. The caller has locked the manifest.
    pub(in crate::db) fn give_own_key(&self, numbers: &[u32]) -> Result<()> {
        let owners: Vec<u64> = numbers.iter().copied().map(u64::from).collect();
        self.change_keys(|keyring| keyring.with_own_key(&owners).map(Some))?;
        self.begin_log_file_with_newest_key()
    }

    /// Gives what belongs to a keyspace, and is about to be made, the key that this has, should it
    /// have one of its own. Its numbers are in the catalogue already, or come to it under the lock
    /// that the caller has.
    ///
    /// # Errors
    /// `InvalidArgument` when it had one, and was dropped meanwhile.
    pub(in crate::db) fn share_own_key(
        &self,
        catalogue: &CatalogState,
        of: u32,
        numbers: &[u32],
    ) -> Result<()> {
        let has_own_key = self.has_own_key(of);
        if !has_own_key && !self.storage.keyring().is_some_and(|keyring| keyring.is_gone(of.into()))
        {
            return Ok(());
        }
        let owners: Vec<u64> = numbers.iter().copied().map(u64::from).collect();
        // Stores that a conversion has replaced, and indexes that were dropped, when their files
        // are gone.
        let mut in_use = known_owners(catalogue);
        in_use.extend(catalogue.dropped().map(u64::from));
        let is_in_use = |owner| in_use.contains(&owner);
        match self.change_keys(|keyring| keyring.with_shared_key(of.into(), &owners, is_in_use))? {
            true => Ok(()),
            false => Err(Error::invalid(format!("keyspace {of} was dropped, and its key let go"))),
        }
    }

    /// Has it that these numbers were given no key: what was to have them has come to nothing, and
    /// others may get them. Not where an edit may have happened all the same. What cannot be
    /// written now is found when the database is opened next.
    pub(in crate::db) fn take_back_own_key(&self, numbers: &[u32]) {
        let Some(keyring) = self.storage.keyring().filter(|_| self.check_writable().is_ok()) else {
            return;
        };
        let mut file = lock(&self.keyring);
        let Some(file) = file.as_mut() else { return };
        let owners: Vec<u64> = numbers.iter().copied().map(u64::from).collect();
        let is_one = |owner| owners.contains(&owner);
        let contents = match keyring.without_owners(is_one) {
            Ok(None) => return,
            Ok(Some(contents)) => contents,
            Err(_) => return keyring.forget_owners(is_one),
        };
        match file.change(file.master.clone(), &contents) {
            Ok(()) => keyring.take_back(contents),
            // R3: the log has no key then that may not be in the file.
            Err(_looked_for_when_opened) => keyring.forget_owners(is_one),
        }
    }

    /// Destroys the keys of keyspaces that were dropped, as far as nothing needs them.
    pub(in crate::db) fn destroy_keys(&self) -> Result<KeyDestructionReport> {
        self.keyring_in_use()?;
        // Else what the file has is not known, and this could say that a key is gone that is there.
        lock(&self.keyring).as_ref().ok_or(Error::Closed)?.check()?;
        let to_destroy = {
            let manifest = self.lock_manifest_for_edit()?; // No keyspace is half made.
            let known = known_owners(manifest.state());
            self.change_keys(|keyring| keyring.with_known_owners(|owner| known.contains(&owner)))?;
            self.keyring_in_use()?.contents().to_destroy()
        };
        if to_destroy.is_empty() {
            return Ok(KeyDestructionReport::default());
        }
        self.let_go_of_retired_keys()?;
        // R6: as at the end of a rotation.
        let _staging = self.staging.write().unwrap_or_else(PoisonError::into_inner);
        self.destroy_unneeded_keys()
    }

    /// R8: commits of keyspaces with keys of their own are in files with a key of the log's own.
    fn begin_log_file_with_newest_key(&self) -> Result<()> {
        match self.log.key_id() == self.keyring_in_use()?.number_for(LOG_OWNER) {
            true => Ok(()),
            false => self.begin_new_log_file(),
        }
    }

    /// Has everything go that has keys which are to be destroyed, and is not needed.
    fn let_go_of_retired_keys(&self) -> Result<()> {
        {
            // What is in the older file is in memtables then, which are flushed: a commit that is
            // on its way would keep it, and nobody would look again when that is over.
            let _none_is_on_its_way = self.hold_commits()?;
            self.begin_log_file_with_newest_key()?;
        }
        self.cleaning.give_up(); // It may be about to write for them.
        self.values.close_files();
        self.flush_all()?; // The manifest says now that the older log is not needed.
        self.sync_values()?; // What is still to be synced is held.
        self.let_go_of_older_files();
        Ok(())
    }

    /// Destroys the keys that are to be destroyed and that no file has (R7). The caller has
    /// `staging` for itself.
    fn destroy_unneeded_keys(&self) -> Result<KeyDestructionReport> {
        let manifest = self.lock_manifest_for_edit()?;
        self.remove_unmade_stores(manifest.state().next_keyspace_id())?;
        let keyring = self.keyring_in_use()?;
        let to_destroy = keyring.contents().to_destroy();
        if to_destroy.is_empty() {
            return Ok(KeyDestructionReport::default());
        }
        let mut found = self.files_with_keys(&to_destroy)?;
        // Whoever holds a store that was dropped may still write to it, with the key that it had.
        let in_use = self.dropped.in_use().into_iter();
        let held: BTreeSet<u16> = in_use.map(|store| keyring.number_for(store.into())).collect();
        found.keys.extend(held.intersection(&to_destroy));
        if found.is_unsettled {
            self.note_keys_due();
        }
        let gone: BTreeSet<u16> = to_destroy.difference(&found.keys).copied().collect();
        if !gone.is_empty() {
            self.remove_keys(&gone)?;
        }
        let (destroyed, left) = (gone.len() as u64, found.keys.len() as u64);
        Ok(KeyDestructionReport { destroyed, left, files_left: found.paths })
    }

    /// Whether there are keys that are to be destroyed.
    pub(in crate::db) fn has_keys_to_destroy(&self) -> bool {
        self.storage.keyring().is_some_and(|keyring| keyring.is_to_destroy())
    }

    /// Says that something has gone that may have kept a key which is to be destroyed: the next
    /// background step that finds nothing more urgent looks.
    pub(in crate::db) fn note_keys_due(&self) {
        self.keys_due.store(true, Ordering::Release);
    }

    /// Destroys what keys it can without a flush, if anything has gone since that was last done.
    /// Waits for nobody; what is left is looked at again. Whether there was one.
    pub(in crate::db) fn destroy_keys_in_passing(&self) -> bool {
        if !self.keys_due.load(Ordering::Acquire) {
            return false;
        }
        let is_due = self.has_keys_to_destroy() && self.check_writable().is_ok();
        if is_due {
            self.values.close_without_owner();
            self.remove_unreferenced_values(); // What the keyspace held.
            self.log.give_up_spares(); // Each names the key of its earlier life.
        }
        self.keys_due.store(false, Ordering::Release);
        if !is_due {
            return false;
        }
        let Ok(_staging) = self.staging.try_write() else {
            self.note_keys_due();
            return false;
        };
        // A failure is told to who asks for it, and when the keyring is written to again.
        self.destroy_unneeded_keys().is_ok_and(|report| report.destroyed > 0)
    }
}

/// Whether everything in the catalogue that has a key of its own is an owner in the keyring: in one
/// of another time it may not be, and what is written for it would be sealed with what all have.
///
/// # Errors
/// `Corruption` of the keyring.
pub(in crate::db) fn check_owners(
    keyring: Option<&Arc<Keyring>>,
    catalogue: &CatalogState,
    dir: &Path,
) -> Result<()> {
    let own = |number: u32| keyring.and_then(|keyring| keyring.own_number(number.into()));
    for record in catalogue.keyspaces().filter(|record| record.options.own_key) {
        let (expected, found) = (own(keyspace_of(record)), [own(record.id), own(record.store)]);
        if expected.is_none() || found != [expected; 2] {
            let what = format!(
                "expected a key of its own for keyspace #{}, found {found:?} for it and its store, \
                 and {expected:?} for what it is of: the keyring is one of another time",
                record.id
            );
            return Err(Error::corruption(&keyring_path(dir), 0, what));
        }
    }
    Ok(())
}

/// Has each of these records say whether its keyspace has a key of its own, by the keyring: if all
/// that the keyspace is made of has the same, its archive, its indexes and their stores; else it
/// has none. Then the keyring has no owners but those, in memory. The keyspaces that were to have
/// one and have none.
pub(in crate::db) fn settle_owners(
    keyring: &Keyring,
    records: &mut [KeyspaceRecord],
) -> BTreeSet<u32> {
    let own = |number: u32| keyring.own_number(number.into());
    let mut numbers: BTreeMap<u32, BTreeSet<Option<u16>>> = BTreeMap::new();
    for record in records.iter() {
        let of_keyspace = numbers.entry(keyspace_of(record)).or_default();
        of_keyspace.extend([own(record.id), own(record.store)]);
    }
    let (mut without, mut known) = (BTreeSet::new(), BTreeSet::from([LOG_OWNER]));
    for record in records {
        let of = keyspace_of(record);
        let has_own_key = numbers[&of].len() == 1 && !numbers[&of].contains(&None);
        if record.options.own_key && !has_own_key {
            without.insert(of);
        }
        record.options.own_key = has_own_key;
        if has_own_key {
            known.extend([record.id, record.store].map(u64::from));
        }
    }
    keyring.forget_owners(|owner| !known.contains(&owner));
    without
}

/// Lets go of owners whose key nobody in the catalogue has: of keyspaces that were dropped, or that
/// came to nothing, when the machine or the process stopped.
///
/// # Errors
/// `DiskFull`, `Io`.
pub(in crate::db) fn let_go_of_unknown_owners(
    file: &mut KeyringFile,
    keyring: &Keyring,
    catalogue: &CatalogState,
) -> Result<()> {
    let known = known_owners(catalogue);
    let changed = keyring.without_owners(|owner| !known.contains(&owner)).and_then(|contents| {
        let Some(contents) = contents else { return Ok(()) };
        file.change(file.master.clone(), &contents)?;
        keyring.take_back(contents); // Nobody writes for them any more.
        Ok(())
    });
    match changed {
        // No number or no room for another key of the log: their keys stay, and all can be read.
        Err(Error::InvalidArgument { .. }) => Ok(()),
        changed => changed,
    }
}

/// The numbers of keyspaces that have keys of their own, and of their stores.
fn known_owners(catalogue: &CatalogState) -> BTreeSet<u64> {
    let owners = catalogue.keyspaces().filter(|record| record.options.own_key);
    let numbers = owners.flat_map(|record| [record.id, record.store]);
    numbers.map(u64::from).collect()
}
