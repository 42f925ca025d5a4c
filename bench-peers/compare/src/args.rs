//! The command line.

use lithe_bench::{KEYS_FULL, Memory, Workload};
use std::path::PathBuf;

/// With `--quick`: keys of the large store, and so the proportion of all other counts.
const KEYS_QUICK: u64 = 200_000;
/// What runs when nothing is asked for: as in `lithe bench`.
const WORKLOADS_ALL: &[Workload] = &[
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
    Workload::Trade,
];

/// Runs the benchmark workloads on LitheDB and its rivals, in turn, and reports.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "compare")]
pub struct Args {
    /// Engines to run; all if none is named.
    #[arg(long, value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Workloads to run; all but W13 (which needs --file), W16 and W17 if none is
    /// named.
    #[arg(long, value_enum, ignore_case = true, value_delimiter = ',')]
    pub workloads: Vec<Workload>,
    /// Keys of the large store (W2 to W6, W11, W12, W15) [default: 5000000; with --quick 200000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: Option<u64>,
    /// All counts in the proportion of --keys to the full size, and one run: to try things out.
    #[arg(long)]
    pub quick: bool,
    /// Runs everything that often, and reports medians [default: 3; with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,
    /// Engines that run in the first round only, such as those that are slow: their figures are of
    /// one run.
    #[arg(long, value_delimiter = ',')]
    pub once: Vec<String>,
    /// Memory for the engines; with every further size, W2, W4, W5 and W6 C run once more.
    #[arg(long, value_delimiter = ',', default_value = "256MiB,1GiB")]
    pub memory: Vec<Memory>,
    /// Makes its stores in a new directory below this one; put it on the disk to be measured.
    #[arg(long, value_name = "DIR", default_value = "lithe-peers")]
    pub dir: PathBuf,
    /// Where `benchmarks.md` goes, and the directory `benchmarks` with the figures and the charts.
    #[arg(long, value_name = "DIR", default_value = "lithe-peers/report", overrides_with = "out")]
    pub out: PathBuf,
    /// A step that takes longer is ended, and said to be too slow.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub cap: u64,
    /// A step whose stores grow larger is ended, and said to be too large.
    #[arg(long, value_name = "GIB", default_value_t = 24)]
    pub disk_cap: u64,
    /// Text for W13; may be given several times.
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Adds to the figures in --out: further rounds of the engines named, or further workloads.
    #[arg(long, conflicts_with = "render")]
    pub add: bool,
    /// Runs nothing: writes the page and the charts of the figures in --out again.
    #[arg(long)]
    pub render: bool,
}

impl Args {
    /// The workloads, with the default filled in.
    pub fn wanted(&self) -> Vec<Workload> {
        match (self.workloads.is_empty(), self.files.is_empty()) {
            (false, _) => self.workloads.clone(),
            (true, true) => WORKLOADS_ALL.to_vec(),
            (true, false) => [WORKLOADS_ALL, &[Workload::W13]].concat(),
        }
    }

    /// Keys of the large store.
    pub fn keys(&self) -> u64 {
        self.keys.unwrap_or(if self.quick { KEYS_QUICK } else { KEYS_FULL })
    }

    /// By what all other counts are divided.
    pub fn divisor(&self) -> u64 {
        if self.quick { (KEYS_FULL / self.keys()).max(1) } else { 1 }
    }

    /// How often.
    pub fn repeat(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 1 } else { 3 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(line: &str) -> Args {
        Args::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn lists_are_separated_by_commas_and_defaults_are_those_of_the_rules() {
        let args = parse("compare");
        assert_eq!((args.keys(), args.divisor(), args.repeat()), (5_000_000, 1, 3));
        assert_eq!(args.memory, [Memory::RULE, Memory::Bytes(1 << 30)]);
        assert_eq!(args.wanted().len(), 15);
        let args = parse("compare --engines a,b --workloads w1,W3 --memory 64MiB --out x --out y");
        assert_eq!((args.engines.len(), args.memory.len()), (2, 1));
        assert_eq!(args.wanted(), [Workload::W1, Workload::W3]);
        assert_eq!(args.out, PathBuf::from("y"));
    }

    #[test]
    fn quick_makes_everything_small_in_proportion() {
        let args = parse("compare --quick");
        assert_eq!((args.keys(), args.divisor(), args.repeat()), (200_000, 25, 1));
        let args = parse("compare --keys 200000");
        assert_eq!((args.keys(), args.divisor(), args.repeat()), (200_000, 1, 3));
    }
}
