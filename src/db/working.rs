//! What holds while work is done that makes room, or changes what is shared, on whatever thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result};
use crate::db::background::text_of;
use crate::db::core::{Core, lock};
use crate::db::health::{BackgroundWork, may_pass};
use crate::manifest::{Edit, Manifest};
use crate::storage::ReserveUse;

/// D4: what was not done to its end is neither there nor not. Where each instruction counts; else
/// [`Core::in_work`], which also says what was said.
#[derive(Debug)]
pub(super) struct PoisonOnPanic<'c> {
    core: &'c Core,
    what: &'static str,
    /// A destructor may work while its thread unwinds.
    in_panic_before: bool,
}

impl<'c> PoisonOnPanic<'c> {
    pub(super) fn new(core: &'c Core, what: &'static str) -> PoisonOnPanic<'c> {
        PoisonOnPanic { core, what, in_panic_before: crate::base::sync::thread::panicking() }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if crate::base::sync::thread::panicking() && !self.in_panic_before {
            self.core.set_poison(&format!("{} panicked", self.what));
        }
    }
}

impl Core {
    /// Does work that makes room in the end: it may use half of the reserve, and poisons if it
    /// panics (D4), before anything is let go that the caller holds.
    pub(super) fn in_work<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        let _room = ReserveUse::of_half();
        self.poisoning(what, work)
    }

    /// Applies an edit, with a stamp if it is to have one (C9); it may use all of the reserve: few
    /// bytes that may make much room. D4: after one that happened or not, a commit to a keyspace
    /// that may be gone, or files made anew for one that may exist, would be lost or undo it.
    pub(super) fn apply_edit(&self, manifest: &mut Manifest, edit: &Edit) -> Result<()> {
        manifest.note_totals(self.lifetime_totals());
        let stamped = manifest.state().wants_stamp(edit).then(|| self.stamped(edit));
        let edit = stamped.as_ref().unwrap_or(edit);
        let room = ReserveUse::of_all();
        let applied = self.poisoning("an edit of the manifest", || manifest.apply(edit));
        drop(room);
        self.manifest_bytes.store(manifest.bytes_written(), Ordering::Relaxed);
        *lock(&self.trail) = manifest.state().trail().copied();
        if let Some(why) = manifest.failure() {
            self.set_poison(&format!("the manifest: {why}"));
        }
        applied
    }

    fn poisoning<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        // Whoever comes behind finds the database poisoned.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.set_poison(&format!("{what} panicked: {}", text_of(&*panic)));
            resume_unwind(panic)
        })
    }

    /// Flushes a slice of a keyspace's oldest sealed memtable. The caller has the keyspace's turn
    /// to flush. Whether there was one.
    pub(super) fn flush_oldest(&self, id: u32) -> Result<bool> {
        let began = self.clock.monotonic();
        let flushed = self.in_work("a flush", || self.flush_next_slice(id));
        if matches!(flushed, Err(Error::DiskFull { .. }))
            && let Some(keyspace) = self.published.state().find(id)
            && keyspace.unarchived.is_none()
        {
            keyspace.runtime.no_room.note(began, self.clock.monotonic());
        }
        match &flushed {
            Ok(true) => self.failures.solved(BackgroundWork::Flush, id),
            Ok(false) => {}
            Err(error) => self.note_failed(BackgroundWork::Flush, Some(id), error),
        }
        flushed
    }

    /// Whether there is no keyspace of this number any more: what fails for it then is of no
    /// consequence to anybody.
    pub(super) fn is_gone(&self, id: u32) -> bool {
        self.published.state().find(id).is_none()
    }

    /// Notes for people that work has failed; what follows from it is another matter.
    #[cold]
    pub(super) fn note_failed(
        &self,
        work: BackgroundWork,
        keyspace_id: Option<u32>,
        error: &Error,
    ) {
        self.heed_failed_sync();
        if keyspace_id.is_some_and(|id| self.is_gone(id)) {
            return;
        }
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
