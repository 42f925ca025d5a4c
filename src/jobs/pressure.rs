//! When memtables are sealed and when writers are slowed down.
//!
//! Memory is bounded by waiting. Writers are stopped when memtables take as much as they may; but
//! before that, while a flush goes on, they are held to the rate at which the room that is left
//! lasts for as long as the flush will take. So they settle at the rate of the flushes instead of
//! stopping and going.

/// What a decision about one keyspace depends on. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    /// Memory of the keyspace's active memtable.
    pub active: u64,
    /// Whether it has room for no more than one batch.
    pub active_is_full: bool,
    /// Ranges that were deleted in it, or what those cost that were deleted again and again.
    pub active_ranges: usize,
    /// Bytes of values in value files that may still be put to it.
    pub active_value_room: u64,
    /// Bytes of values in value files that it refers to.
    pub active_values: u64,
    /// Bytes of such values that may still be put until memtables refer to twice as many as one
    /// may.
    pub value_room: u64,
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
    /// Of the keyspace's oldest sealed memtable, what is still to be flushed: then it goes.
    pub unflushed: u64,
    /// How much of that is flushed in a second; 0 if it is not known.
    pub flush_rate: u64,
    /// Sorted runs of new entries that the structure has and that are to be merged.
    pub fresh_runs: usize,
}

/// Why a memtable is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealReason {
    /// It is full, or refers to as many large values as it may.
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
/// A memtable with more deleted ranges is sealed: each makes the next, and every walk, dearer.
pub const RANGE_COUNT_MAX: usize = 1024;
/// Writers of a keyspace stop at this many.
pub const STOP_SEALED_COUNT: usize = 4;
/// What is flushed in a tenth of a second may be waited for in one go: writers that are about as
/// fast as flushes are left alone, and fill all the room there is.
const STOP_TOLERATED_DIVISOR: u64 = 10;
/// Bytes flushed a second, as long as it is not known.
const FLUSH_RATE_UNKNOWN: u64 = 64 << 20;
/// How much faster than the room allows writers may be: as it shrinks, they are held back more.
const PACE_AHEAD: f64 = 3.0;
/// Writers are held to this part of the rate of flushes at least; beyond it they stop.
const PACE_MIN_DIVISOR: f64 = 16.0;

/// Writers are slowed down from so many runs on that wait to be merged: reads look into each of
/// them, and the disk holds what is overwritten in them ..
const FRESH_RUNS_SLOW: usize = 12;
/// .. more with each, down to the least from here on.
const FRESH_RUNS_SLOWEST: usize = 36;

