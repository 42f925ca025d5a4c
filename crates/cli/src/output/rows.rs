//! Rows of keys and values in any [`RowFormat`], as they come, without allocating per row.
//!
//! A table is the exception: it is laid out page by page.

use std::io::{self, Write};

use lithedb::{Expiry, SeqNo};

use super::{RowFormat, Surface, Table, write_json_bytes};
use crate::notation::{time_text, write_escaped, write_hex};

/// Rows that are laid out together in a table.
const TABLE_PAGE_ROWS: usize = 1000;

/// Which columns a row has beside its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Show values.
    pub values: bool,
    /// Show stamps.
    pub stamps: bool,
    /// Show when rows expire.
    pub expiry: bool,
}

/// One row; what the columns do not show is left away.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, if shown.
    pub value: Option<&'a [u8]>,
    /// The stamp of the commit, if shown.
    pub stamp: Option<SeqNo>,
    /// When it expires, if shown.
    pub expiry: Option<Expiry>,
}

/// Writes rows. Call [`RowWriter::finish`] at the end.
pub struct RowWriter<W: Write> {
    out: W,
    format: RowFormat,
    columns: Columns,
    surface: Surface,
    written: u64,
    /// Rows of the page that is being filled, when the format is a table.
    page: Vec<Vec<String>>,
    /// Kept for its capacity.
    scratch: Vec<u8>,
}

impl<W: Write> RowWriter<W> {
    /// A writer of rows that have `columns`.
    pub fn new(out: W, format: RowFormat, columns: Columns, surface: Surface) -> RowWriter<W> {
        let (page, scratch) = (Vec::new(), Vec::new());
        RowWriter { out, format, columns, surface, written: 0, page, scratch }
    }

    /// Writes one row.
    pub fn write(&mut self, row: Row<'_>) -> io::Result<()> {
        match self.format {
            RowFormat::Table => self.collect_table_row(row)?,
            RowFormat::Json => {
                self.out.write_all(if self.written == 0 { b"[\n" } else { b",\n" })?;
                write_json_row(&mut self.out, row)?;
            }
            RowFormat::Jsonl => {
                write_json_row(&mut self.out, row)?;
                self.out.write_all(b"\n")?;
            }
            RowFormat::Csv => {
                if self.written == 0 {
                    self.write_csv_titles()?;
                }
                self.write_csv_row(row)?;
            }
            RowFormat::Hex => write_tabbed(&mut self.out, row, write_hex)?,
            RowFormat::Escaped => write_tabbed(&mut self.out, row, write_escaped)?,
            RowFormat::Raw => write_tabbed(&mut self.out, row, W::write_all)?,
        }
        self.written += 1;
        Ok(())
    }

    /// Ends the document and flushes it; the number of rows.
    pub fn finish(mut self) -> io::Result<u64> {
        match self.format {
            RowFormat::Table => self.write_table_page()?,
            RowFormat::Json if self.written == 0 => self.out.write_all(b"[]\n")?,
            RowFormat::Json => self.out.write_all(b"\n]\n")?,
            RowFormat::Csv if self.written == 0 => self.write_csv_titles()?,
            _ => {}
        }
        self.out.flush()?;
        Ok(self.written)
    }

    fn collect_table_row(&mut self, row: Row<'_>) -> io::Result<()> {
        let mut cells = vec![escaped(row.key)?];
        if let Some(value) = row.value {
            cells.push(escaped(value)?);
        }
        cells.extend(row.stamp.map(|stamp| stamp.to_string()));
        cells.extend(row.expiry.map(expiry_text));
        self.page.push(cells);
        if self.page.len() == TABLE_PAGE_ROWS { self.write_table_page() } else { Ok(()) }
    }

    fn write_table_page(&mut self) -> io::Result<()> {
        let is_first = self.written <= TABLE_PAGE_ROWS as u64;
        let mut table = if is_first { Table::new(&self.titles()) } else { Table::bare() };
        if self.page.is_empty() {
            return Ok(());
        }
        for cells in self.page.drain(..) {
            table.row(cells);
        }
        write!(self.out, "{table}")
    }

