//! Which versions an archive keeps.
//!
//! Of a key the newest version is kept, unless it is a deletion that is long known, or expired as
//! long ago; of the others those that were overwritten or deleted behind a stamp, and so many of
//! the newest ones: what either asks for. Both are true of all versions in front of one that they
//! are true of, so that what is shown of a key has no gaps.

use crate::base::seeded::{Bug, is_seeded};
use crate::base::version_key::{VersionKind, behind_head, by_key_head, tail_of};
use crate::base::{EntryKind, EntryRef, SeqNo, expiring_in, version_operands};
use crate::manifest::KeyspaceOptions;

/// What is kept where not all is: for a time, by number, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// What is seen as of this stamp and later ones is kept; `None`: time keeps nothing.
    pub from: Option<SeqNo>,
    /// So many of the newest versions of each key are kept; `None`: the number keeps nothing.
    pub versions: Option<u32>,
}

/// What a version says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its stamp.
    pub stamp: SeqNo,
    /// From then on, in milliseconds since 1970, that there is nothing: 0 for a deletion.
    gone_at: u64,
}

impl Said {
    /// What the version of this stamp and kind says, with this entry in the archive.
    #[must_use]
    pub fn by((stamp, what): (SeqNo, VersionKind), kind: EntryKind, value: &[u8]) -> Said {
        let gone_at = match what {
            VersionKind::Deleted => 0,
            VersionKind::Put => expiring_in(kind, value).map_or(u64::MAX, |of| of.until),
        };
        Said { stamp, gone_at }
    }
}

impl Retention {
    /// What an archive with these options keeps, if it is whole from `kept_from` on; `None` if that
    /// is all.
    #[must_use]
    pub fn of(options: &KeyspaceOptions, kept_from: SeqNo) -> Option<Retention> {
        let from = options.keep_for.is_some().then_some(kept_from);
        let versions = options.keep_versions;
        (from.is_some() || versions.is_some()).then_some(Retention { from, versions })
    }

    /// Whether a version is kept that `newer` others of its key are newer than, the next of them of
    /// the stamp `next`.
    #[must_use]
    pub fn keeps(&self, newer: u32, next: Option<SeqNo>) -> bool {
        let Some(next) = next else { return true };
        self.keeps_by_number(newer) || self.from.is_some_and(|from| next > from)
    }

    /// Whether it is kept, and says more than that there is nothing in front of what is kept.
    #[must_use]
    pub fn shows(&self, newer: u32, next: Option<SeqNo>, said: Said) -> bool {
        self.keeps(newer, next) && !self.is_forgotten(newer, said)
    }

    fn keeps_by_number(&self, newer: u32) -> bool {
        let newer = newer + u32::from(is_seeded(Bug::VersionDroppedEarly));
        self.versions.is_some_and(|versions| newer < versions)
    }

    /// Whether it says what is said without it, if nothing older is there. Its entry by stamp is
    /// gone then, too.
    fn is_forgotten(&self, newer: u32, Said { stamp, gone_at }: Said) -> bool {
        let is_over = |from: SeqNo| stamp < from && gone_at <= from.millis();
        !self.keeps_by_number(newer) && self.from.is_some_and(is_over)
    }
}

/// Lets entries of an archive, in order, pass if they are kept. Of a key of which it sees but some
/// versions it lets more pass.
#[derive(Debug, Default)]
pub struct Sieve {
    /// Of the key at hand.
    head: Vec<u8>,
    /// Versions of it that were seen.
    newer: u32,
    /// The stamp of the last of them.
    next: Option<SeqNo>,
    /// Whether that one passed, and holds operands on the next older one.
    wants_older: bool,
}

