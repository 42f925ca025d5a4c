//! Rounds: compactions of a part of the key space, or all of it, that somebody asks for.
//!
//! Any number at once, of parts that may overlap. The thread that wants one works at it; others
//! that compact help, and choose for rounds first. Where rounds, or a round and a compaction that
//! is due, want the same tables, one waits for the other, and takes part in it.
//!
//! Invariants
//! - Q1  A round ends by itself: it owes only tables that were there when it began, and what became
//!   of them. Each compaction that it waits for can be gone on with by the one who waits.
//! - Q2  With a round go the compactions that were chosen for it and are not installed. Another
//!   round that waits for one of them then chooses for itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::jobs::{Jobs, Taken};
use super::{LsmStore, figures_of};
use crate::base::Result;
use crate::structure::lsm::compaction::Plan;
use crate::structure::lsm::pick::{
    CompactionPolicy, DueTables, ManualStep, Pick, Span, VersionFigures,
};
use crate::structure::{Round, RoundFigures, RoundSlice};

/// The rounds that are under way.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rounds: Vec<RoundState>,
    next_id: u64,
}

#[derive(Debug)]
struct RoundState {
    id: u64,
    due: DueTables,
    bytes_read: u64,
    bytes_written: u64,
}

impl Rounds {
    fn begin(&mut self, due: DueTables) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.rounds.push(RoundState { id, due, bytes_read: 0, bytes_written: 0 });
        id
    }

    fn find(&self, id: u64) -> Option<&RoundState> {
        self.rounds.iter().find(|round| round.id == id)
    }

    /// The next step of the first round that has one, and that round.
    pub(super) fn pick(
        &self,
        version: &VersionFigures,
        running: &[Pick],
        policy: &CompactionPolicy,
    ) -> Option<(Pick, Option<u64>)> {
        self.rounds.iter().find_map(|round| match round.due.pick(version, running, policy) {
            ManualStep::Compact(pick) => Some((pick, Some(round.id))),
            ManualStep::Wait | ManualStep::Done => None,
        })
    }

    /// Counts what was done for a round, by whomever.
    pub(super) fn note_work(&mut self, id: Option<u64>, read: u64, written: u64) {
        let worked = |round: &&mut RoundState| Some(round.id) == id;
        if let Some(round) = self.rounds.iter_mut().find(worked) {
            round.bytes_read += read;
            round.bytes_written += written;
        }
    }

    /// Says that the outcome of a compaction is in the index, in the place of its inputs.
    pub(super) fn note_installed(&mut self, plan: &Plan, outputs: &[u64]) {
        for round in self.rounds.iter_mut().filter(|_| !plan.pick.is_move) {
            round.due.note_installed(&plan.pick.inputs, plan.output.level, outputs);
        }
    }

    /// Says that tables are gone.
    pub(super) fn note_removed(&mut self, tables: &[u64]) {
        let last = crate::structure::lsm::pick::LAST_LEVEL;
        self.rounds.iter_mut().for_each(|round| round.due.note_installed(tables, last, &[]));
    }
}

/// A round, of the one who wants it. Taken back when it is dropped (Q2).
#[derive(Debug)]
pub(super) struct LsmRound {
    store: Arc<LsmStore>,
    id: u64,
}

/// What there is to do for a round.
enum Step {
    /// This, which the caller has taken.
    Merge(Taken),
    /// Something is ready to be installed.
    Install,
    /// Others are at it.
    Wait,
    Over,
}

impl LsmStore {
    /// What rounds choose by.
    fn figures_for_rounds(&self, now: u64) -> VersionFigures {
        figures_of(&self.lock_writer().index.runs, now, self.retention())
    }
}

impl LsmRound {
    pub(super) fn begin(store: Arc<LsmStore>, span: &Span, now: u64) -> LsmRound {
        let id = {
            let mut jobs = store.lock_jobs();
            let figures = store.figures_for_rounds(now);
            jobs.rounds.begin(DueTables::of_span(&figures, span))
        };
        LsmRound { store, id }
    }

    /// Writes these tables anew.
    pub(super) fn rewriting(store: Arc<LsmStore>, tables: BTreeSet<u64>) -> LsmRound {
        let id = store.lock_jobs().rounds.begin(DueTables::whatever_they_are(tables));
        LsmRound { store, id }
    }

    fn next_step(&self, now: u64) -> Result<Step> {
        let store = &*self.store;
        let mut guard = store.lock_jobs();
        let jobs = &mut *guard;
        if let Some(taken) = store.take_begun(jobs, |job| job.round == Some(self.id)) {
            return Ok(Step::Merge(taken));
        }
        let figures = store.figures_for_rounds(now);
        let running = jobs.picks();
        let round = jobs.rounds.find(self.id).expect("it is there until this is dropped");
        match round.due.pick(&figures, &running, &store.policy) {
            ManualStep::Done => Ok(Step::Over),
            ManualStep::Compact(pick) => {
                store.begin(jobs, (pick, Some(self.id)), now)?;
                let own = store.take_begun(jobs, |job| job.round == Some(self.id));
                Ok(own.map_or(Step::Install, Step::Merge))
            }
            // Q1: nobody else may be there to go on with what is in the way.
            ManualStep::Wait => match store.take_begun(jobs, |_| true) {
                Some(taken) => Ok(Step::Merge(taken)),
                None if jobs.is_ready() => Ok(Step::Install),
                None if jobs.are_worked_at() => Ok(Step::Wait),
                // Given up, and not tidied up behind.
                None => Ok(if jobs.drop_given_up(store) { Step::Install } else { Step::Over }),
            },
        }
    }
}

impl Round for LsmRound {
    fn slice(&mut self, slice_bytes: u64, now: u64) -> Result<RoundSlice> {
        let now = self.store.judged_by(now);
        self.store.install_ready()?;
        match self.next_step(now)? {
            Step::Over => return Ok(RoundSlice::Over),
            Step::Merge(taken) => drop(self.store.merge_part(taken, slice_bytes)?),
            Step::Wait => drop(self.store.wait_for_part()),
            Step::Install => {}
        }
        self.store.install_ready()?;
        Ok(RoundSlice::Done { version: self.store.current.load_full() })
    }

    fn figures(&self) -> RoundFigures {
        let jobs = self.store.lock_jobs();
        let figures = self.store.figures_for_rounds(0);
        let round = jobs.rounds.find(self.id).expect("it is there until this is dropped");
        let begun = jobs.jobs.iter().filter(|job| job.round == Some(self.id));
        let read: u64 = begun.map(|job| job.bytes_read).sum();
        RoundFigures {
            bytes_read: round.bytes_read,
            bytes_written: round.bytes_written,
            bytes_left: round.due.bytes_left(&figures).saturating_sub(read),
        }
    }
}

impl Drop for LsmRound {
    fn drop(&mut self) {
        let mut guard = self.store.lock_jobs();
        let jobs: &mut Jobs = &mut guard;
        jobs.rounds.rounds.retain(|round| round.id != self.id);
        if self.store.lock_writer().log.failure().is_some() {
            return; // What an edit refers to that may be durable has to stay.
        }
        let own = jobs.jobs.iter_mut().filter(|job| job.round == Some(self.id));
        own.for_each(|job| job.is_given_up = true);
        jobs.drop_given_up(&self.store);
        drop(guard);
        self.store.part_done.notify_all();
    }
}
