//! Going through a check at a rate, leaving it, and coming again.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

use super::CheckReport;
use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::core::Core;
use crate::structure::{CheckWalk, Findings};

/// Nobody waits longer than this in one go, so that whoever wants to break off can.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Shorter ones are put together.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// For so long, at most, may be read faster behind having read slower.
const CREDIT_MAX: Duration = Duration::from_millis(100);
/// The lowest rate.
const RATE_MIN: u64 = 64 << 10;

/// How a check goes about it: see [`Db::check_with`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    pub(super) rate: Option<u64>,
    pub(super) from: Option<CheckPosition>,
}

impl CheckOptions {
    /// All of it, as fast as can be.
    #[must_use]
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Reads data at so many bytes a second on average, 64 KiB at least, so that others have the
    /// disk for themselves the rest of the time. It is kept to from piece to piece: a run of
    /// `Flex`, a partition of a table of `Lsm`, a large value. The log and indexes are read as fast
    /// as can be, and count.
    ///
    /// What the data is as of the moment when its keyspace's turn comes is kept until all of that
    /// is read: at a low rate, room that is given back meanwhile stays taken. [`Builder::scrub`]
    /// does without.
    ///
    /// [`Builder::scrub`]: crate::Builder::scrub
    #[must_use]
    pub fn rate(self, bytes_per_second: u64) -> CheckOptions {
        CheckOptions { rate: Some(bytes_per_second), ..self }
    }

    /// Begins where an earlier check was, and leaves out the data in front of that.
    #[must_use]
    pub fn resume(self, position: CheckPosition) -> CheckOptions {
        CheckOptions { from: Some(position), ..self }
    }
}

/// Where a check is. Can be kept, as text, and given to a later one, in another process as well:
/// then what is in front of it is not checked again. What was written meanwhile is checked as far
/// as it lies behind it.
///
/// ```
/// let position: lithedb::CheckPosition = "3:6f74746572".parse()?;
/// assert_eq!(position.to_string(), "3:6f74746572");
/// # Ok::<(), lithedb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckPosition {
    /// The number of a keyspace's store.
    pub(super) store: u32,
    /// Where in it, as its structure says it.
    pub(super) place: Vec<u8>,
}

impl CheckPosition {
    /// In front of everything.
    pub(in crate::db) fn beginning() -> CheckPosition {
        CheckPosition::at_store(0)
    }

    /// In front of a store's data.
    pub(in crate::db) fn at_store(store: u32) -> CheckPosition {
        CheckPosition { store, place: Vec::new() }
    }

    /// In front of a place in a store.
    pub(in crate::db) fn within(store: u32, place: Vec<u8>) -> CheckPosition {
        CheckPosition { store, place }
    }

    pub(in crate::db) fn store(&self) -> u32 {
        self.store
    }

    pub(in crate::db) fn place(&self) -> &[u8] {
        &self.place
    }

    /// Whether it is in front of all of a store's data.
    pub(in crate::db) fn is_at_store(&self) -> bool {
        self.place.is_empty()
    }
}

