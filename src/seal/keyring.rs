//! The secrets of an open database, and the keys of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroize;

use super::cipher::Cipher;
use super::envelope::{CONTENTS_LEN_MAX, contents_len};
use super::file_key::{FileIdentity, FileKey, NonceWatch};
use super::key_in_version;
use super::random::Randomness;
use super::secret::Secret;
use crate::base::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use crate::base::{Error, Result};

/// Stands for the commit log among those who have a key of their own. No keyspace has this number.
pub const LOG_OWNER: u64 = u64::MAX;

/// What is in a keyring.
#[derive(Clone, Debug)]
pub struct KeyringContents {
    /// The database that it is of; drawn with it.
    pub uuid: [u8; 16],
    /// With what it and all files are encrypted.
    pub(super) cipher: Cipher,
    /// The number of the key that new files are sealed with, but for those of owners; one of
    /// `keys`.
    pub current: u16,
    /// The highest number that a key was given.
    pub(super) newest: u16,
    /// The data keys, by number, from 1 on. A number is never used again.
    pub(super) keys: BTreeMap<u16, Secret>,
    /// Who has a key of its own, and its number: keyspaces and stores by their numbers, the log.
    pub(super) owners: BTreeMap<u64, u16>,
    /// The numbers of keys that were an owner's, who is no more: to be destroyed.
    pub(super) retired: BTreeSet<u16>,
}

impl KeyringContents {
    /// Of a new database, with one key.
    pub(super) fn new(cipher: Cipher, random: &Randomness) -> KeyringContents {
        let mut uuid = [0; 16];
        random.fill(&mut uuid);
        let keys = BTreeMap::from([(1, Secret::filled(|bytes| random.fill(bytes)))]);
        let (owners, retired) = (BTreeMap::new(), BTreeSet::new());
        KeyringContents { uuid, cipher, current: 1, newest: 1, keys, owners, retired }
    }

    /// The numbers of the keys.
    #[must_use]
    pub fn numbers(&self) -> Vec<u16> {
        self.keys.keys().copied().collect()
    }

    /// The number of the key that this one has of its own.
    #[must_use]
    pub fn own_number(&self, owner: u64) -> Option<u16> {
        self.owners.get(&owner).copied()
    }

    /// The number of the key that new files of this one are sealed with.
    #[must_use]
    pub fn number_for(&self, owner: u64) -> u16 {
        self.own_number(owner).unwrap_or(self.current)
    }

    /// Keys that were replaced by newer ones: what is in files with them is to be written anew.
    #[must_use]
    pub fn older(&self) -> BTreeSet<u16> {
        let numbers = self.keys.keys().copied();
        numbers.filter(|number| !self.is_used(*number) && !self.retired.contains(number)).collect()
    }

    /// Keys that no new file gets: older ones, and those that are to be destroyed. What is there
    /// may have one of these, if a repair found that its keyspace has no key of its own.
    #[must_use]
    pub fn replaced(&self) -> BTreeSet<u16> {
        let mut numbers = self.older();
        numbers.extend(&self.retired);
        numbers
    }

    /// Keys that are to be destroyed: those that are retired; and if anybody ever had one of its
    /// own, the older ones as well. For whose they were is not known, and that may be gone.
    #[must_use]
    pub fn to_destroy(&self) -> BTreeSet<u16> {
        let mut numbers = self.retired.clone();
        if self.own_number(LOG_OWNER).is_some() {
            numbers.extend(self.older());
        }
        numbers
    }

    /// Whether new files are sealed with the key of this number.
    fn is_used(&self, number: u16) -> bool {
        number == self.current || self.owners.values().any(|of| *of == number)
    }

    /// Whether there are numbers left for what the drops of all who have keys of their own take:
    /// another key of the log each.
    fn check_numbers(&self) -> Result<()> {
        let own: BTreeSet<u16> = self.owners.values().copied().collect();
        match usize::from(u16::MAX - self.newest) >= own.len() {
            true => Ok(()),
            false => Err(no_numbers()),
        }
    }

