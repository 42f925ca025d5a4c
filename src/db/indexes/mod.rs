//! Secondary indexes: entries of a keyspace found by other keys than their own.
//!
//! An index is a hidden keyspace: one entry for each index key of each entry, without a value,
//! whose key is both keys (`base/index_key.rs`). What it has for an entry is what its extractor, a
//! function of the application's, says. A write to a keyspace with indexes becomes a transaction:
//! it reads what the key had, and changes the entries of indexes in the same commit
//! (`transaction/indexed.rs`). So whatever holds for keyspaces holds for indexes: snapshots,
//! recovery, expiry, the memory budget, checks.
//!
//! | file | what it owns |
//! |---|---|
//! | `set.rs` | which indexes there are, as part of the state of a keyspace |
//! | `catalog.rs` | creating, finishing and dropping them |
//! | `build.rs` | filling them, beside writers |
//! | `view.rs` | reading them as of a moment |
//! | `within.rs` | reading them in a transaction |
//!
//! Invariants
//! - N1  A commit behind the one that an index is in the state from changes the index with the
//!   keyspace: whoever has not seen the index yet is turned away at the gate of the log.
//! - N2  An index that is being built has nothing that is not so: it lacks, at most. What a step of
//!   the build puts is what it has read, which is its premise.
//! - N3  An index is ready, durably, only when all of it is durable in the log.
//! - N4  An index is read as of moments whose state says that it is ready.
//! - N5  One thread at a time builds an index, from looking whether it is ready to saying that it
//!   is.
//! - N6  An index that is created, or built beside the one whose place it is to take, is dropped
//!   when that ends otherwise than with its being ready: by an error, a closure's word, or a panic.

mod build;
mod catalog;
mod set;
#[cfg(test)]
mod tests;
mod view;
mod within;

use std::ops::RangeBounds;
use std::sync::Arc;

pub use build::IndexBuildReport;
pub(super) use set::{IndexOf, IndexSet, Stage, is_index_name};
pub use view::{IndexEntry, IndexIter, IndexView};
pub use within::{TransactionIndex, TransactionIndexEntry, TransactionIndexIter};

use crate::base::{Error, KeyRange, Result, index_key};
use crate::db::keyspace::Keyspace;
use crate::db::snapshot::Snapshot;

/// How an index is made: see [`Keyspace::create_index`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexOptions {
    /// See [`IndexOptions::unique`].
    pub is_unique: bool,
}

impl IndexOptions {
    /// Any number of entries may have the same index key.
    #[must_use]
    pub const fn new() -> IndexOptions {
        IndexOptions { is_unique: false }
    }

    /// No two entries have the same index key. A commit by which they would fails with
    /// [`Error::UniqueViolation`]: it counts what is there behind all of the commit, so that within
    /// one, two entries can change places.
    #[must_use]
    pub const fn unique(mut self) -> IndexOptions {
        self.is_unique = true;
        self
    }
}

/// What there is to know about an index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexInfo {
    /// Its name.
    pub name: String,
    /// The name of its extractor.
    pub extractor: String,
    /// Whether the extractor is registered, or built in.
    pub has_extractor: bool,
    /// Whether an index key is there once at most.
    pub is_unique: bool,
    /// Whether it has all entries, and can be read.
    pub is_ready: bool,
    /// Whether it is being built, or was until that was interrupted: anew, if it is ready as well.
    pub is_building: bool,
}

/// A secondary index of a keyspace, as a handle. Cheap to clone; may be used from any thread.
///
/// Its entries are in the order of index keys, and those of one index key in that of primary keys.
/// What is read is of one moment, be it of the index or of the keyspace that it leads to.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # use lithedb::{Db, IndexOptions, storage::MemoryStorage};
/// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
/// let people = db.keyspace_or_create("people")?;
/// people.put("17", "Ada,London")?;
/// people.put("18", "Carl,Brunswick")?;
/// let by_city = people.create_index("by_city", "field:,:2", IndexOptions::new())?;
/// for entry in by_city.prefix("L") {
///     let entry = entry?;
///     assert_eq!((entry.index_key(), entry.primary_key()), (&b"London"[..], &b"17"[..]));
///     assert_eq!(&*entry.value()?, b"Ada,London");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Index {
    keyspace: Keyspace,
    name: Arc<str>,
}

