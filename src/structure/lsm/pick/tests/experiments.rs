//! What policies cost, on data of 10 to 100 memtables: the numbers of decision 0030. Slow, and
//! nothing fails: run with `cargo test --release -p lithedb compaction::tests::experiments --
//! --ignored --nocapture`.

use crate::base::Codec;
use crate::structure::lsm::pick::picture::Picture;
use crate::structure::lsm::pick::tests::model::{Content, ENTRY_SIZE, Entry, Hints, Model};
use crate::structure::lsm::pick::tests::random::Numbers;
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionReason, CompactionStyle, LAST_LEVEL, LEVEL_COUNT, LeveledPolicy,
    Pick, TableFigures, TieredPolicy, VersionFigures, pick,
};

/// Entries of a memtable.
const MEMTABLE: u32 = 2000;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Each once, in random order.
    Insert,
    /// Each once, ascending.
    Ascending,
    /// Then as many again, uniformly.
    Overwrite,
    /// As many again, four of five to a fifth of the keys.
    Skewed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// Bytes written to tables for each flushed.
    written: f64,
    /// Bytes on the disk against live data: mean, and most.
    space: f64,
    space_max: f64,
    /// Runs: mean, and most.
    runs: f64,
    runs_max: usize,
    tables: usize,
    /// The largest compaction against the data.
    job_max: f64,
}

/// A permutation of `0..count`.
fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers = Numbers(9);
    let mut keys: Vec<u32> = (0..count).collect();
    for index in (1..keys.len()).rev() {
        keys.swap(index, numbers.below(index as u64 + 1) as usize);
    }
    keys
}

struct Meter {
    space: f64,
    space_max: f64,
    runs: f64,
    runs_max: usize,
    job_max: u64,
    count: u32,
}

/// Flushes and compacts; what that costs from the point on where `measured` writes are left.
fn run(choice: &Choice, hints: Hints, load: Load, memtables: u32) -> Costs {
    let keys = memtables * MEMTABLE;
    let mut model = Model::new(choice.policy.clone(), hints);
    let order = if load == Load::Ascending { (0..keys).collect() } else { shuffled(keys) };
    let loaded = order.chunks(MEMTABLE as usize).map(<[u32]>::to_vec);
    let mut numbers = Numbers(5);
    let rewritten = (0..2 * memtables).map(|_| {
        let key = |numbers: &mut Numbers| match load {
            Load::Skewed if numbers.below(5) > 0 => numbers.below(u64::from(keys / 5)) as u32 * 5,
            _ => numbers.below(u64::from(keys)) as u32,
        };
        (0..MEMTABLE).map(|_| key(&mut numbers)).collect::<Vec<u32>>()
    });
    let overwrites = matches!(load, Load::Overwrite | Load::Skewed);
    let mut meter =
        Meter { space: 0.0, space_max: 0.0, runs: 0.0, runs_max: 0, job_max: 0, count: 0 };
    let mut before = (0, 0);
    let mut live = 0;
    let rewritten: Vec<Vec<u32>> = if overwrites { rewritten.collect() } else { Vec::new() };
    let rounds = loaded.chain(rewritten);
    for (round, mut keys_of_round) in rounds.enumerate() {
        let is_measured = !overwrites || round as u32 >= memtables;
        if overwrites && round as u32 == memtables + memtables / 2 {
            before = (model.flushed, model.compacted);
        }
        live = live.max((round as u64 + 1).min(u64::from(memtables)) * u64::from(MEMTABLE));
        keys_of_round.sort_unstable();
        keys_of_round.dedup();
        let entry = |key| Entry { key, stamp: round as u64, is_tombstone: false };
        let entries = keys_of_round.into_iter().map(entry).collect();
        model.flush(&Content { entries, ranges: Vec::new() });
        let live_size = (live * ENTRY_SIZE) as f64;
        while let Some(found) = (choice.pick)(&model.version, &[], &model.policy) {
            if !found.is_move {
                meter.job_max = meter.job_max.max(found.input_size);
            }
            model.start(found);
            if is_measured {
                meter.space_max = meter.space_max.max(model.size_with_running() as f64 / live_size);
            }
            model.install(0);
        }
        if is_measured {
            meter.space += model.size() as f64 / live_size;
            meter.runs += model.run_count() as f64;
            meter.runs_max = meter.runs_max.max(model.run_count());
            meter.count += 1;
        }
    }
    let flushed = (model.flushed - before.0) as f64;
    let count = f64::from(meter.count.max(1));
    Costs {
        written: (flushed + (model.compacted - before.1) as f64) / flushed,
        space: meter.space / count,
        space_max: meter.space_max,
        runs: meter.runs / count,
        runs_max: meter.runs_max,
        tables: model.version.tables().count(),
        job_max: meter.job_max as f64 / (live * ENTRY_SIZE) as f64,
    }
}

