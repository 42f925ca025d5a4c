//! Sending: a moment of an open database, or a backup of a repository.

use std::io::Write;
use std::path::Path;

use super::format::{PAYLOAD_LEN_MAX, RecordHead, RecordKind, StreamInfo};
use super::read::AllFiles;
use crate::backup::BackupRepository;
use crate::backup::files::read_all;
use crate::backup::list::Content;
use crate::backup::moment::Moment;
use crate::backup::work::{BackupOptions, Work};
use crate::base::{BACKUP_STREAM, Entropy, Error, Result, SystemEntropy};
use crate::db::Db;

impl Db {
    /// Writes a backup of the database, as it is now, to a stream: a full one. What is written is
    /// flushed, and durable where the writer makes it so. [`BackupStream`](crate::BackupStream)
    /// reads it back.
    ///
    /// Makes a checkpoint beside the database for as long as it takes, as
    /// [`BackupRepository::create`], and reads each file once. In memory are 1 MiB and the paths of
    /// files. Writes 80 bytes, and for each file 80 more than its path and its bytes, and 24 for
    /// each 64 KiB of it; pieces of 64 KiB that are zero take 24 bytes.
    ///
    /// # Errors
    /// As [`Db::checkpoint`], and `Io` of writing: what was written is no backup, and reading it
    /// says so.
    pub fn backup_to(&self, to: impl Write, options: BackupOptions<'_>) -> Result<StreamInfo> {
        let moment = Moment::take(self)?;
        let all = moment.files()?;
        let info = StreamInfo {
            database: self.id(),
            seqno: moment.seqno,
            created_millis: self.wall_millis(),
            files: all.len() as u64,
            bytes: all.iter().map(|file| file.len).sum(),
        };
        let mut work = Work::begin(options);
        work.expect(info.files, info.bytes);
        let mut sending = Sending::begin(to, self.draw(), &info)?;
        for file in &all {
            let (source, from) = moment.open(&file.path)?;
            sending.begin_file(&file.path, file.len)?;
            let content = read_all(&*source, &from, |piece| {
                work.advance(&from, piece.len())?;
                sending.send(piece)
            })?;
            if content.len != file.len {
                return Err(Error::corruption(&from, content.len, "its length has changed"));
            }
            sending.end_file(&content)?;
            work.end_file(&from)?;
        }
        sending.end()?;
        moment.remove()?;
        Ok(info)
    }
}

impl BackupRepository {
    /// Writes a backup to a stream, every file verified as it is read.
    ///
    /// # Errors
    /// As [`BackupRepository::verify`] when something is damaged, and `Io` of writing: what was
    /// written is no backup, and reading it says so. `InvalidArgument` when there is no such
    /// backup.
    pub fn export(
        &self,
        number: u64,
        to: impl Write,
        options: BackupOptions<'_>,
    ) -> Result<StreamInfo> {
        let _lock = self.share()?;
        let list = self.read_list(number)?;
        let head = list.head();
        let info = StreamInfo {
            database: head.database,
            seqno: head.seqno,
            created_millis: head.created_millis,
            files: head.file_count,
            bytes: head.bytes,
        };
        let mut work = Work::begin(options);
        work.expect(info.files, info.bytes);
        let mut sending = Sending::begin(to, SystemEntropy::default().next_u64(), &info)?;
        let files = self.files();
        for entry in list.entries() {
            let from = Path::new(entry.path);
            sending.begin_file(entry.path, entry.content.len)?;
            files.read(&entry.content, |piece| {
                work.advance(from, piece.len())?;
                sending.send(piece)
            })?;
            sending.end_file(&entry.content)?;
            work.end_file(from)?;
        }
        sending.end()?;
        Ok(info)
    }
}

/// A stream that is being written.
struct Sending<W> {
    to: W,
    stream: u64,
    offset: u64,
    files: AllFiles,
    /// What is left of a record that is not full yet.
    gathered: Vec<u8>,
    current: (String, u64),
}

impl<W: Write> Sending<W> {
    fn begin(to: W, stream: u64, info: &StreamInfo) -> Result<Sending<W>> {
        let gathered = Vec::with_capacity(PAYLOAD_LEN_MAX);
        let (files, current) = (AllFiles::default(), (String::new(), 0));
        let mut sending = Sending { to, stream, offset: 0, files, gathered, current };
        sending.put(&info.encode(stream))?;
        Ok(sending)
    }

    fn begin_file(&mut self, path: &str, len: u64) -> Result<()> {
        path.clone_into(&mut self.current.0);
        self.current.1 = len;
        self.record(RecordKind::File, len, path.as_bytes())
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(PAYLOAD_LEN_MAX - self.gathered.len());
            let (now, later) = bytes.split_at(taken);
            bytes = later;
            self.gathered.extend_from_slice(now);
            if self.gathered.len() == PAYLOAD_LEN_MAX {
                self.send_gathered()?;
            }
        }
        Ok(())
    }

    fn send_gathered(&mut self) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        let sent = match gathered.iter().all(|byte| *byte == 0) {
            true if gathered.is_empty() => Ok(()),
            true => self.record(RecordKind::Zeros, gathered.len() as u64, &[]),
            false => self.record(RecordKind::Bytes, 0, &gathered),
        };
        self.gathered = gathered;
        self.gathered.clear();
        sent
    }

    fn end_file(&mut self, content: &Content) -> Result<()> {
        self.send_gathered()?;
        debug_assert_eq!(self.current.1, content.len);
        self.files.add(&self.current.0, content);
        self.record(RecordKind::EndOfFile, 0, &content.hash)
    }

    fn end(mut self) -> Result<()> {
        let (count, hash) = self.files.finish();
        self.record(RecordKind::End, count, &hash)?;
        self.to.flush().map_err(|error| Error::io("flush", Path::new(BACKUP_STREAM), error))
    }

    fn record(&mut self, kind: RecordKind, value: u64, payload: &[u8]) -> Result<()> {
        let head = RecordHead { kind, len: payload.len(), value };
        let head = head.encode(payload, self.stream, self.offset);
        self.put(&head)?;
        self.put(payload)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.offset += bytes.len() as u64;
        let wrote = self.to.write_all(bytes);
        wrote.map_err(|error| Error::io("write", Path::new(BACKUP_STREAM), error))
    }
}
