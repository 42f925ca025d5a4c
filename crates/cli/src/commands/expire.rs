//! `lithe expire`: sets when a key expires.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use clap::Args;
use lithedb::Error;

use crate::args::Globals;
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::notation::{Notation, parse_duration, parse_time};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe expire session --ttl 10m
  lithe --db my.lithe expire session --at 2026-11-22T18:00:00Z
  lithe --db my.lithe expire session --never

The key keeps its value and gets a new stamp. When the command returns, it is durable. The exit code
is 1 when the key is not there.";

/// Options of `lithe expire`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExpireArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// How KEY is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,

    /// When.
    #[command(flatten)]
    pub when: When,
}

/// When a key shall expire.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct When {
    /// After so long, as in 90s, 10m, 36h, 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub ttl: Option<Duration>,

    /// At this time, as in 2026-11-22T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub at: Option<SystemTime>,

    /// Not at all
    #[arg(long)]
    pub never: bool,
}

/// Sets the expiry.
pub fn run(globals: &Globals, args: &ExpireArgs) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let db = open_existing(globals)?;
    let keyspace = db.keyspace(&globals.keyspace)?;
    let is_there = match args.when.ttl {
        Some(ttl) => db.update(|transaction| {
            let Some(value) = transaction.get(&keyspace, &key)? else { return Ok(false) };
            transaction.put_with_ttl(&keyspace, &key, value, ttl)?;
            Ok::<_, Error>(true)
        })?,
        None => keyspace.set_expiry(&key, args.when.at)?,
    };
    close(&db)?;
    if is_there {
        return Ok(());
    }
    let what = format!("{:?} is not in keyspace {:?}", args.key, globals.keyspace);
    Err(Failure::NotFound { what })
}
