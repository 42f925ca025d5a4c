//! Which part of a record is the key and which the value: what `--key` and `--value` say.

use std::convert::Infallible;
use std::str::FromStr;

use super::Header;
use crate::failure::Failure;

/// `--key FIELD`: the name of a field, or its number counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField(pub String);

/// `--value ..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueField {
    /// The value is empty.
    Nothing,
    /// The number of the record, counted from 1, in decimal digits.
    Number,
    /// The whole record.
    Line,
    /// A field, by name or number.
    Field(String),
}

impl FromStr for KeyField {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<KeyField, Infallible> {
        Ok(KeyField(text.to_owned()))
    }
}

impl FromStr for ValueField {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<ValueField, Infallible> {
        Ok(match text {
            "none" => ValueField::Nothing,
            "line-number" => ValueField::Number,
            "line" => ValueField::Line,
            _ => ValueField::Field(text.strip_prefix("field:").unwrap_or(text).to_owned()),
        })
    }
}

/// Where in a record of columns the key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyColumn(pub usize);

/// What the value of a record of columns is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueColumn {
    /// Nothing.
    Nothing,
    /// The number of the record.
    Number,
    /// The whole record.
    Line,
    /// This column, counted from 0.
    Column(usize),
}

/// Finds the columns. `names` are those of the header, if there is one; without `key` the first
/// column is the key.
pub fn resolve_columns(
    names: Option<&[Vec<u8>]>,
    key: Option<&KeyField>,
    value: &ValueField,
) -> Result<(KeyColumn, ValueColumn), Failure> {
    let key = key.map_or(Ok(0), |KeyField(field)| column_index(names, field))?;
    let value = match value {
        ValueField::Nothing => ValueColumn::Nothing,
        ValueField::Number => ValueColumn::Number,
        ValueField::Line => ValueColumn::Line,
        ValueField::Field(field) => ValueColumn::Column(column_index(names, field)?),
    };
    Ok((KeyColumn(key), value))
}

/// A name of the header goes before a number.
fn column_index(names: Option<&[Vec<u8>]>, field: &str) -> Result<usize, Failure> {
    let named = names.and_then(|names| names.iter().position(|name| name == field.as_bytes()));
    let numbered = || field.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    named.or_else(numbered).ok_or_else(|| {
        let known = names.map_or_else(
            || "without a header fields are numbers from 1".to_owned(),
            |names| format!("the header has {}", list_names(names)),
        );
        Failure::usage(format!("there is no field {field:?}: {known}"))
    })
}

fn list_names(names: &[Vec<u8>]) -> String {
    let names: Vec<String> =
        names.iter().map(|name| format!("{:?}", String::from_utf8_lossy(name))).collect();
    names.join(", ")
}

/// What a record says when it has no such column.
pub fn missing_column(record: u64, column: usize, found: usize) -> Failure {
    Failure::usage(format!(
        "record {record}: field {} is missing, there are {found}",
        column.saturating_add(1)
    ))
}

/// Number of the first record of data: a header is not counted.
pub fn records_before_data(header: Header) -> u64 {
    match header {
        Header::Present => 1,
        Header::Absent => 0,
    }
}

/// A record number as bytes, written into `text`.
pub fn number_bytes(number: u64, text: &mut Vec<u8>) -> &[u8] {
    use std::io::Write;
    text.clear();
    write!(text, "{number}").expect("a vector takes any bytes");
    text
}