    /// Whether every key that is used could be replaced by a newer one, as a rotation and the drops
    /// of all keyspaces do, before an older one goes: what is there can always be destroyed.
    fn check_room(&self) -> Result<()> {
        self.check_numbers()?;
        let used = self.keys.keys().filter(|number| self.is_used(**number)).count();
        let (keys, owners) = (self.keys.len() + used + 1, self.owners.len());
        match contents_len(keys, owners, keys) <= CONTENTS_LEN_MAX {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "the keyring is full: {} keys of their own, of {owners} keyspaces, archives, \
                 indexes and stores",
                used - 1
            ))),
        }
    }

    /// Draws another key; its number.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no numbers left.
    fn add_key(&mut self, random: &Randomness) -> Result<u16> {
        let number = self.newest.checked_add(1).ok_or_else(no_numbers)?;
        self.keys.insert(number, Secret::filled(|bytes| random.fill(bytes)));
        self.newest = number;
        Ok(number)
    }

    /// Has those have a key of their own no more that `is_let_go` says, by who it is and the number
    /// of the key. Keys that nobody has any more are to be destroyed.
    fn let_go(&mut self, is_let_go: impl Fn(u64, u16) -> bool) {
        let before: BTreeSet<u16> = self.owners.values().copied().collect();
        self.owners.retain(|owner, number| !is_let_go(*owner, *number));
        let gone = before.into_iter().filter(|number| !self.is_used(*number));
        let gone: Vec<u16> = gone.collect();
        self.retired.extend(gone);
    }
}

fn no_numbers() -> Error {
    Error::invalid("there are no numbers left for keys")
}

/// What an open database has of its keyring.
#[derive(Clone, Debug)]
struct InUse {
    contents: KeyringContents,
    /// Owners that were let go since the database was opened. Whatever is still written for them
    /// gets the key that they had, and none when that is destroyed.
    gone: BTreeMap<u64, u16>,
    /// Keys that were to be removed, where that has failed: the file may be without them. None is
    /// used for anything any more.
    in_doubt: BTreeSet<u16>,
    /// The highest number that a key had been given when it was opened.
    newest_found: u16,
}

impl InUse {
    fn number_for(&self, owner: u64) -> u16 {
        self.gone.get(&owner).copied().unwrap_or_else(|| self.contents.number_for(owner))
    }

    fn secret(&self, number: u16) -> Option<&Secret> {
        self.contents.keys.get(&number).filter(|_| !self.in_doubt.contains(&number))
    }
}

/// The data keys of an open database.
pub struct Keyring {
    in_use: RwLock<InUse>,
    random: Randomness,
    watch: Option<Arc<NonceWatch>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.contents();
        let mut shown = f.debug_struct("Keyring");
        shown.field("current", &contents.current).field("keys", &contents.numbers()).finish()
    }
}

impl Keyring {
    pub(super) fn new(
        contents: KeyringContents,
        random: Randomness,
        watch: Option<Arc<NonceWatch>>,
    ) -> Keyring {
        let newest_found = contents.newest;
        let (gone, in_doubt) = (BTreeMap::new(), BTreeSet::new());
        let in_use = InUse { contents, gone, in_doubt, newest_found };
        Keyring { in_use: RwLock::new(in_use), random, watch }
    }

    fn in_use(&self) -> RwLockReadGuard<'_, InUse> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in it now.
    #[must_use]
    pub fn contents(&self) -> KeyringContents {
        self.in_use().contents.clone()
    }

    /// What would be in it with another key for everything that is written from then on.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no numbers left.
    pub fn with_new_keys(&self) -> Result<KeyringContents> {
        let mut contents = self.contents();
        let mut renewed = BTreeMap::from([(contents.current, contents.add_key(&self.random)?)]);
        for owner in contents.owners.keys().copied().collect::<Vec<u64>>() {
            let before = contents.owners[&owner];
            let number = match renewed.get(&before) {
                Some(number) => *number,
                None => contents.add_key(&self.random)?,
            };
            renewed.insert(before, number);
            contents.owners.insert(owner, number);
        }
        contents.current = renewed[&contents.current];
        contents.check_numbers()?;
        Ok(contents)
    }

