//! Thousands of flushes and compactions, several at once, with every invariant looked at.

use std::collections::BTreeMap;

use crate::base::Codec;
use crate::structure::lsm::pick::tests::model::{Content, Entry, Hints, Model, key_slice};
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionStyle, DueTables, LAST_LEVEL, LEVEL_COUNT, LeveledPolicy,
    ManualStep, Pick, Span, TieredPolicy, compaction_debt, pick, pick_idle,
};

/// Numbers that look random (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What is written to the model.
struct Writes {
    numbers: Numbers,
    key_count: u32,
    /// The stamp of each key that is there.
    truth: BTreeMap<u32, u64>,
    stamp: u64,
    delete_percent: u64,
    /// Keys ascend, instead of being anywhere.
    ascending_percent: u64,
    next_ascending: u32,
}

impl Writes {
    fn memtable(&mut self, count: u64) -> Content {
        let mut content = Content::default();
        if self.numbers.below(8) == 0 {
            let start = self.key();
            let end = (start + 1 + self.numbers.below(u64::from(self.key_count / 8)) as u32)
                .min(self.key_count);
            content.ranges.push((start, end.max(start + 1)));
            self.truth.retain(|key, _| !(start..end.max(start + 1)).contains(key));
        }
        let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
        let is_ascending = self.numbers.below(100) < self.ascending_percent;
        for _ in 0..count {
            let key = if is_ascending { self.ascending_key() } else { self.key() };
            self.stamp += 1;
            let is_tombstone = self.numbers.below(100) < self.delete_percent;
            entries.insert(key, Entry { key, stamp: self.stamp, is_tombstone });
            match is_tombstone {
                true => self.truth.remove(&key),
                false => self.truth.insert(key, self.stamp),
            };
        }
        content.entries = entries.into_values().collect();
        content
    }

    fn key(&mut self) -> u32 {
        self.numbers.below(u64::from(self.key_count)) as u32
    }

    fn ascending_key(&mut self) -> u32 {
        self.next_ascending = (self.next_ascending + 1) % self.key_count;
        self.next_ascending
    }
}

fn random_policy(numbers: &mut Numbers) -> CompactionPolicy {
    let style = match numbers.below(3) {
        0 => CompactionStyle::Tiered(TieredPolicy {
            bucket_low: numbers.pick(&[0.3, 0.5, 0.9]),
            bucket_high: numbers.pick(&[1.1, 1.5, 4.0]),
            threshold: numbers.pick(&[2, 3, 4, 8]),
            run_count_max: numbers.pick(&[2, 5, 12]),
            garbage_max: numbers.pick(&[0.1, 1.0, 3.0]),
        }),
        _ => CompactionStyle::Leveled(LeveledPolicy {
            level0_trigger: numbers.pick(&[2, 4, 8]),
            level_ratio: numbers.pick(&[1.5, 2.0, 4.0, 10.0]),
        }),
    };
    let mut codecs = [Codec::None; LEVEL_COUNT];
    codecs[6] = numbers.pick(&[Codec::None, Codec::None, Codec::Lz4]);
    CompactionPolicy {
        style,
        flush_size: numbers.pick(&[200, 1000, 4000]),
        table_size: numbers.pick(&[300, 1000, 3000, 100_000]),
        codecs,
    }
}

fn run_count_max(policy: &CompactionPolicy) -> usize {
    match policy.style {
        CompactionStyle::Leveled(leveled) => leveled.level0_trigger,
        CompactionStyle::Tiered(tiered) => tiered.run_count_max,
    }
}

/// Begins what is due; whether anything was.
fn start_one(model: &mut Model) -> bool {
    let due = pick(&model.version, &model.running_picks(), &model.policy);
    start(model, due)
}

/// The same, or what may be done when there is nothing else.
fn start_when_idle(model: &mut Model) -> bool {
    let running = model.running_picks();
    let due = pick(&model.version, &running, &model.policy);
    let chosen = due.or_else(|| pick_idle(&model.version, &running, &model.policy));
    start(model, chosen)
}

