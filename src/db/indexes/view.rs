//! Reading an index as of one moment, and what it leads to as of the same.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::SystemTime;

use super::Index;
use crate::base::{Error, Expiry, KeyRange, Result, Slice, index_key};
use crate::db::core::keyspace_dir;
use crate::db::iter::{Cursor, Entry, Iter};
use crate::db::order::{OtherMoment, looked_up};
use crate::db::state::{KeyspaceState, State};
use crate::db::time::AsOf;

/// An index at one moment: see [`Index::view`], [`Index::at`]. Cheap to clone; what it reads is
/// kept while it is held.
#[derive(Clone)]
pub struct IndexView {
    /// What it is kept in.
    kept_in: Arc<KeyspaceState>,
    led_to: Arc<LedTo>,
    as_of: AsOf,
}

/// The keyspace that an index leads to, at a moment.
struct LedTo {
    keyspace: Arc<KeyspaceState>,
    as_of: AsOf,
    /// For messages: the directory of the index.
    dir: std::path::PathBuf,
}

impl fmt::Debug for IndexView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexView").field("at", &self.as_of.at).finish_non_exhaustive()
    }
}

impl IndexView {
    pub(super) fn of(index: &Index, state: &State, as_of: AsOf) -> Result<IndexView> {
        if state.is_past {
            let what = format!("the index {:?} has the present alone", index.name());
            return Err(Error::invalid(what));
        }
        let found = index.ready_in(state)?;
        let keyspace = state.find(index.keyspace.id()).ok_or_else(|| index.keyspace.not_found())?;
        let kept_in = state.find(found.runtime.id).ok_or_else(|| index.not_found())?;
        let dir = keyspace_dir(&index.keyspace.core().dir, found.runtime.id);
        let led_to = Arc::new(LedTo { keyspace: Arc::clone(keyspace), as_of, dir });
        Ok(IndexView { kept_in: Arc::clone(kept_in), led_to, as_of })
    }

    /// The entries with this index key.
    #[must_use]
    pub fn get(&self, index_key: impl AsRef<[u8]>) -> IndexIter {
        self.walk(KeyRange::prefix(&index_key::head(index_key.as_ref())))
    }

    /// The first entry with this index key.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn find(&self, index_key: impl AsRef<[u8]>) -> Result<Option<IndexEntry>> {
        self.get(index_key).next().transpose()
    }

    /// All entries.
    #[must_use]
    pub fn iter(&self) -> IndexIter {
        self.range::<&[u8]>(..)
    }

    /// The entries with index keys in `range`.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> IndexIter {
        self.walk(index_key::range(&KeyRange::new(&range)))
    }

    /// The entries whose index keys start with `prefix`.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> IndexIter {
        self.walk(index_key::prefix(prefix.as_ref()))
    }

    /// Number of entries with index keys in `range`; see [`crate::Snapshot::count`].
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let range = index_key::range(&KeyRange::new(&range));
        looked_up(self.kept_in.count(&range, self.as_of, OtherMoment::LookUp))
    }

    fn walk(&self, range: KeyRange) -> IndexIter {
        let entries = Iter::new(Cursor::new(Arc::clone(&self.kept_in), self.as_of, range));
        IndexIter { entries, led_to: Some(Arc::clone(&self.led_to)) }
    }
}

/// The entries of an index whose index keys are in a range, as of one moment, from either end.
/// Reads lazily; values of the keyspace only when they are asked for.
pub struct IndexIter {
    entries: Iter,
    /// `None`: it gives an error only.
    led_to: Option<Arc<LedTo>>,
}

impl fmt::Debug for IndexIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexIter").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl IndexIter {
    /// One whose first item is an error.
    pub(super) fn refusing(error: Error) -> IndexIter {
        IndexIter { entries: Iter::new(Cursor::refusing(error)), led_to: None }
    }

    fn led(&self, entry: Result<Entry>) -> Result<IndexEntry> {
        let Entry { key, expiry, .. } = entry?;
        let led_to = self.led_to.as_ref().ok_or(Error::Closed)?;
        let parts = Parts::of(key).ok_or_else(|| {
            Error::corruption(&led_to.dir, 0, "an entry of an index has a key that is none")
        })?;
        Ok(IndexEntry { parts, expiry, led_to: Arc::clone(led_to) })
    }
}

impl Iterator for IndexIter {
    type Item = Result<IndexEntry>;

    fn next(&mut self) -> Option<Result<IndexEntry>> {
        let entry = self.entries.next()?;
        Some(self.led(entry))
    }
}

impl DoubleEndedIterator for IndexIter {
    fn next_back(&mut self) -> Option<Result<IndexEntry>> {
        let entry = self.entries.next_back()?;
        Some(self.led(entry))
    }
}

/// The key of an entry of an index, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    key: Slice,
    head_len: usize,
    index_key: Vec<u8>,
}

impl Parts {
    /// Takes a key apart; `None` if it is none of an index.
    pub(super) fn of(key: Slice) -> Option<Parts> {
        let head_len = index_key::head_len(&key)?;
        let index_key = index_key::of_head(&key[..head_len]);
        Some(Parts { key, head_len, index_key })
    }

    pub(super) fn index_key(&self) -> &[u8] {
        &self.index_key
    }

    pub(super) fn primary_key(&self) -> &[u8] {
        &self.key[self.head_len..]
    }
}

/// An index key, and the key of an entry that has it.
#[derive(Clone)]
pub struct IndexEntry {
    parts: Parts,
    expiry: Expiry,
    led_to: Arc<LedTo>,
}

impl fmt::Debug for IndexEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index_key, primary_key) = (self.index_key(), self.primary_key());
        f.debug_struct("IndexEntry")
            .field("index_key", &index_key.escape_ascii().to_string())
            .field("primary_key", &primary_key.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

impl IndexEntry {
    /// The index key.
    #[must_use]
    pub fn index_key(&self) -> &[u8] {
        self.parts.index_key()
    }

    /// The key of the entry in the keyspace.
    #[must_use]
    pub fn primary_key(&self) -> &[u8] {
        self.parts.primary_key()
    }

    /// When it expires, which is when the entry of the keyspace does; `None` if it does not.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expiry.time()
    }

    /// The value of the entry in the keyspace, as of the same moment. Read now.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`]; `Corruption` when the keyspace has no such entry.
    pub fn value(&self) -> Result<Slice> {
        let LedTo { keyspace, as_of, .. } = &*self.led_to;
        keyspace.get(self.primary_key(), *as_of)?.ok_or_else(|| self.leads_nowhere())
    }

    /// Key, value, stamp and expiry of the entry in the keyspace, as [`IndexEntry::value`].
    ///
    /// # Errors
    /// As [`IndexEntry::value`].
    pub fn entry(&self) -> Result<Entry> {
        let LedTo { keyspace, as_of, .. } = &*self.led_to;
        keyspace.get_entry(self.primary_key(), *as_of)?.ok_or_else(|| self.leads_nowhere())
    }

    fn leads_nowhere(&self) -> Error {
        let key = self.primary_key().escape_ascii();
        let what = format!("the index leads to the key {key}, which is not there");
        Error::corruption(&self.led_to.dir, 0, what)
    }
}
