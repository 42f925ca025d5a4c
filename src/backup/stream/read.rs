//! Receiving: a stream is read from its beginning to its end, once.

use std::io::{ErrorKind, Read};
use std::path::Path;

use super::format::{
    HEAD_LEN, PAYLOAD_LEN_MAX, RECORD_HEAD_LEN, RecordHead, RecordKind, StreamInfo, put_head_right,
    verifies,
};
use crate::backup::list::{Content, HASH_LEN, is_path};
use crate::backup::work::{BackupOptions, Work};
use crate::base::{BACKUP_STREAM, Error, Result};

/// A backup that comes as a stream, as [`Db::backup_to`](crate::Db::backup_to) and
/// [`BackupRepository::export`](crate::BackupRepository::export) write it.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// use lithedb::{BackupOptions, BackupStream, Db, RestoreOptions};
/// let db = Db::open(path("animals"))?;
/// db.keyspace_or_create("animals")?.put("otter", "swims")?;
/// let mut sent = Vec::new();
/// db.backup_to(&mut sent, BackupOptions::new())?;
/// BackupStream::open(&*sent)?.restore(path("again"), RestoreOptions::new())?;
/// let again = Db::open(path("again"))?.keyspace("animals")?.get("otter")?;
/// assert_eq!(again.as_deref(), Some(&b"swims"[..]));
/// // One that was cut is no backup.
/// let cut = BackupStream::open(&sent[..sent.len() - 1])?.verify(BackupOptions::new());
/// assert!(cut.unwrap_err().is_corruption());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BackupStream<R> {
    from: R,
    stream: u64,
    info: StreamInfo,
    /// Bytes that were read.
    offset: u64,
    files: AllFiles,
    bytes: u64,
    current: Option<CurrentFile>,
    last_path: String,
    head: [u8; RECORD_HEAD_LEN],
    payload: Vec<u8>,
}

/// The file that is being read.
#[derive(Debug)]
struct CurrentFile {
    path: String,
    len: u64,
    at: u64,
    hasher: blake3::Hasher,
}

/// What comes next of a file.
#[derive(Debug)]
pub(in crate::backup) enum StreamStep<'s> {
    Bytes(&'s [u8]),
    /// So many zeros, which are no more than a record has bytes.
    Zeros(u64),
    /// It was whole, and as it was sent.
    End(Content),
}

/// All files of a stream, as its end tells of them.
#[derive(Debug, Default)]
pub(super) struct AllFiles {
    count: u64,
    hasher: blake3::Hasher,
}

impl AllFiles {
    pub(super) fn add(&mut self, path: &str, content: &Content) {
        self.count += 1;
        self.hasher.update(&(path.len() as u64).to_le_bytes());
        self.hasher.update(path.as_bytes());
        self.hasher.update(&content.len.to_le_bytes());
        self.hasher.update(&content.hash);
    }

    pub(super) fn finish(&self) -> (u64, [u8; HASH_LEN]) {
        (self.count, *self.hasher.finalize().as_bytes())
    }
}

impl<R: Read> BackupStream<R> {
    /// Reads the head of a stream. Reads are small: a file or a pipe is best buffered.
    ///
    /// # Errors
    /// `Corruption` when it is no backup, or damaged; `FormatVersion`, `Io`.
    pub fn open(mut from: R) -> Result<BackupStream<R>> {
        let mut head = [0; HEAD_LEN];
        fill(&mut from, &mut head, 0)?;
        let (stream, info) = StreamInfo::decode(&head, Path::new(BACKUP_STREAM))?;
        Ok(BackupStream {
            from,
            stream,
            info,
            offset: HEAD_LEN as u64,
            files: AllFiles::default(),
            bytes: 0,
            current: None,
            last_path: String::new(),
            head: [0; RECORD_HEAD_LEN],
            payload: Vec::with_capacity(PAYLOAD_LEN_MAX),
        })
    }

    /// What it says of itself: how much there is to be restored, among others. It does not have
    /// more, or it is damaged.
    pub fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Reads it to its end, and verifies it. Nothing behind its end is read.
    ///
    /// # Errors
    /// `Corruption` with the place in the stream, of the first thing that is wrong, an end that
    /// does not come among them; `Io`.
    pub fn verify(mut self, options: BackupOptions<'_>) -> Result<StreamInfo> {
        let mut work = Work::begin(options);
        work.expect(self.info.files, self.info.bytes);
        while let Some((path, _)) = self.next_file()? {
            let path = Path::new(&path);
            loop {
                match self.next_step()? {
                    StreamStep::Bytes(bytes) => work.advance(path, bytes.len())?,
                    StreamStep::Zeros(count) => work.advance(path, count as usize)?,
                    StreamStep::End(_) => break,
                }
            }
            work.end_file(path)?;
        }
        Ok(self.info)
    }

