//! `lithe restore`: makes keys what they were.

use std::ffi::OsString;

use clap::Args;
use lithedb::{KeyRange, PointInTime};

use super::range::RangeArgs;
use crate::args::Globals;
use crate::confirm::{Yes, confirm};
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::notation::{count_text, parse_moment};
use crate::output::Notices;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe --keyspace prices restore bread --at '5 minutes ago'
  lithe --db my.lithe --keyspace prices restore --prefix fruit: --at 2026-11-22T18:00:00Z --yes
  lithe --db my.lithe --keyspace prices restore --all --at 1795250864285.0 --yes

Of keyspaces of the structure history. Keys that have changed since are put as they were, by one
commit, and those that were not there are deleted; nothing of what happened is lost. A range is
asked about on a terminal, and elsewhere needs --yes. When the command returns, it is durable.";

/// Options of `lithe restore`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArgs {
    /// The key; for several give a range
    #[arg(value_name = "KEY")]
    pub key: Option<OsString>,

    /// The moment: a stamp, a time as in 2026-11-22T18:00:00Z, or as in 5 minutes ago
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub at: PointInTime,

    /// Everything in the keyspace
    #[arg(long, conflicts_with_all = ["key", "prefix", "from", "to"])]
    pub all: bool,

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// Do not ask before a range or all is restored
    #[arg(long)]
    pub yes: bool,
}

/// Restores.
pub fn run(globals: &Globals, notices: Notices, args: &RestoreArgs) -> Outcome {
    let range = range_of(args)?;
    if args.key.is_none() {
        let name = &globals.keyspace;
        let what = if args.all { "all that is in" } else { "a range of keys of" };
        let what = format!("this overwrites and deletes {what} keyspace {name:?}");
        confirm(&what, Yes(args.yes))?;
    }
    let db = open_existing(globals)?;
    let keyspace = db.keyspace(&globals.keyspace)?;
    let report = keyspace.restore_range((range.start, range.end), args.at)?;
    close(&db)?;
    let (put, deleted) = (count_text(report.put), count_text(report.deleted));
    notices.say(format!("{put} put as they were, {deleted} deleted"));
    Ok(())
}

fn range_of(args: &RestoreArgs) -> Result<KeyRange, Failure> {
    let RangeArgs { prefix, from, to, key_format } = &args.range;
    let has_range = prefix.is_some() || from.is_some() || to.is_some();
    match &args.key {
        Some(_) if has_range => Err(Failure::usage("a key or a range, not both")),
        Some(key) => {
            let key = key_format.parse(key).map_err(Failure::usage)?;
            Ok(KeyRange::new(&(key.as_slice()..=key.as_slice())))
        }
        None if has_range || args.all => {
            args.range.key_range()?.ok_or_else(|| Failure::usage("no key is in this range"))
        }
        None => Err(Failure::usage("say what: a key, --prefix, --from, --to, or --all")),
    }
}
