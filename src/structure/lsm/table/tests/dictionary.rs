//! Tables with a dictionary: what was written is found, less room is taken, damage is seen.

use super::*;
use crate::base::{Clock, Codec, SystemClock};
use crate::block::{FrameKind, FramePlace, frame};
use crate::storage::OsStorage;
use crate::structure::lsm::table::format::{FOOTER_LEN, Footer, FramePointer};

fn options(dictionary_size: usize) -> TableOptions {
    TableOptions { codec: Codec::zstd(), dictionary_size, ..TableOptions::default() }
}

/// Rows of 100 to 300 bytes, like those of an event log.
fn row(number: u64, random: &SeededEntropy) -> (Vec<u8>, Vec<u8>) {
    let draw = |end: u64| random.next_u64() % end;
    let kind = ["login", "logout", "purchase", "refund", "search"][draw(5) as usize];
    let city = ["Berlin", "Lyon", "Porto", "Turku", "Zagreb", "Gdansk"][draw(6) as usize];
    let mut value = format!(
        "{{\"event\":\"{kind}\",\"user_id\":{},\"session\":\"{:012x}\",\"city\":\"{city}\",\
         \"amount\":{}",
        draw(1_000_000),
        draw(1 << 48),
        draw(100_000)
    );
    for _ in 0..draw(4) {
        value.push_str(&format!(",\"tag_{}\":{}", draw(20), draw(2) == 0));
    }
    value.push('}');
    (format!("event/{:08}", number * 3).into_bytes(), value.into_bytes())
}

fn model(count: u64) -> Model {
    let random = SeededEntropy::new(4);
    (0..count).map(|number| row(number, &random)).map(|(key, bytes)| (key, value(bytes))).collect()
}

fn dictionary_size(bench: &Bench, table: &Table) -> Option<u32> {
    table.opened(&bench.caches).unwrap().footer.dictionary.map(|pointer| pointer.len)
}

#[test]
fn tables_with_a_dictionary_hold_what_was_written_whatever_their_size() {
    for count in [0, 1, 20, 200, 1000, 3000, 9000] {
        let (bench, model) = (Bench::new(), model(count));
        let table = bench.written(&options(2048), &model);
        let has_one = dictionary_size(&bench, &table).is_some();
        assert_eq!(has_one, count >= 1000 && Codec::zstd().is_available(), "{count}");
        for (key, said) in model.iter().step_by(7) {
            assert_eq!(bench.find(&table, key).unwrap().as_ref(), Some(said));
        }
        assert_eq!(bench.find(&table, b"event/00000001").unwrap(), None);
        for mode in [ReadMode::Normal, ReadMode::Passing] {
            let mut cursor = bench.cursor(&table, mode);
            cursor.seek_first().unwrap();
            for expected in &model {
                let (key, found) = said(cursor.entry().unwrap());
                assert_eq!((&key, &found), expected);
                cursor.next().unwrap();
            }
            assert!(!cursor.is_valid());
        }
        assert_eq!(bench.findings(&table).problems, Vec::<String>::new());
        let properties = table.properties(&bench.caches).unwrap();
        assert_eq!(properties.entry_count, count);
        let plain = bench.written(&options(0), &model);
        assert_eq!(dictionary_size(&bench, &plain), None);
        assert!(table.record.size <= plain.record.size, "{count}: it saves, or is not there");
        if has_one {
            assert!(table.record.size < plain.record.size * 9 / 10, "{count}");
        }
    }
}

#[test]
fn what_has_nothing_in_common_gets_no_dictionary() {
    let (bench, random) = (Bench::new(), SeededEntropy::new(9));
    let bytes = || -> Vec<u8> { (0..200).map(|_| random.next_u64() as u8).collect() };
    let model: Model = (0..2000u64).map(|_| (bytes(), value(bytes()))).collect();
    let table = bench.written(&options(1024), &model);
    assert_eq!(dictionary_size(&bench, &table), None);
    let lz4 = TableOptions { codec: Codec::Lz4, ..options(1024) };
    let table = bench.written(&lz4, &model);
    assert_eq!(dictionary_size(&bench, &table), None, "for Zstandard alone");
    assert_eq!(bench.findings(&table).problems, Vec::<String>::new());
}

#[test]
fn a_table_that_waits_is_charged_and_a_dictionary_in_memory_too() {
    use crate::cache::Part;
    let bench = Bench::new();
    let mut writer = TableWriter::create(&bench.place, &options(16 << 10), &bench.budget).unwrap();
    for (key, Said { seqno, kind, value }) in &model(2000) {
        writer.add(EntryRef { key, seqno: *seqno, kind: *kind, value }).unwrap();
    }
    let waiting = bench.budget.usage(Part::Buffer);
    if Codec::zstd().is_available() {
        assert!(waiting > 2 * 2000 * 100, "{waiting}");
    }
    writer.discard();
    assert_eq!(bench.budget.usage(Part::Buffer), 0);
    let table = bench.written(&options(2048), &model(3000));
    let before = bench.budget.usage(Part::Index);
    let size = dictionary_size(&bench, &table).unwrap_or(0) as usize;
    assert!(bench.budget.usage(Part::Index) >= before + size);
}

