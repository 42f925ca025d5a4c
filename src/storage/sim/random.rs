//! The random numbers of a simulation: a plain sequence from a seed, the same on every machine.

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A sequence of numbers (`SplitMix64`, S. Vigna).
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Less than `end`, which is not zero. The bias of the remainder is far below notice here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn is_heads(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// True in `per_mille` of a thousand cases.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// Spreads every bit of `value` over all bits.
pub(super) fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
