//! Operands: what a composite entry may hold, to be merged into what its key had before.
//!
//! Layout:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | base | merged into: 0 what older entries say, 1 nothing, 2 a value, 3 a pointer |
//! | varint, .. | value | its length and bytes; of base 2 only |
//! | 30 | pointer | of base 3 only |
//! | | operands | one at least, the oldest first; for each: its length (varint) and bytes |
//!
//! An entry is *open* while its base is what older entries say, else *closed*: then no older entry
//! has to be looked at. In the lowest run of an interval there is nothing below an open one.
//!
//! In an archive of versions operands that were merged into the next older version of their key
//! have the first byte 6, and then their lengths and bytes: there older versions are entries of
//! other keys, which nobody but who reads the archive is to put together with them.

use crate::base::{EntryKind, ValuePointer, varint};

const BELOW: u8 = 0;
const NOTHING: u8 = 1;
const VALUE: u8 = 2;
const POINTER: u8 = 3;
const OLDER_VERSION: u8 = 6;

/// What operands are merged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeBase<'a> {
    /// What older entries of the key say.
    Below,
    /// The key was not there.
    Nothing,
    /// A value.
    Value(&'a [u8]),
    /// A value in the value log.
    Pointer(&'a [u8]),
}

/// The operands of an entry, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands<'a> {
    /// What they are merged into.
    pub base: MergeBase<'a>,
    /// Their lengths and bytes.
    list: &'a [u8],
}

impl<'a> Operands<'a> {
    /// The operands that these bytes are; `None` if they are none.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Operands<'a>> {
        let (&base, rest) = bytes.split_first()?;
        let (base, list) = match base {
            BELOW => (MergeBase::Below, rest),
            NOTHING => (MergeBase::Nothing, rest),
            VALUE => {
                let (value, list) = take_one(rest)?;
                (MergeBase::Value(value), list)
            }
            POINTER => {
                let (pointer, list) = rest.split_at_checked(ValuePointer::SIZE)?;
                (MergeBase::Pointer(pointer), list)
            }
            _ => return None,
        };
        let mut left = list;
        while !left.is_empty() {
            left = take_one(left)?.1;
        }
        (!list.is_empty()).then_some(Operands { base, list })
    }

    /// The operands, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.list;
        std::iter::from_fn(move || {
            let (operand, rest) = take_one(left)?;
            left = rest;
            Some(operand)
        })
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.list.len()
    }

    /// Whether older entries of the key have a say.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.base == MergeBase::Below
    }

    /// Bytes of one operand, merged into what older entries say.
    #[must_use]
    pub fn open(operand: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + varint::LEN_MAX + operand.len());
        bytes.push(BELOW);
        push(&mut bytes, operand);
        bytes
    }

    /// Bytes of these operands on another base.
    #[must_use]
    pub fn on(&self, base: MergeBase<'_>) -> Vec<u8> {
        let mut bytes = encode_base(base, self.list.len());
        bytes.extend_from_slice(self.list);
        bytes
    }

    /// Bytes of one operand on a base.
    #[must_use]
    pub fn single(base: MergeBase<'_>, operand: &[u8]) -> Vec<u8> {
        let mut bytes = encode_base(base, varint::LEN_MAX + operand.len());
        push(&mut bytes, operand);
        bytes
    }

    /// Bytes of these operands on top of an older entry of the key. `None` if that holds operands
    /// that are none.
    ///
    /// # Panics
    /// When these are not open.
    #[must_use]
    pub fn over(&self, kind: EntryKind, older: &[u8]) -> Option<Vec<u8>> {
        assert!(self.is_open(), "nothing older has a say");
        Some(match kind {
            EntryKind::Value => self.on(MergeBase::Value(older)),
            EntryKind::Pointer => self.on(MergeBase::Pointer(older)),
            EntryKind::Tombstone => self.on(MergeBase::Nothing),
            EntryKind::Composite => {
                Operands::decode(older)?;
                [older, self.list].concat()
            }
        })
    }

    /// Bytes of operands on a base, those of `parts` one behind the other; what is the base of each
    /// is not looked at.
    #[must_use]
    pub fn joined<'p>(
        base: MergeBase<'_>,
        parts: impl Iterator<Item = Operands<'p>> + Clone,
    ) -> Vec<u8> {
        let len = parts.clone().map(|part| part.list.len()).sum();
        let mut bytes = encode_base(base, len);
        parts.for_each(|part| bytes.extend_from_slice(part.list));
        bytes
    }

    /// Bytes of these operands as a version in an archive, on the next older one of its key.
    #[must_use]
    pub fn on_older_version(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.list.len());
        bytes.push(OLDER_VERSION);
        bytes.extend_from_slice(self.list);
        bytes
    }

    /// The operands in the bytes of a version that has them on the next older one; `None` if they
    /// are none of that form. Their base is what is below.
    #[must_use]
    pub fn decode_version(bytes: &'a [u8]) -> Option<Operands<'a>> {
        let (&form, list) = bytes.split_first()?;
        if form != OLDER_VERSION || list.is_empty() {
            return None;
        }
        let mut left = list;
        while !left.is_empty() {
            left = take_one(left)?.1;
        }
        Some(Operands { base: MergeBase::Below, list })
    }

    /// What bytes of operands on this base begin with: operands are to be added.
    #[must_use]
    pub fn begin(base: MergeBase<'_>) -> Vec<u8> {
        encode_base(base, 0)
    }

    /// Adds newer operands to bytes of operands.
    pub fn extend(bytes: &mut Vec<u8>, newer: &Operands<'_>) {
        bytes.extend_from_slice(newer.list);
    }

    /// Adds a newer operand to bytes of operands.
    pub fn push(bytes: &mut Vec<u8>, operand: &[u8]) {
        push(bytes, operand);
    }
}

