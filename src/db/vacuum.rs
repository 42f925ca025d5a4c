//! Vacuum: giving back, on demand, all room that is not needed.

use std::ops::ControlFlow;

use crate::base::Result;
use crate::db::Db;
use crate::db::cleaning::{Cleaned, CleaningRound};
use crate::db::core::Core;
use crate::jobs::Aim;

/// What [`Db::vacuum`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VacuumReport {
    /// Bytes of files that are not taken any more; less what was written meanwhile. Room that a
    /// snapshot still needs is given back when it goes.
    pub bytes_reclaimed: u64,
    /// Value files that are gone.
    pub value_files_removed: u64,
    /// Values moved out of files with garbage.
    pub values_moved: u64,
    /// Bytes of them.
    pub value_bytes_moved: u64,
    /// Whether it was ended before all was done.
    pub is_cancelled: bool,
}

/// How far a vacuum is.
struct Progress<'a> {
    report: VacuumReport,
    bytes_before: u64,
    removed_before: u64,
    go_on: &'a mut dyn FnMut(&VacuumReport) -> ControlFlow<()>,
}

impl Db {
    /// Gives back all room that is not needed: compacts as [`Db::compact`] does, then moves the
    /// live values out of value files of which a sixteenth or more is garbage, and removes these.
    /// Others may read and write meanwhile; snapshots show what they showed.
    ///
    /// Works in slices of 8 MiB, each durable by itself, so that a crash loses nothing, and what
    /// was done stays done. Costs up to reading and writing all data once.
    ///
    /// # Errors
    /// As [`Db::flush`]. What was done before stays so.
    pub fn vacuum(&self) -> Result<VacuumReport> {
        self.vacuum_while(|_| ControlFlow::Continue(()))
    }

    /// As [`Db::vacuum`]; asks `go_on` after each slice whether to go on.
    ///
    /// # Errors
    /// As [`Db::vacuum`].
    pub fn vacuum_while(
        &self,
        mut go_on: impl FnMut(&VacuumReport) -> ControlFlow<()>,
    ) -> Result<VacuumReport> {
        self.core().vacuum(&mut go_on)
    }
}

impl Core {
    pub(super) fn vacuum(
        &self,
        go_on: &mut dyn FnMut(&VacuumReport) -> ControlFlow<()>,
    ) -> Result<VacuumReport> {
        self.check_writable()?;
        self.remove_unreferenced_values();
        let mut progress = Progress {
            report: VacuumReport::default(),
            bytes_before: self.bytes_on_disk(),
            removed_before: self.values.removed_count(),
            go_on,
        };
        if self.vacuum_slices(&mut progress)?.is_break() {
            progress.report.is_cancelled = true;
        }
        self.note_progress(&mut progress, None);
        self.workers.wake(); // They may have found a turn taken.
        Ok(progress.report)
    }

    fn vacuum_slices(&self, progress: &mut Progress<'_>) -> Result<ControlFlow<()>> {
        self.flush_all()?;
        self.let_all_old_go()?;
        let (flow, _) = self.work_through(self.rounds_of_everything(), &mut |_| {
            self.note_progress(progress, None);
            (progress.go_on)(&progress.report)
        })?;
        if flow.is_break() {
            return Ok(flow);
        }
        self.cleaning.give_up();
        self.values.close_files();
        self.remove_unreferenced_values();
        let Some(mut round) = self.begin_cleaning(Aim::Thorough) else {
            return Ok(ControlFlow::Continue(()));
        };
        loop {
            self.check_writable()?;
            match self.clean_slice(&mut round)? {
                Cleaned::Everything => break,
                Cleaned::ReadOn { .. } | Cleaned::Slice { .. } => {}
                Cleaned::Busy => self.finish_flush(&round)?,
            }
            self.note_progress(progress, Some(&round));
            if (progress.go_on)(&progress.report).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        drop(round);
        self.remove_unreferenced_values();
        Ok(ControlFlow::Continue(()))
    }

    fn note_progress(&self, progress: &mut Progress<'_>, round: Option<&CleaningRound>) {
        let (removed, bytes) = (self.values.removed_count(), self.bytes_on_disk());
        let report = &mut progress.report;
        report.bytes_reclaimed = progress.bytes_before.saturating_sub(bytes);
        report.value_files_removed = removed - progress.removed_before;
        if let Some(round) = round {
            report.values_moved = round.mover.values();
            report.value_bytes_moved = round.mover.moved_bytes();
        }
    }

    /// Bytes of segments, indexes and value files.
    fn bytes_on_disk(&self) -> u64 {
        let state = self.published.state();
        let keyspaces = state.keyspaces.iter();
        let of_keyspaces: u64 =
            keyspaces.map(|keyspace| keyspace.runtime.store.stats(0).bytes_on_disk).sum();
        of_keyspaces + self.values.files().iter().map(|file| file.size()).sum::<u64>()
    }
}
