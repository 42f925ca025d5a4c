//! Reading an edit log: finds the newest file, verifies it, hands out its records, and decides
//! whether what lies behind the last valid edit is nothing, a torn edit, or damage. It changes
//! nothing.

use super::format::{
    ALIGNMENT, EditLogId, FileHeader, FileName, HEADER_LEN, MARK_SLOT_LEN, RECORD_HEADER_LEN,
    RecordHeader, RecordKind, RecordPlace, file_name, file_tag, identity, is_interrupted_mark,
    parse_name, sealed_place,
};
use super::{LogPosition, OpenReport, TornTail};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::seal::{FileKey, Keyring};
use crate::storage::{EntryType, OpenMode, Storage, StorageFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes read at once.
const WINDOW_LEN: u64 = 256 << 10;
/// Damaged marks that are listed, at most.
const DAMAGED_MARKS_MAX: usize = 100;
/// Bytes of the payload of a `SnapshotEnd`: the number of parts, the sum of their lengths.
pub(super) const SNAPSHOT_END_LEN: usize = 16;

/// A record as the visitor sees it.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// What it is.
    pub record: Record<'a>,
    /// The file that it is in.
    pub file: &'a Path,
    /// Offset of its payload in the file.
    pub offset: u64,
}

/// A record: first all parts of the snapshot, then the edits, each in the order written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A part of the snapshot.
    SnapshotPart(&'a [u8]),
    /// Every part has been seen.
    SnapshotEnd,
    /// An edit.
    Edit(&'a [u8]),
}

impl RecordRef<'_> {
    /// An [`Error::Corruption`] at the byte `index` of the payload.
    #[must_use]
    pub fn corruption(&self, index: usize, what: impl Into<String>) -> Error {
        Error::corruption(self.file, self.offset + index as u64, what)
    }
}

/// Reads a log without changing anything. For the rules see the head of this part.
///
/// # Errors
/// `Corruption` with file and offset, `FormatVersion`, `Io`, whatever `visit` returns.
pub fn read(
    storage: &dyn Storage,
    dir: &Path,
    id: &EditLogId,
    required: Option<LogPosition>,
    visit: impl FnMut(RecordRef<'_>) -> Result<()>,
) -> Result<OpenReport> {
    let reader = Reader::open(storage, dir, id, OpenMode::ReadOnly)?;
    Ok(reader.scan(required, visit)?.report())
}

/// Whether `dir` holds a file of the log.
///
/// # Errors
/// `Io`.
pub fn exists(storage: &dyn Storage, dir: &Path, stem: &str) -> Result<bool> {
    let present = storage.exists(dir).map_err(|source| Error::io("look for", dir, source))?;
    Ok(present && !list(storage, dir, stem)?.0.is_empty())
}

/// The database id in the header of the newest file, for a log that is read to learn it.
///
/// # Errors
/// `Corruption` when there is no file or its header is damaged; `FormatVersion`, `Io`.
pub fn newest_database(storage: &dyn Storage, dir: &Path, stem: &str) -> Result<u64> {
    let number = newest_number(storage, dir, stem)?;
    let path = dir.join(file_name(stem, number));
    let file = open_file(storage, &path, OpenMode::ReadOnly)?;
    Ok(read_header(&*file, &path)?.0.database)
}

/// Whether the newest file is sealed, as far as its header can be read.
///
/// # Errors
/// `Corruption` when there is no file; `Io`.
pub fn is_sealed(storage: &dyn Storage, dir: &Path, stem: &str) -> Result<bool> {
    let number = newest_number(storage, dir, stem)?;
    let path = dir.join(file_name(stem, number));
    let file = open_file(storage, &path, OpenMode::ReadOnly)?;
    match read_header(&*file, &path) {
        Ok((header, _)) => Ok(header.key != 0),
        Err(Error::Io { action, path, source }) => Err(Error::Io { action, path, source }),
        Err(_) => Ok(false), // Whoever opens it will say so.
    }
}

/// How sure it is that the last record (the snapshot's end or an edit) is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastRecord {
    /// Its mark says so.
    Marked,
    /// The edit that starts here has no mark.
    UnmarkedEdit { start: u64 },
    /// There are no edits and the snapshot has no mark.
    UnmarkedSnapshot,
}

