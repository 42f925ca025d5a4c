//! AES-256-GCM, by one of two libraries, which come to the same bytes: that of RustCrypto, in Rust
//! alone; with the feature `ring`, that of `ring`, whose assembler (BoringSSL's) takes two fifths
//! of the time and wants a C compiler.

use super::file_key::Tag;

#[cfg(feature = "ring")]
pub(super) use assembled::Gcm;
#[cfg(not(feature = "ring"))]
pub(super) use in_rust::Gcm;

/// Bytes of a key.
const KEY_LEN: usize = 32;
/// Bytes of a nonce.
const NONCE_LEN: usize = 12;

#[cfg(any(test, not(feature = "ring")))]
mod in_rust {
    use aes_gcm::Aes256Gcm;
    use chacha20poly1305::{AeadInOut, KeyInit};

    use super::{KEY_LEN, NONCE_LEN, Tag};

    /// The cipher with a key, which it zeroes when it is dropped.
    pub(in crate::seal) struct Gcm(Aes256Gcm);

    impl Gcm {
        pub(in crate::seal) fn new(key: &[u8; KEY_LEN]) -> Gcm {
            Gcm(Aes256Gcm::new(key.into()))
        }

        /// Encrypts a message, which is far shorter than 64 GiB.
        pub(in crate::seal) fn seal(
            &self,
            nonce: &[u8; NONCE_LEN],
            place: &[u8],
            message: &mut [u8],
        ) -> Tag {
            let tag = self.0.encrypt_inout_detached(nonce.into(), place, message.into());
            tag.expect("a message is far shorter than 64 GiB").into()
        }

        /// Decrypts a message, if it is what was sealed; else it may be anything afterwards.
        pub(in crate::seal) fn open(
            &self,
            nonce: &[u8; NONCE_LEN],
            place: &[u8],
            message: &mut [u8],
            tag: &Tag,
        ) -> bool {
            let (message, tag) = (message.into(), tag.into());
            self.0.decrypt_inout_detached(nonce.into(), place, message, tag).is_ok()
        }
    }
}

#[cfg(feature = "ring")]
mod assembled {
    #![expect(unsafe_code, reason = "the library does not zero its keys")]

    use std::mem::MaybeUninit;

    use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::{KEY_LEN, NONCE_LEN, Tag};

    /// The cipher with a key, which it zeroes when it is dropped.
    pub(in crate::seal) struct Gcm {
        /// Initialised from [`Gcm::new`] until it is dropped.
        key: MaybeUninit<LessSafeKey>,
    }

    impl Drop for Gcm {
        fn drop(&mut self) {
            // SAFETY: it was initialised by `new`, and is not used behind this.
            unsafe { self.key.assume_init_drop() };
            // SAFETY: what was dropped is bytes that may be written; nobody reads them as a key.
            unsafe { zeroize::zeroize_flat_type(&raw mut self.key) };
        }
    }

    impl Gcm {
        pub(in crate::seal) fn new(key: &[u8; KEY_LEN]) -> Gcm {
            let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes");
            Gcm { key: MaybeUninit::new(LessSafeKey::new(key)) }
        }

        fn key(&self) -> &LessSafeKey {
            // SAFETY: it was initialised by `new`, and is so until it is dropped.
            unsafe { self.key.assume_init_ref() }
        }

        /// Encrypts a message, which is far shorter than 64 GiB.
        pub(in crate::seal) fn seal(
            &self,
            nonce: &[u8; NONCE_LEN],
            place: &[u8],
            message: &mut [u8],
        ) -> Tag {
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let tag = self.key().seal_in_place_separate_tag(nonce, Aad::from(place), message);
            let tag = tag.expect("a message is far shorter than 64 GiB");
            tag.as_ref().try_into().expect("a tag of 16 bytes")
        }

        /// Decrypts a message, if it is what was sealed; else it may be anything afterwards.
        pub(in crate::seal) fn open(
            &self,
            nonce: &[u8; NONCE_LEN],
            place: &[u8],
            message: &mut [u8],
            tag: &Tag,
        ) -> bool {
            let (nonce, tag) = (Nonce::assume_unique_for_key(*nonce), (*tag).into());
            let place = Aad::from(place);
            self.key().open_in_place_separate_tag(nonce, place, tag, message, 0..).is_ok()
        }
    }
}

#[cfg(all(test, feature = "ring"))]
mod tests {
    use super::*;

    /// A database that one of the two has written is read by the other.
    #[test]
    fn both_libraries_come_to_the_same_bytes() {
        let bytes = |len: usize, seed: usize| -> Vec<u8> {
            (0..len).map(|index| (index * 31 + seed * 7 + index / 256) as u8).collect()
        };
        for len in (0..400).chain([1024, 4096, 4097, 70_000]) {
            let key: [u8; KEY_LEN] = std::array::from_fn(|index| (index * 5 + len) as u8);
            let nonce: [u8; NONCE_LEN] = std::array::from_fn(|index| (index * 3 + len) as u8);
            let (one, other) = (in_rust::Gcm::new(&key), assembled::Gcm::new(&key));
            let (plain, place) = (bytes(len, 1), bytes(len % 50, 2));
            let (mut sealed, mut sealed_too) = (plain.clone(), plain.clone());
            let tag = one.seal(&nonce, &place, &mut sealed);
            assert_eq!(tag, other.seal(&nonce, &place, &mut sealed_too));
            assert_eq!(sealed, sealed_too, "{len} bytes");
            let opened = |mut message: Vec<u8>, tag: &Tag| {
                let opened = other.open(&nonce, &place, &mut message, tag);
                opened.then_some(message)
            };
            assert_eq!(opened(sealed.clone(), &tag), Some(plain.clone()));
            let mut wrong = tag;
            wrong[len % 16] ^= 1 << (len % 8);
            assert_eq!(opened(sealed.clone(), &wrong), None);
            assert!(!one.open(&nonce, &place, &mut sealed_too, &wrong));
            if len > 0 {
                sealed[len / 2] ^= 1;
                assert_eq!(opened(sealed, &tag), None);
            }
        }
    }
}
