//! What is written is found, walked and counted.

use super::*;
use crate::base::{Codec, Expiring, ExpirySpan, MergeBase, Operands, ValuePointer, successor};
use crate::block::RestartPolicy;
use crate::structure::ValueShare;
use crate::structure::lsm::table::partition::PARTITION_BLOCK_COUNT_MAX;
use crate::structure::lsm::table::{SoughtHead, TableIdentity};
use crate::value_log::{StagedValues, record_len};

#[test]
fn none_one_and_many_entries_come_back() {
    let (bench, dice) = (Bench::new(), Dice::new(1));
    for count in [0, 1, 2, 10, 300, 3000] {
        for options in [TableOptions::default(), small_blocks()] {
            let model = dice.model(count);
            let table = bench.written(&options, &model);
            bench.assert_holds(&table, &model);
            for key in model.keys().flat_map(|key| neighbours(key)) {
                if !model.contains_key(&key) {
                    assert_eq!(bench.find(&table, &key).unwrap(), None);
                }
            }
        }
    }
}

#[test]
fn a_record_says_what_was_written() {
    let (bench, dice) = (Bench::new(), Dice::new(2));
    let model = dice.model(1000);
    let record = bench.write(&small_blocks(), &model);
    let (first, last) = (model.keys().next().unwrap(), model.keys().last().unwrap());
    assert_eq!((&*record.first, record.end), (&first[..], Some(successor(last).into())));
    let tombstones = model.values().filter(|said| said.kind == EntryKind::Tombstone).count();
    assert_eq!(record.tombstones, tombstones as u64);
    let bytes: usize = model.iter().map(|(key, said)| key.len() + said.value.len()).sum();
    assert_eq!(record.logical_bytes, bytes as u64);
    assert_eq!(Some(record.oldest), model.values().map(|said| said.seqno).min());
    assert_eq!(Some(record.newest), model.values().map(|said| said.seqno).max());
    assert_eq!((record.deleted_ranges, record.expiring), (0, None));
    let path = bench.place.path_of(record.number);
    let file = bench.storage.open(&path, OpenMode::ReadOnly).unwrap();
    assert_eq!(record.size, file.size().unwrap());
    let mut header = [0; 40];
    file.read_exact_at(&mut header, 0).unwrap();
    let identity = TableIdentity { database: 7, keyspace: 1, number: record.number };
    assert_eq!(TableIdentity::decode(&header), Some(identity));
}

#[test]
fn the_size_that_is_expected_is_about_that_of_the_file() {
    let (bench, dice) = (Bench::new(), Dice::new(3));
    for (count, value_len) in [(0, 0), (1, 10), (500, 100), (30_000, 30)] {
        let mut writer =
            TableWriter::create(&bench.place, &TableOptions::default(), &bench.budget).unwrap();
        let mut before = writer.size();
        for number in 0..count {
            let key = format!("key{number:09}").into_bytes();
            let (seqno, kind) = (SeqNo::from_u64(5), EntryKind::Value);
            let value = dice.bytes(value_len);
            writer.add(EntryRef { key: &key, seqno, kind, value: &value }).unwrap();
            assert!(writer.size() + 300 >= before, "{} after {before}", writer.size());
            before = writer.size();
        }
        assert_eq!((writer.entry_count(), writer.is_empty()), (count, count == 0));
        let size = writer.finish().unwrap().size;
        let slack = 200 + size / 100;
        assert!(size.abs_diff(before) <= slack, "{size} where {before} was expected");
    }
}

#[test]
fn entries_of_every_kind_come_back() {
    let bench = Bench::new();
    let mut staged = StagedValues::default();
    let values: Vec<ValuePointer> = (0..3).map(|number| staged.push(1, &[number; 5000])).collect();
    let appended = bench.place.values().append(&mut staged).unwrap();
    let file = appended.file.number();
    let pointers: Vec<[u8; 30]> = values
        .iter()
        .map(|it| ValuePointer { file, offset: appended.offset + it.offset, ..*it }.encode())
        .collect();
    let expiring = |until, kind, value| Expiring { until, kind, value }.encode();
    let composites = [
        expiring(500, EntryKind::Value, b"soon"),
        expiring(900, EntryKind::Pointer, &pointers[1]),
        Operands::open(b"+1"),
        Operands::single(MergeBase::Pointer(&pointers[2]), b"+2"),
    ];
    let mut model = Model::new();
    let mut put = |key: &str, kind, value: &[u8]| {
        let said = Said { seqno: SeqNo::from_u64(77), kind, value: value.to_vec() };
        model.insert(key.into(), said);
    };
    put("value", EntryKind::Value, b"v");
    put("tombstone", EntryKind::Tombstone, b"");
    put("pointer", EntryKind::Pointer, &pointers[0]);
    for (number, composite) in composites.iter().enumerate() {
        put(&format!("composite{number}"), EntryKind::Composite, composite);
    }
    let record = bench.write(&TableOptions::default(), &model);
    assert_eq!(record.expiring, Some(ExpirySpan { count: 2, first: 500, last: 900 }));
    let bytes = 3 * record_len(5000);
    assert_eq!(record.values, [ValueShare { file, bytes }]);
    let table = bench.table(&record);
    bench.assert_holds(&table, &model);
    let properties = table.properties(&bench.caches).unwrap();
    assert_eq!((properties.operands, properties.tombstones), (2, 1));
    assert_eq!(bench.findings(&table).values, 3);
}

