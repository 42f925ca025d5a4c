//! Latency: histograms of single operations.

use crate::report::Row;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Three significant digits up to a minute; slower counts as a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// Latencies of one kind of operation.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
            .expect("the bounds are constants that the histogram accepts");
        Latency { histogram }
    }
}

impl Latency {
    /// Counts one operation.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.histogram.saturating_record((time.as_nanos() as u64).max(1));
    }

    /// Adds what another thread counted.
    #[expect(clippy::missing_panics_doc, reason = "all have the same bounds")]
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
    }

    /// Operations counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `quantile` (0 to 1) of the operations did not exceed, in microseconds.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The slowest operation, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.histogram.max() as f64 / 1e3
    }

    /// p50, p99, p99.9 as rows named `<prefix> p50` and so on; none if nothing was counted.
    pub fn rows(&self, workload: &str, prefix: &str) -> Vec<Row> {
        if self.count() == 0 {
            return Vec::new();
        }
        [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)]
            .map(|(name, quantile)| {
                let value = self.quantile_us(quantile);
                Row::new(workload, &format!("{prefix} {name}"), value, "us")
                    .with("max_us", self.max_us())
                    .with("count", self.count())
            })
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_merged_threads_are_those_of_all_operations() {
        let (mut low, mut high) = (Latency::default(), Latency::default());
        for us in 1..=500 {
            low.record(Duration::from_micros(us));
            high.record(Duration::from_micros(500 + us));
        }
        low.merge(&high);
        assert_eq!(low.count(), 1000);
        assert!((499.0..502.0).contains(&low.quantile_us(0.5)));
        assert!((989.0..992.0).contains(&low.quantile_us(0.99)));
        assert!((999.0..1001.0).contains(&low.max_us()));
    }

    #[test]
    fn an_endless_operation_counts_as_the_longest() {
        let mut latency = Latency::default();
        latency.record(Duration::from_secs(3600));
        assert!(latency.max_us() >= 59_000_000.0);
        assert!(Latency::default().rows("W0", "read").is_empty());
    }
}
