//! Order statistics of a version.
//!
//! Where one run alone has anything, and neither deletions nor what has expired, entries are
//! counted by the sums in the tables' indexes. Elsewhere runs are merged, and counted one by one.

use super::index::Run;
use super::table::{ReadMode, Table};
use super::version::LsmVersion;
use crate::base::{EntryKind, Result, Slice, is_expired};

impl LsmVersion {
    /// Number of live entries from `start` to in front of `end`, or to the last, that have not
    /// expired by `now`. O(tables), and a block at each end, where one run has all of it; else
    /// O(entries).
    pub(super) fn live_between(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64> {
        if end.is_some_and(|end| end <= start) {
            return Ok(0);
        }
        let mut with_some = self.runs.iter().filter(|run| !run.overlapping(start, end).is_empty());
        let Some(first) = with_some.next() else { return Ok(0) };
        if with_some.next().is_none()
            && let Some(count) = self.count_in_run(first, start, end, now)?
        {
            return Ok(count);
        }
        self.count_merged(start, end, now)
    }

    /// By the sums of the one run that has anything there; `None` where they do not say it.
    fn count_in_run(
        &self,
        run: &Run,
        start: &[u8],
        end: Option<&[u8]>,
        now: u64,
    ) -> Result<Option<u64>> {
        let is_plain = |table: &Table| {
            let expiring = table.record.expiring;
            table.record.tombstones == 0 && expiring.is_none_or(|span| span.first > now)
        };
        let tables = run.overlapping(start, end);
        if !tables.iter().all(|table| is_plain(table)) {
            return Ok(None);
        }
        let mut count = 0;
        for table in tables {
            let record = &table.record;
            let below_end = match end {
                Some(end) if record.end.as_ref().is_none_or(|its_end| end < &**its_end) => {
                    table.rank(&self.reader.caches, end)?
                }
                _ => record.entry_count,
            };
            let below_start = match start > &*record.first {
                true => table.rank(&self.reader.caches, start)?,
                false => 0,
            };
            count += below_end - below_start;
        }
        Ok(Some(count))
    }

    fn count_merged(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64> {
        let mut merged = self.merged(ReadMode::Passing)?;
        merged.seek(start)?;
        let mut count = 0;
        while let Some(entry) = merged.entry() {
            if end.is_some_and(|end| entry.key >= end) {
                break;
            }
            let is_gone = entry.kind == EntryKind::Tombstone
                || is_expired(entry.kind, entry.value, now)
                || merged.is_hidden();
            count += u64::from(!is_gone);
            merged.next()?;
        }
        Ok(count)
    }

    /// How many entries are in front of about where `key` is, those that are overwritten counted;
    /// rises with `key`. Reads nothing.
    pub(super) fn entries_before(&self, key: &[u8]) -> u64 {
        let before = |run: &Run| -> u64 {
            let tables = run.tables.iter().take_while(|table| &*table.record.first <= key);
            tables.map(|table| table.entries_in_front(key)).sum()
        };
        self.runs.iter().map(before).sum()
    }

    /// A key in front of which there are at most `position` entries by [`Self::entries_before`],
    /// and about as many. By bisection over the largest run that has any.
    pub(super) fn key_near(&self, position: u64) -> Slice {
        let entries =
            |run: &&Run| -> u64 { run.tables.iter().map(|table| table.record.entry_count).sum() };
        let Some(run) = self.runs.iter().max_by_key(entries) else { return Slice::default() };
        // Through the tables, then within one.
        let count = run
            .tables
            .partition_point(|table| self.entries_before(&table.record.first) <= position);
        let Some(table) = count.checked_sub(1).map(|last| &run.tables[last]) else {
            return Slice::default();
        };
        let (mut low, mut high) = (0, table.record.entry_count);
        let mut found = table.record.first.clone();
        while low < high {
            let middle = low + (high - low) / 2;
            let key = table.anchor_near(middle);
            if self.entries_before(&key) <= position {
                found = found.max(key);
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found
    }
}
