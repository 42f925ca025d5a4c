//! Which mistake is built in.

use std::cell::Cell;

use crate::base::sync::Mistake;

thread_local! {
    /// Of this thread, which has all threads of a schedule on it.
    static PLANTED: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Builds a mistake in, for the schedules that this thread runs.
pub fn plant(mistake: Option<Mistake>) {
    PLANTED.set(mistake);
}

/// Whether a mistake is built in.
#[must_use]
pub fn is_planted(mistake: Mistake) -> bool {
    PLANTED.get() == Some(mistake)
}
