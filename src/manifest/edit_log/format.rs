//! The bytes of an edit log: file names, file header, record headers.
//!
//! Pure: bytes in, values out. Reading and writing files is done beside it.
//!
//! Layout of the file header (64 bytes, little-endian)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LITHELOG` |
//! | 8 | 2 | version | [`VERSION`] |
//! | 10 | 2 | key | number of the data key that payloads are sealed with; 0: they are not |
//! | 12 | 4 | kind | what the log is for, the caller's number |
//! | 16 | 8 | database | id of the database |
//! | 24 | 8 | owner | id of the keyspace, or 0 |
//! | 32 | 8 | number | the number in the file's name |
//! | 40 | 8 | capacity | size of the file in bytes |
//! | 48 | 8 | reserved | 0 |
//! | 56 | 8 | checksum | of bytes 0..56, seeded by nothing but offset 0 |
//!
//! Layout of a record header (32 bytes, little-endian); the payload follows, padded with zeros to
//! a multiple of 8
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | checksum | of bytes 8..32, seeded by the file's tag and the record's offset |
//! | 8 | 8 | payload checksum | of the padded payload, seeded by tag and payload's offset |
//! | 16 | 8 | previous | checksum of the record that this one follows; the tag for the first |
//! | 24 | 4 | length | bytes of payload, without padding |
//! | 28 | 1 | kind | [`RecordKind`] |
//! | 29 | 3 | reserved | 0 |
//!
//! Payloads that are sealed have nonce and tag behind them, which `length` counts; marks have none.
//!
//! The header has a checksum of its own, so that a header alone proves, at 24 bytes of hashing,
//! that its record was once begun: looking for such proof in a damaged file takes linear time.

use crate::base::format::{FILE_VERSION_MAX, version_found};
use crate::base::{Error, Result, checksum, checksum_seeded};
use crate::seal::{FileIdentity, FileKey, SEAL_LEN};
use crate::seal::{key_in_version, version_field};
use std::path::Path;

pub(super) const HEADER_LEN: u64 = 64;
pub(super) const RECORD_HEADER_LEN: u64 = 32;
/// Room behind each edit for its mark: a record header without payload.
pub(super) const MARK_SLOT_LEN: u64 = RECORD_HEADER_LEN;
/// The least that a disk writes whole.
const SECTOR_SIZE: u64 = 512;
/// Records begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 8;
/// The largest payload of a record.
pub(super) const PAYLOAD_LEN_MAX: u64 = 64 << 20;
/// The newest version that is known.
pub(super) const VERSION: u32 = FILE_VERSION_MAX;

const MAGIC: [u8; 8] = *b"LITHELOG";
/// Bytes 0..56 of the header are under the checksum at 56..64.
const HEADER_SUMMED: usize = 56;
/// Suffix of a file that is still being made.
pub(super) const UNFINISHED_SUFFIX: &str = ".new";
/// Digits of the number in a file name; more when it needs more.
const NUMBER_DIGITS: usize = 8;

/// What tells one log from every other: a file whose header says otherwise is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditLogId {
    /// First part of the file names, as in `MANIFEST-00000007`.
    pub stem: &'static str,
    /// What the log is for.
    pub kind: u32,
    /// The database.
    pub database: u64,
    /// The keyspace, or 0.
    pub owner: u64,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    SnapshotPart = 1,
    SnapshotEnd = 2,
    Edit = 3,
    Mark = 4,
}

/// A file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub kind: u32,
    pub database: u64,
    pub owner: u64,
    pub number: u64,
    pub capacity: u64,
    /// The number of the data key; 0 if it is not sealed.
    pub key: u16,
}

