//! Segments: the files that hold runs. Appended to, never overwritten; what is dead in one that is
//! partly live becomes holes.
//!
//! Layout of a segment file (little-endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `LITHESEG` |
//! | 8 | 2 | format version: 1; 2 of a segment whose frames are sealed |
//! | 10 | 2 | number of the data key that they are sealed with; 0: they are not |
//! | 12 | 4 | keyspace |
//! | 16 | 8 | database |
//! | 24 | 8 | segment number |
//! | 32 | 8 | checksum of bytes 0..32, with tag 0 and offset 0 |
//! | 40 | | frames, one a run |
//!
//! Invariants
//! - G1  A number is used once; so the number is also the generation of what lies in the file.
//! - G2  The checksum of every frame is seeded with database, keyspace, number and offset.
//! - G3  Holes are made in segments that nobody writes to, and never of the header.
//! - G4  No holes are made in a file that has a name elsewhere, as in a checkpoint, where runs that
//!   are dead here may be live. Who gives it that name holds all runs that are to be read by it
//!   until it is there: so a run that dies later finds the name, and one that is not held is not
//!   needed there. A name that was removed elsewhere may be back after a power cut, and lead to a
//!   file that was punched meanwhile: it was removed because no durable index there refers to it,
//!   so it is an orphan, which opening removes.
//! - G5  No holes are made of what was dead when somebody was reading beside who still is
//!   (`storage/followers.rs`): it may have read an index by which the run is live. Who comes later
//!   has read one by which it is dead.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::holes::{DeadSpace, HoleRule};
use crate::base::format::{FILE_VERSION_MAX, version_found};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use crate::base::{Error, Result, checksum, checksum_seeded};
use crate::seal::{FileIdentity, FileKey, Keyring, id_of};
use crate::seal::{key_in_version, version_field};
use crate::storage::{
    KeptOpen, NumberedNames, OpenFiles, OpenMode, Storage, StorageFile, is_gone, is_shared,
};
use crate::value_log::ValueLog;

/// Bytes in front of the first frame.
pub(super) const HEADER_LEN: u64 = 40;
const MAGIC: [u8; 8] = *b"LITHESEG";
const HEADER_SUMMED: usize = 32;
const NAMES: NumberedNames = NumberedNames("seg-");

/// Whether it is how a keyspace's segments are called.
#[must_use]
pub fn is_segment_name(name: &str) -> bool {
    NAMES.number_of(name).is_some()
}

/// Files of a database that are kept open for reading at most; the rest are opened when read. A
/// process may often have no more than 1024 open, of which each keyspace needs some for writing.
const OPEN_FILE_COUNT_MAX: usize = 256;

/// Segments of all keyspaces whose files are open.
#[derive(Debug)]
pub struct OpenSegments(OpenFiles<Segment>);

impl Default for OpenSegments {
    fn default() -> OpenSegments {
        OpenSegments(OpenFiles::new(OPEN_FILE_COUNT_MAX))
    }
}

/// Whose a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentIdentity {
    pub database: u64,
    pub keyspace: u32,
    pub number: u64,
}

impl SegmentIdentity {
    /// What a header says, if it verifies.
    pub(super) fn decode(header: &[u8]) -> Option<SegmentIdentity> {
        let number =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let keyspace = u32::from_le_bytes(header[12..16].try_into().expect("four bytes"));
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        let is_whole = number(HEADER_SUMMED) == checksum(&header[..HEADER_SUMMED], 0, 0);
        (is_whole && header[..8] == MAGIC && key_in_version(version).is_some())
            .then(|| SegmentIdentity { database: number(16), keyspace, number: number(24) })
    }

    /// Which file it is, for its key.
    pub(super) fn file(self) -> FileIdentity {
        let SegmentIdentity { database, keyspace, number } = self;
        FileIdentity { kind: *b"seg ", database, owner: u64::from(keyspace), number }
    }

    /// Seeds the checksums of the segment's frames (G2).
    pub(super) fn tag(self) -> u64 {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.database.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.keyspace.to_le_bytes());
        bytes[12..].copy_from_slice(&self.number.to_le_bytes());
        checksum_seeded(&bytes, 0)
    }
}

