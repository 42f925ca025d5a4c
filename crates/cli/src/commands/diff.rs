//! `lithe diff`: what two databases have differently.
//!
//! Both are walked side by side, so any number of entries takes little memory. Large values are
//! compared by length and hash, which entries have, and read only to be written.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lithedb::{Cursor, Db, KeyRange, Keyspace};

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{Purpose, is_encrypted, open_to_read, plain_builder};
use crate::failure::{Failure, Outcome};
use crate::keys::{Ask, KeyOptions};
use crate::notation::{count_text, time_text, write_escaped, write_hex};
use crate::output::{Notices, stdout, write_json_bytes};

/// Values from this size on are compared by hash: a value in the value log is not read for that.
const HASHED_FROM: u64 = 4 << 10;
/// Values over this size are written piece by piece.
const WHOLE_MAX: u64 = 1 << 20;
const PIECE_SIZE: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  lithe --db a.lithe diff b.lithe
  lithe --db a.lithe diff b.lithe --all --hashes
  lithe --db a.lithe --keyspace users diff b.lithe --other-keyspace people --first
  lithe --db a.lithe diff b.lithe --prefix user: --format jsonl > changes.jsonl

A line with `-` is what --db has, one with `+` what the other has; a key with two values has one of
each. In jsonl a difference is one line. Where they expire at different times, each line ends with
when, or `-`; in jsonl, `left_expires` and `right_expires` say it, or null. With --all the keyspace
stands in front of the key, and a keyspace that only one of them has is a line without a key, in
front of its keys. Values of 4 KiB or more are taken for the same when their lengths and hashes are.
The exit code is 0 if there is no difference, 1 if there is one, and larger if something went
wrong.";

/// Options of `lithe diff`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// The directory of the other database
    #[arg(value_name = "OTHER")]
    pub other: PathBuf,

    /// Keyspace of the other database [default: that of --keyspace]
    #[arg(long, value_name = "NAME")]
    pub other_keyspace: Option<String>,

    /// File with the key of the other database, if it has another than that of --db
    #[arg(long, value_name = "FILE")]
    pub other_key_file: Option<PathBuf>,

    /// File whose first line is the passphrase of the other database
    #[arg(long, value_name = "FILE")]
    pub other_passphrase_file: Option<PathBuf>,

    /// All keyspaces of both, by name
    #[arg(long, conflicts_with = "other_keyspace")]
    pub all: bool,

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// End at the first difference
    #[arg(long)]
    pub first: bool,

    /// Compare the keys only
    #[arg(long, conflicts_with = "hashes")]
    pub keys_only: bool,

    /// Take entries for the same that expire at different times
    #[arg(long)]
    pub no_expiry: bool,

    /// Write length and hash (16 bytes of BLAKE3) of values instead of them
    #[arg(long)]
    pub hashes: bool,

    /// How differences are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: DiffFormat,
}

/// How differences are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// `-` or `+`, key, value, between tabs; text with \xNN and \\
    Escaped,
    /// One object per line: `key`, and `left` and `right` as far as they have it; `left_expires`
    /// and `right_expires` where these differ; a value over 1 MiB is {"hex": ".."} in any case
    Jsonl,
}

/// How often each kind of difference was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Differences {
    only_left: u64,
    only_right: u64,
    changed: u64,
    keyspaces: u64,
}

/// A key that is not the same on both sides: the sides that have it are on it.
#[derive(Clone, Copy)]
struct Difference<'a> {
    key: &'a [u8],
    left: Option<&'a Cursor>,
    right: Option<&'a Cursor>,
}

/// Opens the other database, which may be encrypted or not, whatever that of --db is.
fn open_other(globals: &Globals, args: &DiffArgs) -> Result<Db, Failure> {
    let (file, passphrase_file) =
        (args.other_key_file.as_ref(), args.other_passphrase_file.as_ref());
    let named = KeyOptions { file, passphrase_file, ..KeyOptions::default() }.source()?;
    let encryption = match named {
        Some(source) => Some(source.read("the other database", Ask::Once)?),
        None if is_encrypted(&args.other)? => globals.encryption(Ask::Once)?,
        None => None,
    };
    let builder = plain_builder(globals, Purpose::Read);
    let builder = match encryption {
        Some(encryption) => builder.encryption(encryption),
        None => builder,
    };
    Ok(builder.open(&args.other)?)
}

/// Prints the differences.
pub fn run(globals: &Globals, notices: Notices, args: &DiffArgs) -> Outcome {
    let range = args.range.key_range()?;
    let left = open_to_read(globals)?;
    let right = open_other(globals, args)?;
    let mut report = Report { out: stdout(), args, keyspace: None, found: Differences::default() };
    match (range, args.all) {
        (None, _) => {}
        (Some(range), true) => compare_all(&left, &right, &range, &mut report)?,
        (Some(range), false) => {
            let other = args.other_keyspace.as_deref().unwrap_or(&globals.keyspace);
            let (left, right) = (left.keyspace(&globals.keyspace)?, right.keyspace(other)?);
            compare(Some(&left), Some(&right), &range, &mut report)?;
        }
    }
    report.out.flush()?;
    let found = report.found;
    if found == Differences::default() {
        return Ok(());
    }
    notices.say(found.summary());
    let (keys, keyspaces) = (found.keys(), found.keyspaces);
    Err(Failure::Differs { is_all: !args.first, keys, keyspaces })
}