fn start(model: &mut Model, found: Option<Pick>) -> bool {
    let Some(found) = found else { return false };
    assert!(!found.inputs.is_empty(), "{found:?}");
    model.start(found);
    true
}

fn check_reads(model: &Model, truth: &BTreeMap<u32, u64>, keys: impl Iterator<Item = u32>) {
    for key in keys {
        let found = model.find(key).map(|entry| entry.stamp);
        assert_eq!(found, truth.get(&key).copied(), "key {key} of {:#?}", model.version);
    }
}

/// Compacts until nothing is due; in how many steps.
fn settle(model: &mut Model, numbers: &mut Numbers) -> usize {
    settle_by(model, numbers, start_one)
}

fn settle_by(
    model: &mut Model,
    numbers: &mut Numbers,
    start: impl Fn(&mut Model) -> bool,
) -> usize {
    let mut steps = 0;
    loop {
        let is_due = start(model);
        if model.running.is_empty() {
            return steps;
        }
        if !is_due || numbers.below(3) == 0 {
            let index = numbers.below(model.running.len() as u64) as usize;
            model.install(index);
        }
        steps += 1;
        assert!(steps < 20_000, "no end of compactions: {:#?}", model.version);
    }
}

fn check_shape(model: &Model) {
    let (version, policy) = (&model.version, &model.policy);
    assert_eq!(compaction_debt(version, policy), 0, "{policy:?} {version:#?}");
    assert!(version.level0.len() <= run_count_max(policy), "{policy:?} {version:#?}");
}

fn compact_all(model: &mut Model, numbers: &mut Numbers) {
    let mut due = DueTables::of_span(&model.version, &Span::all());
    for _ in 0..20_000 {
        match due.pick(&model.version, &model.running_picks(), &model.policy) {
            ManualStep::Compact(found) => model.start(found),
            ManualStep::Wait => {
                let index = numbers.below(model.running.len() as u64) as usize;
                due.note_installed(&model.running_picks()[index].inputs, LAST_LEVEL, &[]);
                model.install(index);
            }
            ManualStep::Done => {
                assert!(model.running.is_empty(), "done while something runs");
                return;
            }
        }
    }
    panic!("no end of a full compaction: {:#?}", model.version);
}

fn run(seed: u64, flush_count: usize) {
    let mut numbers = Numbers(seed);
    let policy = random_policy(&mut numbers);
    let hints = numbers.pick(&[Hints::Exact, Hints::None]);
    let mut model = Model::new(policy.clone(), hints);
    let mut writes = Writes {
        key_count: numbers.pick(&[50, 400, 1500]),
        truth: BTreeMap::new(),
        stamp: 0,
        delete_percent: numbers.pick(&[0, 10, 50]),
        ascending_percent: numbers.pick(&[0, 0, 30, 100]),
        next_ascending: 0,
        numbers: Numbers(seed + 1),
    };
    let running_max = numbers.pick(&[1, 2, 4]);
    let mut flushed = 0;
    while flushed < flush_count {
        let is_stalled = model.version.level0.len() > 4 * run_count_max(&policy);
        match numbers.below(4) {
            0 if !is_stalled => {
                let count = 1 + numbers.below(2 * policy.flush_size / 120 + 1);
                let content = writes.memtable(count);
                model.flush(&content);
                flushed += 1;
            }
            1 if !model.running.is_empty() => {
                let index = numbers.below(model.running.len() as u64) as usize;
                model.install(index);
            }
            _ if model.running.len() < running_max => {
                let is_due = match numbers.below(4) {
                    0 => start_when_idle(&mut model),
                    _ => start_one(&mut model),
                };
                assert!(
                    is_due || !model.running.is_empty() || !is_stalled,
                    "stalled for ever: {policy:?} {:#?}",
                    model.version
                );
            }
            _ => {}
        }
        model.check();
        let sample: Vec<u32> = (0..20).map(|_| writes.key()).collect();
        check_reads(&model, &writes.truth, sample.into_iter());
        if flushed % 50 == 0 {
            check_reads(&model, &writes.truth, 0..writes.key_count);
        }
    }
    settle(&mut model, &mut numbers);
    model.check();
    check_shape(&model);
    check_reads(&model, &writes.truth, 0..writes.key_count);
    settle_by(&mut model, &mut numbers, start_when_idle);
    model.check();
    check_shape(&model);
    check_reads(&model, &writes.truth, 0..writes.key_count);
    compact_all(&mut model, &mut numbers);
    model.check();
    check_reads(&model, &writes.truth, 0..writes.key_count);
    let left: Vec<Entry> =
        model.contents.values().flat_map(|content| content.entries.clone()).collect();
    assert_eq!(left.len(), writes.truth.len(), "garbage is left");
    assert!(left.iter().all(|entry| writes.truth.get(&entry.key) == Some(&entry.stamp)));
    assert!(model.contents.values().all(|content| content.ranges.is_empty()));
    assert!(model.version.level0.is_empty());
}