/// What a log's newest file holds.
#[derive(Debug)]
pub(super) struct Scan {
    pub file: Arc<dyn StorageFile>,
    pub path: PathBuf,
    pub number: u64,
    pub tag: u64,
    pub capacity: u64,
    /// Where the next edit goes.
    pub end: u64,
    /// Where the last record of the chain starts.
    pub last_start: u64,
    /// Its checksum.
    pub chain: u64,
    /// What the last mark slot says about the record in front of it.
    pub last: LastRecord,
    pub edit_count: u64,
    pub torn: Option<TornTail>,
    pub damaged_marks: Vec<u64>,
    /// What payloads are sealed with.
    pub key: Option<Arc<FileKey>>,
}

impl Scan {
    pub fn report(&self) -> OpenReport {
        OpenReport {
            file: self.path.clone(),
            position: LogPosition { number: self.number, offset: self.end },
            edit_count: self.edit_count,
            torn: self.torn,
            damaged_marks: self.damaged_marks.clone(),
        }
    }

    /// The slot behind the last record, if what is there is damage.
    pub fn damaged_last_mark(&self) -> Option<u64> {
        let slot = self.end - MARK_SLOT_LEN;
        self.damaged_marks.contains(&slot).then_some(slot)
    }
}

/// One pass over the newest file.
pub(super) struct Reader {
    window: Window,
    number: u64,
    tag: u64,
    /// Offset of the next record.
    next: u64,
    /// That of the last one that was read.
    last_start: u64,
    chain: u64,
    last: LastRecord,
    edit_count: u64,
    damaged_marks: Vec<u64>,
    key: Option<Arc<FileKey>>,
    /// The payload that was read last, if it was sealed.
    opened: Vec<u8>,
    /// Whether somebody else may be writing the file.
    is_beside: bool,
}

impl Reader {
    pub fn open(
        storage: &dyn Storage,
        dir: &Path,
        id: &EditLogId,
        mode: OpenMode,
    ) -> Result<Reader> {
        let number = newest_number(storage, dir, id.stem)?;
        let path = dir.join(file_name(id.stem, number));
        let file = open_file(storage, &path, mode)?;
        let (header, size) = read_header(&*file, &path)?;
        header.expect(id, number, size, &path)?;
        let tag = file_tag(id, number);
        let identity = identity(id, number);
        let key = Keyring::of_found(storage.keyring(), header.key, &identity, &path)?;
        let window = Window { file, path, size, start: 0, bytes: Vec::new() };
        Ok(Reader {
            window,
            number,
            tag,
            next: HEADER_LEN,
            last_start: HEADER_LEN,
            chain: tag,
            last: LastRecord::UnmarkedSnapshot,
            edit_count: 0,
            damaged_marks: Vec::new(),
            key,
            opened: Vec::new(),
            is_beside: storage.is_beside(),
        })
    }