impl FileHeader {
    pub fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut bytes = [0; HEADER_LEN as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&version_field(self.key).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.owner.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.capacity.to_le_bytes());
        let sum = checksum(&bytes[..HEADER_SUMMED], 0, 0);
        bytes[HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the header of `file`. The version is looked at before the checksum, because another
    /// version may keep its checksum elsewhere.
    pub fn decode(bytes: &[u8; HEADER_LEN as usize], file: &Path) -> Result<FileHeader> {
        if bytes[0..8] != MAGIC {
            return Err(Error::corruption(file, 0, "not an edit log: the magic bytes are wrong"));
        }
        let version = u32_at(bytes, 8);
        let key = key_in_version(version).ok_or_else(|| Error::FormatVersion {
            file: file.to_owned(),
            found: version_found(version),
            known: VERSION,
        })?;
        if checksum(&bytes[..HEADER_SUMMED], 0, 0) != u64_at(bytes, HEADER_SUMMED) {
            return Err(Error::corruption(file, 0, "the checksum of the file header is wrong"));
        }
        Ok(FileHeader {
            kind: u32_at(bytes, 12),
            database: u64_at(bytes, 16),
            owner: u64_at(bytes, 24),
            number: u64_at(bytes, 32),
            capacity: u64_at(bytes, 40),
            key,
        })
    }

    /// An error unless this is the header of the log `id`'s file of that number and size.
    pub fn expect(&self, id: &EditLogId, number: u64, size: u64, file: &Path) -> Result<()> {
        let fields = [
            ("a log of kind", u64::from(self.kind), u64::from(id.kind)),
            ("a file of database", self.database, id.database),
            ("a file of owner", self.owner, id.owner),
            ("file number", self.number, number),
        ];
        for (what, found, expected) in fields {
            if found != expected {
                let what = format!("this is {what} {found:#x}, not {expected:#x}");
                return Err(Error::corruption(file, 0, what));
            }
        }
        if self.capacity != size {
            let what = format!("the file has {size} bytes instead of {}", self.capacity);
            return Err(Error::corruption(file, size.min(self.capacity), what));
        }
        Ok(())
    }
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub checksum: u64,
    pub payload_checksum: u64,
    pub previous: u64,
    pub length: u32,
    pub kind: RecordKind,
}

impl RecordHeader {
    /// The header at `offset` of the file with the tag `tag`; `None` when it does not verify there
    /// or does not fit in front of `capacity`.
    pub fn decode(bytes: &[u8], tag: u64, offset: u64, capacity: u64) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER_LEN as usize)?;
        let kind = match bytes[28] {
            1 => RecordKind::SnapshotPart,
            2 => RecordKind::SnapshotEnd,
            3 => RecordKind::Edit,
            4 => RecordKind::Mark,
            _ => return None, // Zeros end here, without hashing.
        };
        let header = RecordHeader {
            checksum: u64_at(bytes, 0),
            payload_checksum: u64_at(bytes, 8),
            previous: u64_at(bytes, 16),
            length: u32_at(bytes, 24),
            kind,
        };
        let fits = u64::from(header.length) <= PAYLOAD_LEN_MAX
            && offset + header.record_len() <= capacity
            && bytes[29..32] == [0; 3];
        (fits && checksum(&bytes[8..], tag, offset) == header.checksum).then_some(header)
    }

    /// Header, payload and padding; for an edit without its mark slot.
    pub fn record_len(&self) -> u64 {
        RECORD_HEADER_LEN + padded(u64::from(self.length))
    }

    /// Whether `payload`, padding included, is what was written behind this header at `offset`.
    pub fn covers(&self, payload: &[u8], tag: u64, offset: u64) -> bool {
        checksum(payload, tag, offset + RECORD_HEADER_LEN) == self.payload_checksum
    }
}

