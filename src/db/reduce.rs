//! Reductions of a keyspace as of one moment: what the entries of a range come to, by a reducer.
//!
//! The structure keeps what its parts come to. Of parts that memtables have something of, as of the
//! moment, that is not what there is: these are walked.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::base::{Cursor as _, KeyRange, RangeTombstones, Result, SeqNo, Slice};
use crate::db::history::PointInTime;
use crate::db::iter::Cursor;
use crate::db::keyspace::Keyspace;
use crate::db::snapshot::Snapshot;
use crate::db::state::KeyspaceState;
use crate::db::time::AsOf;
use crate::memtable::MemtableCursor;
use crate::merge::MergeCursor;
use crate::operator::Reducing;
use crate::structure::{Reduction, joined};

impl Keyspace {
    /// What the entries with keys in `range` come to, by a reducer that is registered under this
    /// name ([`crate::Builder::reducer`]) or built in: `count`, `bytes` (of keys and values), `sum`
    /// (of values that are little-endian numbers of 8 bytes; wraps), each 8 bytes, little-endian;
    /// `min` and `max`, the smallest and largest value. `None` if there are no entries, or if they
    /// come to nothing.
    ///
    /// In [`crate::Structure::Flex`] and [`crate::Structure::History`]: O(log n), with what has
    /// changed since it was asked for last, or everything the first time after an opening. Blocks
    /// of intervals that have changes in memtables, or entries that expire, are gone through each
    /// time, so it is fastest where writing has ended and was flushed. What is kept for that, some
    /// 100 bytes for 16 KiB of entries, counts in the memory budget. What takes more than 1 KiB, as
    /// `min` and `max` of long values do, or has no room there, is made anew each time. In
    /// [`crate::Structure::Lsm`] all entries are gone through.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not registered; [`crate::Error::ReduceFailed`]; else as
    /// [`Keyspace::get`].
    pub fn reduce<K: AsRef<[u8]>>(
        &self,
        reducer: &str,
        range: impl RangeBounds<K>,
    ) -> Result<Option<Slice>> {
        let core = self.core();
        core.check_open()?;
        let reducer = core.reducers.find(reducer)?;
        let (keyspace, as_of) = core.moment_of(self.id()).ok_or_else(|| self.not_found())?;
        keyspace.reduce(&KeyRange::new(&range), as_of, reducer)
    }

    /// As [`Keyspace::reduce`], of what there was then, by going through it.
    ///
    /// # Errors
    /// As [`Keyspace::reduce`] and [`Keyspace::get_at`].
    pub fn reduce_at<K: AsRef<[u8]>>(
        &self,
        reducer: &str,
        range: impl RangeBounds<K>,
        at: impl Into<PointInTime>,
    ) -> Result<Option<Slice>> {
        let core = self.core();
        core.check_open()?;
        let reducer = core.reducers.find(reducer)?;
        let (keyspace, as_of) = self.past(at.into())?;
        keyspace.reduce(&KeyRange::new(&range), as_of, reducer)
    }
}

impl Snapshot {
    /// As [`Keyspace::reduce`], as of the snapshot. Of a moment of the past all entries are gone
    /// through.
    ///
    /// # Errors
    /// As [`Keyspace::reduce`] and [`Snapshot::get`].
    pub fn reduce<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        reducer: &str,
        range: impl RangeBounds<K>,
    ) -> Result<Option<Slice>> {
        let (state, as_of) = (self.keyspace_state(keyspace)?, self.as_of());
        let reducer = keyspace.core().reducers.find(reducer)?;
        state.reduce(&KeyRange::new(&range), as_of, reducer)
    }
}

/// How entries of a keyspace are summarized.
struct Summing<'a> {
    keyspace: &'a Arc<KeyspaceState>,
    as_of: AsOf,
    reducer: &'a Reducing,
}

impl Reduction for Summing<'_> {
    fn tag(&self) -> u64 {
        self.reducer.tag()
    }

    fn summarize(&mut self, start: &[u8], end: Option<&[u8]>) -> Result<Option<Slice>> {
        if end.is_some_and(|end| end <= start) {
            return Ok(None);
        }
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
        let range = KeyRange { start: Bound::Included(start.to_vec()), end };
        let mut cursor = Cursor::new(Arc::clone(self.keyspace), self.as_of, range);
        let mut summary = None;
        cursor.seek_first()?;
        while cursor.valid() {
            summary = self.reducer.add(summary, cursor.key(), cursor.value()?)?;
            cursor.next()?;
        }
        Ok(summary.map(Slice::from))
    }

    fn join(&mut self, left: Slice, right: Slice) -> Result<Slice> {
        self.reducer.join(left.to_vec(), &right).map(Slice::from)
    }
}

