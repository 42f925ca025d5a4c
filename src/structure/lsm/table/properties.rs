//! Properties: figures of a table, in the table. Reading does without them.
//!
//! Layout of the payload; all numbers are varints (`base::varint`), stamps as numbers:
//!
//! | part | fields |
//! |---|---|
//! | entries | entries; tombstones; entries with operands; bytes of keys; bytes of values |
//! | keys | 0, or 1 and the first and the last key, each with its length in front |
//! | stamps | the oldest; the newest (oldest above newest: there are no entries) |
//! | expiring | how many entries expire; if any: when the first does, when the last does - that |
//! | ranges | deleted ranges |
//! | blocks | data blocks; bytes of their payloads; bytes of their frames; partitions |
//! | options | codec (1 byte); block size; filter bits a key, length of prefixes (1 byte each) |
//! | values | value files; for each: number - that of the one before, bytes of the records |

use crate::base::{Codec, ExpirySpan, MOMENT_MAX, SeqNo, Slice, varint};
use crate::structure::ValueShare;

/// Figures of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Entries, tombstones included.
    pub entry_count: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Entries that hold operands.
    pub operands: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values, or of what is in their place.
    pub value_bytes: u64,
    /// The first and the last key.
    pub keys: Option<(Slice, Slice)>,
    /// The oldest stamp.
    pub oldest: SeqNo,
    /// The newest stamp.
    pub newest: SeqNo,
    /// How many entries expire, and when.
    pub expiring: Option<ExpirySpan>,
    /// Deleted ranges.
    pub deleted_ranges: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Bytes of data blocks before they were compressed.
    pub raw_bytes: u64,
    /// Bytes of data blocks in the file.
    pub block_bytes: u64,
    /// Partitions.
    pub partitions: u64,
    /// How data blocks are compressed.
    pub codec: Codec,
    /// Bytes of a data block that were aimed at.
    pub block_size: u64,
    /// Bits of the filter a key.
    pub filter_bits: u8,
    /// Bytes of the prefixes that the filter knows.
    pub filter_prefix_len: u8,
    /// What entries point to in value files.
    pub values: Vec<ValueShare>,
}

/// Of a payload, the number of entries and that of deleted ranges; `None` if it is none.
pub(in crate::structure::lsm) fn counts_in(bytes: &[u8]) -> Option<(u64, u32)> {
    let properties = Properties::decode(bytes)?;
    Some((properties.entry_count, u32::try_from(properties.deleted_ranges).ok()?))
}

impl Properties {
    /// The payload.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let counts = [self.entry_count, self.tombstones, self.operands];
        let bytes = [self.key_bytes, self.value_bytes];
        put_all(&mut out, &counts);
        put_all(&mut out, &bytes);
        varint::put(&mut out, u64::from(self.keys.is_some()));
        if let Some((first, last)) = &self.keys {
            put_bytes(&mut out, first);
            put_bytes(&mut out, last);
        }
        put_all(&mut out, &[self.oldest.as_u64(), self.newest.as_u64()]);
        varint::put(&mut out, self.expiring.map_or(0, |span| u64::from(span.count)));
        if let Some(span) = self.expiring {
            put_all(&mut out, &[span.first, span.last - span.first]);
        }
        varint::put(&mut out, self.deleted_ranges);
        put_all(&mut out, &[self.blocks, self.raw_bytes, self.block_bytes, self.partitions]);
        out.push(self.codec.to_u8());
        varint::put(&mut out, self.block_size);
        out.extend_from_slice(&[self.filter_bits, self.filter_prefix_len]);
        varint::put(&mut out, self.values.len() as u64);
        let mut before = 0;
        for share in &self.values {
            put_all(&mut out, &[share.file - before, share.bytes]);
            before = share.file;
        }
        out
    }

    /// What a payload says; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Properties> {
        let mut decoder = Decoder { bytes, position: 0 };
        let properties = Properties {
            entry_count: decoder.number()?,
            tombstones: decoder.number()?,
            operands: decoder.number()?,
            key_bytes: decoder.number()?,
            value_bytes: decoder.number()?,
            keys: decoder.keys()?,
            oldest: SeqNo::from_u64(decoder.number()?),
            newest: SeqNo::from_u64(decoder.number()?),
            expiring: decoder.span()?,
            deleted_ranges: decoder.number()?,
            blocks: decoder.number()?,
            raw_bytes: decoder.number()?,
            block_bytes: decoder.number()?,
            partitions: decoder.number()?,
            codec: Codec::from_u8(decoder.byte()?)?,
            block_size: decoder.number()?,
            filter_bits: decoder.byte()?,
            filter_prefix_len: decoder.byte()?,
            values: decoder.shares()?,
        };
        (decoder.position == bytes.len()).then_some(properties)
    }
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&number| varint::put(out, number));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Every method answers `None` when the bytes are not what they should be; no length is believed
/// beyond the bytes that are there.
struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Decoder<'_> {
    fn number(&mut self) -> Option<u64> {
        varint::take(self.bytes, &mut self.position)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn slice(&mut self) -> Option<Slice> {
        let len = varint::take_usize(self.bytes, &mut self.position)?;
        let bytes = self.bytes.get(self.position..)?.get(..len)?;
        self.position += len;
        Some(Slice::from(bytes))
    }

    fn keys(&mut self) -> Option<Option<(Slice, Slice)>> {
        match self.number()? {
            0 => Some(None),
            1 => Some(Some((self.slice()?, self.slice()?))),
            _ => None,
        }
    }

    fn span(&mut self) -> Option<Option<ExpirySpan>> {
        let count = u32::try_from(self.number()?).ok()?;
        if count == 0 {
            return Some(None);
        }
        let first = self.number()?;
        let last = first.checked_add(self.number()?).filter(|last| *last <= MOMENT_MAX)?;
        Some(Some(ExpirySpan { count, first, last }))
    }

    fn shares(&mut self) -> Option<Vec<ValueShare>> {
        let count = self.number()?;
        let mut shares: Vec<ValueShare> = Vec::new();
        for _ in 0..count {
            let before = shares.last().map_or(0, |share| share.file);
            // Rising: a file of number 0 there is not.
            let step = self.number()?;
            let file = before.checked_add(step).filter(|_| step > 0)?;
            shares.push(ValueShare { file, bytes: self.number()? });
        }
        Some(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_round_trip_and_no_cut_of_them_is_taken_for_some() {
        let full = Properties {
            entry_count: 1000,
            tombstones: 10,
            operands: 3,
            key_bytes: 20_000,
            value_bytes: 1 << 40,
            keys: Some((Slice::default(), Slice::from(&[b'k'; 300][..]))),
            oldest: SeqNo::from_parts(1_700_000_000_000, 1),
            newest: SeqNo::from_parts(1_700_000_000_900, 0),
            expiring: Some(ExpirySpan { count: 2, first: 10, last: 500 }),
            deleted_ranges: 4,
            blocks: 77,
            raw_bytes: 300_000,
            block_bytes: 200_000,
            partitions: 2,
            codec: Codec::Lz4,
            block_size: 4096,
            filter_bits: 10,
            filter_prefix_len: 4,
            values: vec![ValueShare { file: 3, bytes: 70 }, ValueShare { file: 9, bytes: 1 }],
        };
        let none = Properties { keys: None, expiring: None, values: Vec::new(), ..full.clone() };
        for properties in [full, none] {
            let bytes = properties.encode();
            assert_eq!(Properties::decode(&bytes), Some(properties));
            for cut in 0..bytes.len() {
                assert_eq!(Properties::decode(&bytes[..cut]), None, "cut at {cut}");
            }
            assert_eq!(Properties::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
