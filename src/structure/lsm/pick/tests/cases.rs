//! Tables of versions and what is picked of them.

use crate::base::{Codec, Slice};
use crate::structure::lsm::pick::{
    CompactionPolicy, CompactionReason, CompactionStyle, DueTables, LEVEL_COUNT, LeveledPolicy,
    ManualStep, Pick, Span, TableFigures, TieredPolicy, VersionFigures, compaction_debt, pick,
    pick_idle, pick_paid,
};

/// Flushes and tables of 100 bytes, ten bytes an entry, eight runs, a quarter of garbage.
pub fn policy() -> CompactionPolicy {
    CompactionPolicy {
        style: CompactionStyle::Leveled(LeveledPolicy { level0_trigger: 8, level_ratio: 4.0 }),
        flush_size: 100,
        table_size: 100,
        codecs: [Codec::None; LEVEL_COUNT],
    }
}

fn tiered() -> CompactionPolicy {
    let tiered = TieredPolicy {
        bucket_low: 0.5,
        bucket_high: 1.5,
        threshold: 4,
        run_count_max: 6,
        garbage_max: 1.0,
    };
    CompactionPolicy { style: CompactionStyle::Tiered(tiered), ..policy() }
}

/// A line a run, the newest first: its level, then its tables as `number:first-last=size`. Of the
/// entries of a table so many percent are, and so many older ones it hides: `t50` tombstones, `x50`
/// expired, `h50` hidden (100 without it); `r1` deleted ranges. `~` for the last key: no end.
pub fn version(text: &str) -> VersionFigures {
    let mut version = VersionFigures::default();
    for line in text.lines() {
        let (level, tables) = line.trim().split_once(": ").unwrap();
        let tables: Vec<TableFigures> = tables.split(' ').map(table).collect();
        match level.parse::<usize>().unwrap() {
            0 => version.level0.push(tables),
            level => version.levels[level - 1] = tables,
        }
    }
    version
}

fn table(text: &str) -> TableFigures {
    let (number, rest) = text.split_once(':').unwrap();
    let (keys, rest) = rest.split_once('=').unwrap();
    let (first, last) = keys.split_once('-').unwrap();
    let mut rest = rest.split(',');
    let size: u64 = rest.next().unwrap().parse().unwrap();
    let entry_count = size / 10;
    let mut table = TableFigures {
        number: number.parse().unwrap(),
        first: Slice::from(first.as_bytes()),
        end: (last != "~").then(|| Slice::from(format!("{last}\0").as_bytes())),
        size,
        entry_count,
        tombstones: 0,
        deleted_ranges: 0,
        expired: 0,
        hides: entry_count,
        is_unsieved: false,
    };
    for figure in rest {
        let value: u64 = figure[1..].parse().unwrap();
        match &figure[..1] {
            "t" => table.tombstones = entry_count * value / 100,
            "x" => table.expired = entry_count * value / 100,
            "h" => table.hides = entry_count * value / 100,
            "u" => table.is_unsieved = true,
            "r" => table.deleted_ranges = value as u32,
            other => panic!("{other}"),
        }
    }
    table
}

fn told(pick: &Pick) -> String {
    let inputs: Vec<String> = pick.inputs.iter().map(u64::to_string).collect();
    format!("{:?} {} -> {}", pick.reason, inputs.join(" "), pick.output_level)
}

fn picked(version: &VersionFigures, running: &[Pick], policy: &CompactionPolicy) -> String {
    pick(version, running, policy).map_or_else(|| "nothing".to_owned(), |pick| told(&pick))
}

fn check(policy: &CompactionPolicy, cases: &[(&str, &str, &str)]) {
    for (name, text, expected) in cases {
        assert_eq!(picked(&version(text), &[], policy), *expected, "{name}");
    }
}

