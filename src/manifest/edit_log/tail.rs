//! Reading on in an edit log that somebody else writes.

use super::format::{
    EditLogId, MARK_SLOT_LEN, RECORD_HEADER_LEN, RecordHeader, RecordKind, RecordPlace, file_name,
};
use super::read::{Reader, RecordRef, Scan, open_file, opened};
use crate::base::{Error, Result};
use crate::seal::FileKey;
use crate::storage::{OpenMode, Storage, StorageFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a log was read to, by who does not write it.
#[derive(Clone, Debug)]
pub struct LogTail {
    // Constant.
    dir: PathBuf,
    id: EditLogId,
    number: u64,
    tag: u64,
    capacity: u64,
    key: Option<Arc<FileKey>>,
    // Where the next edit goes; where the record starts that it goes behind, and its checksum.
    end: u64,
    last_start: u64,
    chain: u64,
    /// Once it was opened.
    file: Option<Arc<dyn StorageFile>>,
}

/// Where a log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// In the file that was read, as far as it goes on.
    Here,
    /// In the next file, which is made from a snapshot: not all edits in front of that need have
    /// been handed out. See [`LogTail::go_over`].
    InNextFile,
    /// Otherwise: an edit that was handed out is not there any more, as its sync failed and whoever
    /// opened the log then has not found it.
    Otherwise,
}

impl LogTail {
    /// Behind what a scan has found.
    pub(super) fn behind(scan: &Scan, dir: &Path, id: EditLogId) -> LogTail {
        LogTail {
            dir: dir.to_owned(),
            id,
            number: scan.number,
            tag: scan.tag,
            capacity: scan.capacity,
            key: scan.key.clone(),
            end: scan.end,
            last_start: scan.last_start,
            chain: scan.chain,
            file: None,
        }
    }

    /// Hands out the edits that have come to be durable in the file since, in order: those that
    /// have a mark, or another behind them (E3). Costs two reads and a look for a name when there
    /// are none.
    ///
    /// # Errors
    /// `Corruption`, `Io`, whatever `visit` returns.
    pub fn read_on(
        &mut self,
        storage: &dyn Storage,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<GoesOn> {
        let path = self.dir.join(file_name(self.id.stem, self.number));
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = open_file(storage, &path, OpenMode::ReadOnly)?;
                self.file = Some(Arc::clone(&file));
                file
            }
        };
        if !self.has_last(&*file, &path)? {
            return Ok(GoesOn::Otherwise);
        }
        while let Some(edit) = self.next_edit(&*file, &path)? {
            visit(&edit)?;
        }
        let Some(next) = self.number.checked_add(1) else { return Ok(GoesOn::Here) };
        let next = self.dir.join(file_name(self.id.stem, next));
        match storage.exists(&next).map_err(|source| Error::io("look for", &next, source))? {
            true => Ok(GoesOn::InNextFile),
            false => Ok(GoesOn::Here),
        }
    }

    /// Goes over to the newest file, from where this one does not go on; hands out all that is in
    /// it, as an opening has it.
    ///
    /// # Errors
    /// `Corruption`, `Io`, whatever `visit` returns.
    pub fn go_over(
        &mut self,
        storage: &dyn Storage,
        visit: impl FnMut(RecordRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let reader = Reader::open(storage, &self.dir, &self.id, OpenMode::ReadOnly)?;
        let scan = reader.scan(None, visit)?;
        *self = LogTail::behind(&scan, &self.dir, self.id);
        Ok(())
    }

    /// Whether the record that was read last is still there: edits go behind it then.
    fn has_last(&self, file: &dyn StorageFile, path: &Path) -> Result<bool> {
        let mut bytes = [0; RECORD_HEADER_LEN as usize];
        let io = |source| Error::io("read", path, source);
        file.read_exact_at(&mut bytes, self.last_start).map_err(io)?;
        let header = RecordHeader::decode(&bytes, self.tag, self.last_start, self.capacity);
        Ok(header.is_some_and(|header| header.checksum == self.chain))
    }

    /// Whether the edit that starts at the end, with this header, is known to be durable: its mark,
    /// or the next edit, was written behind it (E3).
    fn is_durable(&self, file: &dyn StorageFile, path: &Path, edit: &RecordHeader) -> Result<bool> {
        let slot = self.end + edit.record_len();
        let kinds = [(slot, RecordKind::Mark), (slot + MARK_SLOT_LEN, RecordKind::Edit)];
        for (offset, kind) in kinds {
            if offset + RECORD_HEADER_LEN > self.capacity {
                break;
            }
            let mut bytes = [0; RECORD_HEADER_LEN as usize];
            let read = file.read_exact_at(&mut bytes, offset);
            read.map_err(|source| Error::io("read", path, source))?;
            let found = RecordHeader::decode(&bytes, self.tag, offset, self.capacity);
            if found.is_some_and(|it| (it.kind, it.previous) == (kind, edit.checksum)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next edit, if it is there whole, and durable.
    fn next_edit(&mut self, file: &dyn StorageFile, path: &Path) -> Result<Option<Vec<u8>>> {
        let io = |source| Error::io("read", path, source);
        if self.end + RECORD_HEADER_LEN > self.capacity {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_HEADER_LEN as usize];
        file.read_exact_at(&mut bytes, self.end).map_err(io)?;
        let header = RecordHeader::decode(&bytes, self.tag, self.end, self.capacity);
        let Some(header) = header else { return Ok(None) };
        if header.kind != RecordKind::Edit || header.previous != self.chain {
            let what = "a record does not belong behind the one in front of it";
            return Err(Error::corruption(path, self.end, what));
        }
        let mut payload = vec![0; (header.record_len() - RECORD_HEADER_LEN) as usize];
        file.read_exact_at(&mut payload, self.end + RECORD_HEADER_LEN).map_err(io)?;
        if !header.covers(&payload, self.tag, self.end) {
            return Ok(None); // It is being written.
        }
        if !self.is_durable(file, path, &header)? {
            return Ok(None); // Its sync is under way, or has failed.
        }
        payload.truncate(header.length as usize);
        let place = RecordPlace { tag: self.tag, offset: self.end, previous: self.chain };
        let mut room = Vec::new();
        let edit = opened(self.key.as_deref(), &header, place, &payload, &mut room, path)?.to_vec();
        (self.last_start, self.chain) = (self.end, header.checksum);
        self.end += header.record_len() + MARK_SLOT_LEN;
        Ok(Some(edit))
    }
}