/// What the keyspaces of a database share.
#[derive(Clone, Debug)]
pub(super) struct SharedFiles {
    pub open: Arc<OpenSegments>,
    /// Where large values are.
    pub values: Arc<ValueLog>,
}

/// Where the segments of one keyspace are, and what they have in common.
#[derive(Debug)]
pub(super) struct SegmentPlace {
    // Constant.
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub database: u64,
    pub keyspace: u32,
    hole_rule: HoleRule,
    /// Shared with the other keyspaces.
    open: Arc<OpenSegments>,
    /// Where large values are.
    pub values: Arc<ValueLog>,
    // Guarded by their locks.
    /// Files that nothing refers to any more and that are still to be removed.
    doomed: Mutex<Vec<PathBuf>>,
    /// Segments in which runs have died since they were last looked at, by number.
    with_dead: Mutex<BTreeMap<u64, Weak<Segment>>>,
    /// Held to make holes.
    punching: Mutex<()>,
    /// Segments that anybody holds, by number, and how often.
    held: Mutex<BTreeMap<u64, usize>>,
    /// Numbers of segments that were written and are in no edit yet.
    unlisted: Mutex<BTreeSet<u64>>,
    /// Numbers of segments that have a [`SegmentWriter`].
    written_to: Mutex<BTreeSet<u64>>,
    // Atomic.
    /// The number of the next segment. Never used twice, even when the creation fails.
    next_number: AtomicU64,
    /// Bytes in files that only old versions refer to.
    pinned_bytes: AtomicU64,
    /// Bytes of runs that only old versions refer to.
    pinned_run_bytes: AtomicU64,
    /// Bytes of holes in files that are there.
    hole_bytes: AtomicU64,
    /// Bytes of which no holes were made, for the files have names elsewhere (G4), or are read
    /// beside (G5).
    shared_dead_bytes: AtomicU64,
    /// Whether the file system has refused a hole: then it is not asked again.
    refuses_holes: AtomicBool,
}

