//! The page of a small made-up run.

use super::*;
use crate::judge::OWN;
use crate::results::EngineAbout;
use lithe_bench::Row;

fn results() -> Results {
    let engine = |name: &str, safety| EngineAbout {
        engine: name.into(),
        safety,
        why: if safety == Safety::Kill { String::new() } else { "it forgets".into() },
        ..EngineAbout::default()
    };
    let mut results = Results {
        engines: vec![
            engine(OWN, Safety::Kill),
            engine("rival", Safety::Kill),
            engine("unsafe", Safety::None),
            engine("slow", Safety::Kill),
        ],
        ..Results::default()
    };
    results.head.memory = vec!["268435456".into(), "1073741824".into()];
    for (name, keys, value) in
        [(OWN, 5, 300_000.0), ("rival", 5, 200_000.0), ("unsafe", 5, 900_000.0), ("slow", 1, 50.0)]
    {
        results.add(name, keys, Row::new("W3", "random", value, "ops/s").with("checksum", keys));
        results.add(name, keys, Row::new("1GiB W4", "uniform", 1e6 / value, "ns"));
        results.add(name, keys, Row::new("W3", "random cpu", 7.0, "s"));
    }
    results.note_gap("slow", "W3Random", "ended after 900 s (5 keys)");
    results
}

#[test]
fn cells_hold_the_ratio_to_the_best_rival_that_counts() {
    let table = tables::of_workload(&results(), "W3");
    assert!(table.starts_with("| | unit | lithedb | rival | unsafe | slow |\n"), "{table}");
    let random = "| random | ops/s | 300 K (1.50) | **200 K** | 900 K† (4.50) | 50.0‡ |\n";
    assert!(table.contains(random), "{table}");
    let table = tables::of_workload(&results(), "1GiB W4");
    assert!(table.contains("| uniform | ns | 3.33 (1.50) | **5.00** |"), "{table}");
}

#[test]
fn the_summary_has_a_line_per_speed() {
    let summary = tables::summary(&results());
    assert!(
        summary.contains("| W3 | random | 300 K | rival | 200 K | ops/s | 1.50 |"),
        "{summary}"
    );
    assert!(!summary.contains("cpu"), "costs are no speeds");
}

#[test]
fn workloads_come_by_number() {
    let mut results = Results::default();
    for workload in ["W10", "W3", "1GiB W3", "W16 1M W4", "W6"] {
        results.add("x", 1, Row::new(workload, "m", 1.0, "ns"));
    }
    assert_eq!(tables::workloads(&results), ["W3", "1GiB W3", "W6", "W10", "W16 1M W4"]);
}

#[test]
fn the_page_links_its_charts_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(DATA_DIR)).unwrap();
    write(&results(), dir.path()).unwrap();
    let page = fs::read_to_string(dir.path().join(FILE)).unwrap();
    for text in [
        "## W3\n",
        "](benchmarks/w3.svg)",
        "| slow | W3Random | ended after 900 s (5 keys) |",
        "checksums and counts agree",
        "no: it forgets",
        "With 1GiB of memory.",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(dir.path().join("benchmarks/1gib-w4.svg").is_file());
    let links = page.matches("](benchmarks/").count();
    assert_eq!(fs::read_dir(dir.path().join(DATA_DIR)).unwrap().count(), links);
}

#[test]
fn a_wrong_checksum_is_an_error_on_the_page() {
    let mut results = results();
    results.add("rival", 5, Row::new("W3", "random", 1.0, "ops/s").with("checksum", 6));
    assert!(errors(&results).contains("checksum is 5 (lithedb, unsafe), 6 (rival)"));
}
