//! Composite entries: what an entry of kind `Composite` holds, told apart by its first byte.
//!
//! | first byte | what |
//! |---|---|
//! | 0 to 3 | operands, see `operands.rs` |
//! | 4, 5 | a value, or a pointer, that expires, see `expiry.rs` |
//!
//! No keyspace has both: one with a merge operator takes none that expire.

use crate::base::{EntryKind, Expiring, MergeBase, Operands};

/// What a composite entry holds, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Composite<'a> {
    /// Operands, and perhaps what they are merged into.
    Operands(Operands<'a>),
    /// A value, or a pointer to one, that is there until a moment.
    Expiring(Expiring<'a>),
}

impl<'a> Composite<'a> {
    /// What these bytes hold; `None` if they are of no known form.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Composite<'a>> {
        match Expiring::decode(bytes) {
            Some(expiring) => Some(Composite::Expiring(expiring)),
            None => Operands::decode(bytes).map(Composite::Operands),
        }
    }
}

/// What an entry of this kind holds that expires, if it holds that.
#[inline]
#[must_use]
pub fn expiring_in(kind: EntryKind, value: &[u8]) -> Option<Expiring<'_>> {
    if kind == EntryKind::Composite { Expiring::decode(value) } else { None }
}

/// Whether an entry of this kind holds operands, or what is neither these nor expires.
#[inline]
#[must_use]
pub fn is_operands(kind: EntryKind, value: &[u8]) -> bool {
    kind == EntryKind::Composite && Expiring::decode(value).is_none()
}

/// Whether an entry of this kind has expired by `now`, in milliseconds since 1970.
#[inline]
#[must_use]
pub fn is_expired(kind: EntryKind, value: &[u8], now: u64) -> bool {
    expiring_in(kind, value).is_some_and(|expiring| expiring.until <= now)
}

/// The pointer that an entry of this kind holds, if it holds one.
#[must_use]
pub fn pointer_in(kind: EntryKind, value: &[u8]) -> Option<&[u8]> {
    match kind {
        EntryKind::Pointer => Some(value),
        EntryKind::Composite => match Composite::decode(value)? {
            Composite::Operands(Operands { base: MergeBase::Pointer(pointer), .. }) => {
                Some(pointer)
            }
            Composite::Expiring(Expiring { kind: EntryKind::Pointer, value, .. }) => Some(value),
            _ => None,
        },
        EntryKind::Value | EntryKind::Tombstone => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ValuePointer;

    #[test]
    fn what_an_entry_holds_is_told_by_its_first_byte() {
        let pointer = [7; ValuePointer::SIZE];
        let operands = Operands::single(MergeBase::Pointer(&pointer), b"x");
        let expiring = Expiring { until: 9, kind: EntryKind::Pointer, value: &pointer };
        let value = Expiring { until: 9, kind: EntryKind::Value, value: b"v" };
        let kind = EntryKind::Composite;
        assert!(matches!(Composite::decode(&operands), Some(Composite::Operands(_))));
        assert_eq!(Composite::decode(&value.encode()), Some(Composite::Expiring(value)));
        assert_eq!(pointer_in(kind, &operands), Some(&pointer[..]));
        assert_eq!(pointer_in(kind, &expiring.encode()), Some(&pointer[..]));
        assert_eq!(pointer_in(kind, &value.encode()), None);
        assert_eq!(pointer_in(EntryKind::Pointer, &pointer), Some(&pointer[..]));
        assert_eq!(Composite::decode(&[6, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert!(is_expired(kind, &value.encode(), 9) && !is_expired(kind, &value.encode(), 8));
        assert!(!is_expired(EntryKind::Value, &value.encode(), 10));
    }
}
