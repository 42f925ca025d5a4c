//! What holds while work is done that makes room, or changes what is shared, on whatever thread.

use crate::base::{Error, Result};
use crate::db::core::Core;
use crate::db::health::{BackgroundWork, may_pass};
use crate::storage::ReserveUse;

/// D4: what was not done to its end is neither there nor not.
#[derive(Debug)]
pub(super) struct PoisonOnPanic<'c> {
    core: &'c Core,
    what: &'static str,
    /// A destructor may work while its thread unwinds.
    in_panic_before: bool,
}

impl<'c> PoisonOnPanic<'c> {
    pub(super) fn new(core: &'c Core, what: &'static str) -> PoisonOnPanic<'c> {
        PoisonOnPanic { core, what, in_panic_before: std::thread::panicking() }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.in_panic_before {
            self.core.set_poison(&format!("{} panicked", self.what));
        }
    }
}

/// Work that makes room in the end: it may use the reserve, and poisons if it panics.
#[derive(Debug)]
pub(super) struct Working<'c> {
    _room: ReserveUse,
    _panic: PoisonOnPanic<'c>,
}

impl Core {
    /// Begins work that may use half of the reserve.
    pub(super) fn begin_working(&self, what: &'static str) -> Working<'_> {
        Working { _room: ReserveUse::of_half(), _panic: PoisonOnPanic::new(self, what) }
    }

    /// Begins an edit, which may use all of it: few bytes that may make much room.
    pub(super) fn begin_edit(&self) -> Working<'_> {
        let panic = PoisonOnPanic::new(self, "an edit of the manifest");
        Working { _room: ReserveUse::of_all(), _panic: panic }
    }

    /// Flushes a slice of a keyspace's oldest sealed memtable. The caller has the keyspace's turn
    /// to flush. Whether there was one.
    pub(super) fn flush_oldest(&self, id: u32) -> Result<bool> {
        let _working = self.begin_working("a flush");
        let flushed = self.flush_next_slice(id);
        match &flushed {
            Ok(true) => self.failures.solved(BackgroundWork::Flush, Some(id)),
            Ok(false) => {}
            Err(error) => self.note_failed(BackgroundWork::Flush, Some(id), error),
        }
        flushed
    }

    /// Notes for people that work has failed; what follows from it is another matter.
    #[cold]
    pub(super) fn note_failed(
        &self,
        work: BackgroundWork,
        keyspace_id: Option<u32>,
        error: &Error,
    ) {
        self.failures.note(work, keyspace_id, error, self.clock.wall_millis());
    }

    /// What follows from work that has failed: if it may simply be tried again, it is, and who
    /// waits for it is told; else as [`Core::note_failure`].
    pub(super) fn note_work_failure(&self, error: &Error) {
        match may_pass(error) {
            true => self.signal_flushed(),
            false => self.note_failure(error),
        }
    }
}