    /// The path and the length of the next file; `None` at the end, which was verified.
    ///
    /// # Errors
    /// `Corruption`, `Io`.
    pub(in crate::backup) fn next_file(&mut self) -> Result<Option<(String, u64)>> {
        assert!(self.current.is_none(), "a file is read to its end");
        let at = self.offset;
        let record = self.next_record()?;
        match record.kind {
            RecordKind::File => {
                let len = record.value;
                let path = std::str::from_utf8(&self.payload).unwrap_or_default().to_owned();
                if !is_path(&path) || path <= self.last_path {
                    return Err(damaged(at, "a path that no backup has"));
                }
                self.bytes = self.bytes.saturating_add(len);
                // Who has looked at what it says of itself must not get more.
                if self.files.count >= self.info.files || self.bytes > self.info.bytes {
                    return Err(damaged(at, "it has more files than it says at its beginning"));
                }
                path.clone_into(&mut self.last_path);
                let hasher = blake3::Hasher::new();
                self.current = Some(CurrentFile { path: path.clone(), len, at: 0, hasher });
                Ok(Some((path, len)))
            }
            RecordKind::End => {
                let (count, hash) = self.files.finish();
                let is_whole = (count, &hash[..]) == (record.value, &*self.payload)
                    && (count, self.bytes) == (self.info.files, self.info.bytes);
                match is_whole {
                    true => Ok(None),
                    false => Err(damaged(at, "it has other files than it says at its end")),
                }
            }
            _ => Err(damaged(at, "a record is out of place")),
        }
    }

    /// The next step of the file that was begun.
    ///
    /// # Errors
    /// `Corruption`, `Io`.
    pub(in crate::backup) fn next_step(&mut self) -> Result<StreamStep<'_>> {
        let at = self.offset;
        let record = self.next_record()?;
        let current = self.current.as_mut().expect("a file was begun");
        let left = current.len - current.at;
        match record.kind {
            RecordKind::Bytes if self.payload.len() as u64 <= left => {
                current.at += self.payload.len() as u64;
                current.hasher.update(&self.payload);
                Ok(StreamStep::Bytes(&self.payload))
            }
            RecordKind::Zeros if (1..=left.min(PAYLOAD_LEN_MAX as u64)).contains(&record.value) => {
                current.at += record.value;
                self.payload.resize(record.value as usize, 0);
                current.hasher.update(&self.payload);
                Ok(StreamStep::Zeros(record.value))
            }
            RecordKind::EndOfFile if left == 0 => {
                let hash = *current.hasher.finalize().as_bytes();
                let content = Content { len: current.len, hash };
                if hash[..] != *self.payload {
                    return Err(damaged(at, &format!("{} does not have its hash", current.path)));
                }
                self.files.add(&current.path, &content);
                self.current = None;
                Ok(StreamStep::End(content))
            }
            _ => Err(damaged(at, "a record is out of place")),
        }
    }

    /// Whether what was made of a file is what was read.
    ///
    /// # Errors
    /// `Corruption`.
    pub(in crate::backup) fn expect_content(
        &self,
        path: &str,
        made: &Content,
        read: &Content,
    ) -> Result<()> {
        match made == read {
            true => Ok(()),
            false => Err(damaged(self.offset, &format!("{path} was not written as it was read"))),
        }
    }

    fn next_record(&mut self) -> Result<RecordHead> {
        let at = self.offset;
        fill(&mut self.from, &mut self.head, at)?;
        let Some(record) = RecordHead::decode(&self.head) else {
            return Err(damaged(at, "a record that there cannot be"));
        };
        self.payload.resize(record.len, 0);
        fill(&mut self.from, &mut self.payload, at)?;
        if !verifies(&self.head, &self.payload, (self.stream, at)) {
            return Err(damaged(at, "a record does not verify"));
        }
        self.offset = at + (RECORD_HEAD_LEN + record.len) as u64;
        Ok(record)
    }
}

/// For fuzzers: the checksums are put right, as far as records can be told apart.
pub(crate) fn fuzz_stream(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEAD_LEN {
        return;
    }
    let stream = put_head_right(&mut bytes);
    let mut at = HEAD_LEN;
    while let Some(head) = bytes[at..].first_chunk::<RECORD_HEAD_LEN>()
        && let Some(record) = RecordHead::decode(head)
        && let Some(payload) = bytes.get(at + RECORD_HEAD_LEN..at + RECORD_HEAD_LEN + record.len)
    {
        let head = record.encode(payload, stream, at as u64);
        bytes[at..at + RECORD_HEAD_LEN].copy_from_slice(&head);
        at += RECORD_HEAD_LEN + record.len;
    }
    let read = BackupStream::open(&*bytes).and_then(|read| read.verify(BackupOptions::new()));
    assert!(read.is_ok() || read.is_err_and(|error| error.is_corruption()));
}

fn damaged(offset: u64, what: &str) -> Error {
    Error::corruption(Path::new(BACKUP_STREAM), offset, what)
}

/// Reads so many bytes of a record at `offset`.
fn fill(from: &mut impl Read, bytes: &mut [u8], offset: u64) -> Result<()> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => damaged(offset, "it ends early: it was cut"),
        _ => Error::io("read", Path::new(BACKUP_STREAM), error),
    })
}
