//! A version: the runs of one moment, and reading them.

use std::collections::BTreeMap;

use super::cursor::LsmCursor;
use super::index::{Index, Run};
use super::merge::{Merged, deletes_ranges, deletions_of, rank_of};
use super::passing::PassingCursor;
use super::table::{ReadMode, Sought, SoughtHead, Table, TableCaches};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::{Arc, OnceLock, Weak};
use crate::base::version_key::{behind_keys, stamp_of_bound};
use crate::base::{
    EntryKind, EntryRef, KeyRange, RangeTombstones, Result, SeqNo, Slice, StripedCounters,
    hash_key, is_operands, prefix_successor,
};
use crate::memory::Heap;
use crate::structure::fold::Folder;
use crate::structure::{Found, StructureCursor, Version, WalkCursor, Want};

/// Whether all that a table has is known to be newer.
fn is_newer(table: &Table, newest: SeqNo) -> bool {
    // Of one that was made outside, the entries do not say their stamps.
    table.record.stamp.is_none() && table.record.oldest > newest
}

/// Whether a table may have something that is not older.
fn may_have_since(table: &Table, stamp: SeqNo) -> bool {
    table.record.stamp.is_some() || table.record.newest >= stamp
}

/// What versions of a keyspace read with.
#[derive(Debug)]
pub(super) struct Reader {
    pub caches: Arc<TableCaches>,
    pub folder: Folder,
    /// Bytes of the prefixes that filters know; 0 for none.
    pub filter_prefix_len: usize,
    /// Whether filters know keys without their ends.
    pub filters_know_heads: bool,
    /// How often a seek has looked into a run beside the first.
    pub extra_seeks: StripedCounters<1>,
}

/// An immutable state of the store.
#[derive(Debug)]
pub(super) struct LsmVersion {
    /// The newest first (L2).
    pub runs: Vec<Run>,
    pub reader: Arc<Reader>,
    pub value_bytes: Arc<BTreeMap<u64, u64>>,
    /// Whether any table deletes ranges.
    deletes_ranges: bool,
    /// What the runs delete, once that was asked for.
    deleted: OnceLock<Option<Arc<RangeTombstones>>>,
    /// For cursors, which hold the version.
    own: Weak<LsmVersion>,
}

impl LsmVersion {
    pub(super) fn new(index: &Index, reader: &Arc<Reader>) -> Arc<LsmVersion> {
        let deletes_ranges = index.tables().any(|(_, table)| deletes_ranges(table));
        let mut runs = index.runs.clone();
        if is_seeded(Bug::OlderRunWins) {
            runs.reverse();
        }
        Arc::new_cyclic(|own| LsmVersion {
            runs,
            reader: Arc::clone(reader),
            value_bytes: Arc::new(index.value_bytes.clone()),
            deletes_ranges,
            deleted: OnceLock::new(),
            own: Weak::clone(own),
        })
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.reader.folder
    }

    pub(super) fn heap(&self) -> &Arc<Heap> {
        self.reader.caches.blocks.budget().heap()
    }

    /// What the runs delete, with their ranks.
    pub(super) fn deleted(&self) -> Result<Option<&Arc<RangeTombstones>>> {
        if !self.deletes_ranges {
            return Ok(None);
        }
        if let Some(deleted) = self.deleted.get() {
            return Ok(deleted.as_ref());
        }
        let deleted = deletions_of(&self.runs, &self.reader.caches)?;
        Ok(self.deleted.get_or_init(|| deleted).as_ref())
    }

