//! Tab-separated records: a field is the bytes between two tabs, without quotes or escapes.

use super::fields::{
    KeyColumn, KeyField, ValueColumn, ValueField, missing_column, number_bytes,
    records_before_data, resolve_columns,
};
use super::lines::Lines;
use super::{Header, Record, Records};
use crate::failure::Failure;

/// Every line is a record of fields between tabs.
pub struct TsvRecords {
    lines: Lines,
    key: KeyColumn,
    value: ValueColumn,
    header_count: u64,
    /// Kept for its capacity.
    number: Vec<u8>,
}

impl TsvRecords {
    /// The records of `lines`; reads the header.
    pub fn new(
        mut lines: Lines,
        header: Header,
        key: Option<&KeyField>,
        value: &ValueField,
    ) -> Result<TsvRecords, Failure> {
        let names: Option<Vec<Vec<u8>>> = match header {
            Header::Absent => None,
            Header::Present => {
                let line = lines.next()?.unwrap_or_default();
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                Some(line.split(|&byte| byte == b'\t').map(<[u8]>::to_vec).collect())
            }
        };
        let (key, value) = resolve_columns(names.as_deref(), key, value)?;
        let header_count = records_before_data(header);
        Ok(TsvRecords { lines, key, value, header_count, number: Vec::new() })
    }
}

impl Records for TsvRecords {
    fn next(&mut self) -> Result<Option<Record<'_>>, Failure> {
        let number = self.lines.number() + 1 - self.header_count;
        let Some(line) = self.lines.next()? else {
            return Ok(None);
        };
        let column = |index| {
            let fields = || line.split(|&byte| byte == b'\t');
            fields().nth(index).ok_or_else(|| missing_column(number, index, fields().count()))
        };
        let key = column(self.key.0)?;
        let value = match self.value {
            ValueColumn::Nothing => &[][..],
            ValueColumn::Number => number_bytes(number, &mut self.number),
            ValueColumn::Line => line,
            ValueColumn::Column(index) => column(index)?,
        };
        Ok(Some(Record { key, value }))
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}
