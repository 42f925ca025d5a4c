//! The bytes of a table's two ends.
//!
//! Layout of a table file (little-endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `LITHETBL` |
//! | 8 | 2 | format version: 1; 2 of a table whose frames are sealed |
//! | 10 | 2 | number of the data key that they are sealed with; 0: they are not |
//! | 12 | 4 | keyspace |
//! | 16 | 8 | database |
//! | 24 | 8 | table number |
//! | 32 | 8 | checksum of bytes 0..32, with tag 0 and offset 0 |
//! | 40 | | frames: dictionary, data blocks and partitions, top, deleted ranges, properties |
//! | size - 72 | 72 | footer |
//!
//! Layout of the footer:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | checksum of bytes 8..72, with the file's tag and the footer's offset |
//! | 8 | 8 | magic `LITHETBF` |
//! | 16 | 4 | format version: 1, or 2 with an extension |
//! | 20 | 4 | low 32 bits of the extension's checksum; 0 if there is none |
//! | 24 | 16 | pointer to the top |
//! | 40 | 16 | pointer to the deleted ranges; zeros if there are none |
//! | 56 | 16 | pointer to the properties |
//!
//! The extension is the 16 bytes in front of the footer: the pointer to the dictionary. Its
//! checksum is that of these bytes, with the file's tag and their offset. A program that knows
//! version 1 alone finds the footer whole, of a version that it does not know, and says so.
//!
//! A pointer: offset of the frame (8 bytes), its length with the header (4), the low 32 bits of its
//! checksum (4). The index of the keyspace points to the footer in the same way: by the file's size
//! and the low 32 bits of the footer's checksum.

use std::path::Path;

use crate::base::format::{
    FILE_VERSION_MAX, TABLE_FOOTER_VERSION, TABLE_FOOTER_VERSION_EXTENDED, version_found,
};
use crate::base::{Error, Result, checksum, checksum_seeded};
use crate::seal::{FileIdentity, key_in_version, version_field};

/// Bytes in front of the first frame.
pub const HEADER_LEN: u64 = 40;
/// Bytes behind the last frame.
pub const FOOTER_LEN: u64 = FOOTER_SIZE as u64;

const MAGIC: [u8; 8] = *b"LITHETBL";
/// Of footers.
const VERSION: u32 = TABLE_FOOTER_VERSION;
/// Of footers with an extension.
const VERSION_EXTENDED: u32 = TABLE_FOOTER_VERSION_EXTENDED;
const HEADER_SIZE: usize = HEADER_LEN as usize;
const HEADER_SUMMED: usize = 32;

const FOOTER_MAGIC: [u8; 8] = *b"LITHETBF";
const POINTERS_AT: usize = 24;
const POINTER_SIZE: usize = 16;
const FOOTER_SIZE: usize = POINTERS_AT + 3 * POINTER_SIZE;
const SUM_SIZE: usize = 8;
const EXTENSION_SUM_AT: usize = 20;

/// Bytes that may be in front of the footer.
pub const EXTENSION_LEN: u64 = POINTER_SIZE as u64;
/// Bytes of the footer with an extension: whoever looks for a footer reads so many.
pub(super) const FOOTER_LEN_MAX: u64 = FOOTER_LEN + EXTENSION_LEN;

/// Whose a table is. A file that was made outside of any database has the keyspace 0 and the number
/// 0, which no table of a database has, and in place of the database a number that was drawn for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIdentity {
    /// The database.
    pub database: u64,
    /// The keyspace.
    pub keyspace: u32,
    /// The table's number.
    pub number: u64,
}

impl TableIdentity {
    /// Of a file that is made outside of any database, and for which `drawn` was drawn.
    #[must_use]
    pub fn outside(drawn: u64) -> TableIdentity {
        TableIdentity { database: drawn, keyspace: 0, number: 0 }
    }

    /// What was drawn for the file, if it was made outside of any database.
    #[must_use]
    pub fn origin(self) -> Option<u64> {
        (self == TableIdentity::outside(self.database)).then_some(self.database)
    }

