//! `lithe delete`: deletes a key, or a range of keys.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{close, open_keyspace};
use crate::failure::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe delete greeting
  lithe --db my.lithe delete --key-format hex 00ff
  lithe --db my.lithe --keyspace users delete --prefix user:17:
  lithe --db my.lithe delete --from 2024-01 --to 2024-07
  lithe --db my.lithe --keyspace scratch delete --all --yes

Deleting what is not there is no error. A range is deleted at once, however many keys are in it;
their room comes back when the command closes the database. When the command returns, the deletion
is durable.";

/// Options of `lithe delete`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeleteArgs {
    /// The key
    #[arg(value_name = "KEY", conflicts_with_all = ["prefix", "from", "to", "all"])]
    pub key: Option<OsString>,

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// All keys of the keyspace; with `--yes` only
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    pub all: bool,

    /// Really delete all
    #[arg(long)]
    pub yes: bool,
}

/// Deletes. There is nothing to delete in a database that does not exist, so none is created.
pub fn run(globals: &Globals, args: &DeleteArgs) -> Outcome {
    if let Some(key) = &args.key {
        let key = args.range.key_format.parse(key).map_err(Failure::usage)?;
        let (db, keyspace) = open_keyspace(globals)?;
        keyspace.delete(key)?;
        return close(&db);
    }
    let Some(range) = args.range.key_range()? else {
        return Err(Failure::usage("no key is in this range"));
    };
    if range.start == Bound::Unbounded && range.end == Bound::Unbounded && !args.all {
        return Err(Failure::usage("name a KEY, a range by --prefix, --from and --to, or --all"));
    }
    if args.all && !args.yes {
        let name = &globals.keyspace;
        let what = format!("this deletes all that is in keyspace {name:?}: add --yes");
        return Err(Failure::usage(what));
    }
    let (db, keyspace) = open_keyspace(globals)?;
    keyspace.delete_range((range.start, range.end))?;
    close(&db)
}
