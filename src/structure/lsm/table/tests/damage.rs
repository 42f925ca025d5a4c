//! Damage: whatever became of a file, answers are right or say that it is damaged.

use super::*;
use crate::base::Result;

/// Bytes of a file, and a table made of them with nothing in memory.
struct Patient {
    bench: Bench,
    record: TableRecord,
    bytes: Vec<u8>,
    model: Model,
}

const RANGES: [Range<'static>; 2] = [(b"b", Some(b"c")), (b"x", None)];

impl Patient {
    fn new(options: &TableOptions, count: usize) -> Patient {
        let bench = Bench::with_memory(4 << 20);
        let model = Dice::new(41).model(count);
        let record = bench.write_with(options, &model, &RANGES);
        let file = bench.storage.open(&bench.place.path_of(record.number), OpenMode::ReadOnly);
        let mut bytes = vec![0; record.size as usize];
        file.unwrap().read_exact_at(&mut bytes, 0).unwrap();
        Patient { bench, record, bytes, model }
    }

    /// Looks at a table with these bytes; says whether damage was found, of which the check must
    /// know.
    fn examine(&self, bytes: &[u8], case: &dyn std::fmt::Debug) -> bool {
        let path = self.bench.place.path_of(self.record.number);
        self.bench.storage.remove_file(&path).unwrap();
        let file = self.bench.storage.open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let budget = &self.bench.budget;
        let bench = Bench {
            storage: Arc::clone(&self.bench.storage),
            budget: Arc::clone(budget),
            place: Arc::clone(&self.bench.place),
            caches: caches_of(budget),
        };
        let table = bench.table(&self.record);
        let mut is_damaged = false;
        let mut is_right = |answer: Result<bool>| match answer {
            Ok(right) => assert!(right, "a wrong answer: {case:?}"),
            Err(error) => {
                assert!(error.is_corruption(), "{error}: {case:?}");
                assert!(error.to_string().contains("/keyspace/tbl-"), "{error}");
                is_damaged = true;
            }
        };
        for (key, said) in &self.model {
            is_right(bench.find(&table, key).map(|found| found.as_ref() == Some(said)));
        }
        for (rank, key) in (0..).zip(self.model.keys()).step_by(5) {
            is_right(table.rank(&bench.caches, key).map(|found| found == rank));
            let absent = [key, &b"\x07"[..]].concat();
            is_right(bench.find(&table, &absent).map(|found| found.is_none()));
        }
        for (key, expected) in [("a", false), ("bx", true), ("c", false), ("y", true)] {
            let deleted = table.deletes(&bench.caches, key.as_bytes());
            is_right(deleted.map(|found| found == expected));
        }
        for mode in [ReadMode::Passing, ReadMode::Normal] {
            let mut cursor = bench.cursor(&table, mode);
            is_right(walk(&mut cursor).map(|seen| seen == entries(&self.model)));
            is_right(walk_back(&mut cursor).map(|seen| seen == self.model.len()));
        }
        let findings = bench.findings(&table);
        assert!(!is_damaged || !findings.problems.is_empty(), "the check is content: {case:?}");
        assert!(findings.problems.iter().all(|it| it.contains("keyspace 1: /keyspace/tbl-")));
        !findings.problems.is_empty()
    }
}

fn walk(cursor: &mut TableCursor) -> Result<Vec<(Vec<u8>, Said)>> {
    let mut seen = Vec::new();
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        seen.push(said(entry));
        cursor.next()?;
    }
    Ok(seen)
}

fn walk_back(cursor: &mut TableCursor) -> Result<usize> {
    let mut count = 0;
    cursor.seek_last()?;
    while cursor.is_valid() {
        count += 1;
        cursor.prev()?;
    }
    Ok(count)
}

/// Makes a record one of something else.
type Change<'a> = &'a dyn Fn(&mut TableRecord);

#[test]
fn every_byte_that_is_changed_is_noticed() {
    let patient = Patient::new(&small_blocks(), 40);
    assert!(!patient.examine(&patient.bytes, &"sound"));
    for at in 0..patient.bytes.len() {
        let mut bytes = patient.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(patient.examine(&bytes, &at), "byte {at} of {}", bytes.len());
    }
}

#[test]
fn changed_bytes_of_many_partitions_are_noticed() {
    let options = TableOptions { block_size: 30, ..TableOptions::default() };
    let patient = Patient::new(&options, 600);
    for at in (0..patient.bytes.len()).step_by(211) {
        let mut bytes = patient.bytes.clone();
        bytes[at] = !bytes[at];
        assert!(patient.examine(&bytes, &at), "byte {at} of {}", bytes.len());
    }
}

