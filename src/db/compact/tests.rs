//! Rounds in pieces: several at once, taken back, in the way of each other and of the background.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{KeyspaceRound, RoundProgress};
use crate::base::{Clock, Codec, ManualClock, Slice};
use crate::db::maintain::Keeping;
use crate::db::{Background, Builder, Db, Durability, Keyspace, WriteBatch};
use crate::manifest::{Compaction, KeyspaceOptions, Leveled, Structure, Tiered};
use crate::storage::{MemoryStorage, Storage};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEY_COUNT: u64 = 3000;
/// So short that no round is done in one slice.
const SLICE_SIZE: u64 = 4 << 10;

struct Bench {
    storage: Arc<MemoryStorage>,
    db: Db,
    keyspace: Keyspace,
    model: Model,
}

fn shapes() -> [KeyspaceOptions; 3] {
    let leveled = Leveled::new().level0_trigger(8).level_ratio(3.0);
    let tiered = Tiered::new().threshold(8).run_count_max(20);
    let small = |compaction| {
        let options = KeyspaceOptions::lsm().compaction(compaction).codec(Codec::None);
        options.table_size(16 << 10).block_size(1 << 10)
    };
    // Flushes leave the most to others.
    let flex = KeyspaceOptions::flex().consolidation_pace(8.0).codec(Codec::None);
    [
        flex.interval_size(1 << 10).segment_size(16 << 10),
        small(Compaction::Leveled(leveled)),
        small(Compaction::Tiered(tiered)),
    ]
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn span(from: u64, to: u64) -> (Slice, Option<Slice>) {
    (Slice::from(key(from)), Some(Slice::from(key(to))))
}

fn builder(storage: &Arc<MemoryStorage>) -> Builder {
    Builder::default()
        .storage(Arc::clone(storage) as Arc<dyn Storage>)
        .background(Background::Stepped)
        .memory_budget(1 << 20)
        .memtable_size(64 << 10)
        .flush_slice_size(SLICE_SIZE)
}

impl Bench {
    /// With runs that nobody has compacted.
    fn new(options: KeyspaceOptions) -> Bench {
        let storage = Arc::new(MemoryStorage::new());
        let db = builder(&storage).open("/db").unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        let mut bench = Bench { storage, db, keyspace, model: Model::new() };
        (0..4).for_each(|round| bench.write(round));
        bench
    }

    fn write(&mut self, round: u64) {
        let mut batch = WriteBatch::new();
        for number in (0..KEY_COUNT).filter(|number| !(number + round).is_multiple_of(3)) {
            let value = format!("{round} of {number} ").repeat(3).into_bytes();
            if (number + round).is_multiple_of(7) {
                batch.delete(&self.keyspace, key(number));
                self.model.remove(&key(number));
            } else {
                batch.put(&self.keyspace, key(number), &value);
                self.model.insert(key(number), value);
            }
        }
        self.db.write_with(batch, Durability::Buffered).unwrap();
        self.db.core().flush_all().unwrap();
    }

    fn begin(&self, span: (Slice, Option<Slice>)) -> KeyspaceRound {
        let runtime = self.db.core().runtimes().pop().unwrap();
        self.db.core().begin_round(&runtime, span)
    }

    fn slice(&self, round: &mut KeyspaceRound) -> RoundProgress {
        self.db.core().round_slice(round).unwrap()
    }

    fn finish(&self, round: &mut KeyspaceRound) {
        let mut slices = 0;
        while self.slice(round) == RoundProgress::GoesOn {
            slices += 1;
            assert!(slices < 10_000, "no end: {:?}", round.round.figures());
        }
        assert_eq!(round.round.figures().bytes_left, 0);
    }

    /// A round over these keys would find nothing to do.
    fn assert_compacted(&self, span: (Slice, Option<Slice>)) {
        let mut round = self.begin(span);
        assert_eq!(round.round.figures().bytes_left, 0);
        assert_eq!(self.slice(&mut round), RoundProgress::Over);
    }

    /// What is read is what was written, nothing is wrong, and no file is there in vain.
    fn assert_sound(&self) {
        let found = self.keyspace.iter().map(Result::unwrap);
        let found: Model = found.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
        assert!(found == self.model, "{} entries of {}", found.len(), self.model.len());
        let report = self.db.check().unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        if self.structure() == Structure::Lsm {
            let files = self.storage.list_dir(Path::new("/db/keyspaces/00000001")).unwrap();
            let tables = files.iter().filter(|file| file.name.starts_with("tbl-")).count();
            assert_eq!(tables, self.keyspace.tables().len(), "{files:?}");
        }
    }

    fn structure(&self) -> Structure {
        self.db.keyspaces()[0].options.structure
    }
}

#[test]
fn rounds_at_once_end_each_by_itself() {
    for options in shapes() {
        let bench = Bench::new(options);
        let mut left = bench.begin(span(0, 1700));
        let mut right = bench.begin(span(1300, KEY_COUNT));
        let initial = right.round.figures();
        assert!(initial.bytes_left > 0 && initial.bytes_read == 0, "{initial:?}");
        let mut is_going = [true; 2];
        let mut slices = 0;
        while is_going.contains(&true) {
            for (round, is_going) in [&mut left, &mut right].into_iter().zip(&mut is_going) {
                *is_going = *is_going && bench.slice(round) == RoundProgress::GoesOn;
            }
            slices += 1;
            assert!(slices < 10_000, "no end");
        }
        assert!(slices > 5, "{slices}");
        bench.assert_compacted(span(0, KEY_COUNT));
        let read = left.round.figures().bytes_read + right.round.figures().bytes_read;
        let written = left.round.figures().bytes_written + right.round.figures().bytes_written;
        assert!(read > 0 && written > 0, "{read} {written}");
        drop((left, right));
        bench.assert_sound();
    }
}

#[test]
fn the_end_of_a_round_does_not_end_another() {
    for options in shapes() {
        let bench = Bench::new(options);
        let mut all = bench.begin((Slice::default(), None));
        let mut narrow = bench.begin(span(100, 101));
        bench.finish(&mut narrow);
        drop(narrow);
        let mut nothing = bench.begin(span(5, 5));
        bench.finish(&mut nothing);
        drop(nothing);
        bench.finish(&mut all);
        bench.assert_compacted((Slice::default(), None));
        drop(all);
        bench.assert_sound();
    }
}

#[test]
fn a_round_that_is_taken_back_leaves_nothing_and_is_not_waited_for() {
    for options in shapes() {
        for slice_count in 0..12 {
            let mut bench = Bench::new(options.clone());
            let mut given_up = bench.begin((Slice::default(), None));
            let mut other = bench.begin(span(0, 2000));
            for _ in 0..slice_count {
                bench.slice(&mut given_up);
            }
            bench.slice(&mut other);
            drop(given_up);
            bench.finish(&mut other);
            drop(other);
            bench.assert_compacted(span(0, 2000));
            while bench.db.step().unwrap() {}
            bench.assert_sound();
            bench.write(9);
            bench.db.compact().unwrap();
            bench.assert_sound();
        }
    }
}

#[test]
fn a_round_goes_on_with_what_is_in_its_way_and_owes_nothing_that_comes_later() {
    for options in shapes() {
        let mut bench = Bench::new(options);
        // Compactions that the background has begun, and nobody goes on with.
        for round in 10..22 {
            bench.write(round);
            bench.db.core().compact_slice_of_any(Keeping::ToNone).unwrap();
        }
        let mut round = bench.begin((Slice::default(), None));
        let mut writes = 30;
        let mut slices = 0;
        while bench.slice(&mut round) == RoundProgress::GoesOn {
            slices += 1;
            assert!(slices < 20_000, "no end");
            if slices % 40 == 0 && writes < 45 {
                bench.write(writes);
                bench.db.step().unwrap();
                writes += 1;
            }
        }
        drop(round);
        bench.assert_sound();
    }
}

#[test]
fn a_round_leaves_what_lies_elsewhere() {
    for options in shapes() {
        let bench = Bench::new(options.clone());
        bench.db.compact().unwrap();
        bench.assert_sound();
        let tables_before = bench.keyspace.tables();
        let bytes = |bench: &Bench| bench.db.stats().keyspaces[0].bytes_live;
        for start in [500u64, 2000] {
            let mut batch = WriteBatch::new();
            let third = (start..start + 500).step_by(3);
            third.for_each(|number| batch.delete(&bench.keyspace, key(number)));
            bench.db.write_with(batch, Durability::Buffered).unwrap();
            bench.db.core().flush_all().unwrap();
        }
        let before = bytes(&bench);
        let mut round = bench.begin(span(500, 1000));
        bench.finish(&mut round);
        drop(round);
        assert!(bytes(&bench) < before, "{} {before}", bytes(&bench));
        if bench.structure() == Structure::Lsm {
            let is_there = |table: &crate::TableInfo| *table.first >= *key(2600);
            let numbers = |tables: &[crate::TableInfo]| -> Vec<u64> {
                tables.iter().filter(|table| is_there(table)).map(|table| table.number).collect()
            };
            assert_eq!(numbers(&bench.keyspace.tables()), numbers(&tables_before));
        }
        assert_eq!(bench.db.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn compaction_in_the_background_keeps_to_its_rate_until_it_is_far_behind() {
    const RATE: u64 = 64 << 10;
    let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
    let storage = Arc::new(MemoryStorage::new());
    let builder = builder(&storage).clock(Arc::clone(&clock) as Arc<_>);
    let db = builder.compaction_rate(RATE).open("/db").unwrap();
    let [_, leveled, _] = shapes();
    let keyspace = db.create_keyspace("k", leveled).unwrap();
    let mut bench = Bench { storage, db, keyspace, model: Model::new() };
    (0..12).for_each(|round| bench.write(round));
    let core = Arc::clone(bench.db.core());
    let compact = || core.compact_slice_of_any(Keeping::ToRate).unwrap();
    let written = || bench.db.stats().keyspaces[0].session.consolidation;
    let (mut slices, began, before) = (0, clock.monotonic(), written());
    loop {
        if !compact() {
            let wait = core.compaction_rate.wait(clock.monotonic());
            if wait.is_zero() {
                break;
            }
            assert!(wait <= Duration::from_secs(2), "{wait:?}");
            clock.advance(wait + Duration::from_micros(1)); // Which it counts by.
            continue;
        }
        slices += 1;
        let wait = core.compaction_rate.wait(clock.monotonic());
        assert!(wait.is_zero() || !compact(), "not before it is time");
    }
    let took = clock.monotonic().saturating_sub(began).as_secs_f64();
    assert!(slices > 3 && written() > 0, "{slices} {:?}", bench.db.stats().keyspaces[0]);
    let bytes = written() - before;
    assert!(took >= bytes as f64 / RATE as f64 * 0.9, "{bytes} bytes in {took} s, {before} before");
    // Runs pile up: the rate gives way.
    core.compaction_rate.note(1 << 30, clock.monotonic());
    assert!(!compact());
    for round in 20..60 {
        bench.write(round);
    }
    assert!(bench.db.stats().keyspaces[0].fresh_runs >= 36, "{:?}", bench.db.stats());
    assert!(core.compact_slice_of_any(Keeping::ToRate).unwrap());
    let mut steps = 0;
    while core.compact_slice_of_any(Keeping::ToRate).unwrap() {
        steps += 1;
        assert!(steps < 10_000, "no end");
    }
    assert!(bench.db.stats().keyspaces[0].fresh_runs < 36);
    core.compaction_rate.set(None);
    while bench.db.step().unwrap() {}
    bench.assert_sound();
}

/// Writers that fill memtables as fast as they are flushed have one sealed at any time.
#[test]
fn a_round_beside_who_always_has_something_sealed_comes_to_its_end() {
    for options in shapes() {
        let mut bench = Bench::new(options);
        let mut round = bench.begin((Slice::default(), None));
        let left = round.round.figures().bytes_left;
        assert!(left > 0);
        let mut number = 0;
        for slices in 0.. {
            let sealed = || bench.db.core().published.state().keyspaces[0].sealed.len();
            while sealed() == 0 {
                let (key, value) = (key(number % KEY_COUNT), vec![b'w'; 200]);
                bench.keyspace.put_with(&key, &value, Durability::Buffered).unwrap();
                bench.model.insert(key, value);
                number += 7;
            }
            if bench.slice(&mut round) == RoundProgress::Over {
                break;
            }
            assert!(slices < 10_000, "{} of {left} are left", round.round.figures().bytes_left);
        }
        assert_eq!(round.round.figures().bytes_left, 0);
        bench.db.core().flush_all().unwrap();
        bench.assert_sound();
    }
}