    pub fn scan(
        mut self,
        required: Option<LogPosition>,
        mut visit: impl FnMut(RecordRef<'_>) -> Result<()>,
    ) -> Result<Scan> {
        let required = self.offset_required(required)?;
        self.read_snapshot(&mut visit)?;
        let mut found = required.is_none_or(|offset| offset == self.next);
        while !(self.is_beside && self.is_next_in_doubt(required)?) && self.read_edit(&mut visit)? {
            found |= required == Some(self.next);
        }
        let torn = self.examine_tail()?;
        if !found {
            let what = "edits that were once durable are missing: another part of the database \
                        knows of edits up to offset";
            let what = format!("{what} {}", required.unwrap_or_default());
            return Err(self.corruption(self.next, what));
        }
        Ok(Scan {
            number: self.number,
            tag: self.tag,
            capacity: self.window.size,
            end: self.next,
            last_start: self.last_start,
            chain: self.chain,
            last: self.last,
            edit_count: self.edit_count,
            torn,
            damaged_marks: self.damaged_marks,
            key: self.key,
            file: self.window.file,
            path: self.window.path,
        })
    }

    /// The offset that edits of this file must reach.
    fn offset_required(&self, required: Option<LogPosition>) -> Result<Option<u64>> {
        let Some(required) = required else { return Ok(None) };
        if self.number < required.number {
            let what = format!("the file of number {} is missing", required.number);
            return Err(self.corruption(0, what));
        }
        Ok((self.number == required.number).then_some(required.offset))
    }

    /// E1: the snapshot is whole, or damaged.
    fn read_snapshot(&mut self, visit: &mut impl FnMut(RecordRef<'_>) -> Result<()>) -> Result<()> {
        let (mut part_count, mut part_bytes) = (0u64, 0u64);
        loop {
            let Some((header, payload, path)) = self.window.record(self.next, self.tag)? else {
                return Err(self.corruption(self.next, "a record of the snapshot does not verify"));
            };
            if header.previous != self.chain {
                return Err(self.corruption(self.next, "a record of the snapshot is out of order"));
            }
            let place = RecordPlace { tag: self.tag, offset: self.next, previous: self.chain };
            let key = self.key.as_deref();
            let payload = opened(key, &header, place, payload, &mut self.opened, path)?;
            let offset = self.next + RECORD_HEADER_LEN;
            self.last_start = self.next;
            self.next += header.record_len();
            self.chain = header.checksum;
            match header.kind {
                RecordKind::SnapshotPart => {
                    part_count += 1;
                    part_bytes += u64::from(header.length);
                    visit(RecordRef { record: Record::SnapshotPart(payload), file: path, offset })?;
                }
                RecordKind::SnapshotEnd => {
                    if payload != snapshot_end(part_count, part_bytes) {
                        let what = "the snapshot lacks parts that its end record counts";
                        return Err(Error::corruption(path, offset, what));
                    }
                    visit(RecordRef { record: Record::SnapshotEnd, file: path, offset })?;
                    if self.next + MARK_SLOT_LEN > self.window.size {
                        return Err(self.corruption(self.next, "there is no room for a mark"));
                    }
                    return self.read_mark(LastRecord::UnmarkedSnapshot);
                }
                kind => {
                    let what = format!("a record of kind {kind:?} inside the snapshot");
                    return Err(Error::corruption(path, offset, what));
                }
            }
        }
    }

    /// Whether the sync of the next edit may be under way, or have failed: it has no mark, there is
    /// nothing behind it (E3), and nobody requires it.
    fn is_next_in_doubt(&mut self, required: Option<u64>) -> Result<bool> {
        let Some((header, ..)) = self.window.record(self.next, self.tag)? else {
            return Ok(false); // Nothing is there, or it is damaged.
        };
        let slot = self.next + header.record_len();
        let is_required = required.is_some_and(|required| required >= slot + MARK_SLOT_LEN);
        let mark = self.window.header(slot, self.tag)?;
        let has_mark = mark.is_some_and(|mark| mark.kind == RecordKind::Mark);
        let is_last = self.window.header(slot + MARK_SLOT_LEN, self.tag)?.is_none();
        Ok(!is_required && !has_mark && is_last)
    }

    /// Hands out the next edit. `false` when there is none that verifies.
    fn read_edit(&mut self, visit: &mut impl FnMut(RecordRef<'_>) -> Result<()>) -> Result<bool> {
        let (start, size) = (self.next, self.window.size);
        let Some((header, payload, path)) = self.window.record(start, self.tag)? else {
            return Ok(false);
        };
        // The place is right, so these bytes were written here, once: by E4 the predecessor is
        // still the one that they were written behind.
        if header.kind != RecordKind::Edit || header.previous != self.chain {
            let what = "a record does not belong behind the one in front of it";
            return Err(Error::corruption(path, start, what));
        }
        let mark_slot = start + header.record_len();
        if mark_slot + MARK_SLOT_LEN > size {
            return Err(Error::corruption(path, start, "an edit leaves no room for its mark"));
        }
        let place = RecordPlace { tag: self.tag, offset: start, previous: self.chain };
        let payload = opened(self.key.as_deref(), &header, place, payload, &mut self.opened, path)?;
        let offset = start + RECORD_HEADER_LEN;
        visit(RecordRef { record: Record::Edit(payload), file: path, offset })?;
        (self.last_start, self.chain) = (start, header.checksum);
        self.next = mark_slot;
        self.edit_count += 1;
        self.read_mark(LastRecord::UnmarkedEdit { start })?;
        Ok(true)
    }

    /// Passes a mark slot; `without` is what a slot without a mark means.
    fn read_mark(&mut self, without: LastRecord) -> Result<()> {
        let slot = self.next;
        self.next = slot + MARK_SLOT_LEN;
        self.last = match self.window.header(slot, self.tag)? {
            None => {
                let place = RecordPlace { tag: self.tag, offset: slot, previous: self.chain };
                let found = self.window.bytes_at(slot, MARK_SLOT_LEN)?;
                let is_damaged = !is_interrupted_mark(found, place);
                if is_damaged && self.damaged_marks.len() < DAMAGED_MARKS_MAX {
                    self.damaged_marks.push(slot);
                }
                without
            }
            Some(mark) if mark.kind == RecordKind::Mark && mark.previous == self.chain => {
                LastRecord::Marked
            }
            Some(_) => {
                let what = "a mark belongs to another record than the one in front of it";
                return Err(self.corruption(slot, what));
            }
        };
        Ok(())
    }

    /// E3: what lies behind the last valid edit is torn, unless it holds a record's header.
    fn examine_tail(&mut self) -> Result<Option<TornTail>> {
        let Some(used_end) = self.window.nonzero_end(self.next)? else { return Ok(None) };
        // The header at `next` itself proves nothing: it may be that of the torn edit.
        let mut offset = self.next + ALIGNMENT;
        while offset < used_end {
            if self.window.header(offset, self.tag)?.is_some()
                && !is_seeded(Bug::DamagedEditsCutOff)
            {
                let what = format!(
                    "an edit does not verify, although the record at offset {offset} shows that it \
                     was durable"
                );
                return Err(self.corruption(self.next, what));
            }
            offset += ALIGNMENT;
        }
        Ok(Some(TornTail { offset: self.next, len: used_end - self.next }))
    }

    fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.window.path, offset, what)
    }
}

/// The payload of a record that verifies, decrypted in `room` if it is sealed.
pub(super) fn opened<'p>(
    key: Option<&FileKey>,
    header: &RecordHeader,
    place: RecordPlace,
    payload: &'p [u8],
    room: &'p mut Vec<u8>,
    path: &Path,
) -> Result<&'p [u8]> {
    let Some(key) = key.filter(|_| header.kind != RecordKind::Mark) else { return Ok(payload) };
    room.clear();
    room.extend_from_slice(payload);
    let opened = key.open_sealed(&sealed_place(header.kind, header.length, place), room);
    opened.ok_or_else(|| {
        let what = "a record verifies, and is not what was sealed for this place";
        Error::corruption(path, place.offset, what)
    })
}

