//! Reading a segment, from its head to its end, once. Every byte is verified before any of it is
//! handed out, and the end says that nothing is missing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{
    HASH_LEN, HEAD_LEN, RECORD_HEAD_LEN, RecordHead, RecordKind, SegmentHead, put_head_right,
    sum_of, verifies,
};
use crate::base::{Error, Result};
use crate::seal::FileKey;
use crate::storage::{MemoryStorage, OpenMode, Storage, StorageFile};

/// Bytes that are read at once.
const READ_LEN: usize = 1 << 20;

/// A segment that is being read.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    head: SegmentHead,
    /// What payloads are opened with. Without one they are handed out as they lie there.
    key: Option<Arc<FileKey>>,
    /// What was read ahead, and where it lies.
    window: Vec<u8>,
    window_at: u64,
    /// Where the next record begins.
    offset: u64,
    hasher: blake3::Hasher,
    items: u64,
    commits: u64,
    payload: Vec<u8>,
}

/// Reads the head of a segment.
///
/// # Errors
/// `Corruption`, `FormatVersion`, `Io`.
pub(super) fn read_head(
    storage: &dyn Storage,
    path: &Path,
) -> Result<(Arc<dyn StorageFile>, SegmentHead)> {
    let file = storage.open(path, OpenMode::ReadOnly);
    let file = file.map_err(|error| Error::io("open", path, error))?;
    let mut head = [0; HEAD_LEN];
    file.read_exact_at(&mut head, 0).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Error::corruption(path, 0, "the file is too short"),
        _ => Error::io("read", path, error),
    })?;
    let head = SegmentHead::decode(&head, path)?;
    let size = file.size().map_err(|error| Error::io("read", path, error))?;
    if size != head.size {
        let (what, at) = (format!("it has {size} bytes, not {}", head.size), size.min(head.size));
        return Err(Error::corruption(path, at, what));
    }
    Ok((file, head))
}

impl SegmentReader {
    /// Reads the head.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `Io`.
    pub(super) fn open(storage: &dyn Storage, path: PathBuf) -> Result<SegmentReader> {
        let (file, head) = read_head(storage, &path)?;
        Ok(SegmentReader {
            file,
            path,
            head,
            key: None,
            window: Vec::new(),
            window_at: 0,
            offset: HEAD_LEN as u64,
            hasher: blake3::Hasher::new(),
            items: 0,
            commits: 0,
            payload: Vec::new(),
        })
    }

    pub(super) fn head(&self) -> &SegmentHead {
        &self.head
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Has payloads opened with this, if they are sealed.
    pub(super) fn open_with(&mut self, key: Option<Arc<FileKey>>) {
        self.key = key;
    }

    /// The payload of the record that was read last.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Where the next record begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record: its kind and value; `None` at the end, which was verified.
    ///
    /// # Errors
    /// `Corruption` with the place; `Io`.
    pub(super) fn next_record(&mut self) -> Result<Option<(RecordKind, u64)>> {
        let at = self.offset;
        let head = *self.look(at, RECORD_HEAD_LEN)?.first_chunk().expect("so many were asked for");
        let Some(record) = RecordHead::decode(&head) else {
            return Err(Error::corruption(&self.path, at, "a record that there cannot be"));
        };
        let end = at + (RECORD_HEAD_LEN + record.len) as u64;
        let token = self.head.token;
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        let bytes = self.look(at, RECORD_HEAD_LEN + record.len)?;
        payload.extend_from_slice(&bytes[RECORD_HEAD_LEN..]);
        if !verifies(&head, &payload, (token, at)) {
            return Err(Error::corruption(&self.path, at, "a record does not verify"));
        }
        self.offset = end;
        if record.kind == RecordKind::End {
            self.expect_end(&record, &payload, at)?;
            return Ok(None);
        }
        self.hasher.update(&head);
        self.hasher.update(&payload);
        self.items += u64::from(matches!(record.kind, RecordKind::Edit | RecordKind::Commit));
        self.commits += u64::from(record.kind == RecordKind::Commit);
        if let Some(key) = &self.key {
            let opened = key.open_sealed(&record.sealed_place(at), &mut payload);
            let Some(len) = opened.map(<[u8]>::len) else {
                let what = "a record verifies, and is not what was sealed for this place";
                return Err(Error::corruption(&self.path, at, what));
            };
            payload.truncate(len);
        }
        self.payload = payload;
        Ok(Some((record.kind, record.value)))
    }

    /// Writes all its bytes to another file, which is at `path`.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn copy_to(&mut self, copy: &dyn StorageFile, path: &Path) -> Result<()> {
        let mut at = 0;
        while at < self.head.size {
            let len = (self.head.size - at).min(READ_LEN as u64);
            let bytes = self.look(at, len as usize)?;
            copy.write_all_at(bytes, at).map_err(|error| Error::io("write", path, error))?;
            at += len;
        }
        Ok(())
    }

    fn expect_end(&self, record: &RecordHead, hash: &[u8], at: u64) -> Result<()> {
        let is_whole = *hash == *self.hasher.finalize().as_bytes()
            && hash.len() == HASH_LEN
            && (record.value, self.commits) == (self.items, self.head.commits)
            && self.offset == self.head.size;
        match is_whole {
            true => Ok(()),
            false => Err(Error::corruption(&self.path, at, "it has other records than it says")),
        }
    }

    /// So many bytes from there on.
    fn look(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len as u64 > window_end {
            let left = self.head.size.saturating_sub(at);
            if left < len as u64 {
                return Err(Error::corruption(&self.path, at, "it ends early"));
            }
            let wanted = left.min(READ_LEN.max(len) as u64) as usize;
            self.window.resize(wanted, 0);
            self.window_at = at;
            let read = self.file.read_exact_at(&mut self.window, at);
            if let Err(error) = read {
                self.window.clear();
                return Err(match error.kind() {
                    ErrorKind::UnexpectedEof => Error::corruption(&self.path, at, "it ends early"),
                    _ => Error::io("read", &self.path, error),
                });
            }
        }
        let start = (at - self.window_at) as usize;
        Ok(&self.window[start..start + len])
    }
}

/// For fuzzers: the checksums are put right, as far as records can be told apart.
pub(crate) fn fuzz_segment(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEAD_LEN {
        return;
    }
    let token = put_head_right(&mut bytes);
    let mut at = HEAD_LEN;
    while let Some(head) = bytes[at..].first_chunk::<RECORD_HEAD_LEN>()
        && let Some(record) = RecordHead::decode(head)
        && let Some(payload) = bytes.get(at + RECORD_HEAD_LEN..at + RECORD_HEAD_LEN + record.len)
    {
        let sum = sum_of(head, payload, (token, at as u64));
        bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        at += RECORD_HEAD_LEN + record.len;
    }
    let (storage, path) = (MemoryStorage::new(), Path::new("/segment"));
    let file = storage.open(path, OpenMode::CreateNew).expect("memory has room");
    file.write_all_at(&bytes, 0).expect("memory has room");
    let read = SegmentReader::open(&storage, path.to_owned()).and_then(|mut reader| {
        while reader.next_record()?.is_some() {}
        Ok(())
    });
    assert!(read.is_ok() || read.is_err_and(|error| error.is_corruption()));
}
