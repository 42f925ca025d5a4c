//! Writing an edit log: making a file, appending to it, going over to the next one.

use super::format::{
    EditLogId, FileHeader, HEADER_LEN, MARK_SLOT_LEN, PAYLOAD_LEN_MAX, RECORD_HEADER_LEN,
    RecordHeader, RecordKind, RecordPlace, file_name, file_tag, identity, padded, put_record,
    seal_len, unfinished_name,
};
use super::read::{LastRecord, Reader, Record, RecordRef, Scan, list, snapshot_end};
use super::tail::LogTail;
use super::{EditLogImage, LogPosition, OpenReport};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::seal::{FileKey, Keyring, SEAL_LEN, id_of};
use crate::storage::{OpenMode, Storage, StorageFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Capacities are multiples of this.
const CAPACITY_UNIT: u64 = 4096;
/// Bytes of a snapshot gathered before they are written; also the piece in which zeros are written.
const BUFFER_LEN: usize = 256 << 10;

/// A log open for appending. One at a time for one log: the database's lock sees to that.
#[derive(Debug)]
pub struct EditLog {
    // Constant after open.
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    id: EditLogId,
    /// File and offset of the last mark, if it was damaged; it has been written anew.
    mended_mark: Option<(PathBuf, u64)>,
    /// Where reading it ended when it was opened.
    found: Option<LogTail>,
    // The state.
    current: LogFile,
    /// E6: why nothing more can be written.
    broken: Option<String>,
}

/// The file that edits go to.
#[derive(Debug)]
struct LogFile {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    number: u64,
    tag: u64,
    capacity: u64,
    /// Where the next edit goes.
    end: u64,
    /// Checksum of the last record of the chain.
    chain: u64,
    /// What payloads are sealed with.
    key: Option<Arc<FileKey>>,
}

/// How making a file failed.
enum CreateError {
    /// The file is not part of the log: nothing changed.
    Unchanged(Error),
    /// The file may or may not have become the newest one.
    Unknown(Error),
}

impl CreateError {
    fn into_error(self) -> Error {
        match self {
            CreateError::Unchanged(error) | CreateError::Unknown(error) => error,
        }
    }
}

impl EditLog {
    /// Bytes of the longest edit. A change that takes more is made with [`EditLog::rotate`].
    pub const EDIT_LEN_MAX: usize = PAYLOAD_LEN_MAX as usize - SEAL_LEN;

    /// Makes the file of that number from a snapshot, with room for about `edit_room` bytes of
    /// edits (rounded up; see [`EditLog::fits`]). Durable on return.
    ///
    /// # Errors
    /// `InvalidArgument` when the log has a file of that or a higher number; `DiskFull`, `Io`;
    /// whatever `snapshot` returns. After an error the file exists or not.
    pub fn create(
        storage: Arc<dyn Storage>,
        dir: &Path,
        id: EditLogId,
        number: u64,
        edit_room: u64,
        snapshot: impl FnOnce(&mut SnapshotSink) -> Result<()>,
    ) -> Result<EditLog> {
        let (numbers, _) = list(&*storage, dir, id.stem)?;
        if let Some(newest) = numbers.last().filter(|&&newest| newest >= number) {
            let path = dir.join(file_name(id.stem, *newest));
            return Err(Error::invalid(format!("{} exists already", path.display())));
        }
        let made = LogFile::create(&*storage, dir, &id, number, edit_room, snapshot);
        let current = made.map_err(CreateError::into_error)?;
        let (dir, mended_mark, found) = (dir.to_owned(), None, None);
        let mut log = EditLog { storage, dir, id, mended_mark, found, current, broken: None };
        log.write_mark();
        Ok(log)
    }

    /// Opens the newest file, hands its records to `visit`, wipes a torn edit behind the last valid
    /// one and makes what was read durable (E4, E5); older files are left where they are.
    /// `required` is a position that another part of the database knows to be durable: a log that
    /// does not reach it is damaged.
    ///
    /// # Errors
    /// `Corruption` with file and offset, `FormatVersion`, `Io`, whatever `visit` returns. Nothing
    /// that is valid changed.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        id: EditLogId,
        required: Option<LogPosition>,
        visit: impl FnMut(RecordRef<'_>) -> Result<()>,
    ) -> Result<(EditLog, OpenReport)> {
        let reader = Reader::open(&*storage, dir, &id, OpenMode::ReadWrite)?;
        let scan = reader.scan(required, visit)?;
        // What comes behind that, if somebody else writes the file, is not of what was read.
        let kept = scan.file.keep_front(scan.end);
        kept.map_err(|source| Error::io("read", &scan.path, source))?;
        let report = scan.report();
        let found = Some(LogTail::behind(&scan, dir, id));
        let (_, unfinished) = list(&*storage, dir, id.stem)?;
        for name in unfinished {
            remove(&*storage, &dir.join(name))?;
        }
        let mended_mark = scan.damaged_last_mark().map(|offset| (scan.path.clone(), offset));
        let last = scan.last;
        let current = match last {
            LastRecord::UnmarkedSnapshot => copy_snapshot(&*storage, dir, &id, &scan)?,
            LastRecord::UnmarkedEdit { .. } | LastRecord::Marked => {
                settle_scan(&scan)?;
                LogFile {
                    file: scan.file,
                    path: scan.path,
                    number: scan.number,
                    tag: scan.tag,
                    capacity: scan.capacity,
                    end: scan.end,
                    chain: scan.chain,
                    key: scan.key,
                }
            }
        };
        let dir = dir.to_owned();
        let mut log = EditLog { storage, dir, id, mended_mark, found, current, broken: None };
        if last != LastRecord::Marked {
            log.write_mark();
        }
        Ok((log, report))
    }

    /// Appends an edit. Durable on return.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not fit (see [`EditLog::fits`]); nothing changed then. `Io`
    /// or `DiskFull`: the edit is in the log or not, which reopening shows, and until then the log
    /// refuses everything with `ReadOnly`.
    pub fn append(&mut self, edit: &[u8]) -> Result<()> {
        self.check_usable()?;
        if !self.fits(edit.len()) {
            let path = self.current.path.display();
            return Err(Error::invalid(format!(
                "an edit of {} bytes does not fit into the rest of {path}",
                edit.len()
            )));
        }
        let mut bytes = Vec::with_capacity(edit.len() + 2 * RECORD_HEADER_LEN as usize);
        let chain = put_record(
            &mut bytes,
            RecordKind::Edit,
            edit,
            self.current.place(),
            self.current.key.as_deref(),
        );
        if let Err(error) = self.current.write_durably(&bytes) {
            return Err(self.break_with(error));
        }
        self.current.chain = chain;
        self.current.end += bytes.len() as u64 + MARK_SLOT_LEN;
        self.write_mark();
        Ok(())
    }

    /// Whether an edit of `len` bytes fits into the current file.
    #[must_use]
    pub fn fits(&self, len: usize) -> bool {
        let stored = len + seal_len(self.current.key.as_deref());
        len <= EditLog::EDIT_LEN_MAX
            && self.current.end + stored_size(stored) <= self.current.capacity
    }

    /// Bytes that an edit of `len` bytes takes in the file, for reckoning `edit_room`; one that is
    /// sealed takes 40 more, for which there is room as well.
    #[must_use]
    pub fn edit_size(len: usize) -> u64 {
        stored_size(len)
    }

    /// Where reading it ended when it was opened, for who reads on what somebody else writes; none
    /// of a log that was made.
    #[must_use]
    pub fn found(&self) -> Option<&LogTail> {
        self.found.as_ref()
    }

    /// End of the last durable edit.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        LogPosition { number: self.current.number, offset: self.current.end }
    }

    /// The log as of its last edit.
    #[must_use]
    pub fn image(&self) -> EditLogImage {
        let LogFile { file, path, end, capacity, .. } = &self.current;
        let (file, path) = (Arc::clone(file), path.clone());
        EditLogImage { file, path, size: *end, capacity: *capacity }
    }

    /// Makes the next file from a snapshot of the present state and goes over to it. Durable on
    /// return; the older files may then be removed.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, or whatever `snapshot` returns: the old file goes on to be used. But when
    /// the new file may already have become the newest, the log refuses everything from then on
    /// with `ReadOnly`: edits to the old one could be lost.
    pub fn rotate(
        &mut self,
        edit_room: u64,
        snapshot: impl FnOnce(&mut SnapshotSink) -> Result<()>,
    ) -> Result<()> {
        self.check_usable()?;
        let number = self.current.number + 1;
        let storage = &*self.storage;
        match LogFile::create(storage, &self.dir, &self.id, number, edit_room, snapshot) {
            Ok(current) => {
                self.current = current;
                self.write_mark();
                Ok(())
            }
            Err(CreateError::Unchanged(error)) => Err(error),
            Err(CreateError::Unknown(error)) => Err(self.break_with(error)),
        }
    }

    /// Removes the files of lower numbers. May be left out or fail: what remains is ignored, and
    /// removed by the next call.
    ///
    /// # Errors
    /// `Io`: some are still there.
    pub fn remove_older(&self) -> Result<()> {
        let (numbers, _) = list(&*self.storage, &self.dir, self.id.stem)?;
        for number in numbers.into_iter().filter(|&number| number < self.current.number) {
            remove(&*self.storage, &self.dir.join(file_name(self.id.stem, number)))?;
        }
        Ok(())
    }

    /// Makes the mark of the last edit durable, so that damage to that edit is found from now on
    /// even if the machine stops. For a clean close; costs a sync.
    ///
    /// # Errors
    /// `Io`; the log then refuses everything with `ReadOnly`.
    pub fn settle(&mut self) -> Result<()> {
        self.check_usable()?;
        let synced = self.current.file.sync();
        synced.map_err(|source| self.break_with(Error::io("sync", &self.current.path, source)))
    }

    /// File and offset of the mark that opening found damaged and wrote anew, if there was one.
    #[must_use]
    pub fn mended_mark(&self) -> Option<&(PathBuf, u64)> {
        self.mended_mark.as_ref()
    }

    /// The newest file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.current.path
    }

    /// Bytes of the newest file.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.current.capacity
    }

    /// Writes the mark of the last record, unsynced: the next sync takes it along.
    fn write_mark(&mut self) {
        let LogFile { tag, chain, end, .. } = self.current;
        let offset = end - MARK_SLOT_LEN;
        let mut bytes = Vec::with_capacity(MARK_SLOT_LEN as usize);
        let place = RecordPlace { tag, offset, previous: chain };
        put_record(&mut bytes, RecordKind::Mark, &[], place, None);
        if let Err(source) = self.current.file.write_all_at(&bytes, offset) {
            // What it marks is durable, so that succeeds; nothing more must be tried (E6).
            self.break_with(Error::io("write", &self.current.path, source));
        }
    }

    /// Why the log refuses everything, if it does (E6): what is in its file may be more than what
    /// was acknowledged.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    fn check_usable(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
        }
    }

    /// E6.
    fn break_with(&mut self, error: Error) -> Error {
        self.broken = Some(format!("an earlier write failed: {error}"));
        match error {
            // It may have happened: not what `DiskFull` promises.
            Error::DiskFull { path } => {
                let source = std::io::ErrorKind::StorageFull.into();
                Error::Io { action: "write", path, source }
            }
            other => other,
        }
    }
}

