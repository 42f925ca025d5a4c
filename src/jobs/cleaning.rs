//! Which value files are worth emptying: their live values are moved, and the files go.

use std::collections::BTreeSet;

/// A value file, as the choice sees it. A file without live bytes goes by itself.
#[derive(Clone, Copy, Debug)]
pub struct ValueFileFigures {
    /// Its number.
    pub number: u64,
    /// Bytes of it.
    pub size: u64,
    /// Bytes of records that are referred to; what is referred to twice counts twice.
    pub live: u64,
    /// Those of them that can be moved: what memtables refer to cannot.
    pub movable: u64,
}

impl ValueFileFigures {
    /// Bytes that nobody refers to.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.size.saturating_sub(self.live)
    }
}

/// How much is to be given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// Garbage is let be up to this share of what is live; when it is more, half of that is to be
    /// left. So much room more than needed is taken, and so rarely is what stays live moved. At
    /// most a part of what is live is moved in one go, as files go when all of it is over.
    Bounded(f64),
    /// Whatever is worth it; for those who ask.
    Thorough,
}

/// A file with less garbage than this part of it is not worth being emptied in the background:
/// four bytes would be written for each that is given back.
const WORTHWHILE_FRACTION: u64 = 5;
/// The same for those who ask.
const THOROUGH_FRACTION: u64 = 16;

/// What one go moves is at most what is live over this, or one file: so much room it takes until
/// the files go.
const MOVED_FRACTION: u64 = 16;
/// .. and no more than this, which the system can read ahead of the moves.
const MOVED_MAX: u64 = 4 << 30;

/// Garbage of all files, and what is live in them. That of files in which nothing can be moved does
/// not count: these go by themselves, with the next flush, or when the last snapshot goes that
/// needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarbageFigures {
    /// Bytes that can be gained.
    pub dead: u64,
    /// Bytes that are referred to.
    pub live: u64,
}

impl GarbageFigures {
    /// Of these files.
    #[must_use]
    pub fn of(files: &[ValueFileFigures]) -> GarbageFigures {
        GarbageFigures::beside(files, &BTreeSet::new())
    }

    /// Of these files, without the garbage of those that are being emptied.
    #[must_use]
    pub fn beside(files: &[ValueFileFigures], victims: &BTreeSet<u64>) -> GarbageFigures {
        let counts = |file: &&ValueFileFigures| file.movable > 0 && !victims.contains(&file.number);
        GarbageFigures {
            dead: files.iter().filter(counts).map(ValueFileFigures::dead).sum(),
            live: files.iter().map(|file| file.live.min(file.size)).sum(),
        }
    }

    /// Whether there is more garbage than this share of what is live.
    #[must_use]
    pub fn exceed(self, share: f64) -> bool {
        self.dead as f64 > self.live as f64 * share
    }

    /// Whether there is so much more that some of it has to go, even if none comes.
    #[must_use]
    pub fn exceed_by_far(self, share: f64) -> bool {
        self.exceed(share * FAR_TOO_MUCH)
    }
}

/// The files to be emptied now.
#[must_use]
pub fn files_to_clean(files: &[ValueFileFigures], aim: Aim) -> BTreeSet<u64> {
    let garbage = GarbageFigures::of(files);
    let (fraction, enough, moved_max) = match aim {
        Aim::Bounded(share) if !garbage.exceed(share) => return BTreeSet::new(),
        Aim::Bounded(share) => {
            let enough = (garbage.live as f64 * share / 2.0) as u64;
            (WORTHWHILE_FRACTION, enough, (garbage.live / MOVED_FRACTION).min(MOVED_MAX))
        }
        Aim::Thorough => (THOROUGH_FRACTION, 0, u64::MAX),
    };
    let mut dead = garbage.dead;
    let mut worthwhile: Vec<&ValueFileFigures> =
        files.iter().filter(|file| file.movable > 0).collect();
    worthwhile.retain(|file| file.dead() > 0 && file.dead() * fraction >= file.size);
    // Garbage gained for each byte moved: dead / live, compared without division.
    worthwhile.sort_by_key(|file| {
        let gain = u128::from(file.dead()) << u64::BITS;
        std::cmp::Reverse(gain / u128::from(file.live))
    });
    let mut chosen = BTreeSet::new();
    let mut moved = 0u64;
    for file in worthwhile {
        moved = moved.saturating_add(file.movable);
        if dead <= enough || (moved > moved_max && !chosen.is_empty()) {
            break;
        }
        dead -= file.dead();
        chosen.insert(file.number);
    }
    chosen
}

