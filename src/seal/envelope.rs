//! The bytes of a keyring's file: two slots, each of which is a keyring whole.
//!
//! Layout of a slot, [`SLOT_SIZE`] bytes at 0 and behind that (little-endian)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LITHEKEY` |
//! | 8 | 8 | checksum | of bytes 16 to the slot's end; the magic as tag, the slot's offset |
//! | 16 | 4 | version | 1 |
//! | 20 | 4 | cipher | 1: XChaCha20-Poly1305; 2: XAES-256-GCM; keys by HKDF-SHA256 |
//! | 24 | 8 | generation | the slot of the higher one counts |
//! | 32 | 16 | uuid | of the database |
//! | 48 | 4 | recipe | of the master key: 1 key, 2 passphrase, 3 vault |
//! | 52 | 4 | memory | for a passphrase: KiB |
//! | 56 | 4 | passes | for a passphrase |
//! | 60 | 4 | lanes | for a passphrase |
//! | 64 | 16 | salt | for a key or a passphrase |
//! | 80 | 32 | check | derived from the master key: whether it is the right one |
//! | 112 | 4 | wrapped length | for a vault |
//! | 116 | 4 | sealed length | nonce and tag included |
//! | 120 | .. | wrapped | what the vault made of the master key |
//! | .. | .. | sealed | the contents, with bytes 16 up to here as their place; nonce; tag |
//! | | | | zeros up to the slot's end |
//!
//! Layout of the contents: the current number (2), how many keys (2), and for each, by number: its
//! number (2), the key (32). Then, if there are owners or retired keys, or the key that had the
//! highest number is gone: the highest number that was given (2), how many owners (2), and for
//! each, by owner: who (8), number of its key (2); how many keys are retired (2), and the number of
//! each (2).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use zeroize::{Zeroize, Zeroizing};

use super::cipher::Cipher;
use super::file_key::{FileKey, SEAL_LEN};
use super::keyring::{Keyring, KeyringContents, derive};
use super::random::Randomness;
use super::secret::{SECRET_LEN, Secret};
use super::source::{Encryption, MasterKey, PassphraseCost, Recipe, SALT_LEN, WRAPPED_LEN_MAX};
use crate::base::format::KEYRING_VERSION;
use crate::base::{Error, Result, checksum};

/// Bytes of a slot.
pub const SLOT_SIZE: usize = 64 << 10;
/// Bytes of the file.
pub const KEYRING_FILE_SIZE: u64 = 2 * SLOT_SIZE as u64;

const MAGIC: [u8; 8] = *b"LITHEKEY";
const VERSION: u32 = KEYRING_VERSION;
const CHECKED_FROM: usize = 16;
const HEAD_LEN: usize = 120;
const ITEM_LEN: usize = 2 + SECRET_LEN;
const OWNER_LEN: usize = 8 + 2;
/// Whatever a vault makes of the master key, there is room for as many contents.
pub(super) const CONTENTS_LEN_MAX: usize = SLOT_SIZE - HEAD_LEN - WRAPPED_LEN_MAX - SEAL_LEN;

/// What a slot has.
#[derive(Debug)]
pub struct Slot {
    pub generation: u64,
    recipe: Recipe,
    cipher: Cipher,
    check: [u8; 32],
    uuid: [u8; 16],
    /// What is authenticated with the sealed bytes.
    place: Vec<u8>,
    sealed: Vec<u8>,
}

