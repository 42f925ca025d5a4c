//! Where one thread waits for others.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Arc, Condvar, Mutex, PoisonError};
use crate::db::core::lock;
use crate::wal::Lsn;

/// What a thread is called to do. Of two calls the greater counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) enum Call {
    /// Nothing; it has waited long enough.
    None,
    /// To look whether what it waits for has come to pass.
    Look,
    /// To lead the group that gathers, if that is not complete in time.
    Watch,
    /// To sync.
    Lead,
}

/// A thread that wants the log to be durable up to a position, or its commit to be applied.
#[derive(Debug)]
pub(in crate::db) struct Caller {
    end: Lsn,
    is_done: AtomicBool,
    state: Mutex<Wait>,
    called: Condvar,
}

#[derive(Debug)]
struct Wait {
    call: Call,
    is_asleep: bool,
}

impl Caller {
    /// A thread that needs the log up to `end`.
    pub(in crate::db) fn new(end: Lsn) -> Arc<Caller> {
        let state = Mutex::new(Wait { call: Call::None, is_asleep: false });
        Arc::new(Caller { end, is_done: AtomicBool::new(false), state, called: Condvar::new() })
    }

    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    /// Whether its commit is applied.
    pub(in crate::db) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Says that its commit is applied; wakes nobody.
    pub(in crate::db) fn set_done(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Calls the thread. Costs a system call if it sleeps.
    pub(in crate::db) fn call(&self, call: Call) {
        let mut state = lock(&self.state);
        state.call = state.call.max(call);
        let was_asleep = std::mem::replace(&mut state.is_asleep, false);
        drop(state); // Else the thread would wake up only to wait for this lock.
        if was_asleep {
            self.called.notify_one();
        }
    }

    /// Waits for a call. Only the thread itself does.
    pub(in crate::db) fn wait(&self, longest: Duration) -> Call {
        let mut state = lock(&self.state);
        if state.call == Call::None {
            state.is_asleep = true;
            let uncalled = |state: &mut Wait| state.call == Call::None;
            let waited = self.called.wait_timeout_while(state, longest, uncalled);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_asleep = false;
        }
        std::mem::replace(&mut state.call, Call::None)
    }
}
