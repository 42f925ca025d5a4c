//! A store in small: tables of numbers, flushed and compacted as [`pick`] says, and read.
//!
//! [`pick`]: crate::structure::lsm::pick::pick

use std::collections::HashMap;

use crate::base::Slice;
use crate::structure::lsm::pick::{
    CompactionPolicy, Pick, Span, TableFigures, VersionFigures, level0_cuts, output_table_size,
};

/// Bytes of an entry with a value, as of workload W3 with what a block adds.
pub const ENTRY_SIZE: u64 = 120;
/// Bytes of a tombstone.
const TOMBSTONE_SIZE: u64 = 24;
/// Bytes of a table that only has deleted ranges.
const TABLE_SIZE_MIN: u64 = 100;

/// The entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: u32,
    /// Which write it was.
    pub stamp: u64,
    pub is_tombstone: bool,
}

/// Keys from the first on to in front of the second were deleted.
pub type DeletedRange = (u32, u32);

/// What a table holds.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub entries: Vec<Entry>,
    pub ranges: Vec<DeletedRange>,
}

/// What is known about older entries that a table hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// How many there are.
    Exact,
    /// Nothing.
    None,
}

/// A version, and what its tables hold.
#[derive(Debug)]
pub struct Model {
    pub policy: CompactionPolicy,
    pub hints: Hints,
    pub version: VersionFigures,
    pub contents: HashMap<u64, Content>,
    pub running: Vec<Started>,
    next_number: u64,
    /// Bytes of tables written by flushes, and by compactions.
    pub flushed: u64,
    pub compacted: u64,
}

/// A compaction that was begun: what comes of it is known, but not installed.
#[derive(Clone, Debug)]
pub struct Started {
    pub pick: Pick,
    outcome: Vec<(TableFigures, Content)>,
}

pub fn key_slice(key: u32) -> Slice {
    Slice::from(&key.to_be_bytes()[..])
}

fn key_of(slice: &Slice) -> u32 {
    u32::from_be_bytes((**slice).try_into().expect("keys of the model have four bytes"))
}

impl Content {
    fn size(&self) -> u64 {
        let sizes = self.entries.iter();
        let sizes = sizes.map(|e| if e.is_tombstone { TOMBSTONE_SIZE } else { ENTRY_SIZE });
        sizes.sum::<u64>().max(TABLE_SIZE_MIN)
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ranges.is_empty()
    }

    /// Whether there are entries of both between the first and the last of either.
    fn overlaps(&self, other: &Content) -> bool {
        let ends = |content: &Content| {
            let keys = content.entries.first().zip(content.entries.last());
            let ranges = content.ranges.first().zip(content.ranges.last());
            let firsts = keys.map(|(first, _)| first.key).into_iter();
            let lasts = keys.map(|(_, last)| last.key).into_iter();
            let first = firsts.chain(ranges.map(|(first, _)| first.0)).min();
            let last = lasts.chain(ranges.map(|(_, last)| last.1)).max();
            first.zip(last)
        };
        match (ends(self), ends(other)) {
            (Some(left), Some(right)) => left.0 <= right.1 && right.0 <= left.1,
            _ => false,
        }
    }

    pub fn find(&self, key: u32) -> Option<Entry> {
        let index = self.entries.binary_search_by_key(&key, |entry| entry.key).ok()?;
        Some(self.entries[index])
    }

    pub fn deletes(&self, key: u32) -> bool {
        self.ranges.iter().any(|(start, end)| (*start..*end).contains(&key))
    }

    fn figures(&self, number: u64, hides: u64) -> TableFigures {
        let firsts = self.entries.first().map(|entry| entry.key);
        let firsts = firsts.into_iter().chain(self.ranges.iter().map(|range| range.0));
        let ends = self.entries.last().map(|entry| entry.key + 1);
        let ends = ends.into_iter().chain(self.ranges.iter().map(|range| range.1));
        TableFigures {
            number,
            first: key_slice(firsts.min().expect("not empty")),
            end: Some(key_slice(ends.max().expect("not empty"))),
            size: self.size(),
            entry_count: self.entries.len() as u64,
            tombstones: self.entries.iter().filter(|entry| entry.is_tombstone).count() as u64,
            deleted_ranges: self.ranges.len() as u32,
            expired: 0,
            hides,
            is_unsieved: false,
        }
    }
}

impl Model {
    pub fn new(policy: CompactionPolicy, hints: Hints) -> Model {
        Model {
            policy,
            hints,
            version: VersionFigures::default(),
            contents: HashMap::new(),
            running: Vec::new(),
            next_number: 1,
            flushed: 0,
            compacted: 0,
        }
    }

