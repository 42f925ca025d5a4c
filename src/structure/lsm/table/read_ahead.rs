//! Reading many blocks at once: for walks that pass, which read what a table has in large pieces,
//! and for those that go on for long, which read more at once the longer they do.

use std::sync::Arc;

use super::caches::TableCaches;
use super::format::FramePointer;
use super::place::TableFile;
use crate::base::Result;
use crate::block::{Dictionary, FrameKind, frame};
use crate::memory::SharedBytes;

/// Bytes read at once.
const WINDOW_LEN: usize = 256 << 10;
/// The same, of a walk that has only begun: it may need no more than a block ..
const NEAR_LEN_FIRST: usize = 4 << 10;
/// .. and up to this many as it goes on.
const NEAR_LEN_MAX: usize = 128 << 10;

/// A piece of a table file in memory.
#[derive(Debug)]
pub(super) struct ReadAhead {
    window: Option<Window>,
    /// Bytes of the next one, of a walk that reads more as it goes on.
    near_len: usize,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead { window: None, near_len: NEAR_LEN_FIRST }
    }
}

#[derive(Debug)]
struct Window {
    /// Where it starts in the file.
    start: u64,
    bytes: SharedBytes,
    len: usize,
}

impl Window {
    /// Where a frame lies in it, if it does.
    fn place_of(&self, pointer: FramePointer) -> Option<usize> {
        let start = usize::try_from(pointer.offset.checked_sub(self.start)?).ok()?;
        let end = start.checked_add(pointer.len as usize)?;
        (end <= self.len).then_some(start)
    }
}

impl ReadAhead {
    /// Says that the walk goes on from elsewhere: then less is read at once again.
    pub(super) fn turn(&mut self) {
        self.near_len = (self.near_len / 2).max(NEAR_LEN_FIRST);
    }

    /// Whether a frame is in memory.
    pub(super) fn has(&self, pointer: FramePointer) -> bool {
        self.window.as_ref().is_some_and(|window| window.place_of(pointer).is_some())
    }

    /// Bytes that the next window of a walk which goes on has at most; more the next time.
    pub(super) fn grow(&mut self) -> usize {
        let len = self.near_len;
        self.near_len = (2 * len).min(NEAR_LEN_MAX);
        len
    }

    /// A frame, from memory if it is there; else what comes behind it is read as well, as far as
    /// `end`.
    pub(super) fn frame(
        &mut self,
        file: &Arc<TableFile>,
        pointer: FramePointer,
        (kind, dictionary): (FrameKind, Option<&Dictionary>),
        (end, reuse): (u64, Reuse),
        caches: &TableCaches,
    ) -> Result<frame::Payload> {
        if !self.has(pointer) {
            self.window = None;
            if pointer.len as usize > WINDOW_LEN {
                return caches.read_packed(file, pointer, kind, dictionary);
            }
            self.window = Some(read_window(file, pointer, end, caches)?);
        }
        let place =
            self.window.as_ref().and_then(|window| Some((window, window.place_of(pointer)?)));
        let Some((window, start)) = place else {
            return Err(file.damaged(pointer.offset, "a frame reaches behind the end of the file"));
        };
        let len = pointer.len as usize;
        let bytes = match reuse {
            Reuse::InPassing => window.bytes.slice(start..start + len),
            Reuse::Kept => {
                let mut room = caches.heap().take(len);
                room[..len].copy_from_slice(&window.bytes[start..start + len]);
                room.freeze()
            }
        };
        let place = file.place_at(pointer.offset);
        let unpacking = (dictionary, caches.heap());
        let opened = frame::open_in(bytes, len, kind, place, pointer.checksum, unpacking);
        if opened.is_err() {
            self.window = None; // Who tries again shall read again.
        }
        opened
    }
}

/// What becomes of a frame that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// It is let go soon, and with it what was read beside it.
    InPassing,
    /// It is kept, alone.
    Kept,
}

fn read_window(
    file: &Arc<TableFile>,
    pointer: FramePointer,
    end: u64,
    caches: &TableCaches,
) -> Result<Window> {
    let left = end.saturating_sub(pointer.offset);
    let len = usize::try_from(left).map_or(WINDOW_LEN, |left| left.min(WINDOW_LEN));
    let mut room = caches.heap().take(len);
    file.read_exact(&*file.open()?, &mut room[..len], pointer.offset)?;
    caches.note_read(len);
    Ok(Window { start: pointer.offset, bytes: room.freeze(), len })
}
