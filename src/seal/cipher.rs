//! The ciphers: what encrypts and authenticates one message. Both have keys of 32 bytes, nonces of
//! 24, of which any number can be drawn at random, and tags of 16.
//!
//! XAES-256-GCM (F. Valsorda, <https://c2sp.org/XAES-256-GCM>, 2024) is AES-256-GCM under a key
//! that is derived from the first half of the nonce, as NIST SP 800-108 derives keys in counter
//! mode with CMAC: two blocks of AES, as both inputs are one block long.

use std::fmt;

use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::{Block, BlockCipherEncrypt};
use chacha20poly1305::{AeadInOut, KeyInit, XChaCha20Poly1305};
use zeroize::Zeroize;

use super::file_key::{NONCE_LEN, Nonce, Tag};
use super::gcm::Gcm;
use super::secret::Secret;

/// Bytes of the nonce that the key of a message is derived with, at most.
pub(super) const DERIVED_WITH: usize = 16;
/// The same with XAES.
const XAES_DERIVED_WITH: usize = 12;

/// With what a database is encrypted. See [`Encryption::cipher`](crate::Encryption::cipher).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cipher {
    /// XChaCha20-Poly1305: fast on every processor.
    XChaCha20Poly1305,
    /// XAES-256-GCM: twice as fast where the processor has instructions for AES and for
    /// multiplication without carries, and many times slower where not.
    XAes256Gcm,
}

impl Default for Cipher {
    /// The one that is faster on this processor.
    fn default() -> Cipher {
        if has_aes() { Cipher::XAes256Gcm } else { Cipher::XChaCha20Poly1305 }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cipher::XChaCha20Poly1305 => "XChaCha20-Poly1305",
            Cipher::XAes256Gcm => "XAES-256-GCM",
        })
    }
}

impl Cipher {
    /// What a keyring's file has for it.
    pub(super) fn number(self) -> u32 {
        match self {
            Cipher::XChaCha20Poly1305 => 1,
            Cipher::XAes256Gcm => 2,
        }
    }

    /// The cipher of this number.
    pub(super) fn of_number(number: u32) -> Option<Cipher> {
        [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm]
            .into_iter()
            .find(|cipher| cipher.number() == number)
    }
}

/// Whether the processor has instructions for all of AES-GCM, which the library uses.
fn has_aes() -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
    return false;
}

/// A cipher with its key.
pub(super) enum Keyed {
    XChaCha(XChaCha20Poly1305),
    // Its round keys are many times as long.
    XAes(Box<XAes>),
}

impl Keyed {
    pub(super) fn new(cipher: Cipher, secret: &Secret) -> Keyed {
        match cipher {
            Cipher::XChaCha20Poly1305 => {
                Keyed::XChaCha(XChaCha20Poly1305::new(secret.bytes().into()))
            }
            Cipher::XAes256Gcm => Keyed::XAes(Box::new(XAes::new(secret))),
        }
    }

    /// What seals and opens messages whose nonces begin with the same [`DERIVED_WITH`] bytes as
    /// this one. With XAES that takes about as long as half a KiB.
    pub(super) fn derived(&self, nonce: &Nonce) -> Derived<'_> {
        match self {
            Keyed::XChaCha(cipher) => Derived::XChaCha(cipher),
            Keyed::XAes(cipher) => Derived::XAes(cipher.derived(nonce)),
        }
    }
}

/// A cipher with the key of messages whose nonces begin with the same bytes.
#[expect(clippy::large_enum_variant, reason = "it is on the stack, while messages are opened")]
pub(super) enum Derived<'k> {
    /// Derives by itself, for each message.
    XChaCha(&'k XChaCha20Poly1305),
    XAes(Gcm),
}

impl Derived<'_> {
    /// Encrypts a message, which is far shorter than the 64 GiB that either can take.
    pub(super) fn seal(&self, nonce: &Nonce, place: &[u8], message: &mut [u8]) -> Tag {
        match self {
            Derived::XChaCha(cipher) => {
                let tag = cipher.encrypt_inout_detached(nonce.into(), place, message.into());
                tag.expect("a message is far shorter than 64 GiB").into()
            }
            Derived::XAes(cipher) => cipher.seal(XAes::rest_of(nonce), place, message),
        }
    }

    /// Decrypts a message, if it is what was sealed; else it may be anything afterwards.
    pub(super) fn open(&self, nonce: &Nonce, place: &[u8], message: &mut [u8], tag: &Tag) -> bool {
        match self {
            Derived::XChaCha(cipher) => {
                let (message, tag) = (message.into(), tag.into());
                cipher.decrypt_inout_detached(nonce.into(), place, message, tag).is_ok()
            }
            Derived::XAes(cipher) => cipher.open(XAes::rest_of(nonce), place, message, tag),
        }
    }
}

