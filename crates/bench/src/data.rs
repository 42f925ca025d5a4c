//! Deterministic keys, values and choices: the same bytes in every run, engine and language.
//!
//! Owns the generator. Must not know engines or clocks. All arithmetic is unsigned, 64 bits,
//! wrapping.
//!
//! | name | definition |
//! |---|---|
//! | `mix(z)` | the finalizer of SplitMix64: two xor-shift-multiply rounds and a last xor-shift |
//! | `r(s, i)` | `mix(s + (i + 1) * G)` |
//! | `pick(x, n)` | high 64 bits of the 128-bit product `x * n`: uniform in `0..n` |
//! | `key16(i)` | `BE64(r(SK1,i)) BE64(r(SK2,i))`: random order |
//! | `skey16(i)` | `BE64(i) BE64(r(SK2,i))`: ascending |
//! | `key21(i)` | `key16(i)`, then the first 5 bytes of `BE64(r(SK3,i))` |
//! | `val(i,ver,len)` | `LE64(r(s,0)) LE64(r(s,1)) ..` cut to `len`, `s = r(SV,i) ^ mix(ver)` |
//!
//! Values that can be compressed ([`values_repeat`]) have `r(s,0)` in place of each `r(s,w)` from
//! the middle on: `w >= len / 16`.
//!
//! Invariants
//! - D1  `mix` is a bijection, so an index can be read back from its key (`KeyShape::index_of`) and
//!   any entry that a scan returns can be checked without a table of what was stored.

use std::sync::OnceLock;

/// The golden ratio in 64 bits, and its inverse modulo 2^64.
const G: u64 = 0x9E37_79B9_7F4A_7C15;
const G_INVERSE: u64 = inverse_of_odd(G);
const MIX_1: u64 = 0xBF58_476D_1CE4_E5B9;
const MIX_2: u64 = 0x94D0_49BB_1331_11EB;

const SEED_KEY_1: u64 = 0x1111_1111_1111_1111;
const SEED_KEY_2: u64 = 0x2222_2222_2222_2222;
const SEED_KEY_3: u64 = 0x3333_3333_3333_3333;
const SEED_VALUE: u64 = 0x4444_4444_4444_4444;
const SEED_OPERATION: u64 = 0x5555_5555_5555_5555;

/// Keys that are in no store: `MISS_FIRST + j`.
pub const MISS_FIRST: u64 = 1 << 40;
/// Loads write this version.
pub const VERSION_LOAD: u64 = 0;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z ^= z >> 30;
    z = z.wrapping_mul(MIX_1);
    z ^= z >> 27;
    z = z.wrapping_mul(MIX_2);
    z ^ (z >> 31)
}

/// `unmix(mix(z)) == z`.
fn unmix(mut z: u64) -> u64 {
    z = unshift(z, 31).wrapping_mul(inverse_of_odd(MIX_2));
    z = unshift(z, 27).wrapping_mul(inverse_of_odd(MIX_1));
    unshift(z, 30)
}

/// Undoes `z ^ (z >> by)`; two steps suffice because `3 * by > 64`.
fn unshift(z: u64, by: u32) -> u64 {
    z ^ (z >> by) ^ (z >> (2 * by))
}

/// Newton's iteration: each step doubles the number of correct low bits, from 3 to 96.
const fn inverse_of_odd(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Number `i` of the sequence with seed `s`.
#[inline]
pub fn r(s: u64, i: u64) -> u64 {
    mix(s.wrapping_add(i.wrapping_add(1).wrapping_mul(G)))
}

/// A uniform choice from `0..n`.
#[inline]
pub fn pick(x: u64, n: u64) -> u64 {
    ((u128::from(x) * u128::from(n)) >> 64) as u64
}

/// Random numbers, the same for the same seed: the sequence `r(seed, 0)`, `r(seed, 1)` ..
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next of all numbers.
    #[inline]
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(G);
        mix(self.0)
    }

    /// The next of `0..end`; 0 if that is empty.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        pick(self.roll(), end)
    }
}

/// The random number behind operation `operation` of thread `thread` of a stream.
#[inline]
pub fn operation(stream: u64, thread: u64, operation: u64) -> u64 {
    r(SEED_OPERATION ^ (stream << 32) ^ thread, operation)
}

