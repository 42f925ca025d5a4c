//! `lithe create`: an empty database, perhaps an encrypted one.

use crate::args::{DEFAULT_KEYSPACE, Globals};
use crate::database::{Purpose, close, database_path, exists, open};
use crate::failure::{Failure, Outcome};
use crate::output::Notices;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe create
  head -c 32 /dev/urandom > key && chmod 600 key
  lithe --db my.lithe --key-file key create --encrypted
  lithe --db my.lithe --passphrase create --encrypted

It has the keyspace `default`, which is empty, and that of --keyspace. Other commands create
databases too: encrypted ones, if a key is named. An encrypted one is opened with the same key or
passphrase, and is lost with it. One that is there cannot be encrypted: load a dump of it into
another one.";

/// Options of `lithe create`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CreateArgs {
    /// Encrypt it, with the key or passphrase that is named by the global options
    #[arg(long)]
    pub encrypted: bool,
}

/// Creates it.
pub fn run(globals: &Globals, notices: Notices, args: &CreateArgs) -> Outcome {
    let path = database_path(globals)?;
    if exists(path)? {
        return Err(Failure::usage(format!("there is a database in {} already", path.display())));
    }
    if args.encrypted && globals.key_source()?.is_none() {
        let what = "`--encrypted` wants a key, as with --key-file, or a passphrase";
        return Err(Failure::usage(what));
    }
    if !args.encrypted && globals.key_source()?.is_some() {
        return Err(Failure::usage("a key is for an encrypted database: say `--encrypted`"));
    }
    let db = open(globals, path, Purpose::Make)?;
    for name in [DEFAULT_KEYSPACE, &globals.keyspace] {
        db.keyspace_or_create(name)?;
    }
    close(&db)?;
    let kind = if args.encrypted { "encrypted database" } else { "database" };
    notices.say(format!("created the {kind} {}", path.display()));
    Ok(())
}
