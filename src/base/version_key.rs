//! Keys of an archive of versions: all versions of a keyspace, found by key, and by stamp.
//!
//! | entry | key | value |
//! |---|---|---|
//! | by key | 0, the key escaped, 0 0, the stamp's complement, what | that of the version |
//! | by stamp | 1, the stamp, the key | what; of an ingest a byte 1 behind it |
//!
//! Stamps are big-endian numbers of 8 bytes. In an escaped key each byte 0 is followed by a 1, so
//! that 0 0 ends it, and the order of keys is kept; behind it the newest version comes first.
//! *What* is one byte: 1 for a version that has a value, 0 for a deletion.

use crate::base::SeqNo;

const BY_KEY: u8 = 0;
const BY_STAMP: u8 = 1;
const ESCAPE: u8 = 1;
const END: [u8; 2] = [0, 0];
const STAMP_LEN: usize = 8;
/// Bytes of an entry by key behind what all versions of the key begin with.
pub const TAIL_LEN: usize = STAMP_LEN + 1;

/// What an entry by stamp holds that an ingest has brought.
pub const INGESTED: [u8; 2] = [VersionKind::Put as u8, 1];

/// What a version says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VersionKind {
    /// It was deleted.
    Deleted = 0,
    /// It had a value.
    Put = 1,
}

impl VersionKind {
    /// The kind of this number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<VersionKind> {
        match number {
            0 => Some(VersionKind::Deleted),
            1 => Some(VersionKind::Put),
            _ => None,
        }
    }
}

/// A key of an archive, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionKey {
    /// Of an entry by key.
    ByKey {
        /// The key.
        key: Vec<u8>,
        /// The stamp of the version.
        stamp: SeqNo,
        /// What it says.
        kind: VersionKind,
    },
    /// Of an entry by stamp.
    ByStamp {
        /// The stamp of the version.
        stamp: SeqNo,
        /// The key.
        key: Vec<u8>,
    },
}

impl VersionKey {
    /// Takes a key of an archive apart; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<VersionKey> {
        match *bytes.first()? {
            BY_KEY => {
                let head = key_of_head(by_key_head(bytes)?)?;
                let (stamp, kind) = tail_of(bytes)?;
                Some(VersionKey::ByKey { key: head, stamp, kind })
            }
            BY_STAMP => {
                let (stamp, key) = bytes[1..].split_first_chunk::<STAMP_LEN>()?;
                let stamp = SeqNo::from_u64(u64::from_be_bytes(*stamp));
                Some(VersionKey::ByStamp { stamp, key: key.to_vec() })
            }
            _ => None,
        }
    }
}

/// Bytes of the key by which the versions of `key` are found, at most those of what an archive
/// stores of it in both orders.
#[must_use]
pub fn archived_len(key: &[u8]) -> usize {
    let escaped = key.iter().filter(|byte| **byte == 0).count();
    1 + key.len() + escaped + END.len() + TAIL_LEN
}

/// Puts what all keys of versions of `key` begin with into `out`, in place of what is there.
pub fn put_head(out: &mut Vec<u8>, key: &[u8]) {
    out.clear();
    out.push(BY_KEY);
    let mut rest = key;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(ESCAPE);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&END);
}

/// Appends the rest of the key of a version, to what [`put_head`] has put.
pub fn put_tail(out: &mut Vec<u8>, stamp: SeqNo, kind: VersionKind) {
    out.extend_from_slice(&(!stamp.as_u64()).to_be_bytes());
    out.push(kind as u8);
}

/// Appends the part of a tail in front of which are the versions newer than `stamp`, and behind
/// which are that one and the older ones.
pub fn put_stamp_bound(out: &mut Vec<u8>, stamp: SeqNo) {
    out.extend_from_slice(&(!stamp.as_u64()).to_be_bytes());
}

/// The stamp of which such a part of a tail is; `None` if it is none.
#[must_use]
pub fn stamp_of_bound(bound: &[u8]) -> Option<SeqNo> {
    let bytes = <[u8; STAMP_LEN]>::try_from(bound).ok()?;
    Some(SeqNo::from_u64(!u64::from_be_bytes(bytes)))
}

/// The first key of an archive above all versions of the key with this head.
#[must_use]
pub fn behind_head(head: &[u8]) -> Vec<u8> {
    let mut behind = Vec::with_capacity(head.len());
    put_behind_head(&mut behind, head);
    behind
}

/// Puts that key into `out`, in place of what is there.
pub fn put_behind_head(out: &mut Vec<u8>, head: &[u8]) {
    let (_, rest) = head.split_last().unwrap_or((&0, &[]));
    out.clear();
    out.extend_from_slice(rest);
    // 0 1 follows 0 0, and stands in front of whatever else follows the key's bytes.
    out.push(ESCAPE);
}

/// Whether what begins with this key of an archive may have entries by key.
#[must_use]
pub fn is_by_key(first: &[u8]) -> bool {
    first.first().is_none_or(|kind| *kind == BY_KEY)
}

/// Head of the entry by key with this key of an archive.
#[must_use]
pub fn by_key_head(bytes: &[u8]) -> Option<&[u8]> {
    let head = &bytes[..bytes.len().checked_sub(TAIL_LEN)?];
    (head.first() == Some(&BY_KEY) && head.len() > END.len() && head.ends_with(&END))
        .then_some(head)
}