/// How an index becomes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// `key16`: 16 bytes, random order.
    Random16,
    /// `skey16`: 16 bytes, ascending with the index.
    Ascending16,
    /// `key21`: 21 bytes, random order.
    Random21,
}

impl KeyShape {
    /// Bytes of a key.
    pub fn key_len(self) -> usize {
        match self {
            KeyShape::Random16 | KeyShape::Ascending16 => 16,
            KeyShape::Random21 => 21,
        }
    }

    /// Appends key `index`.
    #[inline]
    pub fn append(self, index: u64, out: &mut Vec<u8>) {
        let first = match self {
            KeyShape::Random16 | KeyShape::Random21 => r(SEED_KEY_1, index),
            KeyShape::Ascending16 => index,
        };
        out.extend_from_slice(&first.to_be_bytes());
        out.extend_from_slice(&r(SEED_KEY_2, index).to_be_bytes());
        if self == KeyShape::Random21 {
            out.extend_from_slice(&r(SEED_KEY_3, index).to_be_bytes()[..5]);
        }
    }

    /// Key `index`, newly allocated.
    pub fn key(self, index: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.key_len());
        self.append(index, &mut key);
        key
    }

    /// The index whose key this is; `None` if no index has it (D1).
    pub fn index_of(self, key: &[u8]) -> Option<u64> {
        let first = u64::from_be_bytes(*key.first_chunk::<8>()?);
        let index = match self {
            KeyShape::Ascending16 => first,
            KeyShape::Random16 | KeyShape::Random21 => {
                unmix(first).wrapping_sub(SEED_KEY_1).wrapping_mul(G_INVERSE).wrapping_sub(1)
            }
        };
        (self.key(index) == key).then_some(index)
    }
}

/// Appends `len` bytes of value: those of entry `index` in version `version`.
#[inline]
pub fn append_value(index: u64, version: u64, len: usize, out: &mut Vec<u8>) {
    let seed = r(SEED_VALUE, index) ^ mix(version);
    let whole = len / 8;
    let random = random_words(len);
    let word = |at: usize| value_word(seed, at, random);
    for at in 0..whole {
        out.extend_from_slice(&word(at));
    }
    out.extend_from_slice(&word(whole)[..len % 8]);
}

/// How many words of a value of `len` bytes do not repeat the first one.
#[inline]
fn random_words(len: usize) -> usize {
    if values_repeat() { len / 8 / 2 } else { len / 8 + 1 }
}

/// Eight bytes of a value, of which so many words do not repeat the first.
#[inline]
fn value_word(seed: u64, at: usize, random: usize) -> [u8; 8] {
    r(seed, if at < random { at as u64 } else { 0 }).to_le_bytes()
}

/// Set to anything, half of each value repeats its first word, and engines compress.
pub const VALUES_REPEAT: &str = "LITHE_BENCH_VALUES_REPEAT";

/// Whether half of each value repeats its first word, for engines to compress with LZ4, or with
/// what they have that is as fast. By the environment (`LITHE_BENCH_VALUES_REPEAT`), which the
/// programs of all engines inherit.
pub fn values_repeat() -> bool {
    static REPEAT: OnceLock<bool> = OnceLock::new();
    *REPEAT.get_or_init(|| std::env::var_os(VALUES_REPEAT).is_some())
}

/// The first word of a value: enough to tell versions apart.
fn value_head(index: u64, version: u64) -> [u8; 8] {
    r(r(SEED_VALUE, index) ^ mix(version), 0).to_le_bytes()
}

/// Says which version of an entry a value is.
#[derive(Debug, Default)]
pub struct ValueChecker {
    expected: Vec<u8>,
}

impl ValueChecker {
    /// The version among `versions` whose value this is, if it is any.
    pub fn version_of(&mut self, index: u64, value: &[u8], versions: &[u64]) -> Option<u64> {
        let head = &value[..value.len().min(8)];
        versions.iter().copied().find(|&version| {
            value_head(index, version).starts_with(head) && {
                self.expected.clear();
                append_value(index, version, value.len(), &mut self.expected);
                self.expected == value
            }
        })
    }
}