    fn titles(&self) -> Vec<&'static str> {
        let Columns { values, stamps, expiry } = self.columns;
        let shown = [
            Some("key"),
            values.then_some("value"),
            stamps.then_some("stamp"),
            expiry.then_some("expires"),
        ];
        shown.into_iter().flatten().collect()
    }

    fn write_csv_titles(&mut self) -> io::Result<()> {
        writeln!(self.out, "{}", self.titles().join(","))
    }

    fn write_csv_row(&mut self, row: Row<'_>) -> io::Result<()> {
        self.write_csv_field(row.key)?;
        if let Some(value) = row.value {
            self.out.write_all(b",")?;
            self.write_csv_field(value)?;
        }
        if let Some(stamp) = row.stamp {
            write!(self.out, ",{stamp}")?;
        }
        if let Some(expiry) = row.expiry {
            write!(self.out, ",{}", expiry_text(expiry))?;
        }
        self.out.write_all(b"\n")
    }

    /// RFC 4180: quoted when need be, quotes doubled; on a terminal escaped as well (O3).
    fn write_csv_field(&mut self, field: &[u8]) -> io::Result<()> {
        let mut field = field;
        if self.surface == Surface::Terminal {
            self.scratch.clear();
            write_escaped(&mut self.scratch, field)?;
            field = &self.scratch;
        }
        let is_special = |byte: &u8| matches!(byte, b'"' | b',' | b'\n' | b'\r');
        // An empty field is quoted too: a line that holds only it would not count as a record.
        if !field.is_empty() && !field.iter().any(is_special) {
            return self.out.write_all(field);
        }
        self.out.write_all(b"\"")?;
        for (index, piece) in field.split(|&byte| byte == b'"').enumerate() {
            if index > 0 {
                self.out.write_all(b"\"\"")?;
            }
            self.out.write_all(piece)?;
        }
        self.out.write_all(b"\"")
    }
}

/// When that is, in RFC 3339; `-` for never.
fn expiry_text(expiry: Expiry) -> String {
    expiry.time().map_or_else(|| "-".to_owned(), time_text)
}

fn escaped(bytes: &[u8]) -> io::Result<String> {
    let mut text = Vec::new();
    write_escaped(&mut text, bytes)?;
    Ok(String::from_utf8(text).expect("escaped text is UTF-8"))
}

fn write_json_row(out: &mut impl Write, row: Row<'_>) -> io::Result<()> {
    out.write_all(b"{\"key\":")?;
    write_json_bytes(out, row.key)?;
    if let Some(value) = row.value {
        out.write_all(b",\"value\":")?;
        write_json_bytes(out, value)?;
    }
    if let Some(stamp) = row.stamp {
        write!(out, ",\"stamp\":\"{stamp}\"")?;
    }
    match row.expiry {
        None => {}
        Some(Expiry::Never) => out.write_all(b",\"expires\":null")?,
        Some(expiry) => write!(out, ",\"expires\":\"{}\"", expiry_text(expiry))?,
    }
    out.write_all(b"}")
}

