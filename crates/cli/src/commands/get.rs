//! `lithe get`: the value of a key.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use lithedb::{Entry, PointInTime};

use crate::args::Globals;
use crate::database::{Purpose, open_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::{Notation, millis_text, parse_moment, write_escaped, write_hex};
use crate::output::{Columns, Row, RowFormat, RowWriter, Surface, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe get greeting
  lithe --db my.lithe get --key-format hex 00ff > value.bin
  lithe --db my.lithe get greeting --format json --stamps
  lithe --db my.lithe get session --expiry
  lithe --db my.lithe --keyspace prices get bread --at '5 minutes ago'

`raw` writes the bytes of the value and nothing else; it is the default into a file or a pipe, in
the shell with a line end behind them. On a terminal the default is `escaped`. The exit code is 1
when the key is not there.";

/// Options of `lithe get`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// How KEY is read
    #[arg(long, value_name = "NOTATION", default_value = "text")]
    pub key_format: Notation,

    /// How the value is written
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RowFormat>,

    /// Print key, value and the stamp of the commit that wrote it
    #[arg(long)]
    pub stamps: bool,

    /// Print key, value and when it expires, in UTC; `-` if it does not
    #[arg(long)]
    pub expiry: bool,

    /// As it was then, in a keyspace of structure history: a stamp, a time as in
    /// 2026-11-22T18:00:00Z, or as in 5 minutes ago
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub at: Option<PointInTime>,
}

/// What comes behind a value whose format was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing: it may be had back exactly.
    Nothing,
    /// A line end: the value of the next command comes behind it.
    LineEnd,
}

/// Prints the value.
pub fn run(globals: &Globals, args: &GetArgs) -> Outcome {
    let key = args.key_format.parse(&args.key).map_err(Failure::usage)?;
    let (_db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let found = match args.at {
        Some(at) => keyspace.get_entry_at(&key, at)?,
        None => keyspace.get_entry(&key)?,
    };
    let Some(entry) = found else {
        return Err(not_found(globals, args));
    };
    let behind = if globals.held.is_some() { Behind::LineEnd } else { Behind::Nothing };
    write_entry(&mut stdout(), &entry, args, (Surface::of_stdout(), behind))
}

/// What is said when the key is not there.
pub fn not_found(globals: &Globals, args: &GetArgs) -> Failure {
    let (key, keyspace) = (&args.key, &globals.keyspace);
    let what = match args.at {
        None => format!("{key:?} is not in keyspace {keyspace:?}"),
        Some(at) => {
            let then = millis_text(at.millis());
            let stamp = match at {
                PointInTime::Stamp(stamp) => format!("{stamp}, "),
                PointInTime::Time(_) => String::new(),
            };
            format!("{key:?} was not in keyspace {keyspace:?} as of {stamp}{then}")
        }
    };
    Failure::NotFound { what }
}

/// Writes the value, or the row that was asked for.
pub fn write_entry(
    out: &mut impl Write,
    entry: &Entry,
    args: &GetArgs,
    (surface, behind): (Surface, Behind),
) -> Outcome {
    let is_value_alone = !args.stamps && !args.expiry;
    let format = args.format.unwrap_or(match (surface, is_value_alone) {
        (Surface::Stream, true) => RowFormat::Raw,
        _ => RowFormat::Escaped,
    });
    match format {
        RowFormat::Raw if is_value_alone => {
            out.write_all(&entry.value)?;
            if args.format.is_none() && behind == Behind::LineEnd {
                out.write_all(b"\n")?;
            }
        }
        RowFormat::Escaped if is_value_alone => {
            write_escaped(out, &entry.value)?;
            out.write_all(b"\n")?;
        }
        RowFormat::Hex if is_value_alone => {
            write_hex(out, &entry.value)?;
            out.write_all(b"\n")?;
        }
        _ => {
            let columns = Columns { values: true, stamps: args.stamps, expiry: args.expiry };
            let mut rows = RowWriter::new(&mut *out, format, columns, surface);
            let stamp = args.stamps.then_some(entry.seqno);
            let expiry = args.expiry.then_some(entry.expiry);
            rows.write(Row { key: &entry.key, value: Some(&entry.value), stamp, expiry })?;
            rows.finish()?;
        }
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithedb::{Expiry, SeqNo, Slice};

    fn written(format: Option<RowFormat>, stamps: bool, surface: Surface) -> String {
        written_with(format, stamps, (surface, Behind::Nothing))
    }

    fn written_with(format: Option<RowFormat>, stamps: bool, place: (Surface, Behind)) -> String {
        let entry = Entry {
            key: Slice::from(&b"k"[..]),
            value: Slice::from(&b"a\nb\\"[..]),
            seqno: SeqNo::from_parts(9, 0),
            expiry: Expiry::Never,
        };
        let key_format = Notation::Text;
        let args = GetArgs { key: "k".into(), key_format, format, stamps, expiry: false, at: None };
        let mut out = Vec::new();
        write_entry(&mut out, &entry, &args, place).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_is_exact_in_a_pipe_and_escaped_on_a_terminal() {
        assert_eq!(written(None, false, Surface::Stream), "a\nb\\");
        assert_eq!(written(None, false, Surface::Terminal), "a\\x0ab\\\\\n");
        assert_eq!(written(Some(RowFormat::Raw), false, Surface::Terminal), "a\nb\\");
        assert_eq!(written(Some(RowFormat::Hex), false, Surface::Stream), "610a625c\n");
    }

    #[test]
    fn values_of_a_session_are_lines_unless_they_are_to_be_exact() {
        let place = (Surface::Stream, Behind::LineEnd);
        assert_eq!(written_with(None, false, place), "a\nb\\\n");
        assert_eq!(written_with(Some(RowFormat::Raw), false, place), "a\nb\\");
    }

    #[test]
    fn with_its_stamp_a_value_is_a_row() {
        assert_eq!(written(None, true, Surface::Stream), "k\ta\\x0ab\\\\\t9.0\n");
        let jsonl = written(Some(RowFormat::Jsonl), true, Surface::Stream);
        assert_eq!(jsonl, "{\"key\":\"k\",\"value\":\"a\\nb\\\\\",\"stamp\":\"9.0\"}\n");
    }
}