/// Stamp and kind of the entry by key with this key of an archive.
#[must_use]
pub fn tail_of(bytes: &[u8]) -> Option<(SeqNo, VersionKind)> {
    let (rest, kind) = bytes.split_last().map(|(kind, rest)| (rest, *kind))?;
    let stamp = rest.last_chunk::<STAMP_LEN>()?;
    let stamp = SeqNo::from_u64(!u64::from_be_bytes(*stamp));
    Some((stamp, VersionKind::from_u8(kind)?))
}

/// The key that a head is of.
#[must_use]
pub fn key_of_head(head: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(head.len());
    put_key_of_head(&mut key, head)?;
    Some(key)
}

/// The key that these bytes, which may be any in the order of an archive's keys, begin with as one
/// by key; `None` if they do not.
#[must_use]
pub fn key_in_front(bytes: &[u8]) -> Option<Vec<u8>> {
    key_of_head(head_in_front(bytes)?)
}

/// The head that these bytes, which may be any in the order of an archive's keys, begin with;
/// `None` if they do not: then they are not between two versions of a key.
#[must_use]
pub fn head_in_front(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&[BY_KEY])?;
    let end = rest.windows(END.len()).position(|two| two == END)?;
    Some(&bytes[..1 + end + END.len()])
}

/// Puts the key that a head is of into `out`, in place of what is there.
#[must_use]
pub fn put_key_of_head(out: &mut Vec<u8>, head: &[u8]) -> Option<()> {
    out.clear();
    let mut rest = head.strip_prefix(&[BY_KEY])?.strip_suffix(&END)?;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        rest = rest[zero + 1..].strip_prefix(&[ESCAPE])?;
    }
    out.extend_from_slice(rest);
    Some(())
}

/// The key of an archive in front of which are all entries by key.
#[must_use]
pub fn behind_keys() -> Vec<u8> {
    vec![BY_STAMP]
}

/// Puts the key of the entry by stamp into `out`, in place of what is there.
pub fn put_by_stamp(out: &mut Vec<u8>, stamp: SeqNo, key: &[u8]) {
    out.clear();
    out.push(BY_STAMP);
    out.extend_from_slice(&stamp.as_u64().to_be_bytes());
    out.extend_from_slice(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_key(key: &[u8], stamp: u64, kind: VersionKind) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_head(&mut bytes, key);
        put_tail(&mut bytes, SeqNo::from_u64(stamp), kind);
        bytes
    }

    #[test]
    fn versions_are_in_the_order_of_keys_the_newest_first() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"\0\x01", b"\x01", b"a", b"a\0", b"a\0b", b"ab"];
        let mut all = Vec::new();
        for key in keys {
            for stamp in [u64::MAX, 300, 7, 0] {
                all.push((key, stamp, by_key(key, stamp, VersionKind::Put)));
            }
        }
        assert!(all.is_sorted_by(|a, b| a.2 < b.2));
        for (key, stamp, bytes) in &all {
            let stamp = SeqNo::from_u64(*stamp);
            let (key, kind) = (key.to_vec(), VersionKind::Put);
            assert_eq!(bytes.len(), archived_len(&key));
            let head = by_key_head(bytes).unwrap();
            assert!(behind_head(head) > *bytes && *behind_head(head) > *head);
            assert_eq!(tail_of(bytes), Some((stamp, kind)));
            assert_eq!(VersionKey::decode(bytes), Some(VersionKey::ByKey { key, stamp, kind }));
            assert!(*bytes < behind_keys());
        }
        for (low, high) in all.iter().zip(&all[1..]).filter(|(low, high)| low.0 != high.0) {
            let behind = behind_head(by_key_head(&low.2).unwrap());
            assert!(behind <= high.2, "nothing of another key is in front of it");
        }
    }

    #[test]
    fn entries_by_stamp_are_behind_those_by_key_and_in_order() {
        let mut all = Vec::new();
        for stamp in [0, 5, 1 << 40, u64::MAX] {
            for key in [&b""[..], b"\0", b"a"] {
                let mut bytes = Vec::new();
                put_by_stamp(&mut bytes, SeqNo::from_u64(stamp), key);
                let (stamp, key) = (SeqNo::from_u64(stamp), key.to_vec());
                assert_eq!(VersionKey::decode(&bytes), Some(VersionKey::ByStamp { stamp, key }));
                all.push(bytes);
            }
        }
        assert!(all.is_sorted_by(|a, b| a < b) && all[0] >= behind_keys());
    }

    #[test]
    fn what_is_no_key_of_an_archive_is_none() {
        let mut unescaped = by_key(b"ab", 1, VersionKind::Put);
        unescaped[2] = 0;
        let mut unknown = by_key(b"ab", 1, VersionKind::Put);
        *unknown.last_mut().unwrap() = 2;
        let short = [1, 0, 0, 0];
        let bad: [&[u8]; 6] = [b"", b"\0", b"\x02abc", &unescaped, &unknown, &short];
        assert!(bad.iter().all(|bytes| VersionKey::decode(bytes).is_none()));
    }
}
