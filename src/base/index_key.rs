//! Keys of a secondary index: an index key and the primary key of an entry that has it, as one key.
//!
//! | part | bytes |
//! |---|---|
//! | index key | escaped: each byte 0 is followed by 255 |
//! | end | 0 1 |
//! | primary key | as it is |
//!
//! So entries are in the order of index keys, and those of one index key in that of primary keys;
//! and what begins with an index key's escaped bytes are the entries whose index keys begin with
//! it. No entry's key begins with 0 0: there is room for what is not an entry.

use std::ops::Bound;

use crate::base::KeyRange;

const ESCAPE: u8 = 255;
const END: [u8; 2] = [0, 1];
/// What would follow the end: behind all entries of an index key, in front of what goes on there.
const BEHIND_END: [u8; 2] = [0, 2];
/// No entry has a key below this: that of the empty index key begins with it.
pub const FIRST: &[u8] = &END;
/// Up to where an index is built, while it is not: below all entries.
pub const PROGRESS: &[u8] = &[0, 0];

/// What the keys of all entries with `index_key` begin with, and of no others.
#[must_use]
pub fn head(index_key: &[u8]) -> Vec<u8> {
    let mut head = escaped(index_key);
    head.extend_from_slice(&END);
    head
}

fn escaped(index_key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(index_key.len() + END.len());
    let mut rest = index_key;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(ESCAPE);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out
}

/// The key of the entry with this index key and primary key.
#[must_use]
pub fn encode(index_key: &[u8], primary: &[u8]) -> Vec<u8> {
    let mut key = head(index_key);
    key.extend_from_slice(primary);
    key
}

/// Bytes of the head of an entry's key; `None` if it is no such key.
#[must_use]
pub fn head_len(bytes: &[u8]) -> Option<usize> {
    let mut position = 0;
    loop {
        position += bytes[position..].iter().position(|byte| *byte == 0)? + 2;
        match *bytes.get(position - 1)? {
            ESCAPE => {}
            end if end == END[1] => return Some(position),
            _ => return None,
        }
    }
}

/// The index key that a head is of.
#[must_use]
pub fn of_head(head: &[u8]) -> Vec<u8> {
    let mut rest = &head[..head.len().saturating_sub(END.len())];
    let mut key = Vec::with_capacity(rest.len());
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        key.extend_from_slice(&rest[..=zero]);
        rest = rest.get(zero + 2..).unwrap_or_default();
    }
    key.extend_from_slice(rest);
    key
}

/// The keys of the entries whose index keys are in `range`.
#[must_use]
pub fn range(range: &KeyRange) -> KeyRange {
    let behind = |key: &[u8]| [escaped(key).as_slice(), &BEHIND_END].concat();
    let start = match &range.start {
        Bound::Unbounded => Bound::Included(FIRST.to_vec()),
        Bound::Included(key) => Bound::Included(head(key)),
        Bound::Excluded(key) => Bound::Included(behind(key)),
    };
    let end = match &range.end {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Excluded(behind(key)),
        Bound::Excluded(key) => Bound::Excluded(head(key)),
    };
    KeyRange { start, end }
}

/// The keys of the entries whose index keys begin with `prefix`.
#[must_use]
pub fn prefix(prefix: &[u8]) -> KeyRange {
    match prefix.is_empty() {
        true => range(&KeyRange::all()),
        false => KeyRange::prefix(&escaped(prefix)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Entropy, SeededEntropy};

    fn some_key(random: &SeededEntropy) -> Vec<u8> {
        let len = random.next_u64() % 4;
        let byte = || [0, 1, 2, 254, 255][(random.next_u64() % 5) as usize];
        (0..len).map(|_| byte()).collect()
    }

    #[test]
    fn keys_are_in_the_order_of_their_parts_and_are_taken_apart_again() {
        let random = SeededEntropy::new(3);
        for _ in 0..20_000 {
            let (a, b) = ((some_key(&random), some_key(&random)), (some_key(&random), vec![0, 0]));
            let (ka, kb) = (encode(&a.0, &a.1), encode(&b.0, &b.1));
            assert_eq!(a.cmp(&b), ka.cmp(&kb), "{a:?} {b:?}");
            let len = head_len(&ka).unwrap();
            assert_eq!((of_head(&ka[..len]), &ka[len..]), (a.0, a.1.as_slice()));
            assert!(ka.as_slice() >= FIRST && ka.as_slice() > PROGRESS);
        }
        assert_eq!(head_len(PROGRESS), None);
        assert_eq!((head_len(b""), head_len(b"abc"), head_len(&[5, 0])), (None, None, None));
    }

    #[test]
    fn ranges_and_prefixes_have_exactly_the_entries_of_their_index_keys() {
        let random = SeededEntropy::new(5);
        for _ in 0..20_000 {
            let (key, primary) = (some_key(&random), some_key(&random));
            let (start, end) = (some_key(&random), some_key(&random));
            let bound = |key: Vec<u8>| match random.next_u64() % 3 {
                0 => Bound::Included(key),
                1 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let wanted = KeyRange { start: bound(start.clone()), end: bound(end) };
            let entry = encode(&key, &primary);
            assert_eq!(
                range(&wanted).contains(&entry),
                wanted.contains(&key),
                "{wanted:?} {key:?}"
            );
            assert_eq!(prefix(&start).contains(&entry), key.starts_with(&start));
        }
    }
}
