//! The header block of a log file: 4096 bytes, with two equal copies of the header in different
//! disk sectors, so that one bad sector does not cost the file.
//!
//! Layout of a copy (at 0 and at 2048 of the file; little-endian; the rest of the block is zero,
//! but for the note)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LitheWAL` |
//! | 8 | 8 | checksum | of bytes 16..128, bound to the file's number and the copy's offset |
//! | 16 | 2 | version | 1; 2 of files whose payloads are sealed |
//! | 18 | 2 | key | number of the data key that payloads are sealed with; 0: they are not |
//! | 20 | 4 | reserved | 0 |
//! | 24 | 8 | database id | |
//! | 32 | 8 | number | the file's, as in its name |
//! | 40 | 8 | start | the Lsn of offset 4096 |
//! | 48 | 8 | capacity | size of the file |
//! | 56 | 8 | previous number | of the file that the log comes from; 0: none |
//! | 64 | 8 | previous start | the start of that file |
//! | 72 | 8 | durable up to | the log was durable up to here when this was written |
//! | 80 | 48 | reserved | 0 |
//!
//! At 1024, once the log has gone on in another file, is a note of that one:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LitheNXT` |
//! | 8 | 8 | checksum | of bytes 16..48, bound to this file's tag and the note's offset |
//! | 16 | 8 | number | of the next file |
//! | 24 | 8 | start | of the next file |
//! | 32 | 8 | capacity | of the next file |
//! | 40 | 8 | durable | 1: something in the next file was durable when this was written; else 0 |
//!
//! Place and coverage of magic, checksum and version are the same in every version to come, so
//! that a damaged version is told from an unknown one.

use std::path::Path;

use crate::base::format::{FILE_VERSION_MAX, version_found};
use crate::base::{Error, Result, checksum};
use crate::seal::{key_in_version, version_field};

use super::lsn::Lsn;
use super::record::RECORD_ALIGNMENT;

/// Bytes before the first record.
pub const HEADER_BLOCK_SIZE: u64 = 4096;
const COPY_SIZE: usize = 128;
const COPY_OFFSETS: [usize; 2] = [0, 2048];
const CHECKED_FROM: usize = 16;
const MAGIC: [u8; 8] = *b"LitheWAL";
/// The newest version that this program knows.
pub const VERSION: u32 = FILE_VERSION_MAX;
/// Larger sizes and positions are damage: keeps arithmetic on them from overflowing.
const POSITION_MAX: u64 = 1 << 62;

/// The file that the log comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous {
    pub number: u64,
    pub start: Lsn,
}

/// What the header of a log file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    pub database_id: u64,
    pub number: u64,
    pub start: Lsn,
    pub capacity: u64,
    pub previous: Option<Previous>,
    pub durable_up_to: Lsn,
    /// The number of the data key that payloads are sealed with; 0 if they are not.
    pub key: u16,
}

/// What was found where a header should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderBlock {
    /// A header of this file.
    Valid(FileHeader),
    /// Zeros, or the header that the file had under an earlier number: prepared, never in use.
    Unused,
    /// Anything else: torn while it was written, or damaged.
    Unreadable,
}

/// Where the log goes on, as the file in front of that notes it (W12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    pub number: u64,
    pub start: Lsn,
    pub capacity: u64,
    /// Whether anything in it was durable when this was noted.
    pub is_durable: bool,
}

impl Next {
    /// Where in the file the note is: in another sector than any copy of the header.
    pub const OFFSET: u64 = 1024;
    const SIZE: usize = 48;
    const MAGIC: [u8; 8] = *b"LitheNXT";

    /// The note in the file with this tag.
    pub fn encode(&self, file_tag: u64) -> [u8; Next::SIZE] {
        let mut note = [0; Next::SIZE];
        note[..8].copy_from_slice(&Next::MAGIC);
        note[16..24].copy_from_slice(&self.number.to_le_bytes());
        note[24..32].copy_from_slice(&self.start.as_u64().to_le_bytes());
        note[32..40].copy_from_slice(&self.capacity.to_le_bytes());
        note[40..48].copy_from_slice(&u64::from(self.is_durable).to_le_bytes());
        let sum = checksum(&note[CHECKED_FROM..], file_tag, Next::OFFSET);
        note[8..16].copy_from_slice(&sum.to_le_bytes());
        note
    }

    /// The note in the first block of the file with this tag, if one verifies.
    pub fn decode(block: &[u8], file_tag: u64) -> Option<Next> {
        let offset = Next::OFFSET as usize;
        let note = block.get(offset..offset + Next::SIZE)?;
        let verifies = note[..8] == Next::MAGIC
            && word(note, 8) == checksum(&note[CHECKED_FROM..], file_tag, Next::OFFSET);
        let (start, is_durable) = (Lsn::from_u64(word(note, 24)), word(note, 40) != 0);
        let next = Next { number: word(note, 16), start, capacity: word(note, 32), is_durable };
        verifies.then_some(next)
    }
}