fn report(name: &str, choice: &Choice, hints: Hints) {
    for memtables in [10, 20, 40, 100] {
        for load in [Load::Insert, Load::Ascending, Load::Overwrite, Load::Skewed] {
            let costs = run(choice, hints, load, memtables);
            let Costs { written, space, space_max, runs, runs_max, tables, job_max } = costs;
            let load = format!("{load:?}");
            println!(
                "{name:20} {memtables:4} {load:9} written {written:5.2}  space {space:4.2} to \
                 {space_max:4.2}  runs {runs:4.1} to {runs_max:2}  tables {tables:4}  \
                 job {job_max:4.2}"
            );
        }
    }
}

type Picker = fn(&VersionFigures, &[Pick], &CompactionPolicy) -> Option<Pick>;

/// Who chooses.
struct Choice {
    pick: Picker,
    policy: CompactionPolicy,
}

fn policy(style: CompactionStyle, tables_per_memtable: f64) -> CompactionPolicy {
    let flush_size = u64::from(MEMTABLE) * ENTRY_SIZE;
    CompactionPolicy {
        style,
        flush_size,
        table_size: (flush_size as f64 / tables_per_memtable) as u64,
        codecs: [Codec::None; LEVEL_COUNT],
    }
}

fn leveled(level0_trigger: usize, level_ratio: f64) -> CompactionStyle {
    CompactionStyle::Leveled(LeveledPolicy { level0_trigger, level_ratio })
}

/// Leveled compaction as it is known: four runs of level 0 go to the base level at once, and tables
/// of a level that is too large to the next, those first that overlap least. A level is a tenth of
/// the next, and the base level four flushes at most (the defaults of RocksDB, whose dynamic level
/// sizes these are).
fn pick_classic(
    version: &VersionFigures,
    running: &[Pick],
    policy: &CompactionPolicy,
) -> Option<Pick> {
    let picture = Picture::new(version, running);
    let base_max = 4.0 * policy.flush_size as f64;
    let mut target = version.level_size(LAST_LEVEL) as f64;
    let (mut base, mut targets) = (LAST_LEVEL, [f64::MAX; LEVEL_COUNT]);
    while base > 1 && target > base_max {
        target /= 10.0;
        base -= 1;
        targets[usize::from(base)] = target;
    }
    targets[1..usize::from(base)].fill(0.0);
    let level0 = version.level0.len();
    if level0 >= 4 {
        let inputs = picture.whole_runs(0..level0)?;
        let spans: Vec<_> = inputs
            .pieces
            .iter()
            .flat_map(|(place, tables)| {
                picture.run(*place)[tables.clone()].iter().map(TableFigures::span)
            })
            .collect();
        let span = spans.into_iter().reduce(|span, other| span.hull(&other))?;
        let mut inputs = inputs;
        inputs.output_place = picture.place_of(base);
        for place in level0..=inputs.output_place {
            let tables = picture.overlapping(place, &span);
            if !tables.is_empty() {
                inputs.pieces.push((place, tables));
            }
        }
        let spans = inputs.pieces.iter().flat_map(|(place, tables)| {
            picture.run(*place)[tables.clone()].iter().map(TableFigures::span)
        });
        inputs.span = spans.reduce(|span, other| span.hull(&other))?;
        return Some(picture.pick(&inputs, CompactionReason::RunCount));
    }
    let level = (1..LAST_LEVEL)
        .find(|level| version.level_size(*level) as f64 > targets[usize::from(*level)])?;
    let place = picture.place_of(level);
    let next = picture.place_of((level + 1).max(base));
    let sinks = (0..picture.run(place).len())
        .filter_map(|index| picture.sink(place, index..index + 1, next));
    let least = sinks.min_by_key(|inputs| {
        let sizes = picture.sizes(inputs);
        sizes.there * 1000 / sizes.sinking.max(1)
    })?;
    let is_alone = picture.tables(&least).count() == 1;
    let reason = if is_alone { CompactionReason::Move } else { CompactionReason::LevelSize };
    Some(picture.pick(&least, reason))
}

#[test]
#[ignore = "prints numbers, for minutes"]
fn what_policies_cost() {
    let classic = Choice { pick: pick_classic, policy: policy(leveled(4, 10.0), 1.0) };
    report("classic", &classic, Hints::Exact);
    for (trigger, ratio) in [(4, 4.0), (6, 4.0), (8, 4.0), (8, 2.5), (8, 6.0), (8, 10.0), (12, 4.0)]
    {
        let choice = Choice { pick, policy: policy(leveled(trigger, ratio), 1.0) };
        report(&format!("leveled {trigger} {ratio}"), &choice, Hints::Exact);
    }
    for tables in [0.25, 4.0] {
        let choice = Choice { pick, policy: policy(leveled(8, 4.0), tables) };
        report(&format!("leveled {tables} tables"), &choice, Hints::Exact);
    }
    let choice = Choice { pick, policy: policy(leveled(8, 4.0), 1.0) };
    report("leveled without hints", &choice, Hints::None);
    for (threshold, garbage_max) in [(4, 1.0), (8, 1.0), (4, 0.5)] {
        let style = CompactionStyle::Tiered(TieredPolicy {
            bucket_low: 0.5,
            bucket_high: 1.5,
            threshold,
            run_count_max: 16,
            garbage_max,
        });
        let choice = Choice { pick, policy: policy(style, 1.0) };
        report(&format!("tiered {threshold} {garbage_max}"), &choice, Hints::Exact);
    }
}
