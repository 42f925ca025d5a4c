//! Sealing: keys, and how bytes of an encrypted database are made unreadable and unforgeable.
//!
//! A *keyring* has the secrets of a database, its *data keys*; it lies in the file `KEYRING`,
//! sealed under a *master key* that comes of what the user gives ([`Encryption`]). Each file has a
//! key of its own, derived from a data key and from which file it is ([`FileIdentity`]). What is
//! sealed is whatever a file's format calls a payload: a record, an edit, a frame, a value, each by
//! itself; headers stay readable, and checksums are of what lies on the disk, so that a file can be
//! checked without a key. Each database has one [`Cipher`] for all. `docs/format/sealing.md` has
//! the bytes, and `docs/decisions/0043-encryption-at-rest.md` why it is so.
//!
//! Must not know files' formats, nor do input and output but for random numbers.
//!
//! Invariants
//! - B1  No nonce is used for two messages under one key: it is drawn, 192 bits, by the kernel; or
//!   it is made of a drawn one and the number of a piece; or of the message itself and its place
//!   ([`FileKey::nonce_of`]), so that it comes again only with the same message.
//! - B2  A message opens only as part of the file, and at the place in it, that it was sealed for:
//!   the file is in its key, the place is in what is authenticated with it.
//! - B3  No secret is shown, copied where it is not zeroed, or kept longer than what needs it.
//! - B4  What is written for one that has a data key of its own, a keyspace or the log, is sealed
//!   with that and nothing else, until it is destroyed; then nothing is written for it.

mod cipher;
mod envelope;
mod file_key;
mod fuzz;
mod gcm;
mod keyring;
mod random;
mod secret;
mod source;
#[cfg(test)]
mod tests;

use crate::base::format::{FILE_VERSION, FILE_VERSION_SEALED};

pub use cipher::Cipher;
pub use envelope::{KEYRING_FILE_SIZE, SLOT_SIZE, Slot, SlotState};
pub use file_key::{FileIdentity, FileKey, NONCE_LEN, Nonce, NonceWatch, SEAL_LEN, TAG_LEN, Tag};
pub(crate) use fuzz::{fuzz_key, fuzz_slot};
pub use keyring::{Keyring, KeyringContents, LOG_OWNER};
pub use random::Randomness;
pub use source::{Encryption, MasterKey, PassphraseCost, Vault, VaultError};
#[cfg(test)]
pub(crate) use tests::{drawing_key, recorded_key};

/// What the header of a file has for its version, by the number of its data key; 0 for none.
#[must_use]
pub fn version_field(key: u16) -> u32 {
    match key {
        0 => FILE_VERSION,
        _ => FILE_VERSION_SEALED | u32::from(key) << 16,
    }
}

/// The number of the data key that a version field has; `None` for a version that is not known.
#[must_use]
pub fn key_in_version(field: u32) -> Option<u16> {
    match (u32::from(field as u16), (field >> 16) as u16) {
        (FILE_VERSION, 0) => Some(0),
        (FILE_VERSION_SEALED, key) if key != 0 => Some(key),
        _ => None,
    }
}

/// The number of a key's data key; 0 if there is none.
#[must_use]
pub fn id_of(key: Option<&FileKey>) -> u16 {
    key.map_or(0, FileKey::id)
}