/// Compares the keyspaces of the same names.
fn compare_all<W: Write>(
    left: &Db,
    right: &Db,
    range: &KeyRange,
    report: &mut Report<'_, W>,
) -> Outcome {
    let names = |db: &Db| -> BTreeSet<String> {
        db.keyspaces().into_iter().map(|info| info.name).collect()
    };
    let (left_names, right_names) = (names(left), names(right));
    for name in left_names.union(&right_names) {
        let keyspace_of = |db: &Db, names: &BTreeSet<String>| {
            names.contains(name).then(|| db.keyspace(name)).transpose()
        };
        let left = keyspace_of(left, &left_names)?;
        let right = keyspace_of(right, &right_names)?;
        report.keyspace = Some(name.clone());
        if left.is_none() || right.is_none() {
            report.one_sided_keyspace(left.is_some())?;
        }
        if report.is_done() {
            return Ok(());
        }
        compare(left.as_ref(), right.as_ref(), range, report)?;
    }
    Ok(())
}

/// Compares two keyspaces; one that is not there has no keys.
fn compare<W: Write>(
    left: Option<&Keyspace>,
    right: Option<&Keyspace>,
    range: &KeyRange,
    report: &mut Report<'_, W>,
) -> Outcome {
    if report.is_done() {
        return Ok(());
    }
    let cursor_of = |keyspace: &Keyspace| -> Result<Cursor, Failure> {
        let mut cursor = keyspace.cursor(range.clone());
        cursor.seek_first()?;
        Ok(cursor)
    };
    let left = left.map(cursor_of).transpose()?;
    let right = right.map(cursor_of).transpose()?;
    Walk { left, right }.run(report)
}

/// Two cursors, side by side.
struct Walk {
    left: Option<Cursor>,
    right: Option<Cursor>,
}

impl Walk {
    fn run<W: Write>(&mut self, report: &mut Report<'_, W>) -> Outcome {
        while let Some(order) = self.order() {
            let left = self.left.as_ref().filter(|_| order != Ordering::Greater);
            let right = self.right.as_ref().filter(|_| order != Ordering::Less);
            let Some(key) = left.or(right).map(Cursor::key) else { break };
            let difference = Difference { key, left, right };
            if !difference.is_none(report.args)? {
                report.difference(difference)?;
                if report.is_done() {
                    break;
                }
            }
            let (moves_left, moves_right) = (left.is_some(), right.is_some());
            if let Some(left) = self.left.as_mut().filter(|_| moves_left) {
                left.next()?;
            }
            if let Some(right) = self.right.as_mut().filter(|_| moves_right) {
                right.next()?;
            }
        }
        Ok(())
    }

    /// Which side has the next key; `None` when both are at their end.
    fn order(&self) -> Option<Ordering> {
        let on_entry = |side: &Option<Cursor>| side.as_ref().is_some_and(Cursor::valid);
        match (on_entry(&self.left), on_entry(&self.right)) {
            (true, true) => {
                Some(self.left.as_ref().map(Cursor::key).cmp(&self.right.as_ref().map(Cursor::key)))
            }
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

impl Difference<'_> {
    /// Whether both sides have the key, and it expires at different times.
    fn is_of_expiry(&self, args: &DiffArgs) -> bool {
        let (Some(left), Some(right)) = (self.left, self.right) else { return false };
        !args.keys_only && !args.no_expiry && left.expires_at() != right.expires_at()
    }

    /// Whether it is none: both sides have the key and, unless only keys count, the same value
    /// until the same time.
    fn is_none(&self, args: &DiffArgs) -> Result<bool, Failure> {
        let (Some(left), Some(right)) = (self.left, self.right) else { return Ok(false) };
        if args.keys_only {
            return Ok(true);
        }
        if self.is_of_expiry(args) {
            return Ok(false);
        }
        let len = left.value_len()?;
        if len != right.value_len()? {
            return Ok(false);
        }
        Ok(match len >= HASHED_FROM {
            true => left.value_hash()? == right.value_hash()?,
            false => left.value()? == right.value()?,
        })
    }
}

/// What is written, and counted.
struct Report<'a, W: Write> {
    out: W,
    args: &'a DiffArgs,
    /// The keyspace, where it is written with each key.
    keyspace: Option<String>,
    found: Differences,
}

impl<W: Write> Report<'_, W> {
    fn is_done(&self) -> bool {
        self.args.first && self.found != Differences::default()
    }

