//! Filling an index with what its keyspace has, beside writers.
//!
//! A build goes through the keyspace by steps, each a transaction: it reads some entries, puts
//! their index entries, and notes in the index how far it is. Writers know of the index from before
//! its first step (N1). If one of them comes in between, the step conflicts and is done again; if
//! one comes behind it, it finds what the step has put. So the index has nothing that is not so, at
//! any time (N2), and a build that was interrupted, also by a crash, goes on from where it was.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::catalog::Beside;
use super::set::{IndexOf, Stage};
use super::{Index, IndexOptions};
use crate::base::{Error, KeyRange, Lifetime, Result, Slice, index_key, successor};
use crate::db::batch::WriteBatch;
use crate::db::core::Core;
use crate::db::keyspace::Keyspace;
use crate::db::options::Durability;
use crate::db::transaction::{Transaction, checked};

/// Entries that a step reads at most, unless the builder of the database says another number;
/// fewer after a conflict.
const STEP_ENTRIES_MAX: usize = 1024;
/// Bytes of keys and values after which a step reads no more.
const STEP_BYTES_MAX: usize = 1 << 20;

/// How far a build of an index is, or what it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexBuildReport {
    /// Entries of the keyspace that were read for it.
    pub entries_read: u64,
    /// Entries that were put into the index.
    pub entries_put: u64,
    /// Entries of the keyspace that are still to be read, about.
    pub entries_left: u64,
    /// Steps that were done.
    pub steps: u64,
    /// Whether it was ended by the closure.
    pub is_cancelled: bool,
}

type GoOn<'a> = &'a mut dyn FnMut(&IndexBuildReport) -> ControlFlow<()>;

/// Where building an index begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// There is nothing of it. Should it end before the index is ready, that is dropped.
    New,
    /// Where it was interrupted.
    WhereItWas,
    /// At the front, whatever there is.
    Again,
}

impl Keyspace {
    /// Creates an index of the keyspace, with the extractor of this name
    /// ([`crate::Builder::index_extractor`]), and fills it with what the keyspace has. On return it
    /// is ready, durably. Others may read and write meanwhile, and what they write is in it.
    ///
    /// From when it is begun on, each write to the keyspace reads what its key had before, and is
    /// one commit with what that changes of the index: some times as much work as without. A
    /// deletion of a range reads what is in it, except of everything. Bulk ingests into the
    /// keyspace are refused, as they bypass all this.
    ///
    /// Costs a walk through the keyspace, and writing the index. After a crash in between the index
    /// is there, not ready, kept up by writers, and to be gone on with by
    /// [`Keyspace::build_index`].
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, Error, IndexOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let users = db.keyspace_or_create("users")?;
    /// users.put("1", "ada@example.org,Ada")?;
    /// let by_email = users.create_index("by_email", "field:,:1", IndexOptions::new().unique())?;
    /// let ada = by_email.find("ada@example.org")?.expect("she is there");
    /// assert_eq!(ada.primary_key(), b"1");
    /// let twice = users.put("2", "ada@example.org,Another");
    /// assert!(matches!(twice, Err(Error::UniqueViolation { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `IndexExists`, `ExtractorMissing`; `InvalidArgument` for a name of no or more than 255
    /// bytes; `ExtractorFailed`, `UniqueViolation` for what the keyspace has; `KeyspaceNotFound`,
    /// `DiskFull`, `Corruption`: there is no index then. `Io`, `ReadOnly`, `Closed`, also where
    /// that comes of dropping it again: there is one that is not ready, perhaps.
    pub fn create_index(
        &self,
        name: &str,
        extractor: &str,
        options: IndexOptions,
    ) -> Result<Index> {
        self.create_index_while(name, extractor, options, |_| ControlFlow::Continue(()))?;
        Ok(Index::new(self, name))
    }

    /// As [`Keyspace::create_index`]; asks `go_on` after each step, of up to 1024 entries, whether
    /// to go on. When it says no, or panics, the index is dropped.
    ///
    /// # Errors
    /// As [`Keyspace::create_index`].
    pub fn create_index_while(
        &self,
        name: &str,
        extractor: &str,
        options: IndexOptions,
        mut go_on: impl FnMut(&IndexBuildReport) -> ControlFlow<()>,
    ) -> Result<IndexBuildReport> {
        let index = self.begin_index(name, extractor, options, Beside::None)?;
        self.build(&index, Beginning::New, &mut go_on)
    }

