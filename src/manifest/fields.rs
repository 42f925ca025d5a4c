//! Fields: the pieces of which the manifest's records are made, as varints and length-prefixed
//! strings, read with every bound checked.

use crate::base::varint;
use crate::manifest::edit_log::LogPosition;

/// Why bytes could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    /// Index of the byte in the record's payload.
    pub index: usize,
    pub what: String,
}

pub(super) type Decoded<T> = Result<T, Malformed>;

/// Reads fields one after the other.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, pos: 0 }
    }

    pub fn malformed<T>(&self, what: impl Into<String>) -> Decoded<T> {
        Err(Malformed { index: self.pos.min(self.bytes.len()), what: what.into() })
    }

    pub fn byte(&mut self, what: &str) -> Decoded<u8> {
        match self.bytes.get(self.pos) {
            Some(&byte) => {
                self.pos += 1;
                Ok(byte)
            }
            None => self.malformed(format!("the record ends in front of its {what}")),
        }
    }

    pub fn u64(&mut self, what: &str) -> Decoded<u64> {
        let start = self.pos;
        if let Some(value) = varint::take(self.bytes, &mut self.pos) {
            return Ok(value);
        }
        self.pos = start;
        self.malformed(format!("the {what} is no whole number"))
    }

    pub fn u32(&mut self, what: &str) -> Decoded<u32> {
        let value = self.u64(what)?;
        match u32::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => self.malformed(format!("the {what} {value} is too large")),
        }
    }

    /// A number of things of which each takes a byte at least: never more than bytes are left.
    pub fn count(&mut self, what: &str) -> Decoded<usize> {
        let count = self.u64(what)?;
        let left = self.bytes.len() - self.pos;
        match usize::try_from(count) {
            Ok(count) if count <= left => Ok(count),
            _ => self.malformed(format!("{what} {count} with {left} bytes left")),
        }
    }

    pub fn text(&mut self, what: &str) -> Decoded<&'a str> {
        let len = self.count(what)?;
        let bytes = &self.bytes[self.pos..self.pos + len];
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.pos += len;
                Ok(text)
            }
            Err(_) => self.malformed(format!("the {what} is not UTF-8")),
        }
    }

    pub fn position(&mut self) -> Decoded<LogPosition> {
        let number = self.u64("journal's number")?;
        let offset = self.u64("journal's offset")?;
        Ok(LogPosition { number, offset })
    }

    /// A value that may be absent.
    pub fn optional<T>(
        &mut self,
        what: &str,
        read: impl FnOnce(&mut Fields<'a>) -> Decoded<T>,
    ) -> Decoded<Option<T>> {
        match self.byte(what)? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => self.malformed(format!("the {what} is neither there nor absent: {other}")),
        }
    }

    /// Whether every byte was read.
    pub fn is_at_end(&self) -> bool {
        self.pos == self.bytes.len()
    }

    /// Every byte must have been read.
    pub fn finish(self) -> Decoded<()> {
        match self.bytes.len() - self.pos {
            0 => Ok(()),
            left => self.malformed(format!("{left} bytes behind the last field")),
        }
    }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    varint::put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn put_position(out: &mut Vec<u8>, position: LogPosition) {
    varint::put(out, position.number);
    varint::put(out, position.offset);
}

pub(super) fn put_optional<T>(
    out: &mut Vec<u8>,
    value: Option<T>,
    put: impl FnOnce(&mut Vec<u8>, T),
) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_record_is_refused_before_anything_is_allocated() {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, u64::MAX);
        bytes.push(1);
        assert!(Fields::new(&bytes).count("names").is_err());
        assert!(Fields::new(&bytes).text("name").is_err());
        assert_eq!(Fields::new(&[1, b'a']).text("name").unwrap(), "a");
        assert!(Fields::new(&[1, 0xFF]).text("name").is_err());
        assert_eq!(Fields::new(&[0]).finish().unwrap_err().index, 0);
    }
}
