//! What the files in the directory hold, valid or not: single records, and the proof that a file's
//! records give of what was durable.

use std::path::Path;
use std::sync::Arc;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result, checksum};
use crate::seal::FileKey;
use crate::storage::{OpenMode, StorageFile};

use super::directory::WalPlace;
use super::header::{FileHeader, HEADER_BLOCK_SIZE, HeaderBlock, Next};
use super::lsn::Lsn;
use super::record::{CHECKED_FROM, RECORD_ALIGNMENT, RECORD_HEADER_SIZE, RecordHeader, file_tag};
use super::window::FileWindow;

/// How many bytes the search for records looks at in one go.
const SEARCH_CHUNK_SIZE: u64 = 64 << 10;
/// Records that are looked at for the key of a file whose header does not say it.
const CHOOSING_RECORDS_MAX: usize = 16;

/// A log file that was found in the directory.
#[derive(Debug)]
pub struct FoundFile {
    pub number: u64,
    pub header: HeaderBlock,
    /// Where the log went on behind this file, if it says so.
    pub next: Option<Next>,
    pub window: FileWindow,
    tag: u64,
    /// What payloads are sealed with; or why they cannot be read, which is told when one is: the
    /// log may not need this file.
    key: std::result::Result<Option<Arc<FileKey>>, String>,
    /// The payload that was read last, if it was sealed.
    opened: Vec<u8>,
}

/// What the valid records of a file prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The log was durable at least up to here.
    pub durable_up_to: Lsn,
    /// The end of the last valid record.
    pub records_end: Lsn,
    /// Whether one of them says that this file's own header was durable.
    pub header_was_durable: bool,
}

/// Which position a record must claim for itself.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// The one that its offset gives in a file that starts here.
    FileStart(Lsn),
    /// Any from here on: the file's header is lost.
    NotBefore(Lsn),
}

impl FoundFile {
    /// Opens file `number` and reads its header.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`], [`Error::KeyNeeded`], and those of [`FileHeader::decode`].
    pub fn open(place: &WalPlace, number: u64) -> Result<FoundFile> {
        let path = place.path_of(number);
        let mut window = FileWindow::new(place.open(number, OpenMode::ReadOnly)?, path.clone())?;
        let block_size = window.size().min(HEADER_BLOCK_SIZE);
        let block = window.bytes(0, block_size)?;
        let header = FileHeader::decode(block, &path, number, place.database_id)?;
        let tag = file_tag(place.database_id, number);
        let next = Next::decode(block, tag);
        window.let_go(); // There may be many files.
        let key = match &header {
            HeaderBlock::Valid(header) => match place.key_of(header) {
                Ok(key) => Ok(key),
                Err(Error::Corruption { what, .. }) => Err(what),
                Err(error) => return Err(error),
            },
            HeaderBlock::Unused | HeaderBlock::Unreadable => Ok(None),
        };
        let opened = Vec::new();
        Ok(FoundFile { number, header, next, window, tag, key, opened })
    }

