//! When a child is struck.

use std::time::Duration;

use super::database::Phase;
use crate::random::Random;

/// A moment in the life of a child, and how much later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// When it was started: anything may be going on.
    Started(Duration),
    /// When it begins to open, and with that to recover.
    Opening(Duration),
    /// When so many commits were acknowledged.
    Commits(u64, Duration),
    /// When it begins to close.
    Closing(Duration),
    /// When it has ended by itself.
    Ended,
}

/// Microseconds after each of these at most, where calls take no time.
const STARTED_MAX: u64 = 14_000;
const OPENING_MAX: u64 = 5_000;
const COMMITS_MAX: u64 = 1_000;
const CLOSING_MAX: u64 = 4_000;

impl Moment {
    /// Some moment; `slowness` says how many times longer things take than on a disk in memory.
    pub(super) fn draw(random: &mut Random, slowness: u64) -> Moment {
        match random.below(100) {
            0..26 => Moment::Started(some(random, STARTED_MAX * slowness)),
            26..50 => Moment::Opening(some(random, OPENING_MAX * slowness)),
            50..83 => {
                let commits = random.below(60);
                Moment::Commits(commits, some(random, COMMITS_MAX * slowness))
            }
            83..97 => Moment::Closing(some(random, CLOSING_MAX * slowness)),
            _ => Moment::Ended,
        }
    }

    /// How many operations a child is given that is to be struck then.
    pub(super) fn op_count(self, random: &mut Random) -> u64 {
        match self {
            Moment::Started(_) | Moment::Opening(_) => 1 + random.below(100),
            Moment::Commits(count, _) => 2 * count + 20,
            Moment::Closing(_) | Moment::Ended => 1 + random.below(40),
        }
    }

    /// How long it is until then, if that is known as of now: the child has just come to this phase
    /// or commit.
    pub(super) fn comes_after(self, phase: Phase, commits: u64) -> Option<Duration> {
        match (self, phase) {
            (Moment::Started(later), Phase::Starting)
            | (Moment::Opening(later), Phase::Opening)
            | (Moment::Closing(later), Phase::Closing) => Some(later),
            (Moment::Commits(count, later), Phase::Working) if commits >= count => Some(later),
            _ => None,
        }
    }
}

/// Sooner rather than later.
fn some(random: &mut Random, micros_max: u64) -> Duration {
    let end = 1 + random.below(micros_max);
    Duration::from_micros(random.below(end))
}
