//! Skewed choices: the Zipf generator of YCSB.
//!
//! After Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994), as
//! YCSB uses it: rank 0 is the most popular. Scrambling spreads the popular ranks over the key
//! space.

use crate::data::{mix, pick};

const THETA: f64 = 0.99;
const G: u64 = 0x9E37_79B9_7F4A_7C15;
/// 2^-53: the top 53 bits of a random number become a fraction in `0.0..1.0`.
const FRACTION_UNIT: f64 = 1.0 / (1u64 << 53) as f64;

/// Zipf with exponent 0.99 over `0..n`.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    zeta_n: f64,
    alpha: f64,
    eta: f64,
    /// Below this `u * zeta_n`, rank 1.
    second: f64,
}

impl Zipf {
    /// Costs a power per element: about a tenth of a second for five million.
    pub fn new(n: u64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(THETA)).sum::<f64>();
        let (zeta_2, zeta_n) = (zeta(2.min(n)), zeta(n));
        Zipf {
            n,
            zeta_n,
            alpha: 1.0 / (1.0 - THETA),
            eta: (1.0 - (2.0 / n as f64).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta_n),
            second: 1.0 + 0.5f64.powf(THETA),
        }
    }

    /// The rank that the random number `x` chooses.
    #[inline]
    pub fn rank(&self, x: u64) -> u64 {
        let u = (x >> 11) as f64 * FRACTION_UNIT;
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            return 0;
        }
        if uz < self.second {
            return 1.min(self.n - 1);
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }

    /// The index that `x` chooses: its rank, scattered.
    #[inline]
    pub fn index(&self, x: u64) -> u64 {
        pick(mix(self.rank(x).wrapping_add(G)), self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::operation;

    #[test]
    fn popular_ranks_appear_as_often_as_the_distribution_says() {
        let (n, draws) = (1000, 200_000);
        let zipf = Zipf::new(n);
        let mut counts = vec![0u32; n as usize];
        for j in 0..draws {
            counts[zipf.rank(operation(3, 0, j)) as usize] += 1;
        }
        let zeta: f64 = (1..=n).map(|i| 1.0 / (i as f64).powf(THETA)).sum();
        for rank in [0usize, 1] {
            let expected = draws as f64 / ((rank + 1) as f64).powf(THETA) / zeta;
            let share = f64::from(counts[rank]) / expected;
            assert!((0.9..1.1).contains(&share), "rank {rank}: {share} of what was expected");
        }
        let head: u32 = counts[..100].iter().sum();
        assert!((0.60..0.75).contains(&(f64::from(head) / draws as f64)), "head {head}");
    }

    #[test]
    fn every_choice_is_inside_even_for_the_smallest_sets() {
        for n in [1, 2, 3, 10] {
            let zipf = Zipf::new(n);
            for x in (0..1000).map(|j| operation(1, 2, j)).chain([0, u64::MAX]) {
                assert!(zipf.rank(x) < n && zipf.index(x) < n, "n {n}, x {x}");
            }
        }
    }
}
