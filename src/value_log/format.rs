//! What value files look like. `docs/format/values.md` has the tables.
//!
//! File header (40 bytes, little-endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `LITHEVAL` |
//! | 8 | 2 | format version: 1; 2 of a file whose values are sealed |
//! | 10 | 2 | number of the data key that they are sealed with; 0: they are not |
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
//!
//! In a file that has a key, the value is encrypted, in place of the hash is a tag, and the table
//! has a nonce and for each chunk a tag as well: see `sealed.rs`.

use std::path::Path;

use super::sealed::{SealedRecord, TABLE_HEAD_LEN, TABLE_ITEM_LEN};
use crate::base::format::{FILE_VERSION_MAX, version_found};
use crate::base::{Error, Result, ValueHash, checksum, checksum_seeded};
use crate::seal::{FileIdentity, FileKey, key_in_version, version_field};

/// Bytes in front of a file's first record.
pub(super) const FILE_HEADER_LEN: u64 = 40;
const MAGIC: [u8; 8] = *b"LITHEVAL";
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

/// Which file it is, for its key.
pub(super) fn identity(database: u64, number: u64) -> FileIdentity {
    FileIdentity { kind: *b"val ", database, owner: 0, number }
}

/// The header; `key` is the number of the data key that values are sealed with, or 0.
pub(super) fn encode_file_header(
    database: u64,
    number: u64,
    key: u16,
) -> [u8; FILE_HEADER_LEN as usize] {
    let mut bytes = [0; FILE_HEADER_LEN as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version_field(key).to_le_bytes());
    bytes[16..24].copy_from_slice(&database.to_le_bytes());
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(&bytes[..FILE_HEADER_SUMMED], 0, 0);
    bytes[FILE_HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks what was found at the start of file `number`; the number of its data key, or 0.
pub(super) fn check_file_header(
    found: &[u8; FILE_HEADER_LEN as usize],
    database: u64,
    number: u64,
    path: &Path,
) -> Result<u16> {
    let version = version_in(found);
    let key = key_in_version(version);
    if let Some(key) = key
        && *found == encode_file_header(database, number, key)
    {
        return Ok(key);
    }
    let sum = u64::from_le_bytes(found[FILE_HEADER_SUMMED..].try_into().expect("eight bytes"));
    let is_whole = sum == checksum(&found[..FILE_HEADER_SUMMED], 0, 0);
    if is_whole && found[..8] == MAGIC && key.is_none() {
        let (file, found, known) = (path.to_owned(), version_found(version), FILE_VERSION_MAX);
        return Err(Error::FormatVersion { file, found, known });
    }
    let what = match is_whole {
        true => "the header is that of another database or value file",
        false => "the header does not verify",
    };
    Err(Error::corruption(path, 0, what))
}

/// The version field of what was found at the start of a file.
pub(super) fn version_in(found: &[u8; FILE_HEADER_LEN as usize]) -> u32 {
    u32::from_le_bytes(found[8..12].try_into().expect("four bytes"))
}

/// Database, number and data key that a header names, if it verifies.
pub(super) fn decode_file_header(header: &[u8]) -> Option<(u64, u64, u16)> {
    let (database, number) = (u64_at(header, 16), u64_at(header, 24));
    let key = key_in_version(u32::from_le_bytes(*header[8..].first_chunk()?))?;
    (*header == encode_file_header(database, number, key)).then_some((database, number, key))
}

/// Whether the records of a file are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Sealed,
}

impl Form {
    pub(super) fn of_key(key: u16) -> Form {
        if key == 0 { Form::Plain } else { Form::Sealed }
    }

    /// Bytes of a table of the checksums of so many chunks.
    fn table_len(self, chunk_count: u64) -> u64 {
        match (self, chunk_count) {
            (_, 0 | 1) => 0,
            (Form::Plain, _) => chunk_count * SUM_LEN as u64,
            (Form::Sealed, _) => TABLE_HEAD_LEN as u64 + chunk_count * TABLE_ITEM_LEN as u64,
        }
    }

    /// Where the checksum of a chunk is in the table.
    pub(super) fn sum_at(self, number: usize) -> usize {
        match self {
            Form::Plain => number * SUM_LEN,
            Form::Sealed => TABLE_HEAD_LEN + number * TABLE_ITEM_LEN,
        }
    }
}

/// How many chunks a value of `len` bytes has.
pub(super) fn chunk_count(len: u64) -> usize {
    len.div_ceil(CHUNK_LEN as u64) as usize
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
    pub(super) fn of(len: u64, form: Form) -> Option<RecordLayout> {
        let value_end = len.checked_add(RECORD_HEADER_LEN as u64)?;
        let table_len = form.table_len(len.div_ceil(CHUNK_LEN as u64));
        let table_end = value_end.checked_add(table_len)?;
        let end = table_end.checked_next_multiple_of(RECORD_ALIGNMENT)?;
        Some(RecordLayout { value_end, table_end, end })
    }

    /// Value and table of a record.
    pub(super) fn parts_of<'r>(&self, record: &'r mut [u8]) -> (&'r mut [u8], &'r mut [u8]) {
        let (front, rest) = record.split_at_mut(self.value_end as usize);
        let table_len = (self.table_end - self.value_end) as usize;
        (&mut front[RECORD_HEADER_LEN..], &mut rest[..table_len])
    }
}

