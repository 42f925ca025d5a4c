//! `lithe changes`: what commits have written, in order.

use std::io::{self, Write};

use std::time::Duration;

use clap::{Args, ValueEnum};
use lithedb::{Change, ChangeKind, CommitChanges, Db, FeedOptions, PointInTime, Previous, SeqNo};

use crate::args::Globals;
use crate::database::{Purpose, close, database_path, follow, open};
use crate::failure::{Failure, Outcome};
use crate::notation::{millis_text, parse_moment, stamp_time_text, write_escaped};
use crate::output::{stdout, write_json_bytes};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe changes
  lithe --db my.lithe changes --since '10 minutes ago' --of orders --of customers
  lithe --db my.lithe changes --since 1795250864285.0 --format jsonl
  lithe --db my.lithe changes --since '1 minute ago' --follow
  lithe --db my.lithe consumers create mirror --log-max 1GiB
  lithe --db my.lithe changes --consumer mirror --acknowledge

A line has the stamp of the commit (milliseconds since 1970, dot, counter), its time in UTC, the
keyspace, what was done, the key, and the value, the operand, or the end of a range. Commits are
there until they are flushed, as closing the database does, and longer as far as consumers or
`commits --keep` have them kept; of keyspaces of the structure history, named with --of, as far back
as these keep all versions. With --follow, or --beside, they are read beside another program that
writes to the database, out of the log alone; with --follow each is shown as it comes, until it is
interrupted or has shown --limit commits.
What a bulk ingest has brought (`load --ingest`, `ingest`) is no change here; where versions are
kept, `history` shows it.";

/// Options of `lithe changes`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ChangesArgs {
    /// Behind this moment: a stamp, a time as in 2026-11-22T18:00:00Z, or as in 5 minutes ago
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub since: Option<PointInTime>,

    /// Only of this keyspace; may be given several times
    #[arg(long, value_name = "KEYSPACE")]
    pub of: Vec<String>,

    /// Say what keys had before, in keyspaces that keep versions
    #[arg(long)]
    pub previous: bool,

    /// What is new to this consumer
    #[arg(long, value_name = "NAME", conflicts_with = "since")]
    pub consumer: Option<String>,

    /// Go on with what another program commits, as it comes
    #[arg(long, conflicts_with = "consumer")]
    pub follow: bool,

    /// Note that the consumer is done with what was written
    #[arg(long, requires = "consumer")]
    pub acknowledge: bool,

    /// At most so many commits
    #[arg(long, value_name = "COMMITS")]
    pub limit: Option<usize>,

    /// How changes are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: ChangesFormat,
}

/// How changes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ChangesFormat {
    /// A line for each change; text with \xNN and \\
    Escaped,
    /// One object for each commit: `stamp`, `time`, `payload` if there is one, and `changes`
    Jsonl,
}

/// Prints the changes.
pub fn run(globals: &Globals, args: &ChangesArgs) -> Outcome {
    if args.follow || globals.beside {
        return run_beside(globals, args);
    }
    let purpose = if args.acknowledge { Purpose::Change } else { Purpose::Read };
    let db = open(globals, database_path(globals)?, purpose)?;
    let options = options_of(args, &db)?;
    match &args.consumer {
        Some(name) => write_new(&db, name, options, args)?,
        None => {
            let since = args.since.unwrap_or(PointInTime::Stamp(SeqNo::ZERO));
            let mut out = stdout();
            for commit in db.changes(since, options)?.take(args.limit.unwrap_or(usize::MAX)) {
                write_commit(&mut out, args.format, &commit?)?;
            }
            out.flush()?;
        }
    }
    close(&db)
}

fn options_of(args: &ChangesArgs, db: &Db) -> Result<FeedOptions, Failure> {
    let options = FeedOptions::new().previous_values(args.previous);
    if args.of.is_empty() {
        return Ok(options);
    }
    let chosen: Result<Vec<_>, _> = args.of.iter().map(|name| db.keyspace(name)).collect();
    Ok(options.keyspaces(&chosen?))
}

/// Prints changes beside another program that makes them.
fn run_beside(globals: &Globals, args: &ChangesArgs) -> Outcome {
    /// How long it waits for a commit before it waits anew.
    const PATIENCE: Duration = Duration::from_secs(3600);
    if args.consumer.is_some() {
        return Err(Failure::usage("a consumer is not read beside another program: leave it out"));
    }
    if globals.held.is_some() {
        return Err(Failure::usage("nobody else writes while the shell has the database open"));
    }
    let follower = follow(globals, database_path(globals)?)?;
    let since = args.since.unwrap_or(PointInTime::Stamp(SeqNo::ZERO));
    let mut changes = follower.changes(since, options_of(args, &follower.db())?)?;
    let mut out = stdout();
    let mut left = args.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let commit = match changes.next().transpose()? {
            Some(commit) => commit,
            None if !args.follow => break,
            None => {
                out.flush()?; // Before it waits.
                match changes.wait(PATIENCE)? {
                    Some(commit) => commit,
                    None => continue,
                }
            }
        };
        write_commit(&mut out, args.format, &commit)?;
        left -= 1;
    }
    out.flush()?;
    Ok(follower.close()?)
}

