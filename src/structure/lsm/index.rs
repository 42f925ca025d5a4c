//! The index: which tables there are, and its durable form.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::record::{Counters, Decoder, EditRecord, Encoder, PlacedTable, RunPlace, TableParts};
use super::table::{Table, TablePlace};
use crate::base::{Error, Result};
use crate::manifest::{EditLog, EditLogId, LogPosition, OpenReport, Record, RecordRef};
use crate::manifest::{is_log_name, read_edit_log};
use crate::storage::Storage;

/// Tells the index logs of this structure from the other edit logs.
const LOG_KIND: u32 = 4;
const LOG_STEM: &str = "tables";
/// Room for edits behind a snapshot, at least.
const EDIT_ROOM_MIN: u64 = 32 << 10;

/// Tables that make one sorted sequence (L1).
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub place: RunPlace,
    /// Ascending.
    pub tables: Arc<[Arc<Table>]>,
}

impl Run {
    /// The table whose span `key` lies in.
    #[inline]
    pub(super) fn table_of(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let table = &self.tables[self.position_of(key).checked_sub(1)?];
        table.record.end.as_ref().is_none_or(|end| key < &**end).then_some(table)
    }

    /// Number of tables that begin with `key` or in front of it.
    #[inline]
    fn position_of(&self, key: &[u8]) -> usize {
        self.tables.partition_point(|table| &*table.record.first <= key)
    }

    /// The tables that have anything from `start` to in front of `end`.
    pub(super) fn overlapping(&self, start: &[u8], end: Option<&[u8]>) -> &[Arc<Table>] {
        let ends_by = |table: &Arc<Table>| {
            table.record.end.as_ref().is_some_and(|its_end| &**its_end <= start)
        };
        let first = self.tables.partition_point(ends_by);
        let rest = &self.tables[first..];
        let count = rest.partition_point(|table| end.is_none_or(|end| &*table.record.first < end));
        &rest[..count]
    }

    pub(super) fn size(&self) -> u64 {
        self.tables.iter().map(|table| table.record.size).sum()
    }
}

/// The state of a keyspace's structure, as of the last durable edit.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// The newest first (L2); none is empty.
    pub runs: Vec<Run>,
    pub counters: Counters,
    /// Bytes of records that tables point to, by value file.
    pub value_bytes: BTreeMap<u64, u64>,
}

/// Whether a file of this name is the index of a keyspace.
#[must_use]
pub fn is_index_name(name: &str) -> bool {
    is_log_name(LOG_STEM, name)
}

/// The id of a keyspace's index log.
pub(super) fn log_id(place: &TablePlace) -> EditLogId {
    EditLogId {
        stem: LOG_STEM,
        kind: LOG_KIND,
        database: place.database(),
        owner: u64::from(place.keyspace()),
    }
}

impl Index {
    /// The index of an empty keyspace.
    fn empty() -> Index {
        let counters = Counters { next_table: 1, next_run: 1, ..Counters::default() };
        Index { counters, ..Index::default() }
    }

    /// Creates the durable form of an empty index.
    pub(super) fn create_log(storage: Arc<dyn Storage>, place: &TablePlace) -> Result<EditLog> {
        let index = Index::empty();
        EditLog::create(storage, place.dir(), log_id(place), 1, EDIT_ROOM_MIN, |sink| {
            index.snapshot_parts(|part| sink.part(&part))
        })
    }

    /// Reads the durable form.
    pub(super) fn open(
        place: &Arc<TablePlace>,
        required: Option<LogPosition>,
    ) -> Result<(Index, EditLog, OpenReport)> {
        let mut loading = Loading::new();
        let storage = Arc::clone(place.storage());
        let (log, report) =
            EditLog::open(storage, place.dir(), log_id(place), required, |record| {
                loading.take(&record)
            })?;
        let index = loading.finish(place, &report.file)?;
        Ok((index, log, report))
    }

