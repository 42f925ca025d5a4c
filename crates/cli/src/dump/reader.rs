//! Reading a dump.

use std::str;
use std::time::{Duration, SystemTime};

use lithedb::{Expiry, KeyspaceOptions, VALUE_LEN_MAX};

use super::{Content, MAGIC, STAMPS, Stamps, VERSION, options};
use crate::failure::Failure;
use crate::input::{Lines, Source};
use crate::notation::parse_escaped;

/// One thing that a dump says.
#[derive(Debug, PartialEq)]
pub enum Item {
    /// What follows belongs to this keyspace.
    Keyspace(String, KeyspaceOptions),
    /// A key and its value, and when it expires.
    Pair(Vec<u8>, Vec<u8>, Expiry),
    /// A key and the length of its value, which follows in pieces, and when it expires.
    Begin(Vec<u8>, u64, Expiry),
    /// A piece of the value that was begun.
    Piece(Vec<u8>),
}

/// Reads a dump with values, strictly (F3).
pub struct DumpReader {
    lines: Lines,
    stamps: Stamps,
    /// Pairs so far.
    count: u64,
    /// Bytes that are missing of the value that was begun.
    missing: u64,
    has_keyspace: bool,
    /// When the next pair expires.
    until: Option<u64>,
    is_at_end: bool,
}

/// What is wrong with a line.
type Wrong = String;

impl DumpReader {
    /// A reader of `source`; reads the first line.
    pub fn new(source: Source) -> Result<DumpReader, Failure> {
        let mut lines = Lines::new(source);
        let first = lines.next()?.unwrap_or_default();
        let stamps = first_line(first).map_err(|what| on_line(1, &what))?;
        let (count, missing, has_keyspace, is_at_end) = (0, 0, false, false);
        let until = None;
        Ok(DumpReader { lines, stamps, count, missing, has_keyspace, until, is_at_end })
    }

    /// The next thing; `None` at the end, which must say that it is the end.
    pub fn next(&mut self) -> Result<Option<Item>, Failure> {
        let number = self.lines.number() + 1;
        let Some(line) = self.lines.next()? else {
            return match self.is_at_end {
                true => Ok(None),
                false => Err(on_line(number, "there is no line, and no `end`: it was cut short")),
            };
        };
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let state = State {
            stamps: self.stamps,
            count: self.count,
            missing: self.missing,
            has_keyspace: self.has_keyspace,
            until: self.until,
        };
        if self.is_at_end {
            return Err(on_line(number, "there is something behind the line `end`"));
        }
        let said = state.parse(&fields).map_err(|what| on_line(number, &what))?;
        let item = match said {
            Said::Until(millis) => {
                self.until = Some(millis);
                return self.next();
            }
            Said::Item(item) => Some(item),
            Said::End => None,
        };
        match &item {
            None => {
                self.is_at_end = true;
                return self.next();
            }
            Some(Item::Keyspace(..)) => self.has_keyspace = true,
            Some(Item::Pair(..)) => {
                self.count += 1;
                self.until = None;
            }
            Some(Item::Begin(_, len, _)) => {
                self.count += 1;
                self.until = None;
                self.missing = *len;
            }
            Some(Item::Piece(bytes)) => self.missing -= bytes.len() as u64,
        }
        Ok(item)
    }

    /// Number of the line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }

    /// Bytes of input behind what was returned so far.
    pub fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}

/// What is wrong, and on which line.
pub fn on_line(number: u64, what: &str) -> Failure {
    Failure::usage(format!("line {number}: {what}"))
}

fn first_line(line: &[u8]) -> Result<Stamps, Wrong> {
    let line = str::from_utf8(line).unwrap_or_default();
    let fields: Vec<&str> = line.split('\t').collect();
    let (version, content, more) = match fields.as_slice() {
        [MAGIC, version, content, more @ ..] => (*version, *content, more),
        _ => return Err(format!("no dump: one begins with {MAGIC:?} and a version")),
    };
    if version != VERSION {
        return Err(format!("a dump of version {version:?}, this program knows {VERSION}"));
    }
    match Content::ALL.into_iter().find(|known| known.name() == content) {
        Some(Content::Values) => {}
        Some(_) => return Err(format!("a dump of {content} has no values: it cannot be loaded")),
        None => return Err(format!("a dump of {content:?}, which this program does not know")),
    }
    match more {
        [] => Ok(Stamps::Absent),
        [STAMPS] => Ok(Stamps::Shown),
        _ => Err(format!("{more:?} is not known here")),
    }
}

