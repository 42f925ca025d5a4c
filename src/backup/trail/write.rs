//! Writing a segment, from its first record to its last, and then the head.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{
    HEAD_LEN, PAYLOAD_LEN_MAX, PIECE_LEN_MAX, RECORD_HEAD_LEN, RecordHead, RecordKind, SegmentHead,
    sum_of,
};
use crate::base::{Error, Result, SeqNo};
use crate::seal::{FileKey, SEAL_LEN};
use crate::storage::{OpenMode, Storage, StorageFile};

/// Bytes that are written at once.
const WRITE_LEN: usize = 1 << 20;

/// A segment that is being written, in a file that is not one yet.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    key: Option<Arc<FileKey>>,
    token: u64,
    /// Where what is gathered belongs.
    offset: u64,
    gathered: Vec<u8>,
    /// Of all records.
    hasher: blake3::Hasher,
    /// Edits and commits.
    items: u64,
    commits: u64,
}

impl SegmentWriter {
    /// Makes the file.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn begin(
        storage: &dyn Storage,
        path: PathBuf,
        key: Option<Arc<FileKey>>,
        token: u64,
    ) -> Result<SegmentWriter> {
        let file = storage.open(&path, OpenMode::CreateNew);
        let file = file.map_err(|error| Error::io("create", &path, error))?;
        Ok(SegmentWriter {
            file,
            path,
            key,
            token,
            offset: HEAD_LEN as u64,
            gathered: Vec::new(),
            hasher: blake3::Hasher::new(),
            items: 0,
            commits: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What its payloads are sealed with.
    pub(super) fn key(&self) -> Option<Arc<FileKey>> {
        self.key.clone()
    }

    /// Bytes of it so far.
    pub(super) fn size(&self) -> u64 {
        self.offset + self.gathered.len() as u64
    }

    /// Adds a record whose payload is `parts` one after the other.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn record(&mut self, kind: RecordKind, value: u64, parts: &[&[u8]]) -> Result<()> {
        self.items += u64::from(matches!(kind, RecordKind::Edit | RecordKind::Commit));
        self.commits += u64::from(kind == RecordKind::Commit);
        let offset = self.size();
        let seal_len = if self.key.is_some() { SEAL_LEN } else { 0 };
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        debug_assert!(len <= PAYLOAD_LEN_MAX, "pieces are limited");
        let head = RecordHead { kind, len: len + seal_len, value };
        let start = self.gathered.len();
        self.gathered.extend_from_slice(&head.encode());
        parts.iter().for_each(|part| self.gathered.extend_from_slice(part));
        if let Some(key) = &self.key {
            let place = head.sealed_place(offset);
            key.seal_tail(&place, &mut self.gathered, start + RECORD_HEAD_LEN);
        }
        self.put_sum(start, offset);
        if self.gathered.len() >= WRITE_LEN { self.write_gathered() } else { Ok(()) }
    }

    /// Adds an edit of the catalogue.
    ///
    /// # Errors
    /// `InvalidArgument` for one that is too long; `DiskFull`, `Io`.
    pub(super) fn edit(&mut self, seqno: SeqNo, edit: &[u8]) -> Result<()> {
        if edit.len() > PAYLOAD_LEN_MAX {
            let len = edit.len();
            return Err(Error::invalid(format!("an edit of the catalogue of {len} bytes")));
        }
        self.record(RecordKind::Edit, seqno.as_u64(), &[edit])
    }

    /// Adds a commit, behind its large values.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn commit(&mut self, seqno: SeqNo, record: &[u8]) -> Result<()> {
        let mut left = record;
        while let Some((part, rest)) = left.split_at_checked(PIECE_LEN_MAX)
            && !rest.is_empty()
        {
            self.record(RecordKind::CommitPart, seqno.as_u64(), &[part])?;
            left = rest;
        }
        self.record(RecordKind::Commit, seqno.as_u64(), &[left])
    }

    /// Ends it, and puts in front what it says of itself: what is left to be said is filled in.
    /// Durable on return, but for its name.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn finish(mut self, head: SegmentHead) -> Result<SegmentHead> {
        self.write_gathered()?;
        let hash = self.hasher.finalize();
        let offset = self.offset;
        let end =
            RecordHead { kind: RecordKind::End, len: hash.as_bytes().len(), value: self.items };
        self.gathered.extend_from_slice(&end.encode());
        self.gathered.extend_from_slice(hash.as_bytes());
        self.put_sum(0, offset);
        self.write_gathered()?;
        let head = SegmentHead {
            key: self.key.as_ref().map_or(0, |key| key.id()),
            token: self.token,
            commits: self.commits,
            size: self.offset,
            ..head
        };
        let io = |action| {
            let path = &self.path;
            move |error| Error::io(action, path, error)
        };
        self.file.write_all_at(&head.encode(), 0).map_err(io("write"))?;
        self.file.sync().map_err(io("sync"))?;
        Ok(head)
    }

    /// Puts the checksum of the record in front that begins here among what is gathered.
    fn put_sum(&mut self, start: usize, offset: u64) {
        let (head, payload) = self.gathered[start..].split_at(RECORD_HEAD_LEN);
        let sum = sum_of(head, payload, (self.token, offset));
        self.gathered[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    }

    fn write_gathered(&mut self) -> Result<()> {
        self.hasher.update(&self.gathered);
        let wrote = self.file.write_all_at(&self.gathered, self.offset);
        wrote.map_err(|error| Error::io("write", &self.path, error))?;
        self.file.begin_writeback(self.offset, self.gathered.len() as u64);
        self.offset += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}
