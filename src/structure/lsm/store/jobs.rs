//! Compactions under way: choosing them, sharing them among threads, installing them.
//!
//! A thread takes a part of a compaction, merges a slice of it without any lock, and puts it back.
//! When all parts are done the compaction waits for whoever has the turn to install it.
//!
//! Invariants
//! - P1  A part is with one thread at a time; while it is, its place says so.
//! - P2  A compaction stays among those that run until its edit is applied or it is given up, so
//!   that its inputs are chosen by no other.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::rounds::Rounds;
use super::{Change, LsmStore, Written, figures_of};
use crate::base::{Result, Slice};
use crate::structure::Compacted;
use crate::structure::lsm::compaction::{Merging, PartProgress, Plan, deletions};
use crate::structure::lsm::index::{Index, Run};
use crate::structure::lsm::output::{KeySpan, discard};
use crate::structure::lsm::pick::{
    CompactionReason, LAST_LEVEL, Pick, Span, TableFigures, VersionFigures, output_table_size,
    pick, pick_idle, pick_paid, split_keys,
};
use crate::structure::lsm::record::{PlacedTable, RunPlace};
use crate::structure::lsm::table::{Table, TableRecord};
use crate::value_log::Mover;

/// Parts of a compaction, at most.
const PART_COUNT_MAX: usize = 4;
/// Tables that a part is worth being one for.
const TABLES_PER_PART: u64 = 2;
/// Bytes of compaction that a seek pays for with each run beside the first that it looks into:
/// about what takes as long. (After LevelDB's `allowed_seeks`.)
const BYTES_PER_SEEK: u64 = 4 << 10;
/// How long a thread waits for another that is at the last part of a compaction.
const PART_WAIT: Duration = Duration::from_millis(20);

/// What is under way.
#[derive(Debug, Default)]
pub(in crate::structure::lsm) struct Jobs {
    pub(super) jobs: Vec<Job>,
    next_id: u64,
    /// What somebody wants compacted comes before what is due.
    pub(super) rounds: Rounds,
    /// A compaction has failed: nothing is chosen until the next flush, or [`Jobs::try_again`], but
    /// for those who ask.
    has_failed: bool,
    /// One that could be done without has: no such is chosen.
    optional_has_failed: bool,
    /// Bytes of what seeks have paid for that are used up.
    paid_and_used: u64,
}

#[derive(Debug)]
pub(super) struct Job {
    id: u64,
    pub(super) plan: Arc<Plan>,
    parts: Vec<Part>,
    /// The round that it was chosen for.
    pub(super) round: Option<u64>,
    /// Bytes of its inputs that were read, about.
    pub(super) bytes_read: u64,
    pub(super) is_given_up: bool,
}

#[derive(Debug)]
enum Part {
    Waiting(KeySpan),
    /// A thread is at it (P1).
    Taken,
    Begun(Box<Merging>),
    Done(Finished),
}

/// What has come of a part.
#[derive(Debug)]
struct Finished {
    tables: Vec<TableRecord>,
    /// What wrote values: it holds their files until the tables do.
    mover: Option<Mover>,
}

/// A part that a thread has taken.
pub(super) struct Taken {
    id: u64,
    position: usize,
    plan: Arc<Plan>,
    merging: Box<Merging>,
}

impl Job {
    fn is_ready(&self) -> bool {
        !self.is_given_up && self.parts.iter().all(|part| matches!(part, Part::Done(_)))
    }

    /// Says that its tables are in the index, durably.
    fn note_installed(self) {
        for part in self.parts {
            if let Part::Done(Finished { mover: Some(mut mover), .. }) = part {
                mover.note_held();
            }
        }
    }

    fn has_taken(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Taken))
    }

    /// Bytes of the inputs that are read for `logical` bytes of keys and values of a part, about.
    fn bytes_behind(&self, logical: u64) -> u64 {
        let tables = self.plan.runs.iter().flat_map(|run| run.tables.iter());
        let whole = tables.map(|table| table.record.logical_bytes).sum::<u64>().max(1);
        let bytes = u128::from(self.plan.pick.input_size) * u128::from(logical) / u128::from(whole);
        (bytes as u64).min(self.bytes_of_part())
    }

    fn bytes_of_part(&self) -> u64 {
        self.plan.pick.input_size / self.parts.len() as u64
    }
}