impl LogFile {
    fn create(
        storage: &dyn Storage,
        dir: &Path,
        id: &EditLogId,
        number: u64,
        edit_room: u64,
        snapshot: impl FnOnce(&mut SnapshotSink) -> Result<()>,
    ) -> std::result::Result<LogFile, CreateError> {
        let unfinished = dir.join(unfinished_name(id.stem, number));
        let path = dir.join(file_name(id.stem, number));
        let made = LogFile::write_new(storage, &unfinished, id, number, edit_room, snapshot);
        let mut made = made.map_err(|error| {
            // Gives the room back. When that fails too, the next open removes it.
            let _ = storage.remove_file(&unfinished);
            CreateError::Unchanged(error)
        })?;
        // E1: everything in it is durable, now it gets its name.
        let named = storage.rename(&unfinished, &path);
        named.map_err(|source| CreateError::Unknown(Error::io("rename", &unfinished, source)))?;
        let synced = storage.sync_dir(dir);
        synced.map_err(|source| CreateError::Unknown(Error::io("sync", dir, source)))?;
        made.path = path;
        Ok(made)
    }

    /// Writes header and snapshot to a new file at `path` and syncs it.
    fn write_new(
        storage: &dyn Storage,
        path: &Path,
        id: &EditLogId,
        number: u64,
        edit_room: u64,
        snapshot: impl FnOnce(&mut SnapshotSink) -> Result<()>,
    ) -> Result<LogFile> {
        if storage.exists(path).map_err(|source| Error::io("look for", path, source))? {
            remove(storage, path)?;
        }
        let file = storage
            .open(path, OpenMode::CreateNew)
            .map_err(|source| Error::io("create", path, source))?;
        let tag = file_tag(id, number);
        let key = Keyring::for_new(storage.keyring(), &identity(id, number))?;
        let mut sink = SnapshotSink::new(Arc::clone(&file), path, tag, key.clone());
        snapshot(&mut sink)?;
        let (snapshot_end, chain) = sink.finish()?;
        let end = snapshot_end + MARK_SLOT_LEN;
        let edit_room = edit_room + seal_len(key.as_deref()) as u64;
        let capacity = (end + edit_room).next_multiple_of(CAPACITY_UNIT);
        file.preallocate(capacity).map_err(|source| Error::io("preallocate", path, source))?;
        let EditLogId { kind, database, owner, .. } = *id;
        let of_key = id_of(key.as_deref());
        let header = FileHeader { kind, database, owner, number, capacity, key: of_key };
        file.write_all_at(&header.encode(), 0)
            .map_err(|source| Error::io("write", path, source))?;
        if !is_seeded(Bug::SnapshotNotSynced) {
            file.sync().map_err(|source| Error::io("sync", path, source))?;
        }
        Ok(LogFile { file, path: path.to_owned(), number, tag, capacity, end, chain, key })
    }

