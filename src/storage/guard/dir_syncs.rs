//! Syncs of the database's directories: one after another, and none behind one that has failed.
//!
//! The system may have dropped what a failed one was to make durable, and says nothing of that the
//! next time. Names in a directory are many parties': whoever made some and syncs later would
//! believe in them.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct DirSyncs {
    /// Held while one is under way; why there are no more.
    turn: Mutex<Option<String>>,
    /// Whether there are no more, for those who look often.
    has_failed: AtomicBool,
}

impl DirSyncs {
    /// Syncs `path`, unless a sync has failed (U4). `is_there` says whether there is a directory.
    pub(super) fn run(
        &self,
        path: &Path,
        sync: impl FnOnce() -> io::Result<()>,
        is_there: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let mut why = self.lock();
        if let Some(why) = &*why {
            self.has_failed.store(true, Ordering::Release);
            return Err(io::Error::other(why.clone()));
        }
        let shown = path.display();
        *why = Some(format!("a sync of {shown} did not come to its end")); // Should it panic.
        let synced = sync();
        *why = match &synced {
            Ok(()) => None,
            // One that has gone has no names.
            Err(error) if error.kind() == ErrorKind::NotFound && !is_there() => None,
            Err(error) if was_not_begun(error) => None,
            Err(error) => Some(format!("a sync of {shown} failed: {error}")),
        };
        if why.is_some() {
            self.has_failed.store(true, Ordering::Release);
        }
        synced
    }

    #[inline]
    pub(super) fn have_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Why there are no more.
    pub(super) fn why_none(&self) -> Option<String> {
        if self.have_failed() { self.lock().clone() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the directory could not be opened, as too many files are: a sync does not say so.
fn was_not_begun(error: &io::Error) -> bool {
    const TOO_MANY_OPEN: [i32; 2] = [23, 24]; // ENFILE and EMFILE of every Unix.
    error.raw_os_error().is_some_and(|code| TOO_MANY_OPEN.contains(&code))
}