    /// Seeds the checksums of the table's frames. Of other bytes than the tag of a segment: none
    /// verifies as a table.
    #[must_use]
    pub fn tag(self) -> u64 {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.database.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.keyspace.to_le_bytes());
        bytes[20..].copy_from_slice(&self.number.to_le_bytes());
        checksum_seeded(&bytes, 0)
    }

    /// Which file it is, for its key.
    #[must_use]
    pub fn file(self) -> FileIdentity {
        let TableIdentity { database, keyspace, number } = self;
        FileIdentity { kind: *b"tbl ", database, owner: u64::from(keyspace), number }
    }

    /// The header; `key` is the number of the data key that the file is sealed with, or 0.
    #[must_use]
    pub fn encode_header(self, key: u16) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&version_field(key).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.keyspace.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        let sum = checksum(&bytes[..HEADER_SUMMED], 0, 0);
        bytes[HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What a header says, if it verifies.
    #[must_use]
    pub fn decode(header: &[u8]) -> Option<TableIdentity> {
        let header: &[u8; HEADER_SIZE] = header.try_into().ok()?;
        let identity = TableIdentity {
            database: u64_at(header, 16),
            keyspace: u32_at(header, 12),
            number: u64_at(header, 24),
        };
        let key = key_in_version(u32_at(header, 8))?;
        (*header == identity.encode_header(key)).then_some(identity)
    }

    /// Whose the file is, by what was found at its start.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no table; `FormatVersion`, `Corruption`.
    pub(super) fn read(found: &[u8; HEADER_SIZE], path: &Path) -> Result<TableIdentity> {
        if found[..8] != MAGIC {
            let path = path.display();
            return Err(Error::invalid(format!("{path} is no table, by its first bytes")));
        }
        let identity = TableIdentity {
            database: u64_at(found, 16),
            keyspace: u32_at(found, 12),
            number: u64_at(found, 24),
        };
        identity.check_header(found, path).map(|_| identity)
    }

    /// Whether the file with this header is sealed.
    pub(super) fn is_sealed(header: &[u8; HEADER_SIZE]) -> bool {
        key_in_version(u32_at(header, 8)).is_some_and(|key| key != 0)
    }

    /// Checks what was found at the start of the file against what must be there; the number of
    /// the data key that it is sealed with, or 0.
    pub(super) fn check_header(self, found: &[u8; HEADER_SIZE], path: &Path) -> Result<u16> {
        let key = key_in_version(u32_at(found, 8));
        if let Some(key) = key
            && *found == self.encode_header(key)
        {
            return Ok(key);
        }
        let is_whole = u64_at(found, HEADER_SUMMED) == checksum(&found[..HEADER_SUMMED], 0, 0);
        let version = u32_at(found, 8);
        if is_whole && found[..8] == MAGIC && key.is_none() {
            return Err(unknown_version(path, version_found(version), FILE_VERSION_MAX));
        }
        let what = match is_whole {
            true => "the header is that of another database, keyspace or table",
            false => "the header does not verify",
        };
        Err(Error::corruption(path, 0, what))
    }
}

/// Where a frame lies, and which one it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FramePointer {
    pub offset: u64,
    /// With the header.
    pub len: u32,
    /// The low 32 bits of the frame's checksum.
    pub checksum: u32,
}

impl FramePointer {
    const NONE: FramePointer = FramePointer { offset: 0, len: 0, checksum: 0 };

    /// Where the frame ends; `None` for a pointer that nobody made.
    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.len))
    }

    fn encode(self) -> [u8; POINTER_SIZE] {
        let mut bytes = [0; POINTER_SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> FramePointer {
        FramePointer {
            offset: u64_at(bytes, 0),
            len: u32_at(bytes, 8),
            checksum: u32_at(bytes, 12),
        }
    }
}

/// What the end of a table points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub top: FramePointer,
    pub ranges: Option<FramePointer>,
    pub properties: FramePointer,
    pub dictionary: Option<FramePointer>,
}