    /// Whether any run may have an entry of `key`, by the filters.
    pub(super) fn may_have(&self, key: &[u8]) -> Result<bool> {
        let hash = hash_key(key);
        for table in self.runs.iter().filter_map(|run| run.table_of(key)) {
            if table.may_contain(&self.reader.caches, key, hash)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All runs as one.
    pub(super) fn merged(&self, mode: ReadMode) -> Result<Merged> {
        let deleted = self.deleted()?.cloned();
        Ok(Merged::new(&self.runs, deleted, &self.reader.caches, mode))
    }

    /// The runs that may have anything from `start` to in front of `end` as one: by their spans,
    /// and where all keys there begin alike by the filters, if these know so long a prefix.
    pub(super) fn merged_within(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        mode: ReadMode,
    ) -> Result<Merged> {
        if self.deletes_ranges && !self.has_keys_alone(end) {
            return self.merged(mode); // Ranks count all runs.
        }
        if self.runs.len() < 2 {
            return Ok(Merged::new(&self.runs, None, &self.reader.caches, mode));
        }
        let prefix = start.get(..self.reader.filter_prefix_len).filter(|prefix| {
            let behind = prefix_successor(prefix);
            !prefix.is_empty()
                && end.is_some_and(|end| behind.as_deref().is_none_or(|behind| end <= behind))
        });
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let tables = run.overlapping(start, end);
            let mut may_have = !tables.is_empty();
            if let Some(prefix) = prefix {
                let caches = &self.reader.caches;
                may_have = false;
                for table in tables {
                    may_have = may_have || table.may_contain_prefix(caches, prefix)?;
                }
            }
            if may_have {
                runs.push(run.clone());
            }
        }
        Ok(Merged::new(&runs, None, &self.reader.caches, mode))
    }

    /// As [`LsmVersion::merged_within`], with what tables have that are newer than `newest` left
    /// out, where it hides nothing.
    pub(super) fn merged_up_to(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        newest: SeqNo,
    ) -> Result<Merged> {
        if !self.has_keys_alone(end) {
            return self.merged_within(start, end, ReadMode::Ahead);
        }
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let tables =
                run.overlapping(start, end).iter().filter(|table| !is_newer(table, newest));
            let tables: Arc<[_]> = tables.map(Arc::clone).collect();
            if !tables.is_empty() {
                runs.push(Run { tables, ..run.clone() });
            }
        }
        Ok(Merged::new(&runs, None, &self.reader.caches, ReadMode::Ahead))
    }

    /// Whether what lies in front of `end` is entries of an archive by key: these are never hidden,
    /// as it deletes ranges of stamps alone, which are behind all keys.
    fn has_keys_alone(&self, end: Option<&[u8]>) -> bool {
        self.reader.filters_know_heads && end.is_some_and(|end| *end <= *behind_keys())
    }

    /// The first entry from `from` to in front of `end` whose key is this head and an end that
    /// filters leave out: of an archive, which hides none. A search of each run that may have it.
    fn first_of_head(
        &self,
        (from, end): (&[u8], &[u8]),
        head: &[u8],
    ) -> Result<Option<(Slice, Found)>> {
        let sought = SoughtHead { from, head_len: head.len(), hash: hash_key(head), behind: end };
        let newest = stamp_of_bound(&from[head.len()..]);
        let mut first: Option<(Slice, Found)> = None;
        for run in &self.runs {
            for table in run.overlapping(from, Some(end)) {
                let is_older = |stamp: SeqNo| !may_have_since(table, stamp);
                let found = first.as_ref().and_then(|(_, found)| found.seqno);
                if newest.is_some_and(|newest| is_newer(table, newest))
                    || found.is_some_and(is_older)
                {
                    continue;
                }
                if let Some(found) = table.first_of_head(&self.reader.caches, sought)? {
                    if first.as_ref().is_none_or(|(key, _)| found.0 < *key) {
                        first = Some(found);
                    }
                    break; // What is behind has older ones.
                }
            }
        }
        Ok(first)
    }

    /// How many of the newest runs may have something of `key` that no newer run's deleted range
    /// hides.
    #[cold]
    fn visible_runs(&self, key: &[u8]) -> Result<usize> {
        let range = self.deleted()?.and_then(|deleted| deleted.covering(key, SeqNo::MAX));
        // A range of rank r hides what runs of lower ranks have.
        Ok(range.map_or(self.runs.len(), |range| {
            (0..self.runs.len())
                .take_while(|position| rank_of(*position, self.runs.len()) >= range.seqno)
                .count()
        }))
    }

    /// Operands that were found in a run, on top of what the older ones have of the key.
    #[cold]
    fn stack_over(&self, newest: &Found, older: &[Run], key: &[u8], hash: u64) -> Result<Found> {
        let mut bytes = newest.value.to_vec();
        for table in older.iter().filter_map(|run| run.table_of(key)) {
            if !self.folder().decode(&bytes)?.is_open() {
                break;
            }
            if let Some(found) = table.find(&self.reader.caches, key, hash)? {
                bytes = self.folder().over(&bytes, found.kind, &found.value)?;
            }
        }
        Ok(Found { value: Slice::from(bytes), ..*newest })
    }
}

