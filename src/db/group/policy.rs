//! How long a sync waits for more commits to cover, and for how many.
//!
//! Threads that commit one after the other come back soon after a sync, or they have something
//! else to do: then waiting is lost time. What they did lately says which.

use std::time::Duration;

/// Groups gather for as long as a sync takes at most: without it, threads that are back by then
/// would wait for a sync of others to end, and two syncs would do the work of one. But never
/// longer than this, however slow the disk is.
const PATIENCE_MAX: Duration = Duration::from_millis(1);
/// Syncs that are faster cost less than to sleep and be woken.
const SYNC_TIME_MIN: Duration = Duration::from_micros(20);
/// After so many misses in a row, one group in 2^7 tries again.
const MISSES_MAX: u32 = 7;

/// Decides from what happened to the groups so far.
#[derive(Clone, Debug)]
pub(in crate::db) struct GroupPolicy {
    gathering: Gathering,
    /// About how long a sync takes when nothing disturbs it.
    sync_time: Duration,
    /// As many came in time.
    limit: usize,
    /// Misses, less what later groups made up for.
    misses: u32,
    /// Groups until more than the limit is tried.
    groups_to_retry: u32,
}

/// Whether groups gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum Gathering {
    /// When it pays.
    Adaptive,
    /// Never: what is done does not depend on time.
    Off,
}

impl GroupPolicy {
    pub(in crate::db) fn new(gathering: Gathering) -> GroupPolicy {
        GroupPolicy {
            gathering,
            sync_time: Duration::ZERO,
            limit: usize::MAX,
            misses: 0,
            groups_to_retry: 0,
        }
    }

    /// How long after a sync the next one may wait.
    pub(super) fn patience(&self) -> Duration {
        let pays = self.gathering == Gathering::Adaptive && self.sync_time >= SYNC_TIME_MIN;
        if pays { self.sync_time.min(PATIENCE_MAX) } else { Duration::ZERO }
    }

    /// For how many members to wait, when `expected` wait already or were just served.
    pub(super) fn target(&mut self, expected: usize) -> usize {
        if self.patience().is_zero() {
            return 1;
        }
        if expected > self.limit {
            if self.groups_to_retry == 0 {
                self.limit = usize::MAX;
            } else {
                self.groups_to_retry -= 1;
            }
        }
        expected.min(self.limit)
    }

    /// A sync took so long. Some take far longer than most, so one that does counts little.
    pub(super) fn note_sync(&mut self, took: Duration) {
        self.sync_time = if self.sync_time.is_zero() {
            took
        } else if took < self.sync_time {
            (self.sync_time * 3 + took) / 4
        } else {
            (self.sync_time + self.sync_time / 16).min(took)
        };
    }

    /// A group of `size` was complete so long after the last sync.
    pub(super) fn note_gathered(&mut self, size: usize, waited: Duration) {
        if waited > self.patience() {
            self.note_missed(size - 1); // Sleepers wake late: the last one came too late.
        } else if self.limit == usize::MAX {
            self.misses /= 2;
        }
    }

    /// Of a group, only so many came in time.
    pub(super) fn note_missed(&mut self, present: usize) {
        self.limit = present.max(1);
        self.misses = (self.misses + 1).min(MISSES_MAX);
        self.groups_to_retry = 1 << self.misses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC_TIME: Duration = Duration::from_micros(80);

    fn policy() -> GroupPolicy {
        let mut policy = GroupPolicy::new(Gathering::Adaptive);
        policy.note_sync(SYNC_TIME);
        policy
    }

    #[test]
    fn all_who_were_served_are_waited_for_while_they_come_back() {
        let mut policy = policy();
        for _ in 0..100 {
            assert_eq!(policy.target(8), 8);
            policy.note_gathered(8, SYNC_TIME / 2);
        }
        assert_eq!(policy.target(3), 3);
    }

    #[test]
    fn nobody_waits_alone_or_when_syncs_are_fast_or_gathering_is_off() {
        assert_eq!(policy().target(1), 1);
        let mut fast = GroupPolicy::new(Gathering::Adaptive);
        fast.note_sync(SYNC_TIME_MIN / 2);
        let mut off = GroupPolicy::new(Gathering::Off);
        off.note_sync(SYNC_TIME);
        for policy in [&mut fast, &mut off] {
            assert_eq!((policy.target(8), policy.patience()), (1, Duration::ZERO));
        }
    }

    #[test]
    fn a_slow_disk_is_not_waited_for_as_long_as_it_takes() {
        let mut policy = GroupPolicy::new(Gathering::Adaptive);
        policy.note_sync(Duration::from_millis(12));
        assert_eq!(policy.patience(), PATIENCE_MAX);
    }

    #[test]
    fn who_did_not_come_in_time_is_tried_again_ever_more_seldom() {
        let mut policy = policy();
        let mut tries = Vec::new();
        for group in 0..2000 {
            if policy.target(2) == 2 {
                tries.push(group);
                policy.note_missed(1);
            }
        }
        let gaps: Vec<i32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.is_sorted() && gaps[0] <= 3, "{gaps:?}");
        assert_eq!(*gaps.last().unwrap(), (1 << MISSES_MAX) + 1);
    }

    #[test]
    fn one_who_comes_too_late_counts_as_one_who_did_not_come() {
        let mut policy = policy();
        assert_eq!(policy.target(4), 4);
        policy.note_gathered(4, SYNC_TIME * 2);
        assert_eq!(policy.target(4), 3);
    }

    #[test]
    fn a_miss_among_many_groups_is_made_up_for() {
        let mut policy = policy();
        policy.note_missed(5);
        let groups_until_all = (0..).find(|_| policy.target(8) == 8);
        assert_eq!(groups_until_all, Some(2));
        policy.note_gathered(8, SYNC_TIME / 2);
        assert_eq!(policy.misses, 0);
    }

    #[test]
    fn a_sync_that_takes_far_too_long_counts_little() {
        let mut policy = policy();
        policy.note_sync(SYNC_TIME * 100);
        assert!(policy.patience() < SYNC_TIME * 5 / 4);
        (0..100).for_each(|_| policy.note_sync(SYNC_TIME / 2));
        assert!(policy.patience() < SYNC_TIME * 6 / 10);
    }
}
