//! The bytes of a segment of a trail.
//!
//! Pure: bytes in, values out.
//!
//! Layout of the head (160 bytes; little-endian, as everything)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `LITHETRL` |
//! | 8 | 4 | version | 1 |
//! | 12 | 2 | key | number of the data key that payloads are sealed with; 0: they are not |
//! | 14 | 1 | end | why the trail ends with this segment; 0: it does not |
//! | 15 | 1 | reserved | 0 |
//! | 16 | 8 | repository | its id |
//! | 24 | 8 | trail | its id |
//! | 32 | 8 | number | of the segment, from 1 on |
//! | 40 | 8 | database | its id |
//! | 48 | 8 | behind | it has everything behind this stamp .. |
//! | 56 | 8 | to | .. up to this one |
//! | 64 | 8 | token | drawn when it was written |
//! | 72 | 8 | previous | the token of the segment in front of it; 0: none |
//! | 80 | 8 | log position | where the database's log went on behind it |
//! | 88 | 8 | written | milliseconds since 1970 |
//! | 96 | 8 | commits | how many it has |
//! | 104 | 8 | size | bytes of the file |
//! | 112 | 8 | begun | the stamp that the trail begins behind |
//! | 120 | 32 | keyring | BLAKE3 hash of the keyring's file; zeros without a key |
//! | 152 | 8 | checksum | of bytes 0..152, with tag 0 and offset 0 |
//!
//! Layout of a record (24 bytes and a payload)
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | checksum | of bytes 8.. and the payload; tag: the token, offset: its own |
//! | 8 | 4 | kind | see [`RecordKind`] |
//! | 12 | 4 | length | of the payload in the file |
//! | 16 | 8 | value | the stamp of the edit or commit; of the end, how many of these there are |
//! | 24 | length | payload | |

use std::path::Path;

use crate::base::{ChecksumStream, Error, Result, SeqNo, checksum};
use crate::manifest::TrailEndReason;
use crate::seal::{FileIdentity, SEAL_LEN};

const MAGIC: &[u8; 8] = b"LITHETRL";
/// The newest version that is known.
pub(super) const VERSION: u32 = 1;
pub(super) const HEAD_LEN: usize = 160;
const SUMMED_LEN: usize = 152;
const KEYRING_AT: usize = 120;
pub(super) const HASH_LEN: usize = 32;
pub(super) const RECORD_HEAD_LEN: usize = 24;
/// Bytes of a commit or a value that are in one record, at most.
pub(super) const PIECE_LEN_MAX: usize = 64 << 10;
/// In front of a piece of a value: the number of its keyspace.
pub(super) const KEYSPACE_LEN: usize = 4;
/// Bytes of a payload at most, before it is sealed.
pub(super) const PAYLOAD_LEN_MAX: usize = KEYSPACE_LEN + PIECE_LEN_MAX;

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    /// Number of the data key; 0 for none.
    pub key: u16,
    /// Why the trail ends with it, if it does.
    pub end: Option<TrailEndReason>,
    pub repository: u64,
    pub trail: u64,
    pub number: u64,
    pub database: u64,
    /// It has everything behind this ..
    pub behind: SeqNo,
    /// .. up to this.
    pub to: SeqNo,
    pub token: u64,
    pub previous: u64,
    pub log_position: u64,
    pub written_millis: u64,
    pub commits: u64,
    pub size: u64,
    /// Behind this stamp the trail begins.
    pub begun: SeqNo,
    pub keyring: [u8; HASH_LEN],
}

