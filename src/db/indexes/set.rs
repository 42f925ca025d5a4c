//! Which indexes a keyspace has at one moment: part of its state, so that a snapshot reads those,
//! and as far as they were built, that there were at its moment.

use crate::base::sync::thread::ThreadId;
use crate::base::sync::{Arc, Condvar, Mutex, PoisonError};
use crate::base::{Error, Result};
use crate::db::core::lock;
use crate::db::state::{KeyspaceState, Runtime, Seat, State};
use crate::extractor::{Extraction, Extractors};
use crate::manifest::IndexRecord;

/// What the names of keyspaces begin with that indexes are kept in, and no others.
const NAME_START: &str = "\0index ";

/// The name of the keyspace with this number, which an index is kept in.
pub(super) fn index_keyspace_name(id: u32) -> String {
    format!("{NAME_START}#{id}")
}

/// Whether this is the name of a keyspace that an index is kept in.
pub(in crate::db) fn is_index_name(name: &str) -> bool {
    name.starts_with(NAME_START)
}

/// The indexes of a keyspace.
#[derive(Debug)]
pub(in crate::db) struct IndexSet {
    /// Commits that have passed no later gate than one below this have not seen them.
    pub since: u64,
    pub indexes: Vec<Arc<IndexOf>>,
}

/// An index of a keyspace.
#[derive(Debug)]
pub(in crate::db) struct IndexOf {
    pub name: Arc<str>,
    /// The keyspace that it is kept in.
    pub runtime: Arc<Runtime>,
    /// The same, for handles.
    pub seat: Arc<Seat>,
    pub extraction: Extraction,
    pub is_unique: bool,
    pub stage: Stage,
    pub turn: Arc<BuildTurn>,
}

/// Who builds an index: one thread at a time (N5).
#[derive(Debug, Default)]
pub(in crate::db) struct BuildTurn {
    builder: Mutex<Option<ThreadId>>,
    /// Signalled when nobody does any more.
    free: Condvar,
}

/// The right to build an index, until it is dropped.
#[derive(Debug)]
pub(in crate::db) struct Building<'a>(&'a BuildTurn);

impl BuildTurn {
    /// Waits for another thread that builds the index.
    ///
    /// # Errors
    /// `InvalidArgument` when it is this thread that does.
    pub fn take(&self) -> Result<Building<'_>> {
        let own = crate::base::sync::thread::current().id();
        let mut builder = lock(&self.builder);
        while let Some(other) = *builder {
            if other == own {
                return Err(Error::invalid("this thread is at building the index"));
            }
            builder = self.free.wait(builder).unwrap_or_else(PoisonError::into_inner);
        }
        *builder = Some(own);
        Ok(Building(self))
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        *lock(&self.0.builder) = None;
        self.0.free.notify_all();
    }
}

/// Whether an index can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum Stage {
    /// It has what was written since it is there, and what the build has come to.
    Building,
    /// It has all entries.
    Ready,
}

impl IndexSet {
    /// The index of this name: the one that is ready, else the one that is built.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<IndexOf>> {
        self.at_stage(name, Stage::Ready).or_else(|| self.at_stage(name, Stage::Building))
    }

    /// The index of this name that is at this stage.
    pub(super) fn at_stage(&self, name: &str, stage: Stage) -> Option<&Arc<IndexOf>> {
        self.indexes.iter().find(|index| &*index.name == name && index.stage == stage)
    }
}

impl IndexOf {
    pub(super) fn new(
        record: &IndexRecord,
        runtime: Arc<Runtime>,
        extractors: &Extractors,
    ) -> IndexOf {
        IndexOf {
            name: Arc::from(record.name.as_str()),
            seat: Arc::new(Seat::new(Arc::clone(&runtime))),
            runtime,
            extraction: Extraction::new(&record.extractor, extractors),
            is_unique: record.is_unique,
            stage: if record.is_ready { Stage::Ready } else { Stage::Building },
            turn: Arc::default(),
        }
    }

    /// The same, ready.
    pub(super) fn finished(&self) -> IndexOf {
        IndexOf {
            name: Arc::clone(&self.name),
            runtime: Arc::clone(&self.runtime),
            seat: Arc::clone(&self.seat),
            extraction: self.extraction.clone(),
            is_unique: self.is_unique,
            stage: Stage::Ready,
            turn: Arc::clone(&self.turn),
        }
    }
}

impl State {
    /// With other indexes of a keyspace, which commits see that pass `gate`.
    pub(super) fn with_indexes(
        &self,
        keyspace: u32,
        gate: u64,
        indexes: Vec<Arc<IndexOf>>,
    ) -> State {
        let Some(found) = self.find(keyspace) else { return self.clone() };
        // A set that is empty stays: who does not know yet that there is none has to look again.
        let indexes = Some(Arc::new(IndexSet { since: gate, indexes }));
        self.with(KeyspaceState { indexes, ..KeyspaceState::clone(found) })
    }

    /// With the indexes that the options of keyspaces say there are.
    pub(in crate::db) fn with_indexes_of_runtimes(self, extractors: &Extractors) -> State {
        let kept_in = |keyspace: &Arc<KeyspaceState>| {
            let record = keyspace.runtime.options.index.as_deref().cloned()?;
            Some((record, Arc::clone(&keyspace.runtime)))
        };
        let all: Vec<_> = self.keyspaces.iter().filter_map(kept_in).collect();
        all.into_iter().fold(self, |state, (record, runtime)| {
            let mut indexes = state.indexes_of(record.of).to_vec();
            indexes.push(Arc::new(IndexOf::new(&record, runtime, extractors)));
            state.with_indexes(record.of, 0, indexes)
        })
    }

    /// The indexes of a keyspace.
    pub(super) fn indexes_of(&self, keyspace: u32) -> &[Arc<IndexOf>] {
        let set = self.find(keyspace).and_then(|found| found.indexes.as_ref());
        set.map_or(&[], |set| &set.indexes)
    }
}