/// Prints what is new to a consumer. What could not be written is not acknowledged.
fn write_new(db: &Db, name: &str, options: FeedOptions, args: &ChangesArgs) -> Outcome {
    let mut consumer = db.consumer(name, options)?;
    let mut out = stdout();
    for commit in consumer.by_ref().take(args.limit.unwrap_or(usize::MAX)) {
        write_commit(&mut out, args.format, &commit?)?;
    }
    out.flush()?;
    if args.acknowledge {
        consumer.acknowledge(consumer.position())?;
    }
    Ok(())
}

fn write_commit(
    out: &mut impl Write,
    format: ChangesFormat,
    commit: &CommitChanges,
) -> io::Result<()> {
    match format {
        ChangesFormat::Escaped => {
            let time = stamp_time_text(commit.seqno);
            let time = time.split(" +").next().unwrap_or_default();
            for change in &commit.changes {
                write!(out, "{}\t{time}\t{}\t", commit.seqno, name_of(change))?;
                write_change(out, &change.kind)?;
                if let Previous::Value(value) = &change.previous {
                    out.write_all(b"\tbefore: ")?;
                    write_escaped(out, value)?;
                }
                out.write_all(b"\n")?;
            }
            Ok(())
        }
        ChangesFormat::Jsonl => {
            let time = millis_text(commit.seqno.millis());
            write!(out, "{{\"stamp\":\"{}\",\"time\":\"{time}\"", commit.seqno)?;
            if let Some(payload) = &commit.payload {
                out.write_all(b",\"payload\":")?;
                write_json_bytes(out, payload)?;
            }
            out.write_all(b",\"changes\":[")?;
            for (position, change) in commit.changes.iter().enumerate() {
                out.write_all(if position > 0 { b"," } else { b"" })?;
                write_json(out, change)?;
            }
            out.write_all(b"]}\n")
        }
    }
}

/// Its name, or its number if it was dropped since.
fn name_of(change: &Change) -> String {
    match &change.keyspace {
        Some(name) => name.escape_debug().to_string(),
        None => format!("#{}", change.keyspace_id),
    }
}

/// What was done, and to what, between tabs.
fn write_change(out: &mut impl Write, kind: &ChangeKind) -> io::Result<()> {
    let (what, key, value) = parts_of(kind);
    write!(out, "{what}\t")?;
    write_escaped(out, key)?;
    out.write_all(b"\t")?;
    write_escaped(out, value.unwrap_or_default())
}

fn parts_of(kind: &ChangeKind) -> (&'static str, &[u8], Option<&[u8]>) {
    match kind {
        ChangeKind::Put { key, value: Some(value), .. } => ("put", key, Some(value)),
        ChangeKind::Put { key, value: None, .. } => ("put, value gone", key, None),
        ChangeKind::Delete { key } => ("delete", key, None),
        ChangeKind::DeleteRange { start, end } => ("delete range", start, end.as_deref()),
        ChangeKind::Merge { key, operand } => ("merge", key, Some(operand)),
        _ => ("other", &[], None),
    }
}

fn write_json(out: &mut impl Write, change: &Change) -> io::Result<()> {
    out.write_all(b"{\"keyspace\":")?;
    match &change.keyspace {
        Some(name) => write_json_bytes(out, name.as_bytes())?,
        None => out.write_all(b"null")?,
    }
    write!(out, ",\"keyspace_id\":{}", change.keyspace_id)?;
    let (_, key, value) = parts_of(&change.kind);
    let (what, key_field, value_field) = match &change.kind {
        ChangeKind::Put { .. } => ("put", "key", "value"),
        ChangeKind::Delete { .. } => ("delete", "key", ""),
        ChangeKind::DeleteRange { .. } => ("delete_range", "start", "end"),
        ChangeKind::Merge { .. } => ("merge", "key", "operand"),
        _ => ("other", "key", ""),
    };
    write!(out, ",\"kind\":\"{what}\",\"{key_field}\":")?;
    write_json_bytes(out, key)?;
    if !value_field.is_empty() {
        write!(out, ",\"{value_field}\":")?;
        match value {
            Some(value) => write_json_bytes(out, value)?,
            None => out.write_all(b"null")?,
        }
    }
    if let ChangeKind::Put { expires_at: Some(millis), .. } = &change.kind {
        write!(out, ",\"expires_at\":{millis}")?;
    }
    match &change.previous {
        Previous::Unknown => {}
        Previous::Absent => out.write_all(b",\"previous\":null")?,
        Previous::Value(value) => {
            out.write_all(b",\"previous\":")?;
            write_json_bytes(out, value)?;
        }
    }
    out.write_all(b"}")
}