impl SegmentPlace {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        dir: PathBuf,
        database: u64,
        keyspace: u32,
        hole_rule: HoleRule,
        shared: SharedFiles,
    ) -> Arc<SegmentPlace> {
        let SharedFiles { open, values } = shared;
        Arc::new(SegmentPlace {
            storage,
            dir,
            database,
            keyspace,
            hole_rule,
            open,
            values,
            doomed: Mutex::default(),
            with_dead: Mutex::default(),
            punching: Mutex::default(),
            held: Mutex::default(),
            unlisted: Mutex::default(),
            written_to: Mutex::default(),
            next_number: AtomicU64::new(1),
            pinned_bytes: AtomicU64::new(0),
            pinned_run_bytes: AtomicU64::new(0),
            hole_bytes: AtomicU64::new(0),
            shared_dead_bytes: AtomicU64::new(0),
            refuses_holes: AtomicBool::new(false),
        })
    }

    /// Says that a segment is made that no edit names yet.
    pub(super) fn note_unlisted(&self, number: u64) {
        lock(&self.unlisted).insert(number);
    }

    /// Says that these segments are in an edit, or given up.
    pub(super) fn forget_unlisted(&self, numbers: &[u64]) {
        lock(&self.unlisted).retain(|number| !numbers.contains(number));
    }

    /// Whether anybody holds the segment, writes to it, or it is about to be removed.
    pub(super) fn is_known(&self, number: u64) -> bool {
        let path = self.path_of(number);
        lock(&self.held).contains_key(&number)
            || lock(&self.unlisted).contains(&number)
            || lock(&self.written_to).contains(&number)
            || lock(&self.doomed).contains(&path)
            || !matches!(self.storage.exists(&path), Ok(true))
    }

    pub(super) fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(NAMES.name(number))
    }

    /// Says that segments up to in front of `number` are, or were, there.
    pub(super) fn skip_to(&self, number: u64) {
        self.next_number.fetch_max(number, Ordering::Relaxed);
    }

    /// Numbers from this one on were not given to anybody.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// A number for a new segment. Flushes and ingests run beside one another.
    pub(super) fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Bytes of runs that only old versions refer to.
    pub(super) fn pinned_run_bytes(&self) -> u64 {
        self.pinned_run_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in files that only old versions refer to.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of holes that were made since opening, in files that are there.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.hole_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that would be holes, had their files no names elsewhere (G4), and did nobody read them
    /// beside (G5), when that was last looked at.
    pub(super) fn shared_dead_bytes(&self) -> u64 {
        self.shared_dead_bytes.load(Ordering::Relaxed)
    }

    /// Gives the room of what is dead in partly live segments back, where it is enough (X6). What
    /// somebody may read beside waits, and is looked at again each time.
    pub(super) fn punch_holes(&self) {
        // A segment dies bit by bit: else two could have its file open to be written to.
        let _one_at_a_time = lock(&self.punching);
        let written_to = lock(&self.written_to).clone();
        let with_dead: Vec<Weak<Segment>> = {
            let mut with_dead = lock(&self.with_dead);
            let closed = with_dead.extract_if(.., |number, _| !written_to.contains(number)); // G3
            closed.map(|(_, segment)| segment).collect()
        };
        let segments: Vec<Arc<Segment>> = with_dead.iter().filter_map(Weak::upgrade).collect();
        let rule = self.hole_rule;
        let taken = segments.iter().filter(|segment| !segment.is_retired()); // Their files go.
        let taken = taken.map(|segment| (segment, lock(&segment.dead).take_pieces(rule)));
        let is_due = |(segment, pieces): &(&Arc<Segment>, Vec<Range<u64>>)| {
            !pieces.is_empty() || !lock(&segment.read_beside).pieces.is_empty()
        };
        let taken: Vec<_> = taken.filter(is_due).collect();
        if taken.is_empty() {
            return;
        }
        let followers = self.storage.followers(); // G5: behind what is dead.
        for (segment, pieces) in taken {
            let pieces = segment.part_by_readers(pieces, followers);
            segment.punch_holes(pieces);
            if !lock(&segment.read_beside).pieces.is_empty() {
                lock(&self.with_dead).insert(segment.number, Arc::downgrade(segment));
            }
        }
    }

    /// Removes the files of dropped segments. One that cannot be removed now is tried again the
    /// next time; in the end it is an orphan, which opening removes.
    pub(super) fn remove_doomed(&self) {
        let mut doomed = std::mem::take(&mut *lock(&self.doomed));
        doomed.retain(|path| !is_gone(&self.storage.remove_file(path)));
        lock(&self.doomed).append(&mut doomed);
    }

    /// The numbers of the segment files that are there, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        NAMES.numbers_in(&*self.storage, &self.dir)
    }

    /// Removes the file of a segment that nothing refers to.
    pub(super) fn remove_orphan(&self, number: u64) -> Result<()> {
        let path = self.path_of(number);
        self.storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))
    }

    fn identity_of(&self, number: u64) -> SegmentIdentity {
        let (database, keyspace) = (self.database, self.keyspace);
        SegmentIdentity { database, keyspace, number }
    }
}

/// A segment, as versions refer to it. The last reference to a retired one dooms its file.
#[derive(Debug)]
pub(super) struct Segment {
    // Constant.
    pub number: u64,
    pub file_tag: u64,
    pub path: PathBuf,
    place: Arc<SegmentPlace>,
    // Set once.
    /// What its frames are sealed with, if they are: known when the file was opened.
    key: OnceLock<Option<Arc<FileKey>>>,
    // Atomic.
    file: KeptOpen,
    /// Whether the newest durable index does not refer to it (X5).
    retired: AtomicBool,
    /// Bytes written to the file.
    size: AtomicU64,
    /// Bytes of it that are holes.
    hole_bytes: AtomicU64,
    /// Bytes that would be, had the file no name elsewhere, and nobody read it beside.
    shared_dead_bytes: AtomicU64,
    // Guarded by their locks.
    dead: Mutex<DeadSpace>,
    read_beside: Mutex<ReadBeside>,
}

/// What is dead in a segment, and may be read by somebody who reads beside (G5).
#[derive(Debug, Default)]
struct ReadBeside {
    /// The highest number of those who were there when it was dead.
    newest: u64,
    pieces: Vec<Range<u64>>,
}

impl AsRef<KeptOpen> for Segment {
    fn as_ref(&self) -> &KeptOpen {
        &self.file
    }
}

