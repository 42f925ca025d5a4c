//! What value files look like. `docs/format/values.md` has the tables.
//!
//! File header (40 bytes, little-endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `LITHEVAL` |
//! | 8 | 4 | format version |
//! | 12 | 4 | 0 |
//! | 16 | 8 | database |
//! | 24 | 8 | number of the file |
//! | 32 | 8 | checksum of bytes 0..32, with tag 0 and offset 0 |
//!
//! Records follow, each at a multiple of 8:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | checksum of bytes 8..48: file tag, the record's offset |
//! | 8 | 8 | length of the value |
//! | 16 | 16 | the first bytes of the value's BLAKE3 hash |
//! | 32 | 8 | checksum of the value if it is one chunk, else of the table; its own offset |
//! | 40 | 4 | keyspace that it was written to |
//! | 44 | 4 | 0 |
//! | 48 | length | value |
//! | | 8 a chunk | table: checksum of each chunk and its offset; for more than one chunk |
//! | | | zeros up to a multiple of 8 |

use std::path::Path;

use crate::base::{Error, Result, ValueHash, checksum, checksum_seeded};

/// Bytes in front of a file's first record.
pub(super) const FILE_HEADER_LEN: u64 = 40;
const MAGIC: [u8; 8] = *b"LITHEVAL";
const VERSION: u32 = 1;
const FILE_HEADER_SUMMED: usize = 32;

/// Bytes in front of a record's value.
pub(super) const RECORD_HEADER_LEN: usize = 48;
const SUM_LEN: usize = size_of::<u64>();
/// Records begin at multiples of this from the header's end.
pub(super) const RECORD_ALIGNMENT: u64 = 8;
/// What of a value is verified by itself, so that a part of a long one can be read.
pub(super) const CHUNK_LEN: usize = 64 << 10;

/// Seeds the checksums of one file.
pub(super) fn file_tag(database: u64, number: u64) -> u64 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&database.to_le_bytes());
    bytes[16..].copy_from_slice(&number.to_le_bytes());
    checksum_seeded(&bytes, 0)
}

pub(super) fn encode_file_header(database: u64, number: u64) -> [u8; FILE_HEADER_LEN as usize] {
    let mut bytes = [0; FILE_HEADER_LEN as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&database.to_le_bytes());
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(&bytes[..FILE_HEADER_SUMMED], 0, 0);
    bytes[FILE_HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks what was found at the start of file `number`.
pub(super) fn check_file_header(
    found: &[u8; FILE_HEADER_LEN as usize],
    database: u64,
    number: u64,
    path: &Path,
) -> Result<()> {
    if *found == encode_file_header(database, number) {
        return Ok(());
    }
    let version = u32::from_le_bytes(found[8..12].try_into().expect("four bytes"));
    let sum = u64::from_le_bytes(found[FILE_HEADER_SUMMED..].try_into().expect("eight bytes"));
    let is_whole = sum == checksum(&found[..FILE_HEADER_SUMMED], 0, 0);
    if is_whole && found[..8] == MAGIC && version != VERSION {
        return Err(Error::FormatVersion { file: path.to_owned(), found: version, known: VERSION });
    }
    let what = match is_whole {
        true => "the header is that of another database or value file",
        false => "the header does not verify",
    };
    Err(Error::corruption(path, 0, what))
}

/// Database and number that a header names, if it verifies.
pub(super) fn decode_file_header(header: &[u8]) -> Option<(u64, u64)> {
    let (database, number) = (u64_at(header, 16), u64_at(header, 24));
    (*header == encode_file_header(database, number)).then_some((database, number))
}

/// Where the parts of a record lie, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLayout {
    pub value_end: u64,
    pub table_end: u64,
    pub end: u64,
}

impl RecordLayout {
    /// Of a value of `len` bytes; `None` for a length that no file has room for.
    pub(super) fn of(len: u64) -> Option<RecordLayout> {
        let value_end = len.checked_add(RECORD_HEADER_LEN as u64)?;
        let table_len = match len.div_ceil(CHUNK_LEN as u64) {
            0 | 1 => 0,
            chunk_count => chunk_count * SUM_LEN as u64,
        };
        let table_end = value_end.checked_add(table_len)?;
        let end = table_end.checked_next_multiple_of(RECORD_ALIGNMENT)?;
        Some(RecordLayout { value_end, table_end, end })
    }
}

/// Bytes of the record of a value of `len` bytes.
pub fn record_len(len: u64) -> u64 {
    RecordLayout::of(len).map_or(u64::MAX, |layout| layout.end)
}

/// What stands in front of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub len: u64,
    pub hash: ValueHash,
    /// Of the value, or of the table.
    pub sum: u64,
    pub keyspace: u32,
}

