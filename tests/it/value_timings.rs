//! What separating values costs and gives, by their size: the figures of
//! `docs/decisions/0023-value-log.md`.
//!
//!     cargo test --release --test it value_timings -- --ignored --nocapture

use lithedb::base::{Clock, Entropy, SeededEntropy, SystemClock};
use lithedb::{Db, Durability, KeyspaceOptions, WriteBatch};

/// Bytes of values in each store.
const DATA_SIZE: usize = 128 << 20;
const BATCH_LEN: usize = 16;
const READ_COUNT: usize = 20_000;

fn key_of(number: usize) -> [u8; 16] {
    let spread = (number as u128 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    spread.to_be_bytes()
}

fn write(db: &Db, numbers: &[usize], value_size: usize, round: u8) {
    let keyspace = db.keyspace("k").unwrap();
    for numbers in numbers.chunks(BATCH_LEN) {
        let mut batch = WriteBatch::new();
        for number in numbers {
            let noise = SeededEntropy::new(*number as u64 ^ u64::from(round) << 48);
            let word = noise.next_u64().to_le_bytes();
            let value: Vec<u8> = word.into_iter().cycle().take(value_size).collect();
            batch.put(&keyspace, key_of(*number), value);
        }
        db.write_with(batch, Durability::Buffered).unwrap();
    }
    db.sync().unwrap();
}

#[test]
#[ignore = "prints figures; takes a minute"]
fn figures_by_size_of_values() {
    let clock = SystemClock::new();
    println!("value  separated  load  overwrite  write amp.  on disk/data  read");
    for value_size in [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10] {
        for separated in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = Db::builder().memory_budget(64 << 20).open(dir.path()).unwrap();
            let options = KeyspaceOptions::flex().value_separation(separated.then_some(512));
            let keyspace = db.create_keyspace("k", options).unwrap();
            let count = DATA_SIZE / value_size;
            let random = SeededEntropy::new(value_size as u64);
            let all: Vec<usize> = (0..count).collect();
            let some: Vec<usize> =
                (0..count / 2).map(|_| random.next_u64() as usize % count).collect();
            let began = clock.monotonic();
            write(&db, &all, value_size, 0);
            let loaded = clock.monotonic() - began;
            let began = clock.monotonic();
            write(&db, &some, value_size, 1);
            let overwritten = clock.monotonic() - began;
            db.flush().unwrap();
            let stats = db.stats();
            let keyspaces: u64 = stats.keyspaces.iter().map(|stats| stats.bytes_on_disk).sum();
            let began = clock.monotonic();
            let mut read = 0;
            for _ in 0..READ_COUNT {
                let key = key_of(random.next_u64() as usize % count);
                read += keyspace.get(key).unwrap().map_or(0, |value| value.len());
            }
            let reads = clock.monotonic() - began;
            assert_eq!(read, READ_COUNT * value_size);
            let megabytes = |count: usize| (count * value_size) as f64 / 1e6;
            println!(
                "{value_size:>5}  {separated:>9}  {:>4.0}  {:>9.0}  {:>10.2}  {:>12.2}  {:>4.1}",
                megabytes(count) / loaded.as_secs_f64(),
                megabytes(count / 2) / overwritten.as_secs_f64(),
                stats.write_amplification(),
                (keyspaces + stats.value_bytes()) as f64 / DATA_SIZE as f64,
                reads.as_secs_f64() * 1e6 / READ_COUNT as f64,
            );
        }
    }
}

/// A steady overwrite: values at random, as many as there are so many times over.
struct Overwrite {
    count: usize,
    value_size: usize,
    rounds: usize,
    /// The tenths during which a snapshot is held.
    held: std::ops::Range<usize>,
}

/// Keys whose values a snapshot has to show still.
const SAMPLE_COUNT: usize = 1000;

