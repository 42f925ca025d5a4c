//! Who goes on: three ways of choosing, of which the seed chooses one.
//!
//! - *Even*: anybody who can, with the same chance, at every place.
//! - *Sticky*: mostly whoever is at it, for some steps on average (2 to 1024).
//! - *Priorities*: whoever has the highest; at a few steps of the schedule the one who is at it
//!   gets the lowest. A bug that needs d such changes is found with a probability that depends on
//!   d and the length of the schedule alone (Burckhardt et al., 2010). Where in the schedule the
//!   changes are is drawn from a length that is drawn, since nobody knows it before.
//!
//! The clock goes on when nobody else can; in some schedules also now and then before.

use lithedb::base::sync::time;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::random::Random;
use crate::run::SEED;

/// The thread that moves the clock is the first that a schedule starts.
const CLOCK: usize = 1;
const CHANGES_MAX: u64 = 5;
/// Lengths of schedules: powers of two from .. to.
const LENGTH_BITS: std::ops::Range<u64> = 7..16;
/// Who is at it for so many steps without a break may be waiting for somebody in a loop: gives way.
const RUN_MAX: u64 = 10_000;
/// In a schedule in which waits end early: one step in so many is the clock's.
const EARLY_ONE_IN: u64 = 256;

#[derive(Debug)]
enum Way {
    Even,
    Sticky { one_in: u64 },
    Priorities { of: Vec<u64>, changes: Vec<u64>, lowest: u64 },
}

/// Schedules of the seeds from one on.
#[derive(Debug)]
pub struct Seeded {
    next_seed: u64,
    end: u64,
    random: Random,
    way: Way,
    ends_early: bool,
    step: u64,
    /// How long the one who is at it has been.
    run: (usize, u64),
}

impl Seeded {
    /// Those of so many seeds.
    pub fn new(seed: u64, count: u64) -> Seeded {
        let random = Random::new(seed);
        Seeded {
            next_seed: seed,
            end: seed + count,
            random,
            way: Way::Even,
            ends_early: false,
            step: 0,
            run: (0, 0),
        }
    }

    fn choose(&mut self, others: &[usize], current: Option<usize>, is_yielding: bool) -> usize {
        let random = &mut self.random;
        let current = current.filter(|current| others.contains(current));
        match &mut self.way {
            Way::Even => others[random.below(others.len() as u64) as usize],
            Way::Sticky { one_in } => match current {
                Some(current) if !is_yielding && !random.one_in(*one_in) => current,
                _ => others[random.below(others.len() as u64) as usize],
            },
            Way::Priorities { of, changes, lowest } => {
                while of.len() <= others.iter().copied().max().unwrap_or(0) {
                    of.push(CHANGES_MAX * (1 << 32) + random.below(1 << 32));
                }
                let is_change = changes.contains(&self.step);
                if let Some(current) = current
                    && (is_change || is_yielding)
                {
                    *lowest = lowest.saturating_sub(1);
                    of[current] = *lowest;
                }
                others.iter().copied().max_by_key(|task| of[*task]).unwrap_or(others[0])
            }
        }
    }
}

impl Scheduler for Seeded {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.next_seed == self.end {
            return None;
        }
        let seed = self.next_seed;
        self.next_seed += 1;
        SEED.set(seed);
        let mut random = Random::new(seed);
        self.way = match random.below(3) {
            0 => Way::Even,
            1 => Way::Sticky { one_in: 1 << (1 + random.below(10)) },
            _ => {
                let bits = LENGTH_BITS.start + random.below(LENGTH_BITS.end - LENGTH_BITS.start);
                let count = random.below(CHANGES_MAX + 1);
                let changes = (0..count).map(|_| random.below(1 << bits)).collect();
                Way::Priorities { of: Vec::new(), changes, lowest: 1 << 32 }
            }
        };
        self.ends_early = random.one_in(4);
        (self.random, self.step, self.run) = (random, 0, (0, 0));
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.step += 1;
        let number = |task: &&Task| usize::from(task.id());
        let clock = runnable.iter().find(|task| number(task) == CLOCK);
        let others: Vec<usize> = runnable.iter().map(number).filter(|id| *id != CLOCK).collect();
        time::note_nobody_else(others.is_empty());
        if let Some(clock) = clock
            && (others.is_empty() || (self.ends_early && self.random.one_in(EARLY_ONE_IN)))
        {
            return Some(clock.id());
        }
        let is_stuck = self.run.1 >= RUN_MAX;
        let chosen = self.choose(&others, current.map(usize::from), is_yielding || is_stuck);
        self.run =
            if self.run.0 == chosen && !is_stuck { (chosen, self.run.1 + 1) } else { (chosen, 0) };
        runnable.iter().map(|task| task.id()).find(|id| usize::from(*id) == chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}