#[test]
fn what_has_nothing_in_its_way_sinks_without_being_written() {
    check(
        &policy(),
        &[
            ("nothing", "", "nothing"),
            ("the first flush", "0: 1:a-z=100", "Move 1 -> 6"),
            ("in shape", "6: 1:a-z=100", "nothing"),
            ("ascending", "0: 2:n-p=100\n6: 1:a-m=100", "Move 2 -> 6"),
            ("without end", "0: 2:n-~=100\n6: 1:a-m=100", "Move 2 -> 6"),
            ("under a newer one", "0: 3:a-z=100\n0: 2:n-p=100\n6: 1:a-m=100", "Move 2 -> 6"),
            ("one table of a run", "0: 3:a-b=50 4:n-z=50\n6: 1:a-m=100", "Move 4 -> 6"),
            ("over an older run", "0: 3:a-z=100\n0: 2:a-p=100\n6: 1:a-m=100", "nothing"),
            ("too small", "0: 2:n-p=10\n6: 1:a-m=100", "nothing"),
            ("with a deleted range", "0: 2:n-p=100,r1\n6: 1:a-m=100", "DeletedRanges 2 -> 6"),
            ("mostly tombstones", "0: 2:n-p=100,t60\n6: 1:a-m=100", "Tombstones 2 -> 6"),
            ("mostly expired", "0: 2:n-p=100,x60\n6: 1:a-m=100", "Expired 2 -> 6"),
        ],
    );
    let mut other_codec = policy();
    other_codec.codecs[6] = Codec::Lz4;
    check(&other_codec, &[("to another codec", "0: 2:n-p=100\n6: 1:a-m=100", "nothing")]);
}

#[test]
fn level_0_is_compacted_when_it_hides_too_much() {
    check(
        &policy(),
        &[
            (
                "three flushes are let be, however small the data",
                "0: 4:a-z=100\n0: 3:a-z=100\n0: 2:a-z=100\n6: 1:a-z=300",
                "nothing",
            ),
            (
                "a fourth is not",
                "0: 5:a-z=100\n0: 4:a-z=100\n0: 3:a-z=100\n0: 2:a-z=100\n6: 1:a-z=400",
                "Space 5 4 3 2 1 -> 6",
            ),
            (
                "what hides nothing does not count",
                "0: 6:a-z=100,h0\n0: 5:a-z=100,h0\n0: 4:a-z=100,h0\n0: 3:a-z=100,h0\n\
                 0: 2:a-z=100,h0\n6: 1:a-z=500",
                "nothing",
            ),
            (
                "of columns the one that gives most back for what is written goes first",
                "0: 14:a-f=150 15:g-m=200 16:n-z=150\n0: 11:a-f=150 12:g-m=200 13:n-z=150\n\
                 6: 1:a-f=300 2:g-m=300 3:n-z=300",
                "Space 15 12 2 -> 6",
            ),
            (
                "equals: the oldest",
                "0: 14:a-f=200 15:g-m=200 16:n-z=200\n6: 3:a-f=200 2:g-m=200 1:n-z=200",
                "Space 16 1 -> 6",
            ),
            (
                "a run that is not cut alike takes its neighbours along, but not newer ones",
                "0: 14:a-f=200 15:g-m=200 16:n-z=200\n0: 12:a-i=900 13:j-z=10\n\
                 6: 3:a-f=300 2:g-m=300 1:n-z=300",
                "Space 14 12 3 2 -> 6",
            ),
        ],
    );
}

#[test]
fn with_too_many_runs_those_are_merged_that_cost_least() {
    let runs = |sizes: &[u64]| {
        let count = sizes.len() as u64;
        let lines = sizes
            .iter()
            .zip(0..)
            .map(|(size, index)| format!("0: {}:a-z={size},h0\n", count + 1 - index));
        lines.collect::<String>() + "6: 1:a-z=10000"
    };
    for (sizes, expected) in [
        (&[100; 8][..], "nothing"),
        (&[100; 9], "RunCount 10 9 8 7 6 5 4 3 2 -> 0"),
        (&[100, 100, 100, 400, 500, 600, 700, 800, 900], "RunCount 10 9 8 -> 0"),
        (&[100, 100, 300, 400, 500, 600, 700, 800, 900], "RunCount 10 9 -> 0"),
        (&[500, 600, 100, 100, 900, 900, 700, 800, 900], "RunCount 8 7 -> 0"),
    ] {
        assert_eq!(picked(&version(&runs(sizes)), &[], &policy()), expected, "{sizes:?}");
    }
    // When the base level is small, it is one of them.
    let small_base = runs(&[100; 9]).replace("10000", "50");
    let found = picked(&version(&small_base), &[], &policy());
    assert_eq!(found, "RunCount 10 9 8 7 6 5 4 3 2 1 -> 6");
}

