//! The bytes of a stream.
//!
//! Pure: bytes in, values out.
//!
//! Layout of the head (80 bytes; little-endian, as everything)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LITHESTR` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | reserved | 0 |
//! | 16 | 8 | stream | a number drawn for it |
//! | 24 | 8 | database | id of the database |
//! | 32 | 8 | stamp | of the newest commit |
//! | 40 | 8 | created | milliseconds since 1970 |
//! | 48 | 8 | files | how many follow |
//! | 56 | 8 | bytes | of all of them |
//! | 64 | 8 | reserved | 0 |
//! | 72 | 8 | checksum | of bytes 0..72, with tag 0 and offset 0 |
//!
//! Layout of a record (24 bytes and a payload)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | checksum | of bytes 8.. and the payload; tag: the stream's number, offset: its own |
//! | 8 | 4 | kind | 1 file, 2 bytes, 3 zeros, 4 end of a file, 5 end |
//! | 12 | 4 | length | of the payload |
//! | 16 | 8 | value | file: its length; zeros: how many; end: the number of files; else 0 |
//! | 24 | length | payload | file: its path; bytes: these; ends: BLAKE3 hash of it, of all files |

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::backup::BackupInfo;
use crate::backup::list::HASH_LEN;
use crate::base::{ChecksumStream, Error, Result, SeqNo, checksum};

const MAGIC: &[u8; 8] = b"LITHESTR";
pub(super) const VERSION: u32 = 1;
pub(super) const HEAD_LEN: usize = 80;
const SUMMED_LEN: usize = 72;
pub(super) const RECORD_HEAD_LEN: usize = 24;
/// Bytes of a payload at most.
pub(super) const PAYLOAD_LEN_MAX: usize = 64 << 10;

/// What a stream says of itself at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamInfo {
    /// The id of the database.
    pub database: u64,
    /// The newest commit that it has.
    pub seqno: SeqNo,
    /// When it was made, in milliseconds since 1970, by the clock of the database.
    pub created_millis: u64,
    /// Files that follow.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl StreamInfo {
    /// When it was made, by the clock of the database.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        let since = Duration::from_millis(self.created_millis);
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// What a stream of this backup says.
    pub(in crate::backup) fn of(backup: &BackupInfo) -> StreamInfo {
        StreamInfo {
            database: backup.database,
            seqno: backup.seqno,
            created_millis: backup.created_millis,
            files: backup.files,
            bytes: backup.bytes,
        }
    }

    /// The head of a stream of this number.
    pub(super) fn encode(&self, stream: u64) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let words = [
            stream,
            self.database,
            self.seqno.as_u64(),
            self.created_millis,
            self.files,
            self.bytes,
        ];
        for (index, word) in words.into_iter().enumerate() {
            head[16 + 8 * index..24 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&head[..SUMMED_LEN], 0, 0);
        head[SUMMED_LEN..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// The number of the stream, and what it says of itself.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`.
    pub(super) fn decode(head: &[u8; HEAD_LEN], path: &Path) -> Result<(u64, StreamInfo)> {
        let word = |at: usize| u64_at(head, at);
        if head[..8] != *MAGIC || word(SUMMED_LEN) != checksum(&head[..SUMMED_LEN], 0, 0) {
            return Err(Error::corruption(path, 0, "this is no backup, or its head is damaged"));
        }
        let found = u32_at(head, 8);
        if found != VERSION {
            return Err(Error::FormatVersion { file: path.into(), found, known: VERSION });
        }
        let info = StreamInfo {
            database: word(24),
            seqno: SeqNo::from_u64(word(32)),
            created_millis: word(40),
            files: word(48),
            bytes: word(56),
        };
        Ok((word(16), info))
    }
}

/// For fuzzers: makes magic, version and checksum what they have to be. The stream's number.
pub(super) fn put_head_right(bytes: &mut [u8]) -> u64 {
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sum = checksum(&bytes[..SUMMED_LEN], 0, 0);
    bytes[SUMMED_LEN..HEAD_LEN].copy_from_slice(&sum.to_le_bytes());
    u64_at(bytes, 16)
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    File = 1,
    Bytes = 2,
    Zeros = 3,
    EndOfFile = 4,
    End = 5,
}

/// What stands in front of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub kind: RecordKind,
    pub len: usize,
    pub value: u64,
}

impl RecordHead {
    /// The head of a record at `offset` of a stream.
    pub(super) fn encode(&self, payload: &[u8], stream: u64, offset: u64) -> [u8; RECORD_HEAD_LEN] {
        let mut head = [0; RECORD_HEAD_LEN];
        head[8..12].copy_from_slice(&(self.kind as u32).to_le_bytes());
        head[12..16].copy_from_slice(&(self.len as u32).to_le_bytes());
        head[16..].copy_from_slice(&self.value.to_le_bytes());
        let sum = sum_of(&head, payload, stream, offset);
        head[..8].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// `None` for one that there cannot be: its length is not to be trusted.
    pub(super) fn decode(head: &[u8; RECORD_HEAD_LEN]) -> Option<RecordHead> {
        let kind = match u32_at(head, 8) {
            1 => RecordKind::File,
            2 => RecordKind::Bytes,
            3 => RecordKind::Zeros,
            4 => RecordKind::EndOfFile,
            5 => RecordKind::End,
            _ => return None,
        };
        let len = usize::try_from(u32_at(head, 12)).ok()?;
        let is_possible = match kind {
            RecordKind::File | RecordKind::Bytes => (1..=PAYLOAD_LEN_MAX).contains(&len),
            RecordKind::Zeros => len == 0,
            RecordKind::EndOfFile | RecordKind::End => len == HASH_LEN,
        };
        is_possible.then_some(RecordHead { kind, len, value: u64_at(head, 16) })
    }
}

/// Whether head and payload are those of a record at this place.
pub(super) fn verifies(
    head: &[u8; RECORD_HEAD_LEN],
    payload: &[u8],
    (stream, offset): (u64, u64),
) -> bool {
    u64_at(head, 0) == sum_of(head, payload, stream, offset)
}

fn sum_of(head: &[u8; RECORD_HEAD_LEN], payload: &[u8], stream: u64, offset: u64) -> u64 {
    let mut sum = ChecksumStream::new(stream, offset);
    sum.update(&head[8..]);
    sum.update(payload);
    sum.finish()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}
