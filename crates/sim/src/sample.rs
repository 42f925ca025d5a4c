//! Keys and values of the test runs, named by numbers so that a run prints short.
//!
//! Keys: the empty one, up to 300 bytes, long shared prefixes, runs of 0x00 and 0xFF, keys that are
//! prefixes of others, delimiters and bytes that are no UTF-8. Values: 0 bytes to several times a
//! segment; repeated bytes and noise.

use std::fmt;

use crate::random::{Random, mix};

/// How many different keys a keyspace is given.
pub const KEY_COUNT_DEFAULT: u16 = 160;
/// Kinds of keys; those whose numbers differ by a multiple of it are of one kind.
pub const FAMILY_COUNT: u16 = 8;
/// More is not shown of a key.
const SHOWN_LEN_MAX: usize = 24;

/// A key, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u16);

impl Key {
    /// One of the first `count` keys; the low ones more often than the others.
    pub fn choose(random: &mut Random, count: u16) -> Key {
        let count = u64::from(count.max(1));
        let end = if random.chance(300) { (count / 8).max(1) } else { count };
        Key(random.below(end) as u16)
    }

    /// The bytes of the key. Different numbers have different keys.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let (family, index) = (self.0 % FAMILY_COUNT, self.0 / FAMILY_COUNT);
        let [high, low] = index.to_be_bytes();
        match family {
            0 if index == 0 => Vec::new(),
            // Each is a prefix of the next one.
            0 => vec![0; usize::from(index)],
            1 => [vec![0xFF; usize::from(index % 64)], vec![0xFE, high, low]].concat(),
            2 => format!("user/{:08}", u32::from(index).wrapping_mul(7919)).into_bytes(),
            3 => [b"shared/".repeat(36), vec![high, low]].concat(),
            4 => {
                let noise = mix(u64::from(index)).to_le_bytes();
                [&[0x40][..], &noise, &[high, low]].concat()
            }
            5 => [&b"a\x00b\xFF\x80,\"\r\n\t;|"[..], &[high, low]].concat(),
            6 => [vec![b'z'; 298], vec![high, low]].concat(),
            _ => [&b"k"[..], &[low, high], b"\x00"].concat(),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}", self.0)
    }
}

/// A value, by its length and what it is filled from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Bytes.
    pub len: u32,
    /// What they are.
    pub fill: u32,
}

/// How large values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSizes {
    /// Mostly tens of bytes; some around the interval size, a few above the segment size.
    Mixed,
    /// At most a hundred bytes.
    Small,
}

impl Value {
    /// Any value.
    pub fn choose(random: &mut Random, sizes: ValueSizes) -> Value {
        if sizes == ValueSizes::Mixed && random.chance(30) {
            // So few that a key is given the one that it has.
            return Value { len: 700, fill: 1 + random.below(2) as u32 };
        }
        let fill = random.below(1 << 16) as u32;
        let class = random.below(100);
        let len = match (sizes, class) {
            (_, 0..8) => 0,
            (_, 8..60) | (ValueSizes::Small, _) => 1 + random.below(100),
            (ValueSizes::Mixed, 60..85) => 100 + random.below(200),
            // Around an interval of 512 bytes.
            (ValueSizes::Mixed, 85..95) => 480 + random.below(80),
            (ValueSizes::Mixed, 95..98) => 600 + random.below(3000),
            // Around a segment of 4096 bytes, and well above.
            (ValueSizes::Mixed, 98) => 4000 + random.below(200),
            (ValueSizes::Mixed, _) => 4200 + random.below(16 << 10),
        };
        Value { len: len as u32, fill }
    }

    /// The bytes of the value.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        if self.fill.is_multiple_of(3) {
            return vec![(self.fill >> 2) as u8; self.len as usize];
        }
        let mut bytes = Vec::with_capacity(self.len as usize + 8);
        let mut word = mix(u64::from(self.fill));
        while bytes.len() < self.len as usize {
            bytes.extend_from_slice(&word.to_le_bytes());
            word = mix(word.wrapping_add(1));
        }
        bytes.truncate(self.len as usize);
        bytes
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}x{}", self.len, self.fill)
    }
}

/// The beginning of some bytes, readable.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(SHOWN_LEN_MAX)];
    let more = if bytes.len() > SHOWN_LEN_MAX { ".." } else { "" };
    format!("\"{}\"{more} ({} bytes)", start.escape_ascii(), bytes.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_differ_and_cover_the_lengths() {
        let keys: BTreeSet<Vec<u8>> = (0..2000).map(|number| Key(number).bytes()).collect();
        assert_eq!(keys.len(), 2000);
        let lens: BTreeSet<usize> = keys.iter().map(Vec::len).collect();
        assert!(lens.contains(&0) && lens.contains(&300) && lens.len() > 30);
    }

    #[test]
    fn values_have_their_length() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let value = Value::choose(&mut random, ValueSizes::Mixed);
            assert_eq!(value.bytes().len(), value.len as usize);
            assert_eq!(value.bytes(), value.bytes());
        }
    }
}
