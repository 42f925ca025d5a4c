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
        let movable = files.iter().filter(|file| file.movable > 0);
        GarbageFigures {
            dead: movable.map(ValueFileFigures::dead).sum(),
            live: files.iter().map(|file| file.live.min(file.size)).sum(),
        }
    }

    /// Whether there is more garbage than this share of what is live.
    #[must_use]
    pub fn exceed(self, share: f64) -> bool {
        self.dead as f64 > self.live as f64 * share
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
            (WORTHWHILE_FRACTION, enough, garbage.live / MOVED_FRACTION)
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
    /// Garbage, and bytes moved, when somebody first asked.
    since: Option<(u64, u64)>,
}

/// What a round may let come, of the garbage that goes with it: the rest is what there is less of
/// behind it.
const GAIN_FRACTION: f64 = 0.5;
/// Nothing may come any more when garbage is so many times the share from which on flushes wait.
const AT_ONCE_FACTOR: f64 = 1.4;

impl RoundPace {
    /// Of a round that empties these of the files.
    #[must_use]
    pub fn of(files: &[ValueFileFigures], victims: &BTreeSet<u64>) -> RoundPace {
        let chosen = files.iter().filter(|file| victims.contains(&file.number));
        let (to_move, gain) = chosen
            .fold((0, 0), |(to_move, gain), file| (to_move + file.movable, gain + file.dead()));
        RoundPace { to_move, gain, since: None }
    }

    /// Whether nobody needs to wait for it at the moment: there is no more garbage than `share` of
    /// what is live, or the round, which has moved so many bytes, keeps step with what comes.
    pub fn is_kept(&mut self, garbage: GarbageFigures, moved: u64, share: f64) -> bool {
        // What was moved is in its old place as well until the round is over.
        let dead = garbage.dead.saturating_sub(moved);
        let most = garbage.live as f64 * share;
        if dead as f64 <= most {
            return true;
        }
        let (dead_then, moved_then) = *self.since.get_or_insert((dead, moved));
        let beyond = (dead as f64 / most - 1.0) / (AT_ONCE_FACTOR - 1.0);
        let may_come = self.gain as f64 * GAIN_FRACTION * (1.0 - beyond.min(1.0));
        let has_come = dead.saturating_sub(dead_then) as f64;
        let to_move = self.to_move.saturating_sub(moved_then) as f64;
        let has_moved = moved.saturating_sub(moved_then) as f64;
        has_moved * may_come >= has_come * to_move && may_come > 0.0
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
        let mut pace = RoundPace::of(&half, &victims);
        assert_eq!((pace.to_move, pace.gain), (50, 50));
        let live = 1000;
        let mut kept = |dead, moved| pace.is_kept(GarbageFigures { dead, live }, moved, 0.5);
        assert!(kept(500, 0), "as much may be");
        assert!(kept(501, 0), "nothing has come since");
        // At 510 of 500, which is a twentieth of what is let come, 0.95 of half the gain may come.
        assert!(!kept(510, 0));
        assert!(!kept(510 + 18, 18), "what was moved is in its old place as well");
        assert!(kept(510 + 19, 19));
        assert!(!kept(700, 0) && !kept(745, 45), "too much by far: now");
        assert!(kept(545, 45), "the rest is in the background's hands");
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