impl fmt::Display for CheckPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.store)?;
        self.place.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for CheckPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<CheckPosition> {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let byte = |two: &[u8]| match two {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let parsed = text.split_once(':').and_then(|(store, place)| {
            let place = place.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
            Some(CheckPosition { store: store.parse().ok()?, place })
        });
        parsed.ok_or_else(|| Error::invalid(format!("{text:?} is no position of a check")))
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CheckProgress<'a> {
    /// Bytes read and verified so far.
    pub bytes: u64,
    /// Entries looked at so far.
    pub entries: u64,
    /// What is wrong so far.
    pub problems: &'a [String],
    /// What is in front of it was checked.
    pub position: &'a CheckPosition,
}

impl Db {
    /// As [`Db::check`], at a rate, from a position on, and with `go_on` asked whether to go on:
    /// after each interval of `Flex` and in front of each table of `Lsm`, and ten times a second
    /// while it waits. A check that is broken off says where it was ([`CheckReport::stopped_at`]),
    /// and has what was found until then; indexes are checked at the end. One that goes on from
    /// there reads the manifest and the log again, leaves out the data in front, and begins an
    /// interval or table anew that it was within.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use std::{ops::ControlFlow, sync::Arc};
    /// # use lithedb::{CheckOptions, Db, storage::MemoryStorage};
    /// # let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/animals")?;
    /// let options = CheckOptions::new().rate(32 << 20);
    /// let report = db.check_with(&options, |progress| {
    ///     println!("{} bytes, up to {}", progress.bytes, progress.position);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(report.is_ok() && report.stopped_at.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a rate below 64 KiB a second, and for a position behind all that is
    /// there, as one of another database may be; `Closed`.
    pub fn check_with(
        &self,
        options: &CheckOptions,
        mut go_on: impl FnMut(&CheckProgress<'_>) -> ControlFlow<()>,
    ) -> Result<CheckReport> {
        if let Some(rate) = options.rate.filter(|rate| *rate < RATE_MIN) {
            let what = format!("a rate of {rate} bytes a second: at least {RATE_MIN} are needed");
            return Err(Error::invalid(what));
        }
        self.core().check_with(options, &mut go_on)
    }
}

/// Keeps reading to a rate, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) struct Throttle {
    bytes_per_second: u64,
    /// Bytes that were waited for, and until when that took.
    bytes: u64,
    since: Duration,
}

impl Throttle {
    /// From `now` on.
    pub(in crate::db) fn new(bytes_per_second: u64, now: Duration) -> Throttle {
        Throttle { bytes_per_second, bytes: 0, since: now }
    }

    /// How long is to be waited when `bytes` were read in all; then it is taken to have been.
    pub(in crate::db) fn wait_for(&mut self, bytes: u64, now: Duration) -> Duration {
        let read = bytes.saturating_sub(self.bytes);
        let cost = Duration::from_secs_f64(read as f64 / self.bytes_per_second as f64);
        let taken = now.saturating_sub(self.since);
        let left = cost.saturating_sub(taken);
        // What a slow disk has left over is not made up for at once.
        let is_behind = taken > cost + CREDIT_MAX;
        if left < WAIT_MIN && !is_behind {
            return Duration::ZERO; // It is waited for with what comes.
        }
        (self.bytes, self.since) = (bytes, now + left);
        left
    }
}

/// A check that somebody goes through.
pub(super) struct PacedWalk<'a> {
    core: &'a Core,
    throttle: Option<Throttle>,
    go_on: &'a mut dyn FnMut(&CheckProgress<'_>) -> ControlFlow<()>,
    /// Where it begins in the store at hand.
    start: Vec<u8>,
    position: CheckPosition,
    /// Where it was broken off.
    pub stopped_at: Option<CheckPosition>,
}

impl<'a> PacedWalk<'a> {
    pub(super) fn new(
        core: &'a Core,
        rate: Option<u64>,
        go_on: &'a mut dyn FnMut(&CheckProgress<'_>) -> ControlFlow<()>,
    ) -> PacedWalk<'a> {
        let (start, position) = (Vec::new(), CheckPosition::beginning());
        let throttle = rate.map(|rate| Throttle::new(rate, core.clock.monotonic()));
        PacedWalk { core, throttle, go_on, start, position, stopped_at: None }
    }

    /// Goes on with a store, from this place on.
    pub(super) fn enter(&mut self, store: u32, start: &[u8]) {
        self.start = start.to_vec();
        self.position = CheckPosition { store, place: start.to_vec() };
    }

    fn ask(&mut self, findings: &Findings) -> ControlFlow<()> {
        let progress = CheckProgress {
            bytes: findings.bytes,
            entries: findings.entries,
            problems: &findings.problems,
            position: &self.position,
        };
        let answer =
            if self.core.is_closed() { ControlFlow::Break(()) } else { (self.go_on)(&progress) };
        if answer.is_break() {
            self.stopped_at = Some(self.position.clone());
        }
        answer
    }

    /// Waits as long as what was read since takes at the rate.
    fn wait(&mut self, findings: &Findings) -> ControlFlow<()> {
        let Some(throttle) = &mut self.throttle else { return ControlFlow::Continue(()) };
        let mut left = throttle.wait_for(findings.bytes, self.core.clock.monotonic());
        while !left.is_zero() {
            let part = left.min(WAIT_MAX);
            crate::base::sync::thread::sleep(part);
            left -= part;
            if !left.is_zero() {
                self.ask(findings)?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl CheckWalk for PacedWalk<'_> {
    fn start(&self) -> &[u8] {
        &self.start
    }

    fn reached(&mut self, findings: &Findings, place: &[u8]) -> ControlFlow<()> {
        self.position.place.clear();
        self.position.place.extend_from_slice(place);
        self.ask(findings)?;
        self.wait(findings)
    }

    fn passed(&mut self, findings: &Findings) -> ControlFlow<()> {
        self.wait(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_keeps_to_its_rate_on_average_and_saves_nothing_up() {
        let millis = Duration::from_millis;
        let mut throttle = Throttle::new(1000, millis(50));
        assert_eq!(throttle.wait_for(1, millis(50)), Duration::ZERO, "with what comes");
        assert_eq!(throttle.wait_for(100, millis(50)), millis(100));
        assert_eq!(throttle.wait_for(100, millis(150)), Duration::ZERO);
        assert_eq!(throttle.wait_for(200, millis(200)), millis(50), "half of it has passed");
        // A disk that took a second for 100 bytes is not read at full speed for the next 900.
        assert_eq!(throttle.wait_for(300, millis(1250)), Duration::ZERO);
        assert_eq!(throttle.wait_for(1200, millis(1250)), millis(900));
    }
}
