//! Reading one key: memtables, newest first, then the version.

use std::sync::Arc;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{EntryKind, EntryRef, Expiring, Expiry, RangeTombstones, Result, SeqNo, Slice};
use crate::base::{ValuePointer, expiring_in, is_operands, pointer_in};
use crate::db::iter::Entry;
use crate::db::state::KeyspaceState;
use crate::db::time::AsOf;
use crate::memtable::Memtable;
use crate::structure::{Found, Want};
use crate::value_log::ValueReader;

/// A value as it was found.
#[derive(Debug)]
pub(super) enum OpenValue {
    Whole(Slice),
    InLog(ValueReader),
}

/// What memtables have of a key.
enum InMemtables {
    /// This entry, or that there is none.
    Says(Option<Found>),
    Nothing,
}

/// Bytes of values in value files that the system is told of before they are read.
const VALUES_AHEAD_MAX: u64 = 4 << 20;

impl KeyspaceState {
    /// The newest entry of `key` up to the stamp `at`; may be a tombstone.
    ///
    /// Part of each of its callers: an entry that is handed through calls is copied by each.
    #[inline(always)]
    fn find(&self, key: &[u8], at: SeqNo, want: Want) -> Result<Option<Found>> {
        match self.find_in_memtables(key, at) {
            InMemtables::Says(found) => Ok(found),
            InMemtables::Nothing => self.version.find(key, want),
        }
    }

    #[inline(always)]
    fn find_in_memtables(&self, key: &[u8], at: SeqNo) -> InMemtables {
        let at = if is_seeded(Bug::SnapshotSeesLater) { SeqNo::MAX } else { at };
        // The newest deletion of a range with the key in it, in the memtables so far.
        let mut deleted: Option<SeqNo> = None;
        for table in self.tables() {
            deleted = deleted.max(table.memtable.range_deletion_of(key, at));
            if let Some(EntryRef { seqno, kind, value, .. }) = table.memtable.get(key, at) {
                // What older memtables delete is older than this entry.
                if deleted.is_some_and(|deleted| deleted > seqno) {
                    return InMemtables::Says(None);
                }
                let value = Slice::from(value);
                return InMemtables::Says(Some(Found { seqno: Some(seqno), kind, value }));
            }
        }
        // What the structure has is older than every memtable, or in one of them as well.
        match deleted {
            Some(_) => InMemtables::Says(None),
            None => InMemtables::Nothing,
        }
    }

    /// What the memtables say of `key` as of the stamp `at`; `None` if that is nothing.
    pub(super) fn say_of(&self, key: &[u8], at: SeqNo) -> Option<Option<Found>> {
        match self.find_in_memtables(key, at) {
            InMemtables::Says(found) => Some(found),
            InMemtables::Nothing => None,
        }
    }

    /// The ranges that are deleted as of the stamp `at`, or in the memtable `own`, and still in the
    /// structure or in older memtables.
    pub(super) fn deleted_ranges(
        &self,
        at: SeqNo,
        own: Option<&Memtable>,
    ) -> Option<Arc<RangeTombstones>> {
        let has_own = own.is_some_and(Memtable::deletes_ranges);
        if !has_own && !self.tables().any(|table| table.memtable.deletes_ranges()) {
            return None;
        }
        let own = own.and_then(Memtable::ranges).map(|ranges| (ranges, SeqNo::MAX));
        let of_tables = self.tables().filter_map(|table| Some((table.memtable.ranges()?, at)));
        RangeTombstones::together(own.into_iter().chain(of_tables).collect())
    }

    /// The newest entry of `key`, if it is not a tombstone. It may have expired.
    #[inline(always)]
    fn find_written(&self, key: &[u8], at: SeqNo, want: Want) -> Result<Option<Found>> {
        self.runtime.gets.count(0);
        let found = self.find(key, at, want)?;
        Ok(found.filter(|found| found.kind != EntryKind::Tombstone))
    }

    pub(super) fn get(&self, key: &[u8], as_of: AsOf) -> Result<Option<Slice>> {
        match self.find_written(key, as_of.at, Want::Value)? {
            Some(found) if found.kind != EntryKind::Value => {
                Ok(self.value_elsewhere(key, as_of, found)?.map(|(value, _)| value))
            }
            found => Ok(found.map(|found| found.value)),
        }
    }