impl RecordHeader {
    pub(super) fn encode(&self, tag: u64, offset: u64) -> [u8; RECORD_HEADER_LEN] {
        let mut bytes = [0; RECORD_HEADER_LEN];
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.hash);
        bytes[32..40].copy_from_slice(&self.sum.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.keyspace.to_le_bytes());
        let sum = checksum(&bytes[8..], tag, offset);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` when the bytes do not verify at this place.
    pub(super) fn decode(
        bytes: &[u8; RECORD_HEADER_LEN],
        tag: u64,
        offset: u64,
    ) -> Option<RecordHeader> {
        let number = |at: usize| u64_at(bytes, at);
        if number(0) != checksum(&bytes[8..], tag, offset) || bytes[44..] != [0; 4] {
            return None;
        }
        Some(RecordHeader {
            len: number(8),
            hash: bytes[16..32].try_into().expect("sixteen bytes"),
            sum: number(32),
            keyspace: u32::from_le_bytes(bytes[40..44].try_into().expect("four bytes")),
        })
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + SUM_LEN].try_into().expect("eight bytes"))
}

/// The hash of a value that is there whole.
pub fn hash_value(value: &[u8]) -> ValueHash {
    shortened(&blake3::hash(value))
}

pub(super) fn shortened(hash: &blake3::Hash) -> ValueHash {
    *hash.as_bytes().first_chunk().expect("a hash is longer")
}

/// Fills in the checksums of a whole record that is to lie at `offset`: header, table.
pub(super) fn seal_record(record: &mut [u8], tag: u64, offset: u64, header: RecordHeader) {
    let layout = RecordLayout::of(header.len).expect("the record is in memory");
    let (front, table) = record.split_at_mut(layout.value_end as usize);
    let table = &mut table[..(layout.table_end - layout.value_end) as usize];
    let (head, value) = front.split_at_mut(RECORD_HEADER_LEN);
    let value_offset = offset + RECORD_HEADER_LEN as u64;
    for (number, chunk) in value.chunks(CHUNK_LEN).enumerate().take(table.len() / SUM_LEN) {
        let sum = checksum(chunk, tag, chunk_offset(value_offset, number));
        table[number * SUM_LEN..][..SUM_LEN].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = sum_of(value, table, tag, value_offset);
    head.copy_from_slice(&RecordHeader { sum, ..header }.encode(tag, offset));
}

/// The checksum that the header has of value or table.
pub(super) fn sum_of(value: &[u8], table: &[u8], tag: u64, value_offset: u64) -> u64 {
    match table.is_empty() {
        true => checksum(value, tag, value_offset),
        false => checksum(table, tag, value_offset + value.len() as u64),
    }
}

/// Where chunk `number` of a value lies that starts at `value_offset`.
pub(super) fn chunk_offset(value_offset: u64, number: usize) -> u64 {
    value_offset + (number * CHUNK_LEN) as u64
}

/// The first chunk whose checksum is not that in the table.
pub(super) fn first_bad_chunk(
    value: &[u8],
    table: &[u8],
    tag: u64,
    value_offset: u64,
) -> Option<usize> {
    let mut chunks = value.chunks(CHUNK_LEN).enumerate().take(table.len() / SUM_LEN);
    let is_bad = |number: usize, chunk: &[u8]| {
        checksum(chunk, tag, chunk_offset(value_offset, number)) != u64_at(table, number * SUM_LEN)
    };
    chunks.find(|(number, chunk)| is_bad(*number, chunk)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_has_a_table_and_a_short_one_none() {
        let chunk = CHUNK_LEN as u64;
        for (len, table) in [(0, 0), (1, 0), (chunk, 0), (chunk + 1, 16), (3 * chunk, 24)] {
            let layout = RecordLayout::of(len).unwrap();
            assert_eq!(layout.value_end, 48 + len);
            assert_eq!(layout.table_end - layout.value_end, table);
            assert!(layout.end.is_multiple_of(8) && layout.end - layout.table_end < 8);
        }
        assert_eq!(RecordLayout::of(u64::MAX - 20), None);
    }

    #[test]
    fn a_record_header_verifies_at_its_place_only() {
        let header = RecordHeader { len: 9, hash: [3; 16], sum: 77, keyspace: 5 };
        let bytes = header.encode(1, 40);
        assert_eq!(RecordHeader::decode(&bytes, 1, 40), Some(header));
        assert_eq!(RecordHeader::decode(&bytes, 2, 40), None);
        assert_eq!(RecordHeader::decode(&bytes, 1, 48), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&flipped, 1, 40), None, "bit {bit}");
        }
    }

    #[test]
    fn a_file_header_names_database_and_file() {
        let path = Path::new("/values/val-00000003");
        let bytes = encode_file_header(7, 3);
        check_file_header(&bytes, 7, 3, path).unwrap();
        assert!(check_file_header(&bytes, 8, 3, path).unwrap_err().is_corruption());
        assert!(check_file_header(&bytes, 7, 4, path).unwrap_err().is_corruption());
        let mut newer = bytes;
        newer[8] = 2;
        let sum = checksum(&newer[..FILE_HEADER_SUMMED], 0, 0);
        newer[FILE_HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
        let error = check_file_header(&newer, 7, 3, path).unwrap_err();
        assert!(matches!(error, Error::FormatVersion { found: 2, known: 1, .. }));
    }
}
