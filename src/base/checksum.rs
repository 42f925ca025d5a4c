//! Checksums and key hashes: XXH3, 64 bits.
//!
//! Every checksum that guards bytes on disk is seeded with where the bytes belong (file and
//! offset), so that a block read from, or written to, the wrong place does not verify.

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

/// Checksum of `bytes` that belong at `offset` of the file with the tag `file_tag`.
#[inline]
#[must_use]
pub fn checksum(bytes: &[u8], file_tag: u64, offset: u64) -> u64 {
    checksum_seeded(bytes, place_seed(file_tag, offset))
}

/// Checksum of `bytes` under a seed.
#[inline]
#[must_use]
pub fn checksum_seeded(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// [`checksum`] of bytes that come in pieces and need not lie side by side in memory.
pub struct ChecksumStream {
    state: Xxh3,
}

impl ChecksumStream {
    /// A stream of bytes that belong at `offset` of the file with the tag `file_tag`.
    #[must_use]
    pub fn new(file_tag: u64, offset: u64) -> ChecksumStream {
        ChecksumStream { state: Xxh3::with_seed(place_seed(file_tag, offset)) }
    }

    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    /// The checksum of all pieces so far: what [`checksum`] gives for them in one.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.state.digest()
    }
}

/// Hash of a key, for filters, fingerprints and hash tables. Not stored without a version.
#[inline]
#[must_use]
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Mixes file and offset so that neighbouring files and offsets share no seed.
#[inline]
fn place_seed(file_tag: u64, offset: u64) -> u64 {
    let mut z = file_tag ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_binds_bytes_to_file_and_offset() {
        let here = checksum(b"block", 1, 4096);
        assert_ne!(here, checksum(b"block", 2, 4096));
        assert_ne!(here, checksum(b"block", 1, 8192));
        assert_ne!(here, checksum(b"blocc", 1, 4096));
        assert_eq!(here, checksum(b"block", 1, 4096));
    }

    #[test]
    fn a_stream_gives_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        for cut in [0, 1, 7, 240, 241, 512, 1000] {
            let mut stream = ChecksumStream::new(9, 4096);
            stream.update(&bytes[..cut]);
            stream.update(&bytes[cut..]);
            assert_eq!(stream.finish(), checksum(&bytes, 9, 4096));
        }
    }
}
