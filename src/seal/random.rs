//! Where keys and nonces come from: the kernel; in simulations, a seed.

use std::sync::Arc;

use crate::base::Entropy;

/// Where random bytes are drawn.
#[derive(Clone, Debug, Default)]
pub enum Randomness {
    /// The kernel's generator. Nothing of it is kept in the process: a copy of that (a fork, a
    /// virtual machine that is restored) draws others.
    #[default]
    System,
    /// A sequence that can be drawn again. Only for simulations: it keeps no secrets.
    Seeded(Arc<dyn Entropy>),
}

impl Randomness {
    /// Fills `bytes`.
    pub fn fill(&self, bytes: &mut [u8]) {
        match self {
            Randomness::System => {
                getrandom::fill(bytes).expect("a running system has random numbers");
            }
            Randomness::Seeded(entropy) => {
                for piece in bytes.chunks_mut(8) {
                    piece.copy_from_slice(&entropy.next_u64().to_le_bytes()[..piece.len()]);
                }
            }
        }
    }
}