/// Bytes of the record of a value of `len` bytes: what accounts go by. One that is sealed and has
/// several chunks takes 24 more, and 16 for each chunk.
pub fn record_len(len: u64) -> u64 {
    RecordLayout::of(len, Form::Plain).map_or(u64::MAX, |layout| layout.end)
}

/// What stands in front of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub len: u64,
    /// In the file, of a record that is sealed: its tag.
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

/// Where a record is to lie, and what it is sealed with.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPlace<'k> {
    pub tag: u64,
    pub key: Option<&'k FileKey>,
    pub offset: u64,
}

/// Makes a whole record of a header, a value, and room for the table behind it: encrypts the value
/// if the file has a key, and fills in checksums.
pub(super) fn seal_record(record: &mut [u8], place: RecordPlace<'_>, header: RecordHeader) {
    let RecordPlace { tag, key, offset } = place;
    let form = if key.is_some() { Form::Sealed } else { Form::Plain };
    let layout = RecordLayout::of(header.len, form).expect("the record is in memory");
    let sealed = key.map(|key| SealedRecord::new(key, offset, &header));
    let (value, table) = layout.parts_of(record);
    let value_offset = offset + RECORD_HEADER_LEN as u64;
    if !table.is_empty() {
        let drawn = key.map(FileKey::draw_nonce).unwrap_or_default();
        if sealed.is_some() {
            table[..TABLE_HEAD_LEN].copy_from_slice(&drawn);
        }
        for (number, chunk) in value.chunks_mut(CHUNK_LEN).enumerate() {
            let at = form.sum_at(number);
            if let Some(sealed) = &sealed {
                let tag = sealed.seal_chunk(&drawn, number, chunk);
                table[at + SUM_LEN..at + TABLE_ITEM_LEN].copy_from_slice(&tag);
            }
            let sum = checksum(chunk, tag, chunk_offset(value_offset, number));
            table[at..at + SUM_LEN].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let hash = match sealed {
        None => header.hash,
        Some(sealed) if table.is_empty() => sealed.seal_value(&header.hash, value),
        Some(sealed) => sealed.seal_table(&header.hash, table),
    };
    let sum = sum_of(value, table, tag, value_offset);
    let header = RecordHeader { sum, hash, ..header }.encode(tag, offset);
    record[..RECORD_HEADER_LEN].copy_from_slice(&header);
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
    form: Form,
    tag: u64,
    value_offset: u64,
) -> Option<usize> {
    if table.is_empty() {
        return None;
    }
    let mut chunks = value.chunks(CHUNK_LEN).enumerate();
    let is_bad = |number: usize, chunk: &[u8]| {
        let sum = u64_at(table, form.sum_at(number));
        checksum(chunk, tag, chunk_offset(value_offset, number)) != sum
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
            let layout = RecordLayout::of(len, Form::Plain).unwrap();
            assert_eq!(layout.value_end, 48 + len);
            assert_eq!(layout.table_end - layout.value_end, table);
            assert!(layout.end.is_multiple_of(8) && layout.end - layout.table_end < 8);
        }
        assert_eq!(RecordLayout::of(u64::MAX - 20, Form::Plain), None);
        for (len, table) in [(0, 0), (1, 0), (chunk, 0), (chunk + 1, 24 + 48), (3 * chunk, 96)] {
            let layout = RecordLayout::of(len, Form::Sealed).unwrap();
            assert_eq!(layout.value_end, 48 + len);
            assert_eq!(layout.table_end - layout.value_end, table);
        }
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
        let bytes = encode_file_header(7, 3, 0);
        assert_eq!(check_file_header(&bytes, 7, 3, path).unwrap(), 0);
        let sealed = encode_file_header(7, 3, 5);
        assert_eq!(check_file_header(&sealed, 7, 3, path).unwrap(), 5);
        assert!(check_file_header(&bytes, 8, 3, path).unwrap_err().is_corruption());
        assert!(check_file_header(&bytes, 7, 4, path).unwrap_err().is_corruption());
        let mut newer = bytes;
        newer[8] = 3;
        let sum = checksum(&newer[..FILE_HEADER_SUMMED], 0, 0);
        newer[FILE_HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
        let error = check_file_header(&newer, 7, 3, path).unwrap_err();
        assert!(matches!(error, Error::FormatVersion { found: 3, known: 2, .. }));
    }
}
