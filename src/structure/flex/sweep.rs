//! The sweep: which intervals a flush consolidates, beside those that have to be. Pure policy.
//!
//! Contiguous ranges are consolidated at a pace of `memtable bytes / pace` of base bytes a flush,
//! going round the key space. Old base runs then die in the order in which they were written, so
//! that segments die whole and no cleaning is needed. Write amplification is about 0.75 to 1.2
//! for the deltas plus 1 / pace, space about 1 + pace / 2 (uniform overwrites, simulated).
//!
//! An entry that points to a large value hides one when it overwrites, and that is found when the
//! interval is consolidated: a sixteenth of the values' bytes is added to the pace.

/// How far the sweep has come, and how far it may go.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    /// The sweep goes on with the interval that holds this key.
    pub from: Vec<u8>,
    /// Base bytes that may still be consolidated.
    pub credit: u64,
    /// What consolidations have found lately.
    pub overwrites: Overwrites,
}

/// How many new entries took the place of older ones or removed them, as far as flushes have seen
/// it: where they consolidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overwrites {
    /// Entries that memtables brought.
    pub taken: u64,
    /// Those of them that overwrote or deleted.
    pub gone: u64,
}

/// Bytes of large values over this are spent on finding those that were overwritten.
const VALUE_FRACTION: u64 = 16;
/// Unused credit is kept up to this many flushes' worth: maintenance that had nothing to do for
/// long must not come all at once.
const CREDIT_FLUSH_COUNT_MAX: u64 = 2;
/// Part of the credit that is given when nothing is overwritten: so much is consolidated to see
/// whether that is still so.
const CREDIT_SHARE_MIN: f64 = 0.2;

impl Overwrites {
    /// Counts what became of an interval.
    pub(super) fn note(&mut self, taken: u64, gone: u64) {
        self.taken += taken;
        self.gone += gone;
    }

    /// The part of new entries that make dead ones: 1 while nothing is known.
    fn share(self) -> f64 {
        if self.taken == 0 {
            return 1.0;
        }
        self.gone as f64 / self.taken as f64
    }

    /// What was seen before counts half of what is seen now.
    fn age(&mut self) {
        self.taken /= 2;
        self.gone /= 2;
    }
}

impl Sweep {
    /// Adds the credit of one flush of `memtable_bytes` with pointers to `value_bytes`. Where
    /// nothing is overwritten there is no room to be gained, and reads find their entry among
    /// deltas as well.
    pub(super) fn begin_flush(&mut self, (memtable_bytes, value_bytes): (u64, u64), pace: f32) {
        let share = self.overwrites.share().max(CREDIT_SHARE_MIN);
        let paced = memtable_bytes as f64 / f64::from(pace) + (value_bytes / VALUE_FRACTION) as f64;
        let earned = (paced * share) as u64;
        self.credit = (self.credit + earned).min(earned * CREDIT_FLUSH_COUNT_MAX);
        self.overwrites.age();
    }

    /// Pays for an interval with `base_bytes` that the sweep went over.
    pub(super) fn pay(&mut self, base_bytes: u64) {
        // An interval without a base costs something too, so that every sweep ends.
        self.credit = self.credit.saturating_sub(base_bytes.max(1));
    }
}

/// What an interval is, for [`choose`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub base_bytes: u64,
    pub delta_bytes: u64,
    pub delta_count: usize,
    /// Bytes that the flush brings; a lower bound when there are many.
    pub new_bytes: u64,
    /// Deletions among what the flush brings.
    pub new_tombstones: u64,
    /// Entries in the runs that there are.
    pub entry_count: u64,
    /// Those of them that have expired, about.
    pub expired: u64,
    /// Whether the sweep has come to it and has credit.
    pub swept: Swept,
    /// What was done with the interval in front of it.
    pub before: Choice,
}

/// Whether the sweep is at an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    Yes,
    No,
}

