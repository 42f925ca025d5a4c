//! `lithe dump`: pairs and the options of their keyspaces, in a form that `load` reads back.

use clap::Args;
use lithedb::Db;

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::open_to_read;
use crate::dump::{Content, DumpWriter, Pairs, Stamps};
use crate::failure::{Failure, Outcome};
use crate::notation::count_text;
use crate::output::{Notices, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe dump > words.dump
  lithe --db my.lithe dump --all > everything.dump
  lithe --db other.lithe load everything.dump
  lithe --db my.lithe dump --prefix user: --hashes --stamps

One line a pair, fields between tabs, text with \\xNN and \\\\; a value over 32 KiB has several
lines. Keyspaces come with their options. All is of one moment. Dumps of keys or hashes are for
comparing: they cannot be loaded. Loaded pairs get new stamps.";

/// Options of `lithe dump`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    /// All keyspaces, instead of the one of --keyspace
    #[arg(long)]
    pub all: bool,

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// Leave the values away
    #[arg(long, conflicts_with = "hashes")]
    pub keys_only: bool,

    /// Write the length and the hash (16 bytes of BLAKE3) of each value instead of it
    #[arg(long)]
    pub hashes: bool,

    /// Write the stamp of each pair's commit too
    #[arg(long)]
    pub stamps: bool,
}

/// Writes the dump.
pub fn run(globals: &Globals, notices: Notices, args: &DumpArgs) -> Outcome {
    let range = args.range.key_range()?;
    let db = open_to_read(globals)?;
    let content = match (args.keys_only, args.hashes) {
        (true, _) => Content::Keys,
        (_, true) => Content::Hashes,
        _ => Content::Values,
    };
    let stamps = if args.stamps { Stamps::Shown } else { Stamps::Absent };
    let names = keyspace_names(&db, globals, args.all)?;
    let mut dump = DumpWriter::begin(stdout(), content, stamps)?;
    let snapshot = db.snapshot();
    for info in db.keyspaces() {
        if !names.contains(&info.name) {
            continue;
        }
        dump.keyspace(&info.name, &info.options)?;
        let Some(range) = &range else { continue };
        let mut cursor = snapshot.cursor(&db.keyspace(&info.name)?, range.clone());
        cursor.seek_first()?;
        while cursor.valid() {
            dump.pair(&cursor)?;
            cursor.next()?;
        }
    }
    let Pairs(count) = dump.finish()?;
    match names.is_empty() {
        true => notices.say("no pairs: there is no keyspace"),
        false => notices.say(format!("{} pairs of {}", count_text(count), names.join(", "))),
    }
    Ok(())
}

/// The names of the keyspaces that the command is about; the one of `--keyspace` must exist.
pub fn keyspace_names(db: &Db, globals: &Globals, all: bool) -> Result<Vec<String>, Failure> {
    if all {
        return Ok(db.keyspaces().into_iter().map(|info| info.name).collect());
    }
    db.keyspace(&globals.keyspace)?;
    Ok(vec![globals.keyspace.clone()])
}
