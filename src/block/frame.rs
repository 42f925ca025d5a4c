//! A frame: what lies on disk around a payload.
//!
//! | offset | size | field      | meaning                                                        |
//! |--------|------|------------|----------------------------------------------------------------|
//! | 0      | 8    | checksum   | XXH3 of everything behind it, seeded with file tag and offset  |
//! | 8      | 4    | stored_len | bytes behind the header                                        |
//! | 12     | 1    | codec      | 0 none, 1 LZ4, 2 Snappy, 3 Zstandard                           |
//! | 13     | 1    | kind       | what the payload is ([`FrameKind`]); and 0x80 if it is sealed  |
//! | 14     | 2    | dictionary | 0: none; 1: that of the file (Zstandard only)                  |
//! | 16     | ..   | stored     | codec 0: the payload; else its length as u32, then a block     |
//!
//! Sealed, in a file that has a key, what would be stored is in *pages*, and in the file is each
//! page encrypted with its tag (16 bytes) behind it, and a nonce (24 bytes) behind the last. A page
//! of entries that are not compressed ends where the frame, if it were not sealed, has a multiple
//! of 1024 bytes, so that it can be read without the others; else all is one page.
//!
//! Integers are little-endian. A payload of more than [`STORED_LEN_MAX`] bytes is refused when it
//! is sealed. A frame with any other number of a dictionary is refused.
//!
//! Invariants
//! - F1  A frame is believed only if its checksum holds at the very file and offset that it is
//!   read from, and its low 32 bits are those that the pointer to it carries: a lost or
//!   misdirected write does not verify.
//! - F2  Nothing is allocated for a length that is not bounded by bytes that are there.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::base::Codec;
use crate::base::Error;
use crate::base::Result;
use crate::base::checksum;
use crate::base::seeded::{Bug, is_seeded};
use crate::block::compression;
use crate::block::compression::UnpackError;
use crate::block::dictionary::{Dictionary, PackingDictionary};
use crate::block::sealed::{self, Paging, SEALED};
use crate::memory::{Heap, SharedBytes};
use crate::seal::FileKey;
use crate::storage::StorageFile;

/// Bytes before the stored payload.
pub const HEADER_LEN: usize = 16;
/// Most bytes that a frame stores behind its header.
pub const STORED_LEN_MAX: usize = u32::MAX as usize;

const CHECKSUM_LEN: usize = 8;
/// Up to this many bytes a frame is read without asking first whether the file is that long.
const UNCHECKED_LEN_MAX: usize = 1 << 20;

/// What a payload is. Reading a frame names the kind that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Entries: a block of a structure.
    Entries = 1,
    /// The index of neighbouring blocks of a table, and the filter of their keys.
    Partition = 2,
    /// The index of the partitions of a table.
    Top = 3,
    /// Key ranges that a table deletes.
    DeletedRanges = 4,
    /// Figures of a table.
    Properties = 5,
    /// The dictionary of a table.
    Dictionary = 6,
}

/// How a payload is packed.
#[derive(Clone, Copy, Debug)]
pub struct Packing<'a> {
    /// How it is compressed.
    pub codec: Codec,
    /// The file's dictionary, for [`Codec::Zstd`].
    pub dictionary: Option<&'a PackingDictionary>,
}

impl From<Codec> for Packing<'_> {
    fn from(codec: Codec) -> Self {
        Packing { codec, dictionary: None }
    }
}

/// The number of the file's dictionary, of frames that are packed with it.
const FILE_DICTIONARY: u16 = 1;

/// Where a frame belongs.
#[derive(Clone, Copy, Debug)]
pub struct FramePlace<'a> {
    /// The file, for errors.
    pub file: &'a Path,
    /// What its checksums are bound to.
    pub file_tag: u64,
    /// Where in the file the frame starts.
    pub offset: u64,
    /// What the file's frames are sealed with, if they are.
    pub key: Option<&'a FileKey>,
}

impl FramePlace<'_> {
    /// Damage in the frame.
    #[must_use]
    pub fn damaged(&self, what: impl Into<String>) -> Error {
        Error::corruption(self.file, self.offset, what)
    }
}

/// An opened frame: bytes, and where the payload lies in them.
#[derive(Debug)]
pub struct Payload {
    /// The frame itself, or the payload alone if it was compressed.
    pub data: SharedBytes,
    /// The payload.
    pub range: Range<usize>,
}

impl Payload {
    /// The payload.
    #[cfg(test)]
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.range.clone()]
    }
}