/// Whether a memtable is to be sealed after a commit.
#[must_use]
pub fn seal_due(pressure: &Pressure) -> Option<SealReason> {
    if pressure.active >= pressure.memtable_size
        || pressure.active_is_full
        || pressure.active_ranges > RANGE_COUNT_MAX
        || pressure.active_value_room == 0
    {
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
    /// As long as it takes to write no more than so many bytes a second.
    Pace(u64),
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
    let memtables_left = (STOP_SEALED_COUNT - pressure.sealed_count) as u64;
    let room_by_count = (memtables_left * pressure.memtable_size).saturating_sub(pressure.active);
    let room = stop_at.saturating_sub(pressure.memtables_total).min(room_by_count);
    let room = room.min(room_by_values(pressure));
    let flush_rate = match pressure.flush_rate {
        0 => FLUSH_RATE_UNKNOWN,
        known => known,
    };
    let behind = pressure.unflushed.saturating_sub(flush_rate / STOP_TOLERATED_DIVISOR);
    let lasting = match room >= behind {
        true => f64::INFINITY,
        false => PACE_AHEAD * room as f64 / behind as f64,
    };
    let share = lasting.min(share_for_runs(pressure.fresh_runs)).max(1.0 / PACE_MIN_DIVISOR);
    if share.is_infinite() {
        return Stall::None;
    }
    Stall::Pace(((flush_rate as f64 * share) as u64).max(1))
}

/// Memory of memtables until they refer to as many large values as is good: what is overwritten in
/// them cannot be given back before they are flushed.
fn room_by_values(pressure: &Pressure) -> u64 {
    if pressure.active_values == 0 {
        return u64::MAX;
    }
    let memory_per_byte = pressure.active as f64 / pressure.active_values as f64;
    (pressure.value_room as f64 * memory_per_byte) as u64
}

/// The part of the rate of flushes that merging runs allows.
fn share_for_runs(runs: usize) -> f64 {
    if runs < FRESH_RUNS_SLOW {
        return f64::INFINITY;
    }
    let left = FRESH_RUNS_SLOWEST.saturating_sub(runs) as f64;
    left / (FRESH_RUNS_SLOWEST - FRESH_RUNS_SLOW) as f64
}

/// Debt up to this many bytes is none to speak of.
const DEBT_SMALL: u64 = 256 << 20;

/// Whether compaction of a structure can be kept to a rate: not when writers are as slow already as
/// they get on account of its runs, nor when more is to be read for it than all that there is. So a
/// rate that is too low slows the writers first, and then gives way: debt has a bound.
#[must_use]
pub fn can_wait(fresh_runs: usize, debt: u64, size: u64) -> bool {
    fresh_runs < FRESH_RUNS_SLOWEST && debt <= size.max(DEBT_SMALL)
}

/// Whether a thread that would compact a structure can leave that to others: not when writers are
/// slowed down on account of its runs, nor when more is to be read for it than all that there is.
#[must_use]
pub fn can_give_way(fresh_runs: usize, debt: u64, size: u64) -> bool {
    fresh_runs < FRESH_RUNS_SLOW && can_wait(fresh_runs, debt, size)
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
            active_is_full: false,
            active_ranges: 0,
            active_value_room: 1,
            active_values: 0,
            value_room: 0,
            memtable_size: 100,
            sealed_count: 0,
            memtables_total: 10,
            budget: 1000,
            log_live: 0,
            log_limit: 1000,
            unflushed: 0,
            flush_rate: 0,
            fresh_runs: 0,
        }
    }

    #[test]
    fn memtables_are_sealed_by_size_memory_and_log() {
        for (pressure, expected) in [
            (calm(), None),
            (Pressure { active: 100, ..calm() }, Some(SealReason::Size)),
            (Pressure { active_is_full: true, ..calm() }, Some(SealReason::Size)),
            (Pressure { active_ranges: 1025, ..calm() }, Some(SealReason::Size)),
            (Pressure { active_value_room: 0, ..calm() }, Some(SealReason::Size)),
            (Pressure { memtables_total: 501, ..calm() }, Some(SealReason::Memory)),
            (Pressure { log_live: 1001, ..calm() }, Some(SealReason::Log)),
        ] {
            assert_eq!(seal_due(&pressure), expected, "{pressure:?}");
        }
    }

    #[test]
    fn writers_stop_when_there_is_no_room() {
        assert_eq!(stall(&calm()), Stall::None);
        assert_eq!(stall(&Pressure { sealed_count: 1, ..calm() }), Stall::None);
        assert_eq!(stall(&Pressure { sealed_count: 4, ..calm() }), Stall::Stop);
        let full = Pressure { sealed_count: 1, memtables_total: 500, ..calm() };
        assert_eq!(stall(&full), Stall::Stop);
        assert_eq!(stall(&Pressure { sealed_count: 0, ..full }), Stall::None);
    }

    #[test]
    fn writers_slow_down_as_runs_come_together_that_wait_to_be_merged() {
        let with = |fresh_runs| stall(&Pressure { fresh_runs, flush_rate: 2400, ..calm() });
        assert_eq!(with(FRESH_RUNS_SLOW - 1), Stall::None);
        assert_eq!(with(FRESH_RUNS_SLOW), Stall::Pace(2400));
        assert_eq!(with(FRESH_RUNS_SLOW + 12), Stall::Pace(1200));
        assert_eq!(with(FRESH_RUNS_SLOWEST), Stall::Pace(150), "never slower than this");
        assert_eq!(with(1000), Stall::Pace(150));
    }

    #[test]
    fn nobody_gives_way_in_what_writers_are_slowed_down_for() {
        assert!(can_give_way(FRESH_RUNS_SLOW - 1, DEBT_SMALL, 0));
        assert!(!can_give_way(FRESH_RUNS_SLOW, 0, 0));
        assert!(!can_give_way(0, DEBT_SMALL + 1, 0));
        assert!(can_give_way(0, DEBT_SMALL + 1, DEBT_SMALL + 1), "less than all there is");
    }

    #[test]
    fn writers_are_held_to_what_the_room_allows() {
        let flushing = |active, unflushed| Pressure {
            active,
            sealed_count: 1,
            memtables_total: 250 + active,
            memtable_size: 250,
            unflushed,
            flush_rate: 1000,
            ..calm()
        };
        let rate = |pressure: &Pressure| match stall(pressure) {
            Stall::Pace(rate) => rate,
            other => panic!("{other:?} for {pressure:?}"),
        };
        assert_eq!(stall(&flushing(0, 350)), Stall::None, "the flush will be over in time");
        assert_eq!(stall(&flushing(200, 150)), Stall::None, "a short stop may be");
        assert_eq!(rate(&flushing(150, 250)), 2000);
        assert_eq!(rate(&flushing(200, 250)), 1000);
        assert_eq!(rate(&flushing(240, 250)), 200);
        assert_eq!(rate(&flushing(249, 250)), 1000 / 16, "never slower than this");
        assert_eq!(stall(&flushing(250, 250)), Stall::Stop);
        let unknown = Pressure { flush_rate: 0, unflushed: 32 << 20, ..flushing(200, 0) };
        assert!(rate(&unknown) < FLUSH_RATE_UNKNOWN);
        // Where memtables are small and what they refer to is large, that counts.
        let large = |value_room| Pressure { active_values: 100, value_room, ..flushing(50, 100) };
        assert_eq!(stall(&large(1000)), Stall::None);
        assert_eq!(rate(&Pressure { flush_rate: 100, ..large(60) }), 100);
        assert_eq!(rate(&Pressure { flush_rate: 100, ..large(0) }), 100 / 16);
        // Whoever writes as fast as allowed comes to the end of the room when the flush ends.
        let (mut active, mut unflushed) = (0.0, 250.0);
        while unflushed > 1.0 {
            if let Stall::Pace(rate) = stall(&flushing(active as u64, unflushed as u64)) {
                active += rate as f64 / 1000.0;
            } else {
                active += 2.0;
            }
            unflushed -= 1.0;
            if active >= 250.0 {
                assert!(unflushed < 125.0, "a stop until {unflushed} are flushed");
                break;
            }
        }
        assert!(active > 225.0, "{active}: the flush would soon be idle");
    }
}
