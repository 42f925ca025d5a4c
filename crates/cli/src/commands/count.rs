//! `lithe count`: how many keys there are, exactly.

use std::io::Write;

use clap::Args;

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{Purpose, open_keyspace};
use crate::failure::Outcome;
use crate::output::{ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe count
  lithe --db my.lithe count --prefix user:
  lithe --db my.lithe --keyspace users count --from m --format json

Exact, and without walking over the keys: only what was not consolidated yet is read.";

/// Options of `lithe count`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CountArgs {
    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// How the number is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Prints the number.
pub fn run(globals: &Globals, args: &CountArgs) -> Outcome {
    let range = args.range.key_range()?;
    let (_db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let count = match range {
        Some(range) => keyspace.count((range.start, range.end))?,
        None => 0,
    };
    print_count(count, args.format)
}

/// Prints a number of keys.
pub fn print_count(count: u64, format: ReportFormat) -> Outcome {
    let mut out = stdout();
    match format {
        ReportFormat::Table => writeln!(out, "{count}")?,
        ReportFormat::Json => writeln!(out, "{{\"count\":{count}}}")?,
    }
    Ok(out.flush()?)
}
