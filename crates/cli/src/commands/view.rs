//! `lithe view`: pairs for people: what is there, how large, and when it was written.

use std::io::{Read, Write};

use clap::Args;
use lithedb::{Cursor, KeyspaceInfo};

use super::dump::keyspace_names;
use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::open_to_read;
use crate::failure::{Failure, Outcome};
use crate::notation::{bytes_text, stamp_time_text, write_escaped, write_hex};
use crate::output::{Table, stdout};

/// Rows that are laid out together.
const PAGE_ROWS: usize = 1000;
/// Bytes of a value that are read at once where all of it is shown.
const PIECE_SIZE: usize = 64 << 10;
/// Bytes of a key and of a value that are shown, unless all are asked for.
const SHOWN_MAX: usize = 64;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe view
  lithe --db my.lithe view --all --keys-only
  lithe --db my.lithe view --prefix user: --stamps --hashes --limit 20

Of each key and value the first 64 bytes are shown, and `..` if there are more, and of a large one
no more is read; --full shows all, without columns. Times are in UTC, with the commit's number
within the millisecond.";

/// Options of `lithe view`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ViewArgs {
    /// All keyspaces, instead of the one of --keyspace
    #[arg(long)]
    pub all: bool,

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// At most so many rows of each keyspace
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u64>,

    /// Leave the values away
    #[arg(long, conflicts_with = "hashes")]
    pub keys_only: bool,

    /// Show the hash (16 bytes of BLAKE3) of each value instead of it
    #[arg(long)]
    pub hashes: bool,

    /// Show when each pair was written
    #[arg(long)]
    pub stamps: bool,

    /// Show keys and values whole
    #[arg(long)]
    pub full: bool,
}

/// Shows the pairs.
pub fn run(globals: &Globals, args: &ViewArgs) -> Outcome {
    let range = args.range.key_range()?;
    let db = open_to_read(globals)?;
    let names = keyspace_names(&db, globals, args.all)?;
    let snapshot = db.snapshot();
    let mut out = stdout();
    let shown = db.keyspaces().into_iter().filter(|info| names.contains(&info.name));
    for (index, info) in shown.enumerate() {
        let keyspace = db.keyspace(&info.name)?;
        let count = match &range {
            Some(range) => snapshot.count(&keyspace, (range.start.clone(), range.end.clone()))?,
            None => 0,
        };
        if args.all {
            out.write_all(if index == 0 { b"" } else { b"\n" })?;
            writeln!(out, "{}", heading(&info, count))?;
        }
        let Some(range) = range.clone() else { continue };
        let cursor = snapshot.cursor(&keyspace, range);
        match args.full {
            true => write_whole_pairs(&mut out, cursor, args)?,
            false => write_pairs(&mut out, cursor, args)?,
        }
    }
    Ok(out.flush()?)
}

/// `keyspace "users" (2): 3 keys`.
fn heading(info: &KeyspaceInfo, count: u64) -> String {
    let keys = if count == 1 { "key" } else { "keys" };
    format!("keyspace {:?} ({}): {count} {keys}", info.name, info.id)
}

fn write_pairs(out: &mut impl Write, mut cursor: Cursor, args: &ViewArgs) -> Outcome {
    let titles = ["key", ">size", if args.hashes { "hash" } else { "value" }, "written"];
    let shown = [true, true, !args.keys_only, args.stamps];
    let titles: Vec<&str> =
        titles.into_iter().zip(shown).filter(|(_, shown)| *shown).map(|(title, _)| title).collect();
    let mut left = args.limit.unwrap_or(u64::MAX);
    cursor.seek_first()?;
    let mut is_first = true;
    while cursor.valid() && left > 0 {
        // Titles once; the columns fit page by page.
        let mut table = if is_first { Table::new(&titles) } else { Table::bare() };
        is_first = false;
        for _ in 0..PAGE_ROWS {
            if !cursor.valid() || left == 0 {
                break;
            }
            table.row(cells(&cursor, args)?);
            left -= 1;
            cursor.next()?;
        }
        write!(out, "{table}")?;
    }
    Ok(())
}

/// Pairs without columns: a line each, whatever it takes, written as it is read.
fn write_whole_pairs(out: &mut impl Write, mut cursor: Cursor, args: &ViewArgs) -> Outcome {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut piece = vec![0; PIECE_SIZE];
    cursor.seek_first()?;
    while cursor.valid() && left > 0 {
        write_escaped(out, cursor.key())?;
        write!(out, "  {}", bytes_text(cursor.value_len()?))?;
        if args.stamps {
            write!(out, "  {}", stamp_time_text(cursor.seqno()))?;
        }
        if args.hashes || !args.keys_only {
            out.write_all(b"  ")?;
        }
        if args.hashes {
            write_hex(out, &cursor.value_hash()?)?;
        } else if !args.keys_only {
            let mut value = cursor.value_reader()?;
            loop {
                match value.read(&mut piece).map_err(Failure::of_value)? {
                    0 => break,
                    len => write_escaped(out, &piece[..len])?,
                }
            }
        }
        out.write_all(b"\n")?;
        left -= 1;
        cursor.next()?;
    }
    Ok(())
}

fn cells(cursor: &Cursor, args: &ViewArgs) -> Result<Vec<String>, Failure> {
    let (key, size) = (cursor.key(), cursor.value_len()?);
    let key_shown = &key[..key.len().min(SHOWN_MAX)];
    let mut cells = vec![text_of(key_shown, key.len() as u64)?, bytes_text(size)];
    if args.hashes {
        let mut digits = Vec::new();
        write_hex(&mut digits, &cursor.value_hash()?)?;
        cells.push(String::from_utf8_lossy(&digits).into_owned());
    } else if !args.keys_only {
        cells.push(text_of(&start_of_value(cursor, size)?, size)?);
    }
    if args.stamps {
        cells.push(stamp_time_text(cursor.seqno()));
    }
    Ok(cells)
}

fn start_of_value(cursor: &Cursor, size: u64) -> Result<Vec<u8>, Failure> {
    let mut start = vec![0; size.min(SHOWN_MAX as u64) as usize];
    cursor.value_reader()?.read_exact(&mut start).map_err(Failure::of_value)?;
    Ok(start)
}

/// These bytes as escaped text, and `..` if there are more of them.
fn text_of(bytes: &[u8], len: u64) -> Result<String, Failure> {
    let mut text = Vec::new();
    write_escaped(&mut text, bytes)?;
    if len > bytes.len() as u64 {
        text.extend_from_slice(b"..");
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