/// Every call answers `IndexNotFound` after the index was dropped, `IndexNotReady` when it is not
/// built, and else as the call of [`Keyspace`] of that name. Those that return iterators have it
/// told by these.
impl Index {
    pub(super) fn new(keyspace: &Keyspace, name: &str) -> Index {
        Index { keyspace: keyspace.clone(), name: Arc::from(name) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keyspace that it is an index of.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// What there is to know about it, now.
    ///
    /// # Errors
    /// `IndexNotFound`, `KeyspaceNotFound`, `Closed`.
    pub fn info(&self) -> Result<IndexInfo> {
        let infos = self.keyspace.indexes()?;
        infos.into_iter().find(|info| *info.name == *self.name).ok_or_else(|| self.not_found())
    }

    fn not_found(&self) -> Error {
        Error::IndexNotFound { name: self.name.to_string() }
    }

    /// The index as of now, to be read several times at one moment.
    ///
    /// # Errors
    /// `IndexNotFound`, `IndexNotReady`, `KeyspaceNotFound`, `Closed`.
    pub fn view(&self) -> Result<IndexView> {
        let core = self.keyspace.core();
        core.check_open()?;
        let (state, as_of) = core.moment();
        IndexView::of(self, &state, as_of)
    }

    /// The index as of a snapshot.
    ///
    /// # Errors
    /// `IndexNotFound`, `IndexNotReady` when it was not there or not built at that moment;
    /// `InvalidArgument` for a snapshot of the past ([`crate::Db::snapshot_at`]): an index has the
    /// present alone; `KeyspaceNotFound`.
    pub fn at(&self, snapshot: &Snapshot) -> Result<IndexView> {
        snapshot.keyspace_state(&self.keyspace)?; // Of this database?
        IndexView::of(self, snapshot.state(), snapshot.as_of())
    }

    /// The entries with this index key.
    #[must_use]
    pub fn get(&self, index_key: impl AsRef<[u8]>) -> IndexIter {
        self.read(|view| view.get(index_key))
    }

    /// The first entry with this index key: the only one, where each key is there once.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn find(&self, index_key: impl AsRef<[u8]>) -> Result<Option<IndexEntry>> {
        self.get(index_key).next().transpose()
    }

    /// Whether any entry has this index key.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains(&self, index_key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.find(index_key)?.is_some())
    }

    /// All entries.
    #[must_use]
    pub fn iter(&self) -> IndexIter {
        self.range::<&[u8]>(..)
    }

    /// The entries with index keys in `range`.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> IndexIter {
        self.read(|view| view.range(range))
    }

    /// The entries whose index keys start with `prefix`.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> IndexIter {
        self.read(|view| view.prefix(prefix))
    }

    fn read(&self, read: impl FnOnce(&IndexView) -> IndexIter) -> IndexIter {
        match self.view() {
            Ok(view) => read(&view),
            Err(error) => IndexIter::refusing(error),
        }
    }

    /// Number of entries with index keys in `range`, without walking over them: see
    /// [`Keyspace::count`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let KeyRange { start, end } = index_key::range(&KeyRange::new(&range));
        loop {
            let kept_in = self.kept_in()?;
            match kept_in.count::<Vec<u8>>((start.as_ref(), end.as_ref())) {
                // It was built anew meanwhile, or dropped: then looking again says so.
                Err(Error::KeyspaceNotFound { .. }) => {}
                counted => return counted,
            }
        }
    }

    /// The keyspace that it is kept in, if it is ready.
    fn kept_in(&self) -> Result<Keyspace> {
        let core = self.keyspace.core();
        core.check_open()?;
        let state = core.published.state();
        let index = self.ready_in(&state)?;
        Ok(Keyspace::of_index(Arc::clone(self.keyspace.handle()), &index))
    }

    /// The index as a state has it, if it is ready there (N4).
    fn ready_in(&self, state: &crate::db::state::State) -> Result<Arc<IndexOf>> {
        let keyspace = state.find(self.keyspace.id()).ok_or_else(|| self.keyspace.not_found())?;
        let found = keyspace.index_set().and_then(|set| set.find(&self.name));
        match found {
            Some(index) if index.stage == Stage::Ready => Ok(Arc::clone(index)),
            Some(index) => Err(Error::IndexNotReady { name: index.name.to_string() }),
            None => Err(self.not_found()),
        }
    }
}
