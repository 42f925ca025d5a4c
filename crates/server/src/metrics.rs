//! What was done, counted: requests of each kind, how long they took, bytes, refusals.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Kinds of requests, of both protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Get,
    Put,
    Delete,
    Scan,
    Batch,
    Admin,
    Other,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Redis,
}

/// Why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are too many connections, in all or from its address.
    Connections,
    /// It did not say in time what it wants, or did not take what it was sent.
    Slow,
    /// What it sent is larger than it may be.
    Size,
    /// It is not what the protocol allows.
    Malformed,
    /// Its token is wrong, or there is none.
    Unknown,
    /// It may not do that.
    Forbidden,
    /// There was too much to do.
    Busy,
}

impl Kind {
    pub const ALL: [(Kind, &'static str); 7] = [
        (Kind::Get, "get"),
        (Kind::Put, "put"),
        (Kind::Delete, "delete"),
        (Kind::Scan, "scan"),
        (Kind::Batch, "batch"),
        (Kind::Admin, "admin"),
        (Kind::Other, "other"),
    ];
}

impl Protocol {
    pub const ALL: [(Protocol, &'static str); 2] =
        [(Protocol::Http, "http"), (Protocol::Redis, "redis")];
}

impl Refusal {
    pub const ALL: [(Refusal, &'static str); 7] = [
        (Refusal::Connections, "connections"),
        (Refusal::Slow, "slow"),
        (Refusal::Size, "size"),
        (Refusal::Malformed, "malformed"),
        (Refusal::Unknown, "unauthenticated"),
        (Refusal::Forbidden, "forbidden"),
        (Refusal::Busy, "busy"),
    ];
}

/// Times are counted in classes an eighth apart: what a percentile says is at most that wrong.
const PARTS_BITS: u32 = 3;
const CLASSES: usize = (64 - PARTS_BITS as usize) << PARTS_BITS;

/// How long things took.
#[derive(Debug)]
pub struct Histogram {
    /// By class, in nanoseconds.
    classes: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        let classes = (0..CLASSES).map(|_| AtomicU64::new(0)).collect();
        Histogram { classes, nanos: AtomicU64::new(0) }
    }
}

/// The class of a time: its highest bits.
fn class_of(nanos: u64) -> usize {
    let small = 1 << PARTS_BITS;
    if nanos < small {
        return nanos as usize;
    }
    let exponent = 63 - nanos.leading_zeros() - PARTS_BITS;
    (((exponent + 1) as usize) << PARTS_BITS) + ((nanos >> exponent) & (small - 1)) as usize
}

/// The lowest time of a class.
fn start_of(class: usize) -> u64 {
    let parts = 1 << PARTS_BITS;
    match class / parts {
        0 => class as u64,
        octave => ((parts + class % parts) as u64) << (octave - 1),
    }
}

impl Histogram {
    pub fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.classes[class_of(nanos).min(CLASSES - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub fn summary(&self) -> Summary {
        let classes: Vec<u64> =
            self.classes.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Summary { classes, nanos: self.nanos.load(Ordering::Relaxed) }
    }
}

/// A histogram as it was.
#[derive(Clone, Debug)]
pub struct Summary {
    classes: Vec<u64>,
    nanos: u64,
}

impl Summary {
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// What was added since an earlier one of the same histogram.
    pub fn since(&self, earlier: &Summary) -> Summary {
        let counts = self.classes.iter().zip(&earlier.classes);
        let classes = counts.map(|(now, before)| now.saturating_sub(*before)).collect();
        Summary { classes, nanos: self.nanos.saturating_sub(earlier.nanos) }
    }

    /// How many took less than this, to an eighth.
    pub fn count_below(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.classes[..class_of(limit).min(CLASSES)].iter().sum()
    }

    /// What this share of all took at most, to an eighth; 0 if there are none.
    pub fn percentile(&self, share: f64) -> Duration {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(start_of(class + 1));
            }
        }
        Duration::ZERO
    }
}

/// All that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    times: [[Histogram; Kind::ALL.len()]; Protocol::ALL.len()],
    failures: [[AtomicU64; Kind::ALL.len()]; Protocol::ALL.len()],
    connections: [AtomicI64; Protocol::ALL.len()],
    accepted: [AtomicU64; Protocol::ALL.len()],
    received: [AtomicU64; Protocol::ALL.len()],
    sent: [AtomicU64; Protocol::ALL.len()],
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Metrics {
    /// A request was answered; not with a failure of the server.
    pub fn note_request(&self, protocol: Protocol, kind: Kind, took: Duration) {
        self.times[protocol as usize][kind as usize].record(took);
    }

    /// A request failed, and not by what the client asked for.
    pub fn note_failure(&self, protocol: Protocol, kind: Kind) {
        self.failures[protocol as usize][kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_refusal(&self, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_bytes(&self, protocol: Protocol, received: u64, sent: u64) {
        self.received[protocol as usize].fetch_add(received, Ordering::Relaxed);
        self.sent[protocol as usize].fetch_add(sent, Ordering::Relaxed);
    }

    /// Counts a connection for as long as what is returned lives.
    pub fn connected(&self, protocol: Protocol) -> Connected<'_> {
        self.accepted[protocol as usize].fetch_add(1, Ordering::Relaxed);
        let count = &self.connections[protocol as usize];
        count.fetch_add(1, Ordering::Relaxed);
        Connected(count)
    }

    pub fn times(&self, protocol: Protocol, kind: Kind) -> Summary {
        self.times[protocol as usize][kind as usize].summary()
    }

    pub fn failures(&self, protocol: Protocol, kind: Kind) -> u64 {
        self.failures[protocol as usize][kind as usize].load(Ordering::Relaxed)
    }

    pub fn refusals(&self, why: Refusal) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    pub fn connections(&self, protocol: Protocol) -> i64 {
        self.connections[protocol as usize].load(Ordering::Relaxed)
    }

    pub fn accepted(&self, protocol: Protocol) -> u64 {
        self.accepted[protocol as usize].load(Ordering::Relaxed)
    }

    /// Bytes received and sent.
    pub fn bytes(&self, protocol: Protocol) -> (u64, u64) {
        let index = protocol as usize;
        (self.received[index].load(Ordering::Relaxed), self.sent[index].load(Ordering::Relaxed))
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub struct Connected<'a>(&'a AtomicI64);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_meet_and_ascend() {
        for class in 0..CLASSES - 1 {
            let start = start_of(class);
            assert_eq!(class_of(start), class);
            assert_eq!(class_of(start_of(class + 1) - 1), class);
        }
    }

    #[test]
    fn percentiles_are_at_most_an_eighth_too_high() {
        let histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        let summary = histogram.summary();
        assert_eq!(summary.count(), 1000);
        for (share, exact) in [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let found = summary.percentile(share);
            let exact = Duration::from_micros(exact);
            assert!(found >= exact && found <= exact * 9 / 8, "{share}: {found:?}");
        }
        histogram.record(Duration::from_millis(7));
        let recent = histogram.summary().since(&summary);
        assert_eq!((recent.count(), recent.sum()), (1, Duration::from_millis(7)));
        assert!(recent.percentile(0.5) >= Duration::from_millis(7));
        let below = summary.count_below(Duration::from_micros(500));
        assert!((440..=500).contains(&below), "{below}");
        assert_eq!(Histogram::default().summary().percentile(0.5), Duration::ZERO);
    }
}