impl Footer {
    /// Where it begins, extension and all, in a file of `size` bytes.
    pub(super) fn start_in(&self, size: u64) -> u64 {
        let extension = if self.dictionary.is_some() { POINTER_SIZE } else { 0 };
        size.saturating_sub(FOOTER_LEN + extension as u64)
    }

    /// The end of the file with this tag, from this offset on: extension and footer. And the low 32
    /// bits of the footer's checksum.
    pub(super) fn encode(&self, tag: u64, offset: u64) -> (Vec<u8>, u32) {
        let mut end = Vec::with_capacity(FOOTER_LEN_MAX as usize);
        let mut bytes = [0; FOOTER_SIZE];
        bytes[8..16].copy_from_slice(&FOOTER_MAGIC);
        let version = if self.dictionary.is_some() { VERSION_EXTENDED } else { VERSION };
        bytes[16..EXTENSION_SUM_AT].copy_from_slice(&version.to_le_bytes());
        if let Some(pointer) = self.dictionary {
            end.extend_from_slice(&pointer.encode());
            let sum = checksum(&end, tag, offset) as u32;
            bytes[EXTENSION_SUM_AT..POINTERS_AT].copy_from_slice(&sum.to_le_bytes());
        }
        let pointers = [self.top, self.ranges.unwrap_or(FramePointer::NONE), self.properties];
        let places = bytes[POINTERS_AT..].chunks_exact_mut(POINTER_SIZE);
        for (place, pointer) in places.zip(pointers) {
            place.copy_from_slice(&pointer.encode());
        }
        let sum = checksum(&bytes[SUM_SIZE..], tag, offset + end.len() as u64);
        bytes[..SUM_SIZE].copy_from_slice(&sum.to_le_bytes());
        end.extend_from_slice(&bytes);
        (end, sum as u32)
    }

    /// The low 32 bits of the checksum that a footer, the last bytes of `end`, says it has.
    pub(super) fn said_checksum(end: &[u8]) -> u32 {
        let footer = end.last_chunk::<FOOTER_SIZE>();
        footer.map_or(0, |bytes| u64_at(bytes, 0) as u32)
    }

    /// The footer that was found at `offset` of the file with this tag, as the last bytes of `end`;
    /// the extension is in front of it, if it has one. `expected` are the low 32 bits of its
    /// checksum.
    pub(super) fn decode(
        end: &[u8],
        path: &Path,
        tag: u64,
        offset: u64,
        expected: u32,
    ) -> Result<Footer> {
        let refuse = |what: String| Error::corruption(path, offset, what);
        let Some((before, bytes)) = end.split_last_chunk::<FOOTER_SIZE>() else {
            return Err(refuse("the file ends early".to_owned()));
        };
        let sum = u64_at(bytes, 0);
        if sum != checksum(&bytes[SUM_SIZE..], tag, offset) {
            return Err(refuse("the footer does not verify".to_owned()));
        }
        if sum as u32 != expected {
            let found = sum as u32;
            return Err(refuse(format!(
                "another footer: checksum {found:08x} instead of {expected:08x}"
            )));
        }
        if bytes[8..16] != FOOTER_MAGIC {
            return Err(refuse("what should be the footer is none".to_owned()));
        }
        let extension_sum = u32_at(bytes, EXTENSION_SUM_AT);
        let dictionary = match u32_at(bytes, 16) {
            VERSION if extension_sum == 0 => None,
            VERSION => return Err(refuse("what should be the footer is none".to_owned())),
            VERSION_EXTENDED => {
                let extension = before.last_chunk::<POINTER_SIZE>().filter(|extension| {
                    checksum(*extension, tag, offset - EXTENSION_LEN) as u32 == extension_sum
                });
                match extension {
                    Some(extension) => Some(FramePointer::decode(extension)),
                    None => {
                        return Err(refuse("the footer's extension does not verify".to_owned()));
                    }
                }
            }
            found => return Err(unknown_version(path, found, VERSION_EXTENDED)),
        };
        let pointer = |number: usize| {
            FramePointer::decode(&bytes[POINTERS_AT + number * POINTER_SIZE..][..POINTER_SIZE])
        };
        let ranges = Some(pointer(1)).filter(|pointer| *pointer != FramePointer::NONE);
        Ok(Footer { top: pointer(0), ranges, properties: pointer(2), dictionary })
    }
}

