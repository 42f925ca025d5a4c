//! Making room while the disk is full.
//!
//! What was deleted keeps its room until memtables are flushed, intervals or tables compacted and
//! value files emptied, for which the background waits until it is worth it. While nothing but
//! deletions is let in it is worth it at once: a thread does what [`crate::Db::vacuum`] does, until
//! writing goes on. Once behind each change, and not for more than a third of the time in
//! vain: it may read and write everything there is.
//!
//! - FD1 No memtable is sealed for whose flush there is no room: sealed, it needs that for ever,
//!   while one that is written to needs less with each of its entries that is deleted.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::base::sync::{Arc, Mutex};
use crate::base::{Cursor, Error, Result, SeqNo};
use crate::db::background::caught;
use crate::db::core::{Core, lock};
use crate::db::state::{KeyspaceState, Runtime};
use crate::memtable::MemtableCursor;

/// Behind a try that has made too little room, so many times as long as it took pass ..
const REST_FACTOR: u32 = 2;
/// .. and so long at least.
const REST_MIN: Duration = Duration::from_millis(100);
/// A flush may write so many times what entries have, in blocks that are not full ..
const FLUSHED_FACTOR: u64 = 2;
/// .. beside what it writes of nothing.
const FLUSHED_MIN: u64 = 64 << 10;

/// What has been tried.
#[derive(Debug, Default)]
pub(super) struct RoomMaking {
    tried: Mutex<Tried>,
}

#[derive(Debug, Default)]
struct Tried {
    /// The newest commit that it began behind.
    behind: Option<SeqNo>,
    not_before: Duration,
}

impl Core {
    /// As [`Core::make_room_if_full`], on a thread of the background.
    pub(super) fn makes_room_if_full(&self) -> bool {
        self.guard.refuses_writes() && matches!(caught(self, || self.make_room_if_full()), Ok(true))
    }

    /// While the disk is full and something has changed since this was last tried, gives back all
    /// the room that can be given back, or as much as lets writing go on. Whether it was tried.
    pub(super) fn make_room_if_full(&self) -> Result<bool> {
        if !self.guard.refuses_writes()
            || self.poison().is_some()
            || !self.cleaning.is_in_background()
        {
            return Ok(false);
        }
        let (began, behind) = (self.clock.monotonic(), self.visible());
        let is_due = {
            let tried = lock(&self.room_making.tried);
            tried.behind != Some(behind) && began >= tried.not_before
        };
        // Held to the end: who pauses the background waits for the slice at hand, then the last.
        let Some(_working) = self.pauses.begin_work().filter(|_| is_due) else { return Ok(false) };
        let given_back = self.give_room_back();
        let ended = self.clock.monotonic();
        let rest = (ended.saturating_sub(began) * REST_FACTOR).max(REST_MIN);
        let not_before = if self.guard.refuses_writes() { ended + rest } else { ended };
        *lock(&self.room_making.tried) = Tried { behind: Some(behind), not_before };
        match given_back {
            // That there was no room for it either is what the next try is for.
            Ok(()) | Err(Error::DiskFull { .. }) => Ok(true),
            // What follows from it has been seen to where it failed.
            Err(_) => Ok(false),
        }
    }

    fn give_room_back(&self) -> Result<()> {
        if !self.memtables_have_room()? {
            return Ok(()); // FD1.
        }
        self.flush_all()?;
        if self.guard.look_for_room() {
            return Ok(());
        }
        let is_over = || self.is_closed() || self.pauses.is_paused() || self.guard.look_for_room();
        let report = self.vacuum(&mut |_| match is_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?;
        if !report.is_cancelled {
            // All is done that wanted room, but that the log goes on in another file.
            self.guard.forget_wanted();
            let _says_so_itself = self.log.prepare_file();
            self.guard.look_for_room();
        }
        Ok(())
    }

    /// Bytes that there are for flushes, be it out of that half of the reserve which they may use;
    /// `None` where that is not known, so that it is tried.
    fn room_for_flushes(&self) -> Option<u64> {
        let Ok(Some(free)) = self.storage.room(&self.dir) else { return None };
        Some(free.saturating_add(self.guard.reserve_figures().held / 2))
    }

    /// Whether there is room for what a keyspace's active memtable is flushed to.
    pub(super) fn has_room_to_seal(&self, runtime: &Runtime) -> Result<bool> {
        let (state, room) = (self.published.state(), self.room_for_flushes());
        let both = state.find(runtime.id).zip(room);
        both.map_or(Ok(true), |(keyspace, room)| {
            let is_empty = keyspace.active.memtable.is_empty();
            Ok(is_empty || FLUSHED_FACTOR * flushed_size(keyspace)? + FLUSHED_MIN <= room)
        })
    }

    /// Whether there is room for what flushes of all memtables would write. Sealed ones that have
    /// found none are waited for.
    fn memtables_have_room(&self) -> Result<bool> {
        let Some(room) = self.room_for_flushes() else { return Ok(true) };
        let mut needed = 0;
        for keyspace in &self.published.state().keyspaces {
            if !keyspace.sealed.is_empty() {
                return Ok(false);
            }
            needed += FLUSHED_FACTOR * flushed_size(keyspace)? + FLUSHED_MIN;
            if needed > room {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Bytes of what a flush of a keyspace's active memtable keeps.
fn flushed_size(keyspace: &KeyspaceState) -> Result<u64> {
    let memtable = &keyspace.active.memtable;
    if keyspace.runtime.archive.is_some() {
        return Ok(memtable.data_size() as u64); // All versions.
    }
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), SeqNo::MAX);
    let mut size = 0;
    Cursor::seek_first(&mut cursor)?;
    while let Some(entry) = Cursor::entry(&cursor) {
        size += (entry.key.len() + entry.value.len()) as u64;
        Cursor::next(&mut cursor)?;
    }
    Ok(size)
}
