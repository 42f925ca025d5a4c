//! The list of a backup's files.
//!
//! Layout (little-endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `LITHEBUP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | 0 |
//! | 16 | 8 | id of the repository |
//! | 24 | 8 | number of the backup |
//! | 32 | 8 | id of the database |
//! | 40 | 8 | stamp of the newest commit |
//! | 48 | 8 | when it was made, in milliseconds since 1970 |
//! | 56 | 8 | number of files |
//! | 64 | 8 | bytes of all files |
//! | 72 | 8 | those of them that were written for it |
//! | 80 | 8 | version 2: id of the trail that it is on |
//! | 88 | 8 | version 2: the stamp as of which it is there |
//! | 80 or 96 | | entries, by rising path: length of the path (2), path, length (8), hash (32) |
//! | end | 32 | BLAKE3 hash of everything in front of it |

use std::path::{Component, Path};

use crate::base::{Error, Result, SeqNo};
use crate::storage::StorageFile;

const MAGIC: &[u8; 8] = b"LITHEBUP";
/// The version of a list, and of one of a backup that is on a trail.
const VERSION: u32 = 1;
const VERSION_ON_TRAIL: u32 = 2;
const HEAD_LEN: usize = 80;
/// The same of a backup that is on a trail.
const HEAD_LEN_ON_TRAIL: usize = 96;
pub(super) const HASH_LEN: usize = 32;
/// Bytes of a list at most: some ten million files.
const LIST_LEN_MAX: u64 = 1 << 30;
/// Bytes of a path at most; those of a database are shorter by far.
const PATH_LEN_MAX: usize = 1024;

/// Bytes of an entry at most.
const ENTRY_LEN_MAX: usize = 2 + PATH_LEN_MAX + 8 + HASH_LEN;

/// Bytes, by their hash and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub len: u64,
    pub hash: [u8; HASH_LEN],
}

impl Content {
    /// What a file with it is called.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", blake3::Hash::from_bytes(self.hash).to_hex(), self.len)
    }
}

/// What a list says of the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub number: u64,
    pub database: u64,
    pub seqno: SeqNo,
    pub created_millis: u64,
    pub file_count: u64,
    pub bytes: u64,
    pub written_bytes: u64,
    pub on_trail: Option<OnTrail>,
}

/// Where a backup is on a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OnTrail {
    pub trail: u64,
    /// It has everything up to this stamp, and nothing behind it.
    pub as_of: SeqNo,
}

/// A file of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListEntry<'l> {
    /// In the database's directory, with `/` between names.
    pub path: &'l str,
    pub content: Content,
}

/// A list, verified.
#[derive(Debug)]
pub(super) struct BackupList {
    head: Head,
    entries: Vec<u8>,
}

/// Puts a list together.
#[derive(Debug, Default)]
pub(super) struct ListWriter {
    entries: Vec<u8>,
    last: String,
    pub file_count: u64,
    pub bytes: u64,
}

impl ListWriter {
    /// Adds a file, whose path is above all before it.
    ///
    /// # Errors
    /// `InvalidArgument` for a path that a list cannot have.
    pub(super) fn add(&mut self, path: &str, content: &Content) -> Result<()> {
        if !is_path(path) || (self.file_count > 0 && *path <= *self.last) {
            return Err(Error::invalid(format!("{path:?} cannot be in a backup")));
        }
        let others = HEAD_LEN_ON_TRAIL + HASH_LEN + ENTRY_LEN_MAX;
        if self.entries.len() as u64 > LIST_LEN_MAX - others as u64 {
            return Err(Error::invalid("more files than a backup can have".to_owned()));
        }
        let len = u16::try_from(path.len()).expect("paths are limited");
        self.entries.extend_from_slice(&len.to_le_bytes());
        self.entries.extend_from_slice(path.as_bytes());
        self.entries.extend_from_slice(&content.len.to_le_bytes());
        self.entries.extend_from_slice(&content.hash);
        path.clone_into(&mut self.last);
        self.file_count += 1;
        self.bytes = self.bytes.saturating_add(content.len);
        Ok(())
    }

    /// The bytes of the list.
    pub(super) fn finish(self, repository: u64, head: &Head) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_LEN_ON_TRAIL + self.entries.len() + HASH_LEN);
        bytes.extend_from_slice(MAGIC);
        let version = head.on_trail.map_or(VERSION, |_| VERSION_ON_TRAIL);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let words = [
            repository,
            head.number,
            head.database,
            head.seqno.as_u64(),
            head.created_millis,
            head.file_count,
            head.bytes,
            head.written_bytes,
        ];
        let on_trail = head.on_trail.map(|on| [on.trail, on.as_of.as_u64()]);
        for word in words.iter().chain(on_trail.iter().flatten()) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.entries);
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }
}