impl Jobs {
    /// Numbers of tables that are being compacted.
    pub(super) fn inputs(&self) -> BTreeSet<u64> {
        self.jobs.iter().flat_map(|job| job.plan.pick.inputs.iter().copied()).collect()
    }

    /// Where compactions are under way.
    pub(in crate::structure::lsm) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.jobs.iter().map(|job| &job.plan.pick.span)
    }

    /// What has failed may be tried again: something was flushed, or some time has passed.
    pub(super) fn try_again(&mut self) {
        self.has_failed = false;
        self.optional_has_failed = false;
    }

    /// Whether anything is not chosen because it has failed.
    pub(super) fn holds_back(&self) -> bool {
        self.has_failed || self.optional_has_failed
    }

    fn note_failure(&mut self, reason: CompactionReason) {
        match reason {
            CompactionReason::Idle | CompactionReason::Seeks => self.optional_has_failed = true,
            _ => self.has_failed = true,
        }
    }

    pub(super) fn picks(&self) -> Vec<Pick> {
        self.jobs.iter().map(|job| job.plan.pick.clone()).collect()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.jobs.iter().any(Job::is_ready)
    }

    /// Gives everything up that is under way: the store is closed.
    pub(super) fn give_up(&mut self, store: &LsmStore) {
        self.jobs.iter_mut().for_each(|job| job.is_given_up = true);
        self.has_failed = true;
        self.drop_given_up(store);
    }

    /// Whether a thread is at a part of one.
    pub(super) fn are_worked_at(&self) -> bool {
        self.jobs.iter().any(Job::has_taken)
    }

    /// Gives up every compaction that nobody is at, and is not to be gone on with. Whether there
    /// were any.
    pub(super) fn drop_given_up(&mut self, store: &LsmStore) -> bool {
        let count = self.jobs.len();
        let over = |job: &mut Job| job.is_given_up && !job.has_taken();
        for job in self.jobs.extract_if(.., over) {
            for part in job.parts {
                match part {
                    Part::Begun(merging) => drop(merging.discard()),
                    Part::Done(done) if !job.plan.pick.is_move => {
                        done.mover.into_iter().for_each(|mut mover| mover.take_back());
                        discard(&store.place, &done.tables);
                    }
                    Part::Done(_) | Part::Waiting(_) | Part::Taken => {}
                }
            }
        }
        self.jobs.len() < count
    }
}

impl Drop for LsmStore {
    /// The keyspace was dropped, or the database without being closed. Tables that compactions have
    /// made go with the directory, or at the next opening; nobody has a pointer to the values that
    /// they have made, unless there is doubt about an edit.
    fn drop(&mut self) {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if writer.log.failure().is_some() {
            return;
        }
        let jobs = self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner);
        for part in jobs.jobs.drain(..).flat_map(|job| job.parts) {
            let mover = match part {
                Part::Begun(merging) => Some(merging.into_mover()),
                Part::Done(finished) => finished.mover,
                Part::Waiting(_) | Part::Taken => None,
            };
            mover.into_iter().for_each(|mut mover| mover.take_back());
        }
    }
}

/// What is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeal {
    /// What has to be, or what seeks have paid for.
    Due,
    /// Also what may be when nobody writes.
    Idle,
}

impl LsmStore {
    /// See [`crate::structure::Store::compact`].
    pub(super) fn compact_slice(
        &self,
        slice_bytes: u64,
        (now, zeal): (u64, Zeal),
    ) -> Result<Compacted> {
        let taken = {
            let mut jobs = self.lock_jobs();
            match self.take_part(&mut jobs, (now, zeal))? {
                Some(taken) => taken,
                None if jobs.is_ready() => {
                    return Ok(Compacted::Ready);
                }
                None => return Ok(Compacted::Nothing),
            }
        };
        let (bytes, is_ready) = self.merge_part(taken, slice_bytes)?;
        Ok(Compacted::Slice { bytes, is_ready })
    }