    /// The newest entry of a key; `None` when there is none, or a deleted range hides it.
    pub fn find(&self, key: u32) -> Option<Entry> {
        let span = Span { first: key_slice(key), end: Some(key_slice(key + 1)) };
        for run in self.version.level0.iter().chain(&self.version.levels) {
            let behind = run.partition_point(|table| table.first <= span.first);
            let Some(table) = run[..behind].last().filter(|table| table.span().overlaps(&span))
            else {
                continue;
            };
            let content = &self.contents[&table.number];
            if let Some(found) = content.find(key) {
                return (!found.is_tombstone).then_some(found);
            }
            if content.deletes(key) {
                return None;
            }
        }
        None
    }

    /// Flushes a memtable: ascending entries, deleted ranges that are disjoint and ascend.
    pub fn flush(&mut self, content: &Content) {
        let size = content.size();
        let cuts = level0_cuts(&self.version, &self.policy, size);
        assert!(cuts.is_sorted_by(|left, right| left < right), "{cuts:?}");
        let older: Vec<u64> = self.version.tables().map(|table| table.number).collect();
        let table_size = output_table_size(&self.version, &self.policy, size);
        let tables = self.build(content, &cuts, table_size, &older);
        self.flushed += tables.iter().map(|(table, _)| table.size).sum::<u64>();
        let run = self.add(tables);
        if !run.is_empty() {
            self.version.level0.insert(0, run);
        }
    }

    /// Begins what was picked; it is read now, and takes place with [`Model::install`].
    pub fn start(&mut self, pick: Pick) {
        let mut outcome = Vec::new();
        if !pick.is_move {
            let merged = self.merge(&pick);
            let cuts = match pick.output_level {
                0 => level0_cuts(&self.version, &self.policy, merged.size()),
                _ => Vec::new(),
            };
            let size = output_table_size(&self.version, &self.policy, merged.size());
            if !merged.is_empty() {
                outcome = self.build(&merged, &cuts, size, &pick.older);
            }
            for (table, _) in &outcome {
                assert_eq!(pick.span.clone().hull(&table.span()), pick.span, "{pick:?} {table:?}");
            }
        }
        self.running.push(Started { pick, outcome });
    }

    /// Puts the outcome of a compaction in place of its inputs.
    pub fn install(&mut self, index: usize) {
        let Started { pick, outcome } = self.running.remove(index);
        self.compacted += outcome.iter().map(|(table, _)| table.size).sum::<u64>();
        let is_input = |table: &TableFigures| pick.inputs.contains(&table.number);
        let oldest = self.version.level0.iter().rposition(|run| run.iter().any(is_input));
        let mut taken: Vec<TableFigures> = Vec::new();
        for run in self.version.level0.iter_mut().chain(&mut self.version.levels) {
            taken.extend(run.extract_if(.., |table| is_input(table)));
        }
        assert_eq!(taken.len(), pick.inputs.len(), "inputs went away: {pick:?}");
        let added = if pick.is_move { taken.clone() } else { self.add(outcome) };
        match pick.output_level {
            0 => {
                let place = oldest.expect("the inputs of a merge within level 0 lie there");
                join(&mut self.version.level0[place], added);
            }
            level => join(&mut self.version.levels[usize::from(level) - 1], added),
        }
        if !pick.is_move {
            for table in &taken {
                self.contents.remove(&table.number);
            }
        }
        self.version.level0.retain(|run| !run.is_empty());
    }

