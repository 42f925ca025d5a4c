//! A batch of entries, made before the clock starts.
//!
//! All bytes lie in one buffer, so that handing a batch to an engine costs what the engine makes of
//! it.

use crate::data::{KeyShape, append_value};

/// Keys and values, in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    /// Where each key and each value ends.
    ends: Vec<(usize, usize)>,
}

impl Records {
    /// Entries `indexes` in version `version`.
    pub fn generate(
        shape: KeyShape,
        indexes: impl IntoIterator<Item = u64>,
        value_len: usize,
        version: u64,
    ) -> Records {
        let mut records = Records::default();
        records.refill(shape, indexes, value_len, version);
        records
    }

    /// Replaces the content; keeps the memory.
    pub fn refill(
        &mut self,
        shape: KeyShape,
        indexes: impl IntoIterator<Item = u64>,
        value_len: usize,
        version: u64,
    ) {
        self.clear();
        for index in indexes {
            shape.append(index, &mut self.bytes);
            let key_end = self.bytes.len();
            append_value(index, version, value_len, &mut self.bytes);
            self.ends.push((key_end, self.bytes.len()));
        }
    }

    /// Appends one entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Forgets all entries; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of keys and values.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Key and value of each entry.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, value_end)| {
            let entry = (&self.bytes[start..key_end], &self.bytes[key_end..value_end]);
            start = value_end;
            entry
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_order_with_their_bytes() {
        let mut records = Records::generate(KeyShape::Random21, [4, 2], 21, 3);
        assert_eq!((records.len(), records.size()), (2, 84));
        let keys: Vec<_> =
            records.iter().map(|(key, _)| KeyShape::Random21.index_of(key)).collect();
        assert_eq!(keys, [Some(4), Some(2)]);
        records.clear();
        records.push(b"", b"value");
        records.push(b"key", b"");
        let entries: Vec<_> = records.iter().collect();
        assert_eq!(entries, [(&b""[..], &b"value"[..]), (b"key", b"")]);
        assert!(!records.is_empty());
    }
}
