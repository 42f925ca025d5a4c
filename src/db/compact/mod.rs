//! Compacting on demand: a range of keys, a keyspace, or everything; with progress, and to be
//! cancelled.

use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

use crate::base::sync::atomic::Ordering;
use crate::base::version_key::put_head;
use crate::base::{KeyRange, Result, Slice};
use crate::db::Db;
use crate::db::core::{Core, lock};
use crate::db::health::BackgroundWork as Work;
use crate::db::keyspace::Keyspace;
use crate::db::state::Runtime;
use crate::structure::{Round, RoundFigures, RoundSlice, Stale};

/// How far a compaction is that somebody asked for, or what it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Bytes of segments or tables that were read for it, about.
    pub bytes_read: u64,
    /// Bytes that were written for it: to segments or tables, and to value files.
    pub bytes_written: u64,
    /// Bytes of segments or tables that are still to be read for it, about: with
    /// [`Structure::Lsm`](crate::Structure::Lsm), those of tables that overlap the range, above the
    /// last level or in the way to it. What was compacted meanwhile by others is not among them.
    pub bytes_left: u64,
    /// Slices of work that are done, those of flushes that came in between included.
    pub slices: u64,
    /// Whether it was ended by the closure; by what was the last slice, perhaps.
    pub is_cancelled: bool,
}

/// So many bytes are read for a round for each that is flushed meanwhile.
const READ_PER_FLUSHED: u64 = 2;
/// What a slice of a round counts for at least.
const SLICE_LEAST: u64 = 64 << 10;

/// A round over keys of a keyspace. The round goes first: it works in the keyspace's directory.
#[derive(Debug)]
pub(super) struct KeyspaceRound {
    round: Box<dyn Round>,
    runtime: Arc<Runtime>,
    /// So many bytes are read for it before the next memtable is flushed, if that can wait.
    to_read: u64,
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundProgress {
    GoesOn,
    Over,
}

type GoOn<'a> = &'a mut dyn FnMut(&CompactionReport) -> ControlFlow<()>;

impl Db {
    /// Flushes, and then compacts everything: reads become as fast as they can be, and room that
    /// overwritten, deleted and expired entries take is given back. An idle database does much of
    /// that by itself. Others may read and write meanwhile; what they write is not waited for.
    ///
    /// Costs up to reading and writing all data once, in slices of 8 MiB. With
    /// [`Structure::Flex`](crate::Structure::Flex) each slice is durable by itself, and needs so
    /// much room beside what there is; with [`Structure::Lsm`](crate::Structure::Lsm) tables are
    /// replaced when all are written that take the place of some: one table of each level and what
    /// it overlaps, or all of them where runs are not cut alike, as tiered ones are. Snapshots keep
    /// what they show, and its room.
    ///
    /// Works also while background work is paused ([`Db::pause_background`]), and as fast as may
    /// be, whatever [`Builder::compaction_rate`](crate::Builder::compaction_rate) says. To have it
    /// go slower, pause the background and wait in the closure of [`Db::compact_while`]: threads of
    /// the background help otherwise, at the rate that they have.
    ///
    /// # Errors
    /// As [`Db::flush`]. What was compacted before stays so; what was begun is taken back.
    pub fn compact(&self) -> Result<()> {
        self.compact_while(|_| ControlFlow::Continue(())).map(drop)
    }

    /// As [`Db::compact`]; asks `go_on` after each slice whether to go on. When it says no, what
    /// was begun and is not durable is taken back, and its room is given back: of slices that
    /// threads of the background are at, when these are done.
    ///
    /// # Errors
    /// As [`Db::compact`].
    pub fn compact_while(
        &self,
        mut go_on: impl FnMut(&CompactionReport) -> ControlFlow<()>,
    ) -> Result<CompactionReport> {
        let core = self.core();
        core.flush_all()?;
        core.let_all_old_go()?;
        core.compact_rounds(core.rounds_of_everything(), &mut go_on)
    }
}

impl Keyspace {
    /// Flushes the keyspace, and then compacts what it has in `range`, as [`Db::compact`] does with
    /// everything. Works with whole intervals or tables: what these have beside the range is
    /// compacted with it. What lies elsewhere stays as it is, and keeps its room. An empty range is
    /// nothing to do.
    ///
    /// Any number of threads may do so at once, with ranges that overlap or not.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use std::ops::ControlFlow;
    /// # let db = lithedb::Db::builder()
    /// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
    /// let days = db.keyspace_or_create("days")?;
    /// days.put("2026-01-01", "sunny")?;
    /// days.put("2026-02-01", "rain")?;
    /// days.delete_prefix("2026-01")?;
    /// let report = days.compact_while("2026-01".."2026-02", |so_far| {
    ///     println!("{} bytes written, {} left", so_far.bytes_written, so_far.bytes_left);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(!report.is_cancelled);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `KeyspaceNotFound`, also when it is dropped meanwhile. Else as [`Db::compact`].
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.compact_while(range, |_| ControlFlow::Continue(())).map(drop)
    }