    /// What would be in it with a key that only `owners` have; and with one for the log alone, as
    /// that has what they write.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no numbers left, or no room.
    pub fn with_own_key(&self, owners: &[u64]) -> Result<KeyringContents> {
        let mut contents = self.contents();
        let number = contents.add_key(&self.random)?;
        contents.owners.extend(owners.iter().map(|owner| (*owner, number)));
        self.add_key_of_log(&mut contents)?;
        contents.check_room()?;
        Ok(contents)
    }

    /// What would be in it with a key that the log alone has; nothing if it has one.
    ///
    /// # Errors
    /// As [`Keyring::with_own_key`].
    pub fn with_key_of_log(&self) -> Result<Option<KeyringContents>> {
        let mut contents = self.contents();
        if contents.own_number(LOG_OWNER).is_some() {
            return Ok(None);
        }
        self.add_key_of_log(&mut contents)?;
        contents.check_room()?;
        Ok(Some(contents))
    }

    fn add_key_of_log(&self, contents: &mut KeyringContents) -> Result<()> {
        if contents.own_number(LOG_OWNER).is_none() {
            let of_log = contents.add_key(&self.random)?;
            contents.owners.insert(LOG_OWNER, of_log);
        }
        Ok(())
    }

    /// What would be in it if `others` had the key that `owner` has of its own, and those that had
    /// it before and are not in use any more had it not; nothing if it has none.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no room.
    pub fn with_shared_key(
        &self,
        owner: u64,
        others: &[u64],
        is_in_use: impl Fn(u64) -> bool,
    ) -> Result<Option<KeyringContents>> {
        let mut contents = self.contents();
        let Some(number) = contents.own_number(owner) else { return Ok(None) };
        let stays = |other: u64, of: u16| of != number || other == owner || is_in_use(other);
        contents.owners.retain(|other, of| stays(*other, *of));
        contents.owners.extend(others.iter().map(|other| (*other, number)));
        contents.check_room()?;
        Ok(Some(contents))
    }

    /// What would be in it if those had no key of their own that `is_let_go` says. Nothing if none
    /// of them has.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no numbers left.
    pub fn without_owners(
        &self,
        is_let_go: impl Fn(u64) -> bool,
    ) -> Result<Option<KeyringContents>> {
        self.letting_go(|owner, _| is_let_go(owner))
    }

    /// What would be in it if nobody had a key but who is known, and who has the same as one of
    /// these. Nothing if there is nobody else.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no numbers left.
    pub fn with_known_owners(
        &self,
        is_known: impl Fn(u64) -> bool,
    ) -> Result<Option<KeyringContents>> {
        let contents = self.contents();
        let known = contents.owners.iter().filter(|(owner, _)| is_known(**owner));
        let known: BTreeSet<u16> = known.map(|(_, number)| *number).collect();
        self.letting_go(|_, number| !known.contains(&number))
    }

    /// The log has another key then, should there be one to be destroyed: it has what that is for.
    fn letting_go(&self, is_let_go: impl Fn(u64, u16) -> bool) -> Result<Option<KeyringContents>> {
        let mut contents = self.contents();
        let (owner_count, retired_count) = (contents.owners.len(), contents.retired.len());
        contents.let_go(|owner, number| owner != LOG_OWNER && is_let_go(owner, number));
        if contents.owners.len() == owner_count {
            return Ok(None);
        }
        if contents.retired.len() > retired_count
            && let Some(of_log) = contents.owners.get(&LOG_OWNER).copied()
        {
            let number = contents.add_key(&self.random)?;
            contents.owners.insert(LOG_OWNER, number);
            contents.retired.insert(of_log);
        }
        Ok(Some(contents))
    }

    /// What would be in it without these keys, which no new file is sealed with.
    #[must_use]
    pub fn without_keys(&self, numbers: &BTreeSet<u16>) -> KeyringContents {
        let mut contents = self.contents();
        let is_to_go: BTreeSet<u16> =
            numbers.iter().copied().filter(|number| !contents.is_used(*number)).collect();
        contents.keys.retain(|number, _| !is_to_go.contains(number));
        contents.retired.retain(|number| !is_to_go.contains(number));
        contents
    }

