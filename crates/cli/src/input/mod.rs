//! Input: a file or standard input as records of key and value. Knows nothing of the store.
//!
//! Invariants
//! - P1  Input is bytes, never assumed to be UTF-8; a key or value is exactly what the format says
//!   it is, to the byte.
//! - P2  A last record without a line end counts.
//! - P3  A record that cannot be read ends the input with its number; nothing is skipped.

mod csv_records;
mod fields;
mod line_records;
mod lines;
mod ndjson_records;
mod quotes;
mod source;
mod tsv_records;

pub use fields::{KeyField, ValueField};
pub use lines::Lines;
pub use source::{Source, open_source, stdin, take_stdin};

use crate::failure::Failure;
use csv_records::CsvRecords;
use line_records::LineRecords;
use ndjson_records::NdjsonRecords;
use tsv_records::TsvRecords;

/// What records look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFormat {
    /// Every line is a key; the value is empty unless something else is asked for.
    Lines,
    /// Comma-separated with quotes (RFC 4180); the first record names the fields.
    Csv,
    /// Fields between tabs, no quotes; the first line names the fields.
    Tsv,
    /// One JSON object per line.
    Ndjson,
}

/// Whether the first record of CSV or TSV names the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// It does.
    Present,
    /// It is data; fields are known by number.
    Absent,
}

/// A key and its value, borrowed from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// Reads records one after the other.
pub trait Records {
    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<Record<'_>>, Failure>;

    /// Bytes of input behind the records returned so far.
    fn bytes_read(&self) -> u64;
}

/// How records are taken from the input.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// What the input looks like.
    pub format: InputFormat,
    /// Which field is the key; the default is the first, or `key` in NDJSON.
    pub key: Option<KeyField>,
    /// What the value is; the default is nothing for lines and the whole record for the rest.
    pub value: Option<ValueField>,
    /// Whether the fields are named.
    pub header: Header,
}

/// A reader of the records of `source`.
pub fn records(source: Source, options: &RecordOptions) -> Result<Box<dyn Records>, Failure> {
    let whole = options.value.clone().unwrap_or(ValueField::Line);
    Ok(match options.format {
        InputFormat::Lines => {
            if options.key.is_some() {
                return Err(Failure::usage("--key needs fields: the key of a line is the line"));
            }
            let value = options.value.clone().unwrap_or(ValueField::Nothing);
            Box::new(LineRecords::new(Lines::new(source), &value)?)
        }
        InputFormat::Csv => {
            Box::new(CsvRecords::new(source, options.header, options.key.as_ref(), &whole)?)
        }
        InputFormat::Tsv => {
            let lines = Lines::new(source);
            Box::new(TsvRecords::new(lines, options.header, options.key.as_ref(), &whole)?)
        }
        InputFormat::Ndjson => {
            Box::new(NdjsonRecords::new(Lines::new(source), options.key.as_ref(), whole))
        }
    })
}

#[cfg(test)]
mod tests;