#[test]
fn flipped_bytes_of_the_dictionary_and_all_others_are_found() {
    let bench = Bench::new();
    let record = bench.write(&options(2048), &model(1200));
    let path = bench.place.path_of(record.number);
    let file = bench.storage.open(&path, OpenMode::ReadWrite).unwrap();
    let read = || bench.table(&record).opened(&bench.caches).map(|opened| opened.footer);
    let verify = || bench.table(&record).verify(&bench.caches);
    verify().unwrap();
    let dictionary = read().unwrap().dictionary;
    assert_eq!(dictionary.is_some(), Codec::zstd().is_available());
    let footer = read().unwrap().start_in(record.size);
    let of_dictionary = dictionary.map_or(0..0, |it| it.offset..it.end().unwrap());
    for offset in 0..record.size {
        let is_read_first = of_dictionary.contains(&offset) || offset >= footer;
        if !is_read_first && offset % 997 != 0 {
            continue;
        }
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
        let error = match is_read_first {
            true => read().map(|_| ()).unwrap_err(),
            false => verify().unwrap_err(),
        };
        assert!(error.is_corruption(), "byte {offset}: {error}");
        file.write_all_at(&byte, offset).unwrap();
    }
    verify().unwrap();
}

#[test]
fn a_dictionary_that_is_damaged_is_named_by_the_check_and_by_whoever_reads() {
    let bench = Bench::new();
    let model = model(1200);
    let record = bench.write(&options(2048), &model);
    let Some(pointer) = bench.table(&record).opened(&bench.caches).unwrap().footer.dictionary
    else {
        assert!(!Codec::zstd().is_available());
        return;
    };
    let file = bench.storage.open(&bench.place.path_of(record.number), OpenMode::ReadWrite);
    file.unwrap().write_all_at(&[0xAA; 8], pointer.offset + 100).unwrap();
    let table = bench.table(&record);
    let said = format!("offset {}", pointer.offset);
    for key in model.keys().step_by(100) {
        let error = bench.find(&table, key).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(&said), "{error}");
    }
    let problems = bench.findings(&table).problems;
    assert!(problems.len() == 1 && problems[0].contains(&said), "{problems:?}");
}

/// A dictionary is put behind all else, where it may lie as well: so a program without the codec
/// makes a table with one, too.
#[test]
fn a_program_without_the_codec_says_that_it_lacks_it_and_calls_nothing_damaged() {
    let bench = Bench::new();
    let mut record = bench.write(&TableOptions::default(), &model(50));
    let table = bench.table(&record);
    let (path, file_tag) = (bench.place.path_of(record.number), table.file().tag);
    let offset = record.size - FOOTER_LEN;
    let place = FramePlace { file: &path, file_tag, offset, key: None };
    let mut end = Vec::new();
    let bytes = [&[0x37, 0xA4, 0x30, 0xEC][..], &[0xFF; 300]].concat();
    let sum = frame::seal(&bytes, Codec::None, FrameKind::Dictionary, place, &mut end).unwrap();
    let pointer = FramePointer { offset, len: end.len() as u32, checksum: sum as u32 };
    let footer = table.opened(&bench.caches).unwrap().footer;
    let footer = Footer { dictionary: Some(pointer), ..footer };
    let (footer, checksum) = footer.encode(file_tag, offset + end.len() as u64);
    end.extend(footer);
    let file = bench.storage.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(&end, offset).unwrap();
    (record.size, record.checksum) = (offset + end.len() as u64, checksum);
    let table = bench.table(&record);
    let error = bench.find(&table, b"event/00000003").unwrap_err();
    let problems = bench.findings(&table).problems;
    match Codec::zstd().is_available() {
        true => assert!(error.to_string().contains("a dictionary that is none"), "{error}"),
        false => assert!(matches!(error, Error::InvalidArgument { .. }), "{error}"),
    }
    assert_eq!(error.is_corruption(), Codec::zstd().is_available());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].contains("feature \"zstd\""), !Codec::zstd().is_available());
}

/// `cargo test --release --features zstd --lib dictionary::sizes -- --ignored --nocapture`
#[test]
#[ignore = "timing, run by hand"]
fn sizes_and_times() {
    const COUNT: u64 = 1_000_000;
    let model = model(COUNT);
    let raw: usize = model.iter().map(|(key, said)| key.len() + said.value.len()).sum();
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    println!("{COUNT} rows, {raw} bytes");
    let zstd = |dictionary_size| options(dictionary_size);
    let of = |codec| TableOptions { codec, ..TableOptions::default() };
    for (name, options) in [
        ("none", of(Codec::None)),
        ("lz4", of(Codec::Lz4)),
        ("zstd", zstd(0)),
        ("zstd + 4 KiB", zstd(4 << 10)),
        ("zstd + 16 KiB", zstd(16 << 10)),
        ("zstd + 64 KiB", zstd(64 << 10)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        // Blocks do not stay in memory: each lookup unpacks one.
        let bench = Bench::at(Arc::new(OsStorage::new()), dir.path(), 24 << 20);
        let clock = SystemClock::new();
        let start = clock.monotonic();
        let table = bench.written(&options, &model);
        let write = (clock.monotonic() - start).as_secs_f64();
        let mut cursor = bench.cursor(&table, ReadMode::Passing);
        let start = clock.monotonic();
        cursor.seek_first().unwrap();
        while cursor.is_valid() {
            cursor.next().unwrap();
        }
        let walk = (clock.monotonic() - start).as_nanos() as f64 / COUNT as f64;
        let random = SeededEntropy::new(6);
        let lookups = 200_000;
        let start = clock.monotonic();
        for _ in 0..lookups {
            let key = keys[(random.next_u64() % COUNT) as usize];
            assert!(bench.find(&table, key).unwrap().is_some());
        }
        let get = (clock.monotonic() - start).as_nanos() as f64 / f64::from(lookups);
        let dictionary = dictionary_size(&bench, &table).unwrap_or(0);
        println!(
            "{name:14} size {:9} ({:4.1} %)  dictionary {dictionary:6}  write {:5.0} MB/s  \
             walk {walk:4.0} ns a row  get {get:6.0} ns",
            table.record.size,
            table.record.size as f64 * 100.0 / raw as f64,
            raw as f64 / write / 1e6,
        );
    }
}