#[test]
fn what_seeks_have_paid_for_is_merged_and_no_more() {
    let paid = |bytes: u64, text: &str, policy: &CompactionPolicy| {
        let version = version(text);
        assert_eq!(picked(&version, &[], policy), "nothing", "{text}");
        let pick = pick_paid(&version, &[], policy, bytes);
        pick.map_or_else(|| "nothing".to_owned(), |pick| told(&pick))
    };
    let one = "0: 2:a-z=100\n6: 1:a-z=500";
    assert_eq!(paid(599, one, &policy()), "nothing");
    assert_eq!(paid(600, one, &policy()), "Seeks 2 1 -> 6");
    // A part of the runs for a part of what was paid for looking into all.
    let three = "0: 4:a-z=100,h0\n0: 3:a-z=100,h0\n0: 2:a-z=800,h0\n6: 1:a-z=2000,h0";
    assert_eq!(paid(599, three, &policy()), "nothing");
    assert_eq!(paid(600, three, &policy()), "Seeks 4 3 -> 0");
    assert_eq!(paid(1_000_000, "6: 1:a-z=900", &policy()), "nothing");
    assert_eq!(paid(1_000_000, "0: 2:a-z=100\n6: 1:a-z=1000", &tiered()), "nothing");
}

#[test]
fn while_nobody_writes_runs_are_merged_where_little_is_written_anew() {
    let idle = |text: &str, policy: &CompactionPolicy| {
        let version = version(text);
        assert_eq!(picked(&version, &[], policy), "nothing", "{text}");
        pick_idle(&version, &[], policy).map_or_else(|| "nothing".to_owned(), |pick| told(&pick))
    };
    for (name, text, expected) in [
        ("nothing", "", "nothing"),
        ("one run", "6: 1:a-z=100", "nothing"),
        ("a third of what it overlaps", "0: 2:a-z=100\n6: 1:a-z=300", "Idle 2 1 -> 6"),
        ("less", "0: 2:a-z=99\n6: 1:a-z=300", "nothing"),
        ("of one table it is more", "0: 2:a-f=99\n6: 1:a-f=200 3:g-z=900", "Idle 2 1 -> 6"),
        ("two alike", "0: 3:a-z=100,h0\n0: 2:a-z=100,h0\n6: 1:a-z=1000", "Idle 3 2 -> 0"),
        (
            "one that is larger than all newer ones together is let be",
            "0: 4:a-z=100,h0\n0: 3:a-z=100,h0\n0: 2:a-z=201,h0\n6: 1:a-z=2000",
            "Idle 4 3 -> 0",
        ),
        (
            "and so is one that is newer",
            "0: 3:a-z=300,h0\n0: 2:a-z=100,h0\n6: 1:a-z=2000",
            "nothing",
        ),
        (
            "together they are a third",
            "0: 3:a-z=60,h0\n0: 2:a-z=20,h0\n6: 1:a-z=240",
            "Idle 3 2 1 -> 6",
        ),
        (
            "more than is done within seconds",
            "0: 3:a-z=500,h0\n0: 2:a-z=200,h0\n6: 1:a-z=2000",
            "nothing",
        ),
        (
            "of a level only what it overlaps, however little the rest is beside all",
            "0: 9:a-b=100,h0\n6: 1:a-b=200 2:c-d=200 3:e-f=200 4:g-h=200",
            "Idle 9 1 -> 6",
        ),
    ] {
        assert_eq!(idle(text, &policy()), expected, "{name}");
    }
    // Tiered runs are to be of different sizes.
    assert_eq!(idle("0: 3:a-z=100\n0: 2:a-z=100\n6: 1:a-z=1000", &tiered()), "nothing");
}

#[test]
fn levels_come_between_when_level_0_would_have_to_hold_too_much() {
    // A quarter of it is more than the 165 flushes that eight runs hold.
    let large = version("0: 4:a-z=20000\n5: 2:a-c=300 3:x-z=300\n6: 1:a-z=80000");
    assert_eq!(picked(&large, &[], &policy()), "Space 4 2 3 -> 5");
    let beyond = version("5: 2:a-m=16000 3:n-z=9000\n6: 1:a-m=36000 4:n-z=44000");
    assert_eq!(picked(&beyond, &[], &policy()), "LevelSize 2 1 -> 6");
    let small = version("0: 4:a-z=2000\n5: 2:a-c=300 3:x-z=300\n6: 1:a-z=800");
    assert_eq!(picked(&small, &[], &policy()), "LevelSize 2 1 -> 6", "it is not needed any more");
}

