//! `lithe diff`: what two databases have differently.
//!
//! Both are walked side by side, so any number of entries takes little memory.

use std::cmp::Ordering;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lithedb::{Cursor, Keyspace, OpenExisting};

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{open, open_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::{count_text, write_escaped};
use crate::output::{Notices, stdout, write_json_bytes};

const EXAMPLES: &str = "\
Examples:
  lithe --db a.lithe diff b.lithe
  lithe --db a.lithe --keyspace users diff b.lithe --other-keyspace people --first
  lithe --db a.lithe diff b.lithe --prefix user: --format jsonl > changes.jsonl

A line with `-` is what --db has, one with `+` what the other has; a key with two values has one of
each. The exit code is 0 if there is no difference, and 1 if there is one.";

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

    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// End at the first difference
    #[arg(long)]
    pub first: bool,

    /// Compare the keys only
    #[arg(long)]
    pub keys_only: bool,

    /// How differences are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: DiffFormat,
}

/// How differences are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// `-` or `+`, key, value, between tabs; text with \xNN and \\
    Escaped,
    /// One object per line: `key`, and `left` and `right` as far as they have it
    Jsonl,
}

/// How often each kind of difference was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Differences {
    only_left: u64,
    only_right: u64,
    changed: u64,
}

/// A key that is not the same on both sides.
#[derive(Clone, Copy, Debug)]
struct Difference<'a> {
    key: &'a [u8],
    left: Option<&'a [u8]>,
    right: Option<&'a [u8]>,
}

/// Prints the differences.
pub fn run(globals: &Globals, notices: Notices, args: &DiffArgs) -> Outcome {
    let range = args.range.key_range()?;
    let (_left_db, left) = open_keyspace(globals)?;
    let right_db = open(globals, &args.other, OpenExisting::Only)?;
    let right = right_db.keyspace(args.other_keyspace.as_deref().unwrap_or(&globals.keyspace))?;
    let Some(range) = range else { return Ok(()) };
    let cursor_of = |keyspace: &Keyspace| keyspace.cursor(range.clone());
    let mut out = stdout();
    let mut walk = Walk { left: cursor_of(&left), right: cursor_of(&right), args };
    let found = walk.run(|difference| write_difference(&mut out, args.format, difference))?;
    out.flush()?;
    let count = found.total();
    if count == 0 {
        return Ok(());
    }
    notices.say(found.summary());
    Err(Failure::Differs { is_all: !args.first, count })
}

/// Two cursors, side by side.
struct Walk<'a> {
    left: Cursor,
    right: Cursor,
    args: &'a DiffArgs,
}

impl Walk<'_> {
    fn run(
        &mut self,
        mut each: impl FnMut(Difference<'_>) -> io::Result<()>,
    ) -> Result<Differences, Failure> {
        let mut found = Differences::default();
        self.left.seek_first()?;
        self.right.seek_first()?;
        while let Some(order) = self.order() {
            let is_left = order != Ordering::Greater;
            let is_right = order != Ordering::Less;
            let difference = Difference {
                key: if is_left { self.left.key() } else { self.right.key() },
                left: is_left.then(|| self.left.value()).transpose()?,
                right: is_right.then(|| self.right.value()).transpose()?,
            };
            if !self.is_same(difference) {
                found.count(difference);
                each(difference)?;
                if self.args.first {
                    break;
                }
            }
            if is_left {
                self.left.next()?;
            }
            if is_right {
                self.right.next()?;
            }
        }
        Ok(found)
    }

    /// Which side has the next key; `None` when both are at their end.
    fn order(&self) -> Option<Ordering> {
        match (self.left.valid(), self.right.valid()) {
            (true, true) => Some(self.left.key().cmp(self.right.key())),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }

    fn is_same(&self, difference: Difference<'_>) -> bool {
        match (difference.left, difference.right) {
            (Some(left), Some(right)) => self.args.keys_only || left == right,
            _ => false,
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

    fn total(self) -> u64 {
        self.only_left + self.only_right + self.changed
    }

    /// `2 keys are only here, 1 only in the other, 0 have other values`.
    fn summary(self) -> String {
        let Differences { only_left, only_right, changed } = self;
        format!(
            "{} keys are only here, {} only in the other, {} have other values",
            count_text(only_left),
            count_text(only_right),
            count_text(changed)
        )
    }
}

fn write_difference(
    out: &mut impl Write,
    format: DiffFormat,
    difference: Difference<'_>,
) -> io::Result<()> {
    let Difference { key, left, right } = difference;
    let sides = [("-", "left", left), ("+", "right", right)];
    match format {
        DiffFormat::Escaped => {
            for (sign, _, value) in sides {
                let Some(value) = value else { continue };
                write!(out, "{sign}\t")?;
                write_escaped(out, key)?;
                out.write_all(b"\t")?;
                write_escaped(out, value)?;
                out.write_all(b"\n")?;
            }
        }
        DiffFormat::Jsonl => {
            out.write_all(b"{\"key\":")?;
            write_json_bytes(out, key)?;
            for (_, name, value) in sides {
                let Some(value) = value else { continue };
                write!(out, ",\"{name}\":")?;
                write_json_bytes(out, value)?;
            }
            out.write_all(b"}\n")?;
        }
    }
    Ok(())
}