/// What an entry adds to the checksum of a scan.
#[inline]
pub fn entry_checksum(key: &[u8], value: &[u8]) -> u64 {
    let first = key.first().copied().unwrap_or(0);
    let last = value.last().copied().unwrap_or(0);
    u64::from(first ^ last)
}

/// The checksum that a scan of entries `0..count` in the load version must give.
pub fn scan_checksum(shape: KeyShape, count: u64, value_len: usize) -> u64 {
    let (mut key, mut sum) = (Vec::new(), 0u64);
    for index in 0..count {
        key.clear();
        shape.append(index, &mut key);
        let last = last_value_byte(index, VERSION_LOAD, value_len);
        sum = sum.wrapping_add(u64::from(key[0] ^ last));
    }
    sum
}

fn last_value_byte(index: u64, version: u64, len: usize) -> u8 {
    let at = len.saturating_sub(1);
    let seed = r(SEED_VALUE, index) ^ mix(version);
    value_word(seed, at / 8, random_words(len))[at % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn val(index: u64, version: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        append_value(index, version, len, &mut out);
        out
    }

    #[test]
    fn keys_and_values_are_the_published_vectors() {
        assert_eq!(hex(&KeyShape::Random16.key(0)), "94af049176f813d0743bec34dd2f1e4f");
        assert_eq!(hex(&KeyShape::Random21.key(1)), "d0a1fab9c695d06dc399aa0a5ef635779a1e85cbf7");
        assert_eq!(hex(&KeyShape::Ascending16.key(1)), "0000000000000001c399aa0a5ef63577");
        assert_eq!(hex(&val(0, 0, 21)), "ee3a0269eb2263e74447db3ba5416f460fdf7dd340");
        assert_eq!(hex(&val(1, 7, 21)), "312e0707938603f84724ba0ec38ed2994a1dd5cf83");
    }

    #[test]
    fn checksum_of_the_small_store_is_the_published_one() {
        assert_eq!(scan_checksum(KeyShape::Random21, 100_000, 21), 12_769_657);
    }

    #[test]
    fn checksum_of_the_large_store_is_the_published_one() {
        assert_eq!(scan_checksum(KeyShape::Random16, 5_000_000, 100), 637_528_010);
    }

    #[test]
    fn checksum_of_entries_is_the_one_computed_from_indexes() {
        for (shape, len) in [(KeyShape::Random16, 100), (KeyShape::Random21, 21)] {
            let sum: u64 = (0..1000).map(|i| entry_checksum(&shape.key(i), &val(i, 0, len))).sum();
            assert_eq!(scan_checksum(shape, 1000, len), sum);
        }
    }

    #[test]
    fn an_index_is_read_back_from_its_key() {
        for shape in [KeyShape::Random16, KeyShape::Ascending16, KeyShape::Random21] {
            for index in (0..1000).chain([MISS_FIRST, u64::MAX]) {
                assert_eq!(shape.index_of(&shape.key(index)), Some(index));
            }
            let mut damaged = shape.key(5);
            damaged[12] ^= 1;
            assert_eq!(shape.index_of(&damaged), None);
            assert_eq!(shape.index_of(b"short"), None);
        }
    }

    #[test]
    fn a_value_names_its_version_and_a_damaged_one_has_none() {
        let mut checker = ValueChecker::default();
        for len in [3, 8, 21, 100] {
            let mut value = val(9, 4, len);
            assert_eq!(checker.version_of(9, &value, &[0, 2, 4]), Some(4));
            assert_eq!(checker.version_of(9, &value, &[0, 2]), None);
            assert_eq!(checker.version_of(8, &value, &[0, 2, 4]), None);
            value[len - 1] ^= 1;
            assert_eq!(checker.version_of(9, &value, &[0, 2, 4]), None);
        }
    }

    #[test]
    fn a_pick_stays_below_its_limit_and_reaches_every_choice() {
        let mut seen = [0u32; 10];
        for j in 0..10_000 {
            seen[pick(operation(1, 0, j), 10) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(pick(u64::MAX, 7), 6);
    }
}
