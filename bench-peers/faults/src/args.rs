//! The command line.

use lithe_bench::Memory;
use std::path::PathBuf;
use std::time::Duration;

/// What runs when no engine is named: LitheDB's structures, and those that the bar is about.
const ENGINES: &str = "lithedb,lithedb-lsm,redb,fjall,lmdb,sqlite,bbolt,pebble";
/// Disks of these sizes, in MiB.
const SIZES: &str = "64,96,128,192";

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// One bit of one file.
    Flips,
    /// One sync that fails.
    Syncs,
    /// No room.
    Full,
}

/// LitheDB and its rivals on flipped bits, failing syncs and full disks.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "faults")]
pub struct Args {
    /// Engines to run.
    #[arg(long, value_delimiter = ',', default_value = ENGINES)]
    pub engines: Vec<String>,
    /// Which faults.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "flips,syncs,full")]
    pub parts: Vec<Part>,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Bits that are flipped in each of two stores of each engine; a tenth more in blocks of zeros.
    #[arg(long, default_value_t = 1000)]
    pub flips: u64,
    /// Syncs of each engine that fail, each in a run of its own.
    #[arg(long, default_value_t = 24)]
    pub syncs: u64,
    /// Sizes of disks that fill up, in MiB.
    #[arg(long, value_delimiter = ',', default_value = SIZES)]
    pub sizes: Vec<u64>,
    /// Only this case of each part: shown, and no table made.
    #[arg(long)]
    pub case: Option<u64>,
    /// Memory for the engines.
    #[arg(long, default_value = "16MiB")]
    pub memory: Memory,
    /// A process may have so much memory of its own.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    pub memory_limit: u64,
    /// A command may take so long.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub time_limit: u64,
    /// Cases of one engine that run at a time, of flips.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Where stores are made that are harmed: best in memory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm/lithe-faults")]
    pub dir: PathBuf,
    /// Where table, cases and fixtures go.
    #[arg(long, value_name = "DIR", default_value = "lithe-peers/faults")]
    pub out: PathBuf,
    /// Makes the fixtures anew, though there are some of this seed.
    #[arg(long)]
    pub fresh: bool,
}

impl Args {
    /// How long a command may take.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.time_limit)
    }

    /// Whether the case of this number is to be run.
    pub fn wants(&self, case: u64) -> bool {
        self.case.is_none_or(|only| only == case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn defaults_are_all_parts_on_the_engines_of_the_bar() {
        let args = Args::try_parse_from(["faults"]).unwrap();
        assert_eq!(args.parts, [Part::Flips, Part::Syncs, Part::Full]);
        assert_eq!((args.engines.len(), args.sizes.len()), (8, 4));
        assert!(args.wants(7));
        let args = ["faults", "--engines", "redb", "--parts", "flips", "--case", "7"];
        let args = Args::try_parse_from(args).unwrap();
        assert_eq!((args.engines.as_slice(), args.parts.len()), (&["redb".to_owned()][..], 1));
        assert!(args.wants(7) && !args.wants(8));
    }
}