    /// The index of this name; created if there is none, built on if it is not ready. What an
    /// application calls when it has opened its database.
    ///
    /// # Errors
    /// As [`Keyspace::create_index`]; `InvalidArgument` when the index has another extractor or
    /// other options.
    pub fn index_or_create(
        &self,
        name: &str,
        extractor: &str,
        options: IndexOptions,
    ) -> Result<Index> {
        loop {
            let info = match Index::new(self, name).info() {
                Ok(info) => info,
                Err(Error::IndexNotFound { .. }) => {
                    match self.create_index(name, extractor, options) {
                        Err(Error::IndexExists { .. }) => continue, // Another was faster.
                        created => return created,
                    }
                }
                Err(error) => return Err(error),
            };
            if info.extractor != extractor || info.is_unique != options.is_unique {
                let what = format!("the index {name:?} is there with another extractor or options");
                return Err(Error::invalid(what));
            }
            if info.is_ready {
                return Ok(Index::new(self, name));
            }
            match self.build_index(name) {
                // Another was at creating it, and has taken it back.
                Err(Error::IndexNotFound { .. }) => {}
                built => return built.map(|_| Index::new(self, name)),
            }
        }
    }

    /// Goes on with building an index where that was interrupted: by a crash, or by the closure of
    /// [`Keyspace::build_index_while`]. Nothing is left to be done for one that is ready and not
    /// being built anew.
    ///
    /// # Errors
    /// As [`Keyspace::create_index`]; `IndexNotFound`. What was built stays.
    pub fn build_index(&self, name: &str) -> Result<IndexBuildReport> {
        self.build_index_while(name, |_| ControlFlow::Continue(()))
    }

    /// As [`Keyspace::build_index`]; asks `go_on` after each step whether to go on. When it says
    /// no, what was built stays, to be gone on with.
    ///
    /// # Errors
    /// As [`Keyspace::build_index`].
    pub fn build_index_while(
        &self,
        name: &str,
        mut go_on: impl FnMut(&IndexBuildReport) -> ControlFlow<()>,
    ) -> Result<IndexBuildReport> {
        self.index(name)?;
        match self.at_stage(name, Stage::Building) {
            Some(index) => self.build(&index, Beginning::WhereItWas, &mut go_on),
            None => Ok(IndexBuildReport::default()),
        }
    }

    /// Builds an index anew: for when its extractor has changed, or a check has found it wrong. It
    /// is read as it was until the new one is ready, which takes its place at once, durably. One
    /// that was begun before and interrupted is begun again.
    ///
    /// # Errors
    /// As [`Keyspace::create_index`]; `IndexNotFound`. The index is as it was.
    pub fn rebuild_index(&self, name: &str) -> Result<IndexBuildReport> {
        self.rebuild_index_while(name, |_| ControlFlow::Continue(()))
    }

    /// As [`Keyspace::rebuild_index`]; asks `go_on` after each step whether to go on. When it says
    /// no, or panics, the index is as it was.
    ///
    /// # Errors
    /// As [`Keyspace::rebuild_index`].
    pub fn rebuild_index_while(
        &self,
        name: &str,
        mut go_on: impl FnMut(&IndexBuildReport) -> ControlFlow<()>,
    ) -> Result<IndexBuildReport> {
        let info = self.index(name)?.info()?;
        if info.is_ready {
            // What was begun before may have been with another extractor.
            let core = self.core();
            core.drop_indexes(&self.runtime(), |index| {
                *index.name == *name && index.stage == Stage::Building
            })?;
            let options = IndexOptions { is_unique: info.is_unique };
            let index = self.begin_index(name, &info.extractor, options, Beside::Ready)?;
            return self.build(&index, Beginning::New, &mut go_on);
        }
        let missing = || Error::IndexNotFound { name: name.to_owned() };
        let index = self.at_stage(name, Stage::Building).ok_or_else(missing)?;
        self.build(&index, Beginning::Again, &mut go_on)
    }

    /// The index of this name that is at this stage now.
    fn at_stage(&self, name: &str, stage: Stage) -> Option<Arc<IndexOf>> {
        let state = self.core().published.state();
        state.find(self.id())?.index_set()?.at_stage(name, stage).cloned()
    }