#[test]
fn a_file_that_is_cut_or_empty_or_missing_is_noticed() {
    let patient = Patient::new(&small_blocks(), 40);
    for len in (0..patient.bytes.len()).step_by(13) {
        assert!(patient.examine(&patient.bytes[..len], &len), "cut to {len}");
    }
    let longer = [&patient.bytes[..], &[0; 10]].concat();
    assert!(patient.examine(&longer, &"longer"), "the size is not that of the record");
    let zeros = vec![0; patient.bytes.len()];
    assert!(patient.examine(&zeros, &"zeros"));
    let path = patient.bench.place.path_of(patient.record.number);
    patient.bench.storage.remove_file(&path).unwrap();
    let table = patient.bench.table(&patient.record);
    let error = patient.bench.find(&table, b"a").unwrap_err();
    assert!(error.to_string().contains("the table file is missing"), "{error}");
}

#[test]
fn a_table_in_the_place_of_another_is_noticed() {
    let patient = Patient::new(&small_blocks(), 40);
    let other = patient.bench.write_with(&small_blocks(), &patient.model, &RANGES);
    let path = patient.bench.place.path_of(other.number);
    let mut bytes = vec![0; other.size as usize];
    let file = patient.bench.storage.open(&path, OpenMode::ReadOnly).unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(patient.examine(&bytes, &"the same of another number"));
    // Its header alone set right: nothing else verifies.
    bytes[..40].copy_from_slice(&patient.bytes[..40]);
    assert!(patient.examine(&bytes, &"with the header of this one"));
    // An older state of the same file, which the record does not point to.
    let mut record = patient.record.clone();
    record.checksum ^= 1;
    let table = patient.bench.table(&record);
    assert!(patient.bench.find(&table, b"a").unwrap_err().is_corruption());
}

#[test]
fn a_record_that_says_something_else_is_named_by_the_check() {
    let bench = Bench::new();
    let model = Dice::new(42).model(300);
    let sound = bench.write(&small_blocks(), &model);
    let change = |change: &dyn Fn(&mut TableRecord)| {
        let mut record = sound.clone();
        change(&mut record);
        bench.findings(&bench.table(&record)).problems
    };
    assert_eq!(change(&|_| {}), Vec::<String>::new());
    let cases: [(&str, Change<'_>); 7] = [
        ("what the index says", &|record| record.entry_count += 1),
        ("what the index says", &|record| record.tombstones -= 1),
        ("what the index says", &|record| record.logical_bytes = 7),
        ("what the index says", &|record| record.end = None),
        ("what the index says", &|record| record.first = b"m"[..].into()),
        ("deleted ranges", &|record| record.deleted_ranges = 1),
        ("the footer does not verify", &|record| record.size -= 1),
    ];
    for (what, case) in cases {
        let problems = change(case);
        assert!(problems.iter().any(|problem| problem.contains(what)), "{what}: {problems:?}");
    }
}

#[test]
fn a_walk_goes_on_where_it_could_not_read() {
    let patient = Patient::new(&small_blocks(), 40);
    let path = patient.bench.place.path_of(patient.record.number);
    let file = patient.bench.storage.open(&path, OpenMode::ReadWrite).unwrap();
    let table = patient.bench.table(&patient.record);
    let mut cursor = patient.bench.cursor(&table, ReadMode::Normal);
    let at = 900;
    file.write_all_at(&[!patient.bytes[at]], at as u64).unwrap();
    cursor.seek_first().unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = cursor.entry() {
        seen.push(said(entry));
        if cursor.next().is_err() {
            assert!(cursor.next().unwrap_err().is_corruption(), "it skips nothing");
            file.write_all_at(&[patient.bytes[at]], at as u64).unwrap();
            cursor.next().unwrap();
        }
    }
    assert_eq!(seen, entries(&patient.model));
    file.write_all_at(&[!patient.bytes[at]], at as u64).unwrap();
    let table = patient.bench.table(&patient.record);
    let mut cursor = patient.bench.run(&[table], ReadMode::Passing);
    cursor.seek_last().unwrap();
    let mut count = 0;
    while cursor.is_valid() {
        count += 1;
        if cursor.prev().is_err() {
            assert!(cursor.prev().unwrap_err().is_corruption(), "it skips nothing");
            file.write_all_at(&[patient.bytes[at]], at as u64).unwrap();
            cursor.prev().unwrap();
        }
    }
    assert_eq!(count, patient.model.len());
}
