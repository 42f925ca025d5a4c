//! The digest of a set of rows: equal sets have equal digests, whatever the order of changes.
//!
//! A sum over the rows, so that a change costs as much as the row and not as much as the set; two
//! sums of 64 bits, one with the stamps and one without (the stamp of a commit that is under way
//! is not known yet).

use lithedb::SeqNo;
use lithedb::base::hash_key;

use crate::random::mix;

/// The digest of a set of rows; `default` is that of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Of keys and values.
    pub plain: u128,
    /// Of keys, values, stamps and expiries.
    pub stamped: u128,
}

impl Digest {
    /// A row more.
    pub fn add(&mut self, key: &[u8], value: &[u8], (seqno, until): (SeqNo, Option<u64>)) {
        let row = Digest::of(key, value, (seqno, until));
        self.plain = self.plain.wrapping_add(row.plain);
        self.stamped = self.stamped.wrapping_add(row.stamped);
    }

    /// A row less.
    pub fn remove(&mut self, key: &[u8], value: &[u8], (seqno, until): (SeqNo, Option<u64>)) {
        let row = Digest::of(key, value, (seqno, until));
        self.plain = self.plain.wrapping_sub(row.plain);
        self.stamped = self.stamped.wrapping_sub(row.stamped);
    }

    fn of(key: &[u8], value: &[u8], (seqno, until): (SeqNo, Option<u64>)) -> Digest {
        let (key, value) = (hash_key(key), hash_key(value));
        let low = mix(key ^ mix(value ^ 0x5BF0_3635));
        let high = mix(key.rotate_left(32).wrapping_add(mix(value.wrapping_mul(3))));
        let stamp = mix(seqno.as_u64() ^ until.map_or(0, mix));
        Digest {
            plain: u128::from(high) << 64 | u128::from(low),
            stamped: u128::from(mix(high ^ stamp)) << 64 | u128::from(mix(low ^ stamp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_what_is_removed_is_gone() {
        let rows = [(&b"a"[..], &b"1"[..], 1), (b"b", b"", 2), (b"", b"b", 3)];
        let mut forth = Digest::default();
        let mut back = Digest::default();
        for (key, value, stamp) in rows {
            forth.add(key, value, (SeqNo::from_u64(stamp), None));
        }
        for (key, value, stamp) in rows.into_iter().rev() {
            back.add(key, value, (SeqNo::from_u64(stamp), None));
        }
        assert_eq!(forth, back);
        for (key, value, stamp) in rows {
            forth.remove(key, value, (SeqNo::from_u64(stamp), None));
        }
        assert_eq!(forth, Digest::default());
    }

    #[test]
    fn key_and_value_do_not_run_together_and_stamps_count() {
        let digest = |key: &[u8], value: &[u8], stamp| {
            let mut digest = Digest::default();
            digest.add(key, value, (SeqNo::from_u64(stamp), None));
            digest
        };
        assert_ne!(digest(b"ab", b"", 1).plain, digest(b"a", b"b", 1).plain);
        assert_eq!(digest(b"a", b"b", 1).plain, digest(b"a", b"b", 2).plain);
        assert_ne!(digest(b"a", b"b", 1).stamped, digest(b"a", b"b", 2).stamped);
    }
}