/// What a line says.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Said {
    Item(Item),
    /// The next pair expires then.
    Until(u64),
    End,
}

/// What must be known to understand a line.
struct State {
    stamps: Stamps,
    count: u64,
    missing: u64,
    has_keyspace: bool,
    until: Option<u64>,
}

impl State {
    /// What a line says.
    fn parse(&self, fields: &[&[u8]]) -> Result<Said, Wrong> {
        let verb = str::from_utf8(fields[0]).unwrap_or("?");
        if self.missing > 0 && verb != "more" {
            return Err(format!("{} bytes of the value are missing", self.missing));
        }
        let is_pair = matches!(verb, "put" | "begin");
        if self.until.is_some() && !is_pair {
            return Err("no pair behind the line `until`".to_owned());
        }
        let needs_keyspace = is_pair || verb == "until";
        if needs_keyspace && !self.has_keyspace {
            return Err("a pair in front of the first keyspace".to_owned());
        }
        match (verb, &fields[1..]) {
            ("keyspace", [name, options @ ..]) => {
                let name = String::from_utf8(parse_escaped(name)?)
                    .map_err(|_| "a name that is no UTF-8".to_owned())?;
                let text: Result<Vec<&str>, _> =
                    options.iter().map(|field| str::from_utf8(field)).collect();
                let text = text.map_err(|_| "an option that is no UTF-8".to_owned())?;
                Ok(Said::Item(Item::Keyspace(name, options::parse(text.into_iter())?)))
            }
            ("put", rest) => {
                let [key, value] = self.fields(verb, rest)?;
                let (key, value) = (parse_escaped(key)?, parse_escaped(value)?);
                Ok(Said::Item(Item::Pair(key, value, self.expiry())))
            }
            ("begin", rest) => {
                let [key, len] = self.fields(verb, rest)?;
                let len = number(len)?;
                if len > VALUE_LEN_MAX as u64 {
                    return Err(format!("a value of {len} bytes: {VALUE_LEN_MAX} are the most"));
                }
                Ok(Said::Item(Item::Begin(parse_escaped(key)?, len, self.expiry())))
            }
            ("more", [bytes]) => self.piece(parse_escaped(bytes)?).map(Said::Item),
            ("until", [millis]) => number(millis).map(Said::Until),
            ("end", [count]) => match number(count)? {
                count if count == self.count => Ok(Said::End),
                count => Err(format!("the end of {count} pairs, and there were {}", self.count)),
            },
            ("keyspace" | "more" | "until" | "end", _) => {
                Err(format!("wrong number of fields for {verb}"))
            }
            _ => Err("no line of a dump".to_owned()),
        }
    }

    /// When the pair at hand expires.
    fn expiry(&self) -> Expiry {
        let at = |millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
        self.until.and_then(at).into()
    }

    fn piece(&self, bytes: Vec<u8>) -> Result<Item, Wrong> {
        match bytes.len() as u64 {
            0 => Err("an empty piece of a value".to_owned()),
            len if len > self.missing => {
                Err(format!("{len} bytes of a value, of which {} are missing", self.missing))
            }
            _ => Ok(Item::Piece(bytes)),
        }
    }

    /// The two fields of a pair; a stamp behind them is looked at and left out.
    fn fields<'a>(&self, verb: &str, fields: &[&'a [u8]]) -> Result<[&'a [u8]; 2], Wrong> {
        match (fields, self.stamps) {
            (&[key, value], Stamps::Absent) => Ok([key, value]),
            (&[key, value, stamp], Stamps::Shown) => {
                let text = str::from_utf8(stamp).unwrap_or_default();
                let parts = text.split_once('.').map(|(millis, counter)| {
                    millis.parse::<u64>().is_ok() && counter.parse::<u16>().is_ok()
                });
                match parts {
                    Some(true) => Ok([key, value]),
                    _ => Err(format!("no stamp: {text:?}")),
                }
            }
            _ => Err(format!("{} fields behind {verb}", fields.len())),
        }
    }
}

fn number(field: &[u8]) -> Result<u64, Wrong> {
    let text = str::from_utf8(field).unwrap_or_default();
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| format!("no number: {text:?}")),
        false => Err(format!("no number: {text:?}")),
    }
}