    /// As [`Self::read`], if it goes as far as it is known to be durable.
    pub(super) fn read_up_to(
        place: &Arc<TablePlace>,
        required: Option<LogPosition>,
    ) -> Result<Index> {
        let mut loading = Loading::new();
        let (id, storage) = (log_id(place), &**place.storage());
        let take = |record: RecordRef<'_>| loading.take(&record);
        let report = read_edit_log(storage, place.dir(), &id, required, take)?;
        loading.finish(place, &report.file)
    }

    /// The index as its durable form says, without opening it for writing.
    pub(super) fn read(place: &Arc<TablePlace>) -> Result<(Index, OpenReport)> {
        let mut loading = Loading::new();
        let (id, storage) = (log_id(place), &**place.storage());
        let report =
            read_edit_log(storage, place.dir(), &id, None, |record| loading.take(&record))?;
        Ok((loading.finish(place, &report.file)?, report))
    }

    /// Writes the next file of the log, with room for an edit of `edit_len` bytes at least.
    pub(super) fn rotate(&self, log: &mut EditLog, edit_len: usize) -> Result<()> {
        let mut snapshot_bytes = 0;
        self.snapshot_parts(|part| {
            snapshot_bytes += part.len();
            Ok(())
        })?;
        // As much room as the snapshot takes: then snapshots at most double what edits write.
        let room = EditLog::edit_size(edit_len) + (snapshot_bytes as u64).max(EDIT_ROOM_MIN);
        log.rotate(room, |sink| self.snapshot_parts(|part| sink.part(&part)))
    }

    fn snapshot_parts(&self, mut put: impl FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
        put(Encoder::header(&self.counters))?;
        let mut parts = TableParts::default();
        for (run, table) in self.tables() {
            if let Some(part) = parts.add(&PlacedTable { run, table: table.record.clone() }) {
                put(part)?;
            }
        }
        put(parts.finish())
    }

    /// All tables, the newest run first.
    pub(super) fn tables(&self) -> impl Iterator<Item = (RunPlace, &Arc<Table>)> {
        self.runs.iter().flat_map(|run| run.tables.iter().map(|table| (run.place, table)))
    }

    pub(super) fn table_count(&self) -> usize {
        self.runs.iter().map(|run| run.tables.len()).sum()
    }

    /// Bytes of all tables.
    pub(super) fn size(&self) -> u64 {
        self.runs.iter().map(Run::size).sum()
    }

    /// Applies an edit. Returns the tables that it takes out.
    ///
    /// # Errors
    /// A sentence about what in the edit contradicts the index, which is unchanged then.
    pub(super) fn apply(
        &mut self,
        edit: &EditRecord,
        place: &Arc<TablePlace>,
    ) -> std::result::Result<Vec<Arc<Table>>, String> {
        let mut next = Sketch::of(self);
        let mut lost = next.remove(&edit.removed)?;
        for PlacedTable { run, table } in &edit.added {
            // One that only moves is the same, and its file stays.
            let moved = lost.iter().position(|lost| lost.record == *table);
            let table = match moved {
                Some(position) => lost.swap_remove(position),
                None => Table::existing(place, table.clone()),
            };
            next.add(*run, table)?;
        }
        let (runs, value_bytes) = next.finish()?;
        *self = Index { runs, value_bytes, counters: edit.counters };
        Ok(lost)
    }
}

/// An index that is being put together.
#[derive(Default)]
struct Sketch {
    runs: BTreeMap<(u8, std::cmp::Reverse<u64>), Vec<Arc<Table>>>,
    numbers: BTreeSet<u64>,
}

impl Sketch {
    fn of(index: &Index) -> Sketch {
        let runs = index.runs.iter().map(|run| (run.place.rank(), run.tables.to_vec())).collect();
        let numbers = index.tables().map(|(_, table)| table.record.number).collect();
        Sketch { runs, numbers }
    }

    fn remove(&mut self, numbers: &[u64]) -> std::result::Result<Vec<Arc<Table>>, String> {
        let removed: BTreeSet<u64> = numbers.iter().copied().collect();
        if let Some(unknown) = removed.difference(&self.numbers).next() {
            return Err(format!("table {unknown} is to be removed and is not there"));
        }
        let mut lost = Vec::new();
        for tables in self.runs.values_mut() {
            lost.extend(tables.extract_if(.., |table| removed.contains(&table.record.number)));
        }
        self.numbers.retain(|number| !removed.contains(number));
        Ok(lost)
    }

