//! The key of one file, and sealing with it.

use std::collections::HashMap;
use std::fmt;

use super::cipher::{Cipher, DERIVED_WITH, Derived, Keyed};
use super::keyring::LOG_OWNER;
use super::random::Randomness;
use super::secret::Secret;
use crate::base::sync::{Arc, Mutex, PoisonError};

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 24;
/// Bytes of a tag.
pub const TAG_LEN: usize = 16;
/// Bytes that lie behind a message that was sealed with a nonce of its own: nonce and tag.
pub const SEAL_LEN: usize = NONCE_LEN + TAG_LEN;

/// A number that is used once.
pub type Nonce = [u8; NONCE_LEN];
/// What says that a message is as it was sealed.
pub type Tag = [u8; TAG_LEN];

/// Which file a key is for (B2). No two files of a database ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// What kind of file it is.
    pub kind: [u8; 4],
    /// The id of its database, or what stands for that.
    pub database: u64,
    /// Whose it is within that: the number of a store; 0 for what is shared.
    pub owner: u64,
    /// Its number.
    pub number: u64,
}

impl FileIdentity {
    /// Whose data key it is sealed with, if that one has one of its own. What is shared may be
    /// written for one alone: then that is said.
    pub(super) fn key_owner(&self) -> u64 {
        match &self.kind {
            // A segment of a trail has what the log has.
            b"wal " | b"trl " => LOG_OWNER,
            _ => self.owner,
        }
    }

    /// What the file's key is derived with.
    pub(super) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..12].copy_from_slice(b"lithedb file");
        bytes[12..16].copy_from_slice(&self.kind);
        bytes[16..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.owner.to_le_bytes());
        bytes[32..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }
}

/// What was sealed under which nonce, for simulations: by the key's first bytes and the nonce.
#[derive(Debug, Default)]
pub struct NonceWatch(Mutex<HashMap<([u8; 8], Nonce), Tag>>);

impl NonceWatch {
    /// Another one, which knows what this one knows: for a history that goes another way from here.
    #[must_use]
    pub fn forked(&self) -> NonceWatch {
        NonceWatch(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    /// # Panics
    /// When the nonce was used for another message (B1).
    fn note(&self, key: [u8; 8], nonce: &Nonce, tag: &Tag) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = used.insert((key, *nonce), *tag);
        assert!(before.is_none_or(|before| before == *tag), "B1: a nonce was used twice");
    }
}

/// Seals what is in one file.
pub struct FileKey {
    id: u16,
    cipher: Keyed,
    random: Randomness,
    watch: Option<([u8; 8], Arc<NonceWatch>)>,
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl FileKey {
    pub(super) fn new(
        id: u16,
        (cipher, secret): (Cipher, &Secret),
        random: Randomness,
        watch: Option<Arc<NonceWatch>>,
    ) -> FileKey {
        let cipher = Keyed::new(cipher, secret);
        let mark = || *secret.bytes().first_chunk().expect("a secret is longer");
        FileKey { id, cipher, random, watch: watch.map(|watch| (mark(), watch)) }
    }

    /// The number of the data key that it was derived from.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// A nonce that was never used (B1).
    #[must_use]
    pub fn draw_nonce(&self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce);
        nonce
    }

    /// What seals and opens the pieces of what a nonce was drawn for.
    #[must_use]
    pub fn pieces(&self, drawn: &Nonce) -> Pieces<'_> {
        Pieces { key: self, drawn: *drawn, cipher: self.cipher.derived(drawn) }
    }

    /// The nonce of a message with this hash, which has to be one that nobody can find two messages
    /// for, at this place (B1). It is not to be told to those who must not learn whether a message
    /// is one that they know.
    #[must_use]
    pub fn nonce_of(hash: &[u8; 16], offset: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..16].copy_from_slice(hash);
        nonce[16..].copy_from_slice(&offset.to_le_bytes());
        nonce
    }

    /// Encrypts `message` where it is. `place` is authenticated with it (B2).
    #[must_use]
    pub fn seal(&self, nonce: &Nonce, place: &[u8], message: &mut [u8]) -> Tag {
        let tag = self.cipher.derived(nonce).seal(nonce, place, message);
        self.note(nonce, &tag);
        tag
    }

    fn note(&self, nonce: &Nonce, tag: &Tag) {
        if let Some((key, watch)) = &self.watch {
            watch.note(*key, nonce, tag);
        }
    }

    /// Decrypts `message` where it is, if it is what was sealed for this place; else it is of no
    /// use any more.
    #[must_use]
    pub fn open(&self, nonce: &Nonce, place: &[u8], message: &mut [u8], tag: &Tag) -> bool {
        self.cipher.derived(nonce).open(nonce, place, message, tag)
    }

    /// Encrypts what `out` has from `start` on, and puts nonce and tag behind it.
    pub fn seal_tail(&self, place: &[u8], out: &mut Vec<u8>, start: usize) {
        let nonce = self.draw_nonce();
        let tag = self.seal(&nonce, place, &mut out[start..]);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&tag);
    }

    /// Decrypts what [`FileKey::seal_tail`] made: the message, or nothing if it is not that.
    #[must_use]
    pub fn open_sealed<'b>(&self, place: &[u8], sealed: &'b mut [u8]) -> Option<&'b [u8]> {
        let (rest, tag) = sealed.split_last_chunk_mut::<TAG_LEN>()?;
        let (message, nonce) = rest.split_last_chunk_mut::<NONCE_LEN>()?;
        self.open(nonce, place, message, tag).then_some(message)
    }
}

/// The key of a file with a nonce that was drawn for several messages: the key that is derived from
/// its first bytes is the same for all of them.
pub struct Pieces<'k> {
    key: &'k FileKey,
    drawn: Nonce,
    cipher: Derived<'k>,
}

impl Pieces<'_> {
    /// As [`FileKey::seal`], of piece `number`.
    #[must_use]
    pub fn seal(&self, number: u32, place: &[u8], message: &mut [u8]) -> Tag {
        let nonce = self.nonce_of(number);
        let tag = self.cipher.seal(&nonce, place, message);
        self.key.note(&nonce, &tag);
        tag
    }

    /// As [`FileKey::open`], of piece `number`.
    #[must_use]
    pub fn open(&self, number: u32, place: &[u8], message: &mut [u8], tag: &Tag) -> bool {
        self.cipher.open(&self.nonce_of(number), place, message, tag)
    }

    /// B1: two nonces that were drawn differ in more than a number.
    fn nonce_of(&self, number: u32) -> Nonce {
        const NUMBER_AT: usize = NONCE_LEN - 4;
        const { assert!(NUMBER_AT >= DERIVED_WITH, "all pieces have the same key") };
        let mut nonce = self.drawn;
        for (byte, of_number) in nonce[NUMBER_AT..].iter_mut().zip(number.to_le_bytes()) {
            *byte ^= of_number;
        }
        nonce
    }
}