/// A part of the keys: from where to in front of where, or to the last.
type Part = (Vec<u8>, Option<Vec<u8>>);

/// What memtables have as of a moment: entries and deleted ranges.
struct Changes {
    entries: MergeCursor<MemtableCursor>,
    deleted: Arc<RangeTombstones>,
}

/// One of them.
enum Change {
    /// Of this key.
    Key(Vec<u8>),
    /// What is deleted.
    Range(Part),
}

impl Changes {
    /// The first one from `from` on.
    fn first_from(&mut self, from: &[u8]) -> Result<Option<Change>> {
        self.entries.seek(from)?;
        let key = self.entries.entry().map(|entry| entry.key.to_vec());
        let range = self.deleted.first_from(from).map(|range| {
            let start = range.start.max(from);
            (start.to_vec(), range.end.map(<[u8]>::to_vec))
        });
        Ok(match (key, range) {
            (Some(key), Some(range)) if key < range.0 => Some(Change::Key(key)),
            (_, Some(range)) => Some(Change::Range(range)),
            (key, None) => key.map(Change::Key),
        })
    }
}

impl KeyspaceState {
    /// What the entries with keys in `range` come to.
    fn reduce(
        self: &Arc<Self>,
        range: &KeyRange,
        as_of: AsOf,
        reducer: &Reducing,
    ) -> Result<Option<Slice>> {
        let (mut from, end) = range.half_open();
        let as_of = if self.is_past { as_of } else { self.judging(as_of) };
        let mut summing = Summing { keyspace: self, as_of, reducer };
        let mut changes = self.changes_as_of(as_of.at);
        let mut sum = None;
        loop {
            let part = self.first_changed_part(&mut changes, (&from, end.as_deref()))?;
            let front_end = part.as_ref().map_or(end.as_deref(), |(start, _)| Some(&**start));
            if front_end.is_none_or(|front_end| front_end > &*from) {
                let front = self.version.reduced(&from, front_end, &mut summing)?;
                sum = joined(sum, front, &mut summing)?;
            }
            let Some((start, behind)) = part else { return Ok(sum) };
            let of_part = summing.summarize(&start, behind.as_deref())?;
            sum = joined(sum, of_part, &mut summing)?;
            match behind {
                Some(behind) if end.as_ref().is_none_or(|end| behind < *end) => from = behind,
                _ => return Ok(sum),
            }
        }
    }

    fn changes_as_of(&self, at: SeqNo) -> Changes {
        let deleted = self.deleted_ranges(at, None).unwrap_or_default();
        let tables = self.tables().filter(|table| !table.memtable.is_empty());
        let cursors = tables.map(|table| MemtableCursor::new(Arc::clone(&table.memtable), at));
        Changes { entries: MergeCursor::new(cursors.collect()), deleted }
    }

    /// The first part of the structure from `from` on that memtables change, as far as it is in
    /// front of `end`.
    fn first_changed_part(
        &self,
        changes: &mut Changes,
        (from, end): (&[u8], Option<&[u8]>),
    ) -> Result<Option<Part>> {
        let is_behind = |key: &[u8]| end.is_some_and(|end| key >= end);
        let (start, behind) =
            match changes.first_from(from)? {
                Some(Change::Key(key)) if !is_behind(&key) => self.version.part_around(&key),
                Some(Change::Range((first, to))) if !is_behind(&first) => {
                    let (start, _) = self.version.part_around(&first);
                    let last = to.map(|to| (self.version.part_around(&to), to));
                    let behind = last.and_then(|((start_of_last, behind), to)| {
                        if *start_of_last == *to { Some(start_of_last) } else { behind }
                    });
                    (start, behind)
                }
                _ => return Ok(None),
            };
        let behind = behind.filter(|behind| !is_behind(behind)).map(|behind| behind.to_vec());
        let behind = behind.or_else(|| end.map(<[u8]>::to_vec));
        Ok(Some((start.to_vec().max(from.to_vec()), behind)))
    }
}