#[test]
fn thousands_of_flushes_and_compactions_lose_nothing_and_come_to_rest() {
    for seed in 0..32 {
        run(seed, 100);
    }
}

/// However often somebody writes a little and pauses: an entry is merged some ten times, and reads
/// look into few runs, though each pause comes behind one flush.
#[test]
fn idling_between_flushes_costs_little_and_leaves_few_runs() {
    let leveled = LeveledPolicy { level0_trigger: 4, level_ratio: 10.0 };
    let policy = CompactionPolicy {
        style: CompactionStyle::Leveled(leveled),
        flush_size: 4000,
        table_size: 4000,
        codecs: [Codec::None; LEVEL_COUNT],
    };
    for (key_count, idles) in [(1500, true), (1500, false), (6000, true), (6000, false)] {
        let mut model = Model::new(policy.clone(), Hints::Exact);
        let mut numbers = Numbers(1);
        let mut writes = Writes {
            key_count,
            truth: BTreeMap::new(),
            stamp: 0,
            delete_percent: 0,
            ascending_percent: 0,
            next_ascending: 0,
            numbers: Numbers(2),
        };
        let (mut runs, flushes) = (0, 1000);
        for _ in 0..flushes {
            let content = writes.memtable(policy.flush_size / 120);
            model.flush(&content);
            settle_by(&mut model, &mut numbers, if idles { start_when_idle } else { start_one });
            runs += model.version.level0.len();
        }
        let amplification = model.compacted as f64 / model.flushed as f64;
        let runs = runs as f64 / f64::from(flushes);
        println!("{key_count} keys, {idles}: {amplification:.1}, {runs:.1} runs of level 0");
        check_reads(&model, &writes.truth, 0..writes.key_count);
        assert!(!idles || (amplification < 12.0 && runs < 3.5), "{amplification} {runs}");
    }
}

#[test]
fn a_compaction_of_a_range_leaves_what_lies_elsewhere() {
    let policy = CompactionPolicy {
        style: CompactionStyle::Leveled(LeveledPolicy { level0_trigger: 8, level_ratio: 4.0 }),
        flush_size: 1200,
        table_size: 600,
        codecs: [Codec::None; LEVEL_COUNT],
    };
    let mut model = Model::new(policy, Hints::Exact);
    let entry = |key, stamp| Entry { key, stamp, is_tombstone: false };
    for stamp in 0..4 {
        let entries = (0..200).map(|key| entry(key * 5 + stamp as u32, stamp)).collect();
        model.flush(&Content { entries, ranges: Vec::new() });
        while start_one(&mut model) {
            model.install(0);
        }
    }
    let span = Span { first: key_slice(300), end: Some(key_slice(400)) };
    let mut due = DueTables::of_span(&model.version, &span);
    while let ManualStep::Compact(found) = due.pick(&model.version, &[], &model.policy) {
        due.note_installed(&found.inputs, LAST_LEVEL, &[]);
        model.start(found);
        model.install(0);
    }
    assert!(!model.version.level0.is_empty(), "other keys are not touched");
    let inside = model.version.level0.iter().flatten().filter(|table| table.span().overlaps(&span));
    assert_eq!(inside.count(), 0);
}
