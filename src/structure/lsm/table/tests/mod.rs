//! Tests of tables, against maps of what they must hold.

mod damage;
mod dictionary;
mod format;
mod life;
mod order;
mod round_trip;
mod timing;
mod walks;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::cursor::TableCursor;
use super::{OpenTables, ReadMode, RunCursor, Table, TableCaches};
use super::{TableOptions, TablePlace, TableRecord, TableWriter};
use crate::base::{Cursor, Entropy, EntryKind, EntryRef, Error, SeededEntropy, SeqNo, hash_key};
use crate::cache::{Cache, MemoryBudget};
use crate::storage::{MemoryStorage, OpenMode, Storage};
use crate::structure::{Findings, WholeCheck};
use crate::value_log::{FilesWriter, ValueLog, ValueLogOptions, Verify};

const DIR: &str = "/keyspace";

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    seqno: SeqNo,
    kind: EntryKind,
    value: Vec<u8>,
}

/// What a table must hold.
type Model = BTreeMap<Vec<u8>, Said>;

type Range<'a> = (&'a [u8], Option<&'a [u8]>);

fn value(value: impl Into<Vec<u8>>) -> Said {
    Said { seqno: SeqNo::from_parts(1000, 1), kind: EntryKind::Value, value: value.into() }
}

fn said(entry: EntryRef<'_>) -> (Vec<u8>, Said) {
    let EntryRef { key, seqno, kind, value } = entry;
    (key.to_vec(), Said { seqno, kind, value: value.to_vec() })
}

struct Bench {
    storage: Arc<dyn Storage>,
    budget: Arc<MemoryBudget>,
    place: Arc<TablePlace>,
    caches: Arc<TableCaches>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_memory(64 << 20)
    }

    fn with_memory(limit: usize) -> Bench {
        Bench::at(Arc::new(MemoryStorage::new()), Path::new(DIR), limit)
    }

    fn at(storage: Arc<dyn Storage>, dir: &Path, limit: usize) -> Bench {
        storage.create_dir_all(dir).unwrap();
        let budget = MemoryBudget::new(limit);
        let values = value_log(&storage, dir);
        let (dir, open) = (dir.to_owned(), Arc::<OpenTables>::default());
        let place = TablePlace::new(Arc::clone(&storage), dir, 7, 1, open, values);
        let caches = caches_of(&budget);
        Bench { storage, budget, place, caches }
    }

    fn write(&self, options: &TableOptions, model: &Model) -> TableRecord {
        self.write_with(options, model, &[])
    }

    fn write_with(
        &self,
        options: &TableOptions,
        model: &Model,
        ranges: &[Range<'_>],
    ) -> TableRecord {
        let mut writer = TableWriter::create(&self.place, options, &self.budget).unwrap();
        for (key, Said { seqno, kind, value }) in model {
            writer.add(EntryRef { key, seqno: *seqno, kind: *kind, value }).unwrap();
        }
        for (start, end) in ranges {
            writer.delete_range(start, *end);
        }
        let record = writer.finish().unwrap();
        self.place.forget_unlisted(&[record.number]);
        record
    }

    fn table(&self, record: &TableRecord) -> Arc<Table> {
        Table::existing(&self.place, record.clone())
    }

    fn written(&self, options: &TableOptions, model: &Model) -> Arc<Table> {
        self.table(&self.write(options, model))
    }

    fn cursor(&self, table: &Arc<Table>, mode: ReadMode) -> TableCursor {
        TableCursor::new(Arc::clone(table), Arc::clone(&self.caches), mode)
    }

    fn run(&self, tables: &[Arc<Table>], mode: ReadMode) -> RunCursor {
        RunCursor::new(tables.into(), Arc::clone(&self.caches), mode)
    }

    fn findings(&self, table: &Table) -> Findings {
        let mut findings = Findings::default();
        assert!(table.check(&self.caches, &mut findings, &mut WholeCheck).is_continue());
        findings
    }

    fn find(&self, table: &Table, key: &[u8]) -> Result<Option<Said>, Error> {
        let found = table.find(&self.caches, key, hash_key(key))?;
        Ok(found.map(|found| Said {
            seqno: found.seqno.expect("a table knows it"),
            kind: found.kind,
            value: found.value.to_vec(),
        }))
    }

    /// The table holds the model, whichever way it is looked at, and nothing is wrong with it.
    #[track_caller]
    fn assert_holds(&self, table: &Arc<Table>, model: &Model) {
        for (key, expected) in model {
            assert_eq!(self.find(table, key).unwrap().as_ref(), Some(expected), "{key:?}");
        }
        for mode in [ReadMode::Ahead, ReadMode::Normal, ReadMode::Passing] {
            let mut cursor = self.cursor(table, mode);
            assert_eq!(forward(&mut cursor), entries(model));
            let mut backward = backward(&mut cursor);
            backward.reverse();
            assert_eq!(backward, entries(model));
        }
        let findings = self.findings(table);
        assert_eq!(findings.problems, Vec::<String>::new());
        assert_eq!(findings.entries, model.len() as u64);
        assert_eq!(table.record.entry_count, model.len() as u64);
    }
}

