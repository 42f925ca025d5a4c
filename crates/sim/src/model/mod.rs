//! The model test: whatever can be read is compared with `BTreeMap`s, while memtables, intervals,
//! segments and log files are so small that everything happens to them all the time.
//!
//! | file | what |
//! |---|---|
//! | `compare` | reads, iterators and cursors against sorted rows |
//! | `canary` | planted mistakes that must be found |

pub mod canary;
mod compare;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lithedb::storage::{MemoryStorage, Operation, SimStorage, Storage};
use lithedb::{Error, Index, Keyspace, Snapshot, Structure};

use crate::checkpoints::{self, Seen, Use};
use crate::diet::Diet;
use crate::finding::{Fault, Finding, Verdict, expect_no_misuse};
use crate::indexed::{compare_index, expect_shows, indexes_of};
use crate::ledger::{HOLES, Ledger, Story};
use crate::ops::{Farewell, INDEX_NAMES, IndexReading, Mix, Op, Purpose, Reading, draw_run};
use crate::parallel::survive;
use crate::random::{Random, seed_of};
use crate::readback::{
    expect_all_histories_ok, expect_check_ok, expect_pasts, expect_state_ok, millis_of, now_of,
};
use crate::sample::ValueSizes;
use crate::session::{Session, SharedTimeline, Trouble, expect_key, index_name};
use crate::setup::Setup;
use crate::shrink::{keep_argument, pick, shrink};
use crate::timeline::{Catalog, IndexState, Indexes, Rows, Timeline, rows_at};

use compare::{View, compare};

/// Count of operations, in the ledger.
pub const OPERATIONS: &str = "operations";
/// Snapshots that are held at most.
const SNAPSHOTS_MAX: usize = 6;
/// So often it is tried at most whether a failing run fails with fewer operations: some are slow.
const TRIES_MAX: usize = 600;
/// Of so many checks, one looks at as many histories as are looked at elsewhere; the others at few
/// that are drawn, as from one check to the next not much happens. At the end all are looked at.
const SPREAD_ONCE_IN: u64 = 8;

/// A run against the model.
#[derive(Clone, Debug)]
pub struct ModelRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: usize,
    /// Which.
    pub diet: Diet,
    /// The structure of all keyspaces, if it is to be one.
    pub structure: Option<Structure>,
    /// The numbers of the operations that are left, if it was cut down.
    pub kept: Option<Vec<usize>>,
}

impl ModelRun {
    /// The run of a seed, with so many operations of every kind.
    #[must_use]
    pub fn new(seed: u64, op_count: usize) -> ModelRun {
        ModelRun { seed, op_count, diet: Diet::Everything, structure: None, kept: None }
    }

    /// How the database is opened.
    #[must_use]
    pub fn setup(&self) -> Setup {
        let setup = Setup::numbered(self.seed % 64);
        self.diet.setup(match self.structure {
            Some(structure) => setup.all_of(structure),
            None => setup,
        })
    }

    /// What it does.
    #[must_use]
    pub fn ops(&self) -> Vec<Op> {
        pick(&self.drawn(), self.kept.as_deref())
    }

    /// What it would do if nothing were left out.
    fn drawn(&self) -> Vec<Op> {
        let mut random = Random::new(seed_of(&[self.seed, 2]));
        let key_count = random.pick(&[20, 160, 160, 700]);
        let mix = Mix { key_count, sizes: ValueSizes::Mixed, purpose: Purpose::Comparing };
        self.diet.draw(&mut random, mix, self.op_count)
    }

    /// What the program is to be called with for this run.
    #[must_use]
    pub fn command(&self) -> String {
        let ModelRun { seed, op_count, .. } = self;
        let structure = self.structure.map(Structure::to_u8);
        let structure = structure.map(|number| format!(" --structure {number}"));
        let (structure, diet) = (structure.unwrap_or_default(), self.diet.argument());
        let keep = keep_argument(self.kept.as_deref());
        format!("model --run {seed:#x} --operations {op_count}{structure}{diet}{keep}")
    }

    /// Runs it; a failure is noted, and then cut down.
    pub fn run(&self, ledger: &Arc<Ledger>) {
        let (setup, ops) = (self.setup(), self.ops());
        let tried = self.try_ops(&setup, &ops, ledger);
        ledger.count_many(OPERATIONS, ops.len() as u64);
        ledger.count("runs");
        if let Err(finding) = tried {
            ledger.note(finding.clone(), || self.command());
            self.cut_down(&setup, finding, ledger);
        }
    }