    /// As [`Keyspace::compact`]; asks `go_on` after each slice whether to go on, as
    /// [`Db::compact_while`] does.
    ///
    /// # Errors
    /// As [`Keyspace::compact`].
    pub fn compact_while<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        mut go_on: impl FnMut(&CompactionReport) -> ControlFlow<()>,
    ) -> Result<CompactionReport> {
        let (core, runtime) = (self.core(), self.runtime());
        // The newest runtime's: what was compacted of one before is over when it is replaced.
        let gone = || self.runtime().dropped.load(Ordering::Acquire);
        core.check_writable()?;
        if gone() {
            return Err(self.not_found());
        }
        let (start, end) = KeyRange::new(&range).half_open();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(CompactionReport::default());
        }
        core.flush_keyspace(&runtime)?;
        core.let_old_go(&runtime)?;
        let archive = runtime.archive.as_ref().map(|archive| {
            let span = archived_span(&start, end.as_deref());
            core.begin_round(archive, span)
        });
        let round = core.begin_round(&runtime, (Slice::from(start), end.map(Slice::from)));
        let rounds = archive.into_iter().chain([round]).collect();
        let report = core.compact_rounds(rounds, &mut go_on)?;
        if gone() { Err(self.not_found()) } else { Ok(report) }
    }
}

/// The keys of an archive that have the versions of keys from `start` to in front of `end`; with no
/// end, all from there on.
fn archived_span(start: &[u8], end: Option<&[u8]>) -> (Slice, Option<Slice>) {
    let head = |key: &[u8]| {
        let mut head = Vec::new();
        put_head(&mut head, key);
        Slice::from(head)
    };
    (head(start), end.map(head))
}

impl Core {
    fn begin_round(&self, runtime: &Arc<Runtime>, span: (Slice, Option<Slice>)) -> KeyspaceRound {
        let store = Arc::clone(&runtime.store);
        let round = store.begin_round(span, self.time.now_if_used());
        KeyspaceRound { round, runtime: Arc::clone(runtime), to_read: 0 }
    }

    /// Has what keyspaces do not keep any more go when they are compacted next.
    pub(super) fn let_all_old_go(&self) -> Result<()> {
        self.runtimes().iter().try_for_each(|runtime| self.let_old_go(runtime))
    }

    /// Rounds over all keys of all keyspaces.
    pub(super) fn rounds_of_everything(&self) -> Vec<KeyspaceRound> {
        let everything = || (Slice::default(), None);
        self.runtimes().iter().map(|runtime| self.begin_round(runtime, everything())).collect()
    }

    /// Rounds that write everything anew that is in stale files.
    pub(super) fn rounds_of_rewriting(&self, stale: Stale<'_>) -> Result<Vec<KeyspaceRound>> {
        let mut rounds = Vec::new();
        for runtime in self.runtimes() {
            let store = Arc::clone(&runtime.store);
            let round = store.begin_rewriting(stale, self.time.now_if_used())?;
            rounds.push(KeyspaceRound { round, runtime, to_read: 0 });
        }
        Ok(rounds)
    }

    fn compact_rounds(
        &self,
        rounds: Vec<KeyspaceRound>,
        go_on: GoOn<'_>,
    ) -> Result<CompactionReport> {
        let mut report = CompactionReport::default();
        let worked = self.work_through(rounds, &mut |figures| {
            report.note(figures);
            report.slices += 1;
            go_on(&report)
        });
        self.workers.wake(); // They may have found the turn taken.
        let (flow, figures) = worked?;
        report.note(figures);
        report.is_cancelled = flow.is_break();
        Ok(report)
    }