impl BackupList {
    /// Reads and verifies a list.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `Io`.
    pub(super) fn read(
        file: &dyn StorageFile,
        path: &Path,
        (repository, number): (u64, u64),
    ) -> Result<BackupList> {
        let size = file.size().map_err(|error| Error::io("read the size of", path, error))?;
        if !((HEAD_LEN + HASH_LEN) as u64..=LIST_LEN_MAX).contains(&size) {
            return Err(Error::corruption(path, 0, format!("a list of {size} bytes")));
        }
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|error| Error::io("read", path, error))?;
        BackupList::decode(&bytes, path, (repository, number))
    }

    pub(super) fn decode(
        bytes: &[u8],
        path: &Path,
        (repository, number): (u64, u64),
    ) -> Result<BackupList> {
        let damaged = |offset: usize, what: &str| Err(Error::corruption(path, offset as u64, what));
        if bytes.len() < HEAD_LEN + HASH_LEN {
            return damaged(0, "the list is too short");
        }
        let (listed, hash) = bytes.split_at(bytes.len() - HASH_LEN);
        if *blake3::hash(listed).as_bytes() != *hash || listed[..8] != *MAGIC {
            return damaged(0, "the list does not verify");
        }
        let version = u32::from_le_bytes(listed[8..12].try_into().expect("four bytes"));
        let head_len = match version {
            VERSION => HEAD_LEN,
            VERSION_ON_TRAIL => HEAD_LEN_ON_TRAIL,
            found => {
                let (file, known) = (path.into(), VERSION_ON_TRAIL);
                return Err(Error::FormatVersion { file, found, known });
            }
        };
        if listed.len() < head_len {
            return damaged(0, "the list is too short");
        }
        let word =
            |at: usize| u64::from_le_bytes(listed[at..at + 8].try_into().expect("eight bytes"));
        if (word(16), word(24)) != (repository, number) {
            return damaged(16, "the list is that of another backup or repository");
        }
        let head = Head {
            number,
            database: word(32),
            seqno: SeqNo::from_u64(word(40)),
            created_millis: word(48),
            file_count: word(56),
            bytes: word(64),
            written_bytes: word(72),
            on_trail: (version == VERSION_ON_TRAIL)
                .then(|| OnTrail { trail: word(80), as_of: SeqNo::from_u64(word(88)) }),
        };
        let list = BackupList { head, entries: listed[head_len..].to_vec() };
        match list.check() {
            Ok(()) => Ok(list),
            Err((offset, what)) => damaged(head_len + offset, what),
        }
    }

    /// What can be wrong although the hash is right: where, and what.
    fn check(&self) -> std::result::Result<(), (usize, &'static str)> {
        let (mut at, mut count, mut bytes) = (0, 0u64, 0u64);
        let mut last: Option<&str> = None;
        while at < self.entries.len() {
            let Some((entry, len)) = entry_at(&self.entries[at..]) else {
                return Err((at, "an entry is malformed"));
            };
            if !is_path(entry.path) || last.is_some_and(|last| entry.path <= last) {
                return Err((at, "a path that no backup has"));
            }
            last = Some(entry.path);
            count += 1;
            bytes = bytes.saturating_add(entry.content.len);
            at += len;
        }
        match (count, bytes) == (self.head.file_count, self.head.bytes) {
            true => Ok(()),
            false => Err((0, "other files than the list says")),
        }
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Its files, by rising path.
    pub(super) fn entries(&self) -> impl Iterator<Item = ListEntry<'_>> {
        let mut rest = &*self.entries;
        std::iter::from_fn(move || {
            let (entry, len) = entry_at(rest)?;
            rest = &rest[len..];
            Some(entry)
        })
    }
}

/// For fuzzers: whatever verifies is refused, or comes back as it was.
pub(crate) fn fuzz_list(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let Some(summed) = bytes.len().checked_sub(HASH_LEN).filter(|len| *len >= HEAD_LEN) else {
        return;
    };
    bytes[..8].copy_from_slice(MAGIC);
    let version = if bytes[8].is_multiple_of(2) { VERSION_ON_TRAIL } else { VERSION };
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].fill(0);
    let hash = blake3::hash(&bytes[..summed]);
    bytes[summed..].copy_from_slice(hash.as_bytes());
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (repository, number) = (word(16), word(24));
    let Ok(list) = BackupList::decode(&bytes, Path::new("l"), (repository, number)) else { return };
    let mut writer = ListWriter::default();
    for entry in list.entries() {
        writer.add(entry.path, &entry.content).expect("what was read can be written");
    }
    assert_eq!(writer.finish(repository, list.head()), bytes);
}

/// The entry at the start of these bytes, and its length.
fn entry_at(bytes: &[u8]) -> Option<(ListEntry<'_>, usize)> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    let path_len = usize::from(u16::from_le_bytes(*len));
    let (path, rest) = rest.split_at_checked(path_len)?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let hash = rest.first_chunk::<HASH_LEN>()?;
    let content = Content { len: u64::from_le_bytes(*len), hash: *hash };
    let entry = ListEntry { path: std::str::from_utf8(path).ok()?, content };
    Some((entry, 2 + path_len + 8 + HASH_LEN))
}

