//! Single steps that read and write one key: each is a transaction of its own.

use std::sync::Arc;

use crate::base::{Error, Expiry, Result, SeqNo, Slice};
use crate::db::Db;
use crate::db::iter::Entry;
use crate::db::keyspace::Keyspace;
use crate::db::transaction::Transaction;

/// Bytes of a counter.
const COUNTER_SIZE: usize = size_of::<i64>();

/// What came of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It was done, by the commit with this stamp.
    Done(SeqNo),
    /// The key has another entry than expected; nothing has changed.
    Differs(Option<Entry>),
}

impl Swap {
    /// Whether it was done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Swap::Done(_))
    }
}

/// How a key's entry changes.
enum Change {
    /// A new value, which is there as long as what a put brings.
    Put(Vec<u8>),
    /// A new value, which expires when the one expires that it takes the place of.
    PutInPlace(Vec<u8>),
    Delete,
    Keep,
}

/// Each of these happens at one moment: no other commit comes between what it reads and what it
/// writes, nor does what was read expire; if one does, it is tried again. What is written is there
/// as long as what [`Keyspace::put`] writes, but for [`Keyspace::increment`] and
/// [`Keyspace::set_expiry`]. All use the database's default durability, and meet what
/// [`Db::update`] may, but for `Conflict`.
impl Keyspace {
    /// Gives `key` the value `new`, or deletes it, if its value is `expected` (or if it is not
    /// there).
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.swap_if(key.as_ref(), new, |entry| entry.map(|entry| &*entry.value) == expected)
    }

    /// Gives `key` the value `new`, or deletes it, if its entry is that of the commit `expected`
    /// (or if it is not there).
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn compare_and_swap_stamp(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<SeqNo>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.swap_if(key.as_ref(), new, |entry| entry.map(|entry| entry.seqno) == expected)
    }

    /// Gives `key` the value `value` if it is not there.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
        self.swap_if(key.as_ref(), Some(value.as_ref()), |entry| entry.is_none())
    }

    /// Gives `key` the value `value`; returns the one it had.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let value = value.as_ref();
        self.change(key.as_ref(), |_| Ok(Change::Put(value.to_vec())))
    }

    /// Deletes `key`; returns the value it had.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.change(key.as_ref(), |value| {
            Ok(if value.is_some() { Change::Delete } else { Change::Keep })
        })
    }

    /// Gives `key` the value that `update` makes of the one it has, or deletes it if that is
    /// `None`; returns the one it had. `update` may be called several times.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Slice>> {
        self.change(key.as_ref(), |value| {
            Ok(match update(value) {
                Some(new) => Change::Put(new),
                None if value.is_some() => Change::Delete,
                None => Change::Keep,
            })
        })
    }

    /// Adds `by` to the counter at `key`, and returns what it is then. A counter is a little-endian
    /// `i64`; one that is not there is 0. One that expires still does so when it did; one that is
    /// not there is put as [`Keyspace::put`] puts it. Where nobody needs to know what it is then,
    /// [`Keyspace::merge`] with the operator `counter`, which wraps, adds without reading.
    ///
    /// # Errors
    /// `InvalidArgument` when the value is not a counter, or the sum is not an `i64`: nothing has
    /// changed. As [`Db::update`].
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64> {
        let mut sum = 0;
        self.change(key.as_ref(), |value| {
            let count = match value {
                None => 0,
                Some(value) => counter(value)?,
            };
            let added = count.checked_add(by);
            sum = added.ok_or_else(|| Error::invalid("the counter would leave its range"))?;
            Ok(Change::PutInPlace(sum.to_le_bytes().to_vec()))
        })?;
        Ok(sum)
    }

    /// Has `key` expire then, or never, with the value that it has; returns whether it is there.
    /// The entry gets the stamp of this commit. Costs a read of the value, which is not written
    /// again if it is in the value log.
    ///
    /// # Errors
    /// `InvalidArgument` when the keyspace has a merge operator. As [`Db::update`].
    pub fn set_expiry(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Result<bool> {
        let (key, expiry) = (key.as_ref(), expiry.into());
        self.check_takes_expiry()?;
        self.step(|transaction| {
            let Some(value) = transaction.get(self, key)? else { return Ok(false) };
            transaction.put_until(self, key, value, expiry)?;
            Ok(true)
        })
    }

    /// Deletes the entry with the smallest key, and returns it.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn pop_first(&self) -> Result<Option<Entry>> {
        self.pop(Transaction::first)
    }

    /// Deletes the entry with the largest key, and returns it.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn pop_last(&self) -> Result<Option<Entry>> {
        self.pop(Transaction::last)
    }

    /// Runs a step until no commit comes between.
    fn step<T>(&self, run: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let db = self.db();
        let durability = db.core().default_durability();
        db.update_stamped(durability, u32::MAX, run).map(|(value, _)| value)
    }

    fn pop(
        &self,
        find: fn(&Transaction, &Keyspace) -> Result<Option<Entry>>,
    ) -> Result<Option<Entry>> {
        self.step(|transaction| {
            let found = find(transaction, self)?;
            if let Some(entry) = &found {
                transaction.delete(self, &entry.key)?;
            }
            Ok(found)
        })
    }

    /// Changes the entry of `key` by what `change` makes of its value, which is returned.
    fn change(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Result<Change>,
    ) -> Result<Option<Slice>> {
        self.step(|transaction| {
            let (before, until) = match transaction.get_with_expiry(self, key)? {
                Some((value, until)) => (Some(value), until),
                None => (None, None),
            };
            match change(before.as_deref())? {
                Change::PutInPlace(value) if before.is_some() => {
                    transaction.put_until(self, key, value, Expiry::from_moment(until))?;
                }
                Change::Put(value) | Change::PutInPlace(value) => {
                    transaction.put(self, key, value)?;
                }
                Change::Delete => transaction.delete(self, key)?,
                Change::Keep => {}
            }
            Ok(before)
        })
    }

    fn swap_if(
        &self,
        key: &[u8],
        new: Option<&[u8]>,
        mut is_expected: impl FnMut(Option<&Entry>) -> bool,
    ) -> Result<Swap> {
        let db = self.db();
        let durability = db.core().default_durability();
        let (differs, stamp) = db.update_stamped(durability, u32::MAX, |transaction| {
            let entry = transaction.get_entry(self, key)?;
            if !is_expected(entry.as_ref()) {
                return Ok::<_, Error>(Some(entry));
            }
            match new {
                Some(new) => transaction.put(self, key, new)?,
                None => transaction.delete(self, key)?,
            }
            Ok(None)
        })?;
        Ok(match differs {
            Some(entry) => Swap::Differs(entry),
            None => Swap::Done(stamp.expect("only the call above ends the transaction")),
        })
    }

    fn db(&self) -> Db {
        Db { handle: Arc::clone(self.handle()) }
    }
}

