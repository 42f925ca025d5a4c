//! Pieces of files: how a file is gone through to be shown, also past what is damaged in it.
//!
//! Knows no format: who does says whether there is a piece at an offset, and what it is.
//!
//! Invariants
//! - P1  The pieces that are shown cover a file without gaps, in order.
//! - P2  Nothing is shown as sound whose checksum does not hold at its place.
//! - P3  In memory is one piece, and a window of the file.

use std::ops::ControlFlow;
use std::path::Path;

use std::sync::Arc;

use crate::base::{Error, Result, SeqNo};
use crate::seal::{FileIdentity, FileKey, Keyring};
use crate::storage::StorageFile;

/// Bytes read at once.
const WINDOW_LEN: u64 = 256 << 10;
/// A checksum that begins with zeros is one in 256 for each byte; pieces begin with one.
const CHECKSUM_LEN: u64 = 8;

/// How far a piece is what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PieceState {
    /// Its checksum holds, and it can be read.
    Sound,
    /// Its checksum holds, and it has something that this program does not know.
    Unknown(String),
    /// It does not verify.
    Damaged(String),
    /// Nothing is here: room for what is to come, a hole, or what was there before.
    Unused(String),
}

/// An entry, an operation or whatever a piece consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PieceEntry {
    /// What it is: `put`, `tombstone`, `interval` and so on.
    pub kind: String,
    /// Its keyspace, where a piece has entries of several.
    pub keyspace: Option<u32>,
    /// Its key, or the start of its range.
    pub key: Vec<u8>,
    /// Its value, or the end of its range.
    pub value: Vec<u8>,
    /// Its stamp.
    pub seqno: Option<SeqNo>,
}

impl PieceEntry {
    pub(crate) fn new(kind: impl Into<String>, key: &[u8], value: &[u8]) -> PieceEntry {
        let (key, value) = (key.to_vec(), value.to_vec());
        PieceEntry { kind: kind.into(), key, value, ..PieceEntry::default() }
    }
}

/// A part of a file: a header, a record, a frame, or bytes that are none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Where it starts in the file.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// What it is.
    pub kind: &'static str,
    /// Whether it is sound.
    pub state: PieceState,
    /// What it says, by name.
    pub fields: Vec<(&'static str, String)>,
    /// What it consists of, if that was asked for.
    pub entries: Vec<PieceEntry>,
}

/// What is to be told of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What they say of themselves.
    Fields,
    /// What they consist of, too.
    Entries,
}

/// What a payload says.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    pub fields: Vec<(&'static str, String)>,
    pub entries: Vec<PieceEntry>,
    /// What of it is not understood.
    pub unknown: Option<String>,
}

impl Explained {
    #[expect(clippy::needless_pass_by_value, reason = "numbers and new texts, mostly")]
    pub(crate) fn field(&mut self, name: &'static str, value: impl ToString) {
        self.fields.push((name, value.to_string()));
    }

    /// Of what is sealed, where there is no key.
    pub(crate) fn sealed() -> Explained {
        let mut explained = Explained::default();
        explained.field("sealed", "and not opened: there is no key");
        explained
    }

    /// Of a payload that is not understood at all.
    pub(crate) fn not_understood(what: impl Into<String>) -> Explained {
        Explained { unknown: Some(what.into()), ..Explained::default() }
    }
}

impl Piece {
    pub(crate) fn new(offset: u64, len: u64, kind: &'static str, state: PieceState) -> Piece {
        Piece { offset, len, kind, state, fields: Vec::new(), entries: Vec::new() }
    }

    pub(crate) fn sound(offset: u64, len: u64, kind: &'static str) -> Piece {
        Piece::new(offset, len, kind, PieceState::Sound)
    }

    #[expect(clippy::needless_pass_by_value, reason = "numbers and new texts, mostly")]
    pub(crate) fn field(mut self, name: &'static str, value: impl ToString) -> Piece {
        self.fields.push((name, value.to_string()));
        self
    }

    /// With what its payload says.
    pub(crate) fn explained(mut self, explained: Explained) -> Piece {
        self.fields.extend(explained.fields);
        self.entries = explained.entries;
        if let Some(what) = explained.unknown {
            self.state = PieceState::Unknown(what);
        }
        self
    }
}

/// Takes the pieces, and says whether to go on.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Piece) -> ControlFlow<()>;

/// What may be behind the last piece that verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Room, what was there before, or what was being written.
    Room,
    /// Nothing but holes.
    Nothing,
}

/// A file, read in large pieces.
pub(crate) struct FileWindow<'a> {
    file: &'a dyn StorageFile,
    pub path: &'a Path,
    pub size: u64,
    start: u64,
    bytes: Vec<u8>,
    keyring: Option<Arc<Keyring>>,
    /// What the file's payloads are sealed with, if that is known.
    pub key: Option<Arc<FileKey>>,
}

