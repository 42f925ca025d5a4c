//! Lines as records: the line is the key.

use super::fields::{ValueField, number_bytes};
use super::lines::Lines;
use super::{Record, Records};
use crate::failure::Failure;

/// Every line is a key.
pub struct LineRecords {
    lines: Lines,
    value: LineValue,
    /// Kept for its capacity.
    number: Vec<u8>,
}

#[derive(Clone, Copy)]
enum LineValue {
    Nothing,
    Number,
    Line,
}

impl LineRecords {
    /// The records of `lines`.
    pub fn new(lines: Lines, value: &ValueField) -> Result<LineRecords, Failure> {
        let value = match value {
            ValueField::Nothing => LineValue::Nothing,
            ValueField::Number => LineValue::Number,
            ValueField::Line => LineValue::Line,
            ValueField::Field(field) => {
                let what = "a line has no fields: --value is none, line-number or line, not";
                return Err(Failure::usage(format!("{what} {field:?}")));
            }
        };
        Ok(LineRecords { lines, value, number: Vec::new() })
    }
}

impl Records for LineRecords {
    fn next(&mut self) -> Result<Option<Record<'_>>, Failure> {
        let number = self.lines.number() + 1;
        let Some(key) = self.lines.next()? else {
            return Ok(None);
        };
        let value = match self.value {
            LineValue::Nothing => &[][..],
            LineValue::Number => number_bytes(number, &mut self.number),
            LineValue::Line => key,
        };
        Ok(Some(Record { key, value }))
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}
