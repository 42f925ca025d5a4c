//! Checksums and key hashes: XXH3, 64 bits.
//!
//! Every checksum that guards bytes on disk is seeded with where the bytes belong (file and
//! offset), so that a block read from, or written to, the wrong place does not verify.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

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
}
