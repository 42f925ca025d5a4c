//! What is done to stores, from a seed: entries of several sizes, some overwritten, some deleted.

use crate::expected::{Digest, Expected};
use lithe_bench::Commit;
use peer::driven::{fill, to_hex};

/// How a store is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// In order, everything where it belongs.
    Closed,
    /// The process killed, with a log that is synced and not flushed.
    Killed,
}

/// Draws from a seed: `SplitMix64`, as values do.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// The sequence of a seed and of what it is for.
    pub fn new(seed: u64, purpose: u64) -> Dice {
        let mut dice = Dice { state: seed };
        dice.state = dice.draw() ^ purpose;
        dice
    }

    /// 64 bits.
    pub fn draw(&mut self) -> u64 {
        let word = fill(self.state, size_of::<u64>());
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Less than `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

/// A value that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Under this key.
    pub key: Vec<u8>,
    /// What it is made of.
    pub seed: u64,
    /// .. and how long it is.
    pub len: usize,
}

impl Put {
    /// How a program is told of it.
    pub fn words(&self) -> String {
        format!("{} {} {}", to_hex(&self.key), self.seed, self.len)
    }

    /// What is there then.
    pub fn digest(&self) -> Digest {
        Digest::of(self.seed, self.len)
    }
}

/// One thing that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Entries in one commit.
    Batch(Vec<Put>, Commit),
    /// An entry, synced.
    Put(Put),
    /// A deletion, synced.
    Delete(Vec<u8>),
    /// To where it belongs.
    Flush,
}

impl Step {
    /// The lines that say so.
    pub fn lines(&self) -> String {
        match self {
            Step::Batch(puts, commit) => {
                let commit = match commit {
                    Commit::Buffered => "buffered",
                    Commit::Durable => "durable",
                };
                let mut lines = format!("batch {} {commit}", puts.len());
                puts.iter().for_each(|put| lines += &format!("\n{}", put.words()));
                lines
            }
            Step::Put(put) => format!("put {} durable", put.words()),
            Step::Delete(key) => format!("delete {} durable", to_hex(key)),
            Step::Flush => "flush".into(),
        }
    }

    /// What may be found when it was acknowledged.
    pub fn acknowledge(&self, expected: &mut Expected) {
        match self {
            Step::Batch(puts, _) => {
                for put in puts {
                    expected.acknowledge(&put.key, Some(put.digest()));
                }
            }
            Step::Put(put) => expected.acknowledge(&put.key, Some(put.digest())),
            Step::Delete(key) => expected.acknowledge(key, None),
            Step::Flush => {}
        }
    }

    /// What may be found when it was not.
    pub fn doubt(&self, expected: &mut Expected) {
        match self {
            Step::Batch(puts, _) => {
                puts.iter().for_each(|put| expected.doubt(&put.key, Some(put.digest())));
            }
            Step::Put(put) => expected.doubt(&put.key, Some(put.digest())),
            Step::Delete(key) => expected.doubt(key, None),
            Step::Flush => {}
        }
    }
}

/// Entries of a fixture.
const ENTRIES: u64 = 3000;
/// .. those of them that come behind the first flush,
const LATER: u64 = 900;
/// .. and how many come in one commit.
const BATCH: usize = 50;
/// Lengths of values: the first of them most often.
const LENGTHS: [usize; 8] = [100, 100, 100, 30, 30, 1000, 1000, 5000];
/// Of one in so many, the value is longer.
const LONG_ONE_IN: u64 = 60;
const LONG: usize = 20_000;

/// The key of a number: of several lengths, in no order.
pub fn key_of(number: u64) -> Vec<u8> {
    let mixed = digest_of(number);
    let mut key = mixed.to_be_bytes().to_vec();
    key.extend(std::iter::repeat_n(b'k', (mixed % 24) as usize));
    key
}

fn digest_of(number: u64) -> u64 {
    peer::driven::digest(&number.to_le_bytes())
}

fn value_len(dice: &mut Dice) -> usize {
    match dice.below(LONG_ONE_IN) {
        0 => LONG,
        _ => LENGTHS[dice.below(LENGTHS.len() as u64) as usize],
    }
}

fn put(number: u64, dice: &mut Dice) -> Put {
    let (seed, len) = (dice.draw(), value_len(dice));
    Put { key: key_of(number), seed, len }
}

/// What makes a fixture.
pub fn fixture(seed: u64, ending: Ending) -> Vec<Step> {
    let mut dice = Dice::new(seed, 0xF1);
    let mut steps = Vec::new();
    let mut load = |numbers: Vec<u64>, dice: &mut Dice| {
        for some in numbers.chunks(BATCH) {
            let puts = some.iter().map(|number| put(*number, dice)).collect();
            steps.push(Step::Batch(puts, Commit::Buffered));
        }
    };
    let first = ENTRIES - LATER;
    load((0..first).collect(), &mut dice);
    load((0..first / 5).map(|_| dice.below(first)).collect(), &mut dice);
    steps.push(Step::Flush);
    for number in first..ENTRIES {
        steps.push(Step::Put(put(number, &mut dice)));
        match dice.below(6) {
            0 => steps.push(Step::Put(put(dice.below(number), &mut dice))),
            1 => steps.push(Step::Delete(key_of(dice.below(number)))),
            _ => {}
        }
    }
    if ending == Ending::Closed {
        steps.push(Step::Flush);
    }
    steps
}

/// Synced commits for a run in which a sync fails.
pub fn commits(seed: u64, count: u64) -> Vec<Step> {
    let mut dice = Dice::new(seed, 0x5C);
    (0..count)
        .map(|number| match dice.below(8) {
            0 if number > 0 => Step::Delete(key_of(dice.below(number))),
            1 if number > 0 => Step::Put(put(dice.below(number), &mut dice)),
            _ => Step::Put(put(number, &mut dice)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixture_follows_from_its_seed_and_has_everything() {
        let steps = fixture(1, Ending::Closed);
        assert_eq!(steps, fixture(1, Ending::Closed));
        assert_ne!(steps, fixture(2, Ending::Closed));
        let mut expected = Expected::default();
        steps.iter().for_each(|step| step.acknowledge(&mut expected));
        assert_eq!(expected.keys().count() as u64, ENTRIES);
        let living = expected.living().count() as u64;
        assert!(living < ENTRIES - 50 && living > ENTRIES / 2, "{living}");
        assert_eq!(steps.last(), Some(&Step::Flush));
        assert_ne!(fixture(1, Ending::Killed).last(), Some(&Step::Flush));
    }

    #[test]
    fn dice_differ_by_what_they_are_for() {
        let (mut a, mut b) = (Dice::new(1, 1), Dice::new(1, 2));
        assert_ne!(a.draw(), b.draw());
        assert!((0..1000).all(|_| a.below(7) < 7));
    }

    #[test]
    fn a_step_is_said_in_lines() {
        let put = Put { key: b"k".to_vec(), seed: 3, len: 5 };
        assert_eq!(Step::Put(put.clone()).lines(), "put 6b 3 5 durable");
        assert_eq!(
            Step::Batch(vec![put.clone(), put], Commit::Buffered).lines(),
            "batch 2 buffered\n6b 3 5\n6b 3 5"
        );
    }
}