    /// A file of a log that is open, of which all is known but the records.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn of_log(
        header: FileHeader,
        file: Arc<dyn StorageFile>,
        path: &Path,
        key: Option<Arc<FileKey>>,
    ) -> Result<FoundFile> {
        let window = FileWindow::new(file, path.to_owned())?;
        let (number, tag) = (header.number, file_tag(header.database_id, header.number));
        let header = HeaderBlock::Valid(header);
        let (key, next, opened) = (Ok(key), None, Vec::new());
        Ok(FoundFile { number, header, next, window, tag, key, opened })
    }

    /// Whether there is no key for what is in it.
    pub fn is_without_key(&self) -> bool {
        self.key.is_err()
    }

    /// This file, unless there is no key for what is in it.
    ///
    /// # Errors
    /// [`crate::base::Error::Corruption`].
    pub fn with_key(self) -> Result<FoundFile> {
        match &self.key {
            Ok(_) => Ok(self),
            Err(what) => Err(Error::corruption(self.window.path(), 0, what.clone())),
        }
    }

    /// The header, if there is a valid one.
    pub fn valid_header(&self) -> Option<&FileHeader> {
        match &self.header {
            HeaderBlock::Valid(header) => Some(header),
            HeaderBlock::Unused | HeaderBlock::Unreadable => None,
        }
    }

    /// The record at `offset` of a file that starts at `start`, if there is a valid one.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn record_at(&mut self, start: Lsn, offset: u64) -> Result<Option<RecordHeader>> {
        self.verified_record(Expected::FileStart(start), offset)
    }

    /// The first valid record at `from` or behind it, in a file that starts at `start`, and where
    /// it is.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn next_record(&mut self, start: Lsn, from: u64) -> Result<Option<(u64, RecordHeader)>> {
        self.next_verified(Expected::FileStart(start), from)
    }

    /// Where a file whose header is lost starts, by its first valid record; `None` if it has none.
    /// What it is sealed with say what is left of the header, and the first records.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn start_without_header(&mut self, place: &WalPlace) -> Result<Option<Lsn>> {
        let block_size = self.window.size().min(HEADER_BLOCK_SIZE);
        let block = self.window.bytes(0, block_size);
        let left = block.map(FileHeader::version_fields).unwrap_or_default();
        self.choose_key(&place.keys_of_damaged(self.number, left))?;
        let found = self.next_verified(Expected::NotBefore(Lsn::ZERO), HEADER_BLOCK_SIZE)?;
        Ok(found.map(|(offset, record)| {
            Lsn::from_u64(record.lsn.as_u64() - (offset - HEADER_BLOCK_SIZE))
        }))
    }

    /// Of keys that the file may have, finds the one that its first record was sealed with which
    /// has a payload; the first of them if none was.
    fn choose_key(&mut self, keys: &[Arc<FileKey>]) -> Result<()> {
        self.key = Ok(keys.first().cloned());
        if keys.len() < 2 {
            return Ok(()); // There is no doubt.
        }
        let (mut from, expected) = (HEADER_BLOCK_SIZE, Expected::NotBefore(Lsn::ZERO));
        for _ in 0..CHOOSING_RECORDS_MAX {
            let Some((offset, record)) = self.next_verified(expected, from)? else { break };
            from = offset + RECORD_ALIGNMENT;
            for key in keys.iter().filter(|_| record.length > 0) {
                self.key = Ok(Some(Arc::clone(key)));
                match self.payload(&record, offset) {
                    Ok(_) => return Ok(()),
                    Err(error) if error.is_corruption() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.key = Ok(keys.first().cloned());
        Ok(())
    }

    fn next_verified(
        &mut self,
        expected: Expected,
        from: u64,
    ) -> Result<Option<(u64, RecordHeader)>> {
        let mut offset = from;
        while let Some(found) = self.next_plausible(expected, offset)? {
            if let Some(record) = self.verified_record(expected, found)? {
                return Ok(Some((found, record)));
            }
            offset = found + RECORD_ALIGNMENT;
        }
        Ok(None)
    }

    /// The payload of the record with this header at `offset`, and the path of the file.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`]; [`crate::base::Error::Corruption`] when it is not what was
    /// sealed there, or there is no key for it.
    pub fn payload(&mut self, header: &RecordHeader, offset: u64) -> Result<(&[u8], &Path)> {
        let (at, len) = (offset + RECORD_HEADER_SIZE, header.length);
        let (payload, path) = self.window.bytes_of_file(at, len)?;
        let key = match &self.key {
            Ok(Some(key)) => key,
            Ok(None) => return Ok((payload, path)),
            Err(what) => return Err(Error::corruption(path, 0, what.clone())),
        };
        self.opened.clear();
        self.opened.extend_from_slice(payload);
        match key.open_sealed(&header.sealed_place(), &mut self.opened) {
            Some(payload) => Ok((payload, path)),
            None => {
                let what = "a record verifies, and is not what was sealed for this place";
                Err(Error::corruption(path, offset, what))
            }
        }
    }

    /// The end of what may have been a record at `offset`: its header can be read, but the whole
    /// does not verify. `None` when there is nothing like a record.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn torn_record_end(&mut self, start: Lsn, offset: u64) -> Result<Option<Lsn>> {
        let header = self.plausible_record(Expected::FileStart(start), offset)?;
        Ok(header.map(|header| header.end()))
    }

    /// What the valid records at `from` and behind it prove, wherever they are: the file is
    /// searched at every multiple of 8, because lengths cannot be trusted behind damage.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn proof_from(&mut self, start: Lsn, from: u64) -> Result<Proof> {
        self.search(Expected::FileStart(start), from)
    }

    /// What the records of this file prove although its header is not valid. Records before
    /// `not_before` count for nothing.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`].
    pub fn proof_without_header(&mut self, not_before: Lsn) -> Result<Proof> {
        let expected = Expected::NotBefore(not_before);
        // A file that was never in use need not be searched. But a header can also be missing
        // because its write was lost: then the first record is there.
        let never_used = self.header == HeaderBlock::Unused
            && self.verified_record(expected, HEADER_BLOCK_SIZE)?.is_none();
        if never_used {
            return Ok(Proof::default());
        }
        self.search(expected, HEADER_BLOCK_SIZE)
    }

    fn search(&mut self, expected: Expected, from: u64) -> Result<Proof> {
        let mut proof = Proof::default();
        let mut offset = from;
        while let Some(found) = self.next_plausible(expected, offset)? {
            let Some(record) = self.verified_record(expected, found)? else {
                offset = found + RECORD_ALIGNMENT;
                continue;
            };
            let own_start = record.lsn.bytes_since(Lsn::from_u64(found - HEADER_BLOCK_SIZE));
            proof.durable_up_to = proof.durable_up_to.max(record.durable_up_to);
            proof.records_end = proof.records_end.max(record.end());
            proof.header_was_durable |= record.durable_up_to > Lsn::from_u64(own_start);
            offset = found + record.size();
        }
        Ok(proof)
    }

    /// The first offset from `offset` on where a record may start.
    fn next_plausible(&mut self, expected: Expected, mut offset: u64) -> Result<Option<u64>> {
        let size = self.window.size();
        while self.window.holds(offset, RECORD_HEADER_SIZE) {
            let len = SEARCH_CHUNK_SIZE.min(size - offset);
            let chunk = self.window.bytes(offset, len)?;
            let last = chunk.len() - RECORD_HEADER_SIZE as usize;
            let hit = (0..=last).step_by(RECORD_ALIGNMENT as usize).find(|at| {
                RecordHeader::plausible(&chunk[*at..])
                    .is_some_and(|header| fits(&header, expected, offset + *at as u64, size))
            });
            if let Some(at) = hit {
                return Ok(Some(offset + at as u64));
            }
            offset += last as u64 / RECORD_ALIGNMENT * RECORD_ALIGNMENT + RECORD_ALIGNMENT;
        }
        Ok(None)
    }

    fn plausible_record(&mut self, expected: Expected, at: u64) -> Result<Option<RecordHeader>> {
        if !self.window.holds(at, RECORD_HEADER_SIZE) {
            return Ok(None);
        }
        let size = self.window.size();
        let header = RecordHeader::plausible(self.window.bytes(at, RECORD_HEADER_SIZE)?);
        Ok(header.filter(|header| fits(header, expected, at, size)))
    }

    fn verified_record(&mut self, expected: Expected, at: u64) -> Result<Option<RecordHeader>> {
        let Some(header) = self.plausible_record(expected, at)? else {
            return Ok(None);
        };
        let (tag, len) = (self.tag, RECORD_HEADER_SIZE + header.length);
        let bytes = self.window.bytes(at, len)?;
        let stored = bytes[..CHECKED_FROM].try_into().expect("a slice of eight bytes");
        let verifies = u64::from_le_bytes(stored) == checksum(&bytes[CHECKED_FROM..], tag, at)
            || is_seeded(Bug::LogRecordUnverified);
        Ok(verifies.then_some(header))
    }
}

/// Whether a record with this header can be at `offset` of a file of `size` bytes.
fn fits(header: &RecordHeader, expected: Expected, offset: u64, size: u64) -> bool {
    let in_file = offset - HEADER_BLOCK_SIZE;
    let at_its_place = match expected {
        Expected::FileStart(start) => header.lsn == start.plus(in_file),
        Expected::NotBefore(first) => header.lsn >= first && header.lsn.as_u64() >= in_file,
    };
    at_its_place && header.size() <= size - offset
}