#[test]
fn a_table_holds_its_value_files() {
    let bench = Bench::new();
    let mut staged = StagedValues::default();
    let pointer = staged.push(1, &[3; 5000]);
    let appended = bench.place.values().append(&mut staged).unwrap();
    let number = appended.file.number();
    let pointer = ValuePointer { file: number, offset: appended.offset, ..pointer };
    bench.place.values().sync().unwrap();
    bench.place.values().close_files();
    let (seqno, kind) = (SeqNo::from_u64(1), EntryKind::Pointer);
    let said = Said { seqno, kind, value: pointer.encode().to_vec() };
    let record = bench.write(&TableOptions::default(), &Model::from([(b"k".to_vec(), said)]));
    let table = bench.table(&record);
    drop(appended);
    assert!(bench.place.values().find(number).is_some());
    drop(table);
    assert!(bench.place.values().find(number).is_none());
}

#[test]
fn huge_values_and_long_keys_come_back() {
    let (bench, dice) = (Bench::with_memory(16 << 20), Dice::new(4));
    let mut model = Model::new();
    model.insert(Vec::new(), value("of the empty key"));
    for len in [3000, 4096, 5000, 100_000, 1 << 20, (1 << 20) + 7] {
        model.insert(format!("value of {len}").into(), value(dice.bytes(len)));
    }
    for (number, len) in [65_535, 65_535, 65_000, 30_000].into_iter().enumerate() {
        let mut key = vec![b'k'; len];
        key[len - 1 - number] = number as u8;
        model.insert(key, value(format!("key {number}")));
    }
    for options in [TableOptions::default(), small_blocks()] {
        let table = bench.written(&options, &model);
        bench.assert_holds(&table, &model);
    }
    let mut writer =
        TableWriter::create(&bench.place, &TableOptions::default(), &bench.budget).unwrap();
    let (seqno, kind, long) = (SeqNo::ZERO, EntryKind::Value, vec![1; 65_536]);
    let refused = writer.add(EntryRef { key: &long, seqno, kind, value: b"" }).unwrap_err();
    assert!(matches!(refused, Error::InvalidArgument { .. }));
    assert!(writer.is_empty());
    let path = bench.place.path_of(writer.number());
    writer.discard();
    assert!(!bench.storage.exists(&path).unwrap());
}

#[test]
fn many_partitions_come_back() {
    let (bench, dice) = (Bench::new(), Dice::new(5));
    let options = TableOptions { block_size: 40, ..TableOptions::default() };
    let model: Model = (0..4000u32)
        .map(|number| (format!("key{:06}", number * 3).into_bytes(), value(dice.bytes(20))))
        .collect();
    let table = bench.written(&options, &model);
    bench.assert_holds(&table, &model);
    let properties = table.properties(&bench.caches).unwrap();
    let expected = properties.blocks.div_ceil(PARTITION_BLOCK_COUNT_MAX as u64);
    assert_eq!(properties.partitions, expected);
    assert!(properties.partitions > 10, "{properties:?}");
}

#[test]
fn codecs_and_forms_of_blocks_change_nothing_but_the_size() {
    let (bench, dice) = (Bench::new(), Dice::new(6));
    let model: Model = (0..2000u32)
        .map(|number| (format!("a/long/path/{number:06}").into_bytes(), value(vec![b'x'; 80])))
        .chain(dice.model(500))
        .collect();
    let mut sizes = Vec::new();
    for codec in [Codec::None, Codec::Lz4] {
        for restarts in [RestartPolicy::Whole, RestartPolicy::Every(7), RestartPolicy::Adaptive] {
            let options = TableOptions { codec, restarts, ..TableOptions::default() };
            let table = bench.written(&options, &model);
            bench.assert_holds(&table, &model);
            let properties = table.properties(&bench.caches).unwrap();
            assert_eq!(properties.codec, codec);
            assert_eq!(properties.block_bytes < properties.raw_bytes, codec == Codec::Lz4);
            sizes.push(table.record.size);
        }
    }
    assert!(sizes[3] < sizes[0] / 2 && sizes[1] < sizes[0], "{sizes:?}");
}

