//! Reading many blocks at once, for walks that pass: what a table has is read in large pieces, and
//! nothing of it is kept in a cache.

use std::sync::Arc;

use super::caches::TableCaches;
use super::format::FramePointer;
use super::place::TableFile;
use crate::base::Result;
use crate::block::{Dictionary, FrameKind, frame};
use crate::memory::SharedBytes;

/// Bytes read at once.
const WINDOW_LEN: usize = 256 << 10;

/// A piece of a table file in memory.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    window: Option<Window>,
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
    /// A frame, from memory if it is there; else what comes behind it is read as well, as far as
    /// `file_end`.
    pub(super) fn frame(
        &mut self,
        file: &Arc<TableFile>,
        pointer: FramePointer,
        (kind, dictionary): (FrameKind, Option<&Dictionary>),
        file_end: u64,
        caches: &TableCaches,
    ) -> Result<frame::Payload> {
        let found = self.window.as_ref().and_then(|window| window.place_of(pointer));
        if found.is_none() {
            self.window = None;
            if pointer.len as usize > WINDOW_LEN {
                return caches.read_packed(file, pointer, kind, dictionary);
            }
            self.window = Some(read_window(file, pointer, file_end, caches)?);
        }
        let place =
            self.window.as_ref().and_then(|window| Some((window, window.place_of(pointer)?)));
        let Some((window, start)) = place else {
            return Err(file.damaged(pointer.offset, "a frame reaches behind the end of the file"));
        };
        let len = pointer.len as usize;
        let bytes = window.bytes.slice(start..start + len);
        let place = file.place_at(pointer.offset);
        let unpacking = (dictionary, caches.heap());
        let opened = frame::open_in(bytes, len, kind, place, pointer.checksum, unpacking);
        if opened.is_err() {
            self.window = None; // Who tries again shall read again.
        }
        opened
    }
}

fn read_window(
    file: &Arc<TableFile>,
    pointer: FramePointer,
    file_end: u64,
    caches: &TableCaches,
) -> Result<Window> {
    let left = file_end.saturating_sub(pointer.offset);
    let len = usize::try_from(left).map_or(WINDOW_LEN, |left| left.min(WINDOW_LEN));
    let mut room = caches.heap().take(len);
    file.read_exact(&*file.open()?, &mut room[..len], pointer.offset)?;
    caches.note_read(len);
    Ok(Window { start: pointer.offset, bytes: room.freeze(), len })
}
