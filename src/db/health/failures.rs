//! Background work that has failed, until it succeeds.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::Error;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::db::core::lock;

/// Failures that are kept: of each keyspace a few, and of few of many keyspaces; beside flushes.
const FAILURES_MAX: usize = 64;
/// Work that can be done without is tried again so long behind the last time.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackgroundWork {
    /// Memtables are moved into the structure; with it, the log is given back.
    Flush,
    /// Tables in levels are merged.
    Compaction,
    /// What flushes left in delta runs is consolidated.
    Consolidation,
    /// Values are moved out of value files with garbage.
    Cleaning,
    /// The next log file is made ready; if it is not, a commit makes it.
    LogFile,
    /// Files that nothing refers to are removed.
    Removal,
    /// The listener of [`crate::Builder::on_health`] panicked.
    Listener,
    /// Everything is verified ([`crate::Builder::scrub`]), and something was not right: it is the
    /// data that has failed. Solved by a pass that finds nothing wrong there any more.
    Scrub,
}

impl fmt::Display for BackgroundWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackgroundWork::Flush => "flush",
            BackgroundWork::Compaction => "compaction",
            BackgroundWork::Consolidation => "consolidation",
            BackgroundWork::Cleaning => "cleaning",
            BackgroundWork::LogFile => "log file",
            BackgroundWork::Removal => "removal",
            BackgroundWork::Listener => "health listener",
            BackgroundWork::Scrub => "scrub",
        })
    }
}

/// Background work that has failed since it last succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackgroundFailure {
    /// What has failed.
    pub work: BackgroundWork,
    /// For which keyspace, if for one; `None` also for one that is gone.
    pub keyspace: Option<String>,
    /// The file or directory, if it was about one.
    pub path: Option<PathBuf>,
    /// What was said the last time.
    pub what: String,
    /// When it failed first, in milliseconds since 1970.
    pub first: u64,
    /// When it failed last.
    pub last: u64,
    /// How often it has failed without success in between.
    pub count: u64,
    pub(super) keyspace_id: Option<u32>,
}

impl fmt::Display for BackgroundFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.work)?;
        if let Some(keyspace) = &self.keyspace {
            write!(f, " of {}", keyspace.escape_debug())?;
        }
        write!(f, ", {} times: {}", self.count, self.what)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::db) struct Failures {
    /// How many there are, for those who have succeeded.
    open: AtomicUsize,
    total: AtomicU64,
    changes: AtomicU64,
    list: Mutex<Vec<Failure>>,
    /// When work that can be done without is tried again, if it has failed.
    retry_at: Mutex<Option<Duration>>,
}

#[derive(Debug)]
struct Failure {
    told: BackgroundFailure,
    /// Of one that passes, to be told to those who wait for the work.
    again: Option<Again>,
    /// How many there had been with the last one.
    number: u64,
}

/// What an error is made of again.
#[derive(Debug)]
struct Again {
    action: &'static str,
    path: PathBuf,
    kind: io::ErrorKind,
    code: Option<i32>,
}

/// Whether background work that failed with this may simply be tried again: nothing was written,
/// and so nothing is in doubt. A file that cannot be opened, made or read may be so for a moment:
/// too many files are open, somebody has changed rights, a disk was away.
pub(in crate::db) fn may_pass(error: &Error) -> bool {
    const ACTIONS: [&str; 10] = [
        "read",
        "read the size of",
        "open",
        "stat",
        "list",
        "look for",
        "create",
        "preallocate",
        "allocate",
        "remove",
    ];
    matches!(error, Error::Io { action, .. } if ACTIONS.contains(action))
}

/// Whether an edit that ended with this has not happened, so that what was written for it is
/// nobody's. After others it may be durable.
pub(in crate::db) fn changed_nothing(error: &Error) -> bool {
    matches!(error, Error::DiskFull { .. } | Error::Corruption { .. }) || may_pass(error)
}

impl BackgroundWork {
    /// Whether nobody waits for it, so that it is left alone for a while when it has failed.
    fn can_wait(self) -> bool {
        use BackgroundWork::{Cleaning, Compaction, Consolidation};
        matches!(self, Compaction | Consolidation | Cleaning)
    }
}

impl Failures {
    /// Notes that work has failed. Want of room is counted, and told otherwise; so is that nothing
    /// is written any more.
    #[cold]
    pub(in crate::db) fn note(
        &self,
        work: BackgroundWork,
        keyspace_id: Option<u32>,
        error: &Error,
        now: u64,
    ) {
        if matches!(error, Error::Closed) {
            return;
        }
        self.total.fetch_add(1, Ordering::Relaxed);
        if matches!(error, Error::DiskFull { .. } | Error::ReadOnly { .. }) {
            return;
        }
        let (path, again) = match error {
            Error::Io { action, path, source } => {
                let (kind, code) = (source.kind(), source.raw_os_error());
                let again = Again { action, path: path.clone(), kind, code };
                (Some(path.clone()), Some(again).filter(|_| may_pass(error)))
            }
            Error::Corruption { file, .. } => (Some(file.clone()), None),
            _ => (None, None),
        };
        self.add(work, keyspace_id, (path, error.to_string()), again, now);
    }

