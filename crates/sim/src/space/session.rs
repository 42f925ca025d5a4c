//! A space and its vector, step by step, and what of it must survive a crash.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lithedb::Error;
use lithedb::flex_space::{FlexSpace, SpaceSnapshot, SpaceStats, Tag};
use lithedb::storage::Storage;

use super::Setup;
use super::compare::{compare_difference, compare_part, compare_snapshot, failed, read_all};
use super::model::Model;
use super::ops::SpaceOp;
use crate::finding::{Fault, Finding, Verdict};
use crate::random::Random;

/// Snapshots that are kept at a time.
const SNAPSHOTS_MAX: usize = 3;
/// Bytes above which nothing is added.
const LEN_MAX: usize = 200_000;

/// P2: what a crash may leave.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    acknowledged: Model,
    /// Of the sync that is under way, and of those that failed since the last one that did not: one
    /// that collects garbage may have become durable before it failed.
    tried: Vec<Model>,
}

impl History {
    pub(super) fn allows(&self, found: &Model) -> bool {
        *found == self.acknowledged || self.tried.contains(found)
    }

    /// What was found, once it is known to be durable.
    pub(super) fn settled_on(found: Model) -> History {
        History { acknowledged: found, tried: Vec::new() }
    }
}

pub(super) type SharedHistory = Arc<Mutex<History>>;

pub(super) fn look(history: &SharedHistory) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why an operation did not end well.
#[derive(Debug)]
pub(super) enum Trouble {
    Refused(Error),
    Wrong(Finding),
}

impl Trouble {
    pub(super) fn into_finding(self) -> Finding {
        match self {
            Trouble::Refused(error) => Finding::new(Fault::Refused, error.to_string()),
            Trouble::Wrong(finding) => finding,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Refused(error)
    }
}

pub(super) struct Session {
    setup: Setup,
    storage: Arc<dyn Storage>,
    space: Option<FlexSpace>,
    model: Model,
    history: SharedHistory,
    snapshots: Vec<(SpaceSnapshot, Model)>,
}

impl Session {
    pub(super) fn open(
        setup: Setup,
        storage: Arc<dyn Storage>,
        history: &SharedHistory,
    ) -> Verdict<Session> {
        let space = setup.open(Arc::clone(&storage)).map_err(|error| failed(&error))?;
        let model = read_all(&space).map_err(|error| failed(&error))?;
        let history = Arc::clone(history);
        let snapshots = Vec::new();
        Ok(Session { setup, storage, space: Some(space), model, history, snapshots })
    }

    fn space(&mut self) -> &mut FlexSpace {
        self.space.as_mut().expect("a session has a space but while it is opened again")
    }

    pub(super) fn stats(&mut self) -> SpaceStats {
        self.space().stats()
    }

    /// Does an operation with both.
    pub(super) fn run(&mut self, op: &SpaceOp) -> Result<(), Trouble> {
        match *op {
            SpaceOp::Defragment { at, len } => {
                let range = self.range(at, len);
                self.space().defragment(range.start as u64..range.end as u64)?;
                Ok(())
            }
            SpaceOp::Collect => self.make_durable(|space| space.collect_garbage().map(drop)),
            SpaceOp::Sync => self.make_durable(FlexSpace::sync),
            SpaceOp::Checkpoint => self.make_durable(FlexSpace::checkpoint),
            SpaceOp::Close | SpaceOp::Abandon => self.reopen(*op == SpaceOp::Close),
            SpaceOp::Snapshot => self.take_snapshot(),
            SpaceOp::DropSnapshots => {
                self.snapshots.clear();
                Ok(())
            }
            _ => self.change(op),
        }
    }