    /// Takes a part that is to be gone on with, or begins the next compaction.
    fn take_part(&self, jobs: &mut Jobs, (now, zeal): (u64, Zeal)) -> Result<Option<Taken>> {
        if let Some(taken) = self.take_begun(jobs, |_| true) {
            return Ok(Some(taken));
        }
        if jobs.has_failed {
            return Ok(None);
        }
        let Some((pick, round)) = self.choose(jobs, (now, zeal)) else { return Ok(None) };
        let reason = pick.reason;
        let begun = self.begin(jobs, (pick, round), now);
        begun.inspect_err(|_| jobs.note_failure(reason))?;
        Ok(self.take_begun(jobs, |_| true))
    }

    /// Begins a compaction, for a round or for none.
    pub(super) fn begin(
        &self,
        jobs: &mut Jobs,
        (pick, round): (Pick, Option<u64>),
        now: u64,
    ) -> Result<()> {
        let job = self.job_of(pick, jobs.next_id, now)?;
        jobs.next_id += 1;
        jobs.jobs.push(Job { round, ..job });
        Ok(())
    }

    /// Takes a part of a compaction that is under way, of those that are `wanted`.
    pub(super) fn take_begun(
        &self,
        jobs: &mut Jobs,
        wanted: impl Fn(&Job) -> bool,
    ) -> Option<Taken> {
        for job in jobs.jobs.iter_mut().filter(|job| !job.is_given_up && wanted(job)) {
            let open = |part: &Part| matches!(part, Part::Waiting(_) | Part::Begun(_));
            let Some(position) = job.parts.iter().position(open) else { continue };
            let (id, plan) = (job.id, Arc::clone(&job.plan));
            let merging = match std::mem::replace(&mut job.parts[position], Part::Taken) {
                Part::Begun(merging) => merging,
                Part::Waiting(span) => {
                    let (place, reader) = (&self.place, &self.reader);
                    Box::new(Merging::new(&plan, span, place, reader, self.mover()))
                }
                Part::Taken | Part::Done(_) => unreachable!("it is open"),
            };
            return Some(Taken { id, position, plan, merging });
        }
        None
    }

    /// Merges a slice of a part, and puts it back. The bytes written, and whether something is to
    /// be installed.
    pub(super) fn merge_part(&self, taken: Taken, slice_bytes: u64) -> Result<(u64, bool)> {
        let Taken { id, position, plan, mut merging } = taken;
        let (before, passed_before) = (merging.bytes_written(), merging.bytes_passed());
        let run = || merging.run(&plan, &self.reader, slice_bytes);
        let progress = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let bytes = merging.bytes_written().saturating_sub(before);
        let mut guard = self.lock_jobs();
        let jobs = &mut *guard;
        let job = jobs.jobs.iter_mut().find(|job| job.id == id).expect("P2");
        let read_before = job.bytes_behind(passed_before);
        let read = match &progress {
            Ok(Ok(PartProgress::Done(_))) => job.bytes_of_part(),
            _ => job.bytes_behind(merging.bytes_passed()),
        };
        let read = read.saturating_sub(read_before);
        job.bytes_read += read;
        jobs.rounds.note_work(job.round, read, bytes);
        let (part, outcome) = match progress {
            Ok(Ok(PartProgress::GoesOn)) => (Part::Begun(merging), Ok(())),
            Ok(Ok(PartProgress::Done(tables))) => {
                let mover = Some(merging.into_mover());
                (Part::Done(Finished { tables, mover }), Ok(()))
            }
            Ok(Err(error)) => (Part::Begun(merging), Err(error)),
            Err(panic) => {
                // Nothing of the store has changed; the tables are orphans.
                job.is_given_up = true;
                job.parts[position] = Part::Begun(merging);
                jobs.has_failed = true;
                drop(guard);
                std::panic::resume_unwind(panic);
            }
        };
        job.parts[position] = part;
        if outcome.is_err() {
            job.is_given_up = true;
            let reason = job.plan.pick.reason;
            jobs.note_failure(reason);
        }
        jobs.drop_given_up(self);
        let is_ready = jobs.is_ready();
        drop(guard);
        self.part_done.notify_all();
        outcome.map(|()| (bytes, is_ready))
    }

