//! What is done with indexes while other things go on, and which commits they refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lithedb::base::Clock as _;
use lithedb::{Error, IndexBuildReport, IndexOptions, Ingest, Keyspace, TableIngestOptions};

use super::{Session, Trouble, absurd};
use crate::extractors::keys_of;
use crate::indexed::{ShowsIndex, expect_shows};
use crate::ops::{INDEX_NAMES, IndexAction, IndexOp, Op, Uniqueness, Which};
use crate::readback::{millis_of, now_of};
use crate::timeline::{Change, IndexState, Until, rows_at};

/// Whether something has expired is not certain so many milliseconds before and behind: the clock
/// moves when somebody waits.
const UNCERTAIN_MILLIS: u64 = 2000;

/// An index, by its keyspace and name.
pub(super) type IndexId = (u32, String);

/// Which refusals by indexes that have each key once are right.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    /// Index and index key.
    possible: BTreeSet<(String, Vec<u8>)>,
    /// Whether the commit has to be refused.
    pub is_certain: bool,
}

impl Refusals {
    /// Whether this is one of them.
    pub(super) fn has(&self, error: &Error) -> bool {
        match error {
            Error::UniqueViolation { index, key } => {
                self.possible.contains(&(index.clone(), key.clone()))
            }
            _ => false,
        }
    }
}

/// What becomes of an index that is built.
#[derive(Clone, Debug)]
struct Course {
    which: IndexId,
    /// Meanwhile.
    during: IndexState,
    /// When it is done.
    done: IndexState,
    /// When it was cancelled, or is refused.
    ended: Option<IndexState>,
}

/// Entries by index key: how many there surely are, and how many there may be.
type Tally = BTreeMap<Vec<u8>, (u32, u32)>;

