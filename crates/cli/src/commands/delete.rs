//! `lithe delete`: deletes a key.

use std::ffi::OsString;

use clap::Args;

use crate::args::Globals;
use crate::database::{close, open_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::Notation;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe delete greeting
  lithe --db my.lithe delete --key-format hex 00ff
  lithe --db my.lithe --keyspace users delete alice

Deleting a key that is not there is no error. When the command returns, the deletion is durable.";

/// Options of `lithe delete`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeleteArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// How KEY is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,
}

/// Deletes the key. There is nothing to delete in a database that does not exist, so none is
/// created.
pub fn run(globals: &Globals, args: &DeleteArgs) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let (db, keyspace) = open_keyspace(globals)?;
    keyspace.delete(key)?;
    close(&db)
}
