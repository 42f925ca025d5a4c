//! `lithe compact`: consolidates, and gives back what overwritten and deleted entries take.

use clap::Args;
use lithedb::Stats;

use crate::args::Globals;
use crate::database::{close, open_existing};
use crate::failure::Outcome;
use crate::notation::bytes_text;
use crate::output::Notices;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe compact
  lithe --db my.lithe --memory 64MiB compact

Costs up to reading and writing all data once. Each slice of it is durable by itself: what was done
before an interruption stays done.";

/// Options of `lithe compact`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {}

/// Compacts all keyspaces, and says what it brought.
pub fn run(globals: &Globals, notices: Notices, _args: &CompactArgs) -> Outcome {
    let db = open_existing(globals)?;
    let before = bytes_of_keyspaces(&db.stats());
    db.compact()?;
    let after = bytes_of_keyspaces(&db.stats());
    close(&db)?;
    notices.say(format!("{} before, {} after", bytes_text(before), bytes_text(after)));
    Ok(())
}

/// Bytes that the files of all keyspaces take on disk.
fn bytes_of_keyspaces(stats: &Stats) -> u64 {
    let of_each = stats.keyspaces.iter();
    of_each.map(|keyspace| keyspace.bytes_on_disk).sum()
}