    /// The value that a found entry leads to, unless it has expired; and when it expires. Out of
    /// line, so that looking up other values stays small.
    #[cold]
    fn value_elsewhere(
        &self,
        key: &[u8],
        as_of: AsOf,
        found: Found,
    ) -> Result<Option<(Slice, Option<u64>)>> {
        let Some((found, until)) = self.judged(found, as_of) else { return Ok(None) };
        let value = match found.kind {
            EntryKind::Composite => self.merged_value(key, as_of.at, None)?,
            EntryKind::Pointer => self.runtime.values.read(&found.value)?,
            EntryKind::Value | EntryKind::Tombstone => found.value,
        };
        Ok(Some((value, until)))
    }

    /// The value that a found entry leads to, unless it has expired.
    pub(super) fn led_to(&self, key: &[u8], as_of: AsOf, found: Found) -> Result<Option<Slice>> {
        Ok(self.value_elsewhere(key, as_of, found)?.map(|(value, _)| value))
    }

    /// The value that a found entry holds or leads to, and when it expires; `None` if it has.
    pub(super) fn led_to_with_expiry(
        &self,
        key: &[u8],
        as_of: AsOf,
        found: Found,
    ) -> Result<Option<(Slice, Option<u64>)>> {
        self.value_elsewhere(key, as_of, found)
    }

    /// What a found entry holds, and when it expires; `None` if it has.
    fn judged(&self, found: Found, as_of: AsOf) -> Option<(Found, Option<u64>)> {
        let Some(Expiring { until, kind, .. }) = expiring_in(found.kind, &found.value) else {
            return Some((found, None));
        };
        let until_then = match is_seeded(Bug::ExpiredEarly) {
            true => until.saturating_sub(100),
            false => until,
        };
        let is_there = as_of.now(&self.runtime.time) < until_then;
        let value = found.value.behind(Expiring::HEAD_LEN);
        is_there.then(|| (Found { kind, value, ..found }, Some(until)))
    }

    /// The value of `key`, and when it expires.
    pub(super) fn get_with_expiry(
        &self,
        key: &[u8],
        as_of: AsOf,
    ) -> Result<Option<(Slice, Option<u64>)>> {
        match self.find_written(key, as_of.at, Want::Value)? {
            Some(found) if found.kind != EntryKind::Value => {
                self.value_elsewhere(key, as_of, found)
            }
            found => Ok(found.map(|found| (found.value, None))),
        }
    }

    /// When `key` expires, if it is there.
    pub(super) fn expiry(&self, key: &[u8], as_of: AsOf) -> Result<Option<Option<u64>>> {
        let found = self.find_written(key, as_of.at, Want::Value)?;
        Ok(found.and_then(|found| self.judged(found, as_of)).map(|(_, until)| until))
    }

    /// The pointer that the newest entry of `key` holds, if it is one, and can be read.
    pub(super) fn pointer(&self, key: &[u8], at: SeqNo) -> Option<ValuePointer> {
        let found = self.find(key, at, Want::Value).ok()??;
        if is_operands(found.kind, &found.value) {
            return None;
        }
        ValuePointer::decode(pointer_in(found.kind, &found.value)?)
    }

    /// The pointer in the newest entry of `key`, whether it is a value's or of what operands are to
    /// be merged into, and whether it has expired.
    pub(super) fn newest_pointer(&self, key: &[u8]) -> Result<Option<ValuePointer>> {
        let found = self.find(key, SeqNo::MAX, Want::Value)?;
        let pointer =
            |found: Found| pointer_in(found.kind, &found.value).and_then(ValuePointer::decode);
        Ok(found.and_then(pointer))
    }