impl Session {
    /// Does something with an index.
    pub(super) fn run_index(&mut self, op: &IndexOp) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(op.slot) else { return Ok(()) };
        let name = index_name(op.which);
        let which = (keyspace.id(), name.to_owned());
        let is_dropped = op.action == IndexAction::Drop;
        let is_underway = self.building.contains(&which);
        if self.timeline().are_indexes_in_doubt() || (is_underway && !is_dropped) {
            return Ok(());
        }
        let state = self.timeline().indexes().get(&which).cloned();
        match (op.action, state) {
            (IndexAction::Create(number, uniqueness), state) => {
                self.create_index((&keyspace, which), (number, uniqueness), state.as_ref(), op)
            }
            (IndexAction::CreateBesideIngest(number, uniqueness), state) => {
                let begun = self.begin_ingest_before(&keyspace)?;
                self.create_index((&keyspace, which), (number, uniqueness), state.as_ref(), op)?;
                self.expect_ingest_refused(&keyspace, begun)
            }
            (IndexAction::Build, Some(state)) => self.build_index((&keyspace, which), state, op),
            (IndexAction::Rebuild, Some(state)) => {
                self.rebuild_index((&keyspace, which), &state, op)
            }
            (IndexAction::Drop, Some(state)) => self.drop_index(&keyspace, &which, &state),
            (action, None) => {
                let refused = match action {
                    IndexAction::Build => keyspace.build_index(name).err(),
                    IndexAction::Rebuild => keyspace.rebuild_index(name).err(),
                    _ => keyspace.drop_index(name).err(),
                };
                match refused {
                    Some(Error::IndexNotFound { .. }) => Ok(()),
                    Some(error) => Err(error.into()),
                    None => Err(absurd(format!("{action:?} of an index that is not there"))),
                }
            }
        }
    }

    fn create_index(
        &mut self,
        (keyspace, which): (&Keyspace, IndexId),
        (number, uniqueness): (u8, Uniqueness),
        existing: Option<&IndexState>,
        op: &IndexOp,
    ) -> Result<(), Trouble> {
        let (name, extractor) = (which.1.clone(), uniqueness.extractor(number));
        let is_unique = uniqueness == Uniqueness::Unique;
        let options = IndexOptions::new();
        let options = if is_unique { options.unique() } else { options };
        if existing.is_some() {
            return match keyspace.create_index(&name, extractor, options) {
                Err(Error::IndexExists { .. }) => Ok(()),
                Err(error) => Err(error.into()),
                Ok(_) => Err(absurd(format!("the index {name:?} was created twice"))),
            };
        }
        let extractor_name = extractor.to_owned();
        let during =
            IndexState { extractor: extractor_name, is_unique, is_ready: false, is_building: true };
        let course = Course { which, done: during.finished(), during, ended: None };
        self.run_course(keyspace, &course, op, |go_on| {
            keyspace.create_index_while(&name, extractor, options, go_on)
        })
    }

    fn build_index(
        &mut self,
        (keyspace, which): (&Keyspace, IndexId),
        state: IndexState,
        op: &IndexOp,
    ) -> Result<(), Trouble> {
        let name = which.1.clone();
        let (done, ended) = (state.finished(), Some(state.clone()));
        let course = Course { which, during: state, done, ended };
        self.run_course(keyspace, &course, op, |go_on| keyspace.build_index_while(&name, go_on))
    }

    fn rebuild_index(
        &mut self,
        (keyspace, which): (&Keyspace, IndexId),
        state: &IndexState,
        op: &IndexOp,
    ) -> Result<(), Trouble> {
        let name = which.1.clone();
        let during = IndexState { is_building: true, ..state.clone() };
        // What was begun before, to take the place of one that is ready, goes first.
        let ended = if state.is_ready { state.finished() } else { state.clone() };
        let course = Course { which, done: state.finished(), during, ended: Some(ended) };
        self.run_course(keyspace, &course, op, |go_on| keyspace.rebuild_index_while(&name, go_on))
    }

    /// Builds an index, with another operation behind each step.
    fn run_course(
        &mut self,
        keyspace: &Keyspace,
        course: &Course,
        op: &IndexOp,
        build: impl FnOnce(
            &mut dyn FnMut(&IndexBuildReport) -> ControlFlow<()>,
        ) -> Result<IndexBuildReport, Error>,
    ) -> Result<(), Trouble> {
        let Course { which, during, done, ended } = course;
        let may_become = [Some(during.clone()), Some(done.clone()), ended.clone()];
        self.timeline().index_may_become(which, may_become);
        self.building.push(which.clone());
        let (mut beside, mut steps, mut failed) = (op.beside.iter(), 0_u64, None);
        let built = build(&mut |_| {
            steps += 1;
            self.timeline().index_is(which, Some(during.clone()));
            let went = self.run_beside(keyspace, (course, steps), beside.next());
            if self.timeline().indexes().contains_key(which) {
                let may_become = [Some(done.clone()), ended.clone()];
                self.timeline().index_may_become(which, may_become);
            }
            failed = went.err();
            let is_over = failed.is_some() || (op.is_cancelled && beside.len() == 0);
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.building.pop();
        if let Some(Trouble::Refused(error)) = &failed
            && self.leaves_doubt(error)
        {
            return failed.map_or(Ok(()), Err); // So there is doubt about the index as well.
        }
        let settled = self.settle_course(keyspace, course, built, steps);
        match (failed, settled) {
            // What went wrong beside it comes first, if the index was only refused.
            (Some(trouble), Ok(()) | Err(Trouble::Refused(_))) => Err(trouble),
            (_, settled) => settled,
        }
    }

    /// Does something between two steps, and looks at the index behind some of them.
    fn run_beside(
        &mut self,
        keyspace: &Keyspace,
        (course, steps): (&Course, u64),
        op: Option<&Op>,
    ) -> Result<(), Trouble> {
        if let Some(op) = op {
            self.run(op)?;
        }
        let (id, name) = &course.which;
        let is_there = self.timeline().indexes().contains_key(&course.which);
        let is_due = steps.is_power_of_two();
        if !is_due || !is_there || !self.keyspaces.iter().any(|(_, keyspace)| keyspace.id() == *id)
        {
            return Ok(()); // Or it was dropped.
        }
        let index = keyspace.index(name)?;
        if course.during.is_ready {
            return self.expect_index_right(keyspace, &course.which);
        }
        match index.view() {
            Err(Error::IndexNotReady { .. }) => Ok(()),
            other => Err(absurd(format!("an index that is not ready is read: {other:?}"))),
        }
    }

    /// What came of building an index.
    fn settle_course(
        &mut self,
        keyspace: &Keyspace,
        course: &Course,
        built: Result<IndexBuildReport, Error>,
        steps: u64,
    ) -> Result<(), Trouble> {
        let Course { which, during, done, ended } = course;
        let is_gone = !self.timeline().indexes().contains_key(which) && steps > 0;
        match built {
            Ok(report) if is_gone && !report.is_cancelled => {
                Err(absurd(format!("an index that was dropped was built: {report:?}")))
            }
            Ok(_) if is_gone => Ok(()),
            Err(Error::IndexNotFound { .. } | Error::KeyspaceNotFound { .. }) if is_gone => Ok(()),
            Ok(report) if report.is_cancelled => {
                self.timeline().index_is(which, ended.clone());
                expect_steps(&report, steps)?;
                self.expect_listed(which)
            }
            Ok(report) => {
                self.timeline().index_is(which, Some(done.clone()));
                if during.is_building {
                    expect_steps(&report, steps + 1)?;
                }
                self.expect_listed(which)?;
                if self.sharing(which.0, during).is_certain {
                    return Err(absurd(format!("{which:?} was built, with a key that is twice")));
                }
                self.expect_index_right(keyspace, which)
            }
            Err(error @ Error::UniqueViolation { .. }) => {
                self.timeline().index_is(which, ended.clone());
                if !self.sharing(which.0, during).has(&error) {
                    return Err(absurd(format!("{which:?}, {during:?}: {error}")));
                }
                self.expect_listed(which)
            }
            Err(error) => {
                let allowed = match error {
                    Error::Io { .. } => vec![ended.clone(), Some(during.clone())],
                    _ => vec![ended.clone()],
                };
                self.index_refused(which, &error, &allowed)?;
                Err(error.into())
            }
        }
    }

    /// Something with an index failed: if that leaves no doubt, it is one of these.
    fn index_refused(
        &self,
        which: &IndexId,
        error: &Error,
        allowed: &[Option<IndexState>],
    ) -> Result<(), Trouble> {
        self.expect_honest(error)?;
        if self.leaves_doubt(error) {
            return Ok(());
        }
        let found = self.listed(which)?;
        self.timeline().index_is(which, found.clone());
        match allowed.contains(&found) {
            true => Ok(()),
            false => Err(absurd(format!("{which:?} is {found:?} behind {error}"))),
        }
    }

    fn drop_index(
        &mut self,
        keyspace: &Keyspace,
        which: &IndexId,
        state: &IndexState,
    ) -> Result<(), Trouble> {
        let handle = keyspace.index(&which.1)?;
        // What was to take its place goes first.
        let between = (state.is_ready && state.is_building).then(|| state.finished());
        self.timeline().index_may_become(which, [None, Some(state.clone()), between.clone()]);
        match keyspace.drop_index(&which.1) {
            Ok(()) => {
                self.timeline().index_is(which, None);
                match handle.find("x") {
                    Err(Error::IndexNotFound { .. }) => self.expect_listed(which),
                    other => Err(absurd(format!("an index that was dropped finds {other:?}"))),
                }
            }
            Err(error) => {
                self.index_refused(which, &error, &[None, Some(state.clone()), between])?;
                Err(error.into())
            }
        }
    }

    /// An index as the database lists it.
    fn listed(&self, (id, name): &IndexId) -> Result<Option<IndexState>, Trouble> {
        let keyspace = self.keyspaces.iter().find(|(_, keyspace)| keyspace.id() == *id);
        let Some((_, keyspace)) = keyspace else { return Ok(None) };
        let info = keyspace.indexes()?.into_iter().find(|info| info.name == *name);
        Ok(info.map(|info| IndexState {
            extractor: info.extractor,
            is_unique: info.is_unique,
            is_ready: info.is_ready,
            is_building: info.is_building,
        }))
    }

    fn expect_listed(&self, which: &IndexId) -> Result<(), Trouble> {
        let (found, wanted) = (self.listed(which)?, self.timeline().indexes().get(which).cloned());
        match found == wanted {
            true => Ok(()),
            false => Err(absurd(format!("{which:?} is {found:?}, not {wanted:?}"))),
        }
    }

    /// An index that is ready shows what there is.
    fn expect_index_right(&self, keyspace: &Keyspace, which: &IndexId) -> Result<(), Trouble> {
        let snapshot = self.db.snapshot();
        let view = keyspace.index(&which.1)?.at(&snapshot)?;
        let timeline = self.timeline();
        let rows = rows_at(&timeline.rows(which.0), millis_of(snapshot.time()));
        let Some(state) = timeline.indexes().get(which).cloned() else { return Ok(()) };
        let is_in_doubt = timeline.is_in_doubt();
        drop(timeline);
        if is_in_doubt {
            return Ok(()); // The last commit may be there, or not.
        }
        let index: &dyn ShowsIndex = &view;
        expect_shows(index, (&rows, &state.extractor))
    }

    /// Whether a keyspace has indexes.
    pub(super) fn has_indexes(&self, id: u32) -> bool {
        self.timeline().indexes_of(id).next().is_some()
    }

    /// Which refusals of a commit of these changes are right.
    pub(super) fn refusals_of(&self, changes: &[Change]) -> Refusals {
        let mut refusals = Refusals::default();
        let ids: BTreeSet<u32> = changes.iter().map(|change| change.keyspace).collect();
        for id in ids {
            let unique: Vec<(String, IndexState)> = {
                let timeline = self.timeline();
                let indexes = timeline.indexes_of(id).filter(|(_, state)| state.is_unique);
                indexes.map(|(name, state)| (name.to_owned(), state.clone())).collect()
            };
            for (name, state) in unique {
                let of_index = self.tallied(id, &state.extractor, changes);
                for (key, (surely, perhaps)) in of_index {
                    // One that is being built lacks entries.
                    refusals.is_certain |= state.is_ready && surely > 1;
                    if perhaps > 1 {
                        refusals.possible.insert((name.clone(), key));
                    }
                }
            }
        }
        refusals
    }

    /// Which refusals are right of building an index over what there is.
    fn sharing(&self, id: u32, state: &IndexState) -> Refusals {
        let mut refusals = Refusals::default();
        if !state.is_unique {
            return refusals;
        }
        for (key, (surely, perhaps)) in self.tallied(id, &state.extractor, &[]) {
            refusals.is_certain |= surely > 1;
            if perhaps > 1 {
                let names = INDEX_NAMES.map(|name| (name.to_owned(), key.clone()));
                refusals.possible.extend(names);
            }
        }
        refusals
    }

    /// How many entries have an index key, behind these changes.
    fn tallied(&self, id: u32, extractor: &str, changes: &[Change]) -> Tally {
        let now = now_of(&self.db);
        let latest = now.max(self.clock.wall_millis());
        let mut last_of_each = BTreeMap::new();
        for change in changes.iter().filter(|change| change.keyspace == id) {
            last_of_each.insert(change.key.as_slice(), (change.value.as_deref(), change.until));
        }
        let mut tally = Tally::new();
        let mut add = |value: &[u8], certainty: Certainty| {
            for key in keys_of(extractor, value) {
                let (surely, perhaps) = tally.entry(key).or_default();
                *surely += u32::from(certainty == Certainty::There);
                *perhaps += u32::from(certainty != Certainty::Gone);
            }
        };
        let certainty_of = |until: Option<u64>| match until {
            None => Certainty::There,
            Some(until) if until > latest + UNCERTAIN_MILLIS => Certainty::There,
            Some(until) if until < now => Certainty::Gone,
            Some(_) => Certainty::Open,
        };
        let rows = self.timeline().rows(id);
        for (key, row) in &*rows {
            if !last_of_each.contains_key(key.as_slice()) {
                add(&row.value, certainty_of(row.until));
            }
        }
        for (value, until) in last_of_each.into_values() {
            let Some(value) = value else { continue };
            let certainty = match until {
                Until::After(millis) if millis <= UNCERTAIN_MILLIS => Certainty::Open,
                until => certainty_of(until.of(now)),
            };
            add(value, certainty);
        }
        tally
    }

    /// Begins an ingest, if the keyspace takes any.
    fn begin_ingest_before(&self, keyspace: &Keyspace) -> Result<Option<Ingest>, Trouble> {
        if keyspace.keeps_history() || self.has_indexes(keyspace.id()) {
            return Ok(None);
        }
        let mut ingest = keyspace.begin_ingest()?;
        ingest.add("begun before", "and not to be finished")?;
        Ok(Some(ingest))
    }

    /// An ingest that was begun before there was an index does not finish.
    fn expect_ingest_refused(
        &self,
        keyspace: &Keyspace,
        begun: Option<Ingest>,
    ) -> Result<(), Trouble> {
        let Some(ingest) = begun.filter(|_| self.has_indexes(keyspace.id())) else { return Ok(()) };
        match ingest.finish() {
            // Or the keyspace was converted since.
            Err(Error::InvalidArgument { .. } | Error::Conflict) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(report) => Err(absurd(format!("an ingest came past an index: {report:?}"))),
        }
    }

    /// A keyspace with indexes takes no table either.
    pub(super) fn expect_no_tables(&self, keyspace: &Keyspace) -> Result<(), Trouble> {
        let path = self.next_table_path();
        let mut writer = keyspace.table_writer(&path)?;
        writer.put("k", "v")?;
        writer.finish()?;
        match keyspace.ingest_tables(&[path], TableIngestOptions::copying()) {
            Err(Error::InvalidArgument { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(report) => Err(absurd(format!("a table came past an index: {report:?}"))),
        }
    }
}

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    There,
    Open,
    Gone,
}

/// The name of an index.
pub(crate) fn index_name(which: Which) -> &'static str {
    INDEX_NAMES[usize::from(which) % INDEX_NAMES.len()]
}

fn expect_steps(report: &IndexBuildReport, steps: u64) -> Result<(), Trouble> {
    match report.steps == steps {
        true => Ok(()),
        false => Err(absurd(format!("{steps} steps of a build: {report:?}"))),
    }
}