    /// Finds fewer operations that go wrong in the same way.
    fn cut_down(&self, setup: &Setup, finding: Finding, ledger: &Ledger) {
        let drawn = self.drawn();
        let numbers = self.kept.clone().unwrap_or_else(|| (0..drawn.len()).collect());
        let (len_before, uncounted) = (numbers.len(), Ledger::new());
        let (numbers, finding) = shrink(numbers, finding, TRIES_MAX, |numbers| {
            self.try_ops(setup, &pick(&drawn, Some(numbers)), &uncounted)
        });
        if numbers.len() == len_before {
            return;
        }
        let ops = pick(&drawn, Some(&numbers));
        let finding = finding.at(&format!("{ops:?} with {setup:?}"));
        let repeat = ModelRun { kept: Some(numbers), ..self.clone() }.command();
        ledger.note_smaller(&Story { finding, repeat });
    }

    /// Runs it with this setup, as far as it goes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn run_once(&self, setup: &Setup, ledger: &Ledger) -> Verdict {
        self.try_ops(setup, &self.ops(), ledger)
    }

    fn try_ops(&self, setup: &Setup, ops: &[Op], ledger: &Ledger) -> Verdict {
        let setup = &setup.forked(0); // Each time the same is drawn.
        survive(|| {
            let sim = SimStorage::new(self.seed);
            if self.seed.is_multiple_of(4) {
                return run_ops(setup, Arc::new(MemoryStorage::new()), ops);
            }
            run_ops(setup, Arc::new(sim.clone()), ops)?;
            ledger.count_many(HOLES, sim.count_of(Operation::PunchHole));
            expect_no_misuse(&sim)?;
            let open_files = sim.open_files();
            let Some((path, count)) = open_files.first() else { return Ok(()) };
            let what = format!("{} is open {count} times after close", path.display());
            Err(Finding::new(Fault::Misuse, what))
        })
    }
}

/// Runs operations on a new database in `storage` and compares all the way.
///
/// # Errors
/// The first thing that is wrong.
pub fn run_ops(setup: &Setup, storage: Arc<dyn Storage>, ops: &[Op]) -> Verdict {
    let mut run = Run::start(setup, storage)?;
    for (number, op) in ops.iter().enumerate() {
        let done = run.run(op);
        done.map_err(|finding| finding.at(&format!("operation {number}, {op:?}")))?;
    }
    run.seen.clear(); // All checkpoints are read once more.
    run.compare_everything()?;
    expect_all_histories_ok(&run.session.db)?;
    run.expect_checkpoints(&mut Random::new(ops.len() as u64))?;
    run.reopen(Farewell::Close).map_err(|finding| finding.at("the last close"))
}

/// Runs the operations that these bytes describe on a new database in memory: the stateful target
/// of fuzzing.
///
/// # Errors
/// The first thing that is wrong.
pub fn run_bytes(bytes: &[u8]) -> Verdict {
    let mut random = Random::from_bytes(bytes);
    let setup = Setup::numbered(random.below(16));
    let mix = Mix { key_count: 80, sizes: ValueSizes::Mixed, purpose: Purpose::Comparing };
    let ops = draw_run(&mut random, mix, bytes.len());
    run_ops(&setup, Arc::new(MemoryStorage::new()), &ops)
}

/// A snapshot that is held, and what it must go on showing.
struct Held {
    snapshot: Snapshot,
    keyspaces: Vec<(Keyspace, Arc<Rows>)>,
    /// The indexes that there were, with the place of their keyspace in that list.
    indexes: Vec<(usize, Index, IndexState)>,
}

struct Run {
    setup: Setup,
    storage: Arc<dyn Storage>,
    session: Session,
    held: Vec<Held>,
    /// How checkpoints were left when they were read last, by path.
    seen: BTreeMap<PathBuf, Seen>,
    opened_count: u64,
}

impl Run {
    fn start(setup: &Setup, storage: Arc<dyn Storage>) -> Verdict<Run> {
        let session = open(setup, &storage, 0)?;
        let (setup, held, seen) = (setup.clone(), Vec::new(), BTreeMap::new());
        Ok(Run { setup, storage, session, held, seen, opened_count: 1 })
    }

