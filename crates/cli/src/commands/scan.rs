//! `lithe scan`: keys and values in order.

use std::io::Write;

use clap::Args;
use lithedb::{Cursor, Error, PointInTime};

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{Purpose, open_keyspace};
use crate::failure::Outcome;
use crate::notation::parse_moment;
use crate::output::{Columns, Row, RowFormat, RowWriter, Surface, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe scan --prefix user: --limit 20
  lithe --db my.lithe scan --from 2026-01 --to 2026-02 --format jsonl > january.jsonl
  lithe --db my.lithe scan --reverse --limit 1 --stamps
  lithe --db my.lithe --keyspace prices scan --at 2026-11-22T18:00:00Z
  lithe --db my.lithe scan --keys-only --format raw | LC_ALL=C sort -c

Rows are key, value, stamp and expiry, as far as shown; between tabs in hex, escaped and raw.";

/// Options of `lithe scan`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ScanArgs {
    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,

    /// At most so many rows
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u64>,

    /// Leave the values away
    #[arg(long)]
    pub keys_only: bool,

    /// Print the stamp of the commit that wrote each row: milliseconds since 1970, dot, counter
    #[arg(long)]
    pub stamps: bool,

    /// Print when each row expires, in UTC; `-` if it does not
    #[arg(long)]
    pub expiry: bool,

    /// How rows are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: RowFormat,

    /// As it was then, in a keyspace of structure history: a stamp, a time as in
    /// 2026-11-22T18:00:00Z, or as in 5 minutes ago
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub at: Option<PointInTime>,
}

/// Which way to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Prints the rows.
pub fn run(globals: &Globals, args: &ScanArgs) -> Outcome {
    let range = args.range.key_range()?;
    let (db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let columns = Columns { values: !args.keys_only, stamps: args.stamps, expiry: args.expiry };
    let mut rows = RowWriter::new(stdout(), args.format, columns, Surface::of_stdout());
    if let Some(range) = range {
        let direction = if args.reverse { Direction::Backward } else { Direction::Forward };
        let mut cursor = match args.at {
            Some(at) => db.snapshot_at(at)?.cursor(&keyspace, range),
            None => keyspace.cursor(range),
        };
        let limit = args.limit.unwrap_or(u64::MAX);
        write_rows(&mut rows, &mut cursor, columns, direction, limit)?;
    }
    rows.finish()?;
    Ok(())
}

fn write_rows<W: Write>(
    rows: &mut RowWriter<W>,
    cursor: &mut Cursor,
    columns: Columns,
    direction: Direction,
    limit: u64,
) -> Outcome {
    let step = match direction {
        Direction::Forward => Cursor::next as fn(&mut Cursor) -> Result<(), Error>,
        Direction::Backward => Cursor::prev,
    };
    match direction {
        Direction::Forward => cursor.seek_first()?,
        Direction::Backward => cursor.seek_last()?,
    }
    let mut left = limit;
    while left > 0 && cursor.valid() {
        // Not read where it is not shown.
        let value = if columns.values { Some(cursor.value()?) } else { None };
        rows.write(Row {
            key: cursor.key(),
            value,
            stamp: columns.stamps.then(|| cursor.seqno()),
            expiry: columns.expiry.then(|| cursor.expires_at().into()),
        })?;
        left -= 1;
        step(cursor)?;
    }
    Ok(())
}
