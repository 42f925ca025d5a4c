//! Times of the operations, by hand:
//! `cargo test --release memtable::tests::timings -- --ignored --nocapture`.

use std::hint::black_box;

use super::*;
use crate::base::Clock;
use crate::base::KeptStamps;
use crate::base::SystemClock;

/// 64 MiB of keys and values.
const COUNT: usize = 550_000;
const BATCH_LEN: usize = 1000;
const QUERY_COUNT: usize = 200_000;

fn time(count: usize, what: impl FnOnce()) -> f64 {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    what();
    (clock.monotonic() - start).as_nanos() as f64 / count as f64
}

fn random_keys(count: usize, seed: u64, make_key: MakeKey) -> Vec<Vec<u8>> {
    let random = SeededEntropy::new(seed);
    (0..count as u64).map(|number| make_key(random.next_u64(), number)).collect()
}

fn print_times(name: &str, filtering: Filtering, make_key: MakeKey) {
    let keys = random_keys(COUNT, 1, make_key);
    let absent = random_keys(QUERY_COUNT, 2, make_key);
    let random = SeededEntropy::new(3);
    // Copies, one behind the other: fetching a query must not count.
    let present: Vec<Vec<u8>> =
        (0..QUERY_COUNT).map(|_| keys[random.next_u64() as usize % COUNT].clone()).collect();
    let memtable = Arc::new(Memtable::new(
        MemtableConfig { expected_bytes: 64 << 20, filtering, range_stamps: KeptStamps::All },
        &SpareChunks::new(0, &MemoryBudget::new(0)),
    ));
    let value = [7u8; 100];
    let insert = time(COUNT, || {
        for (batch, keys) in keys.chunks(BATCH_LEN).enumerate() {
            let entries = keys.iter().map(|key| (&key[..], EntryKind::Value, &value[..]));
            memtable.writer().insert_batch(SeqNo::from_u64(batch as u64 + 1), entries);
        }
    });
    let hit = time(QUERY_COUNT, || {
        for key in &present {
            black_box(memtable.get(black_box(key), SeqNo::MAX).unwrap().value);
        }
    });
    let mut false_hits = 0;
    let miss = time(QUERY_COUNT, || {
        for key in &absent {
            false_hits += usize::from(memtable.get(black_box(key), SeqNo::MAX).is_some());
        }
    });
    let mut cursor = MemtableCursor::new(Arc::clone(&memtable), SeqNo::MAX);
    let mut copy = Vec::with_capacity(1 << 20);
    let scan = time(COUNT, || {
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            if copy.len() > (1 << 20) - 1000 {
                copy.clear();
            }
            copy.extend_from_slice(entry.key);
            copy.extend_from_slice(entry.value);
            cursor.next().unwrap();
        }
    });
    let seek_count = QUERY_COUNT / 10;
    let seek = time(seek_count, || {
        for key in &present[..seek_count] {
            cursor.seek(black_box(key)).unwrap();
            for _ in 0..50 {
                black_box(cursor.entry());
                cursor.next().unwrap();
            }
        }
    });
    let overhead = (memtable.memory_used() - memtable.data_size()) / COUNT;
    println!(
        "{name:24} insert {insert:5.0}  hit {hit:5.0}  miss {miss:5.0} ({false_hits} there)  \
         scan {scan:5.1}  seek+50 {seek:6.0}  overhead {overhead} B"
    );
}

#[test]
#[ignore = "timing, run by hand"]
fn timings() {
    for filtering in [Filtering::Off, Filtering::Bloom].repeat(2) {
        println!("filtering: {filtering:?}");
        print_times("random 16 B", filtering, |random, _| {
            [random.to_be_bytes(), random.rotate_left(9).to_be_bytes()].concat()
        });
        print_times("%016d random", filtering, |random, _| {
            format!("{:016}", random % 10_000_000_000).into_bytes()
        });
        print_times("60 B, 50 shared", filtering, |random, _| {
            format!("{:-<50}{:010}", "user", random % 10_000_000_000).into_bytes()
        });
        print_times("%016d ascending", filtering, |_, number| format!("{number:016}").into_bytes());
    }
}