    /// The value of `key`, to be read in parts if it lies in the value log.
    pub(super) fn open_value(&self, key: &[u8], as_of: AsOf) -> Result<Option<OpenValue>> {
        let found = self.find_written(key, as_of.at, Want::Value)?;
        let Some((found, _)) = found.and_then(|found| self.judged(found, as_of)) else {
            return Ok(None);
        };
        match found.kind {
            EntryKind::Pointer => {}
            EntryKind::Composite => {
                return Ok(Some(OpenValue::Whole(self.merged_value(key, as_of.at, None)?)));
            }
            _ => return Ok(Some(OpenValue::Whole(found.value))),
        }
        let values = &self.runtime.values;
        let pointer = values.decode(&found.value)?;
        Ok(Some(OpenValue::InLog(ValueReader::open(values, &pointer)?)))
    }

    pub(super) fn get_entry(&self, key: &[u8], as_of: AsOf) -> Result<Option<Entry>> {
        let Some(found) = self.find_written(key, as_of.at, Want::Stamp)? else { return Ok(None) };
        let seqno = found.seqno.expect("the stamp was asked for");
        let value = match found.kind {
            EntryKind::Value => Some((found.value, None)),
            _ => self.value_elsewhere(key, as_of, found)?,
        };
        Ok(value.map(|(value, until)| {
            let expiry = Expiry::from_moment(until);
            Entry { key: Slice::from(key), value, seqno, expiry }
        }))
    }

    pub(super) fn contains(&self, key: &[u8], as_of: AsOf) -> Result<bool> {
        let found = self.find_written(key, as_of.at, Want::Value)?;
        Ok(match found {
            Some(found) if found.kind == EntryKind::Composite => {
                self.judged(found, as_of).is_some()
            }
            found => found.is_some(),
        })
    }

    /// Values in the order of the keys asked for. Looked up in key order and all at once, so that
    /// keys that lie together are read together, and what has to come from the disk comes at once.
    pub(super) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        as_of: AsOf,
    ) -> Result<Vec<Option<Slice>>> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|&a, &b| keys[a].as_ref().cmp(keys[b].as_ref()));
        let found = self.find_many(order.iter().map(|index| keys[*index].as_ref()), as_of.at)?;
        let mut announced = 0;
        let mut values = vec![None; keys.len()];
        for (position, index) in order.into_iter().enumerate() {
            if position >= announced {
                announced = self.announce_values(&found, position);
            }
            let Some(found) = found[position].clone() else { continue };
            values[index] = match found.kind {
                EntryKind::Tombstone => None,
                EntryKind::Value => Some(found.value),
                _ => {
                    let value = self.value_elsewhere(keys[index].as_ref(), as_of, found)?;
                    value.map(|(value, _)| value)
                }
            };
        }
        Ok(values)
    }

    /// The newest entries of keys that ascend.
    fn find_many<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        at: SeqNo,
    ) -> Result<Vec<Option<Found>>> {
        let mut found = Vec::with_capacity(keys.len());
        // Keys that the memtables say nothing of, and their places.
        let (mut left, mut places) = (Vec::new(), Vec::new());
        for key in keys {
            self.runtime.gets.count(0);
            match self.find_in_memtables(key, at) {
                InMemtables::Says(entry) => found.push(entry),
                InMemtables::Nothing => {
                    left.push(key);
                    places.push(found.len());
                    found.push(None);
                }
            }
        }
        let mut in_version = vec![None; left.len()];
        self.version.find_many(&left, &mut in_version)?;
        for (place, entry) in places.into_iter().zip(in_version) {
            found[place] = entry;
        }
        Ok(found)
    }

    /// Has the system begin to read the values that entries from `first` on lead to, up to so many
    /// bytes; where it has come to.
    fn announce_values(&self, found: &[Option<Found>], first: usize) -> usize {
        let mut pointers = Vec::new();
        let (mut end, mut bytes) = (first, 0);
        while end < found.len() && bytes < VALUES_AHEAD_MAX {
            let pointer = found[end]
                .as_ref()
                .and_then(|found| ValuePointer::decode(pointer_in(found.kind, &found.value)?));
            bytes += pointer.as_ref().map_or(0, |pointer| u64::from(pointer.len));
            pointers.extend(pointer);
            end += 1;
        }
        if pointers.len() > 1 {
            self.runtime.values.begin_reading(pointers);
        }
        end
    }
}
