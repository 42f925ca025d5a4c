//! Tables with a dictionary among those without: flushed, compacted, ingested, looked into.
//!
//! With the feature `zstd` alone: without it nobody can write one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::base::SeededEntropy;
use lithedb::inspect::{Detail, Piece, inspect};
use lithedb::storage::{OpenMode, SimStorage, Storage};
use lithedb::{
    Background, Codec, Db, Durability, Error, Keyspace, KeyspaceOptions, TableIngestOptions,
    TableWriter,
};

use crate::support::assert_sound;

const DIR: &str = "/db/keyspaces/00000001";

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn plain() -> KeyspaceOptions {
    KeyspaceOptions::lsm().codec(Codec::Lz4).block_size(1 << 10)
}

fn with_dictionary() -> KeyspaceOptions {
    plain().codec(Codec::zstd()).dictionary_size(1 << 10)
}

fn open(storage: &SimStorage, options: KeyspaceOptions) -> (Db, Keyspace) {
    let builder = Db::builder().storage(Arc::new(storage.clone())).memory_budget(8 << 20);
    let builder = builder.background(Background::Stepped).durability(Durability::Buffered);
    let db = builder.open("/db").unwrap();
    let keyspace = match db.create_keyspace("k", options) {
        Err(Error::KeyspaceExists { .. }) => db.keyspace("k").unwrap(),
        created => created.unwrap(),
    };
    (db, keyspace)
}

/// Rows of a log, which have much in common.
fn rows(numbers: impl IntoIterator<Item = u64>) -> Rows {
    let row = |number: u64| {
        let (mixed, kind) = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15), number % 7);
        let value = format!(
            "{{\"event\":\"kind {kind}\",\"session\":\"{mixed:016x}\",\"amount\":{}}}",
            mixed % 1000
        );
        (format!("event/{number:08}").into_bytes(), value.into_bytes())
    };
    numbers.into_iter().map(row).collect()
}

fn write_table(storage: &SimStorage, path: &str, options: &KeyspaceOptions, rows: &Rows) {
    storage.create_dir_all(Path::new("/outside")).unwrap();
    let entropy = SeededEntropy::new(storage.operation_count());
    let storage = Arc::new(storage.clone());
    let mut writer = TableWriter::create_in(storage, &entropy, path, options).unwrap();
    for (key, value) in rows {
        writer.put(key, value).unwrap();
    }
    writer.finish().unwrap();
}

fn table_paths(storage: &SimStorage) -> Vec<PathBuf> {
    let entries = storage.list_dir(Path::new(DIR)).unwrap();
    let names = entries.into_iter().map(|entry| entry.name);
    names.filter(|name| name.starts_with("tbl-")).map(|name| Path::new(DIR).join(name)).collect()
}