impl SegmentHead {
    pub(super) fn encode(&self) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..14].copy_from_slice(&self.key.to_le_bytes());
        head[14] = self.end.map_or(0, TrailEndReason::code);
        let words = [
            self.repository,
            self.trail,
            self.number,
            self.database,
            self.behind.as_u64(),
            self.to.as_u64(),
            self.token,
            self.previous,
            self.log_position,
            self.written_millis,
            self.commits,
            self.size,
            self.begun.as_u64(),
        ];
        for (index, word) in words.into_iter().enumerate() {
            head[16 + 8 * index..24 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        head[KEYRING_AT..KEYRING_AT + HASH_LEN].copy_from_slice(&self.keyring);
        let sum = checksum(&head[..SUMMED_LEN], 0, 0);
        head[SUMMED_LEN..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// # Errors
    /// `Corruption`, `FormatVersion`.
    pub(super) fn decode(head: &[u8; HEAD_LEN], path: &Path) -> Result<SegmentHead> {
        let damaged = |what: &str| Err(Error::corruption(path, 0, what));
        let word = |at: usize| u64_at(head, at);
        if head[..8] != *MAGIC || word(SUMMED_LEN) != checksum(&head[..SUMMED_LEN], 0, 0) {
            return damaged("the head does not verify");
        }
        let found = u32_at(head, 8);
        if found != VERSION {
            return Err(Error::FormatVersion { file: path.into(), found, known: VERSION });
        }
        let end = match head[14] {
            0 => None,
            code => match TrailEndReason::from_code(code) {
                Some(reason) => Some(reason),
                None => return damaged("it ends for a reason that is not known"),
            },
        };
        let head = SegmentHead {
            key: u16::from_le_bytes(head[12..14].try_into().expect("two bytes")),
            end,
            repository: word(16),
            trail: word(24),
            number: word(32),
            database: word(40),
            behind: SeqNo::from_u64(word(48)),
            to: SeqNo::from_u64(word(56)),
            token: word(64),
            previous: word(72),
            log_position: word(80),
            written_millis: word(88),
            commits: word(96),
            size: word(104),
            begun: SeqNo::from_u64(word(112)),
            keyring: head[KEYRING_AT..KEYRING_AT + HASH_LEN].try_into().expect("32 bytes"),
        };
        let is_sane = head.begun <= head.behind
            && head.behind <= head.to
            && head.token != 0
            && (head.key == 0) == (head.keyring == [0; HASH_LEN]);
        if is_sane { Ok(head) } else { damaged("a head that there cannot be") }
    }
}

/// What the payloads of a segment are sealed for.
pub(super) fn identity(database: u64, trail: u64, number: u64) -> FileIdentity {
    FileIdentity { kind: *b"trl ", database, owner: trail, number }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// An edit of the catalogue.
    Edit = 1,
    /// The number of a keyspace (4 bytes), and a piece of a large value that the commit which
    /// follows puts there; not the last piece.
    ValuePart = 2,
    /// The same with the last piece.
    Value = 3,
    /// A piece of the record of a commit, and not the last one.
    CommitPart = 4,
    /// The last piece of one.
    Commit = 5,
    /// The end, which is not sealed: BLAKE3 hash of all bytes between the head and this record.
    End = 6,
}

/// What stands in front of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub kind: RecordKind,
    /// Of the payload, as it lies in the file.
    pub len: usize,
    pub value: u64,
}

impl RecordHead {
    /// Without its checksum.
    pub(super) fn encode(&self) -> [u8; RECORD_HEAD_LEN] {
        let mut head = [0; RECORD_HEAD_LEN];
        head[8..12].copy_from_slice(&(self.kind as u32).to_le_bytes());
        head[12..16].copy_from_slice(&(self.len as u32).to_le_bytes());
        head[16..].copy_from_slice(&self.value.to_le_bytes());
        head
    }

    /// `None` for one that there cannot be: its length is not to be trusted.
    pub(super) fn decode(head: &[u8; RECORD_HEAD_LEN]) -> Option<RecordHead> {
        let kind = match u32_at(head, 8) {
            1 => RecordKind::Edit,
            2 => RecordKind::ValuePart,
            3 => RecordKind::Value,
            4 => RecordKind::CommitPart,
            5 => RecordKind::Commit,
            6 => RecordKind::End,
            _ => return None,
        };
        let len = usize::try_from(u32_at(head, 12)).ok()?;
        let is_possible = match kind {
            RecordKind::End => len == HASH_LEN,
            _ => len <= PAYLOAD_LEN_MAX + SEAL_LEN,
        };
        is_possible.then_some(RecordHead { kind, len, value: u64_at(head, 16) })
    }

    /// What is authenticated with a payload that is sealed, at this offset.
    pub(super) fn sealed_place(&self, offset: u64) -> [u8; RECORD_HEAD_LEN] {
        let mut place = self.encode();
        place[..8].copy_from_slice(&offset.to_le_bytes());
        place
    }
}

/// The checksum of a record at `offset`.
pub(super) fn sum_of(head: &[u8], payload: &[u8], (token, offset): (u64, u64)) -> u64 {
    let mut sum = ChecksumStream::new(token, offset);
    sum.update(&head[8..RECORD_HEAD_LEN]);
    sum.update(payload);
    sum.finish()
}

/// Whether head and payload are those of a record at this place.
pub(super) fn verifies(head: &[u8; RECORD_HEAD_LEN], payload: &[u8], place: (u64, u64)) -> bool {
    u64_at(head, 0) == sum_of(head, payload, place)
}

/// For fuzzers: what is looked at before anything else. The token.
pub(super) fn put_head_right(bytes: &mut [u8]) -> u64 {
    let size = bytes.len() as u64;
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[104..112].copy_from_slice(&size.to_le_bytes());
    let sum = checksum(&bytes[..SUMMED_LEN], 0, 0);
    bytes[SUMMED_LEN..HEAD_LEN].copy_from_slice(&sum.to_le_bytes());
    u64_at(bytes, 64)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}
