//! `lithe rank` and `lithe select`: from a key to its place in order, and back.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;

use crate::args::Globals;
use crate::database::{Purpose, open_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::Notation;
use crate::output::{Columns, Row, RowFormat, RowWriter, Surface, stdout};

const RANK_EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe rank greeting
  lithe --db my.lithe --keyspace users rank user:17
  lithe --db my.lithe rank --key-format hex 00ff

The key need not be there. `lithe select` goes the other way.";

const SELECT_EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe select 0
  lithe --db my.lithe select 1000000 --stamps
  lithe --db my.lithe select 41 --format jsonl

The first entry is number 0; the last one `lithe count` less one.";

/// Options of `lithe rank`.
#[derive(Args, Debug)]
#[command(after_help = RANK_EXAMPLES)]
pub struct RankArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// How the key is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,
}

/// Options of `lithe select`.
#[derive(Args, Debug)]
#[command(after_help = SELECT_EXAMPLES)]
pub struct SelectArgs {
    /// How many keys are below it
    #[arg(value_name = "RANK")]
    pub rank: u64,

    /// Leave the value away
    #[arg(long)]
    pub keys_only: bool,

    /// Print the stamp of the commit that wrote it
    #[arg(long)]
    pub stamps: bool,

    /// How the entry is written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: RowFormat,
}

/// Prints how many keys are below a key.
pub fn run_rank(globals: &Globals, args: &RankArgs) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let (_db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let mut out = stdout();
    writeln!(out, "{}", keyspace.rank(key)?)?;
    Ok(out.flush()?)
}

/// Prints the entry with so many keys below it.
pub fn run_select(globals: &Globals, args: &SelectArgs) -> Outcome {
    let (_db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let Some(entry) = keyspace.select(args.rank)? else {
        let what = format!("there is no entry number {}: the first one is 0", args.rank);
        return Err(Failure::NotFound { what });
    };
    let columns = Columns { values: !args.keys_only, stamps: args.stamps, expiry: false };
    let mut rows = RowWriter::new(stdout(), args.format, columns, Surface::of_stdout());
    rows.write(Row {
        key: &entry.key,
        value: columns.values.then_some(&*entry.value),
        stamp: columns.stamps.then_some(entry.seqno),
        expiry: None,
    })?;
    rows.finish()?;
    Ok(())
}