/// How far a round of cleaning has to be while writers go on: what is moved keeps step with the
/// garbage that comes, so that nobody waits for a whole round at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundPace {
    /// Bytes that are to be moved.
    to_move: u64,
    /// Bytes of garbage that go when it is over.
    gain: u64,
    /// Garbage beside that, and bytes moved, when somebody first asked.
    since: Option<(u64, u64)>,
    /// Garbage that came before this round, and was more than the rounds then allowed.
    owed: u64,
}

/// What a round may let come, of the garbage that goes with it: the rest is what there is less of
/// behind it. The first where garbage is as much as may be ..
const GAIN_FRACTION: f64 = 0.5;
/// .. down to this where it is [`FAR_TOO_MUCH`] times as much.
const GAIN_FRACTION_MIN: f64 = 0.1;
const FAR_TOO_MUCH: f64 = 1.4;

impl RoundPace {
    /// Of a round that empties these of the files.
    #[must_use]
    pub fn of(files: &[ValueFileFigures], victims: &BTreeSet<u64>, owed: u64) -> RoundPace {
        let chosen = files.iter().filter(|file| victims.contains(&file.number));
        let (to_move, gain) = chosen
            .fold((0, 0), |(to_move, gain), file| (to_move + file.movable, gain + file.dead()));
        RoundPace { to_move, gain, since: None, owed }
    }

    /// Whether nobody needs to wait for it at the moment: there is no more garbage than `share` of
    /// what is live, or the round, which has moved so many bytes, keeps step with what comes.
    /// `beside` is the garbage beside that of the round's own files.
    pub fn is_kept(&mut self, beside: GarbageFigures, moved: u64, share: f64) -> bool {
        let (dead, most) = self.dead_and_most(beside, share);
        if dead <= most {
            return true;
        }
        let (_, moved_then) = *self.since.get_or_insert((beside.dead, moved));
        if moved >= self.to_move {
            return false; // Nothing is left of it but to end it.
        }
        let to_move = self.to_move.saturating_sub(moved_then) as f64;
        let has_moved = moved.saturating_sub(moved_then) as f64;
        has_moved * self.may_come(dead / most) >= self.has_come(beside) * to_move
    }

    /// What the next round has to make up for when this one is over: no more than there is too much
    /// of then.
    #[must_use]
    pub fn owed_to_the_next(&self, beside: GarbageFigures, share: f64) -> u64 {
        let (dead, most) = self.dead_and_most(beside, share);
        let too_much = (beside.dead as f64 - most).max(0.0);
        (self.has_come(beside) - self.may_come(dead / most)).clamp(0.0, too_much) as u64
    }

    /// Garbage, that of the round's files as it was when it began, and how much there may be.
    fn dead_and_most(&self, beside: GarbageFigures, share: f64) -> (f64, f64) {
        ((beside.dead + self.gain) as f64, beside.live as f64 * share)
    }

    /// Bytes of garbage that have come since somebody first asked, and that were owed before.
    fn has_come(&self, beside: GarbageFigures) -> f64 {
        let dead_then = self.since.map_or(beside.dead, |(dead, _)| dead);
        (beside.dead.saturating_sub(dead_then) + self.owed) as f64
    }