    /// Where the next edit belongs.
    fn place(&self) -> RecordPlace {
        RecordPlace { tag: self.tag, offset: self.end, previous: self.chain }
    }

    /// E3.
    fn write_durably(&self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, self.end);
        written.map_err(|source| Error::io("write", &self.path, source))?;
        if is_seeded(Bug::EditNotSynced) {
            return Ok(());
        }
        self.file.sync().map_err(|source| Error::io("sync", &self.path, source))
    }
}

/// Bytes that an edit takes of which so many are stored.
fn stored_size(len: usize) -> u64 {
    RECORD_HEADER_LEN + padded(len as u64) + MARK_SLOT_LEN
}

/// Takes the parts of a snapshot.
#[derive(Debug)]
pub struct SnapshotSink {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    tag: u64,
    key: Option<Arc<FileKey>>,
    /// Records that are not written yet, and where they belong.
    buffer: Vec<u8>,
    buffer_offset: u64,
    chain: u64,
    part_count: u64,
    part_bytes: u64,
}

impl SnapshotSink {
    fn new(
        file: Arc<dyn StorageFile>,
        path: &Path,
        tag: u64,
        key: Option<Arc<FileKey>>,
    ) -> SnapshotSink {
        SnapshotSink {
            file,
            path: path.to_owned(),
            tag,
            key,
            buffer: Vec::new(),
            buffer_offset: HEADER_LEN,
            chain: tag,
            part_count: 0,
            part_bytes: 0,
        }
    }

