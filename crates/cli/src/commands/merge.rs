//! `lithe merge`: merges an operand into the value of a key.

use std::ffi::OsString;

use clap::Args;

use super::put::read_value;
use crate::args::Globals;
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::notation::Notation;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces create visits --merge counter
  lithe --db my.lithe --keyspace visits merge home --add 3
  lithe --db my.lithe --keyspace log merge today 'one more line' --value-format text

What it does to the value is up to the keyspace's merge operator, which is chosen when the keyspace
is created. Nothing is read: who reads the key merges. When the command returns, it is durable.";

/// Options of `lithe merge`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MergeArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// The operand; `-` reads the bytes of standard input
    #[arg(
        value_name = "OPERAND",
        allow_hyphen_values = true,
        required_unless_present = "add",
        conflicts_with = "add"
    )]
    pub operand: Option<OsString>,

    /// A number to add to a counter: the operand is its 8 bytes, little-endian
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub add: Option<i64>,

    /// How KEY is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,

    /// How OPERAND is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub value_format: Notation,
}

impl MergeArgs {
    /// The bytes of both.
    pub fn key_and_operand(&self) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let key = self.key_format.parse(&self.key).map_err(Failure::usage)?;
        let operand = match (&self.operand, self.add) {
            (_, Some(number)) => number.to_le_bytes().to_vec(),
            (Some(operand), None) => read_value(operand, self.value_format)?,
            (None, None) => return Err(Failure::usage("an operand, or --add NUMBER, is missing")),
        };
        Ok((key, operand))
    }
}

/// Merges the operand. A keyspace that is not there has no operator, so none is created.
pub fn run(globals: &Globals, args: &MergeArgs) -> Outcome {
    let (key, operand) = args.key_and_operand()?;
    let db = open_existing(globals)?;
    db.keyspace(&globals.keyspace)?.merge(key, operand)?;
    close(&db)
}
