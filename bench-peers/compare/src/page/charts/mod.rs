//! Charts: speed as bars, latencies as lines from percentile to percentile, and what was written
//! against what lies on the disk.

mod bars;
mod latencies;
mod space;
mod svg;
mod trade;

use super::tables::workloads;
use crate::judge::{OWN, counts};
use crate::results::{Figure, Results};
use svg::Class;

/// A picture of figures of one workload.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Of its file.
    pub name: String,
    /// The workload whose figures it shows.
    pub workload: String,
    /// What it shows, in words, for those who cannot see it.
    pub title: String,
    /// The picture.
    pub svg: String,
}

/// All charts that the figures are enough for.
pub fn all(results: &Results) -> Vec<Chart> {
    let mut charts = Vec::new();
    for workload in workloads(results) {
        let makers = [bars::chart, latencies::chart, space::chart, trade::chart];
        charts.extend(makers.iter().filter_map(|make| make(results, &workload)));
    }
    charts
}

/// `w6`, `1gib-w4`.
fn file_name(workload: &str) -> String {
    workload.to_lowercase().replace(' ', "-")
}

/// How an engine's mark looks: the engine of interest, a rival, or one that does not count.
fn class_of(results: &Results, figure: &Figure) -> Class {
    if figure.engine == OWN {
        return Class::Own;
    }
    let about = results.engines.iter().find(|about| about.engine == figure.engine);
    match about.is_some_and(|about| counts(about, &figure.workload, &figure.metric)) {
        true => Class::Rival,
        false => Class::Uncounted,
    }
}

/// A scale of powers of ten that spans `values`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LogScale {
    first: i32,
    last: i32,
}

impl LogScale {
    fn spanning(values: impl IntoIterator<Item = f64>) -> LogScale {
        let logs = values.into_iter().filter(|&value| value > 0.0).map(f64::log10);
        let (low, high) =
            logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), log| (l.min(log), h.max(log)));
        if low > high {
            return LogScale { first: 0, last: 1 };
        }
        let first = low.floor() as i32;
        LogScale { first, last: (high.ceil() as i32).max(first + 1) }
    }

    /// Where a value lies, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        let log = value.max(f64::MIN_POSITIVE).log10();
        ((log - f64::from(self.first)) / f64::from(self.last - self.first)).clamp(0.0, 1.0)
    }

    /// The powers of ten.
    fn ticks(self) -> impl Iterator<Item = f64> {
        (self.first..=self.last).map(|power| 10f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_spans_its_values_in_whole_powers() {
        let scale = LogScale::spanning([3.0, 250.0]);
        assert_eq!(scale, LogScale { first: 0, last: 3 });
        assert!((scale.place(1.0)).abs() < 1e-9 && (scale.place(1000.0) - 1.0).abs() < 1e-9);
        assert!((scale.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(scale.ticks().count(), 4);
        assert_eq!(LogScale::spanning([]), LogScale { first: 0, last: 1 });
        assert_eq!(LogScale::spanning([10.0]), LogScale { first: 1, last: 2 });
    }
}