    fn add(&mut self, run: RunPlace, table: Arc<Table>) -> std::result::Result<(), String> {
        let number = table.record.number;
        if !self.numbers.insert(number) {
            return Err(format!("table {number} is there twice"));
        }
        self.runs.entry(run.rank()).or_default().push(table);
        Ok(())
    }

    /// The runs, and the bytes in value files.
    fn finish(self) -> std::result::Result<(Vec<Run>, BTreeMap<u64, u64>), String> {
        let mut runs = Vec::with_capacity(self.runs.len());
        let mut value_bytes: BTreeMap<u64, u64> = BTreeMap::new();
        for ((level, std::cmp::Reverse(id)), mut tables) in self.runs {
            if tables.is_empty() {
                continue;
            }
            tables.sort_by(|a, b| a.record.first.cmp(&b.record.first));
            for pair in tables.windows(2) {
                let end = pair[0].record.end.as_ref();
                if end.is_none_or(|end| *end > pair[1].record.first) {
                    let numbers = (pair[0].record.number, pair[1].record.number);
                    return Err(format!("tables {numbers:?} of level {level} overlap")); // L1
                }
            }
            for share in tables.iter().flat_map(|table| &table.record.values) {
                let bytes = value_bytes.entry(share.file).or_default();
                *bytes = bytes.saturating_add(share.bytes);
            }
            runs.push(Run { place: RunPlace { level, id }, tables: tables.into() });
        }
        Ok((runs, value_bytes))
    }
}

/// An index that is being read back. Tables are made at the end, of those that are left.
struct Loading {
    counters: Counters,
    tables: BTreeMap<u64, PlacedTable>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Tables,
    Edits,
}

impl Loading {
    fn new() -> Loading {
        Loading { counters: Counters::default(), tables: BTreeMap::new(), phase: Phase::Header }
    }

    fn take(&mut self, record: &RecordRef<'_>) -> Result<()> {
        let refuse = |what: String| Error::corruption(record.file, record.offset, what);
        let malformed = || refuse("the index record is malformed".to_owned());
        match record.record {
            Record::SnapshotPart(bytes) if self.phase == Phase::Header => {
                self.counters = Decoder::header(bytes).ok_or_else(malformed)?;
                self.phase = Phase::Tables;
                Ok(())
            }
            Record::SnapshotPart(bytes) => {
                let tables = Decoder::tables(bytes).ok_or_else(malformed)?;
                self.add(tables).map_err(refuse)
            }
            Record::SnapshotEnd => {
                let is_begun = self.phase != Phase::Header;
                self.phase = Phase::Edits;
                is_begun.then_some(()).ok_or_else(malformed)
            }
            Record::Edit(bytes) => {
                let edit = Decoder::edit(bytes).ok_or_else(malformed)?;
                self.counters = edit.counters;
                for number in &edit.removed {
                    if self.tables.remove(number).is_none() {
                        let what = format!("table {number} is to be removed and is not there");
                        return Err(refuse(what));
                    }
                }
                self.add(edit.added).map_err(refuse)
            }
        }
    }

    fn add(&mut self, tables: Vec<PlacedTable>) -> std::result::Result<(), String> {
        for table in tables {
            let number = table.table.number;
            if self.tables.insert(number, table).is_some() {
                return Err(format!("table {number} is there twice"));
            }
        }
        Ok(())
    }

    fn finish(self, place: &Arc<TablePlace>, file: &Path) -> Result<Index> {
        let mut sketch = Sketch::default();
        let added = self.tables.into_values().try_for_each(|PlacedTable { run, table }| {
            sketch.add(run, Table::existing(place, table))
        });
        let finished = added.and_then(|()| sketch.finish());
        let (runs, value_bytes) = finished.map_err(|what| Error::corruption(file, 0, what))?;
        Ok(Index { runs, counters: self.counters, value_bytes })
    }
}