/// What a flush does with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Nothing: it has no new entries and need not be consolidated.
    Leave,
    /// The new entries become a delta run.
    Append,
    /// All runs and the new entries become base runs.
    Consolidate,
}

/// Deltas up to this many times the base are kept; more are consolidated wherever the sweep is.
/// Bounds what a walk must merge, and makes ascending loads write each entry once.
pub(super) const DELTA_TO_BASE_MAX: u64 = 4;
/// An interval behind one that is consolidated is so this part earlier: neighbours were written
/// together, and the segments of what is replaced together die whole.
const EARLY_FRACTION: u64 = 3;
/// Runs that an interval may have: each is a read of its own when the interval is not in memory.
pub(super) const DELTA_COUNT_MAX: usize = 40;
/// Bytes of entries that are merged in memory as one; a block holds less than 4 GiB, and one that
/// large would not serve anybody.
pub(super) const MERGE_BYTES_MAX: u64 = 64 << 20;
/// The sweep leaves intervals alone whose deltas are below this part of the base: rewriting them
/// would cost sixteen times what it merges.
const WORTHWHILE_FRACTION: u64 = 16;
/// ... unless there are this many: each is a run more to look into.
const WORTHWHILE_DELTA_COUNT: usize = 4;

/// Decides about one interval.
pub(super) fn choose(candidate: Candidate) -> Choice {
    let deltas = candidate.delta_bytes + candidate.new_bytes;
    let is_pending = candidate.new_bytes > 0;
    let delta_bytes_max = candidate.base_bytes * DELTA_TO_BASE_MAX;
    let delta_bytes_limit = match candidate.before {
        Choice::Consolidate => delta_bytes_max - delta_bytes_max / EARLY_FRACTION,
        Choice::Leave | Choice::Append => delta_bytes_max,
    };
    if is_pending && deltas >= delta_bytes_limit {
        return Choice::Consolidate;
    }
    if is_pending && candidate.delta_count >= DELTA_COUNT_MAX {
        return Choice::Consolidate;
    }
    if is_pending && candidate.base_bytes + deltas >= MERGE_BYTES_MAX {
        return Choice::Consolidate;
    }
    // Deleting most of an interval gives its room back at once, and costs little: little is left.
    if is_mostly_expired(candidate.new_tombstones + candidate.expired, candidate.entry_count) {
        return Choice::Consolidate;
    }
    let is_worthwhile = is_worthwhile(candidate.base_bytes, deltas, candidate.delta_count)
        || has_much_expired(candidate.expired, candidate.entry_count);
    match (candidate.swept, is_pending) {
        (Swept::Yes, _) if is_worthwhile => Choice::Consolidate,
        (_, true) => Choice::Append,
        (_, false) => Choice::Leave,
    }
}

/// Whether an interval with `deltas` bytes in delta runs is worth rewriting, be it by the sweep or
/// when there is nothing else to do.
pub(super) fn is_worthwhile(base_bytes: u64, deltas: u64, delta_count: usize) -> bool {
    deltas > 0
        && (deltas >= base_bytes / WORTHWHILE_FRACTION || delta_count >= WORTHWHILE_DELTA_COUNT)
}

/// Whether most of an interval's entries have expired, or are deleted.
pub(super) fn is_mostly_expired(expired: u64, entry_count: u64) -> bool {
    expired * 2 > entry_count
}

/// An interval of which so much has expired is worth rewriting for that alone.
const EXPIRED_FRACTION: u64 = 4;

/// Whether so many of an interval's entries have expired that it is worth rewriting.
pub(super) fn has_much_expired(expired: u64, entry_count: u64) -> bool {
    expired > 0 && expired * EXPIRED_FRACTION >= entry_count
}

/// Segments with less of them live than this are emptied when there is nothing else to do.
const SPARSE_LIVE_SHARE: (u64, u64) = (7, 8);

