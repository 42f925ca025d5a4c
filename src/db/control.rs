//! Control over what the background does to keep structures in shape: pauses, and rates.

use crate::base::Result;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};
use crate::db::Db;
use crate::db::core::Core;
use crate::db::options::check_rate;

/// Background work is paused as long as this is there; see [`Db::pause_background`]. Does not keep
/// the database open.
#[derive(Debug)]
#[must_use = "work goes on when it is dropped"]
pub struct BackgroundPause {
    /// Not held: nothing of a database may outlast its closing, or it would tidy up in another's
    /// directory.
    core: Weak<Core>,
}

impl Drop for BackgroundPause {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade().filter(|core| !core.is_forked()) else { return };
        core.pauses.count.fetch_sub(1, Ordering::AcqRel);
        core.workers.wake();
    }
}

/// Who wants background work paused.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    count: AtomicU64,
    /// Held shared during a slice of what can be paused.
    working: RwLock<()>,
}

impl Pauses {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.count() > 0
    }

    /// The right to do a slice of work; `None` while it is paused.
    pub(super) fn begin_work(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let working = match self.working.try_read() {
            Ok(working) => working,
            Err(TryLockError::Poisoned(working)) => working.into_inner(),
            Err(TryLockError::WouldBlock) => return None, // Somebody is about to pause it.
        };
        (!self.is_paused()).then_some(working)
    }

    fn begin(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        // Who looks at the count from here on sees it; the others hold this.
        drop(self.working.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Db {
    /// Pauses the work by which the background keeps structures in shape: compaction,
    /// consolidation, and cleaning of value files, also the cleaning that flushes wait for. On
    /// return none of it is done any more: a slice that is under way, of up to 8 MiB, is waited
    /// for; a compaction that is not finished keeps what it has written, and goes on from there.
    /// All of it goes on when the guard is dropped. Several pauses at once end with the last of
    /// them. For a backup of the files, a measurement, or hours when the disk is needed.
    ///
    /// Flushes, log files and the removal of files that nobody needs go on: memory and the log stay
    /// within their bounds, and writers do not wait for the pause. What they pay for a long one:
    /// - [`Structure::Flex`](crate::Structure::Flex): flushes do the most of its maintenance
    ///   themselves, and go on to do so. Delta runs that would be consolidated in idle moments
    ///   stay, and so does garbage in value files.
    /// - [`Structure::Lsm`](crate::Structure::Lsm): each flush adds a run, which reads have to look
    ///   into and which takes room. From 12 of them on writers are slowed down, from 36 on to a
    ///   sixteenth of the rate of flushes; they are never stopped, so that neither runs nor the
    ///   room of what is overwritten have a bound. [`KeyspaceStats`](crate::KeyspaceStats) has
    ///   `fresh_runs` and `compaction_debt`.
    ///
    /// What somebody asks for is done: [`Db::compact`], [`Db::vacuum`], and
    /// [`Keyspace::compact`](crate::Keyspace::compact). [`Db::close`] does not wait for the guard.
    ///
    /// Must not be called by a merge operator, which a slice may be at.
    pub fn pause_background(&self) -> BackgroundPause {
        let core = self.core();
        core.pauses.begin();
        BackgroundPause { core: Arc::downgrade(core) }
    }

    /// Sets the rate of [`Builder::compaction_rate`](crate::Builder::compaction_rate), from now on
    /// until the database is closed: bytes a second, 64 KiB or more, or no limit. A slice that is
    /// under way is not affected; nothing waits any more on account of the rate before.
    ///
    /// # Errors
    /// `InvalidArgument`: the rate is what it was. `Closed`.
    pub fn set_compaction_rate(&self, bytes_per_second: Option<u64>) -> Result<()> {
        let core = self.core();
        core.check_open()?;
        bytes_per_second.map_or(Ok(()), |rate| check_rate("compaction_rate", rate))?;
        core.compaction_rate.set(bytes_per_second);
        core.workers.wake();
        Ok(())
    }

    /// Sets the rate of [`Builder::cleaning_rate`](crate::Builder::cleaning_rate), as
    /// [`Db::set_compaction_rate`] does with the other.
    ///
    /// # Errors
    /// As [`Db::set_compaction_rate`].
    pub fn set_cleaning_rate(&self, bytes_per_second: u64) -> Result<()> {
        let core = self.core();
        core.check_open()?;
        check_rate("cleaning_rate", bytes_per_second)?;
        core.cleaning.set_rate(bytes_per_second);
        core.workers.wake();
        Ok(())
    }
}