    /// What is left of the inputs of a compaction when the newest entry of each key wins.
    fn merge(&self, pick: &Pick) -> Content {
        let inputs: Vec<&Content> =
            pick.inputs.iter().map(|number| &self.contents[number]).collect();
        let older: Vec<&TableFigures> =
            self.version.tables().filter(|table| pick.older.contains(&table.number)).collect();
        let is_under = |first: u32, end: u32| {
            let span = Span { first: key_slice(first), end: Some(key_slice(end)) };
            older.iter().any(|table| table.span().overlaps(&span))
        };
        let mut ranked: Vec<(u32, usize, Entry)> = Vec::new();
        for (rank, content) in inputs.iter().enumerate() {
            ranked.extend(content.entries.iter().map(|entry| (entry.key, rank, *entry)));
        }
        ranked.sort_by_key(|(key, rank, _)| (*key, *rank));
        ranked.dedup_by_key(|(key, ..)| *key);
        let has_ranges = inputs.iter().any(|content| !content.ranges.is_empty());
        let mut merged = Content::default();
        for (key, rank, entry) in ranked {
            let newer = || inputs[..rank].iter();
            // A range says nothing about the table that it is in, nor about its run.
            let is_hidden = has_ranges && newer().any(|content| content.deletes(key));
            let is_needed = !entry.is_tombstone || is_under(key, key + 1);
            if !is_hidden && is_needed {
                merged.entries.push(entry);
            }
        }
        let mut ranges: Vec<DeletedRange> =
            inputs.iter().flat_map(|content| content.ranges.iter().copied()).collect();
        ranges.sort_unstable();
        for (start, end) in ranges {
            match merged.ranges.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.ranges.push((start, end)),
            }
        }
        merged.ranges.retain(|(start, end)| is_under(*start, *end));
        merged
    }

    /// Tables of a run, cut at `cuts` and wherever one has `table_size` bytes.
    fn build(
        &mut self,
        content: &Content,
        cuts: &[Slice],
        table_size: u64,
        older: &[u64],
    ) -> Vec<(TableFigures, Content)> {
        let mut cuts: Vec<u32> = cuts.iter().map(key_of).collect();
        let mut size = 0;
        for entry in &content.entries {
            if size >= table_size || cuts.binary_search(&entry.key).is_ok() {
                size = 0;
                cuts.push(entry.key);
                cuts.sort_unstable();
            }
            size += if entry.is_tombstone { TOMBSTONE_SIZE } else { ENTRY_SIZE };
        }
        cuts.push(u32::MAX);
        cuts.sort_unstable();
        cuts.dedup();
        let mut tables = Vec::new();
        let mut from = 0;
        for to in cuts {
            let part = content.part(from, to);
            from = to;
            if !part.is_empty() {
                let hides = self.hidden_by(&part, older);
                tables.push((part.figures(self.next_number, hides), part));
                self.next_number += 1;
            }
        }
        tables
    }

    /// Entries of the tables `older` that are hidden.
    fn hidden_by(&self, content: &Content, older: &[u64]) -> u64 {
        if self.hints == Hints::None {
            return content.entries.len() as u64;
        }
        let older: Vec<&Content> = older
            .iter()
            .filter_map(|number| self.contents.get(number))
            .filter(|table| table.overlaps(content))
            .collect();
        let older = || older.iter();
        let by_key = content
            .entries
            .iter()
            .filter(|entry| older().any(|table| table.find(entry.key).is_some()));
        let by_ranges = content.ranges.iter().map(|(start, end)| {
            let counts = older().map(|table| {
                let below = |key| table.entries.partition_point(|entry| entry.key < key);
                below(*end) - below(*start)
            });
            counts.sum::<usize>()
        });
        (by_key.count() + by_ranges.sum::<usize>()) as u64
    }

    fn add(&mut self, tables: Vec<(TableFigures, Content)>) -> Vec<TableFigures> {
        let added = tables.into_iter().map(|(table, content)| {
            self.contents.insert(table.number, content);
            table
        });
        added.collect()
    }

    /// Bytes of all tables.
    pub fn size(&self) -> u64 {
        self.version.size()
    }

    /// Bytes on the disk: those of compactions that are not installed among them.
    pub fn size_with_running(&self) -> u64 {
        let unfinished = self.running.iter().flat_map(|started| &started.outcome);
        self.size() + unfinished.map(|(table, _)| table.size).sum::<u64>()
    }

    /// Checks what must hold of every version.
    pub fn check(&self) {
        for run in self.version.level0.iter().chain(&self.version.levels) {
            for pair in run.windows(2) {
                assert!(!pair[0].span().overlaps(&pair[1].span()), "{pair:?}");
                assert!(pair[0].first < pair[1].first, "{pair:?}");
            }
        }
        assert_eq!(self.version.tables().count(), self.contents.len());
        let mut busy: Vec<u64> =
            self.running.iter().flat_map(|started| started.pick.inputs.clone()).collect();
        let count = busy.len();
        busy.sort_unstable();
        busy.dedup();
        assert_eq!(busy.len(), count, "a table is merged twice");
    }

    /// The picks of what runs.
    pub fn running_picks(&self) -> Vec<Pick> {
        self.running.iter().map(|started| started.pick.clone()).collect()
    }

    /// Runs that a read looks into at most.
    pub fn run_count(&self) -> usize {
        let levels = self.version.levels.iter().filter(|run| !run.is_empty());
        self.version.level0.len() + levels.count()
    }
}

impl Content {
    /// What of it lies from a key on to in front of another.
    fn part(&self, from: u32, to: u32) -> Content {
        let below = |key| self.entries.partition_point(|entry| entry.key < key);
        let clipped = self.ranges.iter().map(|(start, end)| (*start.max(&from), *end.min(&to)));
        Content {
            entries: self.entries[below(from)..below(to)].to_vec(),
            ranges: clipped.filter(|(start, end)| start < end).collect(),
        }
    }
}

/// Puts tables into a run that they do not overlap.
fn join(run: &mut Vec<TableFigures>, added: Vec<TableFigures>) {
    run.extend(added);
    run.sort_by(|left, right| left.first.cmp(&right.first));
}
