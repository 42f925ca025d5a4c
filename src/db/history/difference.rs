//! What is different in a keyspace between two moments.

use std::cmp::Ordering;
use std::ops::RangeBounds;

use crate::base::{KeyRange, Result, Slice};
use crate::db::Entry;
use crate::db::history::PointInTime;
use crate::db::iter::Cursor;
use crate::db::keyspace::Keyspace;

/// A key that was not the same at two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: Slice,
    /// What it had at the first moment, if it was there.
    pub before: Option<Entry>,
    /// What it had at the second moment, if it was there.
    pub after: Option<Entry>,
}

/// What is different in a range of keys between two moments, by key; see
/// [`Keyspace::differences`]. After an error it is over.
#[derive(Debug)]
pub struct Differences {
    before: Cursor,
    after: Cursor,
    has_begun: bool,
    is_over: bool,
}

impl Differences {
    pub(in crate::db) fn new(before: Cursor, after: Cursor) -> Differences {
        Differences { before, after, has_begun: false, is_over: false }
    }

    fn find_next(&mut self) -> Result<Option<Difference>> {
        let Differences { before, after, has_begun, .. } = self;
        if !std::mem::replace(has_begun, true) {
            before.seek_first()?;
            after.seek_first()?;
        }
        loop {
            let order = match (before.valid(), after.valid()) {
                (false, false) => return Ok(None),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => before.key().cmp(after.key()),
            };
            let is_same = order == Ordering::Equal && before.seqno() == after.seqno();
            let entry_of = |cursor: &Cursor, is_there: bool| {
                (is_there && !is_same).then(|| cursor.take_entry()).transpose()
            };
            let was = entry_of(before, order.is_le())?;
            let is = entry_of(after, order.is_ge())?;
            if order.is_le() {
                before.next()?;
            }
            if order.is_ge() {
                after.next()?;
            }
            let key = was.as_ref().or(is.as_ref()).map(|entry| entry.key.clone());
            if let Some(key) = key {
                return Ok(Some(Difference { key, before: was, after: is }));
            }
        }
    }
}

impl Iterator for Differences {
    type Item = Result<Difference>;

    fn next(&mut self) -> Option<Result<Difference>> {
        if self.is_over {
            return None;
        }
        let found = self.find_next().transpose();
        self.is_over = !matches!(found, Some(Ok(_)));
        found
    }
}

impl Keyspace {
    /// What is different in `range` between two moments: keys that were put, changed or deleted
    /// in between, by key. A key that was written again with the same value is among them. Costs
    /// a walk of the range at each of the moments.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, KeyspaceOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let stock = db.create_keyspace("stock", KeyspaceOptions::history())?;
    /// stock.put("nuts", "7")?;
    /// let monday = stock.put("figs", "2")?;
    /// let tuesday = stock.delete("figs")?;
    /// let changed: Vec<_> = stock.differences::<&str>(.., monday, tuesday)?.collect();
    /// assert_eq!(changed.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get_at`]; each item may be what reading it failed with.
    pub fn differences<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        from: impl Into<PointInTime>,
        to: impl Into<PointInTime>,
    ) -> Result<Differences> {
        let range = KeyRange::new(&range);
        let (before, as_of_before) = self.past(from.into())?;
        let (after, as_of_after) = self.past(to.into())?;
        let before = Cursor::new(before, as_of_before, range.clone());
        Ok(Differences::new(before, Cursor::new(after, as_of_after, range)))
    }
}