fn pieces(storage: &SimStorage, path: &Path) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let report = inspect(storage, path, Detail::Entries, |piece| {
        pieces.push(piece);
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert_eq!((report.damaged, report.unknown), (0, 0), "{path:?}");
    assert_eq!(pieces.iter().map(|piece| piece.len).sum::<u64>(), report.size);
    pieces
}

/// How many tables of the keyspace have a dictionary, and how many have none.
fn dictionaries(storage: &SimStorage) -> (usize, usize) {
    let has_one = |path: &PathBuf| pieces(storage, path).iter().any(|it| it.kind == "dictionary");
    let paths = table_paths(storage);
    let count = paths.iter().filter(|path| has_one(path)).count();
    (count, paths.len() - count)
}

fn assert_rows(keyspace: &Keyspace, expected: &Rows) {
    let found = keyspace.iter().map(|entry| entry.unwrap());
    let found: Rows = found.map(|it| (it.key.to_vec(), it.value.to_vec())).collect();
    assert!(found == *expected, "{} rows, expected {}", found.len(), expected.len());
    for (key, value) in expected.iter().step_by(17) {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
    for (key, _) in expected.iter().rev().step_by(33) {
        let last = keyspace.range(..=key.clone()).next_back().unwrap().unwrap();
        assert_eq!(&*last.key, &key[..]);
    }
}

#[test]
fn flushes_and_compactions_make_dictionaries_and_do_without_where_there_is_little() {
    let storage = SimStorage::new(1);
    let (db, k) = open(&storage, with_dictionary());
    let mut expected = Rows::new();
    for round in 0..4 {
        let more = rows((0..2000).map(|number| number * 4 + round));
        for (key, value) in &more {
            k.put(key, value).unwrap();
        }
        expected.extend(more);
        db.flush().unwrap();
        assert_rows(&k, &expected);
    }
    let (with, _) = dictionaries(&storage);
    assert!(with > 0);
    db.compact().unwrap();
    let (with, without) = dictionaries(&storage);
    assert!(with > 0 && without == 0, "{with}, {without}");
    assert_rows(&k, &expected);
    assert_sound(&db);
    drop((k, db));
    // The option is kept, and so is what was written.
    let (db, k) = open(&storage, plain());
    assert_eq!(db.keyspaces()[0].options.lsm.dictionary_size, 1 << 10);
    assert_rows(&k, &expected);
    k.delete_range(&b"event/00000010"[..]..).unwrap();
    db.compact().unwrap();
    assert_eq!(dictionaries(&storage), (0, 1), "ten rows have none");
    assert_rows(&k, &rows(0..10));
    assert_sound(&db);
}

#[test]
fn tables_with_a_dictionary_are_ingested_where_there_are_none_and_the_reverse() {
    for (own, others) in [(plain(), with_dictionary()), (with_dictionary(), plain())] {
        let others_have_one = others.lsm.dictionary_size > 0;
        let storage = SimStorage::new(2);
        let (db, k) = open(&storage, own);
        let (mut expected, table) = (rows(0..3000), rows((2000..8000).step_by(3)));
        for (key, value) in &expected {
            k.put(key, value).unwrap();
        }
        db.flush().unwrap();
        let (has_before, has_not_before) = dictionaries(&storage);
        write_table(&storage, "/outside/a", &others, &table);
        let report = k.ingest_tables(["/outside/a"], TableIngestOptions::moving()).unwrap();
        assert_eq!((report.entries, report.linked), (table.len() as u64, 1));
        expected.extend(table);
        let more = (usize::from(others_have_one), usize::from(!others_have_one));
        assert_eq!(dictionaries(&storage), (has_before + more.0, has_not_before + more.1));
        assert_rows(&k, &expected);
        assert_sound(&db);
        drop((k, db));
        let (db, k) = open(&storage, plain());
        assert_rows(&k, &expected);
        db.compact().unwrap();
        // Written anew as the keyspace has it.
        let (with, without) = dictionaries(&storage);
        assert_eq!((with > 0, without > 0), (!others_have_one, others_have_one));
        assert_rows(&k, &expected);
        assert_sound(&db);
    }
}

#[test]
fn a_keyspace_of_the_structure_flex_reads_tables_with_a_dictionary() {
    let storage = SimStorage::new(3);
    let (db, k) = open(&storage, KeyspaceOptions::flex());
    let expected = rows(0..3000);
    write_table(&storage, "/outside/a", &with_dictionary(), &expected);
    k.ingest_tables(["/outside/a"], TableIngestOptions::moving()).unwrap();
    assert_rows(&k, &expected);
    assert_sound(&db);
}

#[test]
fn a_table_with_a_dictionary_is_told_in_words_and_every_entry_of_it() {
    let storage = SimStorage::new(4);
    let expected = rows(0..3000);
    write_table(&storage, "/outside/a", &with_dictionary(), &expected);
    let pieces = pieces(&storage, Path::new("/outside/a"));
    let entries = pieces.iter().flat_map(|piece| &piece.entries);
    let seen: Rows = entries.map(|entry| (entry.key.clone(), entry.value.clone())).collect();
    assert!(seen == expected);
    let named = |piece: &&Piece| piece.fields.contains(&("dictionary", "1".to_owned()));
    let dictionary = pieces.iter().position(|piece| piece.kind == "dictionary");
    let footer = pieces.last().unwrap();
    let points_to = footer.fields.iter().any(|(name, _)| *name == "dictionary at");
    assert_eq!(footer.kind, "footer");
    assert_eq!((dictionary, points_to, footer.len), (Some(1), true, 88));
    assert!(pieces.iter().filter(named).count() > 20);
}

#[test]
fn every_flipped_byte_of_a_dictionary_is_refused_by_an_ingest() {
    let storage = SimStorage::new(5);
    let (db, k) = open(&storage, plain());
    let path = Path::new("/outside/a");
    write_table(&storage, "/outside/a", &with_dictionary(), &rows(0..1500));
    let dictionary = pieces(&storage, path).into_iter().find(|it| it.kind == "dictionary");
    let Piece { offset, len, .. } = dictionary.unwrap();
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    for offset in offset..offset + len {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
        let refused = k.ingest_tables([path], TableIngestOptions::moving()).unwrap_err();
        assert!(refused.is_corruption() && refused.to_string().contains("/outside/a"), "{refused}");
        file.write_all_at(&byte, offset).unwrap();
    }
    assert!(k.is_empty().unwrap());
    k.ingest_tables([path], TableIngestOptions::moving()).unwrap();
    assert_rows(&k, &rows(0..1500));
    assert_sound(&db);
}
