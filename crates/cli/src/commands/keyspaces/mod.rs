//! `lithe keyspaces`: lists, creates, drops and renames keyspaces.

mod create;
mod list;

pub use create::{OptionArgs, StructureName};

use clap::{Args, Subcommand};
use lithedb::Db;

use crate::args::Globals;
use crate::commands::keyspaces::create::CreateArgs;
use crate::database::{close, open_existing, open_or_create};
use crate::failure::{Failure, Outcome};
use crate::output::{ListFormat, Notices, Surface, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces
  lithe --db my.lithe keyspaces create users
  lithe --db my.lithe keyspaces create events --codec lz4 --interval-size 64KiB --pace 1.2
  lithe --db my.lithe keyspaces create log --structure lsm --level-codec 6=snappy
  lithe --db my.lithe keyspaces rename users people
  lithe --db my.lithe keyspaces drop people --yes";

/// Options of `lithe keyspaces`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct KeyspacesArgs {
    /// What to do with them; listed when left away.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// How the list is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ListFormat,
}

/// What to do with keyspaces.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List them (the default)
    List,
    /// Create one, and the database if there is none
    Create(CreateArgs),
    /// Drop one and everything in it
    Drop {
        /// Its name
        name: String,
        /// Really do it
        #[arg(long)]
        yes: bool,
    },
    /// Give one another name
    Rename {
        /// Its name
        old: String,
        /// The name it shall have
        new: String,
    },
}

/// Does what was asked for.
pub fn run(globals: &Globals, notices: Notices, args: KeyspacesArgs) -> Outcome {
    match args.action.unwrap_or(Action::List) {
        Action::List => {
            let db = open_existing(globals)?;
            list::write_list(&mut stdout(), &db.keyspaces(), args.format, Surface::of_stdout())
        }
        Action::Create(create) => {
            let options = create.options()?;
            options.validate()?; // Before a database is created for a keyspace that cannot be.
            let db = open_or_create(globals)?;
            db.create_keyspace(&create.name, options)?;
            done(&db, notices, &format!("created keyspace {:?}", create.name))
        }
        Action::Drop { name, yes: false } => {
            let what = format!("this deletes keyspace {name:?} with all its data: add --yes");
            Err(Failure::usage(what))
        }
        Action::Drop { name, yes: true } => {
            let db = open_existing(globals)?;
            db.drop_keyspace(&name)?;
            done(&db, notices, &format!("dropped keyspace {name:?}"))
        }
        Action::Rename { old, new } => {
            let db = open_existing(globals)?;
            db.rename_keyspace(&old, &new)?;
            done(&db, notices, &format!("renamed keyspace {old:?} to {new:?}"))
        }
    }
}

fn done(db: &Db, notices: Notices, text: &str) -> Outcome {
    close(db)?;
    notices.say(text);
    Ok(())
}
