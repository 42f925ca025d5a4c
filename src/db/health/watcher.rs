//! The thread that looks at calls under way, and tells the listener.
//!
//! It does no input or output of its own and holds no lock while it tells, so that neither a disk
//! that does not answer nor a listener that takes its time is in anybody's way but its own, and
//! that of closing, which waits for a listener that is being told.

use std::fmt;
use std::time::Duration;

use super::{BackgroundWork, Health};
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Condvar, Mutex, PoisonError};
use crate::base::{Error, Result, contained};
use crate::db::core::{Core, lock};
use crate::db::options::Background;

/// It looks so often at least.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(250);
/// .. and so often within the time after which a call is slow.
const LOOKS_PER_SLOW: u32 = 4;

/// What is told how the database is.
#[derive(Clone)]
pub(in crate::db) struct HealthListener(pub Arc<dyn Fn(&Health) + Send + Sync>);

impl fmt::Debug for HealthListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HealthListener")
    }
}

/// What changes when there is something to be told.
type Told = (u64, u64, bool);

/// The thread, and what it has told.
#[derive(Debug, Default)]
pub(in crate::db) struct Watcher {
    is_over: Mutex<bool>,
    ended: Condvar,
    /// Whoever tells has this, so that it is told in order.
    told: Mutex<Told>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Ends the thread when it is dropped.
#[derive(Debug)]
pub(in crate::db) struct UntilDropped<'w>(&'w Watcher);

impl Drop for UntilDropped<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Watcher {
    /// Starts the thread, if the database has threads.
    pub(in crate::db) fn start(core: &Arc<Core>, slow_after: Duration) -> Result<()> {
        if core.background == Background::Stepped {
            return Ok(()); // `Db::step` looks.
        }
        let interval = (slow_after / LOOKS_PER_SLOW).min(LOOK_INTERVAL_MAX);
        let its_core = Arc::clone(core);
        let work = move || {
            while !its_core.watcher.wait_for_end(interval) {
                its_core.look_after_health();
            }
        };
        let spawned =
            crate::base::sync::thread::Builder::new().name("lithedb-health".to_owned()).spawn(work);
        let thread = spawned.map_err(|error| Error::io("start a thread for", &core.dir, error))?;
        *lock(&core.watcher.thread) = Some(thread);
        Ok(())
    }

    /// Waits until it is over, or for a while; whether it is.
    fn wait_for_end(&self, longest: Duration) -> bool {
        let guard = lock(&self.is_over);
        let waited = self.ended.wait_timeout_while(guard, longest, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Has the thread end with the closing of the database, also if that panics: it would keep all
    /// of the database, and the lock of its directory with it.
    pub(in crate::db) fn until_dropped(&self) -> UntilDropped<'_> {
        UntilDropped(self)
    }

    /// Ends the thread, and waits until it is gone; but not for itself: a listener may close.
    pub(in crate::db) fn end(&self) {
        *lock(&self.is_over) = true;
        self.ended.notify_all();
        let Some(thread) = lock(&self.thread).take() else { return };
        if thread.thread().id() != crate::base::sync::thread::current().id() {
            let _it_does_not_panic = thread.join();
        }
    }
}

impl Core {
    /// Looks at calls under way, and tells the listener if anything has changed.
    pub(in crate::db) fn look_after_health(&self) {
        self.guard.look_at_calls();
        self.heed_failed_sync();
        let Some(listener) = &self.listener else { return };
        let Ok(mut told) = self.watcher.told.try_lock() else { return }; // Another thread tells.
        // Read in front of the health: what changes in between is told again.
        let now = (self.guard.changes(), self.failures.changes(), self.poison().is_some());
        if *told == now {
            return;
        }
        *told = now;
        let health = self.health();
        let listen = || {
            (listener.0)(&health);
            Ok(())
        };
        match contained(listen) {
            Ok(()) => self.failures.all_solved(BackgroundWork::Listener), // That is told next.
            Err(why) => {
                let wall = self.clock.wall_millis();
                self.failures.note_panic(BackgroundWork::Listener, why, wall);
                told.1 = self.failures.changes(); // That is not told.
            }
        }
    }
}
