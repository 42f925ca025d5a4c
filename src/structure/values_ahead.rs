//! Reading ahead of values that are to be moved: they are moved in the order of their keys, and lie
//! in the order in which they were written.

use crate::base::{Cursor, ValuePointer, pointer_in};
use crate::value_log::Mover;

/// Bytes of values that the system is told of before they are moved: as many reads at once as keep
/// a disk busy, and little of the memory that it keeps files in.
const WINDOW_BYTES: u64 = 4 << 20;

/// Goes ahead of those who move the values of a cursor's entries, over the same entries, and has
/// the system begin to read them.
#[derive(Debug)]
pub(super) struct ValuesAhead<C> {
    /// `None` when there is nothing ahead, or it cannot be read: who comes after is told.
    cursor: Option<C>,
    /// What the mover will have moved when all that was found so far is.
    found_up_to: u64,
}

impl<C: Cursor> ValuesAhead<C> {
    /// From the first entry of `cursor` on, for what `mover` moves from now on.
    pub(super) fn new(mut cursor: C, mover: &Mover) -> ValuesAhead<C> {
        let found_up_to = mover.moved_bytes();
        let cursor = cursor.seek_first().is_ok().then_some(cursor);
        ValuesAhead { cursor, found_up_to }
    }

    /// Keeps ahead of the mover. To be called before each value that it may move.
    #[inline]
    pub(super) fn keep_ahead(&mut self, mover: &mut Mover) {
        if self.cursor.is_some() && self.found_up_to < mover.moved_bytes() + WINDOW_BYTES / 2 {
            self.look_ahead(mover);
        }
    }

    #[cold]
    fn look_ahead(&mut self, mover: &mut Mover) {
        let enough = mover.moved_bytes() + WINDOW_BYTES;
        while let Some(cursor) = &mut self.cursor
            && self.found_up_to < enough
        {
            let Some(entry) = cursor.entry() else {
                self.cursor = None;
                break;
            };
            let pointer = pointer_in(entry.kind, entry.value).and_then(ValuePointer::decode);
            self.found_up_to += pointer.map_or(0, |pointer| mover.expect(&pointer));
            if cursor.next().is_err() {
                self.cursor = None;
            }
        }
        mover.begin_reading();
    }
}