#[test]
fn what_is_gone_is_given_back_where_that_is_worth_it() {
    check(
        &policy(),
        &[
            ("at the last level", "6: 1:a-m=100,t30 2:n-z=100,t10", "Tombstones 1 -> 6"),
            ("expired there", "6: 1:a-m=100,x20 2:n-z=100,x30", "Expired 2 -> 6"),
            ("the most first", "6: 1:a-m=100,x40 2:n-z=100,x90", "Expired 2 -> 6"),
            ("deleted ranges there", "6: 1:a-m=100,r1", "DeletedRanges 1 -> 6"),
            ("not worth it", "0: 2:a-z=100,t20\n6: 1:a-z=1000", "nothing"),
            (
                "tombstones over what they hide",
                "0: 4:a-f=100,t90 5:g-z=100\n6: 1:a-f=150 2:g-z=1000",
                "Tombstones 4 1 -> 6",
            ),
            (
                "a deleted range over what it hides",
                "0: 4:a-f=10,r1,h3000 5:g-z=100,h0\n6: 1:a-f=300 2:g-z=1000",
                "DeletedRanges 4 1 -> 6",
            ),
        ],
    );
}

#[test]
fn running_compactions_are_kept_out_of_the_way() {
    let policy = policy();
    let text = "0: 14:a-f=200 15:g-m=200 16:n-z=200\n0: 11:a-f=200 12:g-m=200 13:n-z=200\n\
                6: 1:a-f=200 2:g-m=200 3:n-z=200";
    let version = version(text);
    let mut running: Vec<Pick> = Vec::new();
    for expected in ["Space 14 11 1 -> 6", "Space 15 12 2 -> 6", "Space 16 13 3 -> 6"] {
        let found = pick(&version, &running, &policy).unwrap();
        assert_eq!(told(&found), expected);
        running.push(found);
    }
    assert_eq!(picked(&version, &running, &policy), "nothing", "all is at work");
    assert!(compaction_debt(&version, &policy) > 0);
    // Nobody passes through what a running one spans, even where it has no table.
    let gap = super::cases::version(
        "0: 9:k-l=100,r1\n5: 3:a-c=100,h0 4:x-z=100,h0\n6: 1:a-d=100 2:w-z=100",
    );
    let whole = Pick {
        reason: CompactionReason::Manual,
        inputs: vec![3, 4, 1, 2],
        input_size: 400,
        output_level: 6,
        span: Span { first: Slice::from(&b"a"[..]), end: None },
        is_move: false,
        older: Vec::new(),
    };
    assert_eq!(picked(&gap, &[], &policy), "DeletedRanges 9 -> 6");
    assert_eq!(picked(&gap, &[whole], &policy), "nothing");
}

#[test]
fn tiered_runs_of_like_size_are_merged() {
    check(
        &tiered(),
        &[
            (
                "four alike",
                "0: 5:a-z=100\n0: 4:a-z=120\n0: 3:a-z=90\n0: 2:a-z=110\n6: 1:a-z=1000",
                "LikeSize 5 4 3 2 -> 0",
            ),
            ("three alike", "0: 4:a-z=120\n0: 3:a-z=90\n0: 2:a-z=110\n6: 1:a-z=1000", "nothing"),
            (
                "neighbours only: a larger one lies between",
                "0: 5:a-z=100\n0: 4:a-z=100\n0: 3:a-z=400\n0: 2:a-z=100\n0: 6:a-z=100\n\
                 6: 1:a-z=2000",
                "nothing",
            ),
            (
                "with the oldest",
                "0: 4:a-z=120,h50\n0: 3:a-z=90,h50\n0: 2:a-z=110,h50\n6: 1:a-z=100",
                "LikeSize 4 3 2 1 -> 6",
            ),
            (
                "too many of any size",
                "0: 8:a-z=50\n0: 7:a-z=90\n0: 6:a-z=200\n0: 5:a-z=400\n0: 4:a-z=800\n\
                 0: 3:a-z=1600\n0: 2:a-z=3200\n6: 1:a-z=10000",
                "RunCount 8 7 -> 0",
            ),
            (
                "more garbage than data",
                "0: 3:a-z=900\n0: 2:a-z=400\n6: 1:a-z=1000",
                "Space 3 2 1 -> 6",
            ),
        ],
    );
}

