//! The secrets of an open database, and the keys of its files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroize;

use super::cipher::Cipher;
use super::file_key::{FileIdentity, FileKey, NonceWatch};
use super::key_in_version;
use super::random::Randomness;
use super::secret::Secret;
use crate::base::{Error, Result};

/// What is in a keyring.
#[derive(Clone, Debug)]
pub struct KeyringContents {
    /// The database that it is of; drawn with it.
    pub uuid: [u8; 16],
    /// With what it and all files are encrypted.
    pub(super) cipher: Cipher,
    /// The number of the key that new files are sealed with; one of `keys`.
    pub current: u16,
    /// The data keys, by number, from 1 on. A number is never used again.
    pub(super) keys: BTreeMap<u16, Secret>,
}

impl KeyringContents {
    /// Of a new database, with one key.
    pub(super) fn new(cipher: Cipher, random: &Randomness) -> KeyringContents {
        let mut uuid = [0; 16];
        random.fill(&mut uuid);
        let keys = BTreeMap::from([(1, Secret::filled(|bytes| random.fill(bytes)))]);
        KeyringContents { uuid, cipher, current: 1, keys }
    }

    /// The numbers of the keys.
    #[must_use]
    pub fn numbers(&self) -> Vec<u16> {
        self.keys.keys().copied().collect()
    }

    /// The key that new files are sealed with.
    fn current_key(&self) -> (u16, &Secret) {
        (self.current, self.keys.get(&self.current).expect("the current key is one of them"))
    }
}

/// The data keys of an open database.
pub struct Keyring {
    contents: RwLock<KeyringContents>,
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
        Keyring { contents: RwLock::new(contents), random, watch }
    }

    /// What is in it now.
    #[must_use]
    pub fn contents(&self) -> KeyringContents {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What would be in it with one more key, that new files are sealed with.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no numbers left.
    pub fn with_new_key(&self) -> Result<KeyringContents> {
        let mut contents = self.contents();
        let newest = contents.keys.keys().next_back().copied().unwrap_or_default();
        let number = newest.checked_add(1);
        let number = number.ok_or_else(|| Error::invalid("there are no numbers left for keys"))?;
        contents.keys.insert(number, Secret::filled(|bytes| self.random.fill(bytes)));
        contents.current = number;
        Ok(contents)
    }

    /// What would be in it with no key but the one that new files are sealed with.
    #[must_use]
    pub fn with_current_key_only(&self) -> KeyringContents {
        let mut contents = self.contents();
        let current = contents.current;
        contents.keys.retain(|number, _| *number == current);
        contents
    }

    /// Goes over to these contents, which are durable.
    pub fn replace(&self, contents: KeyringContents) {
        *self.contents.write().unwrap_or_else(PoisonError::into_inner) = contents;
    }

    /// The number of the key that new files are sealed with.
    #[must_use]
    pub fn current(&self) -> u16 {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).current
    }

    /// With what it and all files are encrypted.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).cipher
    }

    /// Whether there is a key of this number.
    #[must_use]
    pub fn has(&self, number: u16) -> bool {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        contents.keys.contains_key(&number)
    }

    /// The key of a file that is made now.
    #[must_use]
    pub fn key_for_new(&self, file: &FileIdentity) -> Arc<FileKey> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        self.derive(&contents, contents.current_key(), file)
    }

    /// The key of a file that says that it was made with the data key of this number.
    fn key_of(&self, number: u16, file: &FileIdentity) -> Option<Arc<FileKey>> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let secret = contents.keys.get(&number)?;
        Some(self.derive(&contents, (number, secret), file))
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
    #[must_use]
    pub fn for_new(keyring: Option<&Arc<Keyring>>, file: &FileIdentity) -> Option<Arc<FileKey>> {
        keyring.map(|keyring| keyring.key_for_new(file))
    }

    /// The key of a file whose header is damaged, if files are sealed: by the first of the version
    /// fields that are left of it which names a key that there is; else that of a file that is
    /// made now.
    #[must_use]
    pub fn of_damaged(
        keyring: Option<&Arc<Keyring>>,
        left: impl IntoIterator<Item = u32>,
        file: &FileIdentity,
    ) -> Option<Arc<FileKey>> {
        let keyring = keyring?;
        let mut numbers = left.into_iter().filter_map(key_in_version);
        let found = numbers.find_map(|number| keyring.key_of(number, file));
        Some(found.unwrap_or_else(|| keyring.key_for_new(file)))
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