    /// Bytes of garbage that may come during the round, where there is so many times what may be.
    fn may_come(&self, excess: f64) -> f64 {
        let beyond = ((excess - 1.0) / (FAR_TOO_MUCH - 1.0)).max(0.0);
        self.gain as f64 * (GAIN_FRACTION * (1.0 - beyond)).max(GAIN_FRACTION_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(figures: &[(u64, u64)]) -> Vec<ValueFileFigures> {
        let figures = (1..).zip(figures);
        let figures = figures.map(|(number, &(size, live))| {
            let movable = live;
            ValueFileFigures { number, size, live, movable }
        });
        figures.collect()
    }

    #[test]
    fn a_round_keeps_step_with_the_garbage_that_comes() {
        let half = files(&vec![(100, 50); 20]);
        let victims = files_to_clean(&half, Aim::Bounded(0.5));
        let mut pace = RoundPace::of(&half, &victims, 0);
        assert_eq!((pace.to_move, pace.gain), (50, 50));
        let beside = |dead| GarbageFigures { dead, live: 1000 };
        let mut kept = |dead, moved| pace.is_kept(beside(dead), moved, 0.5);
        assert!(kept(450, 0), "as much may be");
        assert!(kept(451, 0), "nothing has come since");
        // At 510 of 500, which is a twentieth of what is let come, 0.95 of half the gain may come.
        assert!(!kept(460, 0) && !kept(460, 18) && kept(460, 19));
        assert!(kept(470, 45), "the rest is in the background's hands");
        assert!(!kept(460, 50), "it is to be ended");
        // Far too much: a tenth of the gain may come.
        let mut pace = RoundPace::of(&half, &victims, 0);
        let mut kept = |dead, moved| pace.is_kept(beside(dead), moved, 0.5);
        assert!(kept(900, 0) && !kept(901, 0) && !kept(901, 9) && kept(901, 10));
        assert!(!kept(905, 49), "all of it");
    }

    #[test]
    fn what_came_beyond_what_a_round_allows_is_owed_to_the_next() {
        let half = files(&vec![(100, 50); 20]);
        let victims = files_to_clean(&half, Aim::Bounded(0.5));
        let beside = |dead| GarbageFigures { dead, live: 1000 };
        let mut pace = RoundPace::of(&half, &victims, 0);
        assert!(pace.is_kept(beside(900), 0, 0.5) && !pace.is_kept(beside(960), 49, 0.5));
        let owed = pace.owed_to_the_next(beside(960), 0.5);
        assert_eq!(owed, 55, "60 came, and 5 may");
        let mut pace = RoundPace::of(&half, &victims, owed);
        assert!(!pace.is_kept(beside(910), 0, 0.5) && !pace.is_kept(beside(910), 49, 0.5));
        // No more than makes up for what there is too much of.
        assert_eq!(pace.owed_to_the_next(beside(510), 0.5), 10);
        assert_eq!(pace.owed_to_the_next(beside(490), 0.5), 0);
    }

    #[test]
    fn files_that_are_emptied_are_no_garbage_of_those_beside() {
        let files = files(&[(100, 50), (100, 60), (100, 0)]);
        let all = GarbageFigures::of(&files);
        assert_eq!(all, GarbageFigures { dead: 90, live: 110 }, "the third goes by itself");
        let beside = GarbageFigures::beside(&files, &BTreeSet::from([1]));
        assert_eq!(beside, GarbageFigures { dead: 40, live: 110 });
    }

    #[test]
    fn garbage_is_let_be_until_it_is_too_large_a_share_of_what_is_live() {
        let few = files(&[(100, 70), (100, 70), (100, 100)]);
        assert_eq!(files_to_clean(&few, Aim::Bounded(0.5)), BTreeSet::new());
        assert_eq!(files_to_clean(&few, Aim::Bounded(0.2)), BTreeSet::from([1]));
        assert_eq!(files_to_clean(&few, Aim::Thorough), BTreeSet::from([1, 2]));
    }

    #[test]
    fn the_emptiest_files_go_first_and_only_as_many_as_it_takes() {
        let mut many = vec![(100, 60), (100, 10), (100, 95), (100, 50), (100, 20)];
        many.resize(25, (100, 100));
        // 2235 live, 265 dead: down to 111 or less, or until no file is worth it.
        assert_eq!(files_to_clean(&files(&many), Aim::Bounded(0.1)), BTreeSet::from([2, 5]));
        let two = files(&[(100, 100), (100, 100), (100, 5), (100, 90), (100, 60)]);
        assert_eq!(files_to_clean(&two, Aim::Bounded(0.5)), BTreeSet::new());
    }

    #[test]
    fn one_go_moves_a_part_of_what_is_live_and_one_file_at_least() {
        for (count, chosen) in [(2, 1), (20, 1), (40, 2), (80, 5)] {
            let half = files(&vec![(100, 50); count]);
            assert_eq!(files_to_clean(&half, Aim::Bounded(0.5)).len(), chosen, "{count}");

            assert_eq!(files_to_clean(&half, Aim::Thorough).len(), count);
        }
    }

    #[test]
    fn files_that_only_memtables_refer_to_are_let_be() {
        let mut of_memtables = files(&[(100, 10), (100, 10), (100, 100)]);
        of_memtables[0].movable = 0;
        assert_eq!(GarbageFigures::of(&of_memtables), GarbageFigures { dead: 90, live: 120 });
        for aim in [Aim::Bounded(0.5), Aim::Thorough] {
            assert_eq!(files_to_clean(&of_memtables, aim), BTreeSet::from([2]));
        }
        assert_eq!(files_to_clean(&of_memtables, Aim::Bounded(0.8)), BTreeSet::new());
    }

    #[test]
    fn a_file_without_live_bytes_and_one_that_counts_twice_are_left() {
        let odd = files(&[(100, 0), (100, 180), (100, 20)]);
        assert_eq!(files_to_clean(&odd, Aim::Thorough), BTreeSet::from([3]));
    }
}