    /// Goes through rounds, one after the other; `look` is shown the sum of all of them after each
    /// slice, and says whether to go on. Those that are left are taken back.
    pub(super) fn work_through(
        &self,
        rounds: Vec<KeyspaceRound>,
        look: &mut dyn FnMut(RoundFigures) -> ControlFlow<()>,
    ) -> Result<(ControlFlow<()>, RoundFigures)> {
        let left_of = |of: &KeyspaceRound| of.round.figures().bytes_left;
        let lefts: Vec<u64> = rounds.iter().map(left_of).collect();
        let mut others = RoundFigures { bytes_left: lefts.iter().sum(), ..RoundFigures::default() };
        for (mut of, left) in rounds.into_iter().zip(lefts) {
            others.bytes_left -= left;
            while self.round_slice(&mut of)? == RoundProgress::GoesOn {
                let so_far = others.plus(of.round.figures());
                if look(so_far).is_break() {
                    return Ok((ControlFlow::Break(()), so_far));
                }
            }
            others = others.plus(RoundFigures { bytes_left: 0, ..of.round.figures() });
        }
        Ok((ControlFlow::Continue(()), others))
    }

    /// Does a slice of a round, or of a flush that is in its way. One that is not goes first as
    /// well, as writers may wait for it; but behind each memtable some bytes of the round, or one
    /// beside writers that always have something sealed would not come to an end.
    fn round_slice(&self, of: &mut KeyspaceRound) -> Result<RoundProgress> {
        self.check_writable()?;
        let _turn = lock(&of.runtime.flushing);
        // Another one than it began with, where the store was half made then.
        let Some(runtime) = self.runtime_with_store(of.runtime.store_id) else {
            return Ok(RoundProgress::Over);
        };
        self.check_writable()?; // Under the turn, which closing waits for.
        let is_in_the_way = || {
            let is_begun = !runtime.store.begun_flushes().is_empty();
            is_begun || self.unarchived(&runtime).is_some() // H5
        };
        let owed = of.to_read;
        // O6: else in turn with copying.
        let is_left = runtime.conversion().is_some_and(|job| job.flushes_itself());
        if ((owed == 0 && !is_left) || is_in_the_way())
            && let Some(to_read) = self.flush_for_round(&runtime)?
        {
            of.to_read = to_read.max(owed);
            return Ok(RoundProgress::GoesOn);
        }
        let (merging, before) = (self.merge_threads.join_anyway(), self.moment_of_thread());
        let (bytes, now) = (self.round_slice_bytes(), self.time.now_if_used());
        let began = self.clock.monotonic();
        let read_before = of.round.figures().bytes_read;
        let slice = self.in_work("compaction", || of.round.slice(bytes, now));
        if matches!(slice, Ok(RoundSlice::Done { .. })) {
            self.note_merged(&merging, before);
        }
        drop(merging);
        let slice = slice.inspect_err(|error| self.follow_idle_failure(error))?;
        self.failures.solved(Work::Compaction, runtime.id);
        // Each slice counts for something.
        let read = of.round.figures().bytes_read.saturating_sub(read_before).max(SLICE_LEAST);
        of.to_read = owed.saturating_sub(read);
        if self.newest_sealed(runtime.id).is_some() {
            // Writers are held to what flushes and this come to together.
            let took = self.clock.monotonic().saturating_sub(began);
            runtime.flush_rate.note_more(took);
        }
        match slice {
            RoundSlice::Done { version } => {
                self.publish_version(&runtime, &version);
                Ok(RoundProgress::GoesOn)
            }
            RoundSlice::FlushUnderWay if owed > 0 => {
                of.to_read = 0; // It is next.
                Ok(RoundProgress::GoesOn)
            }
            // Between slices of a flush and nothing sealed: the keyspace was dropped.
            RoundSlice::FlushUnderWay | RoundSlice::Over => Ok(RoundProgress::Over),
        }
    }

    /// Does a slice of the flush of the keyspace's oldest memtable, if there is one; how many bytes
    /// are to be read before the next one.
    fn flush_for_round(&self, runtime: &Arc<Runtime>) -> Result<Option<u64>> {
        // Not held: its memory is to come back before who waits for that is told.
        let oldest = || {
            let state = self.published.state();
            let oldest = state.find(runtime.id)?.sealed.last()?;
            Some((Arc::downgrade(oldest), oldest.memtable.data_size() as u64))
        };
        let before = oldest();
        let flushed = self.flush_oldest(runtime.id);
        let flushed = flushed.inspect_err(|error| self.note_work_failure(error))?;
        let after = oldest();
        let flushed_size = before.map_or(0, |(table, data_size)| {
            let is_there = after.is_some_and(|(now, _)| now.ptr_eq(&table));
            if is_there { 0 } else { data_size }
        });
        Ok(flushed.then_some(READ_PER_FLUSHED * flushed_size))
    }
}

impl CompactionReport {
    fn note(&mut self, figures: RoundFigures) {
        self.bytes_read = figures.bytes_read;
        self.bytes_written = figures.bytes_written;
        self.bytes_left = figures.bytes_left;
    }
}

#[cfg(test)]
mod tests;