    /// The compaction that is wanted or due most, and the round that it is for.
    fn choose(&self, jobs: &mut Jobs, (now, zeal): (u64, Zeal)) -> Option<(Pick, Option<u64>)> {
        let figures = figures_of(&self.lock_writer().index.runs, now, self.retention());
        let running = jobs.picks();
        if let Some(of_round) = jobs.rounds.pick(&figures, &running, &self.policy) {
            return Some(of_round);
        }
        let chosen = pick(&figures, &running, &self.policy).or_else(|| {
            if jobs.optional_has_failed {
                return None;
            }
            let idle = match zeal {
                Zeal::Due => None,
                Zeal::Idle => pick_idle(&figures, &running, &self.policy),
            };
            idle.or_else(|| self.choose_paid(jobs, &figures, &running))
        });
        chosen.map(|pick| (pick, None))
    }

    /// What seeks have paid for, so that in all no more is merged for them than they have cost.
    /// What is paid and not used is bounded by what there is: it is for the runs of now.
    fn choose_paid(
        &self,
        jobs: &mut Jobs,
        figures: &VersionFigures,
        running: &[Pick],
    ) -> Option<Pick> {
        let seeks = self.reader.extra_seeks.total(0);
        let paid_ever = seeks.saturating_mul(BYTES_PER_SEEK);
        let paid = paid_ever.saturating_sub(jobs.paid_and_used).min(figures.size());
        if paid == 0 {
            return None;
        }
        let pick = pick_paid(figures, running, &self.policy, paid)?;
        jobs.paid_and_used = (paid_ever - paid).saturating_add(pick.input_size);
        Some(pick)
    }

    fn job_of(&self, pick: Pick, id: u64, now: u64) -> Result<Job> {
        let index = self.lock_writer().index.clone();
        let plan = Arc::new(self.plan_of(pick, &index, now)?);
        let parts = if plan.pick.is_move {
            let tables = plan.runs.iter().flat_map(|run| run.tables.iter());
            let tables = tables.map(|table| table.record.clone()).collect();
            vec![Part::Done(Finished { tables, mover: None })]
        } else {
            parts_of(&plan).into_iter().map(Part::Waiting).collect()
        };
        Ok(Job { id, plan, parts, round: None, bytes_read: 0, is_given_up: false })
    }

    /// What a pick says, with the tables that it names.
    fn plan_of(&self, pick: Pick, index: &Index, now: u64) -> Result<Plan> {
        let named = |numbers: &[u64], table: &Arc<Table>| numbers.contains(&table.record.number);
        let mut runs = Vec::new();
        let mut older = Vec::new();
        for run in &index.runs {
            let tables = run.tables.iter();
            let inputs = tables.clone().filter(|table| named(&pick.inputs, table));
            let inputs: Arc<[_]> = inputs.cloned().collect();
            if !inputs.is_empty() {
                runs.push(Run { place: run.place, tables: inputs });
            }
            older.extend(tables.filter(|table| named(&pick.older, table)).cloned());
        }
        let output = match pick.output_level {
            // What is newer in between does not overlap it: it is an input as well.
            0 => RunPlace { level: 0, id: runs.last().map_or(0, |run| run.place.id) },
            level => RunPlace::of_level(level),
        };
        let deleted = deletions(&runs, &self.reader)?;
        let retention = self.retention();
        let figures = figures_of(&index.runs, now, retention);
        let table_size = output_table_size(&figures, &self.policy, pick.input_size);
        let options = self.table_options(pick.output_level);
        let all = if retention.is_some() { index.runs.clone() } else { Vec::new() };
        let newest = runs.first().map(|run: &Run| run.place);
        let newer = all.iter().take_while(|run| Some(run.place) != newest).count();
        Ok(Plan {
            pick,
            runs,
            deleted,
            output,
            older,
            now,
            retention,
            all,
            newer,
            options,
            table_size,
        })
    }

