//! Doors for fuzzers: see [`crate::fuzzing`].

use std::path::Path;
use std::sync::Arc;

use super::cipher::Cipher;
use super::envelope::{SLOT_SIZE, Slot, SlotState, decode_contents, with_checksum};
use super::{Encryption, FileIdentity, FileKey};
use crate::base::SeededEntropy;

fn encryption() -> Encryption {
    Encryption::key([1; 32]).simulated(Arc::new(SeededEntropy::new(1)))
}

/// A key that nothing is sealed with.
pub(crate) fn fuzz_key() -> Arc<FileKey> {
    let encryption = encryption();
    let file = FileIdentity { kind: *b"fuzz", database: 1, owner: 1, number: 1 };
    let key = encryption.keyring(encryption.new_contents()).key_for_new(&file);
    key.expect("a new keyring has its current key")
}

/// Decodes a slot, the checksum put right, and opens it with a key, which takes no work that it may
/// ask for; and decodes the bytes as contents of one.
pub(crate) fn fuzz_slot(bytes: &[u8]) {
    let mut slot = bytes.to_vec();
    slot.resize(SLOT_SIZE, 0);
    for index in [0, 1] {
        with_checksum(&mut slot, index);
        if let SlotState::Whole(found) = Slot::decode(index, &slot) {
            let opened = found.open(&encryption(), Path::new("KEYRING"));
            assert!(opened.is_err() || found.recipe_name() == "a key", "another recipe");
        }
    }
    if let Some(contents) = decode_contents([0; 16], Cipher::XChaCha20Poly1305, bytes) {
        let numbers = contents.numbers();
        assert!(numbers.contains(&contents.current) && !numbers.contains(&0));
    }
}