/// How many bytes there are up to the last one that is not zero. A block at a time, which compilers
/// make wide steps of: logs have many zeros at their ends.
fn nonzero_len(bytes: &[u8]) -> Option<usize> {
    const BLOCK_LEN: usize = 256;
    let mut end = bytes.len();
    for block in bytes.rchunks(BLOCK_LEN) {
        if block.iter().fold(0, |all, byte| all | byte) != 0 {
            let start = end - block.len();
            return block.iter().rposition(|&byte| byte != 0).map(|index| start + index + 1);
        }
        end -= block.len();
    }
    None
}

/// Payload of the record that ends a snapshot.
pub(super) fn snapshot_end(part_count: u64, part_bytes: u64) -> [u8; SNAPSHOT_END_LEN] {
    let mut payload = [0; SNAPSHOT_END_LEN];
    payload[..8].copy_from_slice(&part_count.to_le_bytes());
    payload[8..].copy_from_slice(&part_bytes.to_le_bytes());
    payload
}

/// The numbers of the log's files, rising, and the names of unfinished ones.
pub(super) fn list(
    storage: &dyn Storage,
    dir: &Path,
    stem: &str,
) -> Result<(Vec<u64>, Vec<String>)> {
    let entries = storage.list_dir(dir).map_err(|source| Error::io("list", dir, source))?;
    let (mut numbers, mut unfinished) = (Vec::new(), Vec::new());
    for entry in entries.into_iter().filter(|entry| entry.entry_type == EntryType::File) {
        match parse_name(stem, &entry.name) {
            FileName::Log(number) => numbers.push(number),
            FileName::Unfinished => unfinished.push(entry.name),
            FileName::Foreign => {}
        }
    }
    numbers.sort_unstable();
    Ok((numbers, unfinished))
}