    /// Makes durable, and hands out, what is ready. The caller has the turn. Whether that was
    /// anything.
    pub(super) fn install_ready(&self) -> Result<bool> {
        let mut jobs = self.lock_jobs();
        let ready: Vec<usize> =
            (0..jobs.jobs.len()).filter(|at| jobs.jobs[*at].is_ready()).collect();
        if ready.is_empty() {
            return Ok(false);
        }
        let mut guard = self.lock_writer();
        let writer = &mut *guard;
        let mut failed = None;
        for position in ready.into_iter().rev() {
            let change = change_of(&jobs.jobs[position]);
            let counters = writer.index.counters;
            let outputs: Vec<u64> = change.added.iter().map(|added| added.table.number).collect();
            // What fails for want of room is tried again with the next that is ready; what was
            // committed before it is published all the same.
            if let Err(error) = self.commit(writer, change, counters) {
                failed = Some(error);
                break;
            }
            let job = jobs.jobs.remove(position); // P2
            note_sieved(&job.plan, &writer.index, &outputs);
            jobs.rounds.note_installed(&job.plan, &outputs);
            job.note_installed();
        }
        self.publish(writer);
        drop(jobs);
        self.part_done.notify_all();
        failed.map_or(Ok(true), Err)
    }

    /// Rewrites a table in its place, with the values moved that lie in the mover's files. The
    /// caller has the turn. `None` if the table is being compacted.
    pub(super) fn rewrite(&self, number: u64, mover: &mut Mover, now: u64) -> Result<Option<u64>> {
        let Some((id, plan)) = self.begin_rewrite(number, now)? else { return Ok(None) };
        let own = std::mem::replace(mover, self.mover());
        let span = (plan.pick.span.first.clone(), plan.pick.span.end.clone());
        let mut merging = Merging::new(&plan, span, &self.place, &self.reader, own);
        let before = merging.bytes_written();
        let progress = merging.run(&plan, &self.reader, u64::MAX / 8);
        let bytes = merging.bytes_written().saturating_sub(before);
        let mut jobs = self.lock_jobs();
        let position = jobs.jobs.iter().position(|job| job.id == id).expect("P2");
        let committed = match progress {
            Ok(PartProgress::Done(tables)) => {
                *mover = merging.into_mover();
                let mut guard = self.lock_writer();
                let counters = guard.index.counters;
                let cleaning = tables.iter().map(|table| table.size).sum();
                let outputs: Vec<u64> = tables.iter().map(|table| table.number).collect();
                let of =
                    |table: &TableRecord| PlacedTable { run: plan.output, table: table.clone() };
                let change = Change {
                    removed: plan.pick.inputs.clone(),
                    added: tables.iter().map(of).collect(),
                    written: Written { cleaning, ..Written::default() },
                    compactions: 1,
                };
                let committed = self.commit(&mut guard, change, counters);
                match &committed {
                    Ok(()) => {
                        mover.note_held();
                        jobs.rounds.note_installed(&plan, &outputs);
                        self.publish(&guard);
                    }
                    Err(_) if guard.log.failure().is_none() => {
                        mover.take_back();
                        discard(&self.place, &tables);
                    }
                    Err(_) => {}
                }
                committed
            }
            Ok(PartProgress::GoesOn) => unreachable!("the slice is as large as may be"),
            Err(error) => {
                *mover = merging.discard();
                Err(error)
            }
        };
        jobs.jobs.remove(position);
        drop(jobs);
        self.part_done.notify_all();
        committed.map(|()| Some(bytes))
    }