/// Appends a whole record that belongs at `offset`, sealed with the file's key if it has one;
/// returns its checksum, which the next record names as its predecessor's.
pub(super) fn put_record(
    out: &mut Vec<u8>,
    kind: RecordKind,
    payload: &[u8],
    place: RecordPlace,
    key: Option<&FileKey>,
) -> u64 {
    let start = out.len();
    let payload_start = start + RECORD_HEADER_LEN as usize;
    out.resize(payload_start, 0);
    out.extend_from_slice(payload);
    if let Some(key) = key.filter(|_| kind != RecordKind::Mark) {
        let length = (payload.len() + SEAL_LEN) as u32;
        key.seal_tail(&sealed_place(kind, length, place), out, payload_start);
    }
    let length = out.len() - payload_start;
    assert!(length as u64 <= PAYLOAD_LEN_MAX, "callers refuse larger payloads");
    out.resize(payload_start + padded(length as u64) as usize, 0);

    let payload_sum = checksum(&out[payload_start..], place.tag, place.offset + RECORD_HEADER_LEN);
    let header = &mut out[start..payload_start];
    header[8..16].copy_from_slice(&payload_sum.to_le_bytes());
    header[16..24].copy_from_slice(&place.previous.to_le_bytes());
    header[24..28].copy_from_slice(&(length as u32).to_le_bytes());
    header[28] = kind as u8;
    let sum = checksum(&header[8..], place.tag, place.offset);
    header[0..8].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// What is authenticated with a payload: where it lies, behind which record, and what it is.
pub(super) fn sealed_place(kind: RecordKind, length: u32, place: RecordPlace) -> [u8; 21] {
    let mut bytes = [0; 21];
    bytes[..8].copy_from_slice(&place.offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.previous.to_le_bytes());
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes[20] = kind as u8;
    bytes
}

/// Bytes that sealing adds to a payload.
pub(super) fn seal_len(key: Option<&FileKey>) -> usize {
    if key.is_some() { SEAL_LEN } else { 0 }
}

/// Which file it is, for its key.
pub(super) fn identity(id: &EditLogId, number: u64) -> FileIdentity {
    let [a, b, ..] = id.kind.to_le_bytes();
    FileIdentity { kind: [b'l', b'g', a, b], database: id.database, owner: id.owner, number }
}

/// Where a record belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPlace {
    pub tag: u64,
    pub offset: u64,
    pub previous: u64,
}

/// Whether a slot without a valid mark holds nothing, or what interrupted writes of its mark leave:
/// in each sector the first bytes of what belongs there, and zeros.
pub(super) fn is_interrupted_mark(slot: &[u8], place: RecordPlace) -> bool {
    let mut mark = Vec::with_capacity(MARK_SLOT_LEN as usize);
    put_record(&mut mark, RecordKind::Mark, &[], place, None);
    let in_first = ((SECTOR_SIZE - place.offset % SECTOR_SIZE) as usize).min(mark.len());
    let is_begun = |found: &[u8], of_mark: &[u8]| {
        let written = found.iter().zip(of_mark).take_while(|(found, of_mark)| found == of_mark);
        found[written.count()..].iter().all(|&byte| byte == 0)
    };
    is_begun(&slot[..in_first], &mark[..in_first]) && is_begun(&slot[in_first..], &mark[in_first..])
}

/// The tag of a file: checksums of one file do not verify in another.
pub(super) fn file_tag(id: &EditLogId, number: u64) -> u64 {
    let mut bytes = [0; 28];
    bytes[0..8].copy_from_slice(&id.database.to_le_bytes());
    bytes[8..16].copy_from_slice(&id.owner.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..28].copy_from_slice(&id.kind.to_le_bytes());
    checksum_seeded(&bytes, 0)
}

/// The length rounded up to a multiple of [`ALIGNMENT`].
pub(super) fn padded(len: u64) -> u64 {
    len.next_multiple_of(ALIGNMENT)
}

/// What a name in the log's directory means to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    /// A file of the log.
    Log(u64),
    /// A file that was being made when the process or the machine stopped.
    Unfinished,
    /// Not ours.
    Foreign,
}

pub(super) fn file_name(stem: &str, number: u64) -> String {
    format!("{stem}-{number:0NUMBER_DIGITS$}")
}

pub(super) fn unfinished_name(stem: &str, number: u64) -> String {
    file_name(stem, number) + UNFINISHED_SUFFIX
}