    /// Adds a part of at most 64 MiB less 40 bytes. A reader gets the parts one by one, in this
    /// order.
    ///
    /// # Errors
    /// `InvalidArgument` when it is too large; `DiskFull`, `Io`.
    pub fn part(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() > EditLog::EDIT_LEN_MAX {
            return Err(Error::invalid(format!(
                "a snapshot part of {} bytes: at most {} are allowed",
                payload.len(),
                EditLog::EDIT_LEN_MAX
            )));
        }
        self.part_count += 1;
        self.part_bytes += (payload.len() + seal_len(self.key.as_deref())) as u64;
        self.put(RecordKind::SnapshotPart, payload)
    }

    /// Writes the end record; returns its end and its checksum.
    fn finish(mut self) -> Result<(u64, u64)> {
        let end = snapshot_end(self.part_count, self.part_bytes);
        self.put(RecordKind::SnapshotEnd, &end)?;
        self.write_buffer()?;
        Ok((self.buffer_offset, self.chain))
    }

    fn put(&mut self, kind: RecordKind, payload: &[u8]) -> Result<()> {
        let offset = self.buffer_offset + self.buffer.len() as u64;
        let place = RecordPlace { tag: self.tag, offset, previous: self.chain };
        let key = self.key.as_deref();
        self.chain = put_record(&mut self.buffer, kind, payload, place, key);
        if self.buffer.len() >= BUFFER_LEN { self.write_buffer() } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> Result<()> {
        let written = self.file.write_all_at(&self.buffer, self.buffer_offset);
        written.map_err(|source| Error::io("write", &self.path, source))?;
        self.buffer_offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Makes the next file from the snapshot of a file without edits (E5).
fn copy_snapshot(
    storage: &dyn Storage,
    dir: &Path,
    id: &EditLogId,
    scan: &Scan,
) -> Result<LogFile> {
    let room = scan.capacity - scan.end;
    let copied = LogFile::create(storage, dir, id, scan.number + 1, room, |sink| {
        let source = Reader::open(storage, dir, id, OpenMode::ReadOnly)?;
        let copy = source.scan(None, |record| match record.record {
            Record::SnapshotPart(part) => sink.part(part),
            Record::SnapshotEnd | Record::Edit(_) => Ok(()),
        });
        copy.map(drop)
    });
    copied.map_err(CreateError::into_error)
}

/// Makes what a scan accepted durable, and wipes what it did not (E4, E5).
fn settle_scan(scan: &Scan) -> Result<()> {
    let path = &scan.path;
    let write = |bytes: &[u8], offset| {
        let written = scan.file.write_all_at(bytes, offset);
        written.map_err(|source| Error::io("write", path, source))
    };
    if let LastRecord::UnmarkedEdit { start } = scan.last {
        let mut edit = vec![0; (scan.end - MARK_SLOT_LEN - start) as usize];
        let read = scan.file.read_exact_at(&mut edit, start);
        read.map_err(|source| Error::io("read", path, source))?;
        // Verified once more: what is written over a good edit must be that edit.
        let header = RecordHeader::decode(&edit, scan.tag, start, scan.capacity);
        let payload = &edit[RECORD_HEADER_LEN as usize..];
        if !header.is_some_and(|header| header.covers(payload, scan.tag, start)) {
            return Err(Error::corruption(path, start, "an edit changed between two reads of it"));
        }
        write(&edit, start)?;
    }
    if let Some(torn) = scan.torn {
        let zeros = vec![0; BUFFER_LEN.min(torn.len as usize)];
        let (mut offset, end) = (torn.offset, torn.offset + torn.len);
        while offset < end {
            let piece = &zeros[..zeros.len().min((end - offset) as usize)];
            write(piece, offset)?;
            offset += piece.len() as u64;
        }
    }
    scan.file.sync().map_err(|source| Error::io("sync", path, source))
}

fn remove(storage: &dyn Storage, path: &Path) -> Result<()> {
    storage.remove_file(path).map_err(|source| Error::io("remove", path, source))
}