/// What was found where a slot should be.
#[derive(Debug)]
pub enum SlotState {
    Whole(Box<Slot>),
    /// It says that it is of this version.
    Unknown(u32),
    Damaged(&'static str),
}

impl Slot {
    /// The bytes of slot `index` with a keyring's contents.
    ///
    /// # Errors
    /// `InvalidArgument` when there are too many keys and owners: some 48 KB of them have room.
    pub fn encode(
        index: usize,
        generation: u64,
        master: &MasterKey,
        contents: &KeyringContents,
        random: &Randomness,
    ) -> Result<Vec<u8>> {
        let mut message = encode_contents(contents);
        if message.len() > CONTENTS_LEN_MAX {
            let (keys, owners) = (contents.keys.len(), contents.owners.len());
            let what = format!("a keyring has no room for {keys} keys of {owners} owners");
            return Err(Error::invalid(what));
        }
        let mut slot = vec![0; HEAD_LEN];
        slot[16..20].copy_from_slice(&VERSION.to_le_bytes());
        slot[20..24].copy_from_slice(&contents.cipher.number().to_le_bytes());
        slot[24..32].copy_from_slice(&generation.to_le_bytes());
        slot[32..48].copy_from_slice(&contents.uuid);
        put_recipe(&mut slot, &master.recipe);
        slot[80..112].copy_from_slice(check_of(&master.secret, &contents.uuid).bytes());
        let sealed_len = (message.len() + SEAL_LEN) as u32;
        slot[116..120].copy_from_slice(&sealed_len.to_le_bytes());
        if let Recipe::Vault { wrapped } = &master.recipe {
            slot[112..116].copy_from_slice(&(wrapped.len() as u32).to_le_bytes());
            slot.extend_from_slice(wrapped);
        }
        let key = sealing_key(contents.cipher, &master.secret, &contents.uuid, random);
        let nonce = key.draw_nonce();
        let tag = key.seal(&nonce, &slot[CHECKED_FROM..], &mut message);
        for piece in [&message[..], &nonce, &tag] {
            slot.extend_from_slice(piece);
        }
        slot.resize(SLOT_SIZE, 0);
        with_checksum(&mut slot, index);
        Ok(slot)
    }

    /// What is in slot `index`, whose bytes these are.
    #[must_use]
    pub fn decode(index: usize, bytes: &[u8]) -> SlotState {
        if bytes.len() != SLOT_SIZE || bytes[..8] != MAGIC {
            return SlotState::Damaged("no slot of a keyring is there");
        }
        if u64_at(bytes, 8) != sum_of(bytes, index) {
            return SlotState::Damaged("the slot does not verify");
        }
        let cipher = Cipher::of_number(u32_at(bytes, 20));
        let Some(cipher) = cipher.filter(|_| u32_at(bytes, 16) == VERSION) else {
            return SlotState::Unknown(u32_at(bytes, 16).max(VERSION + 1));
        };
        let wrapped_len = u32_at(bytes, 112) as usize;
        let sealed_len = u32_at(bytes, 116) as usize;
        let is_room = wrapped_len <= WRAPPED_LEN_MAX && sealed_len <= SLOT_SIZE;
        let Some(rest) = bytes.get(HEAD_LEN..).filter(|_| is_room) else {
            return SlotState::Damaged("lengths that cannot be");
        };
        let (Some(wrapped), Some(sealed)) =
            (rest.get(..wrapped_len), rest.get(wrapped_len..wrapped_len + sealed_len))
        else {
            return SlotState::Damaged("lengths that cannot be");
        };
        let Some(recipe) = read_recipe(bytes, wrapped) else {
            return SlotState::Damaged("a recipe of the master key that is none");
        };
        SlotState::Whole(Box::new(Slot {
            generation: u64_at(bytes, 24),
            recipe,
            cipher,
            check: bytes[80..112].try_into().expect("32 bytes"),
            uuid: bytes[32..48].try_into().expect("16 bytes"),
            place: bytes[CHECKED_FROM..HEAD_LEN + wrapped_len].to_vec(),
            sealed: sealed.to_vec(),
        }))
    }

    /// With what it and all files are encrypted.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// What the master key is made of.
    #[must_use]
    pub fn recipe_name(&self) -> &'static str {
        match self.recipe {
            Recipe::Key { .. } => "a key",
            Recipe::Passphrase { .. } => "a passphrase",
            Recipe::Vault { .. } => "a key service",
        }
    }

