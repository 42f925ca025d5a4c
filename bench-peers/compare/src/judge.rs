//! Judging figures: which way is better, which rivals count, who is best, whose checksums differ.
//! Pure functions.
//!
//! Invariants
//! - J1  Figures are compared only at the same number of keys.
//! - J2  A rival counts where it gives what the figure is about: one that a crash can cost what was
//!   synced counts nowhere; one that loses unsynced writes with the process counts where reads or
//!   durable writes were measured, and not where unsynced writes were.

use crate::results::{EngineAbout, Figure, Safety};
use std::collections::BTreeMap;

/// The engine that all this is about.
pub const OWN: &str = "lithedb";

/// Details that must be the same for every engine.
const MUST_AGREE: [&str; 5] = ["checksum", "entries", "reads", "writes", "transactions"];

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Rates and shares.
    Higher,
    /// Times and costs.
    Lower,
}

/// Which way figures of this unit are better.
pub fn better(unit: &str) -> Better {
    match unit {
        "ops/s" | "MB/s" | "%" => Better::Higher,
        _ => Better::Lower,
    }
}

/// How many times as good as `other` a value is: above 1 is better.
pub fn times_as_good(unit: &str, value: f64, other: f64) -> f64 {
    match better(unit) {
        Better::Higher => value / other,
        Better::Lower => other / value,
    }
}

/// Whether the figure measures writes that are acknowledged without sync, or what they cost.
fn is_of_unsynced_writes(workload: &str, metric: &str) -> bool {
    let base = workload.rsplit(' ').next().unwrap_or(workload);
    match base {
        "W1" | "W3" | "W11" | "W13" | "W15" => true,
        "W6" => !metric.starts_with('C'),
        "W9" => metric.contains("put"),
        "W10" => !metric.contains("read"),
        "W14" => !metric.contains("count"),
        _ => false,
    }
}

/// J2.
pub fn counts(engine: &EngineAbout, workload: &str, metric: &str) -> bool {
    match engine.safety {
        Safety::Kill => true,
        Safety::Sync => !is_of_unsynced_writes(workload, metric),
        Safety::None => false,
    }
}

/// The best of the rivals that count, among the figures of one workload and metric.
pub fn best_rival<'a>(
    figures: &[&'a Figure],
    engines: &[EngineAbout],
    keys: u64,
) -> Option<&'a Figure> {
    figures
        .iter()
        .copied()
        .filter(|figure| figure.engine != OWN && figure.keys == keys && figure.value.is_finite())
        .filter(|figure| {
            let about = engines.iter().find(|about| about.engine == figure.engine);
            about.is_some_and(|about| counts(about, &figure.workload, &figure.metric))
        })
        .reduce(|best, figure| {
            let wins = times_as_good(&figure.unit, figure.value, best.value) > 1.0;
            if wins { figure } else { best }
        })
}

/// Workload, metric, keys and name of a detail.
type Place<'a> = (&'a str, &'a str, u64, &'a str);

/// What the checksums and counts of engines (or of rounds) differ in, one sentence each.
pub fn disagreements(figures: &[Figure]) -> Vec<String> {
    let mut told: BTreeMap<Place<'_>, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for figure in figures {
        for name in MUST_AGREE {
            let Some(value) = figure.details.get(name) else { continue };
            let place = (figure.workload.as_str(), figure.metric.as_str(), figure.keys, name);
            let engines = told.entry(place).or_default().entry(value.to_string()).or_default();
            engines.push(&figure.engine);
        }
    }
    told.into_iter()
        .filter(|(_, values)| values.len() > 1)
        .map(|((workload, metric, keys, name), values)| {
            let sides: Vec<String> = values
                .iter()
                .map(|(value, engines)| format!("{value} ({})", engines.join(", ")))
                .collect();
            format!("{workload}, {metric}, {keys} keys: {name} is {}", sides.join(", "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(engine: &str, unit: &str, value: f64) -> Figure {
        Figure {
            engine: engine.into(),
            workload: "W4".into(),
            metric: "uniform".into(),
            unit: unit.into(),
            keys: 5,
            value,
            ..Figure::default()
        }
    }

    fn engine(name: &str, safety: Safety) -> EngineAbout {
        EngineAbout { engine: name.into(), safety, ..EngineAbout::default() }
    }

    #[test]
    fn more_operations_and_less_time_are_better() {
        assert!((times_as_good("ops/s", 30.0, 20.0) - 1.5).abs() < 1e-9);
        assert!((times_as_good("ns", 30.0, 20.0) - 20.0 / 30.0).abs() < 1e-9);
        assert_eq!((better("x"), better("%")), (Better::Lower, Better::Higher));
    }

    #[test]
    fn the_best_rival_is_one_that_counts_at_the_same_size() {
        let engines = [
            engine(OWN, Safety::Kill),
            engine("slow", Safety::Kill),
            engine("good", Safety::Sync),
            engine("unsafe", Safety::None),
            engine("small", Safety::Kill),
        ];
        let mut all = [
            figure(OWN, "ns", 100.0),
            figure("slow", "ns", 300.0),
            figure("good", "ns", 200.0),
            figure("unsafe", "ns", 50.0),
            Figure { keys: 2, ..figure("small", "ns", 10.0) },
        ];
        let best = |all: &[Figure]| {
            let figures: Vec<&Figure> = all.iter().collect();
            best_rival(&figures, &engines, 5).map(|figure| figure.engine.clone())
        };
        assert_eq!(best(&all).as_deref(), Some("good"));
        all.iter_mut().for_each(|figure| figure.workload = "W3".into());
        assert_eq!(best(&all).as_deref(), Some("slow"), "unsynced writes need more");
        assert_eq!(best(&all[..1]), None);
    }

    #[test]
    fn reads_and_durable_writes_count_for_those_that_lose_unsynced_ones() {
        let lossy = engine("lossy", Safety::Sync);
        let verdicts = [
            ("W1", "single puts, no sync", false),
            ("1GiB W4", "uniform", true),
            ("W6", "A", false),
            ("W6", "C read p99", true),
            ("W7", "1 thread", true),
            ("W9", "single puts", false),
            ("W9", "hits", true),
            ("W16 1M W3", "random", false),
        ];
        for (workload, metric, counted) in verdicts {
            assert_eq!(counts(&lossy, workload, metric), counted, "{workload} {metric}");
        }
    }

    #[test]
    fn a_checksum_of_its_own_is_told_with_both_sides() {
        let mut all = [figure("a", "ns", 1.0), figure("b", "ns", 2.0), figure("c", "ns", 3.0)];
        for (figure, sum) in all.iter_mut().zip([7, 7, 8]) {
            figure.details.insert("checksum".into(), json!(sum));
            figure.details.insert("wall_s".into(), json!(sum));
        }
        let told = disagreements(&all);
        assert_eq!(told, ["W4, uniform, 5 keys: checksum is 7 (a, b), 8 (c)"]);
        all[2].keys = 1;
        assert!(disagreements(&all).is_empty(), "another size has another checksum");
    }
}
