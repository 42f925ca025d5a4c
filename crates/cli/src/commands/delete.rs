//! `lithe delete`: deletes a key, or a range of keys.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use lithedb::KeyRange;

use super::range::RangeArgs;
use crate::args::Globals;
use crate::confirm::{Yes, confirm};
use crate::database::{Purpose, close, open_keyspace};
use crate::failure::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe delete greeting
  lithe --db my.lithe delete --key-format hex 00ff
  lithe --db my.lithe --keyspace users delete --prefix user:17: --yes
  lithe --db my.lithe delete --from 2024-01 --to 2024-07 --yes
  lithe --db my.lithe --keyspace scratch delete --all --yes

Deleting what is not there is no error. A range is asked about on a terminal, and elsewhere needs
--yes. It is deleted at once, however many keys are in it; their room comes back when the command
closes the database. When the command returns, the deletion is durable.";

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

    /// All keys of the keyspace
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    pub all: bool,

    /// Do not ask before a range or all is deleted
    #[arg(long)]
    pub yes: bool,
}

/// What is deleted.
#[derive(Debug)]
pub enum Target {
    /// A key.
    Key(Vec<u8>),
    /// A range of keys.
    Range(KeyRange),
}

impl DeleteArgs {
    /// What is meant.
    pub fn target(&self) -> Result<Target, Failure> {
        if let Some(key) = &self.key {
            let key = self.range.key_format.parse(key).map_err(Failure::usage)?;
            return Ok(Target::Key(key));
        }
        let Some(range) = self.range.key_range()? else {
            return Err(Failure::usage("no key is in this range"));
        };
        if range.start == Bound::Unbounded && range.end == Bound::Unbounded && !self.all {
            let what = "name a KEY, a range by --prefix, --from and --to, or --all";
            return Err(Failure::usage(what));
        }
        Ok(Target::Range(range))
    }

    /// Goes on if it is a key, or if it was said that the range is meant.
    pub fn confirm(&self, target: &Target, globals: &Globals) -> Outcome {
        let name = &globals.keyspace;
        let what = match target {
            Target::Key(_) => return Ok(()),
            Target::Range(_) if self.all => {
                format!("this deletes all that is in keyspace {name:?}")
            }
            Target::Range(_) => format!("this deletes a range of keys of keyspace {name:?}"),
        };
        confirm(&what, Yes(self.yes))
    }
}

/// Deletes. There is nothing to delete in a database that does not exist, so none is created.
pub fn run(globals: &Globals, args: &DeleteArgs) -> Outcome {
    let target = args.target()?;
    args.confirm(&target, globals)?;
    let (db, keyspace) = open_keyspace(globals, Purpose::Change)?;
    match target {
        Target::Key(key) => keyspace.delete(key)?,
        Target::Range(range) => keyspace.delete_range((range.start, range.end))?,
    };
    close(&db)
}
