//! `lithe keyspaces`: lists, creates, drops and renames keyspaces.

mod create;
mod list;

pub use create::{OptionArgs, StructureName};

use clap::{Args, Subcommand};
use lithedb::Db;

use crate::args::Globals;
use crate::commands::keyspaces::create::CreateArgs;
use crate::confirm::{Yes, confirm};
use crate::database::{Opened, close, database_path, exists};
use crate::database::{open_existing, open_or_create, open_to_read};
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

impl KeyspacesArgs {
    /// Whether they are listed, and nothing else.
    pub fn is_list(&self) -> bool {
        matches!(self.action, None | Some(Action::List))
    }
}

/// What to do with keyspaces.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List them (the default)
    List,
    /// Create one, and the database if there is none
    Create(CreateArgs),
    /// Drop one and everything in it, and destroy the data key that it has of its own
    Drop {
        /// Its name
        name: String,
        /// Do not ask
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
            let db = open_to_read(globals)?;
            list::write_list(&mut stdout(), &db.keyspaces(), args.format, Surface::of_stdout())
        }
        Action::Create(create) => {
            let options = create.options()?;
            options.validate()?; // Before a database is created for a keyspace that cannot be.
            if create.own_key {
                check_can_be_encrypted(globals)?; // Likewise.
            }
            let db = open_or_create(globals)?;
            match create.own_key {
                true => db.create_keyspace_with_own_key(&create.name, options)?,
                false => db.create_keyspace(&create.name, options)?,
            };
            done(&db, notices, &format!("created keyspace {:?}", create.name))
        }
        Action::Drop { name, yes } => {
            confirm(&format!("this deletes keyspace {name:?} with all its data"), Yes(yes))?;
            let db = open_existing(globals)?;
            drop_keyspace(&db, notices, &name)?;
            done(&db, notices, &format!("dropped keyspace {name:?}"))
        }
        Action::Rename { old, new } => {
            let db = open_existing(globals)?;
            db.rename_keyspace(&old, &new)?;
            done(&db, notices, &format!("renamed keyspace {old:?} to {new:?}"))
        }
    }
}

/// Refuses what would make a database without keys, for a keyspace with one of its own.
fn check_can_be_encrypted(globals: &Globals) -> Outcome {
    if globals.key_source()?.is_some() || exists(database_path(globals)?)? {
        return Ok(());
    }
    let what = "there is no database yet, and --own-key needs one that is encrypted: name a key \
                with --key-file or another of its kind";
    Err(Failure::usage(what))
}

/// Drops one, and destroys the key that it had of its own.
fn drop_keyspace(db: &Db, notices: Notices, name: &str) -> Outcome {
    let keyspace = db.keyspace(name)?;
    let (had_own_key, is_shared) = (keyspace.has_own_key(), keyspace.is_own_key_shared()?);
    drop(keyspace); // It would hold the files.
    db.drop_keyspace(name)?;
    if !had_own_key {
        return Ok(());
    }
    let report = db.destroy_keys()?;
    if is_shared {
        notices.say("its key stays: another keyspace has it as well");
        return Ok(());
    }
    for file in &report.files_left {
        notices.say(format!("{} has a key that is to be destroyed", file.display()));
    }
    match report.left {
        0 => notices.say("its key is destroyed"),
        _ => notices.say("its key is destroyed when these files are not needed any more"),
    }
    Ok(())
}

fn done(db: &Opened, notices: Notices, text: &str) -> Outcome {
    close(db)?;
    notices.say(text);
    Ok(())
}