    fn run(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Read(reading) => self.read(reading),
            Op::TakeSnapshot => self.take_snapshot(),
            Op::ReadSnapshot(which, reading) => self.read_snapshot(*which, reading),
            Op::DropSnapshot(which) => {
                let Some(index) = usize::from(*which).checked_rem(self.held.len()) else {
                    return Ok(());
                };
                expect_unmoved(&self.held.swap_remove(index))
            }
            Op::Check => {
                self.expect_sound()?;
                let timeline = self.session.timeline();
                let mut random = Random::new(timeline.acknowledged());
                let last = timeline.acknowledged();
                expect_pasts(&self.session.db, &timeline, last, &mut random)?;
                drop(timeline);
                self.expect_checkpoints(&mut random)?;
                self.compare_everything()
            }
            Op::Reopen(farewell) => self.reopen(*farewell),
            op => self.session.run(op).map_err(Trouble::into_finding),
        }
    }

    /// The database's own check finds nothing.
    fn expect_sound(&self) -> Verdict {
        let acknowledged = self.session.timeline().acknowledged();
        let mut random = Random::new(seed_of(&[self.opened_count, acknowledged]));
        match random.below(SPREAD_ONCE_IN) {
            0 => expect_check_ok(&self.session.db),
            _ => expect_state_ok(&self.session.db, &random),
        }
    }

    fn read(&self, reading: &Reading) -> Verdict {
        let Some(keyspace) = self.session.keyspace(slot_of(reading)) else { return Ok(()) };
        let rows = self.session.timeline().rows(keyspace.id());
        let rows = rows_at(&rows, now_of(&self.session.db));
        match reading {
            Reading::Index(_, which, reading) => self.read_index(&keyspace, &rows, *which, reading),
            reading => compare(&View::Now(&keyspace), &rows, reading),
        }
    }

    /// Reads an index; one that is not ready says so.
    fn read_index(
        &self,
        keyspace: &Keyspace,
        rows: &Rows,
        which: u8,
        reading: &IndexReading,
    ) -> Verdict {
        let name = index_name(which);
        let state = self.session.timeline().indexes().get(&(keyspace.id(), name.into())).cloned();
        let (index, state) = match (keyspace.index(name), state) {
            (Err(Error::IndexNotFound { .. }), None) => return Ok(()),
            (Ok(index), Some(state)) => (index, state),
            (index, state) => {
                return Err(wrong(format!("{name:?} is {index:?}, and should be {state:?}")));
            }
        };
        match index.view() {
            Err(Error::IndexNotReady { .. }) if !state.is_ready => return Ok(()),
            Ok(_) if state.is_ready => {}
            other => return Err(wrong(format!("{name:?} is {state:?}: {other:?}"))),
        }
        let compared = compare_index(&index, (rows, &state.extractor), reading);
        compared.map_err(Trouble::into_finding)
    }

    fn take_snapshot(&mut self) -> Verdict {
        if self.held.len() >= SNAPSHOTS_MAX {
            return Ok(());
        }
        let snapshot = self.session.db.snapshot();
        let timeline = self.session.timeline();
        let keyspaces = self.session.keyspaces.iter();
        let now = millis_of(snapshot.time());
        let rows_of = |keyspace: &Keyspace| Arc::new(rows_at(&timeline.rows(keyspace.id()), now));
        let keyspaces = keyspaces.map(|(_, keyspace)| (keyspace.clone(), rows_of(keyspace)));
        let keyspaces: Vec<(Keyspace, Arc<Rows>)> = keyspaces.collect();
        let mut indexes = Vec::new();
        for (place, (keyspace, _)) in keyspaces.iter().enumerate() {
            for (name, state) in timeline.indexes_of(keyspace.id()) {
                let index = keyspace.index(name);
                let index = index.map_err(|error| wrong(format!("{name:?}: {error}")))?;
                indexes.push((place, index, state.clone()));
            }
        }
        drop(timeline);
        self.held.push(Held { snapshot, keyspaces, indexes });
        Ok(())
    }

    fn read_snapshot(&self, which: u8, reading: &Reading) -> Verdict {
        let Some(index) = usize::from(which).checked_rem(self.held.len()) else { return Ok(()) };
        let held = &self.held[index];
        let slot = usize::from(slot_of(reading));
        let Some(slot) = slot.checked_rem(held.keyspaces.len()) else { return Ok(()) };
        let (keyspace, rows) = &held.keyspaces[slot];
        match reading {
            Reading::Index(_, which, reading) => held.read_index((slot, rows), *which, reading),
            reading => compare(&View::Then(&held.snapshot, keyspace), rows, reading),
        }
    }

    /// Leaves and opens again: everything must be as it was.
    fn reopen(&mut self, farewell: Farewell) -> Verdict {
        let (catalog, indexes, before) = self.contents();
        if farewell == Farewell::Close {
            let closed = self.session.close();
            closed.map_err(|error| Finding::new(Fault::Refused, format!("close: {error}")))?;
            self.expect_closed()?;
            // What was read before can be read on.
            for held in self.held.drain(..) {
                expect_unmoved(&held)?;
            }
        }
        self.held.clear();
        let mut checkpoints = std::mem::take(&mut self.session.timeline().checkpoints);
        checkpoints.iter_mut().for_each(|checkpoint| checkpoint.commit = None);
        let keys = self.session.timeline().keys.clone();
        self.session.keyspaces.clear();
        // The handle in here is the last one, and closes; it must be gone before the next opening.
        let nowhere: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        self.session = open(&Setup::tiny(1), &nowhere, 0)?;
        self.session = open(&self.setup, &self.storage, self.opened_count)?;
        self.opened_count += 1;
        self.session.timeline().checkpoints = checkpoints;
        let mut known = Timeline::new();
        known.keys = keys;
        expect_key(&self.setup, &self.storage, &known)?;
        self.session.timeline().keys = known.keys;
        let now = now_of(&self.session.db);
        let there = |(id, rows): (u32, Arc<Rows>)| (id, Arc::new(rows_at(&rows, now)));
        let before = before.into_iter().map(there).collect();
        if (catalog, indexes, before) == self.contents() {
            return Ok(());
        }
        let what =
            format!("reopened after {farewell:?}: other keyspaces, indexes or rows than before");
        Err(Finding::new(Fault::Lost, what))
    }

    fn contents(&self) -> (Catalog, Indexes, BTreeMap<u32, Arc<Rows>>) {
        let timeline = self.session.timeline();
        let (catalog, indexes) = (timeline.catalog().clone(), timeline.indexes().clone());
        let ids = catalog.values().flatten();
        let rows = ids.map(|id| (*id, timeline.rows(*id))).collect();
        (catalog, indexes, rows)
    }

    /// Every call on what was closed says so; closing again does nothing.
    fn expect_closed(&self) -> Verdict {
        let db = &self.session.db;
        let refusals = [
            db.sync().err(),
            db.flush().err(),
            db.keyspace("alpha").err(),
            self.session.keyspaces.first().and_then(|(_, keyspace)| keyspace.get("k").err()),
        ];
        let open = refusals.iter().flatten().find(|error| !matches!(error, Error::Closed));
        if let Some(error) = open {
            return Err(Finding::new(Fault::Wrong, format!("after close: {error}")));
        }
        db.close()
            .map(drop)
            .map_err(|error| Finding::new(Fault::Wrong, format!("closing again: {error}")))
    }

    /// Looks at all checkpoints; one that is written to is removed behind that.
    fn expect_checkpoints(&mut self, random: &mut Random) -> Verdict {
        let timeline = self.session.timeline().clone();
        let mut left = Vec::new();
        for checkpoint in &timeline.checkpoints {
            let how = if random.chance(300) { Use::WrittenTo } else { Use::Read };
            let (place, seen) = ((&self.setup, &self.storage), self.seen.remove(&checkpoint.path));
            let seen =
                checkpoint.expect_still_ok(place, &timeline, (how, random), seen.as_ref())?;
            match how {
                Use::Read => {
                    self.seen.extend(seen.map(|seen| (checkpoint.path.clone(), seen)));
                    left.push(checkpoint.clone());
                }
                Use::WrittenTo => checkpoints::remove_durably(&*self.storage, &checkpoint.path)?,
            }
        }
        self.session.timeline().checkpoints = left;
        Ok(())
    }

    fn compare_everything(&mut self) -> Verdict {
        self.compare_beside().map_err(|finding| finding.at("beside the database"))?;
        for (_, keyspace) in &self.session.keyspaces {
            let rows = self.session.timeline().rows(keyspace.id());
            let rows = rows_at(&rows, now_of(&self.session.db));
            compare::compare_all(&View::Now(keyspace), &rows)?;
            let everything = IndexReading::Values;
            for which in 0..INDEX_NAMES.len() as u8 {
                self.read_index(keyspace, &rows, which, &everything)?;
            }
        }
        let found = indexes_of(&self.session.db).map_err(|error| wrong(error.to_string()))?;
        let timeline = self.session.timeline();
        if found != *timeline.indexes() {
            return Err(wrong(format!("indexes {found:?}, not {:?}", timeline.indexes())));
        }
        Ok(())
    }

    /// K3: the checkpoint that is open beside the database, and those that were made of it.
    fn compare_beside(&mut self) -> Verdict {
        let Some(beside) = self.session.beside() else { return Ok(()) };
        for (_, keyspace) in &beside.keyspaces {
            let rows = beside.timeline().rows(keyspace.id());
            compare::compare_all(&View::Now(keyspace), &rows_at(&rows, now_of(&beside.db)))?;
        }
        expect_check_ok(&beside.db)?;
        let timeline = beside.timeline().clone();
        let mut random = Random::new(timeline.acknowledged());
        expect_pasts(&beside.db, &timeline, timeline.acknowledged(), &mut random)?;
        for checkpoint in &timeline.checkpoints {
            let (place, how) = ((&self.setup, &self.storage), (Use::Read, &mut random));
            let seen = self.seen.remove(&checkpoint.path);
            let seen = checkpoint.expect_still_ok(place, &timeline, how, seen.as_ref())?;
            self.seen.extend(seen.map(|seen| (checkpoint.path.clone(), seen)));
        }
        Ok(())
    }
}

