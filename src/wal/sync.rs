//! Making the log durable while others append.
//!
//! Invariants
//! - Y1  A sync that failed is never tried again: the log is poisoned and stays so.
//! - Y2  Syncs run one after another, so that a sync that follows a failed one sees the poison
//!   before it can report success for bytes that the failed one lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::Mutex;
use crate::base::sync::OnceLock;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{Error, Result};
use crate::storage::StorageFile;

use super::lsn::Lsn;

/// How far the log is durable, and whether it still works.
#[derive(Debug)]
pub struct Watermark {
    /// Held while a sync runs (Y2).
    turn: Mutex<()>,
    durable_up_to: AtomicU64,
    sync_count: AtomicU64,
    poison: OnceLock<String>,
}

impl Watermark {
    pub fn new(durable_up_to: Lsn) -> Watermark {
        Watermark {
            turn: Mutex::new(()),
            durable_up_to: AtomicU64::new(durable_up_to.as_u64()),
            sync_count: AtomicU64::new(0),
            poison: OnceLock::new(),
        }
    }

    /// Up to where the log is durable.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn::from_u64(self.durable_up_to.load(Ordering::Acquire))
    }

    /// Syncs of the log so far.
    pub fn sync_count(&self) -> u64 {
        self.sync_count.load(Ordering::Relaxed)
    }

    /// Makes every later append and sync fail.
    pub fn poison(&self, why: String) {
        let _ = self.poison.set(why); // The first reason stays.
    }

    /// # Errors
    /// [`Error::ReadOnly`] when the log is poisoned.
    pub fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
        }
    }
}

/// A file that a sync has to cover.
#[derive(Clone, Debug)]
pub(super) struct UnsyncedFile {
    pub file: Arc<dyn StorageFile>,
    pub path: Arc<Path>,
}

/// Makes durable what was in the log when the ticket was taken.
#[derive(Debug)]
#[must_use = "nothing is durable before the ticket has run"]
pub struct SyncTicket {
    pub(super) watermark: Arc<Watermark>,
    /// Lowest first.
    pub(super) files: Vec<UnsyncedFile>,
    pub(super) target: Lsn,
}

impl SyncTicket {
    /// The end of the last record that the ticket covers.
    pub fn target(&self) -> Lsn {
        self.target
    }

    /// Syncs, without any lock of the caller; returns up to where the log is durable. Costs
    /// nothing if another sync has covered everything.
    ///
    /// # Errors
    /// [`Error::Io`] when the sync fails: whether the records are durable is then unknown, and
    /// the log is poisoned. [`Error::ReadOnly`] when it was before.
    pub fn run(self) -> Result<Lsn> {
        // Nothing is left half-done by a panic under this lock.
        let _turn = self.watermark.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.watermark.check()?;
        let durable = self.watermark.durable_lsn();
        if durable >= self.target {
            return Ok(durable);
        }
        for (index, UnsyncedFile { file, path }) in self.files.iter().enumerate() {
            if is_seeded(Bug::LogNotSynced) || (index > 0 && is_seeded(Bug::SecondLogFileNotSynced))
            {
                continue;
            }
            let synced = match file.sync() {
                Err(_) if is_seeded(Bug::SyncErrorSwallowed) => Ok(()),
                Err(_) if is_seeded(Bug::SyncTriedAgain) => file.sync(),
                synced => synced,
            };
            if let Err(source) = synced {
                self.watermark.poison(format!("a sync of {} failed: {source}", path.display()));
                // Not `Error::io`: a sync that fails for want of room is no `DiskFull`, after
                // which nothing has changed.
                return Err(Error::Io { action: "sync", path: path.to_path_buf(), source });
            }
        }
        self.watermark.durable_up_to.fetch_max(self.target.as_u64(), Ordering::AcqRel);
        self.watermark.sync_count.fetch_add(1, Ordering::Relaxed);
        Ok(self.target)
    }
}
