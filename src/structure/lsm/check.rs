//! Checking an Lsm keyspace: the index against itself, against its durable form, against the files
//! that are there; and every byte of the tables.
//!
//! | check | of |
//! |---|---|
//! | order of runs, spans of the tables of a run | L1, L2 |
//! | numbers below the next one, ids of runs below the next one | the index |
//! | sums by value file | L8 |
//! | counters and tables as on disk | the index log |
//! | files that nothing refers to | files |
//! | size, header, footer, every block, order, filters, sums | `table/check.rs` |
//! | stamps not above the newest; spans, counts and value files as the index has them | data |
//! | values against hash and length | value log |

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::index::Index;
use super::record::LEVEL_COUNT;
use super::table::{Table, TablePlace};
use super::version::Reader;
use crate::base::SeqNo;
use crate::manifest::EditLog;
use crate::structure::{CheckWalk, DataCheck, Findings, Site};

/// What a check looks at of the index's log.
#[derive(Debug)]
pub(super) struct IndexLog {
    /// The newest file.
    pub path: PathBuf,
    /// See [`EditLog::mended_mark`].
    pub mended_mark: Option<(PathBuf, u64)>,
}

impl IndexLog {
    pub(super) fn of(log: &EditLog) -> IndexLog {
        IndexLog { path: log.path().to_owned(), mended_mark: log.mended_mark().cloned() }
    }
}

/// Checks the index.
pub(super) fn check_index(
    index: &Index,
    log: &IndexLog,
    place: &Arc<TablePlace>,
    findings: &mut Findings,
) {
    let site = Site::of_keyspace(place.keyspace()).at(&log.path, 0);
    check_runs(index, site, findings);
    check_value_bytes(index, site, findings);
    check_durable_form(index, log, site, place, findings);
}

fn check_runs(index: &Index, site: Site<'_>, findings: &mut Findings) {
    for pair in index.runs.windows(2) {
        let (newer, older) = (pair[0].place, pair[1].place);
        if newer.rank() >= older.rank() {
            findings.note_at(site, "the order of runs", format!("{older:?} first"), newer.level);
        }
    }
    for run in &index.runs {
        let is_one = if run.place.level == 0 { run.place.id > 0 } else { run.place.id == 0 };
        if usize::from(run.place.level) >= LEVEL_COUNT || !is_one {
            findings.note_at(site, "a run", "a level and an id", format!("{:?}", run.place));
        }
        if run.place.id >= index.counters.next_run {
            let expected = format!("an id above {}", run.place.id);
            findings.note_at(site, "the next run", expected, index.counters.next_run);
        }
        for pair in run.tables.windows(2) {
            let (before, behind) = (&pair[0].record, &pair[1].record);
            if !before.ends_by(&behind.first) {
                let expected = format!("table {} to end before it begins", before.number);
                findings.note_at(site, "spans of a run", expected, behind.number);
            }
        }
    }
    let newest = index.tables().map(|(_, table)| table.record.number).max();
    if let Some(number) = newest.filter(|number| *number >= index.counters.next_table) {
        let expected = format!("a number above {number}");
        findings.note_at(site, "the next table", expected, index.counters.next_table);
    }
}

fn check_value_bytes(index: &Index, site: Site<'_>, findings: &mut Findings) {
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for share in index.tables().flat_map(|(_, table)| &table.record.values) {
        *sums.entry(share.file).or_default() += share.bytes;
    }
    if sums != index.value_bytes {
        let (expected, found) = (format!("{sums:?}"), format!("{:?}", index.value_bytes));
        findings.note_at(site, "bytes by value file", expected, found);
    }
}