impl Held {
    /// Reads an index as it was then, be it dropped or built anew since.
    fn read_index(
        &self,
        (place, rows): (usize, &Rows),
        which: u8,
        reading: &IndexReading,
    ) -> Verdict {
        let name = index_name(which);
        let mut held = self.indexes.iter();
        let held = held.find(|(of, index, _)| *of == place && index.name() == name);
        let Some((_, index, state)) = held else {
            // It may be there by now; then it was not.
            let (keyspace, _) = &self.keyspaces[place];
            return match keyspace.index(name).map(|index| index.at(&self.snapshot)) {
                Ok(Err(Error::IndexNotFound { .. })) => Ok(()),
                Err(Error::IndexNotFound { .. } | Error::KeyspaceNotFound { .. }) => Ok(()),
                other => Err(wrong(format!("{name:?}, which was not there: {other:?}"))),
            };
        };
        match index.at(&self.snapshot) {
            Err(Error::IndexNotReady { .. }) if !state.is_ready => Ok(()),
            Ok(view) if state.is_ready => {
                let compared = compare_index(&view, (rows, &state.extractor), reading);
                compared.map_err(Trouble::into_finding)
            }
            other => Err(wrong(format!("{name:?} was {state:?}, and is {other:?}"))),
        }
    }

    /// All indexes show what they did.
    fn expect_indexes_unmoved(&self) -> Verdict {
        for (place, index, state) in self.indexes.iter().filter(|(.., state)| state.is_ready) {
            let view = index.at(&self.snapshot);
            let view = view.map_err(|error| wrong(format!("{:?}: {error}", index.name())))?;
            let (_, rows) = &self.keyspaces[*place];
            expect_shows(&view, (rows, &state.extractor)).map_err(Trouble::into_finding)?;
        }
        Ok(())
    }
}

fn wrong(what: String) -> Finding {
    Finding::new(Fault::Wrong, what)
}

fn open(setup: &Setup, storage: &Arc<dyn Storage>, nth: u64) -> Verdict<Session> {
    Session::open(setup, Arc::clone(storage), nth, SharedTimeline::default())
        .map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))
}

fn expect_unmoved(held: &Held) -> Verdict {
    for (keyspace, rows) in &held.keyspaces {
        compare::compare_all(&View::Then(&held.snapshot, keyspace), rows)
            .map_err(|finding| finding.at("a held snapshot"))?;
    }
    held.expect_indexes_unmoved().map_err(|finding| finding.at("a held snapshot"))
}

fn slot_of(reading: &Reading) -> u8 {
    match reading {
        Reading::Point(slot, _)
        | Reading::Parts(slot, ..)
        | Reading::Several(slot, _)
        | Reading::Ends(slot)
        | Reading::Order(slot, ..)
        | Reading::Walk(slot, ..)
        | Reading::Cursor(slot, ..)
        | Reading::Index(slot, ..) => *slot,
    }
}