    /// Opens it with what the user gives; also the master key, to seal it again.
    ///
    /// # Errors
    /// [`Error::WrongKey`]; [`Error::VaultFailed`]; [`Error::Corruption`] when it is the right key,
    /// and the slot is not what was sealed with it.
    pub fn open(
        &self,
        encryption: &Encryption,
        file: &Path,
    ) -> Result<(MasterKey, KeyringContents)> {
        let wrong = || Error::WrongKey { file: file.to_owned() };
        let master = MasterKey::again(encryption, &self.recipe)?.ok_or_else(wrong)?;
        // What decrypts says nothing about the key: two keys can be found that both open it.
        if *check_of(&master.secret, &self.uuid).bytes() != self.check {
            return Err(wrong());
        }
        let key = sealing_key(self.cipher, &master.secret, &self.uuid, &encryption.random);
        let mut sealed = Zeroizing::new(self.sealed.clone());
        let contents = key.open_sealed(&self.place, &mut sealed);
        let contents = contents.and_then(|bytes| decode_contents(self.uuid, self.cipher, bytes));
        let contents = contents.ok_or_else(|| {
            Error::corruption(file, 0, "the keyring is not what was sealed with this key")
        })?;
        Ok((master, contents))
    }
}

impl Encryption {
    /// The contents of the keyring of a new database.
    #[must_use]
    pub fn new_contents(&self) -> KeyringContents {
        KeyringContents::new(self.cipher.unwrap_or_default(), &self.random)
    }

    /// A keyring with these contents.
    #[must_use]
    pub fn keyring(&self, contents: KeyringContents) -> Keyring {
        Keyring::new(contents, self.random.clone(), self.watch.clone())
    }
}

fn check_of(master: &Secret, uuid: &[u8; 16]) -> Secret {
    derive(master, uuid, b"lithedb key check")
}

fn sealing_key(cipher: Cipher, master: &Secret, uuid: &[u8; 16], random: &Randomness) -> FileKey {
    let derived = derive(master, uuid, b"lithedb keyring");
    FileKey::new(0, (cipher, &derived), random.clone(), None)
}

fn sum_of(slot: &[u8], index: usize) -> u64 {
    checksum(&slot[CHECKED_FROM..], u64::from_le_bytes(MAGIC), (index * SLOT_SIZE) as u64)
}

