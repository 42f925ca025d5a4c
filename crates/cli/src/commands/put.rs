//! `lithe put`: stores a value under a key.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use lithedb::VALUE_LEN_MAX;

use crate::args::Globals;
use crate::database::{close, open_or_create_keyspace};
use crate::failure::{Failure, Outcome};
use crate::input::stdin;
use crate::notation::{Notation, parse_duration, parse_time};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe put greeting 'hello, world'
  lithe --db my.lithe put --key-format escaped 'row\\x00\\x01' '{\"a\": 1}'
  lithe --db my.lithe put photo - < photo.jpg
  lithe --db my.lithe put session token --ttl 10m

The database and the keyspace are created when they do not exist. When the command returns, the
value is durable.";

/// Options of `lithe put`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PutArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// The value; `-` reads the bytes of standard input
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: OsString,

    /// How KEY is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,

    /// How VALUE is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub value_format: Notation,

    /// It expires after so long, as in 90s, 10m, 36h, 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "expires")]
    pub ttl: Option<Duration>,

    /// It expires then, as in 2026-11-22T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub expires: Option<SystemTime>,
}

/// Stores the value.
pub fn run(globals: &Globals, args: &PutArgs) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let value = read_value(&args.value, args.value_format)?;
    let (db, keyspace) = open_or_create_keyspace(globals)?;
    match (args.ttl, args.expires) {
        (Some(ttl), _) => keyspace.put_with_ttl(key, value, ttl)?,
        (None, Some(time)) => keyspace.put_until(key, value, time)?,
        (None, None) => keyspace.put(key, value)?,
    };
    close(&db)
}

/// The bytes of an argument, or of standard input if it is `-`.
pub fn read_value(argument: &OsStr, notation: Notation) -> Result<Vec<u8>, Failure> {
    if argument != "-" {
        return notation.parse(argument).map_err(Failure::usage);
    }
    let mut value = Vec::new();
    // One byte more than the store takes is enough for it to say no.
    let most = VALUE_LEN_MAX as u64 + 1;
    let read = stdin()?.take(most).read_to_end(&mut value);
    let path = PathBuf::from("standard input");
    read.map_err(|source| Failure::Input { path, source })?;
    Ok(value)
}
