//! What may be found in a store, and what an answer to a question is.

use peer::driven::{digest, fill};
use std::collections::BTreeMap;

/// A value, by its length and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Bytes.
    pub len: usize,
    /// FNV-1a.
    pub hash: u64,
}

impl Digest {
    /// That of the value of a seed.
    pub fn of(seed: u64, len: usize) -> Digest {
        Digest { len, hash: digest(&fill(seed, len)) }
    }
}

/// What may be found under each key: one thing, or, of what was refused, what was there and what
/// was to be there.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    entries: BTreeMap<Vec<u8>, Vec<Option<Digest>>>,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may be so.
    Right,
    /// Something else than may be there, or something where nothing may be.
    Wrong,
    /// Nothing where something must be.
    Missing,
}

impl Expected {
    /// A change was acknowledged: a value, or a deletion.
    pub fn acknowledge(&mut self, key: &[u8], state: Option<Digest>) {
        self.entries.insert(key.to_vec(), vec![state]);
    }

    /// A change was refused, or nothing was said of it: it may be there or not.
    pub fn doubt(&mut self, key: &[u8], state: Option<Digest>) {
        self.entries.entry(key.to_vec()).or_insert_with(|| vec![None]).push(state);
    }

    /// What is found under a key.
    pub fn judge(&self, key: &[u8], found: Option<Digest>) -> Judgement {
        let nothing = [None];
        let may_be = self.entries.get(key).map_or(&nothing[..], Vec::as_slice);
        match found {
            found if may_be.contains(&found) => Judgement::Right,
            None => Judgement::Missing,
            Some(_) => Judgement::Wrong,
        }
    }

    /// Whether something must be under the key.
    pub fn must_be(&self, key: &[u8]) -> bool {
        self.entries.get(key).is_some_and(|may_be| !may_be.contains(&None))
    }

    /// All keys that were ever written, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.keys().map(Vec::as_slice)
    }

    /// Keys under which something must be, in order.
    pub fn living(&self) -> impl Iterator<Item = &[u8]> {
        self.keys().filter(|key| self.must_be(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_doubt_may_be_there_or_not_and_what_was_said_last_counts() {
        let (old, new) = (Digest::of(1, 10), Digest::of(2, 10));
        let mut expected = Expected::default();
        expected.acknowledge(b"k", Some(old));
        assert_eq!(expected.judge(b"k", Some(old)), Judgement::Right);
        assert_eq!(expected.judge(b"k", Some(new)), Judgement::Wrong);
        assert_eq!(expected.judge(b"k", None), Judgement::Missing);
        assert_eq!(expected.judge(b"other", None), Judgement::Right);
        assert_eq!(expected.judge(b"other", Some(old)), Judgement::Wrong);
        expected.doubt(b"k", Some(new));
        for found in [old, new] {
            assert_eq!(expected.judge(b"k", Some(found)), Judgement::Right);
        }
        assert_eq!(expected.judge(b"k", None), Judgement::Missing);
        expected.doubt(b"k", None);
        assert_eq!(expected.judge(b"k", None), Judgement::Right);
        assert!(!expected.must_be(b"k"));
        expected.acknowledge(b"k", None);
        assert_eq!(expected.judge(b"k", Some(new)), Judgement::Wrong);
        expected.doubt(b"new", Some(new));
        assert_eq!(expected.judge(b"new", None), Judgement::Right);
        assert_eq!(expected.living().count(), 0);
        assert_eq!(expected.keys().count(), 2);
    }
}
