//! A thread that adds to a trail what comes to its database: whenever so much time has passed, or
//! so much has come.

use std::time::Duration;

use super::pass::{TrailOptions, TrailReport};
use crate::backup::BackupRepository;
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use crate::base::{Clock as _, Error, Result, SystemClock};
use crate::db::{Db, WeakDb};
use crate::memory::ProcessMark;

/// It is looked so often how much has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The default of [`FollowOptions::every`].
const EVERY_DEFAULT: Duration = Duration::from_secs(10);
/// The default of [`FollowOptions::bytes`].
const BYTES_DEFAULT: u64 = 8 << 20;

/// When a follower adds to its trail. Default: every ten seconds, and when 8 MiB of log have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct FollowOptions {
    every: Duration,
    bytes: u64,
    renews: bool,
    log_max: u64,
}

impl FollowOptions {
    /// The default.
    pub fn new() -> FollowOptions {
        let (every, bytes) = (EVERY_DEFAULT, BYTES_DEFAULT);
        FollowOptions { every, bytes, renews: false, log_max: u64::MAX }
    }

    /// So long at most after something was committed it is in the trail, as long as the repository
    /// can be written to, and adding to it does not take longer. It costs a sync of the log, two
    /// edits of the catalogue, and a file in the repository of up to 1 MiB, each time.
    pub fn every(mut self, every: Duration) -> FollowOptions {
        self.every = every;
        self
    }

    /// Also when so many bytes of log have come: what is kept for the trail is bounded by that, and
    /// by what comes while it is added.
    pub fn bytes(mut self, bytes: u64) -> FollowOptions {
        self.bytes = bytes;
        self
    }

    /// When the trail ends, begins another one, with a backup, which takes its time; at most this
    /// many bytes of log are kept for it ([`TrailOptions::log_max`]).
    pub fn begin_anew(mut self, log_max: u64) -> FollowOptions {
        (self.renews, self.log_max) = (true, log_max);
        self
    }
}

impl Default for FollowOptions {
    fn default() -> Self {
        FollowOptions::new()
    }
}

/// How a follower fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FollowStatus {
    /// What was added last.
    pub last: Option<TrailReport>,
    /// Passes that have added something, or found nothing to add.
    pub passes: u64,
    /// What the last try failed with, if it failed: it is tried again.
    pub failure: Option<String>,
    /// Tries that have failed.
    pub failures: u64,
    /// Trails that were begun because the one before had ended.
    pub begun: u64,
    /// Whether it goes on: not when the database was closed.
    pub is_running: bool,
}

/// A thread that adds to a trail what comes to its database; made by [`BackupRepository::follow`].
/// It ends when this is dropped, which waits for what it is at, and when the database is closed,
/// which it does not keep open. What has come since it was last at it is in the database's log, and
/// added by the next pass.
#[derive(Debug)]
pub struct TrailFollower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Where the thread is.
    process: ProcessMark,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    is_to_end: bool,
    status: FollowStatus,
}

impl BackupRepository {
    /// Has a thread add to the trail of the database what comes to it. How it fares is in
    /// [`TrailFollower::status`], and how far the trail is in [`Db::trail`] and [`Db::stats`]: that
    /// is to be watched. What it cannot add is kept in the database until it can, and tried again.
    ///
    /// # Errors
    /// `Io` when there is no thread to be had.
    pub fn follow(&self, db: &Db, options: FollowOptions) -> Result<TrailFollower> {
        let status = FollowStatus { is_running: true, ..FollowStatus::default() };
        let state = Mutex::new(State { is_to_end: false, status });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let (repository, db) = (self.clone(), db.downgrade());
        let following = Following { repository, db, options, shared: Arc::clone(&shared) };
        let name = "lithedb-trail".to_owned();
        let spawned =
            crate::base::sync::thread::Builder::new().name(name).spawn(move || following.run());
        let thread = spawned.map_err(|error| Error::io("start a thread for", &self.dir, error))?;
        Ok(TrailFollower { shared, thread: Some(thread), process: ProcessMark::new() })
    }
}

impl TrailFollower {
    /// How it fares.
    #[must_use]
    pub fn status(&self) -> FollowStatus {
        let mut status = self.shared.lock().status.clone();
        status.is_running &= self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        status
    }
}

impl Drop for TrailFollower {
    fn drop(&mut self) {
        if !self.process.is_here() {
            return; // There is no such thread in a fork.
        }
        self.shared.lock().is_to_end = true;
        self.shared.changed.notify_all();
        let _whatever_it_has_come_to = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long; whether it is to end.
    fn wait(&self, longest: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, longest, |state| !state.is_to_end);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_to_end
    }
}

/// What the thread has.
struct Following {
    repository: BackupRepository,
    db: WeakDb,
    options: FollowOptions,
    shared: Arc<Shared>,
}

impl Following {
    fn run(self) {
        let clock = SystemClock::new();
        let mut due = clock.monotonic() + self.options.every;
        while !self.shared.wait(LOOK_EVERY.min(self.options.every)) {
            let Some(db) = self.db.upgrade() else { break };
            let has_come = db.trail().is_some_and(|trail| trail.bytes_behind >= self.options.bytes);
            if clock.monotonic() < due && !has_come {
                continue;
            }
            let passed = self.repository.extend_trail(&db);
            let is_closed = matches!(passed, Err(Error::Closed | Error::Forked { .. }));
            let has_ended = match &passed {
                Ok(report) => report.end.is_some(),
                Err(error) => matches!(error, Error::TrailEnded { .. }),
            };
            self.note(passed);
            if is_closed {
                break;
            }
            if has_ended && self.options.renews {
                self.begin_anew(&db);
            }
            due = clock.monotonic() + self.options.every;
        }
        self.shared.lock().status.is_running = false;
    }

    fn note(&self, passed: Result<TrailReport>) {
        let mut state = self.shared.lock();
        match passed {
            Ok(report) => {
                state.status.last = Some(report);
                state.status.passes += 1;
                state.status.failure = None;
            }
            Err(error) => state.note_failure(&error),
        }
    }

    fn begin_anew(&self, db: &Db) {
        let options = TrailOptions::new().log_max(self.options.log_max);
        let begun = self.repository.begin_trail(db, options);
        let mut state = self.shared.lock();
        match begun {
            Ok(_) => {
                state.status.begun += 1;
                state.status.failure = None;
            }
            Err(error) => state.note_failure(&error),
        }
    }
}

impl State {
    fn note_failure(&mut self, error: &Error) {
        self.status.failure = Some(error.to_string());
        self.status.failures += 1;
    }
}