#[test]
fn ranges_alone_and_beside_entries_are_deleted() {
    let bench = Bench::new();
    let ranges: &[Range<'_>] =
        &[(b"b", Some(b"d")), (b"d", Some(b"e")), (b"e", Some(b"e")), (b"x", None)];
    for entry in [None, Some(b"a"), Some(b"c"), Some(b"z")] {
        let model: Model = entry.map(|key| (key.to_vec(), value("v"))).into_iter().collect();
        let record = bench.write_with(&TableOptions::default(), &model, ranges);
        assert_eq!((record.deleted_ranges, &record.end), (2, &None), "those that touch are one");
        assert_eq!(&*record.first, if entry == Some(b"a") { b"a" } else { b"b" });
        let table = bench.table(&record);
        bench.assert_holds(&table, &model);
        for (key, expected) in [
            ("a", false),
            ("b", true),
            ("d\x01", true),
            ("e", false),
            ("w~", false),
            ("x", true),
            ("zz", true),
        ] {
            assert_eq!(table.deletes(&bench.caches, key.as_bytes()).unwrap(), expected, "{key}");
        }
        assert!(table.deleted(&bench.caches).unwrap().is_some());
    }
    let bounded: &[Range<'_>] = &[(b"b", Some(b"m"))];
    for (key, end) in [(&b"a"[..], &b"m"[..]), (b"m", b"m\0"), (b"lz", b"m")] {
        let model = Model::from([(key.to_vec(), value("v"))]);
        let record = bench.write_with(&TableOptions::default(), &model, bounded);
        assert_eq!(record.end.as_deref(), Some(end));
        bench.assert_holds(&bench.table(&record), &model);
    }
    let none = bench.written(&TableOptions::default(), &Model::from([(vec![1], value("v"))]));
    assert!(!none.deletes(&bench.caches, b"\x01").unwrap());
    assert!(none.deleted(&bench.caches).unwrap().is_none());
}

#[test]
fn an_ingested_table_has_the_stamp_that_is_known_later() {
    let (bench, dice) = (Bench::new(), Dice::new(7));
    let written = SeqNo::ZERO;
    let mut model = dice.model(800);
    model.values_mut().for_each(|said| said.seqno = written);
    let record = bench.write(&small_blocks(), &model);
    assert_eq!((record.stamp, record.oldest, record.newest), (None, written, written));
    let stamp = SeqNo::from_parts(1_800_000_000_000, 9);
    let table = bench.table(&TableRecord { stamp: Some(stamp), ..record });
    model.values_mut().for_each(|said| said.seqno = stamp);
    bench.assert_holds(&table, &model);
}

#[test]
fn filters_deny_nothing_that_is_there_and_most_of_the_rest() {
    let bench = Bench::new();
    let key = |number: u64| hash_key(&number.to_le_bytes()).to_be_bytes();
    let model: Model = (0..30_000).map(|number| (key(number).to_vec(), value("v"))).collect();
    let table = bench.written(&TableOptions::default(), &model);
    for key in model.keys() {
        assert!(table.may_contain(&bench.caches, key, hash_key(key)).unwrap());
    }
    let is_taken = |number: u64| {
        let key = key(number);
        table.may_contain(&bench.caches, &key, hash_key(&key)).unwrap()
    };
    let taken = (100_000..200_000).filter(|&number| is_taken(number)).count();
    assert!((600..1300).contains(&taken), "{taken} of 100,000");
    let unfiltered = TableOptions { filter_bits: 0, ..TableOptions::default() };
    let plain = bench.written(&unfiltered, &model);
    assert!(plain.may_contain(&bench.caches, b"any", hash_key(b"any")).unwrap());
    bench.assert_holds(&plain, &model);
    assert!(plain.record.size < table.record.size);
}

#[test]
fn filters_know_prefixes_if_they_are_told_to() {
    let bench = Bench::new();
    let model: Model = (0..3000u32)
        .filter(|number| number % 300 < 100)
        .map(|number| (format!("user{:04}/{number:05}", number / 100).into_bytes(), value("v")))
        .chain([(b"user".to_vec(), value("short"))])
        .collect();
    let options = TableOptions { filter_prefix_len: 8, block_size: 100, ..TableOptions::default() };
    let with = bench.written(&options, &model);
    let without = bench.written(&TableOptions { filter_prefix_len: 0, ..options }, &model);
    bench.assert_holds(&with, &model);
    let mut denied = 0;
    for number in 0..30u32 {
        let prefix = format!("user{number:04}");
        let may = |table: &Table, prefix: &str| {
            table.may_contain_prefix(&bench.caches, prefix.as_bytes()).unwrap()
        };
        let is_there = number % 3 == 0;
        assert!(!is_there || may(&with, &prefix) && may(&with, &format!("{prefix}/0")));
        denied += u32::from(!may(&with, &prefix));
        assert!(may(&with, "user") && may(&with, "use"), "the filter knows nothing of these");
        assert!(number > 25 || may(&without, &prefix));
        assert!(!may(&with, "zzzz") && !may(&without, "zzzz"), "behind the table");
    }
    assert!(denied >= 17, "{denied} of 20");
}

#[test]
fn filters_may_leave_out_the_ends_of_keys() {
    let bench = Bench::new();
    let head = |number: u64| hash_key(&number.to_le_bytes()).to_be_bytes();
    let key = |number: u64, end: u64| [&head(number)[..], &end.to_be_bytes(), &[1]].concat();
    // So many of one that its entries are in several partitions.
    let ends = |number: u64| if number == 7 { 0..40_000 } else { 0..1 + number % 20 };
    let model: Model = (0..3000)
        .flat_map(|number| ends(number).map(move |end| (key(number, end), value("v"))))
        .collect();
    let options = TableOptions { filter_tail_len: 9, block_size: 100, ..TableOptions::default() };
    let of_end: Model = [(vec![1; 9], value("v")), (vec![1; 10], value("v"))].into();
    bench.assert_holds(&bench.written(&options, &of_end), &of_end);
    let with = bench.written(&options, &model);
    bench.assert_holds(&with, &model);
    let may = |number: u64, from: u64| {
        let (head, from) = (head(number), key(number, from));
        let behind = crate::base::prefix_successor(&head).unwrap();
        with.may_contain_head(&bench.caches, (&from, &behind), hash_key(&head)).unwrap()
    };
    assert!((0..3000).all(|number| may(number, 0)), "they are there");
    assert!((0..40_000).step_by(997).all(|end| may(7, end)));
    let taken = (100_000..110_000).filter(|&number| may(number, 0)).count();
    assert!(taken < 300, "{taken} of 10,000");
    assert!(with.may_contain(&bench.caches, b"any", hash_key(b"any")).unwrap(), "it cannot say");
}

#[test]
fn the_first_of_a_head_from_somewhere_on_is_found() {
    let dice = Dice::new(17);
    for (memory, value_len) in [(64 << 20, 3), (64 << 20, 60), (64 << 10, 20)] {
        let bench = Bench::with_memory(memory);
        let head = |number: u64| [b"the same start", &number.to_be_bytes()[..]].concat();
        let ends = |number: u64| if number == 7 { 900 } else { number * number % 50 };
        let end_of = |end: u64| [&(end * 3).to_be_bytes()[..], &[1]].concat();
        let mut model = Model::new();
        for number in (0..150).map(|number| number * 2) {
            for end in 0..ends(number) {
                let key = [head(number), end_of(end)].concat();
                model.insert(key, value(dice.bytes(value_len)));
            }
        }
        let options = TableOptions { filter_tail_len: 9, block_size: 300, ..small_blocks() };
        let table = bench.written(&options, &model);
        for _ in 0..2 {
            for number in 0..300 {
                let (head, behind) = (head(number), head(number + 1));
                for end in [0_u64, 1, 2, 3, 40, 41, 150, 151, 900, 2701] {
                    let from = [&head[..], &end.to_be_bytes()].concat();
                    let (head_len, hash) = (head.len(), hash_key(&head));
                    let sought = SoughtHead { from: &from, head_len, hash, behind: &behind };
                    let found = table.first_of_head(&bench.caches, sought).unwrap();
                    let found = found.map(|(key, found)| (key.to_vec(), found.value.to_vec()));
                    let mut rest = model.range(from.clone()..behind.clone());
                    let expected = rest.next().map(|(key, said)| (key.clone(), said.value.clone()));
                    assert_eq!(found, expected, "{number} from {end}");
                }
            }
        }
    }
}