    /// Notes that code of the application's has panicked.
    #[cold]
    pub(in crate::db) fn note_panic(&self, work: BackgroundWork, why: String, now: u64) {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.add(work, None, (None, why), None, now);
    }

    /// Notes that something of a keyspace is not right, or of none.
    #[cold]
    pub(in crate::db) fn note_found(&self, keyspace_id: Option<u32>, what: String, now: u64) {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.add(BackgroundWork::Scrub, keyspace_id, (None, what), None, now);
    }

    /// Notes that all of it is right.
    pub(in crate::db) fn note_clean(&self, keyspace_id: Option<u32>) {
        if self.are_open() {
            let work = BackgroundWork::Scrub;
            self.remove(|told| told.work == work && told.keyspace_id == keyspace_id);
        }
    }

    fn add(
        &self,
        work: BackgroundWork,
        keyspace_id: Option<u32>,
        (path, what): (Option<PathBuf>, String),
        again: Option<Again>,
        now: u64,
    ) {
        let mut list = lock(&self.list);
        let number = self.total();
        let same = |of: &&mut Failure| of.told.work == work && of.told.keyspace_id == keyspace_id;
        if let Some(found) = list.iter_mut().find(same) {
            let is_news = found.told.what != what;
            found.told.count += 1;
            (found.told.last, found.told.path, found.told.what) = (now, path, what);
            (found.again, found.number) = (again, number);
            self.changes.fetch_add(u64::from(is_news), Ordering::Relaxed);
            return;
        }
        // The first ones tell the story; but somebody may wait for a flush.
        if list.len() >= FAILURES_MAX && work != BackgroundWork::Flush {
            return;
        }
        let told = BackgroundFailure {
            work,
            keyspace: None,
            path,
            what,
            first: now,
            last: now,
            count: 1,
            keyspace_id,
        };
        list.push(Failure { told, again, number });
        self.open.store(list.len(), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that work for a keyspace has succeeded.
    #[inline]
    pub(in crate::db) fn solved(&self, work: BackgroundWork, keyspace_id: u32) {
        if self.are_open() {
            self.remove(|told| told.work == work && told.keyspace_id == Some(keyspace_id));
        }
    }

    /// Notes that work has succeeded, or is not to be done, for any keyspace and for none.
    #[inline]
    pub(in crate::db) fn all_solved(&self, work: BackgroundWork) {
        if self.are_open() {
            self.remove(|told| told.work == work);
        }
    }

    /// Notes that work which is for no keyspace of its own has succeeded.
    #[inline]
    pub(in crate::db) fn solved_for_all(&self, work: BackgroundWork) {
        if self.are_open() {
            self.remove(|told| told.work == work && told.keyspace_id.is_none());
        }
    }

    /// Whether work for a keyspace has failed since it last succeeded.
    pub(in crate::db) fn has(&self, work: BackgroundWork, keyspace_id: u32) -> bool {
        let is_it = |of: &Failure| of.told.work == work && of.told.keyspace_id == Some(keyspace_id);
        self.are_open() && lock(&self.list).iter().any(is_it)
    }

    /// Whether it is time to try again what has failed, may pass, and is not tried by itself before
    /// something is flushed. Not again for a while, then.
    pub(in crate::db) fn is_time_to_retry(&self, now: Duration) -> bool {
        if !self.are_open() {
            return false;
        }
        let waits = |of: &Failure| of.again.is_some() && of.told.work.can_wait();
        let waits = lock(&self.list).iter().any(waits);
        let mut retry_at = lock(&self.retry_at);
        let is_time = waits && retry_at.is_some_and(|at| now >= at);
        *retry_at = match *retry_at {
            at @ Some(_) if waits && !is_time => at,
            _ => waits.then(|| now + RETRY_WAIT),
        };
        is_time
    }

    #[inline]
    fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Forgets what has failed for a keyspace that is gone.
    pub(in crate::db) fn forget(&self, keyspace_id: u32) {
        self.remove(|told| told.keyspace_id == Some(keyspace_id));
    }

    #[cold]
    fn remove(&self, which: impl Fn(&BackgroundFailure) -> bool) {
        let mut list = lock(&self.list);
        let before = list.len();
        list.retain(|failure| !which(&failure.told));
        if list.len() < before {
            self.open.store(list.len(), Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The error of a flush that is tried again, for those who wait for one of these keyspaces: if
    /// it has failed since there were so many failures.
    pub(in crate::db) fn of_flush(
        &self,
        is_waited_for: impl Fn(u32) -> bool,
        since: u64,
    ) -> Option<Error> {
        if !self.are_open() {
            return None;
        }
        let list = lock(&self.list);
        let of_flush = list.iter().filter(|of| of.told.work == BackgroundWork::Flush);
        let mut of_flush = of_flush
            .filter(|of| of.number > since && of.told.keyspace_id.is_some_and(&is_waited_for));
        let Again { action, path, kind, code } = of_flush.find_map(|of| of.again.as_ref())?;
        let source = code.map_or_else(|| io::Error::from(*kind), io::Error::from_raw_os_error);
        Some(Error::Io { action, path: path.clone(), source })
    }

    pub(super) fn list(&self) -> Vec<BackgroundFailure> {
        lock(&self.list).iter().map(|failure| failure.told.clone()).collect()
    }

    /// How many there have been, also those that are not kept.
    pub(in crate::db) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}
