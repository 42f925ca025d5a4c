//! The command line of `lithe bench`.

use crate::engine::Memory;
use crate::job::KEYS_FULL;
use crate::plan::{DEFAULT, Workload};
use std::path::PathBuf;

/// `--quick` divides all counts by this.
const QUICK_DIVISOR: u64 = 10;

/// Structures that can be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Shapes {
    /// A B-tree over a flexible address space.
    #[default]
    Flex,
    /// Tables in levels.
    Lsm,
    /// Every version kept.
    History,
}

/// Runs the benchmark workloads and reports their figures.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BenchArgs {
    /// Workloads to run; all but W13, W16 and W17 if none is named.
    #[arg(value_enum, ignore_case = true)]
    pub workloads: Vec<Workload>,
    /// The structure of the keyspace.
    #[arg(long, value_enum, default_value_t)]
    pub structure: Shapes,
    /// Encrypts the stores. Beside a run without it, that is what encryption costs.
    #[arg(long)]
    pub encrypted: bool,
    /// Keys of the large store (W2 to W6, W11, W12, W15) [default: 5000000; with --quick 500000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: Option<u64>,
    /// Makes its stores in a new directory below this one; put it on the disk to be measured.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Memory for the engine: bytes, `512MiB`, `1GiB`, or `default` for what it takes by itself
    /// [default: 256MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Memory>,
    /// Runs everything that often, and reports medians [default: 3; with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,
    /// Writes the figures, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Prints a Markdown table instead of columns.
    #[arg(long)]
    pub markdown: bool,
    /// All counts in the proportion of --keys to the full size: a tenth, if --keys is not given.
    #[arg(long)]
    pub quick: bool,
    /// Leaves the stores where they are.
    #[arg(long)]
    pub keep: bool,
    /// Text for W13; may be given several times.
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl BenchArgs {
    /// The workloads, with the default filled in.
    pub fn wanted(&self) -> Vec<Workload> {
        match (self.workloads.is_empty(), self.files.is_empty()) {
            (false, _) => self.workloads.clone(),
            (true, true) => DEFAULT.to_vec(),
            (true, false) => [DEFAULT, &[Workload::W13]].concat(),
        }
    }

    /// Keys of the large store.
    pub fn keys(&self) -> u64 {
        self.keys.unwrap_or(if self.quick { KEYS_FULL / QUICK_DIVISOR } else { KEYS_FULL })
    }

    /// By what all other counts are divided.
    pub fn divisor(&self) -> u64 {
        if self.quick { (KEYS_FULL / self.keys()).max(1) } else { 1 }
    }

    /// Memory for the engine.
    pub fn memory(&self) -> Memory {
        self.memory.unwrap_or(Memory::RULE)
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

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> BenchArgs {
        Program::try_parse_from(line.split(' ')).unwrap().bench
    }

    #[test]
    fn defaults_are_those_of_the_rules() {
        let args = parse("p");
        assert_eq!(args.wanted(), DEFAULT);
        assert_eq!((args.keys(), args.divisor(), args.repeat()), (5_000_000, 1, 3));
        assert_eq!(args.memory(), Memory::RULE);
    }

    #[test]
    fn keys_alone_change_only_the_large_store_and_quick_changes_all() {
        let args = parse("p W4 w3 --keys 1000000");
        assert_eq!(args.wanted(), [Workload::W4, Workload::W3]);
        assert_eq!((args.keys(), args.divisor()), (1_000_000, 1));
        let args = parse("p --quick");
        assert_eq!((args.keys(), args.divisor(), args.repeat()), (500_000, 10, 1));
        let args = parse("p --quick --keys 50000 --repeat 2");
        assert_eq!((args.keys(), args.divisor(), args.repeat()), (50_000, 100, 2));
    }

    #[test]
    fn files_ask_for_the_text_workload() {
        let args = parse("p --file a --file b --memory default");
        assert!(args.wanted().contains(&Workload::W13));
        assert_eq!((args.files.len(), args.memory()), (2, Memory::EngineDefault));
    }

    #[test]
    fn stores_are_encrypted_if_that_is_said() {
        assert!(!parse("p W3").encrypted);
        assert!(parse("p W3 W4 --encrypted --structure lsm").encrypted);
    }

    #[test]
    fn zeros_are_refused() {
        for line in ["p --keys 0", "p --repeat 0", "p W18", "p --memory 1x"] {
            assert!(Program::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