impl Sieve {
    /// Whether the entry passes. `has_older` is asked whether there may be entries between its key
    /// and a later one that the sieve does not see.
    pub fn passes(
        &mut self,
        retention: &Retention,
        EntryRef { key, kind, value, .. }: EntryRef<'_>,
        has_older: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let version = by_key_head(key).zip(tail_of(key));
        let Some((head, version)) = version else { return true };
        let said = Said::by(version, kind, value);
        if self.head != head {
            self.head.clear();
            self.head.extend_from_slice(head);
            (self.newer, self.next, self.wants_older) = (0, None, false);
        }
        let (newer, next) = (self.newer, self.next.replace(said.stamp));
        self.newer = newer.saturating_add(1);
        let (_, what) = version;
        // Where it does not see the version that kept operands are in, it sees the next one in its
        // place, which passes, and so do those that that is on. So none that is asked for goes.
        let passes = match (self.wants_older, what) {
            (true, VersionKind::Put) => true,
            (is_wanted, _) => {
                // What is forgotten still hides what is older, and so does a deletion below
                // operands.
                retention.shows(newer, next, said)
                    || (is_wanted || retention.keeps(newer, next)) && has_older(&behind_head(head))
            }
        };
        self.wants_older = passes && version_operands(kind, value).is_some();
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::version_key::{put_by_stamp, put_head, put_tail};
    use crate::base::{Expiring, Operands};

    fn stamp(number: u64) -> SeqNo {
        SeqNo::from_u64(number)
    }

    fn entry<'a>(key: &'a [u8], kind: EntryKind, value: &'a [u8]) -> EntryRef<'a> {
        EntryRef { key, seqno: stamp(1), kind, value }
    }

    /// Stamps of the versions that pass, of these: newest first, of a key each.
    fn passed(retention: Retention, keys: &[&[(u64, VersionKind)]], has_older: bool) -> Vec<u64> {
        let (mut sieve, mut passed) = (Sieve::default(), Vec::new());
        for (number, versions) in keys.iter().enumerate() {
            for (number_of_stamp, kind) in *versions {
                let mut key = Vec::new();
                put_head(&mut key, &[number as u8]);
                put_tail(&mut key, stamp(*number_of_stamp), *kind);
                if sieve.passes(&retention, entry(&key, EntryKind::Value, b""), |_| has_older) {
                    passed.push(*number_of_stamp);
                }
            }
        }
        passed
    }

    #[test]
    fn what_either_asks_for_passes() {
        use VersionKind::{Deleted, Put};
        let of = |from: Option<u64>, versions| Retention { from: from.map(stamp), versions };
        let first: &[_] = &[(90, Put), (70, Put), (50, Put), (30, Deleted), (10, Put)];
        let second: &[_] = &[(80, Deleted), (60, Put), (40, Put)];
        let third: &[_] = &[(45, Deleted), (5, Put)];
        let keys = [first, second, third];
        for (retention, has_older, expected) in [
            // As of 50 the first key is of 50, the second of 40, and the third is not there.
            (of(Some(50), None), true, vec![90, 70, 50, 80, 60, 40, 45]),
            (of(Some(50), None), false, vec![90, 70, 50, 80, 60, 40]),
            (of(Some(49), None), true, vec![90, 70, 50, 30, 80, 60, 40, 45]),
            // A deletion is told by stamp from its own on.
            (of(Some(45), None), false, vec![90, 70, 50, 80, 60, 40, 45]),
            (of(Some(49), None), false, vec![90, 70, 50, 80, 60, 40]),
            (of(Some(1), None), false, vec![90, 70, 50, 30, 10, 80, 60, 40, 45, 5]),
            (of(Some(100), None), false, vec![90]),
            (of(None, Some(1)), false, vec![90, 80, 45]),
            (of(None, Some(2)), false, vec![90, 70, 80, 60, 45, 5]),
            (of(Some(85), Some(2)), false, vec![90, 70, 80, 60, 45, 5]),
            (of(Some(50), Some(1)), false, vec![90, 70, 50, 80, 60, 40, 45]),
        ] {
            assert_eq!(passed(retention, &keys, has_older), expected, "{retention:?} {has_older}");
        }
    }

    /// Stamp and kind of a version, and the kind and bytes of its entry.
    type TestVersion<'a> = (u64, VersionKind, (EntryKind, &'a [u8]));

    #[test]
    fn what_kept_operands_are_on_passes() {
        use VersionKind::{Deleted, Put};
        let open = Operands::open(b"x");
        let open = Operands::decode(&open).unwrap().on_older_version();
        let (operands, value) = ((EntryKind::Composite, &*open), (EntryKind::Value, &b"v"[..]));
        let gone = (EntryKind::Value, &b""[..]);
        // Stamps of those that pass where the newest two are kept, and the first not.
        let passed = |versions: &[TestVersion<'_>], has_older| {
            let retention = Retention { from: None, versions: Some(2) };
            let (mut sieve, mut passed) = (Sieve::default(), Vec::new());
            for (number, what, (kind, value)) in versions {
                let mut key = Vec::new();
                put_head(&mut key, b"k");
                put_tail(&mut key, stamp(*number), *what);
                if sieve.passes(&retention, entry(&key, *kind, value), |_| has_older) {
                    passed.push(*number);
                }
            }
            passed
        };
        let chain = [(90, Put, operands), (80, Put, operands), (70, Put, operands)];
        let on_value = [&chain[..], &[(60, Put, value), (50, Put, operands)]].concat();
        assert_eq!(passed(&on_value, true), [90, 80, 70, 60]);
        let on_nothing = [&chain[..], &[(60, Deleted, gone), (50, Put, value)]].concat();
        assert_eq!(passed(&on_nothing, true), [90, 80, 70, 60]);
        assert_eq!(passed(&on_nothing, false), [90, 80, 70]);
        let values = [(90, Put, operands), (80, Put, value), (70, Put, operands), (60, Put, value)];
        assert_eq!(passed(&values, true), [90, 80]);
    }

    #[test]
    fn other_entries_pass() {
        let retention = Retention { from: Some(stamp(100)), versions: None };
        let mut key = Vec::new();
        put_by_stamp(&mut key, stamp(3), b"k");
        let mut sieve = Sieve::default();
        for _ in 0..2 {
            assert!(sieve.passes(&retention, entry(&key, EntryKind::Value, b""), |_| false));
        }
    }

    #[test]
    fn what_has_expired_long_ago_is_as_good_as_deleted() {
        let value = Expiring { until: 50, kind: EntryKind::Value, value: b"v" }.encode();
        let mut key = Vec::new();
        put_head(&mut key, b"k");
        put_tail(&mut key, SeqNo::from_parts(10, 0), VersionKind::Put);
        let passes = |from: SeqNo, has_older| {
            let retention = Retention { from: Some(from), versions: None };
            let entry = entry(&key, EntryKind::Composite, &value);
            Sieve::default().passes(&retention, entry, |_| has_older)
        };
        assert!(passes(SeqNo::from_parts(49, 7), false));
        assert!(!passes(SeqNo::from_parts(50, 0), false));
        assert!(passes(SeqNo::from_parts(50, 0), true));
    }

    #[test]
    fn what_is_kept_is_all_without_options() {
        let options = KeyspaceOptions::history();
        assert_eq!(Retention::of(&options, stamp(7)), None);
        let for_a_time = options.clone().keep_for(std::time::Duration::from_secs(1));
        let kept = Retention { from: Some(stamp(7)), versions: None };
        assert_eq!(Retention::of(&for_a_time, stamp(7)), Some(kept));
        let by_number = Retention { from: None, versions: Some(3) };
        assert_eq!(Retention::of(&options.keep_versions(3), stamp(7)), Some(by_number));
    }
}