/// One of the copies of a header, as an inspection finds it.
#[derive(Clone, Debug)]
pub struct HeaderCopy {
    pub offset: u64,
    pub len: u64,
    /// What it says, if it verifies.
    pub header: Option<FileHeader>,
    pub is_zero: bool,
}

impl FileHeader {
    /// The copies in a block, each taken at its word about which file it is.
    pub fn copies(block: &[u8]) -> Vec<HeaderCopy> {
        let copies = COPY_OFFSETS.into_iter().enumerate();
        let copies = copies.filter_map(|(index, offset)| {
            let copy = block.get(offset..offset + COPY_SIZE)?;
            let (number, database) = (word(copy, 32), word(copy, 24));
            let verifies = copy_verifies(copy, number, offset);
            let decoded = || decode_copy(copy, Path::new(""), (number, offset), database).ok();
            let end = COPY_OFFSETS.get(index + 1).copied().unwrap_or(block.len());
            Some(HeaderCopy {
                offset: offset as u64,
                len: (end - offset) as u64,
                header: verifies.then(decoded).flatten(),
                is_zero: copy.iter().all(|byte| *byte == 0),
            })
        });
        copies.collect()
    }

    /// The version fields in a block, whether the copies verify or not.
    pub fn version_fields(block: &[u8]) -> Vec<u32> {
        let copies = COPY_OFFSETS.iter().filter_map(|offset| block.get(*offset..));
        copies.filter(|copy| copy.len() >= COPY_SIZE).map(|copy| word(copy, 16) as u32).collect()
    }

    /// The Lsn behind the last byte of the file.
    pub fn limit(&self) -> Lsn {
        self.start.plus(self.capacity - HEADER_BLOCK_SIZE)
    }

    /// Where in the file `lsn` is. Not before the start; may be past the end of the file.
    pub fn offset_of(&self, lsn: Lsn) -> u64 {
        HEADER_BLOCK_SIZE + lsn.bytes_since(self.start)
    }

    /// The header block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; HEADER_BLOCK_SIZE as usize];
        for offset in COPY_OFFSETS {
            let copy = &mut block[offset..offset + COPY_SIZE];
            copy[..8].copy_from_slice(&MAGIC);
            copy[16..20].copy_from_slice(&version_field(self.key).to_le_bytes());
            let previous = self.previous.unwrap_or(Previous { number: 0, start: Lsn::ZERO });
            let words = [
                self.database_id,
                self.number,
                self.start.as_u64(),
                self.capacity,
                previous.number,
                previous.start.as_u64(),
                self.durable_up_to.as_u64(),
            ];
            for (index, word) in words.into_iter().enumerate() {
                copy[24 + 8 * index..32 + 8 * index].copy_from_slice(&word.to_le_bytes());
            }
            let sum = checksum(&copy[CHECKED_FROM..], self.number, offset as u64);
            copy[8..16].copy_from_slice(&sum.to_le_bytes());
        }
        block
    }

    /// Reads the first block of file `number` at `path`.
    ///
    /// # Errors
    /// [`Error::FormatVersion`], and [`Error::Corruption`] for a header of another database or
    /// with values that cannot be. Unreadable bytes are no error here.
    pub fn decode(block: &[u8], path: &Path, number: u64, database_id: u64) -> Result<HeaderBlock> {
        let mut unused = true;
        for offset in COPY_OFFSETS {
            let Some(copy) = block.get(offset..offset + COPY_SIZE) else {
                continue; // Too short for a header: never in use.
            };
            if copy_verifies(copy, number, offset) {
                let header = decode_copy(copy, path, (number, offset), database_id)?;
                return Ok(HeaderBlock::Valid(header));
            }
            let written_as = word(copy, 32);
            unused &= copy.iter().all(|byte| *byte == 0)
                || (written_as < number && copy_verifies(copy, written_as, offset));
        }
        Ok(if unused { HeaderBlock::Unused } else { HeaderBlock::Unreadable })
    }
}

fn copy_verifies(copy: &[u8], number: u64, offset: usize) -> bool {
    copy[..8] == MAGIC && word(copy, 8) == checksum(&copy[CHECKED_FROM..], number, offset as u64)
}

/// Decodes a copy whose checksum holds.
fn decode_copy(
    copy: &[u8],
    path: &Path,
    (number, offset): (u64, usize),
    database_id: u64,
) -> Result<FileHeader> {
    let version = word(copy, 16) as u32;
    let key = key_in_version(version).ok_or_else(|| Error::FormatVersion {
        file: path.into(),
        found: version_found(version),
        known: VERSION,
    })?;
    let previous = Previous { number: word(copy, 56), start: Lsn::from_u64(word(copy, 64)) };
    let header = FileHeader {
        database_id: word(copy, 24),
        number: word(copy, 32),
        start: Lsn::from_u64(word(copy, 40)),
        capacity: word(copy, 48),
        previous: (previous.number != 0).then_some(previous),
        durable_up_to: Lsn::from_u64(word(copy, 72)),
        key,
    };
    let damaged = |what: String| Err(Error::corruption(path, offset as u64, what));
    if header.database_id != database_id {
        return damaged(format!(
            "the file belongs to the database {:016x}, not to this one, {database_id:016x}",
            header.database_id
        ));
    }
    let possible = (HEADER_BLOCK_SIZE..POSITION_MAX).contains(&header.capacity)
        && header.number == number
        && header.start.as_u64() < POSITION_MAX
        && header.start.as_u64().is_multiple_of(RECORD_ALIGNMENT)
        && header.previous.is_none_or(|previous| {
            previous.start <= header.start && previous.number < header.number // W3
        })
        && header.durable_up_to <= header.start;
    if !possible {
        return damaged(format!("the header holds values that cannot be: {header:?}"));
    }
    Ok(header)
}