    /// How far the index is that is kept in this keyspace, if it is there.
    fn stage_of(&self, id: u32) -> Option<Stage> {
        let state = self.core().published.state();
        let mut indexes = state.indexes_of(self.id()).iter();
        indexes.find(|index| index.runtime.id == id).map(|index| index.stage)
    }

    fn build(
        &self,
        index: &Arc<IndexOf>,
        beginning: Beginning,
        go_on: GoOn<'_>,
    ) -> Result<IndexBuildReport> {
        let _turn = index.turn.take()?; // N5
        let id = index.runtime.id;
        match self.stage_of(id) {
            Some(Stage::Ready) => return Ok(IndexBuildReport::default()), // Another was faster.
            Some(Stage::Building) => {}
            None => return Err(Error::IndexNotFound { name: index.name.to_string() }),
        }
        if beginning == Beginning::Again {
            self.begin_again(index)?;
        }
        let unfinished = (beginning == Beginning::New).then(|| Unfinished::new(self, id));
        let built = self.build_to_end(index, go_on);
        let Some(unfinished) = unfinished else { return built };
        if built.as_ref().is_ok_and(|report| !report.is_cancelled) {
            unfinished.keep();
            return built;
        }
        // What came first is told, if it says that the index may be there.
        match (&built, unfinished.take_back()) {
            (_, Ok(())) | (Err(Error::Io { .. } | Error::ReadOnly { .. } | Error::Closed), _) => {
                built
            }
            (_, Err(error)) => Err(error),
        }
    }

    fn build_to_end(&self, index: &Arc<IndexOf>, go_on: GoOn<'_>) -> Result<IndexBuildReport> {
        let kept_in = Keyspace::of_index(Arc::clone(self.handle()), index);
        index.extraction.check()?;
        let from = kept_in.get(index_key::PROGRESS)?.unwrap_or_default();
        // When this is visible, so is each commit that has not seen the index.
        let mut begun = WriteBatch::new();
        begun.put(&kept_in, index_key::PROGRESS, &from);
        self.core().commit(begun, Durability::Buffered).map_err(|error| match error {
            Error::Conflict => Error::IndexNotFound { name: index.name.to_string() },
            other => other,
        })?;
        let mut build = Build {
            keyspace: self,
            kept_in,
            index,
            last: self.iter().keys().next_back().transpose()?,
            step_entries: self.core().index_step_entries_max(),
            report: IndexBuildReport::default(),
        };
        build.report.entries_left = self.count(from..)?;
        while build.step()? == Progress::GoesOn {
            if go_on(&build.report).is_break() {
                return Ok(IndexBuildReport { is_cancelled: true, ..build.report });
            }
        }
        self.core().sync()?; // N3
        self.core().finish_index(&self.runtime(), index)?;
        Ok(IndexBuildReport { entries_left: 0, ..build.report })
    }

    /// Empties an index that is not ready, and has its build begin at the front.
    fn begin_again(&self, index: &Arc<IndexOf>) -> Result<()> {
        let kept_in = Keyspace::of_index(Arc::clone(self.handle()), index);
        match kept_in.clear() {
            Err(Error::KeyspaceNotFound { .. }) => {
                Err(Error::IndexNotFound { name: index.name.to_string() })
            }
            cleared => cleared.map(drop),
        }
    }
}

impl Core {
    fn index_step_entries_max(&self) -> usize {
        self.index_step_entries.unwrap_or(STEP_ENTRIES_MAX).max(1)
    }
}

/// An index that is not to be there unless it becomes ready (N6): dropped with this, which a
/// closure that panics does as well. The caller has the turn to build it.
struct Unfinished<'a> {
    keyspace: &'a Keyspace,
    id: u32,
    is_over: bool,
}

impl Unfinished<'_> {
    fn new(keyspace: &Keyspace, id: u32) -> Unfinished<'_> {
        Unfinished { keyspace, id, is_over: false }
    }

    /// It is ready.
    fn keep(mut self) {
        self.is_over = true;
    }

    /// Drops it, and says how that went.
    fn take_back(mut self) -> Result<()> {
        self.is_over = true;
        self.drop_index()
    }

    fn drop_index(&self) -> Result<()> {
        let Unfinished { keyspace, id, .. } = *self;
        keyspace.core().drop_indexes(&keyspace.runtime(), |other| other.runtime.id == id)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let _it_is_there_not_ready_then = self.drop_index();
        }
    }
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    GoesOn,
    Over,
}

