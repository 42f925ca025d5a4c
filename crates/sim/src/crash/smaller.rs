//! Cutting a run down in which a crash was not survived: to fewer operations, and the first point
//! and state at which the same kind of thing goes wrong.
//!
//! Each try runs what is left of the run and strikes it at every point; not with all states that
//! the run was struck by, but with that which was not survived and a few others.

use std::sync::Arc;

use super::{CrashRun, WhenFound};
use crate::finding::{Finding, Verdict};
use crate::ledger::{Ledger, Story};
use crate::shrink::shrink;

/// So often it is tried at most: each time takes some hundred to some thousand states.
const TRIES_MAX: usize = 120;
/// States at each point, from that on which was not survived: the same number means something else
/// where other changes are not synced yet.
const STATES_PER_POINT: u64 = 4;

/// What a run has met first.
#[derive(Debug)]
pub(super) struct Struck {
    /// What is wrong.
    pub finding: Finding,
    /// Which operation was under way: its place among those of the run.
    pub operation: usize,
    /// The number of the state; none, if the run itself went wrong.
    pub state: Option<u64>,
}

impl CrashRun {
    /// Finds fewer operations that go wrong in the same way, and notes what comes of them.
    pub(super) fn cut_down(&self, struck: Struck, ledger: &Ledger) {
        let Struck { finding, operation, state } = struck;
        let states = state.map_or(0..0, |state| state..state + STATES_PER_POINT);
        let drawn_count = self.drawn().len();
        let mut numbers = self.kept.clone().unwrap_or_else(|| (0..drawn_count).collect());
        let mut smallest = None;
        let fault = finding.fault;
        let mut fails = |numbers: &[usize]| -> Verdict {
            let counted = Arc::new(Ledger::new());
            let run = CrashRun {
                stride: 1,
                only_point: None,
                states: states.clone(),
                when_found: WhenFound::End,
                kept: Some(numbers.to_vec()),
                ..self.clone()
            };
            run.run(&counted);
            let mut stories = counted.stories().into_iter();
            let Some(story) = stories.find(|story| story.finding.fault == fault) else {
                return Ok(());
            };
            let finding = story.finding.clone();
            smallest = Some(story);
            Err(finding)
        };
        // What comes behind the crash does not matter, as a rule.
        let up_to_crash = &numbers[..numbers.len().min(operation + 1)];
        if fails(up_to_crash).is_err() {
            numbers = up_to_crash.to_vec();
        }
        let (numbers, _) = shrink(numbers, finding, TRIES_MAX, fails);
        let Some(Story { finding, repeat }) = smallest else { return };
        let run = CrashRun { kept: Some(numbers), ..self.clone() };
        let finding = finding.at(&format!("{:?} with {:?}", run.ops(), run.setup()));
        ledger.note_smaller(&Story { finding, repeat });
    }
}

#[cfg(test)]
mod tests {
    use lithedb::storage::{FaultEffect, FaultPlan, FaultRule, Operation};

    use super::*;
    use crate::random::seed_of;
    use crate::shrink::parse_kept;

    /// A run whose log is never synced, which is found, with few operations.
    #[test]
    fn a_run_that_goes_wrong_is_cut_down_and_can_be_repeated() {
        let found = (0..20).find_map(|number| {
            let mut run = CrashRun::of_seed(seed_of(&[7, number]), 6);
            run.op_count = 16;
            run.stride = 5;
            let rule = FaultRule::new(FaultEffect::LieSync).on(&[Operation::Sync]);
            run.planted = FaultPlan::new().rule(rule.path(".wal").lasting());
            let ledger = Arc::new(Ledger::new());
            run.run(&ledger);
            let mut stories = ledger.stories().into_iter();
            Some((run, stories.find(|story| story.repeat.contains("--keep"))?))
        });
        let (mut run, story) = found.expect("the mistake is found");
        let mut words = story.repeat.split(' ').skip_while(|word| *word != "--keep");
        let kept = parse_kept(words.nth(1).unwrap()).unwrap();
        assert!(kept.len() <= 6, "{} operations are left: {story:?}", kept.len());
        run.kept = Some(kept);
        if let (Some("--point"), Some(point)) = (words.next(), words.next()) {
            assert_eq!(words.next(), Some("--state"));
            let state: u64 = words.next().unwrap().parse().unwrap();
            run.only_point = Some(point.parse().unwrap());
            run.states = state..state + 1;
        }
        let ledger = Arc::new(Ledger::new());
        run.when_found = WhenFound::GoOn;
        run.run(&ledger);
        let again = ledger.stories();
        let fault = story.finding.fault;
        assert!(again.iter().any(|story| story.finding.fault == fault), "{again:?}");
    }
}
