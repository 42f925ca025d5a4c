//! A file of frames that may be damaged: single frames where they must be, or whatever verifies.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Damage;
use crate::base::{Codec, Error, Result, checksum};
use crate::block::{Block, Dictionary, FRAME_SEALED, FrameKind, FramePlace, frame};
use crate::memory::{Heap, SharedBytes};
use crate::seal::{FileIdentity, FileKey, Keyring};
use crate::storage::{OpenMode, Storage, StorageFile};

const FRAME_HEADER_LEN: u64 = frame::HEADER_LEN as u64;
/// Bytes read at once.
const WINDOW_LEN: u64 = 256 << 10;
/// What is passed over where the disk gives nothing.
const UNREADABLE_LEN: u64 = 4096;
/// Where the version is in the header of a file, of either kind.
const VERSION_AT: usize = 8;
/// Bytes of a frame's header that are its checksum.
const SUM_LEN: u64 = 8;
/// Kinds of frames: `FrameKind`.
const KINDS: RangeInclusive<u8> = FrameKind::Entries as u8..=FrameKind::Dictionary as u8;
/// Bytes summed up in vain at most, for each byte of the file, while frames are searched (Z4):
/// bytes that look like the header of a long frame, again and again, are no accident.
const VAIN_SUMS_PER_BYTE: u64 = 1024;

/// Which file it must be.
#[derive(Clone, Copy, Debug)]
pub(in crate::structure) struct Owner {
    /// Seeds the checksums of its frames.
    pub tag: u64,
    /// What its key is derived with.
    pub identity: FileIdentity,
    /// Bytes in front of the first frame.
    pub header_len: u64,
    /// The number of the data key in a header, if the header is one of this file.
    pub key_in: fn(&[u8], &Owner) -> Option<u16>,
}

/// A frame that verifies.
#[derive(Debug)]
pub(in crate::structure) struct FoundFrame {
    pub offset: u64,
    pub len: u64,
    pub kind: u8,
    /// The low half of its checksum.
    sum: u32,
}

/// What lies in front of a frame, or of the end, and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::structure) struct Passed {
    /// Where.
    pub range: Range<u64>,
    /// Whether all of it is zero, as where a hole was made.
    pub is_blank: bool,
}

/// A file, opened for its frames whatever its header says.
#[derive(Debug)]
pub(in crate::structure) struct SalvageFile {
    file: Arc<dyn StorageFile>,
    pub path: PathBuf,
    pub size: u64,
    tag: u64,
    key: Option<Arc<FileKey>>,
    /// What is wrong with its header, which nothing but its key depends on.
    pub header_damage: Option<Damage>,
    /// Bytes that were summed up and were no frame.
    summed_in_vain: u64,
    // A window of the file.
    start: u64,
    bytes: Vec<u8>,
}