fn encode_base(base: MergeBase<'_>, room: usize) -> Vec<u8> {
    let len = match base {
        MergeBase::Value(bytes) | MergeBase::Pointer(bytes) => bytes.len(),
        MergeBase::Below | MergeBase::Nothing => 0,
    };
    let mut bytes = Vec::with_capacity(1 + varint::LEN_MAX + len + room);
    match base {
        MergeBase::Below => bytes.push(BELOW),
        MergeBase::Nothing => bytes.push(NOTHING),
        MergeBase::Value(value) => {
            bytes.push(VALUE);
            push(&mut bytes, value);
        }
        MergeBase::Pointer(pointer) => {
            bytes.push(POINTER);
            bytes.extend_from_slice(pointer);
        }
    }
    bytes
}

fn push(bytes: &mut Vec<u8>, operand: &[u8]) {
    varint::put(bytes, operand.len() as u64);
    bytes.extend_from_slice(operand);
}

/// The first of these bytes with lengths, and the others.
fn take_one(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut position = 0;
    let len = varint::take_usize(bytes, &mut position)?;
    bytes[position..].split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list<'a>(bytes: &'a [u8]) -> (MergeBase<'a>, Vec<&'a [u8]>) {
        let operands = Operands::decode(bytes).unwrap();
        (operands.base, operands.iter().collect())
    }

    #[test]
    fn operands_go_on_top_of_whatever_is_older() {
        let mut newer = Operands::open(b"b");
        Operands::push(&mut newer, b"");
        let decoded = Operands::decode(&newer).unwrap();
        let over = |kind, older: &[u8]| decoded.over(kind, older).unwrap();
        let pointer = [7; ValuePointer::SIZE];
        let two = vec![&b"b"[..], b""];
        assert_eq!(list(&newer), (MergeBase::Below, two.clone()));
        let value = over(EntryKind::Value, b"v");
        assert_eq!(list(&value), (MergeBase::Value(b"v"), two.clone()));
        let nothing = over(EntryKind::Tombstone, b"");
        assert_eq!(list(&nothing), (MergeBase::Nothing, two.clone()));
        let pointed = over(EntryKind::Pointer, &pointer);
        assert_eq!(list(&pointed), (MergeBase::Pointer(&pointer), two));
        let closed = over(EntryKind::Composite, &Operands::single(MergeBase::Nothing, b"a"));
        assert_eq!(list(&closed), (MergeBase::Nothing, vec![&b"a"[..], b"b", b""]));
        let open = over(EntryKind::Composite, &Operands::open(b"a"));
        assert_eq!(list(&open), (MergeBase::Below, vec![&b"a"[..], b"b", b""]));
    }

    #[test]
    fn operands_of_a_version_are_told_from_others() {
        let mut bytes = Operands::begin(MergeBase::Value(b"v"));
        let open = Operands::open(b"a");
        Operands::extend(&mut bytes, &Operands::decode(&open).unwrap());
        let version = Operands::decode(&bytes).unwrap().on_older_version();
        assert_eq!(Operands::decode(&version), None);
        let decoded = Operands::decode_version(&version).unwrap();
        assert_eq!((decoded.base, decoded.iter().collect()), (MergeBase::Below, vec![&b"a"[..]]));
        for other in [&bytes, &open, &version[..1].to_vec(), &version[..2].to_vec()] {
            assert_eq!(Operands::decode_version(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_cut_or_of_another_form_is_none() {
        let whole = Operands::single(MergeBase::Value(b"value"), b"operand");
        for cut in 0..whole.len() {
            assert_eq!(Operands::decode(&whole[..cut]), None, "cut to {cut}");
        }
        assert_eq!(Operands::decode(&[4, 1, b'x']), None, "of another kind");
        assert_eq!(Operands::decode(&[9, 1, b'x']), None);
        assert_eq!(Operands::decode(&[BELOW]), None, "no operand");
        assert_eq!(Operands::decode(&[POINTER, 1, 2]), None);
    }
}
