//! Group commit: who syncs the log, for whom, and when.
//!
//! Threads that need the log to be durable meet at the [`SyncTurn`]. One of them leads: it syncs
//! for all that have appended, passes the lead on, and then wakes those that it has served, each
//! once and only after its commit is applied: nobody is woken to wait for a lock. Must not know
//! what a commit is, nor how the log is synced.
//!
//! A sync costs about the same for one commit as for many. So when one is over, the next may wait
//! until those that it served have come back, for as long as a sync takes at most, and only for as
//! many as came back in time before ([`GroupPolicy`]). Nobody spins or is woken for that: whoever
//! completes the group leads it.
//!
//! Invariants
//! - G1  One thread leads at a time.
//! - G2  A thread that waits has appended before it came, so the next sync to begin covers it.
//! - G3  While a group gathers, one of those who wait is to lead it when it is not complete in
//!   time; else somebody leads, or nobody waits. (After a failure, each finds out for itself.)

mod caller;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex};
use crate::db::core::lock;
use crate::wal::Lsn;

pub(super) use self::caller::{Call, Caller};
pub(super) use self::policy::{Gathering, GroupPolicy};

/// A thread that waits looks for itself this often, should the database have failed meanwhile.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(50);

/// What a thread has to do to get its sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing: the log is durable for it.
    Served,
    /// To sync, and then [`SyncTurn::pass_on`]; or [`SyncTurn::give_up`].
    Lead,
    /// To wait to be called, for so long, and then to [`SyncTurn::come_back`].
    Wait(Duration),
}

/// The turn to sync, and up to where the log is durable.
#[derive(Debug)]
pub(super) struct SyncTurn {
    /// Changed under the lock.
    durable: AtomicU64,
    state: Mutex<Turn>,
}

#[derive(Debug)]
struct Turn {
    phase: Phase,
    /// All who wait, in the order in which they came, but not one that was called to lead.
    waiting: VecDeque<Arc<Caller>>,
    /// How many the next group is worth waiting for.
    target: usize,
    /// When the last sync was over.
    ended: Duration,
    policy: GroupPolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nobody leads or waits.
    Free,
    /// Some wait for others to come, until there are as many as the target.
    Gathering,
    /// Somebody leads, or was called to.
    Taken,
}

impl SyncTurn {
    pub(super) fn new(durable: Lsn, policy: GroupPolicy) -> SyncTurn {
        let state = Turn {
            phase: Phase::Free,
            waiting: VecDeque::new(),
            target: 1,
            ended: Duration::ZERO,
            policy,
        };
        SyncTurn { durable: AtomicU64::new(durable.as_u64()), state: Mutex::new(state) }
    }

    /// Up to where the log is durable.
    pub(super) fn durable(&self) -> Lsn {
        Lsn::from_u64(self.durable.load(Ordering::Acquire))
    }

    /// A thread comes for a sync, having appended (G2). `now` is monotonic.
    pub(super) fn arrive(&self, caller: &Arc<Caller>, now: Duration) -> Role {
        let mut turn = lock(&self.state);
        if self.durable() >= caller.end() {
            return Role::Served;
        }
        let longest = match turn.phase {
            Phase::Taken => WAIT_MAX,
            Phase::Gathering if turn.waiting.len() + 1 >= turn.target => {
                let waited = now.saturating_sub(turn.ended);
                let size = turn.target;
                turn.policy.note_gathered(size, waited);
                turn.phase = Phase::Taken;
                return Role::Lead;
            }
            Phase::Gathering => WAIT_MAX,
            Phase::Free => {
                let left = turn.time_left(now);
                if turn.target <= 1 || left.is_zero() {
                    turn.phase = Phase::Taken;
                    return Role::Lead;
                }
                turn.phase = Phase::Gathering;
                left // G3
            }
        };
        turn.waiting.push_back(Arc::clone(caller));
        Role::Wait(longest)
    }

    /// A thread was called, or has waited long enough.
    pub(super) fn come_back(&self, caller: &Arc<Caller>, call: Call, now: Duration) -> Role {
        if call == Call::Lead {
            return Role::Lead; // The turn was taken in its name.
        }
        let mut turn = lock(&self.state);
        if self.durable() >= caller.end() {
            turn.leave(caller);
            return Role::Served;
        }
        if turn.phase == Phase::Taken {
            return Role::Wait(WAIT_MAX);
        }
        let left = turn.time_left(now);
        if turn.phase == Phase::Gathering && call == Call::Watch && !left.is_zero() {
            return Role::Wait(left); // G3
        }
        if turn.phase == Phase::Gathering {
            let present = turn.waiting.len();
            turn.policy.note_missed(present);
        }
        turn.leave(caller);
        turn.phase = Phase::Taken;
        Role::Lead
    }

    /// A thread that fails does not wait any more.
    pub(super) fn leave(&self, caller: &Arc<Caller>) {
        lock(&self.state).leave(caller);
    }

    /// The leader has synced, which `took` so long and was over `now`. Says who was served, for
    /// the leader to wake when there is nothing left that they would have to wait for.
    pub(super) fn pass_on(&self, durable: Lsn, took: Duration, now: Duration) -> Vec<Arc<Caller>> {
        let mut turn = lock(&self.state);
        self.durable.fetch_max(durable.as_u64(), Ordering::AcqRel);
        let mut served = Vec::new();
        turn.waiting.retain(|caller| {
            let is_served = caller.end() <= durable;
            if is_served {
                served.push(Arc::clone(caller));
            }
            !is_served
        });
        turn.ended = now;
        turn.policy.note_sync(took);
        let expected = 1 + served.len() + turn.waiting.len();
        turn.target = turn.policy.target(expected);
        if turn.waiting.is_empty() {
            turn.phase = Phase::Free;
        } else if turn.waiting.len() >= turn.target {
            let next = turn.waiting.pop_front().expect("there are some");
            drop(turn);
            next.call(Call::Lead);
        } else {
            turn.phase = Phase::Gathering;
            let watcher = Arc::clone(&turn.waiting[0]);
            drop(turn);
            watcher.call(Call::Watch); // G3
        }
        served
    }

    /// The leader has failed: all who wait look for themselves.
    pub(super) fn give_up(&self) {
        lock(&self.state).phase = Phase::Free;
        self.call_all();
    }

    /// Calls all who wait to look.
    pub(super) fn call_all(&self) {
        for caller in &lock(&self.state).waiting {
            caller.call(Call::Look);
        }
    }
}

impl Turn {
    /// For how long the next group may go on gathering.
    fn time_left(&self, now: Duration) -> Duration {
        (self.ended + self.policy.patience()).saturating_sub(now)
    }

    fn leave(&mut self, caller: &Arc<Caller>) {
        self.waiting.retain(|other| !Arc::ptr_eq(other, caller));
    }
}
