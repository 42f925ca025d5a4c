//! JSON objects, one per line.
//!
//! A field's bytes: of a string, its text in UTF-8; of `{"hex": ".."}`, the bytes that the digits
//! stand for; of anything else, its JSON text as it stands (so numbers keep all their digits).

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::fields::{KeyField, ValueField, number_bytes};
use super::lines::Lines;
use super::{Record, Records};
use crate::failure::Failure;
use crate::notation::parse_hex;

/// The key when `--key` does not say: what `scan --format jsonl` writes.
const KEY_FIELD_DEFAULT: &str = "key";

type Object<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// Every line is an object; blank lines are passed over.
pub struct NdjsonRecords {
    lines: Lines,
    key_field: String,
    value_field: ValueField,
    count: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl NdjsonRecords {
    /// The records of `lines`.
    pub fn new(lines: Lines, key: Option<&KeyField>, value: ValueField) -> NdjsonRecords {
        let key_field = key.map_or(KEY_FIELD_DEFAULT, |KeyField(name)| name).to_owned();
        let (key, value_bytes) = (Vec::new(), Vec::new());
        NdjsonRecords { lines, key_field, value_field: value, count: 0, key, value: value_bytes }
    }
}

impl Records for NdjsonRecords {
    fn next(&mut self) -> Result<Option<Record<'_>>, Failure> {
        loop {
            let number = self.lines.number() + 1;
            let Some(line) = self.lines.next()? else {
                return Ok(None);
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            let failed = |what: String| Failure::usage(format!("line {number}: {what}"));
            let object: Object<'_> =
                serde_json::from_slice(line).map_err(|error| failed(error.to_string()))?;
            self.count += 1;
            self.key = field_bytes(&object, &self.key_field).map_err(failed)?;
            match &self.value_field {
                ValueField::Nothing => self.value.clear(),
                ValueField::Number => {
                    number_bytes(self.count, &mut self.value);
                }
                ValueField::Line => {
                    self.value.clear();
                    self.value.extend_from_slice(line.trim_ascii());
                }
                ValueField::Field(name) => {
                    self.value = field_bytes(&object, name).map_err(failed)?;
                }
            }
            break;
        }
        Ok(Some(Record { key: &self.key, value: &self.value }))
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}

fn field_bytes(object: &Object<'_>, name: &str) -> Result<Vec<u8>, String> {
    let text = object.get(name).ok_or_else(|| format!("there is no field {name:?}"))?.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok(text.into_bytes())
        }
        Some(b'{') => match hex_object(text) {
            Some(digits) => parse_hex(digits.as_bytes()),
            None => Ok(text.as_bytes().to_vec()),
        },
        _ => Ok(text.as_bytes().to_vec()),
    }
}

/// The digits of `{"hex": ".."}`, when `text` is an object of exactly this shape.
fn hex_object(text: &str) -> Option<String> {
    let mut object: HashMap<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    match (object.len(), object.remove("hex")) {
        (1, Some(serde_json::Value::String(digits))) => Some(digits),
        _ => None,
    }
}
