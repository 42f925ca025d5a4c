//! Locks, atomics, threads, and pointers that are swapped: the one place where the engine has them
//! from.
//!
//! In ordinary builds they are those of the standard library and of `arc-swap`, under another name:
//! nothing is added. With `--cfg shuttle` they belong to a scheduler (`modelled/`), which decides
//! at each of them who goes on, from a seed: `crates/schedules` runs the whole database under it.
//! That is a flag of the compiler and no feature, so that nobody switches it on by depending on
//! something.
//!
//! `memory/` keeps to the standard library, being below this; so does what is held only while
//! nothing from here is used: the simulated disk, counters for people to look at, which bug is
//! seeded.

#[cfg(shuttle)]
mod modelled;

#[cfg(shuttle)]
pub use modelled::*;

#[cfg(not(shuttle))]
pub(crate) use arc_swap::{ArcSwap, ArcSwapOption, Guard};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError,
    Weak, atomic,
};
#[cfg(not(shuttle))]
pub(crate) use std::{thread, thread_local};

/// A place where the scheduler may let somebody else go on, beside those where something is shared:
/// the calls of the simulated disk.
#[cfg(not(shuttle))]
#[inline(always)]
pub(crate) fn point() {}

/// Mistakes that are built in on purpose, to see that schedules find them. Ordinary builds have
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A commit is published before it is in memtables.
    PublishBeforeInsert,
    /// A reader looks whether its state is the newest before it looks up to where it may read.
    StateBeforeStamp,
    /// The log is given back up to where commits are applied, flushed or not.
    ReleaseLogEarly,
    /// A background thread notes which calls for work there were after it has looked for work.
    CallsSeenLate,
    /// A transaction is not checked again under the log's lock.
    PremiseCheckedOnce,
    /// A transaction is told of a conflict with a commit that the next one would not see.
    ConflictUnseen,
    /// A trail may begin between where an ingest has ended the one before and where it is there.
    TrailBeginsBesideIngest,
}

/// Whether a mistake is built in.
#[cfg(not(shuttle))]
#[inline(always)]
pub(crate) const fn is_planted(_mistake: Mistake) -> bool {
    false
}
