//! How an open database is: whether it is written to, what its background work meets, and what its
//! disk does.
//!
//! What happens is counted where it happens; here it is put together when somebody asks, and told
//! to a listener by a thread of its own, which holds no lock then (`watcher`).
//!
//! | file | what |
//! |---|---|
//! | `failures` | background work that has failed, until it succeeds |
//! | `watcher` | the thread that looks at calls under way and tells the listener |

mod failures;
mod watcher;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use failures::{BackgroundFailure, BackgroundWork};
pub(in crate::db) use failures::{Failures, changed_nothing, may_pass};
pub(in crate::db) use watcher::{HealthListener, Watcher};

use super::{Access, Core, Db};
use crate::db::scrub::ScrubStatus;
use crate::db::state::{KeyspaceState, Runtime};
use crate::storage::{FullDisk, ReserveFigures, SlowCall};

/// Whether a database is written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthState {
    /// It is.
    #[default]
    Writable,
    /// Background work fails and is tried again: see [`Health::failures`]. Writing goes on as long
    /// as there is memory for what is not flushed; then writes to the keyspace that is not give the
    /// error of the flush.
    Failing,
    /// There is no room on the disk. Reads, deletions, flushes and cleaning go on, the latter as
    /// far as the reserve goes; other writes give [`Error::DiskFull`](crate::Error::DiskFull).
    /// Writing resumes by itself when there is room for the reserve, and for what has found none.
    DiskFull {
        /// What first found no room.
        path: PathBuf,
        /// When that was, in milliseconds since 1970.
        since: u64,
    },
    /// Nothing is written any more until the database is opened again: a sync failed, or something
    /// else after which it is not known what is durable. Every write gives
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    ReadOnly {
        /// Why.
        why: String,
    },
    /// It was opened to be read.
    OpenedForReading,
    /// It was closed.
    Closed,
}

/// How an open database is, as of now: see [`Db::health`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// Whether it is written to.
    pub state: HealthState,
    /// Background work that has failed since it last succeeded, each kind for each keyspace. What
    /// found no room is not among them: the state says that.
    pub failures: Vec<BackgroundFailure>,
    /// How often background work has failed since opening, also for want of room.
    pub failures_total: u64,
    /// Calls to the storage that take longer than [`crate::Builder::slow_disk_after`]: those under
    /// way, then the last ones that are over, the newest first.
    pub slow_calls: Vec<SlowCall>,
    /// How many there were since opening.
    pub slow_calls_total: u64,
    /// Reads that were tried again, since opening.
    pub reads_retried: u64,
    /// Reads that failed all the same, or in another way, since opening. Who asked for it got it
    /// as an error.
    pub reads_failed: u64,
    /// The file of the last of these, and what the system said.
    pub last_failed_read: Option<(PathBuf, String)>,
    /// Room that is kept for a full disk.
    pub reserve: ReserveFigures,
    /// How far scrubbing is and what it has found, if there is any
    /// ([`crate::Builder::scrub`]). While something is not right it is among the failures.
    pub scrub: Option<ScrubStatus>,
}

impl Health {
    /// Whether there is nothing to be done: it is written to, or was opened to be read, no
    /// background work fails, and no call to the storage is under way for long. What is over does
    /// not count.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self.state, HealthState::Writable | HealthState::OpenedForReading)
            && self.failures.is_empty()
            && self.slow_calls.iter().all(|call| call.is_over)
    }
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthState::Writable => write!(f, "writable"),
            HealthState::Failing => write!(f, "background work fails"),
            HealthState::DiskFull { path, .. } => {
                write!(f, "the disk is full: no room for {}", path.display())
            }
            HealthState::ReadOnly { why } => write!(f, "read-only: {why}"),
            HealthState::OpenedForReading => write!(f, "opened to be read"),
            HealthState::Closed => write!(f, "closed"),
        }
    }
}

impl Db {
    /// How the database is. Costs some locks that are held for moments; reads nothing.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = lithedb::Db::open(dir.path().join("healthy.lithe"))?;
    /// let health = db.health();
    /// assert!(health.is_good(), "{}", health.state);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.core().health()
    }
}

impl Core {
    pub(super) fn health(&self) -> Health {
        self.heed_failed_sync();
        let guard = &self.guard;
        let (reads_retried, reads_failed) = guard.read_counts();
        let mut failures = self.failures.list();
        for failure in &mut failures {
            failure.keyspace = failure.keyspace_id.and_then(|id| self.name_of_keyspace(id));
        }
        // Data that has rotted is no work that is tried again.
        let is_failing = failures.iter().any(|failure| failure.work != BackgroundWork::Scrub);
        Health {
            state: self.health_state(is_failing),
            failures,
            failures_total: self.failures.total(),
            slow_calls: guard.slow_calls(),
            slow_calls_total: guard.slow_call_count(),
            reads_retried,
            reads_failed,
            last_failed_read: guard.last_failed_read(),
            reserve: guard.reserve_figures(),
            scrub: self.scrubber.status(),
        }
    }

    fn health_state(&self, is_failing: bool) -> HealthState {
        if self.is_closed() {
            return HealthState::Closed;
        }
        if self.access == Access::ReadOnly {
            return HealthState::OpenedForReading;
        }
        if let Some(why) = self.poison() {
            return HealthState::ReadOnly { why: why.clone() };
        }
        match self.guard.full_disk() {
            Some(FullDisk { path, since }) => HealthState::DiskFull { path, since },
            None if is_failing => HealthState::Failing,
            None => HealthState::Writable,
        }
    }

    /// The name of a keyspace; of an archive or an index, that of the keyspace which has it.
    fn name_of_keyspace(&self, keyspace_id: u32) -> Option<String> {
        let state = self.published.state();
        let is_its = |runtime: &Arc<Runtime>| runtime.id == keyspace_id;
        let has_it = |of: &&Arc<KeyspaceState>| {
            let mut indexes = of.indexes.iter().flat_map(|set| &set.indexes);
            (is_its(&of.runtime) && !of.runtime.is_hidden())
                || of.runtime.archive.as_ref().is_some_and(is_its)
                || indexes.any(|index| is_its(&index.runtime))
        };
        let found = state.keyspaces.iter().find(has_it)?;
        Some(found.runtime.name.load().to_string())
    }
}
