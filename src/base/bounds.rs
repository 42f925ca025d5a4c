//! Key ranges: what iterators and scans are asked for.

use std::ops::{Bound, RangeBounds};

/// A range of keys, owned. Built from any Rust range of byte-like keys, or from a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where the range begins.
    pub start: Bound<Vec<u8>>,
    /// Where the range ends.
    pub end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// The keys in `range`.
    pub fn new<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyRange {
        let own = |bound: Bound<&K>| match bound {
            Bound::Included(key) => Bound::Included(key.as_ref().to_vec()),
            Bound::Excluded(key) => Bound::Excluded(key.as_ref().to_vec()),
            Bound::Unbounded => Bound::Unbounded,
        };
        KeyRange { start: own(range.start_bound()), end: own(range.end_bound()) }
    }

    /// The keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let end = prefix_successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        KeyRange { start: Bound::Included(prefix.to_vec()), end }
    }

    /// The first key that may be in the range, and the first one behind it; none if it has no end.
    #[must_use]
    pub fn half_open(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let start = match &self.start {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => successor(key),
        };
        let end = match &self.end {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.clone()),
        };
        (start, end)
    }

    /// The range from one key to in front of another, or to the last.
    #[must_use]
    pub fn from_half_open(start: &[u8], end: Option<&[u8]>) -> KeyRange {
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
        KeyRange { start: Bound::Included(start.to_vec()), end }
    }

    /// Whether `key` is not before the start.
    #[inline]
    #[must_use]
    pub fn starts_by(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => key >= start.as_slice(),
            Bound::Excluded(start) => key > start.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Whether `key` is not behind the end.
    #[inline]
    #[must_use]
    pub fn ends_after(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.starts_by(key) && self.ends_after(key)
    }
}

/// The smallest key above `key`.
#[must_use]
pub fn successor(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// The smallest key above every key that starts with `prefix`; `None` when there is none (an
/// empty prefix, or one of 0xFF bytes only).
#[must_use]
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_holds_exactly_the_keys_with_the_prefix() {
        let range = KeyRange::prefix(b"a\xFF");
        assert!(range.contains(b"a\xFF") && range.contains(b"a\xFF\xFF\xFF"));
        assert!(!range.contains(b"a") && !range.contains(b"b"));
        assert_eq!(prefix_successor(b"a\xFF"), Some(b"b".to_vec()));
        assert_eq!(prefix_successor(b"\xFF\xFF"), None);
        assert!(KeyRange::prefix(b"").contains(b"") && KeyRange::prefix(b"").contains(b"\xFF"));
    }
}