/// Whether so little of a segment is live that what is should be written anew.
pub(super) fn is_sparse(live_bytes: u64, size: u64) -> bool {
    let (numerator, denominator) = SPARSE_LIVE_SHARE;
    live_bytes * denominator < size * numerator
}

/// A budget below this has no room for an index in any case.
const BUDGET_SMALL: usize = 256 << 10;

/// The fan-in of deltas when the indexes of all keyspaces take `index_bytes` of a memory budget of
/// `limit`. Runs of a keyspace that is large against its memtable take more memory than anything
/// else of an index, and a smaller fan-in has fewer of them: 3.5 a level with 8, 1.5 with 4, a half
/// with 2, at the price of writing new entries more often. A fan-in of 0 stays what it is.
pub(super) fn fan_in_for(fan_in: u8, index_bytes: usize, limit: usize) -> u8 {
    let most = match index_bytes {
        bytes if bytes <= limit / 2 || limit < BUDGET_SMALL => return fan_in,
        bytes if bytes <= limit - limit / 4 => 4,
        _ => 2,
    };
    fan_in.min(most)
}

/// The highest level that a record of a run can say; no merging comes near it.
const LEVEL_MAX: u8 = 63;

/// How many of an interval's newest deltas a new one is merged with: levels that have reached
/// `fan_in` runs, the new one counted, cascade. `levels` are those of the deltas, oldest first.
/// Answers with the number of deltas and the level of the result.
///
/// With a fan-in of 3, a new run onto levels 1 1 0 0 makes a third of level 0, which become a
/// third of level 1, which become one of level 2: all four are merged.
pub(super) fn deltas_to_merge(levels: &[u8], fan_in: u8) -> (usize, u8) {
    let mut merged = 0;
    let mut level = 0u8;
    if fan_in == 0 {
        return (0, 0);
    }
    loop {
        let rest = &levels[..levels.len() - merged];
        let same = rest.iter().rev().take_while(|&&other| other == level).count();
        if same + 1 < usize::from(fan_in) || level == LEVEL_MAX {
            return (merged, level);
        }
        merged += same;
        level += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(base: u64, delta: u64, new: u64, swept: Swept) -> Candidate {
        Candidate {
            base_bytes: base,
            delta_bytes: delta,
            delta_count: 3,
            new_bytes: new,
            new_tombstones: 0,
            entry_count: 10,
            expired: 0,
            swept,
            before: Choice::Leave,
        }
    }

    #[test]
    fn intervals_are_consolidated_when_swept_or_over_the_cap() {
        for (case, expected) in [
            (candidate(0, 0, 10, Swept::No), Choice::Consolidate), // an empty interval
            (candidate(1000, 0, 100, Swept::No), Choice::Append),
            (candidate(1000, 3800, 100, Swept::No), Choice::Append),
            (candidate(1000, 3900, 100, Swept::No), Choice::Consolidate),
            (candidate(1000, 500, 100, Swept::Yes), Choice::Consolidate),
            (candidate(1000, 500, 0, Swept::Yes), Choice::Consolidate),
            (candidate(1000, 500, 0, Swept::No), Choice::Leave),
            (candidate(1000, 5000, 0, Swept::No), Choice::Leave),
            (candidate(1000, 0, 0, Swept::Yes), Choice::Leave),
            (candidate(1000, 0, 10, Swept::Yes), Choice::Append), // too little to rewrite for
        ] {
            assert_eq!(choose(case), expected, "{case:?}");
        }
        let behind =
            Candidate { before: Choice::Consolidate, ..candidate(1000, 2600, 100, Swept::No) };
        assert_eq!(choose(behind), Choice::Consolidate, "ripens with its neighbour");
        assert_eq!(choose(Candidate { before: Choice::Append, ..behind }), Choice::Append);
        let large = candidate(MERGE_BYTES_MAX, 0, 100, Swept::No);
        assert_eq!(choose(large), Choice::Consolidate);
        let deleted = Candidate { new_tombstones: 6, ..candidate(1000, 0, 60, Swept::No) };
        assert_eq!(choose(deleted), Choice::Consolidate);
        let expired = Candidate { expired: 6, ..candidate(1000, 0, 0, Swept::No) };
        assert_eq!(choose(expired), Choice::Consolidate, "most of it");
        let expired = Candidate { expired: 3, ..candidate(1000, 0, 0, Swept::No) };
        assert_eq!(choose(expired), Choice::Leave);
        let swept = Candidate { swept: Swept::Yes, ..expired };
        assert_eq!(choose(swept), Choice::Consolidate, "a quarter of it, and the sweep is there");
    }

    #[test]
    fn deltas_cascade_through_full_levels() {
        assert_eq!(deltas_to_merge(&[], 8), (0, 0));
        assert_eq!(deltas_to_merge(&[0; 6], 8), (0, 0));
        assert_eq!(deltas_to_merge(&[0; 7], 8), (7, 1));
        assert_eq!(deltas_to_merge(&[1, 1, 0, 0], 3), (4, 2));
        assert_eq!(deltas_to_merge(&[1, 0, 0], 3), (2, 1));
        assert_eq!(deltas_to_merge(&[0; 39], 0), (0, 0));
    }

    #[test]
    fn indexes_that_take_much_of_the_budget_have_fewer_runs() {
        for (fan_in, index_bytes, expected) in
            [(8, 0, 8), (8, 50, 8), (8, 51, 4), (3, 51, 3), (8, 76, 2), (0, 200, 0)]
        {
            let (index_bytes, limit) = (index_bytes << 20, 100 << 20);
            assert_eq!(fan_in_for(fan_in, index_bytes, limit), expected, "{fan_in} {index_bytes}");
        }
        assert_eq!(fan_in_for(8, 500 << 10, 100 << 10), 8, "a tiny budget");
    }

    #[test]
    fn credit_is_earned_by_flushes_and_kept_within_bounds() {
        let mut sweep = Sweep::default();
        sweep.begin_flush((600, 0), 0.6);
        assert!((999..=1000).contains(&sweep.credit));
        for _ in 0..10 {
            sweep.begin_flush((600, 0), 0.6);
        }
        assert!(sweep.credit <= 2000);
        sweep.pay(5000);
        assert_eq!(sweep.credit, 0);
    }

    #[test]
    fn credit_follows_what_is_overwritten() {
        let credit_with = |taken, gone| {
            let mut sweep = Sweep::default();
            sweep.overwrites.note(taken, gone);
            sweep.begin_flush((600, 0), 0.6);
            sweep.credit
        };
        assert!((999..=1000).contains(&credit_with(0, 0)), "all of it while nothing is known");
        assert!((999..=1000).contains(&credit_with(100, 100)));
        assert!((499..=500).contains(&credit_with(100, 50)));
        assert!((199..=200).contains(&credit_with(100, 0)), "never nothing");
    }

    #[test]
    fn large_values_that_may_be_hidden_add_to_the_credit() {
        let mut sweep = Sweep::default();
        sweep.begin_flush((600, 16_000), 0.6);
        assert!((1999..=2000).contains(&sweep.credit));
        sweep.overwrites.note(100, 0);
        sweep.credit = 0;
        sweep.begin_flush((600, 16_000), 0.6);
        assert!((399..=400).contains(&sweep.credit), "nothing is overwritten");
    }

    #[test]
    fn an_interval_is_worth_it_for_its_bytes_or_its_runs() {
        assert!(!is_worthwhile(1600, 0, 0));
        assert!(!is_worthwhile(1600, 99, 1));
        assert!(is_worthwhile(1600, 100, 1));
        assert!(is_worthwhile(1600, 10, 4));
        assert!(is_worthwhile(0, 10, 1));
        assert!(is_sparse(87, 100) && !is_sparse(88, 100));
    }
}
