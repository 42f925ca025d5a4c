//! Reading ahead of values that are to be moved: they are moved in the order of their keys, and lie
//! in the order in which they were written.

use crate::base::{Cursor, ValuePointer, pointer_in};
use crate::structure::source::as_of;
use crate::value_log::Mover;

/// Bytes of values that the system is told of before they are moved: as many reads at once as keep
/// a disk busy, and little of the memory that it keeps files in.
const WINDOW_BYTES: u64 = 4 << 20;

/// Entries that are looked at in one go at most: there may be few such values among them.
const LOOKED_AT_MAX: usize = 1 << 14;

/// Goes ahead of those who move the values of a cursor's entries, over the same entries, and has
/// the system begin to read them: half of the window when they come to the other half.
#[derive(Debug)]
pub(super) struct ValuesAhead<C> {
    /// `None` when there is nothing ahead, or it cannot be read: who comes after is told.
    cursor: Option<C>,
    /// What has expired by then is not moved.
    now: u64,
    /// From this key on it is time to look ahead.
    look_at: Vec<u8>,
}

impl<C: Cursor> ValuesAhead<C> {
    /// From the first entry of `cursor` on, of which what has expired by `now` goes.
    pub(super) fn new(mut cursor: C, now: u64) -> ValuesAhead<C> {
        let cursor = cursor.seek_first().is_ok().then_some(cursor);
        ValuesAhead { cursor, now, look_at: Vec::new() }
    }

    /// Keeps ahead of the mover, which is at `key`. To be called before each value that may be
    /// moved.
    #[inline]
    pub(super) fn keep_ahead(&mut self, key: &[u8], mover: &mut Mover) {
        if self.cursor.is_some() && key >= self.look_at.as_slice() {
            self.look_ahead(key, mover);
        }
    }

    #[cold]
    fn look_ahead(&mut self, key: &[u8], mover: &mut Mover) {
        self.look_at.clear();
        let (mut found, mut looked_at) = (0, 0);
        while found < WINDOW_BYTES / 2 && looked_at < LOOKED_AT_MAX {
            let Some(entry) = self.cursor.as_ref().and_then(Cursor::entry) else {
                self.cursor = None;
                break;
            };
            if entry.key >= key {
                if looked_at == 0 {
                    self.look_at.extend_from_slice(entry.key);
                }
                looked_at += 1;
                let entry = as_of(entry, self.now);
                let pointer = pointer_in(entry.kind, entry.value).and_then(ValuePointer::decode);
                found += pointer.map_or(0, |pointer| mover.expect(&pointer));
            }
            if self.cursor.as_mut().is_some_and(|cursor| cursor.next().is_err()) {
                self.cursor = None;
            }
        }
        mover.begin_reading();
    }
}