/// Appends the frame of `payload`, which will be written at `place`, to `out`. Returns its
/// checksum, whose low 32 bits belong into the pointer to it. With a codec that does not save an
/// eighth, the payload is stored as it is.
///
/// # Errors
/// [`Error::InvalidArgument`] for more than [`STORED_LEN_MAX`] bytes; `out` is unchanged.
pub fn seal(
    payload: &[u8],
    codec: Codec,
    kind: FrameKind,
    place: FramePlace<'_>,
    out: &mut Vec<u8>,
) -> Result<u64> {
    seal_packed(payload, codec.into(), kind, place, out)
}

/// As [`seal`], perhaps with a dictionary.
///
/// # Errors
/// As [`seal`].
pub fn seal_packed(
    payload: &[u8],
    Packing { codec, dictionary }: Packing<'_>,
    kind: FrameKind,
    place: FramePlace<'_>,
    out: &mut Vec<u8>,
) -> Result<u64> {
    if payload.len() > STORED_LEN_MAX {
        return Err(Error::invalid(format!("a frame cannot hold {} bytes", payload.len())));
    }
    let start = out.len();
    out.resize(start + HEADER_LEN, 0);
    let codec = match codec {
        Codec::None => Codec::None,
        other if compression::put(payload, other, dictionary, out) => other,
        _ => Codec::None,
    };
    if codec == Codec::None {
        out.extend_from_slice(payload);
    }
    let (stored_len, paging) = (out.len() - start - HEADER_LEN, paging_of(kind as u8, codec));
    let stored_len = match place.key {
        None => stored_len,
        Some(_) => sealed::stored_len_of(stored_len, paging),
    };
    let Ok(stored_len) = u32::try_from(stored_len) else {
        out.truncate(start);
        return Err(Error::invalid(format!("a frame cannot hold {} bytes", payload.len())));
    };
    let frame = &mut out[start..];
    frame[8..12].copy_from_slice(&stored_len.to_le_bytes());
    frame[12] = codec.to_u8();
    frame[13] = kind as u8;
    if matches!(codec, Codec::Zstd(_)) && dictionary.is_some() {
        frame[14..16].copy_from_slice(&FILE_DICTIONARY.to_le_bytes());
    }
    if let Some(key) = place.key {
        frame[13] |= SEALED;
        sealed::seal_frame(key, paging, place.offset, out, start);
    }
    let frame = &mut out[start..];
    let sum = checksum(&frame[CHECKSUM_LEN..], place.file_tag, place.offset);
    frame[..CHECKSUM_LEN].copy_from_slice(&sum.to_le_bytes());
    Ok(sum)
}

/// Those that guides read parts of are in pages.
fn paging_of(kind: u8, codec: Codec) -> Paging {
    match codec {
        Codec::None if kind == FrameKind::Entries as u8 => Paging::Fixed,
        _ => Paging::Whole,
    }
}

/// Whether the frame in `bytes`, whose checksum holds, was sealed with this key for this place.
#[must_use]
pub fn was_sealed_with(key: &FileKey, offset: u64, bytes: &[u8]) -> bool {
    let Some(codec) = bytes.get(12).copied().and_then(Codec::from_u8) else { return false };
    let (kind, mut frame) = (bytes[13] & !SEALED, bytes.to_vec());
    sealed::open_frame(key, paging_of(kind, codec), offset, &mut frame).is_some()
}

/// Checks the frame that `bytes` are, read from `place`, and unpacks it. `expected` is what the
/// pointer to it carries: the low 32 bits of its checksum. A payload that was not compressed is
/// not copied.
///
/// # Errors
/// [`Error::Corruption`] at `place` when `bytes` are not exactly the frame that was sealed for it;
/// [`Error::InvalidArgument`] when this program was built without the codec.
pub fn open(
    bytes: SharedBytes,
    kind: FrameKind,
    place: FramePlace<'_>,
    expected: u32,
) -> Result<Payload> {
    let len = bytes.len();
    open_in(bytes, len, kind, place, expected, (None, &Heap::new()))
}

