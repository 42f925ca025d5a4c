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
    /// `InvalidArgument` for a rate below 64 KiB a second; `Closed`.
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

/// A check that somebody goes through.
pub(super) struct PacedWalk<'a> {
    core: &'a Core,
    rate: Option<u64>,
    go_on: &'a mut dyn FnMut(&CheckProgress<'_>) -> ControlFlow<()>,
    /// Where it begins in the store at hand.
    start: Vec<u8>,
    position: CheckPosition,
    /// Bytes that were read, and when, when it was last held to the rate.
    paced: (u64, Duration),
    /// Where it was broken off.
    pub stopped_at: Option<CheckPosition>,
}

impl<'a> PacedWalk<'a> {
    pub(super) fn new(
        core: &'a Core,
        rate: Option<u64>,
        go_on: &'a mut dyn FnMut(&CheckProgress<'_>) -> ControlFlow<()>,
    ) -> PacedWalk<'a> {
        let (start, position) = (Vec::new(), CheckPosition { store: 0, place: Vec::new() });
        let paced = (0, core.clock.monotonic());
        PacedWalk { core, rate, go_on, start, position, paced, stopped_at: None }
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
        let Some(rate) = self.rate else { return ControlFlow::Continue(()) };
        let (bytes, began) = self.paced;
        let read = findings.bytes.saturating_sub(bytes);
        let cost = Duration::from_secs_f64(read as f64 / rate as f64);
        let taken = self.core.clock.monotonic().saturating_sub(began);
        let mut left = cost.saturating_sub(taken);
        if left < WAIT_MIN {
            if taken > cost + WAIT_MAX {
                // What a slow disk has left over is not made up for at once.
                self.paced = (findings.bytes, self.core.clock.monotonic());
            }
            return ControlFlow::Continue(()); // With what comes.
        }
        while !left.is_zero() {
            let part = left.min(WAIT_MAX);
            std::thread::sleep(part);
            left -= part;
            if !left.is_zero() {
                self.ask(findings)?;
            }
        }
        self.paced = (findings.bytes, self.core.clock.monotonic());
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
