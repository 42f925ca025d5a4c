//! A log as of one moment, while it is written on: what makes the same log elsewhere.

use std::path::Path;
use std::sync::Arc;

use crate::base::Result;
use crate::storage::StorageFile;

use super::header::FileHeader;
use super::record::RecordKind;
use super::writer::{LiveFile, Wal};

/// All files of a log as of one moment, those that are only kept to be read among them.
#[derive(Debug)]
pub struct LogImage {
    /// Lowest first; to the last one was appended.
    pub files: Vec<LogFileImage>,
}

/// A file of a log as of one moment.
#[derive(Debug)]
pub struct LogFileImage {
    /// The file.
    pub file: Arc<dyn StorageFile>,
    /// Its path.
    pub path: Arc<Path>,
    /// Bytes of it that the log had by then: they do not change any more, but for those in whose
    /// place is the head.
    pub size: u64,
    /// Of the one that is appended to: what stands at its start in a file of so many bytes.
    /// Nothing is written to the others any more.
    pub head: Option<Vec<u8>>,
    /// W9: as long as this is there, the file is not overwritten.
    _reading: Arc<()>,
}

impl LogFileImage {
    fn whole(live: &LiveFile) -> LogFileImage {
        LogFileImage {
            file: Arc::clone(&live.file),
            path: Arc::clone(&live.path),
            size: live.header.capacity,
            head: None,
            _reading: Arc::clone(&live.readers),
        }
    }
}

impl Wal {
    /// The log as it is now, when it is durable to its last commit, which it says itself: who
    /// synced last may not have come to that yet ([`Wal::complete_sync`]), and where this is read
    /// back, damage to that commit must not look like a torn tail. Its files hold their places as
    /// long as theirs is there.
    ///
    /// # Errors
    /// Of writing the mark, as [`Wal::append`].
    pub fn image(&mut self) -> Result<LogImage> {
        let durable = self.durable_lsn();
        assert!(durable >= self.commits_end, "{durable} is in front of {}", self.commits_end);
        if self.commits_end > self.last_claim {
            self.watermark.check()?;
            self.write_record(RecordKind::Mark, 0, &[])?; // Room for one is always kept.
        }
        // They get other names: W10.
        self.note_what_is_durable();
        self.files.iter_mut().rev().skip(1).for_each(|file| file.is_note_final = true);
        let files = self.history.iter().chain(&self.files);
        let mut files: Vec<LogFileImage> = files.map(LogFileImage::whole).collect();
        if let Some((current, image)) = self.files.back().zip(files.last_mut()) {
            let capacity = current.header.offset_of(self.end());
            image.size = capacity;
            let durable_up_to = current.header.start; // W5
            image.head = Some(FileHeader { capacity, durable_up_to, ..current.header }.encode());
        }
        Ok(LogImage { files })
    }
}