/// As [`open`], of a frame that takes the first `len` bytes of a buffer, and may be packed with the
/// file's dictionary; unpacks into memory of `heap`.
///
/// # Errors
/// As [`open`].
pub fn open_in(
    buffer: SharedBytes,
    len: usize,
    kind: FrameKind,
    place: FramePlace<'_>,
    expected: u32,
    (dictionary, heap): (Option<&Dictionary>, &Arc<Heap>),
) -> Result<Payload> {
    let bytes = &buffer[..len];
    let refuse = |what: String| Error::corruption(place.file, place.offset, what);
    let Some((header, stored)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Err(refuse(format!("frame of {} bytes is shorter than its header", bytes.len())));
    };
    let (sum, fields) = header.split_at(CHECKSUM_LEN);
    let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
    let computed = checksum(&bytes[CHECKSUM_LEN..], place.file_tag, place.offset);
    // F1
    if computed != sum && !is_seeded(Bug::BlockUnverified) {
        return Err(refuse(format!("checksum {computed:016x} where {sum:016x} was written")));
    }
    if sum as u32 != expected {
        let found = sum as u32;
        return Err(refuse(format!(
            "another frame than the one pointed to: {found:08x} instead of {expected:08x}"
        )));
    }
    let (stored_len, fields) = fields.split_first_chunk().expect("four bytes");
    let stored_len = u32::from_le_bytes(*stored_len) as usize;
    if stored_len != stored.len() {
        let found = stored.len();
        return Err(refuse(format!("frame holds {found} bytes but says {stored_len}")));
    }
    let (codec, found, number) = (fields[0], fields[1], [fields[2], fields[3]]);
    let expected_kind = kind as u8 | if place.key.is_some() { SEALED } else { 0 };
    if found != expected_kind {
        return Err(refuse(format!("frame kind {found} instead of {expected_kind}")));
    }
    let Some(codec) = Codec::from_u8(codec) else {
        return Err(refuse(format!("unknown codec {codec}")));
    };
    let (buffer, len) = match place.key {
        None => (buffer, len),
        Some(key) => {
            let mut room = heap.take(len);
            room[..len].copy_from_slice(&buffer[..len]);
            let paging = paging_of(kind as u8, codec);
            let opened = sealed::open_frame(key, paging, place.offset, &mut room[..len]);
            let what = "the frame verifies, and is not what was sealed for this place";
            (room.freeze(), opened.ok_or_else(|| refuse(what.to_owned()))?)
        }
    };
    let stored = &buffer[HEADER_LEN..len];
    let dictionary = match (u16::from_le_bytes(number), codec) {
        (0, _) => None,
        // Of a program without it there is no dictionary either.
        (FILE_DICTIONARY, codec) if !codec.is_available() => return Err(codec.missing()),
        (FILE_DICTIONARY, Codec::Zstd(_)) if dictionary.is_some() => dictionary,
        (number, _) => return Err(refuse(format!("unknown dictionary {number}"))),
    };
    if kind == FrameKind::Dictionary && codec != Codec::None {
        return Err(refuse("a dictionary that is packed".to_owned()));
    }
    if codec == Codec::None {
        return Ok(Payload { range: HEADER_LEN..len, data: buffer });
    }
    match compression::unpack(stored, codec, dictionary, heap) {
        Ok((data, len)) => Ok(Payload { data, range: 0..len }),
        Err(UnpackError::Damaged(what)) => Err(refuse(what)),
        Err(UnpackError::Missing(codec)) => Err(codec.missing()),
    }
}

/// Reads the frame of `frame_len` bytes (header and all) at `place` of `file` into memory of
/// `heap`, checks and unpacks it.
///
/// # Errors
/// As [`open`]; [`Error::Corruption`] as well when the file ends first; [`Error::Io`].
pub fn read(
    file: &dyn StorageFile,
    frame_len: usize,
    kind: FrameKind,
    place: FramePlace<'_>,
    expected: u32,
    (dictionary, heap): (Option<&Dictionary>, &Arc<Heap>),
) -> Result<Payload> {
    let io_error = |error| Error::io("read", place.file, error);
    let ends_early = || {
        let what = format!("the file ends within a frame of {frame_len} bytes");
        Error::corruption(place.file, place.offset, what)
    };
    if frame_len > UNCHECKED_LEN_MAX {
        let available = file.size().map_err(io_error)?.saturating_sub(place.offset);
        if frame_len as u64 > available {
            return Err(ends_early()); // F2
        }
    }
    let mut room = heap.take(frame_len);
    file.read_exact_at(&mut room[..frame_len], place.offset).map_err(|error| {
        match error.kind() {
            ErrorKind::UnexpectedEof => ends_early(),
            _ => io_error(error),
        }
    })?;
    open_in(room.freeze(), frame_len, kind, place, expected, (dictionary, heap))
}