impl Segment {
    /// A segment that exists, by the index. It is looked at when it is first read.
    pub(super) fn existing(place: &Arc<SegmentPlace>, number: u64, size: u64) -> Arc<Segment> {
        *lock(&place.held).entry(number).or_default() += 1;
        Arc::new(Segment {
            number,
            file_tag: place.identity_of(number).tag(),
            path: place.path_of(number),
            place: Arc::clone(place),
            key: OnceLock::new(),
            file: KeptOpen::default(),
            retired: AtomicBool::new(false),
            size: AtomicU64::new(size),
            hole_bytes: AtomicU64::new(0),
            shared_dead_bytes: AtomicU64::new(0),
            dead: Mutex::default(),
            read_beside: Mutex::default(),
        })
    }

    /// What its frames are sealed with, if they are. To be asked when the file is, or was, open.
    pub(super) fn key(&self) -> Option<&FileKey> {
        self.key.get()?.as_deref()
    }

    /// The file, opened and its header checked if need be.
    pub(super) fn file(self: &Arc<Segment>) -> Result<Arc<dyn StorageFile>> {
        if let Some(file) = self.file.file() {
            return Ok(file);
        }
        let file = self.open(OpenMode::ReadOnly)?;
        self.place.open.0.keep(self, &file);
        Ok(file)
    }