    /// Has a table be busy with a rewriting.
    fn begin_rewrite(&self, number: u64, now: u64) -> Result<Option<(u64, Arc<Plan>)>> {
        let mut jobs = self.lock_jobs();
        let index = self.lock_writer().index.clone();
        let found = index.tables().find(|(_, table)| table.record.number == number);
        let Some((run, table)) = found.filter(|_| !jobs.inputs().contains(&number)) else {
            return Ok(None);
        };
        let record = &table.record;
        let behind = index.runs.iter().filter(|other| other.place.rank() > run.rank());
        let older = behind.flat_map(|run| run.overlapping(&record.first, record.end.as_deref()));
        let pick = Pick {
            reason: CompactionReason::Manual,
            inputs: vec![number],
            input_size: record.size,
            output_level: run.level,
            span: Span { first: record.first.clone(), end: record.end.clone() },
            is_move: false,
            older: older.map(|table| table.record.number).collect(),
        };
        let plan = Arc::new(Plan { table_size: u64::MAX, ..self.plan_of(pick, &index, now)? });
        let id = jobs.next_id;
        jobs.next_id += 1;
        let parts = vec![Part::Taken];
        let (job_plan, round) = (Arc::clone(&plan), None);
        jobs.jobs.push(Job { id, plan: job_plan, parts, round, bytes_read: 0, is_given_up: false });
        Ok(Some((id, plan)))
    }

    /// Waits for a part that another thread is at, for a while. Whether there is one.
    pub(super) fn wait_for_part(&self) -> bool {
        let jobs = self.lock_jobs();
        if !jobs.are_worked_at() {
            return false;
        }
        let waited = self.part_done.wait_timeout(jobs, PART_WAIT);
        drop(waited);
        true
    }
}

/// Takes the inputs of a compaction out and puts its outputs in (L5).
fn change_of(job: &Job) -> Change {
    let tables = job.parts.iter().flat_map(|part| match part {
        Part::Done(done) => done.tables.as_slice(),
        _ => &[],
    });
    let added = tables.map(|table| PlacedTable { run: job.plan.output, table: table.clone() });
    let added: Vec<PlacedTable> = added.collect();
    let compaction = match job.plan.pick.is_move {
        true => 0,
        false => added.iter().map(|added| added.table.size).sum(),
    };
    Change {
        removed: job.plan.pick.inputs.clone(),
        added,
        written: Written { compaction, ..Written::default() },
        compactions: u64::from(!job.plan.pick.is_move),
    }
}

/// Says of tables at the last level that what is not kept was left out.
fn note_sieved(plan: &Plan, index: &Index, outputs: &[u64]) {
    if plan.pick.is_move || plan.output.level != LAST_LEVEL {
        return;
    }
    let Some(retention) = plan.retention else { return };
    let tables = index.tables().filter(|(_, table)| outputs.contains(&table.record.number));
    tables.for_each(|(_, table)| table.note_sieved(retention));
}

/// The ranges of keys that a compaction is divided into.
fn parts_of(plan: &Plan) -> Vec<KeySpan> {
    let tables_of_outcome = plan.pick.input_size / plan.table_size.max(1);
    let count = (tables_of_outcome / TABLES_PER_PART).clamp(1, PART_COUNT_MAX as u64) as usize;
    let figures: Vec<TableFigures> = plan.runs.iter().flat_map(figures_of_run).collect();
    let keys = split_keys(&figures.iter().collect::<Vec<_>>(), count);
    let starts = std::iter::once(Slice::default()).chain(keys.iter().cloned());
    let ends = keys.iter().cloned().map(Some).chain(std::iter::once(None));
    starts.zip(ends).collect()
}

fn figures_of_run(run: &Run) -> impl Iterator<Item = TableFigures> + '_ {
    run.tables.iter().map(|table| TableFigures {
        number: table.record.number,
        first: table.record.first.clone(),
        end: table.record.end.clone(),
        size: table.record.size,
        entry_count: table.record.entry_count,
        tombstones: table.record.tombstones,
        deleted_ranges: table.record.deleted_ranges,
        expired: 0,
        hides: table.record.hides,
        is_unsieved: false,
    })
}