/// Whether it is a path of a file within a directory: nothing that leads elsewhere.
pub(super) fn is_path(path: &str) -> bool {
    let is_plain = |name: &str| {
        !name.is_empty()
            && name != "."
            && name != ".."
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    !path.is_empty()
        && path.len() <= PATH_LEN_MAX
        && path.split('/').all(is_plain)
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(byte: u8) -> Content {
        Content { len: u64::from(byte) * 100, hash: [byte; HASH_LEN] }
    }

    fn head(file_count: u64, bytes: u64) -> Head {
        Head {
            number: 3,
            database: 77,
            seqno: SeqNo::from_u64(123),
            created_millis: 5,
            file_count,
            bytes,
            written_bytes: 9,
            on_trail: None,
        }
    }

    fn list() -> Vec<u8> {
        let mut writer = ListWriter::default();
        writer.add("MANIFEST-00000001", &content(1)).unwrap();
        writer.add("keyspaces/00000001/seg-00000007", &content(2)).unwrap();
        let head = head(writer.file_count, writer.bytes);
        writer.finish(42, &head)
    }

    fn decode(bytes: &[u8]) -> Result<BackupList> {
        BackupList::decode(bytes, Path::new("l"), (42, 3))
    }

    #[test]
    fn a_list_comes_back_and_every_flipped_bit_is_found() {
        let bytes = list();
        let found = decode(&bytes).unwrap();
        assert_eq!(*found.head(), head(2, 300));
        let paths: Vec<&str> = found.entries().map(|entry| entry.path).collect();
        assert_eq!(paths, ["MANIFEST-00000001", "keyspaces/00000001/seg-00000007"]);
        assert_eq!(found.entries().nth(1).unwrap().content, content(2));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).unwrap_err().is_corruption(), "{bit}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).unwrap_err().is_corruption(), "{len}");
        }
        let other = BackupList::decode(&bytes, Path::new("l"), (42, 4)).unwrap_err();
        assert!(other.is_corruption());
    }

    /// Put together after `docs/format/backup.md`.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        let mut bytes = b"LITHEBUP".to_vec();
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        for word in [42u64, 3, 77, 123, 5, 1, 100, 9] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([3, 0]);
        bytes.extend(b"a/b");
        bytes.extend(100u64.to_le_bytes());
        bytes.extend([1; 32]);
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        let found = decode(&bytes).unwrap();
        assert_eq!(*found.head(), head(1, 100));
        let entry = found.entries().next().unwrap();
        assert_eq!((entry.path, entry.content), ("a/b", content(1)));
        let mut writer = ListWriter::default();
        writer.add("a/b", &content(1)).unwrap();
        assert_eq!(writer.finish(42, &head(1, 100)), bytes);
    }

    #[test]
    fn one_that_is_on_a_trail_says_where() {
        let on_trail = Some(OnTrail { trail: 5, as_of: SeqNo::from_u64(130) });
        let mut writer = ListWriter::default();
        writer.add("a/b", &content(1)).unwrap();
        let head = Head { on_trail, ..head(1, 100) };
        let bytes = writer.finish(42, &head);
        assert_eq!((bytes[8], bytes[80], bytes[88]), (2, 5, 130));
        let found = decode(&bytes).unwrap();
        assert_eq!(*found.head(), head);
        assert_eq!(found.entries().next().unwrap().path, "a/b");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).unwrap_err().is_corruption(), "{bit}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).unwrap_err().is_corruption(), "{len}");
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused_by_writers_and_readers() {
        let bad = ["", "/etc", "a//b", "../a", "a/../b", "a/.", "a/", "a\\b", "a\0", "\u{e9}"];
        for path in bad {
            assert!(ListWriter::default().add(path, &content(1)).is_err(), "{path:?}");
            let mut entries = Vec::new();
            entries.extend_from_slice(&(path.len() as u16).to_le_bytes());
            entries.extend_from_slice(path.as_bytes());
            entries.extend_from_slice(&content(1).len.to_le_bytes());
            entries.extend_from_slice(&content(1).hash);
            let writer = ListWriter { entries, file_count: 1, bytes: 100, ..Default::default() };
            let refused = decode(&writer.finish(42, &head(1, 100))).unwrap_err();
            assert!(refused.is_corruption(), "{path:?}");
        }
        let mut writer = ListWriter::default();
        writer.add("b", &content(1)).unwrap();
        assert!(writer.add("b", &content(1)).is_err() && writer.add("a", &content(1)).is_err());
        let crowded = writer.finish(42, &head(7, 100));
        assert!(decode(&crowded).unwrap_err().is_corruption(), "files that are not there");
    }
}