    /// An operation on bytes or tags: the vector follows if it was done.
    fn change(&mut self, op: &SpaceOp) -> Result<(), Trouble> {
        let len = self.model.len();
        let at_or_end = |at: u64| (at % (len as u64 + 1)) as usize;
        match *op {
            SpaceOp::Insert { .. }
            | SpaceOp::Append { .. }
            | SpaceOp::InsertZeros { .. }
            | SpaceOp::Write { .. }
                if len > LEN_MAX => {}
            SpaceOp::Insert { at, bytes } => {
                let (at, bytes) = (at_or_end(at), bytes.make());
                self.space().insert(at as u64, &bytes)?;
                self.model.insert(at, &bytes);
            }
            SpaceOp::Append { bytes } => {
                let bytes = bytes.make();
                self.space().append(&bytes)?;
                self.model.insert(len, &bytes);
            }
            SpaceOp::InsertZeros { at, len } => {
                let at = at_or_end(at);
                self.space().insert_zeros(at as u64, len)?;
                self.model.insert(at, &vec![0; len as usize]);
            }
            SpaceOp::Collapse { at, len } => {
                let range = self.range(at, len);
                self.space().collapse(range.start as u64..range.end as u64)?;
                self.model.collapse(range);
            }
            SpaceOp::Write { at, beyond, bytes } => {
                let at = if beyond > 0 { len + beyond as usize } else { at_or_end(at) };
                let bytes = bytes.make();
                self.space().write(at as u64, &bytes)?;
                self.model.write(at, &bytes);
            }
            SpaceOp::Overwrite { at, bytes } => {
                let range = self.range(at, bytes.len as u64);
                let bytes = &bytes.make()[..range.len()];
                self.space().overwrite(range.start as u64, bytes)?;
                self.model.write(range.start, bytes);
            }
            SpaceOp::Update { at, len, bytes } => {
                let (range, bytes) = (self.range(at, len), bytes.make());
                self.space().update(range.start as u64..range.end as u64, &bytes)?;
                self.model.update(range, &bytes);
            }
            SpaceOp::Truncate { len: to } => {
                let to = (to % (len as u64 * 5 / 4 + 100)) as usize;
                self.space().truncate(to as u64)?;
                self.model.truncate(to);
            }
            SpaceOp::SetTag { at, tag } if len > 0 => {
                let (at, tag) = ((at % len as u64) as usize, Tag::new(tag).expect("not 0"));
                self.space().set_tag(at as u64, tag)?;
                self.model.set_tag(at, tag.get());
            }
            SpaceOp::RemoveTag { at } if len > 0 => {
                let at = self.near_tag((at % len as u64) as usize);
                self.space().remove_tag(at as u64)?;
                self.model.set_tag(at, 0);
            }
            _ => {}
        }
        Ok(())
    }

    /// The first tagged byte behind `at`, or `at`.
    fn near_tag(&self, at: usize) -> usize {
        let tags = self.model.tags(at..self.model.len());
        tags.first().map_or(at, |&(offset, _)| offset as usize)
    }

    fn range(&self, at: u64, len: u64) -> std::ops::Range<usize> {
        let start = (at % (self.model.len() as u64 + 1)) as usize;
        start..(start + len as usize).min(self.model.len())
    }

    fn make_durable(
        &mut self,
        sync: impl FnOnce(&mut FlexSpace) -> lithedb::Result<()>,
    ) -> Result<(), Trouble> {
        look(&self.history).tried.push(self.model.clone());
        sync(self.space())?;
        *look(&self.history) = History::settled_on(self.model.clone());
        Ok(())
    }

    fn reopen(&mut self, gracefully: bool) -> Result<(), Trouble> {
        self.snapshots.clear();
        let space = self.space.take().expect("a session has a space");
        if gracefully {
            look(&self.history).tried.push(self.model.clone());
            space.close()?;
            *look(&self.history) = History::settled_on(self.model.clone());
        } else {
            drop(space);
        }
        let space = self.setup.open(Arc::clone(&self.storage))?;
        let found = read_all(&space)?;
        if !look(&self.history).allows(&found) {
            return Err(Trouble::Wrong(Finding::new(Fault::Lost, "another state after reopening")));
        }
        *look(&self.history) = History::settled_on(found.clone());
        (self.space, self.model) = (Some(space), found);
        Ok(())
    }

    fn take_snapshot(&mut self) -> Result<(), Trouble> {
        let snapshot = self.space().snapshot()?;
        if self.snapshots.len() == SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        self.snapshots.push((snapshot, self.model.clone()));
        Ok(())
    }

    /// P1, for a part, and for snapshots now and then.
    pub(super) fn compare(&mut self, random: &mut Random) -> Verdict {
        let model = std::mem::take(&mut self.model);
        let compared = compare_part(self.space(), &model, random);
        self.model = model;
        compared?;
        if random.chance(100) {
            self.expect_all()?;
            for (snapshot, model) in &self.snapshots {
                compare_snapshot(snapshot, model)?;
            }
            for pair in self.snapshots.windows(2) {
                let [(old, old_model), (new, new_model)] = pair else { unreachable!("pairs") };
                compare_difference((old, old_model), (new, new_model))?;
                compare_difference((new, new_model), (old, old_model))?;
            }
        }
        Ok(())
    }

    /// P1, for everything.
    pub(super) fn expect_all(&mut self) -> Verdict {
        let found = read_all(self.space()).map_err(|error| failed(&error))?;
        if found == self.model {
            return Ok(());
        }
        Err(Finding::new(Fault::Wrong, "the space is not what the vector is"))
    }

    pub(super) fn expect_check_ok(&mut self) -> Verdict {
        expect_check_ok(self.space())
    }
}

pub(super) fn expect_check_ok(space: &mut FlexSpace) -> Verdict {
    let report = space.check().map_err(|error| failed(&error))?;
    if report.is_ok() {
        return Ok(());
    }
    Err(Finding::new(Fault::CheckFailed, report.problems.join("; ")))
}