/// Fills in magic and checksum.
pub(super) fn with_checksum(slot: &mut [u8], index: usize) {
    slot[..8].copy_from_slice(&MAGIC);
    let sum = sum_of(slot, index);
    slot[8..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
}

fn put_recipe(slot: &mut [u8], recipe: &Recipe) {
    let (kind, salt) = match recipe {
        Recipe::Key { salt } => (1u32, Some(salt)),
        Recipe::Passphrase { salt, cost } => {
            slot[52..56].copy_from_slice(&cost.memory_kib.to_le_bytes());
            slot[56..60].copy_from_slice(&cost.passes.to_le_bytes());
            slot[60..64].copy_from_slice(&cost.lanes.to_le_bytes());
            (2, Some(salt))
        }
        Recipe::Vault { .. } => (3, None),
    };
    slot[48..52].copy_from_slice(&kind.to_le_bytes());
    if let Some(salt) = salt {
        slot[64..80].copy_from_slice(salt);
    }
}

fn read_recipe(slot: &[u8], wrapped: &[u8]) -> Option<Recipe> {
    let salt: [u8; SALT_LEN] = slot[64..80].try_into().expect("16 bytes");
    match u32_at(slot, 48) {
        1 => Some(Recipe::Key { salt }),
        2 => {
            let cost = PassphraseCost {
                memory_kib: u32_at(slot, 52),
                passes: u32_at(slot, 56),
                lanes: u32_at(slot, 60),
            };
            cost.is_sane().then_some(Recipe::Passphrase { salt, cost })
        }
        3 => Some(Recipe::Vault { wrapped: wrapped.to_vec() }),
        _ => None,
    }
}

fn encode_contents(contents: &KeyringContents) -> Zeroizing<Vec<u8>> {
    let KeyringContents { keys, owners, retired, .. } = contents;
    let has_more = has_more(contents);
    // With its whole size at once: nothing is left behind where it was smaller.
    let capacity = contents_len(keys.len(), owners.len(), retired.len());
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    bytes.extend_from_slice(&contents.current.to_le_bytes());
    bytes.extend_from_slice(&(keys.len() as u16).to_le_bytes());
    for (number, key) in keys {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(key.bytes());
    }
    if !has_more {
        return bytes;
    }
    bytes.extend_from_slice(&contents.newest.to_le_bytes());
    bytes.extend_from_slice(&(owners.len() as u16).to_le_bytes());
    for (owner, number) in owners {
        bytes.extend_from_slice(&owner.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(retired.len() as u16).to_le_bytes());
    for number in retired {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Bytes of contents with so many keys, owners and retired keys, at most.
pub(super) const fn contents_len(keys: usize, owners: usize, retired: usize) -> usize {
    4 + keys * ITEM_LEN + 6 + owners * OWNER_LEN + retired * 2
}

/// Whether the keys alone do not say all.
fn has_more(contents: &KeyringContents) -> bool {
    let highest = contents.keys.last_key_value().map(|(number, _)| *number);
    !contents.owners.is_empty() || !contents.retired.is_empty() || highest != Some(contents.newest)
}

pub(super) fn decode_contents(
    uuid: [u8; 16],
    cipher: Cipher,
    bytes: &[u8],
) -> Option<KeyringContents> {
    let (current, rest) = take_u16(bytes)?;
    let (count, rest) = take_u16(rest)?;
    let (items, rest) = rest.split_at_checked(usize::from(count) * ITEM_LEN)?;
    let mut keys = BTreeMap::new();
    for item in items.chunks_exact(ITEM_LEN) {
        let (number, key) = item.split_first_chunk::<2>()?;
        let mut key: [u8; SECRET_LEN] = key.try_into().ok()?;
        keys.insert(u16::from_le_bytes(*number), Secret::take(&mut key));
        key.zeroize();
    }
    let is_whole = keys.len() == usize::from(count) && !keys.contains_key(&0);
    let highest = keys.last_key_value().map(|(number, _)| *number)?;
    let (newest, owners, retired) = match rest.is_empty() {
        true => (highest, BTreeMap::new(), BTreeSet::new()),
        false => decode_more(rest)?,
    };
    let is_key = |number: &u16| keys.contains_key(number);
    let is_sound = is_whole
        && is_key(&current)
        && newest >= highest
        && owners.values().all(|number| is_key(number) && *number != current)
        && retired.iter().all(|number| is_key(number) && *number != current)
        && owners.values().all(|number| !retired.contains(number));
    let contents = KeyringContents { uuid, cipher, current, newest, keys, owners, retired };
    // It is there if it says something, and only then.
    (is_sound && has_more(&contents) != rest.is_empty()).then_some(contents)
}

type More = (u16, BTreeMap<u64, u16>, BTreeSet<u16>);

/// What stands behind the keys: the highest number, owners, retired keys.
fn decode_more(bytes: &[u8]) -> Option<More> {
    let (newest, rest) = take_u16(bytes)?;
    let (owner_count, rest) = take_u16(rest)?;
    let (items, rest) = rest.split_at_checked(usize::from(owner_count) * OWNER_LEN)?;
    let owners: BTreeMap<u64, u16> =
        items.chunks_exact(OWNER_LEN).map(|item| (u64_at(item, 0), u16_at(item, 8))).collect();
    let (retired_count, rest) = take_u16(rest)?;
    if rest.len() != usize::from(retired_count) * 2 {
        return None;
    }
    let retired: BTreeSet<u16> = rest.chunks_exact(2).map(|item| u16_at(item, 0)).collect();
    let is_whole = owners.len() == usize::from(owner_count)
        && retired.len() == usize::from(retired_count)
        && !owners.contains_key(&0);
    is_whole.then_some((newest, owners, retired))
}

fn take_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_le_bytes(*number), rest))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
