//! Where choices come from: a seed, or bytes that a fuzzer made up.

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A sequence of choices: the same every time for the same seed or bytes.
#[derive(Clone, Debug)]
pub struct Random {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    /// `SplitMix64` (S. Vigna).
    Seeded(u64),
    /// Choices are read from here, one byte where one is enough; zeros when it is used up.
    Bytes { bytes: Vec<u8>, at: usize },
}

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random { source: Source::Seeded(seed) }
    }

    /// The sequence that these bytes describe.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Random {
        Random { source: Source::Bytes { bytes: bytes.to_vec(), at: 0 } }
    }

    /// Whether there is nothing left to choose from. Never for a seed.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        matches!(&self.source, Source::Bytes { bytes, at } if *at >= bytes.len())
    }

    /// 64 bits.
    pub fn draw(&mut self) -> u64 {
        match &mut self.source {
            Source::Seeded(state) => {
                *state = state.wrapping_add(STEP);
                mix(*state)
            }
            Source::Bytes { .. } => (0..8).fold(0, |value, _| value << 8 | self.next_byte()),
        }
    }

    /// Less than `end`, which is not zero. The bias is far below notice.
    pub fn below(&mut self, end: u64) -> u64 {
        match &self.source {
            Source::Bytes { .. } if end <= 1 << 8 => self.next_byte() % end,
            Source::Bytes { .. } if end <= 1 << 16 => {
                (self.next_byte() << 8 | self.next_byte()) % end
            }
            _ => self.draw() % end,
        }
    }

    /// An index into something of this length, which is not zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of several, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.index(several.len())]
    }

    fn next_byte(&mut self) -> u64 {
        let Source::Bytes { bytes, at } = &mut self.source else { return 0 };
        let byte = bytes.get(*at).copied().unwrap_or(0);
        *at += 1;
        u64::from(byte)
    }
}

/// Spreads every bit of `value` over all bits.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A seed that depends on all of `parts` and their order.
#[must_use]
pub fn seed_of(parts: &[u64]) -> u64 {
    parts.iter().fold(STEP, |seed, part| mix(seed.rotate_left(17) ^ part.wrapping_mul(STEP)))
}