fn counter(value: &[u8]) -> Result<i64> {
    let bytes = <[u8; COUNTER_SIZE]>::try_from(value).map_err(|_| {
        Error::invalid(format!("a value of {} bytes: a counter has {COUNTER_SIZE}", value.len()))
    })?;
    Ok(i64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    fn open() -> Keyspace {
        let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
        db.keyspace_or_create("k").unwrap()
    }

    #[test]
    fn a_swap_is_done_only_if_the_entry_is_as_expected() {
        let k = open();
        assert!(k.compare_and_swap("a", None, Some(b"1")).unwrap().is_done());
        let Swap::Differs(Some(entry)) = k.compare_and_swap("a", None, Some(b"2")).unwrap() else {
            panic!("it is there");
        };
        assert_eq!(&*entry.value, b"1");
        let Swap::Done(stamp) = k.compare_and_swap("a", Some(b"1"), Some(b"2")).unwrap() else {
            panic!("it is as expected");
        };
        assert!(!k.compare_and_swap_stamp("a", Some(entry.seqno), Some(b"3")).unwrap().is_done());
        assert!(k.compare_and_swap_stamp("a", Some(stamp), None).unwrap().is_done());
        assert_eq!(k.get("a").unwrap(), None);
        assert_eq!(k.compare_and_swap("a", Some(b"2"), None).unwrap(), Swap::Differs(None));
        assert!(k.insert_if_absent("a", "4").unwrap().is_done());
        assert!(!k.insert_if_absent("a", "5").unwrap().is_done());
        assert_eq!(k.get("a").unwrap().as_deref(), Some(&b"4"[..]));
    }

    #[test]
    fn each_step_returns_what_was_there_before() {
        let k = open();
        assert_eq!(k.replace("a", "1").unwrap(), None);
        assert_eq!(k.replace("a", "2").unwrap().as_deref(), Some(&b"1"[..]));
        let double = |value: Option<&[u8]>| value.map(|value| value.repeat(2));
        assert_eq!(k.fetch_update("a", double).unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(k.take("a").unwrap().as_deref(), Some(&b"22"[..]));
        let commits = k.db().stats().commits;
        assert_eq!((k.take("a").unwrap(), k.fetch_update("a", double).unwrap()), (None, None));
        assert_eq!(k.db().stats().commits, commits, "nothing changed, nothing was committed");
        for key in ["x", "y", "z"] {
            k.put(key, "").unwrap();
        }
        assert_eq!(&*k.pop_first().unwrap().unwrap().key, b"x");
        assert_eq!(&*k.pop_last().unwrap().unwrap().key, b"z");
        assert_eq!(&*k.pop_last().unwrap().unwrap().key, b"y");
        assert!(k.pop_first().unwrap().is_none() && k.pop_last().unwrap().is_none());
    }

    #[test]
    fn counters_count_and_refuse_what_is_none() {
        let k = open();
        assert_eq!(k.increment("n", 5).unwrap(), 5);
        assert_eq!(k.increment("n", -7).unwrap(), -2);
        assert_eq!(k.increment("n", i64::MAX).unwrap(), i64::MAX - 2);
        assert!(matches!(k.increment("n", 3), Err(Error::InvalidArgument { .. })));
        assert_eq!(k.increment("n", 0).unwrap(), i64::MAX - 2, "nothing has changed");
        k.put("text", "12").unwrap();
        assert!(matches!(k.increment("text", 1), Err(Error::InvalidArgument { .. })));
    }
}