/// XAES-256-GCM with its key.
pub(super) struct XAes {
    aes: Aes256,
    /// The first subkey of CMAC: what a block that is whole is combined with.
    subkey: [u8; 16],
}

impl Drop for XAes {
    fn drop(&mut self) {
        self.subkey.zeroize(); // The library zeroes its own.
    }
}

impl XAes {
    fn new(secret: &Secret) -> XAes {
        let aes = Aes256::new(secret.bytes().into());
        let mut zero = Block::<Aes256>::default();
        aes.encrypt_block(&mut zero);
        let bits = u128::from_be_bytes(zero.into());
        // Doubled in the field of 128 bits.
        let subkey = (bits << 1) ^ ((bits >> 127) * 0x87);
        zero.zeroize();
        XAes { aes, subkey: subkey.to_be_bytes() }
    }

    /// What is left of a nonce: that of AES-256-GCM.
    fn rest_of(nonce: &Nonce) -> &[u8; NONCE_LEN - XAES_DERIVED_WITH] {
        nonce.last_chunk().expect("a nonce has 24 bytes")
    }

    /// AES-256-GCM with the key of this nonce.
    fn derived(&self, nonce: &Nonce) -> Gcm {
        let with = &nonce[..XAES_DERIVED_WITH];
        let mut key = [0; 32];
        for (counter, half) in (1u8..).zip(key.chunks_exact_mut(16)) {
            half[..4].copy_from_slice(&[0, counter, b'X', 0]);
            half[4..].copy_from_slice(with);
            half.iter_mut().zip(self.subkey).for_each(|(byte, of_subkey)| *byte ^= of_subkey);
        }
        let mut blocks = [Block::<Aes256>::default(), Block::<Aes256>::default()];
        for (block, half) in blocks.iter_mut().zip(key.chunks_exact(16)) {
            block.copy_from_slice(half);
        }
        self.aes.encrypt_blocks(&mut blocks);
        for (half, block) in key.chunks_exact_mut(16).zip(&mut blocks) {
            half.copy_from_slice(block);
            block.zeroize();
        }
        let cipher = Gcm::new(&key);
        key.zeroize();
        cipher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The vectors of the specification.
    #[test]
    fn xaes_is_as_it_was_specified() {
        let nonce: Nonce = *b"ABCDEFGHIJKLMNOPQRSTUVWX";
        for (key, place, expected) in [
            (0x01, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (
                0x03,
                "c2sp.org/XAES-256-GCM",
                "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
            ),
        ] {
            let keyed = Keyed::new(Cipher::XAes256Gcm, &Secret::take(&mut [key; 32]));
            let mut message = *b"XAES-256-GCM";
            let tag = keyed.derived(&nonce).seal(&nonce, place.as_bytes(), &mut message);
            assert_eq!(hex(&[&message[..], &tag].concat()), expected);
            assert!(keyed.derived(&nonce).open(&nonce, place.as_bytes(), &mut message, &tag));
            assert_eq!(&message, b"XAES-256-GCM");
        }
    }

    #[test]
    fn what_is_not_what_was_sealed_is_refused_by_either() {
        for cipher in [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm] {
            assert_eq!(Cipher::of_number(cipher.number()), Some(cipher));
            let keyed = Keyed::new(cipher, &Secret::take(&mut [7; 32]));
            let nonce: Nonce = std::array::from_fn(|index| index as u8);
            let mut sealed = *b"a message of more than one block";
            let tag = keyed.derived(&nonce).seal(&nonce, b"here", &mut sealed);
            let opens = |keyed: &Keyed, nonce: &Nonce, place: &[u8], sealed: &[u8], tag: &Tag| {
                let mut message = sealed.to_vec();
                let opens = keyed.derived(nonce).open(nonce, place, &mut message, tag);
                opens && message == b"a message of more than one block"
            };
            assert!(opens(&keyed, &nonce, b"here", &sealed, &tag), "{cipher}");
            assert!(!opens(&keyed, &nonce, b"hers", &sealed, &tag), "{cipher}: place");
            for bit in 0..8 * NONCE_LEN {
                let mut other = nonce;
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!opens(&keyed, &other, b"here", &sealed, &tag), "{cipher}: nonce");
            }
            for bit in 0..8 * sealed.len() {
                let mut other = sealed;
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!opens(&keyed, &nonce, b"here", &other, &tag), "{cipher}: message");
            }
            for bit in 0..8 * tag.len() {
                let mut other = tag;
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!opens(&keyed, &nonce, b"here", &sealed, &other), "{cipher}: tag");
            }
            let other = Keyed::new(cipher, &Secret::take(&mut [8; 32]));
            assert!(!opens(&other, &nonce, b"here", &sealed, &tag), "{cipher}: key");
        }
        assert_eq!((Cipher::of_number(0), Cipher::of_number(3)), (None, None));
    }
}