    /// Goes over to these contents, which are durable.
    pub fn replace(&self, contents: KeyringContents) {
        let mut in_use = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut in_use.contents, contents);
        for (owner, number) in before.owners {
            if in_use.contents.own_number(owner).is_none() {
                in_use.gone.insert(owner, number);
            }
        }
    }

    /// As [`Keyring::replace`], where what an owner was to be has come to nothing: its number may
    /// be given again.
    pub fn take_back(&self, contents: KeyringContents) {
        self.in_use.write().unwrap_or_else(PoisonError::into_inner).contents = contents;
    }

    /// Has those have no key of their own that `is_let_go` says, in memory alone: the file may say
    /// otherwise, and nothing else changes.
    pub fn forget_owners(&self, is_let_go: impl Fn(u64) -> bool) {
        let mut in_use = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
        in_use.contents.owners.retain(|owner, _| !is_let_go(*owner));
    }

    /// Has nothing be done with these keys any more, which are still said to be there: whether the
    /// file has them is not known.
    pub fn note_in_doubt(&self, numbers: &BTreeSet<u16>) {
        let mut in_use = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
        in_use.in_doubt.extend(numbers);
    }

    /// The number of the key that new files are sealed with, but for those of owners.
    #[must_use]
    pub fn current(&self) -> u16 {
        self.in_use().contents.current
    }

    /// With what it and all files are encrypted.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.in_use().contents.cipher
    }

    /// The number of the key that new files of this one are sealed with.
    #[must_use]
    pub fn number_for(&self, owner: u64) -> u16 {
        self.in_use().number_for(owner)
    }

    /// The number of the key that this one has of its own.
    #[must_use]
    pub fn own_number(&self, owner: u64) -> Option<u16> {
        self.in_use().contents.own_number(owner)
    }

    /// Whether this one has a key of its own.
    #[must_use]
    pub fn is_owner(&self, owner: u64) -> bool {
        self.own_number(owner).is_some()
    }

    /// The numbers of the keys that a file of this one may have which has no header yet.
    #[must_use]
    pub fn numbers_for_unfinished(&self, owner: u64) -> BTreeSet<u16> {
        let in_use = self.in_use();
        let mut numbers = in_use.contents.older();
        numbers.insert(in_use.number_for(owner));
        numbers
    }

    /// Whether new files are sealed with the key of this number; of those that have none, 0.
    #[must_use]
    pub fn is_for_new(&self, number: u16) -> bool {
        number == 0 || self.in_use().contents.is_used(number)
    }

    /// Whether new files of others, and not of this one, are sealed with the key of this number.
    #[must_use]
    pub fn is_of_others(&self, owner: u64, number: u16) -> bool {
        let in_use = self.in_use();
        in_use.contents.is_used(number) && in_use.number_for(owner) != number
    }

    /// Whether this one had a key of its own that was let go since the database was opened.
    #[must_use]
    pub fn is_gone(&self, owner: u64) -> bool {
        self.in_use().gone.contains_key(&owner)
    }

    /// Whether keys are to be destroyed.
    #[must_use]
    pub fn is_to_destroy(&self) -> bool {
        !self.in_use().contents.to_destroy().is_empty()
    }

    /// Whether anybody has, or had since the database was opened, a key of its own.
    #[must_use]
    pub fn has_owners(&self) -> bool {
        let in_use = self.in_use();
        !in_use.contents.owners.is_empty() || !in_use.gone.is_empty()
    }

    /// Whether there is a key of this number that was there when it was opened. Those that were
    /// drawn since have numbers that another copy of the database may have given to others.
    #[must_use]
    pub fn has_found(&self, number: u16) -> bool {
        let in_use = self.in_use();
        number <= in_use.newest_found && in_use.secret(number).is_some()
    }

    /// The key of a file that is made now.
    ///
    /// # Errors
    /// `InvalidArgument` when that is the key of a keyspace that was dropped, and is destroyed.
    pub fn key_for_new(&self, file: &FileIdentity) -> Result<Arc<FileKey>> {
        self.key_for_new_of(file.key_owner(), file)
    }

    fn key_for_new_of(&self, owner: u64, file: &FileIdentity) -> Result<Arc<FileKey>> {
        let in_use = self.in_use();
        let number = in_use.number_for(owner);
        let secret = in_use.secret(number).ok_or_else(|| {
            Error::invalid(format!("keyspace {owner} was dropped, and its key is destroyed"))
        })?;
        Ok(self.derive(&in_use.contents, (number, secret), file))
    }

    /// The key of a file that says that it was made with the data key of this number.
    fn key_of(&self, number: u16, file: &FileIdentity) -> Option<Arc<FileKey>> {
        let in_use = self.in_use();
        let secret = in_use.secret(number)?;
        Some(self.derive(&in_use.contents, (number, secret), file))
    }

    fn derive(
        &self,
        contents: &KeyringContents,
        (number, secret): (u16, &Secret),
        file: &FileIdentity,
    ) -> Arc<FileKey> {
        let derived = derive(secret, &contents.uuid, &file.encode());
        let (random, watch) = (self.random.clone(), self.watch.clone());
        Arc::new(FileKey::new(number, (contents.cipher, &derived), random, watch))
    }

    /// The key of a file that is made now, if files are sealed.
    ///
    /// # Errors
    /// As [`Keyring::key_for_new`].
    pub fn for_new(
        keyring: Option<&Arc<Keyring>>,
        file: &FileIdentity,
    ) -> Result<Option<Arc<FileKey>>> {
        keyring.map(|keyring| keyring.key_for_new(file)).transpose()
    }

    /// The same of a file that has what this one writes, though it is of all.
    ///
    /// # Errors
    /// As [`Keyring::key_for_new`].
    pub fn for_new_of(
        keyring: Option<&Arc<Keyring>>,
        owner: u64,
        file: &FileIdentity,
    ) -> Result<Option<Arc<FileKey>>> {
        keyring.map(|keyring| keyring.key_for_new_of(owner, file)).transpose()
    }

    /// The keys that a file whose header is damaged may have, the likely ones first; none if files
    /// are not sealed. What is left of the header may name another one by now, so that it is for
    /// the file's payloads to say which it is: those that the version fields name which are left
    /// of it, that of a file that is made now, older ones, all others.
    #[must_use]
    pub fn of_damaged(
        keyring: Option<&Arc<Keyring>>,
        left: impl IntoIterator<Item = u32>,
        file: &FileIdentity,
    ) -> Vec<Arc<FileKey>> {
        let Some(keyring) = keyring else { return Vec::new() };
        let contents = keyring.contents();
        let mut numbers: Vec<u16> = left.into_iter().filter_map(key_in_version).collect();
        numbers.push(keyring.number_for(file.key_owner()));
        numbers.extend(contents.older().into_iter().rev());
        numbers.extend(contents.numbers().into_iter().rev());
        let mut seen = BTreeSet::new();
        numbers.retain(|number| seen.insert(*number));
        numbers.into_iter().filter_map(|number| keyring.key_of(number, file)).collect()
    }

    /// The key of a file whose header has this number of a data key: 0 if it was not sealed.
    ///
    /// # Errors
    /// [`Error::KeyNeeded`] where the file is sealed and there are no keys; [`Error::Corruption`]
    /// where it is not, but all are that belong there, and where there is no key of this number.
    pub fn of_found(
        keyring: Option<&Arc<Keyring>>,
        number: u16,
        file: &FileIdentity,
        path: &Path,
    ) -> Result<Option<Arc<FileKey>>> {
        match (keyring, number) {
            (None, 0) => Ok(None),
            (None, _) => Err(Error::KeyNeeded { file: path.to_owned() }),
            (Some(_), 0) => Err(Error::corruption(
                path,
                0,
                "a file that is not encrypted, in a database that is",
            )),
            (Some(keyring), _) => match keyring.key_of(number, file) {
                Some(key) => Ok(Some(key)),
                None => {
                    let what = format!("sealed with key {number}, which the keyring does not have");
                    Err(Error::corruption(path, 0, what))
                }
            },
        }
    }
}

/// HKDF-SHA256.
pub(super) fn derive(secret: &Secret, salt: &[u8], what_for: &[u8]) -> Secret {
    let (mut extracted, hkdf) = Hkdf::<Sha256>::extract(Some(salt), secret.bytes());
    extracted.as_mut_slice().zeroize(); // What `hkdf` has of it, it zeroes itself.
    Secret::filled(|bytes| {
        hkdf.expand(what_for, bytes).expect("HKDF gives up to 8160 bytes");
    })
}