/// The little-endian word at `offset`.
fn word(bytes: &[u8], offset: usize) -> u64 {
    let array = bytes[offset..offset + 8].try_into().expect("a slice of eight bytes");
    u64::from_le_bytes(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader {
            database_id: 77,
            number: 5,
            start: Lsn::from_u64(4000),
            capacity: 1 << 20,
            previous: Some(Previous { number: 3, start: Lsn::from_u64(800) }),
            durable_up_to: Lsn::from_u64(3992),
            key: 0,
        }
    }

    fn decode(block: &[u8], number: u64) -> Result<HeaderBlock> {
        FileHeader::decode(block, Path::new("f"), number, 77)
    }

    #[test]
    fn a_header_survives_the_loss_of_either_copy() {
        let whole = header().encode();
        for lost in [0..0, 0..512, 2048..2560] {
            let mut block = whole.clone();
            block[lost].fill(0xEE);
            assert_eq!(decode(&block, 5).unwrap(), HeaderBlock::Valid(header()));
        }
        let mut block = whole;
        block[100] ^= 1;
        block[2048 + 20] ^= 1;
        assert_eq!(decode(&block, 5).unwrap(), HeaderBlock::Unreadable);
    }

    #[test]
    fn a_file_that_says_to_come_from_itself_or_a_later_one_is_refused() {
        for number in [5, 6, u64::MAX] {
            let previous = Some(Previous { number, start: Lsn::from_u64(4000) });
            let block = FileHeader { previous, ..header() }.encode();
            assert!(decode(&block, 5).unwrap_err().is_corruption(), "{number}");
        }
    }

    #[test]
    fn a_file_that_says_to_be_another_one_is_refused() {
        let mut block = header().encode();
        for offset in COPY_OFFSETS {
            let copy = &mut block[offset..offset + COPY_SIZE];
            copy[32..40].copy_from_slice(&9_u64.to_le_bytes());
            let sum = checksum(&copy[CHECKED_FROM..], 5, offset as u64);
            copy[8..16].copy_from_slice(&sum.to_le_bytes());
        }
        assert!(decode(&block, 5).unwrap_err().is_corruption());
    }

    #[test]
    fn a_note_verifies_in_its_own_file_alone() {
        let (start, capacity) = (Lsn::from_u64(8000), 4 << 10);
        let next = Next { number: 6, start, capacity, is_durable: true };
        let mut block = header().encode();
        assert_eq!(Next::decode(&block, 9), None);
        let offset = Next::OFFSET as usize;
        block[offset..offset + Next::SIZE].copy_from_slice(&next.encode(9));
        assert_eq!(Next::decode(&block, 9), Some(next));
        assert_eq!(Next::decode(&block, 8), None);
        assert_eq!(decode(&block, 5).unwrap(), HeaderBlock::Valid(header()));
        block[offset + 20] ^= 1;
        assert_eq!(Next::decode(&block, 9), None);
        assert_eq!(Next::decode(&block[..offset], 9), None);
    }

    #[test]
    fn a_header_says_which_key_its_file_is_sealed_with() {
        let sealed = FileHeader { key: 0x0203, ..header() };
        let block = sealed.encode();
        assert_eq!(block[16..20], [2, 0, 3, 2]);
        assert_eq!(decode(&block, 5).unwrap(), HeaderBlock::Valid(sealed));
    }

    #[test]
    fn an_earlier_header_of_a_recycled_file_is_no_header() {
        let block = header().encode();
        assert_eq!(decode(&block, 6).unwrap(), HeaderBlock::Unused);
        assert_eq!(decode(&block, 4).unwrap(), HeaderBlock::Unreadable);
        assert_eq!(decode(&[0; 4096], 6).unwrap(), HeaderBlock::Unused);
        assert_eq!(decode(&[], 6).unwrap(), HeaderBlock::Unused);
    }

    #[test]
    fn another_database_and_another_version_are_named() {
        let block = header().encode();
        let error = FileHeader::decode(&block, Path::new("f"), 5, 78).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("belongs to the database"));

        let mut block = header().encode();
        block[16] = 9;
        let sum = checksum(&block[CHECKED_FROM..COPY_SIZE], 5, 0);
        block[8..16].copy_from_slice(&sum.to_le_bytes());
        let error = decode(&block, 5).unwrap_err();
        assert!(matches!(error, Error::FormatVersion { found: 9, known: VERSION, .. }));
    }
}