/// Reads a name. Only names in exactly the form that [`file_name`] gives are ours.
pub(super) fn parse_name(stem: &str, name: &str) -> FileName {
    let (base, kind) = match name.strip_suffix(UNFINISHED_SUFFIX) {
        Some(base) => (base, FileName::Unfinished),
        None => (name, FileName::Log(0)),
    };
    let digits = base.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    match number {
        Some(number) if file_name(stem, number) == base => match kind {
            FileName::Log(_) => FileName::Log(number),
            other => other,
        },
        _ => FileName::Foreign,
    }
}

/// Whether `name` is one of a log with this stem.
#[must_use]
pub fn is_log_name(stem: &str, name: &str) -> bool {
    !matches!(parse_name(stem, name), FileName::Foreign)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_mark_is_told_from_a_damaged_one() {
        for offset in [480, 488, 496, 504, 512] {
            let place = RecordPlace { tag: 7, offset, previous: 0x0102_0304_0506_0708 };
            let mut mark = Vec::new();
            put_record(&mut mark, RecordKind::Mark, &[], place, None);
            let in_first = (SECTOR_SIZE - offset % SECTOR_SIZE).min(MARK_SLOT_LEN) as usize;
            let torn = |first_end: usize, second_end: usize| {
                let mut slot = mark.clone();
                slot[first_end..in_first].fill(0);
                slot[second_end..].fill(0);
                slot
            };
            for first_end in 0..=in_first {
                for second_end in in_first..=mark.len() {
                    let slot = torn(first_end, second_end);
                    assert!(
                        is_interrupted_mark(&slot, place),
                        "{offset}: {first_end} {second_end}"
                    );
                }
            }
            for at in 0..mark.len() * 8 {
                let mut damaged = mark.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                // A byte that has one bit and only zeros behind it in its sector: cut short.
                let sector_end = if at / 8 < in_first { in_first } else { mark.len() };
                let is_cut_short = damaged[at / 8..sector_end].iter().all(|&byte| byte == 0);
                assert_eq!(is_interrupted_mark(&damaged, place), is_cut_short, "{offset}: {at}");
            }
            let mut zeros_in_front = mark.clone();
            zeros_in_front[..4].fill(0);
            assert!(!is_interrupted_mark(&zeros_in_front, place), "{offset}");
        }
    }

    #[test]
    fn only_exact_names_are_ours() {
        assert_eq!(file_name("index", 3), "index-00000003");
        assert_eq!(parse_name("index", "index-00000003"), FileName::Log(3));
        assert_eq!(parse_name("index", "index-123456789"), FileName::Log(123_456_789));
        assert_eq!(parse_name("index", "index-00000003.new"), FileName::Unfinished);
        for foreign in ["index-3", "index-0123456789", "index-00000003~", "other-00000003", "", "i"]
        {
            assert_eq!(parse_name("index", foreign), FileName::Foreign, "{foreign}");
        }
        assert_eq!(parse_name("index", "index-+0000003"), FileName::Foreign);
    }

    #[test]
    fn a_record_verifies_only_in_its_own_place() {
        let mut bytes = Vec::new();
        let place = RecordPlace { tag: 7, offset: 64, previous: 9 };
        let sum = put_record(&mut bytes, RecordKind::Edit, b"hello", place, None);
        assert_eq!(bytes.len(), 32 + 8);
        let header = RecordHeader::decode(&bytes, 7, 64, 4096).unwrap();
        assert_eq!((header.checksum, header.previous, header.length), (sum, 9, 5));
        assert!(header.covers(&bytes[32..], 7, 64));
        assert!(!header.covers(&bytes[32..], 7, 72));
        assert_eq!(RecordHeader::decode(&bytes, 8, 64, 4096), None);
        assert_eq!(RecordHeader::decode(&bytes, 7, 72, 4096), None);
        assert_eq!(RecordHeader::decode(&bytes, 7, 64, 64 + 39), None, "beyond the file");
        assert_eq!(RecordHeader::decode(&bytes[..31], 7, 64, 4096), None);
    }
}
