//! Holding commits: for what is committed otherwise than through the log, and has to have its place
//! among them.

use crate::base::sync::atomic::Ordering;
use crate::base::sync::{MutexGuard, PoisonError};
use crate::base::{Result, SeqNo};
use crate::db::commit::{CommitLog, Log};
use crate::db::core::{Core, lock};
use crate::db::gate::HELD;
use crate::db::group::{Caller, WAIT_MAX};

/// Commits that wait until this is dropped.
#[derive(Debug)]
pub(super) struct CommitHold<'l> {
    log: &'l CommitLog,
}

impl CommitHold<'_> {
    /// The stamp of what is done while commits wait: above all commits, below those that wait.
    pub(super) fn next_stamp(&self, wall_millis: u64) -> SeqNo {
        self.log.next_stamp(wall_millis)
    }

    /// Counts what was committed otherwise than through the log.
    pub(super) fn note_commit(&self, data_bytes: u64) {
        self.log.commit_count.fetch_add(1, Ordering::Relaxed);
        self.log.data_bytes.fetch_add(data_bytes, Ordering::Relaxed);
    }
}

impl Drop for CommitHold<'_> {
    fn drop(&mut self) {
        lock(&self.log.log).gate &= !HELD;
        self.log.unheld.notify_all();
    }
}

impl Core {
    /// Has commits wait that are not in the log yet, and makes those that are durable and visible:
    /// on return nothing is on its way, and nothing comes until the hold is dropped. Costs a sync
    /// of what the log has not made durable.
    pub(super) fn hold_commits(&self) -> Result<CommitHold<'_>> {
        let end = {
            let mut log = lock(&self.log.log);
            if log.is_held() {
                log = self.wait_while_held(log)?;
            }
            self.check_writable()?;
            log.gate |= HELD;
            log.wal.sync_target().target()
        };
        let hold = CommitHold { log: &self.log };
        self.sync_to(end)?;
        self.apply_ready(&Caller::new(end));
        self.check_writable()?; // Else those in the queue never will be.
        debug_assert!(lock(&self.log.queue).is_empty(), "all were ready");
        Ok(hold)
    }

    #[cold]
    pub(super) fn wait_while_held<'l>(
        &'l self,
        log: MutexGuard<'l, Log>,
    ) -> Result<MutexGuard<'l, Log>> {
        let mut log = log;
        while log.is_held() {
            self.check_writable()?;
            self.stalls.begin();
            let waited = self.log.unheld.wait_timeout(log, WAIT_MAX);
            log = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(log)
    }
}
