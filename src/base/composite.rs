//! Composite entries: what an entry of kind `Composite` holds, told apart by its first byte.
//!
//! | first byte | what |
//! |---|---|
//! | 0 to 3 | operands, see `operands.rs` |
//! | 4, 5 | a value, or a pointer, that expires, see `expiry.rs` |
//! | 6 | operands on the next older version, in archives alone, see `operands.rs` |
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
    /// Operands of a version in an archive, on the next older version of its key.
    OnOlderVersion(Operands<'a>),
}

impl<'a> Composite<'a> {
    /// What these bytes hold; `None` if they are of no known form.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Composite<'a>> {
        match Expiring::decode(bytes) {
            Some(expiring) => Some(Composite::Expiring(expiring)),
            None => Operands::decode(bytes)
                .map(Composite::Operands)
                .or_else(|| Operands::decode_version(bytes).map(Composite::OnOlderVersion)),
        }
    }
}

/// What an entry of this kind holds that expires, if it holds that.
#[inline]
#[must_use]
pub fn expiring_in(kind: EntryKind, value: &[u8]) -> Option<Expiring<'_>> {
    if kind == EntryKind::Composite { Expiring::decode(value) } else { None }
}

/// Whether an entry of this kind holds operands that are not on an older version, or what is none
/// of all these, nor expires.
#[inline]
#[must_use]
pub fn is_operands(kind: EntryKind, value: &[u8]) -> bool {
    kind == EntryKind::Composite
        && Expiring::decode(value).is_none()
        && version_operands(kind, value).is_none()
}

/// The operands that an entry of this kind, a version in an archive, has on the next older one.
#[inline]
#[must_use]
pub fn version_operands(kind: EntryKind, value: &[u8]) -> Option<Operands<'_>> {
    if kind == EntryKind::Composite { Operands::decode_version(value) } else { None }
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
        assert_eq!(Composite::decode(&[7, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let of_version = Operands::decode(&operands).unwrap().on_older_version();
        assert!(matches!(Composite::decode(&of_version), Some(Composite::OnOlderVersion(_))));
        assert!(is_operands(kind, &operands) && !is_operands(kind, &of_version));
        assert_eq!(version_operands(kind, &of_version).unwrap().iter().next(), Some(&b"x"[..]));
        assert!(is_expired(kind, &value.encode(), 9) && !is_expired(kind, &value.encode(), 8));
        assert!(!is_expired(EntryKind::Value, &value.encode(), 10));
    }
}