impl<'a> FileWindow<'a> {
    /// On a file of a storage with these keys.
    pub(crate) fn new(
        file: &'a dyn StorageFile,
        path: &'a Path,
        keyring: Option<Arc<Keyring>>,
    ) -> Result<FileWindow<'a>> {
        let size = file.size().map_err(|error| Error::io("stat", path, error))?;
        Ok(FileWindow { file, path, size, start: 0, bytes: Vec::new(), keyring, key: None })
    }

    /// Finds the key of the file, by the number of the data key that its header has.
    pub(crate) fn find_key(&mut self, number: u16, identity: &FileIdentity) {
        let keyring = self.keyring.as_ref().filter(|_| number != 0);
        let found = Keyring::of_found(keyring, number, identity, self.path);
        self.key = found.ok().flatten();
    }

    /// Bytes at `offset`; `None` if the file ends before.
    pub(crate) fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.size) else {
            return Ok(None);
        };
        let held = self.start..self.start + self.bytes.len() as u64;
        if offset < held.start || end > held.end {
            let size = len.max(WINDOW_LEN).min(self.size - offset);
            self.bytes.resize(size as usize, 0);
            self.start = offset;
            let read = self.file.read_exact_at(&mut self.bytes, offset);
            if let Err(error) = read {
                self.bytes.clear();
                return Err(Error::io("read", self.path, error));
            }
        }
        let at = (offset - self.start) as usize;
        Ok(Some(&self.bytes[at..at + len as usize]))
    }

    /// Shows the header, which has `len` bytes, or what is wrong with it.
    pub(crate) fn show_header(
        &self,
        len: u64,
        header: std::result::Result<Piece, String>,
        visit: Visit<'_>,
    ) -> ControlFlow<()> {
        visit(header.unwrap_or_else(|what| {
            Piece::new(0, len.min(self.size), "file header", PieceState::Damaged(what))
        }))
    }

    /// Shows all from `offset` on as unreadable: nothing says whose file this is, which every
    /// checksum depends on.
    pub(crate) fn show_unverifiable(&self, offset: u64, visit: Visit<'_>) -> ControlFlow<()> {
        let len = self.size.saturating_sub(offset);
        if len == 0 {
            return ControlFlow::Continue(());
        }
        let what = "whose file this is, is not known: nothing can be verified".to_owned();
        visit(Piece::new(offset, len, "unreadable", PieceState::Damaged(what)))
    }

    /// Where the first byte is from `offset` on, in front of `end`, that is not zero.
    fn next_nonzero(&mut self, mut offset: u64, end: u64) -> Result<Option<u64>> {
        while offset < end {
            let len = (end - offset).min(WINDOW_LEN);
            let bytes = self.bytes(offset, len)?.unwrap_or_default();
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                return Ok(Some(offset + at as u64));
            }
            offset += len;
        }
        Ok(None)
    }
}

/// How a file is gone through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Where the first piece begins.
    pub start: u64,
    /// Pieces begin at multiples of this from there.
    pub step: u64,
    pub tail: Tail,
}

impl Walk {
    /// Shows the pieces that `probe` finds, and what is between them (P1).
    pub(crate) fn run(
        self,
        window: &mut FileWindow<'_>,
        probe: &mut dyn FnMut(&mut FileWindow<'_>, u64) -> Result<Option<Piece>>,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut offset = self.start;
        while offset < window.size {
            let found = probe(window, offset)?;
            let next = match found {
                Some(piece) => Some(piece),
                None => {
                    let next = self.find_next(window, offset + self.step, probe)?;
                    let end = next.as_ref().map_or(window.size, |piece| piece.offset);
                    if visit(self.gap(window, offset, end)?).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    next
                }
            };
            let Some(piece) = next else { break };
            offset = piece.offset + piece.len.max(1);
            if visit(piece).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn find_next(
        self,
        window: &mut FileWindow<'_>,
        from: u64,
        probe: &mut dyn FnMut(&mut FileWindow<'_>, u64) -> Result<Option<Piece>>,
    ) -> Result<Option<Piece>> {
        let mut offset = from;
        while offset < window.size {
            let Some(nonzero) = window.next_nonzero(offset, window.size)? else { break };
            let earliest = nonzero.saturating_sub(CHECKSUM_LEN - 1).max(offset);
            let steps = (earliest - self.start) / self.step;
            offset = (self.start + steps * self.step).max(offset);
            if let Some(piece) = probe(window, offset)? {
                return Ok(Some(piece));
            }
            offset += self.step;
        }
        Ok(None)
    }

    /// Bytes that are no piece.
    fn gap(self, window: &mut FileWindow<'_>, start: u64, end: u64) -> Result<Piece> {
        let len = end - start;
        if window.next_nonzero(start, end)?.is_none() {
            let what = "zeros".to_owned();
            return Ok(Piece::new(start, len, "zeros", PieceState::Unused(what)));
        }
        Ok(match self.tail {
            Tail::Room if end == window.size => {
                let what = "what was there before, or was being written".to_owned();
                Piece::new(start, len, "rest", PieceState::Unused(what))
            }
            _ => {
                let what = "nothing verifies here".to_owned();
                Piece::new(start, len, "unreadable", PieceState::Damaged(what))
            }
        })
    }
}

/// What a payload says that is sealed if `is_sealed`, with `place` authenticated with it; `None` if
/// it verifies, and is not what was sealed.
pub(crate) fn explain_sealed(
    (is_sealed, key): (bool, Option<&FileKey>),
    place: &[u8],
    payload: &[u8],
    explain: &dyn Fn(&[u8]) -> Explained,
) -> Option<Explained> {
    match key {
        _ if !is_sealed => Some(explain(payload)),
        None => Some(Explained::sealed()),
        Some(key) => key.open_sealed(place, &mut payload.to_vec()).map(explain),
    }
}

/// Damage that only a key finds.
pub(crate) const NOT_WHAT_WAS_SEALED: &str =
    "it verifies, and is not what was sealed for this place";