fn caches_of(budget: &Arc<MemoryBudget>) -> Arc<TableCaches> {
    let blocks = Arc::new(Cache::new(Arc::clone(budget)));
    let partitions = Arc::new(Cache::for_indexes(Arc::clone(budget)));
    let guides = Arc::new(Cache::for_guides(Arc::clone(budget)));
    Arc::new(TableCaches::of(blocks, partitions, guides))
}

fn value_log(storage: &Arc<dyn Storage>, dir: &Path) -> Arc<ValueLog> {
    let (verify, writer) = (Verify::Checksums, FilesWriter::Own);
    let options = ValueLogOptions { file_size: 1 << 20, verify, writer };
    let budget = MemoryBudget::new(1 << 20);
    let log = ValueLog::open(Arc::clone(storage), dir.join("values"), 7, options, budget);
    Arc::new(log.unwrap())
}

fn entries(model: &Model) -> Vec<(Vec<u8>, Said)> {
    model.iter().map(|(key, said)| (key.clone(), said.clone())).collect()
}

fn forward(cursor: &mut impl Cursor) -> Vec<(Vec<u8>, Said)> {
    let mut seen = Vec::new();
    cursor.seek_first().unwrap();
    while let Some(entry) = cursor.entry() {
        seen.push(said(entry));
        cursor.next().unwrap();
    }
    seen
}

fn backward(cursor: &mut impl Cursor) -> Vec<(Vec<u8>, Said)> {
    let mut seen = Vec::new();
    cursor.seek_last().unwrap();
    while let Some(entry) = cursor.entry() {
        seen.push(said(entry));
        cursor.prev().unwrap();
    }
    seen
}

/// Blocks of some entries, so that few entries make many blocks.
fn small_blocks() -> TableOptions {
    TableOptions { block_size: 200, ..TableOptions::default() }
}

struct Dice(SeededEntropy);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(SeededEntropy::new(seed))
    }

    fn below(&self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn bytes(&self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.0.next_u64() as u8).collect()
    }

    /// A key of few different bytes, so that prefixes are shared and neighbours are close.
    fn key(&self) -> Vec<u8> {
        let len_max = if self.below(8) == 0 { 60 } else { 9 };
        let len = self.below(len_max);
        (0..len).map(|_| [0x00, 0x01, b'a', 0xFE, 0xFF][self.below(5) as usize]).collect()
    }

    /// Values and tombstones.
    fn model(&self, count: usize) -> Model {
        let mut model = Model::new();
        while model.len() < count {
            let seqno = SeqNo::from_parts(1_700_000_000_000 + self.below(900), 3);
            let kind = if self.below(5) == 0 { EntryKind::Tombstone } else { EntryKind::Value };
            let len = match self.below(30) {
                _ if kind == EntryKind::Tombstone => 0,
                0 => 700,
                _ => self.below(50),
            };
            model.insert(self.key(), Said { seqno, kind, value: self.bytes(len) });
        }
        model
    }
}

/// Keys that are not `key`, right before and behind it.
fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![[key, b"\0"].concat(), [key, b"\xFF\xFF"].concat()];
    if let Some((&last, before)) = key.split_last() {
        all.push(before.to_vec());
        if last > 0 {
            all.push([before, &[last - 1, 0xFF]].concat());
        }
    }
    all
}
