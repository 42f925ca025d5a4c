//! A record: 32 bytes of header, the payload, zeros up to a multiple of 8.
//!
//! Layout of the header (little-endian)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | checksum | of all that follows without the padding, bound to file and offset |
//! | 8 | 8 | lsn | where in the log this record starts |
//! | 16 | 8 | durable up to | the log was durable up to here when this was written |
//! | 24 | 7 | length | of the payload |
//! | 31 | 1 | kind | 0xC3 commit, 0x5A mark |
//!
//! The kinds are no small numbers, so that the search for records among arbitrary bytes seldom has
//! to compute a checksum.

use crate::base::checksum_seeded;

use super::header::HEADER_BLOCK_SIZE;
use super::lsn::Lsn;

/// Records start at multiples of this.
pub const RECORD_ALIGNMENT: u64 = 8;
/// Bytes of a record before its payload.
pub const RECORD_HEADER_SIZE: u64 = 32;
/// Bytes of a mark.
pub const MARK_SIZE: u64 = RECORD_HEADER_SIZE;
/// The checksum covers the record from here.
pub const CHECKED_FROM: usize = 8;
const LENGTH_BITS: u32 = 56;
/// The longest payload: what a file can hold and arithmetic can bear.
pub const PAYLOAD_LENGTH_MAX: u64 = 1 << 48;

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Carries a payload of the layer above.
    Commit,
    /// Carries nothing but how far the log is durable.
    Mark,
}

impl RecordKind {
    const fn code(self) -> u8 {
        match self {
            RecordKind::Commit => 0xC3,
            RecordKind::Mark => 0x5A,
        }
    }

    const fn from_code(code: u8) -> Option<RecordKind> {
        match code {
            0xC3 => Some(RecordKind::Commit),
            0x5A => Some(RecordKind::Mark),
            _ => None,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub lsn: Lsn,
    pub durable_up_to: Lsn,
    pub length: u64,
    pub kind: RecordKind,
}

impl RecordHeader {
    /// Bytes that the whole record takes.
    pub fn size(&self) -> u64 {
        record_size(self.length)
    }

    /// Where the next record starts.
    pub fn end(&self) -> Lsn {
        self.lsn.plus(self.size())
    }

    /// The header's bytes; the checksum is zero until it is known.
    pub fn encode(&self) -> [u8; RECORD_HEADER_SIZE as usize] {
        let mut bytes = [0; RECORD_HEADER_SIZE as usize];
        let packed = self.length | (u64::from(self.kind.code()) << LENGTH_BITS);
        bytes[8..16].copy_from_slice(&self.lsn.as_u64().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable_up_to.as_u64().to_le_bytes());
        bytes[24..32].copy_from_slice(&packed.to_le_bytes());
        bytes
    }

    /// What is authenticated with a sealed payload: all of the header, which says its place.
    pub fn sealed_place(&self) -> [u8; RECORD_HEADER_SIZE as usize - CHECKED_FROM] {
        *self.encode().last_chunk().expect("a part of it")
    }

    /// The header at the front of `bytes` (32 at least), when such a header can be: the kind is
    /// known, the claim is not ahead of the record, the lengths are sane. The checksum is not
    /// looked at.
    #[inline]
    pub fn plausible(bytes: &[u8]) -> Option<RecordHeader> {
        let kind = RecordKind::from_code(bytes[31])?;
        let word = |at: usize| {
            let array = bytes[at..at + 8].try_into().expect("a slice of eight bytes");
            u64::from_le_bytes(array)
        };
        let header = RecordHeader {
            lsn: Lsn::from_u64(word(8)),
            durable_up_to: Lsn::from_u64(word(16)),
            length: word(24) & ((1 << LENGTH_BITS) - 1),
            kind,
        };
        let sane = header.durable_up_to <= header.lsn
            && header.lsn.as_u64().is_multiple_of(RECORD_ALIGNMENT)
            && header.length <= PAYLOAD_LENGTH_MAX
            && (kind == RecordKind::Commit || header.length == 0);
        sane.then_some(header)
    }
}

/// Bytes that a record with a payload of `length` takes.
pub fn record_size(length: u64) -> u64 {
    (RECORD_HEADER_SIZE + length).next_multiple_of(RECORD_ALIGNMENT)
}

/// The size of the file to be made for a record of `size` bytes and a mark behind it: the usual
/// one, or its own if it needs more.
pub fn capacity_for(size: u64, usual_capacity: u64) -> u64 {
    let needed = HEADER_BLOCK_SIZE + size + MARK_SIZE;
    if needed <= usual_capacity {
        usual_capacity
    } else {
        needed.next_multiple_of(HEADER_BLOCK_SIZE)
    }
}

/// What binds the records of a file to it: its number, which is never used again, and the
/// database.
pub fn file_tag(database_id: u64, number: u64) -> u64 {
    checksum_seeded(&database_id.to_le_bytes(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_implausible_ones_do_not() {
        let header = RecordHeader {
            lsn: Lsn::from_u64(64),
            durable_up_to: Lsn::from_u64(32),
            length: 5 << 30,
            kind: RecordKind::Commit,
        };
        let bytes = header.encode();
        assert_eq!(RecordHeader::plausible(&bytes), Some(header));
        let claims_ahead = RecordHeader { durable_up_to: Lsn::from_u64(72), ..header };
        assert_eq!(RecordHeader::plausible(&claims_ahead.encode()), None);
        let long_mark = RecordHeader { kind: RecordKind::Mark, ..header };
        assert_eq!(RecordHeader::plausible(&long_mark.encode()), None);
        assert_eq!(RecordHeader::plausible(&[0; 32]), None);
        assert_eq!(record_size(0), 32);
        assert_eq!(record_size(1), 40);
        assert_eq!(record_size(8), 40);
    }
}
