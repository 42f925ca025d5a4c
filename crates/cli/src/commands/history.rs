//! `lithe history`: what happened to a key.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Bound;

use clap::{Args, ValueEnum};
use lithedb::{Error, KeyVersion, Keyspace, PointInTime, SeqNo};

use crate::args::Globals;
use crate::database::{Purpose, open_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::{
    Notation, millis_text, parse_moment, stamp_time_text, time_text, write_escaped,
};
use crate::output::{stdout, write_json_bytes};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces create prices --structure history
  lithe --db my.lithe --keyspace prices history bread
  lithe --db my.lithe --keyspace prices history bread --from '2 hours ago' --oldest-first
  lithe --db my.lithe --keyspace prices history bread --limit 1 --format jsonl

Of keyspaces of the structure history. A line has the stamp of the commit (milliseconds since 1970,
dot, counter), its time in UTC, `put` or `delete`, the value, and
`expires` with the time if the value does. The newest comes first. Exit code 1 if there is none:
nothing happened, or what did is not kept any more, which is told apart.";

/// Options of `lithe history`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HistoryArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// How KEY is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,

    /// From this moment on: a stamp, a time as in 2026-11-22T18:00:00Z, or as in 5 minutes ago
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub from: Option<PointInTime>,

    /// Up to this moment, inclusive
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub to: Option<PointInTime>,

    /// The oldest first
    #[arg(long)]
    pub oldest_first: bool,

    /// At most so many
    #[arg(long, value_name = "VERSIONS")]
    pub limit: Option<usize>,

    /// How versions are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: HistoryFormat,
}

/// How versions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    /// Stamp, time, what, value and, if it expires, `expires` and when between tabs; text with \xNN
    /// and \\
    Escaped,
    /// One object per line: `stamp`, `time`, `value`, which is null for a deletion, and `expires`,
    /// which is null for never
    Jsonl,
}

/// Prints the versions.
pub fn run(globals: &Globals, args: &HistoryArgs) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let (from, to) = (args.from.map(first_of), args.to.map(last_of));
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        return Err(Failure::usage("--from is later than --to"));
    }
    let (_db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let stamps = (
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Included),
    );
    let versions = match args.oldest_first {
        true => keyspace.history_from_oldest(&key, stamps)?,
        false => keyspace.history(&key, stamps)?,
    };
    let (mut out, mut count) = (stdout(), 0);
    for version in versions.take(args.limit.unwrap_or(usize::MAX)) {
        write_version(&mut out, args.format, &version?)?;
        count += 1;
    }
    out.flush()?;
    match count == 0 && args.limit != Some(0) {
        true => Err(nothing_found(&keyspace, &key, globals, args)),
        false => Ok(()),
    }
}

/// What is said when no version is there: that nothing happened, if all that did is kept.
fn nothing_found(
    keyspace: &Keyspace,
    key: &[u8],
    globals: &Globals,
    args: &HistoryArgs,
) -> Failure {
    let then = match (args.from, args.to) {
        (None, None) => "",
        _ => " in that time",
    };
    // As of where the time begins: what is known of the key then has not been dropped since.
    let begin = args.from.map_or(SeqNo::ZERO, first_of);
    let what = match keyspace.get_at(key, begin) {
        Err(error @ Error::BeyondRetention { .. }) => {
            format!("{error}; there is nothing of {:?}{then}", args.key)
        }
        _ => format!("nothing happened to {:?} in {:?}{then}", args.key, globals.keyspace),
    };
    Failure::NotFound { what }
}

/// The first stamp that is not before this moment.
fn first_of(moment: PointInTime) -> SeqNo {
    match moment {
        PointInTime::Stamp(stamp) => stamp,
        PointInTime::Time(_) => SeqNo::from_parts(moment.millis(), 0),
    }
}

/// The last stamp that is not behind this moment.
fn last_of(moment: PointInTime) -> SeqNo {
    match moment {
        PointInTime::Stamp(stamp) => stamp,
        PointInTime::Time(_) => SeqNo::from_parts(moment.millis(), u16::MAX),
    }
}

fn write_version(
    out: &mut impl Write,
    format: HistoryFormat,
    version: &KeyVersion,
) -> io::Result<()> {
    let KeyVersion { seqno, value, expiry, .. } = version;
    let expires = expiry.time().map(time_text);
    match format {
        HistoryFormat::Escaped => {
            let what = if value.is_some() { "put" } else { "delete" };
            let time = stamp_time_text(*seqno);
            let time = time.split(" +").next().unwrap_or_default();
            write!(out, "{seqno}\t{time}\t{what}\t")?;
            write_escaped(out, value.as_deref().unwrap_or_default())?;
            if let Some(time) = expires {
                write!(out, "\texpires {time}")?;
            }
        }
        HistoryFormat::Jsonl => {
            let time = millis_text(seqno.millis());
            write!(out, "{{\"stamp\":\"{seqno}\",\"time\":\"{time}\",\"value\":")?;
            match value {
                Some(value) => write_json_bytes(out, value)?,
                None => out.write_all(b"null")?,
            }
            match expires {
                Some(time) => write!(out, ",\"expires\":\"{time}\"}}")?,
                None => out.write_all(b",\"expires\":null}")?,
            }
        }
    }
    out.write_all(b"\n")
}
