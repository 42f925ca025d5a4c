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
}

impl ValueFileFigures {
    /// Bytes that nobody refers to.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.size.saturating_sub(self.live)
    }
}

/// How much is to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// So much that the files are not much larger than what is live in them; for the background.
    Bounded,
    /// Whatever is worth it; for those who ask.
    Thorough,
}

/// Garbage is let be up to this share of what is live: so much room more than needed is taken, and
/// so rarely is what stays live moved.
const DEAD_SHARE_MAX: (u64, u64) = (1, 2);
/// Files are emptied, those with most garbage for each live byte first, until it is this share.
const DEAD_SHARE_AIM: (u64, u64) = (1, 4);
/// A file with less garbage than this part of it is not worth being emptied in the background:
/// three bytes would be written for each that is given back.
const WORTHWHILE_FRACTION: u64 = 4;
/// The same for those who ask.
const THOROUGH_FRACTION: u64 = 16;

/// The files to be emptied now.
#[must_use]
pub fn files_to_clean(files: &[ValueFileFigures], aim: Aim) -> BTreeSet<u64> {
    // The others go by themselves, or when the last snapshot does that needs them.
    let files: Vec<&ValueFileFigures> = files.iter().filter(|file| file.live > 0).collect();
    let live: u64 = files.iter().map(|file| file.live.min(file.size)).sum();
    let mut dead: u64 = files.iter().map(|file| file.dead()).sum();
    let share = |(numerator, denominator): (u64, u64)| live / denominator * numerator;
    if aim == Aim::Bounded && dead <= share(DEAD_SHARE_MAX) {
        return BTreeSet::new();
    }
    let (fraction, enough) = match aim {
        Aim::Bounded => (WORTHWHILE_FRACTION, share(DEAD_SHARE_AIM)),
        Aim::Thorough => (THOROUGH_FRACTION, 0),
    };
    let mut worthwhile = files;
    worthwhile.retain(|file| file.dead() * fraction >= file.size);
    // Garbage gained for each byte moved: dead / live, compared without division.
    worthwhile.sort_by_key(|file| {
        let gain = u128::from(file.dead()) << u64::BITS;
        std::cmp::Reverse(gain / u128::from(file.live))
    });
    let mut chosen = BTreeSet::new();
    for file in worthwhile {
        if dead <= enough {
            break;
        }
        dead -= file.dead();
        chosen.insert(file.number);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(figures: &[(u64, u64)]) -> Vec<ValueFileFigures> {
        let figures = (1..).zip(figures);
        figures.map(|(number, &(size, live))| ValueFileFigures { number, size, live }).collect()
    }

    #[test]
    fn garbage_is_let_be_until_it_is_half_of_what_is_live() {
        let few = files(&[(100, 70), (100, 70), (100, 100)]);
        assert_eq!(files_to_clean(&few, Aim::Bounded), BTreeSet::new());
        assert_eq!(files_to_clean(&few, Aim::Thorough), BTreeSet::from([1, 2]));
    }

    #[test]
    fn the_emptiest_files_go_first_and_only_as_many_as_it_takes() {
        let many = files(&[(100, 60), (100, 10), (100, 95), (100, 50), (100, 20)]);
        // 235 live, 265 dead: down to 58 or less, or until no file is worth it.
        assert_eq!(files_to_clean(&many, Aim::Bounded), BTreeSet::from([2, 4, 5]));
        let two = files(&[(100, 100), (100, 100), (100, 5), (100, 90), (100, 60)]);
        assert_eq!(files_to_clean(&two, Aim::Bounded), BTreeSet::new());
    }

    #[test]
    fn a_file_without_live_bytes_and_one_that_counts_twice_are_left() {
        let odd = files(&[(100, 0), (100, 180), (100, 20)]);
        assert_eq!(files_to_clean(&odd, Aim::Thorough), BTreeSet::from([3]));
    }
}