/// Prints how large the store becomes, and how fast writes and reads are, a tenth at a time: with
/// what of it entries point to, what none does, and all that is not in value files.
fn overwrite_steadily(builder: lithedb::Builder, overwrite: &Overwrite) {
    let &Overwrite { count, value_size, rounds, ref held } = overwrite;
    let clock = SystemClock::new();
    let dir = tempfile::tempdir().unwrap();
    let db = builder.open(dir.path()).unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    write(&db, &(0..count).collect::<Vec<_>>(), value_size, 0);
    let random = SeededEntropy::new(1);
    let any = || random.next_u64() as usize % count;
    let data = (count * (value_size + 16)) as f64;
    let mut highest: f64 = 0.0;
    let mut snapshot = None;
    for tenth in 0..10 {
        if tenth == held.start && !held.is_empty() {
            let taken = db.snapshot();
            let of = |number| taken.get(&keyspace, key_of(number)).unwrap().unwrap();
            let shown: Vec<_> = (0..SAMPLE_COUNT).map(any_of(&any)).map(|n| (n, of(n))).collect();
            snapshot = Some((taken, shown));
        }
        if tenth == held.end
            && let Some((taken, shown)) = snapshot.take()
        {
            for (number, value) in shown {
                assert!(taken.get(&keyspace, key_of(number)).unwrap() == Some(value), "{number}");
            }
        }
        let began = clock.monotonic();
        let (mut largest, mut parts): (f64, _) = (0.0, [0.0; 3]);
        let written = count * rounds / 10;
        let mut times = Vec::with_capacity(written / 500);
        for _ in 0..written / 500 {
            let some: Vec<usize> = (0..500).map(any_of(&any)).collect();
            let before = clock.monotonic();
            write(&db, &some, value_size, 1 + tenth as u8);
            times.push((clock.monotonic() - before).as_secs_f64() * 1e3);
            let stats = db.stats();
            let keyspaces: u64 = stats.keyspaces.iter().map(|stats| stats.bytes_on_disk).sum();
            let size = keyspaces + stats.value_bytes() + stats.wal_bytes_on_disk;
            if size as f64 / data > largest {
                largest = size as f64 / data;
                let dead = stats.value_bytes() - stats.value_bytes_live();
                let rest = keyspaces + stats.wal_bytes_on_disk;
                parts = [stats.value_bytes_live(), dead, rest].map(|part| part as f64 / data);
            }
        }
        let took = (clock.monotonic() - began).as_secs_f64();
        times.sort_by(f64::total_cmp);
        let at = |thousandth| times[(times.len() - 1) * thousandth / 1000];
        let [half, most, p999, last] = [500, 990, 999, 1000].map(at);
        let began = clock.monotonic();
        for _ in 0..READ_COUNT {
            assert_eq!(keyspace.get(key_of(any())).unwrap().unwrap().len(), value_size);
        }
        let read = (clock.monotonic() - began).as_secs_f64() * 1e6 / READ_COUNT as f64;
        let (stats, rate) = (db.stats(), (written * value_size) as f64 / 1e6 / took);
        highest = highest.max(largest);
        println!(
            "{tenth}  {rate:>4.0} MB/s, 500 in {half:.1} ms, p99 {most:.1}, p99.9 {p999:.1}, \
             longest {last:.0}  read {read:.1} us  size {largest:.2} {parts:.2?}  write amp. \
             {:.2}  moved {} MB  pinned {} MB  {:?}",
            stats.write_amplification(),
            stats.value_bytes_moved / 1_000_000,
            stats.bytes_pinned() / 1_000_000,
            stats.stall_time,
        );
    }
    println!("highest {highest:.2}");
}

#[test]
#[ignore = "prints figures; takes hours and 35 GB"]
fn figures_under_steady_overwrite_of_20_gb() {
    let large = Overwrite { count: 5_000_000, value_size: 4 << 10, rounds: 10, held: 10..10 };
    overwrite_steadily(Db::builder().memory_budget(256 << 20), &large);
}

/// For iterators that count.
fn any_of(any: &impl Fn() -> usize) -> impl Fn(usize) -> usize {
    move |_| any()
}

#[test]
#[ignore = "prints figures; takes minutes"]
fn figures_under_steady_overwrite_of_a_fiftieth() {
    println!("5M values of 4 KiB with the defaults, all of it a fiftieth");
    let small = Db::builder().value_file_size(1300 << 10).memtable_size(1300 << 10);
    let large = Overwrite { count: 100_000, value_size: 4 << 10, rounds: 10, held: 10..10 };
    overwrite_steadily(small.memory_budget(64 << 20), &large);
}

#[test]
#[ignore = "prints figures; takes minutes"]
fn figures_under_steady_overwrite_of_1_gb() {
    let large = Overwrite { count: 250_000, value_size: 4 << 10, rounds: 4, held: 10..10 };
    overwrite_steadily(Db::builder().memory_budget(256 << 20), &large);
}

#[test]
#[ignore = "prints figures; takes minutes"]
fn figures_under_steady_overwrite_with_a_snapshot() {
    println!("while the fourth to the seventh tenth is written");
    let large = Overwrite { count: 250_000, value_size: 4 << 10, rounds: 4, held: 3..7 };
    overwrite_steadily(Db::builder().memory_budget(256 << 20), &large);
}

#[test]
#[ignore = "prints figures; takes minutes"]
fn figures_under_steady_overwrite_of_small_values() {
    println!("5M values of 100 B, defaults");
    let small = Overwrite { count: 5_000_000, value_size: 100, rounds: 10, held: 10..10 };
    overwrite_steadily(Db::builder().memory_budget(256 << 20), &small);
}