    /// Opens the file and checks its header.
    fn open(&self, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let opened = self.place.storage.open(&self.path, mode);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::corruption(&self.path, 0, "the segment file is missing")
            }
            _ => Error::io("open", &self.path, error),
        })?;
        self.check_header(&*file)?;
        Ok(file)
    }

    /// Checks the header against what the file must be.
    pub(super) fn check_header(&self, file: &dyn StorageFile) -> Result<()> {
        let mut found = [0; HEADER_LEN as usize];
        file.read_exact_at(&mut found, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::corruption(&self.path, 0, "the file ends within its header")
            }
            _ => Error::io("read", &self.path, error),
        })?;
        let version = u32::from_le_bytes(found[8..12].try_into().expect("four bytes"));
        let key = key_in_version(version);
        if let Some(key) = key
            && found == encode_header(&self.place, self.number, key)
        {
            return self.take_key(key);
        }
        let sum = u64::from_le_bytes(found[HEADER_SUMMED..].try_into().expect("eight bytes"));
        let is_whole = sum == checksum(&found[..HEADER_SUMMED], 0, 0);
        if is_whole && found[..8] == MAGIC && key.is_none() {
            return Err(Error::FormatVersion {
                file: self.path.clone(),
                found: version_found(version),
                known: FILE_VERSION_MAX,
            });
        }
        let what = match is_whole {
            true => "the header is that of another database, keyspace or segment",
            false => "the header does not verify",
        };
        Err(Error::corruption(&self.path, 0, what))
    }

    /// Finds the key of this number. A file never has another one.
    fn take_key(&self, number: u16) -> Result<()> {
        if self.key.get().is_some_and(|key| id_of(key.as_deref()) == number) {
            return Ok(());
        }
        let (keyring, file) = (self.place.storage.keyring(), self.place.identity_of(self.number));
        let key = Keyring::of_found(keyring, number, &file.file(), &self.path)?;
        match self.key.set(key) {
            Ok(()) => Ok(()),
            Err(_) if id_of(self.key()) == number => Ok(()),
            Err(_) => Err(Error::corruption(&self.path, 0, "the header has changed")),
        }
    }

    /// Says that the bytes of a run are dead (X6): the newest durable index does not refer to it,
    /// and no version holds it. Makes no call to the storage, for it is called by whoever is last
    /// to let go, a reader even.
    fn note_dead(self: &Arc<Segment>, range: Range<u64>) {
        let place = &self.place;
        if self.is_retired() || place.refuses_holes.load(Ordering::Relaxed) {
            return;
        }
        lock(&self.dead).add(range);
        lock(&place.with_dead).insert(self.number, Arc::downgrade(self));
    }

    /// Of what is dead, and what was dead before, that which nobody reads who was there by then;
    /// the rest waits. `followers` were looked for behind that.
    fn part_by_readers(
        &self,
        dead: Vec<Range<u64>>,
        followers: Option<(u64, u64)>,
    ) -> Vec<Range<u64>> {
        let mut waiting = lock(&self.read_beside);
        let oldest = followers.map_or(u64::MAX, |(oldest, _)| oldest);
        let is_over = waiting.newest < oldest;
        let mut free = if is_over { std::mem::take(&mut waiting.pieces) } else { Vec::new() };
        match followers {
            None => free.extend(dead),
            // Later ones would have those that wait already wait for later readers, too.
            Some((_, newest)) if waiting.pieces.is_empty() && newest < u64::MAX => {
                *waiting = ReadBeside { newest, pieces: dead };
            }
            Some(_) => {
                drop(waiting);
                let mut space = lock(&self.dead);
                dead.into_iter().for_each(|piece| space.add(piece));
                drop(space);
                waiting = lock(&self.read_beside);
            }
        }
        let sizes = waiting.pieces.iter().map(|piece| piece.end - piece.start);
        self.note_shared_dead(sizes.sum());
        free
    }

    /// Makes holes of what is dead, if it is enough. What fails leaves the room taken, until the
    /// segment goes: nobody has to know.
    fn punch_holes(self: &Arc<Segment>, pieces: Vec<Range<u64>>) {
        if pieces.is_empty() {
            return;
        }
        // G4: looked at behind what is dead. It is put back until more dies in the segment, when
        // it may be shared no more.
        let is_own = self.file().is_ok_and(|file| !is_shared(&*file));
        if !is_own {
            let sizes = pieces.iter().map(|piece| piece.end - piece.start);
            let waits =
                lock(&self.read_beside).pieces.iter().map(|it| it.end - it.start).sum::<u64>();
            self.note_shared_dead(waits + sizes.sum::<u64>());
            let mut dead = lock(&self.dead);
            pieces.into_iter().for_each(|piece| dead.add(piece));
            return;
        }
        // The one that is kept open is for reading.
        let Ok(file) = self.open(OpenMode::ReadWrite) else { return };
        for piece in pieces {
            let size = piece.end - piece.start;
            debug_assert!(piece.start >= HEADER_LEN, "G3");
            match file.punch_hole(piece.start, size) {
                Ok(()) => {
                    self.hole_bytes.fetch_add(size, Ordering::Relaxed);
                    self.place.hole_bytes.fetch_add(size, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.place.refuses_holes.store(true, Ordering::Relaxed);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn note_shared_dead(&self, bytes: u64) {
        let before = self.shared_dead_bytes.swap(bytes, Ordering::Relaxed);
        self.place.shared_dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.place.shared_dead_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Says that the newest durable index does not refer to the segment any more.
    pub(super) fn retire(&self) {
        if is_seeded(Bug::SegmentRemovedEarly) {
            let _removed = self.place.storage.remove_file(&self.path);
        }
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.place.pinned_bytes.fetch_add(self.size(), Ordering::Relaxed);
        }
    }

    /// Says that this many bytes are in the file, or more.
    pub(super) fn note_size(&self, size: u64) {
        self.size.fetch_max(size, Ordering::Relaxed);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether a [`SegmentWriter`] has it. If not, none ever will.
    pub(super) fn is_written_to(&self) -> bool {
        lock(&self.place.written_to).contains(&self.number)
    }

    /// Bytes in the file, holes included.
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.is_retired() {
            self.place.pinned_bytes.fetch_sub(self.size(), Ordering::Relaxed);
            let hole_bytes = self.hole_bytes.load(Ordering::Relaxed);
            self.place.hole_bytes.fetch_sub(hole_bytes, Ordering::Relaxed);
            self.note_shared_dead(0);
            lock(&self.place.doomed).push(std::mem::take(&mut self.path));
        }
        let mut held = lock(&self.place.held);
        match held.get_mut(&self.number) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.number)),
        }
    }
}

/// The bytes of a run that no durable index refers to any more. Goes with the run, and then says
/// that they are dead (X6).
#[derive(Debug)]
pub(super) struct LostBytes {
    segment: Arc<Segment>,
    range: Range<u64>,
}

impl LostBytes {
    pub(super) fn new(segment: &Arc<Segment>, range: Range<u64>) -> LostBytes {
        segment.place.pinned_run_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        LostBytes { segment: Arc::clone(segment), range }
    }
}

impl Drop for LostBytes {
    fn drop(&mut self) {
        let bytes = self.range.end - self.range.start;
        self.segment.place.pinned_run_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.segment.note_dead(self.range.clone());
    }
}

/// The number of the data key that a header names; 0 for none, or for what is no header.
pub(in crate::structure) fn key_in_header(header: &[u8]) -> u16 {
    let version = header[8..12].try_into().map_or(0, u32::from_le_bytes);
    key_in_version(version).unwrap_or_default()
}

fn encode_header(place: &SegmentPlace, number: u64, key: u16) -> [u8; HEADER_LEN as usize] {
    let mut bytes = [0; HEADER_LEN as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version_field(key).to_le_bytes());
    bytes[12..16].copy_from_slice(&place.keyspace.to_le_bytes());
    bytes[16..24].copy_from_slice(&place.database.to_le_bytes());
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(&bytes[..HEADER_SUMMED], 0, 0);
    bytes[HEADER_SUMMED..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Appends frames to one segment.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    pub segment: Arc<Segment>,
    file: Arc<dyn StorageFile>,
    /// Bytes that are still to be written; they belong at `written`.
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    /// Last: it is written to until the file is let go.
    _at_work: AtWork,
}

/// That a segment is written to, for as long as this lives.
#[derive(Debug)]
struct AtWork {
    place: Arc<SegmentPlace>,
    number: u64,
}

impl AtWork {
    fn new(place: &Arc<SegmentPlace>, number: u64) -> AtWork {
        lock(&place.written_to).insert(number);
        AtWork { place: Arc::clone(place), number }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        lock(&self.place.written_to).remove(&self.number);
    }
}

/// Bytes gathered before they are written.
const WRITE_SIZE: usize = 256 << 10;

impl SegmentWriter {
    /// Creates the file. Its name is durable once the directory is synced.
    pub(super) fn create(place: &Arc<SegmentPlace>, number: u64) -> Result<SegmentWriter> {
        let segment = Segment::existing(place, number, 0);
        let opened = place.storage.open(&segment.path, OpenMode::CreateNew);
        let file = opened.map_err(|error| Error::io("create", &segment.path, error))?;
        place.open.0.keep(&segment, &file);
        let _at_work = AtWork::new(place, number);
        let key = Keyring::for_new(place.storage.keyring(), &place.identity_of(number).file())?;
        let buffer = encode_header(place, number, id_of(key.as_deref())).to_vec();
        let _it_is_new = segment.key.set(key);
        Ok(SegmentWriter { segment, file, buffer, written: 0, synced: 0, _at_work })
    }

    /// Bytes of memory of its buffer.
    pub(super) fn buffer_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Where the next frame will lie.
    pub(super) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends what `seal` puts at the end of the buffer: one frame, for [`Self::position`].
    pub(super) fn append<T>(
        &mut self,
        seal: impl FnOnce(&Segment, u64, &mut Vec<u8>) -> Result<T>,
    ) -> Result<T> {
        let position = self.position();
        let sealed = seal(&self.segment, position, &mut self.buffer)?;
        if self.buffer.len() >= WRITE_SIZE {
            let from = self.written;
            self.write_out()?;
            // The disk works while the next runs are built.
            self.file.begin_writeback(from, self.written - from);
        }
        Ok(sealed)
    }

    /// Writes what was gathered.
    fn write_out(&mut self) -> Result<()> {
        let wrote = self.file.write_all_at(&self.buffer, self.written);
        wrote.map_err(|error| Error::io("write", &self.segment.path, error))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.segment.size.store(self.written, Ordering::Relaxed);
        Ok(())
    }

    /// Makes everything appended so far durable (the name needs the directory synced).
    pub(super) fn sync(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.write_out()?;
        }
        if self.synced < self.written {
            self.file.sync().map_err(|error| Error::io("sync", &self.segment.path, error))?;
            self.synced = self.written;
        }
        Ok(())
    }
}

/// Locks a mutex whose data stays consistent whatever panicked while it was held.
fn lock<T>(mutex: &Mutex<T>) -> crate::base::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a segment, for errors about files that are not there.
pub(super) fn missing(dir: &Path, number: u64) -> Error {
    let path = dir.join(NAMES.name(number));
    Error::corruption(&path, 0, "the segment file is missing")
}