/// A build that is under way.
struct Build<'a> {
    keyspace: &'a Keyspace,
    kept_in: Keyspace,
    index: &'a Arc<IndexOf>,
    /// The last key that there was when the build began: what is behind it is kept by writers (N1),
    /// and does not come in between steps.
    last: Option<Slice>,
    /// Entries that the next step reads.
    step_entries: usize,
    report: IndexBuildReport,
}

/// What a step has read.
#[derive(Debug, Default)]
struct Gathered {
    /// Keys of index entries, and how long they are there.
    found: Vec<(Vec<u8>, Lifetime)>,
    entries: usize,
    /// The last key; `None` if all of it was gone through.
    last: Option<Vec<u8>>,
}

impl Build<'_> {
    /// Does a step, however often others come in between.
    fn step(&mut self) -> Result<Progress> {
        let core: &Core = self.keyspace.core();
        let mut conflicts = 0;
        loop {
            match self.try_step() {
                Err(Error::Conflict) => conflicts += 1,
                Ok(progress) => {
                    let most = core.index_step_entries_max();
                    self.step_entries = (self.step_entries * 2).min(most);
                    return Ok(progress);
                }
                Err(error) => return Err(error),
            }
            // What is read in less time is changed less often meanwhile.
            self.step_entries = (self.step_entries / 4).max(1);
            core.make_room_in(&std::iter::once(self.kept_in.id()), 0)?;
            core.back_off(conflicts);
        }
    }

    fn try_step(&mut self) -> Result<Progress> {
        let mut transaction = Transaction::begin(self.keyspace.handle());
        self.check_there(&transaction)?;
        let from = transaction.get(&self.kept_in, index_key::PROGRESS)?;
        let gathered = self.gather(&transaction, from)?;
        for (entry, lifetime) in &gathered.found {
            transaction.write_entry(self.index, entry, Some(*lifetime))?;
        }
        let progress = match &gathered.last {
            Some(last) => {
                transaction.put(&self.kept_in, index_key::PROGRESS, successor(last))?;
                Progress::GoesOn
            }
            None => {
                transaction.delete(&self.kept_in, index_key::PROGRESS)?;
                Progress::Over
            }
        };
        transaction.commit_with(Durability::Buffered)?;
        let (read, put) = (gathered.entries as u64, gathered.found.len() as u64);
        let report = &mut self.report;
        report.entries_read += read;
        report.entries_put += put;
        report.entries_left = report.entries_left.saturating_sub(read);
        report.steps += 1;
        Ok(progress)
    }

    /// Whether the index is there as the transaction sees it, and is being built.
    fn check_there(&self, transaction: &Transaction) -> Result<()> {
        let state = transaction.state_for(self.keyspace)?;
        let id = self.index.runtime.id;
        match state.indexes_of(self.keyspace.id()).iter().find(|index| index.runtime.id == id) {
            Some(index) if index.stage == Stage::Building => Ok(()),
            _ => Err(Error::IndexNotFound { name: self.index.name.to_string() }),
        }
    }

    /// The index entries of the next entries of the keyspace.
    fn gather(&self, transaction: &Transaction, from: Option<Slice>) -> Result<Gathered> {
        let Some(last) = &self.last else { return Ok(Gathered::default()) };
        let start = Bound::Included(from.unwrap_or_default().to_vec());
        let range = KeyRange { start, end: Bound::Included(last.to_vec()) };
        // What has expired by the commit is put so (R5 in `transaction/reads.rs`).
        let mut cursor = transaction.cursor(self.keyspace, range)?.passing_expiries();
        let (mut gathered, mut bytes) = (Gathered::default(), 0);
        cursor.seek_first()?;
        while cursor.valid() {
            let (key, value) = (cursor.key(), cursor.value()?);
            bytes += key.len() + value.len();
            gathered.entries += 1;
            let lifetime = cursor.until().map_or(Lifetime::Forever, Lifetime::Until);
            for index_key in self.index.extraction.keys(key, value)? {
                let entry = checked(self.index, index_key::encode(&index_key, key))?;
                gathered.found.push((entry, lifetime));
            }
            if gathered.entries >= self.step_entries || bytes >= STEP_BYTES_MAX {
                gathered.last = Some(key.to_vec());
                break;
            }
            cursor.next()?;
        }
        Ok(gathered)
    }
}