fn write_tabbed<W: Write>(
    out: &mut W,
    row: Row<'_>,
    write_bytes: impl Fn(&mut W, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    write_bytes(out, row.key)?;
    if let Some(value) = row.value {
        out.write_all(b"\t")?;
        write_bytes(out, value)?;
    }
    if let Some(stamp) = row.stamp {
        write!(out, "\t{stamp}")?;
    }
    if let Some(expiry) = row.expiry {
        write!(out, "\t{}", expiry_text(expiry))?;
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Columns = Columns { values: true, stamps: false, expiry: false };
    const ROWS: [(&[u8], &[u8]); 4] = [
        (b"", b""),
        (b"a,b", b"say \"x\"\n"),
        (b"\xFF\x00", b"\ttab"),
        ("ü".as_bytes(), b"\x1b[m"),
    ];

    fn written(format: RowFormat, surface: Surface) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rows = RowWriter::new(&mut out, format, BOTH, surface);
        for (key, value) in ROWS {
            rows.write(Row { key, value: Some(value), stamp: None, expiry: None }).unwrap();
        }
        assert_eq!(rows.finish().unwrap(), 4);
        out
    }

    #[test]
    fn raw_is_the_exact_bytes() {
        let expected = b"\t\na,b\tsay \"x\"\n\n\xFF\x00\t\ttab\n\xC3\xBC\t\x1b[m\n";
        assert_eq!(written(RowFormat::Raw, Surface::Terminal), expected);
    }

    #[test]
    fn hex_and_escaped_put_one_row_on_one_line() {
        let hex = written(RowFormat::Hex, Surface::Stream);
        assert_eq!(hex.split(|&b| b == b'\n').nth(2), Some(&b"ff00\t09746162"[..]));
        let escaped = written(RowFormat::Escaped, Surface::Stream);
        assert_eq!(escaped.iter().filter(|&&byte| byte == b'\n').count(), 4);
        assert_eq!(escaped.split(|&b| b == b'\n').nth(2), Some(&b"\\xff\\x00\t\\x09tab"[..]));
    }

    #[test]
    fn csv_reads_back_by_a_csv_parser() {
        let text = written(RowFormat::Csv, Surface::Stream);
        let mut reader = csv::Reader::from_reader(text.as_slice());
        assert_eq!(reader.byte_headers().unwrap(), vec!["key", "value"]);
        let records: Vec<csv::ByteRecord> = reader.byte_records().map(Result::unwrap).collect();
        assert_eq!(records.len(), ROWS.len());
        for (record, (key, value)) in records.iter().zip(ROWS) {
            assert_eq!((&record[0], &record[1]), (key, value));
        }
    }

    #[test]
    fn json_and_jsonl_hold_the_same_rows() {
        let json: Vec<serde_json::Value> =
            serde_json::from_slice(&written(RowFormat::Json, Surface::Stream)).unwrap();
        let jsonl = written(RowFormat::Jsonl, Surface::Stream);
        let lines: Vec<serde_json::Value> = String::from_utf8(jsonl)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(json, lines);
        assert_eq!(lines[2]["key"]["hex"], "ff00");
        assert_eq!(lines[1]["value"], "say \"x\"\n");
    }

    #[test]
    fn only_raw_steers_a_terminal() {
        for format in [
            RowFormat::Table,
            RowFormat::Json,
            RowFormat::Jsonl,
            RowFormat::Csv,
            RowFormat::Hex,
            RowFormat::Escaped,
        ] {
            let text = written(format, Surface::Terminal);
            assert!(!text.contains(&0x1b) && !text.contains(&0), "{format:?}");
        }
    }

    #[test]
    fn no_rows_are_still_a_document() {
        let written = |format| {
            let mut out = Vec::new();
            RowWriter::new(&mut out, format, BOTH, Surface::Stream).finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(RowFormat::Json), "[]\n");
        assert_eq!(written(RowFormat::Csv), "key,value\n");
        assert_eq!(written(RowFormat::Jsonl), "");
        assert_eq!(written(RowFormat::Table), "");
    }

    #[test]
    fn stamps_and_expiry_come_last() {
        let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1500);
        let written = |format, expiry| {
            let mut out = Vec::new();
            let columns = Columns { values: false, stamps: true, expiry: true };
            let mut rows = RowWriter::new(&mut out, format, columns, Surface::Stream);
            let (stamp, expiry) = (Some(SeqNo::from_parts(5, 1)), Some(expiry));
            rows.write(Row { key: b"k", value: None, stamp, expiry }).unwrap();
            rows.finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        let (escaped, never) = (RowFormat::Escaped, Expiry::Never);
        assert_eq!(written(escaped, never), "k\t5.1\t-\n");
        assert_eq!(written(escaped, at.into()), "k\t5.1\t1970-01-01T00:00:01.500Z\n");
        assert_eq!(written(RowFormat::Csv, never), "key,stamp,expires\nk,5.1,-\n");
        let jsonl = written(RowFormat::Jsonl, never);
        assert_eq!(jsonl, "{\"key\":\"k\",\"stamp\":\"5.1\",\"expires\":null}\n");
        let jsonl = written(RowFormat::Jsonl, at.into());
        assert!(jsonl.contains(",\"expires\":\"1970-01-01T00:00:01.500Z\"}"), "{jsonl}");
    }
}
