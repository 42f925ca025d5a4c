//! Where the master key comes from: what a user gives to open an encrypted database.

use std::fmt;
use std::sync::Arc;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::{Zeroize, Zeroizing};

use super::cipher::Cipher;
use super::file_key::NonceWatch;
use super::keyring::derive;
use super::random::Randomness;
use super::secret::Secret;
use crate::base::{Entropy, Error, Result};

/// Bytes that a vault may make of a key.
pub const WRAPPED_LEN_MAX: usize = 16 << 10;
/// Bytes of salt.
pub const SALT_LEN: usize = 16;
/// The least memory for a passphrase, in KiB.
const MEMORY_KIB_MIN: u32 = 8;
/// The most, which an opening can be made to take: 1 GiB.
const MEMORY_KIB_MAX: u32 = 1 << 20;
const PASSES_MAX: u32 = 1 << 10;
const LANES_MAX: u32 = 64;
/// Memory times passes, in KiB: 16 GiB, which are gone over in some ten seconds. A keyring says
/// what its passphrase costs before it is known who wrote that.
const WORK_KIB_MAX: u64 = 16 << 20;

/// A service that keeps keys, as of a cloud or a hardware module: it encrypts and decrypts keys of
/// databases under one of its own, which never leaves it.
pub trait Vault: Send + Sync + fmt::Debug {
    /// Encrypts 32 secret bytes, to at most 16 KiB that say all that [`Vault::unwrap_key`] needs.
    /// Called when a database is created, and when it gets another key.
    ///
    /// # Errors
    /// Why it could not be done.
    fn wrap_key(&self, secret: &[u8; 32]) -> std::result::Result<Vec<u8>, VaultError>;

    /// Decrypts what [`Vault::wrap_key`] made. Called when a database is opened.
    ///
    /// # Errors
    /// [`VaultError::WrongKey`] when it was made under another key; why it could not be done.
    fn unwrap_key(&self, wrapped: &[u8]) -> std::result::Result<[u8; 32], VaultError>;
}

/// How a vault failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VaultError {
    /// It was made under another key than the vault has.
    WrongKey,
    /// It could not be done.
    Failed(String),
}

/// What guessing a passphrase costs: Argon2id, version 1.3. Memory times passes are 16 GiB at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    /// KiB of memory: 8 for each lane at least, and 1 GiB at most.
    pub memory_kib: u32,
    /// Passes over it: 1 to 1024.
    pub passes: u32,
    /// Lanes: 1 to 64. They are gone through one after the other.
    pub lanes: u32,
}

impl Default for PassphraseCost {
    /// 64 MiB, 3 passes, 4 lanes: the second recommendation of RFC 9106.
    fn default() -> PassphraseCost {
        PassphraseCost { memory_kib: 64 << 10, passes: 3, lanes: 4 }
    }
}

impl PassphraseCost {
    pub(super) fn is_sane(self) -> bool {
        (MEMORY_KIB_MIN..=MEMORY_KIB_MAX).contains(&self.memory_kib)
            && (1..=PASSES_MAX).contains(&self.passes)
            && (1..=LANES_MAX).contains(&self.lanes)
            && self.memory_kib / self.lanes >= MEMORY_KIB_MIN
            && u64::from(self.memory_kib) * u64::from(self.passes) <= WORK_KIB_MAX
    }
}

/// What opens an encrypted database; see [`Builder::encryption`](crate::Builder::encryption).
/// Secrets that it holds are zeroed when the last copy of it is dropped, and not shown.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// use lithedb::{Db, Encryption, Error, storage::MemoryStorage};
/// let storage = std::sync::Arc::new(MemoryStorage::new());
/// let builder = || Db::builder().storage(storage.clone());
/// builder().encryption(Encryption::key([7; 32])).open("/safe")?.close()?;
/// let other = builder().encryption(Encryption::key([8; 32])).open("/safe");
/// assert!(matches!(other, Err(Error::WrongKey { .. })));
/// assert!(matches!(builder().open("/safe"), Err(Error::KeyNeeded { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Encryption {
    pub(super) source: Source,
    /// Of a database that is made with it; else the default.
    pub(super) cipher: Option<Cipher>,
    pub(super) random: Randomness,
    pub(super) watch: Option<Arc<NonceWatch>>,
}

#[derive(Clone)]
pub(super) enum Source {
    Key(Secret),
    Passphrase { phrase: Arc<Zeroizing<Vec<u8>>>, cost: PassphraseCost },
    Vault(Arc<dyn Vault>),
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Key(_) => f.write_str("Encryption::key(..)"),
            Source::Passphrase { .. } => f.write_str("Encryption::passphrase(..)"),
            Source::Vault(vault) => write!(f, "Encryption::vault({vault:?})"),
        }
    }
}

impl Encryption {
    /// By a key of 32 random bytes. Of a password it is [`Encryption::passphrase`]: a key is not
    /// made harder to guess.
    #[must_use]
    pub fn key(mut key: [u8; 32]) -> Encryption {
        Encryption::by(Source::Key(Secret::take(&mut key)))
    }

    /// By a passphrase, with the default cost: opening takes about a tenth of a second, and 64 MiB
    /// of memory for that.
    #[must_use]
    pub fn passphrase(phrase: impl AsRef<[u8]>) -> Encryption {
        let phrase = Arc::new(Zeroizing::new(phrase.as_ref().to_vec()));
        Encryption::by(Source::Passphrase { phrase, cost: PassphraseCost::default() })
    }

    /// By a key service.
    #[must_use]
    pub fn vault(vault: Arc<dyn Vault>) -> Encryption {
        Encryption::by(Source::Vault(vault))
    }

