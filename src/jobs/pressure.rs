//! When memtables are sealed and when writers are slowed down.
//!
//! Memory is bounded by waiting: a writer is slowed down a little as soon as flushes fall behind,
//! and stopped only when memtables take as much as they may. The delays grow with what is waiting,
//! so that writers settle at the rate of the flushes instead of stopping and going.

use std::time::Duration;

/// What a decision about one keyspace depends on. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// Memory of the keyspace's active memtable.
    pub active: u64,
    /// Size at which it is sealed.
    pub memtable_size: u64,
    /// Sealed memtables of the keyspace that wait to be flushed.
    pub sealed_count: usize,
    /// Memory of all memtables of the database.
    pub memtables_total: u64,
    /// The memory budget.
    pub budget: u64,
    /// Bytes of the log that are still needed.
    pub log_live: u64,
    /// Bytes that the log should not exceed.
    pub log_limit: u64,
}

/// Why a memtable is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealReason {
    /// It is full.
    Size,
    /// All memtables together take too much: the largest goes.
    Memory,
    /// The log is too long: the memtable that holds its start goes.
    Log,
}

/// Memtables may take this part of the budget before the largest is sealed early.
const MEMTABLE_SHARE: (u64, u64) = (1, 2);
/// Writers stop when memtables take this part of the budget: room for one that is flushed and one
/// that is filled. More would not make writers faster than flushes, and the log of it takes room on
/// the disk.
const STOP_SHARE: (u64, u64) = (1, 2);
/// Writers of a keyspace are slowed down from this many sealed memtables on.
const SLOW_SEALED_COUNT: usize = 2;
/// Writers of a keyspace stop at this many.
pub const STOP_SEALED_COUNT: usize = 4;
/// The longest slow-down of one commit.
const SLOW_MAX: Duration = Duration::from_millis(1);

/// Whether a memtable is to be sealed after a commit.
#[must_use]
pub fn seal_due(pressure: &Pressure) -> Option<SealReason> {
    if pressure.active >= pressure.memtable_size {
        return Some(SealReason::Size);
    }
    if pressure.memtables_total > share(pressure.budget, MEMTABLE_SHARE) {
        return Some(SealReason::Memory);
    }
    (pressure.log_live > pressure.log_limit).then_some(SealReason::Log)
}

/// How long a writer waits before its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// Not at all.
    None,
    /// This long.
    Slow(Duration),
    /// Until a flush has been completed.
    Stop,
}

/// What a commit to a keyspace has to wait for.
#[must_use]
pub fn stall(pressure: &Pressure) -> Stall {
    let stop_at = share(pressure.budget, STOP_SHARE);
    // Without anything sealed there is no flush to wait for: the commit itself will seal.
    let waits_for_flush = pressure.sealed_count > 0;
    if pressure.sealed_count >= STOP_SEALED_COUNT
        || (waits_for_flush && pressure.memtables_total >= stop_at)
    {
        return Stall::Stop;
    }
    if pressure.sealed_count < SLOW_SEALED_COUNT {
        return Stall::None;
    }
    // From nothing, when the active memtable is empty, to the longest, when it is full.
    let filled = pressure.active.min(pressure.memtable_size) as f64;
    let part = filled / pressure.memtable_size.max(1) as f64;
    let level = (pressure.sealed_count - SLOW_SEALED_COUNT) as f64 + part;
    let levels = (STOP_SEALED_COUNT - SLOW_SEALED_COUNT) as f64;
    let delay = SLOW_MAX.mul_f64((level / levels).powi(2));
    if delay < Duration::from_micros(1) { Stall::None } else { Stall::Slow(delay) }
}

fn share(whole: u64, (numerator, denominator): (u64, u64)) -> u64 {
    whole / denominator * numerator
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> Pressure {
        Pressure {
            active: 10,
            memtable_size: 100,
            sealed_count: 0,
            memtables_total: 10,
            budget: 1000,
            log_live: 0,
            log_limit: 1000,
        }
    }

    #[test]
    fn memtables_are_sealed_by_size_memory_and_log() {
        for (pressure, expected) in [
            (calm(), None),
            (Pressure { active: 100, ..calm() }, Some(SealReason::Size)),
            (Pressure { memtables_total: 501, ..calm() }, Some(SealReason::Memory)),
            (Pressure { log_live: 1001, ..calm() }, Some(SealReason::Log)),
        ] {
            assert_eq!(seal_due(&pressure), expected, "{pressure:?}");
        }
    }

    #[test]
    fn writers_slow_down_before_they_stop() {
        assert_eq!(stall(&calm()), Stall::None);
        assert_eq!(stall(&Pressure { sealed_count: 1, ..calm() }), Stall::None);
        assert_eq!(stall(&Pressure { sealed_count: 4, ..calm() }), Stall::Stop);
        let full = Pressure { sealed_count: 1, memtables_total: 500, ..calm() };
        assert_eq!(stall(&full), Stall::Stop);
        assert_eq!(stall(&Pressure { sealed_count: 0, ..full }), Stall::None);
        let mut before = Duration::ZERO;
        for (sealed_count, active) in [(2, 50), (2, 100), (3, 50), (3, 100)] {
            let Stall::Slow(delay) = stall(&Pressure { sealed_count, active, ..calm() }) else {
                panic!("a delay is due at {sealed_count} sealed memtables");
            };
            assert!(before < delay && delay <= SLOW_MAX);
            before = delay;
        }
    }
}