/// Reads the index log again and compares.
fn check_durable_form(
    index: &Index,
    log: &IndexLog,
    site: Site<'_>,
    place: &Arc<TablePlace>,
    findings: &mut Findings,
) {
    findings.files += 1;
    let (on_disk, report) = match Index::read(place) {
        Ok(read) => read,
        Err(error) => return findings.note_error(site, &error),
    };
    findings.note_marks(site, &report, log.mended_mark.as_ref());
    if on_disk.counters != index.counters {
        let (expected, found) =
            (format!("{:?}", index.counters), format!("{:?}", on_disk.counters));
        findings.note_at(site, "counters on disk", expected, found);
    }
    let tables = |index: &Index| -> Vec<_> {
        index.tables().map(|(run, table)| (run, table.record.clone())).collect()
    };
    if tables(&on_disk) != tables(index) {
        let (expected, found) = (index.table_count(), on_disk.table_count());
        let expected = format!("the {expected} tables in memory");
        findings.note_at(site, "tables on disk", expected, format!("{found} that differ"));
    }
}

/// Files of the index before the newest, and tables that nothing in use or on its way refers to.
pub(super) fn find_orphans(
    index: &Index,
    log: &IndexLog,
    place: &TablePlace,
    findings: &mut Findings,
) {
    let older = |name: &str| name.starts_with("tables-") && !log.path.ends_with(name);
    if let Ok(entries) = place.storage().list_dir(place.dir()) {
        let older = entries.iter().filter(|entry| older(&entry.name));
        findings.orphans.extend(older.map(|entry| place.dir().join(&entry.name)));
    }
    // Looked at in this order: what comes to be known meanwhile was not there before.
    let numbers: BTreeSet<u64> = match place.numbers() {
        Ok(numbers) => numbers.into_iter().collect(),
        Err(error) => return findings.note_error(Site::of_keyspace(place.keyspace()), &error),
    };
    let named: BTreeSet<u64> = index.tables().map(|(_, table)| table.record.number).collect();
    let unknown =
        numbers.into_iter().filter(|number| !named.contains(number) && !place.is_known(*number));
    findings.orphans.extend(unknown.map(|number| place.path_of(number)));
}

/// The tables of an index that was checked.
#[derive(Debug)]
pub(super) struct TableCheck {
    tables: Vec<Arc<Table>>,
    run_count: usize,
    newest: SeqNo,
    place: Arc<TablePlace>,
    reader: Arc<Reader>,
}

impl TableCheck {
    pub(super) fn new(index: &Index, place: &Arc<TablePlace>, reader: &Arc<Reader>) -> TableCheck {
        TableCheck {
            tables: index.tables().map(|(_, table)| Arc::clone(table)).collect(),
            run_count: index.runs.len(),
            newest: index.counters.last_seqno,
            place: Arc::clone(place),
            reader: Arc::clone(reader),
        }
    }

    /// No entry may have a stamp above that of the index. `table` has those that its record says.
    fn check_stamps(&self, table: &Table, findings: &mut Findings) {
        let record = &table.record;
        let newest = record.stamp.unwrap_or(record.newest);
        if record.entry_count > 0 && newest > self.newest {
            let path = self.place.path_of(record.number);
            let site = Site::of_keyspace(self.place.keyspace()).in_file(&path);
            let expected = format!("at most {}", self.newest);
            findings.note_at(site, "the newest stamp of the table", expected, newest);
        }
    }
}

impl DataCheck for TableCheck {
    /// Reads and verifies every table, in the order of their numbers; places are these. What a
    /// compaction writes meanwhile has a higher number than all that was there.
    fn check_data(&self, findings: &mut Findings, walk: &mut dyn CheckWalk) {
        findings.runs += self.run_count as u64;
        let first = walk.start().first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        let mut tables: Vec<&Arc<Table>> = self.tables.iter().collect();
        tables.sort_by_key(|table| table.record.number);
        for table in tables.into_iter().filter(|table| table.record.number >= first) {
            let number = table.record.number;
            if number > first && walk.reached(findings, &number.to_be_bytes()).is_break() {
                return;
            }
            if table.check(&self.reader.caches, findings, walk).is_break() {
                return;
            }
            self.check_stamps(table, findings);
        }
    }
}