    fn one_sided_keyspace(&mut self, is_left: bool) -> io::Result<()> {
        self.found.keyspaces += 1;
        let name = self.keyspace.clone().unwrap_or_default();
        match self.args.format {
            DiffFormat::Escaped => {
                self.out.write_all(if is_left { b"-\t" } else { b"+\t" })?;
                write_escaped(&mut self.out, name.as_bytes())?;
                self.out.write_all(b"\n")
            }
            DiffFormat::Jsonl => {
                self.out.write_all(b"{\"keyspace\":")?;
                write_json_bytes(&mut self.out, name.as_bytes())?;
                let side = if is_left { "left" } else { "right" };
                writeln!(self.out, ",\"only\":\"{side}\"}}")
            }
        }
    }

    fn difference(&mut self, difference: Difference<'_>) -> Outcome {
        self.found.count(difference);
        let is_of_expiry = difference.is_of_expiry(self.args);
        let sides = [("-", "left", difference.left), ("+", "right", difference.right)];
        let sides = sides.into_iter().filter_map(|(sign, name, side)| Some((sign, name, side?)));
        match self.args.format {
            DiffFormat::Escaped => {
                for (sign, _, cursor) in sides {
                    write!(self.out, "{sign}\t")?;
                    if let Some(keyspace) = &self.keyspace {
                        write_escaped(&mut self.out, keyspace.as_bytes())?;
                        self.out.write_all(b"\t")?;
                    }
                    write_escaped(&mut self.out, difference.key)?;
                    if !self.args.keys_only {
                        self.out.write_all(b"\t")?;
                        self.escaped_value(cursor)?;
                    }
                    if is_of_expiry {
                        let expiry = cursor.expires_at().map(time_text);
                        write!(self.out, "\t{}", expiry.as_deref().unwrap_or("-"))?;
                    }
                    self.out.write_all(b"\n")?;
                }
            }
            DiffFormat::Jsonl => {
                self.out.write_all(b"{")?;
                if let Some(keyspace) = &self.keyspace {
                    self.out.write_all(b"\"keyspace\":")?;
                    write_json_bytes(&mut self.out, keyspace.as_bytes())?;
                    self.out.write_all(b",")?;
                }
                self.out.write_all(b"\"key\":")?;
                write_json_bytes(&mut self.out, difference.key)?;
                for (_, name, cursor) in sides {
                    write!(self.out, ",\"{name}\":")?;
                    self.json_value(cursor)?;
                    if is_of_expiry {
                        let expiry = cursor.expires_at().map(|at| format!("\"{}\"", time_text(at)));
                        let expiry = expiry.as_deref().unwrap_or("null");
                        write!(self.out, ",\"{name}_expires\":{expiry}")?;
                    }
                }
                self.out.write_all(b"}\n")?;
            }
        }
        Ok(())
    }

    fn escaped_value(&mut self, cursor: &Cursor) -> Outcome {
        if self.args.hashes {
            write!(self.out, "{}\t", cursor.value_len()?)?;
            return Ok(write_hex(&mut self.out, &cursor.value_hash()?)?);
        }
        match cursor.value_len()? > WHOLE_MAX {
            true => self.pieces(cursor, write_escaped),
            false => Ok(write_escaped(&mut self.out, cursor.value()?)?),
        }
    }

    fn json_value(&mut self, cursor: &Cursor) -> Outcome {
        if self.args.keys_only {
            return Ok(self.out.write_all(b"true")?);
        }
        if self.args.hashes {
            write!(self.out, "{{\"len\":{},\"hash\":\"", cursor.value_len()?)?;
            write_hex(&mut self.out, &cursor.value_hash()?)?;
            return Ok(self.out.write_all(b"\"}")?);
        }
        if cursor.value_len()? <= WHOLE_MAX {
            return Ok(write_json_bytes(&mut self.out, cursor.value()?)?);
        }
        self.out.write_all(b"{\"hex\":\"")?;
        self.pieces(cursor, write_hex)?;
        Ok(self.out.write_all(b"\"}")?)
    }

    /// A value, read and written piece by piece.
    fn pieces(
        &mut self,
        cursor: &Cursor,
        write: impl Fn(&mut W, &[u8]) -> io::Result<()>,
    ) -> Outcome {
        let mut value = cursor.value_reader()?;
        let mut piece = vec![0; PIECE_SIZE];
        loop {
            match value.read(&mut piece).map_err(Failure::of_value)? {
                0 => return Ok(()),
                len => write(&mut self.out, &piece[..len])?,
            }
        }
    }
}

impl Differences {
    fn count(&mut self, difference: Difference<'_>) {
        match (difference.left, difference.right) {
            (Some(_), Some(_)) => self.changed += 1,
            (Some(_), None) => self.only_left += 1,
            _ => self.only_right += 1,
        }
    }

    fn keys(self) -> u64 {
        self.only_left + self.only_right + self.changed
    }

    /// `2 keys are only here, 1 only in the other, 0 have other values or expiry`.
    fn summary(self) -> String {
        let Differences { only_left, only_right, changed, .. } = self;
        format!(
            "{} keys are only here, {} only in the other, {} have other values or expiry",
            count_text(only_left),
            count_text(only_right),
            count_text(changed)
        )
    }
}
