//! Order statistics of a keyspace as of one moment: counts of ranges, the rank of a key, the entry
//! at a rank. Exact, with what is in memtables.
//!
//! What has expired is not counted; all of a count judges by one now.
//!
//! The structure counts what it has by the sums in its tree. What memtables change about that is
//! looked up if it is little; else it is kept with them (`presence.rs`). Nothing is kept of
//! memtables that delete ranges: each range costs a difference of two counts of the structure, and
//! each of their keys a lookup.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::{Cursor as _, Entropy, EntryRef, KeyRange, RangeTombstones};
use crate::base::{Result, SeqNo, Slice};
use crate::db::iter::{Cursor, Entry};
use crate::db::presence::{Below, Standing, TableChanges};
use crate::db::state::{KeyspaceState, Table};
use crate::db::time::AsOf;
use crate::memtable::MemtableCursor;
use crate::merge::MergeCursor;
use crate::structure::Want;

/// Keys of memtables in a range that are looked up each time it is counted. With more, what is
/// found is kept.
const LOOKED_UP_MAX: usize = 32;

/// What memtables change about the number of entries.
enum Changes {
    /// Found for this count.
    Gathered(Gathered),
    /// Kept with the memtables.
    Kept(Vec<TableChanges>),
}

/// Keys in order, each with the sum of the changes up to it; or the first with the sum of all.
struct Gathered {
    sums: Vec<(Vec<u8>, i64)>,
    deleted: Arc<RangeTombstones>,
}

/// The entry at a rank, if there are as many.
pub(super) struct Selected(pub Option<Entry>);

/// How far gathering goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// So many keys.
    Keys(usize),
    Whatever,
}

/// What is to be known of what was gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// The sum of all, for the whole range. Takes no memory.
    Total,
    /// The sum up to any key.
    Keys,
}

/// What is done when what is kept is of another moment: of a later one, as when another thread has
/// counted meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherMoment {
    /// To answer with nothing: the caller has a later moment to offer.
    Refuse,
    /// To look every key up for this count alone.
    LookUp,
}

/// The entry in front of which a cursor has `rank` others.
fn select_by_walking(mut cursor: Cursor, rank: u64) -> Result<Selected> {
    cursor.seek_first()?;
    for _ in 0..rank {
        if !cursor.valid() {
            break;
        }
        cursor.next()?;
    }
    Ok(Selected(cursor.valid().then(|| cursor.take_entry()).transpose()?))
}

/// What [`OtherMoment::LookUp`] has led to.
pub(super) fn looked_up<T>(found: Result<Option<T>>) -> Result<T> {
    found.map(|found| found.expect("it is looked up if need be"))
}

