//! `lithe count`: how many keys there are, exactly.

use std::io::Write;

use clap::Args;

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::open_keyspace;
use crate::failure::Outcome;
use crate::output::{ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe count
  lithe --db my.lithe count --prefix user:
  lithe --db my.lithe --keyspace users count --from m --format json

This walks over the keys; `lithe stats` shows an estimate at once.";

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
    let (_db, keyspace) = open_keyspace(globals)?;
    let mut count = 0_u64;
    if let Some(range) = range {
        let mut cursor = keyspace.cursor(range);
        cursor.seek_first()?;
        while cursor.valid() {
            count += 1;
            cursor.next()?;
        }
    }
    let mut out = stdout();
    match args.format {
        ReportFormat::Table => writeln!(out, "{count}")?,
        ReportFormat::Json => writeln!(out, "{{\"count\":{count}}}")?,
    }
    Ok(out.flush()?)
}
