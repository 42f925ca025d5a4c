//! Timings by hand: `cargo test --release --lib table::tests::timing -- --ignored --nocapture`.

use std::hint::black_box;

use super::*;
use crate::base::{Clock, Codec, SystemClock};
use crate::storage::OsStorage;

/// 110 MB of keys and values.
const COUNT: u64 = 1_000_000;
const LOOKUPS: usize = 1_000_000;
const MEMORY: usize = 1 << 30;

fn nanos(count: usize, what: impl FnOnce()) -> f64 {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    what();
    (clock.monotonic() - start).as_nanos() as f64 / count as f64
}

fn key_of(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let mut left = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    key
}

fn print_times(name: &str, bench: &Bench, options: &TableOptions) {
    let random = SeededEntropy::new(3);
    let value: Vec<u8> = (0..4096).map(|_| random.next_u64() as u8).collect();
    let mut record = None;
    let write = nanos(1, || {
        let mut writer = TableWriter::create(&bench.place, options, &bench.budget).unwrap();
        for number in 0..COUNT {
            let start = (number * 37 % 3900) as usize;
            let (key, value) = (key_of(number * 2), &value[start..start + 100]);
            let (seqno, kind) = (SeqNo::from_parts(1000 + number / 1000, 0), EntryKind::Value);
            writer.add(EntryRef { key: &key, seqno, kind, value }).unwrap();
        }
        record = Some(writer.finish().unwrap());
    });
    let record = record.unwrap();
    let table = bench.table(&record);
    let mut cursor = bench.cursor(&table, ReadMode::Passing);
    let walk = |cursor: &mut TableCursor| {
        nanos(COUNT as usize, || {
            let mut bytes = 0;
            cursor.seek_first().unwrap();
            while cursor.is_valid() {
                bytes +=
                    cursor.key().map_or(0, <[u8]>::len) + cursor.value().map_or(0, <[u8]>::len);
                cursor.next().unwrap();
            }
            assert_eq!(bytes, COUNT as usize * 116);
        })
    };
    let passing = walk(&mut cursor);
    let mut cursor = bench.cursor(&table, ReadMode::Normal);
    let cold = walk(&mut cursor);
    let warm = walk(&mut cursor);
    let lookups = |numbers: &[u64], expected: bool| {
        nanos(numbers.len(), || {
            for &number in numbers {
                let key = key_of(number);
                let found = table.find(&bench.caches, black_box(&key), hash_key(&key)).unwrap();
                assert_eq!(black_box(found).is_some(), expected);
            }
        })
    };
    let all: Vec<u64> = (0..LOOKUPS).map(|_| random.next_u64() % COUNT * 2).collect();
    let first = lookups(&all, true);
    let hit = lookups(&all, true);
    let hot: Vec<u64> = (0..LOOKUPS).map(|_| random.next_u64() % 10_000 * 2).collect();
    lookups(&hot, true);
    let hot = lookups(&hot, true);
    let absent: Vec<u64> = all.iter().map(|number| number + 1).collect();
    let miss = lookups(&absent, false);
    let seek = nanos(LOOKUPS / 10, || {
        for &number in &all[..LOOKUPS / 10] {
            cursor.seek(&key_of(number)).unwrap();
            assert!(cursor.is_valid());
        }
    });
    let mb = COUNT as f64 * 116.0 / (write / 1e9) / 1e6;
    println!(
        "{name:16} write {mb:5.0} MB/s  size {:4} MB  walk passing {passing:4.0} cold {cold:4.0} \
         warm {warm:4.1}  get first {first:4.0} again {hit:4.0} hot {hot:4.0} absent {miss:4.0}  \
         seek {seek:4.0} ns",
        record.size / 1_000_000
    );
}

#[test]
#[ignore = "timing, run by hand"]
fn timings() {
    for _ in 0..2 {
        let lz4 = TableOptions { codec: Codec::Lz4, ..TableOptions::default() };
        print_times("memory", &Bench::with_memory(MEMORY), &TableOptions::default());
        print_times("memory, lz4", &Bench::with_memory(MEMORY), &lz4);
        let dir = tempfile::tempdir().unwrap();
        let bench = Bench::at(Arc::new(OsStorage::new()), dir.path(), MEMORY);
        print_times("file", &bench, &TableOptions::default());
    }
}
