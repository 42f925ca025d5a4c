//! The blocks of a segment file: data and its checksum.
//!
//! Pure: bytes in, values out.
//!
//! A segment file is a sequence of blocks of 4096 bytes: the header block and blocks of data.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4088 | data | of the header block the fields below, then zeros |
//! | 4088 | 8 | checksum | of the data, seeded by the file's tag and the block's offset |
//!
//! Fields of the header block (little-endian)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LITHESPC` |
//! | 8 | 4 | version | [`VERSION`] |
//! | 12 | 4 | block size | 4096 |
//! | 16 | 8 | space | id of the space |
//! | 24 | 8 | number | the number in the file's name |
//!
//! The data of the blocks behind the header is one sequence, from offset 0: an address says where
//! in that sequence a byte is, so what lies side by side there needs no regard for blocks.

use std::ops::Range;
use std::path::Path;

use crate::base::format::SPACE_SEGMENT_VERSION;
use crate::base::{Error, Result, checksum, checksum_seeded};

/// Bytes of a block in the file.
pub(super) const BLOCK_SIZE: usize = 4096;
/// Bytes of data in a block.
pub(super) const BLOCK_DATA: usize = BLOCK_SIZE - CHECKSUM_SIZE;
const CHECKSUM_SIZE: usize = 8;
/// The format of segment files.
pub(super) const VERSION: u32 = SPACE_SEGMENT_VERSION;
const MAGIC: [u8; 8] = *b"LITHESPC";

/// Whose block it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentId {
    pub space: u64,
    pub number: u32,
}

impl SegmentId {
    /// Seeds the checksums: blocks of one segment do not verify in another.
    pub(super) fn tag(self) -> u64 {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.space.to_le_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        checksum_seeded(&bytes, 0)
    }
}

/// Where the block that holds `offset` of the data begins in the file.
pub(super) fn block_offset(offset: u32) -> u64 {
    (u64::from(offset) / BLOCK_DATA as u64 + 1) * BLOCK_SIZE as u64
}

/// The bytes of the file that the blocks with these data take.
pub(super) fn blocks_of(data: Range<u32>) -> Range<u64> {
    block_offset(data.start)..block_offset(data.end - 1) + BLOCK_SIZE as u64
}

/// Bytes of a file with `size` bytes of data.
pub(super) fn file_size(size: u32) -> u64 {
    if size == 0 { BLOCK_SIZE as u64 } else { blocks_of(0..size).end }
}

/// Puts the checksum behind the data of the block that belongs at `offset` of the file.
pub(super) fn seal(block: &mut [u8], tag: u64, offset: u64) {
    let (data, sum) = block.split_at_mut(BLOCK_DATA);
    sum.copy_from_slice(&checksum(data, tag, offset).to_le_bytes());
}

/// The data of a block that was read at `offset` of the file.
pub(super) fn open<'a>(block: &'a [u8], tag: u64, offset: u64, file: &Path) -> Result<&'a [u8]> {
    let (data, sum) = block.split_at(BLOCK_DATA);
    if checksum(data, tag, offset).to_le_bytes() == sum {
        return Ok(data);
    }
    Err(Error::corruption(file, offset, "the checksum of a block of a space is wrong"))
}

/// The header block.
pub(super) fn encode_header(id: SegmentId) -> Vec<u8> {
    let mut block = vec![0; BLOCK_SIZE];
    block[..8].copy_from_slice(&MAGIC);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    block[12..16].copy_from_slice(&(BLOCK_SIZE as u32).to_le_bytes());
    block[16..24].copy_from_slice(&id.space.to_le_bytes());
    block[24..32].copy_from_slice(&u64::from(id.number).to_le_bytes());
    seal(&mut block, id.tag(), 0);
    block
}

/// Whose segment a header block says that it is, if it verifies.
pub(super) fn decode_header(block: &[u8]) -> Option<SegmentId> {
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight"));
    let id = SegmentId { space: number(16), number: u32::try_from(number(24)).ok()? };
    (block == encode_header(id)).then_some(id)
}

/// Checks the header block against what it must be. The version is looked at first: another
/// version may keep its checksum elsewhere.
pub(super) fn check_header(block: &[u8], id: SegmentId, file: &Path) -> Result<()> {
    if block == encode_header(id) {
        return Ok(());
    }
    let found = u32::from_le_bytes(block[8..12].try_into().expect("four bytes"));
    if block[..8] == MAGIC && found > VERSION {
        return Err(Error::FormatVersion { file: file.to_owned(), found, known: VERSION });
    }
    let what = "the header is damaged, or that of another space or segment";
    Err(Error::corruption(file, 0, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SegmentId = SegmentId { space: 9, number: 4 };

    #[test]
    fn data_lies_in_the_blocks_behind_the_header() {
        assert_eq!(blocks_of(0..1), 4096..8192);
        assert_eq!(blocks_of(0..4088), 4096..8192);
        assert_eq!(blocks_of(4087..4089), 4096..12288);
        assert_eq!(blocks_of(4088..4089), 8192..12288);
        assert_eq!((file_size(0), file_size(1), file_size(4089)), (4096, 8192, 12288));
    }

    #[test]
    fn a_block_verifies_only_in_its_place() {
        let mut block = vec![7; BLOCK_SIZE];
        seal(&mut block, ID.tag(), 4096);
        let file = Path::new("seg");
        assert_eq!(open(&block, ID.tag(), 4096, file).unwrap(), [7; BLOCK_DATA]);
        let other = SegmentId { number: 5, ..ID };
        for (tag, offset) in [(ID.tag(), 8192), (other.tag(), 4096)] {
            assert!(open(&block, tag, offset, file).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn a_header_of_another_kind_is_refused() {
        let file = Path::new("seg");
        let header = encode_header(ID);
        check_header(&header, ID, file).unwrap();
        let other = SegmentId { space: 8, ..ID };
        assert!(check_header(&header, other, file).unwrap_err().is_corruption());
        let mut newer = header.clone();
        newer[8] = 2;
        let refused = check_header(&newer, ID, file).unwrap_err();
        assert!(matches!(refused, Error::FormatVersion { found: 2, known: 1, .. }));
    }
}
