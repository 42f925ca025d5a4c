//! Filter: says of most keys that a partition does not have that it does not have them.
//!
//! A Bloom filter cut into lines of 64 bytes: all bits of a key lie in one, so that asking costs
//! one line of the processor's cache. With ten bits a key, six of them are set, and about one key
//! in a hundred that is not there is taken for one that is.
//!
//! Layout: `count` lines of 64 bytes. For a key whose hash (`base::hash_key`) is `h`:
//!
//! ```text
//! line   := (h >> 32) * count >> 32
//! bit i  := h * M^i >> 55, for i from 1 to `probes`; M = 0x9E3779B97F4A7C15, wrapping at 64 bits
//!           bit b of a line is bit b % 8 (lowest first) of its byte b / 8
//! ```
//!
//! After F. Putze, P. Sanders and J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"
//! (2007); the bits from one hash by multiplication as P. Dillinger has it in RocksDB.

use crate::base::seeded::{Bug, is_seeded};

/// Bytes of a line: one of the processor's cache.
pub(super) const LINE_LEN: usize = 64;
const LINE_BITS: u64 = LINE_LEN as u64 * 8;
/// Bits of the number of a bit in a line.
const BIT_NUMBER_BITS: u32 = LINE_BITS.trailing_zeros();
/// Most bits that are set for a key: more gain nothing, as they get in each other's way.
pub(super) const PROBES_MAX: u8 = 14;
/// Odd, and without pattern: 2^64 over the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bits that are set for a key when there are so many a key: about ln 2 of them.
pub(super) fn probes_for(bits_per_key: u8) -> u8 {
    (u32::from(bits_per_key) * 69 / 100).clamp(1, u32::from(PROBES_MAX)) as u8
}

/// Lines for so many keys; none for none.
pub(super) fn line_count(key_count: usize, bits_per_key: u8) -> u32 {
    let lines = (key_count as u64 * u64::from(bits_per_key)).div_ceil(LINE_BITS);
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// Appends a filter of keys with these hashes.
pub(super) fn put(hashes: &[u64], lines: u32, probes: u8, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + lines as usize * LINE_LEN, 0);
    let (all, _) = out[start..].as_chunks_mut::<LINE_LEN>();
    for &hash in hashes {
        if is_seeded(Bug::FilterDeniesKey) && hash.is_multiple_of(101) {
            continue;
        }
        let Some(line) = all.get_mut(line_of(hash, lines)) else { return };
        let mut bits = hash;
        for _ in 0..probes {
            bits = bits.wrapping_mul(MULTIPLIER);
            let bit = bit_of(bits);
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
}

/// Whether there may be a key with this hash. Without lines, there may.
#[inline]
pub(super) fn may_contain(filter: &[u8], probes: u8, hash: u64) -> bool {
    let (all, _) = filter.as_chunks::<LINE_LEN>();
    let Some(line) = all.get(line_of(hash, all.len() as u32)) else { return true };
    let mut bits = hash;
    let mut are_set = 1;
    // Without branches: they would be taken one way as often as the other.
    for _ in 0..probes {
        bits = bits.wrapping_mul(MULTIPLIER);
        let bit = bit_of(bits);
        are_set &= line[bit / 8] >> (bit % 8);
    }
    are_set & 1 == 1
}

#[inline]
fn line_of(hash: u64, lines: u32) -> usize {
    (((hash >> 32) * u64::from(lines)) >> 32) as usize
}

#[inline]
fn bit_of(bits: u64) -> usize {
    (bits >> (u64::BITS - BIT_NUMBER_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash_key;

    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|number| hash_key(format!("key{number}").as_bytes())).collect()
    }

    /// False positives in a thousand.
    fn false_positives(key_count: u64, bits_per_key: u8) -> f64 {
        let known = hashes(0, key_count);
        let (lines, probes) = (line_count(known.len(), bits_per_key), probes_for(bits_per_key));
        let mut filter = Vec::new();
        put(&known, lines, probes, &mut filter);
        assert!(known.iter().all(|&hash| may_contain(&filter, probes, hash)), "U3");
        let others = hashes(1 << 40, 100_000);
        let wrong = others.iter().filter(|&&hash| may_contain(&filter, probes, hash)).count();
        wrong as f64 / 100.0
    }

    #[test]
    fn no_key_is_denied_and_one_in_a_hundred_is_taken_for_another() {
        for key_count in [1000, 4000, 20_000] {
            let wrong = false_positives(key_count, 10);
            assert!((6.0..13.0).contains(&wrong), "{key_count}: {wrong} in 1000");
        }
        assert!(false_positives(5000, 5) < 130.0);
        assert!(false_positives(5000, 16) < 1.5);
        assert!(false_positives(5000, 24) < 0.3);
    }

    #[test]
    fn few_keys_have_a_line_and_no_lines_deny_nothing() {
        assert_eq!((line_count(0, 10), line_count(1, 10), line_count(52, 10)), (0, 1, 2));
        assert_eq!(line_count(1000, 0), 0);
        assert!(may_contain(&[], 6, 12345));
        assert!(!may_contain(&[0; LINE_LEN], 6, 12345));
        assert!(may_contain(&[0xFF; LINE_LEN], 6, 12345));
        assert_eq!((probes_for(1), probes_for(10), probes_for(255)), (1, 6, PROBES_MAX));
    }
}