#[test]
fn debt_is_what_is_still_to_be_read() {
    let runs = |count: u64| {
        let lines = (0..count).map(|index| format!("0: {}:a-z=100\n", 100 - index));
        version(&(lines.collect::<String>() + "6: 1:a-z=1000"))
    };
    let debts: Vec<u64> = (0..12).map(|count| compaction_debt(&runs(count), &policy())).collect();
    assert_eq!(debts[..4], [0; 4]);
    assert!(debts[4..].is_sorted() && debts[4] > 0, "{debts:?}");
}

#[test]
fn a_range_or_all_is_brought_to_the_last_level_on_demand() {
    let told_step = |text: &str, running: &[Pick], first: &str, end: &str| {
        let version = version(text);
        let due = DueTables::of_span(&version, &span_of(first, end));
        match due.pick(&version, running, &policy()) {
            ManualStep::Compact(pick) => told(&pick),
            ManualStep::Wait => "wait".to_owned(),
            ManualStep::Done => "done".to_owned(),
        }
    };
    let text = "0: 6:a-z=100\n0: 4:a-m=50 5:n-z=50\n5: 3:x-y=100\n6: 1:a-m=100,t10 2:n-z=100";
    for (first, end, expected) in [
        ("", "", "Manual 6 4 5 3 1 2 -> 6"),
        ("b", "c", "Manual 6 4 5 3 1 2 -> 6"),
        ("zz", "", "done"),
    ] {
        assert_eq!(told_step(text, &[], first, end), expected, "{first} to {end}");
    }
    let columns = "0: 4:a-m=50 5:n-z=50\n6: 1:a-m=100,t10 2:n-z=100";
    assert_eq!(told_step(columns, &[], "", ""), "Manual 4 1 -> 6");
    assert_eq!(told_step(columns, &[], "p", "q"), "Manual 5 2 -> 6");
    let last = "6: 1:a-m=100,t10 2:n-z=100";
    assert_eq!(told_step(last, &[], "", ""), "Manual 1 -> 6");
    assert_eq!(told_step(last, &[], "n", ""), "done");
    assert_eq!(told_step("0: 1:a-z=100", &[], "", ""), "Move 1 -> 6");
    let columns = version(columns);
    let running = DueTables::of_span(&columns, &Span::all()).pick(&columns, &[], &policy());
    let ManualStep::Compact(running) = running else { panic!("{running:?}") };
    let rest = "0: 4:a-m=50\n6: 1:a-m=100,t10";
    assert_eq!(told_step(rest, &[running], "", ""), "wait");
}

fn span_of(first: &str, end: &str) -> Span {
    let end = (!end.is_empty()).then(|| Slice::from(end.as_bytes()));
    Span { first: Slice::from(first.as_bytes()), end }
}

#[test]
fn what_is_flushed_later_is_not_due_and_what_is_made_of_what_is_due_is() {
    let text = "0: 4:a-m=50 5:n-z=50\n6: 1:a-m=100,t10 2:n-z=100";
    let mut due = DueTables::of_span(&version(text), &span_of("p", "q"));
    assert_eq!(due.bytes_left(&version(text)), 150, "5, and 2 below it");
    let flushed = "0: 9:a-z=70\n0: 4:a-m=50 5:n-z=50\n6: 1:a-m=100,t10 2:n-z=100";
    assert_eq!(due.bytes_left(&version(flushed)), 150);
    // Somebody else merges it with what is newer: what comes of that is due.
    due.note_installed(&[9, 4, 5], 4, &[10]);
    let merged = version("4: 10:a-z=160\n6: 1:a-m=100,t10 2:n-z=100");
    assert_eq!(due.bytes_left(&merged), 360);
    let ManualStep::Compact(pick) = due.pick(&merged, &[], &policy()) else { panic!("{due:?}") };
    assert_eq!(told(&pick), "Manual 10 1 2 -> 6");
    due.note_installed(&[3], 2, &[11]);
    assert!(!due.is_empty(), "others are no concern of it");
    due.note_installed(&[10, 1, 2], 6, &[12]);
    assert!(due.is_empty());
    assert_eq!(due.pick(&merged, &[], &policy()), ManualStep::Done);
}
