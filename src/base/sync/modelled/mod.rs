//! What there is of `base::sync` when a scheduler decides who goes on.
//!
//! Locks and threads are shuttle's. Modelled here, because shuttle has nothing of the kind, or not
//! as it is wanted:
//!
//! - *Time* (`time.rs`). A wait that has an end, and a sleep, are over when the modelled clock has
//!   come there. A thread of the scenario moves it, which is let go on when nobody else can, or
//!   (by the schedule's seed) also now and then before: so a wait may end early for everybody, and
//!   one that nobody ends is seen to be ended by the clock alone.
//! - *Atomics* (`atomic.rs`): in one order for all threads, whatever order was asked for: weaker
//!   ones are for loom. An addition or a maximum that is `Relaxed` is no place where somebody else
//!   may go on: those are counters.
//! - *Cells that are written once* (`once.rs`): who comes while another makes the value waits.
//! - *Pointers that are swapped* (`swap.rs`): one step a call. What `arc-swap` does inside is its
//!   own affair.
//!
//! Thread-locals that say something have to be the modelled thread's (`thread_local` of this
//! module). Those of the standard library belong to the one thread that everything runs on: the
//! engine has hints and scratch memory there, of which any will do.

#![allow(missing_docs, reason = "as the standard library")]

pub mod atomic;
mod condvar;
mod once;
mod planted;
mod swap;
pub mod thread;
pub mod time;

pub use std::sync::{Arc, PoisonError, TryLockError, Weak};

pub use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
pub use shuttle::thread_local;

pub use self::condvar::{Condvar, WaitTimeoutResult};
pub use self::once::OnceLock;
pub use self::planted::{is_planted, plant};
pub use self::swap::{ArcSwap, ArcSwapAny, ArcSwapOption, Guard};

/// A place where somebody else may go on.
pub fn point() {
    shuttle::thread::sleep(std::time::Duration::ZERO);
}