impl KeyspaceState {
    /// Number of entries with keys in `range`.
    pub(super) fn count(
        &self,
        range: &KeyRange,
        as_of: AsOf,
        other: OtherMoment,
    ) -> Result<Option<u64>> {
        let (start, end) = range.half_open();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(Some(0));
        }
        if self.is_past {
            return self.count_by_walking(range, as_of).map(Some);
        }
        let as_of = self.judging(as_of);
        let changes = self.changes((&start, end.as_deref()), Detail::Total, as_of, other)?;
        let count = |changes| self.count_with(&start, end.as_deref(), &changes, as_of);
        changes.map(count).transpose()
    }

    /// Number of entries with keys below `key`.
    pub(super) fn rank(&self, key: &[u8], as_of: AsOf, other: OtherMoment) -> Result<Option<u64>> {
        let range = KeyRange { start: Bound::Unbounded, end: Bound::Excluded(key.to_vec()) };
        self.count(&range, as_of, other)
    }

    /// The entry in front of which there are `rank` others.
    pub(super) fn select(
        self: &Arc<Self>,
        rank: u64,
        as_of: AsOf,
        other: OtherMoment,
    ) -> Result<Option<Selected>> {
        if self.is_past {
            let cursor = Cursor::new(Arc::clone(self), as_of, KeyRange::all());
            return select_by_walking(cursor, rank).map(Some);
        }
        let as_of = self.judging(as_of);
        let changes = self.changes((b"", None), Detail::Keys, as_of, other)?;
        let Some(changes) = changes else { return Ok(None) };
        self.select_with(rank, as_of, &changes).map(Some)
    }

    fn select_with(
        self: &Arc<Self>,
        rank: u64,
        as_of: AsOf,
        changes: &Changes,
    ) -> Result<Selected> {
        // The last interval that begins with at most so many entries in front of it.
        let (mut low, mut high) = (0, self.version.entries_at_most());
        let (mut from, mut before) = (Vec::new(), 0);
        while low <= high {
            let middle = low + (high - low) / 2;
            let anchor = self.version.anchor_near(middle);
            let in_front = self.count_with(b"", Some(&anchor), changes, as_of)?;
            if in_front <= rank {
                (from, before) = (anchor.to_vec(), in_front);
                low = middle + 1;
            } else if middle == 0 {
                break;
            } else {
                high = middle - 1;
            }
        }
        let mut cursor = Cursor::new(Arc::clone(self), as_of, KeyRange::all());
        cursor.seek(&from)?;
        for _ in before..rank {
            if !cursor.valid() {
                break;
            }
            cursor.next()?;
        }
        Ok(Selected(cursor.valid().then(|| cursor.take_entry()).transpose()?))
    }

    /// Up to `count` different entries of `range`, drawn at random, in order.
    pub(super) fn sample(
        self: &Arc<Self>,
        range: &KeyRange,
        count: usize,
        entropy: &dyn Entropy,
        (as_of, other): (AsOf, OtherMoment),
    ) -> Result<Option<Vec<Entry>>> {
        let (start, end) = range.half_open();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(Some(Vec::new()));
        }
        let as_of = self.judging(as_of);
        let changes = self.changes((b"", None), Detail::Keys, as_of, other)?;
        let Some(changes) = changes else { return Ok(None) };
        let entries = self.count_with(&start, end.as_deref(), &changes, as_of)?;
        let first = self.count_with(b"", Some(&start), &changes, as_of)?;
        let ranks = draw(entries, count as u64, entropy);
        let entries = ranks.into_iter().map(|rank| self.select_with(first + rank, as_of, &changes));
        entries
            .filter_map(|entry| entry.map(|Selected(entry)| entry).transpose())
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Keys that part `range` into up to `count` ranges of about as many entries each, ascending.
    /// By the structure alone: memtables are small against it. Entries that are overwritten or
    /// deleted count until they are consolidated, on both sides of every comparison.
    pub(super) fn split_keys(&self, range: &KeyRange, count: usize) -> Vec<Vec<u8>> {
        let (start, end) = range.half_open();
        let first = self.version.entries_in_front(&start);
        let last = match &end {
            Some(end) => self.version.entries_in_front(end),
            None => self.version.entries_at_most(),
        };
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let entries = u128::from(last.saturating_sub(first));
        for number in 1..count {
            let position = first + (entries * number as u128 / count as u128) as u64;
            let key = self.version.anchor_near(position).to_vec();
            let is_inside = key > start && end.as_ref().is_none_or(|end| key < *end);
            if is_inside && keys.last().is_none_or(|before| *before < key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Number of entries in `range`, where nothing is kept of such numbers.
    fn count_by_walking(&self, range: &KeyRange, as_of: AsOf) -> Result<u64> {
        let mut cursor = Cursor::new(Arc::new(self.clone()), as_of, range.clone());
        let mut count = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            count += 1;
            cursor.next()?;
        }
        Ok(count)
    }

    /// The same, with the now that all of a count judges by.
    pub(super) fn judging(&self, as_of: AsOf) -> AsOf {
        AsOf::of(as_of.at, self.now_of_count(as_of))
    }

    /// Number of entries from `start` to in front of `end`.
    fn count_with(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        changes: &Changes,
        as_of: AsOf,
    ) -> Result<u64> {
        let (of_structure, change) = match changes {
            Changes::Gathered(gathered) => {
                let of_structure = self.structure_count(start, end, &gathered.deleted, as_of)?;
                (of_structure, gathered.between(start, end))
            }
            Changes::Kept(tables) => {
                let sums = tables.iter().map(|table| table.between(start, end));
                (self.version.count(start, end, as_of.judged_now())?, sums.sum())
            }
        };
        Ok(of_structure.saturating_add_signed(change))
    }

    /// Number of entries of the structure from `start` to in front of `end` that no deleted range
    /// hides.
    fn structure_count(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        deleted: &RangeTombstones,
        as_of: AsOf,
    ) -> Result<u64> {
        let now = as_of.judged_now();
        let mut count = self.version.count(start, end, now)?;
        let mut from = start.to_vec();
        while let Some(range) = deleted.first_from(&from) {
            let hidden_from = range.start.max(start);
            if end.is_some_and(|end| hidden_from >= end) {
                break;
            }
            let hidden_to = match (range.end, end) {
                (Some(its_end), Some(end)) => Some(its_end.min(end)),
                (its_end, end) => its_end.or(end),
            };
            count = count.saturating_sub(self.version.count(hidden_from, hidden_to, now)?);
            match range.end {
                Some(end) => from = end.to_vec(),
                None => break,
            }
        }
        Ok(count)
    }

    /// What memtables change in a range: looked up if it is little, else as it is kept, for which
    /// all keys of the memtables are looked up the first time.
    fn changes(
        &self,
        range: (&[u8], Option<&[u8]>),
        detail: Detail,
        as_of: AsOf,
        other: OtherMoment,
    ) -> Result<Option<Changes>> {
        let little = Effort::Keys(LOOKED_UP_MAX);
        if let Some(gathered) = self.gather(range, detail, as_of, little)? {
            return Ok(Some(Changes::Gathered(gathered)));
        }
        // P3: a deleted range changes what older memtables do.
        if !self.tables().any(|table| table.memtable.deletes_ranges()) {
            if let Some(kept) = self.kept_changes(as_of)? {
                return Ok(Some(Changes::Kept(kept)));
            }
            if other == OtherMoment::Refuse {
                return Ok(None);
            }
        }
        Ok(self.gather(range, detail, as_of, Effort::Whatever)?.map(Changes::Gathered))
    }

    fn kept_changes(&self, as_of: AsOf) -> Result<Option<Vec<TableChanges>>> {
        let tables: Vec<Arc<Table>> = self.tables().cloned().collect();
        let mut kept = Vec::with_capacity(tables.len());
        for (index, table) in
            tables.iter().enumerate().filter(|(_, table)| !table.memtable.is_empty())
        {
            let older = &tables[index + 1..];
            // P2
            let from =
                if index > 0 && older.is_empty() { &self.flushed_to } else { &Slice::default() };
            let below = Below { tables: older, version: &*self.version };
            match table.changes(&below, from, as_of, &self.runtime.budget)? {
                Some(changes) => kept.push(changes),
                None => return Ok(None),
            }
        }
        Ok(Some(kept))
    }

    /// Looks up what memtables change in a range, from its start to in front of its end; `None` if
    /// that is more than the effort allows.
    fn gather(
        &self,
        (start, end): (&[u8], Option<&[u8]>),
        detail: Detail,
        as_of: AsOf,
        effort: Effort,
    ) -> Result<Option<Gathered>> {
        let (at, now) = (as_of.at, as_of.judged_now());
        let deleted = self.deleted_ranges(at, None).unwrap_or_default();
        let tables = self.tables().filter(|table| !table.memtable.is_empty());
        let cursors = tables.map(|table| MemtableCursor::new(Arc::clone(&table.memtable), at));
        let mut merged = MergeCursor::new(cursors.collect());
        merged.seek(start)?;
        if let Effort::Keys(count) = effort
            && !is_at_most(&mut merged, count, end)?
        {
            return Ok(None);
        }
        merged.seek(start)?;
        let (mut sums, mut sum) = (Vec::new(), 0);
        while let Some(EntryRef { key, seqno, kind, value }) = merged.entry() {
            if end.is_some_and(|end| key >= end) {
                break;
            }
            let deletion = deleted.covering(key, SeqNo::MAX);
            let is_hidden = deletion.is_some_and(|range| range.seqno > seqno);
            let is_there = Standing::of(kind, value, now).is_there && !is_hidden;
            // A deleted range hides what the structure has, whether there is something newer or
            // not; that is counted with the range.
            let was_there = deletion.is_none() && self.is_in_structure(key, now)?;
            let change = i64::from(is_there) - i64::from(was_there);
            if change != 0 {
                sum += change;
                if detail == Detail::Keys {
                    sums.push((key.to_vec(), sum));
                }
            }
            merged.next()?;
        }
        if detail == Detail::Total {
            sums.push((start.to_vec(), sum));
        }
        Ok(Some(Gathered { sums, deleted }))
    }

    fn is_in_structure(&self, key: &[u8], now: u64) -> Result<bool> {
        let found = self.version.find(key, Want::Value)?;
        Ok(found.is_some_and(|found| Standing::of(found.kind, &found.value, now).is_there))
    }
}

/// `count` different numbers below `end`, or all of them, each set with the same chance, in order
/// (R. Floyd: "A sample of brilliance", Communications of the ACM, 1987).
fn draw(end: u64, count: u64, entropy: &dyn Entropy) -> BTreeSet<u64> {
    let mut drawn = BTreeSet::new();
    for last in end.saturating_sub(count)..end {
        let number = entropy.next_u64() % (last + 1);
        if !drawn.insert(number) {
            drawn.insert(last);
        }
    }
    drawn
}

/// Whether there are at most `count` entries from where the cursor is to in front of `end`.
fn is_at_most(
    cursor: &mut MergeCursor<MemtableCursor>,
    count: usize,
    end: Option<&[u8]>,
) -> Result<bool> {
    for _ in 0..=count {
        match cursor.entry() {
            Some(entry) if end.is_none_or(|end| entry.key < end) => cursor.next()?,
            _ => return Ok(true),
        }
    }
    Ok(false)
}

impl Gathered {
    fn between(&self, start: &[u8], end: Option<&[u8]>) -> i64 {
        let up_to = end.map_or_else(|| self.sum_of(self.sums.len()), |end| self.below(end));
        up_to - self.below(start)
    }

    fn below(&self, key: &[u8]) -> i64 {
        self.sum_of(self.sums.partition_point(|(other, _)| other.as_slice() < key))
    }

    fn sum_of(&self, count: usize) -> i64 {
        count.checked_sub(1).map_or(0, |last| self.sums[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ManualClock;
    use crate::db::{Background, Builder};
    use crate::storage::MemoryStorage;
    use std::time::Duration;

    #[test]
    fn what_is_kept_is_of_use_when_nothing_expires_any_more() {
        let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
        let builder = Builder::default()
            .storage(Arc::new(MemoryStorage::new()))
            .clock(Arc::clone(&clock) as Arc<_>)
            .background(Background::Stepped);
        let db = builder.open("/db").unwrap();
        let k = db.keyspace_or_create("k").unwrap();
        k.put_with_ttl("a", "x", Duration::from_millis(10)).unwrap();
        db.flush().unwrap();
        for number in 0..100_u32 {
            k.put(number.to_be_bytes(), "").unwrap();
        }
        assert_eq!(k.len().unwrap(), 101);
        clock.advance(Duration::from_millis(20));
        while db.step().unwrap() {}
        let (state, as_of) = db.core().moment_of(k.id()).unwrap();
        assert!(!state.may_expire(), "its room was given back");
        let count = state.count(&KeyRange::all(), as_of, OtherMoment::Refuse).unwrap();
        assert_eq!(count, Some(100), "by what was kept");
    }
}
