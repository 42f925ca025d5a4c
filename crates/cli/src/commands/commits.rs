//! `lithe commits`: the commits that the log still has.

use std::io::{self, Write};
use std::ops::Bound;

use clap::{Args, ValueEnum};
use lithedb::{Commit, Db, SeqNo};

use crate::args::Globals;
use crate::database::{Opened, Purpose, builder, close, database_path};
use crate::failure::{Failure, Outcome};
use crate::notation::{parse_size, parse_stamp, write_escaped};
use crate::output::{stdout, write_json_bytes};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe commits --keep 64MiB
  printf 'payload opening\\nput a 1\\n' | lithe --db my.lithe tx
  lithe --db my.lithe commits --after 1795250864285.0 --format jsonl

A line has the stamp (milliseconds since 1970, dot, counter), the number of writes, and what was
kept with the commit. Commits are there until they are flushed, as closing the database does, and
longer only as far as --keep says. Asking for what may be gone is an error.";

/// Options of `lithe commits`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CommitsArgs {
    /// From this stamp on
    #[arg(long, value_name = "STAMP", value_parser = parse_stamp)]
    pub from: Option<SeqNo>,

    /// Behind this stamp: what is new to one who has seen it
    #[arg(long, value_name = "STAMP", value_parser = parse_stamp, conflicts_with = "from")]
    pub after: Option<SeqNo>,

    /// Up to this stamp, inclusive
    #[arg(long, value_name = "STAMP", value_parser = parse_stamp)]
    pub to: Option<SeqNo>,

    /// At most so many
    #[arg(long, value_name = "COMMITS")]
    pub limit: Option<usize>,

    /// From now on keep so much of the log to be read, as in 64MiB; the database remembers it
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub keep: Option<u64>,

    /// How commits are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: CommitFormat,
}

/// How commits are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CommitFormat {
    /// Stamp, number of writes and payload between tabs; text with \xNN and \\
    Escaped,
    /// One object per line: `stamp` (a number), `operations`, and `payload` if there is one
    Jsonl,
}

/// Prints the commits.
pub fn run(globals: &Globals, args: &CommitsArgs) -> Outcome {
    let db = open(globals, args.keep)?;
    let mut out = stdout();
    write_commits(&db, args, &mut out)?;
    out.flush()?;
    close(&db)
}

/// Opens the database, with what is to be kept from now on.
fn open(globals: &Globals, keep: Option<u64>) -> Result<Opened, Failure> {
    if let Some(held) = &globals.held {
        return match keep {
            None => Ok(Opened::by_session(held.clone())),
            Some(_) => Err(Failure::usage("--keep is for opening a database: use it outside")),
        };
    }
    let purpose = if keep.is_some() { Purpose::Change } else { Purpose::Read };
    let mut options = builder(globals, purpose)?;
    if let Some(bytes) = keep {
        options = options.kept_log_size(bytes);
    }
    Ok(Opened::by_command(options.open(database_path(globals)?)?))
}

fn write_commits(db: &Db, args: &CommitsArgs, out: &mut impl Write) -> Outcome {
    let from = match (args.from, args.after) {
        (Some(from), _) => Bound::Included(from),
        (None, Some(after)) => Bound::Excluded(after),
        (None, None) => Bound::Unbounded,
    };
    let to = args.to.map_or(Bound::Unbounded, Bound::Included);
    for commit in db.commits((from, to))?.take(args.limit.unwrap_or(usize::MAX)) {
        write_commit(out, args.format, &commit?)?;
    }
    Ok(())
}

fn write_commit(out: &mut impl Write, format: CommitFormat, commit: &Commit) -> io::Result<()> {
    let Commit { seqno, operations, payload, .. } = commit;
    match format {
        CommitFormat::Escaped => {
            write!(out, "{seqno}\t{operations}\t")?;
            write_escaped(out, payload.as_deref().unwrap_or_default())?;
        }
        CommitFormat::Jsonl => {
            write!(out, "{{\"stamp\":{},\"operations\":{operations}", seqno.as_u64())?;
            if let Some(payload) = payload {
                out.write_all(b",\"payload\":")?;
                write_json_bytes(out, payload)?;
            }
            out.write_all(b"}")?;
        }
    }
    out.write_all(b"\n")
}