    fn by(source: Source) -> Encryption {
        Encryption { source, cipher: None, random: Randomness::System, watch: None }
    }

    /// What guessing the passphrase is to cost, of a database that is created with this, or gets it
    /// as its new one; an opening goes by what the database says. Nothing changes without a
    /// passphrase.
    #[must_use]
    pub fn passphrase_cost(mut self, new: PassphraseCost) -> Encryption {
        if let Source::Passphrase { cost, .. } = &mut self.source {
            *cost = new;
        }
        self
    }

    /// With what a database is encrypted that is created with this; else that is what is faster on
    /// the processor at hand. A database keeps its cipher, and is opened on any processor.
    #[must_use]
    pub fn cipher(mut self, cipher: Cipher) -> Encryption {
        self.cipher = Some(cipher);
        self
    }

    /// Where keys and nonces are drawn.
    pub(crate) fn randomness(&self) -> &Randomness {
        &self.random
    }

    /// Draws keys and nonces from a sequence that can be drawn again. Only for simulations: what is
    /// sealed with them is no secret. And has it asserted that no nonce is used for two messages.
    #[doc(hidden)]
    #[must_use]
    pub fn simulated(mut self, entropy: Arc<dyn Entropy>) -> Encryption {
        self.random = Randomness::Seeded(entropy);
        self.watch = Some(Arc::default());
        self
    }

    /// Has it asserted together with others that no nonce is used for two messages: of all openings
    /// of a database, and of copies of it, which have the same keys. Only for simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn watched(mut self, watch: Arc<NonceWatch>) -> Encryption {
        self.watch = Some(watch);
        self
    }
}

/// How a master key is made of what the user gives: what the keyring's file says in the clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    Key { salt: [u8; SALT_LEN] },
    Passphrase { salt: [u8; SALT_LEN], cost: PassphraseCost },
    Vault { wrapped: Vec<u8> },
}

/// What a keyring is sealed under.
#[derive(Clone, Debug)]
pub struct MasterKey {
    pub(super) recipe: Recipe,
    pub(super) secret: Secret,
}

impl MasterKey {
    /// A new one of what the user gives.
    ///
    /// # Errors
    /// `InvalidArgument` for a cost that is none; [`Error::VaultFailed`].
    pub fn new(encryption: &Encryption, random: &Randomness) -> Result<MasterKey> {
        let mut salt = [0; SALT_LEN];
        random.fill(&mut salt);
        let (recipe, secret) = match &encryption.source {
            Source::Key(key) => (Recipe::Key { salt }, of_key(key, &salt)),
            Source::Passphrase { phrase, cost } => {
                if !cost.is_sane() {
                    return Err(Error::invalid("a cost of a passphrase that is out of range"));
                }
                (Recipe::Passphrase { salt, cost: *cost }, of_passphrase(phrase, &salt, *cost)?)
            }
            Source::Vault(vault) => {
                let secret = Secret::filled(|bytes| random.fill(bytes));
                let wrapped = vault.wrap_key(secret.bytes()).map_err(|error| failed(&error))?;
                if wrapped.len() > WRAPPED_LEN_MAX {
                    let (len, max) = (wrapped.len(), WRAPPED_LEN_MAX);
                    let why = format!("it made {len} bytes of a key, and at most {max} fit");
                    return Err(Error::VaultFailed { why });
                }
                (Recipe::Vault { wrapped }, secret)
            }
        };
        Ok(MasterKey { recipe, secret })
    }

    /// The one that a keyring says how to make; none if what the user gives is of another kind, or
    /// the vault says that it has another key.
    pub(super) fn again(encryption: &Encryption, recipe: &Recipe) -> Result<Option<MasterKey>> {
        let secret = match (&encryption.source, recipe) {
            (Source::Key(key), Recipe::Key { salt }) => of_key(key, salt),
            (Source::Passphrase { phrase, .. }, Recipe::Passphrase { salt, cost }) => {
                of_passphrase(phrase, salt, *cost)?
            }
            (Source::Vault(vault), Recipe::Vault { wrapped }) => match vault.unwrap_key(wrapped) {
                Ok(mut bytes) => Secret::take(&mut bytes),
                Err(VaultError::WrongKey) => return Ok(None),
                Err(error) => return Err(failed(&error)),
            },
            _ => return Ok(None),
        };
        Ok(Some(MasterKey { recipe: recipe.clone(), secret }))
    }
}

fn of_key(key: &Secret, salt: &[u8; SALT_LEN]) -> Secret {
    derive(key, salt, b"lithedb master key")
}

fn of_passphrase(phrase: &[u8], salt: &[u8; SALT_LEN], cost: PassphraseCost) -> Result<Secret> {
    let failed = |error: argon2::Error| Error::invalid(format!("the passphrase: {error}"));
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, None).map_err(failed)?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(params.block_count()).map_err(|_| {
        let kib = params.block_count();
        Error::invalid(format!("the passphrase: there are no {kib} KiB of memory for it"))
    })?;
    memory.resize(params.block_count(), Block::default());
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut made = Ok(());
    let secret = Secret::filled(|bytes| {
        made = argon.hash_password_into_with_memory(phrase, salt, bytes, &mut memory);
    });
    memory.iter_mut().for_each(Zeroize::zeroize);
    made.map_err(failed)?;
    Ok(secret)
}

fn failed(error: &VaultError) -> Error {
    let why = match error {
        VaultError::WrongKey => "it does not have the key".to_owned(),
        VaultError::Failed(why) => why.clone(),
    };
    Error::VaultFailed { why }
}
