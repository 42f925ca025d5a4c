//! Reading a log that is open: what recovery would need, and the files in front of it that are
//! kept for this.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::seal::FileKey;
use crate::storage::StorageFile;

use super::header::FileHeader;
use super::lsn::Lsn;
use super::record::{RecordHeader, RecordKind};
use super::replay::RecordRef;
use super::survey::FoundFile;
use super::writer::{LiveFile, Wal};

/// Reads the records of a log that is open, as of the moment when the reader was made. Holds the
/// files that it has not passed yet.
#[derive(Debug)]
pub struct RecordReader {
    /// Lowest first; the first one is read.
    files: VecDeque<ReadFile>,
    /// The first of the files, once it has been looked into.
    current: Option<FoundFile>,
    at: Lsn,
    end: Lsn,
    durable_up_to: Lsn,
}

/// A file as its reader has it.
#[derive(Clone, Debug)]
struct ReadFile {
    header: FileHeader,
    file: Arc<dyn StorageFile>,
    path: Arc<Path>,
    key: Option<Arc<FileKey>>,
    /// W9: as long as this is there, the file is not overwritten.
    _reading: Arc<()>,
}

impl ReadFile {
    fn new(live: &LiveFile) -> ReadFile {
        ReadFile {
            header: live.header,
            file: Arc::clone(&live.file),
            path: Arc::clone(&live.path),
            key: live.key.clone(),
            _reading: Arc::clone(&live.readers),
        }
    }

    fn look_into(&self) -> Result<FoundFile> {
        let (file, key) = (Arc::clone(&self.file), self.key.clone());
        FoundFile::of_log(self.header, file, &self.path, key)
    }
}

impl Wal {
    /// A reader of all that is kept up to `end`, where a record ends that was appended before.
    pub fn reader(&self, end: Lsn) -> RecordReader {
        let files = self.history.iter().chain(&self.files);
        let files = files.filter(|file| file.header.start < end).map(ReadFile::new);
        let files: VecDeque<ReadFile> = files.collect();
        let at = files.front().map_or(end, |first| first.header.start);
        RecordReader { files, current: None, at, end, durable_up_to: Lsn::ZERO }
    }

    /// Lets a reader of this log go on up to `end`, where a record ends that was appended before;
    /// `false` if files that it has not read are not kept any more.
    pub fn extend(&self, reader: &mut RecordReader, end: Lsn) -> bool {
        if end <= reader.end {
            return true;
        }
        let kept = self.history.iter().chain(&self.files);
        match reader.files.back().map(|last| last.header.start) {
            // None behind one that is read has gone (W9).
            Some(last) => {
                let new = kept.filter(|file| (last < file.header.start) && file.header.start < end);
                reader.files.extend(new.map(ReadFile::new));
            }
            None => {
                if !self.has_all_from(reader.at) {
                    return false;
                }
                let all: Vec<&LiveFile> = kept.filter(|file| file.header.start < end).collect();
                let behind = all.partition_point(|file| file.header.start <= reader.at);
                let first = behind.saturating_sub(1);
                if let Some(file) = all.get(first) {
                    reader.at = reader.at.max(file.header.start); // Marks were in front.
                }
                reader.files.extend(all[first..].iter().map(|file| ReadFile::new(file)));
            }
        }
        reader.end = end;
        reader.bound_reading_ahead();
        true
    }
}

impl RecordReader {
    /// Where the next record starts; at first, where what is kept starts.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Where the last of its records ends.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Has it end here, where a record ends, if it went further.
    pub fn end_at(&mut self, end: Lsn) {
        self.end = self.end.min(end);
        self.files.retain(|file| file.header.start < end);
        self.bound_reading_ahead();
    }

    /// Has the record that was read last and starts at `to` read again.
    pub fn go_back(&mut self, to: Lsn) {
        self.at = to; // Its file is the first one still.
    }

    /// Another reader of what this one has, from the beginning of its file on.
    pub fn start_of_file(&self) -> RecordReader {
        let files = self.files.clone();
        let at = files.front().map_or(self.end, |first| first.header.start);
        RecordReader { files, current: None, at, end: self.end, durable_up_to: Lsn::ZERO }
    }

    /// The next record with a payload; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Corruption`] with file and offset for a record that is not there; [`Error::Io`].
    pub fn next_record(&mut self) -> Result<Option<RecordRef<'_>>> {
        let Some((record, offset)) = self.find_next()? else { return Ok(None) };
        let found = self.current.as_mut().expect("the record was found in it");
        // Until its payload is there it was not passed.
        let at = std::mem::replace(&mut self.at, record.lsn);
        let (payload, file) = found.payload(&record, offset)?;
        self.at = at;
        let (lsn, end, durable_up_to) = (record.lsn, record.end(), self.durable_up_to);
        Ok(Some(RecordRef { lsn, end, file, offset, durable_up_to, payload }))
    }

    /// Goes to the last file whose first record `is_before`, or stays at the first one.
    /// `is_before` must hold of a first part of all records. Reads a logarithmic number of files'
    /// beginnings.
    ///
    /// # Errors
    /// As [`Self::next_record`]; whatever `is_before` says.
    pub fn skip_files(
        &mut self,
        is_before: &mut dyn FnMut(&RecordRef<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (mut low, mut high) = (0, self.files.len());
        while low < high {
            let middle = low.midpoint(high);
            // A file without payloads only costs reading more than is needed.
            let is_before = match self.first_of(middle)?.next_record()? {
                Some(first) => is_before(&first)?,
                None => false,
            };
            if is_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.files.drain(..low.saturating_sub(1));
        self.current = None;
        self.at = self.files.front().map_or(self.end, |first| first.header.start);
        Ok(())
    }

    /// A reader of the file at `index` alone.
    fn first_of(&self, index: usize) -> Result<RecordReader> {
        let file = self.files[index].clone();
        let (at, end, durable_up_to) = (file.header.start, self.end_of(index), Lsn::ZERO);
        let current = Some(file.look_into()?);
        Ok(RecordReader { files: VecDeque::from([file]), current, at, end, durable_up_to })
    }

    /// Where the records of the file at `index` end.
    fn end_of(&self, index: usize) -> Lsn {
        self.files.get(index + 1).map_or(self.end, |next| next.header.start.min(self.end))
    }

    /// Has nothing read of the current file from the end of its records on: it is written there.
    fn bound_reading_ahead(&mut self) {
        let Some(first) = self.files.front() else { return };
        let end = first.header.offset_of(self.end_of(0));
        if let Some(current) = &mut self.current {
            current.window.read_ahead_to(end);
        }
    }

    /// Finds the next record with a payload, and its offset in the current file.
    fn find_next(&mut self) -> Result<Option<(RecordHeader, u64)>> {
        loop {
            let Some(first) = self.files.front() else { return Ok(None) };
            if self.at >= self.end_of(0) {
                self.files.pop_front();
                self.current = None;
                continue;
            }
            if self.current.is_none() {
                self.current = Some(first.look_into()?);
                self.bound_reading_ahead();
                continue;
            }
            let found = self.current.as_mut().expect("it was set above");
            let offset = first.header.offset_of(self.at);
            let Some(record) = found.record_at(first.header.start, offset)? else {
                let what = format!("no valid record at {}, which was written", self.at);
                let error = Error::corruption(&first.path, offset, what);
                self.current = None; // It is read anew when it is asked for again.
                return Err(error);
            };
            self.at = record.end();
            self.durable_up_to = self.durable_up_to.max(record.durable_up_to);
            if record.kind == RecordKind::Commit {
                return Ok(Some((record, offset)));
            }
        }
    }
}