impl SalvageFile {
    /// Opens the file.
    ///
    /// # Errors
    /// `Corruption` where it is missing or has no key; `Io`; `KeyNeeded`.
    pub(in crate::structure) fn open(
        storage: &dyn Storage,
        path: &Path,
        owner: &Owner,
    ) -> Result<SalvageFile> {
        let file = storage.open(path, OpenMode::ReadOnly).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::corruption(path, 0, "the file is missing"),
            _ => Error::io("open", path, error),
        })?;
        let size = file.size().map_err(|error| Error::io("stat", path, error))?;
        // Alone: of most files nothing else is wanted at first.
        let mut header = vec![0; owner.header_len.min(size) as usize];
        if file.read_exact_at(&mut header, 0).is_err() {
            header.clear();
        }
        let is_whole = header.len() as u64 == owner.header_len;
        let number = is_whole.then(|| (owner.key_in)(&header, owner)).flatten();
        let left = header.get(VERSION_AT..).and_then(|left| left.first_chunk());
        let left = left.map(|field| u32::from_le_bytes(*field));
        let (keys, header_damage) = match number {
            Some(number) => {
                let key = Keyring::of_found(storage.keyring(), number, &owner.identity, path)?;
                (key.into_iter().collect(), None)
            }
            None => {
                let what = "expected the header of this very file, found other bytes";
                let keys = Keyring::of_damaged(storage.keyring(), left, &owner.identity);
                (keys, Some(Damage::new(path, 0, what)))
            }
        };
        let mut opened = SalvageFile {
            file,
            path: path.to_owned(),
            size,
            tag: owner.tag,
            key: keys.first().cloned(),
            header_damage,
            summed_in_vain: 0,
            start: 0,
            bytes: Vec::new(),
        };
        opened.choose_key(keys, owner.header_len);
        Ok(opened)
    }

    /// Of keys that the file may have, finds the one that its first frame was sealed with; the
    /// first of them if none was.
    fn choose_key(&mut self, keys: Vec<Arc<FileKey>>, from: u64) {
        if keys.len() < 2 {
            return; // There is no doubt.
        }
        let Some(found) = self.next_frame(from).0 else { return };
        let Ok(Some(bytes)) = self.bytes_at(found.offset, found.len) else { return };
        let mut keys = keys.into_iter();
        if let Some(key) = keys.find(|key| frame::was_sealed_with(key, found.offset, bytes)) {
            self.key = Some(key);
        }
        self.summed_in_vain = 0;
    }

    /// What seeds the checksums of its frames.
    pub(in crate::structure) fn tag(&self) -> u64 {
        self.tag
    }

    /// Bytes at `offset`; `None` if the file ends before.
    pub(in crate::structure) fn bytes_at(
        &mut self,
        offset: u64,
        len: u64,
    ) -> io::Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.size) else {
            return Ok(None);
        };
        let held = self.start..self.start + self.bytes.len() as u64;
        if offset < held.start || end > held.end {
            let size = len.max(WINDOW_LEN).min(self.size - offset);
            self.bytes.resize(size as usize, 0);
            self.start = offset;
            let mut read = self.file.read_exact_at(&mut self.bytes, offset);
            if read.is_err() && size > len {
                // What is behind may be what cannot be read.
                self.bytes.truncate(len as usize);
                read = self.file.read_exact_at(&mut self.bytes, offset);
            }
            if let Err(error) = read {
                self.bytes.clear();
                return Err(error);
            }
        }
        let at = (offset - self.start) as usize;
        Ok(Some(&self.bytes[at..at + len as usize]))
    }

    /// The frame at `offset`, if one verifies there (Z1).
    pub(in crate::structure) fn frame_at(&mut self, offset: u64) -> io::Result<Option<FoundFrame>> {
        let sealed = if self.key.is_some() { FRAME_SEALED } else { 0 };
        let Some(header) = self.bytes_at(offset, FRAME_HEADER_LEN)? else { return Ok(None) };
        let stored_len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        let (codec, kind, number) = (header[12], header[13] ^ sealed, [header[14], header[15]]);
        let is_plausible = matches!(number, [0 | 1, 0])
            && Codec::from_u8(codec).is_some()
            && KINDS.contains(&kind);
        if !is_plausible {
            return Ok(None);
        }
        let sum = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
        let (tag, len) = (self.tag, FRAME_HEADER_LEN + u64::from(stored_len));
        let Some(bytes) = self.bytes_at(offset, len)? else { return Ok(None) };
        if checksum(&bytes[SUM_LEN as usize..], tag, offset) != sum {
            self.summed_in_vain = self.summed_in_vain.saturating_add(len);
            return Ok(None);
        }
        Ok(Some(FoundFrame { offset, len, kind, sum: sum as u32 }))
    }

    /// The first frame that verifies from `from` on, and what in front of it, or of the end, does
    /// not.
    pub(in crate::structure) fn next_frame(
        &mut self,
        from: u64,
    ) -> (Option<FoundFrame>, Option<Passed>) {
        let (mut offset, mut is_blank) = (from, true);
        let vain_max = self.size.saturating_mul(VAIN_SUMS_PER_BYTE);
        while offset < self.size {
            match self.frame_at(offset) {
                Ok(Some(frame)) => {
                    let passed = Passed { range: from..offset, is_blank };
                    return (Some(frame), (offset > from).then_some(passed));
                }
                Ok(None) => {
                    is_blank &= self.byte_at(offset) == Some(0);
                    offset = self.next_candidate(offset + 1);
                }
                Err(_) => {
                    is_blank = false;
                    offset = (offset / UNREADABLE_LEN + 1) * UNREADABLE_LEN;
                }
            }
            if self.summed_in_vain > vain_max {
                is_blank = false;
                break;
            }
        }
        let passed = Passed { range: from..self.size, is_blank };
        (None, (self.size > from).then_some(passed))
    }

    fn byte_at(&mut self, offset: u64) -> Option<u8> {
        self.bytes_at(offset, 1).ok().flatten().map(|byte| byte[0])
    }

    /// The first place from `from` on where a frame may begin: zeros are none, but for those that a
    /// checksum begins with.
    fn next_candidate(&mut self, from: u64) -> u64 {
        let mut offset = from;
        while offset < self.size {
            // What is in memory, or the next window: one from each place on would be read for each.
            let held = (self.start..self.start + self.bytes.len() as u64).contains(&offset);
            let len = match held {
                true => self.start + self.bytes.len() as u64 - offset,
                false => (self.size - offset).min(WINDOW_LEN),
            };
            let Ok(Some(bytes)) = self.bytes_at(offset, len) else { return offset };
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                return (offset + at as u64).saturating_sub(SUM_LEN - 1).max(from);
            }
            offset += len;
        }
        self.size
    }

    /// The payload of a frame that was found, as bytes and where it lies in them.
    ///
    /// # Errors
    /// `Corruption` when it is of another kind, or does not open or unpack; `Io`.
    pub(in crate::structure) fn payload(
        &mut self,
        found: &FoundFrame,
        kind: FrameKind,
        dictionary: Option<&Dictionary>,
    ) -> Result<(SharedBytes, Range<usize>)> {
        let path = self.path.clone();
        let bytes = self.bytes_at(found.offset, found.len);
        let bytes = bytes.map_err(|error| Error::io("read", &path, error))?;
        let bytes = bytes.ok_or_else(|| {
            Error::corruption(&path, found.offset, "the file ends within a frame")
        })?;
        let bytes = SharedBytes::from(bytes);
        let (len, place) = (found.len as usize, self.place_at(found.offset));
        let opened =
            frame::open_in(bytes, len, kind, place, found.sum, (dictionary, &Heap::new()))?;
        Ok((opened.data, opened.range))
    }

    /// The entries of a frame that was found.
    ///
    /// # Errors
    /// As [`Self::payload`].
    pub(in crate::structure) fn block(
        &mut self,
        found: &FoundFrame,
        dictionary: Option<&Dictionary>,
    ) -> Result<Block> {
        let (data, range) = self.payload(found, FrameKind::Entries, dictionary)?;
        Block::parse(data, range, self.place_at(found.offset))
    }

    /// The entries of the frame that a pointer leads to.
    ///
    /// # Errors
    /// As [`Self::payload`]; `Corruption` when it is not that frame.
    pub(in crate::structure) fn block_at(
        &mut self,
        (offset, len): (u64, u64),
        expected: u32,
    ) -> Result<Block> {
        let found = self.frame_at(offset).map_err(|error| Error::io("read", &self.path, error))?;
        let found = match found {
            Some(found) if found.len == len && found.sum == expected => found,
            Some(_) => {
                let what = "expected the frame that the index points to, found another one";
                return Err(Error::corruption(&self.path, offset, what));
            }
            None => {
                let what = "expected a frame, found bytes whose checksum does not hold";
                return Err(Error::corruption(&self.path, offset, what));
            }
        };
        self.block(&found, None)
    }

    fn place_at(&self, offset: u64) -> FramePlace<'_> {
        FramePlace { file: &self.path, file_tag: self.tag, offset, key: self.key.as_deref() }
    }
}
