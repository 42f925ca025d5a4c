//! Which steps a run consists of: a pure function of what was asked for.
//!
//! Invariants
//! - P1  A step that needs a store comes after the step that makes it.
//! - P2  On the W3 store, what only reads comes first, what overwrites (W6, W11) next, and W15,
//!   which adds keys without end, last.

use crate::job::{KEYS_FULL, Step};

/// What can be asked for on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Workload {
    /// 100,000 small entries: in batches, and one by one.
    W1,
    /// Full scans.
    W2,
    /// Load of 5M entries: random and ascending.
    W3,
    /// Gets.
    W4,
    /// Seek and the next 50.
    W5,
    /// YCSB A, B, C, D, F, E.
    W6,
    /// Durable puts.
    W7,
    /// Durable transactions, gets by size of the store.
    W8,
    /// 500,001 single puts, hits, misses.
    W9,
    /// Values of 16 KiB.
    W10,
    /// Random overwrites.
    W11,
    /// Opening: after a clean close, and after kill -9.
    W12,
    /// Lines of text (with --file).
    W13,
    /// Sorted load, count of a range, range delete.
    W14,
    /// Latency of reads under load.
    W15,
    /// W3 and W4 at 1M, 5M, 20M and 50M keys.
    W16,
    /// Gets, gets of 1000 keys, scans by size of the store, large values.
    W17,
    /// Writing, reading and space over the engine's knob between them.
    Trade,
}

/// What runs when nothing is asked for: all but W13, which needs files, and W16, W17 and Trade,
/// which take long.
pub const DEFAULT: &[Workload] = &[
    Workload::W1,
    Workload::W2,
    Workload::W3,
    Workload::W4,
    Workload::W5,
    Workload::W6,
    Workload::W7,
    Workload::W8,
    Workload::W9,
    Workload::W10,
    Workload::W11,
    Workload::W12,
    Workload::W14,
    Workload::W15,
];

const SCALE: [(&str, u64); 4] =
    [("1M", 1_000_000), ("5M", 5_000_000), ("20M", 20_000_000), ("50M", 50_000_000)];

/// A step of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What.
    pub step: Step,
    /// What stands before the workload in reports.
    pub label: String,
    /// Keys of the W3 store.
    pub keys: u64,
}

/// The steps for `wanted`, in order. `keys` is the size of the W3 store; the sizes of W16 are
/// scaled by `keys` over the full size.
pub fn plan(wanted: &[Workload], keys: u64) -> Vec<Planned> {
    use Workload as W;
    let want = |workload: &[Workload]| workload.iter().any(|one| wanted.contains(one));
    let large = want(&[W::W2, W::W3, W::W4, W::W5, W::W6, W::W11, W::W12, W::W15]);
    let steps = [
        (want(&[W::W1, W::W2]), Step::W1),
        (want(&[W::W2]), Step::W2Small),
        (want(&[W::W3]), Step::W3Ascending),
        (large, Step::W3Random),
        (want(&[W::W2]), Step::W2Large),
        (want(&[W::W4]), Step::W4),
        (want(&[W::W5]), Step::W5),
        (want(&[W::W6]), Step::W6),
        (want(&[W::W11]), Step::W11),
        (want(&[W::W12]), Step::W12),
        (want(&[W::W15]), Step::W15),
        (want(&[W::W7]), Step::W7),
        (want(&[W::W8]), Step::W8),
        (want(&[W::W9]), Step::W9),
        (want(&[W::W10]), Step::W10),
        (want(&[W::W13]), Step::W13),
        (want(&[W::W14]), Step::W14),
        (want(&[W::W17]), Step::W17),
        (want(&[W::Trade]), Step::Trade),
    ];
    let mut planned: Vec<Planned> = steps
        .into_iter()
        .filter(|&(wanted, _)| wanted)
        .map(|(_, step)| Planned { step, label: String::new(), keys })
        .collect();
    if want(&[W::W16]) {
        for (name, full) in SCALE {
            let keys = (u128::from(full) * u128::from(keys) / u128::from(KEYS_FULL)).max(1) as u64;
            let label = format!("W16 {name}");
            for step in [Step::W3Random, Step::W4] {
                planned.push(Planned { step, label: label.clone(), keys });
            }
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(wanted: &[Workload]) -> Vec<Step> {
        plan(wanted, KEYS_FULL).into_iter().map(|planned| planned.step).collect()
    }

    #[test]
    fn a_workload_brings_the_load_of_its_store_along() {
        assert_eq!(steps(&[Workload::W4]), [Step::W3Random, Step::W4]);
        let scans = [Step::W1, Step::W2Small, Step::W3Random, Step::W2Large];
        assert_eq!(steps(&[Workload::W2]), scans);
        assert_eq!(steps(&[Workload::W7]), [Step::W7]);
        assert_eq!(steps(&[]), []);
    }

    #[test]
    fn readers_come_before_writers_whatever_the_order_asked_for() {
        let all = steps(DEFAULT);
        let place = |step| all.iter().position(|&other| other == step).unwrap();
        assert!(place(Step::W3Random) < place(Step::W2Large));
        assert!(place(Step::W5) < place(Step::W6));
        assert!(place(Step::W12) < place(Step::W15));
        let mut reversed = DEFAULT.to_vec();
        reversed.reverse();
        assert_eq!(steps(&reversed), all);
    }

    #[test]
    fn scale_loads_and_reads_at_each_size() {
        let planned = plan(&[Workload::W16], KEYS_FULL / 10);
        assert_eq!(planned.len(), 8);
        assert_eq!((planned[0].keys, planned[7].keys), (100_000, 5_000_000));
        assert_eq!(planned[7].label, "W16 50M");
    }
}