fn newest_number(storage: &dyn Storage, dir: &Path, stem: &str) -> Result<u64> {
    let (numbers, _) = list(storage, dir, stem)?;
    numbers.last().copied().ok_or_else(|| {
        let what = format!("no file of the log {stem:?} exists");
        Error::corruption(&dir.join(file_name(stem, 1)), 0, what)
    })
}

pub(super) fn open_file(
    storage: &dyn Storage,
    path: &Path,
    mode: OpenMode,
) -> Result<Arc<dyn StorageFile>> {
    storage.open(path, mode).map_err(|source| Error::io("open", path, source))
}

/// The header of a file, and the file's size.
fn read_header(file: &dyn StorageFile, path: &Path) -> Result<(FileHeader, u64)> {
    let size = file.size().map_err(|source| Error::io("read the size of", path, source))?;
    if size < HEADER_LEN {
        let what = format!("the file has {size} bytes, fewer than its header");
        return Err(Error::corruption(path, size, what));
    }
    let mut bytes = [0; HEADER_LEN as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|source| Error::io("read", path, source))?;
    Ok((FileHeader::decode(&bytes, path)?, size))
}

/// A file seen through a buffer that moves along it.
struct Window {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    size: u64,
    /// Offset of the first byte in `bytes`.
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// The header at `offset`, if one verifies there.
    fn header(&mut self, offset: u64, tag: u64) -> Result<Option<RecordHeader>> {
        if offset + RECORD_HEADER_LEN > self.size {
            return Ok(None);
        }
        let size = self.size;
        let bytes = self.bytes_at(offset, RECORD_HEADER_LEN)?;
        Ok(RecordHeader::decode(bytes, tag, offset, size))
    }

    /// The record at `offset`, if header and payload verify: its header, its payload, the file.
    fn record(&mut self, offset: u64, tag: u64) -> Result<Option<(RecordHeader, &[u8], &Path)>> {
        let Some(header) = self.header(offset, tag)? else { return Ok(None) };
        // The length is bounded by the file's size: `decode` checked it.
        let body_len = header.record_len() - RECORD_HEADER_LEN;
        self.fill(offset + RECORD_HEADER_LEN, body_len)?;
        let padded = self.filled(offset + RECORD_HEADER_LEN, body_len);
        let valid = header.covers(padded, tag, offset) || is_seeded(Bug::EditUnverified);
        Ok(valid.then(|| (header, &padded[..header.length as usize], self.path.as_path())))
    }

    /// End of the last byte at or behind `offset` that is not zero.
    fn nonzero_end(&mut self, mut offset: u64) -> Result<Option<u64>> {
        let mut end = None;
        while offset < self.size {
            let len = WINDOW_LEN.min(self.size - offset);
            let bytes = self.bytes_at(offset, len)?;
            if let Some(len) = nonzero_len(bytes) {
                end = Some(offset + len as u64);
            }
            offset += len;
        }
        Ok(end)
    }

    fn bytes_at(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        self.fill(offset, len)?;
        Ok(self.filled(offset, len))
    }

    /// Makes `len` bytes from `offset`, which lie within the file, available to [`Self::filled`].
    fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        let end = offset + len;
        assert!(end <= self.size, "callers stay within the file");
        if offset >= self.start && end <= self.start + self.bytes.len() as u64 {
            return Ok(());
        }
        let fill_len = len.max(WINDOW_LEN).min(self.size - offset);
        self.bytes.clear();
        self.bytes.resize(fill_len as usize, 0);
        self.start = offset;
        let read = self.file.read_exact_at(&mut self.bytes, offset);
        read.map_err(|source| {
            self.bytes.clear();
            Error::io("read", &self.path, source)
        })
    }

    fn filled(&self, offset: u64, len: u64) -> &[u8] {
        let start = (offset - self.start) as usize;
        &self.bytes[start..start + len as usize]
    }
}