/// For fuzzers: has the footer of a table, which may be any bytes, verify, and lead to those of
/// these frames (offset, length, checksum) that it points to the beginnings of.
pub(super) fn put_footer_right(file: &mut [u8], tag: u64, frames: &[(u64, u32, u32)]) {
    let (front, bytes) = file.split_at_mut(file.len() - FOOTER_SIZE);
    let offset = front.len() as u64;
    let right = |bytes: &mut [u8]| {
        let found = FramePointer::decode(bytes);
        if let Some(frame) = frames.iter().find(|(offset, ..)| *offset == found.offset) {
            let (offset, len, checksum) = *frame;
            bytes.copy_from_slice(&FramePointer { offset, len, checksum }.encode());
        }
    };
    bytes[8..16].copy_from_slice(&FOOTER_MAGIC);
    bytes[POINTERS_AT..].chunks_exact_mut(POINTER_SIZE).for_each(right);
    let extension_sum = match u32_at(bytes, 16) {
        VERSION_EXTENDED => {
            let extension = front.last_chunk_mut::<POINTER_SIZE>().expect("there is room");
            right(extension);
            checksum(extension, tag, offset - EXTENSION_LEN) as u32
        }
        _ => {
            bytes[16..EXTENSION_SUM_AT].copy_from_slice(&VERSION.to_le_bytes());
            0
        }
    };
    bytes[EXTENSION_SUM_AT..POINTERS_AT].copy_from_slice(&extension_sum.to_le_bytes());
    let sum = checksum(&bytes[SUM_SIZE..], tag, offset);
    bytes[..SUM_SIZE].copy_from_slice(&sum.to_le_bytes());
}

/// What a footer that was found in a file says, for those who look into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterView {
    /// Where it begins, extension and all.
    pub start: u64,
    /// Where the top lies.
    pub top: u64,
    /// Where the deleted ranges lie.
    pub ranges: Option<u64>,
    /// Where the properties lie.
    pub properties: u64,
    /// Where the dictionary lies, its length, and the low 32 bits of its checksum.
    pub dictionary: Option<(u64, u64, u32)>,
    /// The low 32 bits of its checksum: which table it is.
    pub checksum: u32,
}

impl FooterView {
    /// What `end`, the last bytes of a file of `size` bytes with this tag, says; `None` if it does
    /// not verify.
    #[must_use]
    pub fn of(end: &[u8], tag: u64, size: u64) -> Option<FooterView> {
        let offset = size.checked_sub(FOOTER_LEN)?;
        let expected = Footer::said_checksum(end);
        let footer = Footer::decode(end, Path::new(""), tag, offset, expected).ok()?;
        let dictionary = footer.dictionary;
        Some(FooterView {
            start: footer.start_in(size),
            top: footer.top.offset,
            ranges: footer.ranges.map(|pointer| pointer.offset),
            properties: footer.properties.offset,
            dictionary: dictionary
                .map(|pointer| (pointer.offset, u64::from(pointer.len), pointer.checksum)),
            checksum: expected,
        })
    }
}

