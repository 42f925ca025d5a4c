//! Reading an index in a transaction: with what that has written itself, and noted as read.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::Index;
use super::view::Parts;
use crate::base::{Error, KeyRange, Result, Slice, index_key};
use crate::db::core::keyspace_dir;
use crate::db::iter::Entry;
use crate::db::keyspace::Keyspace;
use crate::db::transaction::{Transaction, TransactionIter};

/// An index as a transaction sees it: see [`Transaction::index`].
#[derive(Clone, Debug)]
pub struct TransactionIndex<'t> {
    transaction: &'t Transaction,
    keyspace: Keyspace,
    kept_in: Keyspace,
}

impl Transaction {
    /// An index as the transaction sees it: as of its beginning, with its own writes. What is read
    /// of it counts as read: the transaction conflicts if another commit changes which entries have
    /// those index keys.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, Error, IndexOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let tasks = db.keyspace_or_create("tasks")?;
    /// let by_state = tasks.create_index("by_state", "value", IndexOptions::new())?;
    /// tasks.put("t1", "open")?;
    /// let taken = db.update(|transaction| {
    ///     let Some(task) = transaction.index(&by_state)?.find("open")? else { return Ok(None) };
    ///     let key = task.primary_key().to_vec();
    ///     transaction.put(&tasks, &key, "taken")?;
    ///     Ok::<_, Error>(Some(key))
    /// })?;
    /// assert_eq!(taken.as_deref(), Some(&b"t1"[..]));
    /// assert_eq!((by_state.count("open"..="open")?, by_state.count("taken"..="taken")?), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `IndexNotFound`, `IndexNotReady`, `KeyspaceNotFound` as of the transaction's beginning;
    /// `TransactionEnded`, `Closed`.
    pub fn index<'t>(&'t self, index: &Index) -> Result<TransactionIndex<'t>> {
        let keyspace = index.keyspace().clone();
        let found = index.ready_in(self.state_for(&keyspace)?)?;
        let kept_in = Keyspace::of_index(Arc::clone(keyspace.handle()), &found);
        Ok(TransactionIndex { transaction: self, keyspace, kept_in })
    }
}

impl<'t> TransactionIndex<'t> {
    /// The entries with this index key.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn get(&self, index_key: impl AsRef<[u8]>) -> Result<TransactionIndexIter<'t>> {
        self.walk(&KeyRange::prefix(&index_key::head(index_key.as_ref())))
    }

    /// The first entry with this index key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn find(&self, index_key: impl AsRef<[u8]>) -> Result<Option<TransactionIndexEntry<'t>>> {
        self.get(index_key)?.next().transpose()
    }

    /// All entries.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn iter(&self) -> Result<TransactionIndexIter<'t>> {
        self.range::<&[u8]>(..)
    }

    /// The entries with index keys in `range`.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<TransactionIndexIter<'t>> {
        self.walk(&index_key::range(&KeyRange::new(&range)))
    }

    /// The entries whose index keys start with `prefix`.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<TransactionIndexIter<'t>> {
        self.walk(&index_key::prefix(prefix.as_ref()))
    }

    /// Number of entries with index keys in `range`: walks over them.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.range(range)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
    }

    fn walk(&self, range: &KeyRange) -> Result<TransactionIndexIter<'t>> {
        let bounds = (range.start.clone(), range.end.clone());
        let entries = self.transaction.range(&self.kept_in, bounds)?;
        Ok(TransactionIndexIter { entries, of: self.clone() })
    }
}

/// The entries of an index whose index keys are in a range, as a transaction sees them, from either
/// end. What it gives counts as read, and what it finds to lie between.
#[derive(Debug)]
pub struct TransactionIndexIter<'t> {
    entries: TransactionIter<'t>,
    of: TransactionIndex<'t>,
}

impl<'t> TransactionIndexIter<'t> {
    fn led(&self, entry: Result<Entry>) -> Result<TransactionIndexEntry<'t>> {
        let of = &self.of;
        let parts = Parts::of(entry?.key).ok_or_else(|| {
            let dir = keyspace_dir(&of.keyspace.core().dir, of.kept_in.id());
            Error::corruption(&dir, 0, "an entry of an index has a key that is none")
        })?;
        let (keyspace, transaction) = (of.keyspace.clone(), of.transaction);
        Ok(TransactionIndexEntry { parts, keyspace, transaction })
    }
}

impl<'t> Iterator for TransactionIndexIter<'t> {
    type Item = Result<TransactionIndexEntry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next()?;
        Some(self.led(entry))
    }
}

impl DoubleEndedIterator for TransactionIndexIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next_back()?;
        Some(self.led(entry))
    }
}

/// An index key, and the key of an entry that has it, as a transaction sees them.
#[derive(Clone)]
pub struct TransactionIndexEntry<'t> {
    parts: Parts,
    keyspace: Keyspace,
    transaction: &'t Transaction,
}

impl fmt::Debug for TransactionIndexEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionIndexEntry").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl TransactionIndexEntry<'_> {
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

    /// The value of the entry in the keyspace: it counts as read. `None` if the transaction has
    /// deleted it since.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn value(&self) -> Result<Option<Slice>> {
        self.transaction.get(&self.keyspace, self.primary_key())
    }
}