impl Version for LsmVersion {
    fn find(&self, key: &[u8], _: Want) -> Result<Option<Found>> {
        let hash = hash_key(key);
        let runs = match self.deletes_ranges {
            true => &self.runs[..self.visible_runs(key)?],
            false => self.runs.as_slice(),
        };
        for (position, run) in runs.iter().enumerate() {
            let Some(table) = run.table_of(key) else { continue };
            let Some(found) = table.find(&self.reader.caches, key, hash)? else { continue };
            if found.kind == EntryKind::Composite && is_operands(found.kind, &found.value) {
                return self.stack_over(&found, &runs[position + 1..], key, hash).map(Some);
            }
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// A run after the other, a table after the other.
    fn find_many(&self, keys: &[&[u8]], found: &mut [Option<Found>]) -> Result<()> {
        if self.deletes_ranges {
            // Each key has runs of its own that are seen.
            for (key, found) in keys.iter().zip(found) {
                *found = self.find(key, Want::Value)?;
            }
            return Ok(());
        }
        let mut sought = Vec::with_capacity(keys.len());
        for (position, key) in keys.iter().enumerate() {
            sought.push(Sought { key, hash: hash_key(key), position });
        }
        for run in &self.runs {
            let mut rest = sought.as_slice();
            while let Some(first) = rest.first() {
                let Some(table) = run.table_of(first.key) else {
                    rest = &rest[1..];
                    continue;
                };
                let count = rest.partition_point(|sought| !table.record.ends_by(sought.key));
                table.find_many(&self.reader.caches, &rest[..count], found)?;
                rest = &rest[count..];
            }
            sought.retain(|sought| found[sought.position].is_none());
            if sought.is_empty() {
                break;
            }
        }
        for (key, found) in keys.iter().zip(found) {
            let is_stack = |found: &Found| is_operands(found.kind, &found.value);
            if found.as_ref().is_some_and(is_stack) {
                *found = self.find(key, Want::Value)?; // With what is below.
            }
        }
        Ok(())
    }

    /// A seek of each run that has anything there, and no more.
    fn first_with_prefix(&self, from: &[u8], prefix_len: usize) -> Result<Option<(Slice, Found)>> {
        let prefix = &from[..prefix_len];
        let end = prefix_successor(prefix);
        let mut merged = match end.as_deref() {
            Some(end) if self.has_keys_alone(Some(end)) => {
                let found = self.first_of_head((from, end), prefix)?;
                if found.as_ref().is_none_or(|(_, found)| found.kind != EntryKind::Tombstone) {
                    return Ok(found);
                }
                self.merged_within(from, Some(end), ReadMode::Normal)?
            }
            end => self.merged_within(from, end, ReadMode::Normal)?,
        };
        merged.seek(from)?;
        while let Some(entry) = merged.entry() {
            if !entry.key.starts_with(prefix) {
                break;
            }
            if entry.kind != EntryKind::Tombstone && !merged.is_hidden() {
                let EntryRef { key, seqno, kind, value } = entry;
                let value = merged.share(value);
                return Ok(Some((Slice::from(key), Found { seqno: Some(seqno), kind, value })));
            }
            merged.next()?;
        }
        Ok(None)
    }

    fn cursor(&self, range: &KeyRange) -> Box<dyn StructureCursor> {
        let own = self.own.upgrade().expect("who asks holds it");
        Box::new(LsmCursor::new(own, range))
    }

    fn passing_cursor(&self, range: &KeyRange, newest: SeqNo) -> Box<dyn WalkCursor> {
        let own = self.own.upgrade().expect("who asks holds it");
        Box::new(PassingCursor::new(own, range, newest))
    }

    fn key_in_front(&self, key: &[u8], newest: SeqNo, blocks: usize) -> Result<Slice> {
        let mut found = Slice::default();
        for run in &self.runs {
            // Those that begin with it have nothing in front.
            let count = run.tables.partition_point(|table| &*table.record.first < key);
            let mut tables = run.tables[..count].iter().rev();
            if let Some(table) = tables.find(|table| !is_newer(table, newest)) {
                let in_front = table.key_in_front(&self.reader.caches, key, blocks)?;
                found = found.max(in_front);
            }
        }
        Ok(found)
    }

    fn count(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64> {
        self.live_between(start, end, now)
    }

    fn expiring_count(&self) -> u64 {
        let tables = self.runs.iter().flat_map(|run| run.tables.iter());
        let spans = tables.filter_map(|table| table.record.expiring);
        spans.map(|span| u64::from(span.count)).sum()
    }

    fn entries_at_most(&self) -> u64 {
        let tables = self.runs.iter().flat_map(|run| run.tables.iter());
        tables.map(|table| table.record.entry_count).sum()
    }

    fn entries_in_front(&self, key: &[u8]) -> u64 {
        self.entries_before(key)
    }

    fn anchor_near(&self, position: u64) -> Slice {
        self.key_near(position)
    }
}