fn unknown_version(path: &Path, found: u32, known: u32) -> Error {
    Error::FormatVersion { file: path.to_owned(), found, known }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: TableIdentity = TableIdentity { database: 7, keyspace: 2, number: 3 };

    #[test]
    fn a_header_names_database_keyspace_and_table() {
        let path = Path::new("/k/tbl-00000003");
        let bytes = IDENTITY.encode_header(0);
        assert_eq!(TableIdentity::decode(&bytes), Some(IDENTITY));
        IDENTITY.check_header(&bytes, path).unwrap();
        let others = [
            TableIdentity { database: 8, ..IDENTITY },
            TableIdentity { keyspace: 3, ..IDENTITY },
            TableIdentity { number: 4, ..IDENTITY },
        ];
        for other in others {
            assert!(other.check_header(&bytes, path).unwrap_err().is_corruption());
            assert_ne!(other.tag(), IDENTITY.tag());
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            assert_eq!(TableIdentity::decode(&flipped), None, "byte {at}");
            assert!(IDENTITY.check_header(&flipped, path).unwrap_err().is_corruption());
        }
        let sealed = IDENTITY.encode_header(5);
        assert_eq!(TableIdentity::decode(&sealed), Some(IDENTITY));
        assert_eq!(IDENTITY.check_header(&sealed, path).unwrap(), 5);
        let mut newer = bytes;
        newer[8] = 3;
        let sum = checksum(&newer[..HEADER_SUMMED], 0, 0);
        newer[HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
        let error = IDENTITY.check_header(&newer, path).unwrap_err();
        assert!(matches!(error, Error::FormatVersion { found: 3, known: 2, .. }));
    }

    #[test]
    fn a_footer_verifies_at_its_place_only() {
        let path = Path::new("/k/tbl-00000003");
        let pointer = |offset| FramePointer { offset, len: 100, checksum: 0xDEAD_BEEF };
        for (ranges, dictionary) in [
            (None, None),
            (Some(pointer(200)), None),
            (None, Some(pointer(40))),
            (Some(pointer(200)), Some(pointer(40))),
        ] {
            let footer = Footer { top: pointer(100), ranges, properties: pointer(300), dictionary };
            let (bytes, sum) = footer.encode(IDENTITY.tag(), footer.start_in(472));
            assert_eq!(footer.start_in(472), 472 - bytes.len() as u64);
            let decode =
                |bytes: &[u8], tag, offset, sum| Footer::decode(bytes, path, tag, offset, sum);
            assert_eq!(decode(&bytes, IDENTITY.tag(), 400, sum).unwrap(), footer);
            let refused = [(1, 400, sum), (IDENTITY.tag(), 401, sum), (IDENTITY.tag(), 400, !sum)];
            for (tag, offset, sum) in refused {
                assert!(decode(&bytes, tag, offset, sum).unwrap_err().is_corruption());
            }
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                let error = decode(&flipped, IDENTITY.tag(), 400, sum).unwrap_err();
                assert!(error.is_corruption(), "byte {at}");
            }
            for len in 0..bytes.len() {
                let cut = &bytes[bytes.len() - len..];
                assert!(decode(cut, IDENTITY.tag(), 400, sum).unwrap_err().is_corruption());
            }
        }
    }

    #[test]
    fn an_extended_footer_is_whole_to_who_does_not_know_it_and_newer_ones_are_told() {
        let pointer = FramePointer { offset: 100, len: 100, checksum: 7 };
        let footer =
            Footer { top: pointer, ranges: None, properties: pointer, dictionary: Some(pointer) };
        let (bytes, sum) = footer.encode(IDENTITY.tag(), 384);
        let (_, last) = bytes.split_last_chunk::<FOOTER_SIZE>().unwrap();
        // What the first version verifies: these bytes alone, at their offset.
        assert_eq!(checksum(&last[SUM_SIZE..], IDENTITY.tag(), 400) as u32, sum);
        assert_eq!((&last[8..16], u32_at(last, 16)), (&FOOTER_MAGIC[..], 2));
        let mut newer = *last;
        newer[16] = 3;
        let sum = checksum(&newer[SUM_SIZE..], IDENTITY.tag(), 400);
        newer[..SUM_SIZE].copy_from_slice(&sum.to_le_bytes());
        let refused = Footer::decode(&newer, Path::new("x"), IDENTITY.tag(), 400, sum as u32);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::FormatVersion { found: 3, known: 2, .. }), "{refused}");
    }
}
