//! Comma-separated records with quotes (RFC 4180), as bytes.

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, WriterBuilder};

use super::fields::{
    KeyColumn, KeyField, ValueColumn, ValueField, missing_column, number_bytes, resolve_columns,
};
use super::quotes::Watched;
use super::source::Source;
use super::{Header, Record, Records};
use crate::failure::Failure;

/// Bytes that the reader asks for in one read.
const CHUNK_SIZE: usize = 1 << 20;

/// Every record is a list of fields between commas.
pub struct CsvRecords {
    reader: Reader<Watched>,
    record: ByteRecord,
    key: KeyColumn,
    value: ValueColumn,
    count: u64,
    /// The record number or the record as a line; kept for its capacity.
    scratch: Vec<u8>,
}

impl CsvRecords {
    /// The records of `source`; reads the header.
    pub fn new(
        source: Source,
        header: Header,
        key: Option<&KeyField>,
        value: &ValueField,
    ) -> Result<CsvRecords, Failure> {
        let mut reader = ReaderBuilder::new()
            .has_headers(header == Header::Present)
            .buffer_capacity(CHUNK_SIZE)
            .from_reader(Watched::new(source));
        let names: Option<Vec<Vec<u8>>> = match header {
            Header::Absent => None,
            Header::Present => {
                let names =
                    reader.byte_headers().map(|names| names.iter().map(<[u8]>::to_vec).collect());
                let names = names.map_err(|error| failure(error, reader.get_ref().source()))?;
                check_end(reader.get_ref(), 1)?;
                Some(names)
            }
        };
        let (key, value) = resolve_columns(names.as_deref(), key, value)?;
        let (record, scratch) = (ByteRecord::new(), Vec::new());
        Ok(CsvRecords { reader, record, key, value, count: 0, scratch })
    }
}

impl Records for CsvRecords {
    fn next(&mut self) -> Result<Option<Record<'_>>, Failure> {
        let read = self.reader.read_byte_record(&mut self.record);
        // What is wrong with the quotes is why a record has another number of fields.
        let line = self.record.position().map_or(1, csv::Position::line);
        check_end(self.reader.get_ref(), line)?;
        if !read.map_err(|error| failure(error, self.reader.get_ref().source()))? {
            return Ok(None);
        }
        self.count += 1;
        let (record, number) = (&self.record, self.count);
        let column =
            |index| record.get(index).ok_or_else(|| missing_column(number, index, record.len()));
        let key = column(self.key.0)?;
        let value = match self.value {
            ValueColumn::Nothing => &[][..],
            ValueColumn::Number => number_bytes(number, &mut self.scratch),
            ValueColumn::Line => line_of(record, &mut self.scratch),
            ValueColumn::Column(index) => column(index)?,
        };
        Ok(Some(Record { key, value }))
    }

    fn bytes_read(&self) -> u64 {
        self.reader.position().byte()
    }
}

/// The record as one CSV line without line end; quoted only where it has to be.
fn line_of<'a>(record: &ByteRecord, line: &'a mut Vec<u8>) -> &'a [u8] {
    line.clear();
    let mut writer =
        WriterBuilder::new().buffer_capacity(record.as_slice().len() + 64).from_writer(&mut *line);
    writer.write_byte_record(record).expect("a vector takes any bytes");
    drop(writer);
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Refuses a record that has all of the rest of the input, for the want of a quote.
fn check_end(input: &Watched, line: u64) -> Result<(), Failure> {
    match input.ends_within_quotes() {
        true => Err(Failure::usage(format!(
            "bad CSV: a quote of the record on line {line} is not closed up to the end of the input"
        ))),
        false => Ok(()),
    }
}

fn failure(error: csv::Error, source: &Source) -> Failure {
    let text = error.to_string();
    match error.into_kind() {
        ErrorKind::Io(error) => source.failure(error),
        ErrorKind::UnequalLengths { pos: Some(position), expected_len, len } => {
            let fields = if len == 1 { "field" } else { "fields" };
            let (line, expected) = (position.line(), format!("the first one has {expected_len}"));
            Failure::usage(format!(
                "bad CSV: the record on line {line} has {len} {fields}, {expected}"
            ))
        }
        _ => Failure::usage(format!("bad CSV: {text}")),
    }
}
