//! `lithe reduce`: what the entries of a range come to.

use std::io::Write;

use clap::{Args, ValueEnum};
use lithedb::PointInTime;

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{Purpose, open_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::{parse_moment, write_escaped};
use crate::output::stdout;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe reduce bytes
  lithe --db my.lithe --keyspace visits reduce sum --prefix 2026-11
  lithe --db my.lithe --keyspace prices reduce max --from a --to m --at '2 days ago'

A number is printed as such, a value escaped. The exit code is 1 when the range is empty.";

/// Options of `lithe reduce`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReduceArgs {
    /// What is worked out
    #[arg(value_name = "WHAT")]
    pub what: What,

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// As it was then, in a keyspace of structure history: a stamp, a time as in
    /// 2026-11-22T18:00:00Z, or as in 5 minutes ago
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub at: Option<PointInTime>,
}

/// The reducers that need no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// How many entries there are
    Count,
    /// Bytes of their keys and values
    Bytes,
    /// The sum of their values, which are numbers as the merge operator counter makes them
    Sum,
    /// The smallest value
    Min,
    /// The largest value
    Max,
}

impl What {
    /// Name of the reducer.
    fn name(self) -> &'static str {
        match self {
            What::Count => "count",
            What::Bytes => "bytes",
            What::Sum => "sum",
            What::Min => "min",
            What::Max => "max",
        }
    }
}

/// Prints it.
pub fn run(globals: &Globals, args: &ReduceArgs) -> Outcome {
    let range = args.range.key_range()?;
    let (_db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let reduced = match (range, args.at) {
        (None, _) => None,
        (Some(range), None) => keyspace.reduce(args.what.name(), (range.start, range.end))?,
        (Some(range), Some(at)) => {
            keyspace.reduce_at(args.what.name(), (range.start, range.end), at)?
        }
    };
    let Some(reduced) = reduced else {
        return Err(Failure::NotFound { what: "there is nothing in the range".to_owned() });
    };
    let mut out = stdout();
    let number = <[u8; 8]>::try_from(&*reduced).ok();
    match (args.what, number) {
        (What::Count | What::Bytes, Some(number)) => {
            writeln!(out, "{}", u64::from_le_bytes(number))?;
        }
        // What was counted down is below 0.
        (What::Sum, Some(number)) => writeln!(out, "{}", i64::from_le_bytes(number))?,
        _ => {
            write_escaped(&mut out, &reduced)?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
